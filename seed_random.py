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

def augment(x):
    return x + random.gauss(0, 1)
def training(local_rank, cfg):
    random.seed(0)
    loader = idist.auto_dataloader(TensorDataset(torch.rand(40, 2)), batch_size=4, shuffle=False)
    model = idist.auto_model(nn.Linear(2, 1))
    def step(engine, batch):
        return model(augment(batch[0])).sum().backward()
    Engine(step).run(loader, max_epochs=1)

if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(training, {})
