"""Proofs of the gotchas and the other facts in the SKILL.md of the handlers room."""

from __future__ import annotations

import tempfile
from pathlib import Path

import ignite.distributed as idist
import torch
from ignite.contrib.engines import common
from ignite.engine import Engine, Events
from ignite.handlers import (
    Checkpoint,
    CosineAnnealingScheduler,
    DiskSaver,
    EMAHandler,
    FastaiLRFinder,
    LRScheduler,
    PiecewiseLinear,
    ProgressBar,
    ReduceLROnPlateauScheduler,
    StepStateScheduler,
    TensorboardLogger,
    TerminateOnNan,
    TimeLimit,
    create_lr_scheduler_with_warmup,
)
from ignite.handlers.checkpoint import CheckpointEvents
from probes import handlers as probe
from support.claims import proves
from support.pages import slug
from support.world import run_world, values
from torch import nn
from torch.optim import lr_scheduler as torch_lr

from .api_reference import Recorder, early, ema, epoch, error, kept, saved, train, train_output
from .api_reference_loggers import SERVICE, common_run, logged
from .api_reference_schedulers import lrs

PAGE = "sub-skills/handlers/SKILL.md"
TITLES: list[str] = []


def gotcha(title: str):
    """Register the proof of the gotcha with this title."""
    TITLES.append(title)

    def register(proof):
        def with_title(entry):
            proof(entry)
            entry.says(title)

        proves(f"{PAGE}#{slug(title.replace('`', '').removesuffix('.'))}")(with_title)
        return proof

    return register


@gotcha("`LRScheduler` gives wrong rates with most torch schedulers.")
def lr_scheduler(entry):
    by_hand, started, _ = probe.wrapped("LinearLR")[1:]
    exponential = probe.wrapped("ExponentialLR")[2]
    right = [row[0] for row in probe.torch_table()[1:] if row[1] == row[2]]
    entry.says(
        f"With torch {torch.__version__.split('+')[0]}, `LinearLR(optimizer, 0.2, 1.0, 4)` gives {started} instead of"
        f" {by_hand}; `ExponentialLR` skips its first value ({exponential}); `SequentialLR` raises"
        f" `NotImplementedError`."
        f" Only {', '.join(right)} are right. Step torch schedulers yourself:"
        " `trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda: scheduler.step())`."
    )
    assert "NotImplementedError" in error(lambda: LRScheduler(probe.TORCH["SequentialLR"](probe.optimizer()))(None))


@gotcha("`EarlyStopping.attach(evaluator)` never stops.")
def attach(entry):
    falling = (5, 4, 3, 2, 1)
    never, right = (early(falling, patience=2, attach=a)[0] for a in ("evaluator", "trainer"))
    plain = early(falling, patience=2)[0]
    assert plain == right and never == 5
    nan = early([float("nan")] * 5, patience=2)[0]
    assert nan == 5
    entry.says(
        f"It resets at every `STARTED` of the evaluator: scores {', '.join(map(str, falling))} with `patience=2`"
        f" run all"
        f" {never} epochs. `evaluator.add_event_handler(Events.COMPLETED, handler)` or `reset_engine=trainer`"
        f" stops after"
        f" {right}. NaN counts as better. A loss needs `mode='min'`."
    )


@gotcha("A stop is one rank's own.")
def own_stop(entry):
    def on_rank(rank):
        limit = TimeLimit(10)
        limit.start_time -= 11 * rank
        return train_output(float("nan") if rank == 0 else 1.0, TerminateOnNan()), train_output(0.0, limit)

    first, second = values(run_world(2, on_rank))
    assert first == (1, 3) and second == (3, 1)
    entry.says(
        f"`TerminateOnNan` with NaN on rank 0 alone ends it after iteration {first[0]}, rank 1 after {second[0]};"
        f" `TimeLimit`, whose clock starts when it is built, and `EarlyStopping` likewise. The others hang in"
        f" their next"
        " collective. Feed them a reduced value, as `TerminateOnNan(lambda loss: idist.all_reduce(loss))`."
    )

    def reduced(rank):
        return train_output(float("nan") if rank == 0 else 1.0, TerminateOnNan(lambda loss: idist.all_reduce(loss)))

    assert values(run_world(2, reduced)) == [1, 1]


