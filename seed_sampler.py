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

def training(local_rank, cfg):
    data = TensorDataset(torch.rand(40, 2))
    g = torch.Generator().manual_seed(7)
    loader = DataLoader(data, batch_size=4, sampler=RandomSampler(data, num_samples=20, generator=g))
    model = idist.auto_model(nn.Linear(2, 1))
    Engine(lambda e, b: model(b[0]).sum().backward()).run(loader, max_epochs=1)

if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(training, {})
