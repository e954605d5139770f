"""Serves `import torch` from wick: after install(), torch and its submodules are wick's.

`torch` is a module of its own, whose own names are torch's; torch.nn and all below are the very modules of wick. What is
asked about torch without importing it (importlib.util.find_spec, importlib.metadata.version) is answered as well.
`import triton` gives wick.tiles then (tiles/_as_triton.py).
"""

import importlib
import sys
from types import ModuleType

import wick

from ._names import is_known, missing, not_yet


class _Finder:
    """A finder for the import system's sys.meta_path that is also the loader of what it finds."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in _CHANGED:
            return _changed_spec(name, path)
        if name != "torch" and not name.startswith("torch."):
            return None
        from importlib.machinery import ModuleSpec

        ours = _find_ours(name)
        if ours is None and not _is_imported():
            return None
        spec = ModuleSpec(name, _Finder, origin=ours and ours.origin)
        spec.submodule_search_locations = ours and ours.submodule_search_locations
        return spec

    @staticmethod
    def find_distributions(context):
        from ._distribution import find

        return find(context)

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
            if is_known(spec.name):
                text = not_yet(spec.name)
            raise ModuleNotFoundError(text, name=spec.name) from None
        spec.loader_state = module.__spec__  # the import system writes its own over it
        _serve_loaded()
        return module

    @staticmethod
    def exec_module(module):
        if module.__name__ != "torch":
            module.__spec__ = module.__spec__.loader_state

    @staticmethod
    def get_code(name):
        """The code of a module that is run by `python -m torch.utils.collect_env`."""
        ours = _find_ours(name)
        return ours.loader.get_code(ours.name)


def _find_ours(name):
    """The spec of wick's module in the place of torch's, None when there is none; imports its parents at most."""
    from importlib.util import find_spec

    try:
        return find_spec("wick" + name.removeprefix("torch"))
    except (ModuleNotFoundError, ValueError):  # a parent that is not there, or one that is no module
        return None


def _is_imported():
    """Whether the finder is asked by an import, which is to fail with a text that helps, and not by find_spec()."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_name == "_find_spec":
        frame = frame.f_back
    return frame is not None and frame.f_code.co_name == "_find_and_load_unlocked"


def _serve_loaded():
    """Gives wick's modules that are loaded their names below torch: what is found there is not imported again.

    An import puts the module into its parent, over whatever has its name there: autograd.gradcheck is a function.
    """
    for name, module in list(sys.modules.items()):
        if name.startswith("wick.") and name not in ("wick.__main__", "wick._as_torch") and module is not None:
            if "torch" + name.removeprefix("wick") not in sys.modules and not hasattr(module, "__path__"):
                module.__path__ = []  # so that what is missing below it is looked for, too
            sys.modules.setdefault("torch" + name.removeprefix("wick"), module)


def _make_torch():
    """The module `torch`: wick's attributes, looked up in wick when they are not there yet."""
    module = ModuleType("torch", wick.__doc__)
    module.__dict__.update((k, v) for k, v in vars(wick).items() if not k.startswith("__"))
    module.__version__ = wick.__version__
    module.__file__ = wick.__file__
    module.__path__ = wick.__path__
    module.torch = module  # as PyTorch has it, whose package imports itself
    module.__dir__ = lambda: sorted({*vars(module), *dir(wick)})

    def __getattr__(name):
        try:
            value = getattr(wick, name)
        except AttributeError:
            raise missing("wick", name, shown="torch") from None
        setattr(module, name, value)
        if isinstance(value, ModuleType) and value.__name__.startswith("wick."):
            _serve_loaded()
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


def _leave_out_library(utils):
    """Changes torchaudio._extension.utils: its compiled part needs PyTorch's own library. torchaudio takes it for not built
    then, and computes in Python what it has in Python."""
    utils._load_lib = lambda lib: False


# Modules of others that are changed when they are loaded.
_CHANGED = {"multiprocessing.spawn": _serve_spawned, "torchaudio._extension.utils": _leave_out_library}


def _changed_spec(name, path):
    """The spec of a module of _CHANGED."""
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec(name, path)
    if spec is None:
        return None
    execute = spec.loader.exec_module

    def exec_module(module):
        execute(module)
        _CHANGED[name](module)

    spec.loader.exec_module = exec_module
    return spec


def install():
    """Makes `import torch` give wick from now on. Does nothing when it already does; refuses when PyTorch is loaded."""
    if _Finder in sys.meta_path:
        return
    if "torch" in sys.modules:
        raise ImportError("PyTorch is already imported in this process; wick cannot take its place")
    _install()


def _install():
    from .tiles._as_triton import install as install_triton

    sys.meta_path.insert(0, _Finder)
    wick.Tensor.__module__ = "torch"  # by which other libraries tell whose tensors they were given
    install_triton()
    if "multiprocessing.spawn" in sys.modules:
        _serve_spawned(sys.modules["multiprocessing.spawn"])


def stand_in():
    """What the package of the stand-in distribution does when it is imported as `torch`: wick's module takes its place."""
    if _Finder not in sys.meta_path:
        _install()
    del sys.modules["torch"]
    importlib.import_module("torch")
