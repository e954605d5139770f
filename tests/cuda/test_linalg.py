"""Linear algebra of small matrices on the device: the bits of the CPU's own routines, and nothing on the host."""

import os
import subprocess
import sys
import warnings

import pytest

import wick as torch

L = torch.linalg


@pytest.fixture(autouse=True)
def _on_the_device():
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*will fall back.*")
        yield


def matrices(*sizes, dtype=torch.float32):
    torch.manual_seed(sum(sizes))
    return torch.randn(*sizes, dtype=dtype)


def positive(*sizes, dtype=torch.float32):
    a = matrices(*sizes, dtype=dtype)
    return a @ a.mT + sizes[-1] * torch.eye(sizes[-1], dtype=dtype)


def flat(out):
    return list(out) if isinstance(out, (tuple, list)) else [out]


def same(f, *tensors, close=False):
    for wanted, found in zip(flat(f(*tensors)), flat(f(*(t.cuda() for t in tensors))), strict=True):
        assert found.is_cuda and found.dtype == wanted.dtype and found.shape == wanted.shape
        if close:
            assert torch.allclose(found.cpu(), wanted, rtol=1e-6)
        else:
            assert torch.equal(found.cpu(), wanted)


SIZES = [(1,), (2,), (5,), (3, 4), (2, 3, 17), (33,)]


