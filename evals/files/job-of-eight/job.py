import os
import threading
import time
from datetime import timedelta
from pathlib import Path

import features
import ignite.distributed as idist
import torch

STEPS = 4000
at = 0


def beat(rank):
    """Writes twice a second how often it has written, and the step that this rank is at."""
    count = 0
    while True:
        count += 1
        Path(f"beats/{rank}.new").write_text(f"{count} {at}\n")
        os.replace(f"beats/{rank}.new", f"beats/{rank}")
        time.sleep(0.5)


def main(_local_rank):
    global at
    rank = idist.get_rank()
    torch.set_num_threads(1)
    threading.Thread(target=beat, args=(rank,), name="beat", daemon=True).start()
    model = torch.nn.Linear(4, 1)
    for at in range(STEPS):
        x = features.of(rank, at)
        loss = (model(x) ** 2).mean()
        grads = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for p, grad in zip(model.parameters(), grads):
                p -= 0.01 * idist.all_reduce(grad) / idist.get_world_size()
        if at % 20 == 0:
            mean = idist.all_reduce(loss.item()) / idist.get_world_size()
            if rank == 0:
                print(f"step {at} loss {mean:.4f}", flush=True)


if __name__ == "__main__":
    os.makedirs("beats", exist_ok=True)
    eight = {"nproc_per_node": 8, "start_method": "fork", "timeout": timedelta(hours=8)}
    with idist.Parallel(backend="gloo", **eight) as parallel:
        parallel.run(main)
