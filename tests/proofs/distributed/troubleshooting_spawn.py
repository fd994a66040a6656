"""Proofs: spawn and notebooks. The parent is a fork that plays a script; its spawned children are real interpreters."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import traceback
import types
from pathlib import Path

import ignite.distributed as idist
import torch
from ignite.distributed.comp_models import native
from support.world import Outcome, run_serial, run_world, values

from .troubleshooting_tools import free_port, memory_helps, notebook, python_c, raised, symptom

GUARD = 'if __name__ == "__main__":'
PROGRAM = """
import ignite.distributed as idist
def training(local_rank): print("ran", local_rank)
START idist.spawn("gloo", training, (), nproc_per_node=1)
"""


def play(text: str, file: str | None = None) -> Outcome:
    """Run the text as the main script of a process; without a file name it came through standard input."""

    def script():
        with tempfile.TemporaryDirectory() as folder:
            os.environ["MASTER_PORT"] = str(free_port())
            path = "<stdin>" if file is None else f"{folder}/{file}"
            if file:
                Path(path).write_text(text)
            main = types.ModuleType("__main__")
            main.__file__, main.__spec__ = path, None
            sys.modules["__main__"] = main
            exec(compile(text, path, "exec"), main.__dict__)

    return run_serial(script, limit=60)


def forked(function, **kwargs) -> Outcome:
    """Run the function on two ranks that idist.spawn forks."""
    return run_serial(lambda: (notebook(), idist.spawn("gloo", function, (), nproc_per_node=2, **kwargs))[1])


@symptom(
    "an-attempt-has-been-made-to-start-a-new-process-before-the-current-process-has-finished-its-bootstrapping-phase"
)
def no_main_guard(entry):
    out = play(PROGRAM.replace("START ", ""), "train.py")
    entry.heading(out.output)
    entry.quotes(raised(out, "ProcessExitedException"))
    entry.says("nproc_per_node in a script without a main guard: each child imports the script and spawns again.")
    code = out.message.split()[-1]
    entry.says(f"The parent ends with process … terminated with exit code {code}.")
    fixed = play(PROGRAM.replace("START", GUARD), "train.py")
    values([fixed])
    assert fixed.output.count("ran") == 1
    entry.says(
        "where idist.Parallel or idist.spawn is called", f"put it under {GUARD}.", "training runs once per process"
    )


@symptom("no-such-file-or-directory-stdin")
def program_on_stdin(entry):
    out = play(PROGRAM.replace("START", GUARD))
    assert out.error == "ProcessExitedException"
    entry.heading(out.output)
    entry.says("the program came through standard input (python - <<EOF), and spawned children cannot read it again")
    fix = 'start_method="fork"'
    fixed = play(PROGRAM.replace("START", GUARD).replace("nproc_per_node=1", f"nproc_per_node=1, {fix}"))
    values([fixed])
    assert "ran 0" in fixed.output
    assert "Traceback" in out.output and "<stdin>" in out.output
    entry.says("the traceback of the child")
    entry.says(f"a file, or {fix} on CPU")
    entry.says("Proof the children start")


@symptom("process--terminated-with-signal-")
def child_killed(entry):
    def training(local_rank):
        signal.signal(signal.SIGTERM, lambda number, frame: (print("got SIGTERM", flush=True), os._exit(0)))
        idist.barrier()
        if local_rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        signal.pause()

    out = forked(training)
    entry.heading(raised(out, "ProcessExitedException"))
    assert "signal SIGKILL" in out.message and "got SIGTERM" in out.output
    values([forked(lambda local_rank: idist.barrier())])  # nothing kills, so the parent returns
    entry.says("Proof the parent returns")
    entry.says(f"{out.error}: a spawned child was killed from outside, with SIGKILL mostly by the kernel for lack "
               "of memory;")
    entry.says("the others were then ended with SIGTERM")
    entry.says('dmesg | grep -i "killed process", and the memory limit of the container.', memory_helps())


@symptom("process--terminated-with-exit-code-")
def child_exited(entry):
    out = forked(lambda local_rank: sys.exit(3))
    entry.heading(raised(out, "ProcessExitedException"))
    assert "exit code 3" in out.message
    entry.says("a child left through sys.exit, or could not even start: its own output, above, has the reason.")
    assert "reason" not in out.message

    def raises(local_rank):
        raise ValueError("the reason")

    assert "ValueError: the reason" in forked(raises).message

    def prints_and_leaves(local_rank):
        try:
            raises(local_rank)
        except ValueError:
            traceback.print_exc()
            sys.exit(3)

    assert "Traceback" in (out := forked(prints_and_leaves)).output and "Traceback" not in out.message
    entry.says("Check the first traceback of the children")
    assert values([forked(lambda local_rank: None)]) == [None]
    entry.says("the parent returns")
    entry.says("raise an exception instead of sys.exit, so that its text reaches the parent")
    entry.says("Fix that; raise an exception")


@symptom("---process--terminated-with-the-following-error")
def child_raised(entry):
    def training(local_rank):
        raise KeyError("the real error")

    out = forked(training)
    entry.heading(raised(out, "ProcessRaisedException"))
    assert out.message.strip().endswith("KeyError: 'the real error'")
    entry.says(f"{out.error}: the traceback that follows is the child's and is the real error.")

    def fixed():
        notebook()
        with idist.Parallel("gloo", nproc_per_node=2) as parallel:
            return parallel.run(lambda local_rank: 7)

    assert values([run_serial(fixed)]) == [None]
    entry.says("run returns; it returns None in any case")
    entry.says("The original type cannot be caught in the parent.")
    entry.says("the last line of that traceback. Fix what it names")


@symptom("cant-pickle-local-object-")
def not_picklable(entry):
    def local(local_rank):
        pass

    for function in (local, lambda local_rank: None):
        entry.heading(raised(run_serial(lambda: idist.spawn("gloo", function, ())), "AttributeError"))
    out = run_serial(lambda: idist.spawn("gloo", print, (threading.Lock(),)))
    entry.quotes(raised(out, "TypeError"))
    entry.says("spawn pickles the function and its arguments, and this is a local function or a lambda.")
    entry.says(f"A lock, an open file or an engine among the arguments gives {out.message}.")
    entry.says("what you pass to run.")
    entry.says("Proof the children start")
    values([forked(local)])  # nothing is pickled under fork; a module-level function is run in no_main_guard
    entry.says("a function at module level that builds loaders, engines and loggers itself; or torchrun")


@symptom("cant-get-attribute--on-module-__main__")
def function_under_guard(entry):
    text = PROGRAM.replace("def training", f"{GUARD}\n  def training").replace("START", GUARD)
    out = play(text, "train.py")
    assert out.error == "ProcessExitedException"
    entry.heading(out.output)
    entry.says(f"it was defined in a notebook cell or under {GUARD}")

    def method():
        native.mp.start_processes = lambda *args, start_method, **kwargs: print(start_method)
        idist.spawn("gloo", print, ())
        notebook()
        idist.spawn("gloo", print, ())

    assert run_serial(method).output.split() == ["spawn", "fork"]
    values([play(PROGRAM.replace("START", GUARD), "train.py")])  # defined at module level of a file
    entry.says("where it is defined", "the children start")
    entry.says("in a notebook keep the start method fork, which Ignite chooses itself under IPython")
    entry.says("the child does not find your function: it was defined", "move it to module level in a file")


@symptom("cannot-re-initialize-cuda-in-forked-subprocess")
def cuda_before_fork(entry):
    def child():
        torch.cuda._is_in_bad_fork = lambda: True  # what a fork of a process that used CUDA reports
        torch.zeros(1).cuda()

    entry.heading(raised(run_serial(child), "RuntimeError"))
    entry.says("fork after CUDA was used in the parent: in a notebook any earlier .cuda().")
    check = "torch.cuda.is_initialized()"
    entry.says(f"{check} before the launch", f"the check says {python_c(f'import torch; print({check})')}.")
    assert run_serial(torch.cuda._is_in_bad_fork).value is False  # a child of a process that did not touch the GPU
    entry.says("restart the kernel and touch the GPU only inside the function", 'in a script drop start_method="fork"')


@symptom("cannot-find-context-for-")
def unknown_start_method(entry):
    entry.heading(raised(run_serial(lambda: idist.spawn("gloo", print, (), start_method="zzz")), "ValueError"))

    def default():
        native.mp.start_processes = lambda *args, start_method, **kwargs: print(start_method)
        idist.spawn("gloo", print, ())

    methods = multiprocessing.get_all_start_methods()
    name = run_serial(default).output.strip()
    assert set(methods) == {"fork", "spawn", "forkserver"}
    values([forked(lambda local_rank: None, start_method="fork")])
    entry.says("the children start")
    entry.says("start_method=.", f"{name} (default), fork or forkserver.")
    assert values(run_world(1, lambda r: r)) == [0]
    entry.says("an unknown start method.")
