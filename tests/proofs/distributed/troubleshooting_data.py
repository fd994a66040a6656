"""Proofs: data loading, model wrapping, metrics and checkpoints, logging."""

from __future__ import annotations

import logging
import os
import re
import signal
import tempfile
import time

import ignite.distributed as idist
import torch
from ignite.engine import Engine
from ignite.handlers import Checkpoint, DiskSaver, ModelCheckpoint
from ignite.metrics import Accuracy, Average
from ignite.utils import setup_logger
from support.world import run_serial, run_world, values
from torch import nn
from torch.utils.data import BatchSampler, DistributedSampler, IterableDataset, Sampler, SequentialSampler

from .troubleshooting_tools import evaluate, pretend_cuda, raised, symptom


class Endless(Sampler):
    """A sampler without a length."""

    def __init__(self):
        pass

    def __iter__(self):
        return iter(int, 1)


class Backwards(Sampler):
    """A sampler as the page asks for: `__iter__` and `__len__`."""

    def __init__(self):
        pass

    def __iter__(self):
        return iter(range(7, -1, -1))

    def __len__(self):
        return 8


@symptom("argument-sampler-should-be-instance-of-torch-sampler-but-given-")
def samplers_refused(entry):
    loader = idist.auto_dataloader
    entry.heading(raised(run_world(2, lambda rank: loader(range(8), sampler=[0, 1]))[0], "TypeError"))
    assert values([run_serial(lambda: len(loader(range(8), sampler=[0, 1])))]) == [2]
    entry.says("sampler= is a list or the like; in serial that passes.")
    wrap = idist.DistributedProxySampler
    entry.quotes(raised(run_world(2, lambda r: wrap(DistributedSampler(range(8), 2, r), 2, r))[0], "TypeError"))
    entry.quotes(raised(run_world(2, lambda rank: loader(range(8), sampler=Endless()))[0], "TypeError"))
    entry.says("Other samplers that DistributedProxySampler refuses", "type(sampler).")

    def fixed(rank):
        own = list(loader(range(8), sampler=Backwards()).sampler)
        given = DistributedSampler(range(8), 2, rank)
        return own, loader(range(8), sampler=given).sampler is given

    assert values(run_world(2, fixed)) == [([7, 5, 3, 1], True), ([6, 4, 2, 0], True)]
    entry.says(
        "subclass Sampler with __iter__ and __len__; give a DistributedSampler to idist.auto_dataloader as it is."
    )
    entry.says("the loader yields a share per rank")


@symptom("runtimeerror--vs-")
def sampler_changed(entry):
    for name in ("num_samples", "total_size"):

        def program():
            sampler = idist.DistributedProxySampler(SequentialSampler(range(8)), 2, 0)
            setattr(sampler, name, 2)
            list(sampler)

        out = run_serial(program)
        raised(out, "RuntimeError")
        entry.heading(f"{out.error}: {out.message}")
    entry.says("assignments to the sampler's attributes")  # the one line that tells `program` from `fixed`
    entry.says("drawn and expected by DistributedProxySampler differ: someone changed num_samples or total_size")

    def fixed():
        sampler = idist.DistributedProxySampler(SequentialSampler(range(8)), 2, 0)
        return len(list(sampler)) == len(sampler)

    assert values([run_serial(fixed)]) == [True]
    entry.says("it yields len(sampler) indices")
    entry.says("the numbers of indices drawn", "after it was made.", "make a new one. Proof it yields")


