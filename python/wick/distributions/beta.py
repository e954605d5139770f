"""The distribution Beta, under the name that programs import it by."""

from ._continuous import Beta

__all__ = ["Beta"]
