"""Proofs of the engine room's SKILL.md: its gotchas, its common triggers and its boundary notes."""

from __future__ import annotations

import functools

import ignite.distributed as idist
import torch
from ignite.engine import (
    DeterministicEngine,
    Engine,
    EventEnum,
    Events,
    create_supervised_evaluator,
    create_supervised_trainer,
)
from ignite.engine.deterministic import keep_random_state
from probes import engine as probe
from support.claims import proves
from support.pages import find_entry, slug
from support.world import run_world
from torch.utils.data import Subset

from .tools import (
    API,
    BATCHES,
    FOLDER,
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

PAGE = f"{FOLDER}/SKILL.md"


def gotcha(title: str):
    return proves(f"{PAGE}#{slug(title)}")


def listed(numbers) -> str:
    return ", ".join(map(str, numbers))


def fails(times: int = 1, error: type = ValueError):
    """A step that raises in iteration 2, the first so many times."""
    left = [times]

    def step(engine, batch):
        if engine.state.iteration == 2 and left[0]:
            left[0] -= 1
            raise error("boom")

    return step


@gotcha("A finished run starts over")
def finished(entry):
    epochs, data = 2, [0, 1, 2]
    _, first = seen_by(lambda e: e.run(data, max_epochs=epochs))
    call = f"run(data, max_epochs={epochs})"
    scope = {"data": data}
    again, engine = seen_by(lambda e: (e.load_state_dict(first.state_dict()), eval(f"e.{call}", {"e": e, **scope})))
    more, _ = seen_by(lambda e: (e.load_state_dict(first.state_dict()), e.run(data, max_epochs=epochs + 1)))
    start = engine.state.iteration - len(again)
    assert len(again) == epochs * len(data) and len(more) == len(data)
    entry.says(
        f"A finished run starts over. Load the state of a run that ended, call {call} with the same {epochs}, "
        "and it trains "
        f"again from iteration {start}: a job that is put back into the queue repeats everything.",
        "Before run compare engine.state.iteration with max_epochs * len(data); only a larger max_epochs goes on.",
    )
    assert first.state.iteration == eval("max_epochs * len(data)", {"max_epochs": epochs, **scope})


@gotcha("Resuming restores the counters, not the data")
def counters(entry):
    done, length = 2, 4
    data = list(range(length))
    state = {"iteration": done, "epoch_length": length, "max_epochs": 1}
    got, engine = seen_by(lambda e: (e.load_state_dict(state), e.run(data)))
    iterations = range(done + 1, engine.state.iteration + 1)
    assert len(iterations) == len(got)
    entry.says(
        f"Resuming restores the counters, not the data. An Engine loaded at iteration {done} of {length} "
        "reads the batches "
        f"{listed(got)} again as iterations {' and '.join(map(str, iterations))}, and never "
        f"{' and '.join(str(b) for b in data if b not in got)}.",
    )
    _, whole = seen_by(lambda e: e.run(data, max_epochs=1))
    boundary, _ = seen_by(lambda e: (e.load_state_dict(whole.state_dict()), e.run(data, max_epochs=2)))
    assert boundary == data
    entry.says("Save at EPOCH_COMPLETED, or copy resumable_trainer.py.")


@gotcha("A state saved in an epoch's last iteration has lost its EPOCH_COMPLETED")
def lost_epoch(entry):
    length = 2

    def completed_after(where, how):
        saved, epochs = [], []
        first = Engine(nothing)
        when(first, where, lambda e: (saved.append(e.state_dict()), how == "interrupt" and e.interrupt()))
        first.run(range(length), max_epochs=2)
        rebuilt = Engine(nothing)
        when(rebuilt, Events.EPOCH_COMPLETED, lambda e: epochs.append(e.state.epoch))
        rebuilt.load_state_dict(saved[0])
        rebuilt.run(range(length))
        return epochs

    last = Events.ITERATION_COMPLETED(once=length)
    (goes_to,) = {tuple(completed_after(last, how)) for how in ("save", "interrupt")}
    assert goes_to == (2,) and completed_after(Events.EPOCH_COMPLETED(once=1), "interrupt") == [2]
    assert completed_after(Events.GET_BATCH_STARTED(event_filter=lambda e, n: n == length - 1), "interrupt") == [1, 2]
    entry.says(
        f"Saved at ITERATION_COMPLETED or by interrupt in iteration {length} of {length}, a rebuilt engine "
        "goes straight to "
        f"epoch {goes_to[0]}: validation and scheduler of epoch {goes_to[0] - 1} never run.",
        "Save or stop at GET_BATCH_STARTED.",
        "A state saved in an epoch's last iteration has lost its EPOCH_COMPLETED.",
    )


@gotcha("DeterministicEngine draws its seed from torch")
def deterministic_seed(entry):
    same = probe.quietly(probe.resumed_like_uninterrupted, 0, 4, 1)
    other = probe.quietly(probe.resumed_like_uninterrupted, 0, 4, 5)
    middle = probe.quietly(probe.resumed_like_uninterrupted, 0, 6, 1)
    workers = probe.quietly(probe.resumed_like_uninterrupted, 1, 6, 1)
    assert (same[1], other[1], middle, workers) == ("yes", "no", ("no", "yes"), ("yes", "yes"))
    engine = DeterministicEngine(nothing)
    torch.manual_seed(4)
    expected = int(torch.randint(0, int(1e9), (1,)))
    torch.manual_seed(4)
    assert engine.run([1]).seed == expected
    entry.says(
        "DeterministicEngine draws its seed from torch. Without the same manual_seed before the resumed run it "
        "repeats nothing, whatever was loaded.",
        f"In the middle of an epoch, with num_workers={0}, the rest of that epoch differs all the same.",
    )


@gotcha("A handler of EXCEPTION_RAISED swallows the exception")
def swallowed(entry):
    def run(step, reraise=False, remove=False):
        calls, log = [], []
        engine, fired = counted(Events.EPOCH_STARTED, Events.EPOCH_COMPLETED, process=step)

        def handler(error):
            calls.append(error)
            if reraise:
                raise error

        handle = engine.add_event_handler(Events.EXCEPTION_RAISED, handler)
        if remove:
            handle.remove()
        with silent():
            try:
                engine.run([1, 2, 3], max_epochs=2)
                log.append("returned")
            except BaseException as e:
                log.append(type(e).__name__)
        return log[0], len(calls), fired

    outcome, calls, fired = run(fails())
    assert (outcome, calls) == ("returned", 1)
    assert fired == ["EPOCH_STARTED", "EPOCH_COMPLETED"] * 2
    entry.says(
        "A handler of EXCEPTION_RAISED swallows the exception. If it does not raise, an error in a batch ends the "
        f"epoch, {fired[1]} fires, the next epoch begins;"
    )
    outcome, _, fired = run(fails(error=KeyboardInterrupt))
    assert outcome == "returned" and fired == ["EPOCH_STARTED"]
    entry.says(f"{KeyboardInterrupt.__name__} ends run without a trace.")
    outcome, calls, _ = run(fails(), reraise=True)
    assert outcome == "ValueError"
    entry.says(f"If it does raise, it is called {calls} times for one error.")
    outcome, calls, _ = run(fails(), remove=True)
    assert (outcome, calls) == ("returned", 0)
    entry.says("After handle.remove() errors are still swallowed.")


@gotcha("After an exception the next run does nothing")
def next_run(entry):
    batches = []
    step = fails()
    engine = Engine(lambda engine, batch: (batches.append(batch), step(engine, batch)))
    with silent():
        raised(engine.run, [1, 2, 3], max_epochs=3)
    batches.clear()
    answer, read = engine.run([1, 2, 3], max_epochs=3), len(batches)
    assert engine.run([1, 2, 3], max_epochs=3) is engine.state and batches
    entry.says(
        f"After an exception the next run does nothing. It returns {answer} at once, with {read} batches read; the "
        "one after it goes on. In a notebook build a new engine."
    )


@gotcha("engine.terminate as a handler skips COMPLETED")
def bound_method(entry):
    def fired_by(event, handler, *watched):
        engine, fired = counted(*watched)
        engine.add_event_handler(event, eval(handler, {"engine": engine}))
        engine.run([1, 2])
        return fired, engine

    bad, engine = fired_by(Events.ITERATION_COMPLETED, "engine.terminate", Events.COMPLETED)
    good, _ = fired_by(Events.ITERATION_COMPLETED, "lambda: engine.terminate()", Events.COMPLETED)
    epoch, _ = fired_by(Events.ITERATION_COMPLETED, "engine.terminate_epoch", Events.EPOCH_COMPLETED)
    assert not bad and good == ["COMPLETED"] and not epoch and engine.should_terminate == "skip_completed"
    entry.says(
        f"engine.terminate as a handler skips COMPLETED. Added as it stands, it gets the engine as "
        f"{engine.should_terminate}: whatever you do at {good[0]} is left out, and with engine.terminate_epoch the "
        "EPOCH_COMPLETED. Write lambda: engine.terminate()."
    )


@gotcha("terminate and max_iters leave out EPOCH_COMPLETED")
def no_epoch_completed(entry):
    call, length = "max_iters=4", 3
    engine, fired = counted(Events.EPOCH_COMPLETED, Events.TERMINATE, Events.COMPLETED)
    eval(f"engine.run(range({length}), {call})", {"engine": engine})
    assert fired == ["EPOCH_COMPLETED", "TERMINATE", "COMPLETED"]
    stopped, seen = counted(
        Events.EPOCH_COMPLETED, setup=lambda e: when(e, Events.ITERATION_COMPLETED, lambda e: e.terminate())
    )
    stopped.run([1, 2])
    assert not seen
    entry.says(
        f"terminate and max_iters leave out EPOCH_COMPLETED. With {call} and {length} batches an epoch, "
        "EPOCH_COMPLETED "
        f"fires {fired.count('EPOCH_COMPLETED')} time, {fired[1]} and {fired[2]} at the end."
    )
    both = "Events.EPOCH_COMPLETED | Events.TERMINATE"
    for run in (call, "max_epochs=2"):
        ends = []
        engine = Engine(nothing)
        engine.on(eval(both))(lambda: ends.append(engine.state.iteration))
        eval(f"engine.run(range({length}), {run})", {"engine": engine})
        assert ends == sorted({3, engine.state.iteration}) and len(ends) == 2
    entry.says(f"What must run at the end belongs on {both}.")


@gotcha("After interrupt, run ignores its data")
def interrupted_data(entry):
    def second(prepare):
        got, engine = seen_by(
            lambda e: e.run([0, 1, 2, 3], max_epochs=1),
            setup=lambda e: when(e, Events.ITERATION_COMPLETED(once=2), lambda e: e.interrupt()),
        )
        got.clear()
        new = [10, 11, 12, 13]
        prepare(engine, new)
        engine.run(new)
        return got

    assert second(lambda e, new: None) == [2, 3]
    with silent():
        assert second(lambda e, new: exec("engine.state.max_epochs = None", {"engine": e})) == [10, 11]
    assert second(lambda e, new: eval("engine.set_data(new)", {"engine": e, "new": new})) == [10, 11]
    entry.says(
        "After interrupt, run ignores its data. run(new) reads the rest of the old data. Call "
        "engine.set_data(new) first; or set engine.state.max_epochs = None, which starts from the beginning with "
        "the new data."
    )


@gotcha("An exhausted iterator gives empty epochs")
def exhausted(entry):
    call = "run(iter([0, 1, 2]), max_epochs=2)"

    def run(call):
        with warned() as texts:
            completed = []
            got, engine = seen_by(
                lambda e: eval(f"e.{call}", {"e": e}),
                setup=lambda e: when(e, Events.EPOCH_COMPLETED, lambda e: completed.append(e.state.epoch)),
            )
        return len(got), completed, texts

    read, completed, texts = run(call)
    more = run(call.replace("2)", "3)"))
    assert not texts and len(more[2]) == 1 and more[1] == [1, 2, 3] and completed == [1, 2]
    entry.says(
        f"An exhausted iterator gives empty epochs. {call} reads {read} batches, reports epoch {completed[-1]} as "
        "completed, and warns only if a third was asked for."
    )
    assert run("run([0, 1, 2], max_epochs=2)")[0] == 6 and run("run(iter([0, 1, 2]), max_epochs=1)")[0] == 3
    entry.says("Pass something that can be iterated again, or max_epochs=1.")


@gotcha("A default argument receives the engine")
def default_argument(entry):
    got = []
    engine = Engine(nothing)
    for i in range(2):
        engine.add_event_handler(Events.STARTED, lambda i=i: got.append(i))
        engine.add_event_handler(Events.STARTED, lambda engine, i: got.append(i), i=i)
        engine.add_event_handler(Events.STARTED, functools.partial(lambda i, engine: got.append(i), i))
    engine.run([1])
    assert got == [engine, 0, 0, engine, 1, 1]
    entry.says(
        "A default argument receives the engine. In a loop lambda i=i: … is called with the engine as i, since it "
        "could take one. Use functools.partial or keyword arguments of add_event_handler."
    )


@gotcha("Events are equal by name")
def equal_events(entry):
    class Own(EventEnum):
        STARTED = "my_start"

    ran = []
    engine = Engine(nothing)
    engine.register_events(*Own)
    engine.on(Own.STARTED)(lambda: ran.append(1))
    engine.run([1])
    assert Own.STARTED == Events.STARTED and ran == [1]
    entry.says(
        f"Events are equal by name. A custom EventEnum member {Own.STARTED.name} equals {Events.STARTED!r}: its "
        "handlers run when the engine starts. Choose other names."
    )


@gotcha("every counts anew beside before or after")
def every(entry):
    rows = {row[0].strip("`"): row[1] for row in probe.filter_table()}
    plain, beside = "every=3", "every=3, before=11"
    shown = rows[plain].rpartition(",")[0]
    entry.says(
        "every counts anew beside before or after.", f"{plain} means iterations {shown}; {beside} means {rows[beside]}."
    )


@gotcha("model.train() runs in every iteration")
def train_mode(entry):
    fix = "model_fn=lambda model, x: (model.bn.eval(), model(x))[1]"

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bn, self.last = torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1)

        def forward(self, x):
            return self.last(self.bn(x))

    def moved(**kwargs):
        torch.manual_seed(0)
        model = Model()
        model.bn.eval()
        create_supervised_trainer(model, torch.optim.SGD(model.parameters(), 0.1), mse, **kwargs).run(BATCHES)
        return bool((model.bn.running_mean != 0).any()), model

    assert moved()[0]
    still, model = moved(**eval(f"dict({fix})"))
    create_supervised_evaluator(model).run(BATCHES)
    assert not still and not model.training and not model.last.training
    entry.says(
        "model.train() runs in every iteration. Layers that you put into eval() (frozen batch normalisation) train "
        f"again. Put them back in {fix}; the evaluator leaves the whole model in eval()."
    )


