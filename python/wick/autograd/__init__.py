"""Automatic differentiation: gradients of graphs, functions with a backward of their own, grad modes."""

from .. import _C
from .function import Function
from .grad_mode import (
    enable_grad,
    enforce_grad_layout_policy,
    inference_mode,
    no_grad,
    set_grad_enabled,
    set_multithreading_enabled,
)
from .gradcheck import gradcheck, gradgradcheck

__all__ = [
    "Function", "Variable", "backward", "detect_anomaly", "enable_grad", "enforce_grad_layout_policy", "grad", "gradcheck", "gradgradcheck",
    "inference_mode", "is_anomaly_enabled", "no_grad", "set_detect_anomaly", "set_grad_enabled",
    "set_multithreading_enabled",
]  # fmt: skip

_LAZY = {
    "detect_anomaly": "anomaly_mode", "set_detect_anomaly": "anomaly_mode", "is_anomaly_enabled": "anomaly_mode"
}  # fmt: skip
_SUBMODULES = frozenset(
    ("anomaly_mode", "forward_ad", "function", "functional", "grad_mode", "graph", "profiler", "variable")
)


def _tuple(tensors):
    """A tensor, a sequence or a dict of tensors as a tuple."""
    if isinstance(tensors, _C.Tensor):
        return (tensors,)
    if type(tensors) is dict:
        return tuple(tensors.values())
    return tuple(tensors)


def _gradients(gradients, count):
    """What the gradients of `count` tensors were given as, None included, as a tuple."""
    return (None,) * count if gradients is None else _tuple(gradients)


def backward(
    tensors, grad_tensors=None, retain_graph=None, create_graph=False, grad_variables=None, inputs=None
):  # fmt: skip
    """Adds to .grad of the leaves (or of `inputs`) the gradients of the sum of `tensors`.

    backward([loss_a, loss_b])
    """
    if grad_variables is not None:
        grad_tensors = _deprecated_gradients(grad_tensors, grad_variables)
    if inputs is not None:
        inputs = _tuple(inputs)
        if not inputs:
            raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    tensors = _tuple(tensors)
    grad_tensors = _gradients(grad_tensors, len(tensors))
    keep = create_graph if retain_graph is None else retain_graph
    _C._run_backward(tensors, grad_tensors, keep, create_graph, inputs, True, True)


def _deprecated_gradients(grad_tensors, grad_variables):
    import warnings

    warnings.warn("`grad_variables` is deprecated. Use `grad_tensors` instead.", FutureWarning, stacklevel=3)
    if grad_tensors is not None:
        raise RuntimeError(
            "`grad_tensors` and `grad_variables` (deprecated) arguments both passed to `backward()`. "
            "Please only use `grad_tensors`."
        )
    return grad_variables


def grad(
    outputs,
    inputs,
    grad_outputs=None,
    retain_graph=None,
    create_graph=False,
    only_inputs=True,
    allow_unused=None,
    is_grads_batched=False,
    materialize_grads=False,
):
    """The gradients of the sum of `outputs` for each of `inputs`, as a tuple (a dict for a dict); no .grad changes.

    (dx,) = grad((x * x).sum(), x)    # dx == 2 * x
    """
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False."
        )
    if not only_inputs:
        _warn_only_inputs()
    outputs, tensors = _tuple(outputs), _tuple(inputs)
    if not tensors:
        raise RuntimeError("`inputs` argument to `grad()` cannot be empty.")
    grad_outputs = _gradients(grad_outputs, len(outputs))
    keep = create_graph if retain_graph is None else retain_graph
    unused_is_fine = materialize_grads if allow_unused is None else allow_unused
    if is_grads_batched:
        result = _batched_gradients(outputs, grad_outputs, keep, create_graph, tensors, unused_is_fine)
    else:
        result = _C._run_backward(outputs, grad_outputs, keep, create_graph, tensors, unused_is_fine, False)
    if materialize_grads:
        result = tuple(
            _C.zeros_like(t).requires_grad_(create_graph) if g is None else g
            for g, t in zip(result, tensors, strict=True)
        )
    return dict(zip(inputs, result, strict=True)) if type(inputs) is dict else result


def _batched_gradients(outputs, grad_outputs, keep, create_graph, inputs, unused_is_fine):
    """For many gradients of the outputs, the first dim, at once."""
    from .._functorch.vmap import vmap

    def gradients(*given):
        return _C._run_backward(outputs, given, True, create_graph, inputs, unused_is_fine, False)

    return vmap(gradients, out_dims=_dims_where_used(gradients, grad_outputs))(*grad_outputs)


def _dims_where_used(gradients, grad_outputs):
    """0 for an input that gets a gradient, None for one that gets none."""
    found = gradients(*(g[0] for g in grad_outputs))
    return tuple(None if g is None else 0 for g in found)


def _warn_only_inputs():
    import warnings

    warnings.warn(
        "only_inputs argument is deprecated and is ignored now (defaults to True). To accumulate gradient for other "
        "parts of the graph, please use torch.autograd.backward.",
        FutureWarning,
        stacklevel=3,
    )


class _VariableMeta(type):
    def __instancecheck__(cls, instance):
        return isinstance(instance, _C.Tensor)


class Variable(metaclass=_VariableMeta):
    """The old name of a tensor that may require grad: Variable(t, requires_grad=True) is an alias of t that does."""

    def __new__(cls, data, requires_grad=False, volatile=None):
        return data.detach().requires_grad_(requires_grad)


class _Engine:
    """PyTorch's name for what runs backward passes."""

    def queue_callback(self, callback):
        """callback() is called when the backward pass that runs has ended."""
        _C._queue_callback(callback)


Variable._execution_engine = _Engine()


def __getattr__(name):
    import importlib

    if name in _LAZY:
        value = getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
        globals()[name] = value
        return value
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    from .._names import missing

    raise missing(__name__, name)
