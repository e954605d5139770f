"""What is so far: extremes and log-sum-exp along a dim; integrals by trapezoids.

Tests: tests/parity/test_functional_parity.py.
"""

from .. import _C
from .forms import named_pair, wrapped_dim, written, written_pair


def _scan(input, dim, better, kind, out):
    """The best element so far, and the last place of it, by doubling steps."""
    at = wrapped_dim(dim, input.dim())
    indices = _C.zeros(input.shape, dtype=_C.int64, device=input.device)
    if not input.dim() or not input.numel():
        return written_pair(named_pair(kind, input.clone(), indices), out)
    size, step = input.shape[at], 1
    shape = [-1 if d == at else 1 for d in range(input.dim())]
    indices = indices + _C.arange(size, device=input.device).reshape(shape)
    values = input.detach()
    while step < size:
        ahead, now = values.narrow(at, 0, size - step), values.narrow(at, step, size - step)
        keep = better(now, ahead)
        where = _C.where(keep, indices.narrow(at, step, size - step), indices.narrow(at, 0, size - step))
        values = _C.cat([values.narrow(at, 0, step), _C.where(keep, now, ahead)], at)
        indices = _C.cat([indices.narrow(at, 0, step), where], at)
        step *= 2
    return written_pair(named_pair(kind, input.gather(at, indices), indices), out)


def cummax(input, dim, *, out=None):
    """The largest element so far along a dim, and its place."""
    return _scan(input, dim, lambda now, ahead: ((now >= ahead) & (ahead == ahead)) | (now != now), "cummax", out)


def cummin(input, dim, *, out=None):
    """The smallest element so far along a dim, and its place."""
    return _scan(input, dim, lambda now, ahead: ((now <= ahead) & (ahead == ahead)) | (now != now), "cummin", out)


def logcumsumexp(input, dim, *, out=None):
    """log of the sum of exponentials so far along a dim."""
    at = wrapped_dim(dim, input.dim())
    if not input.dim() or not input.numel():
        return written(input.clone(), out)
    values, size, step = input, input.shape[at], 1
    while step < size:
        now, ahead = values.narrow(at, step, size - step), values.narrow(at, 0, size - step)
        values = _C.cat([values.narrow(at, 0, step), _C.logaddexp(now, ahead)], at)
        step *= 2
    return written(values, out)


def trapezoid(y, x=None, *, dx=1, dim=-1):
    """The integral of samples along a dim by trapezoids."""
    size = y.shape[dim]
    left, right = y.narrow(dim, 0, size - 1), y.narrow(dim, 1, size - 1)
    if x is None:
        return (left + right).sum(dim) * (dx / 2)
    steps = x.diff() if x.dim() != y.dim() else x.diff(dim=dim)
    if x.dim() == 1 and y.dim() > 1:
        steps = steps.reshape([-1 if d == dim % y.dim() else 1 for d in range(y.dim())])
    return ((left + right) * steps).sum(dim) / 2


trapz = trapezoid


def cumulative_trapezoid(y, x=None, *, dx=1, dim=-1):
    """The integral so far."""
    size = y.shape[dim]
    sums = y.narrow(dim, 0, size - 1) + y.narrow(dim, 1, size - 1)
    if x is None:
        return sums.cumsum(dim) * (dx / 2)
    steps = x.diff() if x.dim() != y.dim() else x.diff(dim=dim)
    if x.dim() == 1 and y.dim() > 1:
        steps = steps.reshape([-1 if d == dim % y.dim() else 1 for d in range(y.dim())])
    return (sums * steps).cumsum(dim) / 2
