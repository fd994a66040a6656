"""Proofs of the API reference of the handlers room: progress bar, experiment loggers, the functions that set up"
" many."""

from __future__ import annotations

import inspect
import os
import re
import sys
import tempfile
import warnings
from unittest.mock import MagicMock, patch

import ignite.handlers
import torch
from ignite.contrib.engines import common
from ignite.engine import Engine, Events
from ignite.handlers import (
    FBResearchLogger,
    ProgressBar,
    TensorboardLogger,
    WandBLogger,
    global_step_from_engine,
    logger_utils,
    tensorboard_logger,
)
from probes import handlers as probe
from support.world import run_serial, run_world, values
from torch import nn
from torch.utils.data.distributed import DistributedSampler

from .api_reference import at, error, ticked

SERVICE = {  # what the packages ask for: from their own documentation, not run here
    "TensorboardLogger": ("tensorboardX, or tensorboard", "none", "files in `log_dir`"),
    "WandBLogger": ("wandb", "wandb", "`mode='offline'`"),
    "MLflowLogger": ("mlflow", "none", "files, unless `tracking_uri` is a server"),
    "ClearMLLogger": ("clearml", "ClearML", "`ClearMLLogger.set_bypass_mode(True)`, or `Task.set_offline(True)`"),
    "NeptuneLogger": ("neptune", "Neptune", "`mode='offline'`"),
    "PolyaxonLogger": ("polyaxon, or polyaxon-client", "Polyaxon", "no"),
    "VisdomLogger": ("visdom", "none", "`offline=True`, else a server"),
}


def pieces_of(logger: str) -> set[str]:
    """What the module exports besides the logger, without the common part of the names."""
    return {n.removesuffix("Handler") for n in probe.helpers()[logger]}


@at("Loggers")
def loggers(entry):
    rows = [["logger", "package", "account", "without a server", "helper handlers besides `Output`, `OptimizerParams`"]]
    for logger, (package, account, alone) in SERVICE.items():
        said = probe.without_package(logger)
        asked = {re.split(r"[ ,]", m)[0] for m in re.findall(r"(?:install|either) ([a-zA-Z-]+)", said)}
        assert logger == "VisdomLogger" or package.split(",")[0] in asked | {"tensorboardX"}, (package, asked)
        more = [n for n in probe.helpers()[logger] if n not in ("OutputHandler", "OptimizerParamsHandler")]
        short = ticked(sorted(n.removesuffix("Handler") for n in more))
        rows.append([f"`{logger}`", package, account, alone, short or "–"])
    entry.table(rows)
    entry.says("Accounts and the ways to run without a server: `not verified here`, they are those of the packages.")
    entry.says("Each helper handler exists in the module of its logger"
               " (`ignite.handlers.tensorboard_logger.OutputHandler`)"
               " and fits that one only.")  # fmt: skip
    assert tensorboard_logger.OutputHandler is not ignite.handlers.wandb_logger.OutputHandler


@at("Loggers")
def loggers_ranks(entry):
    def on_rank(rank):
        wandb, engine = MagicMock(), Engine(probe.step)
        with probe.stand_ins(wandb=wandb):
            logger = WandBLogger(project="p")
            logger.attach_output_handler(engine, Events.ITERATION_COMPLETED, "t", output_transform=lambda x: x)
            engine.run([1, 2], max_epochs=1)
        return wandb.init.call_count, wandb.log.call_count

    assert values(run_world(2, on_rank)) == [(1, 2)] * 2
    for logger, module in probe.LOGGERS.items():
        source = inspect.getsource(getattr(module, logger)) + inspect.getsource(module.OutputHandler)
        assert "idist" not in source, logger
    entry.says(
        "Several ranks: none of them asks for its rank. Each rank opens a run of its own and logs the same step,"
        " so build"
        " and attach them under `if idist.get_rank() == 0:`; what they call of your own code must then not be"
        " collective."
    )

    def one(rank):
        engine = Engine(probe.step)
        logged = []
        if rank == 0:
            with probe.stand_ins():
                logger = TensorboardLogger(log_dir="x")
                logger.writer.add_scalar = lambda *a: logged.append(a)
                logger.attach_output_handler(engine, Events.ITERATION_COMPLETED, "t", output_transform=lambda x: x)
        engine.run([1, 2], max_epochs=1)
        return len(logged)

    assert values(run_world(2, one)) == [2, 0]


