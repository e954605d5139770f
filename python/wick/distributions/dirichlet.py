"""The distribution Dirichlet, under the name that programs import it by."""

from ._continuous import Dirichlet

__all__ = ["Dirichlet"]


def _sample_dirichlet(concentration):
    """torch._sample_dirichlet: shares of a whole along the last dim."""
    return Dirichlet(concentration, validate_args=False).sample()
