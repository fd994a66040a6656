"""Promise: whatever check_script.py is given, it answers in the asked form, with the right code and no traceback."""
from __future__ import annotations

import io
import json
import os
import random
import subprocess
import sys
import tracemalloc
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from support import BUNDLE, DISTRIBUTED
from support.claims import COUNTS
from support.programs import help_of
from support.readers import check_script as checker

SCRIPT = DISTRIBUTED / "scripts" / "check_script.py"
BAD = checker.RULES["collective-under-rank-guard"].wrong
GOOD = checker.RULES["collective-under-rank-guard"].right
NOISE = checker.RULES["contrib-import"].wrong  # a warning


def call(*argv: object) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of the program's main() in this process."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = checker.main([str(a) for a in argv])
    assert "Traceback" not in out.getvalue() + err.getvalue(), err.getvalue()
    return code, out.getvalue(), err.getvalue()


@pytest.fixture
def bad(tmp_path):
    (tmp_path / "bad.py").write_text(BAD)
    return tmp_path / "bad.py"


def test_exit_codes(tmp_path, bad):
    (tmp_path / "good.py").write_text(GOOD)
    assert call(tmp_path / "good.py")[0] == 0
    assert call(bad)[0] == 1
    assert call(tmp_path)[0] == 1
    assert call(tmp_path / "missing.py")[0] == 2
    assert call(tmp_path / "missing.py", tmp_path / "good.py")[0] == 0
    assert call()[0] == 2
    assert call("--select", "no-such-rule", bad)[0] == 2
    assert call("--explain", "no-such-rule")[0] == 2
    assert call("--format", "xml", bad)[0] == 2
    (tmp_path / "empty").mkdir()
    code, _, err = call(tmp_path / "empty")
    assert code == 2 and "no Python file" in err


def test_help_names_purpose_codes_and_three_examples():
    text = help_of(SCRIPT)
    for words in ("exit codes:", "0  nothing found", "1  something found", "2  usage", "examples:", "--list-rules",
                  "--explain", "--select", "--ignore", "--severity", "--format", "--output"):
        assert words in text
    assert text.count("python check_script.py") == 3
    assert call("--list-rules")[1].count("\n") == len(checker.RULES)


def test_text_says_place_rule_reason_fix_and_link(bad):
    code, out, err = call(bad)
    first, why, fix, see, count = out.splitlines()
    assert first == f"{bad}:6:15: error: idist.all_reduce is not reached by every rank [collective-under-rank-guard]"
    assert why.startswith("    why: Ranks pair") and fix.startswith("    fix: Call it on every rank")
    assert see == "    see: references/rules.md#collective-under-rank-guard" and count == "1 finding in 1 file"
    assert err == ""


def test_json_has_what_the_contract_says(bad):
    report = json.loads(call("--format", "json", bad)[1])
    assert report["schema"] == "pytorch-ignite-check/1" and report["unread"] == [] and report["files"] == 1
    (finding,) = report["findings"]
    assert {k: finding[k] for k in ("file", "line", "column", "rule", "severity", "see")} == {
        "file": str(bad), "line": 6, "column": 15, "rule": "collective-under-rank-guard", "severity": "error",
        "see": "references/rules.md#collective-under-rank-guard"}
    assert finding["text"] and finding["fix"] and set(finding) == {
        "file", "line", "column", "rule", "severity", "text", "fix", "see"}


def test_every_link_leads_to_an_entry():
    from support.pages import read_page

    anchors = read_page(Path("sub-skills/distributed/references/rules.md")).anchors
    assert set(checker.RULES) <= anchors


def test_github_annotations_escape_what_must_be(tmp_path):
    odd = tmp_path / "a,b:c%.py"
    odd.write_text(BAD)
    code, out, _ = call("--format", "github", odd)
    assert code == 1 and out.count("\n") == 1
    assert out.startswith(f"::error file={tmp_path}/a%2Cb%3Ac%25.py,line=6,col=15,title=collective-under-rank-guard::")


SARIF = {  # what SARIF 2.1.0 requires, and the types of what it allows, of the parts that are used here
    "log": {"version": str, "$schema": str, "runs": list},
    "run": {"tool": dict, "results": list, "invocations": list, "columnKind": str},
    "result": {"ruleId": str, "ruleIndex": int, "level": str, "message": dict, "locations": list},
    "rule": {"id": str, "shortDescription": dict, "fullDescription": dict, "help": dict, "defaultConfiguration": dict},
}