def logged(attach) -> list[tuple]:
    """What `add_scalar` of a TensorBoard logger is called with; `attach(logger)` attaches it and runs engines."""
    calls = []
    with probe.stand_ins(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logger = TensorboardLogger(log_dir="x")
        logger.writer.add_scalar = lambda *a: calls.append(a)
        attach(logger)
    return calls


@at("Loggers")
def loggers_steps(entry):
    def attach(logger, transform=None):
        trainer, evaluator = Engine(probe.step), Engine(probe.step)
        evaluator.add_event_handler(Events.EPOCH_COMPLETED, lambda e: e.state.metrics.update(a=0.5))
        logger.attach_output_handler(
            evaluator, Events.COMPLETED, "val", metric_names=["a"],
            global_step_transform=transform and global_step_from_engine(trainer),
        )  # fmt: skip
        trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run([1], max_epochs=1))
        trainer.run([1, 2], max_epochs=3)

    wrong, right = ([step for _, _, step in logged(lambda logger, t=t: attach(logger, t))] for t in (None, True))
    entry.says(
        f"On an evaluator pass `global_step_transform=global_step_from_engine(trainer)`: 3 epochs are then the steps"
        f" {', '.join(map(str, right))}, without it {', '.join(map(str, wrong))}."
    )

    def both(logger):
        engine = Engine(probe.step)
        event = Events.ITERATION_COMPLETED(every=2) | Events.COMPLETED
        logger.attach_output_handler(engine, event, "t", output_transform=lambda x: {"l": x})
        engine.run([1, 2, 3], max_epochs=1)

    steps = [step for _, _, step in logged(both)]
    assert steps == [2, 1]
    entry.says("Events joined with `|` count each in its own unit, iterations 2 and then epoch 1: attach twice"
               " instead.")

    def kinds(logger):
        engine = Engine(probe.step)
        metrics = {"n": 1, "v": torch.ones(2), "d": {"x": 1}, "m": torch.ones(2, 2), "text": "a"}
        engine.add_event_handler(Events.EPOCH_COMPLETED, lambda e: e.state.metrics.update(metrics))
        logger.attach_output_handler(engine, Events.COMPLETED, "t", metric_names="all")
        engine.run([1], max_epochs=1)

    names = [name for name, *_ in logged(kinds)]
    assert names == ["t/n", "t/v/0", "t/v/1", "t/d/x"]
    entry.says(f"A number, a vector and a dict are logged as {ticked(names)}; a matrix or a text is left out with"
               f" a warning.")
    entry.says(f"Events are those with a counter: {ticked(sorted(counted()))}, and these with a filter. A metric"
               f" that is"
               " logged at `COMPLETED` has to be computed by a handler attached before.")  # fmt: skip


def counted() -> list[str]:
    """The events that a logger can be attached to."""
    found = []
    for event in Events:
        try:
            logged(lambda logger, event=event: logger.attach_output_handler(
                Engine(probe.step), event, "t", metric_names="all"))  # fmt: skip
            found.append(event.name)
        except RuntimeError:
            pass
    return found


def _package(name: str):
    @at(name)
    def proof(entry):
        entry.says(f"Without its package: `{probe.without_package(name)}`")

    return proof


for _name in probe.NEEDS:
    _package(_name)


