"""Promise: explain_log.py names outcome, cause and the ranks at fault of recorded logs of real runs, whatever a
scheduler,
a terminal or a collector of logs did to their lines, and where no log can tell it is not sure."""

from __future__ import annotations

import gzip
import re

import pytest
from support.claims import COUNTS
from support.explain import LOGS, cases, program, verdict

CASES = cases()
RANK = re.compile(r"^(?:\[rank(\d+)\]|rank (\d+):)")


def test_there_is_something_to_explain():
    assert len(CASES) > 40 and all((LOGS / f"{name}.log").stat().st_size for name in CASES)


def judge(name, *paths):
    """Compare the verdict on these files with what is known of the run."""
    *_, outcome, causes, guilty = CASES[name]
    found = verdict(*paths)
    story = f"{name}: {found}"
    assert found["outcome"] == outcome, story
    assert found["cause"] in causes, story
    assert found["guilty_ranks"] == (guilty or []), story
    assert not set(found["victims"]) & set(found["guilty_ranks"]), story
    if guilty is None:
        assert found["confidence"] != "high", story
    COUNTS["logs explained"] += 1
    return found


@pytest.mark.parametrize("name", CASES)
def test_recorded_log_is_explained(name):
    found = judge(name, LOGS / f"{name}.log")
    lines = (LOGS / f"{name}.log").read_text().split("\n")
    for item in found["evidence"]:
        start = re.sub(r"\s+", " ", re.sub(r"^\[rank\d+\]: ", "", item["text"]))[:25]
        near = " ".join(re.sub(r"\s+", " ", line) for line in lines[max(0, item["line"] - 2) : item["line"] + 1])
        assert start in near, f"{name}: line {item['line']} does not read {item['text']!r} but {near!r}"
    assert found["see"] == "" or found["see"].startswith("references/troubleshooting.md#")


def coloured(text):
    return re.sub(r"(?m)^(.+)$", "\x1b[32m\\1\x1b[0m", text)


def windows(text):
    return text.replace("\n", "\r\n")


def stamped(text):
    return re.sub(r"(?m)^", "2026-12-02T10:00:00.123456789Z ", text)


def with_progress_bars(text):
    return re.sub(r"(?m)^(rank \d: step)", "  3%|3   | 1/40\r  5%|5   | 2/40\r\\1", text)


def long_before(text):
    ranks = sorted(set(re.findall(r"(?m)^rank (\d+): start", text)))
    lines = [f"rank {r}: step {step} loss 0.25 sum 3\n" for step in range(-3000, 0) for r in ranks]
    return "".join(lines) + text


WAYS = [coloured, windows, stamped, with_progress_bars, long_before]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_lines_that_were_changed_on_their_way(way, tmp_path):
    for name in CASES:
        path = tmp_path / "job.log"
        path.write_text(way((LOGS / f"{name}.log").read_text()), newline="")
        judge(name, path)


def test_gzip_and_rotation(tmp_path):
    for name in ("torchrun-raise", "torchrun-exit0", "torchrun-slow", "torchrun-ok"):
        text = (LOGS / f"{name}.log").read_bytes()
        third = text.index(b"\n", len(text) // 3) + 1
        folder = tmp_path / name
        folder.mkdir()
        (folder / "job.log.2.gz").write_bytes(gzip.compress(text[:third]))
        (folder / "job.log.1").write_bytes(text[third : third + 500])
        (folder / "job.log").write_bytes(text[third + 500 :])
        judge(name, folder)
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text))
        judge(name, tmp_path / f"{name}.gz")


@pytest.mark.parametrize("naming", ["rank_{}.log", "job-7-{}.out", "{}/stderr.log", "node0/worker.{}.err"])
def test_one_file_a_rank(naming, tmp_path):
    for name in ("torchrun-raise", "torchrun-slow", "torchrun-metric"):
        folder = tmp_path / naming.split("/")[0].format("x") / name
        lines, owner = {}, None
        for line in (LOGS / f"{name}.log").read_text().split("\n"):
            m = RANK.match(line)
            owner = int(m[1] or m[2]) if m else owner
            if m and "rank" in line[:8] and line.count("rank ") < 2:
                lines.setdefault(owner, []).append(
                    re.sub(r"^(\[rank\d+\]: |rank \d+: )", r"\1" if "[" in line[:1] else "", line)
                )
        for rank, own in lines.items():
            path = folder / naming.format(rank)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(own) + "\n")
        judge(name, folder)


def test_folders_of_torchrun():
    tee, redirected = verdict(LOGS / "torchrun-tee"), verdict(LOGS / "torchrun-redirects")
    assert (tee["guilty_ranks"], tee["victims"]) == ([1], [0, 2]) and "KeyError" in tee["text"]
    assert redirected["guilty_ranks"] == [1] and redirected["cause"] == "a-rank-leaves-early"
    assert redirected["confidence"] != "high"


def test_a_log_that_was_cut_is_not_explained(tmp_path):
    """Half a log is no success, and no failure that it does not show."""
    for name in ("torchrun-raise", "torchrun-ok", "fork-kill", "srun-label"):
        text = (LOGS / f"{name}.log").read_text()
        cut = text[: text.index("step 2 loss")]
        (tmp_path / "cut.log").write_text(cut[: cut.rindex("\n") + 1])
        found = verdict(tmp_path / "cut.log")
        assert (found["outcome"], found["cause"], found["guilty_ranks"]) == ("unknown", None, []), (name, found)
        assert "Collect" in found["fix"]


