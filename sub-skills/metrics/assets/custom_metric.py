"""A metric of your own that is right on one process and on many: the accuracy of the class that is recognised worst.

Copy the class and change what is counted. What makes it right on several ranks, with unequal numbers of samples and
with none at all on some rank:

- `reset` makes tensors of their final shape and dtype, so that a rank without samples has zeros that fit;
- they are counts, which may be added up, and `sync_all_reduce` names every one of them; the ratio is taken afterwards;
- `compute` decides on the reduced counts whether there is a value, so that no rank raises alone.

    python custom_metric.py                                          one process
    torchrun --standalone --nproc_per_node=2 custom_metric.py        two
"""

from __future__ import annotations

from collections.abc import Callable

import ignite.distributed as idist
import torch
from ignite.engine import Engine
from ignite.exceptions import NotComputableError
from ignite.metrics import Metric
from ignite.metrics.metric import reinit__is_reduced, sync_all_reduce


class WorstClassAccuracy(Metric):
    """The lowest share of right answers among the classes that occur.

    Args:
        num_classes: how many classes there are.
        output_transform: from `engine.state.output` to `(y_pred, y)`: scores (N, C) and classes (N,).
        device: where the counts are kept.

    Raises:
        ValueError: scores and classes do not fit, or a class is not below `num_classes`.
        NotComputableError: no rank has seen a sample.
    """

    _state_dict_all_req_keys = ("_correct", "_seen")  # what a checkpoint keeps: every attribute that `update` changes

    def __init__(
        self,
        num_classes: int,
        output_transform: Callable = lambda x: x,
        device: str | torch.device = "cpu",
        skip_unrolling: bool = False,
    ):
        self.num_classes = num_classes  # before super().__init__, which calls reset
        super().__init__(output_transform=output_transform, device=device, skip_unrolling=skip_unrolling)

    @reinit__is_reduced
    def reset(self) -> None:
        self._correct = torch.zeros(self.num_classes, dtype=torch.int64, device=self._device)
        self._seen = torch.zeros(self.num_classes, dtype=torch.int64, device=self._device)

    @reinit__is_reduced
    def update(self, output: tuple[torch.Tensor, torch.Tensor]) -> None:
        y_pred, y = output[0].detach(), output[1].detach()
        if y_pred.ndim != 2 or y_pred.shape != (len(y), self.num_classes):
            raise ValueError(f"expected scores ({len(y)}, {self.num_classes}), got {tuple(y_pred.shape)}")
        if len(y) and not 0 <= int(y.min()) <= int(y.max()) < self.num_classes:
            raise ValueError(
                f"classes should be between 0 and {self.num_classes - 1}, got {int(y.min())}…{int(y.max())}"
            )
        right = y[y_pred.argmax(1) == y]
        # new tensors, not +=: a state_dict taken before would change along
        self._correct = self._correct + torch.bincount(right, minlength=self.num_classes).to(self._device)
        self._seen = self._seen + torch.bincount(y, minlength=self.num_classes).to(self._device)

    @sync_all_reduce("_correct", "_seen")
    def compute(self) -> float:
        occurs = self._seen > 0
        if not occurs.any():
            raise NotComputableError("WorstClassAccuracy must have at least one example before it can be computed.")
        return (self._correct[occurs] / self._seen[occurs]).min().item()


def main(local_rank: int) -> None:
    """7 samples of 3 classes, shared out unequally; the second and the last of class 1 are taken for class 2."""
    y = torch.tensor([0, 1, 2, 0, 1, 2, 1])
    taken_for = torch.tensor([0, 2, 2, 0, 1, 2, 2])
    own = slice(idist.get_rank(), None, idist.get_world_size())
    batches = zip(torch.nn.functional.one_hot(taken_for[own], 3).float().split(2), y[own].split(2))
    evaluator = Engine(lambda engine, batch: batch)
    WorstClassAccuracy(3).attach(evaluator, "worst")
    value = evaluator.run(list(batches)).metrics["worst"]  # on every rank
    if idist.get_rank() == 0:
        print(f"worst class: {value:.4f} on {idist.get_world_size()} process(es)")


if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(main)
