"""Promise: what inspect_job.py reports can be merged over hosts, shown as a page, and survives whatever a file holds.

The reports in tests/jobs/*.json are of real jobs under torchrun and srun; tests/jobs/record.py made them.
"""
import ast
import copy
import json
import random
import re
import shutil
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest
from support.claims import COUNTS
from support.hanging import ODD, PROGRAM, inspect, inspect_job
from support.pages import read_page

RECORDED = sorted((Path(__file__).parent / "jobs").glob("*.json"))
SCENE = {"torchrun-8": "evaluator_under_guard", "srun-2x2": "loader_worker"}


def recorded(name):
    return json.loads((Path(__file__).parent / f"jobs/{name}.json").read_text())


def verdict_of(tmp_path, *reports):
    """The verdict over reports, each in a file of its own."""
    paths = []
    for i, report in enumerate(reports):
        paths.append(tmp_path / f"host-{i}.json")
        paths[-1].write_text(json.dumps(report))
    code, out, err = inspect("--merge", *paths, "--format", "json")
    assert code in (0, 1), err
    return json.loads(out)["verdict"]


@pytest.mark.parametrize("path", RECORDED, ids=lambda p: p.stem)
def test_the_verdict_follows_from_the_records_alone(path, tmp_path):
    report, (rank, line) = recorded(path.stem), ODD[SCENE[path.stem]]
    verdict = verdict_of(tmp_path, report)
    assert verdict["guilty_ranks"] == report["verdict"]["guilty_ranks"], "the run itself said another"
    assert verdict["guilty_ranks"] == [rank] and verdict["where"]["line"] == line, verdict
    assert verdict["confidence"] == "high" and verdict["waiting_in"] in ("barrier", "all_reduce"), verdict
    COUNTS["recorded jobs judged"] += 1


def test_recorded_launchers_are_known():
    assert {p.stem: json.loads(p.read_text())["launcher"]["kind"] for p in RECORDED} == {
        "torchrun-8": "torchrun", "srun-2x2": "srun"}


def test_hosts_are_merged(tmp_path):
    """Each host sees its own ranks only: alone neither names anybody wrongly, together they name the rank."""
    whole = recorded("srun-2x2")
    hosts = sorted({r["host"] for r in whole["ranks"]})
    parts = [{**whole, "ranks": [r for r in whole["ranks"] if r["host"] == host]} for host in hosts]
    assert [len(p["ranks"]) for p in parts] == [2, 2]
    second = verdict_of(tmp_path, parts[1])
    assert second["guilty_ranks"] in ([], [0, 1]) and second["confidence"] != "high", second
    expected = verdict_of(tmp_path, whole)
    assert verdict_of(tmp_path, *parts) == expected == verdict_of(tmp_path, *parts, parts[0])
    assert verdict_of(tmp_path, *parts[::-1]) == expected
    one = tmp_path / "all.json"
    one.write_text("".join(f"0: {json.dumps(p)}\n1: a line of something else\n" for p in parts))
    assert json.loads(inspect("--merge", one, "--format", "json")[1])["verdict"] == expected


def many(ranks=512, odd=300):
    """A report of 512 ranks on 64 hosts, made of a recorded one of 8: all wait, one stands at the guarded call."""
    report = recorded("torchrun-8")
    first, other = (next(r for r in report["ranks"] if r["rank"] == n) for n in (0, 1))
    report["ranks"] = []
    for n in range(ranks):
        r = copy.deepcopy(first if n == odd else other)
        r.update(rank=n, local_rank=n % 8, world_size=ranks, host=f"node{n // 8:03}", pid=1000 + n)
        report["ranks"].append(r)
    return report


def test_512_ranks(tmp_path):
    path, page = tmp_path / "many.json", tmp_path / "many.html"
    path.write_text(json.dumps(many()))
    began = time.process_time()
    code, out, _ = inspect("--merge", path, "--html", page)
    assert code == 0 and out.startswith("rank 300 "), out
    assert "ranks 0–299,301–511 wait in barrier" in out and len(out) < 4000
    assert time.process_time() - began < 5 and page.stat().st_size < 3_000_000


