#!/usr/bin/env python3
# /// script
# requires-python = ">=3.9"
# dependencies = []
# ///
"""Why did this distributed job die or hang? Reads its log and names the cause, the rank at fault and the ranks that
only suffered from it.

How it is built: *sources* (a file, a folder, standard input; plain or gzip, rotated or not) are read once, in large
pieces; a few fixed words find the stretches worth reading, and only there lines are taken apart. *Recognisers* turn
lines into events: an uncaught exception of a rank, an exit code in the launcher's table, a timeout, a stack. Of the
rest only the last line of each rank is kept. The *judge* looks at the events alone: what is an echo of a peer's end is
set aside, then what is left is ordered by certainty (a signal, the first exception of its own, who is missing where
the others wait). Texts and remedies come from the entries of troubleshooting.md, one rule an entry; a copy of these
rules is at the end of this file for when it stands alone. Where nothing is certain the answer is "not known".
"""

from __future__ import annotations

import argparse
import gzip
import html
import io
import json
import os
import re
import sys
import time
import zlib
from collections import Counter, deque
from itertools import islice, takewhile
from pathlib import Path

PROGRAM = "explain_log.py"
SCHEMA = "pytorch-ignite-explain/1"
PAGE = "references/troubleshooting.md"
CHUNK = 4 << 20  # bytes read at once
PACKED = 128 << 10  # of a compressed file
WHOLE = 8 << 20  # bytes of a file up to which every line is looked at for the rank that wrote it
SAMPLE = 16 << 10  # beyond that, so many bytes at the end of each piece
LINE = 4000  # bytes of a line that are looked at
KEPT = 4000  # events that are kept; repetitions only count
ANSWER = 2000  # characters of an answer
SIGNALS = {
    1: "SIGHUP",
    2: "SIGINT",
    4: "SIGILL",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    11: "SIGSEGV",
    13: "SIGPIPE",
    15: "SIGTERM",
}
CRASHES = (4, 6, 7, 8, 11)
WEAK = ("exception", "notice", "dump", "engine", "stopping", "ended", "watchdog", "native")

HELP = """
Give one log, one file per rank (the rank is read from the name), torchrun's --log-dir folder, or - for standard input;
.gz and rotated files are read too. The answer names the first failure, not the loudest; ranks that only lost their
peer or were ended by the launcher are called victims. Standard library only, nothing is imported or run.

exit codes:
  0  explained: it failed and the cause is named, or it succeeded
  1  not known; what to collect is said
  2  usage: nothing that can be read

examples:
  explain_log.py slurm-4711.out
  explain_log.py --format json torchrun_logs/
  torchrun --nproc_per_node=4 train.py 2>&1 | tee job.log; explain_log.py job.log --html job.html
"""


class UsageError(Exception):
    """Something that the caller has to change: exit 2."""


# ------------------------------------------------------------------------------------------------------------------
# Rules: one per entry of troubleshooting.md
# ------------------------------------------------------------------------------------------------------------------
class Rule:
    """id (the entry's anchor), heading, kind, text (what it means), fix, and the patterns that find it.

    Kinds: cause (an exception's text), echo (a peer has gone), timeout (a peer has not come), line (any line), scene
    (known by the frames of a stack, or only by the judge).
    """

    def __init__(self, spec):
        self.id, self.heading, self.kind = spec["id"], spec["heading"], spec["kind"]
        self.means, self.fix, self.spec = spec["means"], spec["fix"], spec
        self.patterns = [re.compile(p, re.S) for p in spec["text"]]
        self.frames = [re.compile(p) for p in spec["frame"]]
        self.weight = max([len(re.sub(r"\\.|[^\w ]", "", p)) for p in spec["text"]] or [0])

    def finds(self, text, frames=()):
        """Whether it applies to an exception with this text and these frames."""
        if not any(p.search(text) for p in self.patterns):
            return False
        return not self.frames or any(p.search(place) for p in self.frames for place in frames)


def rules_of_page(source):
    """The rules of a troubleshooting page, as plain dictionaries, in the order of its entries.

    The heading of an entry, if it is one code span, is the text to look for, … standing for anything. A comment line,
    `<!-- log: kind=KIND text=/REGEX/ frame=/REGEX/ -->`, changes the kind and adds patterns.
    """
    found, seen = [], Counter()
    for part in re.split(r"(?m)^(?=#{2,3} )", source)[1:]:
        heading, _, body = part.partition("\n")
        level, _, heading = heading.partition(" ")
        heading = heading.strip()
        anchor = "".join(c for c in heading.replace("`", "").strip().lower() if c.isalnum() or c in " -_")
        anchor = anchor.replace(" ", "-")
        seen[anchor] += 1
        if seen[anchor] > 1:
            anchor += f"-{seen[anchor] - 1}"
        if level != "###":
            continue
        body = re.split(r"(?m)^#", body)[0]
        fields = dict(re.findall(r"(?s)\*\*(Means|Fix)\*\* (.*?)(?=\s*\*\*(?:Check|Proof)\*\*|\Z)", body))
        comment = re.search(r"(?m)^<!-- log: (.*?) -->$", body)
        options = re.findall(r"(kind)=(\w+)|(text|frame)=/((?:\\/|[^/])+)/", comment[1] if comment else "")
        kind = next((value for key, value, *_ in options if key), None)
        texts = [p for *_, key, p in options if key == "text"]
        literal = re.fullmatch(r"`(.+)`", heading)
        if literal and not texts:
            texts.append(wild(literal[1]))
        if literal and kind in (None, "cause"):  # neighbours quoted in the explanation
            quoted = re.findall(r"`([^`]+)`", fields.get("Means", ""))
            texts += [
                wild(q) for q in quoted if len(re.findall(r"[A-Za-z]+", q.replace("…", ""))) >= 5 and '="' not in q
            ]
        found.append(
            {
                "id": anchor,
                "heading": heading.replace("`", ""),
                "kind": kind or ("cause" if texts else "scene"),
                "text": texts,
                "frame": [p for *_, key, p in options if key == "frame"],
                "means": fold(fields.get("Means", "")),
                "fix": fold(fields.get("Fix", "")),
            }
        )
    return found


def wild(text):
    """A regular expression for a quoted text, … standing for anything."""
    return ".{0,400}?".join(re.escape(fold(p)).replace("\\ ", r"\s+") for p in text.split("…")).replace("'", "['\"]")


def fold(text):
    return re.sub(r"\s+", " ", text).strip()


def load_rules():
    """From the page if it stands beside this program, otherwise from the copy at the end of this file."""
    page = Path(__file__).resolve().parent.parent / PAGE
    try:
        specs = rules_of_page(page.read_text(encoding="utf-8"))
    except (OSError, UnicodeError):
        specs = []
    return {spec["id"]: Rule(spec) for spec in specs or rules_of_page(COPY)}


def shortened(source):
    """Of a troubleshooting page what `rules_of_page` needs: the copy at the end of this file."""
    kept = []
    for part in re.split(r"(?m)^(?=#{2,3} )", source)[1:]:
        heading, _, body = part.partition("\n")
        if heading.startswith("### "):
            body = re.split(r"(?m)^#", body)[0]
            fields = re.findall(r"(?s)\*\*(Means|Fix)\*\* (.*?)(?=\s*\*\*(?:Check|Proof)\*\*|\Z)", body)
            kept += [heading, *(f"**{name}** {fold(text)} **Check**" for name, text in fields)]
            kept += re.findall(r"(?m)^<!-- log: .* -->$", body)
    return "\n".join(kept)


# ------------------------------------------------------------------------------------------------------------------
# Events and what is known of a job
# ------------------------------------------------------------------------------------------------------------------
class Event:
    """Something that a line, or a few, said. `order` counts over all sources in the order in which they were read."""

    def __init__(self, kind, rank, source, line, text, order, **more):
        self.kind, self.rank, self.source, self.line, self.text, self.order = kind, rank, source, line, text, order
        self.time, self.count, self.frames, self.uncaught, self.code, self.type = None, 1, [], False, None, ""
        self.chain, self.process, self.end = [], None, text  # chain: what came before it, newest first
        self.sure = True  # of an exception: torch or a launcher said that it was the end
        self.record = None  # of an exception that was logged: (line, text) of the message above it
        self.stamped = True  # of an exception: its line began with a time that was taken off, or may have
        self.ignored = False  # of an exception: in a __del__ or at exit, which Python reports and goes on
        self.thread = False  # of an exception: it ended a thread of the rank, and not the rank
        self.link = ""  # the next exception of the chain came during the handling of this one, or has it as its cause
        self.__dict__.update(more)

    def __repr__(self):
        return f"<{self.kind} rank={self.rank} {self.source}:{self.line} code={self.code} {self.text[:60]!r}>"


class Lane:
    """What is known of one rank: its first and last line, and when it was heard of."""

    def __init__(self, rank):
        self.rank, self.first, self.last, self.heard, self.step, self.lines = rank, None, None, [], None, 0
        self.recent = deque(maxlen=12)  # its lines without their numbers

    def remember(self, data):
        """Lines before the last one of a piece of the rank's own file, those of a traceback aside."""
        for text in clean(data).split("\n")[1:]:
            if text.strip() and not re.match(r"(?:\[rank\d+\]: )?(?:\s|Traceback|[\w.]*(?:Error|Exception)\b)", text):
                self.recent.append(re.sub(r"\d+", "#", text.strip()))

    def hear(self, order, source, line, text):
        if self.first is None:
            self.first = order
        if self.last is None or order >= self.last[0]:
            self.last = (order, source, line, text)
            named = SAID_RANK.search(text)
            self.recent.append(re.sub(r"\d+", "#", text[named.end() if named else 0 :].strip()))
        if not self.heard or order - self.heard[-1] > 0:
            self.heard.append(order)
            if len(self.heard) > 400:
                del self.heard[1::2]
        self.lines += 1


class Job:
    """All that the sources said."""

    def __init__(self):
        self.events, self.index, self.lanes, self.world, self.sources = [], {}, {}, None, []
        self.bytes, self.lines, self.dropped, self.tails, self.done, self.launcher = 0, 0, 0, [], [], set()
        self.weak = deque()  # events that may be forgotten
        self.shared_names = False  # ranks known by the files' names
        self.spawned = False  # Parallel started the ranks
        self.introduced = {}  # number of ranks -> those that said "worker 2 of 5" or the like
        self.nodes = {}  # what the launcher said: nnodes, nproc_per_node, node_rank
        self.turn = 0  # how often a launcher has given up: the same text afterwards is another event

    def add(self, event):
        """Keep an event; one that repeats another of the same rank is counted there."""
        key = (
            event.kind,
            event.rank,
            event.source if event.rank is None else "",
            event.code,
            re.sub(r"0x[0-9a-f]+|\d+", "#", event.text[:200]),
            self.turn,
        )
        if event.kind == "complete":
            key = ("complete", event.rank, event.source)
        old = self.index.get(key)
        if old is not None and event.kind == "complete":  # the last one counts
            old.order, old.line, old.text, old.time = event.order, event.line, event.text, event.time
            return old
        if old is not None and event.kind not in ("restart", "exit", "stop", "dump", "again"):
            old.count += 1
            return old
        if len(self.events) >= KEPT and not self.make_room():
            self.dropped += 1
            return event
        self.index[key] = event
        event.key = key
        if event.kind in ("restart", "cancel") or event.kind == "exit" and event.type in ("agent", "spawn"):
            self.turn += 1
        self.events.append(event)
        if event.kind in WEAK and not event.uncaught:
            self.weak.append(event)
        return event

    def make_room(self):
        """Forget the oldest of the events that seldom matter; whether there was one."""
        while self.weak:
            oldest = self.weak.popleft()
            if not oldest.uncaught:
                self.events.remove(oldest)
                self.index.pop(oldest.key, None)
                return True
        return False

    def lane(self, rank):
        if rank not in self.lanes:
            self.lanes[rank] = Lane(rank)
        return self.lanes[rank]

    def of(self, *kinds):
        return [e for e in self.events if e.kind in kinds]


# ------------------------------------------------------------------------------------------------------------------
# Sources
# ------------------------------------------------------------------------------------------------------------------
class Source:
    """One stream of lines: a file with its rotated forerunners, oldest first; `rank` if the name says so."""

    def __init__(self, name, parts, rank=None, size=0):
        self.name, self.parts, self.rank, self.size = name, parts, rank, size
        self.words = []  # its last lines, without errors that Python ignored


def find_sources(paths):
    """The sources named on the command line. Raises UsageError if one cannot be read or a folder holds nothing."""
    sources = []
    for path in paths:
        if path == "-":
            sources.append(Source("-", [None]))
        elif os.path.isdir(path):
            found = files_under(path)
            if not found:
                raise UsageError(f"{path}: no readable file in this folder")
            sources += group_files(found)
        elif not os.path.exists(path):
            raise UsageError(f"{path}: no such file")
        else:
            try:
                open(path, "rb").close()
            except OSError as e:
                raise UsageError(f"{path}: {e.strerror or e}") from None
            sources.append(path)
    given = [s for s in sources if isinstance(s, str)]
    return [s for s in sources if not isinstance(s, str)] + group_files(given)


SKIPPED = re.compile(
    r"\.(pt|pth|ckpt|safetensors|npy|npz|png|jpe?g|zip|tar|tgz|so|pyc|pkl|h5|parquet|bin|py|html|md|ya?ml|toml|csv)$"
    r"|(^|/)\.|events\.out\.tfevents"
)


def files_under(folder):
    found = []
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        for name in sorted(names):
            path = os.path.join(root, name)
            if SKIPPED.search(name) or not os.path.isfile(path) or not os.access(path, os.R_OK):
                continue
            if os.path.getsize(path):
                found.append(path)
    attempts = [int(m[1]) for p in found if (m := re.search(r"/attempt_(\d+)/", p))]
    if attempts:  # of a job that torchrun started again only the last attempt counts
        last = max(attempts)
        found = [p for p in found if not (m := re.search(r"/attempt_(\d+)/", p)) or int(m[1]) == last]
    return found


ROTATED = re.compile(r"^(?P<base>.+?)(?:\.(?P<n>\d{1,3})|-(?P<day>\d{8}(?:-?\d{4,6})?))?(?P<gz>\.gz)?$")


def group_files(paths):
    """Rotated files joined, oldest first; ranks read from the names."""
    groups, names = {}, {os.path.basename(p) for p in paths}
    for path in paths:
        m = ROTATED.match(os.path.basename(path))
        base = m["base"]
        plain = os.path.basename(path)[: -3 if m["gz"] else None]
        rotated = m["day"] or (m["n"] is not None and (base in names or base + ".gz" in names or m["gz"] and m["n"]))
        if rotated and not re.search(
            r"rank|task|worker|proc", base + "." if base.endswith(".") else base.split(".")[-1]
        ):
            key, age = os.path.join(os.path.dirname(path), base), (1, m["day"] or "", -int(m["n"] or 0))
            if m["day"]:
                age = (0, m["day"], 0)
            elif m["n"]:
                age = (0, "", -int(m["n"]))
        else:
            key, age = os.path.join(os.path.dirname(path), plain), (2, "", 0)
        groups.setdefault(key, []).append((age, path))
    ranks = ranks_of_names(sorted(groups))
    sources = []
    for key, parts in sorted(groups.items(), key=lambda item: natural(item[0])):
        ordered = [p for _, p in sorted(parts)]
        sources.append(Source(ordered[-1], ordered, ranks.get(key), sum(os.path.getsize(p) for p in ordered)))
    return sources


def natural(text):
    return [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", text)]


def ranks_of_names(keys):
    """Which rank wrote which file, as far as the names tell: `rank_3.log`, `attempt_0/3/stderr.log`, or a number that
    runs from 0 over files named alike."""
    ranks, left = {}, []
    for key in keys:
        elastic = re.search(r"/attempt_\d+/(\d+)/[^/]+$", key)
        named = re.findall(r"(?i)(?<!local)(?<!local[_-])(?:rank|task|proc(?:id)?|worker)[_.=-]?(\d+)", key)
        if elastic:
            ranks[key] = int(elastic[1])
        elif named:
            ranks[key] = int(named[-1])
        else:
            left.append(key)
    shapes = {}
    for key in left:
        numbers = list(re.finditer(r"\d+", key))
        for m in numbers:
            shapes.setdefault((key[: m.start()], key[m.end() :]), {})[int(m[0])] = key
    for members in sorted(shapes.values(), key=len, reverse=True):
        if len(members) > 1 and sorted(members) == list(range(len(members))) and not set(members.values()) & set(ranks):
            ranks.update({key: number for number, key in members.items()})
    return ranks


def pieces_of(source, report):
    """The bytes of a source, a piece at a time, over all its parts. An unreadable rest ends it with a note."""
    for part in source.parts:
        try:
            if part is None:
                stream = sys.stdin.buffer
            else:
                stream = open(part, "rb")
        except OSError as e:
            report(f"{part}: {e.strerror or e}")
            continue
        with stream if part is not None else io.BytesIO():
            try:
                start = stream.read(PACKED)
                if start[:2] == b"\x1f\x8b":
                    yield from unzip(start, stream)
                    continue
                while start:
                    yield start
                    start = stream.read(CHUNK)
            except (OSError, EOFError, zlib.error, gzip.BadGzipFile) as e:
                report(f"{part or 'standard input'}: the rest cannot be read ({e})")


def unzip(piece, stream):
    """gzip, several members too, with bounded memory; a damaged or cut end is what there is."""
    machine = zlib.decompressobj(31)
    while piece:
        yield from filter(None, [machine.decompress(piece, CHUNK)])
        while machine.unconsumed_tail:
            yield machine.decompress(machine.unconsumed_tail, CHUNK)
        if machine.eof:
            rest = machine.unused_data.lstrip(b"\0")
            machine = zlib.decompressobj(31)
            piece = rest or stream.read(PACKED)
        else:
            piece = stream.read(PACKED)


# ------------------------------------------------------------------------------------------------------------------
# Scanning: find the stretches worth reading
# ------------------------------------------------------------------------------------------------------------------
CAPITALS = re.compile(  # words that begin with a capital rare in logs: the search skips fast over what has none
    rb"Traceback|Timeout (?:at |\()|Terminat|Thread 0x|SIG[A-Z]{3,4}|Signal|Segmentation fault|Spawn function"
    rb"|SystemExit"
    rb"|SyntaxError|Stop training|Current (?:thread|run is)|CANCELLED|COMPLETED|Killed|KeyboardInterrupt|Aborted"
    rb"|Bus error"
    rb"|Watchdog|WorkNCCL|Process \d+(?:: | terminated)"
)
SMALLS = (b": error", b"terminat", b"elastic/")
AGAIN = re.compile(  # signs that a program begins
    rb"Engine run starting with max_epochs|Apply torch D|Use data loader kwargs|Initialized (?:distributed launcher"
    rb"|processing group)|Spawn function '|- Run '|\b[Ww]orld[_ ]size ?[=:]? ?\d|\b[Rr]ank \d+ of \d"
    rb"|\b[Ee]p(?:och)?[ :=\[#]{0,2}[01]\b|: start\b|\b[Ss]tarting (?:training|epoch|from)"
)
A_LINE = re.compile(rb"(?m)^.{10,200}$")
SEARCHED = 64 << 20  # bytes after a failure that are searched for such a sign
OPENING, CLOSING = 200, 40  # lines at both ends of a source that are read in any case
ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*(?:\x07|\x1b\\)|[@-Z\\-_])")
BYTE_RANK = re.compile(  # not the lines of a traceback, nor the launcher's table
    rb"(?:(?<![\w])|(?<=\d)|(?<=\dm))[Rr](?:ank|ANK)[\"']?[ =:_#-]{0,2}(\d{1,5})"
    rb"(?![\d.]\d|\d|\]: (?:Traceback| |[\w.]*(?:Error|Exception)\b)|\]:\[)"
    rb"|\[(?:default|worker|trainer|proc)(\d{1,5})\](?!:(?:\[rank\d+\]: ?)?(?:Traceback| |[\w.]*(?:Error|Exception)\b))"
)
LABEL = re.compile(
    rb"(?m)^(?:\x1b\[[\d;]*m|\[?\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?\]? )* *(\d{1,5}): "
)
STAMP = re.compile(
    r"(?P<iso>\d{4}-\d\d-\d\d[T_ ]\d\d:\d\d:\d\d(?:[.,]\d+)?)|(?P<glog>(?<=[IWEF])\d{4} \d\d:\d\d:\d\d(?:\.\d+)?)"
    r"|(?P<clock>(?<![\d:])\d\d:\d\d:\d\d(?:[.,]\d+)?(?![\d:]))"
)


def when(text):
    """Seconds since some fixed moment that a line bears, or None; of two such from one log the difference counts."""
    m = STAMP.search(text[:200])
    if not m:
        return None
    try:
        if m["iso"]:
            day, clock = m["iso"][:10], m["iso"][11:].replace(",", ".")
            y, mo, d = map(int, day.split("-"))
        elif m["glog"]:
            y, mo, d = time.localtime().tm_year, int(m["glog"][:2]), int(m["glog"][2:4])
            clock = m["glog"][5:]
        else:
            return None
        h, mi, s = clock.split(":")
        return (((y * 12 + mo) * 31 + d) * 24 + int(h)) * 3600 + int(mi) * 60 + float(s)
    except ValueError:
        return None


