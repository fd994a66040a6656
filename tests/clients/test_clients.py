"""Promise: each install line of the README works as printed, with the client's own command and in an empty home folder;
the client then lists one skill of ours, the copy is whole, and the update line brings a change.

`make clients` fetches the clients (tests/clients/package.json has their versions) and runs this file with
CLIENTS=required; without them each test is skipped. Nothing here needs an account.
"""
from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import BUNDLE
from support.claims import COUNTS
from support.installed import check_copy
from support.pages import read_page
from test_release import copied_tree, release_build

BIN = Path(os.environ.get("CLIENTS_FOLDER", BUNDLE / ".clients")) / "node_modules" / ".bin"
SKILL = release_build.SKILL
QUIET = {"CI": "1", "NO_COLOR": "1", "TERM": "dumb", "DISABLE_TELEMETRY": "1", "DISABLE_AUTOUPDATER": "1",
         "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
TABLES = next(e for e in read_page("README.md").entries if e.heading == "Install").tables
ROWS = {row[0]: row[1:] for row in TABLES[0].rows[1:]}


def need(program: str) -> None:
    if program in ("git", "npx") and shutil.which(program):
        program = "skills" if program == "npx" else program
    if program != "git" and not (BIN / program).exists():
        if os.environ.get("CLIENTS") == "required":
            pytest.fail(f"{BIN / program} is missing: make clients installs it")
        pytest.skip(f"{program} is not installed: make clients")


class Home:
    """An empty home folder, a project in it to stand in, and a repository to install from."""

    def __init__(self, folder: Path):
        self.folder, self.project, self.url = folder / "home", folder / "home" / "project", folder / "repository"
        self.project.mkdir(parents=True)
        (self.project / "node_modules").symlink_to(BIN.parent)  # where npx finds `skills` without asking the registry
        copied_tree(self.url)
        self.commit("init", "-q", "-b", "main")

    def commit(self, *before: str) -> None:
        git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org"]
        for words in filter(None, (before, ["add", "-A"], ["commit", "-q", "-m", "x"])):
            subprocess.run([*git, *words], cwd=self.url, check=True, timeout=60)

    def run(self, command: str, answer: str = "", folder: Path | None = None) -> str:
        """What a shell line prints on stdout; it must end with 0."""
        path = os.pathsep.join([str(BIN), os.path.dirname(sys.executable), "/usr/local/bin", "/usr/bin", "/bin"])
        done = subprocess.run(["sh", "-c", command], input=answer, cwd=folder or self.project, capture_output=True,
                              text=True, timeout=180, env={**QUIET, "HOME": str(self.folder), "PATH": path})
        assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    def lines(self, cell: str) -> list[str]:
        """The commands of a cell of the table, for this repository."""
        return [c.replace("<url>", shlex.quote(str(self.url))) for c in re.findall(r"`([^`]+)`", cell)]

    def change(self) -> str:
        """A new release in the repository: a line at the end of GEMINI.md and another version; the line."""
        with open(self.url / "GEMINI.md", "a") as f:
            f.write("a line of the next release\n")
        text = (self.url / "pyproject.toml").read_text()
        (self.url / "pyproject.toml").write_text(text.replace(f'"{release_build.project("version")}"', '"99.0.0"', 1))
        assert release_build.stamp(self.url)
        self.commit()
        return "a line of the next release"


def claude_lists(home: Home) -> list[str]:
    """The skills that a session of Claude Code starts with; it ends there, for nobody is logged in."""
    script = "claude -p hello --output-format stream-json --verbose || true"
    first = json.loads(home.run(script).splitlines()[0])
    assert first["subtype"] == "init", first
    return first["skills"]


def codex_lists(home: Home) -> list[str]:
    """The names in the prompt that Codex would send."""
    said = json.loads(home.run("codex debug prompt-input hello"))
    text = "\n".join(part.get("text", "") for message in said for part in message.get("content", []))
    listed = text.split("### Available skills\n", 1)[1].split("</skills_instructions>")[0]
    return re.findall(r"^- ([\w:.-]+): ", listed, re.M)


def gemini_lists(home: Home) -> list[str]:
    return re.findall(r"^(\S+) \[Enabled\]", home.run("gemini skills list"), re.M)


def skills_lists(agent: str):
    return lambda home: [s["name"] for s in json.loads(home.run(f"npx skills list -g --json -a {agent}"))]


LISTS = {  # row of the README -> the client's list of skills
    "Claude Code": claude_lists,
    "Claude Code, as a plugin": claude_lists,
    "Codex": codex_lists,
    "Gemini CLI": gemini_lists,
    "Cursor": skills_lists("cursor"),
    "GitHub Copilot": skills_lists("github-copilot"),
}
NO_SKILL = {"Gemini CLI, as an extension"}  # it brings a line of context that leads to the router
PROGRAMS = {"Claude Code": "claude", "Codex": "codex", "Gemini CLI": "gemini"}
BUILT_IN = re.compile(r"distributed|engine|handlers|metrics|ignite")  # what of ours could be in a list


def installed_copies(home: Home) -> list[Path]:
    copies = [p.parent for p in home.folder.rglob("SKILL.md") if not {"sub-skills", "node_modules"} & set(p.parts)
              and "name: pytorch-ignite\n" in p.read_text()]
    return sorted(c for c in copies if "marketplaces" not in c.parts)


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path)


