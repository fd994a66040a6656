"""What the tests share: worlds of ranks (`world`), the Markdown pages (`pages`), sentences bound to runs (`claims`)."""
from pathlib import Path

BUNDLE = Path(__file__).resolve().parents[2]
DISTRIBUTED = BUNDLE / "sub-skills" / "distributed"
