"""torch.distributed.optim: optimizers over processes; they need process groups."""

from ..._names import cannot_be_made
from ...distributed import _WHY

ZeroRedundancyOptimizer = cannot_be_made("torch.distributed.optim.ZeroRedundancyOptimizer", _WHY)
DistributedOptimizer = cannot_be_made("torch.distributed.optim.DistributedOptimizer", _WHY)
