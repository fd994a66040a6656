"""What the pages of the handlers room take from the library: signatures, complaints, values of the schedulers.

Packages that the loggers need are stood in for by empty modules, so that what Ignite itself says is seen without them.
`python tests/probes/handlers.py NAME` prints the signature block and the table of complaints of one entry.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import logging
import os
import re
import sys
import tempfile
import types
import warnings
from unittest.mock import MagicMock, patch

import ignite.handlers
import torch
from ignite.contrib.engines import common
from ignite.engine import Engine, Events
from ignite.handlers import (
    checkpoint,
    clearml_logger,
    logger_utils,
    mlflow_logger,
    neptune_logger,
    polyaxon_logger,
    tensorboard_logger,
    visdom_logger,
    wandb_logger,
)
from torch import nn
from torch.optim import lr_scheduler as torch_lr
from torch.utils.data import DataLoader

LOGGERS = {
    "TensorboardLogger": tensorboard_logger,
    "WandBLogger": wandb_logger,
    "MLflowLogger": mlflow_logger,
    "ClearMLLogger": clearml_logger,
    "NeptuneLogger": neptune_logger,
    "PolyaxonLogger": polyaxon_logger,
    "VisdomLogger": visdom_logger,
}
NEEDS = {  # the modules that a class tries to import, to be shut out
    "TensorboardLogger": ("tensorboardX", "torch.utils.tensorboard"),
    "WandBLogger": ("wandb",),
    "MLflowLogger": ("mlflow",),
    "ClearMLLogger": ("clearml",),
    "NeptuneLogger": ("neptune",),
    "PolyaxonLogger": ("polyaxon", "polyaxon.tracking", "polyaxon_client", "polyaxon_client.tracking"),
    "VisdomLogger": ("visdom",),
    "ProgressBar": ("tqdm", "tqdm.autonotebook"),
}
COMMON = ("setup_common_training_handlers", "gen_save_best_models_by_val_score", "save_best_model_by_val_score",
          "add_early_stopping_by_val_score")  # fmt: skip


def public() -> dict[str, object]:
    """Name of an entry -> what it is: all that `ignite.handlers` and its module `checkpoint` export, and `common`."""
    names = {n: getattr(ignite.handlers, n) for n in ignite.handlers.__all__}
    names |= {n: getattr(checkpoint, n) for n in checkpoint.__all__}
    return names | {n: getattr(common, n) for n in COMMON}


def helpers() -> dict[str, list[str]]:
    """Logger -> the helper handlers and savers that its module exports."""
    return {
        logger: [n for n in module.__all__ if n != logger and inspect.isclass(getattr(module, n))]
        for logger, module in LOGGERS.items()
    }


def signatures(name: str) -> str:
    """The signature of a public name without annotations; of a class also its own methods and properties."""
    value = public()[name]
    lines = [_line(name, value)] if not issubclass_of(value, "EventEnum") else [f"{name}.{e.name}" for e in value]
    if inspect.isclass(value):
        for member, raw in vars(value).items():
            if member.startswith("_"):
                continue
            if isinstance(raw, property):
                lines.append(f"{name}.{member}")
            elif callable(getattr(value, member)) and isinstance(
                raw, (types.FunctionType, staticmethod, classmethod)
            ):  # fmt: skip
                lines.append(_line(f"{name}.{member}", getattr(value, member)))
    return "\n".join(lines)


def issubclass_of(value, base: str) -> bool:
    return inspect.isclass(value) and base in [c.__name__ for c in value.__mro__]


def _line(name: str, value) -> str:
    parameters = [
        str(p.replace(annotation=inspect.Parameter.empty, default=_Short(p.default)))
        if p.default is not inspect.Parameter.empty else str(p.replace(annotation=inspect.Parameter.empty))
        for p in inspect.signature(value).parameters.values() if p.name != "self"
    ]  # fmt: skip
    line = f"{name}({', '.join(parameters)})"
    if len(line) <= 118:
        return line
    wrapped, current = [], f"{name}("
    for p in parameters:
        if len(current) + len(p) + 2 > 116:
            wrapped.append(current.rstrip())
            current = "    "
        current += f"{p}, "
    return "\n".join([*wrapped, current.rstrip(", ") + ")"])


class _Short:
    """A default as it is written in a call."""

    def __init__(self, value):
        self.value = value

    def __repr__(self) -> str:
        if isinstance(self.value, Events):
            return f"Events.{self.value.name}"
        return "<function>" if inspect.isfunction(self.value) or inspect.isbuiltin(self.value) else repr(self.value)


def optimizer(lr: float = 1.0, groups: int = 1):
    """An SGD over `groups` groups of one parameter."""
    return torch.optim.SGD([{"params": [nn.Parameter(torch.zeros(1))], "lr": lr} for _ in range(groups)])


def step(engine, batch):
    return float(batch) if isinstance(batch, (int, float)) else 0.0


def names() -> dict[str, object]:
    """What the expressions in the tables of complaints may use."""
    known = {n: getattr(ignite.handlers, n) for n in dir(ignite.handlers) if not n.startswith("_")}
    known |= {n: getattr(common, n) for n in COMMON} | {"setup_tb_logging": logger_utils.setup_tb_logging}
    known |= {"setup_trains_logging": logger_utils.setup_trains_logging, "types": types, "torch": torch}
    known |= {"ClearMLSaver": clearml_logger.ClearMLSaver, "DataLoader": DataLoader, "Engine": Engine}
    lr = torch_lr.ExponentialLR(optimizer(), 0.5)
    known |= {
        "model": nn.Linear(1, 1), "optimizer": optimizer(), "other": optimizer(), "two": optimizer(groups=2),
        "trainer": Engine(step), "evaluator": Engine(step), "torch_scheduler": lr, "score": lambda engine: 1.0,
        "save": lambda checkpoint, filename: None, "Events": Events, "torch_lr": torch_lr,
    }  # fmt: skip
    p = ignite.handlers.PiecewiseLinear
    known["a"], known["b"] = (p(known["optimizer"], "lr", [(0, 1.0)]) for _ in range(2))
    known["c"], known["m"] = p(known["other"], "lr", [(0, 1.0)]), p(known["optimizer"], "momentum", [(0, 0.5)])
    known["stopper"] = ignite.handlers.EarlyStopping(1, known["score"], known["trainer"])
    return known | {"finder": _finder, "finder_run": _finder_run, "run": _run, "bad_file": _bad_file}


def _run(handler, output=0.0, event=Events.ITERATION_COMPLETED, **metrics):
    """One iteration with the handler attached, the engine's output and its metrics as given."""
    engine = Engine(lambda engine, batch: output)
    engine.state.metrics.update(metrics)
    engine.add_event_handler(event, handler)
    engine.run([1], max_epochs=1)


