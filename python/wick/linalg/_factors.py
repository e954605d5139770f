"""Factorisations of matrices, and what follows from them: determinants, inverses, solutions. Batches throughout.

The work is done by the rows of tables/linalg.ops; here stand PyTorch's forms of them and its errors.
Tests: tests/python/test_linalg.py, tests/parity/test_linalg_parity.py.
"""

import math

from .. import _C
from ..return_types import _named
from ._autocast import in_float32


class LinAlgError(RuntimeError):
    """A matrix that has no such factorisation or solution."""


LinAlgError.__module__, LinAlgError.__name__, LinAlgError.__qualname__ = "torch._C", "_LinAlgError", "_LinAlgError"


def _type(name, fields):
    return _named(f"linalg_{name}", fields.split())


_cholesky_ex, _inv_ex = _type("cholesky_ex", "L info"), _type("inv_ex", "inverse info")
_solve_ex, _slogdet = _type("solve_ex", "result info"), _type("slogdet", "sign logabsdet")
_eig = _type("eig", "eigenvalues eigenvectors")
_eigh, _qr, _svd = _type("eigh", "eigenvalues eigenvectors"), _type("qr", "Q R"), _type("svd", "U S Vh")
_lu, _lu_factor = _type("lu", "P L U"), _type("lu_factor", "LU pivots")
_lu_factor_ex = _type("lu_factor_ex", "LU pivots info")
_ldl_factor, _ldl_factor_ex = _type("ldl_factor", "LD pivots"), _type("ldl_factor_ex", "LD pivots info")
_lstsq = _type("lstsq", "solution residuals rank singular_values")
_old_qr, _old_svd = _named("qr", ("Q", "R")), _named("svd", ("U", "S", "V"))
_lu_unpack = _named("lu_unpack", ("P", "L", "U"))
_triangular_solve = _named("triangular_solve", ("solution", "cloned_coefficient"))


# ---- what they have in common ----


_C_NAMES = {
    _C.float32: "float", _C.float64: "double", _C.complex64: "c10::complex<float>", _C.complex128: "c10::complex<double>",
    _C.int64: "long int", _C.int32: "int", _C.int16: "short int", _C.int8: "signed char", _C.uint8: "unsigned char",
    _C.bool: "bool", _C.float16: "c10::Half", _C.bfloat16: "c10::BFloat16",
}  # fmt: skip


def written(result, out, exact=False):
    """The result, or `out` with its values; `exact`: which have to be of the result's dtype."""
    if out is None:
        return result
    if isinstance(result, tuple) and len(out) != len(result):
        raise TypeError(f"expected tuple of {len(result)} elements but got {len(out)}")
    for value, into in zip(result, out, strict=True) if isinstance(result, tuple) else ((result, out),):
        if into.dtype != value.dtype and (exact or not _C.can_cast(value.dtype, into.dtype)):
            if exact:
                wanted, found = _C_NAMES.get(value.dtype, value.dtype), _C_NAMES.get(into.dtype, into.dtype)
                raise RuntimeError(f"Expected out tensor to have dtype {wanted}, but got {found} instead")
            raise RuntimeError(
                f"Expected result to be safely castable from {value.dtype} dtype, but got result with dtype {into.dtype}"
            )
        into.resize_(value.shape).copy_(value.detach())
    return type(result)(*out) if isinstance(result, tuple) else out


def legacy(t):
    return t.type().rpartition(".")[2].removesuffix("Tensor")


def check_square(a, name, what="A"):
    if a.dim() < 2:
        raise RuntimeError(f"{name}: The input tensor {what} must have at least 2 dimensions.")
    if a.size(-1) != a.size(-2):
        raise RuntimeError(
            f"{name}: {what} must be batches of square matrices, but they are {a.size(-2)} by {a.size(-1)} matrices"
        )


def check_dims(a, name, what=" A"):
    if a.dim() < 2:
        raise RuntimeError(f"{name}: The input tensor{what} must have at least 2 dimensions.")


