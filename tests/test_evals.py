"""Promise: the tasks of evals/ are gradable: each grader passes a right answer, and fails an empty and a wrong one."""
from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from support import BUNDLE
from support.claims import COUNTS

EVALS = BUNDLE / "evals"
ANSWERS = Path(__file__).parent / "eval_answers"
sys.path.insert(0, str(EVALS))
import graders  # noqa: E402
import run as runner  # noqa: E402

TASKS = json.loads((EVALS / "evals.json").read_text())["evals"]
TRIGGERS = json.loads((EVALS / "triggers.json").read_text())
FIELDS = {"id", "name", "room", "kind", "prompt", "expected_output", "files", "assertions"}
WAITS = ("name-frozen", "stop-together", "unhang", "which-rank-hangs")  # untouched, they hang to the deadline


def graded(name: str, folder: Path, *layers: Path) -> str:
    """The grader's verdict on the files of the layers, later ones over earlier ones."""
    folder.mkdir()
    for layer in layers:
        if layer.is_dir():
            shutil.copytree(layer, folder, dirs_exist_ok=True)
    COUNTS["answers to tasks graded"] += 1
    return graders.grade(name, folder)


@pytest.mark.parametrize("task", TASKS, ids=lambda t: t["name"])
def test_grader_tells_right_from_wrong(task, tmp_path):
    name, given = task["name"], EVALS / "files" / task["name"]
    right, wrong = ANSWERS / name / "right", ANSWERS / name / "wrong"
    assert graded(name, tmp_path / "right", given, right) == ""
    assert graded(name, tmp_path / "empty"), "an empty folder passes"
    if name not in WAITS:
        assert graded(name, tmp_path / "nothing done", given), "the files as they were given pass"
    assert graded(name, tmp_path / "wrong", given, wrong), "a wrong answer passes"


def test_tasks_are_enough_and_mostly_doing():
    assert len(TASKS) >= 24 and len({t["name"] for t in TASKS}) == len(TASKS)
    assert {t["name"] for t in TASKS} == set(graders.GRADERS) == {p.name for p in ANSWERS.iterdir()}
    rooms, kinds = Counter(t["room"] for t in TASKS), Counter(t["kind"] for t in TASKS)
    assert set(rooms) == {p.parent.name for p in BUNDLE.glob("sub-skills/*/SKILL.md")} and min(rooms.values()) >= 4
    assert set(kinds) <= {"write", "fix", "diagnose", "ask"} and kinds["ask"] <= len(TASKS) / 10
    COUNTS["tasks with a grader"] += len(TASKS)


@pytest.mark.parametrize("task", TASKS, ids=lambda t: t["name"])
def test_task_is_whole(task):
    assert set(task) == FIELDS and task["assertions"] and task["expected_output"].endswith(".")
    assert task["files"] == sorted(f"evals/files/{task['name']}/{p.name}"
                                   for p in (EVALS / "files" / task["name"]).glob("*.*"))
    named = re.findall(r"\b[\w-]+\.(?:py|json|pt|log)\b", task["prompt"])
    assert named, "the prompt names the file that is looked at"
    hints = re.findall(r"skill|idist\.\w+|SKILL\.md|grader|assert", task["prompt"])
    assert not hints, f"the prompt gives away {hints}"


def test_triggers_are_balanced():
    wanted = Counter(t["should_trigger"] for t in TRIGGERS)
    assert len(TRIGGERS) >= 40 and len({t["query"] for t in TRIGGERS}) == len(TRIGGERS)
    assert abs(wanted[True] - wanted[False]) <= 2, wanted
    near = " ".join(t["query"] for t in TRIGGERS if not t["should_trigger"])
    for word in ("Apache Ignite", "Lightning", "accelerate", "plain PyTorch", "Infinite Red"):
        assert word in near, f"no near miss about {word}"
    COUNTS["trigger queries"] += len(TRIGGERS)


def test_no_file_gives_an_answer_away():
    """What a task hands out has no word about what is wrong with it, but for what its own prompt says."""
    for path in (EVALS / "files").rglob("*.py"):
        text = path.read_text()
        assert not re.search(r"\b(bug|wrong|TODO|FIXME|should be|hangs)\b", text), path


