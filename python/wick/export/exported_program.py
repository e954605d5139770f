"""ExportedProgram: a module's call as a graph, with the module's tensors and what the graph assumes of its inputs.

`module()` is the program as a module that can be called: it checks its inputs, and shares the parameters and buffers.
Tests: tests/python/test_export.py.
"""

import copy
import dataclasses
import operator

from .. import _C
from .._ops import ops
from ..fx import Graph, GraphModule
from ..nn import Module, Parameter
from ..utils import _pytree as pytree
from . import _guards
from ._capture import program_parts
from .graph_signature import ConstantArgument, InputKind, OutputKind

__all__ = ["ExportedProgram", "ModuleCallEntry", "ModuleCallSignature", "default_decompositions"]


@dataclasses.dataclass
class ModuleCallSignature:
    """How a module is called."""

    inputs: list
    outputs: list
    in_spec: object
    out_spec: object
    forward_arg_names: list | None = None


@dataclasses.dataclass
class ModuleCallEntry:
    """A module of the program by its name; the signature of the whole is that of ""."""

    fqn: str
    signature: ModuleCallSignature | None = None


@dataclasses.dataclass
class CallSpec:
    """The structure of arguments and results."""

    in_spec: object
    out_spec: object


def default_decompositions():
    """The decompositions that run_decompositions() uses: to wick's primitives."""
    from .._decomp import core_aten_decompositions

    return core_aten_decompositions()


class TrainingIRVerifier:
    """What is checked of a graph: lint(), and that its inputs and outputs are those of the signature."""

    dialect = "TRAINING"

    def check(self, program):
        """Raises an AssertionError for a graph that is not the signature's."""
        program.graph.lint()
        names = [node.name for node in program.graph.nodes if node.op == "placeholder"]
        wanted = [spec.arg.name for spec in program.graph_signature.input_specs]
        if names != wanted:
            raise AssertionError(f"the graph's inputs are {names}, the signature's {wanted}")
        outputs = program.graph.output_node().args[0]
        if len(outputs) != len(program.graph_signature.output_specs):
            raise AssertionError("the graph has other outputs than its signature")


