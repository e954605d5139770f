"""torch._logging: which channels of WICK_LOGS print, set by the program. TORCH_LOGS sets them from outside."""

import logging

from . import _C
from ._names import getter as _getter

__all__ = ["set_logs"]


def set_logs(*, modules=None, **channels):
    """Channels by PyTorch's names or by those of WICK_LOGS, each True, False or a level of `logging`. Names that have
    nothing to show here are accepted.

        set_logs(recompiles=True, graph_breaks=True)
    """
    for name, value in channels.items():
        on = value <= logging.INFO if type(value) is int else bool(value)
        _C._set_log(name, on)


__getattr__ = _getter(__name__)
