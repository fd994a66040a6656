"""Proofs of api-reference.md: the collectives, each with the table that tests/probes/collectives.py measures."""

from __future__ import annotations

import faulthandler
import re
import time
from datetime import timedelta
from functools import lru_cache
from inspect import signature
from pathlib import Path
from unittest.mock import patch

import ignite.distributed as idist
import torch
import torch.distributed as dist
from probes import collectives as probe
from support.world import values

from .api_reference import at, error, run_world, serial, waits

MODELS = Path(idist.__file__).parent / "comp_models"
FLOAT_AT_MOST = 2**24  # whole numbers up to here are exact in float32


def code(*words) -> str:
    return ", ".join(f"`{w}`" for w in words)


def one(function):
    """What `function()` gives in a world of one."""
    return values(run_world(1, lambda rank: function()))[0]


def two(function, **kwargs):
    """What `function(rank)` gives on each of two ranks."""
    return values(run_world(2, function, **kwargs))


def keys_in_source(file: str, name: str) -> list[str]:
    """The string keys of the dictionary `name` in a file that cannot be imported here."""
    body = re.search(rf"\b{name} = {{(.*?)}}", (MODELS / file).read_text(), re.S)[1]
    return re.findall(r'"(\w+)":', body)


def in_source(file: str, text: str) -> str:
    assert text in (MODELS / file).read_text(), f"{file} no longer contains {text!r}"
    return file


@lru_cache(maxsize=None)
def bad_group() -> str:
    text = one(lambda: [error(f, 1, group="a") for f in (idist.all_reduce, idist.all_gather)])
    assert text[0] == text[1]
    return text[0].split(", got")[0]


@lru_cache(maxsize=None)
def non_member() -> dict:
    """What rank 1 gets from each call with the group [0], and the warnings."""

    def ask(rank):
        t = torch.full((1,), rank + 1.0)
        group = idist.new_group([0])
        return {
            "reduce": idist.all_reduce(rank + 5, group=group),
            "gather": idist.all_gather(rank + 5, group=group),
            "str": idist.all_gather("ab"[rank], group=group),
            "dict": idist.all_gather({"r": rank}, group=group),
            "shapes": idist.all_gather_tensors_with_shapes(t, [[1]], group=group)[0] is t,
            "group": group if rank else None,
            "by list": idist.all_reduce(rank + 5, group=[0]),
        }

    outcomes = run_world(2, ask)
    return values(outcomes)[1] | {"warnings": outcomes[1].warnings}


def members_alone(call) -> bool:
    """Whether rank 0 finishes `call(group)` on a group of its own before rank 1, no member, calls."""

    def ask(rank):
        group = idist.new_group([0])
        time.sleep(0.5 * rank)
        begun = time.monotonic()
        call(group)
        return begun, time.monotonic()

    (_, done), (begun, _) = two(ask)
    return done < begun


