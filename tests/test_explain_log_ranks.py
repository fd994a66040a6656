"""Promise: explain_log.py tells which rank had the error, however the job numbers its ranks, and which errors are those
of no rank."""

from __future__ import annotations

import re

import pytest
from support.explain import LOGS, judged, log, program, verdict


def test_a_number_in_brackets_is_no_shape(tmp_path):
    """Of ranks that count their epochs in brackets the one that is behind did not send another tensor."""
    text = log("fork-lengths")
    assert judged(tmp_path, text)["cause"] == program().IDS["size"]
    text = re.sub(r"samples \((\d),\)", r"epoch [\1] of [9]", text)
    assert "epoch [6]" in text and judged(tmp_path, text)["cause"] != program().IDS["size"]


def test_the_first_exception_of_a_chain_is_the_cause():
    for name in ("fork-rescue", "torchrun-rescue"):
        found = verdict(LOGS / f"{name}.log")
        assert "mat1 and mat2" in found["text"] and "In handling that: FileNotFoundError" in found["text"], found
        assert "victims" in found and 0 in found["victims"]


def test_a_rank_that_never_joined(tmp_path):
    head = "".join(f"rank {r}: starting, world 4\n" for r in (0, 1, 3))
    end = (
        "Traceback (most recent call last):\n"
        '  File "main.py", line 9, in <module>\n    dist.init_process_group("gloo")\n'
        "torch.distributed.DistStoreError: {}\n"
    )
    wait = end.format("wait timeout after 14000ms, keys: /default_pg/0//cpu//0/0")
    clients = end.format("Timed out after 15 seconds waiting for clients. 3/4 clients joined.")
    found = judged(tmp_path, head + wait + clients)
    assert found["guilty_ranks"] == [2] and "rank 2 never joined" in found["text"], found
    found = judged(tmp_path, wait + clients)
    assert found["guilty_ranks"] == [] and found["cause"] == program().IDS["clients"], found
    assert found["confidence"] != "high"


CAUGHT = """Traceback (most recent call last):
  File "fit.py", line 8, in <module>
    x = torch.empty(size, 16)
        ^^^^^^^^^^^^^^^^^^^^^
RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory
[1] step 10/20 y=18
[0] step 10/20 y=18
[0] step 20/20 y=38
[0] Finished training
[1] step 20/20 y=38
[1] Finished training
"""
NOTICED = "mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 6 (Aborted).\n"


def test_a_traceback_that_work_and_its_end_follow_was_printed_and_not_the_end(tmp_path):
    assert judged(tmp_path, CAUGHT)["outcome"] == "succeeded"
    for after in ("saved final metrics\n", "Job finished at noon\n", "all done, exit code 0\nepilogue completed\n"):
        found = judged(tmp_path, CAUGHT[: CAUGHT.index("[1] step 10")] + after)
        assert (found["outcome"], found["guilty_ranks"]) == ("failed", []) and "alloc_cpu" in found["text"], found


def test_mpirun_names_the_rank_that_crashed(tmp_path):
    found = judged(tmp_path, CAUGHT + "double free or corruption (out)\n" + NOTICED)
    assert (found["cause"], found["guilty_ranks"]) == ("a-rank-crashes-in-native-code", [1]), found
    assert "SIGABRT" in found["text"] and found["confidence"] == "high"


def test_an_abort_in_the_middle_of_the_work_is_not_one_at_the_exit(tmp_path):
    """Which the others show: they lose a peer that they need."""
    said = "terminate called without an active exception\n" + NOTICED
    found = judged(tmp_path, CAUGHT + said)
    assert (found["cause"], found["guilty_ranks"], found["confidence"]) == (program().IDS["exit"], [1], "medium"), found
    lost = '[rank0]: Traceback (most recent call last):\n[rank0]:   File "fit.py", line 9, in <module>\n' \
           "[rank0]:     dist.all_reduce(x)\n[rank0]: RuntimeError: [/gloo/pair.cc:537] Connection closed by peer\n"
    found = judged(tmp_path, CAUGHT[: CAUGHT.index("[0] step 20")] + lost + said)
    assert (found["cause"], found["guilty_ranks"]) == ("a-rank-crashes-in-native-code", [1]), found


