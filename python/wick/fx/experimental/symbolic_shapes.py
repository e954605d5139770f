"""torch.fx.experimental.symbolic_shapes."""

from ..._C import ConstraintViolationError

__all__ = ["ConstraintViolationError", "GuardOnDataDependentSymNode"]


class GuardOnDataDependentSymNode(RuntimeError):
    """An exported program would take another way for another value of a tensor."""
