"""Proofs of the pages about the bundle itself: README.md, CONTRIBUTING.md, SECURITY.md, CHANGELOG.md.

What they say of commands, files, flags and targets is asked of the Makefile, the programs' --help and their source.
"""
from __future__ import annotations

import ast
import importlib.metadata
import json
import re
from pathlib import Path

import ignite
import ignite.distributed as idist
import test_tokens
from support import BUNDLE, DISTRIBUTED, claims, examples, launchers, releases, world
from support.claims import proves
from support.pages import read_page
from support.programs import help_of
from support.smoke import forked_smoke
from test_install import command as wheel
from test_release import release_build

SMOKE = DISTRIBUTED / "scripts" / "distributed_smoke.py"
LOG_LINE = "<!-- log: … -->"
LINKING = {"a", "and", "at", "each", "every", "for", "in", "is", "of", "one", "or", "that", "the", "to", "under",
           "what", "which", "your"}


def inside(path: str | Path) -> str:
    """The path as a page writes it; it exists."""
    path = BUNDLE / path
    assert path.exists(), f"{path} does not exist"
    return str(path.relative_to(BUNDLE))


def recipe(target: str) -> str:
    """The commands of a target of the Makefile and of the targets it needs."""
    text = (BUNDLE / "Makefile").read_text().replace("$(VENV)", variable("VENV"))
    found = re.search(rf"^{re.escape(target)}:(.*)\n((?:\t.*\n?)*)", text, re.M)
    assert found, f"the Makefile has no target {target}"
    needs = [n for n in found[1].split() if re.search(rf"^{re.escape(n)}:", text, re.M)]
    return "".join(recipe(n) for n in needs) + found[2]


def variable(name: str) -> str:
    return re.search(rf"^{name} [:?]?= *(.*)$", (BUNDLE / "Makefile").read_text(), re.M)[1]



def flag(program: Path, name: str) -> str:
    assert re.search(rf"(?<![\w-]){name}(?![\w-])", help_of(program)), f"{program.name} --help does not list {name}"
    return name


@proves("README.md#pytorch-ignite-skill")
def heart(entry):
    urls = " ".join(importlib.metadata.metadata("pytorch-ignite").get_all("Project-URL") or [])
    urls += str(importlib.metadata.metadata("pytorch-ignite"))
    for link in read_page("README.md").links:
        if link.text == "PyTorch-Ignite":
            assert link.target in urls, f"README.md:{link.line}: the package does not name {link.target}"
    entry.says(f"Its heart is {idist.__name__}.", f"but for those marked {claims.NOT_VERIFIED}, has been run")
    table = read_page("evals/RESULTS.md").entries
    rows = [row for e in table for t in e.tables if t.rows[0][:2] == ["with", "runs"] for row in t.rows[1:]]
    none, bundle, other = (
        [row[1:] for row in rows if row[0] == condition] for condition in ("none", "bundle", "other"))
    counted = ((none, 0), (none, 1), (bundle, 1))
    runs, right, better = (sum(int(row[n].split()[0]) for row in side) for side, n in counted)
    entry.says(f"of {runs} runs an agent did {right} right without the skill, {better} with it, in "
               + ", then in ".join(f"{slow[3]} and {quick[3]} s" for slow, quick in zip(none, bundle, strict=True))
               + " (medians).")
    assert other[0][1].split("(")[1] == none[-1][1].split("(")[1], "the other skill and none differ"
    entry.says(f"With another public skill it was {other[0][1].split()[0]} of {other[0][0]}, no better than without.")


