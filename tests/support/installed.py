"""What must hold for every copy of the skill, wherever a client or a package has put it."""
from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

from test_links import SCHEME, target_fault

from .claims import COUNTS
from .pages import page_paths, read_page
from .smoke import ForkedSmoke

OFF = ("disable-model-invocation: true", "allow_implicit_invocation: false")


def check_copy(folder: Path, smoke: bool = True) -> None:
    """The router is there, every link of every page leads somewhere in the copy, and the smoke runs from it."""
    assert (folder / "SKILL.md").is_file(), f"{folder} holds no SKILL.md"
    shipped = [p for p in page_paths(folder) if p.parts[0] in ("SKILL.md", "GEMINI.md", "sub-skills", "references")]
    assert len(shipped) > 10, shipped
    links = [(page, link) for page in shipped for link in read_page(page, folder).links]
    links = [(page, link) for page, link in links if not SCHEME.match(link.target)]
    assert len(links) > 50, links
    faults = [f"{page}:{link.line}: {link.target} {why}" for page, link in links
              if (why := target_fault(link.target, (folder / page).parent, page, folder))]
    assert not faults, "\n" + "\n".join(faults)
    COUNTS["installed copies whose links were followed"] += 1
    if smoke:
        result = ForkedSmoke(["serial"], module=load_smoke(folder)).finish()
        assert result.code == 0 and result.out.startswith("PASS"), result.out + result.err
        COUNTS["installed copies whose smoke ran"] += 1


def load_smoke(folder: Path):
    """The copy's own distributed_smoke.py as a module; nothing of it has run."""
    path = folder / "sub-skills" / "distributed" / "scripts" / "distributed_smoke.py"
    spec = importlib.util.spec_from_file_location("installed_smoke", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    assert Path(module.__file__) == path
    module.import_libraries()
    return module


def second_names_are_off(folder: Path) -> list[str]:
    """Sub-skills of the copy that a client may offer beside the router, for want of one of the two switches."""
    rooms = sorted(folder.glob("sub-skills/*/"))
    assert rooms
    faults = []
    for room in rooms:
        head = re.split(r"^---$", (room / "SKILL.md").read_text(), maxsplit=2, flags=re.M)[1]
        policy = room / "agents" / "openai.yaml"
        if OFF[0] not in head:
            faults.append(f"{room.name}/SKILL.md lacks `{OFF[0]}`")
        if not policy.exists() or OFF[1] not in policy.read_text():
            faults.append(f"{room.name}/agents/openai.yaml lacks `{OFF[1]}`")
    return faults
