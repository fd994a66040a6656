import torch
from ignite.engine import Engine
from ignite.metrics import Accuracy, Loss, MetricsLambda

SCORES = torch.tensor([[2.0, 0.0], [0.0, 1.0], [3.0, 1.0], [0.0, 0.5]])
LABELS = torch.tensor([0, 1, 1, 1])


def step(engine, batch):
    return SCORES[batch], LABELS[batch]


evaluator = Engine(step)
Accuracy().attach(evaluator, "accuracy")
Loss(torch.nn.functional.cross_entropy).attach(evaluator, "loss")
MetricsLambda(lambda a: 1 - a, Accuracy()).attach(evaluator, "error")
metrics = evaluator.run([[0, 1], [2, 3]]).metrics
print(" ".join(f"{name}={metrics[name]:.4f}" for name in ("accuracy", "loss", "error")))
