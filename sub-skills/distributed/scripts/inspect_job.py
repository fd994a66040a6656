#!/usr/bin/env python3
# /// script
# requires-python = ">=3.9"
# dependencies = []
# ///
"""Which rank holds a hanging job up, and at which line? Looks at the processes of this host; changes nothing.

How it is built, in four steps that do not know each other: *processes* (/proc, twice) -> *ranks* (who is rank 2, from
the environment of the processes, their locals or their order) -> *records* (per rank: state, CPU use, Python stack,
whether it waits for the other ranks, what the kernel says it waits for) -> *verdict* (a function of the records only,
so that --merge judges the records of many hosts in the same way). Text, JSON and HTML are views of one report.
Stacks come from py-spy, which reads the memory of a process without pausing it; or from the process itself, where its
program registers faulthandler on SIGUSR1. Standard library only; needs Linux.
"""

from __future__ import annotations

import argparse
import ast
import concurrent.futures
import html
import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

SCHEMA = "pytorch-ignite-inspect/1"
TROUBLE = "references/troubleshooting.md#"
STALL = "references/workflows.md#end-soon-when-one-rank-stalls"
INSTALL = "pip install py-spy"
NAME = "inspect_job.py"
DEADLINE = 12.0  # seconds after which no further stack is asked for
BUSY = 0.5  # of one core, above which a thread computes
AWAKE_LOOKS, AWAKE_PAUSE = 20, 0.01  # how often, and how many seconds apart, the kernel is asked for a wait
EPILOG = """\
exit codes:
  0  a verdict: which rank holds the job up
  1  none: the job moves, or what can be seen names nobody; the text says what to collect
  2  usage
  3  no ranks found, or this user may not look at them

examples:
  python inspect_job.py                      the only job on this host; with several, they are listed
  python inspect_job.py 4711                 the job that process 4711 (launcher, rank or shell) belongs to
  srun --jobid=7 --overlap --ntasks-per-node=1 --output=host-%t.json python inspect_job.py --slurm 7 --format json
      and then  python inspect_job.py --merge host-*.json  for one picture of all hosts
"""

RULES = {  # id: (what is seen, what it means and what to do, where the pages say more)
    "stopped": (
        "A rank is stopped (state T) while others wait for it.",
        "Somebody sent it SIGSTOP, or a debugger or a job scheduler suspended it. `kill -CONT PID` lets it go on.",
        STALL,
    ),
    "ended": (
        "A rank has ended while others wait for it.",
        "It left early: a return, an exit or an exception that was handled on that rank only. A launcher does not end "
        "the others when a rank ends with status 0. All ranks must take the same decision.",
        TROUBLE + "a-rank-leaves-early",
    ),
    "missing": (
        "A rank of the world is not on this host, and the ranks that are here wait.",
        "It runs on another host (look there and --merge), or was never started.",
        TROUBLE + "timed-out-after--seconds-waiting-for-clients--clients-joined",
    ),
    "address": (
        "The ranks wait for each other at different addresses, or count on different numbers of ranks.",
        "MASTER_ADDR, MASTER_PORT and WORLD_SIZE must be the same for all ranks of a job.",
        TROUBLE + "timed-out-after--seconds-waiting-for-clients--clients-joined",
    ),
    "outside": (
        "A rank stands in the program's own code, steadily, while others wait for it in a collective.",
        "What it waits for is named where the kernel says so: sleep, lock, file lock, pipe, socket, child, disk.",
        STALL,
    ),
    "slow": (
        "A rank computes, or moves between the two looks, while others wait for it in a collective.",
        "An endless loop, more work than the others have, or a slow host. Look again: does it still stand there?",
        STALL,
    ),
    "loader": (
        "A rank waits for its own helper process (DataLoader worker, pool), and that one stands still.",
        "The line named is the helper's. num_workers=0 shows the same error in the rank itself.",
        STALL,
    ),
    "thread": (
        "A rank waits for a thread of its own, and that one stands still.",
        "The line named is the rank's; the text says where the thread stands. Who was to wake it or to end it?",
        STALL,
    ),
    "guard": (
        "A rank is in a collective that only it has reached: the line stands under a condition on the rank.",
        "Call it on every rank; guard only the printing or writing.",
        TROUBLE + "hangs-with-the-ranks-in-different-places",
    ),
    "other-collective": (
        "All ranks are in collectives, but not in the same.",
        "One rank skipped a collective or made one more: another number of batches, a stop or an error on one rank.",
        TROUBLE + "hangs-with-the-ranks-in-different-places",
    ),
    "behind": (
        "All ranks are at the same line, and the loop counter of one differs.",
        "One rank skipped a turn or made one more.",
        TROUBLE + "hangs-with-the-ranks-in-different-places",
    ),
    "odd-one": (
        "No rank is seen in a collective; one stands elsewhere than the others.",
        "The others may wait for it by other means: a file, a socket, a queue.",
        STALL,
    ),
    "same-place": (
        "All ranks wait in the same collective at the same line.",
        "Nobody here holds the job up: a rank on another host, or the network between them.",
        TROUBLE + "gloo-connectfullmesh-failed-with-",
    ),
    "moving": (
        "All ranks move between the two looks.",
        "The job is not hanging now. For a slow job look several times, or profile it.",
        "",
    ),
    "same-code": (
        "All ranks stand at the same line of the program's own code.",
        "They do not wait for each other: what that line waits for holds all of them up.",
        "",
    ),
    "unknown": (
        "What can be seen names nobody.",
        "Install py-spy, or register faulthandler on SIGUSR1 as assets/train.py does, and look again.",
        "",
    ),
}


SCENES = (  # frames of the guilty rank, and the entry of troubleshooting.md that is about them
    (r" _compute_nproc_per_node", "hangs-when-a-checkpoint-handler-is-built"),
    (r"ignite/metrics/", "hangs-when-one-rank-evaluates-or-computes-a-metric"),
    (r" new_group", "hangs-when-a-group-is-made"),
    (r"ignite/distributed/utils\.py:\d+ wrapper", "hangs-at-a-barrier-in-a-handler-of-one-rank"),
    (r"nn/parallel/distributed\.py:\d+ (forward|_pre_forward|_sync_buffers)", "hangs-in-the-forward-pass-on-one-rank"),
    (r"ignite/distributed/auto\.py:\d+ __iter__", "hangs-in-the-sampler-with-a-busy-cpu"),
)


class Stop(Exception):
    """The program ends here: message and exit code."""

    def __init__(self, message, code):
        super().__init__(message)
        self.code = code


def clean(text):
    """One line without control characters: process and file names are whatever somebody chose."""
    return "".join(c if c.isprintable() else "�" for c in str(text))


# ------------------------------------------------------------------------------------------------------------------
# Processes: what /proc says
# ------------------------------------------------------------------------------------------------------------------
PROC = "/proc"
TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
STATES = {
    "R": "running", "S": "sleeping", "D": "disk", "T": "stopped", "t": "stopped", "Z": "zombie", "X": "ended",
    "I": "idle",
}
PYTHON = re.compile(r"^(python|pypy|ipython)[\d.]*[a-z]?$|^pt_main_thread$")
HELPER = re.compile(r"multiprocessing\.(resource_tracker|semaphore_tracker)|torch/_inductor|inductor/compile_worker")
SERVER = re.compile(r"multiprocessing\.forkserver")
AGENT = re.compile(
    r"(^|/)(torchrun|accelerate|deepspeed|horovodrun)$|^(deepspeed|accelerate)\.\S*launch|^torch\.distributed\.(run|launch)$|/distributed/run\.py$"
)
STEPS = re.compile(r"slurmstepd|mpirun|orterun|mpiexec|prterun|hydra")
SYSCALLS = {
    "x86_64": {0: "read", 1: "write", 7: "poll", 20: "writev", 23: "select", 34: "pause", 35: "nanosleep",
               42: "connect", 43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 61: "wait4",
               72: "fcntl", 73: "flock", 202: "futex", 230: "nanosleep", 232: "epoll_wait", 247: "waitid",
               257: "openat", 270: "pselect6", 271: "ppoll", 281: "epoll_wait", 288: "accept", 24: "sched_yield",
               128: "sigwait", 130: "sigsuspend", 74: "fsync", 75: "fdatasync"},
    "aarch64": {63: "read", 64: "write", 73: "ppoll", 72: "pselect6", 101: "nanosleep", 115: "nanosleep",
                203: "connect", 202: "accept", 206: "sendto", 207: "recvfrom", 211: "sendmsg", 212: "recvmsg",
                260: "wait4", 25: "fcntl", 32: "flock", 98: "futex", 22: "epoll_wait", 95: "waitid", 56: "openat",
                242: "accept", 124: "sched_yield", 137: "sigwait", 133: "sigsuspend", 82: "fsync", 83: "fdatasync"},
}


class Process:
    """What /proc says of one process at one moment. `env` is None where this user may not read it."""

    def __init__(self, pid, stat):
        name, rest = stat[stat.index("(") + 1 : stat.rindex(")")], stat[stat.rindex(")") + 2 :].split()
        self.pid, self.name, self.state, self.parent = pid, name, STATES.get(rest[0], rest[0]), int(rest[1])
        self.cpu, self.start = (int(rest[11]) + int(rest[12])) / TICKS, int(rest[19])
        self.exit = int(rest[49]) if len(rest) > 49 else 0
        self.argv = (read(f"{PROC}/{pid}/cmdline") or "").rstrip("\0").split("\0")
        self.denied = False
        self._env = None

    @property
    def env(self):
        if self._env is None:
            text = read(f"{PROC}/{self.pid}/environ")
            self.denied = text is None
            self._env = dict(v.split("=", 1) for v in (text or "").split("\0") if "=" in v)
        return self._env

    @property
    def python(self):
        return bool(PYTHON.match(os.path.basename(self.argv[0])) or PYTHON.match(self.name)) or (
            self.state != "zombie" and bool(PYTHON.match(os.path.basename(link(f"{PROC}/{self.pid}/exe")))))

    def command(self):
        text = " ".join(self.argv) if self.argv != [""] else f"[{self.name}]"
        return clean(text if len(text) < 120 else text[:117] + "...")


def read(path, limit=1 << 22):
    """Text of a file, or None where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(limit).decode(errors="replace")
    except (OSError, ValueError):
        return None


def entries(path):
    try:
        return os.listdir(path)
    except OSError:
        return []


def link(path):
    try:
        return os.readlink(path)
    except OSError:
        return ""


def processes():
    """All processes of this host: pid -> Process."""
    if not os.path.isdir(f"{PROC}/self"):
        raise Stop("needs Linux: there is no /proc here", 3)
    found = {}
    for name in os.listdir(PROC):
        if name.isdigit() and (stat := read(f"{PROC}/{name}/stat")):
            try:
                found[int(name)] = Process(int(name), stat)
            except (ValueError, IndexError):
                pass
    return found


def children_of(table):
    children = {}
    for p in sorted(table.values(), key=lambda p: (p.start, p.pid)):
        children.setdefault(p.parent, []).append(p.pid)
    return children


def below(pid, children):
    """The process and everything under it."""
    found, pending = [], [pid]
    while pending:
        found.append(pending.pop(0))
        pending += [c for c in children.get(found[-1], []) if c not in found]
    return found


def above(pid, table):
    """The parents of a process, the nearest first."""
    found = []
    while pid in table and table[pid].parent in table and table[pid].parent not in found:
        pid = table[pid].parent
        found.append(pid)
    return found


def number(text):
    return int(text) if isinstance(text, str) and text.strip().isdigit() else None


class Identity:
    """Which rank of which job a process is, as its launcher's variables say."""

    def __init__(self, key, kind, rank, local=None, world=None, local_world=None, node=None):
        self.key, self.kind, self.rank, self.local = key, kind, rank, local
        self.world, self.local_world, self.node = world, local_world, node


def identity(env):
    """Identity from the variables of torchrun, mpirun, Horovod or SLURM; None where there are none."""

    def get(name):
        return number(env.get(name))

    slurm = env.get("SLURM_JOB_ID") and (env.get("SLURM_JOB_ID"), env.get("SLURM_STEP_ID", "batch"))
    node = env.get("SLURMD_NODENAME")
    if get("RANK") is not None and get("WORLD_SIZE"):
        elastic = env.get("TORCHELASTIC_RUN_ID")
        key = ("env", env.get("MASTER_ADDR"), env.get("MASTER_PORT"), env.get("WORLD_SIZE"), elastic)
        kind = "torchrun" if elastic else "env"
        return Identity(key, kind, get("RANK"), get("LOCAL_RANK"), get("WORLD_SIZE"), get("LOCAL_WORLD_SIZE"), node)
    if get("OMPI_COMM_WORLD_RANK") is not None:
        key = ("mpi", env.get("PMIX_NAMESPACE") or env.get("OMPI_MCA_ess_base_jobid") or env.get("PMIX_ID"))
        return Identity(key, "mpirun", get("OMPI_COMM_WORLD_RANK"), get("OMPI_COMM_WORLD_LOCAL_RANK"),
                        get("OMPI_COMM_WORLD_SIZE"), get("OMPI_COMM_WORLD_LOCAL_SIZE"), node)
    if get("HOROVOD_RANK") is not None:
        key = ("horovod", env.get("HOROVOD_GLOO_RENDEZVOUS_ADDR"), env.get("HOROVOD_GLOO_RENDEZVOUS_PORT"))
        return Identity(key, "horovodrun", get("HOROVOD_RANK"), get("HOROVOD_LOCAL_RANK"), get("HOROVOD_SIZE"),
                        get("HOROVOD_LOCAL_SIZE"), node)
    if slurm and get("SLURM_PROCID") is not None:
        world = get("SLURM_STEP_NUM_TASKS") or get("SLURM_NTASKS") or 1
        return Identity(("slurm", *slurm), "srun", get("SLURM_PROCID"), get("SLURM_LOCALID"), world,
                        slurm_tasks(env), node)
    if get("PMI_RANK") is not None:
        return Identity(("pmi", env.get("PMI_ID") or env.get("PMI_JOBID")), "mpirun", get("PMI_RANK"),
                        get("MPI_LOCALRANKID"), get("PMI_SIZE"), get("MPI_LOCALNRANKS"), node)
    return None


def slurm_tasks(env):
    """Tasks of this step on the node of the process, from a text like 2(x3),1."""
    counts = []
    for part in (env.get("SLURM_STEP_TASKS_PER_NODE") or env.get("SLURM_TASKS_PER_NODE") or "").split(","):
        if m := re.match(r"^(\d+)(?:\(x(\d+)\))?$", part):
            counts += [int(m[1])] * min(int(m[2] or 1), 100_000)
    node = number(env.get("SLURM_NODEID"))
    return counts[node] if node is not None and node < len(counts) else None


