"""Promise: tests/gpu/run.sh is ready for a machine with GPUs, and says at once where there is none."""

import json
import subprocess

import pytest
import torch
from support import BUNDLE, launchers


def run_script(folder):
    env = {**launchers.clean_environment(), "PYTHON": launchers.PYTHON, "OUT": str(folder)}
    limit = 1200 if torch.cuda.is_available() else 120
    return launchers.run(["bash", BUNDLE / "tests/gpu/run.sh"], timeout=limit, env=env)


def test_the_script_is_one_that_bash_reads():
    subprocess.run(["bash", "-n", BUNDLE / "tests/gpu/run.sh"], check=True)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_it_ends_with_3_and_the_reason(tmp_path):
    done = run_script(tmp_path)
    report = json.loads((tmp_path / "nccl-1.json").read_text())
    assert done.returncode == report["exit_code"] == 3, done.report()
    assert report["diagnosis"][0]["id"] == "backend-missing" and "nccl" in report["diagnosis"][0]["text"]
    assert "backend nccl: not available" in (tmp_path / "env.txt").read_text()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_with_gpus_everything_passes(tmp_path):
    done = run_script(tmp_path)
    assert done.returncode == 0 and "FAILED" not in done.stdout, done.report()
