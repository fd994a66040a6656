"""Promise: the root page leads each request to the one page that answers it, and each room names only what it has.

The decision table of SKILL.md links every room and every reference that rooms share. A name that the table or a room's
"Include here" stands for is public in that room's package. And for each sample request of tests/routing.jsonl the words
of the table point to the expected row: a proxy for a reader, that notices when a row loses the word it was found by.
"""
from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
from functools import lru_cache

import pytest
from support import BUNDLE
from support.claims import COUNTS
from support.pages import Entry, find_entry, page_paths, read_page

SAMPLES = [json.loads(line) for line in (BUNDLE / "tests" / "routing.jsonl").read_text().splitlines()]
ROOMS = sorted(p.parent.name for p in BUNDLE.glob("sub-skills/*/SKILL.md"))
PACKAGES = {  # of the other rooms: ignite.ROOM
    "engine": ("ignite.engine", "ignite.base"),
    "handlers": ("ignite.handlers", "ignite.contrib.engines"),
}
PLAIN = set("a an and are be by call code for from has have i ignite in is it its my of on one or our own several that"
            " the then this to two use what which with write".split())
STEM = 5  # words that are equal in so many letters count as one: metric, metrics; resume, resuming


def rows() -> list[tuple[str, list[str], int]]:
    """Of each row of the decision table: what the request names, the targets of its links, its line."""
    entry = find_entry("SKILL.md#pytorch-ignite")
    table = entry.tables[0]
    assert table.rows[0][0] == "The request names", table.rows[0]
    return [(row[0], re.findall(r"\]\(([^)#]+)", row[1]), table.line + 2 + i) for i, row in enumerate(table.rows[1:])]


def terms(text: str) -> set[str]:
    """The words that count, and the dotted names, in lower case."""
    found = {w.lower() for w in re.findall(r"[A-Za-z][\w']+", text)} - PLAIN
    return found | {w.lower() for w in re.findall(r"[A-Za-z_]\w*(?:\.\w+)+", text)}


def alike(asked: str, word: str) -> bool:
    """The words are forms of one; names (with _ or a dot) if equal, or if `word` is the module of the other."""
    if asked in (word, word + "s") or asked.startswith(word + "."):
        return True
    return not re.search(r"[_.]", asked + word) and len(word) >= STEM and asked[:STEM] == word[:STEM]


def score(request: str, row: str) -> int:
    """How many of the row's words the request has; a name in a code span counts twice, and only as it is written."""
    asked = terms(request)
    spans = re.findall(r"`([^`]+)`", row)
    names = {span.lower() for span in spans if re.fullmatch(r"[\w.]+", span)}
    words = terms(" ".join(re.split(r"`[\w.]+`", row)))
    hits = sum(any(alike(a, w) for a in asked) for w in words)
    return hits + 2 * sum(any(a in (n, n + "s") or a.startswith(n + ".") for a in asked) for n in names)


def routed(request: str) -> list[str]:
    """The links of the row whose words fit best; of two alike, the first."""
    best = max(rows(), key=lambda r: score(request, r[0]))
    return best[1] if score(request, best[0]) else ["no row fits"]


@lru_cache(maxsize=None)
def public(room: str) -> frozenset[str]:
    """Public names of the room's packages and their modules, members of their classes, parameters of these."""
    found = set()
    for package in PACKAGES.get(room, (f"ignite.{room}",)):
        root = importlib.import_module(package)
        infos = [i.name for i in pkgutil.walk_packages(root.__path__, f"{package}.") if "._" not in i.name]
        for module in [root, *map(importlib.import_module, infos)]:
            found |= {module.__name__.rpartition(".")[2]}
            for name, value in vars(module).items():
                if not name.startswith("_") and getattr(value, "__module__", package).startswith("ignite"):
                    found.add(name)
                    if inspect.isclass(value):
                        found |= {n for n in dir(value) if not n.startswith("_")}
    return frozenset(found)


def include_here(room: str) -> Entry:
    return find_entry(f"sub-skills/{room}/SKILL.md#include-here")


def names_of(entry: Entry) -> list[tuple[str, int]]:
    """Code spans that are one name, `Name`, `owner.name` or `name()`, with the line."""
    spans = [(entry.text[s.start : s.end], s.line) for s in entry.codes]
    return [(text, line) for text, line in spans if re.fullmatch(r"[A-Za-z_][\w.]*(\(\))?", text)]


