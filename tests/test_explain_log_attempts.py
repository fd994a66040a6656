"""Promise: explain_log.py judges the last attempt of a job that was started again, takes a log that breaks off for no
success, and tells who stopped a job."""

from __future__ import annotations

import json
import re

import pytest
from support.explain import LOGS, judged, log, verdict


@pytest.mark.parametrize(
    "first, then", [("torchrun-kill", "torchrun-ok"), ("fork-kill", "fork-ok"), ("fork-raise", "fork-ok")]
)
def test_a_later_attempt_that_ends_well_counts(first, then, tmp_path):
    for before in (log(first), log(first) * 2, log(first) + "trying again\n"):
        found = judged(tmp_path, before + log(then))
        assert (found["outcome"], found["guilty_ranks"], found["victims"]) == ("succeeded", [], []), found
        assert "Before: Rank 1" in found["text"] and found["confidence"] == "medium", found


def test_steps_of_srun(tmp_path):
    """A second srun in the same batch script."""
    found = judged(tmp_path, log("srun-kill") + "attempt 2\n" + log("srun-ok"))
    assert found["outcome"] == "succeeded" and "SIGKILL" in found["text"], found


@pytest.mark.parametrize("first, then, guilty", [
    ("torchrun-kill", "torchrun-exit3", [2]), ("torchrun-raise", "torchrun-segv", [1]),
    ("fork-raise", "fork-exit3", [1]), ("torchrun-ok", "torchrun-kill", [1]), ("fork-ok", "fork-kill", [1]),
])  # fmt: skip
def test_a_later_attempt_that_fails_counts(first, then, guilty, tmp_path):
    found, alone = judged(tmp_path, log(first) + log(then)), verdict(LOGS / f"{then}.log")
    assert (found["outcome"], found["guilty_ranks"]) == ("failed", guilty), found
    assert found["cause"] == alone["cause"], found


def test_what_a_script_says_after_a_failure_is_no_success(tmp_path):
    for name in ("torchrun-raise", "torchrun-kill", "fork-raise", "srun-exit3", "srun-label"):
        for said in ("Job finished at noon\n", "Training finished.\nexit code 0\n", "rank 0: done\nall done\n"):
            assert judged(tmp_path, log(name) + said)["outcome"] == "failed", (name, said)


def test_an_attempt_that_breaks_off_is_unknown(tmp_path):
    half = log("torchrun-ok")[: log("torchrun-ok").index("step 4")].rpartition("\n")[0] + "\n"
    found = judged(tmp_path, log("torchrun-kill") + half)
    assert (found["outcome"], found["guilty_ranks"]) == ("unknown", []), found
    assert "An earlier attempt had failed: Rank 1 ended by SIGKILL" in found["text"], found


def test_an_attempt_of_which_only_the_first_lines_are_there_is_unknown(tmp_path):
    """torchrun says nothing when it starts the ranks again: their first lines come a second time."""
    failed = log("torchrun-kill").split("Traceback (most recent call last):\n  File \"/home/me/venv/bin/torchrun")[0]
    assert "ChildFailedError" not in failed and failed.endswith("bin/python\n")
    first = [f"2026-12-02 10:00:0{r},123 reader[{r}] INFO: opening /data/part{r}.idx\n" for r in (0, 2, 1)]
    later = [re.sub("10:00", "10:07", line) for line in reversed(first)]
    found = judged(tmp_path, "".join(first) + failed + "".join(later))
    assert (found["outcome"], found["guilty_ranks"]) == ("unknown", []), found
    assert "An earlier attempt had failed: Rank 1 ended by SIGKILL" in found["text"], found
    assert judged(tmp_path, "".join(first) + failed)["guilty_ranks"] == [1]


