"""Files of scripted and traced programs: what save() writes and load() reads.

A file is an archive of torch.save, whose object are the tensors, with two kinds of records more: program.json has the
modules' names, the structure of calls and the guards of sizes; graphs/N.txt is a graph of the compiler as text. Nothing
of it is run when it is read: pickles are read by serialization's own reader, text is parsed and checked in C, and
what does not fit is a RuntimeError. Tests: tests/python/test_jit.py.
"""

import json
import os

from .. import _C, serialization
from ..nn import Module, Parameter
from ._modules import LoadedModule, ScriptFunction, ScriptModule, programs_of
from ._programs import Program, State, tensor_count, unflatten

__all__ = ["copied", "load", "save"]

FORMAT, MOST_TENSORS = 1, 1 << 16
_DESCRIPTION, _GRAPH, _EXTRA = "program.json", "graphs/{}.txt", "extra/"
_DAMAGE = ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError


# ---- writing ----


def _attributes(module):
    """What of a module's own attributes is plain: numbers, text, and lists of them."""

    def plain(value):
        if isinstance(value, (list, tuple)):
            return all(map(plain, value))
        return isinstance(value, (bool, int, float, str))

    return {
        name: value for name, value in vars(module).items() if not name.startswith("_") and name != "training" and plain(value)
    }  # fmt: skip


def _modules_of(made):
    """[path, class, mode, attributes] of each module."""
    rows = []
    for path, part in made.named_modules(remove_duplicate=False):
        original = part.__dict__.get("_original", part)
        name = original.original_name if isinstance(original, ScriptModule) else type(original).__name__
        rows.append([path, name, original.training, _attributes(original)])
    return rows


def _tensors_of(made):
    """[name, first name of the same tensor, is a parameter, requires grad, is in the state_dict], and the tensors."""
    rows, tensors, first, persistent = [], {}, {}, made.state_dict(keep_vars=True).keys()
    for name, tensor in State(made).items():
        known = first.setdefault(id(tensor), name)
        rows.append([name, known, isinstance(tensor, Parameter), tensor.requires_grad, name in persistent])
        if known == name:
            tensors[name] = tensor.detach()
    return rows, tensors


def _content(made):
    """(description, texts of graphs, tensors) of what script(), trace() or load() gave."""
    programs = programs_of(made)
    module = made if isinstance(made, Module) else Module()
    rows, tensors = _tensors_of(module)
    name = made.original_name if isinstance(made, Module) else made.__name__
    description = {"format": FORMAT, "name": name, "modules": _modules_of(module), "tensors": rows, "methods": {}}
    content = {"state": tensors, "attributes": [], "constants": []}
    texts = []
    for method, list_of in programs.items():
        description["methods"][method] = []
        for program in list_of:
            fields = {name: getattr(program, name) for name in Program.fields if name != "text"}
            description["methods"][method].append({**fields, "graph": len(texts)})
            texts.append(program.text)
            content["attributes"].append({key: t.detach() for key, t in program.attributes.items()})
            content["constants"].append(list(program.constants))
    return description, texts, content


def save(made, f, _extra_files=None):
    """Writes what script(), trace() or load() gave: its graphs as text, its tensors, and files beside them.

    save(trace(model.eval(), x), "model.pt", _extra_files={"labels.json": "[1, 2]"})
    """
    if not isinstance(made, (ScriptModule, ScriptFunction)):
        raise AttributeError(f"'{type(made).__name__}' object has no attribute 'save'")
    description, texts, content = _content(made)
    records = {_DESCRIPTION: json.dumps(description).encode()}
    records.update((_GRAPH.format(i), text.encode()) for i, text in enumerate(texts))
    for name, data in (_extra_files or {}).items():
        records[_EXTRA + name] = data.encode() if isinstance(data, str) else bytes(data)
    serialization.save_with(content, f, records)


# ---- reading ----


def load(f, map_location=None, _extra_files=None, _restore_shapes=False):
    """The module that save() has written, from a path or a file object.

    Its parameters and buffers are where map_location says; _extra_files: a dict, whose names are filled with the bytes
    that the file has of them. Files of PyTorch's own torch.jit.save are refused: they hold another language.

        model = load("model.pt")
    """
    if isinstance(f, (str, os.PathLike)):
        if not os.path.exists(f):
            raise ValueError(f"The provided filename {os.fspath(f)} does not exist")
        if os.path.isdir(f):
            raise ValueError(f"The provided filename {os.fspath(f)} is a directory")
        with open(f, "rb") as file:
            return _load(file, map_location, _extra_files)
    return _load(f, map_location, _extra_files)


