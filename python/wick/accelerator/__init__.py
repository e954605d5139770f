"""torch.accelerator: the device beside the CPU, which there is none of."""

from .._absent_device import device_count, is_available, refusing
from .._names import getter as _getter

__all__ = ["current_accelerator", "device_count", "device_index", "is_available"]


def current_accelerator(check_available=False):
    """Its device, or None."""
    return None


_NO_DEVICE = "Cannot access accelerator device when none is available."
_NEED_A_DEVICE = (
    "current_device_index", "current_device_idx", "set_device_index", "set_device_idx", "current_stream", "set_stream",
    "synchronize", "empty_cache", "memory_stats", "memory_allocated", "max_memory_allocated", "memory_reserved",
    "max_memory_reserved", "reset_peak_memory_stats", "reset_accumulated_memory_stats", "get_memory_info",
    "get_device_capability",
)  # fmt: skip
globals().update(refusing(_NEED_A_DEVICE, lambda name: RuntimeError(_NO_DEVICE)))


class device_index:
    """The current device inside a `with`; None changes nothing."""

    def __init__(self, device):
        self.idx = device

    def __enter__(self):
        if self.idx is not None:
            current_device_index()  # noqa: F821  made above

    def __exit__(self, *exception):
        pass


__getattr__ = _getter(__name__)
