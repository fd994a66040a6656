"""Promise: a program of the bundle does no more to a machine than its row of SECURITY.md says.

Each runs in a fork of this process under an audit hook, which its ranks inherit and which cannot be taken off: what it
opens for writing, makes, removes, starts, connects to, signals, and whether it runs code of the folder it stands in.
Not seen that way are the sockets of gloo and of torch's store, which are C++; faults/test_smoke_isolation.py
looks at those from outside.
"""
from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from support import BUNDLE
from support.claims import COUNTS
from support.pages import read_page
from support.smoke import ForkedSmoke

PROGRAMS = {p.name: p for pattern in ("sub-skills/*/scripts/*.py", "scripts/*.py") for p in sorted(BUNDLE.glob(pattern))
            if "__main__" in p.read_text()}
MODULES = {"smoke_runner.py"}  # imported by the smokes, not run
TESTED_ELSEWHERE = {
    "smoke.py": "starts new interpreters, each a smoke of this table",
    "train.py": "worlds/test_assets.py", "evaluate.py": "worlds/test_assets.py",
    "resumable_trainer.py": "test_engine_asset.py", "custom_metric.py": "test_metrics_assets.py",
    "run_explained.sh": "test_explain_log_assets.py", "slurm_prologue.sh": "test_explain_log_assets.py",
    "slurm_epilogue.sh": "test_explain_log_assets.py", "pytorch-ignite-skill": "test_install.py",
}
LOOPBACK = re.compile(r"127\.|::1$|localhost$|::ffff:127\.")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
OF_THE_PROCESS = ("TORCH", "PYTORCH_", "RES_OPTIONS")  # that torch, and the smoke for its look-ups, set for themselves
CHANGES = {"os.mkdir", "os.remove", "os.rmdir", "os.rename", "os.link", "os.symlink", "os.truncate", "os.chmod",
           "os.chown", "os.utime", "os.setxattr", "shutil.rmtree", "shutil.copyfile", "shutil.move",
           "tempfile.mkstemp", "tempfile.mkdtemp"}
