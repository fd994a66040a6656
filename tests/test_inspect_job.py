"""Promise: inspect_job.py names the rank that holds a hanging job up, and its line, and leaves the job as it was."""
import json
import os
import re
import subprocess
import sys
import time
import types

import pytest
import torch.distributed as dist
from support import launchers
from support.claims import COUNTS
from support.hanging import (
    ODD,
    SCENES,
    hanging,
    inspect,
    inspect_job,
    log_of,
    play,
    processes_as_found,
    report_of,
    scenes,
    under,
)
from torch.multiprocessing.spawn import start_processes


def test_every_scene_has_a_mark():
    played = {n for n, f in vars(scenes).items() if callable(f) and getattr(f, "__module__", "") == "scenes"
              and hasattr(f, "__code__") and f.__code__.co_varnames[:2] == ("rank", "folder")}
    assert set(ODD) == played - {"mark", "load_batch", "same_place"} and len(ODD) > 15


@pytest.mark.parametrize("scene", sorted(ODD))
def test_names_rank_and_line(scene, tmp_path):
    rank, line = ODD[scene]
    with hanging(play(scene, tmp_path), tmp_path, [f"{r}.ready" for r in range(3)]) as pid:
        before = processes_as_found(under(pid))
        report = report_of(pid, "--interval", "0.6")
        verdict = report["verdict"]
        assert verdict["guilty_ranks"] == [rank], f"{verdict}\n{log_of(tmp_path)}"
        where = verdict["where"]
        assert where["path"] == str(SCENES) and where["path"].endswith(where["file"]), where
        assert abs(where["line"] - line) <= (scene == "computes"), f"line {line} is marked: {verdict['text']}"
        assert len(report["ranks"]) == 3 and f"scenes.py:{where['line']}" in verdict["text"]
        if scene not in ("polls_a_file", "others_poll"):
            assert verdict["waiting_in"] in ("all_reduce", "barrier", "all_gather", "wait"), verdict
        assert processes_as_found(under(pid)) == before, "the job is not as it was"
    COUNTS["hanging jobs inspected"] += 1


def test_a_job_goes_on_as_if_nothing_had_been(tmp_path):
    with hanging(play("sleeps", tmp_path), tmp_path, ["0.ready", "1.ready", "2.ready"]) as pid:
        assert report_of(pid, "--interval", "0.3")["verdict"]["guilty_ranks"] == [1]
        (tmp_path / "go").touch()
        os.waitpid(pid, 0)
    assert log_of(tmp_path).count(": 3.0") == 3, log_of(tmp_path)


def test_nobody_is_named_where_all_wait_alike(tmp_path):
    with hanging(play("same_place", tmp_path, 2), tmp_path, ["0.ready", "1.ready"]) as pid:
        verdict = report_of(pid, "--interval", "0.3", code=1)["verdict"]
    assert verdict["guilty_ranks"] == [] and verdict["rule"] == "same-place" and "recv" in verdict["text"], verdict


def test_a_rank_that_left_is_named(tmp_path):
    port = launchers.free_port()

    def main(i):
        scenes.mark(i, str(tmp_path))
        if i == 1:
            return
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=i, world_size=3)

    start = lambda: start_processes(main, nprocs=3, start_method="fork")
    with hanging(start, tmp_path, ["0.ready", "1.ready", "2.ready"]) as pid:
        verdict = report_of(pid, "--interval", "0.3")["verdict"]
    assert verdict["guilty_ranks"] == [1] and verdict["rule"] == "ended", verdict
    assert verdict["waiting_in"] == "init_process_group", verdict


def test_any_process_of_the_job_leads_to_it(tmp_path):
    with hanging(play("sleeps", tmp_path), tmp_path, ["0.ready", "1.ready", "2.ready"]) as pid:
        for process in (pid, under(pid)[1]):
            code, text, _ = inspect(process, "--interval", "0.2")
            assert code == 0 and re.match(r"rank 1 sleeps at load_batch, \S*scenes.py:", text), text


def test_a_thread_that_is_awake_for_a_moment_is_asked_again(monkeypatch):
    """A loop of short sleeps; the kernel names no call while the thread runs."""
    asked = []

    def read(path):
        asked.append(path)
        awake = sum(a.endswith("/syscall") for a in asked) <= 3
        if path.endswith("/syscall"):
            return "running" if awake else "35 0x0"
        return "0" if awake else "hrtimer_nanosleep"

    monkeypatch.setattr(inspect_job, "read", read)
    process = types.SimpleNamespace(pid=1)
    assert inspect_job.kernel_wait(process, 1, [], {})["text"] == "sleeps"
    monkeypatch.setattr(inspect_job, "read", lambda path: "running" if path.endswith("/syscall") else "0")
    assert inspect_job.kernel_wait(process, 1, [], {})["text"] == ""  # and an end to the asking


def test_without_py_spy_it_says_what_installs_it(tmp_path, monkeypatch):
    monkeypatch.setattr(inspect_job, "find_py_spy", lambda *_: None)
    with hanging(play("sleeps", tmp_path), tmp_path, ["0.ready", "1.ready", "2.ready"]) as pid:
        code, text, _ = inspect(pid, "--interval", "0.3")
        assert inspect_job.INSTALL in text and set(processes_as_found(under(pid)).values()) == {(False, "0")}, text
        assert code == 0 and "rank 1 sleeps" in text and "confidence: low" in text, text  # the kernel says so much
    assert "pip install py-spy" == inspect_job.INSTALL


