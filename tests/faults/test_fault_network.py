"""Promise: where the network or a name is at fault the report says what, on which rank and host, and the command that
mends it, within the deadline; a fault that passes is survived.

Most hosts here are network namespaces, and most ranks forks of the test process that move into one.
"""

import os
import subprocess
import sys
import time

import ignite.distributed as idist
import pytest
from support import launchers
from support.smoke import SCRIPT, faulty_smoke, faulty_smokes, finding_of, result_of, smoke_module

JSON = ["--format", "json"]


def needs(tool):
    return pytest.mark.skipif(launchers.missing(tool) is not None, reason=str(launchers.missing(tool)))


def rank(number, size, port, address="127.0.0.1", local_rank=None):
    """The environment of a rank that no torchrun started."""
    local_rank = number if local_rank is None else local_rank
    return {
        "RANK": str(number),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(local_rank),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
    }


def on_two_hosts(hosts, *argv, prepare=lambda host: None, variables=lambda host: {}):
    """Jobs of a world with one rank on each host."""

    def job(host):
        def on_host():
            hosts.enter(host)
            prepare(host)

        env = {**rank(host, 2, 29500, hosts.address(0), 0), **variables(host)}
        return {"argv": [*argv, *JSON], "env": env, "prepare": on_host}

    return [job(0), job(1)]


@needs("two_hosts")
def test_two_hosts_without_a_fault_pass():
    with launchers.two_hosts() as hosts:
        first, second = faulty_smokes(*on_two_hosts(hosts), within=100)
    assert (first.code, second.code, second.out) == (0, 0, ""), first.out + second.err
    assert first.report["runs"][0]["hosts"] == {"0": "host0", "1": "host1"} and first.report["diagnosis"] == []


def touching(flag, seconds):
    """For `prepare`: all_gather of rank 1 first shows that it was reached, then takes its time."""

    def prepare(host):
        original = idist.all_gather

        def all_gather(*args, **kwargs):
            if host == 1 and not flag.exists():
                flag.touch()
                time.sleep(seconds)
            return original(*args, **kwargs)

        idist.all_gather = all_gather

    return prepare


def when(flag, smokes):
    while not flag.exists():
        assert not smokes[0].done(), smokes[0].finish()
        time.sleep(0.01)


@needs("two_hosts")
def test_a_cable_that_is_pulled_out(tmp_path):
    """Packets are lost without a word, so only the deadline ends it; the other host's supervisor gives up by itself."""
    with launchers.two_hosts() as hosts:

        def act(smokes):
            when(tmp_path / "flag", smokes)
            hosts.cable(plugged=False)

        options = ("--only", "all_gather", "--timeout", "15")
        jobs = on_two_hosts(hosts, *options, prepare=touching(tmp_path / "flag", 1.0))
        first, second = faulty_smokes(*jobs, act=act, within=60)
    finding = finding_of(first)
    assert (first.code, finding["id"]) == (5, "host-lost"), first.out
    assert finding["text"].startswith("rank 1 on host1 cannot be reached since all_gather")
    assert finding["fix"].startswith(f"ping {hosts.address(1)};") and first.seconds < 15 + 10
    assert second.code != 0 and second.out == "" and "Traceback" not in second.err


@needs("two_hosts")
def test_a_cable_that_is_put_back_is_survived(tmp_path):
    with launchers.two_hosts() as hosts:

        def act(smokes):
            when(tmp_path / "flag", smokes)
            hosts.cable(plugged=False)
            time.sleep(2)
            hosts.cable(plugged=True)

        jobs = on_two_hosts(hosts, "--timeout", "90", prepare=touching(tmp_path / "flag", 1.0))
        first, second = faulty_smokes(*jobs, act=act, within=100)
    assert (first.code, second.code) == (0, 0), first.out + second.err


