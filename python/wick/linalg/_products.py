"""Norms and products of torch.linalg: what needs no factorisation, and the norms that do. Tests: tests/python/test_linalg.py."""

import math

from .. import _C
from . import _factors
from ._autocast import in_float32
from ._factors import check_floats, check_square, written


def _wrapped(dims, n):
    for d in dims:
        if not -n <= d < n:
            raise IndexError(f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {d})")
    return [d % n for d in dims]


def matrix_norm(A, ord="fro", dim=(-2, -1), keepdim=False, *, dtype=None, out=None):  # noqa: N803
    """A norm of matrices: "fro", "nuc", or 1, -1, 2, -2, inf, -inf."""
    if A.dim() < 2:
        raise RuntimeError("linalg.matrix_norm: The input tensor A must have at least 2 dimensions.")
    if len(dim) != 2:
        raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {' '.join(map(str, dim))}")
    check_floats(A if dtype is None else A.to(dtype), "linalg.matrix_norm", False)
    rows, columns = _wrapped(dim, A.dim())
    if rows == columns:
        raise RuntimeError(f"linalg.matrix_norm: dims must be different. Got ({dim[0]}, {dim[1]})")
    a = A if dtype is None else A.to(dtype)
    if ord == "fro":
        return written(_C.linalg_vector_norm(a, 2, [rows, columns], keepdim), out)
    if ord == "nuc" or ord in (2, -2):
        values = _factors.svdvals(a.movedim((rows, columns), (-2, -1)))
        if ord == 2 and not values.size(-1):  # the largest of none is 0, whatever it is made of
            result = values.detach().sum(-1)
        else:
            result = values.sum(-1) if ord == "nuc" else values.amax(-1) if ord == 2 else values.amin(-1)
        for d in sorted((rows, columns)) if keepdim else ():
            result = result.unsqueeze(d)
        return written(result, out)
    if isinstance(ord, str) or abs(ord) not in (1, math.inf):
        raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.")
    first, second = (rows, columns) if abs(ord) == 1 else (columns, rows)
    sums = _C.linalg_vector_norm(a, 1, [first], keepdim)
    at = second if keepdim or second < first else second - 1
    if ord > 0 and not sums.size(at):  # the largest of none is 0
        return written(sums.detach().sum(at, keepdim), out)
    return written(sums.amax(at, keepdim) if ord > 0 else sums.amin(at, keepdim), out)


