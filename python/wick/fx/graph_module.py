"""GraphModule: an nn.Module whose forward is a Graph."""

import copy
import itertools
import math
import weakref

from .. import _C
from ..nn import Module, Parameter
from .node import Node, map_aggregate

__all__ = ["GraphModule"]

_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"


class _CodeOnlyModule(Module):
    """A module that is only what its source text says."""

    def __init__(self, body):
        super().__init__()
        self.__dict__ = body


def _copy_attr(from_module, to_module, target):
    """Gives to_module what from_module has at the path."""
    found, value = _lookup(from_module, target)
    if found:
        _assign(to_module, target, value)


def _find(root, path):
    for name in path.split("."):
        if not hasattr(root, name):
            raise RuntimeError(f"Node referenced target {path} but that target was not provided in ``root``!")
        root = getattr(root, name)
    return root


def _assign(module, path, value):
    """module.layer.weight = value, with plain modules where the path has none."""
    *parents, name = path.split(".")
    for parent in parents:
        if not hasattr(module, parent):
            module.add_module(parent, Module())
        module = getattr(module, parent)
    if isinstance(value, _C.Tensor) and not isinstance(value, Parameter):
        module.register_buffer(name, value)
    else:
        setattr(module, name, value)


def _used_attributes(graph):
    """The paths that nodes name, each with the node that does first."""
    used = {}
    for node in graph.nodes:
        if node.op in ("get_attr", "call_module"):
            used.setdefault(node.target, node)
    return used


def _take_from_module(module, root, graph):
    if hasattr(root, "training"):
        module.training = root.training
    for path in sorted(_used_attributes(graph), key=_depth):
        found, value = _lookup(root, path)
        if found and not _lookup(module, path)[0]:
            _assign(module, path, value)


def _depth(path):
    return path.count(".")


def _lookup(module, path):
    """Whether the module has the path, and what stands there."""
    for name in path.split("."):
        if not hasattr(module, name):
            return False, None
        module = getattr(module, name)
    return True, module


def _take_from_dict(module, root, graph):
    used = _used_attributes(graph)
    for path, node in used.items():
        if path not in root:
            raise RuntimeError(f"Node {node} referenced target {path} but that target was not provided in ``root``!")
    for path in sorted(used, key=_depth):
        _assign(module, path, root[path])


_functions = weakref.WeakKeyDictionary()  # graph -> (edits, function)


def function_of(graph):
    """The graph's source as a function of the module and its inputs."""
    import wick

    code = graph.python_code("self")
    names = {"torch": wick, "device": wick.device, "inf": math.inf, "nan": math.nan, "NoneType": type(None)}
    names.update(code.globals)
    exec(code.src, names)
    return names["forward"]


def _function_of(graph, edits):
    """The same, made once for as long as the graph is not edited."""
    known = _functions.get(graph)
    if known is None or known[0] != edits:
        known = _functions[graph] = edits, function_of(graph)
    return known[1]


_function_of._dynamo_marked_constant = True  # of a graph and a number of edits


