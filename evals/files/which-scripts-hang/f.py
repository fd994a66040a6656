import ignite.distributed as idist
import torch


def main(_local_rank):
    x = torch.ones(1) * idist.get_rank()
    if x.item() > 0:
        return
    idist.broadcast(x, src=0)


with idist.Parallel(backend="gloo") as parallel:
    parallel.run(main)
