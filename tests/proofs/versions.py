"""references/versions.md: each row is what the releases on either side of it did when they were asked.

A probe is a function that says, in the words of the page, how the Ignite it runs under behaves. Every release of
tests/matrix.txt evaluates every probe (support.releases). Where the text changes from one release to the next, the
page must have the row: what the probe was called, the text before, the text after, the release. So a row with the
wrong release, a wrong value, a missing or an invented row differs from the runs. Changed parameters and new names
need no probe: they are read off the signatures of all public names, and none may be left out.

The functions above "What the page must say" run inside the releases; import nothing there that an old one lacks.
"""
from __future__ import annotations

import contextlib
import copy
import datetime
import inspect
import io
import itertools
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import types
import warnings
import weakref
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest
import torch
from support import BUNDLE, releases
from support.claims import COUNTS, proves
from support.pages import slug

PAGE = "references/versions.md"
PROBES: dict = {}
ROWS: dict[str, Row] = {}  # probe name → where its rows stand


@dataclass
class Row:
    section: str
    what: str  # first cell of the row
    covers: tuple[str, ...]  # changed signatures ("ignite.a.b 0.5.5") that this row tells, so that no other row does


def row(section: str, what: str, covers: tuple[str, ...] = ()):
    """Register a probe for the rows headed `what` of that section. It returns the text of a cell, or None where what
    it asks about does not exist yet (that is told under "New names", so it makes no row)."""

    def register(function):
        name = f"{section}: {what}"
        assert name not in PROBES, name
        PROBES[name], ROWS[name] = function, Row(section, what, covers)
        return function

    return register


def error(function, until: str | None = None) -> str | None:
    """`Class: first sentence of the text` of what the function raises, as a code span, … standing for what follows
    `until`; None if it raises nothing."""
    try:
        function()
    except Exception as e:
        text = str(e).strip().splitlines()[0] if str(e).strip() else ""
        text = re.sub(r"(?<=[.;]) .*", "", text).rstrip(".;: ")
        if until and until in text:
            text = text[: text.index(until)] + " …"
        return f"`{type(e).__name__}: {text}`" if text else f"`{type(e).__name__}`"
    return None


def parameter_names(function) -> list[str]:
    return list(inspect.signature(function).parameters)


@contextlib.contextmanager
def stand_in(**modules):
    """Put objects in the place of modules that are not installed here: wandb=…, sklearn__metrics=…"""
    with mock.patch.dict(sys.modules, {name.replace("__", "."): m for name, m in modules.items()}):
        yield


def world(size: int, function):
    """Outcomes of `size` gloo ranks; the time limits are generous, since nothing here is meant to hang."""
    from support.world import run_world

    return run_world(size, function, timeout=25, limit=50)


def values(outcomes) -> list:
    from support.world import values as returned

    return returned(outcomes)


def serial(function):
    """Outcome of one process without a launcher's variables."""
    from support.world import run_serial

    return run_serial(function, limit=50)


def engine_of(outputs=1.0):
    from ignite.engine import Engine

    return Engine(lambda engine, batch: outputs)


# distributed


