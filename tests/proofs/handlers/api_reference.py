"""Proofs of the API reference of the handlers room: tables printed by the probe, and what saving and stopping do."""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from pathlib import Path

import ignite
import ignite.distributed as idist
import torch
from ignite.engine import Engine, Events
from ignite.handlers import (
    Checkpoint,
    DiskSaver,
    EarlyStopping,
    EMAHandler,
    EpochOutputStore,
    ModelCheckpoint,
    TerminateOnNan,
    TimeLimit,
    Timer,
    global_step_from_engine,
    terminate_on_nan,
)
from ignite.handlers.checkpoint import BaseSaveHandler, CheckpointEvents
from probes import handlers as probe
from support.claims import proves
from support.pages import read_page, slug
from support.world import run_world, values
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer

PAGE = "sub-skills/handlers/references/api-reference.md"


def at(*names: str):
    """Register a proof for the entries of these names on the page."""
    return proves(*(f"{PAGE}#{slug(name)}" for name in names))


def error(function, *args, **kwargs) -> str:
    """`Class: text` of the exception that the call raises."""
    with probe.quiet():
        try:
            result = function(*args, **kwargs)
        except Exception as e:
            return f"{type(e).__name__}: {e}"
    raise AssertionError(f"expected an exception, got {result!r}")


class Recorder(BaseSaveHandler):
    """Notes what would be written, and with a minus what would be removed."""

    def __init__(self):
        self.files, self.contents = [], []

    def __call__(self, checkpoint, filename, metadata=None):
        self.files.append(filename)
        self.contents.append(checkpoint)

    def remove(self, filename):
        self.files.append(f"-{filename}")


def train(handler, data=(1,), max_epochs=1, event=Events.EPOCH_COMPLETED, scores=()) -> Engine:
    """Run an engine with the handler attached; the metric `acc` is the next of the scores in each epoch."""
    engine, scores = Engine(probe.step), iter(scores)

    @engine.on(Events.EPOCH_COMPLETED)
    def _():
        engine.state.metrics["acc"] = next(scores, 0.5)

    engine.add_event_handler(event, handler)
    with probe.quiet():
        engine.run(list(data), max_epochs=max_epochs)
    return engine


def saved(data=(1,), max_epochs=1, scores=(), to_save=None, **kwargs) -> list[str]:
    """The names that a Checkpoint with these arguments writes and removes."""
    recorder = Recorder()
    train(Checkpoint(to_save or {"model": nn.Linear(1, 1)}, recorder, **kwargs), data, max_epochs, scores=scores)
    return recorder.files


def epoch(engine, event):
    return engine.state.epoch


def kept(files: list[str]) -> list[str]:
    """What is left at the end."""
    left = []
    for file in files:
        left.remove(file[1:]) if file.startswith("-") else left.append(file)
    return left


def ticked(texts) -> str:
    return ", ".join(f"`{t}`" for t in texts)


@at("ignite.handlers API reference")
def intro(entry):
    assert set(ignite.handlers.__all__) <= set(probe.public())
    entry.says(
        "Every public name of `ignite.handlers` and of its modules, and the set-up functions of"
        " `ignite.contrib.engines.common`."
    )
    entry.says(f"Measured on pytorch-ignite {ignite.__version__} and torch {torch.__version__.split('+')[0]}, CPU.")
    scope = probe.names()
    assert isinstance(scope["model"], nn.Linear) and len(scope["two"].param_groups) == 2
    assert scope["optimizer"].param_groups[0]["lr"] == 1.0 and scope["a"].optimizer is scope["b"].optimizer
    assert scope["c"].optimizer is scope["other"] and scope["m"].param_name == "momentum"
    entry.says(
        "In the tables of errors `model` is a module, `optimizer` and `other` optimizers, `two` one with 2 parameter"
        " groups, `trainer` an engine, `score` and `save` functions, `a`, `b` schedulers of the learning rate of"
        " `optimizer`, `c` of that of `other`, `m` of the momentum."
    )
    assert "save_handler" in probe.signatures("Checkpoint") and "Mapping" not in probe.signatures("Checkpoint")
    entry.says("Signatures are those of the installed library, without annotations.")
    sections = [e.heading for e in read_page(PAGE).entries if e.level == 2]
    more = [e.heading for e in read_page(PAGE).entries if e.level == 3 and e.heading not in probe.public()]
    entry.says("Contents:", *probe.public(), *sections, *more)  # compared with the headings in test_handlers_reference


