"""python train.py [--stop N] [--resume]: trains for 3 epochs of 5 iterations, writes weights.pt at the end.

--stop N leaves after iteration N, as a crash would, with a checkpoint; --resume goes on from it. A run that was stopped
and resumed should give the same weights.pt as one that was not.
"""
import argparse

import torch
from ignite.engine import Engine, Events
from ignite.handlers import Checkpoint, DiskSaver

parser = argparse.ArgumentParser()
parser.add_argument("--stop", type=int)
parser.add_argument("--resume", action="store_true")
options = parser.parse_args()

torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.5)
data = [torch.full((4, 2), float(i)) / 10 for i in range(5)]


def step(engine, batch):
    optimizer.zero_grad()
    loss = ((model(batch) - 1) ** 2).mean()
    loss.backward()
    optimizer.step()
    scheduler.step()
    return loss.item()


trainer = Engine(step)
saver = Checkpoint({"model": model}, DiskSaver(".", require_empty=False), n_saved=1)


@trainer.on(Events.ITERATION_COMPLETED)
def stop(engine):
    if engine.state.iteration == options.stop:
        saver(engine)
        raise SystemExit(0)


if options.resume:
    last = sorted(__import__("pathlib").Path(".").glob("checkpoint_*.pt"))[-1]
    Checkpoint.load_objects({"model": model}, torch.load(last))
trainer.run(data, max_epochs=3)
torch.save(model.state_dict(), "weights.pt")
print("iterations", trainer.state.iteration)
