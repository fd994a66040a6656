"""Promise: what an exception says in its own words is no sign of anything else in the log: not of a job that begins or
ends, of a peer, a signal or a timeout."""

from __future__ import annotations

import re

import pytest
from support.claims import COUNTS
from support.explain import LOGS, verdict

SAYINGS = {
    "progress": "loss is nan at epoch 1 iteration 13",
    "a beginning": "Starting training from epoch 0 failed: exit code 0",
    "an ending": "all ranks done; job completed successfully",
    "an ending of a part": "run finished early with bad rows",
    "a world": "world size 4 is not 8",
    "a peer": "Connection closed by peer while reading s3://bucket",
    "a timeout": "timed out after 30 s",
    "a signal": "process 2 terminated: killed by signal 9",
    "several lines": "bad\n  row: 5\n  epoch 1\n\nand training is done",
    "a scheduler": "the field is DUE TO TIME LIMIT",
    "nothing": "",
    "much": "x" * 3000,
}
RAISED = re.compile(r"raised (?P<type>[\w.]+): (?P<words>.+?)(?: at \S+:\d+ in |\.$)")


@pytest.mark.parametrize("saying", SAYINGS)
def test_the_words_of_an_exception_change_nothing(saying, tmp_path):
    wrong, said = [], 0
    for log in sorted(LOGS.glob("*.log")):
        alone, text = verdict(log), log.read_bytes().decode("utf-8", "replace")
        raised = RAISED.search(alone["text"]) if alone["cause"] == "a-rank-raises-an-exception" else None
        if raised is None or f"{raised['type']}: {raised['words']}" not in text:
            continue
        words = f"{raised['type']}: {SAYINGS[saying]}".removesuffix(": ")
        (tmp_path / log.name).write_text(text.replace(f"{raised['type']}: {raised['words']}", words))
        found = verdict(tmp_path / log.name)
        wrong += [(log.name, found)] if any(found[k] != alone[k] for k in ("outcome", "cause", "guilty_ranks")) else []
        said += 1
    assert not wrong, wrong
    assert said > 5, "too few logs of exceptions"
    COUNTS["logs explained with other words"] += said
