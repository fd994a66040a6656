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

class Collect:
    def __init__(self):
        self.labels = []
    def update(self, y):
        self.labels.append(y)
    def result(self):
        seen = torch.unique(torch.cat(self.labels))
        return idist.all_gather(seen)
def training(local_rank, cfg):
    c = Collect(); c.update(torch.randint(0, 9, (5,), generator=torch.Generator().manual_seed(local_rank))); print(c.result())

if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(training, {})
