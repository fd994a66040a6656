"""How often each station is the nearest, here and everywhere."""
import ignite.distributed as idist
import torch
from core import roles, shares

STATIONS = 4


def nearest(n=64):
    return [(3 * i + i // 7) % STATIONS for i in range(n)]


def main(_local_rank):
    found = nearest()
    mine = torch.tensor([found[i] for i in roles.mine(len(found))])
    counts = torch.bincount(mine, minlength=STATIONS).float()
    _, everywhere = shares.parts(counts)
    everyone = idist.all_reduce(counts)
    roles.say("parts", " ".join(f"{p:.3f}" for p in everywhere.tolist()), "of", int(everyone.sum()))


if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(main)
