"""Histograms of points, gradients of sampled functions: functions of torch that are compositions with many forms.

Tests: tests/python/test_statistics.py.
"""

import math

from .. import _C
from .forms import written

# ---- histograms ----


def _outer_edges(input, given, name):
    """The first and the last edge of bins: as given, or those of the elements."""
    if given is not None:
        low, high = given
        if not (math.isfinite(low) and math.isfinite(high)):
            raise RuntimeError(f"{name}(): range [{low}, {high}] is not finite")
        if high < low:
            raise RuntimeError(f"{name}(): min should not exceed max, but got min {low} max {high} for dimension 0")
    elif input.numel():
        low, high = input.min().item(), input.max().item()
        if not (math.isfinite(low) and math.isfinite(high)):
            raise RuntimeError(f"{name}(): dimension 0's range [{low}, {high}] is not finite")
    else:
        low, high = 0.0, 1.0
    return (low - 0.5, high + 0.5) if low == high else (low, high)


def _bins_of(x, edges):
    """The bin of each element, and whether it has one; the last bin has its upper edge as well."""
    at = _C.searchsorted(edges, x.contiguous(), right=True) - 1
    return at.clamp(0, edges.numel() - 2), (x >= edges[0]) & (x <= edges[-1])


def histogramdd(input, bins, *, range=None, weight=None, density=False):
    """histogram of points (..., N) in N dims: a tensor of N dims and the edges of each, a list or a tensor."""
    from ..return_types import _named

    if input.dim() < 2:
        raise RuntimeError("torch.histogramdd: input tensor should have at least 2 dimensions")
    count = input.size(-1)
    bins = [bins] * count if isinstance(bins, int) else list(bins)
    if len(bins) != count:
        raise RuntimeError("histogramdd: The size of bins must be equal to the innermost dimension of the input.")
    if range is not None and len(range) != 2 * count:
        raise RuntimeError(
            f"torch.histogramdd: for a {count}-dimensional histogram range should have {2 * count} elements, but got "
            f"{len(range)}"
        )
    points = input.reshape(-1, count)
    if weight is not None and weight.shape != input.shape[:-1]:
        raise RuntimeError(
            "torch.histogramdd: if weight tensor is provided it should have the same shape as the input tensor excluding "
            f"its innermost dimension, but got input with shape {list(input.shape)} and weight with shape "
            f"{list(weight.shape)}"
        )
    edges, place, inside = [], None, None
    for d, wanted in enumerate(bins):
        x = points[:, d]
        if not isinstance(wanted, _C.Tensor):
            if wanted <= 0:
                raise RuntimeError(f"torch.histogramdd(): bins must be > 0, but got {wanted} for dimension {d}")
            low, high = _outer_edges(x, None if range is None else range[2 * d : 2 * d + 2], "torch.histogramdd")
            wanted = _C.linspace(low, high, wanted + 1, dtype=input.dtype, device=input.device)
        at, within = _bins_of(x, wanted)
        place = at if place is None else place * (wanted.numel() - 1) + at
        inside = within if inside is None else inside & within
        edges.append(wanted)
    sizes = [e.numel() - 1 for e in edges]
    share = inside.to(input.dtype) if weight is None else weight.reshape(-1) * inside
    hist = _C.zeros(math.prod(sizes), dtype=input.dtype, device=input.device).index_add(0, place, share).reshape(sizes)
    if density:
        hist = hist / hist.sum()
        for d, e in enumerate(edges):
            hist = hist / e.diff().reshape([-1 if d == k else 1 for k in _indices(count)])
    return _named("histogramdd", ("hist", "bin_edges"))(hist, tuple(edges))


_indices = range  # whose name is an argument of the functions above


# ---- gradients ----


def _even(x, dim, step, edge_order):
    """Differences over places that lie `step` apart."""
    n = x.size(dim)

    def at(i):
        return x.narrow(dim, i % n, 1)

    if edge_order == 1:
        first, last = (at(1) - at(0)) / step, (at(-1) - at(-2)) / step
    else:
        first = (at(1) * 4 - at(0) * 3 - at(2)) / (2 * step)
        last = (at(-1) * 3 - at(-2) * 4 + at(-3)) / (2 * step)
    centre = (x.narrow(dim, 2, n - 2) - x.narrow(dim, 0, n - 2)) / (2 * step)
    return _C.cat([first, centre, last], dim)


def _uneven(x, dim, places, edge_order):
    """The same where the places are a vector's elements."""
    n, steps = x.size(dim), places.diff()
    shape = [-1 if d == dim else 1 for d in range(x.dim())]

    def at(i):
        return x.narrow(dim, i % n, 1)

    def three(a, b, c, parts):
        return sum(p * w for p, w in zip(parts, (a, b, c), strict=True))

    before, behind = steps[:-1].reshape(shape), steps[1:].reshape(shape)
    centre = three(
        -behind / (before * (before + behind)), (behind - before) / (before * behind), before / (behind * (before + behind)),
        (x.narrow(dim, 0, n - 2), x.narrow(dim, 1, n - 2), x.narrow(dim, 2, n - 2)),
    )  # fmt: skip
    if edge_order == 1:
        first, last = (at(1) - at(0)) / steps[0], (at(-1) - at(-2)) / steps[-1]
    else:
        p, q = steps[0], steps[1]
        first = three(-(2 * p + q) / (p * (p + q)), (p + q) / (p * q), -p / (q * (p + q)), (at(0), at(1), at(2)))
        p, q = steps[-2], steps[-1]
        last = three(q / (p * (p + q)), -(p + q) / (p * q), (p + 2 * q) / (q * (p + q)), (at(-3), at(-2), at(-1)))
    return _C.cat([first, centre, last], dim)


