"""Proofs of the sub-skill's SKILL.md: its gotchas, its common triggers and its boundary notes."""
from __future__ import annotations

import inspect
import logging
import os
import socket
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from unittest import mock

import ignite.distributed as idist
import torch
import torch.distributed as dist
from ignite.engine import Engine, Events
from ignite.handlers import DiskSaver, EarlyStopping, TerminateOnNan
from ignite.metrics import Average
from ignite.utils import manual_seed, setup_logger
from support.claims import proves
from support.world import Outcome, run_serial, run_world, values
from torch import nn
from torch.distributed.run import get_args_parser
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
)

PAGE = "sub-skills/distributed/SKILL.md"
PLAIN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE",
         "TORCHELASTIC_RESTART_COUNT")  # what run_world sets: without them a rank is a plain process
TIMED_OUT = "Timed out waiting"


class Items(Dataset):
    """The integers below n."""

    def __init__(self, n: int):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        return index


class Stream(IterableDataset):
    """0, 1, 2, 3, without regard to ranks."""

    def __iter__(self):
        return iter(range(4))


def gotcha(anchor: str):
    return proves(f"{PAGE}#{anchor}")


def one_pass(loader) -> list[int]:
    """The items of one pass over the loader, in order."""
    return [item for batch in loader for item in batch.tolist()]


def error(function, *args, **kwargs) -> str:
    """Class name of the exception that the call raises, or "no error"."""
    try:
        function(*args, **kwargs)
    except Exception as e:
        return type(e).__name__
    return "no error"


def acts_alone(act, **world) -> Outcome:
    """What becomes of rank 0 when it alone calls `act`, while rank 1 is alive and waits for it to be through."""
    reader, writer = os.pipe()

    def function(rank):
        if rank == 1:
            os.read(reader, 1)
            return None
        try:
            return act()
        finally:
            os.write(writer, b".")

    try:
        return run_world(2, function, **world)[0]
    finally:
        os.close(reader)
        os.close(writer)


def timed_out(outcome: Outcome) -> bool:
    return outcome.error == "RuntimeError" and TIMED_OUT in outcome.message


def group_timeout() -> timedelta:
    """The timeout of the default process group."""
    return dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu")).options._timeout


@gotcha("a-skipped-collective-meets-the-next-one")
def skipped_collective(entry):
    extra, size = 100, 2

    reader, writer = os.pipe()

    def function(rank):
        seen = [idist.all_reduce(extra)] if rank == 0 else []
        try:
            seen.append(idist.all_reduce(idist.get_rank() + 1))
        except RuntimeError as e:
            seen.append(TIMED_OUT in str(e))
        os.write(writer, b".") if rank == 0 else os.read(reader, 1)
        return seen

    zero, one = run_world(size, function, timeout=1.5)
    os.close(reader)
    os.close(writer)
    assert zero.value[1] is True, f"rank 0 did not hang in its second call: {zero}"
    entry.says(
        "A skipped collective meets the next one. Ranks pair collectives by order, not by line of code.",
        f"Rank 0 alone calls idist.all_reduce({extra}), then both call idist.all_reduce(idist.get_rank() + 1): "
        f"{zero.value[0]} on rank 0 in the first line, {one.value[0]} on rank 1 in the second, no error; "
        "rank 0 then hangs.",
        "Compute on all ranks, put only the print under the if.",
    )


@gotcha("the-first-query-on-a-process-group-you-made-is-a-collective")
def foreign_group(entry):
    def query():
        if dist.get_rank() == 0:
            idist.get_rank()

    def handler():
        with tempfile.TemporaryDirectory() as folder:
            DiskSaver(folder)

    for act in (query, handler):
        alone = acts_alone(act, init="torch", timeout=1, limit=4)
        assert alone.hung and f"in {act.__name__}" in alone.stack, f"{act.__name__} did not hang past 1 s: {alone}"
    entry.says(
        "The first query on a process group you made is a collective.",
        "After your own torch.distributed.init_process_group, if rank == 0: idist.get_rank() hangs, "
        f"past the group's timeout; so does a {DiskSaver.__name__} built on rank 0 only.",
    )

    def synced(rank):
        idist.sync()
        return idist.get_rank() if rank == 0 else None

    assert values(run_world(2, synced, init="torch")) == [0, None]
    assert values(run_world(2, lambda rank: idist.get_rank() if rank == 0 else None)) == [0, None]
    entry.says("Call idist.sync() on every rank first, or use idist.initialize.")


