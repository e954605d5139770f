"""A module's call as an ExportedProgram: captured as compile() captures it, with parameters as inputs.

In: a module, its arguments, and what is said of their sizes (dynamic_shapes.by_leaf). Out: a graph whose inputs are
parameters, buffers, constants and the caller's tensors, and whose outputs are what is written, then the results.
Invariant: the graph is functional, and what it assumes of its inputs is among the program's guards.
Tests: tests/python/test_export.py.
"""

import re

from .. import _C
from .._dynamo.exc import UserError, UserErrorType
from .._dynamo.marks import maybe_mark_dynamic
from .._ops import ops
from .._symint import SymbolicTensor, SymInt
from ..compiler import compile
from ..fx import Graph, GraphModule
from ..fx.experimental.symbolic_shapes import ConstraintViolationError, GuardOnDataDependentSymNode
from ..fx.node import map_aggregate
from ..jit._programs import _Seen, _Untouched
from ..utils import _pytree as pytree
from . import _guards
from .dynamic_shapes import Dim, ValueRange, _DimHint, by_leaf, combined, int_oo, parameter_names
from .graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)

__all__ = ["Symbol", "program_parts"]


class Symbol(str):
    """A symbol's name; prints without quotes."""

    def __repr__(self):
        return str(self)


# ---- the capture ----


def _own(value):
    """A tensor of the same kind in memory of its own; anything else as it is."""
    if not isinstance(value, _C.Tensor):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)


_PLAIN = type(None), bool, int, float, complex, str, _C.dtype, _C.device, _C.memory_format, _C.layout


def _check_inputs(leaves):
    for _, leaf, _ in leaves:
        if not isinstance(leaf, (_C.Tensor, *_PLAIN)):
            raise ValueError(
                f"Unsupported input type {type(leaf)}. Export only supports pytree containers of basic types (Tensor, int, "
                "float, ...) as input. To register a custom dataclass, use torch.export.register_dataclass. To register a custom "
                "container type, use torch.utils._pytree.register_pytree_node. To register a constant input, use "
                "torch.utils._pytree.register_constant"
            )


def _is_dynamic(said):
    return isinstance(said, Dim) or (isinstance(said, _DimHint) and said.type != "STATIC")


class Captured:
    """What one capture found: the fx graph, its example inputs, the leaves of arguments and results, the report."""

    def __init__(self, module, leaves, args, kwargs, decomposing=0):
        self.leaves = [(path, _own(leaf), said) for path, leaf, said in leaves]
        spec = pytree.tree_structure((args, kwargs))
        for _, leaf, said in self.leaves:
            for d, dim in said.items():
                if _is_dynamic(dim) and isinstance(leaf, _C.Tensor):
                    maybe_mark_dynamic(leaf, d)
        own_args, own_kwargs = pytree.tree_unflatten([leaf for _, leaf, _ in self.leaves], spec)
        self._run(module, own_args, own_kwargs, decomposing)
        leaves = pytree.tree_leaves(self.result)
        self.size_results = {i for i, x in enumerate(leaves) if type(x) is int}
        self.view_results = {
            i for i, x in enumerate(leaves) if isinstance(x, _C.Tensor) and not self._is_known(x, module)
        }
        if self.size_results or self.view_results:
            self._run(module, own_args, own_kwargs, decomposing)

    size_results, view_results = frozenset(), frozenset()  # numbers of results that a call is put around

    def _is_known(self, tensor, module):
        """Whether it is what the graph computes, or there before; else it is made outside of it, as a view."""
        known = [*self.seen.stand_ins, *(leaf for _, leaf, _ in self.leaves), *module.parameters(), *module.buffers()]
        return any(tensor is other for other in known)

    def _run(self, module, args, kwargs, decomposing):
        def call(*args, **kwargs):
            result = module(*args, **kwargs)
            if not sizes and not views:
                return result
            leaves, spec = pytree.tree_flatten(result)
            for i in sizes:
                leaves[i] = _C.full((), leaves[i])
            for i in views:
                leaves[i] = leaves[i].clone()
            return pytree.tree_unflatten(leaves, spec)

        sizes, views = sorted(self.size_results), sorted(self.view_results)
        self.seen = _Seen()
        compiled = compile(call, backend=self.seen, fullgraph=True)
        before = _C._set_decomposing(decomposing)
        try:
            with _Untouched(module):
                compiled(*args, **kwargs)
                self.report = compiled.report()
                self.result = compiled(*args, **kwargs)
        except _C.Unsupported as error:
            raise _cannot(str(error)) from None
        finally:
            _C._set_decomposing(before)
        if len(self.report) != 1 or self.report[0]["end"] != "return" or len(self.seen.modules) > 1:
            reason = next((r["reason"] for r in self.report if r["reason"]), "?")
            raise _cannot(f"the call is more than one graph: {reason}")
        for first, second in zip(self.seen.all_examples, self.seen.given, strict=True):
            if isinstance(first, _C.Tensor) and first is not second:
                raise _cannot(
                    "an operator whose result has sizes that depend on values, or that is no operator, is called"
                )

    @property
    def graph(self):
        """The fx graph; one without nodes where nothing was computed."""
        return self.seen.modules[0].graph if self.seen.modules else None


