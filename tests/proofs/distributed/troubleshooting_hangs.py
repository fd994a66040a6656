"""Proofs: the opening of the page, its contents, and the hangs: who waits in which frame, and that the fix frees it."""

from __future__ import annotations

import json
import os
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import ignite.distributed as idist
import torch
import torch.distributed as dist
from ignite.engine import Engine, Events
from ignite.handlers import DiskSaver, EarlyStopping, TerminateOnNan
from ignite.metrics import Accuracy, RunningAverage
from support.explain import LOGS, SCRIPT, cases, verdict
from support.hanging import hanging, inspect, inspect_job, play
from support.pages import read_page
from support.world import run_serial, run_world, values
from torch import nn
from torch.utils.data import Sampler

from .troubleshooting_tools import PAGE, evaluate, group_timeout, python_c, raised, standing, stuck, symptom, waited


@symptom("troubleshooting-ignitedistributed")
def opening(entry):
    def program(rank):
        if rank == 1:
            raise ValueError("the first error")
        idist.all_reduce(1)

    victim, guilty = run_world(2, program)
    assert "by peer" in raised(victim, "RuntimeError") and guilty.error == "ValueError"
    torchrun = verdict(LOGS / "torchrun-raise.log")
    assert torchrun["guilty_ranks"] == [cases()["torchrun-raise"][3]] and torchrun["victims"], torchrun
    entry.says("With several ranks, explain the first error by time: the other ranks' Connection closed by peer is "
               f"only its echo; in a log that is long or of many ranks, {SCRIPT.name} finds the first.")
    found = [e for e in read_page(PAGE[:-1]).entries if "Means" in e.text and e is not entry.entry]
    assert found and all(e.text.index("Means") < e.text.index("Proof") for e in found)
    entry.says("Search this page for the text that you see.",
               "Entries read: what it means, how to check, the fix, what proves the fix.")
    hidden = [e for e in read_page(PAGE[:-1]).entries if "not verified here" in e.text and e is not entry.entry]
    assert hidden
    entry.says("What could not be run on CPU with gloo says not verified here and names its source.")


@symptom("contents")
def contents(entry):
    for other in read_page(PAGE[:-1]).entries:
        if other.level >= 2 and other.anchor != "contents":
            entry.says(other.heading)


@symptom("it-hangs")
def it_hangs(entry):
    def default(rank):
        idist.initialize("gloo")
        return group_timeout()

    timeout = values(run_world(1, default, init=None))[0]
    minutes, rest = divmod(timeout, timedelta(minutes=1))
    assert not rest
    entry.says(
        f"until the timeout of the group, {minutes} minutes unless you gave one to idist.initialize or idist.spawn."
    )
    seconds = 60
    code = f"faulthandler.dump_traceback_later({seconds})"

    def hang(rank):
        import faulthandler

        evaluate(code.replace(str(seconds), "0.3"), faulthandler=faulthandler)
        if rank == 0:
            idist.all_reduce(1)

    out = standing(hang, timeout=1.0)[0]
    waited(out)
    assert "in all_reduce" in out.output
    with tempfile.TemporaryDirectory() as folder:
        with hanging(play("sleeps", folder), folder, ["0.ready", "1.ready", "2.ready"]) as pid:
            said = json.loads(inspect(pid, "--interval", "0.3", "--format", "json")[1])["verdict"]
    assert said["guilty_ranks"] == [1] and said["where"]["function"] == "load_batch", said
    name = Path(inspect_job.__file__).name
    entry.says(f"While the job hangs, python {name} PID with {name} names the rank that the others wait for, and its "
               "line, without a restart. Or start again:")
    entry.says("Ranks that wait for each other print nothing",
               "The innermost Ignite line tells the cases apart: the rank in a collective is a victim; look for "
               "the rank "
               "that is somewhere else.")
    entry.says(f"put {code} at the top of the script: after {seconds} seconds every rank prints its stack")


