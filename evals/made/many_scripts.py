"""The folder of many-scripts: 60 files, of which those in many_scripts/ were written and the others are filled in here.

Lines of the written ones that end in `#!` and a letter are where the mistake of that letter may be said to be: from
what decides to what is called wrongly, or where that is used. They are handed out without these marks.
"""
from __future__ import annotations

import random
import re
from pathlib import Path

WRITTEN = Path(__file__).with_suffix("")
PLACES = "harbour meadow lantern quarry orchard glacier thicket pebble canyon marsh".split()
NETS = "straight bent folded broad narrow tall shallow twin".split()
TOOLS = "wrap tabulate shorten rename compare".split()
MARK = re.compile(r" *#!(\w)$", re.M)

DATA = '''"""{place}: {n} rows of {width} columns."""
import torch

WIDTH = {width}


def samples(n={n}):
    """Rows and what belongs to each."""
    generator = torch.Generator().manual_seed({seed})
    x = torch.{draw}(n, WIDTH, generator=generator)
    return x, {target}


def kinds(n={n}):
    """The kind of each row, one of {kinds}."""
    return [(i * {step} + {seed}) % {kinds} for i in range(n)]
'''
TARGETS = ("x.sum(1)", "x[:, 0] - x[:, -1]", "(x ** 2).mean(1)", "x.abs().max(1).values")

NET = '''"""A {net} net."""
import torch


def build(width):
    """The same weights on every process."""
    generator = torch.Generator().manual_seed({seed})
    net = {layers}
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randn(p.shape, generator=generator) * {scale})
    return net
'''
LAYERS = ("torch.nn.Sequential(torch.nn.Linear(width, 1))",
          "torch.nn.Sequential(torch.nn.Linear(width, {hidden}), torch.nn.Tanh(), torch.nn.Linear({hidden}, 1))",
          "torch.nn.Sequential(torch.nn.Linear(width, {hidden}), torch.nn.ReLU(), torch.nn.Linear({hidden}, 1))")

ENDING = '''

if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(main)
'''
TRAIN = '''"""Trains the {net} net on {place}."""
import ignite.distributed as idist
import torch
from core import roles
from data import {place}
from nets import {net}

EPOCHS, RATE = {epochs}, {rate}


def main(_local_rank):
    net = {net}.build({place}.WIDTH)
    x, y = {place}.samples()
    n, part = len(x), list(roles.mine(len(x)))
    x, y = x[part], y[part]
    for epoch in range(EPOCHS):
        loss = ((net(x).squeeze(1) - y) ** 2).sum() / n
        grads = torch.autograd.grad(loss, list(net.parameters()))
        with torch.no_grad():
            for p, grad in zip(net.parameters(), grads):
                p.sub_(RATE * idist.all_reduce(grad))
{report}
'''
REPORTS = ('''        mean = idist.all_reduce(loss.detach())
        roles.say(f"epoch {epoch} loss {mean.item():.3f}")''',
           '''        mean = idist.all_reduce(loss.detach())
        if idist.get_rank() > 0:
            continue
        print(f"epoch {epoch} loss {mean.item():.3f}", flush=True)''',
           '''        if epoch % 2 == 0:
            mean = idist.all_reduce(loss.item())
            if roles.chief():
                print(f"epoch {epoch} loss {mean:.3f}", flush=True)''',
           '''        mean = idist.all_reduce(loss.detach())
        if mean < 0.05:
            break
    roles.say(f"loss {mean.item():.3f} at epoch {epoch}")''')

MEASURE = '''"""How far the {net} net is from {place}."""
import ignite.distributed as idist
import torch
from core.roles import mine, say
from data import {place}
from ignite.engine import Engine
from ignite.metrics import {metric}
from nets import {net}


def rows(x, y, size):
    """This process's batches."""
    part = list(mine(len(x)))
    for start in range(0, len(part), size):
        some = part[start:start + size]
        yield x[some], y[some]


def main(_local_rank):
    net = {net}.build({place}.WIDTH)

    def step(engine, batch):
        with torch.no_grad():
            return net(batch[0]).squeeze(1), batch[1]

    evaluator = Engine(step)
    {metric}().attach(evaluator, "apart")
    state = evaluator.run(list(rows(*{place}.samples(), size={size})))
    say(f"apart {{state.metrics['apart']:.3f}} in {{{place}.WIDTH}} columns")
'''
METRICS = ("MeanSquaredError", "MeanAbsoluteError", "RootMeanSquaredError")