def _table_of(name: str):
    @at(name)
    def proof(entry):
        entry.table(probe.complaints(name), number=len(entry.entry.tables) - 1)

    return proof


for _name in probe.COMPLAINTS:
    _table_of(_name)


# Saving


@at("Checkpoint")
def checkpoint_names(entry):
    two = {"model": nn.Linear(1, 1), "other": nn.Linear(1, 1)}
    one = saved((1, 2, 3))[0]
    many = saved((1, 2, 3), to_save=two)[0]
    scored = saved(score_name="acc")[0]
    full = saved(score_name="acc", global_step_transform=epoch, filename_prefix="best")[0]
    entry.says(
        f"Names: `{one}` at iteration 3, `{many}` with several objects, `{scored}` with `score_name='acc'`,"
        f" `{full}` with `filename_prefix='best'` and a `global_step_transform` that gives the epoch."
    )
    integer = saved(score_function=lambda e: 1)[0]
    entry.says(f"A score that is an int is written as it is (`{integer}`), any other with 4 digits.")
    unscored = saved(filename_pattern="{global_step}-{score}.{ext}")[0]
    entry.says(
        "`filename_pattern` may use `{filename_prefix}`, `{name}`, `{global_step}`, `{score_name}`, `{score}`, `{ext}`;"
        f" without a score function `{{score}}` is `{unscored.split('-')[1][:4]}`, another key is a"
        f" `{error(saved, filename_pattern='{epoch}.pt')}`."
    )
    same = saved(max_epochs=2, filename_pattern="x.pt")
    assert same == ["x.pt", "-x.pt", "x.pt"]
    entry.says("A name that is used again is overwritten, whatever `n_saved` says.")


@at("Checkpoint")
def checkpoint_ranking(entry):
    scores = (0.3, 0.9, 0.5)
    recorder = Recorder()
    handler = Checkpoint({"model": nn.Linear(1, 1)}, recorder, score_name="acc", n_saved=2,
                         global_step_transform=epoch)  # fmt: skip
    train(handler, max_epochs=3, scores=scores)
    assert len(kept(recorder.files)) == 2 and "0.3" not in "".join(kept(recorder.files))
    entry.says(
        f"Keeps the `n_saved` highest priorities: the score, else the global step. With scores"
        f" {', '.join(map(str, scores))} and `n_saved=2`, `last_checkpoint` after the third epoch is"
        f" `{handler.last_checkpoint}`, the best, not the latest."
    )
    first = kept(saved(max_epochs=2, score_name="acc", global_step_transform=epoch))
    later = kept(saved(max_epochs=2, score_name="acc", global_step_transform=epoch, greater_or_equal=True))
    entry.says(f"At equal scores the first file stays ({ticked(first)}), with `greater_or_equal=True` the latest"
               f" ({ticked(later)}).")  # fmt: skip
    nan = kept(saved(max_epochs=3, scores=(float("nan"), 0.9, 0.95), score_name="acc", global_step_transform=epoch))
    entry.says(f"A first score of NaN is never beaten: scores NaN, 0.9, 0.95 leave `{nan[0]}`.")
    missing = error(saved, score_name="nope")
    entry.says(f"`score_name` of a metric that is not in the engine's state: `{missing}`.")
    text = error(saved, score_function=lambda e: torch.tensor(0.5))
    entry.says(f"The score is a number, not a tensor: `{text}`.")
    low = saved(score_name="neg", score_function=Checkpoint.get_default_score_fn("acc", -1.0))[0]
    entry.says(f"`get_default_score_fn('acc', -1.0)` is the sign for errors and losses; the name then has it: `{low}`.")


