"""Graders: each looks at the folder in which a task was done, runs what is in it, and says whether the task is done.

    python evals/graders.py NAME FOLDER     exit code 0: done; 1: not, and why; 2: usage

A grader raises `Wrong` with the first thing that is not as the task's assertions say.
"""
from __future__ import annotations

import argparse
import json
import re
import runpy
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from grading import Wrong, alone, answer, load, need, passed, ranks, same_weights
from made import big_log, many_scripts

FILES = Path(__file__).parent / "files"
GRADERS: dict[str, Callable[[Path], None]] = {}
IN_PLACE: set[str] = set()  # graders that look at a job that goes on in the folder
TOO_BIG = 50_000_000  # bytes of a file that no grader looks into


def grader(name: str, in_place: bool = False):
    """The decorated function takes a copy of the folder of an answer, or with `in_place` the folder itself."""

    def register(function):
        GRADERS[name] = function
        if in_place:
            IN_PLACE.add(name)
        return function

    return register


def again(folder: Path, *keep: str) -> Path:
    """A copy of the folder with only the files named, to run in once more from the start."""
    copy = Path(tempfile.mkdtemp(dir=folder))
    for name in keep:
        need((folder / name).is_file(), f"{name} is missing")
        shutil.copy(folder / name, copy)
    return copy


def untouched(folder: Path, task: str, name: str) -> None:
    need((folder / name).read_bytes() == (FILES / task / name).read_bytes(), f"{name} was changed")


@grader("unhang")
def unhang(folder):
    work = again(folder, "job.py")
    said = passed(ranks(2, work, "job.py", timeout=30))
    need(said.count("total 3.0") == 1, f"not one line «total 3.0» but: {said[:300]}")
    need(load(work / "total.pt")["total"].item() == 3.0, "total.pt holds another total")


@grader("uneven")
def uneven(folder):
    work = again(folder, "gather.py")
    passed(ranks(3, work, "gather.py"))
    wanted = torch.cat([torch.full((2 * r + 1, 2), float(r)) for r in range(3)])
    found = load(work / "gathered.pt")
    need(isinstance(found, torch.Tensor) and torch.equal(found, wanted), f"gathered.pt holds {found}")
    passed(alone(work, "gather.py"))
    need(torch.equal(load(work / "gathered.pt"), torch.zeros(1, 2)), "in one process gathered.pt is not its own tensor")


@grader("per-process-batch")
def per_process_batch(folder):
    for n in (2, 4):
        work = again(folder, "batches.py")
        passed(ranks(n, work, "batches.py"))
        batches = [load(work / f"batches-{r}.pt") for r in range(n)]
        sizes = {len(b) for each in batches for b in each}
        need(sizes == {8}, f"on {n} ranks the batches have {sizes} samples, not 8")
        seen = sorted(int(i) for each in batches for b in each for i in b)
        need(seen == list(range(64)), f"on {n} ranks the samples are not each seen once")


@grader("prepare-once")
def prepare_once(folder):
    untouched(folder, "prepare-once", "data.py")
    work = again(folder, "prepare.py", "data.py")
    said = passed(ranks(3, work, "prepare.py"))
    need((work / "made.log").read_text() == "made\n", "the data was not made once")
    need(len(re.findall(r"^rank \d read 100$", said, re.M)) == 3, f"not each rank read all of it: {said}")
    said = passed(ranks(3, work, "prepare.py"))
    need((work / "made.log").read_text() == "made\n", "the data was made again in a second run")


@grader("explain-log")
def explain_log(folder):
    found = answer(folder)
    need(found.get("rank") == 2, f"rank {found.get('rank')} is not the first to fail")
    need(str(found.get("file", "")).endswith("data.py") and found.get("line") == 4, "not the line that raised")
    need("KeyError" in str(found.get("error")) and "label" in str(found.get("error")), "not the error that was raised")