@row("Distributed", "`init_method='tcp://…'` in `Parallel`, `initialize`")
def tcp():
    import ignite.distributed as idist

    def start():
        idist.initialize("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        idist.finalize()

    method = "tcp://127.0.0.1:0"
    texts = {error(lambda: idist.Parallel("gloo", init_method=method)), serial(lambda: error(start)).value}
    assert len(texts) == 1, texts
    text = texts.pop()
    return f"{text.replace(method, 'tcp://…')}: use `env://`" if text else "accepted"


@row("Distributed", "`broadcast(Path(…))` in a group")
def broadcast_path():
    import ignite.distributed as idist

    def give(rank):
        return error(lambda: idist.broadcast(Path("a/b"))) or str(type(idist.broadcast(Path("a/b"))).__mro__[1])

    (said,) = values(world(1, give))
    return said if said.startswith("`TypeError") else "returns a `Path`"


@row("Distributed", "`spawn`, `Parallel(…, nproc_per_node=…)`: address and port")
def spawn_port():
    import ignite.distributed as idist

    def started(**environment) -> list:
        with mock.patch("torch.multiprocessing.start_processes") as start, mock.patch.dict(os.environ, environment):
            idist.spawn("gloo", print, (), nproc_per_node=1, start_method="fork")
        return list(start.call_args.kwargs["args"][7:9])

    default, given = started(), started(MASTER_ADDR="127.0.0.9", MASTER_PORT="4321")
    where = f"`{default[0]}:{default[1]}`"
    if given == ["127.0.0.9", 4321]:
        return f"`MASTER_ADDR` and `MASTER_PORT` of the environment, else {where}"
    assert given == default, given
    return f"{where}, whatever the environment says; pass `master_addr=`, `master_port=`"


@row("Distributed", "`all_reduce(t, group=g)` on a rank outside `g`")
def all_reduce_outside():
    import ignite.distributed as idist

    def reduce(rank):
        group = idist.new_group([0])
        t = torch.tensor([rank + 1.0])
        return error(lambda: idist.all_reduce(t, group=group)) or idist.all_reduce(t, group=group).tolist()

    inside, outside = values(world(2, reduce))
    assert inside == [1.0]
    if outside == [2.0]:
        return "returns its input"
    return outside


@row("Distributed", "`group=` of a wrong type")
def wrong_group():
    import ignite.distributed as idist

    return values(world(1, lambda rank: error(lambda: idist.all_reduce(torch.ones(1), group="a"))))[0]


@row("Distributed", "`device()` without a group on a Mac with MPS")
def mps_device():
    import ignite.distributed as idist

    mps = mock.patch("torch.backends.mps.is_available", return_value=True)
    with mps, mock.patch("torch.cuda.is_available", return_value=False):
        return f"`{idist.device()}`"


@row("Distributed", "`all_gather(text)`, `broadcast(text)` in a group, text that is not ASCII")
def unicode_string():
    import ignite.distributed as idist

    sent = "é" * 4
    outcomes = [world(1, lambda rank: idist.all_gather(sent)), world(1, lambda rank: [idist.broadcast(sent)])]
    if all(o.ok and o.value == [sent] for (o,) in outcomes):
        return "arrives as sent"
    said = {f"`{o.error}: {o.message.split('.')[0]}`" if o.error else "arrives damaged" for (o,) in outcomes}
    return " or ".join(sorted(said))


# engine and base


@row("Engine and base", "`state.output` in a `GET_BATCH_STARTED` handler")
def output_kept():
    from ignite.engine import Events

    engine, seen = engine_of("last"), []
    engine.add_event_handler(Events.GET_BATCH_STARTED, lambda: seen.append(engine.state.output))
    engine.run([1, 2])
    return {"last": "the output of the iteration before", None: "`None`"}[seen[1]]


@row("Engine and base", "`run(None, epoch_length=…)`: the `GET_BATCH_…` events")
def batch_events_without_data():
    from ignite.engine import Events

    engine, seen = engine_of(), []
    for event in (Events.GET_BATCH_STARTED, Events.GET_BATCH_COMPLETED):
        engine.add_event_handler(event, lambda engine, name=event.name: seen.append(name))
    engine.run(None, max_epochs=1, epoch_length=2)
    return f"fire {seen.count('GET_BATCH_STARTED')} times for 2 iterations" if seen else "do not fire"


@row("Engine and base", "`run()` of a finished engine without `data` and `epoch_length`")
def rerun_without_length():
    engine = engine_of()
    engine.run(None, max_epochs=1, epoch_length=3)
    text = error(lambda: engine.run(max_epochs=1))
    if text:
        return text
    assert engine.state.iteration == 3
    return "starts again with the `epoch_length` of the state"


@row("Engine and base", "`run(data, epoch_length=…)` of a finished engine with another length")
def rerun_other_length():
    engine = engine_of()
    engine.run([1] * 4, max_epochs=1, epoch_length=3)
    text = error(lambda: engine.run([1] * 4, max_epochs=1, epoch_length=2))
    if text:
        return text
    assert engine.state.iteration == 2
    return "starts again with the new length"


@row("Engine and base", "`terminate_epoch()` in a `STARTED` or `EPOCH_STARTED` handler")
def terminate_epoch_early():
    from ignite.engine import Events

    def end(event) -> str:
        engine = engine_of()
        engine.add_event_handler(event, engine.terminate_epoch)
        text = error(lambda: engine.run([1, 2]))
        return text.split(".If")[0].rstrip("`") + "`" if text else "ignored"

    return " or ".join(sorted({end(Events.STARTED), end(Events.EPOCH_STARTED)}))


@row("Engine and base", "`load_state_dict` with both `iteration` and `epoch`")
def both_counters():
    engine = engine_of()
    state = {"epoch_length": 2, "max_epochs": 3, "iteration": 2, "epoch": 1}
    return error(lambda: engine.load_state_dict(state)).replace("keys. Found both", "keys")


@row("Engine and base", "`load_state_dict` without `iteration` and `epoch`")
def no_counter():
    text = error(lambda: engine_of().load_state_dict({"epoch_length": 2, "max_epochs": 3}))
    return f"{text.split(' in provided')[0].rstrip('`')}`"


@row("Engine and base", "`load_state_dict` without `max_epochs`")
def no_end():
    text = error(lambda: engine_of().load_state_dict({"epoch_length": 2, "iteration": 3}))
    return f"{text.split(' in provided')[0].rstrip('`')}`"


@row("Engine and base", "`run(data, max_epochs=0)` of a resumed engine")
def no_epochs():
    engine = engine_of()
    engine.load_state_dict({"epoch_length": 2, "max_epochs": 5, "iteration": 4})
    return error(lambda: engine.run([1, 2], max_epochs=0))


@row("Engine and base", "`load_state_dict` with `epoch_length` None and an `iteration` above 0")
def unknown_length():
    engine = engine_of()
    text = error(lambda: engine.load_state_dict({"epoch_length": None, "max_epochs": 3, "iteration": 5}))
    if text:
        return text
    assert engine.state.iteration == 5
    return f"resumes at iteration {engine.state.iteration}, epoch {engine.state.epoch}"


@row("Engine and base", "`Engine.run`: arguments after `max_epochs`", ("ignite.engine.Engine.run 0.5.5",))
def run_arguments():
    engine = engine_of()
    parameters = parameter_names(engine.run)
    listed = ", ".join(f"`{n}`" for n in parameters[2:] if n != "seed")
    if "max_iters" not in parameters:
        return listed
    engine.run([1, 2, 3], max_iters=5)
    assert engine.state.iteration == 5
    third = error(lambda: engine_of().run([1], 1, 1))  # once meant epoch_length=1
    assert third == error(lambda: engine_of().run([1], max_epochs=1, max_iters=1))
    engine = engine_of()
    engine.run([1, 2], max_epochs=1)
    assert error(lambda: engine.run([1, 2], max_iters=1)).startswith("`ValueError: To switch")
    engine.state.max_epochs = None
    engine.run([1, 2], max_iters=1)
    return (f"{listed}: pass `epoch_length` by name, since a third positional argument raises {third}; "
            "after a run by epochs set `engine.state.max_epochs = None` first")


@row("Engine and base", "`load_state_dict` of a run that counted iterations")
def state_of_iterations():
    engine = engine_of()
    state = {"epoch_length": 2, "iteration": 3, "max_iters": 3}
    text = error(lambda: engine.load_state_dict(state))
    if text:
        return f"{text.split(' in provided')[0].rstrip('`')}`"
    engine = engine_of()
    engine.run([1, 2], max_iters=3)
    assert engine.state_dict() == state, engine.state_dict()
    return "loads: `max_iters` stands in the place of `max_epochs`"


@row("Engine and base", "an engine with handlers, `del engine`")
def engine_freed():
    import gc

    from ignite.engine import Events

    gc.collect()
    gc.disable()
    try:
        engine = engine_of()
        engine.add_event_handler(Events.STARTED, lambda e: None)
        gone = weakref.ref(engine)
        del engine
        if gone() is None:
            return "freed at once: keep a reference"
        return "kept by its handlers until the next `gc.collect()`"
    finally:
        gc.enable()


@row("Engine and base", "`copy.deepcopy(engine)` with handlers")
def engine_copied():
    from ignite.engine import Events

    engine, seen = engine_of(), []
    engine.add_event_handler(Events.STARTED, lambda e: seen.append(e))
    made = []
    text = error(lambda: made.append(copy.deepcopy(engine)))
    if text:
        return text
    made[0].run([1])
    if seen[-1] is made[0]:
        return "handlers of the copy get the copy"
    assert seen[-1] is engine
    return "handlers of the copy get the original engine"


@row("Engine and base", "`create_supervised_trainer(…, device='mps', amp_mode='amp')`")
def mps_amp():
    from ignite.engine import create_supervised_trainer

    def make():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            create_supervised_trainer(torch.nn.Linear(1, 1), mock.Mock(), mock.Mock(), device="mps", amp_mode="amp")

    return error(make) or "accepted"


def _warned(make) -> str:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make()
    found = {str(w.message) for w in caught if issubclass(w.category, FutureWarning)}
    if not found:
        return "no warning"
    return f"`FutureWarning: {min(found).split(' is deprecated')[0].replace('`', '')} is deprecated`"


@row("Engine and base", "`amp_mode='amp'`: what torch says")
def amp_warning():
    from ignite.engine import create_supervised_evaluator

    def make():
        evaluator = create_supervised_evaluator(torch.nn.Linear(1, 1), amp_mode="amp")
        evaluator.run([(torch.ones(1, 1), torch.ones(1, 1))])

    return _warned(make)


@row("Engine and base", "`scaler=True`: what torch says")
def scaler_warning():
    from ignite.engine import create_supervised_trainer

    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return _warned(lambda: create_supervised_trainer(model, optimizer, mock.Mock(), amp_mode="amp", scaler=True))


def _torch_asked(**kwargs) -> str:
    """The torch that the ImportError asks for when this one has no `torch.amp`."""
    from ignite.engine import create_supervised_trainer

    model = torch.nn.Linear(1, 1)
    with stand_in(torch__amp=None, torch__cuda__amp=None):
        text = error(lambda: create_supervised_trainer(model, mock.Mock(), mock.Mock(), amp_mode="amp", **kwargs))
    (asked,) = re.findall(r"ImportError: Please install torch>=([\d.]+\d)", text)
    return f"`torch>={asked}`"


@row("Engine and base", "`amp_mode='amp'` asks for")
def amp_torch():
    return _torch_asked()


@row("Engine and base", "`amp_mode='amp', scaler=True` asks for, whatever the package requires")
def scaler_torch():
    return _torch_asked(scaler=True)


@row("Engine and base", "`Events.…(once=numpy.int64(3))`")
def numpy_once():
    import numpy
    from ignite.engine import Events

    return error(lambda: Events.ITERATION_STARTED(once=numpy.int64(3))) or "accepted"


@row("Engine and base", "last log line of `run()`")
def last_log_line():
    engine, stream = engine_of(), io.StringIO()
    engine.logger = logging.Logger("probe", logging.INFO)
    engine.logger.addHandler(logging.StreamHandler(stream))
    engine.run([1])
    return f"`{stream.getvalue().strip().splitlines()[-1].split('. ')[0]}.`"


@row("Engine and base", "`ignite.engine.events.CallableEvents`")
def callable_events():
    from ignite.engine import events

    return "there (deprecated)" if hasattr(events, "CallableEvents") else "gone: use `EventEnum`"


@row("Engine and base", "`Serializable._state_dict_one_of_opt_keys`")
def one_of_groups():
    from ignite.base import Serializable

    class Two(Serializable):
        _state_dict_one_of_opt_keys = (("a", "b"), ("c", "d"))

    class One(Serializable):
        _state_dict_one_of_opt_keys = ("a", "b")

    assert error(lambda: One().load_state_dict({"a": 1})) is None
    refused = error(lambda: Two().load_state_dict({"a": 1, "c": 1}))
    return "one group of keys" if refused else "one group of keys, or several groups"


# handlers


@row("Handlers and loggers", "`EarlyStopping`: arguments after `trainer`", (
    "ignite.handlers.EarlyStopping 0.5.4", "ignite.handlers.EarlyStopping 0.5.5",
))
def early_stopping_names():
    from ignite.handlers import EarlyStopping

    known = ("threshold", "cumulative", "threshold_mode", "min_delta", "cumulative_delta", "min_delta_mode", "mode")
    parameters = inspect.signature(EarlyStopping).parameters
    live = [f"`{n}={parameters[n].default!r}`" for n in known if n in parameters and parameters[n].default is not None]
    old = [n for n in known if n in parameters and parameters[n].default is None]
    for name in old:
        value = {"min_delta": 0.1, "cumulative_delta": True, "min_delta_mode": "rel"}[name]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            EarlyStopping(2, lambda e: 1, engine_of(), **{name: value})
        assert [w.category for w in caught] == [DeprecationWarning], (name, caught)
    return ", ".join(live) + ("; the old names work with a `DeprecationWarning`" if old else "")


@row("Handlers and loggers", "`EarlyStopping.load_state_dict` of a state saved by an older release")
def early_stopping_old_state():
    from ignite.handlers import EarlyStopping

    handler = EarlyStopping(2, lambda e: 1, engine_of())
    old = {"counter": 1, "best_score": 0.5}
    text = error(lambda: handler.load_state_dict(old))
    if not text:
        return "loads"
    assert error(lambda: handler.load_state_dict({**old, "threshold_mode": "abs"})) is None
    return f"{text.split(' is absent')[0]} is absent`: add `'threshold_mode': 'abs'`"


@row("Handlers and loggers", "`EarlyStopping` with a negative 4th argument")
def early_stopping_negative():
    from ignite.handlers import EarlyStopping

    return error(lambda: EarlyStopping(2, lambda e: 1, engine_of(), -1.0))


def _checkpoint(**kwargs):
    from ignite.handlers import Checkpoint

    return Checkpoint({"m": torch.nn.Linear(1, 1)}, lambda *a: None, **kwargs)


@row("Handlers and loggers", "`ModelCheckpoint`: arguments", ("ignite.handlers.ModelCheckpoint 0.5.0.post2",))
def model_checkpoint_arguments():
    from ignite.engine import Events
    from ignite.handlers import ModelCheckpoint

    parameters = inspect.signature(ModelCheckpoint).parameters
    old = ("save_interval", "save_as_state_dict", "archived")
    lost = [f"`{name}={parameters[name].default}`" for name in old if name in parameters]
    with tempfile.TemporaryDirectory() as folder:
        if lost:
            text = error(lambda: ModelCheckpoint(folder, "a", save_interval=2))
            assert text.startswith("`ValueError")
            return ", ".join(lost) + f"; a `save_interval` above 1 raised {text}"
        engine, every = engine_of(), 2
        engine.add_event_handler(Events.ITERATION_COMPLETED(every=every), ModelCheckpoint(folder, "a", n_saved=None),
                                 {"m": torch.nn.Linear(1, 1)})
        engine.run(range(2 * every + 1))
        assert sorted(os.listdir(folder)) == [f"a_m_{every}.pt", f"a_m_{2 * every}.pt"]
    place = list(parameters).index("score_function") + 1
    return ("gone: attach it to `Events.ITERATION_COMPLETED(every=N)` instead; "
            f"`score_function` is now positional argument {place}")


@row("Handlers and loggers", "`Checkpoint(…, n_saved=0)`")
def n_saved_zero():
    return error(lambda: _checkpoint(n_saved=0)) or "accepted"


@row("Handlers and loggers", "`add_event_handler(event, checkpoint, extra)`")
def checkpoint_extra():
    from ignite.engine import Events

    engine, checkpoint = engine_of(), _checkpoint()
    engine.add_event_handler(Events.EPOCH_COMPLETED, checkpoint, "extra")
    text = error(lambda: engine.run([1]))
    return f"accepted, then in the run {text.split(':')[0]}`" if text else "accepted, `extra` is not used"


@row("Handlers and loggers", "`Checkpoint.load_objects(…, checkpoint=path)` opens the file with")
def load_weights_only():
    from ignite.handlers import Checkpoint

    model = torch.nn.Linear(1, 1)
    with tempfile.TemporaryDirectory() as folder:
        torch.save(model.state_dict(), f"{folder}/a.pt")
        with mock.patch("torch.load", side_effect=torch.load) as load:
            Checkpoint.load_objects({"m": model}, f"{folder}/a.pt")
    said = ", ".join(f"{k}={v}" for k, v in load.call_args.kwargs.items())
    return f"`torch.load(path{', ' * bool(said)}{said})`" + ("" if said else ", so torch decides")


@row("Handlers and loggers", "event when a `Checkpoint` has saved")
def saved_event():
    import ignite.handlers.checkpoint as module
    from ignite.engine import Events

    if not hasattr(module, "CheckpointEvents"):
        return "none"
    engine, seen = engine_of(), []
    engine.register_events(*module.CheckpointEvents)
    engine.add_event_handler(module.Checkpoint.SAVED_CHECKPOINT, lambda: seen.append(1))
    engine.add_event_handler(Events.EPOCH_COMPLETED, _checkpoint(n_saved=None))
    engine.run([1], max_epochs=2)
    assert len(seen) == 2, seen
    return ("`Checkpoint.SAVED_CHECKPOINT`, on the engine that ran it; "
            "before the run: `engine.register_events(*CheckpointEvents)`")


@row("Handlers and loggers", "`LinearCyclicalScheduler(…, warmup_duration=2)`", (
    "ignite.handlers.LinearCyclicalScheduler 0.5.0.post2",
))
def linear_warmup():
    from ignite.handlers import LinearCyclicalScheduler

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)

    def make(**kwargs):
        LinearCyclicalScheduler(optimizer, "lr", 1.0, 0.0, 10, warmup_duration=2, **kwargs)

    text = error(make)
    if not text:
        return "accepted"
    assert error(lambda: make(monotonic=True)) is None
    return "`ValueError` unless `monotonic=True` (a new argument, default False)"


