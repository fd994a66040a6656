"""Releases of Ignite side by side: fetched from PyPI into .matrix/ on demand, and asked the same questions.

    before, after = answers("0.5.1"), answers("0.5.2")
    before["surface"]["ignite.engine.Engine.terminate"], after["surface"]["ignite.engine.Engine.terminate"]

A release is unpacked without its dependencies (`pip install --no-deps --target`), so all share the torch of this
environment; the release that is installed here is taken from here. One process imports torch and nothing of Ignite;
each release is a fork of it, so a release costs about a second. A release that cannot be had raises `Unavailable`
with the reason: the caller skips, it never passes.
"""
from __future__ import annotations

import atexit
import contextlib
import fcntl
import importlib
import inspect
import json
import os
import pkgutil
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from functools import cache
from importlib import metadata
from pathlib import Path

from . import BUNDLE

STORE = BUNDLE / ".matrix"
PACKAGE = "pytorch-ignite"
PROBES = "proofs.versions"  # the module whose PROBES (name → function without arguments) each release evaluates
LEGACY = "probes.legacy_contrib"  # the module whose survey() says what has become of `ignite.contrib`
AT_ONCE = 2
PROBE_SECONDS = 60
FAILED = "PROBE FAILED"  # so begins the answer of a probe that raised


class Unavailable(Exception):
    """The release is neither here nor to be had from PyPI; the text says why."""


def releases() -> list[str]:
    """The releases of tests/matrix.txt, oldest first; "nightly" stands for the newest development build."""
    lines = (BUNDLE / "tests" / "matrix.txt").read_text().splitlines()
    found = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    assert found, "tests/matrix.txt names no release"
    return found


def predecessor(version: str) -> str:
    """The release before `version` in tests/matrix.txt; raises ValueError if there is none."""
    known = releases()
    if version not in known[1:]:
        raise ValueError(f"{version} is not a release of tests/matrix.txt that has a predecessor; there are {known}")
    return known[known.index(version) - 1]


@cache
def release_path(version: str) -> Path:
    """The folder that holds `ignite/` of that release ("nightly": of the newest build); raises Unavailable."""
    if version == metadata.version(PACKAGE):
        return Path(metadata.distribution(PACKAGE).locate_file(""))
    if version == "nightly":
        version = _newest()
    folder = STORE / version
    if not folder.is_dir():
        STORE.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=STORE) as scratch:
            _pip("install", "--no-deps", "--no-compile", "--ignore-requires-python", "--target", f"{scratch}/got",
                 f"{PACKAGE}=={version}")
            try:
                os.rename(f"{scratch}/got", folder)
            except OSError:  # another process was faster
                if not folder.is_dir():
                    raise
    return folder


def requirements(version: str) -> tuple[str, str]:
    """What the wheel asks for: Python ("" where it says nothing) and torch, as written in its METADATA."""
    path = release_path(version)
    dist = next(d for d in metadata.distributions(path=[str(path)]) if d.metadata["Name"] == PACKAGE)
    torch = next(r for r in dist.requires or [] if re.match(r"torch\b", r))
    return dist.metadata["Requires-Python"] or "", re.sub(r"[ ()]|^torch", "", torch)


def answers(version: str) -> dict:
    """What that release says: {"version", "modules", "surface": {name: parameters}, "legacy", "probes": {name: text}}.

    The first release of tests/matrix.txt is there for its surface only; it evaluates no probe.
    """
    release_path(version)  # raises Unavailable
    answer = _all_answers()[version]
    assert "error" not in answer, f"{version} could not be asked:\n{answer['error']}"
    return answer


def _newest() -> str:
    """The newest version that pip would take with --pre; without PyPI, the newest build that is already here."""
    try:
        report = _pip("install", "--dry-run", "--quiet", "--no-deps", "--ignore-installed", "--ignore-requires-python",
                      "--pre", "--report", "-", PACKAGE)
        return json.loads(report)["install"][0]["metadata"]["version"]
    except Unavailable:
        here = sorted(p.name for p in STORE.glob("*.dev*") if p.is_dir())
        if not here:
            raise
        return here[-1]


_UNREACHABLE: list[str] = []  # why pip failed, so that the next release need not wait for the network again


def _pip(*arguments: str) -> str:
    if _UNREACHABLE:
        raise Unavailable(_UNREACHABLE[0])
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--retries", "1", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        reason = done.returncode and f"pip: {(done.stderr.strip().splitlines() or [done.returncode])[-1]}"
    except subprocess.TimeoutExpired:
        reason = "pip: no answer within 60 s"
    if reason:
        _UNREACHABLE.append(f"{arguments[-1]}: {reason}")
        raise Unavailable(_UNREACHABLE[0])
    return done.stdout


