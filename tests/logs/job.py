"""The job whose logs are recorded: a small loop over all ranks in which one thing goes wrong, named on the command
line.

python job.py FAULT [--rank R] [--nproc N [--nodes M]] [--start fork|spawn] [--timeout S]
                    [--style rank|quiet|engine|slash]
torchrun … job.py FAULT …        srun … python job.py FAULT …
"""

import argparse
import ctypes
import faulthandler
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from datetime import timedelta

import ignite.distributed as idist
import torch
import torch.distributed as dist
from ignite.engine import Engine, Events
from ignite.handlers import Checkpoint, DiskSaver, EarlyStopping
from ignite.metrics import Accuracy
from ignite.utils import setup_logger

STEPS = 6
FOLDER = os.path.join(tempfile.gettempdir(), "explain-checkpoints")


class Table:
    """Cannot be closed any more when it is collected."""

    def __del__(self):
        raise BrokenPipeError("cannot flush the table")


class Samples(torch.utils.data.Dataset):
    def __init__(self, die=False):
        self.die = die

    def __len__(self):
        return 64

    def __getitem__(self, i):
        if self.die and i == 40:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.full((2,), float(i))


def fault(name, rank, step):
    """What goes wrong on the rank at fault, in its fourth step."""
    if name == "raise":
        values = {"loss": 1}
        values["los"]
    elif name == "value":
        torch.zeros(3, 4) @ torch.zeros(3, 4)
    elif name == "chain":
        try:
            open("/data/shard-17.tar").read()
        except OSError as e:
            raise RuntimeError("cannot load shard 17") from e
    elif name == "missing":
        open("/data/imagenet/train/shard-17.tar")
    elif name == "full":
        with open("/dev/full", "w") as f:
            f.write("x" * 100000)
    elif name == "memory":
        raise torch.OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB"
        )
    elif name == "exit0":
        sys.exit(0)
    elif name == "exit3":
        sys.exit(3)
    elif name == "_exit":
        os._exit(0)
    elif name == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif name == "kill-once":
        if os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0":
            os.kill(os.getpid(), signal.SIGKILL)
    elif name == "term":
        os.kill(os.getpid(), signal.SIGTERM)
    elif name == "segv":
        ctypes.string_at(0)
    elif name == "abort":
        os.abort()
    elif name == "freeze":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif name == "slow":
        time.sleep(600)
    elif name == "return":
        return "leave"
    elif name == "nan":
        print(f"rank {rank}: loss is nan, stopping", flush=True)
        return "leave"
    elif name == "guard":
        idist.all_reduce(torch.ones(1))
    elif name == "shape":
        idist.all_gather(torch.ones(2, 3))
        return "skip"
    elif name == "dtype":
        idist.all_reduce(torch.ones(4, dtype=torch.float64))
        return "skip"
    elif name == "order":
        idist.broadcast(torch.ones(100), src=0)
        return "skip"
    elif name == "type":
        idist.all_reduce([1, 2])
    elif name == "none":
        idist.broadcast(None, src=rank)
    elif name == "worker":
        for _ in torch.utils.data.DataLoader(Samples(True), num_workers=1):
            pass
    elif name == "assert":
        assert step < 3, "batch is empty"
    elif name == "interrupt":
        raise KeyboardInterrupt
    elif name == "recursion":
        fault(name, rank, step)
    elif name == "unsaid":  # dies before it can tell the parent why
        traceback.format_exc = lambda: fault("memory", rank, step)
        fault("raise", rank, step)
    elif name == "helper":
        subprocess.run(["bash", "-c", "bash -c 'kill -9 $$; true'; echo 'sampler exited with status 137'"])
    elif name == "swallow":
        try:
            raise OSError("stale file handle")
        except OSError:
            logging.exception("could not write the summary")
            time.sleep(600)
    return None


