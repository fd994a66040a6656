"""Promise: the smoke disturbs nothing and nothing disturbs it; it never hangs and leaves nothing behind."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from support.sabotage import hook_folder, sabotage
from support.smoke import SCRIPT, ForkedSmoke, forked_smoke, forked_smokes, fresh_smoke, plain_environment, smoke_module

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def marked_processes(mark: str) -> list[int]:
    """Processes whose environment, as it was when their program started, holds the mark."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in entry.read_bytes():
                found.append(int(entry.parent.name))
        except OSError:
            pass
    return found


def test_eight_at_once_all_pass():
    results = forked_smokes([{"argv": ["--format", "json"]} for _ in range(8)], at_once=8)
    assert [r.code for r in results] == [0] * 8, [r.failing() for r in results]


def test_passes_with_the_default_ports_taken():
    taken = []
    for port in (15000, 2222, 29500):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("0.0.0.0", port))
        except OSError:  # somebody else has it: taken all the same
            pass
        listener.listen()
        taken.append(listener)
    assert forked_smoke("--format", "json").code == 0


@pytest.mark.parametrize(
    "variables, codes, word",
    [
        ({"RANK": "0"}, (2, 4), "RANK"),
        ({"WORLD_SIZE": "4"}, (2, 4), "WORLD_SIZE"),
        ({"LOCAL_RANK": "0"}, (2, 4), "LOCAL_RANK"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, (2, 4), "LOCAL_RANK"),
        ({"RANK": "7", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}, (2, 4), "RANK=7"),
        ({"RANK": "zero", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}, (2, 4), "RANK=zero"),
        ({"SLURM_JOB_ID": "77"}, (2, 4), "SLURM_JOB_ID=77"),
        (
            {
                "SLURM_JOB_ID": "77",
                "SLURM_PROCID": "0",
                "SLURM_LOCALID": "0",
                "SLURM_NTASKS": "4",
                "SLURM_JOB_NODELIST": "n[1-2]",
                "SLURM_JOB_NUM_NODES": "2",
            },
            (2, 4),
            "SLURM_JOB_ID=77",
        ),
        (
            {
                "SLURM_JOB_ID": "77",
                "SLURM_PROCID": "0",
                "SLURM_LOCALID": "0",
                "SLURM_NTASKS": "4",
                "SLURM_STEP_ID": "0",
                "SLURM_JOB_NODELIST": "n[1-2]",
                "SLURM_JOB_NUM_NODES": "2",
            },
            (2, 4),
            "SLURM_JOB_ID=77",
        ),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, (2, 4), "mpirun"),
    ],
)
def test_left_over_variables_are_named_at_once(variables, codes, word):
    result = forked_smoke(env=variables)
    assert result.code in codes and result.seconds < 20
    assert word in (result.out + result.err) and "Traceback" not in result.err


def test_launcher_none_ignores_left_over_variables():
    assert forked_smoke("serial", "--launcher", "none", env={"RANK": "0", "SLURM_JOB_ID": "7"}).code == 0


def test_a_peer_that_never_comes_is_named():
    port = smoke_module().free_port()
    env = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    result = forked_smoke("--timeout", "6", "--format", "json", env=env)
    assert result.code == 4 and result.seconds < 11
    assert "rank 1 of 2 never came" in result.report["diagnosis"][0]["text"]


LISTEN = """
import socket, sys
s = socket.socket()
s.bind(("0.0.0.0", 0))
s.listen()
print(s.getsockname()[1], flush=True)
sys.stdin.read()
"""


def test_a_taken_rendezvous_port_is_named_with_its_holder():
    """The holder is a program of its own: forks of this process would hold its sockets too."""
    argv = [sys.executable, "-S", "-c", LISTEN]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        port = int(holder.stdout.readline())
        env = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        result = forked_smoke("--timeout", "20", "--format", "json", env=env)
        holder.stdin.close()
    assert result.code == 4
    (finding,) = result.report["diagnosis"]
    assert finding["id"] == "port-taken" and f"held by pid {holder.pid}:" in " ".join(finding["evidence"]), finding