@at("all_reduce")
def all_reduce(entry):
    entry.says("Collective. Each rank gets the reduction over all ranks.")
    given = torch.ones(1)

    def tensors(rank):
        t = torch.ones(1)
        return idist.all_reduce(t) is t, t.item()

    assert two(tensors) == [(True, 2.0)] * 2 and serial(lambda: idist.all_reduce(given) is given)
    entry.says(
        "A tensor is changed in place and returned; a number comes back as a new Python number of its type, ints exact,"
        " floats double."
    )
    assert (
        two(lambda rank: idist.all_reduce(2**53 + 1)) == [2**54 + 2] * 2
        and two(lambda rank: idist.all_reduce(0.1)) == [0.2] * 2
    )
    entry.table(probe.rows("all_reduce"))
    got = serial(lambda: idist.all_reduce("a"))
    entry.says(f"Serial returns the input and checks nothing: `'{got}'` passes, and fails only in a group. ")
    low = two(lambda rank: idist.all_reduce(2**62))[0]
    entry.says(
        f"Integers wrap at 64 bits without a word (`2**62` on two ranks: `{low}`), narrow tensors in their own dtype."
    )
    ops = one(lambda: list(idist.utils._model._reduce_op_map))
    assert all(isinstance(one(lambda: idist.all_reduce(1, op)), int) for op in ops)
    text = one(lambda: error(idist.all_reduce, 1, "sum"))
    entry.says(f"`op`: exactly {code(*ops)}, else `{text}`; there is no mean, divide by the world size.")
    assert one(lambda: error(idist.all_reduce, 1, "MEAN")).startswith("ValueError: Unsupported")
    bits = two(lambda rank: (idist.all_reduce(6 - 3 * rank, "AND"), idist.all_reduce(6 - 3 * rank, "OR")))[0]
    text = two(lambda rank: error(idist.all_reduce, 1.0, "AND"))[0]
    entry.says(f"`AND` and `OR` are bitwise (`6` and `3`: `{bits[0]}`, `{bits[1]}`); on floats `{text}`.")
    entry.says(
        "`group`: a list of ranks (makes a new process group at each call, so every rank of the world calls) or what"
        " `new_group` returned (then only its members need to)."
    )
    assert members_alone(lambda group: idist.all_reduce(1, group=group))

    def groups_made():
        with patch("torch.distributed.new_group", side_effect=dist.new_group) as made:
            idist.all_reduce(1, group=[0])
            idist.all_reduce(1, group=[0])
        return made.call_count

    assert one(groups_made) == 2
    seen = non_member()
    assert seen["reduce"] == seen["by list"] == 6
    entry.says(
        "A rank outside the group gets its input back, with"
        f" `{seen['warnings'][0].replace('global rank 1', 'global rank …')}`"
    )
    entry.says("Changed in 0.5.2: before, `all_reduce` raised there.")
    entry.says(f"Anything else: `{bad_group()}, got …`.")
    mixed = two(lambda rank: idist.all_reduce((1, 1.0)[rank]))
    entry.says(
        f"That ranks agree in dtype and shape is not checked: `1` on one rank and `1.0` on the other give `{mixed[0]}`"
        f" and `{mixed[1]}`;"
    )

    def mismatched(rank):
        faulthandler.disable()
        idist.all_reduce(torch.ones(2, dtype=(torch.float32, torch.float64)[rank]))

    aborted = run_world(2, mismatched)
    assert [o.exit_code for o in aborted].count(-6) == 1
    entry.says("float32 against float64 ends a rank with `SIGABRT`.")
    kept, loose = keys_in_source("horovod.py", "_reduce_op_map"), keys_in_source("horovod.py", "_manual_reduce_op_map")
    entry.not_verified(
        f"Horovod: ops {code(*kept, *loose)}, a new tensor instead of in place, `group` raises `NotImplementedError`"
        " (not verified here).",
        in_source("horovod.py", "all_reduce with group for horovod is not implemented"),
    )


