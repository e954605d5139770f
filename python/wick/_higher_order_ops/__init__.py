"""torch._higher_order_ops: operators that take functions, as libraries import them."""

from .associative_scan import associative_scan
from .control_flow import cond, scan, while_loop
from .map import map

__all__ = ["associative_scan", "cond", "map", "scan", "while_loop"]