def check_kernel(a, name):
    """What the CPU's kernel of that name computes with."""
    if a.dtype not in (_C.float32, _C.float64, _C.complex64, _C.complex128):
        raise NotImplementedError(f"\"{name}\" not implemented for '{legacy(a)}'")


def check_floats(a, name, low=True):
    if a.dtype in (_C.complex64, _C.complex128):
        return
    if not a.is_floating_point():
        raise RuntimeError(f"{name}: Expected a floating point or complex tensor as input. Got {legacy(a)}")
    if low and a.dtype not in (_C.float32, _C.float64):
        raise RuntimeError(f"{name}: Low precision dtypes not supported. Got {legacy(a)}")


def check_info(info, name, text):
    """Raises what the first failed matrix of a batch says."""
    info = _C._level_plain(info)  # of a batch of vmap all examples
    if info.device.type == "meta":
        return
    if (info != 0).any():  # capture knows a branch that does nothing but raise
        raise _error_of(info, name, text)


def _error_of(info, name, text):
    at = info.reshape(-1).nonzero()[0].item()
    batch = f"(Batch element {at}): " if info.dim() else ""
    return LinAlgError(f"{name}: {batch}{text.format(info.reshape(-1)[at].item())}")


_SINGULAR_SOLVE = "The solver failed because the input matrix is singular."
_SINGULAR = (
    "The diagonal element {} is zero, the inversion could not be completed because the input matrix is singular."
)
_INDEFINITE = (
    "The factorization could not be completed because the input is not positive-definite (the leading minor of order {} "
    "is not positive-definite)."
)


def columns(t):
    """As LAPACK leaves a matrix: column after column."""
    return t.mT.contiguous().mT


def _eye(a):
    return _C.eye(a.size(-1), dtype=a.dtype, device=a.device)


def _batched(a, b):
    """Two matrices with the same batches."""
    from .._tensor import broadcast_shapes

    lead = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return a.expand(*lead, *a.shape[-2:]), b.expand(*lead, *b.shape[-2:])


def _check_equation(a, b, left, name):
    if b.dim() < 2:
        raise RuntimeError(f"{name}: The input tensor B must have at least 2 dimensions.")
    if b.size(-2 if left else -1) != a.size(-1):
        raise RuntimeError(
            f"{name}: Incompatible shapes of A and B for the equation {'AX = B' if left else 'XA = B'} "
            f"({a.size(-2)}x{a.size(-1)} and {b.size(-2)}x{b.size(-1)})"
        )


# ---- Cholesky ----


@in_float32
def cholesky_ex(input, *, upper=False, check_errors=False, out=None):
    """L of A = L L^T, and of each matrix whether there is one: 0, or the order of the part that is not positive-definite."""
    check_square(input, "linalg.cholesky")
    check_floats(input, "linalg.cholesky", False)
    check_kernel(input, "cholesky_cpu")
    factor, info = _C._linalg_cholesky(input.mH if upper else input)
    if check_errors:
        check_info(info, "linalg.cholesky_ex", _INDEFINITE)
    return written(_cholesky_ex(columns(factor.mH) if upper else factor, info), out, True)


@in_float32
def cholesky(input, *, upper=False, out=None):
    """L of A = L L^T; with `upper` its transpose."""
    factor, info = cholesky_ex(input, upper=upper)
    check_info(info, "linalg.cholesky", _INDEFINITE)
    return written(factor, out, True)


def _check_solver(a, b, name):
    for t, letter in ((b, "b"), (a, "A")):
        if t.dim() < 2:
            raise RuntimeError(f"{letter} should have at least 2 dimensions, but has {t.dim()} dimensions instead")
    if a.size(-1) != a.size(-2):
        raise RuntimeError(f"A must be batches of square matrices, but they are {a.size(-2)} by {a.size(-1)} matrices")
    if a.size(-1) != b.size(-2):
        raise RuntimeError(
            f"Incompatible matrix sizes for {name}: each A matrix is {a.size(-1)} by {a.size(-1)} but each b matrix is "
            f"{b.size(-2)} by {b.size(-1)}"
        )
    if a.dtype != b.dtype:
        raise RuntimeError(
            f"Expected b and A to have the same dtype, but found b of type {legacy(b)} and A of type {legacy(a)} instead."
        )


