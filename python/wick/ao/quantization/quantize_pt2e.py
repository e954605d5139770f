"""Quantization of captured graphs: prepare_pt2e puts observers in, convert_pt2e puts quantization in their place.

>>> graph = capture(model, (x,))                       # doctest: +SKIP
>>> prepared = prepare_pt2e(graph, XNNPACKQuantizer().set_global(get_symmetric_quantization_config()))
>>> prepared(x)                                        # calibration
>>> quantized = convert_pt2e(prepared)
>>> wick.compile(quantized)(x)

What comes out is a graph of quantized_decomposed operators around the float ones: quantize -> dequantize -> linear ->
quantize -> dequantize. Weights are int8 in it. It runs as it is; compile makes products of bytes of it
(docs/quantization.md). Tests: tests/python/test_quantize_pt2e.py.
"""

import copy
import operator

from ... import _C, _qscheme
from ..._ops import ops
from ...fx import GraphModule, Node
from ...fx.experimental.proxy_tensor import make_fx
from . import qat_norms
from .fake_quantize import FakeQuantizeBase, FusedMovingAvgObsFakeQuantize
from .observer import FixedQParamsObserver, ObserverBase, PlaceholderObserver
from .quantizer.quantizer import KEY, FixedQParamsQuantizationSpec, SharedQuantizationSpec

__all__ = ["capture", "convert_pt2e", "prepare_pt2e", "prepare_qat_pt2e"]

q = ops.quantized_decomposed


def capture(model, args):
    """A model as a graph of ATen's operators, as it is at this moment: in training or not. Sizes are those of args."""
    return make_fx(lambda *inputs: model(*inputs))(*args)


# ---- batch norms of evaluation ----


def _constant(model, node):
    """The tensor of a node that depends on the model's tensors alone; None: it depends on more."""
    if node.op == "get_attr":
        return operator.attrgetter(node.target)(model).detach()
    if node.op != "call_function":
        return None
    values = [_constant(model, arg) if isinstance(arg, Node) else arg for arg in node.args]
    if node.kwargs.keys() - {"value"} or any(
        v is None and a is not None for v, a in zip(values, node.args, strict=True)
    ):
        return None
    return node.target(*values, **node.kwargs)


def _folded(model, conv, norm):
    """(weight, bias) of a convolution that does what both do; None: there is none."""
    aten = ops.aten
    if norm.target is not aten._native_batch_norm.default or norm.args[7] or not isinstance(conv, Node):
        return None
    if conv.target is not aten.convolution.default or conv.args[6] or len(conv.users) != 1:
        return None
    _, weight, bias = conv.args[:3]
    sources = [weight, norm.args[5], norm.args[6], *([bias] if bias is not None else [])]
    values = [_constant(model, source) if isinstance(source, Node) else None for source in sources]
    if any(value is None for value in values):
        return None
    weight, gain, shift, *bias = values
    by_channel = gain.reshape(-1, *[1] * (weight.dim() - 1))
    return weight * by_channel, bias[0] * gain + shift if bias else shift


def _fold_norms(model):
    """Takes batch norms that use running statistics into the convolutions before them."""
    for norm in list(model.graph.nodes):
        conv = norm.args[0] if norm.op == "call_function" and norm.args else None
        found = _folded(model, conv, norm) if norm.op == "call_function" else None
        if found is None:
            continue
        with model.graph.inserting_before(conv):
            weight, bias = (
                model.graph.get_attr(_buffer(model, f"_folded_{n}", t)) for n, t in zip("wb", found, strict=True)
            )
        weight.meta["folded_from"] = conv.args[1].meta.get("folded_from", getattr(conv.args[1], "target", None))
        conv.args = (conv.args[0], weight, bias, *conv.args[3:])
        norm.replace_all_uses_with(conv)
    model.graph.eliminate_dead_code()
    model.recompile()


# ---- prepare ----


