"""What the metrics of `ignite.metrics` give: for each kind of input, on one process, on two ranks.

    python tests/probes/metrics.py        prints the tables of sub-skills/metrics/references/api-reference.md

SAMPLES names for every metric three batches of 4, 2 and 3 samples. `values()` is what one process computes from them
(tests/test_metrics_values.py compares that with computations of its own), `ranks()` what two ranks make of them: rank 0
with the first two batches and rank 1 with the third, and rank 0 with all and rank 1 with none. `inputs()` feeds each
kind of input to each classification metric.
"""

from __future__ import annotations

import math
import sys
import traceback
import warnings
from collections.abc import Callable
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import ignite.distributed as idist  # noqa: E402
import ignite.metrics as m  # noqa: E402
from ignite.metrics import confusion_matrix, fairness, mean_average_precision, regression  # noqa: E402
from support.world import run_world  # noqa: E402

SIZES = (4, 2, 3)  # samples in each batch
N = sum(SIZES)

with patch("torch.library.register_fake", lambda name: lambda function: function):
    # a torchvision built for CUDA beside a torch built for CPU lacks its operators; the box functions need none
    import torchvision.ops.boxes  # noqa: E402, F401


def wave(*shape: int, phase: float = 0.0) -> torch.Tensor:
    """Floats between -1 and 1, the same everywhere."""
    return torch.sin(torch.arange(math.prod(shape), dtype=torch.float32) * 2.4 + phase).reshape(shape)


BINARY = (torch.tensor([1, 0, 1, 1, 0, 0, 1, 0, 1]), torch.tensor([1, 0, 0, 1, 1, 0, 1, 0, 0]))
TARGET = torch.tensor([0, 1, 2, 2, 1, 0, 0, 2, 1])
SCORES = (wave(N, 3) + 0.9 * torch.nn.functional.one_hot(TARGET, 3), TARGET)
CLASSES = (torch.tensor([0, 1, 2, 2, 0, 0, 1, 2, 2]), TARGET)
LABELS = ((wave(N, 3) > 0).long(), (wave(N, 3, phase=0.7) > 0).long())
REAL = (3 + wave(N), 3 + 2 * wave(N, phase=0.4))
VECTORS = (wave(N, 4), wave(N, 4, phase=0.5))
PROBABILITIES = ((wave(N) + 1) / 2, BINARY[1])
IMAGES = ((wave(N, 1, 16, 16) + 1) / 2, (wave(N, 1, 16, 16, phase=0.3) + 1) / 2)
CLUSTERS = (
    wave(N, 2) + torch.tensor([0, 0, 0, 4, 4, 4, 8, 8, 8.0])[:, None],
    torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2]),
)
GROUPS = (*BINARY, torch.tensor([0, 1, 0, 1, 0, 1, 0, 1, 1]))
RANKED = (wave(N, 4), (wave(N, 4, phase=1.0) > 0.3).float())
TOKENS = (wave(N, 5, 2), torch.tensor([[0, 1], [2, 3], [4, -100], [1, 1], [0, 2], [3, 3], [2, 1], [4, 4], [0, 0]]))
WORDS = "the cat sat on the mat near a dog that sat on a big red mat and ran away".split()
SENTENCES = [WORDS[i : i + 3] + WORDS[i + 5 : i + 8] for i in range(N)]
REFERENCES = [[WORDS[i : i + 6] + ["."], WORDS[i + 1 : i + 8]] for i in range(N)]
STRINGS = ([" ".join(s[:3]) for s in SENTENCES], [" ".join(s[1:4]) for s in SENTENCES])
SOFT = (torch.softmax(wave(N, 3), 1),)


def boxes(shift: float) -> torch.Tensor:
    corners = torch.arange(N, dtype=torch.float32)[:, None] * 7 + torch.tensor([0.0, 0.0, 20.0, 20.0])
    return corners + shift * torch.arange(N)[:, None]


PREDICTED = [
    {"bbox": b[None], "scores": s[None], "labels": torch.tensor([i % 2])}
    for i, (b, s) in enumerate(zip(boxes(0.5), PROBABILITIES[0]))
]
TARGETS = [{"bbox": b[None], "labels": torch.tensor([i % 2])} for i, b in enumerate(boxes(0.0))]


