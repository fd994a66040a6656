"""Proofs: what the programs around a job do when nobody watches, on output of a real run that was recorded."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from support import BUNDLE, DISTRIBUTED
from support.claims import proves

ASSETS = Path(DISTRIBUTED) / "assets"
LOG = BUNDLE / "tests" / "logs" / "torchrun-raise.log"


def bash(*argv, folder):
    env = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")} | {"LOG": f"{folder}/job.log"}
    return subprocess.run(
        ["bash", *map(str, argv)], cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False
    )


@proves("sub-skills/distributed/references/workflows.md#a-failed-job-explains-itself")
def unwatched(entry):
    with tempfile.TemporaryDirectory() as folder:
        done = bash(ASSETS / "run_explained.sh", "bash", "-c", f"cat '{LOG}'; exit 7", folder=folder)
        assert done.returncode == 7 and done.stdout == LOG.read_text() == Path(folder, "job.log").read_text(), done
        assert "FAILED" in done.stderr and "Rank 1 raised KeyError" in done.stderr, done.stderr
        assert "Rank 1 raised KeyError" in Path(folder, "job.html").read_text()
        fine = bash(ASSETS / "run_explained.sh", "true", folder=folder)
        assert fine.returncode == 0 and not fine.stderr, fine
    entry.says(
        "Put run_explained.sh before a launcher: it shows and keeps the output, and when the job fails it adds "
        "what explain_log.py says, as text and as a page beside the log; the status stays the launcher's:",
        "bash run_explained.sh torchrun --nproc_per_node=4 train.py.",
    )
    with tempfile.TemporaryDirectory() as folder:
        name = "train-7.log"
        Path(folder, name).write_text(LOG.read_text())
        done = bash(ASSETS / "slurm_epilogue.sh", "3", name, folder=folder)
        answers = sorted(p.suffix for p in Path(folder).glob("explain-*"))
        assert done.returncode == 3 and "Rank 1 raised KeyError" in done.stderr and answers == [".html", ".txt"], done
        done = bash(ASSETS / "slurm_epilogue.sh", "0", name, folder=folder)
        assert done.returncode == 0 and not done.stderr, done
        refused = bash(ASSETS / "slurm_prologue.sh", folder=folder)
        assert refused.returncode == 2 and "inside a SLURM job" in refused.stderr, refused
    shown = {name: (ASSETS / name).read_text() for name in ("slurm_prologue.sh", "slurm_epilogue.sh")}
    first, last = "bash slurm_prologue.sh nccl || exit 1", 'bash slurm_epilogue.sh $? "train-$SLURM_JOB_ID.log"'
    assert first in shown["slurm_prologue.sh"] and last in shown["slurm_epilogue.sh"]
    entry.says(
        "In an sbatch script slurm_prologue.sh runs the smoke over all tasks of the allocation before the "
        f"training, and ends the job if a node is not all right: {first}. After the srun, slurm_epilogue.sh "
        f"explains the log of a training that failed: {last}."
    )
