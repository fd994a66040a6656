"""Promise: the programs to copy give one result under every launcher, and no fault of a rank keeps a job from ending.

Most cases run in forked ranks whose environment is torchrun's. A fault is put in from outside, by replacing what the
program gets its data or its model from; the programs themselves know nothing of it.
"""
import ctypes
import gc
import os
import re
import signal
import sys
import time
from itertools import chain
from pathlib import Path

import ignite.distributed as idist
import pytest
import torch
from support import DISTRIBUTED
from support.launchers import (
    PYTHON,
    free_port,
    missing,
    mpirun_argv,
    run,
    run_together,
    slurm_cluster,
    torchrun_argv,
    two_hosts,
)
from support.world import run_serial, run_world, values
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset

ASSETS = DISTRIBUTED / "assets"
EPOCHS = 3
TIMEOUT = 10  # seconds without progress, in the cases that freeze
LIMIT = TIMEOUT + 65  # after which a job with a fault counts as hung; 20 may be needed, the rest is for a busy machine


@pytest.fixture(scope="module")
def train():
    sys.path.insert(0, str(ASSETS))
    try:
        import evaluate  # noqa: F401
        import torch._dynamo  # noqa: F401  optimisers import it at their first step: here once, not in each fork
        import train
    finally:
        sys.path.remove(str(ASSETS))
    return train


def options(folder, *more):
    return [f"--data={folder}/data", f"--output={folder}/out", "--batch-size=24", *map(str, more)]


def final(output):
    """The values of the final line, of which there is exactly one."""
    lines = re.findall(r"^final loss=(\S+) accuracy=(\S+) epoch=(\d+) world=(\d+)$", output, re.MULTILINE)
    assert len(lines) == 1, output
    loss, accuracy, epoch, world = lines[0]
    return float(loss), float(accuracy), int(epoch), int(world)


def weights(folder, name="last.pt"):
    state = torch.load(folder / "out" / name)
    return torch.cat([v.flatten() for v in state.get("model", state).values()])


def in_forks(size, function, **kwargs):
    """Run on `size` ranks (0: without any launcher) and return all output, rank by rank."""
    outcomes = [run_serial(function, **kwargs)] if size == 0 else run_world(
        size, lambda rank: function(), init=None, **kwargs
    )
    values(outcomes)
    return "".join(o.output for o in outcomes)


@pytest.fixture(scope="module")
def reference(train, tmp_path_factory):
    """Folder and final values of a run in one process."""
    folder = tmp_path_factory.mktemp("reference")
    return folder, final(in_forks(0, lambda: train.main(options(folder, f"--epochs={EPOCHS}"))))


def check_same(result, folder, reference, world):
    reference_folder, (loss, accuracy, epoch, _) = reference
    assert result == (pytest.approx(loss, abs=1e-5), accuracy, epoch, world)
    for name in ("last.pt", "best.pt"):
        torch.testing.assert_close(weights(folder, name), weights(reference_folder, name), atol=1e-5, rtol=0)


# ---- the same result


@pytest.mark.parametrize("world", [1, 2, 3])
def test_same_result_in_any_world(train, reference, tmp_path, world):
    workers = 1 if world == 2 else 0  # of the data loaders
    output = in_forks(world, lambda: train.main(options(tmp_path, f"--epochs={EPOCHS}", f"--workers={workers}")))
    check_same(final(output), tmp_path, reference, world)
    assert [output.count(f"epoch {e}: loss") for e in (1, 2, 3)] == [1, 1, 1], output


def test_batches_are_the_same_sets_in_any_world_and_others_each_epoch(train, tmp_path):
    steps, load = 800 // 24, train.load_data

    def indices(folder):
        """Of the samples that this rank trains on (epochs × batches × share), and of those that it validates on."""
        seen = [], []

        class Recorded(Dataset):
            def __init__(self, data, seen):
                self.data, self.seen = data, seen

            def __len__(self):
                return len(self.data)

            def __getitem__(self, index):
                self.seen.append(index)
                return self.data[index]

        train.load_data = lambda folder: map(Recorded, load(folder), seen)
        train.main(options(folder, f"--epochs={EPOCHS}"))
        return torch.tensor(seen[0]).view(EPOCHS, steps, -1), seen[1]

    alone, _ = values([run_serial(lambda: indices(tmp_path / "alone"))])[0]
    shares, validated = zip(*values(run_world(3, lambda rank: indices(tmp_path / "together"), init=None)), strict=True)
    assert torch.equal(torch.cat(shares, dim=2).sort().values, alone.sort().values)
    assert sorted(chain(*validated)) == sorted([*range(203)] * EPOCHS), "not each sample once in each validation"
    assert all(len(epoch.unique()) == steps * 24 for epoch in alone), "a sample was repeated"
    assert len({tuple(epoch.flatten().tolist()) for epoch in alone}) == EPOCHS, "two epochs had the same order"


