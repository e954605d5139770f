"""Tools around the core: data loading, checkpointing, hooks, saving."""

import importlib

_SUBMODULES = ("checkpoint", "data", "hooks")


def __getattr__(name):
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    from .._names import missing

    raise missing(__name__, name)