@gotcha("Accumulated gradients at the end are lost")
def accumulation(entry):
    group, size = "gradient_accumulation_steps=3", len(BATCHES)

    def weights(batches):
        model, optimizer = model_and_optimizer()
        steps = []
        optimizer.register_step_post_hook(lambda *_: steps.append(1))
        eval(
            f"create(model, optimizer, mse, {group})",
            {"create": create_supervised_trainer, "model": model, "optimizer": optimizer, "mse": mse},
        ).run(batches)
        return model.weight.detach().clone(), len(steps)

    (four, steps), (three, _) = weights(BATCHES), weights(BATCHES[:3])
    assert torch.equal(four, three) and size == 4
    entry.says(
        f"Accumulated gradients at the end are lost. {group} over {size} batches makes {steps} optimizer step; the "
        "fourth batch has no effect. Choose a divisor of the total of iterations, or step once more at COMPLETED."
    )


@gotcha('amp_mode="amp" is for CUDA only')
def amp(entry):
    def run(**kwargs):
        model, optimizer = model_and_optimizer()
        with warned() as texts:
            output = (
                create_supervised_trainer(
                    model, optimizer, mse, output_transform=lambda x, y, y_pred, loss: y_pred.dtype, **kwargs
                )
                .run(BATCHES)
                .output
            )
        return output, [t for t in texts if "autocast" in t]

    misspelt = 'amp_mode="fp16"'
    dtype, texts = run(amp_mode="amp")
    assert len(texts) == len(BATCHES) and run(**eval(f"dict({misspelt})")) == run() == (torch.float32, [])

    def on_cpu(model, x):
        with eval('torch.autocast("cpu")', {"torch": torch}):
            return model(x)

    model, optimizer = model_and_optimizer()
    half = (
        create_supervised_trainer(
            model,
            optimizer,
            lambda a, b: mse(a.float(), b),
            model_fn=on_cpu,
            output_transform=lambda x, y, y_pred, loss: y_pred.dtype,
        )
        .run(BATCHES)
        .output
    )
    assert half == torch.bfloat16
    entry.says(
        f'amp_mode="amp" is for CUDA only. On a CPU it computes in {dtype} with a warning per iteration, and a '
        f'misspelt {misspelt} is ignored. On a CPU use torch.autocast("cpu") in model_fn.'
    )


