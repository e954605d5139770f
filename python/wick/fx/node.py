"""torch.fx.node: Node is C; functions over its arguments."""

from collections.abc import Callable
from typing import Any

from .._C import GraphNode as Node
from .._C import _fx_map as map_aggregate

__all__ = ["Argument", "Node", "Target", "has_side_effect", "map_aggregate", "map_arg"]

Target = Callable[..., Any] | str
Argument = Any
BaseArgumentTypes = Any


def has_side_effect(fn):
    """Marks a function whose calls stay in a graph: gives it back, since none are taken out unasked."""
    return fn


def map_arg(a, fn):
    """The value with fn(node) in place of each node."""
    return map_aggregate(a, lambda leaf: fn(leaf) if isinstance(leaf, Node) else leaf)