@gotcha("Every rank logs.")
def every_rank(entry):
    def on_rank(rank):
        with probe.stand_ins() as modules:
            engine = Engine(probe.step)
            ProgressBar().attach(engine)
            TensorboardLogger(log_dir="x")
            engine.run([1], max_epochs=1)
            return modules["tqdm.autonotebook"].tqdm.call_count, modules["tensorboardX"].SummaryWriter.call_count

    assert values(run_world(2, on_rank)) == [(1, 1), (1, 1)]
    entry.says("No experiment logger and no `ProgressBar` asks for its rank: 2 processes open 2 runs and 2 bars."
               " Build and"
               " attach them under `if idist.get_rank() == 0:`, and compute what they log on all ranks.")  # fmt: skip


@gotcha("A `Checkpoint` belongs on every rank.")
def on_every_rank(entry):
    def on_rank(rank):
        called = []
        handler = Checkpoint({"model": nn.Linear(1, 1)}, f"{folder}/a")
        train(handler)
        train(Checkpoint({"model": nn.Linear(1, 1)}, lambda checkpoint, filename: called.append(filename)))
        idist.barrier()
        return handler.last_checkpoint == Path(f"{folder}/a/model_1.pt"), len(called)

    with tempfile.TemporaryDirectory() as folder:
        assert values(run_world(2, on_rank)) == [(True, 1), (True, 1)]
        assert [p.name for p in Path(f"{folder}/a").iterdir()] == ["model_1.pt"]
    entry.says("A folder or `DiskSaver` writes on `save_on_rank` only, yet a function or `BaseSaveHandler` of"
               " your own is"
               " called on all: guard it. `last_checkpoint` names the file before another rank can rely on it: put an"
               " `idist.barrier()` before the read.")  # fmt: skip


@gotcha("`n_saved` keeps the highest score, and `last_checkpoint` is the best.")
def ranking(entry):
    loss = kept(saved(max_epochs=3, scores=(0.9, 0.5, 0.3), score_name="acc", global_step_transform=epoch))
    best = kept(saved(max_epochs=3, scores=(0.9, 0.5, 0.3), score_name="l", global_step_transform=epoch,
                      score_function=Checkpoint.get_default_score_fn("acc", -1.0)))  # fmt: skip
    nan = kept(saved(max_epochs=3, scores=(float("nan"), 0.9, 0.95), score_name="acc", global_step_transform=epoch))
    assert loss[0].startswith("model_1_") and best[0].startswith("model_3_") and nan[0].startswith("model_1_")
    entry.says(
        "A loss of 0.9, 0.5, 0.3 under `score_name='loss'` keeps the first epoch; pass"
        " `score_function=Checkpoint.get_default_score_fn('loss', -1.0)`. A first score of NaN is never"
        " replaced. Without"
        " a score the highest iteration counts, so a second run with the same handler saves nothing until it is"
        " past the"
        " first: `handler.reset()`."
    )
    recorder = Recorder()
    handler = Checkpoint({"model": nn.Linear(1, 1)}, recorder)
    train(handler, (1, 2, 3), 2)
    before = list(recorder.files)
    train(handler, (1, 2), 2)
    assert recorder.files == before


@gotcha("A resumed `Checkpoint` has forgotten its files.")
def forgotten(entry):
    with tempfile.TemporaryDirectory() as folder:
        objects = {"model": nn.Linear(1, 1), "o": probe.optimizer()}
        args = dict(score_name="acc", global_step_transform=epoch, n_saved=1)
        train(first := Checkpoint(objects, folder, **args, include_self=True), scores=(0.9,))
        text = error(Checkpoint, objects, folder)
        again = Checkpoint(objects, DiskSaver(folder, require_empty=False), **args)
        train(again, max_epochs=2, scores=(0.1, 0.2))
        assert len(list(Path(folder).iterdir())) == 2
        knowing = Checkpoint(objects, DiskSaver(folder, require_empty=False), **args)
        knowing.load_state_dict(torch.load(first.last_checkpoint, weights_only=True)["checkpointer"])
        train(knowing, scores=(0.1,))
        assert knowing.last_checkpoint == first.last_checkpoint
    assert "already present" in text
    entry.says("Built on a folder with files it raises; with `DiskSaver(folder, require_empty=False)` it takes"
               " any score"
               " for the best and removes none of the old files. `include_self=True` saves its list; load it with"
               " `handler.load_state_dict(state['checkpointer'])`. It needs two or more objects in `to_save`:"
               " with one the"
               " key lands in the model's own state.")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        train(alone := Checkpoint({"model": nn.Linear(1, 1)}, folder, include_self=True))
        assert set(torch.load(alone.last_checkpoint, weights_only=True)) == {"weight", "bias", "checkpointer"}


