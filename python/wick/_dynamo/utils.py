"""torch._dynamo.utils: what libraries ask before they compile."""

from collections import Counter, defaultdict

from .._names import getter as _getter

counters = defaultdict(Counter)


def is_compile_supported(device_type):
    """Whether compile() has code for a device: the CPU's."""
    return str(device_type) == "cpu"


__getattr__ = _getter(__name__)