def test_validation_is_exact_and_of_the_model_that_is_saved(train, tmp_path):
    """Also with a model whose ranks differ after a step, as BatchNorm makes them, and shards of two and one batches."""

    def build():
        return torch.nn.Sequential(torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))

    def main():
        forward, training = DistributedDataParallel.forward, []
        DistributedDataParallel.forward = lambda m, *a: training.append(m.training) or forward(m, *a)
        train.build_model = build
        train.main(options(tmp_path, "--epochs=2", "--batch-size=202"))
        assert training == [True] * 6, "evaluated through DDP, whose forward can be a collective: the shards differ"

    loss, accuracy, _, _ = final(in_forks(2, main))
    model = build()
    model.load_state_dict(torch.load(tmp_path / "out" / "last.pt")["model"])
    x, y = (values[800:] for values in torch.load(tmp_path / "data" / "data.pt").values())
    with torch.no_grad():
        scores = model.eval()(x)
    assert loss == pytest.approx(torch.nn.functional.cross_entropy(scores, y).item(), abs=1e-5)
    assert accuracy == pytest.approx((scores.argmax(1) == y).double().mean().item(), abs=1e-6)


@pytest.fixture(scope="module")
def slurm():
    if reason := missing("slurm"):
        pytest.skip(reason)
    with slurm_cluster() as cluster:
        yield cluster


def launch(launcher, program, request):
    """Run the program in two processes under the launcher; what each command of it gave."""
    if launcher == "spawn":
        return [run([PYTHON, *program, "--nproc-per-node=2"], timeout=100)]
    if launcher == "torchrun":
        return [run(torchrun_argv(2, *program), timeout=100)]
    if launcher == "srun":
        return [run(["srun", "-N2", "-n2", PYTHON, *program], env=request.getfixturevalue("slurm").env, timeout=100)]
    if reason := missing(launcher):
        pytest.skip(reason)
    if launcher == "mpirun":
        return [run(mpirun_argv(2, PYTHON, *program), timeout=100)]
    with two_hosts() as hosts:
        options = [{"nodes": 2, "node_rank": i, "master": hosts.address(0)} for i in range(2)]
        return run_together(
            [hosts.argv(i, torchrun_argv(1, *program, **o)) for i, o in enumerate(options)], timeout=100
        )


@pytest.mark.parametrize("launcher", ["spawn", "torchrun", "two_hosts", "srun", "mpirun"])
def test_same_result_under_every_launcher(request, reference, tmp_path, launcher):
    jobs = launch(launcher, [ASSETS / "train.py", *options(tmp_path, f"--epochs={EPOCHS}")], request)
    report = "\n".join(job.report() for job in jobs)
    assert [job.returncode for job in jobs] == [0] * len(jobs), report
    assert not any(job.left_behind for job in jobs), report
    check_same(final("".join(job.stdout for job in jobs)), tmp_path, reference, 2)
    assert report.count("epoch 1: loss") == 1, report


