"""The distribution Laplace, under the name that programs import it by."""

from ._continuous import Laplace

__all__ = ["Laplace"]
