"""Promise: explain_log.py reads a gigabyte in one pass with flat memory, and nothing that a file can hold, no matter
how broken, makes it print a traceback, hang or grow."""

from __future__ import annotations

import gzip
import json
import os
import random
import resource
import subprocess
import sys
import time

import pytest
from support.explain import LOGS, SCRIPT, program, rules, verdict

MEGABYTES = 48
FASTER = 25  # MB/s that a busy machine must reach here; alone it reads over 100


def big(path, line, tail, megabytes=MEGABYTES):
    """A log of this size: a stretch of ordinary lines, repeated, and then the tail."""
    stretch = "".join(line(rank, step) for step in range(400) for rank in range(3)).encode()
    with open(path, "wb") as f:
        for _ in range(megabytes * 10**6 // len(stretch)):
            f.write(stretch)
        f.write(tail.encode())


LINES = {
    "plain": lambda r, s: f"rank {r}: step {s} loss {s / 7:.4f} sum 3\n",
    "logging": lambda r, s: (
        f"[rank{r}]: 2026-12-02 01:00:{s % 60:02d},123 trainer INFO: Epoch[1/3] Iteration[{s}/900] loss {s / 7:.4f}\n"
    ),
    "noisy": lambda r, s: f"rank {r}: ERROR: no answer from the metrics server: Connection refused, attempt {s}\n",
    "label": lambda r, s: f"{r}: step {s} loss {s / 7:.4f}\n",
}


@pytest.mark.parametrize("kind", ["plain", "logging", "noisy"])
def test_a_large_log_is_read_fast(kind, tmp_path):
    big(tmp_path / "job.log", LINES[kind], (LOGS / "torchrun-exit0.log").read_text())
    began = time.process_time()
    found = verdict(tmp_path / "job.log")
    seconds = time.process_time() - began
    size = os.path.getsize(tmp_path / "job.log") / 1e6
    assert found["guilty_ranks"] == [1] and found["cause"] == "a-rank-leaves-early", found
    assert size / seconds > FASTER, f"{size / seconds:.0f} MB/s"


def test_memory_is_flat(tmp_path):
    """In a process of its own, which may not have more address space than an interpreter and the pieces need."""
    big(tmp_path / "job.log", LINES["label"], "", 200)
    with open(tmp_path / "job.log", "ab") as f:
        f.write((LOGS / "srun-label.log").read_bytes())

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (300 << 20, 300 << 20))

    command = [sys.executable, SCRIPT, "--format", "json", tmp_path / "job.log"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, preexec_fn=limit, check=False)
    assert done.returncode == 0 and not done.stderr, done
    assert json.loads(done.stdout)["guilty_ranks"] == [2]


def broken():
    """(name, bytes) of files that are no logs, or hardly."""
    rng = random.Random(7)
    log = (LOGS / "torchrun-raise.log").read_bytes()
    yield "random", rng.randbytes(300_000)
    yield "zeros", bytes(200_000)
    yield "newlines", b"\n" * 200_000
    yield "returns", b"\r" * 100_000 + b"Traceback\r" * 1000
    yield "one line", b"x" * 12_000_000
    yield "one line of needles", b"Traceback (most recent call last): rank 1: SIGTERM " * 30_000
    yield "escapes", b"\x1b[" * 100_000
    yield "half a letter", log.replace(b"KeyError", "Käufer€".encode()[:-1])
    yield "utf-16", log.decode(errors="replace").encode("utf-16")
    yield "no end", log[:3000].rstrip(b"\n")
    yield "deep", b"Traceback (most recent call last):\n" * 20_000
    yield "frames", b"Traceback (most recent call last):\n" + b'  File "a.py", line 1, in f\n' * 50_000
    yield "numbers", b"rank 99999: x\n[rank99999]: Traceback (most recent call last):\n[rank99999]: ValueError: 1\n"
    yield "tasks", b"srun: error: n: tasks 0-99999999: Killed\n"
    yield "huge number", b"rank " + b"9" * 5000 + b": x\nexitcode : " + b"9" * 5000 + b"\nworld size " + b"9" * 5000
    yield "table", b"Failures:\n  rank      : x\n  exitcode  : 1 (pid: 1)\nRoot Cause (first observed failure):\n" * 500
    for prefix in ("1" * 40 + "x", "1: " * 40 + "x", " " * 3000 + "x", "[a:1]:" * 40 + "x"):
        yield f"prefix {prefix[:4]}", f"{prefix}[rank1]: Traceback (most recent call last):\n".encode()
    yield "cut gzip", gzip.compress(log)[:900]
    yield "broken gzip", gzip.compress(log)[:600] + b"garbage" * 100
    for n in range(30):
        cut = bytearray(log)
        for _ in range(rng.randrange(1, 400)):
            cut[rng.randrange(len(cut))] = rng.randrange(256)
        a = rng.randrange(len(cut))
        yield f"mutation {n}", bytes(cut[a : a + rng.randrange(len(cut))])


@pytest.mark.parametrize("name, data", broken(), ids=lambda v: v if isinstance(v, str) else "")
def test_broken_files(name, data, tmp_path):
    (tmp_path / "job.log").write_bytes(data)
    began = time.process_time()
    job, found = program().explain([str(tmp_path / "job.log")], rules())
    for text in (program().as_json(found), program().as_text(found)):
        assert len(text) <= program().ANSWER
    json.loads(program().as_json(found))
    program().write_html(tmp_path / "job.html", job, found)
    assert time.process_time() - began < 10, name
    if name in ("random", "zeros", "newlines", "returns", "one line", "escapes", "deep", "frames"):
        assert (found.outcome, found.cause) == ("unknown", None) or found.confidence == "low", (name, found.text)


def test_a_reader_that_goes_away_and_files_that_cannot_be_read(tmp_path):
    run = lambda command: subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    done = run(
        
            f"'{sys.executable}' '{SCRIPT}' --list-rules | head -1; cat '{LOGS}/torchrun-kill.log' | "
            f"'{sys.executable}' '{SCRIPT}' - --format json"
        
    )
    first, second = done.stdout.split("\n")[:2]
    assert first in rules() and json.loads(second)["cause"] == "a-rank-is-killed" and not done.stderr, done
    assert json.loads(second)["evidence"][0]["file"] == "-"
    done = run(f"'{sys.executable}' '{SCRIPT}' '{LOGS}/torchrun-kill.log' --html /nonexistent/x.html")
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "Traceback" not in done.stderr, done
