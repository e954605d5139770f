"""The distribution Poisson, under the name that programs import it by."""

from ._discrete import Poisson

__all__ = ["Poisson"]
