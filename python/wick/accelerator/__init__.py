"""torch.accelerator: the device beside the CPU, which there is none of."""

from .._names import getter as _getter


def is_available():
    """Whether there is one: False."""
    return False


def device_count():
    """How many there are: 0."""
    return 0


def current_accelerator(check_available=False):
    """Its device, or None."""
    return None


def _needs_device(name):
    def refuse(*args, **kwargs):
        raise RuntimeError("Cannot access accelerator device when none is available.")

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = "Needs an accelerator: RuntimeError."
    return refuse


for _name in (
    "current_device_index", "current_device_idx", "set_device_index", "set_device_idx", "current_stream", "set_stream",
    "synchronize", "empty_cache", "memory_stats", "memory_allocated", "max_memory_allocated", "memory_reserved",
    "max_memory_reserved", "reset_peak_memory_stats", "reset_accumulated_memory_stats", "get_memory_info",
    "get_device_capability",
):  # fmt: skip
    globals()[_name] = _needs_device(_name)


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
