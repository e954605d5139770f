"""torch._dynamo.decorators: what marks functions and tensors, under the name that libraries import it by."""

from . import (
    allow_in_graph,
    assume_constant_result,
    disable,
    disallow_in_graph,
    error_on_graph_break,
    forbid_in_graph,
    graph_break,
    nonstrict_trace,
    run,
    set_stance,
    skip_frame,
    substitute_in_graph,
)
from .marks import mark_dynamic, mark_static, mark_static_address, mark_unbacked, maybe_mark_dynamic

__all__ = [
    "allow_in_graph", "assume_constant_result", "disable", "disallow_in_graph", "error_on_graph_break",
    "forbid_in_graph", "graph_break", "mark_dynamic", "mark_static", "mark_static_address", "mark_unbacked",
    "maybe_mark_dynamic", "nonstrict_trace", "run", "set_stance", "skip_frame", "substitute_in_graph",
]  # fmt: skip
