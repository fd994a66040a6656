"""Keeps an average weight, and reads it again."""
import os

import ignite.distributed as idist
import torch
from core import roles, saving


def main(_local_rank):
    port = os.environ.get("MASTER_PORT", os.getpid())
    corpus = saving.prepared(f"corpus-{port}.pt", lambda: torch.arange(50.0) / 4)
    part = corpus[list(roles.mine(50))]
    mean = idist.all_reduce(part.sum()) / 50
    state = saving.keep({"mean": mean}, f"average-{port}.pt")
    roles.say(f"kept {state['mean'].item():.4f}")


if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(main)