def loop(local_rank, name, bad, style):
    rank, world = idist.get_rank(), idist.get_world_size()
    if name == "dump":
        faulthandler.dump_traceback_later(4, exit=False)
    if name == "report":
        return report(rank, bad)
    if style == "engine":
        return engine(rank, world, name, bad)
    if name == "rescue":  # each rank saves what it has when it fails, into a folder that is not there
        try:
            return loop(local_rank, "value", bad, style)
        except Exception:
            open(f"/nowhere/last-{rank}.pt", "w").write("")
    log = setup_logger("job", distributed_rank=rank if style == "quiet" else 0)
    head = f"<{rank}/{world}> " if style == "slash" else f"rank {rank}: "
    say = log.info if style == "quiet" else lambda text: print(head + text, flush=True)
    say(f"starting, world {world}")
    if name == "handled":
        if rank == bad:
            try:
                {}["cache"]
            except KeyError:
                logging.getLogger("cache").exception("cache is cold, reading again")
    if name == "warn":
        warnings.warn("Connection closed by peer, retrying 1/3")
        print("ERROR: could not reach the metrics server: Connection refused (ignored)", file=sys.stderr, flush=True)
    for step in range(STEPS):
        if step == 3 and (rank == bad or bad < 0):
            done = fault("slow" if name == "dump" else name, rank, step)
            if done == "leave":
                break
            if done == "skip":
                continue
        if step == 3 and name == "shape":
            idist.all_gather(torch.ones(3, 3))
            continue
        if name == "all" and step == 3:
            raise ValueError("the learning rate must be positive")
        total = idist.all_reduce(torch.ones(4 if name != "size" or rank != bad else 6))
        say(f"step {step} loss {0.5 / (step + 1):.4f} sum {total[0].item():.0f}")
        time.sleep(0.1)
    if name == "lock":
        say("waits for the lock of its cache")
        if rank == bad:
            time.sleep(600)
        say("has the lock of its cache")
    if name == "monitored":
        if rank != bad:
            dist.monitored_barrier(timeout=timedelta(seconds=3))
        else:
            time.sleep(10)
    if name == "checkpoint":
        if rank == 0:
            DiskSaver(FOLDER, require_empty=False)
            Checkpoint({"m": torch.nn.Linear(1, 1)}, DiskSaver(FOLDER, require_empty=False))
            idist.barrier()
    if name == "metric" and rank == 0:
        metric = Accuracy()
        metric.update((torch.eye(2), torch.tensor([0, 1])))
        say(f"accuracy {metric.compute()}")
    if name == "lengths":
        mine = torch.ones(4 if rank != bad else 6)
        say(f"samples {tuple(mine.shape)}")
        idist.all_reduce(mine)
    if name == "exit":  # gloo is at work when the ranks exit, and on the one at fault the group outlives the loop
        for _ in range(100):
            dist.all_reduce(torch.ones(1_000_000), async_op=True)
        if rank == bad:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(dist.group.WORLD))
    else:
        idist.barrier()
    say("done")
    if name == "noise":
        Table()


def report(rank, bad):
    """The rank at fault sends its error to somebody who does not answer; only its engine's log line tells of it."""
    logging.basicConfig(level=logging.INFO, format=f"%(levelname)s:r{rank}:%(name)s:%(message)s")

    def step(engine, batch):
        if rank == bad and batch == 3:
            float("x")
        return idist.all_reduce(torch.ones(1)).item()

    try:
        Engine(step).run(list(range(STEPS)))
    except ValueError:
        time.sleep(600)


def engine(rank, world, name, bad):
    setup_logger("ignite", distributed_rank=rank)
    trainer = Engine(lambda e, b: idist.all_reduce(torch.ones(1)).item())
    trainer.logger = setup_logger("trainer")

    @trainer.on(Events.ITERATION_COMPLETED)
    def _(e):
        if rank == 0:
            print(f"epoch {e.state.epoch} iteration {e.state.iteration} loss {1 / e.state.iteration:.4f}", flush=True)
        if e.state.iteration == 4 and rank == bad:
            fault(name, rank, 4)
        if e.state.iteration == 4 and name == "stop" and rank == bad:
            e.logger.info("EarlyStopping: Stop training")
            e.terminate()

    evaluator = Engine(lambda e, b: b)
    stopper = EarlyStopping(1, lambda e: -rank * trainer.state.iteration if name == "early" else 1.0, trainer)
    stopper.logger = setup_logger("early", distributed_rank=0 if name == "early" else rank)

    def evaluate():
        m = Engine(lambda e, b: (torch.eye(2), torch.tensor([0, 1])))
        Accuracy().attach(m, "accuracy")
        m.run([0, 1])

    @trainer.on(Events.COMPLETED)
    def _(e):
        if name == "alone" and rank == bad:
            evaluate()

    @trainer.on(Events.EPOCH_COMPLETED)
    def _(e):
        if name == "early":
            evaluator.run([0])
        if name == "evaluator" and rank == 0:
            evaluate()

    evaluator.add_event_handler(Events.COMPLETED, stopper)
    batches = range(5 if name != "uneven" or rank != bad else 3)
    trainer.run(list(batches), max_epochs=3)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("fault")
    p.add_argument("--rank", type=int, default=1)
    p.add_argument("--nproc", type=int)
    p.add_argument("--nodes", type=int)
    p.add_argument("--start")
    p.add_argument("--timeout", type=float, default=5)
    p.add_argument("--style", default="rank")
    a = p.parse_args()
    timeout = timedelta(seconds=a.timeout)
    rest = (a.fault, a.rank, a.style)
    if a.fault == "usage":
        p.error("argument --batch-size: invalid int value: 'x'")
    if a.fault == "import":
        import torchdata_extra_missing  # noqa: F401
    if a.nproc:
        loop_ = (lambda *x: loop(*x)) if a.fault == "pickle" else loop
        start = {"start_method": a.start} if a.start else {}
        if a.nodes:
            start |= {"nnodes": a.nodes, "node_rank": 0, "master_addr": "127.0.0.1", "master_port": 29877}
        with idist.Parallel(backend="gloo", nproc_per_node=a.nproc, timeout=timeout, **start) as parallel:
            parallel.run(loop_, *rest)
        return
    if a.fault == "late" and int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", 0))) == a.rank:
        time.sleep(60)
    if a.fault == "early-death" and int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", 0))) == a.rank:
        raise FileNotFoundError("config.yaml")
    idist.initialize("gloo", timeout=timeout)
    with idist.Parallel() as parallel:
        parallel.run(loop, *rest)
    idist.finalize()


if __name__ == "__main__":
    main()