@row("Handlers and loggers", "`ConcatScheduler.load_state_dict` in the middle of a scheduler")
def concat_resume():
    from ignite.handlers import ConcatScheduler, LinearCyclicalScheduler

    def make():
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
        first = LinearCyclicalScheduler(optimizer, "lr", 1.0, 0.0, 8)
        second = LinearCyclicalScheduler(optimizer, "lr", 5.0, 4.0, 8)
        return ConcatScheduler([first, second], durations=[4]), optimizer

    def steps(scheduler, optimizer, n):
        out = []
        for _ in range(n):
            scheduler(None)
            out.append(optimizer.param_groups[0]["lr"])
        return out

    scheduler, optimizer = make()
    steps(scheduler, optimizer, 2)
    state = copy.deepcopy(scheduler.state_dict())
    wanted = steps(scheduler, optimizer, 4)
    resumed, optimizer = make()
    resumed.load_state_dict(state)
    got = steps(resumed, optimizer, 4)
    return "resumes where it was" if got == wanted else "starts that scheduler's duration again"


@row("Handlers and loggers", "`create_lr_scheduler_with_warmup(…, warmup_duration=numpy.int64(3))`")
def numpy_warmup():
    import numpy
    from ignite.handlers import create_lr_scheduler_with_warmup

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)

    def make():
        create_lr_scheduler_with_warmup(scheduler, warmup_start_value=0.0, warmup_duration=numpy.int64(3))

    return error(make) or "accepted"


