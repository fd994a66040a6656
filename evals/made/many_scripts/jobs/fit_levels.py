"""Fits a level until it is flat."""
import ignite.distributed as idist
import torch
from core import roles, stopping
from ignite.engine import Engine, Events


def main(_local_rank):
    values = (torch.arange(40.0) % 9)[list(roles.mine(40))]
    level = torch.zeros(1)

    def step(engine, _batch):
        level.add_(0.4 * idist.all_reduce((values - level).sum()) / 40)
        return {"loss": ((values - level) ** 2).mean().item()}

    trainer = Engine(step)
    trainer.add_event_handler(Events.ITERATION_COMPLETED, stopping.when_flat(0.01))
    state = trainer.run(range(100), max_epochs=1)
    roles.say(f"flat at {level.item():.3f} after {state.iteration}")


if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(main)
