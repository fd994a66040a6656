import ignite.distributed as idist
import torch
from ignite.exceptions import NotComputableError
from ignite.metrics import Metric
from ignite.metrics.metric import reinit__is_reduced


class WorstError(Metric):
    _state_dict_all_req_keys = ("_worst",)

    @reinit__is_reduced
    def reset(self):
        self._worst = torch.tensor(-1.0, device=self._device)

    @reinit__is_reduced
    def update(self, output):
        y_pred, y = output
        worst = idist.all_reduce((y_pred - y).abs().max().to(self._device), op="MAX")
        self._worst = torch.maximum(self._worst, worst)

    def compute(self):
        if self._worst < 0:
            raise NotComputableError("WorstError needs at least one example")
        return self._worst.item()
