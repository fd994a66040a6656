"""Promise: a room's api-reference.md has each public name of the room's package once, with the signature as installed.

The pages are found: sub-skills/ROOM/references/api-reference.md speaks of `ignite.ROOM` (that of the engine room of
`ignite.base` too). A name stands there in one of three forms:

- an entry of its own, "### `Name`", with one fence ```python signature that holds its signature, and perhaps more;
- in a family: a ```python signature fence under another heading, which holds the signatures of several names;
- in a table whose first column is headed `name` and which has a column `arguments`: the first cell is `Name`, the other
  what the function `arguments` below renders, the parameters without annotations.

A room whose page has another form has a test of its own, test_ROOM_reference.py, and is left to it but for the last
promise: no name has an entry on two pages. In the rooms of METHODS the public methods of each class count as names.
Where modules of one package have different things under one name, as the loggers' `OutputHandler`, the name is
`module.Name`.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import textwrap
from enum import Enum
from pathlib import Path
from types import ModuleType

import ignite.distributed as idist
import pytest
from probes import collectives
from proofs.distributed.api_reference import PAGE, since_notes
from support import BUNDLE
from support.claims import COUNTS
from support.pages import Page, _parse, read_page

WIDTH = 140  # a signature that is longer has one parameter per line
FOUND = {p.parts[-3]: p.relative_to(BUNDLE) for p in sorted(BUNDLE.glob("sub-skills/*/references/api-reference.md"))}
PAGES = {r: p for r, p in FOUND.items() if not Path(__file__).with_name(f"test_{r}_reference.py").exists()}
PACKAGES = {"engine": ("ignite.engine", "ignite.base")}  # of the other rooms: ignite.ROOM
METHODS = ("distributed", "engine")


def modules(package: str) -> list[ModuleType]:
    """The package and every public module in it that imports."""
    found = [importlib.import_module(package)]
    for module in pkgutil.walk_packages(found[0].__path__, f"{package}."):
        if not any(part.startswith("_") for part in module.name.split(".")):
            try:
                found.append(importlib.import_module(module.name))
            except ImportError:  # of a package that is not installed
                COUNTS["modules that need a package that is not here"] += 1
    return found


def names_in(module: ModuleType) -> list[str]:
    """`__all__`, or else the public names defined in the module; names of modules apart."""
    listed = getattr(module, "__all__", None)
    if listed is None:
        listed = [n for n, v in vars(module).items()
                  if not n.startswith("_") and getattr(v, "__module__", None) == module.__name__]  # fmt: skip
    return [n for n in listed if not inspect.ismodule(getattr(module, n))]


def public_names(room: str = "distributed") -> dict[str, object]:
    """Every public name of the room's packages, in the order of their modules, and what it is."""
    if room == "distributed":
        names = {n: getattr(idist, n) for m in (idist.launcher, idist.utils, idist.auto) for n in m.__all__}
    else:
        found = {}  # name -> [(module, value)], without the same thing twice
        for module in (m for package in PACKAGES.get(room, (f"ignite.{room}",)) for m in modules(package)):
            for name in names_in(module):
                known = found.setdefault(name, [])
                if not any(value is getattr(module, name) for _, value in known):
                    known.append((module.__name__.rpartition(".")[2], getattr(module, name)))
        names = {(f"{module}.{name}" if len(known) > 1 else name): value
                 for name, known in found.items() for module, value in known}  # fmt: skip
    methods = {}
    for owner, value in names.items():
        if inspect.isclass(value) and room in METHODS:
            methods |= {
                f"{owner}.{n}": v for n, v in vars(value).items() if inspect.isfunction(v) and not n.startswith("_")
            }
    assert names and (methods or room not in METHODS)
    return names | methods


def unlisted_names() -> set[str]:
    """Names that `from ignite.distributed import x` offers beside those in __all__; submodules apart."""
    return {n for n, v in vars(idist).items() if not n.startswith("_") and not inspect.ismodule(v)} - set(
        public_names()
    )


