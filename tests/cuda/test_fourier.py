"""Fourier transforms on the device: near the CPU's, and nothing on the host."""

import warnings

import pytest

import wick as torch

FFT = torch.fft


@pytest.fixture(autouse=True)
def _on_the_device():
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*will fall back.*")
        yield


def same(f, x):
    wanted, found = f(x), f(x.cuda())
    assert found.is_cuda and found.dtype == wanted.dtype and found.shape == wanted.shape
    limit = 1e-11 if wanted.dtype in (torch.complex128, torch.float64) else 3e-6
    scale = wanted.abs().max().item() if wanted.numel() else 0
    assert (found.cpu() - wanted).abs().max().item() <= limit * max(scale, 1) if wanted.numel() else True


LENGTHS = [1, 2, 3, 4, 5, 7, 8, 12, 16, 30, 64, 97, 210, 256, 1000, 1024, 2048, 2310]


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_lengths(n, dtype):
    torch.manual_seed(n)
    x = torch.randn(3, n, dtype=dtype)
    z = torch.complex(x, torch.randn(3, n, dtype=dtype))
    same(FFT.fft, z)
    same(FFT.ifft, z)
    same(FFT.rfft, x)
    same(FFT.fft, x)
    same(lambda t: FFT.irfft(t, n), z[:, : n // 2 + 1])


def test_rows_longer_than_shared_memory():
    torch.manual_seed(0)
    z = torch.randn(2, 6000, dtype=torch.complex64)
    same(FFT.fft, z)
    same(FFT.ifft, z)


def test_many_rows_of_few_numbers_and_other_dims():
    torch.manual_seed(0)
    x = torch.randn(5, 6, 7, 9)
    for dim in range(4):
        same(lambda t, dim=dim: FFT.fft(t, dim=dim), x)
        same(lambda t, dim=dim: FFT.rfft(t, dim=dim), x.transpose(0, 2))
    same(FFT.fftn, x)
    same(lambda t: FFT.irfft2(FFT.rfft2(t), s=(7, 9)), x)
    same(lambda t: FFT.rfftn(t, norm="ortho"), x)
    same(lambda t: FFT.hfft(t, 10), torch.randn(3, 6, dtype=torch.complex64))
    same(lambda t: FFT.fft(t, 20), x)  # padded
    same(lambda t: FFT.irfft(t, 3), torch.randn(2, 6, dtype=torch.complex64))
    same(FFT.fft, torch.randn(300, 8))


def test_stft_and_back():
    torch.manual_seed(0)
    x = torch.randn(2, 400)
    window = torch.hann_window(64)

    def f(t):
        spectrum = torch.stft(t, 64, window=window.to(t.device), return_complex=True)
        return torch.istft(spectrum, 64, window=window.to(t.device), length=400)

    same(f, x)


def test_gradients():
    x, grads = torch.randn(3, 12), []
    for device in "cpu", "cuda":
        t = x.clone().to(device).requires_grad_()
        FFT.rfft(t).abs().square().sum().backward()
        grads.append(t.grad.cpu())
    assert torch.allclose(*grads, rtol=1e-5, atol=1e-4)


def test_nothing_to_transform():
    assert FFT.fft(torch.zeros(0, 4, device="cuda")).shape == (0, 4)
    with pytest.raises(RuntimeError, match="Invalid number of data points"):
        FFT.fft(torch.zeros(3, 0, device="cuda"))
