"""Neural network layers, losses, initialisation, functions."""

from .._names import late as _late
from . import functional, init, modules, utils  # noqa: F401
from .modules import *  # noqa: F403
from .modules.module import Module  # noqa: F401
from .parameter import Buffer, Parameter  # noqa: F401

# What PyTorch's package has under its modules' names, and not the modules themselves.
_UNSHOWN = {"LazyModuleMixin"}
_FILE_OF = {name: f"modules.{file}" for name, file in modules._FILE_OF.items() if name not in _UNSHOWN} | {
    "UninitializedBuffer": "uninitialized",
    "UninitializedParameter": "uninitialized",
    "DataParallel": "parallel",
    "DistributedDataParallel": "parallel.distributed",
}
_late_names = _late(__name__, ("_reduction", "attention", "parallel", "quantized"), _FILE_OF)


def __getattr__(name):
    if name == "__all__":  # of `from wick.nn import *`: the names that wait, too
        return [n for n in __dir__() if not n.startswith("_")]
    return _late_names(name)


def __dir__():
    return sorted({*globals(), *_FILE_OF} - _UNSHOWN)
