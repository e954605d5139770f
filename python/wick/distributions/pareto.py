"""The distribution Pareto, under the name that programs import it by."""

from ._transformed import Pareto

__all__ = ["Pareto"]
