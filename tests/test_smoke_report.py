"""Promise: distributed_smoke.py keeps its contract: what runs, what is reported, which exit code, in which form."""

import json
import re
import sys

import pytest
from support import DISTRIBUTED
from support.names import lookup
from support.pages import read_page
from support.sabotage import public_names
from support.smoke import SCRIPT, forked_smoke, fresh_smoke, plain_environment, smoke_module

STATUSES = {"pass", "fail", "skip", "timeout", "error"}


@pytest.fixture(scope="module")
def default():
    """The default run, once."""
    return forked_smoke("--format", "json")


def test_default_run_is_serial_then_one_process_then_two(default):
    assert default.code == 0, default.out + default.err
    assert [(r["target"], r["world_size"]) for r in default.report["runs"]] == [("serial", 1), ("gloo", 1), ("gloo", 2)]


def test_report_has_the_fields_of_the_contract(default):
    report = default.report
    assert report["schema"] == "pytorch-ignite-smoke/1" and report["tool"] == SCRIPT.name
    assert (report["status"], report["exit_code"]) == ("pass", 0) and report["seconds"] > 0
    assert {"python", "torch", "ignite", "backends"} <= set(report["environment"])
    for name, backend in report["environment"]["backends"].items():
        assert backend["available"] or backend["reason"], name
    for run in report["runs"]:
        assert {"target", "backend", "world_size", "launcher", "status", "seconds", "checks"} <= set(run)
        for check in run["checks"]:
            assert check["status"] in STATUSES
            assert ("reason" in check) == (check["status"] == "skip"), check


def test_summary_counts_the_checks(default):
    checks = [c for r in default.report["runs"] for c in r["checks"]]
    assert default.report["summary"] == {s: sum(c["status"] == s for c in checks) for s in default.report["summary"]}
    assert default.report["summary"]["pass"] > 90


def test_every_public_helper_has_a_check_that_passes_in_some_run(default):
    passed = {c["id"] for r in default.report["runs"] for c in r["checks"] if c["status"] == "pass"}
    assert set(public_names()) <= passed
    assert {"ddp_gradients", "metric_reduction", "checkpoint_once", "teardown"} <= passed


def test_in_two_processes_nothing_is_skipped(default):
    assert [c for c in default.report["runs"][2]["checks"] if c["status"] == "skip"] == []


def test_a_world_of_one_says_what_it_cannot_prove(default):
    reasons = {c["id"]: c.get("reason") for c in default.report["runs"][1]["checks"] if c["status"] == "skip"}
    assert reasons.pop("spawn") == "checked with more processes"
    assert set(reasons) == {"barrier", "one_rank_first", "ddp_gradients", "metric_reduction"}
    assert set(reasons.values()) == {"needs 2 or more processes"}


def test_list_names_every_check_once(default):
    result = forked_smoke("--list")
    assert result.code == 0
    assert sorted(result.out.split()) == sorted({c["id"] for c in default.report["runs"][2]["checks"]})


def test_text_report_is_short_and_says_the_verdict():
    result = forked_smoke("serial")
    assert result.out.startswith("PASS  exit code 0") and len(result.out) < 10_000


@pytest.mark.parametrize(
    "argv, runs",
    [
        (["gloo"], [("gloo", 1), ("gloo", 2)]),
        (["gloo", "--nproc", "1"], [("gloo", 1)]),
        (["serial", "--nproc", "3"], [("serial", 1)]),
        (["gloo", "--nproc", "3"], [("gloo", 1), ("gloo", 3)]),
    ],
)
def test_targets_and_nproc_choose_the_runs(argv, runs):
    report = forked_smoke(*argv, "--format", "json").report
    assert [(r["target"], r["world_size"]) for r in report["runs"]] == runs and report["status"] == "pass"


def test_sixteen_ranks_pass():
    result = forked_smoke("gloo", "--nproc", "16", "--format", "json")
    assert result.code == 0, result.out


def test_only_runs_the_check_and_what_it_relies_on():
    ids = [
        c["id"] for c in forked_smoke("gloo", "--only", "all_reduce", "--format", "json").report["runs"][1]["checks"]
    ]
    assert ids == ["process_group", "sync", "initialize", "all_reduce", "finalize", "teardown"]


def test_output_writes_the_report_to_a_file(tmp_path):
    result = forked_smoke("serial", "--format", "json", "--output", str(tmp_path / "report.json"))
    assert json.loads((tmp_path / "report.json").read_text()) == result.report


def test_spawned_ranks_pass_like_forked_ones():
    result = fresh_smoke("gloo", "--start-method", "spawn", "--only", "all_reduce,ddp_gradients", "--format", "json")
    assert result.code == 0 and result.report["runs"][1]["launcher"] == "spawn", result.out + result.err


@pytest.mark.parametrize(
    "argv",
    [
        ["no-such-target"],
        ["--only", "no_such_check"],
        ["--only", ""],
        ["--nproc", "0"],
        ["--nproc", "many"],
        ["--timeout", "0"],
        ["--timeout", "-1"],
        ["--format", "xml"],
        ["--no-such-flag"],
        ["--output", "/no/such/folder/x"],
    ],
)
def test_usage_errors_end_with_2_and_one_line(argv):
    result = forked_smoke(*(argv if argv[0] != "--output" else ["serial", *argv]))
    assert result.code == 2
    assert len(result.err.strip().splitlines()) == 1 and "Traceback" not in result.err