@at("all_gather")
def all_gather(entry):
    entry.says(
        "Collective. Each rank gets the inputs of all ranks, in rank order: a number, `str` or any picklable object as"
        " a list; tensors joined along dimension 0, a copy."
    )

    def copies(rank):
        t = torch.ones(1, requires_grad=True)
        out = idist.all_gather(t)
        return out is t, out.requires_grad

    assert two(copies) == [(False, False)] * 2
    entry.says("No rank axis is added, and the result has no gradient.")
    entry.table(probe.rows("all_gather"))
    shape = serial(lambda: tuple(idist.all_gather(torch.tensor(1.0)).shape)), one(
        lambda: tuple(idist.all_gather(torch.tensor(1.0)).shape)
    )
    entry.says(
        f"Serial returns a tensor as it is (0-dim: shape `{shape[0]}`, in a world of one `{shape[1]}`), anything else"
        " as a list of one."
    )
    broken = one(lambda: idist.all_gather("café.pt"))[0]
    good = two(lambda rank: idist.all_gather(("é", "abc")[rank]))[0]
    entry.says(
        "Non-ASCII text: room is made for the characters of the longest string, but its UTF-8 bytes are sent. One byte"
        f" too many garbles the last character silently (`'café.pt'` gives `{broken!r}`) or raises, more raise; next to"
        f" a longer string it works (`{good}`). Wrap it instead, `all_gather([text])`: objects are pickled and exact."
    )
    assert two(lambda rank: idist.all_gather(["日本"])) == [[["日本"], ["日本"]]] * 2

    def only_one(rank):
        text = error(idist.all_gather, ("日本", "a")[rank])
        ended = time.monotonic()
        time.sleep(0.5 * (rank == 0))
        left = time.monotonic()
        idist.finalize()
        return text, ended, left

    (text, _, left), (_, ended, _) = two(only_one)
    assert text.startswith("RuntimeError: The expanded size") and ended >= left
    entry.says("Where only one rank raises, the others wait.")

    def uneven(rank):
        faulthandler.disable()
        idist.all_gather(torch.ones(2 + rank))

    ragged = run_world(2, uneven)
    assert -6 in [o.exit_code for o in ragged]
    shapes = two(lambda rank: tuple(idist.all_gather(torch.arange(6.0).reshape((2, 3) if rank else (3, 2))).shape))
    entry.says(
        "Tensors must have one shape on all ranks; that is not checked: a different number of elements ends a rank"
        f" with `SIGABRT`, `(3, 2)` against `(2, 3)` gives each rank its own reading, {shapes[0]} and {shapes[1]}. Else"
        " use all_gather_tensors_with_shapes."
    )
    seen = non_member()
    entry.says(
        f"`group`: as for all_reduce. A rank outside it gets its input back, not in a list: `{seen['gather']}`,"
        f" `{seen['dict']}`; a `str` as `{seen['str']}`."
    )
    assert members_alone(lambda group: idist.all_gather(1, group=group))
    assert members_alone(lambda group: idist.all_gather([1], group=group))
    assert not members_alone(lambda group: idist.all_gather("a", group=group))
    entry.says(
        "A `str` first reduces its length over the whole world, so there ranks outside the group have to call as well."
    )
    entry.says(f"Another type of `group`: `{bad_group()}, got …`.")
    entry.not_verified(
        "Objects: XLA raises `NotImplementedError`, Horovod does so with a `group` (not verified here).",
        in_source("xla.py", "all_gather on object is not implemented for xla")
        + in_source("horovod.py", "all_gather with group for horovod is not implemented"),
    )


@at("all_gather_tensors_with_shapes")
def with_shapes(entry):
    entry.says(
        "Since 0.5.2. Collective. `shapes[r]` is the shape of rank `r`'s tensor, the same list on every rank; a list of"
        " tensors comes back, one per rank, unpadded copies."
    )
    assert two(lambda rank: len(idist.all_gather_tensors_with_shapes(torch.ones(rank + 1), [[1], [2]]))) == [2, 2]
    entry.says("In the table every rank passes the right shapes.")
    entry.table(probe.rows("all_gather_tensors_with_shapes"))
    got = serial(lambda: error(idist.all_gather_tensors_with_shapes, torch.tensor(1.0), [[]]))
    assert got.startswith("IndexError")
    entry.says("A 0-dim tensor fails in serial only, so pass at least one dimension.")
    cut = two(
        lambda rank: [t.tolist() for t in idist.all_gather_tensors_with_shapes(torch.ones(rank + 1), [[1], [1]])]
    )[0]
    padded = two(
        lambda rank: [t.tolist() for t in idist.all_gather_tensors_with_shapes(torch.ones(rank + 1), [[1], [3]])]
    )[0]
    entry.says(
        f"`shapes` is not checked: with sizes 1 and 2, `[[1], [1]]` gives `{cut}`, `[[1], [3]]` gives `{padded}`."
    )
    text = two(lambda rank: error(idist.all_gather_tensors_with_shapes, torch.ones(2), [[2, 1], [2, 1]]))[0]
    entry.says(f"All tensors need the same number of dimensions, else for instance `{text.split(' or equal')[0]}…`.")
    assert text.startswith("RuntimeError: Padding")
    assert non_member()["shapes"]
    entry.says(
        "`group`: as for all_gather; `shapes` then lists the members only. A rank outside it gets `[tensor]`, its own."
    )
    member = two(
        lambda rank: [t.tolist() for t in idist.all_gather_tensors_with_shapes(torch.ones(rank + 1), [[2]], group=[1])]
    )
    assert member == [[[1.0]], [[1.0, 1.0]]]
    warned = run_world(1, lambda rank: idist.all_gather_tensors_with_shapes(torch.ones(1), [[1]]))[0].warnings
    assert len(warned) == 1
    entry.says(f"Harmless `{warned[0].split(' is deprecated')[0]}…` with this torch.")


