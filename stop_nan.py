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
    def step(engine, b):
        loss = model(b).sum()
        if torch.isnan(loss):
            engine.terminate()
            return
        loss.backward()
    trainer = Engine(step)
    trainer.run([torch.rand(4, 2)] * 10)

if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(training, {})
