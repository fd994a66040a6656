"""Promise: metrics_smoke.py passes here, notices a metric that gives another number, and sends its reader to entries
that exist."""

from __future__ import annotations

import importlib.util
import json
import sys

import ignite.metrics as m
import pytest
from support import BUNDLE
from support.claims import COUNTS
from support.pages import read_page

ROOM = BUNDLE / "sub-skills" / "metrics"


@pytest.fixture(scope="module")
def smoke():
    spec = importlib.util.spec_from_file_location("metrics_smoke", ROOM / "scripts" / "metrics_smoke.py")
    module = sys.modules["metrics_smoke"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["metrics_smoke"]


def report(smoke, capfd, *arguments):
    code = smoke.main(["--format", "json", *arguments])
    found = json.loads(capfd.readouterr().out)
    assert found["exit_code"] == code
    return found


def test_it_passes(smoke, capfd):
    found = report(smoke, capfd)
    assert found["status"] == "pass" and found["summary"]["pass"] > 40 and not found["summary"]["skip"], found
    COUNTS["checks of metrics_smoke.py run"] += found["summary"]["pass"]


SABOTAGE = {
    "Accuracy": ("Accuracy", lambda metric: 0.5),
    "Loss": ("Loss", lambda metric: metric._sum.item()),
    "RootMeanSquaredError": ("RootMeanSquaredError", lambda metric: m.MeanSquaredError.compute(metric)),
    "ConfusionMatrix": ("ConfusionMatrix", lambda metric: metric.confusion_matrix.T),
    "Average": ("Average", lambda metric: metric.accumulator),
    "HitRate": ("HitRate", lambda metric: [0.0, 0.0]),
    "EpochMetric": ("EpochMetric", lambda metric: metric.compute_fn(metric._predictions[0], metric._targets[0])),
}


@pytest.mark.parametrize("name", SABOTAGE)
def test_it_notices(name, smoke, capfd, monkeypatch):
    owner, compute = SABOTAGE[name]
    monkeypatch.setattr(getattr(m, owner), "compute", compute)
    found = report(smoke, capfd, "--only", name)
    assert found["status"] == "fail", found
    COUNTS["doctored metrics noticed by metrics_smoke.py"] += 1


def test_it_leads_to_entries(smoke):
    checks = smoke.smoke_runner.CHECKS["metrics_smoke"]
    assert checks
    for c in checks.values():
        path, _, anchor = c.see.partition("#")
        page = read_page(ROOM.relative_to(BUNDLE) / path)
        assert not anchor or anchor in page.anchors, f"{c.id}: no {c.see}"
