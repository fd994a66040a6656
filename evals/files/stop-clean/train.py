from ignite.engine import Engine, Events

seen = []
trainer = Engine(lambda engine, batch: seen.append((engine.state.epoch, batch)))


@trainer.on(Events.EPOCH_COMPLETED)
def validate(engine):
    print("validated epoch", engine.state.epoch)


@trainer.on(Events.COMPLETED)
def finish(engine):
    print("finished after", engine.state.iteration)


trainer.run(range(6), max_epochs=3)
print("last", seen[-1])
