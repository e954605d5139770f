"""The distribution Chi2, under the name that programs import it by."""

from ._continuous import Chi2

__all__ = ["Chi2"]
