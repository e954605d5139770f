"""The normal distribution of vectors. Tests: tests/parity/test_distributions_parity.py."""

import math

from .. import _C
from .._tensor import broadcast_shapes
from . import constraints
from .distribution import Distribution, lazy_property
from .kl import register_kl
from .utils import _standard_normal

__all__ = ["MultivariateNormal"]


def _factor_of_inverse(precision):
    """The lower factor L, L L^T = P^-1: P is factored from its end on."""
    from ..linalg import cholesky, solve_triangular

    of_inverse = cholesky(precision.flip(-2, -1)).flip(-2, -1).mT
    identity = _C.eye(precision.shape[-1], dtype=precision.dtype, device=precision.device)
    return solve_triangular(of_inverse, identity, upper=False)


def _square_distance(factor, difference):
    """|L^-1 d|^2 for factors (..., n, n) and differences (..., n)."""
    from ..linalg import solve_triangular

    return solve_triangular(factor, difference.unsqueeze(-1), upper=False).squeeze(-1).pow(2).sum(-1)


def _half_log_det(factor):
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


class MultivariateNormal(Distribution):
    """Vectors (..., n) with a mean and a covariance, which is given by itself, by its inverse or by its lower factor.

    >>> MultivariateNormal(wick.zeros(2), wick.eye(2)).log_prob(wick.zeros(2))
    tensor(-1.8379)
    """

    arg_constraints = {
        "loc": constraints.real_vector, "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite, "scale_tril": constraints.lower_cholesky,
    }  # fmt: skip
    support, has_rsample = constraints.real_vector, True

    def __init__(self, loc, covariance_matrix=None, precision_matrix=None, scale_tril=None, validate_args=None):
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        given = {"scale_tril": scale_tril, "covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix}
        given = {name: matrix for name, matrix in given.items() if matrix is not None}
        if len(given) != 1:
            raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        ((name, matrix),) = given.items()
        if matrix.dim() < 2:
            shown = name if name != "scale_tril" else "scale_tril matrix"
            raise ValueError(f"{shown} must be at least two-dimensional, with optional leading batch dimensions")
        batch = broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        setattr(self, name, matrix.expand(batch + matrix.shape[-2:]))
        self.loc = loc.expand(batch + loc.shape[-1:])
        super().__init__(batch, self.loc.shape[-1:], validate_args=validate_args)
        self._unbroadcasted_scale_tril = self._factor(name, matrix)

    @staticmethod
    def _factor(name, matrix):
        from ..linalg import cholesky

        if name == "scale_tril":
            return matrix
        return cholesky(matrix) if name == "covariance_matrix" else _factor_of_inverse(matrix)

    def expand(self, batch_shape, _instance=None):
        new = self._get_checked_instance(MultivariateNormal, _instance)
        batch_shape = _C.Size(batch_shape)
        new.loc = self.loc.expand(batch_shape + self.event_shape)
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril
        for name in ("covariance_matrix", "scale_tril", "precision_matrix"):
            if name in self.__dict__:
                setattr(new, name, getattr(self, name).expand(batch_shape + self.event_shape + self.event_shape))
        Distribution.__init__(new, batch_shape, self.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def _whole(self, matrix):
        return matrix.expand(self._batch_shape + self._event_shape + self._event_shape)

    @lazy_property
    def scale_tril(self):
        """The lower factor of the covariance."""
        return self._whole(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self):
        """The covariance."""
        factor = self._unbroadcasted_scale_tril
        return self._whole(factor @ factor.mT)

    @lazy_property
    def precision_matrix(self):
        """The covariance's inverse."""
        from ..functions.linear_algebra import cholesky_inverse

        return self._whole(cholesky_inverse(self._unbroadcasted_scale_tril))

    mean = property(lambda self: self.loc)
    mode = property(lambda self: self.loc)

    @property
    def variance(self):
        of_all = self._unbroadcasted_scale_tril.pow(2).sum(-1)
        return of_all.expand(self._batch_shape + self._event_shape)

    def rsample(self, sample_shape=()):
        noise = _standard_normal(self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + _C.matmul(self._unbroadcasted_scale_tril, noise.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        factor = self._unbroadcasted_scale_tril
        distance = _square_distance(factor, value - self.loc)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + distance) - _half_log_det(factor)

    def entropy(self):
        half = 0.5 * self._event_shape[0] * (1.0 + math.log(2 * math.pi))
        return (half + _half_log_det(self._unbroadcasted_scale_tril)).expand(self._batch_shape)


@register_kl(MultivariateNormal, MultivariateNormal)
def _divergence(p, q):
    from ..linalg import solve_triangular

    if p.event_shape != q.event_shape:
        raise ValueError(
            "KL-divergence between two Multivariate Normals with different event shapes cannot be computed"
        )
    a, b = p._unbroadcasted_scale_tril, q._unbroadcasted_scale_tril
    traces = solve_triangular(b, a.expand(broadcast_shapes(a.shape, b.shape)), upper=False).pow(2).sum((-2, -1))
    distances = _square_distance(b, q.loc - p.loc)
    return _half_log_det(b) - _half_log_det(a) + 0.5 * (traces + distances - p.event_shape[0])
