"""Proofs: SLURM. A task of srun is, for Ignite, its environment variables; here a fork is given them."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import ignite.distributed as idist
from ignite.distributed.comp_models.native import _expand_hostlist
from support.world import run_serial, run_world, values

from .troubleshooting_tools import free_port, plain_folder, raised, shell, symptom

TORCH = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def task(rank: int = 0, size: int = 1, port: int | None = None, **variables: str) -> dict[str, str]:
    """The environment of one srun task on a host without scontrol; ``port`` is what the job's number leads to."""
    job = f"77{(port or free_port(15001, 24999)) - 15000:04d}"
    return {
        "SLURM_JOB_ID": job,
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank),
        "SLURM_NTASKS": str(size),
        "SLURM_JOB_NODELIST": "127.0.0.1",
        "SLURM_JOB_NUM_NODES": "1",
        "PATH": "/nonexistent",
        **variables,
    }


def start(*names: str):
    """Initialise and return these variables as Ignite set them."""
    time.sleep(0.1 * int(os.environ["SLURM_PROCID"]))  # rank 0 first: who finds no store yet waits for seconds
    idist.initialize("gloo")
    return [os.environ[n] for n in names]


def scontrol(folder: str, body: str) -> str:
    """Write a program `scontrol` and return the PATH on which it is found."""
    Path(folder, "scontrol").write_text(f"#!/bin/sh\n{body}\n")
    Path(folder, "scontrol").chmod(0o755)
    return folder


@symptom("slurm-distributed-configuration-is-missing--in-env-variables")
def missing_variable(entry):
    full = task()
    for name in (needed := [n for n in full if n.startswith("SLURM_") and n != "SLURM_JOB_ID"]):
        out = run_serial(lambda: idist.initialize("gloo"), env={k: v for k, v in full.items() if k != name})
        assert f"'{name}'" in raised(out, "RuntimeError")
        entry.heading(out.message)
    check = "env | grep ^SLURM_"
    assert shell(check, SLURM_JOB_ID="1") == "SLURM_JOB_ID=1"
    entry.says("SLURM_JOB_ID is set, which alone switches Ignite to SLURM, but the process is no task of srun")
    entry.says("python typed into a shell under salloc, or run by sbatch without srun, or a variable left over")
    entry.says(f"{check}: needed are {', '.join(needed)}.")
    fix = "unset SLURM_JOB_ID"
    assert shell(f"{fix}; {check}", SLURM_JOB_ID="1") == ""
    rest = {k: v for k, v in full.items() if k != "SLURM_JOB_ID"} | {"MASTER_PORT": str(free_port())}
    values([run_serial(lambda: idist.initialize("gloo"), env=rest)])
    port = free_port(15001, 24999)
    world = run_world(
        2,
        lambda r: (start(), str(idist.get_world_size()), os.environ["SLURM_NTASKS"])[1:],
        init=None,
        env=lambda r: task(r, 2, port),
        unset=(*TORCH, "TORCHELASTIC_USE_AGENT_STORE"),
    )
    assert all(a == b == "2" for a, b in values(world))
    entry.says(f"srun python train.py, one task per process; for a run without SLURM {fix}.")
    entry.says("idist.get_world_size() equals SLURM_NTASKS")


@symptom("arguments-rank-and-world_size-should-not-be-specified-with-slurm")
def rank_given(entry):
    out = run_serial(lambda: idist.initialize("gloo", rank=0, world_size=1), env=task())
    entry.heading(raised(out, "ValueError"))
    with plain_folder() as folder:
        out = run_serial(
            lambda: idist.spawn("gloo", print, (), start_method="fork", init_method=f"file://{folder}/f"), env=task()
        )
    entry.heading(raised(out, "ProcessRaisedException"))
    entry.says("both come from SLURM_PROCID and SLURM_NTASKS.", "inside a job over a file:// rendezvous")
    entry.says("the call of idist.initialize.")
    port = free_port(15001, 24999)
    world = run_world(
        2,
        lambda r: (start(), str(idist.get_rank()), os.environ["SLURM_PROCID"])[1:],
        init=None,
        env=lambda r: task(r, 2, port),
        unset=(*TORCH, "TORCHELASTIC_USE_AGENT_STORE"),
    )
    assert values(world) == [("0", "0"), ("1", "1")]
    entry.says("drop rank= and world_size=; start one task per process with srun, without nproc_per_node")
    entry.says("idist.get_rank() equals SLURM_PROCID")
    entry.says("Also raised when processes are spawned inside a job")