@proves("README.md#install")
def install(entry):
    """The lines are made of the manifests' names and of the wheel's folders; tests/clients runs them as printed."""
    name = re.search(r"^name: (.*)$", read_page("SKILL.md").source, re.M)[1]
    market = json.loads((BUNDLE / inside(".claude-plugin/marketplace.json")).read_text())
    plugin, = market["plugins"]
    extension = json.loads((BUNDLE / inside("gemini-extension.json")).read_text())["name"]
    whole = f"{plugin['name']}@{market['name']}"
    user = {client: f"~/{folders[0]}/{name}" for client, folders in wheel.CLIENTS.items()}
    again = "the same line again"
    entry.table([
        ["client", "install", "update"],
        ["Claude Code", f"`git clone <url> {user['claude']}`", "`git pull` there"],
        ["Claude Code, as a plugin", f"`claude plugin marketplace add <url>`, then `claude plugin install {whole}`",
         f"`claude plugin marketplace update {market['name']}`, then `claude plugin update {whole}`"],
        ["Codex", f"`git clone <url> {user['codex']}`", "`git pull` there"],
        ["Gemini CLI", "`gemini skills install <url> --consent`", again],
        ["Gemini CLI, as an extension", "`gemini extensions install <url> --consent`",
         f"`gemini extensions update {extension}`"],
        ["Cursor", "`npx skills add <url> -g -y -a cursor`", again],
        ["GitHub Copilot", "`npx skills add <url> -g -y -a github-copilot`", again],
    ])
    clients = "make clients"
    assert "tests/clients" in recipe("clients")
    entry.says(
        f"<url> is the address that you cloned from, or see this page at. {clients} runs each line with the "
        f"client's own command, in an empty home folder; the client then lists one skill, {name}.",
        f"For one project, clone into its {wheel.CLIENTS['claude'][1]}/ or {wheel.CLIENTS['codex'][1]}/, or leave -g "
        "away.",
    )
    command = re.search(r"^([\w-]+) = .*:main", (BUNDLE / "pyproject.toml").read_text(), re.M)[1]
    said = wheel.__doc__
    lines = [f"{command} {words}" for words in ("install claude --user", "install codex --project",
                                                "uninstall claude --user")]
    assert all(line in said for line in lines) and "--dry-run" in said, said
    entry.table([
        ["with the wheel", "command"],
        ["see what would be done", f"`{command} install claude --dry-run`"],
        ["install for all projects, or for one", f"`{lines[0]}`, `{lines[1]}`"],
        ["remove what it wrote, nothing else", f"`{lines[2]}`"],
    ], number=1)


@proves("README.md#what-it-costs")
def costs(entry):
    entry.says(f"In tokens, counted with {test_tokens.TOKENIZER};")
    entry.table(test_tokens.table())


@proves("README.md#is-this-machine-all-right")
def machine(entry):
    commands, venv = recipe("smoke"), variable("VENV")
    assert "pip install" in commands and " torch pytorch-ignite" in commands and f"-m venv {venv}" in commands
    assert "scripts/smoke.py" in commands
    entry.says(
        f"makes {venv}, installs torch and pytorch-ignite into it (about 1 GB, minutes), and starts real ranks "
        f"that run "
        f"every public helper of {idist.__name__} and compare with known values.",
        f"(after make smoke, {venv}/bin/python is such a Python)",
    )
    shown = next(f for f in entry.entry.fences if f.language == "bash")
    assert shown.text.strip() == "make smoke", f"README.md:{shown.line}: {shown.text}"
    listed = set(forked_smoke("--list").out.split())
    missing = [n for n in idist.__all__ if n in dir(idist) and n not in listed] if hasattr(idist, "__all__") else []
    assert not missing and {"all_reduce", "barrier", "auto_model"} <= listed, missing
    source = SMOKE.read_text()
    block = re.search(r"# /// script\n(.*?)# ///", source, re.S)[1]
    assert "torch" in block and "pytorch-ignite" in block
    entry.says(
        "Where both are installed already, one file is enough, also when it is copied to a cluster alone (after",
        f"torchrun --nproc_per_node=2 {inside(SMOKE)} and srun python … check the world that the launcher made and "
        "print one report; ranks that never reach rank 0 print their own.",
        f"uv run works on the file too: it names what it needs. {flag(SMOKE, '--help')} explains the rest, "
        f"{flag(SMOKE, '--format')} json is for programs.",
    )


@proves("README.md#what-is-where")
def what_is_where(entry):
    """A description fits its path: most of its words stand in the file, in the name, or in the names of the folder."""
    rows = entry.entry.tables[0].rows[1:]
    assert len(rows) >= 7, rows
    for number, (shown, meaning) in enumerate(rows):
        where = f"{entry.entry.page}:{entry.entry.tables[0].line + 2 + number}"
        path = re.sub(r"\[(.*?)\].*|`(.*)`", lambda m: m[1] or m[2], shown)
        assert (BUNDLE / path).exists(), f"{where}: {path} does not exist"
        target = re.search(r"\((.*?)\)", shown)
        text = (BUNDLE / target[1]).read_text() if target else (BUNDLE / "Makefile").read_text()
        text = f"{path} {text} {DESCRIBED.get(path, '')}".lower()
        words = {w for w in re.findall(r"[a-z]+", meaning.lower())} - LINKING
        strange = sorted(w for w in words if w not in text and w.rstrip("s") not in text)
        assert len(strange) * 3 <= len(words), f"{where}: «{meaning}» does not fit {path}: nothing there of {strange}"
    entry.says("the tests that keep the pages true; nobody needs them to use the skill")


