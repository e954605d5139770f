"""The distribution Dirichlet, under the name that programs import it by."""

from ._continuous import Dirichlet

__all__ = ["Dirichlet"]
