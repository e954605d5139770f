"""Names that libraries read of torch._C. They are found here when the extension module has none of that name."""

import enum

from ._C import Tensor
from ._names import cannot_be_made

_NO_SCRIPT = "wick has no TorchScript"
Value, Block, Argument, FunctionSchema = (
    cannot_be_made(f"torch._C.{name}", _NO_SCRIPT) for name in ("Value", "Block", "Argument", "FunctionSchema")
)
ScriptModule = ScriptFunction = ScriptObject = None


class _KindOfClass(type):
    """Makes isinstance(cls, _TensorMeta) ask whether cls is a class of tensors."""

    def __instancecheck__(cls, kind):
        return isinstance(kind, type) and issubclass(kind, Tensor)


class _TensorMeta(type, metaclass=_KindOfClass):
    """The class of Tensor's class, as annotations name it. It is `type` here."""


def _log_api_usage_once(event):
    """Nothing is counted."""


def _get_tracing_state():
    """What records a call for TorchScript: None."""
    return None


def _are_functorch_transforms_active():
    """Whether a transform of torch.func runs the code that asks."""
    return False


def _jit_set_profiling_executor(enabled):
    """Accepted for compatibility: gives what was set before."""
    return True


_jit_set_profiling_mode = _jit_override_can_fuse_on_cpu = _jit_override_can_fuse_on_gpu = _jit_set_profiling_executor
_jit_set_texpr_fuser_enabled = _jit_set_nvfuser_enabled = _jit_set_profiling_executor


class DispatchKey(enum.IntEnum):
    """PyTorch's layers by name. Nothing here is dispatched by them."""

    (
        Undefined, CPU, CUDA, XPU, MPS, Meta, BackendSelect, Python, PythonDispatcher, Functionalize, ADInplaceOrView,
        AutogradOther, AutogradCPU, AutogradCUDA, AutogradXPU, AutogradMPS, AutogradMeta, AutocastCPU, AutocastCUDA,
        AutocastXPU, AutocastMPS, Batched, CompositeImplicitAutograd, CompositeExplicitAutograd,
    ) = range(24)  # fmt: skip


class DispatchKeySet:
    """A set of layers."""

    def __init__(self, key=DispatchKey.Undefined):
        self._bits = 1 << key if isinstance(key, DispatchKey) else 0

    def _of(self, bits):
        made = DispatchKeySet()
        made._bits = bits
        return made

    def __or__(self, other):
        return self._of(self._bits | other._bits)

    def __and__(self, other):
        return self._of(self._bits & other._bits)

    def __sub__(self, other):
        return self._of(self._bits & ~other._bits)

    def __eq__(self, other):
        return isinstance(other, DispatchKeySet) and self._bits == other._bits

    __hash__ = None

    def add(self, key):
        """With another layer."""
        return self._of(self._bits | 1 << key)

    def remove(self, key):
        """Without a layer."""
        return self._of(self._bits & ~(1 << key))

    def has(self, key):
        """Whether a layer is in it."""
        return bool(self._bits >> key & 1)


class _ExcludeDispatchKeyGuard:
    """Layers that are left out inside a `with`: nothing here is dispatched by them."""

    def __init__(self, keys):
        self._keys = keys

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        return False


class _Activations:
    """torch._C._nn: the operators that nn.functional calls."""

    @staticmethod
    def _parse_to(*args, **kwargs):
        """(device, dtype, non_blocking, memory_format) of the arguments of to()."""
        from .nn.modules.module import _parse_to

        return _parse_to(*args, **kwargs)

    def __getattr__(self, name):
        from . import _C

        return getattr(_C, name)


_nn = _Activations()