def norm(A, ord=None, dim=None, keepdim=False, *, out=None, dtype=None):  # noqa: N803
    """matrix_norm or vector_norm, by what ord and dim say."""
    if dim is not None:
        dim = (dim,) if isinstance(dim, int) else tuple(dim)
        if ord is not None and len(dim) not in (1, 2):
            raise RuntimeError(f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {list(dim)}")
    elif ord is not None and A.dim() not in (1, 2):
        raise RuntimeError(
            f"linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got {A.dim()}D."
        )
    if ord is not None and ((dim is not None and len(dim) == 2) or (dim is None and A.dim() == 2)):
        return matrix_norm(A, ord, dim or (0, 1), keepdim, dtype=dtype, out=out)
    if isinstance(ord, str):
        return matrix_norm(A, ord, dim or (-2, -1), keepdim, dtype=dtype, out=out)
    return written(_C.linalg_vector_norm(A, 2 if ord is None else ord, dim, keepdim, dtype=dtype), out)


@in_float32
def cond(A, p=None, *, out=None):  # noqa: N803
    """How much larger a relative error can get in a solution: |A| |A^-1|."""
    if A.dim() < 2:
        raise RuntimeError("linalg.cond: The input tensor must have at least 2 dimensions.")
    if not A.numel() and not isinstance(p, str):
        return written(A.real.new_zeros(A.shape[:-2]), out)
    if p is None or p in (2, -2):
        values = _factors.svdvals(A)
        return written(values[..., -1] / values[..., 0] if p == -2 else values[..., 0] / values[..., -1], out)
    check_square(A, f"linalg.cond(ord={p})")
    if not isinstance(p, str) and abs(p) not in (1, math.inf):
        raise RuntimeError(f"linalg.cond got an invalid norm type: {p}")
    inverse, info = _factors.inv_ex(A)
    result = matrix_norm(A, p) * matrix_norm(inverse, p)
    return written(_C.where(info == 0, result, math.inf), out)


def cross(input, other, *, dim=-1, out=None):
    """Vectors of 3 that are orthogonal to both."""
    if input.dim() != other.dim():
        raise RuntimeError("linalg.cross: inputs must have the same number of dimensions.")
    (d,) = _wrapped((dim,), input.dim())
    if input.size(d) != 3 or other.size(d) != 3:
        raise RuntimeError(
            f"linalg.cross: inputs dimension {dim} must have length 3. Got {input.size(d)} and {other.size(d)}"
        )
    return written(_C.cross(*_C_broadcast(input, other), dim), out)


def _C_broadcast(a, b):  # noqa: N802
    from .._tensor import broadcast_shapes

    shape = broadcast_shapes(a.shape, b.shape)
    return a.expand(shape), b.expand(shape)


def vecdot(x, y, *, dim=-1, out=None):
    """Sums of products along a dim."""
    if x.dtype != y.dtype:
        raise RuntimeError(
            f"linalg.vecdot: Expected x and y to have the same dtype, but found x of type {_factors.legacy(x)} and y of type "
            f"{_factors.legacy(y)} instead"
        )
    a, b = _C_broadcast(x, y)
    (d,) = _wrapped((dim,), max(a.dim(), 1))
    rows, columns = a.conj().movedim(d, -1).unsqueeze(-2), b.movedim(d, -1).unsqueeze(-1)
    return written((rows @ columns).squeeze(-1).squeeze(-1), out)


def matrix_power(A, n, *, out=None):  # noqa: N803
    """The n-th power of square matrices; of the inverse for n < 0."""
    check_square(A, "linalg.matrix_power")
    if n < 0:
        return written(matrix_power(_factors.inv(A), -n), out)
    if n == 0:
        eye = _C.eye(A.size(-1), dtype=A.dtype, device=A.device)
        return written(A.clone(memory_format=_C.contiguous_format).copy_(eye), out)
    result, square = None, A
    while n:
        if n & 1:
            result = square if result is None else result @ square
        n >>= 1
        square = square @ square if n else square
    return written(result.clone() if result is A else result, out)


def matrix_exp(A):  # noqa: N803
    """1 + A + A^2 / 2 + ..."""
    check_square(A, "linalg.matrix_exp")
    check_floats(A, "linalg.matrix_exp", False)
    return _C.linalg_matrix_exp(A)


def tensorinv(A, ind=2, *, out=None):  # noqa: N803
    """The inverse of A as a map from its last dims to its first `ind`."""
    if ind <= 0:
        raise RuntimeError(f"Expected a strictly positive integer for 'ind', but got {ind}")
    first, last = A.shape[:ind], A.shape[ind:]
    if math.prod(first) != math.prod(last):
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got "
            f"{math.prod(last)} != {math.prod(first)}"
        )
    inverse, info = _factors.inv_ex(A.reshape(math.prod(first), -1))
    _factors.check_info(info, "inv", _factors._SINGULAR)
    return written(inverse.reshape(*last, *first), out)


def tensorsolve(A, B, dims=None, *, out=None):  # noqa: N803
    """X with tensordot(A, X, X.dim()) = B."""
    if dims is not None:
        A = A.movedim(list(dims), [A.dim() - len(dims) + i for i in range(len(dims))])  # noqa: N806
    shape = A.shape[B.dim() :]
    if math.prod(shape) != B.numel():
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim]), "
            f"but got {math.prod(shape)} != {B.numel()}"
        )
    return written(_factors.solve(A.reshape(B.numel(), -1), B.flatten()).reshape(shape), out)
