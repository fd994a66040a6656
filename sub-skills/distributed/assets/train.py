"""Train in one process or many: the same result up to float32 rounding, which can grow if more or fewer ranks resume.
Copy it, put your data and model in. Needs torch, pytorch-ignite 0.4.13 or later. Hosts share --output, not --data.

    python train.py                               one process;  --nproc-per-node 2  starts two on this host
    torchrun --nproc_per_node=2 train.py          what torchrun starts, on one host or several
    srun -N2 --ntasks-per-node=2 python train.py  what SLURM starts
"""
import argparse
import contextlib
import faulthandler
import gc
import json
import os
import signal
import sys
import threading
import time
import traceback
from datetime import timedelta

import ignite.distributed as idist
import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import Checkpoint, DiskSaver, EarlyStopping
from ignite.metrics import Accuracy, Loss
from ignite.utils import manual_seed, setup_logger
from torch.distributed.run import main as torchrun
from torch.utils.data import DataLoader, Subset, TensorDataset

GRACE = 5  # seconds beyond --timeout: one, so that the watch speaks first; four, and a rank whose watch is stuck ends
COLLECTIVE = ("torch/distributed/", "torch/autograd/", "torch/nn/parallel/", "ignite/distributed/", "ignite/metrics/")


def load_data(folder):
    """Training and validation set. Yours may download and unpack here: it happens once per host."""
    path = os.path.join(folder, "data.pt")
    with idist.one_rank_first(local=True):  # `if rank == 0` would leave the other hosts without
        if not os.path.exists(path):
            os.makedirs(folder, exist_ok=True)
            part = f"{path}.{os.uname().nodename}.{os.getpid()}"
            x = torch.randn(1003, 8, generator=torch.Generator().manual_seed(1))
            torch.save({"x": x, "y": (x[:, 0] * x[:, 1] + x[:, 2] > x[:, 3] ** 3).long()}, part)
            os.replace(part, path)  # a run killed before this leaves no half a file
    data = TensorDataset(*torch.load(path, map_location="cpu").values())
    return Subset(data, range(800)), Subset(data, range(800, len(data)))


def build_model():  # with BatchNorm or dropout in it, the result depends on the number of ranks
    return torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 2))