def strangers(room: str, named: list[tuple[str, int]], page: str) -> list[str]:
    """Names that the room's packages do not have. `backend` values and module paths of ignite are no names."""
    backends = {"gloo", "nccl", "mpi", "horovod"} if room == "distributed" else set()
    faults = []
    for text, line in named:
        parts = text.removesuffix("()").split(".")
        if parts[0] == "ignite":
            if not f"{text}.".startswith(tuple(f"{p}." for p in PACKAGES.get(room, (f"ignite.{room}",)))):
                faults.append(f"{page}:{line}: `{text}` is not of the room {room}")
        elif parts[-1] not in public(room) and text not in backends:
            elsewhere = [r for r in ROOMS if parts[-1] in public(r)]
            faults.append(f"{page}:{line}: `{text}` is not in ignite.{room}; it is in {elsewhere or 'no room'}")
    return faults


def test_every_room_and_shared_reference_stands_in_the_table():
    linked = {target for _, targets, _ in rows() for target in targets}
    wanted = {f"sub-skills/{room}/SKILL.md" for room in ROOMS}
    wanted |= {str(p) for p in page_paths() if p.parts[0] == "references"}
    assert len(ROOMS) >= 2 and wanted
    assert not wanted - linked, f"SKILL.md: no row of the decision table opens {sorted(wanted - linked)}"


@pytest.mark.parametrize("room", ROOMS)
def test_each_page_of_a_room_is_linked_from_its_first_page(room):
    folder = BUNDLE / "sub-skills" / room
    linked = {link.target.partition("#")[0] for link in read_page(f"sub-skills/{room}/SKILL.md").links}
    wanted = {str(p.relative_to(folder)) for p in folder.glob("references/*.md")}
    assert not wanted - linked, f"sub-skills/{room}/SKILL.md does not link {sorted(wanted - linked)}"


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_send_elsewhere_to_each_other(room):
    """A request that landed in the wrong room finds the right one."""
    linked = {link.target.partition("#")[0] for link in read_page(f"sub-skills/{room}/SKILL.md").links}
    missing = [other for other in ROOMS if other != room and f"../{other}/SKILL.md" not in linked]
    assert not missing, f"sub-skills/{room}/SKILL.md, Exclude or route elsewhere: no link to {missing}"


@pytest.mark.parametrize("room", ROOMS)
def test_included_names_are_the_rooms(room):
    named = names_of(include_here(room))
    assert len(named) > 5, f"sub-skills/{room}/SKILL.md, Include here: {named}"
    faults = strangers(room, named, f"sub-skills/{room}/SKILL.md")
    assert not faults, "\n" + "\n".join(faults)
    COUNTS["names that rooms stand for"] += len(named)


def test_no_name_is_included_in_two_rooms_unless_both_have_it():
    where: dict[str, list[str]] = {}
    for room in ROOMS:
        for text, _ in names_of(include_here(room)):
            where.setdefault(text, []).append(room)
    faults = [f"`{n}`: {rs}" for n, rs in where.items() if len(rs) > 1 and not all(n in public(r) for r in rs)]
    assert not faults, faults


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s["request"][:50])
def test_sample_request_is_routed(sample):
    found = routed(sample["request"])
    wanted = sample["opens"]
    said = {row: score(sample["request"], row) for row, _, _ in rows() if score(sample["request"], row)}
    assert wanted in found if wanted else found == [], (
        f"«{sample['request']}» should open {wanted or 'no page'}, the words of the table lead to {found}\n{said}"
    )
    COUNTS["sample requests routed"] += 1


def test_the_samples_cover_every_row():
    assert len(SAMPLES) >= 30 and len({s["request"] for s in SAMPLES}) == len(SAMPLES)
    opened = {s["opens"] for s in SAMPLES}
    for row, targets, line in rows():
        assert opened & set(targets) if targets else None in opened, f"SKILL.md:{line}: no sample request for «{row}»"


def test_a_row_that_loses_its_words_is_noticed(monkeypatch):
    kept = rows()
    for i, (_, targets, _) in enumerate(kept):
        poorer = [*kept[:i], ("nothing", targets, 0), *kept[i + 1 :]]
        monkeypatch.setattr(f"{__name__}.rows", lambda poorer=poorer: poorer)
        mine = [s for s in SAMPLES if (s["opens"] in targets if targets else s["opens"] is None)]
        assert any(routed(s["request"]) != targets for s in mine), f"row {i} is not needed by any of {mine}"


def test_a_stranger_is_noticed():
    assert strangers("metrics", [("Checkpoint", 3)], "x.md") and not strangers("metrics", [("Accuracy", 3)], "x.md")
    assert strangers("engine", [("ignite.metrics", 3)], "x.md")
    assert not strangers("engine", [("ignite.base", 3)], "x.md")
