"""Promise: `pytorch-ignite-skill` writes the skill into a client's folder, never over anything it did not write, and
takes away exactly what it wrote."""
from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest
from support import BUNDLE
from support.installed import check_copy
from test_release import release_build

spec = importlib.util.spec_from_file_location(
    "pytorch_ignite_skill", BUNDLE / "release" / "pytorch_ignite_skill" / "__init__.py")
command = importlib.util.module_from_spec(spec)
spec.loader.exec_module(command)

SKILL_FILES = {  # a small one, so that most tests copy little
    "SKILL.md": b"---\nname: pytorch-ignite\n---\n",
    "scripts/tool.py": b"#!/usr/bin/env python3\n",
    "a/b/c.md": b"deep",
}


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def tree(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty home folder, a project to stand in, and a wheel's skill that is small."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    (tmp_path / "home").mkdir()
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    source = write(tmp_path / "wheel", SKILL_FILES)
    monkeypatch.setattr(command.install, "__defaults__", (source, False))
    return tmp_path / "home"


def test_whole_skill_is_installed(tmp_path):
    source = write(tmp_path / "wheel", release_build.files())
    target = tmp_path / "pytorch-ignite"
    assert command.install(target, source).startswith(f"wrote {len(release_build.files())} files")
    check_copy(target, smoke=False)
    command.uninstall(target)
    assert not target.exists()


@pytest.mark.parametrize("client", sorted(command.CLIENTS))
@pytest.mark.parametrize("where", ["--user", "--project", None])
def test_goes_where_the_client_looks(client, where, home, capsys):
    folders = command.CLIENTS[client]
    root = Path.cwd() / folders[1] if where == "--project" else home / folders[0]
    arguments = [client, *filter(None, [where])]
    assert command.main(["install", *arguments]) == 0
    assert "wrote 3 files to " in capsys.readouterr().out
    written = tree(root / "pytorch-ignite")
    assert written.pop(command.RECORD) and written == SKILL_FILES
    assert (root / "pytorch-ignite/scripts/tool.py").stat().st_mode & 0o111
    assert command.main(["uninstall", *arguments]) == 0
    assert list(root.iterdir()) == [], "nothing is left, and the folder of skills stays"


def test_claude_config_dir_is_kept_to(home, tmp_path, monkeypatch):
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))
    assert command.main(["install", "claude"]) == 0
    assert (tmp_path / "config/skills/pytorch-ignite/SKILL.md").exists() and list(home.iterdir()) == []


def test_project_folder_can_be_named(home, tmp_path):
    (tmp_path / "other").mkdir()
    assert command.main(["install", "gemini", "--project", str(tmp_path / "other")]) == 0
    assert (tmp_path / "other/.agents/skills/pytorch-ignite/SKILL.md").exists()


def test_dry_run_writes_nothing(home, tmp_path, capsys):
    before = sorted(tmp_path.rglob("*"))
    assert command.main(["install", "claude", "--dry-run"]) == 0
    assert capsys.readouterr().out == f"would write 3 files to {home}/.claude/skills/pytorch-ignite\n"
    assert sorted(tmp_path.rglob("*")) == before
    command.main(["install", "claude"])
    before = sorted(tmp_path.rglob("*"))
    capsys.readouterr()
    assert command.main(["uninstall", "claude", "--dry-run"]) == 0
    assert capsys.readouterr().out == f"would remove 3 files from {home}/.claude/skills/pytorch-ignite\n"
    assert sorted(tmp_path.rglob("*")) == before


def test_a_later_version_replaces_an_earlier_one(tmp_path):
    target = tmp_path / "skills/pytorch-ignite"
    command.install(target, write(tmp_path / "old", {**SKILL_FILES, "gone.md": b"of the old version"}))
    (target / "scripts/__pycache__").mkdir()
    (target / "scripts/__pycache__/tool.cpython-311.pyc").write_bytes(b"left by Python")
    new = {**SKILL_FILES, "SKILL.md": b"new"}
    command.install(target, write(tmp_path / "new", new))
    written = tree(target)
    assert written.pop(command.RECORD) and written == new
    assert [p.name for p in target.parent.iterdir()] == ["pytorch-ignite"], "no temporary folder stays"


FOREIGN = {
    "a clone": {"SKILL.md": b"mine", ".git/HEAD": b"ref"},
    "a record of another kind": {"SKILL.md": b"mine", command.RECORD: b"[]"},
    "a record that is no JSON": {"SKILL.md": b"mine", command.RECORD: b"{"},
}


