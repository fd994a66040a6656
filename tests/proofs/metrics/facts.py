"""What the proofs of the metrics room share: sentences that a run makes, and small ways to run a metric."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable
from typing import Any

import torch
from ignite.engine import Engine, Events
from probes import metrics as probe
from support.claims import proves
from support.pages import slug

ROOM = "sub-skills/metrics"
REFERENCE = f"{ROOM}/references/api-reference.md"
FACTS: dict[str, list[Callable[[], str]]] = {}  # "page#anchor" -> what makes its sentences
T = torch.tensor


def fact(page: str, heading: str) -> Callable:
    """Register a function that runs the library and returns a sentence of the entry with this heading."""

    def register(make: Callable[[], str]) -> Callable:
        where = f"{page}#{slug(heading)}"
        FACTS.setdefault(where, []).append(make)
        proves(where)(lambda entry: entry.says(unlinked(quietly(make))))
        return make

    return register


def unlinked(text: str) -> str:
    """The text as its reader sees it: of links only the words."""
    return re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text)


def of(*names: str) -> Callable:
    """A sentence of the API reference; several names share one entry."""
    return fact(REFERENCE, ", ".join(names))


def quietly(make: Callable[[], Any]) -> Any:
    """The result, without the engine's log lines and the warnings of a metric."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return make()
    finally:
        logging.disable(before)


def error(function: Callable, *args: Any, **kwargs: Any) -> str:
    """`Class: text` of the exception that the call raises, as a code span."""
    try:
        result = function(*args, **kwargs)
    except Exception as e:
        text = " ".join(str(e).replace("`", "").split())
        return f"`{type(e).__name__}: {text}`"
    raise AssertionError(f"expected an exception, got {result!r}")


def one(metric, *outputs: Any) -> Any:
    """The value, without tensors and rounded to 4 digits, of a metric that was given these outputs."""
    for output in outputs:
        metric.update(output)
    return probe.plain(metric.compute())


def engine() -> Engine:
    """An engine whose output is its batch."""
    return Engine(lambda engine, batch: batch)


def ran(metric, batches: list, epochs: int = 1, name: str = "m", **attach: Any) -> dict:
    """`state.metrics` after a run over the batches with the metric attached."""
    e = engine()
    metric.attach(e, name, **attach)
    return probe.plain(dict(e.run(batches, max_epochs=epochs).metrics))


def seen(metric, batches: list, epochs: int = 1, event: Any = Events.ITERATION_COMPLETED, **attach: Any) -> list:
    """The value in `state.metrics` at each such event, None while there is none."""
    e, found = engine(), []
    metric.attach(e, "m", **attach)
    e.add_event_handler(event, lambda e: found.append(probe.plain(e.state.metrics.get("m"))))
    e.run(batches, max_epochs=epochs)
    return found