@linux_only
def test_environment_working_folder_and_temporary_files_are_as_before(tmp_path):
    """The folder's name holds "environment": Ignite takes an init_method with "env" in it for env://."""
    before = {p for p in Path(".").iterdir()}
    result = forked_smoke("--format", "json", prepare=lambda: setattr(tempfile, "tempdir", str(tmp_path)))
    assert result.code == 0, result.out
    assert list(tmp_path.iterdir()) == []
    assert {p for p in Path(".").iterdir()} == before


def listening_addresses(pids: set[int]) -> set[str]:
    """Addresses, as the kernel writes them, on which these processes listen."""
    inodes = set()
    for pid in pids:
        for fd in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                inodes.add(os.readlink(fd))
            except OSError:
                pass
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                found.add(fields[1].partition(":")[0])
    return found


@linux_only
def test_only_loopback_is_listened_on():
    smoke = ForkedSmoke(["gloo"])
    seen = set()
    while not smoke.done():
        table, family = smoke_module().processes(), {smoke.pid}
        while grown := {p for p, row in table.items() if row[0] in family} - family:
            family |= grown
        seen |= listening_addresses(family)
        time.sleep(0.01)
    assert smoke.finish().code == 0
    assert seen and seen <= {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}, seen


@linux_only
def test_a_frozen_helper_ends_with_5_its_stack_and_no_process_left(tmp_path):
    mark = f"SMOKE_TEST_MARK={os.getpid()}.{time.monotonic_ns()}"
    hook = hook_folder(tmp_path / "hook", "broadcast", "freezes-on-one-rank")
    name, _, value = mark.partition("=")
    result = fresh_smoke(
        "gloo", "--timeout", "30", "--format", "json", env=plain_environment(PYTHONPATH=str(hook), **{name: value})
    )
    assert result.code == 5 and result.seconds < 30 + 5 + 5, result.out + result.err
    check = next(c for r in result.report["runs"] for c in r["checks"] if c["status"] == "timeout")
    assert check["id"] == "broadcast" and any("sabotage.py" in f for f in check["stacks"][str(check["ranks"][0])])
    assert marked_processes(mark) == []


@linux_only
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_rank_outlives_a_killed_supervisor(how):
    smoke = ForkedSmoke(["gloo", "--timeout", "60"], prepare=lambda: sabotage("barrier", "freezes-on-one-rank"))
    ranks = []
    while len(ranks) < 3:  # one of the first run, two of the second
        ranks = smoke_module().children_of(smoke.pid)
        assert not smoke.done()
    os.kill(smoke.pid, how)
    assert smoke.finish().code not in (0, 98, 99)
    end = time.monotonic() + 5
    while any(Path(f"/proc/{r}").exists() for r in ranks) and time.monotonic() < end:
        time.sleep(0.02)
    assert [r for r in ranks if Path(f"/proc/{r}").exists()] == []


@linux_only
@pytest.mark.parametrize("how, word", [(signal.SIGKILL, "SIGKILL"), (signal.SIGABRT, "SIGABRT")])
def test_a_rank_that_dies_is_named_and_the_other_is_a_victim(how, word):
    def prepare():
        import ignite.distributed as idist

        original = idist.all_gather
        idist.all_gather = lambda *a, **k: (
            os.kill(os.getpid(), how) if os.environ.get("RANK") == "1" else original(*a, **k)
        )

    result = forked_smoke("gloo", "--format", "json", prepare=prepare)
    assert result.code == 1
    check = next(c for c in result.report["runs"][1]["checks"] if c["status"] != "pass")
    assert (check["id"], check["status"], check["ranks"]) == ("all_gather", "error", [1])
    assert word in check["observed"]["1"] and "victim" in check["hint"]


def test_a_closed_output_pipe_is_no_traceback():
    reader = subprocess.Popen(["true"], stdin=subprocess.PIPE)
    reader.wait()
    process = subprocess.run(
        [sys.executable, str(SCRIPT), "--list"], stdout=reader.stdin, stderr=subprocess.PIPE, text=True, timeout=60
    )
    assert "Traceback" not in process.stderr


def test_a_deadline_before_the_first_check_is_said():
    result = forked_smoke("--timeout", "0.001", "--format", "json")
    assert (result.code, result.report["status"], result.report["diagnosis"][0]["id"]) == (5, "timeout", "deadline")


