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
    net = nn.Linear(2, 1)
    model = idist.auto_model(net)
    if idist.get_rank() == 0:
        torch.save({"model": model.state_dict()}, "a.pt")
    idist.barrier()
    fresh = nn.Linear(2, 1)
    fresh.load_state_dict(torch.load("a.pt")["model"])

if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(training, {})
