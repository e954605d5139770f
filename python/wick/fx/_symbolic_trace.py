"""Tracer: a graph of a module or function, by calling it with Proxies, whose operations become nodes.

>>> symbolic_trace(lambda x: (x + 1).relu()).code

Control flow that asks a Proxy for its truth, length or items is a TraceError. Modules of torch.nn are calls of their
own (is_leaf_module), others are gone through. Tests: tests/python/test_fx_tracer.py.
"""

import builtins
import functools
import inspect
import math
import operator
import sys

from .. import _C
from ..nn import Module, Parameter
from .graph import Graph
from .graph_module import GraphModule

__all__ = [
    "Attribute",
    "GraphAppendingTracer",
    "PH",
    "ParameterProxy",
    "Proxy",
    "ProxyableClassMeta",
    "TraceError",
    "Tracer",
    "TracerBase",
    "symbolic_trace",
    "wrap",
]

PH = type("PHBase", (), {"__repr__": lambda self: "PH"})()
_wrapped = []  # (globals, name) of functions that wrap() keeps whole


class TraceError(ValueError):
    """The program asked a Proxy for what only a value has."""


# ---- proxies ----


class Proxy:
    """Stands for a node's value: what is done with it becomes a node."""

    def __init__(self, node, tracer=None):
        self.node, self.tracer = node, tracer if tracer is not None else GraphAppendingTracer(node.graph)

    def __repr__(self):
        return f"Proxy({self.node.name})"

    def __getattr__(self, name):
        if name in ("node", "tracer"):
            raise AttributeError(name)
        return Attribute(self, name)

    def __call__(self, *args, **kwargs):
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self):
        code, at = (frame := sys._getframe(1)).f_code, frame.f_lasti
        if 0 <= at < len(code.co_code):
            import dis

            if dis.opname[code.co_code[at]] == "UNPACK_SEQUENCE":
                return (self[i] for i in range(code.co_code[at + 1]))
        return self.tracer.iter(self)

    def __bool__(self):
        return self.tracer.to_bool(self)

    def __index__(self):
        return self.tracer.to_int(self)

    __int__ = __index__

    def __len__(self):
        raise RuntimeError(
            "'len' is not supported in symbolic tracing by default. If you want this call to be recorded, please call "
            "torch.fx.wrap('len') at module scope"
        )

    def keys(self):
        """What `**proxy` asks for: a TraceError."""
        return self.tracer.keys(self)

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        kwargs, tracers = kwargs or {}, []

        def note(value):
            if isinstance(value, Proxy) and value.tracer not in tracers:
                tracers.append(value.tracer)

        _visit(args, note)
        _visit(kwargs, note)
        if len(tracers) > 1:
            raise RuntimeError(
                f"Found multiple different tracers {tracers} while trying to trace operations {function}"
            )
        if type(function).__name__ in ("method_descriptor", "wrapper_descriptor", "getset_descriptor"):
            return tracers[0].create_proxy("call_method", function.__name__, args, kwargs)
        if getattr(_C.Tensor, getattr(function, "__name__", ""), None) is function and not _is_function(function):
            return tracers[0].create_proxy("call_method", function.__name__, args, kwargs)
        return tracers[0].create_proxy("call_function", function, args, kwargs)


def _is_function(function):
    """Whether a function that is a method of Tensor as well is one of the package, too: add is, view is not."""
    return getattr(_C, getattr(function, "__name__", ""), None) is function


def _visit(value, note):
    if isinstance(value, (list, tuple)):
        for item in value:
            _visit(item, note)
    elif isinstance(value, dict):
        for item in value.values():
            _visit(item, note)
    elif isinstance(value, slice):
        _visit((value.start, value.stop, value.step), note)
    else:
        note(value)


class Attribute(Proxy):
    """proxy.name: a node when its value is used, a method call when it is called."""

    def __init__(self, root, attr):
        self.root, self.attr, self.tracer, self._node = root, attr, root.tracer, None

    @property
    def node(self):
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", builtins.getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args, **kwargs):
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """Stands for a parameter whose sizes are constants of the graph."""

    def __init__(self, tracer, node, name, param):
        super().__init__(node, tracer)
        self.param, self.name = param, name

    def __repr__(self):
        return f"ParameterProxy({self.name})"

    shape = property(lambda self: self.param.shape)
    ndim = property(lambda self: self.param.ndim)

    def size(self, *args):
        """The parameter's size(), and so on."""
        return self.param.size(*args)

    def dim(self):
        return self.param.dim()

    def numel(self):
        return self.param.numel()

    nelement = numel