def _bad_file():
    handler = ignite.handlers.ModelCheckpoint("internal")
    handler(Engine(step), {"model": nn.Linear(1, 1)})
    handler.save_handler = print
    return handler.last_checkpoint


def _finder(**kwargs):
    """`with FastaiLRFinder().attach(trainer, **kwargs)`: enter it."""
    ignite.handlers.FastaiLRFinder().attach(Engine(step), **kwargs).__enter__()


def _finder_run(losses, **kwargs):
    """A finder after a run in which the engine gave these losses."""
    finder, losses = ignite.handlers.FastaiLRFinder(), list(losses)
    o = optimizer(1e-3)
    with finder.attach(Engine(lambda e, b: losses[e.state.iteration - 1]), {"optimizer": o}, **kwargs) as trainer:
        trainer.run(range(len(losses)), max_epochs=1)
    return finder


SHIFTED = "[5.0] * 5 + [4.0, 2.0, 1.5, 1.4] + [9.0] * 9"
COMPLAINTS: dict[str, list[str | tuple[str, str]]] = {  # a pair: how the page puts it, and what is evaluated
    "Checkpoint": [
        "Checkpoint([model], 'd')",
        "Checkpoint({'n': 1}, 'd')",
        "Checkpoint({'model': model}, 1)",
        "Checkpoint({'model': model}, 'd', global_step_transform=1)",
        "Checkpoint({'model': model}, 'd', n_saved=0)",
        "Checkpoint(types.MappingProxyType({'model': model}), 'd', include_self=True)",
        "Checkpoint({'checkpointer': model}, 'd', include_self=True)",
        "Checkpoint.setup_filename_pattern(with_score=False, with_global_step=False)",
        "Checkpoint.setup_filename_pattern(with_score=False)",
        "Checkpoint.load_objects({'model': model}, 1)",
        "Checkpoint({'model': model}, save).reload_objects({'model': model})",
        "Checkpoint.get_default_score_fn('loss', 2)",
    ],
    "ModelCheckpoint": ["ModelCheckpoint('d')(trainer, {})", ("`handler.last_checkpoint` after"
    " `handler.save_handler = print`", "bad_file()")],
    "DiskSaver": ["DiskSaver('missing', create_dir=False)"],
    "EarlyStopping": [
        "EarlyStopping(1, 'loss', trainer)",
        "EarlyStopping(0, score, trainer)",
        "EarlyStopping(1, score, 'trainer')",
        "EarlyStopping(1, score, trainer, threshold=-0.1)",
        "EarlyStopping(1, score, trainer, threshold_mode='x')",
        "EarlyStopping(1, score, trainer, mode='x')",
        "EarlyStopping(1, score, trainer, min_delta=0.1)",
        "EarlyStopping(1, score, trainer, min_delta_mode='rel')",
        "EarlyStopping(1, score, trainer, cumulative_delta=True)",
        "stopper.min_delta",
        "stopper.min_delta_mode",
        "stopper.cumulative_delta",
    ],
    "TerminateOnNan": ["run(TerminateOnNan(), None)"],
    "TimeLimit": ["TimeLimit(1.5)", "TimeLimit(0)"],
    "EMAHandler": [
        "EMAHandler(model, momentum=1.0)",
        "EMAHandler('model')",
        "EMAHandler(model, handle_buffers='x')",
    ],
    "BasicTimeProfiler": [
        "BasicTimeProfiler().attach('trainer')",
        ("`run(iter([1]))` without `epoch_length`", "run_profiler(BasicTimeProfiler())"),
        "BasicTimeProfiler().write_results('times.csv')",
    ],
    "HandlersTimeProfiler": [
        "HandlersTimeProfiler().attach('trainer')",
        "HandlersTimeProfiler().write_results('times.csv')",
    ],
    "BaseParamScheduler": [
        "a.load_state_dict([])",
        "a.load_state_dict({})",
        "PiecewiseLinear.plot_values(3, param_name='lr', milestones_values=[(0, 1.0)])",
    ],
    "ParamScheduler": [
        "PiecewiseLinear('optimizer', 'lr', [(0, 1.0)])",
        ("a list of 2 values for 1 group", "of_one_group(None)"),
    ],
    "CyclicalScheduler": ["CosineAnnealingScheduler(optimizer, 'lr', 1.0, 0.0, 1)"],
    "LinearCyclicalScheduler": ["LinearCyclicalScheduler(optimizer, 'lr', 1.0, 0.0, 4, warmup_duration=2)"],
    "PiecewiseLinear": [
        "PiecewiseLinear(optimizer, 'lr', {0: 1.0})",
        "PiecewiseLinear(optimizer, 'lr', [])",
        "PiecewiseLinear(optimizer, 'lr', [[0, 1.0]])",
        "PiecewiseLinear(optimizer, 'lr', [(0.5, 1.0)])",
        "PiecewiseLinear(optimizer, 'lr', [(2, 1.0), (1, 0.0)])",
    ],
    "ConcatScheduler": [
        "ConcatScheduler(a, [1])",
        "ConcatScheduler([a], [1])",
        "ConcatScheduler([a, b], 1)",
        "ConcatScheduler([a, b], [1.5])",
        "ConcatScheduler([a, b], [1, 2])",
        "ConcatScheduler([a, torch_scheduler], [1])",
        "ConcatScheduler([a, c], [1])",
        "ConcatScheduler([a, m], [1])",
        "ConcatScheduler([a, b], [1]).load_state_dict([])",
        "ConcatScheduler([a, b], [1]).load_state_dict({})",
        "ConcatScheduler([a, b], [1]).load_state_dict({'schedulers': []})",
        "ConcatScheduler.simulate_values(3, [a, b], [1], param_names='lr')",
        "ConcatScheduler.simulate_values(3, [a, b], [1], param_names=[1])",
        "ConcatScheduler.simulate_values(3, [a, c], [1])",
    ],
    "ParamGroupScheduler": [
        "ParamGroupScheduler(a)",
        "ParamGroupScheduler([1])",
        "ParamGroupScheduler([a], names='lr')",
        "ParamGroupScheduler([a], names=[1])",
        "ParamGroupScheduler([a], names=['x', 'y'])",
        "ParamGroupScheduler([a]).load_state_dict([])",
        "ParamGroupScheduler([a]).load_state_dict({})",
        "ParamGroupScheduler([a]).load_state_dict({'schedulers': []})",
        "ParamGroupScheduler([a]).load_state_dict({'schedulers': [('x', {})]})",
        "ParamGroupScheduler([a]).attach(trainer)",
    ],
    "LRScheduler": [
        "LRScheduler(a)",
        "LRScheduler.simulate_values(3, a)",
        "LRScheduler(torch_scheduler, use_legacy=True)",
        "LRScheduler(torch_lr.CosineAnnealingWarmRestarts(other, 4)).lr_scheduler.get_lr(-1)",
    ],
    "create_lr_scheduler_with_warmup": [
        "create_lr_scheduler_with_warmup(optimizer, 0.0, 3)",
        "create_lr_scheduler_with_warmup(torch_scheduler, 0.0, 3.0)",
        "create_lr_scheduler_with_warmup(torch_scheduler, 0.0, 1)",
        "create_lr_scheduler_with_warmup(torch_scheduler, 0.0, 3, output_simulated_values=5)",
    ],
    "ReduceLROnPlateauScheduler": [
        "ReduceLROnPlateauScheduler(optimizer, 'loss', min_lr=1, param_group_index=0)",
        "ReduceLROnPlateauScheduler(optimizer, 'loss', verbose=True)",
        ("the same, before that", "warned(lambda: ReduceLROnPlateauScheduler(optimizer, 'loss', verbose=True))"),
        "ReduceLROnPlateauScheduler(optimizer, 'loss')(trainer)",
        "ReduceLROnPlateauScheduler.simulate_values(3, [1.0], 0.1)",
    ],
    "BatchSizeScheduler": [
        "BatchSizeScheduler([1, 2], score)",
        "BatchSizeScheduler(DataLoader([1, 2], batch_size=None), score)",
        "BatchSizeScheduler(DataLoader([1, 2]), 3)",
        "BatchSizeScheduler(DataLoader([1, 2]), lambda i: 0)(trainer)",
        "BatchSizeScheduler.simulate_values(3)",
    ],
    "FastaiLRFinder": [
        ("`attach(trainer, to_save=model)`", "finder(to_save=model)"),
        ("`attach(trainer, to_save={'model': model})`", "finder(to_save={'model': model})"),
        ("`attach(trainer, to_save={'optimizer': model})`", "finder(to_save={'optimizer': model})"),
        ("`attach(…, smooth_f=1.0)`", "finder(to_save={'optimizer': optimizer}, smooth_f=1.0)"),
        ("`attach(…, diverge_th=0.5)`", "finder(to_save={'optimizer': optimizer}, diverge_th=0.5)"),
        ("`attach(…, step_mode='x')`", "finder(to_save={'optimizer': optimizer}, step_mode='x')"),
        ("`attach(…, num_iter=1.5)`", "finder(to_save={'optimizer': optimizer}, num_iter=1.5)"),
        ("`attach(…, num_iter=0)`", "finder(to_save={'optimizer': optimizer}, num_iter=0)"),
        ("`attach(…, start_lr=1)`", "finder(to_save={'optimizer': optimizer}, start_lr=1)"),
        ("`attach(…, start_lr=[0.1, 0.2])`", "finder(to_save={'optimizer': optimizer}, start_lr=[0.1, 0.2])"),
        ("`attach(…, end_lr=10)`", "finder(to_save={'optimizer': optimizer}, end_lr=10)"),
        ("`attach(…, end_lr=[1.0, 2.0])`", "finder(to_save={'optimizer': optimizer}, end_lr=[1.0, 2.0])"),
        ("`attach(…, start_lr=1.0, end_lr=0.1)`", "finder(to_save={'optimizer': optimizer}, start_lr=1.0, end_lr=0.1)"),
        ("the engine's output is `torch.zeros(2)`", "finder_run([torch.zeros(2)])"),
        ("the engine's output is `{'loss': 1.0}`", "finder_run([{'loss': 1.0}])"),
        ("the loss never grows", "finder_run([1.0, 1.0])"),
        "FastaiLRFinder().lr_suggestion()",
        ("`lr_suggestion()` when the loss only grows", "finder_run([1.0, 9.0]).lr_suggestion()"),
        ("`apply_suggested_lr` of an optimizer with 2 groups", f"finder_run({SHIFTED}).apply_suggested_lr(two)"),
        "FastaiLRFinder().plot()",
        ("`plot()` before a run", "plotting(FastaiLRFinder())"),
        ("`plot(skip_start=-1)`", "plotting(finder_run([1.0, 9.0]), skip_start=-1)"),
        ("`plot(skip_end=-1)`", "plotting(finder_run([1.0, 9.0]), skip_end=-1)"),
        ("`plot(skip_start=10)` with the suggestion before that",
         f"plotting(finder_run({SHIFTED}), skip_start=10, ax=axes)"),
    ],
    "StateParamScheduler": [
        "StepStateScheduler(1.0, 0.5, 2, 'epoch', create_new=True).attach(trainer)",
        "StepStateScheduler(1.0, 0.5, 2, 'p').attach(trainer)",
    ],
    "LambdaStateScheduler": ["LambdaStateScheduler(1, 'p')"],
    "PiecewiseLinearStateScheduler": [
        "PiecewiseLinearStateScheduler({0: 1.0}, 'p')",
        "PiecewiseLinearStateScheduler([], 'p')",
        "PiecewiseLinearStateScheduler([[0, 1.0]], 'p')",
        "PiecewiseLinearStateScheduler([(0.5, 1.0)], 'p')",
        "PiecewiseLinearStateScheduler([(2, 1.0), (1, 0.0)], 'p')",
    ],
    "ProgressBar": [
        "ProgressBar().attach(trainer, event_name=Events.STARTED, closing_event_name=Events.STARTED)",
        "ProgressBar().attach(trainer, closing_event_name=Events.EPOCH_COMPLETED(every=2))",
        "ProgressBar().attach(trainer, event_name=CheckpointEvents.SAVED_CHECKPOINT)",
    ],
    "ClearMLLogger": [
        ("`ClearMLLogger()` after `set_bypass_mode(True)`", "bypassed()"),
        "ClearMLSaver('logger')",
        ("`ClearMLSaver()` without a task", "without_task(ClearMLSaver)"),
        "ClearMLSaver()",
        "ClearMLSaver(dirname='saved')({}, 'f.pt')",
    ],
    "VisdomLogger": [("no server, not `offline=True`", "unreachable(VisdomLogger)")],
    "Helper handlers": [
        "tensorboard_logger.OutputHandler('t')",
        "tensorboard_logger.OutputHandler('t', metric_names='loss')",
        "tensorboard_logger.OutputHandler('t', output_transform=1)",
        "tensorboard_logger.OutputHandler('t', metric_names='all', global_step_transform=1)",
        "tensorboard_logger.OptimizerParamsHandler(model)",
        "tensorboard_logger.WeightsHistHandler(optimizer)",
        "tensorboard_logger.WeightsScalarHandler(model, reduction=1)",
        "tensorboard_logger.WeightsScalarHandler(model, reduction=lambda t: t)",
        ("event `Events.EXCEPTION_RAISED`", "logs('TensorboardLogger', Events.EXCEPTION_RAISED)"),
        ("events `Events.COMPLETED | Events.EXCEPTION_RAISED`", "logs('TensorboardLogger', either)"),
        ("metric `a` asked for, not there", "logs('TensorboardLogger', metric_names=['a'])"),
        ("metric `a` is a matrix", "logs('TensorboardLogger', a=torch.ones(2, 2))"),
        ("the step is `1.0`", "logs('TensorboardLogger', global_step_transform=lambda e, n: 1.0)"),
        ("MLflow refuses the name of a metric", "logs('MLflowLogger', a=1.0)"),
        "wandb_logger.OutputHandler('t', metric_names='all', sync=True)",
        "wandb_logger.OptimizerParamsHandler(optimizer, sync=True)",
    ],
    "Set up a logger at once": [
        "setup_tb_logging('o', trainer, optimizers=model)",
        "setup_tb_logging('o', trainer, evaluators=model)",
        "setup_trains_logging(trainer)",
    ],
    "setup_common_training_handlers": [
        "setup_common_training_handlers(trainer, to_save={'model': model})",
        "setup_common_training_handlers(trainer, to_save={'model': model}, output_path='o', save_handler=save)",
    ],
}


