"""What each old path under `ignite.contrib` is in the Ignite that is imported: there or not, a warning, its new home.

    survey() → {"old": {module: {"warns": [texts], "names": {name: home}, "public": [names]}}, "new": [paths]}

Each old module is imported as if for the first time: all of `ignite.contrib` is forgotten before. `warns` are the
DeprecationWarnings of that import, `names` the classes and functions of Ignite that it gives; the home of a name is the
path outside `ignite.contrib` that gives the very same object, by preference its own path without `contrib`, or None.
`new` are all paths outside `ignite.contrib`. Every release answers (support.releases).
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import sys
import warnings

OLD = "ignite.contrib"


def survey() -> dict:
    homes = _homes()
    package = importlib.import_module(OLD)
    modules = sorted(i.name for i in pkgutil.walk_packages(package.__path__, OLD + ".") if "._" not in i.name)
    old = {name: _asked(name, homes) for name in modules}
    _forget()
    return {"old": old, "new": sorted(homes)}


def _homes() -> dict[str, int]:
    """Path of each class and function outside `ignite.contrib` → id of the object."""
    import ignite

    found: dict[str, int] = {}
    for info in pkgutil.walk_packages(ignite.__path__, "ignite."):
        if "._" in info.name or ".comp_models" in info.name or f"{info.name}.".startswith(OLD + "."):
            continue
        module = importlib.import_module(info.name)
        for name, value in _own(module).items():
            found[f"{info.name}.{name}"] = id(value)
            if inspect.isclass(value):
                methods = [n for n, v in vars(value).items() if isinstance(v, staticmethod)]
                found |= {f"{info.name}.{name}.{n}": id(getattr(value, n)) for n in methods}
    return found


def _own(module) -> dict[str, object]:
    """Classes and functions of Ignite that the module gives, whether it defines them or not."""
    return {
        n: v
        for n, v in vars(module).items()
        if not n.startswith("_") and (inspect.isclass(v) or inspect.isfunction(v))
        and (v.__module__ or "").startswith("ignite.")
    }


def _asked(name: str, homes: dict[str, int]) -> dict:
    _forget()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        module = importlib.import_module(name)
    said = [str(w.message) for w in caught if w.category is DeprecationWarning and "ignite" in str(w.message)]
    names = {n: _home(name, n, value, homes) for n, value in _own(module).items()}
    return {"warns": said, "names": names, "public": sorted(n for n in names if _public(module, n))}


def _home(module: str, name: str, value: object, homes: dict[str, int]) -> str | None:
    plain = f"{module}.{name}".replace(OLD, "ignite")
    if homes.get(plain) == id(value):
        return plain
    same = [path for path, i in homes.items() if i == id(value)]
    defined = f"{value.__module__}.{name}"
    return defined if defined in same else min(same, key=len, default=None)


def _public(module, name: str) -> bool:
    """Whether a user is meant to import the name there: it is in `__all__`, given by a package, or bound by another
    statement than an import."""
    listed = getattr(module, "__all__", None)
    if listed is not None or hasattr(module, "__path__"):
        return listed is None or name in listed
    bound = set()
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            bound.add(node.name)
        elif isinstance(node, ast.Assign):
            bound |= {t.id for t in node.targets if isinstance(t, ast.Name)}
    return name in bound


def _forget() -> None:
    for name in [n for n in sys.modules if f"{n}.".startswith(OLD + ".")]:
        del sys.modules[name]
