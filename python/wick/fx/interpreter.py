"""Interpreter: runs a graph node by node, each step a method that subclasses may change."""

from .. import _C
from ..nn import Module
from .graph_module import GraphModule, _find
from .node import Node, map_arg

__all__ = ["Interpreter", "Transformer"]

_MISSING = object()


class Interpreter:
    """Interpreter(module).run(x) is module(x), a node at a time through run_node."""

    def __init__(self, module, garbage_collect_values=True, graph=None):
        self.module = module
        self.graph = graph if graph is not None else module.graph
        self.submodules = dict(module.named_modules()) if isinstance(module, Module) else {}
        self.garbage_collect_values = garbage_collect_values
        self.env = {}
        self.name = "Interpreter"
        self.extra_traceback = True
        self.user_to_last_uses = self._last_uses() if garbage_collect_values else {}

    def _last_uses(self):
        """For each node the inputs whose last use it is."""
        seen, last = set(), {}
        for node in reversed(self.graph.nodes):
            last[node] = [n for n in node.all_input_nodes if n not in seen]
            seen.update(last[node])
        return last

    def run(self, *args, initial_env=None, enable_io_processing=True):
        """The output of the graph for these arguments; nodes with a value in initial_env are not run."""
        self.env = dict(initial_env) if initial_env is not None else {}
        self.args_iter = iter(args)
        for node in self.graph.nodes:
            if node in self.env:
                continue
            self.env[node] = self.run_node(node)
            if node.op == "output":
                return self.env[node]
            for dead in self.user_to_last_uses.get(node, ()):
                self.env.pop(dead, None)
        return None

    def boxed_run(self, args_list):
        """run() that empties the list, so that arguments die with their last use."""
        args = list(args_list)
        args_list.clear()
        return self.run(*args)

    def run_node(self, n):
        """The value of one node: the method of its op's name, with target, args and kwargs."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    def placeholder(self, target, args, kwargs):
        """The next argument, or the default."""
        if target.startswith("*"):
            return list(self.args_iter)
        value = next(self.args_iter, args[0] if args else _MISSING)
        if value is _MISSING:
            raise RuntimeError(f"Expected positional argument for parameter {target}, but one was not passed in!")
        return value

    def get_attr(self, target, args, kwargs):
        """An attribute of the module."""
        return self.fetch_attr(target)

    def call_function(self, target, args, kwargs):
        """target(*args, **kwargs)"""
        return target(*args, **kwargs)

    def call_method(self, target, args, kwargs):
        """args[0].target(*args[1:], **kwargs)"""
        return getattr(args[0], target)(*args[1:], **kwargs)

    def call_module(self, target, args, kwargs):
        """Calls a module below the module."""
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target, args, kwargs):
        """What run() gives."""
        return args[0]

    def fetch_attr(self, target):
        """The module's attribute at a path such as "layer.weight"."""
        return _find(self.module, target)

    def fetch_args_kwargs_from_env(self, n):
        """The node's arguments with values in place of nodes."""
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)

    def map_nodes_to_values(self, args, n):
        """The value with the nodes' values in it."""

        def value_of(node):
            if node not in self.env:
                raise RuntimeError(f"Node {n} referenced nonexistent value {node}! Run Graph.lint() to diagnose issues")
            return self.env[node]

        return map_arg(args, value_of)


class Transformer(Interpreter):
    """Interpreter(...).transform() writes a new GraphModule: each step gives the new graph's node.

    Subclasses change call_function and its kin; arguments and results are nodes of the new graph.
    """

    def __init__(self, module):
        super().__init__(module, garbage_collect_values=False)
        self.new_graph = _C.Graph()

    def placeholder(self, target, args, kwargs):
        return self.new_graph.placeholder(target, default_value=args[0]) if args else self.new_graph.placeholder(target)

    def get_attr(self, target, args, kwargs):
        return self.new_graph.get_attr(target)

    def call_function(self, target, args, kwargs):
        return self.new_graph.call_function(target, args, kwargs)

    def call_method(self, target, args, kwargs):
        return self.new_graph.call_method(target, args, kwargs)

    def call_module(self, target, args, kwargs):
        return self.new_graph.call_module(target, args, kwargs)

    def transform(self):
        """The module with the changed graph."""
        result = super().run()
        if result is not None:
            self.new_graph.output(result)
        for old, new in self.env.items():
            if isinstance(new, Node) and new.graph is self.new_graph and not new.meta:
                new.meta.update(old.meta)
        return GraphModule(self.module, self.new_graph)
