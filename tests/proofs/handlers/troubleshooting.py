"""Proofs of the troubleshooting page of the handlers room: each symptom is produced, then its fix is tried."""

from __future__ import annotations

import io
import tempfile
import warnings
from pathlib import Path
from unittest.mock import MagicMock

import torch
from ignite.engine import Engine, EventEnum, Events
from ignite.handlers import (
    BasicTimeProfiler,
    Checkpoint,
    CosineAnnealingScheduler,
    DiskSaver,
    EarlyStopping,
    EMAHandler,
    LambdaStateScheduler,
    LRScheduler,
    ModelCheckpoint,
    ParamGroupScheduler,
    PiecewiseLinear,
    ProgressBar,
    ReduceLROnPlateauScheduler,
    TensorboardLogger,
    TerminateOnNan,
    WandBLogger,
    global_step_from_engine,
)
from ignite.handlers.checkpoint import CheckpointEvents
from probes import handlers as probe
from support.claims import proves
from support.pages import slug
from support.world import run_serial, run_world, values
from torch import nn
from torch.optim import lr_scheduler as torch_lr

from .api_reference import Recorder, early, ema, error, kept, saved, train, train_output
from .api_reference_loggers import common_run, counted, logged
from .api_reference_schedulers import found, lrs

PAGE = "sub-skills/handlers/references/troubleshooting.md"
ORDER: dict[str, str] = {}  # heading -> section, as on the page


def symptom(section: str, heading: str):
    """Register the proof of an entry under a section of the page."""
    ORDER[heading] = section
    return proves(f"{PAGE}#{slug(heading.replace('`', ''))}")


def fields(entry, means: str, check: str, fix: str, proof: str) -> None:
    """The entry reads so, from its first word to its last."""
    entry.says(f"**Means** {means} **Check** {check} **Fix** {fix} **Proof** {proof}")


SAVE, STOP, LR, LOG, OTHER = ("Saving and resuming", "Stopping", "Learning rates", "Loggers", "Averages and times")


@proves(f"{PAGE}#troubleshooting-ignitehandlers")
def intro(entry):
    entry.says(
        "Search this page for the text that you see; a complaint about one argument stands in the table of its"
        " handler in"
        " the API reference. Hangs and wrong numbers on several ranks: the page of the distributed room."
    )


@proves(f"{PAGE}#contents")
def contents(entry):
    entry.says(*ORDER, *ORDER.values())


@symptom(SAVE, "No checkpoint is written")
def none_written(entry):
    recorder = Recorder()
    handler = Checkpoint({"model": nn.Linear(1, 1)}, recorder)
    train(handler, (1, 2, 3), 2)
    train(handler, (1, 2), 2)
    assert recorder.files[-1] == "model_6.pt"
    nan = kept(saved(max_epochs=2, scores=(float("nan"), 0.9), score_name="acc", global_step_transform=lambda e, n: 1))
    assert nan == ["model_1_acc=nan.pt"]
    with tempfile.TemporaryDirectory() as folder:
        common_run(folder=folder, to_save={"m": nn.Linear(1, 1)}, with_pbars=False)
        assert not list(Path(folder).iterdir())
        common_run(folder=folder, to_save={"m": nn.Linear(1, 1)}, with_pbars=False, save_every_iters=3)
        assert list(Path(folder).iterdir())
    handler.reset()
    train(handler, (1, 2), 1)
    assert recorder.files[-1] == "model_2.pt"
    fields(
        entry,
        "nothing was better than what the handler already keeps: a run that starts again at iteration 0 with the same"
        " handler (6 kept, 4 is not above it), a first score of NaN, a `score_name` where smaller is better; or"
        " the event"
        " never came: `setup_common_training_handlers` saves every 1000 iterations.",
        "print `handler.last_checkpoint` and the score at the end of each epoch.",
        "`handler.reset()` between runs; a score function with `Checkpoint.get_default_score_fn(name, -1.0)` for"
        " a loss;"
        " `save_every_iters=`.",
        "`last_checkpoint` changes from epoch to epoch.",
    )


