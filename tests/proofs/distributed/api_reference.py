"""Proofs of api-reference.md: what the page as a whole says, the getters, and the notes on releases."""

from __future__ import annotations

import os
import re
import socket
import time
from functools import lru_cache
from unittest.mock import patch

import ignite
import ignite.distributed as idist
import torch
import torch.distributed as dist
from probes.collectives import LEGEND
from support import world
from support.claims import proves
from support.pages import read_page
from support.world import run_serial, values

PAGE = "sub-skills/distributed/references/api-reference.md"
LAUNCH = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
SINCE = re.compile(r"\b(Since|Changed in) (\d+(?:\.\d+)+)")


def run_world(size: int, function, **kwargs):
    """`support.world.run_world` with time to spare: what these proofs wait for is a rank, never a timeout."""
    return world.run_world(size, function, **{"timeout": 30, "limit": 60, **kwargs})


def at(*names: str):
    """Register a proof for the entries of these names on the page."""
    return proves(*(f"{PAGE}#{name.lower().replace('.', '').replace(' ', '-')}" for name in names))


def error(function, *args, **kwargs) -> str:
    """`Class: text` of the exception that the call raises."""
    try:
        result = function(*args, **kwargs)
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    raise AssertionError(f"expected an exception, got {result!r}")


def environment() -> dict[str, str]:
    """The launch variables that are set now."""
    return {name: os.environ[name] for name in LAUNCH if name in os.environ}


def waits(call, release, *, first: int = 0) -> bool:
    """Whether `call()` on rank `first` of two returns only after the other rank, later, runs `release()`."""

    def ask(rank):
        if rank == first:
            call()
            return time.monotonic()
        time.sleep(0.5)
        late = time.monotonic()
        release()
        return late

    ends = values(run_world(2, ask))
    return ends[first] >= ends[1 - first]


def written(variables: dict[str, str]) -> str:
    """`A=1`, `B=2` as the page writes variables."""
    return ", ".join(f"`{k}={v}`" for k, v in variables.items())


def serial(function):
    """What the function returns in a process without any distributed set-up."""
    return values([run_serial(function)])[0]


def since_notes() -> list[tuple[str, str, str]]:
    """(entry, "Since" or "Changed in", release) for every such note on the page."""
    notes = [(e.heading, *m) for e in read_page(PAGE).entries for m in SINCE.findall(e.text)]
    assert notes, f"{PAGE}: no note of the form 'Since 1.2.3' or 'Changed in 1.2.3'"
    return notes


@at("ignite.distributed API reference")
def intro(entry):
    statement, scope = "import ignite.distributed as idist", {}
    exec(statement, scope)
    assert scope["idist"] is idist
    entry.says(f"Every public name of `ignite.distributed` (`{statement}`).")
    minutes = int(dist.distributed_c10d.default_pg_timeout.total_seconds() // 60)
    entry.says(
        f"Measured on pytorch-ignite {ignite.__version__} and torch {torch.__version__.split('+')[0]}, CPU, `gloo`;"
        " what rests on reading the source is marked `not verified here`."
    )

    assert waits(lambda: idist.all_reduce(1), lambda: idist.all_reduce(1))
    entry.says(
        "Collective: every rank has to call it, in the same order; a rank that does not leaves the others waiting"
        f" until the group's timeout ({minutes} minutes unless `initialize` is given another)."
    )
    assert serial(lambda: (idist.backend(), idist.all_reduce("a", op="no such"))) == (None, "a")
    entry.says("Serial: no process group in this process; nothing is communicated and hardly any argument is checked.")
    entry.says(LEGEND.replace("*", ""))
    sections: list[list[str]] = []
    for other in read_page(PAGE).entries:
        sections += [[other.heading]] if other.level == 2 else []
        sections[-1].append(other.heading) if other.level == 3 else None
    entry.says("Contents:", *(f"{section}: {' · '.join(names)}" for section, *names in sections))


GETTERS = (
    "backend",
    "model_name",
    "device",
    "get_rank",
    "get_world_size",
    "get_local_rank",
    "get_nproc_per_node",
    "get_nnodes",
    "get_node_rank",
)
LAUNCHED = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}


def _ask() -> dict[str, str]:
    return {name: str(getattr(idist, name)()) for name in GETTERS}


@lru_cache(maxsize=None)
def getters() -> dict[str, tuple[str, str, list[str]]]:
    """For each getter: serial; launched but not initialised; on each of two ranks."""
    alone = serial(_ask)
    launched = values([run_serial(_ask, env=LAUNCHED)])[0]
    two = values(run_world(2, lambda rank: _ask()))
    return {name: (alone[name], launched[name], [ranks[name] for ranks in two]) for name in GETTERS}


def _getter(name):
    @at(name)
    def proof(entry):
        alone, launched, ranks = getters()[name]
        assert launched == alone, f"{name} now reads the environment before initialize"
        ranks = ", ".join(f"`{r}`" for r in dict.fromkeys(ranks))
        entry.says(f"Serial: `{alone}`. Two `gloo` processes on one host: {ranks}.")

    return proof