@symptom("hangs-when-a-checkpoint-handler-is-built")
def first_call_on_one_rank(entry):
    guard = "if rank == 0:"
    for call in (lambda folder: DiskSaver(folder, require_empty=False), lambda folder: idist.get_rank()):
        with tempfile.TemporaryDirectory() as folder:

            def program(rank):
                if rank == 0:
                    call(folder)

            stack = stuck(program, init="torch", timeout=1)
        assert "in _compute_nproc_per_node" in stack, stack
    entry.says("one rank is in _compute_nproc_per_node, below the first Ignite call of the program")
    entry.says(f"and it stood under {guard} (a DiskSaver, a metric, idist.get_rank())")
    entry.says("The timeout of your group does not end this one.")
    fix = "idist.sync()"

    def fixed(rank):
        evaluate(fix)
        with tempfile.TemporaryDirectory() as folder:
            return DiskSaver(folder, require_empty=False) is not None if rank == 0 else None

    assert values(run_world(2, fixed, init="torch")) == [True, None]
    entry.says(f"{fix} on every rank right after dist.init_process_group; or let idist.initialize create the group")

    def everywhere(rank):
        with tempfile.TemporaryDirectory() as folder:
            DiskSaver(folder, require_empty=False)({"a": torch.ones(1)}, "x.pt")
            return os.listdir(folder)

    assert values(run_world(2, everywhere, init="torch")) == [["x.pt"], []]
    assert values(run_world(2, everywhere)) == [["x.pt"], []]  # idist.initialize creates the group
    entry.says("or let idist.initialize create the group; and build handlers on every rank: they write on one")
    entry.says("build handlers on every rank: they write on one", "rank 0 passes the constructor alone")
    entry.says("you created the process group yourself; Ignite's first call on it is a collective, and it stood")
    entry.says("which rank makes the first Ignite call")


def evaluation(attach: bool = True) -> dict:
    """Run an evaluator of two samples, one right, with accuracy."""
    evaluator = Engine(lambda engine, batch: (torch.tensor([0.0, 1.0]), torch.tensor([1, 1])))
    if attach:
        Accuracy().attach(evaluator, "accuracy")
    return evaluator.run([0]).metrics


@symptom("hangs-when-one-rank-evaluates-or-computes-a-metric")
def one_rank_evaluates(entry):
    guard = "if rank == 0:"
    out = standing(lambda rank: evaluation() if rank == 0 else None)[0]
    waited(out, "metrics/metric.py", "in all_reduce")

    def running(rank):
        trainer = Engine(lambda engine, batch: 1.0)
        if rank == 0:
            RunningAverage(output_transform=lambda x: x).attach(trainer, "loss")
        trainer.run([0, 1])

    waited(standing(running)[0], "metrics/metric.py", "in all_reduce")
    entry.says("one rank is in a collective below metric.py, the others in the next training step or in a barrier.")

    def early(rank):
        metric = Accuracy()
        metric.update((torch.tensor([0.0]), torch.tensor([1])))
        return None if rank else metric.compute()

    waited(standing(early)[0], "metrics/metric.py", "in all_reduce")
    entry.says(
        f"an evaluator under {guard}, a metric attached on one rank, or an early return on another leaves it waiting"
    )
    entry.says("that run, attach and compute are reached on all ranks")

    def fixed(rank):
        loader = idist.auto_dataloader(torch.arange(4), batch_size=2)
        evaluator = Engine(lambda engine, batch: (batch % 2, torch.ones_like(batch)))
        Accuracy().attach(evaluator, "accuracy")
        accuracy = evaluator.run(loader).metrics["accuracy"]
        if idist.get_rank() == 0:
            print(accuracy)
        return accuracy

    assert values(run_world(2, fixed)) == [0.5, 0.5]
    entry.says("evaluate on all ranks with idist.auto_dataloader; only print under idist.get_rank() == 0.")
    entry.says("all ranks hold the same metric")
    entry.says("metrics reduce over all ranks by themselves; an evaluator")


