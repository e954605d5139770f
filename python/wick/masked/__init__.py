"""torch.masked: reductions and normalisations of the elements that a mask leaves.

MaskedTensor carries its mask (maskedtensor.py). Where the mask is False an element counts as nothing: it is replaced by what leaves the result as it is. What has no
elements left is that replacement itself. Tests: tests/python/test_masked.py.
"""

import math

from .. import _C
from .._names import late as _late

__all__ = [
    "MaskedTensor", "as_masked_tensor", "is_masked_tensor", "masked_tensor", "amax", "amin", "argmax", "argmin", "cumprod", "cumsum", "log_softmax", "logaddexp", "logsumexp", "mean", "median",
    "norm", "normalize", "prod", "softmax", "softmin", "std", "sum", "var",
]  # fmt: skip

_inf = math.inf


def _left(input, value, mask):
    """The input with `value` where it is masked out."""
    if mask is None:
        return input
    return _C.where(_kept(input, mask), input, _C.tensor(value, dtype=input.dtype, device=input.device))


def _kept(input, mask):
    if mask.dim() > input.dim():
        raise IndexError("_input_mask expected broadcastable mask (got mask dimensionality higher than of the input)")
    return mask.to(_C.bool).broadcast_to(input.shape)


def _dims(input, dim):
    """All dims for None; each once, in order."""
    if dim is None or dim == ():
        return tuple(range(input.dim()))
    dims = tuple(dim) if isinstance(dim, (tuple, list)) else (dim,)
    wrapped = []
    for d in dims:
        n = max(input.dim(), 1)
        if not -n <= d < n:
            raise IndexError(f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {d})")
        if d % n in wrapped:
            raise RuntimeError(f"dim={d % n} appears multiple times in the list of dims")
        wrapped.append(d % n)
    return tuple(sorted(wrapped)) if input.dim() else ()


def _widened(input, dtype):
    """In what sums are made: small integers in int64."""
    if dtype is None and not input.is_floating_point():
        dtype = _C.int64
    return input if dtype is None else input.to(dtype)


def _lowest(dtype):
    return -_inf if dtype.is_floating_point else 0 if dtype == _C.bool else _C.iinfo(dtype).min


def _highest(dtype):
    return _inf if dtype.is_floating_point else 1 if dtype == _C.bool else _C.iinfo(dtype).max


