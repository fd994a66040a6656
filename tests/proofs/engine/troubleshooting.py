"""Proofs of the engine room's troubleshooting.md: each text is raised, each fix is run as the page has it."""

from __future__ import annotations

import collections.abc
import functools
import gc
import logging
import sys
import types
import weakref
from enum import Enum
from unittest.mock import patch

import ignite.engine.engine
import torch
from ignite.base import Serializable
from ignite.engine import (
    CallableEventWithFilter,
    DeterministicEngine,
    Engine,
    EventEnum,
    Events,
    RemovableEventHandle,
    State,
    create_supervised_trainer,
    supervised_training_step_apex,
    supervised_training_step_tpu,
)
from ignite.engine.deterministic import ReproducibleBatchSampler
from support.claims import proves
from support.pages import read_page, slug
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler, TensorDataset

from .tools import (
    BATCHES,
    FOLDER,
    X,
    Y,
    counted,
    model_and_optimizer,
    mse,
    nothing,
    raised,
    seen_by,
    silent,
    warned,
    when,
)

PAGE = f"{FOLDER}/references/troubleshooting.md"


def symptom(heading: str):
    """Register a proof for the entry with this heading."""
    return proves(f"{PAGE}#{slug(heading)}")


def code(text: str, **scope):
    """Evaluate a piece of code that the page shows."""
    return eval(text, {"Events": Events, "Engine": Engine, "State": State, "torch": torch, **scope})


def failing(call, *args, **kwargs) -> str:
    with silent():
        return raised(call, *args, **kwargs)


def text_of(error: str) -> str:
    """The message without the name of its class."""
    return error.partition(": ")[2]


class MyEvents(EventEnum):
    A = "a"


def logged(function) -> list[str]:
    """Messages of level ERROR and above that the call logs, and no engine that earlier proofs left interrupted."""
    gc.collect()
    lines: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: lines.append(record.getMessage())
    logger = logging.getLogger("ignite.engine.engine.Engine")
    logger.addHandler(handler)
    propagate, logger.propagate = logger.propagate, False
    try:
        function()
        gc.collect()
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate
    return lines


@symptom("Error adding … '…': takes parameters … but will be called with …")
def signature(entry):
    error = raised(Engine, lambda e: None)
    entry.heading(error), entry.quotes(error)
    assert "['e']" in error
    entry.says("Means a step, a handler or", "is a step without the batch", "what follows takes parameters")
    engine = Engine(lambda engine, batch: None)
    entry.heading(raised(engine.add_event_handler, Events.STARTED, lambda a, b: None))
    entry.heading(raised(Events.STARTED, event_filter=lambda engine: True))
    engine.on(Events.STARTED)(lambda engine: None), engine.on(Events.STARTED)(lambda: None)
    engine.on(Events.STARTED(event_filter=lambda engine, count: True))(lambda: None)
    entry.says(
        "an event_filter has the wrong number of parameters:",
        "a step is step(engine, batch), a handler f(engine) or f(), a filter keep(engine, count). Proof the line that "
        "adds it no longer raises.",
    )


@symptom("Engine must be given a processing function in order to run.")
def no_step(entry):
    entry.heading(raised(Engine, None))

    def forgets(lr):
        def step(engine, batch):
            return lr

    def makes(lr):
        def step(engine, batch):
            return lr

        return step

    entry.heading(raised(Engine, forgets(0.1)))
    assert code("Engine(step)", step=makes(0.1)).run([1]).output == 0.1
    entry.says(
        "the step is None, usually the result of a function that returns nothing. Check what is passed to Engine. Fix "
        "return the inner function from the one that makes it. Proof Engine(step) returns."
    )


@symptom("Event … is not a valid event for this …")
def not_registered(entry):
    engine, other = Engine(nothing), Engine(nothing)
    with silent():
        entry.heading(raised(engine.on(MyEvents.A), nothing))
    entry.heading(raised(engine.fire_event, MyEvents.A))
    check, fix = "engine.has_registered_events(event)", "engine.register_events(*MyEvents)"
    assert not code(check, engine=engine, event=MyEvents.A)
    code(fix, engine=engine, MyEvents=MyEvents)
    engine.on(MyEvents.A)(lambda: None)
    assert not code(check, engine=other, event=MyEvents.A)
    entry.says(
        "Means a custom event that this engine does not know, on adding a handler or "
        f"in fire_event. Check {check}. Fix {fix} before the first on; each engine needs its own call. Proof the "
        f"check gives {code(check, engine=engine, event=MyEvents.A)}."
    )


@symptom("Value at … of event_names should be a str or EventEnum, but given …")
def bad_events(entry):
    class Plain(Enum):
        A = "a"

    engine, before = Engine(nothing), dict(State.event_to_attr)
    entry.heading(raised(engine.register_events, Plain.A))
    entry.quotes(raised(engine.register_events, MyEvents.A, event_to_attr=[1]))
    fix = 'event_to_attr={MyEvents.A: "a"}'
    try:
        code(f"engine.register_events(*MyEvents, {fix})", engine=engine, MyEvents=MyEvents)
    finally:
        State.event_to_attr.clear(), State.event_to_attr.update(before)
    entry.says(
        "the events are a plain enum.Enum; or, as",
        "the attributes are no dictionary. Check the bases of your class. Fix class MyEvents(EventEnum), and "
        f"{fix}. Proof register_events returns.",
    )


