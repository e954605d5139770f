"""Files of exported programs: what save() writes and load() reads.

A file is an archive of torch.save, whose object are the tensors, and program.json: the graph's nodes, the signature, the
structure of arguments and results, ranges and guards. Nothing of it is run when it is read: operators are found by name
among torch.ops and a short list of Python's, pickles are read by serialization's own reader, and what does not fit is a
RuntimeError. Tests: tests/python/test_export.py.
"""

import builtins
import json
import operator
import os
from collections import OrderedDict

from .. import _C, serialization
from .._higher_order_ops.operators import HigherOrderOperator
from .._ops import ops
from .._symint import SymbolicTensor, SymInt
from ..fx import Graph, GraphModule
from ..nn import Parameter
from ..utils import _pytree as pytree
from . import graph_signature as signatures
from ._capture import Symbol
from .dynamic_shapes import ValueRange, int_oo
from .exported_program import ExportedProgram, ModuleCallEntry, ModuleCallSignature

__all__ = ["load", "registered", "save"]

FORMAT = 1
_DESCRIPTION, _EXTRA = "program.json", "extra/"
_DAMAGE = ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError
_PYTHON = {f"operator.{name}": getattr(operator, name) for name in ("add", "floordiv", "getitem", "mod", "mul", "sub")}
_PYTHON.update({f"builtins.{name}": getattr(builtins, name) for name in ("max", "min")})
registered = {}  # serialized name -> class, of register_dataclass()


# ---- values ----


def _written(value):
    """A node's argument, description or constant as JSON."""
    if hasattr(value, "all_input_nodes"):
        return {"node": value.name}
    if isinstance(value, SymInt):
        return {"size": [int(value), str(value)]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"value": value}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, _C.Tensor):
        strides = value.stride()
        return {"tensor": [str(value.dtype), [_written(s) for s in value.shape], [_written(s) for s in strides],
                           value.requires_grad]}  # fmt: skip
    if isinstance(value, (list, tuple)):
        return {"list" if isinstance(value, list) else "tuple": [_written(item) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[_written(key), _written(item)] for key, item in value.items()]}
    if isinstance(value, slice):
        return {"slice": [_written(part) for part in (value.start, value.stop, value.step)]}
    if isinstance(value, _C.device):
        return {"device": str(value)}
    if isinstance(value, (_C.dtype, _C.memory_format, _C.layout)):
        return {"name": str(value).removeprefix("torch.")}
    raise NotImplementedError(f"save: a value of the type {type(value).__name__} cannot be written")


def _read(data, nodes):
    ((kind, content),) = data.items()
    if kind == "node":
        return nodes[content]
    if kind == "size":
        return SymInt(int(content[0]), str(content[1]))
    if kind == "value" and (content is None or isinstance(content, (bool, int, float, str))):
        return content
    if kind == "complex":
        return complex(*content)
    if kind == "tensor":
        return _described(*content)
    if kind in ("list", "tuple"):
        return (list if kind == "list" else tuple)(_read(item, nodes) for item in content)
    if kind == "dict":
        return {_read(key, nodes): _read(item, nodes) for key, item in content}
    if kind == "slice":
        return slice(*(_read(part, nodes) for part in content))
    if kind == "device":
        return _C.device(content)
    if kind == "name":
        return _name(content)
    raise ValueError(f"no value: {str(data)[:100]}")


def _name(text):
    value = getattr(_C, text)
    if not isinstance(value, (_C.dtype, _C.memory_format, _C.layout)):
        raise ValueError(f"no dtype, layout or memory format: {text}")
    return value


def _described(dtype, sizes, strides, requires_grad):
    from ..functions.statistics import empty_strided

    dtype = _name(dtype.removeprefix("torch."))
    sizes, strides = (tuple(_read(s, {}) for s in numbers) for numbers in (sizes, strides))
    if any(isinstance(s, SymInt) for s in (*sizes, *strides)):
        return SymbolicTensor(sizes, strides, dtype)
    return empty_strided(sizes, strides, dtype=dtype, device="meta", requires_grad=bool(requires_grad))


# ---- structures ----

_CONTAINERS = {"tuple": tuple, "list": list, "dict": dict, "OrderedDict": OrderedDict}


