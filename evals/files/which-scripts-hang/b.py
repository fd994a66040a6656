import ignite.distributed as idist
import torch


def report(value):
    return idist.all_gather(value)


@idist.one_rank_only()
def log(value):
    print("mean", report(value).mean().item())


def main(_local_rank):
    log(torch.tensor([float(idist.get_rank())]))


with idist.Parallel(backend="gloo") as parallel:
    parallel.run(main)
