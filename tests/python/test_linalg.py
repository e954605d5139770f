"""torch.linalg: factorisations give back their matrix, solutions solve, derivatives are finite differences'."""

import math

import pytest

import wick
from wick.autograd import gradcheck

linalg = wick.linalg


def random(*shape, dtype=wick.float64):
    wick.manual_seed(5)
    return wick.randn(*shape, dtype=dtype)


def positive(*shape):
    a = random(*shape)
    return a @ a.mT + 2 * wick.eye(shape[-1], dtype=a.dtype)


SHAPES = [(3, 3), (5, 3), (3, 5), (2, 4, 4), (2, 0, 3), (0, 3, 3), (1, 1), (2, 3, 2, 4)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [wick.float32, wick.float64], ids=str)
def test_factors_multiply_to_the_matrix(shape, dtype):
    a = random(*shape, dtype=dtype)
    close = {"atol": 1e-5 if dtype == wick.float32 else 1e-12}
    p, lower, upper = linalg.lu(a)
    assert wick.allclose(p @ lower @ upper, a, **close)
    q, r = linalg.qr(a)
    assert wick.allclose(q @ r, a, **close)
    q, r = linalg.qr(a, mode="complete")
    assert wick.allclose(q @ r, a, **close) and q.shape[-2:] == (shape[-2], shape[-2])
    for whole in (False, True):
        u, s, vh = linalg.svd(a, whole)
        k = min(shape[-2:])
        assert wick.allclose((u[..., :k] * s.unsqueeze(-2)) @ vh[..., :k, :], a, **close)
        assert wick.allclose(u.mT @ u, wick.eye(u.size(-1), dtype=dtype).expand(*shape[:-2], -1, -1), **close)
        assert bool((s.diff() <= 0).all())


@pytest.mark.parametrize("shape", [(3, 3), (2, 5, 5), (0, 3, 3), (2, 0, 0)], ids=str)
def test_symmetric_matrices(shape):
    a = positive(*shape)
    lower = linalg.cholesky(a)
    assert wick.allclose(lower @ lower.mT, a) and wick.equal(lower, lower.tril())
    assert wick.allclose(linalg.cholesky(a, upper=True), lower.mT)
    values, vectors = linalg.eigh(a)
    assert wick.allclose(vectors * values.unsqueeze(-2), a @ vectors)
    assert wick.allclose(linalg.eigvalsh(a, UPLO="U"), values) and bool((values.diff() >= 0).all())
    b = random(*shape[:-1], 2)
    assert wick.allclose(wick.cholesky_solve(b, lower), linalg.solve(a, b))


def test_rank_one_and_zero_matrices():
    ones = wick.ones(4, 3, dtype=wick.float64)
    u, s, vh = linalg.svd(ones, full_matrices=False)
    assert wick.allclose(s, wick.tensor([math.sqrt(12), 0, 0], dtype=wick.float64), atol=1e-12)
    assert wick.allclose(u.mT @ u, wick.eye(3, dtype=wick.float64), atol=1e-12)
    assert linalg.matrix_rank(ones).item() == 1 and linalg.matrix_rank(ones * 0).item() == 0
    assert wick.allclose(linalg.pinv(ones), wick.full((3, 4), 1 / 12, dtype=wick.float64))
    assert linalg.det(wick.ones(2, 2)).item() == 0
    assert linalg.slogdet(wick.zeros(2, 2)).logabsdet.item() == -math.inf


@pytest.mark.parametrize("left", [True, False])
def test_solutions_solve(left):
    a, b = random(2, 3, 3), random(3, 3)
    x = linalg.solve(a, b, left=left)
    assert wick.allclose(a @ x if left else x @ a, b.expand(2, 3, 3))
    lu, pivots = linalg.lu_factor(a)
    assert wick.allclose(linalg.lu_solve(lu, pivots, b, left=left), x)
    back = linalg.lu_solve(lu, pivots, b, left=left, adjoint=True)
    assert wick.allclose(a.mT @ back if left else back @ a.mT, b.expand(2, 3, 3))
    t = linalg.solve_triangular(a.triu(), b, upper=True, left=left)
    assert wick.allclose(a.triu() @ t if left else t @ a.triu(), b.expand(2, 3, 3))
    assert wick.allclose(linalg.inv(a) @ a, wick.eye(3, dtype=a.dtype).expand(2, 3, 3))
    assert wick.allclose(linalg.solve(a, random(2, 3)), linalg.solve(a, random(2, 3).unsqueeze(-1)).squeeze(-1))


def test_least_squares():
    a, b = random(5, 3), random(5, 2)
    x = linalg.lstsq(a, b).solution
    assert wick.allclose(a.mT @ (a @ x - b), wick.zeros(3, 2, dtype=a.dtype), atol=1e-12)
    assert linalg.lstsq(a, b, driver="gelsd").rank.item() == 3


