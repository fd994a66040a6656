"""Writes the rules of troubleshooting.md into explain_log.py anew: `python tests/support/embed_rules.py`."""

import importlib.util
import re
import sys
from pathlib import Path

ROOM = Path(__file__).resolve().parents[2] / "sub-skills" / "distributed"
SCRIPT, PAGE = ROOM / "scripts" / "explain_log.py", ROOM / "references" / "troubleshooting.md"


def main() -> None:
    spec = importlib.util.spec_from_file_location("explain_log", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["explain_log"] = module
    spec.loader.exec_module(module)
    copy = module.shortened(PAGE.read_text(encoding="utf-8"))
    assert '"""' not in copy, "a triple quote would end the copy"
    text = SCRIPT.read_text(encoding="utf-8")
    text = re.sub(r'(?s)(?<=\nCOPY = r"""\n).*?(?=\n"""  # noqa)', lambda m: copy, text, count=1)
    SCRIPT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
