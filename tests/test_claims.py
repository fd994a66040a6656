"""Promise: every number and literal on a proven page is what a run of the real library gives."""
import pytest

from support.claims import COUNTS, claims_at, load_proofs
from support.pages import page_paths, read_page

PROOFS = load_proofs()


def proven_entries():
    """Entries that must be proven: all entries of reference pages of a sub-skill, and all gotchas."""
    for path in page_paths():
        for entry in read_page(path).entries:
            if entry.is_gotcha or ("sub-skills" in path.parts and "references" in path.parts and entry.level):
                if entry.text or any(f.language not in ("python", "console") for f in entry.fences):
                    yield f"{path}#{entry.anchor}"


ENTRIES = list(proven_entries())


def test_there_is_something_to_prove():
    assert ENTRIES and PROOFS


@pytest.mark.parametrize("where", sorted(PROOFS))
def test_proof_belongs_to_an_entry(where):
    claims_at(where)


@pytest.mark.parametrize("where", sorted({*ENTRIES, *PROOFS}))
def test_entry_says_what_a_run_gives(where):
    claims = claims_at(where)
    for proof in PROOFS.get(where, []):
        proof(claims)
    missing = claims.unsaid()
    assert not missing, "\n" + "\n".join(missing)
    COUNTS["entries proven"] += bool(PROOFS.get(where))
    COUNTS["statements not verified here"] += len(claims.skipped)
