"""torch._higher_order_ops.map, as libraries import it."""

from .control_flow import map

__all__ = ["map"]
