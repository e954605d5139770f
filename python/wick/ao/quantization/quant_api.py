"""quantize_(model, config): a model whose linear layers have quantized weights, in torchao's form.

>>> model = wick.nn.Sequential(wick.nn.Linear(64, 32))
>>> quantize_(model, Int8WeightOnlyConfig())
>>> model[0].format
'int8'

A config says what becomes of a layer; layers are replaced in their place. Tests: tests/python/test_quantize.py.
"""

from dataclasses import dataclass

from ...nn import Linear
from .linear import DynamicQuantizedLinear, QuantizedLinear

__all__ = [
    "Int4WeightOnlyConfig",
    "Int8DynamicActivationInt8WeightConfig",
    "Int8WeightOnlyConfig",
    "quantize_",
]


@dataclass
class Int8WeightOnlyConfig:
    """Weights of int8 with a scale for each row; activations stay floats. A quarter of float32's memory."""

    def replace(self, layer):
        """The layer that stands for an nn.Linear."""
        return QuantizedLinear.from_float(layer, "int8")


@dataclass
class Int4WeightOnlyConfig:
    """Weights of int4 with a scale and a zero for each group of a row. An eighth of float32's memory, and scales.

    Layers whose rows cannot be cut into such groups stay as they are.
    """

    group_size: int = 128

    def replace(self, layer):
        """The layer that stands for an nn.Linear."""
        if self.group_size not in (32, 64, 128, 256):
            raise ValueError(f"group_size is 32, 64, 128 or 256, not {self.group_size}")
        if layer.in_features % self.group_size:
            return layer
        return QuantizedLinear.from_float(layer, "int4", self.group_size)


@dataclass
class Int8DynamicActivationInt8WeightConfig:
    """Weights of int8 with a scale for each row, and activations as int8 with a scale for each of theirs."""

    def replace(self, layer):
        """The layer that stands for an nn.Linear."""
        return DynamicQuantizedLinear.from_float(layer)


def _is_linear(module, name):
    return isinstance(module, Linear)


def quantize_(model, config, filter_fn=None):
    """Replaces the layers of a model that filter_fn(module, name) chooses, all of nn.Linear without one.

    quantize_(model, Int4WeightOnlyConfig(group_size=32), lambda m, name: isinstance(m, nn.Linear) and name != "head")
    """
    chosen = filter_fn or _is_linear
    replaced = {}  # layers that stand in several places stay one

    def visit(parent, prefix):
        for name, child in list(parent._modules.items()):  # each place of a layer that has several
            if child is None:
                continue
            path = f"{prefix}.{name}" if prefix else name
            if chosen(child, path):
                if id(child) not in replaced:
                    replaced[id(child)] = child, config.replace(child)
                setattr(parent, name, replaced[id(child)][1])
            else:
                visit(child, path)

    if chosen(model, ""):
        raise ValueError("quantize_: the model is a linear layer itself, and has no place to put another one")
    visit(model, "")
