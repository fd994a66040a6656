"""references/utils.md: signatures, and what each helper of `ignite.utils` does to which input."""
from __future__ import annotations

import hashlib
import importlib
import inspect
import logging
import os
import random
import sys
import tempfile
import warnings
from pathlib import Path

import ignite.distributed as idist
import numpy as np
import torch
from ignite import utils
from ignite.engine import Engine
from probes import utils as probe
from support.claims import COUNTS, proves
from support.pages import read_page
from support.world import run_serial, run_world, values

PAGE = "references/utils.md"
WIDTH = 140


def public_names() -> list[str]:
    """In `__all__`, or defined in the module without an underscore before them."""
    own = [n for n, v in vars(utils).items() if inspect.isfunction(v) and v.__module__ == utils.__name__]
    return [n for n in dict.fromkeys([*utils.__all__, *own]) if not n.startswith("_")]


def signature(name: str) -> str:
    """As the page prints it: annotations as written, one parameter per line when the line is long."""
    described = inspect.signature(getattr(utils, name))
    returns = described.return_annotation
    parameters = [
        f"{p.name}: {p.annotation}" + ("" if p.default is p.empty else f" = {p.default!r}")
        for p in described.parameters.values()
    ]
    line = f"{name}({', '.join(parameters)}) -> {returns}"
    if len(line) <= WIDTH:
        return line
    return f"{name}(\n" + "".join(f"    {p},\n" for p in parameters) + f") -> {returns}"


def signed(entry) -> None:
    """The entry's signature fence is the installed signature."""
    fences = [f for f in entry.entry.fences if (f.language, f.mark) == ("python", "signature")]
    wanted = signature(entry.entry.heading)
    assert len(fences) == 1, f"{entry.entry.where}: one fence '```python signature' is wanted, with\n{wanted}"
    assert fences[0].text.strip() == wanted, (
        f"{entry.entry.page}:{fences[0].line}: the signature reads\n{fences[0].text}but the installed one is\n{wanted}"
    )
    COUNTS["signatures compared with the library"] += 1


def error(function) -> str:
    """`Class: text` of what the function raises."""
    try:
        made = function()
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    raise AssertionError(f"raised nothing, gave {made!r}")


def serial(function):
    (value,) = values([run_serial(function)])
    return value


def kinds(logger: logging.Logger) -> list[str]:
    return [type(h).__name__ for h in logger.handlers]


def forget_loggers() -> None:
    """As in a process that has asked for no logger of Ignite yet."""
    for name in [n for n in logging.root.manager.loggerDict if n.partition(".")[0] == "ignite"]:
        del logging.root.manager.loggerDict[name]


@proves(f"{PAGE}#igniteutils")
def contents(entry):
    headings = [e.heading for e in read_page(PAGE).entries if any(f.mark == "signature" for f in e.fences)]
    wanted = public_names()
    assert sorted(headings) == sorted(wanted), f"{PAGE}: the entries are {headings}, the public names {wanted}"
    titles = [e.heading for e in read_page(PAGE).entries if e.level > 1]
    entry.says(" · ".join(titles))


