"""The mean length of phrases, and the longest."""
import ignite.distributed as idist
from core import roles
from core.board import Board
from ignite.metrics import Average


def lengths(n=44):
    return [3 + (5 * i) % 17 for i in range(n)]


def main(_local_rank):
    board = Board(length=Average())
    board.measure(lengths())
    longest = max(lengths()[i] for i in roles.mine(44))
    longest = idist.all_reduce(longest, op="MAX")
    if roles.chief():
        print(f"mean length {board.local('length'):.4f}, longest {longest}")


if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(main)
