"""The distribution LogNormal, under the name that programs import it by."""

from ._transformed import LogNormal

__all__ = ["LogNormal"]
