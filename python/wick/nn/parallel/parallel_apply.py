"""Modules that run beside each other, each on a share and a device: given to the devices one after the other, which do not
wait for each other."""

from contextlib import nullcontext

from ... import _C
from . import comm

__all__ = ["parallel_apply"]


def _tensor_in(value):
    """The first tensor in it; None without one."""
    if isinstance(value, _C.Tensor):
        return value
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return next((t for t in map(_tensor_in, parts) if t is not None), None)


def _on(device, share):
    """That device, or the share's, as the current one."""
    from ...cuda import device as current

    t = _tensor_in(share) if device is None else None
    where = t.device if t is not None else None if device is None else comm.place(device)
    return current(where.index) if where is not None and where.type == "cuda" else nullcontext()


def parallel_apply(modules, inputs, kwargs_tup=None, devices=None):
    """[module(*input, **kwargs), ...]"""
    count = len(modules)
    kwargs_tup, devices = kwargs_tup or [{}] * count, devices or [None] * count
    if not count == len(inputs) == len(kwargs_tup) == len(devices):
        raise AssertionError("modules, inputs, kwargs_tup and devices have different lengths")
    results = []
    for module, share, kwargs, device in zip(modules, inputs, kwargs_tup, devices, strict=True):
        with _on(device, (share, kwargs)):
            results.append(module(*(share if isinstance(share, (tuple, list)) else (share,)), **kwargs))
    return results
