"""Proofs: it does not start, launcher and environment."""

from __future__ import annotations

import inspect
import itertools
import os

import ignite.distributed as idist
import torch
import torch.distributed as dist
from ignite.distributed.comp_models.base import _SerialModel
from ignite.distributed.comp_models.native import _NativeDistModel
from support.world import run_serial, run_world, values

from .troubleshooting_tools import evaluate, free_port, notebook, plain_folder, python_c, raised, shell, symptom


@symptom("unknown-backend--available-backends-")
def unknown_backend(entry):
    entry.heading(raised(run_serial(lambda: idist.Parallel("mpi")), "ValueError"))
    for call in (lambda: idist.initialize("mpi"), lambda: idist.spawn("mpi", print, ())):
        entry.quotes(raised(run_serial(call), "ValueError"))
    code = "import ignite.distributed as idist; print(idist.available_backends())"
    printed = python_c(code) if torch.version.cuda is None else ("gloo",)
    entry.says(f'python -c "{code}"; a CPU-only torch prints {printed}')
    assert "build PyTorch from source" in run_world(1, lambda r: dist.init_process_group("mpi"), init=None)[0].message
    entry.says("mpi needs a torch built from source against MPI.")
    fix = 'backend = "nccl" if torch.cuda.is_available() else "gloo"'

    def fixed():
        names = {"torch": torch, "idist": idist}
        exec(fix, names)
        with evaluate("idist.Parallel(backend=backend)", backend=names["backend"]) as parallel:
            parallel.run(lambda local_rank: None)

    values([run_serial(fixed)])
    entry.says(fix, "idist.Parallel(backend=backend) no longer raises")
    entry.says("torch or this environment lacks the backend that you named; idist.initialize and idist.spawn word it")
    entry.says("Fix choose from what is there")


@symptom("if-backend-is-none-argument--should-be-also-none-but-given-")
def arguments_without_backend(entry):
    parameters = inspect.signature(idist.Parallel).parameters
    refused = []
    for name in parameters:
        if name not in ("backend", "spawn_kwargs"):
            out = run_serial(lambda: idist.Parallel(**{name: 2 if name != "init_method" else "env://"}))
            if out.error:
                entry.heading(raised(out, "ValueError"))
                refused.append(name)
    entry.says(f"{', '.join(refused[:-1])} or {refused[-1]} was given to idist.Parallel without a backend")
    entry.says(f"the value behind backend=, often an option left at its default {parameters['backend'].default}")
    fix = 'idist.Parallel(backend="gloo", nproc_per_node=2)'

    def fixed():
        notebook()
        with evaluate(fix) as parallel:
            parallel.run(lambda local_rank: None)

    out = run_serial(fixed)
    values([out])
    entry.quotes(out.output)
    entry.says(fix, "the log says Spawn function '…' in 2 processes")
    assert "in 2 processes" in out.output
    entry.says("without one it runs your function once, in this process.")


@symptom("argument-nproc_per_node-should-positive-but-given-")
def arguments_of_parallel(entry):
    entry.heading(raised(run_serial(lambda: idist.Parallel("gloo", nproc_per_node=0)), "ValueError"))
    for wrong in (
        {"nnodes": 0},
        {"nnodes": 2, "node_rank": 2},
        {"nnodes": 2},
        {"nnodes": 2, "node_rank": 0, "master_port": 1},
    ):
        entry.quotes(raised(run_serial(lambda: idist.Parallel("gloo", nproc_per_node=2, **wrong)), "ValueError"))
    entry.says("the arguments of idist.Parallel do not describe a world. Its neighbours:")

    def ignored():
        with idist.Parallel("gloo", nnodes=2, node_rank=1, master_addr="10.0.0.1", master_port=1) as parallel:
            parallel.run(lambda local_rank: print("world", idist.get_world_size()))

    assert "world 1" in run_serial(ignored).output
    entry.says("that nproc_per_node is there: without it, nnodes and the rest are ignored in silence")
    fix = (
        'idist.Parallel(backend="gloo", nproc_per_node=2, nnodes=2, node_rank=0, '
        'master_addr="10.0.0.1", master_port=29500)'
    )
    port = free_port()

    def node(rank):
        notebook()
        code = fix.replace("node_rank=0", f"node_rank={rank}").replace("10.0.0.1", "127.0.0.1")
        with evaluate(code.replace("29500", str(port))) as parallel:
            parallel.run(lambda local_rank: print("world", idist.get_world_size()))

    outcomes = run_world(2, node, init=None)
    values(outcomes)
    worlds = {line.split()[1] for out in outcomes for line in out.output.splitlines() if line.startswith("world")}
    assert len(worlds) == 1
    entry.says("the same nproc_per_node, nnodes, master_addr, master_port, and node_rank counted from 0", fix)
    entry.says(f"the constructor returns, and inside idist.get_world_size() is {worlds.pop()}")
    entry.says("the arguments of idist.Parallel do not describe a world.")
    entry.says("on every node the same")


