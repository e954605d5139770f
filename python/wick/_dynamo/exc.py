"""Errors of capture."""

import enum

from .._C import Unsupported

__all__ = [
    "BackendCompilerFailed",
    "InvalidBackend",
    "RecompileError",
    "TorchDynamoException",
    "Unsupported",
    "UserError",
    "UserErrorType",
]


class TorchDynamoException(RuntimeError):
    """The base of capture's own errors."""


class InvalidBackend(TorchDynamoException):
    """compile(backend=...) does not know the name."""


class BackendCompilerFailed(TorchDynamoException):
    """A backend raised, which is its inner_exception."""

    def __init__(self, backend_fn, inner_exception, first_useful_frame=None):
        self.backend_name = getattr(backend_fn, "__name__", "?")
        self.inner_exception = inner_exception
        kind = type(inner_exception).__name__
        super().__init__(f"backend={self.backend_name!r} raised:\n{kind}: {inner_exception}")


class RecompileError(TorchDynamoException):
    """Something would be captured again, which config.error_on_recompile makes an error."""


class UserErrorType(enum.Enum):
    """What is wrong with a program or its arguments."""

    DYNAMIC_CONTROL_FLOW = enum.auto()
    ANTI_PATTERN = enum.auto()
    STANDARD_LIBRARY = enum.auto()
    CONSTRAINT_VIOLATION = enum.auto()
    DYNAMIC_DIM = enum.auto()
    INVALID_INPUT = enum.auto()
    INVALID_OUTPUT = enum.auto()
    UNSUPPORTED_ALIASED_MUTATED_DYNAMIC_INPUTS = enum.auto()


class UserError(TorchDynamoException):
    """A program or its arguments cannot be exported as they are."""

    def __init__(self, error_type, msg, case_name=None):
        if not isinstance(error_type, UserErrorType):
            raise AssertionError(f"Expected UserErrorType, got {type(error_type)}")
        super().__init__(msg)
        self.error_type, self.msg, self.case_name = error_type, msg, case_name