# ------------------------------------------------------------------------------------------------------------------
# Jobs: which processes are ranks, and of what
# ------------------------------------------------------------------------------------------------------------------


class Job:
    """Ranks that belong together. `tree` is the launcher of ranks that no variable names (spawn, fork)."""

    def __init__(self, kind):
        self.kind, self.ranks, self.tree, self.launchers = kind, {}, None, []  # ranks: pid -> Identity or None

    @property
    def pids(self):
        return sorted(self.ranks)

    def title(self, table):
        pid = self.launchers[0] if self.launchers else self.pids[0]
        return f"{pid}  {self.kind}, {len(self.ranks)} ranks here: {table[pid].command()}"


def inherited(who, table):
    """Helpers that have the variables of a rank which has none itself, since it set them only after its start.

    A rank made by spawn or fork sets them for its children. Where the children of one parent are different ranks, it is
    their launcher instead.
    """
    owners = {}
    for pid, mine in who.items():
        parent = next((up for up in above(pid, table) if up in who), None)
        if mine and parent and not who[parent] and not is_agent(table[parent]):
            owners.setdefault(parent, []).append(pid)
    return [pid for parent, pids in owners.items() for pid in pids
            if len({who[p].rank for p in pids}) == 1 and who[pid].world != 1
            and ("--multiprocessing-fork" in table[pid].argv or has_torch(parent))]


def has_torch(pid):
    """Whether a process has loaded PyTorch."""
    return "libtorch" in (read(f"{PROC}/{pid}/maps") or "")


def is_server(pid, table):
    """Whether a process is the fork server of multiprocessing; its children have its command line, and are not."""
    def server(p):
        return p in table and SERVER.search(" ".join(table[p].argv))

    return bool(server(pid) and not server(table[pid].parent))


def is_agent(process):
    """Whether a process is torchrun or the like, which starts ranks and is none."""
    return any(AGENT.search(word) for word in process.argv[:4])


def find_jobs(table):
    """All jobs of this host whose processes can be read."""
    children, own = children_of(table), {os.getpid(), *above(os.getpid(), table)}
    pythons = {
        p.pid for p in table.values()
        if p.python and p.pid != os.getpid() and p.state not in ("zombie", "ended")
        and not any(os.path.basename(a) in (NAME, "py-spy") for a in p.argv[:4])
        and not HELPER.search(" ".join(p.argv))
    }
    who = {pid: identity(table[pid].env) for pid in pythons}
    for pid in inherited(who, table):
        who[pid] = None
    jobs = {}

    def same(a, b):
        """One rank: its child has its variables, or those that it set for itself, as `initialize` does in SLURM."""
        return a and b and a.rank == b.rank and (a.key == b.key or a.world == b.world != 1)

    def helper(pid):
        parents = above(pid, table)
        if any((who[pid].key, who[pid].rank) == (who[up].key, who[up].rank) for up in parents if who.get(up)):
            return True
        up = next((up for up in parents if up in who), None)
        return bool(up and same(who[pid], who[up]) and not is_agent(table[up]) and has_torch(up))

    for pid in sorted(pythons, key=lambda p: (table[p].start, p)):
        mine = who[pid]
        if not mine or is_agent(table[pid]):
            continue
        if helper(pid):
            continue
        under = [who[p] for p in below(pid, children)[1:] if who.get(p)]
        if any(not same(mine, w) or w.key != mine.key and not has_torch(pid) for w in under):
            continue  # a launcher that was itself launched
        jobs.setdefault(mine.key, Job(mine.kind)).ranks[pid] = mine
    jobs = joined(jobs, table)
    for job in jobs.values():
        for pid in job.ranks:
            for up in above(pid, table):
                launcher = up in pythons or STEPS.match(table[up].name)
                if launcher and up not in job.launchers and up not in own:
                    job.launchers.append(up)
                    break
    known = {pid for job in jobs.values() for pid in job.ranks}
    inside = {p for pid in known for p in below(pid, children)}
    launchers = {up for pid in known for up in above(pid, table)}
    for pid in sorted(pythons - inside - launchers - own, key=lambda p: (table[p].start, p)):
        if is_agent(table[pid]) or any(up in pythons - launchers - own for up in above(pid, table)):
            continue
        members = [p for p in below(pid, children) if p in pythons and not is_server(p, table)]
        if any(map(has_torch, members)):
            job = jobs[("tree", pid)] = Job("python")
            job.tree, job.launchers, job.ranks = pid, [pid], {p: None for p in members}
    return list(jobs.values())


def joined(jobs, table):
    """The jobs, with those made one that one shell started and whose ranks differ: one has another address or size."""
    kept = {}
    for name, job in jobs.items():
        mine = {w.rank for w in job.ranks.values()}
        parents = {table[p].parent for p in job.ranks}
        other = next((k for k in kept.values() if job.kind == k.kind == "env" and len(parents) == 1
                      and parents == {table[p].parent for p in k.ranks} and not parents & {0, 1}
                      and not mine & {w.rank for w in k.ranks.values()}
                      and min(w.world for j in (job, k) for w in j.ranks.values()) > 1), None)
        if other:
            other.ranks.update(job.ranks)
        else:
            kept[name] = job
    return kept


def choose_job(pid, table, jobs):
    """The job that a process (launcher, rank, helper, shell above, srun) belongs to."""
    children = children_of(table)
    if pid not in table:
        raise Stop(f"there is no process {pid} on this host", 3)
    if table[pid].state == "zombie":
        raise Stop(f"process {pid} {exit_text(table[pid])}", 3)
    under = set(below(pid, children))
    if table[pid].name == "srun" or any(table[p].name == "srun" for p in under):
        sruns = [p for p in under if table[p].name == "srun"]
        ports = {port for p in sruns for port in listening(p)}
        hit = [j for j in jobs if any(number(table[p].env.get("SLURM_SRUN_COMM_PORT")) in ports for p in j.ranks)]
        if not hit:
            wanted = {w for p in sruns for w in slurm_ids(table[p])}
            hit = [j for j in jobs if any(table[p].env.get("SLURM_JOB_ID") in wanted for p in j.ranks)]
        if len(hit) == 1:
            return hit[0]
        if len(hit) > 1:
            raise several(hit, table)
    hit = [j for j in jobs if j.tree is None
           and (set(j.ranks) & under or any(pid in below(p, children) for p in j.ranks))]
    hit = hit or [j for j in jobs if set(j.ranks) & under or (j.tree and pid in below(j.tree, children))]
    if len(hit) > 1:
        raise several(hit, table)
    if hit:
        return hit[0]
    denied = [p for p in under if table[p].python and table[p].env == {} and table[p].denied]
    if denied:
        raise Stop(not_permitted(f"process {denied[0]}"), 3)
    pythons = [p for p in below(pid, children) if table[p].python and table[p].state != "zombie"
               and not HELPER.search(" ".join(table[p].argv)) and p != os.getpid() and not is_agent(table[p])
               and not is_server(p, table)]
    if pythons:  # torch may not even be imported yet
        job = Job("python")
        job.tree, job.launchers, job.ranks = pythons[0], [pythons[0]], {p: None for p in pythons}
        return job
    raise Stop(f"no rank at or under process {pid} ({table[pid].command()}): not started yet, or ended", 3)


def several(jobs, table):
    lines = "\n".join(f"  {NAME} {job.title(table)}" for job in jobs)
    return Stop(f"{len(jobs)} jobs; name one by a process of it:\n{lines}", 2)


def not_permitted(what):
    return (f"{what} belongs to another user, or may not be traced: not permitted. Run as its user or as root "
            "(sudo); in a container, start that with --cap-add=SYS_PTRACE")


def slurm_ids(process):
    """Job numbers that an srun process mentions."""
    ids = [process.env.get("SLURM_JOB_ID", "")]
    for i, word in enumerate(process.argv):
        if m := re.match(r"--jobid=?(\d*)", word):
            ids.append(m[1] or (process.argv[i + 1] if i + 1 < len(process.argv) else ""))
    return [i for i in ids if i]


def listening(pid):
    """TCP ports on which a process listens."""
    mine = {target for target in descriptors(pid).values() if target.startswith("socket:")}
    return {s["local"][1] for s in sockets(pid) if s["state"] == "0A" and f"socket:[{s['inode']}]" in mine}


def descriptors(pid):
    """fd -> what it points to."""
    try:
        return {int(fd): link(f"{PROC}/{pid}/fd/{fd}") for fd in os.listdir(f"{PROC}/{pid}/fd")}
    except OSError:
        return {}


def sockets(pid):
    """TCP sockets in the network namespace of a process."""
    found = []
    for name in ("tcp", "tcp6"):
        for line in (read(f"{PROC}/{pid}/net/{name}") or "").splitlines()[1:]:
            part = line.split()
            if len(part) > 9:
                found.append({"local": address(part[1]), "remote": address(part[2]), "state": part[3],
                              "inode": part[9]})
    return found


def address(text):
    """("127.0.0.1", 80) from 0100007F:0050."""
    host, port = text.split(":")
    if len(host) == 8:
        name = ".".join(str(b) for b in bytes.fromhex(host)[::-1])
    else:
        raw = b"".join(bytes.fromhex(host[i : i + 8])[::-1] for i in range(0, 32, 8))
        mapped = raw[:12] == b"\0" * 10 + b"\xff\xff"
        name = socket.inet_ntoa(raw[12:]) if mapped else socket.inet_ntop(socket.AF_INET6, raw)
    return name, int(port, 16)


# ------------------------------------------------------------------------------------------------------------------
# Stacks: py-spy, or faulthandler of the process itself
# ------------------------------------------------------------------------------------------------------------------
RANK_NAMES = ("rank", "global_rank", "local_rank", "proc_id", "process_id", "worker_rank")
COUNTERS = ("step", "epoch", "iteration", "it", "batch_idx", "batch_index", "global_step", "iter_counter", "i", "idx",
            "turn", "n_iter", "round")
KEPT = {*RANK_NAMES, *COUNTERS, "node_rank", "world_size", "nprocs", "nproc_per_node", "nprocs_per_node", "src", "dst"}


class Frame:
    """One Python frame; `ints` are the few local integers that are kept (ranks, sizes, loop counters)."""

    def __init__(self, path, line, function, ints=None):
        self.path, self.line, self.function = path, line, function.split(".")[-1]
        self.ints = ints or {}

    def __eq__(self, other):
        return (self.path, self.line, self.function) == (other.path, other.line, other.function)

    def __hash__(self):
        return hash((self.path, self.line, self.function))


def find_py_spy(table, pids):
    """Path of py-spy: on PATH, beside this Python or beside the Python of the job; None if there is none."""
    folders = os.environ.get("PATH", "").split(os.pathsep) + [os.path.dirname(sys.executable or "")]
    folders += [os.path.expanduser("~/.local/bin")]
    for pid in filter(same_user, pids[:4]):  # root must not run what another user put beside a job
        if os.sep in table[pid].argv[0]:
            folders.append(os.path.dirname(table[pid].argv[0]))
        env = table[pid].env
        folders += [os.path.join(env[v], "bin") for v in ("VIRTUAL_ENV", "CONDA_PREFIX") if env.get(v)]
        folders += env.get("PATH", "").split(os.pathsep)
    return shutil.which("py-spy", path=os.pathsep.join(f for f in folders if os.path.isabs(f)))


def same_user(pid):
    try:
        return os.stat(f"{PROC}/{pid}").st_uid == os.getuid()
    except OSError:
        return False


def py_spy(program, pid, until):
    """Threads of a process: [(thread id, name, [Frame, innermost first])], and what went wrong or None."""
    error = "py-spy gave no answer in time"
    for attempt in range(3):  # it reads a running process, whose stack may change under it
        left = until - time.monotonic()
        if left <= 0:
            break
        argv = [program, "dump", "--nonblocking", "--json", "--full-filenames", "--locals", "--pid", str(pid)]
        try:
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=min(left, 8))
        except subprocess.TimeoutExpired:
            continue
        except OSError as e:
            return [], f"py-spy cannot be run: {e.strerror}"
        if done.returncode == 0:
            try:
                return [thread_of(t) for t in json.loads(done.stdout.decode(errors="replace"))], None
            except (ValueError, TypeError, KeyError, AttributeError):
                error = "py-spy gave no readable answer"
        else:
            lines = [x for x in done.stderr.decode(errors="replace").splitlines() if x.strip()]
            error = clean(lines[0] if lines else f"py-spy ended with {done.returncode}")
            if "ermission" in " ".join(lines):
                return [], "not permitted"
        time.sleep(0.05 * attempt)
    return [], error


def thread_of(dump):
    frames = []
    for f in dump.get("frames") or []:
        ints = {}
        for v in f.get("locals") or []:
            if v.get("name") in KEPT and re.fullmatch(r"-?\d{1,12}", str(v.get("repr"))):
                ints[v["name"]] = int(v["repr"])
        frames.append(Frame(str(f.get("filename")), int(f.get("line") or 0), str(f.get("name")), ints))
    return dump.get("os_thread_id") or 0, dump.get("thread_name") or "", frames


def signals_of(pid):
    """Whether SIGUSR1 is caught (not ignored, not deadly) and not blocked."""
    text, bit = read(f"{PROC}/{pid}/status") or "", 1 << (signal.SIGUSR1 - 1)
    masks = dict(re.findall(r"^(Sig\w+):\s*([0-9a-f]+)$", text, re.M))
    return bool(int(masks.get("SigCgt", "0"), 16) & bit) and not int(masks.get("SigBlk", "0"), 16) & bit


def registers_faulthandler(process):
    """Whether the program of a process registers faulthandler, and nothing else, on SIGUSR1, as far as its source says.

    Looks at the script and at the files that it imports from its own folder.
    """
    cwd = link(f"{PROC}/{process.pid}/cwd")
    script = next((a for a in process.argv[1:] if a.endswith(".py")), None)
    if not script or not cwd:
        return False
    first = os.path.join(cwd, script)
    texts = [source_text(process.pid, first) or ""]
    for module in re.findall(r"^\s*(?:from|import)\s+(\w+)", texts[0], re.M)[:50]:
        texts.append(source_text(process.pid, os.path.join(os.path.dirname(first), f"{module}.py")) or "")
    text = "\n".join(texts)
    mine = re.search(r"\bregister\(\s*(signum\s*=\s*)?(signal\.)?SIGUSR1\b", text) and "faulthandler" in text
    other = re.search(r"\b(signal|sigaction|add_signal_handler)\(\s*(signal\.)?(Signals\.)?SIGUSR1\b", text)
    elsewhere = re.search(r"register\([^)\n]*SIGUSR1[^)\n]*file\s*=", text)
    return bool(mine and not other and not elsewhere)


