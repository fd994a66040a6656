"""Promise: every link on a page, and every place that a script sends its reader to, is there and is what the link's own
words say; and none is far away."""
from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import BUNDLE
from support.claims import COUNTS
from support.pages import page_paths, read_page

PAGES = page_paths()
SCRIPTS = sorted(BUNDLE.glob("sub-skills/*/scripts/*.py"))
MOST_HOPS = 2  # from the root SKILL.md to a sub-skill's SKILL.md to one reference
SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.I)
EMPTY = {"a", "an", "and", "in", "is", "it", "md", "of", "on", "py", "reference", "skill", "sub", "the", "to"}
PLACE = re.compile(r"references/[\w./-]+\.md(?:#[\w-]*)?")


def target_fault(target: str, folder: Path, page: Path, root: Path) -> str:
    """Why nothing is found where `target` points, seen from `folder` (of `page` when it has no path), or ""."""
    path, _, anchor = target.partition("#")
    if path.startswith(("/", "~")) or "\\" in path or re.match(r"file:|[a-z]:", path, re.I):
        return "is absolute; links are relative to the file that holds them"
    if "#" in target and not anchor:
        return "ends in a bare #"
    aim = (folder / path).resolve() if path else (root / page).resolve()
    if not aim.is_relative_to(root.resolve()):
        return "leaves the bundle"
    if not aim.exists():
        return "does not exist"
    if anchor and aim.suffix != ".md":
        return "has an anchor, but is not a page"
    if anchor and anchor not in (anchors := read_page(aim.relative_to(root.resolve()), root.resolve()).anchors):
        near = [a for a in sorted(anchors) if a.lower()[:12] == anchor.lower()[:12]]
        return f"has no such heading; near: {near or sorted(anchors)[:5]}"
    return ""


def words(text: str) -> set[str]:
    """The telling words of a heading, a path or a link's text, plurals as singulars."""
    return {w.rstrip("s") for w in re.findall(r"[a-z0-9_]+", text.lower())} - EMPTY


def label_fault(link, page: Path, root: Path) -> str:
    """Why the words of a link, which leads somewhere, do not fit the heading or the file it leads to, or ""."""
    path, _, anchor = link.target.partition("#")
    aim = ((root / page).parent / path).resolve().relative_to(root.resolve()) if path else page
    if anchor:
        entries = read_page(aim, root).entries
        goal = next(e.heading for e in entries if e.anchor == anchor)
        nearer = max(entries, key=lambda e: len(words(link.text) & words(e.heading)))
        if len(words(link.text) & words(nearer.heading)) > len(words(link.text) & words(goal)):
            return f"is shown as «{link.text}», but leads to «{goal}», not to «{nearer.heading}»"
    elif "/" in link.text or link.text.endswith(aim.suffix or "\0"):  # a path, of the file or of a folder
        fits = link.target.endswith(link.text) or str(aim).startswith(link.text.rstrip("/") + "/")
        return "" if fits or str(aim) == link.text else f"is shown as {link.text}"
    else:
        goal = f"{aim} {read_page(aim, root).entries[0].heading if aim.suffix == '.md' else ''}"
    return "" if words(link.text) & words(goal) else f"is shown as «{link.text}», but leads to «{goal.strip()}»"


def page_faults(path: Path, root: Path) -> list[str]:
    faults = []
    page = read_page(path, root)
    for link in page.links:
        if SCHEME.match(link.target) and not re.match(r"file:|[a-z]:", link.target, re.I):
            COUNTS["links to the web, not followed"] += 1
            continue
        if why := target_fault(link.target, (root / path).parent, path, root):
            faults.append(f"{path}:{link.line}: {link.target} {why}")
        elif why := label_fault(link, path, root):
            faults.append(f"{path}:{link.line}: {link.target} {why}")
        COUNTS["links followed"] += 1
    return faults


def neighbours(path: Path) -> set[Path]:
    """The files that a page links to, relative to the bundle."""
    found = set()
    for link in read_page(path).links:
        target = link.target.partition("#")[0]
        if target and not SCHEME.match(target):
            found.add((BUNDLE / path.parent / target).resolve().relative_to(BUNDLE.resolve()))
    return found


