"""Proofs: GPU and NCCL, Horovod and XLA. What needs the device is bound to the installed source or marked."""

from __future__ import annotations

import ignite.distributed as idist
import torch
import torch.distributed as dist
from ignite.distributed import auto
from ignite.distributed.comp_models.native import _NativeDistModel
from support.world import run_serial, run_world, values
from torch import nn

from .troubleshooting_tools import evaluate, in_source, pretend_cuda, python_c, raised, symptom


@symptom("nccl-backend-is-required-but-no-cuda-capable-devices")
def nccl_without_gpu(entry):
    def program():
        _NativeDistModel.available_backends = ("nccl", "gloo")
        torch.cuda.is_available = lambda: False
        idist.initialize("nccl")

    entry.heading(raised(run_serial(program), "RuntimeError"))
    check = "import torch; print(torch.cuda.is_available(), torch.cuda.device_count())"
    printed = python_c(check)
    assert printed.split()[0] == str(torch.cuda.is_available())
    entry.says(
        "torch has nccl, but this process sees no GPU.", f'python -c "{check}", nvidia-smi, CUDA_VISIBLE_DEVICES.'
    )
    fix = 'backend="gloo"'
    values(run_world(1, lambda rank: evaluate(f"idist.Parallel({fix}).__enter__()") and idist.finalize(), init=None))
    entry.says(f"run where a GPU is, or {fix}.", f"the check begins with {True}.")
    entry.says("(Run here by pretending that nccl is built in.)")


@symptom("current-device-index-is-less-than-current-local-rank-please-make-sure-to-call-torchcudaset_devicelocal_rank")
def no_device_per_rank(entry):
    def program(rank, current=0):
        pretend_cuda()
        torch.cuda.current_device = lambda: current
        return str(idist.device())

    outcomes = run_world(2, program, init="torch")
    assert values(outcomes) == ["cuda:0", "cuda:0"] and not outcomes[0].warnings
    entry.heading(outcomes[1].warnings[0])
    in_source("horovod.py", "Current device index is less than current local rank.")
    entry.says("your own nccl group without a device per rank: all ranks would use GPU 0.")
    fixed = run_world(2, lambda rank: program(rank, current=rank), init="torch")
    assert values(fixed) == ["cuda:0", "cuda:1"] and not fixed[1].warnings
    entry.says(
        "torch.cuda.current_device() per rank", "torch.cuda.set_device(local_rank) before any Ignite or metric call"
    )

    def initialised(rank):
        pretend_cuda()
        torch.cuda.set_device = lambda index: print("device", index)
        idist.initialize("gloo")

    outcomes = run_world(2, initialised, init=None)
    assert [f"device {rank}" in out.output for rank, out in enumerate(outcomes)] == [True, True]
    entry.says("or let idist.initialize do it", "no warning")
    entry.says("(Run here with a pretended GPU.)")


@symptom("apply-torch-dataparallel-on-model")
def data_parallel(entry):
    def fake(wrapper):
        pretend_cuda()
        model = nn.Linear(1, 1)
        model.to = lambda device: model
        setattr(nn.parallel, wrapper, lambda module, **kwargs: module)
        idist.auto_model(model)
        return idist.get_world_size()

    out = run_serial(lambda: fake("DataParallel"))
    entry.heading(out.output)
    entry.says(
        "idist.auto_model wraps in DataParallel, which is slow.", f"idist.get_world_size() is {values([out])[0]}."
    )
    outcomes = run_world(2, lambda rank: fake("DistributedDataParallel"))
    entry.quotes(outcomes[0].output)
    line = "Apply torch DistributedDataParallel on model, device id: 0"
    assert line in outcomes[0].output
    fix = 'idist.Parallel(backend="nccl")'
    text = f"torchrun and {fix}; or one GPU: CUDA_VISIBLE_DEVICES=0."
    entry.says(text, f"the log says {line}.")
    if "nccl" not in idist.available_backends():
        assert "Unknown backend 'nccl'" in raised(run_serial(lambda: evaluate(fix)), "ValueError")
    entry.says(
        "one process, several GPUs, no group:", "one process per GPU: torchrun", "(Run here with pretended GPUs.)"
    )


