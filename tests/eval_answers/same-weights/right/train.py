import data
import ignite.distributed as idist
import torch
from ignite.engine import create_supervised_trainer


def main(_local_rank):
    n, rank = idist.get_world_size(), idist.get_rank()
    bare = data.model()
    model = idist.auto_model(bare)
    optimizer = idist.auto_optim(torch.optim.SGD(model.parameters(), lr=0.1))
    x, y = data.tensors()
    size = 16 // n
    batches = [(x[i + rank * size:i + (rank + 1) * size], y[i + rank * size:i + (rank + 1) * size])
               for i in range(0, 64, 16)]
    create_supervised_trainer(model, optimizer, torch.nn.functional.mse_loss).run(batches, max_epochs=2)
    if rank == 0:
        torch.save(bare.state_dict(), "weights.pt")


if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(main)