@in_float32
def cholesky_solve(input, L, upper=False, *, out=None):  # noqa: N803
    """The solution of L L^T x = input."""
    _check_solver(L, input, "cholesky_solve")
    factor, b = _batched(L, input)
    return written(_C._cholesky_solve(b, factor, upper), out)


@in_float32
def cholesky_inverse(L, upper=False, *, out=None):  # noqa: N803
    """The inverse of L L^T."""
    check_square(L, "cholesky_inverse")
    return written(cholesky_solve(_eye(L).expand(L.shape), L, upper), out)


# ---- L D L^T ----


def _check_ldl(info, name):
    info = _C._level_plain(info)
    if info.device.type != "meta" and bool((info != 0).any()):
        first = info.reshape(-1)[info.reshape(-1).nonzero()[0]].item()
        raise RuntimeError(f"{name}: Unknown error code: {first}.")


def ldl_factor_ex(A, *, hermitian=False, check_errors=False, out=None):  # noqa: N803
    """L and D of A = L D L^T in one matrix, which rows were exchanged, and of each matrix the first block of D that is zero."""
    check_square(A, "torch.linalg.ldl_factor_ex")
    check_floats(A, "torch.linalg.ldl_factor_ex", False)
    if A.dtype in (_C.float16, _C.bfloat16):
        raise NotImplementedError(f"\"ldl_factor_kernel_cpu\" not implemented for '{legacy(A)}'")
    result = _ldl_factor_ex(*_C.linalg_ldl_factor_ex(A, hermitian=hermitian))
    if check_errors:
        _check_ldl(result.info, "torch.linalg.ldl_factor_ex")
    return written(result, out)


def ldl_factor(A, *, hermitian=False, out=None):  # noqa: N803
    """L and D in one matrix, and which rows were exchanged."""
    factors, pivots, info = ldl_factor_ex(A, hermitian=hermitian)
    _check_ldl(info, "torch.linalg.ldl_factor")
    return written(_ldl_factor(factors, pivots), out)


def ldl_solve(LD, pivots, B, *, hermitian=False, out=None):  # noqa: N803
    """The solution of A X = B by what ldl_factor gives."""
    if B.dim() < 2:
        raise IndexError("Dimension out of range (expected to be in range of [-1, 0], but got -2)")
    _check_solver(LD, B, "torch.linalg.ldl_solve")
    if LD.shape[:-1] != pivots.shape:
        raise RuntimeError(
            "torch.linalg.ldl_solve: Expected LD.shape[:-1] and pivots.shape to be the same, but got pivots with shape "
            f"{list(pivots.shape)} instead"
        )
    if pivots.is_floating_point() or pivots.dtype == _C.bool:
        raise RuntimeError(f"torch.linalg.ldl_solve: Expected pivots to be integers. Got {legacy(pivots)}")
    LD, b = _batched(LD, B)  # noqa: N806
    return written(_C._linalg_ldl_solve(LD, pivots.expand(LD.shape[:-1]), b, hermitian=hermitian), out)


# ---- LU ----


def _check_lu(A, name):  # noqa: N803
    if A.dim() < 2:
        raise RuntimeError(f"{name}: Expected tensor with 2 or more dimensions. Got size: {list(A.shape)} instead")
    check_kernel(A, "lu_cpu")


def lu_factor_ex(A, *, pivot=True, check_errors=False, out=None):  # noqa: N803
    """L and U in one matrix, which rows were exchanged, and of each matrix the first zero on U's diagonal."""
    _check_lu(A, "torch.lu_factor")
    if not pivot and A.device.type == "cpu":
        raise RuntimeError("linalg.lu_factor: LU without pivoting is not implemented on the CPU")
    result = _lu_factor_ex(*_C.linalg_lu_factor_ex(A, pivot=pivot))
    if check_errors:
        check_info(result.info, "torch.linalg.lu_factor_ex", "U[{0},{0}] is zero and using it on lu_solve would result in a "
                   "division by zero. If you still want to perform the factorization, consider calling "
                   "linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)")  # fmt: skip
    return written(result, out)