@gotcha("one_rank_only-is-a-rank-guard-too")
def one_rank_only_is_a_guard(entry):
    assert timed_out(acts_alone(idist.one_rank_only()(lambda: idist.all_reduce(1)), timeout=1))
    entry.says("one_rank_only is a rank guard too.", "A collective inside hangs;")

    def ordinary(rank):
        return idist.one_rank_only()(lambda: 42)(), idist.one_rank_only(rank=7)(lambda: 1 / 0)()

    (zero, nobody), (other, nobody_else) = values(run_world(2, ordinary))
    assert zero == 42 and nobody is nobody_else is None
    entry.says(
        f"the other ranks get {other}, not the result; a rank that does not exist is no error, nothing runs."
    )

    def decorated():
        idist.one_rank_only(with_barrier=True)(lambda: 1 / 0)()

    def context():
        with idist.one_rank_first():
            if idist.get_rank() == 0:
                raise ZeroDivisionError

    reader, writer = os.pipe()

    def caught(rank, act):
        try:
            act()
        except ZeroDivisionError:
            os.read(reader, 1)  # lives on
        finally:
            os.write(writer, b".") if rank == 1 else None

    for act in (decorated, context):
        zero, one = run_world(2, lambda rank, act=act: caught(rank, act), timeout=1)
        assert timed_out(one), f"{act.__name__}: rank 1 did not wait for rank 0: {one}"
    os.close(reader)
    os.close(writer)
    entry.says(
        "After an exception inside, with_barrier=True and one_rank_first never reach their barrier: "
        "if that rank catches the exception and lives, the others wait."
    )


@gotcha("before-initialisation-each-process-is-rank-0-of-1")
def before_initialisation(entry):
    def function(rank):
        assert os.environ["RANK"] == str(rank) and os.environ["WORLD_SIZE"] == "2"
        jobs = []
        before = idist.get_rank(), idist.get_world_size(), idist.get_local_rank()
        with idist.Parallel() as parallel:
            parallel.run(lambda local_rank: jobs.append((idist.get_rank(), idist.get_world_size())))
        return before, jobs[0]

    seen = values(run_world(2, function, init=None))
    assert len(set(seen)) == 1, "the ranks know of each other"
    (rank, world, _), job = seen[0]
    assert job == (rank, world)
    entry.says(
        f"Before initialisation each process is rank {rank} of {world}.",
        "No getter reads RANK or WORLD_SIZE.",
        f"Under torchrun, idist.Parallel() without a backend runs {len(seen)} unconnected jobs on {len(seen)} "
        f"processes, each as rank {job[0]} of {job[1]}, which write the same files.",
    )

    def named(rank):
        jobs = []
        with idist.Parallel("gloo") as parallel:
            parallel.run(lambda local_rank: jobs.append((idist.get_rank(), idist.get_world_size())))
        return jobs[0]

    assert values(run_world(2, named, init=None)) == [(0, 2), (1, 2)]
    entry.says("Name the backend.")


def early_stopping(rank: int, engine: Engine) -> None:
    sign = -1.0 if rank == 0 else 1.0
    handler = EarlyStopping(patience=1, score_function=lambda e: sign * e.state.epoch, trainer=engine)
    engine.add_event_handler(Events.EPOCH_COMPLETED, handler)


def terminate_on_nan(rank: int, engine: Engine) -> None:
    engine.add_event_handler(Events.ITERATION_COMPLETED, TerminateOnNan())


def terminate_on_one_rank(rank: int, engine: Engine) -> None:
    engine.add_event_handler(Events.ITERATION_COMPLETED(once=2), idist.one_rank_only()(engine.terminate))


def run_engine(rank: int, stopper, collective: bool = False) -> tuple[int, int]:
    """Run epochs of 6 iterations; on rank 0 the second output may be no number. Returns epoch and iteration reached."""

    def step(engine, batch):
        if collective:
            idist.all_reduce(1)
        return float("nan") if rank == 0 and stopper is terminate_on_nan and engine.state.iteration == 2 else 0.0

    engine = Engine(step)
    stopper(rank, engine)
    engine.run([0] * 6, max_epochs=5 if stopper is early_stopping else 1)
    return engine.state.epoch, engine.state.iteration


