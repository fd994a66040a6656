"""Promise: every SKILL.md is one that a client loads: valid, short, with the sections and the names it stands for."""
from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import ignite.distributed as idist
import pytest
from ignite.distributed import auto, launcher, utils
from ignite.distributed.comp_models import native
from skills_ref.parser import parse_frontmatter
from support import BUNDLE, DISTRIBUTED
from support.claims import COUNTS
from support.pages import NOT_PAGES, read_page

SKILLS = sorted(p.parent for p in BUNDLE.rglob("SKILL.md") if not NOT_PAGES & set(p.relative_to(BUNDLE).parts))
ROOMS = [folder for folder in SKILLS if folder != BUNDLE]
ROOT_KEYS = {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}
EXTENSION = "disable-model-invocation"  # the one key beyond the specification, see CONTRIBUTING
SECTIONS = ["Use this sub-skill when", "Include here", "Exclude or route elsewhere", "Start here", "Gotchas",
            "A smallest correct program", "Common triggers", "Useful boundary notes"]
ROOT_LINES, ROOM_LINES = 120, 200
ROOT_TOKENS, CHARACTERS_PER_TOKEN = 1400, 3.5  # of English with code; a tokeniser gives 3.5 to 4.5


def validate(folder: Path, tmp_path: Path, name: str | None = None) -> tuple[int, list[str]]:
    """Exit code and errors of `agentskills validate` for a skill folder, seen under the given name."""
    tool = Path(sys.executable).parent / "agentskills"
    assert tool.exists(), "install skills-ref, which brings agentskills: it is one of the test dependencies"
    seen = tmp_path / (name or folder.name)
    if not seen.exists():
        seen.symlink_to(folder)
    done = subprocess.run([str(tool), "validate", str(seen)], capture_output=True, text=True, timeout=60)
    COUNTS["skills validated"] += 1
    return done.returncode, re.findall(r"^  - (.*)$", done.stderr, re.M)


def frontmatter(folder: Path) -> dict:
    return parse_frontmatter((folder / "SKILL.md").read_text(encoding="utf-8"))[0]


def codes(folder: Path, section: str) -> set[str]:
    """The code spans of one section."""
    entry = next(e for e in read_page((folder / "SKILL.md").relative_to(BUNDLE)).entries if e.heading == section)
    return {entry.text[s.start : s.end] for s in entry.codes}


def line_of(folder: Path, section: str) -> int:
    return next(e.line for e in read_page((folder / "SKILL.md").relative_to(BUNDLE)).entries if e.heading == section)


def section_faults(page) -> list[str]:
    """What is wrong with the order of a room's sections."""
    found = [e.heading for e in page.entries if e.level == 2 and not e.is_gotcha]
    return [] if found == SECTIONS else [f"{page.path}: the sections are {found}, not {SECTIONS}"]


def test_skills_are_found():
    assert BUNDLE in SKILLS and DISTRIBUTED in ROOMS
    folders = {p.parent for p in BUNDLE.glob("sub-skills/*/*")}
    assert folders == set(ROOMS), f"a room without SKILL.md: {folders - set(ROOMS)}"


def test_root_is_valid(tmp_path):
    assert validate(BUNDLE, tmp_path, "pytorch-ignite") == (0, [])
    head = frontmatter(BUNDLE)
    assert set(head) <= ROOT_KEYS and head["license"] == "BSD-3-Clause"


@pytest.mark.parametrize("folder", ROOMS, ids=lambda f: f.name)
def test_room_has_the_one_known_extension_and_no_other_fault(folder, tmp_path):
    code, errors = validate(folder, tmp_path)
    assert code == 1 and len(errors) == 1, errors
    assert errors[0].startswith(f"Unexpected fields in frontmatter: {EXTENSION}. Only "), errors
    head = frontmatter(folder)
    assert head["name"] == folder.name and head["license"] == "BSD 3-Clause", head
    assert head[EXTENSION] == "true", f"{folder.name}: a client must not offer it beside the router"
    assert dict(head["metadata"]) == {"disco-role": "operating"}


@pytest.mark.parametrize("folder", SKILLS, ids=lambda f: f.name)
def test_description_says_when(folder):
    text = frontmatter(folder)["description"]
    assert 80 < len(text) <= 1024, f"{len(text)} characters"
    assert re.search(r"\bUse (for|when)\b", text), f"{folder.name}: the description must say when to open the skill"
    assert not re.search(r"\b(I|you|your|we)\b", text), f"{folder.name}: third person or imperative"


