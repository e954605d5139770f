"""The distribution Weibull, under the name that programs import it by."""

from ._transformed import Weibull

__all__ = ["Weibull"]
