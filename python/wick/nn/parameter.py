"""Parameter and Buffer: tensors that a module registers when they are assigned to it."""

from .. import _C
from .._C import Tensor

__all__ = ["Buffer", "Parameter", "is_lazy"]


def _rebuild_parameter(data, requires_grad, backward_hooks):
    """What a pickled Parameter is made from; the name is part of PyTorch's file format."""
    parameter = Parameter(data, requires_grad)
    parameter._backward_hooks = backward_hooks
    return parameter


def _rebuild_parameter_with_state(data, requires_grad, backward_hooks, state):
    parameter = _rebuild_parameter(data, requires_grad, backward_hooks)
    parameter.__dict__.update(state)
    return parameter


class _ParameterMeta(type(Tensor)):
    """A tensor of another class becomes a parameter by its mark, so isinstance has to look at the mark."""

    def __instancecheck__(cls, instance):
        if type.__instancecheck__(cls, instance):
            return True
        return cls is Parameter and isinstance(instance, Tensor) and getattr(instance, "_is_param", False)


class Parameter(Tensor, metaclass=_ParameterMeta):
    """A tensor that `Module.parameters()` finds once it is assigned to a module.

    data: tensor of any shape, not copied; None gives an empty one. Integer data needs requires_grad=False.

        layer.scale = nn.Parameter(wick.ones(8))     # (8,), trained
        layer.table = nn.Parameter(table, False)     # kept and saved, not trained
    """

    def __new__(cls, data=None, requires_grad=True):
        if data is None:
            data = _C.empty(0)
        if type(data) is Tensor or type(data) is Parameter:
            return Tensor._make_subclass(cls, data, requires_grad)
        parameter = data.detach().requires_grad_(requires_grad)
        if type(parameter) is not type(data):
            raise RuntimeError(
                f"Creating a Parameter from an instance of type {type(data).__name__} "
                "requires that detach() returns an instance of the same type, but return "
                f"type {type(parameter).__name__} was found instead. To use the type as a "
                "Parameter, please correct the detach() semantics defined by "
                "its __torch_dispatch__() implementation."
            )
        parameter._is_param = True
        return parameter

    # What operators make of a parameter is a plain tensor.
    __torch_function__ = _C._disabled_torch_function_impl

    def __deepcopy__(self, memo):
        if id(self) in memo:
            return memo[id(self)]
        copy = type(self)(self.data.clone(memory_format=_C.preserve_format), self.requires_grad)
        memo[id(self)] = copy
        return copy

    def __repr__(self):
        return "Parameter containing:\n" + super().__repr__()

    def __reduce_ex__(self, protocol):
        from collections import OrderedDict

        hooks = OrderedDict()  # hooks are not saved
        if not self.__dict__:
            return _rebuild_parameter, (self.data, self.requires_grad, hooks)
        return _rebuild_parameter_with_state, (self.data, self.requires_grad, hooks, dict(self.__dict__))


class _BufferMeta(type(Tensor)):
    def __instancecheck__(cls, instance):
        if type.__instancecheck__(cls, instance):
            return True
        return cls is Buffer and isinstance(instance, Tensor) and getattr(instance, "_is_buffer", False)


class Buffer(Tensor, metaclass=_BufferMeta):
    """A tensor that a module keeps as a buffer once it is assigned to it; `persistent` puts it into the state dict.

    layer.mask = nn.Buffer(wick.ones(4, 4))
    layer.cache = nn.Buffer(wick.zeros(4), persistent=False)
    """

    def __new__(cls, data=None, *, persistent=True):
        if data is None:
            data = _C.empty(0)
        buffer = data.detach().requires_grad_(data.requires_grad)
        buffer.persistent = persistent
        buffer._is_buffer = True
        return buffer


def is_lazy(parameter):
    """Whether a parameter or buffer still waits for its shape (uninitialized.py)."""
    return getattr(parameter, "_is_uninitialized", False)


if hasattr(_C, "_set_parameter_type"):
    _C._set_parameter_type(Parameter)


def __getattr__(name):
    if name in ("UninitializedBuffer", "UninitializedParameter", "UninitializedTensorMixin"):
        from . import uninitialized

        return getattr(uninitialized, name)
    from .._names import missing

    raise missing(__name__, name)