def _written_spec(spec):
    if spec.is_leaf():
        return None
    names = {kind: name for name, kind in [*_CONTAINERS.items(), *registered.items()]}
    if spec.type not in names:
        raise NotImplementedError(
            f"save: {spec.type.__name__} has no serialized name; register_dataclass(cls, serialized_type_name=...) gives one"
        )
    context = list(spec.context) if isinstance(spec.context, (list, tuple)) else spec.context
    return {"type": names[spec.type], "context": context, "children": [_written_spec(c) for c in spec.children()]}


def _read_spec(data):
    if data is None:
        return pytree.LeafSpec()
    kind = _CONTAINERS.get(data["type"]) or registered.get(data["type"])
    if kind is None:
        raise ValueError(f"the class {data['type']} is not registered here: call register_dataclass first")
    return pytree.TreeSpec(kind, data["context"], [_read_spec(child) for child in data["children"]])


# ---- graphs ----


def _target_name(target):
    for name, function in _PYTHON.items():
        if function is target:
            return name
    if isinstance(target, HigherOrderOperator):
        return f"higher_order.{target}"
    if isinstance(target, _C.OpOverload):
        return str(target)
    if target is ops.aten.sym_size.int:
        return "aten.sym_size.int"
    raise NotImplementedError(f"save: {target} is no operator, and its Python cannot be written")


def _target(name):
    if name in _PYTHON:
        return _PYTHON[name]
    if name.startswith("higher_order."):
        found = getattr(ops.higher_order, name.partition(".")[2])
        if not isinstance(found, HigherOrderOperator):
            raise ValueError(f"no operator: {name}")
        return found
    namespace, packet, overload = name.split(".")
    found = getattr(getattr(getattr(ops, namespace), packet), overload)
    if not isinstance(found, _C.OpOverload) and found is not ops.aten.sym_size.int:
        raise ValueError(f"no operator: {name}")
    return found


_KINDS = "placeholder", "get_attr", "call_function", "output"


def _written_graph(graph):
    rows = []
    for node in graph.nodes:
        if node.op not in _KINDS:
            raise NotImplementedError(f"save: a node of the kind {node.op}")
        target = _target_name(node.target) if node.op == "call_function" else str(node.target)
        meta = {"stack_trace": node.meta.get("stack_trace"), "val": _written(node.meta.get("val"))}
        rows.append([node.op, node.name, target, _written(tuple(node.args)), _written(dict(node.kwargs)), meta])
    return rows


def _read_graph(rows):
    graph, nodes = Graph(), {}
    for op, name, target, args, kwargs, meta in rows:
        if op not in _KINDS:
            raise ValueError(f"no kind of node: {op}")
        target = _target(target) if op == "call_function" else target
        node = graph.create_node(op, target, _read(args, nodes), _read(kwargs, nodes), name)
        node.meta["val"] = _read(meta["val"], nodes)
        if meta["stack_trace"]:
            node.meta["stack_trace"] = str(meta["stack_trace"])
        nodes[name] = node
    graph.lint()
    return graph


def _written_modules(module):
    """{name: [rows of its graph, {name: small tensor}, its own modules]} of the functions of control flow."""
    return {
        name: [
            _written_graph(part.graph),
            {key: [str(t.dtype), t.tolist()] for key, t in part.named_buffers(recurse=False)},
            _written_modules(part),
        ]
        for name, part in module.named_children()
    }


def _read_modules(written):
    def made(name, rows, tensors, parts):
        root = {
            key: _C.tensor(data, dtype=_name(dtype.removeprefix("torch."))) for key, (dtype, data) in tensors.items()
        }
        return GraphModule({**root, **_read_modules(parts)}, _read_graph(rows), name)

    return {name: made(name, *content) for name, content in written.items()}


# ---- signatures ----


def _written_argument(arg):
    return [type(arg).__name__, arg.name, _written(getattr(arg, "value", None))]


def _read_argument(kind, name, value):
    if kind == "ConstantArgument":
        return signatures.ConstantArgument(name, _read(value, {}))
    if kind not in ("TensorArgument", "SymIntArgument"):
        raise ValueError(f"no argument: {kind}")
    return getattr(signatures, kind)(name)


def _written_signature(signature):
    return [
        [[s.kind.name, _written_argument(s.arg), s.target, s.persistent] for s in signature.input_specs],
        [[s.kind.name, _written_argument(s.arg), s.target] for s in signature.output_specs],
    ]


