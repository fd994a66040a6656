"""Fits a slope to rows of which some are masked."""
import ignite.distributed as idist
import torch
from core import roles


def rows(n=40):
    generator = torch.Generator().manual_seed(4)
    x = torch.rand(n, generator=generator)
    keep = torch.rand(n, generator=generator) > 0.35
    return x, 3 * x, keep


def main(_local_rank):
    x, y, keep = rows()
    slope, rate = torch.zeros(1), 0.2
    for start in range(0, len(x), 4):
        part = [i + start for i in roles.mine(4)]
        mask = keep[part]
        if not mask.any():  #!b
            continue  #!b
        off = (slope * x[part] - y[part]) * mask
        grad = (2 * off * x[part]).sum() / 4
        slope = slope - rate * idist.all_reduce(grad)  #!b
    roles.say(f"slope {slope.item():.4f}")


if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(main)
