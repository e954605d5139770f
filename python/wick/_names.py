"""The errors for names that are not there: they say whether PyTorch has them."""

import os
import sys

_names = None


def _known():
    """{"torch.nn": {"Linear", ...}, ...}: PyTorch's public names, from a line per module in _torch_names.txt."""
    global _names
    if _names is None:
        path = os.path.join(os.path.dirname(__file__), "_torch_names.txt")
        try:
            with open(path, encoding="ascii") as file:
                _names = {module: set(names) for module, *names in (line.split() for line in file) if names}
        except OSError:
            _names = {}
    return _names


def is_known(path):
    """Whether PyTorch has it: "torch.nn", "torch.nn.Linear", "torch.Tensor.add"."""
    owner, _, name = path.rpartition(".")
    return path in _known() or name in _known().get(owner, ())


def not_yet(path):
    """What is said of a name that only PyTorch has."""
    return f"{path} exists in PyTorch 2.13 but wick does not have it yet"


def _is_from_import(frame):
    """Whether the frame is at `from module import name`."""
    from dis import opmap

    code, at = frame.f_code.co_code, frame.f_lasti
    return 0 <= at < len(code) and code[at] == opmap["IMPORT_FROM"]


def missing(module, name, shown=None):
    """The error for `module.name`, where `module` is a wick module; `shown` is its name in a plain message.

    An AttributeError; for `from module import name`, where Python would drop its text, an ImportError.
    """
    as_torch = "torch" + module.removeprefix("wick")
    if not is_known(f"{as_torch}.{name}"):
        return AttributeError(f"module '{shown or module}' has no attribute '{name}'")
    text = not_yet(f"{as_torch}.{name}")
    frame = sys._getframe(1)
    while frame.f_code.co_name == "__getattr__":  # the module's, and one that it asks in turn
        frame = frame.f_back
    if _is_from_import(frame):
        return ImportError(text, name=as_torch)
    return AttributeError(
        text, obj=module
    )  # which is not the object: Python would look there for a name that is like it


def getter(module):
    """A module's __getattr__, for modules that load nothing late: __getattr__ = getter(__name__)."""

    def __getattr__(name):
        raise missing(module, name)

    return __getattr__


# ---- methods ----


class _NotYet:
    """Stands in Tensor for a method that only PyTorch has: reading it is an AttributeError that says so."""

    __slots__ = ("_path",)

    def __init__(self, path):
        self._path = path

    def __get__(self, instance, owner=None):
        raise AttributeError(not_yet(self._path), obj=self._path)


def not_yet_methods():
    """The names of PyTorch's Tensor that wick's has not."""
    from ._C import Tensor

    return {name for name in _known().get("torch.Tensor", ()) if not hasattr(Tensor, name)}


def mark_missing_methods(tensor_type):
    """Puts a _NotYet into the type for each method of PyTorch's Tensor that it lacks.

    No __getattr__ and no tp_getattro: those would slow every attribute of every tensor.
    """
    for name in _known().get("torch.Tensor", ()):
        if not hasattr(tensor_type, name):
            setattr(tensor_type, name, _NotYet(f"torch.Tensor.{name}"))


def without_missing(tensor_type, names):
    """Those of the names that are really there."""
    missing_names = {name for name, value in vars(tensor_type).items() if isinstance(value, _NotYet)}
    return sorted(set(names) - missing_names)


# ---- packages that load their parts late ----


def files_of(names):
    """{"file": "A B"} as {"A": "file", "B": "file"}, for late()."""
    return {name: file for file, listed in names.items() for name in listed.split()}


def late(package, submodules=(), names=None, beside=None):
    """A package's __getattr__ that imports submodules, and takes `names` {name: submodule}, when they are first used.

    The submodules are those of `beside`, another package, where that is given. Those of its own that names come from
    are attributes, too, as they are once such a name has been used."""
    names, home = names or {}, beside or package
    submodules = {*submodules, *names.values()} if home == package else submodules

    def __getattr__(name):
        from importlib import import_module

        if name in names:
            value = getattr(import_module(f"{home}.{names[name]}"), name)
            sys.modules[package].__dict__[name] = value
            return value
        if name in submodules:
            try:
                return import_module(f"{home}.{name}")
            except ModuleNotFoundError as error:
                if error.name != f"{home}.{name}":
                    raise
        raise missing(package, name)

    return __getattr__


# ---- names that are there so that programs can be imported, and cannot work ----


def cannot(path, why):
    """A function that says why `path` cannot be called."""

    def refuse(*args, **kwargs):
        raise NotImplementedError(f"{path} is not available: {why}")

    refuse.__name__ = path.rpartition(".")[2]
    refuse.__qualname__ = refuse.__name__
    return refuse


def cannot_be_made(path, why, bases=()):
    """A class for isinstance() and annotations whose instances cannot be made."""

    def __new__(cls, *args, **kwargs):
        raise NotImplementedError(f"{path} is not available: {why}")

    owner, _, name = path.rpartition(".")
    return type(name, tuple(bases), {"__new__": __new__, "__module__": owner, "__doc__": f"Cannot be made: {why}."})