def test_a_restart_that_succeeds(tmp_path):
    """torchrun started the workers again, and the second time they ended well."""
    failing, fine = ((LOGS / f"torchrun-{n}.log").read_text() for n in ("raise", "ok"))
    head = failing[: failing.index("E1202")]
    again = (
        "I1202 01:00:00.0 1 torch/distributed/elastic/agent/server/api.py:1] [default] Worker group FAILED. "
        "2/2 attempts left; will restart worker group\n"
    )
    (tmp_path / "job.log").write_text(head + again + fine)
    found = verdict(tmp_path / "job.log")
    assert found["outcome"] == "succeeded" and "again" in found["text"], found
    (tmp_path / "job.log").write_text(head + again + failing)
    assert verdict(tmp_path / "job.log")["guilty_ranks"] == [1]


def test_exit_codes(tmp_path, capsys):
    main = program().main
    assert main([str(LOGS / "torchrun-raise.log")]) == 0
    assert main([str(LOGS / "torchrun-ok.log")]) == 0
    assert main([str(LOGS / "spawn-cut.log")]) == 1
    assert capsys.readouterr().err == ""
    (tmp_path / "empty").mkdir()
    for wrong in ([], [str(tmp_path / "absent")], [str(tmp_path / "empty")], ["-", "x"], ["--explain", "nonsense"]):
        assert main(wrong) == 2, wrong
        said = capsys.readouterr()
        assert said.out == "" and said.err.count("\n") == 1 and said.err.startswith("explain_log.py: "), said
    for argv, code in ((["--help"], 0), (["--nonsense"], 2), (["--format", "xml"], 2)):
        with pytest.raises(SystemExit) as e:
            main(argv)
        assert e.value.code == code


def test_source_in_a_traceback_is_nothing_that_the_job_said(tmp_path):
    """A rank that fails in the very line that would have said the end has not reached it."""
    text = (
        "rank 0: step 1 loss 0.5\nrank 1: step 1 loss 0.5\n"
        "[rank1]: Traceback (most recent call last):\n"
        '[rank1]:   File "train.py", line 9, in <module>\n'
        '[rank1]:     print("training finished, best " + best, world_size=64)\n'
        "[rank1]:           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
        '[rank1]: TypeError: can only concatenate str (not "float") to str\n'
    )
    for said in (text, text.replace("[rank1]: ", ""), stamped(text)):
        (tmp_path / "job.log").write_text(said)
        found = verdict(tmp_path / "job.log")
        assert found["outcome"] == "failed" and "TypeError" in found["text"], found
        assert found["victims"] in ([0], []), found


def test_who_is_missing_is_read_without_an_exception(tmp_path):
    """What torch logs before it raises, of a log whose exception is lost; and a line that leaves nobody waiting."""
    steps = "".join(f"rank {r}: step {s}\n" for s in range(3) for r in range(3))
    said = "[E1202 01:00:00.0 ProcessGroupGloo.cpp:143] Rank 1 failed to pass monitoredBarrier in 2000 ms\n"
    (tmp_path / "job.log").write_text(steps + said)
    found = verdict(tmp_path / "job.log")
    assert (found["guilty_ranks"], found["victims"]) == ([1], [0, 2]), found
    assert found["cause"] == program().IDS["barrier"] and "2000 ms. Its last line" in found["text"], found
    (tmp_path / "job.log").write_text("world size 2\n[E x.cpp:1] Timeout at collective: [0, 1] never joined\n")
    found = verdict(tmp_path / "job.log")
    assert (found["outcome"], found["guilty_ranks"], found["confidence"]) == ("failed", [], "low"), found


DOG = "[rank{0}]:[E1202 01:00:00.0 ProcessGroupNCCL.cpp:632] [Rank {0}] Watchdog caught collective operation timeout: "
DOG += "WorkNCCL(SeqNum={1}, OpType={2}, NumelIn=1) ran for 600000 milliseconds before timing out.\n"


@pytest.mark.parametrize("others, says", [
    ([(3, 8, "BROADCAST"), (4, 8, "BROADCAST")], "Ranks 3, 4 were in BROADCAST number 8, the others in ALLREDUCE"),
    ([(3, 8, "BROADCAST"), (4, 7, "ALLGATHER")],
     "Ranks 3, 4 were in ALLGATHER number 7 (rank 4) and BROADCAST number 8 (rank 3), the others in ALLREDUCE"),
    ([(3, 8, "BROADCAST")], "Rank 3 was in BROADCAST number 8, the others in ALLREDUCE number 9."),
])  # fmt: skip
def test_ranks_in_other_operations_of_nccl(others, says, tmp_path):
    text = "".join(DOG.format(*work) for work in [(r, 9, "ALLREDUCE") for r in range(3)] + others)
    (tmp_path / "job.log").write_text(text)
    found = verdict(tmp_path / "job.log")
    assert says in found["text"] and found["guilty_ranks"] == [r for r, *_ in others], found
    assert found["victims"] == [0, 1, 2], found


def test_the_page_does_not_overwrite_a_log(tmp_path, capsys):
    text = (LOGS / "torchrun-raise.log").read_text()
    (tmp_path / "job.log").write_text(text)
    for given in (tmp_path / "job.log", tmp_path):
        assert program().main([str(given), "--html", str(tmp_path / "job.log")]) == 2
        assert "overwrite" in capsys.readouterr().err and (tmp_path / "job.log").read_text() == text
