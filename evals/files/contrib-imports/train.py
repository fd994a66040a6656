import torch
from ignite.contrib.handlers import PiecewiseLinear, ProgressBar
from ignite.contrib.metrics import ROC_AUC
from ignite.engine import Engine, Events

model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
trainer = Engine(lambda e, b: {"loss": 1.0})
trainer.add_event_handler(Events.ITERATION_STARTED, PiecewiseLinear(optimizer, "lr", [(0, 0.0), (4, 0.4)]))
ProgressBar(file=open("progress.txt", "w")).attach(trainer)
ROC_AUC()
trainer.run(range(4), max_epochs=1)
print(f"lr {optimizer.param_groups[0]['lr']:.2f}")
