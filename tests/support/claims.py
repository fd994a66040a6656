"""Sentences bound to runs: a proof runs the real library and says, from what it saw, what the page must say.

    @proves("sub-skills/distributed/references/troubleshooting.md#some-anchor")
    def some_symptom(entry):
        out = run_world(2, lambda rank: ...)
        entry.heading(out[0].message)               # the heading, … standing for what varies, matches this text
        entry.says(f"rank 1 waits {seconds} s")     # this stands in the entry, word for word (markup apart)

`says` fails when its text is not on the page, so a changed page *or* a changed library turns the proof red. And every
number and code span of an entry must lie inside something its proofs have said: what nobody says is reported with
page and line. Exempt are only names that resolve (`idist.…`, `torch.…`, a path in the bundle), since the test of
names checks those. On the pages that `test_claims.py` lists as WHOLE every word must be said, advice (Check, Fix,
Proof) only on those that it lists as ADVISED too. Build the text that you say from the values that the run gave; a
literal typed twice proves nothing.

Proofs live in tests/proofs/, found by import; `test_claims.py` runs them.
"""
from __future__ import annotations

import importlib
import pkgutil
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from .names import resolves
from .pages import Entry, find_entry

PROOFS: dict[str, list[Callable]] = {}
COUNTS: Counter = Counter()  # what was inspected; printed at the end of the run

NUMBER = re.compile(r"(?<![\w.#/-])\d[\d,]*(?:\.\d+)*\w*")
NOT_VERIFIED = "not verified here"
WORD = re.compile(r"\w[\w'’-]*")
SENTENCE = re.compile(r"\S.*?(?:[.;:!?](?=\s)|$)")
FIELD = re.compile(r"(?:(?<=^)|(?<=\s))(Tell it|Means|Check|Fix|Proof)\b")
EXPLAINING = ("Tell it", "Means")  # these fields state facts; the others give advice


def proves(*where: str) -> Callable:
    """Register a proof for the entries at "path/of/page.md#anchor"."""

    def register(function: Callable) -> Callable:
        for w in where:
            PROOFS.setdefault(w, []).append(function)
        return function

    return register


def load_proofs() -> dict[str, list[Callable]]:
    """Import every module under tests/proofs and return what they registered."""
    import proofs

    for module in pkgutil.walk_packages(proofs.__path__, "proofs."):
        importlib.import_module(module.name)
    assert PROOFS, "tests/proofs holds no proof"
    return PROOFS


