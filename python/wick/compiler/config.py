"""Settings of the whole compiler under PyTorch's names: those of torch._dynamo.config that concern more than capture.

torch.compiler.config.recompile_limit = 16
"""

import sys
import types

from .._dynamo import config as _dynamo

# Settings of torch._dynamo.config, where they are read and set.
_SHARED = (
    "accumulated_recompile_limit", "assume_static_by_default", "automatic_dynamic_shapes",
    "capture_dynamic_output_shape_ops", "capture_scalar_outputs", "recompile_limit", "verbose",
)  # fmt: skip
__all__ = [
    "allow_unspec_int_on_nn_module", "cache_key_tag", "dynamic_shapes", "dynamic_sources",
    "enable_cpp_symbolic_shape_guards", "fail_on_recompile_limit_hit", "force_disable_caches", "job_id", "log_file_name",
    "reorderable_logging_functions", "skip_tensor_guards_with_matching_dict_tags", "wrap_top_frame", *_SHARED,
]  # fmt: skip

# Without a meaning here: kept and ignored.
job_id = log_file_name = None
cache_key_tag = dynamic_sources = ""
force_disable_caches = fail_on_recompile_limit_hit = allow_unspec_int_on_nn_module = wrap_top_frame = False
skip_tensor_guards_with_matching_dict_tags = False
dynamic_shapes = enable_cpp_symbolic_shape_guards = True
reorderable_logging_functions = set()
patch = _dynamo.patch_of(__name__)


class _Settings(types.ModuleType):
    def __getattr__(self, name):
        if name in _SHARED:
            return getattr(_dynamo, name)
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")

    def __setattr__(self, name, value):
        if name in _SHARED:
            setattr(_dynamo, name, value)
        else:
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Settings
