"""Proofs of workflows.md: its prose. The programs and their output are run by test_examples_run.py."""
from __future__ import annotations

import builtins
import faulthandler
import importlib.util
import inspect
import os
import re
import runpy
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import ignite
import ignite.distributed as idist
import pytest
import torch
import torch.distributed as dist
from ignite.engine import Engine, Events
from ignite.metrics import Average
from support import DISTRIBUTED, launchers, releases
from support.claims import proves
from support.examples import differs, find_examples, run_command
from support.pages import read_page
from support.world import run_serial, run_world, values
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler
from torch.distributed.elastic.rendezvous.utils import _matches_machine_hostname, parse_rendezvous_endpoint
from torch.distributed.run import config_from_args, get_args_parser
from torch.utils.data import DataLoader, Subset, TensorDataset

PAGE = "sub-skills/distributed/references/workflows.md"
SPAWNS = "nproc_per_node"
JOB = str(os.getpid())  # Ignite takes the port from the job's number


def load_asset(name: str):
    """The module of a program in assets/, imported without a trace in sys.modules or sys.path."""
    spec = importlib.util.spec_from_file_location(name, DISTRIBUTED / "assets" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def section(anchor: str):
    return proves(f"{PAGE}#{anchor}")


def program(entry) -> str:
    """The Python program of the entry."""
    return next(f.text for f in entry.entry.fences if f.language == "python")


def group_timeout() -> timedelta:
    """The timeout of the default process group."""
    return dist.group.WORLD._get_backend(torch.device("cpu")).options._timeout


def parallel(*args, **kwargs):
    """What `idist.Parallel(*args, **kwargs)` runs in each process: the world size and timeout it finds, as printed."""
    with idist.Parallel(*args, **kwargs) as launcher:
        launcher.run(lambda local_rank: print(f"world {idist.get_world_size()} {group_timeout()}", flush=True))


def torchrun_flags() -> set[str]:
    return {flag for action in get_args_parser()._actions for flag in action.option_strings}


def on_two_hosts(function, named: bool, limit: float = 30.0, **env):
    """Run `function(host)` in one fork on each of two hosts that know their ranks and the first host's address."""
    if reason := launchers.missing("two_hosts"):
        pytest.skip(reason)
    with launchers.two_hosts(named=named) as hosts:

        def there(host):
            hosts.enter(host)
            return function(host)

        def variables(host):
            ranks = {"RANK": str(host), "WORLD_SIZE": "2", "LOCAL_RANK": "0"}
            return {**ranks, "MASTER_ADDR": hosts.address(0), "MASTER_PORT": "29500",
                    **{k: v.format(host=host) for k, v in env.items()}}

        return run_world(2, there, init="serial", env=variables, limit=limit)


def slurm(task: int = 0, tasks: int = 1, nodes: int = 1) -> dict[str, str]:
    """The variables that Ignite reads in a SLURM task, all tasks on this machine, out of reach of a real scontrol."""
    return {"SLURM_JOB_ID": JOB, "SLURM_PROCID": str(task), "SLURM_LOCALID": str(task),
            "SLURM_NTASKS": str(tasks), "SLURM_JOB_NODELIST": "127.0.0.1", "SLURM_JOB_NUM_NODES": str(nodes),
            "PATH": "/nowhere"}


@section("workflows")
def introduction(entry):
    assert not differs(["…", "rank 1", "rank … of 2"], "a log line\nanother\nrank 1\nrank 0 of 2\n", any_order=False)
    entry.says("… stands for log lines and for what differs between machines")
    source = Path("ignite/distributed/comp_models/native.py")
    text = (Path(ignite.__file__).parents[1] / source).read_text()
    assert "torch.cuda.set_device(self._local_rank)" in text and "NCCL <-> GPU" in text
    entry.not_verified(f"put nccl in its place (not verified here; {source} then takes the device of the local rank)",
                       str(source))


@section("serial")
def serial(entry):
    def every_helper():
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        data = TensorDataset(torch.zeros(2))
        idist.barrier()
        return [
            idist.auto_model(model) is model, idist.auto_optim(optimizer) is optimizer, dist.is_initialized(),
            len(idist.auto_dataloader(data)), idist.broadcast(1), idist.all_reduce(2), idist.all_gather(3),
        ]

    outcome = run_serial(every_helper)
    assert outcome.value == [True, True, False, 2, 1, 2, [3]], outcome
    entry.says("Every helper works without a process group")


@section("one-process")
def one_process(entry):
    text = program(entry)
    same = [e.fence.text for e in find_examples(PAGE) if e.name == "job.py" and "nproc_per_node" not in e.fence.text]
    start = 'with idist.Parallel(backend="gloo") as parallel:\n        parallel.run(main)'
    assert same and all(start in t for t in [text, *same])
    entry.says("every later launcher runs this same program")


@section("several-processes-from-plain-python")
def several_processes(entry):
    unguarded = program(entry).replace('if __name__ == "__main__":', "if True:").replace(f"{SPAWNS}=2", f"{SPAWNS}=1")
    assert "if True:" in unguarded and f"{SPAWNS}=1" in unguarded
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "unguarded.py").write_text(unguarded)
        output, code = run_command("python unguarded.py", Path(folder), {})
    assert code != 0 and "An attempt has been made to start a new process before" in output, output
    entry.says(f"{SPAWNS} makes idist.Parallel start the processes. The function stands at module level and the "
               "call under the guard, because each new process imports the file again.")

    added = {"nnodes": 2, "node_rank": None, "master_addr": "10.77.0.1", "master_port": 29600}
    assert set(added) < set(inspect.signature(idist.Parallel).parameters)

    def on_host(host):
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
            del os.environ[name]
        parallel("gloo", nproc_per_node=2, start_method="fork", **{**added, "node_rank": host})

    for outcome in on_two_hosts(on_host, named=True):
        assert outcome.ok and outcome.output.count("world 4") == 2, outcome
    names = list(added)
    entry.says(f"on each host the same call with {', '.join(names[:-1])} and {names[-1]} added")


