"""torch.ops: operators by namespace, name and overload.

>>> wick.ops.aten.add.Tensor(x, 1)
"""

import importlib
import os
import sys
from types import ModuleType

from . import _C
from ._C import OpOverload

__all__ = ["OpOverload", "OpOverloadPacket", "ops"]

_packets = {}


class OpOverloadPacket:
    """All overloads of an operator: a call finds the one that fits; each is an attribute."""

    __module__ = "torch._ops"

    def __init__(self, name, overloads, namespace="aten", row=None):
        self.__name__ = name
        self.__qualname__ = f"{namespace}.{name}"
        self._names = overloads
        self._found = [_C._overload(f"{row or name}.{overload}") for overload in overloads]
        self.__dict__.update(zip(overloads, self._found, strict=True))

    def __getattr__(self, name):
        raise AttributeError(f"The underlying op of '{self.__qualname__}' has no overload name '{name}'")

    def __call__(self, *args, **kwargs):
        for overload in self._found[:-1]:
            try:
                return overload(*args, **kwargs)
            except TypeError:  # these arguments are another overload's
                pass
        return self._found[-1](*args, **kwargs)

    def overloads(self):
        """The names of the overloads."""
        return list(self._names)

    def __repr__(self):
        return f"<OpOverloadPacket(op='{self.__qualname__}')>"

    def __str__(self):
        return self.__qualname__

    def __reduce__(self):
        namespace, _, name = self.__qualname__.partition(".")
        return packet, (name, namespace)

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self


_ROWS = {
    "aten": "{}",
    "torchvision": "vision_{}",
    "quantized_decomposed": "quantized_{}",
}  # namespace -> what its operators are called in the table


def packet(name, namespace="aten"):
    """The one OpOverloadPacket of that name; None when the table has no such operator."""
    key = namespace, name
    if key not in _packets:
        row = _ROWS[namespace].format(name if namespace == "aten" else name.removeprefix("_"))
        overloads = _C._overload_names(row)
        if not overloads:
            return None
        _packets[key] = OpOverloadPacket(name, overloads, namespace, row)
    return _packets[key]


def is_built_in(op):
    """Whether it is an operator of the table, as an object or by a name like "torchvision::nms"."""
    if isinstance(op, (OpOverload, OpOverloadPacket)):
        return True
    namespace, _, name = str(op).partition("::")
    return namespace in _ROWS and packet(name.partition(".")[0], namespace) is not None


def _sym_size(self, dim):
    """aten.sym_size.int: one size of a tensor."""
    return self.size(dim)


_sym_size.__name__, _sym_size.__module__ = "int", f"{__package__}.ops.aten.sym_size"


class _OpNamespace(ModuleType):
    """torch.ops.aten; other namespaces have what programs define (torch.library)."""

    def __init__(self, name):
        super().__init__(f"torch.ops.{name}")
        self.name = name

    def __getattr__(self, name):
        found, namespace = None, self.__dict__["name"]
        if namespace in _ROWS and not name.startswith("__"):
            found = packet(name, namespace)
        if namespace == "higher_order":
            found = getattr(importlib.import_module(f"{__package__}._higher_order_ops.operators"), name, None)
        if found is not None:
            self.__dict__[name] = found
            return found
        library = sys.modules.get(f"{__package__}.library")
        if library is None:  # nothing was defined
            self._missing(name)
        return library.lookup(namespace, name) or self._missing(name)

    def _missing(self, name):
        raise AttributeError(f"'_OpNamespace' '{self.__dict__['name']}' object has no attribute '{name}'")


class _Ops(ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        namespace = _OpNamespace(name)
        self.__dict__[name] = namespace
        return namespace

    @staticmethod
    def load_library(path):
        """PyTorch's operators of a C++ library: OSError, since such a library needs PyTorch's own.

        torchvision's are wick's own, and the library is not loaded.
        """
        folder, name = os.path.split(os.fspath(path))
        if os.path.basename(folder) == "torchvision" and name.startswith("_C."):
            importlib.import_module(f"{__package__}._vision")
            return
        raise OSError(f"Could not load this library: {path}")


ops = _Ops("torch.ops")
ops.aten.sym_size = type("sym_size", (), {"int": staticmethod(_sym_size)})  # a class, whose attributes capture reads
