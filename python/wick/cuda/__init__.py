"""torch.cuda as PyTorch's CPU build has it: no device is found, questions are answered, and what needs one says so."""

from .. import _C
from .. import _absent_device as _absent
from .._names import late as _late

globals().update(_absent.ANSWERS)
default_generators = ()
has_half, has_magma = True, False


class OutOfMemoryError(RuntimeError):
    """What is raised when a device has no memory left."""

    __module__ = "torch"


class AcceleratorError(RuntimeError):
    """What is raised for a device's error."""

    __module__ = "torch"


class CudaError(RuntimeError):
    """An error of the CUDA library."""


class DeferredCudaCallError(Exception):
    """An error of a call that waited for the first use of a device."""


# ---- what is answered ----
is_initialized = _is_in_bad_fork = _absent.is_available


def is_tf32_supported():
    """Whether a device computes with TF32: there is none."""
    return False


def _is_compiled():
    return False


def get_gencode_flags():
    """The compiler's options for those."""
    return ""


def _nothing(name, doc):
    def ask(*args, **kwargs):
        return None

    ask.__name__ = ask.__qualname__ = name
    ask.__doc__ = doc
    return ask


manual_seed = _nothing("manual_seed", "Seeds the current device's generator; without a device there is none.")
manual_seed_all = _nothing("manual_seed_all", "Seeds the generators of all devices; there are none.")
seed = _nothing("seed", "Seeds the current device's generator at random; there is none.")
seed_all = _nothing("seed_all", "Seeds the generators of all devices at random; there are none.")
empty_cache = _nothing("empty_cache", "Gives cached device memory back; there is none.")


def set_rng_state_all(new_states):
    """Sets the generators' states; there are none."""
    for _ in new_states:
        _lazy_init()


memory_reserved = memory_cached = max_memory_allocated = max_memory_reserved = max_memory_cached = (
    _absent.memory_allocated
)


def memory_stats(device=None):
    """Counters of device memory: none."""
    from collections import OrderedDict

    return OrderedDict()


def memory_stats_as_nested_dict(device=None):
    """The same, nested."""
    return {}


# ---- what needs a device ----


def _lazy_init():
    raise AssertionError("Torch not compiled with CUDA enabled")


_NEED_A_DEVICE = (
    "init", "current_device", "current_stream", "default_stream", "synchronize", "get_device_name",
    "get_device_properties", "get_device_capability", "get_rng_state", "initial_seed", "ipc_collect", "mem_get_info",
    "set_per_process_memory_fraction", "get_per_process_memory_fraction", "cudart", "current_blas_handle",
    "get_sync_debug_mode", "set_sync_debug_mode", "set_stream", "can_device_access_peer", "memory_summary",
    "memory_snapshot", "reset_peak_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached",
    "reset_accumulated_memory_stats", "get_stream_from_external", "utilization", "memory_usage", "temperature",
    "power_draw", "clock_rate", "list_gpu_processes", "caching_allocator_alloc", "caching_allocator_delete",
    "make_graphed_callables", "_sleep",
)  # fmt: skip


def _needing_a_device(names):
    return _absent.refusing(names, lambda name: AssertionError("Torch not compiled with CUDA enabled"))


globals().update(_needing_a_device(_NEED_A_DEVICE))


def set_rng_state(new_state, device="cuda"):
    """Sets a device's generator once there is a device, which is never."""


def set_device(device):
    """Makes a device the current one; a negative number is no device and changes nothing."""
    number = device if isinstance(device, int) else _C.device(device).index
    if number is None or number >= 0:
        _lazy_init()


class device:
    """The current device inside a `with`; a negative number or None is no device."""

    def __init__(self, device):
        self.idx = -1 if device is None else device if isinstance(device, int) else (_C.device(device).index or 0)

    def __enter__(self):
        if self.idx >= 0:
            _lazy_init()

    def __exit__(self, *exception):
        return False


class device_of(device):
    """The device of a tensor; one on the CPU changes nothing."""

    def __init__(self, obj):
        super().__init__(obj.get_device() if obj.is_cuda else -1)


class Stream(_absent.NoInstances):
    """A queue of work on a device."""


class ExternalStream(Stream):
    """A queue that another library made."""


class Event(_absent.NoInstances):
    """A point in a queue."""


class CUDAGraph(_absent.NoInstances):
    """Recorded work."""


class MemPool(_absent.NoInstances):
    """Memory apart."""


class CUDAPluggableAllocator(_absent.NoInstances):
    """An allocator of the program's."""


class StreamContext:
    """The current stream inside a `with`; None changes nothing."""

    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        if self.stream is not None:
            _lazy_init()

    def __exit__(self, *exception):
        return False


def stream(stream):
    """A StreamContext."""
    return StreamContext(stream)


class graph:
    """Records work inside a `with`."""

    def __init__(self, cuda_graph, pool=None, stream=None, capture_error_mode="global"):
        _lazy_init()


def graph_pool_handle():
    """Memory for graphs."""
    raise RuntimeError("Tried to instantiate dummy base class _graph_pool_handle")


_TYPES = ("Float", "Double", "Half", "BFloat16", "Byte", "Char", "Short", "Int", "Long", "Bool")
_late_names = _late(__name__, ("amp", "comm", "graphs", "memory", "nccl", "nvtx", "profiler", "random", "streams"))


def _typed_class(name):
    from .._tensor_types import make

    return make(f"torch.cuda.{name}")


def __getattr__(name):
    if name.endswith("Tensor") and name[: -len("Tensor")] in _TYPES:
        return globals().setdefault(name, _typed_class(name))
    return _late_names(name)