def lu_factor(A, *, pivot=True, out=None):  # noqa: N803
    """L and U in one matrix, and which rows were exchanged."""
    factors, pivots, info = lu_factor_ex(A, pivot=pivot)
    check_info(info, "torch.linalg.lu_factor", "U[{0},{0}] is zero and using it on lu_solve would result in a division by "
               "zero. If you still want to perform the factorization, consider calling linalg.lu(A, pivot) or "
               "linalg.lu_factor_ex(A, pivot)")  # fmt: skip
    return written(_lu_factor(factors, pivots), out)


def _unpacked(factors, pivots, with_pivots=True, with_factors=True):
    m, n = factors.shape[-2:]
    k = min(m, n)
    P = L = U = factors.new_empty((0,))  # noqa: N806
    if with_factors:
        L = factors[..., :, :k].tril(-1) + _C.eye(m, k, dtype=factors.dtype, device=factors.device)  # noqa: N806
        U = factors[..., :k, :].triu()  # noqa: N806
    if with_pivots:
        order = _C._lu_order(pivots, m)
        ones = _C.ones(*order.shape[:-1], 1, m, dtype=factors.dtype, device=factors.device)
        zeros = _C.zeros(*order.shape, m, dtype=factors.dtype, device=factors.device)
        P = zeros.scatter(-2, order.unsqueeze(-2), ones)  # noqa: N806
    return P, L, U


def lu_unpack(LU_data, LU_pivots, unpack_data=True, unpack_pivots=True, *, out=None):  # noqa: N803
    """P, L and U of what lu_factor gives."""
    return written(_lu_unpack(*_unpacked(LU_data, LU_pivots, unpack_pivots, unpack_data)), out)


def lu(A, *, pivot=True, out=None):  # noqa: N803
    """P, L and U, whose product is A."""
    _check_lu(A, "linalg.lu")
    factors, pivots, _info = lu_factor_ex(A, pivot=pivot)
    P, L, U = _unpacked(factors, pivots, pivot)  # noqa: N806
    return written(_lu(P, L, U), out)


@in_float32
def lu_solve(LU, pivots, B, *, left=True, adjoint=False, out=None):  # noqa: N803
    """The solution of A X = B, or with left=False X A = B, by A's factors."""
    if LU.dtype != B.dtype:
        raise RuntimeError(
            f"linalg.lu_solve: Expected LU and B to have the same dtype, but found LU of type {legacy(LU)} and B of type "
            f"{legacy(B)} instead"
        )
    if pivots.dtype != _C.int32:
        raise RuntimeError("linalg.lu_solve: pivots should be a Tensor of scalar type torch.int32")
    check_square(LU, "torch.linalg.lu_solve")
    _check_equation(LU, B, left, "linalg.lu_solve")
    if LU.size(-1) != pivots.size(-1):
        raise RuntimeError("linalg.lu_solve: Number of pivots per batch should be same as the dimension of the matrix")
    if LU.shape[:-1] != pivots.shape:
        raise RuntimeError(
            "linalg.lu_solve: Expected LU.shape[:-1] and pivots.shape to be the same, but got pivots with shape "
            f"{list(pivots.shape)} instead"
        )
    if not left:
        return written(lu_solve(LU, pivots, B.mH, adjoint=not adjoint).mH, out)
    LU, B = _batched(LU, B)  # noqa: N806
    pivots = pivots.expand(*LU.shape[:-2], pivots.size(-1))
    order = _C._lu_order(pivots, LU.size(-2))
    if adjoint:
        y = _C._linalg_solve_triangular(LU.mH, B, False, False)
        y = _C._linalg_solve_triangular(LU.mH, y, True, True)
        back = order.argsort(-1)
        return written(columns(y.gather(-2, back.unsqueeze(-1).expand(y.shape))), out)
    y = B.gather(-2, order.unsqueeze(-1).expand(B.shape))
    y = _C._linalg_solve_triangular(LU, y, False, True)
    return written(_C._linalg_solve_triangular(LU, y, True, False), out)


# ---- solutions ----


