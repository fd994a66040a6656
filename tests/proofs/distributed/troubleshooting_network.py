"""Proofs: ports and network."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from datetime import timedelta

import ignite.distributed as idist
import pytest
import torch.distributed as dist
from ignite.distributed.comp_models import native
from support.launchers import missing, two_hosts
from support.world import run_serial, run_world, values
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler
from torch.distributed.elastic.rendezvous.static_tcp_rendezvous import StaticTCPRendezvous
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from torch.distributed.run import main as torchrun
from torch.distributed.run import parse_args

from .troubleshooting_tools import (
    evaluate,
    free_port,
    group_timeout,
    notebook,
    plain_folder,
    python_c,
    raised,
    shell,
    standing,
    symptom,
    waited,
)

SECOND = timedelta(seconds=1)
NEW_HOST_NAME = 0x04000000  # CLONE_NEWUTS


class Stop(Exception):
    """Ends a program at the point that matters."""


def default_ports() -> tuple[int, int]:
    """The rendezvous ports of idist.spawn and of a single process, as Ignite would use them; none is opened."""

    def spawned():
        native.mp.start_processes = lambda function, nprocs, args, **kwargs: print(args[8])
        idist.spawn("gloo", print, ())

    def single():
        def init_process_group(*args, **kwargs):
            raise Stop(os.environ["MASTER_PORT"])

        native.dist.init_process_group = init_process_group
        idist.initialize("gloo")

    return int(run_serial(spawned).output), int(raised(run_serial(single), "Stop"))


@symptom("the-server-socket-has-failed-to-listen-on-any-local-network-address--eaddrinuse")
def port_in_use(entry):
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        out = run_serial(lambda: idist.initialize("gloo"), env={"MASTER_PORT": str(port)})
        entry.heading(raised(out, "DistNetworkError"))
        out = run_serial(lambda: (notebook(port), idist.spawn("gloo", print, ())))
        entry.heading(raised(out, "ProcessRaisedException"))
        entry.says(f"Under idist.spawn the text stands inside {out.error}.")
        spawn_port, single_port = default_ports()
        entry.says(f"idist.spawn uses {spawn_port}, a single process without a launcher {single_port}.")
        check = f"ss -ltnp | grep :{spawn_port}"
        if shutil.which("ss"):
            assert "LISTEN" in shell(check.replace(str(spawn_port), str(port)))
        entry.says(check)
        own = run_serial(lambda: idist.initialize("gloo"), env={"MASTER_PORT": str(free_port())})
        spawned = run_serial(
            lambda: (notebook(port), idist.spawn("gloo", lambda local_rank: None, (), master_port=free_port()))
        )
        values([own, spawned])
    option = "--standalone"
    assert parse_args([option, "train.py"]).standalone
    entry.says(f"MASTER_PORT, or master_port= beside nproc_per_node=; with torchrun {option}.")
    entry.says("another job, or a dead one's leftover, holds the rendezvous port:")
    entry.says("a port of your own:", "two jobs run side by side")


@symptom("the-client-socket-has-timed-out-after-ms-while-trying-to-connect-to-")
def nobody_listens(entry):
    port = free_port()
    env = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    out = run_serial(lambda: idist.initialize("gloo", timeout=SECOND), env=env)
    entry.heading(raised(out, "DistNetworkError"))
    entry.says("nobody listens at that address: rank 0 is not up, is on another host, or MASTER_ADDR or MASTER_PORT "
               "differ between ranks; or a firewall is between.")
    unknown = env | {"MASTER_ADDR": "no-such-host.invalid"}
    entry.heading(raised(run_serial(lambda: idist.initialize("gloo", timeout=SECOND), env=unknown), "DistNetworkError"))
    entry.says("under SLURM a node name that does not resolve ends here too")
    code = "import os, socket; socket.create_connection((os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])), 3)"
    assert run_serial(lambda: exec(code), env=env).error == "ConnectionRefusedError"
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", port))
        listening.listen()
        assert python_c(code, env=env).count("\n") == 0
    entry.says(f'from this host, while rank 0 waits: python -c "{code}".')
    entry.says(
        "nobody listens at that address: rank 0 is not up", "the address of rank 0's host, as all hosts reach it"
    )
    values(run_world(2, lambda r: idist.initialize("gloo"), init=None))
    entry.says("the check prints nothing, and the group comes up")
    entry.says("as all hosts reach it, on every rank;")


@symptom("timed-out-after--seconds-waiting-for-clients--clients-joined")
def ranks_missing(entry):
    env = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_PORT": str(free_port())}
    out = run_serial(lambda: idist.initialize("gloo", timeout=SECOND), env=env)
    entry.heading(raised(out, "DistStoreError"))
    agent = run_world(2, lambda r: None if r else idist.initialize("gloo", timeout=SECOND), init=None)[0]
    entry.quotes(raised(agent, "DistStoreError"))
    assert agent.message.startswith("wait timeout after")
    entry.says("rank 0's side of the same: fewer processes arrived than WORLD_SIZE says.")
    entry.says("Under torchrun it reads wait timeout after …ms, keys: ….", "start as many as WORLD_SIZE, or correct it")
    fix = "timeout=timedelta(minutes=10)"

    def late(rank):
        time.sleep(0.3 * rank)
        evaluate(f"idist.initialize('gloo', {fix})")
        idist.barrier()

    values(run_world(2, late, init=None))
    entry.says(f"{fix} only if a rank really starts late", "all ranks pass idist.barrier()")
    entry.says("count the started processes, and look in the logs of the others for their own first error")


@symptom("gloo-connectfullmesh-failed-with-")
def gloo_on_loopback(entry):
    if reason := missing("two_hosts"):
        pytest.skip(reason)

    def on_hosts(hosts, folder, cards):
        def program(rank):
            hosts.enter(rank)
            os.environ["GLOO_SOCKET_IFNAME"] = cards[rank]
            idist.initialize("gloo", init_method=f"file://{folder}/{cards[0]}", timeout=2 * SECOND)
            total = idist.all_reduce(1)
            idist.finalize()
            return total

        return run_world(2, program, init=None, limit=3)

    with two_hosts(named=False) as hosts, plain_folder() as folder:
        outcomes = on_hosts(hosts, folder, ["lo", "lo"])  # what a host name on loopback leads to
        failed = [out for out in outcomes if out.error]
        assert failed and all(out.error or out.hung for out in outcomes)
        entry.says("One side can hang while the other fails.")
        for out in failed:
            entry.heading(raised(out, "RuntimeError"))
        loopback = "remote=[127.0.0.1]"
        assert any(loopback in out.message for out in failed)
        entry.says(f"{loopback} in the text")
        entry.says("Otherwise on some host the host name resolves to 127.0.0.1")
        entry.says("or to a card that the others cannot reach")
        cards = [hosts.interface(host) for host in range(2)]
        fixed = on_hosts(hosts, folder, cards)
        assert values(fixed) == [2, 2]

        def listed():
            hosts.enter(0)
            return shell("ip -br addr")

        assert cards[0] in values([run_serial(listed)])[0]
    fix = "export GLOO_SOCKET_IFNAME=eth0"
    seen = shell(f"{fix}; {sys.executable} -c 'import os; print(os.environ[\"GLOO_SOCKET_IFNAME\"])'")
    assert fix.endswith(f"={seen}") and seen
    entry.says(f"as ip -br addr lists it: {fix} before torchrun or srun; or correct /etc/hosts.")
    code = "import socket; print(socket.gethostbyname(socket.gethostname()))"
    python_c(code)
    entry.says(f'python -c "{code}" on each host')

    def unnamed():
        assert ctypes.CDLL(None).unshare(NEW_HOST_NAME) == 0
        socket.sethostname("no-such-host.invalid")
        idist.initialize("gloo")

    out = run_serial(unnamed, env={"MASTER_PORT": str(free_port())})
    values([out])
    warning = "Unable to resolve hostname to a (local) address. Using the loopback address as fallback."
    assert warning in out.output, out.output
    entry.says(f"Gloo may warn {warning}")

    def groups(rank):
        made = []
        new_group = native.dist.new_group
        native.dist.new_group = lambda **kwargs: made.append(kwargs["backend"]) or new_group(**kwargs)
        idist.get_rank()
        return made

    assert values(run_world(2, groups, init="torch")) == [["gloo"], ["gloo"]]
    entry.says("With nccl it comes as well, because Ignite opens a gloo group to count processes per node.")
    entry.says("idist.all_reduce(1) is the world size")
    entry.says("the ranks found the store but not each other.", "and gloo listens there.")
    entry.says("on each host the name of the card that reaches the others, as ip")


RESTARTS = "TORCHELASTIC_RESTART_COUNT"


def share(rank):
    idist.initialize("gloo", timeout=2 * SECOND)
    total = idist.all_reduce(1)
    idist.finalize()
    return total


def refused_after_a_restart() -> str:
    """What a rank says that is started a second time by an agent whose store outlives its ranks, as torchrun's does,
    and asks before its peer has written its new address. Which of two ranks connects, gloo decides by their ports:
    with an old one it is chance, so that it is told again until it is this one. Another process of this machine may
    have got the port that the peer left, and closes the connection: then nothing is refused, and it is told again, too.
    """

    def late(rank):
        time.sleep(1 - rank)
        return share(rank)

    for _ in range(24):
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        env = {"TORCHELASTIC_USE_AGENT_STORE": "True", "MASTER_PORT": str(store.port)}
        assert values(run_world(2, share, init=None, env=env | {RESTARTS: "0"})) == [2, 2]
        early = run_world(2, late, init=None, env=env | {RESTARTS: "1"}, limit=6)[1]
        if early.error and "by peer" not in early.message:
            break
    return raised(early, "RuntimeError")


@symptom("gloo-connectfullmesh-failed-with-")
def gloo_after_a_restart(entry):
    entry.heading(refused_after_a_restart())
    entry.says("If torchrun has started them again: Restarted ranks do not find each other.")


@symptom("restarted-ranks-do-not-find-each-other")
def addresses_of_the_attempt_before(entry):
    restarts, first = RESTARTS, "0"
    text, refused = "Gloo connectFullMesh failed with", refused_after_a_restart()
    assert refused.startswith(text) and "Connection refused" in refused
    entry.says("with the addresses of the ranks that ended:")
    entry.says("who asks before its peer has written anew gets an old one,")
    entry.says(f"and ends with {text} … (Connection refused).")
    entry.says(f"Check {restarts} in a rank's environment is above {first}.")
    fix = "export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"
    name, value = fix.removeprefix("export ").split("=")
    for handler, own in ((DynamicRendezvousHandler, True), (StaticTCPRendezvous, False)):
        shared = handler.use_agent_store.fget
        assert values([run_serial(lambda: shared(None), unset=(name,))]) == [True]  # noqa: B023
        assert values([run_serial(lambda: shared(None), env={name: value})]) == [not own]  # noqa: B023
    options = parse_args(["--rdzv_backend=c10d", "--standalone", "--master_addr=host0", "job.py"])
    assert (options.rdzv_backend, options.standalone, options.master_addr) == ("c10d", True, "host0")
    entry.says(f"--standalone or --rdzv_backend=c10d, and {fix} before torchrun")
    entry.says("With --master_addr that changes nothing.")
    entry.says("Mend what ended the first attempt, too.")

    def found_in_the_store():
        """In the first attempt leave a mark and die; in the second say whether it is still there."""
        store, rank, _ = next(dist.rendezvous("env://"))
        if os.environ[restarts] == first:
            store.set("mark", str(rank))
            store.get("mark")
            os.kill(os.getpid(), signal.SIGKILL)
        seen = store.check(["mark"])
        store.set(f"seen by {rank}", "")
        store.wait(["seen by 0", "seen by 1"])
        if rank == 0:  # which may keep the store
            store.wait(["left by 1"])
        store.set(f"left by {rank}", "")
        return seen

    def killed_once():
        if os.environ["RANK"] == "1" and os.environ[restarts] == first:
            idist.initialize("gloo")
            os.kill(os.getpid(), signal.SIGKILL)
        return share(int(os.environ["RANK"]))

    def launched(work):
        with tempfile.TemporaryDirectory() as folder:
            config = LaunchConfig(
                min_nodes=1, max_nodes=1, nproc_per_node=2, run_id="again", rdzv_backend="c10d",
                rdzv_endpoint="localhost:0", max_restarts=1, monitor_interval=0.1, start_method="fork",
                logs_specs=DefaultLogsSpecs(log_dir=folder),
            )  # fmt: skip
            return elastic_launch(config, work)()

    assert values([run_serial(lambda: launched(found_in_the_store), unset=(name,))]) == [{0: True, 1: True}]
    assert values([run_serial(lambda: launched(found_in_the_store), env={name: value})]) == [{0: False, 1: False}]
    assert parse_args(["--max-restarts=2", "job.py"]).max_restarts == 2
    entry.says("torchrun with --max-restarts keeps one store for all attempts,")
    entry.says("with it the ranks of each attempt make a store of their own.")
    assert values([run_serial(lambda: launched(killed_once), env={name: value})]) == [{0: 2, 1: 2}]
    entry.says("Proof with one rank killed once, the second attempt runs to its end.")


@symptom("unable-to-find-address-for-")
def card_unknown(entry):
    env = {"GLOO_SOCKET_IFNAME": "nope0", "MASTER_PORT": str(free_port())}
    entry.heading(raised(run_serial(lambda: idist.initialize("gloo"), env=env), "RuntimeError"))
    values([run_serial(lambda: idist.initialize("gloo"), env=env, unset=("GLOO_SOCKET_IFNAME",))])
    entry.says("GLOO_SOCKET_IFNAME names a card that this host does not have; names differ between hosts.",
               "ip -br addr.")
    if shutil.which("ip"):
        assert "nope0" not in shell("ip -br addr") and shell("ip -br addr")
    entry.says("set it per host, or unset it on one host. Proof the group comes up")


@symptom("the-connection-to-the-c10d-store-has-failed-see-inner-exception-for-details")
def c10d_unreachable(entry):
    from torch.distributed.elastic.rendezvous import RendezvousParameters
    from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend

    parameters = ("c10d", f"127.0.0.1:{free_port()}", "id", 1, 2)
    out = run_serial(lambda: create_backend(RendezvousParameters(*parameters, is_host="0", read_timeout=1)))
    entry.heading(raised(out, "RendezvousConnectionError"))
    entry.says("or no node takes that name for its own.")
    values(
        [run_serial(lambda: create_backend(RendezvousParameters(*parameters, is_host="1", read_timeout=1)) and None)]
    )
    words = "--rdzv_backend=c10d --rdzv_endpoint=10.0.0.1:29500 --rdzv_id=a --rdzv_conf=is_host=1"
    static = "--node_rank=0 --master_addr=10.0.0.1 --master_port=29500"
    parsed = parse_args([*words.split(), *static.split(), "train.py"])
    assert parsed.rdzv_backend == "c10d" and parsed.rdzv_conf == "is_host=1" and parsed.node_rank == 0
    entry.says("torchrun's --rdzv_backend=c10d cannot reach --rdzv_endpoint", "and the same --rdzv_id everywhere")
    entry.says(
        "the endpoint from each node, and that node 0 owns the address.", "an address of node 0 that all nodes reach"
    )
    entry.not_verified(
        "if node 0 does not recognise itself, --rdzv_conf is_host=1 there and is_host=0 elsewhere (not verified here: "
        "torch/distributed/elastic/rendezvous)",
        "torch/distributed/elastic/rendezvous/c10d_rendezvous_backend.py (one host only was run)",
    )
    entry.says("or static rendezvous with --node_rank, --master_addr, --master_port")
    with tempfile.TemporaryDirectory() as folder:
        reached = f"--rdzv_backend=c10d --rdzv_endpoint=127.0.0.1:{free_port()} --rdzv_id=a --nproc_per_node=1"
        values([run_serial(lambda: torchrun([*reached.split(), "--no-python", "touch", f"{folder}/started"]))])
        assert os.listdir(folder) == ["started"]
    entry.says("torchrun starts the workers")


@symptom("connection-closed-by-peer")
def peer_gone(entry):
    def leaves(rank):
        if rank:
            raise Stop("first error")
        idist.all_reduce(1)

    def killed(rank):
        if rank:
            os.kill(os.getpid(), signal.SIGKILL)
        idist.all_reduce(1)

    said = set()
    for program in (leaves, killed):
        victim, guilty = run_world(2, program)
        message = raised(victim, "RuntimeError")
        said.add("closed" if "closed" in message else "reset")
        entry.heading(message.replace("Connection reset by peer", "Connection closed by peer"))
        assert not guilty.ok
    assert said <= {"closed", "reset"}
    assert "first error" in str(run_world(2, leaves)[1].message)
    assert values(run_world(2, lambda rank: idist.all_reduce(1))) == [2, 2]  # the first error taken away, both end
    entry.says("Fix what the first rank died of. Proof no rank ends before the others.")
    entry.says("Connection reset by peer is the same. This rank is a victim.")
    entry.says(f"an exit code {guilty.exit_code} and no traceback points at the kernel's memory killer (dmesg)")
    assert guilty.exit_code == -signal.SIGKILL
    entry.says(
        "another rank is gone: it raised, was killed (out of memory) or left early.",
        "the other ranks for an earlier error",
    )


@symptom("timed-out-waiting-ms-for-recv-operation-to-complete")
def peer_frozen(entry):
    outcomes = standing(lambda r: r or idist.all_reduce(1))
    waited(outcomes[0], "all_reduce")
    entry.heading(outcomes[0].message)
    assert outcomes[1].ok and "Timed out" not in outcomes[1].output  # the one that did not come is silent
    entry.says("the stack of the rank that does not report this")
    assert values(standing(lambda r: idist.all_reduce(1))) == [2, 2]
    entry.says("the ranks end together")
    sending = standing(lambda r: idist.all_reduce(1) if r else None)[1]
    waited(sending, "all_reduce")
    assert "for send operation to complete" in sending.message

    def goes_on(rank):
        if rank == 0:
            try:
                idist.all_reduce(1)
            except RuntimeError:
                idist.all_reduce(1)

    second = raised(standing(goes_on)[0], "RuntimeError")
    entry.says("seen from the sending side it is for send operation to complete")
    entry.says(f"and in the next collective after one {second}.")
    default = values(run_world(1, lambda r: (idist.initialize("gloo"), group_timeout())[1], init=None))[0]
    entry.says(f"within the group's timeout ({default.seconds // 60} minutes unless you gave one)")
    fix = 'idist.initialize("gloo", timeout=timedelta(hours=1))'
    given = values(run_world(1, lambda r: (evaluate(fix), group_timeout())[1], init=None))[0]
    assert given == timedelta(hours=1)
    entry.says(f"{fix} only if the wait is legitimate")
    assert dist.distributed_c10d.default_pg_timeout == default
    entry.says("a rank is alive but did not come to this collective within the group's timeout")
    entry.says("Frozen, slow, or elsewhere in the program:", "then go on with It hangs.")
    entry.says("let every rank make the same collectives in the same order")