@symptom(
    "environment-variable-defined-for-pytorch-distributed-context-is-inconsistent-with-equivalent-slurm-env-variable---vs-"
)
def torchrun_inside_srun(entry):
    def under(rank, local, world, **slurm):
        own = {"RANK": rank, "LOCAL_RANK": local, "WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1"}
        env = task(**slurm) | {k: str(v) for k, v in own.items()}
        return run_world(1, lambda r: start("RANK", "WORLD_SIZE"), init=None, env=env)[0]

    message = raised(under(3, 0, 4, SLURM_JOB_NUM_NODES="2"), "RuntimeError")
    entry.heading(message)
    smaller = raised(under(0, 0, 1, size=2), "RuntimeError")
    entry.quotes(smaller)
    assert "We expect that" in smaller
    for line in ("SLURM vars:", "PTH vars:"):
        assert line in message and line in smaller
    entry.says("the lines SLURM vars: and PTH vars: of the message")
    entry.says("On one node larger values pass; smaller ones give We expect that …: … >= ….")
    larger = run_world(2, lambda r: start("RANK", "WORLD_SIZE"), init=None, env=task())  # torchrun under one task
    assert values(larger) == [["0", "2"], ["1", "2"]]
    equal = under(0, 0, 1, SLURM_JOB_NUM_NODES="2")
    assert values([equal]) == [["0", "1"]]
    entry.says(
        "On several nodes each must be equal, so torchrun with several workers under one task per node cannot work."
    )
    fix = "unset SLURM_JOB_ID"
    without = run_world(2, lambda r: start("WORLD_SIZE"), init=None, unset=("SLURM_JOB_ID",), env=task())
    assert values(without) == [["2"], ["2"]]
    entry.says(
        "srun python train.py with one task per process, no torchrun; or hide SLURM from torchrun's workers: "
        f"{fix} before it starts."
    )
    entry.says("torchrun (or a container hook) set RANK, WORLD_SIZE and LOCAL_RANK inside an srun task, and they "
               "differ from SLURM's.")
    entry.says("the group comes up with the variables of one of the two")


@symptom("we-detected-the-following-env-variables-")
def some_torch_variables(entry):
    port = free_port(15001, 24999)
    env = task(port=port)
    out = run_serial(
        lambda: start("MASTER_ADDR", "MASTER_PORT"), env=env | {"MASTER_ADDR": "10.9.9.9", "MASTER_PORT": "9"}
    )
    entry.heading(" ".join(out.warnings))
    said = " ".join(" ".join(out.warnings).split())
    assert "but will not take them into account as the following env vars are missing:" in said
    assert values([out]) == [["127.0.0.1", str(port)]]
    entry.says("a warning inside SLURM:", "so all are ignored, also a MASTER_ADDR and MASTER_PORT that you chose")
    entry.says("but will not take them into account as the following env vars are missing:….")
    fixed = run_serial(lambda: start("MASTER_ADDR", "MASTER_PORT"), env=env)
    assert not fixed.warnings and values([fixed]) == [["127.0.0.1", str(port)]]
    base = port - int(env["SLURM_JOB_ID"][-4:])
    entry.says(f"the first host of the job and the port {base} plus the last four digits of SLURM_JOB_ID")
    entry.says("no warning; MASTER_PORT is that sum")
    entry.says("of RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT only some are set, so all are ignored")
    entry.says("which of the five are exported. Fix unset them; the address is then the first host")


