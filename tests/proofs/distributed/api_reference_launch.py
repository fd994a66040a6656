"""Proofs of api-reference.md: Parallel, spawn, initialize, finalize."""

from __future__ import annotations

import builtins
import os
import re
import socket
import tempfile
import time
from datetime import timedelta
from unittest.mock import patch

import ignite.distributed as idist
import torch
import torch.distributed as dist
from support.world import run_serial, values

from .api_reference import LAUNCH, at, environment, error, run_world, serial, written


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def first_lines(text: str) -> str:
    return re.sub(r" at 0x\w+", " at …", text.split("\n")[0])


class Stop(Exception):
    """Raised instead of the rendezvous, so that a default port need not be free."""


@at("Parallel")
def parallel(entry):
    def spawning():
        with idist.Parallel("gloo", nproc_per_node=2) as p:
            return idist.get_world_size(), p._spawn_params

    world, params = serial(spawning)
    assert world == 1 and params == {"nproc_per_node": 2, "nnodes": 1, "node_rank": 0}
    entry.says("With `nproc_per_node`: `run` starts that many processes with `spawn`; the block itself stays serial.")

    def joining(rank):
        before = dict(os.environ)
        inside = []
        try:
            with idist.Parallel("gloo"):
                inside.append((idist.get_world_size(), dist.is_initialized()))
                raise KeyError
        except KeyError:
            return inside[0], dist.is_initialized(), dict(os.environ) == before

    assert values(run_world(2, joining, init=None)) == [((2, True), False, True)] * 2
    entry.says("Without it: `initialize` on entering, `finalize` on leaving, after an exception too.")

    def dropped():
        with patch("ignite.distributed.utils.initialize", side_effect=Stop) as call:
            p = idist.Parallel(
                "gloo", nnodes=2, node_rank=0, master_addr="a", master_port=1, timeout=timedelta(1), foo=1
            )
            error(p.__enter__)
        return p._spawn_params, call.call_args.args, call.call_args.kwargs

    params, args, kwargs = serial(dropped)
    assert params is None and args == ("gloo",) and kwargs == {"init_method": None}
    entry.says(
        "Then only `backend` and `init_method` are used: `nnodes`, `node_rank`, `master_addr`, `master_port` and every "
        "`spawn_kwargs` (`timeout` among them) are dropped without a word; call `initialize` yourself to set a timeout."
    )

    def without_backend():
        seen = []
        with idist.Parallel() as p:
            p.run(lambda local_rank: seen.append((local_rank, idist.get_world_size(), environment())))
        return seen[0]

    launched = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}
    local_rank, world, env = values([run_serial(without_backend, env=launched)])[0]
    assert env == launched
    entry.says(
        "`Parallel()`, without a backend, joins nothing, under a launcher too: each process runs as local rank"
        f" {local_rank} of a world of {world}."
    )
    calls = (
        "backend='foo'",
        "nproc_per_node=2",
        "backend='gloo', nproc_per_node=0",
        "backend='gloo', nproc_per_node=1, nnodes=0",
        "backend='gloo', nproc_per_node=1, nnodes=2",
        "backend='gloo', nproc_per_node=1, nnodes=2, node_rank=2",
        "backend='gloo', nproc_per_node=1, nnodes=2, node_rank=0",
        "backend='gloo', init_method='tcp://a:1'",
    )
    rows = [["arguments", "ValueError"]]
    for call in calls:
        text = serial(lambda: error(eval, f"idist.Parallel({call})"))
        text = re.sub(r"\('.*\)", "…", text)
        assert text.startswith("ValueError: ")
        rows.append([f"`{call}`", f"`{text.removeprefix('ValueError: ')}`"])
    entry.table(rows)
    entry.says("Changed in 0.5.5: `tcp://` is refused.")