def cut(data: tuple) -> list[tuple]:
    """The data in batches of SIZES."""
    batches, at = [], 0
    for size in SIZES:
        batches.append(tuple(part[at : at + size] for part in data))
        at += size
    return batches


# name: (how it is made, its data); in the order of the page
SAMPLES: dict[str, tuple[Callable[[], m.Metric], tuple]] = {
    "Accuracy": (m.Accuracy, SCORES),
    "Precision": (m.Precision, SCORES),
    "Recall": (m.Recall, SCORES),
    "Fbeta": (lambda: m.Fbeta(2), SCORES),
    "ClassificationReport": (lambda: m.ClassificationReport(output_dict=True), SCORES),
    "TopKCategoricalAccuracy": (lambda: m.TopKCategoricalAccuracy(k=2), SCORES),
    "ConfusionMatrix": (lambda: m.ConfusionMatrix(3), SCORES),
    "IoU": (lambda: m.IoU(m.ConfusionMatrix(3)), SCORES),
    "mIoU": (lambda: m.mIoU(m.ConfusionMatrix(3)), SCORES),
    "JaccardIndex": (lambda: m.JaccardIndex(m.ConfusionMatrix(3)), SCORES),
    "DiceCoefficient": (lambda: m.DiceCoefficient(m.ConfusionMatrix(3)), SCORES),
    "cmAccuracy": (lambda: confusion_matrix.cmAccuracy(m.ConfusionMatrix(3)), SCORES),
    "cmPrecision": (lambda: confusion_matrix.cmPrecision(m.ConfusionMatrix(3)), SCORES),
    "cmRecall": (lambda: confusion_matrix.cmRecall(m.ConfusionMatrix(3)), SCORES),
    "MultiLabelConfusionMatrix": (lambda: m.MultiLabelConfusionMatrix(3), LABELS),
    "CohenKappa": (m.CohenKappa, CLASSES),
    "MatthewsCorrCoef": (m.MatthewsCorrCoef, SCORES),
    "ROC_AUC": (m.ROC_AUC, PROBABILITIES),
    "RocCurve": (m.RocCurve, PROBABILITIES),
    "AveragePrecision": (m.AveragePrecision, PROBABILITIES),
    "PrecisionRecallCurve": (m.PrecisionRecallCurve, PROBABILITIES),
    "MeanAveragePrecision": (m.MeanAveragePrecision, SCORES),
    "Entropy": (m.Entropy, SCORES),
    "Average": (m.Average, REAL[:1]),
    "GeometricAverage": (m.GeometricAverage, REAL[:1]),
    "VariableAccumulation": (lambda: m.VariableAccumulation(lambda total, x: total + x), REAL[:1]),
    "Loss": (lambda: m.Loss(torch.nn.functional.cross_entropy), SCORES),
    "EpochMetric": (lambda: m.EpochMetric(lambda y_pred, y: (y_pred - y).abs().max().item()), REAL),
    "MeanSquaredError": (m.MeanSquaredError, REAL),
    "MeanAbsoluteError": (m.MeanAbsoluteError, REAL),
    "RootMeanSquaredError": (m.RootMeanSquaredError, REAL),
    "MeanPairwiseDistance": (m.MeanPairwiseDistance, VECTORS),
    "CosineSimilarity": (m.CosineSimilarity, VECTORS),
    **{n: (getattr(regression, n), REAL) for n in sorted(vars(regression)) if n[0].isupper()},
    "KLDivergence": (m.KLDivergence, VECTORS),
    "JSDivergence": (m.JSDivergence, VECTORS),
    "MutualInformation": (m.MutualInformation, SCORES),
    "HSIC": (lambda: m.HSIC(1.0, 1.0), VECTORS),
    "MaximumMeanDiscrepancy": (m.MaximumMeanDiscrepancy, (VECTORS[0], VECTORS[1] + 1)),
    "CalinskiHarabaszScore": (lambda: m.clustering.CalinskiHarabaszScore(check_compute_fn=False), CLUSTERS),
    "DaviesBouldinScore": (lambda: m.clustering.DaviesBouldinScore(check_compute_fn=False), CLUSTERS),
    "SilhouetteScore": (lambda: m.clustering.SilhouetteScore(check_compute_fn=False), CLUSTERS),
    "Bleu": (lambda: m.Bleu(ngram=2), (SENTENCES, REFERENCES)),
    "Rouge": (lambda: m.Rouge([1]), (SENTENCES, REFERENCES)),
    "RougeN": (lambda: m.RougeN(2), (SENTENCES, REFERENCES)),
    "RougeL": (m.RougeL, (SENTENCES, REFERENCES)),
    "CharacterErrorRate": (m.CharacterErrorRate, STRINGS),
    "Perplexity": (m.Perplexity, TOKENS),
    "PSNR": (lambda: m.PSNR(1.0), IMAGES),
    "SSIM": (lambda: m.SSIM(1.0), IMAGES),
    "ObjectDetectionAvgPrecisionRecall": (
        lambda: m.ObjectDetectionAvgPrecisionRecall(num_classes=2),
        (PREDICTED, TARGETS),
    ),
    "CommonObjectDetectionMetrics": (lambda: m.CommonObjectDetectionMetrics(num_classes=2), (PREDICTED, TARGETS)),
    "InceptionScore": (lambda: m.InceptionScore(3, torch.nn.Identity()), SOFT),
    "FID": (lambda: m.FID(4, torch.nn.Identity()), VECTORS),
    "SelectionRate": (fairness.SelectionRate, BINARY),
    "SubgroupMetric": (lambda: fairness.SubgroupMetric(m.Accuracy(), [0, 1]), GROUPS),
    "SubgroupDifference": (lambda: fairness.SubgroupDifference(m.Accuracy(), [0, 1]), GROUPS),
    "SubgroupAccuracyDifference": (lambda: fairness.SubgroupAccuracyDifference([0, 1]), GROUPS),
    "DemographicParityDifference": (lambda: fairness.DemographicParityDifference([0, 1]), GROUPS),
    "HitRate": (lambda: m.HitRate([1, 2]), RANKED),
    "NDCG": (lambda: m.NDCG([1, 2]), RANKED),
    "MetricGroup": (lambda: m.MetricGroup({"a": m.Accuracy(), "p": m.Precision()}), SCORES),
    "MetricsLambda": (
        lambda: m.MetricsLambda(lambda a, b: a - b, m.Accuracy(), m.Loss(torch.nn.functional.nll_loss)),
        SCORES,
    ),
}


