"""Promise: whichever public helper of ignite.distributed is broken, and however, the smoke fails in the check of its name.

Broken means: a wrong value everywhere or on one rank, nothing done, an exception everywhere or on one rank, a freeze on
one rank. Most cases fork this process, whose imports are paid; some go through an import hook and new interpreters.
"""
from functools import lru_cache

import pytest

from support.sabotage import hook_folder, modes_of, public_names, sabotage
from support.smoke import forked_smokes, fresh_smoke, plain_environment

# The helper is replaced in every module that refers to it, or in the package's namespace alone.
CASES = [(name, mode, True) for name in public_names() for mode in modes_of(name)]
CASES += [(name, "wrong", False) for name in public_names()]
FREEZE_TIMEOUT = 12


@lru_cache(maxsize=None)
def results():
    """All cases, freezes last and many at once, since they only wait."""
    fast = [c for c in CASES if "freezes" not in c[1]]
    slow = [c for c in CASES if "freezes" in c[1]]

    def job(case, timeout):
        name, mode, everywhere = case
        argv = ["--format", "json", "--timeout", str(timeout)]
        return {"argv": argv, "prepare": lambda: sabotage(name, mode, everywhere=everywhere)}

    found = dict(zip(fast, forked_smokes([job(c, 60) for c in fast], 2)))
    found.update(zip(slow, forked_smokes([job(c, FREEZE_TIMEOUT) for c in slow], 12)))
    return found


def test_there_are_cases():
    assert len(public_names()) > 30 and len(CASES) > 150


@pytest.mark.parametrize("name, mode, everywhere", CASES)
def test_broken_helper_is_named(name, mode, everywhere):
    result = results()[name, mode, everywhere]
    assert result.code not in (0, 98, 99), f"passed, or broke itself: {result.err}"
    failing = result.failing()
    assert failing and failing[0] == name, f"the first failing check is not {name}: {failing}"
    if "freezes" in mode:
        assert result.code == 5, result.out
        assert result.seconds < FREEZE_TIMEOUT + 5
        check = next(c for run in result.report["runs"] for c in run["checks"] if c["status"] == "timeout")
        assert any("sabotage.py" in frame for r in check["ranks"] for frame in check["stacks"][str(r)]), check


@pytest.mark.parametrize("name, mode", [("all_reduce", "wrong"), ("get_rank", "raises"), ("initialize", "nothing")])
def test_broken_helper_is_named_by_new_interpreters(name, mode, tmp_path):
    hook = hook_folder(tmp_path / "hook", name, mode)
    result = fresh_smoke("--format", "json", env=plain_environment(PYTHONPATH=str(hook)))
    assert result.code not in (0, 2) and result.failing()[:1] == [name], result.out + result.err