def shaped(value: dict, kind: str) -> None:
    assert set(value) == set(SARIF[kind]), (kind, set(value) ^ set(SARIF[kind]))
    assert all(isinstance(value[k], t) for k, t in SARIF[kind].items()), kind


def test_sarif_is_of_the_shape_of_2_1_0(tmp_path, bad):
    (tmp_path / "broken.py").write_text("def f(:\n")
    (tmp_path / "ä b.py").write_text(BAD)
    log = json.loads(call("--format", "sarif", tmp_path)[1])
    shaped(log, "log")
    assert log["version"] == "2.1.0" and len(log["runs"]) == 1
    (run,) = log["runs"]
    shaped(run, "run")
    assert run["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints")
    rules = run["tool"]["driver"]["rules"]
    for rule in rules:
        shaped(rule, "rule")
        assert rule["shortDescription"]["text"] and rule["defaultConfiguration"]["level"] in ("error", "warning")
    assert len(run["results"]) == 2
    for result in run["results"]:
        shaped(result, "result")
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"] and result["message"]["text"]
        place = result["locations"][0]["physicalLocation"]
        assert place["region"] == {"startLine": 6, "startColumn": 15}
        uri = place["artifactLocation"]["uri"]
        assert uri.isascii() and " " not in uri
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is True
    (note,) = invocation["toolExecutionNotifications"]
    assert "not checked" in note["message"]["text"] and note["level"] == "warning"


def test_select_ignore_severity_and_output(tmp_path, bad):
    (tmp_path / "noise.py").write_text(NOISE)

    def rules(*argv):
        return [f["rule"] for f in json.loads(call("--format", "json", *argv, tmp_path)[1])["findings"]]

    assert rules() == ["collective-under-rank-guard", "contrib-import"]
    assert rules("--select", "contrib-import") == ["contrib-import"]
    assert rules("--ignore", "contrib-import,no-set-epoch") == ["collective-under-rank-guard"]
    assert rules("--severity", "error") == ["collective-under-rank-guard"]
    assert call("--select", "no-set-epoch", tmp_path)[0] == 0
    assert call("--output", tmp_path / "report.txt", bad)[:2] == (1, "")
    assert "collective-under-rank-guard" in (tmp_path / "report.txt").read_text()
    code, _, err = call("--output", tmp_path / "no" / "folder.txt", bad)
    assert code == 2 and err.count("\n") == 1 and "No such file" in err


@pytest.mark.parametrize(
    "comment, silent",
    [
        ("# idist: ignore[collective-under-rank-guard]", True),
        ("# idist: ignore[contrib-import, collective-under-rank-guard]", True),
        ("# idist: ignore", True),
        ("# idist:ignore[collective-under-rank-guard]  since the world is one", True),
        ("# idist: ignore[contrib-import]", False),
        ("# ignore[collective-under-rank-guard]", False),
    ],
)
def test_a_comment_silences_its_rule(comment, silent, tmp_path):
    line = "print(idist.all_reduce(1))"
    for n, text in enumerate((BAD.replace(line, f"{line}  {comment}"),
                              BAD.replace(f"        {line}", f"        {comment}\n        {line}"))):
        path = tmp_path / f"{n}.py"
        path.write_text(text)
        assert call(path)[0] == (0 if silent else 1), text
    path.write_text(f"{comment.replace('ignore', 'ignore-file', 1)}\n{BAD}")
    assert call(path)[0] == (0 if silent else 1)


def test_what_cannot_be_read_is_named_and_the_rest_goes_on(tmp_path, bad):
    (tmp_path / "broken.py").write_text("import ignite\ndef f(:\n    pass\n")
    (tmp_path / "null.py").write_bytes(b"import ignite\x00\n")
    (tmp_path / "python2.py").write_text("import ignite\nprint 'rank'\n")
    (tmp_path / "cookie.py").write_bytes(b"# coding: no-such-code\nimport ignite\n")
    (tmp_path / "book.ipynb").write_text('{"source": "import ignite"}')
    (tmp_path / "other.ipynb").write_text("{}")
    code, out, err = call("--format", "json", tmp_path)
    report = json.loads(out)
    assert code == 1 and len(report["findings"]) == 1
    unread = {Path(u["file"]).name: u["why"] for u in report["unread"]}
    assert set(unread) == {"broken.py", "null.py", "python2.py", "cookie.py", "book.ipynb"}
    assert "line 2" in unread["broken.py"] and "notebook" in unread["book.ipynb"]
    assert len(err.splitlines()) == 5 and all("not checked" in line for line in err.splitlines())
    assert call(tmp_path / "broken.py")[0] == 2
    for n in range(5):
        (tmp_path / f"book{n}.ipynb").write_text('{"source": "import ignite"}')
    err = call(tmp_path)[2].splitlines()
    assert len(err) == 5 and any("and 5 more: not checked: a notebook" in line for line in err), err


