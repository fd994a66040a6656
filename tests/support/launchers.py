"""Real launchers on one machine: torchrun, SLURM with two nodes, mpirun, and two hosts made of network namespaces.

    done = run(torchrun_argv(2, "train.py"), timeout=60)
    assert done.returncode == 0, done.report()

    with slurm_cluster() as slurm:                  # slurmctld and two slurmd, gone again afterwards
        done = run(["srun", "-N2", "-n2", PYTHON, "train.py"], env=slurm.env, timeout=60)

    with two_hosts() as hosts:                      # two network namespaces joined by a cable
        argv = [hosts.argv(i, torchrun_argv(1, "train.py", nodes=2, node_rank=i, master=hosts.address(0)))
                for i in range(2)]
        first, second = run_together(argv, timeout=60)

Tests skip where a tool is not installed: `pytest.skip(reason)` if ``reason := missing("slurm")``.
This module needs the standard library only; what a Debian machine must install is DEBIAN_PACKAGES.

Every process that `run` starts inherits a token in its environment. When the command is over, or its time is, all
processes that carry the token are found through /proc and killed by pid, also those in sessions and namespaces of
their own (workers of torchrun, tasks of srun); `Finished.left_behind` tells what there was.
"""
from __future__ import annotations

import ctypes
import itertools
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

DEBIAN_PACKAGES = ("slurmctld", "slurmd", "slurm-client", "openmpi-bin", "iproute2", "chromium")
PYTHON = sys.executable
TOKEN = "TEST_LAUNCH_TOKEN"
_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
_LAUNCHER_PREFIXES = ("SLURM_", "TORCHELASTIC_", "OMPI_", "PMI_", "PMIX_", "GROUP_")
_LAUNCHER_NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "ROLE_RANK", "MASTER_ADDR", "MASTER_PORT")


# ---- commands


@dataclass
class Finished:
    """A command that is over."""

    argv: list[str]
    returncode: int  # negative is a signal; -9 when its time was over
    stdout: str
    stderr: str
    seconds: float
    timed_out: bool = False
    left_behind: list[str] = field(default_factory=list)  # command lines of processes that outlived the command

    @property
    def output(self) -> str:
        return self.stdout + self.stderr

    def report(self, tail: int = 6000) -> str:
        """Everything known, for the message of an assertion."""
        return (
            f"{' '.join(self.argv)}\nreturn code {self.returncode} after {self.seconds:.1f} s"
            f"{' (TIME OVER)' if self.timed_out else ''}, left behind: {self.left_behind}\n"
            f"--- stdout\n{self.stdout[-tail:]}\n--- stderr\n{self.stderr[-tail:]}"
        )


def run(
    argv: Sequence[str | Path],
    *,
    timeout: float,
    env: dict[str, str] | None = None,
    cwd: str | Path | None = None,
) -> Finished:
    """Run a command to its end, at most ``timeout`` seconds, and leave nothing of it behind.

    Its environment is that of this process without any launcher's variables, with ``env`` on top. Its output goes to
    files, since a closed pipe would look like a failure of a rank.
    """
    return run_together([argv], timeout=timeout, env=env, cwd=cwd)[0]


def run_together(
    argvs: Sequence[Sequence[str | Path]],
    *,
    timeout: float,
    env: dict[str, str] | None = None,
    cwd: str | Path | None = None,
) -> list[Finished]:
    """Like `run`, for commands that need each other: all start at once, and one time limit holds for all."""
    token = f"{os.getpid()}-{time.monotonic_ns()}-{random.getrandbits(32):x}"
    full_env = {**clean_environment(), **(env or {}), TOKEN: token}
    mark = f"{TOKEN}={token}"
    with tempfile.TemporaryDirectory(prefix="launch-") as folder, ExitStack() as stack:
        began, jobs, ended = time.monotonic(), [], {}
        try:
            for i, argv in enumerate(argvs):
                out, err = (stack.enter_context(open(f"{folder}/{i}.{kind}", "wb")) for kind in ("out", "err"))
                jobs.append(
                    subprocess.Popen(
                        [str(a) for a in argv], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                        env=full_env, cwd=cwd, start_new_session=True,
                    )
                )
            while len(ended) < len(jobs) and time.monotonic() - began < timeout:
                ended.update({i: time.monotonic() - began for i, j in enumerate(jobs) if i not in ended and _over(j)})
                time.sleep(0.02)
            time.sleep(0.2 if len(ended) == len(jobs) else 0)  # what dies together with its launcher is not left behind
            left = [_command_line(pid) for pid in _carriers(mark)] if len(ended) == len(jobs) else []
        finally:
            _kill_carriers(mark)
            for job in jobs:
                if job.poll() is None:
                    job.kill()
                job.wait()
        total = time.monotonic() - began
        return [
            Finished(
                [str(a) for a in argv], job.returncode, _text(f"{folder}/{i}.out"), _text(f"{folder}/{i}.err"),
                ended.get(i, total), timed_out=i not in ended, left_behind=left,
            )
            for i, (argv, job) in enumerate(zip(argvs, jobs))
        ]


