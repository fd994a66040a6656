#!/usr/bin/env python3
# /// script
# requires-python = ">=3.9"
# dependencies = ["torch>=2.0", "pytorch-ignite>=0.4.13", "numpy"]
# ///
"""Does the installed ignite.engine behave as its pages say? Runs small engines and compares what they do.

Event order, filters, what run does with its arguments, the ways to stop, states saved and loaded, supervised steps, and
a training that is stopped, rebuilt from disk as new objects, and must end with the weights of one never stopped.
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts"))

import smoke_runner  # noqa: E402
from smoke_runner import check, expect, expect_raises  # noqa: E402

with smoke_runner.imports():
    import torch
    import torch._dynamo  # an optimizer's first step imports it: here once, not in every check
    from ignite.engine import (
        DeterministicEngine,
        Engine,
        EventEnum,
        Events,
        create_supervised_evaluator,
        create_supervised_trainer,
    )
    from ignite.engine.deterministic import ReproducibleBatchSampler, keep_random_state, update_dataloader
    from ignite.utils import manual_seed

STOPS = "references/api-reference.md#stopping"
ADDING = "references/api-reference.md#adding"
REMOVING = "references/api-reference.md#removing"
CUSTOM = "references/api-reference.md#custom-events"
TOOLS = "references/api-reference.md#tools"


def recorder(*names):
    """An engine, the list of the named events that it fires (default: all but exceptions), and that of its batches."""
    fired, batches = [], []
    engine = Engine(lambda engine, batch: batches.append(batch))
    for event in [Events[n] for n in names] or [e for e in Events if e.name != "EXCEPTION_RAISED"]:
        engine.add_event_handler(event, lambda *_, name=event.name, **__: fired.append(name))
    return engine, fired, batches


def on(engine, event, act):
    engine.add_event_handler(event, lambda engine: act(engine))


def problem():
    """Four batches of a regression with dropout; model and optimizer always start alike."""
    manual_seed(3)
    x = torch.randn(4, 8, 2)
    batches = [(b, b.sum(dim=1, keepdim=True)) for b in x]
    model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
    return batches, model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@check("Engine.run")
def _():
    """run reads the data it is given, once an epoch, and counts."""
    engine, _, batches = recorder()
    state = engine.run([7, 8, 9], max_epochs=2)
    expect("batches", batches, [7, 8, 9, 7, 8, 9])
    expect("iteration and epoch", [state.iteration, state.epoch], [6, 2])
    expect("the state is the engine's", state is engine.state, True)
    doubled = Engine(lambda engine, batch: batch * 2)
    expect("output", doubled.run([4]).output, 8)


@check("event_order", see="references/api-reference.md#events")
def _():
    """Events fire in the order that handlers rely on."""
    engine, fired, _ = recorder()
    engine.run([1], max_epochs=2)
    batch = ["GET_BATCH_STARTED", "GET_BATCH_COMPLETED", "ITERATION_STARTED", "ITERATION_COMPLETED"]
    again = [batch[0], "DATALOADER_STOP_ITERATION", *batch[1:]]
    expect("events", fired, ["STARTED", "EPOCH_STARTED", *batch, "EPOCH_COMPLETED",
                             "EPOCH_STARTED", *again, "EPOCH_COMPLETED", "COMPLETED"])


@check("event_order_without_data", see="references/api-reference.md#events", since="0.5.0")
def _():
    """Without data no event of a batch fires."""
    engine, fired, batches = recorder()
    engine.run(epoch_length=1)
    iteration = ["ITERATION_STARTED", "ITERATION_COMPLETED"]
    expect("events", fired, ["STARTED", "EPOCH_STARTED", *iteration, "EPOCH_COMPLETED", "COMPLETED"])
    expect("batches", batches, [None])


@check("run_rules", see="references/api-reference.md#enginerun")
def _():
    """How often run runs: new, finished, lengths, iterators."""
    engine, _, batches = recorder()
    engine.run([0, 1, 2], max_epochs=2)
    engine.run([0, 1, 2], max_epochs=3)
    expect("a larger max_epochs goes on", [len(batches), engine.state.epoch], [9, 3])
    engine.run([0, 1, 2], max_epochs=3)
    expect("a finished engine starts over", [len(batches), engine.state.iteration], [18, 9])
    engine, _, batches = recorder()
    engine.run(range(5), max_epochs=3, epoch_length=2)
    expect("a shorter epoch_length rotates the data", batches, [0, 1, 2, 3, 4, 0])
    engine, _, batches = recorder()
    state = engine.run(iter(range(3)), max_epochs=1)
    expect("length of an iterator", [state.epoch_length, len(batches)], [3, 3])
    expect_raises("no data", ValueError, "epoch_length should be provided", Engine(lambda e, b: None).run)
    expect_raises("empty data", ValueError, "zero size", Engine(lambda e, b: None).run, [])


@check("max_iters", see="references/api-reference.md#enginerun", since="0.5.5")
def _():
    """max_iters ends within an epoch, with TERMINATE and without EPOCH_COMPLETED."""
    engine, fired, batches = recorder("EPOCH_COMPLETED", "TERMINATE", "COMPLETED")
    engine.run([0, 1, 2], max_iters=4)
    expect("batches", batches, [0, 1, 2, 0])
    expect("events", fired, ["EPOCH_COMPLETED", "TERMINATE", "COMPLETED"])


@check("filters", see="references/api-reference.md#callableeventwithfilter")
def _():
    """every, once, before, after and event_filter choose the right iterations."""
    for kwargs, expected in (
        ({"every": 3}, [3, 6, 9, 12]), ({"once": [2, 5]}, [2, 5]), ({"once": 4}, [4]),
        ({"after": 4, "before": 8}, [5, 6, 7]), ({"event_filter": lambda engine, n: n in (1, 10)}, [1, 10]),
    ):
        seen = []
        engine = Engine(lambda engine, batch: None)
        on(engine, Events.ITERATION_STARTED(**kwargs), lambda e: seen.append(e.state.iteration))
        engine.run(range(12))
        expect(f"iterations of {list(kwargs)}", seen, expected)
    expect_raises("every=0", ValueError, "greater than zero", Events.STARTED, every=0)


@check("filters_every_after", see="references/api-reference.md#callableeventwithfilter", since="0.5.0")
def _():
    """every may be combined with before and after."""
    seen = []
    engine = Engine(lambda engine, batch: None)
    on(engine, Events.ITERATION_STARTED(every=3, after=4, before=11), lambda e: seen.append(e.state.iteration))
    engine.run(range(12))
    expect("iterations", seen, [5, 8])


@check("Engine.add_event_handler", see=ADDING)
def _():
    """Handlers get the engine if they take it, their arguments, and run in the order of adding."""
    got = []
    engine = Engine(lambda engine, batch: None)
    engine.add_event_handler(Events.STARTED, lambda: got.append("plain"))
    engine.add_event_handler(Events.STARTED, lambda e: got.append(e is engine))
    engine.add_event_handler(Events.STARTED, lambda e, x, y: got.append((x, y)), 1, y=2)
    engine.on(Events.STARTED | Events.COMPLETED)(lambda: got.append("list"))
    engine.run([0])
    expect("calls", got, ["plain", True, (1, 2), "list", "list"])
    expect_raises("a bad signature", ValueError, "takes parameters", engine.add_event_handler, Events.STARTED,
                  lambda a, b: None)


@check("Engine.remove_event_handler", see=REMOVING)
def _():
    """Handlers can be removed by function, by handle and by leaving a block."""
    got = []
    engine = Engine(lambda engine, batch: None)

    def handler():
        got.append(engine.state.iteration)

    engine.add_event_handler(Events.ITERATION_STARTED(every=2), handler)
    expect("has_event_handler", engine.has_event_handler(handler, Events.ITERATION_STARTED), True)
    engine.remove_event_handler(handler, Events.ITERATION_STARTED)
    expect("has_event_handler afterwards", engine.has_event_handler(handler), False)
    engine.add_event_handler(Events.STARTED, handler).remove()
    engine.run([0])
    expect("calls after removal", got, [])
    with engine.add_event_handler(Events.COMPLETED, handler):
        engine.run([0])
    engine.run([0])
    expect("calls in the block only", got, [1])


@check("Engine.register_events", see=CUSTOM)
def _():
    """Custom events fire, and count with an attribute of their own."""
    class Own(EventEnum):
        A = "a"

    seen = []

    def step(engine, batch):
        engine.state.count += 1
        engine.fire_event(Own.A)

    engine = Engine(step)
    expect_raises("unregistered", ValueError, "is not a valid event", engine.fire_event, Own.A)
    engine.register_events(*Own, event_to_attr={Own.A: "count"})
    engine.on(Own.A(every=2))(lambda: seen.append(engine.state.count))
    engine.run(range(5))
    expect("counts", seen, [2, 4])


@check("Engine.terminate", see=STOPS)
def _():
    """terminate ends the run after the handlers of the event, without EPOCH_COMPLETED."""
    engine, fired, batches = recorder("EPOCH_COMPLETED", "TERMINATE", "COMPLETED")
    on(engine, Events.ITERATION_COMPLETED(once=2), lambda e: e.terminate())
    engine.run([0, 1, 2], max_epochs=2)
    expect("batches", batches, [0, 1])
    expect("events", fired, ["TERMINATE", "COMPLETED"])
    engine.run([0, 1, 2], max_epochs=2)
    expect("the next run begins with the next epoch", batches, [0, 1, 0, 1, 2])


@check("Engine.terminate_skip_completed", see=STOPS, since="0.5.2")
def _():
    """skip_completed leaves out COMPLETED, skip_epoch_completed EPOCH_COMPLETED."""
    engine, fired, _ = recorder("TERMINATE", "COMPLETED")
    on(engine, Events.ITERATION_COMPLETED, lambda e: e.terminate(skip_completed=True))
    engine.run([0])
    expect("events", fired, ["TERMINATE"])
    engine, fired, _ = recorder("TERMINATE_SINGLE_EPOCH", "EPOCH_COMPLETED", "COMPLETED")
    on(engine, Events.ITERATION_COMPLETED, lambda e: e.terminate_epoch(skip_epoch_completed=True))
    engine.run([0])
    expect("events of an epoch", fired, ["TERMINATE_SINGLE_EPOCH", "COMPLETED"])


@check("Engine.terminate_epoch", see=STOPS)
def _():
    """terminate_epoch ends the epoch only; the next one starts the data again."""
    engine, fired, batches = recorder("TERMINATE_SINGLE_EPOCH", "EPOCH_COMPLETED", "COMPLETED")
    on(engine, Events.ITERATION_COMPLETED(once=1), lambda e: e.terminate_epoch())
    engine.run([0, 1, 2], max_epochs=2)
    expect("batches", batches, [0, 0, 1, 2])
    expect("events", fired, ["TERMINATE_SINGLE_EPOCH", "EPOCH_COMPLETED", "EPOCH_COMPLETED", "COMPLETED"])


@check("Engine.interrupt", see=STOPS)
def _():
    """An interrupted run returns; the next run goes on with the same data."""
    engine, fired, batches = recorder("STARTED", "INTERRUPT", "COMPLETED")
    on(engine, Events.ITERATION_COMPLETED(once=2), lambda e: e.interrupt())
    engine.run([0, 1, 2])
    expect("batches until the interruption", batches, [0, 1])
    engine.run([0, 1, 2])
    expect("batches in all", batches, [0, 1, 2])
    expect("events", fired, ["STARTED", "INTERRUPT", "COMPLETED"])


@check("exceptions", see="references/troubleshooting.md#an-error-vanished-and-the-training-went-on")
def _():
    """An exception leaves run, or goes to the handlers of EXCEPTION_RAISED."""
    def step(engine, batch):
        raise ValueError("boom")

    expect_raises("without a handler", ValueError, "boom", Engine(step).run, [0])
    seen = []
    engine = Engine(step)
    engine.on(Events.EXCEPTION_RAISED)(lambda engine, error: seen.append(str(error)))
    engine.run([0])
    expect("errors handled", seen, ["boom"])


@check("Engine.set_data")
def _():
    """set_data changes the data in the middle of an epoch."""
    engine, _, batches = recorder()
    on(engine, Events.ITERATION_COMPLETED(once=1), lambda e: e.set_data([8, 9]))
    engine.run([0, 1, 2])
    expect("batches", batches, [0, 8, 9])


@check("Engine.state_dict")
def _():
    """state_dict and load_state_dict carry the counters, the length, the end and keys of one's own."""
    engine, _, _ = recorder()
    engine.state_dict_user_keys.append("alpha")
    engine.state.alpha = 5
    engine.run([0, 1], max_epochs=2)
    expect("state", dict(engine.state_dict()), {"epoch_length": 2, "iteration": 4, "max_epochs": 2, "alpha": 5})
    other, _, batches = recorder()
    other.load_state_dict({"epoch": 2, "epoch_length": 2, "max_epochs": 3})
    other.run([0, 1])
    expect("after loading epoch 2 of 3", [batches, other.state.iteration, other.state.epoch], [[0, 1], 6, 3])
    expect_raises("a key is missing", ValueError, "absent", other.load_state_dict, {"iteration": 0, "max_epochs": 1})