def test_odd_but_right_files_are_read(tmp_path):
    (tmp_path / "bom.py").write_bytes(b"\xef\xbb\xbf" + BAD.encode())
    (tmp_path / "latin.py").write_bytes(b"# coding: latin-1\n# caf\xe9\n" + BAD.encode())
    (tmp_path / "crlf.py").write_bytes(BAD.replace("\n", "\r\n").encode())
    (tmp_path / "escape.py").write_text('x = "\\d"\n' + BAD)
    (tmp_path / "nothing.py").write_text("")
    report = json.loads(call("--format", "json", tmp_path)[1])
    assert report["unread"] == [] and report["files"] == 5
    assert sorted((Path(f["file"]).name, f["line"]) for f in report["findings"]) == [
        ("bom.py", 6), ("crlf.py", 6), ("escape.py", 7), ("latin.py", 8)]


def test_hidden_and_installed_folders_and_loops_are_left_out(tmp_path, bad):
    for name in (".git", "venv", "node_modules", "site-packages", "__pycache__", "mine"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "other.py").write_text(BAD)
    (tmp_path / "mine" / "pyvenv.cfg").write_text("")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "self.py").symlink_to(tmp_path / "self.py")
    os.mkfifo(tmp_path / "pipe.py")
    report = json.loads(call("--format", "json", tmp_path)[1])
    assert [Path(f["file"]).name for f in report["findings"]] == ["bad.py"]
    assert json.loads(call("--format", "json", tmp_path / "venv")[1])["findings"], "a folder that is named is read"
    assert call(tmp_path / "pipe.py")[0] == 2 and call(tmp_path / "self.py")[0] == 2
    assert call(os.devnull)[0] == 2


DEEP = {
    "parentheses": "(" * 150 + "1" + ")" * 150,
    "sum": "+".join(["1"] * 20_000),
    "calls": "f" + "()" * 3_000,
    "attributes": "a" + ".b" * 5_000,
    "lists": "[" * 90 + "]" * 90,
    "lambdas": "lambda: " * 1_000 + "0",
    "not": "not " * 3_000 + "x",
    "conditions": "1 if x else " * 2_000 + "0",
    "dots": "x" + "[0]" * 3_000,
}


@pytest.mark.parametrize("kind", DEEP)
def test_deep_expressions_are_read_or_named(kind, tmp_path):
    path = tmp_path / "deep.py"
    path.write_text(f"import ignite.distributed as idist\nrank = idist.get_rank()\nx = {DEEP[kind]}\nif x: pass\n")
    code, _, err = call(path)
    assert code in (0, 2) and (code == 0) == (err == ""), err
    (tmp_path / "bad.py").write_text(BAD)
    assert call(tmp_path)[0] == 1