def clean_environment() -> dict[str, str]:
    """The environment of this process, without what a launcher would have set, with one thread per rank."""
    kept = {
        k: v for k, v in os.environ.items() if k not in _LAUNCHER_NAMES and not k.startswith(_LAUNCHER_PREFIXES)
    }
    return {**kept, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "PATH": _PATH}


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on at this moment."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@cache
def missing(tool: str) -> str | None:
    """Why "slurm", "mpirun", "two_hosts" or "mounts" cannot be used on this machine, or None if it can."""
    programs = {
        "slurm": ("slurmctld", "slurmd", "srun", "sbatch", "sinfo"),
        "mpirun": ("mpirun",),
        "two_hosts": ("ip", "nsenter", "unshare", "mount"),
        "mounts": ("mount",),
    }[tool]
    absent = [p for p in programs if not shutil.which(p, path=_PATH)]
    if absent:
        return f"{tool}: not installed: {', '.join(absent)} (apt-get install {' '.join(DEBIAN_PACKAGES)})"
    if tool == "mounts":
        pid = os.fork()
        if pid == 0:
            try:
                in_private_mounts()
                os._exit(0)
            finally:
                os._exit(1)
        if os.waitpid(pid, 0)[1]:
            return "mounts: a mount namespace cannot be made here"
    if tool == "two_hosts":
        try:
            with two_hosts():
                pass
        except (OSError, subprocess.CalledProcessError) as e:
            return f"two_hosts: network namespaces cannot be made here: {getattr(e, 'stderr', '') or e}"
    return None


# ---- torchrun and mpirun


def torchrun_argv(
    nproc: int, *program: str | Path, nodes: int = 1, node_rank: int = 0, master: str | None = None, port: int = 29500
) -> list[str]:
    """torchrun with ``nproc`` workers on this host.

    Alone on a host it finds a free port itself. With ``nodes`` > 1 the rendezvous is static: ``master`` is the address
    of node 0, ``port`` a port that is free there (inside `two_hosts` any is).
    """
    where = ["--standalone"] if nodes == 1 else [
        f"--nnodes={nodes}", f"--node_rank={node_rank}", f"--master_addr={master}", f"--master_port={port}"
    ]
    return [PYTHON, "-m", "torch.distributed.run", f"--nproc_per_node={nproc}", *where, *map(str, program)]


def mpirun_argv(nproc: int, *program: str | Path) -> list[str]:
    """mpirun with ``nproc`` processes on this host, its ranks put into the variables that torch reads."""
    mapping = (
        "export RANK=$OMPI_COMM_WORLD_RANK LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE "
        f'MASTER_ADDR=127.0.0.1 MASTER_PORT={free_port()}; exec "$0" "$@"'
    )
    return [
        "mpirun", "--allow-run-as-root", "--oversubscribe", "-np", str(nproc), "bash", "-c", mapping, *map(str, program)
    ]


# ---- SLURM


@dataclass
class Slurm:
    env: dict[str, str]  # pass it to `run`, so that srun, sbatch, squeue … find this cluster
    nodes: list[str]
    folder: Path  # slurm.conf and the logs


