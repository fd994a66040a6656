"""Break one public helper of ignite.distributed, in a chosen way, wherever the library refers to it.

Used in a process that has imported ignite (the ranks it forks inherit the damage), and by `hook_folder`, which does the
same in every new interpreter that has the folder on PYTHONPATH.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path

MODES = ("wrong", "wrong-on-one-rank", "nothing", "raises", "raises-on-one-rank", "freezes-on-one-rank")
VALUES = ("has_hvd_support", "has_native_dist_support", "has_xla_support", "registered_computation_models")


def public_names() -> list[str]:
    """Public helpers of the installed library: what its modules export, plus `Parallel`."""
    from ignite.distributed import auto, utils

    return sorted({*utils.__all__, *auto.__all__, "Parallel"})


def modes_of(name: str) -> tuple[str, ...]:
    if name == "auto_optim":  # which over native backends has to do nothing
        return tuple(m for m in MODES if m != "nothing")
    return ("wrong",) if name in VALUES else MODES


def sabotage(name: str, mode: str, *, everywhere: bool = True) -> None:
    """Replace `ignite.distributed.<name>`; with `everywhere` also in the modules that refer to the same object."""
    import ignite.distributed as idist

    original = getattr(idist, name)
    broken = _broken(name, original, mode)
    for module in list(sys.modules.values()):
        if module is idist or (everywhere and getattr(module, "__name__", "").startswith("ignite.")):
            if vars(module).get(name) is original:
                setattr(module, name, broken)


def on_chosen_rank() -> bool:
    """Rank 1: so a world of one stays whole, and of a world of two one rank is innocent."""
    return os.environ.get("RANK") == "1"


def _broken(name, original, mode):
    if name in VALUES:
        return () if isinstance(original, tuple) else not original
    if isinstance(original, type):
        return _broken_class(original, mode)

    def replacement(*args, **kwargs):
        if mode == "nothing":
            return _nothing(name, args)
        if mode == "raises" or (mode == "raises-on-one-rank" and on_chosen_rank()):
            raise RuntimeError("sabotaged")
        if mode == "freezes-on-one-rank" and on_chosen_rank():
            time.sleep(3600)
        result = original(*args, **kwargs)
        if mode == "wrong" or (mode == "wrong-on-one-rank" and on_chosen_rank()):
            return _wrong(name, result)
        return result

    return replacement


def _nothing(name, args):
    if name == "one_rank_first":
        return contextlib.nullcontext()
    if name == "one_rank_only":
        return lambda function: function
    return args[0] if name.startswith(("all_", "broadcast", "auto_")) else None


def _wrong(name, result):
    import torch

    if name == "one_rank_first":
        return contextlib.nullcontext()
    if name == "one_rank_only":
        return lambda function: lambda *a, **k: "wrong"
    if name == "new_group":
        return torch.distributed.GroupMember.NON_GROUP_MEMBER if not isinstance(result, list) else [*result, 1]
    if isinstance(result, bool):
        return not result
    if isinstance(result, (int, float)) or torch.is_tensor(result):
        return result + 1
    if isinstance(result, str):
        return result + "x"
    if isinstance(result, (list, tuple)):
        return type(result)([*result, *result[:1]]) if len(result) else type(result)(["wrong"])
    if isinstance(result, torch.device):
        return torch.device("meta")
    if isinstance(result, torch.nn.Module):
        return torch.nn.Sequential(result)
    if isinstance(result, torch.optim.Optimizer):
        return torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=9.0)
    if isinstance(result, torch.utils.data.DataLoader):
        return torch.utils.data.DataLoader(result.dataset, batch_size=result.batch_size + 1)
    return "wrong"


def _broken_class(original, mode):
    import torch

    class Broken(original):
        def _act(self):
            if mode == "raises" or (mode == "raises-on-one-rank" and on_chosen_rank()):
                raise RuntimeError("sabotaged")
            if mode == "freezes-on-one-rank" and on_chosen_rank():
                time.sleep(3600)

        if issubclass(original, torch.utils.data.Sampler):

            def __iter__(self):
                self._act()
                indices = list(super().__iter__())
                if mode == "nothing":
                    return iter([])
                if mode == "wrong" or (mode == "wrong-on-one-rank" and on_chosen_rank()):
                    return iter([i + 1 for i in indices])
                return iter(indices)

        else:  # Parallel

            def run(self, function, *args, **kwargs):
                self._act()
                if mode == "nothing":
                    return None
                if mode == "wrong" or (mode == "wrong-on-one-rank" and on_chosen_rank()):
                    return super().run(lambda local_rank, *a, **k: function(local_rank + 1, *a, **k), *args, **kwargs)
                return super().run(function, *args, **kwargs)

    Broken.__name__ = original.__name__
    return Broken


def _subtle():
    """label -> (helper, function from the original to a subtly wrong one): faults that a shallow check would miss."""
    import torch
    import torch.distributed as dist

    def grouped(original, wrong):
        return lambda *a, group=None, **k: original(*a, **k) if group is None else wrong(a[0])

    def floats_only(original):
        return lambda t, *a, **k: original(float(t) if type(t) is int else t, *a, **k)

    def not_in_place(original):
        return lambda t, *a, **k: original(t.clone() if torch.is_tensor(t) else t, *a, **k)

    def sum_always(original):
        return lambda t, op="SUM", group=None: original(t, "SUM" if torch.is_tensor(t) else op, group)

    def only_on_last(original):
        return lambda *a, **k: (
            None if dist.is_initialized() and dist.get_rank() == dist.get_world_size() - 1 else original()
        )

    def swallow(original):
        def run(backend, fn, args, *more, **kwargs):
            try:
                return original(backend, fn, args, *more, **kwargs)
            except torch.multiprocessing.ProcessRaisedException:
                return None

        return run

    def without_finalize(original):
        class Broken(original):
            def __exit__(self, kind, *rest):
                return super().__exit__(kind, *rest) if kind is None else None

        return Broken

    def frozen(original):
        def wrap(model, *a, **k):
            for p in model.parameters():
                p.requires_grad_(True)
            return original(model, *a, **k).eval()

        return wrap

    def with_decay(original):
        def adapt(optimizer, **k):
            optimizer.param_groups[-1]["weight_decay"] = 0.1
            return original(optimizer, **k)

        return adapt

    def leaves_variable(original):
        def initialize(*a, **k):
            original(*a, **k)
            os.environ["LEFT_BEHIND"] = "1"

        return initialize

    return {
        "group= does nothing": ("all_reduce", lambda f: grouped(f, lambda t: t)),
        "ints through floats": ("all_reduce", floats_only),
        "a copy, not in place": ("all_reduce", not_in_place),
        "tensors always summed": ("all_reduce", sum_always),
        "group= gathers nothing": ("all_gather", lambda f: grouped(f, lambda t: t)),
        "large ints through floats": ("all_gather", floats_only),
        "strings cut": ("all_gather", lambda f: lambda t, *a, **k: f(t[:1024] if isinstance(t, str) else t, *a, **k)),
        "always from rank 0": ("broadcast", lambda f: lambda t, src=0, safe_mode=False: f(t, 0, safe_mode)),
        "default source is the last rank": (
            "broadcast",
            lambda f: lambda t, src=None, **k: f(t, dist.get_world_size() - 1 if src is None else src, **k),
        ),
        "safe_mode dropped": ("broadcast", lambda f: lambda t, src=0, safe_mode=False: f(t, src)),
        "sleeps instead of waiting": ("barrier", lambda f: lambda: time.sleep(0.3)),
        "the last rank does not wait": ("barrier", only_on_last),
        "the whole world": (
            "new_group",
            lambda f: lambda r, **k: f(r, **k) if not dist.is_initialized() or len(r) < 2 else dist.group.WORLD,
        ),
        "keyword arguments dropped": ("new_group", lambda f: lambda r, **k: f(r)),
        "default rank is 1": ("one_rank_only", lambda f: lambda rank=1, with_barrier=False: f(rank, with_barrier)),
        "no barrier": ("one_rank_only", lambda f: lambda rank=0, with_barrier=False: f(rank, False)),
        "always a barrier": ("one_rank_only", lambda f: lambda rank=0, with_barrier=False: f(rank, True)),
        "default rank of first is 1": (
            "one_rank_first",
            lambda f: (
                lambda rank=1, local=False: f(
                    min(rank, dist.get_world_size() - 1) if dist.is_initialized() else 0, local
                )
            ),
        ),
        "shuffle ignored": ("auto_dataloader", lambda f: lambda d, shuffle=False, **k: f(d, shuffle=False, **k)),
        "collate_fn dropped": ("auto_dataloader", lambda f: lambda d, collate_fn=None, **k: f(d, **k)),
        "left in eval mode": ("auto_model", frozen),
        "weight decay slipped in": ("auto_optim", with_decay),
        "timeout dropped": ("initialize", lambda f: lambda backend, timeout=None, **k: f(backend, **k)),
        "a variable left behind": ("initialize", leaves_variable),
        "kwargs_dict dropped": (
            "spawn",
            lambda f: lambda b, fn, args, kwargs_dict=None, **k: f(b, fn, args, {"factor": 0}, **k),
        ),
        "exceptions of children swallowed": ("spawn", swallow),
        "no finalize after an exception": ("Parallel", without_finalize),
    }


def sabotage_subtly(label: str) -> None:
    import ignite.distributed as idist

    name, make = _subtle()[label]
    setattr(idist, name, make(getattr(idist, name)))


def subtle_faults() -> dict[str, str]:
    """label -> the helper that it breaks."""
    return {label: name for label, (name, _) in _subtle().items()}


def slow_down(module: str, names: tuple[str, ...], seconds: float, copies: float = 0.0) -> None:
    """Make functions of a module sleep on the chosen rank before they work; with `copies` also Tensor.copy_."""
    import torch

    def slow(original, delay):
        def replacement(*args, **kwargs):
            if on_chosen_rank():
                time.sleep(delay)
            return original(*args, **kwargs)

        return replacement

    for name in names:
        setattr(sys.modules[module], name, slow(getattr(sys.modules[module], name), seconds))
    if copies:
        torch.Tensor.copy_ = slow(torch.Tensor.copy_, copies)


HOOK = """
import importlib.abc, importlib.util, sys
sys.path.append({tests!r})

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "ignite.distributed":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module
        def exec_module(module):
            run(module)
            from support.sabotage import sabotage
            sys.modules["ignite.distributed"] = module
            sabotage({name!r}, {mode!r}, everywhere={everywhere!r})
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Finder())
"""


def hook_folder(folder: Path, name: str, mode: str, everywhere: bool = False) -> Path:
    """A folder for PYTHONPATH that sabotages the helper in every interpreter that imports ignite.distributed."""
    folder.mkdir(parents=True, exist_ok=True)
    tests = str(Path(__file__).resolve().parents[1])
    text = HOOK.format(tests=tests, name=name, mode=mode, everywhere=everywhere)
    (folder / "sitecustomize.py").write_text(text)
    return folder