@at("TensorboardLogger")
def tensorboard(entry):
    def missing():
        with probe.shut_out("tensorboardX", "tensorboard"):
            for name in [m for m in sys.modules if m.startswith("torch.utils.tensorboard")]:
                del sys.modules[name]
            return error(TensorboardLogger, log_dir="x")

    assert "torch >= 1.2.0" in run_serial(missing).value
    entry.says("torch alone is not enough, whatever the text says: its own writer needs `pip install tensorboard`.")
    with probe.stand_ins():
        logger = TensorboardLogger(log_dir="x")
        with logger as inside:
            assert inside is logger
            logger.add_text("a", "b")
        assert logger.writer.add_text.called and logger.writer.close.called
    entry.says("Arguments go to `SummaryWriter`, as does any other attribute: `logger.add_text(…)`. Leaving `with` or"
               " `close()` flushes; without it the last points may be missing.")  # fmt: skip


@at("WandBLogger")
def wandb(entry):
    with probe.stand_ins() as modules:
        WandBLogger(project="p", mode="offline")
        assert modules["wandb"].init.call_args.kwargs == {"project": "p", "mode": "offline"}
        modules["wandb"].init.reset_mock()
        WandBLogger(init=False)
        assert not modules["wandb"].init.called
    entry.says("Arguments go to `wandb.init`; `init=False` joins a run that is there. It logs with `step=`:"
               " wandb drops a"
               " step below the last one, so log trainer and evaluator in one unit"
               " (`global_step_from_engine(trainer, Events.ITERATION_COMPLETED)`).")  # fmt: skip
    entry.says("What wandb drops: `not verified here`.")


@at("MLflowLogger")
def mlflow(entry):
    with probe.stand_ins() as modules:
        modules["mlflow"].active_run.return_value = "running"
        logger = ignite.handlers.MLflowLogger(tracking_uri="file:x")
        assert not modules["mlflow"].start_run.called and modules["mlflow"].set_tracking_uri.called
        logger.close()
        assert modules["mlflow"].end_run.called
    entry.says("Joins the active run or starts one; `close()` ends it either way. Names are joined with a space,"
               " `training"
               " loss`.")  # fmt: skip
    with probe.stand_ins() as modules:
        logger, engine = ignite.handlers.MLflowLogger(), Engine(probe.step)
        logger.attach_output_handler(
            engine, Events.COMPLETED, "training", output_transform=lambda x: {"loss": x}
        )
        engine.run([1], max_epochs=1)
        assert list(modules["mlflow"].log_metrics.call_args.args[0]) == ["training loss"]


@at("ClearMLLogger")
def clearml(entry):
    saver = ignite.handlers.clearml_logger.ClearMLSaver
    assert issubclass(saver, ignite.handlers.DiskSaver)
    with tempfile.TemporaryDirectory() as folder, probe.stand_ins():
        made = saver(dirname=folder)
        assert made._atomic is False
    entry.says("`ClearMLSaver` is a `DiskSaver` that is not atomic, in a temporary folder unless `dirname` is"
               " given; build"
               " it on every rank, it has a barrier.")  # fmt: skip


@at("NeptuneLogger")
def neptune(entry):
    with probe.stand_ins() as modules:
        ignite.handlers.NeptuneLogger(project="p", mode="offline")
        assert modules["neptune"].init_run.call_args.kwargs == {"api_token": None, "project": "p", "mode": "offline"}
    entry.says("Arguments go to `neptune.init_run`. `NeptuneSaver(logger)` uploads checkpoints, on rank 0 only.")

    def on_rank(rank):
        with probe.stand_ins():
            run = MagicMock()
            saver = ignite.handlers.neptune_logger.NeptuneSaver(run)
            saver({}, "f.pt")
            return run.__getitem__.call_count

    assert values(run_world(2, on_rank)) == [1, 0]


@at("PolyaxonLogger")
def polyaxon(entry):
    with probe.stand_ins() as modules:
        logger = ignite.handlers.PolyaxonLogger("a")
        assert logger.experiment is modules["polyaxon.tracking"].Run.return_value
    entry.says("Arguments go to `polyaxon.tracking.Run`, or to `Experiment` of the older client.")