@symptom("Unknown event name '…'")
def unknown_event(entry):
    engine = Engine(lambda engine, batch: engine.fire_event(MyEvents.A))
    engine.register_events(*MyEvents)
    engine.on(MyEvents.A(every=2))(lambda: None)
    entry.heading(failing(engine.run, [1]))
    names = ("EXCEPTION_RAISED", "TERMINATE", "INTERRUPT", "DATALOADER_STOP_ITERATION")
    check = "event in State.event_to_attr"
    for name in names:
        assert not code(check, event=Events[name])
        assert raised(State().get_event_attrib_value, Events[name])
    plain = Engine(nothing)
    plain.on(Events.DATALOADER_STOP_ITERATION(once=1))(lambda: None)
    plain.run([1])
    assert "Unknown event name" in failing(plain.run, [1], max_epochs=3)
    assert code(check, event=Events.STARTED)
    entry.says(
        "a filter (every, once, …) on an event that has no counter: a custom one, or "
        + ", ".join(names)
        + f". It comes when the event fires. Check {check}."
    )
    before, seen, fix = dict(State.event_to_attr), [], 'event_to_attr={MyEvents.A: "a"}'
    try:
        counts = Engine(
            lambda engine, batch: (setattr(engine.state, "a", engine.state.a + 1), engine.fire_event(MyEvents.A))
        )
        code(f"counts.register_events(*MyEvents, {fix})", counts=counts, MyEvents=MyEvents)
        counts.on(MyEvents.A(every=2))(lambda: seen.append(counts.state.iteration))
        counts.run(range(5))
    finally:
        State.event_to_attr.clear(), State.event_to_attr.update(before)
    calls, by_hand = [], Engine(lambda engine, batch: engine.fire_event(MyEvents.A))
    by_hand.register_events(*MyEvents)
    by_hand.on(MyEvents.A)(lambda: calls.append(1) or len(calls) % 2 or seen.append(by_hand.state.iteration))
    by_hand.run(range(5))
    assert seen == [2, 4] * 2
    entry.says(f"Fix count in the handler, or register the event with {fix}. Proof the handler runs in the iterations "
               "that you asked for.")  # fmt: skip


@symptom("Only one of the input arguments should be specified, except before, after and every")
def filters(entry):
    event = Events.ITERATION_STARTED
    entry.heading(raised(event)), entry.heading(raised(event, every=2, once=3))
    for wrong in ({"every": 0}, {"before": -1}, {"after": -1}, {"once": [0]}, {"event_filter": 3}):
        entry.quotes(raised(event, **wrong))
    entry.quotes(raised(lambda: Events.STARTED | "x"))
    with warned() as texts:
        CallableEventWithFilter.default_event_filter(None, 1)
    entry.quotes(texts[0])
    short = range(5)
    bad, good = "every=len(loader) // 10", "every=max(1, len(loader) // 10)"
    value = code(bad.partition("=")[2], loader=short)
    assert "every" in raised(lambda: code(f"Events.STARTED({bad})", loader=short))
    code(f"Events.STARTED({good})", loader=short)
    assert "deprecated" in texts[0]
    entry.says(
        "an event was called with no filter, or with several that exclude each other. Wrong values say",
        "Joining with something else says",
        "A warning,",
        "means code of an old release. Check the values, "
        f"{bad} is {value} for a short loader. Fix one of every, once, event_filter, or {good}. Proof the line no "
        "longer raises.",
    )


@symptom("Input handler '…' is not found among registered event handlers")
def not_found(entry):
    engine = Engine(nothing)
    engine.on(Events.STARTED)(lambda: None)
    entry.heading(raised(engine.remove_event_handler, lambda: None, Events.STARTED))
    f = functools.partial(print, end="")
    handle = engine.add_event_handler(Events.STARTED, f)
    entry.heading(raised(engine.remove_event_handler, functools.partial(print, end=""), Events.STARTED))
    entry.quotes(raised(engine.remove_event_handler, f, Events.COMPLETED))
    check = "engine.has_event_handler(f, event)"
    assert code(check, engine=engine, f=f, event=Events.STARTED)
    handle.remove()
    entry.says(
        "remove_event_handler was given another function than was added, often a new lambda or a second "
        "functools.partial; ",
        f"if the event never had a handler. Check {check}. Fix keep what add_event_handler returned and call its "
        f"remove(). Proof the check gives {code(check, engine=engine, f=f, event=Events.STARTED)} afterwards.",
    )


