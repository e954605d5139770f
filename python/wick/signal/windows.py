"""torch.signal.windows: weights that fade a stretch of a signal in and out. With sym=False a window is one period of a
longer one, as spectra want it. Tests: tests/python/test_windows.py."""

import math

from .. import _C

__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming", "hann",
    "kaiser", "nuttall",
]  # fmt: skip


def _options(name, length, dtype, layout, device, requires_grad):
    """Checks what all windows have in common; gives the options of a new tensor."""
    if length < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={length}")
    if layout is not None and layout is not _C.strided:
        raise ValueError(f"{name} is implemented for strided tensors only, got: {layout}")
    dtype = _C.get_default_dtype() if dtype is None else dtype
    if dtype not in (_C.float32, _C.float64):
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {dtype}")
    return {"dtype": dtype, "device": device, "requires_grad": requires_grad}


def _line(start, step, length, options):
    """start, start + step, ..."""
    return _C.linspace(start, start + (length - 1) * step, length, **options)


def exponential(M, *, center=None, tau=1.0, sym=True, dtype=None, layout=None, device=None, requires_grad=False):  # noqa: N803
    """e^(-|n - center| / tau)"""
    options = _options("exponential", M, dtype, layout, device, requires_grad)
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")
    if M == 0:
        return _C.empty((0,), **options)
    if center is None:
        center = (M if not sym and M > 1 else M - 1) / 2.0
    return (-_line(-center / tau, 1 / tau, M, options).abs()).exp()


def cosine(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):  # noqa: N803
    """Half a wave of a sine."""
    options = _options("cosine", M, dtype, layout, device, requires_grad)
    if M == 0:
        return _C.empty((0,), **options)
    step = math.pi / (M + 1 if not sym and M > 1 else M)
    return _line(0.5 * step, step, M, options).sin()


def gaussian(M, *, std=1.0, sym=True, dtype=None, layout=None, device=None, requires_grad=False):  # noqa: N803
    """The bell of this standard deviation, 1 in the middle."""
    options = _options("gaussian", M, dtype, layout, device, requires_grad)
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    if M == 0:
        return _C.empty((0,), **options)
    step = 1 / (std * math.sqrt(2))
    return (-(_line(-(M if not sym and M > 1 else M - 1) / 2.0 * step, step, M, options) ** 2)).exp()


def kaiser(M, *, beta=12.0, sym=True, dtype=None, layout=None, device=None, requires_grad=False):  # noqa: N803
    """Bessel's i0 of beta sqrt(1 - x^2), 1 in the middle."""
    options = _options("kaiser", M, dtype, layout, device, requires_grad)
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    if M < 2:
        return _C.ones((M,), **options)
    step = 2.0 * beta / (M - 1 if sym else M)
    k = _C.linspace(-beta, min(beta, -beta + (M - 1) * step), M, **options)
    whole = _C.i0(_C.tensor(beta, dtype=options["dtype"], device=device))
    return _C.i0((beta * beta - k * k).clamp_min(0).sqrt()) / whole


def hamming(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):  # noqa: N803
    """0.54 - 0.46 cos"""
    return general_hamming(M, sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)


def hann(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):  # noqa: N803
    """(1 - cos) / 2"""
    return general_hamming(
        M, alpha=0.5, sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad
    )


def blackman(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):  # noqa: N803
    """Three terms of cosines."""
    _options("blackman", M, dtype, layout, device, requires_grad)
    a = (0.42, 0.5, 0.08)
    return general_cosine(M, a=a, sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)


def bartlett(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):  # noqa: N803
    """A triangle from 0 to 1 and back."""
    options = _options("bartlett", M, dtype, layout, device, requires_grad)
    if M < 2:
        return _C.ones((M,), **options)
    return 1 - _line(-1.0, 2 / (M - 1 if sym else M), M, options).abs()


def general_cosine(M, *, a, sym=True, dtype=None, layout=None, device=None, requires_grad=False):  # noqa: N803
    """a[0] - a[1] cos x + a[2] cos 2x - ..."""
    options = _options("general_cosine", M, dtype, layout, device, requires_grad)
    if not hasattr(a, "__iter__"):
        raise TypeError("Coefficients must be a list/tuple")
    if not a:
        raise ValueError("Coefficients cannot be empty")
    if M < 2:
        return _C.ones((M,), **options)
    angle = _line(0.0, 2 * math.pi / (M - 1 if sym else M), M, options)
    signed = _C.tensor([(-1) ** i * weight for i, weight in enumerate(a)], dtype=options["dtype"], device=device)
    order = _C.arange(len(a), dtype=options["dtype"], device=device)
    return (signed.unsqueeze(-1) * (order.unsqueeze(-1) * angle).cos()).sum(0)


def general_hamming(M, *, alpha=0.54, sym=True, dtype=None, layout=None, device=None, requires_grad=False):  # noqa: N803
    """alpha - (1 - alpha) cos"""
    a = (alpha, 1.0 - alpha)
    return general_cosine(M, a=a, sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)


def nuttall(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):  # noqa: N803
    """Four terms of cosines."""
    a = (0.3635819, 0.4891775, 0.1365995, 0.0106411)
    return general_cosine(M, a=a, sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)