def _is_vector(a, b):
    """Whether b holds vectors, one a matrix."""
    return b.dim() == 1 or (a.dim() - 1 == b.dim() and b.shape == a.shape[:-1])


def solve_ex(A, B, *, left=True, check_errors=False, out=None):  # noqa: N803
    """X of A X = B, or with left=False of X A = B, and whether A is singular."""
    check_floats(A, "linalg.solve")
    check_square(A, "linalg.solve")
    if A.dtype != B.dtype:
        raise RuntimeError(
            f"linalg.solve: Expected A and B to have the same dtype, but found A of type {legacy(A)} and B of type "
            f"{legacy(B)} instead"
        )
    vector = _is_vector(A, B)
    if vector and not left:
        raise RuntimeError(
            "linalg.solve: Vector broadcasting of the left hand side is not supported for left=False. In this case "
            "linalg.solve is equivalent to B / A.squeeze(-1)"
        )
    b = B.unsqueeze(-1) if vector else B
    _check_equation(A, b, left, "linalg.solve")
    a, b = _batched(A, b)
    x, info = _C._linalg_solve(a, b) if left else _C._linalg_solve(a.mT, b.mT)
    x = x if left else x.mT
    if check_errors:
        check_info(info, "torch.linalg.solve_ex", _SINGULAR_SOLVE)
    if vector:
        x = x.squeeze(-1)
        x = columns(x) if x.dim() > 1 else x
    return written(_solve_ex(x, info), out)


@in_float32
def solve(A, B, *, left=True, out=None):  # noqa: N803
    """X of A X = B, or with left=False of X A = B."""
    x, info = solve_ex(A, B, left=left)
    check_info(info, "torch.linalg.solve", _SINGULAR_SOLVE)
    return written(x, out)


def solve_triangular(A, B, *, upper, left=True, unitriangular=False, out=None):  # noqa: N803
    """The same for a triangle."""
    check_square(A, "linalg.solve_triangular")
    check_kernel(A, "triangular_solve_cpu")
    _check_equation(A, B, left, "linalg.solve_triangular")
    a, b = _batched(A, B)
    if a.dtype != b.dtype:
        b = b.to(a.dtype)
    if left:
        return written(_C._linalg_solve_triangular(a, b, upper, unitriangular), out)
    return written(columns(_C._linalg_solve_triangular(a.mT, b.mT, not upper, unitriangular).mT), out)


@in_float32
def triangular_solve(b, A, upper=True, transpose=False, unitriangular=False, *, out=None):  # noqa: N803
    """solve_triangular with the arguments of old, and the matrix beside the solution."""
    for t, letter in ((b, "b"), (A, "A")):
        if t.dim() < 2:
            raise RuntimeError(
                f"torch.triangular_solve: Expected {letter} to have at least 2 dimensions, but it has {t.dim()} dimensions "
                "instead"
            )
    _check_solver(A, b, "triangular_solve")
    a = A.mT if transpose else A
    solution = solve_triangular(a, b, upper=upper != transpose, unitriangular=unitriangular)
    return written(_triangular_solve(solution, columns(A.expand(*solution.shape[:-2], *A.shape[-2:])).clone()), out)


@in_float32
def inv_ex(A, *, check_errors=False, out=None):  # noqa: N803
    """The inverse, and whether there is none."""
    check_floats(A, "linalg.inv")
    check_square(A, "linalg.inv")
    inverse, info = _C._linalg_solve(A, _eye(A).expand(A.shape))
    if check_errors:
        check_info(info, "linalg.inv_ex", _SINGULAR)
    return written(_inv_ex(inverse, info), out, True)


@in_float32
def inv(A, *, out=None):  # noqa: N803
    """The inverse."""
    inverse, info = inv_ex(A)
    check_info(info, "linalg.inv", _SINGULAR)
    return written(inverse, out, True)


# ---- determinants ----


def det(A, *, out=None):  # noqa: N803
    """The determinant."""
    check_floats(A, "linalg.det")
    check_square(A, "linalg.det")
    return written(_C.linalg_det(A), out)


