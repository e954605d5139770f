"""torch.return_types: the tuples with names that max, min, sort and topk give.

values, indices = x.max(0); x.max(0).values
"""

from collections import namedtuple

from . import _C
from ._names import getter as _getter

globals().update(_C._return_types)
__all__ = sorted(_C._return_types)


def _repr(self):
    fields = "".join(f",\n{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
    return f"torch.return_types.{type(self).__name__}({fields[1:]})"


def _named(kind, fields):
    """A tuple with names, as PyTorch prints it."""
    made = namedtuple(kind, fields, module=__name__)
    return type(kind, (made,), {"__slots__": (), "__repr__": _repr, "__module__": __name__})


__getattr__ = _getter(__name__)