@at("Checkpoint")
def checkpoint_content(entry):
    model = nn.Linear(1, 1)
    recorder = Recorder()
    handler = Checkpoint({"model": model}, recorder)
    engine = train(handler, (1, 2), max_epochs=2)
    assert set(recorder.contents[0]) == set(model.state_dict())
    entry.says("With one object in `to_save` the file is its state itself, with several a dict by their names.")
    entry.says(f"A trainer's state is {ticked(engine.state_dict())}; metrics, `output` and the order of the data are"
               " not in it.")  # fmt: skip
    assert not {"metrics", "output"} & set(engine.state_dict())
    both = Recorder()
    handler = Checkpoint({"model": model, "o": probe.optimizer()}, both, include_self=True)
    train(handler)
    state = both.contents[0]["checkpointer"]
    entry.says(
        f"`include_self=True` adds `checkpointer`, the list of files with their priorities (`{list(state)[0]}`):"
        " without it a resumed handler knows none of the earlier files, removes none and takes any score for the best."
    )
    with tempfile.TemporaryDirectory() as folder:
        resumed = Checkpoint({"model": model}, DiskSaver(folder), score_name="acc", global_step_transform=epoch)
        train(resumed, scores=(0.9,))
        again = Checkpoint({"model": model}, DiskSaver(folder, require_empty=False), score_name="acc",
                           global_step_transform=lambda e, n: 7)  # fmt: skip
        train(again, scores=(0.1,))
        assert len(os.listdir(folder)) == 2 and "0.1" in str(again.last_checkpoint)
    with tempfile.TemporaryDirectory() as folder:
        handler = Checkpoint({"model": model}, folder, include_self=True)
        train(handler)
        text = error(Checkpoint.load_objects, {"model": model}, handler.last_checkpoint)
    entry.says("With a single object `checkpointer` lands inside its state, and loading raises"
               f" `{text.splitlines()[1].strip()}`: save two objects.")  # fmt: skip


@at("Checkpoint")
def checkpoint_loading(entry):
    model, other = nn.Linear(1, 1), nn.Linear(1, 1)
    state = {"model": model.state_dict()}
    text = error(Checkpoint.load_objects, {"model": model, "optimizer": probe.optimizer()}, state)
    entry.says(f"`load_objects`: a key of `to_load` that the file lacks raises `{text}`; what only the file has is"
               " passed over.")  # fmt: skip
    Checkpoint.load_objects({"model": other}, {**state, "optimizer": {}})
    assert torch.equal(other.weight, model.weight)
    fresh = nn.Linear(1, 1)
    before = fresh.weight.clone()
    Checkpoint.load_objects({"net": fresh}, state, strict=False)
    assert torch.equal(fresh.weight, before)
    entry.says(
        "With one object and a wrong name the whole file is taken for its state; `strict=False` then loads nothing and"
        " says nothing. `kwargs` go to modules only."
    )
    with tempfile.TemporaryDirectory() as folder:
        torch.save({"path": Path("x")}, f"{folder}/c.pt")
        text = error(Checkpoint.load_objects, {"model": model}, f"{folder}/c.pt")
        assert "Weights only load failed" in text
        entry.says(
            f"A path is opened with `weights_only=True` and without `map_location`: `{text.partition('.')[0]}`"
            f" where the file holds"
            " more than tensors and plain types. Load it yourself and pass the dict."
        )
    old = train(lambda engine: None, (1, 2, 3), max_epochs=1)
    recorder = Recorder()
    handler = Checkpoint({"model": model}, recorder)
    train(handler, (1, 2, 3), max_epochs=2)
    train(handler, (1, 2), max_epochs=2)
    assert old.state.iteration == 3 and len(recorder.files) == 3 and recorder.files[-1] == "model_6.pt"
    handler.reset()
    train(handler, (1, 2), max_epochs=1)
    assert recorder.files[-1] == "model_2.pt"
    entry.says("In a second run from iteration 0 nothing is saved until the step is above the highest kept one, 6 after"
               " 2 epochs of 3: call `reset()`, which forgets the files and leaves them.")  # fmt: skip