def faulthandler_stack(process, until, forced):
    """Threads of a process from its own faulthandler, and what went wrong or None.

    Sends SIGUSR1 only where it is caught. The text goes to the process's standard error, so that must be a file which
    this user can read.
    """
    if process.state == "stopped":
        return [], "it is stopped, and could not answer SIGUSR1"
    if not signals_of(process.pid):
        return [], "it does not catch SIGUSR1, so none is sent"
    if not forced and not registers_faulthandler(process):
        return [], "it catches SIGUSR1, but its source does not show that faulthandler does (--sigusr1 says so)"
    target = f"{PROC}/{process.pid}/fd/2"
    try:
        if not os.path.isfile(target):
            return [], f"faulthandler would write to {clean(link(target))}, which cannot be read: look at the job's log"
        with open(target, "rb") as log:
            log.seek(0, os.SEEK_END)
            os.kill(process.pid, signal.SIGUSR1)
            text, wait = b"", min(until, time.monotonic() + 1.5)
            while time.monotonic() < wait:
                more = log.read()
                text += more
                if text and not more and b"(most recent call first)" in text:
                    break
                time.sleep(0.05)
    except OSError as e:
        return [], f"its standard error cannot be read: {e.strerror}"
    threads = parse_faulthandler(text.decode(errors="replace"), process.pid)
    return threads, None if threads else "no answer to SIGUSR1 in its standard error"


def parse_faulthandler(text, pid):
    """Threads in a faulthandler text; the current one, which handles the signal, is the main thread."""
    threads = []
    for line in text.splitlines():
        if m := re.match(r"^(Current thread|Thread) (0x[0-9a-f]+).*\(most recent call first\)", line):
            main = m[1] != "Thread"
            threads.append((pid if main else 0, "MainThread" if main else m[2], []))
        elif (m := re.match(r'^  File "(.*)", line (\d+) in (.*)$', line)) and threads:
            threads[-1][2].append(Frame(m[1], int(m[2]), m[3]))
    return threads


# ------------------------------------------------------------------------------------------------------------------
# Records: what a stack means
# ------------------------------------------------------------------------------------------------------------------
LIBRARY = re.compile(
    r"/(site|dist)-packages/|/lib(64)?/python\d[\d.]*/|^<frozen|/lib/pypy|^<__array_function__|^<eval_with_key"
    r"|multiprocessing-fork|/python\d+\.zip/"
)
SHIPPED = re.compile(r"/(torch|ignite|horovod|deepspeed|accelerate|lightning|pytorch_lightning|torch_xla)/")
C10D = re.compile(r"torch/distributed/distributed_c10d\.py$")
IDIST = re.compile(r"ignite/distributed/(utils|launcher|auto)\.py$")
GROUP_CALLS = (  # public functions of torch.distributed that wait for others
    "all_gather all_gather_coalesced all_gather_object all_gather_into_tensor all_gather_single all_reduce "
    "all_reduce_coalesced all_to_all all_to_all_single barrier batch_isend_irecv broadcast broadcast_object_list "
    "destroy_process_group gather gather_object init_process_group irecv isend monitored_barrier new_group "
    "new_subgroups new_subgroups_by_enumeration recv recv_object_list reduce reduce_scatter reduce_scatter_single "
    "reduce_scatter_tensor scatter scatter_object_list send send_object_list split_group shrink_group"
).split()
POINT = ("send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list")
C_CALL = re.compile(
    r"\.(wait|monitored_barrier)\(|\bstore\w*\.(get|wait|multi_get|barrier)\(|\bTCPStore\(|\.synchronize\("
)
GPU_CODE = re.compile(r"/torch/(nn|optim|amp|cuda|autograd|_tensor|functional)\b")
GPU_CALL = re.compile(r"\.(item|cpu|tolist|numpy|to)\(")
VIA = (  # the first that is on the stack
    (re.compile(r"ignite/metrics/"), "metric compute"), (re.compile(r"ignite/handlers/checkpoint\.py$"), "checkpoint"),
    (re.compile(r"ignite/handlers/"), "handler"), (re.compile(r"torch/nn/parallel/"), "DistributedDataParallel"),
    (re.compile(r"torch/distributed/fsdp/"), "FSDP"),
    (re.compile(r"torch/distributed/_?(checkpoint|optim|composable|tensor)/"), "torch.distributed"),
    (re.compile(r"ignite/distributed/auto\.py$"), "idist.auto_…"),
)
SIDE = ("metric compute", "checkpoint", "handler")
HELPER_WAIT = re.compile(
    r"torch/utils/data/dataloader\.py$|multiprocessing/(connection|pool|process|popen_\w+|queues|managers|context)\.py$"
    r"|concurrent/futures/(process|_base)\.py$|torch/multiprocessing/"
)
WORKER_TOP = re.compile(r"multiprocessing/process\.py$|torch/utils/data/_utils/worker\.py$")
SPAWN_JOIN = re.compile(r"torch/multiprocessing/spawn\.py$")


def is_library(frame):
    return bool(LIBRARY.search(frame.path)) or frame.path in ("<string>", "None", "")


def users_frames(frames):
    """The frames of the user's own code; code that is installed counts where there is no other."""
    mine = [f for f in frames if not is_library(f)]
    if not mine:
        mine = [f for f in frames if "-packages/" in f.path and not SHIPPED.search(f.path)]
    return mine or [f for f in frames if f.path == "<string>" and f.function != "<module>"]


def own_part(frames):
    """What a process that multiprocessing started runs itself: a forked one has the frames of its parent below."""
    for i, f in enumerate(frames):
        if WORKER_TOP.search(f.path) and f.function in ("_bootstrap", "_worker_loop"):
            return frames[:i]
    return frames


def waits_for_ranks(frames, source, busy, gpu):
    """What a thread waits for the other ranks in: {"call", "via", "peer"} or None."""
    mine = users_frames(frames)
    inner = frames[: frames.index(mine[0])] if mine else frames
    via = next((name for pattern, name in VIA if any(pattern.search(f.path) for f in inner)), "")
    group = [f for f in inner if C10D.search(f.path) and f.function in GROUP_CALLS]
    helper = [f for f in inner if IDIST.search(f.path)]
    if group or any("ignite/distributed/comp_models/" in f.path for f in inner[:2]):
        if helper:
            call = helper[0].function
            via = via or (helper[-1].function if helper[-1].function != call else "")
        elif group:
            call = group[-1].function
        else:
            call = inner[0].function
        peer = next((f.ints[n] for f in group[-1:] for n in ("src", "dst") if n in f.ints), None)
        return {"call": call, "via": via, "peer": peer if call in POINT else None}
    for f in inner:
        if re.search(r"torch/distributed/(rendezvous|elastic/)", f.path) or C10D.search(f.path):
            init = any(g.function in ("init_process_group", "initialize") for g in inner)
            return {"call": "init_process_group" if init else f.function, "via": "rendezvous" if init else "",
                    "peer": None}
        if re.search(r"/(horovod|torch_xla|deepspeed/comm)/", f.path):
            return {"call": f.function, "via": via, "peer": None}
        if re.search(r"torch/(distributed/|nn/parallel/distributed\.py|utils/_functional_collectives)", f.path) and (
                f is inner[0] and not busy):
            return {"call": f.function, "via": via or "torch.distributed", "peer": None}
    if inner and "torch/autograd/" in inner[0].path and not busy:
        return {"call": "backward", "via": "gradients of DistributedDataParallel", "peer": None}
    if inner and re.search(r"torch/cuda/(__init__|streams)\.py$", inner[0].path) and "synchronize" in inner[0].function:
        return {"call": "cuda synchronize", "via": "", "peer": None}
    if gpu and inner and GPU_CODE.search(inner[0].path):
        return {"call": inner[0].function, "via": "work of the GPU", "peer": None}
    if inner and re.search(r"multiprocessing/synchronize\.py$|threading\.py$", inner[0].path) and any(
            re.search(r"threading\.py$", f.path) and f.function == "wait" and g.path.endswith("threading.py")
            and g.function in ("_wait", "_enter") for f, g in zip(inner, inner[1:])):
        return {"call": "multiprocessing.Barrier", "via": "", "peer": None}
    if not inner and source and C_CALL.search(source) and not busy:
        return {"call": C_CALL.search(source)[0].strip(".("), "via": "", "peer": None}
    if not inner and source and gpu and GPU_CALL.search(source):
        return {"call": GPU_CALL.search(source)[0].strip(".("), "via": "result of the GPU", "peer": None}
    return None


def waits_for_helper(frames):
    """Whether a thread waits for a child process or another thread of its own: "process", "thread" or None."""
    mine = users_frames(frames)
    inner = frames[: frames.index(mine[0])] if mine else frames
    if any(HELPER_WAIT.search(f.path) for f in inner):
        return "process"
    if any(f.path.endswith("threading.py") and f.function in ("join", "_shutdown", "_wait_for_tstate_lock")
           for f in inner) or any("concurrent/futures/" in f.path for f in inner):
        return "thread"
    return None


SOURCES = {}  # path -> (text, tree)


def source_text(pid, path):
    """The source of a file as the process sees it (it may be in a container)."""
    for name in (f"{PROC}/{pid}/root{path}", path):
        if os.path.isfile(name) and (text := read(name, 1 << 20)) is not None:
            return text
    return None


def source_of(pid, path):
    if path not in SOURCES:
        text = source_text(pid, path) if os.path.isabs(path) else None
        tree = None
        if text:
            try:
                tree = ast.parse(text)
                name_ranks(tree)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                pass
        SOURCES[path] = (text.splitlines() if text else [], tree)
    return SOURCES[path]


RANKISH = re.compile(r"(^|_)(rank|ranks|procid|is_main|is_master|main_process|is_chief|is_leader|rank0|rank_zero)(_|$)|"
                     r"(^|_)(master|chief|leader|main)(_process|_rank|_node)?$", re.I)
POLL = re.compile(r"wait|poll|barrier|sync|until|exists|is_?file|is_?dir|glob|listdir|stat$|access|ready", re.I)
LEAVE = (ast.Return, ast.Break, ast.Continue, ast.Raise)


def name_ranks(tree):
    """Give variables that hold only the rank, or whether this is the first one, a name that says so."""
    values = {}
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            pairs = [(target, getattr(node, "value", None))]
            if isinstance(target, ast.Tuple) and isinstance(node, ast.Assign):
                same = isinstance(node.value, ast.Tuple) and len(node.value.elts) == len(target.elts)
                pairs = list(zip(target.elts, node.value.elts if same else [None] * len(target.elts)))
            for name in (n for n, _ in pairs if isinstance(n, ast.Name)):
                values.setdefault(name.id, []).extend(v for n, v in pairs if n is name)
        if isinstance(node, ast.arg):
            values.setdefault(node.arg, []).append(None)
        elif isinstance(node, (ast.For, ast.comprehension)):
            for name in (n for n in ast.walk(node.target) if isinstance(n, ast.Name)):
                values.setdefault(name.id, []).append(None)
    meant = {n: m.pop() for n, v in values.items() if len(m := set(map(rank_value, v))) == 1 and None not in m}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in meant and not RANKISH.search(node.id):
            node.id = meant[node.id]


def rank_value(node):
    """"rank" for an expression that is the rank, "is_main" for one that compares it; None for any other."""
    if isinstance(node, ast.Compare) and rank_value(node.left) == "rank" and singled_out(node) == "body":
        return "is_main"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "int" and len(node.args) == 1:
        node = node.args[0]
    words = [*words_of(node), *(n.value for n in ast.walk(node) if isinstance(n, ast.Constant))] if node else []
    if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in (
            "get_rank", "get_local_rank"):
        return "rank"
    if {"environ", "getenv"} & {w for w in words if isinstance(w, str)} and any(
            w in ("RANK", "LOCAL_RANK", "SLURM_PROCID") for w in words) and isinstance(node, (ast.Call, ast.Subscript)):
        return "rank"
    return "rank" if isinstance(node, ast.Name) and RANKISH.search(node.id) and node.id.endswith("rank") else None


def about_rank(node):
    """Whether an expression asks which rank this is."""
    return any(map(RANKISH.search, words_of(node))) or any(
        rank_value(n) for n in ast.walk(node) if isinstance(n, (ast.Call, ast.Subscript)))


def singled_out(test):
    """Which branch of `if test` is for few ranks: "body", "orelse", or None where the test does not tell."""
    if not about_rank(test):
        return None
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return {"body": "orelse", "orelse": "body"}.get(singled_out(test.operand))
    if isinstance(test, ast.BoolOp):
        return "body" if isinstance(test.op, ast.And) and any(singled_out(v) == "body" for v in test.values) else None
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        if any(isinstance(n, ast.BinOp) for n in ast.walk(test.left)):  # rank % 2 == 0
            return None
        op = test.ops[0]
        return "body" if isinstance(op, (ast.Eq, ast.In, ast.Is, ast.Lt, ast.LtE)) else "orelse"
    named = test.func if isinstance(test, ast.Call) else test
    if {"environ", "getenv"} & set(words_of(named)):  # whether it is set is no question of which rank
        return None
    name = getattr(named, "attr", getattr(named, "id", ""))
    return "orelse" if name.endswith("rank") else "body"  # `if rank:` is for all but rank 0


def guard_of(pid, frame):
    """The condition on the rank that a line stands under, as "text (line)"; "" if there is none.

    Counts the branch of an `if` that is for few ranks, what follows `if rank…: return`, the body of
    `with one_rank_first(…)`, the decorator one_rank_only, and handlers attached under such a condition.
    """
    lines, tree = source_of(pid, frame.path)
    if not tree:
        return ""

    def text(node):
        return f"`{clean(lines[node.lineno - 1].strip()[:80])}` (line {node.lineno})"

    def holds(body, line=frame.line):
        return any(n.lineno <= line <= (n.end_lineno or n.lineno) for n in body)

    found = ""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and (branch := singled_out(node.test)):
            other = getattr(node, "orelse" if branch == "body" else "body")
            if holds(getattr(node, branch)):
                if not calls(getattr(node, branch), frame.line) & (calls(other) | {"send", "recv", "isend", "irecv"}):
                    found = text(node)
            elif any(attached(call, frame.function) for n in getattr(node, branch) for call in ast.walk(n)):
                found = found or text(node)
        elif isinstance(node, (ast.With, ast.AsyncWith)) and holds(node.body):
            if any("one_rank_first" in ast.dump(item.context_expr) for item in node.items):
                found = text(node)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and holds([node]):
            if any("one_rank_only" in ast.dump(d) for d in node.decorator_list) and holds(node.body):
                found = f"`@one_rank_only` (line {node.lineno})"
            if node.name == frame.function:
                for before in ast.walk(node):
                    if isinstance(before, ast.If) and singled_out(before.test) == "orelse" and (
                            before.end_lineno < frame.line and leaves(before)):
                        found = found or text(before)
    return found


