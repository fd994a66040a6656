"""Promise: every number and literal on a proven page is what a run of the real library gives, and on most of them every
word stands in a sentence that a proof says."""
import re

import pytest
from support.claims import COUNTS, claims_at, load_proofs
from support.pages import page_paths, read_page

PROOFS = load_proofs()
HOUSE = {"README.md", "SKILL.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"}
WHOLE = re.compile(  # entries of which every word must be said; add a room as soon as it passes
    r"references/(versions|legacy-contrib|utils|optional-packages)\.md#(?!what-changed-release-by-release)"
    r"|sub-skills/distributed/references/(api-reference|troubleshooting|workflows)\.md#"
    r"|sub-skills/distributed/SKILL\.md#(?!distributed-training|use-this|include-here|exclude-or|start-here|gotchas$)"
    r"|sub-skills/(engine|handlers|metrics)/(references/[\w-]+|SKILL)\.md#"
)
ADVISED = re.compile(r"sub-skills/\w+/references/troubleshooting\.md#")  # Check, Fix, Proof too


def proven_entries():
    """Entries that must be proven: all entries of reference pages and of the house's pages, and all gotchas."""
    for path in page_paths():
        for entry in read_page(path).entries:
            page = "references" in path.parts or str(path) in HOUSE
            if entry.is_gotcha or (page and entry.level):
                if entry.text or any(f.language not in ("python", "console") for f in entry.fences):
                    yield f"{path}#{entry.anchor}"


ENTRIES = list(proven_entries())


def test_there_is_something_to_prove():
    assert ENTRIES and PROOFS


@pytest.mark.parametrize("where", sorted(PROOFS), ids=str)  # str: else pytest shortens long ids, and -k misses them
def test_proof_belongs_to_an_entry(where):
    claims_at(where)


@pytest.mark.parametrize("where", sorted({*ENTRIES, *PROOFS}), ids=str)
def test_entry_says_what_a_run_gives(where):
    claims = claims_at(where)
    for proof in PROOFS.get(where, []):
        try:
            proof(claims)
        except Exception as e:
            if str(claims.entry.page) in str(e):
                raise
            story = f"{type(e).__name__}: {e}"
            raise AssertionError(
                f"{claims.entry.where} «{claims.entry.heading}»: a run does not bear it out, {proof.__name__}: {story}"
            ) from e
    missing = claims.unsaid() + (claims.unsaid_words(bool(ADVISED.match(where))) if WHOLE.match(where) else [])
    assert not missing, "\n" + "\n".join(missing)
    COUNTS["entries proven"] += bool(PROOFS.get(where))
    COUNTS["statements not verified here"] += len(claims.skipped)
