"""Linear algebra under autocast: what PyTorch's list for the CPU computes in float32. Tests: tests/python/test_autocast.py."""

import functools

from .. import _C


def in_float32(function):
    """The function, whose small floats are float32 under the CPU's autocast, as are those of the products in it."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        if not _C.is_autocast_cpu_enabled() or kwargs.get("out") is not None:
            return function(*args, **kwargs)
        args = [_wide(value) for value in args]
        kwargs = {name: _wide(value) for name, value in kwargs.items()}
        from ..amp import autocast

        with autocast("cpu", enabled=False):
            return function(*args, **kwargs)

    return call


def _wide(value):
    return _C._autocast_wide_cpu(value) if isinstance(value, _C.Tensor) else value
