"""Promise: in a group that torch, accelerate, Ray Train or plain python with nnodes=2 made, assets/train.py comes to
the result of one process, and the smoke, started beside it, passes.

Ray and accelerate are looked for in the Python that WORLDS_PYTHON names, which `make worlds` makes, else in that of
these tests.
"""

import json
import os
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest
from support import DISTRIBUTED, launchers
from support.pages import read_page

PROGRAM = Path(__file__).with_name("elsewhere.py")
LIMIT = 420  # seconds; ranks, and the smoke's ranks after them, are new interpreters
OTHER = os.environ.get("WORLDS_PYTHON", launchers.PYTHON)


@cache
def has(package):
    command = [OTHER, "-c", f"import importlib.util, sys; sys.exit(importlib.util.find_spec('{package}') is None)"]
    return subprocess.run(command, timeout=60).returncode == 0


def needs(package):
    return pytest.mark.skipif(not has(package), reason=f"{OTHER} has no {package}")


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """loss and accuracy of one process."""
    folder = tmp_path_factory.mktemp("one")
    options = [f"--data={folder}/data", f"--output={folder}/out", "--batch-size=24", "--epochs=3"]
    done = launchers.run([launchers.PYTHON, DISTRIBUTED / "assets/train.py", *options], timeout=120)
    return final(done.output, 1)


def final(output, world):
    lines = re.findall(r"final loss=(\S+) accuracy=(\S+) epoch=3 world=(\d+)", output)
    assert len(set(lines)) == 1 and lines[0][2] == str(world), output[-4000:]
    return tuple(map(float, lines[0][:2]))


def check(jobs, folder, reference, launcher="env"):
    report = "\n".join(job.report() for job in jobs)
    assert [job.returncode for job in jobs] == [0] * len(jobs), report
    assert not any(job.timed_out for job in jobs), report
    output = "".join(job.output for job in jobs)
    assert final(output, 2) == pytest.approx(reference, abs=1e-4)
    assert output.count("sum 3 of 2, gloo") >= 2, report
    smoke = json.loads((folder / "smoke.json").read_text())
    (run,) = smoke["runs"]
    assert (smoke["status"], run["world_size"], run["launcher"]) == ("pass", 2, launcher), smoke


@pytest.mark.parametrize("who", ["torch", pytest.param("accelerate", marks=needs("accelerate"))])
def test_a_group_made_in_the_program(who, tmp_path, reference):
    argv = launchers.torchrun_argv(2, PROGRAM, who, tmp_path)
    check([launchers.run([OTHER, *argv[1:]], timeout=LIMIT)], tmp_path, reference)


RAY = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}


@needs("ray")
def test_ray_train(tmp_path, reference):
    check([launchers.run([OTHER, PROGRAM, "ray", tmp_path], timeout=LIMIT, env=RAY)], tmp_path, reference)


@needs("ray")
def test_the_ray_program_of_the_page_prints_what_the_page_shows(tmp_path):
    page = read_page("sub-skills/distributed/references/workflows.md")
    fences = next(e.fences for e in page.entries if e.anchor == "ray-train")
    program, shown = (next(f.text for f in fences if f.language == kind) for kind in ("python", "console"))
    (tmp_path / "ray_job.py").write_text(program)
    (tmp_path / "sub-skills").symlink_to(DISTRIBUTED.parent)
    done = launchers.run([OTHER, "ray_job.py"], timeout=LIMIT, env=RAY, cwd=tmp_path)
    printed = set(re.findall(r"rank \d(?: of|:) .*", done.output))
    assert done.returncode == 0 and printed == set(re.findall(r"rank \d(?: of|:) .*", shown)), done.report()


@pytest.mark.skipif(launchers.missing("two_hosts") is not None, reason=str(launchers.missing("two_hosts")))
def test_plain_python_on_two_hosts(tmp_path, reference):
    port = launchers.free_port()
    with launchers.two_hosts() as hosts:
        argv = [[launchers.PYTHON, PROGRAM, "nnodes", tmp_path, str(i), hosts.address(0), str(port)] for i in (0, 1)]
        jobs = launchers.run_together([hosts.argv(i, argv[i]) for i in (0, 1)], timeout=LIMIT)
    assert not any(job.left_behind for job in jobs)
    check(jobs, tmp_path, reference)