@gotcha("What is not in `to_save` is not resumed.")
def not_resumed(entry):
    engine = train(lambda e: None, (1, 2), 2)
    assert not hasattr(EMAHandler(nn.Linear(1, 1)), "state_dict")
    scheduler = StepStateScheduler(1.0, 0.5, 2, "p", create_new=True)
    scheduler.attach(engine)
    engine.run([1, 2], max_epochs=4)
    assert "p" not in engine.state_dict()
    entry.says(
        f"The trainer's state is only {', '.join(f'`{k}`' for k in engine.state_dict())}. Add the model, optimizer,"
        " schedulers (Ignite's and torch's), `EarlyStopping`, and `handler.ema_model`, since `EMAHandler` has no"
        " `state_dict`; values of state schedulers are lost without theirs."
    )
    other = PiecewiseLinear(probe.optimizer(), "lr", [(0, 9.0), (1, 8.0)])
    other.load_state_dict(PiecewiseLinear(probe.optimizer(), "lr", [(0, 0.0), (4, 0.4)]).state_dict())
    assert other.milestones == [0, 4]
    entry.says("A scheduler's state holds its configuration: loading undoes the new milestones or cycle size you"
               " passed.")


@gotcha("With one object, names do not matter, and `strict=False` hides it.")
def one_object(entry):
    fresh, other = nn.Linear(1, 1), nn.Linear(1, 1)
    before = fresh.weight.clone()
    Checkpoint.load_objects({"net": fresh}, {"model": other.state_dict()}, strict=False)
    assert torch.equal(fresh.weight, before)
    entry.says("`Checkpoint.load_objects({'net': model}, {'model': …}, strict=False)` loads nothing and says"
               " nothing: with"
               " one object a missing name means that the file is its bare state. Paths are opened with"
               " `weights_only=True` and no `map_location`.")  # fmt: skip


@gotcha("On an evaluator, steps are the evaluator's.")
def steps(entry):
    names = []
    trainer, evaluator = Engine(probe.step), Engine(probe.step)
    recorder = Recorder()
    evaluator.add_event_handler(Events.COMPLETED, Checkpoint({"model": nn.Linear(1, 1)}, recorder, score_name="acc"))
    evaluator.add_event_handler(Events.EPOCH_COMPLETED, lambda e: e.state.metrics.update(acc=trainer.state.epoch / 10))
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run([1], max_epochs=1))
    trainer.run([1], max_epochs=2)
    names = kept(recorder.files)
    assert evaluator.state.epoch == 1 and names == ["model_acc=0.2000.pt"]

    def attach(logger):
        evaluator = Engine(probe.step)
        logger.attach_output_handler(evaluator, Events.COMPLETED, "v", output_transform=lambda x: x)
        for _ in range(3):
            evaluator.run([1], max_epochs=1)

    seen = [step for *_, step in logged(attach)]
    entry.says(
        f"Three validations are logged at steps {', '.join(map(str, seen))}. Pass"
        " `global_step_transform=global_step_from_engine(trainer)` to loggers and checkpoints alike."
    )


@gotcha("Ignite's own schedulers belong at `ITERATION_STARTED`, state schedulers too.")
def events(entry):
    rising = lambda o: PiecewiseLinear(o, "lr", [(0, 0.0), (4, 0.4)])  # noqa: E731
    before, after = lrs(rising), lrs(rising, Events.ITERATION_COMPLETED)
    used = []
    engine = Engine(lambda e, b: used.append(e.state.p))
    StepStateScheduler(1.0, 0.5, 2, "p", create_new=True).attach(engine)
    engine.run(range(3), max_epochs=1)
    entry.says(
        f"There the steps use {before}; at `ITERATION_COMPLETED` {after}, the first from the optimizer. State"
        f" schedulers"
        f" default to `ITERATION_COMPLETED` and count from 1: the first steps see {', '.join(f'`{u}`' for u in used)}."
    )


