"""Proofs of the API reference of the handlers room: profilers, parameter and state schedulers, the finder."""

from __future__ import annotations

import io
import warnings

import ignite.handlers
import torch
from ignite.engine import Engine, Events
from ignite.handlers import (
    BasicTimeProfiler,
    BatchSizeScheduler,
    ConcatScheduler,
    CosineAnnealingScheduler,
    FastaiLRFinder,
    HandlersTimeProfiler,
    LambdaStateScheduler,
    LinearCyclicalScheduler,
    LRScheduler,
    ParamGroupScheduler,
    PiecewiseLinear,
    ReduceLROnPlateauScheduler,
    StepStateScheduler,
    create_lr_scheduler_with_warmup,
)
from probes import handlers as probe
from support.world import run_world, values
from torch import nn
from torch.optim import lr_scheduler as torch_lr
from torch.utils.data import DataLoader

from .api_reference import at, error, ticked

PARAMETER = ["LinearCyclicalScheduler", "LinearCyclicalScheduler, monotonic", "CosineAnnealingScheduler",
             "PiecewiseLinear"]  # fmt: skip
STATE = [name for name in probe.SIMULATED if "State" in name]


def lrs(make, event=Events.ITERATION_STARTED, n=5) -> str:
    return probe.listed(probe.seen(make, event, n))


def rising(o):
    return PiecewiseLinear(o, "lr", [(0, 0.0), (4, 0.4)])


# Time


@at("BasicTimeProfiler")
def basic_profiler(entry):
    profiler, engine = BasicTimeProfiler(), Engine(lambda e, b: e.terminate() if e.state.iteration == 2 else None)
    profiler.attach(engine)
    engine.run([1, 2, 3], max_epochs=2)
    results = profiler.get_results()
    assert len(profiler.processing_times) == 6 and profiler.processing_times[2:].sum() == 0
    entry.says(f"`get_results()` is a dict of {ticked(results)}, in seconds; `print_results(results)` prints it.")
    entry.says("Attach it before the run; it restarts with each run. Iterations that a stop left out are zeros"
               " and do not"
               " count in the statistics.")  # fmt: skip
    engine = Engine(probe.step)
    profiler = BasicTimeProfiler()
    profiler.attach(engine)
    text = error(engine.run, [1, 2], max_iters=1)
    entry.says(f"With `max_iters` instead of `max_epochs` it fails: `{text}`.")


@at("HandlersTimeProfiler")
def handlers_profiler(entry):
    profiler, engine = HandlersTimeProfiler(), Engine(probe.step)

    def slow(engine):
        pass

    engine.add_event_handler(Events.ITERATION_COMPLETED, slow)
    profiler.attach(engine)
    engine.add_event_handler(Events.ITERATION_COMPLETED, lambda e: None)
    engine.run([1, 2, 3], max_epochs=1)
    rows = profiler.get_results()
    assert "slow" in rows[0][0] and [r[0] for r in rows[-3:]] == ["Total", "Processing", "Dataflow"]
    assert len(rows) == 5
    entry.says("`get_results()` is a list with one row per handler and event, then `Total`, `Processing` and"
               " `Dataflow`;"
               " every handler that is there when the run starts is timed.")  # fmt: skip


# Parameter schedulers


