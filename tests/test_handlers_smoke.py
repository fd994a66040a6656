"""Promise: handlers_smoke.py has a check per public name of `ignite.handlers`, all pass on the installed release, and
each one fails when the thing it checks does nothing."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from unittest.mock import patch

import ignite.handlers
import pytest
from ignite.handlers import base_logger, checkpoint
from probes import handlers as probe
from support import BUNDLE
from support.claims import COUNTS

SCRIPT = BUNDLE / "sub-skills" / "handlers" / "scripts" / "handlers_smoke.py"
FIRST = {  # what does nothing, where it is not the class's own __call__ or attach
    "DiskSaver": "remove", "EpochOutputStore": "update", "Timer": "step", "EMAHandler": "_update_ema_model",
    "BasicTimeProfiler": "_as_first_iter_completed", "HandlersTimeProfiler": "get_results",
    "BaseParamScheduler": "load_state_dict", "FastaiLRFinder": "_run", "FBResearchLogger": "log_every",
    "ConcatScheduler": "__call__", "ParamGroupScheduler": "__call__", "ParamScheduler": "__call__",
    "StateParamScheduler": "__call__", "BaseSaveHandler": None, "CheckpointEvents": None,
    "global_step_from_engine": None, "create_lr_scheduler_with_warmup": None, "ProgressBar": "_close",
}  # fmt: skip


@pytest.fixture(scope="module")
def smoke():
    spec = importlib.util.spec_from_file_location("handlers_smoke_under_test", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def checks(smoke) -> dict:
    return smoke.smoke_runner.CHECKS[smoke.__name__]


def test_all_pass():
    command = [sys.executable, str(SCRIPT), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    report = json.loads(done.stdout)
    bad = [c for run in report["runs"] for c in run["checks"] if c["status"] != "pass"]
    assert done.returncode == 0 and not bad, bad
    COUNTS["checks of handlers_smoke.py passed"] += report["summary"]["pass"]


def test_each_public_name_has_a_check(smoke):
    assert set(ignite.handlers.__all__) | {"BaseSaveHandler", "CheckpointEvents"} == set(checks(smoke))


def sabotage(name: str):
    """A context in which what the check of this name is about does nothing."""
    if name == "BaseSaveHandler":
        return patch.object(checkpoint.Checkpoint, "_check_lt_n_saved", lambda *a, **k: True)
    if name == "CheckpointEvents":
        return patch.object(checkpoint.Checkpoint, "__call__", lambda *a, **k: None)
    if name == "global_step_from_engine":
        return patch.object(ignite.handlers, name, lambda *a, **k: lambda *b: 0)
    if name == "create_lr_scheduler_with_warmup":
        return patch.object(ignite.handlers, name, lambda scheduler, *a, **k: scheduler)
    owner = getattr(ignite.handlers, name)
    if issubclass(owner, base_logger.BaseLogger) and name not in FIRST:
        return patch.object(owner, "_create_output_handler", lambda *a, **k: lambda *b: None)
    method = FIRST.get(name) or ("get_param" if "get_param" in vars(owner) else "__call__")
    result = {"get_param": 0.123, "get_results": [["x"]]}.get(method)
    return patch.object(owner, method, lambda *a, **k: result)


@pytest.mark.parametrize("name", sorted({*ignite.handlers.__all__, "BaseSaveHandler", "CheckpointEvents"}))
def test_each_check_can_fail(smoke, name, tmp_path, tmp_path_factory, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with probe.quiet(), sabotage(name), pytest.raises(Exception):  # noqa: B017  a mismatch, or whatever breaks
        checks(smoke)[name].function()
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path_factory.mktemp("intact"))
    with probe.quiet():
        checks(smoke)[name].function()  # and without the sabotage it passes, here too
    COUNTS["checks of handlers_smoke.py seen to fail"] += 1
