from ignite.engine import Engine, Events
from ignite.handlers import EarlyStopping

LOSSES = [1.0, 0.8, 0.6, 0.65, 0.7, 0.72, 0.5, 0.4, 0.3, 0.2]
trainer, evaluator = Engine(lambda e, b: None), Engine(lambda e, b: None)


@trainer.on(Events.EPOCH_COMPLETED)
def evaluate(engine):
    evaluator.run([0])


@evaluator.on(Events.COMPLETED)
def measure(engine):
    engine.state.metrics["loss"] = LOSSES[trainer.state.epoch - 1]


stopper = EarlyStopping(patience=3, score_function=lambda e: e.state.metrics["loss"], trainer=trainer)
evaluator.add_event_handler(Events.COMPLETED, stopper)
trainer.run([0], max_epochs=len(LOSSES))
print("stopped after epoch", trainer.state.epoch)
