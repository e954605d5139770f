"""torch.fx.node: Node is C; functions over its arguments."""

from .._C import GraphNode as Node
from .._C import _fx_map as map_aggregate

__all__ = ["Node", "map_aggregate", "map_arg"]


def map_arg(a, fn):
    """The value with fn(node) in place of each node."""
    return map_aggregate(a, lambda leaf: fn(leaf) if isinstance(leaf, Node) else leaf)