def test_exit_codes_alone_do_not_tell_why(tmp_path):
    one = "".join(f"srun: error: n{k}: task {k}: Exited with exit code 1\n" for k in range(3))
    many = "srun: error: n[0-1]: tasks 0-3: Exited with exit code 1\n"
    for said in (one, many, one + "srun: Terminating StepId=7.0\n"):
        found = judged(tmp_path, said)
        assert (found["outcome"], found["cause"], found["confidence"]) == ("failed", None, "low"), found
        assert "not in this log" in found["text"]


def test_the_rank_that_a_record_of_logging_names_had_the_error_below_it(tmp_path):
    """What others met too, and got over, did not hold it up."""
    late = "RuntimeError: [/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 1800000ms for recv operation"
    trace = 'Traceback (most recent call last):\n  File "reader.py", line 12, in fill\n    {}\n{}\n'
    lines = [f"2026-11-30 21:26:27,43{rank} r{rank} reader ERROR again\n" + trace.format("f()", "OSError: busy") +
             f"2026-11-30 21:26:28,000 r{rank} INFO step {step}\n" for step, rank in enumerate((0, 2, 1, 3))]
    lines.insert(2, "2026-11-30 21:26:27,500 r2 reader ERROR no more\n" + trace.format("g()", "zlib.error: Error -3"))
    lines += [f"[rank{r}]: Traceback (most recent call last):\n[rank{r}]:   File \"fit.py\", line 3, in <module>\n"
              f"[rank{r}]:     idist.all_reduce(x)\n[rank{r}]: {late}\n" for r in (0, 1, 3)]
    lines[5:5] = [f"2026-11-30 21:27:{n:02},000 r{n % 4} INFO step {n}\n" for n in range(5, 40)]
    found = judged(tmp_path, "world size 4\n" + "".join(lines))
    assert (found["guilty_ranks"], found["cause"]) == ([2], "hangs-after-an-error-on-one-rank"), found
    assert "zlib.error" in found["text"], found


def test_a_helper_that_a_shell_saw_killed_is_no_rank(tmp_path):
    """Nobody says that the ranks ended with 0: only that rank 1 wrote on tells whose process it was."""
    lines = [line for line in log("srun-helper").splitlines(True) if " INFO: " not in line]
    found = judged(tmp_path, "".join(lines))
    assert (found["outcome"], found["guilty_ranks"]) == ("succeeded", []), found
    killed = next(n for n, line in enumerate(lines) if "Killed" in line)
    others = [line for line in lines[killed + 1 :] if not line.startswith("1: ") and "done" not in line]
    found = judged(tmp_path, "".join([*lines[: killed + 1], *others]))
    assert (found["outcome"], found["guilty_ranks"]) == ("failed", [1]), found


@pytest.mark.parametrize("own", [
    r"<\1> ", r"[\1] ", r"(\1) ", r"p\1| ", r"18:51:06 <\1> ", r"[2026-12-02 18:51:06,123] [\1] ",
])  # fmt: skip
def test_ranks_as_programs_number_them(own, tmp_path):
    found = judged(tmp_path, re.sub(r"<(\d)/3> ", own, log("fork-slash")))
    assert found["guilty_ranks"] == [1] and "Its last line" in found["text"], found


@pytest.mark.parametrize("lines, is_label", [
    ("[0] a\n[1] b\n[0] c\n[1] d\n", True), ("[0] a\n[1] b\n[2] c\n[3] d\n[4] e\n", False),
    ("[0] a\n[0] a\n[1] b\n[1] b\n[2] c\n", False), ("[3] a\n[1] b\n[2] c\n[1] d\n", False), ("[0] a\n" * 9, False),
    ("fold_0 a\nfold_1 a\nfold_0 b\nfold_1 b\n", False), ("loss[0] a\nloss[1] a\nloss[0] b\nloss[1] b\n", False),
    ("net.r0 a\nnet.r1 a\nnet.r0 b\nnet.r1 b\n", True),
])  # fmt: skip
def test_what_only_counts_up_is_no_rank(lines, is_label):
    assert bool(program().own_label(lines.encode())) is is_label


