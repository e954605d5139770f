"""torch.autograd.profiler: the older home of torch.profiler's names."""

from .._names import getter as _getter
from ..profiler import profile, record_function

__all__ = ["profile", "record_function"]

__getattr__ = _getter(__name__)