def hops() -> dict[Path, int]:
    """How many links away from the root SKILL.md each file is."""
    far, todo = {Path("SKILL.md"): 0}, [Path("SKILL.md")]
    while todo:
        page = todo.pop(0)
        for target in neighbours(page) if page.suffix == ".md" and (BUNDLE / page).is_file() else ():
            if target not in far:
                far[target] = far[page] + 1
                todo.append(target)
    return far


def places(script: Path) -> dict[str, int]:
    """Where a script can send its reader ("references/page.md#anchor"), with the line that says so.

    Found are whole literals, and sums PREFIX + anchor, the anchor being a literal, an item of a dict, a loop variable
    over a list of tuples, or, for any other name, an id that --list prints.
    """
    tree = ast.parse(script.read_text())
    values = {n.targets[0].id: n.value for n in ast.walk(tree) if isinstance(n, ast.Assign)
              and len(n.targets) == 1 and isinstance(n.targets[0], ast.Name)}
    prefixes = {name: v.value for name, v in values.items()
                if isinstance(v, ast.Constant) and isinstance(v.value, str) and PLACE.fullmatch(v.value)}
    used_as_prefix, found = set(), {}
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.left, ast.Name) and node.left.id in prefixes:
            for anchor in anchors_of(node.right, tree, values, script):
                found[prefixes[node.left.id] + anchor] = node.lineno
            used_as_prefix.add(id(node.left))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in prefixes and id(node) not in used_as_prefix:
            if isinstance(node.ctx, ast.Load):
                found[prefixes[node.id]] = node.lineno
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value not in prefixes.values():
            for place in PLACE.findall(node.value):
                found[place] = node.lineno
    return found


