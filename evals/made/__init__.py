"""What tasks hand out that is too much to be kept: made at `prepare`, the same each time."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from . import big_log, many_scripts

MADE: dict[str, Callable[[Path], object]] = {"big-log": big_log.make, "many-scripts": many_scripts.make}
