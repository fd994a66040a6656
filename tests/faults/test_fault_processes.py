"""Promise: a rank that dies, is killed, stopped, frozen or out of memory is named with its check, the others are
victims, the exit code is right, the end comes in time, and no process or file is left.
"""

import contextlib
import ctypes
import faulthandler
import itertools
import os
import resource
import signal
import sys
import threading
import time
from pathlib import Path

import ignite.distributed as idist
import pytest
import torch
from support import launchers
from support.sabotage import hook_folder, sabotage
from support.smoke import (
    OVER,
    SCRIPT,
    faulty_smoke,
    faulty_smokes,
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


def test_a_crash_shows_where_it_was_as_the_fix_says():
    def crash():
        faulthandler.enable()  # what the variable does when an interpreter starts, and this one has started
        ctypes.string_at(0)

    result = faulty_smoke(*GATHER, prepare=on_rank_1(crash))
    assert finding_of(result)["fix"].startswith("export PYTHONFAULTHANDLER=1")
    printed = failed_check(result)["printed"]["1"]
    assert "Segmentation fault" in printed and f"in {ctypes.string_at.__name__}" in printed, printed


def test_a_crash_under_a_limit_on_address_space():
    """Set before the smoke starts: native code that gets no memory aborts, and the rank says nothing."""

    def prepare():
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (900 << 20), resource.RLIM_INFINITY))
        on_rank_1(os.abort)()

    finding = finding_of(faulty_smoke(*GATHER, prepare=prepare))
    assert (finding["id"], finding["fix"]) == ("out-of-memory", "ulimit -v unlimited, where that rank is started")
    assert f"rank 1 on {HOST}" in finding["text"] and "SIGABRT" in finding["evidence"][0]


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
    assert finding_of(result)["text"].startswith(f"rank 1 on {HOST} could not get the memory")


def out_of_room_for_threads():
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 20), resource.RLIM_INFINITY))
    for _ in range(64):
        threading.Thread(target=time.sleep, args=(1,)).start()


def test_a_limit_on_address_space_is_told_from_one_on_processes():
    """Both are met as the same error: no thread can be started."""
    result = faulty_smoke(*GATHER, prepare=on_rank_1(out_of_room_for_threads))
    finding = finding_of(result)
    assert (result.code, finding["id"]) == (1, "out-of-memory") and "ulimit -v" in finding["fix"], finding
    assert f"rank 1 on {HOST}" in finding["text"] and "start new thread" in finding["evidence"][0]


def test_a_limit_on_processes():
    """Of a control group: the kernel spares root the other one, ulimit -u."""
    for folder in ("/sys/fs/cgroup/pids", "/sys/fs/cgroup"):
        group = Path(folder, f"smoke-test-{os.getpid()}")
        with contextlib.suppress(OSError):
            group.mkdir()
            (group / "pids.max").write_text("6")
            break
        with contextlib.suppress(OSError):
            group.rmdir()
    else:
        pytest.skip("no control group for processes can be made here")
    try:
        result = faulty_smoke("gloo", prepare=lambda: (group / "cgroup.procs").write_text(str(os.getpid())))
    finally:
        end = time.monotonic() + 5
        while group.is_dir() and time.monotonic() < end:
            with contextlib.suppress(OSError):
                group.rmdir()
            time.sleep(0.05)
    finding = finding_of(result)
    assert finding["id"] == "process-limit" and "pids.max" in finding["fix"] and HOST in finding["text"], finding
    assert "its control group may have 6 processes and threads" in finding["evidence"][0]


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


def two_by_hand(flag, hurt, timeout=9, heal=lambda smokes: None):
    """A world of two that no launcher started; when rank 1 is in all_gather, `hurt` gets the ids of the processes of
    each rank, the supervisor's first."""
    port = launchers.free_port()

    def prepare():
        original = idist.all_gather

        def all_gather(*args, **kwargs):
            if os.environ["RANK"] == "1" and not flag.exists():
                flag.touch()
                time.sleep(3600)
            return original(*args, **kwargs)

        idist.all_gather = all_gather

    def act(smokes):
        while not flag.exists():
            assert not any([s.done() for s in smokes])
            time.sleep(0.01)
        hurt([[s.pid, *(p for p in in_session(s.pid) if p != s.pid)] for s in smokes])
        heal(smokes)

    names = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    argv = ["--only", "all_gather", "--timeout", str(timeout), "--format", "json"]
    jobs = [
        {"argv": argv, "env": {**names, "RANK": str(r), "LOCAL_RANK": str(r)}, "prepare": prepare} for r in range(2)
    ]
    return faulty_smokes(*jobs, act=act, within=timeout + 15, tidy=False)


def signal_all(pids, how):
    for pid in pids:
        os.kill(pid, how)


def test_a_rank_that_is_killed_with_its_supervisor(tmp_path):
    """On this host, where it can be seen that the process is gone: the host is there, and nothing to ping."""
    pids = []

    def hurt(groups):
        pids.extend(groups[1])
        signal_all(groups[1], signal.SIGKILL)

    first, _ = two_by_hand(tmp_path / "flag", hurt)
    finding = finding_of(first)
    assert (first.code, finding["id"]) == (1, "rank-died") and first.seconds < 9, first.out
    assert finding["text"] == (
        f"rank 1 on {HOST} was killed in all_gather, its supervisor with it, on this host; the others are victims"
    )
    assert f"its supervisor, pid {pids[0]}, is gone" in " ".join(finding["evidence"]) and "dmesg" in finding["fix"]