@symptom("hangs-in-the-forward-pass-on-one-rank")
def forward_on_one_rank(entry):
    def program(rank, inner=False):
        model = idist.auto_model(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
        for _ in range(2 if rank == 0 else 0):
            (model.module if inner else model)(torch.ones(4, 2))

    out = standing(program)[0]
    waited(out, "in forward", "nn/parallel/distributed.py")
    entry.says(
        "one rank is in forward of DistributedDataParallel.", "with buffers, as in batch norm, it broadcasts them"
    )
    entry.says("calls of the model under a rank condition")
    values(standing(lambda rank: program(rank, inner=True)))
    entry.says("call the inner model there: model.module.", "rank 0 alone gets its output")
    entry.says("the wrapped model was called on one rank only (a look at one sample, an export):")


@symptom("hangs-at-the-last-batch-of-an-epoch")
def uneven_batches(entry):
    def backward(rank, steps=lambda rank: 2 + rank):
        model = idist.auto_model(nn.Linear(1, 1))
        for _ in range(steps(rank)):
            model(torch.ones(1, 1)).sum().backward()
        return steps(rank)

    waited(standing(backward)[1], "backward")
    entry.says("it starts well;")
    waited(standing(lambda rank: [idist.all_reduce(1) for _ in range(2 + rank)])[1], "all_reduce")

    def loops(rank):
        trainer = Engine(lambda engine, batch: idist.all_reduce(batch))
        return trainer.run(range(2 + rank), epoch_length=2).iteration

    assert values(run_world(2, loops)) == [2, 2]
    assert values(run_world(2, lambda r: backward(r, lambda rank: 2))) == [2, 2]

    def once_after(rank):
        total = sum(1 for _ in range(2 + rank))
        return idist.all_reduce(total)

    assert values(run_world(2, once_after)) == [5, 5]
    lengths = run_world(2, lambda rank: len(idist.auto_dataloader(list(range(5)))))
    assert len(set(values(lengths))) == 1
    entry.says(
        "ranks have different numbers of batches (an IterableDataset, shards made by hand), or reduce inside the loop"
    )
    entry.says("print len(loader) or count the batches per rank")
    entry.says("a distributed sampler, or epoch_length= in run; reduce once after the loop")
    entry.says("one rank is in backward or a collective, another has left the loop.")
    entry.says("the same number everywhere: a distributed sampler", "each rank counts the same")


@symptom("hangs-at-a-barrier-in-a-handler-of-one-rank")
def barrier_in_one_rank_only(entry):
    def program(rank, call=lambda: idist.barrier()):
        @idist.one_rank_only()
        def handler():
            call()

        handler()

    waited(standing(program)[0], "utils.py", "in wrapper", "in handler", "in barrier")
    for call in (evaluation, lambda: idist.all_reduce(1)):
        waited(standing(lambda rank: program(rank, call))[0], "in wrapper", "in handler", "in all_reduce")
    entry.says("the decorated function for idist.barrier, a metric, idist.all_reduce.")
    assert idist.one_rank_only.__code__.co_filename.endswith("utils.py")
    entry.says("one rank is in barrier, called by your function below wrapper in utils.py, which is one_rank_only.")
    fix = "idist.one_rank_only(with_barrier=True)"

    def fixed(rank):
        evaluate(fix)(lambda: None)()
        return rank

    assert values(run_world(2, fixed)) == [0, 1]
    entry.says(f"{fix} and no barrier inside", "all ranks pass")
    entry.says("a collective inside a function that only one rank runs.")


@symptom("hangs-after-an-error-on-one-rank")
def error_skips_barrier(entry):
    def first(rank):
        with idist.one_rank_first():
            if rank == 0:
                raise OSError("disk full")

    def only(rank):
        @idist.one_rank_only(with_barrier=True)
        def handler():
            raise OSError("disk full")

        handler()

    for program, frame in ((first, "in one_rank_first"), (only, "in wrapper")):

        def swallowed(rank):
            try:
                program(rank)
            except OSError:
                pass

        waited(standing(swallowed)[1], "in barrier", frame)
        start = time.monotonic()
        guilty, victim = run_world(2, program)
        assert raised(guilty, "OSError") == "disk full" and "by peer" in victim.message
        assert time.monotonic() - start < 15
        assert f"in {program.__name__}" in guilty.traceback and "disk full" not in victim.output
    entry.says("the log of the rank that runs the block", "all ranks end within seconds")
    entry.says(
        "perhaps swallowed by your except; the others wait in barrier below one_rank_first, or directly below wrapper "
        "in utils.py, which is one_rank_only."
    )
    entry.says("both skip their barrier when the block raises on the first rank")
    entry.says("torchrun then ends the others and gloo tells them Connection closed by peer; do not catch")
    entry.says(
        "one log has a traceback, perhaps swallowed",
        "let the exception end the process: torchrun",
        "do not catch and go on on one rank.",
    )


@symptom("hangs-after-early-stopping")
def one_rank_stops(entry):
    def early(rank):
        trainer, evaluator = Engine(lambda engine, batch: None), Engine(lambda engine, batch: None)
        score = EarlyStopping(1, lambda engine: [-trainer.state.epoch, trainer.state.epoch][rank], trainer)
        evaluator.add_event_handler(Events.COMPLETED, score)
        trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda engine: evaluator.run([0]))
        return trainer.run([0], max_epochs=4).epoch

    outcomes = run_world(2, early)
    assert len(set(values(outcomes))) == 2
    entry.quotes(outcomes[0].output)
    assert "EarlyStopping: Stop training" in outcomes[0].output
    entry.says("one rank says EarlyStopping: Stop training or has left run; the others wait in the next collective")

    def nan(rank):
        trainer = Engine(lambda engine, batch: float("nan") if rank == 0 else 1.0)
        trainer.add_event_handler(Events.ITERATION_COMPLETED, TerminateOnNan())
        return trainer.run(range(3)).iteration

    def terminate(rank, collective=False, fix=None):
        engine = Engine(lambda engine, batch: idist.all_reduce(1) if collective else None)

        @engine.on(Events.ITERATION_COMPLETED)
        def decide(engine):
            stop = rank == 0 and engine.state.iteration == 2
            if fix:
                exec(fix, {"idist": idist, "stop": stop, "engine": engine})
            elif stop:
                engine.terminate()

        return engine.run(range(4)).iteration

    assert values(run_world(2, nan)) == [1, 3]
    assert values(run_world(2, terminate)) == [2, 4]
    waited(standing(lambda rank: terminate(rank, collective=True))[1], "all_reduce")
    entry.says("each rank decides alone: EarlyStopping, TerminateOnNan and terminate() look at local values")
    fix = 'if idist.all_reduce(int(stop), op="MAX"): engine.terminate()'
    assert values(run_world(2, lambda rank: terminate(rank, True, fix))) == [2, 2]
    entry.says(f"score by a metric that Ignite reduces, or by idist.all_reduce of your own flag: {fix}.")
    entry.says("that the score is the same on all ranks.", "all ranks stop in the same epoch")


