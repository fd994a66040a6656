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

from ignite.handlers.tensorboard_logger import TensorboardLogger
def training(local_rank, cfg):
    trainer = Engine(lambda e, b: 1.0)
    tb = TensorboardLogger(log_dir="tb")
    tb.attach_output_handler(trainer, Events.ITERATION_COMPLETED, tag="t", output_transform=lambda x: x)
    trainer.run([1] * 4)

if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(training, {})
