"""Proofs of workflows.md: worlds that others make, several hosts without a launcher, and how fast a world is.

Ray itself runs in tests/worlds/, where it is installed; here its program runs in a group that torch made.
"""
from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import types

import ignite.distributed as idist
import torch.distributed as dist
from support.claims import proves
from support.launchers import free_port
from support.smoke import finding_of, forked_smoke, smoke_module
from support.world import run_world, values

PAGE = "sub-skills/distributed/references/workflows.md"


def section(anchor: str):
    return proves(f"{PAGE}#{anchor}")


def fence(entry, language: str) -> str:
    return next(f.text for f in entry.entry.fences if f.language == language)


@section("plain-python-on-several-hosts")
def nodes(entry):
    """The program and its commands run in test_examples_run.py."""
    started = re.findall(r"(host\d)\$ python nodes.py (\d)", fence(entry, "console"))
    assert started == [("host0", "0"), ("host1", "1")] and '"master_addr": "host0"' in fence(entry, "python")
    entry.says("Each host starts processes of its own and says which node it is; all of them name the first host.")
    key = "nnodes"
    assert f'"{key}": {len(started)}' in fence(entry, "python")
    entry.says(f"More nodes: raise {key}.")


def as_ray_would(program: str, ran: list):
    """Run the program with a TorchTrainer that calls the function in the group of this process."""

    class TorchTrainer:
        def __init__(self, function, scaling_config):
            self.function = function

        def fit(self):
            self.function()

    def record(command, env, **_):
        ran.append((command[1], env["MASTER_PORT"], os.environ["MASTER_PORT"]))
        return types.SimpleNamespace(returncode=0, stdout="")

    train = types.SimpleNamespace(ScalingConfig=lambda num_workers: num_workers)
    sys.modules.update({"ray": types.ModuleType("ray"), "ray.train": train})
    sys.modules["ray.train.torch"] = types.SimpleNamespace(TorchTrainer=TorchTrainer)
    subprocess.run = record
    exec(compile(program, "ray_job.py", "exec"), {"__name__": "__main__"})


@section("ray-train")
def ray(entry):
    def job(rank):
        ran = []
        as_ray_would(fence(entry, "python"), ran)
        return ran

    outcomes = run_world(2, job, init="torch")
    ((one, port, taken),), ((other, same, _),) = values(outcomes)
    assert os.path.basename(one) == os.path.basename(other) == "distributed_smoke.py" and port == same != taken
    printed = {line for o in outcomes for line in o.output.splitlines() if line.startswith("rank ")}
    assert printed == {line for line in fence(entry, "console").splitlines() if line.startswith("rank ")}
    entry.says("The TorchTrainer of Ray starts the ranks and makes their group, as accelerate's Accelerator makes one "
               "under torchrun: call idist.sync() on every rank, then use it.")

    def again(rank):
        try:
            idist.initialize("gloo")
        except ValueError as e:
            return str(e)

    assert len(set(texts := values(run_world(2, again, init="torch")))) == 1 and texts[0]
    entry.says(f"idist.initialize raises {texts[0]} there.")

    def beside(port):
        env = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", variable: str(port)}
        return finding_of(forked_smoke("gloo", "--timeout", "4", "--format", "json", env=env))["id"]

    variable = "MASTER_PORT"
    store = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    assert beside(store.port) == "port-taken" and beside(free_port()) == "missing-peer"
    entry.says(f"The group's store has the port in {variable}: a program that each rank starts beside it, such as the "
               "smoke, takes one that rank 0 finds free.")
    key = "num_workers"
    assert f"ScalingConfig({key}=2)" in fence(entry, "python")
    entry.says(f"More nodes: raise {key}.")


def busbw_factors(size: int) -> dict[str, float]:
    """busbw over algbw of each operation, as a run with so many ranks reports them."""
    options = ("--only", "initialize", "--payload", "1M", "--iterations", "2", "--format", "json")
    rows = forked_smoke("gloo", "--nproc", str(size), *options).report["runs"][1]["workload"]["rows"]
    largest = [r for r in rows if r["bytes"] == max(x["bytes"] for x in rows)]
    for row in rows:
        for rank, latency in row["latency_us"].items():
            assert abs(row["algbw_gbs"][rank] - row["bytes"] / latency / 1e3) < 1e-3 + 0.02 * row["algbw_gbs"][rank]
    return {r["operation"]: round(r["busbw_gbs"]["0"] / r["algbw_gbs"]["0"], 1) for r in largest}


@section("how-fast-is-this-world")
def workload(entry):
    n = 4
    formulas = {"2(n−1)/n": 2 * (n - 1) / n, "(n−1)/n": (n - 1) / n, "1": 1.0}
    measured = busbw_factors(n)
    names = {f: [o for o, m in measured.items() if abs(m - v) < 0.06][0] for f, v in formulas.items()}
    assert set(names.values()) == set(measured)
    rates = [f"{f} for {o}" for f, o in names.items()]
    entry.says("A row has the median time of a call on the rank that waited longest, in microseconds, and the rates as "
               "nccl-tests define them: algbw is the size of the message over that time; busbw is algbw times "
               f"{rates[0]}, {rates[1]} and {rates[2]} in a world of n ranks.")
    option, seconds = "--payload", smoke_module().WORKLOAD_SECONDS
    shown = " ".join(forked_smoke("--help").out.split())
    assert option in fence(entry, "console") and f"begins no timing that would, by the smaller ones, end after " \
        f"{seconds:.0f} s" in shown
    entry.says(f"With {option} the smoke also times the collectives, leaves out those that would end after "
               f"{seconds:.0f} s, and names the slowest rank; under torchrun and srun it takes the same option.")

    def slow():
        original = idist.all_reduce

        def all_reduce(*args, **kwargs):
            time.sleep(0.03 * (os.environ.get("RANK") == "1"))
            return original(*args, **kwargs)

        idist.all_reduce = all_reduce

    options = ("--only", "initialize", "--payload", "4K", "--iterations", "10", "--format", "json")
    found = forked_smoke("gloo", *options, prepare=slow).report["runs"][1]["workload"]
    first = found["rows"][0]["latency_us"]
    assert found["slowest"]["rank"] == 1 and 0.5 < first["0"] / first["1"] < 2, found
    assert found["ranks"]["1"]["own_ms"] > 2 * found["ranks"]["0"]["own_ms"]
    entry.says("A collective ends on all ranks at once, so a slow rank does not have the long times in it: its own "
               "part of a step is long, the time in which it was outside the collective or did not run.")
    late = smoke_module().slowest_rank({0: 1, 1: 1, 2: 1}, {0: 1, 1: 9, 2: 1}, 10, dict.fromkeys(range(3), "host"))
    assert (late["rank"], late["stands_out"]) == (1, True)
    entry.says("Where no own part stands out, a rank whose broadcasts arrive late is named.")
