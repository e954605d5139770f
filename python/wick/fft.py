"""torch.fft: transforms need complex tensors to compute with, which there are none of yet. Names can be imported; calls say so."""

from ._names import cannot as _cannot
from ._names import getter as _getter

_TRANSFORMS = (
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "hfft2", "hfftn", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft",
    "ihfft2", "ihfftn", "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
)  # fmt: skip
for _name in _TRANSFORMS:
    globals()[_name] = _cannot(f"torch.fft.{_name}", "wick does not compute with complex numbers yet")

__all__ = list(_TRANSFORMS)
__getattr__ = _getter(__name__)