def either_pair(line: str | tuple[str, str]) -> tuple[str, str]:
    """How the page puts a call, and the expression."""
    return line if isinstance(line, tuple) else (f"`{line}`", line)


def complaint(expression: str, extra: dict[str, object] | None = None) -> str:
    """`Class: text` of what the expression raises, else of what it warns; white space folded, addresses as …."""
    scope = {**names(), **_more(), **(extra or {})}
    here = os.getcwd()
    with tempfile.TemporaryDirectory() as folder, stand_ins(), quiet(), warnings.catch_warnings(record=True) as caught:
        os.chdir(folder)
        tempfile.tempdir = folder
        warnings.simplefilter("always")
        try:
            eval(expression, scope)
            assert caught, f"{expression}: neither raises nor warns"
            text = f"{caught[-1].category.__name__}: {caught[-1].message}"
        except Exception as e:
            text = f"{type(e).__name__}: {e}"
        finally:
            os.chdir(here)
            tempfile.tempdir = None
    text = text.replace(folder, "…").replace(tempfile.gettempdir(), "…")
    text = re.sub(r"(object|function \S+|<lambda>>?) at 0x[0-9a-f]+", r"\1 at …", text.replace("`", ""))
    return re.sub(r"\s+", " ", re.sub(r"ignite_checkpoints_\w+", "ignite_checkpoints_…", text)).strip()