@symptom("duplicate-gpu-detected--rank--and-rank--both-on-cuda-device-")
def duplicate_gpu(entry):
    entry.not_verified(
        "more processes than GPUs on the node, or no torch.cuda.set_device. Check nvidia-smi -L.",
        "pytorch/pytorch#47885",
    )
    entry.not_verified("Fix as many processes as GPUs. Proof the group passes a barrier.", "pytorch/pytorch#47885")
    entry.not_verified("(not verified here: pytorch/pytorch#47885.)", "pytorch/pytorch#47885")


@symptom("watchdog-caught-collective-operation-timeout")
def watchdog(entry):
    entry.not_verified(
        "nccl's form of Timed out waiting: a rank did not come; often rank 0 evaluates or prepares data longer than "
        "the timeout.",
        "pytorch/pytorch#54059",
    )
    code = "timeout=timedelta(hours=1)"
    values(run_world(1, lambda rank: evaluate(f"idist.initialize('gloo', {code})"), init=None))
    entry.says(f"a longer timeout, {code}, only for a wait that is meant.")
    entry.not_verified("It hangs, with the stack of the ranks that do not report it. Fix the same collectives on all "
                       "ranks;",
                       "pytorch/pytorch#54059")
    entry.not_verified("Proof the step passes.", "pytorch/pytorch#54059")
    entry.not_verified("(not verified here: pytorch/pytorch#54059.)", "pytorch/pytorch#54059")


@symptom("hangs-at-the-first-collective-with-the-gpus-at-full-load")
def peer_to_peer(entry):
    entry.not_verified(
        "NCCL_DEBUG=INFO, then the same job with NCCL_P2P_DISABLE=1. Fix if that helps, turn off IOMMU or ACS, or "
        "keep the "
        "variable.",
        "NVIDIA/nccl#257",
    )
    for text in ("every rank is in the same collective.",
                 "the GPUs cannot talk peer to peer (virtual machines, some PCIe boards)."):
        entry.not_verified(text, "NVIDIA/nccl#257")
    assert values(run_world(2, lambda rank: evaluate("idist.all_reduce(1)"))) == [2, 2]
    entry.says("idist.all_reduce(1) returns.")
    entry.not_verified("(not verified here: NVIDIA/nccl#257.)", "NVIDIA/nccl#257")


@symptom("unknown-backend-horovod")
def horovod_missing(entry):
    if not idist.has_hvd_support:
        entry.heading(raised(run_serial(lambda: idist.Parallel("horovod")), "ValueError"))
        check = "import horovod.torch"
        assert run_serial(lambda: exec(check)).error == "ModuleNotFoundError"
        entry.says(f"{check} fails, so Ignite does not offer it.", f'python -c "{check}".')
    entry.not_verified(
        "build it for this torch; a failure with C++17 or later compatible compiler is required to use PyTorch needs "
        "CMAKE_CXX_STANDARD 17 in its sources (not verified here: horovod 0.28.1).",
        "horovod 0.28.1 built outside continuous integration",
    )
    assert isinstance(idist.has_hvd_support, bool)
    others = [b for b in ("gloo", "nccl") if b in dist.Backend.backend_list]
    entry.says(f"Otherwise use {' or '.join(others)}.")
    entry.says(f"idist.has_hvd_support is {True}.")


@symptom("can-not-re-initialize-horovod-if-it-is-already-initialized")
def horovod_twice(entry):
    source = in_source("horovod.py", entry.entry.heading)
    entry.not_verified(
        "hvd.init() ran in a process that idist.spawn was about to make a rank; "
        'idist.initialize("horovod") takes an initialized Horovod.',
        f"{source}; tests/horovod",
    )
    entry.not_verified('your code for hvd.init. Fix leave it to idist.initialize("horovod"). Proof no error.', source)
    entry.not_verified(f"(not verified here: {source.split(':')[0]}.)", source)


@symptom("for-multi-node-configuration-please-set-hosts-argument-instead-according-to-horovodrun-api")
def horovod_nodes(entry):
    source = in_source("horovod.py", entry.entry.heading)
    entry.not_verified("nnodes or node_rank was given with Horovod. Check the arguments of idist.spawn.", source)
    entry.not_verified('hosts="node0:4,node1:4" and nproc_per_node as the number of all processes. Proof all start.',
                       source)
    entry.not_verified(f"(not verified here: {source.split(':')[0]}.)", source)