def feed(metric: m.Metric, batches: list[tuple]) -> m.Metric:
    for batch in batches:
        metric.update(batch if len(batch) > 1 else batch[0])
    return metric


def one_by_one(name: str) -> bool:
    """Average and the like take a number or a vector as one sample, so they get their data number by number."""
    return name in ("Average", "GeometricAverage", "VariableAccumulation")


def fed(name: str, batches: list[tuple]) -> m.Metric:
    metric = SAMPLES[name][0]()
    if one_by_one(name):
        return feed(metric, [(x,) for batch in batches for x in batch[0]])
    return feed(metric, batches)


def plain(value: Any) -> Any:
    """The value without tensors, rounded to 4 digits."""
    if isinstance(value, torch.Tensor):
        value = value.tolist()
    if hasattr(value, "dtype"):
        value = value.item()
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


@cache
def values() -> dict[str, Any]:
    """What each metric gives for its samples on one process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: plain(fed(name, cut(data)).compute()) for name, (_, data) in SAMPLES.items()}


def close(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(close, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(close(a[k], b[k]) for k in a)
    return a == b or math.isclose(a, b, rel_tol=1e-3)


def shares(name: str, rank: int, empty: bool) -> list[tuple]:
    batches = cut(SAMPLES[name][1])
    if empty:
        return [batches, []][rank]
    return [batches[:2], batches[2:]][rank]


def equal_shares(name: str, rank: int) -> list[tuple]:
    """A batch of 4 for each rank."""
    data = SAMPLES[name][1]
    return [tuple(part[rank * 4 : rank * 4 + 4] for part in data)]


def calls(name: str, rank: int, empty: bool, first: list | None = None) -> list[tuple[str, Any]]:
    """The collectives that `compute` asks for on that rank of two, with types and shapes, and the values; an exception
    is the last. They are not carried out; a reduction adds what `first`, the calls of rank 0, has there, if it fits."""
    asked: list[tuple[str, Any]] = []

    def reduce(x, op="SUM", group=None):
        what = f"all_reduce {described(x)}"
        other = first[len(asked)] if first and len(asked) < len(first) else ("", 0)
        asked.append((what, x))
        if other[0] != what:
            return x
        return x + other[1] if op == "SUM" else max(x, other[1])

    def gather(x, group=None):
        asked.append((f"all_gather {described(x)}", x))
        return torch.cat([x, x])

    def gather_shapes(x, shapes, group=None):
        asked.append(("all_gather_tensors_with_shapes", x))
        return [x]

    def broadcast(x, src=0, safe_mode=False):
        asked.append(("broadcast", x))
        return x

    metric = fed(name, shares(name, rank, empty))
    with (
        patch.object(idist, "get_world_size", lambda: 2),
        patch.object(idist, "get_rank", lambda: rank),
        patch.object(idist, "all_reduce", reduce),
        patch.object(idist, "all_gather", gather),
        patch.object(idist, "broadcast", broadcast),
        patch.object(mean_average_precision, "all_gather_tensors_with_shapes", gather_shapes),
    ):
        try:
            metric.compute()
        except Exception as e:
            asked.append((f"{type(e).__name__}: {e}", None))
    return asked


def described(x: Any) -> str:
    if isinstance(x, torch.Tensor):
        return f"{x.dtype} {tuple(x.shape)}"
    return type(x).__name__


def kind(name: str, empty: bool) -> str:
    """What the calls of two ranks are to each other."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zero = calls(name, 0, empty)
        first, second = [c for c, _ in zero], [c for c, _ in calls(name, 1, empty, zero)]
    assert first, f"{name} communicates nothing"
    for a, b in zip_longest(first, second, fillvalue=""):
        if a == b:
            continue
        if "Error: " in b:
            return b.split(":")[0]
        if a.startswith("all_gather ") and b.startswith("all_gather "):
            return "lengths differ"
        assert a.split()[0] == b.split()[0], (name, first, second)
        return "shapes differ" if a.split()[1] == b.split()[1] else "types differ"
    return "any length" if "all_gather_tensors_with_shapes" in first else "same calls"