@symptom("Engine reference not resolved. Cannot execute event handler.")
def engine_gone(entry):
    def unraisable(end):
        seen = []
        engine = Engine(nothing)
        when(engine, Events.ITERATION_COMPLETED(once=1), end)
        engine.on(Events.EXCEPTION_RAISED)(lambda engine, error: None)
        engine.run([1, 2])
        with (
            patch.object(sys, "unraisablehook", lambda args: seen.append((str(args.exc_value), repr(args.object)))),
            silent(),
        ):
            del engine
            gc.collect()
        return seen

    ((text, where),) = unraisable(lambda e: e.interrupt())
    entry.heading(text), entry.quotes(f"Exception ignored in: {where}")
    assert not unraisable(lambda e: e.terminate())
    kept, engine = seen_by(
        lambda e: e.run([1, 2]), setup=lambda e: when(e, Events.ITERATION_COMPLETED(once=1), lambda e: e.interrupt())
    )
    state = engine.state
    del engine
    gc.collect()
    assert kept == [1] and state.iteration == 1
    entry.says(
        "the engine was deleted while interrupted, and had a handler of EXCEPTION_RAISED; Python prints it as",
        "Nothing of the training is lost by it. Check that the engine's function has returned. Fix keep the engine "
        "until it has ended, or end with terminate() in place of interrupt(). Proof the text is gone.",
    )


@symptom("Internal error, … Please, file an issue if you encounter this error.")
def internal(entry):
    texts = []
    engine = Engine(nothing)
    with silent():
        texts.append(raised(lambda: list(engine._run_once_on_dataset_as_gen())))
        texts.append(raised(engine._run_once_on_dataset_legacy))
        texts.append(raised(engine._setup_dataloader_iter))
        texts.append(raised(DeterministicEngine(nothing)._from_iteration, 0))
    for text in texts:
        entry.heading(text), entry.quotes(text)

    def wrapper():
        pass

    wrapper._parent = weakref.ref(type("Gone", (), {})())
    entry.quotes(raised(RemovableEventHandle(Events.STARTED, wrapper, engine).remove))
    assert Engine(nothing).run([1]).iteration == 1
    entry.says(
        "private methods were called out of order, as in a subclass that overrides them:",
        "A handle says",
        "if its wrapper outlived its function. Check the traceback for a method of yours. Fix use run, set_data and "
        "handlers only. Proof the plain Engine runs the same data.",
    )


@symptom("Argument data should be iterable")
def not_iterable(entry):
    class Items(torch.utils.data.Dataset):
        __iter__ = None

        def __len__(self):
            return 2

        def __getitem__(self, index):
            return index

    check = "isinstance(data, collections.abc.Iterable)"
    for data in (5, torch.nn.Linear(1, 1), Items()):
        entry.heading(raised(Engine(nothing).run, data))
        assert not code(check, data=data, collections=collections)
    Engine(nothing).run(code("DataLoader(dataset)", DataLoader=DataLoader, dataset=Items()))
    entry.says(
        f"run got a number, a model or a data set without __iter__. Check {check}. Fix DataLoader(dataset). Proof run "
        "returns."
    )


@symptom("epoch_length should be provided if data is None")
def no_data(entry):
    entry.heading(raised(Engine(nothing).run))
    loaded = Engine(nothing)
    loaded.load_state_dict({"iteration": 0, "epoch_length": None, "max_epochs": 1})
    entry.heading(raised(loaded.run))
    engine, fix = Engine(nothing), "run(epoch_length=100)"
    length = code(f"engine.{fix}", engine=engine).epoch_length
    entry.says(
        "run() without data and without a length, or the data were None by mistake. Check the first argument of run. "
        f"Fix {fix} for steps that fetch their own batches. Proof engine.state.epoch_length is {length}."
    )


@symptom("Input data has zero size. Please provide non-empty data")
def no_size(entry):
    less, option = DataLoader(range(3), batch_size=4, drop_last=True), "drop_last=True"
    for data, length in (([], None), (less, None), ([1], len(less))):
        entry.heading(raised(Engine(nothing).run, data, epoch_length=length))
    loaded = Engine(nothing)
    loaded.load_state_dict({"iteration": 0, "epoch_length": None, "max_epochs": 1})
    entry.heading(raised(loaded.run, []))
    state = Engine(nothing).run(iter([]))
    check, fix = "len(loader)", "drop_last=False"
    good = code(f"DataLoader(range(3), batch_size=4, {fix})", DataLoader=DataLoader)
    entry.says(
        f"len(data) or epoch_length is {len(less)}: an empty data set, or {option} with less than a batch. An empty "
        f"iterator raises nothing: epoch {state.epoch} completes with {state.iteration} iterations. Check {check}. Fix "
        f"smaller batches, or {fix}. Proof {check} is at least {code(check, loader=good)}."
    )