@at("broadcast")
def broadcast(entry):
    entry.says(
        "Collective, over the whole world: there is no `group`. Each rank gets what rank `src` passed; a tensor is"
        " filled in place and returned."
    )
    assert "group" not in signature(idist.broadcast).parameters

    def tensors(rank):
        t = torch.full((1,), float(rank))
        return idist.broadcast(t, src=1) is t, t.item()

    assert two(tensors) == [(True, 1.0)] * 2
    entry.says("In the table rank 1 passes a placeholder of the type and shape of rank 0's value (zero, empty).")
    rows = probe.rows("broadcast")
    entry.table(rows)
    number = one(lambda: idist.broadcast(FLOAT_AT_MOST)), one(lambda: idist.broadcast(FLOAT_AT_MOST + 1))
    assert number == (FLOAT_AT_MOST, FLOAT_AT_MOST)
    exponent = FLOAT_AT_MOST.bit_length() - 1
    entry.says(
        f"Numbers travel as float32 and come back as `{type(number[0]).__name__}`, also on the source: ints beyond"
        f" `2**{exponent}` and doubles lose digits, large ones become `inf`, silently; serial keeps them. Send a"
        " float64 or int64 tensor instead."
    )
    assert one(lambda: idist.broadcast(1e300)) == float("inf")
    text = one(lambda: [idist.broadcast("café.pt"), str(idist.broadcast(Path("café.pt")))])
    assert text[0] == text[1]
    entry.says(
        f"Text and paths are safe in ASCII only: `'café.pt'` arrives as `{text[0]!r}` without an error, others raise,"
        " and if only the source raises the rest wait. Use `all_gather([text])[src][0]`."
    )
    assert two(lambda rank: idist.all_gather([("café.pt", None)[rank]])[0][0]) == ["café.pt"] * 2

    def safe(rank):
        sent = (3, "abc", Path("a"), torch.ones(2, dtype=torch.float64))
        got = [idist.broadcast(x if rank == 0 else None, safe_mode=True) for x in sent]
        return [type(x).__name__ for x in got], idist.broadcast(("a", torch.ones(3))[rank], safe_mode=True)

    assert two(safe)[1] == (["float", "str", "PosixPath", "Tensor"], "a")

    def reductions(rank):
        with patch("torch.distributed.all_reduce", side_effect=dist.all_reduce) as counted:
            idist.broadcast(torch.ones(1))
            plain = counted.call_count
            idist.broadcast(torch.ones(1), safe_mode=True)
        return plain, counted.call_count - plain

    plain, more = two(reductions)[0]
    assert plain == 0
    entry.says(
        "`safe_mode=True`: the other ranks may pass `None` or another accepted type; every rank has to set it, since"
        f" it costs {more} reduction more."
    )
    texts = two(lambda rank: error(idist.broadcast, None))
    entry.says(f"Without it, `None`: `{texts[0]}` on the source, `{texts[1]}` elsewhere.")
    text = two(lambda rank: error(idist.broadcast, 1, src=5))[0]
    assert serial(lambda: idist.broadcast(1, src=5)) == 1
    entry.says(f"`src=5` of two: `{text}`; serial ignores `src`.")
    short = two(lambda rank: idist.broadcast(torch.full((2 + rank,), rank + 1.0)).tolist())[1]
    entry.says(
        f"Shapes and dtypes are not compared: two elements of 1.0 into three of 2.0 give `{short}`, another dtype gives"
        " garbage."
    )
    garbage = two(
        lambda rank: idist.broadcast(torch.full((2,), rank + 1.0, dtype=(torch.float32, torch.float64)[rank])).tolist()
    )[1]
    assert garbage[0] not in (1.0, 2.0)
    entry.says("Changed in 0.5.5: `pathlib.Path` is accepted.")
    assert one(lambda: idist.broadcast(Path("a"))) == Path("a")


