"""Promise: the smoke works with every release that the pages name; a helper that is not there yet is a skip that says
which release brought it."""

import os

import pytest
from support import releases
from support.smoke import fresh_smoke, plain_environment

OLDEST = "0.4.13"


@pytest.mark.parametrize("release", [OLDEST, *(["0.5.2", "nightly"] if os.environ.get("MATRIX") else [])])
def test_smoke_on_another_release(release):
    path = releases.release_path(release)
    result = fresh_smoke("--format", "json", env=plain_environment(PYTHONPATH=str(path)))
    assert result.code == 0, result.out + result.err
    seen = result.report["environment"]["ignite"]
    assert seen == release or release == "nightly" and seen.startswith("0.6")
    skips = {c["id"]: c["reason"] for r in result.report["runs"][2:] for c in r["checks"] if c["status"] == "skip"}
    assert skips == ({"all_gather_tensors_with_shapes": "came with Ignite 0.5.2"} if release == OLDEST else {})