STARTS = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.startfile", "pty.spawn"}
CONNECTS = {"socket.connect", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo", "socket.bind", "urllib.Request"}
SCRIPT = """import helper_of_the_user
import torch.distributed as dist
print("run")
open("written by the script", "w")
if dist.get_rank() == 0:
    dist.barrier()
"""
LOG = """[rank1]: Traceback (most recent call last):
[rank1]:   File "train.py", line 3, in <module>
[rank1]:     raise ValueError("bad batch")
[rank1]: ValueError: bad batch
"""


def rows() -> dict[str, dict[str, str]]:
    """program -> column -> cell."""
    table = next(e for e in read_page("SECURITY.md").entries if e.tables).tables[0]
    found = {}
    for row in table.rows[1:]:
        for name in re.findall(r"`([^`]+)`", row[0]):
            found[name] = dict(zip(table.rows[0], row))
    return found


def whole(path, beside: int = -1) -> str:
    """An argument of a call as an absolute path; `beside` is an open folder, as shutil.rmtree uses it."""
    try:
        base = os.readlink(f"/proc/self/fd/{beside}") if isinstance(beside, int) and beside >= 0 else os.getcwd()
    except OSError:
        base = "/removed"
    return os.path.realpath(os.path.join(base, os.fsdecode(path)))


def watch(sink: int, folder: Path):
    """Install the hook. Each event is one line of JSON, written at once: also by a rank that is killed afterwards."""
    inside = str(folder)

    def hook(event, args):
        try:
            if event == "open":
                seen = [whole(args[0])] if not isinstance(args[0], int) and args[2] & WRITING else None
            elif event in CHANGES:
                beside = args[-1] if event in ("os.remove", "os.rmdir", "os.mkdir") else -1
                seen = [whole(a, beside) for a in args[:2] if isinstance(a, (str, bytes, os.PathLike))]
            elif event in STARTS:
                seen = [str(args[0])]
            elif event in CONNECTS:
                address = args[1] if event in ("socket.connect", "socket.bind", "socket.sendto") else args[0]
                seen = [str(address[0] if isinstance(address, tuple) else address)]
            elif event in ("os.kill", "os.killpg"):
                seen = [args[0], args[1]]
            elif event == "exec":
                name = getattr(args[0], "co_filename", "")
                seen = [name] if name.startswith(inside) else None
            elif event == "import":
                seen = [args[0]] if args[0] == "helper_of_the_user" else None
            else:
                return
            if seen is not None:
                os.write(sink, (json.dumps([event, seen]) + "\n").encode())
        except ValueError:
            pass  # an argument that is no text

    sys.addaudithook(hook)


class Watched:
    """A program's main(), as ForkedSmoke takes it."""

    def __init__(self, path: Path):
        spec = importlib.util.spec_from_file_location(f"watched_{path.stem}", path)
        self.module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = self.module
        spec.loader.exec_module(self.module)
        if hasattr(self.module, "import_libraries"):
            self.module.import_libraries()

    def main(self, argv):
        self.module.STARTED = time.monotonic()
        before, folder = dict(os.environ), os.getcwd()
        code = self.module.main(argv)
        changed = {n for n, _ in {*before.items()} ^ {*os.environ.items()} if not n.startswith(OF_THE_PROCESS)}
        assert not changed, f"the environment has other {sorted(changed)}"
        assert os.getcwd() == folder, "the working folder is another one"
        return code


def run(path: Path, argv: list[str], folder: Path, environment: dict[str, str] | None = None):
    """Result and events of one run, in `folder`, with a temporary folder of its own."""
    record, temporary = folder / "events", folder / "tmp"
    work = folder / "work"
    for made in (temporary, work):
        made.mkdir(exist_ok=True)
    sink = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    os.set_inheritable(sink, True)

    def prepare():
        sys.dont_write_bytecode = True
        sys.path.insert(0, str(work))
        os.chdir(work)
        os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
        os.environ.update(environment or {})
        watch(sink, work)

    try:
        result = ForkedSmoke(argv, prepare, module=Watched(path)).finish()
    finally:
        os.close(sink)
    left = [p for p in temporary.iterdir() if not (p.name.startswith("torchinductor_") and not list(p.iterdir()))]
    assert not left, f"{path.name} leaves {left}"
    return result, [json.loads(line) for line in record.read_text().splitlines()]


def faults(name: str, row: dict[str, str], argv: list[str], events: list, folder: Path) -> list[str]:
    """Events that the row does not allow."""
    given = {flag: argv[argv.index(flag) + 1] for flag in re.findall(r"`(--[\w-]+)`", row["writes"]) if flag in argv}
    files = {os.path.realpath(folder / "work" / path) for path in given.values()} | {os.devnull}
    roots = [os.path.realpath(folder / "tmp")] if "temporary folder" in row["writes"] else []
    started = set(re.findall(r"`([\w-]+)`", row["starts"]))
    own = "rank" in row["starts"] or "process" in row["starts"]
    found = []
    for event, seen in events:
        if event == "open" or event in CHANGES:
            bad = [p for p in seen if p not in files and not any(p.startswith(root + os.sep) for root in roots)]
            found += [f"{name}: {event} {p}, not in «{row['writes']}»" for p in bad]
        elif event in STARTS:
            if os.path.basename(seen[0]) not in started and not (own and seen[0] == sys.executable):
                found.append(f"{name}: {event} {seen}, not in «{row['starts']}»")
        elif event in CONNECTS:
            if "loopback" not in row["connects to"] or not may_be_asked(seen[0]):
                found.append(f"{name}: {event} {seen}, not in «{row['connects to']}»")
        elif event in ("exec", "import"):
            found.append(f"{name}: runs code of the folder it looks at: {seen}")
        elif event in ("os.kill", "os.killpg") and not own:
            found.append(f"{name}: {event} {seen}")
    COUNTS["audit events of programs judged"] += len(events)
    return found


def may_be_asked(address: str) -> bool:
    """Loopback, a socket in the file system, or the name of this machine, which is looked up and not connected to."""
    import socket

    return bool(LOOPBACK.match(address)) or address in ("", "None", "0.0.0.0", "::", socket.gethostname()) \
        or address.startswith(("/", "\0", "b'"))


def arguments(name: str, folder: Path) -> list[list[str]]:
    """Runs that use what the program can do. A program that is new gets --help, and fails until it stands here."""
    work = folder / "work"
    work.mkdir()
    (work / "helper_of_the_user.py").write_text("print('imported')\nopen('written by the helper', 'w')\n")
    (work / "train.py").write_text(SCRIPT)
    (work / "job.log").write_text(LOG)
    if name == "distributed_smoke.py":
        return [["gloo", "--nproc", "2", "--only", "all_reduce,new_group,checkpoint_once,one_rank_first,teardown",
                 "--output", "report.json", "--format", "json"], ["--env"], ["serial"]]
    if name.endswith("_smoke.py"):
        return [["--output", "report.json"]]
    return {
        "check_script.py": [["train.py", ".", "--output", "report.txt"], ["--format", "json", "."]],
        "explain_log.py": [["job.log", "--html", "page.html"], ["--format", "json", "."]],
        "inspect_job.py": [["--interval", "0.2", "--html", "page.html", "PID"], ["--list-rules"]],
    }.get(name, [])


def test_every_program_has_a_row_and_every_row_a_program():
    known = rows()
    assert len(PROGRAMS) > 5, PROGRAMS
    assets = {p.name for p in BUNDLE.glob("sub-skills/*/assets/*") if p.suffix in (".py", ".sh")}
    missing = (set(PROGRAMS) | assets) - set(known) - MODULES
    assert not missing, f"SECURITY.md has no row for {sorted(missing)}"
    strange = set(known) - set(PROGRAMS) - set(TESTED_ELSEWHERE)
    assert not strange, f"SECURITY.md has rows for {sorted(strange)}, which are no programs"
    for name in set(TESTED_ELSEWHERE) - set(PROGRAMS) - {"pytorch-ignite-skill"}:
        assert list(BUNDLE.glob(f"sub-skills/*/assets/{name}")), name
    for name, test in TESTED_ELSEWHERE.items():
        assert (BUNDLE / "tests" / test).exists() or not test.endswith(".py"), f"{name}: no {test}"


@pytest.mark.parametrize("name", sorted(set(PROGRAMS) - MODULES - set(TESTED_ELSEWHERE)))
def test_program_keeps_to_its_row(name, tmp_path):
    runs = arguments(name, tmp_path)
    assert runs, f"{name} is new: say in arguments() how to run it here"
    row, wrong = rows()[name], []
    for argv in runs:
        if "PID" in argv:
            job = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                                   env={**os.environ, "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"})
            argv = [str(job.pid) if a == "PID" else a for a in argv]
        before = {p: p.read_bytes() for p in (tmp_path / "work").rglob("*") if p.is_file()}
        try:
            result, events = run(PROGRAMS[name], argv, tmp_path)
        finally:
            if "PID" in argv or name == "inspect_job.py" and argv[-1].isdigit():
                assert job.poll() is None, "it still runs"
                job.kill()
                job.wait()
        assert result.code in (0, 1), f"{name} {argv}: {result.code}\n{result.out[-800:]}{result.err[-2000:]}"
        wrong += faults(name, row, argv, events, tmp_path)
        outputs = {argv[argv.index(f) + 1] for f in re.findall(r"`(--[\w-]+)`", row["writes"]) if f in argv}
        for output in outputs:
            assert (tmp_path / "work" / output).stat().st_size, f"{name}: {output} is empty"
            before.pop(tmp_path / "work" / output, None)
            (tmp_path / "work" / output).unlink()
        after = {p: p.read_bytes() for p in (tmp_path / "work").rglob("*") if p.is_file()}
        assert after == before, f"{name} {argv} changed the folder: {sorted(set(after) ^ set(before))}"
    assert not wrong, "\n" + "\n".join(dict.fromkeys(wrong))
    COUNTS["programs run under the audit hook"] += 1


