"""Proofs of api-reference.md: for each entry the sentences that runs of the library make."""

from __future__ import annotations

import inspect
import math
import warnings
from unittest.mock import patch

import ignite
import ignite.distributed as idist
import ignite.metrics as m
import numpy as np
import sklearn
import torch
from ignite.engine import Engine, Events
from ignite.metrics import fairness, regression
from ignite.metrics import metric as metric_module
from ignite.metrics.gan import fid
from ignite.metrics.gan import utils as gan
from probes import metrics as probe
from support.claims import proves
from support.pages import read_page
from support.world import run_world, values

from .facts import REFERENCE, T, engine, error, of, one, quietly, ran, seen

BINARY = [(T([1, 1]), T([1, 1])), (T([0, 0]), T([1, 1])), (T([1]), T([0]))]  # right 2 of 2, 0 of 2, 0 of 1
WRITTEN = "batches with 2 of 2, 0 of 2 and 0 of 1 right"
HAS_SCORES = (T([[0.9, 0.1, 0.0], [0.2, 0.7, 0.1]]), T([0, 1]))


def known(name: str):
    return probe.values()[name]


@of("ignite.metrics API reference")
def intro():
    return (
        f"Measured on pytorch-ignite {ignite.__version__}, torch {torch.__version__.split('+')[0]} and scikit-learn"
        f" {sklearn.__version__}, CPU, `gloo`; every metric's number is compared with one that numpy or scikit-learn"
        " gives, on one process and on two."
    )


@of("ignite.metrics API reference")
def common_arguments():
    a = m.Accuracy()
    assert a._output_transform(3) == 3 and a._device == torch.device("cpu") and a._skip_unrolling is False
    moved = m.Loss(torch.nn.functional.mse_loss, device="meta")
    assert moved._sum.device.type == "meta"
    return (
        "Most take `output_transform` (from `engine.state.output` to what `update` takes), `device` (where the sums are"
        " kept, default `cpu`; the inputs stay where they are) and `skip_unrolling`."
    )


@of("Metric")
def mapping():
    def run(output):
        e = Engine(lambda e, b: output)
        m.Accuracy().attach(e, "m")
        return e.run([0]).metrics["m"]

    assert run({"y_pred": T([1]), "y": T([1]), "more": 0}) == 1.0
    keys = m.Accuracy.required_output_keys
    return (
        f"An output that is a dict is reduced to `required_output_keys`, `{keys}`; further keys are ignored, a missing"
        f" one is {error(run, {'pred': T([1]), 'y': T([1])})}."
    )


@of("Metric")
def no_mapping():
    none = sorted(n for n in m.__all__ if getattr(getattr(m, n), "required_output_keys", 0) is None)
    assert none == ["Average", "GeometricAverage", "RunningAverage", "VariableAccumulation"]
    return (
        "Where it is `None` (" + ", ".join(f"`{n}`" for n in none) + ") a dict is "
        f"{error(ran, m.Average(), [{'loss': 1.0}])}."
    )


@of("Metric")
def unrolling():
    lists = ([T([1]), T([0])], [T([1]), T([1])])
    calls = []

    class Watched(m.Accuracy):
        def update(self, output):
            calls.append(output)
            super().update(output)

    ran(Watched(output_transform=lambda o: lists), [0])
    assert len(calls) == 2 and calls[0][0].shape == (1, 1)
    wrong = error(ran, m.Accuracy(), [([T([1]), T([0])], [T([1])])])
    return (
        "Two lists of tensors or numbers are taken apart: `update` is called once per pair, each with a batch dimension"
        f" of 1 added; lists of unequal length: {wrong}. `skip_unrolling=True` passes them on whole."
    )


@of("Metric")
def names():
    group = lambda: m.MetricGroup({"acc": m.Accuracy(), "loss": m.Average(output_transform=lambda o: 1.0)})
    assert set(ran(group(), BINARY)) == {"acc", "loss", "m"}
    clash = error(ran, group(), BINARY, name="acc")
    return (
        "A dict as result is written both under its keys and, whole, under the name (`metrics_result_mode='both'`);"
        f" `'flatten'` and `'named'` write one of the two. A key that is the name: {clash}."
    )


@of("Metric")
def scalars():
    got = {
        n: type(v).__name__
        for n, v in quietly(lambda: _raw(m.Precision(), BINARY) | _raw(m.Accuracy(), BINARY, "a")).items()
    }
    assert got == {"m": "float", "a": "float"}
    p = m.Precision()
    p.update(BINARY[0])
    return (
        "A 0-dim tensor arrives in `state.metrics` as a Python number, others as a tensor on the CPU; `compute` itself"
        f" returns what the metric returns (`Precision` a {type(p.compute()).__name__})."
    )


def _raw(metric, batches, name="m"):
    e = engine()
    metric.attach(e, name)
    return e.run(batches).metrics


@of("Metric")
def attach_detach():
    e, a = engine(), m.Accuracy()
    a.attach(e, "m", usage="batch_wise")
    a.detach(e)
    assert not a.is_attached(e) and a.is_attached(e, "batch_wise")
    return (
        "`detach` and `is_attached` need the usage that `attach` had. After `attach(…, usage='batch_wise')` a plain"
        f" `detach(engine)` takes away only `update`; the next run ends with {error(e.run, BINARY)}."
    )


@of("Metric")
def detach_keeps_value():
    e, a = engine(), m.Accuracy()
    a.attach(e, "m")
    e.run(BINARY)
    a.detach(e)
    assert "m" in e.run(BINARY).metrics
    return "`detach` leaves the last value in `state.metrics`, also through the next `run`."


@of("Metric")
def arguments():
    return (
        f"{error(m.Accuracy, output_transform=3)} · {error(m.Accuracy, device='xla')} ·"
        f" {error(m.MetricsLambda, lambda x: x, metrics_result_mode='x')}"
    )


@of("Metric")
def usages_wrong():
    return f"{error(m.Accuracy().attach, engine(), 'm', 'foo')} · {error(m.Accuracy().attach, engine(), 'm', 3)}"


