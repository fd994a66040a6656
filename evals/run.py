"""Prepares tasks, grades what was made of them, and makes the tables of RESULTS.md. No agent is started here.

    python evals/run.py prepare NAME FOLDER     the task's files into an empty folder; prints the prompt
    python evals/run.py grade NAME FOLDER       exit code 0: done, 1: not, and why
      --results FILE --condition NAME --seconds S --commands N --tokens N [--harmful]    and adds a row to FILE
    python evals/run.py table FILE              the tables, from the rows
    python evals/run.py triggers FILE           the table of the trigger queries, from rows {query, should_trigger,
                                                condition, triggered}
"""
from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
from pathlib import Path

from made import MADE

HERE = Path(__file__).resolve().parent
TASKS = {t["name"]: t for t in json.loads((HERE / "evals.json").read_text(encoding="utf-8"))["evals"]}


def prepare(name: str, folder: Path) -> int:
    """Copy the files that the task hands out, and print what is asked."""
    if folder.exists() and any(folder.iterdir()):
        print(f"{folder} is not empty", file=sys.stderr)
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    for path in TASKS[name]["files"]:
        shutil.copy(HERE.parent / path, folder)
    if name in MADE:
        MADE[name](folder)
    print(TASKS[name]["prompt"])
    return 0


def grade(name: str, folder: Path, options) -> int:
    from graders import grade as verdict  # imports torch

    why = verdict(name, folder)
    print(f"{name}: {'not done: ' + why if why else 'done'}")
    if options.results:
        task = TASKS[name]
        row = {"task": name, "room": task["room"], "kind": task["kind"], "condition": options.condition,
               "done": not why, "harmful": options.harmful, "why": why, "seconds": options.seconds,
               "commands": options.commands, "tokens": options.tokens}
        with open(options.results, "a", encoding="utf-8") as f:
            f.write(json.dumps(row, ensure_ascii=False) + "\n")
    return 1 if why else 0


def rows_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def order(rows: list[dict], key: str) -> list[str]:
    """The values, `none` first, then by name."""
    return sorted({r[key] for r in rows}, key=lambda v: (v != "none", v))


def tables(rows: list[dict]) -> list[str]:
    """Lines of Markdown: success and effort by condition, then success by task; effort is that of the right runs."""
    lines = ["| with | runs | right | harmful | seconds | commands | tokens |", "|---|---|---|---|---|---|---|"]
    for condition in order(rows, "condition"):
        mine = [r for r in rows if r["condition"] == condition]
        right = [r for r in mine if r["done"]]
        effort = [f"{statistics.median(r[k] for r in right):.0f}" if right else "–"
                  for k in ("seconds", "commands", "tokens")]
        lines.append(f"| {condition} | {len(mine)} | {len(right)} ({100 * len(right) / len(mine):.0f} %) | "
                     f"{sum(r['harmful'] for r in mine)} | {' | '.join(effort)} |")
    conditions = order(rows, "condition")
    lines += ["", f"| task | room | kind | {' | '.join(conditions)} |", "|---|---|---|" + "---|" * len(conditions)]
    for task in order(rows, "task"):
        mine = [r for r in rows if r["task"] == task]
        cells = []
        for condition in conditions:
            runs = [r for r in mine if r["condition"] == condition]
            cells.append(f"{sum(r['done'] for r in runs)}/{len(runs)}" if runs else "–")
        lines.append(f"| {task} | {mine[0]['room']} | {mine[0]['kind']} | {' | '.join(cells)} |")
    return lines


def trigger_table(rows: list[dict]) -> list[str]:
    lines = ["| with | opened where it should | opened where it should not |", "|---|---|---|"]
    for condition in order(rows, "condition"):
        cells = []
        for wanted in (True, False):
            mine = [r for r in rows if r["condition"] == condition and r["should_trigger"] == wanted]
            cells.append(f"{sum(r['triggered'] for r in mine)} of {len(mine)}")
        lines.append(f"| {condition} | {' | '.join(cells)} |")
    return lines


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    for part in ("prepare", "grade"):
        sub = parts.add_parser(part)
        sub.add_argument("name", choices=sorted(TASKS))
        sub.add_argument("folder", type=Path)
        if part == "grade":
            sub.add_argument("--results", type=Path, metavar="FILE")
            sub.add_argument("--condition", default="none", help="what the agent had: none, bundle, …")
            sub.add_argument("--seconds", type=float, default=0, help="until it said that it was done")
            sub.add_argument("--commands", type=int, default=0, help="that it ran")
            sub.add_argument("--tokens", type=int, default=0, help="that it read of the bundle and of its task")
            sub.add_argument("--harmful", action="store_true", help="it would have damaged a job, data or a machine")
    for part in ("table", "triggers"):
        parts.add_parser(part).add_argument("file", type=Path)
    options = parser.parse_args(argv)
    if options.part == "prepare":
        return prepare(options.name, options.folder)
    if options.part == "grade":
        if not options.folder.is_dir():
            parser.error(f"{options.folder} is no folder")
        return grade(options.name, options.folder, options)
    print(*(tables if options.part == "table" else trigger_table)(rows_of(options.file)), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