@pytest.mark.parametrize("target", ["nccl", "mpi", "horovod", "xla-tpu"])
def test_a_backend_that_is_missing_ends_with_3_and_says_why(target):
    backend = smoke_module().backends()[target]
    if backend["available"]:
        pytest.skip(f"{target} is available here")
    result = forked_smoke(target, "--format", "json")
    assert result.code == 3
    assert backend["reason"] in result.report["diagnosis"][0]["text"]


@pytest.mark.parametrize("module, package", [("torch", "torch"), ("ignite", "pytorch-ignite")])
def test_a_missing_dependency_ends_with_3_and_one_line_that_says_what_to_install(module, package, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
    )
    env = plain_environment(PYTHONPATH=str(tmp_path))
    says = f"{module} cannot be imported (No module named '{module}')"
    line = f"distributed_smoke.py: {says}: pip install {package}"
    result = fresh_smoke("--format", "json", env=env)
    assert (result.code, result.err.strip().splitlines()) == (3, [line])
    (finding,) = result.report["diagnosis"]
    assert (finding["text"], finding["fix"]) == (says, f"pip install {package}")
    plain = fresh_smoke(env=env)
    assert (plain.code, plain.err.strip()) == (3, line)
    assert f"cause: {says}\n" in plain.out and f"fix:  pip install {package}" in plain.out
    shown = fresh_smoke("--env", env=env)
    assert shown.code == 3 and "python: " in shown.out and "variables: " in shown.out


def test_help_shows_purpose_every_exit_code_and_three_examples():
    text = forked_smoke("--help").out
    examples = [line for line in text.partition("examples:")[2].splitlines() if SCRIPT.name in line]
    assert len(examples) == 3
    for code in range(6):
        assert re.search(rf"\b{code} ", text.partition("exit codes:")[2]), code


def test_env_shows_the_machine_and_runs_no_check():
    result = forked_smoke("--env", env={"GLOO_SOCKET_IFNAME": "some0"})
    assert result.code == 0
    for word in (
        "python:",
        "backend gloo: available",
        "backend nccl: not available",
        "GLOO_SOCKET_IFNAME=some0",
        "host_resolves_to:",
        "would_meet_at: 127.0.0.1",
    ):
        assert word in result.out
    assert forked_smoke("--env", "--format", "json").report["runs"] == []


def test_torchrun_gets_one_report_as_valid_json():
    prefix = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2")
    result = fresh_smoke("--format", "json", prefix=prefix)
    assert result.code == 0, result.out + result.err
    (run,) = result.report["runs"]
    assert (run["launcher"], run["world_size"], run["target"]) == ("torchrun", 2, "gloo")
    assert [c for c in run["checks"] if c["status"] not in ("pass", "skip")] == []


def test_nproc_under_a_launcher_is_a_usage_error():
    result = forked_smoke("--nproc", "2", env={"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_PORT": "1"})
    assert result.code == 2 and "--nproc" in result.err


def test_every_see_of_a_check_leads_to_an_entry():
    module, seen = smoke_module(), 0
    for check in module.CHECKS:
        page, _, anchor = module.see_for(check, {}).partition("#")
        path = (DISTRIBUTED / page).relative_to(DISTRIBUTED.parents[1])
        assert anchor in read_page(path).anchors, (check, anchor)
        seen += 1
    for key, anchor in module.ANCHORS.items():
        path = (DISTRIBUTED / module.TROUBLE.rstrip("#")).relative_to(DISTRIBUTED.parents[1])
        assert anchor in read_page(path).anchors, key
        seen += 1
    assert seen > 40


def test_inline_metadata_asks_for_torch_and_ignite_only():
    try:
        import tomllib
    except ImportError:
        pytest.skip("tomllib needs Python 3.11")
    block = re.search(r"(?m)^# /// script\n((?:^#.*\n)+?)^# ///$", SCRIPT.read_text())[1]
    metadata = tomllib.loads("".join(line[2:] + "\n" if len(line) > 1 else "\n" for line in block.splitlines()))
    names = {re.match(r"[\w-]+", d)[0] for d in metadata["dependencies"]}
    assert names == {"torch", "pytorch-ignite", "numpy"} and metadata["requires-python"]


def test_checks_of_helpers_are_named_as_the_helpers():
    assert all(lookup(f"idist.{name}") is not None for name in public_names())
    assert set(public_names()) <= set(smoke_module().CHECKS)


def raised_by(code, folder):
    """The exception of a program in the folder, as an import met it."""
    path = folder / "lib" / "site-packages" / "numpy" / "core.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        exec(compile(code, str(path), "exec"), {})
    except Exception as e:
        return e


def test_what_mends_an_import_depends_on_what_was_raised(tmp_path, monkeypatch):
    mends = smoke_module().mends_import
    found = [
        mends(raised_by(code, tmp_path), "ignite", "pytorch-ignite")
        for code in (
            "import no_such_package.part",
            "raise ImportError('multiarray failed')",
        )
    ]
    reinstall = "pip install --force-reinstall"
    assert found == ["pip install no_such_package", f"{reinstall} numpy"]
    (tmp_path / "shadow").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    shadowed = mends(raised_by("import shadow.distributed", tmp_path), "shadow", "shadow")
    assert shadowed == f"rename {tmp_path / 'shadow'} if it is yours, else {reinstall} shadow"
