"""torch.distributed.rpc: calls between processes, which are not there."""

from .._names import getter as _getter


def is_available():
    """Whether there are such calls: False."""
    return False


__getattr__ = _getter(__name__)
