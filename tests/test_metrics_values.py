"""Promise: each metric gives the number that a computation of its own in numpy or scikit-learn gives, whatever the
sizes of the batches, and on two ranks with unequal shares where api-reference.md says so.

The samples are those of tests/probes/metrics.py; a metric without a computation here turns this red.
"""

from __future__ import annotations

import math
from collections import Counter

import ignite.metrics
import numpy as np
import pytest
import sklearn.metrics as sk
import torch
from ignite.metrics import clustering, fairness, regression
from probes import metrics as probe
from scipy import linalg, signal, stats
from support.claims import COUNTS

SCORES, TARGET = (np.asarray(x) for x in probe.SCORES)
CHOSEN = SCORES.argmax(1)
P, Y = (np.asarray(x, dtype=np.float64) for x in probe.REAL)
A, B = (np.asarray(x, dtype=np.float64) for x in probe.VECTORS)
CONFUSION = np.array([[((TARGET == i) & (CHOSEN == j)).sum() for j in range(3)] for i in range(3)])
UNION = CONFUSION.sum(0) + CONFUSION.sum(1) - CONFUSION.diagonal()
GUESSED, TRUE, GROUP = (np.asarray(x) for x in probe.GROUPS)


def softmax(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


SOFT, SOFT_A, SOFT_B = softmax(SCORES), softmax(A), softmax(B)


def kl(p, q):
    return (p * np.log(p / q)).sum(1)


def report():
    by_class = [
        {"precision": p, "recall": r, "f1-score": f}
        for p, r, f, _ in zip(*sk.precision_recall_fscore_support(TARGET, CHOSEN))
    ]
    mean = {k: float(np.mean([c[k] for c in by_class])) for k in by_class[0]}
    return {**{str(i): c for i, c in enumerate(by_class)}, "macro avg": mean}


def hsic():
    """Of each batch of more than 3 samples the unbiased estimate (Song et al., 2012), averaged over these batches."""
    found = []
    for x, y in probe.cut((A, B)):
        n = len(x)
        if n < 4:
            continue
        k, l = (np.exp(-0.5 * ((v[:, None] - v[None]) ** 2).sum(2)) * (1 - np.eye(n)) for v in (x, y))
        one = np.ones(n)
        middle = (one @ k @ one) * (one @ l @ one) / ((n - 1) * (n - 2))
        found.append((np.trace(k @ l) + middle - 2 / (n - 2) * one @ k @ l @ one) / (n * (n - 3)))
    return np.mean(found)


def mmd():
    """Of each batch the unbiased square; the root of the mean of the squares, so it depends on the batches."""
    squares = []
    for x, y in probe.cut((A, B + 1)):
        n = len(x)
        xx, yy, xy = (np.exp(-0.5 * ((a[:, None] - b[None]) ** 2).sum(2)) for a, b in ((x, x), (y, y), (x, y)))
        squares.append((xx.sum() + yy.sum() - 2 * n) / (n * (n - 1)) - 2 * xy.mean())
    return math.sqrt(np.mean(squares))


def grams(words, n):
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def bleu(candidate, references):
    precisions = []
    for n in (1, 2):
        best = Counter()
        for r in references:
            best |= grams(r, n)
        precisions.append(sum((grams(candidate, n) & best).values()) / sum(grams(candidate, n).values()))
    length = min((len(r) for r in references), key=lambda r: (abs(r - len(candidate)), r))
    shorter = math.exp(1 - length / len(candidate)) if len(candidate) < length else 1
    return shorter * math.sqrt(precisions[0] * precisions[1])


def longest_common(a, b):
    if not a or not b:
        return 0
    if a[-1] == b[-1]:
        return 1 + longest_common(a[:-1], b[:-1])
    return max(longest_common(a[:-1], b), longest_common(a, b[:-1]))


def rouge(name, matches, count):
    """Precision, recall and F (which is the recall, since alpha is 0) of the references taken together."""
    precision, recall = [], []
    for candidate, references in zip(probe.SENTENCES, probe.REFERENCES):
        found = sum(matches(candidate, r) for r in references)
        precision.append(found / (len(references) * count(candidate)))
        recall.append(found / sum(count(r) for r in references))
    return {f"{name}-P": np.mean(precision), f"{name}-R": np.mean(recall), f"{name}-F": np.mean(recall)}


def rouge_n(n):
    return rouge(f"Rouge-{n}", lambda c, r: sum((grams(c, n) & grams(r, n)).values()), lambda words: len(words) - n + 1)


def distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a):
        new = [i + 1]
        for j, y in enumerate(b):
            new.append(min(row[j] + (x != y), row[j + 1] + 1, new[j] + 1))
        row = new
    return row[-1]