@contextmanager
def slurm_cluster(nodes: int = 2, cpus: int = 4) -> Iterator[Slurm]:
    """A SLURM cluster of ``nodes`` nodes with ``cpus`` each, all on this machine; no munge, any user.

    Node names are addresses (127.0.0.1, 127.0.0.2 …), so that they resolve without an entry in a hosts file.
    Raises RuntimeError with the logs when it does not come up.
    """
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    env = {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": _PATH}
    names = [f"127.0.0.{i + 1}" for i in range(nodes)]
    _write_slurm_conf(folder, names, cpus)
    daemon_env = {**clean_environment(), **env}
    daemons = []
    try:
        for name, argv in [("ctld", ["slurmctld", "-D", "-c"])] + [(n, ["slurmd", "-D", "-N", n]) for n in names]:
            with open(folder / f"{name}.log", "wb") as log:
                daemons.append(
                    subprocess.Popen(
                        [shutil.which(argv[0], path=_PATH), *argv[1:], "-f", folder / "slurm.conf"],
                        stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=daemon_env, start_new_session=True,
                    )
                )
        deadline = time.monotonic() + 20
        while _slurm(env, "sinfo", "-h", "-t", "idle", "-o", "%D") != str(nodes):
            if time.monotonic() > deadline:
                logs = "\n".join(f"{p.name}: {_text(p)[-2000:]}" for p in sorted(folder.glob("*.log")))
                raise RuntimeError(f"the SLURM cluster did not come up in 20 s\n{logs}")
            time.sleep(0.1)
        yield Slurm(env, names, folder)
    finally:
        for job in _slurm(env, "squeue", "-h", "-o", "%i").split():
            _slurm(env, "scancel", "--signal=KILL", "--full", job)
        for daemon in daemons:
            daemon.terminate()
        deadline = time.monotonic() + 1
        while not all(_over(d) for d in daemons) and time.monotonic() < deadline:
            time.sleep(0.05)
        _kill_carriers(f"SLURM_CONF={folder}/slurm.conf")  # daemons and tasks
        for daemon in daemons:
            daemon.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _write_slurm_conf(folder: Path, names: list[str], cpus: int) -> None:
    host, user, ports = socket.gethostname(), _user(), [free_port() for _ in range(len(names) + 1)]
    (folder / "state").mkdir()
    lines = [
        "ClusterName=t", f"SlurmctldHost={host}(127.0.0.1)", f"SlurmctldPort={ports[0]}",
        f"SlurmUser={user}", f"SlurmdUser={user}", "AuthType=auth/none", "CredType=cred/none",
        f"StateSaveLocation={folder}/state", f"SlurmdSpoolDir={folder}/spool-%n",
        f"SlurmctldPidFile={folder}/ctld.pid", f"SlurmdPidFile={folder}/slurmd-%n.pid",
        "ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none", "JobAcctGatherType=jobacct_gather/none",
        "SelectType=select/cons_tres", "SelectTypeParameters=CR_CPU", "MpiDefault=none", "ReturnToService=2",
        "KillWait=2", "SlurmdParameters=config_overrides",
        # ignite and others take the port of the rendezvous from the job's number: two clusters must not share it
        f"FirstJobId={random.randrange(1, 9900)}",
        *(
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} RealMemory=2000"
            for name, port in zip(names, ports[1:])
        ),
        "PartitionName=p Nodes=ALL Default=YES MaxTime=10 State=UP",
    ]
    (folder / "slurm.conf").write_text("\n".join(lines) + "\n")


def _slurm(env: dict[str, str], *argv: str) -> str:
    try:
        done = subprocess.run(argv, check=False, env={**os.environ, **env}, capture_output=True, text=True, timeout=10)
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout.strip()


def _user() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name


# ---- two hosts


_NUMBERS = itertools.count()
_NEWNS, _NEWUTS, _NEWNET = 0x00020000, 0x04000000, 0x40000000


