"""Wishart's distribution: its name, which libraries import."""

from .._names import cannot_be_made
from .distribution import ExponentialFamily

__all__ = ["Wishart"]

Wishart = cannot_be_made(
    "torch.distributions.Wishart", "wick has no factors of matrices for it yet", (ExponentialFamily,)
)