def character_errors():
    pairs = list(zip(*probe.STRINGS))
    return sum(distance(p, y) for p, y in pairs) / sum(len(y) for _, y in pairs)


def perplexity():
    scores, y = (np.asarray(x) for x in probe.TOKENS)
    p = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    logs = [-math.log(p[i, y[i, t], t]) for i in range(len(y)) for t in range(2) if y[i, t] != -100]
    return math.exp(np.mean(logs))


def psnr():
    x, y = (np.asarray(v, dtype=np.float64) for v in probe.IMAGES)
    return np.mean(10 * np.log10(1 / ((x - y) ** 2).mean((1, 2, 3))))


def ssim():
    """Wang et al., 2004: Gaussian window of 11 with sigma 1.5, the border reflected."""
    line = np.exp(-0.5 * (np.arange(-5, 6) / 1.5) ** 2)
    window = np.outer(line, line) / np.outer(line, line).sum()
    found = []
    for x, y in zip(*(np.asarray(v, dtype=np.float64)[:, 0] for v in probe.IMAGES)):
        x, y = np.pad(x, 5, mode="reflect"), np.pad(y, 5, mode="reflect")
        mean = lambda v: signal.convolve2d(v, window, mode="valid")
        mx, my = mean(x), mean(y)
        vx, vy, cov = mean(x * x) - mx**2, mean(y * y) - my**2, mean(x * y) - mx * my
        c1, c2 = 0.01**2, 0.03**2
        found.append(((2 * mx * my + c1) * (2 * cov + c2) / ((mx**2 + my**2 + c1) * (vx + vy + c2))).mean())
    return np.mean(found)


def inception():
    p = np.asarray(probe.SOFT[0], dtype=np.float64)
    return math.exp(kl(p, p.mean(0)).mean())


def fid():
    a, b = np.cov(A.T), np.cov(B.T)
    return ((A.mean(0) - B.mean(0)) ** 2).sum() + np.trace(a + b - 2 * linalg.sqrtm(a @ b).real)


def detection():
    """Each image has one object and one box, so a box is a hit or not at each threshold of overlap. The thresholds of
    recall are the metric's: of 32 bits, so that a recall of 0.2 does not reach the threshold 0.2."""
    pairs = list(zip(probe.PREDICTED, probe.TARGETS))
    precisions, recalls = {}, {}
    for label in (0, 1):
        own = [(p, t) for p, t in pairs if int(p["labels"]) == label]
        own.sort(key=lambda pair: -float(pair[0]["scores"]))
        for threshold in np.linspace(0.5, 0.95, 10):
            hits = np.array([overlap(p["bbox"][0].tolist(), t["bbox"][0].tolist()) >= threshold for p, t in own])
            precision, recall = hits.cumsum() / np.arange(1, len(hits) + 1), hits.cumsum() / len(own)
            reached = [precision[recall >= r] for r in torch.linspace(0, 1, 101).tolist()]
            precisions[label, threshold] = np.mean([p.max() if len(p) else 0 for p in reached])
            recalls[label, threshold] = recall[-1]
    return precisions, recalls


def overlap(a, b):
    width, height = (max(0, min(a[i + 2], b[i + 2]) - max(a[i], b[i])) for i in (0, 1))
    area = lambda c: (c[2] - c[0]) * (c[3] - c[1])
    return width * height / (area(a) + area(b) - width * height)


