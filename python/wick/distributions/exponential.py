"""The distribution Exponential, under the name that programs import it by."""

from ._continuous import Exponential

__all__ = ["Exponential"]
