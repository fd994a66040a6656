"""Promise: each name of ignite or torch in a code span exists, each flag that a page gives a program is its own,
and so is each target that it gives to make."""
from __future__ import annotations

import importlib
import re
import shlex
from functools import lru_cache
from pathlib import Path

import pytest
from support import BUNDLE
from support.claims import COUNTS
from support.names import ALIASES, lookup
from support.pages import page_paths, read_page
from support.programs import help_of
from support.releases import Unavailable, release_path, releases
from torch.distributed.run import get_args_parser

PAGES = page_paths()


def takes_options(source: str) -> bool:
    """Whether the file is a program with a command line of its own, or of the module that it builds on."""
    return "__main__" in source and any(word in source for word in ("ArgumentParser", "options(", "smoke_runner"))


PROGRAMS = {p.name: p for pattern in ("sub-skills/*/scripts/*.py", "sub-skills/*/assets/*.py", "scripts/*.py")
            for p in sorted(BUNDLE.glob(pattern)) if takes_options(p.read_text())}
DOTTED = re.compile(r"(?<![\w./-])(?:ignite|idist|torch)(?:\.[A-Za-z_]\w*)+(?![\w/])")
HISTORY = {Path("references/versions.md"), Path("references/legacy-contrib.md")}  # speak of names that are gone
FLAG = re.compile(r"(?<![\w-])--[A-Za-z][\w-]*")
FILE = re.compile(r"\.(?:py|md|toml|cfg|txt|json|log|pt)$")
OTHER_PROGRAMS = {  # flags of programs that are not asked here
    "--local-rank": "what torch.distributed.launch gives to the script",
    "--nodes": "srun, sbatch",
    "--ntasks-per-node": "srun, sbatch",
}
USED: set[str] = set()


def exists(dotted: str) -> bool:
    """The name resolves, even in a module that a function of its name hides, as torch.multiprocessing.spawn."""
    if lookup(dotted) is not None:
        return True
    parts = dotted.split(".")
    parts[:1] = ALIASES.get(parts[0], parts[0]).split(".")
    for i in range(len(parts) - 1, 0, -1):
        try:
            module = importlib.import_module(".".join(parts[:i]))
        except ImportError:
            continue
        return len(parts) == i + 1 and hasattr(module, parts[i])
    return False


@lru_cache(maxsize=None)
def existed(dotted: str) -> bool:
    """Some release of tests/matrix.txt has the module, or a module that speaks of the name."""
    parts, asked = dotted.split("."), 0
    for version in releases():
        try:
            folder = release_path(version)
        except Unavailable:
            continue
        asked += 1
        for i in range(len(parts), 0, -1):
            module = folder.joinpath(*parts[:i])
            file = module.with_suffix(".py") if module.with_suffix(".py").exists() else module / "__init__.py"
            if file.exists():
                if i == len(parts) or (i == len(parts) - 1 and re.search(rf"\b{parts[-1]}\b", file.read_text())):
                    return True
                break
    if asked < 2:
        pytest.skip(f"{dotted} is not in the installed release, and no other one can be had")
    return False


def named(text: str, programs) -> str | None:
    """The program of the bundle that a word of a command line means. Its asset train.py is only meant with its folder,
    since any reader has a train.py."""
    path = Path(text)
    if path.name in programs and ("assets" not in str(programs[path.name]) or path.parent.name == "assets"):
        return path.name
    return None


@lru_cache(maxsize=None)
def flags_of(program: str) -> set[str]:
    """The long options in the program's --help."""
    found = set(FLAG.findall(help_of(PROGRAMS[program])))
    assert "--help" in found, f"{program} --help lists no flag"
    return found


@lru_cache(maxsize=None)
def torchrun_flags() -> set[str]:
    return {flag for action in get_args_parser()._actions for flag in action.option_strings}


def name_faults(path: Path, root: Path = BUNDLE) -> list[str]:
    faults = []
    for entry in read_page(path, root).entries:
        for span in entry.codes:
            text = entry.text[span.start : span.end]
            for name in DOTTED.findall(text):
                COUNTS["names of ignite and torch looked up"] += 1
                if not FILE.search(name) and not exists(name) and not (path in HISTORY and existed(name)):
                    faults.append(f"{path}:{span.line}: `{name}` does not exist in the installed ignite or torch")
    return faults


def commands(entry) -> list[tuple[str, int]]:
    """What an entry shows of command lines: its code spans, and the commands of its console and shell fences."""
    found = [(entry.text[s.start : s.end], s.line) for s in entry.codes]
    for fence in entry.fences:
        if fence.language in ("console", "bash", "sh", "shell"):
            joined, start = "", fence.line
            for number, line in enumerate(fence.text.splitlines()):
                if fence.language == "console" and not joined and not re.match(r"(host\d)?\$ ", line):
                    continue  # output
                start = start if joined else fence.line + number
                joined += line.rstrip("\\") + " "
                if not line.endswith("\\"):
                    found.append((joined, start))
                    joined = ""
    return found


