"""Linear layers whose weights are integers: what quantize_, quantize_dynamic and files of GGUF put in the place of nn.Linear.

>>> QuantizedLinear.from_float(wick.nn.Linear(64, 32), "int8")
QuantizedLinear(in_features=64, out_features=32, bias=True, format=int8)

Weights are buffers, scales too, so that a state_dict has them. docs/quantization.md has the formats and formulas. Tests:
tests/python/test_quantize.py.
"""

from ... import _C
from ...nn import Module, Parameter

EPS = 2.0**-23  # the least scale: float32's epsilon
ROWS = 16  # the rows of an int4 weight come in so many


def int8_channels(weight):
    """(int8, scales): the rows of a weight (n, k) as round(w / scale), with scale = max|w| / 127.5."""
    weight = weight.detach().float()
    scales = (weight.abs().amax(dim=1) / 127.5).clamp(min=EPS)
    return (weight * (1.0 / scales)[:, None]).round().clamp(-128, 127).to(_C.int8), scales


def int4_groups(weight, group_size):
    """(packed, scales and zeros) of a weight (n, k): w = (q - 8) scale + zero, q from 0 to 15, for each group of a row.

    Rows are added until there are sixteens of them.
    """
    weight = weight.detach().float()
    n, k = weight.shape
    if k % group_size:
        raise ValueError(f"int4: rows of {k} cannot be cut into groups of {group_size}")
    groups = weight.reshape(n, k // group_size, group_size)
    low, high = groups.amin(dim=2), groups.amax(dim=2)
    scales = ((high - low) / 15).clamp(min=1e-6)
    q = ((groups - low[:, :, None]) / scales[:, :, None]).round().clamp(0, 15).to(_C.int32).reshape(n, k)
    pairs = _C.stack((scales, low + scales * 8), dim=2).transpose(0, 1)
    more = -n % ROWS
    if more:
        q = _C.cat((q, _C.full((more, k), 8, dtype=_C.int32)))
        pairs = _C.cat((pairs, _C.zeros(k // group_size, more, 2)), dim=1)
    return _C._convert_weight_to_int4pack_for_cpu(q, 1), pairs.contiguous()


class QuantizedLinear(Module):
    """y = x w' + b with a weight of a format: x stays as it is, in float32, half or bfloat16."""

    def __init__(self, in_features, out_features, weight, scales=None, bias=None, format="int8", group_size=0):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.format, self.group_size = format, group_size
        self.register_buffer("weight", weight)
        self.register_buffer("scales", scales)
        self.bias = None if bias is None else Parameter(bias.detach(), requires_grad=bias.requires_grad)

    @classmethod
    def from_float(cls, module, format="int8", group_size=128):
        """Of an nn.Linear."""
        if format == "bf16":
            weight = module.weight.detach().to(_C.bfloat16).contiguous().view(_C.uint8)
            return cls(module.in_features, module.out_features, weight, None, module.bias, format)
        if format == "int8":
            return cls(module.in_features, module.out_features, *int8_channels(module.weight), module.bias)
        packed, pairs = int4_groups(module.weight, group_size)
        sizes = module.in_features, module.out_features
        return cls(*sizes, packed, pairs, module.bias, format, group_size)

    def dequantize(self):
        """The weight in float32: (out_features, in_features)."""
        whole = _C._quant_weight(self.weight, self.format, self.scales, self.group_size)
        return whole[: self.out_features]

    def forward(self, input):
        bias = self.bias
        if self.weight.shape[0] == self.out_features:
            return _C._quant_linear(input, self.weight, self.format, self.scales, self.group_size, bias)
        y = _C._quant_linear(input, self.weight, self.format, self.scales, self.group_size)
        y = y[..., : self.out_features]
        return y if bias is None else y + bias

    def extra_repr(self):
        text = f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
        group = f", group_size={self.group_size}" if self.group_size else ""
        return f"{text}, format={self.format}{group}"


class DynamicQuantizedLinear(Module):
    """The same with a weight of int8, and x as int8 too: each row of it has a scale of its own, found as it comes."""

    def __init__(self, in_features, out_features, weight, scales, bias=None):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.register_buffer("weight", weight)
        self.register_buffer("scales", scales)
        self.bias = None if bias is None else Parameter(bias.detach(), requires_grad=False)

    @classmethod
    def from_float(cls, module):
        """Of an nn.Linear."""
        return cls(module.in_features, module.out_features, *int8_channels(module.weight), module.bias)

    def forward(self, input):
        return _C._int8_dynamic_linear(input, self.weight, self.scales, self.bias)

    def extra_repr(self):
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