@at("Checkpoint")
def checkpoint_ranks(entry):
    def on_rank(rank):
        model, called = nn.Linear(1, 1), []
        handler = Checkpoint({"model": model}, f"{folder}/a", filename_prefix=f"r{rank}")
        train(handler)
        other = Checkpoint({"model": model}, f"{folder}/b", filename_prefix=f"r{rank}", save_on_rank=1)
        train(other)
        train(Checkpoint({"model": model}, lambda checkpoint, filename: called.append(filename)))
        wrapped = Recorder()
        train(Checkpoint({"model": idist.auto_model(model), "e": model}, wrapped))
        idist.barrier()
        return str(handler.last_checkpoint), os.listdir(f"{folder}/b"), called, list(wrapped.contents[0]["model"])

    with tempfile.TemporaryDirectory() as folder:
        ranks = values(run_world(2, on_rank))
        files = os.listdir(f"{folder}/a")
    assert files == ["r0_model_1.pt"] and ranks[0][1] == ["r1_model_1.pt"]
    assert Path(ranks[1][0]).name == "r1_model_1.pt" and ranks[1][2] == ["model_1.pt"] and ranks[0][2] == ranks[1][2]
    assert ranks[0][3] == ["weight", "bias"]
    entry.says(
        "Several ranks: each builds the states and ranks the scores by itself; a `DiskSaver` writes on `save_on_rank`"
        " only, and `last_checkpoint` names a path on the others as well; a function as `save_handler` is called on"
        " every rank. Nothing waits: put a barrier before another rank reads the file."
    )
    entry.says("`DistributedDataParallel` and `DataParallel` are unwrapped on saving and on loading: the file has"
               " `weight`, not `module.weight`.")  # fmt: skip


@at("Checkpoint")
def checkpoint_zero(entry):
    def on_rank(rank):
        model = idist.auto_model(nn.Linear(2, 2))
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        if guarded and rank == 1:
            time.sleep(60)
        train(Checkpoint({"model": model, "optimizer": optimizer}, folder))
        return True

    with tempfile.TemporaryDirectory() as folder:
        guarded = False
        assert values(run_world(2, on_rank)) == [True, True]
        assert os.listdir(folder) == ["checkpoint_1.pt"]
    with tempfile.TemporaryDirectory() as folder:
        guarded = True
        assert run_world(2, on_rank, timeout=1, limit=2.5)[0].ok is False
    entry.says("Collective when `to_save` holds a `ZeroRedundancyOptimizer`: attach it on every rank.")


@at("CheckpointEvents")
def events(entry):
    engine, handler = Engine(probe.step), Checkpoint({"model": nn.Linear(1, 1)}, Recorder())
    engine.add_event_handler(Events.EPOCH_COMPLETED, handler)
    text = error(engine.add_event_handler, Checkpoint.SAVED_CHECKPOINT, lambda e: None)
    entry.says(
        "`Checkpoint.SAVED_CHECKPOINT` fires on the engine that ran the handler, on every rank, after the save. The"
        " handler registers it only at its first call, so before the run add_event_handler raises"
        f" `{text}`: first call `engine.register_events(*CheckpointEvents)`."
    )

    def on_rank(rank):
        seen = []
        engine.register_events(*CheckpointEvents)
        engine.add_event_handler(Checkpoint.SAVED_CHECKPOINT, lambda e: seen.append(handler.last_checkpoint))
        engine.run([1], max_epochs=1)
        return seen

    assert values(run_world(2, on_rank)) == [["model_1.pt"]] * 2
    entry.says("Import it from `ignite.handlers.checkpoint`.")
    assert not hasattr(ignite.handlers, "CheckpointEvents")


@at("ModelCheckpoint")
def model_checkpoint(entry):
    with tempfile.TemporaryDirectory() as folder:
        text = error(Engine(probe.step).add_event_handler, Events.EPOCH_COMPLETED, ModelCheckpoint(folder))
        assert "to_save" in text
        entry.says(
            "A `Checkpoint` that writes to a folder and takes `to_save` when it is attached:"
            " `add_event_handler(event, handler, {'model': model})`. Without it: `ValueError: Error adding …"
            " 'handler': takes parameters ['engine', 'to_save'] but will be called with []…`."
        )
        assert text.startswith("ValueError: Error adding") and text.endswith(".")
        handler = ModelCheckpoint(folder, "p", n_saved=None)
        engine = Engine(probe.step)
        engine.add_event_handler(Events.EPOCH_COMPLETED, handler, {"model": nn.Linear(1, 1), "o": probe.optimizer()})
        engine.run([1, 2], max_epochs=2)
        names = sorted(os.listdir(folder))
        handler.reload_objects({"model": nn.Linear(1, 1)}, global_step=2)
    entry.says(f"With prefix `p` and `n_saved=None`: {ticked(names)}; `reload_objects` finds one by its parts, as"
               " `global_step=2`.")  # fmt: skip