def slogdet(A, *, out=None):  # noqa: N803
    """The determinant's sign and the logarithm of its size."""
    check_floats(A, "linalg.slogdet")
    check_square(A, "linalg.slogdet")
    return written(_slogdet(*_C.linalg_slogdet(A)), out)


def logdet(input):
    """log det; NaN where the determinant is negative."""
    check_floats(input, "logdet")
    check_square(input, "logdet")
    sign, size = _C.linalg_slogdet(input)
    if input.is_complex():
        return sign.log() + size
    return _C.where(sign == -1, _C.tensor(math.nan, dtype=input.dtype, device=input.device), size)


# ---- orthogonal factors ----


@in_float32
def qr(A, mode="reduced", *, out=None):  # noqa: N803
    """Q with orthogonal columns and a triangle R: A = Q R."""
    check_floats(A, "linalg.qr")
    check_dims(A, "linalg.qr")
    return written(_qr(*_C.linalg_qr(A, mode)), out)


@in_float32
def old_qr(input, some=True, *, out=None):
    """linalg.qr, reduced or complete."""
    q, r = qr(input, "reduced" if some else "complete")
    return written(_old_qr(q, r), out)


@in_float32
def householder_product(input, tau, *, out=None):
    """The first columns of the product of the reflections that geqrf's vectors and factors stand for."""
    name = "torch.linalg.householder_product"
    if input.dim() < 2:
        raise RuntimeError(f"{name}: input must have at least 2 dimensions.")
    if input.size(-2) < input.size(-1):
        raise RuntimeError(f"{name}: input.shape[-2] must be greater than or equal to input.shape[-1]")
    if input.size(-1) < tau.size(-1):
        raise RuntimeError(f"{name}: input.shape[-1] must be greater than or equal to tau.shape[-1]")
    if input.dim() - tau.dim() != 1:
        raise RuntimeError(
            f"{name}: Expected tau to have one dimension less than input, but got tau.ndim equal to {tau.dim()} and "
            f"input.ndim is equal to {input.dim()}"
        )
    if tau.dtype != input.dtype:
        raise RuntimeError(f"{name}: tau dtype {legacy(tau)} does not match input dtype {legacy(input)}")
    return written(_C.linalg_householder_product(input, tau), out)


def _check_ormqr(input, tau, other, left):
    def expect(holds, text):
        if not holds:
            raise RuntimeError(f"torch.ormqr: {text}")

    expect(input.dim() >= 2, "input must have at least 2 dimensions.")
    expect(other.dim() >= 2, "other must have at least 2 dimensions.")
    at = -2 if left else -1
    expect(other.size(at) == input.size(-2), f"other.shape[{at}] must be equal to input.shape[-2]")
    expect(
        tau.size(-1) == min(other.size(at), input.size(-1)),
        f"tau.shape[-1] must be equal to min(other.shape[{at}], input.shape[-1])",
    )
    expect(
        input.dim() - tau.dim() == 1,
        f"Expected tau to have one dimension less than input, but got tau.ndim equal to {tau.dim()} and input.ndim is "
        f"equal to {input.dim()}",
    )
    expect(
        input.dim() == other.dim(),
        f"Expected other to have the same number of dimensions as input, but got other.ndim equal to {other.dim()} and "
        f"input.ndim is equal to {input.dim()}",
    )
    for name, t in (("tau", tau), ("other", other)):
        lead = t.shape[: input.dim() - 2]
        expect(
            input.shape[:-2] == lead,
            f"Expected batch dimensions of {name} to be equal to input.shape[:-2], but got {list(lead)}",
        )
        expect(
            t.dtype == input.dtype,
            f"Expected input and {name} to have the same dtype, but input has dtype{legacy(input)} and {name} has dtype "
            f"{legacy(t)}",
        )
    if input.dtype not in (_C.float32, _C.float64, _C.complex64, _C.complex128):
        raise NotImplementedError(f"\"ormqr_cpu\" not implemented for '{legacy(input)}'")