def detection_means():
    precisions, recalls = detection()
    return [np.mean(list(precisions.values())), np.mean(list(recalls.values()))]


def common_detection():
    precisions, recalls = detection()
    mean, recall = detection_means()
    thresholds = np.linspace(0.5, 0.95, 10)
    at = lambda t: np.mean([v for (_, threshold), v in precisions.items() if threshold == thresholds[t]])
    none = {f"{what}-{size}": -1.0 for size in "ML" for what in ("AP", "AR")}
    return {"AP@50..95": mean, "AR-100": recall, "AP@50": at(0), "AP@75": at(5), "AP-S": mean, "AR-S": recall, **none,
            "AR-1": recall, "AR-10": recall}  # fmt: skip


def by_group(function):
    return {g: function(GUESSED[GROUP == g], TRUE[GROUP == g]) for g in (0, 1)}


def accuracy(guessed, true):
    return float((guessed == true).mean())


def spread(by):
    return max(by.values()) - min(by.values())


def ranked(function):
    scores, y = (np.asarray(v) for v in probe.RANKED)
    kept = y.any(1)
    return [np.mean([function(s, t, k) for s, t in zip(scores[kept], y[kept])]) for k in (1, 2)]


def hit(scores, y, k):
    return float(y[np.argsort(-scores)[:k]].any())


def ndcg(scores, y, k):
    gain = lambda order: sum((2 ** y[i] - 1) / math.log2(place + 2) for place, i in enumerate(order[:k]))
    return gain(np.argsort(-scores)) / gain(np.argsort(-y))


def average_precisions():
    return [sk.average_precision_score(TARGET == c, SCORES[:, c]) for c in range(3)]


def curve(function):
    return [list(v) for v in function(np.asarray(probe.PROBABILITIES[1]), np.asarray(probe.PROBABILITIES[0]))]


