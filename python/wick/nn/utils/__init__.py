"""Gradient clipping, and parameters as one vector."""

from ..._names import late as _late
from .clip_grad import clip_grad_norm, clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm
from .convert_parameters import parameters_to_vector, vector_to_parameters

__all__ = [
    "clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm",
    "parameters_to_vector", "vector_to_parameters",
]  # fmt: skip


_FUNCTIONS = {
    **dict.fromkeys(("fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"), "fusion"),
    "remove_weight_norm": "weight_norm", "remove_spectral_norm": "spectral_norm",
}  # fmt: skip
_late_names = _late(__name__, ("fusion", "parametrizations", "parametrize", "prune", "rnn", "stateless"), _FUNCTIONS)


def __getattr__(name):
    if name in ("weight_norm", "spectral_norm"):  # functions, in modules of the same name
        from importlib import import_module

        globals()[name] = found = getattr(import_module(f"{__name__}.{name}"), name)
        return found
    return _late_names(name)
