"""What test_horovod.py asks of Horovod, on each rank under horovodrun; rank 0 prints it as SEEN and JSON."""

import json

import ignite.distributed as idist
import torch
from ignite.distributed.comp_models.horovod import _HorovodDistModel


def error_of(function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    return "no error"


idist.initialize("horovod")
seen = {"operations": {}, "backends": idist.available_backends()}
seen["nnodes"] = error_of(idist.spawn, "horovod", print, (), nproc_per_node=1, nnodes=2)
for op in ("SUM", "AVERAGE", "ADASUM", "MIN", "MAX", "PRODUCT", "AND", "OR"):
    seen["operations"][op] = error_of(idist.all_reduce, torch.ones(2), op)
x = torch.ones(2)
seen["in_place"] = idist.all_reduce(x) is x
seen["group"] = error_of(idist.all_reduce, x, group=[0])
seen["objects"] = error_of(idist.all_gather, {"rank": 0}, group=[0])
seen["no_group"] = error_of(idist.all_gather, x, group="text")
model = torch.nn.Linear(1, 1, bias=False)
torch.nn.init.constant_(model.weight, float(idist.get_rank() + 1))
adapted = idist.auto_model(model)
seen["model"], seen["weights"] = type(adapted).__name__, idist.all_gather(adapted.weight.item())
optimizer = idist.auto_optim(torch.optim.SGD(adapted.parameters(), lr=0.1))
seen["optimizer"] = "DistributedOptimizer" if hasattr(optimizer, "synchronize") else type(optimizer).__name__
# idist.initialize itself takes a Horovod that is initialized; only the way into a spawned process refuses it
assert error_of(idist.initialize, "horovod") == "no error"
seen["again"] = error_of(_HorovodDistModel.create_from_backend, "horovod")
if idist.get_rank() == 0:
    print("SEEN", json.dumps(seen), flush=True)
idist.barrier()
idist.finalize()