@in_float32
def ormqr(input, tau, other, left=True, transpose=False, *, out=None):
    """`other` times the Q that geqrf's vectors and factors stand for."""
    _check_ormqr(input, tau, other, left)
    rows, given = input.shape[-2:]
    square = (
        input[..., :rows] if given >= rows else _C.cat([input, input.new_zeros((*input.shape[:-1], rows - given))], -1)
    )
    q = _C.linalg_householder_product(square, tau)
    q = q.mH if transpose else q
    return written(columns(q @ other if left else other @ q), out)


def _check_eigh(A, UPLO, name):  # noqa: N803
    check_floats(A, name)
    check_square(A, name)
    if str(UPLO).upper() not in ("L", "U"):
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")


@in_float32
def eigh(A, UPLO="L", *, out=None):  # noqa: N803
    """Eigenvalues, ascending, and vectors, as columns, of symmetric matrices."""
    _check_eigh(A, UPLO, "linalg.eigh")
    return written(_eigh(*_C._linalg_eigh(A, UPLO)), out, True)


def _check_eig(A):  # noqa: N803
    check_square(A, "linalg.eig")
    if not A.is_complex() and not A.is_floating_point():
        raise RuntimeError(f"Unknown Complex ScalarType for {legacy(A)}")
    check_kernel(A, "linalg_eig_out_cpu")


@in_float32
def eig(A, *, out=None):  # noqa: N803
    """Eigenvalues and vectors, as columns, of any square matrices: complex, in no order."""
    _check_eig(A)
    return written(_eig(*_C._linalg_eig(A)), out)


@in_float32
def eigvals(A, *, out=None):  # noqa: N803
    """The eigenvalues alone."""
    _check_eig(A)
    return written(_C._linalg_eig(A)[0], out)


@in_float32
def eigvalsh(A, UPLO="L", *, out=None):  # noqa: N803
    """The eigenvalues alone."""
    check_square(A, "linalg.eigh")
    check_kernel(A, "linalg_eigh_cpu")
    _check_eigh(A, UPLO, "linalg.eigh")
    return written(_C._linalg_eigh(A, UPLO, False)[0], out)


def _check_svd(A, driver):  # noqa: N803
    check_floats(A, "linalg.svd", False)
    check_dims(A, "linalg.svd")
    check_kernel(A, "linalg_svd_cpu")
    if driver is not None and A.device.type == "cpu":
        raise RuntimeError(
            "torch.linalg.svd: keyword argument `driver=` is only supported on CUDA inputs with cuSOLVER backend."
        )


@in_float32
def svd(A, full_matrices=True, *, driver=None, out=None):  # noqa: N803
    """U, the singular values, descending, and V^H."""
    _check_svd(A, driver)
    return written(_svd(*_C._linalg_svd(A, full_matrices)), out)


@in_float32
def svdvals(A, *, driver=None, out=None):  # noqa: N803
    """The singular values alone."""
    _check_svd(A, driver)
    return written(_C._linalg_svd(A, False, False)[1], out)


@in_float32
def old_svd(input, some=True, compute_uv=True, *, out=None):
    """linalg.svd with V in the place of V^H."""
    if input.dim() < 2:
        raise RuntimeError(
            f"linalg.svd: input should have at least 2 dimensions, but has {input.dim()} dimensions instead"
        )
    if compute_uv:
        u, s, vh = svd(input, not some)
    else:
        m, n = input.shape[-2:]
        s = svdvals(input)
        u, vh = input.new_zeros(*input.shape[:-2], m, m), input.new_zeros(*input.shape[:-2], n, n)
    return written(_old_svd(u, s, vh.mH), out)


# ---- least squares and ranks ----


def _threshold(A, largest, atol, rtol, name):  # noqa: N803
    """Below which singular values count as zero."""
    lead = largest.shape
    if rtol is None:
        eps = _C.finfo(A.dtype).eps * max(A.shape[-2:])
        nothing = atol is None or (not isinstance(atol, _C.Tensor) and atol <= 0)
        rtol = eps if nothing else 0.0
        if isinstance(atol, _C.Tensor):
            rtol = _C.where(atol > 0, 0.0, eps)
    atol = 0.0 if atol is None else atol
    atol, rtol = (
        t if isinstance(t, _C.Tensor) else _C.tensor(float(t), dtype=largest.dtype, device=A.device)
        for t in (atol, rtol)
    )
    return _C.maximum(atol.expand(lead) if atol.dim() == 0 else atol, rtol * largest)


