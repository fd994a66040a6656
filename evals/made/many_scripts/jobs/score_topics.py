"""The mean weight of topics."""
import ignite.distributed as idist
from core import roles
from core.board import Board
from ignite.metrics import Average


def weights(n=30):
    return [((7 * i) % 11) / 4 for i in range(n)]


def main(_local_rank):
    board = Board(weight=Average())
    board.measure(weights())
    value = board.overall("weight")  #!c
    roles.say(f"mean weight {value:.4f}")


if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(main)
