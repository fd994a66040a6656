"""Promise: what the pages say about releases is what those releases do, from 0.4.13 to the newest nightly build.

The rows of references/versions.md are proven in proofs/versions.py (and run by test_claims.py). Here: that each release
answered for itself, that the "Since" and "Changed in" notes of all pages agree with the releases, that the nightly
build's `ignite.distributed` is told, and that the checkers catch a wrong release, a missing, an invented and a
doctored row. A release that is neither here nor on PyPI skips, with the reason; MATRIX=required makes it fail.
"""
import re
from dataclasses import replace

import pytest
from proofs import versions
from support import releases
from support.claims import COUNTS, claims_at
from support.pages import Table, find_entry, page_paths, read_page, slug

KNOWN = releases.releases()
NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
NOTE = re.compile(r"\b(Since|Changed in) (\d+\.\d+\.\d+(?:\.post\d+)?)\b")


@pytest.mark.parametrize("version", KNOWN)
def test_each_release_answers_for_itself(version):
    answer = versions.answers(version)
    if version == "nightly":
        assert re.fullmatch(r"0\.6\.0(\.dev\d{8})?", answer["version"]), answer["version"]
    else:
        assert answer["version"] == version
    expected = [] if version == KNOWN[0] else list(versions.PROBES)
    assert list(answer["probes"]) == expected
    failed = {n: t for n, t in answer["probes"].items() if t and t.startswith(releases.FAILED)}
    assert not failed, "\n".join(f"{n}:\n{t}" for n, t in failed.items())
    assert len(answer["surface"]) > 300
    COUNTS["releases asked"] += 1


@pytest.mark.parametrize("name", list(versions.PROBES))
def test_each_probe_tells_a_change(name):
    texts = {versions.answers(v)["probes"][name] for v in KNOWN[1:]} - {None}
    assert len(texts) > 1, f"{name}: the same in every release: {texts}"


def notes(path, root=None):
    """(page:line, name, "Since" or "Changed in", release) of the page's notes in entries headed by a name."""
    page = read_page(path, root) if root else read_page(path)
    for entry in page.entries:
        if NAME.fullmatch(entry.heading):
            for note in NOTE.finditer(entry.text):
                yield f"{path}:{entry.line_of(note.start())}", entry.heading, note[1], note[2]


def wrong_note(where: str, name: str, kind: str, version: str) -> str | None:
    """What is wrong with a note, or None."""
    try:
        before = releases.predecessor(version)
    except ValueError as e:
        return f"{where}: {e}"
    old, new = (
        {n for n in versions.answers(v)["surface"] if n.endswith(f".{name}") and "contrib" not in n}
        for v in (before, version)
    )
    if kind == "Since" and (old or not new):
        return f"{where}: `{name}` since {version}? In {before}: {old or 'absent'}; in {version}: {new or 'absent'}"
    if kind == "Changed in":
        rows = [r for section in versions.PACKAGES for r in versions.rows_of(section, [(before, version)])]
        if not any(re.search(rf"\b{re.escape(name)}\b", r[0]) for r in rows):
            return f"{where}: no run shows that `{name}` changed in {version}; these did: {[r[0] for r in rows]}"
    return None


def test_since_and_changed_notes():
    found = [n for path in page_paths() if str(path) != versions.PAGE for n in notes(path)]
    assert found, "no page has a note 'Since X' or 'Changed in X' in an entry headed by a name"
    wrong = [w for n in found if (w := wrong_note(*n))]
    assert not wrong, "\n".join(wrong)
    COUNTS["notes on releases checked"] += len(found)


@pytest.mark.parametrize("text, problem", [
    ("### `all_gather_tensors_with_shapes`\n\nSince 0.5.3.\n", "In 0.5.2: {"),
    ("### `all_gather_tensors_with_shapes`\n\nSince 0.5.1.\n", "in 0.5.1: absent"),
    ("### `all_reduce`\n\nChanged in 0.5.4: before, it raised.\n", "no run shows that `all_reduce` changed in 0.5.4"),
    ("### `all_reduce`\n\nSince 0.9.9.\n", "0.9.9 is not a release"),
])
def test_a_wrong_note_is_caught(tmp_path, text, problem):
    (tmp_path / "page.md").write_text(text)
    (note,) = notes("page.md", tmp_path)
    assert problem in wrong_note(*note)


def test_right_notes_pass(tmp_path):
    (tmp_path / "page.md").write_text(
        "### `all_gather_tensors_with_shapes`\n\nSince 0.5.2.\n\n### `broadcast`\n\nChanged in 0.5.5: a path.\n"
    )
    assert [wrong_note(*n) for n in notes("page.md", tmp_path)] == [None, None]


