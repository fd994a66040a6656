"""Proofs of api-reference.md: auto_dataloader, auto_model, auto_optim, DistributedProxySampler."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import ignite.distributed as idist
import torch
from ignite.engine import Engine
from support.world import values
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    IterableDataset,
    SequentialSampler,
    WeightedRandomSampler,
)

from .api_reference import at, error, run_world, serial

AUTO = Path(idist.auto.__file__)


def two(function, **kwargs):
    return values(run_world(2, function, **kwargs))


class Ten(torch.utils.data.Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, i):
        return i


class Nine(Ten):
    def __len__(self):
        return 9


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(4))


def loader(**kwargs):
    return idist.auto_dataloader(Ten(), **kwargs)


def read(loader) -> list[int]:
    return [int(i) for batch in loader for i in batch]


SCALED = (
    ("batch_size=32", "batch_size"),
    ("batch_size=5", "batch_size"),
    ("batch_size=1", "batch_size"),
    ("batch_size=None", "batch_size"),
    ("num_workers=3", "num_workers"),
    ("num_workers=2", "num_workers"),
    ("num_workers=1", "num_workers"),
    ("", "sampler"),
    ("shuffle=False", "sampler"),
    ("shuffle=True", "sampler"),
    ("sampler=SequentialSampler(data)", "sampler"),
    ("sampler=[0, 1]", "sampler"),
)


def attribute(arguments: str, name: str) -> str:
    """What the loader made with these arguments has there, or what it raised."""
    try:
        made = eval(f"idist.auto_dataloader(data, {arguments})", globals() | {"data": Ten()})
    except Exception as e:
        return f"`{type(e).__name__}: {str(e).split(', but given')[0]}`"
    value = getattr(made, name)
    if name != "sampler":
        return f"`{name}={value}`"
    if isinstance(value, list):
        return f"`{value}`"
    shuffle = f"(shuffle={value.shuffle})" if type(value) is DistributedSampler else ""
    return f"`{type(value).__name__}{shuffle}`"


@at("auto_dataloader")
def auto_dataloader(entry):
    entry.says(
        "A `torch.utils.data.DataLoader` made with `kwargs`, changed only in a world of two or more. Local: it does not"
        " communicate."
    )
    alone = serial(lambda: [attribute(*case) for case in SCALED])
    shared = two(lambda rank: [attribute(*case) for case in SCALED])[0]
    one = values(run_world(1, lambda rank: [attribute(*case) for case in SCALED]))[0]
    assert one == alone
    rows = [["argument", "serial", "each of 2 ranks"]]
    rows += [[f"`{case[0]}`" if case[0] else "none", a, b] for case, a, b in zip(SCALED, alone, shared)]
    entry.table(rows)
    entry.says(
        "`batch_size` is that of the world: divided by the world size, rounded down, but left alone where it is"
        " smaller. `num_workers` is divided by the processes of the node, rounded up."
    )
    assert two(lambda rank: loader(num_workers=3).num_workers, env={"LOCAL_RANK": "0"}) == [3, 3]
    entry.says("Shuffled by default in a group, in serial not.")
    assert serial(lambda: read(loader())) == list(range(10))

    def epochs(rank):
        made = loader(batch_size=4)
        first, second = read(made), read(made)
        made.sampler.set_epoch(1)
        return first == second, first == read(made)

    assert two(epochs) == [(True, False)] * 2

    def trained(rank):
        order = []
        Engine(lambda engine, batch: order.extend(batch.tolist())).run(loader(batch_size=4), max_epochs=2)
        return order[: len(order) // 2] == order[len(order) // 2 :]

    assert two(trained) == [True, True]
    text = serial(lambda: error(lambda: loader().sampler.set_epoch(1)))
    entry.says(
        "`Engine.run` does not call `sampler.set_epoch(epoch)`: without it each epoch has the same order. In serial"
        f" the sampler lacks it (`{text}`)."
    )

    def padded(rank):
        made = idist.auto_dataloader(Nine(), batch_size=2, shuffle=False, drop_last=True)
        return read(made)

    got = two(padded)
    entry.says(
        f"`DistributedSampler` pads: 9 items on two ranks are read as {got[0]} and {got[1]}; `drop_last` goes to the"
        " loader only."
    )
    assert len(got[0]) == len(got[1]) == 5 and set(got[0]) | set(got[1]) == set(range(9))
    wrong = run_world(
        2, lambda rank: read(loader(sampler=DistributedSampler(Ten(), num_replicas=2, rank=0, shuffle=False)))
    )
    assert values(wrong)[0] == values(wrong)[1]
    entry.says(
        "A `DistributedSampler` of yours is used as it is, a wrong one too"
        f" (`{wrong[1].warnings[0].replace('rank is 1', 'rank is …')}`); another is wrapped in DistributedProxySampler."
        .replace("rank=0", "rank=…")
    )
    batches = run_world(2, lambda rank: read(loader(batch_sampler=BatchSampler(SequentialSampler(Ten()), 5, False))))
    assert values(batches)[0] == values(batches)[1] == list(range(10))
    entry.says(f"`batch_sampler`: not touched, every rank reads all data, `{batches[0].warnings[0].split('.')[0]}…`.")
    stream = two(
        lambda rank: (
            idist.auto_dataloader(Stream(), batch_size=4).batch_size,
            read(idist.auto_dataloader(Stream(), batch_size=4)),
        )
    )
    assert stream == [(2, [0, 1, 2, 3])] * 2
    text = two(lambda rank: error(idist.auto_dataloader, Stream(), shuffle=True))[0]
    entry.says(
        "`IterableDataset`: `batch_size` is divided, the data are not: every rank reads all. With `shuffle=True`:"
        f" `{text}`."
    )

    def pinned():
        with patch("torch.cuda.is_available", return_value=True), patch("torch.cuda.current_device", return_value=0):
            return loader().pin_memory

    assert serial(pinned) is True and serial(lambda: loader().pin_memory) is False
    entry.says("`pin_memory` defaults to whether `device()` is CUDA.")
    assert 'removes "shuffle" from kwargs' in AUTO.read_text() and "MpDeviceLoader" in AUTO.read_text()
    entry.not_verified(
        "On XLA an `MpDeviceLoader` comes back, `pin_memory` is off (not verified here).", "auto.py, auto_dataloader"
    )


def net():
    return nn.Linear(1, 1)


@at("auto_model")
def auto_model(entry):
    def at_world_one():
        m = net()
        return idist.auto_model(m, sync_bn=True, foo=1) is m

    def moved():
        m = net()
        with patch.object(idist.utils, "device", lambda: torch.device("meta")):
            return idist.auto_model(m) is m, m.weight.device.type

    assert serial(moved) == (True, "meta")
    assert serial(at_world_one) and values(run_world(1, lambda rank: at_world_one())) == [True]
    entry.says(
        "Moves the model to `device()` in place. In a world of one, serial or `gloo`, that is all: the same object"
        " comes back, `sync_bn` and `kwargs` are not looked at."
    )

    def wrapped(rank):
        m = net()
        with torch.no_grad():
            m.weight.fill_(rank + 1.0)
        w = idist.auto_model(m, find_unused_parameters=True)
        return type(w).__name__, w.module is m, m.weight.item(), sorted(w.state_dict()), w.find_unused_parameters

    def other_backends(rank):
        names = []
        for name in ("nccl", "mpi", "other"):
            with patch.object(idist.utils, "backend", lambda: name):
                names.append(type(idist.auto_model(net())).__name__)
        return names

    assert two(other_backends)[0] == ["DistributedDataParallel"] * 2 + ["Linear"]
    got = two(wrapped)
    assert got[0] == got[1] == ("DistributedDataParallel", True, 1.0, ["module.bias", "module.weight"], True)
    entry.says(
        f"In a larger world of `gloo`, `nccl` or `mpi`: collective; `torch.nn.parallel.{got[0][0]}(model, **kwargs)`"
        f" with rank 0's weights everywhere. State keys become `{got[0][3][0]}`, your own attributes are behind"
        " `.module`."
    )
    text = two(lambda rank: error(idist.auto_model, net(), foo=1))[0]
    entry.says(f"So a bad argument shows only there: `{text.split('.')[-1]}`.")
    twice = two(lambda rank: sorted(idist.auto_model(idist.auto_model(net())).state_dict())[0])[0]
    entry.says(f"A second call wraps again (`{twice}`).")
    text = two(lambda rank: error(idist.auto_model, nn.ReLU()))[0]
    assert serial(lambda: type(idist.auto_model(nn.ReLU())).__name__) == "ReLU"
    entry.says(f"Nothing to train: `{text.split(' when')[0]}…`, in a world of one no error.")

    def with_cuda(rank):
        with patch("torch.cuda.is_available", return_value=True), patch.object(
            idist.utils, "device", lambda: torch.device("cpu")
        ):
            with patch("torch.nn.parallel.DistributedDataParallel", side_effect=lambda m, **k: k):
                return error(idist.auto_model, net(), device_ids=[0]), idist.auto_model(net())

    (text, _), (_, given) = two(with_cuda)
    assert given == {"device_ids": [1]}
    entry.says(
        "With CUDA available `device_ids` is set to the local rank, `gloo` included; passing it:"
        f" `{text.split(', but')[0]}…`."
    )

    def normalised(rank):
        with patch("torch.nn.parallel.DistributedDataParallel", side_effect=lambda m, **k: m):
            return type(idist.auto_model(nn.Sequential(nn.BatchNorm1d(1)), sync_bn=True)[0]).__name__

    name = two(normalised)[0]
    entry.says(f"`sync_bn=True` turns batch norms into `torch.nn.{name}` first.")

    def data_parallel():
        with (
            patch("torch.cuda.device_count", return_value=2),
            patch.object(idist.utils, "device", lambda: torch.device("cuda")),
            patch.object(nn.Module, "to", lambda self, device: self),
            patch("torch.nn.parallel.DataParallel", side_effect=lambda m, **k: "DataParallel"),
        ):
            return idist.auto_model(net())

    name = serial(data_parallel)
    entry.says(f"Serial with several CUDA devices: `torch.nn.{name}(model, **kwargs)`.")
    assert "hvd.broadcast_parameters" in AUTO.read_text()
    entry.not_verified("Horovod: weights are broadcast, no wrapper (not verified here).", "auto.py, auto_model")


@at("auto_optim")
def auto_optim(entry):
    def same(rank=0):
        o = torch.optim.SGD(net().parameters(), lr=0.1)
        return idist.auto_optim(o, foo=1) is o, o.param_groups[0]["lr"]

    assert [serial(same), *two(same)] == [(True, 0.1)] * 3
    for name in ("nccl", "mpi"):
        with patch.object(idist.utils, "backend", lambda: name):
            assert same() == (True, 0.1)
    entry.says(
        "Serial and `gloo` (`nccl`, `mpi`): the same object comes back, `kwargs` are ignored, the learning rate is not"
        " scaled."
    )
    assert "hvd.DistributedOptimizer(optimizer, **kwargs)" in AUTO.read_text()
    assert "xm.optimizer_step(self.wrapped_optimizer" in AUTO.read_text()
    entry.not_verified(
        "Horovod: `horovod.torch.DistributedOptimizer(optimizer, **kwargs)`, state broadcast from rank 0; XLA: a new"
        " class whose `step()` reduces the gradients (not verified here).",
        "auto.py, auto_optim",
    )


@at("DistributedProxySampler")
def proxy(entry):
    def sharded(rank):
        return list(idist.DistributedProxySampler(SequentialSampler(Nine())))

    got = two(sharded)
    entry.says(
        "Gives each rank its share of what `sampler` draws, every `num_replicas`-th from `rank` on; padded by drawing"
        f" again: 9 items on two ranks are {got[0]} and {got[1]}."
    )
    entry.says("`num_replicas` and `rank` default to those of the group;")
    text = serial(lambda: error(idist.DistributedProxySampler, SequentialSampler(Ten())))
    entry.says(f"without one `{text.split(', please')[0]}…`.")

    def seeded(rank):
        torch.manual_seed(1000 + rank)
        shares = idist.DistributedProxySampler(WeightedRandomSampler(torch.ones(10), 10))
        first = list(shares)
        seed = torch.initial_seed()
        second = list(shares)
        shares.set_epoch(3)
        third = list(shares)
        return first == second, first == third, seed, torch.initial_seed()

    same, other, seed, after = two(seeded)[0]
    assert same and not other and two(seeded)[1][2:] == (seed, after)
    entry.says(
        f"Each iteration calls `torch.manual_seed(epoch)` on the global generator (epoch {seed} until `set_epoch`): the"
        " order repeats, and all ranks go on with the same random numbers."
    )
    texts = serial(
        lambda: [
            error(idist.DistributedProxySampler, x, num_replicas=1, rank=0)
            for x in ([0, 1], DistributedSampler(Ten(), num_replicas=1, rank=0), _NoLength())
        ]
    )
    entry.says(f"Not a `torch.utils.data.Sampler`: `{texts[0].split(': <')[0]}: …`")
    entry.says(f"A `DistributedSampler`: `{texts[1]}`.")
    entry.says(f"Without `__len__`: `{texts[2]}`.")


class _NoLength(torch.utils.data.Sampler):
    def __init__(self):
        pass

    def __iter__(self):
        return iter([0])