def test_the_rank_that_says_goodbye_has_left(tmp_path):
    """Three ranks, one lost a peer: of the two others one had said that it leaves."""
    text = log("fork-exit0").replace("rank 1: step 2", "rank 1: no data for me, bye; step 2")
    lines = [line for line in text.splitlines(True) if not line.startswith("rank 1: ") or "bye" in line]
    found = judged(tmp_path, "".join(lines))
    assert found["guilty_ranks"] == [1], found


@pytest.mark.parametrize("own", [True, False])
def test_a_process_of_multiprocessing_is_a_rank_only_under_spawn_of_torch(own, tmp_path):
    """Rank 2 of torchrun has a process of its own, whose name has the number 1."""
    lines = [
        "Process SpawnProcess-1:\n", "Traceback (most recent call last):\n",
        '  File "/usr/lib/python3.11/multiprocessing/process.py", line 314, in _bootstrap\n    self.run()\n',
        *['  File "/venv/lib/python3.11/site-packages/torch/multiprocessing/spawn.py", line 87, in _wrap\n'] * own,
        '  File "/home/me/job.py", line 9, in load\n    raise ValueError("bad shard")\n', "ValueError: bad shard\n",
    ]  # fmt: skip
    found = judged(tmp_path, "world size 4\n" + "".join(lines))
    assert found["outcome"] == "failed" and found["guilty_ranks"] == ([0] if own else []), found


REPORTS = {
    "Exception occurred during processing of request from ('127.0.0.1', 54838)": "socketserver.py",
    "Task exception was never retrieved\nfuture: <Task finished name='Task-2' coro=<f() done>>": "job.py",
    "--- Logging error ---": "logging/__init__.py",
    "Exception ignored in: <function Table.__del__ at 0x7f>": "job.py",
}


@pytest.mark.parametrize("report", REPORTS)
def test_an_exception_that_python_reports_and_goes_on_is_no_failure(report, tmp_path):
    trace = f'Traceback (most recent call last):\n  File "/x/{REPORTS[report]}", line 9, in f\n    g()\n'
    text = f"world size 2\n{report}\n{trace}ConnectionResetError: [Errno 104] Connection reset by peer\n"
    assert judged(tmp_path, text)["outcome"] == "unknown", text
    assert judged(tmp_path, text.replace(report + "\n", ""))["outcome"] == "failed"
    assert judged(tmp_path, text + "Training finished.\n")["outcome"] == "succeeded"


def test_what_python_ignores_after_the_end_is_no_end(tmp_path):
    """Errors in a __del__ or at exit hide neither that a job ended nor that it broke off."""
    head = "".join(f"rank {r}: step {s} loss 0.5\n" for s in range(5) for r in range(2))
    noise = "Exception ignored in: <function Cache.__del__ at 0x7f>\n" + CAUGHT.split("\n[1]")[0] + "\n"
    for end, outcome in (("model written, all done\n", "succeeded"), ("", "unknown")):
        found = judged(tmp_path, head + end + noise + noise.replace("in:", "in atexit callback:"))
        assert found["outcome"] == outcome, found


def test_an_error_of_the_thread_that_hands_tensors_over_is_nobodys(tmp_path):
    """A worker of a DataLoader was killed, which that thread meets first and the rank after it."""
    head = "".join(f"rank {r}: step {s} loss 0.5\n" for s in range(5) for r in range(2))
    trace = "[rank1]: Traceback (most recent call last):\n"
    thread = trace + '[rank1]:   File "/usr/lib/python3.11/multiprocessing/resource_sharer.py", line 138, in _serve\n' \
        "[rank1]:     with self._listener.accept() as conn:\n[rank1]: ConnectionResetError: [Errno 104] reset\n"
    raised = trace + '[rank1]:   File "/venv/torch/utils/data/dataloader.py", line 1304, in _try_get_data\n' \
        "[rank1]:     raise RuntimeError(\n[rank1]: RuntimeError: DataLoader worker (pid(s) 77) exited unexpectedly\n"
    found = judged(tmp_path, head + thread + raised)
    assert (found["cause"], found["guilty_ranks"]) == ("dataloader-worker-pid--is-killed-by-signal", [1]), found
    assert judged(tmp_path, head + thread)["outcome"] == "unknown"