@grader("explain-kill")
def explain_kill(folder):
    found = answer(folder)
    need(found.get("rank") == 3, f"rank {found.get('rank')} is not the one that was killed")
    need(re.search(r"\b(SIG)?KILL\b|\b9\b", str(found.get("signal")).upper()), "not the signal")
    need(sorted(found.get("victims", [])) == [0, 1, 2], "not the ranks that only suffered")


@grader("which-rank-hangs")
def which_rank_hangs(folder):
    untouched(folder, "which-rank-hangs", "job.py")
    found = answer(folder)
    need(found.get("rank") == 3, f"rank {found.get('rank')} is not the one that the others wait for")
    need(str(found.get("file", "")).endswith("work.py"), "not the file")
    lines = (FILES / "which-rank-hangs" / "work.py").read_text().splitlines()
    need(found.get("line") == 1 + next(i for i, t in enumerate(lines) if ".get()" in t), "not the line")


@grader("same-weights")
def same_weights_under_three_launchers(folder):
    data = runpy.run_path(str(FILES / "same-weights" / "data.py"))  # not imported: another task has a data.py as well
    model, (x, y) = data["model"](), data["tensors"]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        for i in range(0, 64, 16):
            optimizer.zero_grad()
            ((model(x[i:i + 16]) - y[i:i + 16]) ** 2).mean().backward()
            optimizer.step()
    for n in (None, 2, 4):
        work = again(folder, "train.py", "data.py")
        passed(alone(work, "train.py") if n is None else ranks(n, work, "train.py"))
        where = "in one process" if n is None else f"on {n} ranks"
        same_weights(load(work / "weights.pt"), model.state_dict(), f"weights {where}", 1e-5)


@grader("global-accuracy")
def global_accuracy(folder):
    for n in (1, 4):
        said = passed(ranks(n, again(folder, "evaluate.py"), "evaluate.py"))
        found = sorted(re.findall(r"^rank (\d) accuracy ([\d.]+)$", said, re.M))
        need(found == [(str(r), "0.7000") for r in range(n)], f"on {n} ranks: {said}")


@grader("which-scripts-hang")
def which_scripts_hang(folder):
    found = answer(folder).get("hang")
    need(isinstance(found, list), "answer.json has no list «hang»")
    need(sorted(Path(str(f)).name for f in found) == ["b.py", "d.py", "f.py"], f"{found}")


@grader("name-frozen")
def name_frozen(folder):
    said = passed(ranks(3, again(folder, "job.py"), "job.py"))
    need(said.count("done 3.0") == 3, f"without a frozen rank it should still finish: {said[-300:]}")
    frozen = 2  # not the prompt's, and only that rank is told so
    outcomes = ranks(3, again(folder, "job.py"), "job.py", timeout=45, frozen=frozen, of_rank={frozen: {"FROZEN": "2"}})
    named = {}
    for rank in (0, 1):
        need(outcomes[rank].code is not None, f"rank {rank} waits for the frozen one for more than 45 s")
        need(outcomes[rank].code != 0, f"rank {rank} ends as if all was well")
        lists = re.findall(r"\branks?[ :=]*[\[({]*((?:\d+(?:, ?| and | or )?)+)", outcomes[rank].out, re.I)
        named[rank] = {int(n) for each in lists for n in re.findall(r"\d+", each)} - {rank}  # its own may be a prefix
    need(any(names == {frozen} for names in named.values()),
         f"rank {frozen} was frozen; nobody names it alone: " + (outcomes[0].out + outcomes[1].out)[-400:])


@grader("stop-together")
def stop_together(folder):
    for told, at in ((None, "5"), ({0: {"STOP_AT": "8"}}, "8")):
        said = passed(ranks(3, again(folder, "train.py"), "train.py", timeout=30, of_rank=told))
        found = sorted(re.findall(r"^rank (\d) stopped at (\d+)$", said, re.M))
        need(found == [(str(r), at) for r in range(3)], f"rank 0 says stop at {at}: {said[-300:]}")