@at("DiskSaver")
def disk_saver(entry):
    def on_rank(rank):
        try:
            DiskSaver(folder)
        except ValueError as e:
            return str(e).replace(folder, "d").replace("`", "")
        return ""

    with tempfile.TemporaryDirectory() as folder:
        Path(f"{folder}/x.pt").touch()
        first, second = values(run_world(2, on_rank))
        assert second == "" and DiskSaver(folder, require_empty=False)
    entry.says(
        f"`ValueError: {first}` Only rank `save_on_rank` looks and raises; the others go on and hang in their next"
        " collective. A resumed run needs `require_empty=False`."
    )
    with tempfile.TemporaryDirectory() as folder:
        saver = DiskSaver(folder)
        saver({"a": 1}, "f.pt")
        assert os.listdir(folder) == ["f.pt"]
        with open(f"{folder}/f.pt", "rb") as file:
            before = file.read()
        error(saver, {"a": lambda: 1}, "f.pt")
        with open(f"{folder}/f.pt", "rb") as file:
            assert file.read() == before and os.listdir(folder) == ["f.pt"]
        plain = DiskSaver(folder, atomic=False, require_empty=False)
        error(plain, {"a": lambda: 1}, "f.pt")
        with open(f"{folder}/f.pt", "rb") as file:
            assert file.read() != before
    entry.says("`atomic=True` writes to a temporary file in the same folder and moves it; with `atomic=False` a"
               " save that"
               " fails leaves a broken file in place of the old one.")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        text = error(DiskSaver(folder, no_such_argument=1), {"a": 1}, "f.pt")
    assert saver.kwargs == {} and "no_such_argument" in text and "save" in text
    entry.says("`kwargs` go to `torch.save`.")


@at("BaseSaveHandler")
def base_save_handler(entry):
    calls = []

    def save(checkpoint, filename, metadata=None):
        calls.append(metadata)
        raise TypeError("mine")

    assert error(train, Checkpoint({"model": nn.Linear(1, 1)}, save)) == "TypeError: mine" and calls[1] is None
    entry.says(
        "To write elsewhere, derive from it: `__call__(checkpoint, filename, metadata)` and `remove(filename)`, called"
        " on every rank, so guard by the rank. `metadata` has " + ticked(calls[0]) + ". A `TypeError` inside the"
        " call is"
        " taken for a function of two arguments: it is called again without `metadata`."
    )


# Steps and stopping


@at("global_step_from_engine")
def global_step(entry):
    trainer, evaluator = train(lambda e: None, (1, 2, 3), 2), Engine(probe.step)
    step = global_step_from_engine(trainer)
    by_iteration = global_step_from_engine(trainer, Events.ITERATION_COMPLETED)
    assert step(evaluator, "custom") == trainer.state.epoch == 2
    entry.says(
        "Gives the trainer's counter that belongs to the event at which the evaluator's handler runs: after 2 epochs"
        f" of 3, {step(evaluator, Events.COMPLETED)} at `COMPLETED` and `EPOCH_COMPLETED`,"
        f" {step(evaluator, Events.ITERATION_COMPLETED)} at `ITERATION_COMPLETED`; with"
        f" `custom_event_name=Events.ITERATION_COMPLETED` always {by_iteration(evaluator, Events.COMPLETED)}; at"
        f" an event"
        " without a counter `fallback_attr`."
    )
    assert step(evaluator, Events.EPOCH_COMPLETED) == step(evaluator, Events.COMPLETED)
    assert saved(max_epochs=1, global_step_transform=None) == ["model_1.pt"]
    entry.says("Without it a handler on an evaluator counts the evaluator: every file and every point has the"
               " same step.")


def early(scores, **kwargs) -> tuple[int, EarlyStopping]:
    """The trainer's epoch at the end, when an evaluator gives these scores, one an epoch; and the handler."""
    trainer, evaluator, scores = Engine(probe.step), Engine(probe.step), list(scores)
    attach = kwargs.pop("attach", None)
    left = iter(scores)
    handler = EarlyStopping(score_function=lambda e: next(left), trainer=trainer, **kwargs)
    if attach is None:
        evaluator.add_event_handler(Events.COMPLETED, handler)
    else:
        handler.attach(evaluator, reset_engine=trainer if attach == "trainer" else None)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run([1], max_epochs=1))
    with probe.quiet():
        trainer.run([1], max_epochs=len(scores))
    return trainer.state.epoch, handler