def complaints(name: str) -> list[list[str]]:
    """The table of one entry: header, then a call and what it raises or warns."""
    rows = [[said, f"`{complaint(expression)}`"] for said, expression in map(either_pair, COMPLAINTS[name])]
    return [["call", "raises or warns"], *rows]


def _more() -> dict[str, object]:
    one = ignite.handlers.LRScheduler(torch_lr.ExponentialLR(optimizer(groups=2), 0.5))
    one.param_group_index = 0

    def plotting(finder, **kwargs):
        with patch.dict(sys.modules, {"matplotlib": MagicMock(), "matplotlib.pyplot": MagicMock()}):
            finder.plot(**kwargs)

    def without_task(saver):
        with patch.object(sys.modules["clearml"].Task, "current_task", return_value=None):
            saver()

    def bypassed():
        clearml_logger.ClearMLLogger.set_bypass_mode(True)
        try:
            clearml_logger.ClearMLLogger()
        finally:
            clearml_logger.ClearMLLogger.set_bypass_mode(False)

    def unreachable(logger):
        vis = MagicMock(offline=False)
        vis.check_connection.return_value = False
        with patch.dict(sys.modules, {"visdom": MagicMock(Visdom=lambda **kwargs: vis)}):
            logger()

    def warned(call):
        with contextlib.suppress(TypeError):
            call()

    def logs(name, event=Events.COMPLETED, metric_names="all", global_step_transform=None, **metrics):
        with patch.object(sys.modules["mlflow"], "validate_param_and_metric_name", return_value=False):
            engine, module = Engine(step), LOGGERS[name]
            engine.state.metrics.update(metrics)
            handler = module.OutputHandler("t", metric_names, global_step_transform=global_step_transform)
            make(name).attach(engine, handler, event)
            engine.run([1], max_epochs=1)

    return {
        "warned": warned, "logs": logs, "either": Events.COMPLETED | Events.EXCEPTION_RAISED,
        "tensorboard_logger": tensorboard_logger, "wandb_logger": wandb_logger,
        "of_one_group": one, "plotting": plotting, "axes": MagicMock(), "without_task": without_task,
        "bypassed": bypassed, "unreachable": unreachable, "CheckpointEvents": checkpoint.CheckpointEvents,
        "run_profiler": lambda p: (p.attach(e := Engine(step)), e.run(iter([1]), max_epochs=1)),
    }  # fmt: skip