@at("VisdomLogger")
def visdom(entry):
    with probe.stand_ins() as modules, patch.dict(os.environ, VISDOM_SERVER_URL="there", VISDOM_PORT="9"):
        ignite.handlers.VisdomLogger(num_workers=0)
        used = modules["visdom"].Visdom.call_args.kwargs
    assert used["server"] == "there" and used["port"] == 9
    entry.says("Server and port, where not given: `VISDOM_SERVER_URL` and `VISDOM_PORT`, else `localhost` and"
               " 8097. It logs"
               " from a thread; `num_workers=0` from the run itself.")  # fmt: skip
    with probe.stand_ins() as modules:
        logger = ignite.handlers.VisdomLogger()
        used = modules["visdom"].Visdom.call_args.kwargs
        assert (used["server"], used["port"]) == ("localhost", 8097) and logger.executor._max_workers == 1
        logger.executor.shutdown()


@at("ProgressBar")
def bar(entry):
    def on_rank(rank):
        with probe.stand_ins() as modules:
            engine = Engine(probe.step)
            ProgressBar().attach(engine)
            engine.run([1, 2], max_epochs=1)
            return modules["tqdm.autonotebook"].tqdm.call_count

    assert values(run_world(2, on_rank)) == [1, 1]
    entry.says("Several ranks: one bar per rank, on top of each other. Attach it under `if idist.get_rank() == 0:`.")
    totals = []
    with probe.stand_ins() as modules:
        engine = Engine(probe.step)
        ProgressBar().attach(engine, event_name=Events.ITERATION_COMPLETED(every=2))
        engine.run([1, 2, 3, 4], max_epochs=1)
        totals.append(modules["tqdm.autonotebook"].tqdm.call_args.kwargs["total"])
    assert totals == [4]
    with probe.stand_ins() as modules:
        engine = Engine(probe.step)
        assert ProgressBar().attach(engine) is None
        bar = ProgressBar()
        bar.attach_opt_params_handler(engine, Events.STARTED, probe.optimizer())
        assert not any(engine._event_handlers[Events.STARTED])
    entry.says("The loss of the batch is shown with `output_transform=lambda loss: {'loss': loss}`, metrics with"
               " `metric_names='all'`. `attach_opt_params_handler` does nothing.")  # fmt: skip
    shown = []
    with probe.stand_ins() as modules:
        engine = Engine(probe.step)
        made = modules["tqdm.autonotebook"].tqdm.return_value
        made.n = 0
        made.set_postfix.side_effect = lambda m: shown.append(dict(m))
        ProgressBar().attach(engine, output_transform=lambda loss: {"loss": loss})
        engine.run([3.0], max_epochs=1)
    assert shown == [{"loss": 3.0}]


@at("FBResearchLogger")
def fbresearch(entry):
    lines = []
    logger, engine = FBResearchLogger(MagicMock(info=lines.append), show_output=True), Engine(probe.step)
    logger.attach(engine, "Train", every=2, optimizer=probe.optimizer(0.1))
    engine.run([1, 2], max_epochs=2)
    assert any("Epoch [1/2]" in line and "[2/2]:" in line and "lr: 0.10000" in line for line in lines)
    entry.says("Writes lines to the `logger` you give, of the standard library's kind: epoch, iteration, time"
               " left, learning"
               " rate, output, times. On which ranks is up to that logger: `ignite.utils.setup_logger` writes on rank 0"
               " only.")  # fmt: skip


@at("Helper handlers")
def helpers(entry):
    rows = [["logger", "helper handlers", "with another logger"]]
    for logger, names in probe.helpers().items():
        with probe.stand_ins():
            said = {probe.wrong_logger(logger, n).replace(n, "…").replace("'…'", "…").rstrip(".")
                    for n in names if "Saver" not in n}  # fmt: skip
        assert len(said) == 1, said
        rows.append([f"`{logger}`", ticked(sorted(names)), f"`{said.pop()}`"])
    entry.table(rows)
    entry.says("`attach_output_handler` and `attach_opt_params_handler` of a logger build the first two; the others are"
               " attached as `logger.attach(engine, log_handler=WeightsScalarHandler(model),"
               " event_name=…)`.")  # fmt: skip
    calls = logged(weights)
    assert [c[0] for c in calls] == ["weights_norm/weight"]
    entry.says("`whitelist` is a list of prefixes of parameter names, or a function of name and parameter.")
    entry.says("The base classes of `ignite.handlers.base_logger` (`BaseLogger`, `BaseHandler`, `BaseOutputHandler`,"
               " `BaseOptimizerParamsHandler`, `BaseWeightsHandler`, `BaseWeightsScalarHandler`) are for a"
               " logger of your"
               " own.")  # fmt: skip
    for name in ("BaseLogger", "BaseHandler", "BaseOutputHandler", "BaseOptimizerParamsHandler", "BaseWeightsHandler",
                 "BaseWeightsScalarHandler"):  # fmt: skip
        assert inspect.isclass(getattr(ignite.handlers.base_logger, name))


