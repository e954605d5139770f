"""The distributions OneHotCategorical and OneHotCategoricalStraightThrough, under the name that programs import them by."""

from ._discrete import OneHotCategorical, OneHotCategoricalStraightThrough

__all__ = ["OneHotCategorical", "OneHotCategoricalStraightThrough"]
