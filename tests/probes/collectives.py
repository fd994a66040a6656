"""What each collective of `ignite.distributed` gives for each kind of input: serial, gloo in one process, gloo in two.

    python tests/probes/collectives.py [NAME …]       prints the tables of api-reference.md as Markdown

Every cell is measured here; the proofs of the page compare its tables with these rows. Notation of a cell: LEGEND,
and a Python value as `int 3`, `float 0.2`, `'text'` or `[1, 2]`, a tensor as its dtype and values, `float32 [3.0]`, an
exception as its class and text, … for what is left out. Neighbours with the same cells share a row.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import ignite.distributed as idist  # noqa: E402
from support.world import run_serial, run_world, values  # noqa: E402

CONTEXTS = ("serial", "gloo, 1 process", "gloo, 2 processes")
LEGEND = (
    "In the tables `r` is the rank; *same*: the input comes back unchanged, if it is no number or text as the very"
    " object; *in place*: the tensor that was passed, changed; `r0`, `r1`: ranks differ."
)
LONGEST_ERROR = 64  # characters of an exception that a cell shows

Case = tuple[str, Callable[[int], Any]]  # how the input is written; what rank r passes


def full(value: Any, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.full(shape, value, dtype=dtype)


REDUCE: list[Case] = [
    ("`r + 1`", lambda r: r + 1),
    ("`2**53 + 1`", lambda r: 2**53 + 1),
    ("`2**62`", lambda r: 2**62),
    ("`2**63`", lambda r: 2**63),
    ("`0.1`", lambda r: 0.1),
    ("`True`", lambda r: True),
    ("tensor, 0-dim", lambda r: torch.tensor(r + 1.0)),
    ("tensor `(1, 2)`", lambda r: full(r + 1.0, 1, 2)),
    ("tensor, float64", lambda r: full(0.1, 1, dtype=torch.float64)),
    ("tensor, int8 of 100", lambda r: full(100, 1, dtype=torch.int8)),
    ("tensor, bool", lambda r: torch.tensor([True, r == 0])),
    ("tensor, transposed", lambda r: torch.arange(4.0).reshape(2, 2).T),
    ("`'a'`", lambda r: "a"),
    ("`Path('a')`", lambda r: Path("a")),
    ("`None`", lambda r: None),
    ("`[1]`", lambda r: [1]),
    ("`{'a': 1}`", lambda r: {"a": 1}),
    ("`np.ones(1)`", lambda r: np.ones(1)),
]

GATHER: list[Case] = [
    ("`r + 1`", lambda r: r + 1),
    ("`2**53 + 1`", lambda r: 2**53 + 1),
    ("`2**63`", lambda r: 2**63),
    ("`0.1`", lambda r: 0.1),
    ("`True`", lambda r: True),
    ("tensor, 0-dim", lambda r: torch.tensor(r + 1.0)),
    ("tensor `(1, 2)`", lambda r: full(r + 1.0, 1, 2)),
    ("tensor, float64", lambda r: full(0.1, 1, dtype=torch.float64)),
    ("tensor, int64", lambda r: full(2**53 + 1, 1, dtype=torch.int64)),
    ("tensor, transposed", lambda r: torch.arange(4.0).reshape(2, 2).T),
    ("`'ab'`, `'c'`", lambda r: ("ab", "c")[r]),
    ("`''`", lambda r: ""),
    ("`'é'`", lambda r: "é"),
    ("`'café.pt'`", lambda r: "café.pt"),
    ("`'日本'`", lambda r: "日本"),
    ("`Path('a')`", lambda r: Path("a")),
    ("`None`", lambda r: None),
    ("`[1]`", lambda r: [1]),
    ("`{'r': r}`", lambda r: {"r": r}),
    ("`np.ones(1)`", lambda r: np.ones(1)),
]

SHAPES: list[Case] = [
    ("tensor `(r + 1,)`", lambda r: full(r + 1.0, r + 1)),
    ("tensor `(1, r + 1)`", lambda r: full(r + 1.0, 1, r + 1)),
    ("tensor `(0,)`, `(1,)`", lambda r: full(1.0, r)),
    ("tensor, float64", lambda r: full(0.1, 1, dtype=torch.float64)),
    ("tensor, int64", lambda r: full(2**53 + 1, 1, dtype=torch.int64)),
    ("tensor, bool", lambda r: torch.tensor([True])),
    ("tensor, 0-dim", lambda r: torch.tensor(r + 1.0)),
    ("`1`", lambda r: 1),
    ("`0.1`", lambda r: 0.1),
    ("`'a'`", lambda r: "a"),
    ("`None`", lambda r: None),
    ("`[1]`", lambda r: [1]),
]

BROADCAST: list[Case] = [
    ("`3`", lambda r: (3, 0)[r]),
    ("`2**24 + 1`", lambda r: (2**24 + 1, 0)[r]),
    ("`2**53 + 1`", lambda r: (2**53 + 1, 0)[r]),
    ("`0.1`", lambda r: (0.1, 0.0)[r]),
    ("`1e300`", lambda r: (1e300, 0.0)[r]),
    ("`True`", lambda r: (True, False)[r]),
    ("tensor, 0-dim", lambda r: torch.tensor(1.0 - r)),
    ("tensor `(1, 2)`", lambda r: full(1.0 - r, 1, 2)),
    ("tensor, float64", lambda r: full((0.1, 0)[r], 1, dtype=torch.float64)),
    ("tensor, int64", lambda r: full((2**53 + 1, 0)[r], 1, dtype=torch.int64)),
    ("tensor, transposed", lambda r: torch.arange(4.0).reshape(2, 2).T * (1 - r)),
    ("`'abc'`", lambda r: ("abc", "")[r]),
    ("`'é'`", lambda r: ("é", "")[r]),
    ("`'café.pt'`", lambda r: ("café.pt", "")[r]),
    ("`'日本'`", lambda r: ("日本", "")[r]),
    ("`Path('a/b')`", lambda r: (Path("a/b"), Path())[r]),
    ("`None`", lambda r: None),
    ("`[1]`", lambda r: [1]),
    ("`{'a': 1}`", lambda r: {"a": 1}),
    ("`np.ones(1)`", lambda r: np.ones(1)),
]

NEW_GROUP: list[Case] = [
    ("`[0]`", lambda r: [0]),
    ("`[1, 0]`", lambda r: [1, 0]),
    ("`[]`", lambda r: []),
    ("`[5]`", lambda r: [5]),
    ("`[0, 0]`", lambda r: [0, 0]),
    ("`(0,)`", lambda r: (0,)),
    ("`range(1)`", lambda r: range(1)),
    ("`None`", lambda r: None),
]


# One rank raises where the other already waits for it: such a case needs a world of its own.
DESYNCHRONISES = {("broadcast", "`'日本'`")}

_peers: list[Any] = []  # what each rank passes in the case at hand


def call_with_shapes(x: Any) -> Any:
    """Every rank tells the shapes of all."""
    shapes = [list(t.shape) if isinstance(t, torch.Tensor) else [1] for t in _peers]
    return idist.all_gather_tensors_with_shapes(x, shapes)


PROBES: dict[str, tuple[Callable[[Any], Any], list[Case]]] = {
    "all_reduce": (idist.all_reduce, REDUCE),
    "all_gather": (idist.all_gather, GATHER),
    "all_gather_tensors_with_shapes": (call_with_shapes, SHAPES),
    "broadcast": (idist.broadcast, BROADCAST),
    "new_group": (idist.new_group, NEW_GROUP),
}


def rows(name: str) -> list[list[str]]:
    """The table of one collective, header first; cells are Markdown."""
    call, cases = PROBES[name]
    together = [case for case in cases if (name, case[0]) not in DESYNCHRONISES]
    cells = dict(zip((label for label, _ in together), _measure(call, together)))
    for case in cases:
        if case not in together:
            cells[case[0]] = _measure(call, [case])[0]
    table = [["input on rank `r`", *CONTEXTS]]
    for shared, group in groupby((label for label, _ in cases), key=cells.get):
        table.append([", ".join(group), *shared])
    return table


def _measure(call: Callable[[Any], Any], cases: list[Case]) -> list[list[str]]:
    """For each case its cells: serial, a world of one, a world of two."""

    def observe(rank: int, size: int) -> list[str]:
        seen = []
        for _, make in cases:
            _peers[:] = [make(r) for r in range(size)]
            x, fresh = make(rank), make(rank)
            try:
                seen.append(describe(call(x), x, fresh))
            except Exception as e:
                seen.append("waits" if "gloo/transport" in str(e) else f"`{shorten(f'{type(e).__name__}: {e}')}`")
                if len(cases) == 1 and dist.is_initialized():
                    idist.finalize()  # so that nobody waits at the closing barrier either
        return seen

    serial = values([run_serial(lambda: observe(0, 1))])
    one = values(run_world(1, lambda rank: observe(rank, 1), timeout=30, limit=60))
    two = values(run_world(2, lambda rank: observe(rank, 2), timeout=30, limit=60))
    return [[_cell([ranks[i] for ranks in context]) for context in (serial, one, two)] for i in range(len(cases))]


def markdown(table: list[list[str]]) -> str:
    head, *body = table
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *body])


def describe(value: Any, given: Any, fresh: Any) -> str:
    """One cell's words for a result; `given` was passed, `fresh` is what it looked like before the call."""
    by_value = isinstance(given, (bool, int, float, str))
    if _words(value) == _words(fresh) and (value is given or by_value):
        return "same"
    return f"`{_words(value)}`" + (" in place" if value is given else "")


def _words(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {value.tolist()}"
    if isinstance(value, list):
        inside = ", ".join(_words(v) if isinstance(v, torch.Tensor) else repr(v) for v in value)
        return f"[{inside}]"
    if isinstance(value, (bool, int, float)) and value is not None:
        return f"{type(value).__name__} {value}"
    if isinstance(value, Path):
        return f"Path({str(value)!r})"
    if type(value).__name__ == "ProcessGroup":
        return "ProcessGroup"
    return repr(value)


def _cell(said: list[str]) -> str:
    """One cell for what the ranks saw: once when they agree."""
    return said[0] if len(set(said)) == 1 else "; ".join(f"r{rank} {words}" for rank, words in enumerate(said))


def shorten(message: str, longest: int = LONGEST_ERROR) -> str:
    """The first line, cut at a word, with … for what is left out."""
    line = message.split("\n")[0].replace("|", "…")
    line = re.sub(r"<class '.*?'>", "<class …>", re.sub(r"'\w+' object has", "… object has", line))
    if len(line) > longest:
        return line[:longest].rsplit(" ", 1)[0] + "…"
    return line


if __name__ == "__main__":
    for probe in sys.argv[1:] or PROBES:
        print(f"{probe}\n\n{markdown(rows(probe))}\n")