@at("Parameter schedulers")
def parameter_schedulers(entry):
    entry.table(probe.simulated(PARAMETER))
    before, after = lrs(rising), lrs(rising, Events.ITERATION_COMPLETED)
    entry.says(
        f"Attach at `Events.ITERATION_STARTED`: the optimizer steps then use {before}. At `ITERATION_COMPLETED`"
        f" the first"
        f" step uses the optimizer's own learning rate and the rest lags by one: {after}."
    )
    o = probe.optimizer(0.5)
    scheduler = rising(o)
    assert o.param_groups[0]["lr"] == 0.5
    scheduler(None)
    first = o.param_groups[0]["lr"]
    entry.says(f"A scheduler sets nothing before its first event and then absolute values: {first:g} here, whatever the"
               " optimizer had.")  # fmt: skip
    engine = Engine(probe.step)
    typo = PiecewiseLinear(o, "lrr", [(0, 9.0)])
    typo.attach(engine)
    engine.run([1], max_epochs=1)
    assert o.param_groups[0]["lrr"] == 9.0 and o.param_groups[0]["lr"] == first
    entry.says("A misspelt `param_name` is no error: it adds a key to the groups, and the optimizer goes on as before.")
    later = rising(probe.optimizer())
    later.load_state_dict(scheduler.state_dict())
    other = PiecewiseLinear(fresh := probe.optimizer(0.3), "lr", [(0, 9.0), (1, 8.0)])
    other.load_state_dict(scheduler.state_dict())
    assert other.milestones == [0, 4] and fresh.param_groups[0]["lr"] == 0.3 and other.event_index == 1
    entry.says(
        "`state_dict()` holds the configuration too, so loading puts the old milestones, cycle sizes and values over"
        " those you passed; the learning rate itself changes at the next event only."
    )
    saver = PiecewiseLinear(probe.optimizer(), "lr", [(0, 1.0)], save_history=True)
    engine = Engine(probe.step)
    saver.attach(engine)
    engine.run([1, 2], max_epochs=1)
    assert "param_history" not in engine.state_dict()
    entry.says(f"`save_history=True` collects in `engine.state.param_history`, a value per group and event"
               f" (`{engine.state.param_history}`); it is not saved with the trainer.")  # fmt: skip

    def on_rank(rank):
        o = probe.optimizer()
        engine = Engine(probe.step)
        rising(o).attach(engine)
        engine.run([1, 2, 3], max_epochs=1)
        return o.param_groups[0]["lr"]

    first, second = values(run_world(2, on_rank))
    assert first == second
    entry.says("Several ranks: attach on every rank, each sets its own optimizer.")


@at("BaseParamScheduler")
def base_scheduler(entry):
    values_ = PiecewiseLinear.simulate_values(2, param_name="lr", milestones_values=[(0, 1.0)])
    entry.says(f"`simulate_values(num_events, …)` takes the constructor's arguments without the optimizer and gives"
               f" pairs of event and value, `{values_}`; `get_param()` is the value of the next event.")  # fmt: skip
    scheduler = rising(probe.optimizer())
    scheduler(None)
    assert scheduler.get_param() == 0.1


@at("ParamScheduler")
def param_scheduler(entry):
    o = probe.optimizer(0.1, groups=2)
    PiecewiseLinear(o, "lr", [(0, 1.0)])(None)
    both = [g["lr"] for g in o.param_groups]
    PiecewiseLinear(o, "lr", [(0, 5.0)], param_group_index=1)(None)
    one = [g["lr"] for g in o.param_groups]
    assert both == [1.0, 1.0] and one == [1.0, 5.0]
    entry.says("Without `param_group_index` every group gets the same value; with it, that group alone.")
    engine = Engine(probe.step)
    assert rising(o).attach(engine) is None
    entry.says("`attach` returns `None`. New in 0.5.4; before, `add_event_handler(event, scheduler)`, which still"
               " works.")


@at("CyclicalScheduler")
def cyclical(entry):
    args = dict(param_name="lr", start_value=1.0, end_value=0.0, cycle_size=4)
    cosine = [v for _, v in CosineAnnealingScheduler.simulate_values(5, **args)]
    entry.says(
        f"It is a cycle: `CosineAnnealingScheduler` with `cycle_size=4` is back at {cosine[-1]:g} at call 5, so"
        f" give the"
        " number of all events (epochs times batches) for a single decay; `end_value` itself is never reached, the last"
        f" value is {cosine[3]:.4g}."
    )
    assert min(cosine) == cosine[3] > 0
    grown = [v for _, v in LinearCyclicalScheduler.simulate_values(10, **args, cycle_mult=2.0, monotonic=True)]
    shrunk = [v for _, v in LinearCyclicalScheduler.simulate_values(5, **args, start_value_mult=0.5, monotonic=True)]
    assert grown[4:6] == [1.0, 0.875] and shrunk[4] == 0.5
    entry.says("At each cycle's end its length and values are multiplied by `cycle_mult`, `start_value_mult` and"
               " `end_value_mult`.")  # fmt: skip