def test_nothing_of_gloo_is_left_when_a_rank_exits(train, tmp_path):
    """A worker of a process group that outlives finalize can still hold a tensor: the exit of the interpreter then
    ends in SIGABRT, `terminate called without an active exception`, seldom and after a right result."""
    import evaluate

    def threads():
        return {(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()}

    def main(program, *arguments):
        gc.disable()  # else luck decides: a collection of its own may have come in time
        group, at_work = idist.initialize, set()
        idist.initialize = lambda *a, **k: (group(*a, **k), at_work.update(threads()))
        program.main(options(tmp_path, *arguments))
        return at_work, threads()

    for program, argument in ((train, "--epochs=1"), (evaluate, "--checkpoint=last.pt")):
        for at_work, left in values(run_world(2, lambda rank, p=program, a=argument: main(p, a), init=None)):
            assert "pt_gloo_runloop" in at_work, at_work
            assert not [name for name in left if "gloo" in name], (program.__name__, left)


def test_evaluation_writes_the_same_bytes_in_any_world(train, reference, tmp_path):
    import evaluate

    folder, (_, accuracy, _, _) = reference
    seen = []
    for world in (0, 2, 3):
        output = in_forks(world, lambda: evaluate.main(options(folder, "--checkpoint=last.pt")))
        assert output.count("accuracy=") == 1 and f"accuracy={accuracy:.6f} samples=203 world={world or 1}" in output
        seen.append((folder / "out" / "predictions.csv").read_bytes())
    assert seen[0] == seen[1] == seen[2]
    rows = [line.split(",") for line in seen[0].decode().splitlines()]
    targets = torch.load(folder / "data" / "data.pt")["y"][800:].tolist()
    assert rows[0] == ["index", "prediction", "target"]
    assert [(int(i), int(t)) for i, _, t in rows[1:]] == list(enumerate(targets))


def test_ragged_results_are_gathered_in_order(train):
    import evaluate

    def gather(rank):
        return [evaluate.gather_in_order(torch.arange(n)[rank::3], n).tolist() for n in (1, 7, 9)]

    assert values(run_world(3, gather)) == [[[0], [*range(7)], [*range(9)]]] * 3


# ---- going on, stopping, refusing


def test_resumed_run_equals_an_uninterrupted_one(train, reference, tmp_path):
    """Broken off in the middle of its second epoch in two processes, it goes on in three; then all is done."""
    cut = run_world(2, lambda rank: with_fault(train, "training data", 1, fail, 700)(options(tmp_path)), init=None)
    assert [o.exit_code for o in cut] == [1, 1], cut
    assert torch.load(tmp_path / "out" / "last.pt")["trainer"]["iteration"] == 800 // 24
    for world in (3, 2):
        output = in_forks(world, lambda: train.main(options(tmp_path, "--resume", f"--epochs={EPOCHS}")))
        assert ("epoch 2: loss" in output, "epoch 1: loss" in output) == (world == 3, False)
        check_same(final(output), tmp_path, reference, world)


def test_a_run_killed_in_a_save_goes_on_from_the_epoch_before(train, reference, tmp_path):
    """The file of the epoch before is there until the new one is whole, in a resumed job as well."""
    def killed(*more):
        """The epoch of last.pt, after rank 0 was killed in the middle of writing one of a later epoch."""
        def main(rank):
            save, saved = torch.save, []

            def half(state, file):
                saved.append("trainer" in state and state["trainer"]["iteration"] // (800 // 24))
                if saved[-1] == len(more) + 2:
                    file.write(b"half a file")
                    file.flush()
                    die()
                save(state, file)

            torch.save = half
            train.main(options(tmp_path, f"--epochs={EPOCHS + 1}", *more))

        outcomes = run_world(2, main, init=None)
        assert [o.exit_code for o in outcomes] == [-signal.SIGKILL, 1], outcomes
        return torch.load(tmp_path / "out" / "last.pt")["trainer"]["iteration"] // (800 // 24)

    assert (killed(), killed("--resume")) == (1, 2)
    output = in_forks(2, lambda: train.main(options(tmp_path, "--resume", f"--epochs={EPOCHS}")))
    assert ("epoch 3: loss" in output, "epoch 2: loss" in output) == (True, False), output
    check_same(final(output), tmp_path, reference, 2)


def test_resume_without_a_file_warns(train, tmp_path):
    output = in_forks(2, lambda: train.main(options(tmp_path, "--resume", "--epochs=1")))
    warning = rf"WARNING: --resume: THERE IS NO last\.pt in {tmp_path}/out, so training starts at epoch 1\n"
    assert len(re.findall(warning, output)) == 1, output


def test_all_ranks_stop_early_together(train, tmp_path):
    def epochs(rank, *more):
        trainers, make = [], train.create_supervised_trainer
        train.create_supervised_trainer = lambda *a, **k: trainers.append(make(*a, **k)) or trainers[0]
        train.main(options(tmp_path / str(rank >= 0), "--lr=0.3", "--patience=1", "--epochs=40", *more))
        return trainers[0].state.epoch

    alone = run_serial(lambda: epochs(-1))
    together = run_world(2, epochs, init=None)
    assert values(together) == values([alone]) * 2 and alone.value < 40
    again = run_world(2, lambda rank: epochs(rank, "--resume"), init=None)
    assert values(again) == values(together), "resumed, it goes on although it had stopped early"


def test_batch_that_cannot_be_shared_is_refused(train, tmp_path):
    outcomes = run_world(2, lambda rank: train.main(options(tmp_path, "--batch-size=31")), init=None)
    assert [o.exit_code for o in outcomes] == [1, 1]
    assert all("--batch-size 31: give a multiple of 2, at most 800" in o.output for o in outcomes), outcomes


def test_data_is_written_once_per_host(train, tmp_path):
    def written(rank):
        names, replace = [], os.replace
        os.replace = lambda *a: names.append(str(a[1])) or replace(*a)
        train.main(options(tmp_path, f"--data={tmp_path}/host{rank // 2}", "--epochs=1"))
        return [n for n in names if n.endswith("data.pt")]

    names = values(run_world(4, written, init=None, env=lambda rank: {"LOCAL_RANK": str(rank % 2)}))
    assert names == [[f"{tmp_path}/host0/data.pt"], [], [f"{tmp_path}/host1/data.pt"], []]


def test_a_restart_by_torchrun_does_not_obey_the_verdict_of_the_attempt_before(train, tmp_path):
    def second_attempt(rank):
        port = int(os.environ["MASTER_PORT"])
        torch.distributed.TCPStore("127.0.0.1", port, is_master=False).set("watch0/verdict", "rank 1 failed")
        train.main(options(tmp_path, "--epochs=1"))

    values(run_world(2, second_attempt, init=None, env={"TORCHELASTIC_RESTART_COUNT": "1"}))


def test_signal_shows_the_stack(train, tmp_path):
    def ask():
        os.kill(os.getpid(), signal.SIGUSR1)

    main = with_fault(train, "forward", 0, ask)
    outcome = run_world(1, lambda rank: main(options(tmp_path, "--epochs=1")), init=None)[0]
    assert re.search(rf"line {ask.__code__.co_firstlineno + 1} in ask\n.* in forward\n", outcome.output), outcome.output
    assert outcome.ok


# ---- faults


def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


def fail():
    raise OverflowError("sample 17 is broken")


def sleep():
    time.sleep(1000)


def wait_alone():
    torch.distributed.new_group()


def sleep_with_the_interpreter():
    ctypes.PyDLL(None).sleep(1000)


def be_stopped():
    os.kill(os.getpid(), signal.SIGSTOP)


class Faulty(Dataset):
    def __init__(self, data, fault, at):
        self.data, self.fault, self.at, self.seen = data, fault, at, 0

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        self.seen += 1
        if self.seen == self.at:
            self.fault()
        return self.data[index]


class FaultyModel(torch.nn.Sequential):
    def forward(self, x):
        self.calls = getattr(self, "calls", 0) + 1
        if self.calls == 20:
            self.fault()
        return super().forward(x)


def with_fault(train, where, guilty, fault, at=100):
    """The program's main, which meets the fault on rank `guilty`: at the sample that is the `at`th to be read, in the
    20th forward, or at once."""
    load, build = train.load_data, train.build_model

    def main(arguments):
        if int(os.environ["RANK"]) == guilty and where.endswith("data"):
            number = ["training data", "validation data"].index(where)
            train.load_data = lambda f: [Faulty(d, fault, at) if i == number else d for i, d in enumerate(load(f))]
        if int(os.environ["RANK"]) == guilty and where == "start":
            train.load_data = lambda f: fault()
        if int(os.environ["RANK"]) == guilty and where == "forward":
            train.build_model = lambda: FaultyModel(*build())
            FaultyModel.fault = staticmethod(fault)
        train.main(arguments)

    return main


PLACE = f"{__file__}:{sleep.__code__.co_firstlineno + 1} in sleep"
UNEVEN = "freezes after it validated more batches than the other"
FAULTS = {  # name: where it happens, on which rank, what; what the other rank says
    "raises": ("training data", 1, fail, "rank 1 on {host} failed: OverflowError: sample 17 is broken"),
    "freezes in training data": ("training data", 1, sleep, "no progress: rank 1 on {host} is at {place}"),
    "freezes in validation data": ("validation data", 1, sleep, "no progress: rank 1 on {host} is at {place}"),
    "freezes in forward": ("forward", 0, sleep, "no progress: rank 0 on {host} is at {place}"),
    UNEVEN: ("training data", 0, sleep, "no progress: rank 0 on {host} is at {place}"),
    "calls a collective alone": ("training data", 1, wait_alone, "no progress: rank 1 on {host} is at "),
    "freezes with its interpreter": ("forward", 1, sleep_with_the_interpreter, "no sign of life from rank 1 on {host}"),
    "freezes before its watch runs": ("start", 1, sleep_with_the_interpreter, "no sign of life from rank 1 on {host}"),
    "is stopped": ("training data", 1, be_stopped, "no sign of life from rank 1 on {host}"),
    "is killed": ("training data", 1, die, "no sign of life from rank 1 on {host}"),
    "is stopped and has the store": ("training data", 0, be_stopped, "rank 0 on 127.0.0.1 is frozen; rank 1 on {host}"),
    "is killed and has the store": ("training data", 0, die, "rank 0 on 127.0.0.1 is gone, and the store with it: "),
}


@pytest.fixture(scope="module")
def faulty_worlds(train, tmp_path_factory):
    """For each fault, what became of two ranks; side by side, since they mostly wait."""
    folder = tmp_path_factory.mktemp("faults")

    def world(number):
        name, (where, guilty, fault, _) = list(FAULTS.items())[number]
        env = {"MASTER_PORT": str(free_port()), "TORCHELASTIC_USE_AGENT_STORE": "False"} if "store" in name else {}
        at, more = (400, ["--batch-size=202"]) if name == UNEVEN else (100, [])  # in its 2nd epoch; 2 batches, and 1
        main = with_fault(train, where, guilty, fault, at)
        return run_world(
            2, lambda _: main(options(folder / str(number), f"--timeout={TIMEOUT}", *more)), init=None, env=env,
            limit=LIMIT,
        )

    return dict(zip(FAULTS, values(run_world(len(FAULTS), world, init=None, limit=LIMIT + 30)), strict=True))


@pytest.mark.parametrize("name", FAULTS)
def test_rank_that(name, faulty_worlds):
    """Whatever happens to a rank, the job ends by itself, and the other rank has said whose fault it was."""
    _, guilty, fault, verdict = FAULTS[name]
    outcomes = faulty_worlds[name]
    bad, other = outcomes[guilty], outcomes[1 - guilty]
    assert other.exit_code == 1 and not bad.hung, outcomes
    host = os.uname().nodename
    assert f"[rank {other.rank} on {host} ends] {verdict.format(host=host, place=PLACE)}" in other.output, other.output
    if fault is be_stopped:  # the other one wakes it up
        assert bad.exit_code == 1, bad
    elif fault is die:
        assert bad.exit_code == -signal.SIGKILL, bad
    else:  # it ends itself, and shows its stack down to the fault
        assert bad.exit_code == 1, bad
        assert re.search(rf"line {fault.__code__.co_firstlineno + 1},? in {fault.__name__}", bad.output), bad.output


def test_failure_ends_an_srun_that_does_not_kill(slurm, tmp_path):
    program = tmp_path / "faulty.py"
    program.write_text(
        f"import os, sys\nsys.path.insert(0, {str(ASSETS)!r})\nimport train\n"
        "def fail(): raise OverflowError('no weights here')\n"
        "if os.environ['SLURM_PROCID'] == '1': train.build_model = fail\n"
        "train.main()\n"
    )
    job = run(["srun", "-N2", "-n2", PYTHON, program, *options(tmp_path)], env=slurm.env, timeout=60)
    assert job.returncode not in (0, -9) and not job.timed_out and not job.left_behind, job.report()
    verdict = r"\[rank 0 on \S+ ends\] rank 1 on \S+ failed: OverflowError: no weights here"
    assert re.search(verdict, job.stderr), job.report()


# ---- form


@pytest.mark.parametrize("path", sorted(ASSETS.glob("*.py")), ids=lambda path: path.name)
def test_program_is_short(path):
    assert 0 < path.read_text().count("\n") < 200


@pytest.mark.parametrize("name", ["train", "evaluate"])
def test_help_says_how_to_start_it(train, name, capsys):
    with pytest.raises(SystemExit) as end:
        sys.modules[name].main(["--help"])
    shown = capsys.readouterr().out
    assert end.value.code == 0 and all(word in shown for word in (f"torchrun --nproc_per_node=2 {name}.py", "srun"))