TALLY = '''"""What kinds {place} has."""
import ignite.distributed as idist
import torch
from core import roles
from data import {place}


def main(_local_rank):
    kinds = {place}.kinds()
    own = torch.tensor([kinds[i] for i in roles.mine(len(kinds))])
    counts = torch.bincount(own, minlength={kinds})
    {total}
    if {guard}:
        for kind, count in enumerate(counts.tolist()):
            print("kind", kind, "count", count, flush=True)
    rows = idist.all_gather(torch.tensor([len(own)])).sum().item()
    roles.say("rows", rows)
'''
TOTALS = ("counts = idist.all_reduce(counts)", "counts = idist.all_gather(counts.unsqueeze(0)).sum(0)")
GUARDS = ("roles.chief()", "idist.get_rank() == 0", "not idist.get_rank()")

TOOL = '''"""Makes lines {tool}able: {what}."""
import sys

LIMIT = {limit}


def {tool}(lines, limit=LIMIT):
    """The lines, as they are printed."""
    found = []
    for number, line in enumerate(lines):
        text = line.rstrip("\\n")
        if not text:
            continue
        found.append({expression})
    return found


def main():
    for line in {tool}(sys.stdin):
        print(line)


if __name__ == "__main__":
    main()
'''
EXPRESSIONS = {"wrap": "text[:limit] + (chr(10) + text[limit:] if len(text) > limit else '')",
               "tabulate": "f'{number:4d}  {text:<{limit}}'",
               "shorten": "text if len(text) <= limit else text[:limit] + '~'",
               "rename": "text.replace(' ', '_')[:limit]", "compare": "f'{len(text) - limit:+d} {text}'"}


def files() -> dict[str, str]:
    """Text by path; the written ones still with their marks."""
    rng = random.Random(60)
    found = {str(p.relative_to(WRITTEN)): p.read_text(encoding="utf-8") for p in sorted(WRITTEN.rglob("*.py"))}
    found |= {f"{package}/__init__.py": "" for package in ("core", "data", "jobs", "nets")}
    kinds = {}
    for place in PLACES:
        kinds[place] = rng.randrange(3, 7)
        found[f"data/{place}.py"] = DATA.format(
            place=place.capitalize(), n=rng.randrange(20, 40) * 2, width=rng.randrange(2, 6), seed=rng.randrange(90),
            draw=rng.choice(("rand", "randn")), target=rng.choice(TARGETS), step=rng.choice((7, 11, 13)),
            kinds=kinds[place])
    for net in NETS:
        hidden = rng.choice((4, 6, 8))
        found[f"nets/{net}.py"] = NET.format(net=net, seed=rng.randrange(90), scale=rng.choice((0.2, 0.3, 0.4)),
                                             layers=rng.choice(LAYERS).format(hidden=hidden))
    for tool in TOOLS:
        found[f"tools/{tool}_lines.py"] = TOOL.format(tool=tool, what=f"one after the other, {tool} each",
                                                      limit=rng.randrange(30, 90), expression=EXPRESSIONS[tool])
    jobs = ["train"] * 5 + ["measure"] * 4 + ["tally"] * 4
    for n, (kind, place) in enumerate(zip(jobs, PLACES + PLACES[:3])):
        net = NETS[n % len(NETS)]
        if kind == "train":
            text = TRAIN.format(place=place, net=net, epochs=rng.randrange(4, 9), rate=rng.choice((0.02, 0.05)),
                                report=REPORTS[n % len(REPORTS)])
        elif kind == "measure":
            text = MEASURE.format(place=place, net=net, metric=METRICS[n % len(METRICS)], size=rng.choice((4, 6, 8)))
        else:
            text = TALLY.format(place=place, kinds=kinds[place], total=TOTALS[n % 2], guard=GUARDS[n % 3])
        found[f"jobs/{kind}_{place}.py"] = text + ENDING
    return found


def make(folder: Path) -> None:
    """Write all of them."""
    for path, text in files().items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(MARK.sub("", text), encoding="utf-8")


def truth() -> dict[str, dict[str, range]]:
    """Where each mistake may be said to be, by its letter and the path."""
    found: dict[str, dict[str, range]] = {}
    for path, text in files().items():
        for number, line in enumerate(text.splitlines(), 1):
            if mark := MARK.search(line):
                places = found.setdefault(mark[1], {})
                places[path] = range(places.get(path, range(number, 0)).start, number + 1)
    return found