@check("create_supervised_trainer")
def _():
    """One step of the trainer is one step of the optimizer on the gradient of the loss."""
    batches, model, _ = problem()
    model = model[0]
    x, y = batches[0][0], torch.ones(8, 8)
    before = model.weight.detach().clone()
    loss = torch.nn.functional.mse_loss(model(x), y)
    gradient, = torch.autograd.grad(loss, [model.weight])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    output = create_supervised_trainer(model, optimizer, torch.nn.functional.mse_loss).run([(x, y)]).output
    expect("loss", output, loss.item(), within=1e-6)
    expect("weights", model.weight, before - 0.5 * gradient, within=1e-6)
    expect("training mode", model.training, True)


@check("gradient_accumulation", see="references/api-reference.md#create_supervised_trainer")
def _():
    """Two accumulated batches make the step of one batch of both."""
    batches, model, _ = problem()
    results = []
    for data, steps in ((batches[:2], 2), ([tuple(torch.cat(parts) for parts in zip(*batches[:2]))], 1)):
        torch.manual_seed(1)
        linear = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(linear.parameters(), lr=0.5)
        loss = torch.nn.functional.mse_loss
        create_supervised_trainer(linear, optimizer, loss, gradient_accumulation_steps=steps).run(data)
        results.append(weights(linear))
    expect("weights", results[0], results[1], within=1e-6)