def _sizes(A, hermitian):  # noqa: N803
    """Singular values, of Hermitian matrices in the order of the eigenvalues."""
    return eigvalsh(A).abs() if hermitian else svdvals(A)


def pinv(A, rcond=None, hermitian=False, *, atol=None, rtol=None, out=None):  # noqa: N803
    """The inverse of Moore and Penrose."""
    if A.dim() < 2 or not (A.is_floating_point() or A.is_complex()):
        raise RuntimeError(
            f"linalg.pinv({legacy(A)}{{{list(A.shape)}}}): expected a tensor with 2 or more dimensions of float, double, "
            "cfloat or cdouble types"
        )
    rtol = rcond if rtol is None else rtol
    if A.numel() == 0:
        return written(A.mT.clone(), out)
    atol, rtol = (
        t if t is None or isinstance(t, _C.Tensor) else _C.full((), float(t), dtype=A.real.dtype, device=A.device)
        for t in (atol, rtol)
    )
    return written(_C._linalg_pinv(A, atol, rtol, hermitian), out)


@in_float32
def matrix_rank(A, tol=None, hermitian=False, *, atol=None, rtol=None, out=None):  # noqa: N803
    """How many singular values are not zero."""
    check_dims(A, "torch.linalg.matrix_rank", " input")
    if A.dtype not in (_C.float32, _C.float64, _C.complex64, _C.complex128):
        raise RuntimeError("This function doesn't handle types other than float and double")
    if tol is not None:
        atol, rtol = tol, 0.0
    if A.numel() == 0:
        return written(_C.zeros(A.shape[:-2], dtype=_C.int64, device=A.device), out)
    size = _sizes(A.detach(), hermitian)
    least = _threshold(A, size.amax(-1), atol, rtol, "linalg.matrix_rank")
    return written((size > least.unsqueeze(-1)).sum(-1), out)


@in_float32
def lstsq(A, B, rcond=None, *, driver=None, out=None):  # noqa: N803
    """X with the least |A X - B|, the squares that are left, A's rank and its singular values."""
    if not (A.is_floating_point() or A.is_complex()):
        raise RuntimeError("This function doesn't handle types other than float and double")
    check_floats(A, "torch.linalg.lstsq")
    if A.dim() < 2:
        raise RuntimeError("torch.linalg.lstsq: input must have at least 2 dimensions.")
    if B.dim() < 1:
        raise RuntimeError("torch.linalg.lstsq: other must have at least 1 dimension.")
    if A.dtype != B.dtype:
        raise RuntimeError(
            "torch.linalg.lstsq: Expected input and other to have the same dtype, but got input's dtype "
            f"{legacy(A)} and other's dtype {legacy(B)}"
        )
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError("torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)")
    vector = A.dim() - 1 == B.dim() and A.shape[:-1] == B.shape
    b = B.unsqueeze(-1) if vector else B
    if A.size(-2) != b.size(-2):
        raise RuntimeError(
            f"torch.linalg.lstsq: input.size({'-2'}) should match other.size({'-1' if vector else '-2'})"
        )
    driver = driver or "gelsy"
    m, n = A.shape[-2:]
    if rcond is None:
        rcond = _C.finfo(A.dtype).eps * max(m, n)
    inverse = pinv(A, rtol=rcond) if driver != "gels" else pinv(A)
    a, wide = _batched(A, b)
    x = _C.matmul(inverse, b)
    rank = matrix_rank(A, rtol=rcond) if driver != "gels" else _C.empty((0,), dtype=_C.int64)
    values = svdvals(A.detach()) if driver in ("gelsd", "gelss") else A.real.new_empty((0,))
    whole = m > n and driver != "gelsy" and (driver == "gels" or bool((rank == n).all()))
    left = (a @ x - wide).abs().square().sum(-2) if whole else x.real.reshape(-1)[:0]
    return written(_lstsq(x.squeeze(-1) if vector else columns(x), left, rank, values), out)
