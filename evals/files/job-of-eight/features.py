import hashlib

import shelf
import torch

SALT = "autumn-27"


def key_of(rank, step):
    return hashlib.blake2b(f"{SALT}/{rank}/{step}".encode(), digest_size=8).hexdigest()[:5]


def of(rank, step):
    """A batch of two rows for a step of a rank."""
    rows = shelf.rows(key_of(rank, step))
    return torch.tensor(rows, dtype=torch.float32).reshape(2, 4) / 256