def parameters(value: object) -> list[inspect.Parameter]:
    """The parameters without `self`; a default that is a function prints as its source or name, not as its address."""
    found, source = [], written_defaults(value)
    for p in inspect.signature(value).parameters.values():
        if p.name == "self":
            continue
        if isinstance(p.annotation, str):
            p = p.replace(annotation=_Bare(p.annotation))
        if p.default is not p.empty and (callable(p.default) or " at 0x" in repr(p.default)):
            p = p.replace(default=_Bare(source.get(p.name) or getattr(p.default, "__name__", "…")))
        found.append(p)
    return found


def listed(found: list[inspect.Parameter]) -> list[str]:
    """The parameters as text, with the lone * before those that go by keyword only."""
    kinds = [p.kind for p in found]
    texts = [str(p) for p in found]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        texts.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    return texts


def written_defaults(value: object) -> dict[str, str]:
    """Parameter -> default, as the source has it."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(value.__init__ if inspect.isclass(value) else value)))
    except (OSError, TypeError, SyntaxError, IndentationError):
        return {}
    args = tree.body[0].args
    positional = [*args.posonlyargs, *args.args]
    pairs = [*zip(positional[::-1], args.defaults[::-1]), *zip(args.kwonlyargs, args.kw_defaults)]
    return {arg.arg: ast.unparse(default) for arg, default in pairs if default is not None}


def rendered(name: str, value: object, prefix: str = "idist.") -> str:
    """The signature of a public name as the page prints it: annotations without the quotes that postponed
    evaluation gives them, no `self`, one parameter per line when long; of an enumeration its members."""
    if not callable(value):
        return f"{prefix}{name}: {type(value).__name__}"
    if inspect.isclass(value) and issubclass(value, Enum):
        parts, tail = list(value.__members__), ""
    else:
        parts, tail = listed(parameters(value)), ""
        returns = inspect.signature(value).return_annotation
        if returns is not inspect.Signature.empty and not inspect.isclass(value):
            tail = f" -> {inspect.formatannotation(returns).strip(chr(34) + chr(39))}"
    line = f"{prefix}{name}({', '.join(parts)}){tail}"
    if len(line) <= WIDTH:
        return line
    return f"{prefix}{name}(\n" + "".join(f"    {p},\n" for p in parts) + f"){tail}"


def arguments(value: object) -> str:
    """The parameters as a table's column `arguments` prints them: names and defaults."""
    return ", ".join(listed([p.replace(annotation=inspect.Parameter.empty) for p in parameters(value)]))


class _Bare(str):
    """Text that prints without quotes."""

    def __repr__(self) -> str:
        return str(self)


def page_of(source: str) -> Page:
    return _parse(Path("page.md"), source, source, 0)


def signatures(fence) -> list[tuple[str, str, int]]:
    """(name, signature, line) of each signature in a fence; an indented or closing line belongs to the one above."""
    found = []
    for number, line in enumerate(fence.text.splitlines()):
        if line.strip() and not line.startswith((" ", ")")):
            found.append([re.match(r"(?:idist\.)?([\w.]*)", line)[1], [line], fence.line + number])
        elif line.strip() and found:
            found[-1][1].append(line)
    return [(name, "\n".join(lines), at) for name, lines, at in found]


def documented(page: Page) -> list[tuple[str, str, str | None, str | None]]:
    """(name, where, signature, arguments) of each name on the page; None for what the form does not have."""
    found = []
    for entry in page.entries:
        fences = [f for f in entry.fences if (f.language, f.mark) == ("python", "signature")]
        own = entry.level == 3 and re.search(rf"(?m)^### `{re.escape(entry.heading)}`$", page.source)
        if own:
            first, *more = signatures(fences[0]) if len(fences) == 1 else [(entry.heading, None, entry.line)]
            found.append((entry.heading, f"{page.path}:{first[2]}", first[1], None))
            found += [(name, f"{page.path}:{at}", text, None) for name, text, at in more]
        else:
            found += [(name, f"{page.path}:{at}", text, None) for f in fences for name, text, at in signatures(f)]
        for table in entry.tables:
            if table.rows[0][0] == "name" and "arguments" in table.rows[0]:
                column = table.rows[0].index("arguments")
                found += [(row[0].strip("`"), f"{page.path}:{table.line + i + 1}", None, row[column].strip("`"))
                          for i, row in enumerate(table.rows[1:], 1)]  # fmt: skip
    return found


