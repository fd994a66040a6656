"""Promise: explain_log.py says the same of a log whoever kept it: docker compose, Kubernetes, a CI system or a Windows
editor write something before or after each line."""

from __future__ import annotations

import re

import pytest
from support.claims import COUNTS
from support.explain import LOGS, verdict

KEEPERS = {
    "docker compose": "trainer-1  | {line}\n",
    "kubectl logs --prefix": "[pod/train-7c9f-x2k/main] {line}\n",
    "containerd": "2026-12-02T{clock}.123456789Z stderr F {line}\n",
    "GitHub Actions": "2026-12-02T{clock}.1234567Z {line}\n",
    "ts": "[2026-12-02 {clock}] {line}\n",
    "an indented quotation": "    {line}\n",
    "lines of Windows": "{line}\r\n",
    "colours": "\x1b[0m{line}\x1b[0;m\n",
}
SETUP = (
    "Collecting torch\n  Downloading torch.whl (180.5 MB)\nSuccessfully installed torch pytorch-ignite\n"
    "WARNING: Running pip as the 'root' user can result in broken permissions\n+ torchrun train.py\n"
)
BEFORE = ["[rank{rank}] ", "rank{rank}: ", "Rank {rank} | ", "[{rank}] ", "{rank} | ", "r{rank}: ", "<{rank}> ",
          "(rank {rank}) ", "[rank {rank}/3] ", "[node0:{rank}] ", "worker-{rank}> "]
SAME = "outcome", "cause", "guilty_ranks", "victims"


def kept(text: str, keeper: str) -> str:
    clock = (f"18:{n // 60 % 60:02d}:{n % 60:02d}" for n in range(10**6))
    return "".join(keeper.format(line=line, clock=next(clock)) for line in text.removesuffix("\n").split("\n"))


@pytest.mark.parametrize("keeper", KEEPERS)
def test_what_stands_before_each_line_changes_nothing(keeper, tmp_path):
    wrong = []
    for log in sorted(LOGS.glob("*.log")):
        text = log.read_bytes().decode("utf-8", "replace")
        (tmp_path / log.name).write_text(kept(text, KEEPERS[keeper]), newline="")
        alone, found = verdict(log), verdict(tmp_path / log.name)
        wrong += [(log.name, [found[k] for k in SAME])] if any(alone[k] != found[k] for k in SAME) else []
        COUNTS["logs explained as they were kept"] += 1
    assert not wrong, wrong


@pytest.mark.parametrize("before", BEFORE)
def test_the_rank_that_a_shell_puts_before_each_line_is_read(before, tmp_path):
    """As `sed "s/^/[rank$R] /"` does; here in place of what torch puts before the lines of a traceback."""
    wrong, asked = [], 0
    for log in sorted(LOGS.glob("*.log")):
        text = log.read_bytes().decode("utf-8", "replace")
        if "]: Traceback" not in text:
            continue
        lines = [before.format(rank=m[1]) + m[2] if (m := re.match(r"\[rank(\d+)\]: (?!\[)(.*)", line)) else line
                 for line in text.split("\n")]
        (tmp_path / log.name).write_text("\n".join(lines))
        alone, found = verdict(log), verdict(tmp_path / log.name)
        asked += 1
        wrong += [(log.name, found)] if any(alone[k] != found[k] for k in ("outcome", "guilty_ranks")) else []
        COUNTS["logs explained as they were kept"] += 1
    assert asked > 20 and not wrong, wrong


def test_what_stands_before_the_job_changes_nothing(tmp_path):
    for log in sorted(LOGS.glob("*.log")):
        (tmp_path / log.name).write_text(SETUP * 3 + log.read_bytes().decode("utf-8", "replace"))
        alone, found = verdict(log), verdict(tmp_path / log.name)
        assert [alone[k] for k in SAME] == [found[k] for k in SAME], log.name


def test_the_line_numbers_are_those_of_the_file(tmp_path):
    """Evidence leads to where it stands, with what was before it taken off."""
    log = LOGS / "torchrun-raise.log"
    (tmp_path / "job.log").write_text(kept(log.read_text(), KEEPERS["docker compose"]))
    alone, found = verdict(log), verdict(tmp_path / "job.log")
    assert [e["line"] for e in alone["evidence"]] == [e["line"] for e in found["evidence"]]
    lines = (tmp_path / "job.log").read_text().split("\n")
    for e in found["evidence"]:
        assert e["text"].split("…")[0][:40] in lines[e["line"] - 1], e


@pytest.mark.parametrize("own", [
    "rank{rank} | {line}\n", "INFO     | rank {rank} | {line}\n", "<{rank}/3> {line}\n", "[p{rank}/3] {line}\n",
    "(proc {rank}) {line}\n", "[worker-{rank}]: {line}\n",
])  # fmt: skip
def test_what_the_job_wrote_itself_stays(own, tmp_path):
    """Rank 1 stops writing: only its own prefix tells who it was."""
    lines = [(rank, f"step {step}") for step in range(30) for rank in range(3) if rank != 1 or step < 9]
    (tmp_path / "job.log").write_text("".join(own.format(rank=rank, line=line) for rank, line in lines))
    assert "Rank 1 stopped writing before the others" in verdict(tmp_path / "job.log")["text"]
