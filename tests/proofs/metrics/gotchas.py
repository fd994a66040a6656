"""Proofs of the gotchas of the metrics room, of its smallest program and of its notes."""

from __future__ import annotations

import sys
import warnings
from unittest.mock import patch

import ignite.distributed as idist
import ignite.metrics as m
import sklearn.metrics
import torch
from ignite.engine import Events
from ignite.metrics.gan import utils as gan
from probes import metrics as probe
from support.world import run_world, values

from .api_reference import BINARY, by_restoring, pictures, ran_both
from .facts import ROOM, T, engine, error, fact, one, quietly, ran, seen

SKILL = f"{ROOM}/SKILL.md"


def gotcha(title: str):
    """Register a function that shows what the title says and returns the sentences after it."""

    def register(make):
        fact(SKILL, title)(lambda: f"{title}. {make()}")
        return make

    return register


@gotcha("compute is collective")
def collective():
    def main(rank):
        a = m.Accuracy()
        a.update((T([1, 1, 1]), T([1, 1, 0])) if rank == 0 else (T([0]), T([1])))
        return a.compute(), a._num_examples

    both = values(run_world(2, main))
    assert both == [(0.5, 3), (0.5, 1)]
    lonely = run_world(2, lambda rank: fed().compute() if rank == 0 else None, timeout=1)
    assert "Timed out" in lonely[0].message or "Connection" in lonely[0].message, lonely[0]
    return (
        "With 2 of 3 right on rank 0 and 0 of 1 on rank 1, `Accuracy` gives"
        f" {both[0][0]} on both: already that of all samples, so no `all_reduce` on top. An evaluator, or"
        f" `compute()`, that"
        " only rank 0 runs waits for the others. Run it on every rank, print on one."
    )


def fed():
    a = m.Accuracy()
    a.update((T([1]), T([1])))
    return a


@gotcha("Some need equal shares, others a sample on each rank")
def shares():
    broken = probe.on_two_ranks(["ROC_AUC"], empty=False)["ROC_AUC"]
    assert broken[1] == "signal 6", broken
    assert probe.kind("Precision", True) == "types differ" and probe.kind("Precision", False) == "same calls"
    assert probe.kind("Accuracy", True) == "same calls"
    return (
        "`EpochMetric` and what is built on it (`ROC_AUC`, `AveragePrecision`, `CohenKappa` …) gather all"
        " predictions: 6 on"
        " one rank and 3 on the other end the job with signal 6. `Precision` and `Recall` hang if a rank saw no"
        " sample. The"
        " list is in [Across ranks](references/api-reference.md#across-ranks)."
    )


@gotcha("running_epoch_wise sees one batch per epoch")
def running_epoch():
    end = quietly(lambda: seen(m.Accuracy(), BINARY, 1, Events.EPOCH_COMPLETED, usage="running_epoch_wise"))
    true = quietly(lambda: seen(m.Accuracy(), BINARY, 1, Events.EPOCH_COMPLETED))
    last = one(m.Accuracy(), BINARY[-1])
    assert end == [last] and last != true[0]
    return (
        f"It updates at the end of the epoch, with the last batch's output: {end[0]} where the epoch has {true[0]}."
        f" For an"
        " average over the epochs so far, average the epochs' values yourself."
    )


@gotcha("One object, one place")
def one_place():
    e, a = engine(), m.Accuracy()
    a.attach(e, "acc")
    m.RunningAverage(a).attach(e, "smooth")
    return (
        f"The same metric with two usages gives `{quietly(ran_both)}` where 0.4 and 0.0 are right; as `src` of a"
        f" `RunningAverage` and attached too, {error(e.run, BINARY)} Make a new object for each use."
    )


@gotcha("detach needs the usage again")
def detach():
    e, a = engine(), m.Accuracy()
    a.attach(e, "m", usage="batch_wise")
    a.detach(e)
    f, b = engine(), m.Accuracy()
    b.attach(f, "m", usage="batch_wise")
    b.detach(f, "batch_wise")
    assert "m" not in f.run(BINARY).metrics
    return (
        "After `attach(…, usage='batch_wise')`, `detach(engine)` only stops the updates: the next run ends with"
        f" {error(e.run, BINARY)} `MetricsLambda.detach` leaves the metrics it is made of on the engine."
    )


@gotcha("A handler registered before attach reads the last epoch")
def order():
    e, found = engine(), []
    e.add_event_handler(Events.EPOCH_COMPLETED, lambda e: found.append(e.state.metrics.get("m")))
    m.Accuracy().attach(e, "m")
    e.run(BINARY, max_epochs=2)
    assert found == [None, 0.4]
    return (
        f"Handlers run in the order of registration: it sees `{found}` in the first two epochs. Attach metrics first."
    )