@symptom("hangs-when-a-group-is-made")
def group_by_members(entry):
    values(standing(lambda rank: idist.new_group([0]) and None if rank == 0 else None))  # passes by itself
    for first in (lambda: idist.new_group([0]), lambda: idist.all_reduce(1, group=[0])):

        def program(rank):
            if rank == 0:
                first()
            idist.new_group([0, 1])

        stack = stuck(program, timeout=1)
        assert "in new_group" in stack, stack
    entry.says("one rank is in new_group; the timeout of your group does not end it.")
    entry.says("That call itself can pass, but ranks number their groups, so the next one never meets.")
    entry.says("around idist.new_group and around collectives with a list as group=, which make a group at each call")
    fix = "group = idist.new_group([0])"

    def fixed(rank):
        names = {"idist": idist}
        exec(fix, names)
        total = idist.all_reduce(rank + 1, group=names["group"]) if rank == 0 else None
        return total, idist.all_reduce(rank + 1, group=idist.new_group([0, 1]))

    assert values(run_world(2, fixed)) == [(1, 3), (None, 3)]
    entry.says("conditions around idist.new_group and")  # `program` above has one, `fixed` none
    entry.says(f"make every group on all ranks, members or not, in the same order: {fix}; then use it on its members")
    entry.says("a second group is made on all ranks")
    entry.says("an earlier group was made on some ranks only.")


class Nothing(Sampler):
    """Says that it has four items and yields none."""

    def __init__(self):
        pass

    def __len__(self):
        return 4

    def __iter__(self):
        return iter([])


@symptom("hangs-in-the-sampler-with-a-busy-cpu")
def empty_sampler(entry):
    stack = stuck(lambda rank: rank or list(idist.DistributedProxySampler(Nothing(), 2, rank)), 0.5, busy=True)
    top = next(line for line in stack.splitlines() if "ignite/distributed" in line)
    assert "auto.py" in top and top.endswith("__iter__"), stack
    entry.says("the stack is in __iter__ of auto.py; no collective, one core at full load")
    assert evaluate("list(sampler)", sampler=Nothing()) == [] and len(Nothing()) == 4
    entry.says("and DistributedProxySampler draws until it has enough", "list(sampler) is empty")

    class Fixed(Nothing):
        def __iter__(self):
            return iter(range(len(self)))

    assert len(evaluate("list(sampler)", sampler=Fixed())) == evaluate("len(sampler)", sampler=Fixed())
    assert values([run_serial(lambda: list(idist.DistributedProxySampler(Fixed(), 2, 1)))]) == [[1, 3]]
    entry.says("the sampler. Proof list(sampler) has len(sampler) items")
    assert not dist.is_initialized() and python_c("print(1)") == "1"
    entry.says("your sampler has a length but yields nothing, and DistributedProxySampler")
