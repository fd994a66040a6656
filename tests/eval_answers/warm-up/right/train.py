import json

import torch
from ignite.engine import Engine, Events
from ignite.handlers import ConcatScheduler, LRScheduler, PiecewiseLinear

optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
lrs = []
trainer = Engine(lambda engine, batch: lrs.append(optimizer.param_groups[0]["lr"]))
after = LRScheduler(torch.optim.lr_scheduler.StepLR(optimizer, step_size=5, gamma=0.5))
warm = PiecewiseLinear(optimizer, "lr", [(0, 0.01), (9, 0.1)])
trainer.add_event_handler(Events.ITERATION_STARTED, ConcatScheduler([warm, after], durations=[10]))
trainer.run(range(20), max_epochs=1)
with open("lrs.json", "w") as f:
    json.dump(lrs, f)
