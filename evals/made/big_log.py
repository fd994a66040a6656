"""The log of big-log: 64 ranks under torchrun, as the recorded run of six in big_log.txt would have been.

One rank's reader thread ends early. What it had unpacked lasts for hours, then the rank waits for a piece, the others
for the rank, and the launcher blames one of those. Other ranks' reads fail too, now and then, and are tried again.
"""
from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

RANKS, GUILTY, BLAMED = 64, 41, 22
BEFORE = 700  # updates until the reader of the guilty rank ends
SHARD = 300  # updates that a shard lasts for
UPDATE_BYTES = 95 * RANKS  # of an update's lines, nearly
TIMEOUT = timedelta(minutes=30)
BEGAN = datetime(2026, 11, 30, 21, 14, 8, 530000)
FIRST_PID = 311840


def recorded() -> dict[str, list[str]]:
    """The parts of the recorded run, by name."""
    parts: dict[str, list[str]] = {}
    for line in (Path(__file__).parent / "big_log.txt").read_text(encoding="utf-8").split("\n")[:-1]:
        if line.startswith("@@ "):
            mine = parts.setdefault(line[3:], [])
        else:
            mine.append(line)
    return parts


def filled(lines: list[str], changes: dict[str, str]) -> list[str]:
    """The lines with what was recorded replaced; each change must find something."""
    text = "\n".join(lines)
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return text.split("\n")


def launchers(moment: datetime) -> str:
    return f"{moment:%m%d %H:%M:%S}.{moment.microsecond // 1000:03d}000 311702"


def lines(updates: int) -> Iterator[str]:
    """All lines of a run that comes to a stand after so many updates."""
    parts, rng, order = recorded(), random.Random(64), list(range(RANKS))
    yield from filled(parts["start"], {"1202 06:52:54.933000 7044": launchers(BEGAN)})
    began = BEGAN + timedelta(seconds=41)
    ahead = updates - BEFORE
    for update in range(updates):
        moment = began + timedelta(milliseconds=997 * update)
        norm, loss = rng.uniform(0.2, 1.4), 2 + 9 / (1 + update / 400) + rng.uniform(-0.05, 0.05)
        rng.shuffle(order)
        seconds = [f"{moment + timedelta(seconds=s):%Y-%m-%d %H:%M:%S}" for s in range(2)]
        for k, rank in enumerate(order):
            more, micro = divmod(moment.microsecond + 310 * k, 1_000_000)
            now = f"{seconds[more]},{micro // 1000:03d}"
            shard, rest = divmod(update + 7 * rank, SHARD)  # not all ranks come to a new one together
            if rest == 150 and not (rank == GUILTY and update >= BEFORE):
                name = f"shard-{rank:03d}-{shard:04d}.pack"
                if rank != GUILTY and rng.random() < 0.1:
                    yield from filled(parts["retry"], {"2026-12-02 06:53:01,310": now, "r02": f"r{rank:02d}",
                                                       "shard-002-0001.pack": name})
                yield f"{now} r{rank:02d} reader   INFO    {name} unpacked, {ahead + rng.randrange(SHARD)} pieces ahead"
            if rank == GUILTY and update == BEFORE:
                name = f"shard-{rank:03d}-{shard + (rest > 150):04d}.pack"
                yield from filled(parts["fatal"], {"2026-12-02 06:53:01,420": now, "r04": f"r{rank:02d}",
                                                   "shard-004-0002.pack": name})
            yield (f"{now} r{rank:02d} pretrain INFO    update {update} gnorm {norm:.4f} loss {loss:.4f} "
                   f"tok/s {51000 + (update * 37 + rank * 11) % 900}")
    moment += TIMEOUT
    raised = [r for r in rng.sample(range(RANKS), RANKS) if r != GUILTY]
    yield from interleaved(filled(parts["timeout"], {"12000ms": "1800000ms"}), raised, rng)
    yield from summary(parts, moment + timedelta(seconds=3), set(rng.sample(raised, 9)) | {BLAMED})


def interleaved(traceback: list[str], ranks: list[int], rng: random.Random) -> Iterator[str]:
    """The same traceback of several ranks, a few at a time."""
    waiting, going = list(ranks), {}
    while waiting or going:
        while waiting and len(going) < 4:
            going[waiting.pop()] = iter(traceback)
        rank = rng.choice(sorted(going))
        for _ in range(rng.randrange(1, 9)):
            line = next(going[rank], None)
            if line is None:
                del going[rank]
                break
            yield f"[rank{rank}]: {line}"


def summary(parts: dict[str, list[str]], moment: datetime, raised: set[int]) -> Iterator[str]:
    """What the launcher says: some ranks had ended by themselves, the others are ended by it."""
    head, when = launchers(moment), f"{moment:%Y-%m-%d_%H:%M:%S}"
    for rank in sorted(set(range(RANKS)) - raised):
        yield from filled(parts["sending"], {"1202 06:53:18.382000 7044": head, "7168": str(FIRST_PID + rank)})
    yield from filled(parts["failed"], {"1202 06:53:18.467000 7044": head, "local_rank: 1 ": f"local_rank: {BLAMED} ",
                                        "7171": str(FIRST_PID + BLAMED)})
    for n, rank in enumerate((r for r in range(RANKS) if r != BLAMED), 1):
        part, number, was, pid = ("raised", "[2]:", 2, "7172") if rank in raised else ("ended", "[1]:", 0, "7168")
        yield from filled(parts[part], {number: f"[{n}]:", "2026-12-02_06:53:18": when, pid: str(FIRST_PID + rank),
                                        f"{was} (local_rank: {was})": f"{rank} (local_rank: {rank})"})
    yield from filled(parts["root"], {"2026-12-02_06:53:18": when, "7171": str(FIRST_PID + BLAMED),
                                      "1 (local_rank: 1)": f"{BLAMED} (local_rank: {BLAMED})"})


def make(folder: Path, size: int = 200_000_000) -> None:
    """Write job.log, of about `size` bytes."""
    with open(folder / "job.log", "w", encoding="utf-8") as f:
        f.writelines(line + "\n" for line in lines(updates_of(size)))


def updates_of(size: int) -> int:
    return max(BEFORE + 100, size // UPDATE_BYTES)


def truth() -> dict:
    """Rank, first and last line in the log, and time of the first error; they do not depend on the size."""
    for number, line in enumerate(lines(BEFORE + 100), 1):
        if f" r{GUILTY:02d} reader   ERROR " in line:
            return {"rank": GUILTY, "lines": range(number, number + len(recorded()["fatal"])), "time": line[11:23]}
    raise AssertionError("no first error")
