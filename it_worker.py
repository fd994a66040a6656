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

class Lines(IterableDataset):
    def __init__(self, path): self.path = path
    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        n, k = (info.id, info.num_workers) if info else (0, 1)
        for i, line in enumerate(open(self.path)):
            if i % k == n:
                yield float(line)
def training(local_rank, cfg):
    loader = idist.auto_dataloader(Lines("x"), batch_size=4)
    Engine(lambda e, b: None).run(loader)

if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(training, {})
