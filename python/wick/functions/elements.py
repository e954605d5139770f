"""Functions of elements: divisors, parts of complex numbers, masks.

Tests: tests/parity/test_functional_parity.py.
"""

from .. import _C
from .forms import wrapped_dim, written


def isreal(input):
    """Elements without an imaginary part: all of a real tensor."""
    return input.imag == 0 if input.is_complex() else _C.ones_like(input, dtype=_C.bool)


def positive(input):
    """The tensor."""
    if input.dtype == _C.bool:
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return input


def is_conj(input):
    """False: conjugates are computed at once."""
    return input.is_conj()


def is_neg(input):
    """False: negatives are computed at once."""
    return input.is_neg()


def resolve_conj(input):
    """The tensor, which is no view of a conjugate."""
    return input.resolve_conj()


def resolve_neg(input):
    """The tensor, which is no view of a negative."""
    return input.resolve_neg()


def masked_scatter(input, mask, source):
    """The tensor with its places where mask holds filled from source, one after the other."""
    if mask.dtype != _C.bool:
        raise RuntimeError(
            f"masked_scatter_ only supports boolean masks, but got mask with dtype {mask.type().rpartition('.')[2][:-6]}"
        )
    mask, input = _C.broadcast_tensors((mask, input))
    number = (mask.reshape(-1).cumsum(0) - 1).clamp_min(0)
    if int(mask.sum()) > source.numel():
        raise RuntimeError(
            "masked_scatter: expected self and source to have same dtypes but source has too few elements"
            if input.dtype != source.dtype
            else "Number of elements of source < number of ones in mask"
        )
    return _C.where(mask, source.reshape(-1)[number].reshape(mask.shape), input) if source.numel() else input.clone()


def index_reduce(input, dim, index, source, reduce, *, include_self=True, out=None):
    """scatter_reduce with an index for whole slices."""
    dim = wrapped_dim(dim, input.dim())
    shape = [-1 if d == dim else 1 for d in range(input.dim())]
    places = index.reshape(shape).expand(source.shape)
    return written(input.scatter_reduce(dim, places, source, reduce, include_self=include_self), out)
