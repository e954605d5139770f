"""prepare and convert of a model's modules: observers behind them, then layers of int8 weights whose results are rounded
to what a byte with a scale holds.

>>> model.qconfig = get_default_qconfig("x86")         # doctest: +SKIP
>>> prepared = prepare(fuse_modules(model, [["conv", "bn", "relu"]]))
>>> prepared(x)                                        # calibration
>>> quantized = convert(prepared)

Tensors between the layers stay floats, each one of the 256 numbers that its scale and zero point give. Weights are int8 with
a scale for each row. docs/quantization.md says what differs from PyTorch's. Tests: tests/python/test_quantize_eager.py.
"""

import copy
import warnings

from ... import _C, nn
from ...nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval
from ..nn import intrinsic, qat
from ..nn.intrinsic import ConvReLU1d, ConvReLU2d, ConvReLU3d, LinearReLU
from ..nn.intrinsic import qat as fused_qat
from ..nn.quantized import FloatFunctional
from .fake_quantize import FakeQuantizeBase
from .linear import DynamicQuantizedLinear
from .observer import ObserverBase, PlaceholderObserver
from .quantize import propagate_qconfig_
from .stubs import DeQuantStub, QuantStub

__all__ = ["convert", "fuse_modules", "fuse_modules_qat", "prepare", "prepare_qat", "quantize", "quantize_qat"]

_CONVOLUTIONS = nn.Conv1d, nn.Conv2d, nn.Conv3d
_FUSED = {nn.Conv1d: ConvReLU1d, nn.Conv2d: ConvReLU2d, nn.Conv3d: ConvReLU3d, nn.Linear: LinearReLU}
_NORMS = {nn.Conv1d: nn.BatchNorm1d, nn.Conv2d: nn.BatchNorm2d, nn.Conv3d: nn.BatchNorm3d, nn.Linear: nn.BatchNorm1d}
_OBSERVED = {  # as they are
    *_CONVOLUTIONS, *_FUSED.values(), nn.Linear, QuantStub, nn.BatchNorm2d, nn.BatchNorm3d, nn.Dropout, nn.ELU, nn.GroupNorm,
    nn.Hardswish, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d, nn.LayerNorm, nn.LeakyReLU, nn.ReLU6, nn.PReLU,
    nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
}  # fmt: skip

_TRAINED = {  # by layers in training, what has their weights rounded
    made._FLOAT_MODULE: made
    for module in (qat, fused_qat)
    for made in vars(module).values()
    if isinstance(made, type) and getattr(made, "_FLOAT_MODULE", None) and made.__module__ == module.__name__
}
_OBSERVED.update(_TRAINED, _TRAINED.values())
_WITH_NORMS = {
    kind.types: kind for kind in vars(intrinsic).values() if isinstance(kind, type) and getattr(kind, "types", ())
}


# ---- fusing ----


def _fuse_in_training(layers):
    types = tuple(type(layer) for layer in layers)
    if not all(layer.training for layer in layers):
        raise AssertionError("Fusion only for training!")
    if types in _WITH_NORMS:
        return _WITH_NORMS[types](*layers)
    if len(types) == 2 and types[0] in _FUSED and types[1] is nn.ReLU:
        return _FUSED[types[0]](*layers)
    raise AssertionError(f"did not find fuser method for: {types} ")


def _fuse(layers):
    """One layer for (layer, norm), (layer, norm, ReLU) or (layer, ReLU)."""
    types = tuple(type(layer) for layer in layers)
    first, rest = layers[0], list(layers[1:])
    norm = rest.pop(0) if rest and types[0] in _NORMS and types[1] is _NORMS[types[0]] else None
    relu = rest.pop(0) if rest and type(rest[0]) is nn.ReLU else None
    if rest or types[0] not in _FUSED or not (norm or relu):
        raise AssertionError(f"did not find fuser method for: {types} ")
    if norm is not None:
        if first.training != norm.training:
            raise AssertionError("Conv and BN both must be in the same mode (train or eval).")
        if norm.training:
            raise NotImplementedError(f"Cannot fuse train modules: {types}")
        first = (fuse_linear_bn_eval if types[0] is nn.Linear else fuse_conv_bn_eval)(first, norm)
    return first if relu is None else _FUSED[types[0]](first, relu).train(first.training)


def _put(model, name, module):
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, module)


def fuse_modules(model, modules_to_fuse, inplace=False):
    """Puts layers together that stand behind each other: lists of names, as ["conv", "bn", "relu"]. The first name has the
    fused one then, the others an Identity."""
    return _fuse_lists(model, modules_to_fuse, inplace, _fuse)


def fuse_modules_qat(model, modules_to_fuse, inplace=False):
    """The same in training: batch norms stay, as layers of the fused ones, for prepare_qat."""
    return _fuse_lists(model, modules_to_fuse, inplace, _fuse_in_training)


