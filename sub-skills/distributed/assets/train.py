"""Train in one process or many, with the same result. Copy this file, then put your own data and model in.

    python train.py                               one process;  --nproc-per-node 2  starts two on this host
    torchrun --nproc_per_node=2 train.py          what torchrun starts, on one host or several
    srun -N2 --ntasks-per-node=2 python train.py  what SLURM starts

Needs torch and pytorch-ignite 0.4.13 or later. All hosts must share the folder --output, not --data.
"""
import argparse
import faulthandler
import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
from contextlib import suppress
from datetime import timedelta

import ignite.distributed as idist
import torch
import torch.distributed as dist
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import Checkpoint, DiskSaver, EarlyStopping
from ignite.metrics import Accuracy, Loss
from ignite.utils import manual_seed, setup_logger
from torch.utils.data import DataLoader, Subset, TensorDataset

GRACE = 5  # seconds; three of them are the longest that a broken job lasts beyond --timeout


def load_data(folder):
    """Training and validation set. Yours may download and unpack here: it happens once per host."""
    path = os.path.join(folder, "data.pt")
    with idist.one_rank_first(local=True):  # `if rank == 0` would leave the other hosts without
        if not os.path.exists(path):
            os.makedirs(folder, exist_ok=True)
            part = f"{path}.{socket.gethostname()}.{os.getpid()}"
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
    steps = len(train_set) // args.batch_size
    if args.batch_size % world or not steps:  # DDP averages gradients over the ranks, not over the samples
        raise ValueError(f"--batch-size {args.batch_size}: give a multiple of {world}, at most {len(train_set)}")
    shares = [[]] * steps  # this rank's share of each batch of the whole world, as indices
    train_loader = DataLoader(train_set, batch_sampler=shares, num_workers=args.workers)
    # No DistributedSampler: it repeats samples until all shards are equal, and the metrics would count them twice
    shard = Subset(valid_set, range(rank, len(valid_set), world))
    valid_loader = DataLoader(shard, batch_size=args.batch_size // world, num_workers=args.workers)

    manual_seed(args.seed)  # the same initial weights everywhere; further down, other random numbers on each rank
    model = idist.auto_model(build_model())
    optimizer = idist.auto_optim(torch.optim.Adam(model.parameters(), lr=args.lr))
    loss = torch.nn.CrossEntropyLoss()
    trainer = create_supervised_trainer(model, optimizer, loss, device=device)
    # Shards differ in length, and the forward of a DDP model with buffers can be a collective: evaluate what is inside
    bare = getattr(model, "module", model)
    # Metrics add up over the ranks by themselves: all ranks see one value, and decide alike
    evaluator = create_supervised_evaluator(bare, metrics={"loss": Loss(loss), "accuracy": Accuracy()}, device=device)

    @trainer.on(Events.EPOCH_STARTED)
    def shuffle():
        """Another order each epoch; the batches are the same sets of samples however many ranks share them."""
        g = torch.Generator().manual_seed(args.seed + trainer.state.epoch)
        order = torch.randperm(len(train_set), generator=g)[: steps * args.batch_size]
        shares[:] = order.view(steps, args.batch_size)[:, rank::world].tolist()
        manual_seed(args.seed + 1000 * trainer.state.epoch + rank)

    @trainer.on(Events.EPOCH_COMPLETED)
    def validate():
        for buffer in bare.buffers():
            idist.broadcast(buffer, src=0)  # each rank has its own statistics of BatchNorm; rank 0 saves the model
        v = evaluator.run(valid_loader).metrics
        logger.info("epoch %d: loss %.4f accuracy %.4f", trainer.state.epoch, v["loss"], v["accuracy"])

    # All ranks have all handlers, since a handler may wait for its fellows; only rank 0 writes: DiskSaver sees to it
    disk, score = DiskSaver(args.output, require_empty=False), Checkpoint.get_default_score_fn("loss", -1.0)
    stop = EarlyStopping(args.patience, score, trainer)
    best = Checkpoint({"model": model}, disk, filename_pattern="best.pt", score_function=score)
    state = {"model": model, "optimizer": optimizer, "trainer": trainer, "stop": stop, "best": best}
    evaluator.add_event_handler(Events.COMPLETED, stop)
    evaluator.add_event_handler(Events.COMPLETED, best)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, Checkpoint(state, disk, filename_pattern="last.pt"))
    for event in (Events.GET_BATCH_STARTED, Events.ITERATION_STARTED, Events.ITERATION_COMPLETED):
        trainer.add_event_handler(event, watch.alive, 1)
        evaluator.add_event_handler(event, watch.alive)

    path = os.path.join(args.output, "last.pt")
    if args.resume and idist.broadcast(int(os.path.exists(path)), src=0):  # one answer for all ranks
        Checkpoint.load_objects(state, torch.load(path, map_location="cpu"))
    if trainer.state.epoch < args.epochs and stop.counter < args.patience:  # run() begins a finished run anew
        trainer.run(train_loader, max_epochs=args.epochs)
    v, epoch = evaluator.state.metrics or evaluator.run(valid_loader).metrics, trainer.state.epoch
    if rank == 0:
        print(f"final loss={v['loss']:.6f} accuracy={v['accuracy']:.6f} epoch={epoch} world={world}", flush=True)


