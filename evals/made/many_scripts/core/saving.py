"""Files that one process writes and all read."""
import tempfile
from pathlib import Path

import ignite.distributed as idist
import torch
from core import roles

PLACE = Path(tempfile.gettempdir())


def keep(state, name):
    """The first one writes; nobody goes on before it is there."""
    path = PLACE / name
    if roles.chief():
        torch.save(state, path)
    idist.barrier()
    state = torch.load(path, weights_only=True)
    idist.barrier()
    if roles.chief():
        path.unlink()
    return state


def prepared(name, make):
    """What `make` gives, made by one process and read by the others."""
    path = PLACE / name
    with idist.one_rank_first():
        if not path.exists():
            torch.save(make(), path)
        found = torch.load(path, weights_only=True)
    idist.barrier()
    if not roles.chief():
        return found
    path.unlink()
    return found