class ExportedProgram:
    """What export() gives.

    graph_module, graph, graph_signature, state_dict, constants, range_constraints, example_inputs and call_spec are as in
    PyTorch. The graph is functional: what is written is among its outputs, as after PyTorch's run_decompositions().
    """

    __module__ = "torch.export.exported_program"

    def __init__(self, root, graph, graph_signature, state_dict, range_constraints, module_call_graph, example_inputs=None,
                 constants=None, *, verifiers=None, guards=()):  # fmt: skip
        self._graph_module = GraphModule(root, graph)
        self._graph_signature, self._state_dict, self._range_constraints = (
            graph_signature,
            state_dict,
            range_constraints,
        )
        self._module_call_graph, self._example_inputs = module_call_graph, example_inputs
        self._constants, self._guards_code = constants or {}, list(guards)
        self._verifiers = verifiers or [TrainingIRVerifier]
        self.validate()

    graph_module = property(lambda self: self._graph_module, doc="The graph as a module of flat inputs and outputs.")
    graph = property(lambda self: self._graph_module.graph, doc="The Graph.")
    graph_signature = property(lambda self: self._graph_signature, doc="What its inputs and outputs are.")
    state_dict = property(lambda self: self._state_dict, doc="Parameters and persistent buffers by name.")
    range_constraints = property(lambda self: self._range_constraints, doc="{symbol: range of its values}")
    module_call_graph = property(lambda self: self._module_call_graph, doc="A ModuleCallEntry of each module.")
    example_inputs = property(lambda self: self._example_inputs, doc="(args, kwargs) of the call that was captured.")
    constants = property(
        lambda self: self._constants, doc="Other tensors that it uses, and buffers that are not saved."
    )
    tensor_constants = constants
    verifiers = property(lambda self: self._verifiers, doc="What validate() asks.")
    verifier = property(lambda self: self._verifiers[0], doc="The first of them.")
    dialect = property(lambda self: self._verifiers[0].dialect, doc="The form of the graph.")

    @example_inputs.setter
    def example_inputs(self, value):
        if value is not None:
            args, kwargs = value
            if pytree.tree_structure((tuple(args), dict(kwargs))) != self.call_spec.in_spec:
                raise ValueError("example inputs of another structure than the program's inputs")
        self._example_inputs = value

    @property
    def call_spec(self):
        """The structure of arguments and results."""
        signature = self._module_call_graph[0].signature
        return CallSpec(signature.in_spec, signature.out_spec)

    def validate(self):
        """Raises for a graph that does not belong to its signature."""
        for verifier in self._verifiers:
            verifier().check(self)

    # ---- the module's tensors ----

    def named_parameters(self):
        """(name, parameter) of each."""
        for name in self._graph_signature.parameters:
            yield name, self._state_dict[name]

    def parameters(self):
        """The parameters."""
        for _, parameter in self.named_parameters():
            yield parameter

    def named_buffers(self):
        """(name, buffer) of each."""
        missing = set(self._graph_signature.non_persistent_buffers)
        for name in self._graph_signature.buffers:
            yield name, self._constants[name] if name in missing else self._state_dict[name]

    def buffers(self):
        """The buffers."""
        for _, buffer in self.named_buffers():
            yield buffer

    # ---- running ----

    def __call__(self, *args, **kwargs):
        raise RuntimeError(
            "Unable to call ExportedProgram directly. You should use `exported_program.module()` instead."
        )

    def module(self, check_guards=True):
        """The program as a module, which shares its parameters and buffers; inputs are checked with check_guards."""
        return _made_module(self, check_guards)

    def run_decompositions(self, decomp_table=None, decompose_custom_triton_ops=False):
        """The program with other operators: `decomp_table` {OpOverload: function}, default_decompositions() without one."""
        table = default_decompositions() if decomp_table is None else dict(decomp_table)
        present = {node.target for node in self.graph.nodes if node.op == "call_function"} & table.keys()
        if not present and decomp_table is not None:
            return _with_graph(self, copy.deepcopy(self.graph))
        return _decomposed(self, table, present)

    def __str__(self):
        code = self._graph_module.print_readable(print_output=False).replace("\n", "\n    ")
        code = _as_pytorch_prints(code)
        signature = str(self._graph_signature).replace("\n", "\n    ")
        return (
            f"ExportedProgram:\n    {code}\nGraph signature: {signature}\n"
            f"Range constraints: {self._range_constraints}\n"
        )

    def __deepcopy__(self, memo):
        state = {name: copy.deepcopy(tensor, memo) for name, tensor in self._state_dict.items()}
        return ExportedProgram(
            self.graph_module, copy.deepcopy(self.graph, memo), copy.deepcopy(self._graph_signature, memo), state,
            copy.deepcopy(self._range_constraints, memo), self._module_call_graph, copy.deepcopy(self._example_inputs, memo),
            copy.deepcopy(self._constants, memo), verifiers=self._verifiers, guards=self._guards_code,
        )  # fmt: skip


def _as_pytorch_prints(code):
    """A comment has the depth of its statement."""
    lines = [line[1:] if line.lstrip().startswith("# File:") else line for line in code.split("\n")]
    return "\n".join(line for i, line in enumerate(lines) if line.strip() or not lines[i - 1].rstrip().endswith(":"))


def _with_graph(program, graph, signature=None):
    """The same program with another graph."""
    return ExportedProgram(
        program.graph_module, graph, copy.deepcopy(signature or program.graph_signature), program.state_dict, program.range_constraints,
        program.module_call_graph, program.example_inputs, program.constants, verifiers=program.verifiers,
        guards=program._guards_code,
    )  # fmt: skip


# ---- making one ----


def of_call(module, args, kwargs, dynamic_shapes, decomposing=0):
    """The ExportedProgram of module(*args, **kwargs)."""
    parts = program_parts(module, args, kwargs, dynamic_shapes, decomposing)
    graph, modules, signature, state, constants, ranges, guards, (in_spec, out_spec), names = parts
    whole = ModuleCallSignature([], [], in_spec, out_spec, names)
    entries = [ModuleCallEntry("", whole), *(ModuleCallEntry(name) for name, _ in module.named_modules() if name)]
    example = tuple(args), dict(kwargs)
    return ExportedProgram(modules, graph, signature, state, ranges, entries, example, constants, guards=guards)


# ---- decompositions ----


def _dims_of(program):
    """dynamic_shapes of the program's own sizes."""
    from .._symint import SymInt
    from .dynamic_shapes import Dim

    nodes = [n for n in program.graph.nodes if n.op == "placeholder"]
    user = [
        n for n, s in zip(nodes, program.graph_signature.input_specs, strict=True) if s.kind is InputKind.USER_INPUT
    ]
    said = []
    for node in user:
        value = node.meta.get("val")
        shape = value.shape if isinstance(value, _C.Tensor) else None
        said.append(
            None if shape is None else {d: Dim.AUTO for d, size in enumerate(shape) if isinstance(size, SymInt)}
        )
    args, kwargs = pytree.tree_unflatten(said, program.call_spec.in_spec)
    names = program.module_call_graph[0].signature.forward_arg_names
    return dict(zip(names, [*args, *kwargs.values()], strict=True))


