"""What the modules of devices that are not there share: questions with their answers, and functions that refuse."""

__all__ = ["ANSWERS", "NoInstances", "refusing"]


def is_available():
    """Whether such a device can be used: False."""
    return False


def is_bf16_supported(including_emulation=True):
    """Whether a device computes with bfloat16: there is none."""
    return False


def is_current_stream_capturing():
    """Whether a graph is being captured: False."""
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


_QUESTIONS = (
    is_available,
    is_bf16_supported,
    is_current_stream_capturing,
    device_count,
    get_arch_list,
    get_rng_state_all,
    memory_allocated,
)
ANSWERS = {question.__name__: question for question in _QUESTIONS}


def refusing(names, error):
    """Functions by these names that raise what error(name) gives, as a dict."""

    def refuser(name):
        def refuse(*args, **kwargs):
            raise error(name)

        refuse.__name__ = refuse.__qualname__ = name
        refuse.__doc__ = f"Needs a device: {type(error(name)).__name__}."
        return refuse

    return {name: refuser(name) for name in names}


class NoInstances:
    """A class that is there to be asked about; no object of it can be made."""

    def __new__(cls, *args, **kwargs):
        raise RuntimeError(f"Tried to instantiate dummy base class {cls.__name__}")