def test_the_rank_that_passed_over_an_error_of_its_own_is_the_odd_one(tmp_path):
    """gloo ends the rank that gets too many bytes; who skipped a batch is in another collective than the others."""
    text = log("fork-shape")
    assert judged(tmp_path, text)["guilty_ranks"] == []
    skips = "rank 1: WARNING skipping batch 3 of epoch 2: bad shape\n"
    at = text.index("terminate called")
    found = judged(tmp_path, text[:at] + skips + text[at:])
    assert found["guilty_ranks"] == [1] and "skipping batch" in found["text"] and found["confidence"] != "high", found
    alone = re.sub(r"rank [02]: (?:starting, world 3|step \d .*? sum 3)", "", text[:at])  # only rank 1 writes at all
    assert judged(tmp_path, alone + skips + text[at:])["guilty_ranks"] == []
    everyone = "".join(skips.replace("1", str(rank), 1) for rank in range(3))
    assert judged(tmp_path, text[:at] + everyone + text[at:])["guilty_ranks"] == []


def lost(rank, where="backward", kept="Connection closed by peer [127.0.0.1]:22444"):
    """The traceback of a rank that lost a peer in a collective, or gave one up."""
    place = {"backward": '/venv/torch/_tensor.py", line 623, in backward',
             "all_gather": '/venv/ignite/distributed/utils.py", line 380, in all_gather'}[where]
    line = {"backward": "loss.backward()", "all_gather": "idist.all_gather(mine)"}[where]
    return "".join(f"[rank{rank}]: {row}\n" for row in (
        "Traceback (most recent call last):", '  File "/home/me/gan.py", line 43, in step', f"    {line}",
        f'  File "{place}', "    work.wait()",
        f"RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] {kept}"))


def aborted(received, own):
    return ("terminate called after throwing an instance of 'gloo::EnforceNotMet'\n  what():  [enforce fail at "
            f"/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. "
            f"{received} vs {own}. Received data size doesn't match expected size.\n")


def test_the_rank_that_gloo_ends_is_the_odd_one_where_the_others_cannot_differ(tmp_path):
    """Gradients have one shape on all ranks, so a rank that met them with another was elsewhere; in an all_gather the
    rank that is ended may be the neighbour of the odd one."""
    lines = "".join(f"rank {r}: step {s} loss 0.5\n" for s in range(5) for r in range(3))
    found = judged(tmp_path, lines + aborted(428, 8) + lost(1) + lost(2))
    assert found["guilty_ranks"] == [0] and found["confidence"] == "medium", found
    assert "gan.py:43" in found["text"], found
    for unclear in (lost(1, "all_gather") + lost(2, "all_gather"), lost(1)):
        assert judged(tmp_path, lines + aborted(428, 8) + unclear)["guilty_ranks"] == []


def test_the_rank_that_gloo_ends_in_a_collective_of_a_few_bytes_was_not_in_backward(tmp_path):
    """Not all others need to have been heard of: no model has gradients of a few bytes."""
    lines = "".join(f"rank {r}: step {s} loss 0.5\n" for s in range(5) for r in range(4))
    own = "[rank0]: ".join(["", *aborted(428, 8).splitlines(keepends=True)])
    found = judged(tmp_path, lines + own + lost(1) + lost(3))
    assert found["guilty_ranks"] == [0] and found["confidence"] == "medium", found
    large, gathering = own.replace("vs 8", "vs 400"), lost(1, "all_gather")
    for unclear in (large + lost(1) + lost(3), own + lost(1), own + gathering + lost(3)):
        assert judged(tmp_path, lines + unclear)["guilty_ranks"] == [], unclear


@pytest.mark.parametrize("heading", [
    "watchdog pid 4{} rank={}: no step for 20 s, stacks:\n",
    "+ kill -USR1 4{} # rank {}\n", "=== rank {1} (pid 4{0}) ===\n", "$ py-spy dump --pid 4{} # rank {}\n"])
