"""Proofs: what ended the job, as logs show it: an exception, a kill, a crash, a rank that left, a stop from outside."""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import ignite.distributed as idist
import torch
import torch.distributed as dist
from ignite.engine import Engine, Events
from ignite.handlers import Checkpoint, DiskSaver
from support import BUNDLE
from support.explain import load
from support.world import run_serial, run_world, values
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, start_processes
from torch.distributed.elastic.multiprocessing.api import _terminate_process_handler
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.utils.data import DataLoader, Dataset

from .troubleshooting_tools import evaluate, memory_helps, notebook, raised, standing, symptom

LOGS = BUNDLE / "tests" / "logs"


def elastic(function, size=2):
    """torchrun's own supervision of forked workers: (its report's text, exit code by rank)."""

    gate = multiprocessing.get_context("fork").Barrier(size)

    def worker(rank):  # a SIGTERM that meets a worker before it runs its function may be lost
        gate.wait(20)
        return function(rank)

    def supervise():
        with tempfile.TemporaryDirectory() as folder:
            context = start_processes(
                name="worker", entrypoint=worker, args={r: (r,) for r in range(size)},
                envs={r: {} for r in range(size)}, logs_specs=DefaultLogsSpecs(log_dir=folder), start_method="fork",
            )  # fmt: skip
            failures = context.wait(timeout=20).failures
            return str(ChildFailedError("job.py", failures)), {r: f.exitcode for r, f in failures.items()}

    out = run_serial(supervise)
    assert out.ok, out
    return out.value


@symptom("what-ended-the-job")
def chapter(entry):
    script = BUNDLE / "sub-skills/distributed/scripts/explain_log.py"
    assert script.exists()
    entry.says(f"Causes that have no text of their own; {script.name} names them.")


@symptom("a-rank-raises-an-exception")
def own_exception(entry):
    def program(rank):
        if rank == 1:
            raise ValueError("the cause")
        idist.all_reduce(1)

    victim, guilty = run_world(2, program)
    message = raised(victim, "RuntimeError").replace("reset by peer", "closed by peer")
    assert guilty.error == "ValueError" and "Connection closed by peer" in message
    entry.says(
        "one rank's traceback is the cause; what the others say after it, Connection closed by peer, is its echo.",
        "is about something else than a connection or a timeout",
    )

    def fails(rank):
        if rank == 0:
            os._exit(1)
        signal.pause()

    report, codes = elastic(fails)
    title = re.search(r"Root Cause \(first observed failure\)", report)[0]
    assert list(codes)[0] == 0 and re.search(rf"{re.escape(title)}:\s+\[0\]:.*?rank +: 0 ", report, re.S)
    entry.says(f"Launchers can show the echo first: torchrun's {title} is the process that ended first,")

    def training(local_rank):
        if local_rank == 1:
            raise ValueError("the cause")
        idist.all_reduce(1)

    def spawn():
        notebook()
        idist.spawn("gloo", training, args=(), nproc_per_node=2)

    shown = raised(run_serial(spawn), "ProcessRaisedException")
    assert len(re.findall(r"-- Process \d terminated with the following error", shown)) == 1
    entry.says("and idist.spawn shows one traceback, of whichever child it looked at first.")

    def hooked(rank):
        try:
            raise ValueError("the cause")
        except ValueError as e:
            sys.excepthook(type(e), e, e.__traceback__)

    prefix = re.search(r"\[rank1\]:", run_world(2, hooked)[1].output)[0]
    assert values(run_world(2, lambda rank: idist.all_reduce(1))) == [2, 2]  # without the cause of the traceback
    entry.says(f"{prefix} before a line names its rank", "the first traceback by time that is",
               "what that traceback says", "no rank ends before the others")


@symptom("a-rank-is-killed")
def killed(entry):
    def program(rank):
        if rank:
            os.kill(os.getpid(), signal.SIGKILL)
        idist.all_reduce(1)

    victim, guilty = run_world(2, program)
    assert "by peer" in raised(victim, "RuntimeError") and "Traceback" not in guilty.output

    def spawn():
        notebook()
        idist.spawn("gloo", lambda r: r and os.kill(os.getpid(), signal.SIGKILL), args=(), nproc_per_node=2)

    said = re.search(r"terminated with signal \w+", raised(run_serial(spawn), "ProcessExitedException"))[0]
    entry.says(
        f"exit code {guilty.exit_code}, or {said} under spawn: something outside ended the rank, mostly the "
        "kernel for lack of memory. It leaves no traceback; the others lose their peer.",
        'dmesg | grep -i "killed process", and the memory limit of the container or of the job.',
        memory_helps(),
    )
    values(run_world(2, lambda rank: idist.all_reduce(1)))
    entry.says("no rank ends before the others")