def test_readers_start_and_connect_to_nothing():
    """The promises that matter most are in the table in so many words."""
    for name in ("explain_log.py", "check_script.py"):
        assert rows()[name]["starts"] == rows()[name]["connects to"] == "–", name


NAUGHTY = {
    "writes": ("open('secret', 'w')", "open"),
    "writes with a flag": ("import os; os.close(os.open('secret', os.O_CREAT | os.O_RDWR))", "open"),
    "removes": ("import os; os.remove('train.py')", "os.remove"),
    "starts": ("import subprocess; subprocess.run(['true'])", "subprocess.Popen"),
    "starts a shell": ("import os; os.system('true')", "os.system"),
    "connects": ("import socket; socket.socket().connect_ex(('127.0.0.1', 9))", "socket.connect"),
    "asks for a name": ("import socket; socket.getaddrinfo('localhost', 80)", "socket.getaddrinfo"),
    "imports": ("import helper_of_the_user", "runs code"),
    "runs": ("import os; exec(compile('1', os.path.abspath('train.py'), 'exec'))", "runs code"),
    "signals": ("import os; os.kill(os.getpid(), 0)", "os.kill"),
    "in a child": ("import os; pid = os.fork(); pid or (open('secret', 'w'), os._exit(0)); os.waitpid(pid, 0)", "open"),
}


