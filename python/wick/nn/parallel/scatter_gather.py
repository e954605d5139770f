"""Sharing a batch out to devices and taking results together; without devices everything stays where it is."""

import warnings

from ... import _C
from . import comm

__all__ = ["gather", "scatter", "scatter_kwargs"]


def is_namedtuple(obj):
    """Whether it is a tuple with names."""
    return isinstance(obj, tuple) and hasattr(obj, "_asdict") and hasattr(obj, "_fields")


def has_devices():
    """Whether shares go anywhere."""
    from ...cuda import is_available

    return is_available()


def _pieces(value, targets, dim):
    """The value once for each target, its tensors split along `dim` and copied there."""
    if isinstance(value, _C.Tensor):
        return list(comm.scatter(value, targets, dim=dim) if has_devices() else value.chunk(len(targets), dim))
    if is_namedtuple(value):
        return [type(value)(*parts) for parts in zip(*(_pieces(v, targets, dim) for v in value), strict=False)]
    if isinstance(value, (tuple, list)) and value:
        return [type(value)(parts) for parts in zip(*(_pieces(v, targets, dim) for v in value), strict=False)]
    if isinstance(value, dict) and value:
        split = zip(*(_pieces(v, targets, dim) for v in value.values()), strict=False)
        return [type(value)(zip(value, parts, strict=True)) for parts in split]
    return [value] * len(targets)


def scatter(inputs, target_gpus, dim=0):
    """A list with a share for each target."""
    return _pieces(inputs, target_gpus, dim)


def scatter_kwargs(inputs, kwargs, target_gpus, dim=0):
    """The same for arguments and keyword arguments."""
    shares = scatter(inputs, target_gpus, dim) if inputs else []
    named = scatter(kwargs, target_gpus, dim) if kwargs else []
    shares += [()] * (len(named) - len(shares))
    named += [{}] * (len(shares) - len(named))
    return tuple(shares), tuple(named)


def gather(outputs, target_device, dim=0):
    """One result of the shares' results: tensors are put behind each other along `dim`."""
    first = outputs[0]
    if isinstance(first, _C.Tensor):
        if all(t.dim() == 0 for t in outputs) and dim == 0:
            warnings.warn(
                "Was asked to gather along dimension 0, but all input tensors were scalars; will instead unsqueeze "
                "and return a vector.",
                stacklevel=2,
            )
            outputs = [t.view(1) for t in outputs]
        return comm.gather(outputs, dim, target_device) if has_devices() else _C.cat(list(outputs), dim)
    if first is None:
        return None
    if isinstance(first, dict):
        if any(len(first) != len(other) for other in outputs):
            raise ValueError("All dicts must have the same number of keys")
        return type(first)((key, gather([other[key] for other in outputs], target_device, dim)) for key in first)
    parts = (gather(part, target_device, dim) for part in zip(*outputs, strict=True))
    return type(first)._make(parts) if is_namedtuple(first) else type(first)(parts)
