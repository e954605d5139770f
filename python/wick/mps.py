"""torch.mps as PyTorch's CPU build has it: no device is found."""

from ._names import getter as _getter


def is_available():
    """Whether an MPS device can be used: False."""
    return False


def device_count():
    """The number of devices: 0."""
    return 0


def _needs_device(name, inner):
    def refuse(*args, **kwargs):
        raise RuntimeError(f"Cannot execute {inner}() without MPS backend.")

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = "Needs an MPS device: RuntimeError."
    return refuse


for _name, _inner in {
    "current_allocated_memory": "getCurrentAllocatedMemory", "driver_allocated_memory": "getDriverAllocatedMemory",
    "recommended_max_memory": "getRecommendedMaxMemory", "empty_cache": "emptyCache",
    "synchronize": "deviceSynchronize", "get_rng_state": "getDefaultGenerator", "seed": "getDefaultGenerator",
    "set_rng_state": "getDefaultGenerator", "set_per_process_memory_fraction": "setMemoryFraction",
}.items():  # fmt: skip
    globals()[_name] = _needs_device(_name, _inner)


def manual_seed(seed):
    """Seeds the device's generator; without a device there is none."""


__getattr__ = _getter(__name__)
