"""torch.backends.opt_einsum: in which order einsum multiplies more than two operands. wick finds the order itself: the best
one of up to 8, else step by step; from left to right where `enabled` is False. `strategy` is kept and read back."""

import sys

from .._names import getter as _getter
from ._settings import flags_of

enabled, strategy = True, "auto"


def is_available():
    """Whether orders are searched for: yes."""
    return True


def get_opt_einsum():
    """The package that PyTorch asks for orders: not used."""
    return None


def set_flags(_enabled=None, _strategy=None):
    """Sets flags and gives what they were."""
    global enabled, strategy
    before = (enabled, strategy)
    enabled = enabled if _enabled is None else _enabled
    strategy = strategy if _strategy is None else _strategy
    return before


flags = flags_of(sys.modules[__name__], {"enabled": None, "strategy": None})
__getattr__ = _getter(__name__)
