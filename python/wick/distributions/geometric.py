"""The distribution Geometric, under the name that programs import it by."""

from ._discrete import Geometric

__all__ = ["Geometric"]