def test_a_supervisor_that_is_stopped(tmp_path):
    pids = []

    def hurt(groups):
        pids.append(groups[1][0])
        os.kill(groups[1][0], signal.SIGSTOP)

    def heal(smokes):
        while not smokes[0].done():
            time.sleep(0.02)
        os.kill(pids[0], signal.SIGCONT)

    first, _ = two_by_hand(tmp_path / "flag", hurt, heal=heal)
    finding = finding_of(first)
    assert (first.code, finding["id"], finding["fix"]) == (5, "rank-stopped", f"kill -CONT {pids[0]}"), first.out
    assert finding["text"].startswith(f"rank 1 on {HOST} stopped in all_gather, its supervisor with it, on this host")
    assert first.seconds < 9 + OVER


def test_a_rank_0_that_is_killed_is_reported_by_the_others(tmp_path):
    """The store, in which they meet, goes with it."""
    first, second = two_by_hand(tmp_path / "flag", lambda groups: signal_all(groups[0], signal.SIGKILL))
    finding = finding_of(second)
    assert (first.code, second.code, finding["id"]) == (-signal.SIGKILL, 4, "rank-0-lost") and second.seconds < 9
    assert finding["text"].startswith(f"rank 0 on {HOST} is gone: its supervisor, pid ")
    assert "on this host, was killed; rank 1 on " in finding["text"] and "frame #" not in second.err


def test_a_rank_0_that_is_stopped_is_reported_by_the_others_at_the_deadline(tmp_path):
    """And it says itself, when it goes on, that it stood still."""
    groups = []

    def hurt(found):
        groups.extend(found)
        signal_all(groups[0], signal.SIGSTOP)

    def heal(smokes):
        while not smokes[1].done():
            time.sleep(0.02)
        time.sleep(3)
        signal_all(groups[0], signal.SIGCONT)

    first, second = two_by_hand(tmp_path / "flag", hurt, heal=heal)
    finding = finding_of(second)
    assert (second.code, finding["id"]) == (5, "rank-0-lost") and second.seconds < 9 + OVER
    assert finding["text"].startswith(f"rank 0 on {HOST} is stopped (SIGSTOP)")
    assert finding["fix"] == f"kill -CONT {groups[0][0]}"
    assert (first.code, finding_of(first)["id"]) == (5, "stood-still"), first.out


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


def test_a_rank_that_dies_before_it_comes_under_torchrun(tmp_path):
    """torchrun ends rank 0 for it, which says for whom it has waited."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, pathlib, re, sys, time\n"
        "if os.environ.get('RANK') == '1' and 'distributed_smoke' in ' '.join(sys.orig_argv):\n"
        "    def hears(pid):\n"
        "        status = pathlib.Path('/proc', pid, 'status').read_text()\n"
        "        return pid == str(os.getpid()) or int(re.search(r'SigCgt:\\s+(\\w+)', status)[1], 16) >> 14 & 1\n"
        "    me = os.getppid()\n"
        "    ranks = pathlib.Path(f'/proc/{me}/task/{me}/children')\n"
        "    end = time.monotonic() + 20\n"
        "    while len(r := ranks.read_text().split()) < 2 or not all(map(hears, r)):\n"
        "        assert time.monotonic() < end\n"
        "        time.sleep(0.05)  # until rank 0 catches SIGTERM: before that it can say nothing\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    env = {**launchers.clean_environment(), "PYTHONPATH": str(tmp_path)}
    argv = launchers.torchrun_argv(2, str(SCRIPT), "--format", "json", "--timeout", "25")
    result = result_of(launchers.run(argv, env=env, timeout=60))
    finding = finding_of(result)
    assert (result.report["exit_code"], finding["id"]) == (4, "missing-peer"), finding
    assert finding["text"].startswith("ended by SIGTERM of torchrun while waiting for rank 1 of 2, which never came")
    assert finding["fix"] == "torchrun --tee 3 shows what rank 1 prints; look on the host with --node_rank=0"


def test_an_import_that_fails_on_one_rank_is_told_to_rank_0(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if os.environ.get('RANK') == '1':\n"
        f"    sys.path.insert(0, {str(tmp_path / 'broken')!r})\n"
    )
    package = tmp_path / "broken" / "ignite" / "__init__.py"
    package.parent.mkdir(parents=True)
    package.write_text("raise ImportError('libcudart.so.12: cannot open shared object file: No such file')\n")
    env = {**launchers.clean_environment(), "PYTHONPATH": str(tmp_path)}
    argv = launchers.torchrun_argv(2, str(SCRIPT), "--format", "json", "--timeout", "25")
    result = result_of(launchers.run(argv, env=env, timeout=60))
    finding = finding_of(result)
    assert (result.report["exit_code"], finding["id"]) == (3, "missing-dependency"), finding
    assert finding["text"].startswith(f"rank 1 on {HOST}: ignite cannot be imported (libcudart.so.12")
    assert str(package) in finding["evidence"][0] and finding["fix"].startswith("pip install --force-reinstall torch")
