"""The device that kernels run on, as programs ask Triton for it: runtime.driver.active."""

from types import SimpleNamespace

import wick

from ._jit import JITFunction, KernelInterface


def _get_device():
    return wick.device("cuda", wick.cuda.current_device()) if wick.cuda.is_available() else wick.device("cpu")


def _get_properties(index=None):
    """Of a CUDA device, by Triton's names; of the CPU what stands for them."""
    if not wick.cuda.is_available():
        return {
            "multiprocessor_count": wick.get_num_threads(),
            "max_num_regs": 65536,
            "max_shared_mem": 1 << 20,
            "warpSize": 32,
        }
    p = wick.cuda.get_device_properties(index or 0)
    return {
        "multiprocessor_count": p.multi_processor_count,
        "max_num_regs": getattr(p, "regs_per_multiprocessor", 65536),
        "max_shared_mem": getattr(p, "shared_memory_per_block_optin", 48 << 10),
        "warpSize": getattr(p, "warp_size", 32),
    }


def _get_target():
    if not wick.cuda.is_available():
        return SimpleNamespace(backend="cpu", arch="cpu", warp_size=32)
    major, minor = wick.cuda.get_device_capability()
    return SimpleNamespace(backend="cuda", arch=10 * major + minor, warp_size=32)


def _empty_cache():
    """Memory that is as large as the device's cache, to be written between two measurements."""
    return wick.empty(256 << 18, dtype=wick.int32, device=_get_device())


driver = SimpleNamespace(
    active=SimpleNamespace(
        get_active_torch_device=_get_device,
        get_current_device=lambda: _get_device().index or 0,
        get_current_target=_get_target,
        get_device_interface=lambda: wick.cuda,
        get_empty_cache_for_benchmark=_empty_cache,
        clear_cache=lambda cache: cache.zero_(),
        utils=SimpleNamespace(get_device_properties=_get_properties),
    )
)

__all__ = ["JITFunction", "KernelInterface", "driver"]