@gotcha("A misspelt attribute is a metric")
def misspelt():
    a = m.Accuracy()
    assert isinstance(a.updat(BINARY[0]), m.MetricsLambda) and hasattr(a, "anything")
    return (
        "`acc.updat(batch)` raises nothing and updates nothing: any unknown name on a metric makes a `MetricsLambda`,"
        " and"
        " `hasattr` is always true. The error comes at the `compute` of that lambda, or never."
    )


@gotcha("Binary means labels, not probabilities")
def binary():
    got = error(m.Accuracy().update, (T([0.9, 0.2]), T([1, 0])))
    kappa = one(m.CohenKappa(), (T([0.9, 0.2, 0.6, 0.7]), T([1, 0, 0, 1])))
    logits = T([[0.9], [-0.2]])
    rounded = one(m.Accuracy(output_transform=None or (lambda o: o)), ((logits > 0).long(), T([[1], [0]])))
    assert rounded == 1.0
    scores, y = T([0.9, 0.6, 0.7]), T([1, 0, 1])
    assert one(m.ROC_AUC(), (scores, y)) > one(m.ROC_AUC(), (scores.round(), y))
    return (
        f"`Accuracy`, `Precision`, `Recall`: {got}; `output_transform=lambda o: ((o[0] > 0).long(), o[1])` for logits."
        f" `CohenKappa` cuts 0.9 to 0 without a word (kappa {kappa}). `ROC_AUC` wants the scores: never round for it."
    )


@gotcha("Multilabel is a flag")
def multilabel():
    pair = (T([[1, 0, 1], [1, 1, 1]]), T([[1, 0, 1], [1, 1, 0]]))
    flag, plain = one(m.Accuracy(is_multilabel=True), pair), one(m.Accuracy(), pair)
    p, q = one(m.Precision(is_multilabel=True), pair), one(m.Precision(), pair)
    return (
        f"Without it `(N, C)` of 0 and 1 is taken as N × C binary answers: accuracy {plain} instead of {flag},"
        f" precision {q}"
        f" instead of `{p}`. `is_multilabel=True` wherever one sample has several labels."
    )


@gotcha("A class out of range")
def out_of_range():
    scores = T([[0.9, 0.1], [0.2, 0.8]])
    y = T([0, 2])
    accuracy, matrix = one(m.Accuracy(), (scores, y)), one(m.ConfusionMatrix(2), (scores, y))
    assert accuracy == 0.5 and matrix == [[1, 0], [0, 0]]
    return (
        f"With targets 0 and 2 for two classes, both found as well as can be, `Accuracy` counts the second as wrong"
        f" ({accuracy}), `ConfusionMatrix` and what is made of it leave it out (`{matrix}`), `Precision` raises"
        f" {error(m.Precision().update, (scores, y))}"
    )


@gotcha("Rows of a ConfusionMatrix are targets")
def rows():
    got = one(m.ConfusionMatrix(2), (T([[0.1, 0.9], [0.1, 0.9]]), T([0, 0])))
    assert got == [[0, 2], [0, 0]]
    for average, axis in (("recall", 1), ("precision", 0)):
        matrix, divided = m.ConfusionMatrix(2), m.ConfusionMatrix(2, average=average)
        scores, y = torch.eye(2)[[0, 1, 1]], T([0, 0, 1])
        counts, shares = T(one(matrix, (scores, y))), T(one(divided, (scores, y)))
        assert torch.allclose(shares, counts / counts.sum(axis, keepdim=True), atol=1e-3)
    return (
        f"Two 0s taken for 1s stand in row 0, column 1: `{got}`. `average='recall'` divides rows, `'precision'`"
        f" columns."
    )


@gotcha("An average of batch means is not the mean")
def batch_means():
    batches = [T([1.0, 1.0, 1.0]), T([5.0])]
    average = one(m.Average(), *[b.mean() for b in batches])
    loss = one(m.Loss(lambda p, y: p.mean()), *[(b, b) for b in batches])
    vector = one(m.Average(), batches[0])
    assert (average, loss) == (3.0, 2.0)
    assert one(m.Loss(lambda p, y: p.sum()), *[(b, b) for b in batches]) != loss
    return (
        f"Losses 1, 1, 1 in one batch and 5 in the next: `Average` of the batch means is {average}, `Loss` weights by"
        f" size: {loss}."
        f" `Average` of a 1-dim tensor takes it as one sample and gives a vector (`{vector}`). `Loss` needs the"
        f" batch's mean,"
        " a sum passes unnoticed."
    )


