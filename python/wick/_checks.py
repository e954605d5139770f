"""torch._check and its kind: a condition that has to hold, and the error when it does not.

Captured, the condition is a guard like any other that the program asks for. Tests: tests/python/test_check.py.
"""

from . import _C

_DEFAULT = (
    "Expected cond to be True, but got False. (Could this error message be improved? If so, please report an "
    "enhancement request to PyTorch.)"
)


def _check_with(error_type, cond, message=None):
    """Raises error_type(message()) where cond is False."""
    if not isinstance(cond, bool):
        hint = "a Tensor. For tensor conditions, use torch._check_tensor_all() to assert that all elements are true."
        raise TypeError(f"cond must be a bool, but got {hint if isinstance(cond, _C.Tensor) else type(cond)}")
    if cond:
        return
    if message is None:
        raise error_type(_DEFAULT)
    if not callable(message):
        raise TypeError("message must be a callable")
    raise error_type(str(message()))


def _check(cond, message=None):
    """Raises a RuntimeError with the text that message() gives where cond, a bool, is False."""
    _check_with(RuntimeError, cond, message)


def _check_index(cond, message=None):
    """The same with an IndexError."""
    _check_with(IndexError, cond, message)


def _check_value(cond, message=None):
    """The same with a ValueError."""
    _check_with(ValueError, cond, message)


def _check_type(cond, message=None):
    """The same with a TypeError."""
    _check_with(TypeError, cond, message)


def _check_not_implemented(cond, message=None):
    """The same with a NotImplementedError."""
    _check_with(NotImplementedError, cond, message)


def _check_is_size(i, message=None, *, max=None):
    """Raises a RuntimeError where i is negative, or above max."""
    _check(i >= 0, message)
    if max is not None:
        _check(i <= max, message)


def _check_tensor_all_with(error_type, cond, message=None):
    """Raises error_type(message()) where an element of cond, a tensor of bools, is False."""
    if not isinstance(cond, _C.Tensor):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    if cond.dtype is not _C.bool:
        raise TypeError(f"cond tensor must have dtype torch.bool, but got {cond.dtype}")
    _check_with(error_type, cond.all().item(), message)


def _check_tensor_all(cond, message=None):
    """The same with a RuntimeError."""
    _check_tensor_all_with(RuntimeError, cond, message)
