"""torch.jit without TorchScript: programs that script or trace run as Python or as captured graphs.

script() gives a function or module that runs as the Python that it is; trace() one that runs the graph of its example.
Both can be saved: a file (_archive.py) has the graphs of calls (_programs.py) as text and the tensors, and load() gives
a module that needs no Python of the program. PyTorch's own files, which hold TorchScript, are refused.
Tests: tests/python/test_jit.py.
"""

import contextlib
import functools
import types
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
from ._archive import load, save
from ._modules import (
    Example,
    LoadedModule,
    RecursiveScriptModule,
    ScriptFunction,
    ScriptModule,
    TopLevelTracedModule,
    TracedModule,
    frozen,
    stand_in,
)
from ._programs import CannotSave, captures

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


_WHY = "wick has no TorchScript; script() and trace() give Python functions and modules as they are"
export_opnames = _cannot("torch.jit.export_opnames", _WHY)
CompilationUnit = _cannot("torch.jit.CompilationUnit", _WHY)


# ---- script and trace ----


def script(obj=None, optimize=None, _frames_up=0, _rcb=None, example_inputs=None):
    """The function or module, as Python, with save(): the first call, or that with example_inputs, says which graph.

    >>> script(lambda x: x + 1)(wick.ones(1))
    tensor([2.])
    """
    if obj is None:
        raise TypeError("script() missing 1 required positional argument: 'obj'")
    if _isinstance(obj, (ScriptModule, ScriptFunction)) and "_programs" in obj.__dict__:
        return obj
    examples = _examples_of(obj, example_inputs)
    if _isinstance(obj, Module):
        return stand_in("script", obj, examples=examples)
    if not _isinstance(obj, types.FunctionType):
        return obj
    made = ScriptFunction(obj)
    made._examples.update(examples)
    return made


def _examples_of(obj, inputs):
    """{mode: Example} of example_inputs: a list of arguments, or {module: such a list}."""
    for args in (inputs.get(obj, ()) if _isinstance(inputs, dict) else inputs) or ():
        return {getattr(obj, "training", None): Example(args, {})}
    return {}


def trace(func, example_inputs=None, *args, example_kwarg_inputs=None, **options):
    """The function or module as the graph of its call with these inputs; as the Python where no graph says what it does.

    >>> trace(model.eval(), wick.ones(1, 3)).save("model.pt")
    """
    if example_inputs is None and example_kwarg_inputs is None:
        raise RuntimeError("example_kwarg_inputs should be a dict")
    if example_inputs is not None and not _isinstance(example_inputs, (tuple, list)):
        example_inputs = (example_inputs,)
    inputs = tuple(example_inputs or ()), dict(example_kwarg_inputs or {})
    if _isinstance(func, Module):
        return _traced_module(func, {"forward": inputs})
    programs, why = _traced(func, None, *inputs)
    made = ScriptFunction(func, programs)
    made._why = why
    return made


def trace_module(mod, inputs, *args, **options):
    """trace() of the methods that `inputs` {name: arguments} names."""
    tuples = {name: given if _isinstance(given, tuple) else (given,) for name, given in inputs.items()}
    return _traced_module(mod, {name: (given, {}) for name, given in tuples.items()})


def _traced_module(module, inputs):
    if _isinstance(module, LoadedModule):
        return module
    module, programs, why = module.__dict__.get("_original", module), {}, None
    for name, (args, kwargs) in inputs.items():
        programs[name], reason = _traced(getattr(module, name), module, args, kwargs)
        why = why or reason
    return stand_in("trace", module, programs, why=why)


def _traced(function, module, args, kwargs):
    """(programs, None) of a call, or ([], why there are none); what the call raises is raised."""
    try:
        return captures(function, module, args, kwargs), None
    except CannotSave as error:
        function(*args, **kwargs)
        return [], str(error)


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
    """The module without parameters, which its graph holds; it has to be in eval mode."""
    if mod.training:
        raise RuntimeError(
            "Freezing is currently only implemented for modules in eval mode. Please call .eval() on your module before freezing."
        )
    return frozen(mod) if _has_graph(mod) else mod


def optimize_for_inference(mod, other_methods=None):
    """The frozen module as fused kernels; a module whose graph is not known as it is."""
    return frozen(mod, compiled=True) if _has_graph(mod) else mod


def _has_graph(mod):
    own = mod.__dict__
    return bool(own.get("_programs") or own.get("_examples")) and not own.get("_why")


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
