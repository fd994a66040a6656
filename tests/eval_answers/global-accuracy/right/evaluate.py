import ignite.distributed as idist
import torch
from ignite.engine import Engine

PREDICTED = torch.tensor([0, 1, 1, 0, 1, 0, 0, 1, 1, 0])
RIGHT = torch.tensor([0, 1, 0, 0, 1, 1, 0, 1, 0, 0])


def main(_local_rank):
    mine = list(range(idist.get_rank(), len(RIGHT), idist.get_world_size()))
    counts = {"right": 0, "all": 0}

    def step(_engine, index):
        counts["right"] += int(PREDICTED[index] == RIGHT[index])
        counts["all"] += 1

    Engine(step).run(mine, max_epochs=1)
    accuracy = idist.all_reduce(counts["right"]) / idist.all_reduce(counts["all"])
    print(f"rank {idist.get_rank()} accuracy {accuracy:.4f}")


if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(main)