@symptom("-not-supported-between-instances-of-nonetype-and-int")
def no_batch_size(entry):
    call = "batch_size=None"
    out = run_world(2, lambda rank: evaluate(f"idist.auto_dataloader(range(4), {call})"))[0]
    entry.heading(raised(out, "TypeError"))
    assert "in auto_dataloader" in out.traceback
    entry.says("Check the call")
    values([run_serial(lambda: evaluate(f"idist.auto_dataloader(range(4), {call})") and None)])
    entry.says(f"{call} (no automatic batching) in idist.auto_dataloader works in serial only.")

    def fixed(rank):
        share = SequentialSampler(range(2 * rank, 2 * rank + 2))
        batches = BatchSampler(range(2 * rank, 2 * rank + 2), 2, False)
        assert len(share) == 2
        return [b.tolist() for b in idist.auto_dataloader(range(4), batch_sampler=batches)]

    assert values(run_world(2, fixed)) == [[[0, 1]], [[2, 3]]]
    entry.says("leave batch_size out and pass batch_sampler=, sharded by you, or build the DataLoader yourself.")
    entry.says("each rank yields its share")


@symptom("default-process-group-has-not-been-initialized")
def sampler_before_group(entry):
    for make in (DistributedSampler, lambda data, *rest: idist.DistributedProxySampler(SequentialSampler(data), *rest)):
        out = run_serial(lambda: make(range(8)))
        entry.heading(raised(out, "ValueError"))
        assert "make(range(8))" in out.traceback  # it names the line where the sampler is made
        values([run_serial(lambda: len(make(range(8), 2, 0)))])
        values(run_world(2, lambda rank: len(make(range(8)))))
    entry.says("DistributedSampler or DistributedProxySampler was made before the group exists.")
    entry.says(
        "the traceback: at import or above run.",
        "make it inside the function that run calls, or pass num_replicas= and rank=."
    )
    entry.says("Proof it is made")


class Stream(IterableDataset):
    """Two samples."""

    def __iter__(self):
        return iter(range(2))


@symptom("dataloader-with-iterabledataset-expected-unspecified-shuffle-option-but-got-shuffle")
def shuffled_stream(entry):
    out = run_world(2, lambda rank: idist.auto_dataloader(Stream(), batch_size=2, shuffle=True))[0]
    entry.heading(raised(out, "ValueError"))
    assert "in auto_dataloader" in out.traceback
    assert values(run_world(2, lambda rank: len(list(idist.auto_dataloader(Stream(), batch_size=2))))) == [2, 2]
    entry.says("Check the call. Fix drop shuffle=;", "the loader is made")
    entry.says("an IterableDataset has no order to shuffle.", "drop shuffle=; shuffle inside the data set.")


@symptom("input-data-has-zero-size-please-provide-non-empty-data")
def rank_without_batch(entry):
    def program(rank, data):
        engine = Engine(lambda engine, batch: float(batch))
        Average().attach(engine, "average")
        return engine.run(data(rank)).metrics["average"]

    peer, empty = run_world(2, lambda rank: program(rank, lambda r: [] if r else [1.0]))
    entry.heading(raised(empty, "ValueError"))
    assert "by peer" in peer.message
    entry.says(
        "or an IterableDataset that yields on one rank only.",
        "The other ranks report Connection closed by peer or wait.",
    )

    def loader(rank):
        return idist.auto_dataloader([1.0], batch_size=1)

    assert values(run_world(2, lambda rank: len(loader(rank)))) == [1, 1]
    assert values(run_world(2, lambda rank: program(rank, loader))) == [1.0, 1.0]
    entry.says("len(loader) per rank", "give each rank at least one batch; a distributed sampler pads.")
    entry.says("this rank got no batch: fewer samples than ranks, or", "all ranks end the epoch")


@symptom("the-data-set-is-downloaded-by-every-rank")
def downloaded_everywhere(entry):
    code = "with idist.one_rank_first(local=True):"

    def program(rank, folder, text):
        done = []

        def download():
            path = f"{folder}/data"
            if not os.path.exists(path):
                time.sleep(0.1)
                open(path, "w").close()
                done.append(rank)

        exec(f"{text}\n    download()", {"idist": idist, "download": download})
        return done

    with tempfile.TemporaryDirectory() as folder:
        assert values(run_world(2, lambda rank: program(rank, folder, "if True:"))) == [[0], [1]]
    for text in (code, code.replace("True", "False")):
        with tempfile.TemporaryDirectory() as folder:
            assert values(run_world(2, lambda rank: program(rank, folder, text))) == [[0], []]
    entry.says("or under if rank == 0: without a barrier, so that others read half a file.", "the start of training.")
    entry.says(f"{code} around it, with a disk per node; local=False with a shared one.")
    entry.says("The block runs on every rank, one first, so it must find the file that is there.")
    entry.says(
        "the download stands in the function that each rank runs", "one rank per node downloads, the others find it"
    )


