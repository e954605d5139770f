"""quantize_dynamic: a copy of a model whose linear and recurrent layers have int8 weights, and find scales for their inputs
as they come.

>>> quantized = quantize_dynamic(model, {wick.nn.Linear})              # doctest: +SKIP

PyTorch's has one scale for an input and one for a weight; here each row of both has its own, which is closer to the
floats. Tests: tests/python/test_quantize.py.
"""

import copy
import sys

from ... import _C
from ..._names import late as _late
from ...nn import LSTM, Linear, Module
from .linear import DynamicQuantizedLinear, QuantizedLinear, int8_channels

__all__ = ["DynamicQuantizedLSTM", "propagate_qconfig_", "quantize_dynamic"]


class DynamicQuantizedLSTM(Module):
    """An LSTM whose gates are products of bytes; states stay floats."""

    def __init__(self, module):
        super().__init__()
        if module.proj_size:
            raise NotImplementedError("quantize_dynamic: LSTM with proj_size")
        self.input_size, self.hidden_size, self.num_layers = module.input_size, module.hidden_size, module.num_layers
        self.bias, self.batch_first, self.bidirectional = module.bias, module.batch_first, module.bidirectional
        self.dropout = module.dropout
        for layer in range(module.num_layers):
            for end in ("", "_reverse")[: 1 + module.bidirectional]:
                for kind in ("ih", "hh"):
                    name = f"{kind}_l{layer}{end}"
                    weight, scales = int8_channels(getattr(module, f"weight_{name}"))
                    self.register_buffer(f"weight_{name}", weight)
                    self.register_buffer(f"scales_{name}", scales)
                    bias = getattr(module, f"bias_{name}").detach().clone() if module.bias else None
                    self.register_buffer(f"bias_{name}", bias)

    def _gates(self, name, x):
        parts = (getattr(self, f"{part}_{name}") for part in ("weight", "scales", "bias"))
        return _C._int8_dynamic_linear(x, *parts)

    def _direction(self, x, h, c, name, reverse):
        """x (T, B, I), h and c (B, H)."""
        inputs, out = self._gates(f"ih_{name}", x), []
        for step in reversed(range(len(x))) if reverse else range(len(x)):
            i, f, g, o = (inputs[step] + self._gates(f"hh_{name}", h)).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            out.append(h)
        return _C.stack(out[::-1] if reverse else out), h, c

    def forward(self, input, hx=None):
        x = input.transpose(0, 1) if self.batch_first and input.dim() == 3 else input
        alone = x.dim() == 2
        x = x.unsqueeze(1) if alone else x
        ends = ("", "_reverse")[: 1 + self.bidirectional]
        if hx is None:
            zeros = _C.zeros(self.num_layers * len(ends), x.shape[1], self.hidden_size, dtype=x.dtype)
            hx = zeros, zeros
        elif alone:
            hx = hx[0].unsqueeze(1), hx[1].unsqueeze(1)
        last_h, last_c = [], []
        for layer in range(self.num_layers):
            results = []
            for k, end in enumerate(ends):
                at = layer * len(ends) + k
                y, h, c = self._direction(x, hx[0][at], hx[1][at], f"l{layer}{end}", bool(end))
                results.append(y)
                last_h.append(h)
                last_c.append(c)
            x = _C.cat(results, 2) if len(results) > 1 else results[0]
        h, c = _C.stack(last_h), _C.stack(last_c)
        if alone:
            x, h, c = x.squeeze(1), h.squeeze(1), c.squeeze(1)
        return (x.transpose(0, 1) if self.batch_first and not alone else x), (h, c)

    def extra_repr(self):
        return f"{self.input_size}, {self.hidden_size}, num_layers={self.num_layers}"


_REPLACED = {Linear: DynamicQuantizedLinear.from_float, LSTM: DynamicQuantizedLSTM}


def _chosen(qconfig_spec, module, name):
    """Whether the spec has the module: by its type or its name; without a spec it is any."""
    if qconfig_spec is None:
        return True
    keys = (type(module), name)
    if isinstance(qconfig_spec, dict):
        found = next((qconfig_spec[key] for key in keys if key in qconfig_spec), None)
        return found is not None
    return any(key in qconfig_spec for key in keys)


def quantize_dynamic(model, qconfig_spec=None, dtype=_C.int8, mapping=None, inplace=False):
    """Replaces nn.Linear and nn.LSTM, those of the spec: a set or dict of types and names.

    mapping: {type: what makes the other module of one}, instead of wick's own.
    """
    if dtype != _C.int8:
        raise ValueError(f"Don't know how to quantize with default settings for {dtype}. Provide full qconfig please")
    replaced = _REPLACED if mapping is None else mapping
    model = model if inplace else copy.deepcopy(model)
    if type(model) in replaced and _chosen(qconfig_spec, model, ""):
        return replaced[type(model)](model)

    made = {}  # layers that stand in several places stay one

    def visit(parent, prefix):
        for name, child in list(parent._modules.items()):
            path = f"{prefix}.{name}" if prefix else name
            if type(child) in replaced and _chosen(qconfig_spec, child, path):
                if id(child) not in made:
                    made[id(child)] = child, replaced[type(child)](child)
                setattr(parent, name, made[id(child)][1])
            elif child is not None and not isinstance(child, (QuantizedLinear, DynamicQuantizedLinear)):
                visit(child, path)

    visit(model, "")
    return model


def propagate_qconfig_(module, qconfig_dict=None, prepare_custom_config_dict=None):
    """Gives each module its qconfig: by its name, by its type, or its parent's."""
    given = qconfig_dict or {}

    def visit(owner, inherited, prefix):
        own = given.get(type(owner), given.get(prefix, getattr(owner, "qconfig", inherited)))
        owner.qconfig = own
        for name, child in owner.named_children():
            visit(child, own, f"{prefix}.{name}" if prefix else name)

    visit(module, given.get("", None), "")


class _AsFunction(type(sys)):
    """torch.ao.quantization.quantize is this module and the function of that name."""

    def __call__(self, *args, **kwargs):
        from .eager import quantize

        return quantize(*args, **kwargs)


sys.modules[__name__].__class__ = _AsFunction
__getattr__ = _late(
    __name__,
    (),
    dict.fromkeys(("convert", "prepare", "prepare_qat", "quantize", "quantize_qat"), "eager"),
    beside=__package__,
)
