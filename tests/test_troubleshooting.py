"""Promise: every text that a room's package raises or warns with is on the room's pages, and every entry of its
troubleshooting page says what it means, how to check, the fix and what proves it, is reproduced, and is listed in the
contents.

The pages are found, sub-skills/ROOM/references/troubleshooting.md, and ROOM's package is ignite/ROOM. The texts are
read from the source of the installed library with `ast`, so a reworded message turns this red and names the line of the
library; a text counts as found when all its fixed parts stand in the heading and the code spans of one entry. In the
rooms that SHORT names, whose packages have a hundred near-identical complaints about arguments, it also counts in one
entry of the API reference (code span, table cell, "Raises" line), and a quotation may stand for several texts, with …
for what differs. What the entries say is compared with runs in `test_claims.py`.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import ignite
import pytest
from support import BUNDLE
from support.claims import COUNTS, NOT_VERIFIED, PROOFS, load_proofs
from support.pages import Page, _parse, read_page

LIBRARY = Path(ignite.__file__).parent
ROOMS = sorted(p.parts[-3] for p in BUNDLE.glob("sub-skills/*/references/troubleshooting.md"))
SHORT = {"engine", "handlers", "metrics"}  # the API reference may quote a text too
PARTS = ("Means", "Check", "Fix", "Proof")
MAY_SAY_NOT_VERIFIED = {"distributed": 11}  # entries of the room's page, 0 where not named; the numbers may only fall
GAP = "\0"  # stands for a varying part of a message
FIXED_LETTERS = 12  # that a quotation with … needs, so that it cannot stand for any text

load_proofs()


def page_of(room: str, name: str = "troubleshooting") -> str:
    """The path of a room's page."""
    return f"sub-skills/{room}/references/{name}.md"


def symptoms(page: Page) -> list:
    """The entries that describe a symptom."""
    return [e for e in page.entries if e.level == 3]


def messages(source: str) -> list[tuple[int, str]]:
    """(line, text) of each `raise X("…")` and `warn("…")`; GAP stands for what varies."""
    found, tree = [], ast.parse(source)
    for node in ast.walk(tree):
        call = node.exc if isinstance(node, ast.Raise) else node
        if not isinstance(call, ast.Call) or not call.args:
            continue
        if not isinstance(node, ast.Raise) and not ast.unparse(call.func).endswith("warn"):
            continue
        found.append((node.lineno, re.sub(r"\s+", " ", fixed(call.args[0], tree, node.lineno)).strip()))
    return found