@gotcha("a-stop-is-a-decision-of-one-rank")
def stops(entry):
    (zero, _), (one, _) = values(run_world(2, lambda rank: run_engine(rank, early_stopping)))
    entry.says(
        "A stop is a decision of one rank.",
        f"EarlyStopping on a score that differs ended rank 0 after epoch {zero}, rank 1 after epoch {one};",
    )
    (_, zero), (_, one) = values(run_world(2, lambda rank: run_engine(rank, terminate_on_nan)))
    assert zero < one
    entry.says(f"TerminateOnNan ended rank 0 after iteration {zero} of {one};")
    assert values(run_world(2, lambda rank: run_engine(rank, terminate_on_one_rank))) == [(1, zero), (1, one)]
    entry.says("terminate() in a one_rank_only handler likewise.")

    reader, writer = os.pipe()

    def with_collective(rank):
        try:
            run_engine(rank, terminate_on_one_rank, collective=True)
        finally:
            os.read(reader, 1) if rank == 0 else os.write(writer, b".")

    assert timed_out(run_world(2, with_collective, timeout=1)[1])
    os.close(reader)
    os.close(writer)
    entry.says("The other rank hangs in its next collective.")

    def reduced(rank, engine):
        @engine.on(Events.ITERATION_COMPLETED(every=2))
        def decide():
            if idist.all_reduce(int(rank == 1), "MAX"):
                engine.terminate()

    (zero, one) = values(run_world(2, lambda rank: run_engine(rank, reduced)))
    assert zero == one and zero[1] == 2, (zero, one)
    entry.says("Decide from a reduced value, on all ranks.")


@gotcha("a-metrics-value-is-already-that-of-all-ranks")
def metric_is_reduced(entry):
    def function(rank):
        metric = Average()
        for _ in range(1 if rank == 0 else 3):
            metric.update(torch.tensor(float(rank)))
        value = metric.compute().item()
        return value, idist.all_reduce(value)

    (zero, again), (one, _) = values(run_world(2, function))
    assert zero == one
    entry.says(
        "A metric's value is already that of all ranks.",
        f"With one 0 on rank 0 and three 1s on rank 1, Average gives {zero} on both, weighted by count; "
        f"all_reduce of it gives {again}.",
    )

    def evaluate():
        evaluator = Engine(lambda engine, batch: torch.tensor(1.0))
        Average().attach(evaluator, "average")
        evaluator.run([0])

    alone = acts_alone(evaluate, timeout=1)
    assert timed_out(alone) and "self.compute()" in alone.traceback, alone
    assert not any(o.error for o in run_world(2, lambda rank: evaluate()))
    entry.says("compute(), and so an evaluator, hangs if only rank 0 runs it.", "Run it on all ranks, print on one.")


def average(loader) -> tuple[list[int], float]:
    metric, items = Average(), []
    for batch in loader:
        items += batch.tolist()
        metric.update(batch.float())
    return items, round(metric.compute().item(), 6)


@gotcha("padding-is-counted")
def padding(entry):
    n, size = 3, 2
    ds = Items(n)

    def loader(**kwargs):
        return idist.auto_dataloader(ds, batch_size=size, shuffle=False, **kwargs)

    def function(rank):
        exact = DataLoader(Subset(ds, range(idist.get_rank(), len(ds), idist.get_world_size())))
        return average(loader()), average(loader(drop_last=True)), average(exact)

    zero, one = values(run_world(size, function))
    items = sorted(zero[0][0] + one[0][0])
    extra = [i for i in set(items) if items.count(i) > 1]
    padded, dropped, exact = (answer[1] for answer in zero)
    assert one[0][1] == padded == dropped and len(items) == 4 and len(extra) == 1
    assert exact == one[2][1] == sum(range(n)) / n and sorted(zero[2][0] + one[2][0]) == list(range(n))
    entry.says(
        "Padding is counted.",
        f"With {n} items on {size} ranks the loader repeats item {extra[0]} as a {len(items)}th: Average of "
        f"{', '.join(map(str, range(n)))} is {padded}, not {exact}, and drop_last=True changes nothing.",
        "For an exact score read Subset(ds, range(idist.get_rank(), len(ds), idist.get_world_size())) "
        f"with a plain DataLoader, which gives {exact}.",
    )


@gotcha("batch_size-is-the-whole-worlds")
def batch_size(entry):
    size, sizes = 8, (32, 30, 4)

    def function(rank):
        return [idist.auto_dataloader(Items(64), batch_size=n).batch_size for n in sizes]

    per = values(run_world(size, function))
    totals = [sum(rank[i] for rank in per) for i in range(len(sizes))]
    divided, floored, small = per[0]
    entry.says(
        "batch_size is the whole world's.",
        f"auto_dataloader(ds, batch_size={sizes[0]}) gives each of {size} processes {divided}; a remainder is dropped "
        f"({sizes[1]} → {floored} each, {totals[1]} in all) and a size below the world size stays as it is per process "
        f"({sizes[2]} → {small} each, {totals[2]} in all).",
        "Pass per_process * idist.get_world_size().",
    )
    assert totals[0] == sizes[0] == divided * size


