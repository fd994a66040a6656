import ignite.distributed as idist
import torch
import work


def main(_local_rank):
    for step in range(200):
        value = work.prepare(idist.get_rank(), step)
        total = idist.all_reduce(torch.tensor([value]))
        if idist.get_rank() == 0 and step % 50 == 0:
            print(step, total.item(), flush=True)


if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(main)
