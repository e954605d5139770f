"""From a list of samples to one batch."""

import sys
from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence

from ... import _C

_BAD = "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"


def _numpy_kind(value):
    """ "array", "scalar" or None, without importing NumPy."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    return "array" if isinstance(value, numpy.ndarray) else "scalar" if isinstance(value, numpy.generic) else None


def _is_text(value):
    return isinstance(value, (str, bytes))


def _rebuilt(original, items, is_mapping):
    """A mapping or sequence of the original's type with other items; a plain dict or list when the type refuses."""
    try:
        if is_mapping and isinstance(original, MutableMapping):
            import copy

            clone = copy.copy(original)
            clone.update(items)
            return clone
        if not is_mapping and isinstance(original, MutableSequence):
            import copy

            clone = copy.copy(original)
            for i, item in enumerate(items):
                clone[i] = item
            return clone
        return type(original)(items)
    except TypeError:
        return items


def default_convert(data):
    """A sample with its arrays as tensors; the collate_fn of a loader that makes no batches."""
    if isinstance(data, _C.Tensor):
        return data
    kind = _numpy_kind(data)
    if kind:
        return data if kind == "array" and data.dtype.kind in "SUO" else _C.as_tensor(data)
    if isinstance(data, Mapping):
        return _rebuilt(data, {key: default_convert(data[key]) for key in data}, True)
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(default_convert(d) for d in data))
    if isinstance(data, tuple):
        return [default_convert(d) for d in data]
    if isinstance(data, Sequence) and not _is_text(data):
        return _rebuilt(data, [default_convert(d) for d in data], False)
    return data


def pin_memory(data, device=None):
    """A batch with its tensors in pinned memory; objects with a pin_memory() of their own give what that gives."""
    if isinstance(data, _C.Tensor):
        return data.pin_memory()
    if hasattr(data, "pin_memory"):
        return data.pin_memory()
    if _is_text(data):
        return data
    if isinstance(data, Mapping):
        return _rebuilt(data, {key: pin_memory(data[key]) for key in data}, True)
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(pin_memory(d) for d in data))
    if isinstance(data, tuple):
        return [pin_memory(d) for d in data]
    if isinstance(data, Sequence):
        return _rebuilt(data, [pin_memory(d) for d in data], False)
    return data


def default_collate(batch):
    """Samples of one kind as a batch: tensors stacked in a new first dimension, numbers as a tensor, dicts, tuples and
    lists entry by entry, text as it is.

    default_collate([(tensor_a, 1), (tensor_b, 2)])    # [(2, *shape), tensor([1, 2])]
    """
    first = batch[0]
    if isinstance(first, _C.Tensor):
        return _C.stack(batch, 0)
    kind = _numpy_kind(first)
    if kind == "array":
        if first.dtype.kind in "SUO":
            raise TypeError(_BAD.format(first.dtype))
        return default_collate([_C.as_tensor(b) for b in batch])
    if kind == "scalar":
        return _C.as_tensor(batch)
    if isinstance(first, float):
        return _C.tensor(batch, dtype=_C.float64)
    if isinstance(first, int):
        return _C.tensor(batch)
    if _is_text(first):
        return batch
    if isinstance(first, Mapping):
        return _rebuilt(first, {key: default_collate([d[key] for d in batch]) for key in first}, True)
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(default_collate(samples) for samples in zip(*batch, strict=True)))
    if isinstance(first, Sequence):
        if not all(len(sample) == len(first) for sample in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        columns = [default_collate(samples) for samples in zip(*batch, strict=True)]
        return columns if isinstance(first, tuple) else _rebuilt(first, columns, False)
    raise TypeError(_BAD.format(type(first)))
