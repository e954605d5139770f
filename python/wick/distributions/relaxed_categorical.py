"""The relaxed categorical distributions, under the name that programs import them by."""

from ._relaxed import ExpRelaxedCategorical, RelaxedOneHotCategorical

__all__ = ["ExpRelaxedCategorical", "RelaxedOneHotCategorical"]