def _cannot(text):
    text = text.replace("fullgraph=True, but the graph breaks here: ", "", 1)
    if "on a tensor's value" in text:
        return GuardOnDataDependentSymNode(f"Could not guard on data-dependent expression: {text}")
    return UserError(UserErrorType.ANTI_PATTERN, f"the program cannot be exported as one graph: {text}")


# ---- names ----


def _path_name(path):
    return re.sub(r"\W+", "_", "_".join(str(getattr(k, "key", getattr(k, "idx", getattr(k, "name", k)))) for k in path))


def _placeholder_name(kind, target):
    return {"parameter": "p_", "buffer": "b_", "constant": "c_"}[kind] + target.replace(".", "_")


def _paths_of_tensors(module):
    """{id: path} of tensors that modules have as plain attributes."""
    found = {}
    for prefix, part in module.named_modules():
        for name, value in vars(part).items():
            if isinstance(value, _C.Tensor):
                found[id(value)] = f"{prefix}.{name}" if prefix else name
    return found


# ---- the new graph ----


class _Builder:
    """Builds the graph of an ExportedProgram from a capture.

    inference: its operators are parts of those that were on the tape, whose derivatives were their own, so that gradients
    through the parts would be others. Results are detached then.
    """

    def __init__(self, module, captured, inference):
        self.module, self.captured, self.graph, self.inference = module, captured, Graph(), inference
        self.inputs, self.constants = [], {}
        self.modules = {}  # name -> GraphModule: functions of control flow
        self.nodes = {}  # the captured graph's node -> the new one's, or a constant
        self.place_of_symbol = {}  # symbol -> (new node, dim)
        self.records = set()  # new nodes whose values require grad
        self.rename = _guards.same_symbols(captured.report[0]["size_guards"])

    # -- inputs --

    def _placeholder(self, name, value):
        node = self.graph.placeholder(name)
        node.meta["val"] = value
        if isinstance(value, _C.Tensor) and value.requires_grad:
            self.records.add(node)
        return node

    def _described(self, tensor):
        return tensor.detach().to("meta").requires_grad_(tensor.requires_grad)

    def lift(self):
        """Placeholders of parameters, buffers, constants, and the caller's values."""
        by_tensor = {}
        persistent = self.module.state_dict(keep_vars=True).keys()
        for kind, named in (("parameter", self.module.named_parameters()), ("buffer", self.module.named_buffers())):
            for name, tensor in named:
                node = self._placeholder(_placeholder_name(kind, name), self._described(tensor))
                by_tensor[id(tensor)] = node
                is_buffer = kind == "buffer"
                self.inputs.append(InputSpec(
                    InputKind.BUFFER if is_buffer else InputKind.PARAMETER, TensorArgument(node.name), name,
                    (name in persistent) if is_buffer else None,
                ))  # fmt: skip
                if is_buffer and name not in persistent:
                    self.constants[name] = tensor
        self._lift_constants(by_tensor)
        self.leaf_nodes = [self._lift_leaf(path, leaf, by_tensor) for path, leaf, _ in self.captured.leaves]
        return by_tensor

    def _lift_constants(self, by_tensor):
        own = {id(leaf) for _, leaf, _ in self.captured.leaves}
        paths = _paths_of_tensors(self.module)
        for tensor in self.captured.seen.examples[0] if self.captured.seen.examples else ():
            if id(tensor) not in own and id(tensor) not in by_tensor:
                name = paths.get(id(tensor), f"lifted_tensor_{len(self.constants)}")
                by_tensor[id(tensor)] = self._constant(name, tensor)
        if self.captured.graph is not None:
            for node in self.captured.graph.nodes:
                if node.op == "get_attr":
                    self._lift_attribute(node, getattr(self.captured.seen.modules[0], node.target))

    def _lift_attribute(self, node, value):
        if isinstance(value, GraphModule):
            self.modules[node.target] = value
        else:
            self.nodes[node] = self._constant(f"lifted_tensor_{len(self.constants)}", value)

    def _constant(self, name, tensor):
        self.constants[name] = tensor.detach()
        node = self._placeholder(_placeholder_name("constant", name), self._described(tensor))
        self.inputs.append(InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(node.name), name))
        return node

    def _lift_leaf(self, path, leaf, by_tensor):
        tensor = isinstance(leaf, _C.Tensor)
        node = self._placeholder(_path_name(path), self._described(leaf) if tensor else leaf)
        argument = TensorArgument(node.name) if tensor else ConstantArgument(node.name, leaf)
        self.inputs.append(InputSpec(InputKind.USER_INPUT, argument, None))
        if tensor:
            by_tensor.setdefault(id(leaf), node)
        return node

    # -- values --

    def _symbols(self, value):
        """A value's description with symbols that are equal written alike."""
        if isinstance(value, (tuple, list)):
            return type(value)(map(self._symbols, value))
        if isinstance(value, SymInt):
            return SymInt(int(value), _guards.renamed(str(value), self.rename))
        if isinstance(value, SymbolicTensor):
            sizes, strides = self._symbols(tuple(value.shape)), self._symbols(tuple(value.stride()))
            return SymbolicTensor(sizes, strides, value.dtype)
        return value

    def _sizes(self, name):
        """A node for a symbol."""
        node, dim = self.place_of_symbol[name]
        made = self.graph.create_node("call_function", ops.aten.sym_size.int, (node, dim), {}, "sym_size_int_1")
        made.meta["val"] = SymInt(node.meta["val"].shape[dim], name)
        return made

    def _new(self, value):
        """An argument with new nodes in the place of the captured ones."""

        def leaf(x):
            if not hasattr(x, "all_input_nodes"):
                return x
            if x not in self.nodes:
                self.nodes[x] = self._sizes(_guards.renamed(x.name, self.rename))
            return self.nodes[x]

        return map_aggregate(value, leaf)

    # -- the body --

    def match_inputs(self, by_tensor):
        """The captured placeholders are those of the new graph; symbols are sizes of them."""
        graph, examples = self.captured.graph, self.captured.seen.all_examples
        places = [node for node in graph.nodes if node.op == "placeholder"]
        for node, example in zip(places, examples, strict=True):
            if not isinstance(example, _C.Tensor):
                continue
            made = self.nodes[node] = by_tensor[id(example)]
            if isinstance(node.meta.get("val"), SymbolicTensor):
                made.meta["val"] = self._symbols(node.meta["val"])
                for d, size in enumerate(made.meta["val"].shape):
                    if isinstance(size, SymInt) and str(size).isidentifier():
                        self.place_of_symbol.setdefault(str(size), (made, d))

    def copy_body(self):
        """The calls; what is not taped, of values that require grad, is detached."""
        for node in self.captured.graph.nodes:
            if node.op == "call_function" and node.target is not ops.aten.copy_.default:
                self.nodes[node] = self._copied(node)
            elif node.op == "get_attr" and node.target in self.modules:
                self.nodes[node] = self.graph.get_attr(node.target)

    def _copied(self, node):
        args, kwargs = self._new(node.args), self._new(node.kwargs)
        target = node.target
        if target is ops.aten.view.default and not self.inference:  # inputs may have other strides
            target = ops.aten.reshape.default
        made = self.graph.create_node("call_function", target, args, kwargs, node.name)
        for key, value in node.meta.items():
            made.meta[key] = self._symbols(value) if key == "val" else value
        made.meta.pop("tensor_meta", None)
        if 'File "<string>"' in made.meta.get("stack_trace", ""):  # a graph's own source
            del made.meta["stack_trace"]
        if "val" not in node.meta:
            made.meta["val"] = _value_of(made)
        if not any(source in self.records for source in made.all_input_nodes):
            return made
        if node._taped or self.inference:
            self.records.add(made)
            return made
        if made.target is ops.aten.detach.default:
            return made
        if isinstance(made.meta["val"], _C.Tensor) and made.meta["val"].is_floating_point():
            detached = self.graph.call_function(ops.aten.detach.default, (made,))
            detached.meta.update(made.meta)
            return detached
        return made

    # -- outputs --

    def mutations(self):
        """Specs and nodes of what is written: buffers, parameters, the caller's tensors."""
        kinds = {
            InputKind.BUFFER: OutputKind.BUFFER_MUTATION,
            InputKind.PARAMETER: OutputKind.PARAMETER_MUTATION,
            InputKind.CONSTANT_TENSOR: OutputKind.BUFFER_MUTATION,
            InputKind.USER_INPUT: OutputKind.USER_INPUT_MUTATION,
        }
        specs = {spec.arg.name: spec for spec in self.inputs}
        found, self.written = [], {}
        for node in self.captured.graph.nodes if self.captured.graph is not None else ():
            if node.op == "call_function" and node.target is ops.aten.copy_.default:
                written, value = (self._new(a) for a in node.args)
                spec, self.written[written] = specs[written.name], value
                found.append(
                    (OutputSpec(kinds[spec.kind], TensorArgument(value.name), spec.target or written.name), value)
                )
        return found

    def result(self, place, leaf, by_tensor):
        """(spec, node or constant) of a leaf of the results."""
        if isinstance(leaf, _C.Tensor):
            stand_ins = self.captured.seen.stand_ins
            index = next((i for i, t in enumerate(stand_ins) if t is leaf), None)
            if index is not None:
                value = self.captured.graph.output_node().args[0][index]
                if place in self.captured.size_results:
                    return self._size_result(value)
                if place in self.captured.view_results:
                    value = value.args[0]
                node = self._new(value)
            elif id(leaf) in by_tensor:
                node = self.written.get(by_tensor[id(leaf)], by_tensor[id(leaf)])
            else:
                raise _cannot("a result is a tensor of its own that no call computes")
            if self.inference and node in self.records:
                meta, node = node.meta, self.graph.call_function(ops.aten.detach.default, (node,))
                node.meta.update(meta)
            return OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(node.name), None), node
        if not isinstance(leaf, _PLAIN):
            raise RuntimeError(
                f"Found {type(leaf)} in output, which is not a known type. If this type holds tensors, you need to register a "
                "pytree for it: torch.utils._pytree.register_pytree_node, or torch.export.register_dataclass"
            )
        return OutputSpec(OutputKind.USER_OUTPUT, ConstantArgument("", leaf), None), leaf

    def _size_result(self, call):
        value = self._new(call.args[1])
        if hasattr(value, "all_input_nodes"):
            return OutputSpec(OutputKind.USER_OUTPUT, SymIntArgument(value.name), None), value
        return OutputSpec(OutputKind.USER_OUTPUT, ConstantArgument("", value), None), value


