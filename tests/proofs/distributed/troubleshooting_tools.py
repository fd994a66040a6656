"""What the proofs of the troubleshooting page share: provoke a symptom, run a literal of the page, see who waits."""

from __future__ import annotations

import ast
import builtins
import faulthandler
import os
import resource
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import ignite.distributed as idist
import torch
import torch._dynamo  # noqa: F401  DDP imports it at its first use; here once, and not in each forked rank
import torch.distributed as dist
from ignite.distributed import comp_models
from support.claims import proves
from support.world import Outcome, is_launch_variable, run_serial, run_world
from torch.utils.data import DataLoader

PAGE = "sub-skills/distributed/references/troubleshooting.md#"


def symptom(anchor: str) -> Callable:
    """Register a proof for the entry of the page at ``anchor``."""
    return proves(PAGE + anchor)


def raised(out: Outcome, kind: str) -> str:
    """The message of a rank that must have ended with the exception ``kind``."""
    assert out.error == kind, f"expected {kind}: {out}"
    return out.message


def evaluate(code: str, **names: Any) -> Any:
    """The value of a literal of the page, with the names that a reader's script would have."""
    return eval(code, {"idist": idist, "torch": torch, "timedelta": timedelta, "dist": dist, "os": os, **names})


def python_c(code: str, **kwargs: Any) -> str:
    """What `python -c code` prints, run in a fork (torch is imported already); fails if it fails."""
    out = run_serial(lambda: exec(code, {}), **kwargs)
    assert out.ok, out
    return out.output.strip()


def shell(command: str, **variables: str) -> str:
    """What a POSIX shell prints for the command, in an environment without launcher variables but with these."""
    env = {k: v for k, v in os.environ.items() if not is_launch_variable(k)} | variables
    return subprocess.run(
        ["sh", "-c", command], env=env, capture_output=True, text=True, timeout=10, check=False
    ).stdout.strip()


def free_port(low: int = 0, high: int = 0) -> int:
    """A TCP port that is free now; between ``low`` and ``high`` if given."""
    for port in range(low + os.getpid() % max(high - low, 1), high) if high else [0]:
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
            return s.getsockname()[1]
    raise OSError(f"no free port between {low} and {high}")


def notebook(port: int | None = None) -> None:
    """In a forked rank: let idist.spawn fork, as it does under IPython, and use a free rendezvous port."""
    builtins.__IPYTHON__ = True
    for name in [n for n in os.environ if is_launch_variable(n)]:
        del os.environ[name]
    os.environ["MASTER_PORT"] = str(port or free_port())


@contextmanager
def plain_folder() -> Iterator[str]:
    """A temporary folder whose path does not contain "env", which Ignite would take for env:// in a file:// URL."""
    with tempfile.TemporaryDirectory() as outer:
        if "env" not in outer:
            yield outer
            return
    with plain_folder() as other:
        yield other


def standing(function: Callable[[int], Any], size: int = 2, timeout: float = 1.2, **kwargs: Any) -> list[Outcome]:
    """Run ``function`` on all ranks of a group with this timeout (seconds). A rank that returns stays alive until the
    others have ended, so that a rank which waits for it ends by the timeout and not by a closed connection."""
    with tempfile.TemporaryDirectory() as folder:

        def rank_function(rank: int) -> Any:
            try:
                idist.barrier()  # the timeout counts from here, so that a slow start is not taken for a hang
                dist.distributed_c10d._set_pg_timeout(timedelta(seconds=timeout), dist.group.WORLD)
                value = function(rank)
            finally:
                Path(folder, str(rank)).touch()
            deadline = time.monotonic() + 10 * timeout
            while len(os.listdir(folder)) < size and time.monotonic() < deadline:
                time.sleep(0.01)
            idist.finalize()
            if dist.is_initialized():
                dist.destroy_process_group()
            return value

        return run_world(size, rank_function, timeout=20, **kwargs)


def stuck(function: Callable[[int], Any], seconds: float = 1.5, busy: bool = False, **kwargs: Any) -> str:
    """The Python stack (innermost frame first) of rank 0, which must still be in ``function`` after these seconds; for
    a hang that no timeout of the group ends. Rank 1 stays alive meanwhile.

    ``busy``: the rank computes. The watchdog of faulthandler is another thread: it can come upon a frame that is being
    made, and crash (11 of 120 times in a tight loop); a signal handler of Python runs between two instructions.
    """

    def dump(*_: Any) -> None:
        os.write(2, b"Timeout\n")
        faulthandler.dump_traceback(all_threads=False)
        os._exit(1)

    def rank_function(rank: int) -> None:
        limit = seconds + 0.5 * rank  # rank 1 too may hang
        if busy:
            signal.signal(signal.SIGALRM, dump)
            signal.setitimer(signal.ITIMER_REAL, limit)
        else:
            faulthandler.dump_traceback_later(limit, exit=True)
        function(rank)
        time.sleep(rank * (seconds + 1))
        faulthandler.cancel_dump_traceback_later()

    out = run_world(2, rank_function, **kwargs)[0]
    head, found, stack = out.output.partition("(most recent call first):")
    assert found and "Timeout" in head, f"rank 0 did not hang: {out}"
    return stack


def waited(out: Outcome, *frames: str) -> None:
    """The rank ended by the group's timeout, with all of these on its stack."""
    assert "Timed out waiting" in out.message or "Application timeout caused pair closure" in out.message, out
    assert all(f in out.traceback for f in frames), out.traceback


def group_timeout() -> timedelta:
    """The timeout that the default gloo group really has."""
    return dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu")).options._timeout


@cache
def memory_helps() -> str:
    """The page's remedies for a rank without memory, each seen to spare some or to suffice."""

    def job(batch: int, limit: int) -> bool:
        def work() -> None:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + limit,) * 2)
            torch.ones(batch, 1 << 20, dtype=torch.uint8)

        return run_serial(work).ok

    spare = 100 << 20
    assert (job(50, spare), job(200, spare), job(200, 3 * spare)) == (True, False, True)
    ahead = [iter(DataLoader(range(99), num_workers=workers))._tasks_outstanding for workers in (1, 2)]
    assert ahead[0] < ahead[1], "each worker holds batches"
    return "fewer num_workers, a smaller batch, more memory"


def pretend_cuda(devices: int = 2) -> None:
    """In a forked rank: torch claims to have GPUs; device 0 is the current one."""
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: devices
    torch.cuda.current_device = lambda: 0


def in_source(module: str, text: str) -> str:
    """``comp_models/horovod.py:154`` where the installed library has the text in a string; fails if it has not."""
    path = Path(comp_models.__file__).parent / module
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and text in node.value:
            return f"comp_models/{module}:{node.lineno}"
    raise AssertionError(f"{path}: no string has «{text}»")
