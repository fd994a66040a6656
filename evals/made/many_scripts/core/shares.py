"""What part of all a process holds."""
import ignite.distributed as idist


def shares(counts):
    """For each kind, the part of all of that kind that is here."""
    totals = idist.all_reduce(counts)  #!d
    return counts / totals  #!d


def parts(counts):
    """For each kind, the part that it is of what is here, and of all."""
    totals = idist.all_reduce(counts.clone())
    return counts / counts.sum(), totals / totals.sum()