@at("barrier")
def barrier(entry):
    entry.says(
        "Collective, over the whole world: there is no `group`. Returns when every rank has called it. Returns `None`;"
        " serial does nothing."
    )
    assert not signature(idist.barrier).parameters and serial(idist.barrier) is None

    def late(rank):
        time.sleep(0.4 * rank)
        came = time.monotonic()
        idist.barrier()
        return came, time.monotonic()

    (_, left), (came, _) = two(late)
    assert left >= came

    def missing(rank):
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=1))  # late, so that a slow start does not count
        text = error(idist.barrier) if rank == 0 else time.sleep(2)
        idist.finalize()
        return text

    text = two(missing)[0]
    assert "Timed out waiting 1000ms" in text
    entry.says(
        f"It waits for a rank that does not come until the group's timeout, then raises torch's `{text.split(':')[0]}`."
    )


@at("new_group")
def new_group(entry):
    entry.says(
        "Collective, over the whole world: ranks outside the group call it too, all groups in the same order. Make a"
        " group once and pass it as `group=`."
    )
    assert waits(lambda: idist.new_group([0, 1]), lambda: idist.new_group([0, 1]))

    def left_out(rank):
        if rank == 0:
            idist.new_group([0])
        idist.new_group([0, 1])

    left = run_world(2, left_out, limit=8)
    assert all(o.hung and "new_group" in o.stack for o in left), left
    entry.says(
        "A member gets torch's `ProcessGroup`, another rank an `int`; serial gives the list back. Either is good for"
        " `group=`."
    )
    assert one(lambda: isinstance(idist.new_group([0]), dist.ProcessGroup)) and serial(
        lambda: idist.new_group([3])
    ) == [3]
    assert non_member()["group"] == dist.GroupMember.NON_GROUP_MEMBER
    entry.table(probe.rows("new_group"))
    ordered = two(lambda rank: idist.all_gather(rank, group=[1, 0]))[0]
    entry.says(f"Ranks are sorted: `all_gather(rank, group=[1, 0])` gives `{ordered}`.")
    text = one(lambda: error(idist.new_group, [0], foo=1))
    entry.says(f"`kwargs` go to `torch.distributed.new_group`: `{text}`; serial ignores them.")
    assert serial(lambda: idist.new_group([0], foo=1)) == [0]
    entry.says("Serial does not check that the ranks exist.")

    def timeouts(rank):
        groups = dist.group.WORLD, idist.new_group([0]), idist.new_group([0], timeout=timedelta(seconds=7))
        return [int(g._get_backend(torch.device("cpu")).options._timeout.total_seconds()) for g in groups]

    of_world, default, given = values(run_world(1, timeouts, timeout=11))[0]
    assert (of_world, given) == (11, 7)
    entry.says(
        f"The group does not inherit the timeout given to `initialize`: it waits {default // 60} minutes unless you"
        " pass `timeout=`, also where `group=` is a list."
    )


