"""Settings that PyTorch programs set. What has no meaning here is kept and ignored.

recompile_limit: segments a position, for compiled functions that are there and that will be. assume_static_by_default,
automatic_dynamic_shapes: what compile(dynamic=None) means, for functions that will be compiled: sizes are numbers until
they are seen to change; or symbols at once (the first is False); or numbers always (the second is False).
capture_dynamic_output_shape_ops, capture_scalar_outputs: of functions that will be compiled without fullgraph, sizes
that values decide (those of nonzero() and x[mask]) and integers (item(), tolist()) do not break the graph. hot_rounds, quiet_rounds: under `python -m wick --compile`, how many
rounds of a loop run before it is compiled, and how many without tensors before Python's own loop gets it.
"""

import contextlib
import sys
import types

from .. import compiler as _compiler

verbose = False
suppress_errors = False
assume_static_by_default = True
automatic_dynamic_shapes = True
capture_scalar_outputs = False
capture_dynamic_output_shape_ops = False
hot_rounds = 6
quiet_rounds = 16
accumulated_recompile_limit = 256
accumulated_cache_size_limit = 256


def patch_of(name):
    """The function patch() of a module of settings."""

    def patch(changes=None, **named):
        """A context manager, or decorator, in which settings have other values: patch(recompile_limit=1)."""
        return _patch(sys.modules[name], {**(changes or {}), **named})

    return patch


@contextlib.contextmanager
def _patch(module, changes):
    before = {name: getattr(module, name) for name in changes}
    try:
        for name, value in changes.items():
            setattr(module, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


patch = patch_of(__name__)


class _Settings(types.ModuleType):
    @property
    def recompile_limit(self):
        return _compiler.limit

    @recompile_limit.setter
    def recompile_limit(self, value):
        _compiler.set_limit(value)

    cache_size_limit = recompile_limit


sys.modules[__name__].__class__ = _Settings
