"""torch.ao.nn.intrinsic: layers that fuse_modules puts together, so that one observer stands behind both.

>>> ConvReLU2d(wick.nn.Conv2d(3, 8, 3), wick.nn.ReLU())[1]
ReLU()

Tests: tests/python/test_quantize_eager.py.
"""

from ...._names import late as _late
from ....nn import BatchNorm1d, BatchNorm2d, BatchNorm3d, Conv1d, Conv2d, Conv3d, Linear, ReLU, Sequential

__all__ = [
    "ConvBn1d", "ConvBn2d", "ConvBn3d", "ConvBnReLU1d", "ConvBnReLU2d", "ConvBnReLU3d", "ConvReLU1d", "ConvReLU2d",
    "ConvReLU3d", "LinearBn1d", "LinearReLU",
]  # fmt: skip


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


# ---- with batch norms, for training ----


class _WithNorm(Sequential):
    types = ()  # of the layers

    def __init__(self, *layers):
        if tuple(type(layer) for layer in layers) != self.types:
            raise AssertionError("Incorrect types for input modules" + "".join(str(type(layer)) for layer in layers))
        super().__init__(*layers)


class ConvBn1d(_WithNorm):
    """A Conv1d, then a BatchNorm1d."""

    types = Conv1d, BatchNorm1d


class ConvBn2d(_WithNorm):
    """A Conv2d, then a BatchNorm2d."""

    types = Conv2d, BatchNorm2d


class ConvBn3d(_WithNorm):
    """A Conv3d, then a BatchNorm3d."""

    types = Conv3d, BatchNorm3d


class ConvBnReLU1d(_WithNorm):
    """A Conv1d, a BatchNorm1d and a ReLU."""

    types = Conv1d, BatchNorm1d, ReLU


class ConvBnReLU2d(_WithNorm):
    """A Conv2d, a BatchNorm2d and a ReLU."""

    types = Conv2d, BatchNorm2d, ReLU


class ConvBnReLU3d(_WithNorm):
    """A Conv3d, a BatchNorm3d and a ReLU."""

    types = Conv3d, BatchNorm3d, ReLU


class LinearBn1d(_WithNorm):
    """A Linear, then a BatchNorm1d."""

    types = Linear, BatchNorm1d


__getattr__ = _late(__name__, ("qat",))