def _value_of(node):
    """What a node of symbols gives: a SymInt with its text, for Python's own operators."""
    values = [a.meta["val"] if hasattr(a, "all_input_nodes") else a for a in node.args]
    if not all(isinstance(v, int) for v in values):
        return None
    return SymInt(node.target(*map(int, values)), _guards.text_of(node.target, list(map(str, values))))


# ---- what is assumed ----


def _bounds(said):
    """(min, max) of what is said of a dim."""
    low, high = said.min, said.max
    return (0 if low is None else low), (int_oo if high is None else high)


def _say(captured, builder):
    """(symbol or number, what was said, "L['x'].size()[0]") of each dim of which something was said."""
    for (path, leaf, said), node in zip(captured.leaves, builder.leaf_nodes, strict=True):
        place = f"L['{path[0].key}']" + pytree.keystr(path[1:])
        for d, dim in said.items():
            if d is None:
                yield leaf, dim, place
            elif _is_dynamic(dim):
                yield node.meta["val"].shape[d], dim, f"{place}.size()[{d}]"


def _check_static(leaves):
    for path, leaf, said in leaves:
        for d, dim in said.items():
            if type(dim) is int and leaf.shape[d] != dim:
                place = f"L['{path[0].key}']" + pytree.keystr(path[1:])
                raise ConstraintViolationError(
                    f"Static shape constraint of {dim} does not match input size of {leaf.shape[d]}, for {place}.size()[{d}]"
                )


