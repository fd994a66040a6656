"""Proof: the section on check_script.py; its fences are run by test_examples_run.py."""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
from pathlib import Path

from support import BUNDLE, DISTRIBUTED
from support.claims import proves
from support.readers import check_script


@proves("sub-skills/distributed/references/workflows.md#check-a-script-before-it-runs")
def section(entry):
    def code(*argv):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            return check_script.main(list(argv)), out.getvalue()

    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(f"{folder}/sub")
        for name, rule in (("hangs", "collective-under-rank-guard"), ("raises", "reduction-op"),
                           ("wrong", "reduced-twice")):
            Path(folder, "sub", f"{name}.py").write_text(
                f"open({folder + '/run'!r}, 'w')\n{check_script.RULES[rule].wrong}")
        status, text = code(folder)
        assert status == 1 and text.count("error: ") == 3, text
        assert text.count("    why: ") == text.count("    fix: ") == 3 and not Path(folder, "run").exists(), text
        entry.says("check_script.py reads files and folders, runs none of them, and names what will hang, raise or go "
                   "wrong on several processes, with the line, the reason and the fix.")
        warning = Path(folder, "warning.py")
        warning.write_text(check_script.RULES["contrib-import"].wrong)
        option = "--severity error"
        both, without = code(str(warning))[0], code(*option.split(), str(warning))[0]
        assert both == status and without == 0
        entry.says(f"The exit code is {both} for errors and warnings alike; {option} leaves out the warnings.")
    hook = re.search(r"- id: (\S+)", (BUNDLE / ".pre-commit-hooks.yaml").read_text())[1]
    flow = DISTRIBUTED / "assets" / "check-script.yml"
    assert "pull_request" in flow.read_text() and "--format github" in flow.read_text()
    entry.says(f"Without anyone watching: pre-commit checks each commit with the hook {hook} of this repository, and "
               f"the workflow {flow.name} annotates the lines of a pull request.")
