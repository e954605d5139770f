"""stft and istft: there and back, derivatives, compiled code. Against PyTorch: tests/parity/test_spectra_parity.py."""

import wick as torch


def test_there_and_back():
    x, window = torch.randn(3, 64, dtype=torch.float64), torch.hann_window(16, dtype=torch.float64)
    spectra = torch.stft(x, 16, 4, window=window, return_complex=True)
    assert spectra.shape == (3, 9, 17)
    assert torch.allclose(torch.istft(spectra, 16, 4, window=window, length=64), x)


def test_derivatives():
    x = torch.randn(1, 12, dtype=torch.float64, requires_grad=True)
    window = torch.rand(4, dtype=torch.float64).add(0.5).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, w: torch.stft(x, 4, 2, window=w, return_complex=True), (x, window))
    z = torch.randn(3, 5, dtype=torch.complex128, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z, w: torch.istft(z, 4, 2, window=w), (z, window))


def test_compiled_has_the_same_values():
    def loudness(x):
        return torch.stft(x * 2, 8, 4, window=torch.hann_window(8), return_complex=True).abs().square().sum(-1)

    compiled, x = torch.compile(loudness), torch.randn(2, 32)
    for _ in range(3):
        assert torch.equal(compiled(x), loudness(x))