def model() -> nn.Module:
    """Two layers."""
    return nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))


@symptom("argument-kwargs-should-not-contain-device_ids-but-got-")
def device_ids(entry):
    def program(rank):
        pretend_cuda()
        fake = model()
        fake.to = lambda device: fake
        idist.auto_model(fake, device_ids=[rank])

    entry.heading(raised(run_world(2, program)[0], "ValueError"))
    entry.says("Check its arguments")  # the call that raised gives device_ids, the one below does not
    entry.says("idist.auto_model sets device_ids itself from the local rank when CUDA is there.")
    fix = "idist.auto_model(model, find_unused_parameters=True)"

    def fixed(rank):
        wrapped = evaluate(fix, model=model())
        return type(wrapped).__name__, wrapped.find_unused_parameters

    outcomes = run_world(2, fixed)
    assert values(outcomes) == [("DistributedDataParallel", True)] * 2
    entry.says(f"Fix drop it; the other arguments of DistributedDataParallel pass: {fix}.")
    entry.quotes(outcomes[0].output)
    line = "Apply torch DistributedDataParallel on model"
    assert line in outcomes[0].output
    entry.says(f"the log says {line}")


@symptom("distributeddataparallel-object-has-no-attribute-")
def attribute_of_wrapper(entry):
    entry.heading(raised(run_world(2, lambda rank: idist.auto_model(nn.Linear(2, 2)).in_features)[0], "AttributeError"))
    fix = 'getattr(model, "module", model)'

    def fixed(rank=0):
        return evaluate(fix, model=idist.auto_model(nn.Linear(2, 2))).in_features

    assert values(run_world(2, fixed)) == [2, 2] and values([run_serial(fixed)]) == [2]
    entry.says("attributes and methods of your model are one level down once the world is larger than 1.")
    entry.says("type(model).", f"{fix} works in serial too.")
    entry.says("the attribute is there")


@symptom("got-an-unexpected-keyword-argument-")
def argument_of_wrapper(entry):
    message = raised(run_world(2, lambda rank: idist.auto_model(model(), foo=1))[0], "TypeError")
    entry.heading(message)
    assert "__init__()" in message
    assert values(run_world(1, lambda rank: type(idist.auto_model(model(), foo=1)).__name__)) == ["Sequential"]
    entry.says("an argument of idist.auto_model that the wrapper does not know; with world size 1 nothing is wrapped")

    def many():
        pretend_cuda()
        fake = model()
        fake.to = lambda device: fake
        nn.parallel.DataParallel = lambda module, **kwargs: print("DataParallel", kwargs) or module
        idist.auto_model(fake, find_unused_parameters=True)

    assert "DataParallel {'find_unused_parameters': True}" in run_serial(many).output
    entry.says("On several GPUs without a group it goes to DataParallel.", "the name after __init__().")
    known = run_world(2, lambda rank: type(idist.auto_model(model(), find_unused_parameters=True)).__name__)
    assert values(known) == ["DistributedDataParallel"] * 2
    entry.says("arguments of DistributedDataParallel only", "Proof it is wrapped")
    entry.says("nothing is wrapped and it passes in silence.")


