"""The fenced programs and commands of the pages: found, checked for completeness, run, and their output compared.

What a fence is, its info string says:

    ```python                      a program; with a first line `# name.py` a file of that name, to be run by a command
    ```python signature            compared by the test of the API reference, not here
    ```bash                        a script; with `# name.sh` as first comment a file, else run as it stands
    ```console                     `$ command`, then what it prints on stdout and stderr together
    ```console any-order           the same lines in any order (several ranks print as they come)
    ```console loopback-names      two hosts whose own name resolves to loopback, as in many containers
    ```console exit=1              the last command of the fence ends with that status, not with 0
    … fragment="why"               not run: the reason is for the reader of the source, and the share is limited

In shown output, … stands for anything within a line, and a line that is only … for any lines; in any order, for those
that begin with another word than the lines shown, so that a rank too many is noticed. `host0$` and `host1$`
in one fence are started at the same time on two hosts (network namespaces); srun and sbatch run in a SLURM of two
nodes on this machine. A command runs in a folder that holds the files of its own heading and of the headings above
it, and `sub-skills` and `scripts` as links into the bundle; the fences under one heading share that folder, in order.

`$ python name.py` is a fork of the test process, which has torch and ignite imported; the ranks that the program
starts are new interpreters, as they are for its reader. Every other command is a process of its own.
"""
from __future__ import annotations

import ast
import builtins
import dis
import os
import random
import re
import runpy
import shlex
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
import types
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from . import BUNDLE, launchers
from .claims import COUNTS
from .pages import Fence, read_page
from .world import forget_loggers

MAX_LINES = 40
FRAGMENTS_ALLOWED = 0.1  # of all fences
LIMIT = 120.0  # seconds for one command
CHECKED = ("python", "console", "bash", "sh", "shell")
SLURM_COMMANDS = ("srun", "sbatch", "salloc", "sinfo", "squeue", "scontrol")
LAUNCHERS = ("mpirun", "horovodrun", "uv", "ipython")  # which a machine may lack; torchrun comes with torch
STARTS_PROGRAMS = re.compile(r"subprocess|os\.(exec|system|popen)")
NAME = re.compile(r"#\s*([\w.-]+\.(?:py|sh))\s*$")
PROMPT = re.compile(r"(host[01])?\$ (.*)")
OPTION = re.compile(r'\s*(?:(signature|any-order|loopback-names)|exit=(\d+)|fragment="([^"]*)")(?=\s|$)')
NAMELESS = re.compile(  # what torch and gloo remark about names that this machine cannot look up, and others can
    r"\[W\S+ \S+ \S+\] (\[c10d\] The hostname of the client socket cannot|.*Unable to resolve hostname to a).*"
)
DEFAULT_SEED = 67280421310721  # of a fresh interpreter's torch generator


class Skipped(Exception):
    """This machine lacks what the command needs; the text says what."""


@dataclass
class Command:
    text: str
    line: int
    host: int | None = None  # index of the host when the prompt names one
    expected: list[str] = field(default_factory=list)


@dataclass
class Example:
    """One fence, with the files that its folder holds."""

    page: Path
    heading: str
    fence: Fence
    root: Path
    options: dict[str, str]
    name: str | None = None  # of the file that the fence is
    group: str = ""  # page and anchor of the heading; examples of one group share a folder
    files: dict[str, str] = field(default_factory=dict)
    commands: list[Command] = field(default_factory=list)

    @property
    def where(self) -> str:
        return f"{self.page}:{self.fence.line}"

    @property
    def fragment(self) -> bool:
        return "fragment" in self.options

    @property
    def run_as_it_stands(self) -> bool:
        return self.fence.language != "console" and self.name is None and not self.fragment


