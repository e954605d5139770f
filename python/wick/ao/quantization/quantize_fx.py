"""torch.ao.quantization.quantize_fx: quantization of a model's graph by qconfigs.

>>> prepared = prepare_fx(model.eval(), get_default_qconfig_mapping("x86"), (x,))      # doctest: +SKIP
>>> prepared(x)                                        # calibration
>>> quantized = convert_fx(prepared)

It is quantize_pt2e with a quantizer that reads a QConfigMapping: graphs are of ATen's operators with the sizes of
example_inputs, and convert_fx gives quantized_decomposed operators. Tests: tests/python/test_quantize_fx.py.
"""

import copy
import operator
import re

from ... import export, nn
from ...fx import GraphModule, Tracer
from ...nn import functional
from . import qconfig_mapping as _mappings
from .eager import _fuse
from .quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e
from .quantizer.quantizer import QuantizationSpec
from .quantizer.xnnpack_quantizer import CONVOLUTIONS, LINEAR, QuantizationConfig, XNNPACKQuantizer, aten

__all__ = ["convert_fx", "fuse_fx", "prepare_fx", "prepare_qat_fx"]

_TYPES = {  # what stands in a QConfigMapping for a product, by the dims of its weight
    2: (nn.Linear, functional.linear),
    3: (nn.Conv1d, functional.conv1d),
    4: (nn.Conv2d, functional.conv2d),
    5: (nn.Conv3d, functional.conv3d),
}


def _spec(made_by):
    made = made_by()
    if not hasattr(made, "qscheme") or not hasattr(made, "dtype"):
        return None  # it observes nothing
    return QuantizationSpec(
        made.dtype, made_by, qscheme=made.qscheme, is_dynamic=bool(getattr(made, "is_dynamic", False))
    )


def _config(qconfig):
    if qconfig is None:
        return None
    activation = _spec(qconfig.activation)
    output = None if activation is not None and activation.is_dynamic else activation
    return QuantizationConfig(activation, output, _spec(qconfig.weight))


class _ByQConfig(XNNPACKQuantizer):
    """Which qconfig a product or a sum has; what passes numbers on goes by the one of all."""

    def __init__(self, mapping):
        super().__init__()
        self.mapping, self.model = mapping, None
        self.global_config = _config(mapping.global_qconfig)

    def annotate(self, model):
        self.model = model
        return super().annotate(model)

    def _weight_of(self, node):
        first = 1 if node.target == aten.addmm.default else 0
        found = node.args[first + 1] if node.target in LINEAR + CONVOLUTIONS else None
        while found is not None and found.op == "call_function":  # a weight that is scaled
            found = found.args[0]
        return found if found is not None and found.op == "get_attr" else None

    def _config_of(self, node):
        weight, mapping = self._weight_of(node), self.mapping
        if weight is None:
            return self.global_config
        name = weight.meta.get("folded_from", weight.target).rpartition(".")[0]
        for part in [name, *(name.rsplit(".", n)[0] for n in range(1, name.count(".") + 1))]:
            if part in mapping.module_name_qconfigs:
                return _config(mapping.module_name_qconfigs[part])
        for pattern, qconfig in mapping.module_name_regex_qconfigs.items():
            if re.match(pattern, name):
                return _config(qconfig)
        for kind in _TYPES.get(operator.attrgetter(weight.target)(self.model).dim(), ()):
            if kind in mapping.object_type_qconfigs:
                return _config(mapping.object_type_qconfigs[kind])
        return self.global_config


def _prepare(model, qconfig_mapping, example_inputs, others, prepare):
    for name, value in others.items():
        if value:
            raise NotImplementedError(f"quantize_fx: {name}")
    if isinstance(qconfig_mapping, dict):
        qconfig_mapping = _mappings.QConfigMapping.from_dict(qconfig_mapping)
    if qconfig_mapping.module_name_object_type_order_qconfigs:
        raise NotImplementedError("quantize_fx: set_module_name_object_type_order")
    if not isinstance(example_inputs, tuple):
        example_inputs = tuple(example_inputs) if isinstance(example_inputs, list) else (example_inputs,)
    graph = export.export(model, example_inputs).module()
    return prepare(graph, _ByQConfig(qconfig_mapping))


def prepare_fx(
    model, qconfig_mapping, example_inputs, prepare_custom_config=None, _equalization_config=None, backend_config=None
):
    """The graph of a copy of the model in evaluation, with observers: run it on examples, then convert_fx."""
    others = {"prepare_custom_config": prepare_custom_config, "_equalization_config": _equalization_config}
    return _prepare(copy.deepcopy(model).eval(), qconfig_mapping, example_inputs, others, prepare_pt2e)


def prepare_qat_fx(model, qconfig_mapping, example_inputs, prepare_custom_config=None, backend_config=None):
    """The graph of a model in training with modules that fake quantization: train it, then convert_fx."""
    if not model.training:
        raise AssertionError("prepare_qat_fx only works on models in training mode")
    others = {"prepare_custom_config": prepare_custom_config}
    return _prepare(copy.deepcopy(model), qconfig_mapping, example_inputs, others, prepare_qat_pt2e)


def convert_fx(
    graph_module,
    convert_custom_config=None,
    _remove_qconfig=True,
    qconfig_mapping=None,
    backend_config=None,
    keep_original_weights=False,
):
    """The graph with quantization in the place of observers."""
    for name, value in (("convert_custom_config", convert_custom_config), ("qconfig_mapping", qconfig_mapping)):
        if value:
            raise NotImplementedError(f"convert_fx: {name}")
    return convert_pt2e(graph_module)


def fuse_fx(model, fuse_custom_config=None, backend_config=None):
    """The model's graph with layers in evaluation put together as fuse_modules does."""
    if fuse_custom_config:
        raise NotImplementedError("fuse_fx: fuse_custom_config")
    tracer, model = Tracer(), copy.deepcopy(model)
    made = GraphModule(model, tracer.trace(model))
    modules = dict(made.named_modules())
    for node in list(made.graph.nodes):
        calls = [node]
        while len(calls) < 3 and len(calls[-1].users) == 1 and next(iter(calls[-1].users)).op == "call_module":
            calls.append(next(iter(calls[-1].users)))
        for count in (3, 2):  # the longest that there is
            chain = calls[:count]
            if len(chain) < count or any(call.op != "call_module" for call in chain):
                continue
            try:
                fused = _fuse([modules[call.target] for call in chain])
            except AssertionError:
                continue
            made.set_submodule(node.target, fused)
            for call in chain[1:]:
                call.replace_all_uses_with(node)
                made.graph.erase_node(call)
            break
    made.delete_all_unused_submodules()
    made.recompile()
    return made
