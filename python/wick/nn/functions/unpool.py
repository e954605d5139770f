"""The way back from max pooling, and max pooling whose windows lie at random. Tests: tests/python/test_unpool.py."""

from math import prod

from ... import _C


def _each(value, dims):
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * dims


def _output_size(input, kernel_size, stride, padding, given):
    dims = len(kernel_size)
    sizes = input.shape[-dims:]
    usual = [(sizes[d] - 1) * stride[d] + kernel_size[d] - 2 * padding[d] for d in range(dims)]
    if given is None:
        return usual
    given = list(given)[2:] if len(given) == dims + 2 else list(given)
    if len(given) != dims:
        raise ValueError(
            f"output_size should be a sequence containing {dims} or {dims + 2} elements, but it has a length of "
            f"'{len(given)}'"
        )
    for d in range(dims):
        low, high = usual[d] - stride[d], usual[d] + stride[d]
        if not low < given[d] < high:
            raise ValueError(f'invalid output_size "{given}" (dim {d} must be between {low} and {high})')
    return given


def _unpooled(name, dims, input, indices, kernel_size, stride, padding, output_size):
    input = _C._autocast_wide_cpu(input)
    kernel_size, padding = _each(kernel_size, dims), _each(padding, dims)
    stride = kernel_size if stride is None or stride == [] else _each(stride, dims)
    size = _output_size(input, kernel_size, stride, padding, output_size)
    if indices.dtype != _C.int64:
        raise RuntimeError(f"elements in indices should be type int64 but got: {str(indices.dtype)[6:]}")
    if input.dim() not in (dims + 1, dims + 2):
        raise RuntimeError(
            f"Input to {name} should be a {dims + 1}d or {dims + 2}d Tensor, but got a tensor with dim: {input.dim()}"
        )
    if input.shape != indices.shape:
        raise RuntimeError(
            f"Expected shape of indices to be same as that of the input tensor ({list(input.shape)}) but got indices "
            f"tensor with shape: {list(indices.shape)}"
        )
    lead, count = input.shape[:-dims], 1
    for n in size:
        count *= n
    places = indices.reshape(*lead, -1)
    if places.numel() and not bool(((places >= 0) & (places < count)).all()):
        bad = places[(places < 0) | (places >= count)][0].item()
        raise RuntimeError(
            f"Found an invalid max index: {bad} (output volumes are of size {'x'.join(map(str, size))}"
            + ("" if dims == 3 else ")")
        )
    flat = input.new_zeros((*lead, count)).scatter(-1, places, input.reshape(*lead, -1))
    result = flat.reshape(*lead, *size)
    by_channels = dims == 2 and input.is_contiguous(memory_format=_C.channels_last) and not input.is_contiguous()
    return result.contiguous(memory_format=_C.channels_last) if by_channels else result


def max_unpool1d(input, indices, kernel_size, stride=None, padding=0, output_size=None):
    """Zeros, with the elements where max_pool1d found them."""
    return _unpooled("max_unpooling1d", 1, input, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(input, indices, kernel_size, stride=None, padding=0, output_size=None):
    """Zeros, with the elements where max_pool2d found them."""
    return _unpooled("max_unpooling2d", 2, input, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(input, indices, kernel_size, stride=None, padding=0, output_size=None):
    """Zeros, with the elements where max_pool3d found them."""
    return _unpooled("max_unpooling3d", 3, input, indices, kernel_size, stride, padding, output_size)


# ---- windows that lie at random ----


def _starts(sample, size, count, window):
    """Where the windows of each plane begin: (N, C, count)."""
    last = _C.full((*sample.shape, 1), size - window, dtype=_C.int64, device=sample.device)
    if count == 1:
        return last
    step = (size - window) / (count - 1)
    at = _C.arange(count - 1, dtype=sample.dtype, device=sample.device)
    sample = sample.unsqueeze(-1)
    return _C.cat([((at + sample) * step).long() - (sample * step).long(), last], -1)


def _fractional(name, dims, input, kernel_size, output_size, output_ratio, samples):
    if output_size is None and output_ratio is None:
        raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
    input = _C._autocast_wide_cpu(input)
    sizes = input.shape[-dims:]
    if output_size is None:
        ratio = _each(output_ratio, dims)
        if len(ratio) > dims:
            raise ValueError(f"{name} requires output_ratio to either be a single Int or tuple of Ints.")
        output_size = [int(n * r) for n, r in zip(sizes, ratio, strict=True)]
    kernel_size, output_size = _each(kernel_size, dims), _each(output_size, dims)
    batched = input if input.dim() == dims + 2 else input.unsqueeze(0)
    if samples is None:
        samples = _C.rand(*batched.shape[:2], dims, dtype=input.dtype, device=input.device)
    for d, (n, window, count) in enumerate(zip(sizes, kernel_size, output_size, strict=True)):
        if count + window - 1 > n:
            which = ("time", "height", "width")[d - dims]
            raise RuntimeError(f"{name}(): pool {which} {window} too large relative to input {which} {n}")
    # the flat place of each window's elements: (N, C, counts, windows)
    places, lead = 0, batched.shape[:2]
    for d in range(dims):
        sample = samples[..., dims - 1 - d if dims == 2 else d]
        start = _starts(sample, sizes[d], output_size[d], kernel_size[d])
        at = start.unsqueeze(-1) + _C.arange(kernel_size[d], device=input.device)
        shape = [1] * (2 * dims)
        shape[d], shape[dims + d] = output_size[d], kernel_size[d]
        places = places * sizes[d] + at.reshape(*lead, *shape)
    whole = places.reshape(*lead, *output_size, prod(kernel_size))
    flat = batched.reshape(*lead, prod(sizes))
    elements = flat.gather(-1, whole.reshape(*lead, prod(output_size) * prod(kernel_size))).reshape(whole.shape)
    best, which = elements.max(-1)
    indices = whole.gather(-1, which.unsqueeze(-1)).squeeze(-1)
    return (best, indices) if input.dim() == dims + 2 else (best.squeeze(0), indices.squeeze(0))


def fractional_max_pool2d(
    input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None
):
    """The largest elements of windows that lie at random, as many as output_size says; perhaps with their places."""
    found = _fractional("fractional_max_pool2d", 2, input, kernel_size, output_size, output_ratio, _random_samples)
    return found if return_indices else found[0]


def fractional_max_pool3d(
    input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None
):
    """The same over three dims."""
    found = _fractional("fractional_max_pool3d", 3, input, kernel_size, output_size, output_ratio, _random_samples)
    return found if return_indices else found[0]


def fractional_max_pool2d_with_indices(
    input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None
):
    """fractional_max_pool2d with the places."""
    return fractional_max_pool2d(input, kernel_size, output_size, output_ratio, True, _random_samples)


def fractional_max_pool3d_with_indices(
    input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None
):
    """fractional_max_pool3d with the places."""
    return fractional_max_pool3d(input, kernel_size, output_size, output_ratio, True, _random_samples)
