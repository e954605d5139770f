"""torch.backends.openmp: is not used: threads are wick's own."""

from .._names import getter as _getter


def is_available():
    """Whether it is there: False."""
    return False


__getattr__ = _getter(__name__)