@symptom("Arguments max_iters and max_epochs are mutually exclusive. Please provide only max_epochs or max_iters.")
def both(entry):
    entry.heading(raised(Engine(nothing).run, [1], max_epochs=1, max_iters=1))
    old, fix = "run(data, 2, 100)", "run(data, max_epochs=2, epoch_length=100)"
    entry.heading(raised(lambda: code(f"engine.{old}", engine=Engine(nothing), data=[1])))
    state = code(f"engine.{fix}", engine=Engine(nothing), data=[1])
    assert (state.max_epochs, state.epoch_length) == (2, 100)
    entry.says(
        f"both were given; or a call written for an older release, {old}, whose third argument was the length of an "
        f"epoch. Check the positional arguments. Fix {fix}. Proof run returns."
    )


@symptom(
    "To switch from max_epochs to max_iters mode during resume, you must first reset by setting "
    "'engine.state.max_epochs = None' before calling run()."
)
def switch(entry):
    _, engine = seen_by(lambda e: e.run([1, 2], max_epochs=1))
    _, other = seen_by(lambda e: e.run([1, 2], max_iters=2))
    entry.heading(raised(engine.run, [1, 2], max_iters=5)), entry.quotes(raised(other.run, [1, 2], max_epochs=5))
    exec("engine.state.max_epochs = None", {"engine": engine})
    call, starts = "run(data, max_iters=5)", []
    when(engine, Events.STARTED, lambda e: starts.append(e.state.iteration))
    state = code(f"engine.{call}", engine=engine, data=[1, 2])
    entry.says(
        "this engine ran by epochs and is now asked for iterations; the reverse reads",
        f"Check engine.state.max_epochs. Fix do what it says, which starts from iteration {starts[0]}; to go on, give "
        f"epochs again. Proof {call} ends at iteration {state.iteration}.",
    )


@symptom("Argument … should be greater than or equal to the start … defined in the state: … vs …")
def past(entry):
    done, call, fix = 3, "run(data, max_epochs=2)", "max_epochs=engine.state.epoch + 2"
    _, engine = seen_by(lambda e: e.run([1], max_epochs=done))
    entry.heading(raised(lambda: code(f"engine.{call}", engine=engine, data=[1])))
    fresh = Engine(nothing)
    entry.heading(raised(fresh.load_state_dict, {"iteration": 3, "epoch_length": 1, "max_epochs": 2}))
    _, iters = seen_by(lambda e: e.run([1], max_iters=3))
    entry.heading(raised(iters.run, [1], max_iters=2))
    before = engine.state.epoch
    more = code(f"engine.run(data, {fix})", engine=engine, data=[1]).epoch - before
    exec("engine.state.max_epochs = None", {"engine": engine})
    assert code(f"engine.{call}", engine=engine, data=[1]).iteration == 2
    entry.says(
        f"max_epochs (or max_iters) is the total, and the engine or the loaded state is past it: {call} after {done} "
        f"epochs. Check engine.state.epoch. Fix add up: {fix}; or start anew with engine.state.max_epochs = None. "
        f"Proof run does {more} epochs more."
    )


@symptom("Argument … is invalid. Please, set a correct … positive value")
def below_one(entry):
    _, engine = seen_by(lambda e: e.run([1], max_epochs=1))
    _, iters = seen_by(lambda e: e.run([1], max_iters=1))
    entry.heading(raised(engine.run, [1], max_epochs=0)), entry.heading(raised(iters.run, [1], max_iters=0))
    quiet = "max_epochs=0"
    got, _ = seen_by(lambda e: code(f"e.run([1], {quiet})", e=e))
    lowest = next(n for n in (0, 1) if not got and n and engine.run([1], max_epochs=n))
    entry.says(
        f"max_epochs or max_iters below {lowest} on an engine that has run; on a new engine {quiet} runs nothing, "
        f"silently. Check the option behind it. Fix {lowest} or more. Proof run returns."
    )


@symptom("Argument epoch_length should be same as in the state, but given … vs …")
def other_length(entry):
    def interrupted():
        return seen_by(
            lambda e: e.run([1, 2], max_epochs=3),
            setup=lambda e: when(e, Events.ITERATION_COMPLETED(once=1), lambda e: e.interrupt()),
        )[1]

    def loaded_half():
        engine = Engine(nothing)
        engine.load_state_dict({"iteration": 3, "max_epochs": 2, "epoch_length": 3})
        return engine

    entry.heading(raised(interrupted().run, [1, 2, 3], epoch_length=3))
    kept = interrupted().run([1, 2]).epoch_length
    assert kept == 2
    state, loader, epochs = '{"epoch": 1, "max_epochs": 3, "epoch_length": len(loader)}', [1, 2, 3], []
    loaded = Engine(nothing)
    when(loaded, Events.EPOCH_STARTED, lambda e: epochs.append(e.state.epoch))
    loaded.load_state_dict(code(state, loader=loader))
    assert loaded.run(loader, epoch_length=3).iteration == 9
    entry.heading(raised(loaded_half().run, loader, epoch_length=2))
    entry.says(
        "the run is not finished (interrupted, or loaded) and has another length, usually since the batch size or the "
        "number of processes changed. "
        "Check engine.state.epoch_length. Fix leave epoch_length out to keep the old one; or load "
        f"{state}. Proof run goes on in epoch {epochs[0]}."
    )


