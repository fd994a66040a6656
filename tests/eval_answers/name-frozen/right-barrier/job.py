import os
import time
from datetime import timedelta

import ignite.distributed as idist
import torch


def work(step):
    """One step; on the rank that FROZEN names, step 2 never returns."""
    if step == 2 and os.environ.get("FROZEN") == str(idist.get_rank()):
        time.sleep(100000)
    return torch.ones(1)


def main(_local_rank):
    for step in range(4):
        value = work(step)
        torch.distributed.monitored_barrier(timeout=timedelta(seconds=4))
        total = idist.all_reduce(value)
    print(f"done {total.item()}")


if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(main)
