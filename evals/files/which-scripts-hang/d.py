import ignite.distributed as idist
import torch


def main(_local_rank):
    steps = 3 + idist.get_rank() % 2
    total = torch.zeros(1)
    for _ in range(steps):
        total += idist.all_reduce(torch.ones(1))
    print(total.item())


with idist.Parallel(backend="gloo") as parallel:
    parallel.run(main)
