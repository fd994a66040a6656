import ignite.distributed as idist
import torch

PER_PROCESS = 8


def main(_local_rank):
    data = torch.arange(64)
    loader = idist.auto_dataloader(torch.utils.data.TensorDataset(data), batch_size=PER_PROCESS, shuffle=False)
    torch.save([batch[0] for batch in loader], f"batches-{idist.get_rank()}.pt")


if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(main)
