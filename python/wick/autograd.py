"""Automatic differentiation: gradients of graphs, functions with a backward of their own, grad modes."""

from . import _C

_NAMES = (
    "Function", "backward", "detect_anomaly", "enable_grad", "grad", "gradcheck", "gradgradcheck", "inference_mode",
    "no_grad", "set_detect_anomaly", "set_grad_enabled", "set_multithreading_enabled",
)  # fmt: skip
globals().update({name: getattr(_C, name) for name in _NAMES if hasattr(_C, name)})
Variable = _C.Tensor


def __getattr__(name):
    from ._names import missing

    raise missing(__name__, name)
