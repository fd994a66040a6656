"""Promise: a rank that dies, is killed, stopped, frozen or out of memory is named with its check, the others are
victims, the exit code is right, the end comes in time, and no process or file is left.
"""

import contextlib
import itertools
import os
import resource
import signal
import sys
import time
from pathlib import Path

import ignite.distributed as idist
import pytest
import torch
from support import launchers
from support.sabotage import hook_folder, sabotage
from support.smoke import (
    SCRIPT,
    faulty_smoke,
    finding_of,
    fresh_smoke,
    in_session,
    plain_environment,
    result_of,
    smoke_module,
)

HOST = os.uname().nodename
GATHER = ("gloo", "--only", "all_gather")


def on_rank_1(fault):
    """For `prepare`: rank 1 suffers the fault when it comes to all_gather."""

    def prepare():
        original = idist.all_gather

        def all_gather(*args, **kwargs):
            if os.environ.get("RANK") == "1":
                fault()
            return original(*args, **kwargs)

        idist.all_gather = all_gather

    return prepare


def failed_check(result) -> dict:
    (check,) = [c for c in result.report["runs"][1]["checks"] if c["status"] not in ("pass", "skip")]
    assert (check["id"], check["ranks"], check["hosts"]) == ("all_gather", [1], {"1": HOST}), check
    return check


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGABRT, signal.SIGSEGV])
def test_a_rank_that_dies_by_a_signal(how):
    result = faulty_smoke(*GATHER, prepare=on_rank_1(lambda: os.kill(os.getpid(), how)))
    check, finding = failed_check(result), finding_of(result)
    assert (result.code, check["status"], finding["id"]) == (1, "error", "rank-died")
    assert how.name in check["observed"]["1"] and "victim" in check["hint"]
    assert finding["text"] == f"rank 1 on {HOST} died in all_gather; the others are victims"


def test_a_rank_that_leaves_without_a_word():
    result = faulty_smoke(*GATHER, prepare=on_rank_1(lambda: os._exit(3)))
    assert (result.code, finding_of(result)["id"]) == (1, "rank-died")
    assert failed_check(result)["observed"]["1"] == "died: exited with code 3"


@pytest.mark.parametrize(
    "fault, text",
    [(lambda: sys.exit(3), "raised SystemExit: 3"), (lambda: 1 / 0, "raised ZeroDivisionError: division")],
)
def test_an_exception_and_sys_exit_on_one_rank(fault, text):
    result = faulty_smoke(*GATHER, prepare=on_rank_1(fault))
    check = failed_check(result)
    assert (result.code, check["status"]) == (1, "fail") and check["observed"]["1"].startswith(text)
    assert check["observed"]["0"].startswith(("waits for the other ranks", "raised RuntimeError")), check
    assert any("ZeroDivisionError" in f or "SystemExit" in f for f in check["stacks"]["1"])


@pytest.mark.parametrize(
    "fault, cause, word",
    [
        (lambda: os.kill(os.getpid(), signal.SIGSTOP), "rank-stopped", "stopped (SIGSTOP)"),
        (lambda: time.sleep(3600), "rank-froze", "sleeping"),
        (lambda: all(True for _ in itertools.count()), "rank-froze", "does not return"),
    ],
    ids=["stopped", "asleep", "busy"],
)
def test_a_rank_that_goes_no_further(fault, cause, word):
    result = faulty_smoke(*GATHER, "--timeout", "12", within=12 + 10, prepare=on_rank_1(fault))
    check, finding = failed_check(result), finding_of(result)
    assert (result.code, check["status"], finding["id"]) == (5, "timeout", cause)
    assert word in check["observed"]["1"] and f"rank 1 on {HOST}" in finding["text"]
    if cause == "rank-froze":
        assert any("test_fault_processes.py" in frame for frame in check["stacks"]["1"])


def out_of_address_space():
    resource.setrlimit(resource.RLIMIT_AS, (1 << 20, 1 << 20))
    torch.zeros(1 << 28)


def test_a_rank_that_gets_no_memory():
    result = faulty_smoke(*GATHER, prepare=on_rank_1(out_of_address_space))
    assert (result.code, finding_of(result)["id"]) == (1, "out-of-memory")
    assert "rank 1, all_gather: " in finding_of(result)["evidence"][0] and failed_check(result)


