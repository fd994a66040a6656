"""Lengths of chains: each process walks its own, however long they are, and the lengths are summed at the end."""
import ignite.distributed as idist
from core import roles


def length(n):
    """Steps until 1 is reached."""
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


def main(_local_rank):
    total, longest = 0, 0
    for n in roles.mine(31):
        if n < 2:
            continue
        found = length(n)
        total += found
        if found > longest:
            longest = found
    total = idist.all_reduce(total)
    longest = idist.all_reduce(longest, op="MAX")
    if not roles.chief():
        return
    print(f"steps {total} longest {longest}", flush=True)


if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(main)