class Scanner:
    """Reads one source and hands its stretches of interest, line by line, to a Reader."""

    def __init__(self, job, source, report, tick):
        self.job, self.source, self.report, self.tick = job, source, report, tick
        self.reader = Reader(job, source)
        self.line = 1  # number of the line at which the current piece begins
        self.labelled = None  # whether `N: ` before each line is a rank (srun --label)
        self.budget = OPENING if job.world is None else 10  # lines still to be read because of an earlier one
        self.alive = {}  # ranks heard of in the piece before, when only samples are read
        self.tail, self.searched, self.pending = b"", 0, []
        self.opening = set()  # the first lines, without their numbers
        self.own = None  # one of OWN
        self.foreign = []  # what stands before or after all lines and no program of the job wrote

    def run(self):
        carry, base = b"", self.job.bytes
        begun = base
        known = self.source.size and not any(str(part).endswith(".gz") for part in self.source.parts)
        small = not known or self.source.size <= WHOLE
        for piece in pieces_of(self.source, self.report):
            self.job.bytes += len(piece)
            small = small and (bool(known) or self.job.bytes - begun <= WHOLE)
            self.tick(self.job)
            data = carry + piece if carry else piece
            end = data.rfind(b"\n") + 1
            if not end:
                if len(data) < 2 * CHUNK:
                    carry = data
                    continue
                end = len(data)  # a line longer than anything that is read: in pieces
            carry = data[end:]
            self.read(data, end, base, small)
            base += end
        if carry:
            self.read(carry, len(carry), base, small)
        self.reader.close()
        self.job.lines += self.line - 1
        self.finish()
        text = [line for line in clean(self.tail[-16384:]).split("\n") if line.strip()]
        self.job.tails.append((self.source, self.line - 1, text[-12:]))
        self.source.words = without_ignored(text)[-12:]

    def finish(self):
        """Signs of completion among the last lines, which the search may have passed over."""
        raw = self.tail[-16384:]
        order, epoch = self.job.bytes - len(raw), None
        lines, quoting = raw.split(b"\n"), False
        for n, line in enumerate(lines):
            text = clean(line)
            quoting = 'File "' in text or quoting and ONLY_PREFIX.match(text)[0].endswith("    ")
            if m := re.search(r"Epoch\[(\d+)\] Complete", text):
                epoch = int(m[1])
            ended = "Engine run finished" in text or "Engine run complete" in text
            ended = ended and epoch == self.reader.max_epochs > 1
            if n >= len(lines) - CLOSING and not quoting and (COMPLETE.search(text) or ended):
                number = max(1, self.line - len(lines) + n + 1)
                self.job.add(Event("complete", self.source.rank, self.source.name, number, text.strip()[:600], order))
            order += len(line) + 1

    def read(self, data, end, base, small):
        """Everything in data[:end]: whole lines, as a rule."""
        if self.labelled is None:
            head = data[: min(end, 65536)]
            self.foreign = foreign_prefixes(head)
            if head.count(b"\r\n") * 2 > head.count(b"\n"):
                self.foreign.insert(0, (b"\r\n", b"\n"))
            head = self.bare(head)
            self.labelled = is_labelled(head)
            self.own = None if self.labelled or BYTE_RANK.search(head) else own_label(head)
            self.reader.labelled, self.reader.own = self.labelled, self.own
        if self.foreign:
            data = self.bare(data[:end])
            end = len(data)
        after = self.line + data.count(b"\n", 0, end)
        self.listen(data, end, base, small, after)
        at, line, found = 0, self.line, {}
        if self.budget:
            at, line = self.stretch(data, 0, end, line, base)
        while at < end:
            start = self.next_mark(data, at, end, found)
            if start < 0:
                break
            begin = data.rfind(b"\n", max(at, start - LINE), start) + 1 or max(at, start - LINE)
            if begin > at:  # the line before may say that what follows was handled
                begin = data.rfind(b"\n", max(at, begin - 400), begin - 1) + 1 or begin
                begin, self.budget = max(begin, at), 2
            line += data.count(b"\n", at, begin)
            at, line = self.stretch(data, begin, end, line, base)
        if self.line == 1:
            head = re.split(re.escape(HEADER) + "|due to exception|: error", clean(data[:8192]))[0]
            self.opening = {form(line) for line in head.split("\n")[:40]} - {""}
        self.again(data, end, base, after)
        self.line = after
        self.tail = (self.tail + data[max(0, end - 16384) : end])[-32768:]

    def bare(self, data):
        """Whole lines without what whoever kept the log wrote before and after each."""
        data = b"\n" + data
        for old, new in self.foreign:
            data = data.replace(old, new)
        return data[1:]

    def again(self, data, end, base, after):
        """Note where a program begins anew after a launcher has reported a failure."""
        hards = self.reader.hards
        if not hards:
            return
        raised = {e.end.split("\n")[0][:200] for e in self.job.of("exception")} - {""}
        for hard, following in zip(hards, [*hards[1:], base + end]):
            start = max(0, hard - base)
            stop = min(end, max(start, following - base), start + SEARCHED)
            for m in islice(self.beginnings(data, start, stop), 200):
                begin = data.rfind(b"\n", max(0, m.start() - LINE), m.start()) + 1
                text = clean(data[begin : min(end, begin + 300)].split(b"\n")[0])
                if re.match(r"(?:\d+: )?(?:\[\w+\]: ?)*\s\s+", text):
                    continue  # a line of source in a traceback
                if any(words in text for words in raised):
                    continue  # what an exception says
                line = after - data.count(b"\n", begin, end)
                self.job.add(Event("again", None, self.source.name, line, text.strip()[:300], base + m.start()))
                if following == base + end:
                    hards.clear()
                    return
                break
        self.searched = self.searched + end if hards[-1:] == self.pending else 0
        self.pending = hards[-1:]
        self.reader.hards = [] if self.searched > SEARCHED else hards[-1:]

    def beginnings(self, data, start, stop):
        """Matches at which a program may begin: by its words, or by a line like one of the first of this source."""
        yield from AGAIN.finditer(data, start, stop)
        if data.find(b"ChildFailedError", start) >= 0:
            return  # torchrun has given up
        for m in islice(A_LINE.finditer(data, start, min(stop, start + 65536)), 200):
            if form(clean(m[0])) in self.opening:
                yield m

    def next_mark(self, data, at, end, found):
        """Where the next word of interest stands, or -1. `found` remembers what was looked up."""
        best = -1
        for word in SMALLS:
            place = found.get(word, -2)
            if place != -1 and place < at:
                place = found[word] = data.find(word, at, end)
            if place >= 0 and (best < 0 or place < best):
                best = place
        place = found.get("capitals", -2)
        if place != -1 and place < at:
            m = CAPITALS.search(data, at, end)
            place = found["capitals"] = m.start() if m else -1
        return place if place >= 0 and (best < 0 or place < best) else best

    def stretch(self, data, at, end, line, base):
        """Read lines from `at` as long as the reader wants more. Returns where it stopped and the line there."""
        while at < end:
            stop = data.find(b"\n", at, at + LINE)
            if stop < 0:
                stop = min(at + LINE, end)  # the rest of a very long line is searched, not read
                more = self.reader.take(clean(data[at:stop]), line, base + at)
                self.budget = max(self.budget - 1, more)
                return stop, line
            more = self.reader.take(clean(data[at:stop]), line, base + at)
            at, line = stop + 1, line + 1
            self.budget = max(self.budget - 1, more)
            if self.budget <= 0:
                self.budget = 0
                break
        return min(at, end), line

    def listen(self, data, end, base, small, after):
        """Hear which ranks wrote in this piece: every line of a small file, else a sample and who has fallen silent."""
        source, job = self.source, self.job
        pattern = LABEL if self.labelled else self.own or BYTE_RANK
        if source.rank is not None:
            start = data.rfind(b"\n", 0, max(0, end - 1)) + 1
            text = clean(data[start : min(end, start + LINE)])
            job.lane(source.rank).remember(data[max(0, start - 4096) : start])
            job.lane(source.rank).hear(base + start, source.name, after - data.count(b"\n", start, end), text)
            job.lane(source.rank).lines += after - self.line
            if not small:
                return
            step = None
            for m in STEP.finditer(clean(data[max(0, end - 4096) : end])):
                step = step_of(m)
            job.lane(source.rank).step = step or job.lane(source.rank).step
            return
        if small:
            places = {}
            for m in pattern.finditer(data, 0, end):
                rank = int(m[m.lastindex])
                if rank in places:
                    places[rank].append(m.start())
                else:
                    places[rank] = deque([m.start()], maxlen=60)
            for rank, marks in places.items():
                for mark in list(marks):
                    self.hear_line(rank, data, mark, end, base, after)
            return
        size, heard = SAMPLE, {}
        while True:
            begin = max(0, end - size)
            heard = {}
            for m in pattern.finditer(data, begin, end):
                heard[int(m[m.lastindex])] = m
            if len(heard) >= len(self.alive) or begin == 0 or size >= CHUNK // 4:
                break
            size *= 4
        for rank in [r for r in self.alive if r not in heard][:256]:  # its last line may still be in this piece
            word, place = self.alive[rank], begin
            while place > 0:
                place = data.rfind(word, 0, place)
                if place < 0 or not data[place + len(word) : place + len(word) + 1].isdigit():
                    break
            if place >= 0 and begin:
                self.hear_line(rank, data, place, end, base, after)
        for rank, m in heard.items():
            self.hear_line(rank, data, m.start(), end, base, after)
        self.alive = {rank: m[0].rstrip(b" ") for rank, m in heard.items()}

    def hear_line(self, rank, data, mark, end, base, after):
        """Note the line at `mark` as the last one of a rank, unless it only speaks of that rank."""
        begin = data.rfind(b"\n", max(0, mark - LINE), mark) + 1 or max(0, mark - LINE)
        if mark - begin > 90 and data[mark - 1 : mark] not in GLUE:
            return
        stop = data.find(b"\n", mark, min(end, mark + LINE))
        text = clean(data[max(begin, mark - 90) : stop if stop >= 0 else min(end, mark + 400)][:600])
        if ECHO.search(text) or WAITED.search(text) or "exitcode" in text or "monitoredBarrier" in text:
            return
        if "slurmstepd" in text or "srun: " in text:
            return
        glued = mark > begin and data[mark - 1 : mark] in GLUE
        lane = self.job.lane(rank)
        line = -1 if lane.last and lane.last[0] > base + begin else after - data.count(b"\n", begin, end)
        said = clean(data[mark : mark + 300].split(b"\n")[0]) if glued else text
        said = re.split(r"(?<=[\d)\]])(?=[Rr]ank \d+:)", said.strip())[0]
        lane.hear(base + begin, self.source.name, line, said[:300])
        steps = [step_of(m) for m in STEP.finditer(text)]
        if steps and steps[0] is not None:
            lane.step = steps[0]


GLUE = tuple(b"%c" % c for c in b"0123456789)]")  # what a rank's line ends with to which another's is glued
REPEATED = re.compile(r"(?i)torch/distributed|warn|error|traceback|epoch|step|iter|batch|loss|%|File ")


def form(line):
    """A line without its numbers; "" for one that a program may well repeat, or that a launcher writes."""
    text = line[ONLY_PREFIX.match(line).end() :].strip()
    return "" if len(text) < 10 or REPEATED.search(line) else re.sub(r"\d+", "#", text)


REPORTED = re.compile(  # above an exception in a __del__, at exit, in a server, a task of asyncio, a record of logging
    r"Exception ignored|Exception occurred during processing of request|exception was never retrieved"
    r"|future: <(?:Task|Future) finished|--- Logging error ---"
)


def without_ignored(lines):
    """The lines without exceptions that Python reports and goes on."""
    kept, inside = [], False
    for line in lines:
        prefix = ONLY_PREFIX.match(line)[0]
        text, indent = line[len(prefix) :], len(prefix) - len(prefix.rstrip())
        if REPORTED.search(text):
            inside = True
        elif not inside:
            kept.append(line)
        elif indent < 2 and HEADER not in line:  # its last line
            m = RAISED.match(text)
            inside = False
            if not m or not RAISES.search(m["name"]):
                kept.append(line)
    return kept


STEP = re.compile(r"(?i)\b(?:(ep(?:och)?)|(step|iter(?:ation)?|batch|global_step|it))[\s=:\[#]{0,3}(\d+)")


def step_of(m):
    return int(m[3]) if m[2] else None


def clean(raw):
    """Text of raw bytes: colours gone, of a line that was overwritten (carriage returns) all versions kept in order."""
    text = raw.decode("utf-8", "replace") if isinstance(raw, (bytes, bytearray, memoryview)) else raw
    if "\x1b" in text:
        text = ANSI.sub("", text)
    if "\0" in text:
        text = text.replace("\0", "")
    return text[:-1] if text.endswith("\r") else text


FOREIGN = re.compile(  # what whoever kept the log wrote before each line: kubectl logs --prefix, docker compose
    rb"\[pod/[\w./-]+\] |(?!(?i:r(?:ank)?[ _-]?\d|debug|info|warn|error|critical|fatal))[\w.-]+ +\| ?"
)
CONTAINERD = re.compile(rb"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) (?:stdout|stderr) [FP] ")


def foreign_prefixes(head):
    """[(old, new), …]: what to replace in the lines of a log, for what nearly all of them begin with and no program of
    the job wrote. Plain bytes, since a regular expression costs more than all the rest."""
    lines = [line for line in head.split(b"\n")[:-1] if line.strip()]
    if len(lines) < 3:
        return []
    found = {m[0] for line in lines if (m := FOREIGN.match(line))}
    number_only = all(prefix.rstrip(b" |").isdigit() for prefix in found)  # a rank, and no container's name
    if 0 < len(found) <= 64 and not number_only and sum(bool(FOREIGN.match(x)) for x in lines) >= 0.95 * len(lines):
        return [(b"\n" + prefix, b"\n") for prefix in sorted(found, key=len, reverse=True)]
    if sum(bool(CONTAINERD.match(line)) for line in lines) >= 0.95 * len(lines):
        return [(b" stderr F ", b" "), (b" stdout F ", b" "), (b" stderr P ", b" "), (b" stdout P ", b" ")]
    indent = min(len(line) - len(line.lstrip(b" ")) for line in lines)
    return [(b"\n" + b" " * indent, b"\n")] if indent else []


OWN = [  # a rank before each line, as programs write it themselves
    re.compile(
        rb"(?m)^(?:\x1b\[[\d;]*m|\[?(?:\d{4}-\d\d-\d\d[T ])?\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]? )*"
        rb"(?:(?:INFO|WARN(?:ING)?|ERROR|DEBUG)[: ]\s*)?" + form
    )
    for form in (
        rb"<(\d{1,3})(?:/\d+)?> ",
        rb"[\[(](?:(?:[pPwWgGrR#]|(?i:proc(?:ess)?|worker|gpu|task|pe))[ :_-]?)?(\d{1,3})(?:/\d+)?[\])]:? ",
        rb"[pPwWgG#](\d{1,3})(?:[:|>\]]| +\|) ",
        rb"(?i:proc(?:ess)?|worker|gpu|task|pe|trainer)[ _-]?(\d{1,3})[ :|>\]]",
        rb"[\w.]{1,40}[._-](?:[rRpPwWgG]|(?i:proc(?:ess)?|worker|gpu))_?(\d{1,3})[ :]",  # in the name of a logger
        rb"[\w.]{1,40}\[(\d{1,3})\]:? (?=INFO|WARN|ERROR|DEBUG)",
        rb"(?:[\w.]{0,40} ?\| ?){1,3}[rRpPwWgG#]?(\d{1,3}) ?\|",  # a field between bars
    )
]


def own_label(head):
    """The one of `OWN` that many lines begin with, for 0 and all numbers up to some; None for what only counts up."""
    for pattern in OWN:
        found = [int(m[1]) for m in pattern.finditer(head)]
        if len(found) > 3 and found != sorted(found) and set(found) == set(range(max(2, max(found) + 1))):
            return pattern
    return None


def is_labelled(head):
    """Whether the lines begin with `N: `, as srun --label writes them, and not with counted line numbers."""
    lines = [line for line in head.split(b"\n")[:-1] if line.strip()][:400]
    found = [int(m[1]) for line in lines if (m := LABEL.match(line))]
    if not found or len(found) < 0.5 * len(lines) or (len(found) < 2 and len(lines) > 1):
        return False
    return not (len(found) > 3 and len(set(found)) == len(found) and found == sorted(found) and found[-1] >= len(found))


# ------------------------------------------------------------------------------------------------------------------
# Recognisers: lines of interest → events
# ------------------------------------------------------------------------------------------------------------------
GONE = (  # a peer of this rank has gone
    r"Connection (?:closed|reset) by peer|Connection was likely closed|remote process exited"
    r"|NCCL communicator was aborted"
    r"|Broken pipe|failed to recv, got 0 bytes|recvVector failed|sendBytes failed|recvValue failed|recvBytes failed"
    r"|ncclRemoteError|worker crashing|pair closure|Socket closed|peer closed|Connection aborted"
    r"|(?:Stop_waiting response|Broken connection).*expected|NCCL error.*(?:remote|unhandled system error)"
    r"|Horovod has been shut down"
)
LATE = (  # a peer of this rank has not come
    r"Timed out waiting \d+ ?ms for (?:recv|send) operation|Application timeout caused pair closure"
    r"|[Ww]atchdog caught collective operation timeout|failed to pass monitoredBarrier|in monitoredBarrier after"
    r"|Some NCCL operations have failed or timed out|ran for \d+ milliseconds before timing out"
    r"|wait timeout after \d+ ?ms|Operation timed out!|Socket Timeout|monitoredBarrier.*timed out"
    r"|waiting for clients|client socket has timed out"
    r"|(?:Exception \(either an error or timeout\) detected by watchdog)"
)
ECHO, WAITED = re.compile(GONE), re.compile(LATE)
ECHOES = re.compile(GONE + "|" + LATE)
RANK_PREFIX = re.compile(r"\s*\[rank(\d+)\]:(?: |$)")
PUT_BEFORE = [  # a rank before each line of a process, as people put it there with sed or a function of their shell
    re.compile(form)
    for form in (
        r"[\[(<](?:(?i:rank|proc(?:ess)?|worker|gpu|task|pe|node\w*:)|[rwpg#])?[ =_:-]?(\d{1,5})(?:/\d+)?[\])>]:? ",
        r"(?:(?i:rank|proc(?:ess)?|worker|gpu|task|pe)|[rwpg#])[ =_:-]?(\d{1,5})(?:/\d+)? *[:|>] ",
        r"(\d{1,5}) ?\| ",
    )
]
OF_STACK = re.compile(r'Traceback \(most recent call last\):| *File "|(?:Current t|T)hread 0x|Fatal Python error:')
ASKED = re.compile(
    r"\s*(?:[-+=#>*$]+\s|(?i:py-?spy|gdb|stacks?|dump\w*|kill|pid|process|worker|traces?)\b)"
    r"|.*\b(?i:stacks?|traces?|dump)\W*$"
)
OF_DUMP = re.compile(r'\s*File "|\s+\S.*\(.*:\d+\)$|Process \d+: |Python v|Thread ')
ROLE_PREFIX = re.compile(r"\s*\[(?:default|worker|trainer|[a-z]\w*?)(\d+)\]:")
LABEL_PREFIX = re.compile(r" *(\d{1,5}):(?: |(?!\d\d:\d\d))")  # and no time of day
HOST_PREFIX = re.compile(r"\[([\w.-]+):(\d+)\]:? ")
STAMP_PREFIX = re.compile(
    r"(?:\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?"
    r"|\[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?) (?=[^ ]| {2})"
)
GLUED = re.compile(r"\[rank\d+\]: (?=Traceback| {2}File|\w+(?:\.\w+)*(?:Error|Exception)\b)")
ONLY_PREFIX = re.compile(
    r"(?:\[\w+\]:|\[(?!\d{4}-)[\w.-]+:\d+\]|\[\d{4}-\d\d-\d\d[\dT:.,Z+ -]*\]|[\dT:.,Z+\s-])*"
)  # one way to read each letter: linear time
SAID_RANK = re.compile(
    r"(?:^|[\s\[(<{|,\"'])(?:[Gg]lobal[_ ]?)?[Rr](?:ank|ANK)[\"']?[ =:_#-]{0,2}(\d{1,5})\b(?!\.\d)"
)
HEADER = "Traceback (most recent call last):"
FRAME = re.compile(r'\s*File "([^"]+)", line (\d+)(?:,)? in (\S+)')
PYSPY_FRAME = re.compile(r"^\s+(.+?) \(([^()]*?\.\w+):(\d+)\)$")
RAISED = re.compile(r"((?:[A-Za-z_]\w*\.)*(?P<name>[A-Za-z_]\w*))(?:: (?P<text>.*)|:?)$", re.S)
RAISES = re.compile(
    r"(Error|Exception|Interrupt|Exit|Iteration|Warning|Empty|Full|Timeout|Expired|Failed|Failure|Abort\w*)$"
)
LOGGED = re.compile(r"\b(ERROR|WARN(?:ING)?|CRITICAL|EXCEPTION|exception|error|failed|retry\w*)\b")
SPEAKER = re.compile(r"(?<![\w.])[Rr](?:(?:ank|ANK)[ =:_#-]{0,2})?(\d{1,5})(?![\w.])")  # in a record of logging
SPAWNED = re.compile(r"-- Process (\d+) terminated with the following error")
SPAWN_PROCESS = re.compile(r"Process SpawnProcess-(\d+):")  # an error that torch's spawn could not hand to the parent
CHILD = re.compile(r"process (\d+) terminated with (?:exit code (-?\d+)|signal (\w+))")
AGENT_FAILED = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+) \(pid: (\d+)\)")
TABLE_RANK = re.compile(r"^\s+rank\s*: (\d+) \(local_rank: (\d+)\)")
TABLE_CODE = re.compile(r"^\s+exitcode\s*: (-?\d+) \(pid: (\d+)\)")
TABLE_TIME = re.compile(r"^\s+time\s*: (\S+)")
TABLE_TRACE = re.compile(r"^\s+traceback\s*: (.*)")
SRUN = re.compile(r"srun: error: (\S+?): tasks? ([\d,\-\[\]]+): (.+)")
LAUNCHERS = re.compile(r"(?:srun|slurmstepd|mpirun|prterun|salloc|sbatch)\b|-{20}")  # lines of their own
MPIRUN = re.compile(r"noticed that process rank (\d+) .*exited on signal (\d+)")
SLURM_STOP = re.compile(r"\*\*\* (?:STEP|JOB) (\S+) ON (\S+) (?:CANCELLED|FAILED)(?: AT (\S+))?(.*?)\*\*\*")
WORLD = re.compile(
    r"(?:- Run '.*' in|Spawn function '.*' in) (\d+) processes|\bworld[_ -]?size\s*[=:]?\s*(\d+)\b"
    r"|nproc[_-]per[_-]node[=: ]+(\d+)"
    r"|\bworld (\d+)\b|\brank \d+ ?(?:of|/) ?(\d+)\b"
)
INTRODUCED = re.compile(r"(?i)\b(?:rank|worker|process|proc|task)[ =:#]{0,2}(\d{1,6}) ?(?:of|/) ?(\d{1,6})\b")
NODES = re.compile(r"\b(nnodes|nproc[_-]per[_-]node|node[_-]rank)[=: ]+(\d+)\b")
NCCL = re.compile(
    r"\[(?:PG.*?)?Rank (\d+)\].*?(?:Watchdog caught|[Ww]atchdog|Some NCCL|Exception \(either|last enqueued"
    r"|Received a dump|Timeout at)"
)
NCCL_WORK = re.compile(r"SeqNum=(\d+), OpType=(\w+)")
NCCL_ENQUEUED = re.compile(r"last enqueued (?:NCCL )?work: (-?\d+)")
DESYNC = re.compile(
    r"\[([\d, ]+)\] (?:finished collective #-?\d+, but didn't join|did not join|hasn't joined|never joined)"
)
BARRIER = re.compile(r"Ranks? ([\d, ]+) failed to pass monitoredBarrier")
OOM = re.compile(r"oom[-_]kill|Out [Oo]f [Mm]emory: Killed process|Out Of Memory|Memory cgroup out of memory")
IN_RECORD = re.compile(r'\s*\{"(?!.*"(?i:msg|message|log)": ?"[^"]*$)')  # a record in JSON, and no message of its
NATIVE = re.compile(
    r"terminate called (?:after throwing an instance of '?([\w:]+)|(without an active exception))"
    r"|(Segmentation fault)|Fatal Python error: (.+)"
    r"|(Bus error)|\*\*\* (stack smashing|buffer overflow) detected|^(?:free|malloc|double free|munmap)[^:]*\(\): (.+)"
    r"|^(double free or corruption .*|corrupted (?:size|double-linked).*|malloc_consolidate\(\).*)"
)
COMPLETE = re.compile(
    r"INFO: End of run$|Finalized processing group with backend|(?i:\btraining (?:has )?(?:completed?|finished|done)\b)"
    r"|(?i:\b(?:job|(?<!engine )run|all ranks|all steps|all epochs)\b.{0,20}\b(?:completed?|finished|done"
    r"|succeeded)\b)|State(?:=|: )COMPLETED"
    r"|(?i:\bexit(?:ed)?(?: with)? (?:code|status)(?: of \w+)?[ =:]*0\b)|(?i:\brc[ =:]*0\b)"
    r"|(?i:successfully (?:finished|completed))"
)
ENDING = re.compile(  # a last line that says that the work is over
    r"(?i)(?:^|[\s:\]])(?:done|finished|finish|completed?|final|bye|all good|success(?:ful(?:ly)?)?|succeeded|ok"
    r"|passed|exiting normally|(?<!to )(?<!on )(?<!before )(?<!until )exit(?:ed|ing)?(?=[\s.!]*$)"
    r"|(?:training|run|job|work)(?: is)? over(?=[\s.!]*$)"
    r"|best (?:model|score|accuracy|(?:trial|run|param(?:eter)?s|config(?:uration)?)(?!.* so far))"
    r"|test (?:accuracy|loss|score)|saved (?:final|last)|total time)\b"
)
COUNTED = re.compile(  # the work is over, after so many steps
    r"(?i)(?:^|[\]|:>)-]\s+)(?:finished|done|completed?)\W+(?:after |in |at |with )?\d+ (?:\w+ )?"
    r"(?:iterations|steps|epochs|batches|updates)\b(?! of)"
    r"|\brank \d+ (?:has )?(?:finished|done|completed) (?:at|after) (?:iteration|step|epoch) \d+$"
)
RECORDED = re.compile(  # the same in a record in JSON
    r"(?i)\"(?:event|status|state|phase|stage)\": ?\"(?:(?:run|job|train(?:ing)?)_?)?"
    r"(?:end(?:ed)?|done|finish(?:ed)?|completed?|succe(?:ss|eded))\"|\"(?:exit_?|return_?)?code\": ?0\b"
)
WORK = re.compile(
    r"(?i)\b(?:epochs?|steps?|iter(?:ation)?s?|batch(?:es)?|loss|acc(?:uracy)?|score|train\w*|eval\w*|valid\w*|ranks?"
    r"|model|checkpoints?|metrics?|dataset|samples)\b|\d%\||\bignite\b|\btorch\b"
)
PARTIAL = re.compile(  # it says so of a part of the work
    r"(?i)^(?!.*\b(?:training|final|all|total)\b).*\b(?:epoch|step|iter\w*|batch\w*|valid\w*|eval\w*"
    r"|checkpoint\w*|download\w*|load\w*"
    r"|init\w*|setup|warm\w*|compil\w*|build\w*|engine run|preprocess\w*|cach\w*|stage|phase|shard\w*)\b"
)
STOPPED = re.compile(
    r"DUE TO (TIME ?LIMIT|PREEMPTION|NODE FAILURE|SIGNAL \w+)|(?:Received (?:Signals\.)?(\w+) death signal)"
    r"|got signal: (\d+)"
    r"|^\^C|received signal (?:SIG)?(TERM|INT|USR1|HUP)"
    r"|(?i:spot instance|preempted|preemption notice)",
)
WORKER = re.compile(r"DataLoader worker \(pid(?:\(s\))? [\d, ]+\) (?:is killed by signal|exited unexpectedly)")


