"""torch.ao.nn.intrinsic.qat: fused layers whose weights are rounded in each call. With a batch norm it is the weight that
it is folded into which is rounded; ao/quantization/qat_norms.py has the formula.

Tests: tests/python/test_quantize_qat_modules.py.
"""

from ....._names import getter as _getter
from .....nn import BatchNorm1d, BatchNorm2d, BatchNorm3d, ReLU, functional
from .....nn import Conv1d as _Conv1d
from .....nn import Conv2d as _Conv2d
from .....nn import Conv3d as _Conv3d
from .....nn import Linear as _Linear
from .....nn.utils.fusion import fuse_conv_bn_weights, fuse_linear_bn_weights
from ... import intrinsic as _floats
from ... import qat
from ...qat import Rounding, geometry

__all__ = [
    "ConvBn1d", "ConvBn2d", "ConvBn3d", "ConvBnReLU1d", "ConvBnReLU2d", "ConvBnReLU3d", "ConvReLU1d", "ConvReLU2d",
    "ConvReLU3d", "LinearBn1d", "LinearReLU", "freeze_bn_stats", "update_bn_stats",
]  # fmt: skip


class _Rectified:
    rectifies = True

    def to_float(self):
        return self._FLOAT_MODULE(self.plain(), ReLU())


class _Normed(Rounding):
    """A layer and the batch norm behind it."""

    _NORM = None

    def __init__(self, *args, bias=None, eps=1e-5, momentum=0.1, freeze_bn=False, qconfig=None, **kwargs):
        super().__init__(*args, bias=bool(bias), qconfig=qconfig, **kwargs)
        self.bn = self._NORM(len(self.weight), eps, momentum)
        self.freeze_bn = freeze_bn if self.training else True
        self.bn.training = not self.freeze_bn

    def forward(self, input):
        factor = self.bn.weight / (self.bn.running_var + self.bn.eps).sqrt()
        ones = [1] * (self.weight.dim() - 2)
        weight = self.weight_fake_quant(self.weight * factor.reshape(-1, 1, *ones))
        y = self._apply_layer(input, weight, None) / factor.reshape(1, -1, *ones)
        if self.bias is not None:
            y = y + self.bias.reshape(1, -1, *ones)
        y = self.bn(y)
        return functional.relu(y) if self.rectifies else y

    def train(self, mode=True):
        """The norm stays as it is where its statistics are frozen."""
        self.training = mode
        if not self.freeze_bn:
            for module in self.children():
                module.train(mode)
        return self

    def freeze_bn_stats(self):
        """Running statistics stay as they are, and are what is used."""
        self.freeze_bn, self.bn.training = True, False
        return self

    def update_bn_stats(self):
        """Running statistics go on."""
        self.freeze_bn, self.bn.training = False, True
        return self

    def reset_running_stats(self):
        """Forgets them."""
        self.bn.reset_running_stats()

    @classmethod
    def from_float(cls, mod, use_precomputed_fake_quant=False):
        """One with the parameters of fused layers that have a qconfig."""
        cls._check_float(mod)
        layer, norm = mod[0], mod[1]
        made = cls(**geometry(layer), eps=norm.eps, momentum=norm.momentum, qconfig=mod.qconfig)
        made.weight, made.bias, made.bn = layer.weight, layer.bias, norm
        return made

    def plain(self):
        """The layer that both are in evaluation."""
        made = super().plain()
        norm, fuse = self.bn, fuse_linear_bn_weights if isinstance(self, _Linear) else fuse_conv_bn_weights
        made.weight, made.bias = fuse(
            made.weight, made.bias, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
        )
        return made

    def to_float(self):
        layer = self.plain()
        relu = {_Conv1d: _floats.ConvReLU1d, _Conv2d: _floats.ConvReLU2d, _Conv3d: _floats.ConvReLU3d}
        return relu[type(layer)](layer, ReLU()) if self.rectifies else layer


def freeze_bn_stats(mod):
    """For model.apply()."""
    if isinstance(mod, _Normed):
        mod.freeze_bn_stats()


def update_bn_stats(mod):
    """For model.apply()."""
    if isinstance(mod, _Normed):
        mod.update_bn_stats()


class ConvReLU1d(_Rectified, qat.Conv1d):
    """A Conv1d with a rounded weight, then a ReLU."""

    _FLOAT_MODULE = _floats.ConvReLU1d


class ConvBn1d(_Normed, _Conv1d):
    """A Conv1d, then a BatchNorm1d."""

    _FLOAT_MODULE, _NORM = _floats.ConvBn1d, BatchNorm1d


class ConvBnReLU1d(ConvBn1d):
    """A Conv1d, a BatchNorm1d and a ReLU."""

    _FLOAT_MODULE, rectifies = _floats.ConvBnReLU1d, True


class ConvReLU2d(_Rectified, qat.Conv2d):
    """A Conv2d with a rounded weight, then a ReLU."""

    _FLOAT_MODULE = _floats.ConvReLU2d


class ConvBn2d(_Normed, _Conv2d):
    """A Conv2d, then a BatchNorm2d."""

    _FLOAT_MODULE, _NORM = _floats.ConvBn2d, BatchNorm2d


class ConvBnReLU2d(ConvBn2d):
    """A Conv2d, a BatchNorm2d and a ReLU."""

    _FLOAT_MODULE, rectifies = _floats.ConvBnReLU2d, True


class ConvReLU3d(_Rectified, qat.Conv3d):
    """A Conv3d with a rounded weight, then a ReLU."""

    _FLOAT_MODULE = _floats.ConvReLU3d


class ConvBn3d(_Normed, _Conv3d):
    """A Conv3d, then a BatchNorm3d."""

    _FLOAT_MODULE, _NORM = _floats.ConvBn3d, BatchNorm3d


class ConvBnReLU3d(ConvBn3d):
    """A Conv3d, a BatchNorm3d and a ReLU."""

    _FLOAT_MODULE, rectifies = _floats.ConvBnReLU3d, True


class LinearReLU(_Rectified, qat.Linear):
    """A Linear with a rounded weight, then a ReLU."""

    _FLOAT_MODULE = _floats.LinearReLU


class LinearBn1d(_Normed, _Linear):
    """A Linear, then a BatchNorm1d."""

    _FLOAT_MODULE, _NORM = _floats.LinearBn1d, BatchNorm1d


__getattr__ = _getter(__name__)
