"""Gradient clipping, and parameters as one vector."""

from .clip_grad import clip_grad_norm, clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm
from .convert_parameters import parameters_to_vector, vector_to_parameters

__all__ = [
    "clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm",
    "parameters_to_vector", "vector_to_parameters",
]  # fmt: skip


def __getattr__(name):
    if name == "rnn":
        from importlib import import_module

        return import_module(f"{__name__}.rnn")
    from ..._names import missing

    raise missing(__name__, name)