def test_nightly_distributed_is_that_of_the_last_release_or_is_told():
    last, nightly = (
        {n: p for n, p in versions.answers(v)["surface"].items() if n.startswith("ignite.distributed.")}
        for v in (versions.LAST, versions.NIGHTLY)
    )
    assert len(last) > 30
    differing = {n for n in last | nightly if (n in last, last.get(n)) != (n in nightly, nightly.get(n))}
    told = " ".join(r[0] for r in find_entry(f"{versions.PAGE}#not-released-yet").tables[0].rows)
    untold = [n for n in differing if not re.search(rf"\b{re.escape(versions.short(n))}\b", told)]
    assert not untold, f"{versions.PAGE}, Not released yet: the nightly build differs in {untold}"


def check(section, rows):
    """Run the proof of that section on a table with other rows."""
    claims = claims_at(f"{versions.PAGE}#{slug(section)}")
    table = claims.entry.tables[0]
    claims.entry = replace(claims.entry, tables=[Table(rows, table.line)])
    wanted = versions.rows_of(section, versions.pairs()[:-1])
    claims.table([versions.HEADER, *versions.in_page_order(claims.entry, wanted)])


@pytest.mark.parametrize("section", list(versions.PACKAGES))
def test_a_doctored_table_is_caught(section):
    rows = find_entry(f"{versions.PAGE}#{slug(section)}").tables[0].rows
    check(section, rows)
    for i, row in enumerate(rows[1:], 1):
        for column in range(4):
            doctored = [*row]
            doctored[column] = "0.5.9" if column == 3 else f"{row[column]} not"
            with pytest.raises(AssertionError, match=rf"versions\.md:{read_line(section, i)}\b"):
                check(section, [*rows[:i], doctored, *rows[i + 1 :]])
        with pytest.raises(AssertionError, match="rows are missing"):
            check(section, rows[:i] + rows[i + 1 :])
    with pytest.raises(AssertionError, match="no such row"):
        check(section, [*rows, ["`Engine.fly`: arguments", "no `up`", "`up=True`", "0.5.5"]])
    with pytest.raises(AssertionError, match="twice"):
        check(section, [*rows, rows[-1]])


def read_line(section, row):
    return find_entry(f"{versions.PAGE}#{slug(section)}").tables[0].line + 1 + row


def test_a_table_without_rows_is_caught():
    entry = find_entry(f"{versions.PAGE}#distributed")
    with pytest.raises(AssertionError, match="no rows"):
        versions.in_page_order(entry, [])
    with pytest.raises(AssertionError, match="no table"):
        versions.in_page_order(replace(entry, tables=[]), [["a", "b", "c", "d"]])


def test_argument_changes_are_read_off_signatures():
    def parameters(*names):
        return [[n, "None", "positional_or_keyword"] for n in names]

    assert versions.parameter_change(parameters("a"), parameters("a", "b")) == ("no `b`", "`b=None`")
    assert versions.parameter_change(parameters("a", "b"), parameters("b")) == (
        "`a=None`", "gone; `b` is now positional argument 1",
    )
    assert versions.parameter_change(parameters("a", "c"), parameters("a", "b", "c")) == (
        "no `b`", "`b=None`; `c` is now positional argument 3",
    )


def test_a_release_that_cannot_be_had_skips(monkeypatch, tmp_path):
    monkeypatch.setattr(releases, "STORE", tmp_path)
    monkeypatch.setattr(releases, "_UNREACHABLE", [])
    monkeypatch.setattr(releases, "release_path", releases.release_path.__wrapped__)
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("MATRIX", raising=False)
    for version in ("0.5.1", "nightly"):
        with pytest.raises(pytest.skip.Exception, match="release"):
            versions.answers(version)
    monkeypatch.setenv("MATRIX", "required")
    with pytest.raises(pytest.fail.Exception, match="release"):
        versions.answers("0.5.1")


def test_a_nightly_that_is_here_serves_without_the_network(monkeypatch, tmp_path):
    monkeypatch.setattr(releases, "STORE", tmp_path)
    monkeypatch.setattr(releases, "_UNREACHABLE", ["no network"])
    for build in ("0.6.0.dev20260101", "0.6.0.dev20260203"):
        (tmp_path / build).mkdir()
    assert releases.release_path.__wrapped__("nightly").name == "0.6.0.dev20260203"
