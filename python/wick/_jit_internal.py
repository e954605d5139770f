"""Marks that TorchScript's compiler would read; there is none, so functions keep them and run as they are."""

from typing import Any, Dict, Final, List, Optional, Tuple, Union  # noqa: F401, UP035  imported from here by programs

from ._names import getter as _getter


class Future:
    """The result of a function that fork() has called."""

    def __init__(self, value=None):
        self._value = value

    def wait(self):
        """The result."""
        return self._value

    value = wait

    def done(self):
        """Whether it is there: always."""
        return True


class FunctionModifiers:
    """The marks."""

    UNUSED = "unused (ignored and replaced with raising of an exception)"
    IGNORE = "ignore (leave as a call to Python, cannot be torch.jit.save'd)"
    EXPORT = "export (compile this function even if nothing calls it)"
    DEFAULT = "default (compile if called from a exported function / forward)"
    COPY_TO_SCRIPT_WRAPPER = "if this method is not scripted, copy the python method onto the scripted model"
    _DROP = "_drop (function is fully ignored, declaration can be unscriptable)"


def is_scripting():
    """Whether the code that asks was scripted: never."""
    return False


def unused(fn):
    """A function, or property, that scripted code would not call."""
    marked = fn.fget if isinstance(fn, property) else fn
    marked._torchscript_modifier = FunctionModifiers.UNUSED
    return fn


def ignore(drop=False, **kwargs):
    """A function that scripted code would call as Python; with or without parentheses."""
    if callable(drop):
        drop._torchscript_modifier = FunctionModifiers.IGNORE
        return drop
    if not isinstance(drop, bool):
        raise RuntimeError(f"Argument to @torch.jit.ignore must be a bool or a function but got {drop}")

    def mark(fn):
        fn._torchscript_modifier = FunctionModifiers.UNUSED if drop else FunctionModifiers.IGNORE
        return fn

    return mark


def export(fn):
    """A method that is scripted though nothing calls it."""
    fn._torchscript_modifier = FunctionModifiers.EXPORT
    return fn


def _copy_to_script_wrapper(fn):
    fn._torchscript_modifier = FunctionModifiers.COPY_TO_SCRIPT_WRAPPER
    return fn


def _overload(func):
    """A declaration of another signature; the definition behind the last one is what runs."""
    return func


_overload_method = _overload


def boolean_dispatch(arg_name, arg_index, default, if_true, if_false, module_name, func_name):
    """One function for two: which is called is said by a bool argument."""

    def fn(*args, **kwargs):
        chosen = kwargs.get(arg_name, args[arg_index] if arg_index < len(args) else default)
        return (if_true if chosen else if_false)(*args, **kwargs)

    fn.__name__, fn.__module__ = func_name or fn.__name__, module_name or fn.__module__
    fn.__doc__ = (if_true if if_true.__doc__ else if_false).__doc__
    return fn


__getattr__ = _getter(__name__)