@symptom("no-hostname-detected-in-slurm_job_nodelist-by--nodelist")
def no_host(entry):
    backwards = "c[5-3]"
    for nodes in ("", backwards):
        out = run_serial(lambda: idist.initialize("gloo"), env=task(SLURM_JOB_NODELIST=nodes))
        entry.heading(raised(out, "RuntimeError"))
    entry.says(f"the list of nodes is empty or a range runs backwards ({backwards})")
    entry.quotes(raised(run_serial(lambda: idist.initialize("gloo"), env=task(SLURM_JOB_NODELIST="c[]")), "ValueError"))
    assert shell("echo $SLURM_JOB_NODELIST", SLURM_JOB_NODELIST=backwards) == backwards
    entry.says("echo $SLURM_JOB_NODELIST", "run under srun instead of setting the variable by hand")
    assert _expand_hostlist("c[3-5]") == ["c3", "c4", "c5"]
    assert values([run_serial(lambda: start("MASTER_ADDR"), env=task(SLURM_JOB_NODELIST="127.0.0.[1-2]"))]) == [
        ["127.0.0.1"]
    ]
    entry.says("MASTER_ADDR is the first host")
    entry.says("An empty bracket gives hostlist invalid : ….")


@symptom("command-scontrol-show-hostnames--returned-non-zero-exit-status-")
def broken_scontrol(entry):
    with tempfile.TemporaryDirectory() as folder:
        nodes = {"SLURM_JOB_NODELIST": "127.0.0.[1-2]"}
        path = scontrol(folder, "exit 1")
        out = run_serial(lambda: start("MASTER_ADDR"), env=task(PATH=path, **nodes))
        entry.heading(raised(out, "CalledProcessError"))
        entry.says("scontrol is installed but does not work here (a container without its configuration).")
        assert values([run_serial(lambda: start("MASTER_ADDR"), env=task(**nodes))]) == [["127.0.0.1"]]  # absent
        entry.says("Ignite expands the list of nodes itself only where scontrol is absent")
        five = {
            "RANK": "0",
            "LOCAL_RANK": "0",
            "WORLD_SIZE": "1",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
        }
        assert tuple(five) == TORCH
        values([run_serial(lambda: start(), env=task(PATH=path, **nodes) | five)])
        entry.says(f"or take scontrol off the PATH, or export all five of {', '.join(five)}.")
        path = scontrol(folder, "printf '127.0.0.1\\n127.0.0.2\\n'; printf '%s ' \"$@\" >&2")
        out = run_serial(lambda: start("MASTER_ADDR"), env=task(PATH=path, **nodes))
        assert values([out]) == [["127.0.0.1"]] and "show hostnames 127.0.0.[1-2]" in out.output
        entry.says('scontrol show hostnames "$SLURM_JOB_NODELIST"', "MASTER_ADDR is the first host")
        entry.says("mount SLURM's configuration")  # scontrol answers, as where it has one


@symptom("keyerror-slurm_localid")
def own_group_without_srun(entry):
    out = run_world(2, lambda r: idist.get_local_rank(), init="torch", env={"SLURM_JOB_ID": "1"})[0]
    entry.heading(f"{out.error}: {out.message}")
    entry.says("your own process group, SLURM_JOB_ID set, no srun.")

    def program(rank):
        idist.set_local_rank(9)
        return idist.get_local_rank(), os.environ["LOCAL_RANK"]

    env = {"SLURM_JOB_ID": "1", "SLURM_LOCALID": "3"}
    assert values(run_world(2, program, init="torch", env=env)) == [(3, "3"), (3, "3")]
    entry.says(
        "With srun, SLURM_LOCALID wins over LOCAL_RANK and over idist.set_local_rank, and overwrites the variable."
    )
    check, fix = "env | grep ^SLURM_", "unset SLURM_JOB_ID"
    assert shell(f"{fix}; {check}", SLURM_JOB_ID="1") == ""
    right = run_world(
        2, lambda r: idist.get_local_rank(), init="torch", unset=("SLURM_JOB_ID",), env={"SLURM_JOB_ID": "1"}
    )
    assert values(right) == [0, 1]
    entry.says(check, f"{fix}, or start with srun.", "idist.get_local_rank() is right")