@needs("two_hosts")
def test_lost_packets_are_survived():
    with launchers.two_hosts() as hosts:
        lossy = ["tc", "-n", hosts.names[1], "qdisc", "add", "dev", hosts.interface(1), "root", "netem", "loss", "10%"]
        try:
            done = subprocess.run(lossy, capture_output=True, text=True, env={**os.environ, "PATH": launchers._PATH})
        except FileNotFoundError:
            pytest.skip("tc is not installed")
        if done.returncode:
            pytest.skip(f"this kernel cannot lose packets on purpose: {done.stderr.strip()}")
        first, second = faulty_smokes(*on_two_hosts(hosts), within=120)
    assert (first.code, second.code) == (0, 0), first.out + second.err


@needs("two_hosts")
def test_host_names_that_resolve_to_loopback_are_named_with_the_interface_to_use():
    port = launchers.free_port()
    with launchers.two_hosts(named=False) as hosts:

        def argv(i):
            where = dict(nodes=2, node_rank=i, master=hosts.address(0), port=port)
            return hosts.argv(i, launchers.torchrun_argv(2, str(SCRIPT), *JSON, "--timeout", "60", **where))

        first, _ = launchers.run_together([argv(0), argv(1)], timeout=150)
        cards = [hosts.interface(0), hosts.interface(1)]
    report = result_of(first).report
    (finding,) = report["diagnosis"]
    assert (finding["id"], report["exit_code"]) == ("loopback-name", 4), first.report()
    assert finding["fix"] == (
        f"on the host of rank 0, 1: export GLOO_SOCKET_IFNAME={cards[0]}; "
        f"on the host of rank 2, 3: export GLOO_SOCKET_IFNAME={cards[1]}"
    )
    assert finding["see"].endswith("#gloo-connectfullmesh-failed-with-")


@needs("two_hosts")
def test_a_loopback_name_takes_no_longer_than_gloo_takes_to_say_so():
    with launchers.two_hosts(named=False) as hosts:
        jobs = on_two_hosts(hosts, "--timeout", "60")
        first, _ = faulty_smokes(*jobs, within=80)
    assert finding_of(first)["id"] == "loopback-name" and first.seconds < 20, first.out


@needs("two_hosts")
def test_a_master_address_that_is_the_wrong_host():
    """Rank 0 runs on host0, and MASTER_ADDR is host1."""
    with launchers.two_hosts() as hosts:
        jobs = on_two_hosts(hosts, "--timeout", "12", variables=lambda host: {"MASTER_ADDR": hosts.address(1)})
        first, second = faulty_smokes(*jobs, within=12 + 10)
        address = hosts.address(0)
    finding = finding_of(first)
    assert (first.code, finding["id"]) == (4, "master-elsewhere") and first.seconds < 10
    assert finding["fix"] == f"export MASTER_ADDR={address}" and "host0" in finding["text"]
    assert second.code == 4 and "rank 1 on host1 cannot reach rank 0" in second.err


@pytest.mark.parametrize(
    "variables, cause, says",
    [
        ({"MASTER_ADDR": "no.such.host.invalid"}, "master-unresolvable", "MASTER_ADDR=no.such.host.invalid does not"),
        ({"MASTER_ADDR": "192.0.2.77"}, "master-elsewhere", "MASTER_ADDR=192.0.2.77 is no address of"),
        ({"GLOO_SOCKET_IFNAME": "nope0"}, "interface-missing", "GLOO_SOCKET_IFNAME=nope0, but this host has no"),
    ],
)
def test_a_name_that_is_wrong_is_known_before_any_peer_is_asked(variables, cause, says):
    result = faulty_smoke(env={**rank(0, 2, launchers.free_port()), **variables}, within=25)
    finding = finding_of(result)
    assert (result.code, finding["id"]) == (4, cause) and finding["text"].startswith(says) and finding["fix"]


