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
    model = idist.auto_model(nn.Linear(2, 1))
    best, wait = 1e9, 0
    for epoch in range(10):
        total = 0.0
        for x in idist.auto_dataloader(torch.rand(40, 2), batch_size=4, shuffle=False):
            loss = model(x).sum(); loss.backward(); total += loss.item()
        if total < best:
            best, wait = total, 0
        else:
            wait += 1
            if wait > 3:
                break

if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(training, {})