@section("several-processes-from-plain-python")
@section("loader-model-and-optimizer")
@section("seeds-and-epochs")
@section("one-rank-first-one-rank-only-one-value-for-all")
@section("stop-all-ranks-together")
@section("evaluate-exactly-on-uneven-data")
@section("gather-ragged-results")
def same_program_under_torchrun(entry):
    """Without nproc_per_node the program prints the same lines where a launcher has set the variables."""
    text, spawned = re.subn(r", nproc_per_node=\d+", "", program(entry))
    assert spawned == 1
    shown = next(f.text for f in entry.entry.fences if f.language == "console")
    ranks = int(re.search(r"nproc_per_node=(\d+)", program(entry))[1])
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "job.py").write_text(text)

        def launched(rank):
            os.chdir(folder)
            runpy.run_path("job.py", run_name="__main__")

        outcomes = run_world(ranks, launched, init=None)
    values(outcomes)
    printed = sorted(line for o in outcomes for line in o.output.splitlines() if line.startswith("rank "))
    assert printed and printed == sorted(line for line in shown.splitlines() if line.startswith("rank ")), printed
    entry.says(f"leave out {SPAWNS} and start with torchrun")


@section("torchrun")
def both_launchers(entry):
    def two_more(rank):
        parallel("gloo", nproc_per_node=2, start_method="fork")

    outcomes = run_world(1, two_more, init=None)
    assert outcomes[0].ok and outcomes[0].output.count("world 2") == 2, outcomes
    entry.says(f"so the program gives no {SPAWNS}: with it, each process starts as many again.")


@section("torchrun-on-one-host")
def standalone(entry):
    flag = "--standalone"
    args = get_args_parser().parse_args([flag, "job.py"])
    from torch.distributed.run import run

    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.distributed.run.elastic_launch", lambda config, entrypoint: lambda *a: seen.append(config))
        run(args)
    assert parse_rendezvous_endpoint(seen[0].rdzv_endpoint, default_port=-1) == ("localhost", 0), seen  # 0: a free one
    entry.says(f"{flag} takes a free port, so that two jobs on one host do not meet.")
    restarts = "--max-restarts"
    assert get_args_parser().parse_args([flag, f"{restarts}=3", "job.py"]).max_restarts == 3
    own_store = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    shared = DynamicRendezvousHandler.use_agent_store.fget
    assert values([run_serial(lambda: shared(None), env=own_store)]) == [False]
    setting = "=".join(*own_store.items())
    entry.says(f"{restarts} works reliably only with {setting} before it: restarted ranks.")