def square(s):
    return (*s[:-1], s[-1], s[-1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("s", SIZES)
def test_factors(s, dtype):
    a, p = matrices(*square(s), dtype=dtype), positive(*square(s), dtype=dtype)
    same(L.lu_factor, a)
    same(L.lu, a)
    same(L.det, a)
    same(L.slogdet, a, close=True)
    same(L.cholesky, p)
    same(torch.geqrf, a)
    for mode in "reduced", "complete", "r":
        same(lambda x, mode=mode: tuple(L.qr(x, mode)), a)


@pytest.mark.parametrize("m, n", [(7, 3), (3, 7), (1, 4), (40, 2)])
def test_other_shapes(m, n):
    a = matrices(2, m, n)
    same(L.lu_factor, a)
    for mode in "reduced", "complete", "r":
        same(lambda x, mode=mode: tuple(L.qr(x, mode)), a)
    if m >= n:
        same(L.householder_product, a, matrices(2, n))
    same(L.lu_factor, a.mT)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("s", SIZES)
def test_solutions(s, dtype):
    a, b = positive(*square(s), dtype=dtype), matrices(*s, 3, dtype=dtype)
    same(L.solve, a, b)
    same(L.inv, a)
    same(lambda a, b: torch.cholesky_solve(b, L.cholesky(a)), a, b)
    same(lambda a, b: L.lu_solve(*L.lu_factor(a), b), a, b)
    for upper in False, True:
        for unit in False, True:
            f = lambda a, b, upper=upper, unit=unit: L.solve_triangular(a, b, upper=upper, unitriangular=unit)  # noqa: E731
            same(f, a, b)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n, k", [(32, 32), (32, 33), (31, 1), (20, 40), (33, 2), (70, 90), (150, 1)])
def test_widths_of_warps_and_blocks(n, k, dtype):
    count = 11 if n <= 32 else 2  # no multiple of the matrices that a block has
    a, b = matrices(count, n, n, dtype=dtype), matrices(count, n, k, dtype=dtype)
    same(L.solve, a, b)
    same(L.solve, a.mT, b)
    same(L.lu_factor, a)
    same(L.det, a / 4)
    same(L.inv, a)
    same(L.cholesky, positive(count, n, n, dtype=dtype))
    same(lambda a, b: L.solve_triangular(a, b, upper=True), a.triu() + n * torch.eye(n, dtype=dtype), b)


def test_pivots_that_are_equal_or_no_numbers():
    torch.manual_seed(0)
    for n in 6, 40:
        a = torch.randint(-2, 3, (5, n, n)).float()  # many of the same length
        a[1, :, 2] = float("nan")
        a[2, 0, 0] = float("inf")
        a[3, :, 1] = 0
        found, wanted = torch.linalg.lu_factor_ex(a.cuda()), torch.linalg.lu_factor_ex(a)
        for x, y in zip(found, wanted, strict=True):
            assert torch.allclose(x.cpu().double(), y.double(), rtol=0, atol=0, equal_nan=True)


def test_what_is_not_positive_definite_stops_where_the_cpu_stops():
    for n in 5, 32, 40:
        a = positive(3, n, n)
        a[1, 3, 3] = -1
        a[2, 0, 0] = float("nan")
        found, wanted = L.cholesky_ex(a.cuda()), L.cholesky_ex(a)
        assert found.info.tolist() == wanted.info.tolist() == [0, 4, 1]
        assert torch.equal(found.L[0].cpu(), wanted.L[0])
        assert torch.equal(found.L[1, :4].cpu(), wanted.L[1, :4])  # what lies below is as far as each has come


def test_numbers_that_overflow_when_squared_and_columns_of_zeros():
    a = matrices(4, 4, dtype=torch.float64)
    same(lambda x: tuple(L.qr(x)), a * 1e160)
    same(lambda x: tuple(L.qr(x)), a * 1e-160)
    a[:, 1] = 0
    same(lambda x: tuple(L.qr(x)), a)
    same(torch.linalg.lu_factor_ex, a)
    same(L.det, a)


def test_errors_are_the_cpus():
    a = torch.zeros(2, 2)
    for f in L.inv, L.cholesky, lambda x: L.solve(x, x):
        texts = []
        for device in "cpu", "cuda":
            with pytest.raises(L.LinAlgError) as error:
                f(a.to(device))
            texts.append(str(error.value))
        assert texts[0] == texts[1]
    info = L.cholesky_ex(torch.stack([torch.eye(3), -torch.eye(3)]).cuda()).info
    assert info.tolist() == [0, 1]


def test_gradients():
    a, b = positive(4, 4), matrices(4, 2)
    grads = []
    for device in "cpu", "cuda":
        x, y = (t.clone().to(device).requires_grad_() for t in (a, b))
        (L.solve(x, y).sum() + L.slogdet(x)[1] + L.cholesky(x).sum() + L.qr(x)[1].sum()).backward()
        grads.append((x.grad.cpu(), y.grad.cpu()))
    for ours, wanted in zip(*grads, strict=True):
        assert torch.allclose(ours, wanted, rtol=1e-4, atol=1e-5)


def test_in_a_graph():
    a, b = positive(3, 5, 5).cuda(), matrices(3, 5, 2).cuda()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        x, _ = L.solve_ex(a, b)
    a.copy_(positive(3, 5, 5).cuda() * 2)
    g.replay()
    assert torch.equal(x, L.solve(a, b))


def test_large_and_complex_ones_are_the_hosts():
    program = """
import wick as torch, warnings
for a in torch.eye(300).cuda(), torch.eye(3, dtype=torch.complex64).cuda():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert torch.allclose(torch.linalg.cholesky(a * 4), a * 2)
        print(sum("will fall back" in str(w.message) for w in seen))
"""
    env = {**os.environ, "WICK_CUSOLVER": ""}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False, timeout=200
    )
    assert done.stdout.split() == ["1", "0"], done.stderr  # a row warns once


def reconstructed(name, x):
    """(what the factors of a matrix come to, what they should), of factors from the device."""

    def there(f, *tensors):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # without the library the host's
            return [t.cpu() for t in flat(f(*(t.cuda() for t in tensors)))]

    one = torch.eye(x.shape[-2], dtype=x.dtype)
    if name == "cholesky":
        positive_one = x @ x.mH + 9 * one
        (lower,) = there(L.cholesky, positive_one)
        return lower @ lower.mH, positive_one
    if name == "lu":
        p, lower, upper = there(L.lu, x)
        return p @ lower @ upper, x
    if name == "solve":
        b = x[..., :5] + 1
        return x @ there(L.solve, x, b)[0], b
    if name == "inv":
        return x @ there(L.inv, x)[0], one.expand(x.shape)
    if name.startswith("qr"):
        q, r = there(lambda t: tuple(L.qr(t, name.split()[1])), x)
        assert torch.allclose(q.mH @ q, torch.eye(q.shape[-1], dtype=x.dtype), atol=1e-3)
        return q @ r, x
    if name.startswith("svd"):
        u, values, vh = there(lambda t: tuple(L.svd(t, full_matrices=name == "svd full")), x)
        (alone,) = there(L.svdvals, x)
        assert torch.allclose(alone, values, rtol=1e-4) and (values.diff(dim=-1) <= 0).all()
        for q in u, vh.mH:
            assert torch.allclose(q.mH @ q, torch.eye(q.shape[-1], dtype=x.dtype), atol=1e-3)
        rank = values.shape[-1]
        return (u[..., :rank] * values[..., None, :]) @ vh[..., :rank, :], x
    if name == "det":
        x = x / 17  # whose determinant no float is too small for
        sign, log = there(lambda t: tuple(L.slogdet(t)), x)
        wanted = L.slogdet(x.to(torch.complex128) if x.dtype.is_complex else x.double())
        assert torch.allclose(log.double(), wanted.logabsdet, atol=1e-2)
        assert torch.allclose(there(L.det, x)[0], sign * log.exp(), rtol=1e-3)
        return sign, wanted.sign.to(sign.dtype)
    x = x - 1j * torch.diag_embed(x.diagonal(dim1=-2, dim2=-1).imag) if x.dtype.is_complex else x
    read = (x.tril() + x.tril(-1).mH) if name[-1] == "L" else (x.triu() + x.triu(1).mH)
    values, vectors = there(lambda t: tuple(L.eigh(t, UPLO=name[-1])), x)
    assert (values.diff(dim=-1) >= 0).all()
    assert torch.allclose(there(lambda t: L.eigvalsh(t, UPLO=name[-1]), x)[0], values, atol=1e-2)
    return vectors * values[..., None, :] @ vectors.mH, read


FACTORS = ["cholesky", "lu", "solve", "inv", "det", "qr reduced", "qr complete", "eigh L", "eigh U", "svd", "svd full"]


def check_factors(name, dtype, sizes, others):
    for size in sizes + others * name.startswith(("qr", "svd")) + others[:1] * (name == "lu"):
        found, wanted = reconstructed(name, matrices(*size, dtype=dtype))
        assert (found - wanted).abs().max() < 30 * 300 * torch.finfo(dtype).eps * wanted.abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", FACTORS)
def test_large_ones(name, dtype):
    """By cuSOLVER where it is found, else on the host."""
    check_factors(name, dtype, [(300, 300), (2, 290, 290)], [(350, 270), (270, 350)])


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("name", FACTORS)
def test_complex_ones(name, dtype):
    check_factors(name, dtype, [(1, 1), (2, 17, 17), (60, 60)], [(9, 5), (5, 9)])


@pytest.mark.filterwarnings("error:.*will fall back.*")
def test_the_exponential_of_a_matrix():
    torch.manual_seed(0)
    for size, dtype in (
        ((4, 4), torch.float64),
        ((2, 3, 9, 9), torch.float64),
        ((5, 5), torch.complex128),
        ((0, 0), torch.float64),
    ):
        a = torch.randn(size, dtype=dtype) * 3
        wanted, found = L.matrix_exp(a), L.matrix_exp(a.cuda())
        assert found.dtype == dtype and torch.allclose(found.cpu(), wanted, rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.complex128])
