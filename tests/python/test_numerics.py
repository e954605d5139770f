"""What docs/numerics.md promises of Fourier transforms, linear algebra and sums, measured as LAPACK's tests do: a residual
over the size of what was computed, the machine's epsilon and n. The bounds are several times what was seen (in the page).
With LAPACK and without, where one is found: it is told by the environment, so that each runs in a process of its own."""

import os
import subprocess
import sys

import numpy as np
import pytest

import wick
from wick import linalg

EPS = {wick.float32: 2.0**-23, wick.float64: 2.0**-52}
EXACT = {wick.float32: np.float64, wick.float64: np.longdouble}
SIZES = 5, 64, 200


def norm(a):
    """The largest sum of a column's absolute values."""
    return np.abs(a).sum(axis=0).max()


def exact(t):
    return t.numpy().astype(EXACT[t.dtype])


def ratio(residual, a, t):
    return float(norm(residual) / (norm(a) * EPS[t.dtype] * len(a)))


def orthogonality(q, t):
    return float(norm(q.T @ q - np.eye(q.shape[1])) / (EPS[t.dtype] * len(q)))


def lu(a):
    p, lower, u = (exact(x) for x in linalg.lu(a))
    return [ratio(exact(a) - p @ lower @ u, exact(a), a)]


def cholesky(a):
    a = a @ a.mT + len(a) * wick.eye(len(a), dtype=a.dtype)
    lower = exact(linalg.cholesky(a))
    return [ratio(exact(a) - lower @ lower.T, exact(a), a)]


def qr(a):
    q, r = (exact(x) for x in linalg.qr(a))
    return [ratio(exact(a) - q @ r, exact(a), a), orthogonality(q, a)]


def svd(a):
    u, s, vh = (exact(x) for x in linalg.svd(a))
    return [ratio(exact(a) - (u * s) @ vh, exact(a), a), orthogonality(u, a), orthogonality(vh.T, a)]


def eigh(a):
    a = a + a.mT
    values, vectors = (exact(x) for x in linalg.eigh(a))
    return [ratio(exact(a) @ vectors - vectors * values, exact(a), a), orthogonality(vectors, a)]


def solve(a):
    b = wick.randn(len(a), 3, dtype=a.dtype)
    x = exact(linalg.solve(a, b))
    residual = exact(a) @ x - exact(b)
    return [float(norm(residual) / (norm(exact(a)) * norm(x) * EPS[a.dtype] * len(a)))]


ROUTINES = {f.__name__: f for f in (lu, cholesky, qr, svd, eigh, solve)}


def ratios():
    """{routine, dtype: the largest ratio}"""
    wick.manual_seed(0)
    return {
        (name, str(dtype)): max(max(f(wick.randn(n, n, dtype=dtype))) for n in SIZES)
        for name, f in ROUTINES.items()
        for dtype in EPS
    }


@pytest.mark.parametrize("lapack", ["found", ""], ids=["library", "own"])
def test_ratios_of_linear_algebra(lapack):
    environment = dict(os.environ, WICK_LAPACK="") if lapack == "" else os.environ
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [line.split() for line in done.stdout.splitlines()]
    assert len(rows) == len(ROUTINES) * len(EPS)
    for name, dtype, value in rows:
        assert float(value) < 3, (name, dtype, value)


def fft_errors(n, dtype):
    """The relative errors of a transform and of the way there and back, in the 2-norm, in epsilons times log2(n)."""
    wick.manual_seed(0)
    x = wick.complex(wick.randn(n, dtype=dtype), wick.randn(n, dtype=dtype))
    y = wick.fft.fft(x)
    back = np.linalg.norm(wick.fft.ifft(y).numpy() - x.numpy()) / np.linalg.norm(x.numpy())
    unit = EPS[dtype] * max(np.log2(n), 1)
    if dtype is wick.float64:
        return [float(back / unit)]
    wanted = np.fft.fft(x.numpy().astype(np.complex128))
    error = np.linalg.norm(y.numpy() - wanted) / np.linalg.norm(wanted)
    return [float(error / unit), float(back / unit)]


@pytest.mark.parametrize("dtype", EPS, ids=str)
@pytest.mark.parametrize("n", [2, 64, 1000, 1009, 2**14, 10007])
def test_fourier_transforms(n, dtype):
    assert max(fft_errors(n, dtype)) < 1


@pytest.mark.parametrize("n", [100, 4096, 10**6])
def test_sums_of_floats(n):
    """Chains of n / 32 in a chunk of 4096, then halves: far fewer roundings than elements."""
    wick.manual_seed(0)
    x = wick.rand(n)
    wanted = x.numpy().astype(np.float64).sum()
    roundings = min(n, 4096) / 32 + 5 + max(np.log2(n / 4096), 0)
    assert abs(x.sum().item() - wanted) <= roundings * 2.0**-24 * wanted


if __name__ == "__main__":
    for (name, dtype), value in ratios().items():
        print(name, dtype, value)
