"""torch.fx: graphs of operations as Python objects that programs read, change, print and run.

A graph comes from compile(backend=...), which hands a GraphModule to its backend, from make_fx, or is built by hand:

>>> graph = Graph()
>>> x = graph.placeholder("x")
>>> graph.output(graph.call_function(wick.add, (x, 1)))
>>> GraphModule({}, graph)(wick.ones(2))
"""

from .._names import late as _late
from .graph import Graph
from .graph_module import GraphModule
from .interpreter import Interpreter, Transformer
from .node import Node, map_arg
from .proxy import make_graph

__all__ = ["Graph", "GraphModule", "Interpreter", "Node", "Proxy", "Tracer", "Transformer", "make_graph", "map_arg",
           "symbolic_trace", "wrap"]  # fmt: skip

_OF_TRACER = ("PH", "Proxy", "Tracer", "symbolic_trace", "wrap")
__getattr__ = _late(
    __name__,
    ("experimental", "immutable_collections", "passes", "_symbolic_trace"),
    dict.fromkeys(_OF_TRACER, "_symbolic_trace"),
)
