from pathlib import Path

import data
import ignite.distributed as idist


def main(_local_rank):
    if idist.get_rank() == 0 and not Path("data.txt").exists():
        data.make()
    print(f"rank {idist.get_rank()} read {data.read()}")


if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(main)
