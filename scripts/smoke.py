#!/usr/bin/env python3
"""Run the smoke script of every sub-skill that has one, and make one report of them.

A smoke script is sub-skills/NAME/scripts/NAME_smoke.py; each is found, none is listed here. Standard library only.
Exit code: the largest of theirs (0: all passed); 2 for a usage error, or where no smoke script is found.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def find_smokes(root: Path = ROOT) -> dict[str, Path]:
    """sub-skill name -> its smoke script."""
    return {p.parts[-3]: p for p in sorted(root.glob("sub-skills/*/scripts/*_smoke.py"))}


def run(script: Path, timeout: float) -> dict:
    """The JSON report of one smoke script; one that gives none is reported as an error."""
    argv = [sys.executable, str(script), "--format", "json", "--timeout", str(timeout)]
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout + 30)
        return json.loads(done.stdout)
    except (subprocess.TimeoutExpired, json.JSONDecodeError) as e:
        return {
            "tool": script.name,
            "status": "error",
            "exit_code": 5,
            "runs": [],
            "summary": {},
            "error": str(e)[:500],
        }


def main() -> int:
    smokes = find_smokes()
    parser = argparse.ArgumentParser(
        description="Runs the smoke script of every sub-skill, one report.",
        epilog=("exit codes: 0 all passed, 2 usage, otherwise the largest code of the smoke scripts"),
        allow_abbrev=False,
    )
    parser.add_argument("names", nargs="*", metavar="SUB-SKILL", help=f"default: all ({', '.join(smokes)})")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="of the report (default text)")
    parser.add_argument("--timeout", type=float, default=120, metavar="SECONDS", help="for each of them (default 120)")
    args = parser.parse_args()
    unknown = [n for n in args.names if n not in smokes]
    if unknown or not smokes:
        parser.error(f"no smoke script for {unknown[0]}" if unknown else f"no smoke script under {ROOT}")
    reports = {name: run(smokes[name], args.timeout) for name in args.names or smokes}
    code = max(r["exit_code"] for r in reports.values())
    if args.format == "json":
        print(
            json.dumps(
                {
                    "schema": "pytorch-ignite-smoke/1",
                    "tool": "smoke.py",
                    "status": "pass" if code == 0 else "fail",
                    "exit_code": code,
                    "reports": reports,
                },
                indent=1,
            )
        )
        return code
    for name, report in reports.items():
        print(f"{name}: {report['status']} (exit code {report['exit_code']}, {report.get('seconds', 0):.1f} s)")
        for one in report["runs"]:
            counts = {s: sum(c["status"] == s for c in one["checks"]) for s in report["summary"]}
            shown = ", ".join(f"{n} {s}" for s, n in counts.items() if n)
            print(f"  {one['target']:8} {one['world_size']} process{'es' * (one['world_size'] > 1)}: {shown}")
        for line in [report.get("error", ""), *(f["text"] for f in report.get("diagnosis", ()))]:
            if line:
                print(f"  {line}")
    if code:
        print(
            "run the script itself for what was expected and seen: "
            + ", ".join(str(smokes[n].relative_to(ROOT)) for n, r in reports.items() if r["exit_code"])
        )
    return code


if __name__ == "__main__":
    sys.exit(main())