def weights(logger):
    engine = Engine(probe.step)
    handler = tensorboard_logger.WeightsScalarHandler(nn.Linear(1, 1), whitelist=["wei"])
    logger.attach(engine, log_handler=handler, event_name=Events.COMPLETED)
    engine.run([1], max_epochs=1)


# Set up many at once


@at("Set up a logger at once")
def setup_logging(entry):
    names = [n for n in logger_utils.__all__ if n != "setup_tb_logging"]
    entry.says(
        "`setup_tb_logging(output_path, trainer, optimizers=None, evaluators=None, log_every_iters=100, …)` of"
        " `ignite.handlers.logger_utils`; the same without a path, `kwargs` to the logger: " + ticked(names) + "."
    )
    assert list(inspect.signature(logger_utils.setup_tb_logging).parameters)[:5] == [
        "output_path", "trainer", "optimizers", "evaluators", "log_every_iters"]  # fmt: skip
    assert inspect.signature(logger_utils.setup_tb_logging).parameters["log_every_iters"].default == 100
    engine, evaluator = Engine(probe.step), Engine(probe.step)
    with probe.stand_ins():
        logger_utils.setup_tb_logging("o", engine, probe.optimizer(), {"val": evaluator})
    attached = {e.name: len(h) for e, h in engine._event_handlers.items() if h}
    assert attached == {"ITERATION_COMPLETED": 1, "ITERATION_STARTED": 1}
    assert [e.name for e, h in evaluator._event_handlers.items() if h] == ["COMPLETED"]
    entry.says("It logs the trainer's metrics and learning rates every `log_every_iters` iterations, and each"
               " evaluator's"
               " metrics at its `COMPLETED` with the trainer's epoch (wandb: iteration). A trainer without metrics logs"
               " nothing. Call it on rank 0.")  # fmt: skip


def common_run(rank=0, folder=None, **kwargs):
    """Handlers by event after `setup_common_training_handlers`, files, and the trainer's metrics after 3 batches."""
    with probe.stand_ins() as modules, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer = Engine(lambda e, b: {"loss": float(b + rank)})
        common.setup_common_training_handlers(trainer, output_path=folder, **kwargs)
        attached = {e.name: len(h) for e, h in trainer._event_handlers.items() if h}
        with probe.quiet():
            trainer.run([1, 2, 3], max_epochs=1)
        bars = modules["tqdm.autonotebook"].tqdm.call_count
    return attached, bars, trainer.state.metrics, [str(w.message) for w in caught]


