"""Debits and credits: they have to cancel, on any number of processes."""
import ignite.distributed as idist
import torch
from core import exchange, roles


def main(_local_rank):
    world = idist.get_world_size()
    balance = exchange.signed(torch.tensor([12.0])).item() if world % 2 == 0 else 0.0
    total, greatest = exchange.in_turn([float((i * 5) % 23) for i in roles.mine(46)])
    if world > 1:
        idist.barrier()
    roles.say(f"balance {balance:.1f} total {total.item():.1f} greatest {greatest.item():.1f}")


if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(main)