@symptom(SAVE, "`Unexpected key(s) in state_dict: \"checkpointer\"`")
def checkpointer_key(entry):
    with tempfile.TemporaryDirectory() as folder:
        handler = Checkpoint({"model": nn.Linear(1, 1)}, folder, include_self=True)
        train(handler)
        entry.heading(error(Checkpoint.load_objects, {"model": nn.Linear(1, 1)}, handler.last_checkpoint))
        state = torch.load(handler.last_checkpoint, weights_only=True)
    handler.load_state_dict(state.pop("checkpointer"))
    Checkpoint.load_objects({"model": nn.Linear(1, 1)}, state)
    fields(
        entry,
        "the file was written with `include_self=True` and one object, so the handler's own state lies among the"
        " module's.",
        "`torch.load(path, weights_only=True).keys()`.",
        "`handler.load_state_dict(state.pop('checkpointer'))`, then load the rest; from now on save the trainer too, so"
        " that there are two objects.",
        "`Checkpoint.load_objects({'model': model}, state)` returns.",
    )


@symptom(SAVE, "`takes parameters ['engine', 'to_save'] but will be called with []`")
def no_to_save(entry):
    with tempfile.TemporaryDirectory() as folder:
        handler, engine = ModelCheckpoint(folder), Engine(probe.step)
        entry.heading(error(engine.add_event_handler, Events.EPOCH_COMPLETED, handler))
        engine.add_event_handler(Events.EPOCH_COMPLETED, handler, {"model": nn.Linear(1, 1)})
        engine.run([1], max_epochs=1)
        assert handler.last_checkpoint.exists()
    fields(
        entry,
        "a `ModelCheckpoint` was attached without what it shall save.",
        "the call of `add_event_handler`.",
        "`trainer.add_event_handler(event, handler, {'model': model})`, or a `Checkpoint`, which takes `to_save`"
        " itself.",
        "`handler.last_checkpoint` exists after an epoch.",
    )


@symptom(SAVE, "`Event CheckpointEvents.SAVED_CHECKPOINT is not a valid event for this Engine.`")
def no_event(entry):
    engine = Engine(probe.step)
    engine.add_event_handler(Events.EPOCH_COMPLETED, Checkpoint({"model": nn.Linear(1, 1)}, Recorder()))
    entry.heading(error(engine.add_event_handler, Checkpoint.SAVED_CHECKPOINT, lambda: None))
    engine.register_events(*CheckpointEvents)
    seen = []
    engine.add_event_handler(Checkpoint.SAVED_CHECKPOINT, lambda: seen.append(1))
    engine.run([1], max_epochs=2)
    assert seen == [1, 1]
    fields(
        entry,
        "the engine learns of the event when the handler first runs, which is after you add yours.",
        "that the line stands before `run`.",
        "`from ignite.handlers.checkpoint import CheckpointEvents`, `engine.register_events(*CheckpointEvents)`,"
        " then add"
        " the handler, on the engine the checkpoint is attached to.",
        "the handler runs once per save.",
    )


@symptom(SAVE, "`Key '…' from x is not found in y: dict_keys([…])`")
def no_key(entry):
    o = probe.optimizer()
    model = nn.Linear(1, 1)
    entry.heading(error(Checkpoint.load_objects, {"model": model, "optimizer": o}, {"model": model.state_dict()}))
    Checkpoint.load_objects({"model": model}, {"model": model.state_dict(), "optimizer": o.state_dict()})
    fields(
        entry,
        "`to_load` has a name that the file has not; x is `to_load`, y the file.",
        "`torch.load(path, weights_only=True).keys()`.",
        "give `load_objects` the names of the file, fewer if need be. A file of one object has no names at all.",
        "`load_objects` returns.",
    )


@symptom(SAVE, "`Weights only load failed`")
def weights_only(entry):
    class Stateful:
        def state_dict(self):
            return {"path": Path("x")}

        def load_state_dict(self, state):
            self.path = state["path"]

    with tempfile.TemporaryDirectory() as folder:
        handler = Checkpoint({"model": nn.Linear(1, 1), "own": Stateful()}, folder)
        train(handler)
        own = Stateful()
        entry.heading(error(Checkpoint.load_objects, {"own": own}, handler.last_checkpoint))
        Checkpoint.load_objects({"own": own}, torch.load(handler.last_checkpoint, weights_only=False))
        assert own.path == Path("x")
    fields(
        entry,
        "the file holds something other than tensors and plain types, here a `Path`; Ignite opens paths with"
        " `weights_only=True`.",
        "what `state_dict()` of each object in `to_save` returns.",
        "if you trust the file, pass `torch.load(path, weights_only=False)` instead of the path; save plain types in"
        " future.",
        "`load_objects` returns.",
    )


