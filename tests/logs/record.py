"""Records the logs of this folder anew: `python record.py [NAME…]`. Each is the output of job.py under a launcher.

Needs torch, ignite and, for the srun ones, a SLURM cluster that srun reaches. Takes minutes; the suite only reads what
was recorded. What went wrong in each, and on which rank, is known because job.py was told to do it.
"""

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
RUN = {
    "torchrun": "torchrun --standalone --nproc_per_node={n} job.py {fault} --rank {rank} {more}",
    "restart": "torchrun --standalone --max-restarts=1 --nproc_per_node={n} job.py {fault} --rank {rank} {more}",
    "interrupt": "timeout -s INT 30 torchrun --standalone --nproc_per_node={n} job.py {fault} --rank {rank} {more}",
    "fork": "python job.py {fault} --rank {rank} --nproc {n} --start fork {more}",
    "spawn": "python job.py {fault} --rank {rank} --nproc {n} {more}",
    "srun": "srun -N1 -n{n} python job.py {fault} --rank {rank} {more}",
    "end": "srun -K --time=0:{limit} -N1 -n{n} python job.py {fault} --rank {rank} {more}",
    "label": "srun --label -N1 -n{n} python job.py {fault} --rank {rank} {more}",
}
RAISE, KILL, CRASH, LEAVE = (
    "a-rank-raises-an-exception", "a-rank-is-killed", "a-rank-crashes-in-native-code", "a-rank-leaves-early",
)  # fmt: skip
EXIT = "terminate-called-without-an-active-exception"
ALONE = "hangs-when-one-rank-evaluates-or-computes-a-metric"
CLIENTS = "timed-out-after--seconds-waiting-for-clients--clients-joined"
LATE, SIZE = "timed-out-waiting-ms-for-recv-operation-to-complete", "oppreamblelength--opnbytes"
APART, PORT = (
    "hangs-with-the-ranks-in-different-places",
    "the-server-socket-has-failed-to-listen-on-any-local-network-address--eaddrinuse",
)
# name: (launcher, fault, ranks, rank at fault, options, outcome, causes, guilty or None where no log can tell)
CASES = {
    "torchrun-raise": ("torchrun", "raise", 3, 1, "", "failed", {RAISE}, [1]),
    "torchrun-all": ("torchrun", "all", 3, 1, "", "failed", {RAISE}, [0, 1, 2]),
    "torchrun-chain": ("torchrun", "chain", 3, 2, "", "failed", {RAISE}, [2]),
    "torchrun-type": ("torchrun", "type", 3, 2, "", "failed", {"unhandled-input-type-class-"}, [2]),
    "torchrun-none": ("torchrun", "none", 3, 2, "", "failed", {"source-data-can-not-be-none"}, [2]),
    "torchrun-import": ("torchrun", "import", 2, 1, "", "failed", {RAISE}, [0, 1]),
    "torchrun-usage": ("torchrun", "usage", 2, 1, "", "failed", {RAISE}, [0, 1]),
    "torchrun-exit0": ("torchrun", "exit0", 3, 1, "", "failed", {LEAVE}, [1]),
    "torchrun-_exit": ("torchrun", "_exit", 3, 2, "", "failed", {LEAVE}, [2]),
    "torchrun-exit3": ("torchrun", "exit3", 3, 2, "", "failed", {LEAVE}, [2]),
    "torchrun-uneven": ("torchrun", "uneven", 2, 1, "--style engine", "failed", {LEAVE}, [1]),
    "torchrun-kill": ("torchrun", "kill", 3, 1, "", "failed", {KILL}, [1]),
    "torchrun-segv": ("torchrun", "segv", 3, 1, "", "failed", {CRASH}, [1]),
    "torchrun-abort": ("torchrun", "abort", 3, 2, "", "failed", {CRASH}, [2]),
    "torchrun-exit": ("torchrun", "exit", 3, 1, "", "failed", {EXIT}, [1]),  # chance: record until a rank aborts
    "torchrun-shape": ("torchrun", "shape", 3, 1, "", "failed", {SIZE}, None),
    "torchrun-slow": ("torchrun", "slow", 3, 1, "", "failed", {LATE}, [1]),
    "torchrun-freeze": ("torchrun", "freeze", 3, 2, "", "failed", {LATE}, [2]),
    "torchrun-dump": ("torchrun", "dump", 3, 2, "", "failed", {LATE}, [2]),
    "torchrun-swallow": ("torchrun", "swallow", 3, 2, "", "failed", {"hangs-after-an-error-on-one-rank"}, [2]),
    "torchrun-order": ("torchrun", "order", 3, 2, "", "failed", {APART}, [2]),
    "torchrun-return": ("torchrun", "return", 3, 2, "--style quiet", "failed", {APART}, [2]),
    "torchrun-metric": (
        "torchrun",
        "metric",
        3,
        0,
        "",
        "failed",
        {ALONE},
        [0],
    ),
    "torchrun-alone": ("torchrun", "alone", 4, 0, "--style engine", "failed", {ALONE}, [0]),
    "torchrun-monitored": (
        "torchrun",
        "monitored",
        3,
        2,
        "",
        "failed",
        {"rank--failed-to-pass-monitoredbarrier-in--ms"},
        [2],
    ),
    "torchrun-worker": ("torchrun", "worker", 3, 2, "", "failed", {"dataloader-worker-pid--is-killed-by-signal"}, [2]),
    "torchrun-report": ("torchrun", "report", 3, 1, "", "failed", {"hangs-after-an-error-on-one-rank"}, [1]),
    "torchrun-late": (
        "torchrun",
        "late",
        3,
        1,
        "",
        "failed",
        {CLIENTS},
        [1],
    ),
    "torchrun-restart": (  # the second time the rank met the address of the first attempt
        "restart",
        "kill-once",
        2,
        1,
        "",
        "failed",
        {"restarted-ranks-do-not-find-each-other"},
        [1],
    ),
    "torchrun-interrupt": (
        "interrupt",
        "slow",
        2,
        1,
        "--timeout 300",
        "failed",
        {"the-job-is-stopped-from-outside"},
        [],
    ),
    "torchrun-rescue": ("torchrun", "rescue", 3, 2, "", "failed", {RAISE}, [2]),
    "fork-rescue": ("fork", "rescue", 3, 2, "", "failed", {RAISE}, [2]),
    "torchrun-ok": ("torchrun", "ok", 3, 1, "", "succeeded", {None}, []),
    "torchrun-warn": ("torchrun", "warn", 3, 2, "", "succeeded", {None}, []),
    "torchrun-handled": ("torchrun", "handled", 3, 2, "", "succeeded", {None}, []),
    "fork-raise": ("fork", "raise", 3, 1, "", "failed", {RAISE}, [1]),
    "fork-exit0": ("fork", "exit0", 3, 1, "", "failed", {LEAVE}, None),
    "fork-exit0-of-2": ("fork", "exit0", 2, 1, "", "failed", {LEAVE}, [1]),
    "fork-exit3": ("fork", "exit3", 3, 1, "", "failed", {LEAVE}, [1]),
    "fork-kill": ("fork", "kill", 3, 1, "", "failed", {KILL}, [1]),
    "fork-segv": ("fork", "segv", 3, 1, "", "failed", {CRASH}, [1]),
    "fork-shape": ("fork", "shape", 3, 1, "", "failed", {SIZE}, None),
    "fork-lengths": ("fork", "lengths", 3, 1, "", "failed", {SIZE}, [1]),
    "fork-lock": ("fork", "lock", 3, 1, "", "failed", {LATE}, [1]),
    "fork-slash": ("fork", "lock", 3, 1, "--style slash", "failed", {LATE}, [1]),
    "fork-node": ("fork", "ok", 2, 0, "--nodes 2", "failed", {CLIENTS}, [2, 3]),  # the second was not started
    "fork-noise": ("fork", "noise", 3, 1, "", "succeeded", {None}, []),
    "fork-port": ("fork", "ok", 3, 0, "", "failed", {PORT}, [0]),  # port 2222 was taken
    "fork-ok": ("fork", "ok", 3, 1, "", "succeeded", {None}, []),
    "spawn-pickle": ("spawn", "pickle", 2, 0, "", "failed", {"cant-pickle-local-object-"}, []),
    "spawn-unsaid": ("spawn", "unsaid", 3, 1, "", "failed", {RAISE}, [1]),
    "spawn-cut": ("spawn", "raise", 3, 1, "", "unknown", {None}, []),  # its recorder was ended before it failed
    "srun-raise": ("srun", "raise", 4, 2, "", "failed", {RAISE}, [2]),
    "srun-label": ("label", "raise", 3, 2, "", "failed", {RAISE}, [2]),
    "srun-exit0": ("srun", "exit0", 3, 1, "", "failed", {LEAVE}, [1]),
    "srun-kill": ("label", "kill", 3, 1, "", "failed", {KILL}, [1]),
    "srun-exit3": ("end", "exit3", 2, 1, "", "failed", {LEAVE}, [1]),
    "srun-segv": ("srun", "segv", 2, 1, "", "failed", {CRASH}, [1]),
    "srun-port": ("srun", "slow", 3, 0, "", "failed", {PORT}, [0]),  # another step had the port of the same job number
    "srun-time": ("end", "slow", 2, 1, "--timeout 300", "failed", {"the-job-is-stopped-from-outside"}, []),
    "srun-helper": ("label", "helper", 3, 1, "", "succeeded", {None}, []),
    "srun-ok": ("label", "ok", 2, 1, "", "succeeded", {None}, []),
    "srun-cancelled": ("srun", "slow", 3, 0, "", "failed", {"the-job-is-stopped-from-outside"}, []),
}


def plain(text: str) -> str:
    """The log without what belongs to the machine that recorded it."""
    for found, shown in ((str(HERE), "/home/me/project"), (sys.prefix, "/home/me/venv"), (sys.base_prefix, "/usr")):
        text = text.replace(found, shown)
    return text.replace(tempfile.gettempdir() + "/", "/scratch/")


def record(name: str) -> None:
    launcher, fault, ranks, rank, more, *_ = CASES[name]
    command = RUN[launcher].format(n=ranks, fault=fault, rank=rank, more=more, limit=10 if fault == "slow" else 60)
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    with tempfile.TemporaryFile() as out:
        subprocess.run(
            ["timeout", "-k", "5", "120", *shlex.split(command)], cwd=HERE, env=env, stdout=out, stderr=out, check=False
        )
        out.seek(0)
        (HERE / f"{name}.log").write_text(plain(out.read().decode(errors="replace")))


if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        print(name, flush=True)
        record(name)
