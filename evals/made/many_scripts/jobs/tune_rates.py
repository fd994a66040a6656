"""Tries learning rates; with DRY=1 it only says which."""
import os

import ignite.distributed as idist
import torch
from core import roles

RATES = (0.05, 0.2, 0.6)


@idist.one_rank_only()
def announce(text):
    print(text, flush=True)


def final_loss(rate, values, n):
    level = torch.zeros(1)
    for _ in range(5):
        level = level + rate * idist.all_reduce((values - level).sum()) / n
    return idist.all_reduce(((values - level) ** 2).sum()) / n


def main(_local_rank):
    announce(f"rates {RATES}")
    if os.environ.get("DRY"):
        return
    values = (torch.arange(30.0) % 7)[list(roles.mine(30))]
    losses = [final_loss(rate, values, 30).item() for rate in RATES]
    best = min(range(len(RATES)), key=losses.__getitem__)
    announce(f"best {RATES[best]} with {losses[best]:.3f}")


if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(main)