def test_a_stack_is_of_the_rank_that_the_line_before_it_names(heading, tmp_path):
    """As the shell shows it that asked for the stacks; another line of the log before a stack is nobody's heading."""
    begin = "".join(f"12:00:0{r} rank{r} it 20 loss 2.8\n" for r in range(3))
    stacks = "".join(heading.format(r, r) + "Stack (most recent call first):\n" + (
        '  File "/home/me/reader.py", line 17 in lookup\n' if r == 1 else
        '  File "/venv/torch/_tensor.py", line 623 in backward\n  File "/home/me/job.py", line 29 in step\n'
    ) for r in (0, 1, 2))
    end = lost(0, kept="Timed out waiting 15000ms for recv operation to complete")
    found = judged(tmp_path, begin + stacks + end)
    assert found["guilty_ranks"] == [1] and "reader.py:17" in found["text"], found
    for rank in range(3):
        stacks = stacks.replace(heading.format(rank, rank), f"12:00:09 rank {rank} it 40 loss 2.8\n")
    assert judged(tmp_path, begin + stacks + end)["guilty_ranks"] == []


@pytest.mark.parametrize("end", ["gloo ends a rank", "the others give up"])
def test_the_rank_that_alone_said_that_it_stops_is_the_odd_one(end, tmp_path):
    """By labels that the program writes itself; where the others write nothing, the line may stand for all of them."""
    stamp = "2026-12-03 04:41:43,{} [p{}] trainer INFO: {}\n"
    begin = [stamp.format(700 + r, r, "Engine run starting with max_epochs=3.") for r in (1, 2, 0)]
    stop = stamp.format(892, 1, "Terminate signaled. Engine will stop after current iteration is finished.")
    late = "Timed out waiting 15000ms for recv operation to complete"
    tail = aborted(428, 8) + lost(2) if end == "gloo ends a rank" else lost(0, kept=late)
    found = judged(tmp_path, "world size 3\n" + "".join(begin) + stop + tail)
    assert found["guilty_ranks"] == [1] and "Terminate signaled" in str(found), found
    for lines in ([begin[0]], [*begin, stop.replace("[p1]", "[p0]"), stop.replace("[p1]", "[p2]")]):
        assert judged(tmp_path, "world size 3\n" + "".join(lines) + stop + tail)["guilty_ranks"] != [1], lines


def test_the_task_that_srun_had_to_end_is_the_one_that_never_joined(tmp_path):
    """The others gave up waiting and left with an exit code of their own."""
    first = "Traceback (most recent call last):\n  File \"/home/me/fold.py\", line 25, in <module>\n    start()\n"
    text = first + "DistStoreError: Timed out after 16 seconds waiting for clients. 3/4 clients joined.\n"
    ends = [f"srun: error: n1: task {r}: Exited with exit code 1\n" for r in (3, 1, 0)]
    cancelled = "slurmstepd-n1: error: *** STEP 4.0 ON n1 CANCELLED AT 2026-12-03T05:30:52 ***\n"
    killed = "srun: error: n1: task 2: Killed\n"
    found = judged(tmp_path, text + "".join(ends) + cancelled + killed)
    assert (found["outcome"], found["guilty_ranks"]) == ("failed", [2]), found
    assert judged(tmp_path, text + "".join(ends[1:]) + cancelled + killed)["guilty_ranks"] == []


@pytest.mark.parametrize("said", ['{{"ts": 12, "rank": {}, {}}}\n', "{{'ts': 12, 'rank': {}, {}}}\n"])
def test_ranks_and_stops_of_records_in_json(said, tmp_path):
    steps = "".join(said.format(r, f'"epoch": {n}, "loss": 0.{n}') for n in range(1, 7) for r in range(3))
    stop = said.format(2, '"epoch": 6, "event": "early_stop", "best": 0.5')
    lost = "-- Process 1 terminated with the following error:\n" + "".join(f"{row}\n" for row in (
        "Traceback (most recent call last):", '  File "/home/me/speech.py", line 38, in worker', "    loss.backward()",
        '  File "/venv/torch/_tensor.py", line 623, in backward', "    work.wait()",
        "RuntimeError: [/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:921"))
    spawned = "torch.multiprocessing.spawn.ProcessRaisedException: \n\n"
    found = judged(tmp_path, steps + stop + spawned + lost)
    assert (found["outcome"], found["guilty_ranks"]) == ("failed", [2]), found
    key = said.format(2, '"early_stop": 5')
    assert judged(tmp_path, key + steps + spawned + lost)["guilty_ranks"] == []