def test_root_description_draws_the_line():
    text = frontmatter(BUNDLE)["description"]
    wanted = ["pytorch-ignite", "`ignite`", "`idist`", "`ignite.distributed`", "Engine", "Events", "auto_model",
              "one_rank_only", "PyTorch distributed configuration should define env variables"]
    assert not [w for w in wanted if w not in text]
    refused = text[text.index("Not for") :]
    assert not [w for w in ("Apache Ignite", "Lightning", "accelerate", "DDP") if w not in refused]


def test_distributed_description_begins_as_agreed():
    assert frontmatter(DISTRIBUTED)["description"].startswith(
        "Routes Ignite distributed launch, backend selection, auto-wrapping, and rank helper workflows"
    )


@pytest.mark.parametrize("folder", SKILLS, ids=lambda f: f.name)
def test_is_short(folder):
    text = (folder / "SKILL.md").read_text()
    limit = ROOT_LINES if folder == BUNDLE else ROOM_LINES
    assert text.count("\n") < limit, f"{folder.name}/SKILL.md: {text.count(chr(10))} lines, fewer than {limit} allowed"
    if folder == BUNDLE:
        tokens = len(text) / CHARACTERS_PER_TOKEN
        assert tokens < ROOT_TOKENS, f"SKILL.md: about {tokens:.0f} tokens, fewer than {ROOT_TOKENS} allowed"


@pytest.mark.parametrize("folder", ROOMS, ids=lambda f: f.name)
def test_sections(folder):
    faults = section_faults(read_page((folder / "SKILL.md").relative_to(BUNDLE)))
    assert not faults, "\n".join(faults)


def test_distributed_includes_every_public_name():
    public = {*utils.__all__, *auto.__all__, launcher.Parallel.__name__}
    public -= {n for n in public if n.startswith("has_")} | {"registered_computation_models"}  # not for users to call
    backends = {str(b) for b in (native.GLOO, native.NCCL, native.MPI)}
    backends |= set(re.findall(r"`([\w-]+)`", re.search(r"backend: backend: (.*)", idist.initialize.__doc__)[1]))
    assert len(public) > 25 and {"gloo", "nccl", "mpi", "horovod", "xla-tpu"} <= backends
    included = codes(DISTRIBUTED, "Include here")
    where = f"{(DISTRIBUTED / 'SKILL.md').relative_to(BUNDLE)}:{line_of(DISTRIBUTED, 'Include here')}: «Include here»"
    assert not (public | backends) - included, f"{where} lacks {sorted((public | backends) - included)}"
    unknown = {c for c in included if not hasattr(idist, c)} - backends
    assert not unknown, f"{where} names what ignite.distributed has not: {sorted(unknown)}"
    COUNTS["names in «Include here»"] += len(included)


def test_distributed_starts_at_its_own_files():
    page = read_page((DISTRIBUTED / "SKILL.md").relative_to(BUNDLE))
    linked = {link.target for link in page.links}
    there = {str(p.relative_to(DISTRIBUTED)) for folder in ("references", "assets", "scripts")
             for p in DISTRIBUTED.glob(f"{folder}/*.*") if p.suffix in (".md", ".py")}
    assert there and not there - linked, f"«Start here» does not link {sorted(there - linked)}"
    assert "../../references/versions.md" in linked


def test_distributed_has_gotchas():
    gotchas = [e for e in read_page((DISTRIBUTED / "SKILL.md").relative_to(BUNDLE)).entries if e.is_gotcha]
    assert 16 <= len(gotchas) <= 24, f"{len(gotchas)} gotchas"
    long = [f"{g.where}: {len(g.text)} characters" for g in gotchas if len(g.text) > 480]
    assert not long, "a gotcha is as long as two or three lines: " + ", ".join(long)


def test_checker_finds_what_is_wrong(tmp_path):
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "SKILL.md").write_text("---\nname: Good Name\ndescription: x\ncolour: red\n---\n# Bad\n## Gotchas\nx\n")
    code, errors = validate(bad, tmp_path)
    assert code == 1 and any("colour" in e for e in errors) and any("lowercase" in e for e in errors), errors
    assert section_faults(read_page(Path("SKILL.md"), bad))
    copy = tmp_path / "copy" / "distributed"
    copy.mkdir(parents=True)
    shutil.copy(DISTRIBUTED / "SKILL.md", copy)
    head = (copy / "SKILL.md").read_text()
    (copy / "SKILL.md").write_text(head.replace("license:", "licence:", 1))
    assert "licence" in validate(copy, tmp_path)[1][0]
    COUNTS["skills validated"] -= 2
