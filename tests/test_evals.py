"""Promise: the tasks of evals/ are gradable: each grader passes a right answer, and fails an empty and a wrong one."""
from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from support import BUNDLE
from support.claims import COUNTS

EVALS = BUNDLE / "evals"
ANSWERS = Path(__file__).parent / "eval_answers"
sys.path.insert(0, str(EVALS))
import graders  # noqa: E402
import grading  # noqa: E402
import run as runner  # noqa: E402
from made import MADE, big_log, many_scripts  # noqa: E402

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
    """Beside `right` and `wrong` there may be more of both: right-BARRIER, wrong-NAMES-ALL."""
    name, given = task["name"], EVALS / "files" / task["name"]
    answers = sorted(p for p in (ANSWERS / name).iterdir())
    assert {"right", "wrong"} <= {p.name for p in answers}
    for answer in answers:
        if name in graders.IN_PLACE and answer.name.startswith("right"):
            continue  # asks for what goes on in the folder: a test of its own
        why = graded(name, tmp_path / answer.name, given, answer)
        assert bool(why) == answer.name.startswith("wrong"), f"{answer.name}: {why or 'passes'}"
    assert graded(name, tmp_path / "empty"), "an empty folder passes"
    if name not in WAITS:
        assert graded(name, tmp_path / "nothing done", given), "the files as they were given pass"


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


def test_no_file_gives_an_answer_away(tmp_path):
    """What a task hands out has no word about what is wrong with it, but for what its own prompt says."""
    texts = {path: path.read_text() for path in (EVALS / "files").rglob("*.py")}
    for path, text in {**texts, **many_scripts.files()}.items():
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
    for ended_by, fine in (("Signal 9 (SIGKILL)", True), (-9, True), ("SIGTERM", False), (19, False)):
        (tmp_path / "answer.json").write_text(json.dumps({"rank": 3, "signal": ended_by, "victims": [0, 1, 2]}))
        assert (graders.grade("explain-kill", tmp_path) == "") == fine, ended_by


def test_graders_do_not_share_modules(tmp_path):
    """Two tasks hand out a data.py of their own."""
    for name in ("same-weights", "prepare-once"):
        assert graded(name, tmp_path / name, EVALS / "files" / name, ANSWERS / name / "right") == ""


def test_a_folder_that_does_not_exist_makes_no_row(tmp_path):
    with pytest.raises(SystemExit):
        runner.main(["grade", "explain-kill", str(tmp_path / "typo"), "--results", str(tmp_path / "rows")])
    assert not (tmp_path / "rows").exists()


def test_an_exit_code_is_that_of_the_process(tmp_path):
    """Not 0 or 1 for all of them: a program may end itself, or be ended."""
    for text, code in (("import os; os._exit(7)", 7), ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL),
                       ("raise SystemExit(3)", 3), ("raise SystemExit('no')", 1), ("1 / 0", 1), ("pass", 0),
                       ("import os, sys\nif os.fork() == 0: sys.exit(0)\nos.wait(); sys.exit(4)", 4)):
        (tmp_path / "a.py").write_text(text)
        assert grading.alone(tmp_path, "a.py").code == code, text


def test_what_only_one_rank_is_given(tmp_path):
    (tmp_path / "a.py").write_text("import os; print(os.environ['RANK'], os.environ.get('A'), os.environ.get('B'))")
    outcomes = grading.ranks(2, tmp_path, "a.py", of_rank={1: {"A": "x"}}, B="y")
    assert [o.out for o in outcomes] == ["0 None y\n", "1 x y\n"]


def test_made_files_are_prepared(tmp_path, capsys, monkeypatch):
    """And the same each time."""
    monkeypatch.setitem(MADE, "big-log", lambda folder: big_log.make(folder, size=5_000_000))
    for name in MADE:
        for n in "12":
            assert runner.main(["prepare", name, str(tmp_path / name / n)]) == 0
        one, two = ({p.relative_to(tmp_path / name / n): p.read_bytes() for p in (tmp_path / name / n).rglob("*.*")
                     if p.is_file()} for n in "12")
        assert one == two and one
    assert "some sixty files" in capsys.readouterr().out and len(one) == 64  # with four empty __init__.py


def test_big_log_shows_what_its_grader_asks_for(tmp_path):
    big_log.make(tmp_path, size=7_500_000)
    lines = (tmp_path / "job.log").read_text().splitlines()
    truth = big_log.truth()
    report = [lines[n - 1] for n in truth["lines"]]
    assert f" r{truth['rank']} reader   ERROR" in report[0] and truth["time"] in report[0]
    assert report[-1] == "zlib.error: Error -3 while decompressing data: invalid distances set"
    assert not any("ERROR" in line for line in lines if f" r{truth['rank']} " in line and line != report[0])
    assert {line[24:36] for line in lines[50_000:50_200] if " pretrain" in line} == {
        f"r{rank:02d} pretrain" for rank in range(64)}, "all ranks go on for long"
    retried = [line for line in lines if line.endswith("attempt 1 of 3")]
    for line in retried:  # the rank recovered: what it failed to read is unpacked afterwards
        unpacked = line[24:].replace("ERROR   ", "INFO    ").replace(": attempt 1 of 3", " unpacked,")
        assert any(unpacked in other for other in lines[lines.index(line):]), line
    assert lines.index(retried[0]) < truth["lines"].start < lines.index(retried[-1])
    timed_out = {int(m[1]) for line in lines if (m := re.match(r"\[rank(\d+)\]: RuntimeError: .*Timed out", line))}
    assert timed_out == set(range(64)) - {truth["rank"]}
    blamed = int(re.search(r"Root Cause.*?rank +: (\d+)", "\n".join(lines[-20:]), re.S)[1])
    assert blamed != truth["rank"]
    right = json.loads((ANSWERS / "big-log/right/answer.json").read_text())
    for change, fine in (({"line": truth["lines"][-1]}, True), ({"time": truth["time"]}, True),
                         ({"rank": blamed}, False), ({"line": truth["lines"].start - 1}, False),
                         ({"line": truth["lines"].stop}, False), ({"time": "21:26:29"}, False),
                         ({"cause": "timed out"}, False)):
        (tmp_path / "answer.json").write_text(json.dumps({**right, **change}))
        assert (graders.grade("big-log", tmp_path) == "") == fine, change


