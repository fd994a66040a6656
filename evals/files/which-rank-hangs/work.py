import hashlib
import queue

_inbox: queue.Queue = queue.Queue()


def prepare(rank: int, step: int) -> float:
    key = hashlib.sha256(f"{rank}/{step}/batch".encode()).hexdigest()
    if key.startswith("4"):
        return float(load(key))
    return float(int(key[:4], 16) % 7)


def load(key: str) -> int:
    item = _inbox.get()
    return len(item) + len(key)
