import ignite.distributed as idist
import torch


def main(_local_rank):
    rank = idist.get_rank()
    mine = torch.full((2 * rank + 1, 2), float(rank))
    rows = [2 * r + 1 for r in range(idist.get_world_size())]
    padded = torch.zeros(max(rows), 2)
    padded[: len(mine)] = mine
    together = idist.all_gather(padded).reshape(-1, max(rows), 2)
    parts = torch.cat([each[:n] for each, n in zip(together, rows)])
    if rank == 0:
        torch.save(parts, "gathered.pt")


if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(main)