def wrong_names(page: Page, room: str = "distributed") -> list[str]:
    """Public names that the page lacks, what stands there and is no public name, names that stand there twice."""
    stated, known = documented(page), public_names(room)
    names = [name for name, *_ in stated]
    problems = [f"{page.path}: no entry `{name}`: add a heading '### `{name}`'" for name in known if name not in names]
    problems += [f"{at}: `{name}` is no public name of ignite.{room}" for name, at, *_ in stated if name not in known]
    problems += [f"{at}: a second entry `{name}`" for i, (name, at, *_) in enumerate(stated) if name in names[:i]]
    COUNTS["entries of the API reference compared with the library"] += len(stated)
    return problems


def wrong_signatures(page: Page, room: str = "distributed") -> list[str]:
    """Names whose signature is missing on the page or not what the installed library has."""
    known, problems = public_names(room), []
    prefix = "idist." if room == "distributed" else ""
    for name, at, signature, stated in documented(page):
        if name not in known:
            continue
        wanted = rendered(name, known[name], prefix)
        if stated is not None:
            if stated != arguments(known[name]):
                wanted = arguments(known[name])
                problems.append(f"{at}: the arguments of {name} read\n{stated}\nbut installed are\n{wanted}")
        elif signature is None:
            problems.append(f"{at}: 0 fences '```python signature', or more than one; expected one with\n{wanted}")
        elif signature != wanted:
            problems.append(f"{at}: the signature reads\n{signature}\nbut the installed one is\n{wanted}")
        COUNTS["signatures compared with the library"] += 1
    return problems


def wrong_contents(page: Page) -> list[str]:
    """Entries that the contents list does not link to, links to no entry, and links that do not bear its name."""
    headings = {e.anchor: e.heading for e in page.entries}
    links = [(m[1].replace("`", ""), m[2]) for m in re.finditer(r"\[([^\]]+)\]\(#([^)]+)\)", page.source)]
    targets = [anchor for _, anchor in links]
    problems = [f"{page.path}: no entry #{anchor}" for _, anchor in links if anchor not in headings]
    problems += [
        f"{page.path}: the link '{text}' leads to «{headings[anchor]}»"
        for text, anchor in links
        if headings.get(anchor, text) != text
    ]
    problems += [
        f"{e.where}: `{e.heading}` is not in the contents list"
        for e in page.entries
        if e.level > 1 and e.anchor not in targets
    ]
    COUNTS["links of the API reference followed"] += len(links)
    return problems


def page(room: str = "distributed") -> Page:
    return read_page(PAGES[room])


def test_the_pages_are_found():
    assert {"distributed", "engine"} <= set(PAGES) and str(PAGES["distributed"]) == PAGE
    assert all(public_names(room) for room in PAGES)


@pytest.mark.parametrize("room", PAGES)
def test_every_public_name_has_one_entry(room):
    assert len(documented(page(room))) > 1
    problems = wrong_names(page(room), room)
    assert not problems, "\n" + "\n".join(problems)


def test_no_name_is_on_two_pages():
    stated = [(name, at) for path in FOUND.values() for name, at, *_ in documented(read_page(path))]
    first = {}
    twice = [f"{at}: `{name}` stands at {first[name]} too" for name, at in stated if first.setdefault(name, at) != at]
    assert not twice, "\n" + "\n".join(twice)


def test_the_lists_of_public_names_are_whole():
    assert not unlisted_names(), f"public but in no __all__: {unlisted_names()}"


@pytest.mark.parametrize("room", PAGES)
def test_each_signature_is_the_installed_one(room):
    problems = wrong_signatures(page(room), room)
    assert not problems, "\n" + "\n".join(problems)


@pytest.mark.parametrize("room", PAGES)
def test_contents_list_is_whole(room):
    problems = wrong_contents(page(room))
    assert not problems, "\n" + "\n".join(problems)