def _load(file, map_location, extra_files):
    archive, content = serialization.load_with(file, map_location)
    if _DESCRIPTION not in archive:
        raise RuntimeError("the file has no program: it was written by torch.save, and torch.load reads it")
    try:
        description = json.loads(bytes(archive.get(_DESCRIPTION)))
        if description["format"] != FORMAT:
            raise ValueError(f"its form is number {description['format']}, and this version reads number {FORMAT}")
        made = _made(description, lambda i: bytes(archive.get(_GRAPH.format(int(i)))).decode(), content)
    except _DAMAGE as error:
        raise RuntimeError(f"the program in this file is damaged: {str(error)[:300]}") from None
    for name in extra_files or ():
        extra_files[name] = bytes(archive.get(_EXTRA + name))
    return made


def _made(description, text, content):
    root = LoadedModule(_text(description["name"]))
    for path, name, training, attributes in description["modules"]:
        part = root if path == "" else _add(root, _text(path), LoadedModule(_text(name)))
        part.training = bool(training)
        for key, value in attributes.items():
            if key.startswith("_") or hasattr(part, key):
                raise ValueError(f"no attribute: {key}")
            setattr(part, key, value)
    _add_tensors(root, description["tensors"], content["state"])
    state = State(root)
    for method, programs in description["methods"].items():
        if method.startswith("_") or (method != "forward" and hasattr(root, method)):
            raise ValueError(f"no name of a method: {method}")
        root._programs[_text(method)] = [_program(p, text, content, state) for p in programs]
    return root


def _text(value):
    if not isinstance(value, str):
        raise TypeError(f"a name is no text: {value}")
    return value


def _owner(root, path):
    prefix, _, name = path.rpartition(".")
    return root.get_submodule(prefix), name


def _add(root, path, part):
    owner, name = _owner(root, path)
    owner.add_module(name, part)
    return part


def _add_tensors(root, rows, state):
    made = {}
    for name, first, is_parameter, requires_grad, persistent in rows:
        if first == name:
            tensor = state[name]
            if not isinstance(tensor, _C.Tensor):
                raise TypeError(f"{name} is no tensor")
            made[name] = Parameter(tensor, requires_grad=bool(requires_grad)) if is_parameter else tensor
        owner, key = _owner(root, name)
        if is_parameter:
            owner.register_parameter(key, made[first])
        else:
            owner.register_buffer(key, made[first], persistent=bool(persistent))


def _program(fields, text, content, state):
    """A program whose parts fit each other, or an error."""
    number = fields.pop("graph")
    program = Program(content["constants"][number], content["attributes"][number], text=text(number), **fields)
    graph, names = program.graph(), {name for name, _ in state.items()} | program.attributes.keys()
    program.signature()
    count = _check_structure(program.arguments)
    if len(graph.inputs) != len(program.inputs) or program.training not in (None, True, False):
        raise ValueError("a call gives the graph other inputs than it takes")
    for i in program.inputs:
        if not (i in names if isinstance(i, str) else 0 <= i < count):
            raise ValueError(f"the graph's input {i} is not there")
    if _check_structure(program.results) > len(program.outputs):
        raise ValueError("a result is not there")
    for i in program.outputs:
        if not -count <= i < graph.output_count:
            raise ValueError(f"the graph's output {i} is not there")
    return program


def _check_structure(structure):
    """How many tensors it is made of, at most."""
    count = tensor_count(structure)
    if count > MOST_TENSORS:
        raise ValueError(f"{count} tensors of a call")
    unflatten(structure, [None] * count)
    return count


def copied(made):
    """A LoadedModule with tensors of its own and the same programs."""
    rows, tensors = _tensors_of(made)
    other = LoadedModule(made.original_name)
    for path, name, training, attributes in _modules_of(made):
        part = other if path == "" else _add(other, path, LoadedModule(name))
        part.training = training
        vars(part).update(attributes)
    _add_tensors(other, rows, {name: tensor.clone() for name, tensor in tensors.items()})
    other._programs.update(made._programs)
    other.__dict__["_compiled"] = made._compiled
    return other
