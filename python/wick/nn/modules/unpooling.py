"""The way back from max pooling, and max pooling whose windows lie at random."""

from .. import functional as F
from .module import Module

__all__ = ["FractionalMaxPool2d", "FractionalMaxPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d"]


def _each(number, dims):
    return tuple(number) if isinstance(number, (tuple, list)) else (number,) * dims


class _MaxUnpoolNd(Module):
    _dims = 1

    def __init__(self, kernel_size, stride=None, padding=0):
        super().__init__()
        self.kernel_size = _each(kernel_size, self._dims)
        self.stride = _each(stride if stride is not None else kernel_size, self._dims)
        self.padding = _each(padding, self._dims)

    def forward(self, input, indices, output_size=None):
        unpool = getattr(F, f"max_unpool{self._dims}d")
        return unpool(input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self):
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpoolNd):
    """x = nn.MaxUnpool1d(2)(*nn.MaxPool1d(2, return_indices=True)(wick.randn(1, 3, 8)))    # (1, 3, 8)"""


class MaxUnpool2d(_MaxUnpoolNd):
    """x = nn.MaxUnpool2d(2)(*nn.MaxPool2d(2, return_indices=True)(wick.randn(1, 3, 8, 8)))    # (1, 3, 8, 8)"""

    _dims = 2


class MaxUnpool3d(_MaxUnpoolNd):
    """x = nn.MaxUnpool3d(2)(*nn.MaxPool3d(2, return_indices=True)(wick.randn(1, 3, 4, 4, 4)))    # (1, 3, 4, 4, 4)"""

    _dims = 3


class _FractionalMaxPoolNd(Module):
    __constants__ = ["kernel_size", "return_indices", "output_size", "output_ratio"]
    _dims = 2

    def __init__(self, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None):
        super().__init__()
        self.kernel_size = _each(kernel_size, self._dims)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else _each(output_size, self._dims)
        self.output_ratio = None if output_ratio is None else _each(output_ratio, self._dims)
        name = type(self).__name__
        if output_size is None and output_ratio is None:
            raise ValueError(f"{name} requires specifying either an output size, or a pooling ratio")
        if output_size is not None and output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified")
        if self.output_ratio is not None and not all(0 < ratio < 1 for ratio in self.output_ratio):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")

    def forward(self, input):
        pool = getattr(F, f"fractional_max_pool{self._dims}d")
        return pool(
            input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples
        )


class FractionalMaxPool2d(_FractionalMaxPoolNd):
    """y = nn.FractionalMaxPool2d(2, output_ratio=0.7)(wick.randn(1, 3, 10, 10))    # (1, 3, 7, 7)"""


class FractionalMaxPool3d(_FractionalMaxPoolNd):
    """y = nn.FractionalMaxPool3d(2, output_size=3)(wick.randn(1, 3, 5, 5, 5))    # (1, 3, 3, 3, 3)"""

    _dims = 3
