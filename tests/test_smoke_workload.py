"""Promise: `--payload` times the collectives in the units of nccl-tests, within its time, and names the slowest rank:
the one that the others wait for, wherever it loses its time.
"""

import os
import signal
import sys
import time

import pytest
from support.sabotage import slow_down
from support.smoke import forked_smoke, fresh_smoke, smoke_module

SLOW = 0.02  # seconds that the slow rank loses in each call


def workload_of(result) -> dict:
    assert result.code == 0, result.out + result.err
    return result.report["runs"][-1]["workload"]


def test_every_size_operation_and_rank_is_reported_in_the_units_of_nccl_tests():
    options = ("--only", "initialize", "--payload", "256K", "--iterations", "5")
    result = forked_smoke("gloo", "--nproc", "3", *options, "--format", "json")
    found = workload_of(result)
    operations, sizes = ("all_reduce", "all_gather", "broadcast"), smoke_module().sizes_up_to(1 << 18, 3)
    assert [(r["operation"], r["bytes"]) for r in found["rows"]] == [(o, s) for s in sizes for o in operations]
    assert len(sizes) == 3 and all(s % 12 == 0 and s <= 1 << 18 for s in sizes)
    bus = {"all_reduce": 4 / 3, "all_gather": 2 / 3, "broadcast": 1.0}
    for row in found["rows"]:
        assert 1 <= row["iterations"] <= 5 and list(row["latency_us"]) == ["0", "1", "2"]
        for rank, latency in row["latency_us"].items():
            rate = row["bytes"] / latency / 1000  # bytes per microsecond are megabytes per second
            assert row["algbw_gbs"][rank] == pytest.approx(rate, rel=0.02, abs=2e-4)
            assert row["busbw_gbs"][rank] == pytest.approx(rate * bus[row["operation"]], rel=0.02, abs=2e-4)
    assert {r: seen["host"] for r, seen in found["ranks"].items()} == dict.fromkeys("012", os.uname().nodename)
    one = result.report["runs"][0]["checks"]
    assert next(c for c in one if c["id"] == "workload")["reason"] == "needs 2 or more processes"


def stopped_half_of_the_time():
    """Every rank 1 gets a companion that stops and continues it."""
    be_rank = smoke_module().World.connect

    def connect(world):
        be_rank(world)
        if world.rank == 1 and world.current == "workload":
            pid = os.getpid()
            if os.fork() == 0:
                if os.fork():
                    os._exit(0)
                for fd in range(3, 256):  # the pipes to the supervisor are the rank's
                    try:
                        os.close(fd)
                    except OSError:
                        pass
                try:
                    while os.getppid() != pid:
                        for how in (signal.SIGSTOP, signal.SIGCONT):
                            os.kill(pid, how)
                            time.sleep(0.04)
                finally:
                    os._exit(0)
            os.wait()

    smoke_module().World.connect = connect


WAYS = {
    "slow in ignite": lambda: slow_down("ignite.distributed", ("all_reduce", "all_gather", "broadcast"), SLOW),
    "slow in torch": lambda: slow_down("torch.distributed", ("all_reduce", "all_gather", "broadcast"), SLOW),
    "slow in its own work": lambda: slow_down("torch", (), 0.0, copies=SLOW),
    "stopped half of the time": stopped_half_of_the_time,
}


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("way", WAYS)
def test_the_rank_that_the_others_wait_for_is_named(way, size):
    options = ("--only", "initialize", "--payload", "64K", "--timeout", "60")
    result = forked_smoke("gloo", "--nproc", str(size), *options, "--format", "json", prepare=WAYS[way])
    slowest = workload_of(result)["slowest"]
    assert (slowest["rank"], slowest["host"], slowest["stands_out"]) == (1, os.uname().nodename, True), slowest


def test_a_rank_whose_sends_are_slow_is_named():
    """Its own part is like the others', so only what the others get from it tells."""
    slowest = smoke_module().slowest_rank
    own, hosts = {0: 0.001, 1: 0.001, 2: 0.001}, {0: "a", 1: "b", 2: "c"}
    found = slowest(own, {0: 0.002, 1: 0.002, 2: 0.030}, 0.03, hosts)
    assert (found["rank"], found["host"], found["stands_out"]) == (2, "c", True)
    assert slowest(own, {0: 0.002, 1: 0.002, 2: 0.003}, 0.03, hosts)["stands_out"] is False