@contextlib.contextmanager
def stand_ins(**instead):
    """Empty modules for the packages of the loggers, and none of matplotlib and pandas."""
    modules = {m: MagicMock() for ms in NEEDS.values() for m in ms if not m.startswith("torch.")}
    clearml = modules["clearml"]
    modules |= {"clearml.binding.frameworks": clearml, "clearml.binding.frameworks.tensorflow_bind": clearml,
                "clearml.binding": clearml, "mlflow.utils.validation": modules["mlflow"], "mlflow.utils": clearml,
                "neptune.types": clearml, "matplotlib": None, "matplotlib.pyplot": None, "pandas": None}  # fmt: skip
    with patch.dict(sys.modules, {**modules, **instead}):
        yield modules


@contextlib.contextmanager
def shut_out(*modules: str):
    """The modules cannot be imported."""
    with patch.dict(sys.modules, dict.fromkeys(modules)):
        yield


@contextlib.contextmanager
def quiet():
    """Nothing is logged or printed."""
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(logging.NOTSET)


def without_package(name: str) -> str:
    """What the class says where the package that it needs is missing."""
    with shut_out(*NEEDS[name]):
        try:
            getattr(ignite.handlers, name)()
        except ModuleNotFoundError as e:
            return re.sub(r"\s+", " ", f"ModuleNotFoundError: {e}").strip()
    raise AssertionError(f"{name} does not need {NEEDS[name]}")