def test_each_probed_collective_has_a_table():
    tables = {e.heading: len(e.tables) for e in page().entries}
    missing = [name for name in collectives.PROBES if tables.get(name) != 1]
    assert collectives.PROBES and not missing, f"{PAGE}: one table each is missing in {missing}"


@pytest.mark.parametrize("room", PAGES)
def test_no_entry_has_an_anchor_with_a_number(room):
    """Two equal headings would silently move the second one's anchor."""
    assert not [e.where for e in page(room).entries if re.search(r"-\d+$", e.anchor)]


def test_since_notes_are_read():
    assert {kind for _, kind, _ in since_notes()} == {"Since", "Changed in"}


KNOWN_BAD = """# A page

[a](#nowhere) [host name](#hostname)

### `barrier`

```python signature
idist.barrier(group=None) -> None
```

### `hostname`

No fence.

### `no_such_name`

### `hostname`
"""


def test_the_checks_find_what_is_wrong_on_a_bad_page():
    bad = page_of(KNOWN_BAD)
    names = "\n".join(wrong_names(bad))
    assert "no entry `all_reduce`" in names and "no entry `Parallel.run`" in names
    assert "`no_such_name` is no public name" in names and "a second entry `hostname`" in names
    signatures = wrong_signatures(bad)
    assert "page.md:8: the signature reads" in signatures[0] and "idist.barrier() -> None" in signatures[0]
    assert "0 fences" in signatures[1] and "idist.hostname() -> str" in signatures[1]
    assert any("no entry #nowhere" in p for p in wrong_contents(bad))
    assert any("'host name' leads to «hostname»" in p for p in wrong_contents(bad))
    assert any("`barrier` is not in the contents list" in p for p in wrong_contents(bad))


def test_the_checks_pass_a_good_entry():
    good = page_of("### `barrier`\n\n```python signature\nidist.barrier() -> None\n```\n")
    assert not wrong_signatures(good)
    assert not [p for p in wrong_names(good) if "barrier" in p]


def test_a_signature_shows_what_changed(monkeypatch):
    """A default, a parameter or an annotation that changes in the library changes the rendering."""

    def barrier(group: int | None = None) -> None: ...

    assert rendered("barrier", barrier) == "idist.barrier(group: int | None = None) -> None"
    monkeypatch.setattr(idist, "barrier", barrier)
    assert wrong_signatures(page_of("### `barrier`\n\n```python signature\nidist.barrier() -> None\n```\n"))


FAMILY = """# A page

## Family

```python signature
update_dataloader(
    dataloader: torch.utils.data.dataloader.DataLoader,
    new_batch_sampler: torch.utils.data.sampler.BatchSampler,
) -> torch.utils.data.dataloader.DataLoader
Engine.interrupt(now: bool) -> None
```

| name | arguments |
| --- | --- |
| `Engine.terminate` | `skip_completed=True` |
| `Engine.set_data` | `data` |
| `Engine.stop` | `` |
"""


def test_the_checks_read_families_and_tables():
    page = page_of(FAMILY)
    names = "\n".join(wrong_names(page, "engine"))
    assert "no entry `Engine`" in names and "`Engine.stop` is no public name of ignite.engine" in names
    assert not re.search("no entry `(update_dataloader|Engine.interrupt|Engine.terminate|Engine.set_data)`", names)
    wrong = wrong_signatures(page, "engine")
    assert len(wrong) == 2, wrong
    assert wrong[0].startswith("page.md:10: the signature reads\nEngine.interrupt(now: bool)")
    assert wrong[1].startswith("page.md:15: the arguments of Engine.terminate") and "skip_completed=False" in wrong[1]


def test_a_function_as_default_is_rendered_as_it_is_written():
    def f(x, key=lambda a: a + 1, kind=int, *, other=len): ...

    assert rendered("f", f, "") == "f(x, key=lambda a: a + 1, kind=int, *, other=len)"
    assert arguments(f) == "x, key=lambda a: a + 1, kind=int, *, other=len"


def test_things_of_one_name_are_told_apart():
    names = public_names("handlers")
    assert "tensorboard_logger.OutputHandler" in names and "OutputHandler" not in names and "Checkpoint" in names
