"""The distribution Gumbel, under the name that programs import it by."""

from ._continuous import Gumbel

__all__ = ["Gumbel"]
