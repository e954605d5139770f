"""torch.return_types: the tuples with names that max, min, sort and topk give.

values, indices = x.max(0); x.max(0).values
"""

from . import _C
from ._names import getter as _getter

globals().update(_C._return_types)
__all__ = sorted(_C._return_types)


__getattr__ = _getter(__name__)
