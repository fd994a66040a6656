"""Scores of a classifier."""
import ignite.distributed as idist
import torch
from core import roles
from ignite.engine import Engine
from ignite.metrics import Accuracy


def pairs(model, x, y, size=8):
    chosen = list(roles.mine(len(x)))
    for start in range(0, len(chosen), size):
        some = chosen[start:start + size]
        with torch.no_grad():
            yield model(x[some]), y[some]


def scorer():
    evaluator = Engine(lambda engine, batch: batch)
    Accuracy().attach(evaluator, "accuracy")
    return evaluator


def scores(model, x, y):
    """The accuracy, for the one that reports it."""
    batches = list(pairs(model, x, y))
    if not roles.chief():  #!a
        return None  #!a
    return scorer().run(batches).metrics["accuracy"]  #!a


def settle():
    """Nobody goes on before all are here."""
    idist.barrier()