class GraphModule(Module):
    """Runs a graph: GraphModule(root, graph)(x).

    `root`, a module or a dict, gives what the graph's get_attr and call_module nodes name. Edits of the graph hold from
    the next call on; recompile() makes `code` say so too.
    """

    def __new__(cls, *args, **kwargs):
        # Each has a class of its own, so that programs may set things there and printing shows its name.
        base = next(c for c in cls.__mro__ if "_wick_own" not in c.__dict__)
        return super().__new__(type(base.__name__, (base,), {"_wick_own": True, "__module__": base.__module__}))

    def __init__(self, root, graph, class_name="GraphModule"):
        super().__init__()
        type(self).__name__ = class_name
        if isinstance(root, Module):
            _take_from_module(self, root, graph)
        elif isinstance(root, dict):
            _take_from_dict(self, root, graph)
        else:
            raise RuntimeError(f"Unsupported type {root} passed for root!")
        self.graph = graph
        self.meta = dict(getattr(root, "meta", {}))

    @property
    def graph(self):
        """The Graph; setting another one recompiles."""
        return self._graph

    @graph.setter
    def graph(self, graph):
        if not isinstance(graph, _C.Graph):
            raise AssertionError(f"Expected a Graph instance, but got {type(graph)}")
        self.__dict__["_graph"] = graph
        graph.owning_module = self
        self.recompile()

    def forward(self, *args, **kwargs):
        graph = self._graph
        if _C._is_compiling():  # the source is captured as any other function
            return _function_of(graph, graph._edit_count())(self, *args, **kwargs)
        return graph._run(self, args, kwargs)

    def recompile(self):
        """To be called after edits of the graph. The source text is written when it is first read."""
        self.__dict__["_code"] = None

    @property
    def code(self):
        """The source text of forward."""
        if self._code is None:
            self.__dict__["_code"] = self._graph.python_code("self").src
        return self._code

    def print_readable(self, print_output=True, include_stride=False, include_device=False, colored=False, **unused):
        """The code with dtypes, sizes and places; printed, and returned."""
        body = self._graph.python_code("self", verbose=True).src
        lines = [line.rstrip() if not line.strip() else "    " + line for line in body.strip("\n").split("\n")]
        text = f"class {type(self).__name__}(torch.nn.Module):\n" + "\n".join(lines).rstrip(" ")
        children = [
            child.print_readable(print_output=False) for child in self.children() if hasattr(child, "print_readable")
        ]
        text += "".join("\n" + "\n".join("    " + line for line in child.split("\n")) for child in children)
        if print_output:
            print(text)
        return text

    def add_submodule(self, target, m):
        """Adds the module at a path such as "block.layer"; False when something else is in the way."""
        *parents, name = target.split(".")
        module = self
        for parent in parents:
            if not hasattr(module, parent):
                module.add_module(parent, Module())
            module = getattr(module, parent)
            if not isinstance(module, Module):
                return False
        module.add_module(name, m)
        return True

    def delete_submodule(self, target):
        """Deletes the module at a path; False when there is none."""
        *parents, name = target.split(".")
        module = self
        for parent in parents:
            module = getattr(module, parent, None)
            if not isinstance(module, Module):
                return False
        if not isinstance(getattr(module, name, None), Module):
            return False
        delattr(module, name)
        return True

    def delete_all_unused_submodules(self):
        """Deletes the modules that no node names, nor anything in them or around them."""
        used = set()
        for path in _used_attributes(self._graph):
            used.update(itertools.accumulate(path.split("."), "{}.{}".format))
        called = {node.target for node in self._graph.find_nodes(op="call_module")}
        for name, _ in list(self.named_modules()):
            inside = any(name.startswith(path + ".") for path in called)
            if name and name not in used and not inside:
                self.delete_submodule(name)

    def _add_tensor(self, name, tensor):
        _assign(self, name, tensor)

    def __str__(self):
        hint = "# To see more debug info, please use `graph_module.print_readable()`"
        return "\n".join([super().__repr__(), self.code, hint])

    def __copy__(self):
        other = GraphModule(self, self._graph, type(self).__name__)
        other.__dict__.update({k: v for k, v in self.__dict__.items() if k not in other.__dict__})
        self._graph.owning_module = self
        return other

    def __deepcopy__(self, memo):
        own = {k: v for k, v in self.__dict__.items() if k not in ("_graph", "_code")}
        return _restored(copy.deepcopy(own, memo), copy.deepcopy(self._graph, memo), type(self).__name__)

    def __reduce__(self):
        own = {k: v for k, v in self.__dict__.items() if k not in ("_graph", "_code")}
        return _unpickled, (own, _specification(self._graph), type(self).__name__)


def _restored(own, graph, class_name):
    module = GraphModule({}, _C.Graph(), class_name)
    module.__dict__.update(own)
    module.graph = graph
    return module


def _over(graph, attributes, class_name):
    """A GraphModule over a graph of the core; for it."""
    module = GraphModule({}, _C.Graph(), class_name or "GraphModule")
    for name, value in (attributes or {}).items():
        _assign(module, name, value)
    module.graph = graph
    return module


# ---- pickling: nodes become positions ----


class _Position(int):
    pass


def _specification(graph):
    positions = {node: _Position(i) for i, node in enumerate(graph.nodes)}

    def plain(value):
        return map_aggregate(value, lambda leaf: positions[leaf] if isinstance(leaf, Node) else leaf)

    return [(node.op, node.name, node.target, plain(node.args), plain(node.kwargs), node.type) for node in graph.nodes]


def _unpickled(own, specification, class_name):
    graph, nodes = _C.Graph(), []

    def with_nodes(value):
        return map_aggregate(value, lambda leaf: nodes[leaf] if isinstance(leaf, _Position) else leaf)

    for op, name, target, args, kwargs, type_ in specification:
        nodes.append(graph.create_node(op, target, with_nodes(args), with_nodes(kwargs), name, type_))
    return _restored(own, graph, class_name)
