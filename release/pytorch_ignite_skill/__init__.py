"""Copies the pytorch-ignite skill into a client's folder of skills, and takes away what it copied.

    pytorch-ignite-skill install claude --user       into ~/.claude/skills/pytorch-ignite
    pytorch-ignite-skill install codex --project     into .agents/skills/pytorch-ignite
    pytorch-ignite-skill install gemini --dry-run    only says what it would do
    pytorch-ignite-skill uninstall claude --user

It writes a record of its files, with their checksums, into the folder. What is not in the record, or was changed since,
it neither overwrites nor removes.
Exit codes: 0 done, 1 refused because files of others are in the way or stay, or the system refused, 2 usage;
--dry-run ends with the code that the real run would, as far as the files tell.
"""
from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

SKILL = "pytorch-ignite"
RECORD = ".installed.json"
SOURCE = Path(__file__).parent / "skill"
CLIENTS = {  # client -> (folder of skills below the home folder, the same below a project)
    "claude": (".claude/skills", ".claude/skills"),
    "codex": (".agents/skills", ".agents/skills"),
    "copilot": (".copilot/skills", ".agents/skills"),
    "cursor": (".cursor/skills", ".agents/skills"),
    "gemini": (".gemini/skills", ".agents/skills"),
}


class Refused(Exception):
    """What is in the way, or had to stay."""


def folder_of(client: str, project: Path | None) -> Path:
    """Where the client looks for this skill: in a project's folder, or for a user in all projects."""
    if project is not None:
        return project / CLIENTS[client][1] / SKILL
    if client == "claude" and os.environ.get("CLAUDE_CONFIG_DIR"):
        return Path(os.environ["CLAUDE_CONFIG_DIR"]) / "skills" / SKILL
    return Path.home() / CLIENTS[client][0] / SKILL


def contents(source: Path = SOURCE) -> dict[str, bytes]:
    found = {p.relative_to(source).as_posix(): p.read_bytes() for p in sorted(source.rglob("*"))
             if p.is_file() and "__pycache__" not in p.parts}
    if "SKILL.md" not in found:
        raise SystemExit(f"{source} holds no skill; install the wheel again")
    return found


def checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def recorded(target: Path) -> dict[str, str] | None:
    """Path -> checksum of what was written into `target`, None where there is no readable record."""
    try:
        listed = json.loads((target / RECORD).read_text(encoding="utf-8"))["files"]
        return {str(path): str(digest) for path, digest in listed.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def others(target: Path, written: dict[str, str]) -> list[str]:
    """Files in `target` that were not written by this program, or were changed since.

    Byte code that Python left beside the programs is nobody's work.
    """
    found = []
    for path in sorted(target.rglob("*")):
        name = path.relative_to(target).as_posix()
        if path.is_symlink():
            found.append(name)
        elif path.is_file() and name != RECORD and path.parent.name != "__pycache__":
            if written.get(name) != checksum(path.read_bytes()):
                found.append(name)
    return found


def install(target: Path, source: Path = SOURCE, dry_run: bool = False) -> str:
    """Copy the skill to `target`, in place of an earlier copy; what was done, in one sentence.

    Raises Refused when anything there is not this program's own.
    """
    content = contents(source)
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise Refused(f"{target} is not a folder; move it away first")
    there = target.exists() and any(target.iterdir())
    if there:
        written = recorded(target)
        if written is None:
            raise Refused(f"{target} was not written by this program; move it away first")
        if kept := others(target, written):
            raise Refused(f"{target} holds files that this program did not write or that were changed since: "
                          f"{', '.join(kept)}")
    if dry_run:
        return f"would write {len(content)} files to {target}" + " in place of those there" * there
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{SKILL}.", dir=target.parent) as beside:
        new = Path(beside) / "new"
        for name, data in content.items():
            path = new / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            if data.startswith(b"#!"):
                path.chmod(path.stat().st_mode | 0o111)
        record = {"skill": SKILL, "files": {name: checksum(data) for name, data in content.items()}}
        (new / RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        if target.exists():
            target.rename(Path(beside) / "old")
        new.rename(target)
    return f"wrote {len(content)} files to {target}"


def uninstall(target: Path, dry_run: bool = False) -> str:
    """Remove what install wrote, and the folders that this leaves empty; what was done, in one sentence.

    Raises Refused where there is no record of ours, or where files of others had to stay.
    """
    written = None if target.is_symlink() else recorded(target)
    if written is None:
        raise Refused(f"{target} was not written by this program; nothing is removed")
    kept = others(target, written)
    mine = [target / name for name in written if name not in kept and _is_inside(target, name)]
    mine = [p for p in mine if p.is_file()]
    stay = f"these stay, they were not written by this program or were changed since: {', '.join(kept)}"
    if dry_run:
        if kept:
            raise Refused(f"would remove {len(mine)} files from {target}; {stay}")
        return f"would remove {len(mine)} files from {target}"
    for path in [*mine, *([target / RECORD] if not kept else [])]:
        path.unlink()
    for cache in sorted(target.rglob("__pycache__")):
        if not cache.is_symlink():
            shutil.rmtree(cache)
    for folder in sorted((p for p in target.rglob("*") if p.is_dir() and not p.is_symlink()), reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()
    if kept:
        raise Refused(f"removed {len(mine)} files from {target}; {stay}")
    target.rmdir()
    return f"removed {len(mine)} files and {target}"


def _is_inside(target: Path, name: str) -> bool:
    """A record that was tampered with must not lead elsewhere."""
    path = target / name
    return not path.is_symlink() and path.resolve().is_relative_to(target.resolve())


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="pytorch-ignite-skill", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["install", "uninstall"])
    parser.add_argument("client", choices=sorted(CLIENTS))
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--user", action="store_true", help="for all projects of this user (the default)")
    where.add_argument("--project", nargs="?", type=Path, const=Path(), metavar="FOLDER",
                       help="for one project, the current folder unless one is named")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, change nothing")
    options = parser.parse_args(argv)
    if options.project is not None and not options.project.is_dir():
        parser.error(f"--project {options.project}: no such folder")
    target = folder_of(options.client, options.project)
    try:
        act = install if options.action == "install" else uninstall
        print(act(target, dry_run=options.dry_run))
        return 0
    except (Refused, OSError) as e:
        print(e, file=sys.stderr)
        return 1