DESCRIBED = {  # words that a path is known by beyond those of its file
    "SKILL.md": "router page program question",
    "tests/": "keep pages true nobody needs use skill",
}


@proves("README.md#test-it")
def test_it(entry):
    commands, venv = recipe("test"), variable("VENV")
    pinned = re.search(r"-c (\S+) -r tests/requirements.txt", commands)[1]
    assert "==" in (BUNDLE / pinned).read_text() and "-m pytest" in commands
    shown = next(f for f in entry.entry.fences if f.language == "bash")
    assert shown.text.strip() == "make test", f"README.md:{shown.line}: {shown.text}"
    for tool in ("slurm", "mpirun", "two_hosts"):
        assert launchers.missing(tool) is None or tool in launchers.missing(tool)
    assert "npm install" in recipe("clients") and "tests/clients" in recipe("clients")
    assert "release/build.py" in recipe("release")
    entry.says(
        "make clients fetches the clients of the table above (npm, about 800 MB) and tries each line of it;",
        f"make release builds archive, wheel and checksums into {release_build.DIST}/, the same "
        "bytes on every day.",
    )
    others = re.findall(r"^(\w+)", (BUNDLE / inside("tests/worlds/requirements.txt")).read_text(), re.M)
    assert "-r tests/worlds/requirements.txt" in (BUNDLE / "Makefile").read_text()
    printed = forked_smoke(flag(SMOKE, "--env")).out
    assert ignite.__version__ in printed
    entry.says(
        f"installs the test tools into {venv}, pinned by {pinned}, and runs all that keeps the pages true. {worlds()} "
        "starts real launchers and injects faults; what the machine lacks (SLURM, mpirun, network namespaces) is "
        "skipped and says so.",
        f"{SMOKE.name} --env prints them",
        f"It fetches {' and '.join(others)} first.",
    )


@proves("CONTRIBUTING.md#change-a-page")
def change_a_page(entry):
    assert claims.__name__ == "support.claims" and examples.__name__ == "support.examples"
    where = [inside(Path(module.__file__)) for module in (claims, examples)]
    assert callable(proves) and callable(claims.Claims.says)
    entry.says(
        f"a function under {inside('tests/proofs')}/ decorated with @{proves.__name__}(\"path/of/page.md#anchor\")",
        f"builds the text from what it saw (entry.{claims.Claims.says.__name__}(f\"gives {{seen}} each\")). {where[0]} "
        "explains the forms.",
        "Every number and code span of a reference page, and of a gotcha, must be said by a proof:",
    )
    assert examples.NAME.fullmatch("# hello.py") and "console" in examples.CHECKED
    entry.says("starts with its name as a comment (# hello.py) and is run by a command in a console fence under "
               "the same "
               f"heading, with the output it must give. {where[1]} has the rules.")
    probe = inside("tests/probes/collectives.py")
    assert "__main__" in (BUNDLE / probe).read_text()
    entry.says(f"A table of behaviour is printed by a probe (python {probe}) and compared cell by cell.",
               f"What cannot be run here says {claims.NOT_VERIFIED} on the spot and names its source; "
               "the tests count these.")
    assert "pytest" in recipe("test")
    assert "ruff" in recipe("lint") and "make lint" in Path(BUNDLE, "Makefile").read_text() or "ruff" in recipe("test")
    entry.says("make test lints the code (make lint), names the page and line of whatever is no longer true, and "
               "prints "
               f"at its end what it inspected. While you write, {variable('VENV')}/bin/python -m pytest "
               f"{inside('tests/test_claims.py')} "
               "-k PAGE -q is quicker.")