def test_error_files_tell_causes_from_echoes(tmp_path):
    """In the error files of torchrun stands only the last exception of each rank as message, the first in the stack."""
    text, paths = log("torchrun-rescue"), []
    for rank in range(3):
        own = "\n".join(re.findall(rf"(?m)^\[rank{rank}\]: (.*)$", text))
        assert own.count("Traceback") == 2
        path = tmp_path / "attempt_0" / str(rank) / "error.json"
        path.parent.mkdir(parents=True)
        more = {"py_callstack": own, "timestamp": "1796228964"}
        path.write_text(json.dumps({"message": {"message": own.split("\n")[-1], "extraInfo": more}}))
        paths.append(path)
    for given in ([tmp_path], paths, [LOGS / "torchrun-rescue.log", *paths]):
        found = verdict(*given)
        assert (found["guilty_ranks"], found["victims"]) == ([2], [0, 1]), found
        assert "mat1 and mat2" in found["text"] and "In handling that: FileNotFoundError" in found["text"], found


EPOCH = "2026-12-02 02:00:00,000 CIFAR-Training INFO: Epoch[2] Complete. Time taken: 00:00:00.468\n"


@pytest.mark.parametrize("last", [
    EPOCH, EPOCH + "Epoch [3/4]: [5/16]  31%|###1      , loss=2.28\rEpoch [3/4]: [6/16]  38%|###7      , loss=2.28",
    "all steps of the warm-up done\nrank 0: step 7 loss 0.1\n", "Engine run starting with max_epochs=4.\n",
    "training done for epoch 1\nrank 0: iter 12/48 loss 0.5\n",
])  # fmt: skip
def test_a_log_that_breaks_off_is_no_success(last, tmp_path):
    head = "".join(f"rank {r}: step {s} loss 0.5\n" for s in range(5) for r in range(2))
    found = judged(tmp_path, head + last)
    assert (found["outcome"], found["confidence"]) == ("unknown", "low"), found


@pytest.mark.parametrize("last", [
    "finished: 40 iterations", "done after 48 steps", "all done", "Training finished", "exit", "training is over",
    "exit code of validation: 0", "sweep INFO: best trial: lr=0.05 loss=0.1",
])  # fmt: skip
def test_a_last_line_that_says_the_end(last, tmp_path):
    head = "".join(f"rank {r}: step {s} loss 0.5\n" for s in range(5) for r in range(2))
    assert judged(tmp_path, head + f"2026-12-02 02:00:00,000 | 0 | INFO | {last}\n")["outcome"] == "succeeded"


@pytest.mark.parametrize("last", ["starting over", "rank 0: waiting to exit", "rank 1: exit code 3", "cleanup on exit",
                                  "best trial so far: lr=0.05", "best run: 3 so far"])
def test_a_last_line_that_says_no_end(last, tmp_path):
    head = "".join(f"rank {r}: step {s} loss 0.5\n" for s in range(5) for r in range(2))
    assert judged(tmp_path, head + last + "\n")["outcome"] == "unknown"


def test_the_line_of_a_message_is_the_line_where_it_stands():
    found = verdict(LOGS / "torchrun-swallow.log")
    said, = (e for e in found["evidence"] if "could not write the summary" in e["text"])
    assert said["text"] in log("torchrun-swallow").split("\n")[said["line"] - 1]


@pytest.mark.parametrize("number, words", [(2, "Ctrl-C"), (15, "SIGTERM"), (1, "SIGHUP")])
def test_the_signal_is_named(number, words, tmp_path):
    text = log("torchrun-interrupt")
    if number != 2:
        text = re.sub(r"Received 2 death", f"Received {number} death", text)
        text = re.sub(r"got signal: 2", f"got signal: {number}", text).replace("SIGINT", "SIGTERM")
        first, last = text.index("Traceback"), text.rindex("Traceback")
        text = text[:first] + text[last:]  # the ranks, which SIGINT reaches as KeyboardInterrupt, end in silence
    found = judged(tmp_path, text)
    assert words in found["text"] and found["guilty_ranks"] == [], found


