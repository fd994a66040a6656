"""Proofs of the prose of the workflows page of the handlers room; its programs are run by test_examples_run.py."""

from __future__ import annotations

import inspect
import warnings

import ignite.distributed as idist
import torch
from ignite.engine import Engine, Events
from ignite.handlers import (
    Checkpoint,
    CosineAnnealingScheduler,
    EarlyStopping,
    EMAHandler,
    FastaiLRFinder,
    TensorboardLogger,
    create_lr_scheduler_with_warmup,
)
from ignite.handlers.base_logger import BaseLogger
from probes import handlers as probe
from support.claims import proves
from support.pages import find_entry, read_page
from support.world import run_world, values
from torch import nn

from .api_reference import Recorder, train
from .api_reference_schedulers import lrs

PAGE = "sub-skills/handlers/references/workflows.md"


def at(anchor: str):
    return proves(f"{PAGE}#{anchor}")


@at("workflows-with-ignitehandlers")
def intro(entry):
    entry.says(
        "Complete programs: copy the file, run the command, compare the output. All run on a CPU in seconds; what to"
        " change for your training stands below each."
    )
    entry.says(*(e.heading for e in read_page(PAGE).entries if e.level == 2))


@at("save-and-resume")
def resume(entry):
    recorder = Recorder()
    train(Checkpoint({"model": nn.Linear(1, 1), "o": probe.optimizer()}, recorder, include_self=True))
    assert "checkpointer" in recorder.contents[0]
    entry.says("The file holds everything that has a state; the handler's own list of files is in it too"
               " (`include_self`)."
               " The second run continues at the next epoch.")  # fmt: skip
    rank = inspect.signature(Checkpoint).parameters["save_on_rank"].default
    entry.says(f"Several ranks: run it on all of them; rank {rank} writes, every rank loads.")


@at("keep-the-best-stop-early")
def best(entry):
    assert inspect.signature(EarlyStopping).parameters["mode"].default == "max"
    assert "mode" not in inspect.signature(Checkpoint).parameters
    entry.says("Both sit on the evaluator, both take the trainer's epoch, and the loss is turned round for the"
               " one and not"
               " for the other.")  # fmt: skip
    entry.says("Several ranks: the score has to be the same on all of them, as that of an Ignite metric is.")


@at("warm-up-then-decay")
def warmup(entry):
    planned = [None] * 6

    def make(o):
        decay = CosineAnnealingScheduler(o, "lr", 1.0, 0.0, cycle_size=4)
        return create_lr_scheduler_with_warmup(decay, 0.0, 3, output_simulated_values=planned)

    assert lrs(make, n=6) == probe.listed(lr for _, lr in planned)
    entry.says("`simulate_values`, or the argument below, shows the schedule without a training.")
    program = find_entry(f"{PAGE}#warm-up-then-decay").fences[0].text
    assert "epochs, batches, warmup = " in program and "\nscheduler = " in program
    entry.says("Your training: `len(loader)` for `batches`; save `scheduler` in the checkpoint.")


@at("a-scheduler-of-torch")
def by_hand(entry):
    rows = probe.torch_table()[1:]
    other = [row for row in rows if row[1] != row[2]]
    assert len(other) > len(rows) / 2
    entry.says("Stepped by hand, once per iteration or once per epoch; wrapped in `LRScheduler` most of them give other"
               " values.")  # fmt: skip
    scheduler = torch.optim.lr_scheduler.ExponentialLR(o := probe.optimizer(), 0.5)
    engine = Engine(lambda e, b: o.step())
    engine.add_event_handler(Events.EPOCH_COMPLETED, lambda: scheduler.step())
    engine.run([1, 2], max_epochs=2)
    assert scheduler.get_last_lr() == [0.25]
    entry.says("Per epoch: `Events.EPOCH_COMPLETED`.")


@at("average-the-weights")
def average(entry):
    def on_rank(rank):
        model = nn.Linear(1, 1)
        before = EMAHandler(model)
        after = EMAHandler(idist.auto_model(model))
        return before.model is model and after.model is model

    assert values(run_world(2, on_rank)) == [True, True]
    entry.says("The average is a module of its own: evaluate with it, and save it beside the model.")
    entry.says("Several ranks: build the handler on the model before or after `idist.auto_model`; each rank"
               " averages its"
               " own, equal, weights.")  # fmt: skip


@at("find-a-learning-rate")
def finder(entry):
    ran = []
    engine = Engine(lambda e, b: 1.0)
    engine.add_event_handler(Events.COMPLETED, lambda: ran.append(1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with FastaiLRFinder().attach(engine, {"optimizer": probe.optimizer(1e-3)}) as trainer:
            trainer.run([1], max_epochs=1)
    assert ran
    entry.says("Attach other handlers afterwards: the search runs them all.")


@at("log-to-a-file-without-a-package")
def csv(entry):
    entry.says("A logger of your own takes its metrics, names and steps from the same base class as the others.")
    program = find_entry(f"{PAGE}#log-to-a-file-without-a-package").fences[0].text
    assert "class CSVLogger(BaseLogger)" in program and issubclass(TensorboardLogger, BaseLogger)
    with probe.stand_ins() as modules:
        TensorboardLogger(log_dir="logs")
        assert modules["tensorboardX"].SummaryWriter.call_args.kwargs == {"log_dir": "logs"}
    entry.says("With a package: `TensorboardLogger(log_dir=\"logs\")` in place of `CSVLogger`, the rest as it is.")


@at("several-ranks")
def ranks(entry):
    program = find_entry(f"{PAGE}#several-ranks").fences[0].text
    rank = program.partition("\n    if rank == ")[2].partition(":")[0]
    entry.says(
        f"The checkpoint is on every rank, whatever shows or logs is on rank {rank} only, and the decision to"
        f" stop is made"
        " from a value that all ranks share."
    )
    entry.says("More nodes: nothing in the handlers; start it as in the distributed room.")