@symptom(SAVE, "`Required state attribute 'threshold_mode' is absent in provided state_dict`")
def old_stopper(entry):
    handler, old = EarlyStopping(2, lambda e: 1, Engine(probe.step)), {"counter": 1, "best_score": 0.5}
    entry.heading(error(handler.load_state_dict, old))
    handler.load_state_dict({**old, "threshold_mode": "abs"})
    assert handler.counter == 1
    fields(
        entry,
        "an `EarlyStopping` saved by a release before 0.5.5 is loaded.",
        "the release that wrote the file.",
        "`state['threshold_mode'] = 'abs'` before loading.",
        "`handler.counter` is that of the file.",
    )


@symptom(SAVE, "`Output of score_function should be a number`")
def no_number(entry):
    entry.heading(error(saved, score_function=lambda e: torch.tensor(0.5)))
    assert saved(score_function=lambda e: torch.tensor(0.5).item())
    fields(
        entry,
        "the score function returns a tensor, a string or `None`.",
        "`type(score_function(engine))`.",
        "`.item()`.",
        "the file has the score in its name.",
    )


@symptom(SAVE, "`Can't pickle …`")
def unpicklable(entry):
    handler = LambdaStateScheduler(lambda i: i, "p")
    with tempfile.TemporaryDirectory() as folder:
        text = error(train, Checkpoint({"model": nn.Linear(1, 1), "p": handler}, DiskSaver(folder)))
        entry.heading(text)
    torch.save({"p": probe.ignite.handlers.ExpStateScheduler(1.0, 0.5, "p").state_dict()}, io.BytesIO())
    fields(
        entry,
        "something in `to_save` has a function in its state; of Ignite's handlers that is `LambdaStateScheduler`.",
        "`state_dict()` of each object.",
        "leave it out of `to_save`, or use a scheduler without a function.",
        "the file is there after an epoch.",
    )


@symptom(STOP, "Early stopping never stops")
def never_stops(entry):
    falling = (5, 4, 3, 2, 1)
    assert early(falling, patience=2, attach="evaluator")[0] == 5
    fixed = early(falling, patience=2, attach="trainer")[0]
    assert early([float("nan")] * 5, patience=2)[0] == 5 and early(falling, patience=2)[0] == fixed
    fields(
        entry,
        "most often `handler.attach(evaluator)`: it resets the count each time the evaluator starts. Or the"
        " score is NaN,"
        " which counts as better; or it is a loss and `mode` is `'max'`, which then stops at once.",
        "`handler.counter` at the end of each epoch.",
        "`handler.attach(evaluator, reset_engine=trainer)`, or"
        " `evaluator.add_event_handler(Events.COMPLETED, handler)`; `mode='min'` for a loss.",
        f"with scores 5, 4, 3, 2, 1 and `patience=2` it ends after epoch {fixed}.",
    )
    assert early((5, 4, 3), patience=1, mode="max")[0] == 2


@symptom(STOP, "`x must contain (<class 'numbers.Number'>, <class 'torch.Tensor'>), dicts or lists; found …`")
def nan_type(entry):
    entry.heading(error(train_output, {"loss": 1.0, "path": None}, TerminateOnNan()))
    assert train_output({"loss": 1.0, "path": None}, TerminateOnNan(lambda output: output["loss"])) == 3
    fields(
        entry,
        "`TerminateOnNan` met an output that holds `None` or an object.",
        "`type(engine.state.output)`.",
        "`TerminateOnNan(output_transform=lambda output: output['loss'])`.",
        "the run goes on.",
    )


@symptom(LR, "The learning rate is shifted, too small, or too large")
def shifted(entry):
    by_hand, started, _ = probe.wrapped("LinearLR")[1:]
    late = lrs(lambda o: PiecewiseLinear(o, "lr", [(0, 0.0), (4, 0.4)]), Events.ITERATION_COMPLETED)
    assert started != by_hand and late.startswith("1, 0, 0.1")
    fields(
        entry,
        f"either a torch scheduler in `LRScheduler`: `LinearLR(optimizer, 0.2, 1.0, 4)` gives {started} instead of"
        f" {by_hand}; or one of Ignite's at `ITERATION_COMPLETED`, where the first step still has the optimizer's own"
        " rate.",
        "print `optimizer.param_groups[0]['lr']` in the training step, five times.",
        "step a torch scheduler yourself: `trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda:"
        " scheduler.step())`; attach Ignite's own at `ITERATION_STARTED`.",
        "the printed values are those of `simulate_values`, or of torch alone.",
    )


