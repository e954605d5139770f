"""The names that torch itself has for functions of linear algebra; Tensor has them as methods."""

from ..linalg._autocast import in_float32
from ..linalg._factors import (
    check_info,
    cholesky_ex,
    cholesky_inverse,
    cholesky_solve,
    det,
    inv,
    logdet,
    lu_unpack,
    ormqr,
    pinv,
    slogdet,
    triangular_solve,
    written,
)
from ..linalg._factors import householder_product as orgqr
from ..linalg._factors import lu_solve as _lu_solve
from ..linalg._factors import old_qr as qr
from ..linalg._factors import old_svd as svd
from ..linalg._products import matrix_exp, matrix_power

__all__ = [
    "cholesky", "cholesky_inverse", "cholesky_solve", "det", "inverse", "logdet", "lu_solve", "lu_unpack", "matrix_exp",
    "matrix_power", "orgqr", "ormqr", "pinverse", "qr", "slogdet", "svd", "triangular_solve",
]  # fmt: skip


@in_float32
def cholesky(input, upper=False, *, out=None):
    """linalg.cholesky with the arguments of old."""
    factor, info = cholesky_ex(input, upper=upper)
    check_info(
        info, "cholesky",
        "The factorization could not be completed because the input is not positive-definite (the leading minor of order "
        "{} is not positive-definite).",
    )  # fmt: skip
    return written(factor, out)


def inverse(input, *, out=None):
    """linalg.inv"""
    return inv(input, out=out)


@in_float32
def pinverse(input, rcond=1e-15):
    """linalg.pinv"""
    return pinv(input, rcond)


def lu_solve(b, LU_data, LU_pivots, *, out=None):  # noqa: N803
    """linalg.lu_solve, the right side first."""
    return _lu_solve(LU_data, LU_pivots, b, out=out)


@in_float32
def lu(A, pivot=True, get_infos=False, out=None):  # noqa: N803
    """(L and U in one matrix, which rows were exchanged), and with get_infos what failed: linalg.lu_factor is meant."""
    import warnings

    warnings.warn(
        "torch.lu is deprecated in favor of torch.linalg.lu_factor / torch.linalg.lu_factor_ex and will be removed in a "
        "future PyTorch release.\nLU, pivots = torch.lu(A, compute_pivots)\nshould be replaced with\nLU, pivots = "
        "torch.linalg.lu_factor(A, compute_pivots)\nand\nLU, pivots, info = torch.lu(A, compute_pivots, get_infos=True)\n"
        "should be replaced with\nLU, pivots, info = torch.linalg.lu_factor_ex(A, compute_pivots)",
        UserWarning,
        stacklevel=2,
    )
    from ..linalg import lu_factor, lu_factor_ex

    result = lu_factor_ex(A, pivot=pivot) if get_infos else tuple(lu_factor(A, pivot=pivot))
    if out is None:
        return result
    return tuple(o.resize_(r.shape).copy_(r) for o, r in zip(out, result, strict=True))