def guard_end(pid, frame):
    """Last line of the outermost `if` on the rank whose branch for few ranks holds a line; None if there is none."""
    _, tree = source_of(pid, frame.path)
    return max((n.end_lineno for n in (ast.walk(tree) if tree else ()) if isinstance(n, ast.If) and (
        b := singled_out(n.test)) and any(x.lineno <= frame.line <= x.end_lineno for x in getattr(n, b))), default=None)


def polls(pid, frames):
    """Whether a user's frame stands in a loop that sleeps until something shows: the test or body of a `while`, or a
    `for`, with a call of sleep, and words of waiting in it or in the name of the function.
    """
    for frame in frames[:2]:
        _, tree = source_of(pid, frame.path)
        for n in ast.walk(tree) if tree else ():
            if isinstance(n, (ast.While, ast.For)) and n.lineno <= frame.line <= n.end_lineno and calls([n]) & {
                    "sleep", "wait"} and any(POLL.search(w) for w in [frame.function, *words_of(n)]):
                return True
    return False


def words_of(node):
    """The names in a piece of source."""
    return [n.id if isinstance(n, ast.Name) else n.attr for n in ast.walk(node)
            if isinstance(n, (ast.Name, ast.Attribute))]


def calls(body, line=None):
    """Names of the functions called in statements, or at one line of them."""
    return {getattr(n.func, "attr", getattr(n.func, "id", "")) for top in body for n in ast.walk(top)
            if isinstance(n, ast.Call) and (line is None or n.lineno <= line <= n.end_lineno)}


def in_branch(pid, frame):
    """Whether a line stands in the branch of an `if` that is for few ranks, whatever the other branch does."""
    _, tree = source_of(pid, frame.path)
    return any(isinstance(n, ast.If) and (b := singled_out(n.test)) and any(
        x.lineno <= frame.line <= x.end_lineno for x in getattr(n, b)) for n in (ast.walk(tree) if tree else ()))


def attached(call, function):
    """Whether a node is a call that attaches the function as a handler."""
    return (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
            and call.func.attr in ("add_event_handler", "on", "attach")
            and any(isinstance(a, ast.Name) and a.id == function for a in call.args))


def leaves(node):
    """Whether the body of an `if` ends the function, the loop or the program."""
    last = node.body[-1]
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        name = ast.dump(last.value.func)
        return "'exit'" in name or "'_exit'" in name or "'terminate'" in name
    return isinstance(last, LEAVE)


def exits_before(pid, frames):
    """Where a rank may have left early: lines `if rank…: return / exit` above the place where the others wait."""
    found = []
    for frame in frames:
        lines, tree = source_of(pid, frame.path)
        for node in ast.walk(tree) if tree else ():
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == frame.function:
                found += [(frame, n) for n in ast.walk(node) if isinstance(n, ast.If) and about_rank(n.test)
                          and leaves(n) and not isinstance(n.body[-1], ast.Continue)]
    unique = {(f.path, n.lineno): (f, n) for f, n in found}
    return [{"path": f.path, "line": n.body[-1].lineno, "function": f.function,
             "source": source_of(pid, f.path)[0][n.lineno - 1].strip()[:80]} for f, n in unique.values()]


def short(path, roots):
    """A path as its owner would write it: under the folder of the script or the working folder, else whole."""
    for marker in ("-packages/",):
        if marker in path:
            return path.rsplit(marker, 1)[1]
    if m := re.search(r"/lib(?:64)?/python\d[\d.]*/(.*)$", path):
        return m[1]
    for root in roots:
        if root and root != "/" and path.startswith(root.rstrip("/") + "/"):
            return path[len(root.rstrip("/")) + 1 :]
    return path


def kernel_wait(process, thread, job_pids, table):
    """What the kernel says a thread waits for: {"what", "text", "by"}; `by` are pids that could end the wait."""
    where = f"{PROC}/{process.pid}/task/{thread}"
    for _ in range(AWAKE_LOOKS):  # a loop of short sleeps is awake now and then
        words = (read(f"{where}/syscall") or "").split()
        wchan = (read(f"{where}/wchan") or "").strip().strip("0")
        if wchan or words[:1] != ["running"]:
            break
        time.sleep(AWAKE_PAUSE)
    call = SYSCALLS.get(os.uname().machine, {}).get(number(words[0])) if words else None
    target, fd = "", None
    if call in ("read", "write", "recvfrom", "recvmsg", "sendto", "sendmsg", "connect", "accept", "flock", "fcntl",
                "writev", "fsync", "fdatasync") and len(words) > 1:
        fd = int(words[1], 16)
        target = link(f"{PROC}/{process.pid}/fd/{fd}")
    if call is None:
        for part, name in (("nanosleep", "nanosleep"), ("futex", "futex"), ("pipe_read", "pipe"), ("flock", "flock"),
                           ("locks_lock", "flock"), ("do_wait", "wait4"), ("poll", "poll"), ("epoll", "epoll_wait"),
                           ("skb", "recvfrom"), ("tty", "tty")):
            if part in wchan:
                call = name
                break
    if call == "nanosleep":
        return {"what": "sleep", "text": "sleeps", "by": []}
    if call == "futex":
        return {"what": "lock", "text": "waits for a lock or for another thread", "by": []}
    if call in ("flock", "fcntl"):
        holders = lock_holders(process.pid)
        name = clean(target) or "a file"
        held = f", held by pid {', '.join(map(str, holders))}" if holders else ""
        return {"what": "file lock", "text": f"waits for the lock of {name}{held}", "by": holders}
    if call in ("wait4", "waitid"):
        kids = [p for p in table.values() if p.parent == process.pid and p.state != "zombie"
                and not HELPER.search(" ".join(p.argv))]
        names = "; ".join(f"{k.pid} ({k.command()}, {k.state})" for k in kids[:3])
        return {"what": "child", "text": f"waits for a child process{': ' + names if names else ''}", "by": []}
    if target.startswith("socket:"):
        peer, by = other_end(process.pid, target, job_pids)
        return {"what": "socket", "text": f"waits for a socket{peer}", "by": by}
    if target.startswith("pipe:") or call == "pipe":
        by = [p for p in job_pids if p != process.pid and target and target in descriptors(p).values()]
        return {"what": "pipe", "text": f"{'writes to' if call == 'write' else 'reads from'} a pipe"
                + (" (standard input)" if fd == 0 else ""), "by": by}
    if call in ("read", "tty") and (fd == 0 or call == "tty" or target.startswith(("/dev/tty", "/dev/pts"))):
        return {"what": "input", "text": f"reads {clean(target) or 'a terminal'}"
                + (" (standard input)" if fd == 0 else ""), "by": []}
    if call in ("read", "write", "fsync", "fdatasync", "writev") and target:
        return {"what": "file", "text": f"is in {call} of {clean(target)}", "by": []}
    if call in ("poll", "ppoll", "select", "pselect6", "epoll_wait"):
        return {"what": "poll", "text": "waits for a socket, a pipe or a time to pass", "by": []}
    if call in ("pause", "sigwait", "sigsuspend"):
        return {"what": "signal", "text": "waits for a signal", "by": []}
    if call == "openat":
        return {"what": "file", "text": "opens a file (a named pipe without a partner, or a file system that does not "
                "answer)", "by": []}
    return {"what": "", "text": f"waits in the kernel ({clean(wchan)})" if wchan else "", "by": []}


def lock_holders(pid):
    """Pids that hold the file lock a process waits for."""
    holders, wanted = {}, None
    for line in (read(f"{PROC}/locks") or "").splitlines():
        m = re.match(r"^(\d+): (-> )?\S+\s+\S+\s+\S+\s+(-?\d+)", line)
        if m and m[2] and int(m[3]) == pid:
            wanted = m[1]
        elif m and not m[2]:
            holders.setdefault(m[1], []).append(int(m[3]))
    return [p for p in holders.get(wanted, []) if p > 0]


def other_end(pid, target, job_pids):
    """Text about the other end of a socket, and the pids of the job that have it."""
    table = sockets(pid)
    mine = next((s for s in table if f"socket:[{s['inode']}]" == target), None)
    if not mine:
        return "", []
    if mine["state"] == "0A":
        return f" (listens on port {mine['local'][1]})", []
    partner = next((s for s in table if s["local"] == mine["remote"] and s["remote"] == mine["local"]), None)
    by = [p for p in job_pids if partner and f"socket:[{partner['inode']}]" in descriptors(p).values()]
    return f" to {mine['remote'][0]}:{mine['remote'][1]}", by


def thread_cpu(pid, thread):
    """Seconds that one thread has computed or wanted to: on a crowded host it may have waited for a core."""
    words = (read(f"{PROC}/{pid}/task/{thread}/schedstat") or "").split()
    if len(words) > 1 and words[0].isdigit() and int(words[0]):
        return (int(words[0]) + int(words[1])) / 1e9
    stat = read(f"{PROC}/{pid}/task/{thread}/stat")
    rest = stat[stat.rindex(")") + 2 :].split() if stat and ")" in stat else []
    return (int(rest[11]) + int(rest[12])) / TICKS if len(rest) > 12 else 0.0


def turns(pid, thread):
    """What the scheduler counted for a thread: text that changes as soon as it runs, and how often it ran."""
    text = read(f"{PROC}/{pid}/task/{thread}/schedstat") or ""
    words = text.split()
    return text, int(words[2]) if len(words) > 2 and words[2].isdigit() else 0


class Look:
    """One look at one process: its threads, what the scheduler counted for them, and when.

    Threads that have not run since the look before stand where they stood, and are not asked again.
    """

    def __init__(self, pid, table, take, before=None):
        self.turns = {int(t): turns(pid, t) for t in entries(f"{PROC}/{pid}/task") if t.isdigit()}
        if before and before.threads and all(
                self.turns.get(t, ("",))[0] == before.turns.get(t, ("?",))[0] != "" for t, *_ in before.threads):
            self.threads, self.error = before.threads, before.error
        else:
            self.threads, self.error = ([], "") if table.get(pid) is None else take(table[pid])
        stat = read(f"{PROC}/{pid}/stat")
        self.process = None
        if stat:
            try:
                self.process = Process(pid, stat)
            except (ValueError, IndexError):
                pass
        self.cpu, self.at = {t: thread_cpu(pid, t) for t in [pid, *(x[0] for x in self.threads)] if t}, time.monotonic()

    def frames(self, pid):
        """The main thread's."""
        return own_part(next((frames for tid, _, frames in self.threads if tid == pid),
                             self.threads[0][2] if self.threads else []))


def look_twice(pids, ranks, table, take, interval, say):
    """Two looks at each process: pid -> (Look, Look). Helpers of a rank that waits for other ranks are left out."""

    def all_of(pids, table, before):
        with concurrent.futures.ThreadPoolExecutor(min(8, 2 * (os.cpu_count() or 2))) as pool:
            return dict(zip(pids, pool.map(lambda pid: Look(pid, table, take, before.get(pid)), pids)))

    say(f"reading {len(pids)} processes, and again in {interval:g} s")
    began = time.monotonic()
    helpers = [p for p in pids if p not in ranks or table[p].name == "pt_data_worker"]
    first = all_of([p for p in pids if p not in helpers], table, {})
    fine = {p for p, look in first.items() if waits_for_ranks(look.frames(p), "", True, False)}
    first.update(all_of([p for p in helpers if not fine & set(above(p, table))], table, {}))
    time.sleep(max(0.0, interval - (time.monotonic() - began)))
    table = processes()
    second = all_of(list(first), table, first)
    return {pid: (first[pid], second[pid]) for pid in first}, table


def standing(a, b):
    """The stack in which a thread stands over two looks: the common outer part where it moved; and whether it moved.

    A loop shows as the same function at two lines, or as calls that come and go: then the outermost frame that differs
    only in its line is kept with the line of the second look.
    """
    if a == b or not a or not b:
        return (b or a), False
    x, y, keep = a[::-1], b[::-1], []
    for f, g in zip(x, y):
        if f == g:
            keep.append(g)
        else:
            if (f.path, f.function) == (g.path, g.function):
                keep.append(g)
            break
    return keep[::-1] or b, True


