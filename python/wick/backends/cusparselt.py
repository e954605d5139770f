"""torch.backends.cusparselt: is not used."""

from .._names import getter as _getter


def is_available():
    """Whether it is there: False."""
    return False


__getattr__ = _getter(__name__)
