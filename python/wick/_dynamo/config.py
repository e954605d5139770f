"""Settings that PyTorch programs set. What has no meaning here is kept and ignored."""

from .. import compiler as _compiler

verbose = False
suppress_errors = False
assume_static_by_default = True
automatic_dynamic_shapes = True
capture_scalar_outputs = False


def __getattr__(name):
    if name in ("cache_size_limit", "recompile_limit", "accumulated_cache_size_limit"):
        return _compiler.limit
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
