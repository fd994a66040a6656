"""How much all parcels weigh, and how many each process has."""
import ignite.distributed as idist
import torch
from core import exchange, roles


def parcels(n=36):
    return [0.5 + (i * 13) % 8 for i in range(n)]


def main(_local_rank):
    weights = torch.tensor([parcels()[i] for i in roles.mine(36)])
    total, counts = exchange.both_ways(weights.sum(), torch.tensor([float(len(weights))]))  #!f
    roles.say(f"weight {total.item():.2f} of {int(counts.sum())} parcels")


if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(main)