def train(args, watch):  # what every rank does
    rank, world, device = idist.get_rank(), idist.get_world_size(), idist.device()
    logger = setup_logger("train")  # now that the group exists, only rank 0 speaks
    train_set, valid_set = load_data(args.data)
    if args.batch_size % world or not (steps := len(train_set) // args.batch_size):  # DDP averages ranks, not samples
        raise ValueError(f"--batch-size {args.batch_size}: give a multiple of {world}, at most {len(train_set)}")
    shares = [[]] * steps  # this rank's share of each batch of the whole world, as indices
    train_loader = DataLoader(train_set, batch_sampler=shares, num_workers=args.workers)
    shard = Subset(valid_set, range(rank, len(valid_set), world))  # DistributedSampler would count some samples twice
    valid_loader = DataLoader(shard, batch_size=args.batch_size // world, num_workers=args.workers)
    manual_seed(args.seed)  # the same initial weights everywhere; further down, other random numbers on each rank
    model = idist.auto_model(build_model())
    optimizer = idist.auto_optim(torch.optim.Adam(model.parameters(), lr=args.lr))
    trainer = create_supervised_trainer(model, optimizer, loss := torch.nn.CrossEntropyLoss(), device=device)
    bare = getattr(model, "module", model)  # shards differ in length, and the forward of DDP can be a collective
    evaluator = create_supervised_evaluator(bare, {"loss": Loss(loss), "accuracy": Accuracy()}, device)

    @trainer.on(Events.EPOCH_STARTED)
    def shuffle():  # another order each epoch; the batches are the same sets of samples however many ranks share them
        order = torch.randperm(len(train_set), generator=torch.Generator().manual_seed(args.seed + trainer.state.epoch))
        shares[:] = order[: steps * args.batch_size].view(steps, args.batch_size)[:, rank::world].tolist()
        manual_seed(args.seed + 1000 * trainer.state.epoch + rank)

    @trainer.on(Events.EPOCH_COMPLETED)
    def validate():
        for buffer in bare.buffers():
            idist.broadcast(buffer, src=0)  # each rank has its own statistics of BatchNorm; rank 0 saves the model
        v = evaluator.run(valid_loader).metrics
        logger.info("epoch %d: loss %.4f accuracy %.4f", trainer.state.epoch, v["loss"], v["accuracy"])
    disk, score = DiskSaver(args.output, require_empty=False), Checkpoint.get_default_score_fn("loss", -1.0)
    disk.remove = lambda name: None  # Checkpoint would remove last.pt, then save; saving replaces it in one step
    stop = EarlyStopping(args.patience, score, trainer)  # like all handlers, on all ranks: they may wait for each other
    best = Checkpoint({"model": model}, disk, filename_pattern="best.pt", score_function=score)  # rank 0 writes
    state = {"model": model, "optimizer": optimizer, "trainer": trainer, "stop": stop, "best": best}
    evaluator.add_event_handler(Events.COMPLETED, stop)
    evaluator.add_event_handler(Events.COMPLETED, best)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, Checkpoint(state, disk, filename_pattern="last.pt"))
    for event in (Events.GET_BATCH_STARTED, Events.ITERATION_STARTED, Events.ITERATION_COMPLETED):
        trainer.add_event_handler(event, watch.alive, 1)
        evaluator.add_event_handler(event, watch.alive)
    if args.resume and idist.broadcast(int((disk.dirname / "last.pt").exists()), src=0):  # one answer for all ranks
        Checkpoint.load_objects(state, torch.load(disk.dirname / "last.pt", map_location="cpu"))
    elif args.resume:
        logger.warning("--resume: THERE IS NO last.pt in %s, so training starts at epoch 1", disk.dirname.absolute())
    if trainer.state.epoch < args.epochs and stop.counter < args.patience:  # run() begins a finished run anew
        trainer.run(train_loader, max_epochs=args.epochs)
    v, epoch = evaluator.state.metrics or evaluator.run(valid_loader).metrics, trainer.state.epoch
    if rank == 0:
        print(f"final loss={v['loss']:.6f} accuracy={v['accuracy']:.6f} epoch={epoch} world={world}", flush=True)


class Watch(threading.Thread):
    """Ends all ranks when one fails, freezes or disappears, and says which, on which host, and where in the code."""
    def __init__(self, timeout):
        super().__init__(daemon=True)
        self.timeout, self.rank, self.world = timeout, idist.get_rank(), idist.get_world_size()
        self.me, self.error, self.stack = f"rank {self.rank} on {os.uname().nodename}", "", ""
        self.steps, self.over, self.once = 0, threading.Event(), threading.Lock()
        self.store = torch.distributed.HashStore()  # where the watches meet: a collective would wait for a missing rank
        if self.world > 1:  # a connection of its own, since the group's may be blocked; a name for each restart
            tcp = torch.distributed.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
            self.store = torch.distributed.PrefixStore(f"watch{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", tcp)
        self.store.set(f"sign{self.rank}", json.dumps([0, [0, False], self.me, "its start", os.getpid()]))
        signs = [json.loads(self.store.get(f"sign{r}")) for r in range(self.world)]  # waits for all
        self.near = [pid for *_, who, _, pid in signs if who.split()[-1] == os.uname().nodename]
        self.began = self.last = time.monotonic()

    def alive(self, _engine, steps=0):  # count only what all ranks do equally often: the one with least holds them up
        self.steps, self.last = self.steps + steps, time.monotonic()

    def run(self):  # shows signs of life, obeys a verdict, passes one when there has been no progress for too long
        try:
            while not self.over.wait(0.5):
                faulthandler.dump_traceback_later(self.timeout + 4 * GRACE, exit=True)  # if this thread stops
                now, frame = time.monotonic(), sys._current_frames()[threading.main_thread().ident]
                place = f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
                done = [self.steps, bool(self.error) or any(part in place for part in COLLECTIVE)]
                self.store.set(f"sign{self.rank}", json.dumps([now - self.began, done, self.me, place, os.getpid()]))
                if now - self.last > self.timeout or self.store.check(["verdict"]):
                    signs = [json.loads(self.store.get(f"sign{r}")) for r in range(self.world)]
                    least = min(s[1] for s in signs)
                    held = "no progress: " + "; ".join(f"{s[2]} is at {s[3]}" for s in signs if s[1] == least)
                    text = "".join(f"no sign of life from {s[2]}; " for s in signs if s[0] < max(signs)[0] - 3)
                    self.end(self.store.compare_set("verdict", "", text + (self.error or held)).decode())  # first wins
        except RuntimeError as e:
            self.end(f"rank 0 on {os.environ['MASTER_ADDR']} is gone, and the store with it: {e}")

    def guard(self, work, args):  # does work(args, watch)
        faulthandler.dump_traceback_later(self.timeout + 4 * GRACE, exit=True)  # if it never gets to run
        self.start()
        try:
            work(args, self)
        except BaseException as e:  # a RuntimeError may only be the echo of a death: see for a while who is silent
            self.error, self.stack = f"{self.me} failed: {type(e).__name__}: {e}".split("\n")[0], traceback.format_exc()
            self.last = time.monotonic() - self.timeout + 3.5 * (isinstance(e, RuntimeError) and self.world > 1)
            self.join(5)  # this process ends meanwhile, unless the thread is stuck
            self.end(f"rank 0 on {os.environ['MASTER_ADDR']} is frozen; {self.error}")
        self.over.set()
        self.join()
        faulthandler.cancel_dump_traceback_later()
        idist.barrier()  # only now may rank 0 take the store away

    def end(self, text):
        self.once.acquire()  # by one of the two threads, for good
        stack = self.stack or "".join(traceback.format_stack(sys._current_frames()[threading.main_thread().ident]))
        sys.stdout.flush()
        print(f"[{self.me} ends] {text}\n{stack if self.me in text else ''}", end="", file=sys.stderr, flush=True)
        time.sleep(2)  # all others read the verdict before the launcher or the end of the store hits them
        for pid in self.near:  # a stopped rank too can end now; SIGTERM alone would not reach it
            with contextlib.suppress(OSError):  # one that is over
                os.kill(pid, signal.SIGCONT)
        os._exit(1)  # sys.exit would wait for a main thread that is stuck


def launch(work, args):
    """Run work(args, watch) on every rank of the world that a launcher, or --nproc-per-node, makes; else here."""
    if (n := args.nproc_per_node) and "RANK" not in os.environ:  # the ranks that torchrun starts come here again
        return torchrun(["--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={n}", *sys.argv])
    faulthandler.register(signal.SIGUSR1)  # `kill -USR1 PID` shows where a rank is
    if "RANK" in os.environ or "SLURM_STEP_ID" in os.environ:  # nccl: not verified here; Parallel drops the timeout
        idist.initialize("nccl" if torch.cuda.is_available() else "gloo", timeout=timedelta(0, args.timeout + GRACE))
    Watch(args.timeout).guard(work, args)
    gc.collect()  # engines are cycles; a process group that one keeps beyond finalize can abort the rank at its exit
    idist.finalize()


def options(description):  # a parser with what every program of this kind takes
    p = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", default="data", help="folder of the data set; made where it is missing")
    p.add_argument("--output", default="output", help="folder of best.pt and last.pt")
    p.add_argument("--batch-size", type=int, default=40, help="of all ranks together (default 40)")
    p.add_argument("--workers", type=int, default=0, help="processes that load data, for each rank (default 0)")
    p.add_argument("--nproc-per-node", type=int, help="start so many ranks here; leave it out under a launcher")
    p.add_argument("--timeout", type=float, default=600, help="s without progress; about 3 s on it ends (default 600)")
    return p


def main(arguments=None):
    p = options(__doc__)
    p.add_argument("--patience", type=int, default=3, help="epochs without a better loss that end training (default 3)")
    for name, default in {"--epochs": 10, "--lr": 0.01, "--seed": 0}.items():
        p.add_argument(name, type=type(default), default=default, help=f"default {default}")
    p.add_argument("--resume", action="store_true", help="go on from last.pt, if there is one")
    launch(train, p.parse_args(arguments))


if __name__ == "__main__":
    main()