def describe(pid, who, looks, table, job_pids, helpers, gpu):
    """The record of one rank, as the report holds it."""
    one, two = looks[pid]
    process = two.process or one.process or table.get(pid)
    base = {"rank": who.rank if who else None, "local_rank": who.local if who else None,
            "world_size": who.world if who else None, "host": host_of(who), "pid": pid,
            "address": ":".join(map(str, who.key[1:3])) if who and who.kind == "env" else "",
            "rank_from": "environment" if who else "unknown", "group": 0, "waits": None, "site": None,
            "helper": None, "kernel": None, "moved": False, "chain": [], "exits": [], "counters": {}, "wakes": 0}
    if process is None or process.state in ("zombie", "ended"):
        return {**base, "state": "zombie" if process else "ended", "cpu": 0.0, "command": "", "stack": [],
                "stack_before": [], "threads": [], "note": exit_text(process) if process else "has ended"}
    script = next((a for a in process.argv[1:] if a.endswith(".py")), "")
    cwd = link(f"{PROC}/{pid}/cwd")
    if not script and os.path.isfile(os.path.join(cwd, process.argv[-1])):
        script = process.argv[-1]
    roots = [os.path.dirname(os.path.normpath(os.path.join(cwd, script))) if script else "", cwd]
    frames, moved, thread = focus(pid, one, two)
    if moved and thread == pid and waits_for_ranks(two.frames(pid), "", True, False):
        frames = two.frames(pid)  # it has come to where it waits
    elapsed = max(0.01, two.at - one.at)
    used = max(0.0, two.cpu.get(thread, 0.0) - one.cpu.get(thread, 0.0)) / elapsed
    total = max(0.0, process.cpu - (one.process.cpu if one.process else 0.0)) / elapsed
    busy = used > BUSY
    base["wakes"] = two.turns.get(thread, ("", 0))[1] - one.turns.get(thread, ("", 0))[1]
    full = two.frames(pid) if thread == pid else frames
    mine = users_frames(frames)
    place = mine[0] if mine else None
    inner = full[: full.index(mine[0])] if mine and mine[0] in full else full
    lines = source_of(pid, place.path)[0] if place else []
    source = lines[place.line - 1].strip()[:120] if place and 0 < place.line <= len(lines) else ""
    waits = None
    if process.state != "stopped" or frames:
        waits = waits_for_ranks(frames, source, busy, gpu)
    record = {**base, "state": process.state, "cpu": round(total, 2), "command": process.command(), "moved": moved,
              "busy": busy, "note": two.error or "", "waits": waits,
              "stack": shown(full, roots),
              "stack_before": shown(one.frames(pid), roots) if moved else [],
              "threads": other_threads(pid, thread, two, roots)}
    if process.state != "stopped":
        nothing = {"what": "", "text": "", "by": []}
        record["kernel"] = nothing if busy else kernel_wait(process, thread, job_pids, table)
    if place:
        record["site"] = site(pid, place, roots, source)
        record["site"]["guard"] = next((g for f in mine if (g := guard_of(pid, f))), "")
        record["site"]["few"] = any(in_branch(pid, f) for f in mine)
        ends = [f"{shown([f], roots)[0].split(' ', 1)[1]} {end}" for f in mine if (end := guard_end(pid, f))]
        record["site"]["ends"] = ends[0] if ends else ""
        record["site"]["polls"] = not waits and not busy and polls(pid, mine) and not any(
            re.search(r"torch/utils/data/", f.path) for f in full)
        record["chain"] = shown(mine, roots)
        record["counters"] = {f"{f.function}.{n}": v for f in full for n, v in f.ints.items() if n in COUNTERS
                              and (f in mine or n == "iter_counter")}
        record["exits"] = [{**e, "file": short(e["path"], roots)} for e in exits_before(pid, mine)] if waits else []
        if any("one_rank_only" in f.function or "one_rank_only" in f.path for f in full) or any(
                f.path.endswith("ignite/distributed/utils.py") and f.function == "wrapper" for f in full):
            record["site"]["guard"] = record["site"]["guard"] or "one_rank_only"
    waiting = None if waits else waits_for_helper(frames)
    if waiting or (not waits and any(looks[h][1].process and looks[h][1].process.state == "stopped"
                                                  for h in helpers)):
        record["helper"] = stuck_helper(helpers, looks, roots, any("dataloader" in f.path for f in inner))
    pooled = any(re.search(r"multiprocessing/pool|concurrent/futures", f.path) for f in inner)
    if (waiting == "thread" or pooled) and not record["helper"]:
        record["helper"] = stuck_thread(pid, thread, one, two, roots)
    return record


def shown(frames, roots):
    """Frames as a report holds them."""
    return [f"{clean(short(f.path, roots))}:{f.line} {clean(f.function)}" for f in frames]


def site(pid, frame, roots, source):
    return {"file": short(frame.path, roots), "line": frame.line, "function": frame.function, "path": frame.path,
            "source": clean(source)}


def host_of(who):
    return (who.node if who and who.node else None) or socket.gethostname()


def exit_text(process):
    code = process.exit
    if os.WIFSIGNALED(code):
        try:
            name = signal.Signals(os.WTERMSIG(code)).name
        except ValueError:
            name = str(os.WTERMSIG(code))
        return f"has ended, killed by {name}; its parent has not collected it"
    return f"has ended with status {os.WEXITSTATUS(code)}; its parent has not collected it"


def focus(pid, one, two):
    """Frames of the thread that tells where a process stands, whether it moved, and the thread's id.

    The main thread, unless that one only waits for a thread of its own that waits for other ranks.
    """
    frames, moved = standing(one.frames(pid), two.frames(pid))
    if frames and waits_for_helper(frames) == "thread":
        for tid, _, other in two.threads:
            if tid and tid != pid and users_frames(other) and waits_for_ranks(other, "", False, False):
                before = next((f for t, _, f in one.threads if t == tid), other)
                return (*standing(before, other), tid)
    return frames, moved, pid


def other_threads(pid, thread, look, roots):
    """Other threads that run the user's code, for the eye."""
    found = []
    for tid, name, frames in look.threads:
        if tid not in (pid, thread) and users_frames(frames) and len(found) < 8:
            found.append({"name": clean(name), "stack": shown(frames, roots)})
    return found


def stuck_helper(helpers, looks, roots, loader):
    """The child process that a rank waits for and that stands still in the user's code, or is stopped; or None."""
    best = None
    for pid in helpers:
        one, two = looks[pid]
        if not two.process:
            continue
        frames, moved = standing(one.frames(pid), two.frames(pid))
        mine = users_frames(frames)
        stopped = two.process.state == "stopped"
        if not (mine or stopped):
            continue
        place = mine[0] if mine else None
        lines = source_of(pid, place.path)[0] if place else []
        source = lines[place.line - 1].strip()[:120] if place and 0 < place.line <= len(lines) else ""
        kernel = kernel_wait(two.process, pid, [], {}) if not stopped else {"text": "is stopped"}
        entry = {"pid": pid, "kind": "DataLoader worker" if loader else "child process", "state": two.process.state,
                 "moved": moved, "site": site(pid, place, roots, source) if place else None,
                 "text": kernel["text"], "stack": shown(frames, roots)}
        weight = (stopped, not moved)
        if best is None or weight > best[0]:
            best = (weight, entry)
    return best[1] if best else None


def stuck_thread(pid, thread, one, two, roots):
    """The thread that a rank's main thread waits for and that stands still in the user's code; or None."""
    for tid, name, frames in two.threads:
        before = next((f for t, _, f in one.threads if t == tid), None)
        if tid in (pid, thread) or not tid or before is None:
            continue
        frames, moved = standing(before, frames)
        mine = users_frames(frames)
        if mine:
            lines = source_of(pid, mine[0].path)[0]
            source = lines[mine[0].line - 1].strip()[:120] if 0 < mine[0].line <= len(lines) else ""
            return {"pid": pid, "kind": f"thread {clean(name)}", "state": "sleeping", "moved": moved, "text": "",
                    "site": site(pid, mine[0], roots, source),
                    "stack": shown(frames, roots)}
    return None


def spawned_ranks(job, looks, table):
    """Ranks of a job without launcher variables: pid -> Identity or None, helpers: rank pid -> pids, world or None.

    The root is a launcher where its main thread waits for its children or its children talk to a process group.
    """
    children, members = children_of(table), [p for p in job.ranks if p in looks]

    def frames(pid):
        return looks[pid][1].frames(pid) or looks[pid][0].frames(pid)

    def is_launcher(pid):
        """Joins its children, which are no workers of a loader or a pool."""
        kids = [c for c in children.get(pid, []) if c in members]
        kids += [g for c in children.get(pid, []) if c in table and is_server(c, table)
                 for g in children.get(c, []) if g in members]
        kids = [k for k in kids if table[k].name != "pt_data_worker"]
        if kids and not frames(pid) and not any(map(frames, kids)):  # no stacks at all
            return kids
        if not kids or any("dataloader" in f.path or "multiprocessing/pool" in f.path for f in frames(pid)[:12]):
            return []
        if any(f.function == "_worker_loop" for k in kids for look in looks[k] for *_, fs in look.threads for f in fs):
            return []
        # a fork has the frames of its parent below _wrap
        own = [*itertools.takewhile(lambda f: not (SPAWN_JOIN.search(f.path) and f.function == "_wrap"), frames(pid))]
        joins = [f for f in own if SPAWN_JOIN.search(f.path) or re.search(
            r"multiprocessing/(process|popen_\w+)\.py$", f.path) and f.function in ("join", "wait", "poll")]
        top = own[:1] == users_frames(own)[:1]  # the innermost call is the user's own, such as os.waitpid
        if joins or (top and not waits_for_ranks(frames(pid), "", False, False)
                     and any(waits_for_ranks(frames(k), "", False, False) for k in kids)):
            return kids
        return []

    def launched(pid, depth=0):
        kids = is_launcher(pid)
        return [x for k in kids for x in launched(k, depth + 1)] if kids and depth < 4 else [pid]

    ranks = launched(job.tree)
    if ranks == [job.tree]:
        kids = [c for c in children.get(job.tree, []) if c in members]
        if any(waits_for_ranks(frames(k), "", False, False) for k in kids):  # the root is itself a rank
            ranks = [job.tree, *kids]
    world = nprocs = None
    for f in frames(job.tree):
        nprocs = f.ints.get("nprocs", nprocs)
    identities, order = {}, {pid: i for i, pid in enumerate(sorted(ranks, key=lambda p: (table[p].start, p)
                                                                     if p in table else (0, p)))}
    for pid in ranks:
        local = rank = None
        for f in reversed(frames(pid)):  # outermost first
            if f.function == "_dist_worker_task_fn" and "local_rank" in f.ints:
                local, world = f.ints["local_rank"], f.ints.get("world_size", world)
                nprocs = f.ints.get("nprocs_per_node", nprocs)
                rank = f.ints.get("node_rank", 0) * (nprocs or 0) + local
                break
            if SPAWN_JOIN.search(f.path) and f.function == "_wrap" and "i" in f.ints:
                local = f.ints["i"]
            if not is_library(f):
                name = next((n for n in RANK_NAMES if n in f.ints), None)
                if name and rank is None:
                    rank, world = f.ints[name], f.ints.get("world_size", world)
        source = "locals" if rank is not None or local is not None else "order"
        told = None if rank is not None else next(
            (w for c in children.get(pid, []) if c in table and (w := identity(table[c].env))), None)
        if told:  # what it has set for its children
            rank, local, world, source = told.rank, told.local, told.world or world, "children"
        rank = rank if rank is not None else local if local is not None else order[pid]
        identities[pid] = (Identity(("tree", job.tree), "python", rank, local if local is not None else rank, None,
                                    nprocs), source)
    ranks_seen = [w.rank for w, _ in identities.values()]
    if len(set(ranks_seen)) != len(ranks_seen):  # the locals meant something else
        for pid in identities:
            identities[pid] = (Identity(("tree", job.tree), "python", order[pid], order[pid], None, nprocs), "order")
    for who, _ in identities.values():
        who.world = world or (nprocs if nprocs else len(ranks))
        if ranks == [job.tree]:  # no launcher was looked at: its other children may well be alive
            who.local_world = None
    return identities


def missing_here(job, idents, table):
    """Ranks that this host should have and has not: records with state "ended"."""
    nodes = {}
    for pid, who in idents.items():
        parent = "" if who.kind in ("python",) else next(iter(above(pid, table)), 0)
        if who.kind == "srun":
            parent = who.node
        nodes.setdefault(parent, []).append(who)
    found, known = [], {w.rank for w in idents.values()}
    world = max((w.world or 0 for w in idents.values()), default=0)
    for members in nodes.values():
        expected = max((w.local_world or 0 for w in members), default=0)
        locals_here = {w.local for w in members if w.local is not None}
        offsets = {w.rank - w.local for w in members if w.local is not None}
        for local in range(min(expected, 4096)):
            if local in locals_here or not locals_here:
                continue
            rank = offsets.copy().pop() + local if len(offsets) == 1 else None
            if rank in known or (rank is not None and rank >= world > 0):
                continue
            found.append((rank, local, members[0]))
    unnamed = [m for m in found if m[0] is None]
    left = sorted(set(range(world)) - known - {m[0] for m in found})
    if unnamed and len(left) == len(unnamed):
        found = [m for m in found if m[0] is not None] + [(r, local, w) for r, (_, local, w) in zip(left, unnamed)]
    return [{"rank": rank, "local_rank": local, "world_size": world or None, "host": host_of(who), "pid": None,
             "rank_from": "absence", "group": 0, "state": "ended", "cpu": 0.0, "command": "", "stack": [],
             "stack_before": [], "threads": [], "moved": False, "waits": None, "site": None, "helper": None,
             "kernel": None, "chain": [], "exits": [], "counters": {}, "wakes": 0,
             "note": "has ended, though started here"} for rank, local, who in found]


def read_job(job, table, options, say):
    """The report of this host, without a verdict: launcher, ranks, notes."""
    children, own = children_of(table), os.getpid()
    helpers = {}
    for pid in job.ranks:
        helpers[pid] = [p for p in below(pid, children)[1:] if table[p].python and p != own and p not in job.ranks
                        and table[p].state != "zombie" and not HELPER.search(" ".join(table[p].argv))][:64]
    everyone = [*job.ranks, *(h for hs in helpers.values() for h in hs)]
    until, notes = time.monotonic() + DEADLINE, []
    spy = options.py_spy or find_py_spy(table, list(job.ranks))
    if not spy:
        notes.append(f"py-spy is not installed, so Python stacks cannot be read: {INSTALL}")

    def take(process):
        if process.state in ("zombie", "ended"):
            return [], ""
        threads, error = py_spy(spy, process.pid, until) if spy else ([], "no py-spy")
        if not threads and process.pid in job.ranks and process.python:
            more, why = faulthandler_stack(process, until, options.sigusr1)
            return more, "" if more else f"no stack: {error}; {why}"
        return threads, "" if threads else f"no stack: {error}"

    looks, table = look_twice(everyone, job.ranks, table, take, options.interval, say)
    helpers = {pid: [h for h in hs if h in looks] for pid, hs in helpers.items()}
    errors = [looks[p][1].error for p in job.ranks if p in looks and looks[p][1].error]
    if any("not permitted" in e for e in errors):
        scope = (read(f"{PROC}/sys/kernel/yama/ptrace_scope") or "").strip()
        notes.append(not_permitted("a rank") + (f"; kernel.yama.ptrace_scope is {scope}" if scope else ""))
    if job.tree is not None:
        found = spawned_ranks(job, looks, table)
        for pid in found:
            helpers[pid] = [p for p in below(pid, children)[1:] if p in looks and p not in found]
        idents, origin = {p: w for p, (w, _) in found.items()}, {p: o for p, (_, o) in found.items()}
    else:
        idents, origin = dict(job.ranks), {}
    gpus = graphics(list(idents))
    records = []
    for pid, who in idents.items():
        gpu = bool(gpus.get(pid)) or any(t.startswith("/dev/nvidia") for t in descriptors(pid).values())
        record = describe(pid, who, looks, table, everyone, helpers.get(pid, []), gpu)
        record["rank_from"] = origin.get(pid, "environment")
        if pid in gpus:
            record["gpu"] = gpus[pid]
        by = (record["kernel"] or {}).pop("by", [])
        record["blocked_by"] = sorted({idents[r].rank for b in by for r in idents
                                       if r != pid and b in (r, *helpers.get(r, []))})
        records.append(record)
    zombies = [p for p in table.values() if p.state == "zombie" and p.parent in (job.launchers or [0]) and p.python]
    gone = missing_here(job, idents, table)
    for record, z in zip(gone, zombies if len(zombies) == len(gone) else []):
        record["note"], record["pid"], record["state"] = exit_text(z), z.pid, "zombie"
    launcher = {"kind": job.kind, "pid": job.launchers[0] if job.launchers else None}
    records.sort(key=lambda r: (r["rank"] is None, r["rank"] or 0))
    return {"launcher": launcher, "ranks": records + gone, "notes": notes}


