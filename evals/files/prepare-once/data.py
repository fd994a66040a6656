import time
from pathlib import Path


def make(path="data.txt"):
    """Writes the data; must be called by one process only, and takes a while."""
    with open("made.log", "a") as log:
        log.write("made\n")
    with open(path, "w") as f:
        for number in range(100):
            f.write(f"{number}\n")
            if number % 20 == 0:
                f.flush()
                time.sleep(0.1)


def read(path="data.txt"):
    """Number of lines."""
    return len(Path(path).read_text().splitlines())