class Reader:
    """Takes the lines of interest of one source apart."""

    def __init__(self, job, source):
        self.job, self.source, self.labelled, self.own = job, source, False, None
        self.put_before = None  # what one of PUT_BEFORE found, once a stack shows that it stands before each line
        self.open = {}  # stream (a rank or None) -> traceback in progress
        self.last = {}  # stream -> exception whose message may go on
        self.before = {}  # stream -> (number, text) of the line before
        self.previous, self.note = "", None  # the line before, of any stream; the rank that it gave to a stack
        self.speaker = (None, 0)  # rank and number of the last record of an error that names its rank in its own way
        self.next_rank = None  # of the traceback that a parent quotes
        self.own_process = None  # number of the process of multiprocessing whose traceback follows
        self.table = None  # entry of torchrun's failure table in progress
        self.root = False
        self.dump = {}  # stream -> stack dump in progress
        self.pyspy = None
        self.quoted = 0  # lines of a traceback inside torchrun's table
        self.max_epochs = 0  # of the engine with most
        self.hards = []  # where a launcher reported a failure

    def take(self, raw, line, order):
        """One line, possibly several versions of it, or glued ones. Returns how many more lines are wanted."""
        wanted = 0
        for text in raw.split("\r") if "\r" in raw else (raw,):
            cuts = [m.start() for m in GLUED.finditer(text)] if "[rank" in text else []
            cuts = [c for c in cuts if c and not ONLY_PREFIX.fullmatch(text[:c])]
            for a, b in zip([0, *cuts], [*cuts, len(text)]):
                wanted = max(wanted, self.part(text[a:b], line, order))
        return wanted

    def part(self, text, line, order):
        rank, stamp, hooked, labelled = self.source.rank, None, False, self.labelled
        full = text
        if self.put_before is None and not RANK_PREFIX.match(text):
            m = next((m for p in PUT_BEFORE if (m := p.match(text)) and OF_STACK.match(text, m.end())), None)
            if m:
                of_world = r"(?:/\d+)?" if "/" in m[0] else ""
                begin, end = m[0][: m.start(1)], re.sub(r"/\d+", "", m[0][m.end(1) :])
                self.put_before = re.compile(rf"{re.escape(begin)}(\d{{1,5}}){of_world}{re.escape(end)}")
        if self.put_before and (m := self.put_before.match(text)):
            rank, text = int(m[1]) if rank is None else rank, text[m.end() :]
        for _ in range(5):
            if m := RANK_PREFIX.match(text):
                rank, hooked = int(m[1]), True
            elif m := re.match(r"\s*\[rank(\d+)\]:(?=\[)", text):  # torch's own messages
                rank = int(m[1])
            elif labelled and (m := LABEL_PREFIX.match(text)):
                rank, labelled = int(m[1]), False  # there is one
            elif (m := ROLE_PREFIX.match(text)) and not text[m.end() :].startswith("//"):
                rank = int(m[1]) if self.source.rank is None else rank
            elif (m := HOST_PREFIX.match(text)) and int(m[2]) < 100000 and "error" not in m[0]:
                rank = int(m[2]) if rank is None else rank
            elif (m := STAMP_PREFIX.match(text)) and not re.match(
                r"[\w.]+ (?:INFO|WARNING|ERROR|DEBUG)", text[m.end() :]
            ):
                stamp = stamp or when(m[0])
            else:
                break
            text = text[m.end() :]
        if rank is None and self.own and (m := self.own.match(full[:100].encode())):
            rank = int(m[1])
        self.hooked = hooked
        return self.recognise(text, rank, line, order, stamp, hooked, full)

    def event(self, kind, rank, line, text, order, time_, **more):
        if kind in ("exit", "cancel", "stop", "restart", "launcher", "shell"):
            if len(self.hards) > 63:
                del self.hards[:-1]
            if self.hards[-1:] != [order + len(text)]:
                self.hards.append(order + len(text))
        return self.job.add(Event(kind, rank, self.source.name, line, text.strip()[:600], order, time=time_, **more))

    def noted(self, rank, previous):
        """The rank of a stack that names none: by the line before it, if whoever asked for the stacks said so there."""
        if rank is None and ASKED.match(previous) and (m := SAID_RANK.search(previous)):
            self.note = int(m[1])
        elif previous.strip() and not OF_DUMP.match(previous):
            self.note = None
        return self.note if rank is None else rank

    def recognise(self, text, rank, line, order, stamp, hooked, full):
        stream = rank if rank is not None else "?"
        wanted = 0
        previous, self.previous = self.previous, full
        stamped = stamp is not None  # and the stamp was taken off
        if self.quoted > 0:  # the traceback inside torchrun's table
            self.quoted -= 1
        # stacks and tracebacks in progress
        tb = self.open.get(stream)
        frame = FRAME.match(text) if 'File "' in text else None
        if frame and stream in self.dump:
            self.dump[stream].frames.append((frame[1], int(frame[2]), frame[3]))
            return 8
        if frame and not tb and stream != "?" and "?" in self.open and not self.open["?"]["frames"]:
            tb = self.open[stream] = self.open.pop("?")  # its first line was glued to somebody else's
            tb["rank"], tb["hooked"] = rank, hooked
        if frame and tb:
            tb["frames"].append((frame[1], int(frame[2]), frame[3]))
            tb["quoting"] = True
            return 12
        if self.pyspy is not None and (m := PYSPY_FRAME.match(text)):
            self.pyspy.frames.append((m[2], int(m[3]), m[1]))
            return 8
        if tb and tb["quoting"]:  # the program's source below a frame is nothing that the job said
            if text.startswith("    ") and HEADER not in text:
                self.before[stream] = (line, text)
                return 12
            tb["quoting"] = False
        stamp = stamp or when(full)
        if text.startswith("Exception in thread") or REPORTED.match(text):
            self.before[stream] = (line, text)
            return 4
        if text.startswith(("SyntaxError: ", "IndentationError: ")) and not tb:
            self.event(
                "exception", rank, line, text, order, stamp, type="SyntaxError", uncaught=True, logged=False, began=line
            )
            return 2
        if HEADER in text:
            self.begin(stream, rank, line, order, stamp, hooked, text)
            return 60
        if tb and self.ends(tb, text, stream, rank, line, order, stamp, hooked):
            if stream in self.last:
                self.last[stream].stamped = stamped
            return 8
        if tb:
            wanted = 12
            if "During handling of the above" in text or "direct cause of the following" in text:
                tb["chained"] = True
        if "(most recent call first):" in text:
            kind = "current" if "Current thread" in text else "thread"
            self.dump[stream] = self.event("dump", self.noted(rank, previous), line, text, order, stamp, type=kind)
            return 20
        if stream in self.dump and text.strip() and not text.startswith(" "):
            del self.dump[stream]
        if m := re.match(r"Process (\d+): ", text):
            self.pid = int(m[1])
            self.noted(rank, previous)
            return 40
        if m := re.match(r"Thread (?:0x)?\w+ \([\w+]+\)(?:: \"(.*)\")?$", text.strip()):
            self.pyspy = self.event(
                "dump",
                self.noted(rank, previous),
                line,
                text,
                order,
                stamp,
                type="pyspy " + (m[1] or ""),
                process=getattr(self, "pid", None),
            )
            return 40
        if stream in self.last and text.strip():
            last = self.last[stream]
            if (
                len(last.end) < 900
                and order - last.order < 4000
                and not STAMP.match(text.strip())
                and stamped <= last.stamped  # a line that bears a time of its own is a record of logging
                and "[rank" not in full[:8]
                or hooked
                and last.rank == rank
            ):
                last.end += "\n" + text.strip()[:400]
            if "During handling of the above" in text or "direct cause of the following" in text:
                last.link = "during" if "During" in text else "cause"
                last.end = last.end.split("\nDuring handling of")[0].split("\nThe above exception was")[0]
                return 8
        if m := SPAWN_PROCESS.fullmatch(text.strip()):
            self.own_process = int(m[1]) - 1
            return 4
        if SPAWNED.search(text):
            self.next_rank = int(SPAWNED.search(text)[1])
            self.event("spawned", self.next_rank, line, text, order, stamp)
            return 8
        return max(
            wanted, self.launcher(text, rank, line, order, stamp), self.other(text, rank, line, order, stamp, hooked)
        )

    # -- tracebacks
    def begin(self, stream, rank, line, order, stamp, hooked, text):
        old = self.open.get(stream)
        last = self.last.pop(stream, None)
        inner = last if "Original Traceback" in text else None
        chain = [last, *last.chain] if last is not None and last.link and inner is None else []
        given, process = self.next_rank, self.own_process
        self.next_rank = self.own_process = None
        if chain and given is None and getattr(last, "spawned", False):
            given = last.rank  # the parent quotes the whole chain
        before = self.before.get(stream, (line, ""))
        logged = bool(LOGGED.search(before[1]) or LOGGED.search(text.split(HEADER)[0]))
        if rank is None and self.speaker[1] == line - 1:  # logging writes a record and its traceback at once
            rank = self.speaker[0]
        if rank is None and (named := re.match(r"Exception in thread (.+):", before[1])):
            rank = int(m[1]) if (m := SPEAKER.search(named[1])) else None
        self.open[stream] = {
            "inner": inner,
            "thread": bool(re.search("Exception in thread", before[1]) or REPORTED.search(before[1])),
            "ignored": bool(REPORTED.search(before[1])),
            "frames": [],
            "line": line,
            "order": order,
            "time": stamp,
            "rank": given if given is not None else rank,
            "spawned": given is not None,
            "process": process,
            "hooked": hooked,
            "chain": chain,
            "outer": old,
            "chained": False,
            "quoting": False,  # the line before was a frame, or source below it
            "logged": logged,
            "record": before if LOGGED.search(before[1]) else None,
            "table": self.table["rank"] if self.table and "rank" in self.table else None,
        }

    def ends(self, tb, text, stream, rank, line, order, stamp, hooked):
        """Whether the line names the exception at the end of the open traceback."""
        stripped = text.strip()
        if not stripped or text.startswith((" ", "\t")) and self.table is None:
            return False
        m = RAISED.match(stripped)
        if not m or not (RAISES.search(m["name"]) or tb["frames"] and (m["name"][:1].isupper() or "." in m[1])):
            return False
        self.open.pop(stream)
        if tb["outer"]:
            tb["outer"]["outer"] = None
            self.open[stream] = tb["outer"]
        name = m["name"]
        if name in ("ChildFailedError",):
            self.event("launcher", None, line, stripped, order, stamp)
            return True
        if name in ("ProcessRaisedException",):
            self.event("launcher", None, line, stripped, order, stamp)
            return True
        if name == "EOFError" and any(f[2] == "join" and "torch/multiprocessing" in f[0] for f in tb["frames"]):
            self.event("launcher", None, line, stripped, order, stamp)  # a rank died before it could say why
            return True
        if name == "ProcessExitedException" or CHILD.search(stripped):
            self.launcher(stripped, rank, line, order, stamp)
            return True
        if name == "SignalException":
            self.event("stop", None, line, stripped, order, stamp)
            return True
        if tb["inner"] is not None:  # of another process or thread of the rank, which raised it anew
            e = tb["inner"]
            e.end, e.text, e.type, e.frames = stripped[:900], stripped[:600], name, e.frames + tb["frames"]
            return True
        if tb["process"] is not None and any("torch/multiprocessing/spawn.py" in f[0] for f in tb["frames"]):
            tb["rank"], tb["spawned"] = tb["process"], True  # a rank, and no other process of the program
        who = tb["table"] if tb["table"] is not None else tb["rank"]
        e = Event(
            "exception",
            who,
            self.source.name,
            line,
            stripped[:600],
            tb["order"],
            time=tb["time"] or stamp,
            frames=tb["frames"],
            chain=tb["chain"],
            uncaught=not tb["thread"]
            and (
                tb["hooked"]
                or tb["spawned"]
                or tb["table"] is not None
                or bool(tb["frames"])
                and tb["frames"][0][2] == "<module>"
            ),
            type=name,
            end=stripped[:900],
            logged=tb["logged"],
            sure=tb["hooked"] or tb["spawned"] or tb["table"] is not None,
            began=tb["line"],
            spawned=tb["spawned"],
            ignored=tb["ignored"] or bool(tb["frames"]) and "multiprocessing/resource_sharer.py" in tb["frames"][0][0],
            record=tb["record"],
            thread=tb["thread"] and not tb["ignored"],
        )
        kept = self.job.add(e)
        if kept is e or kept.kind == "exception":
            kept.uncaught = kept.uncaught or e.uncaught
            for old in tb["chain"]:
                if old is not kept and old in self.job.events:
                    old.kind = "cause of another"
        self.last[stream] = kept
        return True

    # -- what launchers say
    def launcher(self, text, rank, line, order, stamp):
        job = self.job
        if "elastic/" in text or "exitcode" in text or "death signal" in text:
            if m := AGENT_FAILED.search(text):
                job.launcher.add("torchrun")
                self.event("exit", int(m[2]), line, text, order, stamp, code=int(m[1]), process=int(m[3]), type="agent")
                return 30
            if "will restart worker group" in text or "attempts left" in text:
                job.launcher.add("torchrun")
                self.event("restart", None, line, text, order, stamp)
                return 1
            if m := re.search(r"Sending process (\d+) closing signal (\w+)", text):
                self.event("ended", None, line, text, order, stamp, process=int(m[1]))
                return 1
            if m := re.search(r"Unable to shutdown process (\d+) via (?:Signals\.)?SIGTERM", text):
                self.event("forced", None, line, text, order, stamp, process=int(m[1]))
                return 1
        if re.match(r"\s*Failures:|\s*Root Cause \(first observed failure\):", text):
            job.launcher.add("torchrun")
            self.table, self.root = {}, "Root Cause" in text
            self.event("launcher", None, line, text, order, stamp)
            return 14
        if self.table is not None:
            if m := TABLE_TIME.match(text):
                self.table = {"time": when(m[1])}
                return 12
            if m := TABLE_RANK.match(text):
                self.table["rank"] = int(m[1])
                return 12
            if m := TABLE_CODE.match(text):
                self.event(
                    "exit",
                    self.table.get("rank"),
                    line,
                    fold(text),
                    order,
                    self.table.get("time"),
                    code=int(m[1]),
                    process=int(m[2]),
                    type="root" if self.root else "table",
                )
                return 12
            if m := TABLE_TRACE.match(text):
                if HEADER in text:
                    return 60
                return 12
            if re.match(r"[=-]{20,}", text.strip()) and not self.open:
                return 6
        if m := CHILD.search(text):
            job.launcher.add("spawn")
            number = {v: k for k, v in SIGNALS.items()}.get(m[3] or "", 0)
            code = int(m[2]) if m[2] else -number
            self.event("exit", int(m[1]), line, text, order, stamp, code=code, type="spawn")
            return 2
        if m := re.search(r"Terminating process (\d+) via signal", text):
            job.launcher.add("spawn")
            self.event("ended", None, line, text, order, stamp, process=int(m[1]))
            return 2
        if m := SRUN.search(text):
            job.launcher.add("srun")
            ends = m[3].strip()
            code = exit_code(ends)
            for task in numbers(m[2])[:4096]:
                self.event(
                    "exit",
                    task,
                    line,
                    text,
                    order,
                    stamp,
                    code=code,
                    type="srun",
                    oom="Out Of Memory" in ends,
                )
            return 2
        if m := MPIRUN.search(text):
            job.launcher.add("mpirun")
            self.event("exit", int(m[1]), line, text, order, stamp, code=-int(m[2]), type="mpirun")
            return 1
        if m := SLURM_STOP.search(text):
            job.launcher.add("srun")
            kind = "stop" if "DUE TO" in m[0].upper() else "cancel"
            self.event(kind, None, line, text, order, stamp, type=m[4].strip())
            return 2
        if (m := OOM.search(text)) and not IN_RECORD.match(text[: m.start()]):
            self.event("oom", rank, line, text, order, stamp)
            return 2
        if m := re.search(r"(?:line \d+: +)?\b(\d+) (Killed|Segmentation fault|Aborted|Terminated|Bus error)\b", text):
            self.event("shell", rank, line, text, order, stamp, process=int(m[1]), type=m[2])
            return 1
        if re.fullmatch(
            r"\s*(Killed|Segmentation fault(?: \(core dumped\))?|Aborted(?: \(core dumped\))?|Bus error)\s*", text
        ):
            self.event("shell", rank, line, text, order, stamp, type=text.split("(")[0].strip())
            return 1
        return 0

    # -- everything else
    def other(self, text, rank, line, order, stamp, hooked):
        job, wanted = self.job, 0
        self.before[rank if rank is not None else "?"] = (line, text)
        if rank is None and LOGGED.search(text) and (m := SPEAKER.search(text)):
            self.speaker = (int(m[1]), line)
        if m := WORLD.search(text):
            number = next(int(g) for g in m.groups() if g)
            if 0 < number < 1 << 20 and not (m[3] and job.world):
                job.world = max(job.world or 0, number)
                job.spawned = job.spawned or "Spawn function" in m[0]
                wanted = 1
        for member, number in INTRODUCED.findall(text):
            if 1 < int(number) < 1 << 20:
                job.introduced.setdefault(int(number), set()).add(int(member))
        for name, number in NODES.findall(text):
            job.nodes[name.replace("-", "_")] = int(number)
            if name == "nnodes" or "nnodes" in job.nodes:
                ranks = job.nodes["nnodes"] * job.nodes.get("nproc_per_node", 1)
                job.world = max(job.world or 0, ranks if ranks < 1 << 20 else 0) or None
            wanted = 1
        if m := NATIVE.search(text):
            said = SAID_RANK.search(text)
            self.event(
                "native",
                rank if rank is not None else said and int(said[1]),
                line,
                text,
                order,
                stamp,
                type=next(g for g in m.groups() if g),
            )
            return 4
        if "what():" in text:
            natives = [e for e in job.events[-4:] if e.kind == "native"]
            for e in natives[-1:]:
                e.end += " " + text.strip()[:400]
            return 3
        if m := NCCL.search(text):
            who, more = rank if rank is not None else int(m[1]), {}
            if w := NCCL_WORK.search(text):
                more = {"sequence": int(w[1]), "operation": w[2]}
            if w := NCCL_ENQUEUED.search(text):
                more["enqueued"] = int(w[1])
            self.event("watchdog", who, line, text, order, stamp, **more)
            return 3
        if "Timeout at collective" in text or "lagging/dead/mismatched" in text:
            wanted = 24
        if m := DESYNC.search(text):
            self.event("missing", None, line, text, order, stamp, ranks=numbers(m[1]))
            return 2
        if m := BARRIER.search(text):
            self.event("missing", None, line, text, order, stamp, ranks=numbers(m[1]))
        if STOPPED.search(text) and not re.match(r"\s+(traceback|exitcode)", text) and "closing signal" not in text:
            m = STOPPED.search(text)
            self.event("stop", rank, line, text, order, stamp, type=fold(m[0])[:60])
            wanted = 1
        if m := re.search(r"Engine run starting with max_epochs=(\d+)", text):
            self.max_epochs = max(self.max_epochs, int(m[1]))
        if COMPLETE.search(text):
            self.event("complete", rank, line, text, order, stamp)
            wanted = 1
        if re.search(
            r"EarlyStopping: Stop training|Terminate signaled\.|TerminateOnNan|loss (?:is|was|became) (?:nan|NaN|inf)"
            r"|[Ee]arly stop|[\"']early_?stop(?:ped|ping)?[\"'](?!\s*:)",
            text,
        ):
            said = SAID_RANK.search(text)
            who = rank if rank is not None else int(said[1]) if said else None
            at = re.search(r"(?:Early|Terminate|loss |early)", text)
            self.event("stopping", who, line, text[at.start() if at and who is None else 0 :], order, stamp)
            wanted = 1
        if m := re.match(r"(?:\S+\.py|\S+): error: (.+)", text):
            if not text.startswith(
                ("srun", "slurm", "sbatch", "make", "ld", "gcc", "g++", "nvcc", "git", "pip", "ERROR", "curl")
            ):
                self.event("usage", rank, line, text, order, stamp)
            elif "Unable" in text or "nvalid" in text:
                self.event("refused", None, line, text, order, stamp)
            wanted = 1
        if re.search(r"is terminating due to exception", text):
            said = SAID_RANK.search(text) or SPEAKER.search(text.partition(" is terminating")[0])
            who, why = rank if rank is not None else said and int(said[1]), text.partition("exception: ")[2]
            self.event("engine", who, line, text, order, stamp, end=why)
            wanted = 2
        if (m := ECHOES.search(text)) and rank is not None and not hooked and not self.open:
            self.event("notice", rank, line, text, order, stamp)
        return wanted

    def close(self):
        """The source has ended; a traceback without its last line stays what it is."""
        for stream, tb in self.open.items():
            rank = stream if stream != "?" else self.source.rank
            if tb["frames"]:
                self.event("cut", rank, tb["line"], HEADER, tb["order"], tb["time"], frames=tb["frames"])


def numbers(text):
    """[0, 2, 3] from "0,2-3"."""
    found = []
    for a, b in re.findall(r"(\d+)(?:-(\d+))?", text):
        found += range(int(a), min(int(b or a), int(a) + 65536) + 1)
    return found


def exit_code(text):
    """An exit code in the words of srun, as Python gives it: negative for a signal."""
    if m := re.search(r"exit code (\d+)", text):
        code = int(m[1])
        return code if code <= 128 else 128 - code
    words = {
        "Killed": -9,
        "Out Of Memory": -9,
        "Terminated": -15,
        "Segmentation fault": -11,
        "Aborted": -6,
        "Bus error": -7,
        "Floating point exception": -8,
        "Illegal instruction": -4,
        "Interrupt": -2,
        "Hangup": -1,
    }
    return next((code for word, code in words.items() if word in text), 1)


# ------------------------------------------------------------------------------------------------------------------
# Judging
# ------------------------------------------------------------------------------------------------------------------
LIBRARY = re.compile(
    r"site-packages|dist-packages|/lib/python3|(?:^|/)(?:torch|ignite|multiprocessing)/|<frozen|<string>|^<|importlib"
)
TORCH_WAITS = re.compile(
    r"torch/distributed/|torch/csrc/distributed|ignite/distributed/comp_models|torch/nn/parallel/distributed|horovod/"
)
COLLECTIVE = re.compile(
    r"^(?:all_?reduce\w*|all_?gather\w*|broadcast\w*|barrier|monitored_barrier|reduce\w*|gather\w*|scatter\w*"
    r"|new_group|send|recv"
    r"|all_to_all\w*|init_process_group|rendezvous|_env_rendezvous_handler|wait|backward|_compute_nproc_per_node"
    r"|destroy_process_group)$"
)
IDS = {  # causes that the judge knows without a text
    "raise": "a-rank-raises-an-exception",
    "kill": "a-rank-is-killed",
    "crash": "a-rank-crashes-in-native-code",
    "exit": "terminate-called-without-an-active-exception",
    "leave": "a-rank-leaves-early",
    "late": "timed-out-waiting-ms-for-recv-operation-to-complete",
    "gone": "connection-closed-by-peer",
    "stop": "the-job-is-stopped-from-outside",
    "size": "oppreamblelength--opnbytes",
    "apart": "hangs-with-the-ranks-in-different-places",
    "error": "hangs-after-an-error-on-one-rank",
    "early": "hangs-after-early-stopping",
    "barrier": "rank--failed-to-pass-monitoredbarrier-in--ms",
    "watchdog": "watchdog-caught-collective-operation-timeout",
    "worker": "dataloader-worker-pid--is-killed-by-signal",
    "clients": "timed-out-after--seconds-waiting-for-clients--clients-joined",
    "mesh": "gloo-connectfullmesh-failed-with-",
    "again": "restarted-ranks-do-not-find-each-other",
    "usage": "ambiguous-option---nproc-could-match-",
}
ASK = (
    "run the smoke (distributed_smoke.py) on the same hosts; start the job with TORCH_DISTRIBUTED_DEBUG=DETAIL, "
    "one file"
    " per rank (torchrun --log-dir DIR --redirects 3, or srun --output=job-%j-%t.log), and the launcher's own output"
)
ASK_HANG = (
    "if it still runs, inspect_job.py on its host; otherwise faulthandler.dump_traceback_later(60) at the top of the"
    " script, and a group timeout of minutes, so that each rank says where it waits"
)


class Verdict:
    def __init__(self, outcome, cause=None, guilty=(), victims=(), text="", confidence="low", evidence=(), fix=""):
        self.outcome, self.cause, self.text, self.confidence, self.fix = outcome, cause, text, confidence, fix
        self.guilty, self.victims, self.evidence = sorted(set(guilty)), sorted(set(victims)), list(evidence)


class Case:
    """The events of the last attempt, sorted into what they are."""

    def __init__(self, job, rules, events, until=None):
        """`until`: the line at which a next attempt begins, None for the last one."""
        self.job, self.rules, self.events, self.until = job, rules, events, until
        self.exits = {}
        cancelled = min((e.order for e in self.of("cancel", "stop")), default=None)
        least_first = ("agent", "spawn", "srun", "mpirun", "table", "root").index
        for e in sorted(self.of("exit"), key=lambda e: least_first(e.type)):
            if (
                e.type == "srun"
                and cancelled is not None
                and e.order >= cancelled
                and e.code in (-9, -15)
                and not e.oom
            ):
                e.code = -15  # the scheduler ended what was left
            if e.rank is not None:
                self.exits[e.rank] = e
        if any(e.type in ("table", "root") for e in self.of("exit")):  # the agent's line names local ranks only
            self.exits = {r: e for r, e in self.exits.items() if e.type != "agent"}
        self.echoes, self.lates, self.own, self.interrupts = [], [], [], []
        hooks = any(e.uncaught for e in self.of("exception"))
        going = {s.name: n for s, n, lines in job.tails if lines and until is None and in_progress(lines[-1])}
        for e in self.of("exception"):
            e.handled = not e.uncaught and (
                (e.logged or hooks or bool(e.frames))
                and not self.is_last(e)
                or bool(e.logged or e.frames)
                and e.line < going.get(e.source, 0)  # the work went on
            )
            e.handled = e.handled or e.ignored or until is None and (
                not e.sure and went_on(job, e) or e.logged and self.came_to_its_end(e))
            kind = self.kind_of(e)
            {"echo": self.echoes, "late": self.lates, "own": self.own, "interrupt": self.interrupts}[kind].append(e)
        known = {e.rank for e in events if e.rank is not None} | set(job.lanes)
        size = job.world or 0
        table = [r for r in self.exits]
        self.world = max([size, *(r + 1 for r in table), *(r + 1 for r in known if not size)], default=0)
        self.ranks = set(range(self.world)) if self.world <= 1 << 16 else known
        for group in (self.echoes, self.lates, self.own):
            for e in group:
                if e.rank is not None and e.rank >= self.world:
                    self.world, self.ranks = e.rank + 1, set(range(e.rank + 1))
        self.lines = {r: lane for r, lane in job.lanes.items() if r < self.world}

    def of(self, *kinds):
        return [e for e in self.events if e.kind in kinds]

    def is_last(self, e):
        """Whether its source says nothing but its own end after it."""
        if self.until is not None:
            return e.line >= self.until - 25
        for source, lines, _ in self.job.tails:
            if source.name == e.source:
                return e.line >= lines - 25
        return True

    def came_to_its_end(self, e):
        """Whether the rank of an error that it logged wrote afterwards that it is done, and no launcher saw it fail."""
        lane = self.job.lanes.get(e.rank)
        return lane is not None and lane.last[0] > e.order and says_end(lane.last[3]) and not e.uncaught and not any(
            x.code or x.kind != "exit" for x in self.of("exit", "launcher", "shell", "stop", "cancel"))

    def kind_of(self, e):
        if e.type == "KeyboardInterrupt":
            return "interrupt"
        text = e.end
        chain = [e, *e.chain]
        first = chain[-1]
        if first is not e and self.waited_for(first) is None and not all(LIBRARY.search(f[0]) for f in first.frames):
            chain = []  # its own error came first; what it met in handling that is no peer's
        for x in chain:
            if found := self.waited_for(x):
                return found
        if WORKER.search(text) and re.search(r"signal: Terminated", text) and self.others_before(e):
            return "echo"
        return "own"

    def waited_for(self, e):
        """ "late" or "echo" if the exception says that a peer did not come or has gone, else None."""
        native = re.search(
            (
                r"pair\.cc|unbound_buffer|gloo|TCPStore|NCCL|nccl|socket\.cpp|c10d|\[Rank \d|monitoredBarrier"
                r"|Dist\w+Error|Work wait"
            ),
            e.end,
        )
        of_loader = any("utils/data/dataloader.py" in f[0] for f in e.frames)  # its workers are no ranks
        below = list(takewhile(lambda f: LIBRARY.search(f[0]), reversed(e.frames)))  # called from the user's last line
        if native or not of_loader and any(TORCH_WAITS.search(f[0]) for f in below):
            return "late" if WAITED.search(e.end) else "echo" if ECHO.search(e.end) else None
        return None

    def others_before(self, e):
        return any(
            o.kind in ("exception", "exit", "native") and o.order < e.order and o.rank != e.rank for o in self.events
        )

    def rule(self, e):
        """The rule of an exception's text, the most specific one; None if it is nobody's."""
        said = [(first_line(e), e.frames), (e.end, e.frames), *((c.end, c.frames) for c in e.chain)]
        if origin(e) is not e:
            said.reverse()
        for text, frames in said:
            places = [f"{f[0]}:{f[2]}" for f in frames]
            fits = [r for r in self.rules.values() if r.kind == "cause" and r.finds(fold(text), places)]
            if fits:
                return max(fits, key=lambda r: r.weight)
        return None

    def scene(self, e):
        """The rule of a scene that the frames of a waiting rank belong to, innermost frame first."""
        places = [f"{f[0]}:{f[2]}" for f in e.frames]
        for rule in self.rules.values():
            if rule.kind == "scene" and rule.frames and any(p.search(place) for p in rule.frames for place in places):
                return rule
        return None