@check("create_supervised_evaluator")
def _():
    """The evaluator gives prediction and target, changes nothing and computes no gradient."""
    batches, model, _ = problem()
    before = weights(model)
    prediction, target = create_supervised_evaluator(model).run(batches).output
    expect("prediction", prediction, model(batches[-1][0]).detach(), within=1e-6)
    expect("target", target, batches[-1][1])
    expect("weights", weights(model), before)
    expect("gradient and training mode", [prediction.requires_grad, model.training], [False, False])


@check("resume_rebuilt", see="references/troubleshooting.md#the-training-starts-again-from-the-first-iteration",
       hint="a training that was stopped and rebuilt from disk ends with other weights than one never stopped")
def _():
    def build():
        batches, model, optimizer = problem()
        trainer = create_supervised_trainer(model, optimizer, torch.nn.functional.mse_loss)
        on(trainer, Events.GET_BATCH_STARTED, lambda e: manual_seed(100 + e.state.iteration))
        on(trainer, Events.EPOCH_COMPLETED, lambda e: optimizer.param_groups[0].update(lr=0.05 / 2**e.state.epoch))
        return batches, {"model": model, "optimizer": optimizer, "trainer": trainer}

    batches, whole = build()
    whole["trainer"].run(batches, max_epochs=3)
    for stop_after in (3, 4, 6, 11):
        batches, first = build()
        on(first["trainer"], Events.GET_BATCH_STARTED,
           lambda e: e.terminate() if e.state.iteration == stop_after else None)
        first["trainer"].run(batches, max_epochs=3)
        torch.save({name: thing.state_dict() for name, thing in first.items()}, "state.pt")
        expect("stopped after iteration", first["trainer"].state.iteration, stop_after)
        batches, second = build()
        for name, state in torch.load("state.pt").items():
            second[name].load_state_dict(state)
        done = second["trainer"].state.iteration % len(batches)
        rest = [batches[done:]]  # what the interrupted epoch has not seen, then whole epochs

        class Data:
            def __len__(self):
                return len(batches)

            def __iter__(self):
                return iter(rest.pop() if rest else batches)

        second["trainer"].run(Data(), max_epochs=3)
        expect(f"iterations, stopped after {stop_after}", second["trainer"].state.iteration, 12)
        expect(f"weights, stopped after {stop_after}", weights(second["model"]), weights(whole["model"]))


