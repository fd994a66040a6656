"""Promise: whichever public helper of ignite.distributed is broken, and however, the smoke fails in its check.

Broken means: a wrong value everywhere or on one rank, nothing done, an exception everywhere or on one rank, a freeze on
one rank. Most cases fork this process, whose imports are paid; some go through an import hook and new interpreters.
The first way of each helper meets the default run; the others, to save time, the check alone and what it relies on.
`make sabotage` gives every way the default run.
"""

import os

import pytest
from support.claims import COUNTS
from support.sabotage import hook_folder, modes_of, public_names, sabotage, sabotage_subtly, subtle_faults
from support.smoke import Result, forked_smokes, fresh_smoke, plain_environment

NAMES = public_names()
FREEZES = [name for name in NAMES if "freezes-on-one-rank" in modes_of(name)]
FREEZE_TIMEOUT = 12


def job(name: str, mode: str, everywhere: bool = True, timeout: float = 60, whole: bool = True) -> dict:
    argv = ["--format", "json", "--timeout", str(timeout)]
    if not whole and not os.environ.get("SABOTAGE_WHOLE"):
        argv += ["--only", name]
    return {"argv": argv, "prepare": lambda: sabotage(name, mode, everywhere=everywhere)}


def complaint(name: str, result: Result) -> str:
    """Why the result does not name the helper, or nothing."""
    if result.code in (0, 98, 99):
        return f"passed, or broke itself: {result.err}"
    failing = result.failing()
    return "" if failing and failing[0] == name else f"the first failing check is not {name}: {failing}"


def test_there_are_cases():
    assert len(NAMES) > 30 and len(FREEZES) > 25


@pytest.mark.parametrize("name", NAMES)
def test_broken_helper_is_named(name):
    """Replaced in every module that refers to it; a wrong value also in the package's namespace alone."""
    cases = [(mode, True) for mode in modes_of(name) if "freezes" not in mode] + [("wrong", False)]
    results = forked_smokes([job(name, *case, whole=case is cases[0]) for case in cases], at_once=2)
    wrong = [f"{case}: {why}" for case, result in zip(cases, results) if (why := complaint(name, result))]
    assert not wrong, "\n".join(wrong)
    COUNTS["sabotaged helpers noticed and named"] += len(cases)


def test_frozen_helpers_are_named_with_their_stack():
    """All at once, since they only wait."""
    jobs = [job(n, "freezes-on-one-rank", timeout=FREEZE_TIMEOUT, whole=False) for n in FREEZES]
    results = forked_smokes(jobs, at_once=10)
    wrong = []
    for name, result in zip(FREEZES, results):
        why = complaint(name, result)
        if not why and (result.code != 5 or result.seconds > FREEZE_TIMEOUT + 5):
            why = f"code {result.code} after {result.seconds:.1f} s"
        frozen = [c for run in result.report["runs"] for c in run["checks"] if c["status"] == "timeout"]
        if not why and [c["ranks"] for c in frozen] != [[1]]:
            why = f"blames {[c['ranks'] for c in frozen]}: {frozen}"
        if not why and not any("sabotage.py" in frame for c in frozen for frame in c["stacks"]["1"]):
            why = f"no stack of the frozen rank: {frozen}"
        wrong += [f"{name}: {why}"] if why else []
    assert not wrong, "\n".join(wrong)
    COUNTS["sabotaged helpers noticed and named"] += len(FREEZES)


@pytest.mark.parametrize("label", subtle_faults())
def test_subtle_fault_is_named(label):
    name = subtle_faults()[label]
    argv = ["gloo", "--format", "json", "--timeout", "60", "--only", name]
    (result,) = forked_smokes([{"argv": argv, "prepare": lambda: sabotage_subtly(label)}], at_once=1)
    assert complaint(name, result) == "", result.out
    COUNTS["sabotaged helpers noticed and named"] += 1


@pytest.mark.parametrize("name, mode", [("all_reduce", "wrong"), ("get_rank", "raises"), ("initialize", "nothing")])
def test_broken_helper_is_named_by_new_interpreters(name, mode, tmp_path):
    hook = hook_folder(tmp_path / "hook", name, mode)
    result = fresh_smoke("--format", "json", env=plain_environment(PYTHONPATH=str(hook)))
    assert complaint(name, result) == "", result.out + result.err
