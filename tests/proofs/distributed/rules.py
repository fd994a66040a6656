"""references/rules.md: each wrong example fails as its entry says, each right one runs; the page is the table that
check_script.py has built in."""

from __future__ import annotations

import builtins
import os
import re
import runpy
import sys
import tempfile
import warnings
from pathlib import Path

import ignite.distributed as idist
from support.claims import proves
from support.pages import read_page
from support.readers import check_script
from support.world import Outcome, run_serial, run_world

from .troubleshooting_slurm import task
from .troubleshooting_tools import free_port, standing, stuck

PAGE = "sub-skills/distributed/references/rules.md"
NOT_WAITING = ("wrapper", "training", "<module>", "<lambda>")
WAITING = re.compile(r"in (all_reduce|all_gather|barrier|broadcast|new_group|backward|_compute_nproc_per_node)\b")
ECHO = re.compile(r"by peer|Timed out waiting|Application timeout caused|Broken pipe")


def example(name: str, kind: str) -> str:
    return getattr(check_script.RULES[name], kind)


def in_ranks(source: str, folder: str):
    """A function that runs the example's `training` on a rank, in that folder, with warnings of imports as errors."""

    def training(rank):
        os.chdir(folder)
        with warnings.catch_warnings():
            if "contrib" in source or "tqdm_logger" in source:
                warnings.simplefilter("error", DeprecationWarning)
                for name in [n for n in sys.modules if "tqdm_logger" in n]:
                    del sys.modules[name]
            names = {"__name__": "example"}
            exec(compile(source, "example.py", "exec"), names)
        names["training"](rank)

    return training


def as_program(source: str, fork: bool = False):
    """A function that runs the example as the main program of a file, its worker processes forked if that is asked."""

    def program(rank=0):
        if fork:
            builtins.__IPYTHON__ = True  # then Ignite forks its processes
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "job.py")
            path.write_text(source)
            sys.argv, sys.path[0] = [str(path)], folder
            runpy.run_path(str(path), run_name="__main__")

    return program


def run_example(source: str) -> list[Outcome]:
    """What becomes of the example's ranks: two, or one for what a single process shows."""
    if "def training" in source:
        with tempfile.TemporaryDirectory() as folder:
            return run_training(source, in_ranks(source, folder))
    if "torchrun" in source:  # as torchrun starts it: two workers; each starts its own ranks at a port of its own
        program = as_program(source, fork=True)

        def worker(rank):
            if "nproc_per_node=2)" in source:
                os.environ.pop("TORCHELASTIC_USE_AGENT_STORE")
                os.environ["MASTER_PORT"] = str(free_port())
            program()

        return run_world(2, worker, init=None)
    on_two = ("rank = idist.get_rank()", "setup_logger", "local_rank\"", "print(\"rank\"", "local rank")
    if any(text in source for text in on_two):
        return run_world(2, as_program(source), init=None)
    environment = {"MASTER_PORT": str(free_port())}
    if "SLURM_" in source:
        environment |= task()
    return [run_serial(as_program(source), env=environment, limit=60)]


def run_training(source: str, training) -> list[Outcome]:
    """The same for an example that is a function for two ranks."""
    if "init_process_group" in source:
        return standing_alone(training)
    if "all_gather(large)" in source:  # one rank is aborted: no need for the other to wait for it
        return run_world(2, training, timeout=0.8)
    return standing(training, timeout=0.8)


def standing_alone(training) -> list[Outcome]:
    """The same for an example that makes its own group, whose hang no timeout ends."""
    try:
        stack = stuck(training, init=None, seconds=1.2)
    except AssertionError:
        return run_world(2, training, init=None)
    return [Outcome(0, error="RuntimeError", message="Timed out waiting", traceback="\n".join(
        reversed(stack.splitlines())))]


def observed(outcomes: list[Outcome]) -> list[str]:
    """What each rank did, in the words of the page; "" for a mere echo of another rank."""
    waited = {out.rank for out in outcomes if out.error and "Timed out" in out.message}
    return [one(out, bool(waited - {out.rank})) for out in outcomes]


def one(out: Outcome, other_waited: bool) -> str:
    """The same of one rank. Where another waited until its timeout, that closed the connection of this one, which
    waited as well, and whose own timeout would have come next."""
    if out.exit_code is not None and out.exit_code < 0:
        return f"rank {out.rank} is aborted"
    if out.error and ECHO.search(out.message):
        if ("by peer" in out.message or "Broken pipe" in out.message) and not other_waited:
            return ""
        frames = [m[1] for m in WAITING.finditer(out.traceback)]
        return f"rank {out.rank} waits in `{frames[-1]}`" if frames else ""
    if out.error:
        return f"rank {out.rank} `{out.error}: {out.message}`"
    lines = [line for line in out.output.splitlines() if line.strip() and " INFO: " not in line
             and "[c10d]" not in line and not line.startswith("\t")]
    return f"rank {out.rank} prints " + ", ".join(f"`{line}`" for line in lines) if lines else ""


def matches(happens: str, seen: list[str]) -> bool:
    """Each part of the sentence is what some rank did; … stands for anything."""
    if happens == "nothing is printed":
        return not any(seen)
    text = "; ".join(s for s in seen if s)
    return all(re.search(".*?".join(map(re.escape, part.split("…"))), re.sub(r"\s+", " ", text))
               for part in happens.split("; rank "))


def proof(name: str):
    @proves(f"{PAGE}#{name}")
    def rule(entry):
        row = check_script.RULES[name]
        seen = observed(run_example(row.wrong))
        assert matches(row.happens, seen), (
            f"{entry.entry.where}: the wrong example is to show\n    {row.happens}\nbut a run shows\n    {seen}")
        right = run_example(row.right)
        assert all(o.ok for o in right), f"{entry.entry.where}: the right example fails: {right}"
        still = observed(right)
        assert not matches(row.happens, still), f"{entry.entry.where}: the right one fails as the wrong one: {still}"
        entry.says(f"{check_script.sentence(name)} {row.why} Wrong On 2 ranks {row.happens}. Fix {row.fix}")
        entry.shows(row.wrong, 0)
        entry.shows(row.right, 1)

    rule.__name__ = name.replace("-", "_")


for _name in check_script.RULES:
    proof(_name)


@proves(f"{PAGE}#rules-of-check_scriptpy")
def opening(entry):
    rules = check_script.RULES
    kinds = [r.severity for r in rules.values()]
    assert set(kinds) == {"error", "warning"}
    entry.says(f"{len(rules)} rules, of which {kinds.count('error')} are errors")
    entry.says(" ".join(check_script.PAGE_HEAD.format(rules=len(rules), errors=kinds.count("error")).split("\n\n")[1:])
               .replace("[check_script.py](../scripts/check_script.py)", "check_script.py"))
    ranks = run_world(2, lambda rank: idist.get_world_size())
    entry.says(f"by each of {ranks[0].value} ranks of a gloo group")


@proves(f"{PAGE}#errors", f"{PAGE}#warnings")
def lists(entry):
    names = [n for n, r in check_script.RULES.items() if r.severity == entry.entry.anchor.rstrip("s")]
    entry.says(" · ".join(names))
    found = [e.heading for e in read_page(PAGE).entries if e.level == 3]
    assert [n for n in found if n in names] == names