@of("Metric")
def operators():
    a = m.Accuracy()
    for value in (a + 1, 1 + a, a - 1, 1 - a, a * 2, 2 * a, a / 2, 2 / a, a // 2, a**2, 2**a, a % 2, a[0], a.item()):
        assert isinstance(value, m.MetricsLambda)
    return (
        "`+ - * / **` from both sides, `//`, `%` and `[…]` with the metric on the left, and any method call make a"
        f" `MetricsLambda`; {error(lambda: -a)}, {error(lambda: 7 // a)}."
    )


@of("Metric")
def misspelt():
    a = m.Accuracy()
    assert hasattr(a, "anything") and isinstance(a.update_all(1), m.MetricsLambda)
    half = a.item_()
    half.update(BINARY[0])
    text = error(half.compute)[1:]
    assert text.startswith(
        "AttributeError: Metric result of type '<class 'float'>' has no attribute 'item_'. Note: 'item_'"
    )
    return (
        "So `hasattr` is true for any name, and a misspelt method is noticed only at `compute`: `AttributeError: Metric"
        " result of type '<class 'float'>' has no attribute 'item_'. Note: 'item_' was accessed on the metric at: …`"
    )


@of("Metric")
def state_dicts():
    a = m.Accuracy()
    key = next(iter(a.state_dict()))
    assert len(a.state_dict()[key]) == idist.get_world_size() == 1
    return (
        f"`state_dict` is collective: under its one key `{key}` it holds a list with the state of every rank, so it"
        " loads only in a world of the same size."
    )


@of("Metric")
def state_errors():
    a, two = m.Accuracy(), m.Accuracy().state_dict()
    key = next(iter(two))
    two[key] = two[key] * 2

    class Bad(m.Average):
        _state_dict_all_req_keys = ("nothing",)

    class Worse(m.Average):
        _state_dict_all_req_keys = ("text",)

        def reset(self):
            super().reset()
            self.text = object()

    odd = m.Accuracy().state_dict()
    odd[key][0]["_num_examples"] = "text"

    class Written(Worse):
        def reset(self):
            super().reset()
            self.text = "a"

    assert error(Written().state_dict).startswith("`RecursionError")
    return (
        f"{error(a.load_state_dict, 3)} · {error(a.load_state_dict, {})} · {error(a.load_state_dict, two)} ·"
        f" {error(Worse().state_dict)} (an attribute that is a str: `RecursionError`) · {error(Bad().state_dict)} ·"
        f" {error(a.load_state_dict, odd)}"
    )


RESTORED: dict[str, str] = {}


def restored(name: str) -> str:
    """What becomes of a metric whose state after two batches is loaded into a new one that then sees the third."""
    make, data = probe.SAMPLES[name]
    batches = probe.cut(data)
    try:
        state = probe.fed(name, batches[:2]).state_dict()
    except TypeError:
        return "TypeError on saving"
    fresh = make()
    try:
        fresh.load_state_dict(state)
    except Exception as e:
        return f"{type(e).__name__} on loading"
    rest = [(x,) for x in batches[2][0]] if probe.one_by_one(name) else batches[2:]
    value = probe.plain(probe.feed(fresh, rest).compute())
    return "exact" if probe.close(value, known(name)) else "wrong, silently"


def by_restoring() -> dict[str, list[str]]:
    if not RESTORED:
        RESTORED.update({name: quietly(lambda: restored(name)) for name in probe.SAMPLES})
    found: dict[str, list[str]] = {}
    for name, how in RESTORED.items():
        found.setdefault(how, []).append(name)
    return found


@of("Saving and restoring")
def restoring():
    found = by_restoring()
    listed = lambda how: ", ".join(f"`{n}`" for n in found.pop(how))
    cured = sum(map(len, found.values()))
    text = (
        f"Of {cured} metrics here, saved after two of three batches and loaded into a new metric that takes the third,"
        f" {len(found['exact'])} give the same number. Not so: {listed('wrong, silently')} (a wrong number, no error);"
        f" {listed('ValueError on loading')} (`ValueError` on loading: they keep a list of the batches);"
        f" {listed('TypeError on saving')} (`TypeError` on saving, since their arguments are no numbers)."
    )
    assert set(found) == {"exact"}, found
    return text


def bullets(usage: str):
    """Value seen after each of 3 iterations of 2 epochs, and at their ends."""
    return (
        quietly(lambda: seen(m.Accuracy(), BINARY, 2, usage=usage)),
        quietly(lambda: seen(m.Accuracy(), BINARY, 2, Events.EPOCH_COMPLETED, usage=usage)),
    )


USAGES = ["EpochWise", "RunningEpochWise", "BatchWise", "RunningBatchWise", "SingleEpochRunningBatchWise"]


def usage_rows() -> list[list[str]]:
    rows = [["usage", "reset", "update", "compute", "after each iteration", "at the end of each epoch"]]
    for usage in (*[getattr(metric_module, n)() for n in USAGES], m.BatchFiltered(every=2)):
        iterations, epochs = bullets(usage)
        events = (usage.STARTED, usage.ITERATION_COMPLETED, usage.COMPLETED)
        written = f"`'{usage.usage_name}'`" if hasattr(usage, "usage_name") else "`BatchFiltered(every=2)`"
        if not hasattr(usage, "usage_name"):
            assert usage.ITERATION_COMPLETED.filter is not None
        cells = [f"`{e.name}`" for e in events]
        halves = ", ".join(map(str, iterations[:3])) + "; " + ", ".join(map(str, iterations[3:]))
        rows.append([written, *cells, f"`{halves}`", f"`{', '.join(map(str, epochs))}`"])
    return rows


@proves(f"{REFERENCE}#usages")
def usages(entry):
    entry.table(usage_rows())
    assert all(getattr(metric_module, n)().usage_name in cell for n, (cell, *_) in zip(USAGES, usage_rows()[1:]))
    entry.says("`attach(…, usage='epoch_wise')` is `attach(…, usage=EpochWise())`, the default, and so on.")
    entry.says(f"Measured: `Accuracy`, two epochs of three {WRITTEN}.")
    assert seen(m.Accuracy(), BINARY, 2, Events.EPOCH_COMPLETED, usage="running_epoch_wise") == [0.0, 0.0]
    entry.says(
        "`'running_epoch_wise'` calls `update` once per epoch, with the output of its last batch: it is for outputs"
        " that"
        " themselves stand for the epoch, not a mean over the batches."
    )
    shown = seen(m.Accuracy(), BINARY, 2, Events.EPOCH_COMPLETED, usage=m.BatchFiltered(every=2))
    assert shown[0] == 0.0
    entry.says("`BatchFiltered` counts iterations over the whole run: here the 2nd, then the 4th and 6th.")
    both = ran_both()
    assert both == {"epoch": 0.0, "batch": 0.0}, both
    entry.says(
        "One metric object with two usages gives wrong numbers under both names: `'batch_wise'` resets what the epoch"
        " has"
        f" gathered and `update` is registered once (here `{both}`). Make two objects."
    )


def ran_both():
    e, a = engine(), m.Accuracy()
    a.attach(e, "epoch")
    a.attach(e, "batch", usage="batch_wise")
    return dict(e.run(BINARY).metrics)


@of("Usages")
def usage_base():
    assert issubclass(m.EpochWise, m.MetricUsage)
    u = m.MetricUsage(Events.STARTED, Events.COMPLETED, Events.ITERATION_COMPLETED(every=2))
    e, a = engine(), m.Accuracy()
    a.attach(e, "m", usage=u)
    value = round(e.run(BINARY, max_epochs=2).metrics["m"], 4)
    return (
        "A usage of your own: the event to reset at, the one to compute at and the one to update at, as in"
        f" `MetricUsage(Events.STARTED, Events.COMPLETED, Events.ITERATION_COMPLETED(every=2))` ({value} here)."
    )


@of("Usages")
def batch_filtered():
    assert seen(m.Accuracy(), BINARY, 1, Events.EPOCH_COMPLETED, usage=m.BatchFiltered(once=1)) in ([1.0], [None])
    fallback = error(ran, m.Accuracy(), BINARY, usage=m.BatchFiltered(every=100))
    return (
        "Takes the filters of `Events.ITERATION_COMPLETED(…)`. Reset and compute are those of the epoch, so an epoch"
        f" without a batch that passes ends with {fallback}."
    )


@of("sync_all_reduce")
def sync():
    class Mine(m.Average):
        @m.metric.sync_all_reduce("_no")
        def compute(self): ...

    class Op(m.Average):
        @m.metric.sync_all_reduce("num_examples:MEAN")
        def compute(self): ...

    class Listed(m.Average):
        def reset(self):
            super().reset()
            self.seen_values = []

        @m.metric.sync_all_reduce("seen_values")
        def compute(self): ...

    @m.metric.sync_all_reduce("x")
    def alone(self): ...

    with patch.object(idist, "get_world_size", lambda: 2):
        texts = [error(c.compute) for c in (Mine(), Op(), Listed())]
    assert Mine().compute() is None and Op().compute() is None
    missing = texts[0].replace(str(Mine), "…")
    return (
        "Around `compute`: each attribute is replaced by its sum over the ranks (`'name:MAX'`, `MIN`, `PRODUCT`,"
        " `SUM`),"
        " and put back afterwards. In a world of one nothing is looked at, so these show only on two ranks:"
        f" {missing} · {texts[1]} · {texts[2]} ·"
        f" {error(alone, 3).replace('ignite.metric.Metric', '…')} (that one always)."
    )


@of("reinit__is_reduced")
def reinit():
    e = m.EpochMetric(lambda p, y: float(len(p)))
    first = one(e, (T([1.0]), T([1.0])))
    second = one(e, (T([1.0]), T([1.0])))
    assert (first, second) == (1.0, 2.0)
    return (
        "Around `reset` and `update`: forgets a cached `_result`. Without it a class that caches its result as"
        " `EpochMetric` does would return the old one."
    )


@of("MetricsLambda")
def lambda_():
    a = m.Accuracy()
    percent = (1 - a) * 100
    assert one(percent, BINARY[0], BINARY[1]) == 50.0
    twice = a + a
    twice.reset()
    twice.update(BINARY[0])
    return (
        "`update` and `reset` go to every metric among the arguments, once per place: in `a + a` one batch of 2"
        " counts as"
        f" {a._num_examples} in `a`. When attached each is updated once."
    )


@of("MetricsLambda")
def lambda_modes():
    p, r = m.Precision(), m.Recall()
    f = p + r
    f.attach(engine(), "f")
    g = m.Precision() + m.Recall()
    g.update(BINARY[0])
    return f"Attached or fed by hand, not both: {error(f.update, BINARY[0])} · {error(g.attach, engine(), 'g')}"


@of("MetricsLambda")
def lambda_detach():
    e, p, r = engine(), m.Precision(), m.Recall()
    f = p + r
    f.attach(e, "f")
    f.detach(e)
    assert e.has_event_handler(p.iteration_completed) and "f" not in e.run(BINARY).metrics and p._updated
    return "`detach` stops the value; the metrics it is made of stay on the engine and go on counting."


@of("MetricGroup")
def group():
    doubled = lambda o: (1 - o[0], o[1])
    g = m.MetricGroup({"a": m.Accuracy(), "b": m.Accuracy(output_transform=doubled)}, output_transform=lambda o: o)
    got = one(g, BINARY[0])
    assert got == {"a": 1.0, "b": 0.0}
    assert "device" not in inspect.signature(m.MetricGroup).parameters
    return (
        f"One handler for several metrics; the group's `output_transform` first, then each metric's own (`{got}`)."
        " A dict as output is reduced to `y_pred` and `y` before they see it; lists are taken apart unless"
        " `skip_unrolling=True` is given to the group."
    )


@of("RunningAverage")
def running():
    numbers = quietly(lambda: seen(m.RunningAverage(output_transform=lambda x: x, alpha=0.5), [0.0, 4.0, 4.0], 2))
    assert numbers == [0.0, 2.0, 3.0, 1.5, 2.75, 3.375]
    default = inspect.signature(m.RunningAverage).parameters["alpha"].default
    assert default == 0.98
    return (
        f"`value = alpha * value + (1 - alpha) * new`, starting with the first one; `alpha` is {default}, so the first"
        " value fades over some hundred iterations. It goes on over the epochs: with `alpha=0.5` the outputs 0, 4, 4"
        " give"
        f" `{', '.join(map(str, numbers[:3]))}`, then `{', '.join(map(str, numbers[3:]))}`; with"
        " `usage='single_epoch_running_batch_wise'` each epoch starts anew."
    )


@of("RunningAverage")
def running_source():
    e, a = engine(), m.Accuracy()
    a.attach(e, "acc")
    m.RunningAverage(a).attach(e, "smooth")
    return (
        "With a metric as `src` it computes and resets it in every iteration: give it one of its own. If that metric is"
        f" attached as well, the run ends with {error(e.run, BINARY)}."
    )


@of("RunningAverage")
def running_ranks():
    def main(rank):
        r = m.RunningAverage(output_transform=lambda x: x)
        r.update([0.0, 3.0][rank])
        return r.compute()

    both = values(run_world(2, main))
    assert both == [1.5, 1.5]
    return (
        "On several ranks it communicates in every iteration, in `update` (an output) or `compute` (a metric): a rank"
        " with"
        f" fewer iterations leaves the others waiting. An output is averaged over the ranks, 0.0 and 3.0 give"
        f" {both[0]},"
        " without weights for the sizes of the batches."
    )


@of("RunningAverage")
def running_errors():
    acc = m.Accuracy()
    return (
        f"{error(m.RunningAverage, 3)} · {error(m.RunningAverage, acc, alpha=0.0)} ·"
        f" {error(m.RunningAverage, acc, output_transform=len)} · {error(m.RunningAverage, acc, device='cpu')} ·"
        f" {error(m.RunningAverage)}"
    )


@of("RunningAverage")
def running_deprecated():
    import warnings

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        m.RunningAverage(m.Accuracy(), epoch_bound=True)
    text = " ".join(str(caught[0].message).replace("`", "").split())
    assert "deprecated" in text
    return f"With `epoch_bound`: `UserWarning: {text}`"


@of("Average")
def average():
    vector, batch = one(m.Average(), T([1.0, 2.0, 3.0])), one(m.Average(), T([[1.0], [2.0], [3.0]]))
    assert vector == [1.0, 2.0, 3.0] and batch == [2.0]
    return (
        f"A number is one sample; so is a 1-dim tensor: the losses of a batch, `T([1., 2., 3.])`, give `{vector}`, not"
        f" their mean. Give `loss.mean()` per batch (unweighted), or shape `(N, 1)`: `{batch}`."
        f" {error(m.Average().update, 'a')}"
    )


@of("GeometricAverage")
def geometric():
    assert one(m.GeometricAverage(), 2.0, 8.0) == 4.0 and one(m.GeometricAverage(), 0.0, 8.0) == 0.0
    return (
        f"Of 2 and 8: {one(m.GeometricAverage(), 2.0, 8.0)}; a negative number gives {one(m.GeometricAverage(), -1.0)}."
    )


@of("VariableAccumulation")
def accumulation():
    empty = probe.plain(m.VariableAccumulation(lambda a, x: a + x).compute())
    return (
        f"Returns `(accumulator, num_examples)`; without data `{tuple(empty)}`, no error. The ranks' accumulators are"
        f" summed whatever `op` does. {error(m.VariableAccumulation, 3)}"
    )


@of("Loss")
def loss():
    mean = one(m.Loss(torch.nn.functional.mse_loss), (T([1.0, 2.0]), T([0.0, 0.0])), (T([1.0]), T([0.0])))
    assert mean == 2.0
    summed = one(m.Loss(torch.nn.MSELoss(reduction="sum")), (T([1.0, 2.0]), T([0.0, 0.0])))
    return (
        "`loss_fn` must return the mean of the batch; it is weighted by `batch_size(y)`, by default `len`. A sum is not"
        f" noticed (5.0 for a batch of 2 gives {summed}); a vector is"
        f" {error(m.Loss(torch.nn.MSELoss(reduction='none')).update, (T([1.0, 2.0]), T([0.0, 0.0])))}"
    )


@of("Loss")
def loss_ignored():
    cross = lambda p, y: torch.nn.functional.cross_entropy(p, y, ignore_index=-1)
    logits = T([[2.0, 0.0], [0.0, 2.0]])
    got = one(m.Loss(cross), (logits, T([0, -1])), (logits, T([1, 1])))
    counted = one(m.Loss(cross, batch_size=lambda y: int((y >= 0).sum())), (logits, T([0, -1])), (logits, T([1, 1])))
    true = probe.plain(cross(torch.cat([logits, logits]), T([0, -1, 1, 1])))
    assert counted == true != got
    return (
        f"With `ignore_index` the ignored samples still weigh: {got} instead of {true}. Pass"
        " `batch_size=lambda y: int((y >= 0).sum())` or the like."
    )


@of("Loss")
def loss_keys():
    e = Engine(lambda e, b: {"y_pred": b[0], "y": b[1]})
    m.Loss(torch.nn.functional.mse_loss).attach(e, "m")
    return f"A dict as output needs a third key: {error(e.run, [(T([1.0]), T([1.0]))])}."


@of("EpochMetric")
def epoch_metric():
    import warnings

    e = m.EpochMetric(lambda p, y: 1 / 0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        e.update((T([1.0]), T([1.0])))
    text = " ".join(str(caught[0].message).replace("`", "").split())
    assert isinstance(caught[0].message, m.epoch_metric.EpochMetricWarning)
    return (
        "Keeps every prediction and target on `device` (default the CPU) until the epoch ends; `compute_fn(y_pred, y)`"
        " runs on rank 0, the others are sent its number. With `check_compute_fn=True` it is tried on the first batch;"
        f" what it raises there is only a warning, `EpochMetricWarning: {text}`, and is raised at `compute`."
    )


@of("EpochMetric")
def epoch_errors():
    metric = m.EpochMetric(lambda p, y: 0.0)
    metric.update((T([1.0]), T([1.0])))
    return (
        f"{error(metric.update, (torch.ones(2, 2, 2), T([1.0])))} ·"
        f" {error(metric.update, (T([1.0]), torch.ones(1, 1, 1)))}"
        f" · {error(metric.update, (T([1]), T([1.0])))} · {error(metric.update, (T([1.0]), T([1])))} ·"
        f" {error(m.EpochMetric, 3)}"
    )


@of("EpochMetric")
def epoch_broadcast():
    def main(rank):
        e = m.EpochMetric(lambda p, y: 16777217)
        e.update((T([1.0]), T([1.0])))
        return e.compute()

    got = values(run_world(2, main))
    assert got == [16777216.0] * 2
    return f"The number travels as float32: 16777217 arrives as {got[1]} on every rank, the first included."


@of("EpochMetric")
def epoch_warning():
    assert issubclass(m.epoch_metric.EpochMetricWarning, UserWarning)
    return "`ignite.metrics.epoch_metric.EpochMetricWarning` is a `UserWarning`."


@of("Frequency")
def frequency():
    e = engine()
    m.Frequency(output_transform=lambda o: 10).attach(e, "rate")
    assert isinstance(e.run([0] * 4).metrics["rate"], int)
    return (
        "`output_transform` gives how many samples or tokens the output stands for; the value is an int per second"
        " since"
        " the epoch began, of all ranks together, written in each iteration (a collective in each)."
        f" By hand, `compute` before `update`: {error(m.Frequency().compute)}."
    )


@of("Frequency")
def frequency_attach():
    parameters = list(inspect.signature(m.Frequency.attach).parameters)
    assert parameters[-1] == "event_name"
    return "`attach` takes `event_name` instead of a usage."


@of("GpuInfo")
def gpu_info():
    return (
        f"Needs pynvml: {error(m.GpuInfo)}. Writes `'gpu:0 mem(%)'` and `'gpu:0 util(%)'`; these texts cannot come up"
        f" on"
        " CPU (`not verified here`: ignite/metrics/gpu_info.py):"
    )


@proves(f"{REFERENCE}#gpuinfo")
def gpu_texts(entry):
    for text in (
        "RuntimeError: This contrib module requires available GPU",
        "No GPU information available",
        "No GPU memory usage information available in …",
        "GPU memory usage information does not provide used/total memory consumption information in …",
        "No GPU utilization information available in …",
        "GPU utilization information does not provide 'gpu_util' information in …",
    ):
        source = inspect.getsource(m.gpu_info)
        assert text.split(": ")[-1].rstrip("… ")[:25] in source, text
        entry.not_verified(text, "ignite/metrics/gpu_info.py")


# Classification


@proves(f"{REFERENCE}#inputs")
def inputs(entry):
    tables, exceptions = probe.inputs()
    for number, rows in enumerate((*tables, exceptions)):
        entry.table(rows, number)
    shape = probe.FOUR.shape
    entry.says(f"One batch of N = {shape[0]} with C = {shape[1]} classes; a letter is an exception of the last table.")


@of("Accuracy")
def accuracy_type():
    a = m.Accuracy()
    a.update((T([1, 0]), T([1, 0])))
    b = m.Accuracy()
    b.update((T([[0.1, 0.9]]), T([1])))
    return (
        f"The kind is fixed by the first batch: {error(a.update, (T([[0.1, 0.9]]), T([1])))} ·"
        f" {error(b.update, (T([[0.1, 0.9, 0.3]]), T([1])))}"
    )


@of("Accuracy")
def accuracy_shapes():
    a = m.Accuracy()
    return (
        f"{error(a.update, (torch.ones(2, 2, 2), torch.ones(2)))} · {error(a.update, (torch.ones(2), torch.ones(3)))} ·"
        f" {error(m.Accuracy(is_multilabel=True).update, (torch.ones(2, 3), torch.ones(2)))} · behind these, where no"
        f" public"
        f" call comes, {error(a._check_type, (torch.ones(2, 2, 2), torch.ones(2)))}"
    )


@of("Accuracy")
def accuracy_multilabel():
    pair = (T([[1, 0, 1], [1, 1, 1]]), T([[1, 0, 1], [1, 1, 0]]))
    with_flag, without = one(m.Accuracy(is_multilabel=True), pair), one(m.Accuracy(), pair)
    assert (with_flag, without) == (0.5, 0.8333)
    return (
        f"With `is_multilabel=True` a sample counts when all its labels are right: {with_flag} where without the"
        f" flag, no"
        f" error, every label counts: {without}."
    )


@of("Accuracy.get_sequence_transform")
def sequence_transform():
    make = m.Accuracy.get_sequence_transform
    y_pred, y = torch.zeros(2, 3, 4), T([[0, 1, -100], [2, -100, -100]])
    flat = make(ignore_index=-100)((y_pred, y))
    assert flat[0].shape == (3, 4) and flat[1].tolist() == [0, 1, 2]
    return (
        "An `output_transform` for scores `(N, S, C)` and targets `(N, S)`: flattens them and drops the targets that"
        " are"
        f" `ignore_index`, a number or several. {error(make(), (torch.zeros(2, 3), y))} ·"
        f" {error(make(), (torch.zeros(2, 4, 4), y))} New in 0.5.5."
    )


@of("Precision", "Recall")
def averages():
    pair = (T([1, 0, 1, 1]), T([1, 0, 0, 1]))
    shown = {str(a): one(m.Precision(average=a), pair) for a in (False, None, True, "micro", "weighted")}
    recall = {str(a): one(m.Recall(average=a), pair) for a in (False, None, True, "micro", "weighted")}
    assert recall != shown
    texts = []
    for name, by in (("Precision", shown), ("Recall", recall)):
        texts.append(
            f"`{name}` of the binary pair `[1, 0, 1, 1]`, `[1, 0, 0, 1]` for each `average`: "
            + ", ".join(f"`{a!r}` `{by[str(a)]}`" for a in (False, None, True, "micro", "weighted"))
        )
    return "; ".join(texts) + "."


@of("Precision", "Recall")
def averages_errors():
    return f"{error(m.Precision, average='x')} · {error(m.Precision(average='samples').update, HAS_SCORES)}"


@of("Precision", "Recall")
def nothing_predicted():
    got = one(m.Precision(average=True), (T([[0.9, 0.1, 0.0]]), T([0])))
    assert got == 0.3333
    return (
        f"A class that was never predicted (or never there) counts as 0 in the mean: one right sample of 3 classes"
        f" gives {got}."
    )


@of("Precision", "Recall")
def dtype_warnings():
    import warnings

    texts = []
    for metric, pair in (
        (m.Precision(), (T([[0.9, 0.1]]), T([0.0]))), (m.Precision(average=True), (T([1.0]), T([1.0]))),
    ):  # fmt: skip
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            metric.update(pair)
        texts.append(f"`{caught[0].category.__name__}: {str(caught[0].message).replace('`', '')}`")
    return " · ".join(texts)


@of("Fbeta")
def fbeta():
    p = m.Precision(average=True)
    return (
        f"A `MetricsLambda` over a `Precision` and a `Recall` with `average=False`. {error(m.Fbeta, 0)} ·"
        f" {error(m.Fbeta, 1, precision=p)} · {error(m.Fbeta, 1, recall=m.Recall(average=True))} ·"
        f" {error(m.Fbeta, 1, precision=m.Precision(), output_transform=len)} ·"
        f" {error(m.Fbeta, 1, precision=m.Precision(), device='cpu')} ·"
        f" {error(m.Fbeta, 1, recall=m.Recall(), output_transform=len)} ·"
        f" {error(m.Fbeta, 1, recall=m.Recall(), device='cpu')}"
    )


@of("ClassificationReport")
def report():
    as_text = m.ClassificationReport()
    as_text.update(probe.SCORES)
    assert isinstance(as_text.compute(), str)
    keys = list(known("ClassificationReport"))
    return (
        f"A JSON text unless `output_dict=True`; the dict has `{keys}`, labels as text, and `'macro avg'` only."
        f" Attached as"
        " `name`, its keys too land in `state.metrics`: pass `metrics_result_mode='named'`. A guard no public call"
        " reaches: `Internal error: Precision and Recall have mismatched shapes: … vs …. Please, open an issue with a"
        " reference on this error. Thank you!`"
    )


@of("TopKCategoricalAccuracy")
def top_k():
    assert inspect.signature(m.TopKCategoricalAccuracy).parameters["k"].default == 5
    return f"`k` is 5 by default; with fewer classes: {error(m.TopKCategoricalAccuracy().update, HAS_SCORES)}."


@of("ConfusionMatrix")
def confusion():
    got = one(m.ConfusionMatrix(2), (T([[0.9, 0.1], [0.1, 0.9], [0.1, 0.9]]), T([0, 0, 1])))
    assert got == [[1, 1], [0, 1]]
    return f"Rows are targets, columns predictions: a 0 taken for a 1 stands in row 0, column 1 (`{got}`)."


@of("ConfusionMatrix")
def confusion_ignored():
    got = one(m.ConfusionMatrix(2), (T([[0.9, 0.1]]), T([5])))
    assert got == [[0, 0], [0, 0]]
    return (
        "Targets outside `0 … num_classes - 1` are left out without a word (255 as border label, but a wrong label as"
        " well), yet count for `average='samples'`, which divides by the number of samples, not of pixels."
    )


@of("ConfusionMatrix")
def confusion_unrolling():
    assert m.ConfusionMatrix(2)._skip_unrolling is True
    return "`skip_unrolling` is `True` here, alone among the metrics of this page with `CommonObjectDetectionMetrics`."


@of("ConfusionMatrix")
def confusion_errors():
    return (
        f"{error(m.ConfusionMatrix, 1)} · {error(m.ConfusionMatrix, 2, average='x')} ·"
        f" {error(m.ConfusionMatrix.normalize, torch.ones(2, 2), 'x')} ·"
        f" {error(m.ConfusionMatrix(2).update, (torch.ones(2, 2), torch.ones(3)))} ·"
        f" {error(m.ConfusionMatrix(2).compute)}"
    )


@of("IoU", "mIoU", "JaccardIndex", "DiceCoefficient")
def from_matrix():
    cm = lambda: m.ConfusionMatrix(3)
    dropped = one(m.IoU(cm(), ignore_index=0), probe.SCORES)
    assert dropped == known("IoU")[1:]
    return (
        "`ignore_index` drops that class from the result, not from the counts of the others (`IoU` of the samples"
        f" `{known('IoU')}`, then `{dropped}`). A class that never occurs counts as 0 in `mIoU`."
    )


@of("IoU", "mIoU", "JaccardIndex", "DiceCoefficient")
def from_matrix_errors():
    cm = m.ConfusionMatrix(3)
    return (
        f"{error(m.IoU, 3)} · {error(m.IoU, m.ConfusionMatrix(3, average='recall'))} ·"
        f" {error(m.IoU, cm, ignore_index=3)}"
    )


@of("IoU", "mIoU", "JaccardIndex", "DiceCoefficient")
def from_matrix_guards():
    for word in ("IoU", "Dice"):
        assert f"is larger than the length of {word} vector" in inspect.getsource(m.confusion_matrix)
    return (
        "Guards no public call reaches: `ignore_index … is larger than the length of IoU vector …`, `ignore_index … is"
        " larger than the length of Dice vector …`."
    )


@of("cmAccuracy", "cmPrecision", "cmRecall")
def cm_functions():
    got = [known(n) for n in ("cmAccuracy", "cmPrecision", "cmRecall")]
    return (
        "Of `ignite.metrics.confusion_matrix`: `cmAccuracy(cm)`, `cmPrecision(cm, average=True)`, `cmRecall(cm,"
        f" average=True)` give a `MetricsLambda` (the samples: {got[0]}, {got[1]}, {got[2]})."
    )


@of("MultiLabelConfusionMatrix")
def multilabel():
    make = lambda: m.MultiLabelConfusionMatrix(2)
    ok = torch.ones(1, 2, dtype=torch.long)
    return (
        "Per label `[[TN, FP], [FN, TP]]`, integers 0 and 1 only. "
        f"{error(m.MultiLabelConfusionMatrix, 1)} · {error(make().update, (ok, torch.ones(2, 2)))} ·"
        f" {error(make().update, (ok, torch.ones(1, 3)))} ·"
        f" {error(make().update, (torch.ones(1, 2, 1), torch.ones(1, 2)))} ·"
        f" {error(make().update, (ok, torch.ones(1, 2)))} · {error(make().update, (ok * 2, ok))} ·"
        f" {error(make().update, (ok, ok * 2))}"
    )


@of("CohenKappa")
def kappa():
    got = one(m.CohenKappa(), (T([0.9, 0.2, 0.6, 0.7]), T([1, 0, 0, 1])))
    assert got == 0.0
    return (
        f"Takes class numbers; probabilities are cut to whole numbers without a word (0.9, 0.2, 0.6, 0.7 give {got}):"
        f" round"
        " them in `output_transform`. With `num_classes` it keeps a matrix, not all samples, and takes unequal shares."
        f" {error(m.CohenKappa, weights='x')} ·"
        f" {error(quietly, lambda: m.cohen_kappa._kappa_from_conf(torch.zeros(2, 2), None))}"
    )


@of("MatthewsCorrCoef")
def matthews():
    got = error(one, m.MatthewsCorrCoef(), (T([0, 1]), torch.ones(2, 2)))
    return f"Takes scores `(N, C)` or class numbers; {got}."


@of("ROC_AUC")
def roc():
    logits, y = T([40.0, 30.0, -1.0]), T([1, 0, 0])
    raw, squeezed = one(m.ROC_AUC(), (logits, y)), one(m.ROC_AUC(), (torch.sigmoid(logits), y))
    assert raw == 1.0 and squeezed == 0.75
    return (
        "Needs scores, not labels; logits do, since only their order counts. A sigmoid in float32 makes large ones"
        " equal:"
        f" logits 40, 30, -1 give {raw}, their sigmoids {squeezed}. One class only gives"
        f" {quietly(lambda: one(m.ROC_AUC(), (T([0.1, 0.2]), T([1, 1]))))} and a warning of scikit-learn."
    )


@of("RocCurve", "PrecisionRecallCurve")
def curves():
    roc, pr = known("RocCurve"), known("PrecisionRecallCurve")
    assert len(roc) == len(pr) == 3 and len(pr[0]) == len(pr[2]) + 1
    return (
        "A tuple of three tensors of float64, as scikit-learn's function: `(fpr, tpr, thresholds)`, `(precision,"
        " recall,"
        f" thresholds)`; the samples give {len(roc[2])} thresholds for the first, the first of them `{roc[2][0]}`."
    )


@of("AveragePrecision")
def average_precision():
    return (
        f"scikit-learn's step-wise sum; the mean over the classes for `(N, C)`. The samples:"
        f" {known('AveragePrecision')}."
    )


@of("MeanAveragePrecision")
def mean_ap():
    m_ = m.MeanAveragePrecision
    per_class = one(m_(class_mean=None), probe.SCORES)
    return (
        f"`class_mean=None` gives each class (`{per_class}`), the default `'macro'` their mean. {error(m_().compute)} ·"
        f" {error(m_, class_mean='x')} · {error(m_, rec_thresholds=[2.0])} · {error(m_, rec_thresholds=3)} ·"
        f" {error(m_, rec_thresholds=torch.ones(1, 1))}"
    )


@of("MeanAveragePrecision")
def mean_ap_warning():
    import warnings

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        m.MeanAveragePrecision().update((T([[0.9, 0.1]]), T([0.0])))
    return f"`RuntimeWarning: {str(caught[0].message).replace('`', '')}`"


@of("Entropy")
def entropy():
    got = one(m.Entropy(), (T([[0.0, 0.0]]),))
    assert got == float(f"{math.log(2):.4g}")
    wrong = one(m.Entropy(), (T([[1.0, 0.0]]), T([0])))
    return (
        f"Takes logits and applies softmax itself: probabilities 1 and 0 give {wrong}, not 0. Natural logarithm"
        f" (logits 0,"
        f" 0: {got}). {error(m.Entropy().update, (T([0.0, 0.0]),))}"
    )


# Regression

FORMULAS = {
    "MeanSquaredError": "mean((y - p)**2)",
    "RootMeanSquaredError": "sqrt(mean((y - p)**2))",
    "MeanAbsoluteError": "mean(abs(y - p))",
    "CanberraMetric": "sum(abs(y - p) / (abs(y) + abs(p)))",
    "FractionalAbsoluteError": "mean(2 * abs(y - p) / (abs(y) + abs(p)))",
    "FractionalBias": "mean(2 * (y - p) / (y + p))",
    "GeometricMeanAbsoluteError": "exp(mean(log(abs(y - p))))",
    "GeometricMeanRelativeAbsoluteError": "exp(mean(log(abs(y - p) / abs(y - mean(y)))))",
    "ManhattanDistance": "sum(abs(y - p))",
    "MaximumAbsoluteError": "max(abs(y - p))",
    "MeanAbsoluteRelativeError": "mean(abs(y - p) / abs(y))",
    "MeanError": "mean(y - p)",
    "MeanNormalizedBias": "mean((y - p) / y)",
    "MedianAbsoluteError": "median(abs(y - p))",
    "MedianAbsolutePercentageError": "100 * median(abs(y - p) / abs(y))",
    "MedianRelativeAbsoluteError": "median(abs(y - p) / abs(y - mean(y)))",
    "PearsonCorrelation": "corrcoef(p, y)[0, 1]",
    "R2Score": "1 - sum((y - p)**2) / sum((y - mean(y))**2)",
    "WaveHedgesDistance": "sum(abs(y - p) / maximum(y, p))",
    "KendallRankCorrelation": "scipy.stats.kendalltau(p, y).statistic",
    "SpearmanRankCorrelation": "scipy.stats.spearmanr(p, y).statistic",
}


def formula_rows() -> list[list[str]]:
    """Each formula, evaluated by numpy, gives what the metric gives."""
    import scipy.stats

    space = {
        n: getattr(np, n) for n in ("mean", "sqrt", "abs", "sum", "exp", "log", "median", "corrcoef", "maximum", "max")
    }
    space |= {"scipy": scipy, "p": probe.REAL[0].numpy().astype(float), "y": probe.REAL[1].numpy().astype(float)}
    rows = [["metric", "is"]]
    for name, text in FORMULAS.items():
        value = eval(text, space)
        assert math.isclose(value, known(name), rel_tol=1e-3), (name, text, value, known(name))
        rows.append([f"`{name}`", f"`{text}`"])
    assert {n for n in vars(regression) if n[0].isupper()} <= set(FORMULAS)
    return rows


@proves(f"{REFERENCE}#regression-metrics")
def formulas(entry):
    entry.table(formula_rows())


@of("Regression metrics")
def regression_signs():
    assert one(regression.MeanError(), (T([3.0]), T([1.0]))) == -2.0
    assert one(regression.MeanNormalizedBias(), (T([3.0]), T([1.0]))) == -2.0
    return "`p` is the prediction: where a sign remains, it is target minus prediction (3 for 1 gives -2.0)."


@of("Regression metrics")
def regression_dims():
    pair = (torch.ones(2, 3), torch.zeros(2, 3))
    got = one(m.MeanSquaredError(), pair), one(m.MeanAbsoluteError(), pair)
    assert got == (3.0, 3.0)
    other = one(m.MeanSquaredError(), (torch.ones(2, 2), torch.ones(4)))
    assert other == 0.0
    return (
        "The first three divide by the number of samples, not of elements: errors of 1 in shape `(2, 3)` give"
        f" {got[0]}. They reshape the target to the prediction, so `(2, 2)` with `(4,)` passes."
    )


@of("Regression metrics")
def regression_errors():
    r = regression.R2Score
    return (
        "Those of `ignite.metrics.regression` take floats of one dimension:"
        f" {error(r().update, (torch.ones(2, 2), torch.ones(2)))} ·"
        f" {error(r().update, (torch.ones(2), torch.ones(2, 2)))} ·"
        f" {error(r().update, (torch.ones(2, 1), torch.ones(2)))} · {error(r().update, (T([1]), T([1.0])))} ·"
        f" {error(r().update, (T([1.0]), T([1])))} ·"
        f" {error(regression.MeanNormalizedBias().update, (T([1.0]), T([0.0])))} (`MeanAbsoluteRelativeError` too) ·"
        f" {error(regression.KendallRankCorrelation, 'x')}"
    )


@of("Regression metrics")
def regression_precision():
    near = T([10001.0, 10002.0, 10003.0])
    pearson = one(regression.PearsonCorrelation(), (near, near))
    r2 = one(regression.R2Score(), (near, near + T([0, 0, 0.5])))
    y = (near + T([0, 0, 0.5])).double()
    true = float(f"{1 - ((near.double() - y) ** 2).sum() / ((y - y.mean()) ** 2).sum():.4g}")
    centred = one(regression.PearsonCorrelation(), (near - 10000, near - 10000))
    assert pearson != 1.0 and r2 != true and centred == 1.0
    return (
        "`PearsonCorrelation` and `R2Score` subtract large float32 sums. Far from 0 they are wrong without a word:"
        f" 10001, 10002, 10003 with itself has the correlation {pearson}, and with 0.5 more on the last `R2Score` gives"
        f" {r2} instead of {true}. Subtract a constant in `output_transform` (10000: {centred})."
    )


@of("Regression metrics")
def regression_zero():
    got = one(regression.GeometricMeanAbsoluteError(), (T([1.0, 2.0]), T([1.0, 3.0])))
    nan = one(regression.FractionalAbsoluteError(), (T([0.0, 1.0]), T([0.0, 1.0])))
    assert got == 0.0 and nan != nan
    constant = error(one, regression.R2Score(), (T([1.0, 2.0]), T([1.0, 1.0])))
    return (
        f"One exact prediction makes `GeometricMeanAbsoluteError` {got}; prediction and target 0 make"
        f" `FractionalAbsoluteError` {nan}; a constant target makes `R2Score` raise {constant}."
        f" `CanberraMetric`, `ManhattanDistance` and `WaveHedgesDistance` are sums that give"
        f" {regression.CanberraMetric().compute()} without data."
    )


@of("MeanPairwiseDistance")
def pairwise():
    return (
        f"Mean of `torch.nn.functional.pairwise_distance` per sample; `skip_unrolling` is taken and not used"
        f" ({m.MeanPairwiseDistance(skip_unrolling=True)._skip_unrolling})."
    )


@of("CosineSimilarity")
def cosine():
    got = one(m.CosineSimilarity(), (torch.zeros(1, 2), torch.ones(1, 2)))
    return f"All dimensions after the first are flattened; a zero vector gives {got}."


# Distributions


@of("KLDivergence", "JSDivergence")
def divergences():
    same = one(m.KLDivergence(), (T([[0.0, 0.0]]), T([[9.0, 9.0]])))
    assert same == 0.0
    order = probe.values()["KLDivergence"]
    swapped = one(m.KLDivergence(), (probe.VECTORS[1], probe.VECTORS[0]))
    assert order != swapped
    return (
        "Both inputs are logits; softmax is applied to both. `KLDivergence` is that of the target from the prediction,"
        f" KL(y ‖ y_pred): {order}, with the inputs exchanged {swapped}."
        f" {error(m.KLDivergence().update, (torch.ones(1, 2), torch.ones(1, 3)))} ·"
        f" {error(m.KLDivergence().update, (torch.ones(2), torch.ones(2)))}"
    )


@of("MutualInformation")
def mutual():
    got = one(m.MutualInformation(), (T([[200.0, 0.0], [200.0, 0.0]]),))
    assert got != got
    return f"Takes logits. A class whose probability is 0 everywhere makes it {got} (logits 200, 0 twice)."


@of("HSIC")
def hsic():
    small = (torch.rand(3, 2), torch.rand(3, 2))
    return (
        f"Mean over the batches, each at least 4 samples; smaller ones are skipped ({error(one, m.HSIC(), small)} if"
        f" there"
        f" is no other), or with `ignore_invalid_batch=False`"
        f" {error(m.HSIC(ignore_invalid_batch=False).update, small)}."
        " The value depends on how the samples are batched."
    )


@of("MaximumMeanDiscrepancy")
def mmd():
    got = one(m.MaximumMeanDiscrepancy(), (torch.rand(1, 2), torch.rand(1, 2)))
    assert got != got
    return (
        f"The root of a mean over batches, so it depends on how the samples are batched; a batch of 1 makes it {got}."
        f" {error(m.MaximumMeanDiscrepancy().update, (torch.rand(2, 2), torch.rand(2, 3)))} ·"
        f" {error(m.MaximumMeanDiscrepancy().update, (torch.rand(2), torch.rand(2)))} ·"
        f" {error(m.MaximumMeanDiscrepancy().compute)}"
    )


@of("CalinskiHarabaszScore", "DaviesBouldinScore", "SilhouetteScore")
def clusters():
    make = m.clustering.SilhouetteScore
    one_cluster = one(make(), (torch.rand(3, 2), T([0, 0, 0])))
    assert one_cluster != one_cluster and make.required_output_keys == ("features", "labels")
    metric = make()
    metric.update((torch.rand(3, 2), T([0, 1, 0])))
    return (
        f"Need scikit-learn and take `(features, labels)`, also as the keys of a dict output; one cluster gives"
        f" {one_cluster}."
        f" {error(metric.update, (torch.rand(3), T([0, 1, 0])))} ·"
        f" {error(metric.update, (torch.rand(3, 2), torch.ones(3, 1)))} ·"
        f" {error(metric.update, (torch.rand(3, 2).double(), T([0, 1, 0])))} ·"
        f" {error(metric.update, (torch.rand(3, 2), T([0.0, 1, 0])))}"
    )


# Text


@of("Bleu")
def bleu():
    words = "the cat sat".split()
    short = one(m.Bleu(), ([words], [[words]]))
    text = one(m.Bleu(), (["the cat sat"], [["the cat sat"]]))
    assert short == 0.0 and text == 1.0
    flat = one(m.Bleu(ngram=1), ([words], [words]))
    assert flat == 0.0
    return (
        "`update((candidates, references))`: lists of tokens, and for each candidate a list of references. A string"
        " counts as"
        f" a list of characters, one reference that is not in a list gives {flat}, both without a word; a sentence"
        f" shorter"
        f" than `ngram` (4), even if it is perfect, {short} unless `smooth` is given."
    )


@of("Bleu")
def bleu_average():
    assert inspect.signature(m.Bleu).parameters["average"].default == "macro"
    macro, micro = known("Bleu"), one(m.Bleu(ngram=2, average="micro"), (probe.SENTENCES, probe.REFERENCES))
    uneven = (probe.SENTENCES[:2] + [["x", "y", "z"]], probe.REFERENCES[:2] + [[["x", "z"]]])
    a, b = one(m.Bleu(ngram=1), uneven), one(m.Bleu(ngram=1, average="micro"), uneven)
    assert a != b and macro and micro
    return (
        f"`average='macro'`, the default, is the mean over sentences; the BLEU of the literature is `'micro'`, over the"
        f" corpus ({a} and {b} for three sentences). {error(m.Bleu, 0)} · {error(m.Bleu, smooth='x')} ·"
        f" {error(m.Bleu, average='x')}"
        f" · with `'micro'` {error(m.Bleu(average='micro').update, (probe.SENTENCES[:2], probe.REFERENCES[:1]))}, with"
        f" `'macro'` the surplus is left out without a word"
    )


@of("Rouge", "RougeN", "RougeL")
def rouge():
    pair = (["a b c".split()], [["a b".split()]])
    zero, half = one(m.RougeN(1), pair)["Rouge-1-F"], one(m.RougeN(1, alpha=0.5), pair)["Rouge-1-F"]
    assert zero == one(m.RougeN(1), pair)["Rouge-1-R"] == 1.0
    return (
        f"`alpha` is 0 by default, which makes F equal to the recall ({zero} for `a b c` against `a b`); `alpha=0.5`"
        f" is the"
        f" usual F1 ({half}). `RougeN` takes `ngram=4`. Inputs as in `Bleu`. The keys are those of"
        f" `{list(one(m.RougeL(), pair))}`, and with the name attached both are written."
    )


@of("Rouge", "RougeN", "RougeL")
def rouge_errors():
    return (
        f"{error(m.RougeL, alpha=2)} · {error(m.RougeL, multiref='x')} · {error(m.RougeN, 0)} ·"
        f" {error(m.Rouge, ['X'])} ·"
        f" {error(m.RougeL().compute)}"
    )


@of("CharacterErrorRate")
def cer():
    c = m.CharacterErrorRate
    return (
        f"Strings or lists of strings; edits over characters of the targets, all together."
        f" {error(c().update, (1, 'a'))} ·"
        f" {error(c().update, ([1], ['a']))} · {error(c().update, (['a'], ['a', 'b']))}"
    )


@of("Perplexity")
def perplexity():
    p = m.Perplexity
    swapped = error(p().update, (torch.zeros(2, 5, 3), torch.zeros(2, 5).long()))
    square = one(p(), (torch.zeros(2, 5, 5), torch.zeros(2, 5).long()))
    return (
        "Scores with the classes in dimension 1, `(N, C, S)`, and targets `(N, S)`: transpose a language model's `(N,"
        " S, C)`."
        f" {swapped} · {error(p().update, (torch.zeros(2, 3, 5, 1), torch.zeros(2, 5).long()))} ·"
        f" {error(p().update, (torch.zeros(2), torch.zeros(2).long()))} ·"
        f" {error(p().update, (torch.zeros(2, 2), torch.tensor(1)))}"
        f" With S = C the mistake passes unnoticed ({square} is a number too)."
    )


# Images


def pictures():
    x = (probe.wave(2, 3, 16, 16) + 1) / 2
    return x, (x + 0.1).clamp(0, 1)


@of("PSNR", "SSIM")
def data_range():
    pair = pictures()
    right = one(m.PSNR(1.0), pair), one(m.SSIM(1.0), pair)
    wrong = one(m.PSNR(255), pair), one(m.SSIM(255), pair)
    assert wrong[0] > right[0] + 40 and wrong[1] > right[1]
    return (
        f"`data_range` is the range of your pixels and is not checked: images in 0 … 1 give PSNR {right[0]} and SSIM"
        f" {right[1]} with 1.0, but {wrong[0]} and {wrong[1]} with 255, better than they are."
    )


@of("PSNR", "SSIM")
def psnr():
    x, _ = pictures()
    best = one(m.PSNR(1.0), (x, x))
    return (
        f"Mean of the images' values; equal images give {best}, the ceiling for a range of 1."
        f" {error(m.PSNR(1.0).update, (x, x.double()))} · {error(m.PSNR(1.0).update, (x, x[:1]))}"
    )


@of("PSNR", "SSIM")
def ssim():
    x, _ = pictures()
    return (
        f"{error(m.SSIM(1.0).update, (x[0], x[0]))} · {error(m.SSIM, 1.0, ndims=4)} ·"
        f" {error(m.SSIM, 1.0, kernel_size=4)} ·"
        f" {error(m.SSIM, 1.0, kernel_size=(3, 3, 3))} · {error(m.SSIM, 1.0, kernel_size=3.0)} ·"
        f" {error(m.SSIM, 1.0, sigma=1)} ·"
        f" {error(m.SSIM, 1.0, sigma=(1.0,))} · {error(m.SSIM, 1.0, sigma=-1.0)} · an image smaller than the kernel:"
        f" {error(m.SSIM(1.0).update, (x[..., :4, :4], x[..., :4, :4]))}"
    )


@proves(f"{REFERENCE}#psnr-ssim")
def ssim_device(entry):
    x, _ = pictures()
    ssim = m.SSIM(1.0, device="meta")
    ssim.update((x.to("meta"), x.to("meta")))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ssim.update((x, x))
    entry.quotes(str(caught[0].message))
    entry.says("a warning after batches on another device:")


@of("Contents")
def contents():
    """That each is a link to its entry, and none is missing, test_metrics_reference.py sees to."""
    sections: list[list[str]] = []
    for other in read_page(REFERENCE).entries:
        sections += [[other.heading]] if other.level == 2 and other.anchor != "contents" else []
        sections[-1].append(other.heading) if other.level == 3 else None
    return " ".join(f"{section}: {' · '.join(names)}" if names else section for section, *names in sections)


@of("ObjectDetectionAvgPrecisionRecall")
def detection():
    make = lambda **k: m.ObjectDetectionAvgPrecisionRecall(num_classes=2, **k)
    both = [(probe.PREDICTED, probe.TARGETS)]
    default = one(make(), *both)[0]
    exact = one(make(rec_thresholds=torch.linspace(0, 1, 101, dtype=torch.float64)), *both)[0]
    assert default != exact
    return (
        "Needs torchvision. Returns `(AP, AR)` over IoU 0.5 … 0.95. The default recall thresholds are float32, so a"
        " recall of"
        f" 0.2 misses the threshold 0.2: {default} where `rec_thresholds=torch.linspace(0, 1, 101,"
        f" dtype=torch.float64)` gives"
        f" {exact}, as COCO's own computation defines it."
    )


@of("ObjectDetectionAvgPrecisionRecall")
def detection_empty():
    empty = one(m.ObjectDetectionAvgPrecisionRecall())
    update = m.ObjectDetectionAvgPrecisionRecall().update
    return (
        f"Lists of one dict per image: `bbox` (x1, y1, x2, y2), `scores`, `labels`, and `bbox`, `labels`, `iscrowd`."
        f" Without data"
        f" `{tuple(empty)}`, no error. {error(update, ([], [{}]))} · {error(update, ([], []))} ·"
        f" {error(update, ([{'bbox': 1}], [{}]))} ·"
        f" {error(update, (probe.PREDICTED[:1], [{'bbox': 1}]))}"
    )


@of("CommonObjectDetectionMetrics")
def common():
    keys = list(known("CommonObjectDetectionMetrics"))
    return f"A `MetricGroup` with the keys `{keys}`; a size without objects is -1.0. The same float32 thresholds."


@of("coco_tensor_list_to_dict_list")
def coco():
    y_pred, y = m.coco_tensor_list_to_dict_list(([torch.zeros(1, 6)], [torch.zeros(1, 5)]))
    assert list(y_pred[0]) == ["bbox", "confidence", "class"] and list(y[0]) == ["bbox", "class"]
    wrong = error(m.ObjectDetectionAvgPrecisionRecall().update, (y_pred, y))
    return (
        f"Its dicts have the keys `{list(y_pred[0])}` and `{list(y[0])}`, which the metrics refuse: {wrong}. Rename"
        f" them yourself."
    )


@of("FID", "InceptionScore")
def gan_errors():
    identity = torch.nn.Identity()
    make = lambda: m.FID(3, identity)
    return (
        f"{error(m.FID, feature_extractor=identity)} · {error(m.FID, num_features=-1)} ·"
        f" {error(m.FID, 3, len)} · {error(make().update, (torch.rand(2, 2), torch.rand(2, 2)))} ·"
        f" {error(make().update, (torch.rand(2, 3, 3),) * 2)} · {error(make().update, (torch.rand(0, 3),) * 2)}"
    )


@of("FID", "InceptionScore")
def gan_default():
    assert inspect.signature(m.FID).parameters["num_features"].default is None
    return (
        "Without arguments they load torchvision's Inception v3, which downloads its weights; with `num_features`"
        " alone the"
        " input is taken as features."
    )


@of("FID", "InceptionScore")
def fid_value():
    alone = quietly(lambda: one(m.FID(2, torch.nn.Identity()), (torch.rand(1, 2), torch.rand(1, 2))))
    assert alone != alone
    with patch.object(m.gan.fid, "fid_score", lambda **k: float("inf")):
        import warnings

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            metric = m.FID(2)
            metric.update((torch.rand(3, 2), torch.rand(3, 2)))
            metric.compute()
    return (
        f"Needs scipy; both batches of equal size: {error(m.FID(3).update, (torch.rand(3, 3), torch.rand(2, 3)))}."
        f" One sample gives {alone}, an infinite or undefined value `UserWarning: {caught[0].message}`"
    )


@of("FID", "InceptionScore")
def fid_pieces():
    mu, sigma = torch.zeros(2), torch.eye(2)
    return (
        f"`ignite.metrics.gan.fid.fid_score(mu1, mu2, sigma1, sigma2)` is the distance itself"
        f" ({fid.fid_score(mu, mu + 1, sigma, sigma):.1f} for means 1 apart in 2 dimensions)."
    )


@proves(f"{REFERENCE}#fid-inceptionscore")
def fid_imaginary(entry):
    import scipy.linalg

    with patch.object(scipy.linalg, "sqrtm", lambda x: np.eye(2) * 2j):
        entry.says(error(fid.fid_score, torch.zeros(2), torch.zeros(2), torch.eye(2), torch.eye(2)))


@of("FID", "InceptionScore")
def inception():
    got = one(m.InceptionScore(2), torch.zeros(4, 2))
    assert got == 1.0
    return (
        f"The extractor must return probabilities: logits are not turned into them (logits 0, 0 give {got}, and any"
        f" others a number too)."
    )


@of("InceptionModel")
def inception_model():
    model = gan.InceptionModel.__new__(gan.InceptionModel)
    forward = lambda x: gan.InceptionModel.forward(model, x)
    return (
        f"In `ignite.metrics.gan.utils`: images `(N, 3, H, W)`. {error(forward, torch.rand(2, 2))} ·"
        f" {error(forward, torch.rand(1, 1, 2, 2))}"
    )


# Fairness, recommenders


@of("SelectionRate")
def selection():
    assert known("SelectionRate")[0] + known("SelectionRate")[1] == 1
    return (
        f"The share of each predicted class, two numbers for a binary task (`{known('SelectionRate')}`). Guards no"
        f" public call"
        " reaches: `num_classes must be set for multiclass data.`, `num_classes must be set for multilabel data.`,"
        " `Unexpected type: …` (the last in `Accuracy` too)."
    )


@of("SubgroupMetric", "SubgroupDifference", "SubgroupAccuracyDifference", "DemographicParityDifference")
def subgroups():
    pair = (T([1, 0]), T([1, 1]), T([0, 7]))
    got = one(fairness.SubgroupMetric(m.Accuracy(), [0]), pair)
    difference = fairness.SubgroupAccuracyDifference
    return (
        "`update((y_pred, y, group_labels))`, as keys of a dict too. Samples of a group that is not in `groups` are"
        " left out"
        f" without a word (`{got}` here). {error(one, difference([0, 1]), pair)} ·"
        f" {error(difference([0, 1]).compute)} ·"
        f" {error(difference([0, 1]).update, (T([1, 0]), T([1, 1]), T([0])))}"
    )


@of("HitRate", "NDCG")
def recommenders():
    y_pred, y = T([[0.1, 0.9], [0.9, 0.1]]), T([[0.0, 1.0], [0.0, 0.0]])
    hit = one(m.HitRate(1), (y_pred, y)), one(m.HitRate(1, ignore_zero_hits=False), (y_pred, y))
    assert hit == ([1.0], [0.5])
    return (
        "A list, one number per `top_k`, in ascending order. Users without a relevant item are left out; with"
        f" `ignore_zero_hits=False` they count as 0 (`{hit[0]}`, then `{hit[1]}`)."
    )


@of("HitRate", "NDCG")
def recommender_errors():
    h, n = m.HitRate, m.NDCG
    wide = (torch.rand(1, 2), torch.rand(1, 3))
    return (
        f"{error(h, 'a')} · {error(h, [])} · {error(h, 0)} · {error(h().update, (1, 2, 3))} ·"
        f" {error(h().update, wide)} ·"
        f" {error(h(5).update, (torch.rand(1, 2), torch.ones(1, 2)))} · {error(n, [0])} ·"
        f" {error(n, [1], gain_function='x')} ·"
        f" {error(h().compute)} · {error(n([1]).compute)}"
    )


@of("HitRate", "NDCG")
def ndcg():
    pair = (T([[0.1, 0.9]]), T([[0.0, 0.5]]))
    return (
        f"Relevances below `relevance_threshold`"
        f" ({inspect.signature(m.NDCG).parameters['relevance_threshold'].default}) count as 0:"
        f" grades in 0 … 1 all vanish ({error(one, m.NDCG([1]), pair)})."
    )


# Across ranks


def rank_rows() -> list[list[str]]:
    groups: dict[tuple[str, str], list[str]] = {}
    for name in (n for n in probe.SAMPLES if n not in ("MetricGroup", "MetricsLambda")):
        groups.setdefault((probe.kind(name, False), probe.kind(name, True)), []).append(name)
    alike = groups.pop(("any length", "any length"))
    groups["same calls", "same calls"] += alike
    rows = [["metrics", "unequal shares", "a rank without samples"]]
    words = {
        "same calls": "exact", "any length": "exact", "lengths differ": "aborts", "types differ": "types differ",
        "shapes differ": "shapes differ", "NotComputableError": "`NotComputableError` there",
        "RuntimeError": "`RuntimeError` there",
    }  # fmt: skip
    for (unequal, empty), names in sorted(groups.items(), key=lambda item: item[0] == ("same calls", "same calls")):
        shown = (
            [f"the other {len(names)}"]
            if (unequal, empty) == ("same calls", "same calls")
            else [f"`{n}`" for n in names]
        )
        rows.append([" ".join(shown), words[unequal], words[empty]])
    return rows


@proves(f"{REFERENCE}#across-ranks")
def across(entry):
    entry.table(rank_rows())
    aborted = probe.on_two_ranks(["EpochMetric"], empty=False)["EpochMetric"]
    assert aborted[1] == "signal 6" and "Connection" in aborted[0], aborted
    entry.says(
        "Rank 0 has 6 samples, rank 1 has 3, or rank 0 all 9. *aborts*: all predictions are gathered and their"
        " numbers must be"
        " equal; a rank ends with signal 6 and the others with `Connection reset by peer` or the like.".replace("*", "")
    )
    waits = probe.on_two_ranks(["Precision"], empty=True, timeout=1)["Precision"]
    assert all("Timed out waiting" in w or "Connection" in w for w in waits), waits
    garbage = probe.on_two_ranks(["MaximumAbsoluteError"], empty=True)["MaximumAbsoluteError"]
    assert garbage[0] == known("MaximumAbsoluteError") != garbage[1], garbage
    alone = probe.on_two_ranks(["CharacterErrorRate"], empty=True)["CharacterErrorRate"]
    entry.says(
        "types differ, shapes differ: the rank without samples still has 0 where the others have a tensor, and the"
        " ranks wait"
        f" for each other until the timeout (`Precision`), or one gets nonsense: `MaximumAbsoluteError` is"
        f" {garbage[0]} on"
        f" rank 0 and {garbage[1]} on rank 1."
    )
    assert alone, alone
    entry.says(
        "An error there: that rank alone raises, and where the others are in a collective they wait for it. Give each"
        " rank"
        " at least one sample, and the gathering ones the same number."
    )


@proves(f"{REFERENCE}#what-communicates")
def what_communicates(entry):
    asked = [c for c, _ in probe.calls("Accuracy", 0, False)]
    assert len(asked) == 2
    entry.says(
        f"`update` and `reset` are local (`RunningAverage` of an output apart); `compute` is collective, {len(asked)}"
        f" reductions"
        " for `Accuracy`, and gives the same number on every rank: all ranks must call it, in the same order of"
        " metrics."
    )
    a = m.Accuracy()
    a.update(BINARY[0])
    with patch.object(idist, "get_world_size", lambda: 2), patch.object(idist, "all_reduce", lambda x, **k: x * 2):
        assert a.compute() == 1.0 and a._num_examples == 2
    entry.says("What it reduces it puts back, so a second `compute` counts nothing twice.")
