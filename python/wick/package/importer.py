"""Where objects and modules of a package come from: this process, packages that were loaded, or several in order."""

import abc
import importlib
import pickle
import re

__all__ = ["Importer", "ObjMismatchError", "ObjNotFoundError", "OrderedImporter", "is_from_package", "sys_importer"]

_MANGLED = re.compile(r"<torch_package_\d+>\.?")


class ObjNotFoundError(Exception):
    """No importer has the object by its name."""


class ObjMismatchError(Exception):
    """An importer has another object by the name."""


def is_mangled(name):
    """Whether a module's name is that of a package's: "<torch_package_0>.models"."""
    return bool(_MANGLED.match(name))


def demangled(name):
    """The name that it has in its package."""
    return _MANGLED.sub("", name, count=1)


def is_from_package(obj):
    """Whether it was made by code of a package."""
    return is_mangled(
        getattr(obj, "__name__", "") if type(obj) is type(abc) else getattr(type(obj), "__module__", "") or ""
    ) or (isinstance(obj, type) and is_mangled(obj.__module__))


class Importer(abc.ABC):
    """Gives modules by name, and the names of objects."""

    modules = {}

    @abc.abstractmethod
    def import_module(self, module_name):
        """The module."""

    def whichmodule(self, obj, name):
        """The name of the module that a function or class is from."""
        return getattr(obj, "__module__", None) or pickle.whichmodule(obj, name)

    def get_name(self, obj, name=None):
        """(module, name) by which this importer gives the object."""
        if name is None:
            name = getattr(obj, "__qualname__", None) or obj.__name__
        module_name = self.whichmodule(obj, name)
        plain = demangled(module_name)
        try:
            found = self.import_module(plain)
            for part in name.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError) as error:
            raise ObjNotFoundError(f"{obj} was not found as {plain}.{name}") from error
        if found is not obj:
            raise ObjMismatchError(
                f"The object being saved, {obj}, from module '{module_name}' is not the same object as "
                f"'{plain}.{name}' of {self}"
            )
        return plain, name


class _SysImporter(Importer):
    """This process; torch is wick."""

    def import_module(self, module_name):
        if module_name.partition(".")[0] == "torch":
            module_name = "wick" + module_name.removeprefix("torch")
        return importlib.import_module(module_name)

    def __repr__(self):
        return "sys_importer"


sys_importer = _SysImporter()


class OrderedImporter(Importer):
    """Several importers; the first that has it counts."""

    def __init__(self, *args):
        self._importers = list(args)

    def import_module(self, module_name):
        last = None
        for importer in self._importers:
            if not isinstance(importer, Importer):
                raise TypeError(
                    f"{importer} is not a Importer. All importers in OrderedImporter must inherit from Importer."
                )
            try:
                return importer.import_module(module_name)
            except ModuleNotFoundError as error:
                last = error
        raise last or ModuleNotFoundError(module_name)

    def get_name(self, obj, name=None):
        for importer in self._importers:
            try:
                return importer.get_name(obj, name)
            except (ObjNotFoundError, ObjMismatchError) as error:
                last = error
        raise last

    def get_source(self, module_name):
        """A module's source from the first package that has it; None: none has."""
        for importer in self._importers:
            if hasattr(importer, "has_source") and importer.has_source(module_name):
                return importer.get_source(module_name)
            if importer is sys_importer:
                return None
        return None

    def __repr__(self):
        return f"OrderedImporter({self._importers})"