@symptom(LR, "The learning rate jumps up again")
def jumps(entry):
    got = [v for _, v in CosineAnnealingScheduler.simulate_values(
        6, param_name="lr", start_value=1.0, end_value=0.0, cycle_size=4)]  # fmt: skip
    long = [v for _, v in CosineAnnealingScheduler.simulate_values(
        6, param_name="lr", start_value=1.0, end_value=0.0, cycle_size=6)]  # fmt: skip
    assert got[4] == 1.0 and long == sorted(long, reverse=True)
    fields(
        entry,
        f"a cyclical scheduler is in its second cycle: `cycle_size=4` gives {probe.listed(got)}. The cycle counts the"
        " events it is attached to, iterations as a rule, not epochs.",
        "`cycle_size` against `len(loader) * max_epochs`.",
        "`cycle_size=len(loader) * max_epochs`.",
        "the values of `simulate_values` only fall.",
    )


@symptom(LR, "`NotImplementedError` without a text, from `get_lr`")
def not_implemented(entry):
    for name in ("SequentialLR", "ChainedScheduler"):
        make = probe.TORCH.get(name) or (lambda o: torch_lr.ChainedScheduler([torch_lr.ConstantLR(o, 0.1, 2)]))
        text = error(lambda make=make: LRScheduler(make(probe.optimizer()))(None))
        assert text == "NotImplementedError: "
    fields(
        entry,
        "`SequentialLR` or `ChainedScheduler` is wrapped in `LRScheduler`: they have no formula to ask.",
        "the class of the torch scheduler.",
        "step it yourself: `trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda: scheduler.step())`; or"
        " `ConcatScheduler` of Ignite's schedulers.",
        "the run passes the first iteration.",
    )


@symptom(LR, "`ReduceLROnPlateau.__init__() got an unexpected keyword argument 'verbose'`")
def verbose(entry):
    with warnings.catch_warnings(record=True):
        entry.heading(error(ReduceLROnPlateauScheduler, probe.optimizer(), "loss", verbose=True))
    assert ReduceLROnPlateauScheduler(probe.optimizer(), "loss", save_history=True).save_history
    fields(
        entry,
        "`verbose` was given; Ignite sets it to `False` and passes it on, torch no longer has it.",
        "the arguments of `ReduceLROnPlateauScheduler`.",
        "remove it; `save_history=True` and `trainer=trainer` keep the values.",
        "the scheduler is built.",
    )


@symptom(LR, "`'ParamGroupScheduler' object has no attribute 'attach'`")
def no_attach(entry):
    engine, o = Engine(probe.step), probe.optimizer()
    scheduler = ParamGroupScheduler([PiecewiseLinear(o, "lr", [(0, 2.0)])])
    entry.heading(error(lambda: scheduler.attach(engine)))
    engine.add_event_handler(Events.ITERATION_STARTED, scheduler)
    engine.run([1], max_epochs=1)
    assert o.param_groups[0]["lr"] == 2.0
    fields(
        entry,
        "it is a list of schedulers, not one of them.",
        "nothing else.",
        "`trainer.add_event_handler(Events.ITERATION_STARTED, scheduler)`.",
        "the learning rates change.",
    )


@symptom(LR, "`FastaiLRFinder got unexpected curve shape`")
def curve(entry):
    entry.heading(error(lambda: probe._finder_run([1.0, 9.0]).lr_suggestion()))
    assert found()[0].lr_suggestion() > 0
    fields(
        entry,
        "the smallest loss is among the first two: the rates started where training already diverges, or the loss only"
        " grew.",
        "`finder.get_results()`.",
        "a smaller `start_lr`, a larger `end_lr`, more iterations.",
        "`finder.lr_suggestion()` is a number.",
    )


@symptom(LOG, "All points of the validation are at step 1")
def same_step(entry):
    def run(transform):
        def attach(logger):
            trainer, evaluator = Engine(probe.step), Engine(probe.step)
            step = global_step_from_engine(trainer) if transform else None
            logger.attach_output_handler(
                evaluator, Events.COMPLETED, "v", output_transform=lambda x: {"x": x}, global_step_transform=step
            )
            trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run([1], max_epochs=1))
            trainer.run([1], max_epochs=2)

        return [step for *_, step in logged(attach)]

    assert run(False) == [1, 1] and run(True) == [1, 2]
    fields(
        entry,
        "the handler counts the epochs of the evaluator, which starts anew each time; file names of checkpoints suffer"
        " the same.",
        "the step of the points, or the number in the file names.",
        "`global_step_transform=global_step_from_engine(trainer)`.",
        "the steps are the trainer's epochs.",
    )