def make(logger: str):
    """An object of the logger's class with stand-ins below; call it inside `stand_ins()`."""
    return getattr(ignite.handlers, logger)()


def wrong_logger(logger: str, helper: str) -> str:
    """What a helper handler says when it is called with another logger."""
    module = importlib.import_module(LOGGERS[logger].__name__)
    handler = build(getattr(module, helper))
    try:
        handler(Engine(step), "another logger", Events.COMPLETED)
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    raise AssertionError(f"{logger}, {helper}: no complaint")


def build(helper):
    """A helper handler of any kind."""
    first = list(inspect.signature(helper).parameters)[0]
    if first == "tag":
        return helper("tag", metric_names="all")
    return helper(optimizer() if first == "optimizer" else nn.Linear(1, 1))


SIMULATED = {
    "LinearCyclicalScheduler": "start_value=0.0, end_value=1.0, cycle_size=4",
    "LinearCyclicalScheduler, monotonic": "start_value=0.0, end_value=1.0, cycle_size=4, monotonic=True",
    "CosineAnnealingScheduler": "start_value=1.0, end_value=0.0, cycle_size=4",
    "PiecewiseLinear": "milestones_values=[(1, 1.0), (3, 0.0)]",
    "StepStateScheduler": "initial_value=1.0, gamma=0.5, step_size=2",
    "MultiStepStateScheduler": "initial_value=1.0, gamma=0.5, milestones=[2]",
    "ExpStateScheduler": "initial_value=1.0, gamma=0.5",
    "PiecewiseLinearStateScheduler": "milestones_values=[(1, 1.0), (3, 0.0)]",
    "LambdaStateScheduler": "lambda_obj=lambda i: i",
}


