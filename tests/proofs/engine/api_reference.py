"""Proofs of the engine room's api-reference.md; its tables are made by tests/probes/engine.py."""

from __future__ import annotations

import enum
import random
import weakref

import ignite
import numpy
import torch
from ignite.base import ResettableHandler, Serializable
from ignite.engine import (
    DeterministicEngine,
    Engine,
    EventEnum,
    Events,
    State,
    create_supervised_evaluator,
    create_supervised_trainer,
    supervised_evaluation_step,
    supervised_evaluation_step_amp,
    supervised_training_step,
    supervised_training_step_amp,
    supervised_training_step_apex,
    supervised_training_step_tpu,
)
from ignite.engine.deterministic import ReproducibleBatchSampler, keep_random_state, update_dataloader
from ignite.handlers import Checkpoint, LRScheduler
from ignite.utils import manual_seed
from probes import engine as probe
from support.pages import find_entry, read_page
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, TensorDataset

from .tools import (
    API,
    BATCHES,
    X,
    Y,
    at,
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


class Own(EventEnum):
    A = "a"
    B = "b"


@at(API, "ignite.engine API reference")
def intro(entry):
    entry.says(
        "Every public name of ignite.engine, its module ignite.engine.deterministic, and ignite.base. Measured on "
        f"pytorch-ignite {ignite.__version__} and torch {torch.__version__.split('+')[0]}, CPU",
        f"In the tables data is the list of batches {', '.join(map(str, probe.DATA))}.",
        f"what changed between releases: {find_entry('references/versions.md#engine-and-base').heading.lower()}.",
    )
    sections: list[list[str]] = []
    for other in read_page(API).entries:
        sections += [[other.heading]] if other.level == 2 else []
        sections[-1].append(other.heading) if other.level == 3 else None
    entry.says("Contents:", *(f"{section}: {' · '.join(names)}" for section, *names in sections))


@at(API, "Engine")
def engine(entry):
    outputs, order = [], []
    made = Engine(lambda engine, batch: batch * 2)
    made.add_event_handler(Events.ITERATION_COMPLETED, lambda: outputs.append(made.state.output))
    made.add_event_handler(Events.GET_BATCH_STARTED, lambda: outputs.append(made.state.output))
    made.add_event_handler(Events.GET_BATCH_COMPLETED, lambda: outputs.append(made.state.output))
    made.run([1, 2])
    assert outputs == [None, None, 2, 2, None, 4]
    entry.says(
        "What process_function(engine, batch) returns is engine.state.output until the next batch has been fetched."
    )

    def first():
        order.append("first")

    made.add_event_handler(Events.STARTED, first)
    made.add_event_handler(Events.STARTED, lambda: order.append("second"))
    made.add_event_handler(Events.STARTED, first)
    made.state.metrics["m"], made.state.mine = 1, 2
    made.run([1, 2, 3])
    assert order == ["first", "second", "first"]
    entry.says("Handlers of one event run in the order in which they were added; one that was added twice runs twice.")
    assert (made.state.metrics, made.state.mine, made.state.iteration, made.state.epoch) == ({"m": 1}, 2, 3, 1)
    entry.says(
        "Kept from run to run: engine.state.metrics and attributes of your own; set back by a new run: "
        "iteration and epoch."
    )


@at(API, "Engine.run")
def run(entry):
    entry.table(probe.quietly(probe.run_table))
    made, fired = counted()
    assert made.run([1]) is made.state and made.run([1]) is made.state
    when(made, Events.ITERATION_COMPLETED(once=1), lambda e: e.interrupt())
    assert made.run([1, 2], max_epochs=1) is made.state and made.state.iteration == 1
    broken = Engine(lambda engine, batch: 1 / 0)
    with silent():
        raised(broken.run, [1])
    answer = broken.run([1])
    entry.says(
        f"Returns engine.state, the same object each time; an interrupted run returns it too, and the call after "
        f"an exception returns {answer}."
    )
    batches, plain = seen_by(lambda e: e.run(epoch_length=1))
    made, fired = counted()
    made.run(epoch_length=1)
    assert batches == [None] and not [f for f in fired if "BATCH" in f or "DATALOADER" in f]
    made, _ = counted()
    epochs = made.run([1]).max_epochs
    entry.says(
        f"Without max_epochs and max_iters a new run has {epochs} epoch. Without data the batch is {batches[0]} "
        "and the events of batches are not fired."
    )
    lengths = []
    _, streamed = seen_by(
        lambda e: e.run((i for i in range(4)), max_epochs=1),
        setup=lambda e: when(e, Events.ITERATION_COMPLETED, lambda e: lengths.append(e.state.epoch_length)),
    )
    assert set(lengths) == {None} and streamed.state.epoch_length == 4
    entry.says("Data without len set epoch_length when they end for the first time.")
    call = "run(data, max_epochs=2, epoch_length=2)"
    got, _ = seen_by(lambda e: eval(f"e.{call}", {"e": e, "data": probe.DATA}))
    entry.says(
        f"An epoch_length shorter than the data does not start them again: {call} reads {got[0]}, {got[1]}, then "
        f"{got[2]}, {got[3]}."
    )


@at(API, "Stopping")
def stopping(entry):
    entry.table(probe.quietly(probe.stop_table))
    for stop in ("terminate", "terminate_epoch", "interrupt"):
        later = []
        made = Engine(nothing)
        when(made, Events.ITERATION_COMPLETED, lambda e: getattr(e, stop)())
        when(made, Events.ITERATION_COMPLETED, lambda e: later.append(e.state.iteration))
        made.run([1, 2, 3])
        assert later == [1], stop
    entry.says(
        "All three only set a flag; the engine looks at it after each event, so the handlers of the current event "
        "still run."
    )
    plain, without = counted()
    plain.run([1, 2], max_epochs=2)
    made, fired = counted(setup=lambda e: when(e, Events.EPOCH_COMPLETED, lambda e: e.terminate_epoch()))
    made.run([1, 2], max_epochs=2)
    assert fired == without
    kinds = set()
    for name in ("STARTED", "EPOCH_STARTED"):
        made = Engine(nothing)
        when(made, Events[name], lambda e: e.terminate_epoch())
        with silent():
            kinds.add(raised(made.run, [1]).split(":")[0])
    (kind,) = kinds
    entry.says(
        "terminate_epoch in a handler of Events.EPOCH_COMPLETED changes nothing; on Events.STARTED or "
        f"Events.EPOCH_STARTED it raises a {kind}."
    )
    got, _ = seen_by(
        lambda e: e.run([7, 8, 9], max_epochs=2),
        setup=lambda e: when(e, Events.ITERATION_COMPLETED(once=1), lambda e: e.terminate_epoch()),
    )
    assert got == [7, 7, 8, 9]
    entry.says("The next epoch after terminate_epoch starts the data again from the first batch.")


@at(API, "Engine.set_data")
def set_data(entry):
    call, iteration, data = "engine.set_data([10, 11])", 2, [0, 1, 2, 3]
    got, made = seen_by(
        lambda e: e.run(data),
        setup=lambda e: when(e, Events.ITERATION_COMPLETED(once=iteration), lambda e: eval(call, {"engine": e})),
    )
    assert made.state.epoch_length == len(data) == len(got)
    entry.says(
        "The next batch comes from the new data, in the middle of an epoch too; epoch_length stays: after "
        f"{call} in iteration {iteration} of the data {', '.join(map(str, data))} the epoch ends with "
        f"{got[2]}, {got[3]}."
    )


@at(API, "Engine.state_dict")
def state_dict(entry):
    _, epochs = seen_by(lambda e: e.run([1], max_epochs=1))
    _, iters = seen_by(lambda e: e.run([1], max_iters=1))
    entry.says(
        f"Keys of a run by epochs: {', '.join(epochs.state_dict())}; of a run by iterations: "
        f"{', '.join(iters.state_dict())}."
    )
    add = 'engine.state_dict_user_keys.append("alpha")'
    eval(add, {"engine": epochs})
    kind = raised(epochs.state_dict).split(":")[0]
    epochs.state.alpha = 5
    assert epochs.state_dict()["alpha"] == 5
    entry.says(f"{add} adds engine.state.alpha, which must exist by then ({kind} otherwise).")
    model, optimizer = model_and_optimizer()
    with warned():
        trainer = create_supervised_trainer(model, optimizer, mse, amp_mode="amp", scaler=True)
        trainer.state.metrics["m"] = 1
        trainer.run(BATCHES)
    assert trainer.state.scaler and set(trainer.state_dict()) == {"epoch_length", "iteration", "max_epochs"}
    entry.says("Not in it: the position in the data, random states, state.metrics, state.scaler, handlers.")


@at(API, "Engine.load_state_dict")
def load_state_dict(entry):
    state = '{"epoch": 2, "max_epochs": 3, "epoch_length": 5}'
    loaded = Engine(nothing)
    loaded.load_state_dict(eval(state))
    start = loaded.state.iteration
    loaded.run(range(5))
    assert loaded.state.iteration == start + 5 and loaded.state.epoch == 3
    entry.says(
        f"Takes either iteration or epoch, which counts finished epochs: {state} continues after iteration {start}."
    )
    both = {"iteration": 1, "epoch": 1, "max_epochs": 2, "epoch_length": 1}
    assert raised(Engine(nothing).load_state_dict, both).startswith("ValueError")
    for zero in ("epoch", "iteration"):
        Engine(nothing).load_state_dict({zero: 0, "max_epochs": 2, "epoch_length": None})
        lacks = {zero: 1, "max_epochs": 2, "epoch_length": None}
        assert "epoch_length must be" in raised(Engine(nothing).load_state_dict, lacks)
    for wrong in ({}, {"max_epochs": 2, "max_iters": 2}):
        assert "exactly one" in raised(Engine(nothing).load_state_dict, {"iteration": 0, "epoch_length": 1, **wrong})
    entry.says("Needs epoch_length unless the count is 0, and exactly one of max_epochs and max_iters.")


@at(API, "Adding")
def adding(entry):
    entry.says("The handler is called with the engine first if its signature takes that, otherwise without:")
    entry.table(probe.quietly(probe.handler_table))
    got = []
    made = Engine(lambda engine, batch: 1 / 0)
    made.add_event_handler(Events.EXCEPTION_RAISED, lambda engine, error: got.append((engine, error)))
    with silent():
        made.run([1])
    assert got[0][0] is made and isinstance(got[0][1], ZeroDivisionError)
    cut = Engine(nothing)
    when(cut, Events.ITERATION_COMPLETED, lambda e: e.terminate_epoch())
    keyword = {}
    good, bad = "f(engine, iter_counter)", "f(engine)"
    cut.add_event_handler(
        Events.TERMINATE_SINGLE_EPOCH,
        eval(
            good.replace("f(", "lambda ").replace(")", ": f(iter_counter)"),
            {"f": lambda n: keyword.update(iter_counter=n)},
        ),
    )
    cut.run([1])
    cut.add_event_handler(Events.TERMINATE_SINGLE_EPOCH, lambda engine: None)
    with silent():
        error = raised(cut.run, [1])
    (name,) = keyword
    assert name in error
    entry.says(
        "Events.EXCEPTION_RAISED adds the exception after the engine. Events.TERMINATE_SINGLE_EPOCH adds a keyword "
        f"argument, {name}: the handler is {good}; an {bad} is accepted and raises {error.split(':')[0]} when "
        "the epoch is cut short."
    )

    def handler():
        got.append("ran")

    made = Engine(nothing)
    assert made.on(Events.STARTED)(handler) is handler
    made.remove_event_handler(handler, Events.STARTED)
    got.clear()
    with made.add_event_handler(Events.STARTED, handler) as handle:
        made.run([1])
    made.run([1])
    made.add_event_handler(Events.STARTED, handler).remove()
    made.run([1])
    assert got == ["ran"] and handle
    entry.says(
        "on returns the function itself, add_event_handler a handle with remove(), which is a context manager too."
    )


@at(API, "Removing")
def removing(entry):
    made, f = Engine(nothing), (lambda: None)
    made.add_event_handler(Events.ITERATION_STARTED, f)
    made.add_event_handler(Events.ITERATION_STARTED(every=2), f)
    assert made.has_event_handler(f) and not made.has_event_handler(f, Events.STARTED)
    call = "remove_event_handler(f, Events.ITERATION_STARTED(every=5))"
    eval(f"made.{call}", {"made": made, "f": f, "Events": Events})
    assert not made.has_event_handler(f)
    entry.says(f"Filters are not looked at: {call} removes f from every filter of ITERATION_STARTED.")
    handle = made.add_event_handler(Events.STARTED, f)
    handle.remove(), handle.remove()
    gone = Engine(nothing)
    handle, alive = gone.add_event_handler(Events.STARTED, f), weakref.ref(gone)
    del gone
    assert alive() is None and handle.remove() is None
    kinds = {raised(made.remove_event_handler, f, event).split(":")[0] for event in (Events.STARTED, Events.COMPLETED)}
    (kind,) = kinds
    entry.says(
        "handle.remove() may be called again, and after the engine is gone; it does nothing then. "
        f"remove_event_handler of what is not there raises {kind}."
    )
    entry.says("has_event_handler(f) without an event searches all events.")


@at(API, "Custom events")
def custom_events(entry):
    class Plain(enum.Enum):
        A = "a"

    made = Engine(nothing)
    kind = raised(made.register_events, Plain.A).split(":")[0]
    assert raised(made.on(Own.A), nothing).startswith("ValueError") and not made.has_registered_events(Own.A)
    made.register_events("text", *Own)
    made.on("text")(lambda: None), made.on(Own.A)(lambda: None)
    assert made.has_registered_events(Own.A)
    entry.says(f"Subclass EventEnum (a plain enum.Enum raises {kind}) or use strings; register before the first on.")
    before = dict(State.event_to_attr)
    try:
        call = 'register_events(*MyEvents, event_to_attr={MyEvents.A: "a"})'
        counting, seen = (
            Engine(lambda engine, batch: (setattr(engine.state, "a", engine.state.a + 1), engine.fire_event(Own.A))),
            [],
        )
        eval(f"counting.{call}", {"counting": counting, "MyEvents": Own})
        start = counting.state.a
        counting.on(Own.A(every=2))(lambda: seen.append(counting.state.a))
        counting.run(range(5))
        assert seen == [2, 4] and Engine(nothing).state.a == start
        entry.says(
            f"A filter counts with an attribute of the state: {call} creates engine.state.a = {start}, in every "
            "later engine too; raising it is your job."
        )
    finally:
        State.event_to_attr.clear(), State.event_to_attr.update(before)
    plain = Engine(lambda engine, batch: engine.fire_event(Own.B))
    plain.register_events(*Own)
    plain.on(Own.B(every=2))(lambda: None)
    with silent():
        kind = raised(plain.run, [1]).split(":")[0]
    entry.says(f"Without one the filter raises a {kind} when the event is fired.")


@at(API, "Events")
def events(entry):
    rows = probe.quietly(probe.state_table)
    entry.table(rows)
    batches = [row[3] for row in rows if row[0] == "`ITERATION_STARTED`"]
    outputs = [row[4] for row in rows if row[0] == "`ITERATION_COMPLETED`"]
    assert [int(b) * 10 for b in batches] == list(map(int, outputs))
    fired = []
    made = Engine(nothing)
    when(made, Events.GET_BATCH_STARTED(once=1), lambda e: fired.append(e.state.iteration))
    when(made, Events.GET_BATCH_COMPLETED(once=1), lambda e: fired.append(e.state.iteration))
    made.run(range(3))
    assert fired == [1, 1]
    entry.says(
        f"Two batches, {batches[0]} and {batches[1]}; the step returns ten times the batch. The counters of "
        "GET_BATCH_STARTED and GET_BATCH_COMPLETED are those of the batch before, and so are their filters."
    )
    made, fired = counted()
    made.run([1], max_epochs=2)
    second = fired[fired.index("EPOCH_STARTED", fired.index("EPOCH_STARTED") + 1) :]
    entry.says(f"From the second epoch on, the data are started again within the epoch: {', '.join(second[1:4])}.")


@at(API, "CallableEventWithFilter")
def filters(entry):
    rows = probe.quietly(probe.filter_table)
    event = "Events.ITERATION_STARTED(every=3)"
    assert type(eval(event)).__name__ == entry.entry.heading
    entry.says(f"Made by calling an event, {event}; in a run of {rows[4][1].split(', ')[-1]} iterations:")
    entry.table(rows)
    kinds = {
        raised(Events.STARTED, **wrong).split(":")[0]
        for wrong in ({}, {"every": 2, "once": 3}, {"once": 1, "before": 2}, {"every": 2, "event_filter": nothing})
    }
    (kind,) = kinds
    entry.says(f"One of every (with before, after), once, event_filter; anything else raises {kind}.")
    seen = []
    made = Engine(nothing)
    for name in ("EPOCH_STARTED", "EPOCH_COMPLETED", "COMPLETED"):
        when(made, Events[name](once=3), lambda e, name=name: seen.append(name))
    made.run([1, 2], max_epochs=3)
    assert seen == ["EPOCH_STARTED", "EPOCH_COMPLETED", "COMPLETED"] and State.event_to_attr[Events.STARTED] == "epoch"
    entry.says("Events of epochs, STARTED and COMPLETED count epochs.")


@at(API, "EventsList")
def events_list(entry):
    made = "Events.STARTED | Events.COMPLETED"
    a = eval(made)
    assert type(a).__name__ == entry.entry.heading
    scope = {"a": a, "Events": Events}
    change, same = "b = a | Events.EPOCH_STARTED", "a is b"
    exec(change, scope)
    assert eval(same, scope) and len(a) == 3
    entry.says(f"Made by {made}. A further | changes the list itself: after {change}, {same}.")


@at(API, "State")
def state(entry):
    entry.table(probe.state_attributes())
    made = Engine(nothing)
    times = made.run([1], max_epochs=2).times
    assert 0 < times["EPOCH_COMPLETED"] < times["COMPLETED"] < 5
    entry.says("times holds seconds: of the last epoch and of the run.")


@at(API, "create_supervised_trainer")
def trainer(entry):
    model, optimizer = model_and_optimizer()
    devices = []
    plain = create_supervised_trainer(
        model, optimizer, mse, device="meta", model_fn=lambda m, x: devices.append(x.device.type)
    )
    raised(plain.run, BATCHES)
    assert devices == ["meta"] and next(model.parameters()).device.type == "cpu"
    expected = mse(model(X[6:8]), Y[6:8]).item()
    output = create_supervised_trainer(model, torch.optim.SGD(model.parameters(), 0.0), mse).run(BATCHES).output
    assert isinstance(output, float) and abs(output - expected) < 1e-6
    shown = create_supervised_trainer(model, optimizer, mse, output_transform=lambda x, y, y_pred, loss: y_pred.shape)
    assert shown.run(BATCHES).output == (2, 1)
    entry.says(
        "Moves the batch to device, never the model. state.output is loss.item() unless "
        "output_transform(x, y, y_pred, loss) gives something else."
    )
    plain = create_supervised_trainer(model, optimizer, mse, model_fn=lambda m, x: devices.append(x))
    with silent():
        three = raised(plain.run, [(X, Y, Y)])
        raised(
            create_supervised_trainer(model, optimizer, mse, model_fn=lambda m, x: devices.append(x)).run,
            [{"image": X, "label": Y}],
        )
    assert devices[-1] == "image"
    entry.says(f"prepare_batch unpacks exactly two: a batch of three raises {three}, a dict of two gives its keys.")
    modes = []
    trainer = create_supervised_trainer(
        model, optimizer, mse, model_fn=lambda m, x: (modes.append(m.training), m.eval(), m(x))[2]
    )
    trainer.run(BATCHES)
    assert modes == [True] * 4
    entry.says("Calls model.train() in every iteration.")
    group, steps, losses = 3, [], []
    optimizer.register_step_post_hook(lambda *_: steps.append(1))
    reference = torch.optim.SGD(model.parameters(), lr=0.0)
    for n in (1, group):
        model_lr0 = create_supervised_trainer(model, reference, mse, gradient_accumulation_steps=n)
        losses.append(model_lr0.run(BATCHES).output)
    assert abs(losses[0] - losses[1]) < 1e-6
    create_supervised_trainer(model, optimizer, mse, gradient_accumulation_steps=group).run(BATCHES)
    entry.says(
        f"With gradient_accumulation_steps={group} over {len(BATCHES)} batches the optimizer steps {len(steps)} time; "
        "the loss in the output is not divided."
    )
    made = create_supervised_trainer(model, optimizer, mse, deterministic=True)
    entry.says(f"deterministic=True gives a {type(made).__name__}.")
    with warned() as texts:
        made = create_supervised_trainer(
            model, optimizer, mse, amp_mode="amp", output_transform=lambda x, y, y_pred, loss: y_pred.dtype
        )
        dtype = made.run(BATCHES).output
    assert len([t for t in texts if "Disabling autocast" in t]) == len(BATCHES)
    unknown = "fp16"
    silently = create_supervised_trainer(model, optimizer, mse, amp_mode=unknown)
    with warned() as texts:
        silently.run(BATCHES)
    assert not texts
    entry.says(
        'amp_mode="amp" is torch.autocast("cuda"): without CUDA the model computes in '
        f'{dtype}, with a warning per iteration. A mode that it does not know, such as "{unknown}", is ignored.'
    )
    with warned():
        new = create_supervised_trainer(model, optimizer, mse, amp_mode="amp", scaler=True)
        own = create_supervised_trainer(model, optimizer, mse, amp_mode="amp", scaler=torch.amp.GradScaler("cpu"))
    assert not hasattr(own.state, "scaler") and "scaler" not in new.state_dict()
    entry.says(
        f"scaler=True puts a new {type(new.state.scaler).__name__} into trainer.state.scaler, a scaler of your own "
        "is not put there; neither is part of trainer.state_dict()."
    )


@at(API, "create_supervised_evaluator")
def evaluator(entry):
    model, _ = model_and_optimizer()
    modes = []
    made = create_supervised_evaluator(model, model_fn=lambda m, x: (modes.append(m.training), m.train(), m(x))[2])
    output = made.run(BATCHES).output
    assert modes == [False] * 4 and torch.equal(output[0], model(X[6:8])) and torch.equal(output[1], Y[6:8])
    model.train()
    create_supervised_evaluator(model).run(BATCHES)
    assert not model.training
    entry.says("Calls model.eval() in every iteration and leaves the model so; state.output is (y_pred, y).")


@at(API, "Steps")
def steps(entry):
    model, optimizer = model_and_optimizer()
    training = (supervised_training_step, supervised_training_step_amp)
    evaluation = (supervised_evaluation_step, supervised_evaluation_step_amp)
    with warned():
        for make in training:
            weights = []
            for engine in (Engine(make(*model_and_optimizer()[:1], optimizer, mse)),):
                assert isinstance(engine.run(BATCHES).output, float), weights
        for make in evaluation:
            assert len(Engine(make(model)).run(BATCHES).output) == 2
    entry.says("Each returns a function for Engine; the two creators above are these plus an engine.")
    with silent():
        apex = raised(supervised_training_step_apex, model, optimizer, mse)
        tpu = raised(supervised_training_step_tpu, model, optimizer, mse)
    (kind,) = {apex.split(":")[0], tpu.split(":")[0]}
    assert "apex" in apex and "torch_xla" in tpu
    entry.says(
        "supervised_training_step_apex needs apex and supervised_training_step_tpu torch_xla when they are called "
        f"({kind})."
    )


@at(API, "DeterministicEngine")
def deterministic(entry):
    entry.says("A rebuilt one, its state loaded, brings the batches of an uninterrupted run (a shuffled DataLoader):")
    entry.table(probe.quietly(probe.deterministic_table))
    drawn = []
    for seed in (3, 3, 4):
        manual_seed(seed)
        made = DeterministicEngine(nothing)
        made.run([1])
        drawn.append(made.state.seed)
    assert drawn[0] == drawn[1] != drawn[2]
    seen = []
    made = DeterministicEngine(lambda engine, batch: seen.append(torch.rand(1).item()))
    made.run([1, 2], max_epochs=3)
    for epoch in range(3):
        manual_seed(made.state.seed + epoch)
        assert torch.rand(1).item() == seen[2 * epoch]
    entry.says(
        "At the start of each run it draws state.seed from torch's generator, so call ignite.utils.manual_seed with "
        "the same number before the first and before the resumed run. At each start of the data it seeds with "
        "state.seed plus the number of the epoch."
    )
    loader = DataLoader(TensorDataset(X), batch_size=2)
    made.run(loader)
    assert type(loader.batch_sampler) is BatchSampler and made.state.dataloader is not loader
    entry.says(
        f"Puts a copy of the loader with a {type(made.state.dataloader.batch_sampler).__name__} into "
        "state.dataloader; yours is left as it was."
    )
    (extra,) = set(made.state_dict()) - set(Engine(nothing).state_dict())
    assert torch.equal(made.state_dict()[extra][1], torch.get_rng_state())
    entry.says(f"state_dict adds {extra}, taken when it is called.")


@at(API, "Tools")
def tools(entry):
    sampler = BatchSampler(RandomSampler(range(8)), 2, False)
    made = ReproducibleBatchSampler(sampler, start_iteration=1)
    iterator = iter(made)
    next(iterator)
    assert len(made.batch_indices) == 3 and len(list(made)) == 4
    entry.says(
        "ReproducibleBatchSampler draws all indices of an epoch at its start; start_iteration skips batches, once."
    )

    class Loader(DataLoader):
        pass

    loader = Loader(TensorDataset(X), batch_size=4)
    new = update_dataloader(loader, BatchSampler(SequentialSampler(range(8)), 2, False))
    assert type(new) is Loader and new is not loader and (len(loader), len(new)) == (2, 4)
    entry.says("update_dataloader returns a new loader of the same class.")

    @keep_random_state
    def draws(fail=False):
        torch.rand(1), random.random(), numpy.random.rand()
        if fail:
            raise ValueError
        return 5

    def after(**kwargs):
        manual_seed(0)
        try:
            draws(**kwargs)
        except ValueError:
            pass
        return torch.rand(1).item(), random.random(), numpy.random.rand()

    manual_seed(0)
    untouched = torch.rand(1).item(), random.random(), numpy.random.rand()
    assert after() == untouched and after(fail=True) != untouched
    entry.says(
        f"A function under keep_random_state returns {draws()}, whatever it returned; if it raises, the random "
        "state is not put back."
    )


@at(API, "Serializable")
def serializable(entry):
    class Own(Serializable):
        _state_dict_all_req_keys = ("a",)
        _state_dict_one_of_opt_keys = ("b", "c")

    assert all(issubclass(c, Serializable) for c in (Engine, Checkpoint)) and LRScheduler
    assert issubclass(LRScheduler, Serializable) or hasattr(LRScheduler, "load_state_dict")
    Own().load_state_dict({"a": 1, "b": 2})
    assert "'a'" in raised(Own().load_state_dict, {"b": 2}) and "exactly one" in raised(Own().load_state_dict, {"a": 1})
    required, optional = (n for n in vars(Serializable) if n.startswith("_state_dict_"))
    kind = raised(Own().state_dict).split(":")[0]
    entry.says(
        f"The base of engines, schedulers and checkpoints: load_state_dict checks the keys in {required} and "
        f"{optional}; state_dict raises {kind} until you write it."
    )


@at(API, "ResettableHandler")
def resettable(entry):
    first, second = sorted(ResettableHandler.__abstractmethods__, reverse=True)
    lacks = type("Lacks", (ResettableHandler,), {first: nothing})
    kind = raised(lacks).split(":")[0]
    type("Has", (ResettableHandler,), {first: nothing, second: nothing})()
    entry.says(f"Abstract: a subclass must have {first} and {second}, or it cannot be built ({kind}).")