@symptom("tcp-initialization-via-init_method-will-hang")
def tcp_init_method(entry):
    for call in (idist.Parallel, idist.initialize):
        message = raised(
            run_world(1, lambda r: call("gloo", init_method="tcp://127.0.0.1:1"), init=None)[0], "ValueError"
        )
        entry.heading(message)
    entry.says('init_method="tcp://…" is refused, by idist.Parallel and by idist.initialize')
    entry.says(f"The text goes on: {message.split('will hang. ')[1]}", "init_method in your configuration.")

    def fixed(rank):
        with idist.Parallel("gloo") as parallel:
            parallel.run(lambda local_rank: print("world", idist.get_world_size()))

    assert all("world 2" in out.output for out in run_world(2, fixed, init=None)[:1])
    entry.says("leave it out and set MASTER_ADDR and MASTER_PORT, or pass master_addr= and master_port= next to")
    entry.says("pass master_addr= and master_port= next to nproc_per_node=.")  # run in arguments_of_parallel
    entry.says("idist.get_world_size() is what you asked for")


@symptom("error-initializing-torchdistributed-using-file-rendezvous-rank-parameter-missing")
def file_path_with_env(entry):
    with plain_folder() as folder:
        names = (".venv", "my_env")
        for name in names:
            init_method = f"file://{folder}/{name}"
            assert evaluate('"env" in init_method', init_method=init_method)
            out = run_world(1, lambda r: idist.initialize("gloo", init_method=init_method), init=None)[0]
            entry.heading(raised(out, "ValueError"))
        entry.says(f"the path of your file:// URL contains the letters env (as in {names[0]} or {names[1]})")
        entry.says("Ignite takes any such URL for env:// and passes no rank", '"env" in init_method')
        values(run_world(2, lambda r: idist.initialize("gloo", init_method=f"file://{folder}/other"), init=None))
    entry.says("Fix another folder. Proof the group comes up with the same program")


@symptom("master_addr-should-be-none-if-init_method-is-provided-other-then-env")
def address_and_file(entry):
    with plain_folder() as folder:

        def program(**extra):
            def run():
                notebook()
                with idist.Parallel("gloo", nproc_per_node=2, init_method=f"file://{folder}/f", **extra) as parallel:
                    print("constructed")
                    parallel.run(lambda local_rank: print("world", idist.get_world_size()))

            return run_serial(run)

        out = program(master_addr="127.0.0.1")
        entry.heading(raised(out, "ValueError"))
        assert "constructed" in out.output
        entry.quotes(raised(program(master_port=1), "ValueError"))
        entry.says(
            "a file:// rendezvous and an address were both given", "is the same. It comes from run, not from the "
            "constructor.",
        )
        assert program().output.count("world 2") == 2
        entry.says("which of the two you want")  # address and file fail together, each alone starts
    entry.says(  # the file's folder is all that the ranks share
        "one host or a shared folder: init_method alone; several hosts: master_addr and master_port alone",
        "run starts its processes",
    )


@symptom("both-rank-and-world_size-should-be-provided-but-given--and-")
def half_of_the_pair(entry):
    make = _NativeDistModel.create_from_backend
    entry.heading(raised(run_serial(lambda: make("gloo", init_method="file:///nowhere", rank=0)), "ValueError"))
    entry.quotes(raised(run_serial(lambda: make("gloo", rank=0, world_size=1)), "ValueError"))
    entry.says(f"Ignite's private {make.__name__} was called with half of the pair; without an init_method it says")
    entry.says(f"your code for {_NativeDistModel.__name__}")
    fix = 'idist.initialize("gloo", rank=0, world_size=1)'
    size = values(
        [run_serial(lambda: (evaluate(fix), idist.get_world_size())[1], env={"MASTER_PORT": str(free_port())})]
    )
    entry.says(f"call {fix}, which accepts both", f"idist.get_world_size() is {size[0]}.")
    entry.says("The public calls do not lead there.")