def _violated(names, problems, fixes):
    lines = "".join(f"\n  - {problem}" for problem in problems)
    suggested = "\nSuggested fixes:" + "".join(f"\n  {fix}" for fix in fixes) if fixes else ""
    return UserError(
        UserErrorType.CONSTRAINT_VIOLATION,
        f'Constraints violated ({", ".join(names)})! For more information, run with TORCH_LOGS="+dynamic".{lines}{suggested}',
    )


def _fixed_symbols(captured, builder):
    """{symbol: its only value} of the symbols that guards fix."""
    guards = [_guards.renamed(g, builder.rename) for g in captured.report[0]["size_guards"]]
    hints = {}
    for node in builder.graph.nodes:
        value = node.meta.get("val")
        for size in value.shape if isinstance(value, SymbolicTensor) else ():
            if isinstance(size, SymInt) and str(size).isidentifier():
                hints[str(size)] = int(size)
    return {name: hint for name, hint in hints.items() if _guards.is_fixed(name, hint, guards)}


def _fixed_hints(captured, builder):
    """{(place of a leaf, dim)} of those that Dim.AUTO was said of and the program fixes."""
    fixed = _fixed_symbols(captured, builder)
    return {place for size, dim, place in _say(captured, builder)
            if isinstance(size, SymInt) and str(size) in fixed and isinstance(dim, _DimHint) and dim.type == "AUTO"}  # fmt: skip