@at("EarlyStopping")
def early_stopping(entry):
    falling = (5, 4, 3, 2, 1)
    stop, _ = early(falling, patience=2)
    low, _ = early(falling, patience=2, mode="min")
    entry.says(
        f"Add it to the evaluator: `evaluator.add_event_handler(Events.COMPLETED, handler)`. With scores"
        f" {', '.join(map(str, falling))} and `patience=2` the trainer stops after epoch {stop}; with"
        f" `mode='min'` after"
        f" all {low}."
    )
    never, handler = early(falling, patience=2, attach="evaluator")
    right, _ = early(falling, patience=2, attach="trainer")
    assert never == len(falling) and handler.counter == 0
    entry.says(
        f"`handler.attach(evaluator)` never stops: it resets at the evaluator's own `STARTED`, before each score (epoch"
        f" {never} here). Pass `reset_engine=trainer`: epoch {right}."
    )
    flat, _ = early((1, 1, 1, 1), patience=2)
    assert flat == 3
    creeping = (1, 1.5, 2, 2.5, 3)
    counted, _ = early(creeping, patience=2, threshold=0.9)
    total, _ = early(creeping, patience=2, threshold=0.9, cumulative=True)
    entry.says(
        "An equal score is no improvement. `threshold=0.9` with scores that rise by 0.5: each step counts by itself and"
        f" it stops after epoch {counted}; with `cumulative=True` gains add up, and it runs all {total}."
    )
    nan, _ = early([float("nan")] * 5, patience=2)
    drop, _ = early([1] + [float("nan")] * 4, patience=2)
    assert nan == drop == 5
    entry.says("NaN counts as an improvement: scores that become NaN never stop it.")
    handler = EarlyStopping(2, lambda e: 1, Engine(probe.step))
    entry.says(f"`state_dict()` has {ticked(handler.state_dict())}, not `patience` or `threshold`.")
    assert not {"patience", "threshold"} & set(handler.state_dict())
    trainer, seen = Engine(probe.step), []
    handler = EarlyStopping(9, lambda e: 1, trainer)
    handler.attach(trainer, Events.EPOCH_COMPLETED)
    handler.load_state_dict({"counter": 2, "best_score": 5, "threshold_mode": "abs"})
    trainer.add_event_handler(Events.STARTED, lambda: seen.append(handler.counter))
    trainer.run([1], max_epochs=1)
    assert seen == [0]
    entry.says("Attached with `attach`, a loaded counter is reset at `STARTED` of the resumed run.")
    entry.says("Changed in 0.5.5: `threshold`, `threshold_mode`, `cumulative` were `min_delta`, `min_delta_mode`,"
               " `cumulative_delta`. The decision is each rank's own: score a value that is the same on"
               " all.")  # fmt: skip

    def on_rank(rank):
        engine = Engine(probe.step)
        handler = EarlyStopping(1, lambda e: -e.state.epoch * rank, engine)
        engine.add_event_handler(Events.EPOCH_COMPLETED, handler)
        engine.run([1], max_epochs=3)
        return engine.state.epoch

    assert values(run_world(2, on_rank)) == [2, 2]


@at("EarlyStopping")
def early_stopping_ranks(entry):
    def on_rank(rank):
        engine = Engine(probe.step)
        engine.add_event_handler(
            Events.EPOCH_COMPLETED, EarlyStopping(1, lambda e: (1 - 2 * rank) * e.state.epoch, engine)
        )
        engine.run([1], max_epochs=4)
        return engine.state.epoch

    assert values(run_world(2, on_rank)) == [4, 2]