@section("torchrun-on-several-hosts")
def several_hosts(entry):
    own, master, count = "--node_rank", "--master_addr", "--nnodes"
    assert {own, master, count} <= torchrun_flags()
    argv = [f"{count}=3", f"{own}=2", f"{master}=host0", "--master_port=29500", "job.py"]
    config = config_from_args(get_args_parser().parse_args(argv))[0]
    assert (config.min_nodes, config.rdzv_configs["rank"], config.rdzv_endpoint) == (3, 2, "host0:29500"), config
    entry.says(f"The same command on each host, with its own {own}; {master} is the first host as the others reach it.",
               f"raise {count} and give each host its {own}")


@section("torchrun-with-the-c10d-rendezvous")
def c10d(entry):
    def own(host):
        return _matches_machine_hostname("10.77.0.1"), _matches_machine_hostname("host0")

    def joins(host):
        idist.initialize("gloo", timeout=timedelta(seconds=3))
        return idist.get_nnodes()

    lost = on_two_hosts(own, named=False)
    assert [v[0] for v in values(lost)] == [False, False], lost
    assert not any(o.ok for o in on_two_hosts(joins, named=False, limit=5)), "gloo needs no GLOO_SOCKET_IFNAME here"
    variable = "GLOO_SOCKET_IFNAME"
    assert values(on_two_hosts(joins, named=False, **{variable: "cable{host}"})) == [2, 2]
    conf, flag = "is_host", "--local_addr"
    assert {flag, "--rdzv_conf"} <= torchrun_flags()
    entry.says(f"gloo does not connect without the interface in {variable}, and no host takes the endpoint for its "
               f"own, so {conf} says which one is to keep the store.")
    assert values(on_two_hosts(own, named=True)) == [(True, True), (False, False)]
    assert values(on_two_hosts(joins, named=True)) == [2, 2]
    entry.says(f"Where names resolve, leave out these and {flag}.")
    args = get_args_parser().parse_args(["--nnodes=3", f"--rdzv_conf={conf}=1", "job.py"])
    config = config_from_args(args)[0]
    assert config.max_nodes == 3 and config.rdzv_configs[conf] == "1", config
    entry.says(f"raise --nnodes, with {conf}={config.rdzv_configs[conf]} on one host only.")


@section("slurm")
def under_slurm(entry):
    def sees(task):
        idist.initialize("gloo")
        return idist.get_rank(), idist.get_world_size(), idist.get_local_rank(), os.environ["MASTER_ADDR"]

    def variables(task):
        return slurm(task, tasks=2)

    assert values(run_world(2, sees, init="serial", env=variables)) == [(r, 2, r, "127.0.0.1") for r in range(2)]
    outcome = run_serial(lambda: parallel("gloo", nproc_per_node=2, start_method="fork"), env=slurm())
    assert outcome.ok and outcome.output.count("world 2") == 2, outcome
    entry.says("idist.Parallel takes rank, size and address from the variables of SLURM: no torchrun, and no "
               f"{SPAWNS}, with which each task starts as many again.")
    alone = run_serial(lambda: idist.initialize("gloo", timeout=timedelta(seconds=1)), env=slurm(tasks=2))
    assert "timed out" in alone.message.lower(), alone
    entry.says("python alone is one process, which waits for the others.")
    shown = next(f.text for f in entry.entry.fences if f.language == "console")  # run by test_examples_run.py
    (node_flag, nodes), (task_flag, tasks) = re.findall(r"(--n\w+[\w-]*)=(\d+)", shown)
    assert shown.count("\nrank ") == int(nodes) * int(tasks) and f"node {int(nodes) - 1} of {nodes}" in shown
    entry.says(f"raise {node_flag}; {task_flag} is the number of ranks on each")


@section("mpirun")
def under_mpirun(entry):
    outcome = run_serial(lambda: idist.initialize("gloo"), env={"RANK": "0", "WORLD_SIZE": "1"})
    assert outcome.error == "RuntimeError"
    entry.quotes(outcome.message)
    entry.says("all three, or")

    def elsewhere(rank):  # the group meets at the address in the variable
        os.environ["MASTER_ADDR"] = "10.77.0.1"
        idist.initialize("gloo")
        return idist.get_world_size()

    assert values(on_two_hosts(elsewhere, named=True)) == [2, 2]
    entry.says("put the address of the first into MASTER_ADDR")


