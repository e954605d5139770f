"""Settings that PyTorch programs set. What has no meaning here is kept and ignored.

recompile_limit: segments a position, for compiled functions that are there and that will be. assume_static_by_default,
automatic_dynamic_shapes: what compile(dynamic=None) means, for functions that will be compiled: sizes are numbers until
they are seen to change; or symbols at once (the first is False); or numbers always (the second is False).
capture_dynamic_output_shape_ops, capture_scalar_outputs: of functions that will be compiled without fullgraph, sizes
that values decide (those of nonzero() and x[mask]) and integers (item(), tolist()) do not break the graph. suppress_errors:
where a backend raises the graph runs as it is. error_on_recompile: where something would be captured again is an
exc.RecompileError. hot_rounds, quiet_rounds: under `python -m wick --compile`, how many
rounds of a loop run before it is compiled, and how many without tensors before Python's own loop gets it.
"""

import contextlib
import sys
import types

from .. import _C
from .. import compiler as _compiler

verbose = False
suppress_errors = False
error_on_recompile = False
assume_static_by_default = True
automatic_dynamic_shapes = True
capture_scalar_outputs = False
capture_dynamic_output_shape_ops = False
hot_rounds = 6
quiet_rounds = 16
accumulated_recompile_limit = 256
accumulated_cache_size_limit = 256

# Without a meaning here: kept and ignored.
allow_empty_graphs = allow_rnn = allow_unspec_int_on_nn_module = compiled_autograd = disable = False
do_not_emit_runtime_asserts = fail_on_cache_limit_hit = fail_on_recompile_limit_hit = install_free_tensors = False
nested_graph_breaks = prefer_deferred_runtime_asserts_over_guards = replay_record_enabled = trace_autograd_ops = False
skip_guards_on_constant_func_defaults = specialize_float = specialize_int = use_graph_deduplication = False
use_numpy_random_stream = verify_correctness = wrap_top_frame = False
capture_autograd_function = capture_func_transforms = capture_sparse_compute = dynamic_shapes = True
enable_cpp_guard_manager = enable_faithful_generator_behavior = enable_trace_contextlib = True
force_nn_module_property_static_shapes = force_parameter_static_shapes = guard_nn_modules = True
inline_inbuilt_nn_modules = log_compilation_metrics = optimize_ddp = raise_on_ctx_manager_usage = True
replay_side_effects = report_guard_failures = rewrite_assert_with_torch_assert = skip_fsdp_guards = True
skip_nnmodule_hook_guards = skip_torchrec = trace_numpy = True
enable_cpp_symbolic_shape_guards = capture_profiler_record_function = False
automatic_dynamic_shapes_mark_as, side_effect_replay_policy = "dynamic", "info"
log_file_name = repro_after = None
repro_level, minimum_call_count = 2, 1
traceable_tensor_subclasses, nontraceable_tensor_subclasses = set(), set()
ignore_logger_methods, ignore_logging_functions, reorderable_logging_functions = set(), set(), set()


def patch_of(name):
    """The function patch() of a module of settings."""

    def patch(changes=None, value=None, **named):
        """A context manager, or decorator, in which settings have other values: patch(recompile_limit=1)."""
        changes = {changes: value} if isinstance(changes, str) else changes or {}
        return _patch(sys.modules[name], {**changes, **named})

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


def _tell_recompile_error(wanted):
    from .exc import RecompileError

    _C._set_recompile_error(RecompileError if wanted else None)


class _Settings(types.ModuleType):
    """Settings that somebody has to be told of; both names of the limit are one."""

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if name in ("recompile_limit", "cache_size_limit"):
            super().__setattr__("recompile_limit", value)
            super().__setattr__("cache_size_limit", value)
            _compiler.set_limit(value)
        elif name == "error_on_recompile":
            _tell_recompile_error(value)


recompile_limit = cache_size_limit = _compiler.limit
sys.modules[__name__].__class__ = _Settings
