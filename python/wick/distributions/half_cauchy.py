"""The distribution HalfCauchy, under the name that programs import it by."""

from ._transformed import HalfCauchy

__all__ = ["HalfCauchy"]