@symptom("distributeddataparallel-is-not-needed-when-a-module-doesnt-have-any-parameter-that-requires-a-gradient")
def nothing_to_train(entry):
    frozen = model().requires_grad_(False)
    for given in (frozen, nn.ReLU()):
        entry.heading(raised(run_world(2, lambda rank: idist.auto_model(given))[0], "RuntimeError"))
    check, fix = "any(p.requires_grad for p in model.parameters())", "model.to(idist.device())"
    assert evaluate(check, model=frozen) is False
    values(run_world(2, lambda rank: evaluate(fix, model=model())(torch.ones(1, 2)).shape))
    entry.says("went through idist.auto_model in a group", f"{check}.", f"{fix} instead")
    entry.says("a frozen model, or one without parameters (a teacher, a loss), went", "Proof it runs")


class Branches(nn.Module):
    """Two layers, of which only one is used."""

    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(1, 1), nn.Linear(1, 1)

    def forward(self, x):
        return self.used(x)


@symptom("expected-to-have-finished-reduction-in-the-prior-iteration-before-starting-a-new-one")
def parameter_unused(entry):
    fix = "idist.auto_model(model, find_unused_parameters=True)"

    def program(rank, code="idist.auto_model(model)"):
        wrapped = evaluate(code, model=Branches())
        for _ in range(2):
            wrapped(torch.ones(1, 1)).sum().backward()

    plain = raised(run_world(2, program)[0], "RuntimeError")
    entry.heading(plain)
    debug = "TORCH_DISTRIBUTED_DEBUG=INFO"
    name, value = debug.split("=")

    def with_debug(rank):
        import torch.distributed as dist

        dist.set_debug_level(getattr(dist.DebugLevel, value))
        program(rank)

    message = run_world(2, with_debug, env={name: value})[0].message
    assert "unused.weight" in message and "unused.weight" not in plain
    entry.says(f"{debug} adds their names to the text.")
    values(run_world(2, lambda rank: program(rank, fix)))
    entry.says(f"use all outputs in the loss, or {fix}.")
    entry.says("some parameters got no gradient in the last step (a branch or head not used).", "two steps pass")


@symptom("ddp-expects-same-model-across-all-ranks")
def different_models(entry):
    out = run_world(2, lambda rank: idist.auto_model(nn.Linear(1, 1, bias=bool(rank))))[0]
    entry.heading(raised(out, "RuntimeError"))
    values(run_world(2, lambda rank: idist.auto_model(nn.Linear(1, 1)) and None))
    entry.says(
        "the ranks built different models (a random depth, another config).",
        "print the number of parameters on each rank. Fix the same configuration everywhere. Proof it is wrapped",
    )


@symptom("unexpected-keys-in-state_dict-module")
def prefix_of_wrapper(entry):
    fix = 'torch.nn.modules.utils.consume_prefix_in_state_dict_if_present(state, "module.")'
    save = "model.module.state_dict()"

    def program(rank, how=None):
        wrapped = idist.auto_model(model())
        if how == "save":
            state = evaluate(save, model=wrapped)
        elif how == "Checkpoint":
            with tempfile.TemporaryDirectory() as folder:
                Checkpoint({"model": wrapped}, DiskSaver(folder, require_empty=False))(Engine(lambda e, b: None))
                if rank:
                    return
                state = torch.load(f"{folder}/{os.listdir(folder)[0]}")
        else:
            state = wrapped.state_dict()
            assert next(iter(state)).startswith("module.")
            if how == "strip":
                evaluate(fix, state=state)
        model().load_state_dict(state)

    def all_ways(rank):
        for how in ("save", "Checkpoint", "strip"):
            program(rank, how)
        program(rank)

    out = run_world(2, all_ways)[0]
    entry.heading(raised(out, "RuntimeError"))
    assert "    program(rank)\n" in out.traceback, out.traceback  # the last one, with the state as it was, and no other
    entry.says("the first key of the file")  # begins with module., see `program`
    entry.says("the state was saved from the wrapped model, with module. before each name.")
    entry.says(f"save {save}, or use Checkpoint, which unwraps; for a file that exists {fix}.")
    entry.says("Proof it loads")


