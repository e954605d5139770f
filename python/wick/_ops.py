"""torch.ops: operators by namespace, name and overload.

>>> wick.ops.aten.add.Tensor(x, 1)
"""

import sys
from types import ModuleType, SimpleNamespace

from . import _C
from ._C import OpOverload

__all__ = ["OpOverload", "OpOverloadPacket", "ops"]

_packets = {}


class OpOverloadPacket:
    """All overloads of an operator: a call finds the one that fits; each is an attribute."""

    __module__ = "torch._ops"

    def __init__(self, name, overloads):
        self.__name__ = name
        self.__qualname__ = f"aten.{name}"
        self._names = overloads
        self._found = [_C._overload(f"{name}.{overload}") for overload in overloads]
        self.__dict__.update(zip(overloads, self._found, strict=True))

    def __getattr__(self, name):
        raise AttributeError(f"The underlying op of 'aten.{self.__name__}' has no overload name '{name}'")

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
        return f"<OpOverloadPacket(op='aten.{self.__name__}')>"

    def __str__(self):
        return f"aten.{self.__name__}"

    def __reduce__(self):
        return packet, (self.__name__,)

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self


def packet(name):
    """The one OpOverloadPacket of that name; None when the table has no such operator."""
    if name not in _packets:
        overloads = _C._overload_names(name)
        if not overloads:
            return None
        _packets[name] = OpOverloadPacket(name, overloads)
    return _packets[name]


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
        found = None
        if self.__dict__["name"] == "aten" and not name.startswith("__"):
            found = packet(name)
        elif (library := sys.modules.get(f"{__package__}.library")) is not None:  # else nothing was defined
            return library.lookup(self.__dict__["name"], name) or self._missing(name)
        if found is None:
            self._missing(name)
        self.__dict__[name] = found
        return found

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
        """PyTorch's operators of a C++ library: OSError, since such a library needs PyTorch's own."""
        raise OSError(f"Could not load this library: {path}")


ops = _Ops("torch.ops")
ops.aten.sym_size = SimpleNamespace(int=_sym_size)
