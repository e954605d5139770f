"""Serves `import triton` from wick.tiles, for programs that get torch from wick.

Only imports are answered: a library that asks whether Triton is installed (importlib.util.find_spec) is told what is. With
WICK_TRITON=installed an installed Triton stays what is imported.
"""

import importlib
import os
import sys
from importlib.machinery import ModuleSpec

_MODULES = {
    "triton": "wick.tiles",
    "triton.language": "wick.tiles.language",
    "triton.language.extra": None,
    "triton.language.extra.libdevice": None,
    "triton.language.extra.cuda": None,
    "triton.language.extra.cuda.libdevice": None,
    "triton.language.math": None,
    "triton.testing": "wick.tiles.testing",
    "triton.runtime": "wick.tiles.runtime",
    "triton.runtime.jit": "wick.tiles._jit",
    "triton.runtime.autotuner": "wick.tiles._autotune",
    "triton.runtime.driver": None,
    "triton.runtime.errors": "wick.tiles.errors",
    "triton.tools": "wick.tiles",
    "triton.tools.tensor_descriptor": "wick.tiles.tensor_descriptor",
    "triton.compiler": "wick.tiles.errors",
    "triton.compiler.errors": "wick.tiles.errors",
}


def _find(name):
    """The module or namespace that a name below triton is."""
    if _MODULES[name]:
        return importlib.import_module(_MODULES[name])
    parent, _, own = name.rpartition(".")
    return getattr(_find(parent), own)


def _is_imported():
    """Whether the finder is asked by an import."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_name == "_find_spec":
        frame = frame.f_back
    return frame is not None and frame.f_code.co_name == "_find_and_load_unlocked"


class Finder:
    """A finder and loader, as _as_torch has one."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name not in _MODULES or os.environ.get("WICK_TRITON") == "installed" or not _is_imported():
            return None
        return ModuleSpec(name, Finder, is_package=True)

    @staticmethod
    def create_module(spec):
        from types import ModuleType

        found = _find(spec.name)
        module = ModuleType(spec.name, found.__doc__)
        module.__dict__.update((k, v) for k, v in vars(found).items() if not k.startswith("__"))
        module.__getattr__ = lambda name: getattr(found, name)
        return module

    @staticmethod
    def exec_module(module):
        """The names are there; what is imported below it becomes an attribute as always."""


def install():
    if Finder not in sys.meta_path:
        sys.meta_path.insert(0, Finder)
