"""Convolutions in one to three dimensions, transposed ones, and lazy ones, which take their channels from an input."""

import math

from ... import _C
from .. import functional as F
from .. import init
from ..parameter import Parameter
from .lazy import LazyModuleMixin, materialize, uninitialized
from .module import Module
from .utils import _ntuple, _pair, _reverse_repeat_tuple, _single, _triple  # noqa: F401  programs take them here

__all__ = [f"{lazy}{kind}{dims}d" for lazy in ("", "Lazy") for kind in ("Conv", "ConvTranspose") for dims in (1, 2, 3)]

_PADDING_WORDS = {"same", "valid"}
_PADDING_MODES = {"zeros", "reflect", "replicate", "circular"}


class _ConvNd(Module):
    """W (out_channels, in_channels / groups, *kernel_size), transposed (in_channels, out_channels / groups, ...)."""

    __constants__ = [
        "stride", "padding", "dilation", "groups", "padding_mode", "output_padding", "in_channels", "out_channels",
        "kernel_size",
    ]  # fmt: skip

    def __init__(
        self, in_channels, out_channels, kernel_size, stride, padding, dilation, transposed, output_padding, groups,
        bias, padding_mode, device=None, dtype=None,
    ):  # fmt: skip
        super().__init__()
        _check(in_channels, out_channels, stride, padding, groups, padding_mode)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.transposed = transposed
        self.output_padding = output_padding
        self.groups = groups
        self.padding_mode = padding_mode
        self._reversed_padding_repeated_twice = _sides(padding, kernel_size, dilation)
        self.weight = Parameter(_C.empty(self._weight_size(in_channels), device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(_C.empty(out_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def _weight_size(self, in_channels):
        first, second = (in_channels, self.out_channels) if self.transposed else (self.out_channels, in_channels)
        return (first, second // self.groups, *self.kernel_size)

    def reset_parameters(self):
        """Both uniform in +-1/sqrt(in_channels / groups * elements of the kernel)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            if fan_in != 0:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def extra_repr(self):
        dims = len(self.kernel_size)
        parts = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"]
        for name, usual in (("padding", 0), ("dilation", 1), ("output_padding", 0)):
            value = getattr(self, name)
            if value != (usual,) * dims:
                parts.append(f"{name}={value}")
        if self.groups != 1:
            parts.append(f"groups={self.groups}")
        if self.bias is None:
            parts.append("bias=False")
        if self.padding_mode != "zeros":
            parts.append(f"padding_mode={self.padding_mode}")
        return ", ".join(parts)

    def __setstate__(self, state):
        super().__setstate__(state)
        if not hasattr(self, "padding_mode"):
            self.padding_mode = "zeros"


def _check(in_channels, out_channels, stride, padding, groups, padding_mode):
    if groups <= 0:
        raise ValueError("groups must be a positive integer")
    if in_channels % groups != 0:
        raise ValueError("in_channels must be divisible by groups")
    if out_channels % groups != 0:
        raise ValueError("out_channels must be divisible by groups")
    if isinstance(padding, str):
        if padding not in _PADDING_WORDS:
            raise ValueError(f"Invalid padding string {padding!r}, should be one of {_PADDING_WORDS}")
        if padding == "same" and any(s != 1 for s in stride):
            raise ValueError("padding='same' is not supported for strided convolutions")
    if padding_mode not in _PADDING_MODES:
        raise ValueError(f"padding_mode must be one of {_PADDING_MODES}, but got padding_mode='{padding_mode}'")


def _sides(padding, kernel_size, dilation):
    """For F.pad: before and after each dimension, the last one first."""
    if padding == "valid":
        return [0, 0] * len(kernel_size)
    if padding != "same":
        return _reverse_repeat_tuple(padding, 2)
    sides = []
    for size, step in zip(reversed(kernel_size), reversed(dilation), strict=True):
        total = step * (size - 1)
        sides += [total // 2, total - total // 2]
    return sides


# ---- convolutions ----


class _Conv(_ConvNd):
    _dims = 1

    def __init__(
        self, in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True,
        padding_mode="zeros", device=None, dtype=None,
    ):  # fmt: skip
        each = _ntuple(self._dims)
        super().__init__(
            in_channels, out_channels, each(kernel_size), each(stride),
            padding if isinstance(padding, str) else each(padding), each(dilation), False, each(0), groups, bias,
            padding_mode, device, dtype,
        )  # fmt: skip

    def _conv_forward(self, input, weight, bias):
        padding = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = (0,) * self._dims
        return self._function(input, weight, bias, self.stride, padding, self.dilation, self.groups)

    def forward(self, input):
        return self._conv_forward(input, self.weight, self.bias)


class Conv1d(_Conv):
    """A convolution along the last dimension.

    layer = nn.Conv1d(3, 8, kernel_size=5, padding=2)
    y = layer(wick.randn(4, 3, 100))    # (4, 3, 100) -> (4, 8, 100)
    """

    _function = staticmethod(F.conv1d)


class Conv2d(_Conv):
    """A convolution of images. padding: a number, one a dimension, "same" or "valid".

    layer = nn.Conv2d(3, 8, kernel_size=3, stride=2, padding=1)
    y = layer(wick.randn(4, 3, 32, 32))    # (4, 3, 32, 32) -> (4, 8, 16, 16)
    """

    _dims, _function = 2, staticmethod(F.conv2d)


class Conv3d(_Conv):
    """A convolution of volumes.

    layer = nn.Conv3d(1, 4, kernel_size=3, padding="same")
    y = layer(wick.randn(2, 1, 8, 16, 16))    # (2, 1, 8, 16, 16) -> (2, 4, 8, 16, 16)
    """

    _dims, _function = 3, staticmethod(F.conv3d)


# ---- transposed convolutions ----


class _ConvTransposeNd(_ConvNd):
    _dims = 1

    def __init__(
        self, in_channels, out_channels, kernel_size, stride=1, padding=0, output_padding=0, groups=1, bias=True,
        dilation=1, padding_mode="zeros", device=None, dtype=None,
    ):  # fmt: skip
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {self.__class__.__name__}')
        each = _ntuple(self._dims)
        super().__init__(
            in_channels, out_channels, each(kernel_size), each(stride), each(padding), each(dilation), True,
            each(output_padding), groups, bias, padding_mode, device, dtype,
        )  # fmt: skip

    def _output_padding(self, input, output_size, stride, padding, kernel_size, num_spatial_dims, dilation=None):
        """What has to be added behind the result for it to have the wanted size."""
        if output_size is None:
            return self.output_padding
        others = input.dim() - num_spatial_dims
        if len(output_size) == others + num_spatial_dims:
            output_size = output_size[others:]
        if len(output_size) != num_spatial_dims:
            raise ValueError(
                f"ConvTranspose{num_spatial_dims}D: for {input.dim()}D input, output_size must have {num_spatial_dims} "
                f"or {others + num_spatial_dims} elements (got {len(output_size)})"
            )
        least = [
            (input.size(d + others) - 1) * stride[d]
            - 2 * padding[d]
            + (dilation[d] if dilation is not None else 1) * (kernel_size[d] - 1)
            + 1
            for d in range(num_spatial_dims)
        ]
        most = [size + stride[d] - 1 for d, size in enumerate(least)]
        if any(size < low or size > high for size, low, high in zip(output_size, least, most, strict=True)):
            raise ValueError(
                f"requested an output size of {output_size}, but valid sizes range from {least} to {most} "
                f"(for an input of {input.size()[2:]})"
            )
        return [size - low for size, low in zip(output_size, least, strict=True)]

    def forward(self, input, output_size=None):
        """output_size: of the images that come out, where the stride allows several."""
        rest = self._output_padding(
            input, output_size, self.stride, self.padding, self.kernel_size, self._dims, self.dilation
        )
        return self._function(
            input, self.weight, self.bias, self.stride, self.padding, rest, self.groups, self.dilation
        )


class ConvTranspose1d(_ConvTransposeNd):
    """The gradient of Conv1d's input, as a layer.

    layer = nn.ConvTranspose1d(8, 3, kernel_size=4, stride=2, padding=1)
    y = layer(wick.randn(4, 8, 50))    # (4, 8, 50) -> (4, 3, 100)
    """

    _function = staticmethod(F.conv_transpose1d)


class ConvTranspose2d(_ConvTransposeNd):
    """The gradient of Conv2d's input, as a layer.

    layer = nn.ConvTranspose2d(8, 3, kernel_size=4, stride=2, padding=1)
    y = layer(wick.randn(4, 8, 16, 16))    # (4, 8, 16, 16) -> (4, 3, 32, 32)
    """

    _dims, _function = 2, staticmethod(F.conv_transpose2d)


class ConvTranspose3d(_ConvTransposeNd):
    """The gradient of Conv3d's input, as a layer.

    layer = nn.ConvTranspose3d(4, 1, kernel_size=2, stride=2)
    y = layer(wick.randn(2, 4, 4, 8, 8))    # (2, 4, 4, 8, 8) -> (2, 1, 8, 16, 16)
    """

    _dims, _function = 3, staticmethod(F.conv_transpose3d)


# ---- lazy ----


class _LazyConv(LazyModuleMixin):
    """Stands before a convolution's class: in_channels is not an argument but that of the first input."""

    def _wait(self, out_channels, bias, device, dtype):
        """Made with no channels and no bias, so that nothing was drawn."""
        self.out_channels = out_channels
        self.weight = uninitialized(device, dtype)
        if bias:
            self.bias = uninitialized(device, dtype)

    def reset_parameters(self):
        """Nothing while there are no sizes."""
        if not self.has_uninitialized_params() and self.in_channels != 0:
            super().reset_parameters()

    def initialize_parameters(self, input, *args, **kwargs):
        """Sizes from the input's channels."""
        if not self.has_uninitialized_params():
            return
        self.in_channels = self._get_in_channels(input)
        if self.in_channels % self.groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        materialize(self, weight=self._weight_size(self.in_channels), bias=(self.out_channels,))
        self.reset_parameters()

    def _get_in_channels(self, input):
        dims = self._dims
        if input.dim() not in (dims + 1, dims + 2):
            raise RuntimeError(
                f"Expected {dims + 1}D (unbatched) or {dims + 2}D (batched) input to {self.__class__.__name__}, but got "
                f"input of size: {input.shape}"
            )
        return input.shape[input.dim() - dims - 1]


class _LazyConvNd(_LazyConv):
    def __init__(
        self, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True, padding_mode="zeros",
        device=None, dtype=None,
    ):  # fmt: skip
        super().__init__(0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode, device, dtype)
        self._wait(out_channels, bias, device, dtype)


class _LazyConvTransposeNd(_LazyConv):
    def __init__(
        self, out_channels, kernel_size, stride=1, padding=0, output_padding=0, groups=1, bias=True, dilation=1,
        padding_mode="zeros", device=None, dtype=None,
    ):  # fmt: skip
        super().__init__(
            0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation, padding_mode, device, dtype
        )
        self._wait(out_channels, bias, device, dtype)


class LazyConv1d(_LazyConvNd, Conv1d):
    """y = nn.LazyConv1d(8, 3)(wick.randn(4, 3, 10))    # (4, 8, 8)"""

    cls_to_become = Conv1d


class LazyConv2d(_LazyConvNd, Conv2d):
    """y = nn.LazyConv2d(8, 3)(wick.randn(4, 3, 10, 10))    # (4, 8, 8, 8)"""

    cls_to_become = Conv2d


class LazyConv3d(_LazyConvNd, Conv3d):
    """y = nn.LazyConv3d(8, 3)(wick.randn(4, 3, 5, 5, 5))    # (4, 8, 3, 3, 3)"""

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyConvTransposeNd, ConvTranspose1d):
    """y = nn.LazyConvTranspose1d(8, 3)(wick.randn(4, 3, 10))    # (4, 8, 12)"""

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyConvTransposeNd, ConvTranspose2d):
    """y = nn.LazyConvTranspose2d(8, 3)(wick.randn(4, 3, 10, 10))    # (4, 8, 12, 12)"""

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyConvTransposeNd, ConvTranspose3d):
    """y = nn.LazyConvTranspose3d(8, 3)(wick.randn(4, 3, 5, 5, 5))    # (4, 8, 7, 7, 7)"""

    cls_to_become = ConvTranspose3d
