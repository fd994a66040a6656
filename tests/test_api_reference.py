"""Promise: api-reference.md has one entry per public name of `ignite.distributed`, with the signature as installed."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import ignite.distributed as idist
from probes import collectives
from proofs.distributed.api_reference import PAGE, since_notes
from support import BUNDLE
from support.claims import COUNTS
from support.pages import Page, _parse

WIDTH = 140  # a signature that is longer has one parameter per line


def public_names() -> dict[str, object]:
    """Every public name of `ignite.distributed`, in the order of its modules, and what it is."""
    names = {
        name: getattr(idist, name) for module in (idist.launcher, idist.utils, idist.auto) for name in module.__all__
    }
    methods = {}
    for owner, value in names.items():
        if inspect.isclass(value):
            methods |= {
                f"{owner}.{n}": v for n, v in vars(value).items() if inspect.isfunction(v) and not n.startswith("_")
            }
    assert names and methods
    return names | methods


def unlisted_names() -> set[str]:
    """Names that `from ignite.distributed import x` offers beside those in __all__; submodules apart."""
    return {n for n, v in vars(idist).items() if not n.startswith("_") and not inspect.ismodule(v)} - set(
        public_names()
    )


def rendered(name: str, value: object) -> str:
    """The signature of a public name as the page prints it: annotations without the quotes that postponed
    evaluation gives them, no `self`, one parameter per line when long."""
    if not callable(value):
        return f"idist.{name}: {type(value).__name__}"
    signature = inspect.signature(value)
    if inspect.isclass(value):
        signature = signature.replace(return_annotation=inspect.Signature.empty)
    parameters = []
    for p in signature.parameters.values():
        if p.name == "self":
            continue
        if isinstance(p.annotation, str):
            p = p.replace(annotation=_Bare(p.annotation))
        parameters.append(str(p))
    returns = signature.return_annotation
    tail = "" if returns is inspect.Signature.empty else f" -> {str(returns).strip(chr(34) + chr(39))}"
    line = f"idist.{name}({', '.join(parameters)}){tail}"
    if len(line) <= WIDTH:
        return line
    return f"idist.{name}(\n" + "".join(f"    {p},\n" for p in parameters) + f"){tail}"


class _Bare(str):
    """An annotation that prints without quotes."""

    def __repr__(self) -> str:
        return str(self)


def page_of(source: str) -> Page:
    return _parse(Path("page.md"), source, source, 0)


def wrong_names(page: Page) -> list[str]:
    """Public names without an entry, entries without a public name, names with two."""
    entries = [e for e in page.entries if e.level == 3]
    headings = [e.heading for e in entries]
    known = public_names()
    problems = [
        f"{page.path}: no entry `{name}`: add a heading '### `{name}`'" for name in known if name not in headings
    ]
    problems += [
        f"{e.where}: `{e.heading}` is no public name of ignite.distributed" for e in entries if e.heading not in known
    ]
    problems += [f"{e.where}: a second entry `{e.heading}`" for i, e in enumerate(entries) if e.heading in headings[:i]]
    COUNTS["entries of the API reference compared with the library"] += len(entries)
    return problems


def wrong_signatures(page: Page) -> list[str]:
    """Entries whose `python signature` fence is missing or not what the installed library has."""
    known, problems = public_names(), []
    for entry in page.entries:
        if entry.level != 3 or entry.heading not in known:
            continue
        fences = [f for f in entry.fences if (f.language, f.mark) == ("python", "signature")]
        wanted = rendered(entry.heading, known[entry.heading])
        if len(fences) != 1:
            problems.append(f"{entry.where}: {len(fences)} fences '```python signature', expected one with\n{wanted}")
        elif fences[0].text.strip() != wanted:
            problems.append(
                f"{page.path}:{fences[0].line}: the signature reads\n{fences[0].text}but the installed one is\n{wanted}"
            )
        COUNTS["signatures compared with the library"] += len(fences)
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


def page() -> Page:
    return page_of((BUNDLE / PAGE).read_text(encoding="utf-8"))


def test_every_public_name_has_one_entry():
    assert len(page().entries) > 1
    problems = wrong_names(page())
    assert not problems, "\n" + "\n".join(problems)


def test_the_lists_of_public_names_are_whole():
    assert not unlisted_names(), f"public but in no __all__: {unlisted_names()}"


def test_each_signature_is_the_installed_one():
    problems = wrong_signatures(page())
    assert not problems, "\n" + "\n".join(problems)


def test_contents_list_is_whole():
    problems = wrong_contents(page())
    assert not problems, "\n" + "\n".join(problems)


def test_each_probed_collective_has_a_table():
    tables = {e.heading: len(e.tables) for e in page().entries}
    missing = [name for name in collectives.PROBES if tables.get(name) != 1]
    assert collectives.PROBES and not missing, f"{PAGE}: one table each is missing in {missing}"


def test_no_entry_has_an_anchor_with_a_number():
    """Two equal headings would silently move the second one's anchor."""
    assert not [e.where for e in page().entries if re.search(r"-\d+$", e.anchor)]


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
