"""torch.fx.experimental.proxy_tensor."""

from ... import _C
from ..interpreter import Interpreter
from ..proxy import make_graph

__all__ = ["make_fx"]


class _Decomposer(Interpreter):
    """Runs a graph with functions of the table in place of operators."""

    def __init__(self, module, table):
        super().__init__(module)
        self.table = table

    def call_function(self, target, args, kwargs):
        return super().call_function(self.table.get(target, target), args, kwargs)


def _decomposed(graph, table, args):
    """The graph without operators of the table; those that their functions call are decomposed as well."""
    while any(node.target in table for node in graph.graph.nodes if node.op == "call_function"):
        own = [a.detach().clone().requires_grad_(a.requires_grad) for a in args]  # what is written is not the caller's

        def forward(*tensors, graph=graph):
            return _Decomposer(graph, table).run(*tensors)

        names = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
        graph = _C._trace_graph(forward, *own, names=names, class_name=type(graph).__name__)
    return graph


def make_fx(f, decomposition_table=None, tracing_mode="real", **options):
    """make_fx(f)(*tensors): a GraphModule of what f computes, at the level of ATen.

    decomposition_table: {OpOverload: function} of operators that functions stand for: wick._decomp.get_decompositions.

    >>> make_fx(f, decomposition_table=wick._decomp.core_aten_decompositions())(x)
    """
    traced = make_graph(f)

    def wrapped(*args):
        graph = traced(*args)
        return _decomposed(graph, decomposition_table, args) if decomposition_table else graph

    return wrapped


def get_proxy_mode():
    """The mode that records a call for a GraphModule: None, since graphs are recorded below Python."""
    return None
