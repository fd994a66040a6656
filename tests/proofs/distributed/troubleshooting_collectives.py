"""Proofs: wrong results in silence, collectives and types."""

from __future__ import annotations

import faulthandler
import itertools
import re
import signal
from array import array

import ignite.distributed as idist
import torch
from ignite.engine import Engine, Events
from ignite.metrics import Average, EpochMetric
from support.world import run_serial, run_world, values
from torch.utils.data import BatchSampler, DistributedSampler, IterableDataset, RandomSampler, SequentialSampler

from .troubleshooting_tools import evaluate, group_timeout, notebook, python_c, raised, symptom


@symptom("the-batch-is-smaller-or-larger-than-asked-for")
def batch_size(entry):
    def sizes(rank):
        def size(n):
            return idist.auto_dataloader(range(64), batch_size=n).batch_size

        workers = [idist.auto_dataloader(range(64), num_workers=n).num_workers for n in (4, 3)]
        return {n: size(n) for n in (8, 5, 1)}, workers

    outcomes = run_world(2, sizes)
    got, workers = values(outcomes)[0]
    assert got[5] < 5 / 2 and workers == [2, 2]
    entry.says("it is divided and rounded down, but a size below the world size is kept per rank.")
    entry.says(f"On {len(outcomes)} ranks 8 gives {got[8]} each, 5 gives {got[5]} each, 1 stays {got[1]} each.")
    entry.says("num_workers is divided by the processes of the node and rounded up.")
    entry.says("batch_size of idist.auto_dataloader is the world's")
    entry.quotes(outcomes[0].output)
    assert "Use data loader kwargs for dataset '" in outcomes[0].output
    fix = "batch_size=per_rank * idist.get_world_size()"

    def fixed(rank):
        return evaluate(f"idist.auto_dataloader(range(64), {fix})", per_rank=3).batch_size

    outcomes = run_world(2, fixed)
    assert values(outcomes) == [3, 3] and "'batch_size': 3" in outcomes[0].output
    entry.says("the log line Use data loader kwargs for dataset '…'")
    entry.says(fix, "the line shows per_rank")


@symptom("same-sample-order-in-every-epoch")
def no_set_epoch(entry):
    fix = "loader.sampler.set_epoch(engine.state.epoch - 1)"
    event = "Events.EPOCH_STARTED"

    def program(rank, fixed=False):
        loader = idist.auto_dataloader(torch.arange(32), batch_size=32)
        seen = []
        engine = Engine(lambda engine, batch: seen.append(batch.tolist()))
        if fixed:
            handler = evaluate(f"lambda engine: {fix}", loader=loader)
            engine.add_event_handler(evaluate(event, Events=Events), handler)
        engine.run(loader, max_epochs=2)
        return seen[0] == seen[1]

    assert values(run_world(2, program)) == [True, True]
    assert values(run_world(2, lambda rank: program(rank, True))) == [False, False]
    entry.says("the first batch of two epochs")
    entry.says("nobody calls set_epoch, neither the engine nor idist.auto_dataloader.")
    condition = "if idist.get_world_size() > 1"
    entry.says(f"on {event}: {fix}, only {condition}; in serial the call gives")
    assert idist.get_world_size() == 1
    entry.quotes(raised(run_serial(lambda: idist.auto_dataloader([1, 2]).sampler.set_epoch(1)), "AttributeError"))
    entry.says("two epochs differ")


class Stream(IterableDataset):
    """Eight samples, in order."""

    def __iter__(self):
        return iter(range(8))


class Shard(IterableDataset):
    """This rank's share of eight samples, by the code of the page."""

    code = "itertools.islice(samples, idist.get_rank(), None, idist.get_world_size())"

    def __iter__(self):
        return evaluate(self.code, samples=range(8), itertools=itertools)


