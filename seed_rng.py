import os, random, argparse, functools
import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, RandomSampler, BatchSampler, DistributedSampler, WeightedRandomSampler
import ignite.distributed as idist
from ignite.engine import Engine, Events, create_supervised_trainer, create_supervised_evaluator
from ignite.handlers import EarlyStopping, TerminateOnNan, ProgressBar, Checkpoint, DiskSaver
from ignite.metrics import Accuracy, Loss

class Noise(IterableDataset):
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
    def __iter__(self):
        for _ in range(40):
            yield torch.tensor(self.rng.normal(size=2), dtype=torch.float32)
def training(local_rank, cfg):
    loader = DataLoader(Noise(3), batch_size=4)
    model = idist.auto_model(nn.Linear(2, 1))
    Engine(lambda e, b: model(b).sum().backward()).run(loader, max_epochs=1)

if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(training, {})