def on_two_ranks(names: list[str], empty: bool, equal: bool = False, timeout: float = 4) -> dict[str, list]:
    """What `compute` gives on each of two ranks, for one metric after the other in one world; an exception ends it."""

    def main(rank):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            given = {name: equal_shares(name, rank) if equal else shares(name, rank, empty) for name in names}
            return {name: plain(fed(name, given[name]).compute()) for name in names}

    outcomes = run_world(2, main, timeout=timeout, limit=60)
    results = [
        o.value if o.ok else f"{o.error}: {o.message}" if o.error else f"signal {-o.exit_code}" for o in outcomes
    ]
    if all(o.ok for o in outcomes):
        return {name: [r[name] for r in results] for name in names}
    return {name: results for name in names}


FOUR = torch.tensor([[2.0, 0.1, 0.3], [0.2, 0.9, 0.1], [0.3, 0.2, 0.8], [0.5, 0.4, 0.6]])
INPUTS: dict[str, tuple] = {  # how it is written: y_pred, y, is_multilabel
    "`(N,)` 0/1 · `(N,)` 0/1": (torch.tensor([1, 0, 1, 1]), torch.tensor([1, 0, 0, 1])),
    "`(N,)` probabilities · `(N,)` 0/1": (torch.tensor([0.9, 0.2, 0.6, 0.7]), torch.tensor([1, 0, 0, 1])),
    "`(N, 1)` 0/1 · `(N,)` 0/1": (torch.tensor([[1], [0], [1], [1]]), torch.tensor([1, 0, 0, 1])),
    "`(N, 1)` 0/1 · `(N, 1)` 0/1": (torch.tensor([[1], [0], [1], [1]]), torch.tensor([[1], [0], [0], [1]])),
    "`(N,)` classes · `(N,)` classes": (torch.tensor([0, 1, 2, 2]), torch.tensor([0, 1, 2, 0])),
    "`(N, C)` scores · `(N,)` classes": (FOUR, torch.tensor([0, 1, 2, 0])),
    "`(N, C)` scores · `(N,)` with a class C": (FOUR, torch.tensor([0, 1, 2, 3])),
    "`(N, C, L)` scores · `(N, L)` classes": (
        torch.stack([FOUR, FOUR], 2),
        torch.tensor([[0, 1], [1, 1], [2, 2], [0, 2]]),
    ),
    "`(N, C)` scores · `(N, C)` one-hot": (FOUR, torch.nn.functional.one_hot(torch.tensor([0, 1, 2, 0]), 3)),
    "`(N, C)` 0/1 · `(N, C)` 0/1": ((FOUR > 0.35).long(), torch.tensor([[1, 0, 0], [0, 1, 0], [1, 0, 1], [0, 0, 1]])),
    "the same, `is_multilabel=True`": (
        (FOUR > 0.35).long(),
        torch.tensor([[1, 0, 0], [0, 1, 0], [1, 0, 1], [0, 0, 1]]),
        True,
    ),
    "`(N, C)` scores · `(N, C)` 0/1, `is_multilabel=True`": (
        FOUR,
        torch.tensor([[1, 0, 0], [0, 1, 0], [1, 0, 1], [0, 0, 1]]),
        True,
    ),
}
TAKERS: dict[str, Callable[[bool], m.Metric]] = {
    "Accuracy": lambda many: m.Accuracy(is_multilabel=many),
    "Precision": lambda many: m.Precision(is_multilabel=many),
    "Recall": lambda many: m.Recall(is_multilabel=many),
    "MeanAveragePrecision": lambda many: m.MeanAveragePrecision(is_multilabel=many),
    "SelectionRate": lambda many: fairness.SelectionRate(is_multilabel=many),
    "ConfusionMatrix": lambda many: m.ConfusionMatrix(3),
    "MultiLabelConfusionMatrix": lambda many: m.MultiLabelConfusionMatrix(3),
    "TopKCategoricalAccuracy": lambda many: m.TopKCategoricalAccuracy(k=2),
    "CohenKappa": lambda many: m.CohenKappa(),
    "MatthewsCorrCoef": lambda many: m.MatthewsCorrCoef(),
    "ROC_AUC": lambda many: m.ROC_AUC(),
    "AveragePrecision": lambda many: m.AveragePrecision(),
}
FIRST_HALF = ("Accuracy", "Precision", "Recall", "MeanAveragePrecision", "SelectionRate", "ConfusionMatrix")


