"""Promise: with a Horovod that was built for this torch the smoke passes in one and in two processes, and what the
pages say of Horovod is so. Skips where Horovod is absent; tests/horovod/build.sh builds it.
"""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from support import DISTRIBUTED, launchers
from support.smoke import SCRIPT

PROGRAM = Path(__file__).with_name("claims_program.py")
RUN = shutil.which("horovodrun", path=str(Path(sys.executable).parent))
pytest.importorskip("horovod.torch", reason="Horovod is not built for this Python", exc_type=ImportError)


def horovodrun(*program, limit=150):
    folder = Path(sys.executable).parent
    env = {"PATH": f"{folder}:{launchers._PATH}"}
    done = launchers.run([RUN, "-np", "2", "--gloo", sys.executable, *program], timeout=limit, env=env)
    assert done.returncode == 0 and not done.left_behind, done.report()
    return done


def test_smoke_in_one_process():
    done = launchers.run([sys.executable, SCRIPT, "horovod", "--format", "json"], timeout=100)
    report = json.loads(done.stdout)
    assert report["status"] == "pass" and report["summary"]["pass"] > 30, done.report()


def test_smoke_in_two_processes(tmp_path):
    horovodrun(SCRIPT, "--payload", "64K", "--timeout", "100", "--format", "json", "--output", tmp_path / "report.json")
    report = json.loads((tmp_path / "report.json").read_text())
    (run,) = report["runs"]
    assert (report["status"], run["target"], run["world_size"], run["launcher"]) == ("pass", "horovod", 2, "horovodrun")
    passed = {c["id"] for c in run["checks"] if c["status"] == "pass"}
    assert {"all_reduce", "all_gather", "broadcast", "new_group", "ddp_gradients"} <= passed
    assert list(run["workload"]["ranks"]) == ["0", "1"]


@pytest.fixture(scope="module")
def seen():
    """What the program of claims saw on rank 0, and what it saw alone."""
    done = horovodrun(PROGRAM)
    return json.loads(re.search(r"SEEN (\{.*\})", done.output)[1])


def page(name):
    return re.sub(r"[`*]", "", (DISTRIBUTED / "references" / name).read_text())


def test_operations(seen):
    """Ignite hands ADASUM on; Horovod refuses it in a build without MPI."""
    known = [op for op, error in seen["operations"].items() if not error.startswith("ValueError")]
    working = [op for op, error in seen["operations"].items() if error == "no error"]
    assert set(known) - set(working) <= {"ADASUM"} and "SUM" in working, seen["operations"]
    assert seen["in_place"] is False and seen["group"].startswith("NotImplementedError")
    assert f"ops {', '.join(known)}, a new tensor instead of in place" in page("api-reference.md")


def test_errors_are_those_of_the_pages(seen):
    text = page("troubleshooting.md")
    for name in ("group", "objects", "again", "nnodes"):
        message = seen[name].partition(": ")[2]
        assert message and message in text, (name, seen[name])
    assert seen["objects"].startswith("NotImplementedError")
    head, _, tail = seen["no_group"].partition(", got ")
    assert head.partition(": ")[2] in text and ", group=" in tail


def test_model_and_optimizer(seen):
    assert seen["model"] == "Linear" and seen["weights"] == [1.0, 1.0]  # rank 0's, on both
    assert seen["optimizer"] == "DistributedOptimizer" and "horovod" in seen["backends"]
