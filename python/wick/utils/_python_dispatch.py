"""torch.utils._python_dispatch: what libraries ask of classes of tensors that are made of others; wick knows none."""

from .._names import cannot_be_made
from .._names import getter as _getter

TorchDispatchMode = cannot_be_made(
    "torch.utils._python_dispatch.TorchDispatchMode", "wick has __torch_function__ and no __torch_dispatch__"
)


def is_traceable_wrapper_subclass(t):
    """Whether a tensor can be taken apart into tensors that it is made of."""
    kind = type(t)
    return hasattr(kind, "__tensor_flatten__") and hasattr(kind, "__tensor_unflatten__")


def is_traceable_wrapper_subclass_type(t):
    """The same of a class."""
    return hasattr(t, "__tensor_flatten__") and hasattr(t, "__tensor_unflatten__")


__getattr__ = _getter(__name__)