def test_a_large_payload_ends_within_its_time():
    module = smoke_module()
    options = ("--only", "initialize", "--payload", "32M", "--iterations", "100000", "--timeout", "40")

    def shorter():
        module.WORKLOAD_SECONDS = 3.0

    result = forked_smoke("gloo", *options, "--format", "json", prepare=shorter)
    rows = workload_of(result)["rows"]
    assert max(r["iterations"] for r in rows) > min(r["iterations"] for r in rows) and result.seconds < 30


def test_all_ranks_take_as_many_steps_where_the_time_that_is_left_decides():
    """Each rank has its own idea of the time that is left; one step more on one of them, and it waits for ever."""
    options = ("--only", "initialize", "--payload", "64K", "--iterations", "100000", "--timeout", "15")
    rows = workload_of(forked_smoke("gloo", *options, "--format", "json"))["rows"]
    assert len(rows) == 9 and all(1 < r["iterations"] < 100_000 for r in rows)


def slow_network():
    """Each collective takes as long as its message at 4 MB/s, and the workload gets 2 s."""
    import ignite.distributed as idist

    def slow(original):
        def replacement(tensor, *args, **kwargs):
            time.sleep(tensor.nbytes / 4e6)
            return original(tensor, *args, **kwargs)

        return replacement

    for name in ("all_reduce", "all_gather", "broadcast"):
        setattr(idist, name, slow(getattr(idist, name)))
    smoke_module().WORKLOAD_SECONDS = 2.0


def test_a_message_that_would_take_too_long_is_left_out_and_said():
    options = ("--only", "initialize", "--payload", "16M", "--timeout", "100")
    result = forked_smoke("gloo", *options, "--format", "json", prepare=slow_network)
    found, sizes = workload_of(result), smoke_module().sizes_up_to(16 << 20, 2)
    assert found["left_out"] == [f"{o} of {sizes[-1]} bytes" for o in ("all_reduce", "all_gather", "broadcast")]
    assert {r["bytes"] for r in found["rows"]} == set(sizes[:-1])
    (check,) = [c for c in result.report["runs"][-1]["checks"] if c["id"] == "workload"]
    assert check["seconds"] < 10  # with them 24 s at least
    assert "left out, for it would take too long: all_gather of" in smoke_module().as_text(result.report)


def test_text_report_has_the_table_and_the_verdict():
    options = ("--only", "initialize", "--payload", "4K", "--iterations", "2")
    result = forked_smoke("gloo", *options, prepare=WAYS["slow in ignite"])
    assert result.code == 0 and "algbw GB/s" in result.out
    assert f"slowest: rank 1 on {os.uname().nodename}, " in result.out and "rank   0 on" in result.out


def test_without_the_flag_nothing_is_timed():
    report = forked_smoke("gloo", "--only", "initialize", "--format", "json").report
    assert all("workload" not in run and "workload" not in {c["id"] for c in run["checks"]} for run in report["runs"])


def test_under_torchrun_rank_0_reports_it():
    prefix = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2")
    options = ("--only", "initialize", "--payload", "64K", "--iterations", "3")
    found = workload_of(fresh_smoke(*options, "--format", "json", prefix=prefix))
    assert len(found["rows"]) == 9 and set(found["ranks"]) == {"0", "1"}


@pytest.mark.parametrize(
    "argv, says",
    [
        (["--payload", "1X"], "--payload 1X: a size from 1K to 1G is needed"),
        (["--payload", ""], "--payload : a size"),
        (["--payload=-1M"], "a size from 1K to 1G"),
        (["--payload", "12"], "a size from 1K to 1G"),
        (["--payload", "2G"], "a size from 1K to 1G"),
        (["--iterations", "3"], "--iterations goes with --payload SIZE"),
        (["--payload", "1M", "--iterations", "0"], "--iterations 0: a number from 1"),
        (["--payload", "1M", "--iterations", "x"], "--iterations"),
    ],
)
def test_a_wrong_size_or_number_is_a_usage_error_that_says_what_is_needed(argv, says):
    result = forked_smoke("gloo", *argv)
    assert result.code == 2 and says in result.err and len(result.err.strip().splitlines()) == 1


@pytest.mark.parametrize("text, size", [("1024", 1024), ("64K", 65536), ("1m", 1 << 20), ("1G", 1 << 30)])
def test_sizes_are_powers_of_1024(text, size):
    assert smoke_module().bytes_of(text) == size