def fixed(node: ast.expr, tree: ast.Module, line: int) -> str:
    """The text of a string expression: f-string, sum, `"…".format()`, or a name that such a one was given to above."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(fixed(part, tree, line) if isinstance(part, ast.Constant) else GAP for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return fixed(node.left, tree, line) + fixed(node.right, tree, line)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        return re.sub(r"\{[^{}]*\}", GAP, fixed(node.func.value, tree, line))
    if isinstance(node, ast.Name):
        given = [n for n in ast.walk(tree) if isinstance(n, ast.Assign) and n.lineno < line
                 and any(isinstance(t, ast.Name) and t.id == node.id for t in n.targets)]  # fmt: skip
        if given:
            last = max(given, key=lambda n: n.lineno)
            return fixed(last.value, tree, last.lineno)
    return GAP


def pieces(text: str) -> list[str]:
    """The fixed parts of a message, sentence by sentence, without what is only punctuation or a word of two letters."""
    parts = [p.strip(" ,.:;'\"()[]=") for p in re.split(rf"{GAP}|(?<=\.) (?=[A-Z])", text.replace("`", ""))]
    return [p for p in parts if re.search(r"[A-Za-z]{3}", p)] or [p for p in parts if p]


def quotations(entry, short: bool = False) -> list[str]:
    """What an entry quotes: its heading and code spans, in a short room table cells and "Raises" lines as well."""
    quotes = [entry.heading, *(entry.text[s.start : s.end] for s in entry.codes)]
    if short:
        quotes += [cell for table in entry.tables for row in table.rows for cell in row]
        quotes += [t for s in entry.lines if (t := entry.text[s.start : s.end].lstrip()).startswith("Raises")]
    return [quote.replace("`", "") for quote in quotes]


def stands_for(quote: str, text: str) -> bool:
    """Whether a quotation with … is the text with something else in its place."""
    parts = [re.sub(r"\s+", " ", part) for part in re.sub(r"^\w+(Error|Warning): ", "", quote).split("…")]
    if len(parts) < 2 or len(re.findall("[A-Za-z]", quote)) < FIXED_LETTERS:
        return False
    return re.fullmatch(".*".join(map(re.escape, parts)) + ".*", text.replace("`", ""), re.S) is not None


def missing_texts(page: Page, texts: list[tuple[str, str]], reference: Page | None = None) -> list[str]:
    """Of (where, text), those whose fixed parts do not all stand in the quotations (heading, codes) of one entry; with
    a reference page by the rule of the short rooms."""
    short, quoted, wild = reference is not None, [], []
    for entry in [*symptoms(page), *(reference.entries if reference else [])]:
        quotes = quotations(entry, short)
        quoted.append((entry, [part for quote in quotes for part in quote.split("…")]))
        wild += quotes if short else []
    missing = []
    for where, text in texts:
        if any(stands_for(quote, text) for quote in wild):
            continue
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


def library_texts(room: str) -> tuple[list[tuple[str, str]], int]:
    """(file:line, text) of every message in the installed ignite/ROOM, and how many raise statements have one: all but
    those that raise a name or a call without arguments. A text without a letter is whatever its caller gave."""
    found, raises = [], 0
    for path in sorted((LIBRARY / room).rglob("*.py")):
        name, source = path.relative_to(LIBRARY), path.read_text()
        raises += len(re.findall(r"^ *raise (?!\w+(?:\(\))?$)(?=\S)", source, re.M))
        found += [(f"ignite/{name}:{line}", text) for line, text in messages(source)]
    return found, raises


def test_pages_are_found():
    assert "distributed" in ROOMS
    without = [room for room in ROOMS if not (LIBRARY / room).is_dir()]
    assert not without, f"no package ignite/{without} for these pages"


@pytest.mark.parametrize("room", ROOMS)
def test_every_text_of_the_library_is_on_the_page(room):
    texts, raises = library_texts(room)
    assert len(texts) >= raises > 0, "the reader of the source misses raise statements"
    reference = read_page(page_of(room, "api-reference")) if room in SHORT else None
    missing = missing_texts(read_page(page_of(room)), texts, reference)
    assert not missing, "\n" + "\n".join(missing)
    COUNTS["error texts of the library found on the page"] += len(texts)


@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.parametrize("faults", [form_faults, contents_faults, unproven])
def test_entries(faults, room):
    page = read_page(page_of(room))
    assert symptoms(page)
    found = faults(page)
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("room", ROOMS)
def test_what_is_not_verified_here_is_counted(room):
    marked = [e.where for e in symptoms(read_page(page_of(room))) if NOT_VERIFIED in e.text]
    COUNTS["troubleshooting entries that say not verified here"] += len(marked)
    assert len(marked) <= MAY_SAY_NOT_VERIFIED.get(room, 0), marked


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


REFERENCE = """# Reference

### `thing`

- Raises TypeError: plain words are enough here.
- `ValueError: Argument … should be positive`, `… …`, `TypeError: Handler '…' works only with …`

| arguments | error |
| --- | --- |
| `a=0` | no less than one |
"""


def test_a_short_room_may_quote_in_the_reference():
    page = _parse(Path("bad.md"), BAD, BAD, 0)
    reference = _parse(Path("reference.md"), REFERENCE, REFERENCE, 0)
    said = [f"Argument {GAP} should be positive", "plain words are enough here", "no less than one"]
    said = [("x", text) for text in said]
    assert not missing_texts(page, said, reference) and len(missing_texts(page, said)) == 3
    one_of_many = [("x", "Handler 'A' works only with B")]
    assert not missing_texts(page, one_of_many, reference), "… stands for what differs"
    assert len(missing_texts(page, [("x", "Right text for all")])) == 1, "not in a strict room"
    unsaid = ["nobody says so", "Handler 'A' works with B", f"Argument {GAP} should be negative", GAP]
    assert len(missing_texts(page, [("x", text) for text in unsaid], reference)) == 4
    assert not stands_for("… …", "anything at all") and not stands_for("Argument x", "Argument x")


def test_texts_are_read_however_they_are_built():
    source = (
        'def f(x):\n    text = "Name {} of {n}".format(x, n=1)\n    raise ValueError(text)\n'
        'def g(x):\n    raise ValueError("sum " + f"of {x}" + x)\n    raise x\n    raise KeyError()\n'
    )
    assert messages(source) == [(3, f"Name {GAP} of {GAP}"), (5, f"sum of {GAP}{GAP}")]