class Watch(threading.Thread):
    """Ends all ranks when one fails, freezes or disappears, and says which, on which host, and where in the code."""

    # The watches meet in the key-value store beside the process group: a collective would wait for the missing rank

    def __init__(self, timeout):
        super().__init__(daemon=True)
        self.timeout, self.rank, self.world = timeout, idist.get_rank(), idist.get_world_size()
        self.me, self.error, self.store = f"rank {self.rank} on {socket.gethostname()}", None, dist.HashStore()
        self.began, self.last, self.steps = time.monotonic(), time.monotonic(), 0
        self.over, self.once = threading.Event(), threading.Lock()
        if self.world > 1:  # a connection of its own, since the group's may be blocked; a name for each restart
            store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
            self.store = dist.PrefixStore(f"watch{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)

    def alive(self, _engine, steps=0):
        """`steps` counts only what all ranks do equally often: who has done least holds the others up."""
        self.steps, self.last = self.steps + steps, time.monotonic()

    def run(self):
        try:
            while not self.over.wait(0.5):
                self.look()
        except RuntimeError as e:
            self.end(f"rank 0 on {os.environ['MASTER_ADDR']} is gone, and the store with it: {e}")

    def look(self):
        """Show a sign of life, obey a verdict, pass one when there has been no progress for too long."""
        faulthandler.dump_traceback_later(self.timeout + 3 * GRACE, exit=True)  # if even this thread comes to a halt
        now, frame = time.monotonic(), sys._current_frames()[threading.main_thread().ident]
        place = f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
        sign = [now - self.began, self.steps, bool(self.error) or waits(frame), self.me, place]
        self.store.set(f"sign{self.rank}", json.dumps(sign))
        if self.store.check(["verdict"]):
            self.end("")
        elif now - self.last > self.timeout:
            signs = [json.loads(self.store.get(f"sign{r}")) for r in range(self.world)]
            if silent := [who for age, _, _, who, _ in signs if age < max(signs)[0] - 3]:
                self.end(f"no sign of life from {', '.join(silent)}")
            if self.error:  # nobody has died: the error is this rank's own
                self.end(self.error)
            least = [s for s in signs if s[1:3] == min(s[1:3] for s in signs)]
            self.end("no progress: " + "; ".join(f"{who} is at {place}" for *_, who, place in least))

    def __enter__(self):
        self.look()
        idist.barrier()  # every rank has shown itself
        self.start()
        return self

    def __exit__(self, _type, error, trace):
        if error:
            self.error = f"{self.me} failed: {type(error).__name__}: {error}\n{traceback.format_exc()}"
            if waits([*traceback.walk_tb(trace)][-1][0]):  # perhaps the echo of another's death: see who falls silent
                self.last = time.monotonic() - self.timeout + 3.5
                self.join(5)
                if not self.once.locked():  # the thread is stuck
                    self.store, self.error = None, f"rank 0 on {os.environ['MASTER_ADDR']} is frozen; {self.error}"
            self.end(self.error)
        self.over.set()
        self.join()
        faulthandler.cancel_dump_traceback_later()
        idist.barrier()  # only now may rank 0 take the store away

    def end(self, text):
        self.once.acquire()  # by one of the two threads, for good
        with suppress(Exception):  # the store may be gone
            text = self.store.compare_set("verdict", "", text).decode()  # the first verdict holds, for all
        if self.me not in text:
            text = text.partition("\n")[0]
        elif not self.error:
            text += "\n" + "".join(traceback.format_stack(sys._current_frames()[threading.main_thread().ident]))
        sys.stdout.flush()
        print(f"[{self.me} ends] {text}\n", end="", file=sys.stderr, flush=True)
        time.sleep(2)  # all others read the verdict before the launcher or the end of the store hits them
        os._exit(1)  # sys.exit would wait for a main thread that is stuck


def waits(frame):  # whether this innermost frame is of the code that waits for other ranks
    places = ("torch/distributed/", "torch/autograd/", "torch/nn/parallel/", "ignite/distributed/", "ignite/metrics/")
    return any(place in frame.f_code.co_filename for place in places)


def one_rank(_local_rank, work, args):
    with Watch(args.timeout) as watch:
        work(args, watch)


def launch(work, args):
    """Run work(args, watch) on every rank of the world that a launcher, or --nproc-per-node, makes; else here."""
    faulthandler.register(signal.SIGUSR1)  # `kill -USR1 PID` shows where a rank is
    backend = "nccl" if torch.cuda.is_available() else "gloo"  # nccl: not verified here
    timeout = timedelta(seconds=args.timeout + GRACE)  # the watch is to speak first
    if args.nproc_per_node:
        with socket.create_server(("127.0.0.1", 0)) as server:  # a free port: two jobs cannot share the default one
            where = {"master_addr": "127.0.0.1", "master_port": server.getsockname()[1]}
        idist.spawn(backend, one_rank, (work, args), nproc_per_node=args.nproc_per_node, timeout=timeout, **where)
    else:
        if "RANK" in os.environ or "SLURM_STEP_ID" in os.environ:
            idist.initialize(backend, timeout=timeout)  # Parallel(backend, timeout=…) would drop the timeout
        one_rank(idist.get_local_rank(), work, args)
        idist.finalize()


def options(description):
    """A parser with the options that every program of this kind has."""
    p = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", default="data", help="folder of the data set; made where it is missing")
    p.add_argument("--output", default="output", help="folder of best.pt and last.pt")
    p.add_argument("--batch-size", type=int, default=40, help="of all ranks together (default 40)")
    p.add_argument("--workers", type=int, default=0, help="processes that load data, for each rank (default 0)")
    p.add_argument("--nproc-per-node", type=int, help="start so many ranks here; leave it out under a launcher")
    p.add_argument("--timeout", type=float, default=600, help="seconds without progress that end the job (default 600)")
    return p


def main(arguments=None):
    p = options(__doc__)
    p.add_argument("--epochs", type=int, default=10, help="default 10")
    p.add_argument("--patience", type=int, default=3, help="epochs without a better loss that end training (default 3)")
    p.add_argument("--lr", type=float, default=0.01, help="default 0.01")
    p.add_argument("--seed", type=int, default=0, help="default 0")
    p.add_argument("--resume", action="store_true", help="go on from last.pt, if there is one")
    launch(train, p.parse_args(arguments))


if __name__ == "__main__":  # the processes that --nproc-per-node starts import this file
    main()
