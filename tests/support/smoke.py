"""Run distributed_smoke.py: as a fork of the test process (torch is imported already), or in a new interpreter."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from . import DISTRIBUTED
from .world import is_launch_variable

SCRIPT = DISTRIBUTED / "scripts" / "distributed_smoke.py"
OVER = 4  # seconds after the deadline by which a smoke has ended, on a busy machine too


@lru_cache(maxsize=None)
def smoke_module():
    """The script as a module; nothing of it has run."""
    spec = importlib.util.spec_from_file_location("distributed_smoke", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["distributed_smoke"] = module
    spec.loader.exec_module(module)
    module.import_libraries()
    importlib.import_module("torch._dynamo")  # what a smoke of several ranks would import in every fork
    return module


@dataclass
class Result:
    code: int
    out: str
    err: str
    seconds: float

    @property
    def report(self) -> dict:
        return json.loads(self.out)

    def failing(self) -> list[str]:
        """Ids of the checks that did not pass and were not skipped, in the order of the report."""
        return [c["id"] for run in self.report["runs"] for c in run["checks"] if c["status"] not in ("pass", "skip")]


def plain_environment(**more: str) -> dict[str, str]:
    return {**{k: v for k, v in os.environ.items() if not is_launch_variable(k)}, **more}


class ForkedSmoke:
    """One run of the script in a fork; `finish` waits for it. Several can be under way at once."""

    def __init__(
        self,
        argv: list[str],
        prepare: Callable[[], None] | None = None,
        env: dict[str, str] | None = None,
        module=None,
        session: bool = False,
    ):
        """`session`: in a session of its own, by which all that it starts can be found."""
        module = module or smoke_module()  # of distributed_smoke.py, unless another smoke script's is given
        self.folder = tempfile.TemporaryDirectory(prefix="smoke-test-")
        self.start = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            code = 99
            try:
                for fd, name in ((1, "out"), (2, "err")):
                    os.dup2(os.open(f"{self.folder.name}/{name}", os.O_WRONLY | os.O_CREAT, 0o600), fd)
                sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
                for name in [n for n in os.environ if is_launch_variable(n)]:
                    del os.environ[name]
                os.environ.update(env or {})
                module.STARTED = time.monotonic()
                if session:
                    os.setsid()
                if prepare:
                    prepare()
                code = module.main(argv)
            except SystemExit as e:
                code = e.code
            except BaseException:
                import traceback

                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code if isinstance(code, int) else 98)

    def done(self) -> bool:
        if not hasattr(self, "status"):
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if not pid:
                return False
            self.status, self.seconds = status, time.monotonic() - self.start
        return True

    def finish(self) -> Result:
        while not self.done():
            time.sleep(0.01)
        out, err = (Path(self.folder.name, n).read_text() for n in ("out", "err"))
        self.folder.cleanup()
        return Result(os.waitstatus_to_exitcode(self.status), out, err, self.seconds)


def forked_smoke(*argv: str, **kwargs) -> Result:
    return ForkedSmoke(list(argv), **kwargs).finish()


def forked_smokes(jobs: list[dict], at_once: int) -> list[Result]:
    """Run ForkedSmoke(**job) for each job, a few at once; results in the order of the jobs."""
    running, results = {}, {}
    waiting = list(enumerate(jobs))
    while waiting or running:
        while waiting and len(running) < at_once:
            number, job = waiting.pop(0)
            running[number] = ForkedSmoke(**job)
        for number in [n for n, s in running.items() if s.done()]:
            results[number] = running.pop(number).finish()
        time.sleep(0.005)
    return [results[n] for n in range(len(jobs))]


def in_session(session: int) -> list[int]:
    """Living processes of a session."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(entry.parent.name))
    return found


def faulty_smokes(
    *jobs: dict, act: Callable[[list[ForkedSmoke]], None] | None = None, within: float, tidy: bool = True
) -> list[Result]:
    """Run ForkedSmoke(**job) for each job at once, with a fault, and see that nothing of it is left.

    `act` does something to them meanwhile. Asserts that all end within the time, and that no process is left, in the
    temporary folder no file, and in the working folder nothing new; `tidy=False` leaves out the files.
    """
    with tempfile.TemporaryDirectory(prefix="faulty-") as folder:

        def prepared(job):
            def prepare():
                tempfile.tempdir = folder
                (job.get("prepare") or (lambda: None))()

            return {**job, "prepare": prepare, "session": True}

        before, smokes = sorted(os.listdir(".")), [ForkedSmoke(**prepared(job)) for job in jobs]
        try:
            if act:
                act(smokes)
            end = time.monotonic() + within
            while not all([s.done() for s in smokes]):
                assert time.monotonic() < end, f"not over in {within} s: {[in_session(s.pid) for s in smokes]}"
                time.sleep(0.01)
            left = time.monotonic() + 3  # whom the kernel ends after its parent needs a moment
            while (alive := [p for s in smokes for p in in_session(s.pid)]) and time.monotonic() < left:
                time.sleep(0.02)
            assert not alive, [Path(f"/proc/{p}/cmdline").read_text() for p in alive]
        finally:
            for smoke in smokes:
                for pid in in_session(smoke.pid):
                    os.kill(pid, 9)
                if not smoke.done():
                    os.waitpid(smoke.pid, 0)
        results = [s.finish() for s in smokes]
        if tidy:
            assert os.listdir(folder) == [] and sorted(os.listdir(".")) == before
        return results


def faulty_smoke(*argv: str, within: float = 60, act=None, tidy: bool = True, **job) -> Result:
    """The same for one."""
    return faulty_smokes({"argv": [*argv, "--format", "json"], **job}, act=act, within=within, tidy=tidy)[0]


def result_of(finished) -> Result:
    """What launchers.run gave, as that of a smoke; asserts that it ended by itself and left no process."""
    assert not finished.timed_out and not finished.left_behind, finished.report()
    return Result(finished.returncode, finished.stdout, finished.stderr, finished.seconds)


def raise_in(name, error):
    """For `prepare`: the public helper of idist raises this."""

    def prepare():
        import ignite.distributed as idist

        def broken(*args, **kwargs):
            raise error

        setattr(idist, name, broken)

    return prepare


def finding_of(result: Result) -> dict:
    """The one cause that a report names."""
    (finding,) = result.report["diagnosis"]
    return finding


def fresh_smoke(
    *argv: str, limit: float = 90, env: dict[str, str] | None = None, prefix: tuple[str, ...] = ()
) -> Result:
    """The same in a new interpreter, e.g. prefix=(python, -m, torch.distributed.run, …)."""
    command = [*(prefix or (sys.executable,)), str(SCRIPT), *argv]
    start = time.monotonic()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        code = subprocess.run(
            command, stdout=out, stderr=err, stdin=subprocess.DEVNULL, timeout=limit, env=env or plain_environment()
        ).returncode
        out.seek(0), err.seek(0)
        return Result(code, out.read(), err.read(), time.monotonic() - start)
