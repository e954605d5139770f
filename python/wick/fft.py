"""torch.fft: discrete Fourier transforms. The functions are operators of the core (src/ops/tables/fft.ops).

Tests: tests/python/test_fft.py, tests/parity/test_fft_parity.py.
"""

from . import _C
from ._names import getter as _getter

_NAMES = (
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "hfft2", "hfftn", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft",
    "ihfft2", "ihfftn", "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
)  # fmt: skip
for _name in _NAMES:
    globals()[_name] = getattr(_C, f"fft_{_name}")

__all__ = list(_NAMES)
__getattr__ = _getter(__name__)
