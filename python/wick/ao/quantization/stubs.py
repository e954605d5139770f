"""The marks that models carry for eager quantization: they give tensors on as they are."""

from ...nn import Module


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
