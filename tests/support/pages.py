"""The Markdown pages as the tests see them: pages, entries, fences, tables, links; each knows its line.

An *entry* is the text between one heading and the next; inside a section headed "Gotchas" each paragraph or list item
that opens in bold is an entry of its own, and its anchor is made from the bold words. The text of an entry is plain:
markup gone, white space folded, links reduced to their words; where a code span stood is remembered.
"""
from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path

from markdown_it import MarkdownIt

from . import BUNDLE

NOT_PAGES = {".git", ".venv", ".matrix", ".clients", ".pytest_cache", ".ruff_cache", "tests", "node_modules", "build",
             "dist"}


@dataclass
class Span:
    """A piece of an entry's text, `text[start:end]`, with the line it stands on."""

    start: int
    end: int
    line: int


@dataclass
class Fence:
    language: str  # first word of the info string
    mark: str  # the rest of it, e.g. 'fragment="needs two GPUs"'
    text: str
    line: int  # of the first line inside the fence


@dataclass
class Table:
    rows: list[list[str]]  # header first; cells are plain text with backticks kept
    line: int  # of the header


@dataclass
class Entry:
    page: Path  # relative to the bundle
    anchor: str
    heading: str  # plain text
    level: int
    line: int
    is_gotcha: bool = False
    text: str = ""
    codes: list[Span] = field(default_factory=list)
    lines: list[Span] = field(default_factory=list)  # which source line each stretch of text came from
    tables: list[Table] = field(default_factory=list)
    fences: list[Fence] = field(default_factory=list)

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"

    def line_of(self, position: int) -> int:
        return next((s.line for s in self.lines if s.start <= position < s.end), self.line)


@dataclass
class Link:
    target: str
    line: int
    text: str = ""  # what the reader sees of it


@dataclass
class Page:
    path: Path  # relative to the bundle
    source: str
    entries: list[Entry]
    links: list[Link]

    @property
    def anchors(self) -> set[str]:
        return {e.anchor for e in self.entries if not e.is_gotcha and e.level}

    @property
    def fences(self) -> list[Fence]:
        return [f for e in self.entries for f in e.fences]


def slug(heading: str) -> str:
    """The anchor that code hosts give a heading (before duplicates are numbered)."""
    kept = (c for c in heading.strip().lower() if c in " -_" or unicodedata.category(c)[0] in "LN")
    return "".join(kept).replace(" ", "-")


def page_paths(root: Path = BUNDLE) -> list[Path]:
    """Every Markdown page of the bundle, relative to its root."""
    found = sorted(p.relative_to(root) for p in root.rglob("*.md") if not NOT_PAGES & set(p.relative_to(root).parts))
    assert found, f"no pages under {root}"
    return found


@lru_cache(maxsize=None)
def read_page(path: Path | str, root: Path = BUNDLE) -> Page:
    source = (root / path).read_text(encoding="utf-8")
    body, offset = source, 0
    if source.startswith("---\n"):  # frontmatter
        end = source.index("\n---\n", 3) + 5
        body, offset = source[end:], source[:end].count("\n")
    return _parse(Path(path), source, body, offset)


def find_entry(where: str) -> Entry:
    """The entry at "path/of/page.md#anchor"."""
    path, anchor = where.split("#")
    for entry in read_page(path).entries:
        if entry.anchor == anchor:
            return entry
    entries = read_page(path).entries
    near = get_close_matches(anchor, [e.anchor for e in entries], 1, 0)
    line = next((e.line for e in entries if e.anchor in near), 1)
    raise AssertionError(f"{path}:{line}: no entry #{anchor}; near: {near}; there are: {[e.anchor for e in entries]}")


def _parse(path: Path, source: str, body: str, offset: int) -> Page:
    tokens = MarkdownIt("commonmark").enable("table").parse(body)
    section = Entry(path, "", "", 0, offset + 1)
    entries, links, seen = [section], [], {}
    current, table, in_heading = section, None, False
    for i, token in enumerate(tokens):
        line = offset + (token.map[0] if token.map else 0) + 1
        if token.type == "heading_open":
            heading = _plain(tokens[i + 1])[0]
            anchor = slug(heading)
            seen[anchor] = seen.get(anchor, -1) + 1
            anchor += f"-{seen[anchor]}" if seen[anchor] else ""
            section = current = Entry(path, anchor, heading, int(token.tag[1]), line)
            entries.append(section)
            in_heading = True
        elif token.type == "heading_close":
            in_heading = False
        elif token.type == "table_open":
            table = Table([], line)
            current.tables.append(table)
        elif token.type == "tr_open":
            table.rows.append([])
        elif token.type == "table_close":
            table = None
        elif token.type in ("fence", "code_block"):
            language, _, mark = token.info.strip().partition(" ")
            current.fences.append(Fence(language, mark.strip(), token.content, line + (token.type == "fence")))
        elif token.type == "inline":
            links += [
                Link(c.attrs["href" if c.type == "link_open" else "src"], line, _inside(token.children, n))
                for n, c in enumerate(token.children)
                if c.type in ("link_open", "image")
            ]
            if in_heading:
                continue
            bold = token.children[1].type == "strong_open" if len(token.children) > 1 else False
            if section.heading == "Gotchas" and bold and table is None:
                title = re.match(r"\*\*(.+?)\*\*", token.content)[1].rstrip(".")
                current = Entry(path, slug(title.replace("`", "")), title, section.level + 1, line, is_gotcha=True)
                entries.append(current)
            _append(current, token, line)
            if table is not None:
                table.rows[-1].append(_fold(token.content))
    return Page(path, source, [e for e in entries if e.heading or e.text], links)


def _append(entry: Entry, token, line: int) -> None:
    if entry.text:
        entry.text += " "
    start = len(entry.text)
    text, codes, breaks = _plain(token)
    entry.text += text
    entry.codes += [Span(start + a, start + b, line + sum(x <= a for x in breaks)) for a, b in codes]
    edges = [0, *breaks, len(text) + 1]
    entry.lines += [Span(start + a, start + b, line + n) for n, (a, b) in enumerate(zip(edges, edges[1:]))]


def _plain(token) -> tuple[str, list[tuple[int, int]], list[int]]:
    """Plain text of an inline token, where its code spans are, and where its source lines break."""
    text, codes, breaks = "", [], []
    for child in token.children:
        if child.type == "code_inline":
            piece = _fold(child.content)
            codes.append((len(text), len(text) + len(piece)))
            text += piece
        elif child.type in ("softbreak", "hardbreak"):
            text += " "
            breaks.append(len(text))
        elif child.type == "text":
            text += re.sub(r"\s+", " ", child.content)
    return text, codes, breaks


def _inside(children, opening: int) -> str:
    """The words between a link's opening token and its end; of an image, its description."""
    if children[opening].type == "image":
        return children[opening].content
    end = next(n for n in range(opening, len(children)) if children[n].type == "link_close")
    return _fold("".join(c.content or " " for c in children[opening + 1 : end]))


def _fold(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()