@symptom("all_reduce-with-group-for-horovod-is-not-implemented")
def horovod_groups(entry):
    source = in_source("horovod.py", entry.entry.heading)
    other = "all_gather with group for horovod is not implemented"
    in_source("horovod.py", other)
    in_source("horovod.py", "Argument group should be list of int or hvd.ProcessSet, got ")
    operations = [op for op in ("SUM", "AVERAGE", "ADASUM", "MIN", "MAX", "PRODUCT") if in_source("horovod.py", op)]
    entry.not_verified(f"what it says; likewise {other} for objects.", source)
    entry.not_verified(
        "Tensors can be gathered over a group, given as the text Argument group should be list of int or "
        "hvd.ProcessSet, got …, group=… names it.",
        source,
    )
    entry.not_verified(
        f"Operations there are {', '.join(operations)}; ADASUM needs a Horovod with MPI.", f"{source}; tests/horovod"
    )
    entry.not_verified("group=. Fix gather tensors and reduce by hand. Proof no error.", source)
    entry.not_verified(f"(not verified here: {source.split(':')[0]}.)", source)


@symptom("unknown-backend-xla-tpu")
def xla_missing(entry):
    if not idist.has_xla_support:
        entry.heading(raised(run_serial(lambda: idist.Parallel("xla-tpu")), "ValueError"))
        check = "import torch_xla"
        assert run_serial(lambda: exec(check)).error == "ModuleNotFoundError"
        entry.says(f"{check} fails.", f'python -c "{check}".')
    assert isinstance(idist.has_xla_support, bool)
    entry.says("install the torch_xla of the same release as torch.", f"idist.has_xla_support is {True}.")


@symptom("module-torch_xlacorexla_model-has-no-attribute-xrt_world_size")
def xla_too_new(entry):
    from pathlib import Path

    from ignite.distributed import comp_models

    name = "comp_models/xla.py"
    text = (Path(comp_models.__file__).parents[1] / name).read_text()
    assert "xm.xrt_world_size()" in text and "xm.optimizer_step(" in Path(auto.__file__).read_text()
    seen = "torch_xla 2.9.0 and 2.6.1 on CPU, outside continuous integration"
    entry.not_verified(
        f"torch_xla is too new for this Ignite, whose {name} still calls it. Check pip show torch_xla.", name
    )
    entry.not_verified("torch and torch_xla 2.6, the newest that was seen to work; idist.auto_optim fails there "
        "with super(type, obj): obj must be an instance or subtype of type, so call xm.optimizer_step yourself", seen
    )
    entry.not_verified("Proof idist.get_world_size() returns.", seen)
    entry.not_verified(f"(not verified here: {name}, {seen.split(',')[0]}.)", seen)


@symptom("all_gather-on-object-is-not-implemented-for-xla")
def xla_objects(entry):
    source = in_source("xla.py", entry.entry.heading)
    group = "Argument group should be list of int"
    in_source("xla.py", group)
    entry.not_verified("Check the type. Fix gather tensors. Proof no error.", source)
    entry.not_verified(f"only tensors, numbers and str can be gathered there; a group must be a list: {group}.", source)
    entry.not_verified(f"(not verified here: {source.split(':')[0]}.)", source)


@symptom("found-incompatible-options-xla-support-and-pin_memory-args-equal-true")
def xla_pin_memory(entry):
    def program(pin):
        auto.idist.has_xla_support = True
        auto.idist_xla.XLA_TPU = "xla-tpu"
        auto.idist.backend = lambda: "xla-tpu"
        return idist.auto_dataloader([1], **pin).pin_memory

    out = run_serial(lambda: program({"pin_memory": True}))
    assert values([out]) == [False]
    entry.heading(out.warnings[0])
    entry.quotes(out.warnings[0])
    entry.says(out.warnings[0].split("True. ")[1], "the call of idist.auto_dataloader.", "drop pin_memory=.")
    assert not run_serial(lambda: program({})).warnings
    entry.says("no warning")
    entry.says("a warning; Ignite goes on:", "(Run here by pretending that the backend is XLA.)")
