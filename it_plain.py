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

class Stream(IterableDataset):
    def __iter__(self):
        yield from range(100)
def training(local_rank, cfg):
    model = idist.auto_model(nn.Linear(1, 1))
    loader = DataLoader(Stream(), batch_size=4)
    Engine(lambda e, b: model(b.float()[:, None]).sum().backward()).run(loader)

if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(training, {})
