"""Graphs of functions, by running them once."""

import inspect

from .. import _C

__all__ = ["make_graph"]


def _parameter_names(function, count):
    """ "x_1" for a parameter x; "arg0_1" where there is no such parameter."""
    try:
        names = [
            p.name
            for p in inspect.signature(function).parameters.values()
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
    except (TypeError, ValueError):
        names = []
    return [f"{names[i]}_1" if i < len(names) else f"arg{i}_1" for i in range(count)]


def _each_its_own(tensors):
    """The same tensor given twice becomes two over the same memory."""
    seen, result = set(), []
    for t in tensors:
        if id(t) in seen:
            t = t.detach().requires_grad_(t.requires_grad)
        seen.add(id(t))
        result.append(t)
    return result


def make_graph(function, **options):
    """make_graph(f)(*tensors): runs f once and gives a GraphModule of what it computes, at the level of ATen.

    Writes to the tensors happen in that run too; in the graph they are `copy_` calls at its end.

    >>> make_graph(lambda x: x + 1)(wick.ones(2)).graph.print_tabular()
    """

    def traced(*tensors):
        tensors = _each_its_own(tensors)
        name = getattr(function, "__name__", type(function).__name__)
        return _C._trace_graph(
            function, *tensors, names=_parameter_names(function, len(tensors)),
            class_name=name if name.isidentifier() else "GraphModule",
        )  # fmt: skip

    return traced


def __getattr__(name):
    from .._names import missing
    from . import _symbolic_trace

    if name in ("Attribute", "GraphAppendingTracer", "ParameterProxy", "Proxy", "TraceError", "Tracer", "TracerBase"):
        return getattr(_symbolic_trace, name)
    raise missing(__name__, name)
