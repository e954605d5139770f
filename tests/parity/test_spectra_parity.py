"""stft, istft and windows against an installed PyTorch: values, gradients, errors."""

import warnings

import pytest

torch = pytest.importorskip("torch")
from compare import outcome  # noqa: E402

import wick  # noqa: E402

# Of a real signal x (2, 40), a complex one z (2, 40), windows w (8) and the library t.
CASES = [
    "t.stft(x, 8, return_complex=True)", "t.stft(x, 16, win_length=8, return_complex=True)",
    "t.istft(t.stft(x, 16, 2, 8, return_complex=True), 16, win_length=8)", "t.stft(x[0], 8, 3, return_complex=True)", "t.stft(x, 8, 4, window=w, return_complex=True)",
    "t.stft(x, 12, 4, 8, w, return_complex=True)", "t.stft(x, 12, 4, 8, return_complex=True)", "t.stft(x, 8, center=False, return_complex=True)",
    "t.stft(x, 8, window=w, normalized=True, return_complex=True)", "t.stft(x, 8, onesided=False, return_complex=True)", "t.stft(x, 8, return_complex=False)",
    "x.stft(8, pad_mode='constant', return_complex=True)", "t.stft(z, 8, pad_mode='constant')", "t.stft(x, 7, 2, return_complex=True)",
    "t.istft(t.stft(x, 8, 2, window=w, return_complex=True), 8, 2, window=w)", "t.istft(z.reshape(5, 16)[:, :9], 8)", "t.istft(z.reshape(2, 5, 8), 8, 3, length=20)",
    "t.istft(z.reshape(5, 16)[:, :9], 8, normalized=True, center=False)", "t.istft(z.reshape(2, 5, 8), 8, 2, win_length=4)",
    "t.istft(z.reshape(8, 10), 8, onesided=False)", "t.istft(z.reshape(8, 10), 8, onesided=False, return_complex=True)",
    "t.hann_window(5)", "t.hann_window(5, False)", "t.hamming_window(6, True, 0.5, 0.4)", "t.hamming_window(7, periodic=False)", "t.blackman_window(6)",
    "t.blackman_window(5, False, dtype=t.float64)", "t.bartlett_window(6)", "t.bartlett_window(7, False)", "t.kaiser_window(4)", "t.kaiser_window(5, True, 3.0)",
    "t.kaiser_window(6, False)", "t.hann_window(0)", "t.hann_window(1)", "t.hann_window(4, dtype=t.float64)",
]  # fmt: skip
ERRORS = [
    "t.hann_window(-1)", "t.stft(x, 8)", "t.stft(x[:, None].expand(2, 2, 40), 4, return_complex=True)", "t.stft(x, 50, center=False, return_complex=True)",
    "t.stft(x, 4, 0, return_complex=True)", "t.stft(x, 4, win_length=5, return_complex=True)", "t.stft(x, 4, window=t.ones(3), return_complex=True)",
    "t.stft(z, 4, pad_mode='constant', onesided=True)", "t.istft(x, 4)", "t.istft(z.reshape(5, 16)[:, :0], 8)", "t.istft(z.reshape(5, 16)[:, :9], 8, 9)",
    "t.istft(z.reshape(5, 16)[:, :9], 8, window=t.zeros(8))", "t.istft(z.reshape(8, 10), 8, onesided=True)", "t.istft(z.reshape(5, 16), 8, return_complex=True)",
]  # fmt: skip


def operands(library):
    generator = torch.Generator().manual_seed(5)
    made = {
        "x": torch.randn(2, 40, generator=generator),
        "z": torch.randn(2, 40, dtype=torch.complex64, generator=generator),
        "w": torch.rand(8, generator=generator) + 0.2,
    }
    return {name: library.from_numpy(value.numpy().copy()) for name, value in made.items()} | {"t": library}


def value_and_gradients(library, case):
    names = operands(library)
    leaves = [names[name].requires_grad_() for name in "xzw"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = eval(case, names)
    if y.requires_grad:
        (y.real.sum() + y.imag.square().sum() if y.is_complex() else y.square().sum()).backward()
    return y, [leaf.grad for leaf in leaves]


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients(case):
    theirs, their_gradients = value_and_gradients(torch, case)
    ours, our_gradients = value_and_gradients(wick, case)
    for a, b in zip([ours, *our_gradients], [theirs, *their_gradients], strict=True):
        assert (a is None) == (b is None)
        if b is not None:
            found = torch.from_numpy(a.detach().contiguous().numpy().copy())
            torch.testing.assert_close(found, b.detach().resolve_conj(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case):
    theirs = outcome(lambda t: eval(case, operands(t)), torch)[0]
    assert isinstance(theirs, str)
    assert outcome(lambda t: eval(case, operands(t)), wick)[0] == theirs
