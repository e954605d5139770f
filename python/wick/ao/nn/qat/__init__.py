"""torch.ao.nn.qat: layers whose weights are rounded in each call, to the numbers that bytes will stand for.

>>> Linear(4, 2, qconfig=get_default_qat_qconfig())(x)                 # doctest: +SKIP

prepare_qat puts them in the place of layers. Tests: tests/python/test_quantize_qat_modules.py.
"""

from ...._names import getter as _getter
from ....nn import Conv1d as _Conv1d
from ....nn import Conv2d as _Conv2d
from ....nn import Conv3d as _Conv3d
from ....nn import Linear as _Linear
from ....nn import functional

__all__ = ["Conv1d", "Conv2d", "Conv3d", "Linear"]

_CONVOLUTION = ("in_channels out_channels kernel_size stride padding dilation groups padding_mode").split()


def geometry(layer):
    """What a layer of the same sizes is made with."""
    names = ["in_features", "out_features"] if isinstance(layer, _Linear) else _CONVOLUTION
    return {**{name: getattr(layer, name) for name in names}, "bias": layer.bias is not None}


class Rounding:
    """Of a layer: the qconfig, and the module that rounds its weight."""

    _FLOAT_MODULE = None
    rectifies = False  # whether a ReLU is behind it

    def __init__(self, *args, qconfig=None, **kwargs):
        super().__init__(*args, **kwargs)
        if not qconfig:
            raise AssertionError("qconfig must be provided for QAT module")
        self.qconfig = qconfig
        self.weight_fake_quant = qconfig.weight()

    def _apply_layer(self, x, weight, bias):
        if isinstance(self, _Linear):
            return functional.linear(x, weight, bias)
        return self._conv_forward(x, weight, bias)

    def forward(self, input):
        y = self._apply_layer(input, self.weight_fake_quant(self.weight), self.bias)
        return functional.relu(y) if self.rectifies else y

    @classmethod
    def _check_float(cls, mod):
        if type(mod) is not cls._FLOAT_MODULE:
            raise AssertionError(
                f"qat.{cls.__name__}.from_float only works for {cls._FLOAT_MODULE.__name__}, got {type(mod).__name__}"
            )
        if not getattr(mod, "qconfig", None):
            raise AssertionError("Input float module must have qconfig defined")

    @classmethod
    def from_float(cls, mod, use_precomputed_fake_quant=False):
        """One with the parameters of a layer that has a qconfig."""
        cls._check_float(mod)
        layer = mod[0] if cls.rectifies else mod
        made = cls(**geometry(layer), qconfig=mod.qconfig)
        made.weight, made.bias = layer.weight, layer.bias
        return made.train(mod.training)

    def plain(self):
        """The layer itself, without what is behind it."""
        kind = next(c for c in type(self).__mro__ if c in (_Conv1d, _Conv2d, _Conv3d, _Linear))
        made = kind(**geometry(self))
        made.weight, made.bias = self.weight, self.bias
        return made.train(self.training)

    def to_float(self):
        """The layer that it was made of."""
        return self.plain()


class Linear(Rounding, _Linear):
    """A Linear with a rounded weight."""

    _FLOAT_MODULE = _Linear


class Conv1d(Rounding, _Conv1d):
    """A Conv1d with a rounded weight."""

    _FLOAT_MODULE = _Conv1d


class Conv2d(Rounding, _Conv2d):
    """A Conv2d with a rounded weight."""

    _FLOAT_MODULE = _Conv2d


class Conv3d(Rounding, _Conv3d):
    """A Conv3d with a rounded weight."""

    _FLOAT_MODULE = _Conv3d


__getattr__ = _getter(__name__)
