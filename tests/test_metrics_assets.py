"""Promise: assets/custom_metric.py gives the same number on one process and on two, with unequal shares and with none
on one of them, refuses what it cannot take, and is restored from a checkpoint."""

from __future__ import annotations

import importlib.util

import pytest
import torch
from ignite.exceptions import NotComputableError
from support import BUNDLE
from support.world import run_world, values

PATH = BUNDLE / "sub-skills" / "metrics" / "assets" / "custom_metric.py"
SCORES = torch.eye(3)[torch.tensor([0, 2, 2, 0, 1, 2, 2])]
CLASSES = torch.tensor([0, 1, 2, 0, 1, 2, 1])  # class 1 is right once in three times
SHARES = {"unequal": (slice(0, 5), slice(5, 7)), "one is empty": (slice(0, 7), slice(7, 7)), "a class each": None}


@pytest.fixture(scope="module")
def asset():
    spec = importlib.util.spec_from_file_location("custom_metric", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fed(asset, own) -> object:
    metric = asset.WorstClassAccuracy(3)
    for scores, y in zip(SCORES[own].split(2), CLASSES[own].split(2)):
        if len(y):
            metric.update((scores, y))
    return metric


def test_one_process(asset):
    assert fed(asset, slice(None)).compute() == pytest.approx(1 / 3)


@pytest.mark.parametrize("name", SHARES)
def test_two_ranks(asset, name):
    shares = SHARES[name] or (CLASSES == 1, CLASSES != 1)

    def main(rank):
        metric = fed(asset, shares[rank])
        before = metric._seen.tolist()
        value = metric.compute()
        assert metric._seen.tolist() == before, "compute left the reduced counts behind"
        return value, metric.compute()

    for value in values(run_world(2, main)):
        assert value == pytest.approx((1 / 3, 1 / 3))


def test_no_sample_raises_on_every_rank(asset):
    def main(rank):
        with pytest.raises(NotComputableError):
            asset.WorstClassAccuracy(3).compute()
        return True

    assert values(run_world(2, main)) == [True, True]


def test_reset_and_state(asset):
    metric = fed(asset, slice(0, 4))
    restored = asset.WorstClassAccuracy(3)
    restored.load_state_dict(metric.state_dict())
    for m in (metric, restored):
        m.update((SCORES[4:], CLASSES[4:]))
        assert m.compute() == pytest.approx(1 / 3)
    metric.reset()
    metric.update((SCORES[:1], CLASSES[:1]))
    assert metric.compute() == 1.0


@pytest.mark.parametrize("pair", [(torch.eye(2), torch.tensor([0, 1])), (torch.eye(3), torch.tensor([0, 1, 3])),
                                  (torch.eye(3), torch.tensor([0, -1, 1]))])  # fmt: skip
def test_refuses(asset, pair):
    with pytest.raises(ValueError):
        asset.WorstClassAccuracy(3).update(pair)