def test_what_has_no_solution_says_so():
    singular = wick.ones(2, 2)
    with pytest.raises(
        linalg.LinAlgError, match="torch.linalg.solve: The solver failed because the input matrix is singular."
    ):
        linalg.solve(singular, wick.ones(2))
    with pytest.raises(linalg.LinAlgError, match="linalg.inv: The diagonal element 2 is zero"):
        linalg.inv(singular)
    with pytest.raises(linalg.LinAlgError, match="Batch element 1.*leading minor of order 1 is not positive-definite"):
        linalg.cholesky(wick.stack([wick.eye(2), -wick.eye(2)]))
    assert linalg.inv_ex(singular).info.item() == 2
    for refused in (linalg.inv, linalg.det, linalg.eigh, linalg.cholesky):
        with pytest.raises(RuntimeError, match="A must be batches of square matrices, but they are 2 by 3 matrices"):
            refused(wick.ones(2, 3))


DERIVATIVES = {
    "cholesky": lambda a: linalg.cholesky(a @ a.mT + wick.eye(3, dtype=a.dtype)),
    "eigh": lambda a: [t.abs() for t in linalg.eigh(a + a.mT)],
    "svd": lambda a: [t.abs() for t in linalg.svd(a, False)],
    "svdvals": linalg.svdvals,
    "pinv": linalg.pinv,
    "inv": linalg.inv,
    "lu": lambda a: list(linalg.lu(a))[1:],
    "qr": lambda a: list(linalg.qr(a)),
    "matrix_exp": linalg.matrix_exp,
    "lstsq": lambda a: linalg.lstsq(a, random(3, 2)).solution,
    "slogdet": lambda a: linalg.slogdet(a).logabsdet,
    "det": linalg.det,
    "matrix_power": lambda a: linalg.matrix_power(a, -3),
    "nuclear norm": lambda a: wick.norm(a, "nuc"),
    "cond": linalg.cond,
    "householder": lambda a: linalg.solve_triangular(a, random(3, 2), upper=False),
}


@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives(name):
    assert gradcheck(DERIVATIVES[name], (random(3, 3).requires_grad_(),))


@pytest.mark.parametrize("shape", [(4, 3), (3, 4)], ids=str)
@pytest.mark.parametrize("name", ["svd", "svdvals", "pinv", "lu", "qr"])
def test_derivatives_of_matrices_that_are_not_square(name, shape):
    assert gradcheck(DERIVATIVES[name], (random(*shape).requires_grad_(),))


def test_products_of_reflections():
    a, b = random(4, 3), random(4, 2)
    vectors, factors = wick.geqrf(a)
    q = linalg.householder_product(vectors, factors)
    assert wick.allclose(q @ vectors[:3].triu(), a)
    assert wick.allclose(wick.ormqr(vectors, factors, b, transpose=True)[:3], q.mT @ b)
    inputs = (vectors.requires_grad_(), factors.requires_grad_())
    assert wick.allclose(linalg.householder_product(*inputs), q) and gradcheck(linalg.householder_product, inputs)
    assert gradcheck(wick.ormqr, (*inputs, b.requires_grad_()))


def test_norms():
    a = wick.tensor([[1.0, -2.0], [3.0, 4.0]])
    assert [linalg.norm(a, p).item() for p in (1, -1, math.inf, -math.inf)] == [6.0, 4.0, 7.0, 3.0]
    assert wick.allclose(linalg.matrix_norm(a), a.pow(2).sum().sqrt())
    assert wick.allclose(linalg.norm(a, 2), linalg.svdvals(a)[0])
    assert linalg.norm(a, dim=1).shape == (2,) and linalg.matrix_norm(a, 1, keepdim=True).shape == (1, 1)
    with pytest.raises(RuntimeError, match="linalg.matrix_norm: Order 3 not supported."):
        linalg.matrix_norm(a, 3)


def test_products():
    x = wick.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    assert linalg.cross(x, wick.tensor([[0.0, 1.0, 0.0]])).tolist() == [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    assert linalg.vecdot(x, x).tolist() == [1.0, 1.0]
    assert linalg.vander(wick.tensor([2, 3]), N=3).tolist() == [[1, 2, 4], [1, 3, 9]]
    turn = wick.tensor([[0.0, -1.0], [1.0, 0.0]])
    assert wick.allclose(linalg.matrix_exp(turn * math.pi), -wick.eye(2), atol=1e-6)
    assert linalg.matrix_power(turn, 4).tolist() == wick.eye(2).tolist()
    a = wick.eye(6).reshape(2, 3, 6)
    assert wick.allclose(linalg.tensorsolve(a, wick.ones(2, 3)), wick.ones(6))
    assert linalg.tensorinv(a, 2).shape == (6, 2, 3)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: wick.geqrf(x)[0],
        lambda x: linalg.ldl_factor(x[:3] + wick.eye(3)).LD,
        lambda x: wick.special.zeta(x + 3, 2.5),
    ],
)
def test_what_has_no_derivative_says_so(call):
    """Where PyTorch has none either, or the Python function another way: no gradient is lost without a word."""
    y = call(wick.ones(4, 3, requires_grad=True))
    with pytest.raises(NotImplementedError, match="the derivative for .* is not implemented"):
        y.sum().backward()