@cache
def _all_answers() -> dict[str, dict]:
    """Ask every release that can be had, once for all workers of a test run."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    root = STORE / "answers"
    root.mkdir(parents=True, exist_ok=True)
    for old in root.iterdir():
        if time.time() - old.stat().st_mtime > 3600:
            shutil.rmtree(old, ignore_errors=True)
    folder = root / (run or f"{os.getpid()}")
    folder.mkdir(exist_ok=True)
    if not run:  # with workers, the last one does not know that it is; the next run tidies up
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        todo = {}
        for version in releases():
            if not (folder / f"{version}.json").exists():
                try:
                    todo[version] = str(release_path(version))
                except Unavailable:
                    continue
        if todo:
            environment = {k: v for k, v in os.environ.items() if not _is_launch_variable(k) and k != "PYTHONPATH"}
            environment["OMP_NUM_THREADS"] = "1"
            server = subprocess.Popen(
                [sys.executable, "-m", "support.releases", str(folder), json.dumps(todo)],
                cwd=BUNDLE / "tests", env=environment, stdin=subprocess.DEVNULL, start_new_session=True,
            )
            try:
                assert server.wait(timeout=300) == 0, f"the releases could not be asked: exit code {server.returncode}"
            finally:  # nothing outlives the call
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(server.pid, signal.SIGKILL)
        return {p.stem: json.loads(p.read_text()) for p in folder.glob("*.json")}


def _is_launch_variable(name: str) -> bool:
    return name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT") or name.startswith("SLURM_")


# Below: what runs in the process that has torch and no Ignite, and in its forks.


def _serve(folder: Path, paths: dict[str, str]) -> None:
    import torch

    torch.set_num_threads(1)
    running: dict[int, str] = {}
    waiting = list(paths.items())
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            version, path = waiting.pop(0)
            pid = os.fork()
            if pid == 0:
                _be_release(version, path, folder / f"{version}.json")
            running[pid] = version
        pid, status = os.wait()
        version = running.pop(pid)
        if not (folder / f"{version}.json").exists():
            _write(folder / f"{version}.json", {"error": f"ended with status {status} before it answered"})


def _be_release(version: str, path: str, target: Path) -> None:
    try:
        signal.signal(signal.SIGALRM, _too_slow)
        sys.path.insert(0, path)
        import ignite

        assert Path(ignite.__file__).parent.parent.samefile(path), f"{ignite.__file__} is not under {path}"
        assert version in ("nightly", ignite.__version__), f"{path} holds {ignite.__version__}, not {version}"
        modules = [m.__name__ for m in _public_modules()]
        answer = {"version": ignite.__version__, "modules": modules, "surface": surface(), "probes": {}}
        answer["legacy"] = importlib.import_module(LEGACY).survey()
        probes = importlib.import_module(PROBES).PROBES if version != releases()[0] else {}
        for name, probe in probes.items():
            signal.alarm(PROBE_SECONDS)
            try:
                answer["probes"][name] = probe()
            except BaseException:  # a probe must not fail: what it expects, it catches
                answer["probes"][name] = f"{FAILED} {traceback.format_exc()}"
            signal.alarm(0)
    except BaseException:
        answer = {"error": traceback.format_exc()}
    _write(target, answer)
    os._exit(0)


def _too_slow(*_) -> None:
    raise TimeoutError(f"no answer within {PROBE_SECONDS} s")


def _write(target: Path, answer: dict) -> None:
    partial = target.with_suffix(".partial")
    partial.write_text(json.dumps(answer))
    partial.rename(target)


def surface() -> dict[str, list[list[str | None]] | None]:
    """Every public name of the imported Ignite with its parameters: [name, default, kind] each.

    A name is listed where a user would import it from (the shortest path); methods as Class.method; None stands for
    what has no signature (constants, enumerations, properties).
    """
    found: dict[str, list | None] = {}
    seen: set[int] = set()
    for module in sorted(_public_modules(), key=lambda m: (m.__name__.count("."), m.__name__)):
        own = [n for n, o in vars(module).items() if getattr(o, "__module__", "").startswith(module.__name__)]
        for name in list(getattr(module, "__all__", [])) or own:
            thing = getattr(module, name, None)
            private = name.startswith("_") or name.endswith("_compute_fn")
            if private or thing is None or inspect.ismodule(thing) or id(thing) in seen:
                continue
            seen.add(id(thing))
            path = f"{module.__name__}.{name}"
            found[path] = _parameters(thing)
            if inspect.isclass(thing):
                for method, raw in _own_methods(thing).items():
                    found[f"{path}.{method}"] = _parameters(getattr(raw, "__func__", raw))
    return found


def _own_methods(cls: type) -> dict[str, object]:
    """Public methods and properties that the class or its private bases define (not those of a public base)."""
    bases = [c for c in reversed(cls.__mro__) if c is cls or c.__name__.startswith("_")]
    members = {n: o for c in bases if c.__module__.startswith("ignite") for n, o in vars(c).items()}
    kinds = (staticmethod, classmethod, property)
    return {n: o for n, o in members.items() if n[0] != "_" and (isinstance(o, kinds) or inspect.isfunction(o))}


def _public_modules():
    import ignite

    for info in pkgutil.walk_packages(ignite.__path__, "ignite."):
        parts = info.name.split(".")
        if not any(p.startswith("_") for p in parts) and "comp_models" not in parts:
            yield importlib.import_module(info.name)


def _parameters(thing) -> list[list[str | None]] | None:
    try:
        parameters = list(inspect.signature(thing).parameters.values())
    except (TypeError, ValueError):
        return None
    rows = []
    for p in parameters:
        default = None if p.default is p.empty else _default(p.default)
        rows.append([p.name, default, p.kind.name.lower()])
    return [r for r in rows if r[0] not in ("self", "cls")]


def _default(value) -> str:
    text = getattr(value, "__name__", None) if callable(value) and not isinstance(value, type) else None
    return text if text else re.sub(r" at 0x[0-9a-f]+", "", repr(value))


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), json.loads(sys.argv[2]))
