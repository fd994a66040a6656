"""Records tests/jobs/*.json: what inspect_job.py reports of scenes under the real launchers.

    python tests/jobs/record.py

Paths in the reports are made relative to this folder, so that they say nothing of the machine.
"""
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from support import DISTRIBUTED, launchers  # noqa: E402


def record(name, argv, scene, ranks, env):
    """Start the scene, wait until all ranks are where they hang, look, write the report, end the job."""
    with tempfile.TemporaryDirectory() as folder, open(f"{folder}/log", "wb") as log:
        job = subprocess.Popen([*argv, HERE / "scenes.py", scene, folder], stdout=log, stderr=log,
                               env={**launchers.clean_environment(), **env})
        try:
            deadline = time.monotonic() + 300
            while len(list(Path(folder).glob("*.ready"))) < ranks:
                assert time.monotonic() < deadline and job.poll() is None, Path(folder, "log").read_text()
                time.sleep(0.2)
            time.sleep(3)
            done = subprocess.run(
                [sys.executable, DISTRIBUTED / "scripts/inspect_job.py", str(job.pid), "--format", "json"],
                capture_output=True, text=True, env={**launchers.clean_environment(), **env})
        finally:
            job.terminate()
            job.wait()
    text = done.stdout.replace(str(HERE) + "/", "").replace(sys.executable, "python").replace(folder, "out")
    report = json.loads(text)
    (HERE / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n")
    print(name, report["verdict"]["text"])


def main():
    record("torchrun-8", launchers.torchrun_argv(8), "evaluator_under_guard", 8, {})
    with launchers.slurm_cluster() as slurm:
        argv = ["srun", "-N2", "-n4", "--ntasks-per-node=2", sys.executable]
        record("srun-2x2", argv, "loader_worker", 4, slurm.env)


if __name__ == "__main__":
    main()