def _fuse_lists(model, modules_to_fuse, inplace, fuse):
    model = model if inplace else copy.deepcopy(model)
    lists = modules_to_fuse if all(isinstance(names, (list, tuple)) for names in modules_to_fuse) else [modules_to_fuse]
    for first, *others in lists:
        _put(model, first, fuse([model.get_submodule(name) for name in (first, *others)]))
        for name in others:
            _put(model, name, nn.Identity())
    return model


# ---- observers ----


def _is_dynamic(qconfig):
    made = qconfig.activation()
    return isinstance(made, PlaceholderObserver) or getattr(made, "is_dynamic", False)


def _observe(module, qconfig):
    """Adds an observer of the module's result."""
    module.activation_post_process = qconfig.activation()
    if not isinstance(module, FloatFunctional):  # which calls it itself
        module.register_forward_hook(_post_process)


def _post_process(module, args, result):
    return module.activation_post_process(result)


def _leaves(model):
    """The modules that are seen as one, with the names of their places."""

    def visit(module, prefix):
        for name, child in module._modules.items():  # each place of a module that has several
            path = f"{prefix}.{name}" if prefix else name
            if type(child) in _OBSERVED or isinstance(child, (FloatFunctional, DeQuantStub)):
                yield path, child
            elif child is not None:
                yield from visit(child, path)

    if type(model) in _OBSERVED:
        return [("", model)]
    return list(visit(model, ""))


def prepare(model, inplace=False, allow_list=None, observer_non_leaf_module_list=None, prepare_custom_config_dict=None):
    """A copy with observers behind the modules that have a qconfig, their own or one that contains them."""
    if allow_list is not None or observer_non_leaf_module_list is not None or prepare_custom_config_dict is not None:
        raise NotImplementedError("prepare: allow_list, observer_non_leaf_module_list and prepare_custom_config_dict")
    model = model if inplace else copy.deepcopy(model)
    propagate_qconfig_(model)
    if not any(getattr(m, "qconfig", None) for m in model.modules()):
        warnings.warn(
            "None of the submodule got qconfig applied. Make sure you passed correct configuration through `qconfig_dict` or "
            "by assigning the `.qconfig` attribute directly on submodules",
            stacklevel=2,
        )
    for module in {id(m): m for _, m in _leaves(model)}.values():
        qconfig = getattr(module, "qconfig", None)
        if qconfig and not isinstance(module, DeQuantStub) and not _is_dynamic(qconfig):
            _observe(module, qconfig)
    return model


# ---- training ----


def prepare_qat(model, mapping=None, inplace=False):
    """A copy with layers whose weights are rounded in each call, and results rounded behind them: train it, then convert."""
    if not model.training:
        raise AssertionError("prepare_qat only works on models in training mode")
    mapping = _TRAINED if mapping is None else mapping
    model = model if inplace else copy.deepcopy(model)
    propagate_qconfig_(model)
    made = {}
    for name, child in _leaves(model):
        kind = mapping.get(type(child))
        if kind is None or not getattr(child, "qconfig", None):
            continue
        if id(child) not in made:
            made[id(child)] = child, kind.from_float(child)
        if not name:
            model = made[id(child)][1]
        else:
            _put(model, name, made[id(child)][1])
    return prepare(model, inplace=True)


def quantize(model, run_fn, run_args, mapping=None, inplace=False):
    """prepare, run_fn(model, *run_args) for the observers, convert."""
    model = (model if inplace else copy.deepcopy(model)).eval()
    prepared = prepare(model, inplace=True)
    run_fn(prepared, *run_args)
    return convert(prepared, mapping, inplace=True)


def quantize_qat(model, run_fn, run_args, inplace=False):
    """prepare_qat, run_fn(model, *run_args) as the training, convert."""
    model = (model if inplace else copy.deepcopy(model)).train()
    prepared = prepare_qat(model, inplace=True)
    run_fn(prepared, *run_args)
    return convert(prepared, inplace=True)


# ---- layers of bytes ----


class _Rounded(nn.Module):
    """A module whose result is rounded to a byte's numbers: (q - zero_point) scale."""

    def __init__(self, observer):
        super().__init__()
        scale, zero_point = observer.calculate_qparams()
        if scale.numel() != 1:
            raise NotImplementedError("convert: results have one scale, not one for each channel")
        limits = _C.iinfo(observer.dtype)
        self.low, self.high = limits.min, limits.max
        self.register_buffer("scale", scale.detach().float().reshape(()))
        self.register_buffer("zero_point", zero_point.detach().to(_C.int32).reshape(()))

    def rounded(self, y):
        """The numbers of y that bytes stand for."""
        return _C.fake_quantize_per_tensor_affine(y, self.scale, self.zero_point, self.low, self.high)

    def extra_repr(self):
        return f"scale={self.scale.item()}, zero_point={self.zero_point.item()}"


class Quantize(_Rounded):
    """What stands for a QuantStub."""

    def forward(self, x):
        return self.rounded(x)


class DeQuantize(nn.Module):
    """What stands for a DeQuantStub: floats are floats."""

    def forward(self, x):
        return x


