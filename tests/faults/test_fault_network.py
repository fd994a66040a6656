"""Promise: where the network or a name is at fault the report says what, on which rank and host, and the command that
mends it, within the deadline; a fault that passes is survived.

Most hosts here are network namespaces, and most ranks forks of the test process that move into one.
"""

import ctypes
import os
import subprocess
import sys
import time

import ignite.distributed as idist
import pytest
from support import launchers
from support.smoke import OVER, SCRIPT, faulty_smoke, faulty_smokes, finding_of, result_of, smoke_module

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
    assert first.seconds < 15 + OVER and second.seconds < 15 + OVER
    finding = finding_of(second)
    assert (second.report["rank"], second.report["host"], finding["id"]) == (1, "host1", "rank-0-lost")
    assert finding["text"].startswith("rank 0 on host0 is gone: it was killed, or its host or the network to it broke")
    assert finding["fix"].startswith(f"ping {hosts.address(0)};") and "Traceback" not in second.err


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
    assert "the reason stands in what rank 1 itself printed" in " ".join(finding["evidence"])
    assert "MASTER_ADDR=127.0.0.1 is loopback" in finding["evidence"][-1] and "export MASTER_ADDR=" in finding["fix"]


def test_a_rank_0_that_never_comes():
    """The rank that waited for it has nobody to tell, so it reports itself."""
    port = launchers.free_port()
    result = faulty_smoke("--timeout", "6", env=rank(1, 2, port), within=6 + OVER)
    finding = finding_of(result)
    assert (result.code, result.report["rank"], finding["id"]) == (4, 1, "no-rendezvous")
    assert f"cannot reach rank 0 at 127.0.0.1:{port}: refused" in finding["text"] and finding["text"] in result.err
    assert finding["fix"].startswith(f"ss -ltnp 'sport = :{port}'") and finding["see"]


@needs("two_hosts")
@pytest.mark.parametrize(
    "address, why, fix",
    [
        ("localhost", "that address is this host's own", "export MASTER_ADDR="),
        ("10.77.0.9", "no host answers at that address", "ping 10.77.0.9; export MASTER_ADDR="),
        ("10.88.0.1", "there is no route to it from here", "ip route get 10.88.0.1;"),
        ("10.77.0.1", "there is no route to it from here", "ip route get 10.77.0.1;"),
        ("no.such.host.invalid", "does not resolve", "export MASTER_ADDR="),
    ],
)
def test_a_rank_that_cannot_reach_rank_0_says_why(address, why, fix):
    """Where no packet can leave, or no name is known, at once."""
    with launchers.two_hosts() as hosts:
        if address == hosts.address(0):
            hole = ["ip", "-n", hosts.names[1], "route", "add", "blackhole", f"{address}/32"]
            subprocess.run(hole, check=True, env={**os.environ, "PATH": launchers._PATH})
        job = on_two_hosts(hosts, "--timeout", "7", variables=lambda host: {"MASTER_ADDR": address})[1]
        (result,) = faulty_smokes(job, within=7 + OVER)
    finding = finding_of(result)
    assert (result.code, result.report["rank"]) == (4, 1) and why in finding["text"], finding
    assert address in finding["text"] and "host1" in finding["text"] and finding["fix"].startswith(fix)
    assert any("cable1" in e and hosts.address(1) in e for e in finding["evidence"]) and finding["see"]
    if "no route" in why:
        assert result.seconds < 7


@needs("two_hosts")
def test_what_keeps_a_rank_out_is_told_to_rank_0_which_does_not_wait_for_it():
    with launchers.two_hosts() as hosts:
        wrong = {"GLOO_SOCKET_IFNAME": hosts.interface(0)}  # on both hosts the name that is right on one
        first, second = faulty_smokes(*on_two_hosts(hosts, "--timeout", "30", variables=lambda host: wrong), within=15)
    finding = finding_of(first)
    assert (first.code, second.code, finding["id"]) == (4, 4, "interface-missing")
    assert finding["text"].startswith("rank 1 on host1: GLOO_SOCKET_IFNAME=cable0, but this host has no interface")
    assert finding["fix"].endswith("export GLOO_SOCKET_IFNAME=cable1") and finding["see"]
    assert second.out == "" and "cause: GLOO_SOCKET_IFNAME=cable0" in second.err and finding["fix"] in second.err


