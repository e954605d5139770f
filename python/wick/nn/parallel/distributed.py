"""DistributedDataParallel: one module in several processes."""

from ..._names import cannot_be_made
from ..modules.module import Module

__all__ = ["DistributedDataParallel"]

DistributedDataParallel = cannot_be_made(
    "torch.nn.parallel.DistributedDataParallel", "wick has no process groups yet", (Module,)
)
