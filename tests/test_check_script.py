"""Promise: check_script.py finds the mistake in a script, at its line and by the right rule, and nothing else."""
from __future__ import annotations

import ast
import cProfile
import importlib
import json
import pstats
import re
import subprocess
import sys
import warnings
from pathlib import Path

import ignite.distributed as idist
import pytest
import torch
from support import BUNDLE, DISTRIBUTED
from support.claims import COUNTS
from support.pages import read_page
from support.readers import check_script as checker
from support.world import run_world, values

SCRIPT = DISTRIBUTED / "scripts" / "check_script.py"
PAGE = Path("sub-skills/distributed/references/rules.md")
SCRIPTS = Path(__file__).parent / "scripts"


def programs(name: str) -> dict[str, tuple[str, dict[str, str]]]:
    """{"name rule": (text, {name of a module beside it: its text})} of a file of programs."""
    found = {}
    for block in re.split(r"^=== ", (SCRIPTS / name).read_text(), flags=re.M)[1:]:
        head, _, rest = block.partition("\n")
        text, *modules = re.split(r"^\+\+\+ ", rest, flags=re.M)
        assert head.strip() not in found, f"two programs are called {head.strip()}"
        found[head.strip()] = text, {m.partition("\n")[0].strip(): m.partition("\n")[2] for m in modules}
    assert found, f"no program in {name}"
    return found


def found_in(folder: Path, text: str, modules: dict[str, str] | None = None, name: str = "train.py",
             whole: bool = False) -> list:
    """[(rule, line), …] of what is found in a program with modules beside it, or in its `whole` folder."""
    for path, source in {name: text, **(modules or {})}.items():
        (folder / path).write_text(source)
    findings, unread, read = checker.check([folder if whole else folder / name], strict=True)
    assert read == (1 + len(modules or {}) if whole else 1) and not unread, unread
    return [(f["rule"], f["line"]) for f in findings]


def test_each_seeded_mistake_is_found_at_its_line_and_nothing_else(tmp_path):
    wrong, rules = [], set()
    for number, (head, (text, modules)) in enumerate(programs("seeded.txt").items()):
        name, rule = head.split()
        line = next(i for t in (text, *modules.values()) for i, row in enumerate(t.splitlines(), 1) if "#!" in row)
        (folder := tmp_path / str(number)).mkdir()
        got = found_in(folder, text, modules, whole="#!" not in text)
        if got != [(rule, line)]:
            wrong.append(f"{name}: {rule} in line {line} is wanted, {got} found")
        rules.add(rule)
        COUNTS["seeded mistakes found"] += got == [(rule, line)]
    assert not wrong, "\n" + "\n".join(wrong)
    untested = set(checker.RULES) - rules - {"one-rank-only-without-call", "spawn-without-args", "run-outside-with",
                                             "result-of-run"}  # whose one form is on the page
    assert not untested, f"no seeded program for {untested}"


def test_nothing_is_found_where_nothing_is_wrong(tmp_path):
    wrong = []
    for number, (name, (text, modules)) in enumerate(programs("clean.txt").items()):
        (folder := tmp_path / str(number)).mkdir()
        got = found_in(folder, text, modules)
        wrong += [f"{name}: {got}"] if got else []
        COUNTS["programs without a mistake checked"] += 1
    assert not wrong, "\n" + "\n".join(wrong)


def test_the_bundles_own_programs_are_clean():
    paths = [BUNDLE / "sub-skills" / room / "assets" for room in ("distributed", "engine", "metrics", "handlers")]
    findings, unread, read = checker.check([p for p in paths if p.is_dir()], strict=True)
    assert read > 1 and not unread
    assert not findings, [(f["file"], f["line"], f["rule"]) for f in findings]


def test_programs_of_the_pages_are_clean(tmp_path):
    """They are complete and right, so nothing may be found in them."""
    wrong, count = [], 0
    for page in (PAGE.parent / "workflows.md", PAGE.parents[1] / "SKILL.md"):
        for entry in read_page(page).entries:
            for fence in entry.fences:
                apart = ("Notebook", "Check a script before it runs")  # there Ignite forks; there the mistake is shown
                if fence.language == "python" and not fence.mark and entry.heading not in apart:
                    count += 1
                    (folder := tmp_path / str(count)).mkdir()
                    got = found_in(folder, fence.text)
                    wrong += [f"{page}:{fence.line}: {got}"] if got else []
    assert count > 10 and not wrong, wrong


@pytest.mark.parametrize("rule", checker.RULES)
def test_wrong_example_of_the_page_is_found_and_right_one_is_not(rule, tmp_path):
    entry = next(e for e in read_page(PAGE).entries if e.heading == rule)
    wrong, right = entry.fences
    assert (wrong.mark, right.mark) == ("wrong", "right"), entry.where
    assert [r for r, _ in found_in(tmp_path, wrong.text)] == [rule], f"{PAGE}:{wrong.line}"
    (tmp_path / "right").mkdir()
    assert found_in(tmp_path / "right", right.text) == [], f"{PAGE}:{right.line}"
    COUNTS["examples of rules checked"] += 2