@grader("resume")
def resume(folder):
    whole = again(folder, "train.py")
    passed(alone(whole, "train.py"))
    for stop in (5, 7):
        work = again(folder, "train.py")
        passed(alone(work, "train.py", "--stop", str(stop)))
        need(not (work / "weights.pt").exists(), "the stopped run wrote weights.pt")
        said = passed(alone(work, "train.py", "--resume"))
        need("iterations 15" in said, f"resumed after {stop}: {said[-200:]}")
        same_weights(load(work / "weights.pt"), load(whole / "weights.pt"), f"resumed after iteration {stop}")


@grader("stop-clean")
def stop_clean(folder):
    said = passed(alone(again(folder, "train.py"), "train.py")).splitlines()
    need(said == ["validated epoch 1", "finished after 9", "last (2, 2)"], f"{said}")


@grader("accumulate")
def accumulate(folder):
    work = again(folder, "train.py")
    passed(alone(work, "train.py"))
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(5)
    x, y = torch.randn(32, 3, generator=generator), torch.randn(32, 1, generator=generator)
    for i in (0, 16):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x[i:i + 16]), y[i:i + 16]).backward()
        optimizer.step()
    same_weights(load(work / "weights.pt"), model.state_dict(), "weights.pt", 1e-5)
    need("gradient_accumulation_steps" in (folder / "train.py").read_text(), "create_supervised_trainer was not used")


@grader("event-order")
def event_order(folder):
    said = passed(alone(again(folder, "train.py"), "train.py")).splitlines()
    wanted = ["start", "warm-up", "epoch 1", "epoch 2", "validate 2", "epoch 3", "epoch 4", "validate 4", "epoch 5",
              "validate 5", "end"]
    need([s.strip() for s in said if s.strip()] == wanted, f"{said}")


@grader("best-two")
def best_two(folder):
    work = again(folder, "train.py")
    passed(alone(work, "train.py"))
    files = sorted(p.name for p in (work / "best").glob("*"))
    need(files == ["best_model_2_accuracy=0.7000.pt", "best_model_4_accuracy=0.9000.pt"], f"best/ holds {files}")
    state = load(work / "best" / files[1])
    need(state["weight"].item() == 4.0, "the best file does not hold the weights of epoch 4")


@grader("early-stop")
def early_stop(folder):
    said = passed(alone(again(folder, "train.py"), "train.py"))
    need("stopped after epoch 6" in said, said[-300:])


