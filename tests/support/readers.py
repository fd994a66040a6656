"""The programs that read (check_script.py), imported as modules of the test process."""
from __future__ import annotations

import importlib.util
import sys

from . import DISTRIBUTED


def load(name: str):
    """The script sub-skills/distributed/scripts/NAME.py as a module."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, DISTRIBUTED / "scripts" / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


check_script = load("check_script")
