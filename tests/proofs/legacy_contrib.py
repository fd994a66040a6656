"""references/legacy-contrib.md: its tables are what the old paths were and are in each release (probes.legacy_contrib,
asked by support.releases), its sentences what the installed one does with them."""
from __future__ import annotations

import importlib
import os
import re
import subprocess
import tempfile
import warnings
from pathlib import Path

from probes import legacy_contrib
from support import releases
from support.claims import COUNTS, proves
from support.pages import read_page
from support.world import run_serial, values

from proofs.versions import FIRST, LAST, NIGHTLY, answers

PAGE = "references/legacy-contrib.md"
KNOWN = releases.releases()
REMOVAL = re.compile(r"(\S+\.py) has been moved to (\S+) and will be removed in version (\S+)\.")


def legacy(version: str) -> dict:
    return answers(version)["legacy"]


def old_names() -> dict[tuple[str, str], str]:
    """(old module, public name) of every release from the first one of the page → the last release that has it so."""
    found = {}
    for version in KNOWN[KNOWN.index(FIRST) : -1]:
        for module, asked in legacy(version)["old"].items():
            found |= {(module, name): version for name in asked["public"]}
    assert len(found) > 100
    return found


def imports(module: str, name: str, version: str = LAST) -> bool:
    return name in legacy(version)["old"].get(module, {}).get("names", {})


def since(holds) -> str:
    """The first release for which it holds, in the words of the page."""
    first = next(v for v in KNOWN if holds(legacy(v)))
    return f"before {FIRST}" if first == KNOWN[0] else first


def warns_since(module: str) -> str:
    if not legacy(LAST)["old"][module]["warns"]:
        return "no"
    return since(lambda said: said["old"].get(module, {}).get("warns"))


def code(*names: str) -> str:
    return ", ".join(f"`{n}`" for n in names)


def home_rows() -> list[list[str]]:
    """Old module, names, new module, new since, warns since; modules that fare alike share a row."""
    alone: dict[tuple, list[str]] = {}
    for module, name in old_names():
        home = imports(module, name) and legacy(LAST)["old"][module]["names"][name]
        if home:
            new = home.rpartition(".")[0]
            first = since(lambda said: home in said["new"])
            alone.setdefault((module, new, first, warns_since(module)), []).append(name)
    packages = {m.rpartition(".")[0] for m, _ in old_names()}
    shared: dict[tuple, dict[str, list[str]]] = {}
    for (module, new, first, warns), names in alone.items():
        parent, _, leaf = module.rpartition(".")
        if module not in packages and new == module.replace(legacy_contrib.OLD, "ignite"):
            shared.setdefault((f"{parent}.…", f"{new.rpartition('.')[0]}.…", first, warns), {})[leaf] = names
        else:
            shared[module, new, first, warns] = {"": names}
    rows = []
    for (module, new, first, warns), leaves in sorted(shared.items()):
        names = sorted({n for names in leaves.values() for n in names})
        which = f": {code(*sorted(leaves))}" if module.endswith("…") else ""
        rows.append([f"`{module}`{which}", code(*names), f"`{new}`", first, warns])
    return rows


def gone_rows() -> list[list[str]]:
    """Old module, name, gone since, instead."""
    rows = []
    for (module, name), last in sorted(old_names().items()):
        if not imports(module, name):
            plain = f"{module}.{name}".replace(legacy_contrib.OLD, "ignite")
            instead = f"`{plain}`" if plain in legacy(LAST)["new"] else filtered_events()
            rows.append([f"`{module}`", f"`{name}`", KNOWN[KNOWN.index(last) + 1], instead])
    return rows


def filtered_events() -> str:
    """What the old CustomPeriodicEvent told its users, and that it works: every second iteration of 4."""
    from ignite.engine import Engine, Events

    source = (releases.release_path(FIRST) / "ignite/contrib/handlers/custom_events.py").read_text()
    assert "Use filtered events instead" in source
    seen = []
    engine = Engine(lambda e, b: None)
    engine.add_event_handler(Events.ITERATION_COMPLETED(every=2), lambda: seen.append(engine.state.iteration))
    engine.run([0] * 4)
    assert seen == [2, 4], seen
    return "`Events.ITERATION_COMPLETED(every=2)`"


def homeless_rows() -> list[list[str]]:
    rows: dict[str, list[str]] = {}
    for module, name in sorted(old_names()):
        if imports(module, name) and legacy(LAST)["old"][module]["names"][name] is None:
            rows.setdefault(module, []).append(name)
    return [[f"`{module}`", code(*names), warns_since(module)] for module, names in rows.items()]


