"""Grad modes. Entering and leaving them is C (src/python/autograd/grad_mode.c); here is what decorating with one does."""

import functools
import sys

from .._C import enable_grad, inference_mode, no_grad, set_grad_enabled

__all__ = [
    "enable_grad",
    "enforce_grad_layout_policy",
    "inference_mode",
    "no_grad",
    "set_grad_enabled",
    "set_multithreading_enabled",
]


def decorate(mode, function):
    """The function with each of its calls, or each step of its generators, inside a new object like `mode`."""
    if isinstance(function, type):
        function = _class_as_function(function)
    elif _makes_generator(function):
        return _decorate_generator(mode, function)

    @functools.wraps(function)
    def decorate_context(*args, **kwargs):
        with mode.clone():
            return function(*args, **kwargs)

    return decorate_context


def _makes_generator(function):
    """inspect.isgeneratorfunction, which takes longer to load than the rest of this package."""
    while isinstance(function, functools.partial):
        function = function.func
    return bool(getattr(getattr(function, "__code__", None), "co_flags", 0) & 0x20)  # CO_GENERATOR


def _class_as_function(cls):
    import warnings

    warnings.warn(
        "Decorating classes is deprecated and will be disabled in future versions. You should only decorate functions "
        "or methods. To preserve the current behavior of class decoration, you can directly decorate the `__init__` "
        "method and nothing else.",
        FutureWarning,
        stacklevel=4,
    )
    return lambda *args, **kwargs: cls(*args, **kwargs)


def _decorate_generator(mode, function):
    """The mode holds while the generator runs, and not while its caller does."""

    @functools.wraps(function)
    def generator_context(*args, **kwargs):
        generator = function(*args, **kwargs)
        try:
            with mode.clone():
                response = generator.send(None)
            while True:
                try:
                    request = yield response
                except GeneratorExit:
                    with mode.clone():
                        generator.close()
                    raise
                except BaseException:
                    with mode.clone():
                        response = generator.throw(sys.exc_info()[1])
                else:
                    with mode.clone():
                        response = generator.send(request)
        except StopIteration as stop:
            return stop.value

    return generator_context


class set_multithreading_enabled:
    """Accepted for PyTorch's sake: wick's backward runs on the calling thread, its kernels on the thread pool."""

    def __init__(self, mode):
        self.mode = mode

    def __enter__(self):
        pass

    def __exit__(self, *exc):
        pass


class enforce_grad_layout_policy(set_multithreading_enabled):
    """Accepted for PyTorch's sake: a gradient has the strides that its sum has, and none is copied for its layout."""

    def __init__(self, enable=True):
        super().__init__(enable)