def flag_faults(path: Path, root: Path = BUNDLE, programs=None, flags=flags_of) -> list[str]:
    faults = []
    programs = PROGRAMS if programs is None else programs
    for entry in read_page(path, root).entries:
        for text, line in commands(entry):
            try:
                words = shlex.split(text, comments=True)
            except ValueError:
                words = text.split()
            at = next((i for i, word in enumerate(words) if named(word, programs)), None)
            if at is not None:
                program = named(words[at], programs)
                for word in words[at + 1 :]:
                    for flag in FLAG.findall(word.partition("=")[0]):
                        COUNTS["flags compared with --help"] += 1
                        if flag not in flags(program):
                            faults.append(f"{path}:{line}: {program} has no {flag}; it has {sorted(flags(program))}")
            elif words and FLAG.match(words[0]):  # a flag alone, of whatever program the sentence speaks
                flag = FLAG.match(words[0])[0]
                COUNTS["flags compared with --help"] += 1
                if flag in OTHER_PROGRAMS:
                    USED.add(flag)
                elif not any(flag in known for known in (torchrun_flags(), *map(flags, programs))):
                    faults.append(f"{path}:{line}: neither torchrun nor a program of the bundle has {flag}")
            if words[:1] == ["make"]:
                for target in words[1:]:
                    COUNTS["targets looked up in the Makefile"] += 1
                    if not re.search(rf"^{re.escape(target)}:", (BUNDLE / "Makefile").read_text(), re.M):
                        faults.append(f"{path}:{line}: the Makefile has no target {target}")
            start = next((i for i, word in enumerate(words) if Path(word).name == "torchrun"), None)
            if start is not None:
                rest = words[start + 1 :]
                script = next((i for i, word in enumerate(rest) if word == "--" or word.endswith(".py")), len(rest))
                for flag in (f for w in rest[:script] for f in FLAG.findall(w.partition("=")[0])):
                    COUNTS["flags compared with --help"] += 1
                    if flag not in torchrun_flags():
                        faults.append(f"{path}:{line}: torchrun has no {flag}")
    return faults


@pytest.mark.parametrize("path", PAGES, ids=str)
def test_names_exist(path):
    faults = name_faults(path)
    assert not faults, "\n" + "\n".join(faults)


@pytest.mark.parametrize("path", PAGES, ids=str)
def test_flags_exist(path):
    faults = flag_faults(path)
    assert not faults, "\n" + "\n".join(faults)


def test_something_was_inspected():
    before = COUNTS.copy()
    assert PROGRAMS and PAGES
    for path in PAGES:
        name_faults(path)
        flag_faults(path)
    counted = COUNTS - before
    COUNTS.clear()
    COUNTS.update(before)
    assert counted["names of ignite and torch looked up"] > 50, counted
    assert counted["flags compared with --help"] > 5, counted
    assert set(OTHER_PROGRAMS) == USED, f"no page needs {set(OTHER_PROGRAMS) - USED} any more"


BAD = """# Bad
`idist.all_redcue(1)` `ignite.distribted` `torch.distributed.nothing` `idist.all_reduce` `ignite/distributed/auto.py`
`python tool.py --nope 3` `--lost` `tool.py --fine=3` `--fine` `torchrun --nprocs=2 tool.py`
`make test` `make tests`

```console
$ torchrun --nproc_per_node=2 tool.py --gone
--gone is only output
```
"""


def test_checker_finds_what_is_wrong(tmp_path):
    (tmp_path / "bad.md").write_text(BAD)
    before = COUNTS.copy()
    names = name_faults(Path("bad.md"), tmp_path)
    known = {"--help", "--fine"}
    flags = flag_faults(Path("bad.md"), tmp_path, programs={"tool.py": None}, flags=lambda program: known)
    COUNTS.clear()
    COUNTS.update(before)
    assert [re.search(r"`(.*?)`", f)[1] for f in names] == ["idist.all_redcue", "ignite.distribted",
                                                           "torch.distributed.nothing"], names
    assert "bad.md:4: the Makefile has no target tests" in flags
    assert [(f.split(": ")[0], FLAG.search(f)[0]) for f in flags if FLAG.search(f)] == [
        ("bad.md:3", "--nope"), ("bad.md:3", "--lost"), ("bad.md:3", "--nprocs"), ("bad.md:7", "--gone")], flags


def test_help_is_asked():
    with pytest.raises(KeyError):
        flags_of("no_such_program.py")
    assert "--nproc_per_node" in {f.replace("-", "_").replace("__", "--", 1) for f in torchrun_flags()}
    assert exists("torch.multiprocessing.spawn.ProcessRaisedException")
    assert not exists("torch.multiprocessing.spawn.Nothing") and not exists("idist.nothing")
