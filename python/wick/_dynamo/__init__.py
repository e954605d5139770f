"""The names that PyTorch programs use of torch._dynamo; the thing itself is in the C core."""

from .._names import late as _late
from ..compiler import (
    allow_in_graph,
    assume_constant_result,
    disable,
    is_compiling,
    list_backends,
    register_backend,
    reset,
    set_stance,
)
from . import config, exc
from .explain import ExplainOutput, explain
from .marks import mark_dynamic, mark_static, mark_static_address, mark_unbacked, maybe_mark_dynamic

__all__ = [
    "ExplainOutput", "allow_in_graph", "assume_constant_result", "config", "disable", "exc", "explain", "forbid_in_graph",
    "graph_break", "is_compiling", "list_backends", "mark_dynamic", "mark_static", "mark_static_address", "mark_unbacked",
    "maybe_mark_dynamic", "optimize", "register_backend", "reset", "run", "set_stance",
]  # fmt: skip


def graph_break(msg=""):
    """Ends the graph here."""


graph_break._wick_disable = True


def forbid_in_graph(fn):
    """Calls of the function end the graph."""
    fn._wick_disable = True
    return fn


def optimize(backend="wick", *, nopython=False, dynamic=None, **unused):
    """The decorator form of compile()."""
    from ..compiler import compile

    return compile(fullgraph=nopython, dynamic=dynamic, backend=backend)


def run(fn=None):
    """Accepted for compatibility: gives the function."""
    return fn


__getattr__ = _late(__name__, ("eval_frame", "utils"), {"OptimizedModule": "eval_frame"})