@proves(f"{PAGE}#where-ignitecontrib-went")
def page(entry):
    warned = [w for asked in legacy(LAST)["old"].values() for w in asked["warns"]]
    versions = {REMOVAL.search(w)[3] for w in warned}
    assert len(versions) == 1, versions
    old = {m for m, asked in legacy(LAST)["old"].items() if asked["names"]}
    assert {m for v in KNOWN[1:-1] for m in legacy(v)["old"]} - {"ignite.contrib.handlers.custom_events"} == old
    entry.says(f"Every module of {FIRST} but one still imports in {LAST}; the warnings say that they will be removed "
               f"in "
               f"version {versions.pop()}.")
    rows = home_rows()
    plain = [r for r in rows if r[2] == f"{r[0].split(':')[0]}".replace("ignite.contrib", "ignite")]
    others = [r for r in rows if r not in plain]
    assert {r[0] for r in others} == {"`ignite.contrib.engines.common`"}, entry.entry.where
    assert all(r[3] in (f"before {FIRST}", "0.5.0.post2") for r in plain), entry.entry.where
    entry.says("Drop `contrib` from the path: that is right for everything under `ignite.contrib.handlers` and "
               "`ignite.contrib.metrics`, from 0.5.0.post2 on.")
    entry.says("Only `ignite.contrib.engines` differs.")
    entry.says(" · ".join(e.heading for e in read_page(PAGE).entries if e.level == 2))
    COUNTS["old paths of ignite.contrib compared"] += len(old_names())


@proves(f"{PAGE}#new-homes")
def homes(entry):
    entry.table([["Old module", "Names", "New module", "New since", "Warns since"], *home_rows()])


@proves(f"{PAGE}#gone-from-the-old-path")
def gone(entry):
    rows = gone_rows()
    entry.table([["Old module", "Name", "Gone since", "Instead"], *rows])
    names = [r[1].strip("`") for r in rows if not r[3].startswith("`Events")]
    assert names and all(n.endswith("_compute_fn") for n in names), entry.entry.where


@proves(f"{PAGE}#without-a-new-home")
def homeless(entry):
    entry.table([["Old module", "Names", "Warns"], *homeless_rows()])
    nightly = legacy(NIGHTLY)["old"]
    for module, name in old_names():
        if imports(module, name):
            assert imports(module, name, NIGHTLY), f"{NIGHTLY}: {module}.{name} is gone"
    common = nightly["ignite.contrib.engines.common"]
    assert not common["warns"] and "setup_common_training_handlers" in common["names"], entry.entry.where
    entry.says("Go on importing these from `ignite.contrib`, also in the nightly build.")

    def use():
        from ignite.contrib.engines import common

        try:
            common.setup_any_logging(None, None, None, None, None, None)
        except DeprecationWarning as e:
            raised = type(e).__name__
        one = common.setup_common_distrib_training_handlers is common.setup_common_training_handlers
        return raised, one, common.get_default_score_fn.__qualname__

    ((raised, one, score),) = values([run_serial(use)])
    assert one, entry.entry.where
    entry.says(f"`setup_any_logging` raises a `{raised}` whatever it is given",
               "`setup_common_distrib_training_handlers` is `setup_common_training_handlers`")
    assert score == "Checkpoint.get_default_score_fn", entry.entry.where


def caught(statement: str, importer: str) -> list[str]:
    """What Python's default filters show of the warnings of a statement in the module `importer`, in a fresh fork."""

    def run():
        legacy_contrib._forget()
        with warnings.catch_warnings(record=True) as seen:
            warnings.resetwarnings()
            warnings.filterwarnings("default", category=DeprecationWarning, module="__main__")
            warnings.simplefilter("ignore", DeprecationWarning, append=True)
            exec(statement, {"__name__": importer, "__builtins__": __builtins__})
        return [str(w.message) for w in seen if w.category is DeprecationWarning]

    return values([run_serial(run)])[0]


