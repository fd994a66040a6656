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

def training(local_rank, cfg): print(cfg)

if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        os.environ |= {"MASTER_PORT": "29511"}
        parallel.run(training, {})