@symptom("trying-to-initialize-the-default-process-group-twice")
def group_made_twice(entry):
    def nested(rank):
        with idist.Parallel("gloo"), idist.Parallel("gloo"):
            pass

    entry.heading(raised(run_world(1, lambda r: idist.initialize("gloo"))[0], "ValueError"))
    entry.heading(raised(run_world(1, lambda r: idist.initialize("gloo"), init="torch")[0], "ValueError"))
    entry.heading(raised(run_world(1, nested, init=None)[0], "ValueError"))
    entry.says(
        "idist.initialize inside idist.Parallel(backend=…), two of these nested, or your own dist.init_process_group"
    )

    def forked(rank):
        notebook()
        idist.spawn("gloo", print, (), nproc_per_node=1)

    entry.quotes(raised(run_world(1, forked)[0], "ProcessRaisedException"))
    entry.says("dist.is_initialized() just before")

    def adopted(rank):
        with idist.Parallel() as parallel:
            parallel.run(lambda local_rank: print("inside", idist.backend()))

    assert "inside gloo" in run_world(1, adopted)[0].output

    def again(rank):
        idist.finalize()
        idist.initialize("gloo")

    values(run_world(1, again))
    entry.says("Fix create the group in one place;")  # made twice it raised three times above, made once it runs
    entry.says("inside it use plain idist.Parallel(), which adopts the group, or call idist.finalize() first")
    entry.says("idist.backend() inside reports the group's backend")
    entry.says("a group exists already:", "before them. Processes forked from such a program say")


@symptom("nonetype-object-has-no-attribute-info")
def run_outside_with(entry):
    out = run_serial(lambda: idist.Parallel("gloo").run(print))
    entry.heading(raised(out, "AttributeError"))
    assert out.traceback.split('  File "')[-1].split('"')[0].endswith("launcher.py")
    entry.says("Parallel.run was called outside its with block", "the traceback ends in launcher.py")
    fix = 'with idist.Parallel(backend="gloo") as parallel: parallel.run(training)'
    out = run_world(1, lambda r: exec(fix, {"idist": idist, "training": lambda local_rank: None}), init=None)[0]
    values([out])
    entry.quotes(out.output)
    entry.says(fix, "the log says End of run")
    assert "End of run" in out.output


@symptom("expected-timeout-argument-to-be-of-type-datetimetimedelta-got-")
def timeout_as_int(entry):
    out = run_world(1, lambda r: idist.initialize("gloo", timeout=30), init=None)[0]
    entry.heading(raised(out, "TypeError"))
    assert inspect.signature(_NativeDistModel.__init__).parameters["timeout"].annotation == "int | None"
    entry.says("timeout is not a number of seconds, although Ignite's annotation says int.")
    fix = 'idist.initialize("gloo", timeout=timedelta(seconds=30))'
    values(run_world(1, lambda r: evaluate(fix), init=None))
    entry.says("the call of idist.initialize or idist.spawn.", fix)
    entry.says("Proof the group comes up")


@symptom("spawn-missing-1-required-positional-argument-args")
def spawn_without_args(entry):
    entry.heading(raised(run_serial(lambda: idist.spawn("gloo", print)), "TypeError"))
    fix = 'idist.spawn("gloo", training, args=(), nproc_per_node=2)'
    out = run_serial(lambda: (notebook(), evaluate(fix, training=lambda local_rank: print("local rank", local_rank))))
    values([out])
    assert [out.output.count(f"local rank {r}") for r in range(3)] == [1, 1, 0], out.output  # lines may run together
    entry.says("Check the call")
    entry.says("idist.spawn wants the tuple of arguments even when it is empty")
    entry.says(f"{fix}; the local rank is put in front of args for you", "training runs once per process")


@symptom("serial-computation-model-does-not-implement-spawn-method")
def serial_spawn(entry):
    entry.heading(raised(run_serial(lambda: _SerialModel.spawn()), "NotImplementedError"))
    assert isinstance(idist.utils._model, _SerialModel)
    entry.says(
        "something called the private _SerialModel.spawn; the public idist.spawn never does", "your code for _model."
    )
    values([run_serial(lambda: (notebook(), idist.spawn(idist.available_backends()[0], print, ())))])
    entry.says("call idist.spawn with a backend of idist.available_backends()")
    entry.says("Proof the processes start")


