"""Proofs of the root SKILL.md: package and module, releases, the smoke's exit codes, the error texts it is found by."""
from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import pydoc
import re
import runpy
import subprocess
import sys
from functools import lru_cache

import ignite
import ignite.distributed as idist
from ignite.metrics import ROC_AUC, Metric
from support import BUNDLE, DISTRIBUTED
from support.claims import proves
from support.pages import read_page
from support.releases import releases, requirements
from support.world import run_serial, run_world, values
from torch.distributed.run import main as torchrun

SMOKE = DISTRIBUTED / "scripts" / "distributed_smoke.py"


@lru_cache(maxsize=None)
def smoke_help() -> str:
    done = subprocess.run([sys.executable, str(SMOKE), "--help"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return re.sub(r"\s+", " ", done.stdout)


def verified() -> list[str]:
    """Releases between the first one that is only a background and the development build, oldest first."""
    return [version for version in releases()[1:] if version != "nightly"]


def message(**world) -> str:
    """The error that `initialize("gloo")` gives in such a world."""
    return run_world(1, lambda rank: idist.initialize("gloo"), **world)[0].message


@proves("SKILL.md#pytorch-ignite")
def description_names_what_the_library_says(entry):
    """The error texts in the description are those of the library, and the names are its names."""
    header = read_page("SKILL.md").source.split("\n---\n")[0]
    description = re.search(r'^description: "(.*)"$', header, re.M)[1]
    texts = re.findall(r"'((?:[^']|'gloo')*)'(?=[,;])", description)
    said = [
        message(init=None, unset=("RANK",)),
        run_serial(lambda: idist.Parallel("none")).message,
    ]
    assert len(texts) == len(said), texts
    for text in texts:
        assert any(text in s for s in said), f"SKILL.md, description: no error of the library holds\n  {text}\n{said}"
    plain = re.sub(r"'(?:[^']|'gloo')*'", "", description)
    names = set(re.findall(r"\b[a-z]+(?:_[a-z]+)+\b|\b[A-Z][a-z]+[A-Z]\w+", plain)) - NOT_OF_IGNITE
    names |= {"Parallel", "Engine", "Events", "Checkpoint"}
    assert len(names) > 5, names
    for name in names:
        known = name in inspect.signature(Metric).parameters or homes(name)
        assert name in description and known, f"SKILL.md, description: Ignite has no {name}"
    compatibility = re.search(r"^compatibility: (.*)$", header, re.M)[1]
    first, *_, last = verified()
    python = re.search(r">=(\d+\.\d+)", requirements(last)[0])[1]
    assert f"Python {python} or newer" in compatibility, f"{last} asks for Python {python}: {compatibility}"
    assert f"pytorch-ignite {first} to {last}" in compatibility, f"verified {first} to {last}: {compatibility}"
    site = "https://pytorch.org/ignite/"
    assert site in str(importlib.metadata.metadata("pytorch-ignite"))
    assert "class Engine" in pydoc.render_doc("ignite.engine.Engine", renderer=pydoc.plaintext)
    entry.says("What stands on no page: `python -m pydoc ignite.engine.Engine` prints what the installed release does.")
    for number, row in enumerate(entry.entry.tables[0].rows[1:]):
        where = f"SKILL.md:{entry.entry.tables[0].line + 2 + number}"
        for name in re.findall(r"`([^`]+)`", row[0]):
            if re.fullmatch(r"[A-Za-z_]\w*", name) and name != "idist":
                known = ["metrics"] if name in inspect.signature(Metric).parameters else homes(name)
                assert room_of(row[1]) in known, f"{where}: `{name}` is in {known}, but the row leads to {row[1]}"
            entry.says(name)
    missing = values([run_serial(without_scikit_learn)])[0]
    assert "requires" in missing and missing.endswith("to be installed.")
    entry.says("requires … to be installed")


NOT_OF_IGNITE = {"PyTorch", "DDP"}


def homes(name: str) -> list[str]:
    """The rooms, or `utils`, whose package has the public name."""
    packages = ("distributed", "engine", "handlers", "metrics", "utils")
    return [p for p in packages if hasattr(importlib.import_module(f"ignite.{p}"), name)]


def room_of(cell: str) -> str:
    """The room, or the reference page, that a cell of the decision table leads to."""
    found = re.search(r"\((?:sub-skills/(\w+)|references/([\w-]+)\.md)", cell)
    return found and (found[1] or found[2])


def without_scikit_learn() -> str:
    for name in [n for n in sys.modules if n.partition(".")[0] == "sklearn"] + ["sklearn", "sklearn.metrics"]:
        sys.modules[name] = None  # also what another test has imported
    try:
        ROC_AUC()
    except ImportError as e:
        return str(e)
    return ""


@proves("SKILL.md#holds-everywhere")
def package_and_module(entry):
    module = ignite.__name__
    package = importlib.metadata.packages_distributions()[module][0]
    assert idist.__name__ == "ignite.distributed"
    first, *_, last = verified()
    entry.says(
        f"The package is {package}, the module {module}: pip install {package}, then import {module}.",
        f"The distributed helpers are imported as import {idist.__name__} as idist.",
        f"Verified with releases {first} to {last}; what differs between them is in versions.",
    )


@proves("SKILL.md#is-this-machine-all-right")
def exit_codes(entry):
    """The table's codes and meanings are those of --help; the flags are too."""
    text = smoke_help()
    listed = dict(re.findall(r"(?<= )(\d) (every|a|usage|launch|the)\b", text[text.index("exit codes:"):]))
    rows = entry.entry.tables[0].rows[1:]
    assert [row[0] for row in rows] == sorted(listed), f"{entry.entry.where}: --help lists {sorted(listed)}"
    for code, meaning, _ in rows:
        said = re.search(rf" {code} (.*?)(?= \d |\(|$)", text[text.index("exit codes:"):])[1]
        missing = [word for word in re.findall(r"\w+", meaning) if word not in said]
        assert not missing, f"{entry.entry.where}: exit code {code}: --help says «{said}», the page «{meaning}»"
        entry.says(code)
    for flag in ("--env", "--format", "--help"):
        assert flag in text
        entry.says(flag)
    every = runpy.run_path(str(BUNDLE / "scripts" / "smoke.py"))["find_smokes"]()
    assert every == {p.parts[-3]: p for p in BUNDLE.glob("sub-skills/*/scripts/*_smoke.py")} and every
    entry.says("`python scripts/smoke.py` runs the smoke of every room.")
    arguments = ["--standalone", "--nproc_per_node=1", "--no-python", "bash", "-c", "exit 5"]
    flattened = run_serial(lambda: torchrun(arguments))
    assert flattened.error == "ChildFailedError", flattened  # uncaught: the launcher itself ends with 1
    entry.says(
        f"python {SMOKE.relative_to(BUNDLE)} starts real ranks here",
        "--env only shows versions, backends and variables, --format json is for programs, --help lists the rest.",
        "start it with the cluster's launcher (torchrun, srun).",
        "Under torchrun every code but 0 becomes 1: read the report.",
    )
