"""torch.functional: functions of the package under the module that PyTorch has them in."""

from . import _tensor as _functions
from ._names import missing as _missing

_NAMES = frozenset("broadcast_shapes norm split".split())


def __getattr__(name):
    import wick

    if name in _NAMES and hasattr(wick, name):
        return getattr(wick, name)
    if not name.startswith("__") and hasattr(_functions, name):
        return getattr(_functions, name)
    raise _missing(__name__, name)
