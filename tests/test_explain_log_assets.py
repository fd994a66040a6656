"""Promise: in a SLURM job the prologue lets a healthy allocation pass, and the epilogue leaves an explanation of a
failed
training beside its log, while the job keeps the status of the training."""

from __future__ import annotations

import sys

import pytest
from support import DISTRIBUTED
from support.launchers import PYTHON, missing, run, slurm_cluster

ASSETS = DISTRIBUTED / "assets"
TRAIN = """
import os, sys
rank = int(os.environ["SLURM_PROCID"])
print(f"rank {rank}: step 1", flush=True)
if rank == 1:
    {}["lr"]
"""
JOB = """#!/bin/bash
bash {assets}/slurm_prologue.sh gloo --only all_reduce || exit 9
srun --label {python} train.py > "train-$SLURM_JOB_ID.log" 2>&1
bash {assets}/slurm_epilogue.sh $? "train-$SLURM_JOB_ID.log"
"""


@pytest.mark.skipif(missing("slurm") is not None, reason=str(missing("slurm")))
def test_prologue_and_epilogue_in_a_job(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "job.sh").write_text(JOB.format(assets=ASSETS, python=sys.executable))
    with slurm_cluster(nodes=1) as slurm:
        env = {**slurm.env, "PYTHON": str(PYTHON)}
        done = run(["sbatch", "-W", "-N1", "-n2", "--output=job.out", "job.sh"], timeout=240, env=env, cwd=tmp_path)
    said = "\n".join(
        f"== {p.name}\n{p.read_text()}" for p in sorted(tmp_path.iterdir()) if p.suffix in (".out", ".log", ".txt")
    )
    assert done.returncode == 1, f"{done.report()}\n{said}"
    (answer,) = tmp_path.glob("explain-*.txt")
    assert "Rank 1 raised KeyError: 'lr' at train.py:6" in answer.read_text(), said
    assert "at fault: rank 1" in (tmp_path / "job.out").read_text()
    assert answer.with_suffix(".html").exists()
