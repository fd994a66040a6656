from pathlib import Path

import ignite.distributed as idist
import torch
from ignite.handlers import Checkpoint


def main(_local_rank):
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    saved = torch.load(next(Path("saved").glob("*.pt")))
    Checkpoint.load_objects({"model": model, "optimizer": optimizer}, saved)
    if idist.get_rank() == 0:
        torch.save(model.state_dict(), "loaded.pt")


if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(main)