@symptom("a-rank-crashes-in-native-code")
def crashed(entry):
    def crash(handler):
        if handler:
            faulthandler.enable(file=open(2, "w", closefd=False))
        else:
            faulthandler.disable()
        ctypes.string_at(0)

    fault, abort = run_serial(lambda: crash(False)), run_serial(lambda: (faulthandler.disable(), os.abort()))
    for out in (fault, abort):
        assert "Python" not in out.output and "line" not in out.output, out
    names = [signal.Signals(-out.exit_code).name for out in (fault, abort)]
    entry.says(
        f"exit code {fault.exit_code} ({names[0]}) or {abort.exit_code} ({names[1]}): code in C or C++ crashed, "
        "and without faulthandler no Python traceback is printed."
    )
    seen = run_serial(lambda: crash(True)).output
    text = re.search(r"Fatal Python error: [\w ]+", seen)[0]
    assert "line" in seen
    entry.says(f"run with python -X faulthandler, which prints {text} and the Python line")
    assert f"in {ctypes.string_at.__name__}" in next(line for line in seen.splitlines() if "File" in line)
    entry.says("what the innermost frame calls, often an extension built for another torch")
    assert run_serial(lambda: ctypes.string_at(b"x")).value == b"x"
    entry.says("the line passes")

    out = run_world(2, lambda rank: (faulthandler.disable(), idist.all_gather(torch.ones(3 - rank, 3))))
    ended = next(o for o in out if o.exit_code == abort.exit_code)
    kind = re.search(r"gloo::\w+", ended.output)[0]
    text = re.search(r"op\.preamble\.length <= op\.nbytes", ended.output)[0]
    entry.says(f"A {ended.exit_code} with {kind} is another case: {text}.")


@symptom("terminate-called-without-an-active-exception")
def aborted_at_exit(entry):
    def threads():
        return {(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()}

    def train():
        model = idist.auto_model(torch.nn.Linear(2, 2))
        trainer = Engine(lambda engine, batch: model(batch).sum().backward())
        trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: trainer.state.epoch)
        trainer.run([torch.ones(1, 2)])
        return model

    def program(rank, collect):
        gc.disable()  # else it depends on when a collection comes
        train()
        if collect:
            gc.collect()
        during = threads()
        idist.finalize()
        return during, threads()

    for collect in (False, True):
        for during, after in values(run_world(2, lambda rank, c=collect: program(rank, c))):
            (name,) = (n for n in during if n.startswith("pt_gloo"))
            assert (name in after) is not collect, (collect, after)
    entry.says(
        f"after idist.finalize() no file /proc/self/task/*/comm says {name}.",
        "let the function that made model and engines return, then gc.collect(), then idist.finalize().",
        "An engine with a handler that names it is a reference cycle, which keeps model and group.",
        "no such thread is left",
    )

    def at_exit(rank, kept, stderr):
        os.dup2(stderr, 2)
        model = train()
        for _ in range(50):
            dist.all_reduce(torch.ones(300_000), async_op=True)
        if kept:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(model))
        del model
        gc.collect()
        print("trained", file=sys.stderr, flush=True)
        idist.finalize()
        ctypes.pythonapi.Py_Exit(0)  # what the end of a script does, and a forked rank of the suite does not

    def run(kept):
        """Exit codes of two ranks that exit while gloo works, and what they said."""
        reader, writer = os.pipe()
        out = run_world(2, lambda rank: at_exit(rank, kept, writer))
        os.close(writer)
        with open(reader) as pipe:
            return [o.exit_code for o in out], pipe.read()

    codes, said = run(kept=False)
    assert codes == [0, 0] and said.count("trained") == 2, (codes, said)
    for _ in range(20):  # whether gloo is still at work when the interpreter ends is chance: mostly it is
        codes, said = run(kept=True)
        if any(codes):
            break
    (code,) = set(codes) - {0}
    assert said.count("trained") == 2
    entry.heading(said)
    entry.says(
        f"a rank ended at its exit with code {code} ({signal.Signals(-code).name}), often after the last line and with "
        "right results: the process group outlived idist.finalize(), and a thread of gloo released the tensor of a "
        "collective while the interpreter was ending.",
        "Rare, and more frequent on a busy machine; what was written before is whole. "
        "Code in C++ of other packages can say the same.",
    )