@symptom("-must-have-at-least-one-example-before-it-can-be-computed")
def nothing_seen(entry):
    for metric in (Accuracy, Average):
        entry.heading(raised(run_world(2, lambda rank: metric().compute())[0], "NotComputableError"))

    def one_rank_saw(rank):
        average = Average()
        if rank == 0:
            average.update(4.0)
        return average.compute()

    assert values(run_world(2, one_rank_saw)) == [4.0, 4.0]
    entry.says("the metric has a value", "the number of samples")  # 0 above, 1 here
    entry.says("compute on a metric that saw no sample on any rank.")
    empty = raised(run_serial(lambda: Engine(lambda e, b: None).run([])), "ValueError")
    entry.says(f"as for {empty.split('.')[0]}")


@symptom("files--with-extension-pt-are-already-present-in-the-directory-")
def folder_not_empty(entry):
    fix = "require_empty=False"
    with tempfile.TemporaryDirectory() as folder:
        open(f"{folder}/x_1.pt", "w").close()
        guilty, peer = run_world(2, lambda rank: ModelCheckpoint(folder, "x") and None)
        entry.heading(raised(guilty, "ValueError"))
        assert "by peer" in peer.message
        values(
            run_world(
                2,
                lambda rank: (
                    evaluate(f"ModelCheckpoint(f, 'x', {fix})", ModelCheckpoint=ModelCheckpoint, f=folder) and None
                ),
            )
        )
    entry.says(
        "ModelCheckpoint found an old run; only the rank that saves looks and raises, the others lose their peer."
    )
    with tempfile.TemporaryDirectory() as fresh:
        values(run_world(2, lambda rank: ModelCheckpoint(fresh, "x") and None))
    entry.says("Check the folder")  # with x_1.pt it raised, empty it does not
    entry.says(f"a folder per run, or {fix}.")
    entry.says("all ranks pass the constructor")


class Kill:
    """Ends the process by SIGKILL in the middle of being saved."""

    def __reduce__(self):
        os.kill(os.getpid(), signal.SIGKILL)


class Stateful:
    def __init__(self, value):
        self.value = value

    def state_dict(self):
        return {"value": self.value}


@symptom("no-checkpoint-is-left-after-an-interruption")
def removed_before_written(entry):
    def left(fix="", **options):
        """What the folder holds after a first save and a second one that is killed."""
        with tempfile.TemporaryDirectory() as folder:

            def two_saves():
                disk, model, engine = DiskSaver(folder, require_empty=False), Stateful(1), Engine(lambda e, b: None)
                exec(fix, {"disk": disk})
                checkpoint = Checkpoint({"model": model}, disk, **options)
                checkpoint(engine)
                model.value, engine.state.iteration = Kill(), 1
                checkpoint(engine)

            out = run_serial(two_saves)
            assert out.exit_code == -signal.SIGKILL, out
            return sorted(re.sub("tmp.+", "tmp…", name) for name in os.listdir(folder))

    name, fix = {"filename_pattern": "last.pt"}, "disk.remove = lambda name: None"
    rest = left(**name)
    assert rest == left() == left(n_saved=1) == ["tmp…"]
    entry.says(
        f'with a fixed file name such as filename_pattern="{name["filename_pattern"]}", as with the default n_saved=1,'
        " Checkpoint removes the old file before it writes the new one, and the job was killed in between.",
        f"the folder: a {rest[0]} file, and no other.",
    )
    assert left(fix, **name) == ["last.pt", *rest] and left(n_saved=2) == ["model_0.pt", *rest]
    entry.says(
        f"on your DiskSaver, whose write replaces the old file in one step, {fix} under a fixed name; under numbered"
        " names n_saved=2.",
        "the file of the save before outlives a kill during a save.",
    )