def where(frames):
    """(file, line, function) of the innermost frame that is the user's; the innermost at all if none is."""
    own = [f for f in frames if not LIBRARY.search(f[0])]
    return own[-1] if own else frames[-1] if frames else None


def site(e):
    """Where a rank waits: its own line and the collective."""
    if not e.frames:
        return None
    place = where(e.frames)
    called = [f[2] for f in e.frames if COLLECTIVE.match(f[2]) and f[2] != "wait"]
    return (os.path.basename(place[0]), place[1], called[-1] if called else "")


def called(e):
    found = site(e)
    return found[2] if found else ""


def place_text(frames):
    place = where(frames)
    return f"{os.path.basename(place[0])}:{place[1]} in {place[2]}" if place else ""


def ranks_text(ranks, limit=12):
    """ "rank 3", "ranks 0-2, 5"."""
    ranks = sorted(set(ranks))
    if not ranks:
        return "no rank"
    runs, start = [], ranks[0]
    for a, b in zip(ranks, [*ranks[1:], None]):
        if b != a + 1:
            runs.append(str(start) if a == start else f"{start}, {a}" if a == start + 1 else f"{start}-{a}")
            start = b
    shown = ", ".join(runs[:limit]) + (f", … ({len(ranks)} ranks)" if len(runs) > limit else "")
    return ("rank " if len(ranks) == 1 else "ranks ") + shown


def origin(e):
    """Of a chain of exceptions met in handling the one before, the first; else the exception itself."""
    for older in e.chain:
        if older.link != "during":
            break
        e = older
    return e


def first_line(e):
    return fold(e.end.split("\n")[0])


def judge(job, rules):
    """The verdict on a job."""
    events, cut = job.events, None
    if len(job.sources) == 1:
        cut = begun_again(job, rules)
    else:
        events = of_last_attempt(job)
    verdict = None
    if cut is not None:
        line = max((e.line for e in events if e.order < cut), default=0)
        before = Case(job, rules, [e for e in events if e.order < cut], line)
        earlier = failed(before) if is_failed(before) else None
        case = Case(job, rules, [e for e in events if e.order >= cut])
        if not is_failed(case):
            verdict = ended_well(case, earlier)
        elif any(e.code not in (0, -15) for e in case.exits.values()) or case.of("launcher", "stop") or not earlier:
            verdict = failed(case)
            if earlier and verdict.cause == IDS["mesh"]:
                met = "the ranks met the addresses of the attempt before"
                verdict = in_vain(verdict, earlier, case, IDS["again"], met)
            elif earlier and earlier.guilty and made_no_group(case):
                verdict = in_vain(verdict, earlier, case, earlier.cause, "the ranks made no group")
            elif earlier:
                verdict.text += " It had been started again after a failure."
    if verdict is None:
        case = Case(job, rules, events)
        verdict = failed(case) if is_failed(case) else ended_well(case, None)
    verdict.evidence = evidence(verdict.evidence)
    rule = rules.get(verdict.cause)
    if not verdict.fix and rule:
        verdict.fix = rule.fix
    verdict.heading = rule.heading if rule else ""
    verdict.see = f"{PAGE}#{verdict.cause}" if rule else ""
    verdict.world = case.world
    return verdict


MAKING = re.compile(r"init_process_group|_create_from_|_init_from_|rendezvous|distributed/utils\.py:initialize")


def made_no_group(case):
    """Whether the ranks failed while they made the group, all of them, and did nothing else before."""
    met = [e for e in case.own + case.lates + case.echoes if not e.handled]
    return bool(met) and not case.of("engine") and all(
        any(MAKING.search(f"{f[0]}:{f[2]}") for f in e.frames) for e in met)


def in_vain(verdict, earlier, case, cause, met):
    """The verdict on ranks that were started again and did not come to work: what ended the attempt before."""
    return Verdict(
        "failed",
        cause,
        earlier.guilty,
        victims_of(case, earlier.guilty),
        f"{earlier.text} Started again, {met}: {verdict.text}",
        earlier.confidence,
        [*earlier.evidence[:3], *verdict.evidence[:1]],
    )


def begun_again(job, rules):
    """Where the last attempt of a job begins that a launcher or a script started again, or None."""
    hard = [e for e in job.of("exit", "restart", "cancel", "stop", "launcher", "shell") if e.kind != "exit" or e.code]
    if not hard:
        return None
    for sign in sorted(job.of("again"), key=lambda e: -e.order):
        before = [e for e in hard if e.order < sign.order]
        if before and whole_attempt_over(job, before, sign.order):
            return sign.order
    restarts = [e.order for e in job.of("restart")]
    if restarts and [e for e in job.of("exception", "exit", "native", "complete") if e.order > max(restarts)]:
        return max(restarts) + 1
    agents = {}  # an agent of torchrun that reports two failures has started its ranks again in between
    for e in sorted((e for e in hard if e.kind == "exit" and e.type == "agent"), key=lambda e: e.order):
        agents.setdefault("".join(re.findall(r"(\d+) torch/", e.text[:80])), []).append(e.order)
    if twice := [orders[-2] for pid, orders in agents.items() if pid and len(orders) > 1]:
        return max(twice) + 1
    if (order := started_again_quietly(job, hard)) is not None:
        return order
    end = max(e.order for e in hard)
    ranks = {e.rank for e in hard if e.rank is not None and e.kind == "exit"}
    if ranks and all(r in job.lanes and sum(o > end for o in job.lanes[r].heard) > 2 for r in ranks):
        return end + 1
    return None


def started_again_quietly(job, hard):
    """Where ranks write on after torchrun's agent has reported that one failed, and it does not give up: it has started
    them again, which it says only at a level of its log that is mostly off."""
    agent = [e for e in hard if e.kind == "exit" and e.type == "agent"]
    if not agent or any(e.kind in ("launcher", "stop", "cancel") for e in hard) or job.of("usage"):
        return None
    last = max(agent, key=lambda e: e.order)
    after = [r for r, lane in job.lanes.items() if any(o > last.order for o in lane.heard)]
    if last.rank in after and 2 * len(after) >= len(job.lanes):
        return last.order + 1
    for source, number, lines in job.tails:
        if source.name == last.source:
            later = lines[max(0, last.line - (number - len(lines))) :]
            if len(job.lanes) < 2 and any(says_end(line) for line in later) and sum(
                    bool(STEP.search(line)) for line in later) > 2:
                return last.order + 1
    return None


def whole_attempt_over(job, hard, order):
    """Whether the failures before this place ended all ranks, so that what begins here is another attempt."""
    if any(e.kind in ("restart", "launcher") or e.kind == "exit" and e.type in ("agent", "spawn") for e in hard):
        return True
    exits = {e.rank for e in hard if e.kind == "exit"}
    lost = {e.rank for e in hard if e.kind == "exit" and e.code != -15}
    again = [r for r in lost if r in job.lanes and any(o > order for o in job.lanes[r].heard)]
    if lost and len(again) == len(lost):
        return True
    if any(e.kind == "cancel" or e.kind == "stop" and "DUE TO" in e.text.upper() for e in hard):
        return True
    return bool(job.world) and len(exits) >= job.world


def of_last_attempt(job):
    """The events without those that torchrun's agent wrote of attempts whose files are not read."""
    last = max(
        (int(n) for s in job.sources for p in s.parts for n in re.findall(r"/attempt_(\d+)/", p or "")), default=0
    )
    dropped = set()
    for name in {e.source for e in job.of("exit") if e.type == "agent"} if last else ():
        own = [e for e in job.events if e.source == name]
        agent = sorted((e for e in own if e.kind == "exit" and e.type == "agent"), key=lambda e: e.order)
        by_pid = Counter("".join(re.findall(r"(\d+) torch/", e.text[:80])) for e in agent)
        if max(by_pid.values()) > last:  # the last attempt failed too
            agent = [e for e in agent if e is not agent[-1]]
        if agent:
            dropped |= {id(e) for e in own if e.order <= agent[-1].order}
    return [e for e in job.events if id(e) not in dropped]


def evidence(items):
    """Events, or (source, line, text), as {file, line, text}; each line once, at most six."""
    found = []
    for item in items:
        if item is None:
            continue
        if isinstance(item, Event):
            item = (item.source, item.line, first_line(item) if item.kind == "exception" else item.text)
        entry = {"file": item[0], "line": item[1], "text": short(fold(item[2]), 170)}
        if entry not in found:
            found.append(entry)
    return found[:6]


def short(text, length):
    return text if len(text) <= length else text[: length - 1] + "…"


def is_failed(case):
    """Whether something says that the job failed, and nothing later that it went on to its end."""
    signs = [e for e in case.of("exit") if e.code] + case.of("launcher", "usage")
    signs += [e for e in case.of("shell") if not outlived(case, e)]
    signs += [e for e in case.of("native") if case.is_last(e) or case.exits]
    signs += [e for e in case.own + case.echoes + case.lates if not e.handled and (e.uncaught or case.is_last(e))]
    signs += [e for e in case.of("stop", "cancel") if case.is_last(e) and not went_on(case.job, e)]
    signs += [e for e in case.of("oom") if case.is_last(e)]
    signs += [e for e in case.of("watchdog", "missing") if case.is_last(e)] + [
        e for e in case.interrupts if case.is_last(e)
    ]
    if not signs:
        return case.until is None and said_at_end(case) is not None
    completes = case.of("complete")
    if any(e.kind == "exception" and e.uncaught and is_near_end(case.job, e) for e in signs):
        return True  # what a batch script says after its program has died is no success
    if completes and not any(e.kind in ("exit", "launcher", "usage") for e in signs):
        for source in {e.source for e in signs}:
            done = [e.order for e in completes if e.source == source]
            if not done or max(done) < max(e.order for e in signs if e.source == source):
                return True
        return False
    return True


def is_near_end(job, e):
    """Whether an exception stands among the last lines of its source, and no work follows it."""
    return any(s.name == e.source and e.line > n - len(lines) for s, n, lines in job.tails) and not went_on(job, e)


def went_on(job, e):
    """Whether steps of the work follow an exception in its source, and then a line that says that it is over."""
    for source, number, lines in job.tails:
        if source.name == e.source:
            later = lines[max(0, e.line - (number - len(lines))) :]
            ends = max((n for n, line in enumerate(later) if says_end(line)), default=0)
            return any(STEP.search(line) for line in later[:ends])
    return False


def ended_well(case, earlier):
    """Succeeded, or not known. `earlier` is the verdict on an attempt before, or None."""
    job, completes = case.job, case.of("complete")
    lasts = [(source, number, source.words) for source, number, _ in job.tails if source.words]
    running = {s.name: n for s, n, lines in lasts if in_progress(lines[-1])}  # breaks off in the middle of its work
    good = [e for e in completes if case.is_last(e) and not (e.source in running and e.line < running[e.source])]
    strong = bool(good)
    if not good:
        for source, number, lines in lasts:
            if source.name in running:
                continue
            endings = [line for line in lines[-6:] if says_end(line)]
            after = lines[max((n for n, line in enumerate(lines) if says_end(line)), default=len(lines)) + 1 :]
            if endings and not any(re.search(r"(?i)\b(?:step|iter\w*|batch)[\s:=\[]*\d+", line) for line in after):
                good.append((source.name, number, endings[-1]))
    silent = stopped_first(case, 2)
    workers = [lines for _, _, lines in lasts if "torch/distributed/elastic" not in lines[-1]]
    behind = [r for r in silent if r in case.lines and in_progress(case.lines[r].last[3])]
    if job.spawned and any("Parallel INFO: End of run" in e.text for e in good if isinstance(e, Event)):
        behind = []  # the parent says so when all its ranks have ended with exit code 0
    if good and (strong or len(good) >= len(workers) and is_of_work(case)) and not behind:
        note = "" if earlier is None else f" after it was started again. Before: {short(earlier.text, 200).rstrip('.')}"
        alarms = [e for e in case.own + case.echoes + case.lates if e.handled]
        if alarms:
            note += f"; {len(alarms)} error{'s' * (len(alarms) > 1)} in it did not end it"
        unfinished = []
        if len(lasts) > 1 and strong:
            done = {e.source for e in completes}
            unfinished = [s.name for s, _, _ in lasts if s.name not in done]
        return Verdict(
            "succeeded",
            None,
            text=f"The job ran to its end{note}.",
            confidence="high" if strong and not unfinished and not running and earlier is None else "medium",
            evidence=[*good[-2:], *alarms[:2], *(earlier.evidence[:2] if earlier else ())],
        )
    found = [(s.name, n, lines[-1]) for s, n, lines in lasts]
    dumps = stacks(case)
    if dumps is not None:
        return dumps
    if not lasts:
        return Verdict("unknown", text="The log is empty.", fix=f"Collect: {ASK}.")
    note = f" An earlier attempt had failed: {short(earlier.text, 160)}" if earlier else ""
    if silent:
        note += f" {ranks_text(silent).capitalize()} stopped writing before the others, or never wrote."
        found.insert(0, last_line(case, silent))
    return Verdict(
        "unknown",
        None,
        text="The log ends without an error and without a sign of completion: it may still run, hang, or"
        f" have been cut.{note}",
        confidence="low",
        evidence=found[:3],
        fix=f"Collect: {ASK_HANG}; {ASK}.",
    )


def is_of_work(case):
    """Whether the log is that of a training or the like, and not of some other program that ends with "done"."""
    job = case.job
    return bool(job.lanes or job.world or job.launcher or job.of("exception", "dump", "engine")) or any(
        WORK.search(line) for _, _, lines in job.tails for line in lines
    )


def says_end(line):
    """Whether a last line says that the work is over, and not only a part of it."""
    last = re.split(r"\r", line)[-1]
    stamp = STAMP_PREFIX.match(last)
    last = last[stamp.end() :] if stamp else last
    if re.search(r"(?i)\bep(?:och)?\W{0,3}\d+\W.{0,40}\b(?:complete|done|finish)", last) or ECHOES.search(last):
        return False
    if COMPLETE.search(last) or RECORDED.search(last) or COUNTED.search(last) or re.search(r"\bbye\W*$", last):
        return True
    return bool(ENDING.search(last) and not PARTIAL.search(last))


def in_progress(line):
    """Whether a last line is that of a loop under way: a bar below 100 %, a step, an engine that has begun."""
    last = re.split(r"\r|(?<=\])(?=[A-Z][\w ]{0,20}\[)", line.rstrip())[-1]
    bars = re.findall(r"(?<![\d.])(\d{1,3})%\|", last)
    if bars:
        return int(bars[-1]) < 100
    counts = re.findall(r"(?i)\b(?:step|iter\w*|it|batch)[\s:=\[#]*(\d+)\s*(?:/|of)\s*(\d+)", last)
    if counts:
        return int(counts[-1][0]) < int(counts[-1][1])
    under_way = re.search(r"Engine run starting|(?i:\b(?:step|iter\w*|batch)[\s:=\[#]*\d+)", last)
    began = re.search(r"(?i)\b(?:resum|restor|restart|load(?:ed|ing)\b|start(?:ing)? (?:from|at)\b)", last)
    return bool(under_way) and not began and not says_end(last)