def graphics(pids):
    """pid -> text about its memory and load on GPUs, from nvidia-smi where there is one."""
    if not shutil.which("nvidia-smi"):
        return {}

    def ask(*query):
        try:
            done = subprocess.run(["nvidia-smi", *query, "--format=csv,noheader,nounits"], stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=4)
        except (OSError, subprocess.TimeoutExpired):
            return []
        return [[c.strip() for c in row.split(",")] for row in done.stdout.splitlines()] if done.returncode == 0 else []

    load = {row[0]: row[1:] for row in ask("--query-gpu=uuid,index,utilization.gpu") if len(row) == 3}
    found = {}
    for row in ask("--query-compute-apps=pid,gpu_uuid,used_memory"):
        if len(row) == 3 and number(row[0]) in pids and row[1] in load:
            index, used = load[row[1]]
            found[int(row[0])] = f"GPU {index}: {row[2]} MiB, {used} % busy"
    return found


# ------------------------------------------------------------------------------------------------------------------
# Verdict: a function of the records
# ------------------------------------------------------------------------------------------------------------------


def judge(ranks):
    """The verdict over records of ranks, which may come from many hosts; also sets `group` in each record."""
    form_groups(ranks)
    alive = [r for r in ranks if r["state"] not in ("zombie", "ended")]
    gone = [r for r in ranks if r not in alive]
    stopped = [r for r in alive if r["state"] == "stopped"]
    waiting = [r for r in alive if r["waits"] and r not in stopped]
    outside = [r for r in alive if r not in waiting and r not in stopped and r["stack"]]
    blind = [r for r in alive if not r["stack"] and r not in stopped]
    absent = absent_ranks(ranks)
    if not ranks:
        return nothing("unknown", "no ranks")
    if alive and all(r["moved"] for r in alive) and not gone and len(alive) > 1:
        return nothing("moving", f"all {len(alive)} ranks moved between the two looks: the job is not hanging")
    if len(alive) == len(ranks) == 1 and (alive[0]["world_size"] or 1) == 1:
        return alone(alive[0])
    if stopped and (waiting or outside or blind or gone or absent or len(stopped) < len(alive)):
        return found("stopped", stopped, waiting, "high" if waiting or blind or outside else "medium", "is stopped")
    if stopped:
        return found("stopped", stopped, [], "high", "is stopped")
    guards = guarded(waiting, [*outside, *gone])
    astray = outside and not gone and gone_alone(waiting, outside, guards)
    if astray:
        what = f"under {guards[0]['site']['guard']}," if guards else "which most do not come to,"
        return found("guard", astray, outside, "high" if guards else "medium",
                     f"is alone in {call_text(astray[0])}, {what}")
    if guards and (not outside or all(r["moved"] for r in outside)) and (len(gone) != 1 or len(waiting) == 1):
        rest = [r for r in alive if r not in guards]
        few = len(guards) == 1 or len(guards) < len(rest)
        sure = "high" if few and rest and all(r in waiting for r in rest) else "medium"
        return found("guard", guards, [r for r in waiting if r not in guards], sure,
                     f"is alone in {call_text(guards[0])}, under {guards[0]['site']['guard']},")
    if gone and outside and not waiting and len(gone) <= len(outside) and len({key(r) for r in outside}) == 1 and all(
            map(polls_alone, outside)):
        return left_early(gone, outside)
    if outside and (waiting or gone or blind):
        return by_outsiders(outside, waiting, gone)
    if gone and (waiting or blind):
        return left_early(gone, waiting)
    if waiting and not outside and (few := other_address(waiting)):
        size, where = few[0]["world_size"], few[0]["address"]
        return found("address", few, [r for r in waiting if r not in few], "high" if len(few) * 2 < len(waiting)
                     else "medium", f"waits for {size} ranks at {where}, unlike the others,")
    if waiting and absent and len({key(r) for r in waiting}) == 1:
        return not_here(absent, waiting)
    if waiting and not outside and not blind:
        return by_calls(waiting, absent)
    if outside and not waiting:
        return by_places(outside)
    if blind:
        return by_kernel(alive)
    return nothing("unknown", "what can be seen names nobody")


def form_groups(ranks):
    """Number the places at which ranks stand, the fullest first."""
    places = {}
    for r in ranks:
        places.setdefault(key(r), []).append(r)
    for i, members in enumerate(sorted(places.values(), key=lambda m: (-len(m), ranks.index(m[0])))):
        for r in members:
            r["group"] = i


def key(record):
    """Where a rank stands, comparable between hosts."""
    w, s = record["waits"], record["site"]
    if w:
        return ("waits", w["call"], w["via"], s and (s["file"], s["line"], s["function"]))
    if record["state"] in ("stopped", "zombie", "ended"):
        return (record["state"],)
    h = record["helper"] and record["helper"]["site"]
    return ("stands", s and (s["file"], s["line"], s["function"]), h and (h["file"], h["line"], h["function"]))


def names(ranks):
    """"rank 2" or "ranks 0–3,5"."""
    numbers = sorted(r["rank"] for r in ranks if r["rank"] is not None)
    parts, i = [], 0
    while i < len(numbers):
        j = i
        while j + 1 < len(numbers) and numbers[j + 1] == numbers[j] + 1:
            j += 1
        parts.append(str(numbers[i]) if i == j else f"{numbers[i]},{numbers[j]}" if j == i + 1
                     else f"{numbers[i]}–{numbers[j]}")
        i = j + 1
    parts += ["?"] * sum(r["rank"] is None for r in ranks)
    return f"rank{'s' if len(ranks) > 1 else ''} {','.join(parts)}"


def does(ranks, what):
    """Ranks and what they do, with the verb in the right number: "rank 2 sleeps", "ranks 2,3 sleep"."""
    verb, rest = (what.split(" ", 1) + [""])[:2]
    if len(ranks) > 1:
        verb = {"is": "are", "has": "have", "was": "were"}.get(verb, verb[:-1] if verb.endswith("s") else verb)
    return f"{names(ranks)} {verb} {rest}".rstrip()


def call_text(record):
    w = record["waits"]
    return w["call"] + (f" ({w['via']})" if w["via"] else "") if w else ""


def at(site):
    return f"{site['function']}, {site['file']}:{site['line']}" if site else "a place that is not known"


def wait_texts(waiting):
    """"ranks 0,1,3 wait in all_reduce (metric compute; validate, train.py:88)", one for each place."""
    places = {}
    for r in waiting:
        places.setdefault(key(r), []).append(r)
    texts = []
    for members in list(places.values())[:3]:
        r = members[0]
        texts.append(does(members, f"waits in {call_text(r)} at {at(r['site'])}" if r["waits"] else
                          f"{doing(r)} at {at(r['site'])}"))
    if len(places) > 3:
        texts.append(f"others in {len(places) - 3} more places")
    return "; ".join(texts)


def nothing(rule, text, ranks=()):
    waits = next((r["waits"]["call"] for r in ranks if r["waits"]), None)
    return {"guilty_ranks": [], "where": None, "waiting_in": waits, "text": text, "confidence": "low", "rule": rule,
            "see": see(rule)}


def see(rule, guilty=()):
    """Where the pages say more: the entry of the scene that the stacks show, else that of the rule."""
    stack = "\n".join(f for r in guilty for f in r.get("stack", ()))
    if rule in ("guard", "other-collective", "slow"):
        for pattern, entry in SCENES:
            if re.search(pattern, stack):
                return TROUBLE + entry
    return RULES[rule][2] or None


def found(rule, guilty, waiting, confidence, what, where=None):
    """A verdict; `what` says what the guilty do, their place follows."""
    first = next((r for r in guilty if r["site"]), guilty[0])
    helper = first["helper"]
    thread = helper if is_thread(helper) else None
    place = where or (helper["site"] if helper and helper["site"] and not thread else first["site"])
    calls = [r["waits"]["call"] for r in waiting if r["waits"]]
    text = does(guilty, what)
    if thread:
        text += f" at {at(thread['site'])} (`{thread['site']['source']}`)" if thread["site"] else ""
        text += f"; the rank itself stands at {at(first['site'])}" if first["site"] else ""
    elif helper and helper["site"]:
        text += f" at {at(helper['site'])}"
        text += f" (the rank itself stands at {at(first['site'])})" if first["site"] else ""
    elif place and not where:
        text += f" at {at(place)}"
    if where:
        text += f"; probably it left at {at(where)}"
    if place and place.get("source"):
        text += f": `{place['source']}`"
    if waiting:
        text += f"; {wait_texts(waiting)}"
    if not place and (sites := [r["site"] for r in waiting if r["site"]]):
        place = max(sites, key=lambda s: sum((o["file"], o["line"]) == (s["file"], s["line"]) for o in sites))
        text += f" (where {names(guilty)} would stand is not known: the line named is that at which the others wait)"
    return {"guilty_ranks": sorted(r["rank"] for r in guilty if r["rank"] is not None),
            "where": {k: place.get(k) for k in ("file", "line", "function", "path")} if place else None,
            "waiting_in": max(set(calls), key=calls.count) if calls else None,
            "text": clean(text), "confidence": confidence, "rule": rule, "see": see(rule, guilty)}


def doing(record):
    """What a rank does that does not wait for other ranks, as a verb phrase."""
    helper, kernel = record["helper"], record["kernel"] or {}
    if helper:
        state = "is stopped" if helper["state"] == "stopped" else helper["text"] or "stands still"
        who = helper["kind"] if is_thread(helper) else f"{helper['kind']} (pid {helper['pid']})"
        return f"waits for its {who}, which {state}"
    if any("importlib" in frame for frame in record["stack"][:40]):
        return "imports modules"
    if record["moved"] and not record.get("busy"):
        return "moves, " + (kernel.get("text") or "but stays")
    if record.get("busy"):
        return f"computes ({record['cpu']:.0%} of a core)"
    if record["state"] == "disk":
        return "is in uninterruptible sleep (state D, disk or network file system): " + (kernel.get("text") or "")
    if record["blocked_by"] and kernel.get("text"):
        return f"{kernel['text']} (rank {', '.join(map(str, record['blocked_by']))})"
    return kernel.get("text") or "stands still"


def is_thread(helper):
    """Whether what a rank waits for is a thread of its own, and no process."""
    return bool(helper) and helper["kind"].startswith("thread")


def rule_of(record):
    if record["helper"]:
        return "thread" if is_thread(record["helper"]) else "loader"
    return "slow" if record["moved"] or record.get("busy") else "outside"


def guarded(waiting, others):
    """Those who wait in a collective under a condition on the rank that others have not entered; [] if none."""
    groups = {}
    for r in waiting:
        groups.setdefault(key(r), []).append(r)
    if len(groups) < 2 and not others:
        return []
    calls = {r["waits"]["call"] for r in waiting}
    hit = [m for m in groups.values() if all(r["site"] and r["site"]["guard"] for r in m)]
    if not hit or (len(calls) == 1 and len(groups) > 1 and len(hit) == len(groups)):
        return []  # both branches of one `if` may hold the same call
    hit.sort(key=len)
    if len(hit) > 1 and len(hit[0]) == len(hit[1]):
        return []
    if len(hit[0]) * 2 > len(waiting) + len(others):
        return []
    return hit[0]


def gone_alone(waiting, outside, guards):
    """The few that went into a collective to which those outside do not come: they wait elsewhere, by other means.

    Either these look again and again, all at one line, and are more than those in the collective; or they have passed
    the guarded block in which the few are.
    """
    few = guards or waiting
    if len(few) != len(waiting) or len({key(r) for r in few}) != 1:
        return []
    if len(outside) > len(few) and len({key(r) for r in outside}) == 1 and all(
            polls_alone(r) and (guards or not before(r, few[0])) for r in outside):
        return few
    return few if guards and all(passed(few[0], r) for r in outside) else []


def polls_alone(record):
    """Whether a rank looks again and again whether something has come, and has no helper that it waits for."""
    return bool(record["site"] and record["site"].get("polls") and not record["helper"])


def fork(a, b):
    """Where two ranks part in one function: its name and the line of each; None where they part otherwise."""
    for x, y in zip(reversed(a["chain"]), reversed(b["chain"])):  # outermost first
        if x != y:
            (px, fx), (py, fy) = (z.split(" ", 1) for z in (x, y))
            (px, _, lx), (py, _, ly) = px.rpartition(":"), py.rpartition(":")
            return (fx, int(lx), int(ly)) if (px, fx) == (py, fy) else None
    return None


def before(a, b):
    """Whether a rank is on its way to where another one is: in the same function, at a line further up."""
    parted = fork(a, b)
    return bool(parted and parted[1] < parted[2])


def passed(few, other):
    """Whether a rank has left behind the guarded block in which another one is."""
    function, _, end = ((few["site"] or {}).get("ends") or "").rpartition(" ")
    parted = fork(few, other)
    return bool(parted and number(end) and parted[0] == function and parted[1] <= int(end) < parted[2])


