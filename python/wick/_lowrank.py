"""Singular values and principal components of which few are wanted, from products with random vectors (Halko et al. 2009)."""

from . import _C

__all__ = ["get_approximate_basis", "pca_lowrank", "svd_lowrank"]


def _transposed(matrix):
    return matrix.transpose(-2, -1)


def get_approximate_basis(A, q, niter=2, M=None):
    """Q (..., m, q) with orthonormal columns, with Q Q^T (A - M) near A - M (..., m, n)."""
    from .linalg import qr

    centred = A if M is None else A - M
    R = _C.randn(A.shape[-1], q, dtype=A.dtype, device=A.device)
    Q = qr(_C.matmul(centred, R)).Q
    for _ in range(niter or 0):
        Q = qr(_C.matmul(_transposed(centred), Q)).Q
        Q = qr(_C.matmul(centred, Q)).Q
    return Q


def svd_lowrank(A, q=6, niter=2, M=None):
    """(U, S, V) of rank q with U diag(S) V^T near A, or near A - M.

    >>> U, S, V = svd_lowrank(wick.randn(9, 5), q=2)
    """
    from .linalg import svd

    q = 6 if q is None else q
    rows, columns = A.shape[-2:]
    centred = A if M is None else A - M.broadcast_to(A.shape)
    if rows < columns:
        centred = _transposed(centred)
    Q = get_approximate_basis(centred, q, niter)
    U, S, Vh = svd(_C.matmul(_transposed(Q), centred), full_matrices=False)
    U, V = _C.matmul(Q, U), _transposed(Vh)
    return (V, S, U) if rows < columns else (U, S, V)


def pca_lowrank(A, q=None, center=True, niter=2):
    """svd_lowrank of A, whose columns are first given the mean 0 unless `center` is False.

    >>> U, S, V = pca_lowrank(wick.randn(9, 5), q=2)
    """
    rows, columns = A.shape[-2:]
    if q is None:
        q = min(6, rows, columns)
    elif not 0 <= q <= min(rows, columns):
        raise ValueError(f"q(={q}) must be non-negative integer and not greater than min(m, n)={min(rows, columns)}")
    if niter < 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    return svd_lowrank(A - A.mean(-2, keepdim=True) if center else A, q, niter=niter)