@symptom("a-rank-leaves-early")
def left(entry):
    victim, guilty = run_world(2, lambda rank: os._exit(0) if rank else idist.all_reduce(1))
    message = raised(victim, "RuntimeError").replace("reset by peer", "closed by peer")
    peer = re.search(r"Connection closed by peer", message)[0]
    assert guilty.exit_code == 0
    entry.says(f"a rank ended while the others went on, and they say {peer}.")
    report, codes = elastic(lambda rank: os._exit(0) if rank else os._exit(1))
    assert list(codes) == [0] and not re.search(r"rank +: 1 ", report)
    entry.says(
        f"With exit code {guilty.exit_code} nothing reports it: torchrun leaves it out of its table of failures "
        "and names a victim."
    )

    def quits(rank):
        if rank:
            os._exit(3)
        signal.pause()

    report, codes = elastic(quits)
    assert codes[1] == 3 and re.search(r"rank +: 1 ", report) and "Traceback" not in report
    entry.says(
        f"With another code, as after sys.exit({codes[1]}), the table names it, without a traceback.",
        "which rank is missing in the table, and its last line: a return, a break, a sys.exit, a shorter loader",
    )

    fix = 'if idist.all_reduce(int(stop), op="MAX"): break'
    loop = compile(f"for step in range(9):\n    stop = rank == 1 and step == 4\n    {fix}", "loop", "exec")

    def together(rank):
        names = {"idist": idist, "rank": rank}
        exec(loop, names)
        return names["step"]

    assert values(run_world(2, together)) == [4, 4]
    entry.says("all ranks leave in the same step")
    entry.says(f"decide on all ranks together: {fix}")


def train_twice():
    """The epochs that train.py says it trained: at first, and in a second process that resumes."""
    train = load(BUNDLE / "sub-skills/distributed/assets/train.py", "train")
    with tempfile.TemporaryDirectory() as folder:
        outputs = []
        for more in (["--epochs=1"], ["--epochs=2", "--resume"]):
            out = run_serial(lambda: train.main([f"--data={folder}", f"--output={folder}", *more]))
            assert out.ok, out
            outputs.append(re.findall(r"epoch (\d+): loss", out.output))
        return outputs


@symptom("the-job-is-stopped-from-outside")
def stopped(entry):
    def ask():
        try:
            _terminate_process_handler(signal.SIGTERM, None)
        except SignalException as e:
            return type(e).__name__

    answer = run_serial(ask).value
    entry.says(
        "no rank failed: Ctrl-C, the time limit of a scheduler, a cancelled or preempted job sent a signal to "
        f"all; torchrun answers with {answer}."
    )

    def job(hangs, limit):
        """A job that a signal ends at its limit: seconds from its last line to the signal, None if it was done."""
        last = [time.monotonic()]

        def work():
            signal.signal(signal.SIGALRM, stop)
            signal.setitimer(signal.ITIMER_REAL, limit)
            for _ in range(3):
                last[0] = time.monotonic()
                time.sleep(10 if hangs else 0.1)

        def stop(number, frame):
            raise InterruptedError(time.monotonic() - last[0])

        return float(out.message) if (out := run_serial(work)).error else None

    assert job(hangs=True, limit=1) > job(hangs=False, limit=0.25)
    entry.says("how long before its end the job wrote its last line: a long silence is a hang that met the limit.")
    assert job(hangs=False, limit=20) is None
    entry.says("Fix more time")
    first, resumed = train_twice()
    assert first == ["1"] and resumed == ["2"]
    entry.says("or checkpoints and a resume, as in train.py.", "the resumed job starts where the last checkpoint was")


@symptom("dataloader-worker-pid--is-killed-by-signal")
def worker_killed(entry):
    class Dies(Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, i):
            os.kill(os.getpid(), signal.SIGKILL)

    def program(rank):
        if rank == 1:
            list(DataLoader(Dies(), num_workers=1))
        idist.all_reduce(1)

    victim, guilty = run_world(2, program)
    assert "by peer" in raised(victim, "RuntimeError")
    text = guilty.message + str(guilty.traceback)
    match = re.search(
        r"DataLoader worker \(pid(?:\(s\))? (\d+)\) (?:is killed by signal: Killed|exited unexpectedly)", text
    )
    assert match, guilty
    entry.heading(f"DataLoader worker (pid {match[1]}) is killed by signal: Killed.")
    entry.says(
        "a process of num_workers was killed, mostly for lack of memory or of shared memory; its rank raises, "
        "the others lose their peer or wait."
    )
    recorded = (LOGS / "torchrun-worker.log").read_text()  # the other outcome of the same race, as it was recorded
    lines = [line for line in recorded.splitlines() if line.startswith("[rank2]:")]
    bare = re.match(r"\[rank2\]: (\w+): .* Connection reset by peer", lines[-1])[1]
    frames = {Path(m[1]).name for line in lines if (m := re.search(r'File "([^"]+)"', line))}
    assert "dataloader.py" in frames
    entry.says(
        f"The error can also be a bare {bare} with dataloader.py among its frames: that looks like an echo and "
        "is none.",
        "df -h /dev/shm",
        'dmesg | grep -i "killed process"',
        "fewer workers, smaller batches, a larger /dev/shm",
    )
    memory_helps()
    assert len(list(DataLoader(range(4), num_workers=1))) == 4
    entry.says("an epoch passes")


