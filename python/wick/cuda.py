"""What programs ask of torch.cuda before they choose a device. wick has no CUDA provider yet, so there is none to find."""

from ._names import getter as _getter


def is_available():
    """Whether a CUDA device can be used: False."""
    return False


def device_count():
    """The number of CUDA devices: 0."""
    return 0


def manual_seed(seed):
    """Seeds the current device's generator; without a device there is none."""


manual_seed_all = manual_seed


def empty_cache():
    """Gives cached device memory back; there is none."""


__getattr__ = _getter(__name__)
