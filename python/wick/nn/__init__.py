"""Neural network layers, losses, initialisation, functions."""

from .._names import late as _late
from . import functional, init, modules, utils  # noqa: F401
from .modules import *  # noqa: F403
from .modules.module import Module  # noqa: F401
from .parameter import Buffer, Parameter, UninitializedParameter  # noqa: F401

__getattr__ = _late(
    __name__,
    ("_reduction", "attention", "parallel", "quantized"),
    {"DataParallel": "parallel", "DistributedDataParallel": "parallel.distributed"},
)