def _decomposed(program, table, present):
    from .._decomp import _ALL, Decomposition, decomposition_table

    own = {op for op in present if isinstance(table[op], Decomposition)}
    whole = decomposition_table.keys() <= table.keys()
    if own and not whole:
        raise NotImplementedError(
            f"run_decompositions with some of wick's own decompositions ({', '.join(sorted(map(str, own)))}): take "
            "default_decompositions(), or functions of your own"
        )
    module = program.module(check_guards=False)
    for node in module.graph.nodes:
        if node.op == "call_function" and node.target in present - own:
            node.target = table[node.target]
    module.recompile()
    args, kwargs = program.example_inputs
    made = of_call(module, args, kwargs, _dims_of(program), _ALL if whole else 0)
    made._range_constraints, made._module_call_graph = program.range_constraints, program.module_call_graph
    made._guards_code = program._guards_code
    _name_constants(made, program.graph_signature.lifted_tensor_constants)
    return made


def _name_constants(made, names):
    """The module had the program's constants as buffers."""
    nodes = {node.name: node for node in made.graph.nodes if node.op == "placeholder"}
    for spec in made.graph_signature.input_specs:
        if spec.kind is InputKind.BUFFER and spec.target in names:
            node = nodes[spec.arg.name]
            node.name = node.target = node.name.replace("b_", "c_", 1)
            spec.kind, spec.arg.name, spec.persistent = InputKind.CONSTANT_TENSOR, node.name, None


# ---- the module ----


class _InputCheck:
    """A forward pre-hook: the structure of the arguments, and what the graph assumes of them."""

    def __init__(self, program):
        self.spec = program.call_spec.in_spec
        nodes = [n for n in program.graph.nodes if n.op == "placeholder"]
        specs = program.graph_signature.input_specs
        self.inputs = []  # (name, sizes: numbers and symbols' names; or a constant)
        for node, spec in zip(nodes, specs, strict=True):
            if spec.kind is InputKind.USER_INPUT:
                self.inputs.append((node.name, *_assumed(node, spec.arg)))
        self.guards, self.ranges = program._guards_code, program.range_constraints

    def __call__(self, module, args, kwargs):
        if _C._is_compiling():
            return None
        expected = list(self.spec.child(1).context)
        if set(expected) != set(kwargs):
            raise ValueError(
                f"Ran into a kwarg keyword mismatch: Got the following keywords {list(kwargs)} but expected {expected}"
            )
        leaves, spec = pytree.tree_flatten((args, {name: kwargs[name] for name in expected}))
        if spec != self.spec:
            raise ValueError(
                f"Trying to flatten user inputs with exported input tree spec: \n{self.spec}\nbut actually got inputs with "
                f"tree spec of: \n{spec}.\nPlease check that the inputs have the same number and type of args and kwargs as "
                "the ones you used when tracing."
            )
        self._check_values(leaves)
        return None

    def _check_values(self, leaves):
        places, values = {}, {}
        for (name, is_tensor, assumed), leaf in zip(self.inputs, leaves, strict=True):
            if not is_tensor:
                if leaf != assumed or type(leaf) is not type(assumed):
                    raise AssertionError(f"Guard failed: {name} == {assumed!r}")
                continue
            shape = leaf.size()
            if len(shape) != len(assumed):
                raise AssertionError(f"Guard failed: {name}.dim() == {len(assumed)}")
            for d, (size, given) in enumerate(zip(assumed, shape, strict=True)):
                place = f"{name}.size()[{d}]"
                if isinstance(size, int):
                    if given != size:
                        raise AssertionError(f"Guard failed: {place} == {size}")
                elif size.isidentifier():
                    if values.setdefault(size, given) != given:
                        raise AssertionError(f"Guard failed: {place} == {places[size]}")
                    places.setdefault(size, place)
        self._check_symbols(places, values)

    def _check_symbols(self, places, values):
        for symbol, bounds in self.ranges.items():
            if symbol in values and values[symbol] not in bounds:
                low = values[symbol] < bounds.lower
                text = f"{places[symbol]} >= {bounds.lower}" if low else f"{places[symbol]} <= {bounds.upper}"
                raise AssertionError(f"Guard failed: {text}")
        for guard in self.guards:
            if not _guards.holds(guard, values):
                raise AssertionError(f"Guard failed: {_guards.renamed(guard, places)}")


