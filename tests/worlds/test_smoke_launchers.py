"""Promise: under every launcher that the machine has, the smoke joins the world that was made and prints one report;
what goes wrong there is the matter of tests/faults/.
"""

import json

import pytest
from support import launchers
from support.smoke import SCRIPT

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
        timing = ["--payload", "64K", "--iterations", "3"]
        even = launchers.run(["srun", "-N2", "-n4", "--ntasks-per-node=2", *smoke, *timing], env=env, timeout=LIMIT)
        report = report_of(even)
        assert list(report["runs"][0]["workload"]["ranks"]) == ["0", "1", "2", "3"]
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


@needs("slurm")
def test_two_launchers_in_one_job_and_tasks_that_do_not_come(tmp_path):
    """torchrun in a batch script, and the fix; left-over variables of torchrun under srun; a task that never starts."""
    with launchers.slurm_cluster() as cluster:
        env = {**launchers.clean_environment(), **cluster.env}
        smoke = [str(SCRIPT), "--format", "json", "--timeout"]
        torchrun = launchers.torchrun_argv(2, *smoke, "60")
        script = tmp_path / "job.sh"
        script.write_text(
            f"#!/bin/sh\n{' '.join(torchrun)} > {tmp_path}/as-it-is\n"
            f"env -u SLURM_JOB_ID {' '.join(torchrun)} > {tmp_path}/mended\n"
        )
        batch = ["sbatch", "--wait", "-N1", "-n2", "-o", str(tmp_path / "log"), str(script)]
        assert not launchers.run(batch, env=env, timeout=LIMIT).timed_out
        report = json.loads((tmp_path / "as-it-is").read_text())
        (finding,) = report["diagnosis"]
        assert report["exit_code"] == 1, "on one node Ignite takes such a world, and so does the smoke"
        assert not_passed(report)
        assert finding["id"] == "two-launchers" and "Ignite reads SLURM's variables under torchrun" in finding["text"]
        assert "env -u SLURM_JOB_ID torchrun" in finding["fix"]
        assert json.loads((tmp_path / "mended").read_text())["status"] == "pass"

        srun = ["srun", "-N2", "-n2", "--ntasks-per-node=1"]
        stale = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "192.0.2.7", "MASTER_PORT": "29999"}
        done = launchers.run([*srun, launchers.PYTHON, *smoke, "20"], env={**env, **stale}, timeout=60)
        (finding,) = report_of(done)["diagnosis"]
        assert (finding["id"], done.returncode) == ("two-launchers", 4) and done.seconds < 20, done.report()
        assert finding["fix"].startswith("unset ") and set(stale) <= set(finding["fix"].replace(",", "").split())

        absent = 'test "$SLURM_PROCID" = 1 || exec "$0" "$@"'
        done = launchers.run([*srun, "sh", "-c", absent, launchers.PYTHON, *smoke, "8"], env=env, timeout=60)
        (finding,) = report_of(done)["diagnosis"]
        assert finding["text"] == "rank 1 of 2 never came", done.report()
        assert finding["fix"] == f"srun --label shows what rank 1 prints; look on the node {cluster.nodes[1]}"


@needs("mpirun")
def test_mpirun_with_the_environment_mapped():
    smoke = [str(SCRIPT), "--format", "json", "--timeout", "100"]
    mapped = launchers.run(launchers.mpirun_argv(2, launchers.PYTHON, *smoke), timeout=LIMIT)
    assert mapped.returncode == 0 and not_passed(report_of(mapped)) == {}, mapped.report()


def two_torchruns(hosts, *options):
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