@symptom("Data iterator can not provide data anymore but required total number of iterations to run is not reached. …")
def exhausted(entry):
    data = (i for i in range(3))
    check, completed = "iter(data) is data", []
    assert code(check, data=data) and not code(check, data=[1])
    for legacy in (True, False):
        data = (i for i in range(3))
        with warned() as texts, patch.object(Engine, "interrupt_resume_enabled", not legacy):
            engine = Engine(nothing)
            when(engine, Events.EPOCH_COMPLETED, lambda e: completed.append((e.state.epoch, e.state.iteration)))
            engine.run(data, max_epochs=3)
        entry.heading(texts[0]), entry.quotes(texts[0])
    assert completed == [(1, 3), (2, 3), (3, 3)] * 2

    class Again:
        def __iter__(self):
            return iter(range(3))

    with warned() as texts:
        state = Engine(nothing).run(Again(), max_epochs=3)
        endless = Engine(nothing).run(iter(int, 1), max_epochs=3, epoch_length=3)
    assert not texts and state.iteration == endless.iteration == 9
    entry.says(
        "an exhausted generator:",
        f"The epochs that are left complete without a batch. Check {check}. Fix a class whose __iter__ starts anew, or "
        "an epoch_length with endless data. Proof the warning is gone and engine.state.iteration is the total.",
    )


@symptom("The method terminate_epoch() should not be called on Event.STARTED or Event.EPOCH_STARTED.…")
def too_early(entry):
    for event in (Events.STARTED, Events.EPOCH_STARTED):
        for legacy in (True, False):
            with patch.object(Engine, "interrupt_resume_enabled", not legacy):
                engine = Engine(nothing)
                when(engine, event, lambda e: e.terminate_epoch())
                entry.heading(failing(engine.run, [1]))
    fix = "Events.GET_BATCH_STARTED"
    engine = Engine(nothing)
    when(engine, code(fix), lambda e: e.terminate_epoch())
    state = engine.run([1])
    ended = Engine(nothing)
    when(ended, Events.STARTED, lambda e: e.terminate())
    assert ended.run([1]).epoch == 0 and state.epoch == 1
    entry.says(
        f"there is no epoch to end yet. Check which event its handler is on. Fix call it on {fix}; to end the "
        f"run, terminate() may be called anywhere. Proof the epoch ends with {state.iteration} iterations."
    )


@symptom("Engine 'interrupt/resume' feature is disabled. Please, set Engine.interrupt_resume_enabled=True to enable it")
def disabled(entry):
    setting = "Engine.interrupt_resume_enabled = False"
    engine = Engine(nothing)
    with patch.object(Engine, "interrupt_resume_enabled", True):
        exec(setting, {"Engine": Engine})
        entry.heading(raised(engine.interrupt)), entry.heading(raised(Engine(nothing).interrupt))
        value = True
        Engine.interrupt_resume_enabled = value
        assert engine.interrupt() is None
    entry.says(
        f"somebody set {setting}, for all engines of the process. Check it. Fix set it to {value}. Proof interrupt() "
        "returns."
    )


@symptom("generator already executing")
def nested(entry):
    engine, inner = Engine(nothing), Engine(nothing)
    when(engine, Events.STARTED, lambda e: e.run([1]))
    entry.heading(failing(engine.run, [1]))
    results = []
    outer = Engine(nothing)
    when(outer, Events.STARTED, lambda e: results.append(inner.run([1, 2])))
    assert outer.run([1]) is not results[0] is inner.state
    entry.says(
        "run was called in a handler or step of the same engine. Check the traceback: run stands in it twice. Fix a "
        "second Engine for the inner run. Proof the inner run returns its own state."
    )


@symptom("Engine run is terminating due to exception: with nothing after it")
def dropped(entry):
    def lines(end):
        def life():
            engine = Engine(nothing)
            when(engine, Events.ITERATION_COMPLETED(once=1), end)
            engine.run([1, 2])

        return logged(life)

    (line,) = lines(lambda e: e.interrupt())
    assert line.endswith(": ") and line.strip() == entry.entry.heading.partition(" with nothing")[0]
    assert not lines(lambda e: e.terminate())
    entry.says("no error: an interrupted engine was dropped, or the program ended. Check that interrupt() was called. "
               "Fix nothing, or terminate() if you do not go on in this process. Proof the line is "
               "gone.")  # fmt: skip


@symptom("State dictionary should contain only one of 'iteration' or 'epoch' keys. Found both: iteration=…, epoch=….")
def both_keys(entry):
    state = {"iteration": 2, "epoch": 1, "max_epochs": 2, "epoch_length": 2}
    entry.heading(raised(Engine(nothing).load_state_dict, state))
    del state["epoch"]
    Engine(nothing).load_state_dict(state)
    assert "epoch" not in Engine(nothing).state_dict()
    entry.says(
        "a state that you put together has both. Check its keys. Fix delete epoch; an engine's own state_dict() has "
        "iteration only. Proof load_state_dict returns."
    )