def by_hand(program, folder, **env):
    """Two ranks started from a shell: processes with RANK and WORLD_SIZE, and no torch in them, so they are cheap."""
    (folder / "job.py").write_text(program)
    ranks = []
    for rank in range(2):
        with open(folder / f"err{rank}", "w") as err:
            ranks.append(subprocess.Popen(
                [sys.executable, "-S", "job.py"], cwd=folder, stderr=err, stdin=subprocess.DEVNULL,
                env={"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(os.getpid()),
                     **env}))
    deadline = time.monotonic() + 30
    while not all((folder / f"{r}.ready").exists() for r in range(2)):
        assert time.monotonic() < deadline, (folder / "err0").read_text()
        time.sleep(0.02)
    return ranks


HANDLERS = {
    "faulthandler": "faulthandler.register(signal.SIGUSR1)",
    "default": "",
    "python": "signal.signal(signal.SIGUSR1, lambda *a: open('signalled', 'w'))",
    "both": "faulthandler.register(signal.SIGUSR1); signal.signal(signal.SIGUSR1, lambda *a: open('signalled', 'w'))",
    "ignored": "signal.signal(signal.SIGUSR1, signal.SIG_IGN)",
}


@pytest.mark.parametrize("handler", HANDLERS)
def test_asks_only_a_process_that_registers_faulthandler(handler, tmp_path, monkeypatch):
    """Without py-spy; a process that would die of the signal, or act on it, never gets it, --sigusr1 or not."""
    monkeypatch.setattr(inspect_job, "find_py_spy", lambda *_: None)
    ranks = by_hand(
        f"import faulthandler, os, signal, time\n{HANDLERS[handler]}\n"
        "def rest():\n    open(os.environ['RANK'] + '.ready', 'w')\n    time.sleep(1000)\nrest()\n", tmp_path)
    try:
        argv = [ranks[0].pid, "--interval", "0.2", "--format", "json"]
        report = json.loads(inspect(*argv)[1])
        assert [r["rank"] for r in report["ranks"]] == [0, 1]
        stacks = [r["stack"] for r in report["ranks"]]
        if handler == "faulthandler":
            assert stacks == [["job.py:5 rest", "job.py:6 <module>"]] * 2, report
        else:
            assert stacks == [[], []] and all("SIGUSR1" in r["note"] for r in report["ranks"]), report
        assert not (tmp_path / "signalled").exists()
        if handler in ("default", "ignored"):
            inspect(*argv, "--sigusr1")
        assert [r.poll() for r in ranks] == [None, None], "a rank has died of it"
    finally:
        for r in ranks:
            r.kill()
            r.wait()


def test_another_users_processes(tmp_path):
    """Exit code 3 and the words for it; as root this test becomes nobody, in a fork."""
    if os.getuid():
        pytest.skip("needs root, to become somebody else")
    ranks = by_hand("import os, time\nopen(os.environ['RANK'] + '.ready', 'w')\ntime.sleep(1000)\n", tmp_path)
    try:
        with open(tmp_path / "out", "w+") as out:
            pid = os.fork()
            if pid == 0:
                os.dup2(out.fileno(), 2)
                sys.stderr = os.fdopen(2, "w", closefd=False)
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
                code = inspect_job.main([str(ranks[0].pid)])
                sys.stderr.flush()
                os._exit(code)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            out.seek(0)
            text = out.read()
        assert code == 3 and "not permitted" in text and "SYS_PTRACE" in text, (code, text)
    finally:
        for r in ranks:
            r.kill()
            r.wait()


def run_as(argv, env):
    """What becomes of a fork in `hanging`: another program, in the environment of a launcher."""
    return lambda: os.execvpe(argv[0], [str(a) for a in argv], {**launchers.clean_environment(), **env})


def test_torchrun(tmp_path):
    """The launcher, a rank and the shell's child that runs it all lead to the job; ranks are those of the launcher."""
    scene = "evaluator_under_guard"
    argv = launchers.torchrun_argv(2, SCENES, scene, tmp_path)
    with hanging(run_as(argv, {}), tmp_path, ["0.ready", "1.ready"]) as pid:
        report = report_of(pid)
    assert report["launcher"] == {"kind": "torchrun", "pid": pid}
    assert [(r["rank"], r["local_rank"], r["world_size"], r["rank_from"]) for r in report["ranks"]] == [
        (0, 0, 2, "environment"), (1, 1, 2, "environment")]
    verdict = report["verdict"]
    assert (verdict["guilty_ranks"], verdict["where"]["line"]) == ([0], ODD[scene][1]), verdict
    assert (verdict["where"]["file"], verdict["rule"]) == ("scenes.py", "guard"), verdict
    assert verdict["see"].endswith("#hangs-when-one-rank-evaluates-or-computes-a-metric")


def test_srun(tmp_path):
    """The tasks of a step are no children of srun; its pid, the job's number and one of its tasks all lead to them."""
    if reason := launchers.missing("slurm"):
        pytest.skip(reason)
    with launchers.slurm_cluster() as slurm:
        argv = ["srun", "-N2", "-n2", sys.executable, SCENES, "sleeps", tmp_path]
        with hanging(run_as(argv, slurm.env), tmp_path, ["0.ready", "1.ready"]) as pid:
            report = report_of(pid)
            job = next(inspect_job.processes()[r["pid"]].env["SLURM_JOB_ID"] for r in report["ranks"])
            again = report_of("--slurm", job, "--interval", "0.3")
            assert report_of(report["ranks"][1]["pid"], "--interval", "0.3")["verdict"]["guilty_ranks"] == [1]
    assert report["launcher"]["kind"] == "srun" and again["verdict"] == report["verdict"]
    assert [(r["rank"], r["host"]) for r in report["ranks"]] == [(0, slurm.nodes[0]), (1, slurm.nodes[1])]
    verdict = report["verdict"]
    assert (verdict["guilty_ranks"], verdict["where"]["line"]) == ([1], ODD["sleeps"][1]), verdict
