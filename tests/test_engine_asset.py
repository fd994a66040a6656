"""Promise: resumable_trainer.py, stopped in any iteration and started again in a new process with new objects, ends
with the weights and the file of a run that was never stopped."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
from pathlib import Path

import pytest
import torch
from support import BUNDLE
from support.claims import COUNTS
from support.world import run_serial

ASSET = BUNDLE / "sub-skills" / "engine" / "assets" / "resumable_trainer.py"
TOTAL = 39  # 13 batches in each of 3 epochs


@pytest.fixture(scope="module")
def asset():
    import torch._dynamo  # noqa: F401  an optimizer's first step imports it: here once, not in each fork

    spec = importlib.util.spec_from_file_location("resumable_trainer", ASSET)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def whole(asset, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return final(started(asset, folder)), (folder / "state.pt").read_bytes()


def started(asset, folder: Path, *arguments: str, before=None) -> str:
    """What one start of the program in a fork prints."""

    def program():
        if before:
            before()
        asset.main(["--output", str(folder), *arguments])

    outcome = run_serial(program)
    assert outcome.error is None and outcome.exit_code == 0, outcome
    return outcome.output


def final(output: str) -> tuple[int, int, str]:
    ((iteration, epoch, weights),) = re.findall(r"^iteration=(\d+) epoch=(\d+) weights=(\w+)$", output, re.M)
    return int(iteration), int(epoch), weights


def test_it_is_short_enough_to_copy():
    assert ASSET.read_text().count("\n") < 150


def test_training_learns(asset, whole):
    assert whole[0][:2] == (TOTAL, 3)
    _, untrained = asset.build()
    assert asset.digest(untrained["model"]) != whole[0][2]


@pytest.mark.parametrize("stop_after", [1, 12, 13, 14, 26, 38])
def test_stopped_anywhere_it_ends_alike(asset, whole, stop_after, tmp_path):
    first = started(asset, tmp_path, "--stop-after", str(stop_after))
    assert f"stopped after iteration {stop_after}, start again" in first and final(first)[0] == stop_after
    second = started(asset, tmp_path)
    assert f"going on after iteration {stop_after}" in second
    assert (final(second), (tmp_path / "state.pt").read_bytes()) == whole
    COUNTS["stopped and rebuilt trainings that ended alike"] += 1


def test_stopped_three_times_it_ends_alike(asset, whole, tmp_path):
    for stop_after in ("5", "20", "33"):
        started(asset, tmp_path, "--stop-after", stop_after)
    assert final(started(asset, tmp_path)) == whole[0]


def test_sigterm_stops_it_with_its_state_saved(asset, whole, tmp_path):
    def terminate_in_iteration_17():
        step, calls = torch.optim.SGD.step, []

        def counting(self, *args, **kwargs):
            calls.append(1)
            if len(calls) == 17:
                os.kill(os.getpid(), signal.SIGTERM)
            return step(self, *args, **kwargs)

        torch.optim.SGD.step = counting

    output = started(asset, tmp_path, before=terminate_in_iteration_17)
    assert final(output)[0] == 17
    assert final(started(asset, tmp_path)) == whole[0]


def test_started_again_when_finished_it_does_nothing(asset, whole, tmp_path):
    started(asset, tmp_path)
    assert final(started(asset, tmp_path)) == whole[0]


def test_more_epochs_go_on(asset, whole, tmp_path):
    started(asset, tmp_path)
    more = final(started(asset, tmp_path, "--epochs", "4"))
    assert more[:2] == (52, 4) and more[2] != whole[0][2]


@pytest.mark.parametrize("lost", ["optimizer", "scheduler", "trainer"])
def test_a_state_without_one_of_its_parts_ends_otherwise(asset, whole, lost, tmp_path):
    """So that the comparison above is one that can fail."""
    started(asset, tmp_path, "--stop-after", "17")
    state = torch.load(tmp_path / "state.pt")
    del state[lost]
    torch.save(state, tmp_path / "state.pt")
    assert final(started(asset, tmp_path)) != whole[0]
