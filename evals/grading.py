"""How graders run what they grade: programs in forks of this process, which has torch and ignite imported.

A rank is a fork with the environment that torchrun gives; so a world of three costs a second, not three imports. Each
run has a deadline, after which its whole process group is ended.
"""
from __future__ import annotations

import json
import logging
import os
import runpy
import signal
import socket
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

import ignite.distributed  # noqa: F401  imported once, here
import torch

LAUNCHED = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
FRESH_SEED = 67280421310721  # of torch in a new interpreter


class Wrong(Exception):
    """Why an answer does not pass."""


@dataclass
class Outcome:
    code: int | None  # negative: that signal ended it; None: still running at the deadline
    out: str  # stdout and stderr
    seconds: float


def need(condition, why: str) -> None:
    if not condition:
        raise Wrong(why)


def ranks(n: int, folder: Path, script: str, *argv: str, timeout: float = 60, frozen: int | None = None,
          of_rank: dict[int, dict[str, str]] | None = None, **env: str) -> list[Outcome]:
    """Run a script on n ranks; its outcome on each. One that is known to be frozen is not waited for.

    `env` is set on all of them, `of_rank` holds what only one of them is given.
    """
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    world = {"WORLD_SIZE": str(n), "LOCAL_WORLD_SIZE": str(n), "GROUP_RANK": "0", "MASTER_ADDR": "127.0.0.1",
             "MASTER_PORT": port}
    environments = [{**world, "RANK": str(r), "LOCAL_RANK": str(r), **env, **(of_rank or {}).get(r, {})}
                    for r in range(n)]
    return _run(environments, folder, script, argv, timeout, frozen)


def alone(folder: Path, script: str, *argv: str, timeout: float = 60, **env: str) -> Outcome:
    """Run a script in one process, as `python SCRIPT` does."""
    return _run([env], folder, script, argv, timeout)[0]


def passed(outcomes: list[Outcome] | Outcome) -> str:
    """The output of all ranks, which must have ended well."""
    outcomes = outcomes if isinstance(outcomes, list) else [outcomes]
    for rank, o in enumerate(outcomes):
        need(o.code is not None, f"rank {rank} was still running after {o.seconds:.0f} s")
    for rank, o in enumerate(outcomes):
        need(o.code == 0, f"rank {rank} ended with {o.code}: {o.out.strip()[-400:]}")
    return "\n".join(o.out for o in outcomes)


def answer(folder: Path, name: str = "answer.json") -> dict:
    """The object in a file that the task asked for."""
    path = folder / name
    need(path.is_file(), f"{name} is missing")
    try:
        found = json.loads(path.read_text())
    except ValueError as e:
        raise Wrong(f"{name} is no JSON: {e}") from None
    need(isinstance(found, dict), f"{name} is no object")
    return found


def load(path: Path):
    """What torch.save wrote, tensors and numbers only."""
    need(path.is_file(), f"{path.name} is missing")
    try:
        return torch.load(path, weights_only=True, map_location="cpu")
    except Exception as e:
        raise Wrong(f"{path.name} cannot be loaded: {type(e).__name__}: {e}") from None


def same_weights(a: dict, b: dict, what: str, tolerance: float = 1e-6) -> None:
    need(isinstance(a, dict) and isinstance(b, dict) and set(a) == set(b) and a, f"{what}: other keys")
    for key in a:
        need(a[key].shape == b[key].shape, f"{what}: {key} has the shape {tuple(a[key].shape)}")
        apart = (a[key] - b[key]).abs().max()
        need(apart <= tolerance, f"{what}: {key} differs by {apart}")


def _run(environments, folder, script, argv, timeout, frozen=None) -> list[Outcome]:
    need((folder / script).is_file(), f"{script} is missing")
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as logs:
        pids = [_fork(env, folder, script, argv, f"{logs}/{i}") for i, env in enumerate(environments)]
        codes: dict[int, int] = {}
        waited_for = [pid for rank, pid in enumerate(pids) if rank != frozen]
        while not codes.keys() >= set(waited_for) and time.monotonic() - began < timeout:
            for pid in waited_for:
                if pid not in codes:
                    ended, status = os.waitpid(pid, os.WNOHANG)
                    if ended:
                        codes[pid] = os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        seconds = time.monotonic() - began
        for pid in pids:
            try:
                os.killpg(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            if pid not in codes:
                os.waitpid(pid, 0)
        return [Outcome(codes.get(pid), read(Path(f"{logs}/{i}")), seconds) for i, pid in enumerate(pids)]


def read(log: Path) -> str:
    """The output of a rank; "" where it ended before it had any."""
    return log.read_text(errors="replace") if log.exists() else ""


def _fork(env, folder, script, argv, log) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setpgid(0, 0)
        sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for fd in (1, 2):
            os.dup2(sink, fd)
        sys.stdout, sys.stderr = (os.fdopen(fd, "w", buffering=1, closefd=False) for fd in (1, 2))
        for name in LAUNCHED:
            os.environ.pop(name, None)
        os.environ.update(env)
        os.chdir(folder)
        logging.root.handlers.clear()
        torch.manual_seed(FRESH_SEED)
        torch.set_num_threads(1)
        sys.argv, sys.path = [script, *argv], [str(folder), *sys.path]
        runpy.run_path(str(folder / script), run_name="__main__")
        code = 0
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else 0 if e.code is None else 1
        if isinstance(e.code, str):
            print(e.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            for stream in (sys.stdout, sys.stderr):
                if not stream.closed:
                    stream.flush()
        finally:
            os._exit(code & 0xFF)  # as an interpreter does
