"""What sorting decides: medians, quantiles, modes, extremes.

Tests: tests/parity/test_functional_parity.py.
"""

import math

from .. import _C
from .._C import Tensor
from .forms import named_pair, refuse_complex, refuse_shared_memory, wrapped_dim, written_pair


def _flat_or(input, dim):
    return (input.reshape(-1), 0) if dim is None else (input, wrapped_dim(dim, input.dim()))


def kthvalue(input, k, dim=-1, keepdim=False, *, out=None):
    """The k-th smallest element along a dim, and where it is."""
    at = wrapped_dim(dim, input.dim())
    size = input.shape[at] if input.dim() else 1
    if out is not None:
        refuse_shared_memory(input, out)
    if not 1 <= k <= size:
        raise RuntimeError("kthvalue(): selected number k out of range for dimension " + str(at))
    values, indices = input.sort(dim=at, stable=True) if input.dim() else (input.clone(), _C.zeros((), dtype=_C.int64))
    if input.dim():
        values, indices = (t.narrow(at, k - 1, 1).contiguous() for t in (values, indices))
        if not keepdim:
            values, indices = values.squeeze(at), indices.squeeze(at)
    return written_pair(named_pair("kthvalue", values, indices), out)


def _median(input, dim, keepdim, ignore_nan, kind):
    if dim is None:
        if input.numel() == 0:
            return _C.full((), math.nan, dtype=input.dtype)
        return _median(input.reshape(-1), 0, False, ignore_nan, kind)[0]
    at = wrapped_dim(dim, input.dim())
    if not input.dim():
        return named_pair(kind, input.clone(), _C.zeros((), dtype=_C.int64))
    values, indices = input.sort(dim=at, stable=True)  # NaN last
    size = input.shape[at]
    middle = _C.full_like(values.narrow(at, 0, 1), (size - 1) // 2, dtype=_C.int64)
    if input.is_floating_point():
        wrong = input.isnan().sum(at, True)
        middle = ((size - wrong - 1) // 2).clamp_min(0) if ignore_nan else _C.where(wrong > 0, size - wrong, middle)
    values, indices = values.gather(at, middle), indices.gather(at, middle)
    if not keepdim:
        values, indices = values.squeeze(at), indices.squeeze(at)
    return named_pair(kind, values, indices)


def median(input, dim=None, keepdim=False):
    """The lower middle element, or (values, indices) along a dim; NaN when there is one."""
    return _median(input, dim, keepdim, False, "median")


def nanmedian(input, dim=None, keepdim=False):
    """The same without NaN."""
    return _median(input, dim, keepdim, True, "nanmedian")


def mode(input, dim=-1, keepdim=False):
    """The commonest element along a dim, the least of several, and the last place of it."""
    refuse_complex(input, "mode_cpu")
    at = wrapped_dim(dim, input.dim())
    if not input.dim():
        return named_pair("mode", input.clone(), _C.zeros((), dtype=_C.int64))
    moved = input.movedim(at, -1)
    same = moved.unsqueeze(-1) == moved.unsqueeze(-2)
    count = same.sum(-1)
    most = count.amax(-1, True)
    values = _C.where(count == most, moved.detach().double(), math.inf).amin(-1, True)
    hit = moved.double() == values
    indices = _C.where(hit, _C.arange(moved.shape[-1], device=input.device), -1).amax(-1, True)
    values = moved.gather(-1, indices)
    if not keepdim:
        return named_pair("mode", values.squeeze(-1), indices.squeeze(-1))
    return named_pair("mode", values.movedim(-1, at), indices.movedim(-1, at))


def _quantile(input, q, dim, keepdim, interpolation, ignore_nan, name):
    if not input.is_floating_point():
        raise RuntimeError(f"{name}() input tensor must be either float or double dtype")
    if interpolation not in ("linear", "lower", "higher", "midpoint", "nearest"):
        raise RuntimeError(
            f"{name}() interpolation must be one of linear, lower, higher, midpoint or nearest, but got {interpolation}"
        )
    if not isinstance(q, Tensor):
        if not 0 <= q <= 1:
            raise RuntimeError(f"{name}() q must be in the range [0, 1] but got {q}")
        q = _C.tensor(q, dtype=input.dtype, device=input.device)
    elif q.dtype != input.dtype:
        raise RuntimeError(f"{name}() q tensor must be same dtype as the input tensor")
    many, was_flat, rank = q.dim() == 1, dim is None, input.dim()
    input, at = _flat_or(input if rank else input.reshape(1), dim)
    values = input.movedim(at, -1).sort(-1)[0]
    wrong = values.isnan().sum(-1, True)
    size = values.shape[-1]
    ranks = q.reshape(-1) * ((size - wrong - 1).clamp_min(0) if ignore_nan else size - 1)  # (..., Q)
    ranks = ranks.expand(*values.shape[:-1], q.numel())
    if not ignore_nan:
        ranks = _C.where(wrong > 0, float(size - 1), ranks)
    if interpolation in ("lower", "nearest"):
        ranks = ranks.floor() if interpolation == "lower" else ranks.round()
    elif interpolation == "higher":
        ranks = ranks.ceil()
    below = ranks.long()
    result = values.gather(-1, below)
    if interpolation in ("linear", "midpoint"):
        weights = ranks - below if interpolation == "linear" else _C.full_like(ranks, 0.5)
        result = result.lerp(values.gather(-1, ranks.ceil().long()), weights)
    result = result.movedim(-1, 0)  # (Q, ...)
    if keepdim:
        result = result.reshape(-1, *(1,) * rank) if was_flat or not rank else result.unsqueeze(at + 1)
    return result if many else result.squeeze(0)


def quantile(input, q, dim=None, keepdim=False, *, interpolation="linear", out=None):
    """The value below which a part q of the elements lies, along a dim or of all."""
    result = _quantile(input, q, dim, keepdim, interpolation, False, "quantile")
    return result if out is None else out.copy_(result)


def nanquantile(input, q, dim=None, keepdim=False, *, interpolation="linear", out=None):
    """The same without NaN."""
    result = _quantile(input, q, dim, keepdim, interpolation, True, "nanquantile")
    return result if out is None else out.copy_(result)


def aminmax(input, *, dim=None, keepdim=False):
    """(min, max) along a dim or of all."""
    dims = [] if dim is None else [dim]
    return named_pair("aminmax", _C.amin(input, dims, keepdim), _C.amax(input, dims, keepdim))