@at("TerminateOnNan")
def nan(entry):
    inner = []
    real = terminate_on_nan.apply_to_type

    def spy(*args):
        try:
            return real(*args)
        except Exception as e:
            inner.append(f"{type(e).__name__}: {e}")
            raise

    def stopped(output) -> int:
        return train_output(output, TerminateOnNan())

    terminate_on_nan.apply_to_type = spy
    try:
        ended = stopped(float("nan"))
    finally:
        terminate_on_nan.apply_to_type = real
    entry.says(f"Looks at the engine's output, numbers and tensors within lists and dicts: at NaN or infinity it stops"
               f" the run, here after iteration {ended} of 3, and raises nothing (inside, `{inner[0]}` is"
               f" caught).")  # fmt: skip
    assert stopped({"loss": torch.tensor([1.0, float("inf")])}) == 1 and stopped("nan") == 3
    entry.says("An output that holds `None` or another type is an error; give `output_transform`. Text is passed over.")

    def on_rank(rank):
        return train_output(float("nan") if rank == 0 else 1.0, TerminateOnNan())

    first, second = values(run_world(2, on_rank))
    assert (first, second) == (1, 3)
    entry.says(f"The stop is one rank's own: NaN on rank 0 alone ends it after iteration {first}, rank 1 after"
               f" {second}.")


def train_output(output, handler, event=Events.ITERATION_COMPLETED) -> int:
    """The iteration at which an engine with this output ends, of 3."""
    engine = Engine(lambda engine, batch: output)
    engine.add_event_handler(event, handler)
    with probe.quiet():
        return engine.run([1, 2, 3], max_epochs=1).iteration


@at("TimeLimit")
def time_limit(entry):
    handler = TimeLimit(10)
    handler.start_time -= 11
    assert train_output(0.0, handler) == 1
    late = train_output(0.0, handler, Events.EPOCH_COMPLETED)
    entry.says(
        f"Default {TimeLimit().limit_sec} s. The clock starts when the object is built, not when the run starts, and is"
        " asked only at the event it is attached to: at `EPOCH_COMPLETED` the epoch ends first"
        f" ({late} of 3 iterations)."
    )

    def on_rank(rank):
        handler = TimeLimit(10)
        handler.start_time -= 11 * rank
        return train_output(0.0, handler)

    assert values(run_world(2, on_rank)) == [3, 1]
    entry.says("Each rank has its own clock, so ranks may stop at different iterations.")


# Averages and stores


def ema(event=Events.ITERATION_COMPLETED, data=(1, 1, 1), name="ema_momentum", before=None, **kwargs):
    """Averages of a weight that is set to the batch in each step, from 0; and the momentum after each step."""
    model, averages, momenta = nn.Linear(1, 1, bias=False), [], []
    nn.init.constant_(model.weight, 0.0)
    handler = EMAHandler(model, **kwargs)

    def update(engine, batch):
        with torch.no_grad():
            model.weight.fill_(float(batch))

    engine = Engine(update)
    handler.attach(engine, name=name, event=event)
    engine.add_event_handler(Events.ITERATION_COMPLETED, lambda: averages.append(handler.ema_model.weight.item()))
    engine.add_event_handler(Events.ITERATION_COMPLETED, lambda: momenta.append(getattr(engine.state, name)))
    engine.run(list(data), max_epochs=1)
    return averages, momenta, handler, engine


@at("EMAHandler")
def ema_update(entry):
    averages, _, handler, engine = ema(momentum=0.5)
    entry.says(
        "`ema = (1 - momentum) * ema + momentum * model`: momentum is the weight of the new value, the reverse of what"
        f" most other libraries call decay. From 0 towards 1 with 0.5: {', '.join(map(str, averages))}."
    )
    parameters = list(handler.ema_model.parameters())
    assert handler.ema_model.training is False and not any(p.requires_grad for p in parameters)
    entry.says("`ema_model` is a copy made when the handler is built, without gradients and in `eval` mode.")
    model = nn.Linear(1, 1, bias=False)
    late = EMAHandler(model)
    first = late.ema_model.weight.item()
    nn.init.constant_(model.weight, 7.0)
    assert late.ema_model.weight.item() == first and not hasattr(late, "state_dict")
    entry.says(
        "Loading the model afterwards leaves the copy as it was, and the handler has no `state_dict`: save and load"
        " `handler.ema_model` beside the model."
    )
    assert "ema_momentum" not in engine.state_dict()
    _, momenta, *_ = ema(data=range(6), momentum=0.1, momentum_warmup=0.5, warmup_iters=4)
    entry.says(
        "`momentum_warmup=0.5, warmup_iters=4, momentum=0.1` gives at iterations 1 to 6"
        f" {', '.join(f'{m:.3g}' for m in momenta)}; it counts attach events, and starts over in a resumed run."
    )

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _, momenta, _, engine = ema(name="gm", data=range(6), momentum=0.1, momentum_warmup=0.5, warmup_iters=4)
        assert set(momenta) == {0.1} and "ema_momentum" in str(caught[0].message)
        entry.says("With another `name` the warm-up goes to `state.ema_momentum` all the same and has no effect.")
        EMAHandler(nn.Linear(1, 1)).attach(engine, "gm")
    entry.says(f"Attached where the attribute exists, it warns and takes over its value: `{caught[-1].message}`")