def test_all_ranks_that_printed_an_error_had_it_though_the_parent_quotes_one(tmp_path):
    text = "AdamW.__init__() got an unexpected keyword argument 'momentum'"
    printed = [f'[rank {r}] failed to build optimizer: TypeError("{text}")\n' for r in (1, 3, 2, 0)]
    begin = "Spawn function '<function training at 0x7f01>' in 4 processes\n"
    quoted = "".join(f"{row}\n" for row in (
        "torch.multiprocessing.spawn.ProcessRaisedException: ", "", "-- Process 3 terminated with the following error:",
        "Traceback (most recent call last):", '  File "/home/me/run.py", line 7, in build', "    return AdamW()",
        f"TypeError: {text}"))
    found = judged(tmp_path, begin + "".join(printed) + quoted)
    assert found["guilty_ranks"] == [0, 1, 2, 3] and found["text"].startswith("All 4 ranks"), found
    assert judged(tmp_path, begin + quoted)["guilty_ranks"] == [3]


def test_an_error_that_was_printed_as_the_last_word_is_a_failure(tmp_path):
    """Though it speaks of an operation to complete; whose it is nobody can tell."""
    steps = "".join(f"12-03 08:08:4{n} chunk {n} done, loss 0.3\n" for n in range(4) for _ in range(4))
    late = "12-03 08:08:49 training failed: [/gloo/pair.cc:129] Timed out waiting 8000ms for {} operation to complete\n"
    for last in (late.format("recv"), late.format("send")):
        found = judged(tmp_path, steps + late.format("recv") + last)
        assert (found["outcome"], found["guilty_ranks"], found["confidence"]) == ("failed", [], "low"), found
    assert judged(tmp_path, steps + late.format("recv") + "12-03 08:09 retried, all done\n")["outcome"] == "succeeded"


def test_a_notice_of_preemption_that_the_work_outlived(tmp_path):
    step = "2026-12-03 08:04:3{} rank 0 INFO step {}/160 loss 0.9\n"
    notice = "".join(f"2026-12-03 08:04:34 rank {r} WARNING SIGUSR1 received (preemption notice)\n" for r in range(3))
    end = "2026-12-03 08:04:41 rank 0 INFO finished 160 steps (1 skipped)\n"
    text = step.format(1, 20) + notice + step.format(5, 80) + step.format(9, 160)
    assert judged(tmp_path, text + end)["outcome"] == "succeeded"
    assert judged(tmp_path, step.format(1, 20) + notice)["outcome"] != "succeeded"


def test_the_rank_that_ends_with_words_of_its_own_held_the_others_up(tmp_path):
    """Where all ranks write the same lines, and one of them another after the last."""
    line = "2026-12-03 08:34:16,8{0}{1} rank{1} INFO: iter {0} mse 0.{0}\n"
    steps = "".join(line.format(n, r) for n in range(1, 8) for r in range(4))
    alone = "2026-12-03 08:34:16,895 rank1 INFO: record index is stale, rescanning\n"
    late = lost(2, kept="Timed out waiting 8000ms for recv operation to complete").replace("[rank2]: ", "")
    end = "torch.multiprocessing.spawn.ProcessRaisedException: \n\n"
    end += "-- Process 2 terminated with the following error:\n" + late
    found = judged(tmp_path, steps + alone + end)
    assert found["guilty_ranks"] == [1] and "rescanning" in found["text"] and found["confidence"] == "medium", found
    for unclear in (steps, alone + steps + alone):
        assert judged(tmp_path, unclear + end)["guilty_ranks"] == [], unclear


def test_the_rank_that_said_that_it_waits_among_stacks_that_name_none(tmp_path):
    steps = "".join(f"[{r}] epoch 0 batch {n}/20 loss 0.9\n" for n in range(5, 20, 5) for r in (0, 2, 1))
    stack = "Timeout (0:00:35)!\nThread 0x00007f{} (most recent call first):\n"
    stack += '  File "/venv/torch/distributed/distributed_c10d.py", line 99 in {}\n'
    stack += '  File "/home/me/uneven.py", line {} in work\n'
    stacks = "".join(stack.format(*of) for of in ((3, "barrier", 30), (4, "all_reduce", 25), (5, "all_reduce", 25)))
    found = judged(tmp_path, steps + "[2] epoch 0 finished, waiting for others\n" + stacks)
    assert found["guilty_ranks"] == [2] and "uneven.py:30" in found["text"], found
    assert judged(tmp_path, steps + stacks)["guilty_ranks"] == []