@gotcha("keep_random_state drops the result")
def keep(entry):
    entry.says(
        f"keep_random_state drops the result. The decorated function returns {keep_random_state(lambda: 5)()}. Keep "
        "its result in a variable outside."
    )


@gotcha("An epoch_length below the data's own rotates it")
def rotates(entry):
    size, call = 5, "epoch_length=2"
    got, _ = seen_by(lambda e: eval(f"e.run(range(size), max_epochs=3, {call})", {"e": e, "size": size}))
    pairs = [listed(got[i : i + 2]) for i in range(0, 6, 2)]
    entry.says(
        f"An epoch_length below the data's own rotates it. Of {size} batches, {call} reads {', then '.join(pairs)}."
    )
    short, data = "data[:2]", list(range(size))
    got, _ = seen_by(lambda e: e.run(eval(short, {"data": data}), max_epochs=2))
    assert got == [0, 1, 0, 1] and list(Subset(data, range(2))) == [0, 1]
    entry.says(f"For a quick try pass {short} or a Subset.")


@gotcha("A filter on a custom event fails late")
def late(entry):
    class MyEvents(EventEnum):
        A = "a"

    event = "MyEvents.A(every=2)"
    engine = Engine(lambda engine, batch: engine.fire_event(MyEvents.A))
    engine.register_events(*MyEvents)
    engine.on(eval(event, {"MyEvents": MyEvents}))(lambda: None)
    with silent():
        error = raised(engine.run, [1])
    text = error.partition(" '")[0]
    assert "MyEvents" not in error and error.startswith(text)
    entry.says(
        f"A filter on a custom event fails late. {event} is accepted, and raises {text} when it fires, unless "
        "register_events got event_to_attr."
    )