@pytest.mark.parametrize("s", SIZES)
def test_indefinite_factors(s, dtype):
    a, b = matrices(*square(s), dtype=dtype), matrices(*s, 3, dtype=dtype)
    tolerance = 1e-3 if dtype in (torch.float32, torch.complex64) else 1e-9
    for hermitian in False, True:
        full = a + (a.mH if hermitian else a.mT)
        if not dtype.is_complex:
            same(lambda x, hermitian=hermitian: tuple(L.ldl_factor_ex(x, hermitian=hermitian)), full)
        found, wanted = L.ldl_factor_ex(full.cuda(), hermitian=hermitian), L.ldl_factor_ex(full, hermitian=hermitian)
        assert torch.equal(found.pivots.cpu(), wanted.pivots) and found.info.is_cuda
        assert torch.allclose(found.LD.cpu(), wanted.LD, rtol=tolerance, atol=tolerance)
        x = L.ldl_solve(found.LD, found.pivots, b.cuda(), hermitian=hermitian)
        assert x.is_cuda
        assert torch.allclose(full @ x.cpu(), b, rtol=tolerance, atol=tolerance)
    zeros = torch.zeros(2, 3, 3, dtype=dtype)
    assert L.ldl_factor_ex(zeros.cuda()).info.tolist() == L.ldl_factor_ex(zeros).info.tolist() == [1, 1]


def test_pivots_that_are_none():
    a, b = torch.eye(3).cuda(), torch.ones(3, 1).cuda()
    with pytest.raises(RuntimeError, match="pivots are not those of ldl_factor"):
        L.ldl_solve(a, torch.tensor([1, 2, -3], dtype=torch.int32).cuda(), b)