def given(name: str, kind_of_input: str) -> str:
    """What the metric gives for one batch: `0.75`, `[1.0, 0.5]`, or the exception."""
    y_pred, y, *many = INPUTS[kind_of_input]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            metric = TAKERS[name](bool(many))
            metric.update((y_pred, y))
            return f"`{str(plain(metric.compute())).replace(' ', '')}`"
    except Exception as e:
        where = traceback.extract_tb(e.__traceback__)[-1].filename
        text = "(raised by scikit-learn)" if "sklearn" in where else str(e).replace("`", "")
        return f"{type(e).__name__}: {text}"


@cache
def inputs() -> tuple[list[list[list[str]]], list[list[str]]]:
    """Two tables of cells, a row per kind of input and a column per metric, and the table of the exceptions that the
    letters in them stand for."""
    letters: dict[str, str] = {}
    tables = []
    for names in (FIRST_HALF, [n for n in TAKERS if n not in FIRST_HALF]):
        rows = [["`y_pred` · `y`", *(f"`{n}`" for n in names)]]
        for written in INPUTS:
            cells = []
            for name in names:
                cell = given(name, written)
                if "Error: " in cell:
                    cell = letters.setdefault(cell, chr(ord("A") + len(letters)))
                cells.append(cell)
            rows.append([written, *cells])
        tables.append(rows)
    return tables, [["", "exception"], *([letter, f"`{text}`"] for text, letter in letters.items())]


def markdown(rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "| " + " | ".join("---" for _ in rows[0]) + " |", *lines[1:]]) + "\n"


if __name__ == "__main__":
    tables, exceptions = inputs()
    for rows in (*tables, exceptions):
        print(markdown(rows))
