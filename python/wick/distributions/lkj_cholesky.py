"""Lewandowski, Kurowicka and Joe's distribution of correlation matrices, by their lower factors.

Samples are made row by row ("onion" method of the paper, section 3.2): a row's squared length before the diagonal is a
beta variable, its direction is uniform. Tests: tests/parity/test_distributions_parity.py.
"""

import math

from .. import _C
from . import constraints
from .beta import Beta
from .distribution import Distribution, broadcast_all

__all__ = ["LKJCholesky"]


class LKJCholesky(Distribution):
    """Factors (dim, dim) of correlation matrices M, with a density proportional to det(M)^(concentration - 1).

    >>> LKJCholesky(3, 0.5).sample().shape
    torch.Size([3, 3])
    """

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(self, dim, concentration=1.0, validate_args=None):
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        options = {"dtype": self.concentration.dtype, "device": self.concentration.device}
        of_row = _C.cat([_C.zeros(1, **options), _C.arange(dim - 1, **options)])
        whole = self.concentration + 0.5 * (dim - 2)
        self._beta = Beta(of_row + 0.5, whole.unsqueeze(-1) - 0.5 * of_row)
        super().__init__(self.concentration.size(), (dim, dim), validate_args)

    def expand(self, batch_shape, _instance=None):
        new = self._get_checked_instance(LKJCholesky, _instance)
        batch_shape = _C.Size(batch_shape)
        new.dim, new.concentration = self.dim, self.concentration.expand(batch_shape)
        new._beta = self._beta.expand(batch_shape + (self.dim,))
        Distribution.__init__(new, batch_shape, self.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def sample(self, sample_shape=()):
        with _C.no_grad():
            squares = self._beta.sample(sample_shape).unsqueeze(-1)
            options = {"dtype": squares.dtype, "device": squares.device}
            normal = _C.randn(self._extended_shape(sample_shape), **options).tril(-1)
            directions = normal / normal.norm(dim=-1, keepdim=True)
            directions[..., 0, :] = 0.0
            rows = squares.sqrt() * directions
            rest = (1 - rows.pow(2).sum(-1)).clamp(min=_C.finfo(rows.dtype).tiny)
            return rows + _C.diag_embed(rest.sqrt())

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        diagonal = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        rows = _C.arange(2, self.dim + 1, device=self.concentration.device)
        powers = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - rows
        count = self.dim - 1
        alpha = self.concentration + 0.5 * count
        constant = 0.5 * count * math.log(math.pi) + _C.mvlgamma(alpha - 0.5, count) - count * _C.lgamma(alpha)
        return (powers * diagonal.log()).sum(-1) - constant