def _assumed(node, argument):
    if isinstance(argument, ConstantArgument):
        return False, argument.value
    sizes = node.meta["val"].shape
    return True, [int(s) if type(s) is int else str(s) for s in sizes]


class _ExportedModule(GraphModule):
    """A GraphModule of a program: its mode is the captured one's."""

    def train(self, mode=True):
        raise NotImplementedError("Calling train() is not supported yet.")

    def eval(self):
        raise NotImplementedError("Calling eval() is not supported yet.")


def _assign(root, path, tensor, persistent=True):
    """root.layer.weight = tensor, with plain modules where the path has none."""
    *parents, name = path.split(".")
    for parent in parents:
        if parent not in root._modules:
            root.add_module(parent, Module())
        root = root._modules[parent]
    if isinstance(tensor, Parameter):
        root.register_parameter(name, tensor)
    else:
        root.register_buffer(name, tensor, persistent=persistent)


def _tensors(program):
    """{name: (tensor, is saved)} of parameters, buffers and constants."""
    found = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            saved = spec.kind is not InputKind.CONSTANT_TENSOR and spec.persistent is not False
            found[spec.target] = (program.state_dict if saved else program.constants)[spec.target], saved
    return found


class _Inputs:
    """A graph's placeholders for the caller's arguments, and nodes for the values in them."""

    def __init__(self, graph, program):
        self.graph, self.nodes = graph, {}
        spec = program.call_spec.in_spec
        args, kwargs = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)  # numbers for the values
        names = program.module_call_graph[0].signature.forward_arg_names
        for name, value in zip(names, [*args, *kwargs.values()], strict=True):
            top = graph.placeholder(name)
            for path, leaf in pytree.tree_leaves_with_path(value):
                self.nodes[leaf] = self._read(top, path)

    def _read(self, node, path):
        for key in path:
            if isinstance(key, pytree.GetAttrKey):
                node = self.graph.call_function(getattr, (node, key.name))
            else:
                node = self.graph.call_function(
                    operator.getitem, (node, getattr(key, "key", getattr(key, "idx", None)))
                )
        return node


def _results(graph, values, spec):
    """The results as the program gives them: containers of nodes, or a call that makes them."""

    def plain(part):
        return part.is_leaf() or (part.type in (tuple, list, dict) and all(map(plain, part.children())))

    if plain(spec):
        return pytree.tree_unflatten(values, spec)
    return graph.call_function(pytree.tree_unflatten, (values, spec))


def _made_module(program, check_guards):
    graph, nodes, module = Graph(), {}, Module()
    tensors = _tensors(program)
    for name, part in program.graph_module.named_children():  # functions of control flow
        module.add_module(name, part)
    for name, (tensor, saved) in tensors.items():
        _assign(module, name, tensor, saved)
    inputs, leaf = _Inputs(graph, program), 0
    for node, spec in zip([n for n in program.graph.nodes if n.op == "placeholder"],
                          program.graph_signature.input_specs, strict=True):  # fmt: skip
        if spec.kind is InputKind.USER_INPUT:
            nodes[node] = inputs.nodes[leaf]
            leaf += 1
        else:
            nodes[node] = graph.get_attr(spec.target)
        nodes[node].meta.update(node.meta)
    for node in program.graph.nodes:
        if node.op not in ("placeholder", "output"):
            nodes[node] = graph.node_copy(node, lambda n: nodes[n])
    values = [nodes[v] if hasattr(v, "all_input_nodes") else v for v in program.graph.output_node().args[0]]
    results = _write_back(graph, program, values, inputs)
    graph.output(_results(graph, results, program.call_spec.out_spec))
    for node in [n for n in graph.nodes if n.op == "get_attr" and not n.users]:
        graph.erase_node(node)
    made = _ExportedModule(module, graph, "GraphModule")
    for name, (tensor, saved) in tensors.items():
        _assign(made, name, tensor, saved)
    if check_guards:
        made.register_forward_pre_hook(_InputCheck(program), with_kwargs=True)
    return made


def _write_back(graph, program, values, inputs):
    """copy_ calls for what is written; the results that are left."""
    results = []
    names = [s.arg.name for s in program.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
    for value, spec in zip(values, program.graph_signature.output_specs, strict=True):
        if spec.kind is OutputKind.USER_OUTPUT:
            results.append(value)
        elif spec.kind is OutputKind.USER_INPUT_MUTATION:
            graph.call_function(ops.aten.copy_.default, (inputs.nodes[names.index(spec.target)], value))
        else:
            graph.call_function(ops.aten.copy_.default, (graph.get_attr(spec.target), value))
    return results