def test_a_record_that_follows_a_traceback_is_none_of_it(tmp_path):
    """It bears a time, which the line of the exception does not: what it tells of a lost peer is another rank's."""
    first = "".join(f"{row}\n" for row in (
        "2026-12-03 08:40:27,890 r2 Engine ERROR: Current run is terminating due to exception: 17",
        "Traceback (most recent call last):", '  File "/home/me/leaves.py", line 20, in __getitem__',
        "    return NAMES[i]", "KeyError: 17", "2026-12-03 08:40:27,898 r0 leaves INFO: epoch 1 iter 4/32 loss 2.4",
        "2026-12-03 08:40:28,050 r1 Engine ERROR: Current run is terminating due to exception: "
        "[/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:36272"))
    found = judged(tmp_path, "world size 3\n" + first + lost(0) + lost(1))
    assert (found["cause"], found["guilty_ranks"]) == ("a-rank-raises-an-exception", [2]), found
    assert "KeyError: 17" in found["text"], found


@pytest.mark.parametrize("label", ["retrieval.r{}", "INFO    proc{}", "captions[{}]", "asr.worker_{}"])
def test_ranks_by_the_names_of_loggers(label, tmp_path):
    line = "2026-12-03 08:38:07,1{}4 " + label + " INFO: batch {}: gathering embeddings of shape ({}, 16)\n"
    steps = "".join(line.format(n, r, n, 15 if (n, r) == (3, 2) else 16) for n in range(4) for r in (1, 0, 2))
    found = judged(tmp_path, "world size 3\n" + steps + aborted(512, 480))
    assert found["guilty_ranks"] == [2] and "(15, 16)" in found["text"], found


def test_the_last_lines_of_the_file_of_each_rank_tell_which_went_on(tmp_path):
    for r in range(3):
        text = "".join(f"1203 08:32:3{n} I nlp.py:50] epoch 1 batch {n} loss 6.3\n" for n in range(4))
        if r == 1:
            text += "1203 08:32:34 W nlp.py:42] epoch 1 batch 4 skipped: index out of range in self\n"
            text += "1203 08:32:35 I nlp.py:50] epoch 1 batch 5 loss 6.3\n" + aborted(5336, 4)
        else:
            text += lost(r, "all_gather")
        (tmp_path / f"rank_{r}.txt").write_text(text)
    found = verdict(tmp_path)
    assert found["guilty_ranks"] == [1] and "skipped: index out of range" in found["text"], found


def test_who_begins_again_at_a_step_is_not_in_the_middle_of_it(tmp_path):
    begin = "".join(f"INFO:train:rank{r}: restart 1: resuming from last.pt at step 20\n" for r in (1, 0))
    steps = "".join(f"INFO:train:rank0: step {n} loss 0.4\n" for n in (30, 40, 50, 60))
    assert judged(tmp_path, begin + steps + "INFO:train:rank0: training complete: 60 steps\n")["outcome"] == "succeeded"
    assert judged(tmp_path, begin + steps)["outcome"] == "unknown"


def test_the_rank_that_never_introduced_itself_never_joined(tmp_path):
    begin = "".join(f"08:53:10 worker {r} of 5 on gpu-node{r}: joining\n" for r in (0, 2, 1, 4))
    end = "Traceback (most recent call last):\n" + '  File "/home/me/ranks.py", line 5, in <module>\n    start()\n'
    end += "torch.distributed.DistStoreError: Timed out after 13 seconds waiting for clients. 4/5 clients joined.\n"
    assert judged(tmp_path, begin + end)["guilty_ranks"] == [3]
    assert judged(tmp_path, begin.replace("worker", "helper") + end)["guilty_ranks"] == []


def test_the_thread_that_watches_is_not_where_the_rank_stands(tmp_path):
    watches = 'Current thread 0x7f{} (most recent call first):\n  File "/home/me/hang.py", line 10 in watchdog\n\n'
    main = 'Thread 0x8f{} (most recent call first):\n{}  File "/home/me/hang.py", line 22 in <module>\n'
    waits = '  File "/venv/torch/distributed/distributed_c10d.py", line 9 in all_reduce\n'
    reads = '  File "/home/me/hang.py", line 16 in read_pipe\n'
    text = "".join(f"watchdog rank={r}: no step for 20 s, stacks:\n" + watches.format(r) + main.format(
        r, reads if r == 1 else waits) for r in range(3))
    found = judged(tmp_path, text)
    assert found["guilty_ranks"] == [1] and "hang.py:16 in read_pipe" in found["text"], found


