"""torch.ao.quantization: the marks that models carry; there are no quantized tensors, so preparing says so."""

from ..._names import cannot, cannot_be_made
from ..._names import getter as _getter
from ...nn import Module

_WHY = "wick has no quantized tensors"
for _name in (
    "convert", "default_qconfig", "fuse_modules", "fuse_modules_qat", "get_default_qat_qconfig", "get_default_qconfig",
    "get_default_qconfig_mapping", "get_default_qat_qconfig_mapping", "prepare", "prepare_qat", "propagate_qconfig_",
    "quantize", "quantize_dynamic", "quantize_qat",
):  # fmt: skip
    globals()[_name] = cannot(f"torch.ao.quantization.{_name}", _WHY)
for _name in (
    "FakeQuantize",
    "HistogramObserver",
    "MinMaxObserver",
    "MovingAverageMinMaxObserver",
    "ObserverBase",
    "QConfig",
):
    globals()[_name] = cannot_be_made(f"torch.ao.quantization.{_name}", _WHY)


class QuantStub(Module):
    """Where a model's input would be quantized: gives it as it is."""

    def __init__(self, qconfig=None):
        super().__init__()
        if qconfig:
            self.qconfig = qconfig

    def forward(self, x):
        return x


class DeQuantStub(QuantStub):
    """Where a model's result would become floats again: gives it as it is."""


class QuantWrapper(Module):
    """A module between the two."""

    def __init__(self, module):
        super().__init__()
        self.quant, self.dequant, self.module = QuantStub(), DeQuantStub(), module
        self.train(module.training)

    def forward(self, X):
        return self.dequant(self.module(self.quant(X)))


def disable_observer(mod):
    """Nothing is observed."""


disable_fake_quant = enable_observer = enable_fake_quant = disable_observer

__getattr__ = _getter(__name__)
