#!/usr/bin/env python3
# /// script
# requires-python = ">=3.9"
# dependencies = []
# ///
"""Reads training scripts and says what will go wrong when they run on several processes. Runs and imports nothing.

One question decides most rules: may some rank not get here? For it, a file is read into facts (what each name was
imported as, which function a call means, what a condition is on each of four ranks: two nodes of two processes), then
each function is walked with the condition under which each line is reached. A call that waits for the other ranks and
is reached by some of them only is a finding, also through the program's own functions and modules.

Order of the file: the rules and their examples · names · scopes of a module · the project · values · conditions ·
effects of calls · the walk · rules that need no walk · suppression · reports · command line.
"""
from __future__ import annotations

import argparse
import ast
import difflib
import functools
import io
import json
import operator
import os
import re
import sys
import threading
import time
import tokenize
import warnings
from dataclasses import dataclass, field
from pathlib import Path

SCHEMA = "pytorch-ignite-check/1"
TOOL = "check_script.py"
PAGE = "references/rules.md"
LARGEST = 5_000_000  # bytes; what is larger was not written by hand
SKIPPED_FOLDERS = {"__pycache__", "venv", "env", "node_modules", "site-packages", "build", "dist", "wandb", "mlruns"}

# --- the rules: what is said of a finding, and the examples of references/rules.md, which tests run -----------------


@dataclass
class Rule:
    """One rule. `what` is said of a finding ({name}, {given} filled in), `why` is what happens at run time."""

    severity: str  # "error": hangs, raises or gives a wrong result; "warning": waste or noise
    what: str
    why: str
    fix: str
    wrong: str  # a program that is found; a test runs it and sees `happens`
    happens: str
    right: str  # a program that runs and is not found


HEAD = "import ignite.distributed as idist\n"
COUNTING = HEAD + """import torch


def training(local_rank):
    loader = idist.auto_dataloader(torch.arange(4), batch_size=2, shuffle=False)
    small = 0
    for numbers in loader:
        small += int((numbers < 1).sum())
"""
MAIN = '\n\nif __name__ == "__main__":\n'
RULES = {
    "collective-under-rank-guard": Rule(
        "error", "{name} is not reached by every rank",
        "Ranks pair collectives by their order: the ones that come wait for those that do not, or meet their next one.",
        "Call it on every rank and put only the print, the write or the log under the condition.",
        HEAD + """

def training(local_rank):
    if idist.get_rank() == 0:
        print(idist.all_reduce(1))
""",
        "rank 0 waits in `all_reduce`",
        HEAD + """

def training(local_rank):
    total = idist.all_reduce(1)
    if idist.get_rank() == 0:
        print(total)
"""),
    "collective-in-one-rank-only": Rule(
        "error", "{name} inside a function that one rank runs",
        "`one_rank_only` is a rank guard: the rank inside waits for ranks that never come.",
        "Move it out of the function; if the others shall wait, use `one_rank_only(with_barrier=True)`.",
        HEAD + """

@idist.one_rank_only()
def report():
    print(idist.all_reduce(1))


def training(local_rank):
    report()
""",
        "rank 0 waits in `all_reduce`",
        HEAD + """

@idist.one_rank_only()
def report(total):
    print(total)


def training(local_rank):
    report(idist.all_reduce(1))
"""),
    "collective-in-one-rank-first": Rule(
        "error", "{name} inside a block of one_rank_first",
        "The first rank is alone in the block, the others stand in the barrier before it.",
        "Move it behind the block.",
        HEAD + """

def training(local_rank):
    with idist.one_rank_first():
        idist.all_reduce(1)
""",
        "rank 0 waits in `all_reduce`; rank 1 waits in `barrier`",
        HEAD + """

def training(local_rank):
    with idist.one_rank_first():
        found = 1
    idist.all_reduce(found)
"""),
    "metric-under-rank-guard": Rule(
        "error", "{name} is not reached by every rank",
        "`compute()` of a metric reduces over all ranks.",
        "Compute on every rank, print on one: all hold the same value.",
        HEAD + """from ignite.metrics import Average


def training(local_rank):
    average = Average()
    average.update(1.0)
    if idist.get_rank() == 0:
        print(average.compute())
""",
        "rank 0 waits in `all_reduce`",
        HEAD + """from ignite.metrics import Average


def training(local_rank):
    average = Average()
    average.update(1.0)
    value = average.compute()
    if idist.get_rank() == 0:
        print(value)
"""),
    "engine-run-under-rank-guard": Rule(
        "error", "{name} is not reached by every rank",
        "At the end of a run the metrics of an engine reduce over all ranks.",
        "Run the engine on every rank, with a loader from `auto_dataloader`; print on one.",
        HEAD + """from ignite.engine import Engine
from ignite.metrics import Average


def training(local_rank):
    evaluator = Engine(lambda engine, batch: batch)
    Average().attach(evaluator, "mean")
    if idist.get_rank() == 0:
        evaluator.run([1.0, 2.0])
""",
        "rank 0 waits in `all_reduce`",
        HEAD + """from ignite.engine import Engine
from ignite.metrics import Average


def training(local_rank):
    evaluator = Engine(lambda engine, batch: batch)
    Average().attach(evaluator, "mean")
    state = evaluator.run([1.0, 2.0])
    if idist.get_rank() == 0:
        print(state.metrics)
"""),
    "handler-under-rank-guard": Rule(
        "error", "{name} is registered on some ranks only, and {given}",
        "A metric, an evaluation or a collective in a handler runs where it was attached; those ranks wait for others. "
        "A schedule of the learning rate works there alone, and the models of the ranks drift apart.",
        "Attach it on every rank. `Checkpoint` and `DiskSaver` too: they write on one rank by themselves.",
        HEAD + """from ignite.engine import Engine
from ignite.metrics import RunningAverage


def training(local_rank):
    trainer = Engine(lambda engine, batch: batch)
    if idist.get_rank() == 0:
        RunningAverage(output_transform=lambda x: x).attach(trainer, "loss")
    trainer.run([1.0, 2.0])
""",
        "rank 0 waits in `all_reduce`",
        HEAD + """from ignite.engine import Engine
from ignite.metrics import RunningAverage


def training(local_rank):
    trainer = Engine(lambda engine, batch: batch)
    RunningAverage(output_transform=lambda x: x).attach(trainer, "loss")
    trainer.run([1.0, 2.0])
"""),
    "first-query-under-rank-guard": Rule(
        "error", "{name} is Ignite's first look at a process group that it did not make, on some ranks only",
        "That look is a collective, and the timeout of the group does not end it.",
        "Call `idist.sync()` on every rank right after `init_process_group`, or let `idist.initialize` make the group.",
        """import torch.distributed as dist
import ignite.distributed as idist


def training(local_rank):
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        print(idist.get_world_size())
    dist.barrier()
""",
        "rank 0 waits in `new_group`",
        """import torch.distributed as dist
import ignite.distributed as idist


def training(local_rank):
    dist.init_process_group("gloo")
    idist.sync()
    if dist.get_rank() == 0:
        print(idist.get_world_size())
    dist.barrier()
"""),
    "stop-on-one-rank": Rule(
        "error", "{name} ends the run on some ranks only",
        "The others go on and wait in their next collective, with a wrapped model in the next backward.",
        'Decide together: `if idist.all_reduce(int(stop), op="MAX"): engine.terminate()`, on every rank.',
        HEAD + """from ignite.engine import Engine, Events


def training(local_rank):
    trainer = Engine(lambda engine, batch: idist.all_reduce(batch))

    @trainer.on(Events.ITERATION_COMPLETED(once=2))
    @idist.one_rank_only()
    def stop():
        trainer.terminate()

    trainer.run([1, 2, 3])
""",
        "rank 1 waits in `all_reduce`",
        HEAD + """from ignite.engine import Engine, Events


def training(local_rank):
    trainer = Engine(lambda engine, batch: idist.all_reduce(batch))

    @trainer.on(Events.ITERATION_COMPLETED(once=2))
    def stop():
        trainer.terminate()

    trainer.run([1, 2, 3])
"""),
    "decision-on-local-value": Rule(
        "error", "{name} depends on a value that each rank measures for itself",
        "A loss, an output or a clock differs between ranks: one stops or skips, the others wait for it.",
        'Reduce first: `if idist.all_reduce(int(stop), op="MAX")`, or take the score from a metric of Ignite.',
        HEAD + """from ignite.engine import Engine, Events


def training(local_rank):
    trainer = Engine(lambda engine, batch: idist.all_reduce(batch) * idist.get_rank())

    @trainer.on(Events.ITERATION_COMPLETED)
    def stop(engine):
        if engine.state.output > 3:
            engine.terminate()

    trainer.run([1, 2, 3])
""",
        "rank 0 waits in `all_reduce`",
        HEAD + """from ignite.engine import Engine, Events


def training(local_rank):
    trainer = Engine(lambda engine, batch: idist.all_reduce(batch) * idist.get_rank())

    @trainer.on(Events.ITERATION_COMPLETED)
    def stop(engine):
        if idist.all_reduce(engine.state.output, op="MAX") > 3:
            engine.terminate()

    trainer.run([1, 2, 3])
"""),
    "exception-on-one-rank": Rule(
        "error", "an error around {name} is swallowed on the rank that has it",
        "That rank leaves out a collective and goes on; the others wait, or pair with its next one. "
        "A handler of `EXCEPTION_RAISED` swallows too: the engine then does not raise.",
        "Let the error end the process (torchrun ends the rest), or raise it again.",
        HEAD + """

def training(local_rank):
    for step in range(3):
        try:
            if step == 1 and idist.get_rank() == 0:
                raise ValueError("bad batch")
            idist.all_reduce(step)
        except ValueError as error:
            print("skipped:", error)
    idist.barrier()
""",
        "rank 0 waits in `barrier`; rank 1 waits in `all_reduce`",
        HEAD + """

def training(local_rank):
    for step in range(3):
        try:
            idist.all_reduce(step)
        except ValueError as error:
            print("skipped:", error)
            raise
    idist.barrier()
"""),
    "result-of-one-rank-only": Rule(
        "error", "{name}() returns None on the other ranks, and its result is used on all",
        "`one_rank_only` returns the value on one rank only.",
        "Send it: `idist.broadcast(value, src=0, safe_mode=True)`, or compute it on every rank.",
        HEAD + """

@idist.one_rank_only()
def folder():
    return "run-1"


def training(local_rank):
    path = folder()
    print(path + "/log")
""",
        "rank 0 prints `run-1/log`; rank 1 `TypeError: unsupported operand type(s) for +: 'NoneType' and 'str'`",
        HEAD + """

@idist.one_rank_only()
def folder():
    return "run-1"


def training(local_rank):
    path = idist.broadcast(folder(), src=0, safe_mode=True)
    print(path + "/log")
"""),
    "one-rank-only-without-call": Rule(
        "error", "one_rank_only is used without parentheses",
        "The function is taken for the rank: as a handler it never runs, on any rank and without an error; called "
        "without arguments it raises.",
        "Write `@idist.one_rank_only()`.",
        HEAD + """from ignite.engine import Engine, Events


def training(local_rank):
    trainer = Engine(lambda engine, batch: None)

    @trainer.on(Events.COMPLETED)
    @idist.one_rank_only
    def report(engine):
        print("done")

    trainer.run([0])
""",
        "nothing is printed",
        HEAD + """from ignite.engine import Engine, Events


def training(local_rank):
    trainer = Engine(lambda engine, batch: None)

    @trainer.on(Events.COMPLETED)
    @idist.one_rank_only()
    def report(engine):
        print("done")

    trainer.run([0])
"""),
    "query-before-initialisation": Rule(
        "error", "idist.{name}() is asked before there is a group",
        "No getter reads `RANK` or `WORLD_SIZE`: until the group exists every process is rank 0 of 1.",
        "Ask inside the function that `Parallel.run` calls, or after `idist.initialize`.",
        HEAD + """
rank = idist.get_rank()


def work(local_rank):
    print("rank", rank)
""" + MAIN + """    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(work)
""",
        "rank 0 prints `rank 0`; rank 1 prints `rank 0`",
        HEAD + """

def work(local_rank):
    print("rank", idist.get_rank())
""" + MAIN + """    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(work)
"""),
    "logger-before-initialisation": Rule(
        "warning", "setup_logger is called before there is a group",
        "It silences ranks above 0 only where it can see the rank: called earlier, every rank logs.",
        "Call it inside the function that runs on the ranks, or pass `distributed_rank=`.",
        HEAD + """from ignite.utils import setup_logger

logger = setup_logger("job")


def work(local_rank):
    logger.warning("begin")
""" + MAIN + """    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(work)
""",
        "rank 0 prints `… job WARNING: begin`; rank 1 prints `… job WARNING: begin`",
        HEAD + """from ignite.utils import setup_logger


def work(local_rank):
    setup_logger("job").warning("begin")
""" + MAIN + """    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(work)
"""),
    "two-launchers": Rule(
        "error", "Parallel is given nproc_per_node, and torchrun starts the file ({name})",
        "Each of torchrun's workers starts ranks again, in worlds of their own or in a fight over one port.",
        "Leave out `nproc_per_node` and give it to torchrun; or start the file with plain python.",
        '''"""Start: torchrun --nproc_per_node=2 job.py"""
import ignite.distributed as idist


def work(local_rank):
    print("one of", idist.get_world_size())
''' + MAIN + """    with idist.Parallel(backend="gloo", nproc_per_node=2) as parallel:
        parallel.run(work)
""",
        "rank 0 prints `one of 2`, `one of 2`; rank 1 prints `one of 2`, `one of 2`",
        '''"""Start: torchrun --nproc_per_node=2 job.py"""
import ignite.distributed as idist


def work(local_rank):
    print("one of", idist.get_world_size())
''' + MAIN + """    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(work)
"""),
    "parallel-argument-ignored": Rule(
        "error", "Parallel drops {given} without a word, since there is no nproc_per_node",
        "Only `backend` and `init_method` are used then; a timeout stays 30 minutes.",
        'For a timeout call `idist.initialize("gloo", timeout=timedelta(seconds=60))`; nodes and address come from the '
        "launcher.",
        """from datetime import timedelta
import ignite.distributed as idist
import torch.distributed as dist


def work(local_rank):
    group = dist.distributed_c10d._get_default_group()
    print("timeout", group._get_backend(idist.device()).options._timeout)
""" + MAIN + """    with idist.Parallel(backend="gloo", timeout=timedelta(seconds=60)) as parallel:
        parallel.run(work)
""",
        "rank 0 prints `timeout 0:30:00`",
        """from datetime import timedelta
import ignite.distributed as idist
import torch.distributed as dist

if __name__ == "__main__":
    idist.initialize("gloo", timeout=timedelta(seconds=60))
    group = dist.distributed_c10d._get_default_group()
    print("timeout", group._get_backend(idist.device()).options._timeout)
    idist.finalize()
"""),
    "timeout-not-timedelta": Rule(
        "error", "timeout={given} is not a timedelta",
        "The annotation says `int`, but torch wants a `timedelta`.",
        "Pass `timedelta(seconds=60)`.",
        HEAD + MAIN[1:] + """    idist.initialize("gloo", timeout=60)
    idist.finalize()
""",
        "rank 0 `TypeError: Expected timeout argument to be of type datetime.timedelta, got 60`",
        """from datetime import timedelta
import ignite.distributed as idist
""" + MAIN[1:] + """    idist.initialize("gloo", timeout=timedelta(seconds=60))
    idist.finalize()
"""),
    "tcp-init-method": Rule(
        "error", "init_method begins with tcp://",
        "`Parallel` and `initialize` refuse it.",
        "Leave it out; set `MASTER_ADDR` and `MASTER_PORT`, or pass `master_addr=` and `master_port=` beside "
        "`nproc_per_node=`.",
        HEAD + """

def work(local_rank):
    print(idist.get_rank())
""" + MAIN + """    with idist.Parallel(backend="gloo", init_method="tcp://127.0.0.1:2345") as parallel:
        parallel.run(work)
""",
        "rank 0 `ValueError: TCP initialization via init_method='tcp://127.0.0.1:2345' will hang. …`",
        HEAD + """

def work(local_rank):
    print(idist.get_rank())
""" + MAIN + """    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(work)
"""),
    "address-without-rank": Rule(
        "error", "torch's init_process_group is given tcp:// and not both rank and world_size",
        "An address says where the ranks meet, and not which of them this is.",
        "Pass both, or leave `init_method` out where a launcher sets `RANK` and `WORLD_SIZE`.",
        """import torch.distributed as dist
import ignite.distributed as idist


def training(local_rank):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:2345")
    idist.sync()
    print("world size", idist.get_world_size())
""",
        "rank 0 `ValueError: Error initializing torch.distributed using tcp:// rendezvous: rank parameter missing`",
        """import torch.distributed as dist
import ignite.distributed as idist


def training(local_rank):
    dist.init_process_group("gloo", rank=local_rank, world_size=2)
    idist.sync()
    print("world size", idist.get_world_size())
"""),
    "rank-with-slurm": Rule(
        "error", "idist.initialize is given the {given} that SLURM has set",
        "Ignite reads SLURM's variables by itself, and refuses a rank or a world size beside them.",
        "Leave both out.",
        """import os
import ignite.distributed as idist

if __name__ == "__main__":
    idist.initialize("gloo", rank=int(os.environ["SLURM_PROCID"]), world_size=int(os.environ["SLURM_NTASKS"]))
    print("SLURM_PROCID", idist.get_rank())
    idist.finalize()
""",
        "rank 0 `ValueError: Arguments rank and world_size should not be specified with SLURM`",
        HEAD + """
if __name__ == "__main__":
    idist.initialize("gloo")
    print("SLURM_PROCID", idist.get_rank())
    idist.finalize()
"""),
    "environment-inside-context": Rule(
        "error", "{name} is set in the environment after the group was made",
        "The launch has read its variables already, and `finalize` puts the environment back to what it was before.",
        "Set it before `Parallel` or `initialize`, or in the shell.",
        """import os
import ignite.distributed as idist


def work(local_rank):
    print(idist.get_rank())
""" + MAIN + """    with idist.Parallel(backend="gloo") as parallel:
        os.environ["RUN_NAME"] = "first"
        parallel.run(work)
    print("name", os.environ.get("RUN_NAME"))
""",
        "rank 0 prints `0`, `name None`",
        """import os
import ignite.distributed as idist


def work(local_rank):
    print(idist.get_rank())
""" + MAIN + """    os.environ["RUN_NAME"] = "first"
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(work)
    print("name", os.environ.get("RUN_NAME"))
"""),
    "local-rank-option": Rule(
        "error", "the local rank is read from an option that torchrun does not give",
        "torchrun sets `LOCAL_RANK` in the environment; the option keeps its default on every rank.",
        'Use the first argument of the function that `Parallel.run` calls, or `int(os.environ["LOCAL_RANK"])`.',
        """import argparse
import ignite.distributed as idist


def work(local_rank, args):
    print("local rank", args.local_rank)
""" + MAIN + """    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=0)
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(work, parser.parse_args())
""",
        "rank 0 prints `local rank 0`; rank 1 prints `local rank 0`",
        HEAD + """

def work(local_rank):
    print("local rank", local_rank)
""" + MAIN + """    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(work)
"""),
    "spawn-without-main-guard": Rule(
        "error", "processes are started by code that runs on import",
        "Each new process imports the file and starts processes again.",
        'Put it below `if __name__ == "__main__":`.',
        HEAD + """

def work(local_rank):
    print(idist.get_rank())


with idist.Parallel(backend="gloo", nproc_per_node=1) as parallel:
    parallel.run(work)
""",
        "rank 0 `ProcessExitedException: process 0 terminated with exit code 1`",
        HEAD + """

def work(local_rank):
    print(idist.get_rank())
""" + MAIN + """    with idist.Parallel(backend="gloo", nproc_per_node=1) as parallel:
        parallel.run(work)
"""),
    "spawn-unpicklable": Rule(
        "error", "the processes are started with {given}, which they cannot be given",
        "spawn pickles the function and its arguments; only functions at the top of a file can be pickled.",
        "Move the function to the top of the file; make engines and loaders inside it.",
        HEAD + MAIN[1:] + """    with idist.Parallel(backend="gloo", nproc_per_node=2) as parallel:
        parallel.run(lambda local_rank: print(local_rank))
""",
        "rank 0 `PicklingError: Can't pickle <function <lambda> …`",
        HEAD + """

def work(local_rank):
    print(local_rank)
""" + MAIN + """    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(work)
"""),
    "spawn-without-args": Rule(
        "error", "idist.spawn is called without args",
        "`args` has no default.",
        "Pass `args=()`; the local rank is put in front of them.",
        HEAD + """

def work(local_rank):
    print(local_rank)
""" + MAIN + """    idist.spawn("gloo", work, nproc_per_node=2)
""",
        "rank 0 `TypeError: spawn() missing 1 required positional argument: 'args'`",
        HEAD + """

def work(local_rank):
    print(local_rank)
""" + MAIN + """    idist.spawn("gloo", work, args=(), nproc_per_node=2, start_method="fork")
"""),
    "run-outside-with": Rule(
        "error", "Parallel.run is called outside the with block",
        "The group is made on entering the block.",
        "Write `with idist.Parallel(backend=backend) as parallel: parallel.run(work)`.",
        HEAD + """

def work(local_rank):
    print(local_rank)
""" + MAIN + """    parallel = idist.Parallel(backend="gloo")
    parallel.run(work)
""",
        "rank 0 `AttributeError: 'NoneType' object has no attribute 'info'`",
        HEAD + """

def work(local_rank):
    print(local_rank)
""" + MAIN + """    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(work)
"""),
    "result-of-run": Rule(
        "error", "Parallel.run and spawn return None",
        "What the function returns is dropped, also without `nproc_per_node`.",
        "Print it or write it to a file.",
        HEAD + """

def work(local_rank):
    return 7
""" + MAIN + """    with idist.Parallel(backend="gloo") as parallel:
        result = parallel.run(work)
    print("result", result)
""",
        "rank 0 prints `result None`",
        HEAD + """

def work(local_rank):
    print("result", 7)
""" + MAIN + """    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(work)
"""),
    "unknown-argument": Rule(
        "error", "idist.{name} does not take {given}",
        "The arguments of `torch.distributed` are not those of `ignite.distributed`; `broadcast` and `barrier` have no "
        "group.",
        "See the signature; for the rest call `torch.distributed` itself.",
        HEAD + """

def training(local_rank):
    idist.all_reduce(1, async_op=True)
""",
        "rank 0 `TypeError: all_reduce() got an unexpected keyword argument 'async_op'`",
        HEAD + """

def training(local_rank):
    idist.all_reduce(1)
"""),
    "reduction-op": Rule(
        "error", "{given} is no reduction of idist.all_reduce",
        "It knows `SUM`, `PRODUCT`, `MIN`, `MAX`, `AND`, `OR`, as text in upper case; one process accepts anything.",
        "For a mean, divide by the world size: `idist.all_reduce(x) / idist.get_world_size()`.",
        HEAD + """

def training(local_rank):
    print(idist.all_reduce(2.0, op="mean"))
""",
        "rank 0 `ValueError: Unsupported reduction operation: 'mean'`",
        HEAD + """

def training(local_rank):
    print(idist.all_reduce(2.0) / idist.get_world_size())
"""),
    "reduced-twice": Rule(
        "error", "{name} is that of all ranks already, and is reduced again",
        "The result is too large by the world size.",
        "Use the value as it is.",
        HEAD + """from ignite.metrics import Average


def training(local_rank):
    average = Average()
    average.update(1.0)
    print(float(idist.all_reduce(average.compute())))
""",
        "rank 0 prints `2.0`",
        HEAD + """from ignite.metrics import Average


def training(local_rank):
    average = Average()
    average.update(1.0)
    print(float(average.compute()))
"""),
    "broadcast-from-another-rank": Rule(
        "error", "idist.broadcast sends what rank {given} has, and another rank makes the value",
        "`src` says whose value all ranks get; what stood there before goes to all of them.",
        "Name the rank that makes the value as `src`, which is 0 unless it is given.",
        HEAD + """

def training(local_rank):
    name = "none"
    if idist.get_rank() == 1:
        name = "run-7"
    print(idist.broadcast(name))
""",
        "rank 0 prints `none`; rank 1 prints `none`",
        HEAD + """

def training(local_rank):
    name = "none"
    if idist.get_rank() == 1:
        name = "run-7"
    print(idist.broadcast(name, src=1))
"""),
    "result-not-reduced": Rule(
        "error", "{name} is of this rank's share of the data, and is shown for all of them",
        "The loader gives each rank its own samples: the number is of one share, another on each rank.",
        "Add the counts up on all ranks before they are divided, or let a metric of Ignite do it.",
        COUNTING + """    if idist.get_rank() == 0:
        print("small ones", small / len(loader.sampler))
""",
        "rank 0 prints `small ones 0.5`",
        COUNTING + """    small = idist.all_reduce(small)
    if idist.get_rank() == 0:
        print("small ones", small / len(loader.dataset))
"""),
    "changed-in-place": Rule(
        "error", "{name} is used as this rank's own after all_reduce has written the result into it",
        "`all_reduce` changes a tensor in place, and returns that tensor: both names are the result.",
        "Reduce a copy: `idist.all_reduce(mine.clone())`.",
        """import torch
import ignite.distributed as idist


def training(local_rank):
    mine = torch.tensor(idist.get_rank() + 1.0)
    total = idist.all_reduce(mine)
    print(f"{mine.item()} of {total.item()}")
""",
        "rank 0 prints `3.0 of 3.0`",
        """import torch
import ignite.distributed as idist


def training(local_rank):
    mine = torch.tensor(idist.get_rank() + 1.0)
    total = idist.all_reduce(mine.clone())
    print(f"{mine.item()} of {total.item()}")
"""),
    "ragged-all-gather": Rule(
        "error", "all_gather of tensors whose length differs between ranks ({name})",
        "Shapes are not compared: one rank is aborted, or the result is garbage.",
        "Use `all_gather_tensors_with_shapes`, or gather a list: `idist.all_gather(x.tolist())`.",
        """import torch
import ignite.distributed as idist


def training(local_rank):
    values = torch.arange(4.0)
    large = values[values > idist.get_rank() + 1]
    print(idist.all_gather(large))
""",
        "rank 1 is aborted",
        """import torch
import ignite.distributed as idist


def training(local_rank):
    values = torch.arange(4.0)
    large = values[values > idist.get_rank() + 1]
    print(idist.all_gather(large.tolist()))
"""),
    "group-in-loop": Rule(
        "warning", "{name} is given a list of ranks again and again",
        "Each call with a list makes a new group, which stays.",
        "Make the group once, on every rank: `group = idist.new_group([0, 1])`, and pass `group=group`.",
        HEAD + """import torch.distributed as dist


def training(local_rank):
    for step in range(3):
        idist.all_reduce(step, group=[0, 1])
    print("groups", len(dist.distributed_c10d._world.pg_map) - 1)
""",
        "rank 0 prints `groups …3`",
        HEAD + """import torch.distributed as dist


def training(local_rank):
    group = idist.new_group([0, 1])
    for step in range(3):
        idist.all_reduce(step, group=group)
    print("groups", len(dist.distributed_c10d._world.pg_map) - 1)
"""),
    "batch-size-divided-twice": Rule(
        "error", "batch_size is divided by the number of processes, and auto_dataloader divides it again",
        "`batch_size` is that of the whole world.",
        "Pass the size for all ranks together.",
        HEAD + """

def training(local_rank):
    loader = idist.auto_dataloader(list(range(32)), batch_size=16 // idist.get_world_size())
    print("each rank", loader.batch_size)
""",
        "rank 0 prints `each rank 4`",
        HEAD + """

def training(local_rank):
    loader = idist.auto_dataloader(list(range(32)), batch_size=16)
    print("each rank", loader.batch_size)
"""),
    "sharded-twice": Rule(
        "error", "the data are this rank's share already, and {name} divides them again",
        "In an epoch each rank then reads a share of its share, and no rank the rest.",
        "Give it all the data; it takes this rank's share out of them.",
        HEAD + """import torch


def training(local_rank):
    mine = torch.arange(8)[idist.get_rank() :: idist.get_world_size()]
    loader = idist.auto_dataloader(mine, batch_size=4, shuffle=False)
    print([n.item() for batch in loader for n in batch])
""",
        "rank 0 prints `[0, 4]`; rank 1 prints `[3, 7]`",
        HEAD + """import torch


def training(local_rank):
    loader = idist.auto_dataloader(torch.arange(8), batch_size=4, shuffle=False)
    print([n.item() for batch in loader for n in batch])
"""),
    "split-by-rank": Rule(
        "error", "{name} draws from a generator that each rank has seeded for itself",
        "Each rank splits the data in another way: it validates on what others train on.",
        "Draw from a generator of one seed on all ranks: `torch.Generator().manual_seed(5)`.",
        HEAD + """import torch
from torch.utils.data import random_split


def training(local_rank):
    torch.manual_seed(5 + idist.get_rank())
    train, held_out = random_split(range(4), [2, 2])
    print(sorted(held_out.indices))
""",
        "rank 0 prints `[0, 2]`; rank 1 prints `[0, 3]`",
        HEAD + """import torch
from torch.utils.data import random_split


def training(local_rank):
    torch.manual_seed(5 + idist.get_rank())
    train, held_out = random_split(range(4), [2, 2], torch.Generator().manual_seed(5))
    print(sorted(held_out.indices))
"""),
    "means-summed": Rule(
        "error", "{given}, a mean of each rank, is summed and not divided by the world size",
        "`all_reduce` adds up unless it is told otherwise: the sum is too large by as many times as there are ranks.",
        "Divide by `idist.get_world_size()`, or reduce the sum and the count and divide these.",
        HEAD + """import torch


def training(local_rank):
    losses = torch.tensor([1.0, 3.0])
    loss = idist.all_reduce(losses.mean())
    print("loss", loss.item())
""",
        "rank 0 prints `loss 4.0`; rank 1 prints `loss 4.0`",
        HEAD + """import torch


def training(local_rank):
    losses = torch.tensor([1.0, 3.0])
    loss = idist.all_reduce(losses.mean()) / idist.get_world_size()
    print("loss", loss.item())
"""),
    "unfit-reduction": Rule(
        "error", "{name}, is reduced with {given}",
        "The result is neither the rank's own nor that of all the data, and no error says so.",
        "Reduce a largest value with `\"MAX\"`, a smallest with `\"MIN\"`, and a count with `\"SUM\"`.",
        HEAD + """import torch


def training(local_rank):
    worst = torch.tensor([1.0, 3.0 + idist.get_rank()]).max()
    worst = idist.all_reduce(worst)
    print("worst", worst.item())
""",
        "rank 0 prints `worst 7.0`; rank 1 prints `worst 7.0`",
        HEAD + """import torch


def training(local_rank):
    worst = torch.tensor([1.0, 3.0 + idist.get_rank()]).max()
    worst = idist.all_reduce(worst, op="MAX")
    print("worst", worst.item())
"""),
    "shuffle-with-sampler": Rule(
        "error", "shuffle=True and a sampler are both given",
        "The loader refuses the pair.",
        "Leave out `shuffle`: the sampler decides the order.",
        HEAD + """from torch.utils.data import RandomSampler


def training(local_rank):
    data = list(range(8))
    idist.auto_dataloader(data, sampler=RandomSampler(data), shuffle=True)
""",
        "rank 0 `ValueError: sampler option is mutually exclusive with shuffle`",
        HEAD + """from torch.utils.data import RandomSampler


def training(local_rank):
    data = list(range(8))
    idist.auto_dataloader(data, sampler=RandomSampler(data))
"""),
    "unsharded-data": Rule(
        "error", "{name} is not divided between the ranks",
        "`auto_dataloader` divides neither a `batch_sampler` nor an `IterableDataset`: every rank reads all the data.",
        "Divide by `idist.get_rank()` and `idist.get_world_size()` in the data set or the sampler.",
        HEAD + """from torch.utils.data import IterableDataset


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(4))


def training(local_rank):
    print([int(x) for x in idist.auto_dataloader(Stream())])
""",
        "rank 0 prints `[0, 1, 2, 3]`; rank 1 prints `[0, 1, 2, 3]`",
        HEAD + """from torch.utils.data import IterableDataset


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(idist.get_rank(), 4, idist.get_world_size()))


def training(local_rank):
    print([int(x) for x in idist.auto_dataloader(Stream())])
"""),
    "no-set-epoch": Rule(
        "warning", "nobody tells the distributed sampler the epoch",
        "Every epoch has the order of the first.",
        "On `Events.EPOCH_STARTED`: `loader.sampler.set_epoch(trainer.state.epoch - 1)` if there are 2 or more ranks.",
        HEAD + """from ignite.engine import Engine, Events


def training(local_rank):
    loader = idist.auto_dataloader(list(range(64)), batch_size=64, shuffle=True)
    orders = []
    trainer = Engine(lambda engine, batch: orders.append(batch.tolist()))
    trainer.run(loader, max_epochs=2)
    print("same order", orders[0] == orders[1])
""",
        "rank 0 prints `same order True`",
        HEAD + """from ignite.engine import Engine, Events


def training(local_rank):
    loader = idist.auto_dataloader(list(range(64)), batch_size=64, shuffle=True)
    orders = []
    trainer = Engine(lambda engine, batch: orders.append(batch.tolist()))

    @trainer.on(Events.EPOCH_STARTED)
    def next_epoch():
        if idist.get_world_size() > 1:
            loader.sampler.set_epoch(trainer.state.epoch - 1)

    trainer.run(loader, max_epochs=2)
    print("same order", orders[0] == orders[1])
"""),
    "same-seed": Rule(
        "warning", "all ranks get the same seed, and draw random numbers while they run",
        "They draw the same ones: the same crops, the same noise.",
        "Add the rank: `manual_seed(seed + idist.get_rank())`.",
        """import torch
import ignite.distributed as idist
from ignite.engine import Engine
from ignite.utils import manual_seed


def training(local_rank):
    manual_seed(7)
    trainer = Engine(lambda engine, batch: torch.rand(1).item())
    state = trainer.run([0])
    print("different", len(set(idist.all_gather(state.output))))
""",
        "rank 0 prints `different 1`",
        """import torch
import ignite.distributed as idist
from ignite.engine import Engine
from ignite.utils import manual_seed


def training(local_rank):
    manual_seed(7 + idist.get_rank())
    trainer = Engine(lambda engine, batch: torch.rand(1).item())
    state = trainer.run([0])
    print("different", len(set(idist.all_gather(state.output))))
"""),
    "attribute-of-wrapped-model": Rule(
        "error", "{name}: the wrapped model has no attribute of its own",
        "On 2 or more processes `auto_model` returns a `DistributedDataParallel`; on one process it works.",
        'Read it before wrapping, or from `getattr(model, "module", model)`.',
        HEAD + """from torch import nn


def training(local_rank):
    model = idist.auto_model(nn.Linear(3, 1))
    print(model.in_features)
""",
        "rank 0 `AttributeError: 'DistributedDataParallel' object has no attribute 'in_features'`",
        HEAD + """from torch import nn


def training(local_rank):
    model = idist.auto_model(nn.Linear(3, 1))
    print(getattr(model, "module", model).in_features)
"""),
    "model-wrapped-twice": Rule(
        "error", "the model is wrapped a second time",
        "The prefix of its state is doubled, and gradients are reduced twice.",
        "Wrap once.",
        HEAD + """from torch import nn


def training(local_rank):
    model = idist.auto_model(nn.Linear(1, 1))
    model = idist.auto_model(model)
    print(*model.state_dict())
""",
        "rank 0 prints `module.module.weight module.module.bias`",
        HEAD + """from torch import nn


def training(local_rank):
    model = idist.auto_model(nn.Linear(1, 1))
    print(*model.state_dict())
"""),
    "optimizer-before-parameters": Rule(
        "error", "the optimizer is made before {name} is replaced, and does not know the new parameters",
        "They are never trained. (To wrap the model afterwards is harmless: `auto_model` keeps the parameters.)",
        "Make the optimizer last.",
        """import torch
import ignite.distributed as idist
from torch import nn


def training(local_rank):
    model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    optimizer = idist.auto_optim(torch.optim.SGD(model.parameters(), lr=0.1))
    model.head = nn.Linear(1, 1)
    model = idist.auto_model(model)
    known = [id(p) for p in optimizer.param_groups[0]["params"]]
    print("trained", sum(id(p) in known for p in model.parameters()), "of", len(list(model.parameters())))
""",
        "rank 0 prints `trained 4 of 6`",
        """import torch
import ignite.distributed as idist
from torch import nn


def training(local_rank):
    model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    model.head = nn.Linear(1, 1)
    optimizer = idist.auto_optim(torch.optim.SGD(model.parameters(), lr=0.1))
    model = idist.auto_model(model)
    known = [id(p) for p in optimizer.param_groups[0]["params"]]
    print("trained", sum(id(p) in known for p in model.parameters()), "of", len(list(model.parameters())))
"""),
    "module-prefix": Rule(
        "error", "a state dict and the `module.` of a wrapped model: {name}",
        "Keys begin with `module.` on 2 or more processes and not on one, so the same file loads in one case only.",
        "Save and load the inner model, `getattr(model, \"module\", model)`, or leave it to Ignite's `Checkpoint`.",
        """import io
import torch
import ignite.distributed as idist
from torch import nn


def training(local_rank):
    file = io.BytesIO()
    model = idist.auto_model(nn.Linear(1, 1))
    torch.save(getattr(model, "module", model).state_dict(), file)
    file.seek(0)
    model.load_state_dict(torch.load(file))
""",
        "rank 0 `RuntimeError: Error(s) in loading state_dict for DistributedDataParallel: …`",
        """import io
import torch
import ignite.distributed as idist
from torch import nn


def training(local_rank):
    file = io.BytesIO()
    model = idist.auto_model(nn.Linear(1, 1))
    torch.save(getattr(model, "module", model).state_dict(), file)
    file.seek(0)
    getattr(model, "module", model).load_state_dict(torch.load(file))
"""),
    "log-on-every-rank": Rule(
        "warning", "{name} is made on every rank",
        "Every rank draws its own bar, or writes its own run.",
        "Make it under `if idist.get_rank() == 0:`; it does not communicate.",
        HEAD + """from ignite.engine import Engine
from ignite.handlers import ProgressBar


def training(local_rank):
    trainer = Engine(lambda engine, batch: idist.all_reduce(batch))
    ProgressBar(desc="bar").attach(trainer)
    trainer.run([1, 2])
""",
        "rank 0 prints … `bar…`; rank 1 prints … `bar…`",
        HEAD + """from ignite.engine import Engine
from ignite.handlers import ProgressBar


def training(local_rank):
    trainer = Engine(lambda engine, batch: idist.all_reduce(batch))
    if idist.get_rank() == 0:
        ProgressBar(desc="bar").attach(trainer)
    trainer.run([1, 2])
"""),
    "file-on-every-rank": Rule(
        "warning", "{name} is written by every rank",
        "All ranks write to one name: a line comes once a rank, and a checkpoint is written by several at once.",
        "Write it under `if idist.get_rank() == 0:`, or by `Checkpoint`, which saves on one rank; or put the rank into "
        "its name.",
        HEAD + """

def training(local_rank):
    with open("rows.txt", "a") as rows:
        rows.write("row\\n")
    idist.barrier()
    print(f"{len(open('rows.txt').readlines())} rows")
""",
        "rank 0 prints `2 rows`",
        HEAD + """

def training(local_rank):
    if idist.get_rank() == 0:
        with open("rows.txt", "a") as rows:
            rows.write("row\\n")
    idist.barrier()
    print(f"{len(open('rows.txt').readlines())} rows")
"""),
    "contrib-import": Rule(
        "warning", "{name} is an old path: the import {given}",
        "The module moved; the old path will be removed in 0.6.0, some names are gone already.",
        "Drop `contrib` from the path. A name whose import fails has no new home: for `CustomPeriodicEvent` write "
        "`Events.ITERATION_COMPLETED(every=n)`.",
        """from ignite.contrib.handlers.tqdm_logger import ProgressBar


def training(local_rank):
    print(ProgressBar.__module__)
""",
        "rank 0 `DeprecationWarning: … will be removed in version 0.6.0.…`",
        """from ignite.handlers.tqdm_logger import ProgressBar


def training(local_rank):
    print(ProgressBar.__module__)
"""),
}


# --- names: what a call means, whatever it was imported as ---------------------------------------------------------

IDIST = "ignite.distributed."
TORCH_DIST = "torch.distributed."
GETTERS = {"get_rank", "get_local_rank", "get_world_size", "get_nproc_per_node", "get_nnodes", "get_node_rank",
           "backend", "device", "model_name", "hostname"}
IDIST_COLLECTIVES = {"all_reduce", "all_gather", "all_gather_tensors_with_shapes", "broadcast", "barrier", "new_group",
                     "auto_model", "one_rank_first"}
WHOLE_WORLD = {"initialize", "init_process_group", "auto_model"}  # what takes no group of its own
TORCH_COLLECTIVES = {
    "all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "broadcast", "broadcast_object_list",
    "reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter", "scatter_object_list", "gather", "gather_object",
    "all_to_all", "all_to_all_single", "barrier", "monitored_barrier", "new_group", "init_process_group",
}
SIGNATURES = {  # what each call takes, in order; a test compares this with the installed library
    "all_reduce": ("tensor", "op", "group"), "all_gather": ("tensor", "group"),
    "all_gather_tensors_with_shapes": ("tensor", "shapes", "group"), "broadcast": ("tensor", "src", "safe_mode"),
    "barrier": (), "one_rank_only": ("rank", "with_barrier"), "one_rank_first": ("rank", "local"),
    "sync": ("temporary",), "set_local_rank": ("index",), "get_rank": (), "get_world_size": (), "get_local_rank": (),
    "get_nproc_per_node": (), "get_nnodes": (), "get_node_rank": (), "backend": (), "device": (), "finalize": (),
    "show_config": (),
}
REDUCTIONS = ("SUM", "PRODUCT", "MIN", "MAX", "AND", "OR")
NO_REDUCTION = {"GpuInfo"}  # metrics whose compute() does not communicate
WRAPPED_HAS = set(  # what a DistributedDataParallel answers itself; a test compares this with the installed torch
    "T_destination add_module apply bfloat16 broadcast_bucket_size broadcast_buffers bucket_bytes_cap buffers "
    "call_super_init children compile cpu cuda device device_ids device_type dim double dump_patches eval extra_repr "
    "find_unused_parameters float forward gather get_buffer get_extra_state get_parameter get_submodule "
    "gradient_as_bucket_view half ipu is_multi_device_module join join_device join_hook join_process_group "
    "load_state_dict logger mixed_precision module modules modules_buffers mtia named_buffers named_children "
    "named_module_buffers named_modules named_parameters no_sync output_device parameters parameters_to_ignore "
    "process_group reducer register_backward_hook register_buffer register_comm_hook register_forward_hook "
    "register_forward_pre_hook register_full_backward_hook register_full_backward_pre_hook "
    "register_load_state_dict_post_hook register_load_state_dict_pre_hook register_module register_parameter "
    "register_state_dict_post_hook register_state_dict_pre_hook require_backward_grad_sync "
    "require_forward_param_sync requires_grad_ scatter set_extra_state set_submodule share_memory state_dict "
    "static_graph to to_empty to_kwargs train training type will_sync_module_buffers xpu zero_grad".split()
)
OLD_MODULES = {  # of ignite.contrib: importing these warns, or fails where the second table says so
    "handlers": "base_logger clearml_logger lr_finder mlflow_logger neptune_logger param_scheduler polyaxon_logger "
                "tensorboard_logger time_profilers tqdm_logger visdom_logger wandb_logger".split(),
    "metrics": "average_precision cohen_kappa gpu_info precision_recall_curve roc_auc".split(),
    "metrics.regression":
        "canberra_metric fractional_absolute_error fractional_bias geometric_mean_absolute_error "
        "geometric_mean_relative_absolute_error manhattan_distance maximum_absolute_error mean_absolute_relative_error "
        "mean_error mean_normalized_bias median_absolute_error median_absolute_percentage_error "
        "median_relative_absolute_error r2_score wave_hedges_distance".split(),
}
GONE_MODULES = {"ignite.contrib.handlers.custom_events"}
GONE_NAMES = {
    "ignite.contrib.handlers.CustomPeriodicEvent",
    "ignite.contrib.metrics.average_precision.average_precision_compute_fn",
    "ignite.contrib.metrics.regression.median_absolute_error.median_absolute_error_compute_fn",
    "ignite.contrib.metrics.regression.median_absolute_percentage_error.median_absolute_percentage_error_compute_fn",
    "ignite.contrib.metrics.regression.median_relative_absolute_error.median_relative_absolute_error_compute_fn",
    "ignite.contrib.metrics.roc_auc.roc_auc_compute_fn", "ignite.contrib.metrics.roc_auc.roc_auc_curve_compute_fn",
}
LOGGERS = {"ProgressBar", "TensorboardLogger", "WandBLogger", "ClearMLLogger", "MLflowLogger", "NeptuneLogger",
           "PolyaxonLogger", "VisdomLogger"}
LAUNCH_VARIABLES = re.compile(
    r"(MASTER_(ADDR|PORT)|RANK|WORLD_SIZE|LOCAL_RANK|(GLOO|NCCL|TORCH_NCCL)_\w+|CUDA_VISIBLE_DEVICES)$")

RANK_NAMES = {"rank": "rank", "global_rank": "rank", "world_rank": "rank", "process_rank": "rank", "rank_id": "rank",
              "local_rank": "local", "localrank": "local", "node_rank": "node", "world_size": "world",
              "worldsize": "world", "local_world_size": "nproc", "nproc_per_node": "nproc",
              "num_replicas": "world", "process_index": "rank", "local_process_index": "local"}
RANK_CALLS = {"get_rank": "rank", "get_local_rank": "local", "get_node_rank": "node", "get_world_size": "world",
              "get_nproc_per_node": "nproc", "get_nnodes": "nodes", "get_global_rank": "rank",
              "get_local_size": "nproc"}
RANK_VARIABLES = {"RANK": "rank", "LOCAL_RANK": "local", "GROUP_RANK": "node", "NODE_RANK": "node",
                  "WORLD_SIZE": "world", "LOCAL_WORLD_SIZE": "nproc", "SLURM_PROCID": "rank", "SLURM_LOCALID": "local",
                  "SLURM_NODEID": "node", "SLURM_NTASKS": "world", "OMPI_COMM_WORLD_RANK": "rank",
                  "OMPI_COMM_WORLD_LOCAL_RANK": "local", "OMPI_COMM_WORLD_SIZE": "world", "PMI_RANK": "rank"}
WORLD = {"rank": (0, 1, 2, 3), "local": (0, 1, 0, 1), "node": (0, 0, 1, 1), "world": (4,) * 4, "nproc": (2,) * 4,
         "nodes": (2,) * 4}  # the world in which conditions are tried: two nodes of two processes
IS_MAIN = re.compile(
    r"_?(is_)?(local_|global_)?(main|master|primary|chief|lead|leader|rank_?(0|zero|zero_?process)|zero)_?"
    r"(process|proc|rank|worker|node|gpu)?(_only)?$|is_(global|local)_zero$|is_(main|master)$|on_main(_process)?$")
ONLY_MAIN = re.compile(  # decorators of other libraries that run a function on one rank
    r"(rank_zero_only|main_process_only|master_only|master_process_only|on_main_process|rank0_only|rank_0_only|"
    r"only_on_master|zero_rank_only|run_on_main|main_only|rank_zero)$")
EXITS = ("sys.exit", "exit", "quit", "os._exit")
ENGINES = re.compile(r"(evaluator|evaluators|validator|trainer|engine|inferer)s?$|^(val|valid|test|train|eval)_?"
                     r"(engine|evaluator|eval)$", re.I)
LOSS = re.compile(r"(^|_)(loss|losses|criterion|nll|bce|cross_entropy|mse)(_|$)|loss$", re.I)


def canonical(dotted):
    """One name for each thing: sub-modules of the libraries folded into the package that people import from."""
    head, _, last = dotted.rpartition(".")
    if dotted.startswith("ignite.distributed."):
        return IDIST + last if head in (IDIST[:-1], *(IDIST + m for m in ("utils", "auto", "launcher"))) else dotted
    for package in ("metrics", "handlers", "engine"):
        if re.match(rf"ignite\.(contrib\.)?{package}\.", dotted):
            return f"ignite.{package}.{last}" if last[:1].isupper() or package == "engine" else dotted
    if dotted.startswith("ignite.contrib.engines.common."):
        return ("ignite.handlers." if last in LOGGERS else "ignite.common.") + last
    if dotted.startswith("torch.distributed.distributed_c10d."):
        return TORCH_DIST + last
    if dotted == "ignite.utils.one_rank_only":
        return IDIST + last
    return dotted


def chain(node):
    """["a", "b", "c"] for the expression a.b.c, else None."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(node.id)
        return parts[::-1]
    return None


def last_name(node):
    """The last part of a name, an attribute or a call of one; "" for other expressions."""
    while isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def keyword(call, name, position=None):
    """The argument's expression, by keyword or position; None when it is not given (or is None itself)."""
    value = next((k.value for k in call.keywords if k.arg == name), None)
    if value is None and position is not None and 0 <= position < len(call.args):
        if not any(isinstance(a, ast.Starred) for a in call.args[: position + 1]):
            value = call.args[position]
    return None if isinstance(value, ast.Constant) and value.value is None else value


def constant(node):
    return node.value if isinstance(node, ast.Constant) else None


def text_of(node):
    """A key by which equal expressions are equal: `args.batch_size`, `config["lr"]`."""
    return ast.dump(node, annotate_fields=False).replace("Store()", "Load()")


# --- modules: scopes, functions, classes --------------------------------------------------------------------------


@dataclass(eq=False)
class Scope:
    """Where names live: a module, a function or a class."""

    node: ast.AST
    module: Module
    parent: Scope | None = None
    owner: Scope | None = None  # of a method: its class
    bound: dict = field(default_factory=dict)  # name → [(expression, index of its item or None), …]
    functions: dict = field(default_factory=dict)  # name → Scope
    classes: dict = field(default_factory=dict)  # name → Scope
    attributes: dict = field(default_factory=dict)  # of a class: self.NAME → [(expression, index, scope), …]
    imports: dict = field(default_factory=dict)  # local name → dotted
    calls: list = field(default_factory=list)  # in this scope, nested functions apart
    reduced: dict = field(default_factory=dict)  # name -> the collectives it is handed to, which overwrite it
    parameters: list = field(default_factory=list)
    answers: dict = field(default_factory=dict)  # what questions about it, or about expressions in it, were answered
    in_group: bool = False  # handed to Parallel.run or idist.spawn: the group exists when it begins
    on_ranks: bool = False  # handed to Parallel.run or a spawn: the first parameter is the local rank
    launches: list = field(default_factory=list)  # [(call, scope)] as Parallel.run or a spawn makes it
    effects: list | None = None

    @property
    def name(self):
        return getattr(self.node, "name", "<lambda>" if isinstance(self.node, ast.Lambda) else "<module>")

    @property
    def is_function(self):
        return isinstance(self.node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))


@dataclass(eq=False)
class Module:
    path: Path
    source: str
    tree: ast.Module
    project: Project
    top: Scope = None
    scopes: list = field(default_factory=list)
    scope_of: dict = field(default_factory=dict)  # id(def or lambda) → Scope
    lines: list = field(default_factory=list)
    metric_targets: set = field(default_factory=set)  # text of the engines that some metric is attached to
    divided: set = field(default_factory=set)  # text of what was divided by the world size in place
    answers: dict = field(default_factory=dict)  # what questions about it were answered
    known: dict = field(default_factory=dict)  # attribute name → its value on the ranks, where it was asked before
    assigned: dict = field(default_factory=dict)  # attribute name → [(expression, scope)] for x.NAME = …
    targets: dict | None = None  # function → its calls in this file, once somebody asks


def all_scopes(scope):
    while scope is not None:
        yield scope
        scope = scope.parent


def kept(ask):
    """Answer a question (about a module, a scope, or an expression in a scope) once, and keep the answer.

    A question that comes up again while it is being answered (a function that calls itself), or at the end of a long
    row of questions, is answered with nothing.
    """
    nothing = {"str": "", "list": (), "tuple": ({}, False)}.get(str(ask.__annotations__.get("return")))

    @functools.wraps(ask)
    def asked(subject, scope=None, *rest):
        answers = (subject if scope is None else scope).answers
        key = (ask, subject, *rest)
        if key not in answers:
            if len(asking) > QUESTIONS:
                return nothing
            answers[key] = nothing
            asking.append(key)
            try:
                answers[key] = ask(subject) if scope is None else ask(subject, scope, *rest)
            finally:
                asking.pop()
        return answers[key]

    return asked


asking, QUESTIONS = [], 60  # questions that are being answered, one because of another, and how many there may be


def read_module(path, project):
    """Parse a file. Raises SyntaxError, ValueError, RecursionError, MemoryError or OSError."""
    size = path.stat().st_size
    if size > LARGEST:
        raise ValueError(f"{size / 1e6:.0f} MB, more than a program has")
    data = path.read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = plainer(ast.parse(data, filename=str(path)))
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        source = data.decode(encoding, errors="replace")
    except (SyntaxError, LookupError):
        source = data.decode("latin-1")
    module = Module(path, source, tree, project, lines=re.split(r"\r\n|\r|\n", source))
    module.top = Scope(tree, module)
    module.scopes.append(module.top)
    Collector(module).fill(module.top, tree.body)
    return module


def plainer(tree):
    """The tree with one form for what has two: `x: T = v` in a function is `x = v`, `engine.on(event)(handler)` is
    `engine.add_event_handler(event, handler)`, and one of two handlers is added under an `if`."""
    for node in ast.walk(tree):
        for block in ("body", "orelse", "finalbody") if not isinstance(node, ast.ClassDef) else ():
            statements = getattr(node, block, None)
            for i, n in enumerate(statements if isinstance(statements, list) else ()):
                if isinstance(n, ast.AnnAssign) and n.value is not None:
                    statements[i] = ast.copy_location(ast.Assign(targets=[n.target], value=n.value), n)
                elif isinstance(n, ast.Expr) and isinstance(n.value, ast.Call):
                    statements[i] = handler_chosen(n)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Call) and len(node.args) == 1 and not node.keywords:
            on = node.func
            if isinstance(on.func, ast.Attribute) and on.func.attr == "on" and on.args:
                node.args, node.keywords = [on.args[0], *node.args, *on.args[1:]], on.keywords
                node.func = ast.copy_location(ast.Attribute(on.func.value, "add_event_handler", ast.Load()), on.func)
    return tree


def handler_chosen(statement):
    """`engine.add_event_handler(event, a if test else b)` as an `if`; any other statement as it is."""
    call = statement.value
    if last_name(call) != "add_event_handler" or len(call.args) < 2 or not isinstance(call.args[1], ast.IfExp):
        return statement
    event, chosen, *rest = call.args
    either_way = [ast.copy_location(ast.Expr(ast.copy_location(
        ast.Call(call.func, [event, handler, *rest], call.keywords), call)), statement)
        for handler in (chosen.body, chosen.orelse)]
    return ast.copy_location(ast.If(chosen.test, either_way[:1], either_way[1:]), statement)


class Collector:
    """Fills scopes: who is bound to what, which calls stand where."""

    def __init__(self, module):
        self.module = module

    def fill(self, scope, statements):
        pending = list(reversed(statements))
        while pending:  # a stack of our own: no limit to the depth of an expression
            node = pending.pop()
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                self.function(scope, node)
                if not isinstance(node, ast.Lambda):
                    pending += node.decorator_list
                pending += [d for d in [*node.args.defaults, *node.args.kw_defaults] if d is not None]
                continue
            if isinstance(node, ast.ClassDef):
                inner = Scope(node, self.module, scope)
                scope.classes[node.name] = inner
                self.module.scopes.append(inner)
                self.module.scope_of[id(node)] = inner
                self.fill(inner, node.body)
                pending += node.decorator_list + node.bases
                continue
            self.visit(scope, node)
            pending += reversed(list(ast.iter_child_nodes(node)))

    def function(self, scope, node):
        inner = Scope(node, self.module, scope, owner=scope if isinstance(scope.node, ast.ClassDef) else scope.owner)
        a = node.args
        inner.parameters = [x.arg for x in [*a.posonlyargs, *a.args]]
        for x in [*a.posonlyargs, *a.args, *a.kwonlyargs, *[v for v in (a.vararg, a.kwarg) if v]]:
            inner.bound.setdefault(x.arg, []).append((None, None))
        self.module.scopes.append(inner)
        self.module.scope_of[id(node)] = inner
        if isinstance(node, ast.Lambda):
            self.fill(inner, [node.body])
        else:
            scope.functions[node.name] = inner
            self.fill(inner, node.body)

    def visit(self, scope, node):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self.bind(scope, target, node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self.bind(scope, node.target, field_default(node.value))
        elif isinstance(node, ast.NamedExpr):
            self.bind(scope, node.target, node.value)
        elif isinstance(node, ast.AugAssign):
            value = ast.copy_location(ast.BinOp(left=node.target, op=node.op, right=node.value), node)
            if not isinstance(node.target, ast.Name):
                self.bind(scope, node.target, value)
            else:
                scope.bound.setdefault(node.target.id, []).append((node.value, None))
                if isinstance(node.op, (ast.Div, ast.FloorDiv)):
                    scope.bound[node.target.id][-1] = (value, None)
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            item = ast.copy_location(ast.Starred(value=node.iter, ctx=ast.Load()), node.iter)  # "an item of"
            targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
            for target in targets:
                self.bind(scope, target, values_only(item) if target is targets[-1] and len(targets) == 2 else item)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                if item.optional_vars is not None:
                    self.bind(scope, item.optional_vars, item.context_expr)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            scope.bound.setdefault(node.name, []).append((None, None))
        elif isinstance(node, ast.Import):
            for alias in node.names:
                scope.imports[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0])
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            for alias in node.names:
                if alias.name == "*":
                    scope.imports.setdefault("*", []).append(base)
                else:
                    joint = "" if base.endswith(".") else "."
                    scope.imports[alias.asname or alias.name] = f"{base}{joint}{alias.name}"
        elif isinstance(node, ast.Call):
            scope.calls.append(node)
        elif type(node).__name__ == "Match":
            for case in node.cases:
                self.capture(scope, case.pattern, node.subject)

    def capture(self, scope, pattern, subject):
        """Names that a pattern of a `match` binds: those that stand for the subject, or for an item of it."""
        parts = getattr(pattern, "patterns", ())
        if getattr(pattern, "name", None):
            scope.bound.setdefault(pattern.name, []).append((subject, None))
        if getattr(pattern, "pattern", None) is not None:
            self.capture(scope, pattern.pattern, subject)
        same = isinstance(subject, (ast.Tuple, ast.List)) and len(subject.elts) == len(parts) and type(
            pattern).__name__ == "MatchSequence"
        for i, inner in enumerate(parts):
            alone = type(pattern).__name__ in ("MatchOr", "MatchClass")
            self.capture(scope, inner, subject.elts[i] if same else subject if alone else None)

    def bind(self, scope, target, value, index=None):
        if isinstance(target, ast.Name):
            scope.bound.setdefault(target.id, []).append((value, index))
        elif isinstance(target, ast.Starred):
            self.bind(scope, target.value, None)
        elif isinstance(target, (ast.Tuple, ast.List)):
            same = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts) and index is None
            for i, t in enumerate(target.elts):
                self.bind(scope, t, value.elts[i] if same else value, None if same or value is None else i)
        elif isinstance(target, ast.Attribute):
            if value is not None:
                self.module.assigned.setdefault(target.attr, []).append((value, index, scope))
            if isinstance(target.value, ast.Name) and target.value.id in ("self", "cls") and scope.owner is not None:
                scope.owner.attributes.setdefault(target.attr, []).append((value, index, scope))
        elif isinstance(target, ast.Subscript) and value is not None:
            key = constant(target.slice)
            if isinstance(key, str):
                self.module.assigned.setdefault(key, []).append((value, index, scope))
        if isinstance(target, (ast.Attribute, ast.Subscript)) and divides_by_world(value):
            self.module.divided.add(text_of(target))


def values_only(item):
    """For the second name of `for key, value in x.items()`: an item of x.values()."""
    call = item.value
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "items"):
        return item
    values = ast.Attribute(value=call.func.value, attr="values", ctx=ast.Load())
    inner = ast.copy_location(ast.Call(func=ast.copy_location(values, call), args=[], keywords=[]), call)
    return ast.copy_location(ast.Starred(value=inner, ctx=ast.Load()), call)


def field_default(node):
    """What a dataclass's field begins with: `field(default=…)`, `field(default_factory=…)`; the expression itself."""
    if not (isinstance(node, ast.Call) and last_name(node) == "field"):
        return node
    factory = keyword(node, "default_factory")
    if isinstance(factory, ast.Lambda):
        return factory.body
    if factory is not None:
        return ast.copy_location(ast.Call(func=factory, args=[], keywords=[]), factory)
    return keyword(node, "default") or node


def is_world(node):
    """Whether the expression is a number of processes."""
    name = last_name(node)
    if isinstance(node, ast.Call) and name in ("get", "getenv") and node.args:
        return RANK_VARIABLES.get(constant(node.args[0])) == "world"
    if isinstance(node, ast.Call) and name == "int":
        return bool(node.args) and is_world(node.args[0])
    if isinstance(node, ast.Call) and name in ("max", "min"):
        return any(is_world(a) for a in node.args)
    if isinstance(node, ast.Subscript):
        return bool(re.search(r"world_?size|WORLD_SIZE|nproc", str(constant(node.slice) or "")))
    return bool(re.search(r"(^|_)world_?size$|^(n_?gpus?|num_?gpus?|ngpus_per_node|nprocs?|nproc_per_node|num_replicas|"
                          r"num_processes|device_count|get_nproc_per_node|world)$", name or "", re.I))


def divides_by_world(node):
    """Whether a division by the number of processes stands in the expression (int(), max() and the like apart)."""
    pending = [node]
    while pending:
        n = pending.pop()
        if isinstance(n, ast.BinOp):
            if isinstance(n.op, (ast.Div, ast.FloorDiv)) and is_world(n.right):
                return True
            pending += [n.left, n.right]
        elif isinstance(n, ast.Call) and last_name(n) in ("int", "max", "min", "round", "ceil", "floor"):
            pending += n.args
    return False


# --- the project: modules that import each other -------------------------------------------------------------------


def attempt(read):
    """(what reading a file gives, "") or (None, why it cannot be read)."""
    try:
        return read(), ""
    except SyntaxError as e:
        return None, f"line {e.lineno or 1}: not Python that {sys.version.split()[0]} can read: {e.msg}"
    except (RecursionError, MemoryError):
        return None, "nested too deeply, or too large, to be read"
    except (OSError, ValueError) as e:
        return None, e.strerror if isinstance(e, OSError) and e.strerror else str(e)


def unparsable(path):
    """Why a file is no Python; "" when it is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return attempt(lambda: ast.parse(path.read_bytes()))[1]


class Project:
    """The files that were asked for, and those of their folders that they import."""

    def __init__(self, roots):
        self.roots = roots
        self.modules = {}  # path → Module, or None where it cannot be read
        self.unread = []  # (path, why), of files that were asked for
        self.found = {}
        self.importers = None  # path → modules that import it, once somebody asks

    def load(self, path, asked=False):
        path = Path(os.path.abspath(path))
        if path not in self.modules:
            self.modules[path], why = attempt(lambda: read_module(path, self))
            if asked and why:
                self.unread.append((path, why))
        return self.modules[path]

    def find(self, dotted, module):
        """(module of the project, names that are left) for a dotted import, or (None, [])."""
        key = (dotted, module)
        if key not in self.found:
            path, rest = self._find(dotted, module)
            self.found[key] = (self.load(path), rest) if path else (None, [])
        return self.found[key]

    def _find(self, dotted, module):
        level = len(dotted) - len(dotted.lstrip("."))
        parts = [p for p in dotted.split(".") if p]
        if not level and (not parts or parts[0] in ("torch", "ignite", "numpy", "os", "sys")):
            return None, []
        folder = module.path.parent
        if level:
            bases = [folder.parents[level - 2] if level > 1 and level - 2 < len(folder.parents) else folder]
        else:
            above = list(folder.parents)[:4]
            bases = [folder, *[p for p in above if any(p == r or r in p.parents for r in self.roots)]]
            if (folder / "__init__.py").exists() and folder.parent not in bases:
                bases.append(folder.parent)
        for base in bases:
            for n in range(len(parts), 0, -1):
                stem = base.joinpath(*parts[:n])
                for path in (stem.with_suffix(".py") if stem.name else stem, stem / "__init__.py"):
                    try:
                        if path.is_file() and path != module.path:
                            return path, parts[n:]
                    except (OSError, ValueError):
                        return None, []
        return None, []


def imported(scope, name):
    """The dotted name that a name was imported as, seen from the scope; None when it is not imported."""
    for s in all_scopes(scope):
        if isinstance(s.node, ast.ClassDef) and s is not scope:
            continue
        if name in s.imports and name != "*":
            return s.imports[name]
        if name in s.functions or name in s.classes or name in s.bound:
            return None
        for base in s.imports.get("*", ()):
            if base == "ignite.distributed" and name in SIGNATURES | dict.fromkeys(
                    [*IDIST_COLLECTIVES, *GETTERS, "Parallel", "initialize", "spawn", "auto_dataloader", "auto_optim"]):
                return f"{base}.{name}"
            if base == "torch.distributed" and name in TORCH_COLLECTIVES | {"get_rank", "get_world_size"}:
                return f"{base}.{name}"
    return None


def resolve(node, scope, depth=0):
    """The library's name of an expression such as idist.all_reduce; "" when it is the program's own or unknown."""
    key = (id(node), id(scope))
    cache = scope.module.project.found
    if key not in cache:
        cache[key] = ""
        cache[key] = _resolve(node, scope, depth)
    return cache[key]


def _resolve(node, scope, depth):
    parts = chain(node)
    if parts is None:
        if isinstance(node, ast.Call) and last_name(node) == "partial" and node.args and depth < 6:
            return resolve(node.args[0], scope, depth + 1)
        return ""
    dotted = imported(scope, parts[0])
    if dotted:
        if dotted.startswith(".") or dotted.partition(".")[0] not in ("ignite", "torch"):
            module, rest = scope.module.project.find(dotted, scope.module)
            if module is not None and depth < 6:  # a name that a module of the project has from a library
                names = [*rest, *parts[1:]]
                if names:
                    target = ast.Name(id=names[0], ctx=ast.Load())
                    for n in names[1:]:
                        target = ast.Attribute(value=target, attr=n, ctx=ast.Load())
                    scope.module.project.found.setdefault("kept", []).append(target)
                    return resolve(target, module.top, depth + 1)
                return ""
            if module is not None:
                return ""
        return canonical(".".join([dotted, *parts[1:]]))
    if depth < 6:
        if parts[0] == "self" and len(parts) == 2 and scope.owner is not None:
            values = scope.owner.attributes.get(parts[1], [])
            if len(values) == 1 and values[0][0] is not None and not isinstance(values[0][0], ast.Call):
                return resolve(values[0][0], values[0][2], depth + 1)
            return ""
        for s in all_scopes(scope):
            if parts[0] in s.functions or parts[0] in s.classes:
                return ""
            if parts[0] in s.bound:
                values = s.bound[parts[0]]
                if len(values) == 1 and values[0][0] is not None and values[0][1] is None:
                    base = resolve(values[0][0], s, depth + 1)
                    return canonical(".".join([base, *parts[1:]])) if base else ""
                return ""
    return ""


@kept
def definition(node, scope, depth=0):
    """What calling an expression runs: the project's function or class (a Scope), or None.

    Through partials, functions that return functions, methods of instances whose class the project has, super() and
    `__call__`.
    """
    if depth > 6 or node is None:
        return None
    if isinstance(node, ast.Lambda):
        return scope.module.scope_of.get(id(node))
    if isinstance(node, ast.Call):
        if last_name(node) == "partial" and node.args:
            return definition(node.args[0], scope, depth + 1)
        made = definition(node.func, scope, depth + 1)
        if made is None:
            return None
        if isinstance(made.node, ast.ClassDef):
            return method(made, "__call__")
        found = {definition(v, s, depth + 1) for v, _, s in returned(made)} if is_factory(made) else ()
        return found.pop() if len(found) == 1 else None
    if isinstance(node, ast.Attribute):
        return attribute_definition(node, scope, depth)
    if not isinstance(node, ast.Name):
        return None
    for s in all_scopes(scope):
        if isinstance(s.node, ast.ClassDef) and s is not scope:
            continue
        if node.id in s.imports:
            module, rest = s.module.project.find(s.imports[node.id], s.module)
            return member(module.top, rest, depth + 1) if module is not None else None
        if node.id in s.functions or node.id in s.classes:
            return member(s, [node.id], depth + 1)
        if node.id in s.bound:
            values = s.bound[node.id]
            if len(values) == 1 and values[0][1] is not None:
                made = unpacked_from_call(node, s) or ()
                return definition(*made[0], depth + 1) if len(made) == 1 else None
            return definition(values[0][0], s, depth + 1) if len(values) == 1 else None
        for base in s.imports.get("*", ()):
            module, rest = s.module.project.find(base, s.module)
            if module is not None and not rest and (node.id in module.top.functions or node.id in module.top.classes):
                return member(module.top, [node.id], depth + 1)
    return None


def attribute_definition(node, scope, depth):
    """The same for `a.b`: a member of a module or a class, or a method of what `a` is an instance of."""
    parts = chain(node)
    if parts is not None and parts[0] not in ("self", "cls"):
        for s in all_scopes(scope):
            if isinstance(s.node, ast.ClassDef) and s is not scope:
                continue
            if parts[0] in s.imports:
                module, rest = s.module.project.find(s.imports[parts[0]], s.module)
                found = member(module.top, [*rest, *parts[1:]], depth + 1) if module is not None else None
                if found is not None or module is None:
                    return found
            elif parts[0] in s.classes:
                return member(s, parts, depth + 1)
            elif parts[0] not in s.bound:
                continue
            break
    owner = instance_of(node.value, scope, depth + 1)
    if owner is None:
        return None
    found = method(owner, node.attr)
    if parts is not None and parts[0] in ("self", "cls") and len(parts) == 2 and (found is None or is_abstract(found)):
        below = [c.functions[node.attr] for c in subclasses(owner) if node.attr in c.functions]
        found = below[0] if len(below) == 1 else found
    if found is None:
        values = attributes_of(owner, node.attr)
        if len(values) == 1 and values[0][0] is not None and values[0][1] is None:
            return definition(values[0][0], values[0][2], depth + 1)
    return found


@kept
def is_factory(function):
    """Whether a function returns functions or objects of its own, and so may stand where a function is wanted."""
    return bool(function.functions) or any(
        isinstance(v, (ast.Lambda, ast.Name, ast.Attribute, ast.Call)) for v, _, _ in returned(function))


def is_abstract(function):
    body = getattr(function.node, "body", ())
    return isinstance(body, list) and all(
        isinstance(n, (ast.Pass, ast.Raise)) or isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)
        for n in body)


@kept
def bases_of(owner) -> list:
    """The base classes that the project has."""
    found = [definition(b, owner.parent) for b in owner.node.bases]
    return [f for f in found if f is not None and isinstance(f.node, ast.ClassDef) and f is not owner]


@kept
def lineage(owner) -> list:
    """A class of the project and all that it inherits from, nearest first."""
    found = [owner]
    for c in found:
        found += [b for b in bases_of(c) if b not in found]
    return found[:20]


def subclasses(owner):
    return [s for s in owner.module.scopes
            if isinstance(s.node, ast.ClassDef) and s is not owner and owner in lineage(s)]


def inherits(owner, name):
    """Whether a class of the project has a base whose name contains this."""
    return any(name in last_name(b) for c in lineage(owner) for b in c.node.bases)


def attributes_of(owner, name):
    """[(expression, index, scope), …]: what self.NAME is assigned in a class, or in the nearest one above it."""
    for c in lineage(owner):
        if name in c.attributes:
            return c.attributes[name]
        if name in c.bound:
            return [(v, i, c) for v, i in c.bound[name]]
    return []


def member(scope, names, depth):
    for i, name in enumerate(names):
        if name in scope.functions:
            return scope.functions[name] if i == len(names) - 1 else None
        if name in scope.classes:
            scope = scope.classes[name]
            continue
        if depth < 6 and name in scope.imports:
            module, rest = scope.module.project.find(scope.imports[name], scope.module)
            return member(module.top, [*rest, *names[i + 1:]], depth + 1) if module is not None else None
        if depth < 6 and name in scope.bound and i == len(names) - 1 and len(scope.bound[name]) == 1:
            return definition(scope.bound[name][0][0], scope, depth + 1)
        return None
    return scope if names else None


def method(owner, name):
    """The method of a class or of a base class that the project has."""
    return next((c.functions[name] for c in lineage(owner) if name in c.functions), None) if owner is not None else None


def values_of(node, scope):
    """What the expression may have been assigned: [(expression, index, scope), …]; [(node, None, scope)] for itself."""
    if isinstance(node, ast.Name):
        for s in all_scopes(scope):
            if isinstance(s.node, ast.ClassDef) and s is not scope:
                continue
            if node.id in s.bound:
                return [(v, i, s) for v, i in s.bound[node.id]]
            if node.id in s.functions or node.id in s.classes:
                return []
            if node.id in s.imports:
                module, rest = s.module.project.find(s.imports[node.id], s.module)
                if module is not None and len(rest) == 1 and rest[0] in module.top.bound:
                    return [(v, i, module.top) for v, i in module.top.bound[rest[0]]]
                return []
        return []
    if isinstance(node, ast.Attribute):
        owner = instance_of(node.value, scope) if isinstance(node.value, (ast.Name, ast.Attribute)) else None
        return attributes_of(owner, node.attr) if owner is not None else []
    return [(node, None, scope)]


@kept
def instance_of(node, scope, depth=0):
    """The project's class (a Scope) that an expression is an instance of, or None."""
    if depth > 6:
        return None
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            return next(iter(bases_of(scope.owner)), None) if scope.owner is not None else None
        found = definition(node.func, scope, depth + 1)
        if found is None and isinstance(node.func, ast.Attribute) and node.func.attr in KEEPS_MODEL:
            return instance_of(node.func.value, scope, depth + 1)
        if found is None:
            return None
        if isinstance(found.node, ast.ClassDef):
            return found
        for value, _, s in returned(found):
            inner = instance_of(value, s, depth + 1)
            if inner is not None:
                return inner
        return None
    if isinstance(node, ast.Name) and node.id in ("self", "cls"):
        return scope.owner
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return None
    for value, index, s in values_of(node, scope):
        if value is None and isinstance(node, ast.Name):
            given = {instance_of(v, x, depth + 1) for v, _, x in handed(node.id, s)}
            found = given.pop() if len(given) == 1 else None
        else:
            followed = value is not None and value is not node and index is None
            found = instance_of(value, s, depth + 1) if followed else None
        if found is not None:
            return found
    for value, s in unpacked_from_call(node, scope) or ():
        found = instance_of(value, s, depth + 1)
        if found is not None:
            return found
    return None


def returned(function):
    """[(expression, None, scope)] of what the function returns."""
    cached = getattr(function.node, "_returned", None)
    if cached is None:
        values = [function.node.body] if isinstance(function.node, ast.Lambda) else [
            n.value for n in own_nodes(function.node) if isinstance(n, ast.Return) and n.value]
        cached = function.node._returned = [(v, None, function) for v in values]
    return cached


def own_nodes(node):
    """Nodes below a function, class or module, without those of functions and classes inside it."""
    cached = getattr(node, "_own", None)
    if cached is None:
        cached, pending = [], list(reversed(list(ast.iter_child_nodes(node))))
        while pending:
            n = pending.pop()
            cached.append(n)
            if not isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
                pending += reversed(list(ast.iter_child_nodes(n)))
        node._own = cached
    return cached


# --- values: what an expression may be, and which arguments a call has ----------------------------------------------


def each_once(ask):
    """Let what a question finds more than once stand in its answer once: ways to one place multiply with each step."""
    @functools.wraps(ask)
    def answer(*args):
        return list(dict.fromkeys(ask(*args)))

    return answer


@kept
@each_once
def sources(node, scope, depth=0) -> list:
    """[(expression, scope), …]: what an expression may be, where names, attributes, conditions, items of dicts,
    parameters (by callers and defaults) and what functions return are followed; (None, scope) for what cannot be seen.
    """
    if node is None or depth > 6:
        return [(None, scope)]
    if isinstance(node, ast.IfExp):
        return [*sources(node.body, scope, depth + 1), *sources(node.orelse, scope, depth + 1)]
    if isinstance(node, ast.BoolOp):
        return [x for v in node.values for x in sources(v, scope, depth + 1)]
    if isinstance(node, ast.NamedExpr):
        return sources(node.value, scope, depth + 1)
    if isinstance(node, ast.Subscript):
        if isinstance(constant(node.slice), str):
            found = entries(node.value, scope, depth + 1)[0].get(node.slice.value, ())
        else:
            found = items_of(node, scope, depth)
        return [x for v, s in found for x in sources(v, s, depth + 1)] or [(node, scope)]
    if isinstance(node, ast.Call):
        if last_name(node) == "get" and node.args and isinstance(constant(node.args[0]), str) and isinstance(
                node.func, ast.Attribute):
            found = entries(node.func.value, scope, depth + 1)[0].get(node.args[0].value, ())
            return [x for v, s in found for x in sources(v, s, depth + 1)] or [(node, scope)]
        function = definition(node.func, scope)
        made = returned(function) if function is not None and function.is_function else ()
        return [x for v, _, s in made for x in sources(v, s, depth + 1)] or [(node, scope)]
    if isinstance(node, ast.Starred) and isinstance(node.value, ast.Call) and last_name(node.value) == "values" and (
            isinstance(node.value.func, ast.Attribute)):
        held = entries(node.value.func.value, scope, depth + 1)[0].values()
        return [x for values in held for v, s in values for x in sources(v, s, depth + 1)] or [(node, scope)]
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return [(node, scope)]
    values = [v for v in values_of(node, scope) if v[0] is not node] or members_of(node, scope, depth)
    if not values and isinstance(node, ast.Attribute):
        found = entries(node.value, scope, depth + 1)[0].get(node.attr, ())
        return [x for v, s in found for x in sources(v, s, depth + 1)] or [(node, scope)]
    found = []
    for value, index, s in values:
        if value is None:
            given = handed(node.id, s, True) if isinstance(node, ast.Name) else []
            found += [x for v, _, inner in given for x in sources(v, inner, depth + 1)] or [(None, s)]
        elif index is None:
            found += sources(value, s, depth + 1)
        else:
            for v, inner in [(value, s)] if isinstance(value, (ast.Tuple, ast.List)) else sources(value, s, depth + 1):
                found += sources(part(v, index), inner, depth + 1)
    return found or [(node, scope)]


def members_of(node, scope, depth):
    """[(expression, index, scope), …] for `Reduction.MAX` of a class, for `.value` of what may be such a member, and
    for a field of self that the constructor of a dataclass is given.
    """
    if not isinstance(node, ast.Attribute):
        return []
    own = instance_of(node.value, scope) if isinstance(node.value, ast.Name) and node.value.id == "self" else None
    if own is not None and node.attr in field_names(own):
        return [(v, None, x) for call, s in calls_of(own) for v, x in entries_of_call(call, s, depth)[0].get(
            node.attr, ())]
    owner = definition(node.value, scope)
    if owner is not None and isinstance(owner.node, ast.ClassDef):
        return attributes_of(owner, node.attr)
    return [(v, None, s) for v, s in sources(node.value, scope, depth + 1) if isinstance(
        v, ast.Constant)] if node.attr == "value" else []


def items_of(node, scope, depth):
    """[(expression, scope), …] for `a[0]` and `a[i]` where `a` is a list, a tuple or a dict that is written out."""
    found, key = [], constant(node.slice)
    for value, s in sources(node.value, scope, depth + 1) if not isinstance(node.slice, ast.Slice) else ():
        if isinstance(value, ast.Dict):
            found += [(v, s) for v in value.values]
        elif isinstance(value, (ast.List, ast.Tuple)):
            found += [(v, s) for v in (value.elts[key:key + 1] if isinstance(key, int) and key >= 0 else value.elts)]
    return found


MAPPINGS = {"dict", "OrderedDict", "SimpleNamespace", "Namespace", "EasyDict", "edict", "AttrDict", "Munch", "ChainMap",
            "MappingProxyType"}


@kept
def entries(node, scope, depth=0) -> tuple:
    """({key: [(expression, scope), …]}, whether there are no others) of a dict, or of an object with fields."""
    if node is None or depth > 6:
        return {}, False
    if isinstance(node, ast.Dict):
        found, whole = {}, True
        for key, value in zip(node.keys, node.values):
            if key is None:
                inner, closed = entries(value, scope, depth + 1)
                found.update(inner)
                whole = whole and closed
            elif isinstance(constant(key), str):
                found[key.value] = [(value, scope)]
            else:
                whole = False
        return found, whole
    if isinstance(node, ast.DictComp):  # of the items of another one
        items = node.generators[0].iter
        same = isinstance(node.key, ast.Name) and text_of(node.generators[0].target).startswith(
            f"Tuple([{text_of(node.key)}, {text_of(node.value)}]") and last_name(items) == "items"
        return (entries(items.func.value, scope, depth + 1)[0] if same else {}), False
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        (left, a), (right, b) = entries(node.left, scope, depth + 1), entries(node.right, scope, depth + 1)
        return {**left, **right}, a and b
    if isinstance(node, ast.Call):
        return entries_of_call(node, scope, depth)
    if isinstance(node, ast.IfExp):
        return merged([entries(v, scope, depth + 1) for v in (node.body, node.orelse)])
    if isinstance(node, ast.BoolOp):
        return merged([entries(v, scope, depth + 1) for v in node.values if constant(v) is not None or not isinstance(
            v, ast.Constant)])
    if not isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
        return {}, False
    if isinstance(node, ast.Name) and node.id in ("self", "cls") and scope.owner is not None:
        return fields_of(scope.owner), False
    if isinstance(node, (ast.Name, ast.Attribute)):
        inner = []
        for value, index, s in values_of(node, scope):
            if value is None and is_rest(node, s):
                inner += [entries_of_rest(c, s, x) for c, x in calls_of(s)] or [({}, False)]
            elif value is None and isinstance(node, ast.Name):
                inner += [entries(v, x, depth + 1) for v, _, x in handed(node.id, s, True)] or [({}, False)]
            else:
                inner.append(entries(value, s, depth + 1) if index is None and value is not node else ({}, False))
        found = definition(node, scope) if not inner and isinstance(node, ast.Attribute) else None
        if found is not None and found.is_function and is_property(found):
            inner = [entries(v, s, depth + 1) for v, _, s in returned(found)]
        if not inner and isinstance(node, ast.Attribute):
            inner = [entries(v, s, depth + 1) for v, s in entries(node.value, scope, depth + 1)[0].get(node.attr, ())]
        found, whole = merged(inner)
        later, closed = entries_put_in(node, scope)
        gone = taken_out(node, scope)
        found = {k: v for k, v in found.items() if k not in gone}
        return {k: [*found.get(k, ()), *later.get(k, ())] for k in {**found, **later}}, whole and closed
    return merged([entries(v, s, depth + 1) for v, s in sources(node, scope, depth + 1) if v is not node])


def is_rest(node, scope):
    """Whether a name is the `**rest` of a function."""
    rest = getattr(getattr(scope.node, "args", None), "kwarg", None)
    return rest is not None and isinstance(node, ast.Name) and node.id == rest.arg


def entries_of_rest(call, function, scope):
    """What a call puts into the `**rest` of a function."""
    named = {*function.parameters, *(a.arg for a in function.node.args.kwonlyargs)}
    found, whole = keywords_of(call, scope)
    return {k: v for k, v in found.items() if k not in named}, whole


def entries_of_call(node, scope, depth):
    last = last_name(node)
    function = definition(node.func, scope)
    if function is not None and function.is_function:
        return merged([entries(v, s, depth + 1) for v, _, s in returned(function)])
    given = {k.arg: [(k.value, scope)] for k in node.keywords if k.arg}
    if function is not None:
        names = field_names(function) if method(function, "__init__") is None else []
        given.update((n, [(a, scope)]) for n, a in zip(names, node.args) if not isinstance(a, ast.Starred))
        return {**fields_of(function), **given}, False
    if isinstance(node.func, ast.Attribute) and last == "copy" and not node.args:
        return entries(node.func.value, scope, depth + 1)
    if last in ("copy", "deepcopy", "vars", "asdict", "MappingProxyType") and len(node.args) == 1:
        return entries(node.args[0], scope, depth + 1)
    if last not in MAPPINGS:
        return {}, False
    found, whole = {}, True
    for inner, closed in [*(entries(a, scope, depth + 1) for a in node.args),
                          *(entries(k.value, scope, depth + 1) for k in node.keywords if k.arg is None)]:
        found.update(inner)
        whole = whole and closed
    return {**found, **given}, whole


def field_names(owner):
    """The fields of a dataclass or a NamedTuple, in the order in which its constructor takes them."""
    return list(dict.fromkeys(n.target.id for c in reversed(lineage(owner)) for n in c.node.body if isinstance(
        n, ast.AnnAssign) and isinstance(n.target, ast.Name)))


def fields_of(owner):
    """{name: [(expression, scope), …]} of the attributes of a class's instances."""
    found = {}
    for c in reversed(lineage(owner)):
        found.update((n, [(v, c) for v, i in values if v is not None and i is None]) for n, values in c.bound.items())
        found.update((n, [(v, s) for v, i, s in values if v is not None and i is None])
                     for n, values in c.attributes.items())
    return {n: values for n, values in found.items() if values}


def taken_out(node, scope):
    """The keys that a function takes out of a dict, wherever it comes by: `d.pop("key")`, `del d["key"]`."""
    if not isinstance(node, ast.Name) or not scope.is_function:
        return set()
    pops = {constant(c.args[0]) for c in scope.calls if last_name(c) == "pop" and c.args and isinstance(
        c.func, ast.Attribute) and text_of(c.func.value) == text_of(node) and not under_condition(c, scope)}
    gone = [t for n in own_nodes(scope.node) if isinstance(n, ast.Delete) for t in n.targets]
    return pops | {constant(t.slice) for t in gone if isinstance(t, ast.Subscript)
                   and text_of(t.value) == text_of(node) and not under_condition(t, scope)}


def entries_put_in(node, scope):
    """The same for what is put into a dict later: `d["key"] = …`, `d.update(…)`, `d.setdefault("key", …)`."""
    home = next((s for s in all_scopes(scope) if isinstance(node, ast.Name) and node.id in s.bound), scope)
    found, whole, wanted = {}, True, text_of(node)
    for s in dict.fromkeys((home, scope)):
        for n in own_nodes(s.node):
            if isinstance(n, ast.Assign):
                for t in n.targets:
                    if isinstance(t, ast.Subscript) and text_of(t.value) == wanted:
                        key = constant(t.slice)
                        if isinstance(key, str):
                            found.setdefault(key, []).append((n.value, s))
                        whole = whole and isinstance(key, str)
            elif isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr in (
                    "update", "setdefault") and text_of(n.func.value) == wanted:
                if n.func.attr == "update":
                    inner, closed = merged([entries(a, s, 3) for a in n.args])
                    inner = {**inner, **{k.arg: [(k.value, s)] for k in n.keywords if k.arg}}
                else:
                    closed = len(n.args) == 2 and isinstance(constant(n.args[0]), str)
                    inner = {n.args[0].value: [(n.args[1], s)]} if closed else {}
                for key, values in inner.items():
                    found.setdefault(key, []).extend(values)
                whole = whole and (closed or not n.args)
    return found, whole


def merged(parts):
    """Dicts of which an expression is one."""
    found = {}
    for inner, _ in parts:
        for key, values in inner.items():
            found.setdefault(key, []).extend(v for v in values if v not in found.get(key, ()))
    return found, bool(parts) and all(closed for _, closed in parts)


@kept
def keywords_of(call, scope) -> tuple:
    """({name: [(expression, scope), …]}, whether there are no others): the keyword arguments of a call, those out of
    dicts and of a partial included."""
    found, whole = {}, True
    for value, _, s in values_of(call.func, scope) if isinstance(call.func, (ast.Name, ast.Attribute)) else ():
        if isinstance(value, ast.Call) and last_name(value) == "partial":
            inner, closed = keywords_of(value, s)
            found.update(inner)
            whole = whole and closed
    for k in call.keywords:
        if k.arg is not None:
            found[k.arg] = [(k.value, scope)]
        else:
            inner, closed = entries(k.value, scope)
            found.update(inner)
            whole = whole and closed
    return found, whole


def given(call, name, position, scope):
    """[(expression, scope), …]: what an argument of a call may be; nothing where it is not given, or is None."""
    if position is not None and 0 <= position < len(call.args):
        direct = keyword(call, name, position)
        return [(direct, scope)] if direct is not None else []
    return [(v, s) for v, s in keywords_of(call, scope)[0].get(name, ())
            if not (isinstance(v, ast.Constant) and v.value is None)]


def first_given(call, name, position, scope):
    """(expression, scope) of an argument, or (None, scope)."""
    return next(iter(given(call, name, position, scope)), (None, scope))


def prepared(call, name, scope):
    """The partial that gives an argument to a call, else the call."""
    if all(k.arg != name for k in call.keywords) and isinstance(call.func, (ast.Name, ast.Attribute)):
        for value, _, s in values_of(call.func, scope):
            if isinstance(value, ast.Call) and keyword(value, name) is not None and s.module is scope.module:
                return value
    return call


def place(node, scope, call, at):
    """Where to report an argument: itself, or the call where it stands in another file."""
    return node if scope.module is at.module else call


def argument(node, call):
    """Where to report an argument of a call: at itself where the call has several lines, so that it is found there."""
    return node if node is not None and call.lineno < node.lineno <= call.end_lineno else call


# --- conditions: what an expression is on each of four ranks --------------------------------------------------------

# alike everywhere as far as one can see; differs with the rank, one cannot see how; differs with each rank's data
UNKNOWN, RANKED, LOCAL = "unknown", "ranked", "local"


def small(function):
    """An operator for numbers that a rank is reckoned with: what a file multiplies may be gigabytes otherwise."""
    def applied(a, b):
        if not all(isinstance(v, (int, float)) and abs(v) < 2 ** 64 for v in (a, b)):
            raise ValueError("no small number")
        return function(a, b)

    return applied


OPERATORS = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: lambda a, b: a is b, ast.IsNot: lambda a, b: a is not b,
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
    **{kind: small(function) for kind, function in (
        (ast.Add, operator.add), (ast.Sub, operator.sub), (ast.Mult, operator.mul), (ast.Mod, operator.mod),
        (ast.FloorDiv, operator.floordiv), (ast.Div, operator.truediv))},
}


def varies(value):
    return value in (RANKED, LOCAL) or isinstance(value, tuple) and len({repr(v) for v in value}) > 1


def per_rank(function, *operands):
    if RANKED in operands:
        return RANKED
    if LOCAL in operands:
        return LOCAL
    if UNKNOWN in operands:
        return RANKED if any(varies(v) for v in operands) else UNKNOWN
    try:
        return tuple(function(*v) for v in zip(*operands))
    except Exception:
        return RANKED if any(varies(v) for v in operands) else UNKNOWN


def together(*items):
    """A tuple of items, which may be tuples of plain items; what is nested deeper is not followed."""
    if any(isinstance(inner, tuple) for i in items if isinstance(i, tuple) for inner in i):
        raise ValueError("nested")
    return items


def value_on_ranks(node, scope, depth=0):
    """A tuple of the values on the four ranks, UNKNOWN, RANKED or LOCAL."""
    if depth > 12:
        return UNKNOWN
    node = in_full(node)
    if isinstance(node, ast.Constant):
        return (node.value,) * 4
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        parts = [value_on_ranks(e, scope, depth + 1) for e in node.elts]
        return per_rank(together, *parts) if parts else ((),) * 4
    if isinstance(node, ast.BinOp):
        if type(node.op) not in OPERATORS:
            return UNKNOWN
        pair = value_on_ranks(node.left, scope, depth + 1), value_on_ranks(node.right, scope, depth + 1)
        return per_rank(OPERATORS[type(node.op)], *pair)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return per_rank(operator.neg, value_on_ranks(node.operand, scope, depth + 1))
    if isinstance(node, (ast.Compare, ast.BoolOp)) or isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        tried = condition(node, scope, depth + 1)
        if "L" in tried:
            return LOCAL
        if "R" in tried or "U" in tried:
            return RANKED if differs(tried) else UNKNOWN
        return tuple(t == "T" for t in tried)
    if isinstance(node, ast.NamedExpr):
        return value_on_ranks(node.value, scope, depth + 1)
    if isinstance(node, ast.IfExp):
        both = value_on_ranks(node.body, scope, depth + 1), value_on_ranks(node.orelse, scope, depth + 1)
        return joined(both)
    if isinstance(node, ast.Subscript):
        return subscript_on_ranks(node, scope, depth)
    if isinstance(node, ast.Call):
        return call_on_ranks(node, scope, depth)
    if isinstance(node, (ast.Name, ast.Attribute)):
        key = (node.id if isinstance(node, ast.Name) else id(node), id(scope))
        if key not in scope.module.known:
            scope.module.known[key] = UNKNOWN
            scope.module.known[key] = name_on_ranks(node, scope, depth)
        return scope.module.known[key]
    return UNKNOWN


def joined(values):
    """One value out of several that a name may have: a constant beside a rank is the default of a serial run."""
    values = [v for v in values if v != UNKNOWN]
    if not values:
        return UNKNOWN
    ranked = [v for v in values if varies(v)]
    if ranked:
        return ranked[0] if all(v == ranked[0] for v in ranked) else RANKED
    return values[0] if len({repr(v) for v in values}) == 1 else UNKNOWN


def subscript_on_ranks(node, scope, depth):
    key = constant(node.slice)
    if isinstance(key, str):
        if last_name(node.value) == "environ" and key in RANK_VARIABLES:
            return tuple(str(v) for v in WORLD[RANK_VARIABLES[key]])
        if last_name(node.value) == "environ":
            return UNKNOWN
        return attribute_on_ranks(key, scope, depth)
    return UNKNOWN


def call_on_ranks(node, scope, depth):
    name = resolve(node.func, scope)
    last = name.rpartition(".")[2] or last_name(node)
    if not name and isinstance(node.func, ast.Name) and last in ("int", "str", "bool", "float"):
        kind = {"int": int, "str": str, "bool": bool, "float": float}[last]
        return per_rank(kind, value_on_ranks(node.args[0], scope, depth + 1)) if node.args else UNKNOWN
    if last in ("get", "getenv", "pop") and node.args and (last == "getenv" or last_name(node.func.value) == "environ"
                                                   if isinstance(node.func, ast.Attribute) else last == "getenv"):
        key = constant(node.args[0])
        if key in RANK_VARIABLES:
            return tuple(str(v) for v in WORLD[RANK_VARIABLES[key]])
        return UNKNOWN
    if last == "get" and node.args and isinstance(constant(node.args[0]), str):
        return attribute_on_ranks(constant(node.args[0]), scope, depth)
    if name.startswith((IDIST, TORCH_DIST)) and last in RANK_CALLS:
        grouped = name.startswith(TORCH_DIST) and (node.args or node.keywords)
        return (RANKED if "rank" in last else UNKNOWN) if grouped else WORLD[RANK_CALLS[last]]
    if name in ("torch.tensor", "torch.as_tensor") and node.args:
        inner = node.args[0]
        return value_on_ranks(inner.elts[0] if isinstance(inner, ast.List) and len(inner.elts) == 1 else inner, scope,
                              depth + 1)
    if name.startswith(("ignite.", "torch.")):
        return UNKNOWN
    found = definition(node.func, scope)
    if found is None and not node.args and isinstance(node.func, ast.Attribute) and last in (
            "item", "tolist", "bool", "any", "all", "sum", "cpu", "detach", "float", "int", "long"):
        inner = value_on_ranks(node.func.value, scope, depth + 1)
        if inner == LOCAL:
            return LOCAL
        return RANKED if varies(inner) and only_its_own(node.func.value, scope) else UNKNOWN
    if found is not None and found.is_function:
        return result_on_ranks(found, depth)
    if last == "getattr" and len(node.args) > 1 and isinstance(constant(node.args[1]), str):
        return attribute_on_ranks(constant(node.args[1]), scope, depth)
    if found is None and last in RANK_CALLS:
        return WORLD[RANK_CALLS[last]]
    if found is None and IS_MAIN.match(last):
        return (True, False, False, False)
    return UNKNOWN


def only_its_own(node, scope):
    """Whether a tensor is surely not shared between ranks: a name that nothing but torch's own functions are given."""
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} - set(scope.imports)
    harmless = ("print", "float", "int", "len", "str", "append")
    return not any(isinstance(a, ast.Name) and a.id in names for c in scope.calls if last_name(c) not in harmless
                   for a in [*c.args, *[k.value for k in c.keywords]])


def result_on_ranks(function, depth):
    values = [value_on_ranks(v, s, depth + 2) for v, _, s in returned(function)]
    return joined(values)


def name_on_ranks(node, scope, depth):
    last = last_name(node)
    if isinstance(node, ast.Name):
        for s in all_scopes(scope):
            if isinstance(s.node, ast.ClassDef) and s is not scope:
                continue
            if s.on_ranks and s.parameters and node.id in s.bound and len(s.bound[node.id]) == 1:
                own = [p for p in s.parameters if p not in ("self", "cls")]
                if own and own[0] == node.id:
                    return WORLD["local"]
            if node.id in s.bound:
                break
        values = values_of(node, scope)
        if depth < 6 and (owned := on_some_ranks(node, values, scope)) is not None:
            return owned
        known = [(v, i, s) for v, i, s in values if v is not None]
        if known:
            got = joined([value_on_ranks(item(v, i), s, depth + 2) for v, i, s in known])
            if got == LOCAL and origin(node, scope) == "reduced":
                return UNKNOWN
            if varies(got) and not only_its_own(node, scope) and any(
                    isinstance(n, ast.Call) and resolve(n.func, s).startswith("torch.") and not resolve(
                        n.func, s).startswith(TORCH_DIST) for v, _, s in known for n in ast.walk(v)):
                return UNKNOWN  # a tensor that may have been shared
            if got != UNKNOWN or len(known) == len(values) and all(isinstance(v, ast.Constant) for v, _, _ in known):
                return got
            if all(isinstance(v, ast.Constant) for v, _, _ in known) and len(known) < len(values):
                return by_name(last)
            if any(isinstance(v, (ast.Call, ast.Subscript, ast.Attribute, ast.Name)) for v, _, _ in known):
                return by_name(last)
            return UNKNOWN
        named_so = by_name(last)
        return handed_on_ranks(node, scope, depth) if named_so == UNKNOWN and depth < 6 else named_so
    if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
        values = values_of(node, scope)
        if depth < 6 and (owned := on_some_ranks(node, values, scope)) is not None:
            return owned
        known = [(v, i, s) for v, i, s in values if v is not None]
        got = joined([value_on_ranks(item(v, i), s, depth + 2) for v, i, s in known])
        if got != UNKNOWN:
            return got
        found = method(scope.owner, node.attr)
        if found is not None and is_property(found):
            return result_on_ranks(found, depth)
    elif depth < 6:
        owner = instance_of(node.value, scope)
        found = method(owner, node.attr) if owner is not None else None
        if found is not None and is_property(found):
            return result_on_ranks(found, depth)
    return attribute_on_ranks(last, scope, depth)


class Something:
    """An object that a rank has where others have None."""


def on_some_ranks(node, values, scope):
    """(object or None on each rank) of what is made on some ranks and None on the others, in one expression or by an
    `if` behind a None; None for anything else, and for what is shared afterwards."""
    if any(re.search(r"broadcast|gather|reduce|scatter|sync|share", last_name(c)) and any(
            chain(n) == chain(node) for a in c.args for n in ast.walk(a) if isinstance(n, (ast.Name, ast.Attribute)))
            for c in scope.calls):
        return None
    made = [(v, s) for v, i, s in values if v is not None and i is None]
    if len(made) != len(values):
        return None
    is_none = lambda v: isinstance(v, ast.Constant) and v.value is None  # noqa: E731
    tried = None
    if len(made) == 1 and isinstance(made[0][0], ast.IfExp):
        (one, s), = made
        for value, other in ((one.body, one.orelse), (one.orelse, one.body)):
            if isinstance(value, ast.Call) and is_none(other):
                tried = negate(condition(one.test, s)) if value is one.orelse else condition(one.test, s)
    elif len(made) == 2 and len(filled := [(v, s) for v, s in made if not is_none(v)]) == 1:
        (value, s), = filled
        around = [(n.test, branch is n.orelse) for n in own_nodes(s.node) if isinstance(n, ast.If)
                  for branch in (n.body, n.orelse) if any(b.lineno <= value.lineno <= b.end_lineno for b in branch)]
        if isinstance(value, ast.Call) and len(around) == 1:
            (test, otherwise), = around
            tried = negate(condition(test, s)) if otherwise else condition(test, s)
    if tried is None or not differs(tried) or set(tried) - {"T", "F"}:
        return None
    return tuple(Something if t == "T" else None for t in tried)


def handed_on_ranks(node, scope, depth):
    """The value of a parameter for which every call hands over the same question about the rank."""
    values = [value_on_ranks(v, s, depth + 2) for v, _, s in handed(node.id, scope, True)]
    return values[0] if values and varies(values[0]) and all(v == values[0] for v in values) else UNKNOWN


def is_property(function):
    return any(last_name(d) in ("property", "cached_property") for d in getattr(function.node, "decorator_list", ()))


def attribute_on_ranks(name, scope, depth):
    known = scope.module.known
    if name not in known:
        known[name] = by_name(name)  # what it is while it is being looked up
        values = scope.module.assigned.get(name, ())
        got = joined([value_on_ranks(item(v, i), s, depth + 2) for v, i, s in values])
        if varies(got) and got != LOCAL:
            known[name] = got
    return known[name]


def by_name(name):
    lower = name.lower()
    if lower in RANK_NAMES:
        return WORLD[RANK_NAMES[lower]]
    if IS_MAIN.match(name):
        return (True, False, False, False)
    return UNKNOWN


def item(value, index):
    """The expression for one item of an assigned tuple, as a subscript that nobody understands unless it is one."""
    if index is None:
        return value
    return ast.Subscript(value=value, slice=ast.Constant(value=index), ctx=ast.Load())


def differs(tried):
    """Whether ranks may disagree on a condition that was tried on four of them."""
    return "R" in tried or "L" in tried or len(set(tried)) > 1


def negate(tried):
    if tried is ALWAYS or tried is NEVER:
        return NEVER if tried is ALWAYS else ALWAYS
    return tuple({"T": "F", "F": "T"}.get(t, t) for t in tried)


def both(a, b):
    if a is ALWAYS:
        return b
    if b is ALWAYS or a is NEVER:
        return a
    if b is NEVER:
        return b
    return tuple("F" if "F" in p else "R" if "R" in p else "L" if "L" in p else "U" if "U" in p else "T"
                 for p in zip(a, b))


def either(a, b):
    if a is NEVER:
        return b
    if b is NEVER:
        return a
    return negate(both(negate(a), negate(b)))


ALWAYS, NEVER, MAYBE = ("T",) * 4, ("F",) * 4, ("U",) * 4


def in_full(node):
    """`all([a, b])` as `a and b`, `any((a, b))` as `a or b`, other expressions as they are."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("any", "all") and len(
            node.args) == 1 and isinstance(node.args[0], (ast.List, ast.Tuple)) and node.args[0].elts:
        return ast.BoolOp(ast.And() if node.func.id == "all" else ast.Or(), node.args[0].elts)
    return node


def condition(node, scope, depth=0):
    """For each of four ranks: T, F, U (unknown, alike on all), R (differs with the rank), L (differs with the data)."""
    if depth > 12:
        return MAYBE
    node = in_full(node)
    if isinstance(node, ast.BoolOp):
        parts = [condition(v, scope, depth + 1) for v in node.values]
        result = parts[0]
        for p in parts[1:]:
            result = both(result, p) if isinstance(node.op, ast.And) else either(result, p)
        return result
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return negate(condition(node.operand, scope, depth + 1))
    if isinstance(node, ast.NamedExpr):
        return condition(node.value, scope, depth + 1)
    if isinstance(node, ast.Compare):
        left, result = value_on_ranks(node.left, scope, depth + 1), ALWAYS
        for op, right in zip(node.ops, node.comparators):
            right = value_on_ranks(right, scope, depth + 1)
            result = both(result, truth(per_rank(OPERATORS[type(op)], left, right)))
            left = right
    else:
        result = truth(value_on_ranks(node, scope, depth + 1))
    if result == MAYBE and decides(node, scope) == "local":
        return ("L",) * 4
    return result


def measures(node):
    """Whether a condition looks at how large a value is, and not at which option was chosen."""
    if isinstance(node, ast.Compare):
        return any(isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)) for op in node.ops)
    return isinstance(node, ast.Call) and last_name(node) in (
        "isnan", "isinf", "isfinite", "any", "all", "item", "bool")


@kept
def decides(node, scope, depth=0) -> str:
    """"local" where a condition comes from what each rank measures for itself: it compares it, is a name or the answer
    of a function or property that does, or what was counted where such a comparison held; "reduced" where ranks agree.
    """
    if depth > 4 or node is None:
        return ""
    if measures(node):
        found = origin(node, scope)
        if found or not isinstance(node, ast.Compare):
            return found
        tags = [counted(n, scope, depth) for n in (node.left, *node.comparators)]
    elif isinstance(node, (ast.BoolOp, ast.UnaryOp, ast.Compare, ast.NamedExpr)):
        tags = [decides(n, scope, depth + 1) for n in ast.iter_child_nodes(node) if isinstance(n, ast.expr)]
    elif isinstance(node, (ast.Name, ast.Attribute, ast.Call)):
        tags = [counted(node, scope, depth)]
        if isinstance(node, ast.Name):
            tags += [decides(v, s, depth + 1) for v, i, s in values_of(node, scope)
                     if v is not None and v is not node and i is None and not isinstance(v, ast.Constant)]
    else:
        return ""
    return "reduced" if "reduced" in tags else "local" if "local" in tags else ""


def counted(node, scope, depth) -> str:
    """The same of a value: the answer of a function, or what is assigned where a comparison held."""
    if depth > 4:
        return ""
    if isinstance(node, ast.Attribute) or isinstance(node, ast.Call):
        function = definition(node.func if isinstance(node, ast.Call) else node, scope)
        if function is not None and function.is_function:
            if isinstance(node, ast.Call) or is_property(function):
                return answer_of(function, depth)
            return ""
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return ""
    values = values_of(node, scope)
    name, tags = last_name(node), []
    for s in dict.fromkeys(s for _, _, s in values if s.is_function or isinstance(node, ast.Name)):
        tags += branch_tags(s, name, isinstance(node, ast.Attribute), depth)
    return "reduced" if "reduced" in tags else "local" if "local" in tags else ""


def answer_of(function, depth) -> str:
    """The same of what a function returns."""
    if any(e.kind in ("collective", "metric") for e in effects_of(function)):
        return "reduced"
    tags = [decides(v, s, depth + 1) or counted(v, s, depth + 1) for v, _, s in returned(function)
            if not isinstance(v, ast.Constant)]
    for n in own_nodes(function.node):
        if isinstance(n, ast.If) and any(isinstance(b, ast.Return) and isinstance(b.value, ast.Constant) and isinstance(
                b.value.value, bool) for b in [*n.body, *n.orelse]):
            tags.append(decides(n.test, function, depth + 1))
    return "reduced" if "reduced" in tags else "local" if "local" in tags else ""


def branch_tags(function, name, attribute, depth):
    """What the conditions come from under which a function assigns a name or an attribute of self."""
    tags = []
    for n in own_nodes(function.node):
        if isinstance(n, ast.If):
            below = [b for part_of in (n.body, n.orelse) for statement in part_of for b in ast.walk(statement)]
            targets = [x for b in below for t in (b.targets if isinstance(b, ast.Assign) else [b.target] if isinstance(
                b, ast.AugAssign) else []) for x in ast.walk(t)]
            if any(isinstance(x, ast.Attribute) and x.attr == name and last_name(x.value) == "self" if attribute else
                   isinstance(x, ast.Name) and x.id == name for x in targets):
                tags.append(decides(n.test, function, depth + 1))
    return tags


def truth(value):
    if value == UNKNOWN:
        return MAYBE
    if value in (RANKED, LOCAL):
        return ("R" if value == RANKED else "L",) * 4
    return tuple("T" if v else "F" for v in value)


@kept
def origin(node, scope) -> str:
    """"local" for what each rank measures for itself (loss, output, clock), "reduced" for what all ranks share."""
    local, pending, seen = False, [(node, scope, 0)], set()
    while pending:
        n, s, d = pending.pop()
        if n is None or (id(n), id(s)) in seen or len(seen) > 200:
            continue
        seen.add((id(n), id(s)))
        if isinstance(n, ast.Call):
            last = last_name(n)
            if re.search(r"reduce|gather|broadcast|sync|compute$", last) and last != "reduction":
                return "reduced"
            found = definition(n.func, s)
            if found is not None and found.is_function and any(e.kind == "collective" for e in effects_of(found)):
                return "reduced"
            if last in ("time", "monotonic", "perf_counter") and (
                    (chain(n.func) or [""])[0] == "time" or imported(s, last) == f"time.{last}"):
                local = True
            elif found is not None and found.is_function:
                if d < 12 and not reads_all(n, s):
                    pending += [(v, x, d + 1) for v, _, x in returned(found)]
            elif LOSS.search(last) and last[:1].islower() or is_sharded_loader(n, s):
                local = True  # of a loader: what its batches hold
            elif last == "enumerate":
                pending += [(a, s, d) for a in n.args[:1]]
            elif last in PASSES_ON or found is None and model_kind(n.func, s, n) == "wrapped":
                pending += [(a, s, d) for a in n.args]
                if isinstance(n.func, ast.Attribute):
                    pending.append((n.func.value, s, d))
        elif isinstance(n, ast.Attribute):
            if n.attr == "metrics" and last_name(n.value) == "state":
                return "reduced"
            if n.attr in ("output", "batch") and last_name(n.value) == "state":
                local = True
            elif last_name(n.value) == "state" and d < 12:
                pending += [(v, x, d + 1) for v, x in [*kept_by_hand(n, s), *appended_to_state(n, s)]]
            elif n.attr == "loss" and any(isinstance(v, ast.Call) for v, _, _ in values_of(n.value, s)):
                local = True
            elif d < 12:
                function = definition(n, s)
                if function is not None and function.is_function and is_property(function):
                    pending += [(v, x, d + 1) for v, _, x in returned(function)]
                pending += [(v, x, d + 1) for v, _, x in values_of(n, s) if v is not None and v is not n]
                pending += [(v, x, d + 1) for v, x in filled_by_methods(n, s)]
        elif isinstance(n, ast.Name):
            if any(x is not s or reduced_before(c, n, s) for x in all_scopes(s) for c in x.reduced.get(n.id, ())):
                return "reduced"
            values = values_of(n, s)
            known = [v for v in values if v[0] is not None and v[0] is not n and not (
                v[1] == 0 and isinstance(v[0], ast.Starred) and last_name(v[0].value) == "enumerate")]
            if is_batch(n, values):
                local = True
            if d < 12:
                pending += [(v, x, d + 1) for v, _, x in known]
            if not known and values and re.search(r"loss(es)?$", n.id, re.I):
                local = True  # a parameter
            elif not known and values and d < 12:
                pending += [(v, x, d + 1) for v, _, x in handed(n.id, values[0][2])]
            if d < 12:
                pending += [(v, x, d + 1) for v, x in filled_with(n.id, s)]
        elif isinstance(n, ast.Subscript):
            by_hand_set = kept_by_hand(n, s) if last_name(n.value) == "metrics" and d < 12 else ()
            pending += [(v, x, d + 1) for v, x in by_hand_set] or [(n.value, s, d)]
            local = local or not isinstance(n.slice, (ast.Slice, ast.Constant)) and looks_at_rank(n.slice, s)
        elif isinstance(n, (ast.ListComp, ast.GeneratorExp)):
            pending.append((n.elt, s, d))
        elif isinstance(n, (ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.Tuple, ast.List, ast.Dict, ast.IfExp,
                            ast.Starred, ast.JoinedStr, ast.FormattedValue)):
            pending += [(c, s, d) for c in ast.iter_child_nodes(n) if isinstance(c, ast.expr)]
    return "local" if local else ""


def is_sharded_loader(call, scope):
    """Whether a call makes a loader that gives each rank its own batches."""
    if last_name(call) == "DataLoader":
        return any(k.arg in ("sampler", "batch_sampler") for k in call.keywords)
    return last_name(call) == "auto_dataloader" or resolve(call.func, scope) == IDIST + "auto_dataloader"


def reduced_before(call, name, scope):
    """Whether a reduction may have been done when a name of the same function is read: it stands before it, or in the
    same loop."""
    return call.lineno <= name.lineno or any(
        isinstance(n, (ast.For, ast.While)) and n.lineno <= name.lineno and call.end_lineno <= n.end_lineno
        for n in own_nodes(scope.node))


def is_batch(name, values):
    """Whether a name is the batch that the step of an engine is given."""
    return any(v is None and s.is_function and is_step_of_engine(s) and s.parameters[1:2] == [name.id]
               for v, _, s in values)


PASSES_ON = {"float", "int", "abs", "bool", "isnan", "isinf", "isfinite", "item", "detach", "cpu", "mean", "sum", "max",
             "min", "any", "all", "tensor", "norm", "round", "exp", "sqrt", "numpy", "backward", "stack", "cat",
             "fmean", "square", "pow", "log", "softmax", "sigmoid", "clone", "double", "tolist", "argmax", "long", "to",
             "flatten", "view", "reshape", "squeeze", "eq", "ne", "gt", "lt", "ge", "le", "median", "std", "var",
             "format"}


def filled_with(name, scope):
    """[(expression, scope), …]: what is appended to a list that a function makes, there and in functions inside it."""
    home = next((s for s in all_scopes(scope) if name in s.bound and not isinstance(s.node, ast.ClassDef)), None)
    if home is None or not any(isinstance(v, ast.List) and not v.elts or isinstance(v, ast.Call) and last_name(v) in (
            "list", "deque") for v, _ in home.bound[name]):
        return []
    return [(c.args[0], s) for s in scope.module.scopes if home in all_scopes(s) for c in s.calls if isinstance(
        c.func, ast.Attribute) and c.func.attr in ("append", "extend") and c.args and isinstance(
        c.func.value, ast.Name) and c.func.value.id == name]


def appended_to_state(attribute, scope):
    """[(expression, scope), …]: what a file appends to a list that an attribute of an engine's state holds."""
    return [(c.args[0], s) for s in scope.module.scopes for c in s.calls if last_name(c) in (
        "append", "extend") and c.args and isinstance(c.func, ast.Attribute) and same_of_state(c.func.value, attribute)]


def same_of_state(node, other):
    """Whether two expressions are one attribute of a state, of whichever engine."""
    ends = [(chain(n) or [])[-2:] for n in (node, other)]
    return len(ends[0]) == 2 and ends[0] == ends[1] and ends[0][0] == "state"


def filled_by_methods(attribute, scope):
    """[(expression, scope), …]: what the methods of a class append to a list that is an attribute of self."""
    parts = chain(attribute) or []
    if len(parts) != 2 or parts[0] != "self" or scope.owner is None:
        return []
    put_in = [(appended(c, attribute), f) for f in scope.owner.functions.values() for c in f.calls]
    return [(v, f) for v, f in put_in if v is not None]


def reads_all(call, scope):
    """Whether a function is given a loader that every rank reads whole: then all ranks measure the same."""
    return any(isinstance(v, ast.Call) and resolve(v.func, s) == "torch.utils.data.DataLoader" and not any(
        k in keywords_of(v, s)[0] for k in ("sampler", "batch_sampler"))
        for a in [*call.args, *[k.value for k in call.keywords]] for v, s in sources(a, scope))


# --- effects: what a call does that every rank has to do ------------------------------------------------------------


@dataclass
class Effect:
    """Something that waits for the other ranks, or ends a run.

    kind: collective, metric (compute), attach (a metric), run (an engine), backward, stop, stopper (a handler that
    stops), query (of idist), wrapped (a call of the wrapped model).
    """

    kind: str
    name: str
    line: int = 0
    via: str = ""


def named(name, *classes):
    return name.rpartition(".")[2] in classes and name.startswith(("ignite.", "torch."))


@kept
def is_metric(node, scope, depth=0):
    """Whether the expression is a metric of Ignite whose compute() communicates."""
    if depth > 5 or node is None:
        return False
    if isinstance(node, ast.Call):
        name = resolve(node.func, scope)
        if name.startswith("ignite.metrics."):
            return name.rpartition(".")[2][:1].isupper() and name.rpartition(".")[2] not in NO_REDUCTION
        found = definition(node.func, scope)
        if found is None:
            return False
        if isinstance(found.node, ast.ClassDef):
            return metric_class(found)
        return any(is_metric(v, s, depth + 1) for v, _, s in returned(found))
    if isinstance(node, ast.Starred):  # an item of a list or a dict of metrics
        inner = node.value
        if isinstance(inner, ast.Call) and last_name(inner) in ("items", "values") and not inner.args:
            inner = inner.func.value
        for value, s in sources(inner, scope):
            items = value.values if isinstance(value, ast.Dict) else getattr(value, "elts", ())
            if any(is_metric(v, s, depth + 1) for v in items if not isinstance(v, ast.Starred)):
                return True
        return False
    if isinstance(node, ast.BinOp):
        return is_metric(node.left, scope, depth + 1) or is_metric(node.right, scope, depth + 1)
    if isinstance(node, ast.Subscript):
        for value, s in sources(node.value, scope):
            if isinstance(value, ast.Dict) and any(is_metric(v, s, depth + 1) for v in value.values):
                return True
        return False
    for value, index, s in values_of(node, scope):
        if value is not None and value is not node and index is None and is_metric(value, s, depth + 1):
            return True
        given_to_it = handed(node.id, s) if value is None and isinstance(node, ast.Name) else ()
        if given_to_it and all(is_metric(v, x, depth + 1) for v, _, x in given_to_it):
            return True
    return False


def metric_class(owner, depth=0):
    """Whether a class of the project is a metric that reduces over ranks."""
    if depth > 4:
        return False
    for base in owner.node.bases:
        name = resolve(base, owner.parent)
        if name.startswith("ignite.metrics."):
            if name.rpartition(".")[2] != "Metric":
                return True
            words = {last_name(d) for f in owner.functions.values() for d in f.node.decorator_list}
            words |= {last_name(c) for f in owner.functions.values() for c in f.calls}
            return bool(words & {"sync_all_reduce", "all_reduce", "all_gather"})
        found = definition(base, owner.parent)
        if found is not None and isinstance(found.node, ast.ClassDef) and metric_class(found, depth + 1):
            return True
    return False


@kept
def engine_runs_collectives(node, scope, depth=0):
    """Whether running this engine needs every rank: True, False, or None where it cannot be seen."""
    if depth > 5 or node is None:
        return None
    key = text_of(node)
    if not isinstance(node, ast.Call) and key in scope.module.metric_targets:
        return True
    if isinstance(node, ast.Call):
        name = resolve(node.func, scope)
        last = name.rpartition(".")[2]
        if name.startswith("ignite.engine.") and last.startswith("create_supervised_trainer"):
            return uses_wrapper(scope.module) or None
        if name.startswith("ignite.engine.") and last.startswith("create_supervised_evaluator"):
            given = keyword(node, "metrics", 1)
            return False if given is None or isinstance(given, ast.Dict) and not given.keys else True
        if named(name, "Engine", "DeterministicEngine"):
            step = definition(node.args[0], scope) if node.args else None
            if step is not None and step.is_function:
                return any(e.kind in ("collective", "backward") for e in effects_of(step))
            return None
        found = definition(node.func, scope)
        if found is not None and found.is_function:
            answers = [engine_runs_collectives(v, s, depth + 1) for v, _, s in returned(found)
                       if not isinstance(v, (ast.Tuple, ast.Constant))]
            return True if True in answers else None if None in answers or not answers else False
        if found is not None:
            run = method(found, "run")
            return any(e.kind != "stop" for e in effects_of(run)) if run is not None else None
        return None
    answers = []
    for value, index, s in values_of(node, scope):
        if value is None or value is node:
            answers.append(None)
        elif index is not None:
            found = definition(value.func, s) if isinstance(value, ast.Call) else None
            for v, _, inner in returned(found) if found is not None and found.is_function else ():
                if isinstance(v, ast.Tuple) and index < len(v.elts):
                    answers.append(engine_runs_collectives(v.elts[index], inner, depth + 1))
        else:
            answers.append(engine_runs_collectives(value, s, depth + 1))
    return True if True in answers else False if answers and None not in answers else None


@kept
def is_engine(node, scope, depth=0):
    if depth > 5 or node is None:
        return False
    if isinstance(node, ast.Call):
        name = resolve(node.func, scope)
        if name.startswith("ignite.engine.") and re.match(r"Engine|Determ|create_", name.rpartition(".")[2]):
            return True
        found = definition(node.func, scope)
        return found is not None and found.is_function and any(
            is_engine(v, s, depth + 1) for v, _, s in returned(found))
    values = values_of(node, scope)
    if any(v is not None and v is not node and i is None and is_engine(v, s, depth + 1) for v, i, s in values):
        return True
    return bool(ENGINES.search(last_name(node))) and uses_ignite(scope.module)


def uses_ignite(module):
    return "ignite" in module.source


@kept
def uses_wrapper(module):
    return ("auto_model" in module.source or "DistributedDataParallel" in module.source) and not only_horovod(module)


def only_horovod(module):
    """Whether a file starts its group with horovod alone, for which auto_model does not wrap."""
    if "horovod" not in module.source or "DistributedDataParallel" in module.source:
        return False
    backends = [literal(keyword(c, "backend", 0), s) for s in module.scopes for c in s.calls
                if resolve(c.func, s) in (IDIST + "Parallel", IDIST + "initialize", IDIST + "spawn")]
    return bool(backends) and set(backends) == {"horovod"}


def grouped(call):
    """Whether a collective is given a group of its own: then only its members call it."""
    group = keyword(call, "group")
    if group is None:
        return any(k.arg is None and (not isinstance(k.value, ast.Dict) or any(
            constant(key) in ("group", None) for key in k.value.keys)) for k in call.keywords)
    return last_name(group) != "WORLD"


def effects_at(call, scope):
    """The effects of one call."""
    name = resolve(call.func, scope)
    last = name.rpartition(".")[2]
    here = call.lineno
    if name.startswith(IDIST):
        if last in IDIST_COLLECTIVES or last == "initialize":
            by_place = last in ("all_reduce", "all_gather") and len(call.args) > (last == "all_reduce") + 1
            if by_place or last not in WHOLE_WORLD and grouped(call):
                return []
            return [Effect("collective", f"idist.{last}", here)]
        if last in GETTERS or last in ("show_config", "auto_dataloader"):
            return [Effect("query", f"idist.{last}", here)]
        return []
    if name.startswith(TORCH_DIST):
        if last in TORCH_COLLECTIVES and name.count(".") == 2 and (last in WHOLE_WORLD or not grouped(call)):
            return [Effect("collective", f"torch.distributed.{last}", here)]
        return []
    if named(name, "DistributedDataParallel"):
        return [Effect("collective", "DistributedDataParallel", here)]
    if name.startswith("ignite.common.setup_common_"):
        return [Effect("attach", last, here)]
    if named(name, "DiskSaver", "Checkpoint", "ModelCheckpoint", "setup_logger") and name.startswith("ignite."):
        return [Effect("query", last, here)]
    if named(name, "ClearMLSaver"):
        return [Effect("collective", last, here)]
    if "ZeroRedundancyOptimizer" in scope.module.source and isinstance(call.func, (ast.Name, ast.Attribute)) and any(
            isinstance(v, ast.Call) and named(resolve(v.func, s), "Checkpoint", "ModelCheckpoint")
            for v, i, s in values_of(call.func, scope) if i is None):
        return [Effect("collective", f"{written(call.func)}, a Checkpoint of a ZeroRedundancyOptimizer,", here)]
    if not isinstance(call.func, ast.Attribute):
        found = definition(call.func, scope)
        if found is None and isinstance(call.func, ast.Name):  # a parameter: a step that is wrapped
            given = {id(d): d for v, _, x in handed(call.func.id, scope)
                     if (d := definition(v, x)) is not None and d.is_function}
            found = next(iter(given.values())) if len(given) == 1 else None
            taker = next((s for s in all_scopes(scope) if call.func.id in s.bound), None)
            if found is None and taker in (decorations(scope.module) or {}):
                found = next((d for d in given.values() if effects_of(d)), None)
        if found is not None:
            return called(found, call)
        return []
    receiver, last = call.func.value, call.func.attr
    if last == "compute" and is_metric(receiver, scope):
        return [Effect("metric", f"{written(receiver)}.compute", here)]
    if last == "compute" and uses_ignite(scope.module) and "ignite.metrics" in scope.module.source and re.search(
            r"metric|accuracy|\bacc\b|precision|recall", written(receiver).lower()) and all(
            v is None for v, _, _ in values_of(receiver, scope)) and "torchmetrics" not in scope.module.source:
        return [Effect("metric", f"{written(receiver)}.compute", here)]
    if last == "attach":
        if is_metric(receiver, scope):
            return [Effect("attach", f"{written(receiver)}.attach", here)]
        lr_finder = any(isinstance(v, ast.Call) and named(resolve(v.func, s), "FastaiLRFinder")
                        for v, _, s in values_of(receiver, scope))
        return [Effect("attach", f"{written(receiver)}.attach", here)] if lr_finder else []
    if last == "run" and is_engine(receiver, scope):
        answer = engine_runs_collectives(receiver, scope)
        if answer or answer is None and ENGINES.search(last_name(receiver)):
            return [Effect("run", f"{written(receiver)}.run", here)]
        return []
    if last == "consolidate_state_dict":
        return [Effect("collective", last, here)]
    if last == "backward" and not call.keywords[1:] and uses_wrapper(scope.module):
        return [Effect("backward", "backward", here)]
    if last in ("terminate", "terminate_epoch") and is_engine(receiver, scope):
        return [Effect("stop", f"{written(receiver)}.{last}", here)]
    if last == "add_event_handler" and len(call.args) > 1:
        return handler_effects(call.args[1], scope, here)
    found = definition(call.func, scope)
    if found is not None and isinstance(receiver, ast.Name) and receiver.id == "self" and found.is_function:
        return [e for f in (found, *overridden(found)) for e in called(f, call)]
    return called(found, call) if found is not None else []


def overridden(function):
    """The methods of classes of the same file that stand in for this one in a class that inherits it."""
    if function.owner is None:
        return []
    return [s.functions[function.name] for s in function.module.scopes if isinstance(s.node, ast.ClassDef)
            and s is not function.owner and function.name in s.functions and function.owner in lineage(s)]


def handler_effects(handler, scope, line):
    """What a handler does whenever its event fires, as effects of registering it."""
    for value, s in sources(handler, scope):
        if isinstance(value, ast.Call):
            name = resolve(value.func, s)
            if named(name, "EarlyStopping", "TerminateOnNan", "TimeLimit") and name.startswith("ignite."):
                return [Effect("stopper", name.rpartition(".")[2], line)]
            if name.startswith("ignite.handlers") and SCHEDULES.search(name):
                return [Effect("schedule", name.rpartition(".")[2], line)]
            if named(name, "Checkpoint", "ModelCheckpoint") and "ZeroRedundancyOptimizer" in s.module.source:
                return [Effect("attach", name.rpartition(".")[2] + " of a ZeroRedundancyOptimizer", line)]
            if isinstance(value.func, ast.Call) and is_one_rank_only(value.func, s):
                return []
    function = definition(handler, scope)
    if function is None or not function.is_function or one_rank(function) is not None:
        return []
    found = [e for e in effects_of(function) if e.kind != "query"]
    return [Effect(registered_kind(e), e.name, line, function.name) for e in found[:1]] or [
        Effect("schedule", name, line, function.name) for name in steps_of_schedules(function)[:1]]


SCHEDULES = re.compile(r"Scheduler(Wrapper|Group)?$|\.create_lr_scheduler_with_warmup$")


def registered_kind(effect):
    return "stopper" if effect.kind == "stop" else "attach"


def steps_of_schedules(function):
    """What a function calls to move a learning rate on: `scheduler.step`, of a schedule of torch."""
    steps = [c for c in function.calls if isinstance(c.func, ast.Attribute) and c.func.attr == "step"]
    return [written(c.func) for c in steps if any(
        isinstance(v, ast.Call) and resolve(v.func, s).startswith("torch.optim.lr_scheduler.")
        for v, _, s in values_of(c.func.value, function))]


def called(function, call):
    """The effects of calling a function or a class of the project."""
    if isinstance(function.node, ast.ClassDef):
        function = method(function, "__init__")
        if function is None:
            return []
    guard = one_rank(function)
    if guard is not None:
        return [Effect("collective", "one_rank_only", call.lineno, function.name)] if guard == "barrier" else []
    return [Effect(e.kind, e.name, e.line, function.name if not e.via else e.via) for e in effects_of(function)]


def effects_of(function):
    """Effects of running a function, apart from what its own conditions on the rank guard; one of each kind."""
    if function.effects is None:
        prepare(function.module)
        function.effects = []
        found, guarded = {}, conditional_calls(function)
        for call in function.calls:
            if id(call) in guarded:
                continue
            for effect in effects_at(call, function):
                found.setdefault((effect.kind, effect.name) if effect.kind == "collective" else effect.kind, effect)
        for inner in function.functions.values():
            if any(map(is_registration, inner.node.decorator_list)) and id(inner.node) not in guarded:
                named_here = ast.copy_location(ast.Name(inner.name, ast.Load()), inner.node)
                for effect in handler_effects(named_here, function, inner.node.lineno):
                    found.setdefault(effect.kind, effect)
        function.effects = list(found.values())
    return function.effects


class Nobody:
    """A report that keeps nothing."""

    def add(self, *args, **kwargs):
        pass


def conditional_calls(function):
    """Ids of the calls that a function makes on some ranks only: it knows what it does, or its own walk reports it."""
    state = Walk(function, Nobody())
    if isinstance(function.node, ast.Lambda):
        walk_expression(function.node.body, ALWAYS, state)
    else:
        walk_block(function.node.body, ALWAYS, state)
    return {id(node) for _, reach, node in state.sites if differs(reach) and "L" not in reach}


def written(node):
    """The expression as a reader would write it, shortened."""
    parts = chain(node)
    if parts:
        return ".".join(parts)
    if isinstance(node, ast.Call):
        return f"{written(node.func)}(…)"
    if isinstance(node, ast.Subscript):
        return f"{written(node.value)}[…]"
    return "…"


def is_one_rank_only(node, scope):
    return one_rank_only_of(node, scope) is not None


def one_rank_only_of(node, scope):
    """The call of one_rank_only that a decorator is, or that a name was given to; None if it is none."""
    made = [v for v, i, _ in values_of(node, scope) if i is None] if isinstance(node, ast.Name) else []
    node = made[0] if len(made) == 1 else node
    return node if isinstance(node, ast.Call) and resolve(node.func, scope) == IDIST + "one_rank_only" else None


def one_rank(function):
    """"guard" when a decorator lets one rank only run the function, "barrier" when all wait for it, else None."""
    if not isinstance(function.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return None
    scope = function.parent
    for decorator in function.node.decorator_list:
        if (only := one_rank_only_of(decorator, scope)) is not None:
            with_barrier = keyword(only, "with_barrier", 1)
            return "barrier" if with_barrier is not None and constant(with_barrier) is not False else "guard"
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        if ONLY_MAIN.search(last_name(target)) and not last_name(target) == "on":
            return "guard"
        found = definition(target, scope)
        if found is not None and found.is_function and guards_its_argument(found):
            return "guard"
    return None


def guards_its_argument(decorator):
    """Whether a decorator of the project calls what it decorates on some ranks only."""
    names = set(decorator.parameters)
    for inner in decorator.functions.values():
        names |= set(inner.parameters) if inner.functions else set()
    nested = list(decorator.functions.values())
    for inner in [*nested, *[f for g in nested for f in g.functions.values()]]:
        for node in own_nodes(inner.node):
            if isinstance(node, ast.If) and differs(condition(node.test, inner)) and "L" not in condition(
                    node.test, inner):
                calls = [n for b in node.body for n in ast.walk(b) if isinstance(n, ast.Call)]
                if any(isinstance(c.func, ast.Name) and c.func.id in names for c in calls):
                    return True
                if node.body and isinstance(node.body[-1], ast.Return) and not calls:
                    return True
    return False


# --- the walk: may some rank not get here? --------------------------------------------------------------------------


@dataclass
class Walk:
    """Where a walk through a function stands."""

    scope: Scope
    report: object
    guard: str = ""  # "one_rank_only" inside a function that one rank runs
    first: bool = False  # inside a block of one_rank_first
    own_group: bool = False  # a process group that Ignite did not make exists
    queried: bool = False  # and every rank has asked Ignite about it
    sites: list = field(default_factory=list)  # (effect, reach, node)
    crossed: set = field(default_factory=set)  # calls that the other ranks make too, but in another order
    caught: list = field(default_factory=list)  # (try, except clause, sites inside, depth of loops)
    loops: int = 0
    measured: int = 0  # conditions on a local value around the place
    left: ast.AST | None = None  # where such a condition left the function or the pass of the loop


@dataclass
class Exits:
    """With which condition a piece of code leaves the function, the loop, or this pass of the loop."""

    leave: tuple = NEVER
    stop: tuple = NEVER
    skip: tuple = NEVER

    def any(self):
        return either(either(self.leave, self.stop), self.skip)


def walk_function(function, report, reach=ALWAYS, guard=""):
    state = Walk(function, report, guard)
    if isinstance(function.node, ast.Lambda):
        walk_expression(function.node.body, reach, state)
    else:
        walk_block(function.node.body, reach, state)
    judge(state)


def walk_block(statements, reach, state):
    gone, leaving = Exits(), []
    for statement in statements:
        now = both(reach, negate(gone.any())) if gone.any() != NEVER else reach
        before = len(state.sites)
        out = walk_statement(statement, now, state)
        if out is not None and out.any() != NEVER:
            if isinstance(statement, ast.If) and differs(out.any()):
                leaving.append((now, out.any(), before, len(state.sites)))
            if "L" in out.any() and not state.measured and state.left is None:
                state.left = next((n for n in ast.walk(statement) if isinstance(
                    n, (ast.Return, ast.Continue, ast.Break))), statement)
            still = negate(gone.any())
            gone = Exits(*(either(a, both(still, b)) for a, b in
                           ((gone.leave, out.leave), (gone.stop, out.stop), (gone.skip, out.skip))))
    for now, left, start, end in reversed(leaving):  # what leaves early may have done before what comes later
        meet(state, (start, end), both(now, left), (end, len(state.sites)), both(now, negate(left)), now)
    return gone


def meet(state, some, reach_some, others, reach_others, reach):
    """Calls that both ways through the code make, in the same order, are reached by all, whichever way a rank takes."""
    mine = [i for i in range(*some) if state.sites[i][1] == reach_some and state.sites[i][0].via != "loop"]
    theirs = [i for i in range(*others) if state.sites[i][1] == reach_others]
    names = [[state.sites[i][0].name for i in way] for way in (mine, theirs)]
    crossed = {k for k, name in zip(mine, names[0]) if names[0].count(name) == names[1].count(name)}
    for at, there, length in difflib.SequenceMatcher(None, *names, autojunk=False).get_matching_blocks():
        for k in (*mine[at : at + length], *theirs[there : there + length]):
            state.sites[k] = (state.sites[k][0], reach, state.sites[k][2])
        crossed -= {*mine[at : at + length]}
    state.crossed |= {state.sites[k][2] for k in crossed}


def walk_statement(node, reach, state):
    if isinstance(node, ast.If):
        return walk_if(node, reach, state)
    if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
        return walk_loop(node, reach, state)
    if isinstance(node, (ast.With, ast.AsyncWith)):
        return walk_with(node, reach, state)
    if isinstance(node, ast.Try) or type(node).__name__ == "TryStar":
        return walk_try(node, reach, state)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        walk_definition(node, reach, state)
        return None
    if isinstance(node, ast.ClassDef):
        return None
    if isinstance(node, ast.Return):
        if node.value is not None:
            walk_expression(node.value, reach, state)
        return Exits(leave=ALWAYS)
    if isinstance(node, ast.Break):
        return Exits(stop=ALWAYS)
    if isinstance(node, ast.Continue):
        return Exits(skip=ALWAYS)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        walk_expression(node.value, reach, state)
        name = written(node.value.func)
        if name in EXITS:
            code = node.value.args[0] if node.value.args else None
            if code is None or constant(code) == 0:
                return Exits(leave=ALWAYS)
        return None
    if type(node).__name__ == "Match":
        gone, rest = Exits(), ALWAYS
        walk_expression(node.subject, reach, state)
        for case in node.cases:
            taken = matched(case.pattern, node.subject, state.scope)
            if case.guard is not None:
                walk_expression(case.guard, both(reach, both(rest, taken)), state)
                taken = both(taken, condition(case.guard, state.scope))
            now, rest = both(rest, taken), both(rest, negate(taken))
            state.measured += "L" in now
            out = walk_block(case.body, both(reach, now), state)
            state.measured -= "L" in now
            gone = Exits(*(either(a, both(now, b)) for a, b in
                           ((gone.leave, out.leave), (gone.stop, out.stop), (gone.skip, out.skip))))
        return gone
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            walk_expression(child, reach, state)
    return None


def walk_if(node, reach, state):
    walk_expression(node.test, reach, state)
    test = condition(node.test, state.scope)
    if is_main_guard(node.test):
        test = ALWAYS
    state.measured += "L" in test
    start = len(state.sites)
    yes = walk_block(node.body, both(reach, test), state)
    middle = len(state.sites)
    no = walk_block(node.orelse, both(reach, negate(test)), state)
    state.measured -= "L" in test
    if differs(test):
        meet(state, (start, middle), both(reach, test), (middle, len(state.sites)), both(reach, negate(test)), reach)
    return Exits(*(either(both(test, a), both(negate(test), b)) for a, b in
                   ((yes.leave, no.leave), (yes.stop, no.stop), (yes.skip, no.skip))))


def matched(pattern, subject, scope):
    """The condition under which a case of a `match` takes its subject."""
    kind = type(pattern).__name__
    if kind in ("MatchValue", "MatchSingleton"):
        value = pattern.value if kind == "MatchValue" else ast.Constant(value=pattern.value)
        return truth(per_rank(operator.eq, value_on_ranks(subject, scope), value_on_ranks(value, scope)))
    if kind == "MatchOr":
        return functools.reduce(either, (matched(p, subject, scope) for p in pattern.patterns))
    if kind == "MatchAs":
        return ALWAYS if pattern.pattern is None else matched(pattern.pattern, subject, scope)
    if kind == "MatchSequence" and isinstance(subject, (ast.Tuple, ast.List)) and len(subject.elts) == len(
            pattern.patterns):
        return functools.reduce(both, map(matched, pattern.patterns, subject.elts, [scope] * len(subject.elts)), ALWAYS)
    if kind == "MatchClass" and not pattern.kwd_patterns and len(pattern.patterns) <= 1:  # case int(), case int(r)
        inner = [matched(p, subject, scope) for p in pattern.patterns]
        return both(MAYBE, inner[0]) if inner else MAYBE
    return ("R",) * 4 if varies(value_on_ranks(subject, scope)) else MAYBE


def is_main_guard(test):
    return isinstance(test, ast.Compare) and any(
        isinstance(n, ast.Name) and n.id == "__name__" for n in [test.left, *test.comparators])


def walk_loop(node, reach, state):
    inside = reach
    if isinstance(node, ast.While):
        walk_expression(node.test, reach, state)
        inside = both(reach, condition(node.test, state.scope))
    else:
        walk_expression(node.iter, reach, state)
        if isinstance(node.iter, ast.Call) and last_name(node.iter) == "range" and any(
                varies(value_on_ranks(a, state.scope)) for a in node.iter.args):
            inside = both(reach, ("R",) * 4)
    before = len(state.sites)
    state.loops += 1
    out = walk_block(node.body, inside, state)
    state.loops -= 1
    walk_block(node.orelse, reach, state)
    left = either(out.stop, out.leave)
    if differs(left) and not differs(inside):
        waits = [s for s in state.sites[before:] if s[0].kind in ("collective", "backward", "run", "metric")]
        if waits:
            state.sites.append((Effect("stop", "break" if differs(out.stop) else "return", node.lineno, "loop"), left,
                                exit_node(node, state)))
            return Exits()  # what follows from it is not reported again
    return Exits(leave=out.leave)


def exit_node(loop, state):
    """The break or return of a loop that only some ranks reach, for the report."""
    pending = [(loop, False)]
    while pending:
        node, guarded = pending.pop(0)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.Break, ast.Return)) and guarded:
                return child
            if isinstance(child, (ast.FunctionDef, ast.Lambda, ast.ClassDef)):
                continue
            inner = guarded or isinstance(child, ast.If) and differs(condition(child.test, state.scope))
            pending.append((child, inner))
    return loop


def walk_with(node, reach, state):
    first = state.first
    for i in node.items:
        walk_expression(i.context_expr, reach, state)
        if isinstance(i.context_expr, ast.Call):
            if resolve(i.context_expr.func, state.scope) == IDIST + "one_rank_first":
                state.first = True
    before = len(state.sites)
    out = walk_block(node.body, reach, state)
    for call in [i.context_expr for i in node.items if isinstance(i.context_expr, ast.Call)]:
        if last_name(call) == "suppress" and call.args:  # contextlib's: an except clause that does nothing
            clause = ast.copy_location(ast.ExceptHandler(ast.Tuple(call.args, ast.Load()), None, [ast.Pass()]), call)
            state.caught.append((node, clause, state.sites[before:], state.loops))
    state.first = first
    return out


def walk_try(node, reach, state):
    before = len(state.sites)
    out = walk_block(node.body, reach, state)
    inside = state.sites[before:]
    for handler in node.handlers:
        caught = walk_block(handler.body, both(reach, MAYBE), state)
        if not ends_the_process(handler.body):
            state.caught.append((node, handler, inside, state.loops))
            out = Exits(*(either(a, both(MAYBE, b)) for a, b in
                          ((out.leave, caught.leave), (out.stop, caught.stop), (out.skip, caught.skip))))
    orelse = walk_block(node.orelse, reach, state)
    final = walk_block(node.finalbody, reach, state)
    for extra in (orelse, final):
        out = Exits(either(out.leave, extra.leave), either(out.stop, extra.stop), either(out.skip, extra.skip))
    return out


def ends_the_process(statements):
    """Whether a block always passes an error on, or ends the process."""
    for n in statements:
        if isinstance(n, ast.Raise):
            return True
        if isinstance(n, ast.If):
            if ends_the_process(n.body) and ends_the_process(n.orelse):
                return True
            if any(b and isinstance(b[-1], (ast.Return, ast.Continue, ast.Break)) for b in (n.body, n.orelse)):
                return False
        if isinstance(n, ast.Expr) and isinstance(n.value, ast.Call) and (
                written(n.value.func) in (*EXITS, "os.abort", "os.kill")
                or last_name(n.value) in ("destroy_process_group", "abort", "fail")):
            return True
        if isinstance(n, (ast.With, ast.Try)) and ends_the_process(n.body):
            return True
    return False


def is_registration(decorator):
    """`@engine.on(…)`"""
    return isinstance(decorator, ast.Call) and last_name(decorator) == "on"


def walk_definition(node, reach, state):
    """A function defined here: what its decorators register, it does whenever the event fires."""
    inner = state.scope.module.scope_of.get(id(node))
    for decorator in node.decorator_list:
        walk_expression(decorator, reach, state)
    registered = any(map(is_registration, node.decorator_list))
    for d in node.decorator_list:
        if is_registration(d) and d.args:
            reach = both(reach, event_reach(d.args[0], state.scope))
    guard = one_rank(inner)
    if guard is not None:
        return  # its own walk looks at it
    if registered and differs(reach):
        for effect in effects_of(inner)[:1] or [Effect("schedule", n, 0) for n in steps_of_schedules(inner)[:1]]:
            if effect.kind != "query":
                kind = effect.kind if effect.kind == "schedule" else registered_kind(effect)
                state.sites.append((Effect(kind, effect.name, node.lineno, node.name), reach, node))


def walk_expression(node, reach, state):
    """Calls in an expression, in about the order of their evaluation; `and`, `or`, `if` guard what follows them."""
    pending = [(node, reach)]
    while pending:
        n, r = pending.pop()
        if isinstance(n, (ast.Lambda, ast.FunctionDef, ast.ClassDef)):
            continue
        if isinstance(n, ast.IfExp):
            test = condition(n.test, state.scope)
            pending += [(n.orelse, both(r, negate(test))), (n.body, both(r, test)), (n.test, r)]
            continue
        if isinstance(n, ast.BoolOp):
            parts, now = [], r
            for v in n.values:
                parts.append((v, now))
                test = condition(v, state.scope)
                now = both(now, test if isinstance(n.op, ast.And) else negate(test))
            pending += reversed(parts)
            continue
        if isinstance(n, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
            now = r
            for g in n.generators:
                for test in g.ifs:
                    now = both(now, condition(test, state.scope))
            for child in ast.iter_child_nodes(n):
                if not isinstance(child, ast.comprehension):
                    pending.append((child, now))
            pending += [(g.iter, r) for g in n.generators]
            continue
        if isinstance(n, ast.Call):
            added = last_name(n) == "add_event_handler" and n.args
            visit_call(n, both(r, event_reach(n.args[0], state.scope)) if added else r, state)
        elif isinstance(n, ast.Attribute) and n.attr in properties(state.scope.module):
            found = definition(n, state.scope)
            if found is not None and found.is_function and is_property(found):
                state.sites += [(e, r, n) for e in called(found, n) if e.kind != "query"]
        pending += [(c, r) for c in reversed(list(ast.iter_child_nodes(n)))]


def event_reach(event, scope):
    """On which ranks an event fires, by its event_filter."""
    chosen = keyword(event, "event_filter") if isinstance(event, ast.Call) else None
    function = definition(chosen, scope) if chosen is not None else None
    if chosen is not None and isinstance(chosen, ast.Lambda):
        function = scope.module.scope_of.get(id(chosen))
    made = returned(function) if function is not None and function.is_function else []
    return condition(made[0][0], made[0][2]) if len(made) == 1 else ALWAYS


@kept
def properties(module) -> list:
    """The names of properties that the file defines."""
    return [s.name for s in module.scopes if s.owner is not None and is_property(s)]


def visit_call(call, reach, state):
    name = resolve(call.func, state.scope)
    if name == TORCH_DIST + "init_process_group":
        state.own_group = not differs(reach)
    elif name.startswith(IDIST) and name.rpartition(".")[2] in ("sync", "initialize", "spawn", "Parallel"):
        if not differs(reach):
            state.queried = True
    else:
        found = definition(call.func, state.scope)
        if found is not None and found.is_function and not differs(reach) and any(
                e.name == "torch.distributed.init_process_group" for e in effects_of(found)):
            state.own_group = True
            state.queried = state.queried or any(resolve(c.func, found) == IDIST + "sync" for c in found.calls)
    if is_one_rank_only(call.func, state.scope) and call.args:
        function = definition(call.args[0], state.scope)
        for effect in effects_of(function)[:1] if function is not None and function.is_function else ():
            if effect.kind != "query":
                rule = "stop-on-one-rank" if effect.kind in ("stop", "stopper") else "collective-in-one-rank-only"
                state.report.add(rule, call, state.scope.module, name=effect.name, via=function.name)
    if uses_wrapper(state.scope.module) and isinstance(call.func, (ast.Name, ast.Attribute)) and model_kind(
            call.func, state.scope, call) == "wrapped":
        state.sites.append((Effect("wrapped", f"{written(call.func)}(…)", call.lineno), reach, call))
    for effect in effects_at(call, state.scope):
        if effect.kind == "query":
            if differs(reach):
                if state.own_group and not state.queried:
                    state.report.add("first-query-under-rank-guard", call, state.scope.module, name=effect.name)
                    state.queried = True
            else:
                state.queried = state.queried or state.own_group
            continue
        if effect.name.startswith("idist.") and not differs(reach):
            state.queried = state.queried or state.own_group
        early = "L" in reach and not state.measured and state.left is not None
        state.sites.append((effect, reach, state.left if early else call))
        if state.first and effect.name != "idist.one_rank_first" and effect.kind in (
                "collective", "metric", "run", "backward") and not differs(reach):
            state.report.add("collective-in-one-rank-first", call, state.scope.module, name=effect.name,
                             via=effect.via)


WAITS = ("collective", "metric", "run", "backward", "attach")
ALIKE = re.compile(  # what all ranks have, or none: the program itself, a file of all, a group that is broken
    r"(?:Import|ModuleNotFound|Attribute|Name|NotImplemented|Syntax|FileNotFound|FileExists|Permission|Dist\w*)Error|"
    r"KeyboardInterrupt|SystemExit|GeneratorExit")


def wraps(scope):
    """Whether the function, one around it or its class wraps a model for several processes."""
    around = [*all_scopes(scope), *(scope.owner.functions.values() if scope.owner else ())]
    return any(is_wrapper(c, s) for s in around for c in s.calls)


def is_step_of_engine(function):
    """Whether a function is the step of an engine, or looks like one."""
    own = [p for p in function.parameters if p not in ("self", "cls")] if function.is_function else []
    return len(own) >= 2 and bool(ENGINES.search(own[0])) or runs_again(function)


def per_rank_error(kind):
    """Whether an except clause takes errors that one rank may have alone."""
    return kind is None or not ALIKE.fullmatch(last_name(kind) or "")


def leaves(statements):
    return bool(statements) and isinstance(statements[-1], (ast.Return, ast.Continue, ast.Break))


def judge_caught(state):
    """Errors that one rank swallows while the others wait for it."""
    scope = state.scope
    if not state.caught or not near_distributed(scope.module):
        return
    is_step = is_step_of_engine(scope)
    for node, handler, inside, loops in state.caught:
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        if not any(per_rank_error(k) for k in kinds):
            continue
        waits = [s for s in inside if s[0].kind in WAITS and (s[0].kind != "backward" or is_step or wraps(scope))]
        after = [s for s in state.sites if s[0].kind in WAITS and s[2].lineno > node.end_lineno]
        if waits and waits[0][0].name.endswith("init_process_group"):
            continue
        if waits and (loops or after or is_step):
            state.report.add("exception-on-one-rank", handler, scope.module, name=waits[0][0].name,
                             via=waits[0][0].via)
        forward = next((s[0].name for s in inside if s[0].kind == "wrapped"), "")
        if forward and after and not waits and leaves(handler.body) and (is_step or loops):
            state.report.add("exception-on-one-rank", handler, scope.module, name=forward)


def judge(state):
    """What the walk came upon, under which condition: the findings."""
    module, report = state.scope.module, state.report
    judge_caught(state)
    reaches = {}
    for effect, reach, _ in state.sites:
        if differs(reach) and "L" not in reach:
            covered = reaches.setdefault(effect.name, [False] * 4)
            for i, t in enumerate(reach):
                covered[i] = covered[i] or t != "F" and t != "R"
    said = set()  # places: one call that does several such things is one mistake
    for effect, reach, node in sorted(state.sites, key=lambda site: ORDER.get(site[0].kind, 9)):
        local = "L" in reach
        spot = node.lineno, node.col_offset
        if spot in said or effect.kind == "wrapped":
            continue
        if state.guard:
            rule = {"stop": "stop-on-one-rank", "stopper": "stop-on-one-rank"}.get(
                effect.kind, "collective-in-one-rank-only")
        elif not differs(reach):
            continue
        elif local:
            if effect.kind in ("attach", "stopper", "schedule") or not near_distributed(module):
                continue
            rule = "decision-on-local-value"
        elif effect.via != "loop" and node not in state.crossed and all(reaches[effect.name]) and len(
                [s for s in state.sites if s[0].name == effect.name and differs(s[1])]) > 1 and not left_between(
                effect.name, node, state):
            continue  # each rank comes to one of these calls
        else:
            rule = {"collective": "collective-under-rank-guard", "metric": "metric-under-rank-guard",
                    "attach": "handler-under-rank-guard", "schedule": "handler-under-rank-guard",
                    "run": "engine-run-under-rank-guard", "backward": "collective-under-rank-guard",
                    "stop": "stop-on-one-rank", "stopper": "stop-on-one-rank"}[effect.kind]
        said.add(spot)
        name = f"{effect.name}, in this order," if node in state.crossed else effect.name
        report.add(rule, node, module, name, "sets the learning rate" if effect.kind == "schedule" else "communicates",
                   effect.via, effect.line)


def left_between(name, node, state):
    """Whether a call is the last of several to which different ranks come, and all may return between the first and
    this one."""
    places = [s[2].lineno for s in state.sites if s[0].name == name and differs(s[1])]
    return node.lineno == max(places) and any(
        isinstance(n, ast.Return) and min(places) < n.lineno < node.lineno and not guarded(n, state.scope)
        for n in own_nodes(state.scope.node))


ORDER = {"run": 0, "metric": 1, "collective": 2, "backward": 3, "attach": 4}


# --- rules that need no walk: one call, one assignment, one file at a time ------------------------------------------


@kept
def is_distributed(module):
    """Whether the file itself sets up or uses several ranks."""
    return any(
        resolve(c.func, s) in STARTERS or named(resolve(c.func, s), "DistributedDataParallel", "DistributedSampler")
        for s in module.scopes for c in s.calls)


STARTERS = {IDIST + n for n in ("Parallel", "initialize", "spawn", "auto_model", "auto_dataloader", "auto_optim",
                                "all_reduce", "all_gather", "broadcast", "barrier")} | {
    TORCH_DIST + "init_process_group"}


def near_distributed(module):
    """Whether the file, or one that imports it, uses several ranks."""
    return any(is_distributed(m) or "torch.distributed" in m.source and "init_process_group" in m.source
               for m in [module, *importers(module, module.project)])


def rule_calls(module, report):
    """Calls of ignite.distributed whose arguments are wrong."""
    for scope in module.scopes:
        for call in scope.calls:
            name = resolve(call.func, scope)
            if not name.startswith(IDIST):
                if isinstance(call.func, ast.Attribute) and call.func.attr == "run":
                    check_run(call, scope, report)
                elif name == TORCH_DIST + "init_process_group":
                    check_timeout(call, scope, report)
                    check_rendezvous(call, scope, report)
                elif last_name(call) == "partial" and call.args:
                    check_partial(call, scope, report)
                if uses_wrapper(module):
                    check_wrapping_helper(call, scope, report)
                continue
            last = name[len(IDIST):]
            check_keywords(call, last, module, report)
            if last == "all_reduce":
                check_reduction(call, scope, report)
                check_reduced_twice(call, scope, report)
                check_in_place(call, scope, report)
                check_mean(call, scope, report)
                check_fit(call, scope, report)
            if last == "all_gather":
                check_ragged(call, scope, report)
            if last == "broadcast":
                check_source(call, scope, report)
            if last == "initialize":
                check_rank_of_slurm(call, scope, report)
            if last in ("Parallel", "initialize", "spawn"):
                check_launch(call, last, scope, report)
            if last in ("all_reduce", "all_gather", "all_gather_tensors_with_shapes", "new_group"):
                check_group(call, last, scope, report)
            if last == "auto_model":
                check_wrapped_twice(call, scope, report)
            if last == "auto_dataloader":
                check_loader(call, scope, report)
        for node in own_nodes(scope.node):
            if isinstance(node, ast.Call) and resolve(node.func, scope).rpartition(".")[2] == "DataLoader" and resolve(
                    node.func, scope).startswith("torch.utils.data"):
                check_shuffle(node, scope, report)
                if is_distributed(module):
                    check_iterable(node, scope, report, "DataLoader")
                    check_batches(node, scope, report)
            if isinstance(node, ast.Call) and named(resolve(node.func, scope), "DistributedDataParallel"):
                check_wrapped_twice(node, scope, report)
            if isinstance(node, ast.Call) and named(resolve(node.func, scope), "DistributedSampler") and not any(
                    k.arg in ("rank", "num_replicas") and isinstance(k.value, ast.Constant) for k in node.keywords):
                check_share(node, scope, report, "DistributedSampler")
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                for decorator in node.decorator_list:
                    if isinstance(decorator, (ast.Name, ast.Attribute)) and resolve(
                            decorator, scope) == IDIST + "one_rank_only":
                        report.add("one-rank-only-without-call", decorator, module)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                if isinstance(node.value.func, ast.Attribute) and node.value.func.attr == "run" and is_parallel(
                        node.value.func.value, scope):
                    report.add("result-of-run", node.value, module)
                elif resolve(node.value.func, scope) == IDIST + "spawn":
                    report.add("result-of-run", node.value, module)


def check_partial(call, scope, report):
    """A partial of a function of ignite.distributed: what it is given already."""
    name = resolve(call.args[0], scope)
    if not name.startswith(IDIST):
        return
    last = name[len(IDIST):]
    inner = ast.copy_location(ast.Call(func=call.args[0], args=call.args[1:], keywords=call.keywords), call)
    scope.module.project.found.setdefault("kept", []).append(inner)
    check_keywords(inner, last, scope.module, report)
    if last == "initialize":
        check_timeout(inner, scope, report)
    elif last == "all_reduce":
        check_reduction(inner, scope, report)
    elif last == "auto_dataloader":
        check_loader(inner, scope, report)


def check_keywords(call, last, module, report):
    allowed = SIGNATURES.get(last)
    if allowed is None:
        return
    if any(k.arg is None for k in call.keywords) or any(isinstance(a, ast.Starred) for a in call.args):
        return
    wrong = [k.arg for k in call.keywords if k.arg not in allowed]
    if wrong:
        report.add("unknown-argument", call, module, name=last, given=f"`{wrong[0]}`")
    elif len(call.args) > len(allowed):
        report.add("unknown-argument", call, module, name=last, given=f"{len(call.args)} positional arguments")


@kept
def literals(node, scope, depth=0) -> list:
    """The constants that an expression may be, None for what is none; of a text that is put together, its beginning."""
    found = []
    for value, s in sources(node, scope):
        if isinstance(value, ast.Constant):
            found.append(value.value)
        elif isinstance(value, ast.JoinedStr) and value.values and depth < 4:
            first, *rest = value.values
            begins = [first.value] if isinstance(first, ast.Constant) else literals(first.value, s, depth + 1)
            found += [b if b is None else f"{b}{constant(rest[0]) or '' if rest else ''}" for b in begins]
        elif isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Mod)) and depth < 4:
            found += [v for v in literals(value.left, s, depth + 1) if isinstance(v, str)] or [None]
        elif isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "format":
            found += [b for text in literals(value.func.value, s, depth + 1) for b in (
                filled_in(text, value, s, depth))] if depth < 4 else [None]
        else:
            found.append(None)
    return found


def filled_in(text, call, scope, depth):
    """What a text may begin with for which `format` is called, where it begins with a field."""
    field_first = re.match(r"\{(\w*)\}([^{]*)", text) if isinstance(text, str) else None
    if field_first is None:
        return [text]
    name, rest = field_first.groups()
    place_of = int(name or 0) if name.isdigit() or not name else None
    return [v if v is None else f"{v}{rest}" for a, s in given(call, name, place_of, scope)
            for v in literals(a, s, depth + 1)] or [None]


def literal(node, scope):
    """The constant that an expression is, else None."""
    found = literals(node, scope) if node is not None else []
    return found[0] if found and all(type(v) is type(found[0]) and v == found[0] for v in found) else None


def check_reduction(call, scope, report):
    """Each value that the operation may be: a text is reported where it is written, if that is in this file."""
    for op, s in given(call, "op", 1, scope):
        for value, x in sources(op, s):
            text = constant(value) or unless_chosen(value, x)
            if isinstance(text, str) and text not in REDUCTIONS:
                what = f'"{text}"'
            elif isinstance(value, ast.Call) and last_name(value) == "lower" and not value.args:
                what = written(value)
            elif value is not None and resolve(value, x).startswith("torch.distributed.ReduceOp"):
                what = written(value)
            else:
                continue
            by_caller = isinstance(op, ast.Name) and any(v is value for v, _, _ in handed(op.id, s))
            return report.add("reduction-op", value if by_caller and x.module is scope.module else place(
                op, s, call, scope), scope.module, given=what)


def unless_chosen(node, scope):
    """The text that an option of the command line, or a variable of the environment, is where nobody gives it."""
    if isinstance(node, ast.Attribute):
        found = option_default(node.attr, scope.module)
    elif isinstance(node, ast.Call) and last_name(node) in ("get", "getenv") and len(node.args) == 2:
        found = constant(node.args[1])
    else:
        return None
    return found if isinstance(found, str) else None


def check_reduced_twice(call, scope, report):
    value = keyword(call, "tensor", 0)
    pending, seen = [(value, scope, 0)], 0
    while pending and seen < 60:
        node, s, depth = pending.pop()
        seen += 1
        if node is None:
            continue
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr == "compute" and is_metric(node.func.value, s):
                return report.add("reduced-twice", call, scope.module, name=f"{written(node.func.value)}.compute()")
            if last_name(node) not in ("tensor", "float", "as_tensor", "Tensor", "item", "to", "clone"):
                continue
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "metrics" \
                and last_name(node.value.value) == "state":
            name = constant(node.slice)
            if not attached_plain(s.module, name):
                return report.add("reduced-twice", call, scope.module, name=written(node))
            continue
        if isinstance(node, ast.Subscript) and all(is_run_metrics(v) for v in kept_in(node.value, s)):
            return report.add("reduced-twice", call, scope.module, name=written(node))
        if isinstance(node, ast.Name):
            if depth < 3:
                pending += [(v, x, depth + 1) for v, i, x in values_of(node, s) if v is not None and i is None
                         and v is not node]
            continue
        pending += [(c, s, depth) for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr)]


def is_run_metrics(node):
    """`evaluator.run(data).metrics`"""
    return isinstance(node, ast.Attribute) and node.attr == "metrics" and isinstance(
        node.value, ast.Call) and last_name(node.value) == "run"


def kept_in(node, scope):
    """What a dict holds: the expressions that it is, or is updated with, or its values; the node itself if none."""
    if not isinstance(node, (ast.Name, ast.Attribute)) or is_run_metrics(node):
        return [node]
    found, wanted = [], chain(node)
    first = [v for v, i, _ in values_of(node, scope) if not (isinstance(v, ast.Dict) and not v.keys)]
    homes = [scope, *(scope.owner.functions.values() if scope.owner is not None else ())]
    for f in dict.fromkeys(homes):
        for n in own_nodes(f.node):
            if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "update" and chain(
                    n.func.value) == wanted:
                found += n.args or [n]
            elif isinstance(n, ast.Assign) and any(isinstance(t, ast.Subscript) and chain(t.value) == wanted
                                                   for t in n.targets):
                found.append(n.value)
    return [*first, *found] or [node]


def check_rendezvous(call, scope, report):
    """torch's own group at an address, where torch is not told who this is, nor how many there are."""
    where = keyword(call, "init_method", 1)
    if any(k.arg is None for k in call.keywords) or where is None:
        return
    at = [v for v in literals(where, scope) if isinstance(v, str)]
    told = keyword(call, "rank", 4) is not None and keyword(call, "world_size", 3) is not None
    if at and all(v.startswith("tcp:") and "rank=" not in v for v in at) and not told:
        report.add("address-without-rank", call, scope.module)


def check_rank_of_slurm(call, scope, report):
    """The rank or the world size for initialize, out of a variable of SLURM."""
    for name in ("rank", "world_size"):
        for value, _ in sources(keyword(call, name), scope):
            texts = [constant(n) for n in ast.walk(value)] if value is not None else []
            if any(isinstance(t, str) and t.startswith("SLURM_") for t in texts):
                return report.add("rank-with-slurm", call, scope.module, given=name.replace("_", " "))


def check_mean(call, scope, report):
    """A mean over what a rank has, in a sum over the ranks that nobody divides by their number."""
    value = keyword(call, "tensor", 0)
    if value is None or op_of(call, scope) != "SUM" or grouped(call) or not is_own_mean(value, scope):
        return
    if is_final(call, scope):
        report.add("means-summed", call, scope.module, given=written(value))


def op_of(call, scope):
    """The reduction of an all_reduce, None if it is not seen."""
    op = keyword(call, "op", 1)
    return "SUM" if op is None else literal(op, scope)


def is_final(call, scope):
    """Whether the result of a call is used, shown or kept, and never divided nor multiplied before."""
    rest = [n for n in own_nodes(scope.node) if getattr(n, "lineno", 0) >= call.lineno]
    targets = [t for n in rest if isinstance(n, ast.Assign) and any(x is call for x in shells(n.value))
               for t in n.targets]
    results = {t.id for t in targets if isinstance(t, ast.Name)}
    kept = {t.attr if isinstance(t, ast.Attribute) else constant(t.slice) for t in targets
            if isinstance(t, (ast.Attribute, ast.Subscript))} - {None}

    def has_result(node):
        return any(x is call or isinstance(x, ast.Name) and x.id in results for x in ast.walk(node))

    def has_kept(node):
        return any(isinstance(x, ast.Attribute) and x.attr in kept or isinstance(x, ast.Subscript) and constant(
            x.slice) in kept for x in ast.walk(node))

    scaled = any(isinstance(n, ast.expr) and is_world(n) or isinstance(n, (ast.BinOp, ast.AugAssign)) and isinstance(
        n.op, (ast.Div, ast.Mult)) and has_result(n) for n in rest)
    scaled |= bool(kept) and any(isinstance(n, ast.BinOp) and isinstance(n.op, (ast.Div, ast.Mult)) and has_kept(n)
                                 for s in scope.module.scopes for n in own_nodes(s.node))
    used = bool(kept) or any(isinstance(n, ast.Call) and n is not call and last_name(n) not in KEEPS_VALUE and any(
        map(has_result, n.args)) for n in rest)
    return used and not scaled


KEEPS_VALUE = ("item", "float", "cpu", "detach", "tolist")


def shells(node) -> list:
    """A value, and what it is without `.item()`, float(…) and the like, from the outermost to the bare one."""
    if not isinstance(node, ast.Call) or last_name(node) not in KEEPS_VALUE:
        return [node]
    inner = node.args[0] if node.args else getattr(node.func, "value", None)
    return [node, *shells(inner)] if inner is not None else [node]


def check_fit(call, scope, report):
    """A largest or smallest value in a sum over the ranks; a count of which the largest divides a sum of all ranks."""
    value, op = keyword(call, "tensor", 0), op_of(call, scope)
    if value is None or grouped(call):
        return
    kind = is_extreme(value, scope) if op == "SUM" else ""
    if kind and is_final(call, scope):
        return report.add("unfit-reduction", call, scope.module, f"{written(value)}, a {kind} of this rank", op)
    if op not in ("MAX", "MIN"):
        return
    names = {t.id for n in own_nodes(scope.node) if isinstance(n, ast.Assign) and any(
        x is call for x in shells(n.value)) for t in n.targets if isinstance(t, ast.Name)}
    for n in own_nodes(scope.node):
        if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div) and any(
                x is call or isinstance(x, ast.Name) and x.id in names for x in shells(n.right)) and any(
                is_all_reduce(v, s) and op_of(v, s) == "SUM" for v, s in sources(shells(n.left)[-1], scope)):
            return report.add("unfit-reduction", call, scope.module,
                              f"{written(value)}, by which a sum over the ranks is divided", op)


def is_all_reduce(node, scope):
    bare = shells(node)[-1]
    return isinstance(bare, ast.Call) and resolve(bare.func, scope) == IDIST + "all_reduce"


def is_extreme(node, scope, so_far=None, depth=0):
    """"maximum" or "minimum" where a value is that of this rank's numbers, else "": of all numbers at once, or of one
    after the other, where `so_far` is the name of what the last one is compared with. A number with a limit,
    `min(count, 100)`, is none.
    """
    values = None
    if isinstance(node, ast.Name):
        values = [(v, s) for v, i, s in values_of(node, scope)
                  if v is not None and i is None and v.lineno < node.lineno]
    elif isinstance(node, ast.Attribute) and last_name(node.value) == "state":
        values = [(v, s) for v, s in kept_by_hand(node, scope) if not is_all_reduce(v, s)]
    if values is not None:
        found = {is_extreme(v, s, chain(node), depth + 1) for v, s in values if constant(v) is None and depth < 3}
        return found.pop() if len(found) == 1 else ""
    if not isinstance(node, ast.Call) or depth > 6:
        return ""
    numbers = [*node.args, *([node.func.value] if isinstance(node.func, ast.Attribute) else [])]
    if last_name(node) in EXTREMES:
        compared = so_far is not None and any(chain(a) == so_far for a in numbers)
        alone = len(node.args) < 2 and not any(constant(a) is not None for a in node.args)
        return EXTREMES[last_name(node)] if compared or alone and not node.keywords else ""
    if last_name(node) in (*KEEPS_VALUE, "tensor", "as_tensor", "to"):
        return is_extreme(node.args[0] if last_name(node) in ("tensor", "as_tensor", "float") and node.args
                          else numbers[-1], scope, so_far, depth + 1) if numbers else ""
    return ""


EXTREMES = {"max": "maximum", "min": "minimum", "amax": "maximum", "amin": "minimum", "maximum": "maximum",
            "minimum": "minimum"}


def is_own_mean(node, scope, depth=0):
    """Whether a value is a mean over this rank's numbers: a call of mean, or a sum divided by the length of its loader,
    of its sampler, or by what a loop has counted."""
    if isinstance(node, ast.Name) and depth < 3:
        values = [(v, s) for v, i, s in values_of(node, scope)
                  if v is not None and i is None and v.lineno < node.lineno]
        return len(values) == 1 and values[0][1] is scope and is_own_mean(*values[0], depth + 1)
    if isinstance(node, ast.Call):
        if last_name(node) in ("mean", "fmean"):
            return True
        inner = node.args[0] if last_name(node) in ("tensor", "float", "as_tensor") and node.args else getattr(
            node.func, "value", None) if last_name(node) in ("item", "detach", "to", "cpu") else None
        return inner is not None and depth < 3 and is_own_mean(inner, scope, depth + 1)
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)):
        return False
    by = node.right
    if isinstance(by, ast.Call) and last_name(by) == "len" and len(by.args) == 1:
        counted = by.args[0]
        of_sampler = isinstance(counted, ast.Attribute) and counted.attr == "sampler"
        return of_sampler or any(
            isinstance(v, ast.Call) and is_sharded_loader(v, s) for v, s in sources(counted, scope))
    return isinstance(by, ast.Name) and by.id in (sums_of_share(scope) or ()) and origin(node.left, scope) == "local"


def check_source(call, scope, report):
    """A name that is broadcast, and that gets its value on ranks of which the source is none."""
    value, source = keyword(call, "tensor", 0), keyword(call, "src", 1)
    ranks = (0,) * 4 if source is None else value_on_ranks(source, scope)
    if not isinstance(value, ast.Name) or not isinstance(ranks, tuple) or varies(ranks) or ranks[0] not in range(4):
        return
    made = [(reach_of(n, scope), n.value) for n in own_nodes(scope.node) if isinstance(n, ast.Assign)
            and n.lineno < call.lineno and any(chain(t) == [value.id] for t in n.targets)]
    on_some = [reach for reach, _ in made if differs(reach)]
    elsewhere = on_some and all(reach[ranks[0]] == "F" for reach in on_some)
    if elsewhere and all(differs(reach) or holds_a_place(v) for reach, v in made):
        report.add("broadcast-from-another-rank", call, scope.module, given=str(ranks[0]))


def holds_a_place(node):
    """Whether a value is one that stands for another to come: a constant, an empty list, a tensor of zeros."""
    return isinstance(node, (ast.Constant, ast.List, ast.Dict)) or isinstance(node, ast.Call) and last_name(node) in (
        "zeros", "empty", "tensor", "ones", "full", "zeros_like", "empty_like", "dict", "list")


def reach_of(node, scope):
    """On which of four ranks a node is come to, by the conditions of the `if`s around it in its function."""
    reach = ALWAYS
    for n in own_nodes(scope.node):
        if isinstance(n, ast.If) and n.lineno <= node.lineno <= n.end_lineno:
            tried = condition(n.test, scope)
            if any(x is node for b in n.body for x in ast.walk(b)):
                reach = both(reach, tried)
            elif any(x is node for b in n.orelse for x in ast.walk(b)):
                reach = both(reach, negate(tried))
    return reach


FORM = {"device", "shape", "dtype", "ndim", "size", "dim", "numel", "requires_grad"}  # a reduction does not change it


def check_in_place(call, scope, report):
    """`total = all_reduce(mine)` and `mine` afterwards, a tensor: it is the total by then."""
    value = keyword(call, "tensor", 0)
    if not isinstance(value, ast.Name) or grouped(call) or not is_tensor(value, scope):
        return
    for later in following(call, value.id, scope):
        spared = {id(n.value) for n in ast.walk(later) if isinstance(n, ast.Attribute) and n.attr in FORM}
        for n in ast.walk(later):
            if isinstance(n, ast.Name) and n.id == value.id and isinstance(n.ctx, ast.Load) and id(n) not in spared:
                return report.add("changed-in-place", call, scope.module, name=value.id)
        if any(isinstance(n, ast.Name) and n.id == value.id and isinstance(n.ctx, ast.Store) for n in ast.walk(later)):
            return


def following(call, name, scope):
    """The statements of its block that follow `other = call`, if that is the statement of the call."""
    for n in [scope.node, *own_nodes(scope.node)]:
        for block in (getattr(n, part, None) for part in ("body", "orelse", "finalbody")):
            for i, statement in enumerate(block if isinstance(block, list) else ()):
                if isinstance(statement, ast.Assign) and statement.value is call and len(statement.targets) == 1 and (
                        isinstance(statement.targets[0], ast.Name) and statement.targets[0].id != name):
                    return block[i + 1 :]
    return []


def is_tensor(node, scope, depth=0):
    """Whether a value is seen to be a tensor, wherever it comes from: made by torch, or by a method of one."""
    found = sources(node, scope) if depth < 4 else []
    return bool(found) and all(makes_tensor(v, s, depth) for v, s in found)


def makes_tensor(node, scope, depth):
    if isinstance(node, ast.BinOp):
        return is_tensor(node.left, scope, depth + 1) or is_tensor(node.right, scope, depth + 1)
    if not isinstance(node, ast.Call) or last_name(node) in ("item", "manual_seed", "device", "numpy"):
        return False
    return resolve(node.func, scope).startswith("torch.") or last_name(node) in KEEPS_LENGTH | {"sum", "mean"} and (
        isinstance(node.func, ast.Attribute) and is_tensor(node.func.value, scope, depth + 1))


def attached_plain(module, name):
    """Whether state.metrics[name] is set by hand somewhere, and so may be a local value."""
    return any(name is None or constant(key) in (name, None) for key, _, _ in metrics_by_hand(module))


@kept
def metrics_by_hand(module) -> list:
    """[(key, value, scope), …] where a file assigns state.metrics[key]."""
    return [(t.slice, n.value, s) for s in module.scopes for n in own_nodes(s.node) if isinstance(n, ast.Assign)
            for t in n.targets if isinstance(t, ast.Subscript) and last_name(t.value) == "metrics"]


def kept_by_hand(node, scope):
    """[(value, scope), …] that state.metrics["name"], or an attribute of the state that is no field of it, is assigned
    in the file and those that it imports.
    """
    modules = [scope.module, *imports_of(scope.module)]
    if isinstance(node, ast.Attribute):
        return [(v, s) for m in modules for v, i, s in m.assigned.get(node.attr, ()) if i is None and v is not node]
    name = literal(node.slice, scope)
    return [] if name is None else [(v, s) for m in modules for key, v, s in metrics_by_hand(m)
                                    if name in literals(key, s)]


def check_ragged(call, scope, report):
    if grouped(call):
        return
    value = keyword(call, "tensor", 0)
    why = ragged(value, scope)
    if why:
        report.add("ragged-all-gather", call, scope.module, name=why)


TENSOR_MAKERS = {"tensor", "as_tensor", "FloatTensor", "LongTensor", "from_numpy"}
KEEPS_LENGTH = {"to", "cuda", "cpu", "float", "long", "int", "double", "detach", "clone", "contiguous", "half", "bool",
                "softmax", "sigmoid", "argmax", "type", "numpy", "squeeze", "flatten", "view", "reshape", "unsqueeze"}


@kept
def ragged(node, scope, depth=0) -> str:
    """Why the length of a tensor depends on the data or on the rank; "" when that cannot be seen."""
    if node is None or depth > 5:
        return ""
    if isinstance(node, ast.Call):
        name, last = resolve(node.func, scope), last_name(node)
        if last in ("nonzero", "unique", "masked_select", "unique_consecutive", "argwhere"):
            return f"`{last}`"
        if last == "where" and len(node.args) == 1:
            return "`where`"
        if last == "generate" and any(k.arg in ("input_ids", "max_length", "max_new_tokens") for k in node.keywords):
            return "`generate`, as long as the longest text of the batch,"
        if last in ("ones", "zeros", "rand", "randn", "arange", "full", "empty") and name.startswith("torch."):
            sizes = [e for a in node.args[:4] for e in (a.elts if isinstance(a, (ast.Tuple, ast.List)) else [a])]
            if any(varies(value_on_ranks(a, scope)) for a in sizes[: 1 if last == "full" else 4]):
                return "a length that depends on the rank"
            return ""
        if last in JOINS and node.args:
            return joined_ragged(node.args[0], scope, depth + 1)
        if last in TENSOR_MAKERS and node.args:
            return ragged_list(node.args[0], scope, depth + 1)
        if last in KEEPS_LENGTH and isinstance(node.func, ast.Attribute):
            return ragged(node.func.value, scope, depth + 1) or (
                ragged(node.args[0], scope, depth + 1) if name.startswith("torch.") and node.args else "")
        function = definition(node.func, scope)
        made = returned(function) if function is not None and function.is_function else ()
        return next(filter(None, (ragged(v, s, depth + 1) for v, _, s in made)), "")
    if isinstance(node, ast.Subscript):
        s = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice
        if is_mask(s, scope):
            return "a mask"
        if isinstance(s, ast.Slice):
            if any(b is not None and varies(value_on_ranks(b, scope)) for b in (s.lower, s.upper)):
                return "a slice that depends on the rank"
            if s.upper is not None and counts_a_mask(s.upper, scope):
                return "as many as a mask has"
        if constant(s) in DETECTED and re.search(r"boxes|rcnn|retinanet|ssd", scope.module.source) and any(
                isinstance(v, ast.Starred) for v, _, _ in values_of(node.value, scope)):
            return "as many as were detected in a sample"
        return ""
    if isinstance(node, (ast.Name, ast.Attribute)):
        for value, index, s in values_of(node, scope):
            if value is None and isinstance(node, ast.Name):
                given_ones = [(v, x) for v, _, x in handed(node.id, s)]
            else:
                item = part(value, index)
                given_ones = [(item, s)] if item is not None and item is not node else unpacked_from_call(node, s)
            for v, x in given_ones:
                why = ragged(v, x, depth + 1)
                if why:
                    return why
    return ""


DETECTED = {"boxes", "scores", "labels", "masks", "keypoints"}  # of what torchvision's detectors answer for a sample
JOINS = {"cat", "concat", "concatenate", "hstack", "vstack", "stack"}


def is_mask(node, scope, depth=0):
    """Whether an index is a comparison of tensors, or made of such."""
    if isinstance(node, ast.Compare) and not any(isinstance(op, (ast.In, ast.Is)) for op in node.ops):
        return True
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, (ast.BitAnd, ast.BitOr, ast.BitXor)) and (
            is_mask(node.left, scope, depth) or is_mask(node.right, scope, depth))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return True
    if isinstance(node, ast.Call):
        if last_name(node) in ("isfinite", "isnan", "logical_and", "logical_or", "logical_not", "gt", "lt", "ge", "le",
                               "eq", "ne"):
            return True
        function = definition(node.func, scope) if depth < 3 else None
        made = returned(function) if function is not None and function.is_function else []
        return bool(made) and all(is_mask(v, s, depth + 1) for v, _, s in made)
    if not isinstance(node, (ast.Name, ast.Attribute)) or depth > 3:
        return False
    values = [(part(v, i), s) for v, i, s in values_of(node, scope) if v is not None and part(v, i) is not node]
    return any(is_mask(v, s, depth + 1) for v, s in [*values, *unpacked_from_call(node, scope)] if v is not None)


def counts_a_mask(node, scope, depth=0):
    """Whether a number is how often a mask is true: `int(mask.sum())`."""
    if isinstance(node, ast.Call):
        if last_name(node) in ("sum", "count_nonzero"):
            inner = node.args[0] if node.args else getattr(node.func, "value", None)
            return inner is not None and is_mask(inner, scope)
        if last_name(node) in ("int", "item"):
            inner = node.args[0] if node.args else getattr(node.func, "value", None)
            return inner is not None and counts_a_mask(inner, scope, depth)
    return isinstance(node, ast.Name) and depth < 3 and any(
        counts_a_mask(v, s, depth + 1) for v, i, s in values_of(node, scope) if v is not None and i is None)


def joined_ragged(node, scope, depth):
    """The same for the tensors of a list that are put together: one is ragged, or the list is."""
    if isinstance(node, (ast.List, ast.Tuple)):
        return next(filter(None, (ragged(e, scope, depth) for e in node.elts if not isinstance(e, ast.Starred))), "")
    if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        return ragged(node.elt, scope, depth) or ragged_list(node, scope, depth)
    return ragged_list(node, scope, depth)


def ragged_list(node, scope, depth=0):
    """Why a list's length depends on the data or on the rank: filled under an `if`, with ragged tensors, or a share
    cut by hand."""
    if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        if any(g.ifs for g in node.generators):
            return "a list filtered by `if`"
        return by_hand(node.generators[0].iter, scope)
    if isinstance(node, (ast.List, ast.Tuple)) and any(isinstance(e, ast.Starred) for e in node.elts):
        return ""
    if isinstance(node, ast.Subscript):
        return by_hand(node, scope)
    if isinstance(node, (ast.Name, ast.Attribute)) and depth < 5:
        of_state = isinstance(node, ast.Attribute) and last_name(node.value) == "state"
        for value, index, s in scope.module.assigned.get(node.attr, ()) if of_state else values_of(node, scope):
            if index is not None and part(value, index) is not None:
                value, index = part(value, index), None
            if isinstance(value, ast.List) and not value.elts and of_state:
                why = next(filter(None, (filled_raggedly(node, f, depth) for f in s.module.scopes)), "")
            elif isinstance(value, ast.List) and not value.elts:
                inside = [s, *(s.owner.functions.values() if isinstance(node, ast.Attribute) and s.owner else ())]
                if isinstance(node, ast.Name):
                    inside += [f for f in s.module.scopes
                               if f.is_function and node.id not in f.bound and s in all_scopes(f)]
                why = next(filter(None, (filled_raggedly(node, f, depth) for f in dict.fromkeys(inside))), "")
            elif value is not None and index is None and value is not node:
                why = joined_ragged(value, s, depth + 1)
            else:
                why = ""
            if why:
                return why
    return ""


def filled_raggedly(name, scope, depth):
    """The same of a list that starts empty: how this function fills it."""
    for n in own_nodes(scope.node):
        if isinstance(n, (ast.For, ast.While)):
            shared = by_hand(n.iter, scope) or of_cut_loader(n.iter, scope) if isinstance(n, ast.For) else ""
            for inner in ast.walk(n):
                if isinstance(inner, ast.If) and any(appends(b, name) for b in inner.body) != any(
                        appends(b, name) for b in inner.orelse) and not modulo_only(inner.test):
                    return "a list filled under an `if`"
            if shared and any(appends(b, name) for b in n.body):
                return shared
        elif isinstance(n, ast.Call) and appended(n, name) is not None:
            why = ragged(appended(n, name), scope, depth + 1)
            if why:
                return why
    return ""


def of_cut_loader(node, scope):
    """Why a loop over a loader of torch goes over another number of samples on each rank: its data were cut by hand."""
    for value, s in sources(node, scope):
        if isinstance(value, ast.Call) and resolve(value.func, s) == "torch.utils.data.DataLoader" and keyword(
                value, "sampler", 3) is None and constant(keyword(value, "drop_last", 8)) is not True and cut_by_hand(
                keyword(value, "dataset", 0), s):
            return "a share cut by hand"
    return ""


def appended(call, name):
    """What a call appends to the list of this name, or each item that it extends it with, or None."""
    if not (isinstance(call.func, ast.Attribute) and call.func.attr in ("append", "extend") and call.args and (
            chain(call.func.value) == chain(name) or same_of_state(call.func.value, name))):
        return None
    item = call.args[0]
    if call.func.attr == "append":
        return item
    return item.elt if isinstance(item, (ast.ListComp, ast.GeneratorExp)) and not item.generators[0].ifs else None


def modulo_only(test):
    return any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod) for n in ast.walk(test)) or not any(
        isinstance(n, (ast.Compare, ast.Call)) for n in ast.walk(test))


def appends(node, name):
    return any(isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr in ("append", "extend")
               and chain(n.func.value) == chain(name) for n in ast.walk(node))


def by_hand(node, scope):
    """`items[rank::world]`, range(rank, n, world): shares that differ by one."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        s = node.slice
        if s.step is not None and s.lower is not None and varies(value_on_ranks(s.lower, scope)):
            return "a share cut by hand"
    if isinstance(node, ast.Call) and last_name(node) == "range" and len(node.args) == 3 and varies(
            value_on_ranks(node.args[0], scope)):
        return "a share cut by hand"
    if isinstance(node, ast.Name):
        for value, _index, s in values_of(node, scope):
            if isinstance(value, (ast.Subscript, ast.Call)) and value is not node:
                return by_hand(value, s)
    return ""


def check_group(call, last, scope, report):
    """A list as group in code that runs again and again: each call makes a group."""
    if last == "new_group":
        ranks, s = first_given(call, "ranks", 0, scope)
        alone = keyword(call, "use_local_synchronization") is None and not guarded(call, scope)
        if ranks is not None and alone and rank_inside(ranks, s):
            return report.add("collective-under-rank-guard", call, scope.module, name="new_group of these ranks")
        if ranks is None or in_constructor(scope) or made_once(call, scope):
            return
        if not (again_by_engine(scope) if depends_on_loop(ranks, s) else repeats(call, scope)):
            return
        report.add("group-in-loop", call, scope.module, name="new_group")
        return
    group, s = first_given(call, "group", {"all_reduce": 2, "all_gather": 1}.get(last, 2), scope)
    if group is not None and is_rank_list(group, s) and repeats(call, scope):
        report.add("group-in-loop", call, scope.module, name=last)


def rank_inside(node, scope, depth=0):
    """Whether an expression is made of the number of the rank that it is on."""
    bound = {x.id for n in ast.walk(node) if isinstance(n, ast.comprehension) for x in ast.walk(n.target)
             if isinstance(x, ast.Name)}
    for n in ast.walk(node):
        if isinstance(n, (ast.Name, ast.Call)) and getattr(n, "id", "") not in bound:
            if varies(value_on_ranks(n, scope)):
                return True
            values = values_of(n, scope) if isinstance(n, ast.Name) and depth < 4 else ()
            if any(v is not None and i is None and rank_inside(v, s, depth + 1) for v, i, s in values):
                return True
    return False


@kept
def is_rank_list(node, scope, depth=0):
    """Whether an expression is surely a list, and no group made of it."""
    if node is None or depth > 6:
        return False
    if isinstance(node, (ast.List, ast.ListComp)):
        return True
    if isinstance(node, ast.IfExp):
        return is_rank_list(node.body, scope, depth + 1) and is_rank_list(node.orelse, scope, depth + 1)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mult)):
        return is_rank_list(node.left, scope, depth + 1) or is_rank_list(node.right, scope, depth + 1)
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id in ("list", "sorted") and not resolve(node.func, scope):
            return definition(node.func, scope) is None
        if isinstance(node.func, ast.Attribute) and node.func.attr == "tolist":
            return True
        function = definition(node.func, scope)
        made = returned(function) if function is not None and function.is_function else []
        return bool(made) and all(is_rank_list(v, s, depth + 1) for v, _, s in made)
    if isinstance(node, ast.Subscript):
        if isinstance(node.slice, ast.Slice):
            return is_rank_list(node.value, scope, depth + 1)
        key = constant(node.slice)
        for value, index, s in values_of(node.value, scope):
            if isinstance(value, ast.Dict) and index is None:
                items = [v for k, v in zip(value.keys, value.values) if key is None or constant(k) == key]
            elif isinstance(value, (ast.List, ast.Tuple)) and index is None:
                items = value.elts if key is None else value.elts[key:key + 1] if isinstance(key, int) else []
            else:
                return False
            if not items or not all(is_rank_list(v, s, depth + 1) for v in items):
                return False
        return bool(values_of(node.value, scope)) and node.value is not values_of(node.value, scope)[0][0]
    if isinstance(node, (ast.Name, ast.Attribute)):
        values = [v for v in values_of(node, scope) if v[0] is not node]
        if isinstance(node, ast.Name) and any(v is None for v, _, _ in values):
            given = handed(node.id, scope)
            return bool(given) and all(is_rank_list(v, s, depth + 1) for v, _, s in given)
        return bool(values) and all(is_rank_list(part(v, i), s, depth + 1) for v, i, s in values)
    return False


def part(value, index):
    """One item of an assigned tuple; what a function returns as a tuple is not looked into."""
    if index is None:
        return value
    return value.elts[index] if isinstance(value, (ast.Tuple, ast.List)) and index < len(value.elts) else None


def in_constructor(scope):
    return scope.is_function and scope.name in ("__init__", "setup", "setUp")


def depends_on_loop(node, scope):
    """Whether an expression has the variable of a loop in it, or a name that was computed from one."""
    for name in {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}:
        if is_loop_variable(name, scope):
            return True
        for value, index, s in values_of(ast.Name(id=name), scope):
            if index is None and isinstance(value, (ast.Call, ast.ListComp, ast.BinOp)) and any(
                    isinstance(x, ast.Name) and is_loop_variable(x.id, s) for x in ast.walk(value)):
                return True
    return False


def is_loop_variable(name, scope):
    return any(isinstance(n, (ast.For, ast.comprehension)) and any(
        isinstance(t, ast.Name) and t.id == name for t in ast.walk(n.target)) for n in own_nodes(scope.node))


def made_once(call, scope):
    """Whether a function keeps what it makes: `if self.group is None`, `if key not in groups`, a cache."""
    for n in own_nodes(scope.node):
        if isinstance(n, ast.If) and n.lineno <= call.lineno <= n.end_lineno and any(
                isinstance(x, ast.Compare) and isinstance(x.ops[0], (ast.Is, ast.NotIn)) or isinstance(
                    x, ast.UnaryOp) and isinstance(x.op, ast.Not) or isinstance(x, ast.Call) and last_name(
                    x) == "hasattr" for x in ast.walk(n.test)):
            return True
    return False


def repeats(call, scope, depth=0):
    """Whether the call stands in a loop, in a handler or in a step of an engine, or in what one of those calls."""
    for n in own_nodes(scope.node):
        if isinstance(n, (ast.For, ast.While, ast.AsyncFor)) and n.lineno <= call.lineno <= n.end_lineno:
            body = [*n.body]
            if any(b.lineno <= call.lineno <= b.end_lineno for b in body):
                return True
        elif isinstance(n, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)) and any(
                x is call for x in ast.walk(n)) and not any(x is call for x in ast.walk(n.generators[0].iter)):
            return True
    if runs_again(scope):
        return True
    if depth > 2 or not scope.is_function or scope.name == "__init__" or any(
            "cache" in last_name(d) for d in getattr(scope.node, "decorator_list", ())):
        return False
    return any(s is not scope and not made_once(c, s) and repeats(c, s, depth + 1) for c, s in calls_of(scope))


def again_by_engine(scope, depth=0):
    """Whether an engine runs a function again and again, or one that calls it and does not keep what it makes."""
    return runs_again(scope) or depth < 3 and scope.is_function and scope.name != "__init__" and not any(
        "cache" in last_name(d) for d in getattr(scope.node, "decorator_list", ())) and any(
        s is not scope and not made_once(c, s) and again_by_engine(s, depth + 1) for c, s in calls_of(scope))


AGAIN = re.compile(r"ITERATION|EPOCH|BATCH|EVAL")


@kept
def runs_again(function):
    """Whether a function is the step of an engine or a handler of an event that comes more than once."""
    if not function.is_function:
        return False
    for d in getattr(function.node, "decorator_list", ()):
        if isinstance(d, ast.Call) and last_name(d) == "on":
            return again(d.args)
    known = registering(function.module) or {}
    return any(events is None or again(events) for key in (function, function.name) for events in known.get(key, ()))


@kept
def registering(module):
    """{function, or a name that cannot be followed: [events, or None for the step of an engine, …]}"""
    found = {}
    for scope in module.scopes:
        for call in scope.calls:
            handed_in = events = None
            if isinstance(call.func, ast.Call) and last_name(call.func) == "on":
                handed_in, events = (call.args or [None])[0], call.func.args
            elif last_name(call) == "add_event_handler" and len(call.args) > 1:
                handed_in, events = call.args[1], call.args[:1]
            elif named(resolve(call.func, scope), "Engine", "DeterministicEngine"):
                handed_in = keyword(call, "process_function", 0)
            if handed_in is not None:
                key = definition(handed_in, scope) or (last_name(handed_in) if not isinstance(
                    handed_in, (ast.Call, ast.Lambda)) else None)
                found.setdefault(key, []).append(events)
    return found


def again(events):
    nodes = [n for a in events for n in ast.walk(a)]
    if any(isinstance(n, ast.keyword) and n.arg == "once" for n in nodes):
        return False
    names = [last_name(n) for n in nodes if isinstance(n, (ast.Attribute, ast.Name))]
    return any(AGAIN.search(name) or re.search(r"[A-Z]_(STARTED|COMPLETED)$", name) for name in names)


# launching


def is_parallel(node, scope):
    if isinstance(node, ast.Call):
        return resolve(node.func, scope) == IDIST + "Parallel"
    return any(isinstance(v, ast.Call) and resolve(v.func, s) == IDIST + "Parallel"
               for v, i, s in values_of(node, scope) if v is not node)


def parallel_call(node, scope):
    """The Parallel(…) behind an expression."""
    if isinstance(node, ast.Call):
        return node
    return next((v for v, i, s in values_of(node, scope) if isinstance(v, ast.Call)
                 and resolve(v.func, s) == IDIST + "Parallel"), None)


def nproc_given(call, scope):
    """"yes", "no" or "maybe": does this Parallel or spawn start processes?"""
    values = given(call, "nproc_per_node", 1, scope)
    if not values:
        spread = any(isinstance(a, ast.Starred) for a in call.args)
        return "no" if keywords_of(call, scope)[1] and not spread else "maybe"
    if any(not call.lineno <= n.lineno <= call.end_lineno and under_condition(n, x) for n, x in values) or any(
            sometimes_without("nproc_per_node", k.value, scope) for k in call.keywords if k.arg is None):
        return "maybe"
    kinds = {nproc_of(v, s) for n, x in values for v, s in (
        [(n, x)] if isinstance(n, ast.Name) and option_default(n.id, x.module) is not None else sources(n, x))}
    return kinds.pop() if len(kinds) == 1 else "maybe"


def sometimes_without(key, node, scope):
    """Whether a dict comes out of a function, or a choice between two, that also gives one without the key."""
    for value, _, s in values_of(node, scope):
        if isinstance(value, ast.IfExp) and any(isinstance(v, ast.Dict) and key not in entries(v, s)[0]
                                                for v in (value.body, value.orelse)):
            return True
    for value, s in [(node, scope), *sources(node, scope)]:
        function = definition(value.func, s) if isinstance(value, ast.Call) else None
        if function is not None and function.is_function and any(
                key not in entries(v, x)[0] for v, _, x in returned(function)):
            return True
    return False


def nproc_of(value, scope):
    if isinstance(value, ast.Constant):
        return "no" if value.value is None else "yes"
    if isinstance(value, ast.Call) and last_name(value) in ("device_count", "cpu_count", "int", "len", "max", "min"):
        return "yes"
    if isinstance(value, (ast.Name, ast.Attribute, ast.Subscript)):
        key = last_name(value) if not isinstance(value, ast.Subscript) else constant(value.slice)
        default = default_of_option(key, scope.module)
        if isinstance(default, (ast.Constant, ast.Call)) and nproc_of(default, scope) == "yes":
            return "yes"
        if default is None and isinstance(value, ast.Subscript) and COUNTED.match(str(key)):
            return "yes"
    return "maybe"


COUNTED = re.compile(r"(?i)(n_?|num_?)?(gpus?|devices)$")  # a setting that is a number


def option_default(name, module):
    """The constant default of a command line option of the file, or None."""
    default = default_of_option(name, module)
    return constant(default) if default is not None else None


def default_of_option(name, module):
    """The default of a command line option of the file, as an expression, or None."""
    if not isinstance(name, str):
        return None
    for scope in module.scopes:
        for call in scope.calls:
            if last_name(call) in ("add_argument", "option", "add_option"):
                flags = [constant(a) for a in call.args]
                if any(isinstance(f, str) and f.lstrip("-").replace("-", "_") == name for f in flags):
                    return keyword(call, "default")
    return None


def check_launch(call, last, scope, report):
    module = scope.module
    starts = nproc_given(call, scope) if last == "Parallel" else "yes"
    if last == "Parallel" and starts == "no":
        dropped = [k for k in keywords_of(call, scope)[0] if k not in ("backend", "nproc_per_node", "init_method")]
        sure = [k for k in dropped if k == "timeout" and given(call, k, None, scope) or any(
            isinstance(v, ast.Constant) for v, _ in given(call, k, None, scope))]
        if sure:
            report.add("parallel-argument-ignored", call, module, given=f"`{sure[0]}`")
    else:
        check_timeout(call, scope, report)
    method_given, s = first_given(call, "init_method", 6 if last == "Parallel" else None, scope)
    texts = [*literals(method_given, s), *(unless_chosen(v, x) for v, x in sources(method_given, s))]
    if last in ("Parallel", "initialize") and any(isinstance(v, str) and v.startswith("tcp:") for v in texts):
        report.add("tcp-init-method", place(method_given, s, call, scope), module)
    if last == "Parallel":
        if starts == "yes" and not is_test(module) and launched_by_torchrun(module) and not asks_for_launcher(
                call, scope):
            report.add("two-launchers", call, module, name=launched_by_torchrun(module))
    if last == "spawn":
        if keyword(call, "args", 2) is None and "args" not in keywords_of(call, scope)[0] and keywords_of(
                call, scope)[1] and not any(isinstance(a, ast.Starred) for a in call.args):
            report.add("spawn-without-args", call, module)
        check_spawned(call, first_given(call, "fn", 1, scope)[0], arguments_of_spawn(call), call, scope, report)


def check_timeout(call, scope, report):
    timeout, s = first_given(call, "timeout", None, scope)
    kind = plain_kind(timeout, s) if timeout is not None else ""
    if kind:
        value = literal(timeout, s)
        report.add("timeout-not-timedelta", timeout if keyword(call, "timeout") is timeout else call, scope.module,
                   given=repr(value) if isinstance(value, (int, float, str)) else f"`{shortened(timeout)}`, {kind},")


def shortened(node):
    text = ast.unparse(node)
    return text if len(text) < 50 else text[:47] + "..."


NUMBERS = {"int", "float", "round", "abs"}


@kept
def plain_kind(node, scope, depth=0) -> str:
    """"a number" or "a text" for what is surely one (and so no timedelta), else ""."""
    if depth > 4:
        return ""
    kinds = [kind_of(v, s, depth) for v, s in sources(node, scope)]
    return kinds[0] if kinds and all(kinds) else ""


def kind_of(node, scope, depth):
    """The same for what nothing stands behind."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            return ""
        return "a number" if isinstance(node.value, (int, float)) else "a text" if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "a text"
    if isinstance(node, ast.UnaryOp):
        return plain_kind(node.operand, scope, depth + 1)
    if isinstance(node, ast.BinOp):
        kinds = {plain_kind(node.left, scope, depth + 1), plain_kind(node.right, scope, depth + 1)}
        return "a number" if kinds == {"a number"} else ""
    if isinstance(node, ast.Call):
        last = last_name(node)
        if isinstance(node.func, ast.Name) and last in NUMBERS | {"str"} and definition(node.func, scope) is None:
            return "a text" if last == "str" else "a number"
        if last == "total_seconds":
            return "a number"
        if last in ("getenv", "get") and (last == "getenv" or last_name(node.func.value) == "environ"):
            return "a text" if len(node.args) < 2 or plain_kind(node.args[1], scope, depth + 1) == "a text" else ""
        return ""
    if isinstance(node, ast.Subscript):
        return "a text" if last_name(node.value) == "environ" else option_kind(constant(node.slice), scope, depth)
    return option_kind(node.attr, scope, depth) if isinstance(node, ast.Attribute) else ""


def option_kind(key, scope, depth):
    """What an option of the command line is."""
    if not isinstance(key, str) or any(v is not None and getattr(v, "attr", "") != key
                                       for v, _, _ in scope.module.assigned.get(key, ())):
        return ""
    for s in scope.module.scopes:
        for call in s.calls:
            if last_name(call) == "add_argument" and any(isinstance(constant(a), str) and constant(a).lstrip(
                    "-").replace("-", "_") == key for a in call.args):
                kind = keyword(call, "type")
                if kind is not None:
                    return "a number" if isinstance(kind, ast.Name) and kind.id in ("int", "float") else (
                        "a text" if isinstance(kind, ast.Name) and kind.id == "str" else "")
                default = keyword(call, "default")
                return plain_kind(default, s, depth + 1) if default is not None and isinstance(
                    constant(default), str) else ""
    return ""


def arguments_of_spawn(call, name=IDIST):
    args = keyword(call, "args", 2 if name.startswith(IDIST) else 1)
    return list(args.elts) if isinstance(args, (ast.Tuple, ast.List)) else []


def check_run(call, scope, report):
    """Parallel.run: outside its block; or, where it spawns, what it is given."""
    receiver = call.func.value
    if not is_parallel(receiver, scope):
        return
    made = parallel_call(receiver, scope)
    if not entered(receiver, made, scope):
        report.add("run-outside-with", call, scope.module)
    if made is not None and nproc_given(made, scope) == "yes" and call.args:
        check_spawned(call, call.args[0], [*call.args[1:], *[k.value for k in call.keywords]], made, scope, report)


def entered(receiver, made, scope):
    """Whether the Parallel is the one of a with statement (or of enter_context)."""
    for s in all_scopes(scope):
        for node in own_nodes(s.node):
            if isinstance(node, (ast.With, ast.AsyncWith)):
                for i in node.items:
                    if i.context_expr is made or isinstance(receiver, ast.Name) and last_name(
                            i.context_expr) == receiver.id and not isinstance(i.context_expr, ast.Call):
                        return True
                    if isinstance(i.context_expr, ast.Attribute) and text_of(i.context_expr) == text_of(receiver):
                        return True
            if isinstance(node, ast.Call) and last_name(node) in ("enter_context", "__enter__"):
                return True
    return not isinstance(made, ast.Call)


def check_spawned(call, function, given, made, scope, report):
    """What spawn has to pickle, and where it stands."""
    module = scope.module
    start = keyword(made, "start_method")
    if start is not None and literal(start, scope) != "spawn":
        return
    if function is None:
        return
    found, at = definition(function, scope), argument(function, call)
    if isinstance(function, ast.Call) and (maker := definition(function.func, scope)) is not None and maker.is_function:
        made_there = [definition(v, s) for v, _, s in returned(maker)]
        found = made_there[0] if len(made_there) == 1 else found
    if found is not None and isinstance(found.node, ast.Lambda):
        report.add("spawn-unpicklable", at, module, given="a lambda")
    else:
        if found is not None and isinstance(found.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if found.parent.is_function:
                report.add("spawn-unpicklable", at, module, given=f"`{found.name}`, a function inside a function")
            elif replaced := replaced_by(found):
                report.add("spawn-unpicklable", at, module,
                           given=f"`{found.name}`, which a decorator replaces by `{replaced}`, a function inside it,")
            elif found.module is module and below_main_guard(found.node, module):
                report.add("spawn-unpicklable", at, module, given=f"`{found.name}`, which only the main program has")
        for value in given:
            what = unpicklable(value, scope)
            if what:
                report.add("spawn-unpicklable", argument(value, call), module, given=what)
                break
    if at_import(scope, call, module):
        report.add("spawn-without-main-guard", call, module)


KEEPS_ITEMS = {"list", "tuple", "copy", "deepcopy", "partial"}


@kept
def unpicklable(node, scope, depth=0) -> str:
    """What keeps a value from another process: a lambda or a function inside a function, also as an item of a dict or a
    list, or as a field of an object; "" when nothing of the kind is seen."""
    if node is None or depth > 5:
        return ""
    if isinstance(node, (ast.Lambda, ast.GeneratorExp)):
        return "a lambda" if isinstance(node, ast.Lambda) else "a generator"
    inner = definition(node, scope) if isinstance(node, ast.Name) else None
    if inner is not None:
        local = isinstance(inner.node, ast.FunctionDef) and inner.parent.is_function
        return f"`{node.id}`" if local or isinstance(inner.node, ast.Lambda) else ""
    owner = instance_of(node, scope) if isinstance(node, (ast.Name, ast.Attribute, ast.Call)) else None
    if owner is not None and any(name in owner.functions for name in ("__getstate__", "__reduce__")):
        return ""
    held = [(v, s) for values in entries(node, scope)[0].values() for v, s in values
            if not isinstance(s.node, ast.ClassDef) or is_dataclass(s)]  # what a plain class holds stays with it
    if not held and isinstance(node, (ast.List, ast.Tuple, ast.Starred)):
        held = [(v, scope) for v in getattr(node, "elts", None) or [node.value]]
    elif not held and isinstance(node, ast.Call):
        function = definition(node.func, scope)
        if function is not None and function.is_function:
            held = [(v, s) for v, _, s in returned(function)]
        elif last_name(node) in KEEPS_ITEMS:  # a generator is used up
            held = [(v, scope) for v in node.args if not isinstance(v, ast.GeneratorExp)]
    elif not held and isinstance(node, (ast.Name, ast.Attribute)):
        values = values_of(node, scope)
        held = [(part(v, i), s) for v, i, s in values if v is not node]
        if isinstance(node, ast.Name) and any(v is None for v, _, _ in values):
            held += [(v, s) for v, _, s in handed(node.id, scope)]
    return next(filter(None, (unpicklable(v, s, depth + 1) for v, s in held)), "")


def is_dataclass(scope):
    return any(last_name(d) == "dataclass" for d in getattr(scope.node, "decorator_list", ()))


def replaced_by(function):
    """The name of the nested function, without functools.wraps, that a decorator of the project returns instead."""
    for decorator in function.node.decorator_list:
        made = definition(decorator, function.parent)
        if made is None or not made.is_function:
            continue
        for value, _, s in returned(made):
            inner = definition(value, s)
            if inner is not None and isinstance(inner.node, ast.FunctionDef) and inner.parent is made and not (
                    inner.node.decorator_list):
                return inner.name
    return ""


def below_main_guard(node, module):
    return any(isinstance(n, ast.If) and is_main_guard(n.test) and n.lineno < node.lineno <= n.end_lineno
               for n in module.tree.body)


def at_import(scope, call, module, depth=0):
    """Whether importing the file reaches the call: at the top, or in a function that the top calls without a guard."""
    if scope is module.top:
        return not below_main_guard(call, module) and not not_main(module, call)
    if depth > 3 or not scope.is_function or isinstance(scope.node, ast.Lambda) or scope.parent is not module.top:
        return False
    for c in module.top.calls:
        if isinstance(c.func, ast.Name) and c.func.id == scope.name:
            if at_import(module.top, c, module, depth + 1):
                return True
    return False


def not_main(module, call):
    """`if __name__ != "__main__": return`-like guards do not exist at the top; sys.exit before the call does."""
    return any(isinstance(n, ast.If) and is_main_guard(n.test) and n.end_lineno < call.lineno
               and ends_the_process(n.body) for n in module.tree.body)


TORCHRUN = re.compile(r"\btorchrun\b|torch\.distributed\.(run|launch)\b")


@kept
def launched_by_torchrun(module):
    """Where the file, or a script or README beside it, starts the file with torchrun; "" if nowhere."""
    name = re.escape(module.path.name)
    for number, line in enumerate(module.lines, 1):
        if TORCHRUN.search(line) and not re.search(r"\b(not|never|without|instead of|don't|rather than|import|no)\b",
                                                   line, re.I):
            if re.search(r"#|['\"]|^\s*(\$|torchrun|python|>)", line) or inside_docstring(module, number):
                return f"line {number}"
    try:
        there = sorted(p for p in module.path.parent.iterdir() if p != module.path)
        beside = [p for p in there if p.suffix in (".sh", ".slurm", ".sbatch", ".md", ".rst", ".txt")
                  or p.name == "Makefile"][:20] + [p for p in there if p.suffix == ".py"][:20]
    except OSError:
        return ""
    for path in beside:
        try:
            if not path.is_file() or path.stat().st_size > 200_000:
                continue
            text = path.read_text(errors="replace")
        except OSError:
            continue
        for line in re.sub(r"\\\r?\n", " ", text).splitlines():
            if TORCHRUN.search(line) and re.search(rf"(?<![\w./-])(\S*/)?{name}\b", line):
                return path.name
    return ""


def asks_for_launcher(call, scope, calls=True):
    """Whether a launch is come to only after a look at the environment of the process, where torchrun leaves its
    mark: an `if` of its function that holds it or that leaves before, or one around the calls of that function.
    """
    tests = [n.test for n in own_nodes(scope.node) if isinstance(n, ast.If) and n.lineno < call.lineno and (
        call.lineno <= n.end_lineno or leaves(n.body))]
    if any(looks_at_environment(t, scope) for t in tests):
        return True
    return calls and scope.is_function and any(asks_for_launcher(c, s, False) for c, s in calls_of(scope))


def looks_at_environment(test, scope, depth=0):
    for n in ast.walk(test):
        if isinstance(n, (ast.Name, ast.Attribute)) and last_name(n) in (
                "environ", "getenv", "is_torchelastic_launched"):
            return True
        if depth < 2 and isinstance(n, ast.Name) and any(
                v is not None and looks_at_environment(v, s, depth + 1) for v, _, s in values_of(n, scope)):
            return True
        called_here = definition(n.func, scope) if isinstance(n, ast.Call) and depth < 2 else None
        if called_here is not None and called_here.is_function and looks_at_environment(
                called_here.node, called_here, depth + 1):
            return True
    return False


def inside_docstring(module, number):
    for scope in module.scopes:
        body = getattr(scope.node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr) and isinstance(
                constant(body[0].value), str) and body[0].lineno <= number <= body[0].end_lineno:
            return True
    return False


def rule_before_init(module, report):
    """Getters, and setup_logger, that run before there is a group."""
    if not any(starts_group(m) for m in [module, *importers(module, module.project)]):
        return
    for scope in module.scopes:
        start = first_start(scope)
        if scope is module.top or isinstance(scope.node, ast.ClassDef):
            limit = start or 10 ** 9
        elif start:
            limit = start
        else:
            continue
        for call in scope.calls:
            logs = resolve(call.func, scope) == "ignite.utils.setup_logger"
            last = "setup_logger" if logs else getter(call, scope)
            if last and not (logs and keyword(call, "distributed_rank")):
                if call.lineno >= limit and not inside_start(call, scope, limit):
                    continue
                if any(own_group_before(s, call) for s in {scope, module.top}):
                    continue
                rule = "logger-before-initialisation" if logs else "query-before-initialisation"
                report.add(rule, call, module, name=last)
            elif call.lineno < limit and (scope is module.top or start) and not any(
                    own_group_before(s, call) for s in {scope, module.top}):
                asked = asked_inside(definition(call.func, scope))
                if asked:
                    report.add("query-before-initialisation", call, module, name=asked, via=written(call.func))


def asked_inside(function, depth=0):
    """The getter that a function, or the constructor of a class, asks without making the group itself; else ""."""
    if function is None or depth > 2:
        return ""
    if isinstance(function.node, ast.ClassDef):
        made = [v for values in function.bound.values() for v, i in values if isinstance(v, ast.Call) and i is None]
        by_field = [getter(v, function) for v in made if v not in function.calls]  # default_factory=idist.get_rank
        return next(filter(None, (*by_field, *(asked_inside(f, depth + 1) for f in [
            method(function, "__init__"), method(function, "__post_init__"),
            *(definition(v.func, function) for v in made)]))), "")
    if not function.is_function or first_start(function) or function.in_group:
        return ""
    for call in function.calls:
        asked = getter(call, function) or asked_inside(definition(call.func, function), depth + 1)
        if asked:
            return "" if own_group_before(function, call) else asked
    return ""


def getter(call, scope):
    """The getter of idist that a call asks, which answers otherwise once there is a group; else ""."""
    name = resolve(call.func, scope)
    last = name.rpartition(".")[2]
    return last if name.startswith(IDIST) and last in GETTERS - {"hostname"} else ""


def starts_group(module):
    return any(makes_group(c, s) for s in module.scopes for c in s.calls)


def importers(module, project):
    """The modules that were asked for and import this one."""
    if project.importers is None:
        project.importers = {}
        for other in [m for m in project.modules.values() if m is not None]:
            for dotted in {d for s in other.scopes for d in s.imports.values() if isinstance(d, str)}:
                target, _ = project.find(dotted, other)
                if target is not None and target is not other:
                    project.importers.setdefault(target.path, []).append(other)
    return project.importers.get(module.path, [])


def makes_group(call, scope):
    """Whether a call makes the group, or starts the processes; Parallel surely without a backend does neither."""
    name = resolve(call.func, scope)
    if name != IDIST + "Parallel":
        return name in (IDIST + "initialize", IDIST + "spawn")
    spread = any(isinstance(a, ast.Starred) for a in call.args)
    return bool(given(call, "backend", 0, scope)) or spread or not keywords_of(call, scope)[1]


def first_start(scope):
    """The first line of a scope's own code that makes the group, or starts the processes."""
    lines = []
    for call in scope.calls:
        if makes_group(call, scope):
            lines.append(call.lineno)
    return min(lines) if lines else None


def inside_start(call, scope, limit):
    """Whether the getter is an argument of the call that makes the group."""
    for c in scope.calls:
        if c.lineno == limit and resolve(c.func, scope) in (IDIST + "Parallel", IDIST + "initialize", IDIST + "spawn"):
            return any(call is n for n in ast.walk(c))
    return False


def own_group_before(scope, call):
    for c in scope.calls:
        if c.lineno < call.lineno:
            if resolve(c.func, scope) == TORCH_DIST + "init_process_group":
                return True
            found = definition(c.func, scope)
            if found is not None and found.is_function and any(
                    e.name.endswith(("init_process_group", "idist.initialize")) for e in effects_of(found)):
                return True
    return False


def rule_environment(module, report):
    """Variables for the launch that are set when the group exists already."""
    if is_test(module) or not re.search(r"environ|putenv", module.source):
        return
    for scope in module.scopes:
        made, blocks = [], []
        for node in own_nodes(scope.node):
            if isinstance(node, (ast.With, ast.AsyncWith)):
                for i in node.items:
                    if isinstance(i.context_expr, ast.Call) and resolve(
                            i.context_expr.func, scope) == IDIST + "Parallel" and nproc_given(
                            i.context_expr, scope) == "no" and given(i.context_expr, "backend", 0, scope):
                        blocks.append(node)
            elif isinstance(node, ast.Call) and resolve(node.func, scope) in (
                    IDIST + "initialize", TORCH_DIST + "init_process_group"):
                made.append(node)
        for node, name, spot in environment_sets(scope):
            if LAUNCH_VARIABLES.match(name) and only_if_missing(node, scope.module):
                continue
            inside = next((b for b in blocks if b.lineno < spot.lineno <= b.end_lineno), None)
            late = any(spot.lineno > m.lineno and not exclusive(m, spot, scope) for m in made)
            launch, at = LAUNCH_VARIABLES.match(name), node
            if launch and (inside is not None or late) or inside is not None and read_after(
                    name, inside.end_lineno, scope) or late and after_finalize(name, scope):
                at = node if last_name(spot) == "run" else spot  # a helper that sets it is right, the moment is not
            elif not (launch and scope.in_group and name.startswith(("MASTER", "RANK", "WORLD", "GLOO"))):
                continue
            report.add("environment-inside-context", at, module, name=name)
            break  # the others beside it are the same mistake


def only_if_missing(node, module):
    """Whether a variable is set only where the environment lacks it: after a launch it does not."""
    for s in module.scopes:
        for n in own_nodes(s.node):
            if isinstance(n, ast.If) and n.lineno < node.lineno <= n.end_lineno and any(
                    isinstance(x, ast.Compare) and isinstance(x.ops[0], ast.NotIn) and last_name(
                        x.comparators[0]) == "environ" for x in ast.walk(n.test)):
                return True
    return False


def environment_sets(scope, depth=0):
    """[(node that sets a variable, its name, where this function does so), …], one to three calls deep in this file."""
    found = []
    for node in own_nodes(scope.node):
        name = environment_target(node, scope)
        if isinstance(name, str):
            found.append((node, name, node))
        elif isinstance(node, ast.Call) and depth < 3:
            handed_over = isinstance(node.func, ast.Attribute) and node.func.attr == "run" and node.args
            function = definition(node.args[0] if handed_over else node.func, scope)
            if function is not None and isinstance(function.node, ast.ClassDef):
                function = method(function, "__init__")
            if function is not None and function.module is scope.module and function is not scope:
                found += [(n, name, node) for n, name, _ in environment_sets(function, depth + 1)]
    return found


def environment_target(node, scope):
    """The variable that a statement sets in os.environ."""
    if isinstance(node, ast.Assign):
        for t in node.targets:
            if isinstance(t, ast.Subscript) and is_environ(t.value, scope):
                return constant(t.slice)
    if isinstance(node, ast.AugAssign) and is_environ(node.target, scope):
        return launch_variable(entries(node.value, scope)[0])
    if isinstance(node, ast.Call):
        if last_name(node) == "putenv" and node.args:
            return constant(node.args[0])
        if isinstance(node.func, ast.Attribute) and is_environ(node.func.value, scope):
            if node.func.attr == "setdefault" and node.args:
                return constant(node.args[0])
            if node.func.attr == "update":
                keys = [k.arg for k in node.keywords if k.arg]
                keys += [k for a in node.args for k in entries(a, scope)[0]]
                return launch_variable(keys)
    return None


def is_environ(node, scope):
    """Whether it is os.environ, or a name for it."""
    return last_name(node) == "environ" or isinstance(node, ast.Name) and any(
        v is not None and i is None and last_name(v) == "environ" for v, i, _ in values_of(node, scope))


def launch_variable(names):
    """Of some variables the one that a launch reads, else the first; None of none."""
    return next((n for n in names if LAUNCH_VARIABLES.match(n)), next(iter(names), None))


def reads_variable(node, name):
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and last_name(node.value) == "environ":
        return constant(node.slice) == name
    return isinstance(node, ast.Call) and last_name(node) in ("get", "getenv") and bool(node.args) and constant(
        node.args[0]) == name


def read_after(name, line, scope):
    """Whether a function, or one that it calls, reads a variable behind a line."""
    called = [definition(c.func, scope) for c in scope.calls if c.lineno > line]
    return any(reads_variable(n, name) and n.lineno > line for n in own_nodes(scope.node)) or any(
        reads_variable(n, name) for f in called if f is not None and f.is_function for n in own_nodes(f.node))


def after_finalize(name, scope):
    lines = [c.lineno for c in scope.calls if resolve(c.func, scope) == IDIST + "finalize"]
    return bool(lines) and read_after(name, min(lines), scope)


def rule_local_rank_option(module, report):
    if "local_rank" not in module.source and "local-rank" not in module.source:
        return
    users = importers(module, module.project)
    beside = [module, *users, *(m for user in users for m in imports_of(user))]
    if any("LOCAL_RANK" in m.source for m in [*beside, *imports_of(module)]) or not any(
            re.search(r"\.local_rank\b|def .*\blocal_rank\b|\[.local_rank.\]", m.source) for m in beside):
        return
    if not any(is_distributed(m) or re.search(r"(?:torch|ignite)\.distributed", m.source) for m in beside):
        return
    for scope in module.scopes:
        for call in scope.calls:
            if last_name(call) in ("add_argument", "option", "add_option"):
                if any(constant(a) in ("--local_rank", "--local-rank") for a in call.args):
                    report.add("local-rank-option", call, module)


def rule_contrib(module, report):
    for scope in module.scopes:
        for node in own_nodes(scope.node):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    old_import(alias.name, "", node, module, report)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    old_import(node.module, alias.name, node, module, report)
            elif isinstance(node, ast.Call) and last_name(node) == "import_module" and node.args and isinstance(
                    constant(node.args[0]), str):
                old_import(node.args[0].value, "", node, module, report)


def old_import(dotted, name, node, module, report):
    if not dotted.startswith("ignite.contrib"):
        return
    full = f"{dotted}.{name}" if name else dotted
    if full in GONE_NAMES or dotted in GONE_MODULES:
        return report.add("contrib-import", node, module, name=full, given="fails")
    for path in (dotted, full):
        for package, names in OLD_MODULES.items():
            if path.rpartition(".")[0] == f"ignite.contrib.{package}" and path.rpartition(".")[2] in names:
                return report.add("contrib-import", node, module, name=path, given="warns")


# data


def check_loader(call, scope, report):
    module = scope.module
    check_shuffle(call, scope, report)
    for size, s in given(call, "batch_size", None, scope):
        found = division(size, s)
        if found:
            where = found[0] if found[1].module is module else place(size, s, call, scope)
            report.add("batch-size-divided-twice", where, module)
            break
    sampler, s = first_given(call, "batch_sampler", None, scope)
    if sampler is not None and not shares_by_rank(sampler, s):
        where = argument(sampler if s is scope else None, call)
        report.add("unsharded-data", prepared(call, "batch_sampler", scope) if where is call else where, module,
                   name="batch_sampler")
    check_iterable(call, scope, report, "auto_dataloader")
    if not given(call, "sampler", None, scope) and sampler is None:
        check_share(call, scope, report, "auto_dataloader")


def check_batches(call, scope, report):
    """A batch_sampler of the project for a loader of torch, beside a wrapped model, that no rank has a share of."""
    sampler, s = first_given(call, "batch_sampler", None, scope)
    if sampler is None or not uses_wrapper(scope.module) or not runs_on_ranks(scope):
        return
    found = instance_of(sampler, s)
    if found is not None and not shares_by_rank(sampler, s) and not re.search(
            r"val|test|eval", target_of(call, scope) + written_args(call), re.I):
        where = argument(sampler if s is scope else None, call)
        report.add("unsharded-data", where, scope.module, name="batch_sampler")


def check_share(call, scope, report, name):
    """Data for a sampler that divides them, cut to this rank's share by hand."""
    data = keyword(call, "dataset", 0)
    if data is not None and not is_stream(call, scope) and cut_by_hand(data, scope):
        report.add("sharded-twice", argument(data, call), scope.module, name=name)


@kept
def cut_by_hand(node, scope, depth=0):
    """Whether data are a share that was cut for this rank, also below a wrapper or in a data set of the project."""
    if node is None or depth > 5:
        return False
    if by_hand(node, scope):
        return True
    if isinstance(node, ast.Call):
        if last_name(node) in ("shard", "split_dataset_by_node") and looks_at_rank(node, scope):
            return True
        found = definition(node.func, scope)
        if found is not None and found.is_function:
            return any(cut_by_hand(v, s, depth + 1) for v, _, s in returned(found))
        start = found.functions.get("__init__") if found is not None and isinstance(found.node, ast.ClassDef) else None
        if start is not None and any(isinstance(n, ast.Subscript) and by_hand(n, start) for n in own_nodes(start.node)):
            return True
        return any(cut_by_hand(a, scope, depth + 1) for a in [*node.args, *(k.value for k in node.keywords)])
    if isinstance(node, (ast.List, ast.Tuple)):
        return any(cut_by_hand(e, scope, depth + 1) for e in node.elts)
    if isinstance(node, ast.ListComp):
        return cut_by_hand(node.generators[0].iter, scope, depth + 1)
    if isinstance(node, (ast.Name, ast.Attribute)):
        values = [(part(v, i), s) for v, i, s in values_of(node, scope) if v is not None and part(v, i) is not node]
        return any(cut_by_hand(v, s, depth + 1) for v, s in [*values, *unpacked_from_call(node, scope)])
    return False


@kept
def division(node, scope, depth=0):
    """(expression, scope) where a size was divided by the number of processes, on every way to it that can be seen; or
    None.
    """
    if divides_by_world(node) or text_of(node) in scope.module.divided:
        return node, scope
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.FloorDiv)):
        by = values_of(node.right, scope) if isinstance(node.right, (ast.Name, ast.Attribute)) else []
        if any(v is not None and i is None and is_world(v) for v, i, _ in by):
            return node, scope
    if depth > 4:
        return None
    if isinstance(node, ast.Call):
        if last_name(node) in ("int", "max", "min", "round"):
            return some_division([(a, scope) for a in node.args], depth)
        function = definition(node.func, scope)
        made = returned(function) if function is not None and function.is_function else []
        return each_division([(v, s) for v, _, s in made], depth)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        if is_world(node.left) or is_world(node.right):
            return None
        return some_division([(node.left, scope), (node.right, scope)], depth)
    if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
        for v, i, s in [] if isinstance(node, ast.Subscript) else values_of(node, scope):
            if v is not None and v is not node:
                found = division(v, s, depth + 1) if i is None else (v, s) if i == 0 and divmod_by_world(v) else None
                if found:
                    return found
        function = definition(node, scope) if isinstance(node, ast.Attribute) else None
        if function is not None and function.is_function and is_property(function):
            return each_division([(v, s) for v, _, s in returned(function)], depth)
        return each_division([(v, s) for v, s in sources(node, scope) if v is not node], depth)
    return None


def some_division(ways, depth):
    """The same where one of these is divided."""
    return next(filter(None, (division(v, s, depth + 1) for v, s in ways)), None)


def each_division(ways, depth):
    """The same where all of these are divided, or None."""
    found = [v is not None and division(v, s, depth + 1) for v, s in ways]
    return found[0] if found and all(found) else None


def divmod_by_world(node):
    return isinstance(node, ast.Call) and last_name(node) == "divmod" and len(node.args) == 2 and is_world(node.args[1])


def check_shuffle(call, scope, report):
    shuffle, sampler = given(call, "shuffle", None, scope), given(call, "sampler", None, scope)
    chosen = [literal(v, s) is True for v, s in shuffle]
    if not sampler or not (all(chosen) if chosen and mends_key(scope, "shuffle", sampler[0][0]) else any(chosen)):
        return
    known = [v for node, s in sampler for v, _ in sources(node, s)]
    made = [v for node, s in sampler for v in [node, *(w for w, _, _ in values_of(node, s))] if isinstance(v, ast.Call)]
    if len(chosen) == 1 and any("ampler" in last_name(v) and not exclusive(v, call, scope) for v in made):
        return report.add("shuffle-with-sampler", call, scope.module)  # where it is made at all, if not always
    if any(isinstance(v, ast.Constant) for v in known) or any(isinstance(v, ast.Name) for v, _ in sampler) and None in \
            known or any(isinstance(v, ast.IfExp) for v, _ in sampler):
        return
    report.add("shuffle-with-sampler", call, scope.module)


def changes_key(node, key):
    """Whether a node sets an entry of a dict, takes it out, or may do so."""
    if isinstance(node, ast.Subscript):
        return not isinstance(node.ctx, ast.Load) and constant(node.slice) == key
    if not isinstance(node, ast.Call) or last_name(node) not in ("pop", "update", "setdefault", "replace"):
        return False
    return last_name(node) == "update" or bool(node.args) and constant(node.args[0]) == key or any(
        k.arg == key for k in node.keywords)


def mends_key(scope, key, beside):
    """Whether a function that comes to `beside` changes an entry of a dict, so that not each of its values is met."""
    return any(changes_key(n, key) and not exclusive(n, beside, s)
               for s in all_scopes(scope) if s.is_function for n in own_nodes(s.node))


def exclusive(node, other, scope):
    """Whether two nodes of a function stand in different branches of one `if`, so that only one of them is met."""
    ways = dict(arms(node, scope))
    return any(n in ways and ways[n] != way for n, way in arms(other, scope))


OWN_SHARD = re.compile(r"shard(?!s)|(my|own|local)_shards")
RANK_WORD = re.compile(r"rank|world_size|num_replicas|num_shards|split_by_node|get_worker_split|Distributed")


def mentions_ranks(node, shards=True):
    """Whether a name in it speaks of ranks, or (`shards`) of one's own shard: shards are all there are, unless a
    function gives them.
    """
    for n in ast.walk(node):
        called = isinstance(n, ast.Call)
        word = last_name(n) if called else getattr(n, "id", "") or getattr(n, "attr", "") or getattr(
            n, "arg", "") or "" if isinstance(n, (ast.Name, ast.Attribute, ast.keyword, ast.arg)) else ""
        if RANK_WORD.search(word) or shards and ("shard" in word if called else OWN_SHARD.search(word)):
            return True
    return False


def data_given(call, scope):
    """What a call is given; a size that was divided by the number of processes is no share of the data."""
    return [a for a in [*call.args, *[k.value for k in call.keywords]] if not division(a, scope)]


@kept
def shares_by_rank(node, scope, depth=0):
    """Whether a sampler or data set may look at the rank; True where it cannot be seen."""
    if depth > 4 or node is None:
        return True
    if isinstance(node, (ast.IfExp, ast.BoolOp)):
        parts = node.values if isinstance(node, ast.BoolOp) else [node.body, node.orelse]
        return any(shares_by_rank(v, scope, depth + 1) for v in parts if constant(v) is not None or not isinstance(
            v, ast.Constant))
    if isinstance(node, (ast.List, ast.ListComp)):  # the batches written out
        return mentions_ranks(node) or looks_at_rank(node, scope)
    if isinstance(node, ast.Call):
        given = data_given(node, scope)
        if any(map(mentions_ranks, [node.func, *given, *(k for k in node.keywords if k.value in given)])):
            return True
        name = resolve(node.func, scope)
        if not name and isinstance(node.func, ast.Name) and node.func.id in ("list", "tuple") and len(node.args) == 1:
            return shares_by_rank(node.args[0], scope, depth + 1)
        if name.startswith("torch.utils.data"):
            if name.endswith(".BatchSampler"):
                return shares_by_rank(keyword(node, "sampler", 0), scope, depth + 1)
            return name.rpartition(".")[2] not in (
                "RandomSampler", "SequentialSampler", "WeightedRandomSampler", "SubsetRandomSampler") or any(
                looks_at_rank(a, scope) for a in [*node.args, *[k.value for k in node.keywords]])
        found = instance_of(node, scope)
        if found is None:
            function = definition(node.func, scope)
            if function is None or not function.is_function or mentions_ranks(function.node):
                return True
            made = returned(function)
            return not made or any(shares_by_rank(v, s, depth + 1) for v, _, s in made)
        return mentions_ranks(found.node) or any(looks_at_rank(a, scope) or isinstance(
            a, (ast.Name, ast.Call, ast.Attribute)) and known_sampler(a, scope) and shares_by_rank(a, scope, depth + 1)
            for a in given)
    values = [(v, i, s) for v, i, s in values_of(node, scope) if v is not node]
    if not values or any(v is None or i is not None for v, i, _ in values):
        return True
    return any(shares_by_rank(v, s, depth + 1) for v, i, s in values)


def known_sampler(node, scope):
    return any(isinstance(v, ast.Call) and ("ampler" in last_name(v)) for v, _, _ in values_of(node, scope))


@kept
def looks_at_rank(node, scope, depth=0):
    """Whether a rank is mentioned in an expression, in what its names are bound to, or in what callers hand over."""
    if mentions_ranks(node) or ranked_somewhere(node, scope):
        return True
    if depth > 2:
        return False
    for n in ast.walk(node):
        if isinstance(n, (ast.Name, ast.Attribute)):
            for v, _, s in [*values_of(n, scope), *(handed(n.id, scope) if isinstance(n, ast.Name) else ())]:
                if v is not None and v is not n and looks_at_rank(v, s, depth + 1):
                    return True
        elif isinstance(n, ast.Call):
            function = definition(n.func, scope)
            if function is not None and mentions_ranks(function.node):
                return True
    return False


def handed(name, scope, defaults=False):
    """[(expression, None, scope), …]: what calls hand over for a parameter of this function, with `defaults` also its
    default where a call leaves it out or none is seen."""
    while scope is not None and name not in scope.bound:
        scope = scope.parent
    if scope is None or not scope.is_function or name not in [*scope.parameters, *(
            a.arg for a in scope.node.args.kwonlyargs)]:
        return []
    found, offset, missing = [], 0, False
    if scope.owner is not None and scope.parameters[:1] in (["self"], ["cls"]):
        offset = 1
    position = scope.parameters.index(name) - offset if name in scope.parameters else None
    calls = calls_of(scope)
    for call, s in [*calls, *scope.launches]:
        values = given(call, name, position, s)
        found += [(v, None, x) for v, x in values]
        missing = missing or not values
    if position == 0:
        found += [(v, None, x) for v, x in (decorations(scope.module) or {}).get(scope, ())]
    default = default_of(name, scope) if defaults and (missing or not found) else None
    return [*found, (default, None, scope)] if default is not None else found


@kept
def decorations(module):
    """{function that takes a function: [(name, scope), …] of the functions of the file that it decorates}."""
    found = {}
    for scope in module.scopes:
        for d in getattr(scope.node, "decorator_list", ()) if scope.is_function else ():
            called_first = isinstance(d, ast.Call)
            written_as = d.func if called_first else d
            target = definition(written_as, scope.parent) if isinstance(written_as, ast.Name) else None
            if target is None or not target.is_function:
                continue
            takers = [definition(v, s) for v, _, s in returned(target)] if called_first else [target]
            name = ast.copy_location(ast.Name(id=scope.name, ctx=ast.Load()), scope.node)
            for taker in takers:
                if taker is not None and taker.is_function:
                    found.setdefault(taker, []).append((name, scope.parent))
    return found


def default_of(name, function):
    """The expression of a parameter's default, or None."""
    a = function.node.args
    after = dict(zip([x.arg for x in [*a.posonlyargs, *a.args]][::-1], a.defaults[::-1]))
    return after.get(name) or next((d for x, d in zip(a.kwonlyargs, a.kw_defaults) if x.arg == name), None)


def calls_of(function):
    """[(call, scope), …]: the calls of a function, or of the class whose constructor it is, in the files at hand."""
    found = list(calls_by_target(function.module).get(function, ()))
    for other in importers(function.module, function.module.project):
        found += calls_by_target(other).get(function, ())
    return found


def calls_by_target(module):
    """{function: [(call, scope), …]}; calls of methods come last, since for them the others have to be known."""
    if module.targets is None:
        module.targets, calls = {}, [(c, s) for s in module.scopes for c in s.calls]
        for wanted in (True, False):
            for call, s in calls:
                if isinstance(call.func, ast.Name) is wanted:
                    target = definition(call.func, s)
                    if target is not None and isinstance(target.node, ast.ClassDef):
                        target = method(target, "__init__") or target
                    if target is not None:
                        module.targets.setdefault(target, []).append((call, s))
    return module.targets


def check_iterable(call, scope, report, name):
    found = iterable_class(call, scope)
    if found is None or any(class_sees_rank(c) for c in lineage(found)):
        return
    data, s = first_given(call, "dataset", 0, scope)
    for made, x in sources(data, s):
        arguments = data_given(made, x) if isinstance(made, ast.Call) else []
        if not isinstance(made, ast.Call) or instance_of(made, x) is None or any(
                mentions_ranks(a) or by_hand(a, x) or looks_at_rank(a, x) or made_with_rank(a, x) for a in arguments):
            return
    report.add("unsharded-data", call, scope.module, name="an IterableDataset")


def made_with_rank(node, scope):
    """Whether an expression is an object whose class looks at the rank."""
    found = instance_of(node, scope)
    return found is not None and any(class_sees_rank(c) for c in lineage(found))


@kept
def class_sees_rank(owner):
    """Whether a class looks at the rank, or calls a function that does; its own shards may be all there are."""
    return mentions_ranks(owner.node, shards=False) or any(sees_rank(c, f) for f in owner.functions.values()
                                                          for c in f.calls)


def sees_rank(call, scope, depth=0):
    """Whether a call is of a function that looks at the rank, or of an unknown one whose name speaks of shards."""
    function = definition(call.func, scope)
    if function is None:
        return "shard" in last_name(call)
    return function.is_function and depth < 3 and (mentions_ranks(function.node, shards=False) or any(
        sees_rank(c, function, depth + 1) for c in function.calls))


def several_epochs(scope):
    """Whether a function runs an engine for more than one epoch, or loops over epochs."""
    for call in scope.calls:
        if last_name(call) == "run" and isinstance(call.func, ast.Attribute):
            many = keyword(call, "max_epochs", 1)
            if many is not None and literal(many, scope) != 1 and (
                    is_engine(call.func.value, scope) or ENGINES.search(last_name(call.func.value))):
                return True
    return any(isinstance(n, ast.For) and isinstance(n.target, ast.Name) and "epoch" in n.target.id.lower()
               for n in own_nodes(scope.node))


def rule_set_epoch(module, report):
    """A shuffling distributed sampler, several epochs, and nobody who tells it the epoch."""
    together, told = related(module), told_epochs(module)
    if told is None or any("train_sampler" in m.source and "setup_common" in m.source for m in together):
        return
    users = [m for m in [module, *importers(module, module.project)] if any(map(several_epochs, m.scopes))]
    grouped_at_all = any(starts_group(m) or "init_process_group" in m.source for m in together)
    if not users or module not in users and not grouped_at_all:
        return
    for scope in module.scopes:
        for call in scope.calls:
            name = resolve(call.func, scope)
            if name == IDIST + "auto_dataloader":
                known, whole = keywords_of(call, scope)
                if "shuffle" in known and not any(ever_true(v, s) for v, s in known["shuffle"]):
                    continue
                if not whole and "shuffle" not in known:
                    continue
                if given(call, "sampler", None, scope) or given(call, "batch_sampler", None, scope):
                    continue
                words = target_of(call, scope) + written_args(call)
                if "shuffle" not in known and re.search(r"val|test|eval", words, re.I):
                    continue
                if is_stream(call, scope) or id(call) in told:
                    continue
                return report.add("no-set-epoch", call, module)
            if named(name, "DistributedSampler") and name.startswith("torch."):
                shuffles = next((k.value for k in call.keywords if k.arg == "shuffle"), None)
                if shuffles is not None and not ever_true(shuffles, scope):
                    continue
                words = target_of(call, scope) + written_args(call)
                if id(call) in told or re.search(r"val|test|eval", words, re.I):
                    continue
                return report.add("no-set-epoch", call, module)


@kept
def related(module):
    """A module, those that import it, and what all of these import, two steps far."""
    together = [module, *importers(module, module.project)]
    for m in together[:]:
        together += [t for t in imports_of(m) if t not in together]
    for m in together[:60]:
        together += [t for t in imports_of(m) if t not in together]
    return together


@kept
def told_epochs(module):
    """Ids of the calls that make the loaders and samplers which set_epoch is called for, other than as a method of a
    loader, which has none; None where one cannot be followed."""
    told = set()
    for m in related(module):
        if "set_epoch" not in m.source:
            continue
        calls = [(c, s) for s in m.scopes for c in s.calls if last_name(c) == "set_epoch" and isinstance(
            c.func, ast.Attribute)]
        if not calls:
            return None
        for call, scope in calls:
            receiver = call.func.value
            of_loader = isinstance(receiver, ast.Attribute) and receiver.attr.endswith("sampler") and isinstance(
                receiver.value, (ast.Name, ast.Attribute)) and not is_name(receiver.value, "self")
            made = sources(receiver.value if of_loader else receiver, scope)
            if not all(isinstance(v, ast.Call) and (is_loader(v, s) or named(resolve(v.func, s), "DistributedSampler"))
                       for v, s in made):
                return None
            for v, s in made:
                if of_loader:
                    told |= {id(v), *(id(x) for x, _ in sources(keyword(v, "sampler"), s))}
                elif not is_loader(v, s):
                    told.add(id(v))
    return told


def is_loader(call, scope):
    name = resolve(call.func, scope)
    return name == IDIST + "auto_dataloader" or name.startswith("torch.utils.data") and name.endswith(".DataLoader")


def ever_true(node, scope):
    """Whether a value is True, or a parameter for which some call hands over True."""
    given_to_it = handed(node.id, scope) if isinstance(node, ast.Name) and scope.is_function else []
    return literal(node, scope) is True or any(literal(v, s) is True for v, _, s in given_to_it)


@kept
def imports_of(module):
    """The modules of the project that a module imports."""
    dotted = {d: None for s in module.scopes for d in s.imports.values() if isinstance(d, str)}
    return [m for m in {module.project.find(d, module)[0]: None for d in dotted} if m is not None]


def iterable_class(call, scope):
    """The project's IterableDataset (a Scope) that a loader is given, or None."""
    data, s = first_given(call, "dataset", 0, scope)
    found = instance_of(data, s) if data is not None else None
    return found if found is not None and inherits(found, "Iterable") else None


def is_stream(call, scope):
    """Whether a loader's data set is, or may be, one without indices."""
    data, s = first_given(call, "dataset", 0, scope)
    return iterable_class(call, scope) is not None or any(
        isinstance(v, ast.Call) and (re.search(r"Iter|Stream|WebDataset|DataPipe", last_name(v)) or literal(
            keyword(v, "streaming"), x)) for v, x in sources(data, s)) if data is not None else False


def target_of(call, scope):
    for node in own_nodes(scope.node):
        if isinstance(node, ast.Assign) and node.value is call:
            return " ".join(last_name(t) for t in node.targets)
        if isinstance(node, ast.Return) and node.value is call:
            return scope.name
    return ""


def written_args(call):
    return " ".join(written(a) for a in call.args)


RANDOM_TRANSFORM = re.compile(r"^(Random[A-Z]\w+|ColorJitter|AutoAugment|TrivialAugmentWide|RandAugment|AugMix|MixUp|"
                              r"CutMix|ElasticTransform|GaussNoise|GaussianNoise)$")
TORCH_DRAWS = {"torch." + last for last in (
    "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "bernoulli", "normal",
    "multinomial", "poisson")}
DRAWS = {"random": {"random", "randint", "randrange", "choice", "choices", "shuffle", "sample", "uniform", "gauss",
                    "normalvariate", "betavariate"},
         "numpy.random": {"random", "rand", "randn", "randint", "choice", "shuffle", "permutation", "uniform", "normal",
                          "beta", "binomial", "standard_normal"}}
SEEDS = {"ignite.utils.manual_seed": ("torch", "random", "numpy.random"), "torch.manual_seed": ("torch",),
         "torch.random.manual_seed": ("torch",), "random.seed": ("random",), "numpy.random.seed": ("numpy.random",)}
PER_SAMPLE = {"__getitem__", "__getitems__", "__iter__", "__next__"}


OTHERS = ("random", "numpy", "torchvision", "tensorboardX", "wandb", "mlflow")


def library(node, scope):
    """The dotted name that a call has in torch, ignite or one of OTHERS; "" otherwise."""
    parts = chain(node)
    found = resolve(node, scope)
    if not found and parts is not None:
        root = imported(scope, parts[0]) or ""
        found = ".".join([root, *parts[1:]]) if root.partition(".")[0] in OTHERS else ""
    return found


def drawn(call, scope):
    """From which generator, that all of a process share, a call draws: "torch", "random", "numpy.random" or ""."""
    name = library(call.func, scope)
    head, _, last = name.rpartition(".")
    if name in TORCH_DRAWS:
        return "" if keyword(call, "generator") is not None else "torch"
    if last in DRAWS.get(head, ()):
        return head
    if last_name(call) in ("sample", "rsample") and isinstance(call.func, ast.Attribute) and any(
            isinstance(v, ast.Call) and resolve(v.func, s).startswith("torch.distributions.")
            for v, _, s in values_of(call.func.value, scope)):
        return "torch"
    return ""


def draws_of(function, depth=0):
    """The generators that a function draws from, also through what it calls, one to four calls deep."""
    found = set()
    for call in function.calls:
        found.add(drawn(call, function))
        inner = definition(call.func, function) if depth < 4 else None
        if inner is not None and inner.is_function and inner is not function:
            found |= draws_of(inner, depth + 1)
    return found - {""}


def feeds(function):
    """Whether a function is called again and again while an engine runs: a step, a handler, a generator function."""
    return runs_again(function) or not isinstance(function.node, ast.Lambda) and any(
        isinstance(n, (ast.Yield, ast.YieldFrom)) for n in own_nodes(function.node))


def chosen_by_generator(function, root=None, depth=0):
    """[(generator, scope)]: generators of their own by which a function chooses samples, also one to three calls deep;
    `root` is the one that was asked for."""
    root = root or function
    found = [(keyword(c, "generator"), function) for c in function.calls
             if keyword(c, "generator") is not None and chooses(c, function, root)]
    found += [(c.func.value, function) for c in function.calls if is_step_of_engine(root) and draws_array(c)]
    for call in function.calls if depth < 3 else ():
        inner = definition(call.func, function)
        if inner is not None and inner.is_function and inner is not function:
            found += chosen_by_generator(inner, root, depth + 1)
    return found


def draws_array(call):
    """Whether a call is of a method by which a generator of numpy draws as many numbers as it is told."""
    size_at = {"uniform": 2, "normal": 2, "integers": 2, "random": 0, "standard_normal": 0, "choice": 1}
    last = last_name(call)
    return isinstance(call.func, ast.Attribute) and last in size_at and not isinstance(
        keyword(call, "size", size_at[last]), (ast.Constant, type(None)))


def chooses(call, function, root):
    """Whether a call draws what each rank should draw for itself: which samples, or in an endless source the samples.
    What all ranks draw alike on purpose, such as a permutation to be shared, or one of three tasks, does not count."""
    name = library(call.func, function)
    if name == "torch.multinomial" or name == "torch.randint" and any(
            isinstance(n, ast.Call) and last_name(n) == "len" for a in call.args for n in ast.walk(a)):
        return True
    if name not in TORCH_DRAWS - {"torch.randperm"}:
        return False
    if root.owner is None:
        return is_endless(root) and not mentions_ranks(root.node)
    return root.name in ("__iter__", "__next__") and not class_sees_rank(root.owner)


def is_endless(function):
    """Whether a function yields in a loop that nothing ends: a source of samples."""
    return any(isinstance(n, ast.While) and constant(n.test) in (True, 1) and any(
        isinstance(x, ast.Yield) for x in ast.walk(n)) for n in own_nodes(function.node))


def seeds_of(generator, scope):
    """[(seed, scope)] that a generator of torch or numpy is given where it is made, or in the class or function that
    makes it; for a parameter what callers hand over."""
    found = []
    for value, index, s in values_of(generator, scope):
        if not isinstance(value, ast.Call) or index is not None:
            continue
        inner = value.func.value if isinstance(value.func, ast.Attribute) else None
        if last_name(value) == "manual_seed" and isinstance(inner, ast.Call) and last_name(inner) == "Generator":
            found += [(a, s) for a in value.args[:1]]
        elif library(value.func, s) in ("numpy.random.default_rng", "numpy.random.RandomState"):
            found += [(a, s) for a in [keyword(value, "seed", 0)] if a is not None]
        elif library(value.func, s) == "torch.Generator":
            homes = dict.fromkeys([s, *(s.owner.functions.values() if s.owner is not None else ())])
            found += [(a, f) for f in homes for c in f.calls for a in c.args[:1] if last_name(c) == "manual_seed"
                      and isinstance(c.func, ast.Attribute) and chain(c.func.value) == chain(generator)]
    return [(v, x) for seed, s in found for v, x in (
        [(v, x) for v, _, x in handed(seed.id, s)] if isinstance(seed, ast.Name) and seed.id in s.parameters
        else [(seed, s)])]


@kept
def draws_while_running(module):
    """The generators from which data or noise are drawn again and again: by a data set, a collate function, a random
    transform, the step of an engine, a handler, a generator function, or a loop that trains."""
    found = set()
    for scope in module.scopes:
        for call in scope.calls:
            name = library(call.func, scope)
            if RANDOM_TRANSFORM.match(last_name(call)) and (name.startswith("torchvision.") or re.search(
                    r"transforms?(_v2)?$|^(T|A|v2|albumentations)$", (chain(call.func) or [""])[-2:][0])):
                found.add("torch")
            collate = keyword(call, "collate_fn")
            function = definition(collate, scope) if collate is not None else None
            if function is not None and function.is_function:
                found |= draws_of(function)
        if scope.is_function and (scope.name in PER_SAMPLE and scope.owner is not None or feeds(scope)):
            found |= draws_of(scope)
        for loop in own_nodes(scope.node):
            if isinstance(loop, (ast.For, ast.While)):
                inner = [n for b in loop.body for n in ast.walk(b) if isinstance(n, ast.Call)]
                if any(last_name(c) == "backward" for c in inner):
                    found |= {drawn(c, scope) for c in inner} - {""}
    return found


def rule_same_seed(module, report):
    """One seed for all ranks, and random numbers that each of them draws while it trains."""
    if is_test(module) or not near_distributed(module):
        return
    check_own_generators(module, report)
    if not is_distributed(module):
        return
    seeds = [(c, s) for s in module.scopes for c in s.calls if library(c.func, s) in SEEDS and (
        c.args or c.keywords)]
    again = [(c, s) for c, s in seeds if s.is_function and s.parent.is_function and runs_again(s) and not (
        c.args and ranked_somewhere(c.args[0], s))]
    if again:  # what the ranks were given at first does not count then
        seeds = again
    elif not seeds or any(c.args and last_name(c) in ("manual_seed", "seed", "seed_everything", "set_seed")
                        and ranked_somewhere(c.args[0], s) for s in module.scopes for c in s.calls):
        return
    running = draws_while_running(module)
    for other in imports_of(module):
        running = running | draws_while_running(other)
    for scope in module.scopes:
        if not scope.is_function or not any(runs_on_ranks(x) for x in all_scopes(scope) if x.is_function):
            continue
        for call in (c for c, s in seeds if s is scope):
            if running & set(SEEDS[library(call.func, scope)]):
                report.add("same-seed", call, module)
                break


SPLITS = {"torch.utils.data.random_split": ("torch", "generator", 2),
          "sklearn.model_selection.train_test_split": ("numpy.random", "random_state", None)}
ORDERS = {"torch.randperm": "torch", "numpy.random.permutation": "numpy.random"}


def rule_split(module, report):
    """A split of the data by random numbers that each rank draws from a seed of its own."""
    if not near_distributed(module) and "idist" not in module.source or is_test(module):
        return
    for scope in module.scopes:
        if not scope.is_function or not runs_on_ranks(scope):
            continue
        done = sorted(seeds_and_splits(scope), key=lambda step: step[0])
        seeded = {}
        for _, kind, families, node, ranked in done:
            if kind == "seed":
                seeded.update(dict.fromkeys(families, ranked))
            elif seeded.get(families[0]):
                report.add("split-by-rank", node, module, name=last_name(node))


@kept
def seeds_and_splits(scope) -> list:
    """[(line, "seed" | "split", generators, call, whether it looks at the rank), …] of a function, in the lines of its
    own calls where a function that it calls does either; the call is its own where that function is of another file."""
    found = []
    for call in scope.calls:
        name = library(call.func, scope)
        if name in SEEDS and (call.args or call.keywords):
            ranked = any(looks_at_rank(a, scope) for a in [*call.args, *(k.value for k in call.keywords)])
            found.append((call.lineno, "seed", SEEDS[name], call, ranked))
        elif name in SPLITS:
            family, argument_, position = SPLITS[name]
            if keyword(call, argument_, position) is None:
                found.append((call.lineno, "split", (family,), call, False))
        elif name in ORDERS and keyword(call, "generator") is None and cut_in_two(call, scope):
            found.append((call.lineno, "split", (ORDERS[name],), call, False))
        function = definition(call.func, scope) if not name else None
        if function is not None and function.is_function and function is not scope:
            at_home = function.module is scope.module
            found += [(call.lineno, kind, families, node if at_home else call, ranked)
                      for _, kind, families, node, ranked in seeds_and_splits(function) or ()]
    return found


def cut_in_two(call, scope):
    """Whether what a call returns is sliced from the front and to the end: two sets of indices."""
    names = [t.id for n in own_nodes(scope.node) if isinstance(n, ast.Assign) and any(
        x is call for x in ast.walk(n.value)) for t in n.targets if isinstance(t, ast.Name)]
    slices = [n.slice for n in own_nodes(scope.node) if isinstance(n, ast.Subscript) and isinstance(
        n.value, ast.Name) and n.value.id in names and isinstance(n.slice, ast.Slice) and n.slice.step is None]
    return any(s.lower is None for s in slices) and any(s.upper is None for s in slices)


def check_own_generators(module, report):
    """The same of generators of their own, at the place where the seed is given."""
    chosen = {id(v): (v, x) for f in module.scopes if f.is_function and feeds(f)
              for generator, s in chosen_by_generator(f) for v, x in seeds_of(generator, s)}
    for seed, s in chosen.values():
        if s.module is module and runs_on_ranks(s) and not looks_at_rank(seed, s):
            report.add("same-seed", seed, module)


@kept
def ranked_somewhere(node, scope, depth=0):
    for n in ast.walk(node):
        if isinstance(n, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
            if varies(value_on_ranks(n, scope)) or re.search(r"rank", last_name(n), re.I):
                return True
            if isinstance(n, ast.Name) and depth < 3:
                for v, _i, s in values_of(n, scope):
                    if v is not None and v is not n and ranked_somewhere(v, s, depth + 1):
                        return True
    return False


def runs_on_ranks(scope):
    """Whether a function runs inside the group: handed to Parallel.run or spawn, or called from one that is."""
    s = scope
    while s is not None:
        if s.on_ranks:
            return True
        s = s.parent
    if first_gets_rank(scope):
        return True
    return any(resolve(c.func, scope) in STARTERS and resolve(c.func, scope) not in (
        IDIST + "Parallel", IDIST + "spawn") for c in scope.calls) and not scope.name == "main" or any(
        f.on_ranks for _, f in calls_of(scope))


def first_gets_rank(scope):
    """Whether a function is one that another file hands to Parallel.run or spawn, by its first parameter."""
    return not starts_group(scope.module) and scope.name != "main" and scope.parameters[:1] in (
        ["local_rank"], ["rank"])


def rule_written_everywhere(module, report):
    """Progress bars and experiment loggers that every rank makes, and files of one name that every rank writes."""
    if not is_distributed(module) or not uses_ignite(module) or is_test(module):
        return
    for scope in module.scopes:
        if not scope.is_function or one_rank(scope) is not None or only_guarded(scope):
            continue
        on_ranks = runs_on_ranks(scope)
        body = scope.node.body if isinstance(scope.node.body, list) else [scope.node.body]
        for call in calls_everywhere(body, ALWAYS, scope):
            name = resolve(call.func, scope)
            last = name.rpartition(".")[2]
            logs = on_ranks and name.startswith("ignite.handlers.") and last in LOGGERS and not keyword(call, "disable")
            if logs and (last != "ProgressBar" or used_everywhere(r"attach$|log_message$", module, call, scope)):
                report.add("log-on-every-rank", call, module, name=last)
            if is_own_logger(call, scope) and reached_by_all(scope) and not only_once(call, scope):
                report.add("log-on-every-rank", call, module, name=".".join(name.split(".")[-2:]))
            path = written_file(call, scope)
            if path is not None and reached_by_all(scope) and not only_once(call, scope) and one_for_all(path, scope):
                name = written(path)
                report.add("file-on-every-rank", call, module, name="one file" if "…" in name else name)


OWN_LOGGERS = {  # of other libraries: what writes to them, and the arguments that may make of it what ranks share
    "torch.utils.tensorboard.SummaryWriter": (r"add_\w+$", ()),
    "tensorboardX.SummaryWriter": (r"add_\w+$", ()),
    "wandb.init": (r"log$", ("mode", "group")),
    "mlflow.start_run": (r"log_\w+$", ("run_id", "nested")),
}


def is_own_logger(call, scope):
    """Whether a call opens a run or an event file with a library of its own, on all ranks as on one, and others than
    the first write to it."""
    writes, by_rank = OWN_LOGGERS.get(library(call.func, scope), ("", ()))
    if not writes or any(k.arg in by_rank for k in call.keywords):
        return False
    same = not any(looks_at_rank(a, scope) for a in [*call.args, *(k.value for k in call.keywords)])
    return same and used_everywhere(writes, scope.module)


def used_everywhere(methods, module, made=None, scope=None):
    """Whether a method of a name is called where all ranks come; of the object that a call makes, if one is given,
    which is so as well if that has no name."""
    names = None
    if made is not None:
        names = {name for name, values in [*scope.bound.items(), *((a, [v[:2] for v in vs]) for a, vs in
                 module.assigned.items())] if any(v is not None and part(v, i) is made for v, i in values)}
        if not names:
            return True
    calls = [(c, s) for s in module.scopes for c in s.calls if isinstance(c.func, ast.Attribute) and re.match(
        methods, c.func.attr) and (names is None or last_name(c.func.value) in names)]
    return made is not None and not calls or any(
        not guarded(c, s) and one_rank(s) is None and not handler_of_one(s) and not only_guarded(s) for c, s in calls)


@kept
def reached_by_all(function):
    """Whether a function surely runs on all ranks: handed to Parallel.run or spawn, or called, registered or defined
    in one that does, under no condition on the rank.
    """
    if function.on_ranks or first_gets_rank(function):
        return True
    if handler_of_one(function) or one_rank(function) is not None:
        return False
    if function.parent is not None and function.parent.is_function:
        return reached_by_all(function.parent)
    calls = calls_of(function)
    if not calls and function.owner is not None:  # a handler: whoever has such an object registers it
        calls = calls_of(method(function.owner, "__init__") or function.owner)
    return any(s.is_function and s is not function and not guarded(c, s) and not only_once(c, s) and reached_by_all(s)
               for c, s in calls)


def only_once(call, scope):
    """Whether a call stands where one rank comes first, or does it for those that find its work done."""
    for n in own_nodes(scope.node):
        around = isinstance(n, (ast.If, ast.With)) and n.lineno <= call.lineno <= n.end_lineno
        if isinstance(n, ast.If) and (around or n.end_lineno < call.lineno and isinstance(n.body[-1], ast.Return)):
            asked = [last_name(x) for x in ast.walk(n.test) if isinstance(x, ast.Call)]
            if {"exists", "is_file", "isfile"}.intersection(asked):
                return True
        elif around and isinstance(n, ast.With) and any("one_rank_first" in written(i.context_expr) for i in n.items):
            return True
    return False


WRITES = {"torch.save": ("f", 1), "torchvision.utils.save_image": ("fp", 1), "numpy.save": ("file", 0),
          "numpy.savez": ("file", 0)}


def written_file(call, scope):
    """The path to which a call writes what cannot be written twice: a checkpoint, a picture, or lines at the end; else
    None.
    """
    name = library(call.func, scope)
    if name in WRITES:
        return keyword(call, *WRITES[name])
    last, method_of = last_name(call), getattr(call.func, "value", None)
    if last == "savefig" and method_of is not None:
        return keyword(call, "fname", 0)
    if last != "open" or not str(constant(keyword(call, "mode", 0 if method_of is not None else 1))).startswith("a"):
        return None
    return method_of if method_of is not None else keyword(call, "file", 0)


KEEP_PATH = {"join", "Path", "str", "format", "range", "enumerate", "int", "resolve", "absolute", "expanduser",
             "with_suffix", "with_name", "joinpath", "fspath", "replace"}


def one_for_all(path, scope, depth=0):
    """Whether a path is seen to be the same on every rank: put together from texts, options and counters, without the
    rank; not what an unknown function answers, as a temporary or a dated name.
    """
    if path is None or depth > 6 or depth == 0 and looks_at_rank(path, scope):
        return False
    if isinstance(path, ast.Constant):
        return True
    if isinstance(path, ast.Call):
        receiver = path.func.value if isinstance(path.func, ast.Attribute) else None
        parts = [*path.args, *([] if receiver is None or resolve(path.func, scope) else [receiver])]
        return last_name(path) in KEEP_PATH and all(one_for_all(p, scope, depth + 1) for p in parts)
    if isinstance(path, (ast.Name, ast.Attribute, ast.Subscript)):
        found = sources(path, scope)
        fixed = not isinstance(path, ast.Name) or any(path.id in x.imports for x in all_scopes(scope))
        return all(fixed if v is path else one_for_all(v, s, depth + 1) for v, s in found)
    return all(one_for_all(p, scope, depth + 1) for p in ast.iter_child_nodes(path) if isinstance(p, ast.expr))


def handler_of_one(function):
    """Whether a function is a handler that only some ranks register, or one that a Checkpoint calls on one rank."""
    parent = function.parent
    if function.owner is not None and any(re.search(r"SaveHandler|Saver", last_name(b)) for c in lineage(
            function.owner) for b in c.node.bases):
        return True
    if parent is None or not isinstance(function.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    if guarded(function.node, parent):
        return True
    return any(guarded(c, s) or "Checkpoint" in last_name(c)
               for c, s in (handed_over(function.module) or {}).get(function.name, ()))


@kept
def handed_over(module):
    """{last part of a name: [(call that is given it, scope), …]}"""
    found = {}
    for scope in module.scopes:
        for call in scope.calls:
            for a in [*call.args, *[k.value for k in call.keywords]]:
                if isinstance(a, (ast.Name, ast.Attribute)):
                    found.setdefault(last_name(a), []).append((call, scope))
    return found


def only_guarded(function, depth=0):
    """Whether the file calls a function on some ranks only."""
    calls = calls_of(function)
    return bool(calls) and depth < 4 and all(
        guarded(c, s) or one_rank(s) or s.is_function and only_guarded(s, depth + 1) for c, s in calls)


def guarded(call, scope):
    """Whether a call stands under a condition on the rank, or behind a return under one."""
    for n in own_nodes(scope.node):
        if isinstance(n, (ast.If, ast.IfExp)) and n.lineno <= call.lineno and differs(condition(n.test, scope)):
            inside = [b for b in ast.walk(n) if b is call]
            if inside and not any(x is call for x in ast.walk(n.test)):
                return True
            if isinstance(n, ast.If) and n.end_lineno < call.lineno and n.body and isinstance(n.body[-1], ast.Return):
                return True
        elif isinstance(n, ast.BoolOp) and any(x is call for v in n.values[1:] for x in ast.walk(v)) and differs(
                condition(n.values[0], scope)):
            return True
        elif type(n).__name__ == "Match" and n.lineno < call.lineno <= n.end_lineno and any(
                differs(matched(c.pattern, n.subject, scope)) for c in n.cases):
            return True
    return False


def is_test(module):
    return module.path.name.startswith(("test_", "conftest"))


def calls_everywhere(statements, reach, scope):
    """The calls in statements that no condition keeps from some ranks."""
    gone, found = NEVER, []
    for node in statements:
        now = both(reach, negate(gone)) if gone != NEVER else reach
        if isinstance(node, ast.If):
            test = condition(node.test, scope)
            found += calls_everywhere(node.body, both(now, test), scope)
            found += calls_everywhere(node.orelse, both(now, negate(test)), scope)
            if any(isinstance(b, ast.Return) for b in node.body):
                gone = either(gone, test)
            if any(isinstance(b, ast.Return) for b in node.orelse):
                gone = either(gone, negate(test))
            continue
        for inner in ("body", "orelse", "finalbody"):
            block = getattr(node, inner, None)
            if isinstance(block, list) and not isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
                found += calls_everywhere(block, now, scope)
        for handler in getattr(node, "handlers", ()):
            found += calls_everywhere(handler.body, now, scope)
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)) or differs(now):
            continue
        pending = [c for c in ast.iter_child_nodes(node) if isinstance(c, (ast.expr, ast.withitem, ast.keyword))]
        while pending:
            n = pending.pop()
            if isinstance(n, (ast.IfExp, ast.BoolOp, ast.Lambda)):
                continue
            if isinstance(n, ast.Call):
                found.append(n)
            pending += [c for c in ast.iter_child_nodes(n) if isinstance(c, (ast.expr, ast.keyword))]
    return found


# models


@kept
def wrapped_names(module):
    """{(scope or class, text of the expression): assignment} of models that were wrapped for several processes."""
    found = {}
    for scope in module.scopes:
        for node in own_nodes(scope.node):
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Call) and is_wrapper(
                    node.value, scope):
                for t in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    if isinstance(t, ast.Name):
                        found[(scope, t.id)] = node
                    elif isinstance(t, ast.Attribute) and last_name(t.value) == "self" and scope.owner:
                        found[(scope.owner, "self." + t.attr)] = node
    return found


def is_wrapper(call, scope):
    name = resolve(call.func, scope)
    return name == IDIST + "auto_model" or named(name, "DistributedDataParallel") and name.startswith("torch.nn")


@kept
def wrapping(node, scope):
    """The assignment that wrapped the model which an expression names; None if it is not wrapped, or not always."""
    wrapped = wrapped_names(scope.module)
    if isinstance(node, ast.Name):
        for s in all_scopes(scope):
            if isinstance(s.node, ast.ClassDef):
                continue
            if node.id in s.bound:
                made = wrapped.get((s, node.id))
                if made is None:
                    return None
                if s is scope or s.parent is None:
                    later = [n for n in own_nodes(s.node) if isinstance(n, ast.Assign) and n is not made and any(
                        isinstance(t, ast.Name) and t.id == node.id for t in n.targets)]
                    if made.lineno >= node.lineno and s is scope:
                        return None
                    if any(n.lineno > made.lineno for n in later):
                        return None
                    if under_condition(made, s):
                        return None
                elif under_condition(made, s) or [n for n in own_nodes(s.node) if isinstance(n, ast.Assign) and any(
                        isinstance(t, ast.Name) and t.id == node.id for t in n.targets) and n.lineno > made.lineno]:
                    return None
                return made
        return None
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self" and scope.owner:
        made = wrapped.get((scope.owner, "self." + node.attr))
        if made is None or len(scope.owner.attributes.get(node.attr, [])) > 2:
            return None
        home = next((f for f in scope.owner.functions.values() if any(n is made for n in own_nodes(f.node))), None)
        if home is None or under_condition(made, home):
            return None
        if home is scope and made.lineno >= node.lineno:
            return None
        if home is not scope and any(isinstance(c.func, ast.Attribute) and last_name(c.func.value) == "self" and (
                c.func.attr == scope.name) and c.lineno < made.lineno for c in home.calls):
            return None  # called before the model is wrapped
        others = [v for v, i, s in scope.owner.attributes.get(node.attr, []) if v is not made.value]
        if any(getattr(v, "lineno", 0) > made.lineno for v in others if v is not None):
            return None
        return made
    return None


def under_condition(node, scope):
    """Whether a statement stands below an `if`, so that it may not have been run."""
    for n in own_nodes(scope.node):
        if isinstance(n, (ast.If, ast.Try)) and n.lineno < node.lineno <= n.end_lineno and not (
                is_main_guard(n.test) if isinstance(n, ast.If) else surely_tried(n, node)):
            return True
    return False


def surely_tried(block, node):
    """Whether what stands in the body of a `try` was run wherever the function goes on after it."""
    return all(ends_the_process(h.body) for h in block.handlers) and any(
        b.lineno <= node.lineno <= b.end_lineno for b in [*block.body, *block.finalbody])


def may_lack(handler):
    """Whether an except clause is there for an attribute that is missing."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(k is None or last_name(k) in ("AttributeError", "Exception", "BaseException") for k in kinds)


def rule_wrapped_attributes(module, report):
    if not uses_wrapper(module):
        return
    for scope in module.scopes:
        safe = set()
        for node in own_nodes(scope.node):
            if isinstance(node, ast.If) and any(isinstance(n, ast.Call) and last_name(n) in ("hasattr", "isinstance")
                                                for n in ast.walk(node.test)):
                safe |= set(range(node.lineno, node.end_lineno + 1))
            if isinstance(node, ast.IfExp) or isinstance(node, ast.Try) and any(map(may_lack, node.handlers)):
                safe |= set(range(node.lineno, node.end_lineno + 1))
        for node in own_nodes(scope.node):
            if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load):
                continue
            if node.attr.startswith("_") or node.attr in WRAPPED_HAS or node.lineno in safe:
                continue
            plain_name = isinstance(node.value, (ast.Name, ast.Attribute))
            if wrapping(node.value, scope) is not None or plain_name and (
                    model_kind(node.value, scope, node) == "wrapped"):
                report.add("attribute-of-wrapped-model", node, module, name=written(node), given=node.attr)


def check_wrapped_twice(call, scope, report):
    inner = keyword(call, "model", 0) or keyword(call, "module", 0)
    if inner is not None and is_wrapped(inner, scope, call) and not spared(call, scope):
        report.add("model-wrapped-twice", call, scope.module)


def check_wrapping_helper(call, scope, report):
    """A call of a function of the project that wraps what it is given, with a model that is wrapped already."""
    function = definition(call.func, scope)
    if function is not None and isinstance(function.node, ast.ClassDef):
        function = method(function, "__init__")
    if function is None or not function.is_function or isinstance(function.node, ast.Lambda):
        return
    offset = int(function.parameters[:1] in (["self"], ["cls"]) and function.owner is not None)
    for name in wraps_parameters(function):
        given = keyword(call, name, function.parameters.index(name) - offset)
        if given is not None and is_wrapped(given, scope, call) and not spared(call, scope):
            report.add("model-wrapped-twice", call, scope.module)


@kept
def wraps_parameters(function):
    """Names of the parameters that a function wraps, whenever it is called, or on several ranks."""
    found = []
    for call in function.calls:
        if is_wrapper(call, function) and not spared(call, function):
            inner = keyword(call, "model", 0) or keyword(call, "module", 0)
            if isinstance(inner, ast.Name) and inner.id in function.parameters and not any(
                    v is not None and v is not call and v.lineno < call.lineno for v, _ in function.bound[inner.id]):
                found.append(inner.id)
    return found


def spared(call, scope):
    """Whether a condition around the call, or one that leaves before it, asks how the model is wrapped."""
    for n in own_nodes(scope.node):
        if isinstance(n, (ast.If, ast.IfExp)) and n.lineno <= call.lineno and any(
                isinstance(x, ast.Call) and last_name(x) in ("isinstance", "hasattr", "type")
                for x in ast.walk(n.test)):
            return True
    return False


KEEPS_MODEL = {"to", "cuda", "cpu", "train", "eval", "float", "half", "double", "bfloat16", "requires_grad_"}


@kept
def is_wrapped(node, scope, at, depth=0):
    """Whether a model is surely wrapped for several processes when the call `at` is reached."""
    if node is None or depth > 5:
        return False
    if isinstance(node, ast.Call):
        if is_wrapper(node, scope):
            return True
        if isinstance(node.func, ast.Attribute) and node.func.attr in KEEPS_MODEL:
            return is_wrapped(node.func.value, scope, at, depth + 1)
        if resolve(node.func, scope) == "torch.compile" and node.args:
            return is_wrapped(node.args[0], scope, at, depth + 1)
        function = definition(node.func, scope)
        made = returned(function) if function is not None and function.is_function else []
        return bool(made) and all(is_wrapped(v, s, v, depth + 1) for v, _, s in made)
    last = last_binding(node, scope, at)
    if last is not None:
        return is_wrapped(last, scope, last, depth + 1)
    made = wrapping(node, scope)
    return made is not None and made.value is not at and made.lineno < at.lineno


def last_binding(node, scope, at):
    """What a name or an attribute of self was last assigned in this function, wherever `at` is reached; else None."""
    if isinstance(node, ast.Name):
        values = [(v, i) for v, i in scope.bound.get(node.id, ())]
    elif (chain(node) or [""])[0] == "self" and len(chain(node)) == 2 and scope.owner:
        values = [(v, i) for v, i, s in scope.owner.attributes.get(node.attr, ()) if s is scope]
    else:
        return None
    before = [(v, i) for v, i in values if v is not None and v.lineno <= at.lineno and not any(
        x is at for x in ast.walk(v))]
    if not before:
        return None
    value, index = max(before, key=lambda p: (p[0].lineno, p[0].col_offset))
    if index is not None or not arms(value, scope) <= arms(at, scope):
        return None
    return value


def arms(node, scope):
    """The branches that a node stands in."""
    found = set()
    for n in own_nodes(scope.node):
        if isinstance(n, (ast.If, ast.Try, ast.For, ast.While)) and n.lineno <= node.lineno <= n.end_lineno and not (
                isinstance(n, ast.If) and is_main_guard(n.test)):
            for part_of in ("body", "orelse", "handlers", "finalbody"):
                if any(b.lineno <= node.lineno <= b.end_lineno for b in getattr(n, part_of, ())):
                    found.add((id(n), part_of))
    return found


PLAIN_LAYERS = re.compile(r"(Loss|Identity|Flatten|Unflatten|Dropout\w*|ReLU6?|GELU|SiLU|Sigmoid|Tanh|Softmax\w*|"
                          r"LogSoftmax|Upsample\w*|\w*Pool[123]d|\w*Pad[123]d)$")  # they have no parameters


def rule_optimizer(module, report):
    """An optimizer, and after it new parameters that it does not know, also where a helper does either."""
    if not is_distributed(module) or "optim" not in module.source:
        return
    for scope in module.scopes:
        steps = model_steps(scope)
        for i, (kind, model, node, _) in enumerate(steps):
            later = steps[i + 1:]
            if kind == "optimizer" and not any(k == "known" or k == kind and m == model and not exclusive(
                    at, node, scope) for k, m, at, _ in later):
                new = next((name for k, m, at, name in later if k == "replaced" and at is not node and (
                    m == model or m.startswith(model + ".") or f"{model}.".startswith(f"{name}."))), None)
                if new is not None:
                    report.add("optimizer-before-parameters", node, module, name=new)
                    break  # the optimizers of other branches are the same mistake


def model_steps(scope, depth=0):
    """[("optimizer" | "replaced" | "known", model as text, node, what is replaced), …] in the order of the lines; what
    functions of the file do with what they are given, and methods with self, stands where they are called."""
    found = []
    nodes = [n for n in own_nodes(scope.node) if isinstance(n, (ast.Assign, ast.Call))]
    for node in sorted(nodes, key=lambda n: (n.lineno, n.col_offset)):
        if isinstance(node, ast.Call):
            found += steps_of_call(node, scope, depth)
            continue
        if not isinstance(node.value, ast.Call):
            continue
        found += steps_returned(node, scope, depth)
        name = resolve(node.value.func, scope)
        sharded = name.endswith(".FullyShardedDataParallel") and not keyword(node.value, "use_orig_params")
        layer = name.startswith("torch.nn.") and name.rpartition(".")[2][:1].isupper() and not PLAIN_LAYERS.search(
            name) and not is_wrapper(node.value, scope)
        own = instance_is_module(node.value, scope)
        inner = node.value.args[0] if name == IDIST + "auto_model" and node.value.args else None
        fresh = isinstance(inner, ast.Call) and (instance_is_module(inner, scope) or resolve(
            inner.func, scope).startswith("torch.nn."))
        for t in node.targets:
            parts = chain(t)
            if parts is None and layer and isinstance(t, ast.Subscript) and chain(t.value):  # net[1] = nn.Linear(…)
                whole = ".".join(chain(t.value))
                found.append(("replaced", whole, node, f"{whole}[…]"))
            if parts is None:
                continue
            text = ".".join(parts)
            again = any(chain(n) == parts for n in ast.walk(node.value) if isinstance(n, (ast.Name, ast.Attribute)))
            if depth == 0 and len(parts) == 1:
                found += made_by(node.value, text, scope)
            if layer and len(parts) > 1:
                found.append(("replaced", ".".join(parts[:-1]), node, text))
            if (layer or own or fresh) and not again or sharded:
                found.append(("replaced", text, node, text))
    return found


def steps_of_call(node, scope, depth):
    found = []
    if is_optimizer(node, scope) and (node.args or node.keywords):
        trained = keyword(node, "params", 0)
        for value, s in [(trained, scope), *(sources(trained, scope) if isinstance(trained, ast.Name) else ())]:
            if value is None or s is not scope:
                continue
            found += [("optimizer", model, node, "") for model in models_trained(value, scope)]
        return list(dict.fromkeys(found))
    if last_name(node) == "add_param_group":
        return [("known", "", node, "")]
    function = definition(node.func, scope) if depth < 2 else None
    if function is None or not function.is_function or function is scope or function.module is not scope.module:
        return []
    return moved(model_steps(function, depth + 1), names_given(node, function, scope), node)


def steps_returned(assignment, scope, depth):
    """The steps of a function of the file with models of its own, in the names that it returns them to."""
    function = definition(assignment.value.func, scope) if depth < 2 else None
    if function is None or not function.is_function or function is scope or function.module is not scope.module:
        return []
    renamed, (target, *_) = {}, assignment.targets
    for value, _, _ in returned(function):
        pairs = zip(value.elts, target.elts) if isinstance(value, ast.Tuple) and isinstance(target, ast.Tuple) else [
            (value, target)]
        renamed.update((inner.id, outer.id) for inner, outer in pairs
                       if isinstance(inner, ast.Name) and isinstance(outer, ast.Name)
                       and inner.id not in function.parameters)
    return moved(model_steps(function, depth + 1), renamed, assignment) if renamed else []


PARAMETERS = ("parameters", "named_parameters")


def models_trained(node, scope, depth=0):
    """The models, as text, whose parameters stand in an expression, also where a function of the file takes them."""
    found = []
    for n in ast.walk(node):
        if isinstance(n, ast.Call) and last_name(n) in PARAMETERS and isinstance(
                n.func, ast.Attribute) and chain(n.func.value):
            found.append(".".join(chain(n.func.value)))
        function = definition(n.func, scope) if isinstance(n, ast.Call) and depth < 2 else None
        if function is not None and function.is_function and function.module is scope.module:
            trained = [(v, s) for v, _, s in returned(function)]
            trained += [(c, function) for c in function.calls if last_name(c) in PARAMETERS]
            inner = {("optimizer", m, n, "") for v, s in trained for m in models_trained(v, s, depth + 1)}
            found += [m for _, m, _, _ in moved(inner, names_given(n, function, scope), n)]
    return found


def names_given(call, function, scope):
    """{parameter: the name, as text, that a call hands over for it}, self included."""
    renamed, own = {}, function.owner is not None and function.parameters[:1] == ["self"]
    for position, name in enumerate(function.parameters):
        values = given(call, name, position - int(own), scope)
        if values and chain(values[0][0]):
            renamed[name] = ".".join(chain(values[0][0]))
    if function.owner is not None and isinstance(call.func, ast.Attribute) and chain(call.func.value):
        renamed["self"] = ".".join(chain(call.func.value))
    elif isinstance(call.func, ast.Attribute) and last_name(call.func.value) == "super":
        renamed["self"] = "self"
    return renamed


def made_by(call, name, scope):
    """The steps of a class's constructor, for the object that is bound to a name."""
    owner = definition(call.func, scope)
    start = method(owner, "__init__") if owner is not None and isinstance(owner.node, ast.ClassDef) else None
    return moved(model_steps(start, 1), {"self": name}, call) if start is not None and start.module is \
        scope.module else []


def moved(steps, renamed, node):
    """Steps of a function, in the names of its caller; those with names of its own are left out."""
    found = []
    for kind, model, _, name in steps:
        first, dot, rest = model.partition(".")
        if kind == "known":
            found.append((kind, model, node, name))
        elif first in renamed:
            begin, dotted, end = name.partition(".")
            found.append((kind, renamed[first] + dot + rest, node, renamed.get(begin, begin) + dotted + end))
    return found


def instance_is_module(call, scope):
    found = instance_of(call, scope)
    return found is not None and any(last_name(b) == "Module" for b in found.node.bases)


def is_optimizer(call, scope):
    """Whether a call makes an optimizer: one of torch, or of another library by its name and what it is given."""
    name, last = resolve(call.func, scope), last_name(call)
    if name.startswith("torch.optim."):
        return last[:1].isupper() and "lr_scheduler" not in name
    return last[:1].isupper() and OPTIMIZER.search(last) is not None and any(
        isinstance(a, ast.Call) and last_name(a) == "parameters" for a in call.args[:1])


OPTIMIZER = re.compile(r"(?i)adam|sgd|rmsprop|adagrad|adadelta|adafactor|lamb$|lars$|lion$|optimi[sz]er$")


def rule_module_prefix(module, report):
    """State dicts by hand: saved from the wrapped model, loaded into the bare one, or the other way round."""
    if not uses_wrapper(module):
        return
    saved, loads = [], []
    for scope in module.scopes:
        for call in scope.calls:
            if last_name(call) == "save" and resolve(call.func, scope) == "torch.save" and call.args:
                for model, s in models_saved(call.args[0], scope):
                    saved.append((model_kind(model, s, call), call, scope))
            if last_name(call) == "load_state_dict" and isinstance(call.func, ast.Attribute) and call.args:
                receiver, state = call.func.value, call.args[0]
                if isinstance(state, ast.Call) and last_name(state) == "state_dict" and isinstance(
                        state.func, ast.Attribute):
                    kinds = model_kind(state.func.value, scope, call), model_kind(receiver, scope, call)
                    if kinds == ("wrapped", "bare"):
                        report.add("module-prefix", call, module, name="of the wrapped model, loaded into a bare one")
                    elif kinds == ("bare", "wrapped"):
                        report.add("module-prefix", call, module, name="of a bare model, loaded into the wrapped one")
                how = state_origin(call.args[0], scope)
                if how:
                    loads.append((model_kind(receiver, scope, call), how, call, scope))
    for into, how, call, scope in loads:
        if into == "wrapped" and how == "stripped":
            report.add("module-prefix", call, module, name="the prefix is cut off, but the model is wrapped")
        elif into == "wrapped" and how == "prefixed":
            report.add("module-prefix", call, module, name="the prefix is put on by hand")
        elif into == "wrapped" and how == "loaded" and saved and all(k == "bare" for k, _, _ in saved):
            report.add("module-prefix", call, module, name="saved from the bare model, loaded into the wrapped one")
        elif into == "wrapped" and how == "loaded" and not saved and by_auto_model(call, scope):
            report.add("module-prefix", call, module, name="loaded into the wrapped model by hand")
        elif into == "bare" and how == "loaded" and any(k == "wrapped" for k, _, _ in saved) and not any(
                k == "bare" for k, _, _ in saved):
            report.add("module-prefix", call, module, name="saved from the wrapped model, loaded into a bare one")


def by_auto_model(call, scope):
    """Whether the model that is loaded into was wrapped by auto_model, earlier in the same function."""
    made = wrapping(call.func.value, scope)
    return made is not None and made.lineno < call.lineno and any(n is made for n in own_nodes(scope.node)) and resolve(
        made.value.func, scope) == IDIST + "auto_model"


@kept
def models_saved(node, scope, depth=0) -> list:
    """[(expression of the model, scope), …] of the state dicts in what is saved, also through a name or a helper."""
    found = []
    for n in ast.walk(node):
        if isinstance(n, ast.Call) and last_name(n) == "state_dict" and isinstance(n.func, ast.Attribute):
            found.append((n.func.value, scope))
        elif depth < 3 and isinstance(n, (ast.Name, ast.Attribute)):
            values = values_of(n, scope)
            if any(v is None for v, _, _ in values):
                values = handed(n.id, scope) if isinstance(n, ast.Name) else []
            for value, index, s in values:
                if index is None and isinstance(value, (ast.Call, ast.Dict, ast.Name)) and value is not n:
                    found += models_saved(value, s, depth + 1)
        elif depth < 3 and isinstance(n, ast.Call):
            function = definition(n.func, scope)
            for value, _, s in returned(function) if function is not None and function.is_function else ():
                found += models_saved(value, s, depth + 1)
    return list(dict.fromkeys(found))


@kept
def unpacked_from_call(node, scope):
    """[(expression, scope)]: where a name is one of several values that a function of the project returns."""
    values = values_of(node, scope) if isinstance(node, ast.Name) else []
    if len(values) != 1 or values[0][1] is None or not isinstance(values[0][0], ast.Call):
        return []
    call, index, s = values[0]
    function = definition(call.func, s)
    made = returned(function) if function is not None and function.is_function else []
    found = [(part(v, index), x) for v, _, x in made]
    return [] if any(v is None for v, _ in found) else found


@kept
def model_kind(node, scope, at, depth=0) -> str:
    """"wrapped" or "bare" for a model at a place, by its callers where it is a parameter; "" if unknown."""
    if depth > 4:
        return ""
    if isinstance(node, ast.Call) and any(constant(a) == "module" for a in node.args):  # getattr(model, "module", …)
        return "bare"
    unpacked = unpacked_from_call(node, scope)
    if unpacked:
        kinds = {"wrapped" if is_wrapped(v, s, v) else "" for v, s in unpacked}
        return kinds.pop() if len(kinds) == 1 else ""
    home = next((s for s in all_scopes(scope) if node.id in s.bound and not isinstance(s.node, ast.ClassDef)),
                scope) if isinstance(node, ast.Name) else scope
    if isinstance(node, ast.Name) and node.id in home.bound and all(v is None for v, _ in home.bound[node.id]):
        kinds = {model_kind(v, s, v, depth + 1) for v, _, s in handed(node.id, home)}
        return kinds.pop() if len(kinds) == 1 else ""
    if wrapping(node, scope) is not None or isinstance(node, ast.Name) and is_wrapped(node, scope, at):
        return "wrapped"
    if isinstance(node, ast.Attribute):  # of an object that was given the model
        kinds = {model_kind(v, s, v, depth + 1) if isinstance(v, ast.Name) and i is None else ""
                 for v, i, s in values_of(node, scope)}
        if len(kinds) == 1 and "" not in kinds:
            return kinds.pop()
    return "bare" if is_bare_model(node, scope, at) else ""


@kept
def is_bare_model(receiver, scope, call, depth=0):
    """A model that this function made and has not wrapped (yet)."""
    if depth > 3:
        return False
    if isinstance(receiver, ast.Attribute) and receiver.attr == "module":
        return True
    values = values_of(receiver, scope)
    wrapped = [v for v, i, s in values if isinstance(v, ast.Call) and is_wrapper(v, s)]
    if any(w.lineno < call.lineno for w in wrapped):
        return False
    return any(isinstance(v, ast.Call) and makes_module(v, s, depth) for v, i, s in values)


def makes_module(call, scope, depth):
    if resolve(call.func, scope).startswith("torch.nn.") and not is_wrapper(call, scope) or instance_is_module(
            call, scope):
        return True
    if isinstance(call.func, ast.Attribute) and call.func.attr in KEEPS_MODEL:
        return is_bare_model(call.func.value, scope, call, depth + 1)
    if last_name(call) in ("deepcopy", "copy") and len(call.args) == 1:
        return is_bare_model(call.args[0], scope, call, depth + 1)
    function = definition(call.func, scope)
    if function is not None and function in (makers_of_wrapped(scope.module) or ()):
        return True
    made = returned(function) if function is not None and function.is_function else []
    return bool(made) and all(is_bare_model(v, s, v, depth + 1) for v, _, s in made)


@kept
def makers_of_wrapped(module):
    """The functions whose answer is wrapped somewhere in a file: what they make is a model, and not wrapped yet."""
    found = set()
    for scope in module.scopes:
        for call in scope.calls:
            for value, index, s in values_of(call.args[0], scope) if call.args and is_wrapper(call, scope) else ():
                while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and (
                        value.func.attr in KEEPS_MODEL):
                    value = value.func.value
                function = definition(value.func, s) if isinstance(value, ast.Call) and index is None else None
                if function is not None and function.is_function and not any(
                        isinstance(v, ast.Call) and is_wrapper(v, x) for v, _, x in returned(function)):
                    found.add(function)
    return found


@kept
def state_origin(node, scope, depth=0) -> str:
    """"loaded" from a file as it is, "stripped" of or "prefixed" with "module.", "" when unknown."""
    if depth > 4:
        return ""
    if isinstance(node, ast.Call):
        if resolve(node.func, scope) == "torch.load":
            return "loaded"
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop") and node.args:
            return state_origin(node.func.value, scope, depth + 1)
        function = definition(node.func, scope)
        made = returned(function) if function is not None and function.is_function else []
        origins = {state_origin(v, s, depth + 1) for v, _, s in made}
        return origins.pop() if len(origins) == 1 else ""
    if isinstance(node, ast.IfExp):
        return state_origin(node.body, scope, depth + 1) or state_origin(node.orelse, scope, depth + 1)
    if isinstance(node, (ast.DictComp,)):
        return prefix_change(node.key)
    if isinstance(node, ast.Subscript):
        return state_origin(node.value, scope, depth + 1)
    if isinstance(node, (ast.Name, ast.Attribute)):
        if any(last_name(c).startswith("consume_prefix") for c in scope.calls):
            return ""
        values = values_of(node, scope)
        if any(v is None for v, _, _ in values):
            values = [*values, *(handed(node.id, scope) if isinstance(node, ast.Name) else ())]
        answers = [state_origin(v, s, depth + 1) for v, _, s in values if v is not None and v is not node]
        for n in own_nodes(scope.node):  # new[k[7:]] = v
            if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Subscript) and text_of(
                    n.targets[0].value) == text_of(node):
                key = n.targets[0].slice
                change = prefix_change(key)
                if not change and isinstance(key, ast.Name):
                    change = next((prefix_change(v) for v, i, s in values_of(key, scope) if v is not None
                                   and prefix_change(v)), "")
                if change:
                    answers.append(change)
        for kind in ("stripped", "prefixed", "loaded"):
            if kind in answers:
                return kind
    return ""


def prefix_change(key):
    if isinstance(key, ast.Subscript) and isinstance(key.slice, ast.Slice) and (
            constant(key.slice.lower) == 7 or isinstance(key.slice.lower, ast.Call)
            and any(constant(a) == "module." for a in key.slice.lower.args)):
        return "stripped"
    if isinstance(key, ast.Call) and last_name(key) in ("replace", "removeprefix", "lstrip") and key.args and constant(
            key.args[0]) == "module.":
        return "stripped"
    if isinstance(key, ast.BinOp) and constant(key.left) == "module.":
        return "prefixed"
    if isinstance(key, ast.JoinedStr) and key.values and str(constant(key.values[0])).startswith("module."):
        return "prefixed"
    return ""


def rule_local_stop(module, report):
    """Handlers that stop the engine of one rank, and schedulers that change its learning rate, by what that rank alone
    sees."""
    plateau = "ReduceLROnPlateau" in module.source and is_distributed(module)
    for scope in module.scopes:
        for call in scope.calls:
            name = resolve(call.func, scope)
            if plateau and steps_on_plateau(call, scope) and origin(call.args[0], scope) == "local":
                report.add("decision-on-local-value", call, module, name="ReduceLROnPlateau.step")
            if not name.startswith("ignite.handlers."):
                continue
            last = name.rpartition(".")[2]
            if last == "TimeLimit" and uses_wrapper(module):
                report.add("decision-on-local-value", call, module, name=last)
            elif last == "EarlyStopping" and (is_distributed(module) or "idist" in module.source):
                score = keyword(call, "score_function", 1)
                function = definition(score, scope) if score is not None else None
                if function is None or not function.is_function:
                    continue
                tags = {origin(v, s) for v, _, s in returned(function)}
                if "local" in tags and "reduced" not in tags:
                    report.add("decision-on-local-value", score, module, name=last)


def steps_on_plateau(call, scope):
    """Whether a call gives a value to a ReduceLROnPlateau of torch."""
    return last_name(call) == "step" and bool(call.args) and isinstance(call.func, ast.Attribute) and any(
        isinstance(v, ast.Call) and resolve(v.func, s).endswith(".ReduceLROnPlateau")
        for v, _, s in values_of(call.func.value, scope))


SHOWS = {"print", "add_scalar", "add_scalars", "log_message", "write", "log", "log_metric", "log_metrics", "echo",
         "info", "writerow", "report_scalar", "dump"}


def rule_result(module, report):
    """What a rank counted on its share of the data, and shows as that of all."""
    if not is_distributed(module) or not uses_ignite(module) or is_test(module) or not SHARES.search(module.source):
        return
    for scope in module.scopes:
        for call in scope.calls:
            if last_name(call) not in SHOWS or one_rank(scope) is None and not guarded(call, scope):
                continue
            if any(re.search("rank|share|shard|local", str(constant(n)), re.I) for n in ast.walk(call)):
                continue  # it says so
            for value in [*call.args, *(k.value for k in call.keywords)]:
                tallied = share_counted(value, scope)
                if tallied is not None and origin(value, scope) == "local" and not mentions_ranks(value):
                    report.add("result-not-reduced", tallied[0], module, name=tallied[1])


SHARES = re.compile(r"auto_dataloader|sampler")


@kept
def share_counted(node, scope, depth=0):
    """(expression, name): where what a loop over a rank's share has added up is read, in a value or in what it comes
    from, or where a function of another file is called that gives it, with the name of the sum; None when nothing of
    the kind is seen."""
    if node is None or depth > 5:
        return None
    for n in ast.walk(node):
        found = None
        if isinstance(n, ast.Name):
            if n.id in (sums_of_share(scope) or ()):
                return node, n.id
            for value, index, s in values_of(n, scope):
                item = part(value, index) if value is not None else None
                if item is not None and item is not node and s is scope:
                    found = found or share_counted(item, s, depth + 1)
            for value, s in unpacked_from_call(n, scope):
                found = found or here(share_counted(value, s, depth + 1), s, n, scope)
        elif isinstance(n, ast.Call):
            function = definition(n.func, scope)
            if function is not None and function.is_function and not any(
                    e.kind in ("collective", "metric") for e in effects_of(function)):
                for value, _, s in returned(function):
                    found = found or here(share_counted(value, s, depth + 1), s, n, scope)
        if found:
            return found
    return None


def here(found, home, node, scope):
    """(place, name) of what was found in one function, for another: a place in another file is that of the node which
    leads there."""
    return found if found is None or home.module is scope.module else (node, found[1])


@kept
def sums_of_share(scope):
    """The names that a function adds something to in a loop over a loader that gives each rank its share, in which
    nothing is trained."""
    found = set()
    for loop in own_nodes(scope.node):
        if not isinstance(loop, ast.For) or any(isinstance(n, ast.Call) and last_name(n) in ("backward", "step")
                                                for b in loop.body for n in ast.walk(b)):
            continue
        over = loop.iter
        while isinstance(over, ast.Call) and last_name(over) in ("enumerate", "tqdm", "trange", "iter") and over.args:
            over = over.args[0]
        if any(isinstance(v, ast.Call) and is_sharded_loader(v, s) for v, s in sources(over, scope)):
            found |= {n.target.id for b in loop.body for n in ast.walk(b) if isinstance(n, ast.AugAssign)
                      and isinstance(n.target, ast.Name) and origin(n.value, scope) == "local"}
    return found


def rule_exception_handler(module, report):
    """Handlers of EXCEPTION_RAISED that keep the error to themselves: the engine does not raise it then."""
    if not is_distributed(module) and "idist" not in module.source or is_test(module):
        return
    for scope in module.scopes:
        for node in own_nodes(scope.node):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                for d in node.decorator_list:
                    if isinstance(d, ast.Call) and last_name(d) == "on" and any(
                            isinstance(n, ast.Attribute) and n.attr == "EXCEPTION_RAISED" for a in d.args
                            for n in ast.walk(a)) and not any_raise(node):
                        report.add("exception-on-one-rank", d, module, name="EXCEPTION_RAISED")
            elif isinstance(node, ast.Call) and last_name(node) == "add_event_handler" and len(node.args) > 1 and any(
                    isinstance(n, ast.Attribute) and n.attr == "EXCEPTION_RAISED" for n in ast.walk(node.args[0])):
                function = definition(node.args[1], scope)
                if function is not None and function.is_function and not any_raise(function.node):
                    report.add("exception-on-one-rank", node, module, name="EXCEPTION_RAISED")


def any_raise(node):
    return any(isinstance(n, ast.Raise) or isinstance(n, ast.Assert) and constant(n.test) is False
               or isinstance(n, ast.Call) and written(n.func) in (*EXITS, "os.abort") for n in ast.walk(node))


def rule_one_rank_result(module, report):
    """What a function returns on one rank only, used on all."""
    for scope in module.scopes:
        for node in own_nodes(scope.node):
            if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and len(node.targets) == 1
                    and isinstance(node.targets[0], ast.Name)):
                continue
            function = definition(node.value.func, scope)
            if function is None or not function.is_function or one_rank(function) is None or not returned(function):
                continue
            if not any(is_one_rank_only(d, function.parent) for d in function.node.decorator_list):
                continue
            name = node.targets[0].id
            if len(scope.bound.get(name, ())) == 1 and result_used(name, scope, node.lineno):
                report.add("result-of-one-rank-only", node.value, module, name=function.name)


def result_used(name, scope, after, depth=0):
    """Whether a name is used in a way that fails with None: for an attribute, an item, an operator; not below any
    condition; also in a function of the project that it is handed to."""
    for n in own_nodes(scope.node):
        if getattr(n, "lineno", 0) <= after:
            continue
        hit = isinstance(n, (ast.Attribute, ast.Subscript)) and is_name(n.value, name)
        hit = hit or isinstance(n, ast.BinOp) and (is_name(n.left, name) or is_name(n.right, name))
        hit = hit or isinstance(n, ast.For) and is_name(n.iter, name)
        if isinstance(n, ast.Call):
            hit = written(n.func) in OF_PATHS and any(is_name(a, name) for a in n.args)
            function = definition(n.func, scope) if depth < 2 else None
            if function is not None and function.is_function:
                hit = hit or any(
                    is_name(v, name) and len(function.bound.get(p, ())) == 1 and result_used(p, function, 0, depth + 1)
                    for i, p in enumerate(function.parameters) for v, _ in given(
                        n, p, i - (function.parameters[:1] == ["self"]), scope))
        if hit and not under_condition(n, scope):
            return True
    return False


OF_PATHS = ("os.path.join", "Path", "open", "os.makedirs", "len", "torch.load", "pathlib.Path")


def is_name(node, name):
    return isinstance(node, ast.Name) and node.id == name


def as_launched(call, target, name):
    """The call of its function that a launcher makes on each rank: the local rank comes first."""
    if name:  # a spawn
        arguments, keywords = arguments_of_spawn(call, name), keyword(call, "kwargs_dict", 3)
        keywords = [ast.keyword(arg=None, value=keywords)] if keywords is not None else []
    else:
        arguments, keywords = call.args[1:], call.keywords
    rank = ast.copy_location(ast.Name(id="local_rank", ctx=ast.Load()), call)
    return ast.copy_location(ast.Call(func=target, args=[rank, *arguments], keywords=keywords), call)


def prepare(module):
    """Facts that several rules need: functions that run on ranks, engines with metrics, names that are reduced."""
    if getattr(module, "_prepared", False):
        return
    module._prepared = True
    for scope in module.scopes:
        for call in scope.calls:
            name = resolve(call.func, scope)
            target = None
            if isinstance(call.func, ast.Attribute) and call.func.attr == "run" and call.args and is_parallel(
                    call.func.value, scope):
                target = call.args[0]
            elif name == IDIST + "spawn":
                target = keyword(call, "fn", 1)
            elif name.startswith("torch.multiprocessing.") and name.rpartition(".")[2] == "spawn":
                target = keyword(call, "fn", 0)
            if target is not None:
                function = definition(target, scope)
                if function is not None and function.is_function:
                    function.on_ranks = True
                    function.in_group = function.in_group or not name.startswith("torch.")
                    function.launches.append((as_launched(call, target, name), scope))
            if last_name(call) in TORCH_COLLECTIVES and call.args:
                inner = call.args[0]
                if isinstance(inner, ast.Name):
                    scope.reduced.setdefault(inner.id, []).append(call)
    for scope in module.scopes:
        for call in scope.calls:
            if isinstance(call.func, ast.Attribute) and call.func.attr == "attach" and call.args:
                receiver = call.func.value
                if is_metric(receiver, scope) or re.search(r"metric", written(receiver), re.I):
                    module.metric_targets.add(text_of(call.args[0]))


# --- reports --------------------------------------------------------------------------------------------------------


class Report:
    """Collects findings; each place and rule once."""

    def __init__(self):
        self.found = {}

    def add(self, rule, node, module, name="", given="", via="", where=0):
        what = RULES[rule].what.format(name=name or "it", given=given or "it")
        if via not in ("", "loop"):
            what += f" (through {via}{f', line {where}' if where and where != node.lineno else ''})"
        key = (str(module.path), node.lineno, rule)
        self.found.setdefault(key, {
            "path": module.path, "line": node.lineno, "last": getattr(node, "end_lineno", node.lineno) or node.lineno,
            "column": node.col_offset + 1, "rule": rule, "what": what})


CHECKS = (rule_calls, rule_before_init, rule_environment, rule_local_rank_option, rule_contrib, rule_set_epoch,
          rule_same_seed, rule_split, rule_written_everywhere, rule_wrapped_attributes, rule_optimizer,
          rule_module_prefix, rule_local_stop, rule_result, rule_exception_handler, rule_one_rank_result)
RELEVANT = re.compile(rb"ignite|distributed|\bdist\b|rank|DataLoader|is_main|is_master")
IGNORE = re.compile(r"#\s*idist:\s*ignore(-file)?(?:\s*\[([\w\s,-]*)\])?")


def check_module(module, report):
    for scope in module.scopes:
        if scope is module.top:
            walk_function(scope, report)
        elif scope.is_function:
            walk_function(scope, report, guard=one_rank(scope) or "")
    for rule in CHECKS:
        rule(module, report)


def suppressed(finding, module):
    """Whether a comment on the finding's lines, on the line above it, or for the whole file says so."""
    def says(text, whole):
        m = IGNORE.search(text)
        if not m or bool(m[1]) != whole:
            return False
        names = [n.strip() for n in (m[2] or "").split(",") if n.strip()]
        return not names or finding["rule"] in names

    lines = module.lines
    first, last = finding["line"], min(finding["last"], finding["line"] + 20)
    if any(says(lines[n - 1], False) for n in range(first, last + 1) if n <= len(lines)):
        return True
    above = lines[first - 2] if 2 <= first <= len(lines) + 1 else ""
    if above.lstrip().startswith("#") and says(above, False):
        return True
    return any(says(line, True) for line in file_ignores(module))


@kept
def file_ignores(module):
    return [line for line in module.lines if "ignore-file" in line]


def python_files(folder):
    """Python files below a folder, hidden and installed ones apart; links to folders are not followed."""
    for base, folders, files in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in SKIPPED_FOLDERS
                            and not os.path.exists(os.path.join(base, f, "pyvenv.cfg")))
        for f in sorted(files):
            if f.endswith((".py", ".ipynb")) and not f.startswith(".") and os.path.isfile(os.path.join(base, f)):
                yield Path(base, f)


def check(paths, progress=None, strict=False):
    """Findings in the files and folders. Returns (findings, [(path, why not read)], number of files read)."""
    files, roots, unread = [], [], []
    for p in paths:
        try:
            folder, file = p.is_dir(), p.is_file()
        except (OSError, ValueError):
            folder = file = False
        if folder:
            roots.append(Path(os.path.abspath(p)))
            files += [(f, False) for f in python_files(p)]
        elif file:
            files.append((p, True))
        elif p.exists():
            unread.append((p, "not a regular file"))
        else:
            unread.append((p, "no such file or folder"))
    project = Project(roots)
    asked, seen, read = {}, set(), 0
    for number, (path, explicit) in enumerate(files):
        if progress:
            progress(number, len(files))
        absolute = Path(os.path.abspath(path))
        if absolute in seen:
            continue
        seen.add(absolute)
        if path.suffix == ".ipynb":
            if explicit or relevant(absolute):
                unread.append((path, "a notebook; convert it first: jupyter nbconvert --to script"))
            continue
        if not explicit and not relevant(absolute):
            why = unparsable(absolute)
            read += not why
            unread += [(path, why)] if why else []
            continue
        module = project.load(absolute, asked=True)
        if module is not None:
            asked[absolute] = (path, module)
            read += 1
    report, faults = Report(), {}
    for step in (prepare, functools.partial(check_module, report=report)):  # what one file says of another comes first
        for number, (path, module) in enumerate(asked.values()):
            if progress:
                progress(number, len(asked))
            try:
                step(module)
            except RecursionError:
                faults[path] = "nested too deeply to be checked"
            except Exception as e:
                if strict:
                    raise
                faults[path] = f"a fault of {TOOL}, please report it: {type(e).__name__}: {e}"
    unread += faults.items()
    unread += [(next((q for q, e in files if Path(os.path.abspath(q)) == p), p), why) for p, why in project.unread]
    findings = []
    for f in report.found.values():
        if f["path"] not in asked:
            continue
        path, module = asked[f["path"]]
        if suppressed(f, module):
            continue
        rule = RULES[f["rule"]]
        findings.append({
            "file": str(path), "line": f["line"], "column": f["column"], "rule": f["rule"], "severity": rule.severity,
            "text": f"{f['what']}. {rule.why}", "fix": rule.fix, "see": f"{PAGE}#{f['rule']}", "what": f["what"]})
    findings.sort(key=lambda f: (f["file"], f["line"], f["column"], f["rule"]))
    return findings, unread, read


def relevant(path):
    try:
        if path.stat().st_size > LARGEST:
            return True
        return bool(RELEVANT.search(path.read_bytes()))
    except OSError:
        return True


def plain(text):
    return text.replace("`", "")


def as_text(findings, unread, read):
    lines = []
    for f in findings:
        lines.append(f"{f['file']}:{f['line']}:{f['column']}: {f['severity']}: {plain(f['what'])} [{f['rule']}]")
        lines.append(f"    why: {plain(RULES[f['rule']].why)}")
        lines.append(f"    fix: {plain(f['fix'])}")
        lines.append(f"    see: {f['see']}")
    n = len(findings)
    lines.append(f"{n} finding{'s' * (n != 1)} in {read} file{'s' * (read != 1)}")
    return "\n".join(lines) + "\n"


def as_json(findings, unread, read):
    return json.dumps({
        "schema": SCHEMA, "tool": TOOL, "files": read,
        "findings": [{k: v for k, v in f.items() if k != "what"} for f in findings],
        "unread": [{"file": str(p), "why": why} for p, why in unread]}, indent=1) + "\n"


def as_github(findings, unread, read):
    def data(text):
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    def prop(text):
        return data(text).replace(":", "%3A").replace(",", "%2C")

    lines = [f"::{f['severity']} file={prop(f['file'])},line={f['line']},col={f['column']},title={prop(f['rule'])}::"
             f"{data(plain(f['text']))} Fix: {data(plain(f['fix']))}" for f in findings]
    lines += [f"::warning file={prop(str(p))}::not checked: {data(why)}" for p, why in unread]
    return "".join(line + "\n" for line in lines)


def as_sarif(findings, unread, read):
    used = list(RULES)

    def uri(path):
        path = Path(path)
        return path.as_uri() if path.is_absolute() else "/".join(map(quoted, path.parts))

    rules = [{"id": r, "shortDescription": {"text": plain(generic(r))},
              "fullDescription": {"text": plain(RULES[r].why)}, "help": {"text": plain(RULES[r].fix)},
              "defaultConfiguration": {"level": RULES[r].severity}} for r in used]
    results = [{"ruleId": f["rule"], "ruleIndex": used.index(f["rule"]), "level": f["severity"],
                "message": {"text": f"{plain(f['text'])} Fix: {plain(f['fix'])}"},
                "locations": [{"physicalLocation": {"artifactLocation": {"uri": uri(f["file"])},
                                                    "region": {"startLine": f["line"], "startColumn": f["column"]}}}]}
               for f in findings]
    notes = [{"level": "warning", "message": {"text": f"not checked: {why}"},
              "locations": [{"physicalLocation": {"artifactLocation": {"uri": uri(p)}}}]} for p, why in unread]
    return json.dumps({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
        "runs": [{"tool": {"driver": {"name": TOOL, "rules": rules}}, "columnKind": "unicodeCodePoints",
                  "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": notes}],
                  "results": results}]}, indent=1) + "\n"


def quoted(part):
    return "".join(c if c.isalnum() and c.isascii() or c in "-._~" else "".join(f"%{b:02X}" for b in c.encode(
        "utf-8", "surrogateescape")) for c in part)


FORMATS = {"text": as_text, "json": as_json, "sarif": as_sarif, "github": as_github}


def generic(name):
    """What a rule says, without a place."""
    what = GENERIC.get(name) or RULES[name].what.replace(" ({name})", "").replace("{name}", "a call")
    assert "{" not in what, name
    return what


def sentence(rule):
    """What a rule says of a finding, as a sentence of the page: a name at its beginning keeps its letters."""
    first, _, rest = generic(rule).partition(" ")
    first = f"`{first}`" if re.search(r"[._=]", first) else first[0].upper() + first[1:]
    return f"{first} {rest}."


GENERIC = {
    "result-of-one-rank-only": "a function returns None on the other ranks, and its result is used on all",
    "exception-on-one-rank": "an error around a collective is swallowed on the rank that has it",
    "first-query-under-rank-guard": "Ignite's first look at a process group that it did not make, on some ranks only",
    "handler-under-rank-guard": "a handler is registered on some ranks only, and communicates or sets a learning rate",
    "query-before-initialisation": "a getter of idist is asked before there is a group",
    "parallel-argument-ignored": "Parallel drops arguments without a word, since there is no nproc_per_node",
    "timeout-not-timedelta": "timeout is not a timedelta",
    "environment-inside-context": "a variable is set in the environment after the group was made",
    "rank-with-slurm": "idist.initialize is given the rank that SLURM has set",
    "broadcast-from-another-rank": "idist.broadcast sends what one rank has, and another rank makes the value",
    "sharded-twice": "the data are this rank's share already, and a sampler divides them again",
    "split-by-rank": "a split of the data draws from a generator that each rank has seeded for itself",
    "means-summed": "a mean of each rank is summed and not divided by the world size",
    "unfit-reduction": "a value is reduced with an operation that does not give that value of all ranks",
    "result-not-reduced": "a result is of this rank's share of the data, and is shown for all of them",
    "spawn-unpicklable": "the processes are started with something that they cannot be given",
    "unknown-argument": "a call of idist is given an argument that it does not take",
    "reduction-op": "no reduction that idist.all_reduce knows",
    "changed-in-place": "a tensor is used as this rank's own after all_reduce has written the result into it",
    "reduced-twice": "a value that is of all ranks already is reduced again",
    "group-in-loop": "a collective is given a list of ranks again and again",
    "unsharded-data": "data that are not divided between the ranks",
    "attribute-of-wrapped-model": "the wrapped model is asked for an attribute that only the inner one has",
    "optimizer-before-parameters": "the optimizer is made before parameters are replaced, and misses the new ones",
    "module-prefix": "a state dict does not fit the wrapped model, or the bare one",
    "log-on-every-rank": "a progress bar or an experiment logger is made on every rank",
    "file-on-every-rank": "a file of one name is written by every rank",
    "contrib-import": "an old path below ignite.contrib, whose import warns or fails",
}


def list_rules():
    width = max(map(len, RULES))
    return "".join(f"{name:{width}}  {r.severity:7}  {plain(generic(name))}\n" for name, r in RULES.items())


def explain(name):
    r = RULES[name]
    return (f"{name} ({r.severity})\n\n{plain(generic(name))}.\n{plain(r.why)}\nFix: {plain(r.fix)}\n\n"
            f"Wrong ({plain(r.happens)}):\n\n{indented(r.wrong)}\nRight:\n\n{indented(r.right)}\nsee {PAGE}#{name}\n")


def indented(text):
    return "".join(f"    {line}".rstrip() + "\n" for line in text.strip().splitlines())


def page():
    """references/rules.md, as it is to be."""
    parts = [PAGE_HEAD.format(rules=len(RULES), errors=sum(r.severity == "error" for r in RULES.values())).rstrip()]
    for severity, title in (("error", "## Errors"), ("warning", "## Warnings")):
        parts.append(title)
        parts.append(" · ".join(f"[`{n}`](#{n})" for n, r in RULES.items() if r.severity == severity))
        for name, r in RULES.items():
            if r.severity == severity:
                parts += [f"### `{name}`",
                          f"{sentence(name)} {r.why} **Wrong** On 2 ranks {r.happens}. **Fix** {r.fix}",
                          f"```py wrong\n{r.wrong.strip()}\n```", f"```py right\n{r.right.strip()}\n```"]
    return "\n\n".join(parts) + "\n"


PAGE_HEAD = """# Rules of check_script.py

What [check_script.py](../scripts/check_script.py) finds in a training script, without running it: {rules} rules, of \
which {errors} are errors (a hang, an exception, a wrong result) and the rest warnings (waste, noise). Each wrong \
example has been run and fails as it says, each right one runs and is not found; a `training(local_rank)` is run by \
each of 2 ranks of a gloo group.

`# idist: ignore[RULE]` on a line, or alone on the line above, silences the rule there; without `[RULE]` all of them. \
`# idist: ignore-file[RULE]` silences it in the file. `--select` and `--ignore` take rules for a whole run.
"""


# --- command line ---------------------------------------------------------------------------------------------------

EPILOG = f"""exit codes:
  0  nothing found
  1  something found, errors or warnings
  2  usage, or nothing could be read

examples:
  python check_script.py train.py
  python check_script.py --format github --severity error src/
  python check_script.py --explain collective-under-rank-guard

A comment `# idist: ignore[RULE]` on the line silences a finding. Rules with examples: {PAGE}
"""


def options(argv):
    parser = argparse.ArgumentParser(
        prog=TOOL, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Reads training scripts that use ignite.distributed or torch.distributed, without running them, "
                    "and reports what will hang, raise or go wrong on several processes.")
    parser.add_argument("paths", nargs="*", metavar="FILE|FOLDER", help="Python files, or folders to search for them")
    parser.add_argument("--format", choices=sorted(FORMATS), default="text", help="how to report (default: text)")
    parser.add_argument("--select", metavar="RULE[,RULE…]", action="append", default=[], help="these rules only")
    parser.add_argument("--ignore", metavar="RULE[,RULE…]", action="append", default=[], help="not these rules")
    parser.add_argument("--severity", choices=("error", "warning"), default="warning",
                        help="report from this severity on (default: warning, which is everything)")
    parser.add_argument("--output", metavar="FILE", help="write the report there, not to stdout")
    parser.add_argument("--list-rules", action="store_true", help="print the rules and stop")
    parser.add_argument("--explain", metavar="RULE", help="print a rule with its examples and stop")
    args = parser.parse_args(argv)
    args.select, args.ignore = ([n.strip() for text in given for n in text.split(",") if n.strip()]
                                for given in (args.select, args.ignore))
    for name in [*args.select, *args.ignore, *([args.explain] if args.explain else [])]:
        if name not in RULES:
            parser.error(f"no rule {name}; --list-rules prints them")
    if not (args.paths or args.list_rules or args.explain):
        parser.error("name a file or a folder")
    return args


def progress_line():
    """A function that shows how far the work is, once it takes longer than two seconds and a terminal looks on."""
    if not sys.stderr.isatty():
        return None
    began, last = time.monotonic(), [0.0]

    def show(number, total):
        now = time.monotonic()
        if now - began > 2 and now - last[0] > 0.2:
            last[0] = now
            sys.stderr.write(f"\r{number} of {total} files\x1b[K")
            sys.stderr.flush()

    return show


def run(argv):
    args = options(argv)
    if args.list_rules or args.explain:
        emit(list_rules() if args.list_rules else explain(args.explain), None)
        return 0
    progress = progress_line()
    findings, unread, read = check([Path(p) for p in args.paths], progress)
    if progress:
        sys.stderr.write("\r\x1b[K")
    findings = [f for f in findings if (not args.select or f["rule"] in args.select) and f["rule"] not in args.ignore
                and (args.severity == "warning" or f["severity"] == "error")]
    alike = {}
    for path, why in unread:
        alike.setdefault(why, []).append(shown(path))
    for why, paths in alike.items():
        for path in paths if len(paths) <= 3 else [f"{paths[0]} and {len(paths) - 1} more"]:
            print(f"{TOOL}: {path}: not checked: {why}", file=sys.stderr)
    if not read and not unread:
        print(f"{TOOL}: no Python file in {', '.join(args.paths)}", file=sys.stderr)
    emit(FORMATS[args.format](findings, unread, read), args.output)
    return 2 if not read else 1 if findings else 0


def shown(path):
    return str(path).encode("utf-8", "backslashreplace").decode()


def emit(text, output):
    text = text.encode("utf-8", "backslashreplace").decode()
    if output:
        Path(output).write_text(text, encoding="utf-8")
        return
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()


def main(argv=None):
    """Run the command line and return the exit code."""
    outcome = []

    def work():
        try:
            outcome.append(run(argv))
        except SystemExit as e:
            outcome.append(e.code)
        except BrokenPipeError:
            try:
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            except (OSError, ValueError):
                pass
            outcome.append(1)
        except OSError as e:
            print(f"{TOOL}: {shown(e.filename or '')}: {e.strerror or e}", file=sys.stderr)
            outcome.append(2)

    before = sys.getrecursionlimit()
    size = threading.stack_size(STACK)
    sys.setrecursionlimit(max(before, DEPTH))
    try:  # in a thread of its own, whose stack bears the depth of a deeply nested program
        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        worker.join()
    except KeyboardInterrupt:
        return 130
    finally:
        threading.stack_size(size)
        sys.setrecursionlimit(before)
    return outcome[0] if outcome else 2


STACK, DEPTH = 128 * 1024 * 1024, 6000

if __name__ == "__main__":
    sys.exit(main())
