"""torch.jit without TorchScript: programs that script or trace run as the Python that they are.

script() and trace() give what they are given, so that decorated functions and modules work, are captured by compile()
and can be saved as state. Files of TorchScript programs can be neither written nor read: save() and load() say so.
Tests: tests/python/test_import_names.py.
"""

import contextlib
import functools
import typing
import warnings

from .._jit_internal import (
    Final,
    Future,
    _overload,  # noqa: F401
    _overload_method,  # noqa: F401
    export,
    ignore,
    is_scripting,
    unused,
)
from .._names import cannot as _cannot
from .._names import late as _late
from ..nn import Module

__all__ = [
    "Attribute", "CompilationUnit", "Error", "Final", "Future", "RecursiveScriptModule", "ScriptFunction", "ScriptModule",
    "ScriptWarning", "TopLevelTracedModule", "TracedModule", "TracerWarning", "TracingCheckError", "annotate",
    "enable_onednn_fusion", "export", "export_opnames", "fork", "freeze", "fuser", "ignore", "interface", "is_scripting",
    "is_tracing", "isinstance", "load", "onednn_fusion_enabled", "optimize_for_inference", "optimized_execution",
    "run_frozen_optimizations", "save", "script", "script_if_tracing", "script_method", "set_fusion_strategy",
    "strict_fusion", "trace", "trace_module", "unused", "wait",
]  # fmt: skip

_isinstance = isinstance


class Error(Exception):
    """What a TorchScript program raises."""

    __module__ = "torch.jit"


class ScriptWarning(Warning):
    """A warning of script()."""


class TracerWarning(Warning):
    """A warning of trace()."""

    @staticmethod
    def ignore_lib_warnings():
        """Hides the warnings that come from the library itself."""
        warnings.filterwarnings("ignore", category=TracerWarning, module="torch.(?!jit)")


class TracingCheckError(Exception):
    """Two runs of a traced function differed."""


class Attribute(typing.NamedTuple):
    """A value with the type that a ScriptModule was to give it."""

    value: object
    type: object


class ScriptModule(Module):
    """A Module whose methods were to be scripted: an ordinary one here."""


class RecursiveScriptModule(ScriptModule):
    """What PyTorch's script() makes of modules; script() gives the module itself here."""


class TracedModule(ScriptModule):
    """What PyTorch's trace() makes of modules; trace() gives the module itself here."""


class TopLevelTracedModule(TracedModule):
    """See TracedModule."""


class ScriptFunction:
    """What PyTorch's script() makes of functions; script() gives the function itself here."""


_WHY = "wick has no TorchScript; script() and trace() give Python functions and modules as they are"
load = _cannot("torch.jit.load", _WHY)
save = _cannot("torch.jit.save", _WHY)
export_opnames = _cannot("torch.jit.export_opnames", _WHY)
CompilationUnit = _cannot("torch.jit.CompilationUnit", _WHY)


# ---- script and trace ----


def script(obj=None, optimize=None, _frames_up=0, _rcb=None, example_inputs=None):
    """The function, module or class as it is.

    >>> script(lambda x: x + 1)(wick.ones(1))
    tensor([2.])
    """
    if obj is None:
        raise TypeError("script() missing 1 required positional argument: 'obj'")
    return obj


def trace(func, example_inputs=None, *args, example_kwarg_inputs=None, **options):
    """The function or module as it is, after one call with the inputs."""
    if example_inputs is None and example_kwarg_inputs is None:
        raise RuntimeError("example_kwarg_inputs should be a dict")
    if example_inputs is not None and not _isinstance(example_inputs, (tuple, list)):
        example_inputs = (example_inputs,)
    func(*(example_inputs or ()), **(example_kwarg_inputs or {}))
    return func


def trace_module(mod, inputs, *args, **options):
    """The module as it is, after one call of each of its methods that `inputs` {name: arguments} names."""
    for name, arguments in inputs.items():
        method = mod if name == "forward" else getattr(mod, name)
        method(*(arguments if _isinstance(arguments, tuple) else (arguments,)))
    return mod


def is_tracing():
    """Whether trace() runs the code that asks: there is nothing to record, so never."""
    return False


def script_method(fn):
    """The method as it is."""
    return fn


def script_if_tracing(fn):
    """The function as it is, since nothing is traced."""

    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        return fn(*args, **kwargs)

    wrapper.__original_fn = fn
    wrapper.__script_if_tracing_wrapper = True
    return wrapper


_script_if_tracing = script_if_tracing


def interface(obj):
    """The class as it is."""
    return obj


def annotate(the_type, the_value):
    """The value."""
    return the_value


def isinstance(obj, target_type):
    """isinstance() that also takes List[int] and its kin, of which only the container is looked at."""
    kinds = target_type if _isinstance(target_type, tuple) else (target_type,)
    return any(_isinstance(obj, typing.get_origin(kind) or kind) for kind in kinds)


def freeze(mod, preserved_attrs=None, optimize_numerics=True):
    """The module as it is; it has to be in eval mode."""
    if mod.training:
        raise RuntimeError(
            "Freezing is currently only implemented for modules in eval mode. Please call .eval() before."
        )
    return mod


def optimize_for_inference(mod, other_methods=None):
    """The module as it is: compile() is what makes it faster."""
    return mod


def run_frozen_optimizations(mod, optimize_numerics=True, preserved_methods=None):
    """Nothing to run."""


# ---- tasks ----


def fork(func, *args, **kwargs):
    """Calls the function at once; wait() gives what it gave."""
    return Future(func(*args, **kwargs))


def wait(future):
    """What the function of fork() gave."""
    return future.wait()


# ---- settings of PyTorch's own compilers, which are not here to be set ----


@contextlib.contextmanager
def optimized_execution(should_optimize):
    """Accepted for compatibility."""
    yield


@contextlib.contextmanager
def fuser(name):
    """Accepted for compatibility."""
    yield


class strict_fusion:
    """Accepted for compatibility."""

    def __enter__(self):
        pass

    def __exit__(self, *exception):
        pass


def set_fusion_strategy(strategy):
    """Accepted for compatibility: gives the strategy back."""
    return strategy


def enable_onednn_fusion(enabled):
    """Accepted for compatibility."""


def onednn_fusion_enabled():
    """Whether TorchScript fuses with oneDNN: no."""
    return False


__getattr__ = _late(__name__, ("annotations",))
