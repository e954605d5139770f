"""torch.export: a module's call as one graph that can be looked at, changed, saved, and run without its Python.

    program = export(model.eval(), (x,), dynamic_shapes={"x": {0: Dim("batch")}})
    y = program.module()(x)
    save(program, "model.pt2")

docs/export.md has the way there and back. Tests: tests/python/test_export.py.
"""

import dataclasses

from .._dynamo.exc import UserError, UserErrorType
from ..nn import Module
from ..utils import _pytree
from . import _files, exported_program
from ._files import load, save
from .dynamic_shapes import AdditionalInputs, Constraint, Dim, ShapesCollection, dims
from .exported_program import ExportedProgram, ModuleCallEntry, ModuleCallSignature, default_decompositions
from .graph_signature import ExportBackwardSignature, ExportGraphSignature
from .unflatten import FlatArgsAdapter, UnflattenedModule, unflatten

__all__ = [
    "AdditionalInputs", "Constraint", "CustomDecompTable", "Dim", "ExportBackwardSignature", "ExportGraphSignature",
    "ExportedProgram", "FlatArgsAdapter", "ModuleCallEntry", "ModuleCallSignature", "ShapesCollection", "UnflattenedModule",
    "default_decompositions", "dims", "draft_export", "export", "load", "register_dataclass", "save", "unflatten",
]  # fmt: skip

_HINT = (
    "\n\nThe error above occurred when calling torch.export.export. If you would like to view some more information about "
    "this error, and get a list of all other errors that may occur in your export call, you can replace your `export()` call "
    "with `draft_export()`."
)


class CustomDecompTable(dict):
    """A table of decompositions, as default_decompositions() gives one."""


def _check(mod, args, kwargs):
    if not isinstance(mod, Module):
        raise ValueError(f"Expected `mod` to be an instance of `torch.nn.Module`, got {type(mod)}.")
    if not isinstance(args, tuple):
        raise UserError(
            UserErrorType.INVALID_INPUT,
            f"Expecting `args` to be a tuple of example positional inputs, got {type(args)}",
        )
    if any(not isinstance(name, str) for name in kwargs):
        raise TypeError("keywords must be strings")


def export(mod, args, kwargs=None, *, dynamic_shapes=None, strict=False, preserve_module_call_signature=(),
           prefer_deferred_runtime_asserts_over_guards=False):  # fmt: skip
    """The ExportedProgram of mod(*args, **kwargs): one graph, for all sizes that dynamic_shapes says may change.

    Numbers and text among the arguments become constants. `strict` makes no difference: the bytecode is captured in
    either case. A program that takes another way for other values of a tensor has no graph, and is an error.

    >>> print(export(wick.nn.Linear(2, 3), (wick.ones(4, 2),)).graph_signature.parameters)
    ('weight', 'bias')
    """
    kwargs = dict(kwargs or {})
    try:
        _check(mod, args, kwargs)
        return exported_program.of_call(mod, args, kwargs, dynamic_shapes)
    except RuntimeError as error:
        if isinstance(error, (UserError, *_errors())) and _HINT not in str(error):
            error.args = (str(error) + _HINT,)
        raise


def _errors():
    from ..fx.experimental.symbolic_shapes import ConstraintViolationError, GuardOnDataDependentSymNode

    return ConstraintViolationError, GuardOnDataDependentSymNode


@dataclasses.dataclass
class DraftExportReport:
    """What draft_export() found: the error that export() raises, or None."""

    failure: Exception | None = None

    def successful(self):
        """Whether export() gives the same program."""
        return self.failure is None

    def __str__(self):
        if self.failure is None:
            return "No issues are found during export, and it was able to soundly produce a graph."
        return f"export() cannot do what was asked for, and sizes were made constants where it failed: {self.failure}"


def draft_export(mod, args, kwargs=None, *, dynamic_shapes=None, preserve_module_call_signature=(), strict=False,
                 prefer_deferred_runtime_asserts_over_guards=False):  # fmt: skip
    """export(); where what was said of sizes does not hold, the program for those that do. `_report` has the reason."""
    options = {"preserve_module_call_signature": preserve_module_call_signature, "strict": strict}
    try:
        made, failure = export(mod, args, kwargs, dynamic_shapes=dynamic_shapes, **options), None
    except (UserError, *_errors()) as error:
        if getattr(error, "error_type", None) is not UserErrorType.CONSTRAINT_VIOLATION:
            raise
        made, failure = export(mod, args, kwargs, dynamic_shapes=_hints(dynamic_shapes), **options), error
    made._report = DraftExportReport(failure)
    return made


def _hints(shapes):
    """The same with Dim.AUTO for every Dim."""
    if isinstance(shapes, (ShapesCollection, AdditionalInputs)):
        return shapes
    return _pytree.tree_map(lambda dim: dim if dim is None or isinstance(dim, int) else Dim.AUTO, shapes)


def register_dataclass(cls, *, serialized_type_name=None):
    """A dataclass that arguments and results may be, in files under serialized_type_name."""
    if not dataclasses.is_dataclass(cls):
        raise ValueError(
            f"field_names must be specified with a list of all fields used to initialize {cls}, as it is not a dataclass."
        )
    _pytree.register_dataclass(cls, serialized_type_name=serialized_type_name)
    _files.registered[serialized_type_name or f"{cls.__module__}.{cls.__qualname__}"] = cls