class _Observers:
    """Which observer an edge or a node's output has; those that share are one."""

    def __init__(self):
        self.of_edge, self.of_output, self.specs = {}, {}, {}

    def shared(self, spec):
        """The observer of another edge or output."""
        place = spec.edge_or_node
        found = self.of_edge.get(place) if isinstance(place, tuple) else self.of_output.get(place)
        if found is None:
            raise ValueError(f"SharedQuantizationSpec: {place} is not quantized, or stands later")
        return found

    def make(self, spec):
        """A new observer."""
        observer = self._made(spec)
        self.specs[id(observer)] = spec
        return observer

    @staticmethod
    def _made(spec):
        if isinstance(spec, FixedQParamsQuantizationSpec):
            scheme = spec.qscheme or _qscheme.per_tensor_affine
            return FixedQParamsObserver(spec.scale, spec.zero_point, spec.dtype, scheme, spec.quant_min, spec.quant_max)
        names = ("dtype", "quant_min", "quant_max", "qscheme", "ch_axis", "is_dynamic")
        given = {name: getattr(spec, name) for name in names if getattr(spec, name) is not None}
        if not given["is_dynamic"]:
            del given["is_dynamic"]
        return spec.observer_or_fake_quant_ctr(**given)

    def output(self, node, spec):
        """That of a node's output."""
        if node not in self.of_output:
            if isinstance(spec, SharedQuantizationSpec):
                self.of_output[node] = self.shared(spec)
            else:
                self.of_output[node] = self.make(spec)
        return self.of_output[node]

    def edge(self, source, user, spec, others):
        """That of an input: the source's own, or another input's, where it is of the same kind."""
        if isinstance(spec, SharedQuantizationSpec):
            observer = self.shared(spec)
        else:
            observer = next((self.of_edge[e] for e, s in others.items() if e[0] is source and s == spec), None)
            own = self.of_output.get(source)
            if observer is None and own is not None and self.specs[id(own)] == spec:
                observer = own
            observer = observer or self.make(spec)
        self.of_edge[source, user] = observer
        return observer


def _insert(model, observer, source, readers, names):
    """Puts the observer behind a node for these readers; one call for each node that it stands behind."""
    name = next((n for n, m in model.named_children() if m is observer), None)
    if name is None:
        name = f"activation_post_process_{len(names)}"
        names.append(name)
        setattr(model, name, observer)
    with model.graph.inserting_after(source):
        call = model.graph.call_module(name, (source,))
    for reader in readers:
        reader.replace_input_with(source, call)
    return call


def _prepare(model, quantizer, fold):
    if not isinstance(model, GraphModule):
        raise TypeError("prepare_pt2e takes a captured graph: capture(model, args), or an exported program's module()")
    model = copy.deepcopy(model)
    if fold:
        _fold_norms(model)
    else:
        qat_norms.scale_weights(model)
    model = quantizer.transform_for_annotation(model)
    quantizer.annotate(model)
    quantizer.validate(model)
    observers, names, specs, calls = _Observers(), [], {}, {}
    nodes = [node for node in model.graph.nodes if KEY in node.meta]
    for node in nodes:
        annotation = node.meta[KEY]
        for source, spec in annotation.input_qspec_map.items():
            if spec is not None:
                observer = observers.edge(source, node, spec, specs)
                specs[source, node] = spec
                calls.setdefault((source, id(observer)), (observer, []))[1].append(node)
        if annotation.output_qspec is not None:
            observers.output(node, annotation.output_qspec)
    quantizer.prepare_obs_or_fq_callback(model, {**observers.of_edge, **observers.of_output})
    behind = {}  # node -> the observer of its output, which all that read it see
    for source, observer in observers.of_output.items():
        behind[source] = _insert(model, observer, source, list(source.users), names)
    for (source, _), (observer, readers) in calls.items():
        if observers.of_output.get(source) is not observer:
            _insert(model, observer, behind.get(source, source), readers, names)
    model.graph.lint()
    model.recompile()
    return model


def prepare_pt2e(model, quantizer):
    """A copy of the graph with observers where the quantizer says: run it on examples, then convert_pt2e. Batch norms that
    use running statistics are folded into the convolutions before them."""
    prepared = _prepare(model, quantizer, fold=True)
    prepared.eval()
    return prepared


def prepare_qat_pt2e(model, quantizer):
    """The same with modules that fake quantization: train it, then convert_pt2e. Convolutions in front of batch norms have
    the weights that they will have when those are folded, which convert_pt2e does."""
    return _prepare(model, quantizer, fold=False)


# ---- convert ----


def _qparams(observer):
    """The range and dtype of an observer, or of what fakes quantization."""
    own = observer.activation_post_process if isinstance(observer, FakeQuantizeBase) else observer
    return own.quant_min, own.quant_max, own.dtype


def _scale_and_zero(observer):
    if isinstance(observer, FusedMovingAvgObsFakeQuantize):
        return observer.scale, observer.zero_point  # chosen by the operator itself
    return observer.calculate_qparams()


def _is_observer(module):
    return isinstance(module, (ObserverBase, FakeQuantizeBase))


