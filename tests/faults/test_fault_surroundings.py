"""Promise: what a shell, a scheduler or a neighbour leaves around the smoke is named or does no harm: variables of
launchers, clocks, releases, terminals, streams, and other smokes.
"""

import json
import os
import platform
import pty
import shutil
import signal
import subprocess
import sys
import time

import pytest
from support import launchers
from support.sabotage import sabotage
from support.smoke import (
    OVER,
    SCRIPT,
    faulty_smoke,
    faulty_smokes,
    finding_of,
    forked_smoke,
    fresh_smoke,
    in_session,
    plain_environment,
    raise_in,
    result_of,
)

TWO = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}
SLURM = {
    "SLURM_JOB_ID": "77",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_NTASKS": "4",
    "SLURM_JOB_NODELIST": "n[1-2]",
    "SLURM_JOB_NUM_NODES": "2",
}
TORCHRUN = {
    **TWO,
    "LOCAL_WORLD_SIZE": "2",
    "GROUP_RANK": "0",
    "MASTER_ADDR": "127.0.0.1",
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
LEFT_OVER = [
    ({"RANK": "0"}, 2, "partial-variables", "RANK set but not WORLD_SIZE, LOCAL_RANK"),
    ({"WORLD_SIZE": "4"}, 2, "partial-variables", "WORLD_SIZE set but not"),
    ({"LOCAL_RANK": "0"}, 2, "partial-variables", "LOCAL_RANK set but not"),
    ({"RANK": "0", "WORLD_SIZE": "2"}, 2, "partial-variables", "RANK, WORLD_SIZE set but not LOCAL_RANK"),
    ({**TWO, "RANK": "7"}, 2, "impossible-variables", "RANK=7"),
    ({**TWO, "RANK": "zero"}, 2, "impossible-variables", "RANK=zero"),
    ({**TWO, "MASTER_PORT": "abc"}, 2, "impossible-variables", "MASTER_PORT=abc"),
    ({**TWO, "MASTER_PORT": "99999"}, 2, "impossible-variables", "MASTER_PORT=99999"),
    (TORCHRUN, 4, "stale-torchrun", "no torchrun keeps a store at 127.0.0.1:"),
    ({"SLURM_JOB_ID": "77"}, 4, "stale-slurm", "SLURM_JOB_ID=77"),
    (SLURM, 4, "stale-slurm", "SLURM_JOB_ID=77"),
    ({**SLURM, "SLURM_STEP_ID": "0"}, 4, "stale-slurm", "SLURM_JOB_ID=77"),
    ({**TORCHRUN, **SLURM}, 4, "two-launchers", "Ignite reads SLURM's variables under torchrun"),
    (OPEN_MPI, 4, "stale-mpirun", "OMPI_COMM_WORLD_RANK is set, but no mpirun"),
    ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": ""}, 2, "impossible-variables", "OMPI_COMM_WORLD_SIZE="),
    ({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1"}, 4, "stale-mpirun", "PMI_RANK is set, but no mpirun"),
]


@pytest.mark.parametrize("variables, code, cause, says", LEFT_OVER, ids=[str(n) for n in range(len(LEFT_OVER))])
def test_left_over_variables_are_named_at_once(variables, code, cause, says):
    if "TORCHELASTIC_RUN_ID" in variables:
        variables = {**variables, "MASTER_PORT": str(launchers.free_port())}
    result = faulty_smoke(env=variables, within=20)
    finding = finding_of(result)
    assert (result.code, finding["id"]) == (code, cause) and says in finding["text"], finding
    assert finding["fix"] and "Traceback" not in result.err
    if cause.startswith(("stale-torchrun", "stale-mpirun")):
        assert set(finding["fix"].split()) >= {"unset", *(n for n in variables if not n.startswith("MPI_"))}


def test_the_command_that_mends_left_over_variables_mends_them():
    variables = {**TORCHRUN, "MASTER_PORT": str(launchers.free_port())}
    fix = finding_of(faulty_smoke(env=variables, within=20))["fix"].removeprefix("unset ").split()
    left = {k: v for k, v in variables.items() if k not in fix}
    assert faulty_smoke("serial", env=left).code == 0


def test_launcher_none_ignores_left_over_variables():
    variables = {**TORCHRUN, **SLURM, **OPEN_MPI, "MASTER_PORT": "9"}
    assert faulty_smoke("gloo", "--launcher", "none", env=variables).code == 0


@pytest.mark.skipif(launchers.missing("mpirun") is not None, reason=str(launchers.missing("mpirun")))
def test_an_mpirun_whose_variables_nobody_mapped_is_told_how_to():
    argv = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", launchers.PYTHON, str(SCRIPT), "serial"]
    done = launchers.run(argv, timeout=100)
    assert done.returncode == 4 and "RANK=$OMPI_COMM_WORLD_RANK" in done.stdout, done.report()


def skewed(seconds):
    """For `prepare`: rank 1 reads a wall clock that is off, as Python sees it."""

    def prepare():
        clock = time.time
        time.time = lambda: clock() + seconds * (os.environ.get("RANK") == "1")

    return prepare


@pytest.mark.parametrize("seconds", [-7200, 7200])
def test_a_clock_that_is_off_is_no_failure(seconds):
    assert faulty_smoke("gloo", prepare=skewed(seconds)).code == 0


SHIM = """
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long off(void) { const char *r = getenv("RANK"); return r && !strcmp(r, "1") ? 7200 : 0; }
int clock_gettime(clockid_t id, struct timespec *t) {
  int e = syscall(SYS_clock_gettime, id, t);
  if (id == CLOCK_REALTIME) t->tv_sec -= off();
  return e;
}
int gettimeofday(struct timeval *t, void *z) {
  int e = syscall(SYS_gettimeofday, t, z);
  t->tv_sec -= off();
  return e;
}
time_t time(time_t *t) {
  struct timespec s;
  clock_gettime(CLOCK_REALTIME, &s);
  if (t) *t = s.tv_sec;
  return s.tv_sec;
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")
def test_a_clock_that_is_off_for_torch_too_is_no_failure_under_torchrun(tmp_path):
    """The wall clock of rank 1 is two hours late for everything in its process."""
    (tmp_path / "shim.c").write_text(SHIM)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "shim.so", tmp_path / "shim.c"], check=True)
    env = {**launchers.clean_environment(), "LD_PRELOAD": str(tmp_path / "shim.so")}
    ask = [sys.executable, "-S", "-c", "import time; print(time.time())"]
    late, right = (
        float(subprocess.run(ask, env={**env, "RANK": r}, capture_output=True, check=True).stdout) for r in "10"
    )
    assert 7190 < right - late < 7230
    argv = launchers.torchrun_argv(2, str(SCRIPT), "--format", "json", "--timeout", "100")
    done = launchers.run(argv, env=env, timeout=150)
    assert result_of(done).report["status"] == "pass", done.report()


def test_ranks_with_different_releases_are_named(tmp_path):
    """Rank 1 finds a sitecustomize that gives Ignite another version."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os\nif os.environ.get('RANK') == '1':\n    import ignite\n    ignite.__version__ = '0.4.13'\n"
    )
    env = {**launchers.clean_environment(), "PYTHONPATH": str(tmp_path)}
    argv = launchers.torchrun_argv(2, str(SCRIPT), "--format", "json", "--timeout", "40")
    result = result_of(launchers.run(argv, env=env, timeout=90))
    finding = finding_of(result)
    assert (result.report["exit_code"], finding["id"]) == (4, "version-mismatch"), finding
    assert "ignite 0.4.13: rank 1" in " ".join(finding["evidence"])
    assert finding["fix"].startswith("pip install pytorch-ignite==")


def test_ranks_with_different_releases_of_python_are_named():
    port = launchers.free_port()

    def older():
        platform.python_version = lambda: "3.9.19"

    where = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    argv = ["--format", "json", "--timeout", "20"]
    jobs = [{"argv": argv, "env": {**where, "RANK": str(r), "LOCAL_RANK": str(r)}} for r in range(2)]
    first, second = faulty_smokes(jobs[0], {**jobs[1], "prepare": older}, within=20 + OVER)
    finding = finding_of(first)
    assert (first.code, second.code, finding["id"]) == (4, 4, "version-mismatch") and "Python" in finding["text"]
    assert "Python 3.9: rank 1" in " ".join(finding["evidence"]) and second.out == ""
    assert finding["fix"] == f"start every rank with {sys.executable}"


@pytest.mark.parametrize("variables", [{}, {**TWO, "RANK": "1", "LOCAL_RANK": "1"}])
def test_a_report_that_was_asked_for_is_written_whatever_is_wrong(variables, tmp_path):
    """A launcher's variables that are left over, of a rank above 0 too; a call that cannot be meant so."""
    stale = {**TORCHRUN, **variables, "MASTER_PORT": str(launchers.free_port())}
    for argv, code, cause in ((["serial", "gloo"], 2, "usage"), ([], 4, "stale-torchrun")):
        file = tmp_path / f"{cause}.json"
        result = forked_smoke(*argv, "--format", "json", "--output", str(file), env=stale)
        if code == 2 and variables:
            assert (result.code, result.out) == (2, "") and not file.exists()  # rank 0 says it
            continue
        assert (result.code, finding_of(result)["id"]) == (code, cause)
        assert json.loads(file.read_text()) == result.report
        assert result.report.get("rank", 0) == int(stale["RANK"])


def test_a_file_that_is_named_like_a_module_of_python(tmp_path):
    """On the path before the standard library: before the smoke itself is imported, or with torch."""
    for name, text in (("random", "x = 1"), ("timeit", "raise ImportError('not what you think')")):
        folder = tmp_path / name
        folder.mkdir()
        file = folder / f"{name}.py"
        file.write_text(text + "\n")
        result = fresh_smoke("serial", "--only", "hostname", env=plain_environment(PYTHONPATH=str(folder)))
        assert result.code == 3 and "Traceback" not in result.err and str(file) in result.err, (name, result)
        assert f"cause: {file} is" in result.out.replace("torch cannot be imported (not what you think): ", "")
        assert f"fix:  mv {file} {folder}/my_{name}.py" in result.out


@pytest.mark.parametrize(
    "package, text, says, fix",
    [
        ("ignite", "# mine", "{place} is imported in place of the package", "mv {place} {folder}/my_ignite"),
        ("numpy", "raise ImportError('multiarray failed')", "(multiarray failed)", "mv {place} {folder}/my_numpy"),
        ("ignite", "raise ImportError('libcudart.so.12: cannot open shared object file')", "a shared library", "pip"),
    ],
)
def test_what_mends_an_import_is_told_from_what_was_raised_and_where(package, text, says, fix, tmp_path):
    place = tmp_path / package
    place.mkdir()
    (place / "__init__.py").write_text(text + "\n")
    report = tmp_path / "report.json"
    argv = ["serial", "--format", "json", "--output", str(report)]
    result = fresh_smoke(*argv, env=plain_environment(PYTHONPATH=str(tmp_path)))
    finding = finding_of(result)
    assert result.code == 3 and json.loads(report.read_text()) == result.report
    assert says.format(place=place) in finding["text"], finding
    assert finding["fix"].startswith(fix.format(place=place, folder=tmp_path)), finding


def test_a_variable_that_torch_refuses():
    result = fresh_smoke("serial", "--format", "json", env=plain_environment(TORCH_DISTRIBUTED_DEBUG="VERBOSE"))
    finding = finding_of(result)
    assert (result.code, finding["fix"]) == (3, "unset TORCH_DISTRIBUTED_DEBUG")
    assert "TORCH_DISTRIBUTED_DEBUG=VERBOSE" in finding["evidence"] and "OFF, INFO, or DETAIL" in finding["text"]


def test_nothing_is_left_in_the_temporary_folder(tmp_path):
    """In a new interpreter, where torch makes a folder for its compiler."""
    result = fresh_smoke("gloo", "--only", "initialize", env=plain_environment(TMPDIR=str(tmp_path)))
    assert result.code == 0 and os.listdir(tmp_path) == []


def test_thirty_two_at_once_all_pass():
    job = {"argv": ["--format", "json", "--timeout", "500"]}
    results = faulty_smokes(*[job] * 32, within=520)
    assert [r.code for r in results] == [0] * 32, [r.failing() for r in results]


def test_ctrl_c_in_a_terminal():
    """A real one: the character goes in, the terminal sends the signal to whoever is in its foreground."""
    terminal, end = pty.openpty()
    name = os.ttyname(end)

    def prepare():
        os.open(name, os.O_RDWR)  # of a session without a terminal it becomes the terminal
        sabotage("barrier", "freezes-on-one-rank")

    def act(smokes):
        while len(in_session(smokes[0].pid)) < 4:  # the supervisor, a rank of the first run, two of the second
            assert not smokes[0].done()
            time.sleep(0.01)
        os.write(terminal, b"\x03")

    try:
        result = faulty_smoke("gloo", "--timeout", "60", prepare=prepare, act=act, within=20)
    finally:
        os.close(terminal)
        os.close(end)
    assert (result.code, finding_of(result)["id"]) == (128 + signal.SIGINT, "interrupted")
    assert "SIGINT" in finding_of(result)["text"] and "Traceback" not in result.err


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_no_failure(closed):
    command = f"exec {sys.executable} {SCRIPT} serial --only hostname {closed}"
    assert subprocess.run(["sh", "-c", command], timeout=90, env=plain_environment()).returncode == 0


@pytest.mark.parametrize("argv, code", [(["--list"], 0), (["serial", "--only", "hostname"], 0)])
def test_a_closed_output_pipe_is_no_traceback(argv, code):
    reader = subprocess.Popen(["true"], stdin=subprocess.PIPE)
    reader.wait()
    command = [sys.executable, str(SCRIPT), *argv]
    done = subprocess.run(command, stdout=reader.stdin, stderr=subprocess.PIPE, text=True, timeout=90)
    assert "Traceback" not in done.stderr and done.returncode in (code, 1, 2)


def test_a_full_output_is_said_and_not_taken_for_usage():
    def run(*argv):
        with open("/dev/full", "w") as full:
            command = [sys.executable, str(SCRIPT), *argv]
            return subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=90)

    done = run("--help")
    assert "Traceback" not in done.stderr or done.returncode != 0
    done = run("serial", "--only", "hostname")
    assert done.returncode == 1 and "the report cannot be written" in done.stderr


def test_a_parent_that_ignores_its_children_is_no_failure():
    ignoring = lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    assert faulty_smoke("gloo", "--only", "hostname", prepare=ignoring).code == 0


@pytest.mark.parametrize("form", ["json", "text"])
def test_text_that_no_encoding_holds_is_reported(form):
    prepare = raise_in("new_group", RuntimeError("bad \udcff Größe"))
    for env in ({}, {"PYTHONIOENCODING": "ascii"}):
        result = forked_smoke("serial", "--format", form, env=env, prepare=prepare)
        assert result.code == 1 and "new_group" in result.out and "Traceback" not in result.err


def test_barrier_is_not_checked_in_a_world_of_one():
    assert forked_smoke("serial", prepare=raise_in("barrier", RuntimeError("x"))).code == 0


@pytest.mark.parametrize("variables, word", [(v, w) for v, _, _, w in LEFT_OVER if "TORCHELASTIC_RUN_ID" not in v])
def test_left_over_variables_are_named_in_the_text_report(variables, word):
    result = forked_smoke(env=variables)
    assert word in result.out and "Traceback" not in result.err and result.seconds < 20


def test_the_deadline_before_the_first_check_is_said():
    result = faulty_smoke("--timeout", "0.001", within=10)
    assert (result.code, result.report["status"], finding_of(result)["id"]) == (5, "timeout", "deadline")