def simulated(names_: list[str]) -> list[list[str]]:
    """Table: scheduler, arguments, the values that it sets at its first six calls."""
    rows = [["scheduler", "arguments", "values at calls 1 to 6"]]
    for name in names_:
        cls = getattr(ignite.handlers, name.split(",")[0])
        values = cls.simulate_values(6, **eval(f"dict(param_name='lr', {SIMULATED[name]})"))
        rows.append([f"`{name.split(',')[0]}`", f"`{SIMULATED[name]}`", ", ".join(f"{v:.4g}" for _, v in values)])
    return rows


TORCH = {
    "LambdaLR": lambda o: torch_lr.LambdaLR(o, lambda i: 0.5**i),
    "StepLR": lambda o: torch_lr.StepLR(o, 2, 0.5),
    "MultiStepLR": lambda o: torch_lr.MultiStepLR(o, [2], 0.5),
    "OneCycleLR": lambda o: torch_lr.OneCycleLR(o, 1.0, total_steps=8),
    "CyclicLR": lambda o: torch_lr.CyclicLR(o, 0.1, 1.0, 2, cycle_momentum=False),
    "ExponentialLR": lambda o: torch_lr.ExponentialLR(o, 0.5),
    "MultiplicativeLR": lambda o: torch_lr.MultiplicativeLR(o, lambda i: 0.5),
    "PolynomialLR": lambda o: torch_lr.PolynomialLR(o, 4),
    "CosineAnnealingWarmRestarts": lambda o: torch_lr.CosineAnnealingWarmRestarts(o, 4),
    "CosineAnnealingLR": lambda o: torch_lr.CosineAnnealingLR(o, 4),
    "LinearLR": lambda o: torch_lr.LinearLR(o, 0.2, 1.0, 4),
    "ConstantLR": lambda o: torch_lr.ConstantLR(o, 0.2, 2),
    "SequentialLR": lambda o: torch_lr.SequentialLR(
        o, [torch_lr.ConstantLR(o, 0.1, 2), torch_lr.ExponentialLR(o, 0.5)], [2]
    ),
}


