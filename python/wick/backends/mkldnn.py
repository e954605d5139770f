"""torch.backends.mkldnn: oneDNN, which wick uses only where max-autotune times it beside its own products."""

import sys

from .._names import getter as _getter
from ._settings import flags_of

enabled, deterministic, allow_tf32, fp32_precision = True, False, True, "none"
VERBOSE_OFF, VERBOSE_ON, VERBOSE_ON_CREATION = 0, 1, 2


def is_available():
    """Whether tensors can have its layouts: False."""
    return False


def set_flags(_enabled=None, _deterministic=None, _allow_tf32=None, _fp32_precision="none"):
    """Sets flags and gives what they were."""
    global enabled, deterministic, allow_tf32
    before = (enabled, deterministic, allow_tf32)
    enabled = enabled if _enabled is None else _enabled
    deterministic = deterministic if _deterministic is None else _deterministic
    allow_tf32 = allow_tf32 if _allow_tf32 is None else _allow_tf32
    return before


class verbose:
    """What the library would print inside a `with`: nothing."""

    def __init__(self, level):
        self.level = level

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        return False


flags = flags_of(sys.modules[__name__], {"enabled": False, "deterministic": False, "allow_tf32": True})
__getattr__ = _getter(__name__)