@section("notebook")
def notebook(entry):
    def cell(ipython):
        if ipython:
            builtins.__IPYTHON__ = True
        parallel("gloo", nproc_per_node=2)  # of a lambda, which only a fork can hand over

    port = {"MASTER_PORT": str(launchers.free_port())}
    forked = run_serial(lambda: cell(True), env=port)
    assert forked.ok and forked.output.count("world 2") == 2, forked
    assert "pickle" in run_serial(lambda: cell(False), env=port).message.lower()
    entry.says("Under IPython idist.Parallel forks its processes, so a function of a cell will do, without a guard.")
    text, source = "Cannot re-initialize CUDA in forked subprocess", Path("torch/cuda/__init__.py")
    assert text in (Path(torch.__file__).parents[1] / source).read_text()
    entry.not_verified(f"else each process ends with {text} (not verified here; {source})", str(source))


@section("a-process-group-of-your-own")
def own_group(entry):
    def one_asks(rank):
        if rank == 0:
            return idist.get_world_size()
        time.sleep(3)

    def all_synced(rank):
        idist.sync()
        return one_asks(rank) if rank == 0 else None

    assert not run_world(2, one_asks, init="torch", timeout=1.0, limit=2.5)[0].ok
    assert values(run_world(2, all_synced, init="torch", timeout=1.0))[0] == 2
    entry.says("The first idist query on a group that Ignite did not make is itself a collective: asked by one rank, "
               "it hangs. Call idist.sync() on every rank right after the group is made; then any rank may ask alone.")

    def destroyed(rank):
        idist.sync()
        dist.destroy_process_group()
        try:
            idist.get_world_size()
        except ValueError as e:
            error = e
        idist.sync()
        return str(error), idist.get_world_size()

    assert all("not been initialized" in e and n == 1 for e, n in values(run_world(2, destroyed, init="torch")))
    entry.says("Call it once more after the group is destroyed.")

    def local_rank(told):
        def ask(rank):
            if told:
                idist.set_local_rank(rank)
            return idist.get_local_rank()

        return run_world(2, ask, init="torch", unset=(variable,))

    variable = "LOCAL_RANK"
    guessed, told = local_rank(False), local_rank(True)
    assert values(guessed) == values(told) == [0, 1]
    assert all("based on the hostnames" in "".join(o.warnings) for o in guessed) and not any(o.warnings for o in told)
    entry.says(f"Where the launcher sets no {variable}, call idist.set_local_rank() before, or Ignite guesses it from "
               "host names and warns.")


@section("loader-model-and-optimizer")
def whole_batch(entry):
    x, rate = torch.arange(8.0).unsqueeze(1), 0.01
    weight = torch.zeros(1, requires_grad=True)
    ((weight * x - 3 * x) ** 2).mean().backward()
    factor = (-weight.grad / (x**2).mean()).item()
    step = rate * -weight.grad.item()
    entry.says("gradients are averaged over the ranks, so a step is that of one process with the whole batch: here "
               f"from {weight.item():.0f} to {rate} · {factor:.0f} · mean(x²) = {step:.2f}.")
    assert f"{step:.2f}\n" in next(f.text for f in entry.entry.fences if f.language == "console")

    def share(batch_size):
        return lambda rank: idist.auto_dataloader(TensorDataset(torch.zeros(64)), batch_size=batch_size).batch_size

    assert values(run_world(2, share(8))) == [4, 4] and values(run_world(4, share(16))) == [4] * 4
    entry.says("batch_size is that of all ranks together", "twice the ranks with twice the batch_size keep the share")


@section("seeds-and-epochs")
def weights_of_rank_0(entry):
    def weights(rank):
        torch.manual_seed(rank)
        layer = torch.nn.Linear(2, 1)
        return layer.weight.tolist(), idist.auto_model(layer).module.weight.tolist()

    (before, after), (other, same) = values(run_world(2, weights))
    assert before != other and after == same == before
    entry.says("idist.auto_model gives all of them the weights of rank 0 all the same.")
    shown = next(f.text for f in entry.entry.fences if f.language == "console")
    assert "set_epoch False, same order True" in shown and "set_epoch True, same order False" in shown
    entry.says("Tell the sampler the epoch, or every epoch has the same order: neither the engine nor the loader does.")
    name = "set_epoch"
    sampler = run_serial(lambda: hasattr(idist.auto_dataloader(torch.arange(4)).sampler, name))
    assert sampler.value is False, sampler
    entry.says(f"The guard is for one process, where the sampler has no {name}.")


