"""torch.onnx.symbolic_helper: decorators of functions that would export operators; they are kept and not called."""

import functools

from .._names import getter as _getter


def parse_args(*arg_descriptors, **unused):
    """Gives the function, which an exporter would call with these kinds of arguments."""

    def decorate(fn):
        fn._arg_descriptors = arg_descriptors

        @functools.wraps(fn)
        def wrapper(g, *args, **kwargs):
            return fn(g, *args, **kwargs)

        return wrapper

    return decorate


__getattr__ = _getter(__name__)
