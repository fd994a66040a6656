"""Builds what people install: one archive and one wheel, with only what a user of the skill needs, and their checksums.

    python release/build.py            dist/pytorch-ignite-VERSION.zip, the wheel, SHA256SUMS
    python release/build.py --stamp    writes the version of pyproject.toml into the other manifests

The same files give the same bytes on every day and machine: entries are sorted, carry one date and one of two modes,
and are stored without compression, which differs between versions of zlib. `pip install .` comes here as well: this
module is the build backend that pyproject.toml names, and needs nothing but the standard library.
"""
from __future__ import annotations

import argparse
import base64
import hashlib
import re
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = (".claude-plugin", "GEMINI.md", "LICENSE", "SECURITY.md", "SKILL.md", "agents", "gemini-extension.json",
           "references", "scripts", "sub-skills")
STAMPED = (".claude-plugin/plugin.json", "gemini-extension.json")
DIST = "dist"  # where it goes, below the root
SKILL, MODULE = "pytorch-ignite", "pytorch_ignite_skill"
DATE = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip file can tell
VERSION = re.compile(r'(^|\n)(\s*"?version"?\s*[=:]\s*")([^"]*)(")')


def project(key: str, root: Path = ROOT) -> str:
    """A string of pyproject.toml's [project], the one place for version and description."""
    table = (root / "pyproject.toml").read_text(encoding="utf-8").split("[project]\n", 1)[1].split("\n[", 1)[0]
    return re.search(rf'^{key} = "(.*)"$', table, re.M)[1]


def stamp(root: Path = ROOT) -> list[str]:
    """Write the version into the manifests that repeat it; the names of those that changed."""
    changed = []
    for name in STAMPED:
        text = (root / name).read_text(encoding="utf-8")
        stamped = VERSION.sub(lambda m: m[1] + m[2] + project("version", root) + m[4], text, count=1)
        if stamped != text:
            (root / name).write_text(stamped, encoding="utf-8")
            changed.append(name)
    return changed


def files(root: Path = ROOT) -> dict[str, bytes]:
    """Path in the skill -> content, sorted; in a git checkout only what git tracks or would track."""
    listed = None
    if (root / ".git").exists():
        git = ["git", "-C", str(root), "ls-files", "-co", "--exclude-standard", "-z", "--", *SHIPPED]
        done = subprocess.run(git, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"git cannot list the files: {done.stderr.strip()}")
        listed = set(filter(None, done.stdout.split("\0")))
    found = {}
    for top in SHIPPED:
        path = root / top
        if not path.exists():
            raise SystemExit(f"{path} does not exist; SHIPPED in {Path(__file__).name} names it")
        for file in [path] if path.is_file() else path.rglob("*"):
            name = file.relative_to(root).as_posix()
            if file.is_file() and "__pycache__" not in file.parts and (listed is None or name in listed):
                found[name] = file.read_bytes()
    return dict(sorted(found.items()))


def write_zip(target: Path, content: dict[str, bytes]) -> None:
    """A zip file that depends on `content` alone. A file that begins with #! may be executed."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for name, data in content.items():
            entry = zipfile.ZipInfo(name, DATE)
            entry.create_system = 3  # Unix, also where this runs on Windows
            entry.external_attr = (0o100755 if data.startswith(b"#!") else 0o100644) << 16
            archive.writestr(entry, data)


def build_archive(folder: Path, root: Path = ROOT) -> Path:
    """The skill's folder as one zip, to unpack into any client's folder of skills."""
    target = Path(folder) / f"{SKILL}-{project('version', root)}.zip"
    write_zip(target, {f"{SKILL}/{name}": data for name, data in files(root).items()})
    return target


def metadata(root: Path) -> bytes:
    lines = ["Metadata-Version: 2.1", f"Name: {project('name', root)}", f"Version: {project('version', root)}",
             f"Summary: {project('description', root)}", "License: BSD-3-Clause", "Requires-Python: >=3.10",
             "Description-Content-Type: text/markdown", ""]
    return ("\n".join(lines) + "\n" + (root / "README.md").read_text(encoding="utf-8")).encode()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None, root: Path = ROOT) -> str:
    """PEP 517: the file name of a wheel that carries the skill and the command that installs it."""
    version = project("version", root)
    info = f"{MODULE}-{version}.dist-info"
    content = {f"{MODULE}/{p.name}": p.read_bytes() for p in sorted((root / "release" / MODULE).glob("*.py"))}
    content.update({f"{MODULE}/skill/{name}": data for name, data in files(root).items()})
    content[f"{info}/METADATA"] = metadata(root)
    content[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: release/build.py\nRoot-Is-Purelib: true\n" \
                               b"Tag: py3-none-any\n"
    content[f"{info}/entry_points.txt"] = f"[console_scripts]\n{project('name', root)} = {MODULE}:main\n".encode()
    content[f"{info}/licenses/LICENSE"] = (root / "LICENSE").read_bytes()
    record = [f"{name},sha256={_digest(data)},{len(data)}\n" for name, data in content.items()]
    content[f"{info}/RECORD"] = ("".join(record) + f"{info}/RECORD,,\n").encode()
    name = f"{MODULE}-{version}-py3-none-any.whl"
    write_zip(Path(wheel_directory) / name, content)
    return name


def build_sdist(sdist_directory, config_settings=None):
    """PEP 517 asks for it; a source archive is what the code host gives, so there is none here."""
    raise SystemExit("there is no source distribution; build the wheel")


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def build(folder: Path, root: Path = ROOT) -> list[Path]:
    """Archive, wheel and SHA256SUMS in `folder`, and nothing left there of an earlier build."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in [*folder.glob(f"{SKILL}-*.zip"), *folder.glob(f"{MODULE}-*.whl")]:
        old.unlink()
    made = [build_archive(folder, root), folder / build_wheel(folder, root=root)]
    sums = folder / "SHA256SUMS"
    sums.write_text("".join(f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in made))
    return [*made, sums]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / DIST, metavar="FOLDER", help="default: dist")
    parser.add_argument("--stamp", action="store_true", help="write the version into the manifests, build nothing")
    options = parser.parse_args(argv)
    if options.stamp:
        print(*stamp() or ["every manifest has the version already"], sep="\n")
        return 0
    for path in build(options.output):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
