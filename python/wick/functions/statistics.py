"""Resampling by numbers of modes, memory of given strides, other sizes over the same memory.

Tests: tests/python/test_statistics.py.
"""

import math

from .. import _C

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
    if len(size) != len(physical_layout):
        raise RuntimeError(
            "Number of dimensions in size does not match the length of the physical_layout; i.e. len(size) = "
            f"{len(size)} is not equal to len(physical_layout) = {len(physical_layout)}"
        )
    for at, d in enumerate(physical_layout):
        if not 0 <= d < len(size):
            raise RuntimeError(
                f"Dimension out of range (expected to be between 0 and {len(size) - 1}, but got {d} at index {at}).  NB: "
                "negative dims not currently supported; file an issue if you want it."
            )
    if len(set(physical_layout)) < len(physical_layout):
        raise RuntimeError("Duplicate dim not allowed")
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
