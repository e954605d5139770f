"""Fourier transforms on the device: near the CPU's, and nothing on the host."""

import math
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


def relative_error(found, wanted):
    """Root of the mean square of the difference over that of what is wanted, which is in double."""
    found = found.cpu().to(wanted.dtype)
    return ((found - wanted).abs().square().mean().sqrt() / wanted.abs().square().mean().sqrt()).item()


# Radices in registers and as sums, several of a kind, in each of the stages; chirps (131, 1009); rows in passes.
ACCURATE = [2, 6, 11, 13, 16, 22, 32, 96, 121, 127, 131, 143, 512, 1009, 1024, 1155, 2187, 2197, 4095, 4096, 4097, 6000]
ACCURATE += [6561, 8192, 8198, 16384]


@pytest.mark.parametrize("n", ACCURATE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_errors_beside_transforms_in_double(n, dtype):
    torch.manual_seed(n)
    x, y = torch.randn(3, n, dtype=dtype), torch.randn(3, n, dtype=dtype)
    z, limit = torch.complex(x, y), 4e-7 if dtype == torch.float32 else 4e-15
    half = FFT.rfft(x.double()).to(z.dtype)
    wide, wide_half = z.to(torch.complex128), half.to(torch.complex128)
    assert relative_error(FFT.fft(z.cuda()), FFT.fft(wide)) < limit
    assert relative_error(FFT.ifft(z.cuda()), FFT.ifft(wide)) < limit
    assert relative_error(FFT.rfft(x.cuda()), FFT.rfft(x.double())) < limit
    assert relative_error(FFT.fft(x.cuda()), FFT.fft(x.double())) < limit
    assert relative_error(FFT.ifft(x.cuda()), FFT.ifft(x.double())) < limit
    assert relative_error(FFT.irfft(half.cuda(), n), FFT.irfft(wide_half, n)) < limit
    columns, half_columns = z.T.contiguous().cuda(), half.T.contiguous().cuda()
    assert relative_error(FFT.fft(columns, dim=0), FFT.fft(wide).T) < limit
    assert relative_error(FFT.irfft(half_columns, n, dim=0), FFT.irfft(wide_half, n).T) < limit


def test_a_length_of_three_passes():
    n = 47**3  # whose divisors are 47 and its square, which a block does not hold in double
    z, k = torch.zeros(n, dtype=torch.complex128), torch.arange(n, dtype=torch.float64)
    z[7] = 1
    wanted = torch.polar(torch.ones_like(k), k * (-2 * math.pi * 7 / n))
    assert relative_error(FFT.fft(z.cuda()), wanted) < 1e-14


def test_numbers_that_lie_between_others():
    torch.manual_seed(0)
    x = torch.randn(7, 3, 41)
    same(lambda t: FFT.rfft(t[:, :, 1::2]), x)  # pairs whose parts are not neighbours
    same(lambda t: FFT.rfft(t[:, :, 1:]), x)  # and neighbours at an odd place
    same(lambda t: FFT.fft(torch.view_as_complex(t[:, :, :40].reshape(7, 3, 20, 2).contiguous())[:, :, ::3]), x)
    same(lambda t: FFT.irfft(t.transpose(0, 2), 12, dim=0), torch.randn(2, 3, 7, dtype=torch.complex64))
    same(lambda t: FFT.fft(t.expand(4, 5, 7, 3, 41), dim=3), x)


def test_more_rows_than_a_block_has():
    torch.manual_seed(0)
    for n in 1, 2, 3, 6, 40:
        z = torch.randn(613, n, dtype=torch.complex64)
        same(FFT.fft, z)
        same(lambda t: FFT.fft(t.T, dim=0), z)
        same(lambda t, n=n: FFT.irfft(t, 2 * n - 2 or 1), z)


def test_tables_serve_other_streams_and_graphs():
    torch.manual_seed(0)
    z = torch.randn(4, 60, dtype=torch.complex64)
    wanted, there = FFT.fft(z), z.cuda()
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        first = FFT.fft(there)
    torch.cuda.synchronize()
    f = torch.compile(lambda t: FFT.ifft(FFT.fft(t) * 2))
    for _ in range(5):
        assert torch.allclose(f(there).cpu(), 2 * z, atol=1e-5)
    with torch.cuda.graph(graph):  # the second one's tables are of the graph, the first one's were there
        found, other = FFT.fft(there), FFT.fft(there[:, :44])
    there.copy_(z * 3)
    graph.replay()
    assert torch.allclose(first.cpu(), wanted, atol=1e-5)
    assert torch.allclose(found.cpu(), wanted * 3, atol=1e-4)
    assert torch.allclose(other.cpu(), FFT.fft(z[:, :44]) * 3, atol=1e-4)


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