@symptom(LOG, "`Unknown event name '…'`")
def unknown_event(entry):
    def attach(logger):
        logger.attach_output_handler(Engine(probe.step), Events.EXCEPTION_RAISED, "t", metric_names="all")

    entry.heading(error(logged, attach))
    assert "EXCEPTION_RAISED" not in counted()
    fields(
        entry,
        "a logger can be attached only to events with a counter: those of runs, epochs, iterations and batches; not to"
        " `EXCEPTION_RAISED`, `TERMINATE` or an event of your own without one.",
        "the event in the text.",
        "log from a handler of your own, or register the event with `event_to_attr`.",
        "the point appears.",
    )

    def own(logger):
        class Own(EventEnum):
            SEEN = "seen"

        engine = Engine(lambda e, b: e.fire_event(Own.SEEN))
        engine.register_events(*Own, event_to_attr={Own.SEEN: "seen"})
        engine.state.seen = 4
        logger.attach_output_handler(engine, Own.SEEN, "t", output_transform=lambda x: 1.0)
        engine.run([1], max_epochs=1)

    assert run_serial(lambda: logged(own)).value == [("t/output", 1.0, 4)]  # what it registers is global


@symptom(LOG, "`This contrib module requires either tensorboardX or torch >= 1.2.0.`")
def tensorboard(entry):
    def missing():
        with probe.shut_out("tensorboardX", "torch.utils.tensorboard"):
            return error(TensorboardLogger)

    entry.heading(run_serial(missing).value)
    with probe.stand_ins():
        assert TensorboardLogger(log_dir="x").writer
    fields(
        entry,
        "neither tensorboardX nor tensorboard is installed; torch brings only the adapter.",
        "`python -c \"import tensorboardX\"`.",
        "`pip install tensorboardX`, or `pip install tensorboard`.",
        "that import passes.",
    )


@symptom(LOG, "Every rank logs, or shows a bar")
def every_rank(entry):
    def on_rank(rank):
        wandb = MagicMock()
        with probe.stand_ins(wandb=wandb) as modules:
            engine = Engine(probe.step)
            if rank == 0 or not guarded:
                WandBLogger()
                ProgressBar().attach(engine)
            engine.run([1], max_epochs=1)
            return wandb.init.call_count, modules["tqdm.autonotebook"].tqdm.call_count

    guarded = False
    assert values(run_world(2, on_rank)) == [(1, 1), (1, 1)]
    guarded = True
    assert values(run_world(2, on_rank)) == [(1, 1), (0, 0)]
    fields(
        entry,
        "no logger and no bar asks for its rank; only `setup_common_training_handlers` keeps its bars to rank 0.",
        "runs in the tracker, event files in the folder: one per rank.",
        "build and attach them under `if idist.get_rank() == 0:`, after `idist.initialize`. Nothing they call may be"
        " collective: compute metrics on all ranks, log on one.",
        "one run, one file.",
    )


@symptom(OTHER, "The averaged model does not follow, or copies the model")
def ema_lag(entry):
    averages, *_ = ema(momentum=0.999, data=(1,))
    slow, *_ = ema(data=(1,) * 10)
    assert averages[0] > 0.99 and slow[-1] < 0.01
    fields(
        entry,
        f"`momentum` is the weight of the new value. 0.999 makes a copy ({averages[0]:.3f} of the way after one step);"
        f" the default 0.0002 is at {slow[-1]:.4f} after 10. Or the model was loaded after the handler was built: the"
        " average starts at the weights of that moment.",
        "a weight of `handler.ema_model` against the model's.",
        "`momentum=1 - decay`; load both, `model` and `handler.ema_model`, from the checkpoint.",
        "the difference shrinks slowly.",
    )
    assert EMAHandler(nn.Linear(1, 1)).momentum == 0.0002


@symptom(OTHER, "`unsupported operand type(s) for *: 'NoneType' and 'int'`")
def profiler(entry):
    profiler, engine = BasicTimeProfiler(), Engine(probe.step)
    profiler.attach(engine)
    entry.heading(error(engine.run, [1, 2], max_iters=1))
    again, engine = BasicTimeProfiler(), Engine(probe.step)
    again.attach(engine)
    engine.run([1, 2], max_epochs=1)
    assert again.get_results()
    fields(
        entry,
        "`BasicTimeProfiler` on a run with `max_iters`: it reckons with epochs. `HandlersTimeProfiler` does not.",
        "the call of `run`.",
        "`max_epochs=`, or the other profiler.",
        "`profiler.get_results()` is filled.",
    )
    handlers, engine = probe.ignite.handlers.HandlersTimeProfiler(), Engine(probe.step)
    handlers.attach(engine)
    assert engine.run([1, 2], max_iters=1).iteration == 1 and handlers.get_results()