def seen(make_scheduler, event: Events, n: int = 5) -> list[float]:
    """The learning rate that each of n optimizer steps uses; a torch scheduler is stepped at the event."""
    o = optimizer()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scheduler = make_scheduler(o)
        lrs = []

        def update(engine, batch):
            lrs.append(float(o.param_groups[0]["lr"]))
            o.step()

        engine = Engine(update)
        by_hand = isinstance(scheduler, torch_lr.LRScheduler)
        engine.add_event_handler(event, (lambda _: scheduler.step()) if by_hand else scheduler)
        with quiet():
            engine.run(range(n), max_epochs=1)
    return lrs


def listed(values) -> str:
    return ", ".join(f"{v:.3g}" for v in values)


def wrapped(name: str) -> list[str]:
    """Row of the table of torch schedulers: by hand after the step, and through `LRScheduler` before and after it."""
    row = [f"`{name}`", listed(seen(TORCH[name], Events.ITERATION_COMPLETED))]
    for event in (Events.ITERATION_STARTED, Events.ITERATION_COMPLETED):
        try:
            row.append(listed(seen(lambda o: ignite.handlers.LRScheduler(TORCH[name](o)), event)))
        except NotImplementedError as e:
            row.append(f"`{type(e).__name__}`")
    return row


def torch_table() -> list[list[str]]:
    header = ["scheduler", "`step()` at `ITERATION_COMPLETED`", "`LRScheduler` at `ITERATION_STARTED`",
              "`LRScheduler` at `ITERATION_COMPLETED`"]  # fmt: skip
    return [header, *map(wrapped, TORCH)]


if __name__ == "__main__":
    for entry in sys.argv[1:] or COMPLAINTS:
        print(signatures(entry) if entry in public() else entry)
        for row in complaints(entry) if entry in COMPLAINTS else ():
            print("|", " | ".join(row), "|")
