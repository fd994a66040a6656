"""explain_log.py as the tests use it: in this process, on recorded logs."""

from __future__ import annotations

import importlib.util
import json
import sys
from functools import cache
from pathlib import Path

from . import BUNDLE

SCRIPT = BUNDLE / "sub-skills" / "distributed" / "scripts" / "explain_log.py"
PAGE = BUNDLE / "sub-skills" / "distributed" / "references" / "troubleshooting.md"
LOGS = BUNDLE / "tests" / "logs"


@cache
def program(path: Path = SCRIPT):
    """The script as a module."""
    return load(path, f"program_{path.stem}")


def load(path: Path, name: str):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles look here
    spec.loader.exec_module(module)
    return module


@cache
def cases() -> dict:
    """name -> (launcher, fault, ranks, rank, options, outcome, causes, guilty) of the recorded logs."""
    return load(LOGS / "record.py", "record_logs").CASES


@cache
def rules():
    return program().load_rules()


def verdict(*paths) -> dict:
    """The JSON report on these files, which fits into its bound."""
    module = program()
    _, found = module.explain([str(p) for p in paths], rules())
    text = module.as_json(found)
    assert len(text) <= module.ANSWER and len(module.as_text(found)) <= module.ANSWER
    return json.loads(text)


def log(name: str) -> str:
    """The text of a recorded log."""
    return (LOGS / f"{name}.log").read_text()


def judged(folder: Path, text: str) -> dict:
    """The JSON report on that text, written into the folder."""
    (folder / "job.log").write_text(text)
    return verdict(folder / "job.log")