def test_what_a_file_multiplies_is_not_worked_out(tmp_path):
    """A condition on the rank is reckoned with while its numbers are small; a file may hold any."""
    path = tmp_path / "big.py"
    path.write_text("import ignite.distributed as idist\n\nif 'a' * 300000000 == 'b' * idist.get_rank():\n"
                    "    idist.barrier()\n")
    tracemalloc.start()
    checker.check([path], strict=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6


def test_deep_statements_are_read_or_named(tmp_path):
    chain = "if rank == 0:\n    pass\n" + "".join(f"elif rank == {n}:\n    f({n})\n" for n in range(1, 1_500))
    nested = "".join("    " * n + "if x:\n" for n in range(90)) + "    " * 90 + "pass\n"
    for n, text in enumerate((chain, nested)):
        path = tmp_path / f"{n}.py"
        path.write_text("import ignite.distributed as idist\nrank = idist.get_rank()\n" + text)
        assert call(path)[0] == 0


def test_large_and_random_files(tmp_path):
    big = tmp_path / "big.py"
    with big.open("wb") as f:
        f.truncate(100_000_000)
    code, _, err = call(big)
    assert code == 2 and "100 MB" in err
    dice = random.Random(1)
    for n in range(40):
        path = tmp_path / f"noise{n}.py"
        path.write_bytes(b"ignite" + dice.randbytes(dice.randrange(2_000)))
        assert call(path)[0] in (0, 1, 2)


def test_mutilated_programs_bring_no_fault_to_light(tmp_path):
    """Lines cut, doubled and swapped at random: what still parses is checked to the end."""
    dice, parsed = random.Random(2), 0
    texts = [t for r in checker.RULES.values() for t in (r.wrong, r.right)]
    path = tmp_path / "p.py"
    for _ in range(250):
        lines = dice.choice(texts).splitlines() + dice.choice(texts).splitlines()
        for _ in range(dice.randrange(1, 6)):
            at, other = dice.randrange(len(lines)), dice.randrange(len(lines))
            what = dice.randrange(4)
            if what == 0 and len(lines) > 3:
                del lines[at]
            elif what == 1:
                lines.insert(at, lines[other])
            elif what == 2:
                lines[at] = lines[at].replace("idist.get_rank()", lines[other].strip().rstrip(":") or "x")
            else:
                lines[at], lines[other] = lines[other], lines[at]
        path.write_text("\n".join(lines))
        _, unread, read = checker.check([path], strict=True)
        parsed += read
    assert parsed > 50
    COUNTS["mutilated programs checked"] += parsed


def test_a_fault_of_the_program_itself_is_one_line(tmp_path, bad, monkeypatch):
    def broken(module, report):
        raise KeyError("oops")

    monkeypatch.setattr(checker, "CHECKS", (broken,))
    code, _, err = call(bad)
    assert code == 1 and "a fault of check_script.py" in err and err.count("\n") == 1


def test_a_reader_that_leaves_early_is_no_error(tmp_path):
    for n in range(400):
        (tmp_path / f"{n:03}.py").write_text(BAD)
    done = subprocess.run(["sh", "-c", f"{sys.executable} {SCRIPT} {tmp_path} | head -1"], capture_output=True,
                          text=True, timeout=120)
    assert done.stdout.count("\n") == 1 and done.stderr == ""


def test_nothing_is_run_or_imported(tmp_path):
    (tmp_path / "helpers.py").write_text("raise SystemExit('imported')\n")
    (tmp_path / "job.py").write_text("import helpers\nopen('left-behind', 'w')\n" + BAD)
    before = set(sys.modules)
    assert call(tmp_path / "job.py")[0] == 1
    assert not {m for m in set(sys.modules) - before if "helpers" in m} and not Path("left-behind").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["helpers.py", "job.py"]


# Without anyone watching


def test_pre_commit_hook_names_the_program_and_runs_it(tmp_path, bad):
    """As pre-commit runs a hook of `language: script`: the entry, relative to the hook's repository, with the files."""
    hooks = (BUNDLE / ".pre-commit-hooks.yaml").read_text()
    fields = dict(line.strip(" -").split(": ", 1) for line in hooks.splitlines() if ": " in line and line[0] != "#")
    assert hooks.count("- id:") == 1 and fields["id"] == "check-ignite-script" and fields["language"] == "script"
    assert fields["types"] == "[python]" and BUNDLE / fields["entry"] == SCRIPT
    assert os.access(SCRIPT, os.X_OK)
    (tmp_path / "good.py").write_text(GOOD)
    done = [subprocess.run([str(BUNDLE / fields["entry"]), *files], cwd=tmp_path, capture_output=True, text=True,
                           timeout=60) for files in (["bad.py", "good.py"], ["good.py"])]
    assert [d.returncode for d in done] == [1, 0] and "bad.py:6:15" in done[0].stdout


def test_ci_example_annotates(tmp_path, bad):
    """The steps of assets/check-script.yml, in a repository that has the program where the file says."""
    text = (DISTRIBUTED / "assets" / "check-script.yml").read_text()
    commands = [line.split("run: ", 1)[1] for line in text.splitlines() if "run: " in line]
    assert len(commands) == 1 and commands[0].split()[:2] == ["python3", "tools/check_script.py"]
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "check_script.py").write_text(SCRIPT.read_text())
    for expected in (1, 0):
        done = subprocess.run(["bash", "-e", "-c", commands[0]], cwd=tmp_path, capture_output=True, text=True,
                              timeout=60)
        assert done.returncode == expected, done
        assert done.stdout.startswith("::error file=bad.py,line=6,col=15,") == bool(expected)
        bad.write_text(GOOD)
