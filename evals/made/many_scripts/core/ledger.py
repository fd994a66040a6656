"""Notes of one process, which the others do not see."""
from core import roles


class Ledger:
    """Numbers under names; `gather` and `all_reduce` go over the notes of this process alone."""

    def __init__(self):
        self.notes = {}

    def note(self, name, value):
        self.notes.setdefault(name, []).append(value)

    def gather(self):
        return sorted(self.notes.items())

    def all_reduce(self, name):
        return sum(self.notes[name])

    def report(self):
        """Lines for the first one's output."""
        if not roles.chief():
            return
        for name, values in self.gather():
            print(f"{name}: {len(values)} notes, {self.all_reduce(name):.2f} together", flush=True)
