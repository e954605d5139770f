"""torch.backends.cudnn: settings that programs make; there is no cuDNN."""

import sys

from .._names import getter as _getter
from ._settings import flags_of

enabled, benchmark, deterministic, allow_tf32 = True, False, False, True
benchmark_limit, fp32_precision = None, "none"
__version__ = None
CUDNN_TENSOR_DTYPES = set()


def version():
    """cuDNN's version: None."""
    return None


def is_available():
    """Whether there is a cuDNN: False."""
    return False


def is_acceptable(tensor):
    """Whether cuDNN takes the tensor: False."""
    return False


def set_flags(_enabled=None, _benchmark=None, _benchmark_limit=None, _deterministic=None, _allow_tf32=None):
    """Sets flags and gives what they were."""
    global enabled, benchmark, deterministic, allow_tf32
    before = (enabled, benchmark, None, deterministic, allow_tf32)
    enabled = enabled if _enabled is None else _enabled
    benchmark = benchmark if _benchmark is None else _benchmark
    deterministic = deterministic if _deterministic is None else _deterministic
    allow_tf32 = allow_tf32 if _allow_tf32 is None else _allow_tf32
    return before


flags = flags_of(
    sys.modules[__name__],
    {"enabled": False, "benchmark": False, "benchmark_limit": 10, "deterministic": False, "allow_tf32": True},
)
__getattr__ = _getter(__name__)