@row("Handlers and loggers", "loggers: a metric that is a dict or a list")
def nested_metrics():
    try:
        from ignite.handlers.tensorboard_logger import OutputHandler
    except ImportError:
        from ignite.contrib.handlers.tensorboard_logger import OutputHandler

    engine = engine_of()
    engine.state.metrics = {"m": {"a": 1.0, "b": [2.0, 3.0]}}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        got = OutputHandler("tag", metric_names="all")._setup_output_metrics_state_attrs(engine, key_tuple=False)
    if not got:
        assert caught
        return "a warning, nothing logged"
    return "logged as " + ", ".join(f"`{k}`" for k in got)


def _wandb_handler():
    try:
        from ignite.handlers import wandb_logger
    except ImportError:
        from ignite.contrib.handlers import wandb_logger
    return wandb_logger


@row("Handlers and loggers", "`WandBLogger(…, init=False)` and `init=True`")
def wandb_init():
    wandb = mock.Mock()
    with stand_in(wandb=wandb):
        _wandb_handler().WandBLogger(project="p", init=True)
    passed = "init" in wandb.init.call_args.kwargs
    return "`init` is passed on to `wandb.init`" if passed else "`init` is not passed on to `wandb.init`"


@row("Handlers and loggers", "`sync=` of the `WandBLogger` handlers")
def wandb_sync():
    module = _wandb_handler()
    engine, logger = engine_of(), mock.Mock(spec=module.WandBLogger)
    logger.log = mock.Mock()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        handler = module.OutputHandler("t", metric_names=[], global_step_transform=lambda *a: 1, sync=True)
    handler(engine, logger, "e")
    if "sync" in logger.log.call_args.kwargs:
        return "passed on to `wandb.log`"
    assert caught
    return "ignored with a warning"


@row("Utilities and packages", "`NeptuneLogger` needs")
def neptune_import():
    try:
        from ignite.handlers import neptune_logger
    except ImportError:
        from ignite.contrib.handlers import neptune_logger

    with stand_in(neptune=None):
        old = mock.MagicMock()
        with mock.patch.dict(sys.modules, {"neptune": types.ModuleType("neptune"), "neptune.new": old}):
            sys.modules["neptune"].new = old
            error(lambda: neptune_logger.NeptuneLogger(project="p"))
    return "`neptune.new`, else `neptune`" if old.init_run.called else "`neptune`; `neptune.new` is not tried"


@row("Handlers and loggers", "`FastaiLRFinder.attach(…, num_iter=5)` on 2 batches: recorded steps")
def lr_finder_steps():
    from ignite.handlers import FastaiLRFinder

    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trainer, finder = engine_of(1.0), FastaiLRFinder()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with finder.attach(trainer, {"model": model, "optimizer": optimizer}, num_iter=5, end_lr=1.0) as t:
            t.run([1, 2])
    return f"{len(finder.get_results()['lr'])}"


@row("Handlers and loggers", "`FastaiLRFinder`: the engine's output is a dict")
def lr_finder_output():
    from ignite.handlers import FastaiLRFinder

    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trainer = engine_of({"loss": 1.0})
    try:
        with FastaiLRFinder().attach(trainer, {"model": model, "optimizer": optimizer}, num_iter=2) as t:
            t.run([1, 2])
    except TypeError as e:
        assert str(e).startswith("output of the engine should be of type float")
        hint = ", which tells of `attach(…, output_transform=…)`" if "output_transform" in str(e) else ""
        return f"`TypeError`{hint}"


@row("Handlers and loggers", "`global_step_from_engine(engine)` at a custom event", (
    "ignite.handlers.global_step_from_engine 0.5.4",
))
def step_of_custom_event():
    from ignite.handlers import global_step_from_engine

    engine = engine_of()
    engine.run([1, 2], max_epochs=3)
    text = error(lambda: global_step_from_engine(engine)(engine, "custom"))
    if text:
        return text
    step = global_step_from_engine(engine)(engine, "custom")
    assert step == engine.state.epoch == 3
    attribute = inspect.signature(global_step_from_engine).parameters["fallback_attr"].default
    return f"`state.{attribute}`; another with `fallback_attr=`"


