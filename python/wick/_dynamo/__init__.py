"""The names that PyTorch programs use of torch._dynamo; the thing itself is in the C core."""

import functools

from .. import _C
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
    substitute_in_graph,
)
from . import config, exc

__all__ = [
    "ExplainOutput", "allow_in_graph", "assume_constant_result", "config", "disable", "disallow_in_graph",
    "error_on_graph_break", "exc", "explain", "export", "forbid_in_graph", "graph_break", "is_compiling", "list_backends", "mark_dynamic", "mark_static", "mark_static_address", "mark_unbacked",
    "maybe_mark_dynamic", "nonstrict_trace", "optimize", "register_backend", "reset", "run", "set_stance",
    "skip_frame", "substitute_in_graph",
]  # fmt: skip


def graph_break(msg=""):
    """Ends the graph here."""


graph_break._wick_disable = True


def skip_frame(msg=""):
    """Ends the graph here, like graph_break(): what stands in front of it is captured in any case."""


skip_frame._wick_disable = True


def forbid_in_graph(fn):
    """Calls of the function end the graph."""
    fn._wick_disable = True
    return fn


disallow_in_graph = forbid_in_graph


def nonstrict_trace(traceable_fn):
    """Functions need no permission to be a part of a graph: it is the function itself, which is captured as any other."""
    return traceable_fn


class error_on_graph_break:  # noqa: N801  as PyTorch has it
    """Whether a graph break is an error: inside of a `with` block, or while a decorated function runs, also in captured code.

    It counts when something is captured. It is weaker than fullgraph=True: only the parts inside have to be without a break.

        with error_on_graph_break(True):
            compiled(x)
    """

    def __init__(self, error_on_graph_break):
        self.error_on_graph_break = error_on_graph_break

    def __enter__(self):
        _C._push_break_error(self.error_on_graph_break)

    def __exit__(self, kind, value, traceback):
        _C._pop_break_error()

    def __call__(self, function):
        @functools.wraps(function)
        def inside(*args, **kwargs):
            with error_on_graph_break(self.error_on_graph_break):
                return function(*args, **kwargs)

        return inside


def optimize(backend=None, *, nopython=False, dynamic=None, **unused):
    """The decorator form of compile()."""
    from ..compiler import compile

    return compile(fullgraph=nopython, dynamic=dynamic, backend=backend)


def run(fn=None):
    """Accepted for compatibility: gives the function."""
    return fn


# compile() loads this package, so what it does not need is loaded late.
__getattr__ = _late(
    __name__,
    ("decorators", "eval_frame", "marks", "utils"),
    {
        "OptimizedModule": "eval_frame",
        **dict.fromkeys(("ExplainOutput", "explain"), "explaining"),
        **dict.fromkeys(("ExportResult", "export"), "exporting"),
        **dict.fromkeys(
            ("mark_dynamic", "mark_static", "mark_static_address", "mark_unbacked", "maybe_mark_dynamic"), "marks"
        ),
    },
)
