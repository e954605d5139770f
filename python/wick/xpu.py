"""torch.xpu as PyTorch's CPU build has it: no device is found."""

from ._names import getter as _getter

default_generators = ()


def is_available():
    """Whether an XPU device can be used: False."""
    return False


is_initialized = is_available


def is_bf16_supported(including_emulation=True):
    """Whether a device computes with bfloat16: there is none."""
    return False


def device_count():
    """The number of devices: 0."""
    return 0


def get_arch_list():
    """The device generations that there is code for: none."""
    return []


def get_rng_state_all():
    """The generators' states: none."""
    return []


def memory_allocated(device=None):
    """Bytes of device memory in use: 0."""
    return 0


memory_reserved = max_memory_allocated = max_memory_reserved = memory_allocated


def empty_cache():
    """Gives cached device memory back; there is none."""


def manual_seed(seed):
    """Seeds the current device's generator; there is none."""


manual_seed_all = manual_seed


def is_current_stream_capturing():
    """Whether a graph is being captured: False."""
    return False


def _lazy_init():
    raise AssertionError("Torch not compiled with XPU enabled")


def _needs_device(name):
    def refuse(*args, **kwargs):
        _lazy_init()

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = "Needs an XPU device: AssertionError."
    return refuse


for _name in (
    "init", "current_device", "current_stream", "synchronize", "get_device_name", "get_device_properties",
    "get_device_capability", "get_rng_state", "set_rng_state", "initial_seed", "mem_get_info", "set_device",
    "set_stream", "stream", "reset_peak_memory_stats", "reset_accumulated_memory_stats",
):  # fmt: skip
    globals()[_name] = _needs_device(_name)


class Stream:
    """A queue of work on a device: cannot be made."""

    def __new__(cls, *args, **kwargs):
        raise RuntimeError(f"Tried to instantiate dummy base class {cls.__name__}")


class Event(Stream):
    """A point in a queue: cannot be made."""


__getattr__ = _getter(__name__)
