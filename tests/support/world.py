"""Run a function on the ranks of a real gloo world, on this machine, for the price of a fork.

    outcomes = run_world(2, lambda rank: idist.all_reduce(rank + 1))
    assert values(outcomes) == [3, 3]

torch and ignite are imported once, here; each rank is a fork of the test process. The store that the ranks meet in
belongs to the test process and takes a free port from the kernel, so two test runs never meet. Nothing outlives the
call: a rank that is still there after `limit` seconds leaves its Python stack and is killed.
"""
from __future__ import annotations

import ctypes
import faulthandler
import logging
import os
import pickle
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import ignite.distributed as idist
import torch
import torch.distributed as dist

LAUNCH_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "LOCAL_WORLD_SIZE")


def is_launch_variable(name: str) -> bool:
    """Whether the environment variable belongs to a launcher, so that a test must not inherit it."""
    return name in LAUNCH_VARIABLES or name.startswith(("SLURM_", "TORCHELASTIC_", "OMPI_", "PMI_", "GROUP_"))


@dataclass
class Outcome:
    """What became of one rank."""

    rank: int
    value: Any = None  # what the function returned
    error: str | None = None  # class name of the exception, e.g. "ValueError"
    message: str = ""  # its text
    traceback: str = ""
    exit_code: int | None = None  # as os.waitstatus_to_exitcode gives it: negative is a signal; None while hung
    hung: bool = False  # still running when `limit` was over
    stack: str = ""  # of a hung rank: its Python stack (innermost frame first)
    output: str = ""  # its stdout and stderr together
    warnings: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and self.error is None and not self.hung


def values(outcomes: list[Outcome]) -> list[Any]:
    """The returned value of each rank; fails, with everything known, if a rank did not return."""
    bad = [o for o in outcomes if not o.ok]
    assert not bad, "\n\n".join(
        f"rank {o.rank}: {o.error}: {o.message} exit={o.exit_code} hung={o.hung}\n{o.traceback}{o.stack}{o.output}"
        for o in bad
    )
    return [o.value for o in outcomes]


def run_world(
    size: int,
    function: Callable[[int], Any],
    *,
    init: str | None = "gloo",
    timeout: float = 5.0,
    limit: float = 30.0,
    env: dict[str, str] | Callable[[int], dict[str, str]] | None = None,
    unset: tuple[str, ...] = (),
) -> list[Outcome]:
    """Run ``function(rank)`` on ``size`` forked ranks and say what became of each.

    Args:
        init: "gloo": `idist.initialize("gloo")` before the function and `idist.finalize()` after it;
            "torch": `torch.distributed.init_process_group("gloo")`, as a user's own code would; None: only the
            variables of an env:// rendezvous are set; "serial": not even those (use with size 1).
        timeout: of the process group once it stands, seconds (init "gloo" and "torch").
        limit: seconds after which a rank counts as hung; it is killed.
        env: variables to set on top, or a function from rank to them.
        unset: variables to remove, e.g. ``("LOCAL_RANK",)``.
    """
    with tempfile.TemporaryDirectory(prefix="ignite-world-") as folder:
        ranks = []
        for rank in range(size):
            port_read, port_write = os.pipe()
            done_read, done_write = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(port_write)
                os.close(done_read)
                _be_rank(rank, size, function, init, timeout, env, unset, folder, port_read, done_write)
            os.close(port_read)
            os.close(done_write)
            ranks.append((pid, port_write, done_read))
        store = None
        if init != "serial":  # made after the forks, so that no thread is forked
            store = dist.TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=limit), wait_for_workers=False)
        for _, port_write, _ in ranks:
            os.write(port_write, str(store.port if store else 0).encode())
            os.close(port_write)
        outcomes = _collect(ranks, folder, time.monotonic() + limit)
        del store
        return outcomes


def run_serial(function: Callable[[], Any], **kwargs: Any) -> Outcome:
    """Run ``function()`` in a forked process without any distributed set-up."""
    return run_world(1, lambda rank: function(), init="serial", **kwargs)[0]


def forget_loggers() -> None:
    """In a fork: Ignite's loggers, made before it, would write where the parent does; the next use makes them anew."""
    known = logging.root.manager.loggerDict
    for name in [n for n in known if n.startswith("ignite")]:
        logging.getLogger(name).handlers.clear()
        del known[name]


