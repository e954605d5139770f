"""What a program needs of PyTorch that wick lacks, from its source alone: nothing of it is run.

    python -m wick.info script.py

Read are the script and the modules that it imports: those beside it, and of installed ones those that name torch. Names
are followed from the imports that bind them (`import torch.nn as nn`, `from torch import optim`, `F = torch.nn.functional`)
through attributes. What an `except ImportError` or `except AttributeError` stands behind is left out. Of methods only the
name is known, not what they are called on: they are listed apart.
"""

import ast
import importlib
import importlib.machinery
import os
import sys

from ._names import is_known, not_yet_methods

_CAUGHT = frozenset(("ImportError", "ModuleNotFoundError", "AttributeError", "Exception", "BaseException"))


# ---- what is there ----


def lacking(path):
    """The first part of "torch.a.b" that PyTorch has and wick has not: "torch.a"; None when there is none."""
    found, at = importlib.import_module(__package__), "torch"
    for part in path.split(".")[1:]:
        at += "." + part
        try:
            found = getattr(found, part)
        except (AttributeError, ImportError):
            try:
                found = importlib.import_module(__package__ + at.removeprefix("torch"))
            except ImportError:
                return at if is_known(at) else None
    return None


# ---- one file ----


class _File(ast.NodeVisitor):
    """Collects from a syntax tree: `names` (path, line), `methods` (name, line), `imports` (level, module, names)."""

    def __init__(self):
        self.names, self.methods, self.imports = [], [], []
        self._bound = {}  # a name of the file -> what of torch it stands for; None: another module
        self._stars, self._loaded = [], {}  # modules of `from torch.nn import *`; names that are read, with a line
        self._guards = 0

    def _need(self, path, line):
        if not self._guards:
            self.names.append((path, line))

    # ---- imports and what they bind ----

    def visit_Import(self, node):
        for alias in node.names:
            is_torch = alias.name.split(".")[0] == "torch"
            if is_torch:
                self._need(alias.name, node.lineno)
            else:
                self.imports.append((0, alias.name, ()))
            whole = alias.asname is not None
            name = alias.asname or alias.name.split(".")[0]
            self._bound[name] = (alias.name if whole else "torch") if is_torch else None

    def visit_ImportFrom(self, node):
        module = node.module or ""
        if node.level or module.split(".")[0] != "torch":
            self.imports.append((node.level, module, [alias.name for alias in node.names]))
            return
        for alias in node.names:
            path = module if alias.name == "*" else f"{module}.{alias.name}"
            self._need(path, node.lineno)
            if alias.name == "*":
                self._stars.append(module)
            else:
                self._bound[alias.asname or alias.name] = path

    def visit_Assign(self, node):
        path = self._path_of(node.value)
        if path is not None and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            self._bound[node.targets[0].id] = path
        self.generic_visit(node)

    # ---- uses ----

    def visit_Name(self, node):
        if isinstance(node.ctx, ast.Load) and not self._guards:
            self._loaded.setdefault(node.id, node.lineno)

    def from_stars(self):
        """(path, line) of names that a star import would have bound."""
        for module in self._stars:
            for name, line in self._loaded.items():
                if name not in self._bound and is_known(f"{module}.{name}"):
                    yield f"{module}.{name}", line

    def _path_of(self, node):
        """ "torch.nn.functional" for what an expression of names and attributes stands for, if it is that."""
        if isinstance(node, ast.Name):
            return self._bound.get(node.id)
        if isinstance(node, ast.Attribute):
            base = self._path_of(node.value)
            return None if base is None else f"{base}.{node.attr}"
        return None

    def visit_Attribute(self, node):
        path = self._path_of(node)
        if path is not None:
            self._need(path, node.lineno)
            return  # the parts of the path are looked at with it
        known = isinstance(node.value, ast.Name) and (node.value.id in ("self", "cls") or node.value.id in self._bound)
        if not known and not self._guards and isinstance(node.ctx, ast.Load):
            self.methods.append((node.attr, node.lineno))
        self.generic_visit(node)

    # ---- what is tried ----

    def visit_Try(self, node):
        guarded = any(_catches(handler.type) for handler in node.handlers)
        self._guards += guarded
        for statement in node.body:
            self.visit(statement)
        self._guards -= guarded
        for statement in (*node.handlers, *node.orelse, *node.finalbody):
            self.visit(statement)

    def visit_If(self, node):
        text = ast.unparse(node.test)
        if text in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for statement in node.orelse:
                self.visit(statement)
        else:
            self.generic_visit(node)