@gotcha("types-and-shapes-are-not-compared")
def types_and_shapes(entry):
    numbers = (0, 1.5)
    zero, one = values(run_world(2, lambda rank: idist.all_reduce(numbers[rank])))
    entry.says(
        "Types and shapes are not compared.",
        f"all_reduce({numbers[0]}) on rank 0 and all_reduce({numbers[1]}) on rank 1 give {zero} and {one}.",
    )
    shapes = ((2, 3), (3, 2))
    gathered = values(run_world(2, lambda rank: tuple(idist.all_gather(torch.ones(shapes[rank])).shape)))
    assert gathered == [(2 * rows, columns) for rows, columns in shapes]
    entry.says(f"all_gather of shapes {shapes[0]} and {shapes[1]} gives a plausible result on each rank;")
    lengths = (2, 3)
    ended = run_world(2, lambda rank: idist.all_gather(torch.ones(lengths[rank])), timeout=2)
    assert [o.exit_code for o in ended].count(-6) == 1
    entry.says(f"of lengths {lengths[0]} and {lengths[1]} it aborts one rank.")
    assert values(run_world(2, lambda rank: idist.all_reduce(1.5 if rank else 0.0))) == [1.5, 1.5]

    def uneven(rank):
        return [len(t) for t in idist.all_gather_tensors_with_shapes(torch.ones(lengths[rank]), [[n] for n in lengths])]

    assert values(run_world(2, uneven)) == [list(lengths)] * 2
    entry.says("Start sums as 0.0; use all_gather_tensors_with_shapes for uneven tensors.")


@gotcha("nobody-calls-set_epoch")
def set_epoch(entry):
    def orders(rank, call):
        loader = idist.auto_dataloader(Items(8), batch_size=8, shuffle=True)
        seen = []
        trainer = Engine(lambda engine, batch: seen.append(batch.tolist()))
        if call:

            @trainer.on(Events.EPOCH_STARTED)
            def _():
                if idist.get_world_size() > 1:
                    loader.sampler.set_epoch(trainer.state.epoch - 1)

        trainer.run(loader, max_epochs=2)
        return seen

    for first, second in values(run_world(2, lambda rank: orders(rank, call=False))):
        assert first == second
    for first, second in values(run_world(2, lambda rank: orders(rank, call=True))):
        assert first != second
    serial = run_serial(lambda: (lambda s: (type(s).__name__, hasattr(s, "set_epoch")))(
        idist.auto_dataloader(Items(8)).sampler)).value
    assert serial[1] is False
    entry.says(
        "Nobody calls set_epoch.",
        "Every epoch repeats the first one's order, in Engine.run too.",
        "On Events.EPOCH_STARTED call loader.sampler.set_epoch(trainer.state.epoch - 1) if idist.get_world_size() > 1;",
        f"the sampler of one process ({serial[0]}) has no such method.",
    )


@gotcha("shuffling-is-on-by-default-only-with-2-or-more-processes")
def shuffling(entry):
    def function(rank):
        loader = idist.auto_dataloader(Items(32), batch_size=32)
        return type(loader.sampler).__name__, one_pass(loader)

    serial, items = run_serial(lambda: function(0)).value
    assert items == list(range(32))
    alone = values(run_world(1, function))[0]
    assert alone == (serial, items)
    (name, zero), (_, one) = values(run_world(2, function))
    assert zero != sorted(zero) and sorted(zero + one) == items
    entry.says(
        "Shuffling is on by default only with 2 or more processes.",
        f"auto_dataloader(ds) gives a {serial} on one process and a shuffling {name} on 2.",
        "Always pass shuffle=True or shuffle=False.",
    )