def _be_rank(rank, size, function, init, timeout, env, unset, folder, port_read, done_write):
    code, outcome = 1, Outcome(rank)
    try:
        sink = os.open(f"{folder}/{rank}.out", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        faulthandler.disable()  # pytest's, which would write an expected abort to the terminal
        stack = open(f"{folder}/{rank}.stack", "w")
        faulthandler.register(signal.SIGUSR1, file=stack, all_threads=False)
        torch.set_num_threads(1)
        forget_loggers()
        for name in [n for n in os.environ if is_launch_variable(n)]:
            del os.environ[name]
        port = os.read(port_read, 16).decode()
        if init != "serial":
            os.environ.update(
                RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
                TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_RESTART_COUNT="0",
            )
        os.environ.update(env(rank) if callable(env) else env or {})
        for name in unset:
            os.environ.pop(name, None)
        patient = timedelta(seconds=max(30.0, timeout))  # a busy machine may be slow to bring the ranks together
        if init == "gloo":
            idist.initialize("gloo", timeout=patient)
        elif init == "torch":
            dist.init_process_group("gloo", timeout=patient)
        if init in ("gloo", "torch") and timeout < 30:
            dist.distributed_c10d._set_pg_timeout(timedelta(seconds=timeout))
        import warnings

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                outcome.value = function(rank)
            finally:
                outcome.warnings = [f"{w.category.__name__}: {w.message}" for w in caught]
        if init == "gloo" and idist.get_world_size() == size and dist.is_initialized():
            idist.barrier()
            idist.finalize()
        code = 0
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else (0 if e.code is None else 1)
    except BaseException as e:
        outcome.error, outcome.message, outcome.traceback = type(e).__name__, str(e), traceback.format_exc()
    finally:
        try:
            data = pickle.dumps(outcome)
        except Exception as e:
            outcome.value, outcome.error, outcome.message = None, "Unpicklable", f"{e}"
            data, code = pickle.dumps(outcome), 1
        with os.fdopen(done_write, "wb") as pipe:
            pipe.write(data)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _ask_no_name_server() -> None:
    """torch looks up the name of every address it meets, and a name server that loses a packet stalls it for 5 s.

    The C library reads its resolver's options once and forks inherit them: from here on, what the hosts file does not
    know is unknown at once, in this process and its forks; programs that the tests start look names up as ever.
    """
    before = os.environ.get("RES_OPTIONS")
    os.environ["RES_OPTIONS"] = "attempts:0"
    if hasattr(libc := ctypes.CDLL(None), "__res_init"):
        getattr(libc, "__res_init")()
    del os.environ["RES_OPTIONS"]
    if before is not None:
        os.environ["RES_OPTIONS"] = before


_ask_no_name_server()


def _collect(ranks, folder, deadline):
    data = {reader: b"" for _, _, reader in ranks}
    open_readers = set(data)
    while open_readers and (left := deadline - time.monotonic()) > 0:
        for reader in select.select(list(open_readers), [], [], left)[0]:
            chunk = os.read(reader, 1 << 16)
            data[reader] += chunk
            if not chunk:
                open_readers.discard(reader)
    outcomes = []
    for rank, (pid, _, reader) in enumerate(ranks):
        hung = reader in open_readers
        if hung:
            os.kill(pid, signal.SIGUSR1)
            _await_stack(f"{folder}/{rank}.stack")
            os.kill(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
        os.close(reader)
        outcome = pickle.loads(data[reader]) if data[reader] and not hung else Outcome(rank)
        outcome.hung, outcome.exit_code = hung, None if hung else os.waitstatus_to_exitcode(status)
        outcome.output = _read(f"{folder}/{rank}.out")
        outcome.stack = _read(f"{folder}/{rank}.stack")
        outcomes.append(outcome)
    return outcomes


def _await_stack(path: str, limit: float = 2.0) -> None:
    """Until a rank has written where it stands; one that is stopped, or on its way out, never does."""
    size, deadline = 0, time.monotonic() + limit
    while time.monotonic() < deadline:
        time.sleep(0.05)
        before, size = size, os.path.getsize(path) if os.path.exists(path) else 0
        if size and size == before:
            return


def _read(path: str) -> str:
    return Path(path).read_text(errors="replace") if os.path.exists(path) else ""