@symptom("every-rank-reads-all-data")
def nothing_sharded(entry):
    def ids(rank, **loader):
        mine = [i for batch in idist.auto_dataloader(**loader) for i in batch.tolist()]
        return idist.all_gather(mine)

    outcomes = run_world(2, lambda rank: ids(rank, dataset=Stream(), batch_size=4))
    assert values(outcomes) == [[list(range(8))] * 2] * 2
    entry.quotes(outcomes[0].output)
    assert "Found iterable dataset, dataloader will be created without any distributed sampling." in outcomes[0].output
    batches = run_world(
        2, lambda rank: ids(rank, dataset=range(8), batch_sampler=BatchSampler(SequentialSampler(range(8)), 4, False))
    )
    assert values(batches) == [[list(range(8))] * 2] * 2
    entry.says("an IterableDataset or a batch_sampler: idist.auto_dataloader adds no distributed sampler.")
    entry.says("It logs Found iterable dataset, dataloader will be created without any distributed sampling.")
    entry.says(f"or warns {batches[1].warnings[0].split(': ', 1)[1]}")
    entry.says("gather the sample ids with idist.all_gather")
    shards = values(run_world(2, lambda rank: ids(rank, dataset=Shard(), batch_size=4)))[0]
    assert not set(shards[0]) & set(shards[1]) and len(shards[0] + shards[1]) == 8
    entry.says(Shard.code, "no id is on two ranks")
    entry.says("shard by hand, and by loader worker too: itertools")


@symptom("found-distributed-sampler-with-rank-but-process-rank-is-")
def foreign_sampler(entry):
    def program(rank):
        return list(idist.auto_dataloader(range(6), sampler=DistributedSampler(range(6), 3, 1, shuffle=False)).sampler)

    outcomes = run_world(2, program)
    assert values(outcomes) == [[1, 4], [1, 4]]
    entry.heading(" ".join(outcomes[0].warnings))
    said = outcomes[1].warnings[0]
    entry.quotes(said)
    assert "num_replicas" in said
    entry.says(
        "only a warning, but the rank reads another rank's share; likewise Found distributed sampler with num_replicas"
    )
    entry.says("num_replicas=…, but world size is ….")
    fix = "DistributedSampler(dataset, num_replicas=idist.get_world_size(), rank=idist.get_rank())"

    def fixed(rank):
        sampler = evaluate(fix, DistributedSampler=DistributedSampler, dataset=range(6))
        idist.auto_dataloader(range(6), sampler=sampler)
        idist.auto_dataloader(range(6))

    assert not any(out.warnings for out in run_world(2, fixed))
    entry.says("how the sampler was made")  # by other numbers above
    entry.says(f"{fix}, or none: one is made for you", "no warning")


@symptom("a-metric-depends-on-the-number-of-processes")
def padding_is_counted(entry):
    data = torch.tensor([1.0] + [0.0] * 8)

    def program(rank=0, **kwargs):
        average = Average()
        engine = Engine(lambda engine, batch: batch.unsqueeze(1))
        average.attach(engine, "average")
        loader = idist.auto_dataloader(data, batch_size=2, shuffle=False, **kwargs)
        return engine.run(loader).metrics["average"].item(), len(loader.sampler) * idist.get_world_size()

    serial, total = values([run_serial(program)])[0]
    two = values(run_world(2, program))
    value, padded = two[0]
    assert total == len(data) and value != serial
    entry.says(f"{total} samples on {len(two)} ranks become {padded}.")
    assert values(run_world(2, lambda rank: program(rank, drop_last=True)))[0][1] == padded
    entry.says("drop_last=True does not prevent it.")

    def once(rank):
        seen = {}
        loader = idist.auto_dataloader(list(enumerate(data.tolist())), batch_size=2, shuffle=False)
        Engine(lambda engine, batch: seen.update(zip(batch[0].tolist(), batch[1].tolist()))).run(loader)
        all_ids = {k: v for share in idist.all_gather(seen) for k, v in share.items()}
        return sum(all_ids.values()) / len(all_ids)

    assert all(abs(v - serial) < 1e-6 for v in values(run_world(2, once)))
    assert abs(values(run_world(1, program))[0][0] - serial) < 1e-6
    entry.says("for exact scores count each sample id once, or evaluate in one process.")
    entry.says(
        "len(loader.sampler) * idist.get_world_size() against the size of the data.", "the score equals the serial one"
    )
    entry.says("the distributed sampler repeats samples until all ranks have the same number, and metrics count them:")


@symptom("a-value-too-large-by-the-world-size")
def reduced_twice(entry):
    def program(rank=0):
        engine = Engine(lambda engine, batch: batch)
        Average().attach(engine, "average")
        value = engine.run([3.0]).metrics["average"]
        return value, idist.all_reduce(value)

    (value, twice), _ = values(run_world(2, program))
    assert twice == 2 * value and value == values([run_serial(program)])[0][0]
    entry.says(
        "it was reduced twice: the metrics of Ignite come reduced already.",
        "an idist.all_reduce of engine.state.metrics."
    )
    entry.says("remove it. Proof the value equals the serial one")


