"""torch.return_types: the tuples with names that max, min, sort and topk give.

values, indices = x.max(0); x.max(0).values
"""

from . import _C

globals().update(_C._return_types)
__all__ = sorted(_C._return_types)