def test_an_interface_that_is_missing_in_a_plain_run():
    result = faulty_smoke(env={"GLOO_SOCKET_IFNAME": "nope0"}, within=25)
    finding = finding_of(result)
    assert (result.code, finding["id"]) == (4, "interface-missing") and finding["fix"]
    assert finding["text"].startswith("GLOO_SOCKET_IFNAME=nope0, but this host has no")


@needs("two_hosts")
def test_an_interface_that_is_down():
    with launchers.two_hosts() as hosts:
        card = hosts.interface(1)

        def prepare():
            hosts.enter(1)
            hosts.cable(plugged=False)

        result = faulty_smoke(env={"GLOO_SOCKET_IFNAME": card}, prepare=prepare, within=25)
    finding = finding_of(result)
    assert (result.code, finding["id"], finding["fix"]) == (4, "interface-down", f"ip link set {card} up")


def test_a_peer_that_never_comes():
    result = faulty_smoke("--timeout", "6", env=rank(0, 2, launchers.free_port()), within=6 + 5)
    finding = finding_of(result)
    assert (result.code, finding["id"]) == (4, "missing-peer") and finding["text"] == "rank 1 of 2 never came"


def test_a_rank_0_that_never_comes():
    result = faulty_smoke("--timeout", "6", env=rank(1, 2, launchers.free_port()), within=6 + 5)
    assert result.code == 4 and result.out == "" and "rank 1 on " in result.err and "cannot reach rank 0" in result.err


LISTEN = """
import socket, sys
s = socket.socket()
s.bind(("0.0.0.0", int(sys.argv[1])))
s.listen()
print(s.getsockname()[1], flush=True)
sys.stdin.read()
"""


def thief(port=0):
    """A process of its own that holds a port: forks of this process would hold its sockets too."""
    argv = [sys.executable, "-S", "-c", LISTEN, str(port)]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_a_port_stolen_between_choice_and_bind_is_named_with_its_holder():
    chosen = launchers.free_port()
    with thief(chosen) as holder:
        assert int(holder.stdout.readline()) == chosen
        result = faulty_smoke("--timeout", "20", env=rank(0, 2, chosen), within=20)
        holder.stdin.close()
    finding = finding_of(result)
    assert (result.code, finding["id"]) == (4, "port-taken")
    assert f"held by pid {holder.pid}: {sys.executable} -S -c" in " ".join(finding["evidence"]), finding
    assert finding["fix"].startswith("export MASTER_PORT=") and str(chosen) not in finding["fix"]


def test_a_plain_run_leaves_no_time_between_choice_and_bind():
    """The kernel chooses as it binds, and the bound socket is handed on."""

    def prepare():
        def chosen():
            raise AssertionError("a port was chosen without being bound")

        smoke_module().free_port = chosen

    assert faulty_smoke("gloo", prepare=prepare).code == 0


def test_the_default_ports_taken_are_no_failure():
    holders = [thief(port) for port in (15000, 2222, 29500)]
    try:
        for holder in holders:
            holder.stdout.readline()  # nothing, where somebody else has it: taken all the same
        assert faulty_smoke().code == 0
    finally:
        for holder in holders:
            holder.communicate()


def test_two_jobs_that_meet_at_one_port():
    """The second job's rank 0 finds the port taken, its rank 1 finds rank 1 there already."""
    port = launchers.free_port()
    one = [{"argv": ["--timeout", "40", "--only", "barrier", *JSON], "env": rank(r, 2, port)} for r in (0, 1, 1)]

    def slow_down():
        time.sleep(2)  # the first job is up by then, and waits

    one[2]["prepare"] = slow_down
    one[0]["prepare"] = one[1]["prepare"] = hold_barrier
    first, _, third = faulty_smokes(*one, within=60)
    assert third.code == 4 and f"two launchers, or two jobs, meet at 127.0.0.1:{port}: rank 1 came twice" in third.err
    assert first.code in (0, 4)


def hold_barrier():
    original = idist.barrier

    def barrier():
        time.sleep(3)
        original()

    idist.barrier = barrier


