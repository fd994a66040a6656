"""Proofs of the engine room's workflows.md: its prose. Programs and output are run by test_examples_run.py."""

from __future__ import annotations

import itertools
import re

import torch
from ignite.engine import Engine, Events, create_supervised_trainer
from support.claims import proves
from support.examples import find_examples
from support.pages import read_page

from .tools import BATCHES, FOLDER, counted, model_and_optimizer, mse, nothing, raised, seen_by, silent, when

PAGE = f"{FOLDER}/references/workflows.md"


def section(anchor: str):
    return proves(f"{PAGE}#{anchor}")


def program(entry) -> str:
    return next(f.text for f in entry.entry.fences if f.language == "python")


@section("workflows")
def introduction(entry):
    headings = [e.heading for e in read_page(PAGE).entries if e.level == 2]
    assert len(headings) == len(re.findall(r"(?m)^\[", read_page(PAGE).source))
    entry.says(" · ".join(headings))
    examples = [e for e in find_examples(PAGE) if e.name]
    assert examples and all(e.commands or any(o.commands for o in find_examples(PAGE) if o.group == e.group)
                            for e in examples)  # fmt: skip
    assert (entry.entry.page.parent.parent / "assets" / "resumable_trainer.py").exists()
    entry.says("Complete programs: copy the file, run the command, compare the output. For a training that survives "
               "being stopped, copy resumable_trainer.py.")  # fmt: skip


@section("train-and-validate")
def validate(entry):
    trainer, evaluator = Engine(nothing), Engine(nothing)
    when(trainer, Events.EPOCH_COMPLETED, lambda e: evaluator.run([1]))
    trainer.run([1, 2, 3])
    assert (trainer.state.iteration, evaluator.state.iteration) == (3, 1) and trainer.state is not evaluator.state
    assert re.search(r"trainer\.on\(.*\)\ndef \w+\(\):\n.*evaluator\.run", program(entry))
    entry.says("The evaluator runs in a handler of the trainer; each has a state of its own.")


@section("a-step-of-your-own")
def own_step(entry):
    step = "step(engine, batch)"
    scope = {}
    exec(f"def {step}:\n    return batch + 1", scope)
    assert Engine(scope["step"]).run([1]).output == 2
    entry.says(
        f"Any function {step} will do; custom events let handlers act inside it. This one clips gradients without "
        "touching the step."
    )
    assert "clip" not in program(entry).partition("def step")[2].partition("trainer =")[0]


@section("train-by-iterations")
def by_iterations(entry):
    engine, fired = counted(Events.EPOCH_COMPLETED, Events.TERMINATE, Events.COMPLETED)
    engine.run(itertools.count(), max_iters=5, epoch_length=3)
    assert fired == ["EPOCH_COMPLETED", "TERMINATE", "COMPLETED"]
    entry.says(
        f"A stream without an end: max_iters says when to stop, epoch_length how often {fired[0]} fires. The last "
        f"epoch is not complete, so it ends with {fired[1]}."
    )
    assert "max_iters=" in program(entry) and "epoch_length=" in program(entry)


@section("stop-and-finish-properly")
def stop(entry):
    later = []
    engine, fired = counted(Events.COMPLETED)
    when(engine, Events.STARTED, lambda e: e.terminate())
    when(engine, Events.STARTED, lambda e: later.append(1))
    engine.run([1])
    assert later == [1]
    entry.says(
        "terminate() takes effect when the handlers of the event have run. What has to happen at any end belongs on "
        f"{fired[0]}."
    )


@section("interrupt-and-look")
def look(entry):
    got, engine = seen_by(
        lambda e: e.run([1, 2, 3]), setup=lambda e: when(e, Events.ITERATION_COMPLETED(once=1), lambda e: e.interrupt())
    )
    assert got == [1]
    engine.run([1, 2, 3])
    assert got == [1, 2, 3]
    entry.says("For a notebook: interrupt() returns from run, and the next run goes on with the same data.")


@section("resume-exactly")
def resume(entry):
    """tests/test_engine_asset.py stops it in every iteration."""
    (shown,) = {
        t
        for e in find_examples(PAGE)
        if e.heading == entry.entry.heading
        for c in e.commands
        for t in re.findall(r"assets/(\w+)\.py", c.text)
    }
    source = entry.entry.page.parent.parent / "assets" / f"{shown}.py"
    assert source.name == "resumable_trainer.py"
    entry.says(
        "The asset takes the order of the data from the epoch and random numbers from the iteration; started again "
        "after a stop, it ends with the weights of a run that was never stopped."
    )


@section("accumulate-gradients-to-the-end")
def accumulate(entry):
    steps = []
    model, optimizer = model_and_optimizer()
    optimizer.register_step_post_hook(lambda *_: steps.append(1))
    create_supervised_trainer(model, optimizer, mse, gradient_accumulation_steps=3).run(BATCHES)
    assert len(steps) == 1 and isinstance(model, torch.nn.Linear)
    entry.says("The steps of the library drop an incomplete last group; here it counts.")


@section("save-on-an-error")
def on_error(entry):
    calls = []

    def engine(end):
        made = Engine(lambda engine, batch: 1 / batch)
        exec(f"def handler(error):\n    calls.append(1)\n    {end}", scope := {"calls": calls})
        made.on(Events.EXCEPTION_RAISED)(scope["handler"])
        return made

    with silent():
        assert engine("pass").run([0, 1], max_epochs=2).epoch == 2
        calls.clear()
        raised(engine("raise error").run, [0, 1])
    assert len(calls) == 2 and Engine(nothing)
    entry.says("The handler must raise, or the training goes on; it is then called twice, so it must bear that.")
