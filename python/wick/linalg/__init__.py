"""Norms of vectors: what there is of torch.linalg."""

from .. import _C

__all__ = ["vector_norm"]

vector_norm = _C.linalg_vector_norm


def __getattr__(name):
    from .._names import missing

    raise missing(__name__, name)