@proves("CONTRIBUTING.md#add-something")
def add_something(entry):
    proofs = inside("tests/proofs/distributed")
    assert list(BUNDLE.glob(f"{proofs}/troubleshooting_*.py")) and "@check" in SMOKE.read_text()
    room = inside(DISTRIBUTED)
    assert "class Rule" in (DISTRIBUTED / "scripts/check_script.py").read_text()
    assert LOG_LINE.split()[1] in (DISTRIBUTED / "references/troubleshooting.md").read_text()
    matrix = next(line for line in Path(releases.__file__).read_text().splitlines() if "matrix.txt" in line)
    assert "tests" in matrix, matrix
    entry.says(
        f"a gotcha a bold-led item in {inside(room + '/SKILL.md')}, its proof in {inside(proofs + '/gotchas.py')}",
        f"a symptom an entry in {inside(room + '/references/troubleshooting.md')}, its reproducer beside the others in "
        f"{proofs}/",
        f"a cause that the log reader knows a {LOG_LINE} line in its entry of troubleshooting, then python "
        f"{inside('tests/support/embed_rules.py')}",
        f"a rule of the script checker a Rule in {inside(room + '/scripts/check_script.py')}, then python "
        f"{inside('tests/render_rules.py')}",
        f"a hanging scene a function in {inside('tests/jobs/scenes.py')}",
        f"a check of the smoke one function with @check in {inside(SMOKE)}",
        f"an Ignite release a line in {inside('tests/matrix.txt')}",
    )


@proves("CONTRIBUTING.md#tests")
def about_tests(entry):
    entry.says(f"Ranks are forks of the test process, because importing torch costs seconds "
               f"({inside(world.__file__)});")
    entry.says(f"real launchers are started only where they are the point ({inside(launchers.__file__)}).")
    entry.says(f"{worlds()} runs tests/worlds (real launchers) and tests/faults; make test is without them.")
    assert "test_version_matrix" in recipe("matrix") and "bench_smoke" in recipe("bench")
    entry.says("make matrix runs what depends on the release over all of them, "
               "make bench prints what the smoke costs, as ratios.")


def worlds() -> str:
    """The target that runs what `make test` leaves out."""
    for folder in ("tests/worlds", "tests/faults"):
        assert f" {inside(folder)}" in recipe("worlds") and f"--ignore {folder}" in recipe("test"), folder
    return "make worlds"


def starts_processes(program: Path) -> bool:
    """Whether the source calls something that starts a process."""
    names = {ast.unparse(n.func) for n in ast.walk(ast.parse(program.read_text())) if isinstance(n, ast.Call)}
    return bool(names & {"subprocess.Popen", "subprocess.run", "os.fork", "idist.Parallel", "idist.spawn", "torchrun"})


def code_of(script: Path) -> str:
    return "\n".join(line for line in script.read_text().splitlines() if not line.lstrip().startswith("#"))


def started_by(script: Path) -> set[str]:
    """What a shell script starts beyond words of the shell; "other" is what none of ours may start."""
    kinds = {"log": r"\| tee ", "command": r'^"\$@"', "explain": r'"\$explain"', "srun": r"\(srun ",
             "other": r"\b(curl|wget|ssh|scp|rm|eval|source|python3? -c)\b"}
    return {kind for kind, pattern in kinds.items() if re.search(pattern, code_of(script), re.M)}


def written_by(script: Path) -> set[str]:
    """The files that a shell script writes: redirections, tee, --html."""
    found = re.findall(r'(?:(?<![0-9&])>|tee -i|--html) *"([^"]+)"', code_of(script))
    return set(found)


