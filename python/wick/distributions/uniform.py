"""The distribution Uniform, under the name that programs import it by."""

from ._continuous import Uniform

__all__ = ["Uniform"]
