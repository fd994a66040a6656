import os

import ignite.distributed as idist
import torch
from ignite.engine import Engine, Events


def main(_local_rank):
    def step(engine, batch):
        return idist.all_reduce(torch.tensor([1.0 / engine.state.iteration])).item()

    trainer = Engine(step)
    stop_at = os.environ.get("STOP_AT", 5)  # set on rank 0 alone

    @trainer.on(Events.ITERATION_COMPLETED)
    def enough(engine):
        if engine.state.iteration >= int(stop_at):
            engine.terminate()

    state = trainer.run(range(20), max_epochs=1)
    print(f"rank {idist.get_rank()} stopped at {state.iteration}")


if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(main)