@symptom("pytorch-distributed-configuration-should-define-env-variables-rank-local_rank-world_size")
def partial_environment(entry):
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
    for n in (1, 2):
        for some in itertools.combinations(names, n):
            out = run_serial(lambda: idist.initialize("gloo"), env=dict.fromkeys(some, "1"))
            entry.heading(raised(out, "RuntimeError"))
    entry.says("a cluster that exports only WORLD_SIZE.")
    assert values(run_world(1, lambda r: dist.get_rank(), init="torch", unset=("LOCAL_RANK",))) == [0]
    entry.says("torch alone does not need LOCAL_RANK, Ignite does")
    check, fix = "env | grep -E '^(RANK|LOCAL_RANK|WORLD_SIZE)='", "unset RANK LOCAL_RANK WORLD_SIZE"
    assert shell(check, WORLD_SIZE="4") == "WORLD_SIZE=4"
    assert shell(f"{fix}; {check}", **dict.fromkeys(names, "1")) == ""
    assert len(shell(check, **dict.fromkeys(names, "1")).splitlines()) == 3
    values([run_serial(lambda: idist.initialize("gloo"), env={"MASTER_PORT": str(free_port())})])
    values(run_world(1, lambda r: idist.initialize("gloo"), init=None))
    entry.says(check, f"for a plain run {fix}; otherwise start with torchrun, which sets all three")
    entry.says("the check prints nothing, or three lines")
    entry.says("some of the three are set and some are not: a leftover in the shell, or a cluster")


@symptom("every-process-is-rank-0-of-1")
def nobody_initialised(entry):
    def program(rank):
        with idist.Parallel() as parallel:
            parallel.run(lambda local_rank: None)
        return idist.get_rank(), idist.get_world_size(), idist.backend(), os.environ["RANK"]

    seen = values(run_world(2, program, init=None))
    assert seen == [(0, 1, None, "0"), (0, 1, None, "1")]
    entry.says(
        "before idist.initialize no getter reads RANK or WORLD_SIZE, and idist.Parallel() without a backend creates"
    )
    entry.says(f"idist.backend() is {seen[0][2]}")
    fix = 'idist.Parallel(backend="gloo")'

    def fixed(rank):
        with evaluate(fix):
            return idist.get_world_size()

    assert values(run_world(2, fixed, init=None)) == [2, 2]
    entry.says(f"{fix} (or nccl) around the run", "idist.get_world_size() is the number of processes")
    entry.says("nobody created the group: before", "creates none, so torchrun or srun started N independent jobs")


@symptom("two-launchers-at-once")
def two_launchers(entry):
    def both(rank):
        notebook()  # removes the launcher's variables and takes a port of its own, so that the small worlds do not meet
        with idist.Parallel(backend="gloo", nproc_per_node=2) as parallel:
            parallel.run(lambda local_rank: print("rank", idist.get_rank(), "of", idist.get_world_size()))

    outcomes = run_world(2, both, init=None)
    values(outcomes)
    text = "".join(out.output for out in outcomes)
    assert text.count("rank 0 of 2") == 2 and text.count("rank 1 of 2") == 2, text  # 4 processes, two worlds
    for out in outcomes:
        entry.quotes(out.output)
        assert "in 2 processes" in out.output and "Spawn function" in out.output
    entry.says("torchrun or srun started N processes and idist.Parallel got nproc_per_node as well")
    entry.says("you get several small worlds, a fight over one port, or a hang.")
    entry.says("the line Spawn function '…' in 2 processes stands in the log more than once")
    fix = 'idist.Parallel(backend="gloo")'

    def fixed(rank):
        with evaluate(fix) as parallel:
            parallel.run(lambda local_rank: print("rank", idist.get_rank(), "of", idist.get_world_size()))

    outcomes = run_world(2, fixed, init=None)
    values(outcomes)
    assert "rank 0 of 2" in outcomes[0].output and "- Run '" in outcomes[0].output
    assert f"in {len(outcomes)} processes" in outcomes[0].output
    entry.says(f"under a launcher {fix} without nproc_per_node; or plain python with it")
    entry.says(f"the log says - Run '…' in {len(outcomes)} processes, and idist.get_world_size() is the number")
    entry.says("so each of them starts more. No error is promised: you get several small worlds")
    entry.says("the number that the launcher started")


