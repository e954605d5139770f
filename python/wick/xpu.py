"""torch.xpu as PyTorch's CPU build has it: no device is found."""

from . import _absent_device as _absent
from ._names import getter as _getter

globals().update(_absent.ANSWERS)
default_generators = ()
is_initialized = _absent.is_available
memory_reserved = max_memory_allocated = max_memory_reserved = _absent.memory_allocated


def empty_cache():
    """Gives cached device memory back; there is none."""


def manual_seed(seed):
    """Seeds the current device's generator; there is none."""


manual_seed_all = manual_seed


def _lazy_init():
    raise AssertionError("Torch not compiled with XPU enabled")


_NEED_A_DEVICE = (
    "init", "current_device", "current_stream", "synchronize", "get_device_name", "get_device_properties",
    "get_device_capability", "get_rng_state", "set_rng_state", "initial_seed", "mem_get_info", "set_device",
    "set_stream", "stream", "reset_peak_memory_stats", "reset_accumulated_memory_stats",
)  # fmt: skip
globals().update(_absent.refusing(_NEED_A_DEVICE, lambda name: AssertionError("Torch not compiled with XPU enabled")))


class Stream(_absent.NoInstances):
    """A queue of work on a device."""


class Event(Stream):
    """A point in a queue."""


__getattr__ = _getter(__name__)
