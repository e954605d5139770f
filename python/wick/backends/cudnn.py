"""torch.backends.cudnn: cuDNN, which does convolutions on CUDA where it is found (src/cuda/cudnn.c).

Algorithms are always ones that give the same bits each time, and are chosen by what the library knows of a size, so
`deterministic` and `benchmark` change nothing.
"""

import sys
import types

from .. import _C
from .._names import getter as _getter
from ._settings import flags_of

benchmark, deterministic = False, False
benchmark_limit, fp32_precision = None, "none"
CUDNN_TENSOR_DTYPES = {_C.float16, _C.bfloat16, _C.float32, _C.float64}


def version():
    """cuDNN's version, 90100 for 9.1.0; None where there is none, or no device."""
    return _C._cudnn_version() or None if _C._device_count("cuda") else None


def is_available():
    """Whether there is a cuDNN, and a device for it."""
    return version() is not None


def is_acceptable(tensor):
    """Whether cuDNN takes the tensor."""
    return _C._cuda_switch("cudnn") and is_available() and tensor.is_cuda and tensor.dtype in CUDNN_TENSOR_DTYPES


def set_flags(_enabled=None, _benchmark=None, _benchmark_limit=None, _deterministic=None, _allow_tf32=None):
    """Sets flags and gives what they were."""
    module = sys.modules[__name__]
    given = {
        "enabled": _enabled,
        "benchmark": _benchmark,
        "benchmark_limit": _benchmark_limit,
        "deterministic": _deterministic,
        "allow_tf32": _allow_tf32,
    }
    before = tuple(getattr(module, name) for name in given)
    for name, value in given.items():
        if value is not None:
            setattr(module, name, value)
    return before


flags = flags_of(
    sys.modules[__name__],
    {"enabled": False, "benchmark": False, "benchmark_limit": 10, "deterministic": False, "allow_tf32": True},
)
__getattr__ = _getter(__name__)


class _Cudnn(types.ModuleType):
    @property
    def enabled(self):
        return _C._cuda_switch("cudnn")

    @enabled.setter
    def enabled(self, value):
        _C._set_cuda_switch("cudnn", value)

    @property
    def allow_tf32(self):
        return _C._cuda_switch("cudnn_tf32")

    @allow_tf32.setter
    def allow_tf32(self, value):
        _C._set_cuda_switch("cudnn_tf32", value)


sys.modules[__name__].__class__ = _Cudnn
