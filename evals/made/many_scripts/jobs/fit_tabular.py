"""Fits a table's weights until the loss is low."""
import ignite.distributed as idist
import torch
from core import roles, stopping
from ignite.engine import Engine, Events


def table(n=32):
    generator = torch.Generator().manual_seed(6)
    x = torch.rand(n, 3, generator=generator)
    return x, x @ torch.tensor([1.0, -2.0, 0.5])


def main(_local_rank):
    x, y = table()
    part = list(roles.mine(len(x)))
    x, y, weight = x[part], y[part], torch.zeros(3)

    def step(engine, _batch):
        off = x @ weight - y
        grad = idist.all_reduce(2 * x.T @ off / len(x)) / idist.get_world_size()
        weight.sub_(0.3 * grad)
        return {"loss": (off ** 2).mean().item()}  #!e

    trainer = Engine(step)
    trainer.add_event_handler(Events.ITERATION_COMPLETED, stopping.when_low(0.02))  #!e
    trainer.run(range(400), max_epochs=1)
    roles.say("fitted", " ".join(f"{w:.1f}" for w in weight.tolist()))


if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(main)