@row("Handlers and loggers", "`FBResearchLogger`: iteration shown in the second epoch of 3")
def fb_iteration():
    from ignite.engine import Events

    try:
        from ignite.handlers.fbresearch_logger import FBResearchLogger
    except ImportError:
        return None
    engine, logger = engine_of(), mock.Mock()
    FBResearchLogger(logger).attach(engine, "n", every=1)
    engine.add_event_handler(Events.EPOCH_COMPLETED(every=2), lambda: None)
    engine.run([1, 2, 3], max_epochs=2)
    lines = [str(c.args[0]) for c in logger.info.call_args_list]
    shown = [m[1] for line in lines if "Epoch [2/2]" in line and (m := re.search(r"\[(\d+)/3\]:", line))]
    return f"`{', '.join(shown)}`"


@row("Handlers and loggers", "`ClearMLLogger.close()`")
def clearml_close():
    try:
        from ignite.handlers.clearml_logger import ClearMLLogger
    except ImportError:
        from ignite.contrib.handlers.clearml_logger import ClearMLLogger
    logger = object.__new__(ClearMLLogger)
    logger.clearml_logger, logger._task = mock.Mock(), mock.Mock()
    logger.close()
    return "flushes and closes the task" if logger._task.close.called else "flushes"


@row("Handlers and loggers", "`setup_tb_logging` and the other `setup_…_logging`: choice of metrics")
def setup_logging_arguments():
    from ignite.contrib.engines import common

    names = [n for n in parameter_names(common.setup_tb_logging) if "metric" in n]
    return ", ".join(f"`{n}='all'`" for n in names) if names else "all, always"


@row("Handlers and loggers", "`EMAHandler.attach(engine, name=…)` with warm-up of the momentum")
def ema_name():
    from ignite.engine import Events
    from ignite.handlers import EMAHandler

    engine = engine_of()
    handler = EMAHandler(torch.nn.Linear(1, 1), momentum=0.5, momentum_warmup=0.1, warmup_iters=4)
    handler.attach(engine, name="mine", event=Events.ITERATION_COMPLETED)
    engine.run([1, 2])
    other = hasattr(engine.state, "ema_momentum")
    return "warms up `state.ema_momentum`, not the named one" if other else "warms up the named one"


@row("Handlers and loggers", "`ReduceLROnPlateauScheduler(…, min_lr=0.1)`")
def plateau_min_lr():
    from ignite.handlers import ReduceLROnPlateauScheduler

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.3)
    scheduler = ReduceLROnPlateauScheduler(optimizer, "m", min_lr=0.1)
    kept = scheduler.scheduler.min_lrs if hasattr(scheduler.scheduler, "min_lrs") else scheduler.scheduler.min_lr
    return f"the scheduler's floor is {kept[0]}" + (" (ignored without `param_group_index`)" if not kept[0] else "")


# metrics


@row("Metrics", "`copy.deepcopy(metric)`, `hasattr(metric, '__x__')`")
def metric_copied():
    from ignite.metrics import Accuracy

    made, has = type(copy.deepcopy(Accuracy())).__name__, hasattr(Accuracy(), "__x__")
    return f"`{made}`; `{has}`"


@row("Metrics", "`output_transform` that is not callable")
def bad_transform():
    from ignite.metrics import Accuracy

    return error(lambda: Accuracy(output_transform="y")) or "accepted"


@row("Metrics", "`Fbeta(…, precision=p, device=…)`", ("ignite.metrics.Fbeta 0.5.3",))
def fbeta_device():
    from ignite.metrics import Fbeta, Precision

    default = inspect.signature(Fbeta).parameters["device"].default
    text = error(lambda: Fbeta(1.0, precision=Precision(average=False), device="cpu"))
    return text or f"accepted (default `{default if default is None else 'cpu'}`)"


@row("Metrics", "`SSIM(1.0, kernel_size=(3, 3, 3))`")
def ssim_kernel():
    from ignite.metrics import SSIM

    return error(lambda: SSIM(1.0, kernel_size=(3, 3, 3))) or "accepted"


@row("Metrics", "`SSIM` of tensors without a batch dimension")
def ssim_shape():
    from ignite.metrics import SSIM

    return error(lambda: SSIM(1.0).update((torch.ones(3, 16, 16), torch.ones(3, 16, 16)))).split(" shape")[0] + " …`"


@row("Metrics", "metrics with `device='mps'` add up in")
def mps_precision():
    from ignite.metrics import Metric

    class Plain(Metric):
        def reset(self):
            pass

        def update(self, output):
            pass

        def compute(self):
            pass

    return f"`{vars(Plain(device='mps')).get('_double_dtype', torch.float64)}`"


@row("Metrics", "a metric whose result is a dict, attached as `name`", (
    "ignite.metrics.Metric 0.5.4", "ignite.metrics.MetricsLambda 0.5.4",
))
def dict_result():
    from ignite.metrics import Metric

    class Two(Metric):
        def reset(self):
            pass

        def update(self, output):
            pass

        def compute(self):
            return {"a": 1.0, "b": 2.0}

    def keys(**kwargs):
        engine = engine_of()
        Two(output_transform=lambda x: (1, 1), **kwargs).attach(engine, "name")
        engine.run([1])
        return sorted(engine.state.metrics)

    assert keys() == ["a", "b", "name"]
    if "metrics_result_mode" not in parameter_names(Metric):
        return "its keys and `name` in `state.metrics`, always"
    assert keys(metrics_result_mode="flatten") == ["a", "b"] and keys(metrics_result_mode="named") == ["name"]
    return "`metrics_result_mode='flatten'`: its keys; `'named'`: `name`; `'both'` is the default"


@row("Metrics", "`metric.x()` where the result has no `x`: on `compute()`")
def lambda_attribute():
    from ignite.metrics import Average

    metric = Average()
    later = metric.no_such()
    metric.update(1.0)
    text = error(later.compute)
    assert "AttributeError" in text, text
    return text


@row("Metrics", "`MeanPairwiseDistance().compute()` without data")
def pairwise_empty():
    from ignite.metrics import MeanPairwiseDistance

    return error(lambda: MeanPairwiseDistance().compute(), until=" must")


@row("Metrics", "a subclass of `EpochMetric` without data")
def epoch_metric_empty():
    from ignite.metrics import EpochMetric

    class MyMetric(EpochMetric):
        pass

    return error(lambda: MyMetric(lambda a, b: 0.0).compute(), until=" must")


@row("Utilities and packages", "`CohenKappa` needs scikit-learn")
def kappa_sklearn():
    try:
        from ignite.metrics import CohenKappa
    except ImportError:
        from ignite.contrib.metrics import CohenKappa
    with stand_in(sklearn=None, sklearn__metrics=None):
        metric = []
        text = error(lambda: metric.append(CohenKappa()))
        if text:
            return text
        metric[0].update((torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0])))
        metric[0].compute()
    return "no"


@row("Metrics", "`isinstance(CohenKappa(), EpochMetric)`")
def kappa_class():
    try:
        from ignite.metrics import CohenKappa
    except ImportError:
        from ignite.contrib.metrics import CohenKappa
    from ignite.metrics import EpochMetric

    return f"`{issubclass(CohenKappa, EpochMetric)}`"


