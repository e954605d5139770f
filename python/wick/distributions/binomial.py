"""The distribution Binomial, under the name that programs import it by."""

from ._discrete import Binomial

__all__ = ["Binomial"]
