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

class ByLength:
    def __init__(self, lengths, size):
        self.order = sorted(range(len(lengths)), key=lambda i: lengths[i]); self.size = size
    def __iter__(self):
        for i in range(0, len(self.order), self.size):
            yield self.order[i:i + self.size]
    def __len__(self): return (len(self.order) + self.size - 1) // self.size
def training(local_rank, cfg):
    data = TensorDataset(torch.rand(40, 2))
    opts = dict(batch_sampler=ByLength([1] * 40, 4))
    loader = idist.auto_dataloader(data, **opts)

if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(training, {})
