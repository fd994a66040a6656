"""Promise: the API reference of the handlers room has one entry per public name of `ignite.handlers`, with the
signatures as installed, names every class and function that its modules export, and lists its entries in its contents.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import ignite.handlers
import pytest
from probes import handlers as probe
from proofs.handlers.api_reference import PAGE
from support import BUNDLE
from support.claims import COUNTS
from support.pages import Page, _parse, read_page

IMPORTED_ELSEWHERE = {"Engine", "Events"}  # what `ignite.handlers` also offers, at home in the engine room


def exported() -> dict[str, str]:
    """Name -> module, of all that a module of `ignite.handlers` exports, or defines in public where it has no list."""
    found = {}
    for info in pkgutil.iter_modules(ignite.handlers.__path__):
        module = importlib.import_module(f"ignite.handlers.{info.name}")
        own = {n: v for n, v in vars(module).items() if getattr(v, "__module__", None) == module.__name__}
        defined = [n for n, v in own.items() if n[0] != "_" and (inspect.isclass(v) or inspect.isfunction(v))]
        listed = getattr(module, "__all__", None) or defined
        found |= {name: module.__name__ for name in listed}
    assert len(found) > len(ignite.handlers.__all__)
    return found


def page_of(source: str) -> Page:
    return _parse(Path("page.md"), source, source, 0)


def wrong_names(page: Page) -> list[str]:
    """Public names without an entry or with two, entries in code that are no public name, exports not mentioned."""
    names = [e.heading for e in page.entries if e.level == 3]
    coded = re.findall(r"^### `(.+)`$", page.source, re.M)
    mentioned = [e.heading for e in page.entries]
    mentioned += [e.text[s.start : s.end] for e in page.entries for s in e.codes]
    words = {word for text in mentioned for word in re.findall(r"\w+", text)}
    problems = [f"{page.path}: no entry `{n}`" for n in probe.public() if n not in coded]
    problems += [f"{page.path}: `{n}` is no public name" for n in coded if n not in probe.public()]
    problems += [f"{page.path}: a second entry `{n}`" for i, n in enumerate(names) if n in names[:i]]
    problems += [f"{page.path}: {module}.{n} is not mentioned" for n, module in exported().items() if n not in words]
    COUNTS["entries of the API reference compared with the library"] += len(names)
    return problems


def wrong_signatures(page: Page) -> list[str]:
    """Entries whose `python signature` fence is missing or not what the installed library has."""
    problems = []
    for entry in page.entries:
        if entry.level != 3 or entry.heading not in probe.public():
            continue
        fences = [f for f in entry.fences if (f.language, f.mark) == ("python", "signature")]
        wanted = probe.signatures(entry.heading)
        if len(fences) != 1 or fences[0].text.strip() != wanted:
            line = fences[0].line if fences else entry.line
            problems.append(f"{page.path}:{line}: «{entry.heading}» should have the signatures\n{wanted}")
        COUNTS["signatures compared with the library"] += len(fences)
    return problems


def wrong_contents(page: Page) -> list[str]:
    """Headings that the contents do not link to, in their order."""
    links = re.findall(r"\[`?([^\]`]+)`?\]\(#([^)]+)\)", page.source.partition("\n## ")[0])
    headed = [(e.heading, e.anchor) for e in page.entries if e.level in (2, 3)]
    if links == headed:
        return []
    return [f"{page.path}: the contents differ from the headings: {sorted({*links} ^ {*headed}) or 'in their order'}"]


@pytest.mark.parametrize("check", [wrong_names, wrong_signatures, wrong_contents])
def test_the_page(check):
    problems = check(read_page(PAGE))
    assert not problems, "\n" + "\n".join(problems)


def test_every_list_of_names_is_whole():
    public = {n for n, v in vars(ignite.handlers).items() if not n.startswith("_") and not inspect.ismodule(v)}
    assert public - set(ignite.handlers.__all__) == IMPORTED_ELSEWHERE
    assert (BUNDLE / PAGE).exists()


def test_each_complaint_has_an_entry():
    headings = [e.heading for e in read_page(PAGE).entries]
    assert not [name for name in probe.COMPLAINTS if name not in headings]


BAD = """# Page

[`Timer`](#timer) [`Checkpoint`](#checkpoint)

## Part

### `Timer`

```python signature
Timer(average=True)
```

### `Nothing`

### `Timer`
"""


def test_the_checks_find_what_is_wrong():
    bad = page_of(BAD)
    names = "\n".join(wrong_names(bad))
    assert "no entry `Checkpoint`" in names and "`Nothing` is no public name" in names and "a second entry" in names
    assert "ignite.handlers.stores.EpochOutputStore is not mentioned" in names
    first, second = wrong_signatures(bad)
    assert "page.md:10" in first and "Timer(average=False)" in first and "page.md:15" in second
    assert wrong_contents(bad)