@section("one-rank-first-one-rank-only-one-value-for-all")
def one_rank(entry):
    def returned(rank):
        return idist.one_rank_only()(lambda: "x")(), idist.broadcast(16777219 if rank == 0 else 0, src=0)

    (first, number), (other, _) = values(run_world(2, returned))
    assert first == "x" and other is None
    entry.says(f"idist.one_rank_only runs the function on one rank and returns {other} on the others.")
    kind = torch.float32
    assert number == torch.tensor(16777219, dtype=kind).item() != 16777219
    entry.says(f"a number goes through a float of {torch.finfo(kind).bits} bits; a tensor arrives as it is.")

    def order(local):
        with tempfile.TemporaryDirectory() as folder:

            def visit(rank):
                with idist.one_rank_first(local=local):
                    time.sleep(0.3 * (rank % 2 == 0))
                    found = sorted(os.listdir(folder))
                    Path(folder, str(rank)).touch()
                return found

            return values(run_world(4, visit, env=lambda rank: {"LOCAL_RANK": str(rank % 2)}))

    everywhere, by_node = order(False), order(True)
    assert everywhere[0] == [] and all("0" in found for found in everywhere[1:]), everywhere
    assert all({"0", "2"} <= set(by_node[r]) for r in (1, 3)), by_node
    assert not {"1", "3"} & {*by_node[0], *by_node[2]}, by_node
    entry.says("idist.one_rank_first runs its block on all ranks, one of them before the others",
               "local=True lets one rank of each node go first")


@section("stop-all-ranks-together")
def stops_alone(entry):
    def run(rank):
        trainer = Engine(lambda engine, batch: None)

        @trainer.on(Events.ITERATION_COMPLETED)
        def decide_alone(engine):
            if rank == 1 and engine.state.iteration == 3:
                engine.terminate()
            else:
                idist.all_reduce(1)

        try:
            trainer.run(range(10), max_epochs=1)
        except RuntimeError as e:
            return trainer.state.iteration, str(e)
        time.sleep(2)
        return trainer.state.iteration, ""

    outcomes = run_world(2, run, timeout=1.0, limit=6)
    waited, stopped = outcomes[0].value, outcomes[1].value
    assert waited[0] == 3 and "Timed out" in waited[1], outcomes
    assert stopped is None or stopped == (3, ""), outcomes
    entry.says("A decision taken from one rank's numbers stops that rank only, and the others wait for it in the next "
               "collective.")


@section("end-soon-when-one-rank-stalls")
def stall(entry):
    flag = "--no_python"
    assert flag in torchrun_flags()
    one_fails = launchers.torchrun_argv(2, flag, "bash", "-c", "(($RANK)) && exit 3; sleep 1000")
    done = launchers.run(one_fails, timeout=60)
    assert done.returncode == 1 and not done.timed_out and not done.left_behind, done.report()
    entry.says("When one rank fails, torchrun ends the others.")

    short = timedelta(seconds=7)

    def timeouts(rank):
        with idist.Parallel("gloo", timeout=short):
            dropped = group_timeout()
        idist.initialize("gloo", timeout=short)
        return dropped, group_timeout()

    dropped, kept = run_world(1, timeouts, init=None).pop().value
    assert kept == short
    spawned = run_serial(lambda: parallel("gloo", nproc_per_node=1, start_method="fork", timeout=short),
                         env={"MASTER_PORT": str(launchers.free_port())})
    assert f"world 1 {short}" in spawned.output, spawned
    entry.says(f"the others wait for the timeout of the process group, by default {dropped.seconds // 60} minutes.",
               f"idist.initialize takes a shorter one; idist.Parallel without {SPAWNS} drops it silently.")
    train = load_asset("train")

    def stand_still(args, watch):
        if idist.get_rank() == 1:
            time.sleep(1000)
        idist.barrier()

    outcomes = run_world(2, lambda rank: train.Watch(2).guard(stand_still, None), timeout=25)
    place = f"{__file__}:{stand_still.__code__.co_firstlineno + 2} in stand_still"
    assert [out.exit_code for out in outcomes] == [1, 1], outcomes
    verdict = f"no progress: rank 1 on {os.uname().nodename} is at {place}"
    assert all(verdict in out.output for out in outcomes), outcomes
    entry.says(f"The {train.Watch.__name__} of train.py also names the stalled rank, its host and its place in the "
               "code, and ends all ranks.")


