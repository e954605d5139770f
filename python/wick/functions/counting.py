"""Counts: histograms, unique elements.

Tests: tests/parity/test_functional_parity.py.
"""

import math

from .. import _C


def bincount(input, weights=None, minlength=0):
    """How often each number is there, or the sum of its weights."""
    if input.dim() != 1 or (input.numel() and input.min() < 0):
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if minlength < 0:
        raise RuntimeError("minlength should be >= 0")
    size = max(minlength, int(input.max()) + 1 if input.numel() else 0)
    if weights is None:
        return _C.zeros(size, dtype=_C.int64, device=input.device).index_add_(
            0, input.long(), _C.ones_like(input).long()
        )
    if weights.shape != input.shape:
        raise RuntimeError("weights should be 1-d and have the same length as input")
    weights = weights if weights.dtype == _C.float32 else weights.double()
    return _C.zeros(size, dtype=weights.dtype, device=input.device).index_add_(0, input.long(), weights)


def histc(input, bins=100, min=0, max=0):
    """How many elements lie in each of `bins` equal parts of [min, max], or of what there is when both are 0."""
    if bins <= 0:
        raise RuntimeError("bins must be > 0")
    flat = input.detach().reshape(-1)
    low, high = float(min), float(max)
    if low == high and flat.numel():
        low, high = float(flat.min()), float(flat.max())
    if low == high:
        low, high = low - 1, high + 1
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"range of [{low}, {high}] is not finite")
    if low > high:
        raise RuntimeError("max must be larger than min")
    inside = (flat >= low) & (flat <= high)
    place = ((flat - low) / (high - low) * bins).nan_to_num(0).clamp(0, bins - 1).long()
    return _C.zeros(bins, dtype=input.dtype, device=input.device).index_add_(0, place, inside.to(input.dtype))


def _first_of_runs(values):
    """Of sorted elements, or rows, whether each differs from the one before."""
    changed = values[1:] != values[:-1]
    changed = changed.flatten(1).any(1) if changed.dim() > 1 else changed
    return _C.cat([_C.ones(min(len(values), 1), dtype=_C.bool, device=values.device), changed])


def _runs(values, return_inverse, return_counts):
    """(elements that differ from the one before, numbers of the runs, lengths of the runs)"""
    first = _first_of_runs(values)
    numbers = first.cumsum(0) - 1 if return_inverse or return_counts else None
    counts = None
    if return_counts:
        counts = _C.zeros(int(first.sum()), dtype=_C.int64, device=values.device)
        counts = counts.index_add_(0, numbers, _C.ones_like(numbers))
    return values[first], numbers, counts


def _chosen(result, inverse, counts, return_inverse, return_counts):
    extra = ([inverse] if return_inverse else []) + ([counts] if return_counts else [])
    return (result, *extra) if extra else result


def _sort_rows(rows):
    """The order that sorts rows by their first element, then their second, ..."""
    order = _C.arange(rows.shape[0], device=rows.device)
    flat = rows.reshape(rows.shape[0], -1)
    for column in range(flat.shape[1] - 1, -1, -1):
        order = order[flat[order, column].argsort(stable=True)]
    return order


def unique(input, sorted=True, return_inverse=False, return_counts=False, dim=None):
    """The different elements, or slices along a dim, in order; where each went, and how many there were."""
    if _C._overrides and _C._has_torch_function_variadic(input):
        kwargs = {"sorted": sorted, "return_inverse": return_inverse, "return_counts": return_counts, "dim": dim}
        return _C._dispatch_torch_function(unique, (input,), (input,), kwargs)
    if dim is None:
        values, order = input.reshape(-1).sort(stable=True)
    else:
        rows = input.movedim(dim, 0)
        order = _sort_rows(rows)
        values = rows[order]
    result, numbers, counts = _runs(values, return_inverse, return_counts)
    inverse = None
    if return_inverse:
        inverse = _C.empty_like(numbers).scatter_(0, order, numbers)
        inverse = inverse.reshape(input.shape) if dim is None else inverse
    if dim is not None:
        result = result.movedim(0, dim)
    return _chosen(result, inverse, counts, return_inverse, return_counts)


def unique_consecutive(input, return_inverse=False, return_counts=False, dim=None):
    """The elements, or slices along a dim, that differ from the one before."""
    values = input.reshape(-1) if dim is None else input.movedim(dim, 0)
    result, numbers, counts = _runs(values, return_inverse, return_counts)
    if return_inverse and dim is None:
        numbers = numbers.reshape(input.shape)
    if dim is not None:
        result = result.movedim(0, dim)
    return _chosen(result, numbers, counts, return_inverse, return_counts)