@pytest.mark.parametrize("what", NAUGHTY)
def test_a_program_that_does_more_is_caught(what, tmp_path):
    arguments("", tmp_path)
    body, event = NAUGHTY[what]
    program = tmp_path / "naughty.py"
    program.write_text(f"def main(argv):\n    try:\n        {body}\n    except OSError:\n        pass\n    return 0\n")
    _, events = run(program, [], tmp_path)
    said = faults("naughty.py", rows()["check_script.py"], [], events, tmp_path)
    assert said and any(event in s for s in said), (said, events)


def test_a_changed_environment_is_caught(tmp_path):
    program = tmp_path / "naughty.py"
    program.write_text("import os\ndef main(argv):\n    os.environ['LEFT'] = 'behind'\n    return 0\n")
    result, _ = run(program, [], tmp_path)
    assert result.code == 99 and "the environment" in result.err


def test_what_is_left_in_the_temporary_folder_is_caught(tmp_path):
    program = tmp_path / "naughty.py"
    program.write_text("import tempfile\ndef main(argv):\n    tempfile.mkdtemp()\n    return 0\n")
    with pytest.raises(AssertionError, match="naughty.py leaves"):
        run(program, [], tmp_path)


def test_a_foreign_address_is_no_loopback():
    assert not may_be_asked("192.0.2.7") and not may_be_asked("2001:db8::1") and not may_be_asked("example.org")
    assert may_be_asked("127.0.0.1") and may_be_asked("::1")


def test_inspect_job_sends_no_signal_that_is_not_caught(tmp_path):
    """A process that would die of SIGUSR1 lives on, with the option that allows the signal."""
    job = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                           env={**os.environ, "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"})
    try:
        argv = ["--interval", "0.2", "--sigusr1", "--py-spy", "/nonexistent", str(job.pid)]
        _, events = run(PROGRAMS["inspect_job.py"], argv, tmp_path)
        assert not [e for e in events if e[0] == "os.kill" and e[1][1] not in (0,)], events
        time.sleep(0.2)
        assert job.poll() is None
    finally:
        job.send_signal(signal.SIGKILL)
        job.wait()