def sum(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The sum of what the mask leaves."""
    x = _left(_widened(input, dtype), 0, mask)
    return x.sum(_dims(x, dim), keepdim) if x.dim() else x.sum()


def prod(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The product of what the mask leaves."""
    x = _left(_widened(input, dtype), 1, mask)
    for d in reversed(_dims(x, dim)):
        x = x.prod(d, keepdim)
    return x


def cumsum(input, dim, *, dtype=None, mask=None):
    """Sums up to each element."""
    x = _left(_widened(input, dtype), 0, mask)
    return x.cumsum(dim)


def cumprod(input, dim, *, dtype=None, mask=None):
    """Products up to each element."""
    x = _left(_widened(input, dtype), 1, mask)
    return x.cumprod(dim)


def amax(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The largest of what the mask leaves."""
    x = input if dtype is None else input.to(dtype)
    return _left(x, _lowest(x.dtype), mask).amax(_dims(x, dim), keepdim)


def amin(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The smallest of what the mask leaves."""
    x = input if dtype is None else input.to(dtype)
    return _left(x, _highest(x.dtype), mask).amin(_dims(x, dim), keepdim)


def argmax(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """Where the largest is."""
    x = input if dtype is None else input.to(dtype)
    return _left(x, _lowest(x.dtype), mask).argmax(dim, keepdim).to(x.dtype if dtype is None else dtype)


def argmin(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """Where the smallest is."""
    x = input if dtype is None else input.to(dtype)
    return _left(x, _highest(x.dtype), mask).argmin(dim, keepdim).to(x.dtype if dtype is None else dtype)


def _count(x, dims, keepdim, mask):
    ones = _C.ones(x.shape, dtype=x.dtype if x.is_floating_point() else _C.int64, device=x.device)
    return sum(ones, dims, keepdim=keepdim, mask=mask)


def mean(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The mean of what the mask leaves."""
    if dtype is not None:
        input = input.to(dtype)
    elif not input.is_floating_point():
        input = input.to(_C.get_default_dtype())
    if mask is None:
        return input.mean(_dims(input, dim), keepdim) if input.dim() else input.mean()
    dims = _dims(input, dim)
    return sum(input, dims, keepdim=keepdim, mask=mask) / _count(input, dims, keepdim, mask)


def median(input, dim=-1, *, keepdim=False, dtype=None, mask=None):
    """The median of what the mask leaves."""
    x = input if dtype is None else input.to(dtype)
    if mask is None:
        return x.nanmedian(dim, keepdim).values
    if not x.is_floating_point():
        raise ValueError(f"masked median expects no fully masked out rows if dtype is {x.dtype}")
    return _left(x, math.nan, mask).nanmedian(dim, keepdim).values


def logsumexp(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """log of the sum of exponentials."""
    x = input if dtype is None else input.to(dtype)
    given = x.dtype  # also of integers
    x = x if x.is_floating_point() else x.to(_C.get_default_dtype())
    return _left(x, -_inf, mask).logsumexp(_dims(x, dim), keepdim).to(given)


def logaddexp(input, other, *, dtype=None, input_mask=None, other_mask=None):
    """log(e^input + e^other), where each may be masked out."""
    a, b = (t if dtype is None else t.to(dtype) for t in (input, other))
    return _C.logaddexp(_left(a, -_inf, input_mask), _left(b, -_inf, other_mask))


def norm(input, ord=2.0, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The norm of what the mask leaves as a vector."""
    x = input if dtype is None else input.to(dtype)
    nothing = _inf if ord < 0 else 0
    return _C.linalg_vector_norm(_left(x, nothing, mask), ord, _dims(x, dim), keepdim)


def _variance(input, dim, correction, keepdim, dtype, mask, root):
    x = input if dtype is None else input.to(dtype)
    if not x.is_floating_point():
        x = x.to(_C.get_default_dtype())
    dims = _dims(x, dim)
    if mask is None:
        result = x.var(dims, correction=correction, keepdim=keepdim)
        return result.sqrt() if root else result
    count = _count(x, dims, True, mask)
    centre = sum(x, dims, keepdim=True, mask=mask) / count
    total = sum((x - centre) ** 2, dims, keepdim=keepdim, mask=mask)
    if not keepdim:
        count = count.reshape(total.shape)
    if correction:
        count = (count - correction).clamp_min(0)
    result = total / count
    return result.sqrt() if root else result


def var(input, dim=None, unbiased=None, *, correction=None, keepdim=False, dtype=None, mask=None):
    """The variance of what the mask leaves."""
    return _variance(input, dim, _correction(unbiased, correction), keepdim, dtype, mask, False)


def std(input, dim=None, unbiased=None, *, correction=None, keepdim=False, dtype=None, mask=None):
    """The standard deviation of what the mask leaves."""
    return _variance(input, dim, _correction(unbiased, correction), keepdim, dtype, mask, True)


def _correction(unbiased, correction):
    if unbiased is not None and correction is not None:
        raise AssertionError("Only one of correction and unbiased may be given")
    if correction is not None:
        return correction
    return 1 if unbiased is None else int(unbiased)


def softmax(input, dim, *, dtype=None, mask=None):
    """Shares that sum to 1; what is masked out has none."""
    x = _float(input, dtype)
    return _C.softmax(_left(x, -_inf, mask), dim)


def log_softmax(input, dim, *, dtype=None, mask=None):
    """The logarithms of softmax."""
    x = _float(input, dtype)
    return _C.log_softmax(_left(x, -_inf, mask), dim)


def softmin(input, dim, *, dtype=None, mask=None):
    """softmax of the negative."""
    x = _float(input, dtype)
    return _C.softmax(-_left(x, _inf, mask), dim)


def normalize(input, ord, dim, *, eps=1e-12, dtype=None, mask=None):
    """The elements divided by their norm along a dim."""
    x = input if dtype is None else input.to(dtype)
    length = norm(x, ord, dim, keepdim=True, mask=mask).clamp_min(eps)
    return _left(x, 0, mask) / length


def _float(input, dtype):
    if dtype is None and not input.is_floating_point():
        dtype = _C.get_default_dtype()
    return input if dtype is None else input.to(dtype)


__getattr__ = _late(
    __name__,
    ("maskedtensor",),
    dict.fromkeys(("MaskedTensor", "as_masked_tensor", "is_masked_tensor", "masked_tensor"), "maskedtensor"),
)
