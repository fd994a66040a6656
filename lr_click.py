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

import click
def training(local_rank, cfg):
    print(cfg)
@click.command()
@click.option("--local_rank", default=0)
def main(local_rank):
    torch.cuda.set_device(local_rank)
    with idist.Parallel(backend="nccl") as parallel:
        parallel.run(training, {})

if __name__ == "__main__":
    main()
