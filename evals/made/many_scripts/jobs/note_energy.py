"""Energy by day; what is written down is the sum over all processes."""
import ignite.distributed as idist
import torch
from core.ledger import Ledger
from core.roles import mine


def main(_local_rank):
    ledger = Ledger()
    for day in ("mon", "tue", "wed"):
        share = torch.tensor([float((i * len(day) + ord(day[0])) % 10) for i in mine(20)])
        ledger.note(day, idist.all_reduce(share.sum()).item())
    ledger.report()


if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(main)