@symptom("epoch_length must be a positive integer to calculate missing 'iteration' or 'epoch' key. Input state_dict: …")
def unknown_length(entry):
    def saved(**kwargs):
        states = []
        engine = Engine(nothing)
        when(engine, Events.ITERATION_COMPLETED(once=2), lambda e: states.append(e.state_dict()))
        engine.run((i for i in range(3)), max_epochs=1, **kwargs)
        return states[0]

    state = saved()
    assert code('state["epoch_length"]', state=state) is None
    entry.heading(raised(Engine(nothing).load_state_dict, state))
    Engine(nothing).load_state_dict(saved(epoch_length=3))
    dead = "If epoch is provided in the state dict, epoch_length should not be None. Input state_dict: …"
    source = open(ignite.engine.engine.__file__).read()
    assert all(part in source for part in dead.split(" Input ")[:1])
    for epoch in (1, 3):
        assert dead[:30] not in raised(
            Engine(nothing).load_state_dict, {"epoch": epoch, "max_epochs": 4, "epoch_length": None}
        )
    entry.says(
        "the state was taken before the length was known: "
        f"the data have no len and the first epoch had not ended. The library's {dead} is about the same and no longer "
        'comes. Check state["epoch_length"]. Fix give epoch_length to the first run. Proof load_state_dict returns.'
    )


@symptom("Required state attribute '…' is absent in provided state_dict '…'")
def absent(entry):
    engine = Engine(nothing)
    entry.heading(raised(engine.load_state_dict, {"model": 1}))
    entry.quotes(raised(engine.load_state_dict, {"iteration": 0, "epoch_length": 2}))
    entry.quotes(raised(engine.load_state_dict, "state.pt"))
    own = Engine(nothing)
    own.state_dict_user_keys.append("alpha")
    good = '{"iteration": 4, "epoch_length": 2, "max_epochs": 3}'
    entry.quotes(raised(own.load_state_dict, code(good)))
    empty = type("Own", (Serializable,), {"_state_dict_one_of_opt_keys": ((),)})()
    entry.quotes(raised(empty.load_state_dict, {}))
    engine.load_state_dict(code(good))
    assert "max_iters" in raised(engine.load_state_dict, {"iteration": 0, "epoch_length": 2})
    entry.says(
        "not the state of an engine, or one of another release. Neighbours:",
        "(a key of state_dict_user_keys that was not there when it was saved)",
        "(the path instead of torch.load(path))",
        f"(in a class of your own). Check list(state). Fix {good} is enough for an engine. Proof load_state_dict "
        "returns.",
    )
    assert list({"a": 1}) == ["a"]


@symptom("too many values to unpack (expected 2)")
def not_a_pair(entry):
    def run(batch, **kwargs):
        return create_supervised_trainer(*model_and_optimizer(), mse, **kwargs).run([batch])

    entry.heading(failing(run, (X, Y, Y)))
    named = {"image": X, "label": Y}
    passes = failing(run, named)
    entry.quotes(passes)
    assert "not str" in passes
    entry.says("A dictionary of two passes, and the model gets its key:")
    check, fix = (
        "len(next(iter(loader)))",
        ('prepare_batch=lambda batch, device, non_blocking: (batch["image"].to(device), batch["label"].to(device))'),
    )
    assert code(check, loader=[(X, Y, Y)]) == 3
    run(named, **code(f"dict({fix})"), device="cpu")
    entry.says("the batch is no pair: prepare_batch takes (x, y).", f"Check {check}. Fix {fix}. Proof run returns.")


@symptom(
    "Gradient_accumulation_steps must be strictly positive. No gradient accumulation if the value set to one (default)."
)
def accumulation(entry):
    def build(steps, **kwargs):
        return create_supervised_trainer(*model_and_optimizer(), mse, gradient_accumulation_steps=steps, **kwargs)

    modules = {"apex": types.ModuleType("apex"), "apex.amp": types.ModuleType("apex.amp")}
    modules["apex"].amp = modules["apex.amp"]
    xla = {name: types.ModuleType(name) for name in ("torch_xla", "torch_xla.core", "torch_xla.core.xla_model")}
    with patch.dict(sys.modules, {**modules, **xla}):
        for mode in (None, "amp", "apex"):
            entry.heading(raised(build, 0, amp_mode=mode))
        entry.heading(raised(supervised_training_step_tpu, *model_and_optimizer(), mse, gradient_accumulation_steps=0))
    bad, fix = "wanted // batch_size", "max(1, wanted // batch_size)"
    sizes = {"wanted": 16, "batch_size": 32}
    lowest = code(fix, **sizes)
    assert raised(build, code(bad, **sizes)) and build(lowest)
    entry.says(
        f"gradient_accumulation_steps below {lowest}, often {bad}. Check its value. Fix {fix}. Proof the trainer is "
        "built."
    )


