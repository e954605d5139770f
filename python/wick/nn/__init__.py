"""Neural network layers, losses, initialisation, functions."""

from . import functional, init, modules, utils  # noqa: F401
from .modules import *  # noqa: F403
from .modules.module import Module  # noqa: F401
from .parameter import Buffer, Parameter  # noqa: F401

# What PyTorch's package has under its modules' names, and not the modules themselves.
_UNSHOWN = {"LazyModuleMixin"}


def __getattr__(name):
    if name in modules._FILE_OF and name not in _UNSHOWN:
        value = globals()[name] = getattr(modules, name)
        return value
    if name in ("UninitializedBuffer", "UninitializedParameter"):
        from . import uninitialized

        return getattr(uninitialized, name)
    if name == "__all__":  # of `from wick.nn import *`: the names that wait, too
        return [n for n in __dir__() if not n.startswith("_")]
    from .._names import missing

    raise missing(__name__, name)


def __dir__():
    return sorted({*globals(), *modules._FILE_OF, "UninitializedBuffer", "UninitializedParameter"} - _UNSHOWN)