@gotcha("a-batch_sampler-or-an-iterabledataset-is-not-sharded")
def not_sharded(entry):
    def batches(rank):
        sampler = BatchSampler(SequentialSampler(Items(4)), 2, False)
        return one_pass(idist.auto_dataloader(Items(4), batch_sampler=sampler))

    outcomes = run_world(2, batches)
    everything = values(outcomes)
    warned = {w.split(":")[0] for o in outcomes for w in o.warnings if "batch_sampler" in w}
    assert everything == [[0, 1, 2, 3]] * 2 and len(warned) == 1
    streams = run_world(2, lambda rank: one_pass(idist.auto_dataloader(Stream(), batch_size=2)))
    assert values(streams) == everything and not any(o.warnings for o in streams)
    assert "INFO: Found iterable dataset" in streams[0].output
    entry.says(
        "A batch_sampler or an IterableDataset is not sharded.",
        f"Every rank reads all the data, the first with a {warned.pop()}, the second with no more than an INFO line.",
        "Shard by idist.get_rank() in the sampler or the data set.",
    )


@gotcha("a-number-broadcast-goes-through-float32")
def broadcast_number(entry):
    sent = 16777217
    got = values(run_world(2, lambda rank: idist.broadcast(sent if rank == 0 else 0)))
    assert got[0] == got[1] == float(torch.tensor(sent).float()) != sent
    entry.says(
        "A number broadcast goes through float32.",
        f"broadcast({sent}) returns {got[0]}, on the source as well, so a seed or a time stamp changes.",
    )
    tensors = values(run_world(2, lambda rank: idist.broadcast(torch.tensor(sent if rank == 0 else 0)).item()))
    assert tensors == [sent] * 2
    entry.says("Send torch.tensor(seed).")
    text = "é"
    broken = [o.error for o in run_world(2, lambda rank: idist.broadcast(text if rank == 0 else ""))]
    assert broken[0] == broken[1]
    whole = values(run_world(2, lambda rank: idist.all_gather([text if rank == 0 else ""])[0][0]))
    assert whole == [text] * 2
    entry.says(
        f'Text is measured in characters and sent in bytes: broadcast("{text}") raises {broken[0]}.',
        f'Send text beyond ASCII as all_gather(["{text}"])[src][0].',
    )


@gotcha("all_reduce-overwrites-its-tensor-and-knows-no-mean")
def all_reduce_in_place(entry):
    def function(rank):
        tensor = torch.ones(2)
        loss = torch.ones(1, requires_grad=True) * 2
        copy = idist.all_reduce(loss.detach().clone()) / idist.get_world_size()
        return (idist.all_reduce(tensor) is tensor and tensor.tolist(), idist.all_reduce(True),
                error(idist.all_reduce, 1.0, "MEAN"), copy.item(), loss.item())

    in_place, both, mean, copy, untouched = values(run_world(2, function))[0]
    assert in_place == [2.0, 2.0] and copy == untouched == 2.0
    entry.says(
        "all_reduce overwrites its tensor and knows no mean.",
        f'The result is the argument; "MEAN" raises {mean}; True on 2 ranks sums to {both}, not 2.',
        "For a mean divide by the world size, on a copy: loss.detach().clone().",
    )


@gotcha("all_gather-joins-along-the-first-dimension-and-cuts-the-gradient")
def all_gather_joins(entry):
    shape = (2, 3)

    def function(rank):
        leaf = torch.ones(shape, requires_grad=True)
        x = leaf * (rank + 1)
        g = idist.all_gather(x)
        cut, k = g.requires_grad, len(x)
        g[rank * k : (rank + 1) * k] = x
        g.sum().backward()
        return tuple(g.shape), cut, type(idist.all_gather(1)).__name__, leaf.grad.unique().tolist()

    zero, one = values(run_world(2, function))
    joined, cut, kind, gradient = zero
    assert gradient == [1.0] and one[3] == [2.0]
    entry.says(
        "all_gather joins along the first dimension and cuts the gradient.",
        f"Shape {shape} on 2 ranks becomes {joined}, a number becomes a {kind}, and the result has "
        f"requires_grad={cut} even in a contrastive loss.",
        "Put your own slice back: g[rank * k : (rank + 1) * k] = x.",
    )