@gotcha("RunningAverage is for one rank's eyes")
def running():
    def main(rank):
        r = m.RunningAverage(output_transform=lambda x: x)
        for x in ([1.0, 1.0], [4.0])[rank]:
            r.update(x)

    outcomes = run_world(2, main, timeout=1)
    assert not outcomes[0].ok
    first = one(m.RunningAverage(output_transform=lambda x: x), 10.0, 0.0)
    return (
        "It smooths with `alpha=0.98` and without batch sizes, for a progress bar: 10 then 0 gives"
        f" {first}. On several ranks it communicates in every iteration: one batch more on rank 0, and rank 0 hangs."
    )


@gotcha("MSE and MAE divide by samples")
def samples():
    pair = (torch.ones(2, 3), torch.zeros(2, 3))
    mse = one(m.MeanSquaredError(), pair)
    torch_mse = torch.nn.functional.mse_loss(*pair).item()
    assert (mse, torch_mse) == (3.0, 1.0) and one(m.MeanAbsoluteError(), pair) == mse
    return (
        f"Errors of 1 in shape `(2, 3)`: `MeanSquaredError` {mse}, `torch.nn.functional.mse_loss` {torch_mse}."
        f" Flatten in"
        " `output_transform` for the mean over elements."
    )


@gotcha("Correlation and R² of large numbers")
def large():
    near = T([10001.0, 10002.0, 10003.0])
    pearson = one(m.regression.PearsonCorrelation(), (near, near))
    fixed = one(m.regression.PearsonCorrelation(), (near - 10000, near - 10000))
    assert fixed == 1.0
    assert one(m.regression.R2Score(), (near, near + 1)) != one(
        m.regression.R2Score(), (near - 10000, near - 10000 + 1)
    )
    return (
        f"Sums are kept in float32: `PearsonCorrelation` of 10001, 10002, 10003 with itself is {pearson}, and"
        f" `R2Score` loses"
        f" digits alike. Subtract a constant first ({fixed})."
    )


@gotcha("Logits or probabilities")
def logits():
    entropy = one(m.Entropy(), (T([[1.0, 0.0]]),))
    raw = T([40.0, 30.0, -1.0])
    auc = one(m.ROC_AUC(), (raw, T([1, 0, 0]))), one(m.ROC_AUC(), (torch.sigmoid(raw), T([1, 0, 0])))
    return (
        "`Entropy`, `MutualInformation`, `KLDivergence`, `JSDivergence`, `Perplexity` take logits (softmax once more"
        " makes the"
        f" entropy of a certain answer {entropy}, not 0); `InceptionScore` takes probabilities. `ROC_AUC` takes"
        f" either, but"
        f" float32 sigmoids of 40 and 30 are equal: {auc[1]} instead of {auc[0]}."
    )


@gotcha("data_range is believed")
def data_range():
    pair = pictures()
    psnr = one(m.PSNR(1.0), pair), one(m.PSNR(255), pair)
    ssim = one(m.SSIM(1.0), pair), one(m.SSIM(255), pair)
    return (
        f"Images in 0 … 1 with `data_range=255`: PSNR {psnr[1]} instead of {psnr[0]}, SSIM {ssim[1]} instead of"
        f" {ssim[0]}."
    )


@gotcha("Text wants tokens and lists of references")
def text():
    assert one(m.Bleu(), (["abcd efgh"], [["abcd xfgh"]])) > 0  # four characters in a row, no four words
    as_words = one(m.Bleu(ngram=1), (["abcd efgh".split()], [["abcd xfgh".split()]]))
    flat = one(m.Bleu(ngram=1), (["ab cd".split()], ["ab cd".split()]))
    rouge = one(m.RougeN(1), (["a b c".split()], [["a b".split()]]))
    assert as_words == 0.5 and flat == 0.0
    return (
        f"A string is scored by characters, and a single reference not in a list gives {flat} for a perfect sentence."
        f" `Bleu` averages sentences (`average='macro'`) and is 0 for any shorter than 4 tokens; `Rouge` has"
        f" `alpha=0`, so its F is the recall ({rouge['Rouge-1-F']} where F1 is"
        f" {one(m.RougeN(1, alpha=0.5), (['a b c'.split()], [['a b'.split()]]))['Rouge-1-F']})."
    )


