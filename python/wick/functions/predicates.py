"""What is asked of tensors and objects, and forms of other operators that PyTorch has by themselves.

Tests: tests/parity/test_names_parity.py.
"""

import builtins

from .. import _C


def argwhere(input):
    """Where the elements are that are not 0: a row for each."""
    return _C.nonzero(input)


def is_nonzero(input):
    """Whether the one element is not 0."""
    if input.numel() != 1:
        if input.numel() == 0:
            raise RuntimeError("Boolean value of Tensor with no values is ambiguous")
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
    return bool(input)


def is_same_size(input, other):
    """Whether they have the same shape."""
    return input.shape == other.shape


def is_signed(input):
    """Whether its dtype has numbers below 0."""
    return input.dtype.is_signed


def is_inference(input):
    """Whether it was made under inference_mode()."""
    return input.is_inference()


def is_distributed(input):
    """False: kept for programs of long ago."""
    return False


def is_storage(obj, /):
    """Whether it is a storage."""
    from ..storage import TypedStorage

    return isinstance(obj, (_C.UntypedStorage, TypedStorage))


def is_vulkan_available():
    """False: wick has no such device."""
    return False


def get_device(input):
    """The number of the tensor's device; -1 for the CPU."""
    return -1 if input.device.index is None else input.device.index


def detach_(input):
    """input.detach_()"""
    return input.detach_()


def as_strided_(input, size, stride, storage_offset=None):
    """Makes the tensor look at its memory with these sizes and strides."""
    return input.as_strided_(size, stride, storage_offset)


def nonzero_static(input, *, size, fill_value=-1):
    """The first `size` rows of nonzero(), filled up with fill_value."""
    if size < 0:
        raise RuntimeError("nonzero_static: 'size' must be an non-negative integer")
    found = _C.nonzero(input)[:size]
    rest = found.new_full((size - len(found), input.dim()), fill_value)
    return _C.cat([found, rest])


def view_as_complex_copy(input):
    """A copy of view_as_complex(input)."""
    return _C.view_as_complex(input).clone()


def view_as_real_copy(input):
    """A copy of view_as_real(input)."""
    return _C.view_as_real(input).clone()


def range(start=0, end=None, step=1, *, out=None, dtype=None, layout=None, device=None, requires_grad=False):
    """start, start + step, ..., the end among them: of long ago, arange is meant."""
    import warnings

    warnings.warn(
        "torch.range is deprecated and will be removed in a future release because its behavior is inconsistent with "
        "Python's range builtin. Instead, use torch.arange, which produces values in [start, end).",
        UserWarning,
        stacklevel=2,
    )
    if end is None:
        start, end = 0, start
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if (end - start) / step < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    count = int((end - start) / step) + 1
    dtype = _C.get_default_dtype() if dtype is None else dtype
    values = (_C.arange(count, dtype=_C.float64, device=device) * step + start).to(dtype)
    return values.requires_grad_(requires_grad)


def fill_diagonal_(input, fill_value, wrap=False):
    """Writes the diagonal; of a tall matrix and with `wrap` again and again, a row between."""
    if input.dim() < 2:
        raise RuntimeError("dimensions must larger than 1")
    if input.dim() > 2 and len(set(input.shape)) != 1:
        raise RuntimeError("all dimensions of input must be of equal length")
    size, step = min(input.shape), sum(input.stride())
    with _C.no_grad():
        input.as_strided((size,), (step,), input.storage_offset()).fill_(fill_value)
        rows, columns = input.shape[0], input.shape[1]
        if wrap and input.dim() == 2 and rows > columns + 1:
            for start in builtins.range(columns + 1, rows, columns + 1):
                part = input[start:]
                part.as_strided((min(part.shape),), (step,), part.storage_offset()).fill_(fill_value)
    return input


def narrow_copy(input, dim, start, length):
    """A copy of narrow()."""
    return input.narrow(dim, start, length).clone()


def segment_reduce(data, reduce, *, lengths=None, indices=None, offsets=None, axis=0, unsafe=False, initial=None):
    """The "sum", "mean", "max", "min" or "prod" of runs of rows, of these lengths or between these offsets."""
    if axis != 0:
        raise (
            RuntimeError("segment_reduce(): Currently only dim=0 is supported!")
            if lengths is None
            else NotImplementedError("wick's segment_reduce goes along axis 0")
        )
    if lengths is None:
        if offsets is None:
            raise RuntimeError("segment_reduce(): Either lengths or offsets must be defined.")
        lengths = offsets.diff()
    names = {"sum": "sum", "mean": "mean", "max": "amax", "min": "amin", "prod": "prod"}
    if reduce not in names:
        raise RuntimeError(f"segment_reduce(): Expected reduce to be one of max, min, mean, sum, prod but got {reduce}")
    count = lengths.numel()
    empty = {"sum": 0.0, "mean": float("nan"), "max": -float("inf"), "min": float("inf"), "prod": 1.0}[reduce]
    start = data.new_full((count, *data.shape[1:]), empty if initial is None else initial)
    places = _C.repeat_interleave(_C.arange(count), lengths).view([-1] + [1] * (data.dim() - 1)).expand(data.shape)
    if reduce == "mean":
        summed = start.new_full(start.shape, initial or 0.0).scatter_add(0, places, data)
        many = lengths.view([-1] + [1] * (data.dim() - 1))
        return _C.where(many == 0, start, summed / many)
    return start.scatter_reduce(0, places, data, names[reduce], include_self=initial is not None)
