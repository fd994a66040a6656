"""What `ignite.utils.convert_tensor` makes of each kind of input, and which modules of Ignite use which helper.

    python tests/probes/utils.py       prints the tables of references/utils.md as Markdown
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, OrderedDict, UserDict, defaultdict, deque, namedtuple
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.nn.utils.rnn import pack_sequence

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import ignite  # noqa: E402
from ignite import utils  # noqa: E402

Pair = namedtuple("Pair", "a b")


@dataclass
class Sample:
    image: torch.Tensor


def inputs() -> list[tuple[str, object]]:
    """How an input is written on the page, and the input."""
    t = torch.ones(2)
    return [
        ("tensor, `Parameter`", torch.nn.Parameter(t)),
        ("`str`, `bytes`", "a"),
        ("`list`", [t, "a"]),
        ("`tuple`", (t,)),
        ("namedtuple", Pair(t, t)),
        ("`dict`", {"a": [t]}),
        ("`OrderedDict`", OrderedDict(a=t)),
        ("`UserDict`", UserDict(a=t)),
        ("`deque`", deque([t])),
        ("`pack_sequence(…, enforce_sorted=False)`", pack_sequence([t, t], enforce_sorted=False)),
        ("`pack_sequence(…)`", pack_sequence([t])),
        ("`defaultdict`", defaultdict(list, a=t)),
        ("`Counter`", Counter(a=1)),
        ("dataclass", Sample(t)),
        ("number", 1),
        ("`None`", None),
        ("`numpy.ndarray`", np.ones(1)),
        ("`set`", {"a"}),
        ("`torch.Size`", t.shape),
    ]


def convert_rows() -> list[list[str]]:
    """What goes in, what comes back; kinds with the same answer share a row."""
    answers: dict[str, list[str]] = {}
    for written, value in inputs():
        try:
            made = utils.convert_tensor(value)
            answer = "the same object" if made is value else "new, of its type"
            assert type(made) is type(value), written
        except TypeError as e:
            answer = f"`{type(e).__name__}`" + ("" if "x must contain" in str(e) else ", another text")
        answers.setdefault(answer, []).append(written)
    return [[", ".join(kinds), answer] for answer, kinds in answers.items()]


def use_rows() -> list[list[str]]:
    """Helper, and the modules that import it from `ignite.utils`, or take it as an attribute of that module."""
    root = Path(ignite.__file__).parent
    used: dict[str, set[str]] = {}
    for file in sorted(root.rglob("*.py")):
        parts = file.relative_to(root.parent).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        tree = ast.parse(file.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == "ignite.utils":
                for name in node.names:
                    used.setdefault(name.name, set()).add(module)
            if isinstance(node, ast.ImportFrom) and node.module == "ignite" and "utils" in {n.name for n in node.names}:
                for user in ast.walk(tree):
                    if isinstance(user, ast.Attribute) and getattr(user.value, "id", "") == "utils":
                        used.setdefault(user.attr, set()).add(module)
    public = [n for n in utils.__all__ if not n.startswith("_")]
    rows = []
    for name in [*public, "deprecated"]:
        users = sorted(used.get(name, set()) - {"ignite._utils"})
        rows.append([f"`{name}`", ", ".join(f"`{m}`" for m in users) or "none"])
    return rows


TABLES = {
    "CONVERT": (["Input", "Comes back"], convert_rows),
    "USES": (["Helper", "Modules"], use_rows),
}


def table(name: str) -> list[list[str]]:
    header, rows = TABLES[name]
    return [header, *rows()]


def markdown(name: str) -> str:
    header, *rows = table(name)
    return "\n".join("| " + " | ".join(r) + " |" for r in [header, ["---"] * len(header), *rows])


if __name__ == "__main__":
    for name in TABLES:
        print(markdown(name), end="\n\n")