@symptom("amp_mode cannot be used with … device. Consider using amp_mode=None or device='cuda'.")
def amp_devices(entry):
    def build(**kwargs):
        with warned():
            return create_supervised_trainer(*model_and_optimizer(), mse, **kwargs)

    with patch("ignite.distributed.has_xla_support", True):
        for device in ("mps", "xla"):
            error = raised(build, device=device, amp_mode="amp")
            entry.heading(error), entry.quotes(error)
    entry.says("Means mixed precision is for CUDA only:", "(there only with torch_xla)")
    assert "amp_mode cannot" not in raised(build, device="xla", amp_mode="amp")
    entry.quotes(raised(build, scaler=True))
    entry.says("means a scaler without it.")
    fix = 'amp_mode="amp" if torch.cuda.is_available() else None'
    build(**code(f"dict({fix}, scaler={fix.partition('=')[2]})"))
    entry.says(f"Check device and amp_mode. Fix {fix}, the same for scaler. Proof the trainer is built.")


@symptom("Please install apex from https://github.com/nvidia/apex to use amp_mode='apex'.")
def packages(entry):
    def build(**kwargs):
        with warned():
            return create_supervised_trainer(*model_and_optimizer(), mse, **kwargs)

    error = raised(build, amp_mode="apex")
    entry.heading(error), entry.heading(raised(supervised_training_step_apex, *model_and_optimizer(), mse))
    entry.quotes(raised(supervised_training_step_tpu, *model_and_optimizer(), mse))
    entry.quotes(raised(build, device="xla"))
    with patch.dict(sys.modules, {"torch.amp": types.ModuleType("torch.amp")}):
        from ignite.engine import supervised_evaluation_step_amp

        entry.quotes(raised(build, amp_mode="amp"))
        entry.quotes(raised(supervised_evaluation_step_amp, torch.nn.Linear(1, 1)))
        entry.quotes(raised(build, amp_mode="amp", scaler=True))
    fix = 'amp_mode="amp"'
    assert build(**code(f"dict({fix})")).run(BATCHES[:0] or BATCHES[:1])
    entry.says("Means a package is missing for the mode or device:", "and with a very old torch",
               "or Please install torch>=2.3.1",
               f'Check python -c "import apex". Fix {fix} needs torch only. Proof the trainer is built.')  # fmt: skip


@symptom("Deterministic engine does not support the option of data=None. Please, provide data as iterable")
def deterministic_none(entry):
    entry.heading(failing(DeterministicEngine(nothing).run, epoch_length=2))
    fix = "run(range(100))"
    code(f"engine.{fix}", engine=DeterministicEngine(nothing))
    entry.says(
        f"a DeterministicEngine has to restart its data, so it needs some. Check the first argument of run. Fix {fix} "
        "for steps that fetch their own batches. Proof run returns."
    )


@symptom("Argument batch_sampler should be torch.utils.data.sampler.BatchSampler")
def batch_sampler(entry):
    loader = DataLoader(range(4), batch_size=2)

    class Own(torch.utils.data.Sampler):
        def __iter__(self):
            return iter([[0, 1]])

    for wrong in (loader, RandomSampler(range(4)), Own()):
        entry.heading(raised(ReproducibleBatchSampler, wrong))
    check, fix = "isinstance(loader.batch_sampler, BatchSampler)", "ReproducibleBatchSampler(loader.batch_sampler)"
    scope = {"loader": loader, "BatchSampler": BatchSampler, "ReproducibleBatchSampler": ReproducibleBatchSampler}
    assert code(check, **scope) and list(code(fix, **scope)) == [[0, 1], [2, 3]]
    entry.says(
        f"ReproducibleBatchSampler got a loader, a sampler, or a batch sampler of your own class. Check {check}. Fix "
        f"{fix}; derive your class from BatchSampler. Proof it is built."
    )


@symptom("iter_counter should be positive value")
def iter_counter(entry):
    def run(event):
        engine = DeterministicEngine(nothing)
        when(engine, event, lambda e: e.terminate_epoch())
        return engine.run([1, 2], max_epochs=2).epoch

    entry.heading(failing(run, Events.GET_BATCH_STARTED))
    fix = "Events.ITERATION_COMPLETED"
    assert run(code(fix)) == 2  # the second epoch
    entry.says(
        "terminate_epoch came before the first batch of an epoch of a DeterministicEngine. Check which event calls it. "
        f"Fix call it on {fix}. Proof the next epoch begins."
    )


@symptom(
    "When defined engine's epoch length is different of input dataloader length, distributed sampler "
    "indices can not be "
    "setup in a reproducible manner"
)
def other_epoch_length(entry):
    data = TensorDataset(torch.arange(8))
    loader = DataLoader(data, batch_size=2, sampler=DistributedSampler(data, num_replicas=1, rank=0))
    check = "engine.state.epoch_length == len(loader)"

    def run(**kwargs):
        engine = DeterministicEngine(nothing)
        with warned() as texts:
            engine.run(loader, **kwargs)
        return texts, code(check, engine=engine, loader=loader)

    texts, equal = run(epoch_length=3)
    assert not equal and run() == ([], True) and hasattr(loader.sampler, "epoch")
    entry.heading(texts[0])
    entry.says(
        "epoch_length is not len(loader), and the sampler has an epoch, as a DistributedSampler",
        f"Check {check}. Fix leave epoch_length out. Proof the warning is gone.",
    )


