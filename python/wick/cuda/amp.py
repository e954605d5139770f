"""torch.cuda.amp: the older names of torch.amp, for CUDA."""

from .. import amp as _amp
from .._names import getter as _getter
from ..amp._older_names import older_names as _older_names

__all__ = ["GradScaler", "amp_definitely_not_available", "autocast", "custom_bwd", "custom_fwd"]


autocast, GradScaler = _older_names("cuda")


def custom_fwd(fwd=None, *, cast_inputs=None):
    """torch.amp.custom_fwd for CUDA."""
    return _amp.custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


def custom_bwd(bwd=None):
    """torch.amp.custom_bwd for CUDA."""
    return _amp.custom_bwd(bwd, device_type="cuda")


def amp_definitely_not_available():
    """Whether there is no device to compute with several precisions on."""
    from . import is_available

    return not is_available()


__getattr__ = _getter(__name__)