def test_who_says_goodbye_after_its_share_has_left(tmp_path):
    steps = "".join(f"(rank {r}) iter {n} samples 9 loss 0.3\n" for n in (6, 12) for r in range(3))
    bye = "(rank 1) end of shard after 12 iters, bye\n"
    end = "torch.multiprocessing.spawn.ProcessRaisedException: \n\n-- Process 2 terminated with the following error:\n"
    end += lost(2, "all_gather").replace("[rank2]: ", "")
    assert judged(tmp_path, steps + bye + end)["guilty_ranks"] == [1]
    assert judged(tmp_path, steps + end)["guilty_ranks"] == []


def test_the_rank_that_is_in_an_evaluator_of_its_own(tmp_path):
    starts = "".join(f"INFO|trainer|r{r}| Engine run starting with max_epochs=5.\n" for r in (2, 0, 1))
    ended = "".join(f"INFO|trainer|r{r}| Epoch[1] Complete. Time taken: 00:00:00.108\n" for r in (1, 2))
    alone = "INFO|evaluator|r0| Engine run starting with max_epochs=1.\n"
    end = "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n"
    end += "  what():  [enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. 12 vs 8.\n"
    end += "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGABRT\n"
    found = judged(tmp_path, starts + ended + alone + end)
    assert found["guilty_ranks"] == [0] and "another engine" in found["text"], found
    for both in (ended.replace("Epoch[1] Complete", "Epoch begins"), ended + alone.replace("r0", "r1")):
        assert judged(tmp_path, starts + both + alone + end)["guilty_ranks"] == []


def test_the_thread_of_a_rank_that_died_and_left_the_rank_waiting(tmp_path):
    died = "Exception in thread reader-r{}:\nTraceback (most recent call last):\n"
    died += '  File "/home/me/stream.py", line 32, in run\n    raise ValueError("crc")\nValueError: crc mismatch\n'
    main = 'Thread 0x8f{} (most recent call first):\n{}  File "/home/me/stream.py", line 90 in <module>\n\n'
    queue = '  File "/usr/lib/python3.11/queue.py", line 171 in get\n  File "/home/me/stream.py", line 47 in __iter__\n'
    waits = '  File "/venv/torch/autograd/graph.py", line 9 in backward\n  File "/home/me/stream.py", line 62 in step\n'
    stacks = "".join("Timeout (0:00:25)!\n" + main.format(n, queue if n == 2 else waits) for n in range(3))
    began = "".join(f"rank {r} of 3 begins\n" for r in range(3))
    found = judged(tmp_path, began + died.format(2) + stacks)
    assert found["guilty_ranks"] == [2] and "stream.py:32 in run" in found["text"], found
    assert judged(tmp_path, began + stacks)["guilty_ranks"] == []


def test_records_in_json_that_speak_of_death(tmp_path):
    killed = '{"rank": %d, "event": "sample", "text": "Out of memory: Killed process 5974 (python3)", "is": "oom"}\n'
    ends = '{"rank": %d, "event": "exit", "code": %d}\n'
    text = "".join(killed % r for r in (1, 0)) + ends % (1, 0) + ends % (0, 0)
    assert judged(tmp_path, text)["outcome"] == "succeeded"
    kernel = killed.replace('"text"', '"message"') % 1
    assert judged(tmp_path, killed % 0 + kernel)["cause"] == "a-rank-is-killed"


def test_a_rank_between_bars_after_the_time(tmp_path):
    steps = "".join(f"13:31:5{n} | r{r} | INFO | step {n} loss 6.2\n" for n in range(4) for r in (0, 2, 1))
    steps += "13:31:58 | r2 | INFO | data exhausted after 4 steps\n13:31:58 | r2 | INFO | done\n"
    found = judged(tmp_path, steps + lost(0, "backward") + lost(1, "backward"))
    assert found["guilty_ranks"] == [2] and found["cause"] == "a-rank-leaves-early", found
