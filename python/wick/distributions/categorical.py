"""The distribution Categorical, under the name that programs import it by."""

from ._discrete import Categorical

__all__ = ["Categorical"]
