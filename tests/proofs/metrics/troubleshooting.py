"""Proofs of troubleshooting.md: each symptom is made, and the entry says what was seen."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from unittest.mock import patch

import ignite.distributed as idist
import ignite.metrics as m
import torch
from ignite.engine import Engine
from ignite.metrics import clustering, regression
from ignite.metrics.gan import fid
from ignite.metrics.gan import utils as gan
from probes import metrics as probe
from support.claims import proves
from support.pages import find_entry, slug
from support.world import run_world, values

from .api_reference import BINARY
from .facts import REFERENCE, ROOM, T, engine, error, one, quietly, ran, unlinked

PAGE = f"{ROOM}/references/troubleshooting.md"
ENTRIES: list[tuple[str, str, Callable]] = []  # section, heading, what makes its message and its four parts
PARTS = ("Means", "Check", "Fix", "Proof")


def symptom(section: str, heading: str) -> Callable:
    """Register a function that makes the symptom and returns its message and the texts of the four parts; a message of
    None is a scene without a text, whose first part is how to tell it."""

    def register(make: Callable) -> Callable:
        ENTRIES.append((section, heading, make))

        @proves(f"{PAGE}#{slug(heading)}")
        def _(entry):
            message, *parts = quietly(make)
            if message is not None:
                entry.heading(message.strip("`"))
            for part in parts:
                entry.says(unlinked(part))

        return make

    return register


@proves(f"{PAGE}#contents")
def contents(entry):
    lines = [line for section in SECTIONS for line in (section, *(h for s, h, _ in ENTRIES if s == section))]
    entry.says(" ".join(lines))


@proves(f"{PAGE}#troubleshooting-ignitemetrics")
def introduction(entry):
    complaint = error(m.SSIM, 1.0, kernel_size=4).strip("`")
    assert complaint in find_entry(f"{REFERENCE}#psnr-ssim").text

    def main(rank):
        if rank:
            raise ValueError("the first")
        idist.all_reduce(1)

    echo, first = run_world(2, main)
    assert first.error == "ValueError" and "peer" in echo.message, echo
    entry.says(
        "Search this page for the text that you see; complaints about arguments are in api-reference.md, at the"
        " metric. On several ranks explain the first error by time."
    )


SECTIONS = OUTPUT, SHAPES, STATE, RANKS, PACKAGES = (
    "The output of the engine", "Shapes and types", "Attaching and state", "On several ranks", "Packages",
)  # fmt: skip


@symptom(OUTPUT, "`… must have at least one example before it can be computed`")
def no_example():
    sample = error(regression.MeanAbsoluteRelativeError().compute)
    empty = error(ran, m.Accuracy(), [], 1)
    return (
        error(m.Accuracy().compute),
        f"`compute` before any `update`: a `RunningAverage` or a second usage has reset the metric, `detach` lacked"
        f" its usage,"
        f" no batch passed `BatchFiltered`, or the epoch had no batch ({empty}). Also {sample}",
        "who else holds the metric object; the number of batches.",
        "one object per place; the same usage in `attach` and `detach`.",
        f"the run ends with a value ({ran(m.Accuracy(), BINARY)}).",
    )


@symptom(OUTPUT, "`When transformed engine's output is a mapping, it should contain … keys, but given …`")
def keys():
    e = Engine(lambda e, b: {"logits": b[0], "target": b[1]})
    m.Accuracy().attach(e, "m")
    got = error(e.run, BINARY)
    e = Engine(lambda e, b: {"logits": b[0], "target": b[1]})
    m.Accuracy(output_transform=lambda o: (o["logits"], o["target"])).attach(e, "m")
    value = e.run(BINARY).metrics["m"]
    asked = m.Loss.required_output_keys, m.clustering.SilhouetteScore.required_output_keys
    return (
        got,
        f"your step returns a dict with other keys. `Loss` wants `{asked[0]}`, the clustering scores `{asked[1]}`.",
        "what the step returns.",
        '`output_transform=lambda o: (o["logits"], o["target"])`.',
        f"the metric has a value ({value}).",
    )


@symptom(OUTPUT, "`Transformed engine output for … metric should be a tuple/list, but given <class 'dict'>`")
def dictionary():
    value = ran(m.Average(output_transform=lambda o: o["loss"]), [{"loss": 1.0}])["m"]
    return (
        error(ran, m.Average(), [{"loss": 1.0}]),
        "`Average` and the like take a number or a tensor, and got the whole dict.",
        "what the step returns.",
        '`output_transform=lambda o: o["loss"]`.',
        f"it has a value ({value}).",
    )


@symptom(OUTPUT, "`cannot unpack non-iterable … object`")
def not_a_pair():
    e = Engine(lambda e, b: 0.5)
    m.Accuracy().attach(e, "m")
    none = Engine(lambda e, b: None)
    m.Accuracy().attach(none, "m")
    return (
        error(e.run, BINARY),
        f"the metric wants `(y_pred, y)` and the step returns a loss, or nothing: {error(none.run, BINARY)}",
        "the `return` of the step; a trainer made by `create_supervised_trainer` returns the loss.",
        "attach to an evaluator, or return `y_pred, y` too.",
        f"it has a value ({ran(m.Accuracy(), BINARY)['m']}).",
    )


@symptom(OUTPUT, "`Output should have 2 items of the same length, got …`")
def lists():
    pair = [([T([1]), T([0])], [T([1])])]
    whole = []

    class Watched(m.Average):
        required_output_keys = ("y_pred", "y")

        def update(self, output):
            whole.append(output)
            super().update(1.0)

    ran(Watched(skip_unrolling=True), pair)
    assert len(whole) == 1 and len(whole[0][0]) == 2
    return (
        error(ran, m.Accuracy(), pair),
        "all parts of the output are lists of tensors or numbers, which are taken apart pair by pair, and these do"
        " not pair.",
        "the lengths of the two lists.",
        "tensors instead of lists; `skip_unrolling=True` if your metric takes lists.",
        "`update` is called with the whole output.",
    )


@symptom(OUTPUT, "`loss_fn did not return the average loss.`")
def loss():
    pair = (T([1.0, 2.0]), T([0.0, 0.0]))
    return (
        error(m.Loss(torch.nn.MSELoss(reduction="none")).update, pair),
        "`loss_fn` returned a tensor with dimensions.",
        "its `reduction`.",
        "`reduction='mean'`; `'sum'` would pass and be wrong.",
        f"the loss has a value ({one(m.Loss(torch.nn.MSELoss()), pair)}).",
    )


@symptom(SHAPES, "`For binary cases, y_pred must be comprised of 0's and 1's.`")
def binary():
    scores, y = T([0.9, 0.2]), T([1, 0])
    fixed = one(m.Accuracy(output_transform=len), (scores.round(), y))
    return (
        error(m.Accuracy().update, (scores, y)),
        "probabilities or logits where labels are wanted, or `y_pred` and `y` of the same shape although the task is"
        f" multiclass; with class numbers on both sides it is {error(m.Accuracy().update, (T([0, 1]), T([0, 2])))}",
        "both shapes, against [Inputs](api-reference.md#inputs).",
        "`output_transform=lambda o: (o[0].round(), o[1])` for probabilities, `(o[0] > 0).long()` for logits; scores"
        " `(N, C)`"
        " for classes.",
        f"it has a value ({fixed}).",
    )


@symptom(
    SHAPES,
    "`y must have shape of (batch_size, ...) and y_pred must have shape of (batch_size, num_categories, ...) or"
    " (batch_size,"
    " ...), but given …`",
)
def shapes():
    pair = torch.ones(2, 2, 2), torch.ones(2)
    return (
        error(m.Accuracy().update, pair),
        "the numbers of dimensions do not fit; if they do and sizes differ it is"
        f" {error(m.Accuracy().update, (torch.ones(2), torch.ones(3)))}, and with `is_multilabel=True`"
        f" {error(m.Accuracy(is_multilabel=True).update, (torch.ones(2), torch.ones(2)))}",
        "both shapes, against [Inputs](api-reference.md#inputs).",
        "put the classes into dimension 1: `(N, S, C)` of a sequence needs `Accuracy.get_sequence_transform()`.",
        "the first batch passes.",
    )


@symptom(SHAPES, "`Input data type has changed from … to …`")
def changed():
    a = m.Accuracy()
    a.update((T([1, 0]), T([1, 0])))
    b = m.Accuracy()
    b.update((T([[0.1, 0.9]]), T([1])))
    message = error(a.update, (T([[0.1, 0.9]]), T([1])))
    a.reset()
    a.update((T([[0.1, 0.9]]), T([1])))
    return (
        message,
        "one object was fed two kinds of input since its last `reset`, or batches of different numbers of classes:"
        f" {error(b.update, (T([[0.1, 0.9, 0.3]]), T([1])))}",
        "whether two engines share the metric; `squeeze()` on a batch of 1.",
        "one object per engine; `squeeze(1)`.",
        "after `reset` the other kind passes.",
    )


@symptom(SHAPES, "`y_pred contains fewer classes than y. Number of classes in the prediction is …`")
def fewer():
    scores = T([[0.9, 0.1], [0.2, 0.8]])
    silent = one(m.Accuracy(), (scores, T([0, 2])))
    return (
        error(m.Precision().update, (scores, T([0, 2]))),
        f"a target is no column of the scores. `MeanAveragePrecision` says"
        f" {error(m.MeanAveragePrecision().update, (scores, T([0, 2])))}; `Accuracy` counts it as wrong ({silent}),"
        " `ConfusionMatrix` leaves it out, both without a word.",
        "`y.max()` against `y_pred.shape[1]`; an ignore index such as 255.",
        "drop such targets in `output_transform`.",
        f"it has a value ({one(m.Precision(average=True), (scores, T([0, 1])))}).",
    )


@symptom(SHAPES, "`Incoherent types between input y_pred and stored predictions: … vs …`")
def incoherent():
    e = m.EpochMetric(lambda p, y: 0.0)
    e.update((T([1.0]), T([1.0])))
    return (
        error(e.update, (T([1]), T([1.0]))),
        f"batches of different dtype; of the targets it is {error(e.update, (T([1.0]), T([1])))}",
        "autocast in some batches only, integer targets in some.",
        "`output_transform=lambda o: (o[0].float(), o[1].long())`.",
        "the second batch passes.",
    )


@symptom(SHAPES, "`selected index k out of range`")
def top_k():
    pair = (T([[0.9, 0.1, 0.0], [0.2, 0.7, 0.1]]), T([0, 1]))
    return (
        error(m.TopKCategoricalAccuracy().update, pair),
        "`TopKCategoricalAccuracy` (5 by default) or `HitRate` asks for more than there are columns.",
        "`y_pred.shape[1]`.",
        "a smaller `k`; `NDCG` takes what there is.",
        f"it has a value ({one(m.TopKCategoricalAccuracy(k=2), pair)}).",
    )


@symptom(SHAPES, "`Probably, there can be a problem with `compute_fn`:`".replace("`compute_fn`", "compute_fn"))
def probably():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        e = m.EpochMetric(lambda p, y: 1 / 0)
        e.update((T([1.0]), T([1.0])))
    message = str(caught[0].message).replace("`", "")
    return (
        message,
        f"`compute_fn` raised on the first batch alone, which is only a warning; at `compute` it is raised"
        f" ({error(e.compute)}). Scores that need two classes may fail on one batch and work on all.",
        "the text after the colon.",
        "`check_compute_fn=False` if one batch cannot be scored.",
        "no warning.",
    )


@symptom(STATE, "`Argument name '…' is conflicting with mapping keys: …`")
def conflict():
    group = lambda: m.MetricGroup({"acc": m.Accuracy()})
    return (
        error(ran, group(), BINARY, name="acc"),
        "the metric's result is a dict and one of its keys is the name you attach it under.",
        "the keys.",
        "another name.",
        f"`{sorted(ran(group(), BINARY, name='all'))}` are in `state.metrics`.",
    )


@symptom(
    STATE,
    "`MetricsLambda is already attached to an engine, and MetricsLambda can't use update API while it's attached.`",
)
def lambda_attached():
    f = m.Precision() + m.Recall()
    f.attach(engine(), "f")
    g = m.Precision() + m.Recall()
    g.update(BINARY[0])
    message = error(f.update, BINARY[0])
    again = error(g.attach, engine(), "g")
    g.reset()
    g.attach(engine(), "g")
    return (
        message,
        f"a result of arithmetic is either attached or fed by hand; the other way round it is {again}",
        "calls of `update`.",
        "a second object made of new metrics; `reset()` before `attach`.",
        "`attach` passes.",
    )


@symptom(STATE, "`Metric result of type '…' has no attribute '…'.`")
def attribute():
    f = m.Accuracy().itme()
    f.update(BINARY[0])
    good = m.Precision().mean()
    return (
        error(f.compute),
        "a name that the metric does not have was taken as an operation on its result; the text goes on with the line"
        " where"
        " you wrote it.",
        "that line: a misspelt method of the metric, or one of the result.",
        "the right name.",
        f"`compute` gives a value ({one(good, (T([[0.9, 0.1], [0.2, 0.8]]), T([0, 1])))}).",
    )


@symptom(
    STATE,
    "`Incorrect state_dict object. Argument state_dict should be a dictionary provided by Metric.state_dict(). …`",
)
def state():
    a = m.Accuracy()
    two = a.state_dict()
    key = next(iter(two))
    two[key] = two[key] * 2
    a.load_state_dict(m.Accuracy().state_dict())
    return (
        error(a.load_state_dict, two),
        f"the state is of a world of another size, or of another kind: {error(a.load_state_dict, {})}",
        f"`len(state['{key}'])` against `idist.get_world_size()`.",
        "resume with as many ranks, or leave metrics out of the checkpoint and start at an epoch's beginning.",
        "it loads.",
    )


@symptom(
    STATE,
    "`Found attribute of unsupported type. Currently, supported types include numeric types, tensor, Metric or"
    " sequence/mapping of metrics.`",
)
def unsupported():
    return (
        error(m.mIoU(m.ConfusionMatrix(3)).state_dict),
        "the metric has something in its state that cannot be saved; results of arithmetic with other arguments than"
        " metrics"
        " and numbers (`mIoU` has a dtype among them) never can.",
        "which metric is in `to_save`.",
        "save the metric it is made of: the `ConfusionMatrix`.",
        f"`state_dict` returns a dict ({len(m.ConfusionMatrix(3).state_dict())} key).",
    )


@symptom(RANKS, "Hangs at the end of an evaluation")
def hangs():
    lonely = run_world(2, lambda rank: updated().compute() if rank == 0 else None, timeout=1)
    assert not lonely[0].ok
    uneven = probe.on_two_ranks(["Precision"], empty=True, timeout=1)["Precision"]
    assert all("Timed out" in text or "Connection" in text for text in uneven), uneven

    def main(rank):
        a = updated()
        return a.compute()

    assert values(run_world(2, main)) == [1.0, 1.0]
    return (
        None,
        "the stack of the waiting rank ends in `all_reduce` or `all_gather` below `compute`.",
        "another rank did not call `compute`: only rank 0 evaluates, one rank stopped, metrics are computed in"
        " another order,"
        " or a `RunningAverage` had one iteration more. Or a rank without samples has a number where the others have"
        " a tensor"
        " (`Precision`, `Recall`), or raised `NotComputableError`.",
        "the number of batches on each rank, and `if rank == 0`.",
        "the evaluator on every rank, at least one sample on each.",
        "both ranks print the same value.",
    )


def updated():
    a = m.Accuracy()
    a.update((T([1]), T([1])))
    return a


@symptom(RANKS, "`Connection reset by peer`")
def reset_by_peer():
    broken = probe.on_two_ranks(["EpochMetric"], empty=False)["EpochMetric"]
    fixed = probe.on_two_ranks(["EpochMetric"], empty=False, equal=True)["EpochMetric"]
    assert fixed[0] == fixed[1] and broken[1] == "signal 6"
    return (
        broken[0] if "reset by peer" in broken[0] else "Connection reset by peer",
        "with `EpochMetric` or a metric built on it: the ranks had unequal numbers of samples, and a rank ended with"
        " signal 6 in"
        " the gathering.",
        "the samples per rank; the last batch.",
        "a sampler that gives every rank as many, or `all_gather` of Python lists and the score on one rank.",
        f"both ranks have the same value (`{fixed}`).",
    )


@symptom(PACKAGES, "`This … requires scikit-learn to be installed.`")
def packages():
    def without(module, make):
        with patch.dict(sys.modules, {module: None}):
            return error(make)

    texts = [
        without("sklearn.metrics", m.ROC_AUC),
        without("sklearn.metrics", m.PrecisionRecallCurve),
        without("sklearn.metrics", m.MatthewsCorrCoef),
        without("scipy.stats", regression.SpearmanRankCorrelation),
        without("scipy", lambda: m.FID(2)),
        without("numpy", lambda: m.FID(2)),
        without("torchvision.ops.boxes", m.ObjectDetectionAvgPrecisionRecall),
        without("torchvision", lambda: gan.InceptionModel(True)),
        without("numpy", lambda: fid.fid_score(*[torch.eye(2)] * 4)),
        without("scipy.linalg", lambda: fid.fid_score(*[torch.eye(2)] * 4)),
    ]
    assert clustering.SilhouetteScore() is not None and idist.get_world_size() == 1
    return (
        texts[0],
        "the metric is made of another package. The texts: " + " · ".join(texts),
        '`python -c "import sklearn, scipy, torchvision"`.',
        "`pip install scikit-learn` (it brings scipy); the torchvision of your torch's release.",
        "the metric is made.",
    )