@gotcha("A checkpoint does not keep every metric")
def checkpoint():
    found = by_restoring()
    wrong = found["wrong, silently"]
    assert "CohenKappa" in wrong and "ROC_AUC" in found["ValueError on loading"]
    assert "mIoU" in found["TypeError on saving"]
    return (
        f"Restored in the middle of an epoch, {len(wrong)} lose what they had without a word ("
        + ", ".join(f"`{n}`" for n in wrong)
        + "); those that keep every prediction raise `ValueError` on loading,"
        " those made of a `ConfusionMatrix` `TypeError` on"
        " saving. Save at the end of an epoch, and leave metrics out."
    )


@gotcha("A state_dict in memory goes on counting")
def alias():
    right = (T([1, 1]), T([1, 1]))
    a, b = m.Accuracy(), m.Accuracy()
    a.update(right)
    state = a.state_dict()
    a.update(right)
    b.load_state_dict(state)
    value = b.compute()
    assert value == 2.0
    return (
        f"Its tensors are the metric's own and are added to in place: taken after one batch and loaded after a"
        f" second, it gives an"
        f" `Accuracy` of {value}. `copy.deepcopy(metric.state_dict())`, or save it to a file."
    )


@gotcha("A result that is a dict is written twice")
def twice():
    keys = sorted(ran(m.MetricGroup({"acc": m.Accuracy(), "p": m.Precision()}), BINARY, name="all"))
    named = m.ClassificationReport(output_dict=True, metrics_result_mode="named")
    assert set(ran(named, probe.cut(probe.SCORES), name="report")) == {"report"}
    return (
        f"Attached as `all`, a `MetricGroup` of `acc` and `p` puts `{keys}` into `state.metrics`, the last two beside"
        f" what"
        " others call so. `ClassificationReport` and `MetricsLambda` take `metrics_result_mode='named'`."
    )


@gotcha("Predictions pile up")
def memory():
    e = m.EpochMetric(lambda p, y: 0.0)
    for _ in range(3):
        e.update((torch.zeros(2, 5), torch.zeros(2)))
    kept = sum(p.numel() for p in e._predictions)
    assert kept == 30 and m.ROC_AUC()._predictions == []
    return (
        f"`EpochMetric` and its kin keep every prediction until the epoch ends (3 batches of shape `(2, 5)`: {kept}"
        f" numbers), on"
        " the CPU unless `device` says otherwise, and gather all of them on every rank at `compute`."
    )


@gotcha("float32 thresholds in object detection")
def thresholds():
    both = [(probe.PREDICTED, probe.TARGETS)]
    make = lambda **k: m.ObjectDetectionAvgPrecisionRecall(num_classes=2, **k)
    default = one(make(), *both)[0]
    exact = one(make(rec_thresholds=torch.linspace(0, 1, 101, dtype=torch.float64)), *both)[0]
    return (
        f"AP differs from COCO's in the third digit ({default}, {exact}) until you pass"
        " `rec_thresholds=torch.linspace(0, 1, 101, dtype=torch.float64)`."
    )


@fact(SKILL, "Common triggers")
def f1():
    samples = probe.SCORES
    guess, y = samples[0].argmax(1), samples[1]
    mean, each = one(m.Fbeta(1), samples), one(m.Fbeta(1, average=False), samples)
    weighted = sklearn.metrics.f1_score(y, guess, average="weighted")
    by_hand = m.EpochMetric(lambda p, y: sklearn.metrics.f1_score(y, p.argmax(1), average="weighted"))
    assert probe.close(mean, sklearn.metrics.f1_score(y, guess, average="macro")) and len(each) == 3
    assert probe.close(one(by_hand, samples), weighted)
    assert one(m.Fbeta(1, average="micro"), samples) == mean
    return (
        '`Fbeta(1)`, the mean over classes (`average="micro"` gives it too); per class `Fbeta(1, average=False)`; micro'
        " or weighted: from scikit-learn in an `EpochMetric`."
    )


@fact(SKILL, "Common triggers")
def own_outputs():
    e = engine()
    for part in ("a", "b"):
        m.Accuracy(output_transform=lambda o, part=part: o[part]).attach(e, part)
    got = e.run([{"a": BINARY[0], "b": BINARY[1]}]).metrics
    assert got == {"a": 1.0, "b": 0.0}
    return "The metric wants other outputs than my step returns. `output_transform`, for each metric its own."


@fact(SKILL, "Common triggers")
def per_batch():
    code, evaluator, found = 'attach(evaluator, "acc", usage="batch_wise")', engine(), []
    eval(f"metric.{code}", {"metric": m.Accuracy(), "evaluator": evaluator})
    m.RunningAverage(m.Accuracy(), alpha=0.5).attach(evaluator, "smooth")
    evaluator.add_event_handler(
        Events.ITERATION_COMPLETED, lambda e: found.append([e.state.metrics[n] for n in ("acc", "smooth")])
    )
    evaluator.run(BINARY)
    assert found == [[1.0, 1.0], [0.0, 0.5], [0.0, 0.25]]
    return f"`{code}`; smoothed: `RunningAverage`."


