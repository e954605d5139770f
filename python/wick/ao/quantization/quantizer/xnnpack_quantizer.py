"""XNNPACKQuantizer: linear layers, convolutions, sums and what passes numbers on, in int8 with symmetric weights.

>>> quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))

An activation behind a product or a sum belongs to it: only its result is quantized. Tests:
tests/python/test_quantize_pt2e.py.
"""

from dataclasses import dataclass

from .... import _C, _qscheme, ops
from ..fake_quantize import FusedMovingAvgObsFakeQuantize
from ..observer import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
)
from ..qat_norms import KEY as NORM
from ..qat_norms import STATISTICS, WEIGHT
from .quantizer import KEY, QuantizationAnnotation, QuantizationSpec, Quantizer, SharedQuantizationSpec

__all__ = ["QuantizationConfig", "XNNPACKQuantizer", "get_symmetric_quantization_config"]

aten = ops.aten
LINEAR = (aten.linear.default, aten.addmm.default)
CONVOLUTIONS = (aten.convolution.default, aten.conv1d.default, aten.conv2d.default)
ACTIVATIONS = (aten.relu.default, aten.relu_.default, aten.hardtanh.default, aten.clamp.default)
SUMS = (aten.add.Tensor, aten.add_.Tensor)
PASSING = (
    aten.view.default, aten.reshape.default, aten.flatten.using_ints, aten.permute.default, aten.transpose.int,
    aten.squeeze.dim, aten.unsqueeze.default, aten.slice.Tensor, aten.max_pool2d.default, aten.mean.dim,
    aten._adaptive_avg_pool2d.default, aten.adaptive_avg_pool2d.default,
)  # fmt: skip


@dataclass(frozen=True)
class QuantizationConfig:
    """Specs of activations that come in and go out, of weights and of biases; None leaves them as they are."""

    input_activation: QuantizationSpec | None
    output_activation: QuantizationSpec | None
    weight: QuantizationSpec | None
    bias: QuantizationSpec | None = None
    is_qat: bool = False


def _activation(is_qat, is_dynamic, low, high, dtype=_C.int8):
    extra = {"eps": 2**-12}
    if is_dynamic:
        ctr = PlaceholderObserver.with_args(**extra)
        if is_qat:
            ctr = FusedMovingAvgObsFakeQuantize.with_args(
                observer=MovingAverageMinMaxObserver.with_args(averaging_constant=1), **extra
            )
    elif is_qat:
        ctr = FusedMovingAvgObsFakeQuantize.with_args(**extra)
    else:
        ctr = HistogramObserver.with_args(**extra)
    return QuantizationSpec(dtype, ctr, low, high, _qscheme.per_tensor_affine, is_dynamic=is_dynamic)


def _weight(is_per_channel, is_qat, low, high):
    if is_qat:
        observer = MovingAveragePerChannelMinMaxObserver if is_per_channel else MovingAverageMinMaxObserver
        ctr = FusedMovingAvgObsFakeQuantize.with_args(observer=observer, eps=2**-12)
    else:
        ctr = (PerChannelMinMaxObserver if is_per_channel else MinMaxObserver).with_args(eps=2**-12)
    scheme = _qscheme.per_channel_symmetric if is_per_channel else _qscheme.per_tensor_symmetric
    return QuantizationSpec(_C.int8, ctr, low, high, scheme, ch_axis=0 if is_per_channel else None)


def get_symmetric_quantization_config(
    is_per_channel=False, is_qat=False, is_dynamic=False, act_qmin=-128, act_qmax=127, weight_qmin=-127, weight_qmax=127
):
    """int8 for all; weights around zero, a scale for each of their rows with is_per_channel."""
    activation = _activation(is_qat, is_dynamic, act_qmin, act_qmax)
    weight = _weight(is_per_channel, is_qat, weight_qmin, weight_qmax)
    return QuantizationConfig(activation, None if is_dynamic else activation, weight, None, is_qat)


def is_annotated(node):
    """Whether an annotation says something of it."""
    return KEY in node.meta and node.meta[KEY]._annotated


def _mark(node, inputs=None, output=None):
    node.meta[KEY] = QuantizationAnnotation(inputs or {}, output, _annotated=True)


def _lone_activation(node):
    """The activation behind a node, where it alone reads it."""
    users = list(node.users)
    found = len(users) == 1 and users[0].op == "call_function" and users[0].target in ACTIVATIONS
    return users[0] if found and not is_annotated(users[0]) else None


def _close(node, inputs, spec):
    """Annotates a node, or its norm and its activation as well, whose result is then the one."""
    norm = node.meta.get(NORM)
    last = node if norm is None else next(n for n in node.graph.nodes if n.name == norm[0])
    last = _lone_activation(last) or last
    _mark(node, inputs, spec if last is node else None)
    if last is not node:
        _mark(last, {}, spec)


class XNNPACKQuantizer(Quantizer):
    """One config for all operators, and others for types of operators or none of them."""

    def __init__(self):
        self.global_config, self.operator_type_config = None, {}

    def set_global(self, quantization_config):
        """The config of all operators that have none of their own."""
        self.global_config = quantization_config
        return self

    def set_operator_type(self, operator_type, quantization_config):
        """The config of one OpOverload; None leaves it in floats."""
        self.operator_type_config[operator_type] = quantization_config
        return self

    def _config_of(self, node):
        return self.operator_type_config.get(node.target, self.global_config)

    def annotate(self, model):
        """Products first, then sums, then what passes numbers on."""
        nodes = [node for node in model.graph.nodes if node.op == "call_function"]
        for kinds, annotate in ((LINEAR + CONVOLUTIONS, self._product), (SUMS, self._sum), (PASSING, self._passing)):
            for node in nodes:
                config = self._config_of(node)
                if node.target in kinds and config is not None and not is_annotated(node):
                    annotate(node, config)
        return model

    def _product(self, node, config):
        first = 1 if node.target == aten.addmm.default else 0  # addmm(bias, input, weight): the weight is transposed
        x, weight = node.args[first], node.args[first + 1]
        if weight.op != "get_attr" and WEIGHT not in weight.meta:
            return
        inputs = {x: config.input_activation, weight: config.weight}
        _close(node, {n: spec for n, spec in inputs.items() if spec is not None}, config.output_activation)

    def _sum(self, node, config):
        a, b = node.args[:2]
        if STATISTICS in node.meta:
            return
        if not all(hasattr(n, "meta") for n in (a, b)) or config.output_activation is None or _is_integer(a, b):
            return
        spec = config.input_activation
        _close(node, {a: spec, b: spec}, config.output_activation)

    def _passing(self, node, config):
        """Takes the scale of its input where that has one."""
        x = node.args[0]
        if config.output_activation is None or not hasattr(x, "meta"):
            return
        made = x.meta.get(KEY)
        if made is None or made.output_qspec is None:
            return
        _mark(node, {x: SharedQuantizationSpec(x)}, SharedQuantizationSpec((x, node)))


def _is_integer(*nodes):
    values = [n.meta.get("val") for n in nodes]
    return any(v is not None and not v.dtype.is_floating_point for v in values)