@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_indefinite_matrices(n):
    wick.manual_seed(n)
    a = wick.randn(2, n, n, dtype=wick.float64)
    a = a + a.mT
    a[0] -= wick.diag(a[0].diagonal())  # nothing on the diagonal: blocks of two
    b = wick.randn(2, n, 3, dtype=wick.float64)
    if n == 1:
        a[0] = 2
    factors, pivots = linalg.ldl_factor(a)
    assert pivots.dtype == wick.int32 and factors.stride()[-2:] == (1, n)
    assert wick.allclose(a @ linalg.ldl_solve(factors, pivots, b), b)
    assert linalg.ldl_factor_ex(wick.zeros(2, 2)).info.item() == 1
    with pytest.raises(RuntimeError, match="pivots are not those of ldl_factor"):
        linalg.ldl_solve(factors, pivots * 0, b)
    with pytest.raises(RuntimeError, match="pivots are not those of ldl_factor"):
        linalg.ldl_solve(factors, pivots * 0 - 77, b)


@pytest.mark.parametrize("shape", [(4, 3), (3, 4), (2, 3, 3)], ids=str)
def test_derivatives_of_inverses(shape):
    a = random(*shape).requires_grad_()
    assert gradcheck(linalg.pinv, (a,)) and wick.autograd.gradgradcheck(linalg.pinv, (a,))
    b = wick.randn(*shape[:-1], 2, dtype=wick.float64, requires_grad=True)
    for driver in ("gels", "gelsy", "gelsd"):
        assert gradcheck(lambda a, b, driver=driver: linalg.lstsq(a, b, driver=driver)[:2], (a, b))
    assert linalg.lstsq(a, b).residuals.requires_grad


def test_pinv_where_values_are_zero():
    a = wick.tensor([[1.0, 2.0], [2.0, 4.0], [0.0, 0.0]], dtype=wick.float64, requires_grad=True)
    inverse = linalg.pinv(a)
    (inverse * wick.arange(1.0, 7.0, dtype=wick.float64).reshape(2, 3)).sum().backward()
    expected = wick.tensor([[-0.0464, -0.0608], [-0.1408, -0.2176], [0.12, 0.24]], dtype=wick.float64)
    assert wick.allclose(a.grad, expected)
    zero = wick.zeros(2, 2, dtype=wick.float64, requires_grad=True)
    linalg.pinv(zero).sum().backward()
    assert wick.equal(zero.grad, wick.zeros_like(zero))


def test_the_gradient_of_a_factor_is_the_whole_matrix():
    factor = wick.tensor([[2.0, 0.5], [1.0, 3.0]], dtype=wick.float64, requires_grad=True)
    b = wick.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=wick.float64, requires_grad=True)
    (wick.cholesky_solve(b, factor) * wick.tensor([[1.0, 2.0], [3.0, 5.0]])).sum().backward()
    expected = wick.tensor([[-0.722222, -1.012346], [-1.055556, -1.503086]], dtype=wick.float64)
    assert wick.allclose(factor.grad, expected, atol=1e-6)


def test_the_determinant_of_a_singular_matrix_has_a_gradient_of_zeros():
    a = wick.tensor([[1.0, 2.0], [2.0, 4.0]], requires_grad=True)
    linalg.det(a).backward()
    assert wick.equal(a.grad, wick.zeros(2, 2))


def test_reflections_have_derivatives():
    v, tau = random(4, 3).requires_grad_(), random(2).requires_grad_()
    assert gradcheck(linalg.householder_product, (v, tau))
    assert wick.autograd.gradgradcheck(linalg.householder_product, (v, tau))
    other = wick.randn(4, 2, dtype=wick.float64, requires_grad=True)
    three = random(3).requires_grad_()
    for turned in (False, True):
        assert gradcheck(lambda *t, turned=turned: wick.ormqr(*t, True, turned), (v, three, other))


def test_results_with_names_have_one_class():
    a = wick.eye(3) * 2
    for f in (lambda: wick.lu_unpack(*wick.linalg.lu_factor(a)), lambda: wick.triangular_solve(a, a), a.qr, a.svd):
        assert type(f()) is type(f()) is type(wick.compile(f)())