@symptom("random-numbers-are-the-same-on-every-rank")
def same_random_numbers(entry):
    code = "torch.initial_seed()"

    def program(rank, **loader):
        torch.manual_seed(1000 + rank)
        loader = idist.auto_dataloader(range(4), **loader)
        next(iter(loader))
        return evaluate(code), torch.rand(1).item()

    (seed, a), (other, b) = values(run_world(2, lambda rank: program(rank, sampler=RandomSampler(range(4)))))
    assert seed == other == 0 and a == b
    assert [s for s, _ in values(run_world(2, program))] == [1000, 1001]
    assert len(set(values(run_world(2, lambda rank: (torch.manual_seed(5), torch.rand(1).item())[1])))) == 1
    entry.says("DistributedProxySampler sets torch's global seed to its epoch number at the start of every pass.")
    entry.says("a sampler of your own went through idist.auto_dataloader", f"{code} on each rank after the first batch")

    def own(rank):
        generator = torch.Generator().manual_seed(5 + idist.get_rank())
        program(rank, sampler=RandomSampler(range(4)))
        return torch.rand(1, generator=generator).item()

    assert len(set(values(run_world(2, own)))) == 2
    entry.says("draw from a torch.Generator of your own, seeded with the base seed plus idist.get_rank().")
    entry.says("either all ranks were given the same seed, or a sampler", "the ranks draw different numbers")


@symptom("a-timeout-or-node_rank-given-to-parallel-has-no-effect")
def arguments_dropped(entry):
    def dropped(rank):
        with idist.Parallel("gloo", timeout=7, nnodes=5, node_rank=3, no_such_name=1):
            return group_timeout(), idist.get_nnodes()

    out = run_world(2, dropped, init=None)[0]
    timeout, nodes = values([out])[0]
    assert nodes == 1
    assert "timeout" not in out.output and "node_rank" not in out.output and not out.warnings
    entry.says("nothing is logged")
    entry.says("without nproc_per_node, idist.Parallel drops every other argument except init_method")

    def unknown():
        notebook()
        with idist.Parallel("gloo", nproc_per_node=2, no_such_name=1) as parallel:
            parallel.run(lambda local_rank: None)

    values([run_serial(unknown)])
    entry.says("with it, also unknown names pass.")
    fix = 'idist.initialize("gloo", timeout=timedelta(seconds=7))'

    def fixed(rank):
        evaluate(fix)
        with evaluate("idist.Parallel()") as parallel:
            parallel.run(lambda local_rank: None)
            return group_timeout()

    given = values(run_world(2, fixed, init=None))[0]
    entry.says(f"{fix} and then idist.Parallel().")
    entry.says(f"the group waits {given.seconds} seconds, not {timeout.seconds // 60} minutes")


@symptom("it-works-in-one-process-and-fails-in-two")
def serial_checks_nothing(entry):
    calls = ('idist.all_reduce("a")', 'idist.all_reduce(1, "MEAN")', "idist.new_group([5])")
    given = ("a", 1, [5])
    for call, value in zip(calls, given):
        assert values([run_serial(lambda: evaluate(call))]) == [value]
        assert run_world(2, lambda rank: evaluate(call))[0].error
    entry.says(f"in serial nothing is checked: {calls[0]}, {calls[1]} and {calls[2]} all return their input.")
    check = 'idist.Parallel(backend="gloo", nproc_per_node=2)'

    def two():
        notebook()
        with evaluate(check) as parallel:
            parallel.run(lambda local_rank: evaluate(calls[0]))

    assert raised(run_serial(two), "ProcessRaisedException")
    entry.says(f"run with two local processes: {check}.")
    assert "all_reduce" in run_serial(two).message
    assert values([run_serial(lambda: idist.all_reduce(1.0))]) == [1.0]  # repaired, as the text asks
    assert values(run_world(2, lambda rank: idist.all_reduce(1.0))) == [2.0, 2.0]
    entry.says("what the two-process run names. Proof both runs pass")


@symptom("a-broadcast-number-is-not-exact")
def broadcast_is_float32(entry):
    sent = 2**24 + 1
    got = values(run_world(2, lambda rank: idist.broadcast(sent if rank == 0 else 0)))
    assert got[0] == got[1] != sent
    entry.says(f"idist.broadcast sends numbers as 32-bit floats: {sent} arrives as {got[1]}, on the source too.")
    fix = "torch.tensor(value)"
    tensors = run_world(2, lambda rank: idist.broadcast(evaluate(fix, value=sent if rank == 0 else 0)).item())
    assert values(tensors) == [sent, sent]
    entry.says(f"broadcast a tensor: {fix}.")
    entry.says("compare with the sent value.", "the value arrives as it was")


