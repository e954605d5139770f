"""torch.special: functions of mathematics under the names that SciPy has them by."""

import math

from . import _C
from ._names import getter as _getter

__all__ = [
    "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "exp2", "expit", "expm1", "gammaln", "log1p", "log_ndtr",
    "log_softmax", "logit", "logsumexp", "multigammaln", "ndtr", "ndtri", "polygamma", "psi", "round", "sinc", "softmax",
    "xlog1py", "xlogy",
]  # fmt: skip

erf, erfc, erfinv, exp2, expm1, log1p, logit, logsumexp, polygamma, round, sinc, xlogy = (
    _C.erf, _C.erfc, _C.erfinv, _C.exp2, _C.expm1, _C.log1p, _C.logit, _C.logsumexp, _C.polygamma, _C.round, _C.sinc,
    _C.xlogy,
)  # fmt: skip
softmax, log_softmax = _C.softmax, _C.log_softmax
digamma = psi = _C.digamma
expit, gammaln = _C.sigmoid, _C.lgamma


def _written(result, out):
    return result if out is None else _C.add(result, 0, out=out)


def _float(x):
    return x if x.is_floating_point() else x.to(_C.get_default_dtype())


def entr(input, *, out=None):
    """-x log x; 0 at 0, minus infinity below."""
    x = _float(input)
    return _written(_C.where(x < 0, -math.inf, -_C.xlogy(x, x)), out)


def ndtr(input, *, out=None):
    """The part of the standard normal distribution below x."""
    x = _float(input)
    return _written(_C.where(x < 0, _C.erfc(-x * math.sqrt(0.5)), 2 - _C.erfc(x * math.sqrt(0.5))) / 2, out)


def ndtri(input, *, out=None):
    """The value below which this part of the standard normal distribution lies."""
    return _written(math.sqrt(2) * _C.erfinv(2 * _float(input) - 1), out)


def log_ndtr(input, *, out=None):
    """log(ndtr(x)), also far below 0."""
    x = _float(input)
    t = x * math.sqrt(0.5)
    low = (erfcx(-t.clamp_max(0)) / 2).log() - t * t
    return _written(_C.where(x < -1, low, _C.log1p(-_C.erfc(t.clamp_min(-1)) / 2)), out)


def erfcx(input, *, out=None):
    """e^(x^2) erfc(x), by its continued fraction where erfc is small."""
    x = _float(input)
    far, below = x.clamp_min(2), x.clamp_min(2)
    for k in range(40, 0, -1):
        below = far + (k / 2) / below
    near = (x.clamp_max(2) ** 2).exp() * _C.erfc(x.clamp_max(2))
    return _written(_C.where(x > 2, 1 / (math.sqrt(math.pi) * below), near), out)


def xlog1py(input, other, *, out=None):
    """x log(1 + y); 0 where x is 0."""
    product = input * _C.log1p(other)
    zero = (input == 0) & (other == other)
    return _written(_C.where(zero, 0.0, product) if isinstance(zero, _C.Tensor) else product, out)


def multigammaln(input, p, *, out=None):
    """torch.mvlgamma"""
    from .functional import mvlgamma

    return _written(mvlgamma(input, p), out)


__getattr__ = _getter(__name__)