class RoundedModule(_Rounded):
    """A module that stays, with its result rounded."""

    def __init__(self, module, observer):
        super().__init__(observer)
        self.module = module

    def forward(self, *args, **kwargs):
        return self.rounded(self.module(*args, **kwargs))


class _Layer(_Rounded):
    """A weight of int8 with scales by its first dim, and a bias of floats."""

    def __init__(self, layer, relu, of_weight, observer):
        super().__init__(observer)
        weight, scales = _quantized_weight(layer.weight, of_weight)
        self.relu = relu
        self.register_buffer("weight", weight)
        self.register_buffer("scales", scales)
        self.register_buffer("bias", None if layer.bias is None else layer.bias.detach().clone())

    def finish(self, y):
        return self.rounded(y.relu() if self.relu else y)


class QuantizedLinear(_Layer):
    """What stands for a Linear or LinearReLU."""

    def __init__(self, layer, relu, of_weight, observer):
        super().__init__(layer, relu, of_weight, observer)
        self.in_features, self.out_features = layer.in_features, layer.out_features

    def forward(self, x):
        return self.finish(_C._quant_linear(x, self.weight, "int8", self.scales, 0, self.bias))

    def extra_repr(self):
        return f"in_features={self.in_features}, out_features={self.out_features}, {super().extra_repr()}"


class QuantizedConv(_Layer):
    """What stands for a convolution, and one with a ReLU. Its products are floats."""

    def __init__(self, layer, relu, of_weight, observer):
        super().__init__(layer, relu, of_weight, observer)
        self.layer = copy.deepcopy(layer)  # for stride, padding and the like
        self.layer.weight = self.layer.bias = None

    def forward(self, x):
        scales = self.scales.reshape(-1, *[1] * (self.weight.dim() - 1))
        return self.finish(self.layer._conv_forward(x, self.weight.float() * scales, self.bias))


def _quantized_weight(weight, observer):
    """(int8, scales (n)) by an observer, which sees it."""
    observer(weight.detach())
    scale, zero_point = observer.calculate_qparams()
    if observer.dtype != _C.int8 or zero_point.any():
        raise NotImplementedError("convert: weights are symmetric int8")
    if getattr(observer, "ch_axis", 0) > 0:
        raise NotImplementedError("convert: scales of a weight are those of its first dim")
    scales = scale.float().expand(len(weight)).contiguous()
    by_row = scales.reshape(-1, *[1] * (weight.dim() - 1))
    q = (weight.detach() * (1.0 / by_row)).round().clamp(observer.quant_min, observer.quant_max)
    return q.to(_C.int8), scales


def _without_observer(module):
    """A copy that is not observed any more."""
    made = copy.deepcopy(module)
    hooks = made._forward_hooks
    for number in [number for number, hook in hooks.items() if hook is _post_process]:
        del hooks[number]
    del made.activation_post_process
    return made


def _converted(module):
    """What stands for a module, itself where it was not observed."""
    observer = getattr(module, "activation_post_process", None)
    if isinstance(module, DeQuantStub):
        return DeQuantize()
    if not isinstance(observer, (ObserverBase, FakeQuantizeBase)):
        qconfig = getattr(module, "qconfig", None)
        dynamic = qconfig and type(module) is nn.Linear and _is_dynamic(qconfig)
        return DynamicQuantizedLinear.from_float(module) if dynamic else module
    if isinstance(module, FloatFunctional):
        made = copy.deepcopy(module)
        made.activation_post_process = Quantize(observer)
        return made
    if isinstance(module, QuantStub):
        return Quantize(observer)
    if isinstance(module, qat.Rounding):
        layer, of_weight = module.plain(), copy.deepcopy(module.weight_fake_quant)
        kind = QuantizedLinear if type(layer) is nn.Linear else QuantizedConv
        return kind(layer, module.rectifies, of_weight, observer)
    layer, relu = (module[0], True) if type(module) in _FUSED.values() else (module, False)
    if type(layer) is nn.Linear:
        return QuantizedLinear(layer, relu, module.qconfig.weight(), observer)
    if type(layer) in _CONVOLUTIONS:
        return QuantizedConv(
            _without_observer(module) if layer is module else layer, relu, module.qconfig.weight(), observer
        )
    return RoundedModule(_without_observer(module), observer)


def convert(module, mapping=None, inplace=False, remove_qconfig=True):
    """A copy of a prepared model, after calibration, with layers of bytes in the place of those that were observed."""
    if mapping is not None:
        raise NotImplementedError("convert: mapping")
    model = module if inplace else copy.deepcopy(module)
    made = {}
    with _C.no_grad():
        for name, child in _leaves(model):
            if id(child) not in made:
                made[id(child)] = child, _converted(child)
            if not name:
                return made[id(child)][1]
            _put(model, name, made[id(child)][1])
    if remove_qconfig:
        for m in model.modules():
            m.__dict__.pop("qconfig", None)
    return model
