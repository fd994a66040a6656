"""What engines do: the tables of the engine room's pages, each made by running the library.

    python tests/probes/engine.py        prints them

The cells that show a call are run as they stand: what a reader copies is what was tried.
"""

from __future__ import annotations

import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ignite.engine import DeterministicEngine, Engine, Events, State  # noqa: E402
from ignite.utils import manual_seed  # noqa: E402

DATA = [0, 1, 2]
Rows = list[list[str]]


def recorded(setup=None, process=None) -> tuple[Engine, list[str], list[Any]]:
    """An engine, the names of the events that it fires (exceptions apart), and the batches that it gets."""
    fired, batches = [], []
    engine = Engine(lambda engine, batch: (batches.append(batch), process and process(engine))[1])
    for event in Events:
        if event is not Events.EXCEPTION_RAISED:
            engine.add_event_handler(event, lambda *_, name=event.name, **__: fired.append(name))
    if setup:
        setup(engine)
    return engine, fired, batches


def at(event, action):
    """A setup that calls `action(engine)` when the event fires."""
    return lambda engine: engine.add_event_handler(event, lambda engine: action(engine))


def quietly(function, *args, **kwargs):
    """What the call returns, its warnings and log lines unseen."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            return function(*args, **kwargs)
        finally:
            logging.disable(logging.NOTSET)


def fails_once(engine):
    if engine.state.iteration == 2 and not hasattr(engine, "failed"):
        engine.failed = True
        raise ValueError("boom")


def run_table() -> Rows:
    """What `run` does, by what came before; `data` has three batches."""

    def new(engine):
        pass

    def finished(engine):
        engine.run(DATA, max_epochs=2)

    def stopped(how):
        def before(engine):
            at(Events.ITERATION_COMPLETED(once=4), lambda e: getattr(e, how)())(engine)
            engine.run(DATA, max_epochs=3)

        return before

    def failed(engine):
        try:
            engine.run(DATA)
        except ValueError:
            pass

    def loaded(**state):
        return lambda engine: engine.load_state_dict({"epoch_length": 3, **state})

    cases = [
        (
            "new",
            new,
            [
                "run(data)",
                "run(data, max_epochs=2)",
                "run(data, max_iters=4)",
                "run(data, epoch_length=5)",
                "run(epoch_length=2)",
            ],
        ),
        (
            "`run(data, max_epochs=2)` finished",
            finished,
            ["run(data)", "run(data, max_epochs=2)", "run(data, max_epochs=3)"],
        ),
        ("`terminate()` in iteration 4 of `max_epochs=3`", stopped("terminate"), ["run(data, max_epochs=3)"]),
        ("`interrupt()` in iteration 4 of `max_epochs=3`", stopped("interrupt"), ["run(data, max_epochs=3)"]),
        ("an exception in iteration 2 of `run(data)`", failed, ["run(data)"]),
        ("loaded `iteration=4, max_epochs=3, epoch_length=3`", loaded(iteration=4, max_epochs=3), ["run(data)"]),
        (
            "loaded `iteration=6, max_epochs=2, epoch_length=3`",
            loaded(iteration=6, max_epochs=2),
            ["run(data)", "run(data, max_epochs=2)", "run(data, max_epochs=3)"],
        ),
    ]
    rows = [["before", "call", "batches", "`iteration` after", "`epoch` after"]]
    for name, before, calls in cases:
        for call in calls:
            engine, _, batches = recorded(process=fails_once if "exception" in name else None)
            before(engine)
            batches.clear()
            eval(f"engine.{call}", {"engine": engine, "data": DATA})
            got = ", ".join(map(str, batches)) or "none"
            rows.append([name, f"`{call}`", got, str(engine.state.iteration), str(engine.state.epoch)])
    return rows


STOP_EVENTS = ("TERMINATE_SINGLE_EPOCH", "EPOCH_COMPLETED", "TERMINATE", "COMPLETED", "INTERRUPT")


def stop_table() -> Rows:
    """Which events follow when an iteration of the only epoch ends the run."""
    rows = [["in a handler of `ITERATION_COMPLETED`", *(f"`{name}`" for name in STOP_EVENTS)]]
    calls = (
        "nothing",
        "engine.terminate()",
        "engine.terminate(skip_completed=True)",
        "engine.terminate_epoch()",
        "engine.terminate_epoch(skip_epoch_completed=True)",
        "engine.interrupt()",
    )
    for call in calls:
        act = (lambda engine: None) if call == "nothing" else lambda engine, call=call: eval(call, {"engine": engine})
        engine, fired, _ = recorded(at(Events.ITERATION_COMPLETED(once=2), act))
        engine.run(DATA)
        shown = call if call == "nothing" else f"`{call}`"
        rows.append([shown, *("yes" if name in fired else "–" for name in STOP_EVENTS)])
    engine, fired, _ = recorded()
    engine.run(DATA, max_iters=2)
    rows.append(["nothing, but `max_iters=2` of 3 is reached", *("yes" if n in fired else "–" for n in STOP_EVENTS)])
    return rows


def filter_table() -> Rows:
    """Iterations of 12 at which a filter lets a handler run."""
    filters = (
        "every=3",
        "once=5",
        "once=[2, 5]",
        "after=4",
        "before=4",
        "after=4, before=8",
        "every=3, after=4",
        "every=3, before=11",
        "every=3, after=4, before=11",
        "event_filter=lambda engine, n: n in (1, 10)",
    )
    rows = [["`Events.ITERATION_STARTED(…)`", "runs in iterations"]]
    for text in filters:
        engine, seen = Engine(lambda engine, batch: None), []
        event = eval(f"Events.ITERATION_STARTED({text})", {"Events": Events})
        engine.add_event_handler(event, lambda engine: seen.append(engine.state.iteration))
        engine.run(range(12))
        rows.append([f"`{text}`", ", ".join(map(str, seen))])
    return rows


def state_table() -> Rows:
    """What a handler finds in the state; batches 7 and 8, and the step returns ten times the batch."""
    events = (
        "STARTED",
        "EPOCH_STARTED",
        "GET_BATCH_STARTED",
        "GET_BATCH_COMPLETED",
        "ITERATION_STARTED",
        "ITERATION_COMPLETED",
        "EPOCH_COMPLETED",
        "COMPLETED",
    )
    engine, seen = Engine(lambda engine, batch: batch * 10), []
    for name in events:

        def note(engine, name=name):
            state = engine.state
            seen.append([f"`{name}`", *map(str, (state.epoch, state.iteration, state.batch, state.output))])

        engine.add_event_handler(Events[name], lambda engine, note=note: note(engine))
    engine.run([7, 8])
    return [["fired, in this order", "`epoch`", "`iteration`", "`batch`", "`output`"], *seen]


def handler_table() -> Rows:
    """What a handler of STARTED is called with; `more` is what follows it in add_event_handler."""
    cases = (
        ("lambda: note()", ""),
        ("lambda engine: note(engine)", ""),
        ("lambda i=5: note(i)", ""),
        ("lambda a, b: note(a, b)", "1"),
        ("lambda a: note(a)", "1"),
        ("lambda *a, **k: note(*a, **k)", "1, x=2"),
        ("functools.partial(note, 7)", ""),
    )
    rows = [["handler", "further arguments", "called with"]]
    for text, more in cases:
        got = []

        def note(*args, **kwargs):
            got.append(
                [
                    *("the engine" if isinstance(a, Engine) else str(a) for a in args),
                    *(f"{k}={v}" for k, v in kwargs.items()),
                ]
            )

        scope = {"note": note, "functools": __import__("functools"), "Events": Events}
        scope["engine"] = Engine(lambda engine, batch: None)
        eval(f"engine.add_event_handler(Events.STARTED, {text}{', ' + more if more else ''})", scope)
        scope["engine"].run(DATA)
        rows.append([f"`{text}`", f"`{more}`" if more else "", ", ".join(got[0]) or "nothing"])
    return rows


def state_attributes() -> Rows:
    """The attributes of a new State."""
    rows = [["attribute", "at first"]]
    return rows + [[f"`{name}`", f"`{value}`"] for name, value in vars(State()).items()]


def resumed_like_uninterrupted(workers: int, iteration: int, seed: int = 1, rng_states: bool = True) -> tuple[str, str]:
    """Of a DeterministicEngine rebuilt from its state at that iteration of 12, four to an epoch: whether the rest of
    the epoch, and the epochs after it, bring the batches that an uninterrupted run brought; "yes", "no" or "–"."""
    data = TensorDataset(torch.arange(8))

    def loader():
        return DataLoader(data, batch_size=2, shuffle=True, num_workers=workers)

    whole, rest, saved = [], [], []
    engine = DeterministicEngine(lambda engine, batch: whole.append(batch[0].tolist()))
    engine.add_event_handler(Events.ITERATION_COMPLETED(once=iteration), lambda: saved.append(engine.state_dict()))
    manual_seed(1)
    engine.run(loader(), max_epochs=3)
    rebuilt = DeterministicEngine(lambda engine, batch: rest.append(batch[0].tolist()))
    rebuilt.load_state_dict(saved[0] if rng_states else {**saved[0], "rng_states": None})
    manual_seed(seed)
    rebuilt.run(loader())
    assert len(whole) == 12 and len(rest) == 12 - iteration
    left = -iteration % 4
    epoch, after = rest[:left] == whole[iteration:][:left], rest[left:] == whole[iteration:][left:]
    return "yes" if left and epoch else "no" if left else "–", "yes" if after else "no"


def deterministic_table() -> Rows:
    """When a rebuilt DeterministicEngine brings the same batches."""
    rows = [["saved", "`num_workers`", "`manual_seed` before `run`", "rest of the epoch", "later epochs"]]
    for saved, iteration in (("at the end of epoch 1", 4), ("in the middle of epoch 2", 6)):
        for workers in (0, 1):
            for seed, shown in ((1, "the same"), (5, "another")):
                if seed == 5 and (workers, iteration) != (0, 4):
                    continue
                rows.append([saved, str(workers), shown, *resumed_like_uninterrupted(workers, iteration, seed)])
    return rows


TABLES = {
    f.__name__: f
    for f in (run_table, stop_table, filter_table, state_table, handler_table, state_attributes, deterministic_table)
}


def markdown(rows: Rows) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]])


if __name__ == "__main__":
    for name, table in TABLES.items():
        print(f"{name}\n\n{markdown(quietly(table))}\n")
