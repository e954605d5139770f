"""torch.mps as PyTorch's CPU build has it: no device is found."""

from ._absent_device import device_count, is_available, refusing
from ._names import getter as _getter

__all__ = ["device_count", "is_available", "manual_seed"]


_INNER = {
    "current_allocated_memory": "getCurrentAllocatedMemory", "driver_allocated_memory": "getDriverAllocatedMemory",
    "recommended_max_memory": "getRecommendedMaxMemory", "empty_cache": "emptyCache",
    "synchronize": "deviceSynchronize", "get_rng_state": "getDefaultGenerator", "seed": "getDefaultGenerator",
    "set_rng_state": "getDefaultGenerator", "set_per_process_memory_fraction": "setMemoryFraction",
}  # fmt: skip
globals().update(refusing(_INNER, lambda name: RuntimeError(f"Cannot execute {_INNER[name]}() without MPS backend.")))


def manual_seed(seed):
    """Seeds the device's generator; without a device there is none."""


__getattr__ = _getter(__name__)
