"""torch.amp: products in a small dtype, and losses that are scaled so that small gradients stay above zero.

>>> with autocast("cpu", dtype=wick.bfloat16):
...     (wick.ones(2, 2) @ wick.ones(2, 2)).dtype
wick.bfloat16
"""

from .._names import late as _late
from .autocast_mode import autocast, custom_bwd, custom_fwd, is_autocast_available

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]

__getattr__ = _late(__name__, ("grad_scaler",), {"GradScaler": "grad_scaler"})