def _operator_method(function, swapped=False):
    def method(self, *args):
        return self.tracer.create_proxy("call_function", function, (*args, self) if swapped else (self, *args), {})

    return method


for _name in (
    "add", "sub", "mul", "floordiv", "truediv", "mod", "pow", "lshift", "rshift", "and_", "or_", "xor", "matmul",
):  # fmt: skip
    _plain = _name.rstrip("_")
    setattr(Proxy, f"__{_plain}__", _operator_method(getattr(operator, _name)))
    setattr(Proxy, f"__r{_plain}__", _operator_method(getattr(operator, _name), swapped=True))
for _name in ("neg", "pos", "invert", "abs", "getitem", "eq", "ne", "lt", "gt", "le", "ge"):
    setattr(Proxy, f"__{_name}__", _operator_method(getattr(operator, _name)))
for _name in ("iadd", "isub", "imul", "itruediv", "ifloordiv", "iand", "ior", "ixor", "imatmul", "imod", "ipow"):
    setattr(Proxy, f"__{_name}__", _operator_method(getattr(operator, _name)))
Proxy.__hash__ = object.__hash__


def _setitem(self, key, value):
    self.tracer.create_proxy("call_function", operator.setitem, (self, key, value), {})


Proxy.__setitem__ = _setitem


# ---- tracers ----


def _parameter_proxy(tracer, name, parameter, node):
    return ParameterProxy(tracer, node, name, parameter)


class TracerBase:
    """What makes nodes of what is done with Proxies. `graph` is what they are added to."""

    graph = None
    record_stack_traces = False
    trace_asserts = False
    proxy_buffer_attributes = False

    def create_node(self, kind, target, args, kwargs, name=None, type_expr=None):
        """A node at the graph's end."""
        return self.graph.create_node(kind, target, args, kwargs, name, type_expr)

    def proxy(self, node):
        """What stands for a node's value."""
        return Proxy(node, self)

    def create_proxy(self, kind, target, args, kwargs, name=None, type_expr=None, proxy_factory_fn=None):
        """A node, and what stands for its value."""
        node = self.create_node(kind, target, self.create_arg(args), self.create_arg(kwargs), name, type_expr)
        return (proxy_factory_fn or self.proxy)(node)

    def create_arg(self, a):
        """A value as a node's argument: Proxies become their nodes."""
        if isinstance(a, Proxy):
            return a.node
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            return self.create_node("call_function", type(a), tuple(map(self.create_arg, a)), {})
        if isinstance(a, (tuple, list)):
            return type(a)(self.create_arg(item) for item in a)
        if isinstance(a, dict):
            return {key: self.create_arg(value) for key, value in a.items()}
        if isinstance(a, slice):
            return slice(*map(self.create_arg, (a.start, a.stop, a.step)))
        if isinstance(a, range):
            return range(*map(self.create_arg, (a.start, a.stop, a.step)))
        return a

    def to_bool(self, obj):
        """Called for `if proxy:`."""
        raise TraceError("symbolically traced variables cannot be used as inputs to control flow")

    def to_int(self, obj):
        """Called for int(proxy)."""
        raise TraceError("symbolically traced variables cannot be used as inputs to control flow")

    def iter(self, obj):
        """Called for `for item in proxy:`."""
        raise TraceError(
            "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a loop or as a *args or "
            "**kwargs function argument. See the torch.fx docs on pytorch.org for a more detailed explanation of what "
            "types of control flow can be traced, and check out the Proxy docstring for help troubleshooting Proxy "
            "iteration errors"
        )

    def keys(self, obj):
        """Called for **proxy."""
        return Attribute(obj, "keys")()


class GraphAppendingTracer(TracerBase):
    """What proxies without a tracer have: nodes are added to a graph that is there."""

    def __init__(self, graph):
        self.graph = graph