def find_examples(path: Path | str, root: Path = BUNDLE) -> list[Example]:
    """The fences of a page that have to run, marked fragments included, signatures not."""
    found, above = [], []
    for entry in read_page(path, root).entries:
        while above and above[-1][0].level >= entry.level:
            above.pop()
        files = {k: v for _, known in above for k, v in known.items()}
        fences = [(f, _options(f)) for f in entry.fences if f.language in CHECKED]
        fences = [(f, options) for f, options in fences if "signature" not in options]
        own = {_name_of(f): f.text for f, options in fences if _name_of(f) and "fragment" not in options}
        above.append((entry, own))
        for fence, options in fences:
            example = Example(Path(path), entry.heading, fence, root, options, _name_of(fence))
            example.group, example.files = f"{path}#{entry.anchor}", {**files, **own}
            if fence.language == "console":
                example.commands = _commands(fence)
            found.append(example)
    return found


def faults(examples: list[Example]) -> list[str]:
    """What is wrong with the fences before any of them is run: each with page, line and what to change."""
    assert examples, "no fence was inspected"
    wrong = []
    for e in examples:
        if "unknown" in e.options:
            wrong.append(f"{e.where}: the info string says `{e.options['unknown']}`, which means nothing to this test")
        if e.fragment:
            if not e.options["fragment"].strip():
                wrong.append(f'{e.where}: fragment="…" needs a reason')
            COUNTS["fragments marked"] += 1
            continue
        if e.fence.language == "console":
            if not e.commands:
                wrong.append(f"{e.where}: a console fence without a `$ command`")
            for c in e.commands:
                if c.expected and all(line.strip() == "…" for line in c.expected):
                    wrong.append(f"{e.page}:{c.line}: the output shown is only …, so nothing is compared")
        elif e.fence.language == "python":
            wrong += [f"{e.where}: {fault}" for fault in incomplete(e.fence.text)]
        if e.name and not any(_mentions(c.text, e.name) for other in _below(e, examples) for c in other.commands):
            wrong.append(f"{e.where}: no command under «{e.heading}» runs {e.name}; show one or mark it as a fragment")
        COUNTS["fences checked for completeness"] += 1
    fragments = [e for e in examples if e.fragment]
    if len(fragments) > FRAGMENTS_ALLOWED * len(examples):
        wrong.append(
            f"{len(fragments)} of {len(examples)} fences are fragments, more than one in {1 / FRAGMENTS_ALLOWED:.0f}: "
            + ", ".join(e.where for e in fragments)
        )
    return wrong


