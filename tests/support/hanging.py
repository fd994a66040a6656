"""Jobs that hang, and inspect_job.py run on them in the test process.

    with hanging(play("sleeps", folder), folder, ["0.ready", "1.ready", "2.ready"]) as pid:
        code, out, err = inspect(pid)

The ranks are forks of the test process, so a job costs no import; tests/jobs/scenes.py says how each one hangs.
"""
import importlib.util
import io
import json
import os
import re
import signal
import sys
import time
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import ignite.distributed as idist

from . import DISTRIBUTED, launchers

PROGRAM = DISTRIBUTED / "scripts/inspect_job.py"
SCENES = Path(__file__).parents[1] / "jobs/scenes.py"
ODD = {
    m[2]: (int(m[1]), number)
    for number, line in enumerate(SCENES.read_text().splitlines(), 1) if (m := re.search(r"# odd (\d): (\w+)$", line))
}


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


inspect_job, scenes = load(PROGRAM), load(SCENES)


def inspect(*argv):
    """(exit code, stdout, stderr) of the program, run in this process."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = inspect_job.main([str(a) for a in argv])
    assert "Traceback" not in out.getvalue() + err.getvalue()
    return code, out.getvalue(), err.getvalue()


def report_of(*argv, code=0):
    done, out, err = inspect(*argv, "--format", "json")
    assert done == code, f"exit code {done}, not {code}:\n{out}\n{err}"
    return json.loads(out)


@contextmanager
def hanging(start, folder, ready):
    """A launcher forked from here, which runs start(); its pid, once every file in `ready` is there and it stands."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        log = os.open(f"{folder}/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        sys.stdout, sys.stderr = (os.fdopen(fd, "w", closefd=False) for fd in (1, 2))
        try:
            start()
        finally:
            os._exit(0)
    try:
        deadline = time.monotonic() + 150
        while not all(os.path.exists(f"{folder}/{name}") for name in ready):
            assert time.monotonic() < deadline, "the job did not get to where it hangs:\n" + log_of(folder)
            time.sleep(0.05)
        time.sleep(0.5)
        yield pid
    finally:
        for child in [pid, *under(pid)]:
            try:
                os.kill(child, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            os.waitpid(pid, 0)
        except ChildProcessError:
            pass


def log_of(folder):
    return Path(folder, "log").read_text(errors="replace")


def under(pid):
    """The processes below one, from /proc."""
    table = inspect_job.processes()
    return inspect_job.below(pid, inspect_job.children_of(table))[1:]


def play(scene, folder, nproc=3):
    """What starts a scene with ranks forked by idist.spawn."""

    def main(local_rank):
        getattr(scenes, scene)(local_rank, str(folder))

    return lambda: idist.spawn("gloo", main, (), nproc_per_node=nproc, start_method="fork",
                               master_port=launchers.free_port())


def processes_as_found(pids):
    """What a tool that disturbs would have changed: state and tracer of each process."""
    found = {}
    for pid in pids:
        state, tracer = (re.search(rf"^{name}:\s+(\w+)", Path(f"/proc/{pid}/status").read_text(), re.M)[1]
                         for name in ("State", "TracerPid"))
        found[pid] = (state in "tTZ", tracer)
    return found
