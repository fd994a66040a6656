"""Keeps what was measured, by name."""
import ignite.distributed as idist
from core import roles
from ignite.engine import Engine


class Board:
    """Runs an evaluator over this process's share of the values and keeps the outcome."""

    def __init__(self, **metrics):
        self.evaluator = Engine(lambda engine, value: value)
        self.values = {}
        for name, metric in metrics.items():
            metric.attach(self.evaluator, name)

    def measure(self, values):
        share = [values[i] for i in roles.mine(len(values))]
        self.values.update(self.evaluator.run(share).metrics)

    def overall(self, name):
        value = float(self.values[name])
        return idist.all_reduce(value)  #!c

    def local(self, name):
        return float(self.values[name])
