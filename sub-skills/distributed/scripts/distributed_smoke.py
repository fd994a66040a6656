#!/usr/bin/env python3
# /// script
# requires-python = ">=3.10"
# dependencies = ["torch>=2.0", "pytorch-ignite>=0.4.13", "numpy"]
# ///
"""Is this machine all right for ignite.distributed? Starts real ranks, runs every helper, compares with known values.

How it is built: a *supervisor* that never joins a process group, and *ranks* that do nothing but join and check.
The supervisor hands one check at a time to all ranks over pipes and waits for every answer, so it knows what each
rank is doing even when the world is dead; it holds the deadline, fetches the Python stack of a silent rank and ends
the tree. Under torchrun or srun each process is a supervisor with one rank; they meet in a TCPStore, and the one of
rank 0 leads. A check is one function, decorated with @check, that compares with `expect`; what a rank should be
(rank, size, node) comes from the launcher, never from the helper under test. Nothing here imports torch until needed.
"""

from __future__ import annotations

import os
import sys


def in_the_way(error):
    """Files that have the name of a module of Python itself and were imported in its place, of those loaded or seen in
    the traceback of the error."""
    files = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    trace = error.__traceback__
    while trace:
        path = trace.tb_frame.f_code.co_filename
        files[os.path.basename(path)[: -len(".py")]] = path
        trace = trace.tb_next
    home = os.path.dirname(os.path.abspath(os.__file__))
    return sorted(
        os.path.abspath(path)
        for name, path in files.items()
        if name in sys.stdlib_module_names
        and path
        and path.endswith(".py")
        and not os.path.realpath(path).startswith(os.path.realpath(home) + os.sep)
        and "-packages" not in path
    )


def rename(path):
    """The command that takes a file or folder out of the way of what has its name."""
    head, tail = os.path.split(path)
    return f"mv {path} {os.path.join(head, 'my_' + tail)}"


try:
    import argparse
    import contextlib
    import errno
    import faulthandler
    import gc
    import importlib.util
    import io
    import json
    import logging
    import pickle
    import platform
    import re
    import select
    import shutil
    import signal
    import socket
    import struct
    import subprocess
    import tempfile
    import threading
    import time
    import traceback
    import warnings
    from datetime import timedelta
    from pathlib import Path
except Exception as e:
    where = in_the_way(e)
    if __name__ != "__main__" or not where:
        raise
    print(f"distributed_smoke.py: {where[0]} is imported in place of Python's own module: {e}", file=sys.stderr)
    print(f"ERROR  exit code 3\ncause: {where[0]} is imported in place of Python's own module\n  seen: {e}")
    print(f"  fix:  {rename(where[0])}", flush=True)
    os._exit(3)

STARTED = time.monotonic()
STOP, HOLD = [], []  # signals that came; reasons not to act on them at once
TARGETS = ("serial", "gloo", "nccl", "mpi", "horovod", "xla-tpu")
NATIVE = ("gloo", "nccl", "mpi")
LAUNCH_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
GRACE = 3.0  # seconds that the other ranks get to finish a check after one has failed it
SPARE = 3.0  # seconds before the deadline at which a launched world stops, to see who is silent and to report
LOOK = 1.2  # seconds in which silent ranks show their stacks
LATE = 0.3  # seconds after the deadline that rank 0's word is waited for
ROOM = 64 << 10  # bytes that must be free in the temporary folder; a run of all checks in two ranks leaves 20 KiB there
SCARCE = "bytes are free in"
API = "references/api-reference.md#"
TROUBLE = "references/troubleshooting.md#"
torch = dist = ignite = idist = None  # set by import_libraries()


class Interrupted(BaseException):
    """A signal asked this process to end."""


def on_signal(number, _frame):
    """End, unless a fork is under way (an exception would be lost there) or a launched world has to report first."""
    STOP.append(number)
    if not HOLD:
        raise Interrupted


class UsageError(Exception):
    """Something the caller has to change before anything can run: exit 2."""


def import_libraries():
    """Import torch and ignite once, before any rank is forked; a Problem when one cannot be, else None."""
    global torch, dist, ignite, idist
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # asking for CUDA must not make a fork unsafe
    package = "torch"
    try:
        import torch
        import torch.distributed as dist

        package = "ignite"
        import ignite
        import ignite.distributed as idist
    except OutOfTime:
        raise
    except Exception as e:  # a broken installation fails in many ways
        return not_imported(package, e)
    return None


PIP = {"ignite": "pytorch-ignite"}
SHARED_LIBRARY = ("cannot open shared object", "undefined symbol", "Library not loaded", "DLL load failed", ".so: ")


