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
        watched = torch.distributed.is_initialized()
        if watched:
            store = torch.distributed.distributed_c10d._get_default_store()
            store.set(f"{step}/{idist.get_rank()}", "here")
            for rank in range(idist.get_world_size()):
                try:
                    store.wait([f"{step}/{rank}"], timedelta(seconds=2))
                except Exception:
                    for each in range(idist.get_world_size()):
                        print(f"rank {each} may have frozen in step {step}", flush=True)
                    os._exit(1)
        total = idist.all_reduce(value)
    print(f"done {total.item()}")


if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(main)