@row("Utilities and packages", "`PrecisionRecallCurve()` without scikit-learn")
def curve_sklearn():
    try:
        from ignite.metrics import PrecisionRecallCurve
    except ImportError:
        from ignite.contrib.metrics import PrecisionRecallCurve
    with stand_in(sklearn=None, sklearn__metrics=None):
        return error(PrecisionRecallCurve) or "accepted"


@row("Utilities and packages", "`GpuInfo()` without `pynvml`: install with")
def gpu_info_hint():
    try:
        from ignite.metrics import GpuInfo
    except ImportError:
        from ignite.contrib.metrics import GpuInfo
    with stand_in(pynvml=None, pynvml__smi=None):
        try:
            GpuInfo()
        except ModuleNotFoundError as e:
            return f"`{str(e).splitlines()[-1].strip()}`"


@row("Metrics", "`SilhouetteScore`, `DaviesBouldinScore`, `CalinskiHarabaszScore` with one cluster")
def one_cluster():
    try:
        from ignite.metrics import clustering
    except ImportError:
        return None
    names = ("silhouette_score", "davies_bouldin_score", "calinski_harabasz_score")
    said = set()
    sklearn = types.SimpleNamespace(**{n: mock.Mock(return_value=0.5) for n in names})
    with stand_in(sklearn=types.ModuleType("sklearn"), sklearn__metrics=sklearn):
        for cls in (clustering.SilhouetteScore, clustering.DaviesBouldinScore, clustering.CalinskiHarabaszScore):
            metric = cls(check_compute_fn=False)
            metric.update((torch.rand(4, 2), torch.zeros(4, dtype=torch.long)))
            said.add(str(metric.compute()))
    assert len(said) == 1, said
    return "`nan`" if said == {"nan"} else "left to scikit-learn"


@row("Utilities and packages", "`FID` calls `scipy.linalg.sqrtm`")
def fid_sqrtm():
    import numpy
    from ignite.metrics.gan import fid

    linalg = mock.Mock()
    linalg.sqrtm.side_effect = lambda a, **kw: (numpy.eye(2), 0.0) if kw else numpy.eye(2)
    scipy = types.ModuleType("scipy")
    scipy.linalg = linalg
    with stand_in(scipy=scipy, scipy__linalg=linalg):
        fid.fid_score(torch.zeros(2), torch.zeros(2), torch.eye(2), torch.eye(2))
    given = linalg.sqrtm.call_args.kwargs
    return "with `disp=False`" if given else "without `disp`"


@row("Metrics", "`HitRate(top_k=3)`", ("ignite.metrics.HitRate 0.5.5",))
def hitrate_int():
    import ignite.metrics

    if not hasattr(ignite.metrics, "HitRate"):
        return None
    text = error(lambda: ignite.metrics.HitRate(top_k=3))
    default = inspect.signature(ignite.metrics.HitRate).parameters["top_k"].default
    return text or f"accepted, as `[3]`; default `{default}`"


@row("Metrics", "`Bleu`, `Rouge`: fewer candidates than references")
def bleu_lengths():
    from ignite.metrics import Bleu, RougeN

    batch = ([["a", "b"]], [[["a", "b"]], [["c"]]])
    said = {error(lambda: Bleu(ngram=1).update(batch)), error(lambda: RougeN(ngram=1).update(batch))}
    return " or ".join(sorted(text or "the rest is dropped" for text in said))


@row("Metrics", "`MutualInformation`: `load_state_dict(state_dict())` in a new one")
def information_state():
    import ignite.metrics

    if not hasattr(ignite.metrics, "MutualInformation"):
        return None
    metric, other = ignite.metrics.MutualInformation(), ignite.metrics.MutualInformation()
    metric.update((torch.tensor([[1.0, 2.0], [3.0, 1.0]]), torch.ones(2)))
    other.load_state_dict(metric.state_dict())
    text = error(lambda: other.compute(), until=" must")
    assert text or other.compute() == metric.compute()
    return text or "restored"


@row("Metrics", "`(metric / 2.0).compute()` where the metric gives an int")
def divided():
    from ignite.metrics import Metric

    class One(Metric):
        def reset(self):
            pass

        def update(self, output):
            pass

        def compute(self):
            return 1

    return f"`{(One() / 2.0).compute()}`"


@row("Metrics", "`RougeL().compute()` without data")
def rouge_empty():
    from ignite.metrics import RougeL

    return error(lambda: RougeL().compute())


# utilities and packages


@row("Utilities and packages", "`ProgressBar()` without tqdm")
def no_tqdm():
    try:
        from ignite.handlers import ProgressBar
    except ImportError:
        from ignite.contrib.handlers import ProgressBar
    with stand_in(tqdm=None, tqdm__autonotebook=None):
        return error(ProgressBar)


@row("Utilities and packages", "`setup_logger(filepath=…)` writes in", ("ignite.utils.setup_logger 0.5.1",))
def log_encoding():
    from ignite.utils import setup_logger

    with tempfile.TemporaryDirectory() as folder:
        with mock.patch("logging.FileHandler", wraps=logging.FileHandler) as made:
            logger = setup_logger("probe.encoding", filepath=f"{folder}/log")
        for handler in list(logger.handlers):
            handler.close()
            logger.removeHandler(handler)
    encoding = made.call_args.kwargs.get("encoding")
    return f"`{encoding}`; another with `encoding=`" if encoding else "the locale's encoding"


@row("Utilities and packages", "`convert_tensor`, `apply_to_tensor` of a `defaultdict`")
def converted_mapping():
    from collections import defaultdict

    from ignite.utils import convert_tensor

    made = []
    data = defaultdict(list, a=torch.ones(1))
    text = error(lambda: made.append(convert_tensor(data, device="cpu")))
    return text or f"a `{type(made[0]).__name__}`"


@row("Utilities and packages", "`MLflowLogger` needs")
def mlflow_names():
    try:
        from ignite.handlers import mlflow_logger
    except ImportError:
        from ignite.contrib.handlers import mlflow_logger
    source = inspect.getsource(mlflow_logger.OutputHandler)
    (name,) = re.findall(r"from mlflow\.utils\.validation import (\w+)", source)
    return f"`mlflow.utils.validation.{name}`"


@row("Distributed", "Horovod: `all_gather(t, group=…)` (read in the source)")
def horovod_group():
    import ignite.distributed.comp_models.horovod as module

    source = Path(module.__file__).read_text()
    body = source[source.index("def _do_all_gather(") : source.index("def _do_all_gather_object(")]
    return "`NotImplementedError`" if "NotImplementedError" in body else "works on a process set; `not verified here`"


# What the page must say: rows from the answers of all releases.

PACKAGES = {  # heading on the page → modules whose changed signatures and vanished names belong there
    "Distributed": ("ignite.distributed",),
    "Engine and base": ("ignite.engine", "ignite.base"),
    "Handlers and loggers": ("ignite.handlers", "ignite.contrib.handlers", "ignite.contrib.engines"),
    "Metrics": ("ignite.metrics", "ignite.contrib.metrics"),
    "Utilities and packages": ("ignite.utils", "ignite.exceptions"),
}
VANISHED = ("there", "gone")
HEADER = ["What", "Before", "Since", "Release"]
NIGHTLY = "nightly"
FIRST = "0.4.13"  # the page tells changes after this release
LAST = "0.5.5"  # the newest release


