from ignite.engine import Engine, Events

trainer = Engine(lambda engine, batch: None)
trainer.add_event_handler(Events.STARTED, lambda: print("start"))
trainer.add_event_handler(Events.STARTED, lambda: print("warm-up"))
trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda engine: print("epoch", engine.state.epoch))
trainer.add_event_handler(
    Events.EPOCH_COMPLETED(every=2), lambda engine: print("validate", engine.state.epoch)
)
trainer.add_event_handler(Events.COMPLETED, lambda: print("end"))
trainer.run([0], max_epochs=5)
