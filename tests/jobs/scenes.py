"""Jobs that hang, each in its own way: `python scenes.py SCENE FOLDER`, under torchrun or srun; or forked by a test.

A scene is a function of (rank, folder). `# odd 1: SCENE` marks the line at which rank 1 holds the others up. Each
rank leaves a file in the folder before it gets stuck; a file `go` there releases `sleeps`.
"""
import fcntl
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time

import ignite.distributed as idist
import torch
import torch.distributed as dist
from ignite.engine import Engine, Events
from ignite.handlers import Checkpoint
from ignite.metrics import Accuracy
from torch.utils.data import DataLoader, Dataset


def mark(rank, folder):
    open(os.path.join(folder, f"{rank}.ready"), "w").close()


def load_batch(rank, folder):
    if rank == 1:
        while not os.path.exists(f"{folder}/go"):
            time.sleep(0.05)  # odd 1: sleeps
    return 1.0


def sleeps(rank, folder):
    mark(rank, folder)
    total = idist.all_reduce(load_batch(rank, folder))
    print(f"rank {rank}: {total}", flush=True)


def computes(rank, folder):
    mark(rank, folder)
    while rank == 1:  # odd 1: computes
        pass
    idist.barrier()


def stopped(rank, folder):
    mark(rank, folder)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)  # odd 1: stopped
    idist.all_gather(torch.ones(1))


def lock(rank, folder):
    held = threading.Lock()
    if rank == 1:
        held.acquire()
    mark(rank, folder)
    with held:  # odd 1: lock
        idist.barrier()


def thread(rank, folder):
    def fetch():
        mark(rank, folder)
        time.sleep(1000 if rank == 1 else 0)

    worker = threading.Thread(target=fetch, daemon=True)
    worker.start()
    worker.join()  # odd 1: thread
    dist.all_reduce(torch.ones(1))


def other_collective(rank, folder):
    mark(rank, folder)
    for _ in range(2 if rank == 1 else 3):
        idist.all_reduce(1.0)
    idist.all_gather(1.0)  # odd 1: other_collective


def evaluator_under_guard(rank, folder):
    evaluator = Engine(lambda engine, batch: (torch.ones(2, 3), torch.zeros(2, dtype=torch.long)))
    Accuracy().attach(evaluator, "accuracy")
    mark(rank, folder)
    if rank == 0:
        evaluator.run([0])  # odd 0: evaluator_under_guard
    idist.barrier()


class Collects:
    """Has a state that all ranks give together, as sharded optimizers have."""

    def state_dict(self):
        return {"sum": idist.all_reduce(1.0)}  # odd 0: checkpoint_on_one_rank

    def load_state_dict(self, state):
        pass


def checkpoint_on_one_rank(rank, folder):
    trainer = Engine(lambda engine, batch: dist.barrier() if engine.state.iteration == 2 else None)
    if rank == 0:
        trainer.add_event_handler(Events.ITERATION_COMPLETED(once=1), Checkpoint({"s": Collects()}, folder))
    mark(rank, folder)
    trainer.run([0] * 3)


@idist.one_rank_only()
def report():
    idist.barrier()  # odd 0: one_rank_only


def one_rank_only(rank, folder):
    mark(rank, folder)
    report()
    idist.all_reduce(1.0)


def reads_socket(rank, folder):
    a, b = socket.socketpair()
    mark(rank, folder)
    if rank == 1:
        a.recv(1)  # odd 1: reads_socket
    idist.barrier()


def child(rank, folder):
    mark(rank, folder)
    if rank == 1:
        subprocess.run(["sleep", "1000"])  # odd 1: child
    idist.barrier()


def queue_get(rank, folder):
    mark(rank, folder)
    if rank == 1:
        queue.Queue().get()  # odd 1: queue_get
    idist.barrier()


class Items(Dataset):
    def __init__(self, rank, folder):
        self.rank, self.folder = rank, folder

    def __len__(self):
        return 4

    def __getitem__(self, i):
        if i == 1:
            mark(self.rank, self.folder)
            time.sleep(1000 if self.rank == 1 else 0)  # odd 1: loader_worker
        return i


def loader_worker(rank, folder):
    for _ in DataLoader(Items(rank, folder), batch_size=2, num_workers=1):
        idist.all_reduce(1.0)


def file_lock(rank, folder):
    file = open(f"{folder}/lock", "w")
    if rank == 0:
        fcntl.flock(file, fcntl.LOCK_EX)
    idist.barrier()
    mark(rank, folder)
    if rank == 1:
        fcntl.flock(file, fcntl.LOCK_EX)  # odd 1: file_lock
    idist.barrier()


def asynchronous(rank, folder):
    mark(rank, folder)
    if rank == 1:
        time.sleep(1000)  # odd 1: asynchronous
    dist.all_reduce(torch.ones(1), async_op=True).wait()


def polls_a_file(rank, folder):
    mark(rank, folder)
    if rank == 1:
        time.sleep(1000)  # odd 1: polls_a_file
    while not os.path.exists(f"{folder}/never"):
        time.sleep(0.1)


def others_poll(rank, folder):
    mark(rank, folder)
    if rank == 0:
        idist.all_reduce(1.0)  # odd 0: others_poll
    while not os.path.exists(f"{folder}/never"):
        time.sleep(0.1)


def python_child(rank, folder):
    """Rank 0 has a helper of its own, for which it does not wait."""
    if rank == 0:
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    mark(rank, folder)
    if rank == 1:
        time.sleep(1000)  # odd 1: python_child
    idist.barrier()


def same_place(rank, folder):
    """Nobody is odd: all wait for what none sends."""
    mark(rank, folder)
    dist.recv(torch.ones(1), src=(rank + 1) % dist.get_world_size())


if __name__ == "__main__":
    idist.initialize("gloo")
    globals()[sys.argv[1]](idist.get_rank(), sys.argv[2])
