"""Which public class or function of Ignite needs which package that Ignite does not install, and what it says without.

    python tests/probes/optional_packages.py       prints the table of references/optional-packages.md as Markdown

The names are found: all public classes and functions of ignite.handlers, ignite.metrics and ignite.engine. In a fork
that can import none of the packages which the source of Ignite names, each class is constructed, each function called,
and each method called that holds such an import, with a mock for each required argument. Counted is what ends in an
ImportError, with the packages that were tried.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import pkgutil
import re
import sys
import tempfile
import warnings
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import ignite  # noqa: E402
from support.world import run_serial, values  # noqa: E402

ROOMS = ("handlers", "metrics", "engine")
COME_WITH_IGNITE = {"torch", "ignite", "packaging"}
OF_TORCH = {"torch.utils.tensorboard": "tensorboard"}  # a module of torch that needs a package
ON_PYPI = {"sklearn": "scikit-learn"}


def third_party(tree: ast.AST) -> set[str]:
    """Top-level packages that the source imports and that do not come with Ignite or Python."""
    found = set()
    for node in ast.walk(tree):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module]
        found |= {OF_TORCH.get(name) or name.partition(".")[0] for name in names}
    return found - COME_WITH_IGNITE - set(sys.stdlib_module_names)


def packages() -> set[str]:
    """Those that any file of Ignite imports; NumPy, which most installations of torch have, apart."""
    files = sorted(Path(ignite.__file__).parent.rglob("*.py"))
    return set().union(*(third_party(ast.parse(f.read_text())) for f in files)) - {"numpy"}


def public() -> dict[str, object]:
    """`room.Name` or `room.module.Name` → each public class and function, once."""
    found, seen = {}, set()
    for room in ROOMS:
        package = importlib.import_module(f"ignite.{room}")
        names = [i.name for i in pkgutil.walk_packages(package.__path__, package.__name__ + ".") if "._" not in i.name]
        for name in sorted([package.__name__, *names], key=lambda n: n.count(".")):
            module = importlib.import_module(name)
            listed = getattr(module, "__all__", None) or [
                n for n, v in vars(module).items() if getattr(v, "__module__", None) == name and n[0] != "_"
            ]
            for n in listed:
                thing = getattr(module, n)
                if (inspect.isclass(thing) or inspect.isfunction(thing)) and id(thing) not in seen:
                    if thing.__module__.startswith("ignite"):
                        seen.add(id(thing))
                        found[f"{name}.{n}"] = thing
    return found


class Refuse:
    """A finder that refuses the packages, and remembers which were asked for."""

    def __init__(self, refused: set[str]) -> None:
        self.refused, self.asked = refused, []

    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in self.refused:
            self.asked += [] if top in self.asked else [top]
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)


def without(refused: set[str]) -> Refuse:
    """From here on this process (a fork) can import none of these."""
    for name in [n for n in sys.modules if n.partition(".")[0] in refused]:
        del sys.modules[name]
    for module in OF_TORCH:
        sys.modules.pop(module, None)
    finder = Refuse(refused)
    sys.meta_path.insert(0, finder)
    return finder


def required(function) -> dict[str, mock.MagicMock]:
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return {p.name: mock.MagicMock() for p in parameters if p.default is p.empty and p.kind not in kinds}


def importing_methods(cls: type) -> list[str]:
    """Methods that the class itself defines and that import a package."""
    tree = ast.parse(Path(inspect.getfile(cls)).read_text())
    (body,) = [node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == cls.__name__]
    methods = [node for node in body if isinstance(node, ast.FunctionDef) and node.name != "__init__"]
    return [m.name for m in methods if third_party(m) - {"numpy"}]


def complaints() -> list[tuple[str, str, tuple[str, ...], str]]:
    """(name, "construction" or "call" or the method, packages tried, "Class: text") of all public names, in a fork."""

    def ask():
        found, names = [], public()
        finder = without(packages())
        warnings.simplefilter("ignore")
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            for name, thing in names.items():
                calls = [("construction" if inspect.isclass(thing) else "call", thing)]
                for method in importing_methods(thing) if inspect.isclass(thing) else ():
                    raw = inspect.getattr_static(thing, method)
                    calls.append((f"`{method}()`", getattr(raw, "__func__", raw)))
                for when, function in calls:
                    finder.asked.clear()
                    try:
                        function(**required(function))
                    except ImportError as e:
                        text = re.sub(r"\s+", " ", str(e)).strip()
                        found.append((name, when, tuple(finder.asked), f"{type(e).__name__}: {text}"))
                    except Exception:  # mocks are no real arguments; whether it asked for a package is what counts
                        pass
            os.chdir("/")
        return found

    (found,) = values([run_serial(ask, limit=60)])
    return found


def rows() -> list[list[str]]:
    """Package, needed by, raised at, error; what is alike shares a row. Left out is the method of a class that cannot
    be constructed without the package, and the function behind a metric."""
    found = complaints()
    unmade = {(name, asked) for name, when, asked, _ in found if when == "construction"}
    groups: dict[tuple, dict[str, list[str]]] = {}
    for name, when, asked, text in found:
        method_of_unmade = when.startswith("`") and (name, asked) in unmade
        if not method_of_unmade and not name.endswith("_compute_fn"):
            package = " or ".join(f"`{ON_PYPI.get(p, p)}`" for p in asked)
            groups.setdefault((package, text), {}).setdefault(when, []).append(f"`{shortest(name)}`")
    made = []
    for (package, text), names in sorted(groups.items(), key=lambda g: (g[0][0].lower(), g[0][1])):
        needed = ", ".join(n for when in names for n in sorted(names[when]))
        made.append([package, needed, ", ".join(names), f"`{text}`"])
    return made


def shortest(name: str) -> str:
    """The shortest path after `ignite.` that gives the name."""
    parts = name.split(".")
    for i in range(2, len(parts)):
        if getattr(importlib.import_module(".".join(parts[:i])), parts[-1], None) is not None:
            return ".".join([*parts[1:i], parts[-1]])
    return ".".join(parts[1:])


HEADER = ["Package", "Needed by `ignite.…`", "Raised at", "Error"]

if __name__ == "__main__":
    table = [HEADER, ["---"] * len(HEADER), *rows()]
    print("\n".join("| " + " | ".join(r) + " |" for r in table))