@at("one_rank_only")
def only(entry):
    def decorated(rank):
        calls = []
        for options in ({}, {"rank": 1}, {"rank": 7}):
            calls.append(idist.one_rank_only(**options)(lambda: idist.get_rank() + 10)())
        return calls

    assert two(decorated) == [[10, None, None], [None, 11, None]]
    entry.says(
        "Decorator, with parentheses: the function runs on global rank `rank` only and its value is returned there; the"
        " others return `None` without waiting."
    )
    entry.says("A rank that does not exist (`rank=7`) is no error: nothing runs.")
    assert (
        serial(lambda: idist.one_rank_only()(lambda: 1)()) == 1
        and serial(lambda: idist.one_rank_only(rank=1)(lambda: 1)()) is None
    )
    entry.says("Serial is rank 0.")

    def in_step(rank):
        @idist.one_rank_only(with_barrier=True)
        def slow():
            time.sleep(0.4)
            return time.monotonic()

        return slow(), time.monotonic()

    (done, _), (_, left) = two(in_step)
    assert left >= done
    entry.says("`with_barrier=True` makes it collective: all ranks return once the function is done.")

    @idist.one_rank_only(with_barrier=True)
    def fail():
        raise KeyError

    def fails(rank):
        if rank == 1:
            fail()
            return time.monotonic()
        assert error(fail).startswith("KeyError")
        time.sleep(0.5)
        late = time.monotonic()
        idist.barrier()  # the one that was skipped
        return late

    late, released = two(fails)
    assert released >= late
    entry.says(
        "If the function raises, its rank skips the barrier and the others wait. A collective inside the function waits"
        " for ranks that never come."
    )
    assert waits(lambda: idist.one_rank_only()(lambda: idist.all_reduce(1))(), lambda: idist.all_reduce(1))


@at("one_rank_first")
def first(entry):
    def order(rank):
        with idist.one_rank_first(rank=1) as given:
            entered = time.monotonic()
            time.sleep(0.3 * rank)
            done = time.monotonic()
        return entered, done, given

    (entered, _, given), (_, done, _) = two(order)
    assert entered >= done and given is None
    entry.says(
        "Since 0.4.13. Context manager, collective: rank `rank` runs the block first, then all others run it too, at"
        " the same time. Yields `None`."
    )
    lone = two(lambda rank: error(idist.one_rank_first(rank=1, local=True).__enter__), env={"LOCAL_RANK": "0"})
    assert lone == ["ValueError: rank should be between 0 and 0, but given 1"] * 2

    def each_first(rank):
        with idist.one_rank_first(local=True):
            idist.all_reduce(1)  # both are inside at once, or this waits for ever
            return True

    assert two(each_first, env={"LOCAL_RANK": "0"}) == [True, True]
    entry.says("`local=True`: `rank` is a local rank, so one process of each node runs ahead.")
    text = two(lambda rank: error(idist.one_rank_first(rank=2).__enter__))[0]
    entry.says(f"`rank=2` of two: `{text}`.")
    assert (
        serial(lambda: error(idist.one_rank_first(rank=1).__enter__))
        == "ValueError: rank should be between 0 and 0, but given 1"
    )

    def block(fails):
        with idist.one_rank_first():
            if fails:
                raise KeyError

    def first_fails(rank):
        if rank == 1:
            block(False)
            return time.monotonic()
        assert error(block, True).startswith("KeyError")
        time.sleep(0.5)
        late = time.monotonic()
        idist.barrier()  # the one that was skipped
        return late

    late, released = two(first_fails)
    assert released >= late

    def second_fails(rank):
        return error(block, True) if rank == 1 else block(False)

    assert two(second_fails) == [None, "KeyError: "]
    entry.says("If the block raises on the first rank, the others wait at its beginning; on another rank nobody waits.")
