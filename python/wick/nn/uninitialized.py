"""Parameters and buffers without a size, of modules that take theirs from the first input (modules/lazy.py).

In a file of its own: the first object of a class that overrides calls makes every later call look for overrides.
"""

from .. import _C
from .._C import Tensor
from .parameter import Parameter

__all__ = ["UninitializedBuffer", "UninitializedParameter", "UninitializedTensorMixin"]

_NO_SHAPE = (
    "Can't access the shape of an uninitialized parameter or buffer. This error usually happens in `load_state_dict` "
    "when trying to load an uninitialized parameter into an initialized one. Call `forward` to initialize the "
    "parameters before accessing their attributes."
)
_NOT_SHARED = (
    "Can't share memory on an uninitialized parameter or buffer. Call `forward` to initialize the parameters before "
    "calling `module.share_memory()`."
)
_USED = (
    "Attempted to use an uninitialized parameter in {}. This error happens when you are using a `LazyModule` or "
    "explicitly manipulating `torch.nn.parameter.{}` objects. When using LazyModules Call `forward` with a dummy batch "
    "to initialize the parameters before calling torch functions"
)
# What converts, moves and copies modules may be done without a size.
_ALLOWED = frozenset(
    ("to", "float", "double", "half", "bfloat16", "cpu", "cuda", "detach", "detach_", "clone", "empty_like", "is_floating_point",
     "is_complex", "requires_grad_", "__hash__", "_version", "__get__", "__set__", "__delete__", "copy_", "_is_view",
     "set_", "backward", "register_hook", "dim", "element_size", "numel", "data_ptr", "untyped_storage")
)  # fmt: skip


class UninitializedTensorMixin:
    """What a parameter and a buffer without a size have in common."""

    _is_uninitialized = True

    def materialize(self, shape, device=None, dtype=None):
        """Becomes a parameter of this shape, with memory that is not written yet."""
        self.data = _C.empty(shape, device=device or self.data.device, dtype=dtype or self.data.dtype)
        self.__class__ = self.cls_to_become

    @property
    def shape(self):
        raise RuntimeError(_NO_SHAPE)

    def share_memory_(self):
        raise RuntimeError(_NOT_SHARED)

    def __repr__(self):
        return f"<{self.__class__.__name__}>"

    def __reduce_ex__(self, protocol):
        return _rebuild, (self.__class__, self.requires_grad, self.data.device, self.data.dtype)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if getattr(func, "__name__", None) not in _ALLOWED:
            raise ValueError(_USED.format(func, cls.__name__))
        with _C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


def _rebuild(cls, requires_grad, device, dtype):
    return cls(requires_grad=requires_grad, device=device, dtype=dtype)


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A parameter whose size is not known yet."""

    cls_to_become = Parameter

    def __new__(cls, requires_grad=True, device=None, dtype=None):
        return Tensor._make_subclass(cls, _C.empty(0, device=device, dtype=dtype), requires_grad)

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            memo[id(self)] = _rebuild(type(self), self.requires_grad, self.data.device, self.data.dtype)
        return memo[id(self)]


class _PlainBuffer(Tensor):
    """What a buffer without a size becomes: a tensor."""

    __torch_function__ = _C._disabled_torch_function_impl


class UninitializedBuffer(UninitializedTensorMixin, Tensor):
    """A buffer whose size is not known yet."""

    cls_to_become = _PlainBuffer

    def __new__(cls, requires_grad=False, device=None, dtype=None, persistent=True):
        buffer = Tensor._make_subclass(cls, _C.empty(0, device=device, dtype=dtype), requires_grad)
        buffer.persistent = persistent
        buffer._is_buffer = True
        return buffer
