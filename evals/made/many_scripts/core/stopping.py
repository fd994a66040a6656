"""When to end a run before its time."""
import ignite.distributed as idist
import torch


def when_low(goal):
    """Ends the run at the first loss below the goal."""

    def check(engine):
        loss = engine.state.output["loss"]
        if loss < goal:  #!e
            engine.terminate()  #!e

    return check


def when_told(told):
    """Ends the run when the first process is told to; the others learn it from that one."""

    def check(engine):
        stop = float(told(engine.state.iteration)) if idist.get_rank() == 0 else 0.0
        if idist.broadcast(torch.tensor([stop]), src=0).item():
            engine.terminate()

    return check


def when_flat(least):
    """Ends the run when the mean loss of all has not become smaller by as much."""
    last = float("inf")

    def check(engine):
        nonlocal last
        mean = idist.all_reduce(engine.state.output["loss"]) / idist.get_world_size()
        if last - mean < least:
            engine.terminate()
        last = mean

    return check