@at("Parallel.run")
def run(entry):
    def seen():
        calls = []
        with idist.Parallel() as p:
            result = p.run(lambda *a, **k: calls.append((a, k)) or 7, "x", y=1)
        return calls[0], result

    call, result = serial(seen)
    assert call == ((0, "x"), {"y": 1})

    def spawned():
        with idist.Parallel("gloo", nproc_per_node=1, start_method="fork", master_port=free_port()) as p:
            return p.run(lambda local_rank: 7)

    assert serial(spawned) is result
    entry.says(
        f"Calls `func(local_rank, *args, **kwargs)`, here or in each spawned process. Returns `{result}`: what `func`"
        " returns is lost."
    )
    entry.says(f"Outside the `with` block: `{serial(lambda: error(idist.Parallel().run, print))}`.")
    entry.says("An exception in `func`: as it is without `nproc_per_node`; from a spawned process as in spawn.")

    def raising():
        with idist.Parallel() as p:
            return error(p.run, lambda local_rank: 1 / 0)

    assert serial(raising).startswith("ZeroDivisionError")


def captured_spawn(**kwargs):
    """What `spawn` hands to torch: (nprocs, args, keyword arguments)."""
    with patch("torch.multiprocessing.start_processes") as start:
        idist.spawn("gloo", print, args=(), **kwargs)
    (call,) = start.call_args_list
    options = dict(call.kwargs)
    return options.pop("nprocs"), options.pop("args"), options


