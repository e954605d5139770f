"""torch.ao.nn.intrinsic: layers that fuse_modules puts together, so that one observer stands behind both.

>>> ConvReLU2d(wick.nn.Conv2d(3, 8, 3), wick.nn.ReLU())[1]
ReLU()

Tests: tests/python/test_quantize_eager.py.
"""

from ...._names import getter as _getter
from ....nn import Conv1d, Conv2d, Conv3d, Linear, ReLU, Sequential

__all__ = ["ConvReLU1d", "ConvReLU2d", "ConvReLU3d", "LinearReLU"]


class _FusedModule(Sequential):
    first = None  # the type of the first layer; a ReLU is the second

    def __init__(self, first, relu):
        if type(first) is not self.first or type(relu) is not ReLU:
            raise AssertionError(f"Incorrect types for input modules{type(first)}{type(relu)}")
        super().__init__(first, relu)


class ConvReLU1d(_FusedModule):
    """A Conv1d, then a ReLU."""

    first = Conv1d


class ConvReLU2d(_FusedModule):
    """A Conv2d, then a ReLU."""

    first = Conv2d


class ConvReLU3d(_FusedModule):
    """A Conv3d, then a ReLU."""

    first = Conv3d


class LinearReLU(_FusedModule):
    """A Linear, then a ReLU."""

    first = Linear


__getattr__ = _getter(__name__)