@section("evaluate-exactly-on-uneven-data")
def uneven(entry):
    def metrics(rank):
        data = TensorDataset(torch.tensor([1.0] + 8 * [0.0]))
        padded = idist.auto_dataloader(data, batch_size=4, shuffle=False)
        strided = DataLoader(Subset(data, range(rank, len(data), 2)), batch_size=2)
        results = []
        for loader in (padded, strided):
            average = Average()
            for (batch,) in loader:
                average.update(batch.unsqueeze(1))
            results.append(round(average.compute().item(), 4))
        return *results, len(padded.sampler), len(strided)

    (padded, exact, items, batches), other = values(run_world(2, metrics))
    assert (padded, exact, items) == (0.2, 0.1111, 5) == other[:3]
    entry.says("idist.auto_dataloader repeats samples until each rank has as many, and metrics count them again.")
    assert batches != other[3]

    def forward(rank):
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.BatchNorm1d(1)).eval()
        with torch.no_grad():
            for _ in range(2 - rank):
                model(torch.zeros(1, 1))
        time.sleep(2 * rank)

    assert run_world(2, forward, timeout=1.0)[0].error == "RuntimeError"  # a buffer is sent at each forward pass
    entry.says("The ranks then take different numbers of batches: no collective inside the loop, and the module "
               "without its DistributedDataParallel.")


@section("gather-ragged-results")
def ragged(entry):
    def has(version):
        try:
            path = releases.release_path(version)
        except releases.Unavailable as e:
            pytest.skip(f"release {version}: {e}")
        return "def all_gather_tensors_with_shapes(" in (path / "ignite/distributed/utils.py").read_text()

    first = next(v for v in releases.releases() if has(v))
    assert not has(releases.predecessor(first))
    entry.says(f"idist.all_gather_tensors_with_shapes, new in {first}")

    def gathered(rank):
        faulthandler.disable()  # gloo may abort the rank
        rows = idist.all_gather(torch.full((rank + 1, 2), float(rank)))
        return rows.tolist() == [[0.0, 0.0], [1.0, 1.0], [1.0, 1.0]]

    assert [o.value for o in run_world(2, gathered, timeout=2.0)] != [True, True]
    entry.says("idist.all_gather wants the same shape on all ranks.")

    def inside(rank):
        rows = torch.zeros(rank + 1, 2)
        return [len(d["rows"]) for d in idist.all_gather({"rows": rows})], [len(r[0]) for r in idist.all_gather([rows])]

    assert values(run_world(2, inside)) == [([1, 2], [1, 2])] * 2
    entry.says("gather the tensor inside a list or a dict.")


