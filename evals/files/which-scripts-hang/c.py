import ignite.distributed as idist
import torch


def main(_local_rank):
    for _ in range(3):
        loss = idist.all_reduce(torch.ones(1))
    idist.barrier() if idist.get_world_size() > 1 else None
    print(loss.item())


with idist.Parallel(backend="gloo") as parallel:
    parallel.run(main)
