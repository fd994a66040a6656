import ignite.distributed as idist
import torch


def main(_local_rank):
    value = torch.tensor([float(idist.get_rank() + 1)])
    total = idist.all_reduce(value)
    if idist.get_rank() == 0:
        torch.save({"total": total}, "total.pt")
        print(f"total {total.item()}")


if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(main)