@at("LinearCyclicalScheduler")
def linear(entry):
    assert [v for _, v in LinearCyclicalScheduler.simulate_values(
        3, param_name="lr", start_value=0.0, end_value=1.0, cycle_size=4)] == [0.0, 0.5, 1.0]  # fmt: skip
    entry.says("Goes to `end_value` in the first half of a cycle and back in the second; `monotonic=True` jumps back.")


@at("CosineAnnealingScheduler")
def cosine(entry):
    entry.says("A half cosine from `start_value` towards `end_value`, then from the start again.")
    got = [v for _, v in CosineAnnealingScheduler.simulate_values(
        5, param_name="lr", start_value=1.0, end_value=0.0, cycle_size=4)]  # fmt: skip
    assert got[0] == got[4] == 1.0 and got[2] == 0.5


@at("PiecewiseLinear")
def piecewise(entry):
    got = [v for _, v in PiecewiseLinear.simulate_values(6, param_name="lr", milestones_values=[(2, 1.0), (4, 0.0)])]
    assert got == [1.0, 1.0, 1.0, 0.5, 0.0, 0.0]
    entry.says("Milestones count its events from 0. Before the first and after the last the value is constant.")


@at("ConcatScheduler")
def concat(entry):
    o = probe.optimizer()
    parts = [PiecewiseLinear(o, "lr", [(0, 1.0)]), PiecewiseLinear(o, "lr", [(0, 2.0)])]
    got = [v for _, v in ConcatScheduler.simulate_values(4, parts, [3])]
    assert got == [1.0, 1.0, 1.0, 2.0] and parts[0].event_index == 0
    entry.says("`durations` has one entry less than `schedulers`: the last runs on. All on one optimizer and"
               " parameter.")


@at("ParamGroupScheduler")
def groups(entry):
    o = probe.optimizer(groups=2)
    engine = Engine(probe.step)
    both = ParamGroupScheduler([PiecewiseLinear(o, "lr", [(0, 1.0)], param_group_index=0),
                                PiecewiseLinear(o, "lr", [(0, 2.0)], param_group_index=1)])  # fmt: skip
    engine.add_event_handler(Events.ITERATION_STARTED, both)
    engine.run([1], max_epochs=1)
    assert [g["lr"] for g in o.param_groups] == [1.0, 2.0]
    entry.says("Calls its schedulers in turn, one per parameter group. It is no `ParamScheduler` and has no"
               " `attach`: use"
               " `add_event_handler`.")  # fmt: skip
    assert not isinstance(both, ignite.handlers.ParamScheduler)