@gotcha("outside-a-group-you-get-your-input-back")
def outside_a_group(entry):
    group, size, value = [0, 1], 3, 7

    def function(rank):
        return idist.all_reduce(value, group=group), idist.all_gather(value, group=group)

    *members, (reduced, gathered) = values(run_world(size, function))
    assert members == [(2 * value, [value, value])] * 2
    entry.says(
        "Outside a group you get your input back.",
        f"With group={group} in a world of {size}, rank {size - 1}'s all_reduce({value}) is {reduced} and its "
        f"all_gather({value}) is {gathered}, not a list.",
    )

    def left_out(rank):
        first = idist.all_reduce(value, group=group) if rank in group else None
        print(first)
        idist.all_reduce(value, group=list(range(size)))

    ended = run_world(size, left_out, timeout=1, limit=5)
    assert all(o.hung and "in all_reduce" in o.stack for o in ended), ended
    assert [str(2 * value) in o.output for o in ended] == [True, True, False], ended
    for function in (idist.broadcast, idist.barrier):
        assert "group" not in inspect.signature(function).parameters
    entry.says(
        "Every call with a list makes a new group; if one rank leaves one out, the next one hangs on all.",
        "broadcast and barrier take no group and always need the whole world.",
    )


@gotcha("all-ranks-draw-the-same-random-numbers")
def random_numbers(entry):
    seed = 7

    def seeded(rank):
        manual_seed(seed)
        same = torch.rand(1).item()
        manual_seed(seed + idist.get_rank())
        return same, torch.rand(1).item()

    zero, one = values(run_world(2, seeded))
    assert zero[0] == one[0] and zero[1] != one[1]

    def proxied(rank):
        torch.manual_seed(1000 + rank)
        loader = idist.auto_dataloader(Items(8), batch_size=8, sampler=RandomSampler(Items(8)))
        passes = [one_pass(loader), one_pass(loader)]
        return type(loader.sampler).__name__, loader.sampler.epoch, torch.initial_seed(), passes[0] == passes[1]

    (name, epoch, initial, again), other = values(run_world(2, proxied))
    assert other == (name, epoch, initial, again) and again
    entry.says(
        "All ranks draw the same random numbers.",
        f"ignite.utils.manual_seed({seed}) makes augmentation alike everywhere: add idist.get_rank().",
        f"A sampler of your own is wrapped in {name}, which calls torch.manual_seed({initial}), {epoch} being its "
        "epoch, on every rank at each pass.",
    )


@gotcha("serial-mode-checks-nothing")
def serial_checks_nothing(entry):
    calls = {
        'all_reduce("a")': (idist.all_reduce, "a"),
        'all_reduce(1, "MEAN")': (idist.all_reduce, 1, "MEAN"),
        "broadcast({}, src=9)": (lambda value: idist.broadcast(value, src=9), {}),
        "new_group([5])": (idist.new_group, [5]),
    }
    *but_last, last = calls

    def function(rank=0):
        return [error(*call) for call in calls.values()]

    assert run_serial(function).value == ["no error"] * len(calls)
    for answers in values(run_world(2, function)):
        assert "no error" not in answers, answers
    arguments = get_args_parser().parse_args(["--standalone", "--nproc_per_node=2", "train.py"])
    assert arguments.standalone
    entry.says(
        "Serial mode checks nothing.",
        f"On one process without a backend {', '.join(but_last)} and {last} all pass. On 2 processes each raises.",
        f"Test with {arguments.nproc_per_node}: torchrun --standalone --nproc_per_node={arguments.nproc_per_node}.",
    )


@gotcha("parallel-without-nproc_per_node-ignores-the-rest")
def parallel_drops(entry):
    dropped = {"timeout": timedelta(seconds=9), "nnodes": 2, "node_rank": 0, "master_port": 1}

    def function(rank):
        seen = []
        with idist.Parallel("gloo", **dropped, tmieout=3) as parallel:
            parallel.run(lambda local_rank: seen.append((group_timeout(), idist.get_world_size(), idist.get_nnodes())))
        return seen[0]

    timeout, world, nodes = values(run_world(1, function, init=None))[0]
    assert (world, nodes) == (1, 1) and timeout != dropped["timeout"]
    *but_last, last = dropped
    entry.says(
        "Parallel without nproc_per_node ignores the rest.",
        f"{', '.join(but_last)}, {last} and any misspelt name are dropped in silence; "
        f"the timeout stays {timeout.seconds // 60} minutes.",
    )

    def explicit(rank):
        wrong = error(idist.initialize, "gloo", timeout=60)
        idist.initialize("gloo", timeout=timedelta(seconds=60))
        return wrong, group_timeout()

    wrong, timeout = values(run_world(1, explicit, init=None))[0]
    assert wrong == "TypeError"
    entry.says(
        f'Call idist.initialize("gloo", timeout=timedelta(seconds={timeout.seconds})) to set one; '
        f"it must be a {type(timeout).__name__}."
    )


