"""lobpcg: some eigenvalues of a symmetric matrix by Knyazev's locally optimal block preconditioned conjugate gradients
(SIAM Journal on Scientific Computing 23, 2001): Rayleigh and Ritz's method on the span of the present vectors, their
residuals and the last steps.

Tests: tests/python/test_lobpcg.py.
"""

from . import _C
from .autograd.grad_mode import no_grad
from .linalg import eigh, pinv


def _orthonormal(s, b):
    """Columns with the same span and s^T B s = I, those left out that hardly add to it."""
    gram = s.mT @ (s if b is None else b @ s)
    scale = gram.diagonal().clamp_min(1e-300 if s.dtype == _C.float64 else 1e-30).rsqrt()
    values, vectors = eigh(gram * scale * scale.unsqueeze(1))
    kept = values > values[-1] * s.size(0) * (1e-15 if s.dtype == _C.float64 else 1e-6)
    return (s * scale) @ vectors[:, kept] * values[kept].rsqrt()


def _ritz(a, s, k, largest):
    """The k outer eigenvalues of A on the span of s, whose columns are orthonormal, with their vectors."""
    values, vectors = eigh(s.mT @ (a @ s))
    order = slice(-k, None) if largest else slice(0, k)
    values, vectors = values[order], s @ vectors[:, order]
    return (values.flip(0), vectors.flip(1)) if largest else (values, vectors)


def _iterate(a, b, x, k, largest, inverse, niter, tol):
    values, x = _ritz(a, _orthonormal(x, b), k, largest)
    last = x[:, :0]
    size = a.norm() + (0 if b is None else b.norm()) * values.abs().max()
    for _ in range(niter):
        residual = a @ x - (x if b is None else b @ x) * values
        if bool((residual.norm(dim=0) <= tol * size * x.norm(dim=0)).all()):
            break
        wanted = residual if inverse is None else inverse @ residual
        before = x
        values, x = _ritz(a, _orthonormal(_C.cat([x, wanted, last], 1), b), k, largest)
        last = x - before @ (before.mT @ (x if b is None else b @ x))
    return values, x


def _with_history(a, values, vectors):
    """The results as functions of A: dE = x^T dA x, dx = (E - A)^+ dA x for each pair."""
    change = (a - a.detach()) @ vectors  # zeros, with a derivative
    apart = values[:, None, None] * _C.eye(a.size(-1), dtype=a.dtype) - a.detach()
    moved = (pinv(apart, rtol=1e-10 if a.dtype == _C.float64 else 1e-5) @ change.mT.unsqueeze(-1)).squeeze(-1).mT
    return values + (vectors * change).sum(0), vectors + moved


def _each(a, b, x, inverse, solve):
    """Of several matrices, one after the other."""
    flat = [None if t is None else t.reshape(-1, *t.shape[-2:]) for t in (a, b, x, inverse)]
    pairs = [solve(*(None if t is None else t[i] for t in flat)) for i in range(flat[0].size(0))]
    values, vectors = (_C.stack([pair[part] for pair in pairs]) for part in (0, 1))
    return values.reshape(*a.shape[:-2], -1), vectors.reshape(*a.shape[:-1], -1)


def lobpcg(
    A, k=None, B=None, X=None, n=None, iK=None, niter=None, tol=None, largest=None, method=None, tracker=None,
    ortho_iparams=None, ortho_fparams=None, ortho_bparams=None,
):  # fmt: skip  # noqa: N803
    """The k largest, or least, eigenvalues of A x = e B x and their vectors, a column each: A (..., m, m) symmetric, B
    positive definite or None for I, X the vectors to begin with, iK about the inverse of A.

    >>> lobpcg(wick.diag(wick.tensor([1.0, 2.0, 3.0, 4.0])), k=1, X=wick.ones(4, 1))[0]
    tensor([4.])
    """
    if A.dim() < 2 or A.size(-1) != A.size(-2):
        raise ValueError(f"lobpcg: A is to be a square matrix, or several, but has shape {tuple(A.shape)}")
    if method not in (None, "basic", "ortho"):
        raise ValueError(f"lobpcg: method is to be 'basic' or 'ortho', but is {method!r}")
    m = A.size(-1)
    k = (1 if X is None else X.size(-1)) if k is None else k
    n = (k if X is None else X.size(-1)) if n is None else n
    if m < 3 * n:
        raise ValueError(
            f"LPBPCG algorithm is not applicable when the number of A rows (={m}) is smaller than 3 x the number of requested "
            f"eigenpairs (={n})"
        )
    if A.dim() > 2:
        return _each(A, B, X, iK, lambda a, b, x, inverse: lobpcg(a, k, b, x, n, inverse, niter, tol, largest, method))
    tol = (1e-15 if A.dtype == _C.float64 else 1e-7) ** 0.5 if tol is None else tol
    with no_grad():
        begin = _C.randn((m, n), dtype=A.dtype, device=A.device) if X is None else X
        values, vectors = _iterate(A, B, begin, k, largest is not False, iK, 1000 if niter is None else niter, tol)
    if B is None and A.requires_grad and _C.is_grad_enabled():
        return _with_history(A, values, vectors)
    return values, vectors
