"""Sums and lists over all processes."""
import ignite.distributed as idist
import torch


def both_ways(total, lengths):
    """The sum and the list; even and odd processes begin with another one, so that not all send the same at once."""
    if idist.get_rank() % 2:
        everyone = idist.all_gather(lengths)  #!f
        total = idist.all_reduce(total)  #!f
    else:
        total = idist.all_reduce(total)  #!f
        everyone = idist.all_gather(lengths)  #!f
    return total, everyone


def signed(value):
    """The sum, to which even processes add and from which odd ones take away."""
    if idist.get_rank() % 2:
        total = idist.all_reduce(-value)
    else:
        total = idist.all_reduce(value)
    return total


def in_turn(values):
    """The sum and the greatest, one after the other."""
    total = idist.all_reduce(torch.tensor(values).sum())
    greatest = idist.all_reduce(torch.tensor(values).max(), op="MAX")
    return total, greatest