class Tracer(TracerBase):
    """Tracer().trace(module) -> Graph. Classes of their own say what is a leaf, and how modules are called."""

    def __init__(self, autowrap_modules=(math,), autowrap_functions=(), param_shapes_constant=False):
        self._kept_modules, self._kept_functions = tuple(autowrap_modules), set(map(id, autowrap_functions))
        for module in autowrap_modules:
            public = (value for name, value in vars(module).items() if not name.startswith("_"))
            self._kept_functions.update(id(value) for value in public if callable(value))
        self.root, self.submodule_paths, self.tensor_attrs = None, {}, {}
        self.param_shapes_constant = param_shapes_constant

    def is_leaf_module(self, m, module_qualified_name):
        """Whether a module is one node: those of torch.nn are, but for Sequential."""
        return m.__module__.startswith(("torch.nn", "wick.nn", "torch.ao.nn")) and type(m).__name__ != "Sequential"

    def path_of_module(self, mod):
        """The path of a module below the root."""
        if id(mod) not in self.submodule_paths:
            raise NameError(f"{mod} is not installed as a submodule")
        return self.submodule_paths[id(mod)]

    def call_module(self, m, forward, args, kwargs):
        """What stands for a module's call: a node, or what its forward does."""
        path = self.path_of_module(m)
        if self.is_leaf_module(m, path):
            return self.create_proxy("call_module", path, args, kwargs)
        return forward(*args, **kwargs)

    def getattr(self, attr, attr_val, parameter_proxy_cache):
        """What a module's attribute is while its forward runs: a parameter is a node."""
        if not isinstance(attr_val, Parameter):
            return attr_val
        for name, parameter in self.root.named_parameters():
            if parameter is attr_val:
                if name not in parameter_proxy_cache:
                    make = functools.partial(_parameter_proxy, self, name, parameter)
                    takes = "proxy_factory_fn" in inspect.signature(self.create_proxy).parameters  # a subclass may not
                    own = {"proxy_factory_fn": make} if self.param_shapes_constant and takes else {}
                    parameter_proxy_cache[name] = self.create_proxy("get_attr", name, (), {}, **own)
                return parameter_proxy_cache[name]
        return attr_val

    def create_arg(self, a):
        """A value as a node's argument: parameters and tensors are attributes of the root."""
        if isinstance(a, Parameter):
            for name, parameter in self.root.named_parameters():
                if a is parameter:
                    return self.create_node("get_attr", name, (), {})
            raise NameError("parameter is not a member of this module")
        if isinstance(a, _C.Tensor):
            for name, buffer in self.root.named_buffers():
                if a is buffer:
                    return self.create_node("get_attr", name, (), {})
            return self.create_node("get_attr", self._name_of_constant(a), (), {})
        return super().create_arg(a)

    def _name_of_constant(self, tensor):
        name = self.tensor_attrs.get(id(tensor))
        if name is None:
            number = 0
            while hasattr(self.root, f"_tensor_constant{number}"):
                number += 1
            name = self.tensor_attrs[id(tensor)] = f"_tensor_constant{number}"
            self.root.__dict__[name] = tensor
        return name

    def create_args_for_root(self, root_fn, is_module, concrete_args=None):
        """The function, and a Proxy or a given value for each of its arguments."""
        parameters = list(inspect.signature(root_fn).parameters.values())
        args, concrete = [self.root] if is_module else [], concrete_args or {}
        for p in parameters[1:] if is_module else parameters:
            args.append(self._placeholder(p, concrete))
        positional = [a for a, p in zip(args, parameters, strict=True) if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL,
                                                                                      p.KEYWORD_ONLY)]  # fmt: skip
        named = {p.name: a for a, p in zip(args, parameters, strict=True) if p.kind is p.KEYWORD_ONLY}
        for a, p in zip(args, parameters, strict=True):
            if p.kind is p.VAR_POSITIONAL:
                positional.append(_Spread(a))
            elif p.kind is p.VAR_KEYWORD:
                named["**"] = a
        return root_fn, positional, named

    def _placeholder(self, p, concrete):
        if p.name in concrete and concrete[p.name] is not PH:
            return concrete[p.name]
        star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        default = () if p.default is p.empty else (p.default,)
        return self.create_proxy("placeholder", star + p.name, default, {})

    def trace(self, root, concrete_args=None):
        """The Graph of a module or function; arguments in concrete_args {name: value} are constants of it."""
        if isinstance(root, Module):
            self.root, function = root, type(root).forward
        else:
            self.root, function = Module(), root
        self.submodule_paths = {id(module): name for name, module in self.root.named_modules()}
        self.graph = Graph(tracer_cls=type(self))
        function, args, named = self.create_args_for_root(function, isinstance(root, Module), concrete_args)
        named.pop("**", None)
        args = [a.value if isinstance(a, _Spread) else a for a in args if not isinstance(a, _Spread)]
        with _Patches(self, function):
            result = function(*args, **named)
        self.create_node("output", "output", (self.create_arg(result),), {})
        return self.graph


