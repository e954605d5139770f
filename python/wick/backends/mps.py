"""torch.backends.mps: there is no such device."""

from .._names import getter as _getter


def is_built():
    """Whether there is code for it: False."""
    return False


def is_available():
    """Whether there is one: False."""
    return False


__getattr__ = _getter(__name__)