@grader("warm-up")
def warm_up(folder):
    work = again(folder, "train.py")
    passed(alone(work, "train.py"))
    found = json.loads((work / "lrs.json").read_text()) if (work / "lrs.json").exists() else []
    wanted = [0.01 * (i + 1) for i in range(10)] + [0.1 * 0.5 ** (i // 5) for i in range(10)]
    need(len(found) == 20 and all(abs(a - b) < 1e-9 for a, b in zip(found, wanted)), f"lrs.json holds {found}")


@grader("contrib-imports")
def contrib_imports(folder):
    text = (folder / "train.py").read_text() if (folder / "train.py").is_file() else ""
    need(not re.search(r"^[^#]*\bcontrib\b", text, re.M), "train.py imports from ignite.contrib")
    for name in ("PiecewiseLinear", "ProgressBar", "ROC_AUC"):
        need(f"{name}(" in text, f"train.py has no {name} any more")
    work = again(folder, "train.py")
    said = passed(alone(work, "train.py"))
    need("lr 0.30" in said and "Warning" not in said, said[-300:])
    need((work / "progress.txt").stat().st_size, "the progress bar wrote nothing")


@grader("ddp-checkpoint")
def ddp_checkpoint(folder):
    untouched(folder, "ddp-checkpoint", "save.py")
    work = again(folder, "save.py", "load.py")
    passed(ranks(2, work, "save.py"))
    raw = load(work / "raw-0.pt")
    passed(alone(work, "load.py"))
    bare = {k.removeprefix("module."): v for k, v in raw.items()}
    same_weights(load(work / "loaded.pt"), bare, "loaded.pt")
    (work / "loaded.pt").unlink()
    passed(ranks(2, work, "load.py"))
    same_weights(load(work / "loaded.pt"), bare, "loaded.pt, loaded on two ranks")


@grader("custom-metric")
def custom_metric(folder):
    work = again(folder, "metric.py")
    (work / "check.py").write_text('''import ignite.distributed as idist
import torch
from ignite.engine import Engine
from metric import WorstError


def main(_):
    r = idist.get_rank()
    batches = [[(torch.zeros(2), torch.tensor([1.0 + r, 2.0]))] + [(torch.zeros(1), torch.tensor([5.0]))] * r,
               [(torch.zeros(2), torch.tensor([0.5, -3.0 * (r == 0)]))]]
    evaluator = Engine(lambda e, b: b)
    WorstError().attach(evaluator, "worst")
    for run in batches:
        print("rank", r, "worst", float(evaluator.run(run).metrics["worst"]))


with idist.Parallel(backend="gloo") as parallel:
    parallel.run(main)
''')
    said = passed(ranks(2, work, "check.py", timeout=30))
    for r in range(2):
        found = re.findall(rf"^rank {r} worst (.*)$", said, re.M)
        need(found == ["5.0", "3.0"], f"rank {r} of 2 computes {found}, not 5.0 and then 3.0")
    said = passed(alone(work, "check.py"))
    need(re.findall(r"worst (.*)$", said, re.M) == ["2.0", "3.0"], f"in one process: {said}")
    (work / "empty.py").write_text('''from ignite.exceptions import NotComputableError
from metric import WorstError
try:
    WorstError().compute()
except NotComputableError:
    print("not computable")
''')
    need("not computable" in passed(alone(work, "empty.py")), "without data it computes something")


@grader("dict-output")
def dict_output(folder):
    text = (folder / "evaluate.py").read_text() if (folder / "evaluate.py").is_file() else ""
    need('"names"' in text, "the step's output has no names any more")
    said = passed(alone(again(folder, "evaluate.py"), "evaluate.py"))
    need("accuracy=0.7500 loss=0.7603 error=0.2500" in said, said[-300:])


@grader("epoch-loss")
def epoch_loss(folder):
    said = passed(alone(again(folder, "train.py"), "train.py")).splitlines()
    need(said == ["epoch 1 loss 3.5714", "epoch 2 loss 3.5714"], f"{said}")
    need("ignite.metrics" in (folder / "train.py").read_text(), "a metric of ignite is not used")


@grader("probabilities")
def probabilities(folder):
    said = passed(alone(again(folder, "evaluate.py"), "evaluate.py"))
    need("accuracy=0.5000 recall=0.7778" in said, said[-300:])


@grader("since-when")
def since_when(folder):
    found = answer(folder)
    wanted = {"saved_checkpoint_event": "0.5.3", "load_objects_weights_only": "0.5.4", "early_stopping_mode": "0.5.4",
              "n_saved_zero_refused": "0.5.4"}
    wrong = {k: found.get(k) for k, v in wanted.items() if found.get(k) != v}
    need(not wrong, f"not right: {wrong}")


@grader("big-log")
def first_to_fail_in_a_big_log(folder):
    found, right = answer(folder), big_log.truth()
    need(found.get("rank") == right["rank"], f"rank {found.get('rank')} is not the first to fail")
    need(found.get("line") in right["lines"], f"line {found.get('line')} is not of its first error")
    need(right["time"].split(",")[0] in str(found.get("time")), f"{found.get('time')} is not when that was")
    cause = str(found.get("cause"))
    need(re.search(r"zlib|decompress|invalid distance|Error -3", cause, re.I), f"not the cause: {cause}")


@grader("many-scripts")
def the_guilty_of_many_scripts(folder):
    named, mistakes = answer(folder).get("mistakes"), many_scripts.truth()
    need(isinstance(named, list) and all(isinstance(n, dict) for n in named), "answer.json has no list «mistakes»")
    found, false = set(), []
    for each in named:
        path, line = str(each.get("file")).replace("\\", "/"), each.get("line")
        hit = {letter for letter, places in mistakes.items() for place, lines in places.items()
               if f"/{path}".endswith(f"/{place}") and isinstance(line, int)
               and lines.start - 2 <= line < lines.stop + 2}
        found |= hit
        false += [] if hit else [f"{path}:{line}"]
    missed = [" or ".join(f"{p}:{ls.start}" for p, ls in places.items())
              for letter, places in sorted(mistakes.items()) if letter not in found]
    need(not missed, f"not found: {', '.join(missed)}")
    need(len(false) <= 1, f"right ones are named: {', '.join(false)}")


@grader("job-of-eight", in_place=True)
def the_one_of_eight(folder):
    for name in ("job.py", "features.py", "shelf.py", "start.sh"):
        untouched(folder, "job-of-eight", name)
    began = (folder / "starts.log").read_text().splitlines() if (folder / "starts.log").exists() else []
    need(len(began) == 1, f"the job was started {len(began)} times")
    first = last = beats(folder)
    deadline = time.monotonic() + 5  # they come twice a second
    while any(after[0] <= before[0] for before, after in zip(first, last)) and time.monotonic() < deadline:
        time.sleep(0.2)
        last = beats(folder)
    for rank, ((before, step), (after, later)) in enumerate(zip(first, last)):
        need(after > before, f"rank {rank} does not go on: it has ended or was stopped")
        need(step == later == first[0][1], f"rank {rank} is at step {later}, which it was not left at")
    found = answer(folder)
    need(found.get("rank") == 5, f"rank {found.get('rank')} is not the one that the others wait for")
    need(str(found.get("file", "")).endswith("shelf.py"), "not the file")
    lines = (folder / "shelf.py").read_text().splitlines()
    need(found.get("line") == 1 + next(i for i, t in enumerate(lines) if "pipe.recv()" in t), "not the line")


def beats(folder: Path) -> list[tuple[int, int]]:
    """How often each of the eight ranks has written, and the step that it is at."""
    texts = [(folder / "beats" / str(rank)) for rank in range(8)]
    need(all(t.is_file() for t in texts), "the job was not started, or has not come up")
    return [(int(count), int(step)) for count, step in (t.read_text().split() for t in texts)]


def left_out(folder: str, names: list[str]) -> set[str]:
    """Hidden files, compiled ones, and those that are too big to be looked into."""
    return {n for n in names if n.startswith(".") or n == "__pycache__"
            or (Path(folder) / n).is_file() and (Path(folder) / n).stat().st_size > TOO_BIG}


def grade(name: str, folder: Path) -> str:
    """Why the answer in `folder` does not pass, or ""; what a run leaves there is removed."""
    copy = Path(tempfile.mkdtemp(prefix="graded-"))
    try:
        if name not in IN_PLACE:
            shutil.copytree(folder, copy / "answer", symlinks=False, ignore=left_out)
        GRADERS[name](folder if name in IN_PLACE else copy / "answer")
        return ""
    except Wrong as e:
        return str(e) or "wrong"
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RuntimeError) as e:
        return f"what was left cannot be read: {type(e).__name__}: {e}"
    finally:
        shutil.rmtree(copy)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=sorted(GRADERS))
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    if not options.folder.is_dir():
        parser.error(f"{options.folder} is no folder")
    why = grade(options.name, options.folder)
    print(f"{options.name}: {'not done: ' + why if why else 'done'}")
    return 1 if why else 0


if __name__ == "__main__":
    sys.exit(main())