@symptom("more-memory-on-gpu-0-after-resuming")
def loaded_to_gpu_0(entry):
    fix = 'torch.load(path, map_location="cpu")'
    with tempfile.TemporaryDirectory() as folder:
        torch.save({"a": torch.ones(1)}, path := f"{folder}/x.pt")
        assert evaluate(fix, path=path)["a"].device.type == "cpu"
    entry.not_verified("each rank loaded the file to the device it was saved from.", "pytorch/pytorch#23138")
    entry.not_verified(f"nvidia-smi shows all ranks on GPU 0. Fix {fix}.", "pytorch/pytorch#23138")
    entry.not_verified("one process per GPU.", "pytorch/pytorch#23138")
    entry.not_verified("(not verified here: pytorch/pytorch#23138.)", "pytorch/pytorch#23138")


@symptom("every-line-appears-once-per-rank")
def lines_repeated(entry):
    fix = 'setup_logger("train")'

    def program(rank):
        logging.basicConfig(force=True)
        logging.getLogger("plain").warning("one line")
        print("one line")

    def before(rank):
        logger = evaluate(fix, setup_logger=setup_logger)
        idist.initialize("gloo")
        logger.info("one line")

    def after(rank):
        evaluate(fix, setup_logger=setup_logger).info("one line")
        if evaluate("idist.get_rank() == 0"):
            print("bar")

    assert all(out.output.count("one line") == 2 for out in run_world(2, program))
    assert all("one line" in out.output for out in run_world(2, before, init=None))
    outcomes = run_world(2, after)
    assert "one line" in outcomes[0].output and "bar" in outcomes[0].output and not outcomes[1].output.strip()
    entry.says("where the logger is made")  # in `before` and `after` it is made by the same call
    import inspect

    from ignite.handlers import ProgressBar

    assert "rank" not in inspect.getsource(ProgressBar).replace("frank", "")
    entry.says("Progress bars and experiment loggers are not filtered.")
    entry.says("plain logging, print, or a logger made before the group")
    entry.says("Ignite's setup_logger is quiet on ranks above 0 only if called after.")
    entry.says(f"{fix} inside the function that run calls; ProgressBar and the like under if idist.get_rank() == 0:.")
    entry.says("each line stands once")


@symptom("ranks-above-0-log-nothing")
def ranks_silent(entry):
    fix = 'setup_logger("train", distributed_rank=0)'

    def program(rank):
        return [type(h).__name__ for h in setup_logger("train").handlers]

    handlers = values(run_world(2, program))
    assert handlers[0] != handlers[1]
    entry.says("the same rule from the other side:")
    entry.says(f"a logger from setup_logger has a {handlers[1][0]} on ranks above 0.", "logger.handlers.")
    outcomes = run_world(2, lambda rank: evaluate(fix, setup_logger=setup_logger).info("heard"))
    assert all("heard" in out.output for out in outcomes)

    def with_rank(rank):
        setup_logger("train", distributed_rank=0, format=f"[{idist.get_rank()}] %(message)s").info("heard")

    assert [out.output.strip()[:9] for out in run_world(2, with_rank)] == ["[0] heard", "[1] heard"]
    entry.says("put the rank into the format")
    entry.says(f"{fix} speaks on every rank")
    entry.says("each rank writes")


@symptom("use-data-loader-kwargs-for-dataset-")
def loader_information(entry):
    fix = 'setup_logger("ignite.distributed.auto.auto_dataloader", level=logging.WARNING)'

    def program(rank, quiet=False):
        if quiet:
            evaluate(fix, setup_logger=setup_logger, logging=logging)
        idist.auto_dataloader([1, 2])

    entry.heading(run_world(2, program)[0].output)
    quiet = run_world(2, lambda rank: program(rank, True))
    assert not any("Use data loader" in out.output for out in quiet)
    entry.says(
        "information of idist.auto_dataloader, once per loader",
        f"the numbers in it. Fix to silence it, before the call {fix}; a later call keeps it",
    )
    entry.says("the line is gone")
