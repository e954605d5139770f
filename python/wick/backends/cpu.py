"""torch.backends.cpu: the level of instructions in use."""

from .. import _C
from .._names import getter as _getter

_NAMES = {"portable": "DEFAULT", "avx2": "AVX2", "avx512": "AVX512"}


def get_cpu_capability():
    """ "DEFAULT", "AVX2" or "AVX512".

    >>> get_cpu_capability() in ("DEFAULT", "AVX2", "AVX512")
    True
    """
    return _NAMES[_C._cpu_level()]


__getattr__ = _getter(__name__)
