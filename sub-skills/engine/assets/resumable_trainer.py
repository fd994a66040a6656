"""A training that may be stopped in any iteration and, started again, ends with the weights of one never stopped.

    python resumable_trainer.py --output run                  train, or go on from run/state.pt
    python resumable_trainer.py --output run --stop-after 7   stop by itself after iteration 7 (as SIGTERM does)

What makes it exact: the order of the data is a function of seed and epoch, random numbers of seed and iteration, so the
only things to save are the objects below. Put your own into `build`; keep what it returns. Random numbers that a data
set draws in worker processes are not covered: leave `num_workers` at 0, or draw none there. One process; for several
see the distributed room.
"""
import argparse
import hashlib
import os
import signal
from pathlib import Path

import torch
from ignite.engine import Events, create_supervised_trainer
from ignite.utils import manual_seed
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

SEED, BATCH_SIZE = 17, 8


class EpochOrder(Sampler):
    """Another permutation in each epoch, the same each time; `skip` leaves out what an interrupted epoch has seen."""

    def __init__(self, size):
        self.size, self.epoch, self.skip = size, 0, 0

    def __len__(self):
        return self.size

    def __iter__(self):
        order = torch.randperm(self.size, generator=torch.Generator().manual_seed(SEED + self.epoch)).tolist()
        skip, self.skip = self.skip, 0
        return iter(order[skip:])


def build():
    """The data and the objects whose state makes up the training, always built in the same way."""
    manual_seed(SEED)
    x = torch.randn(100, 4)
    data = TensorDataset(x, x.sum(dim=1, keepdim=True))
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    trainer = create_supervised_trainer(model, optimizer, nn.functional.mse_loss)
    return data, {"model": model, "optimizer": optimizer, "scheduler": scheduler, "trainer": trainer}


def save(objects, path):
    """Write the state of all objects; the file is there as a whole or not at all."""
    part = path.with_suffix(".part")
    torch.save({name: thing.state_dict() for name, thing in objects.items()}, part)
    os.replace(part, path)


def train(output, epochs, stop_after=None):
    """Train up to `epochs`, from output/state.pt if it is there; return the objects."""
    path = Path(output, "state.pt")
    path.parent.mkdir(parents=True, exist_ok=True)
    data, objects = build()
    trainer = objects["trainer"]
    order = EpochOrder(len(data))
    # a generator of its own: starting the loader then draws nothing from the global one
    loader = DataLoader(data, batch_size=BATCH_SIZE, sampler=order, generator=torch.Generator())
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(True))

    @trainer.on(Events.EPOCH_STARTED)
    def place_in_the_data():
        order.epoch = trainer.state.epoch - 1
        order.skip = trainer.state.iteration % trainer.state.epoch_length * BATCH_SIZE

    # Before the next batch, not after the iteration: in an epoch's last iteration that would lose its EPOCH_COMPLETED.
    @trainer.on(Events.GET_BATCH_STARTED)
    def seed_or_stop():
        manual_seed(SEED + trainer.state.iteration)
        if stop or trainer.state.iteration == stop_after:
            trainer.terminate()  # not interrupt(): that is for going on in this process

    @trainer.on(Events.EPOCH_COMPLETED)
    def end_of_epoch():
        objects["scheduler"].step()
        save(objects, path)

    @trainer.on(Events.TERMINATE)
    def stopped():
        save(objects, path)
        print(f"stopped after iteration {trainer.state.iteration}, start again to go on", flush=True)

    if path.exists():
        for name, state in torch.load(path).items():
            objects[name].load_state_dict(state)
        print(f"going on after iteration {trainer.state.iteration}", flush=True)
    if trainer.state.iteration < epochs * len(loader):  # a finished engine would start from the beginning
        trainer.run(loader, max_epochs=epochs)
    return objects


def digest(model):
    """A short name for the weights."""
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()[:12]


def main(arguments=None):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--output", default="run", help="folder of the state (default run)")
    p.add_argument("--epochs", type=int, default=3, help="to train for in all (default 3)")
    p.add_argument("--stop-after", type=int, metavar="N", help="stop after iteration N")
    args = p.parse_args(arguments)
    objects = train(args.output, args.epochs, args.stop_after)
    state = objects["trainer"].state
    print(f"iteration={state.iteration} epoch={state.epoch} weights={digest(objects['model'])}", flush=True)


if __name__ == "__main__":
    main()