def test_a_log_too_big_is_not_copied(tmp_path, monkeypatch):
    monkeypatch.setattr(graders, "TOO_BIG", 10)
    (tmp_path / "job.log").write_text("x" * 11)
    (tmp_path / "answer.json").write_text("{}")
    assert graders.left_out(str(tmp_path), ["job.log", "answer.json", ".git", "__pycache__"]) == {
        "job.log", ".git", "__pycache__"}


def said_by(outcomes) -> list[str]:
    return [line for o in outcomes for line in o.out.splitlines() if " INFO: " not in line]


FILLED_IN = ("train_harbour", "measure_canyon", "tally_meadow")  # one of each kind


def test_scripts_are_guilty_or_right_as_the_grader_says(tmp_path):
    """On two ranks a guilty one hangs, dies or prints other numbers than in one process; the others print the same."""
    many_scripts.make(tmp_path)
    truth = many_scripts.truth()
    guilty = {Path(path).stem for places in truth.values() for path in places if path.startswith("jobs/")}
    written = {p.stem for p in (many_scripts.WRITTEN / "jobs").iterdir()}
    assert len(truth) == len(guilty) == 6 and len(written - guilty) >= 8
    for name in sorted(written) + list(FILLED_IN):
        script = f"jobs/{name}.py"
        alone = grading.alone(tmp_path, script)
        assert alone.code == 0, (name, alone.out)
        pair = grading.ranks(2, tmp_path, script, timeout=3 if name in guilty else 60)
        right = all(o.code == 0 for o in pair) and said_by(pair) == said_by([alone])
        assert right == (name not in guilty), (name, said_by([alone]), said_by(pair))
    COUNTS["programs of many-scripts run on two ranks"] += len(written) + len(FILLED_IN)


def test_many_scripts_may_name_one_that_is_right(tmp_path):
    answer = json.loads((ANSWERS / "many-scripts/right/answer.json").read_text())["mistakes"]
    right = [{"file": "core/saving.py", "line": 16}, {"file": "jobs/walk_chains.py", "line": 29}]
    for mistakes, fine in ((answer + right[:1], True), (answer + right, False), (answer[1:], False),
                           (answer + answer, True), ([{**m, "line": m["line"] + 40} for m in answer], False)):
        (tmp_path / "answer.json").write_text(json.dumps({"mistakes": mistakes}))
        assert (graders.grade("many-scripts", tmp_path) == "") == fine, mistakes


@contextlib.contextmanager
def job_of_eight(folder: Path):
    """The job as the task starts it, once it stands; ended afterwards."""
    start = ["sh", str(folder / "start.sh")]
    subprocess.run(start, check=True, env={**os.environ, "PYTHON": sys.executable}, timeout=20)
    pid = int((folder / "job.pid").read_text())
    try:
        deadline = time.monotonic() + 120
        while {p.read_text().split()[1] for p in (folder / "beats").glob("[0-7]")} != {"125"}:
            assert time.monotonic() < deadline, (folder / "job.log").read_text()
            time.sleep(0.2)
        yield pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def test_job_of_eight_has_to_be_left_as_it_is(tmp_path, capsys):
    folder = tmp_path / "job"
    assert runner.main(["prepare", "job-of-eight", str(folder)]) == 0
    shutil.copy(ANSWERS / "job-of-eight/right/answer.json", folder)
    assert "started 0 times" in graders.grade("job-of-eight", folder)
    with job_of_eight(folder) as pid:
        assert graders.grade("job-of-eight", folder) == ""
        assert "step 120 " in (folder / "job.log").read_text() and "rror" not in (folder / "job.log").read_text()
        ranks = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and int(p.name) != pid
                 and (stat := (p / "stat")).exists() and stat.read_text().rsplit(")", 1)[1].split()[2] == str(pid)]
        os.kill(max(ranks), signal.SIGSTOP)
        assert "was stopped" in graders.grade("job-of-eight", folder)
        os.kill(max(ranks), signal.SIGCONT)
        (folder / "answer.json").write_text(json.dumps({"rank": 0, "file": "job.py", "line": 37}))
        assert "rank 0" in graders.grade("job-of-eight", folder)
        shutil.copy(ANSWERS / "job-of-eight/right/answer.json", folder)
        again = subprocess.run(["sh", str(folder / "start.sh")], capture_output=True, text=True, timeout=20)
        assert again.returncode == 1 and "started before" in again.stderr
        assert graders.grade("job-of-eight", folder) == ""
        with open(folder / "starts.log", "a") as f:
            f.write("again\n")
        assert "started 2 times" in graders.grade("job-of-eight", folder)
        (folder / "starts.log").write_text("once\n")
    assert "does not go on" in graders.grade("job-of-eight", folder)