@proves(f"{PAGE}#common-triggers")
def triggers(entry):
    event = "@trainer.on(Events.ITERATION_COMPLETED(every=100))"
    seen, trainer = [], Engine(nothing)
    eval(event[1:], {"trainer": trainer, "Events": Events})(lambda: seen.append(trainer.state.iteration))
    trainer.run(range(250))
    assert seen == [100, 200]
    entry.says(event)
    order, stops = first_column("events"), first_column("stopping")
    assert "`GET_BATCH_STARTED`" in order and "`engine.terminate()`" in stops
    entry.says(f"The table under {find_entry(f'{API}#events').heading}.")
    entry.says(f"The table under {find_entry(f'{API}#stopping').heading}.")
    for recipe, shown in {"train-and-validate": "evaluator.run(", "train-by-iterations": "max_iters="}.items():
        found = find_entry(f"{FOLDER}/references/workflows.md#{recipe}")
        assert any(shown in f.text for f in found.fences)
        entry.says(f"{found.heading}.")


def first_column(anchor: str) -> list[str]:
    """First column of the table of an entry of the reference, whose proof compares it with a run."""
    return [row[0] for row in find_entry(f"{API}#{anchor}").tables[0].rows]


@proves(f"{PAGE}#useful-boundary-notes")
def notes(entry):
    def nested(other):
        engine = Engine(nothing)
        when(engine, Events.ITERATION_COMPLETED, lambda e: (other or e).run([1]))
        with silent():
            return raised(engine.run, [1]) if other is None else engine.run([1]).iteration

    assert nested(Engine(nothing)) == 1
    entry.says(f"engine.run inside a handler of the same engine raises {nested(None)}; another engine is fine.")
    rows = probe.state_table()
    assert [row[4] for row in rows if row[0] == "`GET_BATCH_COMPLETED`"] == ["None", "None"]
    entry.says("engine.state.output is None from the moment the next batch is fetched: keep what you need yourself.")
    assert set(Engine(nothing).state_dict()) == {"epoch_length", "iteration", "max_epochs"}
    entry.says("The state of a GradScaler, metrics and handlers are not in engine.state_dict(); save them beside it.")

    def uneven(rank):
        engine = Engine(lambda engine, batch: idist.all_reduce(batch))
        when(engine, Events.ITERATION_COMPLETED(once=2 - rank), lambda e: e.terminate())
        return engine.run([1, 1, 1]).iteration

    first, second = run_world(2, uneven)
    assert not first.ok and second.value == 1, "rank 0 waits in iteration 2 for a rank that has ended in iteration 1"
    entry.says(
        "Each rank of a distributed job has an engine of its own, and every rank must end in the same iteration."
    )