def test_runner_prepares_and_grades(tmp_path, capsys):
    folder = tmp_path / "work"
    assert runner.main(["prepare", "explain-kill", str(folder)]) == 0
    said = capsys.readouterr().out
    assert "job.log" in {p.name for p in folder.iterdir()} and "rank that went first" in said
    assert not list(folder.glob("*right*")) and runner.main(["grade", "explain-kill", str(folder)]) == 1
    shutil.copy(ANSWERS / "explain-kill/right/answer.json", folder)
    capsys.readouterr()
    results = tmp_path / "results.jsonl"
    options = ["--results", str(results), "--condition", "bundle", "--seconds", "61", "--commands", "9"]
    options += ["--tokens", "5100"]
    assert runner.main(["grade", "explain-kill", str(folder), *options]) == 0
    assert runner.main(["prepare", "explain-kill", str(folder)]) == 2, "a folder with files is not written over"
    row = json.loads(results.read_text())
    assert row == {"task": "explain-kill", "room": "distributed", "kind": "diagnose", "condition": "bundle",
                   "done": True, "harmful": False, "why": "", "seconds": 61.0, "commands": 9, "tokens": 5100}


ROWS = [
    {"task": "a", "room": "engine", "kind": "fix", "condition": "none", "done": True, "harmful": False, "why": "",
     "seconds": 100.0, "commands": 10, "tokens": 4000},
    {"task": "b", "room": "engine", "kind": "fix", "condition": "none", "done": False, "harmful": True, "why": "x",
     "seconds": 300.0, "commands": 30, "tokens": 9000},
    {"task": "a", "room": "engine", "kind": "fix", "condition": "bundle", "done": True, "harmful": False, "why": "",
     "seconds": 50.0, "commands": 4, "tokens": 7000},
    {"task": "b", "room": "engine", "kind": "fix", "condition": "bundle", "done": True, "harmful": False, "why": "",
     "seconds": 70.0, "commands": 6, "tokens": 8000},
]


def test_table_is_computed_from_the_rows():
    lines = runner.tables(ROWS)
    assert "| none | 2 | 1 (50 %) | 1 | 100 | 10 | 4000 |" in lines
    assert "| bundle | 2 | 2 (100 %) | 0 | 60 | 5 | 7500 |" in lines
    assert "| a | engine | fix | 1/1 | 1/1 |" in lines and "| b | engine | fix | 0/1 | 1/1 |" in lines
    assert runner.tables(list(reversed(ROWS)))[0] == lines[0]


def test_trigger_scores():
    lines = runner.trigger_table([{"query": "q", "should_trigger": True, "condition": "bundle", "triggered": True},
                                  {"query": "r", "should_trigger": True, "condition": "bundle", "triggered": False},
                                  {"query": "s", "should_trigger": False, "condition": "bundle", "triggered": True}])
    assert "| bundle | 1 of 2 | 1 of 1 |" in lines


def test_a_rank_that_closes_its_output_ends_there(tmp_path):
    """Its fork must not go on as a second grader."""
    (tmp_path / "a.py").write_text("import sys\nsys.stdout.close()\n")
    code = f"import sys; sys.path.insert(0, {str(EVALS)!r}); import grading; from pathlib import Path\n" \
           f"print(grading.alone(Path({str(tmp_path)!r}), 'a.py').code)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_a_file_that_cannot_be_loaded_is_wrong(tmp_path):
    (tmp_path / "total.pt").write_bytes(b"")
    with pytest.raises(graders.Wrong, match="total.pt cannot be loaded"):
        graders.load(tmp_path / "total.pt")


def test_a_comment_on_the_old_home_is_no_import(tmp_path):
    folder = tmp_path / "a"
    shutil.copytree(ANSWERS / "contrib-imports/right", folder)
    (folder / "train.py").write_text("# these were in contrib\n" + (folder / "train.py").read_text())
    assert graders.grade("contrib-imports", folder) == ""


def test_a_signal_may_be_written_as_the_log_does(tmp_path):
    for signal, fine in (("Signal 9 (SIGKILL)", True), (-9, True), ("SIGTERM", False), (19, False)):
        (tmp_path / "answer.json").write_text(json.dumps({"rank": 3, "signal": signal, "victims": [0, 1, 2]}))
        assert (graders.grade("explain-kill", tmp_path) == "") == fine, signal


def test_graders_do_not_share_modules(tmp_path):
    """Two tasks hand out a data.py of their own."""
    for name in ("same-weights", "prepare-once"):
        assert graded(name, tmp_path / name, EVALS / "files" / name, ANSWERS / name / "right") == ""


def test_a_folder_that_does_not_exist_makes_no_row(tmp_path):
    with pytest.raises(SystemExit):
        runner.main(["grade", "explain-kill", str(tmp_path / "typo"), "--results", str(tmp_path / "rows")])
    assert not (tmp_path / "rows").exists()
