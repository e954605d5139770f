"""The distribution HalfNormal, under the name that programs import it by."""

from ._transformed import HalfNormal

__all__ = ["HalfNormal"]
