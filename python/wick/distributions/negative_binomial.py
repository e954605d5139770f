"""The distribution NegativeBinomial, under the name that programs import it by."""

from ._discrete import NegativeBinomial

__all__ = ["NegativeBinomial"]