def _without(leaves, fixed, tree):
    """dynamic_shapes with numbers in the place of those hints."""
    shapes = []
    for path, leaf, said in leaves:
        place = f"L['{path[0].key}']" + pytree.keystr(path[1:])
        kept = {
            d: leaf.shape[d] if f"{place}.size()[{d}]" in fixed else dim for d, dim in said.items() if d is not None
        }
        shapes.append(kept if isinstance(leaf, _C.Tensor) else said.get(None))
    return pytree.tree_unflatten(shapes, pytree.tree_structure(tree))


class _Ranges:
    """From what was captured and what was said: bounds of the symbols, and further guards."""

    def __init__(self, captured, builder):
        self.guards = [_guards.renamed(g, builder.rename) for g in captured.report[0]["size_guards"]]
        self.guards = [g for g in self.guards if not _guards.is_trivial(g)]
        self.ranges, self.roots = {}, {}
        self.problems, self.names, self.fixes, limits = [], [], [], []
        fixed = _fixed_symbols(captured, builder)
        for size, dim, place in _say(captured, builder):
            if isinstance(size, SymInt) and str(size) in fixed:
                self._specialised(int(size), dim, place)
            elif isinstance(size, SymInt):
                limits.append((str(size), dim, place))
            elif isinstance(dim, Dim) or dim.type == "DYNAMIC":
                self._specialised(size, dim, place)
        for symbol, _, _ in limits:
            self.ranges.setdefault(symbol, [2, int_oo])
        found = _guards.bounds(self.guards)
        for symbol, dim, place in limits:
            self._limit(symbol, dim, place, found.get(symbol, (None, None)))
        self._relate(limits)
        if self.problems:
            raise _violated(self.names, self.problems, self.fixes)

    def _name(self, dim, place):
        return dim.__name__ if isinstance(dim, Dim) else place

    def _complain(self, name, problem, fix=None):
        if name not in self.names:
            self.names.append(name)
            self.problems.append(problem)
            self.fixes += [fix] if fix else []

    def _specialised(self, size, dim, place):
        name = self._name(dim, place)
        self._complain(
            name,
            f"You marked {name} as dynamic but your code specialized it to be a constant ({size}). If you're using "
            "mark_dynamic, either remove it or use maybe_mark_dynamic. If you're using Dim.DYNAMIC, replace it with either "
            "Dim.STATIC or Dim.AUTO.",
            f"{name} = {size}" if isinstance(dim, Dim) else None,
        )

    def _limit(self, symbol, dim, place, found):
        low, high = _bounds(dim)
        at_least, at_most = found[0] or 2, found[1] if found[1] is not None else int_oo
        asked = isinstance(dim, Dim)
        if (at_least > max(low, 2) or at_most < high) and (asked or dim.min is not None or dim.max is not None):
            name = self._name(dim, place)
            guard = f"{at_least} <= {place}" if at_least > 2 or at_most is int_oo else f"2 <= {place}"
            guard += f" and {place} <= {at_most}" if at_most is not int_oo else ""
            new = [f"min={at_least}"] if at_least > max(low, 2) else [f"min={low}"] if low > 2 else []
            new += [f"max={min(at_most, high)}"] if min(at_most, high) is not int_oo else []
            self._complain(
                name,
                f"Not all values of {name} = {place} in the specified range {_range_text(name, low, high)}satisfy the generated "
                f"guard {guard}",
                f"{name} = Dim('{name}'{''.join(', ' + n for n in new)})" if asked else None,
            )
            return
        known = self.ranges[symbol]
        known[0] = max(known[0], low, at_least)
        known[1] = min(known[1], high, at_most)

    def _relate(self, limits):
        """Dims of one name have one size, derived ones follow."""
        for symbol, dim, _ in limits:
            if not isinstance(dim, Dim):
                continue
            first = self.roots.setdefault(dim.root.__name__, (symbol, dim))
            left = (
                f"{first[1].factor}*({symbol} - {dim.offset})" if first[1].factor != 1 else f"{symbol} - {dim.offset}"
            )
            right = (
                f"{dim.factor}*({first[0]} - {first[1].offset})"
                if dim.factor != 1
                else f"{first[0]} - {first[1].offset}"
            )
            guard = f"{symbol} == {first[0]}" if (dim.factor, dim.offset) == (first[1].factor, first[1].offset) else (
                f"{left} == {right}"
            )  # fmt: skip
            if symbol != first[0]:
                self.guards.append(guard)
            if dim.factor != 1 and symbol == first[0]:
                self.guards.append(f"({symbol} - {dim.offset}) % {dim.factor} == 0")

    def constraints(self):
        """{symbol: range}"""
        return {Symbol(name): ValueRange(*bounds) for name, bounds in self.ranges.items()}


