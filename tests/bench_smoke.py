"""What the smoke costs, as ratios within one run (not a test: times never decide one).

    python tests/bench_smoke.py [ROUNDS]

CPU seconds of the default run over those of `python -c "import torch, ignite.distributed"`, and wall seconds of
`gloo --nproc 16` over `gloo --nproc 2`; each the median of the rounds, the commands taken in turn.
"""
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

SMOKE = Path(__file__).resolve().parents[1] / "sub-skills/distributed/scripts/distributed_smoke.py"
COMMANDS = {
    "import": ["-c", "import torch, ignite.distributed"],
    "default": [str(SMOKE)],
    "two": [str(SMOKE), "gloo", "--nproc", "2"],
    "sixteen": [str(SMOKE), "gloo", "--nproc", "16"],
}


def cost(argv):
    """CPU seconds and wall seconds of a Python command that must succeed."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run([sys.executable, *argv], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, time.monotonic() - start


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    costs = {name: [] for name in COMMANDS}
    for _ in range(rounds):
        for name, argv in COMMANDS.items():
            costs[name].append(cost(argv))
    cpu = {name: statistics.median(c for c, _ in seen) for name, seen in costs.items()}
    wall = {name: statistics.median(w for _, w in seen) for name, seen in costs.items()}
    print(f"default run / import floor, CPU: {cpu['default'] / cpu['import']:.2f}  "
          f"({cpu['default']:.2f} s / {cpu['import']:.2f} s)")
    print(f"--nproc 16 / --nproc 2, wall:    {wall['sixteen'] / wall['two']:.2f}  "
          f"({wall['sixteen']:.2f} s / {wall['two']:.2f} s)")


if __name__ == "__main__":
    main()
