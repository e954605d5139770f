"""Fourier transforms: compiled code and any number of threads have the same bits, derivatives against finite differences,
lengths with large factors. Against PyTorch: tests/parity/test_fft_parity.py."""

import cmath
import math

import numpy as np
import pytest

import wick as torch
from wick import _C


def signal(*shape, dtype=torch.complex128):
    generator = np.random.default_rng(sum(shape))
    return torch.from_numpy(generator.standard_normal(shape) + 1j * generator.standard_normal(shape)).to(dtype)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 13, 17, 30, 34, 49, 101])
def test_is_the_sum_that_defines_it(n):
    x = signal(n)
    expected = [sum(v * cmath.exp(-2j * math.pi * j * k / n) for j, v in enumerate(x.tolist())) for k in range(n)]
    assert np.allclose(torch.fft.fft(x).numpy(), expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("n", [16, 37, 60, 1009])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_there_and_back(n, dtype):
    x = signal(3, n, dtype=dtype)
    close = 1e-5 if dtype == torch.complex64 else 1e-12
    assert torch.allclose(torch.fft.ifft(torch.fft.fft(x)), x, rtol=0, atol=close)
    assert torch.allclose(torch.fft.irfft(torch.fft.rfft(x.real), n), x.real, rtol=0, atol=close)


@pytest.mark.parametrize("n", [2**16, 2**17, 3 * 5 * 7 * 1024, 67 * 1024, 2**16 + 1])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_long_rows(n, dtype):
    x = signal(n, dtype=dtype)
    expected = np.fft.fft(x.numpy().astype(np.complex128))
    close = (1e-6 if dtype == torch.complex64 else 1e-14) * np.abs(expected).max()
    assert np.allclose(torch.fft.fft(x).numpy(), expected, rtol=0, atol=close)
    assert np.allclose(torch.fft.ifft(x).numpy() * n, np.roll(expected[::-1], 1), rtol=0, atol=close)
    assert same_bits(torch.fft.fft(torch.stack([x, 2 * x]))[0], torch.fft.fft(x))


def same_bits(a, b):
    return a.shape == b.shape and a.contiguous().numpy().tobytes() == b.contiguous().numpy().tobytes()


def test_a_row_does_not_depend_on_its_neighbours_or_on_threads():
    for n in (12, 37):
        x = signal(1000, n, dtype=torch.complex64)
        whole, threads = torch.fft.fft(x), torch.get_num_threads()
        assert all(same_bits(torch.fft.fft(x[row]), whole[row]) for row in (0, 17, 999))
        torch.set_num_threads(1)
        alone = torch.fft.fft(x)
        torch.set_num_threads(threads)
        assert same_bits(alone, whole)
        x[3] = math.nan
        assert same_bits(torch.fft.fft(x)[4], whole[4])


FUNCTIONS = [
    lambda z: torch.fft.fft(z), lambda z: torch.fft.ifft(z, 7, 0), lambda z: torch.fft.rfft(z.real), lambda z: torch.fft.irfft(z),
    lambda z: torch.fft.irfft(z, 5), lambda z: torch.fft.hfft(z, norm="ortho"), lambda z: torch.fft.ihfft(z.imag), lambda z: torch.fft.fft2(z),
    lambda z: torch.fft.rfft2(z.real, norm="forward"), lambda z: torch.fft.irfftn(z), lambda z: torch.fft.fft(torch.fft.fft(z.real, dim=-1), dim=-2).real,
    lambda z: torch.fft.fftshift(z, 1),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(FUNCTIONS)))
def test_derivatives(number):
    z = signal(3, 4).requires_grad_()
    assert torch.autograd.gradcheck(FUNCTIONS[number], (z,))
    assert torch.autograd.gradgradcheck(FUNCTIONS[number], (z,))


@pytest.mark.parametrize("number", range(len(FUNCTIONS)))
def test_compiled_has_the_same_bits(number):
    def loss(z):
        y = FUNCTIONS[number](z * 2)
        return y, (y.abs() if y.is_complex() else y).sum()

    def gradient(function):
        leaf = signal(4, 6).requires_grad_()
        function(leaf)[1].backward()
        return leaf.grad

    compiled, z = torch.compile(loss), signal(4, 6)
    for _ in range(3):
        assert same_bits(compiled(z)[0], loss(z)[0])
        assert same_bits(gradient(compiled), gradient(loss))


def test_empty_batches():
    assert torch.fft.fft(torch.zeros(0, 4)).shape == (0, 4)
    assert torch.fft.irfft(torch.zeros(2, 0, 3, dtype=torch.complex64)).shape == (2, 0, 4)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_the_same_bits_at_each_cpu_level(dtype):
    torch.manual_seed(0)
    level, results = _C._cpu_level(), []
    inputs = [torch.randn(size, dtype=dtype) for size in ((1024,), (5, 360), (33, 64), (3, 1009), (2, 2))]
    try:
        for use in _C._cpu_levels():
            _C._set_cpu_level(use)
            results.append([torch.fft.fft(x) for x in inputs] + [torch.fft.ifft(x) for x in inputs])
    finally:
        _C._set_cpu_level(level)
    for other in results[1:]:
        assert all(same_bits(a, b) for a, b in zip(results[0], other, strict=True))
