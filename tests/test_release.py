"""Promise: a release holds what a user of the skill needs and nothing else, is the same bytes on every day, and has one
version in every manifest."""
from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support import BUNDLE
from support.claims import COUNTS
from support.installed import check_copy, second_names_are_off

spec = importlib.util.spec_from_file_location("release_build", BUNDLE / "release" / "build.py")
release_build = importlib.util.module_from_spec(spec)
spec.loader.exec_module(release_build)

LEFT_OUT = {  # what stands beside the skill and is for those who change it
    "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "constraints.txt", "pyproject.toml", "evals", "release",
    "tests", ".ci", ".gitignore", ".pre-commit-hooks.yaml", ".rumdl.toml",
}
VERSION = release_build.project("version")


def tracked(*below: str) -> list[str]:
    """What git tracks or would track, as far as it exists."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "--", *below]
    done = subprocess.run(command, cwd=BUNDLE, capture_output=True, text=True, check=True)
    return [name for name in done.stdout.splitlines() if (BUNDLE / name).is_file()]


def copied_tree(target: Path) -> Path:
    """The files of the bundle in another folder, without .git."""
    for name in tracked():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(BUNDLE / name, target / name)
    return target


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return release_build.build(tmp_path_factory.mktemp("dist"))


def test_every_top_level_name_is_shipped_or_left_out():
    tops = {name.split("/")[0] for name in tracked()}
    assert "SKILL.md" in tops
    unknown = tops - set(release_build.SHIPPED) - LEFT_OUT
    assert not unknown, f"{unknown}: name each in SHIPPED of release/build.py or in LEFT_OUT of this test"


def test_two_builds_on_two_days_are_equal(made, tmp_path):
    """Other dates, other file modes, another umask, another folder, no .git, another hour and another hash seed."""
    tree = copied_tree(tmp_path / "elsewhere")
    for number, path in enumerate(sorted(tree.rglob("*"))):
        os.utime(path, (1e9 + number, 1.5e9 + number))
        path.chmod(0o700 if path.is_dir() else 0o600)
    (tree / "scripts" / "__pycache__").mkdir(exist_ok=True)
    (tree / "scripts" / "__pycache__" / "smoke.cpython-311.pyc").write_bytes(b"stray")
    subprocess.run([sys.executable, "release/build.py", "--output", str(tmp_path / "dist")], cwd=tree, check=True,
                   umask=0o077, env={**os.environ, "TZ": "Asia/Tokyo", "PYTHONHASHSEED": "7"}, timeout=60)
    assert [p.name for p in made] == [f"pytorch-ignite-{VERSION}.zip",
                                      f"pytorch_ignite_skill-{VERSION}-py3-none-any.whl", "SHA256SUMS"]
    for path in made:
        assert path.read_bytes() == (tmp_path / "dist" / path.name).read_bytes(), path.name
        COUNTS["release files built twice and compared"] += 1


def test_a_change_changes_the_archive(made, tmp_path):
    tree = copied_tree(tmp_path)
    with open(tree / "SKILL.md", "a") as f:
        f.write("\n")
    assert release_build.build(tree / "dist", tree)[0].read_bytes() != made[0].read_bytes()


def test_nothing_is_compressed_so_that_no_library_version_counts(made):
    for path in made[:2]:
        for entry in zipfile.ZipFile(path).infolist():
            assert entry.compress_type == zipfile.ZIP_STORED and entry.date_time == release_build.DATE, entry
            assert entry.external_attr >> 16 in (0o100644, 0o100755) and not entry.extra, entry


def test_checksums(made):
    for line in made[2].read_text().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((made[2].parent / name).read_bytes()).hexdigest() == digest
    assert len(made[2].read_text().splitlines()) == 2
    if shutil.which("sha256sum"):
        subprocess.run(["sha256sum", "--check", "--quiet", made[2].name], cwd=made[2].parent, check=True, timeout=60)


def test_archive_is_a_whole_skill(made, tmp_path):
    zipfile.ZipFile(made[0]).extractall(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["pytorch-ignite"], "one folder, named as the skill"
    check_copy(tmp_path / "pytorch-ignite")
    assert not second_names_are_off(tmp_path / "pytorch-ignite")


def test_archive_has_no_file_of_the_workshop(made):
    names = zipfile.ZipFile(made[0]).namelist()
    assert len(names) > 30 and names == sorted(names)
    strange = [n for n in names if re.search(r"/(tests|evals|release|\.ci|\.git)/|__pycache__|\.pyc$|/\.[^c]", n)]
    assert not strange
    assert {n.removeprefix("pytorch-ignite/") for n in names} == set(tracked(*release_build.SHIPPED))


def test_wheel_has_the_same_skill(made):
    archive, wheel = map(zipfile.ZipFile, made[:2])
    skill = {n.removeprefix("pytorch-ignite/"): archive.read(n) for n in archive.namelist()}
    prefix = "pytorch_ignite_skill/skill/"
    assert {n.removeprefix(prefix): wheel.read(n) for n in wheel.namelist() if n.startswith(prefix)} == skill
    record = next(n for n in wheel.namelist() if n.endswith("/RECORD"))
    assert {line.split(",")[0] for line in wheel.read(record).decode().splitlines()} == set(wheel.namelist())


def test_pip_installs_the_checkout_and_the_command_works(made, tmp_path):
    """pip builds the wheel anew, through the backend that pyproject.toml names, and needs no other package for it."""
    site, home = tmp_path / "site", tmp_path / "home"
    home.mkdir()
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-compile", "--root-user-action=ignore"]
    pip += ["--disable-pip-version-check", "--target", str(site), str(copied_tree(tmp_path / "tree"))]
    subprocess.run(pip, check=True, timeout=120)
    wheel = zipfile.ZipFile(made[1])
    for name in wheel.namelist():
        if not name.endswith("/RECORD"):  # pip adds lines of its own
            assert (site / name).read_bytes() == wheel.read(name), name
    env = {"HOME": str(home), "PYTHONPATH": str(site), "PATH": os.environ["PATH"]}
    command = [sys.executable, str(site / "bin" / "pytorch-ignite-skill"), "install", "claude"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    check_copy(home / ".claude/skills/pytorch-ignite", smoke=False)


def test_version_is_the_same_everywhere():
    for name in release_build.STAMPED:
        said = json.loads((BUNDLE / name).read_text())["version"]
        assert said == VERSION, f"{name} says {said}, pyproject.toml {VERSION}: run python release/build.py --stamp"
        COUNTS["manifests of one version"] += 1
    marketplace = json.loads((BUNDLE / ".claude-plugin/marketplace.json").read_text())
    assert all("version" not in plugin for plugin in marketplace["plugins"]), "plugin.json says it"


def test_no_other_manifest_has_a_version():
    manifests = [p for p in release_build.files() if p.endswith(".json")]
    assert {n for n in manifests if '"version"' in (BUNDLE / n).read_text()} == set(release_build.STAMPED)


def test_stamp_writes_a_new_version(tmp_path):
    tree = copied_tree(tmp_path)
    text = (tree / "pyproject.toml").read_text()
    (tree / "pyproject.toml").write_text(text.replace(f'version = "{VERSION}"', 'version = "9.8.7"', 1))
    assert release_build.stamp(tree) == list(release_build.STAMPED)
    for name in release_build.STAMPED:
        before, after = json.loads((BUNDLE / name).read_text()), json.loads((tree / name).read_text())
        assert after == {**before, "version": "9.8.7"}
    assert release_build.stamp(tree) == []


def test_manifests_name_the_skill():
    plugin, market, gemini = (json.loads((BUNDLE / n).read_text()) for n in (
        ".claude-plugin/plugin.json", ".claude-plugin/marketplace.json", "gemini-extension.json"))
    name = re.search(r"^name: (.*)$", (BUNDLE / "SKILL.md").read_text(), re.M)[1]
    assert plugin["name"] == gemini["name"] == name == release_build.SKILL and plugin["skills"] == ["./"]
    assert [(p["name"], p["source"]) for p in market["plugins"]] == [(name, "./")]
    assert (BUNDLE / gemini["contextFileName"]).is_file()
    assert f"${name} " in (BUNDLE / "agents/openai.yaml").read_text()


def test_a_missing_part_is_noticed(tmp_path):
    tree = copied_tree(tmp_path)
    shutil.rmtree(tree / "references")
    with pytest.raises(SystemExit, match="references does not exist"):
        release_build.build(tree / "dist", tree)


def test_no_sub_skill_is_offered_beside_the_router(tmp_path):
    assert not second_names_are_off(BUNDLE)
    tree = copied_tree(tmp_path)
    (tree / "sub-skills/engine/agents/openai.yaml").unlink()
    assert second_names_are_off(tree) == ["engine/agents/openai.yaml lacks `allow_implicit_invocation: false`"]
