"""What the smoke scripts of one process share: registering checks, comparing, running, the deadline, the report.

A smoke script is a list of functions:

    with smoke_runner.imports():              # torch or ignite missing: one line, exit 3
        import torch
        from ignite.engine import Engine

    @check("Engine.run")                      # @check("ROC_AUC", needs_package="sklearn") is skipped without it
    def _():
        expect("iterations", Engine(step).run([1, 2]).iteration, 2)

    def main(argv=None):
        return smoke_runner.main(__name__, argv)

Each check runs in a fork of its own, in an empty folder: what it changes or leaves behind is gone with it. The parent
takes what the fork found from a pipe; at the deadline it fetches the fork's Python stack and ends it with its children.
Standard library only, besides what the script imports. Linux and macOS (`os.fork`).
"""
from __future__ import annotations

import argparse
import contextlib
import faulthandler
import importlib.util
import json
import os
import platform
import random
import select
import signal
import socket
import sys
import tempfile
import time
import traceback
from pathlib import Path

STARTED = time.monotonic()
CHECKS = {}  # module name -> {id: Check}
MISSING = {}  # library -> why it cannot be imported
STATUSES = ("pass", "fail", "skip", "timeout", "error")
API = "references/api-reference.md#"
PIP = {"ignite": "pytorch-ignite", "sklearn": "scikit-learn", "skimage": "scikit-image"}
EPILOG = """\
exit codes:
  0 every check passed (skips allowed)    1 a check failed    2 usage
  3 a dependency is missing               5 the deadline passed

examples:
  python {tool}
  python {tool} --only {ids} --verbose
  python {tool} --format json --output report.json --timeout 60
"""


class Mismatch(AssertionError):
    """What was compared, what was seen and what should have been, as text."""

    def __init__(self, what, observed, expected):
        super().__init__(f"{what}: {observed}, expected {expected}")
        self.what, self.observed, self.expected = what, observed, expected


class Check:
    def __init__(self, name, function, needs_package, since, hint, see):
        self.id, self.function, self.needs_package, self.since = name, function, needs_package, since
        self.hint, self.see = hint, see or API + name.lower().replace(".", "")


def check(name, *, needs_package=None, since=None, hint="", see=""):
    """Register a check; a sentence in its docstring is its hint unless `hint` is given.

    Args:
        name: its id; for a check of a public name, that name.
        needs_package: package without which it is skipped, by the name under which it is imported.
        since: first Ignite release that has what it checks; older ones skip it.
        hint: what it means when it fails.
        see: where to read on, relative to the sub-skill (default: the entry of that name in the API reference).
    """

    def register(function):
        text = hint or " ".join((function.__doc__ or "").split())
        CHECKS.setdefault(function.__module__, {})[name] = Check(name, function, needs_package, since, text, see)
        return function

    return register


@contextlib.contextmanager
def imports():
    """Note a library that is missing in the block, instead of a traceback; `main` then ends with exit code 3."""
    try:
        yield
    except ImportError as e:
        of_torch = "torch" not in sys.modules or (e.name or "").partition(".")[0] == "torch"
        MISSING["torch" if of_torch else "ignite"] = str(e)


def expect(what, observed, expected, within=None):
    """Raise a mismatch unless observed equals expected, in type too; `within` allows a difference of numbers."""
    if not same(observed, expected, within):
        raise Mismatch(what, show(observed), show(expected) + (f" ± {within}" if within else ""))


def expect_raises(what, error, text, function, *args, **kwargs):
    """Raise a mismatch unless the call raises `error` with `text` in its message; return the exception."""
    try:
        result = function(*args, **kwargs)
    except error as e:
        if text in str(e):
            return e
        raise Mismatch(what, f"{type(e).__name__}: {e}", f"{error.__name__} with '{text}'") from e
    raise Mismatch(what, f"returned {show(result)}", f"{error.__name__} with '{text}'")


def same(a, b, within=None):
    torch = sys.modules.get("torch")
    if torch is not None and (torch.is_tensor(a) or torch.is_tensor(b)):
        if not (torch.is_tensor(a) and torch.is_tensor(b) and a.shape == b.shape and a.dtype == b.dtype):
            return False
        a, b = a.detach().cpu(), b.detach().cpu()
        return bool(torch.equal(a, b) if within is None else torch.allclose(a, b, rtol=0, atol=within))
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y, within) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k], within) for k in a)
    return bool(a == b if within is None or not isinstance(a, float) else abs(a - b) <= within)


def show(value):
    if hasattr(value, "tolist") and hasattr(value, "dtype"):
        value = f"{value.tolist()}, {value.dtype}"
        return f"tensor({value[:180]})"
    return repr(value)[:300]