@dataclass
class Hosts:
    """Two hosts with a cable between them; 0 and 1 are their indices."""

    names: list[str]  # of the network namespaces
    folder: Path
    named: bool

    def address(self, host: int) -> str:
        return f"10.77.0.{host + 1}"

    def interface(self, host: int) -> str:
        """The network interface that the cable is in, for GLOO_SOCKET_IFNAME."""
        return f"cable{host}"

    def hostname(self, host: int) -> str:
        """What gethostname() gives there; in the variant `named=False` that of this machine."""
        return f"host{host}" if self.named else socket.gethostname()

    def argv(self, host: int, argv: Sequence[str | Path]) -> list[str]:
        """The command that runs ``argv`` on a host: as root, on this file system, with that host's network."""
        enter = ["nsenter", f"--net=/run/netns/{self.names[host]}"]
        if self.named:
            enter += ["unshare", "--uts", "--mount", "bash", "-c", (
                f"hostname {self.hostname(host)} && mount --make-rprivate / && "
                f'mount --bind {self.folder}/hosts /etc/hosts && exec "$0" "$@"'
            )]
        return [*enter, *map(str, argv)]

    def enter(self, host: int) -> None:
        """Move the calling process (a fork that has no threads yet) onto a host, for good."""
        libc = ctypes.CDLL(None, use_errno=True)
        with open(f"/run/netns/{self.names[host]}") as namespace:
            _check(libc.setns(namespace.fileno(), _NEWNET), "setns")
        if self.named:
            _check(libc.unshare(_NEWUTS | _NEWNS), "unshare")
            socket.sethostname(self.hostname(host))
            subprocess.run(["mount", "--make-rprivate", "/"], check=True)
            subprocess.run(["mount", "--bind", f"{self.folder}/hosts", "/etc/hosts"], check=True)

    def cable(self, plugged: bool) -> None:
        """Pull the cable out, or put it back: packets are lost without a word, as on a real network."""
        _ip("-n", self.names[1], "link", "set", self.interface(1), "up" if plugged else "down")


@contextmanager
def two_hosts(named: bool = True) -> Iterator[Hosts]:
    """Two network namespaces joined by a cable (a veth pair), 10.77.0.1 and 10.77.0.2; needs root.

    Args:
        named: each host has a name of its own, host0 and host1, which resolves to its address on both.
            False: as a namespace comes, both with this machine's name, which resolves to loopback, so gloo needs
            GLOO_SOCKET_IFNAME.

    Raises subprocess.CalledProcessError where the machine does not let namespaces be made.
    """
    prefix = f"t{os.getpid()}x{next(_NUMBERS)}"
    folder = Path(tempfile.mkdtemp(prefix="hosts-"))
    hosts = Hosts([f"{prefix}h0", f"{prefix}h1"], folder, named)
    (folder / "hosts").write_text("127.0.0.1 localhost\n10.77.0.1 host0\n10.77.0.2 host1\n")
    try:
        for name in hosts.names:
            _ip("netns", "add", name)
        _ip("link", "add", hosts.interface(0), "netns", hosts.names[0],
            "type", "veth", "peer", "name", hosts.interface(1), "netns", hosts.names[1])
        for i, name in enumerate(hosts.names):
            _ip("-n", name, "addr", "add", f"{hosts.address(i)}/24", "dev", hosts.interface(i))
            _ip("-n", name, "link", "set", hosts.interface(i), "up")
            _ip("-n", name, "link", "set", "lo", "up")
        yield hosts
    finally:
        for name in hosts.names:
            if os.path.exists(f"/run/netns/{name}"):
                _ip("netns", "del", name)
        shutil.rmtree(folder, ignore_errors=True)


def _ip(*argv: str) -> None:
    subprocess.run([shutil.which("ip", path=_PATH), *argv], check=True, capture_output=True, text=True, timeout=20)


def _check(result: int, what: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


# ---- mounts


def in_private_mounts(*mounts: Sequence[str | Path]) -> None:
    """Run mount with each list of arguments where only this process and its children see it; needs root."""
    _check(ctypes.CDLL(None, use_errno=True).unshare(_NEWNS), "unshare")
    for arguments in (("--make-rprivate", "/"), *mounts):
        subprocess.run(["mount", *map(str, arguments)], check=True, capture_output=True, text=True, timeout=20)


# ---- processes


def _over(job: subprocess.Popen) -> bool:
    return job.poll() is not None


def _carriers(mark: str) -> list[int]:
    """Living processes that were started with the mark, NAME=value, in their environment."""
    wanted, found = f"{mark}\0".encode(), []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if wanted in Path(f"/proc/{pid}/environ").read_bytes() and int(pid) != os.getpid():
                found.append(int(pid))
        except OSError:  # it has gone, or is not ours
            pass
    return found


def _kill_carriers(mark: str) -> None:
    deadline = time.monotonic() + 5
    while (pids := _carriers(mark)) and time.monotonic() < deadline:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.05)


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return f"pid {pid}, gone since"


def _text(path: str | Path) -> str:
    return Path(path).read_text(errors="replace")
