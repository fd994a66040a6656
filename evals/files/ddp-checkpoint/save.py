import ignite.distributed as idist
import torch
from ignite.engine import Engine, Events
from ignite.handlers import Checkpoint, DiskSaver


def main(_local_rank):
    torch.manual_seed(0)
    model = idist.auto_model(torch.nn.Linear(2, 1))
    optimizer = idist.auto_optim(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))

    def step(engine, batch):
        optimizer.zero_grad()
        model(torch.ones(3, 2)).mean().backward()
        optimizer.step()

    trainer = Engine(step)
    if idist.get_rank() == 0:
        saver = Checkpoint({"model": model, "optimizer": optimizer}, DiskSaver("saved", require_empty=False))
        trainer.add_event_handler(Events.COMPLETED, saver)
    trainer.run([0, 1], max_epochs=1)
    torch.save(dict(model.state_dict()), f"raw-{idist.get_rank()}.pt")


if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(main)
