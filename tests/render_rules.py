"""Write references/rules.md anew from the table in check_script.py: python tests/render_rules.py"""
from support import DISTRIBUTED
from support.readers import check_script

if __name__ == "__main__":
    (DISTRIBUTED / "references" / "rules.md").write_text(check_script.page(), encoding="utf-8")
