"""Spectra of a signal's stretches: stft, istft.

Tests: tests/python/test_spectra.py, tests/parity/test_spectra_parity.py.
"""

import warnings

from .. import _C


def _said(value):
    return int(value) if isinstance(value, bool) else value


def _kind(tensor):
    """What PyTorch calls a tensor's type: torch.FloatTensor."""
    return tensor.type()


def _window_text(window):
    return "None" if window is None else f"{_kind(window)}{{{list(window.shape)}}}"


def _padded(window, win_length, n_fft, like):
    """The window in the middle of n_fft zeros; without one, ones."""
    if win_length == n_fft:
        return window
    own = _C.ones(win_length, dtype=like.dtype, device=like.device) if window is None else window
    left = (n_fft - win_length) // 2
    return _C.constant_pad_nd(own, (left, n_fft - win_length - left), 0)


def stft(
    input,
    n_fft,
    hop_length=None,
    win_length=None,
    window=None,
    center=True,
    pad_mode="reflect",
    normalized=False,
    onesided=None,
    return_complex=None,
    align_to_window=None,
):
    """The spectra of stretches of n_fft samples, one every hop_length: (..., frequencies, stretches)."""
    hop = n_fft // 4 if hop_length is None else hop_length
    length = n_fft if win_length is None else win_length
    if center:
        from ..nn.functional import pad

        sizes = input.shape
        whole = input.reshape((1,) * (3 - len(sizes)) + tuple(sizes))
        whole = pad(whole, (n_fft // 2, n_fft // 2), pad_mode)
        input = whole.reshape(whole.shape[-len(sizes) :])
    text = (
        f"stft({_kind(input)}{list(input.shape)}, n_fft={n_fft}, hop_length={hop}, win_length={length}, "
        f"window={_window_text(window)}, normalized={int(normalized)}, onesided={_said(onesided)}, "
        f"return_complex={_said(return_complex)}, align_to_window={_said(align_to_window)}) "
    )
    is_complex = input.is_complex() or (window is not None and window.is_complex())
    if return_complex is None:
        if not is_complex:
            raise RuntimeError(
                "stft requires the return_complex parameter be given for real inputs, and will further require that "
                "return_complex=True in a future PyTorch release."
            )
        return_complex = True
    if not (input.is_floating_point() or input.is_complex()):
        raise RuntimeError(f"{text}: expected a tensor of floating point or complex values")
    if input.dim() not in (1, 2):
        raise RuntimeError(f"{text}: expected a 1D or 2D tensor")
    samples = input.shape[-1]
    if not 0 < n_fft <= samples:
        raise RuntimeError(f"{text}: expected 0 < n_fft < {samples}, but got n_fft={n_fft}")
    if hop <= 0:
        raise RuntimeError(f"{text}: expected hop_length > 0, but got hop_length={hop}")
    _check_window(text, window, length, n_fft)
    onesided = not is_complex if onesided is None else onesided
    if onesided and is_complex:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    stretches = input.unfold(-1, n_fft, hop)
    window = _padded(window, length, n_fft, input)
    if window is not None:
        stretches = stretches * window
    norm = "ortho" if normalized else "backward"
    spectra = (_C.fft_rfft if onesided else _C.fft_fft)(stretches, None, -1, norm).transpose(-1, -2)
    return spectra if return_complex else _C.view_as_real(spectra)


def _check_window(text, window, length, n_fft):
    if not 0 < length <= n_fft:
        raise RuntimeError(f"{text}: expected 0 < win_length <= n_fft, but got win_length={length}")
    if window is not None and (window.dim() != 1 or window.shape[0] != length):
        raise RuntimeError(
            f"{text}: expected a 1D window tensor of size equal to win_length={length}, but got window with size "
            f"{list(window.shape)}"
        )


def _laid_over(stretches, hop, samples):
    """Stretches (batch, count, n), each hop further on than the one before, added up: (batch, samples)."""
    batch, count, n = stretches.shape
    starts = _C.arange(count, device=stretches.device) * hop
    places = starts.unsqueeze(1) + _C.arange(n, device=stretches.device)
    zeros = _C.zeros(batch, samples, dtype=stretches.dtype, device=stretches.device)
    return zeros.index_add(1, places.reshape(-1), stretches.reshape(batch, -1))


def istft(
    input,
    n_fft,
    hop_length=None,
    win_length=None,
    window=None,
    center=True,
    normalized=False,
    onesided=None,
    length=None,
    return_complex=False,
):
    """The signal whose stretches have these spectra, by least squares: what overlaps is divided by the windows' squares."""
    hop = n_fft // 4 if hop_length is None else hop_length
    wide = n_fft if win_length is None else win_length
    kind = _kind(input).replace("torch.", "CPU").replace("Tensor", "Type")
    text = (
        f"istft({kind}{list(input.shape)}, n_fft={n_fft}, hop_length={hop}, win_length={wide}, "
        f"window={_window_text(window)}, center={int(center)}, normalized={int(normalized)}, onesided={_said(onesided)}, "
        f"length={length}, return_complex={int(return_complex)}) "
    )
    if not input.is_complex():
        raise RuntimeError(
            "istft requires a complex-valued input tensor matching the output from stft with return_complex=True."
        )
    if not input.numel():
        raise RuntimeError(f"{text}: input tensor cannot be empty.")
    if input.dim() not in (2, 3):
        raise RuntimeError(
            f"{text}: expected a tensor with 3 or 4 dimensions (real or complex), but got {input.dim() + 1}"
        )
    bins, count = input.shape[-2:]
    onesided = bins != n_fft if onesided is None else onesided
    wanted, words = (
        (n_fft // 2 + 1, "n_fft / 2 + 1 when onesided=True") if onesided else (n_fft, "n_fft when onesided=False")
    )
    if bins != wanted:
        raise RuntimeError(
            f"{text}: expected the frequency dimension (3rd to the last) of the input tensor to match {words}, but got {bins}"
        )
    if not 0 < hop <= wide:
        raise RuntimeError(f"{text}: expected 0 < hop_length <= win_length")
    if not 0 < wide <= n_fft:
        raise RuntimeError(f"{text}: expected 0 < win_length <= n_fft")
    if window is not None and (window.dim() != 1 or window.shape[0] != wide):
        raise RuntimeError(f"{text}: Invalid window shape. window has to be 1D and length of `win_length`")
    if return_complex and onesided:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    if not return_complex and window is not None and window.is_complex():
        raise RuntimeError("Complex windows are incompatible with return_complex=False")
    real = _C.ones(wide, dtype=input.real.dtype, device=input.device) if window is None else window
    faded = real if wide == n_fft else _padded(real, wide, n_fft, real)
    batch = (input.unsqueeze(0) if input.dim() == 2 else input).transpose(1, 2)
    norm = "ortho" if normalized else "backward"
    if return_complex:
        stretches = _C.fft_ifft(batch, None, -1, norm)
    else:
        stretches = _C.fft_irfft(batch[..., : n_fft // 2 + 1], n_fft, -1, norm)
    samples = n_fft + hop * (count - 1)
    signal = _laid_over(stretches * faded, hop, samples)
    weights = _laid_over((faded * faded).expand(1, count, n_fft), hop, samples)
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else samples - n_fft // 2 if center else samples
    signal, weights = signal[:, start:end], weights[:, start:end]
    if bool(weights.abs().min() < 1e-11):
        raise RuntimeError(f"{text}window overlap add min: 1\n[ CPUBoolType{{}} ]")
    signal = signal / weights
    if end > samples:
        warnings.warn(
            "The length of signal is shorter than the length parameter. Result is being padded with zeros in the tail. "
            "Please check your center and hop_length settings.",
            stacklevel=2,
        )
        signal = _C.constant_pad_nd(signal, (0, end - samples), 0)
    return signal[0] if input.dim() == 2 else signal