def _catches(kind):
    if kind is None:
        return True
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(isinstance(k, ast.Name) and k.id in _CAUGHT for k in kinds)


# ---- the files of a program ----


class _Program:
    """The files that a script leads to, each read once."""

    def __init__(self, script):
        self.folder = os.path.dirname(os.path.abspath(script))
        self.missing, self.methods, self.unread = {}, {}, []
        self._seen, self._waiting = set(), [(os.path.abspath(script), "__main__", False)]
        self._search = [self.folder, *sys.path]
        self._lacking = {}
        self._absent = not_yet_methods()

    def read_all(self):
        while self._waiting:
            self._read(*self._waiting.pop())

    def _read(self, path, module, is_package):
        if path in self._seen:
            return
        self._seen.add(path)
        try:
            with open(path, "rb") as file:
                source = file.read()
            beside = os.path.dirname(path).startswith(self.folder)
            if not beside and b"torch" not in source:
                return
            tree = ast.parse(source, path)
        except (OSError, SyntaxError, ValueError, RecursionError) as error:
            self.unread.append(f"{self._shown(path)}: {error}")
            return
        found = _File()
        found.visit(tree)
        found.names += found.from_stars()
        self._note(found, path)
        for level, name, names in found.imports:
            self._follow(module if is_package else module.rpartition(".")[0], level, name, names)

    def _shown(self, path):
        return os.path.relpath(path, self.folder) if path.startswith(self.folder + os.sep) else path

    def _note(self, found, path):
        for name, line in found.names:
            if name not in self._lacking:
                self._lacking[name] = lacking(name)
            if self._lacking[name] is not None:
                self._add(self.missing, self._lacking[name], path, line)
        for name, line in found.methods if found.names else ():
            if name in self._absent:
                self._add(self.methods, name, path, line)

    def _add(self, where, name, path, line):
        places = where.setdefault(name, [])
        place = f"{self._shown(path)}:{line}"
        if place not in places:
            places.append(place)

    # ---- imports ----

    def _follow(self, package, level, name, names):
        if level:
            parts = package.split(".") if package else []
            parts = parts[: len(parts) - (level - 1)]
            name = ".".join([*parts, name] if name else parts)
        if not name:  # `from . import x` in a script
            for item in names:
                self._queue(item)
            return
        if name.split(".")[0] in sys.stdlib_module_names or name.split(".")[0] == __package__:
            return
        if self._queue(name):
            for item in names:
                self._queue(f"{name}.{item}")

    def _queue(self, name):
        """Has the module and the packages around it read; False when there is no such module."""
        search = self._search
        parts = name.split(".")
        for count in range(1, len(parts) + 1):
            whole = ".".join(parts[:count])
            try:
                spec = importlib.machinery.PathFinder.find_spec(whole, search)
            except (ImportError, ValueError, OSError):
                return False
            if spec is None:
                return False
            search = spec.submodule_search_locations
            if spec.has_location and spec.origin and spec.origin.endswith(".py"):
                self._waiting.append((spec.origin, whole, search is not None))
            if search is None and count < len(parts):
                return False
        return True


def needs(script):
    """{"missing": {"torch.nn.Conv2d": ["model.py:12", ...]}, "methods": {"median": [...]}, "unread": [...]}."""
    if os.path.isdir(script):
        script = os.path.join(script, "__main__.py")
    with open(script, "rb"):
        pass
    program = _Program(script)
    program.read_all()
    missing, methods = dict(sorted(program.missing.items())), dict(sorted(program.methods.items()))
    return {"missing": missing, "methods": methods, "unread": program.unread}


def text_of(script, found):
    """What needs() found, to be read."""
    lines = []
    for key, head in (
        ("missing", "names that PyTorch 2.13 has and wick has not yet"),
        ("methods", "methods of PyTorch's tensors that wick's have not yet, if these are called on tensors"),
    ):
        if found[key]:
            lines.append(f"{script} needs {len(found[key])} {head}:")
            width = max(map(len, found[key])) + 2
            lines += [f"  {name:{width}}{_places(places)}" for name, places in found[key].items()]
    if not lines:
        lines.append(f"{script} needs nothing that wick lacks")
    lines += [f"not read: {line}" for line in found["unread"]]
    return "\n".join(lines)


def _places(places, most=4):
    more = f" and {len(places) - most} more" if len(places) > most else ""
    return ", ".join(places[:most]) + more