@check("DeterministicEngine")
def _():
    """Rebuilt at the end of an epoch, with the same seed, it brings the same batches and random numbers."""
    def loader():
        return torch.utils.data.DataLoader(torch.arange(8), batch_size=2, shuffle=True)

    def step(seen):
        return lambda engine, batch: seen.append((batch.tolist(), torch.rand(1).item()))

    whole, rest, saved = [], [], []
    engine = DeterministicEngine(step(whole))
    on(engine, Events.EPOCH_COMPLETED(once=1), lambda e: saved.append(e.state_dict()))
    manual_seed(5)
    engine.run(loader(), max_epochs=3)
    rebuilt = DeterministicEngine(step(rest))
    rebuilt.load_state_dict(saved[0])
    manual_seed(5)
    rebuilt.run(loader())
    expect("batches and random numbers after the first epoch", rest, whole[4:])
    expect("epochs differ", whole[:4] == whole[4:8], False)


@check("ReproducibleBatchSampler", see=TOOLS)
def _():
    """It repeats the batches of its sampler from start_iteration on; update_dataloader puts it into a loader."""
    loader = torch.utils.data.DataLoader(torch.arange(8), batch_size=2)
    new = update_dataloader(loader, ReproducibleBatchSampler(loader.batch_sampler, start_iteration=2))
    expect("batches", [b.tolist() for b in new], [[4, 5], [6, 7]])
    expect("batches of the next pass", len(list(new)), 4)


@check("keep_random_state", see=TOOLS)
def _():
    """Random numbers are as if the function had not run."""
    manual_seed(1)
    expected = torch.rand(1)
    manual_seed(1)
    keep_random_state(lambda: torch.rand(3))()
    expect("next random number", torch.rand(1), expected)


def main(argv=None):
    return smoke_runner.main(__name__, argv)


if __name__ == "__main__":
    smoke_runner.leave(main())
