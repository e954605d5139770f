"""Layers over several devices: DataParallel and its parts; DistributedDataParallel, which needs process groups."""

from ..._names import late as _late
from .data_parallel import DataParallel, data_parallel
from .distributed import DistributedDataParallel
from .parallel_apply import parallel_apply
from .replicate import replicate
from .scatter_gather import gather, scatter

__all__ = [
    "DataParallel",
    "DistributedDataParallel",
    "data_parallel",
    "gather",
    "parallel_apply",
    "replicate",
    "scatter",
]

__getattr__ = _late(__name__, ("_functions", "comm", "scatter_gather"))