@symptom("no-space-left-on-device")
def disk_full(entry):
    def program(rank):
        if rank == 0:
            with open("/dev/full", "w") as f:
                f.write("x" * 100000)
        idist.all_reduce(1)

    guilty, victim = run_world(2, program)
    entry.heading(raised(guilty, "OSError"))
    assert "by peer" in raised(victim, "RuntimeError")
    entry.says(
        "the disk that this rank writes to is full; mostly rank 0 saves, so the others only lose their peer.",
        "df -h, and df -i, which counts files",
    )
    assert Checkpoint({"m": torch.nn.Linear(1, 1)}, lambda *a: None, n_saved=2)._saved == []
    with tempfile.TemporaryDirectory() as room:
        disk = DiskSaver(room, require_empty=False)
        assert run_serial(lambda: Checkpoint({"m": torch.nn.Linear(1, 1)}, disk)(Engine(lambda e, b: None))).ok
        assert os.listdir(room) == ["m_0.pt"] or os.listdir(room) == ["model_0.pt"], os.listdir(room)
    entry.says("make room, or write elsewhere; n_saved= of Checkpoint bounds what is kept", "a checkpoint is written")


@symptom("rank--failed-to-pass-monitoredbarrier-in--ms")
def monitored(entry):
    def waits(everyone):
        def ranks(rank):
            if rank == 0:
                try:
                    dist.monitored_barrier(timeout=timedelta(seconds=1), wait_all_ranks=everyone)
                finally:
                    store.set("over", b"1")
            else:
                store.wait(["over"])
                os._exit(0)

        store = dist.FileStore(tempfile.mktemp(), -1)
        return raised(run_world(3, ranks)[0], "RuntimeError")

    one, all_of_them = waits(False), waits(True)
    entry.heading(one)
    assert re.search(r"Rank \d failed", one) and re.search(r"Ranks 1, 2 failed", all_of_them), (one, all_of_them)
    entry.says(
        "rank 0 waited in dist.monitored_barrier and names a rank that did not come; with wait_all_ranks=True "
        "it names all of them."
    )
    patient = "timeout=timedelta(minutes=10)"
    options = evaluate(f"dict({patient})")
    assert values(run_world(2, lambda rank: dist.monitored_barrier(**options))) == [None, None]
    entry.says("let that rank reach the barrier, or give it the time that it needs", "all ranks pass the barrier")
    entry.says("the last line, or the stack, of the rank that is named")  # rank 1 was in store.wait, not in the barrier
    entry.says(f"give it the time that it needs: {patient}")


@symptom("hangs-with-the-ranks-in-different-places")
def different_places(entry):
    def program(rank):
        if rank == 2:
            idist.broadcast(torch.ones(1), src=2)
            idist.barrier()
        idist.all_reduce(torch.ones(1))

    outcomes = standing(program, 3)
    places = []
    for out in outcomes:
        assert not out.ok, out
        own = re.findall(rf'File "{re.escape(__file__)}", line (\d+), in program', out.traceback + out.stack)
        assert own, out
        places.append(own[-1])
    assert places[0] == places[1] != places[2], places
    entry.says("each rank waits in a collective, but at different lines of your program: most at one, few at another.")
    entry.says(
        "the ranks went different ways, by a condition on the rank or on data of its own, and each waits for "
        "what the others never call."
    )
    fix = 'idist.all_reduce(int(flag), op="MAX")'

    def agrees(rank):
        flag = rank == 2
        return evaluate(fix, flag=flag)

    assert values(run_world(3, agrees)) == [1, 1, 1]
    entry.says("your own lines in the tracebacks or stacks, rank by rank; look at the few first")  # `places` above

    def moved(rank):
        idist.broadcast(torch.ones(1), src=2)  # out of the condition
        if agrees(rank):  # or the same everywhere
            idist.barrier()
        return idist.all_reduce(1)

    assert values(run_world(3, moved)) == [3, 3, 3]
    entry.says("the same collectives on all ranks in the same order: move the call out of the condition, or make the",
               "all ranks pass both lines")
    entry.says(f"make the condition the same everywhere with {fix}")
