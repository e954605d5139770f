"""Serves `import torch` from wick: after install(), torch and its submodules are wick's.

`torch` is a module of its own, so that its version can be PyTorch's; torch.nn and all below are the very modules of
wick.
"""

import importlib
import sys
from types import ModuleType

import wick

from ._names import _known, missing

TORCH_VERSION = "2.13.0"


class _Finder:
    """A finder for the import system's sys.meta_path that is also the loader of what it finds."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "multiprocessing.spawn":
            return _spec_of_spawn(name, path)
        if name != "torch" and not name.startswith("torch."):
            return None
        from importlib.machinery import ModuleSpec

        return ModuleSpec(name, _Finder, is_package=True)

    @staticmethod
    def create_module(spec):
        if spec.name == "torch":
            return _make_torch()
        ours = "wick" + spec.name.removeprefix("torch")
        try:
            module = importlib.import_module(ours)
        except ModuleNotFoundError as error:
            if error.name != ours:
                raise
            text = f"No module named {spec.name!r}"
            if spec.name in _known():
                text = f"{spec.name} exists in PyTorch 2.13 but wick does not have it yet"
            raise ModuleNotFoundError(text, name=spec.name) from None
        spec.loader_state = module.__spec__  # the import system writes its own over it
        return module

    @staticmethod
    def exec_module(module):
        if module.__name__ != "torch":
            module.__spec__ = module.__spec__.loader_state


def _make_torch():
    """The module `torch`: wick's attributes, looked up in wick when they are not there yet."""
    module = ModuleType("torch", wick.__doc__)
    module.__dict__.update((k, v) for k, v in vars(wick).items() if not k.startswith("__"))
    module.__version__ = TORCH_VERSION
    module.__file__ = wick.__file__
    module.__path__ = wick.__path__
    module.__dir__ = lambda: sorted({*vars(module), *dir(wick)})

    def __getattr__(name):
        try:
            value = getattr(wick, name)
        except AttributeError:
            raise missing("wick", name, shown="torch") from None
        setattr(module, name, value)
        if isinstance(value, ModuleType) and value.__name__.startswith("wick."):
            sys.modules.setdefault("torch" + value.__name__.removeprefix("wick"), value)
        return value

    module.__getattr__ = __getattr__
    return module


def _serve_spawned(spawn):
    """Changes multiprocessing.spawn so that the processes it starts serve torch from wick too."""
    original = spawn.get_command_line

    def get_command_line(**kwargs):
        line = original(**kwargs)
        if "-c" in line:
            code = line.index("-c") + 1
            line[code] = "from wick import _as_torch; _as_torch.install(); " + line[code]
        return line

    spawn.get_command_line = get_command_line


def _spec_of_spawn(name, path):
    """The spec of multiprocessing.spawn, which is changed when it is loaded."""
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec(name, path)
    if spec is None:
        return None
    execute = spec.loader.exec_module

    def exec_module(module):
        execute(module)
        _serve_spawned(module)

    spec.loader.exec_module = exec_module
    return spec


def install():
    """Makes `import torch` give wick from now on. Does nothing when it already does; refuses when PyTorch is loaded."""
    if _Finder in sys.meta_path:
        return
    if "torch" in sys.modules:
        raise ImportError("PyTorch is already imported in this process; wick cannot take its place")
    sys.meta_path.insert(0, _Finder)
    if "multiprocessing.spawn" in sys.modules:
        _serve_spawned(sys.modules["multiprocessing.spawn"])
