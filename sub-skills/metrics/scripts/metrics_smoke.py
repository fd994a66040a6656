#!/usr/bin/env python3
# /// script
# requires-python = ">=3.10"
# dependencies = ["torch>=2.0", "pytorch-ignite>=0.4.13", "numpy"]
# ///
"""Do the metrics of ignite.metrics give the numbers they should on this machine?

Each check computes a metric on a few samples and compares it with a number worked out by hand, or with scikit-learn's
where the metric is made of it. Inputs are chosen so that the usual mistakes give another number: batches of unequal
size, a sample of every kind, targets and predictions that cannot be exchanged.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts"))

import smoke_runner  # noqa: E402
from smoke_runner import check, expect, expect_raises  # noqa: E402

with smoke_runner.imports():
    import torch
    from ignite import metrics as m
    from ignite.engine import Engine, Events
    from ignite.exceptions import NotComputableError

NEAR = 1e-5


def of(metric, *outputs):
    for output in outputs:
        metric.update(output)
    return metric.compute()


def classes():
    """Scores of 3 classes in batches of 3 and 1: samples 0, 1, 3 are right, 2 is a 0 taken for a 2."""
    scores = torch.eye(3)[torch.tensor([0, 1, 2, 2])]
    target = torch.tensor([0, 1, 0, 2])
    return (scores[:3], target[:3]), (scores[3:], target[3:])


def numbers():
    """Predictions 1, 2, 4 and targets 2, 2, 8, in batches of 2 and 1: errors 1, 0, 4."""
    p, y = torch.tensor([1.0, 2.0, 4.0]), torch.tensor([2.0, 2.0, 8.0])
    return (p[:2], y[:2]), (p[2:], y[2:])


def run(metric, batches, **attach):
    engine = Engine(lambda engine, batch: batch)
    metric.attach(engine, "m", **attach)
    return engine.run(batches).metrics["m"]


@check("Metric.attach", see="references/api-reference.md#metric")
def _():
    expect("epoch", run(m.Accuracy(), classes()), 0.75)
    expect("last batch", run(m.Accuracy(), classes(), usage="batch_wise"), 1.0)


@check("Metric.detach", see="references/api-reference.md#metric")
def _():
    engine, metric = Engine(lambda engine, batch: batch), m.Accuracy()
    metric.attach(engine, "m")
    expect("attached", metric.is_attached(engine), True)
    metric.detach(engine)
    expect("in state.metrics", "m" in engine.run(classes()).metrics, False)


@check("Metric.state_dict", see="references/api-reference.md#saving-and-restoring")
def _():
    first, second = classes()
    saved, restored = m.Accuracy(), m.Accuracy()
    saved.update(first)
    restored.load_state_dict(saved.state_dict())
    restored.update(second)
    expect("after both halves", restored.compute(), 0.75)


@check("NotComputableError", see="references/troubleshooting.md")
def _():
    expect_raises("without data", NotComputableError, "at least one example", m.Accuracy().compute)


@check("MetricsLambda")
def _():
    expect("error rate", of((1 - m.Accuracy()) * 100, *classes()), 25.0)


@check("MetricGroup", since="0.5.1")
def _():
    group = m.MetricGroup({"accuracy": m.Accuracy(), "top": m.TopKCategoricalAccuracy(k=3)})
    expect("values", of(group, *classes()), {"accuracy": 0.75, "top": 1.0})


@check("RunningAverage")
def _():
    engine, seen = Engine(lambda engine, batch: batch), []
    m.RunningAverage(output_transform=lambda x: x, alpha=0.5).attach(engine, "m")
    engine.add_event_handler(Events.ITERATION_COMPLETED, lambda engine: seen.append(engine.state.metrics["m"]))
    engine.run([4.0, 2.0, 1.0])
    expect("values", seen, [4.0, 3.0, 2.0])


@check("Average")
def _():
    expect("mean of numbers", float(of(m.Average(), 1.0, 2.0, 6.0)), 3.0)
    expect("mean of rows", of(m.Average(), torch.tensor([[1.0, 2.0], [3.0, 6.0]])).tolist(), [2.0, 4.0])


@check("GeometricAverage")
def _():
    expect("of 2 and 8", of(m.GeometricAverage(), 2.0, 8.0), 4.0, within=NEAR)


@check("VariableAccumulation")
def _():
    total, count = of(m.VariableAccumulation(lambda a, x: a + x), 1.0, 2.0, 4.0)
    expect("sum and count", (float(total), count), (7.0, 3))


@check("Loss")
def _():
    expect("weighted by batch size", of(m.Loss(lambda p, y: (p - y).abs().mean()), *numbers()), 5 / 3, within=NEAR)


@check("EpochMetric")
def _():
    expect("largest error", of(m.EpochMetric(lambda p, y: (p - y).abs().max().item()), *numbers()), 4.0)


@check("Accuracy")
def _():
    expect("multiclass", of(m.Accuracy(), *classes()), 0.75)
    expect("binary", of(m.Accuracy(), (torch.tensor([1, 0, 1]), torch.tensor([1, 1, 1]))), 2 / 3)
    labels = torch.tensor([[1, 0], [1, 1]]), torch.tensor([[1, 0], [0, 1]])
    expect("multilabel", of(m.Accuracy(is_multilabel=True), labels), 0.5)


@check("Precision", see="references/api-reference.md#precision-recall")
def _():
    expect("per class", of(m.Precision(), *classes()).tolist(), [1.0, 1.0, 0.5])
    expect("mean", of(m.Precision(average=True), *classes()), 2.5 / 3, within=NEAR)


@check("Recall", see="references/api-reference.md#precision-recall")
def _():
    expect("per class", of(m.Recall(), *classes()).tolist(), [0.5, 1.0, 1.0])


@check("Fbeta")
def _():
    expect("F1 per class", of(m.Fbeta(1, average=False), *classes()).tolist(), [2 / 3, 1.0, 2 / 3], within=NEAR)


@check("ClassificationReport")
def _():
    report = of(m.ClassificationReport(output_dict=True), *classes())
    expect("recall of class 0", report["0"]["recall"], 0.5)


@check("TopKCategoricalAccuracy")
def _():
    scores = torch.tensor([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]])
    expect("of 2", of(m.TopKCategoricalAccuracy(k=2), (scores, torch.tensor([1, 2]))), 0.5)


@check("ConfusionMatrix")
def _():
    expect("rows are targets", of(m.ConfusionMatrix(3), *classes()).tolist(), [[1, 0, 1], [0, 1, 0], [0, 0, 1]])


@check("IoU", see="references/api-reference.md#iou-miou-jaccardindex-dicecoefficient")
def _():
    expect("per class", of(m.IoU(m.ConfusionMatrix(3)), *classes()).tolist(), [0.5, 1.0, 0.5], within=NEAR)


@check("mIoU", see="references/api-reference.md#iou-miou-jaccardindex-dicecoefficient")
def _():
    expect("mean", float(of(m.mIoU(m.ConfusionMatrix(3)), *classes())), 2 / 3, within=NEAR)


@check("DiceCoefficient", see="references/api-reference.md#iou-miou-jaccardindex-dicecoefficient")
def _():
    expect(
        "per class", of(m.DiceCoefficient(m.ConfusionMatrix(3)), *classes()).tolist(), [2 / 3, 1.0, 2 / 3], within=NEAR
    )


@check("MultiLabelConfusionMatrix")
def _():
    pair = torch.tensor([[1, 0], [1, 1], [0, 1]]), torch.tensor([[1, 1], [0, 1], [0, 1]])
    expect("per label", of(m.MultiLabelConfusionMatrix(2), pair).tolist(), [[[1, 1], [0, 1]], [[0, 0], [1, 2]]])


@check("ROC_AUC", needs_package="sklearn")
def _():
    pair = torch.tensor([0.1, 0.4, 0.35, 0.8]), torch.tensor([0, 0, 1, 1])
    expect("one pair of four is exchanged", float(of(m.ROC_AUC(), pair)), 0.75)


@check("AveragePrecision", needs_package="sklearn")
def _():
    pair = torch.tensor([0.1, 0.4, 0.35, 0.8]), torch.tensor([0, 0, 1, 1])
    expect("value", float(of(m.AveragePrecision(), pair)), (1 + 2 / 3) / 2, within=NEAR)


@check("CohenKappa", since="0.5.5")
def _():
    pair = torch.tensor([0, 1, 1, 1]), torch.tensor([0, 1, 0, 1])
    expect("agreement 0.75, by chance 0.5", of(m.CohenKappa(), pair), 0.5, within=NEAR)


@check("MeanAveragePrecision", since="0.5.2")
def _():
    pair = torch.tensor([0.1, 0.4, 0.35, 0.8]), torch.tensor([0, 0, 1, 1])
    expect("value", float(of(m.MeanAveragePrecision(), pair)), (1 + 2 / 3) / 2, within=NEAR)


@check("MeanSquaredError", see="references/api-reference.md#regression-metrics")
def _():
    expect("of errors 1, 0, 4", of(m.MeanSquaredError(), *numbers()), 17 / 3, within=NEAR)


@check("MeanAbsoluteError", see="references/api-reference.md#regression-metrics")
def _():
    expect("of errors 1, 0, 4", of(m.MeanAbsoluteError(), *numbers()), 5 / 3, within=NEAR)


@check("RootMeanSquaredError", see="references/api-reference.md#regression-metrics")
def _():
    expect("of errors 1, 0, 4", of(m.RootMeanSquaredError(), *numbers()), math.sqrt(17 / 3), within=NEAR)


@check("R2Score", see="references/api-reference.md#regression-metrics")
def _():
    from ignite.metrics.regression import R2Score

    expect("1 - 17 / 24", of(R2Score(), *numbers()), 1 - 17 / 24, within=NEAR)


@check("MeanError", see="references/api-reference.md#regression-metrics")
def _():
    from ignite.metrics.regression import MeanError

    expect("target minus prediction", of(MeanError(), *numbers()), 5 / 3, within=NEAR)


@check("MeanPairwiseDistance")
def _():
    expect("3, 4, 5", of(m.MeanPairwiseDistance(), (torch.tensor([[3.0, 4.0]]), torch.zeros(1, 2))), 5.0, within=1e-4)


@check("Bleu")
def _():
    pair = ["a b c d x".split()], ["a b c d e".split()]
    expect(
        "geometric mean",
        float(of(m.Bleu(), (pair[0], [pair[1]]))),
        (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25,
        within=NEAR,
    )


@check("Rouge", see="references/api-reference.md#rouge-rougen-rougel")
def _():
    value = of(m.Rouge(["L"], alpha=0.5), (["a x b c".split()], [["a b".split()]]))
    expect("F1 of the longest common part", value["Rouge-L-F"], 2 / 3, within=NEAR)


@check("PSNR", see="references/api-reference.md#psnr-ssim")
def _():
    expect(
        "of an error of 0.1",
        of(m.PSNR(1.0), (torch.full((2, 1, 4, 4), 0.1), torch.zeros(2, 1, 4, 4))),
        20.0,
        within=1e-3,
    )


@check("SSIM", see="references/api-reference.md#psnr-ssim")
def _():
    picture = (torch.arange(256.0) % 7).reshape(1, 1, 16, 16) / 7
    expect("of itself", of(m.SSIM(1.0), (picture, picture)), 1.0, within=1e-4)
    expect("of its negative is low", of(m.SSIM(1.0), (picture, 1 - picture)) < 0.2, True)


@check("InceptionScore", see="references/api-reference.md#fid-inceptionscore")
def _():
    expect("two sure classes", of(m.InceptionScore(2, torch.nn.Identity()), torch.eye(2)), 2.0, within=NEAR)


@check("FID", needs_package="scipy", see="references/api-reference.md#fid-inceptionscore")
def _():
    features = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    expect(
        "means 2 apart",
        of(m.FID(2, torch.nn.Identity()), (features, features + torch.tensor([2.0, 0.0]))),
        4.0,
        within=1e-3,
    )


@check("SilhouetteScore", needs_package="sklearn", since="0.5.2", see="references/api-reference.md#clustering")
def _():
    from ignite.metrics.clustering import SilhouetteScore

    features = torch.tensor([[0.0, 0.0], [0.0, 0.0], [9.0, 0.0], [9.0, 0.0]])
    score = SilhouetteScore(check_compute_fn=False)
    expect("perfect clusters", float(of(score, (features, torch.tensor([0, 0, 1, 1])))), 1.0)


@check("HitRate", since="0.5.5", see="references/api-reference.md#hitrate-ndcg")
def _():
    pair = torch.tensor([[0.9, 0.5, 0.1], [0.9, 0.5, 0.1]]), torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    expect("of the first and the first two", of(m.HitRate([1, 2]), pair), [0.5, 1.0])


@check("SubgroupAccuracyDifference", since="0.5.4", see="references/api-reference.md#fairness-and-recommenders")
def _():
    from ignite.metrics.fairness import SubgroupAccuracyDifference

    sample = torch.tensor([1, 0, 1]), torch.tensor([1, 1, 1]), torch.tensor([0, 0, 1])
    expect("0.5 and 1.0", of(SubgroupAccuracyDifference([0, 1]), sample), 0.5)


def main(argv=None):
    return smoke_runner.main(__name__, argv)


if __name__ == "__main__":
    smoke_runner.leave(main())