@gotcha("A `cycle_size` counts iterations, and ends at the start.")
def cycle(entry):
    got = [v for _, v in CosineAnnealingScheduler.simulate_values(
        6, param_name="lr", start_value=1.0, end_value=0.0, cycle_size=4)]  # fmt: skip
    entry.says(f"`CosineAnnealingScheduler(optimizer, 'lr', 1.0, 0.0, cycle_size=4)` gives {probe.listed(got)}. For one"
               " decay pass `len(loader) * max_epochs`; `simulate_values` shows any scheduler without a"
               " run.")  # fmt: skip


@gotcha("EMA `momentum` is the weight of the new value.")
def momentum(entry):
    fast, *_ = ema(momentum=0.999, data=(1,))
    entry.says(
        f"The default is {EMAHandler(nn.Linear(1, 1)).momentum}; 0.999 copies the model ({fast[0]:.3f} of the way"
        f" in one"
        " step). The copy is made when the handler is built: load checkpoints into `handler.ema_model` as well."
        " It is in"
        " `eval` mode, and with `handle_buffers='copy'` shares the model's buffers."
    )
    assert not EMAHandler(nn.BatchNorm1d(1)).ema_model.training


@gotcha("`FastaiLRFinder` sums the loss over ranks and runs every handler.")
def finder(entry):
    def on_rank(rank):
        o = probe.optimizer(1e-4)
        engine, ran, finder = Engine(lambda e, b: float(rank + 1)), [], FastaiLRFinder()
        engine.add_event_handler(Events.COMPLETED, lambda: ran.append(1))
        with finder.attach(engine, {"optimizer": o}) as trainer:
            trainer.run(range(2), max_epochs=1)
        return finder.get_results()["loss"][0], len(ran)

    first, second = values(run_world(2, on_rank))
    assert first == second and first[1] == 1
    entry.says(f"Losses 1 and 2 on two ranks give {first[0]:g}; run it on all. Attach checkpoints and loggers after it."
               " It restores only what is in `to_save`, and sets no rate:"
               " `finder.apply_suggested_lr(optimizer)`.")  # fmt: skip


@gotcha("`ReduceLROnPlateauScheduler` drops `min_lr`.")
def plateau(entry):
    floor = ReduceLROnPlateauScheduler(probe.optimizer(), "loss", min_lr=0.3).scheduler.min_lrs
    group = ReduceLROnPlateauScheduler(probe.optimizer(), "loss", min_lr=0.3, param_group_index=0).scheduler.min_lrs
    assert group == [0.3]
    entry.says(f"Without `param_group_index` its floor is {floor[0]}. It reads the metric of the engine it is"
               f" attached to,"
               " the evaluator; on several ranks that metric must be the same everywhere.")  # fmt: skip


@gotcha("`setup_common_training_handlers` steps a torch scheduler every iteration and saves every 1000.")
def setup(entry):
    trainer, steps = Engine(probe.step), []
    scheduler = torch_lr.StepLR(probe.optimizer(), 1)
    with probe.stand_ins():
        common.setup_common_training_handlers(trainer, lr_scheduler=scheduler, with_pbars=False)
    scheduler.step = lambda: steps.append(1)
    trainer.run([1, 2], max_epochs=2)
    with tempfile.TemporaryDirectory() as folder:
        common_run(folder=folder, to_save={"m": nn.Linear(1, 1)}, with_pbars=False)
        assert not list(Path(folder).iterdir())
    entry.says(f"A schedule meant for epochs runs {len(steps)} times in 2 epochs of 2 iterations; a short"
               f" training leaves"
               " no file: pass `save_every_iters=`. Call it on every rank; it keeps bars to rank 0.")  # fmt: skip


@gotcha("`Checkpoint.SAVED_CHECKPOINT` is unknown before the first save.")
def saved_event(entry):
    engine = Engine(probe.step)
    engine.add_event_handler(Events.EPOCH_COMPLETED, Checkpoint({"model": nn.Linear(1, 1)}, Recorder()))
    text = error(engine.add_event_handler, Checkpoint.SAVED_CHECKPOINT, lambda: None)
    assert "not a valid event" in text
    engine.register_events(*CheckpointEvents)
    engine.add_event_handler(Checkpoint.SAVED_CHECKPOINT, lambda: None)
    entry.says("Adding a handler for it raises ValueError, until you call `trainer.register_events(*CheckpointEvents)`"
               " (from `ignite.handlers.checkpoint`).")  # fmt: skip


