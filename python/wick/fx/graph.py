"""torch.fx.graph: Graph is C."""

from .._C import Graph

__all__ = ["Graph"]