def test_a_cancelled_job_has_no_guilty_rank(tmp_path):
    """Nor has it one if the last lines of one rank did not come through."""
    steps = [f"{r}: step {s} loss 0.5\n" for s in range(40) for r in range(3) if r or s < 36]
    end = (
        "slurmstepd-n1: error: *** JOB 12 ON n1 CANCELLED AT 2026-12-02T02:09:12 ***\n"
        "0: slurmstepd-n1: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-12-02T02:09:12 ***\n"
        "srun: error: n1: tasks 0-2: Terminated\n"
    )
    found = judged(tmp_path, "".join(steps) + end)
    assert (found["guilty_ranks"], found["victims"]) == ([], []) and "cancelled" in found["text"], found


def test_an_attempt_that_made_no_group_leaves_the_blame_where_it_was(tmp_path):
    """The ranks that torchrun starts again do not find each other; what ended the attempt before is the cause."""
    first = log("torchrun-raise")
    assert judged(tmp_path, first)["guilty_ranks"] == [1]
    again = "".join(f"[rank0]: {row}\n" for row in (
        "Traceback (most recent call last):", '  File "/home/me/common.py", line 38, in init',
        '  File "/venv/ignite/distributed/utils.py", line 631, in initialize',
        '  File "/venv/torch/distributed/distributed_c10d.py", line 5035, in barrier',
        "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 15000ms "
        "for recv operation to complete"))
    agent = re.search(r"(?m)^.*failed \(exitcode: .*\n", first)[0]
    found = judged(tmp_path, first + again + agent)
    assert found["guilty_ranks"] == [1] and "made no group" in found["text"], found
    assert judged(tmp_path, first + again.replace("in initialize", "in step") + agent)["guilty_ranks"] != [1]


def test_a_restart_that_torchrun_does_not_mention(tmp_path):
    """Its agent reports the rank that failed, gives no table, and the ranks write on: it has started them again."""
    failed = log("torchrun-kill").split("Traceback (most recent call last):\n  File \"/home/me/venv/bin/torchrun")[0]
    resumed = "".join(f"12:00:0{r} rank={r} resumed at epoch 2\n" for r in (2, 0, 1))
    rest = "".join(f"12:00:1{n} rank=0 epoch {n} loss 2.3\n" for n in range(2, 5))
    found = judged(tmp_path, failed + resumed + rest + "12:00:20 rank=0 saved final model, done\n")
    assert found["outcome"] == "succeeded" and "Before: Rank 1 ended by SIGKILL" in found["text"], found
    unnamed = re.sub(r" rank=\d", "", resumed + rest) + "12:00:20 training finished\n"
    assert judged(tmp_path, re.sub(r"(?m)^rank \d: .*\n", "", failed) + unnamed)["outcome"] == "succeeded"
    late = resumed.splitlines(keepends=True)[0]  # of another rank
    assert judged(tmp_path, failed + late)["guilty_ranks"] == [1]
    table = log("torchrun-kill")[len(failed):]
    assert judged(tmp_path, failed + resumed + table)["outcome"] == "failed"


def test_errors_that_ranks_log_after_the_first_has_ended_are_no_end(tmp_path):
    """The first rank is done and takes its store with it: what the others log of that ended nothing, if they say so."""
    done = "0: 12:00:09 r0 INFO training complete, model written to mon.pt\n"
    lost = "".join(f"{r}: {row}\n" for r in (1, 2) for row in (
        f"12:00:10 r{r} ERROR heartbeat to rank 0 failed", "Traceback (most recent call last):",
        '  File "/home/me/job.py", line 22, in heartbeat', '    hb.set("hb", "1")',
        "torch.distributed.DistNetworkError: Broken pipe"))
    bye = "".join(f"{r}: 12:00:15 r{r} INFO buffers flushed, bye\n" for r in (1, 2))
    steps = "".join(f"{r}: 12:00:0{n} r{r} INFO step {n} loss 2.3\n" for n in range(6) for r in range(3))
    assert judged(tmp_path, steps + done + lost + bye)["outcome"] == "succeeded"
    exited = "srun: error: n1: task 1: Exited with exit code 1\n"
    for more in (lost, lost + bye.splitlines(keepends=True)[1], lost + bye + exited):
        assert judged(tmp_path, steps + done + more)["outcome"] != "succeeded", more
