"""Promise: every text that `ignite.distributed` raises or warns with is on the troubleshooting page, and every entry
there says what it means, how to check, the fix and what proves it, is reproduced, and is listed in the contents.

The texts are read from the source of the installed library with `ast`, so a reworded message turns this red and names
the line of the library; a text counts as found when all its fixed parts stand in the heading and the code spans of one
entry. What the entries say is compared with runs in `test_claims.py`.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import ignite.distributed
from support.claims import COUNTS, NOT_VERIFIED, PROOFS, load_proofs
from support.pages import Page, _parse, read_page

PAGE = "sub-skills/distributed/references/troubleshooting.md"
LIBRARY = Path(ignite.distributed.__file__).parent
PARTS = ("Means", "Check", "Fix", "Proof")
MAY_SAY_NOT_VERIFIED = 11  # entries; the number may only fall
GAP = "\0"  # stands for a varying part of a message

load_proofs()


def symptoms(page: Page) -> list:
    """The entries that describe a symptom."""
    return [e for e in page.entries if e.level == 3]


def messages(source: str) -> list[tuple[int, str]]:
    """(line, text) of each `raise X("…")` and `warn("…")`; GAP stands for what varies."""
    found = []
    for node in ast.walk(ast.parse(source)):
        call = node.exc if isinstance(node, ast.Raise) else node
        if not isinstance(call, ast.Call) or not call.args:
            continue
        if not isinstance(node, ast.Raise) and not ast.unparse(call.func).endswith("warn"):
            continue
        parts = call.args[0].values if isinstance(call.args[0], ast.JoinedStr) else [call.args[0]]
        text = "".join(p.value if isinstance(p, ast.Constant) and isinstance(p.value, str) else GAP for p in parts)
        found.append((node.lineno, re.sub(r"\s+", " ", text).strip()))
    return found


def pieces(text: str) -> list[str]:
    """The fixed parts of a message, sentence by sentence, without what is only punctuation or a word of two letters."""
    parts = [p.strip(" ,.:;'\"()[]=") for p in re.split(rf"{GAP}|(?<=\.) (?=[A-Z])", text.replace("`", ""))]
    return [p for p in parts if re.search(r"[A-Za-z]{3}", p)] or [p for p in parts if p]


def missing_texts(page: Page, texts: list[tuple[str, str]]) -> list[str]:
    """Of (where, text), those whose fixed parts do not all stand in the quotations (heading, codes) of one entry."""
    quoted = []
    for entry in symptoms(page):
        quotes = [entry.heading, *(entry.text[s.start : s.end] for s in entry.codes)]
        quoted.append((entry, [part for quote in quotes for part in quote.replace("`", "").split("…")]))
    missing = []
    for where, text in texts:
        wanted = pieces(text)
        lacks = [([p for p in wanted if not any(p in q for q in quotes)], entry) for entry, quotes in quoted]
        lack, nearest = min(lacks, key=lambda pair: len(pair[0]))
        if not wanted or lack:
            near = (
                f"; nearest is «{nearest.heading}» (line {nearest.line}), without {lack}"
                if len(lack) < len(wanted)
                else ""
            )
            missing.append(f"{where}: no entry of {page.path} quotes «{text.replace(GAP, '…')}»{near}")
    return missing


def form_faults(page: Page) -> list[str]:
    """Entries without one of the four parts, with an empty one, or with the parts in another order."""
    faults = []
    for entry in symptoms(page):
        lines = page.source.splitlines()[entry.line :]
        body = "\n".join(lines[: next((i for i, line in enumerate(lines) if line.startswith("#")), len(lines))])
        places = [body.find(f"**{part}**") for part in PARTS]
        if -1 in places or places != sorted(places):
            faults.append(f"{entry.where} «{entry.heading}»: needs {', '.join(PARTS)} in bold, in this order")
            continue
        pieces = [body[a + len(p) + 4 : b] for p, a, b in zip(PARTS, places, [*places[1:], len(body)])]
        faults += [f"{entry.where}: nothing after **{p}**" for p, x in zip(PARTS, pieces) if not x.strip(" .\n")]
        if entry.heading.startswith("Hangs") and not body.strip().startswith("**Tell it**"):
            faults.append(
                f"{entry.where} «{entry.heading}»: a hang begins with **Tell it**, how to tell it from the others"
            )
    return faults


def contents_faults(page: Page) -> list[str]:
    """Differences between the contents list and the headings after it."""
    listed = re.findall(r"^ *- \[(.+)\]\(#([^)]*)\)$", page.source.split("\n## Contents\n")[-1], re.MULTILINE)
    headed = [(e.heading, e.anchor) for e in page.entries if e.level in (2, 3) and e.anchor != "contents"]
    listed = [(text.replace("`", ""), anchor) for text, anchor in listed]
    faults = [
        f"{page.path}: contents list {text!r} as #{a}, but there is no such entry"
        for text, a in listed
        if (text, a) not in headed
    ]
    faults += [f"{page.path}: {text!r} (#{a}) is not in the contents" for text, a in headed if (text, a) not in listed]
    if not faults and listed != headed:
        faults.append(f"{page.path}: the contents are in another order than the entries")
    return faults


def unproven(page: Page) -> list[str]:
    """Entries that no proof reproduces."""
    return [f"{e.where} «{e.heading}»: no proof" for e in symptoms(page) if f"{page.path}#{e.anchor}" not in PROOFS]


def library_texts() -> list[tuple[str, str]]:
    """(file:line, text) of every message in the installed ignite/distributed."""
    found = []
    for path in sorted(LIBRARY.rglob("*.py")):
        name = path.relative_to(LIBRARY.parent)
        found += [(f"ignite/{name}:{line}", text) for line, text in messages(path.read_text())]
    return found


def test_every_text_of_the_library_is_on_the_page():
    texts = library_texts()
    raises = sum(path.read_text().count(" raise ") for path in LIBRARY.rglob("*.py"))
    assert len(texts) >= raises > 0, "the reader of the source misses raise statements"
    missing = missing_texts(read_page(PAGE), texts)
    assert not missing, "\n" + "\n".join(missing)
    COUNTS["error texts of the library found on the page"] += len(texts)


@pytest.mark.parametrize("faults", [form_faults, contents_faults, unproven])
def test_entries(faults):
    page = read_page(PAGE)
    assert symptoms(page)
    found = faults(page)
    assert not found, "\n" + "\n".join(found)


def test_what_is_not_verified_here_is_counted():
    marked = [e.where for e in symptoms(read_page(PAGE)) if NOT_VERIFIED in e.text]
    COUNTS["troubleshooting entries that say not verified here"] += len(marked)
    assert len(marked) <= MAY_SAY_NOT_VERIFIED, marked


BAD = """# Page

