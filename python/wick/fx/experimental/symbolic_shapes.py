"""torch.fx.experimental.symbolic_shapes."""

from ..._C import ConstraintViolationError

__all__ = ["ConstraintViolationError"]
