"""torch.cuda.jiterator: elementwise kernels of C++ text, which wick has no compiler for; its own are torch.compile's and wick.tile's."""

from .._names import cannot as _cannot
from .._names import getter as _getter

__all__ = []

_WHY = "there is no compiler of C++ for the device"
_create_jit_fn = _cannot("torch.cuda.jiterator._create_jit_fn", _WHY)
_create_multi_output_jit_fn = _cannot("torch.cuda.jiterator._create_multi_output_jit_fn", _WHY)

__getattr__ = _getter(__name__)