def incomplete(program: str) -> list[str]:
    """Why a Python program is not complete: it does not parse, is too long, holds `...`, uses an undefined name."""
    try:
        tree = ast.parse(program)
    except SyntaxError as e:
        return [f"not Python: {e.msg} (line {e.lineno} of the fence); mark it as a fragment or complete it"]
    found = []
    if len(program.splitlines()) >= MAX_LINES:
        found.append(f"{len(program.splitlines())} lines; a program on a page has fewer than {MAX_LINES}")
    indices = {id(c) for s in ast.walk(tree) if isinstance(s, ast.Subscript) for c in ast.walk(s.slice)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value is ... and id(node) not in indices:
            found.append(f"`...` in line {node.lineno} of the fence: complete it or mark it as a fragment")
    loaded, stored = {}, {"__file__", "__name__", "__doc__", "__annotations__", *dir(builtins)}
    todo = [compile(tree, "fence", "exec")]
    while todo:
        code = todo.pop()
        todo += [c for c in code.co_consts if isinstance(c, types.CodeType)]
        line = code.co_firstlineno
        for i in dis.get_instructions(code):
            line = getattr(i, "line_number", i.starts_line) or line
            if i.opname in ("STORE_NAME", "STORE_GLOBAL"):
                stored.add(i.argval)
            elif i.opname in ("LOAD_NAME", "LOAD_GLOBAL"):
                loaded.setdefault(i.argval, line)
    found += [
        f"`{name}` in line {line} of the fence is not defined: complete it or mark it as a fragment"
        for name, line in loaded.items()
        if name not in stored and not (name.startswith("__") and name.endswith("__"))
    ]
    return found


def run_example(example: Example, folder: Path) -> list[str]:
    """Run what the fence says in `folder` and return what differs; `Skipped` is raised where the machine lacks it."""
    _fill(example, folder)
    if example.run_as_it_stands:
        name = "fence.py" if example.fence.language == "python" else "fence.sh"
        (folder / name).write_text(example.fence.text)
        output, code = run_command(f"python {name}" if name.endswith(".py") else f"bash -e {name}", folder, {})
        COUNTS["programs run"] += 1
        return [] if code == 0 else [f"{example.where}: ends with {code}:\n{output}"]
    _skip_what_is_missing(example)
    wanted = int(example.options.get("exit", 0))
    if any(c.host is not None for c in example.commands):
        return _run_on_hosts(example, folder, wanted)
    differences = []
    with ExitStack() as stack:
        slurm = any(_words(c.text)[0] in SLURM_COMMANDS for c in example.commands)
        extra = stack.enter_context(launchers.slurm_cluster()).env if slurm else {}
        for number, command in enumerate(example.commands):
            output, code = run_command(command.text, folder, {"SLURM_CONF": extra["SLURM_CONF"]} if slurm else {})
            last = number == len(example.commands) - 1
            differences += _judge(example, command, output, code, wanted if last else 0)
    return differences


def run_command(text: str, folder: Path, extra: dict[str, str], limit: float = LIMIT) -> tuple[str, int]:
    """Run one shell command in the folder and return its output, stdout and stderr as they came, and its status."""
    program = _forkable(text, folder)
    if program:
        return _fork(program, shlex.split(text)[2:], folder, limit)
    own_port = {"MASTER_PORT": str(_free_port())} if _words(text)[0] == "python" else {}
    done = launchers.run(_merged(text), timeout=limit, env={**_settings(), **own_port, **extra}, cwd=folder)
    left = f"(left behind: {done.left_behind})\n" if done.left_behind else ""
    late = f"(ended after {limit:.0f} s)\n" if done.timed_out else ""
    return done.output + left + late, done.returncode


def differs(expected: list[str], output: str, any_order: bool) -> str:
    """Why the output is not what is shown, or "": … is anything in a line, a line of only … is any lines.

    Empty lines do not count, nor do torch's remarks about names that this machine cannot look up.
    """
    actual = [line.rstrip() for line in output.splitlines() if line.strip() and not NAMELESS.match(line)]
    wanted = [line.rstrip() for line in expected if line.strip()]
    if any_order:
        actual = [part for line in actual for part in _unglued(line, wanted)]
    if not any_order:
        pattern = "".join(r"(?:[^\n]*\n)*?" if w.strip() == "…" else _line_pattern(w) + r"\n" for w in wanted)
        return "" if re.fullmatch(pattern, "".join(a + "\n" for a in actual)) else _side_by_side(wanted, actual)
    rest = any(w.strip() == "…" for w in wanted)
    wanted = [w for w in wanted if w.strip() != "…"]
    taken: dict[int, int] = {}  # line of the output → line shown

    def place(w: int, tried: set[int]) -> bool:
        for a, text in enumerate(actual):
            if a not in tried and re.fullmatch(_line_pattern(wanted[w]), text):
                tried.add(a)
                if a not in taken or place(taken[a], tried):
                    taken[a] = w
                    return True
        return False

    matched = all([place(w, set()) for w in range(len(wanted))])
    firsts = {w.split(" ")[0] for w in wanted}
    extra = [a for i, a in enumerate(actual) if i not in taken and not (rest and a.split(" ")[0] not in firsts)]
    return "" if matched and not extra else _side_by_side(wanted, actual)


def _unglued(line: str, wanted: list[str]) -> list[str]:
    """The lines that stand in one: torchrun runs `python -u`, where a rank writes a line and its end apart, so that the
    line of another rank may come in between."""
    for one in wanted:
        rest = line.removeprefix(one)
        if "…" not in one and rest != line and any(rest.startswith(w.partition("…")[0]) for w in wanted if rest):
            return [one, *_unglued(rest, wanted)]
    return [line]


# Running


def _skip_what_is_missing(example: Example) -> None:
    reasons = []
    for command in example.commands:
        if command.host is not None:
            reasons.append(launchers.missing("two_hosts"))
        if _words(command.text)[0] in SLURM_COMMANDS:
            reasons.append(launchers.missing("slurm"))
        for word in _words(command.text):
            if word in LAUNCHERS and not shutil.which(word, path=_settings()["PATH"]):
                reasons.append(f"{word} is not installed")
    if reason := next(filter(None, reasons), None):
        raise Skipped(reason)


def _run_on_hosts(example: Example, folder: Path, wanted: int) -> list[str]:
    with launchers.two_hosts(named="loopback-names" not in example.options) as hosts:
        argvs = [hosts.argv(c.host or 0, _merged(c.text)) for c in example.commands]
        done = launchers.run_together(argvs, timeout=LIMIT, env=_settings(), cwd=folder)
    shown = Command(" & ".join(c.text for c in example.commands), example.commands[0].line)
    shown.expected = [line for c in example.commands for line in c.expected]
    bad = [d.returncode for d in done if d.returncode != wanted]
    return _judge(example, shown, "".join(d.output for d in done), bad[0] if bad else wanted, wanted)


def _merged(text: str) -> list[str]:
    return ["bash", "-c", f"exec 2>&1\n{text}"]


def _words(text: str) -> list[str]:
    return [w for w in shlex.split(text) if not re.fullmatch(r"\w+=.*", w)]


def _fork(program: Path, arguments: list[str], folder: Path, limit: float) -> tuple[str, int]:
    with tempfile.TemporaryFile("w+", buffering=1) as log:
        pid = os.fork()
        if pid == 0:
            os._exit(_be_program(program, arguments, folder, log.fileno()))
        end = time.monotonic() + limit
        while not (done := os.waitpid(pid, os.WNOHANG))[0] and time.monotonic() < end:
            time.sleep(0.01)
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        status = done[1] if done[0] else os.waitpid(pid, 0)[1]
        log.seek(0)
        return log.read(), os.waitstatus_to_exitcode(status)


def _be_program(program: Path, arguments: list[str], folder: Path, sink: int) -> int:
    """In the fork: look like a fresh `python program.py` as far as a program can tell, run it, return its status."""
    import logging
    import warnings

    import torch

    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    sys.stdin = sys.__stdin__ = open(0, closefd=False)
    sys.stdout = sys.__stdout__ = open(1, "w", buffering=1, closefd=False)
    sys.stderr = sys.__stderr__ = open(2, "w", buffering=1, closefd=False)
    os.chdir(folder)
    environment = {**launchers.clean_environment(), **_settings(), "MASTER_PORT": str(_free_port())}
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [program.name, *arguments]
    sys.path[0:0] = [str(folder)]
    forget_loggers()
    for handler in list(logging.root.handlers):
        logging.root.removeHandler(handler)
    logging.root.setLevel(logging.WARNING)
    logging.disable(logging.NOTSET)
    warnings.showwarning = _show_warning
    warnings.resetwarnings()
    for category in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
        warnings.simplefilter("ignore", category)
    warnings.filterwarnings("default", category=DeprecationWarning, module="__main__")
    random.seed()
    torch.manual_seed(DEFAULT_SEED)
    torch.set_num_threads(1)
    code = 0
    try:
        runpy.run_path(str(program), run_name="__main__")
    except SystemExit as e:
        if isinstance(e.code, str):
            print(e.code, file=sys.stderr)
        code = e.code if isinstance(e.code, int) else int(e.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _show_warning(message, category, filename, lineno, file=None, line=None) -> None:
    import warnings

    sys.stderr.write(warnings.formatwarning(message, category, filename, lineno, line))


def _forkable(text: str, folder: Path) -> Path | None:
    """The program, when the command is no more than `python name.py arguments` of a program that starts no other."""
    words = shlex.split(text)
    if len(words) < 2 or words[0] != "python" or re.search(r"[|&;<>`$(*?\n]", text):
        return None
    program = folder / words[1]
    if "/" in words[1] or not words[1].endswith(".py") or not program.is_file():
        return None
    source = program.read_text()
    return None if STARTS_PROGRAMS.search(source) else program


def _settings() -> dict[str, str]:
    """Variables on top of a clean environment: the tests' interpreter first on the path, one thread, plain text,
    no name server (torch looks up every address it meets, and a slow answer stalls it)."""
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    return {
        "PATH": path, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": "",
        "NO_COLOR": "1", "TERM": "dumb", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1", "RES_OPTIONS": "attempts:0",
    }


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def _fill(example: Example, folder: Path) -> None:
    for name, text in example.files.items():
        (folder / name).write_text(text)
    for name in ("sub-skills", "scripts"):
        if (example.root / name).exists() and not (folder / name).exists():
            (folder / name).symlink_to(example.root / name)


# Reading


def _options(fence: Fence) -> dict[str, str]:
    options, at = {}, 0
    while at < len(fence.mark):
        match = OPTION.match(fence.mark, at)
        if not match:
            options["unknown"] = fence.mark[at:].strip()
            break
        flag, code, reason = match.groups()
        if flag:
            options[flag] = ""
        elif code is not None:
            options["exit"] = code
        else:
            options["fragment"] = reason
        at = match.end()
    return options


def _name_of(fence: Fence) -> str | None:
    if fence.language == "console":
        return None
    lines = [line for line in fence.text.splitlines() if not line.startswith("#!")]
    match = NAME.match(lines[0]) if lines else None
    return match[1] if match else None


def _commands(fence: Fence) -> list[Command]:
    commands: list[Command] = []
    continued = False
    for number, line in enumerate(fence.text.splitlines()):
        prompt = PROMPT.match(line)
        if continued:
            commands[-1].text += "\n" + line.removeprefix("> ")
        elif prompt:
            host = int(prompt[1][-1]) if prompt[1] else None
            commands.append(Command(prompt[2], fence.line + number, host))
        elif commands:
            commands[-1].expected.append(line)
        continued = (continued or bool(prompt)) and line.endswith("\\")
    return commands


def _below(example: Example, examples: list[Example]) -> list[Example]:
    """Examples whose folder holds this very file."""
    return [e for e in examples if e.page == example.page and e.files.get(example.name) == example.fence.text]


def _mentions(command: str, name: str) -> bool:
    return re.search(rf"(?<![\w./-]){re.escape(name)}(?![\w.-])", command) is not None


def _judge(example: Example, command: Command, output: str, code: int, wanted: int) -> list[str]:
    COUNTS["commands run"] += 1
    COUNTS["programs run"] += any(_mentions(command.text, name) for name in example.files)
    at = f"{example.page}:{command.line}: `{command.text}`"
    if code != wanted:
        return [f"{at} ends with {code}, not {wanted}:\n{output}"]
    difference = differs(command.expected, output, "any-order" in example.options)
    COUNTS["lines of output compared"] += len(command.expected)
    return [f"{at} prints something else than the page shows:\n{difference}"] if difference else []


def _line_pattern(line: str) -> str:
    return r"[^\n]*".join(re.escape(part) for part in line.split("…"))


def _side_by_side(wanted: list[str], actual: list[str]) -> str:
    return "\n    ".join(["  shown:", *wanted]) + "\n" + "\n    ".join(["  printed:", *actual])