## Contents

- [Group](#group)
  - [`Right text …`](#right-text-)
  - [Gone](#gone)

## Group

### `Right text …`

**Means** it. **Check** that. **Fix** this. **Proof** so.

### Hangs at noon

**Means** it. **Fix** this. **Check** that. **Proof** so.

### Hangs at night

**Means** it. **Check** that. **Fix** . **Proof** so.
"""


def test_the_checkers_see_a_bad_page():
    page = _parse(Path("bad.md"), BAD, BAD, 0)
    source = 'def f(x):\n    raise ValueError(f"Right text {x}")\n    warnings.warn("Another text" " for you")\n'
    assert messages(source) == [(2, f"Right text {GAP}"), (3, "Another text for you")]
    texts = [(f"x.py:{line}", text) for line, text in messages(source)]
    assert missing_texts(page, texts) == ["x.py:3: no entry of bad.md quotes «Another text for you»"]
    reworded = missing_texts(page, [("x.py:2", f"Right text {GAP}. But with more")])
    assert len(reworded) == 1 and "without ['But with more']" in reworded[0]
    assert missing_texts(page, [("x.py:2", GAP)]), "a text without a fixed part cannot be found"
    form = form_faults(page)
    assert [f.split(":")[1].split()[0] for f in form] == ["15", "19", "19"], form
    assert "in this order" in form[0] and "nothing after **Fix**" in form[1] and "Tell it" in form[2]
    contents = contents_faults(page)
    assert len(contents) == 3 and "'Gone'" in contents[0] and "Hangs at noon" in contents[1], contents
    swapped = BAD.replace(
        "- [Group](#group)\n  - [`Right text …`](#right-text-)", "  - [`Right text …`](#right-text-)\n- [Group](#group)"
    )
    swapped = swapped.replace(
        "  - [Gone](#gone)", "  - [Hangs at noon](#hangs-at-noon)\n  - [Hangs at night](#hangs-at-night)"
    )
    assert "another order" in contents_faults(_parse(Path("bad.md"), swapped, swapped, 0))[0]
    assert len(unproven(page)) == 3
