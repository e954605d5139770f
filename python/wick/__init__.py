"""wick: the PyTorch 2 compiler stack in C, with PyTorch's Python API. `import wick as torch` runs PyTorch programs."""

import importlib as _importlib

from . import _C
from ._C import *  # noqa: F403  operators, dtypes, grad modes: what the core lists in its __all__
from ._tensor import allclose, broadcast_shapes, equal, nonzero, norm  # noqa: F401  also gives Tensor its Python methods

__version__ = "0.1.0"

# Loaded when first used, so that `import wick` costs milliseconds.
_SUBMODULES = frozenset(
    (
        "nn",
        "optim",
        "utils",
        "autograd",
        "serialization",
        "cuda",
        "linalg",
        "safetensors",
        "storage",
        "overrides",
        "compiler",
        "_dynamo",
        "_decomp",
        "fx",
        "profiler",
        "return_types",
    )
)
_LAZY = {
    "save": "serialization",
    "load": "serialization",
    "compile": "compiler",
    "ops": "_ops",
    "SymInt": "_symint",
    "is_anomaly_enabled": "autograd.anomaly_mode",
    "is_anomaly_check_nan_enabled": "autograd.anomaly_mode",
}


def __getattr__(name):
    if name in _SUBMODULES:
        return _importlib.import_module(f"{__name__}.{name}")  # the import system puts it into this module
    if name in _LAZY:
        value = getattr(_importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
        globals()[name] = value
        return value
    if name.startswith("_") and not name.startswith("__") and hasattr(_C, name):
        return getattr(_C, name)
    from ._names import missing

    raise missing(__name__, name)


def __dir__():
    return sorted({*globals(), *_SUBMODULES, *_LAZY})
