import os
import time

import ignite.distributed as idist
import torch


def work(step):
    """One step; on the rank that FROZEN names, step 2 never returns."""
    if step == 2 and os.environ.get("FROZEN") == str(idist.get_rank()):
        time.sleep(100000)
    return torch.ones(1)


def main(_local_rank):
    for step in range(4):
        total = idist.all_reduce(work(step))
    print(f"done {total.item()}")


if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(main)