def not_imported(package, error):
    """Problem: why torch or ignite cannot be imported, and the command that mends that."""
    raised = [f.filename for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<")][-1]
    names = [n for n in re.findall(r"[A-Z][A-Z0-9]*_[A-Z0-9_]+", str(error)) if n in os.environ]
    own = next((p for p in map(place_of, {package, owner_of(raised)}) if p and in_place_of(p)), None)
    also = " pytorch-ignite" * (package == "torch" and importlib.util.find_spec("ignite") is None)
    ours = in_the_way(error)
    candidates = (  # whether it applies, what it says, the value that shows it, the command
        (ours, "{0} is imported in place of Python's own module", "", "{1}"),
        (names, "the value of {0} is refused", "{2}", "unset {0}"),
        (
            any(text in str(error) for text in SHARED_LIBRARY),
            "a shared library is missing, or from another build",
            "",
            "pip install --force-reinstall torch, and all that is built for it (torchvision …) of the same build",
        ),
        (own, "{0} is imported in place of the package", "", "{1}"),
        (True, "", "", mends_import(error, package, PIP.get(package, package) + also)),
    )
    subject = ours[0] if ours else names[0] if names else own or ""
    words = (subject, rename(subject), f"{subject}={os.environ.get(subject)}")
    why, value, fix = (text.format(*words) for text in next(c for c in candidates if c[0])[1:])
    text = f"{package} cannot be imported ({shorten(str(error), 300)})" + f": {why}" * bool(why)
    evidence = [f"{type(error).__name__} raised in {raised}", *[value] * bool(value)]
    return Problem("missing-dependency", 3, text, evidence=evidence, fix=fix)


def mends_import(error, module, package):
    """The command that mends a failed import, by what was raised and where."""
    if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith(module + "."):
        with contextlib.suppress(ImportError, ValueError):
            place = next(iter(importlib.util.find_spec(module).submodule_search_locations or ["it"]))
            return f"rename {place} if it is yours, else pip install --force-reinstall {package}"
    if isinstance(error, ModuleNotFoundError) and error.name and error.name.split(".")[0] != module:
        return f"pip install {error.name.split('.')[0]}"
    frames = [Path(f.filename).parts for f in traceback.extract_tb(error.__traceback__)]
    inside = [p[p.index("site-packages") + 1] for p in frames if "site-packages" in p[:-1]]
    if inside and inside[-1].removesuffix(".py") != module:
        return f"pip install --force-reinstall {inside[-1].removesuffix('.py')}"
    return f"pip install {package}"


def owner_of(file):
    """Name of the top package or module to which a file belongs, by the folder of sys.path that holds it; or ""."""
    folders = [os.path.abspath(p) for p in sys.path]
    holders = [f for f in folders if os.path.abspath(file).startswith(f + os.sep)]
    if not holders or os.path.abspath(file) == os.path.abspath(__file__):
        return ""
    return os.path.relpath(os.path.abspath(file), max(holders, key=len)).split(os.sep)[0].removesuffix(".py")


def place_of(package):
    """Folder or file from which a top package would be imported; None where nobody has it."""
    with contextlib.suppress(ImportError, ValueError):
        if package and (spec := importlib.util.find_spec(package)):
            folders = list(spec.submodule_search_locations or ())
            return folders[0] if folders else spec.origin
    return None


def in_place_of(path):
    """Whether what is imported from there has the name of an installed package by chance, and hides it."""
    beside, package = Path(path).parent, Path(path).name
    if "-packages" in path or any((beside / n).exists() for n in ("setup.py", "pyproject.toml")):
        return False
    return any(Path(p, package.removesuffix(".py")).exists() for p in sys.path if "-packages" in p)


# ------------------------------------------------------------------------------------------------------------------
# Checks: what they know, how they compare
# ------------------------------------------------------------------------------------------------------------------
CHECKS = {}  # id -> Check, in the order in which a set-up comes to life


class Check:
    def __init__(self, name, function, phase, needs, uses, since, native):
        self.id, self.function, self.phase, self.needs = name, function, phase, needs
        self.uses, self.since, self.native = uses, since, native


def check(name, *, phase="joined", needs=1, uses=(), since=None, native=False):
    """Register a check.

    Args:
        name: its id; for a check of a public helper, the helper's name.
        phase: "before" the group exists, "joined", or "after" it was left; serial runs know no phases.
        needs: processes below which it would prove nothing.
        uses: checks whose helper this one relies on; if one of those failed, this one is skipped.
        since: first Ignite release that has the helper, if later than 0.4.13.
        native: whether it needs torch's own process group.
    """

    def register(function):
        CHECKS[name] = Check(name, function, phase, needs, tuple(uses), since, native)
        return function

    return register


class OutOfStep(Exception):
    """The check goes no further on this rank: it has its mismatch, and the others have not come."""


# What ranks meet in a store for; one store each, since a second round in a store finds the keys of the first.
STORES = ("join", "again", "spawn", "failing", "Parallel")


class World:
    """What a rank should be, as its launcher says, and a side channel that is no collective.

    Attributes: rank, size, local_rank, local_size, node, nnodes; target and backend; serial, native, slurm (flags);
    timeout (seconds left); folder (temporary, shared by the ranks of one host).
    """

    def __init__(self, spec):
        self.__dict__.update(spec)
        self.serial = self.target == "serial"
        self.native = self.target in NATIVE
        self.backend = None if self.serial else self.target
        self.last = self.size - 1
        # Many ranks on few cores are slow, and each kind of input has been tried in the world of one before
        self.crowded = self.size > 8 and not self.launched
        self.mismatches, self.store, self.current, self._round = [], None, None, {}
        self.began, self.measured = time.monotonic(), None

    def connect(self):
        if not self.serial and self.store is None:
            store = dist.TCPStore(self.store_host, self.ports["join"], None, False, timedelta(seconds=self.timeout))
            self.store = dist.PrefixStore(self.store_prefix + "/side", store)

    def share(self, name, value):
        """What every rank gave, in rank order, through the store."""
        if self.size == 1:
            return [value]
        self.announce(name, value)
        keys = [self._key(name, r) for r in range(self.size)]
        self._wait(keys)
        return [pickle.loads(value) for value in self.store.multi_get(keys)]

    def announce(self, name, value=None):
        if self.size > 1:
            self.store.set(self._key(name, self.rank), pickle.dumps(value))

    def await_others(self, name):
        """Return when every other rank has announced `name`."""
        if self.size > 1:
            self._wait([self._key(name, r) for r in range(self.size) if r != self.rank])

    def announced(self, name, rank):
        return self.size == 1 or self.store.check([self._key(name, rank)])

    def longer_than(self, seconds, number=0):
        """A delay, the same on all ranks, that outlasts a call which just waits a while instead of for the others.

        `seconds`: what the call took on this rank beyond the delay that it had to wait for.
        """
        return min(2.0, max(0.03, 2 * max(self.share(f"seconds-{number}", seconds))))

    def comes(self, name, rank, seconds):
        """Whether the rank announces `name` within the time."""
        try:
            self.store.wait([self._key(name, rank)], timedelta(seconds=seconds))
            return True
        except RuntimeError:
            return False

    def _wait(self, keys):
        """Wait for the other ranks; not for long if this one has seen a mismatch, since then they may never come."""
        if not self.mismatches:
            self.store.wait(keys, timedelta(seconds=self.timeout + 60))
        else:
            try:
                self.store.wait(keys, timedelta(seconds=1))
            except RuntimeError:
                raise OutOfStep from None

    def _key(self, name, rank):
        return f"{self.current}/{name}/{rank}"

    def expect(self, what, observed, expected):
        """Record a mismatch unless observed equals expected, in type too; the check goes on, so ranks stay in step."""
        if not same(observed, expected):
            self.mismatches.append((what, show(observed), show(expected)))

    def expect_raises(self, what, error, text, function, *args, **kwargs):
        try:
            result = function(*args, **kwargs)
        except error as e:
            if text not in str(e):
                self.mismatches.append((what, f"{type(e).__name__}: {e}", f"{error.__name__} with '{text}'"))
        else:
            self.mismatches.append((what, f"returned {show(result)}", f"{error.__name__} with '{text}'"))

    def expect_none(self, what, observed):
        self.expect(f"{what} returns", observed, None)


def same(a, b):
    if torch.is_tensor(a) or torch.is_tensor(b):
        return (
            torch.is_tensor(a)
            and torch.is_tensor(b)
            and a.shape == b.shape
            and a.dtype == b.dtype
            and bool(torch.equal(a.detach().cpu(), b.detach().cpu()))
        )
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return bool(a == b)


def show(value):
    if torch.is_tensor(value):
        return f"tensor({value.tolist()}, {str(value.dtype).replace('torch.', '')})"[:200]
    return repr(value)[:200]


# ------------------------------------------------------------------------------------------------------------------
# The checks, in the order in which a set-up comes to life
# ------------------------------------------------------------------------------------------------------------------
def importable(module):
    """Whether a package can be imported; not asked by importing it unless it is there."""
    if importlib.util.find_spec(module.split(".")[0]) is None:
        return False
    try:
        importlib.import_module(module)
        return True
    except Exception:
        return False


@check("has_native_dist_support", phase="before")
def _(w):
    w.expect("has_native_dist_support", idist.has_native_dist_support, dist.is_available())


@check("has_hvd_support", phase="before")
def _(w):
    w.expect("has_hvd_support", idist.has_hvd_support, importable("horovod.torch"))


@check("has_xla_support", phase="before")
def _(w):
    w.expect("has_xla_support", idist.has_xla_support, importable("torch_xla.core.xla_model"))


def native_backends():
    return tuple(b for b in ("nccl", "gloo", "mpi") if dist.is_available() and getattr(dist, f"is_{b}_available")())


@check("registered_computation_models", phase="before")
def _(w):
    models = idist.registered_computation_models
    wanted = ["serial"] + ["native-dist"] * dist.is_available()
    wanted += ["xla-dist"] * importable("torch_xla.core.xla_model") + ["horovod-dist"] * importable("horovod.torch")
    w.expect("type", type(models), tuple)
    w.expect("models", [getattr(m, "name", m) for m in models], wanted)


@check("available_backends", phase="before")
def _(w):
    wanted = set(native_backends())
    wanted |= {"xla-tpu"} if importable("torch_xla.core.xla_model") else set()
    wanted |= {"horovod"} if importable("horovod.torch") else set()
    backends = idist.available_backends()
    w.expect("type", type(backends), tuple)
    w.expect("backends", sorted(backends), sorted(wanted))


@check("hostname", phase="before")
def _(w):
    w.expect("hostname()", idist.hostname(), socket.gethostname())


def own_group(w, name, size=None):
    """A process group of the first `size` ranks (default: all), made with torch alone, as in a user's own code."""
    store = dist.PrefixStore(name, w.store) if w.store is not None else dist.HashStore()
    timeout = timedelta(seconds=w.timeout + 60)
    dist.init_process_group(w.backend or "gloo", store=store, rank=w.rank, world_size=size or w.size, timeout=timeout)


def raw_sum(device="cpu"):
    """1 + 2 + … + world size, added by torch itself."""
    total = torch.tensor([float(dist.get_rank() + 1)], device=device)
    dist.all_reduce(total)
    return total.item()


def own_device(w):
    """The device on which ranks of this target compute, from torch alone."""
    if w.target == "xla-tpu":
        import torch_xla.core.xla_model as xm

        return xm.xla_device()
    if torch.cuda.is_available():
        return torch.device("cuda") if w.serial else torch.device("cuda", torch.cuda.current_device())
    if w.serial and torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


@check("process_group", phase="before", native=True)
def _(w):
    if w.target == "nccl":
        torch.cuda.set_device(w.local_rank)
    own_group(w, "process_group")  # sync, the next check, finds it
    w.expect("sum over ranks by torch itself", raw_sum(own_device(w)), w.size * (w.size + 1) / 2)


def current_model():
    """Name of the model that idist works with now; read without a getter, since a getter would sync."""
    return sys.modules["ignite.distributed.utils"]._model.name


@check("sync", phase="before", uses=["process_group"])
def _(w):
    if w.native:
        w.expect_none("sync", idist.sync())
        w.expect("model after joining by torch and sync", current_model(), "native-dist")
        w.share("joined", None)
        dist.destroy_process_group()
    for temporary in (False, True):
        w.expect_none("sync", idist.sync(temporary=temporary))
        w.expect("model after sync without a group", current_model(), "serial")


@check("shared_memory", phase="before")
def _(w):
    shared = torch.arange(1 << 18).share_memory_()  # 2 MiB, as workers of a loader pass batches
    w.expect("sum of what was shared", int(shared.sum()), (1 << 18) * ((1 << 18) - 1) // 2)


def spawned(local_rank, path, *, factor):
    """What idist.spawn and Parallel run in the processes that they start: says who it is and what the world sums to."""
    total = torch.tensor([float(local_rank + 1)])
    dist.all_reduce(total)
    seen = [dist.get_rank(), dist.get_world_size(), os.environ["LOCAL_RANK"], factor, total.item()]
    Path(path, f"{local_rank}.json").write_text(json.dumps(seen))


@contextlib.contextmanager
def own_world(w):
    """An environment and a folder for helpers that start processes of their own; those meet in a store of ours, since
    file:// would not do: Ignite takes any init_method with "env" in it, also in a folder's name, for env://."""
    before = dict(os.environ)
    for name in [n for n in os.environ if n.startswith(("SLURM_", "MASTER_"))]:
        del os.environ[name]
    with tempfile.TemporaryDirectory(dir=w.folder) as folder:
        try:
            yield folder
        finally:
            os.environ.clear()
            os.environ.update(before)


def expect_spawned(w, what, folder):
    seen = [json.loads(p.read_text()) for p in sorted(Path(folder).glob("*.json"))]
    w.expect(
        f"{what}: each rank's [rank, world size, LOCAL_RANK, keyword, sum]",
        seen,
        [[r, 2, str(r), 7, 3.0] for r in range(2)],
    )


@check("initialize", uses=["sync"])
def _(w):
    if w.serial:
        w.expect_raises(
            "initialize of an unknown backend",
            ValueError,
            "Backend should be one of",
            idist.initialize,
            "no-such-backend",
        )
        return
    w.environment_before = dict(os.environ)
    kwargs = {"timeout": timedelta(seconds=int(w.timeout) + 60)} if w.native else {}
    w.expect_none("initialize", idist.initialize(w.backend, **kwargs))
    if not w.native:
        return
    w.expect("a process group exists", dist.is_initialized(), True)
    if not dist.is_initialized():
        return
    w.expect(
        "[backend, rank, world size] of the group",
        [dist.get_backend(), dist.get_rank(), dist.get_world_size()],
        [w.backend, w.rank, w.size],
    )
    changed = {
        k for k in set(os.environ) | set(w.environment_before) if os.environ.get(k) != w.environment_before.get(k)
    }
    w.expect("other variables that it changed", sorted(changed - set(LAUNCH_VARIABLES)), [])
    w.expect(
        "RANK, WORLD_SIZE, LOCAL_RANK in the environment",
        [os.environ.get(k) for k in ("RANK", "WORLD_SIZE", "LOCAL_RANK")],
        [str(w.rank), str(w.size), str(w.local_rank)],
    )
    with contextlib.suppress(AttributeError, RuntimeError):  # private in torch; read where it can be
        seen = dist.group.WORLD._get_backend(torch.device("cpu")).options._timeout
        w.expect("timeout of the group", seen, kwargs["timeout"])
    w.expect("sum over ranks by torch itself", raw_sum(own_device(w)), w.size * (w.size + 1) / 2)


@check("backend", uses=["initialize"])
def _(w):
    for _ in range(3):
        w.expect("backend()", idist.backend(), w.backend)


@check("model_name", uses=["initialize"])
def _(w):
    names = {"serial": "serial", "horovod": "horovod-dist", "xla-tpu": "xla-dist"}
    for _ in range(3):
        w.expect("model_name()", idist.model_name(), names.get(w.target, "native-dist"))


@check("device", uses=["initialize"])
def _(w):
    for _ in range(3):
        w.expect("device()", idist.device(), own_device(w))


def getter(name, attribute):
    @check(name, uses=["initialize"])
    def _(w):
        for _ in range(3):
            w.expect(f"{name}()", getattr(idist, name)(), getattr(w, attribute))


getter("get_rank", "rank")
getter("get_world_size", "size")
getter("get_local_rank", "local_rank")
getter("get_nproc_per_node", "local_size")
getter("get_nnodes", "nnodes")
getter("get_node_rank", "node")
GETTERS = ("get_rank", "get_world_size", "get_local_rank", "get_nproc_per_node", "get_nnodes", "get_node_rank")


@check("show_config", uses=["backend", "model_name", "device", "hostname", *GETTERS])
def _(w):
    logger = logging.getLogger("ignite.distributed.utils")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
    logging.root.manager.loggerDict.pop(logger.name, None)
    stream, out = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(stream), contextlib.redirect_stdout(out):
        w.expect_none("show_config", idist.show_config())
    w.expect("printed on stdout", out.getvalue(), "")
    lines = [line.rpartition("INFO: ")[2] for line in stream.getvalue().splitlines()]
    names = {"serial": "serial", "horovod": "horovod-dist", "xla-tpu": "xla-dist"}
    wanted = [
        f"distributed configuration: {names.get(w.target, 'native-dist')}",
        f"backend: {w.backend}",
        f"device: {own_device(w).type}",
        f"hostname: {socket.gethostname()}",
        f"world size: {w.size}",
        f"rank: {w.rank}",
        f"local rank: {w.local_rank}",
        f"num processes per_node: {w.local_size}",
        f"num nodes: {w.nnodes}",
        f"node rank: {w.node}",
    ]
    w.expect("lines logged", lines, wanted if w.rank == 0 else [])


@check("new_group", uses=["initialize"])
def _(w):
    w.expect_raises("a tuple", ValueError, "Argument ranks should be list of int", idist.new_group, (0,))
    if w.serial:
        w.expect("new_group([0])", idist.new_group([0]), [0])
        return
    several = [[w.last], list(range(min(4, w.size)))]
    if w.target == "horovod":  # which takes no set of ranks twice, and has that of all ranks from the start
        everyone = list(range(w.size))
        w.expect_raises("all ranks", ValueError, "duplicate process set", idist.new_group, everyone)
        several = [[w.last]] * (w.size > 1)
    for members in several:
        group = idist.new_group(members)
        if w.rank in members and w.native:
            x = torch.tensor([w.rank + 1], device=own_device(w))
            dist.all_reduce(x, group=group)
            w.expect(f"sum by torch within {members}", x, torch.tensor([sum(m + 1 for m in members)]))
        elif w.native:
            w.expect(f"rank {w.rank} stands outside {members}", group, dist.GroupMember.NON_GROUP_MEMBER)
        w.expect("it is a group of its own", group is dist.group.WORLD, False)
        if w.target == "horovod":
            w.expect("ranks of the process set", group.ranks, members)
        if w.mismatches:
            return  # the others may wait within a group that this rank does not have
    if not w.native:
        return
    with contextlib.suppress(AttributeError, RuntimeError):  # private in torch; read where it can be
        group = idist.new_group([0], timeout=timedelta(seconds=77))
        seen = group._get_backend(torch.device("cpu")).options._timeout
        w.expect("timeout given to it", seen, timedelta(seconds=77))


def subgroups(size):
    """Small groups, of which one leaves a rank out and one makes values change; large ones are slow to make and prove
    no more."""
    return [[0]] if size == 1 else [[0], [0, 1]] if size == 2 else [[0, 1]]


BIG = 2**53 + 1  # an integer that no float holds


@check("all_reduce", uses=["initialize"])
def _(w):
    n, r, device = w.size, w.rank, own_device(w)
    total = n * (n + 1) // 2
    w.expect("sum of ints rank + 1", idist.all_reduce(r + 1), total)
    w.expect("sum of floats (rank + 1) / 4", idist.all_reduce((r + 1) / 4), total / 4)
    w.expect("maximum of large ints", idist.all_reduce(BIG + r, "MAX"), BIG + n - 1)
    x = torch.tensor([[1.0, 2.0]], dtype=torch.float64, device=device) * (r + 1)
    result = idist.all_reduce(x)
    w.expect("sum of tensors", result, torch.tensor([[1.0, 2.0]], dtype=torch.float64) * total)
    if w.native or w.serial:
        w.expect("the result is the tensor that was given", result is x, True)
    w.expect("sum of negative ints", idist.all_reduce(-r - 1), -total)
    thirds = 0.0
    for i in range(n):
        thirds += (i + 1) / 3
    w.expect("sum of thirds, in double precision", abs(idist.all_reduce((r + 1) / 3) - thirds) < 1e-12 * n, True)
    for dtype in (torch.int32, torch.int64, torch.float32)[: 1 if w.crowded else 3]:
        x = torch.tensor([r + 1, -r], dtype=dtype, device=device)
        w.expect(f"maximum of {dtype} tensors", idist.all_reduce(x.clone(), "MAX"), torch.tensor([n, 0], dtype=dtype))
        w.expect(
            f"minimum of {dtype} tensors", idist.all_reduce(x.clone(), "MIN"), torch.tensor([1, 1 - n], dtype=dtype)
        )
    twos = idist.all_reduce(torch.full((2,), 2 if r == w.last else 1, device=device), "PRODUCT")
    w.expect("product of tensors", twos, torch.tensor([2, 2]))
    product = 1
    for i in range(n):
        product *= i % 3 + 1
    w.expect("PRODUCT", idist.all_reduce(r % 3 + 1, op="PRODUCT"), product)
    w.expect("MIN", idist.all_reduce(5 - r % 4, op="MIN"), 5 - min(n - 1, 3))
    w.expect("MAX", idist.all_reduce(r % 4, op="MAX"), min(n - 1, 3))
    if w.target == "horovod":
        return
    bits = 14 if r % 2 else 7  # 0b0111 on even ranks, 0b1110 on odd ones
    w.expect("AND", idist.all_reduce(bits, op="AND"), 6 if n > 1 else 7)
    w.expect("OR", idist.all_reduce(bits, op="OR"), 15 if n > 1 else 7)
    if w.serial:
        return
    for members in subgroups(n):
        if len(members) < n and release(ignite.__version__) < (0, 5, 2):
            continue  # a rank outside the group got a ValueError
        for op, wanted in (("SUM", len(members) * (len(members) + 1) // 2), ("MAX", len(members))):
            reduced = idist.all_reduce(torch.tensor([r + 1], device=device), op, group=members)
            wanted = wanted if r in members else r + 1
            w.expect(f"{op} within the group {members}", reduced, torch.tensor([wanted]))
    w.expect_raises("an unknown operation", ValueError, "Unsupported reduction operation", idist.all_reduce, 1, "MEAN")
    w.expect_raises("a str", TypeError, "Unhandled input type", idist.all_reduce, "text")


@check("all_gather", uses=["initialize"])
def _(w):
    n, r, device = w.size, w.rank, own_device(w)
    w.expect("ints", idist.all_gather(10 + r), [10 + i for i in range(n)])
    texts = [str(i % 10) * (1100 + i) for i in range(n)]
    w.expect("long strings of different length", idist.all_gather(texts[r]), texts)
    w.expect("objects", idist.all_gather({"rank": r, "é": [r]}), [{"rank": i, "é": [i]} for i in range(n)])
    rows = [torch.tensor([[i, -i], [2 * i, 7]]) for i in range(n)]
    w.expect("2 x 2 tensors, concatenated", idist.all_gather(rows[r].to(device)), torch.cat(rows))
    if not w.crowded:
        w.expect("floats", idist.all_gather(r + 0.1), [i + 0.1 for i in range(n)])
        w.expect("large ints", idist.all_gather(BIG + r), [BIG + i for i in range(n)])
        double = idist.all_gather(torch.tensor([r + 0.1], dtype=torch.float64, device=device))
        w.expect("double precision", double, torch.tensor([i + 0.1 for i in range(n)], dtype=torch.float64))
        zero_dim = idist.all_gather(torch.tensor(float(r), device=device))
        w.expect("0-dim tensors", zero_dim, torch.tensor(0.0) if w.serial else torch.arange(float(n)))
    if w.serial or w.target == "horovod":
        return
    for members in subgroups(n):
        gathered = idist.all_gather(torch.tensor([r], device=device), group=members)
        w.expect(f"within the group {members}", gathered, torch.tensor(members if r in members else [r]))


@check("all_gather_tensors_with_shapes", uses=["all_gather", "new_group"], since="0.5.2")
def _(w):
    shapes = [[i + 1, 3 - i % 2] for i in range(w.size)]
    tensors = [torch.full(shape, float(i + 1)) for i, shape in enumerate(shapes)]
    gathered = idist.all_gather_tensors_with_shapes(tensors[w.rank].to(own_device(w)), shapes)
    w.expect("tensors of different shapes, unpadded", gathered, tensors)
    if w.target == "horovod":
        return  # a group given as a list is a new process set for each call
    members = subgroups(w.size)[-1]
    mine = torch.arange(w.rank + 1, device=own_device(w))
    flat = idist.all_gather_tensors_with_shapes(mine, [[m + 1] for m in members], group=members)
    wanted = [torch.arange(m + 1) for m in members] if w.rank in members else [torch.arange(w.rank + 1)]
    w.expect(f"vectors of different length within the group {members}", flat, wanted)


@check("broadcast", uses=["initialize"])
def _(w):
    device = own_device(w)
    for src in {w.last} if w.crowded else sorted({0, w.last}):
        mine = w.rank == src
        x = torch.tensor([src + 1.5, 2.0], device=device) if mine else torch.zeros(2, device=device)
        result = idist.broadcast(x, src=src)
        w.expect(f"a tensor from rank {src}", result, torch.tensor([src + 1.5, 2.0]))
        w.expect("the result is the tensor that was given", result is x, w.target != "horovod")
        w.expect(f"a number from rank {src}", idist.broadcast(src + 0.25 if mine else 0.0, src=src), src + 0.25)
        w.expect(f"a str from rank {src}", idist.broadcast(f"from {src}" if mine else "", src=src), f"from {src}")
        text = f"{src % 10}" * 1100
        w.expect("a long str", idist.broadcast(text if mine else "", src=src), text)
        w.expect("an int", idist.broadcast(3 if mine else 0, src=src), 3 if w.serial else 3.0)
        w.expect("a number, None elsewhere", idist.broadcast(0.5 if mine else None, src=src, safe_mode=True), 0.5)
        w.expect("a str, None elsewhere", idist.broadcast("safe" if mine else None, src=src, safe_mode=True), "safe")
        safe = idist.broadcast(torch.tensor([[src + 3]], device=device) if mine else None, src=src, safe_mode=True)
        w.expect(f"a tensor from rank {src}, None elsewhere", safe, torch.tensor([[src + 3]]))
    w.expect("from rank 0 unless told", idist.broadcast(f"rank {w.rank}"), "rank 0")
    if w.serial:
        w.expect_raises("None", ValueError, "should not be None", idist.broadcast, None)
    else:
        w.expect_raises("a dict", TypeError, "Unhandled input type", idist.broadcast, {})


@check("barrier", needs=2, uses=["initialize"])
def _(w):
    delay = 0.03
    for number, late in enumerate((0, w.last, 0)):
        start = time.monotonic()
        if w.rank == late:  # comes only after all others stand before the barrier
            w.await_others(f"before-{number}")
            time.sleep(delay)
        w.announce(f"before-{number}")
        w.expect_none("barrier", idist.barrier())
        w.expect(f"rank {late} had come when the barrier opened", w.announced(f"before-{number}", late), True)
        w.share(f"after-{number}", None)
        delay = w.longer_than(time.monotonic() - start - delay, number)


@check("one_rank_only", uses=["get_rank", "barrier"])
def _(w):
    for chosen in sorted({0, w.last}):
        calls = []

        @idist.one_rank_only(rank=chosen)
        def once(value, *, scale, calls=calls):
            calls.append(value)
            return value * scale

        w.expect(f"returned with rank={chosen}", once(3, scale=2), 6 if w.rank == chosen else None)
        w.expect(f"calls with rank={chosen}", calls, [3] if w.rank == chosen else [])
        w.expect("keeps the function's name", getattr(once, "__name__", None), "once")
        if w.size == 1:
            continue

        came = []

        @idist.one_rank_only(rank=chosen)
        def alone(chosen=chosen, came=came):  # the others go on meanwhile
            came += [w.comes(f"gone-on-{chosen}", r, 10) for r in range(w.size) if r != chosen]

        alone()
        w.announce(f"gone-on-{chosen}")
        w.await_others(f"gone-on-{chosen}")  # for ever, if one is frozen: that is another fault
        w.expect("others go on without a barrier", all(came), True)

        @idist.one_rank_only(rank=chosen, with_barrier=True)
        def slow(delay, chosen=chosen):
            w.expect("runs with_barrier on", w.rank, chosen)
            w.await_others(f"waiting-{chosen}-{delay}")
            time.sleep(delay)
            w.announce(f"done-{chosen}-{delay}")

        delay = 0.0
        for _ in range(2):  # at once, then longer than the others waited
            start = time.monotonic()
            if w.rank != chosen:
                w.announce(f"waiting-{chosen}-{delay}")
            slow(delay)
            done = w.announced(f"done-{chosen}-{delay}", chosen)
            w.expect("with_barrier: others wait for it", done, True)
            delay = w.longer_than(time.monotonic() - start - delay, f"{chosen}-{delay}")

    @idist.one_rank_only()
    def on_zero():
        return "ran"

    w.expect("on rank 0 unless told", on_zero(), "ran" if w.rank == 0 else None)

    @idist.one_rank_only(rank=0)
    def raises():
        raise KeyError("on purpose")

    if w.rank == 0:
        w.expect_raises("an exception in it", KeyError, "on purpose", raises)


@check("one_rank_first", needs=2, uses=[*GETTERS, "barrier"], since="0.4.13")
def _(w):
    cases = {"default": ({}, w.rank == 0), "last": ({"rank": w.last}, w.rank == w.last)}
    cases["local"] = ({"rank": 0, "local": True}, w.local_rank == 0)
    cases["again"] = cases["default"]
    delay = 0.03
    for name, (kwargs, is_first) in cases.items():
        firsts = [r for r, first in enumerate(w.share(f"{name}-is-first", is_first)) if first]
        entered, start = [], time.monotonic()
        w.announce(f"{name}-before")
        with idist.one_rank_first(**kwargs):
            entered.append(True)
            if is_first:
                w.await_others(f"{name}-before")
                time.sleep(delay)
                w.announce(f"{name}-done")
            else:
                ahead = [w.announced(f"{name}-done", r) for r in firsts]
                w.expect(f"the first with {kwargs} has been through", ahead, [True] * len(firsts))
        w.expect("the block ran", entered, [True])
        delay = w.longer_than(time.monotonic() - start - delay, name)

    def bad():
        with idist.one_rank_first(rank=w.size):
            pass

    w.expect_raises(f"rank={w.size}", ValueError, "rank should be between 0 and", bad)


@check("DistributedProxySampler", phase="before")
def _(w):
    data, n = range(4 * w.size + 1), w.size
    padded = -(-len(data) // n) * n
    sampler = idist.DistributedProxySampler(torch.utils.data.SequentialSampler(data), num_replicas=n, rank=w.rank)
    w.expect("every world-size-th index from rank on", list(sampler), [i % len(data) for i in range(w.rank, padded, n)])
    w.expect("length", len(sampler), padded // n)
    state = torch.random.get_rng_state()
    orders = []
    for epoch in (0, 1):
        shuffled = idist.DistributedProxySampler(torch.utils.data.RandomSampler(data), num_replicas=n, rank=w.rank)
        shuffled.set_epoch(epoch)
        shards = w.share(f"shards-{epoch}", list(shuffled))
        w.expect("shards of shuffled data cover it", sorted({i for shard in shards for i in shard}), list(data))
        w.expect("shards are equally long", [len(s) for s in shards], [padded // n] * n)
        orders.append(shards)
    torch.random.set_rng_state(state)
    w.expect("another epoch, another order", orders[0] == orders[1], False)
    w.expect_raises("a list", TypeError, "should be instance of torch Sampler", idist.DistributedProxySampler, [1])


@check("auto_dataloader", uses=[*GETTERS, "backend", "device", "DistributedProxySampler"])
def _(w):
    class Numbers(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(range(4))

    n, data = w.size, list(range(4 * w.size + 1))
    with quiet():
        loader = idist.auto_dataloader(data, batch_size=2 * n + (n > 1), num_workers=w.local_size + 1, shuffle=False)
        proxied = idist.auto_dataloader(data, batch_size=1, sampler=torch.utils.data.SequentialSampler(data))
        default = idist.auto_dataloader(data, batch_size=n, collate_fn=show)
        shuffled = idist.auto_dataloader(data, batch_size=n, shuffle=True)
        stream = idist.auto_dataloader(Numbers(), batch_size=2 * n)
        batches = torch.utils.data.BatchSampler(range(4), 2, False)
        batched = idist.auto_dataloader(data, batch_sampler=batches)
    w.expect("type", isinstance(loader, torch.utils.data.DataLoader), True)
    if not isinstance(loader, torch.utils.data.DataLoader):
        return
    w.expect("batch size on each rank (floor)", loader.batch_size, 2)
    w.expect("a batch size below the world size is left alone", proxied.batch_size, 1)
    w.expect("workers of each rank (ceiling)", loader.num_workers, 2)
    w.expect("pin_memory", loader.pin_memory, own_device(w).type == "cuda")
    w.expect("collate_fn", default.collate_fn is show, True)
    w.expect("batch size for an iterable data set", stream.batch_size, 2)
    w.expect("a batch_sampler is left alone", batched.batch_sampler is batches, True)
    samplers = [type(x.sampler).__name__ for x in (loader, proxied, default)]
    if n == 1:
        w.expect("samplers", samplers, ["SequentialSampler"] * 3)
        w.expect("sampler with shuffle=True", type(shuffled.sampler).__name__, "RandomSampler")
        w.expect("indices", list(loader.sampler), data)
        return
    w.expect("samplers", samplers, ["DistributedSampler", "DistributedProxySampler", "DistributedSampler"])
    padded = -(-len(data) // n) * n
    shard = [i % len(data) for i in range(w.rank, padded, n)]
    w.expect("indices of this rank", list(loader.sampler), shard)
    w.expect("indices of this rank, own sampler", list(proxied.sampler), shard)
    w.expect("shuffled by default", default.sampler.shuffle, True)
    w.expect("shuffled when asked", shuffled.sampler.shuffle, True)
    shards = w.share("shards", list(default.sampler))
    w.expect("the shards cover the data", sorted({i for s in shards for i in s}), data)


@contextlib.contextmanager
def quiet():
    """Silence the INFO lines and warnings of the auto_* helpers."""
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


def small_model(w, factor=1.0):
    """A linear layer whose weights depend on the rank, so that only a broadcast makes them equal."""
    model = torch.nn.Linear(2, 1, bias=False, dtype=torch.float64)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, 2.0]]) + factor * w.rank)
    return model


@check("auto_model", uses=["get_world_size", "get_local_rank", "backend", "device"])
def _(w):
    model = small_model(w)
    with quiet():
        wrapped = idist.auto_model(model)
    w.expect("type", isinstance(wrapped, torch.nn.Module), True)
    if not isinstance(wrapped, torch.nn.Module):
        return
    parallel = torch.nn.parallel.DistributedDataParallel
    if w.native and w.size > 1:
        w.expect("wrapped in", type(wrapped), parallel)
        w.expect("wraps the given model", getattr(wrapped, "module", None) is model, True)
    elif w.size == 1 and torch.cuda.device_count() < 2:
        w.expect("in a world of one the model itself comes back", wrapped is model, True)
    weights = [p.detach() for p in wrapped.parameters()]
    w.expect("weights of rank 0 on every rank", weights, [torch.tensor([[1.0, 2.0]], dtype=torch.float64)])
    w.expect("device", [p.device.type for p in wrapped.parameters()], [own_device(w).type])
    w.expect("in training mode", wrapped.training, True)
    w.expect("parameters that learn", [p.requires_grad for p in wrapped.parameters()], [True])
    if not weights or w.target == "horovod":  # there gradients are averaged by the optimizer
        return
    wrapped(torch.full((1, 2), float(w.rank + 1), dtype=torch.float64, device=own_device(w))).sum().backward()
    seen = [[round(g, 9) for g in p.grad.flatten().tolist()] for p in wrapped.parameters()]
    w.expect("gradient, the mean over the ranks", seen, [[(w.size + 1) / 2] * 2])
    if w.native and w.size > 1:
        layers, on_gpu = [torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)], own_device(w).type == "cuda"
        with quiet():  # torch refuses to wrap a SyncBatchNorm on a CPU
            wrapped = idist.auto_model(torch.nn.Sequential(*layers), sync_bn=on_gpu, find_unused_parameters=True)
        w.expect(
            "normalisation layer",
            type(getattr(wrapped, "module", wrapped)[1]).__name__,
            "SyncBatchNorm" if on_gpu else "BatchNorm1d",
        )
        w.expect("keyword arguments reach the wrapper", getattr(wrapped, "find_unused_parameters", None), True)


@check("auto_optim", uses=["backend"])
def _(w):
    one, two = (torch.nn.Parameter(torch.ones(1, dtype=torch.float64)) for _ in range(2))
    optimizer = torch.optim.SGD([{"params": [one]}, {"params": [two], "lr": 0.25}], lr=0.5, momentum=0.0)
    options = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
    adapted = idist.auto_optim(optimizer)
    w.expect("type", isinstance(adapted, torch.optim.Optimizer), True)
    if w.native or w.serial:
        w.expect("the optimizer itself comes back", adapted is optimizer, True)
    if isinstance(adapted, torch.optim.Optimizer):
        seen = [{k: v for k, v in g.items() if k != "params"} for g in adapted.param_groups]
        w.expect("options of the groups", seen, options)
        if w.target != "horovod":
            one.grad, two.grad = torch.ones_like(one), torch.ones_like(two)
            adapted.step()
            w.expect("parameters after a step", [one.item(), two.item()], [0.5, 0.75])


@check("ddp_gradients", needs=2, uses=["auto_model", "auto_optim", "device"])
def _(w):
    device = own_device(w)
    x = torch.tensor([[1.0, i + 1.0] for i in range(3 * w.size)], dtype=torch.float64, device=device)
    mine = x[w.rank :: w.size]
    with quiet():
        model = idist.auto_model(small_model(w))
    optimizer = idist.auto_optim(torch.optim.SGD(model.parameters(), lr=1.0))
    model(mine).square().mean().backward()
    gradient = [p.grad.clone() for p in model.parameters()]
    full = small_model(w, factor=0).to(device)
    full(x).square().mean().backward()
    optimizer.step()
    stepped = full.weight.detach() - full.weight.grad
    close = [torch.allclose(g, full.weight.grad) for g in gradient]
    if w.target != "horovod":  # there gradients are averaged in step()
        w.expect("gradient equals that of the whole batch", close, [True])
    close = [torch.allclose(p.detach(), stepped) for p in model.parameters()]
    w.expect("weights after a step equal those of one process", close, [True])


@check("metric_reduction", needs=2, uses=["all_reduce", "device", "get_world_size"])
def _(w):
    from ignite.metrics import Accuracy, Average

    n, r = w.size, w.rank
    average, accuracy = Average(), Accuracy()
    for value in range(r + 1):  # ranks hold different numbers of samples
        average.update(float(10 * r + value))
    accuracy.update((torch.eye(n + 1)[: r + 1], torch.tensor([0] + [0] * r)))
    values = [10.0 * i + v for i in range(n) for v in range(i + 1)]
    w.expect(
        "Average over all samples of all ranks", round(float(average.compute()), 3), round(sum(values) / len(values), 3)
    )
    w.expect("Accuracy over all samples of all ranks", round(float(accuracy.compute()), 5), round(n / len(values), 5))


@check("checkpoint_once", uses=["get_rank", "barrier"])
def _(w):
    from ignite.engine import Engine
    from ignite.handlers import Checkpoint, DiskSaver

    folder = Path(w.folder, f"{w.target}-checkpoint-{w.rank}")
    model = small_model(w, factor=0)
    saver = DiskSaver(str(folder), create_dir=True, require_empty=False)
    Checkpoint({"model": model}, saver, global_step_transform=lambda *_: 5)(Engine(lambda engine, batch: None))
    w.share("saved", None)
    found = sorted(p.name for p in folder.glob("*"))
    w.expect("files written", found, ["model_5.pt"] if w.rank == 0 else [])
    if found and w.rank == 0:
        loaded = torch.load(folder / found[0], weights_only=True)
        w.expect("loaded weights", loaded["weight"], model.weight.detach().cpu())
    shutil.rmtree(folder, ignore_errors=True)


@check("finalize", uses=["initialize"])
def _(w):
    if w.serial:
        before = dict(os.environ)
        w.expect_none("finalize", idist.finalize())
        w.expect("the environment is as before", dict(os.environ) == before, True)
        return
    w.share("ready", None)
    w.expect_none("finalize", idist.finalize())
    if w.native:
        w.expect("a process group exists", dist.is_initialized(), False)
        left = {
            k for k in set(os.environ) | set(w.environment_before) if os.environ.get(k) != w.environment_before.get(k)
        }
        w.expect("variables that differ from before initialize", sorted(left), [])


@check("set_local_rank", phase="after", uses=["finalize", "get_local_rank"], native=True)
def _(w):
    members = min(4, w.size)
    if w.slurm or w.rank >= members:
        return  # SLURM_LOCALID has the last word there; and four ranks show it as well as many
    hint = w.local_size - 1 - w.local_rank if w.size > 1 else 3
    before = os.environ.pop("LOCAL_RANK", None)
    try:
        w.expect_none("set_local_rank", idist.set_local_rank(hint))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            own_group(w, "set_local_rank", members)
            idist.sync()
            w.expect("local rank in a group made by torch", idist.get_local_rank(), hint)
        w.expect("guesses by host name", [str(c.message)[:40] for c in caught if "heuristic" in str(c.message)], [])
        dist.destroy_process_group()
        idist.sync()
    finally:
        if before is not None:
            os.environ["LOCAL_RANK"] = before


def failing(local_rank):
    raise ValueError("raised on purpose")


@check("spawn", phase="after", uses=["initialize", "finalize"], native=True)
def _(w):
    w.expect_raises(
        "spawn of an unknown backend", ValueError, "Backend should be one of", idist.spawn, "no-backend", spawned, ("",)
    )
    if w.target != "gloo" or w.rank != w.last or not hasattr(os, "fork"):
        return
    with own_world(w) as folder:
        kwargs = dict(start_method="fork", master_addr=w.store_host, master_port=w.ports["spawn"])
        w.expect_none("spawn", idist.spawn("gloo", spawned, (folder,), {"factor": 7}, nproc_per_node=2, **kwargs))
        expect_spawned(w, "spawn", folder)
        kwargs["master_port"] = w.ports["failing"]
        error = torch.multiprocessing.ProcessRaisedException
        w.expect_raises(
            "spawn of a function that raises", error, "raised on purpose", idist.spawn, "gloo", failing, (), **kwargs
        )


@check("Parallel", phase="after", uses=["initialize", "finalize", "spawn", "get_local_rank", "get_world_size"])
def _(w):
    members = 4 if w.native and w.crowded else w.size  # four ranks show it as well as many
    seen, before = [], None

    def task(local_rank, a, *, b):
        seen.append([local_rank, a, b])
        if w.native:
            seen[-1] += [dist.get_rank(), dist.get_world_size(), raw_sum(own_device(w))]
        return "a value that run drops"

    if w.rank < members:
        with quiet():
            if w.native:  # a second round needs a store without the keys of the first
                os.environ["MASTER_PORT"] = str(w.ports["again"])
            if w.slurm:  # where Ignite takes the port from the environment only if all five are there
                os.environ.update(
                    RANK=str(w.rank), WORLD_SIZE=str(w.size), LOCAL_RANK=str(w.local_rank), MASTER_ADDR=w.store_host
                )
            if members < w.size:
                os.environ["WORLD_SIZE"] = str(members)
            before = dict(os.environ)
            try:
                with idist.Parallel(backend=w.backend) as parallel:
                    w.expect_none("run", parallel.run(task, 2, b=3))
                    w.expect_raises("run of a function that raises", ValueError, "on purpose", parallel.run, failing)
                    if w.native:
                        dist.barrier()
                    raise KeyError("leaves the block")
            except KeyError:
                seen.append("left")
        wanted = [w.local_rank, 2, 3] + ([w.rank, members, members * (members + 1) / 2] if w.native else [])
        w.expect("what run called, and how the block was left", seen, [wanted, "left"])
        w.expect("the environment is as before", dict(os.environ) == before, True)
        if w.native:
            w.expect("a process group exists after it", dist.is_initialized(), False)
    w.expect_raises(
        "nproc_per_node without a backend", ValueError, "If backend is None", idist.Parallel, nproc_per_node=2
    )
    w.expect_raises("an unknown backend", ValueError, "Unknown backend", idist.Parallel, backend="no-such-backend")
    if w.target != "gloo" or not w.largest or w.rank != w.last or not hasattr(os, "fork"):
        return
    with own_world(w) as folder, quiet():
        kwargs = dict(nproc_per_node=2, start_method="fork", master_addr=w.store_host, master_port=w.ports["Parallel"])
        with idist.Parallel(backend="gloo", **kwargs) as parallel:
            w.expect_none("run", parallel.run(spawned, folder, factor=7))
        expect_spawned(w, "Parallel(nproc_per_node=2)", folder)


@check("teardown", phase="after")
def _(w):
    w.expect("a process group is left", dist.is_initialized(), False)
    w.expect("child processes left", children_of(os.getpid()), [])


# ------------------------------------------------------------------------------------------------------------------
# --payload: how fast is this world, and which rank holds it up
# ------------------------------------------------------------------------------------------------------------------
# Bytes that cross each link per byte of the message, in a world of n: what nccl-tests multiply algbw with for busbw.
OPERATIONS = {"all_reduce": lambda n: 2 * (n - 1) / n, "all_gather": lambda n: (n - 1) / n, "broadcast": lambda n: 1}
WAITING = ("torch/distributed/", "torch/cuda/", "horovod/", "torch_xla/")  # where a rank waits for the others
WORKLOAD_SECONDS = 20.0  # no timing begins that would end later, or after two fifths of what is left


def sizes_up_to(payload, ranks):
    """Three message sizes in bytes, each a whole number of floats per rank; size / 256, size / 16, size."""
    unit = 4 * ranks
    return sorted({max(unit, payload // part // unit * unit) for part in (256, 16, 1)})


def workload(w):
    """Time the collectives at a few sizes, and how long this rank keeps the others waiting.

    Collectives end on all ranks at once, so the time inside one says nothing of who was late. A thread therefore looks
    each millisecond where this rank is: outside a collective, or not running at all, it is the others that wait.
    """
    device, rows = own_device(w), []
    settle = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    sizes = sizes_up_to(w.payload, w.size)
    began, per_byte, left_out = time.monotonic(), {}, []  # seconds of a step per byte, at the last size
    seconds = min(w.share("limit", min(WORKLOAD_SECONDS, 0.4 * (w.timeout - (began - w.began)))))
    share = seconds / (len(sizes) * len(OPERATIONS))
    own, over = [0.0], threading.Event()
    watch = threading.Thread(target=watch_own_part, args=(own, over), daemon=True)
    watch.start()
    for size in sizes:
        whole = torch.zeros(size // 4, device=device)
        fresh, part = torch.zeros_like(whole), torch.zeros(size // 4 // w.size, device=device)
        for name in OPERATIONS:

            def step(number):
                """Seconds of the local copy and of the collective; broadcasts start at each rank in turn."""
                start = time.perf_counter()
                whole.copy_(fresh)
                settle()
                copied = time.perf_counter()
                if name == "all_reduce":
                    idist.all_reduce(whole)
                elif name == "all_gather":
                    idist.all_gather(part)
                else:
                    idist.broadcast(whole, src=number % w.size)
                settle()
                return copied - start, time.perf_counter() - copied

            spent = max(w.share(f"spent-{name}-{size}", time.monotonic() - began))  # ranks must decide alike
            if name not in per_byte:
                step(0)  # which also connects the ranks
            elif spent + per_byte[name] * size > seconds:
                left_out.append(f"{name} of {size} bytes")
                continue
            own[0] = 0.0
            times = [step(0)]
            own_part = own[0]
            first = max(w.share(f"first-{name}-{size}", sum(times[0])))
            per_byte[name] = first / size
            iterations = min(w.iterations, int(share / max(first, 1e-6)) - 1)
            if iterations > 0:  # else that one step is the timing
                own[0] = 0.0
                times = [step(number) for number in range(iterations)]
                own_part = own[0]
            rows.append(
                {
                    "operation": name,
                    "bytes": size,
                    "iterations": len(times),
                    "seconds": median([inside for _, inside in times]),
                    "copy": median([copy for copy, _ in times]),
                    "own": own_part / len(times),
                    "step": sum(map(sum, times)) / len(times),
                }
            )
            if name == "broadcast":
                rows[-1]["from"] = [median([t for _, t in times[r :: w.size]]) for r in range(w.size)]
    over.set()
    watch.join()
    w.measured = {"device": device.type, "rows": rows, "left_out": left_out}


def watch_own_part(own, over, tick=0.001):
    """Add up the seconds in which the main thread was not inside a collective, or nothing of this process ran."""
    main, last = threading.main_thread().ident, time.monotonic()
    while not over.wait(tick):
        now, frame = time.monotonic(), sys._current_frames()[main]
        if not any(place in frame.f_code.co_filename for place in WAITING):
            own[0] += now - last
        elif now - last > 5 * tick:
            own[0] += now - last - tick
        last = now


def median(values):
    """The middle value; NaN of nothing."""
    values = sorted(values)
    return values[len(values) // 2] if values else float("nan")


def summarise_workload(measured, hosts):
    """What the ranks measured ({rank: measured}) as the report has it."""
    size, first = len(measured), measured[0]
    rows = []
    for number, row in enumerate(first["rows"]):
        seconds = {r: m["rows"][number]["seconds"] for r, m in sorted(measured.items())}
        algbw = {r: row["bytes"] / max(t, 1e-9) / 1e9 for r, t in seconds.items()}
        rows.append(
            {
                "operation": row["operation"],
                "bytes": row["bytes"],
                "iterations": row["iterations"],
                "latency_us": {str(r): round(1e6 * t, 1) for r, t in seconds.items()},
                "algbw_gbs": {str(r): round(bw, 4) for r, bw in algbw.items()},
                "busbw_gbs": {str(r): round(bw * OPERATIONS[row["operation"]](size), 4) for r, bw in algbw.items()},
            }
        )
    weight = {r: sum(x["iterations"] for x in m["rows"]) for r, m in measured.items()}
    own = {r: sum(x["own"] * x["iterations"] for x in m["rows"]) / weight[r] for r, m in measured.items()}
    step = max(sum(x["step"] * x["iterations"] for x in m["rows"]) / weight[r] for r, m in measured.items())
    largest = max(x["bytes"] for x in first["rows"])
    copy = {r: median([x["copy"] for x in m["rows"] if x["bytes"] == largest]) for r, m in measured.items()}
    sends = {
        r: min([x["from"][r] for x in m["rows"] if "from" in x][-1] for k, m in measured.items() if k != r)
        for r in measured
    }  # the soonest that another rank has what r sent
    ranks = {
        str(r): {
            "host": hosts[r],
            "own_ms": round(1e3 * own[r], 3),
            "copy_gbs": round(largest / max(copy[r], 1e-9) / 1e9, 2),
            "sends_ms": None if sends[r] != sends[r] else round(1e3 * sends[r], 3),
        }
        for r in sorted(measured)
    }
    return {
        "device": first["device"],
        "rows": rows,
        "left_out": first["left_out"],
        "ranks": ranks,
        "slowest": slowest_rank(own, sends, step, hosts),
    }


def slowest_rank(own, sends, step, hosts):
    """The rank that holds the others up most, and whether it stands out from them."""
    rank = max(own, key=own.get)
    others = median([t for r, t in own.items() if r != rank])
    clear = own[rank] > 1.5 * others and own[rank] - others > 0.2 * step
    text = f"{1e3 * own[rank]:.2f} ms of each step of {1e3 * step:.2f} ms outside the collectives"
    text += f", others {1e3 * others:.2f} ms"
    if not clear and len(own) > 2 and all(t == t for t in sends.values()):
        slow = max(sends, key=sends.get)
        usual = median([t for r, t in sends.items() if r != slow])
        if sends[slow] > 3 * usual and sends[slow] - usual > 1e-3:
            rank, clear = slow, True
            text = f"what it sends takes {1e3 * sends[slow]:.2f} ms to the nearest rank"
            text += f", from others {1e3 * usual:.2f} ms"
    return {"rank": rank, "host": hosts[rank], "stands_out": clear, "text": text}


WORKLOAD = Check("workload", workload, "joined", 2, ["initialize"], None, False)


# ------------------------------------------------------------------------------------------------------------------
# A rank: takes one command at a time from its supervisor, answers each
# ------------------------------------------------------------------------------------------------------------------
def be_rank(commands, events, log, stacks):
    """Life of a rank. `commands` and `events` are file descriptors; everything printed goes to the file `log`."""
    sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    faulthandler.enable(file=sys.stderr)
    faulthandler.register(signal.SIGUSR1, file=open(stacks, "w"), all_threads=False)
    for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        signal.signal(s, signal.SIG_DFL)
    os.environ["TMPDIR"] = tempfile.tempdir = os.path.dirname(log)  # what a helper leaves there goes with the folder
    die_with_parent()
    gc.disable()  # a collection would copy the pages that are shared with the supervisor
    torch.set_num_threads(1)
    world = None
    with os.fdopen(commands, "r") as lines, os.fdopen(events, "w", buffering=1) as out:
        for line in lines:
            command = json.loads(line)
            if command["do"] == "join":
                for name in command["unset"]:
                    os.environ.pop(name, None)
                os.environ.update(command["set"])
                world = World(command["world"])
                continue
            if command["do"] == "quit":
                break
            out.write(json.dumps(answer(world, command)) + "\n")
    os._exit(0)


def answer(world, command):
    """Run one check; what it found, as an event."""
    name, start = command["check"], time.monotonic()
    world.mismatches, world.current, error = [], name, None
    try:
        world.connect()
        CHECKS.get(name, WORKLOAD).function(world)
        world.expect("working folder", working_folder(), world.cwd)
        world.expect("child processes left", listed_children(), [])
    except OutOfStep:
        pass
    except BaseException as e:
        error = {"type": type(e).__name__, "text": shorten(str(e)), "traceback": traceback.format_exc()[-3000:]}
    event = {"check": name, "seconds": time.monotonic() - start, "error": error}
    if world.measured:
        event["measured"], world.measured = world.measured, None
    if error or world.mismatches:
        event["scarce"] = scarce(f"{error['type']}: {error['text']}" if error else "")
    if world.mismatches:
        what, observed, expected = world.mismatches[0]
        event["mismatch"] = {
            "what": what,
            "observed": observed,
            "expected": expected,
            "more": len(world.mismatches) - 1,
        }
    return event


def shorten(text, limit=1500):
    """The beginning and, since nested tracebacks end with the cause, most of the end of a long text."""
    text = text.strip()
    return text if len(text) <= limit else text[: limit // 4] + " … " + text[-3 * limit // 4 :]


def scarce(error=""):
    """Says what there is too little of here, where that is not what the error says, or not whose limit it was; else "".

    Room in the temporary folder below what a whole run leaves there: a full disk is often told as something else,
    torch.multiprocessing reads an empty file and raises EOFError. Of an error that may come from a limit, which.
    """
    folder, found = tempfile.gettempdir(), ""
    with contextlib.suppress(OSError):
        if (free := shutil.disk_usage(folder).free) < ROOM:
            found = f"; {free} {SCARCE} {folder}"
    if any(word in error for word in LIMITED):
        found += limit_reached()
    return found


# What errors say where a limit on memory, processes or threads is reached
LIMITED = ("Resource temporarily unavailable", "can't start new thread", "allocate memory", "MemoryError", "bad_alloc")


def limit_reached():
    """Names the limit that this process is at, of those that such an error may come from; else "" (Linux)."""
    import resource

    with contextlib.suppress(OSError, ValueError, IndexError):
        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        if limit != resource.RLIM_INFINITY and limit - used < max(256 << 20, limit // 10):
            return f"; {used >> 20} MiB of address space are in use, the limit is {limit >> 20} (ulimit -v)"
    for line in read_lines("/proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "pids"):
            folder = f"/sys/fs/cgroup/{controllers}{path}"
            most, now = (read_lines(f"{folder}/pids.{name}") for name in ("max", "current"))
            if most and now and most[0] != "max" and int(now[0]) + 8 >= int(most[0]):
                return f"; its control group may have {most[0]} processes and threads, has {now[0]} now (pids.max)"
    limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    return f"; its user may have {limit} processes and threads (ulimit -u)" if limit != resource.RLIM_INFINITY else ""


def narrow_address_space():
    """Says how little address space processes started here may have, which native code answers with a crash."""
    import resource

    with contextlib.suppress(OSError, ValueError, IndexError):
        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        if limit != resource.RLIM_INFINITY and limit - used < 1 << 30:
            return f"; of {limit >> 20} MiB of address space {used >> 20} are in use when it starts (ulimit -v)"
    return ""


def read_lines(path):
    with contextlib.suppress(OSError):
        return Path(path).read_text().splitlines()
    return []


def working_folder():
    try:
        return os.getcwd()
    except OSError:
        return None  # it was removed


def listed_children():
    """Process ids of this process's children, by the kernel's own list (Linux, where it keeps one)."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return []


def die_with_parent():
    """Linux: the kernel ends this process when its supervisor dies."""
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def processes():
    """pid -> (parent, process group, state, command name) of every process (Linux; elsewhere nothing)."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*/stat") if sys.platform == "linux" else ():
        with contextlib.suppress(OSError, ValueError, IndexError):
            head, _, tail = entry.read_text().rpartition(")")
            fields = tail.split()
            found[int(entry.parent.name)] = (int(fields[1]), int(fields[2]), fields[0], head.partition("(")[2])
    return found


def children_of(pid):
    return sorted(p for p, (parent, _, state, _) in processes().items() if parent == pid and state != "Z")


# ------------------------------------------------------------------------------------------------------------------
# The supervisor's view of a rank: here (a child process), or on another host (through the store)
# ------------------------------------------------------------------------------------------------------------------
class LocalRank:
    """A rank that is a child of this process."""

    open_ends = set()  # descriptors of all ranks, to be closed in the next fork

    def __init__(self, rank, folder, start_method):
        self.rank, self.host, self.exit, self.buffer = rank, socket.gethostname(), None, b""
        self.kills = out_of_memory_kills()
        self.log, self.stacks = f"{folder}/rank{rank}-{time.monotonic_ns()}.log", f"{folder}/rank{rank}.stack"
        command_read, self.commands = os.pipe()
        self.events, event_write = os.pipe()
        if start_method == "fork":
            HOLD.append("fork")
            self.process, self.pid = None, os.fork()
            if self.pid == 0:
                try:
                    with contextlib.suppress(OSError):
                        os.setpgid(0, 0)
                    for fd in (*LocalRank.open_ends, self.commands, self.events):
                        os.close(fd)
                    be_rank(command_read, event_write, self.log, self.stacks)
                finally:
                    os._exit(70)
        else:
            argv = [
                sys.executable,
                os.path.abspath(__file__),
                "--be-rank",
                f"{command_read},{event_write}",
                self.log,
                self.stacks,
            ]
            self.process = subprocess.Popen(
                argv,
                pass_fds=(command_read, event_write),
                stdin=subprocess.DEVNULL,
                stderr=sys.stderr,
                process_group=0 if sys.version_info >= (3, 11) else None,
            )
            self.pid = self.process.pid
        os.close(command_read)
        os.close(event_write)
        LocalRank.open_ends |= {self.commands, self.events}
        if start_method == "fork":
            HOLD.pop()

    def send(self, command):
        with contextlib.suppress(BrokenPipeError):
            os.write(self.commands, json.dumps(command).encode() + b"\n")

    def poll(self, seconds):
        """The next event, or {"died": how} when the process is gone, or None."""
        end = time.monotonic() + seconds
        while b"\n" not in self.buffer:
            if self.exit is not None:
                return {"died": self.exit}
            if not readable(self.events, max(0.0, end - time.monotonic())):
                if self.exit is None and self.reap(0.0) and not readable(self.events, 0.0):
                    return {"died": self.exit}  # a child of the rank may hold the pipe open
                if not readable(self.events, 0.0):
                    return None
            chunk = os.read(self.events, 1 << 16)
            if not chunk:
                self.reap(1.0)
                return {"died": self.exit}
            self.buffer += chunk
        line, _, self.buffer = self.buffer.partition(b"\n")
        return json.loads(line)

    def reap(self, seconds):
        """Wait for the end of the process; how it ended as text, or None if it has not."""
        end = time.monotonic() + seconds
        while self.exit is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                self.exit = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
                if code == -signal.SIGKILL and out_of_memory_kills() > self.kills:
                    self.exit += OUT_OF_MEMORY
                elif -code in CRASHES:
                    self.exit += narrow_address_space()
                if self.process is not None:
                    self.process.returncode = code
            elif time.monotonic() > end:
                break
            else:
                time.sleep(0.002)
        return self.exit

    def ask(self):
        """Have a rank that does not answer write down its Python stack, for `look`."""
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGUSR1)

    def look(self, end):
        """State and Python stack of a rank that was asked, waiting for the stack until `end` at most."""
        state = processes().get(self.pid, (0, 0, "?", ""))[2]
        if state in "Tt":
            return {"state": "stopped (SIGSTOP)", "stack": []}
        if state == "Z":
            return {"state": self.reap(1.0) or "ended", "stack": []}
        text = ""
        while not text.strip() and time.monotonic() < end:
            time.sleep(0.02)
            with contextlib.suppress(OSError):
                text = Path(self.stacks).read_text()
        time.sleep(0.02)
        with contextlib.suppress(OSError):
            text = Path(self.stacks).read_text()
        return {"state": "running" if state == "R" else "sleeping", "stack": read_stack(text)}

    def kill(self):
        for target in (lambda: os.killpg(self.pid, signal.SIGKILL), lambda: os.kill(self.pid, signal.SIGKILL)):
            with contextlib.suppress(OSError):
                target()
        self.reap(5.0)
        self.close()

    def close(self):
        for fd in (self.commands, self.events):
            if fd in LocalRank.open_ends:
                LocalRank.open_ends.discard(fd)
                os.close(fd)

    def tail(self):
        """Last lines that the rank printed."""
        with contextlib.suppress(OSError):
            text = Path(self.log).read_text(errors="replace").strip()
            crash = text.rfind(CRASHED)
            return text[crash:][:1500] if crash >= 0 else text[-1500:]
        return ""


CRASHED = "Fatal Python error"  # how the report of faulthandler begins, with the innermost frame first
CRASHES = (signal.SIGABRT, signal.SIGSEGV, getattr(signal, "SIGBUS", None))
OUT_OF_MEMORY = ", and the kernel has just killed a process for want of memory"


def out_of_memory_kills():
    """How many processes the kernel has killed for want of memory since it started (Linux; elsewhere 0)."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/vmstat").read_text().partition("\noom_kill ")[2].split()[0])
    return 0


def readable(descriptor, seconds):
    """Whether there is something to read, or the other end is closed, within the time."""
    poll = select.poll()  # select() cannot take descriptors above 1023
    poll.register(descriptor, select.POLLIN | select.POLLHUP)
    return bool(poll.poll(seconds * 1000))


def read_stack(text):
    """Frames of a faulthandler dump as "file:line function", innermost first, without the rank loop of this file."""
    frames = []
    for line in text.splitlines():
        line = line.strip()
        if line.startswith('File "'):
            path, _, rest = line[6:].partition('", line ')
            number, _, function = rest.partition(" in ")
            if function in ("answer", "be_rank"):
                break
            frames.append(f"{path}:{number} {function}")
    return frames[:20]


SUPERVISOR = "its supervisor"  # how all begins that is said of a process which should have spoken for its rank


def waits_in_collective(stack):
    """Whether the stack ends inside torch.distributed, that is, waits for the other ranks."""
    return any("torch/distributed/" in frame or frame.endswith((" _wait", " comes")) for frame in stack[:4])


class RemoteRank:
    """A rank whose supervisor is another process, met through the store."""

    def __init__(self, rank, hello, store):
        self.rank, self.host, self.store, self.sent, self.exit = rank, hello["host"], store, 0, None
        self.hello, self.looked = hello, time.monotonic()

    def send(self, command):
        self.store.set(f"command/{self.rank}/{self.sent}", json.dumps(command))
        self.sent += 1

    def poll(self, seconds):
        key = f"event/{self.rank}/{self.sent - 1}"
        end = time.monotonic() + seconds
        while not self.store.check([key]):
            if time.monotonic() - self.looked > 0.5:
                self.looked = time.monotonic()
                if state_of(self.hello) == "gone" and not self.store.check([key]):
                    self.exit = f"{SUPERVISOR}, pid {self.hello['pid']}, is gone"
                    return {"died": self.exit}
            if time.monotonic() >= end:
                return None
            time.sleep(0.005)
        event = json.loads(self.store.get(key))
        self.exit = event.get("died", self.exit)
        return event

    def ask(self):
        self.store.set(f"look/{self.rank}", "1")

    def look(self, end):
        while not self.store.check([f"seen/{self.rank}"]):
            if time.monotonic() > end or state_of(self.hello) in ("gone", "stopped"):
                return {"state": "lost", "supervisor": state_of(self.hello), "stack": []}
            time.sleep(0.02)
        return json.loads(self.store.get(f"seen/{self.rank}"))

    def kill(self):
        with contextlib.suppress(Exception):
            self.store.set(f"kill/{self.rank}", "1")

    def reap(self, seconds):
        key, end = f"ended/{self.rank}", time.monotonic() + seconds
        while time.monotonic() < end:
            if self.store.check([key]):
                self.exit = self.store.get(key).decode()
                return self.exit
            time.sleep(0.01)
        return None

    def tail(self):
        return ""


def serve_remote(store, launch, own, zero, deadline):
    """Supervisor of a rank above 0: pass commands down and events up until told to end; the exit code to use.

    `zero` is what rank 0's supervisor said of itself. Raises Problem when that is gone, stopped or silent.
    """
    me, number, pending, end, looked = launch["rank"], 0, False, deadline + LATE, time.monotonic()
    try:
        while time.monotonic() < end:
            end = min(end, time.monotonic() + 8) if STOP and end > deadline else end
            if store.check(["over"]):
                return int(store.get("over"))
            if time.monotonic() - looked > 0.5:
                looked = time.monotonic()
                if state_of(zero) == "gone" and not store.check(["over"]):
                    break
            if store.check([f"kill/{me}"]):
                own.kill()
                store.set(f"ended/{me}", own.exit or "killed")
            if store.check([f"look/{me}"]) and not store.check([f"seen/{me}"]):
                own.ask()
                store.set(f"seen/{me}", json.dumps(own.look(time.monotonic() + LOOK / 2)))
            if not pending and store.check([f"command/{me}/{number}"]):
                command = json.loads(store.get(f"command/{me}/{number}"))
                own.send(command)
                number += 1
                pending = command["do"] == "check"
                if command["do"] == "quit":
                    store.set(f"ended/{me}", own.reap(5.0) or "still running")
                continue
            if pending and (event := own.poll(0.02)) is not None:
                event["tail"] = own.tail() if "died" in event else ""
                store.set(f"event/{me}/{number - 1}", json.dumps(event))
                pending = False
            elif not pending:
                time.sleep(0.005)
        if STOP:
            return 128 + STOP[-1]
        raise rank_0_lost(launch, zero)
    except (RuntimeError, dist.DistError) as e:
        raise rank_0_lost(launch, zero, str(e)) from None
    finally:
        own.kill()


# ------------------------------------------------------------------------------------------------------------------
# The supervisor: one run of one target
# ------------------------------------------------------------------------------------------------------------------
def plan_for(world, only):
    """The checks of a run, in order: (check, reason to skip it or None)."""
    order = {"before": 0, "joined": 1, "after": 2}
    names = None
    if only:
        names = set(only) | {"initialize", "finalize", "teardown"}
        while True:
            more = {u for n in names for u in CHECKS[n].uses} - names
            if not more:
                break
            names |= more
    for c in sorted(CHECKS.values(), key=lambda c: order[c.phase]):
        if c.id == "finalize" and world.get("payload"):
            yield WORKLOAD, reason_to_skip(WORKLOAD, world)
        if names is not None and c.id not in names:
            continue
        yield c, reason_to_skip(c, world)


def reason_to_skip(c, world):
    target, size = world["target"], world["size"]
    if c.since and not hasattr(idist, c.id) and release(ignite.__version__) < release(c.since):
        return f"came with Ignite {c.since}"
    if size < c.needs:
        return f"needs {c.needs} or more processes"
    if c.native and target not in NATIVE:
        return "needs a process group of torch"
    if c.id == "spawn" and target != "gloo":
        return "checked with gloo"
    if c.id == "spawn" and not world["largest"]:
        return "checked with more processes"
    if c.id == "set_local_rank" and world["slurm"]:
        return "SLURM_LOCALID decides there"
    return None


def release(version):
    """Release numbers of a version, e.g. (0, 5, 5)."""
    digits = []
    for part in version.split("+")[0].split(".")[:3]:
        number = "".join(ch for ch in part if ch.isdigit()) if part[:1].isdigit() else ""
        digits.append(int(number) if number else 0)
    return tuple(digits)


NO_TIME = "no time was left"
COMING_UP = ("process_group", "initialize")  # without these there is no world to check


class Run:
    """One target with one world: hands out the checks and gathers a report entry."""

    def __init__(self, target, size, launcher):
        self.entry = {
            "target": target,
            "backend": None if target == "serial" else target,
            "world_size": size,
            "launcher": launcher,
            "status": "pass",
            "seconds": 0.0,
            "checks": [],
        }
        self.broken = None  # why no further check can run

    def conduct(self, ranks, plan, deadline):
        start, failed = time.monotonic(), set()
        for c, skip in plan:
            skip = skip or self.broken or next((f"needs {u}, which failed" for u in c.uses if u in failed), None)
            if skip:
                self.entry["checks"].append({"id": c.id, "status": "skip", "reason": skip})
                if skip.startswith("needs ") and "failed" in skip:
                    failed.add(c.id)
                continue
            for member in ranks:
                member.send({"do": "check", "check": c.id})
            result = self.collect(c.id, ranks, deadline)
            self.entry["checks"].append(result)
            if result["status"] != "pass":
                failed.add(c.id)
                if c.id in COMING_UP and not self.broken:
                    self.broken = "the world did not come up"
        self.end(ranks, failed)
        self.entry["seconds"] = round(time.monotonic() - start, 3)
        worst = {x["status"] for x in self.entry["checks"]}
        if self.broken == NO_TIME:
            worst.add("timeout")
        self.entry["status"] = next((s for s in ("timeout", "error", "fail") if s in worst), "pass")
        return self.entry

    def collect(self, name, ranks, deadline):
        start, events, limit = time.monotonic(), {}, deadline
        while len(events) < len(ranks):
            waiting = [m for m in ranks if m.rank not in events]
            share = max(0.001, min(0.05, limit - time.monotonic())) / len(waiting)
            for member in waiting:
                event = member.poll(share if len(waiting) > 1 else share)
                if event is not None:
                    events[member.rank] = event
                    if "died" in event or event.get("error") or event.get("mismatch"):
                        limit = min(limit, time.monotonic() + GRACE)
            if len(events) < len(ranks) and (time.monotonic() >= limit or STOP):
                break
        late = time.monotonic() - deadline - SPARE
        if late > 2 and (len(events) < len(ranks) or any("died" in e for e in events.values())):
            raise stood_still(late)
        missing = [m for m in ranks if m.rank not in events]
        for member in missing:
            member.ask()
        end = time.monotonic() + LOOK
        silent = {m.rank: m.look(end) for m in missing}
        measured = {r: e["measured"] for r, e in events.items() if e.get("measured")}
        if measured and len(measured) == len(ranks):
            self.entry["workload"] = summarise_workload(measured, {m.rank: m.host for m in ranks})
        return self.judge(name, ranks, events, silent, time.monotonic() - start, time.monotonic() >= deadline)

    def judge(self, name, ranks, events, silent, seconds, late):
        """One check's entry: who is to blame, what was expected and seen."""
        hosts = {m.rank: m.host for m in ranks}
        result = {"id": name, "status": "pass", "seconds": round(seconds, 4)}
        died = {r: e["died"] for r, e in events.items() if "died" in e}
        wrong = {r: e["mismatch"] for r, e in events.items() if e.get("mismatch")}
        raised = {r: e["error"] for r, e in events.items() if e.get("error")}
        if not (died or wrong or raised or silent):
            return result
        observed = {r: f"died: {how}" for r, how in died.items()}
        observed.update({r: f"{m['what']}: {m['observed']}" for r, m in wrong.items()})
        observed.update({r: f"raised {e['type']}: {e['text']}" for r, e in raised.items() if r not in wrong})
        observed.update({r: observed[r] + events[r]["scarce"] for r in set(wrong) | set(raised)})
        for r, seen in silent.items():
            waits = waits_in_collective(seen["stack"])
            where = f" at {seen['stack'][0]}" if seen["stack"] else ""
            state = f"does not return ({seen['state']})"
            if seen["state"] == "lost":
                state = SUPERVISOR + {"gone": " is gone", "stopped": " is stopped (SIGSTOP)"}.get(
                    seen["supervisor"], " does not answer"
                )
            observed[r] = ("waits for the other ranks" if waits else state) + where
        echoes = {r for r, e in raised.items() if is_echo(e["text"]) and r not in wrong}
        waiting = {r for r, seen in silent.items() if waits_in_collective(seen["stack"])}
        guilty = set(died) | set(wrong) | set(raised) - echoes | set(silent) - waiting
        guilty = guilty or echoes | waiting
        result["status"] = "timeout" if silent and late else "error" if died and not wrong else "fail"
        first = next(iter(wrong.values()), None)
        result["expected"] = f"{first['what']}: {first['expected']}" if first else "the check returns on every rank"
        result["observed"] = {str(r): observed[r] for r in sorted(observed)}
        result["ranks"] = sorted(guilty)
        result["hosts"] = {str(r): hosts[r] for r in sorted(guilty)}
        stacks = {str(r): seen["stack"] for r, seen in sorted(silent.items()) if seen["stack"]}
        stacks.update({str(r): e["traceback"].strip().splitlines() for r, e in raised.items()})
        if stacks:
            result["stacks"] = stacks
        tails = {str(m.rank): m.tail() for m in ranks if m.rank in died and m.tail()}
        if tails:
            result["printed"] = tails
        who = ", ".join(f"rank {r} on {hosts[r]}" for r in sorted(guilty))
        result["hint"] = explain(name, result, raised, who)
        result["see"] = see_for(name, raised)
        if silent or died:
            self.broken = f"the run ended in {name}"
        return result

    def end(self, ranks, failed):
        """Let the ranks go; every one must end by itself, with code 0."""
        stuck = {}
        for member in ranks:
            if not self.broken or "ended" not in str(self.broken):
                member.send({"do": "quit"})
        for member in ranks:
            how = member.reap(3.0) if not (self.broken and "ended" in self.broken) else member.exit
            if how not in ("exited with code 0", None) or (how is None and not self.broken):
                stuck[member.rank] = how or "did not end when told to"
            member.kill()
        entry = next((x for x in self.entry["checks"] if x["id"] == "teardown"), None)
        if entry and stuck and not self.broken:
            entry.update(
                status="fail",
                expected="every rank ends by itself with code 0",
                observed={str(r): how for r, how in stuck.items()},
                ranks=sorted(stuck),
                hint="a rank could not end",
                see=API + "finalize",
            )


ECHOES = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Timed out waiting",
    "Broken pipe",
    "remote worker crashing",
    "Application timeout caused pair closure",
)


def is_echo(text):
    """Whether an error only says that another rank is gone or late."""
    return any(e in text for e in ECHOES)


def explain(name, result, raised, who):
    if result["status"] == "timeout":
        below = "; its stack is below" if any(str(r) in result.get("stacks", {}) for r in result["ranks"]) else ""
        return f"{who} did not come out of {name} before the deadline{below}"
    if result["status"] == "error":
        return f"{who} died in {name}; the other ranks are victims"
    if raised:
        return f"{name} raised on {who}"
    return f"{name} gave a wrong value on {who}"


def see_for(name, raised):
    if name in COMING_UP:
        text = " ".join(e["text"] for e in raised.values())
        for pattern, key in SYMPTOMS.items():
            if pattern in text:
                return TROUBLE + ANCHORS[key]
    if name == WORKLOAD.id:
        return "references/workflows.md#how-fast-is-this-world"
    related = {
        "ddp_gradients": "auto_model",
        "metric_reduction": "all_reduce",
        "checkpoint_once": "one_rank_only",
        "teardown": "finalize",
        "process_group": "initialize",
        "shared_memory": "auto_dataloader",
    }
    return API + related.get(name, name).lower()


SYMPTOMS = {  # text in an error of initialize -> key of ANCHORS
    "EADDRINUSE": "port",
    "connectFullMesh": "network",
    "client socket has timed out": "missing",
    "define env variables": "partial",
    "SLURM distributed configuration": "slurm",
    "Connection closed by peer": "died",
    "Connection reset by peer": "died",
    "Timed out waiting": "froze",
    "Backend should be one of": "backend",
}


# ------------------------------------------------------------------------------------------------------------------
# The machine: who launched this, what is there, what would be used
# ------------------------------------------------------------------------------------------------------------------
class Problem(Exception):
    """Why no world can come up: an id, the exit code, one line of text, what was seen, the command that mends it.

    `known` says what a rank above 0 does with it: "to me", tell rank 0, which reports it; "not to rank 0", which it
    cannot be told, so this rank reports; "to all", since rank 0 finds it too and reports.
    """

    def __init__(self, identifier, exit_code, text, *, evidence=(), fix="", see="", known="to me"):
        super().__init__(text)
        self.exit_code, self.known = exit_code, known
        self.finding = {"id": identifier, "text": text, "evidence": list(evidence), "fix": fix, "see": see}


def number(environ, name, low=0, high=2**31, default=None):
    """The variable as an int within the bounds, or Problem; the default where it is not set."""
    text = environ.get(name)
    if text is None and default is not None:
        return default
    if text is None or not text.strip().isdigit() or not low <= int(text) <= high:
        raise Problem(
            "impossible-variables",
            2,
            f"{name}={text} is no number from {low} to {high}",
            fix=f"unset {name}, or mend it",
            evidence=[f"{name}={text}"],
            see=TROUBLE + ANCHORS["slurm" if name.startswith("SLURM") else "partial"],
        )
    return int(text)


def detect_launch(environ, choice="auto"):
    """Who this process is in a world that a launcher started, or None for a plain run.

    Returns a dict with kind ("torchrun", "slurm", "horovodrun" or "env"), rank, size, local_rank, and where the
    launcher says so local_size and node. Raises Problem where the variables cannot be the work of one launcher.
    """
    if choice == "none":
        return None
    three = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    found = [n for n in three if n in environ]
    if choice == "slurm" or (choice == "auto" and "SLURM_JOB_ID" in environ and "TORCHELASTIC_RUN_ID" not in environ):
        return detect_slurm(environ, choice)
    if not found and "HOROVOD_RANK" in environ:
        return detect_horovodrun(environ)
    if not found:
        refuse_mpirun(environ)
    if not found and choice == "auto":
        return None
    if len(found) < 3:
        missing = [n for n in three if n not in environ]
        raise Problem(
            "partial-variables",
            2,
            f"{', '.join(found) or 'none'} set but not {', '.join(missing)}: no launcher does that, Ignite refuses it",
            evidence=[f"{n}={environ[n]}" for n in found],
            fix=(f"unset {' '.join(found)}" if found else "start with torchrun")
            + (f"; for a world by hand, set {missing[0]} too" if len(found) == 2 else ""),
            see=TROUBLE + ANCHORS["partial"],
        )
    try:
        numbers = {n: int(environ[n]) for n in three}
    except ValueError:
        numbers = {}
    if not numbers or not 0 <= numbers["RANK"] < numbers["WORLD_SIZE"] or numbers["LOCAL_RANK"] < 0:
        seen = " ".join(f"{n}={environ[n]}" for n in three)
        raise Problem(
            "impossible-variables",
            2,
            f"{seen} do not make a world",
            evidence=[seen],
            fix="unset RANK WORLD_SIZE LOCAL_RANK",
            see=TROUBLE + ANCHORS["partial"],
        )
    launch = {
        "kind": "torchrun" if "TORCHELASTIC_RUN_ID" in environ else "env",
        "rank": numbers["RANK"],
        "size": numbers["WORLD_SIZE"],
        "local_rank": numbers["LOCAL_RANK"],
    }
    if launch["kind"] == "torchrun":
        launch.update(node=number(environ, "GROUP_RANK", default=0))
        if "LOCAL_WORLD_SIZE" in environ:
            launch.update(local_size=number(environ, "LOCAL_WORLD_SIZE", 1))
    launch["host"] = environ.get("MASTER_ADDR") or "127.0.0.1"
    launch["port"] = number(environ, "MASTER_PORT", 1, 65535, default=15000)
    return launch


def detect_slurm(environ, choice):
    """The same for SLURM; a job's variables outside a step of it are left-overs."""
    needed = (
        "SLURM_JOB_ID",
        "SLURM_PROCID",
        "SLURM_LOCALID",
        "SLURM_NTASKS",
        "SLURM_JOB_NODELIST",
        "SLURM_JOB_NUM_NODES",
    )
    missing = [n for n in needed if n not in environ]
    outside = "SLURM_STEP_ID" not in environ or not started_by("slurmstepd")
    if missing or (outside and choice == "auto"):
        names = [n for n in environ if n.startswith("SLURM_")]
        why = f"{missing[0]} is missing" if missing else "srun did not start this process"
        raise Problem(
            "stale-slurm",
            4,
            f"SLURM_JOB_ID={environ.get('SLURM_JOB_ID')} is set but {why}: Ignite takes it for a SLURM task and waits",
            evidence=[f"{n}={environ[n]}" for n in needed if n in environ],
            fix="start with srun, or for a plain run: unset " + " ".join(sorted(names)),
            see=TROUBLE + ANCHORS["slurm"],
        )
    launch = {
        "kind": "slurm",
        "rank": number(environ, "SLURM_PROCID"),
        "size": number(environ, "SLURM_NTASKS", 1),
        "local_rank": number(environ, "SLURM_LOCALID"),
        "node": number(environ, "SLURM_NODEID", default=0),
    }
    job = str(number(environ, "SLURM_JOB_ID"))
    if all(n in environ for n in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")):
        launch.update(host=environ["MASTER_ADDR"], port=number(environ, "MASTER_PORT", 1, 65535))
    else:  # as Ignite derives them
        launch.update(host=slurm_hosts(environ["SLURM_JOB_NODELIST"])[0], port=15000 + int(job[-4:]))
    return launch


def detect_horovodrun(environ):
    """The same for horovodrun; the supervisors meet next to its rendezvous, on rank 0's host."""
    size, local_size = number(environ, "HOROVOD_SIZE", 1), number(environ, "HOROVOD_LOCAL_SIZE", 1)
    away = environ.get("HOROVOD_GLOO_RENDEZVOUS_ADDR") if local_size < size else None
    return {
        "kind": "horovodrun",
        "rank": number(environ, "HOROVOD_RANK"),
        "size": size,
        "local_rank": number(environ, "HOROVOD_LOCAL_RANK"),
        "local_size": local_size,
        "node": number(environ, "HOROVOD_CROSS_RANK", default=0),
        "host": environ.get("MASTER_ADDR") or away or "127.0.0.1",
        "port": number(environ, "MASTER_PORT", default=number(environ, "HOROVOD_GLOO_RENDEZVOUS_PORT") + 1),
    }


def started_by(*names):
    """Whether an ancestor is called so; unknown (a process namespace of its own, no /proc) counts as yes."""
    table, pid = processes(), os.getpid()
    while pid in table and pid > 1:
        pid = table[pid][0]
        if table.get(pid, (0, 0, "", ""))[3].startswith(names):
            return True
    return not table or pid == 0


# What the two families of mpirun call rank, world size, local rank
MPI_VARIABLES = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
)
MPI_STARTERS = ("mpirun", "mpiexec", "orte", "prte", "hydra")


def refuse_mpirun(environ):
    """Raise Problem in a process of an mpirun that made a world of several, or where its variables are left over."""
    for rank, size, local_rank in MPI_VARIABLES:
        if rank not in environ or number(environ, size, default=1) < 2:
            continue
        if not started_by(*MPI_STARTERS):
            raise Problem(
                "stale-mpirun",
                4,
                f"{rank} is set, but no mpirun started this process: left over",
                evidence=[f"{size}={environ[size]}"],
                fix="unset " + " ".join(sorted(n for n in environ if n.startswith(rank.partition("_")[0] + "_"))),
                see="references/workflows.md#mpirun",
            )
        raise Problem(
            "mpirun-without-rank",
            4,
            "started by mpirun, which sets no RANK, WORLD_SIZE, LOCAL_RANK: every process would be a world of its own",
            evidence=[f"{size}={environ[size]}"],
            fix=f"RANK=${rank} WORLD_SIZE=${size} LOCAL_RANK=${local_rank} in a wrapper script",
            see="references/workflows.md#mpirun",
        )


def slurm_hosts(nodelist):
    """Names of a SLURM node list; the first alone where scontrol is not there to expand it."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command = ["scontrol", "show", "hostnames", nodelist]
        names = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.split()
        if names:
            return names
    head, _, tail = nodelist.partition("[")
    first = tail.split("]")[0].split(",")[0].split("-")[0]
    return [(head + first).split(",")[0]]


def backends():
    """Each backend: available, or why not."""
    cuda = torch.cuda.is_available()
    found = {}
    for name in NATIVE:
        built = dist.is_available() and getattr(dist, f"is_{name}_available")()
        found[name] = {"available": bool(built and (name != "nccl" or cuda))}
        if not built:
            found[name]["reason"] = f"this torch build has no {name}"
        elif not found[name]["available"]:
            found[name]["reason"] = "no CUDA device"
    for name, module in (("horovod", "horovod.torch"), ("xla-tpu", "torch_xla.core.xla_model")):
        found[name] = {"available": importable(module)}
        if not found[name]["available"]:
            package = module.split(".")[0]
            there = importlib.util.find_spec(package) is not None
            found[name]["reason"] = f"{module} cannot be imported" if there else f"{package} is not installed"
    return found


def loopback_name():
    """Name of the loopback interface, or None."""
    names = [name for _, name in socket.if_nameindex()] if hasattr(socket, "if_nameindex") else []
    return next((n for n in ("lo", "lo0") if n in names), None)


def resolve(name):
    try:
        return sorted({info[4][0] for info in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)})
    except OSError as e:
        return [f"does not resolve: {e}"]


def environment(launch=None, full=False):
    """What the report says of the machine; `full` adds what --env shows."""
    host = socket.gethostname()
    seen = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "ignite": ignite.__version__,
        "system": f"{platform.system()} {platform.release()}",
        "host": host,
        "backends": backends(),
    }
    if full:
        seen["cuda_devices"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        seen.update(machine(launch))
    return seen


def machine(launch):
    """What --env shows besides the libraries: nothing here needs torch."""
    host = socket.gethostname()
    seen = {"python": platform.python_version(), "host": host, "host_resolves_to": resolve(host)}
    seen["cpus"] = os.cpu_count()
    seen["launcher"] = launch or "none: a plain run"
    prefixes = ("SLURM_", "TORCHELASTIC_", "OMPI_COMM_", "GLOO_", "NCCL_", "TORCH_NCCL_", "HOROVOD_", "PJRT_", "CUDA_")
    names = (*LAUNCH_VARIABLES, "OMP_NUM_THREADS")
    seen["variables"] = {k: v for k, v in sorted(os.environ.items()) if k in names or k.startswith(prefixes)}
    seen["would_meet_at"] = f"{launch['host']}:{launch['port']}" if launch else "127.0.0.1, a free port"
    seen["interfaces"] = own_addresses()
    with contextlib.suppress(OSError):
        space = os.statvfs("/dev/shm")
        seen["dev_shm_free_mib"] = space.f_bavail * space.f_frsize >> 20
    return seen


# Anchors of references/troubleshooting.md, by what went wrong.
ANCHORS = {
    "partial": "pytorch-distributed-configuration-should-define-env-variables-rank-local_rank-world_size",
    "slurm": "slurm-distributed-configuration-is-missing--in-env-variables",
    "port": "the-server-socket-has-failed-to-listen-on-any-local-network-address--eaddrinuse",
    "network": "gloo-connectfullmesh-failed-with-",
    "missing": "the-client-socket-has-timed-out-after-ms-while-trying-to-connect-to-",
    "backend": "unknown-backend--available-backends-",
    "absent": "timed-out-after--seconds-waiting-for-clients--clients-joined",
    "interface": "unable-to-find-address-for-",
    "twice": "two-launchers-at-once",
    "inconsistent": "environment-variable-defined-for-pytorch-distributed-context-is-inconsistent-with-equivalent-"
    "slurm-env-variable---vs-",
    "cuda": "nccl-backend-is-required-but-no-cuda-capable-devices",
    "died": "connection-closed-by-peer",
    "froze": "timed-out-waiting-ms-for-recv-operation-to-complete",
}


# ------------------------------------------------------------------------------------------------------------------
# Conducting: local worlds, or the world that a launcher started
# ------------------------------------------------------------------------------------------------------------------
def targets_of(args, launch):
    """(target, world size) of each run."""
    if launch:
        target = (
            args.targets[0]
            if args.targets
            else "horovod"
            if launch["kind"] == "horovodrun"
            else (
                "nccl"
                if backends()["nccl"]["available"] and torch.cuda.device_count() > launch["local_rank"]
                else "gloo"
            )
        )
        return [(target, launch["size"])]
    runs = []
    for target in args.targets or ["serial", "gloo"]:
        runs.append((target, 1))
        if target in NATIVE and args.nproc > 1:
            runs.append((target, args.nproc))
    return runs


def raise_file_limit(ranks):
    """Each rank costs a few descriptors here: take what the hard limit allows, or Problem."""
    import resource

    needed, (soft, hard) = 96 + 8 * ranks, resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < needed:
        with contextlib.suppress(OSError, ValueError):
            soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft < needed:
        raise Problem(
            "open-files",
            4,
            f"{ranks} ranks need {needed} open files here, the limit is {hard}",
            evidence=[f"ulimit -Hn: {hard}"],
            fix=f"ulimit -n {needed}, or fewer ranks",
        )


def start_method(choice):
    """fork where it is safe: Linux, and no CUDA context in this process."""
    if choice != "auto":
        return choice
    return "fork" if sys.platform == "linux" and not torch.cuda.is_initialized() else "spawn"


def world_spec(target, launch, folder, deadline, **more):
    spec = {
        "target": target,
        "folder": folder,
        "timeout": max(1.0, deadline - time.monotonic()),
        "cwd": working_folder(),
        "largest": True,
        "launched": bool(launch),
        "slurm": bool(launch and launch["kind"] == "slurm"),
        "store_prefix": "",
        "store_host": "127.0.0.1",
    }
    spec.update(more)
    return spec


def loopback_store(timeout):
    """A TCPStore that listens on loopback only, on a port that the kernel chose."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(256)
    port = listener.getsockname()[1]
    store = dist.TCPStore(
        "127.0.0.1",
        port,
        None,
        True,
        timedelta(seconds=timeout),
        wait_for_workers=False,
        master_listen_fd=listener.fileno(),
    )
    listener.detach()
    return store


def launch_names(environ):
    return [n for n in environ if n in LAUNCH_VARIABLES or n.startswith(("SLURM_", "TORCHELASTIC_", "OMPI_", "PMI"))]


def conduct_local(args, folder, deadline, entries):
    """Runs in worlds that this process starts itself; their report entries are appended as they begin."""
    method, runs = start_method(args.start_method), targets_of(args, None)
    if any(size > 1 and target in NATIVE for target, size in runs) and method == "fork":
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{folder}/inductor")  # which the import makes
        with contextlib.suppress(Exception):
            import torch._dynamo  # noqa: F401  DDP imports it: here once, instead of in every rank
    raise_file_limit(max((size for _, size in runs), default=1))
    members = []
    try:
        for _, size in runs:  # all forks before the store, whose server is a thread
            members.append([])
            for rank in range(size):
                members[-1].append(LocalRank(rank, folder, method))
                if STOP:
                    raise Interrupted
        for (target, size), ranks in zip(runs, members):
            run = Run(target, size, method)
            entries.append(run.entry)
            if time.monotonic() >= deadline:
                run.broken = NO_TIME
                spec = {"target": target, "size": size, "slurm": False, "largest": True}
                run.conduct(ranks, list(plan_for(spec, args.only)), deadline)
                continue
            stores = {n: loopback_store(max(1.0, deadline - time.monotonic()) + 5) for n in STORES}
            ports = {name: store.port for name, store in stores.items()}
            for member in ranks:
                rank = member.rank
                variables = {}
                if target != "serial":
                    variables = {
                        "MASTER_ADDR": "127.0.0.1",
                        "MASTER_PORT": str(ports["join"]),
                        "TORCHELASTIC_USE_AGENT_STORE": "True",
                    }
                    if loopback_name():
                        variables["GLOO_SOCKET_IFNAME"] = loopback_name()
                if size > 1:
                    variables.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank))
                spec = world_spec(
                    target,
                    None,
                    folder,
                    deadline,
                    rank=rank,
                    size=size,
                    local_rank=rank,
                    local_size=size,
                    node=0,
                    nnodes=1,
                    ports=ports,
                    payload=args.payload,
                    iterations=args.iterations,
                    largest=size == max(n for t, n in runs if t == target),
                )
                member.send({"do": "join", "set": variables, "unset": launch_names(os.environ), "world": spec})
            run.conduct(ranks, list(plan_for(spec, args.only)), deadline)
    finally:
        for member in (m for ranks in members for m in ranks):
            member.kill()


def conduct_launched(args, launch, folder, end, deadline):
    """The one run of a launched world, which stops at `end`. Returns its entry on rank 0; elsewhere an exit code."""
    own, met = LocalRank(launch["rank"], folder, start_method(args.start_method)), {"turn": threading.Lock()}
    watch = (args, launch, folder, deadline, own, met)
    threading.Thread(target=end_when_cut_off, args=watch, daemon=True).start()
    try:
        store = meet(launch, end)
        if store.add(f"claims/{launch['rank']}", 1) > 1:
            twice = f"rank {launch['rank']} came twice, the second time from {socket.gethostname()}, pid {os.getpid()}"
            store.set("twice", twice)
            raise rank_twice(twice, launch)
        store.set(f"hello/{launch['rank']}", json.dumps(about_me(launch)))
        if launch["rank"] > 0:
            met["zero"] = await_rank_0(store, launch, end)
            code = serve_remote(store, launch, own, met["zero"], deadline)
            with contextlib.suppress(Exception):
                store.set(f"bye/{launch['rank']}", "1")
            return code
        hellos = gather_hellos(store, launch, end)
        return lead(args, launch, folder, end, deadline, store, own, hellos)
    finally:
        met["turn"].acquire()  # to report: whoever has it; the other thread is ended with the process
        own.kill()


def end_when_cut_off(args, launch, folder, deadline, own, met):
    """A thread: report and end when the main thread is stuck in the store, as it is after the network broke."""
    planned = deadline + LATE + 0.2
    time.sleep(max(0.0, planned - time.monotonic()))
    if not met["turn"].acquire(blocking=False):
        return  # the main thread is on its way
    late, zero = time.monotonic() - planned, met.get("zero")
    problem = rank_0_lost(launch, zero) if zero else store_is_silent(launch)
    if late > 2:
        problem = stood_still(late)
    own.kill()
    shutil.rmtree(folder, ignore_errors=True)
    report = make_report([], 5, {}, [problem.finding])
    leave(deliver(args, of_rank(launch, report)))


def stood_still(late):
    """Problem: this process did not run for a while, so that nothing which it sees of the others means anything."""
    return Problem(
        "stood-still",
        5,
        f"the supervisor on {socket.gethostname()}, pid {os.getpid()}, stood still until {late:.0f} s after the "
        "deadline",
        evidence=["it was stopped (SIGSTOP), or the machine slept"],
        fix="look for who stopped it, then run again",
        see=TROUBLE + ANCHORS["froze"],
    )


def store_is_silent(launch):
    """Problem: something takes connections where the store should be, and says nothing."""
    host, port = launch["host"], launch["port"]
    own = any(map(is_own_address, resolve(host)))
    return Problem(
        "no-rendezvous",
        4,
        f"rank {launch['rank']} on {socket.gethostname()} gets no answer from the store at {host}:{port}: another "
        "program has the port, or its process is stopped, or the network to it broke",
        evidence=who_listens(port) if own else [],
        fix=f"export MASTER_PORT={free_port()}, on every rank" if own else f"ping {host}",
        see=TROUBLE + ANCHORS["port" if own else "froze"],
        known="not to rank 0",
    )


def preflight(target, launch):
    """What can be known of this host without any peer; raises Problem."""
    gloo = os.environ.get("GLOO_SOCKET_IFNAME")
    names = [name for _, name in socket.if_nameindex()] if hasattr(socket, "if_nameindex") else []
    if gloo and names and target != "serial":
        addresses = own_addresses()
        for name in gloo.split(","):
            if name not in names:
                raise Problem(
                    "interface-missing",
                    4,
                    f"GLOO_SOCKET_IFNAME={gloo}, but this host has no interface {name}",
                    evidence=[f"interfaces: {', '.join(names)}"],
                    see=TROUBLE + ANCHORS["interface"],
                    fix="unset GLOO_SOCKET_IFNAME"
                    + (
                        f", or export GLOO_SOCKET_IFNAME={likely}"
                        if (likely := next((n for n in addresses if n != loopback_name()), None))
                        else ""
                    ),
                )
            if interface_is_down(name):
                raise Problem(
                    "interface-down",
                    4,
                    f"GLOO_SOCKET_IFNAME={gloo}, but the interface {name} is down",
                    evidence=[f"{name} lacks the flag UP"],
                    fix=f"ip link set {name} up",
                    see=TROUBLE + ANCHORS["interface"],
                )
    if target == "nccl":
        devices = torch.cuda.device_count()
        wanted = launch.get("local_size") or launch["local_rank"] + 1 if launch else 1
        if wanted > devices:
            raise Problem(
                "more-ranks-than-gpus",
                4,
                f"{wanted} ranks on {socket.gethostname()}, but {devices} CUDA devices",
                evidence=[f"CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES', 'not set')}"],
                fix=f"start {devices} processes on this host",
                see=TROUBLE + ANCHORS["cuda"],
            )
    if not launch:
        require_loopback(target)
        return
    require_one_launcher(target, launch)
    found, outward = resolve(launch["host"]), [a for n, a in own_addresses().items() if n != loopback_name()]
    if found[0].startswith("does not resolve"):
        raise Problem(
            "master-unresolvable",
            4,
            f"MASTER_ADDR={launch['host']} {found[0]} on {socket.gethostname()}",
            evidence=[f"rank {launch['rank']} runs on {socket.gethostname()}: {own_addresses()}"],
            fix=ELSEWHERE,
            see=TROUBLE + ANCHORS["missing"],
            known="not to rank 0",
        )
    agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if agent and nobody_listens(launch):
        raise Problem(
            "stale-torchrun",
            4,
            f"the variables of torchrun are set, but no torchrun keeps a store at {launch['host']}:{launch['port']}: "
            "left over",
            evidence=[f"{n}={os.environ[n]}" for n in LAUNCH_VARIABLES if n in os.environ],
            fix="unset " + " ".join(sorted(n for n in launch_names(os.environ) if not n.startswith("SLURM_"))),
            see=TROUBLE + ANCHORS["partial"],
            known="not to rank 0",
        )
    if launch["rank"] > 0:
        require_route(launch, found)
    if launch["rank"] == 0 and not agent and not any(map(is_own_address, found)):
        raise Problem(
            "master-elsewhere",
            4,
            f"MASTER_ADDR={launch['host']} is no address of {socket.gethostname()}, where rank 0 runs",
            evidence=[f"it resolves to {', '.join(found)}", f"own: {own_addresses()}"],
            fix=f"export MASTER_ADDR={(outward or ['127.0.0.1'])[0]}",
            see=TROUBLE + ANCHORS["missing"],
        )


def require_loopback(target):
    """Raise Problem where processes of this host cannot meet at 127.0.0.1."""
    if target == "serial":
        return
    try:
        with socket.socket() as listener, socket.socket() as other:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            other.settimeout(2)
            other.connect(listener.getsockname())
    except OSError as e:
        card = loopback_name() or "lo"
        down = interface_is_down(card)
        why = f"{card} is down" if down else f"{card} has no such address, only IPv6" if loopback_name() else str(e)
        raise Problem(
            "no-loopback",
            4,
            f"processes of {socket.gethostname()} cannot meet at 127.0.0.1: {why}",
            evidence=[str(e), f"own addresses: {own_addresses() or 'none of IPv4'}"],
            fix=f"ip link set {card} up" if down else f"ip addr add 127.0.0.1/8 dev {card}",
        ) from None


def require_one_launcher(target, launch):
    """Raise Problem where variables of SLURM and of torchrun (or left-over ones like those) name different ranks."""
    five = [n for n in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT") if n in os.environ]
    pairs = (("RANK", "SLURM_PROCID"), ("WORLD_SIZE", "SLURM_NTASKS"), ("LOCAL_RANK", "SLURM_LOCALID"))
    seen = [f"{n}={os.environ.get(n, '(not set)')}" for pair in pairs for n in pair]
    if target in NATIVE and slurm_under_torchrun(launch) and refused_by_ignite(pairs):
        raise Problem("two-launchers", 4, SLURM_READ, evidence=seen, fix=SLURM_HIDDEN, see=SLURM_SEE, known="to all")
    if launch["kind"] == "slurm" and len(five) == 5 and any(os.environ[n] != os.environ[m] for n, m in pairs):
        raise Problem(
            "two-launchers",
            4,
            "two launchers: variables as torchrun sets them are left over in this task of srun, and do not agree",
            evidence=seen,
            fix=f"unset {' '.join(five)}, before srun",
            see=TROUBLE + ANCHORS["inconsistent"],
            known="to all",
        )


SLURM_READ = (
    "two launchers: Ignite reads SLURM's variables under torchrun, since SLURM_JOB_ID is set, and takes rank or local "
    "rank from there"
)
SLURM_HIDDEN = "unset SLURM_JOB_ID, before torchrun starts: env -u SLURM_JOB_ID torchrun …"
SLURM_SEE = TROUBLE + ANCHORS["inconsistent"]


def slurm_under_torchrun(launch):
    return bool(launch) and launch["kind"] == "torchrun" and "SLURM_JOB_ID" in os.environ


def refused_by_ignite(pairs):
    """Whether Ignite raises: SLURM's are not all there, or torchrun's are smaller, or on several nodes not equal."""
    if any(n not in os.environ for n in ("SLURM_JOB_NODELIST", "SLURM_JOB_NUM_NODES", *(slurm for _, slurm in pairs))):
        return True
    values = [(number(os.environ, name), number(os.environ, slurm)) for name, slurm in pairs]
    several = os.environ["SLURM_JOB_NUM_NODES"] != "1"
    return any(own < theirs or several and own != theirs for own, theirs in values)


def cause_two_launchers(bad, hellos, launch):
    """On one node Ignite lets torchrun be, and yet takes the local rank of a group that it did not make from SLURM."""
    if not slurm_under_torchrun(launch) or not {c["id"] for c in bad} & {*COMING_UP, "get_local_rank", "sync"}:
        return None
    seen = [f"rank {r}, {c['id']}: {t[:300]}" for c in bad for r, t in c["observed"].items()]
    return {"id": "two-launchers", "text": SLURM_READ, "evidence": seen[:3], "fix": SLURM_HIDDEN, "see": SLURM_SEE}


def require_route(launch, found):
    """Raise Problem where packets to rank 0's host cannot even leave this one; asked without sending any."""
    for address in found:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as s:
                s.connect((address, launch["port"]))
            return
        except OSError as e:
            error = e
    if error.errno in (*NO_ROUTE, errno.EHOSTUNREACH):
        raise unreachable(error, launch, leaves=False)


def nobody_listens(launch):
    """Whether a connection to the rendezvous is refused: the host is there, and no process has the port."""
    try:
        socket.create_connection((launch["host"], launch["port"]), timeout=2).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        pass
    return False


def is_own_address(address):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as s:
        s.bind((address, 0))
        return True
    return False


def interface_is_down(name):
    """Whether the interface lacks IFF_UP; asked of this network namespace, which /sys may not show (Linux)."""
    if sys.platform != "linux":
        return False
    import fcntl

    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:  # SIOCGIFFLAGS
        reply = fcntl.ioctl(s.fileno(), 0x8913, struct.pack("256s", name.encode()[:15]))
        return not struct.unpack("H", reply[16:18])[0] & 1
    return False


# Causes that can be told from what ranks reported, the most certain first. Each takes the bad checks of a launched or
# local world and what the supervisors said of themselves, and returns a finding or None.
def texts_of(bad):
    return " ".join(t for c in bad for t in c["observed"].values())


def cause_gloo_interface(bad, hellos, launch):
    """Several hosts, and gloo listens where another host does not reach it: on the interface that GLOO_SOCKET_IFNAME
    names, else where the host name points to."""
    if len({h["network"] for h in hellos.values()}) < 2 or not any(c["id"] in COMING_UP for c in bad):
        return None
    places = {}  # address -> networks in which somebody listens there
    for hello in hellos.values():
        for address in gloo_addresses(hello):
            places.setdefault(address, set()).add(hello["network"])
    wrong, cards = {}, {}
    for rank, hello in sorted(hellos.items()):
        name, found, card = hello["gloo_interface"], gloo_addresses(hello), hello["interface"]
        if all(a.startswith("127.") or a == "::1" or "resolve" in a for a in found):
            why = ", which is loopback" if name else ""
        elif all(len(places[a]) > 1 for a in found):
            why = ", which another host has as well"
        elif name and card and card not in name.split(","):
            why = f", and packets to MASTER_ADDR leave through {card}"
        else:
            continue
        through = f"listens on GLOO_SOCKET_IFNAME={name}, that is" if name else "resolves to"
        wrong[rank] = f"{hello['host']} (rank {rank}) {through} {', '.join(found)}{why}"
        cards.setdefault((hello["network"], hello["host"], card), []).append(str(rank))
    if not wrong:
        return None
    names = all(not hellos[r]["gloo_interface"] for r in wrong)
    return {
        "id": "loopback-name" if names else "gloo-interface",
        "text": "the hosts' own names resolve to loopback, so gloo listens where no other host can reach it"
        if names and not any("another host" in w for w in wrong.values())
        else "gloo listens on an interface that other hosts do not reach",
        "evidence": list(wrong.values())[:6],
        "fix": "; ".join(
            f"on the host of rank {', '.join(ranks)}: export GLOO_SOCKET_IFNAME={card or 'its network card'}"
            for (_, _, card), ranks in cards.items()
        ),
        "see": TROUBLE + ANCHORS["network"],
    }


def gloo_addresses(hello):
    """Where gloo listens on that host."""
    if hello["gloo_interface"]:
        return [a for n, a in hello["addresses"].items() if n == hello["gloo_interface"].split(",")[0]] or ["unknown"]
    return hello["resolves_to"]


# Part of an error -> id, what it says of {who}, the command that mends it, the key of ANCHORS
TEXTS = {
    "unable to allocate shared memory": (
        "no-shared-memory",
        "/dev/shm is too small",
        "mount -o remount,size=1g /dev/shm, or start the container with --shm-size=1g",
        "",
    ),
    "No space left on device": (
        "disk-full",
        "a disk is full",
        "df -h /tmp /dev/shm; export TMPDIR=<a folder with space>",
        "",
    ),
    "unable to open shared memory": (
        "no-shared-memory",
        "/dev/shm cannot be used",
        "mount -t tmpfs tmpfs /dev/shm, or start the container with --shm-size=1g",
        "",
    ),
    "(ulimit -v)": (
        "out-of-memory",
        "{who} could not get the memory that it asked for: its address space is limited",
        "ulimit -v unlimited, where that rank is started",
        "",
    ),
    "can't allocate memory": (
        "out-of-memory",
        "{who} could not get the memory that it asked for",
        "ulimit -v, free -m, and in a container its memory limit; fewer ranks or smaller batches",
        "",
    ),
    "MemoryError": (
        "out-of-memory",
        "{who} could not get the memory that it asked for",
        "ulimit -v, free -m, and in a container its memory limit; fewer ranks or smaller batches",
        "",
    ),
    "(pids.max)": (
        "process-limit",
        "{who} could start no more processes or threads: its control group has as many as it may",
        "docker run --pids-limit=-1, or in the service or job raise pids.max",
        "",
    ),
    "Resource temporarily unavailable": (
        "process-limit",
        "{who} could start no more processes or threads",
        "ulimit -u unlimited, and cat /sys/fs/cgroup/pids.max",
        "",
    ),
    "can't start new thread": (
        "process-limit",
        "{who} could start no more processes or threads",
        "ulimit -u unlimited, and cat /sys/fs/cgroup/pids.max",
        "",
    ),
    "Too many open files": ("open-files", "the limit of open files is too low", "ulimit -n 4096", ""),
    "inconsistent with equivalent SLURM": (
        "two-launchers",
        "SLURM's variables and those of another launcher disagree",
        "use srun alone, or unset SLURM_JOB_ID before torchrun",
        "inconsistent",
    ),
    "Unable to find address for": (
        "interface-missing",
        "GLOO_SOCKET_IFNAME names no interface with an address",
        "unset GLOO_SOCKET_IFNAME",
        "interface",
    ),
    "EADDRINUSE": ("port-taken", "a port is taken", "export MASTER_PORT=<a free port>", "port"),
    SCARCE: (
        "disk-full",
        "the temporary folder is full, or nearly so",
        "df -h /tmp; export TMPDIR=<a folder with space>",
        "",
    ),
}


def cause_by_text(bad, hellos, launch):
    """Errors whose text says it."""
    text = texts_of(bad)
    for pattern in TEXTS:
        if pattern in text:
            c, rank = next((c, r) for c in bad for r, t in c["observed"].items() if pattern in t)
            host = c["hosts"].get(rank) or hellos.get(int(rank), {}).get("host") or socket.gethostname()
            return finding_by_text(pattern, f"rank {rank} on {host}", first_with(bad, pattern))
    return None


def finding_by_text(pattern, who, evidence):
    identifier, says, fix, see = TEXTS[pattern]
    see = TROUBLE + ANCHORS[see] if see else ""
    return {"id": identifier, "text": says.format(who=who), "evidence": [evidence], "fix": fix, "see": see}


def first_with(bad, pattern):
    r, c, t = next(((r, c, t) for c in bad for r, t in c["observed"].items() if pattern in t), (None, None, None))
    return f"rank {r}, {c['id']}: {t[:300] if pattern in t[:300] else shorten(t, 300)}" if c else pattern


def cause_lost_rank(bad, hellos, launch):
    """A rank that died, was stopped or froze; the others only say that they miss it."""
    for c in bad:
        for rank in c["ranks"]:
            said, host = c["observed"][str(rank)], c["hosts"][str(rank)]
            if not said.startswith(("died", "does not return", SUPERVISOR)):
                continue
            if said.startswith(f"{SUPERVISOR} does not"):
                return cannot_be_reached(c, hellos)
            if OUT_OF_MEMORY in said:
                return {
                    "id": "out-of-memory",
                    "text": f"rank {rank} on {host} was killed in {c['id']} for want of memory; "
                    "the others are victims",
                    "evidence": [f"rank {rank}: {said}"],
                    "fix": "fewer ranks or smaller batches per host; free -m, and in a container its memory limit",
                    "see": TROUBLE + ANCHORS["died"],
                }
            how = "stopped" if "SIGSTOP" in said else "froze" if said.startswith("does not return") else "died"
            with_it, end = SUPERVISOR in said, f"{how} in {c['id']}"
            if with_it:  # its process is seen from here
                word = "was killed" if how == "died" else how
                end = f"{word} in {c['id']}, {SUPERVISOR} with it, on this host"
            fix = "look at the stack of that rank in this report"
            if how == "died":
                fix = "export PYTHONFAULTHANDLER=1: a crash then prints where it was, and this report shows it"
            if "SIGKILL" in said or with_it:
                fix = KILLED
            if how == "stopped" and with_it:
                fix = f"kill -CONT {hellos[rank]['pid']}"
            return {
                "id": f"rank-{how}",
                "text": f"rank {rank} on {host} {end}; the others are victims",
                "evidence": [f"rank {r}: {t[:200]}" for r, t in c["observed"].items()][:6],
                "fix": fix,
                "see": TROUBLE + ANCHORS["died" if how == "died" else "froze"],
            }
    return None


def cannot_be_reached(c, hellos):
    """The finding on ranks whose supervisor does not answer any more: several of a host go together."""
    lost = [r for r in c["ranks"] if c["observed"][str(r)].startswith("its supervisor")]
    hosts = sorted({c["hosts"][str(r)] for r in lost})
    address = next((a for r in lost for n, a in hellos.get(r, {}).get("addresses", {}).items() if n != "lo"), hosts[0])
    return {
        "id": "host-lost",
        "text": f"rank {some(lost)} on {', '.join(hosts)} cannot be reached since {c['id']}: the host, or the network "
        "to it, is gone; the others are victims",
        "evidence": [f"rank {r}: {t[:200]}" for r, t in c["observed"].items()][:6],
        "fix": f"ping {address}; ip -s link shows lost packets",
        "see": TROUBLE + ANCHORS["froze"],
    }


CAUSES = (cause_gloo_interface, cause_by_text, cause_lost_rank, cause_two_launchers)


def diagnose(entry, hellos, launch):
    """The most certain cause of a run's failure as a list of one finding; empty where a value was just wrong."""
    bad = [c for c in entry["checks"] if c["status"] in ("fail", "timeout", "error")]
    for cause in CAUSES if bad else ():
        if finding := cause(bad, hellos, launch):
            return [finding]
    return []


def meet(launch, end):
    """The store in which the supervisors of a launched world meet: the launcher's own, or one held by rank 0's."""
    agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    address, serves = f"{launch['host']}:{launch['port']}", not agent and launch["rank"] == 0
    try:
        if not serves:  # torch's own client would try twice for as long as it may
            await_listener(launch["host"], launch["port"], end)
        left = max(1.0, end - time.monotonic())
        first = timedelta(seconds=left if serves else max(1.0, min(10.0, left / 3)))  # it tries twice for so long
        base = dist.TCPStore(launch["host"], launch["port"], None, serves, first, wait_for_workers=False)
        base.set_timeout(timedelta(seconds=left))
    except (RuntimeError, ValueError, OSError) as e:
        if "EADDRINUSE" in str(e):
            raise Problem(
                "port-taken",
                4,
                f"rank 0 cannot listen on {address}: the port is taken",
                evidence=[str(e).splitlines()[0][:300], *who_listens(launch["port"])],
                fix=f"export MASTER_PORT={free_port()}",
                see=TROUBLE + ANCHORS["port"],
            ) from None
        raise store_is_silent(launch) if isinstance(e, RuntimeError) else unreachable(e, launch) from None
    name = os.environ.get("TORCHELASTIC_RUN_ID", "") + os.environ.get("TORCHELASTIC_RESTART_COUNT", "")
    return dist.PrefixStore(f"smoke/{name}", base)


def await_listener(host, port, end):
    """Return as soon as the port takes connections; OSError, the last that tells more than silence, at the end."""
    telling = None
    while True:
        left = end - time.monotonic()
        try:
            socket.create_connection((host, port), timeout=max(0.5, min(5.0, left))).close()
            return
        except OSError as e:
            telling = e if telling is None or not isinstance(e, TimeoutError) else telling
            if left <= 0 or STOP:
                raise telling from None
        time.sleep(0.05)


NO_ROUTE = (errno.ENETUNREACH, errno.EINVAL, errno.EACCES, errno.EPERM)  # as routes that lead nowhere answer
# Why rank 0's host cannot be reached -> what to do about it
ELSEWHERE = "export MASTER_ADDR=<an address that `hostname -I` prints on rank 0's host>"
UNREACHABLE = {
    "its name does not resolve here": ELSEWHERE,
    "that address is this host's own, and rank 0 does not listen here (loopback is another host on each)": ELSEWHERE,
    "refused: the host is there, and no process has the port": "ss -ltnp 'sport = :{port}' on {host}: if nothing "
    "listens, rank 0 was not started or has ended; read what it printed",
    "there is no route to it from here": "ip route get {ip}; add the route, or " + ELSEWHERE,
    "no host answers at that address": "ping {ip}; " + ELSEWHERE,
    "no answer in time: the host is down, or a firewall drops the packets": "nc -vz {ip} {port}; open the port {port} "
    "of {host} for this host",
}


def unreachable(error, launch, leaves=True):
    """Problem: the connection to rank 0's host fails, and why. `leaves`: packets to it leave this host."""
    host, port = launch["host"], launch["port"]
    found, number = resolve(host), error.errno
    name, this, refused, route, nobody, _ = reasons = list(UNREACHABLE)
    why = reasons[-1]
    if isinstance(error, socket.gaierror) or "resolve" in found[0]:
        why = name
    elif isinstance(error, ConnectionRefusedError):
        why = this if launch["local_rank"] == 0 and all(map(is_own_address, found)) else refused
    elif number in NO_ROUTE or not leaves:
        why = route
    elif number == errno.EHOSTUNREACH:
        why = nobody
    mine = ", ".join(f"{n} {a}" for n, a in own_addresses().items())
    return Problem(
        "no-rendezvous",
        4,
        f"rank {launch['rank']} on {socket.gethostname()} cannot reach rank 0 at {host}:{port}: {why}",
        evidence=[str(error)[:300], f"{host} resolves to {', '.join(found)}", f"own addresses: {mine}"],
        fix=UNREACHABLE[why].format(host=host, port=port, ip=found[0]),
        see=TROUBLE + ANCHORS["missing"],
        known="not to rank 0",
    )


def await_rank_0(store, launch, end):
    """What rank 0's supervisor said of itself; Problem where it does not come to the store."""
    agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if not agent:  # the store is rank 0's own: who is there to hold it says so at once
        end = min(end, time.monotonic() + 10)
    stop = None
    while not store.check(["hello/0"]):
        if store.check(["over"]):
            raise Problem("rank-0-failed", int(store.get("over")), "rank 0 has failed, and reports", known="to all")
        stop = time.monotonic() if STOP and stop is None else stop
        if time.monotonic() > end or stop and time.monotonic() > stop + STOPPED:
            raise rank_0_absent(launch, agent)
        time.sleep(0.01)
    return json.loads(store.get("hello/0"))


def rank_0_absent(launch, agent):
    """Problem: rank 0 does not come to the store, which is the launcher's, or holds the place of rank 0's own."""
    address, who = f"{launch['host']}:{launch['port']}", f"rank {launch['rank']} on {socket.gethostname()}"
    if agent or STOP:
        by = f" was ended by {signal.Signals(STOP[-1]).name}" if STOP else ""
        return Problem(
            "rank-0-absent",
            4,
            f"{who}{by} while waiting at {address} for rank 0, which never came",
            fix="read what rank 0 printed; torchrun --tee 3 and srun --label show the output of every rank",
            see=TROUBLE + ANCHORS["absent"],
            known="not to rank 0",
        )
    return Problem(
        "port-taken",
        4,
        f"{who}: the store at {address} is not that of this world, for rank 0 never came there: another job's",
        evidence=who_listens(launch["port"]) if any(map(is_own_address, resolve(launch["host"]))) else [],
        fix=f"export MASTER_PORT={free_port()}, on every rank",
        see=TROUBLE + ANCHORS["port"],
        known="not to rank 0",
    )


def rank_0_lost(launch, zero, error=""):
    """Problem: rank 0's supervisor is gone, stopped or silent after it had come."""
    host, pid, state = zero["host"], zero["pid"], state_of(zero)
    end = time.monotonic() + 1
    while error and state == "alive" and time.monotonic() < end:  # its sockets are closed before it is gone
        time.sleep(0.02)
        state = state_of(zero)
    if state == "gone" and zero["network"] != network_identity():
        state = "elsewhere"  # it may have ended in good order while the network was broken
    seen = [f"the connection to the store: {error.splitlines()[0][:200]}"] if error else []
    text, code, fix, see = {
        "gone": (f"is gone: its supervisor, pid {pid} on this host, was killed", 4, KILLED, "died"),
        "stopped": (f"is stopped (SIGSTOP): its supervisor, pid {pid} on this host", 5, f"kill -CONT {pid}", "froze"),
        "alive": (f"does not answer: its supervisor, pid {pid} on this host, is alive", 5, STACK.format(pid), "froze"),
    }.get(
        state,
        (
            "is gone: it was killed, or its host or the network to it broke",
            4 if error else 5,
            f"ping {launch['host']}; on {host}: {KILLED}",
            "died" if error else "froze",
        ),
    )
    text = f"rank 0 on {host} {text}; rank {launch['rank']} on {socket.gethostname()} is a victim"
    see = TROUBLE + ANCHORS[see]
    return Problem("rank-0-lost", code, text, evidence=seen, fix=fix, see=see, known="not to rank 0")


KILLED = "dmesg | grep -i -E 'killed process|out of memory'"
STACK = "py-spy dump --pid {}"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def who_listens(port):
    """The process that listens on a TCP port, as text in a list (Linux; only one's own processes unless root)."""
    inodes, users = set(), set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in read_lines(table)[1:]:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
                users.add(int(fields[7]))
    parents = {}  # of the processes that hold the socket: a fork has it from its parent
    for fd in Path("/proc").glob("[0-9]*/fd/*") if inodes else ():
        with contextlib.suppress(OSError):
            if os.readlink(fd) in inodes:
                parents[fd.parts[2]] = Path(*fd.parts[:3], "stat").read_text().rpartition(")")[2].split()[1]
    for pid in parents.keys() - {pid for pid, parent in parents.items() if parent in parents}:
        command = " ".join(" ".join(read_lines(f"/proc/{pid}/cmdline")).replace("\0", " ").split())
        return [f"port {port} is held by pid {pid}: {command[:120]}"]
    if not users - {os.getuid()}:
        why = "whose process is not visible here (in another container), or has just ended"
        return [f"port {port} is held by this user, {why}"] if users else []
    return [f"port {port} is held by the user with id {', '.join(map(str, sorted(users)))}"]


def rank_twice(text, launch):
    return Problem(
        "rank-twice",
        4,
        f"two launchers, or two jobs, meet at {launch['host']}:{launch['port']}: {text}",
        evidence=[text],
        fix="start the processes in one place only; give each job a MASTER_PORT of its own",
        see=TROUBLE + ANCHORS["twice"],
        known="to all",
    )


def about_me(launch):
    """What a supervisor tells rank 0's of itself and its host."""
    addresses = own_addresses()
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "home": process_home(),
        "started": (life_of(os.getpid()) or ("", ""))[1],
        "python": platform.python_version(),
        "executable": sys.executable,
        "slurm_node": os.environ.get("SLURMD_NODENAME"),
        "torch": torch.__version__,
        "ignite": ignite.__version__,
        "local_rank": launch["local_rank"],
        "local_size": launch.get("local_size"),
        "node": launch.get("node"),
        "resolves_to": resolve(socket.gethostname()),
        "addresses": addresses,
        "interface": interface_towards(launch["host"], addresses),
        "network": network_identity(),
        "gloo_interface": os.environ.get("GLOO_SOCKET_IFNAME"),
    }


def own_addresses():
    """interface name -> IPv4 address, of the interfaces that have one (Linux; elsewhere nothing)."""
    found = {}
    if sys.platform != "linux":
        return found
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # SIOCGIFADDR
                reply = fcntl.ioctl(s.fileno(), 0x8915, struct.pack("256s", name.encode()[:15]))
                found[name] = socket.inet_ntoa(reply[20:24])
    return found


def interface_towards(host, addresses):
    """Name of the interface that holds the host's address, or through which packets to the host leave."""
    target = next((a for a in resolve(host) if "." in a and " " not in a), None)
    if target is None:
        return None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        with contextlib.suppress(OSError):
            s.connect((target, 9))
            return next(
                (n for n, a in addresses.items() if a == target),
                next((n for n, a in addresses.items() if a == s.getsockname()[0]), None),
            )
    return None


def life_of(pid):
    """(state, when it started) of a process of this machine; None without such a process (Linux)."""
    with contextlib.suppress(OSError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return fields[0], fields[19]
    return None


def process_home():
    """Equal for processes that see each other's process ids; unlike that of any other where there is no /proc."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"
    return f"{socket.gethostname()}/{os.getpid()}"


def state_of(hello):
    """Of the supervisor that said hello: "gone", "stopped" or "alive" where it is seen from here, else "elsewhere"."""
    if hello["home"] != process_home():
        return "elsewhere"
    life = life_of(hello["pid"])
    if life is None or life[1] != hello["started"] or life[0] in "ZXx":
        return "gone"
    return "stopped" if life[0] in "Tt" else "alive"


def network_identity():
    """Equal for processes that share a network stack, that is, a host or a network namespace."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.stat('/proc/self/ns/net').st_ino}"
    return socket.gethostname()


def check_hellos(hellos):
    """Ranks must run the same releases."""
    for package in ("ignite", "torch", "Python"):
        versions = {}
        for rank, hello in sorted(hellos.items()):
            version = hello.get(package) or ".".join(hello["python"].split(".")[:2])
            versions.setdefault(version, []).append(f"rank {rank} on {hello['host']}")
        if len(versions) > 1:
            name = {"ignite": "pytorch-ignite"}.get(package, package)
            most = max(versions, key=lambda v: len(versions[v]))
            fix = f"pip install {name}=={most.split('+')[0]}"
            if package == "Python":
                program = next(h["executable"] for h in hellos.values() if h["python"].startswith(f"{most}."))
                fix = f"start every rank with {program}"
            raise Problem(
                "version-mismatch",
                4,
                f"the ranks have different releases of {package}: {', '.join(sorted(versions))}",
                evidence=[f"{package} {v}: {', '.join(who[:6])}" for v, who in versions.items()],
                fix=fix,
            )


def some(numbers, limit=16):
    """A list of numbers as text, cut where it grows long."""
    text = ", ".join(map(str, numbers[:limit]))
    return text if len(numbers) <= limit else f"{text} and {len(numbers) - limit} more"


STOPPED = 3.0  # seconds after a signal to end within which the other ranks come, if they do


def gather_hellos(store, launch, end):
    """What the supervisors said of themselves; Problem names the ranks that never came, or why one cannot."""
    hellos, stop = {}, None
    while len(hellos) < launch["size"]:
        if store.check(["failed"]):
            raise told_by(store, launch, set(hellos))
        for rank in set(range(launch["size"])) - set(hellos):
            if store.check(["twice"]):
                dismiss(store, 4, [r for r in hellos if r > 0])
                raise rank_twice(store.get("twice").decode(), launch)
            if store.check([f"hello/{rank}"]):
                hellos[rank] = json.loads(store.get(f"hello/{rank}"))
        stop = time.monotonic() if STOP and stop is None else stop
        if time.monotonic() > end or stop and time.monotonic() > stop + STOPPED:
            missing = sorted(set(range(launch["size"])) - set(hellos))
            dismiss(store, 4, [r for r in hellos if r > 0])
            raise never_came(missing, launch, hellos)
        time.sleep(0.01)
    if STOP:
        dismiss(store, 128 + STOP[-1], [r for r in hellos if r > 0])
        raise Interrupted
    try:
        check_hellos(hellos)
    except Problem as problem:
        dismiss(store, problem.exit_code, [r for r in hellos if r > 0])
        raise
    return hellos


def tell_rank_0(launch, problem, end):
    """Have rank 0 report what keeps this rank out; whether it did."""
    with contextlib.suppress(Exception):
        store = meet(launch, min(end, time.monotonic() + 10))
        told = {"host": socket.gethostname(), "code": problem.exit_code, "finding": problem.finding}
        store.set(f"failed/{launch['rank']}", json.dumps(told))
        store.set("failed", "1")
        end = time.monotonic() + 3
        while time.monotonic() < end:
            if store.check(["over"]):
                store.set(f"bye/{launch['rank']}", "1")
                return True
            time.sleep(0.01)
    return False


def told_by(store, launch, came):
    """Problem: what ranks say keeps them out; `came`: those of which the others have heard."""
    time.sleep(0.3)  # for others of which the same is true
    failed = [r for r in range(launch["size"]) if store.check([f"failed/{r}"])]
    told = {r: json.loads(store.get(f"failed/{r}")) for r in failed}
    first = told[failed[0]]
    finding, alike = first["finding"], [r for r in failed if told[r]["finding"]["text"] == first["finding"]["text"]]
    dismiss(store, first["code"], (came | set(failed)) - {0})
    who = f"rank {some(alike)} on {', '.join(sorted({told[r]['host'] for r in alike}))}: "
    others = [f"rank {r} on {t['host']}: {t['finding']['text']}" for r, t in told.items() if r not in alike]
    problem = Problem(finding["id"], first["code"], who + finding["text"])
    problem.finding.update(evidence=[*finding["evidence"], *others[:6]], fix=finding["fix"], see=finding["see"])
    return problem


def never_came(missing, launch, hellos):
    """Problem: these ranks are not there; where to look for the reason, by the launcher that should start them."""
    which, who = f"rank {some(missing)}", sorted(hellos.items())
    text = f"{which} of {launch['size']} never came"
    if STOP:
        by = {"torchrun": " of torchrun", "slurm": " of srun"}.get(launch["kind"], "")
        text = f"ended by {signal.Signals(STOP[-1]).name}{by} while waiting for {which} of {launch['size']}, which "
        text += "never came: a rank that died before made the launcher end the others"
    evidence = [f"rank {r} came from {h['host']}" for r, h in who][:8]
    evidence.append(f"the reason stands in what {which} itself printed, or in its report")
    fix = f"start the missing ranks with MASTER_ADDR={launch['host']} MASTER_PORT={launch['port']}, or if the "
    fix += "variables are left over: unset RANK WORLD_SIZE LOCAL_RANK"
    if launch["kind"] == "torchrun":
        fix = f"torchrun --tee 3 shows what {which} prints"
        if per := launch.get("local_size"):
            fix += f"; look on the host with --node_rank={some(sorted({r // per for r in missing}))}"
    elif launch["kind"] == "slurm":
        nodes = slurm_hosts(os.environ["SLURM_JOB_NODELIST"])
        rest = [n for n in nodes if n not in {h["slurm_node"] for h in hellos.values()}]
        fix = f"srun --label shows what {which} prints; look on the node{'s' * (len(rest or nodes) != 1)} "
        fix += some(rest or nodes)
    elif all(a.startswith("127.") or a == "::1" for a in resolve(launch["host"])):
        evidence.append(f"MASTER_ADDR={launch['host']} is loopback: no other host can reach it")
        if outward := [a for n, a in own_addresses().items() if n != loopback_name()]:
            fix = f"are they on other hosts: export MASTER_ADDR={outward[0]} on all; else {fix}"
    return Problem("missing-peer", 4, text, evidence=evidence, fix=fix, see=TROUBLE + ANCHORS["absent"])


def lead(args, launch, folder, end, deadline, store, own, hellos):
    """Rank 0's supervisor: conduct the run over all ranks until `end`, then release the other supervisors."""
    size, target = launch["size"], targets_of(args, launch)[0][0]
    nodes = {}
    node_of = {
        r: h["node"] if h["node"] is not None else nodes.setdefault(h["host"], len(nodes))
        for r, h in sorted(hellos.items())
    }
    ranks = [own if r == 0 else RemoteRank(r, hellos[r], store) for r in range(size)]
    stores = {n: dist.TCPStore("0.0.0.0", 0, None, True, wait_for_workers=False) for n in STORES if n != "join"}
    ports = {"join": launch["port"], **{name: store.port for name, store in stores.items()}}
    spec = {}
    for member in ranks:
        node = node_of[member.rank]
        spec = world_spec(
            target,
            launch,
            folder,
            end,
            rank=member.rank,
            size=size,
            node=node,
            nnodes=len(set(node_of.values())),
            local_rank=hellos[member.rank]["local_rank"],
            local_size=list(node_of.values()).count(node),
            store_prefix="smoke",
            store_host=launch["host"],
            ports=ports,
            payload=args.payload,
            iterations=args.iterations,
        )
        variables = {"TORCHELASTIC_USE_AGENT_STORE": "True"}
        member.send({"do": "join", "set": variables, "unset": [], "world": spec})
    run = Run(target, size, launch["kind"])
    code = 4
    try:
        entry = run.conduct(ranks, list(plan_for(spec, args.only)), end)
        entry["hosts"] = {str(r): h["host"] for r, h in sorted(hellos.items())}
        entry["hellos"] = hellos
        code = exit_code([entry])
        return entry
    finally:
        with contextlib.suppress(Exception):
            dismiss(store, code, range(1, size), deadline)


def dismiss(store, code, ranks, deadline=float("inf")):
    """End the other supervisors with the code, and stay until they have taken it: the store may go with this one."""
    store.set("over", str(code))
    end = min(time.monotonic() + 2.0, deadline)
    while time.monotonic() < end and not all(store.check([f"bye/{r}"]) for r in ranks):
        time.sleep(0.01)


def exit_code(entries):
    checks = [c for e in entries for c in e["checks"]]
    if any(x["status"] == "timeout" for x in checks + entries):
        return 5
    bad = [c for c in checks if c["status"] in ("fail", "error")]
    if any(c["id"] == "process_group" or c["id"] == "initialize" and "stacks" in c for c in bad):
        return 4
    return 1 if bad else 0


# ------------------------------------------------------------------------------------------------------------------
# The report: one structure, two views
# ------------------------------------------------------------------------------------------------------------------
def make_report(entries, code, env, findings):
    summary = {s: 0 for s in ("pass", "fail", "skip", "timeout", "error")}
    for c in (c for e in entries for c in e["checks"]):
        summary[c["status"]] += 1
    status = {0: "pass", 1: "fail", 5: "timeout"}.get(code, "error")
    return {
        "schema": "pytorch-ignite-smoke/1",
        "tool": "distributed_smoke.py",
        "status": status,
        "exit_code": code,
        "seconds": round(time.monotonic() - STARTED, 2),
        "environment": env,
        "diagnosis": findings,
        "runs": entries,
        "summary": summary,
    }


def as_text(report, verbose=False):
    env = report["environment"]
    lines = [
        f"{report['status'].upper()}  exit code {report['exit_code']}, {report['seconds']:.1f} s"
        + (f", of which imports {env['import_seconds']:.1f} s" if env.get("import_seconds") else "")
        + (f"  (Python {env['python']}, torch {env['torch']}, ignite {env['ignite']}, {env['host']})" if env else "")
    ]
    for run in report["runs"]:
        count = {s: sum(c["status"] == s for c in run["checks"]) for s in ("pass", "fail", "skip", "timeout", "error")}
        counts = ", ".join(f"{n} {s}" for s, n in count.items() if n or s == "pass")
        size = f"{run['world_size']} process{'es' * (run['world_size'] > 1)}"
        lines.append(
            f"{run['target']:8} {size:13} {run['launcher']:9} {run['status']:8} {counts}, {run['seconds']:.2f} s"
        )
        for c in run["checks"]:
            if c["status"] in ("fail", "timeout", "error"):
                lines += text_of_failure(c, verbose)
        if "workload" in run:
            lines += text_of_workload(run["workload"], verbose)
        reasons = {}
        for c in run["checks"]:
            if c["status"] == "skip":
                reasons.setdefault(c["reason"], []).append(c["id"])
        lines += [f"  skipped, {reason}: {', '.join(ids)}" for reason, ids in reasons.items()]
        if verbose:
            lines += [f"  {c['status']:7} {c['id']}  {c.get('seconds', 0):.3f} s" for c in run["checks"]]
    for finding in report["diagnosis"]:
        lines.append(f"cause: {finding['text']}")
        lines += [f"  seen: {e}" for e in finding["evidence"]]
        lines += [f"  fix:  {finding['fix']}"] if finding["fix"] else []
        lines += [f"  see:  {finding['see']}"] if finding["see"] else []
    text = "\n".join(lines)
    return text if verbose or len(text) < 9800 else text[:9700] + "\n… cut; --verbose or --format json has the rest"


def text_of_failure(c, verbose):
    lines = [f"  {c['status'].upper()} {c['id']}: {c['hint']}", f"    expected  {c['expected']}"]
    observed = list(c["observed"].items())
    lines += [f"    rank {r:>3}  {text[:400]}" for r, text in observed[: None if verbose else 8]]
    if len(observed) > 8 and not verbose:
        lines.append(f"    … and {len(observed) - 8} more ranks")
    for r, frames in c.get("stacks", {}).items():
        if verbose or c["status"] == "timeout" and int(r) in c["ranks"]:
            lines.append(f"    stack of rank {r}:")
            lines += [f"      {frame}" for frame in frames[: 30 if verbose else 8]]
    for r, text in c.get("printed", {}).items():
        lines.append(f"    rank {r} printed: {text[:300] if text.startswith(CRASHED) else text[-300:]}")
    return [*lines, f"    see  {c['see']}"]


def text_of_workload(found, verbose):
    """The table of a workload, each cell from the rank that waited longest, and the slowest rank."""
    lines = [f"  workload on {found['device']:12} {'bytes':>10} {'steps':>6} {'latency us':>11} {'algbw GB/s':>11}"]
    lines[0] += f" {'busbw GB/s':>11}"
    for row in found["rows"]:
        rank = max(row["latency_us"], key=row["latency_us"].get)
        cells = f"{row['latency_us'][rank]:11.1f} {row['algbw_gbs'][rank]:11.3f} {row['busbw_gbs'][rank]:11.3f}"
        lines.append(f"    {row['operation']:22} {row['bytes']:>10} {row['iterations']:>6} {cells}")
    lines += [f"    left out, for it would take too long: {what}" for what in found["left_out"]]
    ranks = list(found["ranks"].items())
    lines += [
        f"    rank {r:>3} on {seen['host']}: own part {seen['own_ms']:.2f} ms a step, copy {seen['copy_gbs']:.2f} GB/s"
        for r, seen in ranks[: None if verbose else 16]
    ]
    slowest = found["slowest"]
    verdict = "slowest" if slowest["stands_out"] else "no rank stands out; slowest"
    return [*lines, f"    {verdict}: rank {slowest['rank']} on {slowest['host']}, {slowest['text']}"]


def env_text(env):
    lines = []
    for key, value in env.items():
        if key == "backends":
            lines += [
                f"backend {b}: {'available' if v['available'] else 'not available: ' + v['reason']}"
                for b, v in value.items()
            ]
        elif isinstance(value, dict):
            lines += [f"{key}:", *(f"  {k}={v}" for k, v in value.items())] if value else [f"{key}: none"]
        else:
            lines.append(f"{key}: {', '.join(map(str, value)) or 'none' if isinstance(value, list) else value}")
    return "\n".join(lines)


# ------------------------------------------------------------------------------------------------------------------
# Command line
# ------------------------------------------------------------------------------------------------------------------
EPILOG = """\
exit codes:
  0 every check passed (skips allowed)    1 a check failed    2 usage
  3 a dependency or an asked-for backend is missing
  4 launch or rendezvous failed           5 the deadline passed
(under torchrun the launcher turns every code into 1: read the report)

examples:
  python distributed_smoke.py
  python distributed_smoke.py gloo --nproc 4 --format json --output report.json
  torchrun --nproc_per_node=2 distributed_smoke.py --only all_reduce,ddp_gradients
"""


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise UsageError(message)


def parse(argv):
    parser = Parser(
        prog="distributed_smoke.py",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        description="Starts real ranks on this machine, runs every public helper of ignite.distributed in them and "
        "compares with known values. Started by torchrun or srun it checks the world that they made.",
        epilog=EPILOG,
    )
    parser.add_argument(
        "targets",
        nargs="*",
        metavar="TARGET",
        help=f"{', '.join(TARGETS)}; default: serial, then gloo in one process and in --nproc",
    )
    parser.add_argument(
        "--nproc",
        type=int,
        metavar="N",
        help="local processes of multi-process runs (default 2; 1 leaves those runs out); only for plain runs",
    )
    parser.add_argument("--env", action="store_true", help="run no check; show versions, backends, devices, variables")
    parser.add_argument("--list", action="store_true", help="print the ids of the checks")
    parser.add_argument("--only", metavar="ID[,ID]", help="run only these checks and what they rely on")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="of the report (default text)")
    parser.add_argument("--output", metavar="FILE", help="write the report to FILE as well")
    parser.add_argument(
        "--timeout", type=float, default=120.0, metavar="SECONDS", help="for the whole run (default 120)"
    )
    parser.add_argument(
        "--launcher",
        choices=("auto", "none", "env", "slurm"),
        default="auto",
        help="believe the launch variables (auto), ignore them (none), or insist on one kind",
    )
    parser.add_argument(
        "--start-method",
        choices=("auto", "fork", "spawn"),
        default="auto",
        help="of local ranks (default: fork where that is safe)",
    )
    parser.add_argument(
        "--payload",
        metavar="SIZE",
        help="also time all_reduce, all_gather and broadcast of messages up to SIZE, like 64K, 1M or 1G, and name the "
        "slowest rank; begins no timing that would, by the smaller ones, end after 20 s",
    )
    parser.add_argument("--iterations", type=int, metavar="N", help="of each timing (default 20); with --payload")
    parser.add_argument("--verbose", action="store_true", help="every check, whole stacks, tracebacks")
    args = parser.parse_args(argv)
    unknown = [t for t in args.targets if t not in TARGETS]
    if unknown:
        raise UsageError(f"unknown target {unknown[0]!r}; known: {', '.join(TARGETS)}")
    args.only = [x for x in args.only.split(",") if x] if args.only is not None else None
    if args.only is not None:
        unknown = [x for x in args.only if x not in CHECKS]
        if unknown or not args.only:
            raise UsageError(f"unknown check {unknown[0]!r}; --list shows them" if unknown else "--only names no check")
    if args.iterations is not None and args.payload is None:
        raise UsageError("--iterations goes with --payload SIZE")
    args.iterations = 20 if args.iterations is None else args.iterations
    if not 1 <= args.iterations <= 100_000:
        raise UsageError(f"--iterations {args.iterations}: a number from 1 to 100000 is needed")
    args.payload = None if args.payload is None else bytes_of(args.payload)
    if args.nproc is not None and not 1 <= args.nproc <= 1024:
        raise UsageError(f"--nproc {args.nproc}: a number of processes from 1 to 1024 is needed")
    if args.output and (os.path.isdir(args.output) or not os.path.isdir(os.path.dirname(args.output) or ".")):
        raise UsageError(f"--output {args.output}: not a file in a folder that exists")
    if not 0 < args.timeout < 1e6:
        raise UsageError(f"--timeout {args.timeout}: a positive number of seconds is needed")
    return args


def bytes_of(text):
    """64K, 1M, 1G or a plain number, in bytes (K is 1024)."""
    head, unit = (text[:-1], text[-1].upper()) if text[-1:].upper() in ("K", "M", "G") else (text, "")
    factor = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[unit]
    if not (head.isascii() and head.isdigit()) or not 1024 <= int(head) * factor <= 1 << 30:
        raise UsageError(f"--payload {text}: a size from 1K to 1G is needed, like 64K or 1M")
    return int(head) * factor


def run(args):
    """The report of a run, or an exit code where another rank's supervisor reports."""
    deadline = STARTED + args.timeout
    end = deadline - min(SPARE / 2, args.timeout / 8)  # of the checks
    env, findings, entries, launch = {}, [], [], None
    try:
        launch = detect_launch(os.environ, args.launcher)
        if launch:
            end = deadline - min(SPARE, args.timeout / 4)
            if launch["kind"] == "torchrun":  # which ends the others when a rank died: what they know is told first
                HOLD.append("launched")
        if launch and args.nproc is not None:
            raise UsageError(
                f"--nproc does not go with {launch['kind']}, which already chose {launch['size']} processes"
            )
        if launch and len(args.targets) > 1:
            raise UsageError(f"a launched world has one backend; {len(args.targets)} targets given")
        if launch and launch["size"] > 1 and args.targets == ["serial"]:
            raise UsageError(
                f"serial is one process, and {launch['kind']} started {launch['size']}: leave it out, "
                "or add --launcher none"
            )
        args.nproc = 2 if args.nproc is None else args.nproc
        if not launch:  # torch looks up the name of each address; a name server that is silent must not stall it
            os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")
        if not args.verbose:
            drop_stacks()
        signal.signal(signal.SIGALRM, on_alarm)
        signal.setitimer(signal.ITIMER_REAL, max(0.001, deadline - time.monotonic()))
        try:
            missing = import_libraries()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if missing:
            if args.env:
                env = machine(launch)
            raise missing
        imported = time.monotonic() - STARTED
        env = {**environment(launch, args.env), "import_seconds": round(imported, 2)}
        for target in args.targets:
            if target != "serial" and not env["backends"][target]["available"]:
                raise Problem(
                    "backend-missing",
                    3,
                    f"{target}: {env['backends'][target]['reason']}",
                    see=TROUBLE + ANCHORS["backend"],
                )
        if args.env:
            return make_report([], 0, env, []) if not launch or launch["rank"] == 0 else 0
        for target in {t for t, _ in targets_of(args, launch)}:
            preflight(target, launch)
        with temporary_folder() as folder:
            if launch:
                HOLD.append("launched")
                outcome = conduct_launched(args, launch, folder, end, deadline)
                if isinstance(outcome, int):
                    return outcome
                entries = [outcome]
            else:
                conduct_local(args, folder, end, entries)
        code = exit_code(entries)
        if any(e["status"] == "timeout" and not any(c["status"] == "timeout" for c in e["checks"]) for e in entries):
            findings.append(out_of_time(args))
        for entry in entries:
            for finding in diagnose(entry, entry.pop("hellos", {}), launch):
                if finding["text"] not in [f["text"] for f in findings]:
                    findings.append(finding)
    except UsageError:
        raise
    except Interrupted:
        name = signal.Signals(STOP[-1]).name
        code = 128 + STOP[-1]
        findings = [
            {
                "id": "interrupted",
                "text": f"interrupted by {name}; every rank was ended",
                "evidence": [],
                "fix": "",
                "see": "",
            }
        ]
    except OutOfTime:
        code, findings = 5, [out_of_time(args)]
    except Exception as error:
        problem = error if isinstance(error, Problem) else unforeseen(error, launch, args.verbose)
        code, findings = problem.exit_code, [problem.finding]
        if launch and launch["rank"] > 0:
            return report_above_0(args, launch, problem, env, end)
        if launch and launch["kind"] == "torchrun" and dist and problem.known == "to me":
            with contextlib.suppress(Exception):  # the other ranks need not wait for this one
                meet(launch, time.monotonic() + 1).set("over", str(code))
    return make_report(entries, code, env, findings)


def unforeseen(error, launch, verbose):
    """Problem for an exception of the supervisor itself: a cause that its text names, else the text."""
    text = f"{type(error).__name__}: {shorten(str(error), 600)}"
    text += scarce(text)
    where = traceback.format_exc().splitlines()[-9:] if verbose else []
    pattern = next((p for p in TEXTS if p in text), None)
    if pattern is None:
        return Problem("unexpected", 4, text, evidence=where, fix="--verbose shows where")
    who = f"rank {launch['rank']} on {socket.gethostname()}" if launch else f"the smoke on {socket.gethostname()}"
    finding = finding_by_text(pattern, who, text)
    problem = Problem(finding["id"], 4, finding["text"])
    problem.finding.update(finding, evidence=[*finding["evidence"], *where])
    return problem


def report_above_0(args, launch, problem, env, end):
    """What a rank above 0 does with what keeps it out: an exit code where rank 0 reports it, else its own report."""
    print(f"distributed_smoke.py: {problem.finding['text']}", file=sys.stderr, flush=True)
    told = problem.known == "to all" or problem.known == "to me" and bool(dist) and tell_rank_0(launch, problem, end)
    report = of_rank(launch, make_report([], problem.exit_code, env, [problem.finding]))
    if not told:
        return report
    if problem.known == "to me":
        print(as_text(report, args.verbose), file=sys.stderr)
    return problem.exit_code


def of_rank(launch, report):
    """The report, marked with the rank where it is not rank 0's."""
    if launch["rank"] == 0:
        return report
    return {**report, "rank": launch["rank"], "host": socket.gethostname()}


def drop_stacks():
    """From here on what C++ code of this process prints to stderr is dropped; what Python prints still goes there."""
    sys.stderr.flush()
    ours = os.fdopen(os.dup(2), "w", buffering=1, encoding=sys.stderr.encoding, errors="backslashreplace")
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    os.close(null)
    sys.stderr = ours


@contextlib.contextmanager
def temporary_folder():
    """A folder that is gone afterwards; Problem where none can be made."""
    try:
        folder = tempfile.TemporaryDirectory(prefix="ignite-smoke-", ignore_cleanup_errors=True)
    except OSError as e:
        raise Problem(
            "no-temporary-folder",
            4,
            f"no temporary folder can be made: {e}",
            evidence=[f"TMPDIR={os.environ.get('TMPDIR', 'not set')}"],
            fix="export TMPDIR=<a folder that exists, is writable and has space>",
        ) from None
    with folder as path:
        yield path


class OutOfTime(Exception):
    """The deadline passed while torch or ignite were imported."""


def on_alarm(_number, _frame):
    raise OutOfTime


def out_of_time(args):
    return {
        "id": "deadline",
        "text": f"--timeout {args.timeout:g} was over before the checks were done, and no check hangs",
        "evidence": ["importing torch takes seconds, many on a busy machine"],
        "fix": "--timeout 300",
        "see": "",
    }


def deliver(args, report):
    """Print the report, and write it where --output says."""
    if args.format == "json":
        text = json.dumps(report, indent=1)
    elif args.env and report["environment"]:
        text = env_text(report["environment"])
        print(*(f"distributed_smoke.py: {f['text']}\n" for f in report["diagnosis"]), sep="", end="", file=sys.stderr)
    else:
        text = as_text(report, args.verbose)
    if "rank" not in report and (args.format == "json" or report["exit_code"] == 3 and not report["environment"]):
        for finding in report["diagnosis"]:
            command = f": {finding['fix']}" if report["exit_code"] == 3 and finding["fix"] else ""
            print(f"distributed_smoke.py: {finding['text']}{command}", file=sys.stderr)
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    except OSError as e:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        print(f"distributed_smoke.py: the report cannot be written: {e}", file=sys.stderr)
        return report["exit_code"] or 1
    if args.output and not ("rank" in report and written_since_start(args.output)):  # by rank 0
        with open(args.output, "w", encoding="utf-8", errors="backslashreplace") as f:
            f.write(text + "\n")
    return report["exit_code"]


def written_since_start(path):
    with contextlib.suppress(OSError):
        return os.path.getsize(path) > 0 and os.path.getmtime(path) > time.time() - (time.monotonic() - STARTED)
    return False


def main(argv=None):
    argv = sys.argv[1:] if argv is None else argv
    if sys.platform == "win32":  # pipes between processes, signals and poll() are used as POSIX has them
        print("distributed_smoke.py: needs Linux or macOS; on Windows run it under WSL", file=sys.stderr)
        return 2
    open_standard_streams()
    gc.disable()  # a short life: collecting during the imports costs a seventh of them, and forks share more pages
    if argv[:1] == ["--be-rank"]:
        commands, events = map(int, argv[1].split(","))
        import_libraries()
        be_rank(commands, events, argv[2], argv[3])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, on_signal)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a parent that ignores it would take the ranks' ends from us
    args = None
    try:
        args = parse(argv)
        if args.list:
            print(json.dumps(list(CHECKS)) if args.format == "json" else "\n".join(CHECKS))
            return 0
        report = run(args)
        if isinstance(report, int):
            return report
        return deliver(args, report)
    except UsageError as e:
        print(f"distributed_smoke.py: {e} (--help shows the usage)", file=sys.stderr)
        if args and (args.format == "json" or args.output) and os.environ.get("RANK", "0") == "0":
            finding = {"id": "usage", "text": str(e), "evidence": [], "fix": "--help shows the usage", "see": ""}
            with contextlib.redirect_stderr(io.StringIO()):
                return deliver(args, make_report([], 2, {}, [finding]))
        return 2
    except OSError as e:
        print(f"distributed_smoke.py: {e}", file=sys.stderr)
        return 2
    except Interrupted:
        return 128 + STOP[-1]


def open_standard_streams():
    """Whoever started this may have closed them, or chosen an encoding that cannot hold the report."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w" if number else "r"))
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")


def leave(code):
    """End without the interpreter's own tear-down of torch, which takes a fifth of the time of its import."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    try:
        status = main()
    except SystemExit as e:
        status = e.code if isinstance(e.code, int) else 0 if e.code is None else 1
    leave(status)