def by_outsiders(outside, waiting, gone):
    """Some ranks are in no collective: they hold the others up."""
    held = {r["rank"] for r in outside}
    chained = [r for r in outside if set(r["blocked_by"]) & held]
    first = [r for r in outside if r not in chained] or outside
    if len({key(r) for r in first}) > 1:  # one that looks again and again waits for one that does not
        first = [r for r in first if not r["wakes"] or r.get("busy")] or first
    steady = [r for r in first if not r["moved"] and not r.get("busy")]
    ending = [r for r in first if not r["site"] and not r["helper"]]
    chosen = [r for r in steady if r["site"] or r["helper"]] or [r for r in first if r["site"]] or first
    places = {key(r) for r in chosen}
    sure = "high" if waiting and len(places) == 1 and not gone and chosen[0] in steady else "medium"
    if ending and ending == chosen:
        return found("ended", chosen, waiting, "medium", "is outside the program's own code (starting or ending)")
    if len(places) > 1 and waiting:
        sure = "low"
    if len(chosen) > len(waiting) + 1 and waiting:
        sure = "low"
    verdict = found(rule_of(chosen[0]), chosen, waiting, sure, doing(chosen[0]))
    if gone:
        verdict["text"] += f"; {does(gone, 'has ended')}"
        ended = {r["rank"] for r in gone if r["rank"] is not None and waiting}
        verdict["guilty_ranks"] = sorted({*verdict["guilty_ranks"], *ended})
    return verdict


def left_early(gone, waiting):
    exits = {(e["path"], e["line"]): e for r in waiting for e in r["exits"]}
    where = next(iter(exits.values())) if len(exits) == 1 else None
    note = next((r["note"] for r in gone if r["note"]), "has ended")
    return found("ended", gone, waiting, "high" if len(gone) <= len(waiting) else "medium", note, where)


def other_address(waiting):
    """The few that wait in the rendezvous at another address, or for another number of ranks, than the others."""
    groups = {}
    for r in waiting:
        groups.setdefault((r.get("address"), r["world_size"]), []).append(r)
    if len(groups) < 2 or not all(a for a, _ in groups) or any(
            r["waits"]["call"] != "init_process_group" for r in waiting):
        return []
    return min(groups.values(), key=lambda m: (len(m), any(r["rank"] == 0 for r in m)))


def absent_ranks(ranks):
    """Ranks of the world for which there is no record."""
    worlds = {r["world_size"] for r in ranks if r["world_size"]}
    if len(worlds) != 1 or max(worlds) > 100_000:
        return []
    return sorted(set(range(max(worlds))) - {r["rank"] for r in ranks})


def not_here(absent, waiting):
    missing = [{"rank": r, "site": None, "helper": None} for r in absent]
    if len(missing) > max(1, len(waiting)):
        absence = does(missing, "is not among the processes that were looked at")
        return nothing("missing", f"{wait_texts(waiting)}; {absence}: look on other hosts, and --merge the reports",
                       waiting)
    verdict = found("missing", missing, waiting, "medium", "is not among the processes that were looked at (not "
                    "started, ended, or on another host)")
    seen = [r["rank"] for r in waiting]
    if twice := sorted({r for r in seen if seen.count(r) > 1}):
        verdict["text"] += f"; {', '.join(f'rank {r} is there {seen.count(r)} times' for r in twice)}"
    return verdict


def by_calls(waiting, absent):
    """All are in collectives: the odd one is in another than most."""
    for measure in (lambda r: r["waits"]["call"], lambda r: (r["waits"]["call"], r["waits"]["via"]), key,
                    lambda r: tuple(r["chain"])):
        groups = {}
        for r in waiting:
            groups.setdefault(measure(r), []).append(r)
        if len(groups) > 1:
            break
    else:
        return by_counters(waiting, absent)
    ordered = sorted(groups.values(), key=len)
    if len(ordered[0]) < len(ordered[1]) and len(ordered) == 2:
        odd, sure = ordered[0], "high" if measure(ordered[0][0]) != key(ordered[0][0]) else "medium"
    elif len(ordered[-1]) > len(waiting) / 2:
        odd, sure = [r for m in ordered[:-1] for r in m], "medium"
    else:
        odd, sure = tie(ordered), "low"
    if absent:
        sure = "low"
    return found("other-collective", odd, [r for r in waiting if r not in odd], sure,
                 f"is in another collective, {call_text(odd[0])},")


def tie(groups):
    """Which of groups of equal size is the odd one: under a guard, aside from training, further on, not rank 0."""
    for mark in ("guard", "few"):
        marked = [m for m in groups if m[0]["site"] and m[0]["site"].get(mark)]
        if len(marked) == 1:
            return marked[0]
    aside = [m for m in groups if m[0]["waits"]["via"] in SIDE]
    if len(aside) == 1:
        return aside[0]
    a, b = groups[0], groups[1]
    for x, y in zip(reversed(a[0]["chain"]), reversed(b[0]["chain"])):  # outermost first
        if x != y:
            (px, lx), (py, ly) = ((s.rsplit(" ", 1)[-1], int(s.rsplit(" ", 1)[0].rsplit(":", 1)[1])) for s in (x, y))
            if px == py and lx != ly:
                return a if lx > ly else b
            break
    return next((m for m in groups if all(r["rank"] != 0 for r in m)), groups[0])


def by_counters(waiting, absent):
    """All are at the same line of the same collective: the loop counters may differ."""
    shared = set.intersection(*(set(r["counters"]) for r in waiting)) if waiting else set()
    for name in sorted(shared):
        groups = {}
        for r in waiting:
            groups.setdefault(r["counters"][name], []).append(r)
        if len(groups) == 2:
            few, many = sorted(groups.items(), key=lambda g: len(g[1]))
            if len(few[1]) < len(many[1]):
                return found("behind", few[1], [r for r in waiting if r not in few[1]], "medium",
                             f"has {name.rsplit('.', 1)[-1]} = {few[0]} where the others have {many[0]}")
    text = f"all {len(waiting)} ranks that were looked at {wait_texts(waiting).split(' ', 2)[-1]}"
    if absent:
        return nothing("missing", text + f"; {len(absent)} more ranks are on other hosts: look there, and --merge the "
                       "reports", waiting)
    return nothing("same-place", text + ": the network between them, or what they send, differs", waiting)


def by_places(outside):
    """Nobody is in a collective: is one elsewhere than the others?"""
    groups = {}
    for r in outside:
        groups.setdefault(key(r), []).append(r)
    ordered = sorted(groups.values(), key=len)
    chained = [r for r in outside if r["blocked_by"]]
    free = [r for r in outside if not r["blocked_by"]]
    if chained and free and len(free) < len(outside):
        owners = {b for r in chained for b in r["blocked_by"]}
        odd = [r for r in free if r["rank"] in owners] or free
        return found("odd-one", odd, [], "medium", doing(odd[0]))
    if len(ordered) == 1:
        r = ordered[0][0]
        return nothing("same-code", f"all {len(outside)} ranks stand at {at(r['site'])}, and {doing(r)}")
    still = [m for m in ordered if not any(r["moved"] for r in m)]
    polls = [m for m in ordered if all(r["site"] and re.search(
        r"wait|poll|barrier|sync|until|exists", r["site"]["function"] + " " + r["site"]["source"]) for r in m)]
    if polls and len(polls) < len(ordered):
        odd = [r for m in ordered if m not in polls for r in m]
        return found("odd-one", odd, [], "medium" if len(odd) == 1 else "low", doing(odd[0]))
    if len(ordered[0]) < len(ordered[1]) and len(ordered) == 2:
        return found("odd-one", ordered[0], [], "medium", doing(ordered[0][0]))
    asleep = [m for m in ordered if not any(r["wakes"] for r in m)]
    for odd in (still, asleep):
        if len(odd) == 1 and len(ordered) > 1:
            return found("odd-one", odd[0], [], "medium", doing(odd[0][0]))
    return nothing("unknown", "no rank is seen in a collective, and they stand in "
                   f"{len(ordered)} different places: " + "; ".join(f"{names(m)} at {at(m[0]['site'])}"
                                                                    for m in ordered[:4]))


def by_kernel(alive):
    """Without stacks: one that computes, sleeps or reads while all others wait alike."""
    groups = {}
    for r in alive:
        groups.setdefault("computes" if r.get("busy") else (r["kernel"] or {}).get("what", ""), []).append(r)
    ordered = sorted(groups.values(), key=len)
    if len(ordered) == 2 and len(ordered[0]) < len(ordered[1]):
        odd = ordered[0]
        return found("slow" if odd[0].get("busy") else "odd-one", odd, [], "low", doing(odd[0]))
    if len(ordered) == 2 and len(ordered[0]) == len(ordered[1]):
        lock = [m for m in ordered if (m[0]["kernel"] or {}).get("what") == "lock" and not m[0].get("busy")]
        if len(lock) == 1:
            odd = ordered[0] if ordered[1] is lock[0] else ordered[1]
            return found("odd-one", odd, [], "low", doing(odd[0]))
    return nothing("unknown", f"no Python stack could be read, and the kernel names nobody: {INSTALL}")


def alone(record):
    if record["moved"]:
        return nothing("moving", "the only rank moves")
    if not record["stack"]:
        return nothing("unknown", f"no Python stack of the only rank could be read: {INSTALL}")
    what = f"waits in {call_text(record)}" if record["waits"] else doing(record)
    verdict = found("outside", [record], [], "medium", what)
    if record["state"] == "stopped":
        verdict = found("stopped", [record], [], "high", "is stopped")
    return verdict


# ------------------------------------------------------------------------------------------------------------------
# Reports
# ------------------------------------------------------------------------------------------------------------------


def merge(paths):
    """One report of the reports in files; a file may hold several, and lines that are none (as srun --label makes)."""
    ranks, notes, launcher, count = {}, [], {"kind": "unknown", "pid": None}, 0
    for path in paths:
        text = sys.stdin.buffer.read().decode(errors="replace") if path == "-" else read(path, 1 << 28)
        if text is None:
            raise Stop(f"{clean(path)}: cannot be read", 2)
        reports = list(reports_in(text))
        if not reports:
            raise Stop(f"{clean(path)}: holds no report of {NAME} --format json", 2)
        for report in reports:
            count += 1
            launcher = report["launcher"] if launcher["pid"] is None else launcher
            notes += [n for n in report["notes"] if n not in notes]
            for r in report["ranks"]:
                if r["pid"] is None and any(r["rank"] == k["rank"] and k["pid"] for k in ranks.values()):
                    continue
                ranks[(r["host"], r["pid"]) if r["pid"] else ("rank", r["rank"], r["host"])] = r
    alive = {r["rank"] for r in ranks.values() if r["state"] not in ("ended", "zombie")}
    kept = [r for r in ranks.values() if r["pid"] is not None or r["rank"] not in alive]
    kept.sort(key=lambda r: (r["rank"] is None, r["rank"] or 0))
    return {"launcher": launcher, "ranks": kept, "notes": notes, "hosts": len({r["host"] for r in kept})}


def reports_in(text):
    """Reports in a text, one after the other, whatever stands between them."""
    decoder, position = json.JSONDecoder(), 0
    while (position := text.find("{", position)) >= 0:
        try:
            value, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            position = text.find("\n", position)
            if position < 0:
                return
            continue
        if isinstance(value, dict) and value.get("schema") == SCHEMA and isinstance(value.get("ranks"), list):
            yield normal(value)


def normal(report):
    """A report with every field present and of its type, whatever the file held."""

    def whole(v):
        return v if isinstance(v, int) and not isinstance(v, bool) and 0 <= v < 1 << 31 else None

    def text(v):
        return clean(v) if isinstance(v, str) else ""

    def texts(v):
        return [clean(x) for x in v if isinstance(x, str)][:500] if isinstance(v, list) else []

    def place(v):
        if not isinstance(v, dict) or whole(v.get("line")) is None:
            return None
        words = {k: text(v.get(k)) for k in ("file", "function", "path", "source", "guard", "ends")}
        return {"line": v["line"], "few": v.get("few") is True, "polls": v.get("polls") is True, **words}

    ranks = []
    for r in report["ranks"]:
        if not isinstance(r, dict):
            continue
        w, k, h = r.get("waits"), r.get("kernel"), r.get("helper")
        ranks.append({
            **{n: whole(r.get(n)) for n in ("rank", "local_rank", "world_size", "pid", "wakes")},
            **{n: text(r.get(n)) for n in ("host", "command", "note", "rank_from", "gpu", "address")},
            "state": text(r.get("state")) or "unknown", "group": 0, "moved": r.get("moved") is True,
            "busy": r.get("busy") is True, "cpu": r["cpu"] if isinstance(r.get("cpu"), (int, float)) else 0.0,
            "stack": texts(r.get("stack")), "stack_before": texts(r.get("stack_before")),
            "chain": [c for c in texts(r.get("chain")) if re.search(r":\d+ ", c)],
            "waits": {"call": text(w.get("call")), "via": text(w.get("via")), "peer": whole(w.get("peer"))}
            if isinstance(w, dict) else None,
            "site": place(r.get("site")),
            "kernel": {"what": text(k.get("what")), "text": text(k.get("text"))} if isinstance(k, dict) else None,
            "helper": {"pid": whole(h.get("pid")), "moved": h.get("moved") is True, "site": place(h.get("site")),
                       "stack": texts(h.get("stack")), **{n: text(h.get(n)) for n in ("kind", "state", "text")}}
            if isinstance(h, dict) else None,
            "threads": [{"name": text(t.get("name")), "stack": texts(t.get("stack"))} for t in r.get("threads") or []
                        if isinstance(t, dict)] if isinstance(r.get("threads"), list) else [],
            "exits": [p for e in r.get("exits") or [] if (p := place(e))] if isinstance(r.get("exits"), list) else [],
            "counters": {clean(n): v for n, v in r["counters"].items() if isinstance(v, int)}
            if isinstance(r.get("counters"), dict) else {},
            "blocked_by": [b for b in r.get("blocked_by") or [] if isinstance(b, int)]
            if isinstance(r.get("blocked_by"), list) else [],
        })
    kind = report.get("launcher") if isinstance(report.get("launcher"), dict) else {}
    return {"launcher": {"kind": text(kind.get("kind")), "pid": whole(kind.get("pid"))}, "ranks": ranks,
            "notes": texts(report.get("notes"))}


def conclude(report):
    """The report with its verdict, in the order in which it is printed."""
    for r in report["ranks"]:
        r.setdefault("blocked_by", [])
        r.setdefault("busy", False)
        r["wakes"] = r.get("wakes") or 0
    verdict = judge(report["ranks"])
    return {"schema": SCHEMA, "launcher": report["launcher"], "verdict": verdict, "ranks": report["ranks"],
            "notes": report["notes"]}


