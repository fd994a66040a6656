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

class Crops(Dataset):
    def __len__(self): return 40
    def __getitem__(self, i):
        o = np.random.randint(0, 5)
        return torch.full((2,), float(i + o))
def training(local_rank, cfg):
    np.random.seed(cfg.get("seed", 1)); torch.manual_seed(1)
    loader = idist.auto_dataloader(Crops(), batch_size=4, shuffle=False)
    model = idist.auto_model(nn.Linear(2, 1))
    Engine(lambda e, b: model(b).sum().backward()).run(loader, max_epochs=1)

if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(training, {})
