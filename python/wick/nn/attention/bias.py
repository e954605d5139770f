"""torch.nn.attention.bias: causal masks of attention as a bias tensor."""

import enum

from ... import _C
from ..._names import getter as _getter

__all__ = ["CausalVariant", "causal_lower_right", "causal_upper_left"]


class CausalVariant(enum.IntEnum):
    """Where the diagonal of a mask that is not square begins."""

    UPPER_LEFT, LOWER_RIGHT = 1, 2


def causal_upper_left(*size):
    """True where a key may be seen: the diagonal begins at the first key."""
    return _C.ones(*size, dtype=_C.bool).tril()


def causal_lower_right(*size):
    """The same with the diagonal ending at the last key."""
    return _C.ones(*size, dtype=_C.bool).tril(size[1] - size[0])


__getattr__ = _getter(__name__)