@gotcha("two-launchers-multiply")
def two_launchers(entry):
    workers, per = 2, 2
    with tempfile.TemporaryDirectory() as folder:

        def note(local_rank):
            Path(folder, str(os.getpid())).write_text(f"{os.environ['MASTER_PORT']} {idist.get_world_size()}")

        def function(rank):
            with socket.socket() as s:
                s.bind(("127.0.0.1", 0))
                port = s.getsockname()[1]
            assert os.environ["WORLD_SIZE"] == str(workers)
            os.environ.pop("TORCHELASTIC_USE_AGENT_STORE")  # torchrun's store: with it the two jobs collide in one
            with idist.Parallel("gloo", nproc_per_node=per, start_method="fork", master_port=port) as parallel:
                parallel.run(note)

        values(run_world(workers, function, init=None))
        ranks = [path.read_text().split() for path in Path(folder).iterdir()]
    jobs = {port for port, _ in ranks}
    assert {world for _, world in ranks} == {str(per)}
    entry.says(
        "Two launchers multiply.",
        f'Under torchrun with {workers} workers, Parallel("gloo", nproc_per_node={per}) is not refused: each worker '
        f"starts {len(ranks) // workers} ranks of its own, {len(ranks)} processes, "
        f"at best as {len(jobs)} separate jobs.",
        "Give nproc_per_node in one place.",
    )


@gotcha("in-a-world-of-one-auto_model-returns-the-model-itself")
def auto_model_alone(entry):
    def function(rank):
        model, optimizer_model = nn.Linear(1, 1), nn.Linear(1, 1)
        model.own = 1
        wrapped = idist.auto_model(model)
        optimizer = torch.optim.SGD(optimizer_model.parameters(), lr=0.1)
        adapted = idist.auto_optim(optimizer, unknown=1)
        return (wrapped is model, hasattr(wrapped, "own"), error(idist.auto_model, nn.Linear(1, 1), unknown=1),
                getattr(wrapped, "module", wrapped) is model, adapted is optimizer and optimizer.param_groups[0]["lr"])

    alone = values(run_world(1, function))[0]
    assert alone == (True, True, "no error", True, 0.1) and run_serial(lambda: function(0)).value == alone
    several = values(run_world(2, function))
    assert several == [(False, False, "TypeError", True, 0.1)] * 2
    entry.says(
        "In a world of one auto_model returns the model itself.",
        f"model.module and unknown keyword arguments fail only on {len(several)} processes, "
        "attributes of your model too.",
        'Use getattr(model, "module", model).',
        "auto_optim returns its argument and scales no learning rate.",
    )


@gotcha("finalize-puts-the-whole-environment-back")
def finalize_environment(entry):
    def function(rank):
        idist.initialize("gloo")
        os.environ["MY_OWN"] = "1"
        idist.finalize()
        return "MY_OWN" in os.environ

    assert values(run_world(2, function, init=None)) == [False, False]
    entry.says(
        "finalize puts the whole environment back.",
        "Every variable set since initialize is gone, yours as well.",
    )


# The sections after the gotchas


@gotcha("common-triggers")
def common_triggers(entry):
    arguments = get_args_parser().parse_args(["--nproc_per_node=2", "train.py"])

    def function(rank):
        seen = {}

        def main(local_rank):
            loader = idist.auto_dataloader(Items(64), batch_size=32, shuffle=True)
            model = idist.auto_model(nn.Linear(1, 1))
            optimizer = idist.auto_optim(torch.optim.SGD(model.parameters(), lr=0.1))
            model(torch.tensor([[float(len(next(iter(loader))))]])).sum().backward()
            optimizer.step()
            seen["backend"], seen["rank"], seen["world"] = idist.backend(), idist.get_rank(), idist.get_world_size()

        with idist.Parallel(backend="gloo") as parallel:
            parallel.run(main)
        return seen

    assert values(run_world(2, function, init=None)) == [
        {"backend": "gloo", "rank": rank, "world": 2} for rank in range(2)
    ]
    entry.says(
        'As above: idist.Parallel(backend="gloo") in the code, the number of processes only in '
        f"torchrun --nproc_per_node={arguments.nproc_per_node}.",
        "Inside the function that Parallel.run calls: auto_dataloader(ds, batch_size=32, shuffle=True), "
        "auto_model(model), auto_optim(optimizer).",
    )
    assert not (dist.is_nccl_available() or dist.is_mpi_available() or idist.has_hvd_support or idist.has_xla_support)
    wheel = torch.__version__[-4:]
    entry.says(
        f"Why does available_backends() return only {idist.available_backends()}?",
        f"The installed torch is built without NCCL and MPI (a {wheel} wheel), and neither Horovod nor torch_xla "
        "imports. Install a CUDA build of torch.",
    )

    def logs(rank):
        setup_logger("early").info("before")
        idist.initialize("gloo")
        setup_logger("late").info("after")
        trainer = Engine(lambda engine, batch: None)

        @trainer.on(Events.COMPLETED)
        @idist.one_rank_only()
        def handler():
            print("handled")

        trainer.run([0])
        logging.root.manager.loggerDict.pop("ignite.distributed.utils", None)  # as in a fresh interpreter
        idist.show_config()
        return getattr(logging.getLogger("ignite.distributed.utils").handlers[0], "stream", None) is sys.stderr

    zero, one = run_world(2, logs, init=None)
    assert (zero.value, one.value) == (True, False)
    assert all(word in zero.output for word in ("before", "after", "handled"))
    assert "before" in one.output and "after" not in one.output and "handled" not in one.output
    lines = [zero.output.count("ignite.distributed.utils INFO"), one.output.count("ignite.distributed.utils INFO")]
    assert lines[1] == 0
    entry.says(
        "ignite.utils.setup_logger after initialisation: above rank 0 it logs nothing; called before, every rank logs.",
        "For a handler: @trainer.on(...) above @idist.one_rank_only().",
        "idist.backend(), idist.get_rank(), idist.get_world_size(), or "
        f"idist.show_config(): {lines[0]} lines on stderr, from rank 0 only.",
    )


