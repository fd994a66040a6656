"""Promise: every room's smoke is green here, keeps the contract of scripts/smoke_runner.py, and names what is broken:
in the library, among its packages, or in time.

The scripts are found, sub-skills/ROOM/scripts/ROOM_smoke.py; distributed_smoke.py, which has a runner of its own, has
tests of its own. They run as forks of this process, which has their imports.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import BUNDLE
from support.claims import COUNTS
from support.pages import read_page
from support.smoke import ForkedSmoke, plain_environment

sys.path.insert(0, str(BUNDLE / "scripts"))
import smoke  # noqa: E402
import smoke_runner  # noqa: E402

SMOKES = {room: path for room, path in smoke.find_smokes().items() if room != "distributed"}
FIELDS = {"schema", "tool", "status", "exit_code", "seconds", "environment", "diagnosis", "runs", "summary"}
SABOTAGED = {  # room -> what is broken -> the check that must name it
    "engine": {"Engine.run": "Engine.run"},
    "handlers": {"Checkpoint.__call__": "Checkpoint"},
    "metrics": {"Accuracy.compute": "Accuracy"},
}


def load(path: Path):
    """The script as a module; its checks have registered, nothing has run."""
    if path.stem not in sys.modules:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        sys.modules[path.stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[path.stem])
    return sys.modules[path.stem]


def run(room_or_path, *argv: str, prepare=None):
    path = SMOKES.get(room_or_path, room_or_path)
    return ForkedSmoke(list(argv), prepare, module=load(path)).finish()


def checks(result) -> dict[str, dict]:
    return {c["id"]: c for r in result.report["runs"] for c in r["checks"]}


def break_method(package: str, dotted: str):
    """Replace a method, for whoever has the class already, by one that does nothing."""
    owner, _, method = dotted.partition(".")
    setattr(getattr(importlib.import_module(package), owner), method, lambda *args, **kwargs: None)


@pytest.fixture(scope="module")
def reports():
    """The default run of each room, once."""
    found: dict = {}
    return lambda room: found.setdefault(room, run(room, "--format", "json"))


def test_smokes_are_found():
    assert SMOKES and all(load(path) for path in SMOKES.values())
    without = [p for p in BUNDLE.glob("sub-skills/*/scripts") if not list(p.glob("*_smoke.py"))]
    assert not without


@pytest.mark.parametrize("room", SMOKES)
def test_is_green_here(room, reports):
    result = reports(room)
    assert result.code == 0, result.failing() or result.err
    assert result.report["summary"]["pass"] > 10
    COUNTS["checks of the rooms' smokes that passed"] += result.report["summary"]["pass"]


@pytest.mark.parametrize("room", SMOKES)
def test_report_has_the_fields_of_the_contract(room, reports):
    report = reports(room).report
    assert set(report) == FIELDS and report["schema"] == "pytorch-ignite-smoke/1"
    assert (report["tool"], report["status"], report["exit_code"]) == (f"{room}_smoke.py", "pass", 0)
    assert {"python", "torch", "ignite"} <= set(report["environment"])
    (entry,) = report["runs"]
    assert (entry["target"], entry["world_size"]) == (room, 1)
    assert {"backend", "launcher", "status", "seconds", "checks"} <= set(entry)
    assert report["summary"] == {s: sum(c["status"] == s for c in entry["checks"]) for s in smoke_runner.STATUSES}
    assert all(("reason" in c) == (c["status"] == "skip") for c in entry["checks"])


@pytest.mark.parametrize("room", SMOKES)
def test_list_only_output_and_text(room, reports, tmp_path):
    ids = run(room, "--list").out.split()
    assert ids == list(checks(reports(room)))
    some = run(room, "--only", f"{ids[1]},{ids[0]}", "--format", "json", "--output", str(tmp_path / "r.json"))
    assert list(checks(some)) == ids[:2] and json.loads((tmp_path / "r.json").read_text()) == some.report
    text = run(room, "--only", ids[0])
    assert text.out.startswith("PASS  exit code 0") and len(text.out) < 10_000


@pytest.mark.parametrize("room", SMOKES)
def test_help_has_purpose_exit_codes_and_three_examples(room):
    module, text = load(SMOKES[room]), run(room, "--help").out
    assert " ".join(module.__doc__.split()) in " ".join(text.split())
    codes, examples = text.partition("exit codes:")[2].partition("examples:")[::2]
    assert all(re.search(rf"\b{code} ", codes) for code in (0, 1, 2, 3, 5))
    assert len([line for line in examples.splitlines() if f"{room}_smoke.py" in line]) == 3


@pytest.mark.parametrize(
    "argv",
    [
        ["--only", "no_such_check"],
        ["--only", ""],
        ["--timeout", "0"],
        ["--format", "xml"],
        ["--no-such-flag"],
        ["word"],
        ["--output", "/no/such/folder/x", "--only", "FIRST"],
    ],
)
@pytest.mark.parametrize("room", SMOKES)
def test_usage_errors_end_with_2_and_one_line(room, argv):
    first = next(iter(smoke_runner.CHECKS[load(SMOKES[room]).__name__]))
    result = run(room, *[first if a == "FIRST" else a for a in argv])
    assert result.code == 2 and len(result.err.strip().splitlines()) == 1, result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize("room", SMOKES)
def test_every_see_leads_to_an_entry(room):
    load(SMOKES[room])
    lost = []
    for c in smoke_runner.CHECKS[f"{room}_smoke"].values():
        page, _, anchor = c.see.partition("#")
        path = Path("sub-skills", room, page)
        if not (BUNDLE / path).exists() or (anchor and anchor not in read_page(path).anchors):
            lost.append(f"{c.id}: {c.see}")
    assert not lost, f"{room}_smoke.py: these lead nowhere: {lost}"


@pytest.mark.parametrize("room", SMOKES)
def test_missing_torch_ends_with_3_and_one_line(room, tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('not here')")
    for form, lines in (("text", 0), ("json", 1)):
        done = subprocess.run(
            [sys.executable, SMOKES[room], "--format", form],
            capture_output=True,
            text=True,
            timeout=60,
            env=plain_environment(PYTHONPATH=str(tmp_path)),
        )
        assert done.returncode == 3, done.stderr
        assert done.stderr.strip() == f"{room}_smoke.py: torch cannot be imported (not here): pip install torch"
        assert not lines or json.loads(done.stdout)["diagnosis"][0]["fix"] == "pip install torch"


def test_missing_ignite_ends_with_3_and_one_line(tmp_path):
    room = "engine"
    (tmp_path / "ignite.py").write_text("raise ImportError('not here')")
    done = subprocess.run(
        [sys.executable, SMOKES[room]],
        capture_output=True,
        text=True,
        timeout=60,
        env=plain_environment(PYTHONPATH=str(tmp_path)),
    )
    expected = f"{room}_smoke.py: ignite cannot be imported (not here): pip install pytorch-ignite"
    assert (done.returncode, done.stderr.strip()) == (3, expected)


@pytest.mark.parametrize(
    "room, broken, named",
    [(room, broken, named) for room, cases in SABOTAGED.items() if room in SMOKES for broken, named in cases.items()],
)
def test_a_broken_library_turns_it_red_and_is_named(room, broken, named):
    result = run(room, "--format", "json", prepare=lambda: break_method(f"ignite.{room}", broken))
    assert result.code == 1 and named in result.failing(), result.failing()
    failed = checks(result)[named]
    assert failed["expected"] and failed["observed"]["0"] and failed["hint"] and failed["see"].startswith("references/")
    COUNTS["sabotaged helpers noticed and named"] += 1


METHODS = [i for i in smoke_runner.CHECKS[load(SMOKES["engine"]).__name__] if re.fullmatch(r"Engine\.[a-z_]+", i)]


@pytest.mark.parametrize("name", METHODS)
def test_each_method_of_the_engine_is_guarded_by_the_check_of_its_name(name):
    method = name.removesuffix("_skip_completed")
    result = run("engine", "--only", name, "--format", "json", prepare=lambda: break_method("ignite.engine", method))
    assert result.code == 1 and result.failing() == [name], result.out
    COUNTS["sabotaged helpers noticed and named"] += 1


def test_a_resume_that_loses_the_optimizer_is_noticed():
    import torch

    result = run(
        "engine",
        "--only",
        "resume_rebuilt",
        "--format",
        "json",
        prepare=lambda: setattr(torch.optim.SGD, "load_state_dict", lambda *args: None),
    )
    assert result.failing() == ["resume_rebuilt"] and "weights" in result.out


INVENTED = '''
"""An invented smoke script."""
import os, sys, time
import smoke_runner
from smoke_runner import check, expect, expect_raises
with smoke_runner.imports():
    import torch
    import ignite

@check("good")
def _():
    expect("a tensor", torch.ones(2), torch.ones(2))
    expect("nearly", 0.1 + 0.2, 0.3, within=1e-9)
    expect_raises("an error", ValueError, "boom", exec, "raise ValueError('boom')")

@check("bad")
def _():
    """What it means."""
    print("what it printed")
    expect("a type", 1, 1.0)

@check("quiet")
def _():
    expect_raises("an error", ValueError, "boom", len, [])

@check("raises")
def _():
    raise KeyError("gone")

@check("dies")
def _():
    os._exit(7)

@check("lonely", needs_package="no_such_package")
def _():
    raise AssertionError

@check("future", since="99.0")
def _():
    raise AssertionError

@check("frozen", see="references/troubleshooting.md#frozen")
def deep_sleep():
    if os.environ.get("FREEZE"):
        child = os.fork()
        if child:
            open(os.environ["FREEZE"], "w").write(str(child))
        time.sleep(300)

@check("clean")
def _():
    expect("folder", os.listdir("."), [])
    open("left", "w").close()

def main(argv=None):
    return smoke_runner.main(__name__, argv)
'''


@pytest.fixture(scope="module")
def invented(tmp_path_factory):
    path = tmp_path_factory.mktemp("invented") / "invented_smoke.py"
    path.write_text(INVENTED)
    return path


def test_the_runner_tells_what_went_wrong(invented, tmp_path):
    result = run(invented, "--format", "json")
    found = checks(result)
    assert {i: c["status"] for i, c in found.items()} == {
        "good": "pass",
        "bad": "fail",
        "quiet": "fail",
        "raises": "fail",
        "dies": "error",
        "lonely": "skip",
        "future": "skip",
        "frozen": "pass",
        "clean": "pass",
    }
    assert result.code == 1 and result.report["status"] == "fail"
    bad = found["bad"]
    assert (bad["expected"], bad["observed"], bad["hint"], bad["printed"], bad["see"]) == (
        "a type: 1.0",
        {"0": "a type: 1"},
        "What it means.",
        {"0": "what it printed"},
        "references/api-reference.md#bad",
    )
    assert "returned 0" in found["quiet"]["observed"]["0"] and "KeyError" in found["raises"]["observed"]["0"]
    assert any("gone" in line for line in found["raises"]["stacks"]["0"])
    assert "exit code 7" in found["dies"]["observed"]["0"]
    assert "no_such_package" in found["lonely"]["reason"] and "99.0" in found["future"]["reason"]
    text = run(invented).out
    assert (
        "FAIL bad: What it means." in text and "Traceback" not in text and "Traceback" in run(invented, "--verbose").out
    )
    assert not list(invented.parent.glob("left"))


def test_the_deadline_ends_the_run_names_the_check_and_shows_its_stack(invented, monkeypatch, tmp_path):
    monkeypatch.setenv("FREEZE", str(tmp_path / "child"))
    start = time.monotonic()
    result = run(invented, "--only", "good,frozen,clean", "--timeout", "3", "--format", "json")
    assert result.code == 5 and time.monotonic() - start < 20 and result.report["status"] == "timeout"
    found = checks(result)
    assert found["frozen"]["status"] == "timeout" and "deep_sleep" in found["frozen"]["stacks"]["0"][0]
    assert found["clean"]["reason"] == "the run ended in frozen"
    assert found["good"]["status"] == "pass" and found["frozen"]["see"].endswith("#frozen")
    child = Path("/proc", (tmp_path / "child").read_text(), "stat")  # what the frozen check had started
    assert not child.exists() or child.read_text().rpartition(")")[2].split()[0] == "Z"
