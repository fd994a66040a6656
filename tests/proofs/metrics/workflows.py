"""Proofs of the prose of workflows.md; its programs are run by test_examples_run.py."""

from __future__ import annotations

import importlib.util

import ignite.metrics as m
import torch
from ignite.engine import Events
from probes import metrics as probe
from support import BUNDLE
from support.examples import find_examples
from support.pages import find_entry, read_page
from support.world import run_world, values
from torch.utils.data import DataLoader, DistributedSampler

from .api_reference import BINARY
from .facts import REFERENCE, ROOM, T, engine, fact, one, quietly, ran, seen

PAGE = f"{ROOM}/references/workflows.md"


def shows(heading: str, *pieces: str) -> None:
    """The recipe's program holds each piece."""
    text = "".join(f.text for e in read_page(PAGE).entries if e.heading == heading for f in e.fences)
    missing = [p for p in pieces if p not in text]
    assert not missing, f"the program under «{heading}» lacks {missing}"


@fact(PAGE, "Workflows with ignite.metrics")
def introduction():
    examples = [e for e in find_examples(PAGE) if e.name]
    assert examples and all(c.expected for e in find_examples(PAGE) for c in e.commands)
    assert find_entry(f"{REFERENCE}#accuracy").fences
    return "Complete programs: file, command, output. What a single metric takes stands in api-reference.md."


@fact(PAGE, "Contents")
def contents():
    return " ".join(e.heading for e in read_page(PAGE).entries if e.level == 2 and e.anchor != "contents")


@fact(PAGE, "Evaluate a model")
def evaluate():
    whole = (torch.cat([p for p, _ in BINARY]), torch.cat([y for _, y in BINARY]))
    assert one(m.Accuracy(), *BINARY) == one(m.Accuracy(), whole) and len(BINARY[-1][0]) < len(BINARY[0][0])
    pairs = [(p.float(), y.float()) for p, y in BINARY]
    mse = torch.nn.functional.mse_loss
    assert one(m.Loss(mse), *pairs) == probe.plain(mse(*(x.float() for x in whole)).item())
    return (
        "The values belong to all samples, whatever the size of the last batch. `Loss` takes the batch's mean and"
        " weights it."
    )


@fact(PAGE, "Evaluate on several processes, exactly")
def on_ranks():
    data = list(range(5))
    sampled = [x for rank in (0, 1) for x in DataLoader(data, sampler=DistributedSampler(data, 2, rank, shuffle=False))]
    assert len(sampled) > len(data)
    assert sorted(x for rank in (0, 1) for x in data[rank::2]) == data
    shows(
        "Evaluate on several processes, exactly",
        "range(idist.get_rank(), len(data), idist.get_world_size())",
        "if idist.get_rank() == 0:\n        print(",
    )
    return (
        "Each rank reads every n-th sample with a plain `torch.utils.data.DataLoader`, since a distributed sampler"
        " would repeat samples to fill up. Every rank runs the evaluator; one prints."
    )


@fact(PAGE, "Evaluate on several processes, exactly")
def each_a_sample():
    assert probe.kind("Recall", True) == "types differ" and find_entry(f"{REFERENCE}#across-ranks")
    return "More nodes: nothing to change here. Each rank needs a sample: see Across ranks."


@fact(PAGE, "Follow a training run")
def follow():
    late, found = engine(), []
    late.add_event_handler(Events.EPOCH_COMPLETED, lambda e: found.append(e.state.metrics.get("m")))
    m.Accuracy().attach(late, "m")
    late.run(BINARY)
    assert found == [None]
    smooth = quietly(lambda: seen(m.RunningAverage(m.Accuracy(), alpha=0.5), BINARY))
    alone = quietly(lambda: seen(m.Accuracy(), BINARY, usage="batch_wise"))
    assert smooth == [1.0, 0.5, 0.25] and alone == [one(m.Accuracy(), b) for b in BINARY]
    assert ran(m.Accuracy(), BINARY) == {"m": one(m.Accuracy(), *BINARY)}
    return (
        "Attach before you register the handler that reads. `RunningAverage` smooths over iterations; one object with"
        " the usage for batches gives each batch alone, another one the whole epoch."
    )


@fact(PAGE, "Combine metrics")
def combine():
    both = m.Precision() + m.Recall()
    assert isinstance(both, m.Metric)
    assert ran(both, BINARY)["m"] == probe.plain(one(m.Precision(), *BINARY) + one(m.Recall(), *BINARY))
    alone = m.Recall()
    alone.reset()
    alone.update(BINARY[0])
    assert alone.compute() == 1.0
    shows("Combine metrics", "alone.reset()\nalone.update(", "alone.compute()")
    return (
        "Arithmetic on metrics makes a metric; attach only the result, its parts follow. By hand it is reset, update,"
        " compute."
    )


@fact(PAGE, "Several outputs, several labels")
def heads():
    got = ran(m.Accuracy(output_transform=lambda o: ((o["a"] > 0.5).long(), o["y"])), [{"a": T([0.9]), "y": T([1])}])
    assert got == {"m": 1.0}
    shows("Several outputs, several labels", "output_transform=lambda output: output[", "(logits > 0)")
    return (
        "The step returns a dict once; each metric takes its part by its output transform, which is also the place for"
        " thresholds."
    )


@fact(PAGE, "A metric of your own")
def own():
    """tests/test_metrics_assets.py has more of the asset."""
    spec = importlib.util.spec_from_file_location("custom_metric", BUNDLE / ROOM / "assets" / "custom_metric.py")
    asset = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(asset)
    scores, y = torch.eye(3)[[0, 2, 2, 0, 1, 2, 2]], T([0, 1, 2, 0, 1, 2, 1])  # class 1 is right once in three times

    def main(rank):
        found = []
        for shares in ((slice(0, 5), slice(5, 7)), (slice(0, 7), slice(7, 7))):
            metric = asset.WorstClassAccuracy(3)
            metric.update((scores[shares[rank]], y[shares[rank]])) if len(y[shares[rank]]) else None
            found.append(metric.compute())
        return found

    both = values(run_world(2, main))
    assert probe.close(both, [[1 / 3, 1 / 3]] * 2)
    return (
        "../assets/custom_metric.py is one to copy: it is right with unequal shares and with a rank that has no sample."
    )