class Page(HTMLParser):
    """Tags and text of a page; refuses what a page without network and scripts has no use for."""

    def __init__(self, source):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(source)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for name, value in attrs:
            assert not name.startswith("on"), (name, value)
            assert name not in ("href", "src") or value.startswith("#"), (name, value)

    def handle_data(self, data):
        self.text += data


NASTY = "<script>document.title='x'</script><img src=//h/x onerror=alert(1)>&\"'\x1b[31m\x00"


def nasty():
    """A recorded report with every text replaced by one that a careless page would execute."""

    def spoil(value, name=""):
        if isinstance(value, dict):
            return {k: v if k in ("schema", "state") else spoil(v, k) for k, v in value.items()}
        if isinstance(value, list):
            return [spoil(v, name) for v in value]
        return NASTY + ":1 f" if name == "chain" else NASTY if isinstance(value, str) else value

    return spoil(recorded("srun-2x2"))


def test_the_page_is_self_contained_and_escapes_everything(tmp_path):
    for i, report in enumerate([nasty(), recorded("torchrun-8"), many(64)]):
        path, page = tmp_path / f"{i}.json", tmp_path / f"{i}.html"
        path.write_text(json.dumps(report))
        inspect("--merge", path, "--html", page)
        source = page.read_text()
        parsed = Page(source)
        assert "script" not in parsed.tags and "img" not in parsed.tags and "link" not in parsed.tags
        assert "prefers-color-scheme: dark" in source and "://" not in source and "@import" not in source
        assert {"details", "section", "pre"} <= set(parsed.tags)
        assert "\x1b" not in source and "\x00" not in source
        for rank in report["ranks"]:
            assert f">{rank['rank']}</a>" in source
    assert source == inspect("--merge", path, "--html", "-")[1][:-1]


def test_the_text_has_no_control_characters(tmp_path):
    (tmp_path / "n.json").write_text(json.dumps(nasty()))
    out = inspect("--merge", tmp_path / "n.json")[1]
    assert out and all(c.isprintable() or c == "\n" for c in out)