@proves(f"{PAGE}#setup_logger")
def logger(entry):
    signed(entry)

    def twice():
        before = kinds(logging.getLogger())
        first = utils.setup_logger("a")
        second = utils.setup_logger("a", level=logging.DEBUG, filepath="never.log")
        root = utils.setup_logger(name=None, level=logging.DEBUG)
        return (first is second, kinds(second), second.level == logging.INFO, os.path.exists("never.log"),
                kinds(root) == before and root.level != logging.DEBUG)

    def fresh():
        forget_loggers()
        return kinds(utils.setup_logger())

    def after_engine():
        forget_loggers()
        Engine(lambda e, b: None)
        library = utils.setup_logger()
        before, lost = kinds(library), library.isEnabledFor(logging.INFO)
        utils.setup_logger(reset=True)
        return library.name, before, lost, kinds(library), library.level

    same, handlers, info, written, root = serial(twice)
    assert same and handlers == ["StreamHandler"] and info and not written and root, entry.entry.where
    name, before, enabled, after, level = serial(after_engine)
    assert (before, enabled, after, level) == ([], False, ["StreamHandler"], logging.INFO), entry.entry.where
    assert serial(fresh) == ["StreamHandler"], entry.entry.where  # nobody has asked for one below it
    entry.says(
        "A logger that exists stays as it is. Level, handlers and `filepath` of the second call are ignored in "
        "silence. "
        "A logger exists as soon as anyone asked for it or for one below it",
        f"once an `Engine` was made, `setup_logger()` returns the logger `{name}` with no handler and its INFO lines "
        f"are "
        "lost, and `setup_logger(name=None)`, the root logger, never does anything. Pass `reset=True`, or a name of "
        "your "
        "own before anything else uses it.",
    )

    def ranks(rank):
        with tempfile.TemporaryDirectory() as folder:
            new = utils.setup_logger("new", filepath=f"{folder}/log")
            opened = os.path.exists(f"{folder}/log")
        logging.basicConfig(format="%(message)s", force=True)
        old = logging.getLogger("old")
        utils.setup_logger("old")
        old.error("through the root")
        forced = utils.setup_logger("forced", distributed_rank=0)
        return kinds(new), new.propagate, opened, kinds(old), old.propagate, kinds(forced)

    outcomes = run_world(2, ranks)
    zero, one = values(outcomes)
    assert zero == (["StreamHandler", "FileHandler"], False, True, [], True, ["StreamHandler"]), entry.entry.where
    assert one[1] is False and one[2] is False and one[4] is True and one[5] == ["StreamHandler"], entry.entry.where
    assert all("through the root" in o.output for o in outcomes), entry.entry.where
    ((handler,), (same_handler,)) = one[0], one[3]
    assert handler == same_handler, entry.entry.where
    entry.says(
        f"On ranks above 0 every handler is removed and a `{handler}` put in, no file is opened. What existed before "
        f"goes "
        "on propagating, so with a handler on the root logger (`logging.basicConfig`) every rank still prints. "
        f"A new one has `propagate={one[1]}`.",
        "`distributed_rank=0` makes a rank log, whichever it is.",
    )

    def early(rank):
        made = utils.setup_logger("early")
        before = kinds(made)
        idist.initialize("gloo")
        utils.setup_logger("early")
        now = idist.get_rank(), kinds(made)
        idist.finalize()
        return before, now

    first, second = values(run_world(2, early, init=None))
    assert first == (["StreamHandler"], (0, ["StreamHandler"])) and second == (["StreamHandler"], (1, ["NullHandler"]))
    entry.says("The rank is that of the moment of the call: before `idist.initialize` every process is rank 0 and "
               "logs; "
               "called again afterwards, ranks above 0 fall silent without `reset`.")

    def file():
        with tempfile.TemporaryDirectory() as folder:
            made = utils.setup_logger("f", filepath=f"{folder}/log")
            stream, handler = made.handlers
            utils.setup_logger("f", reset=True)
            missing = error(lambda: utils.setup_logger("g", filepath=f"{folder}/no/log"))
            return stream.stream is sys.stderr, handler.mode, handler.encoding, handler.stream.closed, missing

    stream, mode, encoding, closed, missing = serial(file)
    assert stream and encoding == "utf-8" and closed is False, entry.entry.where
    entry.says(f"Rank 0 writes to stderr, and to `filepath` too, appending (mode `{mode}`) in {encoding.upper()}. A "
               f"folder "
               f"that is not there: `{missing.partition(':')[0]}`. `reset=True` leaves the old file open.")

    def engine():
        own = Engine(lambda e, b: None).logger
        return own.name, kinds(own), kinds(utils.setup_logger("trainer"))

    name, none, some = serial(engine)
    assert none == [] and some, entry.entry.where
    entry.says("An engine's lines: `trainer.logger = setup_logger(\"trainer\")`; "
               f"its own logger, `{name}`, has no handler.")


