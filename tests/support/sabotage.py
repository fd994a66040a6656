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
    """Rank 1, or the only rank of a world of one."""
    return os.environ.get("RANK", "0") == "1" or os.environ.get("WORLD_SIZE", "1") == "1"


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
