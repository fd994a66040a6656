"""Evaluate a checkpoint of train.py in one process or many: every sample exactly once, one file of predictions.

    python evaluate.py                       one process;  --nproc-per-node 2  starts two on this host
    torchrun --nproc_per_node=2 evaluate.py  what torchrun (or srun, as for train.py) starts: the same bytes

Keep it beside train.py, which has the data, the model and the launching.
"""
import os
from pathlib import Path

import ignite.distributed as idist
import torch
from ignite.engine import Events, create_supervised_evaluator
from ignite.handlers import Checkpoint, EpochOutputStore
from torch.utils.data import DataLoader, Subset
from train import build_model, launch, load_data, options


def gather_in_order(mine, samples):
    """What the ranks have for their shards, put together in the order of the data set; the same on all ranks.

    `mine` has a row for each sample of this rank: samples rank, rank + world, rank + 2 * world and so on. The shards
    may differ by one in length, which all_gather cannot bear (it ends the process, or mixes up the values): so a row
    is added where one is missing, and taken off after the gathering.
    """
    world, longest = idist.get_world_size(), -(-samples // idist.get_world_size())
    padded = torch.zeros(longest, *mine.shape[1:], dtype=mine.dtype, device=mine.device)
    padded[: len(mine)] = mine
    shards = idist.all_gather(padded).view(world, longest, *mine.shape[1:])
    return shards.transpose(0, 1).flatten(0, 1)[:samples]


def evaluate(args, watch):
    """What every rank does."""
    rank, world, device = idist.get_rank(), idist.get_world_size(), idist.device()
    _, valid_set = load_data(args.data)
    # No DistributedSampler: it repeats samples until all shards are equal
    shard = Subset(valid_set, range(rank, len(valid_set), world))
    loader = DataLoader(shard, batch_size=max(1, args.batch_size // world), num_workers=args.workers)

    model = build_model().to(device)  # no auto_model: there are no gradients to share
    path = Path(args.output, args.checkpoint)
    Checkpoint.load_objects({"model": model}, torch.load(path, map_location="cpu"))  # map_location: not all on GPU 0

    evaluator = create_supervised_evaluator(model, device=device)
    evaluator.add_event_handler(Events.ITERATION_COMPLETED, watch.alive)
    store = EpochOutputStore(lambda output: torch.stack([output[0].argmax(dim=1), output[1]], dim=1))
    store.attach(evaluator)
    mine = torch.empty(0, 2, dtype=torch.long, device=device)
    if len(shard):  # with more ranks than samples some have none, but they take part in the gathering
        evaluator.run(loader)
        mine = torch.cat(store.data)

    rows = gather_in_order(mine, len(valid_set)).tolist()
    if rank == 0:
        part = Path(args.output, "predictions.csv.part")
        part.write_text("index,prediction,target\n" + "".join(f"{i},{p},{t}\n" for i, (p, t) in enumerate(rows)))
        os.replace(part, part.with_suffix(""))  # the file is there as a whole or not at all
        accuracy = sum(p == t for p, t in rows) / len(rows)
        print(f"accuracy={accuracy:.6f} samples={len(rows)} world={world}", flush=True)


def main(arguments=None):
    p = options(__doc__)
    p.add_argument("--checkpoint", default="best.pt", help="file in --output to evaluate (default best.pt)")
    launch(evaluate, p.parse_args(arguments))


if __name__ == "__main__":
    main()
