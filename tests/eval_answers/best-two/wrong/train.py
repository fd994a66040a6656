import torch
from ignite.engine import Engine, Events
from ignite.handlers import ModelCheckpoint

SCORES = [0.1, 0.7, 0.3, 0.9, 0.5]
model = torch.nn.Linear(1, 1)
trainer, evaluator = Engine(lambda e, b: None), Engine(lambda e, b: None)


saver = ModelCheckpoint("best", "best", n_saved=2, require_empty=False,
                        global_step_transform=lambda *_: trainer.state.epoch)


@trainer.on(Events.EPOCH_COMPLETED)
def evaluate(engine):
    torch.nn.init.constant_(model.weight, float(engine.state.epoch))
    evaluator.run([0])
    evaluator.state.metrics["accuracy"] = SCORES[engine.state.epoch - 1]
    saver(evaluator, {"model": model})


trainer.run([0], max_epochs=len(SCORES))
