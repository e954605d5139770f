"""Gradient clipping, parameters as one vector, weights by length and direction."""

from ..._names import late as _late
from .clip_grad import clip_grad_norm, clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm
from .convert_parameters import parameters_to_vector, vector_to_parameters

# Not late: the functions have the names of their modules, and come behind these.
from .spectral_norm import remove_spectral_norm, spectral_norm
from .weight_norm import remove_weight_norm, weight_norm

__all__ = [
    "clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm",
    "parameters_to_vector", "remove_spectral_norm", "remove_weight_norm", "spectral_norm", "vector_to_parameters",
    "weight_norm",
]  # fmt: skip

_FUNCTIONS = dict.fromkeys(
    ("fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"), "fusion"
)
__getattr__ = _late(__name__, ("fusion", "parametrizations", "parametrize", "prune", "rnn", "stateless"), _FUNCTIONS)