@symptom("The training starts again from the first iteration")
def starts_again(entry):
    max_epochs, data = 2, [1, 2, 3]
    _, first = seen_by(lambda e: e.run(data, max_epochs=max_epochs))

    def iterations(**kwargs):
        seen, engine = [], Engine(nothing)
        when(engine, Events.ITERATION_STARTED, lambda e: seen.append(e.state.iteration))
        engine.load_state_dict(first.state_dict())
        loaded = engine.state.iteration
        engine.run(data, **kwargs)
        return loaded, seen[0]

    check = "max_epochs * len(data)"
    loaded, again = iterations(max_epochs=max_epochs)
    assert again == 1 and loaded == code(check, max_epochs=max_epochs, data=data)
    loaded, further = iterations(max_epochs=max_epochs + 1)
    entry.says(
        "the loaded state is that of a finished run, and run starts a finished engine anew. Check "
        f"engine.state.iteration is {check} after loading. Fix a larger max_epochs, or do not call run. Proof "
        "the first "
        f"iteration that you see is the loaded one plus {further - loaded}."
    )


@symptom("run returns None and does nothing")
def returns_none(entry):
    fail = [True]

    def step(engine, batch):
        if fail:
            raise ValueError("boom")

    engine = Engine(step)
    lines = logged(lambda: raised(engine.run, [1]))
    entry.quotes(lines[-1])
    fail.clear()
    answer, later = engine.run([1]), engine.run([1])
    assert answer is None and isinstance(later, State)
    assert f"run returns {answer} and does nothing" == entry.entry.heading
    rebuilt = Engine(lambda engine, batch: None)
    rebuilt.load_state_dict({"iteration": 1, "epoch_length": 2, "max_epochs": 1})
    assert rebuilt.run([1, 2]).iteration == 2
    entry.says("Means the run before it ended with an exception. Check the log for",
               "Fix build a new engine and load the state, or call run once more. Proof run returns a "
               "State.")  # fmt: skip


@symptom("An error vanished and the training went on")
def vanished(entry):
    fix, calls = "raise error", []

    def step(engine, batch):
        if engine.state.iteration == 1:
            raise ValueError("boom")

    def run(end):
        engine, fired = counted(Events.EPOCH_COMPLETED, process=step)
        scope = {"calls": calls}
        exec(f"def handler(engine, error):\n    calls.append(error)\n    {end}", scope)
        engine.on(Events.EXCEPTION_RAISED)(scope["handler"])
        return engine, fired

    engine, fired = run("pass")
    lines = logged(lambda: engine.run([1, 2], max_epochs=2))
    entry.quotes(lines[0])
    assert fired == ["EPOCH_COMPLETED"] * 2
    calls.clear()
    engine, _ = run(fix)
    assert failing(engine.run, [1, 2]) == "ValueError: boom" and len(calls) == 2
    entry.says(
        "a handler of Events.EXCEPTION_RAISED did not raise, or there was one once. Check the log for",
        f"Fix end the handler with {fix}, and expect it to be called twice. Proof run raises.",
    )


@symptom("The handler of EPOCH_COMPLETED did not run at the end")
def no_epoch_completed(entry):
    check, fix = "engine.state.iteration % engine.state.epoch_length", "Events.TERMINATE"

    def ends(events, **kwargs):
        seen, engine = [], Engine(nothing)
        engine.on(events)(lambda: seen.append(engine.state.iteration))
        if not kwargs:
            when(engine, Events.ITERATION_COMPLETED(once=4), lambda e: e.terminate())
        engine.run([1, 2, 3], **(kwargs or {"max_epochs": 2}))
        return seen, code(check, engine=engine)

    for kwargs in ({}, {"max_iters": 4}):
        lacks, rest = ends(Events.EPOCH_COMPLETED, **kwargs)
        whole, _ = ends(Events.EPOCH_COMPLETED | code(fix), **kwargs)
        assert rest and lacks == [3] and whole == [3, 4]
    whole, rest = ends(Events.EPOCH_COMPLETED, max_iters=3)
    entry.says(
        f"terminate() or max_iters ended the run within an epoch. Check {check} is not {rest}. Fix add {fix} to its "
        "events. Proof it runs once more."
    )


@symptom("Contents")
def contents(entry):
    """That the list is whole, test_troubleshooting.py sees to."""
    entry.says(" ".join(e.heading for e in read_page(PAGE).entries if e.level in (2, 3) and e.anchor != "contents"))


@symptom("Troubleshooting engines")
def introduction(entry):
    """That every entry has the four parts in this order, test_troubleshooting.py sees to."""
    found = [e for e in read_page(PAGE).entries if e.text.startswith("Means")]
    assert found and all(e.text.index("Check") < e.text.index("Fix") < e.text.rindex("Proof") for e in found)
    entry.says("Search the text that you see. Each entry: what it means, how to check, the fix, what proves it.")