def run_check(c, deadline):
    """The report's entry of one check, run in a fork."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ignite-smoke-", ignore_cleanup_errors=True) as folder:
        reader, writer = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # until the fork is ready to answer it
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            in_fork(c, writer, folder)
        signal.signal(signal.SIGUSR1, before)
        os.close(writer)
        data, ended = b"", False
        while not ended and select.select([reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
            chunk = os.read(reader, 1 << 16)
            data, ended = data + chunk, not chunk
        if not ended:
            os.kill(pid, signal.SIGUSR1)  # write your stack
            time.sleep(0.2)
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(OSError):  # what the check started
            os.killpg(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
        os.close(reader)
        stack, printed = frames(text_of(f"{folder}/stack")), text_of(f"{folder}/printed")[-2000:].strip()
    found = {"id": c.id, "status": "pass", "seconds": round(time.monotonic() - start, 4)}
    if not ended:
        where = f"is at {stack[0]}" if stack else "had not begun"
        found.update(status="timeout", expected="the check returns", observed={"0": where}, stacks={"0": stack},
                     hint=f"{c.id} did not end before the deadline")
    elif not data:
        found.update(status="error", expected="the check returns", hint=f"{c.id} ended its process",
                     observed={"0": f"died: exit code {os.waitstatus_to_exitcode(status)}"})
    else:
        found.update(json.loads(data))
    if found["status"] != "pass":
        found.update(ranks=[0], see=c.see, hint=found.get("hint") or c.hint or f"{c.id} does not do what it should")
        found.update({"printed": {"0": printed}} if printed else {})
    return found


def text_of(path):
    return Path(path).read_text(errors="replace") if os.path.exists(path) else ""


def in_fork(c, writer, folder):
    """Run the check and write what it found; never returns."""
    found = {"status": "pass"}
    try:
        os.setsid()
        sink = os.open(f"{folder}/printed", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(sink, 1), os.dup2(sink, 2)
        sys.stdout, sys.stderr = (os.fdopen(n, "w", buffering=1, closefd=False) for n in (1, 2))
        faulthandler.register(signal.SIGUSR1, file=open(f"{folder}/stack", "w"), all_threads=False)
        os.mkdir(f"{folder}/here")
        os.chdir(f"{folder}/here")
        random.seed(0)
        if "torch" in sys.modules:
            sys.modules["torch"].manual_seed(0)
            sys.modules["torch"].set_num_threads(1)
        c.function()
    except Mismatch as e:
        found = {"status": "fail", "expected": f"{e.what}: {e.expected}", "observed": {"0": f"{e.what}: {e.observed}"}}
    except BaseException as e:
        found = {"status": "fail", "expected": "the check returns",
                 "stacks": {"0": traceback.format_exc().splitlines()[-30:]}, "observed": {
                     "0": f"raised {type(e).__name__}: {str(e)[:1500]}"}}
    os.write(writer, json.dumps(found).encode())
    sys.stdout.flush()
    os._exit(0)


def frames(dump):
    """Frames of a faulthandler dump as "file:line function", innermost first, without the runner's own."""
    found = []
    for line in dump.splitlines():
        path, _, rest = line.strip().removeprefix('File "').partition('", line ')
        number, _, function = rest.partition(" in ")
        if function == "in_fork":
            break
        found += [f"{path}:{number} {function}"] if function else []
    return found[:20]


def reason_to_skip(c, broken):
    if broken:
        return broken
    if c.needs_package and importlib.util.find_spec(c.needs_package) is None:
        return f"needs the package {PIP.get(c.needs_package, c.needs_package)}"
    if c.since and release(sys.modules["ignite"].__version__) < release(c.since):
        return f"came with Ignite {c.since}"
    return None


def release(version):
    return tuple(int("".join(filter(str.isdigit, part)) or 0) for part in version.split("+")[0].split(".")[:3])


def run(target, checks, deadline):
    """The report's entry of the run: every check, in the order in which they were registered."""
    start, entries, broken = time.monotonic(), [], None
    for c in checks:
        reason = reason_to_skip(c, broken)
        entries.append({"id": c.id, "status": "skip", "reason": reason} if reason else run_check(c, deadline))
        if entries[-1]["status"] == "timeout":
            broken = f"the run ended in {c.id}"
    seen = {e["status"] for e in entries}
    return {"target": target, "backend": None, "world_size": 1, "launcher": "fork", "checks": entries,
            "status": next((s for s in ("timeout", "error", "fail") if s in seen), "pass"),
            "seconds": round(time.monotonic() - start, 3)}


