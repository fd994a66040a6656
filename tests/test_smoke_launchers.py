"""Promise: under every launcher that the machine has, the smoke joins the world that was made and prints one report;
where that world cannot come up, the report names the cause, the rank and host concerned, and the command that mends it.
"""

import json
import os
import signal
import time
from pathlib import Path

import pytest
from support import launchers
from support.smoke import SCRIPT, smoke_module

LIMIT = 150  # seconds; a launch takes ten of them on an idle machine


def needs(tool):
    return pytest.mark.skipif(launchers.missing(tool) is not None, reason=str(launchers.missing(tool)))


def report_of(finished) -> dict:
    assert not finished.timed_out and not finished.left_behind, finished.report()
    return json.loads(finished.stdout)


def not_passed(report) -> dict:
    (run,) = report["runs"]
    return {c["id"]: c["status"] for c in run["checks"] if c["status"] != "pass"}


@needs("slurm")
def test_srun_on_two_nodes_and_what_ignite_gets_wrong_with_uneven_ones():
    with launchers.slurm_cluster() as cluster:
        env = {**launchers.clean_environment(), **cluster.env}
        smoke = [launchers.PYTHON, str(SCRIPT), "--format", "json", "--timeout", "100"]
        even = launchers.run(["srun", "-N2", "-n4", "--ntasks-per-node=2", *smoke], env=env, timeout=LIMIT)
        report = report_of(even)
        assert even.returncode == 0, even.report()
        assert (report["runs"][0]["launcher"], report["runs"][0]["world_size"]) == ("slurm", 4)
        assert not_passed(report) == {"set_local_rank": "skip"}  # get_node_rank and its like passed on all four ranks
        uneven = launchers.run(["srun", "-N2", "-n4", "-m", "plane=3", *smoke], env=env, timeout=LIMIT)
        bad = {c["id"]: c["ranks"] for c in report_of(uneven)["runs"][0]["checks"] if c["status"] == "fail"}
        assert uneven.returncode != 0 and bad == {"get_nproc_per_node": [3], "get_nnodes": [0, 1, 2, 3]}, (
            uneven.report()
        )


@needs("slurm")
def test_a_batch_script_without_srun_is_told_to_use_srun(tmp_path):
    with launchers.slurm_cluster() as cluster:
        env = {**launchers.clean_environment(), **cluster.env}
        script = tmp_path / "job.sh"
        script.write_text(f"#!/bin/sh\nexec {launchers.PYTHON} {SCRIPT} --format json\n")
        done = launchers.run(
            ["sbatch", "--wait", "-n1", "-o", str(tmp_path / "out"), "-e", str(tmp_path / "err"), str(script)],
            env=env,
            timeout=LIMIT,
        )
    report = json.loads((tmp_path / "out").read_text())
    assert report["exit_code"] == 4 and report["diagnosis"][0]["id"] == "stale-slurm", done.report()
    assert report["diagnosis"][0]["fix"].startswith("start with srun")


@needs("mpirun")
def test_mpirun_with_the_environment_mapped_passes_and_without_it_is_named():
    smoke = [str(SCRIPT), "--format", "json", "--timeout", "100"]
    mapped = launchers.run(launchers.mpirun_argv(2, launchers.PYTHON, *smoke), timeout=LIMIT)
    assert mapped.returncode == 0 and not_passed(report_of(mapped)) == {}, mapped.report()


def two_torchruns(hosts, *options, rendezvous=()):
    port = launchers.free_port()
    return [
        hosts.argv(
            i,
            launchers.torchrun_argv(
                2, str(SCRIPT), "--format", "json", *options, nodes=2, node_rank=i, master=hosts.address(0), port=port
            ),
        )
        for i in (0, 1)
    ]


@needs("two_hosts")
def test_torchrun_over_two_hosts():
    with launchers.two_hosts() as hosts:
        first, second = launchers.run_together(two_torchruns(hosts, "--timeout", "100"), timeout=LIMIT)
    report = report_of(first)
    assert (first.returncode, second.returncode) == (0, 0), first.report() + second.report()
    assert not_passed(report) == {} and second.stdout == ""
    assert report["runs"][0]["hosts"] == {"0": "host0", "1": "host0", "2": "host1", "3": "host1"}


@needs("two_hosts")
def test_host_names_that_resolve_to_loopback_are_named_with_the_interface_to_use():
    with launchers.two_hosts(named=False) as hosts:
        first, _ = launchers.run_together(two_torchruns(hosts, "--timeout", "60"), timeout=LIMIT)
        cards = [hosts.interface(0), hosts.interface(1)]
    report = report_of(first)
    (finding,) = report["diagnosis"]
    assert (finding["id"], report["exit_code"]) == ("loopback-name", 4), first.report()
    assert finding["fix"] == (
        f"on the host of rank 0, 1: export GLOO_SOCKET_IFNAME={cards[0]}; "
        f"on the host of rank 2, 3: export GLOO_SOCKET_IFNAME={cards[1]}"
    )
    assert finding["see"].endswith("#gloo-connectfullmesh-failed-with-")


def ranks_of(pid: int) -> list[int]:
    """Process ids of the smoke's ranks below a torchrun process: children of its children."""
    children = smoke_module().children_of
    return [rank for worker in children(pid) for rank in children(worker)]


@pytest.mark.parametrize("how, word", [(signal.SIGSTOP, "stopped"), (signal.SIGKILL, "died")])
def test_a_rank_that_is_stopped_or_killed_under_torchrun_is_named(how, word, tmp_path):
    """The rank is caught in its start: before it can answer the first check."""
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if os.environ.get('RANK') == '1' and 'distributed_smoke' in ' '.join(sys.orig_argv):\n"
        "    kill, fork = os.kill, os.fork\n"
        "    def hurt():\n"
        "        pid = fork()\n"
        "        if pid:\n"
        f"            kill(pid, {int(how)})\n"
        "        return pid\n"
        "    os.fork = hurt\n"
    )
    env = {**launchers.clean_environment(), "PYTHONPATH": str(hook)}
    start = time.monotonic()
    done = launchers.run(
        launchers.torchrun_argv(2, str(SCRIPT), "--format", "json", "--timeout", "25"), env=env, timeout=90
    )
    report = report_of(done)
    assert done.returncode != 0 and report["exit_code"] in (1, 4, 5) and time.monotonic() - start < 60
    (finding,) = report["diagnosis"]
    assert f"rank 1 on {os.uname().nodename} {word}" in finding["text"], finding


def test_ranks_with_different_releases_are_named(tmp_path):
    """Rank 1 finds a sitecustomize that gives Ignite another version."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os\nif os.environ.get('RANK') == '1':\n    import ignite\n    ignite.__version__ = '0.4.13'\n"
    )
    env = {**launchers.clean_environment(), "PYTHONPATH": str(tmp_path)}
    done = launchers.run(
        launchers.torchrun_argv(2, str(SCRIPT), "--format", "json", "--timeout", "40"), env=env, timeout=90
    )
    report = report_of(done)
    (finding,) = report["diagnosis"]
    assert (report["exit_code"], finding["id"]) == (4, "version-mismatch"), finding
    assert "ignite 0.4.13: rank 1" in " ".join(finding["evidence"])


def test_launchers_were_tried():
    """Where a launcher is missing the tests above skip; one that no machine could skip keeps this file honest."""
    assert Path(launchers.PYTHON).exists() and launchers.DEBIAN_PACKAGES
