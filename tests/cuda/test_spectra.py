"""Singular values, and eigenvalues of symmetric matrices, by the device's own kernel: the CPU's values, vectors up to their
signs, errors."""

import pytest

import wick as torch

L = torch.linalg
pytestmark = pytest.mark.filterwarnings("error:.*will fall back.*")


@pytest.fixture(autouse=True)
def _without_library(monkeypatch):
    monkeypatch.setenv("WICK_CUSOLVER", "")


def close(found, wanted, limit=1e-12):
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    scale = max(wanted.abs().max().item(), 1e-300) if wanted.numel() else 1
    assert ((found - wanted).abs() <= limit * scale).all()


def is_orthonormal(columns, limit=1e-12):
    unit = torch.eye(columns.shape[-1], dtype=columns.dtype)
    assert ((columns.mT @ columns - unit).abs() <= limit).all()


def decomposed(a, full=False, limit=1e-12):
    u, s, vh = (t.cpu() for t in L.svd(a.cuda(), full_matrices=full))
    wanted = L.svd(a, full_matrices=full)
    for found, like in zip((u, s, vh), wanted, strict=True):
        assert found.shape == like.shape and found.dtype == like.dtype
    close(s, wanted[1], limit)
    k = s.shape[-1]
    close((u[..., :k] * s.unsqueeze(-2)) @ vh[..., :k, :], a, limit)
    is_orthonormal(u, limit)
    is_orthonormal(vh.mT, limit)
    close(L.svdvals(a.cuda()).cpu(), wanted[1], limit)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("size", [(1, 1), (5, 3), (3, 5), (2, 3, 4, 4), (3, 17, 6), (33, 40), (1, 7), (7, 1)])
def test_singular_values(size, full):
    torch.manual_seed(0)
    decomposed(torch.randn(size, dtype=torch.float64), full)


def test_of_small_floats():
    torch.manual_seed(1)
    decomposed(torch.randn(2, 12, 9), limit=1e-5)


@pytest.mark.parametrize("full", [False, True])
def test_without_full_rank(full):
    torch.manual_seed(2)
    x = torch.randn(9, 2, dtype=torch.float64)
    decomposed(x @ torch.randn(2, 6, dtype=torch.float64), full)
    decomposed(torch.zeros(4, 3, dtype=torch.float64), full)
    decomposed(torch.stack([torch.zeros(3, 5), torch.ones(3, 5), torch.randn(3, 5)]).double(), full)
    decomposed(torch.eye(4, dtype=torch.float64)[:, [1, 1, 2, 3]], full)


def test_rows_longer_than_what_a_warp_reads_ahead():
    torch.manual_seed(0)
    a = torch.randn(130, 130, dtype=torch.float64)
    close(L.svdvals(a.cuda()).cpu(), L.svdvals(a))


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_of_what_squares_do_not_hold(scale):
    torch.manual_seed(3)
    a = torch.randn(6, 4, dtype=torch.float64)
    decomposed(a * scale)
    a = a[:4] + a[:4].mT
    close(L.eigvalsh((a * scale).cuda()).cpu(), L.eigvalsh(a * scale))


def test_singular_values_that_lie_far_apart():
    torch.manual_seed(4)
    q, r = (L.qr(torch.randn(8, 8, dtype=torch.float64))[0] for _ in range(2))
    decomposed(q @ torch.diag(torch.logspace(0, -15, 8, dtype=torch.float64)) @ r)


@pytest.mark.parametrize("uplo", ["L", "U"])
@pytest.mark.parametrize("size", [(1, 1), (2, 2), (4, 4), (2, 3, 7, 7), (45, 45)])
def test_eigenvalues(size, uplo):
    torch.manual_seed(5)
    a = torch.randn(size, dtype=torch.float64)
    w, v = (t.cpu() for t in L.eigh(a.cuda(), UPLO=uplo))
    wanted = L.eigh(a, UPLO=uplo)[0]
    half = a.tril() if uplo == "L" else a.triu()
    whole = half + half.mT - torch.diag_embed(a.diagonal(dim1=-2, dim2=-1))
    close(w, wanted)
    close(whole @ v, v * w.unsqueeze(-2))
    is_orthonormal(v)
    close(L.eigvalsh(a.cuda(), UPLO=uplo).cpu(), wanted)


def test_eigenvalues_that_are_equal_or_opposite():
    for a in (
        torch.zeros(3, 3),
        torch.eye(5),
        torch.tensor([[0.0, 1, 0], [1, 0, 0], [0, 0, -1]]),
        torch.ones(6, 6),
    ):
        w, v = (t.cpu() for t in L.eigh(a.double().cuda()))
        close(w, L.eigvalsh(a.double()))
        is_orthonormal(v)
        assert ((a.double() @ v - v * w).abs() <= 1e-13).all()


def test_gradients():
    torch.manual_seed(6)
    a, found = torch.randn(2, 5, 4, dtype=torch.float64), []
    for device in "cpu", "cuda":
        x = a.detach().to(device).requires_grad_()
        u, s, vh = L.svd(x, full_matrices=False)
        w, v = L.eigh(x.mT @ x)
        (s.square().sum() + (u @ vh).sin().sum() + (w * w).sum() + v.abs().sum()).backward()
        found.append(x.grad.cpu())
    close(found[1], found[0], 1e-10)


def test_the_same_bits_each_time():
    torch.manual_seed(7)
    a = torch.randn(3, 20, 11, device="cuda")
    first, second = L.svd(a), L.svd(a)
    assert all(torch.equal(x, y) for x, y in zip(first, second, strict=True))


@pytest.mark.filterwarnings("default:.*will fall back.*")
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["svd", "eigh"])
def test_what_is_not_finite(name, value):
    a = torch.eye(3).repeat(2, 1, 1)
    a[1, 2, 2] = value
    said = []
    for device in "cpu", "cuda":
        with pytest.raises(L.LinAlgError) as error:
            getattr(L, name)(a.to(device))
        said.append(str(error.value))
    assert said[0] == said[1]


def test_what_is_made_of_them():
    torch.manual_seed(8)
    a, b = torch.randn(6, 4, dtype=torch.float64), torch.randn(6, 2, dtype=torch.float64)
    for f in L.pinv, L.matrix_rank, L.cond, lambda x: L.matrix_norm(x, 2), lambda x: L.matrix_norm(x, "nuc"):
        close(f(a.cuda()).cpu().double(), f(a).double())
    close((L.pinv(a.cuda()) @ b.cuda()).cpu(), L.lstsq(a, b).solution)