def test_every_row_is_tried():
    assert set(ROWS) == set(LISTS) | NO_SKILL


@pytest.mark.parametrize("row", LISTS)
def test_install_line_works_as_printed(row, home):
    install, update = ROWS[row]
    lines = home.lines(install)
    for line in lines:
        need(line.split()[0])
    need(PROGRAMS.get(row.split(",")[0], "npx"))
    for line in lines:
        home.run(line)
    ours = [name for name in LISTS[row](home) if BUILT_IN.search(name)]
    assert ours in ([SKILL], [f"{SKILL}:{SKILL}"]), f"{row} lists {ours}"
    copies = installed_copies(home)
    assert len(copies) == 1, copies
    check_copy(copies[0])

    said = home.change()
    if update == "`git pull` there":
        home.run("git pull -q", folder=copies[0])
    else:
        for line in lines if update == "the same line again" else home.lines(update):
            home.run(line)
    assert any(said in (c / "GEMINI.md").read_text() for c in installed_copies(home)), f"{row}: {update} does nothing"
    ours = [name for name in LISTS[row](home) if BUILT_IN.search(name)]
    assert ours in ([SKILL], [f"{SKILL}:{SKILL}"]), f"{row} lists {ours} after the update"
    COUNTS["install lines run with the real client"] += 1


@pytest.mark.parametrize("row", NO_SKILL)
def test_gemini_extension_leads_to_the_router(row, home):
    install, update = ROWS[row]
    need("gemini")
    for line in home.lines(install):
        home.run(line, answer="y\n")  # it asks whether the folder is trusted
    listed = home.run("gemini extensions list 2>&1")
    assert listed.count("pytorch-ignite (") == 1 and "GEMINI.md" in listed.split("Context files:")[1], listed
    copy, = installed_copies(home)
    check_copy(copy)
    assert [link.target for link in read_page("GEMINI.md", copy).links] == ["SKILL.md"]
    said = home.change()
    for line in home.lines(update):
        home.run(line, answer="y\n")
    assert said in (copy / "GEMINI.md").read_text()
    COUNTS["install lines run with the real client"] += 1


def test_plugin_is_valid_and_has_one_skill(home):
    need("claude")
    for path in ("", "/.claude-plugin/plugin.json"):
        assert "Validation passed" in home.run(f"claude plugin validate --strict {home.url}{path}")
    for line in home.lines(ROWS["Claude Code, as a plugin"][0]):
        home.run(line)
    details = home.run("claude plugin details pytorch-ignite")
    assert re.search(r"Skills \(1\)\s+pytorch-ignite\n", details), details
    assert re.search(r"Agents \(0\)\n\s*Hooks \(0\)\n\s*MCP servers \(0\)", details), details
    cost = int(re.search(r"Always-on:\s+~(\d+) tok", details)[1])
    assert cost < 200, f"Claude Code counts {cost} tokens in every session"


def test_one_skill_is_found_by_the_installer_of_all_clients(home):
    need("npx")
    listed = home.run(f"npx skills add {home.url} --list")
    assert "Found 1 skill" in listed and SKILL in listed, listed
    agents = ["claude-code", "codex", "cursor", "gemini-cli", "github-copilot"]
    home.run(f"npx skills add {home.url} -g -y {' '.join(f'-a {a}' for a in agents)}")
    for agent in agents:
        assert skills_lists(agent)(home) == [SKILL], agent


def test_archive_and_wheel_are_taken_by_codex_and_claude(home, tmp_path):
    """The lean copy has the switches that keep the sub-skills out of the list."""
    need("codex")
    archive = release_build.build_archive(tmp_path)
    for skills in (".claude/skills", ".agents/skills"):
        shutil.unpack_archive(archive, home.folder / skills, "zip")
    for lists in (codex_lists, claude_lists):
        ours = [name for name in lists(home) if BUILT_IN.search(name)]
        assert ours in ([SKILL], [f"{SKILL}:{SKILL}"]), ours
    check_copy(home.folder / ".agents/skills" / SKILL)


def test_without_its_policy_codex_offers_a_sub_skill(home):
    """So the switch is what keeps it out: the test above can fail."""
    need("codex")
    shutil.copytree(home.url, home.folder / ".agents/skills" / SKILL, ignore=shutil.ignore_patterns(".git"))
    (home.folder / ".agents/skills" / SKILL / "sub-skills/metrics/agents/openai.yaml").unlink()
    assert [name for name in codex_lists(home) if name.endswith("metrics")]


def test_codex_checks_its_manifest(home):
    """The keys of agents/openai.yaml and their limits, from the page that Codex brings along."""
    need("codex")
    home.run("codex debug prompt-input hello")
    page = next(home.folder.glob(".codex/skills/.system/skill-creator/references/openai_yaml.md")).read_text()
    text = (BUNDLE / "agents/openai.yaml").read_text()
    for key in re.findall(r"^ *(\w+):", text, re.M):
        assert re.search(rf"\b{key}\b", page), f"agents/openai.yaml: Codex knows no {key}"
    low, high = map(int, re.search(r"short_description`:.*?\((\d+)–(\d+) chars\)", page).groups())
    assert low <= len(re.search(r'short_description: "(.*)"', text)[1]) <= high
