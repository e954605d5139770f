"""PackageExporter: writes objects, the sources of modules and files into a package.

What a saved object or a source imports is followed: the first pattern that matches a module's name says whether its source
goes into the package (intern), it is expected where the package is loaded (extern), or stands for nothing (mock). Modules
of the standard library and torch are expected there. What no pattern matches is an error when the package is closed.
Tests: tests/python/test_package.py.
"""

import ast
import collections
import enum
import importlib.util
import inspect
import io
import os
import pickle
import sys
import types

from ..serialization import _view
from ..serialization.archive import Writer
from ..serialization.pickler import _Pickler, _torch_name
from ..utils.hooks import RemovableHandle
from .glob_group import GlobGroup
from .importer import Importer, OrderedImporter, sys_importer

__all__ = ["EmptyMatchError", "PackageExporter", "PackagingError", "PackagingErrorReason"]

_MOCK = '''"""What stands for a module that is not in this package."""


class MockedObject:
    _name: str

    def __new__(cls, *args, **kwargs):
        if not kwargs.get("_suppress_err"):
            raise NotImplementedError(f"Object '{cls._name}' was mocked out during packaging but it is being used in {__name__}")
        return super().__new__(cls)

    def __init__(self, name, _suppress_err):
        self.__dict__["_name"] = name

    def __repr__(self):
        return f"MockedObject({self._name})"


def _refuse(method):
    def call(self, *args, **kwargs):
        raise NotImplementedError(f"Object '{self._name}' was mocked out during packaging but it is being used in {method}")

    return call


for _method in "call add sub mul truediv getitem setitem delitem contains iter len enter exit int float bool index".split():
    setattr(MockedObject, f"__{_method}__", _refuse(f"__{_method}__"))
'''
_MOCKED = """from _mock import MockedObject


def __getattr__(attr):
    return MockedObject(__name__ + "." + attr, _suppress_err=True)
"""


_NOT_BY_ITSELF = ("io", "sys")  # modules of the standard library that reach far: a pattern has to name them


class EmptyMatchError(Exception):
    """A pattern with allow_empty=False has matched no module."""


class PackagingErrorReason(enum.Enum):
    """Why a module cannot go into a package."""

    IS_EXTENSION_MODULE = "Module is a C extension module. torch.package supports Python modules only."
    NO_DUNDER_FILE = "Module had no __file__ defined."
    SOURCE_FILE_NOT_FOUND = "Module had a __file__, but we could not find it in your filesystem."
    DEPENDENCY_RESOLUTION_FAILED = "Dependency resolution failed."
    NO_ACTION = "Module did not match against any action pattern. Extern, mock, or intern it."
    DENIED = "Module was denied by a pattern."
    MOCKED_BUT_STILL_USED = (
        "Module was mocked out, but is still being used in the package. Please intern or extern the mocked modules if objects "
        "are supposed to be in the package."
    )

    def __repr__(self):
        return f"<{type(self).__name__}.{self.name}>"


class PackagingError(Exception):
    """Modules that cannot go into a package, with the reasons."""

    def __init__(self, broken, debug=False, paths=None):
        self.broken = broken
        text = "\n"
        for reason in dict.fromkeys(broken.values()):
            text += f"* {reason.value}\n"
            for name in (n for n, r in broken.items() if r is reason):
                text += f"    {name}\n"
                if debug and paths:
                    text += f"      A path to {name}: {' -> '.join(paths(name))}\n"
        if not debug:
            text += "\nSet debug=True when invoking PackageExporter for a visualization of where broken modules are coming from!\n"
        super().__init__(text)


class _PackagePickler(_Pickler):
    """Names globals as the exporter's importers do, and keeps the storages of all pickles together."""

    def __init__(self, file, protocol, exporter):
        super().__init__(file, protocol)
        self.storages, self._keys = exporter._storages, exporter._keys
        self.exporter, self.modules = exporter, {}

    def _write_global(self, obj, module, name):
        self.modules.setdefault(module, name)
        super()._write_global(obj, module, name)

    def save_global(self, obj, name=None):
        module = getattr(obj, "__module__", None) or pickle.whichmodule(obj, name or obj.__qualname__)
        if _torch_name(module) != module:
            self._write_global(obj, _torch_name(module), name or obj.__qualname__)
            return
        try:
            self._write_global(obj, *self.exporter.importer.get_name(obj, name))
        except Exception as error:
            raise pickle.PicklingError(f"Can't pickle {obj}: {error}") from None

    def save_type(self, obj):
        if obj in (type(None), type(NotImplemented), type(...)):
            pickle._Pickler.save_type(self, obj)
        else:
            self.save_global(obj)

    dispatch = {**_Pickler.dispatch, type: save_type, types.FunctionType: save_global}


