import ignite.distributed as idist
import torch


def main(_local_rank):
    rank = idist.get_rank()
    mine = torch.full((2 * rank + 1, 2), float(rank))
    padded = torch.zeros(2 * idist.get_world_size() - 1, 2)
    padded[: len(mine)] = mine
    parts = idist.all_gather(padded)
    if rank == 0:
        torch.save(parts, "gathered.pt")


if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(main)
