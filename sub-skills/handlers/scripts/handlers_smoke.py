#!/usr/bin/env python3
# /// script
# requires-python = ">=3.10"
# dependencies = ["torch>=2.0", "pytorch-ignite>=0.4.13", "numpy"]
# ///
"""Check ignite.handlers on this machine: one check per public name, each against a value computed by hand.

Needs torch and pytorch-ignite only. Each check runs in a fork of its own, in an empty folder; trackers with an account
are stood in for, so nothing leaves the machine. What handlers do on several ranks: distributed_smoke.py.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from unittest.mock import MagicMock, patch

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts"))
import smoke_runner  # noqa: E402
from smoke_runner import check, expect, expect_raises  # noqa: E402

with smoke_runner.imports():
    import ignite.handlers as handlers
    import torch
    from ignite.engine import Engine, Events
    from ignite.handlers import checkpoint as checkpointing
    from torch import nn


def optimizer(lr=1.0):
    return torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=lr)


def run(handler=None, event=None, data=(1, 2, 3), max_epochs=1, step=lambda engine, batch: float(batch), before=None):
    """Run an engine with the handler attached at the event (default: end of an epoch), and return it."""
    engine = Engine(step)
    if before:
        before(engine)
    if handler:
        engine.add_event_handler(event or Events.EPOCH_COMPLETED, handler)
    engine.run(list(data), max_epochs=max_epochs)
    return engine


def learning_rates(scheduler, n=5):
    """The rates that n steps use when the scheduler is attached at ITERATION_STARTED."""
    used = []
    groups = scheduler.optimizer_param_groups
    run(scheduler, Events.ITERATION_STARTED, range(n), step=lambda e, b: used.append(round(groups[0]["lr"], 6)))
    return used


def state_values(scheduler, n=4):
    """The values that a state scheduler sets at its first n events."""
    seen = []
    run(lambda e: seen.append(e.state.p), Events.ITERATION_COMPLETED, range(n), before=scheduler.attach)
    return [round(float(v), 6) for v in seen]


# Saving


@check("Checkpoint")
def _():
    """Saving, the names of the files, or loading has changed: checkpoints of other releases may not fit."""
    model, scores = nn.Linear(1, 1), iter([0.1, 0.9, 0.5])
    handler = handlers.Checkpoint(
        {"model": model, "optimizer": optimizer()}, "d", n_saved=2, score_name="acc",
        score_function=lambda e: next(scores), global_step_transform=lambda e, event: e.state.epoch)  # fmt: skip
    run(handler, max_epochs=3)
    expect("files", sorted(os.listdir("d")), ["checkpoint_2_acc=0.9000.pt", "checkpoint_3_acc=0.5000.pt"])
    expect("best", handler.last_checkpoint.name, "checkpoint_2_acc=0.9000.pt")
    saved = model.weight.detach().clone()
    nn.init.constant_(model.weight, 7.0)
    handlers.Checkpoint.load_objects({"model": model}, handler.last_checkpoint)
    expect("weight after loading", model.weight.detach(), saved)


@check("ModelCheckpoint")
def _():
    handler, engine = handlers.ModelCheckpoint("d", "p", n_saved=None), Engine(lambda e, b: None)
    engine.add_event_handler(Events.EPOCH_COMPLETED, handler, {"m": nn.Linear(1, 1)})
    engine.run([1, 2], max_epochs=2)
    expect("files", sorted(os.listdir("d")), ["p_m_2.pt", "p_m_4.pt"])


@check("DiskSaver")
def _():
    handlers.DiskSaver("d")({"a": 1}, "f.pt")
    expect("content", torch.load("d/f.pt"), {"a": 1})
    expect_raises("a folder with files", ValueError, "already present", handlers.DiskSaver, "d")
    handlers.DiskSaver("d", require_empty=False).remove("f.pt")
    expect("files after remove", os.listdir("d"), [])


@check("BaseSaveHandler")
def _():
    class Save(checkpointing.BaseSaveHandler):
        done = []

        def __call__(self, checkpoint, filename, metadata=None):
            self.done.append(filename)

        def remove(self, filename):
            self.done.append(f"-{filename}")

    run(handlers.Checkpoint({"m": nn.Linear(1, 1)}, Save()), max_epochs=2)
    expect("calls", Save.done, ["m_3.pt", "-m_3.pt", "m_6.pt"])


@check("CheckpointEvents", since="0.5.3")
def _():
    engine, seen = Engine(lambda e, b: None), []
    engine.register_events(*checkpointing.CheckpointEvents)
    engine.add_event_handler(handlers.Checkpoint.SAVED_CHECKPOINT, lambda: seen.append(engine.state.epoch))
    engine.add_event_handler(Events.EPOCH_COMPLETED, handlers.Checkpoint({"m": nn.Linear(1, 1)}, "d"))
    engine.run([1], max_epochs=2)
    expect("epochs at which it fired", seen, [1, 2])


# Steps and stopping


@check("global_step_from_engine")
def _():
    trainer = run(max_epochs=2)
    step = handlers.global_step_from_engine(trainer)
    expect("step at COMPLETED", step(Engine(lambda e, b: None), Events.COMPLETED), 2)
    expect("step at ITERATION_COMPLETED", step(Engine(lambda e, b: None), Events.ITERATION_COMPLETED), 6)


@check("EarlyStopping")
def _():
    scores, trainer = iter([1.0, 3.0, 2.0, 2.0, 9.0]), Engine(lambda e, b: None)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, handlers.EarlyStopping(2, lambda e: next(scores), trainer))
    trainer.run([1], max_epochs=5)
    expect("epoch of the stop", trainer.state.epoch, 4)


@check("TerminateOnNan")
def _():
    data = [1.0, float("nan"), 2.0]
    expect("iteration of the stop", run(handlers.TerminateOnNan(), Events.ITERATION_COMPLETED, data).state.iteration, 2)
    expect("iterations without NaN", run(handlers.TerminateOnNan(), Events.ITERATION_COMPLETED).state.iteration, 3)


@check("TimeLimit")
def _():
    late, early = handlers.TimeLimit(100), handlers.TimeLimit(100)
    late.start_time -= 101
    expect("iterations past the limit", run(late, Events.ITERATION_COMPLETED).state.iteration, 1)
    expect("iterations within it", run(early, Events.ITERATION_COMPLETED).state.iteration, 3)


# Averages, outputs, time


@check("EMAHandler")
def _():
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    ema = handlers.EMAHandler(model, momentum=0.5)
    run(step=lambda e, b: nn.init.ones_(model.weight), before=ema.attach)
    expect("average of 0 and three 1s", ema.ema_model.weight.item(), 0.875)


@check("EpochOutputStore")
def _():
    store = handlers.EpochOutputStore(lambda output: output * 2)
    run(max_epochs=2, before=store.attach)
    expect("outputs of the last epoch", store.data, [2.0, 4.0, 6.0])


@check("Timer")
def _():
    import time

    timer = handlers.Timer(average=True)

    def attach(engine):
        done = Events.ITERATION_COMPLETED
        timer.attach(engine, start=Events.STARTED, pause=done, resume=Events.ITERATION_STARTED, step=done)

    run(data=[1, 2], step=lambda e, b: time.sleep(0.02), before=attach)
    expect("steps", timer.step_count, 2.0)
    expect("at least what was slept", 0.02 <= timer.value() < 10, True)


@check("BasicTimeProfiler")
def _():
    profiler = handlers.BasicTimeProfiler()
    run(max_epochs=2, before=profiler.attach)
    expect("iterations timed", int((profiler.processing_times > 0).sum()), 6)
    expect("results", list(profiler.get_results()),
           ["processing_stats", "dataflow_stats", "event_handlers_stats", "event_handlers_names"])  # fmt: skip


@check("HandlersTimeProfiler")
def _():
    def mine(engine):
        pass

    profiler = handlers.HandlersTimeProfiler()
    run(mine, before=profiler.attach)
    rows = profiler.get_results()
    expect("rows", [("mine" in rows[0][0]), *(row[0] for row in rows[1:])], [True, "Total", "Processing", "Dataflow"])


# Parameter schedulers


@check("BaseParamScheduler")
def _():
    class Half(handlers.BaseParamScheduler):
        def get_param(self):
            return 0.5

        @classmethod
        def simulate_values(cls, num_events, **kwargs):
            return [[i, 0.5] for i in range(num_events)]

    expect("state", dict(Half("p").state_dict()), {"event_index": 0, "param_name": "p", "save_history": False})
    other = Half("p")
    other.load_state_dict({"event_index": 3, "param_name": "p", "save_history": False})
    expect("event after loading", other.event_index, 3)


@check("ParamScheduler")
def _():
    class Count(handlers.ParamScheduler):
        def get_param(self):
            return float(self.event_index)

    expect("rates", learning_rates(Count(optimizer(), "lr"), 3), [0.0, 1.0, 2.0])


@check("CyclicalScheduler")
def _():
    class Flat(handlers.CyclicalScheduler):
        def get_param(self):
            return self.start_value

    rates = learning_rates(Flat(optimizer(), "lr", 1.0, 0.0, cycle_size=2, start_value_mult=0.5))
    expect("start value of each cycle of two", rates, [1.0, 1.0, 0.5, 0.5, 0.25])


@check("LinearCyclicalScheduler")
def _():
    expect("rates", learning_rates(handlers.LinearCyclicalScheduler(optimizer(), "lr", 0.0, 1.0, 4)),
           [0.0, 0.5, 1.0, 0.5, 0.0])  # fmt: skip


@check("CosineAnnealingScheduler")
def _():
    expect("rates", learning_rates(handlers.CosineAnnealingScheduler(optimizer(), "lr", 1.0, 0.0, 4)),
           [1.0, 0.853553, 0.5, 0.146447, 1.0])  # fmt: skip


@check("PiecewiseLinear")
def _():
    expect("rates", learning_rates(handlers.PiecewiseLinear(optimizer(), "lr", [(1, 1.0), (3, 0.0)])),
           [1.0, 1.0, 0.5, 0.0, 0.0])  # fmt: skip


@check("ConcatScheduler")
def _():
    o = optimizer()
    parts = [handlers.PiecewiseLinear(o, "lr", [(0, value)]) for value in (1.0, 2.0)]
    expect("rates", learning_rates(handlers.ConcatScheduler(parts, [3])), [1.0, 1.0, 1.0, 2.0, 2.0])


@check("ParamGroupScheduler")
def _():
    o = torch.optim.SGD([{"params": [nn.Parameter(torch.zeros(1))]} for _ in range(2)], lr=9.0)
    parts = [handlers.PiecewiseLinear(o, "lr", [(0, float(i))], param_group_index=i) for i in range(2)]
    run(handlers.ParamGroupScheduler(parts), Events.ITERATION_STARTED, [1])
    expect("rate of each group", [group["lr"] for group in o.param_groups], [0.0, 1.0])


@check("LRScheduler")
def _():
    """Wrapped torch schedulers give other rates than torch itself: step them yourself."""
    torch_scheduler = torch.optim.lr_scheduler.StepLR(optimizer(), 2, 0.5)
    expect("rates", learning_rates(handlers.LRScheduler(torch_scheduler)), [1.0, 1.0, 0.5, 0.5, 0.25])


@check("create_lr_scheduler_with_warmup")
def _():
    decay = handlers.CosineAnnealingScheduler(optimizer(), "lr", 1.0, 0.0, 4)
    rates = learning_rates(handlers.create_lr_scheduler_with_warmup(decay, 0.0, 3))
    expect("rates", rates, [0.0, 0.5, 1.0, 0.853553, 0.5])


@check("ReduceLROnPlateauScheduler")
def _():
    o, rates = optimizer(), []
    scheduler = handlers.ReduceLROnPlateauScheduler(o, "loss", factor=0.5, patience=1)
    engine = Engine(lambda e, b: None)
    engine.state.metrics["loss"] = 1.0
    for _ in range(5):
        scheduler(engine)
        rates.append(o.param_groups[0]["lr"])
    expect("rates at a constant loss", rates, [1.0, 1.0, 0.5, 0.5, 0.25])


@check("BatchSizeScheduler", since="0.5.4")
def _():
    loader, sizes = torch.utils.data.DataLoader(list(range(8)), batch_size=2), []
    engine = Engine(lambda e, b: sizes.append(len(b)))
    handlers.BatchSizeScheduler(loader, lambda i: 4).attach(engine)
    engine.run(loader, epoch_length=2)
    expect("sizes of the batches", sizes, [4, 4])


@check("FastaiLRFinder")
def _():
    import warnings

    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    model = nn.Linear(1, 1)
    o, before = torch.optim.SGD(model.parameters(), lr=1e-4), model.weight.item()

    def step(engine, x):
        o.zero_grad()
        loss = (model(x) - 3).pow(2).mean()
        loss.backward()
        o.step()
        return loss.item()

    trainer, finder = Engine(step), handlers.FastaiLRFinder()
    with finder.attach(trainer, to_save={"model": model, "optimizer": o}) as search:
        search.run([torch.ones(8, 1)] * 50, max_epochs=1)
    expect("weight after the search", model.weight.item(), before)
    expect("iteration after the search", trainer.state.iteration, 0)
    expect("a rate between the first and the last", 1e-4 < finder.lr_suggestion() < 10, True)


# State schedulers


@check("StateParamScheduler")
def _():
    class Count(handlers.StateParamScheduler):
        def get_param(self):
            return float(self.event_index)

    expect("values", state_values(Count("p", create_new=True), 3), [1.0, 2.0, 3.0])


@check("LambdaStateScheduler")
def _():
    expect("values", state_values(handlers.LambdaStateScheduler(lambda i: i * 2, "p", create_new=True)),
           [2.0, 4.0, 6.0, 8.0])  # fmt: skip


@check("PiecewiseLinearStateScheduler")
def _():
    scheduler = handlers.PiecewiseLinearStateScheduler([(1, 1.0), (3, 0.0)], "p", create_new=True)
    expect("values", state_values(scheduler), [1.0, 0.5, 0.0, 0.0])


@check("ExpStateScheduler")
def _():
    scheduler = handlers.ExpStateScheduler(1.0, 0.5, "p", create_new=True)
    expect("values", state_values(scheduler), [0.5, 0.25, 0.125, 0.0625])


@check("StepStateScheduler")
def _():
    scheduler = handlers.StepStateScheduler(1.0, 0.5, 2, "p", create_new=True)
    expect("values", state_values(scheduler), [1.0, 0.5, 0.5, 0.25])


@check("MultiStepStateScheduler")
def _():
    scheduler = handlers.MultiStepStateScheduler(1.0, 0.5, [2, 4], "p", create_new=True)
    expect("values", state_values(scheduler), [1.0, 0.5, 0.5, 0.25])


# Loggers


@check("ProgressBar", since="0.5.0")
def _():
    tqdm = MagicMock()
    tqdm.tqdm.return_value.n = 0
    with patch.dict(sys.modules, {"tqdm": tqdm, "tqdm.autonotebook": tqdm}):
        run(before=lambda engine: handlers.ProgressBar().attach(engine, output_transform=lambda x: {"loss": x}))
    bar = tqdm.tqdm.return_value
    expect("bars", tqdm.tqdm.call_count, 1)
    expect("its length", tqdm.tqdm.call_args.kwargs["total"], 3)
    shown = [dict(c.args[0]) for c in bar.set_postfix.call_args_list]
    expect("what it shows", shown, [{"loss": 1.0}, {"loss": 2.0}, {"loss": 3.0}])
    expect("closed", bar.close.called, True)


@check("FBResearchLogger", since="0.5.3")
def _():
    lines = []
    logger = handlers.FBResearchLogger(MagicMock(info=lines.append), show_output=True)
    run(data=[1, 2], max_epochs=2, before=lambda engine: logger.attach(engine, "Train", optimizer=optimizer(0.1)))
    wanted = [line for line in lines if "Epoch [2/2]" in line and "[2/2]:" in line and "lr: 0.10000" in line]
    expect("lines of the last iteration", len(wanted), 1)


def logged(name, modules, calls):
    """Attach a logger over stand-ins to an engine with the metric a = 0.5, and return what reached the stand-in."""
    engine = Engine(lambda e, b: None)
    engine.add_event_handler(Events.EPOCH_COMPLETED, lambda e: e.state.metrics.update(a=0.5))
    with patch.dict(sys.modules, modules):
        logger = getattr(handlers, name)()
        logger.attach_output_handler(engine, Events.EPOCH_COMPLETED, "t", metric_names=["a"])
        engine.run([1], max_epochs=2)
        return calls(logger)


@check("TensorboardLogger", since="0.5.0")
def _():
    tb = MagicMock()
    scalars = logged("TensorboardLogger", {"tensorboardX": tb},
                     lambda logger: [tuple(c.args) for c in logger.writer.add_scalar.call_args_list])  # fmt: skip
    expect("points", scalars, [("t/a", 0.5, 1), ("t/a", 0.5, 2)])


@check("WandBLogger", since="0.5.0")
def _():
    wandb = MagicMock()
    steps = logged("WandBLogger", {"wandb": wandb}, lambda logger: [
        (dict(c.args[0]), c.kwargs["step"]) for c in wandb.log.call_args_list])  # fmt: skip
    expect("points", steps, [({"t/a": 0.5}, 1), ({"t/a": 0.5}, 2)])


@check("MLflowLogger", since="0.5.0")
def _():
    mlflow = MagicMock()
    modules = {"mlflow": mlflow, "mlflow.utils": mlflow, "mlflow.utils.validation": mlflow}
    steps = logged("MLflowLogger", modules, lambda logger: [
        (dict(c.args[0]), c.kwargs["step"]) for c in mlflow.log_metrics.call_args_list])  # fmt: skip
    expect("points", steps, [({"t a": 0.5}, 1), ({"t a": 0.5}, 2)])


@check("ClearMLLogger", since="0.5.0")
def _():
    clearml = MagicMock()
    names = ("clearml", "clearml.binding", "clearml.binding.frameworks", "clearml.binding.frameworks.tensorflow_bind")
    points = logged("ClearMLLogger", dict.fromkeys(names, clearml), lambda logger: [
        c.kwargs for c in logger.clearml_logger.report_scalar.call_args_list])  # fmt: skip
    expect("points", points, [{"title": "t", "series": "a", "iteration": i, "value": 0.5} for i in (1, 2)])


@check("NeptuneLogger", since="0.5.0")
def _():
    neptune, points = MagicMock(), {}
    run_ = neptune.init_run.return_value
    run_.__getitem__.side_effect = lambda key: points.setdefault(key, MagicMock())
    steps = logged("NeptuneLogger", {"neptune": neptune}, lambda logger: [
        (c.args[0], c.kwargs["step"]) for c in points["t/a"].append.call_args_list])  # fmt: skip
    expect("points", steps, [(0.5, 1), (0.5, 2)])


@check("PolyaxonLogger", since="0.5.0")
def _():
    polyaxon = MagicMock()
    points = logged("PolyaxonLogger", {"polyaxon": polyaxon, "polyaxon.tracking": polyaxon}, lambda logger: [
        c.kwargs for c in logger.experiment.log_metrics.call_args_list])  # fmt: skip
    expect("points", points, [{"t/a": 0.5, "step": 1}, {"t/a": 0.5, "step": 2}])


@check("VisdomLogger", since="0.5.0")
def _():
    visdom = MagicMock()

    def lines(logger):
        logger.executor.shutdown(wait=True)
        return [(c.kwargs["X"], c.kwargs["Y"]) for c in logger.vis.line.call_args_list]

    expect("points", logged("VisdomLogger", {"visdom": visdom}, lines), [([1], [0.5]), ([2], [0.5])])


def main(argv=None):
    return smoke_runner.main(__name__, argv)


if __name__ == "__main__":
    smoke_runner.leave(main())
