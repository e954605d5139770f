"""torchvision's operators, torch.ops.torchvision.*, which its own library has for PyTorch: rows of the table (vision.ops), and
these, which are made of others. Importing this module, as load_library() does, makes them known.

Tests: tests/python/test_vision.py.
"""

from . import _C, _ops
from ._names import cannot, getter
from .library import built_in
from .nn.functions.resample import _gathered, _linear_taps


def deform_conv2d(
    input, weight, offset, mask, bias, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups, offset_groups,
    use_mask,
):  # fmt: skip
    """A convolution whose taps are moved by offsets (N, 2 groups KH KW, H', W') and weighed by a mask."""
    (n, channels, height, width), (out, _, rows, columns), (high, wide) = input.shape, weight.shape, offset.shape[-2:]
    taps = rows * columns
    moved = offset.reshape(n, offset_groups, taps, 2, high, wide)
    down = _C.arange(rows, device=input.device).mul(dilation_h).repeat_interleave(columns).view(taps, 1, 1)
    along = _C.arange(columns, device=input.device).mul(dilation_w).repeat(rows).view(taps, 1, 1)
    y = moved[:, :, :, 0] + (down + _C.arange(high, device=input.device).mul(stride_h).sub(pad_h).view(1, high, 1))
    x = moved[:, :, :, 1] + (along + _C.arange(wide, device=input.device).mul(stride_w).sub(pad_w).view(1, 1, wide))
    places = (n * offset_groups, taps * high, wide)
    neighbours = [
        _linear_taps(y.reshape(places), height, "zeros", True),
        _linear_taps(x.reshape(places), width, "zeros", True),
    ]
    images = input.reshape(n * offset_groups, channels // offset_groups, height, width)
    patches = _gathered(images, neighbours, places[1:]).reshape(n, offset_groups, -1, taps, high * wide)
    if use_mask:
        patches = patches * mask.reshape(n, offset_groups, 1, taps, high * wide)
    product = weight.reshape(groups, out // groups, -1).matmul(patches.reshape(n, groups, -1, high * wide))
    return product.reshape(n, out, high, wide) + bias.view(1, -1, 1, 1)


def ps_roi_align(input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio):
    """roi_align in which each bin has channels of its own: (means, the channel of each)."""
    bins = pooled_height * pooled_width
    if input.shape[1] % bins:
        raise RuntimeError("input channels must be a multiple of pooling height * pooling width")
    means = _ops.packet("roi_align", "torchvision")(
        input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, True
    )
    sizes = (rois.shape[0], input.shape[1] // bins, pooled_height, pooled_width)
    own = means.view(*sizes, pooled_height, pooled_width).diagonal(dim1=2, dim2=4).diagonal(dim1=2, dim2=3)
    channel = _C.arange(input.shape[1], dtype=_C.int32, device=input.device).view(sizes[1:])
    return own.contiguous(), channel.expand(sizes).contiguous()


def _bins(first, last, scale, count, size):
    """Which pixels (K, count, size) the bins of regions from `first` to `last` (K) have, as ones, and how many."""
    edges = (edge.float() * scale for edge in (first, last))
    begin, end = ((edge.abs() + 0.5).floor() * edge.sign() for edge in edges)  # to the nearest, halves away from 0
    step = ((end - begin).clamp(min=1) / count)[:, None]
    number = _C.arange(count, device=first.device)
    low = (number * step).floor().add(begin[:, None]).clamp(0, size - 1)
    high = ((number + 1) * step).ceil().add(begin[:, None]).clamp(0, size - 1)
    pixel = _C.arange(size, device=first.device)
    return ((pixel >= low[..., None]) & (pixel < high[..., None])), (high - low).clamp(min=0)


def ps_roi_pool(input, rois, spatial_scale, pooled_height, pooled_width):
    """The mean of each bin's pixels, in which each bin has channels of its own: (means, the channel of each)."""
    (_, channels, height, width), bins = input.shape, pooled_height * pooled_width
    if channels % bins:
        raise RuntimeError("input channels must be a multiple of pooling height * pooling width")
    rows, high = _bins(rois[:, 2], rois[:, 4], spatial_scale, pooled_height, height)
    columns, wide = _bins(rois[:, 1], rois[:, 3], spatial_scale, pooled_width, width)
    sizes = (rois.shape[0], channels // bins, pooled_height, pooled_width)
    images = input[rois[:, 0].long()].reshape(*sizes, height, width)
    sums = images.matmul(columns.to(input.dtype)[:, None, None, :, :, None])  # (K, C, rows, columns, H, 1)
    sums = rows.to(input.dtype)[:, None, :, None, None].matmul(sums)[..., 0, 0]
    area = (high[:, None, :, None] * wide[:, None, None, :]).clamp(min=1)
    channel = _C.arange(channels, dtype=_C.int32, device=input.device).view(sizes[1:])
    return sums / area.to(input.dtype), channel.expand(sizes).contiguous()


def _cuda_version():
    """The CUDA that torchvision was built with: none."""
    return -1


for _function in (deform_conv2d, ps_roi_align, ps_roi_pool, _cuda_version):
    built_in(f"torchvision::{_function.__name__}", _function)
for _name in (
    "_deform_conv2d_backward", "_ps_roi_align_backward", "_ps_roi_pool_backward", "qnms", "qroi_align",
):  # fmt: skip
    _why = "wick takes derivatives by itself" if _name.endswith("_backward") else "wick does not have it yet"
    built_in(f"torchvision::{_name}", cannot(f"torch.ops.torchvision.{_name}", _why))

__getattr__ = getter(__name__)
