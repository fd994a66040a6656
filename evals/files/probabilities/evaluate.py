import torch
from ignite.engine import Engine
from ignite.metrics import Accuracy, Recall

# of three labels for each of four samples
PROBABILITIES = torch.tensor([[0.9, 0.2, 0.7], [0.4, 0.6, 0.1], [0.8, 0.9, 0.3], [0.1, 0.7, 0.6]])
LABELS = torch.tensor([[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 1, 1]])

evaluator = Engine(lambda engine, batch: (PROBABILITIES, LABELS))
Accuracy().attach(evaluator, "accuracy")
Recall().attach(evaluator, "recall")
metrics = evaluator.run([0]).metrics
print(f"accuracy={metrics['accuracy']:.4f} recall={metrics['recall']:.4f}")
