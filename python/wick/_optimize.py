"""wick.optimize(model): the model as it is best for inference.

>>> model = wick.nn.Sequential(wick.nn.Conv2d(3, 8, 3), wick.nn.BatchNorm2d(8), wick.nn.Dropout())
>>> wick.optimize(model)
Sequential(
  (0): Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1))
  (1): Identity()
  (2): Identity()
)

Layers are replaced in their places, so that the model's own `forward` goes on as it is, and can be compiled.
docs/inference.md says what is done, and when not. Tests: tests/python/test_optimize.py.
"""

import copy
import inspect

from . import _C, fx, nn
from .ao.quantization.linear import QuantizedLinear
from .nn.utils import fusion

__all__ = ["optimize"]

_CONVOLUTIONS = nn.Conv1d, nn.Conv2d, nn.Conv3d
_TRANSPOSED = nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d
_NORMS = {  # what a batch norm's dims fit to
    nn.BatchNorm1d: (nn.Conv1d, nn.ConvTranspose1d, nn.Linear),
    nn.BatchNorm2d: (nn.Conv2d, nn.ConvTranspose2d),
    nn.BatchNorm3d: (nn.Conv3d, nn.ConvTranspose3d),
}
_DROPOUTS = nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout
_HOOKS = "_forward_hooks", "_forward_pre_hooks"
_BF16_COLUMNS = 32  # a row of a bfloat16 weight is read in so many


# ---- where a batch norm follows a layer ----


def _graphs(module):
    """The calls of a module, twice where arguments have defaults: with them and without. Raises where it cannot be traced."""
    signature = inspect.signature(module.forward)
    defaults = {p.name: p.default for p in signature.parameters.values() if p.default is not p.empty}
    graphs = [fx.Tracer().trace(module)]
    if defaults:
        graphs.append(fx.Tracer().trace(module, concrete_args=defaults))
    return graphs


def _pairs_of(graph, modules):
    """{norm: layer} by name: the norm is the one reader of the layer, and both are called once and used for nothing else."""
    calls, read = {}, [node.target for node in graph.nodes if node.op == "get_attr"]
    for node in graph.nodes:
        if node.op == "call_module":
            calls.setdefault(node.target, []).append(node)
    pairs = {}
    for name, (node, *more) in calls.items():
        before = node.args[0] if len(node.args) == 1 and not node.kwargs else None
        if more or type(modules[name]) not in _NORMS or getattr(before, "op", None) != "call_module":
            continue
        names = name, before.target
        used = any(target.rpartition(".")[0] in names for target in read)
        if len(calls[before.target]) == 1 and len(before.users) == 1 and not used:
            pairs[name] = before.target
    return pairs


def _is_plain(module):
    return not any(getattr(module, hooks) for hooks in _HOOKS)


def _may_fold(layer, norm):
    """By themselves: the norm's dims are the layer's, there are running statistics, and neither has hooks."""
    if type(layer) not in _NORMS[type(norm)] or norm.running_mean is None or not (_is_plain(layer) and _is_plain(norm)):
        return False
    if type(layer) is nn.Linear:
        return layer.out_features == norm.num_features
    return layer.out_channels == norm.num_features and not (type(layer) in _TRANSPOSED and layer.groups > 1)


def _folded(layer, norm):
    if type(layer) is nn.Linear:
        return fusion.fuse_linear_bn_eval(layer, norm)
    return fusion.fuse_conv_bn_eval(layer, norm, type(layer) in _TRANSPOSED)


def _place(model, name):
    """(parent, last part) of a module's name."""
    parent, _, last = name.rpartition(".")
    return model.get_submodule(parent), last


def _fold_norms(module, counts):
    """Folds what can be seen: in the module as a whole or, where it cannot be traced, in its parts."""
    if not any(type(m) in _NORMS for m in module.modules()):
        return
    try:
        graphs = _graphs(module)
    except Exception:  # whatever a program raises that is given a Proxy for a tensor
        for child in module.children():
            _fold_norms(child, counts)
        return
    modules = dict(module.named_modules(remove_duplicate=False))
    found = [_pairs_of(graph, modules) for graph in graphs]
    for norm_name, layer_name in found[0].items():
        layer, norm = modules[layer_name], modules[norm_name]
        agreed = all(pairs.get(norm_name) == layer_name for pairs in found)
        if agreed and counts[layer] == counts[norm] == 1 and _may_fold(layer, norm):
            parent, last = _place(module, layer_name)
            setattr(parent, last, _folded(layer, norm))
            parent, last = _place(module, norm_name)
            setattr(parent, last, nn.Identity())


def _counts(model):
    """In how many places of the model each module stands."""
    counts = {}
    for _, module in model.named_modules(remove_duplicate=False):
        counts[module] = counts.get(module, 0) + 1
    return counts


# ---- layers by themselves ----


def _lay_out(weight):
    """(n, k) with adjacent columns of its transpose, which a product of few rows reads as they lie (compile/weights.c)."""
    weight.data = weight.data.t().contiguous().t()


def _other(module, dtype):
    """What stands for a layer, often itself."""
    if type(module) in _DROPOUTS and _is_plain(module):
        return nn.Identity()
    if type(module) is not nn.Linear or not _is_plain(module) or module.weight.dtype != _C.float32:
        return module
    if dtype is _C.bfloat16 and module.in_features % _BF16_COLUMNS == 0:
        return QuantizedLinear.from_float(module, "bf16")
    return module


def _replace(module, dtype):
    """The module with other layers, each where its old one was; a layer in several places stays one."""
    made = {}

    def visit(parent):
        for name, child in list(parent._modules.items()):
            if child is None:
                continue
            if child not in made:
                made[child] = _other(child, dtype)
                visit(child)
            parent._modules[name] = made[child]

    visit(module)
    return _other(module, dtype)


def _lay_out_weights(model):
    """Of linear layers whose weight has one owner."""
    owners = {}
    for module in model.modules():
        for p in module._parameters.values():
            if p is not None:
                owners.setdefault(id(p), []).append(module)
    for module in model.modules():
        weight = module._parameters.get("weight") if type(module) is nn.Linear else None
        if weight is not None and weight.dtype in (_C.float32, _C.float64) and len(owners[id(weight)]) == 1:
            _lay_out(weight)


# ---- the whole ----


def _check(model, dtype):
    if not isinstance(model, nn.Module):
        raise TypeError(f"optimize: the model is a torch.nn.Module, not {type(model).__name__}")
    if dtype not in (None, _C.float32, _C.bfloat16):
        raise ValueError(f"optimize: dtype is None, torch.float32 or torch.bfloat16, not {dtype}")
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if isinstance(tensor, nn.UninitializedParameter):
            raise ValueError(f"optimize: {name} has no size yet; call the model once before")


def optimize(model, dtype=None, inplace=False):
    """The model for inference: in eval mode, its parameters without gradients, batch norms folded into the layers in front
    of them, no dropout, weights laid out for products of few rows. Only the folding changes results, in the last bits.

    dtype: float32 converts floating parameters and buffers to it; bfloat16 does so and keeps the weights of linear
    layers in bfloat16; these round their inputs to it and give float32, as their sums are. inplace: the model itself instead of a copy.
    """
    _check(model, dtype)
    model = model if inplace else copy.deepcopy(model)
    model.eval()
    with _C.no_grad():
        if dtype is not None:
            model.to(_C.float32)
        _fold_norms(model, _counts(model))
        model = _replace(model, dtype)
        model.requires_grad_(False)
        _lay_out_weights(model)
    return model
