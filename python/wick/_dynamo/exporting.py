"""torch._dynamo.export: a call of a function or module as one fx.GraphModule, with what it assumes of sizes.

It is what torch.export makes of the call; sizes are symbols where nothing else is said. Tests:
tests/python/test_dynamo_names.py.
"""

import inspect
import warnings
from typing import NamedTuple

from .. import _C
from ..nn import Module, ModuleList
from .exc import Unsupported, UserError, UserErrorType

__all__ = ["ExportResult", "export"]


class ExportResult(NamedTuple):
    """graph_module: takes and gives what the function does. guards: texts such as "s0 <= 64"."""

    graph_module: Module
    guards: tuple


def _modules_of(f):
    """Modules that a function reads by a name: of its object, its closure, its globals."""
    code = getattr(f, "__code__", None)
    names = code.co_names if code else ()
    cells = [cell.cell_contents for cell in getattr(f, "__closure__", None) or ()]
    read = [getattr(f, "__self__", None), *cells, *(f.__globals__.get(name) for name in names if code)]
    return [value for value in read if isinstance(value, Module)]


def _as_module(f):
    """A module whose forward calls the function, and says that it has its parameters."""

    class Exported(Module):
        def __init__(self, parts):
            super().__init__()
            self.parts = ModuleList(parts)

        def forward(self, *args, **kwargs):
            return f(*args, **kwargs)

    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    Exported.forward.__signature__ = inspect.Signature([itself, *inspect.signature(f).parameters.values()])
    return Exported(_modules_of(f))


def _any_size(module, args, kwargs):
    """dynamic_shapes by which each tensor may have other sizes."""
    from ..export.dynamic_shapes import Dim, combined
    from ..utils import _pytree

    def dims(leaf):
        return dict.fromkeys(range(leaf.dim()), Dim.AUTO) if isinstance(leaf, _C.Tensor) else None

    return _pytree.tree_map(dims, combined(module, args, kwargs))


def _exported(f, args, kwargs, dynamic_shapes, static, decompositions):
    from ..export import exported_program
    from ..fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    module = f if isinstance(f, Module) else _as_module(f)
    if dynamic_shapes is None and not static:
        dynamic_shapes = _any_size(module, args, kwargs)
    try:
        program = exported_program.of_call(module, args, kwargs, dynamic_shapes)
    except (UserError, GuardOnDataDependentSymNode) as error:
        if getattr(error, "error_type", UserErrorType.ANTI_PATTERN) is not UserErrorType.ANTI_PATTERN:
            raise
        raise Unsupported(str(error)) from None
    if decompositions is not None:
        program = program.run_decompositions(decompositions)
    return ExportResult(program.module(check_guards=False), tuple(program._guards_code))


def export(
    f, *extra_args, aten_graph=False, pre_dispatch=False, decomposition_table=None, tracing_mode="symbolic",
    dynamic_shapes=None, specialize_float=True, assume_static_by_default=False, same_signature=True,
    disable_constraint_solver=False, prefer_deferred_runtime_asserts_over_guards=False, _log_export_usage=True,
    constraints=None, **extra_kwargs,
):  # fmt: skip
    """A function of f's arguments that gives the ExportResult of f with them.

    The graph has operators of aten in any case. A call that is not one graph is an Unsupported.

        graph_module, guards = torch._dynamo.export(f)(x)
    """
    if decomposition_table is not None and not aten_graph:
        raise AssertionError(
            "Specifying a decomposition_table table or tracing mode is illegal without setting aten_graph=True"
        )
    static = assume_static_by_default or tracing_mode == "real"

    def exported(*args, **kwargs):
        return _exported(f, args, kwargs, dynamic_shapes, static, decomposition_table)

    if not extra_args and not extra_kwargs:
        return exported
    warnings.warn(
        "export(f, *args, **kwargs) is deprecated, use export(f)(*args, **kwargs) instead.  If you don't migrate, we may "
        "break your export call in the future if your user defined kwargs conflict with future kwargs added to export(f).",
        FutureWarning,
        stacklevel=2,
    )
    return exported(*extra_args, **extra_kwargs)
