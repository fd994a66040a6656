"""Promise: the scanners for skills find nothing to say about what is shipped, beyond what is explained here.

agnix looks at the archive as a user unpacks it; `agentskills validate` runs in test_skill_format.py, Claude Code's own
validator in tests/clients. Scanners that download a vocabulary or ask a service are not run.
"""
from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support.claims import COUNTS
from test_release import release_build

KNOWN = {  # what agnix remarks and is meant so -> why
    "client-specific field 'disable-model-invocation'": "keeps a sub-skill from standing beside the router",
    "No tool or spec versions pinned": "the skill is for every version of a client",
    "Missing project context section in GEMINI.md": "it only leads to the router",
    "no table of contents near the top": "of a page whose headings are searched",
}


def agnix(folder: Path) -> list[str]:
    """Its remarks, each with level, file and text."""
    tool = Path(sys.executable).parent / "agnix"
    assert tool.exists(), "install agnix: it is one of the test dependencies"
    done = subprocess.run([str(tool), "--strict", "--format", "json", str(folder)], capture_output=True, text=True,
                          timeout=60, env={"HOME": str(folder.parent), "PATH": "/usr/bin:/bin"})
    report = json.loads(done.stdout)
    assert report["files_checked"] > 5, report
    COUNTS["files scanned by agnix"] += report["files_checked"]
    return [f"{d['level']} {Path(d['file']).name}: {d['message']}" for d in report["diagnostics"]]


@pytest.fixture
def skill(tmp_path):
    zipfile.ZipFile(release_build.build_archive(tmp_path)).extractall(tmp_path)
    return tmp_path / release_build.SKILL


def test_agnix_is_content(skill):
    remarks = agnix(skill)
    wrong = [r for r in remarks if not r.startswith("info ") or not any(known in r for known in KNOWN)]
    assert not wrong, "\n" + "\n".join(wrong)


BROKEN = {
    "no description": ("SKILL.md", "description: ", "desc: "),
    "another name": ("SKILL.md", "name: pytorch-ignite", "name: Pytorch_Ignite"),
    "broken manifest": (".claude-plugin/plugin.json", '["./"]', '["./"'),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_fault_is_found(what, skill):
    name, old, new = BROKEN[what]
    text = (skill / name).read_text()
    assert old in text
    (skill / name).write_text(text.replace(old, new, 1))
    assert [r for r in agnix(skill) if not r.startswith("info ")]
