"""Does a code span name something that exists: a public name of ignite or torch, a path of the bundle, a flag?"""
from __future__ import annotations

import importlib
import re
from functools import lru_cache

from . import BUNDLE, DISTRIBUTED

ALIASES = {
    "idist": "ignite.distributed", "dist": "torch.distributed", "nn": "torch.nn", "mp": "torch.multiprocessing",
}
NAME = re.compile(r"@?([A-Za-z_][\w.]*)(\(\))?")


@lru_cache(maxsize=None)
def resolves(token: str) -> bool:
    """True for `idist.x`, `ignite.a.b`, `torch.c()`, a bare public name of `ignite.distributed`, or a bundle path."""
    if (BUNDLE / token).exists() or (DISTRIBUTED / token).exists():
        return "/" in token or "." in token
    match = NAME.fullmatch(token)
    return bool(match) and lookup(match[1]) is not None


def lookup(dotted: str):
    """The object that a dotted name means on these pages, or None."""
    first, *rest = dotted.split(".")
    if not rest:
        if first in ("torch", "ignite", *ALIASES):
            return importlib.import_module(ALIASES.get(first, first))
        return _bare(first)
    if first not in ("torch", "ignite", *ALIASES):
        owner = _bare(first)
        return _walk(owner, rest) if owner is not None else None
    return _walk(importlib.import_module(ALIASES.get(first, first)), rest)


def _bare(name: str):
    """The object of a public name of `ignite.distributed` or `ignite.metrics`, or None."""
    metrics = importlib.import_module("ignite.metrics")
    home = metrics if name in metrics.__all__ else importlib.import_module("ignite.distributed")
    return getattr(home, name, None)


def _walk(owner, parts: list[str]):
    for part in parts:
        if not hasattr(owner, part):
            try:
                owner = importlib.import_module(f"{owner.__name__}.{part}")
                continue
            except (ImportError, AttributeError):
                return None
        owner = getattr(owner, part)
    return owner