@needs("two_hosts")
@pytest.mark.parametrize(
    "name, addresses, why",
    [
        ("lo", None, "which is loopback"),
        ("bridge0", ["172.17.0.1/16", "172.17.0.1/16"], "which another host has as well"),
        ("bridge0", ["172.18.0.5/24", "172.19.0.6/24"], "and packets to MASTER_ADDR leave through cable0"),
    ],
)
def test_gloo_on_an_interface_that_the_other_host_does_not_reach(name, addresses, why):
    with launchers.two_hosts() as hosts:
        for host, address in enumerate(addresses or ()):
            ip = ["ip", "-n", hosts.names[host]]
            for command in (
                ["link", "add", name, "type", "veth", "peer", "name", "end0"],
                ["addr", "add", address, "dev", name],
                ["link", "set", name, "up"],
                ["link", "set", "end0", "up"],
            ):
                subprocess.run([*ip, *command], check=True, env={**os.environ, "PATH": launchers._PATH})
        jobs = on_two_hosts(hosts, "--timeout", "40", variables=lambda host: {"GLOO_SOCKET_IFNAME": name})
        first, _ = faulty_smokes(*jobs, within=40 + OVER)
    finding = finding_of(first)
    assert (first.code, finding["id"]) == (4, "gloo-interface") and why in finding["evidence"][0], finding
    assert finding["fix"] == (
        "on the host of rank 0: export GLOO_SOCKET_IFNAME=cable0; on the host of rank 1: export "
        "GLOO_SOCKET_IFNAME=cable1"
    )


def unshared_network(*commands):
    """For `prepare`: a network of its own, as it comes (its loopback is down), then these arguments of ip."""

    def prepare():
        launchers._check(ctypes.CDLL(None, use_errno=True).unshare(launchers._NEWNET), "unshare")
        for command in commands:
            subprocess.run(["ip", *command], check=True, env={**os.environ, "PATH": launchers._PATH})

    return prepare


@needs("two_hosts")
@pytest.mark.parametrize(
    "commands, why, fix",
    [
        ([], "lo is down", "ip link set lo up"),
        (
            [["link", "set", "lo", "up"], ["addr", "del", "127.0.0.1/8", "dev", "lo"]],
            "lo has no such address, only IPv6",
            "ip addr add 127.0.0.1/8 dev lo",
        ),
    ],
    ids=["down", "only IPv6"],
)
def test_a_loopback_that_cannot_be_used_is_known_at_once(commands, why, fix):
    result = faulty_smoke("gloo", prepare=unshared_network(*commands), within=20)
    finding = finding_of(result)
    assert (result.code, finding["id"], finding["fix"]) == (4, "no-loopback", fix)
    assert finding["text"].endswith(f"cannot meet at 127.0.0.1: {why}")


def test_a_port_that_another_program_holds_is_told_by_the_other_ranks_too_within_the_deadline():
    with thief() as holder:
        port = int(holder.stdout.readline())
        result = faulty_smoke("--timeout", "5", env=rank(1, 2, port), within=5 + OVER)
        holder.stdin.close()
    finding = finding_of(result)
    assert (result.code, finding["id"]) in ((4, "no-rendezvous"), (5, "no-rendezvous"))
    assert f"gets no answer from the store at 127.0.0.1:{port}" in finding["text"]
    assert f"held by pid {holder.pid}" in finding["evidence"][0] and "frame #" not in result.err
    assert finding["fix"].startswith("export MASTER_PORT=")


def test_the_store_of_another_job_is_told_apart_from_that_of_this_world():
    store = smoke_module().loopback_store(30)
    result = faulty_smoke("--timeout", "5", env=rank(1, 2, store.port), within=5 + OVER)
    finding = finding_of(result)
    assert (result.code, finding["id"]) == (4, "port-taken") and "rank 0 never came there" in finding["text"]
    assert f"held by pid {os.getpid()}" in finding["evidence"][0]


def test_a_holder_of_the_port_that_is_not_seen_from_here_is_not_called_another_user():
    with thief() as holder:
        port = int(holder.stdout.readline())
        inside = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", WHO, str(SCRIPT), str(port)]
        done = subprocess.run(inside, capture_output=True, text=True, timeout=60)
        holder.stdin.close()
    if done.returncode:
        pytest.skip(f"no namespace of processes can be made here: {done.stderr.strip()[-200:]}")
    assert done.stdout.strip() == (
        f"port {port} is held by this user, whose process is not visible here (in another container), or has just ended"
    )


WHO = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("distributed_smoke", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
print(*module.who_listens(int(sys.argv[2])))
"""


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


