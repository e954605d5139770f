"""Padding: by a constant, by reflection, by the element at the edge, in a circle."""

from collections.abc import Iterable

from .. import functional as F
from .module import Module

__all__ = [
    *(
        f"{kind}Pad{dims}d"
        for kind in ("Circular", "Constant", "Reflection", "Replication", "Zero")
        for dims in (1, 2, 3)
    )
]


class _PadNd(Module):
    """Pads the last `_dims` dimensions; `padding` is one number for all sides, or (before, after) from the last one on."""

    __constants__ = ["padding"]
    _dims, _mode = 1, "constant"

    def __init__(self, padding):
        super().__init__()
        self.padding = tuple(padding) if isinstance(padding, Iterable) else (padding,) * (2 * self._dims)

    def forward(self, input):
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self):
        return f"{self.padding}"


class _ConstantPadNd(_PadNd):
    __constants__ = ["padding", "value"]

    def __init__(self, padding, value):
        super().__init__(padding)
        self.value = value

    def forward(self, input):
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self):
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPadNd):
    """y = nn.ConstantPad1d((1, 2), 0.5)(wick.randn(2, 4))    # (2, 7)"""


class ConstantPad2d(_ConstantPadNd):
    """y = nn.ConstantPad2d(1, 0.5)(wick.randn(2, 4, 4))    # (2, 6, 6)"""

    _dims = 2


class ConstantPad3d(_ConstantPadNd):
    """y = nn.ConstantPad3d(1, 0.5)(wick.randn(2, 4, 4, 4))    # (2, 6, 6, 6)"""

    _dims = 3


class _ZeroPad:
    def __init__(self, padding):
        super().__init__(padding, 0.0)

    def extra_repr(self):
        return f"{self.padding}"


class ZeroPad1d(_ZeroPad, ConstantPad1d):
    """y = nn.ZeroPad1d(1)(wick.randn(2, 4))    # (2, 6)"""


class ZeroPad2d(_ZeroPad, ConstantPad2d):
    """y = nn.ZeroPad2d((1, 1, 0, 2))(wick.randn(2, 4, 4))    # (2, 6, 6)"""


class ZeroPad3d(_ZeroPad, ConstantPad3d):
    """y = nn.ZeroPad3d(1)(wick.randn(2, 4, 4, 4))    # (2, 6, 6, 6)"""


class _ReflectionPadNd(_PadNd):
    _mode = "reflect"


class ReflectionPad1d(_ReflectionPadNd):
    """Mirrors at the edge, which itself is not repeated: 0 1 2 becomes 2 1 0 1 2 1 0 with padding 2.

    y = nn.ReflectionPad1d(2)(wick.randn(2, 4))    # (2, 8)
    """


class ReflectionPad2d(_ReflectionPadNd):
    """y = nn.ReflectionPad2d(1)(wick.randn(2, 4, 4))    # (2, 6, 6)"""

    _dims = 2


class ReflectionPad3d(_ReflectionPadNd):
    """y = nn.ReflectionPad3d(1)(wick.randn(2, 4, 4, 4))    # (2, 6, 6, 6)"""

    _dims = 3


class _ReplicationPadNd(_PadNd):
    _mode = "replicate"


class ReplicationPad1d(_ReplicationPadNd):
    """Repeats the element at the edge.

    y = nn.ReplicationPad1d(2)(wick.randn(2, 4))    # (2, 8)
    """


class ReplicationPad2d(_ReplicationPadNd):
    """y = nn.ReplicationPad2d(1)(wick.randn(2, 4, 4))    # (2, 6, 6)"""

    _dims = 2


class ReplicationPad3d(_ReplicationPadNd):
    """y = nn.ReplicationPad3d(1)(wick.randn(2, 4, 4, 4))    # (2, 6, 6, 6)"""

    _dims = 3


class _CircularPadNd(_PadNd):
    _mode = "circular"

    def forward(self, input):
        least = self._dims + 1
        if input.dim() not in (least, least + 1):
            raise ValueError(f"expected {least}D or {least + 1}D input (got {input.dim()}D input)")
        return super().forward(input)


class CircularPad1d(_CircularPadNd):
    """Goes on at the other end.

    y = nn.CircularPad1d(2)(wick.randn(2, 4))    # (2, 8)
    """


class CircularPad2d(_CircularPadNd):
    """y = nn.CircularPad2d(1)(wick.randn(2, 4, 4))    # (2, 6, 6)"""

    _dims = 2


class CircularPad3d(_CircularPadNd):
    """y = nn.CircularPad3d(1)(wick.randn(2, 4, 4, 4))    # (2, 6, 6, 6)"""

    _dims = 3