@symptom("oppreamblelength--opnbytes")
def shapes_differ(entry):
    def epoch_metric(rank):
        metric = EpochMetric(lambda y_pred, y: 0.0, check_compute_fn=False)
        n = 3 * (rank + 1)
        metric.update((torch.ones(n, 1), torch.ones(n, 1)))
        return metric.compute()

    def uneven(rank):
        for _ in range(2 + rank):
            idist.all_reduce(torch.ones(5000))
        return [idist.all_reduce(1) for _ in range(2)]

    programs = (
        lambda rank: idist.all_gather(torch.ones(2 + rank, 3)),
        uneven,
        lambda rank: idist.all_reduce(torch.ones(5000) if rank else 1),
        lambda rank: idist.all_reduce(torch.ones(5000 + 4000 * rank)),
        lambda rank: idist.all_reduce(torch.ones(2, dtype=torch.float64 if rank else torch.float32)),
        epoch_metric,
    )
    numbers = []
    for program in programs:
        outcomes = run_world(2, lambda rank: (faulthandler.disable(), program(rank)))  # an abort is expected
        aborted = [out for out in outcomes if out.exit_code == -signal.SIGABRT]
        assert [out.rank for out in aborted] == [0], outcomes  # the one whose tensor is shorter
        entry.heading(aborted[0].output)
        assert (name := "gloo::EnforceNotMet") in aborted[0].output
        numbers.append(tuple(map(int, re.search(r"op\.nbytes\. (\d+) vs (\d+)", aborted[0].output).groups())))
    itemsize = torch.ones(1).element_size()
    assert numbers[0] == tuple(rows * 3 * itemsize // 2 for rows in (3, 2)), numbers  # half of it at a time
    assert all(sent > wanted for sent, wanted in numbers)
    entry.says(
        f"{name} is thrown in the rank with the shorter tensor; its numbers are the bytes sent by the other and those"
        f" awaited, of a part of it: {numbers[0][0]} vs {numbers[0][1]} where all_gather met 3 × 3 and 2 × 3 float32."
    )
    entry.says(
        f"gloo ended a rank (exit code {aborted[0].exit_code}): in one collective the ranks had different shapes"
    )
    entry.says("Or they were in different collectives: one had left its loop, or ran an evaluation that the others did")
    entry.says("that the others did not.")
    entry.says("for different collectives Hangs at the last batch of an epoch")
    entry.says("and Hangs with the ranks in different places.")
    entry.says("different shapes or dtypes; also EpochMetric and its kin with different numbers of samples.")
    unnoticed = values(run_world(2, lambda rank: idist.all_gather(torch.ones((2, 3) if rank else (3, 2))).shape))
    assert list(map(tuple, unnoticed)) == [(6, 2), (4, 3)]
    entry.says("equal sizes of other shape pass unnoticed.")
    gather, shapes = "idist.all_gather_tensors_with_shapes(t, shapes)", "shapes = idist.all_gather(list(t.shape))"

    def fixed(rank):
        names = {"idist": idist, "t": torch.full((2 + rank, 3), float(rank))}
        exec(shapes, names)
        return [tuple(t.shape) for t in evaluate(gather, **names)]

    assert values(run_world(2, fixed)) == [[(2, 3), (3, 3)]] * 2
    entry.says(f"for lengths that differ {gather} with {shapes}; for different collectives")
    entry.says("each rank holds a list of all tensors")
    entry.says("The other rank sees a reset connection or, worse, goes on with garbage")
    entry.says("print shape and dtype on each rank just before. Fix same dtype and shape")


@symptom("unhandled-input-type-class-")
def input_type(entry):
    for wrong in ([1], {"a": 1}, array("f", [1.0])):
        entry.heading(raised(run_world(2, lambda rank: idist.all_reduce(wrong))[0], "TypeError"))
        guilty, peer = run_world(2, lambda rank: idist.broadcast(wrong if rank == 0 else 1.0))
        entry.heading(raised(guilty, "TypeError"))
        assert "by peer" in peer.message
    from pathlib import Path

    assert values(run_world(2, lambda rank: idist.broadcast("ab"))) == ["ab", "ab"]
    assert values(run_world(2, lambda rank: idist.broadcast(Path("ab")))) == [Path("ab")] * 2
    entry.says("idist.all_reduce takes tensors and numbers, idist.broadcast also str and Path; no list, dict or array.")
    fix = "torch.as_tensor(x)"
    assert values(run_world(2, lambda rank: idist.all_reduce(evaluate(fix, x=[1, 2])).tolist())) == [[2, 4]] * 2
    assert values(run_world(2, lambda rank: idist.all_gather({"rank": rank}))) == [[{"rank": 0}, {"rank": 1}]] * 2
    entry.says(f"{fix}; objects go through idist.all_gather.")
    entry.says("the type on the rank that raises", "all ranks pass")
    entry.says("On the other ranks this is a hang or a closed connection.")


@symptom("unsupported-reduction-operation-")
def operation(entry):
    accepted = []
    for op in ("SUM", "PRODUCT", "MIN", "MAX", "AND", "OR", "AVG", "MEAN", "sum"):
        out = run_world(1, lambda rank: idist.all_reduce(1, op))[0]
        if out.ok:
            accepted.append(op)
        else:
            entry.heading(raised(out, "ValueError"))
    entry.says(f"the gloo and nccl operations are {', '.join(accepted)}, in capitals, as str.", "op=.")
    fix = "idist.all_reduce(x) / idist.get_world_size()"
    assert values(run_world(2, lambda rank: evaluate(fix, x=float(rank)))) == [0.5, 0.5]
    entry.says(f"a mean is {fix}.", "it equals the mean")


@symptom("argument-ranks-should-be-list-of-int")
def ranks_of_group(entry):
    for ranks in ((0, 1), range(2), torch.arange(2)):
        entry.heading(raised(run_world(2, lambda rank: idist.new_group(ranks))[0], "ValueError"))
        assert run_serial(lambda: idist.new_group(ranks)).error == "ValueError"
    entry.says("idist.new_group takes a list, no tuple, range or tensor.", "type(ranks).")
    fix = "idist.new_group(list(ranks))"
    values(run_world(2, lambda rank: evaluate(fix, ranks=range(2)) and None))
    entry.says(fix, "it returns a group")


@symptom("rank--is-out-of-range")
def rank_not_in_world(entry):
    entry.heading(raised(run_world(2, lambda rank: idist.new_group([0, 2]))[0], "ValueError"))
    values(run_world(2, lambda rank: idist.new_group([0, 1]) and None))
    entry.says("a rank in idist.new_group that the world does not have.", "ranks from 0 to the world size less 1.")
    entry.says("idist.get_world_size(). Fix ranks from", "it returns a group")


@symptom("argument-group-should-be-list-of-int-or-processgroup-got--group")
def group_argument(entry):
    for group in ((0, 1), "ab", range(2)):
        entry.heading(raised(run_world(2, lambda rank: idist.all_reduce(1, group=group))[0], "ValueError"))
    entry.says("group= got a tuple, a str or a range.", "type(group).")
    entry.says(
        "a list of ranks, or better the result of idist.new_group, made once: a list makes a new group at every call"
    )

    def fixed(rank):
        group = idist.new_group([0])
        return idist.all_reduce(rank + 5, group=group)

    assert values(run_world(2, fixed)) == [5, 6]
    entry.says("members reduce, the others get their input back")


@symptom("source-data-can-not-be-none")
def broadcast_none(entry):
    source, peer = run_world(2, lambda rank: idist.broadcast(None if rank == 0 else 1.0))
    entry.heading(raised(source, "ValueError"))
    peer, other = run_world(2, lambda rank: idist.broadcast(None if rank else torch.ones(2)))
    entry.quotes(raised(other, "ValueError"))
    assert "by peer" in peer.message
    entry.quotes(raised(run_serial(lambda: idist.broadcast(None)), "ValueError"))
    entry.says("the source rank of idist.broadcast has nothing to send.", "the value on the rank src.")
    entry.says("while the source waits or loses its peer; in serial it is Argument tensor should not be None.")
    fix = "idist.broadcast(x, src=0, safe_mode=True)"
    assert values(run_world(2, lambda rank: evaluate(fix, x=None if rank else 7.0))) == [7.0, 7.0]
    entry.says(f"{fix} on all ranks", "every rank holds the source's value")
    entry.says("On other ranks None raises Argument")


@symptom("processgroupgloobroadcast-invalid-root-rank-")
def no_such_source(entry):
    entry.heading(raised(run_world(2, lambda rank: idist.broadcast(1.0, src=2))[0], "RuntimeError"))
    assert values([run_serial(lambda: idist.broadcast(1.0, src=2))]) == [1.0]
    fix = "src=0"
    assert values(run_world(2, lambda rank: evaluate(f"idist.broadcast(float(rank), {fix})", rank=rank))) == [0.0, 0.0]
    entry.says("src is no rank of this world; in serial any src passes.", f"**Fix** {fix}.")
    entry.says("Check idist.get_world_size().", "the broadcast returns")


@symptom("utf-8-codec-cant-decode-byte-")
def not_ascii(entry):
    text = "é"
    for call in (idist.broadcast, idist.all_gather):
        entry.heading(raised(run_world(2, lambda rank: call(text))[0], "UnicodeDecodeError"))
    entry.says(
        "a str with letters outside ASCII in idist.broadcast or idist.all_gather: characters are counted where bytes"
    )
    check, fix = "text.isascii()", "idist.all_gather([text])[0][0]"
    assert evaluate(check, text=text) is False
    assert values(run_world(2, lambda rank: evaluate(fix, text=text if rank == 0 else ""))) == [text, text]
    entry.says(check, f"send it inside a list through idist.all_gather: {fix} is rank 0's.")
    entry.says("are counted where bytes are sent.", "the text arrives whole")


@symptom("rank-should-be-between-0-and--but-given-")
def one_rank_first_limits(entry):
    def program(_, **kwargs):
        with idist.one_rank_first(**kwargs):
            return idist.get_nproc_per_node()

    for kwargs in ({"rank": 2}, {"rank": 2, "local": True}):
        entry.heading(raised(run_world(2, lambda r: program(r, **kwargs))[0], "ValueError"))
    assert values(run_world(2, lambda r: program(r, rank=1, local=True))) == [2, 2]
    entry.says("with local=True the limit is the number of processes on the node.", "idist.get_nproc_per_node().")
    import inspect

    default = inspect.signature(idist.one_rank_first).parameters["rank"].default
    assert values(run_world(2, program)) == [2, 2]
    entry.says("idist.one_rank_first got a rank that does not exist", f"leave the default {default}.")
    entry.says("the block runs on every rank")


@symptom("current-torch-version-does-not-implement-distall_gather_object-required-version-should-be-170")
def torch_too_old(entry):
    def program(rank):
        torch.__version__ = "1.6.0"  # what an old torch says of itself
        return idist.all_gather({"a": 1})

    entry.heading(raised(run_world(2, program)[0], "RuntimeError"))
    fix = 'idist.all_gather({"a": 1})'
    assert values(run_world(2, lambda rank: evaluate(fix))) == [[{"a": 1}] * 2] * 2
    tensors = run_world(2, lambda rank: (setattr(torch, "__version__", "1.6.0"), idist.all_gather(torch.ones(1)))[1])
    assert [t.tolist() for t in values(tensors)] == [[1.0, 1.0]] * 2  # even the old one gathers tensors
    entry.says("update torch, or gather tensors")
    entry.says("a torch far too old for idist.all_gather of objects.", "torch.__version__.", f"{fix} returns a list")
    assert python_c("import torch; print(torch.__version__)") == torch.__version__


@symptom("internal-error-unhandled-dtype--encoded_msg")
def internal_errors(entry):
    def mixed(rank):
        if rank == 0:
            idist.all_reduce(torch.full((512,), 9), "MAX")
        else:
            idist.broadcast(None, src=0, safe_mode=True)

    entry.heading(raised(run_world(2, mixed)[1], "RuntimeError"))
    entry.says(
        "with safe_mode=True the source first tells the others what comes; this rank met another collective instead."
    )
    x_none = run_world(1, lambda rank: idist.utils._model._setup_placeholder(None, torch.device("cpu"), True))[0]

    def without_tensor(rank):
        idist.utils._model._setup_placeholder = lambda tensor, device, is_src: None
        idist.broadcast(1.0, safe_mode=True)

    tensor_none = run_world(1, without_tensor)[0]
    for out in (x_none, tensor_none):
        entry.quotes(raised(out, "RuntimeError"))
    entry.says(f"Two more guards, {x_none.message} and {tensor_none.message}, no public call should reach.")
    fix = "idist.broadcast(None if rank else 3.0, src=0, safe_mode=True)"
    assert values(run_world(2, lambda rank: evaluate(fix, rank=rank))) == [3.0, 3.0]
    entry.says(
        "that all ranks are in the same idist.broadcast. Fix the order of the calls. Proof the broadcast returns"
    )