def stopped_first(case, gap_of_steps=1):
    """Ranks whose lines stop clearly before the others', by the steps they count or the place of their last line."""
    lanes = [lane for lane in case.lines.values() if lane.last]
    if len(lanes) < 2 or len(lanes) < case.world:
        return (
            []
            if not case.world or len(lanes) < 2
            else sorted(case.ranks - set(case.lines))[: case.world // 2]
            if len(lanes) >= 2
            and all(lane.lines >= 3 for lane in lanes)
            and len(lanes) >= case.world - max(1, case.world // 4)
            else []
        )
    steps = [lane.step for lane in lanes]
    if all(s is not None for s in steps) and max(steps) - min(steps) >= gap_of_steps:
        behind = [lane.rank for lane in lanes if lane.step == min(steps)]
        if len(behind) <= len(lanes) // 2:
            return sorted(behind)
    counts = sorted(lane.lines for lane in lanes)
    if len({lane.last[1] for lane in lanes}) == 1:
        orders = sorted(lanes, key=lambda lane: lane.last[0])
        for n in range(1, len(lanes) // 2 + 1):
            early, late = orders[:n], orders[n:]
            gap = late[0].last[0] - early[-1].last[0]
            later = min(lane.lines for lane in late) - max(lane.lines for lane in early)
            if later >= 1 and gap > 0 and len(counts) > 1 and max(x.lines for x in early) < min(x.lines for x in late):
                return sorted(lane.rank for lane in early)
    return []


def stopped_where_others_went_on(case):
    """The rank whose last line is one that others wrote before the line with which all of them end."""
    recent = {r: list(case.lines[r].recent) for r in case.ranks if r in case.lines and case.lines[r].recent}
    if len(recent) < case.world or case.world < 3:
        return []
    usual, count = Counter(lines[-1] for lines in recent.values()).most_common(1)[0]
    odd = [r for r, lines in recent.items() if lines[-1] != usual]
    if len(odd) != 1 or count != case.world - 1:
        return []
    passed = recent[odd[0]][-1]
    return odd if any(passed in lines[:-1] for r, lines in recent.items() if r != odd[0]) else []


def said_something_else(case):
    """The rank that ends with a line that nobody writes otherwise, after the one with which all others end."""
    recent = {r: list(lane.recent) for r, lane in case.lines.items() if lane.recent}
    if len(recent) < case.world or case.world < 3:
        return []
    usual, count = Counter(lines[-1] for lines in recent.values()).most_common(1)[0]
    odd = [r for r, lines in recent.items() if lines[-1] != usual]
    if len(odd) != 1 or count != case.world - 1 or recent[odd[0]][-2:-1] != [usual]:
        return []
    said = recent[odd[0]][-1]
    return odd if sum(lines.count(said) for lines in recent.values()) == 1 else []


def stopped_alone(case):
    """Ranks that said that they stop, where every other rank writes such lines as they do, and did not say so."""
    stopped = sorted({e.rank for e in case.of("stopping") if e.rank is not None and e.rank in case.lines})
    if not stopped or 2 * len(stopped) > case.world:
        return []
    said = {w for r in stopped for w in case.lines[r].recent}
    others = [case.lines.get(r) for r in case.ranks.difference(stopped)]
    return stopped if all(lane and said.intersection(lane.recent) for lane in others) else []


def alone_elsewhere(case, waits):
    """The one rank that is not among those that lost it, two or more, all in backward or at one barrier, where tensors
    are of one shape on all ranks: it was at another place.
    """
    sites = {e.rank: site(e) for e in waits if e.rank is not None and site(e) and called(e) in ("backward", "barrier")}
    rest = case.ranks.difference(sites)
    return sorted(rest) if len(rest) == 1 and len(sites) > 1 and len(set(sites.values())) == 1 else []


def odd_ones(waits):
    """Of events of ranks that waited, those whose place differs from most: (ranks, their site, others' site)."""
    sites = {}
    for e in waits:
        if e.rank is not None and site(e):
            sites.setdefault(e.rank, site(e))
    groups = {}
    for rank, place in sites.items():
        groups.setdefault(place, []).append(rank)
    if len(groups) < 2:
        return [], None, None
    ordered = sorted(groups.items(), key=lambda item: len(item[1]))
    few, many = ordered[0], ordered[-1]
    if len(groups) == 2 and len(few[1]) == len(many[1]):
        return None, few, many
    rest = sorted(r for place, ranks in ordered[:-1] for r in ranks)
    if len(rest) >= len(many[1]):
        return None, few, many
    return rest, few[0], many[0]


def failed(case):
    """Why a job failed: the first of these that has an answer."""
    for ask in (
        mismatch,
        aborted_at_exit,
        workers_died,
        killed,
        raised,
        outside_text,
        left_with_code,
        left_early,
        usage,
        waited,
        outside,
        gone,
        cut_short,
        said_at_end,
    ):
        verdict = ask(case)
        if verdict is not None:
            return verdict
    return Verdict(
        "failed",
        None,
        text="It failed, but the log does not say which rank failed first, nor why.",
        confidence="low",
        evidence=(case.of("exit") or case.of("launcher", "shell", "stop"))[:3],
        fix=f"Collect: {ASK}.",
    )


def said_at_end(case):
    """What a program printed of an error that it met, as its last lines and without a traceback."""
    for source, number, lines in case.job.tails:
        last = next((line for line in reversed(lines) if line.strip()), "")
        if ECHOES.search(last) and re.search(r"(?i)\b(?:error|fail(?:ed|ure)?|exception|abort\w*|fatal)\b", last):
            e = Event("exception", None, source.name, number, last, 0)
            rule = case.rule(e)
            text = f"It ended with what a rank printed of its error: {short(fold(last), 160)}. Which rank did not "
            text += "come, or had gone, and why, the log does not say."
            fix = f"Collect: {ASK_HANG}; {ASK}."
            return Verdict("failed", rule.id if rule else None, [], [], text, "low", [e], fix)
    return None


def victims_of(case, guilty):
    """Ranks that suffered: all others of the world that are known to have been there; none while nobody is guilty."""
    if not guilty:
        return []
    there = set(case.lines) | set(case.exits) | {e.rank for e in case.echoes + case.lates if e.rank is not None}
    there |= case.ranks if case.world <= 65536 else set()
    return sorted(there - set(guilty))


def mismatch(case):
    """gloo met a message of another size: the ranks were in different collectives or had different shapes."""
    found = [e for e in case.of("native") if "EnforceNotMet" in e.type or "op.preamble" in e.end]
    found += [
        e
        for e in case.own + case.echoes
        if re.search(r"op\.preamble\.length|Detected mismatch between collectives", e.end)
    ]
    if not found:
        return None
    aborted = {r for r, e in case.exits.items() if e.code in (-6, 134)} | {e.rank for e in found if e.rank is not None}
    waits = case.echoes + case.lates
    earlier = [e for e in case.own if not e.handled and e.order < found[0].order and e.uncaught]
    if earlier:
        return None
    odd, few, many = odd_ones(waits)
    text = "In one collective the ranks sent tensors of different shape or dtype, or were in different collectives"
    confidence, guilty = "medium", []
    shapes, lines = shapes_said(case)
    named = re.search(r"Detected mismatch between collectives on ranks\. Rank (\d+)", " ".join(e.end for e in found))
    if odd:
        guilty = odd
        text += f": {ranks_text(odd)} at {few[0]}:{few[1]} {few[2]}, the others at {many[0]}:{many[1]} {many[2]}"
    elif shapes:
        guilty = shapes
        text += f"; by what they last said it is {ranks_text(guilty)}: {short(fold(lines[0][2]), 100)}"
        waits = [*lines, *waits]
    elif stopped := stopped_alone(case):
        guilty = stopped
        stopping = [e for e in case.of("stopping") if e.rank in stopped]
        text += f"; {ranks_text(guilty)} had stopped by itself: {short(fold(stopping[-1].text), 100)}"
        waits = [stopping[-1], *waits]
    elif len(lenient := forgave(case)) == 1:
        guilty = sorted(lenient)
        text += f"; {ranks_text(guilty)} went on after an error of its own: {short(*lenient.values(), 100)}"
    elif guilty := alone_elsewhere(case, case.echoes):
        at = next(e for e in case.echoes if site(e))
        text += f": {ranks_text(guilty)} was not at {place_text(at.frames)}, where the others were"
    elif guilty := few_bytes(found, aborted, case):
        at = next(e for e in case.echoes if called(e) == "backward")
        text += f": {ranks_text(guilty)} was in one of a few bytes, the others in backward at {place_text(at.frames)}"
    elif guilty := in_another_engine(case):
        text += f"; {ranks_text(guilty)} had begun to run another engine, the others went on without it"
    elif aborted and len(aborted) * 2 > case.world > 2:
        guilty = sorted(case.ranks - aborted)
        text += f"; {ranks_text(aborted)} met what {ranks_text(guilty)} sent"
        confidence = "low"
    elif aborted:
        confidence = "low"
        text += (
            f"; gloo ended {ranks_text(aborted)}, which met more bytes than its own tensor holds, but whose tensor is "
            f"the odd one is not in this log"
        )
    else:
        confidence = "medium"
    apart = guilty and confidence == "medium" and (odd or not shapes)
    if named and not odd:
        text = fold(found[0].end)[:300]
    return Verdict(
        "failed",
        IDS["size"],
        guilty,
        victims_of(case, guilty),
        text + ".",
        confidence,
        [*found[:2], *waits[:2]],
        SAME_CALLS if apart else "",
    )


SAME_CALLS = (
    "the same collectives on all ranks in the same order: the same number of batches (a distributed sampler, or "
    "`epoch_length=` in `run`), no call that one rank makes alone, and no error that one rank forgives itself."
)


def few_bytes(found, aborted, case):
    """The one rank that gloo ended in a collective of at most 64 bytes, such as that of a metric, where others, two or
    all, lost it in backward: no model has so few gradients."""
    sizes = [int(m[1]) for e in found if (m := re.search(r"op\.nbytes\. \d+ vs (\d+)", e.end))]
    lost = {e.rank for e in case.echoes if e.rank is not None and called(e) == "backward"}
    elsewhere = [e for e in case.echoes if site(e) and called(e) != "backward"]
    alone = len(aborted) == 1 and not aborted & lost and not elsewhere
    return sorted(aborted) if alone and sizes and max(sizes) <= 64 and len(lost) >= min(2, case.world - 1) > 0 else []


def in_another_engine(case):
    """The one rank that began to run an engine within an epoch which the others, by their lines, ended without."""
    begun, ended, last = {}, {}, {}
    for rank, lane in case.lines.items():
        said = [w for w in lane.recent if re.search(r"Engine run starting|\bEpoch\[#\] Complete", w)]
        begun[rank] = sum("starting" in w for w in said)
        ended[rank] = len(said) - begun[rank]
        last[rank] = said[-1] if said else ""
    inside = [rank for rank, words in last.items() if "starting" in words]
    if len(inside) != 1 or len(last) < max(2, case.world):
        return []
    others = set(last) - set(inside)
    return inside if all(
        ended[r] > ended[inside[0]] and begun[r] < begun[inside[0]] for r in others) else []


FORGAVE = re.compile(
    r"(?i)\b(?:skip(?:s|ped|ping)?|ignor(?:ed|ing)|caught|dropp(?:ed|ing)|discard(?:ed|ing)?|swallow(?:ed|ing)|"
    r"recover(?:ed|ing)|giving up on|moving on|carry(?:ing)? on|continu(?:e|ing) (?:with|without|after|anyway))\b"
)


def forgave(case):
    """{rank: line without its numbers}: ranks that wrote shortly before the end that they passed over something, in
    words that no other rank wrote, though others write what it writes."""
    words = {rank: [w for w in lane.recent if FORGAVE.search(w) and not ECHOES.search(w)]
             for rank, lane in case.lines.items()}
    others = Counter(w for said in words.values() for w in set(said))
    talk = Counter(w for lane in case.lines.values() for w in set(lane.recent))
    return {rank: own[-1] for rank, said in words.items() if (own := [w for w in said if others[w] == 1])
            and any(talk[w] > 1 for w in case.lines[rank].recent)}


SHAPE = re.compile(  # (4,), (3, 4), [3, 4], size([4]), and not a number in brackets, as of an epoch
    r"\(\s*\d+\s*,[\s\d,]*\)|\[\s*\d+(?:\s*,\s*\d+)+\s*\]|(?i:shape|size)\W{0,3}[(\[]\s*\d+\s*[)\]]"
)


def shapes_said(case):
    """(ranks, lines): ranks whose last line gives another shape than most ranks' do, all lines being alike but for
    their numbers; the last line of one of them, and of another rank. ([], []) where it cannot be told."""
    said = {}
    for rank in case.ranks:
        line = last_line(case, [rank])
        named = line and SAID_RANK.search(line[2])
        words = line[2][named.start() if named else 0 :].strip() if line else ""
        found = SHAPE.findall(words)
        if not found:
            return [], []
        said[rank] = re.sub(r"\d+", "#", words), tuple(re.sub(r"\s", "", x) for x in found)
    usual = Counter(shape for _, shape in said.values()).most_common(1)
    if not usual or len({words for words, _ in said.values()}) > 1 or 2 * usual[0][1] <= len(said):
        return [], []
    odd = sorted(r for r, (_, shape) in said.items() if shape != usual[0][0])
    return odd, [last_line(case, [r]) for r in (*odd[:1], min(case.ranks - set(odd)))] if odd else []


def aborted_at_exit(case):
    """A thread of gloo was ended by the interpreter, which the C++ library answers with an abort. No other rank
    complains of a lost peer, as they would in the middle of the work."""
    found = [e for e in case.of("native") if e.type == "without an active exception"]
    if not found or case.lates or case.echoes or any(e.uncaught and not e.handled for e in case.own):
        return None
    guilty = sorted({r for r, e in case.exits.items() if e.code in (-6, 134)}) or sorted(
        {e.rank for e in found if e.rank is not None}
    )
    return Verdict(
        "failed",
        IDS["exit"],
        guilty,
        victims_of(case, guilty),
        f"{ranks_text(guilty).capitalize() if guilty else 'A rank'} aborted in C++ without a message, as a rank does "
        f"whose process group outlives its training.",
        "medium",
        [*found[:2], *(case.exits[r] for r in guilty[:1] if r in case.exits)],
    )


def workers_died(case):
    """A process of a DataLoader was killed, which its rank reports as an error of its own."""
    for e in sorted(case.own, key=lambda e: e.order):
        if e.handled:
            continue
        loader = any("dataloader.py" in f[0] for f in e.frames)
        if (
            WORKER.search(e.end)
            or loader
            and e.type in ("ConnectionResetError", "EOFError", "BrokenPipeError", "ConnectionRefusedError")
        ):
            others = [
                o
                for o in case.own
                if o.order < e.order and o is not e and not o.handled and not WORKER.search(o.end) and o.uncaught
            ]
            if others:
                continue
            guilty = [x.rank for x in case.own if x.rank is not None and (WORKER.search(x.end) or x is e)]
            if not guilty and e.rank is None:
                guilty = by_exit(case)
            text = (
                f"A worker process of the DataLoader of {ranks_text(guilty) if guilty else 'one rank'} "
                f"died: {first_line(e)}"
            )
            return Verdict(
                "failed",
                IDS["worker"],
                guilty,
                victims_of(case, guilty),
                text,
                "high" if guilty else "medium",
                [e, *case.of("oom")[:1]],
            )
    return None


def killed(case):
    """A rank ended by a signal that nobody of the launcher sent."""
    forced = {e.process for e in case.of("forced")}
    signals = {r: e for r, e in case.exits.items() if e.code is not None and (e.code < 0 or e.code > 128)}
    deaths = {r: e for r, e in signals.items() if number(e.code) in (*CRASHES, 9) and e.process not in forced}
    stops = case.of("stop")
    sent = {e.process for e in case.of("ended")}
    terms = {
        r: e for r, e in signals.items() if e.code == -15 and e.type in ("root", "spawn") and e.process not in sent
    }
    if terms and not deaths and not stops and not case.of("cancel") and not [e for e in case.own if not e.handled]:
        guilty = sorted(terms)
        text = (
            f"{ranks_text(guilty).capitalize()} ended by SIGTERM, which the launcher had not sent to it: "
            f"somebody's kill, or its own."
        )
        return Verdict(
            "failed", IDS["kill"], guilty, victims_of(case, guilty), text, "high", [terms[guilty[0]], *case.echoes[:2]]
        )
    if not deaths and case.of("native", "oom", "shell"):
        return killed_without_code(case)
    if not deaths:
        return None
    timeline = [e.order for e in case.own if not e.handled and e.uncaught]
    if all(number(e.code) == 9 for e in deaths.values()):
        if case.own and any(e.uncaught or case.is_last(e) for e in case.own if not e.handled) and not case.of("oom"):
            roots = [e for e in deaths.values() if e.type == "root"]
            if not roots:
                return None
        if stops and len(deaths) >= max(1, case.world - 1):
            return None
        if len(deaths) > 1 and len(deaths) == case.world and not case.of("oom"):
            return None
        if case.lates and not case.echoes and any(e.type == "srun" for e in deaths.values()):
            return None
    if timeline and any(number(e.code) == 6 for e in deaths.values()) and not case.of("native"):
        return None  # NCCL and others abort after an exception of another rank
    nccl = case.of("watchdog")
    if nccl and all(number(e.code) == 6 for e in deaths.values()):
        return None
    roots = {r: e for r, e in deaths.items() if e.type == "root"}
    worst = {r: e for r, e in deaths.items() if number(e.code) in CRASHES} or deaths
    if (
        any(e.type in ("table", "root") for e in deaths.values())
        and roots
        and len(deaths) > 1
        and len(deaths) < case.world
    ):
        worst = deaths
    guilty = sorted(worst)
    e = worst[guilty[0]]
    name = SIGNALS.get(number(e.code), f"signal {number(e.code)}")
    crash = number(e.code) in CRASHES
    seen = [e]
    oom = case.of("oom")
    why = ""
    if crash:
        natives = [n for n in case.of("native", "dump") if n.kind == "native" or n.frames]
        for n in natives[:1]:
            why = f" ({fold(n.end)[:160]})" if n.kind == "native" else ""
            seen.append(n)
        stack = next((n for n in case.of("dump") if n.frames), None)
        if stack:
            f = next((f for f in stack.frames if not LIBRARY.search(f[0])), stack.frames[0])
            why += f", in {os.path.basename(f[0])}:{f[1]} {f[2]}"
    elif oom or any(getattr(x, "oom", False) for x in worst.values()):
        why = "; the kernel's memory killer was at work"
        seen += oom[:1]
    else:
        why = ", from outside: mostly the kernel's memory killer (dmesg), or somebody's kill"
    text = f"{ranks_text(guilty).capitalize()} ended by {name}{why}."
    others = [x for x in case.echoes + case.lates if x.rank not in worst]
    return Verdict(
        "failed",
        IDS["crash" if crash else "kill"],
        guilty,
        victims_of(case, guilty),
        text,
        "high",
        [*seen, *others[:2]],
    )


def number(code):
    return -code if code < 0 else code - 128 if code > 128 else 0


def by_exit(case, but=()):
    """The rank that the launcher's table leaves for an error without a rank: a single one, or []."""
    spoken = {e.rank for e in case.echoes + case.lates + case.own if e.rank is not None}
    left = [
        r for r, e in case.exits.items() if e.code and e.code not in (-15, 143, -9) and r not in spoken and r not in but
    ]
    return left if len(left) == 1 else []


def killed_without_code(case):
    """A crash or a kill of which only a shell's or the kernel's line is left."""
    natives, shells, oom = case.of("native"), case.of("shell"), case.of("oom")
    natives = [e for e in natives if not case.of("watchdog") and not re.search("NCCL|watchdog", e.end)]
    shells = [e for e in shells if not outlived(case, e)]
    if case.own and not all(e.handled for e in case.own) or case.lates and not natives:
        return None
    if natives:
        guilty = sorted({e.rank for e in natives if e.rank is not None})
        if len(guilty) > 1:
            guilty = guilty[:1]
        dumps = [d for d in case.of("dump") if d.frames]
        spot = next((f for f in dumps[0].frames if not LIBRARY.search(f[0])), None) if dumps else None
        text = (
            f"{ranks_text(guilty).capitalize() if guilty else 'A rank'} crashed in native "
            f"code: {fold(natives[0].end)[:200]}"
        )
        text += f", in {os.path.basename(spot[0])}:{spot[1]} {spot[2]}" if spot else ""
        return Verdict(
            "failed",
            IDS["crash"],
            guilty,
            victims_of(case, guilty),
            text,
            "high" if guilty else "medium",
            [*natives[:2], *dumps[:1], *case.echoes[:1]],
        )
    if oom or shells:
        first = (oom or shells)[0]
        crash = first.type in ("Segmentation fault", "Aborted", "Bus error")
        guilty = [first.rank] if first.rank is not None else missing(case)
        guilty = guilty if len(guilty) == 1 else []
        if shells and not oom and shells[0].type in ("Terminated",):
            return None
        text = f"{ranks_text(guilty).capitalize() if guilty else 'A process'} was killed: {fold(first.text)[:160]}"
        return Verdict(
            "failed",
            IDS["crash" if crash else "kill"],
            guilty,
            victims_of(case, guilty),
            text,
            "medium",
            [first, *case.echoes[:2]],
        )
    return None


def outlived(case, e):
    """Whether what a shell saw killed was a helper: the rank wrote on after it, or the work came to its end."""
    lane = case.lines.get(e.rank)
    return went_on(case.job, e) if lane is None else len([order for order in lane.heard if order > e.order]) > 3


def missing(case):
    """Ranks that reported nothing of a peer while others did, and were not seen to be alive at the end."""
    reported = {e.rank for e in case.echoes + case.lates if e.rank is not None}
    return sorted(case.ranks - reported) if reported else []


def printed_by(case, e):
    """Ranks that printed the text of an exception of which the parent of spawn quotes one rank's traceback only."""
    if not getattr(e, "spawned", False):
        return []
    message = re.sub(r"\d+", "#", first_line(e).partition(": ")[2]).strip()
    return [r for r, lane in case.lines.items() if len(message) > 20 and any(message in said for said in lane.recent)]


def raised(case):
    """The first exception that is a rank's own."""
    own = [
        e for e in case.own if not e.handled and (e.uncaught or case.is_last(e) or case.exits or case.of("launcher"))
    ]
    own = [e for e in own if e.type not in ("SystemExit",)]
    if not own:
        return None
    many = len({e.source for e in own}) > 1
    stamped = all(e.time is not None for e in own)
    own.sort(key=lambda e: (e.time if many and stamped else 0, e.order))
    uncaught = [e for e in own if e.uncaught]
    first = (uncaught or own)[0]
    if first.rank is None and uncaught == [] and len(own) > 1:
        better = [e for e in own if case.rule(e)]
        first = better[0] if better and not case.rule(first) else first
    rule = case.rule(first)
    alike = [e for e in own if skeleton(e) == skeleton(first)]
    guilty = sorted({e.rank for e in alike if e.rank is not None})
    guilty = sorted({*guilty, *printed_by(case, first)}) if guilty else guilty
    count = sum(e.count for e in alike)
    confidence, note, unsure = "high", "", False
    built = {
        int(r): int(n) for e in own for r, n in re.findall(r"rank (\d+) has (?:inconsistent )?(\d+) param", e.end, re.I)
    }
    if built and "same model" in first.end:
        usual = Counter(built.values()).most_common(2)
        if len(usual) > 1 and usual[0][1] > usual[1][1]:  # those whose model differs from most
            guilty = sorted(r for r, n in built.items() if n != usual[0][0])
            note = f"; {ranks_text(guilty)} built another model than the others"
    if not guilty:
        spoken = {e.rank for e in case.echoes + case.lates if e.rank is not None}
        bad = sorted(r for r, e in case.exits.items() if e.code and e.code not in (-15, 143, -9) and r not in spoken)
        root = [r for r, e in case.exits.items() if e.type == "root" and r not in spoken]
        if "server socket has failed to listen" in first.end and case.world:
            guilty = [0]  # only rank 0 listens
        elif count >= case.world > 0:
            guilty = sorted(case.ranks)
        elif len(bad) == 1 or len(bad) == count and bad:
            guilty = bad
        elif count == 1 and root:
            guilty = root
            confidence = "medium"
        elif count > 1 and bad:
            guilty = bad
            confidence = "medium"
        elif case.world == 1:
            guilty = [0]
        elif len(case.job.sources) == 1 and not case.exits and not case.echoes and case.job.world in (None, 1):
            guilty = []  # a launcher or a program of one process
        elif len(missing(case)) == 1:
            guilty = missing(case)
            confidence = "medium"
        else:
            unsure = True
    else:  # ranks that ended with the same code and said nothing of their own belong to it only if all did
        if len(guilty) == 1 and count == 1 and first.rank is not None and not first.uncaught:
            confidence = "high" if case.exits.get(first.rank) else "medium"
    if "connectFullMesh failed" in first_line(first) and len(guilty) < case.world:
        guilty, confidence = [], "medium"  # the one that it did not reach may be at fault as well
    root = origin(first)
    place = place_text(root.frames)
    who = ranks_text(guilty).capitalize() if guilty else "A rank"
    if not guilty and case.world <= 1:
        who = "The program"
    if note:
        who = ranks_text(e.rank for e in alike if e.rank is not None).capitalize()
    if guilty and len(guilty) == case.world > 1:
        who = f"All {case.world} ranks"
    text = f"{who} raised {short(first_line(root), 260)}" + (f" at {place}" if place else "") + note + "."
    if root is not first:
        text += f" In handling that: {short(first_line(first), 120)}."
    for c in root.chain[:1]:
        text += f" Before it: {short(first_line(c), 120)}."
    launching = not guilty and any("spawn" in f[2].lower() or "popen" in f[0] for f in first.frames) and rule
    if unsure and not launching:
        confidence = "medium"
    cause = rule.id if rule else IDS["raise"]
    if rule is None and (found := disk_or_memory(first, case)):
        cause = found
    fix = (
        ""
        if rule
        else f"Correct what {root.type} at {place or 'its traceback'} says; the other ranks' errors go away with it."
    )
    seen = [root, *([first] if root is not first else []), *root.chain[:1], *[e for e in alike if e is not first][:1]]
    echoes = [e for e in case.echoes + case.lates if e.rank not in guilty]
    return Verdict(
        "failed",
        cause,
        guilty,
        victims_of(case, guilty),
        text,
        confidence,
        [*seen, *echoes[:2]],
        fix if cause == IDS["raise"] else "",
    )


def disk_or_memory(e, case):
    if "No space left on device" in e.end or "Disk quota exceeded" in e.end:
        return "no-space-left-on-device" if "no-space-left-on-device" in case.rules else None
    return None


def skeleton(e):
    return e.type, re.sub(r"0x[0-9a-f]+|\d+", "#", first_line(e))[:120], site(e)


def outside_text(case):
    """The scheduler said that it ended the job, and nothing failed before."""
    stops = [e for e in case.of("stop") if "DUE TO" in e.text.upper()]
    if not stops or (case.lates or case.echoes) and min(e.order for e in case.lates + case.echoes) < stops[0].order - 1:
        return None
    return outside(case)


def stop_text(stops, case):
    """How a job was stopped from outside, in words."""
    said = " ".join(e.text for e in stops)
    numbered = [
        int(n) for n in re.findall(r"got signal: (\d+)|[Rr]eceived (?:Signals\.)?(\d+) death", said) for n in n if n
    ]
    names = {SIGNALS.get(n, "") for n in numbered} | set(re.findall(r"SIG[A-Z0-9]{3,5}", said))
    if re.search("DUE TO TIME ?LIMIT", said, re.I):
        return "stopped from outside: it reached its time limit"
    if re.search("preempt", said, re.I):
        return "stopped from outside: it was preempted"
    if case.interrupts or "SIGINT" in names or "^C" in said:
        return "interrupted from outside, by Ctrl-C or SIGINT"
    if "SIGHUP" in names:
        return "stopped from outside by SIGHUP, as when its terminal closes"
    if case.of("cancel") and not re.search("DUE TO", said):
        return "cancelled from outside, as scancel does"
    if "SIGTERM" in names:
        return "terminated from outside by SIGTERM, as a scheduler or kill does"
    return "stopped from outside"


def outside(case):
    stops = case.of("stop") + case.interrupts
    if not stops and not any(e.code not in (0, -15) for e in case.exits.values()) and not case.own:
        stops = case.of("cancel")
    if not stops:
        return None
    first = stops[0]
    reason = first.type if first.kind == "stop" and first.type else first_line(first)
    dumps = stacks(case)
    extra = ""
    silent = stopped_first(case, 2)
    if silent:  # its lines may as well still have been on their way
        extra = f" The last lines of {ranks_text(silent)} are older than the others': it may have hung before."
    if dumps is not None and dumps.guilty:
        extra = " " + dumps.text
    text = f"The job was {stop_text(stops, case)} ({short(fold(reason), 80)}), not by an error of a rank.{extra}"
    guilty = dumps.guilty if dumps is not None else ()
    last = [(s.name, n, lines[-1]) for s, n, lines in case.job.tails if lines][:1]
    return Verdict(
        "failed",
        IDS["stop"],
        guilty,
        sorted(case.ranks - set(guilty)) if guilty else (),
        text,
        "high" if not guilty else "medium",
        [first, *last],
    )


def left_with_code(case):
    """A rank that ended itself with a code, without a traceback."""
    spoken = {e.rank for e in case.echoes + case.lates if e.rank is not None}
    codes = {r: e for r, e in case.exits.items() if e.code and e.code > 0 and e.code < 128 and r not in spoken}
    odd = {r: e for r, e in codes.items() if e.code != 1}
    if len({e.code for e in case.exits.values()}) == 1 and len(case.exits) == case.world > 1 and not spoken:
        odd = odd or codes
    root = {r: e for r, e in codes.items() if e.type in ("root", "spawn")}
    chosen = odd or (root if spoken and len(codes) == 1 else {})
    if not chosen and len(codes) == 1 and (case.echoes or case.lates) and all(e.type == "srun" for e in codes.values()):
        chosen = codes
    if not chosen or case.of("usage"):
        return None
    guilty = sorted(chosen)
    e = chosen[guilty[0]]
    if all(n <= len(lines) and all(LAUNCHERS.match(line) for line in lines) for _, n, lines in case.job.tails):
        text = f"{ranks_text(guilty).capitalize()} ended with exit code {e.code}; what they said is not in this log."
        return Verdict("failed", None, (), (), text, "low", [e], f"Collect: {ASK}.")
    lane = case.lines.get(guilty[0])
    said = f" Its last line: {short(fold(lane.last[3]), 120)}" if lane and lane.last else ""
    text = (
        f"{ranks_text(guilty).capitalize()} ended with exit code {e.code} and without a traceback, as "
        f"sys.exit({e.code}) or os._exit does.{said}"
    )
    seen = [e, (lane.last[1:] if lane and lane.last else None), *case.echoes[:2]]
    return Verdict("failed", IDS["leave"], guilty, victims_of(case, guilty), text, "high", seen)


def was_alone(case, reported, absent):
    """Few ranks lost their peers in an evaluation or the like, which the others, at their end already, did not run."""
    first = next((e for e in case.echoes if case.scene(e)), case.echoes[0])
    scene, spot, guilty = case.scene(first), site(first), sorted(reported)
    ended = [r for r in absent if r not in case.exits]
    closed = [r for r in absent if r in case.exits and case.exits[r].code == -15]  # on its way out, and helped
    if not guilty or 2 * len(guilty) >= case.world or len(ended) + len(closed) < len(absent) or closed and not scene:
        return None
    text = f"{ranks_text(guilty).capitalize()} alone {'was' if len(guilty) == 1 else 'were'} in "
    text += f"{spot[2] or 'a collective'} at {place_text(first.frames)}" if spot else "a collective"
    text += f"; {ranks_text(absent)} had left without an error."
    return Verdict(
        "failed",
        scene.id if scene else IDS["apart"],
        guilty,
        victims_of(case, guilty),
        text,
        "medium",
        [first, last_line(case, sorted(absent))],
    )


def left_early(case):
    """Ranks lost a peer, and of one rank there is no end in the launcher's books: it left with exit code 0."""
    if not case.echoes:
        return None
    reported = {e.rank for e in case.echoes + case.lates if e.rank is not None}
    absent = case.ranks - reported
    table = any(e.type in ("root", "table", "srun") for e in case.exits.values())
    if table and all(e.type == "srun" and e.code == -15 for e in case.exits.values()):
        table = False
    if table:
        gone_quietly = sorted(r for r in absent if r not in case.exits)
        if alone := was_alone(case, reported, absent):
            return alone
        complete = any(e.type in ("root", "table") for e in case.exits.values()) or len(reported) >= 1
        if gone_quietly and complete and len(gone_quietly) < max(2, case.world / 2 + 0.5):
            stopping = [e for e in case.of("stopping") if e.rank in gone_quietly or e.rank is None]
            lane = case.lines.get(gone_quietly[0])
            text = (
                f"{ranks_text(gone_quietly).capitalize()} left early with exit code 0, which the launcher "
                f"does not list; the others lost a peer"
            )
            place = case.echoes[0] and place_text(case.echoes[0].frames)
            text += f" at {place}" if place else ""
            if stopping:
                text += f". It said: {short(fold(stopping[-1].text), 120)}"
            elif lane and lane.last:
                text += f". Its last line: {short(fold(lane.last[3]), 120)}"
            return Verdict(
                "failed",
                IDS["early"] if stopping else IDS["leave"],
                gone_quietly,
                victims_of(case, gone_quietly),
                text + ".",
                "high" if len(gone_quietly) == 1 and case.job.world else "medium",
                [*stopping[-1:], lane.last[1:] if lane and lane.last else None, *case.echoes[:2]],
            )
        return None
    if len(absent) == 1 and (len(reported) > 1 or case.job.world):
        guilty = sorted(absent)
        lane = case.lines.get(guilty[0])
        alone = case.job.shared_names and not (lane and lane.last)
        text = f"{ranks_text(guilty).capitalize()} was gone before the others, who lost a peer; it left no error"
        text += f". Its last line: {short(fold(lane.last[3]), 120)}" if lane and lane.last else ""
        stopping = [e for e in case.of("stopping") if e.rank in guilty]
        return Verdict(
            "failed",
            IDS["early"] if stopping else IDS["leave"],
            guilty,
            victims_of(case, guilty),
            text + ".",
            "low" if alone else "medium",
            [*stopping[-1:], lane.last[1:] if lane and lane.last else None, *case.echoes[:2]],
        )
    return None


def usage(case):
    found = case.of("usage")
    if not found or case.echoes or case.lates:
        return None
    first = found[0]
    rules = [r for r in case.rules.values() if r.kind == "line" and r.finds(first.text)]
    guilty = (
        sorted(case.exits) if len(case.exits) == case.world else sorted({e.rank for e in found if e.rank is not None})
    )
    text = (
        f"{'All ranks' if guilty and len(guilty) == case.world > 1 else 'The program'} refused the command "
        f"line: {short(fold(first.text), 200)}."
    )
    return Verdict(
        "failed",
        rules[0].id if rules else IDS["raise"],
        guilty,
        (),
        text,
        "high" if rules else "medium",
        [first, *case.of("exit")[:1]],
        "" if rules else "Correct the option that the line names.",
    )


def is_main(dump):
    """Whether a stack is that of a main thread: it ends in a module."""
    return dump.frames[-1][2] == "<module>"


def stacks(case):
    """What stack dumps say: who waits in a collective, who is elsewhere."""
    dumps = [d for d in case.of("dump") if d.frames]
    best = {}
    for d in dumps:
        key = d.rank if d.rank is not None else (d.source, d.process or d.line)
        frames = d.frames
        mine = any(not LIBRARY.search(f[0]) for f in frames)
        if not mine or key in best and is_main(best[key]) and not is_main(d):
            continue  # a thread that only watches the others
        if key not in best or "MainThread" in d.type or d.type == "current" or best[key].type == "thread" or is_main(d):
            best[key] = d
    if not best:
        return None
    waiting, busy = {}, {}
    for key, d in best.items():
        inner = d.frames[:14]
        waits = any(TORCH_WAITS.search(f[0]) or COLLECTIVE.match(f[2]) and "torch" in f[0] for f in inner) or any(
            COLLECTIVE.match(f[2]) for f in inner[:3]
        )
        (waiting if waits else busy)[key] = d

    def spot(d):
        f = next((f for f in d.frames if not LIBRARY.search(f[0])), d.frames[0])
        return f"{os.path.basename(f[0])}:{f[1]} in {f[2]}"

    named = sorted(k for k in busy if isinstance(k, int))
    died = {e.rank: e for e in case.of("exception") if e.thread and e.rank is not None}
    if len(died) == 1 and (waiting or case.lates) and set(named) <= set(died):
        (rank, e), = died.items()
        place = place_text(e.frames)
        text = f"A thread of rank {rank} died of {short(first_line(e), 200)}" + (f" at {place}" if place else "")
        text += "; the rank waits for it, and the others for the rank."
        return Verdict("failed", IDS["raise"], [rank], victims_of(case, [rank]), text, "medium", [e, *case.lates[:1]])
    if busy and (waiting or case.lates):
        d = next(iter(busy.values()))
        guilty = named
        if not guilty and len(busy) == 1:
            ranks = {k for k in waiting if isinstance(k, int)} | {e.rank for e in case.lates if e.rank is not None}
            rest = sorted(case.ranks - ranks)
            guilty = rest if len(rest) == 1 else []
        who = ranks_text(guilty).capitalize() if guilty else "One rank"
        if len(busy) > len(waiting) + len(case.lates):
            return None
        text = (
            f"{who} did not come: it stood at {spot(d)}, while the others waited"
            + (f" in {waits_in(next(iter(waiting.values())))}" if waiting else "")
            + "."
        )
        return Verdict(
            "failed" if case.lates or case.exits else "unknown" if not waiting else "failed",
            IDS["late"],
            guilty,
            victims_of(case, guilty),
            text,
            "high" if guilty else "medium",
            [(d.source, d.line, d.text + " " + spot(d)), *(list(waiting.values())[:2]), *case.lates[:1]],
        )
    if len(waiting) > 1:
        places = {}
        for key, d in waiting.items():
            places.setdefault((spot(d), waits_in(d)), []).append(key)
        if len(places) > 1:
            ordered = sorted(places.items(), key=lambda item: len(item[1]))
            few = [k for k in ordered[0][1] if isinstance(k, int)]
            scene = None
            for key in ordered[0][1]:
                waiting[key].frames.reverse()
                scene = case.scene(waiting[key])
                waiting[key].frames.reverse()
            clear = len(ordered[0][1]) < len(ordered[-1][1])
            if len(ordered[0][1]) == 1 and clear and not few:  # which it is, is known by what it said alone
                few = said_something_else(case) if not any(isinstance(k, int) for k in waiting) else []
            text = (
                f"The ranks wait in different places: {ranks_text(few) if few else 'one'} at {ordered[0][0][0]} "
                f"({ordered[0][0][1]}), "
                f"the others at {ordered[-1][0][0]} ({ordered[-1][0][1]})."
            )
            return Verdict(
                "failed",
                scene.id if scene else IDS["apart"],
                few if clear else (),
                victims_of(case, few if clear else ()),
                text,
                "medium" if clear else "low",
                [waiting[k] for k in ordered[0][1][:1] + ordered[-1][1][:1]],
            )
    return None


def waits_in(d):
    names = [f[2] for f in d.frames if COLLECTIVE.match(f[2])]
    return next((n for n in names if n != "wait"), names[0] if names else "a collective")


def waited(case):
    """Ranks that timed out: who was not there?"""
    if not case.lates and not case.of("watchdog", "missing"):
        return None
    lates = sorted(case.lates, key=lambda e: e.order)
    found = [m for e in lates if (m := BARRIER.search(e.end))]
    named = sorted({r for m in found for r in numbers(m[1])})
    if named:
        e = next(e for e in lates if BARRIER.search(e.end))
        text = (
            f"{ranks_text(named).capitalize()} had not come when rank 0 gave up waiting in monitored_barrier "
            f"at {place_text(e.frames)}"
        )
        return Verdict(
            "failed",
            IDS["barrier"] if IDS["barrier"] in case.rules else IDS["late"],
            named,
            victims_of(case, named),
            text + "." + last_words(case, named),
            "high",
            [e, last_line(case, named)],
        )
    for e in case.of("missing"):
        guilty = [r for r in e.ranks if r < max(case.world, 1) or not case.world]
        if guilty and (not case.world or len(guilty) < case.world):
            cause = IDS["barrier"] if "onitoredBarrier" in e.text and IDS["barrier"] in case.rules else IDS["late"]
            said = short(fold(e.text), 160)
            text = f"{ranks_text(guilty).capitalize()} had not come when the others gave up: {said}."
            return Verdict(
                "failed",
                cause,
                guilty,
                victims_of(case, guilty),
                text + last_words(case, guilty),
                "high",
                [e, last_line(case, guilty), *lates[:2]],
            )
    if case.of("watchdog"):
        return watchdog(case)
    if not lates:  # somebody wrote who is missing, in a way that leaves nobody to have waited
        return None
    if joined := next((m for e in lates if (m := re.search(r"(\d+)/(\d+) clients joined", e.end))), None):
        return never_joined(case, lates, int(joined[1]), int(joined[2]))
    awaited = sorted({int(m[1]) for e in lates if (m := re.search(r"keys: \S*/(\d+)$", first_line(e)))})
    if awaited == [0] and len({e.rank for e in lates + case.echoes if e.rank}) < case.world - 1:
        return behind_rank_0(case, lates)
    if awaited and not [e for e in lates if e.rank in awaited] and len(awaited) < max(case.world, 2):
        e = lates[0]
        text = (
            f"{ranks_text(awaited).capitalize()} did not come to the making of the "
            f"group{' at ' + place_text(e.frames) if e.frames else ''}: {first_line(e)[:160]}."
        )
        return Verdict(
            "failed",
            IDS["clients"],
            awaited,
            victims_of(case, awaited),
            text,
            "high" if case.job.world or case.exits else "medium",
            [*lates[:2], last_line(case, awaited)],
        )
    dumps = stacks(case)
    if dumps is not None and dumps.confidence == "high":
        return dumps
    reported = {e.rank for e in lates + case.echoes + case.of("cut") if e.rank is not None}
    odd, few, many = odd_ones(lates + case.echoes)
    absent = sorted(case.ranks - reported)
    first = lates[0]
    rule = next(
        (
            r
            for e in lates
            for r in case.rules.values()
            if r.kind == "timeout" and r.finds(fold(e.end)) and r.id != IDS["late"]
        ),
        None,
    )
    base = rule.id if rule else IDS["late"]
    waits = place_text(first.frames)
    waits = f" in {called(first)} at {waits}" if waits and called(first) else f" at {waits}" if waits else ""
    if reported and absent and len(absent) <= max(1, case.world // 2) and not (odd and len(absent) > 1):
        # alive, says nothing of a timeout: it was elsewhere
        verdict = absent_rank(case, absent, base, first, waits, dumps)
        if case.of("cut"):  # the others may have said so after the end of this log
            verdict.confidence = "low"
        return verdict
    shapes, lines = shapes_said(case)
    if shapes:
        text = f"{ranks_text(shapes).capitalize()} came with another shape than the others, by what they last said"
        return Verdict(
            "failed", IDS["size"], shapes, victims_of(case, shapes), text + ".", "medium", [*lines, *lates[:2]]
        )
    if odd:
        group = [e for e in lates + case.echoes if e.rank in odd]
        scene = next((s for e in group if (s := case.scene(e))), None)
        stopping = [e for e in case.of("stopping") if e.rank in odd or e.rank is None]
        errors = [e for e in case.own if e.handled and (e.rank in odd)]
        cause = IDS["error"] if errors else IDS["early"] if stopping else scene.id if scene else IDS["apart"]
        text = (
            f"{ranks_text(odd).capitalize()} waited elsewhere than the others: at {few[0]}:{few[1]} "
            f"({few[2] or 'a collective'}), the others at {many[0]}:{many[1]} ({many[2] or 'a collective'})."
        )
        if stopping:
            text += f" It said: {short(fold(stopping[-1].text), 100)}."
        return Verdict(
            "failed",
            cause,
            odd,
            victims_of(case, odd),
            text,
            "medium",
            [*stopping[-1:], *errors[:1], *group[:1], first, *lates[1:2]],
        )
    if odd is None:  # two groups of the same size
        return halves(case, lates + case.echoes, few, many, first)
    if stopped := [r for r in stopped_alone(case) if r not in reported]:
        return absent_rank(case, stopped, base, first, waits, dumps)
    silent = stopped_first(case) or stopped_where_others_went_on(case) or said_something_else(case)
    if silent and len(silent) < case.world:
        return absent_rank(case, silent, base, first, waits, dumps, behind=True)
    seen = [*lates[:2], *[(lane.last[1:]) for lane in list(case.lines.values())[:1] if lane.last]]
    who = f"{ranks_text(reported)} gave up waiting{waits}" if reported else f"A rank gave up waiting{waits}"
    scene = case.scene(first) if len(lates) == 1 else None
    return Verdict(
        "failed",
        scene.id if scene else base,
        (),
        sorted(reported),
        f"{who[0].upper()}{who[1:]}; the log does not say which rank did not come.",
        "low" if not reported else "medium",
        seen,
        f"Collect: {ASK_HANG}." if not scene else "",
    )


def never_joined(case, lates, came, world):
    """Rank 0 waited for `world` clients and `came` came: those that were never heard of, if their number fits."""
    first = next(e for e in lates if "clients joined" in e.end)
    seen = {0} | set(case.lines) | {e.rank for e in case.echoes + case.lates if e.rank is not None}
    seen |= case.job.introduced.get(world, set())
    absent = sorted(set(range(world)) - seen) if world <= 1 << 16 else []
    if len(absent) != world - came:  # those that came have given up by themselves
        absent = sorted(set(range(world)) - {r for r, e in case.exits.items() if e.code not in (0, -9, -15)})
    if len(absent) != world - came:
        late = {e.rank for e in case.echoes + case.lates if e.rank is not None} | {0}
        absent = sorted(set(range(world)) - late) if world <= 1 << 16 else []
    guilty = absent if 0 < len(absent) == world - came else []
    text = f"Rank 0 waited for {world} clients and only {came} came to the making of the group"
    text += f" at {place_text(first.frames)}" if first.frames else ""
    if guilty:
        text += f": {ranks_text(guilty)} never joined." + last_words(case, guilty)
    else:
        text += "; the log does not say which rank never joined."
    sure = guilty and (case.job.world or case.exits)
    return Verdict(
        "failed",
        IDS["clients"],
        guilty,
        victims_of(case, guilty),
        text,
        "high" if sure else "medium",
        [first, *[e for e in lates if e is not first][:1], last_line(case, guilty)],
    )


def behind_rank_0(case, lates):
    """Some waited for rank 0 at the making of the group. It may itself have waited there, as it does until all have
    come: then those are at fault that never came."""
    first, nodes = lates[0], case.job.nodes
    per_node = nodes.get("nproc_per_node", 0)
    here = range(nodes.get("node_rank", 0) * per_node, (nodes.get("node_rank", 0) + 1) * per_node)
    spoken = {e.rank for e in case.events if e.rank is not None} | set(case.lines)
    guilty = sorted(case.ranks - set(here) - spoken) if 0 in here and nodes.get("nnodes", 1) > 1 else []
    if not guilty and not here and len(case.ranks - spoken - {0}) <= case.world // 2:
        guilty = sorted(case.ranks - spoken - {0})
    text = f"Rank 0 had not made its group when the others gave up waiting for it: {first_line(first)[:120]}. "
    text += "It waits there for every rank" + (
        f", and {ranks_text(guilty)} never came" + (" (another node)." if here else ".")
        if guilty
        else "; the log does not say whether it or another never came."
    )
    return Verdict(
        "failed",
        IDS["clients"],
        guilty,
        victims_of(case, guilty),
        text,
        "medium" if guilty else "low",
        [*lates[:2], last_line(case, guilty)],
    )


def last_line(case, ranks):
    lane = case.lines.get(ranks[0]) if ranks else None
    return lane.last[1:] if lane and lane.last else None


def last_words(case, ranks):
    lane = last_line(case, ranks)
    return f" Its last line: {short(fold(lane[2]), 120)}" if lane else ""


def absent_rank(case, absent, base, first, waits, dumps, behind=False):
    stopping = [e for e in case.of("stopping") if e.rank in absent]
    errors = [e for e in case.own if e.handled and (e.rank in absent or e.rank is None and len(case.own) == 1)]
    elsewhere = {skeleton(e) for e in case.own if e.handled and e.rank not in absent}
    ended = [e for e in case.of("engine") if e.rank in absent and e.end and not ECHOES.search(e.end)]
    errors.sort(key=lambda e: (skeleton(e) in elsewhere, -e.order))  # what others met too did not hold them up
    left = [r for r in absent if any(x.type in ("root", "table") for x in case.exits.values()) and r not in case.exits]
    scene = case.scene(first)
    cause = IDS["error"] if errors or ended else IDS["early"] if stopping else base
    one = len(absent) == 1
    if left == absent and not errors and not ended and not stopping:
        cause, how = IDS["leave"], "left with exit code 0"
    elif errors:
        how = "had met an error that did not end it" + (f" ({short(first_line(errors[0]), 100)})")
    elif ended:
        how = f"its engine had ended with an error, the process went on ({short(fold(ended[0].end), 100)})"
    elif stopping:
        how = "had stopped by itself" + f" ({short(fold(stopping[-1].text), 100)})"
    else:
        how = "frozen, slow or elsewhere in the program" if not behind else "behind the others"
    if scene and not errors and not ended and not stopping and cause == base and scene.id not in ("",):
        others = [e for e in case.lates if e.rank is not None]
        if len(others) == 1 and case.world > 2 or len(others) < case.world / 2:
            return Verdict(
                "failed",
                scene.id,
                [e.rank for e in others],
                victims_of(case, [e.rank for e in others]),
                f"{ranks_text([e.rank for e in others]).capitalize()} alone waited{waits}.",
                "medium",
                [first, last_line(case, absent)],
            )
    text = f"{ranks_text(absent).capitalize()} did not come where the others gave up waiting{waits}: {how}."
    if not stopping and not errors:
        text += last_words(case, absent)
    if dumps is not None and "stood at" in dumps.text and not dumps.guilty:
        text += " " + dumps.text
    sure = (
        one
        and case.job.world
        and len([e for e in case.lates + case.echoes if e.rank is not None]) + 1 >= case.world
        and not behind
    )
    record = errors[0].record if errors else None
    evidence_ = [
        first,
        *stopping[-1:],
        (errors[0].source, *record) if record else None,
        *(errors or ended)[:1],
        last_line(case, absent),
        *[case.exits[r] for r in absent[:1] if r in case.exits],
    ]
    return Verdict(
        "failed",
        cause,
        absent,
        victims_of(case, absent),
        text,
        "high" if sure else "medium" if one or behind else "low",
        evidence_,
    )


def halves(case, waits, few, many, first):
    """Two places, equally many ranks in each: a scene names one of them, or a rank is already past the loop."""
    groups = [few, many]
    for (place, ranks), other in zip(groups, reversed(groups)):
        group = [e for e in waits if e.rank in ranks]
        scene = next((s for e in group if (s := case.scene(e))), None)
        if scene:
            text = (
                f"{ranks_text(ranks).capitalize()} waited at {place[0]}:{place[1]} "
                f"({place[2]}), {ranks_text(other[1])} at {other[0][0]}:{other[0][1]} ({other[0][2]})."
            )
            return Verdict("failed", scene.id, ranks, victims_of(case, ranks), text, "medium", [*group[:1], first])
    stopping = [e for e in case.of("stopping") if e.rank is not None]
    if stopping and len({e.rank for e in stopping}) <= case.world // 2:
        guilty = sorted({e.rank for e in stopping})
        return Verdict(
            "failed",
            IDS["early"],
            guilty,
            victims_of(case, guilty),
            f"{ranks_text(guilty).capitalize()} stopped by itself ({short(fold(stopping[-1].text), 100)}).",
            "medium",
            [stopping[-1], *waits[:2]],
        )
    silent = stopped_first(case)
    at_barrier = [g for g in groups if g[0][2] == "barrier"]
    text = (
        f"The ranks waited in different places: {ranks_text(few[1])} at {few[0][0]}:{few[0][1]} "
        f"({few[0][2]}), {ranks_text(many[1])} at {many[0][0]}:{many[0][1]} ({many[0][2]})."
    )
    if len(at_barrier) == 1:
        ranks = at_barrier[0][1]
        return Verdict(
            "failed",
            IDS["apart"],
            ranks,
            victims_of(case, ranks),
            text + f" {ranks_text(ranks).capitalize()} had left the loop.",
            "medium" if silent == sorted(ranks) else "low",
            waits[:3],
        )
    return Verdict(
        "failed", IDS["apart"], silent, sorted(case.ranks - set(silent)) if silent else (), text, "low", waits[:3]
    )


def watchdog(case):
    """NCCL: the rank whose last work has the smallest number, or that is in another operation, or that says nothing."""
    dogs = [e for e in case.of("watchdog") if e.rank is not None]
    last, works = {}, {}
    for e in dogs:
        if getattr(e, "enqueued", None) is not None:
            last[e.rank] = max(last.get(e.rank, -1), e.enqueued)
        if getattr(e, "sequence", None) is not None:
            works.setdefault(e.rank, (e.sequence, e.operation))
    reported = {e.rank for e in dogs}
    world = max(case.world, max(reported, default=-1) + 1)
    silent = sorted(set(range(world)) - reported)
    cause = IDS["watchdog"]
    seen = [e for e in dogs if getattr(e, "sequence", None) is not None][:2]
    if works:
        common = Counter(works.values()).most_common(1)[0]
        odd = sorted(r for r, w in works.items() if w != common[0])
        behind = sorted(r for r in last if last[r] < max(last.values()) and last[r] <= common[0][0] - 1)
        work = "{1} number {0}".format
        guilty, confidence = [], "medium"
        if behind and len(behind) <= world // 2:
            guilty, proof = behind, [*seen, last_line(case, behind)]
            text = f"had not started {work(*common[0])} where the others gave up waiting."
        elif odd and len(odd) < len(works) / 2:
            guilty, proof = odd, [next(e for e in dogs if e.rank == odd[0]), *seen]
            places = [(w, [r for r in odd if works[r] == w]) for w in sorted({works[r] for r in odd})]
            each = " and ".join(work(*w) + (f" ({ranks_text(r)})" if len(places) > 1 else "") for w, r in places)
            text = f"{'was' if len(odd) == 1 else 'were'} in {each}, the others in {work(*common[0])}."
        elif silent and len(silent) <= max(1, world // 2):
            guilty, proof = silent, [*seen, last_line(case, silent)]
            text = f"did not report a timeout; the others gave up waiting in {work(*common[0])}."
            text += last_words(case, silent)
            confidence = "medium" if len(silent) == 1 else "low"
        if guilty:
            text = f"{ranks_text(guilty).capitalize()} {text}"
            victims = sorted(set(range(world)) - set(guilty))
            return Verdict("failed", cause, guilty, victims, text, confidence, proof)
    return Verdict(
        "failed",
        cause,
        (),
        sorted(reported),
        "NCCL gave up waiting for a collective; the log does not say which rank did not come.",
        "medium",
        seen or dogs[:2],
        f"Collect: the same with TORCH_NCCL_TRACE_BUFFER_SIZE=2000 and TORCH_NCCL_DUMP_ON_TIMEOUT=1; {ASK_HANG}.",
    )


def gone(case):
    """Only echoes: a peer went, and nothing says which or why."""
    if not case.echoes:
        return None
    reported = sorted({e.rank for e in case.echoes if e.rank is not None})
    absent = sorted(case.ranks - set(reported))
    guilty, confidence = [], "low"
    odd, few, many = odd_ones(case.echoes + case.lates)
    silent = stopped_first(case)
    if odd:
        guilty, confidence = odd, "medium"
        text = (
            f"{ranks_text(odd).capitalize()} was elsewhere ({few[0]}:{few[1]} {few[2]}) when the ranks lost each other."
        )
        scene = next((s for e in case.echoes if e.rank in odd and (s := case.scene(e))), None)
        return Verdict(
            "failed", scene.id if scene else IDS["apart"], odd, victims_of(case, odd), text, "medium", case.echoes[:3]
        )
    if len(lenient := forgave(case)) == 1:
        (guilty,), said = lenient, short(*lenient.values(), 120)
        text = f"Rank {guilty} went on after an error of its own, and was elsewhere when the others lost it: {said}."
        return Verdict("failed", IDS["error"], [guilty], victims_of(case, [guilty]), text, "medium", case.echoes[:2])
    leaving = [r for r in absent if r in case.lines and case.lines[r].last and says_end(case.lines[r].last[3])]
    if silent:
        guilty = silent
    elif len(leaving) == 1:
        guilty, confidence = leaving, "medium"
    elif len(absent) == 1 and case.job.world:
        guilty, confidence = absent, "medium"
    text = (
        f"{ranks_text(reported).capitalize() if reported else 'A rank'} lost a peer that had gone without an "
        f"error in this log"
    )
    text += (
        f"; probably {ranks_text(guilty)}"
        if guilty
        else f"; it is among {ranks_text(absent)}"
        if 1 < len(absent) < 9
        else ""
    )
    text += f".{last_words(case, guilty)}".rstrip(".") if guilty == leaving else ""
    early = case.of("stopping")
    cause = IDS["leave"] if IDS["leave"] in case.rules else IDS["gone"]
    if early:
        text += f". Before: {short(fold(early[-1].text), 100)}"
        who = sorted({e.rank for e in early if e.rank is not None})
        if who and not guilty:
            guilty, confidence = who, "medium"
    return Verdict(
        "failed",
        cause,
        guilty,
        victims_of(case, guilty) if guilty else reported,
        text + ".",
        confidence,
        [*early[-1:], *case.echoes[:3], last_line(case, guilty)],
        "" if guilty else f"Collect: {ASK}.",
    )


def cut_short(case):
    """The launcher's verdict alone, or a traceback whose end is missing."""
    exits = sorted((r, e) for r, e in case.exits.items() if e.code and e.code not in (-15, 143))
    cut = case.of("cut")
    unlisted = sorted(case.ranks - set(case.exits)) if any(e.type == "root" for e in case.exits.values()) else []
    if len(unlisted) == 1 and case.world > 2 and not case.own:
        text = (
            f"{ranks_text(unlisted).capitalize()} is not in the launcher's table, so it ended first, with "
            f"exit code 0; the errors of the others are not in this log."
        )
        return Verdict(
            "failed", IDS["leave"], unlisted, victims_of(case, unlisted), text, "low", [e for _, e in exits[:2]]
        )
    if exits:
        guilty = [r for r, _ in exits]
        first = next((e for _, e in exits if e.type == "root"), exits[0][1])
        names = [first.rank] if first.type == "root" or len(exits) == 1 else guilty
        if first.type == "root" and 1 < len(exits) < case.world and first.code == 1:
            names = []  # the launcher names the first that it saw end, which may be a victim of another
        engine = case.of("engine")
        said = f" It said: {short(fold(engine[0].text), 160)}." if engine else ""
        text = (
            f"{ranks_text(names or guilty).capitalize()} ended with exit code {first.code}, but "
            f"{'its own error is' if len(names or guilty) == 1 else 'their own errors are'} not in this log.{said}"
        )
        everyone = len(exits) == case.world > 1
        return Verdict(
            "failed",
            None,
            guilty if everyone else names,
            victims_of(case, () if everyone else names),
            text,
            "low" if not engine else "medium",
            [first, *engine[:1]],
            f"Collect: {ASK}.",
        )
    if cut:
        return Verdict(
            "failed",
            None,
            [cut[0].rank] if cut[0].rank is not None else (),
            (),
            f"The log ends inside a traceback, at {place_text(cut[0].frames)}.",
            "low",
            cut[:2],
            f"Collect: the rest of the log; {ASK}.",
        )
    return None


# ------------------------------------------------------------------------------------------------------------------
# Reports
# ------------------------------------------------------------------------------------------------------------------
def as_json(verdict):
    """The report as one object, at most ANSWER characters."""
    report = {
        "schema": SCHEMA,
        "outcome": verdict.outcome,
        "guilty_ranks": verdict.guilty,
        "victims": verdict.victims,
        "cause": verdict.cause,
        "text": verdict.text,
        "confidence": verdict.confidence,
        "evidence": verdict.evidence,
        "fix": verdict.fix,
        "see": verdict.see,
    }
    text = json.dumps(report, ensure_ascii=False)
    for limit, lines in ((400, 6), (300, 4), (240, 3), (160, 2), (120, 1)):
        if len(text) <= ANSWER:
            break
        report["fix"], report["text"] = short(verdict.fix, limit), short(verdict.text, limit + 100)
        report["evidence"] = [
            {**e, "text": short(e["text"], limit // 2), "file": end_of_path(e["file"])}
            for e in verdict.evidence[:lines]
        ]
        for key in ("victims", "guilty_ranks"):
            if len(report[key]) > 64:  # the first ones; all of them as ranges
                report.setdefault("ranges", {})[key] = ranks_text(report[key])[6:]
                report[key] = report[key][:64]
        text = json.dumps(report, ensure_ascii=False)
    return text


def end_of_path(path, room=100):
    """A path, as its last folders and its file where it is long."""
    if len(path) <= room:
        return path
    cut = path.find("/", len(path) - room + 1)
    return "…" + path[cut if cut >= 0 else len(path) - room + 1 :]


def as_text(verdict):
    """The report for people, at most ANSWER characters."""
    marks = {"failed": "FAILED", "succeeded": "SUCCEEDED", "unknown": "NOT KNOWN"}
    lines = [f"{marks[verdict.outcome]} ({verdict.confidence} confidence): {short(verdict.text, 560)}"]
    if verdict.guilty:
        lines.append(
            f"at fault: {ranks_text(verdict.guilty)}"
            + (f"; victims: {ranks_text(verdict.victims)}" if verdict.victims else "")
        )
    elif verdict.victims:
        lines.append(f"victims: {ranks_text(verdict.victims)}; at fault: not known")
    if verdict.cause:
        lines.append(f"cause: {verdict.cause}")
    lines += [f"  {end_of_path(e['file'])}:{e['line']}: {short(e['text'], 150)}" for e in verdict.evidence[:5]]
    if verdict.fix:
        lines.append(("fix: " if verdict.cause or verdict.outcome == "succeeded" else "") + short(verdict.fix, 420))
    if verdict.see:
        lines.append(f"see: {verdict.see}")
    return short("\n".join(lines), ANSWER)


def write_html(path, job, verdict):
    """One page that needs nothing else: a lane per rank, the first failure and its echoes, evidence to unfold."""
    text = page_of(job, verdict)
    with open(path, "w", encoding="utf-8", errors="replace") as f:
        f.write(text)


STYLE = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1d2329;--dim:#5d6873;--line:#d9dee3;--bar:#9db7d5;--bad:#b42318;--hit:#d9822b;--ok:#1d7a46;--card:#f5f7f9}
@media(prefers-color-scheme:dark){:root{--bg:#14181c;--fg:#e6eaee;--dim:#98a4b0;--line:#2e363e;--bar:#3d5f87;--bad:#ff7a6b;--hit:#f0a45d;--ok:#59c98b;--card:#1c2228}}
*{box-sizing:border-box}body{margin:0 auto;padding:1.2rem;max-width:72rem;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif}
h1{font-size:1.25rem;margin:.2rem 0 .6rem}h2{font-size:1rem;margin:1.6rem 0 .5rem}p{margin:.4rem 0}code,pre,.last{font:13px/1.45 ui-monospace,monospace}
.failed{color:var(--bad)}.succeeded{color:var(--ok)}.unknown{color:var(--hit)}.dim{color:var(--dim)}.card{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:.7rem 1rem}
.lane{display:grid;grid-template-columns:10.5rem minmax(8rem,2fr) minmax(0,3fr);gap:.8rem;align-items:center;border-top:1px solid var(--line);padding:.25rem 0}
.last{overflow:hidden;text-overflow:ellipsis;white-space:nowrap;color:var(--dim)}svg{width:100%;height:20px;display:block}
.g{font-weight:600;color:var(--bad)}.v{color:var(--hit)}rect{fill:var(--bar)}.base{fill:var(--line)}.m-bad{fill:var(--bad)}.m-hit{fill:var(--hit)}
details{margin:.3rem 0}summary{cursor:pointer}pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:.4rem 0;padding:.5rem;background:var(--card);border:1px solid var(--line);border-radius:6px}
@media(max-width:44rem){.lane{grid-template-columns:6rem 1fr}.lane .last{grid-column:1/-1}}
"""  # noqa: E501


def page_of(job, verdict):
    """The HTML page as text; everything that comes from a log is escaped."""
    esc = lambda text: html.escape(str(text), quote=True)
    end = max([job.bytes, 1])
    many = verdict.world > 24 or len(job.lanes) > 24
    marks, first = {}, None
    for e in job.of("exception", "exit", "native", "watchdog", "stop"):
        if e.rank is not None and e.kind != "exit":
            marks.setdefault(e.rank, []).append(e)
    ranks = sorted(
        set(job.lanes)
        | set(marks)
        | set(verdict.guilty)
        | (set(range(verdict.world)) if verdict.world <= 4096 else set())
    )
    bad = [e for r in verdict.guilty for e in marks.get(r, [])]
    first = min(bad, key=lambda e: e.order, default=None)

    def lane(rank, label=None):
        known, cells = job.lanes.get(rank), []
        if known and known.heard:
            stop = known.heard[-1]
            step = max(1, len(known.heard) // 100)
            width = max(3.0, 1000 / 120)
            places = sorted({round(x / end * 1000 / width) for x in known.heard[::step] + [stop]})
            cells += [f'<rect x="{p * width:.0f}" y="6" width="{width:.1f}" height="8"/>' for p in places]
        for e in marks.get(rank, [])[:6]:
            role = "bad" if rank in verdict.guilty else "hit"
            cells.append(
                f'<rect class="m-{role}" x="{min(992, e.order / end * 1000):.0f}" y="1" width="8" height="18">'
                f"<title>{esc(e.source)}:{e.line} {esc(short(fold(e.end), 160))}</title></rect>"
            )
        role = "g" if rank in verdict.guilty else "v" if rank in verdict.victims else ""
        what = (
            " · first" if first is not None and rank == first.rank else " · at fault" if rank in verdict.guilty else ""
        )
        last = known.last if known else None
        said = (
            f"{last[1]}:{last[2]}: {last[3]}"
            if last
            else marks[rank][-1].text
            if rank in marks
            else "no line of its own in the log"
        )
        cells.insert(0, '<rect class="base" x="0" y="9.5" width="1000" height="1"/>')
        return (
            f'<div class="lane"><span class="{role}">{esc(label or f"rank {rank}")}{what}</span>'
            f'<svg viewBox="0 0 1000 20" preserveAspectRatio="none" role="img" aria-label="activity of '
            f'rank {rank}">{"".join(cells)}</svg>'
            f'<span class="last" title="{esc(said)}">{esc(short(said, 200))}</span></div>'
        )

    body = []
    if many:
        groups = {}
        for r in ranks:
            known = job.lanes.get(r)
            said = re.sub(r"\d+", "#", known.last[3])[:80] if known and known.last else "no line"
            groups.setdefault((r in verdict.guilty, r in verdict.victims, said), []).append(r)
        for (guilty, _, _), members in sorted(groups.items(), key=lambda item: (not item[0][0], -len(item[1]))):
            if guilty or len(members) == 1:
                body += [lane(r) for r in members[:64]]
            else:
                body.append(lane(members[0], short(ranks_text(members, 3), 28)))
                body.append(
                    f"<details><summary class=dim>{len(members)} ranks "
                    f"alike</summary>{''.join(lane(r) for r in members[:600])}</details>"
                )
    else:
        body += [lane(r) for r in ranks]
    proofs = "".join(
        f"<details{' open' if n == 0 else ''}><summary><code>{esc(e['file'])}:{e['line']}</code></summary>"
        f"<pre>{esc(e['text'])}</pre></details>"
        for n, e in enumerate(verdict.evidence)
    )
    echoes = [e for r, found in sorted(marks.items()) if r not in verdict.guilty for e in found][:40]
    echoed = "".join(f"<pre>rank {e.rank}, {esc(e.source)}:{e.line}\n{esc(short(e.end, 300))}</pre>" for e in echoes)
    echo_count = sum(len(found) for r, found in marks.items() if r not in verdict.guilty)
    rest = ", the first 40 here" if echo_count > 40 else ""
    fix = re.sub(r"`([^`]+)`", r"<code>\1</code>", esc(verdict.fix))
    words = {"failed": "Failed", "succeeded": "Succeeded", "unknown": "Not known"}
    who = f"<p>At fault: <b class=g>{esc(ranks_text(verdict.guilty))}</b>" if verdict.guilty else "<p>"
    who += f" · victims: <span class=v>{esc(ranks_text(verdict.victims))}</span></p>" if verdict.victims else "</p>"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{esc(words[verdict.outcome])}: {esc(short(verdict.text, 80))}</title><style>{STYLE}</style></head><body>
<h1><span class="{verdict.outcome}">{words[verdict.outcome]}</span> <span class=dim>({verdict.confidence} confidence)</span></h1>
<div class=card><p>{esc(verdict.text)}</p>{who}
{f"<p><b>Fix.</b> {fix}</p>" if verdict.fix else ""}{f"<p class=dim>Cause <code>{esc(verdict.cause)}</code>, see <code>{esc(verdict.see)}</code></p>" if verdict.see else ""}</div>
<h2>Evidence</h2>{proofs or "<p class=dim>none</p>"}
<h2>Ranks over the log</h2><p class=dim>From left to right as the log was read, {job.bytes:,} bytes in {len(job.sources)} file{"s" * (len(job.sources) != 1)}; a bar where the rank wrote, a mark where it failed.</p>
{"".join(body) or "<p class=dim>No line names its rank.</p>"}
{f"<h2>Echoes</h2><details><summary>{echo_count} later errors of other ranks{rest}</summary>{echoed}</details>" if echoes else ""}
</body></html>
"""  # noqa: E501


# ------------------------------------------------------------------------------------------------------------------
# Command line
# ------------------------------------------------------------------------------------------------------------------
def explain(paths, rules=None, report=None, tick=None):
    """Read the logs and judge. Returns (job, verdict); raises UsageError if nothing can be read.

    Args:
        paths: files, folders or "-".
        rules: as load_rules gives them.
        report: called with a line about what could not be read.
        tick: called with the job now and then.
    """
    job = Job()
    job.sources = find_sources(paths)
    job.shared_names = any(s.rank is not None for s in job.sources)
    for source in job.sources:
        if re.search(r"(?:^|/)error\.json$", source.name):
            error_file(job, source)
        else:
            Scanner(job, source, report or (lambda text: None), tick or (lambda job: None)).run()
    return job, judge(job, rules or load_rules())


def chain_of(stack):
    """[(frames, last line, "during" or "cause" or "")] of the exceptions of a traceback, the oldest first; the third
    says how the next one came of it."""
    parts = re.split(r"\n(During handling of the above|The above exception was the direct cause)[^\n]*\n", stack)
    found = []
    for text, follows in zip(parts[::2], [*parts[1::2], ""]):
        lines = text.strip().split("\n")
        frames = [(m[1], int(m[2]), m[3]) for line in lines if (m := FRAME.match(line))]
        found.append((frames, lines[-1], "during" if follows[:6] == "During" else "cause" if follows else ""))
    return found


def error_file(job, source):
    """torchrun's error file of one rank: its exception and the time."""
    try:
        message = json.loads(Path(source.parts[-1]).read_text(encoding="utf-8", errors="replace"))["message"]
        if isinstance(message, dict):
            stack, stamp, text = (
                message["extraInfo"]["py_callstack"],
                float(message["extraInfo"]["timestamp"]),
                message["message"],
            )
        else:
            stack, stamp, text = "", None, str(message)
    except (OSError, ValueError, KeyError, TypeError):
        return
    *before, (frames, _, _) = chain_of(stack)
    chain = [
        Event("cause of another", source.rank, source.name, 1, end[:600], 0, frames=f, end=end[:900], link=link)
        for f, end, link in reversed(before)
    ]
    name = text.split(":")[0].split(".")[-1]
    job.bytes += len(stack)
    local = time.localtime(stamp) if stamp else None
    stamp = (
        local
        and (((local.tm_year * 12 + local.tm_mon) * 31 + local.tm_mday) * 24 + local.tm_hour) * 3600
        + local.tm_min * 60
        + local.tm_sec
    )
    job.add(
        Event(
            "exception",
            source.rank,
            source.name,
            1,
            text[:600],
            job.bytes,
            time=stamp,
            frames=frames,
            chain=chain,
            uncaught=True,
            type=name,
            end=text[:900],
            logged=False,
        )
    )


def progress_on(stream):
    """A function that shows how far the reading is, if it takes over two seconds and the stream is a terminal."""
    state = {"start": time.monotonic(), "last": 0.0}
    if not stream.isatty():
        return lambda job: None

    def tick(job):
        now = time.monotonic()
        if now - state["start"] > 2 and now - state["last"] > 0.5:
            state["last"] = now
            total = sum(s.size for s in job.sources)
            of = f" of {total / 1e6:,.0f}" if total else ""
            stream.write(f"\r{PROGRAM}: {job.bytes / 1e6:,.0f}{of} MB read ")
            stream.flush()

    return tick


def parse(argv):
    if "--explain" in argv[:-1]:  # ids may begin with -
        at = argv.index("--explain")
        argv = [*argv[:at], f"--explain={argv[at + 1]}", *argv[at + 2 :]]
    p = argparse.ArgumentParser(
        prog=PROGRAM,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=HELP,
        description="Why did this distributed job die or hang? Reads its log, names the cause and the rank at fault.",
    )
    p.add_argument("paths", nargs="*", metavar="FILE", help="log files, a folder of them, or - for standard input")
    p.add_argument("--format", choices=("text", "json"), default="text", help="text for people, json for programs")
    p.add_argument("--html", metavar="FILE", help="also write a page with a lane per rank")
    p.add_argument("--list-rules", action="store_true", help="print the ids of all rules (causes) and end")
    p.add_argument("--explain", metavar="RULE", help="print what a rule means and its fix, and end")
    return p.parse_args(argv)


def main(argv=None):
    args = parse(sys.argv[1:] if argv is None else argv)
    try:
        if args.list_rules:
            rules = load_rules()
            print(json.dumps(list(rules)) if args.format == "json" else "\n".join(rules))
            return 0
        if args.explain is not None:
            return explain_rule(args)
        if not args.paths:
            raise UsageError("give a log: FILE, FOLDER or -")
        if "-" in args.paths and len(args.paths) > 1:
            raise UsageError("- stands alone")
        say = lambda text: print(f"{PROGRAM}: {text}", file=sys.stderr)
        tick = progress_on(sys.stderr)
        job, verdict = explain(args.paths, report=say, tick=tick)
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
        print(as_json(verdict) if args.format == "json" else as_text(verdict))
        if args.html:
            if os.path.realpath(args.html) in {os.path.realpath(p) for s in job.sources for p in s.parts if p}:
                raise UsageError(f"{args.html}: is a log that was read; --html would overwrite it")
            try:
                write_html(args.html, job, verdict)
            except OSError as e:
                raise UsageError(f"{args.html}: {e.strerror or e}") from None
        sys.stdout.flush()
        return 0 if verdict.outcome == "succeeded" or verdict.outcome == "failed" and verdict.cause else 1
    except UsageError as e:
        print(f"{PROGRAM}: {e} (--help shows the usage)", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever read our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except RecursionError:
        print(f"{PROGRAM}: the log is too deeply nested to be judged", file=sys.stderr)
        return 1
    except OSError as e:
        print(f"{PROGRAM}: {e}", file=sys.stderr)
        return 2


def explain_rule(args):
    rules = load_rules()
    rule = rules.get(args.explain)
    if rule is None:
        near = [r for r in rules if args.explain.lower() in r.lower()][:5]
        raise UsageError(
            f"no rule {args.explain!r}" + (f"; near: {', '.join(near)}" if near else "; --list-rules prints them")
        )
    if args.format == "json":
        print(
            json.dumps(
                {
                    "rule": rule.id,
                    "heading": rule.heading,
                    "kind": rule.kind,
                    "text": rule.means,
                    "fix": rule.fix,
                    "patterns": rule.spec["text"],
                    "see": f"{PAGE}#{rule.id}",
                },
                ensure_ascii=False,
            )
        )
    else:
        print(f"{rule.heading}\n\nMeans: {rule.means}\nFix: {rule.fix}\nSee: {PAGE}#{rule.id}")
    return 0


# The entries of troubleshooting.md, shortened to what a rule needs, for when this file stands alone; a test holds the
# two equal.
COPY = r"""
### `Unknown backend '…'. Available backends: (…)`
**Means** torch or this environment lacks the backend that you named; `idist.initialize` and `idist.spawn` word it `Backend should be one of '(…)'`. **Check**
**Fix** choose from what is there: `backend = "nccl" if torch.cuda.is_available() else "gloo"`. `mpi` needs a torch built from source against MPI. **Check**
### `If backend is None, argument '…' should be also None, but given …`
**Means** `nproc_per_node`, `nnodes`, `node_rank`, `master_addr` or `master_port` was given to `idist.Parallel` without a backend; without one it runs your function once, in this process. **Check**
**Fix** `idist.Parallel(backend="gloo", nproc_per_node=2)`. **Check**
### `Argument nproc_per_node should positive, but given …`
**Means** the arguments of `idist.Parallel` do not describe a world. Its neighbours: `Argument nnodes should positive, but given …` · `Argument node_rank should be between 0 and …, but given …` · `If number of nodes larger than one, arguments node_rank should be given` · `If number of nodes larger than one, arguments master_addr and master_port or init_method should be specified, but given master_addr=…, master_port=… and init_method=….` **Check**
**Fix** on every node the same `nproc_per_node`, `nnodes`, `master_addr`, `master_port`, and `node_rank` counted from 0: `idist.Parallel(backend="gloo", nproc_per_node=2, nnodes=2, node_rank=0, master_addr="10.0.0.1", master_port=29500)`. **Check**
### `TCP initialization via init_method='…' will hang.`
**Means** `init_method="tcp://…"` is refused, by `idist.Parallel` and by `idist.initialize`. The text goes on: `To fix this, please configure MASTER_ADDR and MASTER_PORT in the environment and use 'env://' (or omit init_method).` **Check**
**Fix** leave it out and set `MASTER_ADDR` and `MASTER_PORT`, or pass `master_addr=` and `master_port=` next to `nproc_per_node=`. **Check**
### `Error initializing torch.distributed using file:// rendezvous: rank parameter missing`
**Means** the *path* of your `file://` URL contains the letters `env` (as in `.venv` or `my_env`): Ignite takes any such URL for `env://` and passes no rank. **Check**
**Fix** another folder. **Check**
### `master_addr should be None if init_method is provided other then 'env://'`
**Means** a `file://` rendezvous and an address were both given; `master_port should be None if init_method is provided other then 'env://'` is the same. It comes from `run`, not from the constructor. **Check**
**Fix** one host or a shared folder: `init_method` alone; several hosts: `master_addr` and `master_port` alone. **Check**
### `Both rank and world_size should be provided, but given … and …`
**Means** Ignite's private `create_from_backend` was called with half of the pair; without an `init_method` it says `Arguments rank and world_size should be None if no init_method is provided`. The public calls do not lead there. **Check**
**Fix** call `idist.initialize("gloo", rank=0, world_size=1)`, which accepts both. **Check**
### `trying to initialize the default process group twice!`
**Means** a group exists already: `idist.initialize` inside `idist.Parallel(backend=…)`, two of these nested, or your own `dist.init_process_group` before them. Processes forked from such a program say `Can not create new distributed process group if default one is already initialized`. **Check**
**Fix** create the group in one place; inside it use plain `idist.Parallel()`, which adopts the group, or call `idist.finalize()` first. **Check**
### `'NoneType' object has no attribute 'info'`
**Means** `Parallel.run` was called outside its `with` block. **Check**
**Fix** `with idist.Parallel(backend="gloo") as parallel: parallel.run(training)`. **Check**
<!-- log: frame=/ignite\/distributed\/launcher/ -->
### `Expected timeout argument to be of type datetime.timedelta, got …`
**Means** `timeout` is not a number of seconds, although Ignite's annotation says `int`. **Check**
**Fix** `idist.initialize("gloo", timeout=timedelta(seconds=30))`. **Check**
### `spawn() missing 1 required positional argument: 'args'`
**Means** `idist.spawn` wants the tuple of arguments even when it is empty. **Check**
**Fix** `idist.spawn("gloo", training, args=(), nproc_per_node=2)`; the local rank is put in front of `args` for you. **Check**
### `Serial computation model does not implement spawn method`
**Means** something called the private `_SerialModel.spawn`; the public `idist.spawn` never does. **Check**
**Fix** call `idist.spawn` with a backend of `idist.available_backends()`. **Check**
### `PyTorch distributed configuration should define env variables '['RANK', 'LOCAL_RANK', 'WORLD_SIZE']'`
**Means** some of the three are set and some are not: a leftover in the shell, or a cluster that exports only `WORLD_SIZE`. torch alone does not need `LOCAL_RANK`, Ignite does. **Check**
**Fix** for a plain run `unset RANK LOCAL_RANK WORLD_SIZE`; otherwise start with torchrun, which sets all three. **Check**
### Every process is rank 0 of 1
**Means** nobody created the group: before `idist.initialize` no getter reads `RANK` or `WORLD_SIZE`, and `idist.Parallel()` without a backend creates none, so torchrun or srun started N independent jobs. **Check**
**Fix** `idist.Parallel(backend="gloo")` (or nccl) around the run. **Check**
### Two launchers at once
**Means** torchrun or srun started N processes and `idist.Parallel` got `nproc_per_node` as well, so each of them starts more. No error is promised: you get several small worlds, a fight over one port, or a hang. **Check**
**Fix** under a launcher `idist.Parallel(backend="gloo")` without `nproc_per_node`; or plain `python` with it. **Check**
### `The module torch.distributed.launch is deprecated`
**Means** a warning; the old launcher also hands your script `--local-rank`. **Check**
**Fix** torchrun, `idist.Parallel(backend="gloo")` without `nproc_per_node`, and the `local_rank` that your function receives as first argument (or `os.environ["LOCAL_RANK"]`) in place of the option. **Check**
### `ambiguous option: --nproc could match …`
**Means** torchrun read an option that was meant for your script. **Check**
**Fix** options of the script after `--`, as in `torchrun --nproc_per_node=2 -- train.py --nproc 2`, or under a name that torchrun does not know. **Check**
<!-- log: kind=line text=/error: ambiguous option: \S+ could match/ -->
### `Local rank information for native distributed setting will be initialized using a heuristic approach based on the hostnames.`
**Means** you created the group yourself and `LOCAL_RANK` is not set, so Ignite gathers all host names and counts: `In some corner cases, determined local rank can be different from the real setup. To avoid this warning, please either set os.environ['LOCAL_RANK'] or use idist.set_local_rank(local_rank) with correct local rank index.` If that fails: `Failed to correctly estimate local rank. Debugging info: local rank: …, node rank: …, hostnames: …`. Metrics and handlers trigger it too. **Check**
**Fix** start with torchrun, or `idist.set_local_rank(local_rank)` on every rank before anything else of Ignite. **Check**
### `SLURM distributed configuration is missing '…' in env variables`
**Means** `SLURM_JOB_ID` is set, which alone switches Ignite to SLURM, but the process is no task of `srun`: python typed into a shell under `salloc`, or run by `sbatch` without `srun`, or a variable left over. **Check**
**Fix** `srun python train.py`, one task per process; for a run without SLURM `unset SLURM_JOB_ID`. **Check**
### `Arguments rank and world_size should not be specified with SLURM`
**Means** both come from `SLURM_PROCID` and `SLURM_NTASKS`. Also raised when processes are spawned inside a job over a `file://` rendezvous. **Check**
**Fix** drop `rank=` and `world_size=`; start one task per process with `srun`, without `nproc_per_node`. **Check**
### `Environment variable defined for PyTorch Distributed context is inconsistent with equivalent SLURM env variable. …: … vs …`
**Means** torchrun (or a container hook) set RANK, WORLD_SIZE and LOCAL_RANK inside an srun task, and they differ from SLURM's. On one node larger values pass; smaller ones give `We expect that …: … >= …`. On several nodes each must be equal, so torchrun with several workers under one task per node cannot work. **Check**
**Fix** `srun python train.py` with one task per process, no torchrun; or hide SLURM from torchrun's workers: `unset SLURM_JOB_ID` before it starts. **Check**
### `We detected the following env variables: …`
**Means** a warning inside SLURM: of RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT only some are set, so all are ignored, also a `MASTER_ADDR` and `MASTER_PORT` that you chose: `but will not take them into account as the following env vars are missing:…`. **Check**
**Fix** unset them; the address is then the first host of the job and the port 15000 plus the last four digits of `SLURM_JOB_ID`. **Check**
### `No hostname detected in SLURM_JOB_NODELIST by … (nodelist=…)`
**Means** the list of nodes is empty or a range runs backwards (`c[5-3]`). An empty bracket gives `hostlist invalid : …`. **Check**
**Fix** run under `srun` instead of setting the variable by hand. **Check**
### `Command '['scontrol', 'show', 'hostnames', '…']' returned non-zero exit status …`
**Means** `scontrol` is installed but does not work here (a container without its configuration). Ignite expands the list of nodes itself only where `scontrol` is *absent*. **Check**
**Fix** mount SLURM's configuration, or take `scontrol` off the PATH, or export all five of RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT. **Check**
### `KeyError: 'SLURM_LOCALID'`
**Means** your own process group, `SLURM_JOB_ID` set, no `srun`. With `srun`, `SLURM_LOCALID` wins over `LOCAL_RANK` and over `idist.set_local_rank`, and overwrites the variable. **Check**
**Fix** `unset SLURM_JOB_ID`, or start with `srun`. **Check**
### `The server socket has failed to listen on any local network address. … EADDRINUSE`
**Means** another job, or a dead one's leftover, holds the rendezvous port: `idist.spawn` uses 2222, a single process without a launcher 15000. Under `idist.spawn` the text stands inside `ProcessRaisedException`. **Check**
**Fix** a port of your own: `MASTER_PORT`, or `master_port=` beside `nproc_per_node=`; with torchrun `--standalone`. **Check**
### `The client socket has timed out after …ms while trying to connect to …`
**Means** nobody listens at that address: rank 0 is not up, is on another host, or `MASTER_ADDR` or `MASTER_PORT` differ between ranks; or a firewall is between. **Check**
**Fix** the address of rank 0's host, as all hosts reach it, on every rank; under SLURM a node name that does not resolve ends here too. **Check**
<!-- log: kind=timeout text=/client socket has timed out/ -->
### `Timed out after … seconds waiting for clients. …/… clients joined.`
**Means** rank 0's side of the same: fewer processes arrived than WORLD_SIZE says. Under torchrun it reads `wait timeout after …ms, keys: …`. **Check**
**Fix** start as many as WORLD_SIZE, or correct it; `timeout=timedelta(minutes=10)` only if a rank really starts late. **Check**
<!-- log: kind=timeout text=/waiting for clients/ text=/wait timeout after \d+ ?ms/ -->
### `Gloo connectFullMesh failed with …`
**Means** the ranks found the store but not each other. If torchrun has started them again: [Restarted ranks do not find each other](#restarted-ranks-do-not-find-each-other). Otherwise on some host the host name resolves to 127.0.0.1 or to a card that the others cannot reach, and gloo listens there. Gloo may warn `Unable to resolve hostname to a (local) address. Using the loopback address as fallback.` One side can hang while the other fails. With nccl it comes as well, because Ignite opens a gloo group to count processes per node. **Check**
**Fix** on each host the name of the card that reaches the others, as `ip -br addr` lists it: `export GLOO_SOCKET_IFNAME=eth0` before torchrun or srun; or correct `/etc/hosts`. **Check**
### Restarted ranks do not find each other
**Means** torchrun with `--max-restarts` keeps one store for all attempts, with the addresses of the ranks that ended: who asks before its peer has written anew gets an old one, and ends with `Gloo connectFullMesh failed with …` (`Connection refused`). **Check**
**Fix** `--standalone` or `--rdzv_backend=c10d`, and `export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1` before torchrun: with it the ranks of each attempt make a store of their own. With `--master_addr` that changes nothing. Mend what ended the first attempt, too. **Check**
### `Unable to find address for: …`
**Means** `GLOO_SOCKET_IFNAME` names a card that this host does not have; names differ between hosts. **Check**
**Fix** set it per host, or unset it on one host. **Check**
### `The connection to the C10d store has failed. See inner exception for details.`
**Means** torchrun's `--rdzv_backend=c10d` cannot reach `--rdzv_endpoint`, or no node takes that name for its own. **Check**
**Fix** an address of node 0 that all nodes reach and the same `--rdzv_id` everywhere; if node 0 does not recognise itself, `--rdzv_conf is_host=1` there and `is_host=0` elsewhere (`not verified here`: torch/distributed/elastic/rendezvous), or static rendezvous with `--node_rank`, `--master_addr`, `--master_port`. **Check**
### `Connection closed by peer`
**Means** another rank is gone: it raised, was killed (out of memory) or left early. `Connection reset by peer` is the same. This rank is a victim. **Check**
**Fix** what the first rank died of. **Check**
<!-- log: kind=echo text=/Connection (?:closed|reset) by peer/ -->
### `Timed out waiting …ms for recv operation to complete`
**Means** a rank is alive but did not come to this collective within the group's timeout (30 minutes unless you gave one); seen from the sending side it is `for send operation to complete`, and in the next collective after one `Application timeout caused pair closure`. Frozen, slow, or elsewhere in the program: then go on with [It hangs](#it-hangs). **Check**
**Fix** let every rank make the same collectives in the same order; `idist.initialize("gloo", timeout=timedelta(hours=1))` only if the wait is legitimate. **Check**
<!-- log: kind=timeout text=/Timed out waiting \d+ ?ms for (?:recv|send)/ text=/Application timeout caused pair closure/ -->
### `Rank … failed to pass monitoredBarrier in … ms`
**Means** rank 0 waited in `dist.monitored_barrier` and names a rank that did not come; with `wait_all_ranks=True` it names all of them. **Check**
**Fix** let that rank reach the barrier, or give it the time that it needs: `timeout=timedelta(minutes=10)`. **Check**
### `An attempt has been made to start a new process before the current process has finished its bootstrapping phase.`
**Means** `nproc_per_node` in a script without a main guard: each child imports the script and spawns again. The parent ends with `process … terminated with exit code 1`. **Check**
**Fix** put it under `if __name__ == "__main__":`. **Check**
### `No such file or directory: '…<stdin>'`
**Means** the program came through standard input (`python - <<EOF`), and spawned children cannot read it again. **Check**
**Fix** a file, or `start_method="fork"` on CPU. **Check**
### `process … terminated with signal …`
**Means** `ProcessExitedException`: a spawned child was killed from outside, with SIGKILL mostly by the kernel for lack of memory; the others were then ended with SIGTERM. **Check**
**Fix** fewer `num_workers`, a smaller batch, more memory. **Check**
### `process … terminated with exit code …`
**Means** a child left through `sys.exit`, or could not even start: its own output, above, has the reason. **Check**
**Fix** that; raise an exception instead of `sys.exit`, so that its text reaches the parent. **Check**
### `-- Process … terminated with the following error:`
**Means** `ProcessRaisedException`: the traceback that follows is the child's and is the real error. The original type cannot be caught in the parent. **Check**
**Fix** what it names. **Check**
### `Can't pickle local object '…'`
**Means** spawn pickles the function and its arguments, and this is a local function or a lambda. A lock, an open file or an engine among the arguments gives `cannot pickle '_thread.lock' object`. **Check**
**Fix** a function at module level that builds loaders, engines and loggers itself; or torchrun. **Check**
### `Can't get attribute '…' on <module '__…main__'`
**Means** the child does not find your function: it was defined in a notebook cell or under `if __name__ == "__main__":`. **Check**
**Fix** move it to module level in a file; in a notebook keep the start method fork, which Ignite chooses itself under IPython. **Check**
### `Cannot re-initialize CUDA in forked subprocess.`
**Means** fork after CUDA was used in the parent: in a notebook any earlier `.cuda()`. **Check**
**Fix** restart the kernel and touch the GPU only inside the function; in a script drop `start_method="fork"`. **Check**
### `cannot find context for '…'`
**Means** an unknown start method. **Check**
**Fix** `spawn` (default), `fork` or `forkserver`. **Check**
### Hangs when a checkpoint handler is built
**Means** you created the process group yourself; Ignite's *first* call on it is a collective, and it stood under `if rank == 0:` (a `DiskSaver`, a metric, `idist.get_rank()`). The timeout of your group does not end this one. **Check**
**Fix** `idist.sync()` on every rank right after `dist.init_process_group`; or let `idist.initialize` create the group; and build handlers on every rank: they write on one. **Check**
<!-- log: kind=scene frame=/_compute_nproc_per_node/ -->
### Hangs when one rank evaluates or computes a metric
**Means** metrics reduce over all ranks by themselves; an evaluator under `if rank == 0:`, a metric attached on one rank, or an early `return` on another leaves it waiting. **Check**
**Fix** evaluate on all ranks with `idist.auto_dataloader`; only print under `idist.get_rank() == 0`. **Check**
<!-- log: kind=scene frame=/ignite\/metrics\// -->
### Hangs in the forward pass on one rank
**Means** the wrapped model was called on one rank only (a look at one sample, an export): with buffers, as in batch norm, it broadcasts them. **Check**
**Fix** call the inner model there: `model.module`. **Check**
<!-- log: kind=scene frame=/nn\/parallel\/distributed\.py:(?:forward|_pre_forward|_sync_buffers)/ -->
### Hangs at the last batch of an epoch
**Means** ranks have different numbers of batches (an `IterableDataset`, shards made by hand), or reduce inside the loop. **Check**
**Fix** the same number everywhere: a distributed sampler, or `epoch_length=` in `run`; reduce once after the loop. **Check**
### Hangs at a barrier in a handler of one rank
**Means** a collective inside a function that only one rank runs. **Check**
**Fix** `idist.one_rank_only(with_barrier=True)` and no barrier inside. **Check**
<!-- log: kind=scene frame=/ignite\/distributed\/utils\.py:wrapper/ -->
### Hangs after an error on one rank
**Means** both skip their barrier when the block raises on the first rank. **Check**
**Fix** let the exception end the process: torchrun then ends the others and gloo tells them `Connection closed by peer`; do not catch and go on on one rank. **Check**
### Hangs after early stopping
**Means** each rank decides alone: `EarlyStopping`, `TerminateOnNan` and `terminate()` look at local values. **Check**
**Fix** score by a metric that Ignite reduces, or by `idist.all_reduce` of your own flag: `if idist.all_reduce(int(stop), op="MAX"): engine.terminate()`. **Check**
### Hangs when a group is made
**Means** an earlier group was made on some ranks only. That call itself can pass, but ranks number their groups, so the *next* one never meets. **Check**
**Fix** make every group on all ranks, members or not, in the same order: `group = idist.new_group([0])`; then use it on its members. **Check**
<!-- log: kind=scene frame=/:new_group$/ -->
### Hangs in the sampler with a busy CPU
**Means** your sampler has a length but yields nothing, and `DistributedProxySampler` draws until it has enough. **Check**
**Fix** the sampler. **Check**
### Hangs with the ranks in different places
**Means** the ranks went different ways, by a condition on the rank or on data of its own, and each waits for what the others never call. **Check**
**Fix** the same collectives on all ranks in the same order: move the call out of the condition, or make the condition the same everywhere with `idist.all_reduce(int(flag), op="MAX")`. **Check**
### A rank raises an exception
**Means** one rank's traceback is the cause; what the others say after it, `Connection closed by peer`, is its echo. Launchers can show the echo first: torchrun's `Root Cause (first observed failure)` is the process that ended first, and `idist.spawn` shows one traceback, of whichever child it looked at first. **Check**
**Fix** what that traceback says. **Check**
### A rank is killed
**Means** exit code -9, or `terminated with signal SIGKILL` under spawn: something outside ended the rank, mostly the kernel for lack of memory. It leaves no traceback; the others lose their peer. **Check**
**Fix** fewer `num_workers`, a smaller batch, more memory. **Check**
### A rank crashes in native code
**Means** exit code -11 (SIGSEGV) or -6 (SIGABRT): code in C or C++ crashed, and without faulthandler no Python traceback is printed. A -6 with `gloo::EnforceNotMet` is another case: [`op.preamble.length <= op.nbytes`](#oppreamblelength--opnbytes). **Check**
**Fix** what the innermost frame calls, often an extension built for another torch. **Check**
### `terminate called without an active exception`
**Means** a rank ended at its exit with code -6 (SIGABRT), often after the last line and with right results: the process group outlived `idist.finalize()`, and a thread of gloo released the tensor of a collective while the interpreter was ending. An engine with a handler that names it is a reference cycle, which keeps model and group. Rare, and more frequent on a busy machine; what was written before is whole. Code in C++ of other packages can say the same. **Check**
**Fix** let the function that made model and engines return, then `gc.collect()`, then `idist.finalize()`. **Check**
### A rank leaves early
**Means** a rank ended while the others went on, and they say `Connection closed by peer`. With exit code 0 nothing reports it: torchrun leaves it out of its table of failures and names a victim. With another code, as after `sys.exit(3)`, the table names it, without a traceback. **Check**
**Fix** decide on all ranks together: `if idist.all_reduce(int(stop), op="MAX"): break`. **Check**
### The job is stopped from outside
**Means** no rank failed: Ctrl-C, the time limit of a scheduler, a cancelled or preempted job sent a signal to all; torchrun answers with `SignalException`. **Check**
**Fix** more time; or checkpoints and a resume, as in [train.py](../assets/train.py). **Check**
### The batch is smaller or larger than asked for
**Means** `batch_size` of `idist.auto_dataloader` is the world's: it is divided and rounded down, but a size below the world size is kept per rank. On 2 ranks 8 gives 4 each, 5 gives 2 each, 1 stays 1 each. `num_workers` is divided by the processes of the node and rounded up. **Check**
**Fix** `batch_size=per_rank * idist.get_world_size()`. **Check**
### Same sample order in every epoch
**Means** nobody calls `set_epoch`, neither the engine nor `idist.auto_dataloader`. **Check**
**Fix** on `Events.EPOCH_STARTED`: `loader.sampler.set_epoch(engine.state.epoch - 1)`, only if `idist.get_world_size() > 1`; in serial the call gives `'…' object has no attribute 'set_epoch'`. **Check**
### Every rank reads all data
**Means** an `IterableDataset` or a `batch_sampler`: `idist.auto_dataloader` adds no distributed sampler. It logs `Found iterable dataset, dataloader will be created without any distributed sampling.` or warns `Found batch_sampler in provided kwargs. Please, make sure that it is compatible with distributed configuration`. **Check**
**Fix** shard by hand, and by loader worker too: `itertools.islice(samples, idist.get_rank(), None, idist.get_world_size())`. **Check**
### `Found distributed sampler with rank=…, but process rank is …`
**Means** only a warning, but the rank reads another rank's share; likewise `Found distributed sampler with num_replicas=…, but world size is …`. **Check**
**Fix** `DistributedSampler(dataset, num_replicas=idist.get_world_size(), rank=idist.get_rank())`, or none: one is made for you. **Check**
### A metric depends on the number of processes
**Means** the distributed sampler repeats samples until all ranks have the same number, and metrics count them: 9 samples on 2 ranks become 10. `drop_last=True` does not prevent it. **Check**
**Fix** for exact scores count each sample id once, or evaluate in one process. **Check**
### A value too large by the world size
**Means** it was reduced twice: the metrics of Ignite come reduced already. **Check**
**Fix** remove it. **Check**
### Random numbers are the same on every rank
**Means** either all ranks were given the same seed, or a sampler of your own went through `idist.auto_dataloader`: `DistributedProxySampler` sets torch's global seed to its epoch number at the start of every pass. **Check**
**Fix** draw from a `torch.Generator` of your own, seeded with the base seed plus `idist.get_rank()`. **Check**
### A timeout or node_rank given to Parallel has no effect
**Means** without `nproc_per_node`, `idist.Parallel` drops every other argument except `init_method`; with it, also unknown names pass. **Check**
**Fix** `idist.initialize("gloo", timeout=timedelta(seconds=7))` and then `idist.Parallel()`. **Check**
### It works in one process and fails in two
**Means** in serial nothing is checked: `idist.all_reduce("a")`, `idist.all_reduce(1, "MEAN")` and `idist.new_group([5])` all return their input. **Check**
**Fix** what the two-process run names. **Check**
### A broadcast number is not exact
**Means** `idist.broadcast` sends numbers as 32-bit floats: 16777217 arrives as 16777216.0, on the source too. **Check**
**Fix** broadcast a tensor: `torch.tensor(value)`. **Check**
### `op.preamble.length <= op.nbytes`
**Means** gloo ended a rank (exit code -6): in one collective the ranks had different shapes or dtypes; also `EpochMetric` and its kin with different numbers of samples. Or they were in different collectives: one had left its loop, or ran an evaluation that the others did not. `gloo::EnforceNotMet` is thrown in the rank with the shorter tensor; its numbers are the bytes sent by the other and those awaited, of a part of it: `18 vs 12` where `all_gather` met 3 × 3 and 2 × 3 float32. The other rank sees a reset connection or, worse, goes on with garbage; equal sizes of other shape pass unnoticed. **Check**
**Fix** same dtype and shape; for lengths that differ `idist.all_gather_tensors_with_shapes(t, shapes)` with `shapes = idist.all_gather(list(t.shape))`; for different collectives [Hangs at the last batch of an epoch](#hangs-at-the-last-batch-of-an-epoch) and [Hangs with the ranks in different places](#hangs-with-the-ranks-in-different-places). **Check**
### `Unhandled input type <class '…'>`
**Means** `idist.all_reduce` takes tensors and numbers, `idist.broadcast` also str and Path; no list, dict or array. On the other ranks this is a hang or a closed connection. **Check**
**Fix** `torch.as_tensor(x)`; objects go through `idist.all_gather`. **Check**
### `Unsupported reduction operation: '…'`
**Means** the gloo and nccl operations are `SUM`, `PRODUCT`, `MIN`, `MAX`, `AND`, `OR`, in capitals, as str. **Check**
**Fix** a mean is `idist.all_reduce(x) / idist.get_world_size()`. **Check**
### `Argument ranks should be list of int`
**Means** `idist.new_group` takes a list, no tuple, range or tensor. **Check**
**Fix** `idist.new_group(list(ranks))`. **Check**
### `Rank … is out of range.`
**Means** a rank in `idist.new_group` that the world does not have. **Check**
**Fix** ranks from 0 to the world size less 1. **Check**
### `Argument group should be list of int or ProcessGroup, got …, group=…`
**Means** `group=` got a tuple, a str or a range. **Check**
**Fix** a list of ranks, or better the result of `idist.new_group`, made once: a list makes a new group at every call. **Check**
### `Source data can not be None`
**Means** the source rank of `idist.broadcast` has nothing to send. On other ranks None raises `Argument safe_mode should be True if None is passed for non src rank`, while the source waits or loses its peer; in serial it is `Argument tensor should not be None`. **Check**
**Fix** `idist.broadcast(x, src=0, safe_mode=True)` on all ranks. **Check**
### `ProcessGroupGloo::broadcast: invalid root rank: …`
**Means** `src` is no rank of this world; in serial any `src` passes. **Check**
**Fix** `src=0`. **Check**
### `'utf-8' codec can't decode byte …`
**Means** a str with letters outside ASCII in `idist.broadcast` or `idist.all_gather`: characters are counted where bytes are sent. **Check**
**Fix** send it inside a list through `idist.all_gather`: `idist.all_gather([text])[0][0]` is rank 0's. **Check**
<!-- log: frame=/ignite\/distributed/ -->
### `rank should be between 0 and …, but given …`
**Means** `idist.one_rank_first` got a rank that does not exist; with `local=True` the limit is the number of processes on the node. **Check**
**Fix** leave the default 0. **Check**
### `Current torch version does not implement dist.all_gather_object. Required version should be >=1.7.0`
**Means** a torch far too old for `idist.all_gather` of objects. **Check**
**Fix** update torch, or gather tensors. **Check**
### `Internal error: unhandled dtype …, encoded_msg=…`
**Means** with `safe_mode=True` the source first tells the others what comes; this rank met another collective instead. Two more guards, `Internal error, x is None. Please, file an issue if you encounter this error.` and `Internal error, tensor is None. Please, file an issue if you encounter this error.`, no public call should reach. **Check**
**Fix** the order of the calls. **Check**
### `Argument sampler should be instance of torch Sampler, but given: …`
**Means** `sampler=` is a list or the like; in serial that passes. Other samplers that `DistributedProxySampler` refuses: `Argument sampler must not be a distributed sampler already` · `Argument sampler should have length`. **Check**
**Fix** subclass `Sampler` with `__iter__` and `__len__`; give a `DistributedSampler` to `idist.auto_dataloader` as it is. **Check**
### `RuntimeError: … vs …`
**Means** the numbers of indices drawn and expected by `DistributedProxySampler` differ: someone changed `num_samples` or `total_size` after it was made. **Check**
**Fix** make a new one. **Check**
<!-- log: text=/\d+ vs \d+/ frame=/ignite\/distributed\/auto/ -->
### `'>=' not supported between instances of 'NoneType' and 'int'`
**Means** `batch_size=None` (no automatic batching) in `idist.auto_dataloader` works in serial only. **Check**
**Fix** leave `batch_size` out and pass `batch_sampler=`, sharded by you, or build the `DataLoader` yourself. **Check**
<!-- log: frame=/ignite\/distributed\/auto/ -->
### `Default process group has not been initialized`
**Means** `DistributedSampler` or `DistributedProxySampler` was made before the group exists. **Check**
**Fix** make it inside the function that `run` calls, or pass `num_replicas=` and `rank=`. **Check**
### `DataLoader with IterableDataset: expected unspecified shuffle option, but got shuffle=…`
**Means** an `IterableDataset` has no order to shuffle. **Check**
**Fix** drop `shuffle=`; shuffle inside the data set. **Check**
### `Input data has zero size. Please provide non-empty data`
**Means** this rank got no batch: fewer samples than ranks, or an `IterableDataset` that yields on one rank only. The other ranks report `Connection closed by peer` or wait. **Check**
**Fix** give each rank at least one batch; a distributed sampler pads. **Check**
### The data set is downloaded by every rank
**Means** the download stands in the function that each rank runs, or under `if rank == 0:` without a barrier, so that others read half a file. **Check**
**Fix** `with idist.one_rank_first(local=True):` around it, with a disk per node; `local=False` with a shared one. The block runs on every rank, one first, so it must find the file that is there. **Check**
### `DataLoader worker (pid …) is killed by signal`
**Means** a process of `num_workers` was killed, mostly for lack of memory or of shared memory; its rank raises, the others lose their peer or wait. The error can also be a bare `ConnectionResetError` with `dataloader.py` among its frames: that looks like an echo and is none. **Check**
**Fix** fewer workers, smaller batches, a larger `/dev/shm`. **Check**
### `No space left on device`
**Means** the disk that this rank writes to is full; mostly rank 0 saves, so the others only lose their peer. **Check**
**Fix** make room, or write elsewhere; `n_saved=` of `Checkpoint` bounds what is kept. **Check**
### `Argument kwargs should not contain 'device_ids', but got …`
**Means** `idist.auto_model` sets `device_ids` itself from the local rank when CUDA is there. **Check**
**Fix** drop it; the other arguments of `DistributedDataParallel` pass: `idist.auto_model(model, find_unused_parameters=True)`. **Check**
### `'DistributedDataParallel' object has no attribute '…'`
**Means** attributes and methods of your model are one level down once the world is larger than 1. **Check**
**Fix** `getattr(model, "module", model)` works in serial too. **Check**
### `got an unexpected keyword argument '…'`
**Means** an argument of `idist.auto_model` that the wrapper does not know; with world size 1 nothing is wrapped and it passes in silence. On several GPUs without a group it goes to `DataParallel`. **Check**
**Fix** arguments of `DistributedDataParallel` only. **Check**
<!-- log: frame=/ignite\/distributed\/auto/ -->
### `DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient.`
**Means** a frozen model, or one without parameters (a teacher, a loss), went through `idist.auto_model` in a group. **Check**
**Fix** `model.to(idist.device())` instead. **Check**
### `Expected to have finished reduction in the prior iteration before starting a new one.`
**Means** some parameters got no gradient in the last step (a branch or head not used). **Check**
**Fix** use all outputs in the loss, or `idist.auto_model(model, find_unused_parameters=True)`. **Check**
### `DDP expects same model across all ranks`
**Means** the ranks built different models (a random depth, another config). **Check**
**Fix** the same configuration everywhere. **Check**
### `Unexpected key(s) in state_dict: "module.…`
**Means** the state was saved from the wrapped model, with `module.` before each name. **Check**
**Fix** save `model.module.state_dict()`, or use `Checkpoint`, which unwraps; for a file that exists `torch.nn.modules.utils.consume_prefix_in_state_dict_if_present(state, "module.")`. **Check**
### `… must have at least one example before it can be computed`
**Means** `compute` on a metric that saw no sample on any rank. **Check**
**Fix** as for `Input data has zero size`. **Check**
### `Files […] with extension '.pt' are already present in the directory …`
**Means** `ModelCheckpoint` found an old run; only the rank that saves looks and raises, the others lose their peer. **Check**
**Fix** a folder per run, or `require_empty=False`. **Check**
### No checkpoint is left after an interruption
**Means** with a fixed file name such as `filename_pattern="last.pt"`, as with the default `n_saved=1`, `Checkpoint` removes the old file before it writes the new one, and the job was killed in between. **Check**
**Fix** on your `DiskSaver`, whose write replaces the old file in one step, `disk.remove = lambda name: None` under a fixed name; under numbered names `n_saved=2`. **Check**
### More memory on GPU 0 after resuming
**Means** each rank loaded the file to the device it was saved from. **Check**
**Fix** `torch.load(path, map_location="cpu")`. **Check**
### Every line appears once per rank
**Means** plain `logging`, `print`, or a logger made before the group: Ignite's `setup_logger` is quiet on ranks above 0 only if called after. Progress bars and experiment loggers are not filtered. **Check**
**Fix** `setup_logger("train")` inside the function that `run` calls; ProgressBar and the like under `if idist.get_rank() == 0:`. **Check**
### Ranks above 0 log nothing
**Means** the same rule from the other side: a logger from `setup_logger` has a `NullHandler` on ranks above 0. **Check**
**Fix** `setup_logger("train", distributed_rank=0)` speaks on every rank; put the rank into the format. **Check**
### `Use data loader kwargs for dataset '…'`
**Means** information of `idist.auto_dataloader`, once per loader. **Check**
**Fix** to silence it, before the call `setup_logger("ignite.distributed.auto.auto_dataloader", level=logging.WARNING)`; a later call keeps it. **Check**
### `Nccl backend is required but no cuda capable devices`
**Means** torch has nccl, but this process sees no GPU. **Check**
**Fix** run where a GPU is, or `backend="gloo"`. **Check**
### `Current device index is less than current local rank. Please, make sure to call torch.cuda.set_device(local_rank).`
**Means** your own nccl group without a device per rank: all ranks would use GPU 0. **Check**
**Fix** `torch.cuda.set_device(local_rank)` before any Ignite or metric call, or let `idist.initialize` do it. **Check**
### `Apply torch DataParallel on model`
**Means** one process, several GPUs, no group: `idist.auto_model` wraps in `DataParallel`, which is slow. **Check**
**Fix** one process per GPU: torchrun and `idist.Parallel(backend="nccl")`; or one GPU: `CUDA_VISIBLE_DEVICES=0`. **Check**
### `Duplicate GPU detected : rank … and rank … both on CUDA device …`
**Means** more processes than GPUs on the node, or no `torch.cuda.set_device`. **Check**
**Fix** as many processes as GPUs. **Check**
### `Watchdog caught collective operation timeout`
**Means** nccl's form of `Timed out waiting`: a rank did not come; often rank 0 evaluates or prepares data longer than the timeout. **Check**
**Fix** the same collectives on all ranks; a longer timeout, `timeout=timedelta(hours=1)`, only for a wait that is meant. **Check**
<!-- log: kind=timeout text=/[Ww]atchdog caught collective operation timeout/ -->
### Hangs at the first collective with the GPUs at full load
**Means** the GPUs cannot talk peer to peer (virtual machines, some PCIe boards). **Check**
**Fix** if that helps, turn off IOMMU or ACS, or keep the variable. **Check**
### `Unknown backend 'horovod'`
**Means** `import horovod.torch` fails, so Ignite does not offer it. **Check**
**Fix** build it for this torch; a failure with `C++17 or later compatible compiler is required to use PyTorch` needs `CMAKE_CXX_STANDARD` 17 in its sources (`not verified here`: horovod 0.28.1). Otherwise use gloo or nccl. **Check**
### `Can not re-initialize Horovod if it is already initialized`
**Means** `hvd.init()` ran in a process that `idist.spawn` was about to make a rank; `idist.initialize("horovod")` takes an initialized Horovod. **Check**
**Fix** leave it to `idist.initialize("horovod")`. **Check**
### `For multi-node configuration, please set 'hosts' argument instead according to horovod.run API.`
**Means** `nnodes` or `node_rank` was given with Horovod. **Check**
**Fix** `hosts="node0:4,node1:4"` and `nproc_per_node` as the number of all processes. **Check**
### `all_reduce with group for horovod is not implemented`
**Means** what it says; likewise `all_gather with group for horovod is not implemented` for objects. Tensors can be gathered over a group, given as the text `Argument group should be list of int or hvd.ProcessSet, got …, group=…` names it. Operations there are `SUM`, `AVERAGE`, `ADASUM`, `MIN`, `MAX`, `PRODUCT`; `ADASUM` needs a Horovod with MPI. **Check**
**Fix** gather tensors and reduce by hand. **Check**
### `Unknown backend 'xla-tpu'`
**Means** `import torch_xla` fails. **Check**
**Fix** install the torch_xla of the same release as torch. **Check**
### `module 'torch_xla.core.xla_model' has no attribute 'xrt_world_size'`
**Means** torch_xla is too new for this Ignite, whose `comp_models/xla.py` still calls it. **Check**
**Fix** torch and torch_xla 2.6, the newest that was seen to work; `idist.auto_optim` fails there with `super(type, obj): obj must be an instance or subtype of type`, so call `xm.optimizer_step` yourself. **Check**
### `all_gather on object is not implemented for xla`
**Means** only tensors, numbers and str can be gathered there; a group must be a list: `Argument group should be list of int`. **Check**
**Fix** gather tensors. **Check**
### `Found incompatible options: xla support and pin_memory args equal True.`
**Means** a warning; Ignite goes on: `Argument pin_memory=False will be used to construct data loader.` **Check**
**Fix** drop `pin_memory=`. **Check**
"""  # noqa: E501

if __name__ == "__main__":
    for _stream in (sys.stdout, sys.stderr):
        if hasattr(_stream, "reconfigure"):
            _stream.reconfigure(errors="backslashreplace")
    sys.exit(main())
