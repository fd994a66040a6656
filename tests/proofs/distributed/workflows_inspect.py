"""Proof of workflows.md about looking into a running job: on a job that hangs, and on recorded reports."""
from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from types import SimpleNamespace

from support import BUNDLE, DISTRIBUTED
from support.claims import proves
from support.hanging import hanging, inspect, inspect_job, play, processes_as_found, under


@proves("sub-skills/distributed/references/workflows.md#look-into-a-running-job")
def look(entry):
    with tempfile.TemporaryDirectory() as folder:
        with hanging(play("sleeps", folder), folder, ["0.ready", "1.ready", "2.ready"]) as pid:
            ranks = under(pid)
            before = processes_as_found(ranks)
            page = Path(folder, "page.html")
            texts = [inspect(process, "--interval", "0.3", "--html", page)[1] for process in (pid, ranks[1])]
            assert processes_as_found(ranks) == before
        assert texts[0].splitlines()[0] == texts[1].splitlines()[0] and "<html" in page.read_text(), texts
    entry.shows(f"$ python inspect_job.py 4711\n{texts[0]}")
    entry.says("inspect_job.py looks twice at each rank of a job on this host and names the one that holds the others "
               "up, and its line. Give it any process of the job: launcher, rank or a shell above.",
               "The job is left as it was: no rank is paused, and none gets a signal that it does not catch. --html "
               "FILE writes a page as well.")
    entry.says(f"Python stacks come from py-spy, {inspect_job.INSTALL}, run by root or by the job's user.")
    for name in ("train.py", "evaluate.py"):
        program = SimpleNamespace(pid=os.getpid(), argv=["python", str(DISTRIBUTED / "assets" / name)])
        assert inspect_job.registers_faulthandler(program), name
    other = SimpleNamespace(pid=os.getpid(), argv=["python", str(DISTRIBUTED / "scripts/inspect_job.py")])
    assert not inspect_job.registers_faulthandler(other)
    entry.says("A program that registers faulthandler on SIGUSR1, as train.py does, needs none, if its standard error "
               "is a file.")


@proves("sub-skills/distributed/references/workflows.md#look-into-a-running-job")
def hosts(entry):
    whole = json.loads((BUNDLE / "tests/jobs/srun-2x2.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        for i, host in enumerate(sorted({r["host"] for r in whole["ranks"]})):
            part = {**whole, "ranks": [r for r in whole["ranks"] if r["host"] == host]}
            Path(folder, f"host-{i}.json").write_text(json.dumps(part))
        code, out, _ = inspect("--merge", *sorted(Path(folder).glob("host-*.json")), "--format", "json")
    merged = json.loads(out)
    assert code == 0 and merged["verdict"]["guilty_ranks"] == whole["verdict"]["guilty_ranks"] == [1], merged
    assert len({r["host"] for r in merged["ranks"]}) == 2
    code, _, told = inspect("--slurm", "424242")
    assert code == 3 and inspect_job.slurm_line("424242") in told, told
    first, second = (" ".join(line.split()).replace(str(inspect_job.__file__), "inspect_job.py")
                     for line in inspect_job.slurm_line("7").splitlines())
    entry.says(f"More nodes: --format json on each, then --merge for one picture. Under SLURM, for job 7: {first}, "
               f"then {second}.")
