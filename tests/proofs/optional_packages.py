"""references/optional-packages.md: the table and its notes, in forks that can import none of the packages."""
from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil
import re
import sys
import types

import ignite
import ignite.distributed as idist
import torch
from ignite.distributed.comp_models import native
from ignite.engine import create_supervised_evaluator, create_supervised_trainer, deterministic
from ignite.metrics import FID, InceptionScore
from ignite.utils import manual_seed
from probes import optional_packages as probe
from support.claims import COUNTS, proves
from support.world import run_serial, values

PAGE = "references/optional-packages.md"


def serial(function):
    (value,) = values([run_serial(function)])
    return value


def error(function) -> str | None:
    """`Class: text` of what the function raises, or None."""
    try:
        function()
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    return None


def imports_everything() -> int:
    """How many modules of Ignite import, as if for the first time, where no optional package is."""
    probe.without(probe.packages())
    for name in [n for n in sys.modules if n.partition(".")[0] == "ignite"]:
        del sys.modules[name]
    fresh = importlib.import_module("ignite")
    assert fresh is not ignite
    return len([importlib.import_module(i.name) for i in pkgutil.walk_packages(fresh.__path__, "ignite.")])


def trainers() -> tuple[str | None, ...]:
    probe.without({"apex", "torch_xla"})
    model = torch.nn.Linear(1, 1)
    arguments = model, torch.optim.SGD(model.parameters(), 0.1), torch.nn.MSELoss()
    return (
        error(lambda: create_supervised_trainer(*arguments, amp_mode="apex")),
        error(lambda: create_supervised_trainer(*arguments, device="xla")),
        error(lambda: create_supervised_evaluator(model, device="xla")),
    )


def with_scipy_only() -> tuple[str | None, ...]:
    probe.without(probe.packages() - {"scipy"})
    sys.modules["scipy"] = types.ModuleType("scipy")
    own = {"num_features": 1, "feature_extractor": torch.nn.Identity()}
    return error(FID), error(InceptionScore), error(lambda: FID(**own)), error(lambda: InceptionScore(**own))


def without_numpy() -> tuple[str | None, str | None, int, int]:
    before = len(deterministic._get_rng_states())
    probe.without({"numpy"})
    return error(FID), error(lambda: manual_seed(3)), before, len(deterministic._get_rng_states())


@proves(f"{PAGE}#packages-that-ignite-uses-and-does-not-install")
def page(entry):
    rows = probe.rows()
    entry.table([probe.HEADER, *rows])
    COUNTS["optional packages"] += len({r[0] for r in rows})
    requires = [re.match(r"[\w-]+", r)[0] for r in importlib.metadata.requires("pytorch-ignite") if "extra ==" not in r]
    assert set(requires) == {"torch", "packaging"}, requires
    entry.says("`pip install pytorch-ignite` brings Ignite and torch.")
    assert serial(imports_everything) > 100, entry.entry.where
    entry.says("Every module of Ignite imports without the packages below; the error comes at the moment that the "
               "table "
               "names, on every rank that gets there.")
    rooms = ", ".join(f"`ignite.{r}`" for r in probe.ROOMS)
    entry.says(f"A public class or function of {' or '.join(rooms.rsplit(', ', 1))} that is not listed asks for none "
               f"of "
               "them. Old paths under `ignite.contrib` give the same classes.")
    moments = {moment for r in rows for moment in r[2].split(", ")}
    assert {"construction", "call"} < moments, entry.entry.where
    entry.says("construction: of the class; call: of the function")

    fid, inception, fid_own, inception_own = serial(with_scipy_only)
    assert fid == inception == "ModuleNotFoundError: This module requires torchvision to be installed."
    assert fid_own is None and inception_own is None, entry.entry.where
    entry.says("`FID()` and `InceptionScore()` want torchvision for their default feature extractor only: "
               "`FID(num_features=…, feature_extractor=…)` does without, and asks for SciPy and NumPy alone.")

    apex, trainer, evaluator = serial(trainers)
    assert [r[3] for r in rows if r[0] == "`apex`"] == [f"`{apex}`"] and trainer == evaluator, entry.entry.where
    entry.says("`create_supervised_trainer(…, amp_mode='apex')` raises the same at once.",
               f"With `device='xla'` the trainer and the evaluator raise `{trainer}`.")

    fid, seed, states, fewer = serial(without_numpy)
    assert seed is None and fewer == states - 1, entry.entry.where
    entry.says(f"Without NumPy, `FID` raises `{fid}`, while `manual_seed` and `DeterministicEngine` say nothing and "
               f"leave "
               "its generator out.",
               "`idist.available_backends()` lists what imports here.")
    described = re.search(r"backend: backend: (.*)", idist.initialize.__doc__)[1]
    assert "`horovod`" in described and "`xla-tpu`" in described and native.MPI == "mpi", entry.entry.where
    entry.says("Horovod, torch_xla and MPI are backends of `ignite.distributed`")
