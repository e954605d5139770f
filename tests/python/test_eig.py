"""linalg.eig of matrices that are not symmetric: A V = V diag(w), pairs of conjugates, repeated and missing vectors."""

import numpy as np
import pytest

import wick as torch


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 20, 60])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.complex128])
def test_pairs(n, dtype):
    a = torch.randn(3, n, n, dtype=dtype, generator=torch.Generator().manual_seed(n))
    values, vectors = torch.linalg.eig(a)
    wide = a.to(values.dtype)
    close = 1e-3 if values.dtype == torch.complex64 else 1e-10
    assert torch.allclose(wide @ vectors, vectors * values.unsqueeze(-2), rtol=close, atol=close)
    assert torch.allclose(vectors.abs().square().sum(-2), torch.ones(3, n, dtype=values.real.dtype), rtol=1e-4)
    expected = np.linalg.eigvals(a.numpy().astype("complex128"))
    for own, theirs in zip(torch.linalg.eigvals(a).numpy(), expected, strict=True):
        assert max(abs(theirs - v).min() for v in own) < close
        assert max(abs(own - v).min() for v in theirs) < close


def test_of_special_forms():
    turn = torch.linalg.eigvals(torch.tensor([[0.0, -1.0], [1.0, 0.0]])).tolist()
    assert sorted(v.imag for v in turn) == pytest.approx([-1, 1])
    assert torch.linalg.eigvals(torch.zeros(4, 4)).tolist() == [0j] * 4
    assert np.allclose(
        torch.linalg.eigvals(torch.eye(3) + torch.eye(3).roll(1, 1).triu(), out=None).numpy(), 1, atol=1e-2
    )
    cycle = torch.linalg.eigvals(torch.eye(6, dtype=torch.float64).roll(1, 0))
    assert torch.allclose(cycle**6, torch.ones(6, dtype=torch.complex128))
    assert torch.linalg.eig(torch.zeros(0, 0)).eigenvalues.shape == (0,)
    assert (torch.linalg.eigvals(torch.diag(torch.tensor([3.0, -1.0]))).imag == 0).all()


def test_refuses():
    with pytest.raises(RuntimeError, match="must be batches of square matrices"):
        torch.linalg.eig(torch.ones(2, 3))
    with pytest.raises(RuntimeError):
        torch.linalg.eig(torch.full((2, 2), float("nan")))