LOGITS = -np.log(SOFT[np.arange(len(TARGET)), TARGET]).mean()
EXPECTED = {
    "Accuracy": lambda: accuracy(CHOSEN, TARGET),
    "Precision": lambda: sk.precision_score(TARGET, CHOSEN, average=None).tolist(),
    "Recall": lambda: sk.recall_score(TARGET, CHOSEN, average=None).tolist(),
    "Fbeta": lambda: sk.fbeta_score(TARGET, CHOSEN, beta=2, average="macro"),
    "ClassificationReport": report,
    "TopKCategoricalAccuracy": lambda: sk.top_k_accuracy_score(TARGET, SCORES, k=2),
    "ConfusionMatrix": CONFUSION.tolist,
    "IoU": lambda: sk.jaccard_score(TARGET, CHOSEN, average=None).tolist(),
    "mIoU": lambda: sk.jaccard_score(TARGET, CHOSEN, average="macro"),
    "JaccardIndex": lambda: (CONFUSION.diagonal() / UNION).tolist(),
    "DiceCoefficient": lambda: sk.f1_score(TARGET, CHOSEN, average=None).tolist(),
    "cmAccuracy": lambda: accuracy(CHOSEN, TARGET),
    "cmPrecision": lambda: sk.precision_score(TARGET, CHOSEN, average="macro"),
    "cmRecall": lambda: sk.recall_score(TARGET, CHOSEN, average="macro"),
    "MultiLabelConfusionMatrix": lambda: sk.multilabel_confusion_matrix(*map(np.asarray, probe.LABELS[::-1])).tolist(),
    "CohenKappa": lambda: sk.cohen_kappa_score(*map(np.asarray, probe.CLASSES)),
    "MatthewsCorrCoef": lambda: sk.matthews_corrcoef(TARGET, CHOSEN),
    "ROC_AUC": lambda: sk.roc_auc_score(*map(np.asarray, probe.PROBABILITIES[::-1])),
    "RocCurve": lambda: curve(sk.roc_curve),
    "AveragePrecision": lambda: sk.average_precision_score(*map(np.asarray, probe.PROBABILITIES[::-1])),
    "PrecisionRecallCurve": lambda: curve(sk.precision_recall_curve),
    "MeanAveragePrecision": lambda: np.mean(average_precisions()),
    "Entropy": lambda: -(SOFT * np.log(SOFT)).sum(1).mean(),
    "Average": lambda: P.mean(),
    "GeometricAverage": lambda: math.exp(np.log(P).mean()),
    "VariableAccumulation": lambda: [P.sum(), len(P)],
    "Loss": lambda: LOGITS,
    "EpochMetric": lambda: np.abs(P - Y).max(),
    "MeanSquaredError": lambda: sk.mean_squared_error(Y, P),
    "MeanAbsoluteError": lambda: sk.mean_absolute_error(Y, P),
    "RootMeanSquaredError": lambda: sk.root_mean_squared_error(Y, P),
    "MeanPairwiseDistance": lambda: np.sqrt(((A - B) ** 2).sum(1)).mean(),
    "CosineSimilarity": lambda: np.mean([a @ b / math.sqrt((a @ a) * (b @ b)) for a, b in zip(A, B)]),
    "CanberraMetric": lambda: (np.abs(Y - P) / (np.abs(Y) + np.abs(P))).sum(),
    "FractionalAbsoluteError": lambda: (2 * np.abs(Y - P) / (np.abs(Y) + np.abs(P))).mean(),
    "FractionalBias": lambda: (2 * (Y - P) / (Y + P)).mean(),
    "GeometricMeanAbsoluteError": lambda: stats.gmean(np.abs(Y - P)),
    "GeometricMeanRelativeAbsoluteError": lambda: stats.gmean(np.abs(Y - P) / np.abs(Y - Y.mean())),
    "KendallRankCorrelation": lambda: stats.kendalltau(P, Y).statistic,
    "ManhattanDistance": lambda: np.abs(Y - P).sum(),
    "MaximumAbsoluteError": lambda: sk.max_error(Y, P),
    "MeanAbsoluteRelativeError": lambda: sk.mean_absolute_percentage_error(Y, P),
    "MeanError": lambda: (Y - P).mean(),
    "MeanNormalizedBias": lambda: ((Y - P) / Y).mean(),
    "MedianAbsoluteError": lambda: sk.median_absolute_error(Y, P),
    "MedianAbsolutePercentageError": lambda: 100 * np.median(np.abs(Y - P) / np.abs(Y)),
    "MedianRelativeAbsoluteError": lambda: np.median(np.abs(Y - P) / np.abs(Y - Y.mean())),
    "PearsonCorrelation": lambda: np.corrcoef(P, Y)[0, 1],
    "R2Score": lambda: sk.r2_score(Y, P),
    "SpearmanRankCorrelation": lambda: stats.spearmanr(P, Y).statistic,
    "WaveHedgesDistance": lambda: (np.abs(Y - P) / np.maximum(Y, P)).sum(),
    "KLDivergence": lambda: kl(SOFT_B, SOFT_A).mean(),
    "JSDivergence": lambda: ((kl(SOFT_A, (SOFT_A + SOFT_B) / 2) + kl(SOFT_B, (SOFT_A + SOFT_B) / 2)) / 2).mean(),
    "MutualInformation": lambda: kl(SOFT, SOFT.mean(0)).mean(),
    "HSIC": hsic,
    "MaximumMeanDiscrepancy": mmd,
    "CalinskiHarabaszScore": lambda: sk.calinski_harabasz_score(*map(np.asarray, probe.CLUSTERS)),
    "DaviesBouldinScore": lambda: sk.davies_bouldin_score(*map(np.asarray, probe.CLUSTERS)),
    "SilhouetteScore": lambda: sk.silhouette_score(*map(np.asarray, probe.CLUSTERS)),
    "Bleu": lambda: np.mean([bleu(c, r) for c, r in zip(probe.SENTENCES, probe.REFERENCES)]),
    "Rouge": lambda: rouge_n(1),
    "RougeN": lambda: rouge_n(2),
    "RougeL": lambda: rouge("Rouge-L", longest_common, len),
    "CharacterErrorRate": character_errors,
    "Perplexity": perplexity,
    "PSNR": psnr,
    "SSIM": ssim,
    "ObjectDetectionAvgPrecisionRecall": detection_means,
    "CommonObjectDetectionMetrics": common_detection,
    "InceptionScore": inception,
    "FID": fid,
    "SelectionRate": lambda: [1 - GUESSED.mean(), GUESSED.mean()],
    "SubgroupMetric": lambda: by_group(accuracy),
    "SubgroupDifference": lambda: spread(by_group(accuracy)),
    "SubgroupAccuracyDifference": lambda: spread(by_group(accuracy)),
    "DemographicParityDifference": lambda: spread(by_group(lambda guessed, true: guessed.mean())),
    "HitRate": lambda: ranked(hit),
    "NDCG": lambda: ranked(ndcg),
    "MetricGroup": lambda: {
        "a": accuracy(CHOSEN, TARGET),
        "p": sk.precision_score(TARGET, CHOSEN, average=None).tolist(),
    },
    "MetricsLambda": lambda: accuracy(CHOSEN, TARGET) + SCORES[np.arange(len(TARGET)), TARGET].mean(),
}
BASES = {"Metric", "RunningAverage", "Frequency", "GpuInfo"}  # no samples: no number of their own, a clock, a device