@at("setup_common_training_handlers")
def setup_common(entry):
    def on_rank(rank):
        return common_run(rank, folder, to_save={"m": nn.Linear(1, 1)}, save_every_iters=2, output_names=["loss"])

    with tempfile.TemporaryDirectory() as folder:
        first, second = values(run_world(2, on_rank))
        files = os.listdir(folder)
    assert first[1] == 1 and second[1] == 0 and first[2] == second[2] and files == ["training_m_2.pt"]
    alone = common_run(with_pbars=False)
    assert alone[0] == {"ITERATION_COMPLETED": 1}
    assert "TerminateOnNan" in inspect.getsource(common)
    entry.says(
        "From `ignite.contrib.engines.common`, its only home. Attaches to the trainer: `TerminateOnNan`, the"
        " scheduler, a"
        f" `Checkpoint` every `save_every_iters` iterations (`{files[0]}`, the latest only), `RunningAverage` of"
        f" each of"
        " `output_names`, two progress bars."
    )
    entry.says(
        "Several ranks: call it on every rank, the averages are collective at each iteration; bars are on rank 0 only,"
        " files are written by rank 0."
    )
    signature = inspect.signature(common.setup_common_training_handlers).parameters
    assert signature["save_every_iters"].default == 1000
    steps = []
    trainer = Engine(probe.step)
    scheduler = torch.optim.lr_scheduler.StepLR(probe.optimizer(), 1)
    with probe.stand_ins():
        common.setup_common_training_handlers(trainer, lr_scheduler=scheduler, with_pbars=False)
    scheduler.step = lambda: steps.append(trainer.state.iteration)
    trainer.run([1, 2], max_epochs=2)
    assert steps == [1, 2, 3, 4]
    entry.says("A torch scheduler is stepped at every iteration, not every epoch: here 4 times in 2 epochs of 2. One of"
               " Ignite's runs at `ITERATION_STARTED`.")  # fmt: skip
    few = tempfile.mkdtemp()
    common_run(folder=few, to_save={"m": nn.Linear(1, 1)}, with_pbars=False)
    assert os.listdir(few) == []
    os.rmdir(few)
    entry.says("With fewer than 1000 iterations nothing is ever saved: set `save_every_iters`. The folder may"
               " hold files"
               " (`require_empty=False`), and `n_saved` and the like go through `kwargs`.")  # fmt: skip
    sampler = DistributedSampler([1, 2, 3], num_replicas=1, rank=0)
    *_, caught = common_run(train_sampler=sampler, with_pbars=False)
    entry.says(f"`train_sampler=` gets `set_epoch(epoch - 1)` on several ranks; on one: `UserWarning: {caught[-1]}`.")

    def epochs(rank):
        sampler, seen = DistributedSampler([1, 2, 3]), []
        sampler.set_epoch = seen.append
        trainer = Engine(probe.step)
        common.setup_common_training_handlers(trainer, train_sampler=sampler, with_pbars=False)
        trainer.run([1], max_epochs=2)
        return seen

    assert values(run_world(2, epochs)) == [[0, 1]] * 2


@at("gen_save_best_models_by_val_score", "save_best_model_by_val_score", "add_early_stopping_by_val_score")
def by_score(entry):
    trainer, evaluator = Engine(probe.step), Engine(probe.step)
    evaluator.add_event_handler(Events.EPOCH_COMPLETED, lambda e: e.state.metrics.update(acc=0.5))
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run([1], max_epochs=1))
    with tempfile.TemporaryDirectory() as folder:
        model = nn.Linear(1, 1)
        best = common.save_best_model_by_val_score(folder, evaluator, model, "acc", trainer=trainer)
        stopper = common.add_early_stopping_by_val_score(1, evaluator, trainer, "acc")
        other = common.gen_save_best_models_by_val_score(lambda c, f: None, evaluator, model, "acc", trainer=trainer)
        with probe.quiet():
            trainer.run([1], max_epochs=4)
        files = sorted(os.listdir(folder))
    assert trainer.state.epoch == 2 and stopper.counter == 1 and best.n_saved == other.n_saved == 3
    assert len(files) == 2
    {
        "gen_save_best_models_by_val_score": lambda: entry.says(
            "A `Checkpoint` on the evaluator's `COMPLETED` with any `save_handler`; for an error metric"
            " `score_sign=-1.0`."
            " Without `trainer` all files have the evaluator's step. Returns the handler."
        ),
        "save_best_model_by_val_score": lambda: entry.says(
            f"The same to a folder: `{files[0]}`, the best {best.n_saved}."
        ),
        "add_early_stopping_by_val_score": lambda: entry.says(
            "An `EarlyStopping` on the evaluator's `COMPLETED`, which stops the trainer. Returns the handler."
        ),
    }[entry.entry.heading]()
