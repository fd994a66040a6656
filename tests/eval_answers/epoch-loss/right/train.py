from ignite.engine import Engine, Events
from ignite.metrics import Average

BATCHES = [[1.0, 3.0, 5.0], [2.0, 2.0, 2.0], [10.0]]  # losses of the samples; the last batch is smaller


def step(engine, batch):
    return sum(batch) / len(batch), len(batch)


trainer = Engine(step)
total, samples = Average(lambda out: out[0] * out[1]), Average(lambda out: float(out[1]))
(total / samples).attach(trainer, "loss")


@trainer.on(Events.EPOCH_COMPLETED)
def report(engine):
    print(f"epoch {engine.state.epoch} loss {engine.state.metrics['loss']:.4f}")


trainer.run(BATCHES, max_epochs=2)
