"""PackageImporter: the modules and files of a package. Its modules are apart from the process's and from other packages'.

A module of the package is executed from its source the first time that it is imported, with an __import__ that looks here
first; modules that the package was told to expect outside come from the process. Tests: tests/python/test_package.py.
"""

import builtins
import importlib
import io
import itertools
import linecache
import os
import pickle
import types

from ..serialization import _find_trusted, _Storages
from ..serialization.archive import FileSource, Reader
from ..serialization.trusted import make
from .file_structure_representation import tree_of
from .importer import Importer, sys_importer

_numbers = itertools.count()


class _PackageStorages(_Storages):
    """Storages of all pickles of a package; PyTorch numbers them by integers."""

    def load(self, key):
        return super().load((*key[:2], str(key[2]), *key[3:]))

    def _placed(self, record, size, location):
        return super()._placed(f".data/{record.removeprefix('data/')}.storage", size, location)


class PackageImporter(Importer):
    """Opens a package from a path or a file object. Its code runs when it is loaded: open only what you trust.

    module_allowed: which modules that the package expects outside may be imported.
    """

    def __init__(self, file_or_buffer, module_allowed=lambda name: True):
        self.filename = "<binary>"
        if isinstance(file_or_buffer, (str, os.PathLike)):
            self.filename = os.fspath(file_or_buffer)
            if not os.path.isfile(self.filename):
                raise RuntimeError(
                    f"open file failed because of errno 2 on fopen: No such file or directory, file path: {self.filename}"
                )
            with open(self.filename, "rb") as file:
                file_or_buffer = io.BytesIO(file.read())
        file_or_buffer.tell()
        if not hasattr(file_or_buffer, "readinto"):
            file_or_buffer = io.BytesIO(file_or_buffer.read())
        self._archive = Reader(FileSource(file_or_buffer), has_data=False)
        self._id = f"<torch_package_{next(_numbers)}>"
        names = set(self._archive.names())
        self._sources = {  # module -> (record, is a package)
            name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): (name, name.endswith("/__init__.py"))
            for name in names if name.endswith(".py")
        }  # fmt: skip
        self._folders = {
            ".".join(parts[:i]) for parts in (n.split("/")[:-1] for n in names) for i in range(1, len(parts) + 1)
        }
        self.extern_modules = self._lines(".data/extern_modules")
        for name in self.extern_modules:
            if not module_allowed(name):
                raise ImportError(
                    f"package '{self.filename}' needs the external module '{name}' but that module has been disallowed"
                )
        self.modules, self._storages = {}, {}
        self._builtins = {**vars(builtins), "__import__": self.__import__}

    def _lines(self, name):
        return bytes(self._archive.get(name)).decode().split() if name in self._archive else []

    # ---- modules ----

    def id(self):
        """The name in front of its modules' names."""
        return self._id

    def _is_extern(self, name):
        top = name.partition(".")[0]
        if top in ("torch", "wick"):
            return name == "torch.package" or any(e.partition(".")[0] == "torch" for e in self.extern_modules)
        return any(name == e or name.startswith(e + ".") or e.startswith(name + ".") for e in self.extern_modules)

    def import_module(self, name, package=None):
        """The module of the package, or one that it expects outside."""
        name = importlib.util.resolve_name(name, package) if package else name
        if name in self.modules:
            return self.modules[name]
        parent, _, child = name.rpartition(".")
        if name in self._sources or name in self._folders and not name.startswith(".data"):
            if parent:
                self.import_module(parent)
                if name in self.modules:
                    return self.modules[name]
            module = self._executed(name)
            if parent:
                setattr(self.modules[parent], child, module)
            return module
        if self._is_extern(name):
            module = self.modules[name] = sys_importer.import_module(name)
            if getattr(self.modules.get(parent), "__torch_package__", False):
                setattr(self.modules[parent], child, module)
            return module
        raise ModuleNotFoundError(
            f'No module named "{name}" in self-contained archive "{self.filename}" and the module is also not in the list of '
            f"allowed external modules: {self.extern_modules}",
            name=name,
        )

    def _executed(self, name):
        record, is_package = self._sources.get(name, (None, True))
        module = types.ModuleType(f"{self._id}.{name}")
        module.__dict__.update(__torch_package__=True, __builtins__=self._builtins, __loader__=self, __file__=None)
        module.__package__ = module.__name__ if is_package else module.__name__.rpartition(".")[0]
        if is_package:
            module.__path__ = []
        self.modules[name] = module
        if record is None:
            return module
        module.__file__ = f"{self._id}.{record}"
        source = self.get_source(name)
        linecache.cache[module.__file__] = len(source), None, source.splitlines(True), module.__file__
        try:
            exec(compile(source, module.__file__, "exec", dont_inherit=True), module.__dict__)
        except BaseException:
            del self.modules[name]
            raise
        return module

    def __import__(self, name, globals=None, locals=None, fromlist=(), level=0):
        package = (globals or {}).get("__package__") or ""
        absolute = importlib.util.resolve_name("." * level + name, package) if level else name
        own = absolute.removeprefix(self._id + ".")
        module = self.import_module(own)
        if not fromlist:
            return module if level else self.import_module(own.partition(".")[0])
        for item in fromlist:
            if item != "*" and not hasattr(module, item):
                try:
                    self.import_module(f"{own}.{item}")
                except ModuleNotFoundError:
                    pass  # IMPORT_FROM says what is missing
        return module

    # ---- sources and files ----

    def has_source(self, module_name):
        """Whether the package has the module's source."""
        return module_name in self._sources

    def is_package(self, module_name):
        """Whether a module of the package may have submodules."""
        return self._sources[module_name][1]

    def get_source(self, module_name):
        """A module's source; "" of a folder without one."""
        name = module_name.removeprefix(self._id + ".")
        return bytes(self._archive.get(self._sources[name][0])).decode() if name in self._sources else ""

    def _record(self, package, resource):
        self.import_module(package)
        return f"{package.replace('.', '/')}/{resource}"

    def load_binary(self, package, resource):
        """The bytes of a file."""
        return bytes(self._archive.get(self._record(package, resource)))

    def load_text(self, package, resource, encoding="utf-8", errors="strict"):
        """The text of a file."""
        return self.load_binary(package, resource).decode(encoding, errors)

    def load_pickle(self, package, resource, map_location=None):
        """The object of save_pickle."""
        data = self._archive.get(self._record(package, resource))
        key = map_location if isinstance(map_location, (str, type(None))) else None
        storages = self._storages.get(key) or _PackageStorages(self._archive, map_location, False)
        if key == map_location:
            self._storages[key] = storages  # pickles share their tensors' memory
        return make(io.BytesIO(data), self._global, storages.load, pickle).load()

    def _global(self, module, name):
        known = _find_trusted(module, name)
        if known is not None:
            return known
        found = self.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        return found

    def get_resource_reader(self, fullname):
        """Reads files beside a module: open_resource(name), contents()."""
        return _Resources(self, fullname)

    def file_structure(self, *, include="**", exclude=()):
        """The files as a Directory, which prints as a tree."""
        return tree_of(self.filename, self._archive.names(), include, exclude)

    def python_version(self):
        """The version of Python that wrote it; None where it does not say."""
        name = ".data/python_version"
        return bytes(self._archive.get(name)).decode().strip() if name in self._archive else None

    def __repr__(self):
        return f"PackageImporter({self.filename!r})"


class _Resources:
    def __init__(self, importer, package):
        self.importer, self.package = importer, package

    def open_resource(self, resource):
        return io.BytesIO(self.importer.load_binary(self.package, resource))

    def is_resource(self, name):
        return f"{self.package.replace('.', '/')}/{name}" in self.importer._archive

    def contents(self):
        folder = self.package.replace(".", "/") + "/"
        names = (n.removeprefix(folder) for n in self.importer._archive.names() if n.startswith(folder))
        return iter({n.partition("/")[0] for n in names})