# ---- what a source imports ----


class _Imports(ast.NodeVisitor):
    """{(module, name or None)} of import statements, and __import__ of text."""

    def __init__(self, package):
        self.package, self.found = package, {}

    def visit_Import(self, node):
        for alias in node.names:
            self.found[alias.name, None] = True

    def visit_ImportFrom(self, node):
        module = "." * node.level + (node.module or "")
        if node.level:
            module = importlib.util.resolve_name(module, self.package)
        for alias in node.names:
            self.found[module, None if alias.name == "*" else alias.name] = True

    def visit_Call(self, node):
        named = isinstance(node.func, ast.Name) and node.func.id == "__import__"
        if named and node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str):
            self.found[node.args[0].value, None] = True
        self.generic_visit(node)


def _of_torch(name):
    """wick's modules are torch's to a package."""
    return _torch_name(name)


class _Rule:
    def __init__(self, action, include, exclude, allow_empty):
        self.action, self.glob, self.allow_empty, self.matched = (
            action,
            GlobGroup(include, exclude=exclude),
            allow_empty,
            False,
        )


class PackageExporter:
    """Writes a package to a path or a file object; close() or the end of `with` completes it.

    importer: where the objects come from, the process or packages: PackageExporter(f, importer=[package, sys_importer]).
    """

    def __init__(self, f, importer=sys_importer, debug=False):
        name = "archive"
        self._own_file = isinstance(f, (str, os.PathLike))
        if self._own_file:
            name = os.path.splitext(os.path.basename(os.fspath(f)))[0] or name
            f = open(os.fspath(f), "wb")
        self._file, self._writer = f, Writer(f, name)
        self.importer = importer if isinstance(importer, Importer) else OrderedImporter(*importer)
        self.debug = debug
        self._rules, self._hooks = [], {kind: collections.OrderedDict() for kind in ("extern", "mock", "intern")}
        self._edges, self._actions, self._broken = {}, {}, {}  # name -> names it needs; name -> action; name -> reason
        self._written, self._storages, self._keys, self._unique = set(), [], {}, 0
        self._closed = False

    # ---- patterns ----

    def _rule(self, action, include, exclude, allow_empty):
        self._rules.append(_Rule(action, include, exclude, allow_empty))

    def intern(self, include, *, exclude=(), allow_empty=True):
        """The sources of these modules go into the package."""
        self._rule("intern", include, exclude, allow_empty)

    def mock(self, include, *, exclude=(), allow_empty=True):
        """These modules stand for nothing: what is used of them is a NotImplementedError."""
        self._rule("mock", include, exclude, allow_empty)

    def extern(self, include, *, exclude=(), allow_empty=True):
        """These modules are imported where the package is loaded."""
        self._rule("extern", include, exclude, allow_empty)

    def deny(self, include, *, exclude=()):
        """These modules are an error."""
        self._rule("deny", include, exclude, True)

    def _register(self, kind, hook):
        handle = RemovableHandle(self._hooks[kind])
        self._hooks[kind][handle.id] = hook
        return handle

    def register_extern_hook(self, hook):
        """hook(exporter, name) is called for each module that is expected outside."""
        return self._register("extern", hook)

    def register_mock_hook(self, hook):
        """hook(exporter, name) is called for each module that stands for nothing."""
        return self._register("mock", hook)

    def register_intern_hook(self, hook):
        """hook(exporter, name) is called for each module whose source goes into the package."""
        return self._register("intern", hook)

    # ---- modules ----

    def _edge(self, source, name):
        self._edges.setdefault(source, {})[name] = True

    def add_dependency(self, module_name, dependencies=True):
        """Does with a module, and with what it imports, what the patterns say."""
        name = _of_torch(module_name)
        if name in self._actions or name in self._broken:
            return
        top = name.partition(".")[0]
        rule = next((r for r in self._rules if r.glob.matches(name)), None)
        if top == "torch" or (top in sys.stdlib_module_names and top not in _NOT_BY_ITSELF):
            self._done("extern", name)
        elif rule is None:
            self._broken[name] = PackagingErrorReason.NO_ACTION
        else:
            rule.matched = True
            if rule.action == "deny":
                self._broken[name] = PackagingErrorReason.DENIED
            elif rule.action == "intern":
                self._intern(name, dependencies)
            else:
                self._done(rule.action, name)

    def _done(self, action, name):
        self._actions[name] = action
        for hook in list(self._hooks[action].values()):
            hook(self, name)

    def _source(self, name):
        """(source, is a package), or a PackagingErrorReason."""
        of_package = self.importer.get_source(name) if isinstance(self.importer, OrderedImporter) else None
        if (
            isinstance(self.importer, Importer)
            and hasattr(self.importer, "has_source")
            and self.importer.has_source(name)
        ):
            of_package = self.importer.get_source(name)
        module = self.importer.import_module(name)
        is_package = hasattr(module, "__path__")
        if of_package is not None:
            return of_package, is_package
        file = getattr(module, "__file__", None)
        if file is None:
            return ("", True) if is_package else PackagingErrorReason.NO_DUNDER_FILE
        if file.endswith((".so", ".pyd")):
            return PackagingErrorReason.IS_EXTENSION_MODULE
        try:
            return inspect.getsource(module), is_package
        except OSError:
            return ("", True) if os.path.exists(file) else PackagingErrorReason.SOURCE_FILE_NOT_FOUND

    def _intern(self, name, dependencies):
        self._actions[name] = "intern"
        try:
            found = self._source(name)
        except ImportError:
            found = PackagingErrorReason.DEPENDENCY_RESOLUTION_FAILED
        if isinstance(found, PackagingErrorReason):
            self._broken[name] = found
            return
        self._done("intern", name)
        self._put_source(name, *found, dependencies)

    def _put_source(self, name, source, is_package, dependencies):
        path = name.replace(".", "/")
        self._write(f"{path}/__init__.py" if is_package else f"{path}.py", source)
        if dependencies:
            for needed in self._needs(name, source, is_package):
                self._edge(name, needed)
                self.add_dependency(needed)

    def _needs(self, name, source, is_package):
        visitor = _Imports(name if is_package else name.rpartition(".")[0])
        try:
            visitor.visit(ast.parse(source))
        except (SyntaxError, ImportError, ValueError):
            self._broken[name] = PackagingErrorReason.DEPENDENCY_RESOLUTION_FAILED
            return []
        needed = {}
        for module, item in visitor.found:
            needed[_of_torch(module)] = True
            if item is not None and self._is_module(f"{module}.{item}"):
                needed[_of_torch(f"{module}.{item}")] = True
        return list(needed)

    def _is_module(self, name):
        if name.partition(".")[0] in sys.stdlib_module_names or _of_torch(name).startswith("torch."):
            return False  # what is expected outside is found there
        try:
            return isinstance(self.importer.import_module(name), types.ModuleType)
        except ImportError:
            return False

    def save_module(self, module_name, dependencies=True):
        """The source of a module that can be imported here."""
        if not isinstance(module_name, str):
            raise TypeError("save_module() expects a string input, did you perhaps mean to pass `__name__`?")
        self.importer.import_module(module_name)
        self._intern(module_name, dependencies)

    def save_source_string(self, module_name, src, is_package=False, dependencies=True):
        """A module of the package with this source."""
        self._broken.pop(module_name, None)  # something that was saved before needs it
        self._done("intern", module_name)
        self._put_source(module_name, src, is_package, dependencies)

    def save_source_file(self, module_name, file_or_directory, dependencies=True):
        """A module of the package from a file, or several from a folder."""
        if not os.path.isdir(file_or_directory):
            with open(file_or_directory, encoding="utf-8") as file:
                self.save_source_string(
                    module_name, file.read(), os.path.basename(file_or_directory) == "__init__.py", dependencies
                )
            return
        for folder, _, files in sorted(os.walk(file_or_directory)):
            relative = os.path.relpath(folder, file_or_directory)
            prefix = module_name if relative == "." else f"{module_name}.{relative.replace(os.sep, '.')}"
            for name in sorted(f for f in files if f.endswith(".py")):
                own = prefix if name == "__init__.py" else f"{prefix}.{name.removesuffix('.py')}"
                self.save_source_file(own, os.path.join(folder, name), dependencies)

    # ---- objects and files ----

    def _write(self, name, data):
        if name in self._written:
            raise AssertionError(f"the package has a file {name} already")
        self._written.add(name)
        self._writer.add(name, data.encode() if isinstance(data, str) else bytes(data))

    @staticmethod
    def _path(package, resource):
        return f"{package.replace('.', '/')}/{resource}"

    def save_pickle(self, package, resource, obj, dependencies=True, pickle_protocol=3):
        """An object as package/resource; the modules of its classes and functions are followed."""
        buffer = io.BytesIO()
        pickler = _PackagePickler(buffer, pickle_protocol, self)
        before = len(self._storages)
        pickler.dump(obj)
        for number in range(before, len(self._storages)):
            self._writer.add(f".data/{number}.storage", _view(self._storages[number][0]))
        self._write(self._path(package, resource), buffer.getvalue())
        source = f"<{package}.{resource}>"
        self._edges.setdefault(source, {})
        for module in pickler.modules if dependencies else ():
            self._edge(source, module)
            self.add_dependency(module)
            if self._actions.get(module) == "mock":
                self._broken[module] = PackagingErrorReason.MOCKED_BUT_STILL_USED

    def save_text(self, package, resource, text):
        """A text file."""
        self.save_binary(package, resource, text.encode())

    def save_binary(self, package, resource, binary):
        """A file."""
        self._write(self._path(package, resource), binary)

    def get_unique_id(self):
        """A text that no other call of this exporter gives."""
        self._unique += 1
        return str(self._unique - 1)

    # ---- what it knows ----

    def _with(self, action):
        return sorted(name for name, done in self._actions.items() if done == action)

    def externed_modules(self):
        """Those that are expected outside."""
        return self._with("extern")

    def interned_modules(self):
        """Those whose sources are in the package."""
        return self._with("intern")

    def mocked_modules(self):
        """Those that stand for nothing."""
        return self._with("mock")

    def denied_modules(self):
        """Those that were denied."""
        return sorted(name for name, reason in self._broken.items() if reason is PackagingErrorReason.DENIED)

    def get_rdeps(self, module_name):
        """The modules and objects that need a module."""
        if module_name not in self._actions and module_name not in self._edges:
            return []
        return [source for source, needs in self._edges.items() if module_name in needs]

    def _path_to(self, name, seen=()):
        for source in self.get_rdeps(name) or [s for s, needs in self._edges.items() if name in needs]:
            if source not in seen:
                return [*self._path_to(source, (*seen, name)), name]
        return [name]

    def all_paths(self, src, dst):
        """The ways from one module to another, as a graph in dot's language."""
        found, stack = set(), [[src]]
        while stack:
            path = stack.pop()
            if path[-1] == dst:
                found.update(zip(path, path[1:], strict=False))
                continue
            stack += [[*path, n] for n in self._edges.get(path[-1], ()) if n not in path]
        return _dot(sorted(found))

    def dependency_graph_string(self):
        """What needs what, as a graph in dot's language."""
        return _dot([(source, name) for source, needs in self._edges.items() for name in needs])

    # ---- the end ----

    def close(self):
        """Writes what is left of the package; a PackagingError for modules that cannot be in it."""
        for rule in self._rules:
            if not rule.allow_empty and not rule.matched:
                raise EmptyMatchError(
                    f"Exporter did not match any modules to {rule.glob}, which was marked as allow_empty=False"
                )
        if self._broken:
            raise PackagingError(dict(self._broken), self.debug, self._path_to)
        mocked = self.mocked_modules()
        if mocked:
            self._write("_mock.py", _MOCK)
        for name in mocked:
            inside = any(other.startswith(name + ".") for other in self._actions)
            path = name.replace(".", "/")
            self._write(f"{path}/__init__.py" if inside else f"{path}.py", _MOCKED)
        self._write(".data/extern_modules", "\n".join(self.externed_modules()))
        self._write(".data/python_version", ".".join(map(str, sys.version_info[:3])))
        self._write(".data/version", "6\n")
        self._write("byteorder", "little")
        self._writer.close()
        self._finish()

    def _finish(self):
        self._closed = True
        if self._own_file:
            self._file.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        if kind is None:
            self.close()
        elif not self._closed:
            self._finish()


def _dot(edges):
    lines = "\n".join(f'"{a}" -> "{b}";' for a, b in edges)
    return f"digraph G {{\nrankdir = LR;\nnode [shape=box];\n{lines}\n}}\n"