def test_a_browser_shows_it(tmp_path):
    """Headless Chromium, where there is one: no script runs, nothing is wider than the window of a telephone."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not browser:
        pytest.skip("no Chromium here")
    (tmp_path / "n.json").write_text(json.dumps(nasty()))
    inspect("--merge", tmp_path / "n.json", "--html", tmp_path / "n.html")
    frame = tmp_path / "frame.html"  # a frame of 390 px that tells its width in its own title
    frame.write_text("<iframe src=n.html width=390 height=800></iframe><script>onload = () => { const d = "
                     "document.querySelector('iframe').contentDocument.documentElement; document.title = "
                     "`width ${d.scrollWidth} title ${d.ownerDocument.title.slice(0, 8)}` }</script>")
    done = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files", "--dump-dom",
         f"--user-data-dir={tmp_path}/profile", frame.as_uri()], capture_output=True, text=True, timeout=90)
    title = re.search(r"<title>(.*?)</title>", done.stdout, re.S)
    assert title, done.stdout[-500:] + done.stderr[-2000:]
    width, shown = re.fullmatch(r"width (\d+) title (.*)", title[1]).groups()
    assert int(width) <= 390 and shown not in ("x", ""), title[1]


def mutations():
    """Files that are no report, or one that something has chewed on."""
    rng, text = random.Random(1), json.dumps(recorded("srun-2x2"))
    yield b""
    yield rng.randbytes(50_000)
    yield text.encode()[: len(text) // 2]
    yield b'{"schema": "pytorch-ignite-inspect/1", "ranks": ' + b"[" * 200_000
    yield b"{" * 100_000
    yield text.encode("utf-16")
    yield json.dumps({"schema": "pytorch-ignite-inspect/1", "ranks": [1, None, {}, {"rank": -1, "state": 3}]}).encode()
    values = [None, -1, 10**30, 1.5, "", "x:y", [], {}, [[]], {"line": 1}, True, float("nan")]
    for _ in range(150):
        report = json.loads(text)

        def chew(value):
            if isinstance(value, dict):
                return {k: rng.choice(values) if rng.random() < 0.08 and k != "schema" else chew(v)
                        for k, v in value.items()}
            return [chew(v) for v in value] if isinstance(value, list) else value

        report["ranks"] = chew(report["ranks"])
        yield json.dumps(report).encode()


def test_whatever_a_file_holds(tmp_path):
    for n, content in enumerate(mutations()):
        (tmp_path / "f").write_bytes(content)
        code, out, err = inspect("--merge", tmp_path / "f", "--html", tmp_path / "page")
        assert code in (0, 1, 2) and (out or err), n
        assert code != 2 or err.count("\n") == 1, err
        COUNTS["chewed reports read"] += 1


@pytest.mark.parametrize("argv, code, words", [
    (["--merge", "/nonexistent"], 2, "cannot be read"),
    (["--merge", "/"], 2, "cannot be read"),
    (["0"], 2, "positive"),
    (["x"], 2, "invalid int value"),
    ([str(2**22 + 5)], 3, "no process"),
    (["1", "--slurm", "2"], 2, "give one of"),
    (["--slurm", "1; rm"], 2, "job number"),
    (["--slurm", "424242"], 3, "srun --jobid=424242 --overlap"),
    (["--interval", "-1"], 2, "between"),
    (["--explain", "nosuch"], 2, "there is no rule"),
    (["--py-spy", "/nonexistent", "1"], 2, "cannot be run"),
    (["--format", "xml"], 2, "invalid choice"),
])
def test_usage_is_told_in_a_line(argv, code, words):
    done, out, err = inspect(*argv)
    assert (done, out) == (code, "") and words in err and err.startswith("inspect_job.py: "), (done, out, err)


def test_rules_are_listed_explained_and_linked():
    listed = inspect("--list-rules")[1].splitlines()
    assert [line.split()[0] for line in listed] == list(inspect_job.RULES) and len(listed) > 10
    for rule in inspect_job.RULES:
        code, text, _ = inspect("--explain", rule)
        assert code == 0 and text.startswith(f"{rule}: ")
    links = [entry for *_, entry in inspect_job.RULES.values() if entry]
    links += [inspect_job.TROUBLE + entry for _, entry in inspect_job.SCENES]
    for link in links:
        page, anchor = link.split("#")
        assert anchor in read_page(f"sub-skills/distributed/{page}").anchors, f"{page} has no #{anchor}"


def test_help_and_a_closed_pipe():
    done = subprocess.run(f"{sys.executable} -S {PROGRAM} --help | head -c 1; exit ${{PIPESTATUS[0]}}", shell=True,
                          executable="/bin/bash", capture_output=True, text=True, timeout=60)
    assert done.stderr == "" and done.stdout == "u"
    text = inspect_job.EPILOG
    assert text.count("inspect_job.py") >= 3 and all(f"\n  {code}  " in text for code in (0, 1, 2, 3))


def test_standard_library_only():
    source = PROGRAM.read_text()
    modules = set(re.findall(r"^(?:import|from) (\w+)", source, re.M))
    assert modules - {"__future__"} <= sys.stdlib_module_names and "argparse" in modules
    ast.parse(source, feature_version=(3, 9))


def changed(report, **changes):
    """The recorded torchrun-8 report in which ranks are as told: {rank: "gone" | "ended" | "stopped" | "like 0"}."""
    report, by_rank = copy.deepcopy(report), {r["rank"]: r for r in report["ranks"]}
    for r in list(report["ranks"]):
        what = changes.get(f"r{r['rank']}", "like 1" if r["rank"] == 0 else "")
        if what == "gone":
            report["ranks"].remove(r)
        elif what == "ended":
            r.update(state="ended", pid=None, stack=[], waits=None, site=None, chain=[])
        elif what == "stopped":
            r["state"] = what
        elif what.startswith("like"):
            r.update({k: v for k, v in copy.deepcopy(by_rank[int(what[5:])]).items() if k not in ("rank", "pid")})
    return report


@pytest.mark.parametrize("changes, guilty, rule, confidence", [
    ({}, [], "same-place", "low"),  # all wait alike
    ({"r3": "ended"}, [3], "ended", "high"),
    ({"r3": "ended", "r4": "ended"}, [3, 4], "ended", "high"),
    ({"r5": "stopped"}, [5], "stopped", "high"),
    ({"r7": "gone"}, [7], "missing", "medium"),
    ({f"r{n}": "gone" for n in range(2, 8)}, [], "missing", "low"),  # they are on another host
    ({"r0": "", "r7": "gone"}, [0], "guard", "high"),
    ({"r0": "", **{f"r{n}": "ended" for n in range(1, 8)}}, [0], "guard", "medium"),  # all others are through
    ({"r0": "", **{f"r{n}": "like 0" for n in range(1, 4)}}, [0, 1, 2, 3], "guard", "medium"),  # four and four
])
def test_what_follows_when_ranks_change(changes, guilty, rule, confidence, tmp_path):
    """Records of a real job, some of them taken away or changed: the verdict is a function of them."""
    verdict = verdict_of(tmp_path, changed(recorded("torchrun-8"), **changes))
    assert (verdict["guilty_ranks"], verdict["rule"], verdict["confidence"]) == (guilty, rule, confidence), verdict
    if len(guilty) > 1:
        assert re.match(r"ranks \S+ (have|are|were) ", verdict["text"]), verdict["text"]


def standing(report, ranks, **site):
    """The report in which these ranks are in no collective, but sleep at their line, with more said of it."""
    for r in report["ranks"]:
        if r["rank"] in ranks:
            r.update(waits=None, kernel={"what": "sleep", "text": "sleeps"}, site={**r["site"], "guard": "", **site})
            r["chain"][0] = f"scenes.py:{r['site']['line']} {r['site']['function']}"
    return report


OTHERS, GUARDED = list(range(1, 8)), "evaluator_under_guard 88"  # rank 0 is at line 88 of torchrun-8, the others at 89


@pytest.mark.parametrize("ranks, site, alone, guilty, rule, confidence", [
    (OTHERS, {"polls": True}, {}, [0], "guard", "high"),  # it went alone; the others look for a file
    (OTHERS, {"polls": True}, {"guard": ""}, [0], "guard", "medium"),
    (OTHERS, {"polls": True, "line": 80}, {"guard": ""}, OTHERS, "outside", "low"),  # on their way to its collective
    (OTHERS, {}, {"guard": ""}, OTHERS, "outside", "low"),  # a plain sleep is no look for something
    (OTHERS, {}, {"ends": GUARDED}, [0], "guard", "high"),  # all have left the guarded block behind
    (OTHERS, {"line": 80}, {"ends": GUARDED}, OTHERS, "outside", "low"),
    ([1], {"polls": True}, "like 1", [1], "outside", "high"),  # most are in the collective
])
def test_one_alone_in_a_collective_and_others_elsewhere(ranks, site, alone, guilty, rule, confidence, tmp_path):
    report = changed(recorded("torchrun-8"), r0="like 1" if alone == "like 1" else "")
    if isinstance(alone, dict):
        report["ranks"][0]["site"].update(alone)
    verdict = verdict_of(tmp_path, standing(report, ranks, **site))
    assert (verdict["guilty_ranks"], verdict["rule"], verdict["confidence"]) == (guilty, rule, confidence), verdict
    assert verdict["where"]["line"] == report["ranks"][guilty[0]]["site"]["line"], verdict


def test_one_of_two_outside_holds_the_other_up(tmp_path):
    """Two ranks, one in a collective: looking for a file does not clear the other, where no guard is passed."""
    report = standing(changed(recorded("torchrun-8")), [1], polls=True)
    report["ranks"] = [{**r, "world_size": 2} for r in report["ranks"][:2]]
    verdict = verdict_of(tmp_path, report)
    assert (verdict["guilty_ranks"], verdict["rule"], verdict["confidence"]) == ([1], "outside", "high"), verdict


def test_a_rank_that_joins_its_thread_is_named_at_its_own_line(tmp_path):
    report = standing(changed(recorded("torchrun-8")), [3], line=70, source="worker.join()")
    place = {"file": "scenes.py", "path": "scenes.py", "line": 64, "function": "fetch", "source": "get()"}
    report["ranks"][3]["helper"] = {"pid": 1, "kind": "thread Thread-1", "state": "sleeping", "moved": False,
                                    "text": "", "site": place, "stack": ["scenes.py:64 fetch"]}
    verdict = verdict_of(tmp_path, report)
    assert (verdict["guilty_ranks"], verdict["where"]["line"], verdict["rule"]) == ([3], 70, "thread"), verdict
    assert "thread Thread-1, which stands still at fetch, scenes.py:64" in verdict["text"], verdict
    report["ranks"][3]["helper"]["kind"] = "DataLoader worker"
    assert verdict_of(tmp_path, report)["where"]["line"] == 64


@pytest.mark.parametrize("state", ["gone", "ended"])
def test_a_rank_that_is_nowhere_is_named_with_the_line_of_the_others(state, tmp_path):
    report = changed(recorded("torchrun-8"), r5=state)
    verdict = verdict_of(tmp_path, report)
    assert (verdict["guilty_ranks"], verdict["where"]["line"]) == ([5], report["ranks"][0]["site"]["line"]), verdict
    assert "the line named is that at which the others wait" in verdict["text"], verdict


def test_a_rank_that_ended_while_others_look_for_a_file(tmp_path):
    report = standing(changed(recorded("torchrun-8"), r2="ended"), [0, 1, *range(3, 8)], polls=True)
    verdict = verdict_of(tmp_path, report)
    assert (verdict["guilty_ranks"], verdict["rule"]) == ([2], "ended"), verdict


@pytest.mark.parametrize("odd", [{"address": "127.0.0.1:2"}, {"world_size": 9}])
def test_a_rank_at_another_address(odd, tmp_path):
    report = changed(recorded("torchrun-8"))
    for r in report["ranks"]:
        r.update(address="127.0.0.1:1", waits={"call": "init_process_group", "via": "rendezvous", "peer": None})
    assert verdict_of(tmp_path, report)["guilty_ranks"] == []
    report["ranks"][6].update(odd)
    verdict = verdict_of(tmp_path, report)
    assert (verdict["guilty_ranks"], verdict["rule"], verdict["confidence"]) == ([6], "address", "high"), verdict


def table_of(monkeypatch, tmp_path, rows):
    """A process table as /proc would give it, of rows (pid, parent, command, environment, whether it has PyTorch)."""
    for pid, parent, command, env, torch in rows:
        folder = tmp_path / str(pid)
        folder.mkdir()
        name = Path(command.split()[0]).name
        (folder / "stat").write_text(f"{pid} ({name}) S {parent} {' '.join(['0'] * 50)}")
        (folder / "cmdline").write_text(command.replace(" ", "\0") + "\0")
        (folder / "environ").write_text("".join(f"{k}={v}\0" for k, v in env.items()))
        (folder / "maps").write_text("libtorch_cpu.so" if torch else "")
    (tmp_path / "self").mkdir()
    monkeypatch.setattr(inspect_job, "PROC", str(tmp_path))
    return inspect_job.processes()


def task(rank, of=3, **more):
    return {"SLURM_JOB_ID": 7, "SLURM_STEP_ID": 0, "SLURM_PROCID": rank, "SLURM_LOCALID": rank,
            "SLURM_STEP_NUM_TASKS": of, **more}


def env(rank, of=3, port=1, **more):
    return {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": of, "MASTER_ADDR": "h", "MASTER_PORT": port, **more}


JOBS = {  # rows of processes, and the ranks of each job: [{pid: rank}]
    "srun, and a tool that rank 1 has started": (
        [(10, 1, "slurmstepd", {}, False), *((11 + r, 10, "python speech.py", task(r), True) for r in range(3)),
         (20, 12, "python -S tool.py", {**task(1), **env(1)}, False)],
        [{11: 0, 12: 1, 13: 2}]),
    "the tool started by way of a shell": (
        [(10, 1, "slurmstepd", {}, False), *((11 + r, 10, "python speech.py", task(r), True) for r in range(3)),
         (20, 12, "sh -c tool", {**task(1), **env(1)}, False),
         (21, 20, "python -S tool.py", {**task(1), **env(1)}, False)],
        [{11: 0, 12: 1, 13: 2}]),
    "tasks of srun that only start the ranks": (
        [(10, 1, "slurmstepd", {}, False), *((11 + r, 10, "python start.py", task(r, 2), False) for r in range(2)),
         *((21 + r, 11 + r, "python train.py", {**task(r, 2), **env(r, 2)}, True) for r in range(2))],
        [{21: 0, 22: 1}]),
    "torchrun, and a tool that rank 1 has started": (
        [(10, 1, "python -m torch.distributed.run t.py", {}, True),
         *((11 + r, 10, "python t.py", env(r, TORCHELASTIC_RUN_ID="x"), True) for r in range(3)),
         (20, 12, "python tool.py", env(1, TORCHELASTIC_RUN_ID="x"), False)],
        [{11: 0, 12: 1, 13: 2}]),
    "torchrun as the task of srun": (
        [(10, 1, "slurmstepd", {}, False), (11, 10, "python -m torch.distributed.run t.py", task(0, 1), True),
         *((12 + r, 11, "python t.py", {**task(0, 1), **env(r, TORCHELASTIC_RUN_ID="x")}, True) for r in range(3))],
        [{12: 0, 13: 1, 14: 2}]),
    "a shell that gave one rank another port": (
        [(10, 1, "bash run.sh", {}, False), (11, 10, "python t.py", env(0), True),
         (12, 10, "python t.py", env(1), True), (13, 10, "python t.py", env(2, port=2), True)],
        [{11: 0, 12: 1, 13: 2}]),
    "a shell that started two jobs": (
        [(10, 1, "bash run.sh", {}, False),
         *((11 + r + 2 * j, 10, "python t.py", env(r, 2, port=j), True) for j in range(2) for r in range(2))],
        [{11: 0, 12: 1}, {13: 0, 14: 1}]),
}


@pytest.mark.parametrize("name", JOBS)
def test_a_job_has_its_ranks_and_no_other_process(name, monkeypatch, tmp_path):
    rows, expected = JOBS[name]
    jobs = inspect_job.find_jobs(table_of(monkeypatch, tmp_path, rows))
    assert [{pid: who.rank for pid, who in sorted(j.ranks.items())} for j in jobs] == expected


GUARDS = {  # a guard, and whether the line under it is for few ranks
    "r = idist.get_rank()\nif r == 0:": True,
    "r, w = idist.get_rank(), idist.get_world_size()\nif not r:": True,
    "first = int(os.environ['RANK']) == 0\nif first:": True,
    "if int(os.environ.get('RANK', 0)) == 0:": True,
    "if os.environ.get('RANK'):": False,
    "me = idist.get_rank()\nif me != 0:": False,
    "r = idist.get_rank() % 2\nif r == 0:": False,
    "r = idist.get_rank()\nr = batches()\nif r == 0:": False,
    "for r in rows:\n    print(r)\nr = 0\nif r == 0:": False,
    "n = idist.get_world_size()\nif n == 1:": False,
}


@pytest.mark.parametrize("source", GUARDS)
def test_a_guard_on_a_variable_that_holds_the_rank(source, tmp_path):
    path = tmp_path / "train.py"
    path.write_text(f"{source}\n    evaluate()\n")
    frame = inspect_job.Frame(str(path), source.count("\n") + 2, "<module>")
    assert bool(inspect_job.guard_of(1, frame)) == GUARDS[source], inspect_job.guard_of(1, frame)


@pytest.mark.parametrize("whole", [False, True])
def test_one_rank_below_no_launcher_says_nothing_of_its_siblings(whole, monkeypatch, tmp_path):
    """Rank 1 of 3 as its locals say: only where its launcher was looked at as well have the others ended."""
    table = table_of(monkeypatch, tmp_path, [(11, 1, "python t.py", {}, True), (12, 11, "python t.py", {}, True)])
    job = inspect_job.Job("python")
    job.tree, job.ranks = (11, {11: None, 12: None}) if whole else (12, {12: None})
    stacks = {11: [inspect_job.Frame("/x/torch/multiprocessing/spawn.py", 1, "join", {"nprocs": 3})],
              12: [inspect_job.Frame("/x/site-packages/ignite/distributed/comp_models/native.py", 1,
                                     "_dist_worker_task_fn", {"local_rank": 1, "world_size": 3, "nprocs_per_node": 3})]}
    look = type("Look", (), {"frames": lambda self, pid: stacks[pid], "threads": []})()
    ranks = inspect_job.spawned_ranks(job, dict.fromkeys(job.ranks, (look, look)), table)
    found = {p: who for p, (who, _) in ranks.items()}
    assert [w.rank for w in found.values()] == [1] and found[12].world == 3
    gone = inspect_job.missing_here(job, found, table)
    assert [r["rank"] for r in gone] == ([0, 2] if whole else [])
    if whole:
        assert inspect_job.does(gone, gone[0]["note"]) == "ranks 0,2 have ended, though started here"
