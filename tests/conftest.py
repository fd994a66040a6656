"""Puts `support` and `proofs` on the path, imports torch and ignite once, and prints at the end what was inspected."""
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
os.environ.pop("CI", None)  # ClearMLLogger, for one, does nothing where it is set

import ignite.distributed  # noqa: E402,F401  imported here once; ranks are forks of this process
from support.claims import COUNTS  # noqa: E402

MOSTLY_WAIT = ("test_smoke_launchers", "test_assets")  # for launchers; started first, so that others fill the time


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Tests that share what a file makes once go to one worker, or each worker would make it again."""
    items.sort(key=lambda item: item.path.stem not in MOSTLY_WAIT)
    for item in items if config.pluginmanager.hasplugin("xdist") else ():
        if any(found[-1].scope == "module" for found in item._fixtureinfo.name2fixturedefs.values()):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


def pytest_sessionfinish(session):
    """Under xdist each worker hands its counts to the controller."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["counts"] = dict(COUNTS)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    COUNTS.update(getattr(node, "workeroutput", {}).get("counts", {}))


def pytest_terminal_summary(terminalreporter):
    if COUNTS:
        terminalreporter.section("inspected")
        for what, n in sorted(COUNTS.items()):
            terminalreporter.write_line(f"{n:6d}  {what}")