class _Spread:
    def __init__(self, value):
        self.value = value


class _Patches:
    """While a tracer runs: modules call it, their parameters ask it, wrapped functions record themselves.

    Functions that the tracer keeps whole are replaced where they are called from: in the globals of the function, of each
    module's forward, and in the modules whose functions they all are.
    """

    def __init__(self, tracer, function):
        self.tracer, self.cache, self.replaced, self.searched = tracer, {}, [], set()
        self.spaces = [vars(module) for module in tracer._kept_modules] + [getattr(function, "__globals__", {})]

    def _replace(self, space, name):
        original = space.get(name, getattr(builtins, name, None))
        self.replaced.append((space, name, name in space, original))
        space[name] = _recorded(original, self.tracer)

    def _search(self, space):
        if id(space) in self.searched or not self.tracer._kept_functions:
            return
        self.searched.add(id(space))
        for name, value in list(space.items()):
            if not name.startswith("_") and callable(value) and id(value) in self.tracer._kept_functions:
                self._replace(space, name)

    def __enter__(self):
        tracer, cache = self.tracer, self.cache
        _C._announce_overrides()  # functions written in Python hand calls with a Proxy over
        self.call, self.getattr = Module.__call__, Module.__getattr__
        original_call, original_getattr = self.call, self.getattr

        def call(module, *args, **kwargs):
            def forward(*args, **kwargs):
                return original_call(module, *args, **kwargs)

            self._search(getattr(type(module).forward, "__globals__", {}))
            if id(module) not in tracer.submodule_paths:
                return forward(*args, **kwargs)
            return tracer.call_module(module, forward, args, kwargs)

        def getattr_of_module(module, name):
            return tracer.getattr(name, original_getattr(module, name), cache)

        Module.__call__, Module.__getattr__ = call, getattr_of_module
        for space, name in _wrapped:
            self._replace(space, name)
        for space in self.spaces:
            self._search(space)

    def __exit__(self, *exception):
        Module.__call__, Module.__getattr__ = self.call, self.getattr
        for space, name, was_there, original in reversed(self.replaced):
            if was_there:
                space[name] = original
            else:
                del space[name]


def _recorded(function, tracer):
    @functools.wraps(function)
    def record(*args, **kwargs):
        found = []
        _visit((args, kwargs), lambda value: found.append(value) if isinstance(value, Proxy) else None)
        if not found:
            return function(*args, **kwargs)
        return tracer.create_proxy("call_function", function, args, kwargs)

    return record


def wrap(fn_or_name):
    """Keeps a function of the calling module whole: its calls are nodes. At module scope, also as a decorator."""
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError("Unsupported type for global function! Must be either a callable or string name")
    frame = sys._getframe(1)
    if frame.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__code__.co_name
    _wrapped.append((frame.f_globals, name))
    return fn_or_name


class ProxyableClassMeta(type):
    """Classes whose making is a node when a Proxy is among the arguments."""

    def __call__(cls, *args, **kwargs):
        found = []
        _visit((args, kwargs), lambda value: found.append(value) if isinstance(value, Proxy) else None)
        if found:
            return found[0].tracer.create_proxy("call_function", cls, args, kwargs)
        return super().__call__(*args, **kwargs)


def symbolic_trace(root, concrete_args=None):
    """The GraphModule of a module or function."""
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else root.__name__
    return GraphModule(tracer.root, graph, name if name.isidentifier() else "GraphModule")