@gotcha("useful-boundary-notes")
def boundary_notes(entry):
    def device(rank):
        with mock.patch("torch.cuda.is_available", lambda: True), mock.patch("torch.cuda.current_device", lambda: 0):
            return idist.backend(), str(idist.device())

    (backend, where), = values(run_world(1, device))
    entry.says(
        f"{backend} does not mean CPU: where CUDA is available idist.device() is {where} under {backend} as well."
    )

    def several_gpus(rank=0):
        with mock.patch("torch.cuda.is_available", lambda: True), mock.patch("torch.cuda.current_device", lambda: 0), \
                mock.patch("torch.cuda.device_count", lambda: 2), mock.patch.object(nn.Module, "to"), \
                mock.patch("torch.nn.parallel.DataParallel") as wrapper:
            idist.auto_model(nn.Linear(1, 1))
            return wrapper.called

    assert run_serial(several_gpus).value and values(run_world(1, several_gpus)) == [True]
    entry.says(
        "A world of one that sees several GPUs gets torch.nn.DataParallel from auto_model, with a backend or without.",
        "Set CUDA_VISIBLE_DEVICES=0, or launch one process per GPU.",
    )

    def ports(rank):
        with mock.patch("torch.distributed.init_process_group", side_effect=ConnectionError):
            assert error(idist.initialize, "gloo") == "ConnectionError"
            first = os.environ.pop("MASTER_PORT")
            for name in PLAIN:
                os.environ.pop(name, None)
            with mock.patch("torch.multiprocessing.start_processes") as start:
                idist.spawn("gloo", print, args=(), nproc_per_node=1)
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            os.environ["MASTER_PORT"] = str(taken.getsockname()[1])
            try:
                idist.initialize("gloo")
            except Exception as e:
                return first, start.call_args.kwargs["args"][8], str(e)

    first, second, message = values(run_world(1, ports, init="serial"))[0]
    assert "EADDRINUSE" in message
    entry.says(
        f"Fixed ports: initialize and Parallel listen on {first}, spawn on {second}, so a second job on the host ends "
        "with EADDRINUSE. Set MASTER_PORT."
    )
    failed = run_world(1, lambda rank: idist.initialize("gloo"), init="serial", env={"SLURM_JOB_ID": "1"})[0]
    entry.says(
        f"SLURM_JOB_ID alone switches to SLURM: plain python in an allocation raises {failed.error}: {failed.message}. "
        "Start with srun."
    )

    def returns(rank):
        with idist.Parallel("gloo") as parallel:
            return parallel.run(lambda local_rank: 5)

    def spawned(rank):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        return idist.spawn("gloo", abs, args=(), nproc_per_node=1, start_method="fork", master_port=port)

    got = values(run_world(1, returns, init=None)) + values(run_world(1, spawned, init=None, unset=PLAIN))
    assert got[0] is got[1]
    entry.says(f"Parallel.run and spawn return {got[0]}: write results to a file, or print them.")