@proves(f"{PAGE}#manual_seed")
def seed(entry):
    signed(entry)

    def draws():
        generator, numbers = torch.Generator(), np.random.default_rng(1)
        untouched = generator.initial_seed(), numbers.bit_generator.state["state"]["state"]
        utils.manual_seed(3)
        one = random.random(), torch.rand(1).item(), np.random.rand()
        utils.manual_seed(3)
        two = random.random(), torch.rand(1).item(), np.random.rand()
        kept = generator.initial_seed(), numbers.bit_generator.state["state"]["state"]
        return one == two, untouched == kept, torch.are_deterministic_algorithms_enabled()

    repeated, untouched, deterministic = serial(draws)
    assert repeated and untouched, entry.entry.where
    entry.says("and NumPy's global state; `numpy.random.default_rng()`, `torch.Generator()` and the seeds of other "
               "ranks are not touched.",
               f"It makes no algorithm deterministic: `torch.are_deterministic_algorithms_enabled()` stays "
               f"`{deterministic}`.")
    source = "torch/random.py, manual_seed: torch.cuda.manual_seed_all"
    entry.not_verified("Seeds `random`, `torch` (CUDA devices too", source)

    def rank(r):
        utils.manual_seed(3)
        return torch.rand(1).item(), (utils.manual_seed(3 + idist.get_rank()), torch.rand(1).item())[1]

    (a, own_a), (b, own_b) = values(run_world(2, rank))
    assert a == b and own_a != own_b, entry.entry.where
    entry.says("Every rank draws the same numbers: add `idist.get_rank()`.")

    def wrong(value):
        utils.manual_seed(5)
        before = random.random(), torch.rand(1).item()
        utils.manual_seed(5)
        text = error(lambda: utils.manual_seed(value))
        return text, (random.random(), torch.rand(1).item()) != before and torch.initial_seed()

    said = {value: serial(lambda: wrong(value)) for value in (-1, 2**32)}
    assert said[2**32][1] == 2**32 and said[-1][1] == 2**64 - 1, said
    ((text,), largest) = {t for t, _ in said.values()}, 2**32 - 1
    assert serial(lambda: utils.manual_seed(largest)) is None, entry.entry.where
    entry.says(f"NumPy takes 0 to {largest}. `manual_seed(-1)` and `manual_seed(2**32)` raise `{text}`, after "
               f"`random` and "
               "`torch` have been seeded.")


@proves(f"{PAGE}#convert_tensor")
def convert(entry):
    signed(entry)
    rows = probe.table("CONVERT")
    entry.table(rows)
    assert {"the same object", "new, of its type", "`TypeError`"} <= {r[1] for r in rows}, entry.entry.where
    number = error(lambda: utils.convert_tensor([torch.ones(1), 1]))
    assert all(error(lambda: utils.convert_tensor(bad)).startswith(number.partition("; found")[0])
               for _, bad in probe.inputs() if isinstance(bad, (type(None), np.ndarray, set)))
    mapping = next(v for text, v in probe.inputs() if "defaultdict" in text)
    entry.says(
        f"`TypeError` is `{number}`, with the class that was found. So a batch may hold no number, `None` or array: "
        f"leave "
        "them out in `collate_fn`, or pass a `prepare_batch` of your own.",
        f"For a `defaultdict` it is `{error(lambda: utils.convert_tensor(mapping))}`.",
        "A tensor that is there already comes back as the same object, a container always as a new one of its type.",
    )
    x = torch.ones(1)
    batch = [x, x]
    made = utils.convert_tensor(batch, device="cpu")
    assert made is not batch and made[0] is x, entry.entry.where
    moved = utils.convert_tensor({"a": [x]}, device="meta")
    assert moved["a"][0].device.type == "meta", entry.entry.where

    from ignite.engine import create_supervised_evaluator

    calls = []
    module = importlib.import_module("ignite.engine")
    kept, module.convert_tensor = module.convert_tensor, lambda t, **kw: calls.append(t) or t
    try:
        create_supervised_evaluator(torch.nn.Identity()).run([("x", "y")])
    finally:
        module.convert_tensor = kept
    assert calls == ["x", "y"], entry.entry.where
    entry.says("Moves every tensor in a nested batch; it is what the supervised engines' `prepare_batch` does with "
               "`x` and "
               "with `y`.")


@proves(f"{PAGE}#apply_to_tensor")
def to_tensor(entry):
    signed(entry)
    batch = {"a": [torch.ones(1), "s"]}
    made = utils.apply_to_tensor(batch, lambda t: t + 1)
    assert made == utils.apply_to_type(batch, torch.Tensor, lambda t: t + 1) == {"a": [torch.tensor([2.0]), "s"]}
    entry.says("`apply_to_type(x, torch.Tensor, func)`: the same structure, `func(t)` in the place of each tensor.")


@proves(f"{PAGE}#apply_to_type")
def to_type(entry):
    signed(entry)
    upper = utils.apply_to_type(["a"], str, str.upper)
    wrong = error(lambda: utils.apply_to_type([1, 2.0], int, str))
    assert utils.apply_to_type([1, "a", b"b"], int, str) == ["1", "a", b"b"], entry.entry.where
    seen = []
    utils.apply_to_type([True], int, seen.append)
    assert seen == [True], entry.entry.where
    entry.says(
        f"The type is asked first: `apply_to_type(['a'], str, str.upper)` gives `{upper}`. Otherwise text and bytes "
        f"pass as "
        f"they are, and whatever else is no container raises: `apply_to_type([1, 2.0], int, str)` gives `{wrong}`.",
        f"A subclass counts: with `int`, `{seen[0]}` is passed to `func`.",
    )