def _range_text(name, low, high):
    if low <= 2 and high is int_oo:
        return ""
    if high is int_oo:
        return f"{low} <= {name} "
    return f"{low} <= {name} and {name} <= {high} " if low > 2 else f"{name} <= {high} "


def _small_sizes(module, args, kwargs, leaves, captured, constraints, decomposing):
    """Symbols start at 2. Where less was asked for, and a call with a size of 1 is the same calls, so do the ranges."""
    wanted = {}
    for _, _, said in leaves:
        for dim in said.values():
            if isinstance(dim, Dim) and dim.root is dim and dim.min < 2:
                wanted[dim.__name__] = dim
    if not wanted or captured.graph is None:
        return False
    small = []
    for path, leaf, said in leaves:
        given = leaf
        for d, dim in said.items():
            if isinstance(dim, Dim) and dim.__name__ in wanted:
                given = given.narrow(d, 0, 1)
        small.append((path, given, {}))
    try:
        other = Captured(module, small, args, kwargs, decomposing)
    except Exception:  # it is not for such a size
        return False
    return _calls_of(other.graph) == _calls_of(captured.graph)


def _calls_of(graph):
    names = (n for n in graph.nodes if n.op == "call_function") if graph is not None else ()
    return [str(n.target) for n in names if str(n.target).startswith("aten.")]


# ---- all of it ----


def program_parts(module, args, kwargs, dynamic_shapes, decomposing=0):
    """What an ExportedProgram is made of: (graph, modules of its functions, signature, state, constants, ranges, guards,
    specs, names)."""
    names = parameter_names(module, args, kwargs)
    leaves = by_leaf(module, args, kwargs, dynamic_shapes)
    _check_inputs(leaves)
    _check_static(leaves)
    captured = Captured(module, leaves, args, kwargs, decomposing)
    builder = _Builder(module, captured, inference=bool(decomposing))
    by_tensor = builder.lift()
    if captured.graph is not None:
        builder.match_inputs(by_tensor)
        builder.copy_body()
    results, out_spec = pytree.tree_flatten(captured.result)
    pairs = [*builder.mutations(), *(builder.result(i, leaf, by_tensor) for i, leaf in enumerate(results))]
    builder.graph.output(tuple(value for _, value in pairs))
    builder.graph.eliminate_dead_code()
    fixed = _fixed_hints(captured, builder)
    if fixed:  # hints give way to what the program fixes
        return program_parts(module, args, kwargs, _without(leaves, fixed, combined(module, args, kwargs)), decomposing)
    ranges = _Ranges(captured, builder)
    constraints = ranges.constraints()
    if any(isinstance(dim, Dim) for _, _, said in leaves for dim in said.values()):
        small = _small_sizes(module, args, kwargs, leaves, captured, constraints, decomposing)
        for symbol, dim in ranges.roots.values():
            if small and dim.root is dim and dim.min < 2 and constraints[symbol].lower == 2:
                constraints[symbol].lower = dim.min
    saved = module.state_dict(keep_vars=True).keys()
    state = {name: t for name, t in [*module.named_parameters(), *module.named_buffers()] if name in saved}
    signature = ExportGraphSignature(builder.inputs, [spec for spec, _ in pairs])
    specs = pytree.tree_structure((tuple(args), dict(kwargs))), out_spec
    return builder.graph, builder.modules, signature, state, builder.constants, constraints, ranges.guards, specs, names