@linux_only
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_while_ranks_are_started_is_not_lost(how, tmp_path):
    """An exception from a handler is dropped inside os.fork."""
    for _ in range(4):
        smoke = ForkedSmoke(
            ["gloo", "--nproc", "8", "--format", "json"], prepare=lambda: setattr(tempfile, "tempdir", str(tmp_path))
        )
        while not smoke_module().children_of(smoke.pid):
            assert not smoke.done()
        os.kill(smoke.pid, how)
        result = smoke.finish()
        assert result.code == 128 + how, result.err
        assert result.report["diagnosis"][0]["id"] == "interrupted"
        assert list(tmp_path.iterdir()) == []


@linux_only
def test_a_dead_rank_whose_child_holds_its_pipe_is_seen_at_once():
    def prepare():
        import ignite.distributed as idist

        def die():
            if os.environ.get("RANK") == "1":
                if os.fork() == 0:
                    time.sleep(20)
                    os._exit(0)
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.5)

        idist.barrier = die

    result = forked_smoke("gloo", "--only", "barrier", "--timeout", "60", "--format", "json", prepare=prepare)
    check = result.report["runs"][1]["checks"][-3]
    assert (check["id"], check["status"], check["ranks"]) == ("barrier", "error", [1]), result.out
    assert "SIGKILL" in check["observed"]["1"] and result.seconds < 20


def raise_in(name, error):
    def prepare():
        import ignite.distributed as idist

        def broken(*args, **kwargs):
            raise error

        setattr(idist, name, broken)

    return prepare


@pytest.mark.parametrize("form", ["json", "text"])
def test_text_that_no_encoding_holds_is_reported(form):
    env = {"PYTHONIOENCODING": "ascii"}
    result = forked_smoke("serial", "--format", form, env=env, prepare=raise_in("barrier", RuntimeError("x")))
    assert result.code == 0  # barrier is not checked in a world of one
    result = forked_smoke("serial", "--format", form, prepare=raise_in("new_group", RuntimeError("bad \udcff Größe")))
    assert result.code == 1 and "new_group" in result.out and "Traceback" not in result.err


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_no_failure(closed):
    code = subprocess.run(
        ["sh", "-c", f"exec {sys.executable} {SCRIPT} serial --only hostname {closed}"], timeout=90
    ).returncode
    assert code == 0


@linux_only
def test_a_full_output_is_said_and_not_taken_for_usage():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, str(SCRIPT), "--help"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
        assert "Traceback" not in done.stderr or done.returncode != 0
        done = subprocess.run(
            [sys.executable, str(SCRIPT), "serial", "--only", "hostname"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=90,
        )
    assert done.returncode == 1 and "the report cannot be written" in done.stderr


@pytest.mark.parametrize(
    "variables, word",
    [
        ({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_PORT": "abc"}, "MASTER_PORT=abc"),
        ({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_PORT": "99999"}, "MASTER_PORT=99999"),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": ""}, "OMPI_COMM_WORLD_SIZE="),
        ({"GLOO_SOCKET_IFNAME": "nope0"}, "GLOO_SOCKET_IFNAME=nope0"),
        (
            {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "no.such.host.invalid"},
            "MASTER_ADDR=no.such",
        ),
        ({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "192.0.2.77"}, "MASTER_ADDR=192.0.2.77"),
    ],
)
def test_what_can_be_known_in_a_second_is_said_by_name(variables, word):
    result = forked_smoke("--format", "json", env=variables)
    assert result.code in (2, 4) and result.seconds < 25
    assert word in result.report["diagnosis"][0]["text"] and result.report["diagnosis"][0]["fix"]


@linux_only
def test_a_low_limit_of_open_files_is_said():
    import resource

    result = forked_smoke(
        "gloo",
        "--nproc",
        "64",
        "--format",
        "json",
        prepare=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128)),
    )
    assert (result.code, result.report["diagnosis"][0]["id"]) == (4, "open-files")


def test_a_parent_that_ignores_its_children_is_no_failure():
    assert (
        forked_smoke("gloo", "--only", "hostname", prepare=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN)).code
        == 0
    )


def test_windows_is_told_in_one_line():
    result = forked_smoke("--help", prepare=lambda: setattr(sys, "platform", "win32"))
    assert (result.code, result.out, len(result.err.splitlines())) == (2, "", 1)