@at("EMAHandler")
def ema_buffers(entry):
    means = {}
    for how in ("copy", "update", "ema_train"):
        model = nn.BatchNorm1d(1)
        handler = EMAHandler(model, momentum=0.5, handle_buffers=how)
        engine = Engine(lambda engine, batch, model=model: model.running_mean.fill_(4.0))
        handler.attach(engine)
        engine.run([1], max_epochs=1)
        shared = handler.ema_model.running_mean.data_ptr() == model.running_mean.data_ptr()
        means[how] = (handler.ema_model.running_mean.item(), shared, handler.ema_model.training)
    assert means["copy"][1] and not means["update"][1] and means["ema_train"][2] and not means["copy"][2]
    entry.says(
        "Buffers, a running mean of 4 after one step with momentum 0.5: `'copy'` gives"
        f" {means['copy'][0]:g} and shares the model's tensor from then on, `'update'` {means['update'][0]:g},"
        f" `'ema_train'` {means['ema_train'][0]:g} and leaves the copy in train mode: run it forward yourself."
    )

    def on_rank(rank):
        model = nn.Linear(1, 1, bias=False)
        nn.init.constant_(model.weight, float(rank))
        handler = EMAHandler(model, momentum=0.5)
        engine = Engine(lambda engine, batch: None)
        handler.attach(engine)
        engine.run([1], max_epochs=1)
        wrapped = EMAHandler(idist.auto_model(model))
        return handler.ema_model.weight.item(), type(wrapped.ema_model).__name__

    ranks = values(run_world(2, on_rank))
    assert ranks[0][0] != ranks[1][0] and ranks[0][1] == "Linear"
    entry.says("Several ranks: no communication, each averages its own model, unwrapped from"
               " `DistributedDataParallel`.")


@at("EpochOutputStore")
def store(entry):
    store = EpochOutputStore()
    engine = Engine(lambda engine, batch: torch.full((1,), float(batch), requires_grad=True) * 2)
    store.attach(engine, "outputs")
    engine.run([1, 2], max_epochs=2)
    assert engine.state.outputs is store.data and len(store.data) == 2 and store.data[0].requires_grad
    entry.says(
        "`data` is the list of the outputs of the current epoch, of this rank only, kept as they are: on their"
        " device and"
        " with their graph unless `output_transform` detaches them. With `name` it is also in `engine.state` from"
        " `EPOCH_COMPLETED` on."
    )

    def on_rank(rank):
        store = EpochOutputStore()
        engine = Engine(lambda engine, batch: rank)
        store.attach(engine)
        engine.run([1], max_epochs=1)
        return store.data

    assert values(run_world(2, on_rank)) == [[0], [1]]


@at("Timer")
def timer(entry):
    timer, engine = Timer(average=True), Engine(probe.step)
    got = timer.attach(engine, start=Events.EPOCH_STARTED, resume=Events.ITERATION_STARTED,
                       pause=Events.ITERATION_COMPLETED, step=Events.ITERATION_COMPLETED)  # fmt: skip
    engine.run([1, 2, 3], max_epochs=2)
    assert got is timer and timer.step_count == 3
    entry.says(
        "`start` resets it as well: with `start=Events.EPOCH_STARTED` the average is that of the last epoch"
        f" ({timer.step_count:.0f} steps after 2 epochs of 3). It runs from its construction, in seconds; on a GPU it"
        " measures the launch of kernels, since it does not synchronise."
    )
    assert Timer().running
    assert "synchronize" not in Path(ignite.handlers.timing.__file__).read_text()
