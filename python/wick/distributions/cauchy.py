"""The distribution Cauchy, under the name that programs import it by."""

from ._continuous import Cauchy

__all__ = ["Cauchy"]
