"""The distribution Normal, under the name that programs import it by."""

from ._continuous import Normal

__all__ = ["Normal"]
