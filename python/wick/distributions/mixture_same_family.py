"""The distribution MixtureSameFamily, under the name that programs import it by."""

from ._transformed import MixtureSameFamily

__all__ = ["MixtureSameFamily"]
