"""What the proofs of the engine room share: small engines, what they saw, what a call raised."""

from __future__ import annotations

import contextlib
import logging
import warnings

import torch
from ignite.engine import Engine, Events
from support.claims import proves

FOLDER = "sub-skills/engine"
API = f"{FOLDER}/references/api-reference.md"
X, Y = torch.arange(16.0).view(8, 2) / 8, torch.arange(8.0).view(8, 1) / 8
BATCHES = [(X[i : i + 2], Y[i : i + 2]) for i in range(0, 8, 2)]  # four supervised batches


def at(page: str, *headings: str):
    """Register a proof for the entries with these headings on a page of the room."""
    return proves(*(f"{page}#{h.lower().replace('.', '').replace(' ', '-')}" for h in headings))


def nothing(engine, batch):
    """A step that does nothing."""


def raised(function, *args, **kwargs) -> str:
    """`Class: text` of the exception that the call raises."""
    try:
        result = function(*args, **kwargs)
    except BaseException as e:
        return f"{type(e).__name__}: {e}"
    raise AssertionError(f"expected an exception, got {result!r}")


def seen_by(run, *, setup=None) -> tuple[list, Engine]:
    """The batches that an engine gets in `run(engine)`, and the engine."""
    batches: list = []
    engine = Engine(lambda engine, batch: batches.append(batch))
    if setup:
        setup(engine)
    run(engine)
    return batches, engine


def counted(*events, setup=None, process=nothing) -> tuple[Engine, list[str]]:
    """An engine and the names of those events (default: all) that it fires."""
    engine, fired = Engine(process), []
    for event in events or [e for e in Events if e is not Events.EXCEPTION_RAISED]:
        engine.add_event_handler(event, lambda *_, name=event.name, **__: fired.append(name))
    if setup:
        setup(engine)
    return engine, fired


def when(engine, event, call) -> None:
    """`call(engine)` when the event fires."""
    engine.add_event_handler(event, lambda engine: call(engine))


@contextlib.contextmanager
def warned():
    """A list that fills with the texts of the warnings in the block."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield texts
    texts += [str(w.message) for w in caught]


@contextlib.contextmanager
def silent():
    """No log lines in the block: what is meant to fail need not be reported."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def model_and_optimizer(lr: float = 0.1):
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    return model, torch.optim.SGD(model.parameters(), lr=lr)


mse = torch.nn.functional.mse_loss