SHOWN = {  # what the program and commands under a heading show, by what of them shows it; all of them are run
    "serial": {"if __name__": "More nodes: put the body into a function and start that as below.",
               "backend {idist.backend()}": "so write the distributed program at once and debug it serially."},
    "one-process": {"of 1, backend gloo": "A group of one proves that the backend comes up;",
                    "parallel.run(main)": "More nodes: nothing in the program; start it with torchrun, under SLURM "
                                          "or with "
                                          "mpirun."},
    "several-processes-from-plain-python": {"nproc_per_node=2": "; or leave out nproc_per_node"},
    "torchrun": {"parallel.run(main)": "torchrun starts the processes,"},
    "torchrun-on-several-hosts": {"--nnodes=2": "More nodes: raise --nnodes"},
    "torchrun-with-the-c10d-rendezvous": {
        "rank … of 2, local 0, node … of 2": "c10d numbers the nodes itself. Where a host's own name resolves to "
                                             "loopback, "
                                             "as in many containers, gloo",
        "--nnodes=2": "More nodes: raise --nnodes"},
    "slurm": {"--ntasks-per-node=2": "srun starts one process per task, and idist.Parallel",
              "srun --kill-on-bad-exit python job.py": "A batch script starts the program with srun as well:",
              "--nodes=2": "More nodes: raise --nodes; --ntasks-per-node is the number of ranks on each, with GPUs "
                           "one for "
                           "each of them."},
    "mpirun": {"RANK=$OMPI_COMM_WORLD_RANK": "The variables of mpirun need the names that torch reads: all three,",
               "MASTER_ADDR=127.0.0.1": "More nodes: name the hosts to mpirun, and put the address of the first"},
    "notebook": {"ipython cell.py": "Touch no GPU in an earlier cell, else",
                 "nproc_per_node=2": "More nodes: a notebook stays on one host; move the cell into a file and use "
                                     "torchrun."},
    "a-process-group-of-your-own": {"init_process_group": "More nodes: nothing. Where"},
    "loader-model-and-optimizer": {
        "batch_size=8": "keep the share of each.",
        "4 of 8 samples": "batch_size is that of all ranks together, and gradients are averaged over the ranks, so"},
    "seeds-and-epochs": {"manual_seed(12 + idist.get_rank())": "Give each rank a seed of its own for augmentation and "
                                                               "dropout;"},
    "one-rank-first-one-rank-only-one-value-for-all": {
        "with idist.one_rank_first():": "before the others: for a download.",
        "idist.broadcast(seed, src=0)": "idist.broadcast hands a value to all, but a number",
        "os.path.exists": "for disks that the nodes do not share."},
    "stop-all-ranks-together": {'idist.all_reduce(int(bad), "MAX")': "Reduce the decision, then act on it everywhere."},
    "end-soon-when-one-rank-stalls": {
        "no answer in 8 s": "When one rank stalls, the others wait for the timeout",
        "timeout=timedelta(seconds=8)": "More nodes: nothing. Keep the timeout longer than the longest honest "
                                        "wait, such as "
                                        "one rank writing a checkpoint."},
    "evaluate-exactly-on-uneven-data": {"range(rank, len(data), world)": "Give each rank its own stride of the data "
                                                                         "instead, and reduce sum and count."},
    "gather-ragged-results": {
        "idist.all_gather(len(mine))": "For others gather the lengths, then use idist.all_gather_tensors_with_shapes,",
        'idist.all_gather({"rows": mine})': "before, gather the tensor inside a list or a dict.",
        "column [0.0, 1.0, 1.0]": "every rank receives all rows, so keep them small."},
}


@section("serial")
@section("one-process")
@section("several-processes-from-plain-python")
@section("torchrun")
@section("torchrun-on-several-hosts")
@section("torchrun-with-the-c10d-rendezvous")
@section("slurm")
@section("mpirun")
@section("notebook")
@section("a-process-group-of-your-own")
@section("loader-model-and-optimizer")
@section("seeds-and-epochs")
@section("one-rank-first-one-rank-only-one-value-for-all")
@section("stop-all-ranks-together")
@section("end-soon-when-one-rank-stalls")
@section("evaluate-exactly-on-uneven-data")
@section("gather-ragged-results")
def shown_by_the_program(entry):
    text = "\n".join(f.text for f in entry.entry.fences) + "if __name__"
    for shown, said in SHOWN[entry.entry.anchor].items():
        assert shown in text, f"{entry.entry.where}: «{said}», but the program and commands lack {shown}"
        entry.says(said)
    if "idist.Parallel" in text and "leave out nproc_per_node and start with torchrun" in entry.entry.text:
        entry.says("leave out nproc_per_node and start with torchrun")
    if "More nodes:" in entry.entry.text:
        entry.says("More nodes:")
    if "is raised" in entry.entry.text:
        assert text.count("RANK=") >= 2  # the three names
        entry.says("is raised.")


@section("workflows")
def contents(entry):
    """The list of recipes holds every heading that a reader starts from; the introduction names what is in the page."""
    page = read_page(PAGE)
    linked = {link.target for link in page.links}
    missing = [e.where for e in page.entries if e.level == 2 and f"#{e.anchor}" not in linked]
    assert not missing, f"not in the contents: {missing}"
    text = entry.entry.text
    entry.says(text[text.index("Start: "):])
    programs = [e for e in find_examples(PAGE) if e.name]
    assert programs and all("nccl" not in e.fence.text for e in programs)
    entry.says("Complete programs for ignite.distributed: copy the file, run the command, compare the output. They "
               "run on "
               "CPUs with the gloo backend; for GPUs put nccl in its place")
    entry.says("In the output, … stands", "ranks print in any order.")
    for name in ("train.py", "evaluate.py"):
        assert Path(DISTRIBUTED, "assets", name).exists()
    entry.says("For a whole training with checkpoints and a resume, copy train.py; for its exact evaluation, "
               "evaluate.py.")
