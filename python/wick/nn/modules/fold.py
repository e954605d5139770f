"""Patches of images as columns, and back."""

from .. import functional as F
from .module import Module

__all__ = ["Fold", "Unfold"]


class Fold(Module):
    """Adds columns of patches up to images: (N, C * elements of the kernel, places) -> (N, C, *output_size).

    layer = nn.Fold(output_size=(4, 5), kernel_size=(2, 2))
    y = layer(wick.randn(1, 3 * 2 * 2, 12))    # (1, 3, 4, 5)
    """

    __constants__ = ["output_size", "kernel_size", "dilation", "padding", "stride"]

    def __init__(self, output_size, kernel_size, dilation=1, padding=0, stride=1):
        super().__init__()
        self.output_size = output_size
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input):
        return F.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self):
        return ", ".join(f"{name}={getattr(self, name)}" for name in self.__constants__)


class Unfold(Module):
    """The patches of images as columns: (N, C, H, W) -> (N, C * elements of the kernel, places).

    layer = nn.Unfold(kernel_size=(2, 3))
    y = layer(wick.randn(2, 5, 3, 4))    # (2, 30, 4)
    """

    __constants__ = ["kernel_size", "dilation", "padding", "stride"]

    def __init__(self, kernel_size, dilation=1, padding=0, stride=1):
        super().__init__()
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input):
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self):
        return ", ".join(f"{name}={getattr(self, name)}" for name in self.__constants__)