@proves(f"{PAGE}#common-triggers")
def triggers(entry):
    model, o = nn.Linear(1, 1), probe.optimizer()
    with tempfile.TemporaryDirectory() as folder:
        trainer = Engine(probe.step)
        handler = Checkpoint({"model": model, "optimizer": o, "trainer": trainer}, folder)
        trainer.add_event_handler(Events.EPOCH_COMPLETED, handler)
        trainer.run([1, 2], max_epochs=2)
        resumed = Engine(probe.step)
        to_save = {"model": model, "optimizer": o, "trainer": resumed}
        Checkpoint.load_objects(to_save, handler.last_checkpoint)
    first = []
    resumed.add_event_handler(Events.EPOCH_STARTED, lambda: first.append(resumed.state.epoch))
    resumed.run([1, 2], max_epochs=4)
    assert first == [3, 4]
    entry.says("How do I resume? Load model, optimizer, schedulers and trainer with"
               " `Checkpoint.load_objects(to_save, path)`, then run with the full `max_epochs`.")  # fmt: skip
    entry.says("How do I keep the best model? A `Checkpoint` on the evaluator's `COMPLETED` with `score_name` and"
               " `global_step_from_engine(trainer)`.")  # fmt: skip
    warmed = lrs(lambda o: create_lr_scheduler_with_warmup(CosineAnnealingScheduler(o, "lr", 1.0, 0.0, 9), 0.0, 3), n=3)
    assert warmed == "0, 0.5, 1"
    steps = [lrs(lambda o: create_lr_scheduler_with_warmup(torch.optim.lr_scheduler.StepLR(o, 4, 0.5), 0.0, 3), n=9),
             lrs(lambda o: LRScheduler(torch.optim.lr_scheduler.StepLR(o, 4, 0.5)), n=7)]  # fmt: skip
    assert steps[0].split(", ")[2:] == steps[1].split(", ") and steps[0].split(", ").index("0.5", 2) == 3 + 4 - 1, steps
    entry.says("How do I warm up? `create_lr_scheduler_with_warmup`, attached at `ITERATION_STARTED`; the last event of"
               " the warm-up is also the first of the scheduler.")  # fmt: skip
    free = {"TensorboardLogger": "TensorBoard", "MLflowLogger": "MLflow", "VisdomLogger": "Visdom"}
    assert [name for name, (_, account, _) in SERVICE.items() if account == "none"] == list(free)
    *most, last = free.values()
    entry.says(f"Which logger runs without an account? {', '.join(most)} and {last}.")


@proves(f"{PAGE}#useful-boundary-notes")
def notes(entry):
    assert train_output(0.0, late := TimeLimit(10), Events.EPOCH_COMPLETED) == 3 and late.limit_sec == 10
    assert probe.without_package("ProgressBar").startswith("ModuleNotFoundError")
    entry.says("`ProgressBar` needs tqdm, each logger its package, `plot` matplotlib, `write_results` pandas; importing"
               " `ignite.handlers` needs none of them.")  # fmt: skip
    assert "pandas" in probe.complaint("BasicTimeProfiler().write_results('t.csv')")
    entry.says("`setup_common_training_handlers`, `save_best_model_by_val_score` and `add_early_stopping_by_val_score`"
               " live in `ignite.contrib.engines.common` and nowhere else.")  # fmt: skip
    assert not hasattr(probe.ignite.handlers, "setup_common_training_handlers")
    with tempfile.TemporaryDirectory() as folder:
        handler = Checkpoint({"model": nn.Linear(1, 1)}, folder)
        engine = Engine(lambda e, b: 1 / 0)
        engine.add_event_handler(Events.EXCEPTION_RAISED, handler)
        with probe.quiet():
            engine.run([1], max_epochs=1)
        assert engine.state.iteration == 1 and handler.last_checkpoint.exists()
    entry.says("A handler at `Events.EXCEPTION_RAISED`, a `Checkpoint` as well, swallows the exception: `run`"
               " returns as if"
               " all were done. Raise it again in a handler of your own.")  # fmt: skip
