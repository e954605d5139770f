"""Variable, which every tensor is; a module of PyTorch's beginnings."""

from . import Variable

__all__ = ["Variable"]