def _buffer(model, prefix, value):
    """A get_attr node's name for a tensor."""
    number = 0
    while hasattr(model, f"{prefix}_{number}"):
        number += 1
    model.register_buffer(f"{prefix}_{number}", value)
    return f"{prefix}_{number}"


class _Converter:
    """Rewrites the calls of observers of one graph."""

    def __init__(self, model, fold_quantize):
        self.model, self.graph, self.fold = model, model.graph, fold_quantize

    def call(self, target, *args):
        return self.graph.call_function(target, args)

    def attribute(self, prefix, value):
        return self.graph.get_attr(_buffer(self.model, prefix, value))

    def convert(self, node):
        observer, source, users = self.model.get_submodule(node.target), node.args[0], list(node.users)
        low, high, dtype = _qparams(observer)
        with self.graph.inserting_before(node):
            if getattr(observer, "is_dynamic", False):
                quantized, dequantize = self._dynamic(source, observer, low, high, dtype)
            elif getattr(observer, "qscheme", None) in _qscheme.PER_CHANNEL:
                quantized, dequantize = self._channels(source, observer, low, high, dtype)
            else:
                quantized, dequantize = self._tensor(source, observer, low, high, dtype)
            for user in users:  # each has its own, for whoever looks for patterns
                user.replace_input_with(node, self.call(*dequantize(quantized)))
        self.graph.erase_node(node)

    def _folded(self, source):
        """The tensor of a weight that is quantized at once; None: there is none."""
        if not self.fold or source.op != "get_attr":
            return None
        return operator.attrgetter(source.target)(self.model).detach()

    def _tensor(self, source, observer, low, high, dtype):
        scale, zero = _scale_and_zero(observer)
        numbers = (float(scale), int(zero), low, high, dtype)
        weight, quantize = self._folded(source), q.quantize_per_tensor.default
        if weight is None:
            quantized = self.call(quantize, source, *numbers)
        else:
            quantized = self.attribute("_frozen_param", quantize(weight, *numbers))
        return quantized, lambda x: (q.dequantize_per_tensor.default, x, *numbers)

    def _channels(self, source, observer, low, high, dtype):
        scale, zero = (t.detach().clone() for t in _scale_and_zero(observer))
        zero, rest = zero.to(_C.int64), (observer.ch_axis, low, high, dtype)
        weight, quantize = self._folded(source), q.quantize_per_channel.default
        if weight is not None:
            quantized = self.attribute("_frozen_param", quantize(weight, scale, zero, *rest))
        scales = self.attribute("_scale", scale)
        zeros = self.attribute("_zero_point", zero) if weight is None or zero.any() else None
        if weight is None:
            quantized = self.call(quantize, source, scales, zeros, *rest)
        kept = zeros if zero.any() else None  # none at all where all are zero
        return quantized, lambda x: (q.dequantize_per_channel.default, x, scales, kept, *rest)

    def _dynamic(self, source, observer, low, high, dtype):
        from .fx import _decomposed  # noqa: F401  defines choose_qparams

        own = observer.activation_post_process if isinstance(observer, FakeQuantizeBase) else observer
        symmetric = own.qscheme in _qscheme.SYMMETRIC
        choose = (q.choose_qparams_symmetric if symmetric else q.choose_qparams).tensor
        eps = float(own.eps) if own.eps is not None else 2**-23
        chosen = self.call(choose, source, low, high, eps, dtype)
        scale, zero = self.call(operator.getitem, chosen, 0), self.call(operator.getitem, chosen, 1)
        quantized = self.call(q.quantize_per_tensor.tensor, source, scale, zero, low, high, dtype)
        return quantized, lambda x: (q.dequantize_per_tensor.tensor, x, scale, zero, low, high, dtype)


def convert_pt2e(model, use_reference_representation=False, fold_quantize=True):
    """The graph with quantization in the place of observers; weights are quantized at once with fold_quantize."""
    if use_reference_representation:
        raise NotImplementedError("convert_pt2e: there is no reference representation; compile finds products of bytes")
    model = copy.deepcopy(model)
    with _C.no_grad():
        qat_norms.fold(model, _buffer)
    converter = _Converter(model, fold_quantize)
    for node in list(model.graph.nodes):
        if node.op == "call_module" and _is_observer(model.get_submodule(node.target)):
            observer = model.get_submodule(node.target)
            if isinstance(observer, PlaceholderObserver) and not observer.is_dynamic:
                node.replace_all_uses_with(node.args[0])
                model.graph.erase_node(node)
            else:
                converter.convert(node)
    model.graph.eliminate_dead_code()
    model.delete_all_unused_submodules()
    model.graph.lint()
    model.recompile()
    return model
