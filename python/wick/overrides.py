"""Overriding calls from Python: classes with __torch_function__, and modes that see every call.

>>> class Logged(Tensor):
...     @classmethod
...     def __torch_function__(cls, func, types, args=(), kwargs=None):
...         print(func.__name__)
...         return super().__torch_function__(func, types, args, kwargs)
"""

import functools

from . import _C
from ._C import Tensor
from ._C import _has_torch_function as has_torch_function
from ._C import _has_torch_function_variadic as has_torch_function_variadic
from ._names import getter as _getter

__all__ = [
    "TorchFunctionMode", "get_default_nowrap_functions", "handle_torch_function", "has_torch_function",
    "is_tensor_like", "is_tensor_method_or_property", "wrap_torch_function",
]  # fmt: skip


def has_torch_function_unary(obj):
    """Whether the one object overrides calls, or a mode is on."""
    return has_torch_function_variadic(obj)


def handle_torch_function(public_api, relevant_args, *args, **kwargs):
    """Calls public_api(*args, **kwargs) as the mode or the first of the relevant arguments that overrides it says."""
    return _C._dispatch_torch_function(public_api, relevant_args, args, kwargs)


def wrap_torch_function(dispatcher):
    """A decorator: the function's calls go to what dispatcher(*args, **kwargs) gives, where that overrides them."""

    def decorate(function):
        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            relevant = dispatcher(*args, **kwargs)
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return function(*args, **kwargs)

        return wrapped

    return decorate


@functools.cache
def get_default_nowrap_functions():
    """What Tensor.__torch_function__ calls without making the results the subclass's."""
    return {Tensor.grad.__get__, Tensor._base.__get__, Tensor._grad.__get__}


def is_tensor_like(inp):
    """Whether it is a tensor or an object with a __torch_function__."""
    return type(inp) is Tensor or hasattr(inp, "__torch_function__")


@functools.cache
def _methods_and_properties():
    names = (getattr(Tensor, name) for name in dir(Tensor))
    return [value.__get__ if hasattr(type(value), "__set__") else value for value in names]


def is_tensor_method_or_property(func):
    """Whether a __torch_function__ got a method or an attribute of Tensor."""
    return func in _methods_and_properties() or getattr(func, "__name__", None) == "__get__"


class TorchFunctionMode:
    """A context manager whose __torch_function__ is asked about every call inside, but not about its own.

    >>> class Count(TorchFunctionMode):
    ...     def __torch_function__(self, func, types, args=(), kwargs=None):
    ...         return func(*args, **(kwargs or {}))
    """

    def __torch_function__(self, func, types, args=(), kwargs=None):
        raise NotImplementedError

    def __enter__(self):
        _C._push_on_torch_function_stack(self)
        return self

    def __exit__(self, *error):
        _C._pop_torch_function_stack()

    @classmethod
    def push(cls, *args, **kwargs):
        """The older way to make one."""
        return cls(*args, **kwargs)


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that just calls."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


__getattr__ = _getter(__name__)