@symptom("the-module-torchdistributedlaunch-is-deprecated")
def old_launcher(entry):
    import torch.distributed.launch as old
    from torch.distributed.run import config_from_args

    def start():
        old.run = lambda args: print("started")
        old.main(["--nproc_per_node=2", "train.py"])

    out = run_serial(start)
    assert "started" in out.output
    entry.heading(" ".join(out.warnings))
    read = run_serial(lambda: config_from_args(old.parse_args(["--nproc_per_node=2", "train.py"]))[2])
    option = next(a for a in values([read])[0] if "local" in str(a)).split("=")[0]
    entry.says(f"the old launcher also hands your script {option}.")
    fix = 'idist.Parallel(backend="gloo")'

    def fixed(rank):
        with evaluate(fix) as parallel:
            parallel.run(lambda local_rank: print("local", local_rank, os.environ["LOCAL_RANK"]))

    outcomes = run_world(2, fixed, init=None)
    assert [f"local {r} {r}" in o.output for r, o in enumerate(outcomes)] == [True, True]
    assert not any(o.warnings for o in outcomes)
    entry.says("how the job is started")  # through the old module it warns, with the variables of torchrun not
    entry.says(
        f"torchrun, {fix} without nproc_per_node, and the local_rank that your function receives as first argument"
    )
    entry.says(
        '(or os.environ["LOCAL_RANK"]) in place of the option', "the warning is gone and local_rank counts from 0"
    )
    entry.says("a warning; the old launcher")


@symptom("ambiguous-option---nproc-could-match-")
def option_for_the_script(entry):
    from torch.distributed.run import parse_args

    out = run_serial(lambda: parse_args(["train.py", "--nproc", "2"]))
    assert out.exit_code == 2
    entry.heading(out.output)
    fix = "torchrun --nproc_per_node=2 -- train.py --nproc 2"
    args = values([run_serial(lambda: parse_args(fix.split()[1:]))])[0]
    assert (args.nproc_per_node, args.training_script_args) == ("2", ["--nproc", "2"])
    renamed = values([run_serial(lambda: parse_args(["train.py", "--processes", "2"]))])[0]
    assert renamed.training_script_args == ["--processes", "2"]
    entry.says(f"options of the script after --, as in {fix}, or under a name that torchrun does not know.")
    behind = values([run_serial(lambda: parse_args(["--nproc_per_node=2", "--", "train.py", "--nproc", "2"]))])[0]
    assert behind.training_script_args == args.training_script_args  # the same words in another order were refused
    entry.says("the order of the command line")
    entry.says("torchrun read an option that was meant for your script.", "Proof the script sees it")


@symptom(
    "local-rank-information-for-native-distributed-setting-will-be-initialized-using-a-heuristic-approach-based-on-the-"
    "hostnames"
)
def local_rank_guessed(entry):
    outcomes = run_world(2, lambda r: idist.get_local_rank(), init="torch", unset=("LOCAL_RANK",))
    assert values(outcomes) == [0, 1]
    for out in outcomes:
        entry.heading(" ".join(out.warnings))

    def wrong(rank):
        _NativeDistModel._compute_node_and_local_ranks = staticmethod(lambda rank, hostnames: (-1, 0))
        idist.get_rank()

    entry.quotes(raised(run_world(2, wrong, init="torch", unset=("LOCAL_RANK",))[0], "ValueError"))
    advice = outcomes[0].warnings[0].split("hostnames. ")[1]
    entry.says("you created the group yourself and LOCAL_RANK is not set, so Ignite gathers all host names and counts")
    entry.says(advice)
    entry.says("If that fails: Failed to correctly estimate local rank. Debugging info: local rank: …, node rank: "
               "…, hostnames: ….")
    entry.says("echo $LOCAL_RANK on a rank")
    assert shell("echo $LOCAL_RANK", LOCAL_RANK="3") == "3"
    fix = "idist.set_local_rank(local_rank)"

    def metric(rank):
        from ignite.metrics import Average

        average = Average()
        average.update(1.0)
        average.compute()

    assert all(o.warnings for o in run_world(2, metric, init="torch", unset=("LOCAL_RANK",)))
    entry.says("Metrics and handlers trigger it too.")
    outcomes = run_world(
        2, lambda r: (evaluate(fix, local_rank=1 - r), idist.get_local_rank())[1], init="torch", unset=("LOCAL_RANK",)
    )
    assert values(outcomes) == [1, 0] and not any(o.warnings for o in outcomes)
    entry.says(f"start with torchrun, or {fix} on every rank before anything else of Ignite")
    entry.says("no warning, and idist.get_local_rank() is right")