@at("spawn")
def spawn(entry):
    nprocs, args, options = serial(captured_spawn)
    world, _, node_rank, address, port, init_method = args[4:10]
    assert world == nprocs == 1
    assert serial(lambda: captured_spawn(nproc_per_node=2, nnodes=3, node_rank=2))[1][4:7] == (6, 2, 2)
    reader, writer = os.pipe()

    def calls():
        def fn(local_rank, *args, **kwargs):
            os.write(writer, repr((dist.is_initialized(), local_rank, args, kwargs)).encode())

        idist.spawn("gloo", fn, (1,), {"a": 2}, start_method="fork", master_port=free_port())
        return eval(os.read(reader, 4096))

    assert serial(calls) == (True, 0, (1,), {"a": 2})
    entry.says("Each process joins the group, calls `fn(local_rank, *args, **kwargs_dict)` and leaves the group.")
    entry.says(
        "`args` is required, a tuple. Returns `None`, what `fn` returns is lost; with `join=False` too, so there is"
        " nothing to join."
    )

    def results():
        def fn(local_rank, *args, **kwargs):
            return 7

        return [
            idist.spawn("gloo", fn, (1,), {"a": 1}, start_method="fork", master_port=free_port(), join=join)
            for join in (True, False)
        ]

    assert serial(results) == [None, None]
    assert serial(lambda: error(idist.spawn, "gloo", print)).startswith(
        "TypeError: spawn() missing 1 required positional argument"
    )

    def under_ipython():
        builtins.__IPYTHON__ = True
        return captured_spawn()[2]["start_method"]

    entry.says(
        f"`kwargs` for `gloo` and `nccl`: `nnodes` ({world // nprocs}), `node_rank` ({node_rank}), `master_addr`,"
        f" `master_port`, `init_method` (`{init_method}`), `timeout`, `start_method` (`{options['start_method']}`,"
        f" under IPython `{serial(under_ipython)}`), `join` ({options['join']}), `daemon` ({options['daemon']}). Any"
        " other is ignored silently."
    )

    assert serial(lambda: captured_spawn(foo=1))[2] == options
    other = {"join": False, "daemon": True, "start_method": "fork"}
    assert serial(lambda: captured_spawn(**other))[2] == other
    untimed = serial(
        lambda: error(idist.spawn, "gloo", print, (), timeout=30, start_method="fork", master_port=free_port())
    )
    assert "Expected timeout argument to be of type datetime.timedelta" in untimed
    entry.says("World size is `nnodes * nproc_per_node`, rank `node_rank * nproc_per_node + local_rank`.")
    entry.says(
        "Address and port: the argument, else `MASTER_ADDR` and `MASTER_PORT` from the environment, "
        f"else `{address}` and `{port}`. Changed in 0.5.4: the environment is read."
    )
    env = {"MASTER_ADDR": "h", "MASTER_PORT": "5"}
    assert values([run_serial(lambda: captured_spawn()[1][7:9], env=env)]) == [("h", 5)]
    assert values([run_serial(lambda: captured_spawn(master_addr="i", master_port=6)[1][7:9], env=env)]) == [("i", 6)]

    def around():
        stale = {"RANK": "7", "WORLD_SIZE": "9", "LOCAL_RANK": "7"}
        os.environ.update(stale)
        reader, writer = os.pipe()

        def child(local_rank):
            if local_rank == 1:
                os.write(writer, repr(environment()).encode())

        port = free_port()
        idist.spawn("gloo", child, (), nproc_per_node=2, start_method="fork", master_port=port)
        return eval(os.read(reader, 4096)), port, environment() == stale

    seen, port, untouched = serial(around)
    assert untouched and seen == {
        "RANK": "1",
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    entry.says(
        "Sets `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `MASTER_ADDR`, `MASTER_PORT` in the children, over what they inherit;"
        " the parent's environment is untouched."
    )
    text = first_lines(serial(lambda: error(idist.spawn, "gloo", eval("lambda local_rank: None"), ())))
    entry.says(
        "With start method `spawn`, `fn` and its arguments are pickled: a lambda gives"
        f" `{text.split(': attribute')[0]}…`."
    )

    def child_raises():
        def fn(local_rank):
            raise KeyError("lost")

        return error(idist.spawn, "gloo", fn, (), start_method="fork", master_port=free_port())

    text = serial(child_raises)
    assert "KeyError: 'lost'" in text
    name = text.split(":")[0]
    assert hasattr(torch.multiprocessing, name)
    entry.says(f"If `fn` raises: `torch.multiprocessing.{name}` in the parent, the child's traceback in its text.")
    text = values(run_world(1, lambda rank: error(idist.spawn, "gloo", print, (), start_method="fork")))[0]
    text = text.strip().split("\n")[-1]
    entry.says(f"Forked from a process that is in a group: `{text}`, within the same.")
    text = serial(lambda: error(idist.spawn, "foo", print, ()))
    entry.says(f"Unknown backend: `{text.split('(')[0]}…'`.")
    texts = []
    for name, value in (("master_addr", "a"), ("master_port", 1)):
        text = serial(lambda: error(idist.spawn, "gloo", print, (), init_method="file:///x", **{name: value}))
        texts.append(text)
    assert texts[0].replace("addr", "port") == texts[1]
    entry.says(f"With a `file://` `init_method`, `master_addr` or `master_port`: `{texts[0]}` (or `master_port`).")
    text = serial(lambda: error(idist.spawn, "gloo", print, (), start_method="zzz"))
    entry.says(f"Unknown start method: `{text}`.")


def stopped(**kwargs):
    """The environment that `initialize` leaves when the rendezvous does not take place."""
    before = dict(os.environ)
    with patch("torch.distributed.init_process_group", side_effect=Stop):
        error(idist.initialize, "gloo", **kwargs)
    return {k: v for k, v in os.environ.items() if before.get(k) != v}


@at("initialize")
def initialize(entry):
    entry.says("Collective: returns when all ranks of the world have come (it ends with a barrier). Returns `None`.")

    def barriers(rank):
        with patch("torch.distributed.barrier") as barrier:
            returned = idist.initialize("gloo")
        return barrier.call_count, returned

    assert values(run_world(2, barriers, init=None)) == [(1, None)] * 2
    entry.says(
        "Rank and size come from `RANK`, `WORLD_SIZE` and `LOCAL_RANK`, all three or none; unset, they and the address"
        f" are written to `os.environ`: {written(serial(stopped))}; `finalize` undoes it."
    )
    job = {
        "PROCID": "3",
        "LOCALID": "1",
        "NTASKS": "4",
        "JOB_NODELIST": "n[7-8]",
        "JOB_NUM_NODES": "2",
        "JOB_ID": "123456",
    }
    job = {f"SLURM_{k}": v for k, v in job.items()}

    def in_job():
        with patch("subprocess.check_output", side_effect=FileNotFoundError):  # as without scontrol
            return stopped()

    got = values([run_serial(in_job, env=job)])[0]
    assert {k: got[k] for k in LAUNCH[:4]} == {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "n7"}
    first = int(got["MASTER_PORT"]) - int(job["SLURM_JOB_ID"][-4:])
    entry.says(
        "Under SLURM (`SLURM_JOB_ID` is set): from the variables of the job step, the address is the job's first host,"
        f" the port {first} plus the last four digits of the job id ({job['SLURM_JOB_ID']}: {got['MASTER_PORT']})."
    )
    given = serial(lambda: stopped(rank=1, world_size=2))
    assert (given["RANK"], given["WORLD_SIZE"]) == ("1", "2")
    env = {"RANK": "0", "WORLD_SIZE": "4", "LOCAL_RANK": "0"}
    over = values([run_serial(lambda: stopped(rank=1, world_size=2), env=env)])[0]
    assert "RANK" not in over and "WORLD_SIZE" not in over
    entry.says(
        "`kwargs` for `gloo` and `nccl`: `timeout`, `init_method` (`env://` or `file://`), `rank`, `world_size` (the"
        " environment wins over both). Any other is ignored silently."
    )
    assert values(run_world(1, lambda rank: idist.initialize("gloo", foo=1), init=None)) == [None]

    def by_file():
        idist.initialize("gloo", init_method=f"file://{os.getcwd()}/.rendezvous-{os.getpid()}", rank=0, world_size=1)
        size = idist.get_world_size()
        idist.finalize()
        return size

    with tempfile.TemporaryDirectory() as folder:
        assert serial(lambda: os.chdir(folder) or by_file()) == 1

    text = serial(lambda: error(idist.initialize, "gloo", timeout=30))
    entry.says(
        f"`timeout` has to be a `datetime.timedelta`, whatever the annotation says: `{text.split('. See')[0].strip()}`."
    )
    left = serial(lambda: error(idist.initialize, "gloo", timeout=30) and environment())
    assert left == serial(stopped)
    entry.says("A call that fails there leaves the variables set.")
    texts = {values([run_serial(lambda: error(idist.initialize, "gloo"), env={k: "0"})])[0] for k in LAUNCH[:3]}
    assert len(texts) == 1
    entry.says(f"Only some of the three set: `{texts.pop()}`.")
    text = values(run_world(1, lambda rank: error(idist.initialize, "gloo")))[0]
    entry.says(f"Twice: `{text}`")
    text = serial(lambda: error(idist.initialize, "foo"))
    entry.says(f"Unknown backend, `None` included: `{text.split('(')[0]}…'`.")
    assert serial(lambda: error(idist.initialize, None)) == text
    text = serial(lambda: error(idist.initialize, "gloo", init_method="tcp://a:1"))
    entry.says(f"Changed in 0.5.5: `tcp://` is refused, `{text.split('.')[0]}…`.")
    text = values([run_serial(lambda: error(idist.initialize, "gloo", rank=0), env={"SLURM_JOB_ID": "1"})])[0]
    said = text
    text = values([run_serial(lambda: error(idist.initialize, "gloo"), env={"SLURM_JOB_ID": "1"})])[0]
    name = re.search(r"'(\w+)'", text)[1]
    entry.says(
        f"Under SLURM: with `rank` or `world_size` `{said}`, with a variable missing `{text.replace(name, '…')}`."
    )


@at("finalize")
def finalize(entry):
    def restores(rank):
        os.environ["KEPT"] = "1"
        idist.initialize("gloo")
        os.environ["LOST"] = "1"
        os.environ["KEPT"] = "2"
        returned = idist.finalize()
        return returned, dist.is_initialized(), os.environ.get("LOST"), os.environ["KEPT"], idist.finalize()

    assert values(run_world(1, restores, init=None)) == [(None, False, None, "1", None)]
    entry.says(
        "Destroys the process group (`torch.distributed.destroy_process_group`) and goes back to serial. Returns"
        " `None`."
    )
    entry.says(
        "Puts the whole of `os.environ` back as it was before `initialize`: variables that you set or changed in"
        " between are lost."
    )
    assert serial(idist.finalize) is None
    entry.says("Serial, or a second time: does nothing.")

    def only_one(rank):
        time.sleep(0.4 * rank)
        before = time.monotonic()
        idist.finalize()
        return before, time.monotonic()

    (_, gone), (still_there, _) = values(run_world(2, only_one))
    assert gone < still_there
    entry.says(
        "Not collective: it does not wait for the others, so put a `barrier` before it if they still communicate."
    )

    def own(rank):
        idist.finalize()
        before = dist.is_initialized()
        idist.sync()
        idist.finalize()
        return before, dist.is_initialized()

    assert values(run_world(1, own, init="torch")) == [(True, False)]
    entry.says(
        "A group that you made is destroyed only if idist has noticed it, by a query or `sync`; before that the call"
        " does nothing."
    )