def test_page_list_and_explanations_are_one_table():
    assert (BUNDLE / PAGE).read_text() == checker.page(), f"{PAGE}: run python tests/render_rules.py"
    listed = [line.split()[0] for line in checker.list_rules().splitlines()]
    assert listed == list(checker.RULES)
    for name, rule in checker.RULES.items():
        text = checker.explain(name)
        assert name in text and checker.plain(rule.why) in text and checker.plain(rule.fix) in text
        assert rule.wrong.strip().splitlines()[-1] in text and rule.right.strip().splitlines()[-1] in text
        assert rule.severity in ("error", "warning")


# What the program knows of the library


def test_signatures_are_those_of_the_library():
    import inspect

    for name, wanted in checker.SIGNATURES.items():
        assert tuple(inspect.signature(getattr(idist, name)).parameters) == wanted, name


def test_collectives_getters_and_loggers_exist():
    import ignite.handlers
    import torch.distributed as dist

    missing = [n for n in checker.IDIST_COLLECTIVES | checker.GETTERS if not hasattr(idist, n)]
    missing += [n for n in checker.TORCH_COLLECTIVES if not hasattr(dist, n)]
    missing += [n for n in checker.LOGGERS if not hasattr(ignite.handlers, n)]
    assert not missing
    assert set(checker.RANK_CALLS) & checker.GETTERS >= {"get_rank", "get_local_rank", "get_world_size"}


def test_reductions_are_those_that_the_library_takes():
    def tried(rank):
        taken = []
        for op in ("SUM", "PRODUCT", "MIN", "MAX", "AND", "OR", "MEAN", "AVG", "sum", "mean", "XOR"):
            try:
                idist.all_reduce(torch.tensor([1]), op=op)
                taken.append(op)
            except ValueError:
                pass
        return taken

    assert values(run_world(2, tried)) == [list(checker.REDUCTIONS)] * 2


def test_a_wrapped_model_has_the_attributes_that_are_let_through():
    def names(rank):
        model = idist.auto_model(torch.nn.Linear(1, 1))
        return [n for n in {*dir(model), *vars(model)} if not n.startswith("_")]

    installed = set(values(run_world(2, names))[0])
    own = {n for n in installed if not n.startswith(("bucket_bytes", "use_side", "forward_", "batched", "skip_",
                                                    "dump_"))}
    assert not own - checker.WRAPPED_HAS, f"would be reported: {own - checker.WRAPPED_HAS}"
    assert not checker.WRAPPED_HAS - installed, f"would be missed: {checker.WRAPPED_HAS - installed}"


def test_old_paths_that_are_reported_warn_or_fail_and_no_others():
    import pkgutil

    import ignite.contrib

    def warns(name):
        for known in [m for m in sys.modules if m == name or m.startswith("ignite.contrib") and m != "ignite.contrib"]:
            sys.modules.pop(known)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            importlib.import_module(name)
        return any("has been moved" in str(w.message) and name.rpartition(".")[2] in str(w.message) for w in caught)

    reported = {f"ignite.contrib.{p}.{n}" for p, names in checker.OLD_MODULES.items() for n in names}
    modules = [m.name for m in pkgutil.walk_packages(ignite.contrib.__path__, "ignite.contrib.")]
    assert {m for m in modules if warns(m)} == reported
    for name in checker.GONE_NAMES:
        module, _, last = name.rpartition(".")
        assert not hasattr(importlib.import_module(module), last), name
    for name in checker.GONE_MODULES:
        with pytest.raises(ImportError):
            importlib.import_module(name)


# How it stands alone


def test_needs_nothing_but_the_standard_library_and_python_39():
    tree = ast.parse(SCRIPT.read_text(), feature_version=(3, 9))
    used = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    used |= {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert used and {u.partition(".")[0] for u in used} <= set(sys.stdlib_module_names)
    assert SCRIPT.read_text().startswith("#!/usr/bin/env python3\n# /// script\n")


def test_program_runs_alone_and_at_once(tmp_path):
    """As its user starts it, without torch: copied elsewhere, isolated from installed packages."""
    copy = tmp_path / "check_script.py"
    copy.write_text(SCRIPT.read_text())
    (tmp_path / "bad.py").write_text(checker.RULES["collective-under-rank-guard"].wrong)
    done = subprocess.run([sys.executable, "-I", "-S", str(copy), "--format", "json", str(tmp_path / "bad.py")],
                          capture_output=True, text=True, timeout=60)
    report = json.loads(done.stdout)
    assert done.returncode == 1 and done.stderr == "" and report["schema"] == "pytorch-ignite-check/1"
    assert [(f["rule"], f["line"]) for f in report["findings"]] == [("collective-under-rank-guard", 6)]


def test_two_thousand_lines_are_read_at_once(tmp_path):
    """Half a second is about 2200 calls of functions a line, at the 9 million a second that Python 3.11 makes; they
    are counted, since a busy machine does not change their number.
    """
    blocks = [text for text, modules in programs("seeded.txt").values() if not modules]
    blocks += [text for text, _ in programs("clean.txt").values()]
    lines = []
    for block in blocks:
        lines += [f"def part_{len(lines)}():", *("    " + row for row in block.splitlines()
                                                 if "from __future__" not in row), "    pass"]
    path = tmp_path / "long.py"
    path.write_text("\n".join(lines) + "\n")
    with cProfile.Profile() as profile:
        findings, unread, read = checker.check([path], strict=True)
    assert len(lines) >= 2000 and read == 1 and not unread and len(findings) > 30
    calls = pstats.Stats(profile).total_calls
    assert len(lines) * 100 < calls < len(lines) * 2200, f"{calls / len(lines):.0f} calls a line"
