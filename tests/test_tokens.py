"""Promise: the skill costs a reader no more tokens than the README says, and what it says is within the limits.

Counted with a real tokenizer, o200k_base; other models' differ by some percent, which the limits leave room for.
"""
from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import bpe_openai
import pytest
from support import BUNDLE
from support.claims import COUNTS
from support.pages import read_page

TOKENIZER = "o200k_base"
WRITE = "PYTHONPATH=tests python tests/test_tokens.py"
ALWAYS, ROOT, TASK = 200, 1500, 9000  # fewer than these
ROOMS = sorted(p.parent.name for p in BUNDLE.glob("sub-skills/*/SKILL.md"))
REFERENCES = sorted(p.relative_to(BUNDLE) for p in BUNDLE.glob("sub-skills/*/references/*.md"))
BY_PARTS = r"search|one heading per|tables by name|#"  # how a page that is too long to read whole is announced


@cache
def tokenizer():
    return bpe_openai.get_encoding(TOKENIZER)


def count(text: str) -> int:
    COUNTS["texts whose tokens were counted"] += 1
    return len(tokenizer().encode(text))


@cache
def whole(path: str) -> int:
    return count((BUNDLE / path).read_text())


def always_on() -> int:
    """What a client puts into every session: the name and the description."""
    head = (BUNDLE / "SKILL.md").read_text()
    name, description = (re.search(rf'^{key}: "?(.*?)"?$', head, re.M)[1] for key in ("name", "description"))
    return count(f"- {name}: {description}")


def sections(path: str | Path) -> list[str]:
    """The source of a page, cut at its headings; the first piece is what stands before the second heading."""
    pieces, fenced = [""], False
    for line in (BUNDLE / path).read_text().splitlines(keepends=True):
        fenced ^= line.lstrip().startswith("```")
        if not fenced and re.match(r"#{2,4} ", line):
            pieces.append("")
        pieces[-1] += line
    return pieces


@cache
def by_section(path: str | Path) -> int:
    """The headings of a page, as a search for them lists them, and its longest section."""
    pieces = sections(path)
    headings = "".join(p.splitlines()[0] + "\n" for p in pieces if p.strip())
    return count(headings) + max(count(p) for p in pieces[1:] if p.strip() and not p.startswith("## Contents"))


def room_page(room: str) -> str:
    return f"sub-skills/{room}/SKILL.md"


def task(reference: Path, cost=by_section) -> int:
    """The router, the room of a reference and what is read of it."""
    return whole("SKILL.md") + whole(room_page(reference.parts[1])) + cost(str(reference))


def largest(room: str, cost) -> int:
    return max(task(r, cost) for r in REFERENCES if r.parts[1] == room)


def rounded(tokens: int) -> str:
    """The figure that the README shows: up to the next 50, from 500 on the next 250, from 2,000 on the next 500."""
    step = 50 if tokens < 500 else 250 if tokens < 2000 else 500
    return f"{-(-tokens // step) * step:,}"


def table() -> list[list[str]]:
    """The README's table, as it has to be."""
    rows = [["read", "when", "tokens, at most"],
            ["name and description", "in every session", rounded(always_on())],
            ["`SKILL.md`", "a request names PyTorch-Ignite", rounded(whole("SKILL.md"))]]
    for room in ROOMS:
        rows.append([f"and `{room_page(room)}`, and one section of its references", f"the request is for {room}",
                     rounded(largest(room, by_section))])
    longest = max(REFERENCES, key=lambda r: whole(str(r)))
    rows.append([f"and the longest reference whole, `{longest}`", "not needed: sections are found by searching",
                 rounded(task(longest, whole))])
    return rows


def test_always_on():
    assert always_on() < ALWAYS, f"name and description cost {always_on()} tokens, under {ALWAYS} allowed"


def test_root_page():
    assert whole("SKILL.md") < ROOT, f"SKILL.md costs {whole('SKILL.md')} tokens, under {ROOT} allowed"


@pytest.mark.parametrize("reference", REFERENCES, ids=str)
def test_typical_task(reference):
    """Router, room and the longest section of the reference."""
    cost = task(reference)
    assert cost < TASK, f"{reference}: with the router and its room {cost} tokens for one section, under {TASK} allowed"
    COUNTS["typical tasks whose tokens were counted"] += 1


@pytest.mark.parametrize("reference", REFERENCES, ids=str)
def test_who_sends_to_a_long_page_says_how_to_read_it(reference):
    """Read whole, it would be over the limit; so the room says to search in it, or links a heading."""
    if task(reference, whole) < TASK:
        return
    room = room_page(reference.parts[1])
    target = f"references/{reference.name}"
    lines = (BUNDLE / room).read_text().splitlines()
    near = [" ".join(lines[max(0, n - 1):n + 2]) for n, line in enumerate(lines) if f"]({target}" in line]
    assert any(re.search(BY_PARTS, text.replace(f"({target})", "")) for text in near), (
        f"{room}: {reference} is {whole(str(reference))} tokens long; say at its link how to find the section to read")


def test_readme_shows_what_was_counted():
    entry = next(e for e in read_page("README.md").entries if e.heading == "What it costs")
    wanted = table()
    for number, (shown, right) in enumerate(zip(entry.tables[0].rows, wanted)):
        line = entry.tables[0].line + number + (number > 0)
        assert shown == right, f"README.md:{line}: {shown} should be {right}; {WRITE} writes the table"
    assert len(entry.tables[0].rows) == len(wanted)
    assert f"`{TOKENIZER}`" in read_page("README.md").source


def test_it_is_a_tokenizer():
    """Not an estimate by length: two texts of one length, a word that is one token, and what comes back."""
    assert tokenizer().decode(tokenizer().encode("idist.all_reduce → ≠")) == "idist.all_reduce → ≠"
    assert count("the the the the") == 4 and count("xqzjkwvpyxqzjkw") > 4


def test_a_longer_section_is_noticed(monkeypatch, tmp_path):
    """Fences do not end a section, and the longest one counts."""
    long = "## Long\n\n```\n## no heading\n" + "word " * 500 + "\n```\n"
    (tmp_path / "page.md").write_text("# Page\n\n## Short\n\nword\n\n" + long)
    monkeypatch.setattr(f"{__name__}.BUNDLE", tmp_path)
    assert len(sections("page.md")) == 3 and 500 < by_section("page.md") < 530


if __name__ == "__main__":  # writes the table into the README
    page = (BUNDLE / "README.md").read_text()
    old = re.search(r"\| read \| when \|.*?\n\n", page, re.S)[0]
    lines = ["| " + " | ".join(row) + " |\n" for row in table()]
    (BUNDLE / "README.md").write_text(page.replace(old, lines[0] + "|---|---|---|\n" + "".join(lines[1:]) + "\n"))