for _name in GETTERS:
    _getter(_name)


@at("Where am I")
def where_am_i(entry):
    assert all(alone == launched for alone, launched, _ in getters().values())
    entry.says(
        f"None reads the environment: under a launcher ({written(LAUNCHED)}), until `initialize`, each gives its serial"
        " value."
    )
    assert values(run_world(2, lambda rank: len(_ask()) if rank == 0 else time.sleep(0.3)))[0] == len(GETTERS)
    entry.says("None communicates, except the first one asked about a group that you made, see sync.")
    assert set(GETTERS) == {
        n for n in idist.utils.__all__ if n.startswith("get_") or n in ("backend", "device", "model_name")
    }


@at("device")
def device(entry):
    def mocked():
        with patch("torch.cuda.is_available", return_value=True), patch("torch.cuda.current_device", return_value=0):
            return str(idist.device())

    in_group = values(run_world(1, lambda rank: mocked()))[0]
    entry.says(
        f"With CUDA available: serial `{serial(mocked)}`, without an index; in a group, `gloo` too, `{in_group}`,"
        " torch's current device."
    )


@at("get_local_rank")
def local_rank(entry):
    got = values(run_world(2, lambda rank: idist.get_local_rank(), env=lambda rank: {"LOCAL_RANK": str(rank + 3)}))
    assert got == [3, 4]
    entry.says("Read from `LOCAL_RANK` when the group is joined; for a group that you made, see set_local_rank.")


@at("get_nproc_per_node")
def nproc_per_node(entry):
    asked = lambda rank: (idist.get_nproc_per_node(), idist.get_nnodes(), idist.get_node_rank())  # noqa: E731
    got = values(run_world(2, asked, env={"LOCAL_RANK": "0"}))
    entry.says(
        "The highest local rank of the world plus one: two ranks with `LOCAL_RANK=0` each give "
        f"`{got[0][0]}`, `get_nnodes()` `{got[0][1]}` and `get_node_rank()` `{got[0][2]}`, `{got[1][2]}`."
    )


@at("get_nnodes")
def nnodes(entry):
    got = values(
        run_world(
            3, lambda rank: (idist.get_nproc_per_node(), idist.get_nnodes()), env=lambda r: {"LOCAL_RANK": str(r % 2)}
        )
    )
    assert got[0][0] == 2
    entry.says(
        "`get_world_size() // get_nproc_per_node()`: nodes of unequal size are miscounted, two nodes with 2 + 1 ranks"
        f" give `{got[0][1]}`."
    )


@at("get_node_rank")
def node_rank(entry):
    got = values(run_world(3, lambda rank: idist.get_node_rank(), env=lambda r: {"LOCAL_RANK": str(r % 2)}))
    assert got == [0, 0, 1]
    entry.says("`get_rank() // get_nproc_per_node()`, so ranks have to be numbered node by node.")


@at("hostname")
def hostname(entry):
    got = serial(lambda: (idist.hostname(), socket.gethostname()))
    assert got[0] == got[1]
    entry.says("The name of this host, as `socket.gethostname()` gives it, serial or not; no communication.")


@at("show_config")
def show_config(entry):
    outcome = run_serial(idist.show_config)
    lines = [line for line in outcome.output.splitlines() if " INFO: " in line]
    texts = [line.split(" INFO: ")[1] for line in lines]
    name = lines[0].split(" INFO: ")[0].split()[-1]
    two = run_world(2, lambda rank: idist.show_config())
    values(two)
    assert "world size: 2" in two[0].output and two[1].output == ""
    entry.says(
        f"Logs {len(lines)} INFO lines with the logger `{name}`, to standard error, on rank 0 only. Returns `None`."
        " Serial:"
    )
    entry.shows("\n".join(texts))


