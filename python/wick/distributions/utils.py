"""torch.distributions.utils: functions that distributions are written with."""

from .._names import getter as _getter
from .distribution import broadcast_all, lazy_property, logits_to_probs, probs_to_logits  # noqa: F401
from .distribution import sum_rightmost as _sum_rightmost  # noqa: F401


def _standard_normal(shape, dtype, device):
    """Numbers of the normal distribution with mean 0 and deviation 1."""
    from .. import _C

    return _C.empty(shape, dtype=dtype, device=device).normal_()


def clamp_probs(probs):
    """Probabilities away from 0 and 1."""
    from .. import _C

    eps = _C.finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


__getattr__ = _getter(__name__)