@proves(f"{PAGE}#to_onehot")
def onehot(entry):
    signed(entry)
    made = utils.to_onehot(torch.zeros(2, 4, 5, dtype=torch.long), 3)
    assert made.shape == (2, 3, 4, 5) and made[:, 0].all() and not made[:, 1:].any(), entry.entry.where
    assert utils.to_onehot(torch.zeros(1, dtype=torch.long, device="meta"), 2).device.type == "meta", entry.entry.where
    wrapped = (-utils.to_onehot(torch.tensor([0]), 1)).item()
    entry.says(f"Shape (N, …) becomes (N, num_classes, …), on the same device, as `{made.dtype}`: subtract and "
               f"multiply "
               f"after `.float()`, since `-to_onehot(…)` wraps to {wrapped}.")
    kinds_of_index = (torch.int64, torch.int32, torch.uint8, torch.int16, torch.bool, torch.float32)
    fine, texts = [], set()
    for dtype in kinds_of_index:
        try:
            utils.to_onehot(torch.ones(1).to(dtype), 3)
            fine.append(str(dtype).removeprefix("torch."))
        except RuntimeError as e:
            texts.add(f"RuntimeError: {e}")
    (text,) = texts
    large, negative = (error(lambda: utils.to_onehot(torch.tensor([i]), 3)) for i in (3, -1))
    assert negative == large.replace("index 3", "index -1"), entry.entry.where
    entry.says(f"Indices are {' or '.join(fine)}; others raise `{text}`.",
               f"A class that is too large or negative: `{large}`, so mask an `ignore_index` first.",
               f"A scalar tensor: `{error(lambda: utils.to_onehot(torch.tensor(1), 3))}`.")


@proves(f"{PAGE}#hash_checkpoint")
def hashed(entry):
    signed(entry)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.ckpt.pth")
        path.write_bytes(b"abc")
        new, digest = utils.hash_checkpoint(path, f"{folder}/made")
        assert not path.exists() and new.parent == Path(folder, "made") and os.listdir(new.parent) == [new.name]
        assert hashlib.sha256(b"abc").hexdigest().startswith(digest)
        again = error(lambda: utils.hash_checkpoint(path, folder)).replace(f"{folder}.", "…")
        path.write_bytes(b"abc")
        missing = error(lambda: utils.hash_checkpoint(path, Path(folder, "none")))
        assert path.exists()
    short = new.stem.rpartition("-")[2]
    entry.says(
        f"It moves the file: `{path.name}` is gone, `{new.name}` is there, whatever the suffix was. It returns the "
        f"new path "
        f"and all {len(digest)} digits of the SHA-256, not the {len(short)} of the file name. On several ranks run it "
        f"on "
        f"one: the second raises `{again}`.",
        f"`output_dir` is made if it is a `str`; a `Path` that does not exist raises `{missing.partition(': ')[0]}: "
        f"{missing.partition(': ')[2].partition(': ')[0]}: …`, and the checkpoint stays.",
    )


@proves(f"{PAGE}#deprecated")
def decorator(entry):
    signed(entry)
    assert "deprecated" not in utils.__all__, entry.entry.where
    function = utils.deprecated("1.0")(lambda: 1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function(), function()
    (category,) = {w.category.__name__ for w in caught}
    assert len(caught) == 2, entry.entry.where
    raised = error(utils.deprecated("1.0", raise_exception=True)(lambda: 1))
    assert raised.startswith(f"{category}:"), entry.entry.where
    entry.says(f"A decorator of Ignite's own, not in `__all__`: each call of the function warns with a `{category}`, "
               f"or "
               "raises it with `raise_exception=True`.")


@proves(f"{PAGE}#who-uses-what")
def uses(entry):
    entry.table(probe.table("USES"))
    (private,) = [n for n in utils.__all__ if n.startswith("_")]
    lines = utils._to_str_list({"a": {"b": 1}})
    assert lines and all(isinstance(line, str) for line in lines), entry.entry.where
    entry.says(f"Read off the imports of the installed package; `{private}`, also in `__all__`, makes log lines of "
               f"nested "
               "metrics.")
