"""The distribution Gamma, under the name that programs import it by."""

from ._continuous import Gamma

__all__ = ["Gamma"]
