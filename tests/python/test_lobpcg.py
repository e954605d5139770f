"""lobpcg: eigenvalues, residuals and derivatives of symmetric matrices."""

import pytest

import wick


@pytest.fixture
def matrices():
    wick.manual_seed(0)
    a, b = (wick.randn(30, 30, dtype=wick.float64) for _ in range(2))
    return a + a.T, b @ b.T + 30 * wick.eye(30, dtype=wick.float64)


@pytest.mark.parametrize("largest", [True, False])
def test_outer_eigenvalues(matrices, largest):
    a, _ = matrices
    values, vectors = wick.lobpcg(a, k=3, largest=largest)
    every = wick.linalg.eigvalsh(a)
    assert wick.allclose(values, every.flip(0)[:3] if largest else every[:3])
    assert wick.allclose(a @ vectors, vectors * values, atol=1e-5)
    assert wick.allclose(vectors.T @ vectors, wick.eye(3, dtype=wick.float64))


def test_two_matrices(matrices):
    a, b = matrices
    values, vectors = wick.lobpcg(a, k=2, B=b)
    assert wick.allclose(a @ vectors, (b @ vectors) * values, atol=1e-5)
    assert wick.allclose(values, wick.linalg.eigvals(wick.linalg.solve(b, a)).real.sort(descending=True).values[:2])


def test_several_matrices_one_after_the_other(matrices):
    a = wick.stack(matrices)
    values, vectors = wick.lobpcg(a, k=2, X=wick.randn(2, 30, 2, dtype=wick.float64), niter=200)
    assert (values.shape, vectors.shape) == ((2, 2), (2, 30, 2))
    assert wick.allclose(values, wick.linalg.eigvalsh(a).flip(1)[:, :2])


def test_derivatives_are_those_of_the_whole_decomposition(matrices):
    a = matrices[0].requires_grad_()
    probe = wick.randn(30, 30, dtype=wick.float64)
    gradients = []
    for values, vectors in (wick.lobpcg(a, k=2, tol=1e-11), wick.linalg.eigh(a)):
        order = values.argsort(descending=True)[:2]
        found = values[order].sum() + (vectors[:, order].square() * probe[:, :2]).sum()
        gradient = wick.autograd.grad(found, a)[0]
        gradients.append(gradient + gradient.T)
    assert wick.allclose(*gradients, atol=1e-6)


def test_a_matrix_that_is_too_small():
    with pytest.raises(ValueError, match="smaller than 3 x the number"):
        wick.lobpcg(wick.eye(5), k=2)