@proves("SECURITY.md#security")
def rights(entry):
    """What a program starts, writes and connects to, against its options; test_security.py holds it to that."""
    scripts = DISTRIBUTED / "scripts"
    log, check, inspect = (scripts / f"{n}.py" for n in ("explain_log", "check_script", "inspect_job"))
    train, evaluate = (DISTRIBUTED / "assets" / f"{n}.py" for n in ("train", "evaluate"))
    rooms = sorted(p for p in BUNDLE.glob("sub-skills/*/scripts/*_smoke.py") if p != SMOKE)
    assert len(rooms) == 3 and "os.fork()" in (BUNDLE / "scripts/smoke_runner.py").read_text()
    source = SMOKE.read_text()
    assert all(word in source for word in ("/proc/", "/sys/fs/cgroup", '"scontrol"'))
    assert "TemporaryDirectory" in source or "mkdtemp" in source
    assert all(map(starts_processes, (SMOKE, train, BUNDLE / "scripts/smoke.py", inspect)))
    looks = inspect.read_text()
    assert all(f'"{word}"' in looks for word in ("py-spy", "nvidia-smi")) and "signal.SIGUSR1" in looks
    wrapper, prologue, epilogue = (DISTRIBUTED / "assets" / f"{n}.sh" for n in ("run_explained", "slurm_prologue",
                                                                               "slurm_epilogue"))
    assert started_by(wrapper) == {"log", "command", "explain"} and started_by(epilogue) == {"explain"}
    assert started_by(prologue) == {"srun"}
    assert written_by(wrapper) == {"$log", "${log%.log}.html"} and not written_by(prologue)
    assert written_by(epilogue) == {"$answer.txt", "$answer.html"} and "answer=$(dirname" in epilogue.read_text()
    resumable = BUNDLE / "sub-skills/engine/assets/resumable_trainer.py"
    metric = BUNDLE / "sub-skills/metrics/assets/custom_metric.py"
    assert not starts_processes(resumable) and not re.search("socket|idist", resumable.read_text())
    given = {n.arg for n in ast.walk(ast.parse(metric.read_text())) if isinstance(n, ast.keyword)}
    assert "backend" in given and "nproc_per_node" not in given and "subprocess" not in metric.read_text()
    assert "open(" not in metric.read_text() and ".save(" not in metric.read_text()
    launches = "the folders given to it torchrun, with {} the other ranks"
    command = re.search(r"^([\w-]+) = .*:main", (BUNDLE / "pyproject.toml").read_text(), re.M)[1]
    ends = "a temporary folder, removed at the end"
    entry.says(
        f"{SMOKE.name} the environment, /proc, /sys/fs/cgroup the file given to {flag(SMOKE, '--output')}; {ends} "
        "its ranks; scontrol in a SLURM step loopback; in a launched world, the other ranks",
        f"{Path(inside('scripts/smoke.py')).name} – – the smoke scripts –",
        ", ".join(p.name for p in rooms) + f" – the file given to {flag(rooms[0], '--output')}; {ends} a process a "
        "check loopback",
        f"{log.name} the logs given to it the file given to {flag(log, '--html')} – –",
        f"{check.name} the files and folders given to it the file given to {flag(check, '--output')} – –",
        f"{inspect.name} /proc, and the memory of the job's ranks through py-spy the file given to "
        f"{flag(inspect, '--html')} py-spy; nvidia-smi –",
        f"{train.name} its data folder, checkpoints {launches.format(flag(train, '--nproc-per-node'))}",
        f"{evaluate.name} its data folder, a checkpoint {launches.format(flag(evaluate, '--nproc-per-node'))}",
        f"{resumable.name} its state the folder given to {flag(resumable, '--output')} – –",
        f"{metric.name} – – – in a launched world, the other ranks",
        f"{wrapper.name} the log that it wrote the log, and a page beside it the command given to it; {log.name} –",
        f"{prologue.name} – – srun, with {SMOKE.name} –",
        f"{epilogue.name} the logs given to it a text and a page beside the first {log.name} –",
        f"{command} its own package the client's folder of skills – –",
        "torch itself makes an empty folder torchinductor_USER",
        f"{log.name} and {check.name} import and run nothing of what they read. {inspect.name} changes no process; it "
        "sends one signal, SIGUSR1, and only to a rank that catches it.",
    )


@proves("CHANGELOG.md#010")
def first_release(entry):
    version = re.search(r'^version = "(.*)"$', (BUNDLE / "pyproject.toml").read_text(), re.M)[1]
    headings = [e for e in read_page("CHANGELOG.md").entries if e.level == 2]
    assert headings[0].heading == version, f"{headings[0].where}: pyproject.toml says {version}"
    entry.says(
        f"The router, the distributed sub-skill (gotchas, API reference, workflows, troubleshooting), "
        f"{inside('references/versions.md')}.",
        f"{SMOKE.name}: a check for every public helper of {idist.__name__}, serial, in one process and in "
        f"several, or in "
        "the world that torchrun or srun made.",
        "assets/train.py and assets/evaluate.py: one training and one evaluation that run unchanged under every "
        "launcher.",
    )
    for path in ("assets/train.py", "assets/evaluate.py"):
        assert (DISTRIBUTED / path).exists()
    rooms = sorted(p.parent.parent.name for p in BUNDLE.glob("sub-skills/*/scripts/*_smoke.py") if p != SMOKE)
    entry.says(f"Sub-skills for {rooms[0]}s, {rooms[1]} and {rooms[2]}, each with pages and a smoke of its own")


@proves("SKILL.md#is-this-machine-all-right")
def what_then(entry):
    """What the table of exit codes sends its reader to; that the report holds it is tested in test_smoke_*.py."""
    assert forked_smoke("--no-such-flag").code == 2
    entry.says(
        f"2 usage {flag(SMOKE, '--help')}",
        "the fault is in the script: gotchas",
        "a check failed read its hint in the report",
        "install it, or name another backend",
        "the deadline passed the report names the rank and where it stood",
        "starts real ranks here and checks every helper against a known value. To check a cluster copy that one "
        "file there",
    )
