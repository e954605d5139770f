"""What the functions take and give in several forms: dims, out=.

Tests: tests/parity/test_functional_parity.py.
"""

from .. import _C


def wrapped_dim(dim, ndim):
    if not -max(ndim, 1) <= dim < max(ndim, 1):
        low, high = -max(ndim, 1), max(ndim, 1) - 1
        raise IndexError(f"Dimension out of range (expected to be in range of [{low}, {high}], but got {dim})")
    return dim % max(ndim, 1)


def written(result, out):
    """The result, or `out` with its values, resized where it has another shape."""
    if out is None:
        return result
    return _C.add(result, 0, out=out) if result.dtype != _C.bool else _C.ne(result, False, out=out)