def _read_signature(inputs, outputs):
    return signatures.ExportGraphSignature(
        [signatures.InputSpec(signatures.InputKind[k], _read_argument(*a), t, p) for k, a, t, p in inputs],
        [signatures.OutputSpec(signatures.OutputKind[k], _read_argument(*a), t) for k, a, t in outputs],
    )


# ---- files ----


def _bound(value):
    return None if value is int_oo else int(value)


def save(ep, f, *, extra_files=None, opset_version=None, pickle_protocol=2):
    """Writes an exported program to a path or a file object; extra_files: {name: text or bytes} beside it.

    save(program, "model.pt2", extra_files={"labels.txt": "cat dog"})
    """
    if not isinstance(ep, ExportedProgram):
        raise TypeError(
            f"The 'ep' parameter must be an instance of 'ExportedProgram', got '{type(ep).__name__}' instead."
        )
    whole = ep.module_call_graph[0].signature
    description = {
        "format": FORMAT,
        "graph": _written_graph(ep.graph),
        "graphs": _written_modules(ep.graph_module),
        "signature": _written_signature(ep.graph_signature),
        "in_spec": _written_spec(whole.in_spec), "out_spec": _written_spec(whole.out_spec),
        "names": whole.forward_arg_names, "modules": [entry.fqn for entry in ep.module_call_graph[1:]],
        "ranges": {str(name): [_bound(r.lower), _bound(r.upper)] for name, r in ep.range_constraints.items()},
        "guards": ep._guards_code,
        "parameters": [[name, p.requires_grad] for name, p in ep.state_dict.items() if isinstance(p, Parameter)],
    }  # fmt: skip
    leaves = None
    if ep.example_inputs is not None:
        leaves = [x.detach() if isinstance(x, _C.Tensor) else x for x in pytree.tree_leaves(ep.example_inputs)]
    content = {
        "state": {name: tensor.detach() for name, tensor in ep.state_dict.items()},
        "constants": {name: tensor.detach() for name, tensor in ep.constants.items()},
        "inputs": leaves,
    }
    records = {_DESCRIPTION: json.dumps(description).encode()}
    for name, data in (extra_files or {}).items():
        records[_EXTRA + name] = data.encode() if isinstance(data, str) else bytes(data)
    serialization.save_with(content, f, records)


def load(f, *, extra_files=None, expected_opset_version=None):
    """The program that save() has written; extra_files: a dict, whose names are filled with the texts that the file has.

    Files of PyTorch's own torch.export.save are refused.
    """
    if isinstance(f, (str, os.PathLike)):
        with open(f, "rb") as file:
            return _load(file, extra_files)
    return _load(f, extra_files)


def _load(file, extra_files):
    archive, content = serialization.load_with(file, None)
    if _DESCRIPTION not in archive:
        raise RuntimeError("the file has no exported program of wick")
    try:
        made = _made(json.loads(bytes(archive.get(_DESCRIPTION))), content)
    except (AssertionError, *_DAMAGE) as error:
        raise RuntimeError(f"the program in this file cannot be read: {str(error)[:300]}") from None
    for name in extra_files if extra_files is not None else ():
        extra_files[name] = bytes(archive.get(_EXTRA + name)).decode()
    return made


def _made(description, content):
    if description["format"] != FORMAT:
        raise ValueError(f"its form is number {description['format']}, and this version reads number {FORMAT}")
    graph, signature = _read_graph(description["graph"]), _read_signature(*description["signature"])
    state = dict(content["state"])
    for name, requires_grad in description["parameters"]:
        state[name] = Parameter(state[name], requires_grad=bool(requires_grad))
    ranges = {
        Symbol(name): ValueRange(int(low), int_oo if high is None else int(high))
        for name, (low, high) in description["ranges"].items()
    }
    in_spec, out_spec = _read_spec(description["in_spec"]), _read_spec(description["out_spec"])
    whole = ModuleCallSignature([], [], in_spec, out_spec, list(description["names"]))
    entries = [ModuleCallEntry("", whole), *map(ModuleCallEntry, description["modules"])]
    example = None if content["inputs"] is None else pytree.tree_unflatten(content["inputs"], in_spec)
    guards = [str(guard) for guard in description["guards"]]
    return ExportedProgram(
        _read_modules(description["graphs"]),
        graph,
        signature,
        state,
        ranges,
        entries,
        example,
        dict(content["constants"]),
        guards=guards,
    )
