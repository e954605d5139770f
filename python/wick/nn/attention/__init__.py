"""torch.nn.attention: which way of attention is taken. wick has one kernel, so that the choice is kept and read back."""

import contextlib
import enum

from ..._names import late as _late

__all__ = ["SDPBackend", "sdpa_kernel"]


class SDPBackend(enum.IntEnum):
    """PyTorch's ways of attention."""

    ERROR, MATH, FLASH_ATTENTION, EFFICIENT_ATTENTION, CUDNN_ATTENTION, OVERRIDEABLE = range(-1, 5)


@contextlib.contextmanager
def sdpa_kernel(backends, set_priority=False):
    """The ways that PyTorch would choose from, inside a `with`; results are the same."""
    if not isinstance(backends, (list, SDPBackend)):
        raise AssertionError("Backend must be an instance of SDPBackend or a list of SDPBackend instances")
    yield {}


__getattr__ = _late(__name__, ("bias", "flex_attention"))