def group_lines(report):
    """(headline, records) for each group, the guilty first, then the smallest and so the oddest."""
    groups = {}
    for r in report["ranks"]:
        groups.setdefault(r["group"], []).append(r)
    guilty = set(report["verdict"]["guilty_ranks"])
    ordered = sorted(groups.values(), key=lambda m: (not any(r["rank"] in guilty for r in m), len(m)))
    for members in ordered:
        r = members[0]
        if r["state"] in ("ended", "zombie"):
            line = r["note"] or "has ended"
        elif r["state"] == "stopped":
            line = f"is stopped at {at(r['site'])}"
        elif r["waits"]:
            line = f"waits in {call_text(r)} at {at(r['site'])}"
        elif not r["stack"]:
            line = "; ".join(filter(None, (doing(r), r["note"])))
        else:
            place = None if is_thread(r["helper"]) else (r["helper"] or {}).get("site")
            line = f"{doing(r)} at {at(place or r['site'])}"
        yield clean(does(members, line)), members


def as_text(report, limit=12):
    """The report for a terminal, in a screen."""
    v, lines = report["verdict"], []
    lines.append(v["text"] if v["guilty_ranks"] else f"no verdict: {v['text']}")
    lines.append(f"confidence: {v['confidence']}   rule: {v['rule']} ({NAME} --explain {v['rule']})")
    if v["see"]:
        lines.append(f"see: {v['see']}")
    lines.append("")
    for line, members in list(group_lines(report))[:limit]:
        lines.append(line)
        for r in members[:3]:
            facts = [f"pid {r['pid']}" if r["pid"] else "no process", r["state"], f"CPU {r['cpu']:.0%}"]
            facts += [r["gpu"]] if r.get("gpu") else []
            facts += [f"rank from its {r['rank_from']}"] if r["rank_from"] in ("locals", "order", "children") else []
            lines.append(f"    rank {'?' if r['rank'] is None else r['rank']} on {r['host']}: {', '.join(facts)}")
        if len(members) > 3:
            lines.append(f"    and {len(members) - 3} more")
        r = members[0]
        stack = (r["helper"]["stack"] if r["helper"] else []) or r["stack"]
        lines += [f"      {s}" for s in stack[:8]]
        lines += [f"      … {len(stack) - 8} more (--format json has all)"] if len(stack) > 8 else []
    for note in report["notes"]:
        lines.append(f"note: {note}")
    return "\n".join(clean(x) for x in lines)


STYLE = """
:root { color-scheme: light dark; --bg: #fff; --fg: #1c2024; --mute: #60646c; --line: #d9d9e0; --card: #f7f7f9;
  --odd: #c62828; --ok: #1565c0 }
@media (prefers-color-scheme: dark) { :root { --bg: #14161a; --fg: #e8e9ec; --mute: #a0a4ad; --line: #33373f;
  --card: #1c1f25; --odd: #ff8a80; --ok: #82b1ff } }
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 70rem; padding: 1.5rem; background: var(--bg); color: var(--fg);
  font: 15px/1.5 system-ui, sans-serif }
h1 { font-size: 1.15rem; margin: 0 0 .3rem; overflow-wrap: anywhere }
h2 { font-size: 1rem; margin: 1.6rem 0 .5rem }
p { margin: .2rem 0; overflow-wrap: anywhere }
.mute { color: var(--mute) }
.cells { display: flex; flex-wrap: wrap; gap: 3px; margin: .6rem 0 }
.cell { min-width: 2.1rem; padding: .1rem .3rem; text-align: center; border: 1px solid var(--ok); border-radius: 4px;
  color: var(--ok); font: 12px/1.5 ui-monospace, monospace; text-decoration: none }
.cell.odd { border-color: var(--odd); color: var(--bg); background: var(--odd) }
section { border: 1px solid var(--line); border-left: 4px solid var(--ok); border-radius: 6px;
  background: var(--card); padding: .6rem .9rem; margin: .6rem 0 }
section.odd { border-left-color: var(--odd) }
section > p:first-child { font-weight: 600 }
pre { margin: .4rem 0; overflow-x: auto; font: 12.5px/1.45 ui-monospace, monospace }
pre b { color: var(--ok) }
section.odd pre b { color: var(--odd) }
summary { cursor: pointer }
.wide { overflow-x: auto }
table { border-collapse: collapse; font-size: 13px }
td, th { padding: .1rem .8rem .1rem 0; text-align: left; vertical-align: top }
"""


def as_html(report):
    """The report as one page: no scripts, nothing from the network, everything from the job escaped."""
    e, v = html.escape, report["verdict"]
    guilty, hosts = set(v["guilty_ranks"]), len({r["host"] for r in report["ranks"]})
    title = v["text"] if guilty else f"No verdict: {v['text']}"
    out = [
        "<!doctype html><html lang=en><head><meta charset=utf-8>",
        '<meta name=viewport content="width=device-width,initial-scale=1">',
        "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{e(v['rule'] + ': ' + names([{'rank': g} for g in guilty]) if guilty else 'no verdict')}</title>",
        f"<style>{STYLE}</style></head><body><h1>{e(title)}</h1>",
        f"<p class=mute>confidence {e(v['confidence'])} · rule {e(v['rule'])} · {len(report['ranks'])} ranks on "
        f"{hosts} host{'s' * (hosts > 1)} · launcher {e(str(report['launcher']['kind']))}</p>",
        f"<p>{e(RULES[v['rule']][0])} {e(RULES[v['rule']][1])}</p><div class=cells>",
    ]
    for r in report["ranks"]:
        odd = " odd" if r["rank"] in guilty else ""
        label = "?" if r["rank"] is None else r["rank"]
        out.append(f'<a class="cell{odd}" href="#g{r["group"]}" title="rank {label} on {e(r["host"])}">{label}</a>')
    out.append("</div><h2>Where they stand</h2>")
    for line, members in group_lines(report):
        odd = " class=odd" if any(r["rank"] in guilty for r in members) else ""
        out.append(f'<section{odd} id="g{members[0]["group"]}"><p>{e(line)}</p>')
        for r in members[:1]:
            if r["helper"] and r["helper"]["stack"]:
                out.append(f"<p class=mute>{e(r['helper']['kind'])}, pid {r['helper']['pid']}</p>"
                           + stack_html(r["helper"]["stack"], r["helper"]["site"]))
            out.append(stack_html(r["stack"], r["site"], folded=len(r["stack"]) > 12))
        out.append(f"<details><summary>evidence: {len(members)} process{'es' * (len(members) > 1)}</summary>"
                   "<div class=wide><table><tr>"
                   "<th>rank<th>host<th>pid<th>state<th>CPU<th>kernel<th>moved<th>rank from</tr>")
        for r in members:
            cells = ("?" if r["rank"] is None else r["rank"], r["host"], r["pid"] or "none", r["state"],
                     f"{r['cpu']:.0%}", " ".join(filter(None, [(r["kernel"] or {}).get("text"), r.get("gpu")])),
                     "yes" if r["moved"] else "no", r["rank_from"])
            out.append("<tr>" + "".join(f"<td>{e(str(c))}" for c in cells) + "</tr>")
        out.append("</table></div>")
        for r in members[:64]:
            label = "?" if r["rank"] is None else r["rank"]
            pieces = [("second look", r["stack"])] + ([("first look", r["stack_before"])] if r["stack_before"] else [])
            pieces += [(f"thread {t['name']}", t["stack"]) for t in r["threads"]]
            out.append(f"<details><summary>rank {label}: stacks</summary><p class=mute>{e(r['command'])}</p>"
                       + "".join(f"<p class=mute>{e(n)}</p>{stack_html(s, r['site'])}" for n, s in pieces)
                       + (f"<p>{e(r['note'])}</p>" if r["note"] else "") + "</details>")
        out.append("</details></section>")
    out += [f"<p class=mute>note: {e(n)}</p>" for n in report["notes"]]
    return "\n".join(out) + "</body></html>\n"


def stack_html(stack, site, folded=False):
    """A stack, innermost first, with the user's line marked; a long one shows the part down to that line."""
    if not stack:
        return "<p class=mute>no stack</p>"
    mark = f"{site['file']}:{site['line']} {site['function']}" if site else None
    lines = [f"<b>{html.escape(s)}</b>" if s == mark else html.escape(s) for s in stack]
    if not folded:
        return "<pre>" + "\n".join(lines) + "</pre>"
    return ("<pre>" + "\n".join(lines[:10]) + f"</pre><details><summary>{len(lines) - 10} more frames</summary><pre>"
            + "\n".join(lines[10:]) + "</pre></details>")


# ------------------------------------------------------------------------------------------------------------------
# Command line
# ------------------------------------------------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Stop(f"{message} (--help)", 2)


def interval(text):
    value = float(text)
    if not 0.1 <= value <= 60:
        raise argparse.ArgumentTypeError("between 0.1 and 60 s")
    return value


def parse(argv):
    parser = Parser(
        prog=NAME, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
        description="Finds the ranks of a hanging job on this host, looks at each twice, and says which rank holds the "
        "others up and at which line. Read-only: it pauses nothing, and sends SIGUSR1 only to a process that catches "
        "it and whose source registers faulthandler on it. Stacks need py-spy (" + INSTALL + ") or that registration.",
    )
    parser.add_argument("pid", nargs="?", type=int, metavar="PID",
                        help="a process of the job: launcher, rank or shell above; default: the only job here")
    parser.add_argument("--slurm", metavar="JOB", help="the ranks of this SLURM job on this host (12 or 12.0)")
    parser.add_argument("--merge", nargs="+", metavar="FILE", help="judge the JSON reports of many hosts; - is stdin")
    parser.add_argument("--interval", type=interval, default=2.0, metavar="S",
                        help="seconds between the two looks (default 2)")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="what goes to stdout")
    parser.add_argument("--html", metavar="FILE", help="also write a page to look at; - writes only that, to stdout")
    parser.add_argument("--py-spy", metavar="PATH", help="py-spy, if it is not on PATH or beside a Python of the job")
    parser.add_argument("--sigusr1", action="store_true",
                        help="ask ranks that catch SIGUSR1 for their stack, whatever their source shows")
    parser.add_argument("--list-rules", action="store_true", help="the rules of the verdict, one a line")
    parser.add_argument("--explain", metavar="RULE", help="what a rule means and what to do")
    options = parser.parse_args(argv)
    if sum(x is not None for x in (options.pid, options.slurm, options.merge)) > 1:
        parser.error("give one of PID, --slurm and --merge")
    if options.explain is not None and options.explain not in RULES:
        parser.error(f"there is no rule {clean(options.explain)!r}: {', '.join(RULES)}")
    if options.slurm is not None and not re.fullmatch(r"\d+(\.\w+)?", options.slurm):
        parser.error("--slurm takes a job number, or job.step")
    if options.pid is not None and options.pid < 1:
        parser.error("PID is a positive number")
    if options.py_spy and not os.access(options.py_spy, os.X_OK):
        parser.error(f"--py-spy: {clean(options.py_spy)} cannot be run")
    return options


def slurm_job(wanted, table, jobs):
    """The ranks of a SLURM job on this host."""
    job, _, step = wanted.partition(".")

    def belongs(pid):
        env = table[pid].env
        return env.get("SLURM_JOB_ID") == job and (not step or env.get("SLURM_STEP_ID", "batch") == step)

    hit = [j for j in jobs if any(belongs(p) for p in j.ranks)]
    if len(hit) > 1:
        raise several(hit, table)
    if not hit:
        raise Stop(f"no rank of SLURM job {wanted} on this host; on each of its hosts at once:\n{slurm_line(job)}", 3)
    return hit[0]


def slurm_line(job):
    here = os.path.abspath(__file__)
    return (f"  srun --jobid={job} --overlap --ntasks-per-node=1 --output=host-%t.json python {here} --slurm {job} "
            f"--format json\n  python {here} --merge host-*.json")


def investigate(options, say):
    """The report of the job that the command line names."""
    if options.merge:
        return conclude(merge(options.merge))
    table = processes()
    jobs = find_jobs(table)
    if options.slurm:
        job = slurm_job(options.slurm, table, jobs)
    elif options.pid:
        job = choose_job(options.pid, table, jobs)
    elif jobs:
        jobs = [j for j in jobs if len(j.ranks) > 1 or any(w and (w.world or 1) > 1 for w in j.ranks.values())] or jobs
        if len(jobs) > 1:
            raise several(jobs, table)
        job = jobs[0]
    else:
        denied = [p for p in table.values() if p.denied]
        what = f"; {len(denied)} Python processes of other users may not be looked at (sudo)" if denied else ""
        raise Stop(f"no job found on this host{what}; name a process: {NAME} PID", 3)
    report = read_job(job, table, options, say)
    if not report["ranks"]:
        raise Stop("the ranks have ended meanwhile", 3)
    lost = absent_ranks(report["ranks"])
    number_of_job = next((table[p].env["SLURM_JOB_ID"] for p in job.ranks if table[p].env.get("SLURM_JOB_ID")), None)
    if lost:
        line = slurm_line(number_of_job) if number_of_job else f"  {NAME} --format json there, then --merge the files"
        report["notes"].append(f"{len(lost)} of {len(lost) + len(report['ranks'])} ranks are not on this host:\n{line}")
    if not any(r["stack"] for r in report["ranks"]) and any("not permitted" in n for n in report["notes"]):
        raise Stop(next(n for n in report["notes"] if "not permitted" in n), 3)
    return conclude(report)


def run(argv):
    options = parse(argv)
    if options.list_rules:
        print("\n".join(f"{name:17} {what}" for name, (what, *_) in RULES.items()))
        return 0
    if options.explain:
        what, fix, entry = RULES[options.explain]
        print(f"{options.explain}: {what}\n{fix}" + (f"\nsee: {entry}" if entry else ""))
        return 0

    def say(text):
        if sys.stderr is not None and sys.stderr.isatty():
            print(f"{NAME}: {text}", file=sys.stderr, flush=True)

    report = investigate(options, say)
    if options.html == "-":
        print(as_html(report))
    else:
        print(json.dumps(report, ensure_ascii=True) if options.format == "json" else as_text(report))
    if options.html and options.html != "-":
        try:
            with open(options.html, "w", encoding="utf-8", errors="replace") as file:
                file.write(as_html(report))
        except OSError as e:
            raise Stop(f"--html {clean(options.html)}: {e.strerror}", 2) from None
    return 0 if report["verdict"]["guilty_ranks"] else 1


def main(argv=None):
    """Run with the arguments of the command line; returns the exit code."""
    try:
        if sys.stdout is not None and hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(errors="replace")
        code = run(sys.argv[1:] if argv is None else argv)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except Stop as e:
        print(f"{NAME}: {e}", file=sys.stderr)
        return e.code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1


if __name__ == "__main__":
    sys.exit(main())