@dataclass
class Claims:
    """One entry of a page, and which stretches of its text have been said by a proof."""

    entry: Entry
    said: list[tuple[int, int]] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def says(self, *texts: str) -> None:
        """Each text stands in the entry (backticks, bold and white space apart)."""
        for text in texts:
            wanted = _plain(text)
            assert wanted, "says() was given an empty text"
            found = [m.span() for m in _whole_words(wanted).finditer(self.entry.text)]
            assert found, (
                f"{self._departure(wanted)} «{self.entry.heading}»: a run of the library says\n    {wanted}\n"
                f"which the entry does not. It reads:\n    {self.entry.text}"
            )
            self.said += found
            COUNTS["sentences compared with a run"] += 1

    def heading(self, message: str) -> None:
        """The heading, with … standing for anything, is found in the message; white space is folded in both."""
        pattern = ".*?".join(re.escape(p) for p in _plain(self.entry.heading).split("…"))
        assert re.search(pattern, _plain(message), re.S), (
            f"{self.entry.where}: the heading\n    {self.entry.heading}\nis not what the library said:\n    {message}"
        )
        COUNTS["headings compared with a run"] += 1

    def quotes(self, message: str) -> None:
        """Some code span of the entry, with … standing for anything, is found in the message; it counts as said."""
        message = _plain(message)
        hits = [s for s in self.entry.codes if len(self._code(s)) > 8 and _wild(self._code(s)).search(message)]
        assert hits, (
            f"{self.entry.where} «{self.entry.heading}»: no code span of the entry quotes what the library said:\n"
            f"    {message}\nCode spans: {[self._code(s) for s in self.entry.codes]}"
        )
        self.said += [(s.start, s.end) for s in hits]
        COUNTS["quotations compared with a run"] += 1

    def table(self, rows: list[list[str]], number: int = 0) -> None:
        """The entry's table (header row first) is exactly this; backticks count."""
        table = self.entry.tables[number]
        for i, (found, wanted) in enumerate(zip(table.rows, rows)):
            assert found == wanted, (
                f"{self.entry.page}:{table.line + i + (i > 0)}: the row is\n    {found}\nbut a run gives\n    {wanted}"
            )
        assert len(table.rows) == len(rows), (
            f"{self.entry.page}:{table.line}: {len(table.rows)} rows, but a run gives {len(rows)}"
        )
        for row in rows:
            for cell in row:
                self.said += [m.span() for m in re.finditer(re.escape(_plain(cell)), self.entry.text)] if cell else []
        COUNTS["table cells compared with a run"] += sum(map(len, rows))

    def shows(self, text: str, number: int = 0) -> None:
        """The entry's fence number `number` (python, console and bash, which are run, do not count) matches the text;
        … stands for anything."""
        fences = [f for f in self.entry.fences if f.language not in ("python", "console", "bash")]
        shown = fences[number]
        assert _wild(shown.text.strip()).search(_plain(text)), (
            f"{self.entry.page}:{shown.line}: shown\n{shown.text}\nbut a run gives\n{text}"
        )
        shown.mark = "shown"
        COUNTS["shown outputs compared with a run"] += 1

    def not_verified(self, text: str, source: str) -> None:
        """The text stands in the entry, which also says `not verified here`; `source` says what it rests on."""
        assert NOT_VERIFIED in self.entry.text, f"{self.entry.where}: cannot be run here: it must say '{NOT_VERIFIED}'"
        assert source, "name the source"
        wanted = _plain(text)
        found = [m.span() for m in re.finditer(re.escape(wanted), self.entry.text)]
        assert found, f"{self._departure(wanted)}: the entry does not say\n    {wanted}"
        self.said += found
        self.skipped.append(wanted)

    def unsaid(self) -> list[str]:
        """What no proof has said: numbers and code spans, each with page and line."""
        entry, missing = self.entry, []
        codes = [(s.start, s.end) for s in entry.codes]
        numbers = [m.span() for m in NUMBER.finditer(entry.text) if not any(a <= m.start() < b for a, b in codes)]
        for start, end in sorted(codes + numbers):
            token = entry.text[start:end]
            if any(a <= start and end <= b for a, b in self.said) or token == NOT_VERIFIED:
                continue
            if (start, end) in codes and resolves(token):
                continue
            missing.append(f"{entry.page}:{entry.line_of(start)}: no proof says `{token}` (entry «{entry.heading}»)")
        for fence in entry.fences:
            if fence.language not in ("python", "console", "bash", "mermaid") and fence.mark != "shown":
                missing.append(f"{entry.page}:{fence.line}: no proof compares this fence with a run")
        COUNTS["numbers and literals accounted for"] += len(codes) + len(numbers)
        return missing

    def unsaid_words(self, advice: bool = False) -> list[str]:
        """Words that no proof has said, sentence by sentence, so that no word can be changed or slipped in unnoticed.

        A question is not asked for. In an entry with fields (Means, Check, …) only the explaining ones are, unless
        `advice` is true.
        """
        text, missing = self.entry.text, []
        covered = bytearray(len(text) + 1)
        for start, end in self.said:
            covered[start:end] = b"\1" * (end - start)
        fields = [(m.start(), m.end(), m[1]) for m in FIELD.finditer(text)]
        if not any(name == "Means" for *_, name in fields):
            fields = []
        for sentence in SENTENCE.finditer(text):
            words = []
            for word in WORD.finditer(text, *sentence.span()):
                label = next((f for f in reversed(fields) if f[0] <= word.start()), (0, 0, "Means"))
                asked = word.start() >= label[1] and (advice or label[2] in EXPLAINING)
                if asked and not all(covered[word.start() : word.end()]) and word[0] not in NOT_VERIFIED.split():
                    words.append(word)
            if words and not sentence[0].rstrip().endswith("?"):
                line = self.entry.line_of(words[0].start())
                missing.append(f"{self.entry.page}:{line}: no proof says «{' '.join(w[0] for w in words)}», which stand"
                               f" in «{sentence[0].strip()}» (entry «{self.entry.heading}»)")
        COUNTS["words accounted for"] += len(WORD.findall(text))
        return missing

    def _departure(self, wanted: str) -> str:
        """Page and line where the entry stops agreeing with a text that it does not hold."""
        text, words = self.entry.text, wanted.split(" ")
        for n in range(len(words) - 1, 0, -1):
            before, after = " ".join(words[:n]) + " ", " " + " ".join(words[-n:])
            if before in text:
                return f"{self.entry.page}:{self.entry.line_of(text.index(before) + len(before))}"
            if after in text:
                return f"{self.entry.page}:{self.entry.line_of(text.index(after) - 1)}"
        return self.entry.where

    def _code(self, span) -> str:
        return self.entry.text[span.start : span.end]


def claims_at(where: str) -> Claims:
    return Claims(find_entry(where))


def _plain(text: str) -> str:
    """Backticks and bold gone, white space folded; inside a code span ** stays, as in `2**24`."""
    pieces = re.split(r"(`[^`]*`)", text)
    pieces[::2] = [piece.replace("**", "") for piece in pieces[::2]]
    return re.sub(r"\s+", " ", "".join(pieces).replace("`", "")).strip()


def _whole_words(text: str) -> re.Pattern:
    """The text, not as a part of longer words: `wait` does not stand in "waits", nor `30` in "300"."""
    return re.compile(r"(?<!\w)" * text[0].isalnum() + re.escape(text) + r"(?!\w)" * text[-1].isalnum())


def _wild(text: str) -> re.Pattern:
    return re.compile(".*?".join(re.escape(p) for p in _plain(text).split("…")), re.S)