@fact(SKILL, "Common triggers")
def padding():
    y_pred, y = T([1, 0, 1]), T([1, 255, 1])
    drop = m.Accuracy(output_transform=lambda o: (o[0][o[1] != 255], o[1][o[1] != 255]))
    assert ran(drop, [(y_pred, y)]) == {"m": 1.0}
    code, scores = "Accuracy.get_sequence_transform(ignore_index=…)", torch.eye(3)[None, [1, 0, 1]]
    transform = eval(code.replace("…", "255"), {"Accuracy": m.Accuracy})
    assert ran(m.Accuracy(output_transform=transform), [(scores, y[None])]) == {"m": 1.0}
    return f"Some targets are padding. Drop them in `output_transform`; for sequences `{code}`."


@fact(SKILL, "Common triggers")
def a_function_of_sklearn():
    code = "EpochMetric(lambda y_pred, y: f(y.numpy(), y_pred.numpy()))"
    pair = T([1, 1, 0, 1]), T([1, 0, 0, 0])
    metric = eval(code, {"EpochMetric": m.EpochMetric, "f": sklearn.metrics.precision_score})
    right = sklearn.metrics.precision_score(pair[1], pair[0])
    assert probe.close(one(metric, pair), right) and right != sklearn.metrics.precision_score(*pair)
    return f"`{code}`."


def without(package: str) -> set[str]:
    """Names of the metrics that ask for the package when it is missing."""
    hidden = {n: None for n in sys.modules if n == package or n.startswith(f"{package}.")}
    asking = set()
    with patch.dict(sys.modules, hidden):
        for name, (_, data) in probe.SAMPLES.items():
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    probe.fed(name, probe.cut(data)).compute()
            except ModuleNotFoundError:
                asking.add(name)
    return asking


@fact(SKILL, "Useful boundary notes")
def packages():
    named = {"ROC_AUC", "AveragePrecision", "MatthewsCorrCoef"}
    families = {"RocCurve", "PrecisionRecallCurve", "CalinskiHarabaszScore", "DaviesBouldinScore", "SilhouetteScore"}
    assert without("sklearn") == named | families
    assert without("scipy") >= {"FID", "KendallRankCorrelation", "SpearmanRankCorrelation"}
    assert {n for n in without("torchvision") if "ObjectDetection" not in n} == set()
    assert len(without("torchvision")) == 2 and "torchvision" in error(missing_inception)
    return (
        "`ROC_AUC`, `AveragePrecision`, `MatthewsCorrCoef`, the curves and the clustering scores need scikit-learn;"
        " `FID`, `KendallRankCorrelation`, `SpearmanRankCorrelation` scipy; object detection and the Inception model"
        " torchvision."
    )


def missing_inception():
    with patch.dict(sys.modules, {"torchvision": None}):
        gan.InceptionModel(True)


@fact(SKILL, "Useful boundary notes")
def where_sums_live():
    code, loss = "device=idist.device()", torch.nn.functional.mse_loss
    default, moved = m.Loss(loss), m.Loss(loss, device="meta")
    asked = m.Loss(loss, **eval(f"dict({code})", {"idist": idist}))
    assert [x._sum.device.type for x in (default, moved, asked)] == ["cpu", "meta", idist.device().type]
    return f"The sums live on the CPU by default, so each batch on a GPU costs a transfer; `{code}` keeps them there."


@fact(SKILL, "Useful boundary notes")
def single_precision():
    class Sums(m.Metric):
        def reset(self):
            pass

        update = compute = reset

    dtypes = [str(Sums(**where)._double_dtype) for where in ({}, {"device": "mps"})]
    elsewhere, there = (d.removeprefix("torch.") for d in dtypes)
    assert str(m.PSNR(1.0)._sum_of_batchwise_psnr.dtype) == dtypes[0]
    return f'With `device="mps"` sums that are {elsewhere} elsewhere are {there}.'


@fact(SKILL, "Useful boundary notes")
def same_everywhere():
    def main(rank):
        a = m.Accuracy()
        a.update((T([1, 0]), T([1, rank])))
        return a.compute()

    both = values(run_world(2, main))
    assert both[0] == both[1] == 0.75
    return "To stop or save by a metric use its value on every rank: it is the same on all."
