"""torch._dynamo.eval_frame: what libraries ask for to tell a compiled module from others."""

from .._names import getter as _getter
from ..nn import Module

__all__ = ["OptimizedModule"]


class _IsCompiled(type(Module)):
    def __instancecheck__(cls, instance):
        return type.__instancecheck__(cls, instance) or (
            isinstance(instance, Module) and "_orig_mod" in instance.__dict__
        )


class OptimizedModule(Module, metaclass=_IsCompiled):
    """What isinstance takes a compiled module for: one with the module it was made of as _orig_mod."""


__getattr__ = _getter(__name__)