def gradient(input, *, spacing=1, dim=None, edge_order=1):
    """Central differences along dims, a tensor each: of a function that was sampled at even or given places.

    >>> gradient(wick.tensor([1.0, 4.0, 9.0, 16.0]))[0]
    tensor([3., 4., 6., 7.])
    """
    dims = list(range(input.dim())) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    lists = isinstance(spacing, (tuple, list))
    if lists and len(spacing) != len(dims) and not (isinstance(dim, int) and len(spacing) == 1):
        raise RuntimeError(
            "torch.gradient expected spacing to be unspecified, a scalar or a list of length equal to 'self.dim() = "
            f"{input.dim()}', since dim argument was not given, but got a list of length {len(spacing)}"
        )
    if input.dtype in (_C.uint8, _C.bool):
        raise RuntimeError(
            "torch.gradient only supports int, float and complex dtypes; uint8 and bool are not supported"
        )
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    wrapped = []
    for d in dims:
        n = max(input.dim(), 1)
        if not -n <= d < n:
            raise IndexError(f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {d})")
        if d % n in wrapped:
            raise RuntimeError(f"dim {d % n} appears multiple times in the list of dims")
        wrapped.append(d % n)
    steps = list(spacing) if lists else [1 if spacing is None else spacing] * len(wrapped)
    for d, step in zip(wrapped, steps, strict=True):
        if isinstance(step, _C.Tensor) and step.dim() and step.numel() != input.size(d):
            raise RuntimeError(
                f"torch.gradient expected each element of spacing to have the same number of elements as the input has "
                f"along its dimension, but got {step.numel()} and {input.size(d)}"
            )
        if input.size(d) < edge_order + 1:
            raise RuntimeError("torch.gradient expected each dimension size to be at least edge_order+1")
    return tuple(
        (_uneven if isinstance(step, _C.Tensor) else _even)(input, d, step, edge_order)
        for d, step in zip(wrapped, steps, strict=True)
    )


# ---- normalisations with their statistics ----


def _written_all(results, out):
    return results if out is None else tuple(written(r, o) for r, o in zip(results, out, strict=True))


def native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, *, out=None):
    """batch_norm, and the means and inverse deviations of the channels where they are the batch's."""
    result = _C.batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, False)
    if not training:
        return _written_all((result, input.new_empty((0,)), input.new_empty((0,))), out)
    dims = [0, *range(2, input.dim())]
    variance = input.detach().var(dims, correction=0)
    return _written_all((result, input.detach().mean(dims), (variance + eps).rsqrt()), out)


def native_group_norm(input, weight, bias, N, C, HxW, group, eps):  # noqa: N803
    """group_norm of (N, C, ...), and the means and inverse deviations of the groups (N, group)."""
    result = _C.group_norm(input, group, weight, bias, eps)
    rows = input.reshape(N, group, C // group * HxW)
    mean, variance = rows.mean(-1), rows.var(-1, correction=0)
    return result, mean, (variance + eps).rsqrt()


# ---- resampling by numbers ----


def grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners):
    """nn.functional.grid_sample with numbers for the names of modes."""
    from ..nn.functional import grid_sample

    mode = ("bilinear", "nearest", "bicubic")[interpolation_mode]
    return grid_sample(input, grid, mode, ("zeros", "border", "reflection")[padding_mode], align_corners)


grid_sampler_2d = grid_sampler_3d = grid_sampler


# ---- memory of given strides ----


def empty_strided(size, stride, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
    """A tensor with these sizes and strides, its values whatever is there."""
    if len(size) != len(stride):
        raise RuntimeError(
            f"dimensionality of sizes ({len(size)}) must match dimensionality of strides ({len(stride)})"
        )
    for step in stride:
        if step < 0:
            raise RuntimeError(
                "as_strided: Negative strides are not supported at the moment, got strides: "
                f"[{', '.join(map(str, stride))}]"
            )
    count = 0 if 0 in size else 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    made = _C.empty((count,), dtype=dtype, device=device).as_strided(size, stride)
    return made.detach().requires_grad_() if requires_grad else made


def empty_permuted(
    size, physical_layout, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False
):
    """A tensor whose dims lie in memory in this order, the last one innermost."""
    stride, step = [0] * len(size), 1
    for d in reversed(physical_layout):
        stride[d], step = step, step * max(size[d], 1)
    return empty_strided(size, stride, dtype=dtype, device=device, requires_grad=requires_grad)


def resize_(self, *sizes, memory_format=None):
    """Other sizes over the same memory, which grows where it has to; what is new is not set."""
    sizes = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes
    if self.requires_grad:
        raise RuntimeError("cannot resize variables that require grad")
    if any(n < 0 for n in sizes):
        raise RuntimeError(f"Trying to create tensor with negative dimension {min(sizes)}: {list(sizes)}")
    if tuple(sizes) == tuple(self.shape) and memory_format is None:
        return self
    strides = _C.empty(tuple(sizes), device="meta").stride()
    if memory_format is not None:
        strides = _C.empty(tuple(sizes), device="meta", memory_format=memory_format).stride()
    need, memory = (self.storage_offset() + math.prod(sizes)) * self.element_size(), self.untyped_storage()
    if need > memory.nbytes():
        memory.resize_(need)
    self.data = self.detach().as_strided(tuple(sizes), strides, self.storage_offset())
    return self


def resize_as_(self, the_template, *, memory_format=None):
    """resize_ to another tensor's sizes."""
    if memory_format is _C.preserve_format:
        raise RuntimeError("Unsupported memory format Preserve")
    return resize_(self, *the_template.shape, memory_format=memory_format)
