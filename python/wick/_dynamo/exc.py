"""Errors of capture."""

from .._C import Unsupported

__all__ = ["BackendCompilerFailed", "InvalidBackend", "TorchDynamoException", "Unsupported"]


class TorchDynamoException(RuntimeError):
    """The base of capture's own errors."""


class InvalidBackend(TorchDynamoException):
    """compile(backend=...) does not know the name."""


class BackendCompilerFailed(TorchDynamoException):
    """A backend raised."""
