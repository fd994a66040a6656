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

ADDR = "tcp://%s:%d"
def training(local_rank, cfg): print(cfg)
def main():
    idist.initialize("gloo", init_method=ADDR % ("127.0.0.1", 2345), rank=0, world_size=2)

if __name__ == "__main__":
    main()