def anchors_of(node: ast.expr, tree: ast.Module, values: dict[str, ast.expr], script: Path) -> set[str]:
    if isinstance(node, ast.Constant):
        return {node.value}
    if isinstance(node, ast.IfExp):
        listed = anchors_of(node.body, tree, values, script) | anchors_of(node.orelse, tree, values, script)
        keys = {k.value for part in (node.body, node.orelse) if isinstance(part, ast.Subscript)
                for k in values[part.value.id].keys}
        return listed - keys
    if isinstance(node, ast.Subscript) and isinstance(values.get(node.value.id), ast.Dict):
        return {v.value for v in values[node.value.id].values}
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":  # d.get(x, x)
        mapped = values[node.func.value.id]
        others = anchors_of(node.args[1], tree, values, script) - {k.value for k in mapped.keys}
        return others | {v.value for v in mapped.values}
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "lower":
        return {a.lower() for a in anchors_of(node.func.value, tree, values, script)}
    if isinstance(node, ast.Name):
        for loop in ast.walk(tree):
            if isinstance(loop, ast.For) and isinstance(loop.target, ast.Tuple) and isinstance(loop.iter, ast.Name):
                names = [getattr(e, "id", None) for e in loop.target.elts]
                if node.id in names and isinstance(values.get(loop.iter.id), (ast.Tuple, ast.List)):
                    rows = [row.elts for row in values[loop.iter.id].elts]
                    return {row[names.index(node.id)].value for row in rows}
        done = subprocess.run([sys.executable, str(script), "--list"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return set(done.stdout.split())
    raise AssertionError(f"{script.name}:{node.lineno}: this test cannot tell which anchors {ast.unparse(node)} can be")


def script_faults(script: Path, root: Path) -> list[str]:
    """Places are relative to the sub-skill's folder."""
    folder = script.parent.parent
    faults = []
    for place, line in places(script).items():
        if why := target_fault(place, folder, script.relative_to(root), root):
            faults.append(f"{script.relative_to(root)}:{line}: {place} {why}")
        COUNTS["places named in scripts followed"] += 1
    return faults


@pytest.mark.parametrize("path", PAGES, ids=str)
def test_links_of_page(path):
    faults = page_faults(path, BUNDLE)
    assert not faults, "\n" + "\n".join(faults)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda s: s.name)
def test_places_named_in_script(script):
    faults = script_faults(script, BUNDLE)
    assert not faults, "\n" + "\n".join(faults)


def test_something_was_inspected():
    links = sum(len(read_page(path).links) for path in PAGES)
    assert links > 20 and SCRIPTS and places(SCRIPTS[0]), f"{links} links, scripts {SCRIPTS}"


def test_every_page_is_near_the_router():
    far = hops()
    rooms = [p for p in PAGES if p.parts[0] in ("sub-skills", "references")]
    assert rooms
    lost = [f"{p}: no link leads here from SKILL.md" for p in rooms if p not in far]
    lost += [f"{p}: {far[p]} links away from SKILL.md, at most {MOST_HOPS}" for p in rooms if far.get(p, 0) > MOST_HOPS]
    assert not lost, "\n" + "\n".join(lost)


def test_every_program_is_near_the_router():
    far = hops()
    programs = [p.relative_to(BUNDLE) for folder in ("scripts", "assets")
                for p in sorted(BUNDLE.glob(f"sub-skills/*/{folder}/*.py"))]
    assert programs
    lost = [f"{p}: not linked within {MOST_HOPS} links of SKILL.md" for p in programs if far.get(p, 99) > MOST_HOPS]
    assert not lost, "\n" + "\n".join(lost)


def test_linter():
    tool = Path(sys.executable).parent / "rumdl"
    assert tool.exists(), "install rumdl: it is one of the test dependencies"
    command = [str(tool), "check", "--no-cache", "."]
    done = subprocess.run(command, cwd=BUNDLE, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


BAD = """# Bad
[gone](gone.md) [absolute](/etc/hosts) [dead](good.md#nowhere) [here](#nobody) [case](good.md#Here)
[out](../../outside.md) [bare](good.md#) [drive](C:/page.md)
[fine here](good.md#here) [this bad page](#bad) [web](https://example.org/x)
[there](good.md#here) [other.md](good.md) [sub/good.md](good.md) [good.md](good.md)
"""


def test_checker_finds_what_is_wrong(tmp_path):
    (tmp_path / "good.md").write_text("# Good\n## Here\nWords.\n")
    (tmp_path / "bad.md").write_text(BAD)
    before = COUNTS.copy()
    faults = page_faults(Path("bad.md"), tmp_path)
    COUNTS.clear()
    COUNTS.update(before)
    wrong = ["gone.md", "/etc/hosts", "good.md#nowhere", "#nobody", "good.md#Here", "../../outside.md", "good.md#",
             "C:/page.md", "good.md#here", "good.md", "good.md"]
    assert [f.split(": ")[1].split(" ")[0] for f in faults] == wrong, faults
    assert faults[0].startswith("bad.md:2:")


BAD_SCRIPT = '''
TROUBLE = "references/good.md#"
ANCHORS = {"a": "here", "b": "gone"}
PAIRS = (("text", "here"), ("other", "lost"))
def see(key):
    for text, anchor in PAIRS:
        if text in key:
            return TROUBLE + anchor
    return TROUBLE + ANCHORS[key]
FINE = "see references/good.md#here"
DEAD = "see references/good.md#dead and references/none.md"
'''


def test_checker_finds_what_is_wrong_in_a_script(tmp_path):
    script = tmp_path / "sub-skills" / "room" / "scripts" / "tool.py"
    script.parent.mkdir(parents=True)
    (script.parent.parent / "references").mkdir()
    (script.parent.parent / "references" / "good.md").write_text("# Good\n## Here\nWords.\n")
    script.write_text(BAD_SCRIPT)
    before = COUNTS.copy()
    faults = script_faults(script, tmp_path)
    COUNTS.clear()
    COUNTS.update(before)
    assert sorted(f.split(": ")[1].split(" ")[0] for f in faults) == [
        "references/good.md#dead", "references/good.md#gone", "references/good.md#lost", "references/none.md",
    ], faults