def numbers(value):
    """The numbers of a value in order, with the keys of dicts."""
    if isinstance(value, dict):
        return [x for k, v in value.items() for x in (k, *numbers(v))]
    if isinstance(value, (list, tuple, np.ndarray)):
        return [x for v in value for x in numbers(v)]
    return [value]


def compare(given, wanted):
    given, wanted = numbers(given), numbers(wanted)
    assert len(given) == len(wanted), (given, wanted)
    for a, b in zip(given, wanted):
        assert a == b or math.isclose(float(a), float(b), rel_tol=6e-4, abs_tol=1e-6), (given, wanted)


def test_every_metric_has_samples_and_a_computation():
    names = {n for n in ignite.metrics.__all__ if n[0].isupper() or n == "mIoU"}
    for module in (regression, clustering, fairness):
        names |= {n for n in vars(module) if n[0].isupper()}
    assert names - BASES <= set(probe.SAMPLES), names - BASES - set(probe.SAMPLES)
    assert set(probe.SAMPLES) == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_value(name):
    compare(probe.values()[name], EXPECTED[name]())
    COUNTS["metrics compared with a computation of its own"] += 1


def test_two_ranks_with_unequal_shares():
    names = [n for n in probe.SAMPLES if probe.kind(n, empty=False) in ("same calls", "any length")]
    assert len(names) > 50
    for name, results in probe.on_two_ranks(names, empty=False).items():
        assert isinstance(results, list) and len(results) == 2 and not isinstance(results[0], str), results
        for result in results:
            compare(result, EXPECTED[name]())
        COUNTS["metrics compared on two ranks with unequal shares"] += 1


def test_two_ranks_of_which_one_has_no_sample():
    names = [n for n in probe.SAMPLES if probe.kind(n, empty=True) in ("same calls", "any length")]
    assert len(names) > 50
    for name, results in probe.on_two_ranks(names, empty=True).items():
        for result in results:
            compare(result, EXPECTED[name]())
        COUNTS["metrics compared on two ranks of which one is empty"] += 1


def test_two_ranks_with_equal_shares_agree_where_all_is_gathered():
    names = [n for n in probe.SAMPLES if probe.kind(n, empty=False) == "lengths differ"]
    assert names
    for name, results in probe.on_two_ranks(names, empty=False, equal=True).items():
        for result in results:
            compare(
                result,
                probe.plain(probe.fed(name, probe.equal_shares(name, 0) + probe.equal_shares(name, 1)).compute()),
            )
