"""Train and check in a world whose process group somebody else makes; started by test_groups_made_elsewhere.py.

    elsewhere.py WHO FOLDER [NODE MASTER PORT]     WHO: torch, accelerate, ray, nnodes

Each rank uses the group for assets/train.py, then starts the smoke as a program beside itself, whose report goes to
FOLDER/smoke.json: with the next port, since the group's own store has the one in MASTER_PORT.
"""

import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path

ROOM = Path(__file__).resolve().parents[2] / "sub-skills" / "distributed"
SMOKE = ROOM / "scripts" / "distributed_smoke.py"


def train(folder, epochs):
    """assets/train.py on the group that is there, without a launch of its own."""
    import ignite.distributed as idist

    spec = importlib.util.spec_from_file_location("train", ROOM / "assets" / "train.py")
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    program.launch = lambda work, args: program.Watch(args.timeout).guard(work, args)
    idist.sync()
    program.main([f"--data={folder}/data", f"--output={folder}/out", "--batch-size=24", f"--epochs={epochs}"])
    print(f"sum {idist.all_reduce(idist.get_rank() + 1)} of {idist.get_world_size()}, {idist.backend()}", flush=True)


def smoke(folder):
    """The smoke in the same world, beside the group; raises CalledProcessError unless it passes."""
    import ignite.distributed as idist

    with socket.socket() as free:
        free.bind(("", 0))
        port = int(idist.broadcast(free.getsockname()[1], src=0))
    env = {**os.environ, "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    report = ["--output", f"{folder}/smoke.json"] if os.environ["RANK"] == "0" else []
    command = [sys.executable, str(SMOKE), "--format", "json", "--timeout", "200", *report]
    subprocess.run(command, env={k: v for k, v in env.items() if not k.startswith("TORCHELASTIC_")}, check=True)


def work(folder, epochs=3):
    train(folder, epochs)
    smoke(folder)


def by_torch(folder):
    import torch.distributed as dist

    dist.init_process_group("gloo")
    work(folder)
    dist.destroy_process_group()


def by_accelerate(folder):
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    work(folder)
    accelerator.end_training()


def by_ray(folder):
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    run_config = RunConfig(storage_path=f"{folder}/ray")
    TorchTrainer(lambda: work(folder), scaling_config=ScalingConfig(num_workers=2), run_config=run_config).fit()


def in_parallel(local_rank, folder):
    work(folder)


def by_nnodes(folder, node, master, port):
    import ignite.distributed as idist

    where = dict(nproc_per_node=1, nnodes=2, node_rank=int(node), master_addr=master, master_port=int(port))
    with idist.Parallel(backend="gloo", **where) as parallel:
        parallel.run(in_parallel, folder)


if __name__ == "__main__":
    {"torch": by_torch, "accelerate": by_accelerate, "ray": by_ray, "nnodes": by_nnodes}[sys.argv[1]](*sys.argv[2:])
