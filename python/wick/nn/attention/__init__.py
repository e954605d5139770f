"""torch.nn.attention: which way of attention is taken: cuDNN's, where it is found and faster, or wick's."""

import contextlib
import enum

from ..._names import late as _late
from ...backends.cuda import sdp_kernel as _sdp_kernel

__all__ = ["SDPBackend", "sdpa_kernel"]


class SDPBackend(enum.IntEnum):
    """PyTorch's ways of attention."""

    ERROR, MATH, FLASH_ATTENTION, EFFICIENT_ATTENTION, CUDNN_ATTENTION, OVERRIDEABLE = range(-1, 5)


@contextlib.contextmanager
def sdpa_kernel(backends, set_priority=False):
    """The ways to choose from, inside a `with`; wick's is there in any case."""
    if not isinstance(backends, (list, SDPBackend)):
        raise AssertionError("Backend must be an instance of SDPBackend or a list of SDPBackend instances")
    wanted = [backends] if isinstance(backends, SDPBackend) else backends
    ways = SDPBackend.FLASH_ATTENTION, SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION
    with _sdp_kernel(*(way in wanted for way in ways)):
        yield {}


__getattr__ = _late(__name__, ("bias", "flex_attention"))