def make_report(tool, runs, started, diagnosis=()):
    summary = {s: sum(c["status"] == s for r in runs for c in r["checks"]) for s in STATUSES}
    code = 3 if diagnosis else 5 if summary["timeout"] else 1 if summary["fail"] + summary["error"] else 0
    versions = {n: getattr(sys.modules.get(n), "__version__", None) for n in ("torch", "ignite")}
    return {"schema": "pytorch-ignite-smoke/1", "tool": tool, "exit_code": code,
            "status": {0: "pass", 1: "fail", 5: "timeout"}.get(code, "error"),
            "seconds": round(time.monotonic() - started, 2),
            "environment": {"python": platform.python_version(), **versions, "host": socket.gethostname()},
            "diagnosis": list(diagnosis), "runs": runs, "summary": summary}


def as_text(report, verbose):
    env = report["environment"]
    lines = [f"{report['status'].upper()}  exit code {report['exit_code']}, {report['seconds']:.1f} s  "
             f"(Python {env['python']}, torch {env['torch']}, ignite {env['ignite']}, {env['host']})"]
    for one in report["runs"]:
        counts = ", ".join(f"{n} {s}" for s, n in report["summary"].items() if n or s == "pass")
        lines.append(f"{one['target']:8} {one['status']:8} {counts}, {one['seconds']:.2f} s")
        for c in one["checks"]:
            if c["status"] in ("fail", "timeout", "error"):
                lines += [f"  {c['status'].upper()} {c['id']}: {c['hint']}", f"    expected  {c['expected']}"]
                lines += [f"    observed  {c['observed']['0'][:1000]}"]
                stack = c.get("stacks", {}).get("0", []) if verbose or c["status"] == "timeout" else []
                lines += [f"      {frame}" for frame in stack[: None if verbose else 8]]
                lines += [f"    printed   {c['printed']['0']}"] if verbose and "printed" in c else []
                lines += [f"    see       {c['see']}"]
            elif verbose or c["status"] == "skip":
                lines.append(f"  {c['status']:7} {c['id']}  {c.get('reason') or format(c['seconds'], '.3f') + ' s'}")
    lines += [f"cause: {d['text']}" for d in report["diagnosis"]]
    text = "\n".join(lines)
    return text if verbose or len(text) < 9800 else text[:9700] + "\n… cut; --verbose or --format json has the rest"


class Parser(argparse.ArgumentParser):
    def error(self, message):
        print(f"{self.prog}: {message} (--help shows the usage)", file=sys.stderr)
        raise SystemExit(2)


def main(module, argv=None):
    """Run the checks that the module named `module` registered, as `argv` says; return the exit code."""
    started = STARTED if argv is None else time.monotonic()
    script, checks = sys.modules[module], CHECKS.get(module, {})
    tool = Path(script.__file__).name
    parser = Parser(
        prog=tool, description=script.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
        epilog=EPILOG.format(tool=tool, ids=",".join(list(checks)[:2])))
    parser.add_argument("--list", action="store_true", help="print the ids of the checks")
    parser.add_argument("--only", metavar="ID[,ID]", help="run only these checks")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="of the report (default text)")
    parser.add_argument("--output", metavar="FILE", help="write the report to FILE as well")
    parser.add_argument("--timeout", type=float, default=120.0, metavar="SECONDS", help="whole run (default 120)")
    parser.add_argument("--verbose", action="store_true", help="every check, whole stacks, what the checks printed")
    args = parser.parse_args(argv)
    only = list(checks) if args.only is None else [x for x in args.only.split(",") if x]
    if unknown := [x for x in only if x not in checks]:
        parser.error(f"unknown check {unknown[0]!r}; --list shows them")
    if not only:
        parser.error("--only names no check")
    if not 0 < args.timeout < 1e6:
        parser.error(f"--timeout {args.timeout}: a positive number of seconds is needed")
    if not hasattr(os, "fork"):
        parser.error("needs os.fork: Linux or macOS")
    if args.list:
        print("\n".join(checks))
        return 0
    diagnosis = [{"id": "missing-dependency", "text": f"{n} cannot be imported ({why}): pip install {PIP.get(n, n)}",
                  "evidence": [], "fix": f"pip install {PIP.get(n, n)}", "see": ""} for n, why in MISSING.items()]
    for problem in diagnosis:
        print(f"{tool}: {problem['text']}", file=sys.stderr)
    if diagnosis and args.format == "text":
        return 3
    chosen = [c for name, c in checks.items() if name in only]
    runs = [] if diagnosis else [run(tool.removesuffix("_smoke.py"), chosen, started + args.timeout)]
    report = make_report(tool, runs, started, diagnosis)
    text = json.dumps(report, indent=1, ensure_ascii=False) if args.format == "json" else as_text(report, args.verbose)
    try:
        if args.output:
            Path(args.output).write_text(text + "\n", encoding="utf-8")
    except OSError as e:
        parser.error(str(e))
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return report["exit_code"]


def leave(code):
    """End without the interpreter's own tear-down of torch."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)
