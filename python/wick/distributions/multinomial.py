"""The distribution Multinomial, under the name that programs import it by."""

from ._discrete import Multinomial

__all__ = ["Multinomial"]