@at("sync")
def sync(entry):
    default = serial(lambda: idist.sync.__defaults__)
    assert default == (False,)

    def own(rank):
        idist.sync()
        return idist.get_rank(), idist.get_world_size()

    assert values(run_world(2, own, init="torch")) == [(0, 2), (1, 2)]
    entry.says("Makes idist look again for a group that was made or destroyed without it. Returns `None`.")

    def found_by_query(rank):
        if rank == 0:
            idist.get_rank()
            return time.monotonic()
        time.sleep(0.5)
        late = time.monotonic()
        idist.get_rank()
        return late

    first, late = values(run_world(2, found_by_query, init="torch"))
    assert first >= late

    def steps(rank):
        with patch("torch.distributed.new_group", side_effect=dist.new_group) as made:
            with patch("torch.distributed.all_reduce", side_effect=dist.all_reduce) as reduced:
                idist.sync()
        return made.call_count, reduced.call_count

    assert values(run_world(2, steps, init="torch")) == [(1, 1)] * 2

    def synced(rank):
        idist.sync()
        return found_by_query(rank)

    first, late = values(run_world(2, synced, init="torch"))
    assert first < late
    entry.says(
        "Finding the group is collective (it makes a group and reduces), and without `sync()` the first query finds it:"
        " `if dist.get_rank() == 0: idist.get_rank()` then blocks. Call `sync()` on every rank right after"
        " `init_process_group`; later queries do not communicate."
    )

    def destroyed(rank):
        idist.sync()
        dist.destroy_process_group()
        before = error(idist.get_world_size)
        idist.sync()
        return before, idist.get_world_size()

    before, after = values(run_world(1, destroyed, init="torch"))[0]
    entry.says(
        f"After `destroy_process_group()` the old group is still asked (`{before.split(',')[0]}`…); `sync()` gives"
        f" serial again, world size `{after}`."
    )

    def temporary(rank):
        calls = []
        found = idist.utils.registered_computation_models[1]
        original = found.create_from_context
        idist.sync(temporary=True)
        with patch.object(found, "create_from_context", side_effect=lambda: calls.append(1) or original()):
            for _ in range(3):
                idist.get_rank()
        return 3, len(calls), idist.utils._need_to_sync

    asked, looked, flag = values(run_world(1, temporary, init="torch"))[0]
    assert looked == 0 and flag is True
    entry.says(
        f"`temporary=True` is meant to look at every query, but once a group is found {asked} queries look {looked}"
        " times."
    )


@at("set_local_rank")
def set_local_rank(entry):
    def hinted(rank):
        idist.set_local_rank(rank + 5)
        return idist.get_local_rank()

    own = run_world(2, hinted, init="torch", unset=("LOCAL_RANK",))
    assert values(own) == [5, 6] and not own[0].warnings
    entry.says(
        "Hints the local rank for a group that you made yourself; call it before the first query. Local, returns"
        " `None`."
    )

    def too_late(rank):
        idist.get_rank()
        return hinted(rank)

    assert values(run_world(2, too_late, init="torch", unset=("LOCAL_RANK",))) == [0, 1]
    with_variable = values(run_world(2, hinted, init="torch"))
    assert with_variable == [0, 1]
    slurm = run_world(
        1,
        lambda rank: (hinted(rank), os.environ["LOCAL_RANK"]),
        init="torch",
        env={"SLURM_JOB_ID": "1", "SLURM_LOCALID": "3", "LOCAL_RANK": "4"},
    )
    assert values(slurm) == [(3, "3")]
    entry.says(
        "First of: `SLURM_LOCALID` (if `SLURM_JOB_ID` is set; it overwrites `LOCAL_RANK` in `os.environ`),"
        " `LOCAL_RANK`, this hint, a guess from host names with a `UserWarning` that begins"
    )
    guess = run_world(2, lambda rank: idist.get_local_rank(), init="torch", unset=("LOCAL_RANK",))
    assert values(guess) == [0, 1]
    entry.says(f"`{guess[0].warnings[0].removeprefix('UserWarning: ').split(' setting')[0]}…`")
    assert serial(lambda: hinted(0)) == 0 and values(run_world(2, hinted)) == [0, 1]
    entry.says("Without effect in serial and after `initialize` or `spawn`, which read `LOCAL_RANK`.")


@at("available_backends")
def available_backends(entry):
    def asked():
        names = ("nccl", "gloo", "mpi")
        built = tuple(n for n in names if getattr(dist, f"is_{n}_available")())
        return idist.available_backends(), built

    got, built = serial(asked)
    assert got[: len(built)] == built and isinstance(got, tuple)
    cpu = tuple(n for n in got if n == "gloo")
    entry.says(
        f"A tuple of the names that `initialize`, `spawn` and `Parallel` accept; `{cpu}` with a CPU build of torch."
    )
    entry.not_verified(
        "A CUDA build adds `nccl` even where there is no GPU,", "comp_models/native.py: is_nccl_available"
    )
    entry.not_verified(
        "an installed torch_xla `xla-tpu`, an installed horovod `horovod` (not verified here).",
        "comp_models/xla.py, horovod.py",
    )


@at("has_native_dist_support")
def native_support(entry):
    assert idist.has_native_dist_support is dist.is_available()
    entry.says(
        f"`torch.distributed.is_available()` when ignite was imported; here `{idist.has_native_dist_support}`. A value,"
        " not a function."
    )


@at("has_xla_support")
def xla_support(entry):
    entry.says(
        f"Whether `import torch_xla` worked when ignite was imported; here `{idist.has_xla_support}`. A value, not a"
        " function."
    )


@at("has_hvd_support")
def hvd_support(entry):
    entry.says(
        f"Whether `import horovod.torch` worked when ignite was imported; here `{idist.has_hvd_support}`. A value, not"
        " a function."
    )


@at("registered_computation_models")
def models(entry):
    names = ", ".join(f"`{m.name}`" for m in idist.registered_computation_models)
    entry.says(
        f"The classes behind `model_name()`, here those named {names}; serial first. A tuple, meant for ignite itself."
    )
