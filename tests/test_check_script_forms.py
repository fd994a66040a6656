"""Promise: check_script.py finds a mistake in whichever form a program is written, and nothing in a right one."""

from __future__ import annotations

import pytest
from support.claims import COUNTS
from support.forms import FORMS, other_form
from test_check_script import found_in, programs


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["seeded", "clean"])
def test_another_form_changes_nothing(kind, form, tmp_path):
    wrong, written = [], 0
    for number, (head, (text, modules)) in enumerate(programs(f"{kind}.txt").items()):
        other = other_form(text, form)
        if other is None:
            continue
        (folder := tmp_path / str(number)).mkdir()
        elsewhere = kind == "seeded" and "#!" not in text  # the mistake is in another file
        got = {rule for rule, _ in found_in(folder, other, modules, whole=elsewhere)}
        wrong += [f"{head}: {got or 'nothing'} found in\n{other}"] if got != set(head.split()[1:]) else []
        written += 1
    COUNTS["programs checked in another form"] += written
    assert written > 10 and not wrong, "\n".join(wrong)
