"""torch.special: functions of mathematics under the names that SciPy has them by."""

from . import _C
from ._names import getter as _getter

__all__ = [
    "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "chebyshev_polynomial_t", "chebyshev_polynomial_u",
    "chebyshev_polynomial_v", "chebyshev_polynomial_w", "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "exp2",
    "expit", "expm1", "gammainc", "gammaincc", "gammaln", "hermite_polynomial_h", "hermite_polynomial_he", "i0", "i0e",
    "i1", "i1e", "laguerre_polynomial_l", "legendre_polynomial_p", "log1p", "log_ndtr", "log_softmax", "logit",
    "logsumexp", "modified_bessel_i0", "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1", "multigammaln",
    "ndtr", "ndtri", "polygamma", "psi", "round", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1",
    "shifted_chebyshev_polynomial_t", "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w", "sinc", "softmax", "spherical_bessel_j0", "xlog1py", "xlogy", "zeta",
]  # fmt: skip

airy_ai = _C.special_airy_ai
bessel_j0 = _C.special_bessel_j0
bessel_j1 = _C.special_bessel_j1
bessel_y0 = _C.special_bessel_y0
bessel_y1 = _C.special_bessel_y1
chebyshev_polynomial_t = _C.special_chebyshev_polynomial_t
chebyshev_polynomial_u = _C.special_chebyshev_polynomial_u
chebyshev_polynomial_v = _C.special_chebyshev_polynomial_v
chebyshev_polynomial_w = _C.special_chebyshev_polynomial_w
digamma = _C.digamma
entr = _C.special_entr
erf = _C.erf
erfc = _C.erfc
erfcx = _C.special_erfcx
erfinv = _C.erfinv
exp2 = _C.exp2
expit = _C.sigmoid
expm1 = _C.expm1
gammainc = _C.special_gammainc
gammaincc = _C.special_gammaincc
gammaln = _C.lgamma
hermite_polynomial_h = _C.special_hermite_polynomial_h
hermite_polynomial_he = _C.special_hermite_polynomial_he
i0 = _C.i0
i0e = _C.special_i0e
i1 = _C.special_i1
i1e = _C.special_i1e
laguerre_polynomial_l = _C.special_laguerre_polynomial_l
legendre_polynomial_p = _C.special_legendre_polynomial_p
log1p = _C.log1p
log_ndtr = _C.special_log_ndtr
log_softmax = _C.log_softmax
logit = _C.logit
logsumexp = _C.logsumexp
modified_bessel_i0 = _C.special_modified_bessel_i0
modified_bessel_i1 = _C.special_modified_bessel_i1
modified_bessel_k0 = _C.special_modified_bessel_k0
modified_bessel_k1 = _C.special_modified_bessel_k1
multigammaln = _C.special_multigammaln
ndtr = _C.special_ndtr
ndtri = _C.special_ndtri
polygamma = _C.polygamma
psi = _C.digamma
round = _C.round
scaled_modified_bessel_k0 = _C.special_scaled_modified_bessel_k0
scaled_modified_bessel_k1 = _C.special_scaled_modified_bessel_k1
shifted_chebyshev_polynomial_t = _C.special_shifted_chebyshev_polynomial_t
shifted_chebyshev_polynomial_u = _C.special_shifted_chebyshev_polynomial_u
shifted_chebyshev_polynomial_v = _C.special_shifted_chebyshev_polynomial_v
shifted_chebyshev_polynomial_w = _C.special_shifted_chebyshev_polynomial_w
sinc = _C.sinc
softmax = _C.softmax
spherical_bessel_j0 = _C.special_spherical_bessel_j0
xlog1py = _C.special_xlog1py
xlogy = _C.xlogy
zeta = _C.special_zeta

__getattr__ = _getter(__name__)
