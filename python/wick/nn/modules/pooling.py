"""Pooling: averages, largest elements and norms over windows of the last dims."""

from .. import functional as F
from .module import Module

__all__ = [*(f"{kind}Pool{dims}d" for kind in ("Avg", "Max", "LP", "AdaptiveAvg", "AdaptiveMax") for dims in (1, 2, 3))]


def _each(number, dims):
    return tuple(number) if isinstance(number, (tuple, list)) else (number,) * dims


class _MaxPoolNd(Module):
    __constants__ = ["kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode"]
    _pool = None

    def __init__(self, kernel_size, stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False):
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride if stride is not None else kernel_size
        self.padding, self.dilation = padding, dilation
        self.return_indices, self.ceil_mode = return_indices, ceil_mode

    def forward(self, input):
        return type(self)._pool(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            ceil_mode=self.ceil_mode,
            return_indices=self.return_indices,
        )

    def extra_repr(self):
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPoolNd):
    """y = nn.MaxPool1d(2)(wick.randn(1, 3, 8))    # (1, 3, 4)"""

    _pool = F.max_pool1d


class MaxPool2d(_MaxPoolNd):
    """y = nn.MaxPool2d(3, stride=2, padding=1)(wick.randn(1, 3, 8, 8))    # (1, 3, 4, 4)"""

    _pool = F.max_pool2d


class MaxPool3d(_MaxPoolNd):
    """y = nn.MaxPool3d(2)(wick.randn(1, 3, 8, 8, 8))    # (1, 3, 4, 4, 4)"""

    _pool = F.max_pool3d


class _AvgPoolNd(Module):
    __constants__ = ["kernel_size", "stride", "padding", "ceil_mode", "count_include_pad"]

    def extra_repr(self):
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPoolNd):
    """y = nn.AvgPool1d(2)(wick.randn(1, 3, 8))    # (1, 3, 4)"""

    def __init__(self, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
        super().__init__()
        self.kernel_size = _each(kernel_size, 1)
        self.stride = _each(stride if stride is not None else kernel_size, 1)
        self.padding = _each(padding, 1)
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

    def forward(self, input):
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class _WideAvgPoolNd(_AvgPoolNd):
    __constants__ = ["kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override"]
    _pool = None

    def __init__(
        self, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None
    ):
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride if stride is not None else kernel_size
        self.padding, self.ceil_mode = padding, ceil_mode
        self.count_include_pad, self.divisor_override = count_include_pad, divisor_override

    def forward(self, input):
        return type(self)._pool(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )


class AvgPool2d(_WideAvgPoolNd):
    """y = nn.AvgPool2d(3, stride=2)(wick.randn(1, 3, 9, 9))    # (1, 3, 4, 4)"""

    _pool = staticmethod(F.avg_pool2d)


class AvgPool3d(_WideAvgPoolNd):
    """y = nn.AvgPool3d(2)(wick.randn(1, 3, 8, 8, 8))    # (1, 3, 4, 4, 4)"""

    _pool = staticmethod(F.avg_pool3d)

    def __setstate__(self, state):
        super().__setstate__(state)
        for name, value in (("padding", 0), ("ceil_mode", False), ("count_include_pad", True)):
            self.__dict__.setdefault(name, value)


class _LPPoolNd(Module):
    __constants__ = ["norm_type", "kernel_size", "stride", "ceil_mode"]
    _pool = None

    def __init__(self, norm_type, kernel_size, stride=None, ceil_mode=False):
        super().__init__()
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode

    def forward(self, input):
        return type(self)._pool(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)

    def extra_repr(self):
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class LPPool1d(_LPPoolNd):
    """y = nn.LPPool1d(2, 3, stride=2)(wick.randn(1, 3, 9))    # (1, 3, 4)"""

    _pool = F.lp_pool1d


class LPPool2d(_LPPoolNd):
    """y = nn.LPPool2d(2, 3)(wick.randn(1, 3, 9, 9))    # (1, 3, 3, 3)"""

    _pool = F.lp_pool2d


class LPPool3d(_LPPoolNd):
    """y = nn.LPPool3d(2, 3)(wick.randn(1, 3, 9, 9, 9))    # (1, 3, 3, 3, 3)"""

    _pool = F.lp_pool3d


class _AdaptiveAvgPoolNd(Module):
    __constants__ = ["output_size"]
    _pool = None

    def __init__(self, output_size):
        super().__init__()
        self.output_size = output_size

    def forward(self, input):
        return type(self)._pool(input, self.output_size)

    def extra_repr(self):
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """y = nn.AdaptiveAvgPool1d(5)(wick.randn(1, 3, 8))    # (1, 3, 5)"""

    _pool = staticmethod(F.adaptive_avg_pool1d)


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """y = nn.AdaptiveAvgPool2d((1, None))(wick.randn(1, 3, 8, 9))    # (1, 3, 1, 9)"""

    _pool = F.adaptive_avg_pool2d


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """y = nn.AdaptiveAvgPool3d(1)(wick.randn(1, 3, 8, 8, 8))    # (1, 3, 1, 1, 1)"""

    _pool = F.adaptive_avg_pool3d


class _AdaptiveMaxPoolNd(_AdaptiveAvgPoolNd):
    __constants__ = ["output_size", "return_indices"]

    def __init__(self, output_size, return_indices=False):
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, input):
        return type(self)._pool(input, self.output_size, self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """y = nn.AdaptiveMaxPool1d(5)(wick.randn(1, 3, 8))    # (1, 3, 5)"""

    _pool = F.adaptive_max_pool1d


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """y = nn.AdaptiveMaxPool2d((5, 7))(wick.randn(1, 3, 8, 9))    # (1, 3, 5, 7)"""

    _pool = F.adaptive_max_pool2d


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """y = nn.AdaptiveMaxPool3d(2)(wick.randn(1, 3, 8, 8, 8))    # (1, 3, 2, 2, 2)"""

    _pool = F.adaptive_max_pool3d
