"""Promise: the rules of explain_log.py are the entries of troubleshooting.md: a new entry is a new rule, the copy
inside the program equals the page, and each cause that the program can name is an entry."""

from __future__ import annotations

import json
import re
import shutil
from itertools import zip_longest

from support import BUNDLE
from support.explain import LOGS, PAGE, SCRIPT, load, program, rules
from support.pages import read_page


def test_the_copy_equals_the_page():
    module, page = program(), PAGE.read_text()
    assert module.rules_of_page(page), "no rules on the page"
    copy, now = (text.strip().splitlines() for text in (module.COPY, module.shortened(page)))
    for here, (old, new) in enumerate(zip_longest(copy, now, fillvalue="")):
        entry = next(line for line in reversed(now[: here + 1]) if line.startswith("### "))
        where = f"{PAGE.relative_to(BUNDLE)}:{page.splitlines().index(entry) + 1 + 2 * (new != entry)}"
        assert old == new, f"{where}: the copy in {SCRIPT.name} says otherwise; if the page is right: " \
            f"python tests/support/embed_rules.py"
    assert module.rules_of_page(module.COPY) == module.rules_of_page(page)


def test_rules_are_the_entries_of_the_page():
    entries = {e.anchor: e for e in read_page(PAGE.relative_to(PAGE.parents[3])).entries if e.level == 3}
    found = rules()
    assert list(found) == list(entries)
    for anchor, rule in found.items():
        assert rule.means and rule.fix, f"{PAGE.name}#{anchor}: Means or Fix was not found"
        assert rule.heading == entries[anchor].heading


def test_every_cause_that_the_judge_names_is_an_entry():
    missing = [f"{name}: {anchor}" for name, anchor in program().IDS.items() if anchor not in rules()]
    assert not missing, missing


def test_a_heading_finds_the_text_that_it_quotes():
    """Each rule with a literal heading finds that heading, … filled with something."""
    for rule in rules().values():
        if rule.kind in ("cause", "echo", "timeout") and "`" + rule.heading + "`" in PAGE.read_text():
            text = rule.heading.replace("…", "1 vs 2" if rule.heading.startswith("RuntimeError: …") else "7")
            text = text.replace("1 vs 2 vs 1 vs 2", "1 vs 2")
            assert any(p.search(text) for p in rule.patterns), (rule.id, text, rule.spec["text"])


def test_the_kinds_are_known_and_the_patterns_are_plain():
    kinds = {rule.kind for rule in rules().values()}
    assert kinds == {"cause", "echo", "timeout", "line", "scene"}
    for comment in re.findall(r"<!-- log: .* -->", PAGE.read_text()):
        assert re.fullmatch(r"<!-- log: (?:kind=\w+ ?)?(?:(?:text|frame)=/(?:\\/|[^/])+/ ?)* ?-->", comment), comment


def test_a_new_entry_is_a_new_rule(tmp_path):
    """Beside a page with one more entry, the same program knows one more cause; alone it has those of its copy."""
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    script = shutil.copy(SCRIPT, scripts / SCRIPT.name)
    log = tmp_path / "job.log"
    log.write_text(
        (LOGS / "torchrun-raise.log").read_text().replace("KeyError: 'los'", "ValueError: the moon is full today")
    )
    alone = load(script, "alone")
    assert list(alone.load_rules()) == list(rules())
    assert alone.explain([str(log)])[1].cause == "a-rank-raises-an-exception"
    (tmp_path / "references").mkdir()
    page = (
        PAGE.read_text()
        + "\n### `the moon is … today`\n\n**Means** it is. **Check** look. **Fix** wait. **Proof** none.\n"
    )
    (tmp_path / "references" / PAGE.name).write_text(page)
    verdict = alone.explain([str(log)])[1]
    assert (verdict.cause, verdict.guilty, verdict.fix) == ("the-moon-is--today", [1], "wait.")


def test_list_and_explain(capsys):
    main = program().main
    assert main(["--list-rules"]) == 0
    assert capsys.readouterr().out.split() == list(rules())
    assert main(["--list-rules", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == list(rules())
    for name, rule in rules().items():
        assert main(["--explain", name]) == 0
        assert rule.fix in capsys.readouterr().out
        assert main(["--explain", name, "--format", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["fix"] == rule.fix