def pairs() -> list[tuple[str, str]]:
    """Adjacent releases (before, after) from 0.4.13 to the nightly build."""
    known = releases.releases()
    known = known[known.index(FIRST) :]
    assert known[-2:] == [LAST, NIGHTLY], known
    return list(itertools.pairwise(known))


def answers(version: str) -> dict:
    """Of that release; skips the test if the release cannot be had, or fails it where MATRIX=required is set."""
    try:
        return releases.answers(version)
    except releases.Unavailable as e:
        (pytest.fail if os.environ.get("MATRIX") == "required" else pytest.skip)(f"release {version}: {e}")


def rows_of(section: str, only: list[tuple[str, str]]) -> list[list[str]]:
    """The rows that the page must have in that section for those pairs of releases: what, before, since, release."""
    rows = []
    for before, after in only:
        old, new = answers(before), answers(after)
        for name, place in ROWS.items():
            if place.section == section:
                a, b = old["probes"][name], new["probes"][name]
                for version, text in ((before, a), (after, b)):
                    assert text is None or "PROBE FAILED" not in text, f"{version}: {name}\n{text}"
                if a != b and None not in (a, b):
                    rows.append([place.what, a, b, after])
        rows += signature_rows(section, old["surface"], new["surface"], after)
    return rows


def signature_rows(section: str, old: dict, new: dict, version: str) -> list[list[str]]:
    """A row for each changed list of arguments (equal changes share one) and for each name that is gone."""
    mine = [n for n in old if n.startswith(tuple(p + "." for p in PACKAGES[section]))]
    told = {c for place in ROWS.values() for c in place.covers}
    groups: dict[tuple[str, str], list[str]] = {}
    moved = {leaf(n) for n in new}
    for name in mine:
        if f"{name} {version}" in told:
            continue
        if name not in new:
            owner = name.rsplit(".", 1)[0]
            if leaf(name) not in moved and (owner not in old or leaf(owner) in moved):
                groups.setdefault(VANISHED, []).append(name)
        elif old[name] is not None and new[name] is not None and old[name] != new[name]:
            groups.setdefault(parameter_change(old[name], new[name]), []).append(name)
    rows = []
    for change, names in groups.items():
        rows.append([title(names) + ("" if change == VANISHED else ": arguments"), *change, version])
    return rows


def leaf(name: str) -> str:
    return name.rsplit(".", 1)[1]


def short(name: str) -> str:
    """The class or function, with its method: what follows the modules."""
    parts = name.split(".")
    first = next((i for i, p in enumerate(parts) if p[0].isupper()), len(parts) - 1)
    return ".".join(parts[first:])


def title(names: list[str]) -> str:
    if len(names) > 4:
        first = next((n for n in names if n.endswith(".Metric")), names[0])
        return f"`{short(first)}` and {len(names) - 1} others"
    return ", ".join(f"`{short(n)}`" for n in names)


def parameter_change(old: list, new: list) -> tuple[str, str]:
    """Both cells of the row for a changed list of parameters."""
    was, now = {p[0]: p for p in old}, {p[0]: p for p in new}
    lost = [p for p in old if p[0] not in now]
    changed = [p[0] for p in new if p[0] in was and was[p[0]] != p]
    added = [p for p in new if p[0] not in was]
    before = ", ".join(written(p) for p in [*lost, *(was[n] for n in changed)])
    before = before or ", ".join(f"no `{p[0]}`" for p in added)
    after = ", ".join(written(p) for p in [*(now[n] for n in changed), *added]) or "gone"
    places_old = [p[0] for p in old if p[2].startswith("positional")]
    places_new = [p[0] for p in new if p[2].startswith("positional")]
    for i, name in enumerate(places_old):
        if name in places_new and places_new.index(name) != i:
            after += f"; `{name}` is now positional argument {places_new.index(name) + 1}"
            break
    return before, after


def written(parameter: list) -> str:
    name, default, _ = parameter
    return f"`{name}`" if default is None else f"`{name}={default.replace('device(type=', 'torch.device(')}`"


def in_page_order(entry, wanted: list[list[str]], key=lambda r: (r[0], r[-1])) -> list[list[str]]:
    """The wanted rows in the order of the page's table, which must hold exactly these; says what to change if not."""
    assert entry.tables, f"{entry.where}: no table"
    table, by_key = entry.tables[0], {key(r): r for r in wanted}
    assert wanted and len(by_key) == len(wanted), f"{entry.where}: the releases give no rows, or two of one name"
    ordered = []
    for i, found in enumerate(table.rows[1:]):
        assert key(found) in by_key, (
            f"{entry.page}:{table.line + 2 + i}: the releases give no such row:\n    {found}\n"
            f"nearest: {[r for r in wanted if r[0] == found[0]] or 'none of that name'}"
        )
        ordered.append(by_key[key(found)])
    assert len({key(r) for r in ordered}) == len(ordered), f"{entry.where}: a row stands there twice"
    missing = [r for k, r in by_key.items() if k not in {key(f) for f in table.rows[1:]}]
    assert not missing, f"{entry.where}: rows are missing:\n" + "\n".join("| " + " | ".join(r) + " |" for r in missing)
    return ordered


def prove_section(section: str):
    def proof(claims):
        wanted = rows_of(section, pairs()[:-1])
        claims.table([HEADER, *in_page_order(claims.entry, wanted)])
        COUNTS["rows of changes between releases"] += len(wanted)

    proves(f"{PAGE}#{slug(section)}")(proof)


for _section in PACKAGES:
    prove_section(_section)


@proves(f"{PAGE}#not-released-yet")
def not_released(claims):
    """The newest nightly build: its rows must hold; what else changes there every night need not be told,
    except in ignite.distributed (test_version_matrix.py)."""
    changes = [r[:3] for section in PACKAGES for r in rows_of(section, pairs()[-1:])]
    told = {f[0] for f in claims.entry.tables[0].rows[1:]} | {p.what for p in ROWS.values()}
    wanted = [r for r in changes if r[0] in told]
    claims.table([["What", LAST, "Nightly"], *in_page_order(claims.entry, wanted, key=lambda r: r[0])])


def new_names(old: dict, new: dict) -> tuple[dict[str, list[str]], dict[tuple[str, str], list[str]]]:
    """{module: names that are new}, {(old module, new module): names that moved} between two releases."""
    fresh: dict[str, list[str]] = {}
    moves: dict[tuple[str, str], list[str]] = {}
    methods: dict[tuple[str, str], list[str]] = {}
    gone = {}
    for name in old:
        if name not in new:
            gone.setdefault(leaf(name), []).append(name)
    for name, parameters in new.items():
        module, _, last = name.rpartition(".")
        if name in old or module in new and module not in old:
            continue
        if module in old:  # a method or property of a class that is not new
            metric_protocol = last in ("reset", "update", "compute") and module.startswith("ignite.metrics.")
            if parameters is not None and not metric_protocol:
                methods.setdefault((".".join(module.split(".")[:2]), last), []).append(short(module))
        elif last in gone:
            source = max(gone[last], key=lambda g: len(os.path.commonprefix([g[::-1], name[::-1]])))
            moves.setdefault((source.rpartition(".")[0], module), []).append(f"`{last}`")
        else:
            fresh.setdefault(module, []).append(f"`{last}`")
    for (module, method), classes in methods.items():
        named = f"`{classes[0]}.{method}`"
        if len(classes) > 1:
            named += " (also of " + ", ".join(f"`{c}`" for c in classes[1:]) + ")"
        fresh.setdefault(module, []).append(named)
    return fresh, moves