@pytest.mark.parametrize("what", FOREIGN)
def test_what_others_wrote_is_not_overwritten(what, home, capsys):
    target = write(home / ".claude/skills/pytorch-ignite", FOREIGN[what])
    for action in ("install", "uninstall"):
        assert command.main([action, "claude"]) == 1
        assert "was not written by this program" in capsys.readouterr().err
        assert tree(target) == FOREIGN[what]


@pytest.mark.parametrize("name, data", [("SKILL.md", b"edited"), ("notes.md", b"added")])
def test_what_was_changed_or_added_is_kept(name, data, home, capsys):
    command.main(["install", "claude"])
    target = write(home / ".claude/skills/pytorch-ignite", {name: data})
    before = tree(target)
    assert command.main(["install", "claude"]) == 1 and command.main(["install", "claude", "--dry-run"]) == 1
    assert name in capsys.readouterr().err and tree(target) == before
    assert command.main(["uninstall", "claude", "--dry-run"]) == 1
    said = capsys.readouterr().err
    assert "these stay" in said and name in said and tree(target) == before
    assert command.main(["uninstall", "claude"]) == 1
    said = capsys.readouterr().err
    assert "these stay" in said and name in said
    left = tree(target)
    assert left.pop(command.RECORD) and left == {name: data}
    (target / name).unlink()
    assert command.main(["uninstall", "claude"]) == 0 and not target.exists(), "once it is away, the rest goes too"


def test_a_link_is_not_followed(home, tmp_path, capsys):
    mine = write(tmp_path / "mine", {"keep.md": b"mine"})
    skills = home / ".claude/skills"
    skills.mkdir(parents=True)
    (skills / "pytorch-ignite").symlink_to(mine)
    assert command.main(["install", "claude"]) == command.main(["uninstall", "claude"]) == 1
    assert tree(mine) == {"keep.md": b"mine"}
    (skills / "pytorch-ignite").unlink()
    command.main(["install", "claude"])
    (skills / "pytorch-ignite/linked").symlink_to(mine)
    assert command.main(["install", "claude"]) == command.main(["uninstall", "claude"]) == 1
    assert tree(mine) == {"keep.md": b"mine"} and "linked" in capsys.readouterr().err


def test_a_tampered_record_removes_nothing_elsewhere(home, tmp_path):
    command.main(["install", "claude"])
    victim = write(tmp_path, {"victim.md": b"mine"}) / "victim.md"
    target = home / ".claude/skills/pytorch-ignite"
    record = json.loads((target / command.RECORD).read_text())
    record["files"]["../../../../victim.md"] = record["files"][str(victim)] = command.checksum(b"mine")
    (target / command.RECORD).write_text(json.dumps(record))
    command.main(["uninstall", "claude"])
    assert victim.read_bytes() == b"mine"


def test_a_file_in_the_way_is_refused(home, capsys):
    write(home, {".claude/skills/pytorch-ignite": b"a file"})
    assert command.main(["install", "claude"]) == 1 and "is not a folder" in capsys.readouterr().err


def test_what_the_system_refuses_is_told_in_a_line(home, capsys):
    write(home, {".claude": b"a file where a folder should be"})
    assert command.main(["install", "claude"]) == 1
    said = capsys.readouterr().err
    assert str(home / ".claude") in said and said.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["install"], ["install", "nobody"], ["install", "claude", "--user",
                                       "--project"], ["install", "claude", "--project", "nowhere"]])
def test_usage(arguments, home, capsys):
    with pytest.raises(SystemExit) as e:
        command.main(arguments)
    assert e.value.code == 2 and capsys.readouterr().err


def test_help_shows_each_folder_that_it_names(capsys):
    """The examples of --help are the folders of CLIENTS."""
    with pytest.raises(SystemExit):
        command.main(["--help"])
    shown = capsys.readouterr().out
    for client, level in (("claude", 0), ("codex", 1)):
        assert f"{command.CLIENTS[client][level]}/pytorch-ignite" in shown


def test_a_failure_midway_leaves_the_old_copy(tmp_path, monkeypatch):
    target = tmp_path / "skills/pytorch-ignite"
    command.install(target, write(tmp_path / "old", SKILL_FILES))
    before = tree(target)
    monkeypatch.setattr(command.json, "dumps", lambda *a, **k: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        command.install(target, write(tmp_path / "new", {**SKILL_FILES, "SKILL.md": b"new"}))
    assert tree(target) == before and [p.name for p in target.parent.iterdir()] == ["pytorch-ignite"]


def test_the_module_needs_only_the_standard_library():
    imported = {line.split()[1].split(".")[0] for line in Path(command.__file__).read_text().splitlines()
                if line.startswith(("import ", "from "))}
    assert imported and imported <= sys.stdlib_module_names | {"__future__"}