@proves(f"{PAGE}#what-to-know")
def know(entry):
    old = "ignite.contrib.handlers.tensorboard_logger"
    statement = f"from {old} import TensorboardLogger"
    (shown,) = caught(statement, "__main__")
    entry.quotes(shown)
    packages = {m.rpartition(".")[0] for m, _ in old_names()}
    moved = [m for m, _ in old_names() if m not in packages and not m.startswith("ignite.contrib.engines")]
    assert all(legacy(LAST)["old"][m]["warns"] for m in moved if m in legacy(LAST)["old"]), entry.entry.where
    entry.says("A module that moved warns when it is imported")
    assert caught(statement, "train_utils") == [], entry.entry.where
    again = caught(f"{statement}; {statement}", "__main__")
    assert len(again) == 1, entry.entry.where
    entry.says("Python shows it only once a process, and by default only where the importing line stands in the script "
               "that was started, not in a module of yours")
    package = "from ignite.contrib.handlers import TensorboardLogger"
    assert caught(package, "__main__") == [], entry.entry.where
    silent = sorted(m for m, asked in legacy(LAST)["old"].items() if not asked["warns"])
    assert "ignite.contrib.handlers" in silent, entry.entry.where
    entry.says(f"`{package}` never warns",
               f"nor do {', '.join(f'`{m}`' for m in silent if m != 'ignite.contrib.handlers')}",
               "so look for old imports with `grep`, not with `-W error`")
    for module, name in old_names():
        if imports(module, name) and (home := legacy(LAST)["old"][module]["names"][name]):
            owner, _, attribute = home.rpartition(".")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                thing = getattr(importlib.import_module(module), name)
            if not attribute.startswith("get_default"):
                assert thing is getattr(importlib.import_module(owner), attribute), home
            assert "contrib" not in thing.__module__, thing
    entry.says("Old and new path give the same object, whose `__module__` is the new one",
               "`isinstance`, registrations and pickles made by 0.5.5 do not care which one was imported")
    nightly, last = (legacy(v)["old"] for v in (NIGHTLY, LAST))
    assert nightly.keys() == last.keys(), entry.entry.where
    for module in last:
        assert nightly[module]["names"] == last[module]["names"], module
        pair = [[REMOVAL.search(w).groups()[1:] for w in side[module]["warns"]] for side in (nightly, last)]
        assert pair[0] == pair[1], module
    number = re.match(r"\d+\.\d+\.\d+\.dev", answers(NIGHTLY)["version"])[0]
    entry.says(f"The newest nightly build ({number}…) still has every path, with the same homes and warnings")


OLD_LINES = {  # file → its lines; those that must be found, and only those, hold `ignite.contrib` or import contrib
    "train.py": ["import ignite.contrib", "    from ignite.contrib.handlers.tqdm_logger import ProgressBar",
                 "import ignite.contrib.metrics as m", "from ignite.handlers import ProgressBar"],
    "pack/__init__.py": ["from ignite import contrib", "from ignite import metrics, contrib as c", "import contrib"],
    "conf/run.yaml": ["metric: ignite.contrib.metrics.ROC_AUC", "metric: ignite.metrics.ROC_AUC"],
    "try.ipynb": ['    "from ignite.contrib import handlers\\n",'],
}


@proves(f"{PAGE}#find-and-rewrite")
def find(entry):
    """The commands are run as examples; here: what else they find, and that the rewriting is right for all names."""
    shown = [line for f in entry.entry.fences for line in f.text.splitlines()]
    (grep,) = {line[2:] for line in shown if line.startswith("$ grep")}
    (sed,) = [line for line in shown if line.startswith("$ sed")]

    def look():
        for name, lines in OLD_LINES.items():
            Path(name).parent.mkdir(exist_ok=True)
            Path(name).write_text("\n".join(lines) + "\n")
        done = subprocess.run(["bash", "-c", grep], capture_output=True, text=True, timeout=20)
        return sorted(done.stdout.splitlines())

    wanted = sorted(f"./{name}:{i}:{line}" for name, lines in OLD_LINES.items() for i, line in enumerate(lines, 1)
                    if "ignite.contrib" in line or line.startswith("from ignite import") and "contrib" in line)
    (found,) = values([run_serial(in_scratch(look))])
    assert found == wanted, f"{entry.entry.where}: grep finds\n{found}\nnot\n{wanted}"
    entry.says("`grep` also finds the paths in YAML, JSON and notebooks.")
    pattern, replacement = re.search(r"s/(.*?)/(.*?)/g", sed).groups()
    rewritten = 0
    for module, name in old_names():
        new = re.sub(pattern, replacement, module)
        if new != module:
            assert f"{new}.{name}" in legacy(LAST)["new"] or name == "CustomPeriodicEvent", f"{new}.{name}"
            rewritten += 1
        else:
            assert module.startswith("ignite.contrib.engines"), module
    assert rewritten > 100, entry.entry.where
    entry.says("`sed` leaves `ignite.contrib.engines` alone: see the tables")


def in_scratch(function):
    def run():
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)  # in a fork
            return function()

    return run