@at("LRScheduler")
def lr_scheduler(entry):
    rows = probe.torch_table()
    entry.table(rows)
    wrong = [name for name, by_hand, started, _ in rows[1:] if started != by_hand]
    right = [name for name, by_hand, started, _ in rows[1:] if started == by_hand]
    entry.says(
        "Wraps a scheduler of torch. It calls the scheduler's formula without its `step()`, and torch "
        f"{torch.__version__.split('+')[0]} has formulas that start from the learning rate already set: only"
        f" {', '.join(right)} give the values of plain torch at `ITERATION_STARTED`, the others are shifted or wrong."
    )
    assert len(wrong) + len(right) == len(probe.TORCH) and wrong
    entry.says(
        "Unless yours is one of those, step it yourself:"
        " `trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda: scheduler.step())`, and save the torch"
        " scheduler in the checkpoint."
    )
    scheduler = torch_lr.LinearLR(o := probe.optimizer(), 0.2, 1.0, 4)
    engine, used = Engine(lambda e, b: used.append(o.param_groups[0]["lr"]) or o.step()), []
    engine.add_event_handler(Events.ITERATION_COMPLETED, lambda: scheduler.step())
    engine.run(range(5), max_epochs=1)
    assert probe.listed(used) == probe.wrapped("LinearLR")[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        legacy = lrs(lambda o: LRScheduler(torch_lr.StepLR(o, 2, 0.5), use_legacy=True), Events.ITERATION_COMPLETED)
    assert legacy == probe.wrapped("StepLR")[1]
    entry.says("`use_legacy=True` starts one event later, to be attached at `ITERATION_COMPLETED`.")
    entry.says("`not verified here`: other releases of torch.")


@at("create_lr_scheduler_with_warmup")
def warmup(entry):
    make = lambda o: create_lr_scheduler_with_warmup(torch_lr.ExponentialLR(o, 0.5), 0.0, 3)  # noqa: E731
    before, after = lrs(make, n=6), lrs(make, Events.ITERATION_COMPLETED, n=6)
    cosine = lambda o: CosineAnnealingScheduler(o, "lr", 1.0, 0.0, 4)  # noqa: E731
    after_three = lrs(lambda o: create_lr_scheduler_with_warmup(cosine(o), 0.0, 3), n=7)
    assert after_three.split(", ")[2:] == lrs(cosine, n=5).split(", ")
    entry.says(
        "From `warmup_start_value` to `warmup_end_value` (default: the optimizer's learning rate) in `warmup_duration`"
        " events, both ends included, then the scheduler, whose first event is also the last of the warm-up. Start 0,"
        " 3 events, `ExponentialLR(optimizer, 0.5)`:"
        f" {before}."
    )
    entry.says(f"Attach at `ITERATION_STARTED`; at `ITERATION_COMPLETED` the first step is unwarmed: {after}.")
    o = probe.optimizer()
    make(o)
    assert o.param_groups[0]["lr"] == 1.0
    linear = lrs(lambda o: create_lr_scheduler_with_warmup(torch_lr.CosineAnnealingLR(o, 4), 0.0, 3), n=7)
    entry.says(f"A torch scheduler is wrapped in `LRScheduler`, with its faults: `CosineAnnealingLR(optimizer,"
               f" 4)` gives"
               f" {linear}.")  # fmt: skip
    own = lrs(lambda o: create_lr_scheduler_with_warmup(CosineAnnealingScheduler(o, "lr", 1.0, 0.0, 4), 0.0, 3), n=6)
    entry.says(f"With one of Ignite's, `CosineAnnealingScheduler(optimizer, 'lr', 1.0, 0.0, 4)`: {own}.")
    scheduler = make(probe.optimizer())
    assert isinstance(scheduler, ConcatScheduler)
    entry.says("Returns a `ConcatScheduler`; save it, not its parts. It takes no events in epochs: everything"
               " counts the"
               " events it is attached to.")  # fmt: skip


@at("ReduceLROnPlateauScheduler")
def plateau(entry):
    o = probe.optimizer()
    scheduler = ReduceLROnPlateauScheduler(o, "loss", factor=0.5, patience=1)
    evaluator, used = Engine(probe.step), []
    evaluator.state.metrics["loss"] = 1.0
    for _ in range(5):
        scheduler(evaluator)
        used.append(o.param_groups[0]["lr"])
    entry.says(
        "Attach it to the evaluator, at `COMPLETED`: it reads the metric of the engine it runs on."
        f" A loss of 1 throughout, `factor=0.5, patience=1`: {probe.listed(used)}."
    )
    floor = ReduceLROnPlateauScheduler(probe.optimizer(), "loss", min_lr=0.3).scheduler.min_lrs
    assert floor == [0]
    entry.says("`min_lr` without `param_group_index` is dropped in silence: the floor is 0.")
    entry.says("`trainer=` is where `save_history` writes; without it nothing is kept. Several ranks: the metric"
               " must be"
               " the same on all, or their learning rates part.")  # fmt: skip

    def on_rank(rank):
        o = probe.optimizer()
        scheduler = ReduceLROnPlateauScheduler(o, "loss", factor=0.5, patience=1, save_history=True)
        engine = Engine(probe.step)
        for i in range(4):
            engine.state.metrics["loss"] = 1.0 - rank * i / 10
            scheduler(engine)
        return o.param_groups[0]["lr"], hasattr(engine.state, "param_history")

    (first, kept), (second, _) = values(run_world(2, on_rank))
    assert first < second and not kept


@at("BatchSizeScheduler")
def batch_size(entry):
    loader, sizes = DataLoader(range(8), batch_size=2), []
    engine = Engine(lambda e, b: sizes.append(len(b)))
    BatchSizeScheduler(loader, lambda i: 2 * (i + 1)).attach(engine)
    engine.run(loader, max_epochs=2)
    assert loader.batch_size == 2 and engine.state.epoch_length == 4
    entry.says(
        f"Sets `loader.batch_sampler.batch_size` at `EPOCH_STARTED`; `loader.batch_size` still says"
        f" {loader.batch_size}."
        " The engine keeps the `epoch_length` it started with: 8 items, sizes 2 then 4, batches of"
        f" {', '.join(map(str, sizes))}, so the second epoch reads the data twice."
    )
    entry.says("Since 0.5.4.")


def found(lr=1e-4, end_lr=10.0, **kwargs):
    """A finder after a run on one weight, the module and optimizer, the run's end, and the engine after it."""
    torch.manual_seed(0)
    model = nn.Linear(1, 1)
    start = model.weight.item()
    o = torch.optim.SGD(model.parameters(), lr=lr)

    def update(engine, batch):
        o.zero_grad()
        loss = ((model(torch.ones(8, 1)) - 3) ** 2).mean()
        loss.backward()
        o.step()
        return loss.item()

    engine, finder = Engine(update), FastaiLRFinder()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with finder.attach(engine, {"model": model, "optimizer": o}, end_lr=end_lr, **kwargs) as trainer, probe.quiet():
            trainer.run(range(50), max_epochs=1)
            ran = (trainer.state.iteration, trainer.state.epoch)
    restored = model.weight.item() == start and o.param_groups[0]["lr"] == lr
    return finder, o, ran, restored, engine


@at("FastaiLRFinder")
def finder(entry):
    finder, o, ran, restored, engine = found()
    assert restored and engine.state.iteration == 0 and ran[0] < 50 and finder.lr_suggestion() > 1e-4
    finder.apply_suggested_lr(o)
    assert o.param_groups[0]["lr"] == finder.lr_suggestion()
    entry.says(
        "`with finder.attach(trainer, to_save={'model': model, 'optimizer': optimizer}) as t: t.run(loader)`. On"
        " leaving,"
        " the objects in `to_save` and the trainer are as they were; what is not in `to_save` keeps what it"
        " learned. Then"
        " `finder.apply_suggested_lr(optimizer)`: leaving alone sets nothing."
    )
    _, _, ran, _, _ = found(end_lr=1e-3, num_iter=100)
    entry.says(f"`num_iter=100` on 1 epoch of 50 runs {ran[1]} epochs. All other handlers of the trainer run as well,"
               " checkpoints and loggers among them: attach them afterwards.")  # fmt: skip

    def on_rank(rank):
        o = probe.optimizer(1e-4)
        engine, finder = Engine(lambda e, b: float(rank + 1)), FastaiLRFinder()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with finder.attach(engine, {"optimizer": o}) as trainer:
                trainer.run(range(2), max_epochs=1)
        return finder.get_results()["loss"][0]

    first, second = values(run_world(2, on_rank))
    assert first == second
    entry.says(f"Collective: each iteration sums the loss over all ranks, 1 and 2 give {first:g}, not the mean."
               f" Run it on"
               " every rank.")  # fmt: skip


# State schedulers


@at("State schedulers")
def state_schedulers(entry):
    entry.table(probe.simulated(STATE))
    scheduler = StepStateScheduler(1.0, 0.5, 2, "p", create_new=True)
    used = []
    engine = Engine(lambda e, b: used.append(e.state.p))
    scheduler.attach(engine)
    assert engine.state.p is None
    engine.run(range(4), max_epochs=1)
    assert used == [None, 1.0, 0.5, 0.5]
    entry.says(
        "They set `engine.state.<param_name>`, by default at `ITERATION_COMPLETED`, and count from 1. Until the first"
        f" event it is `None`, so the steps see {', '.join(f'`{u}`' for u in used)} with `initial_value=1.0, gamma=0.5,"
        " step_size=2`: attach at `ITERATION_STARTED` to have a value in the first step."
    )
    assert "p" not in engine.state_dict()
    engine.run(range(1), max_epochs=1)
    assert engine.state.p == 0.25 and scheduler.event_index == 5
    entry.says("Neither a new run nor the trainer's state resets or saves the value: save the scheduler.")


@at("StateParamScheduler")
def state_param(entry):
    engine = Engine(probe.step)
    engine.state.p = 7
    scheduler = StepStateScheduler(1.0, 0.5, 2, "p")
    scheduler.attach(engine)
    assert engine.state.p == 7
    engine.run([1], max_epochs=1)
    assert engine.state.p == 1.0
    entry.says("`create_new=True` insists that the attribute is new; without it an existing one is taken over at"
               " the first"
               " event.")  # fmt: skip


@at("LambdaStateScheduler")
def lambda_state(entry):
    scheduler = LambdaStateScheduler(lambda i: i, "p")
    assert "lambda_obj" in scheduler.state_dict()
    text = error(torch.save, scheduler.state_dict(), io.BytesIO())
    assert "Can't pickle " in text
    entry.says(f"Its function is in `state_dict()`: a lambda cannot be written to a checkpoint"
               f" (`{text.partition(': ')[2][:12]}"
               " …`); give an object of a class with `state_dict` and `load_state_dict`, or leave it out.")  # fmt: skip

    class Doubling:
        factor = 2

        def __call__(self, i):
            return i * self.factor

        def state_dict(self):
            return {"factor": self.factor}

        def load_state_dict(self, state):
            self.factor = state["factor"]

    torch.save(LambdaStateScheduler(Doubling(), "p").state_dict(), io.BytesIO())


def _values_of(name: str):
    @at(name)
    def proof(entry):
        cls = getattr(ignite.handlers, name)
        rows = {row[0]: row for row in probe.simulated([name])[1:]}
        formula = {
            "ExpStateScheduler": "`initial_value * gamma ** n` at the n-th event.",
            "StepStateScheduler": "`initial_value * gamma ** (n // step_size)` at the n-th event.",
            "MultiStepStateScheduler": "`initial_value * gamma ** m` where `m` milestones are at or below n, the n-th"
            " event.",
            "PiecewiseLinearStateScheduler": "Linear between milestones, constant before and after, counted from 1.",
        }[name]
        assert issubclass(cls, ignite.handlers.StateParamScheduler) and rows
        steps = [v for _, v in cls.simulate_values(6, **eval(f"dict(param_name='p', {probe.SIMULATED[name]})"))]
        wanted = {
            "ExpStateScheduler": [0.5**n for n in range(1, 7)],
            "StepStateScheduler": [0.5 ** (n // 2) for n in range(1, 7)],
            "MultiStepStateScheduler": [0.5 ** (n >= 2) for n in range(1, 7)],
            "PiecewiseLinearStateScheduler": [1.0, 0.5, 0.0, 0.0, 0.0, 0.0],
        }[name]
        assert steps == wanted
        entry.says(formula)

    return proof


for _name in STATE:
    if _name != "LambdaStateScheduler":
        _values_of(_name)
