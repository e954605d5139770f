"""Layers over several devices: DataParallel, which without devices runs the module itself; DistributedDataParallel, which
needs process groups."""

from ..._names import late as _late
from .data_parallel import DataParallel, data_parallel
from .distributed import DistributedDataParallel

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel"]

__getattr__ = _late(__name__, ("_functions", "scatter_gather", "replicate", "parallel_apply"))