@proves(f"{PAGE}#new-names")
def names(claims):
    wanted = []
    for before, after in pairs()[:-1]:
        fresh, _ = new_names(answers(before)["surface"], answers(after)["surface"])
        wanted += [[after, f"`{module}`", ", ".join(found)] for module, found in fresh.items()]
    claims.table([["Release", "Import from", "New"],
                  *in_page_order(claims.entry, wanted, key=lambda r: (r[0], r[1]))])
    COUNTS["new names of releases"] += sum(r[2].count(", ") + 1 for r in wanted)


@proves(f"{PAGE}#moved")
def moved_names(claims):
    wanted = []
    for before, after in pairs()[:-1]:
        _, moves = new_names(answers(before)["surface"], answers(after)["surface"])
        whole: dict[tuple[str, str], list[str]] = {}
        for (source, target), found in moves.items():
            if source.count(".") > 2 and target == source.replace("ignite.contrib.", "ignite."):
                whole.setdefault((source.rpartition(".")[0], target.rpartition(".")[0]), []).append(f"`{leaf(target)}`")
            else:
                wanted.append([after, f"`{source}`", f"`{target}`", ", ".join(found)])
        for (source, target), modules in whole.items():
            kind = "modules " if len(modules) > 1 else "module "
            wanted.append([after, f"`{source}.…`", f"`{target}.…`", kind + ", ".join(modules)])
    claims.table([["Release", "From", "To", "What"],
                  *in_page_order(claims.entry, wanted, key=lambda r: (r[0], r[1], r[2]))])
    old, new = set(answers(FIRST)["modules"]), set(answers(LAST)["modules"])
    lost = sorted(m for m in old - new)
    assert all(m.startswith("ignite.contrib.") for m in lost), lost
    assert lost, "no module is gone"
    claims.says("Old paths go on working:", "Write the new one: legacy-contrib.md has each.")
    claims.says(f"every module of {FIRST}, `ignite.contrib` included, still imports in {LAST}, except "
                + ", ".join(f"`{m}`" for m in lost))


@proves(f"{PAGE}#verified-on")
def verified_on(claims):
    from packaging.specifiers import SpecifierSet

    rows, python = [], {}
    known = releases.releases()[1:]
    for version in known:
        answers(version)
        wants, wants_torch = releases.requirements(version)
        python[version] = SpecifierSet(wants)
        bounds = [", ".join(f"`{b}`" for b in sorted(w.split(","), reverse=True)) for w in (wants, wants_torch)]
        rows.append([version, bounds[0] if wants else "not said", bounds[1]])
    claims.table([["Ignite", "Requires Python", "Requires torch"], *rows])
    assert sys.platform == "linux", sys.platform
    here, torch_here = "{}.{}".format(*sys.version_info), torch.__version__.split("+")[0]
    probes = {len(answers(v)["probes"]) for v in known}
    assert probes == {len(PROBES)}
    claims.says(f"all {len(known)} ran on Python {here} with torch {torch_here}, on Linux, on the CPU, with gloo")

    def taken(interpreter):
        return [v for v in known if v != NIGHTLY and python[v].contains(interpreter)][-1]

    claims.says(f"pip takes {taken('3.8.20')} on Python 3.8, {taken('3.9.20')} on 3.9, "
                f"{taken('3.10.5')} from 3.10 to 3.14")
    assert len({taken(f"3.{minor}.5") for minor in range(10, 15)}) == 1 and not python[LAST].contains("3.15.0")
    for version, interpreter in (("0.5.3", "3.13"), ("0.5.4", "3.14")):
        assert python[version].contains(f"{interpreter}.0") and not python[version].contains(f"{interpreter}.1")
        claims.says(f"`<={interpreter}` shuts out {interpreter}.1: pip refuses {version} there")
    assert "0.5.0.post2" in known and "0.5.0" not in known and not SpecifierSet("==0.5.0").contains("0.5.0.post2")
    claims.says("`==0.5.0` does not match 0.5.0.post2, the one that is on PyPI: write `==0.5.0.post2`")
    claims.says("there the table only repeats what the packages require.", "The changes below:",
                "What Ignite asks of packages that it does not install (wandb, Neptune, ClearML, scikit-learn, "
                "SciPy) was "
                "seen with stand-ins for them, MPS with a simulated one.")
    claims.not_verified(
        "CUDA, NCCL, MPI, TPU, Horovod, MPS, other systems, other versions of Python and torch",
        "nothing of that is on the machine that runs the releases; the requirements are those of the wheels",
    )


@proves("references/versions.md#verified-on")
def last_full_run(claims):
    """The day and the nightly of the last full run are those recorded beside the list of releases."""
    record = re.search(r"^# Last full run .*: ([\d-]+), (\S+)$", (BUNDLE / "tests/matrix.txt").read_text(), re.M)
    day, build = record.groups()
    assert datetime.date(2026, 1, 1) <= datetime.date.fromisoformat(day) <= datetime.date.today(), day
    built = datetime.datetime.strptime(build, "0.6.0.dev%Y%m%d").date()
    assert built <= datetime.date.fromisoformat(day), f"{build} is younger than the run of {day}"
    (metadata,) = releases.release_path(NIGHTLY).glob("pytorch_ignite-*.dist-info/METADATA")
    head = metadata.read_text().partition("\n\n")[0].replace(build, "")
    assert "Version:" in head and not re.search(r"\b(?=\w*\d)[0-9a-f]{7,40}\b", head), head
    claims.says(f"Last run in full on {day}; the nightly was {build} then, which does not say its commit.",
                f"ignite/ of {LAST} is the git tree {git_tree(releases.release_path(LAST) / 'ignite')[:9]}")
    commit = re.search(r"as in commit (\w{9}) ", claims.entry.text)[1]
    claims.not_verified(f"as in commit {commit} (not verified here: pytorch/ignite, tag v{LAST}).",
                        "`git rev-parse TAG TAG:ignite` in a clone of pytorch/ignite gives commit and tree")


def git_tree(folder):
    """What git calls the tree of a folder of plain files."""
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copytree(folder, f"{scratch}/x", ignore=shutil.ignore_patterns("__pycache__"))
        for command in (["init", "-q"], ["-c", "core.autocrlf=false", "add", "-f", "x"], ["write-tree", "--prefix=x/"]):
            done = subprocess.run(["git", "-C", scratch, *command], capture_output=True, text=True, check=True)
    return done.stdout.strip()