@contextlib.contextmanager
def small_memory_group():
    """A memory cgroup of 96 MiB; yields the file into which a process writes its id to be in it."""
    name, limit = f"smoke-test-{os.getpid()}", str(96 << 20)
    places = (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max"))  # v1, v2
    for folder, file in ((f"{place}/{name}", file) for place, file in places):
        try:
            os.mkdir(folder)
        except OSError:
            continue
        try:
            Path(folder, file).write_text(limit)
            yield Path(folder, "cgroup.procs")
            return
        except OSError:
            pass
        finally:
            end = time.monotonic() + 5
            while Path(folder).is_dir() and time.monotonic() < end:
                with contextlib.suppress(OSError):
                    os.rmdir(folder)
                time.sleep(0.05)
    pytest.skip("no memory cgroup can be made here")


def test_a_rank_that_the_kernel_kills_for_want_of_memory():
    """Really: the rank moves into a cgroup and takes more than that has."""
    with small_memory_group() as group:

        def eat():
            group.write_text(str(os.getpid()))
            kept = []
            for _ in range(64):
                kept.append(bytearray(os.urandom(1 << 10) * (1 << 12)))

        result = faulty_smoke(*GATHER, prepare=on_rank_1(eat))
    check, finding = failed_check(result), finding_of(result)
    assert (result.code, finding["id"]) == (1, "out-of-memory"), check
    assert finding["text"].startswith(f"rank 1 on {HOST} was killed in all_gather for want of memory")


def test_a_dead_rank_whose_child_holds_its_pipe_is_seen_at_once():
    def die():
        if os.fork() == 0:
            time.sleep(20)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)

    result = faulty_smoke(*GATHER, prepare=on_rank_1(die), within=30)
    check = failed_check(result)
    assert check["status"] == "error" and "SIGKILL" in check["observed"]["1"] and result.seconds < 20


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_rank_outlives_a_killed_supervisor(how):
    """Only of SIGKILL files may be left: nobody is there to remove them."""

    def act(smokes):
        (smoke,) = smokes
        while len(in_session(smoke.pid)) < 4:  # the supervisor, a rank of the first run, two of the second
            assert not smoke.done()
        os.kill(smoke.pid, how)

    freeze = dict(prepare=lambda: sabotage("barrier", "freezes-on-one-rank"), act=act)
    result = faulty_smoke("gloo", "--timeout", "60", **freeze, within=20, tidy=how != signal.SIGKILL)
    assert result.code == (-how if how == signal.SIGKILL else 128 + how)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_while_ranks_are_started_is_not_lost(how):
    """An exception from a handler is dropped inside os.fork."""

    def act(smokes):
        while not smoke_module().children_of(smokes[0].pid):
            assert not smokes[0].done()
        os.kill(smokes[0].pid, how)

    for _ in range(4):
        result = faulty_smoke("gloo", "--nproc", "8", act=act)
        assert (result.code, finding_of(result)["id"]) == (128 + how, "interrupted"), result.err


def marked_processes(mark: str) -> list[int]:
    """Processes whose environment, as it was when their program started, holds the mark."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark.encode() in entry.read_bytes():
                found.append(int(entry.parent.name))
    return found


def test_a_frozen_helper_in_new_interpreters(tmp_path):
    mark = f"{os.getpid()}.{time.monotonic_ns()}"
    hook = hook_folder(tmp_path / "hook", "broadcast", "freezes-on-one-rank")
    env = plain_environment(PYTHONPATH=str(hook), SMOKE_TEST_MARK=mark)
    result = fresh_smoke("gloo", "--timeout", "30", "--format", "json", env=env)
    assert result.code == 5 and result.seconds < 30 + 5 + 5, result.out + result.err
    check = next(c for r in result.report["runs"] for c in r["checks"] if c["status"] == "timeout")
    assert check["id"] == "broadcast" and any("sabotage.py" in f for f in check["stacks"][str(check["ranks"][0])])
    assert marked_processes(f"SMOKE_TEST_MARK={mark}") == []


@pytest.mark.parametrize("how, word", [(signal.SIGSTOP, "stopped"), (signal.SIGKILL, "died")])
def test_a_rank_that_is_stopped_or_killed_under_torchrun_is_named(how, word, tmp_path):
    """The rank is caught in its start: before it can answer the first check."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if os.environ.get('RANK') == '1' and 'distributed_smoke' in ' '.join(sys.orig_argv):\n"
        "    kill, fork = os.kill, os.fork\n"
        "    def hurt():\n"
        "        pid = fork()\n"
        "        if pid:\n"
        f"            kill(pid, {int(how)})\n"
        "        return pid\n"
        "    os.fork = hurt\n"
    )
    env = {**launchers.clean_environment(), "PYTHONPATH": str(tmp_path)}
    argv = launchers.torchrun_argv(2, str(SCRIPT), "--format", "json", "--timeout", "25")
    done = launchers.run(argv, env=env, timeout=90)
    assert not done.timed_out and not done.left_behind and done.seconds < 60, done.report()
    result = result_of(done)
    assert done.returncode != 0 and result.report["exit_code"] in (1, 4, 5)
    assert f"rank 1 on {HOST} {word}" in finding_of(result)["text"], done.report()
