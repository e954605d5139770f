"""torch.cuda: devices, streams, events and memory of NVIDIA's GPUs (src/cuda).

Nothing is opened before it is asked for. Without a device questions are answered as PyTorch's CPU build answers them, and
what needs one says so.
"""

from functools import cache as _cache

from .. import _C
from .. import _absent_device as _absent
from .._names import files_of as _files_of
from .._names import late as _late

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


# ---- which devices there are ----


def device_count():
    """The number of devices."""
    return _C._device_count("cuda")


def is_available():
    """Whether there is a device."""
    return device_count() > 0


def is_initialized():
    """Whether devices may be used without further ado: there are any."""
    return is_available()


_is_in_bad_fork = _absent.is_available


def _is_compiled():
    return is_available()


def _lazy_init():
    if not is_available():
        raise AssertionError("Torch not compiled with CUDA enabled")


def init():
    """Opens the driver, which happens by itself at the first use."""
    _lazy_init()


def _index(device=None):
    """The number of a device; of None the current one's."""
    _lazy_init()
    if device is None:
        return current_device()
    if isinstance(device, int):
        return device if device >= 0 else current_device()
    device = _C.device(device)
    if device.type != "cuda":
        raise ValueError(f"Expected a cuda device, but got: {device}")
    return current_device() if device.index is None else device.index


def current_device():
    """The index of the thread's current device."""
    _lazy_init()
    return _C._device_current("cuda")


def set_device(device):
    """Makes a device the current one; a negative number is no device and changes nothing."""
    number = device if isinstance(device, int) else _C.device(device).index
    if number is None or number >= 0:
        _lazy_init()
        if number is not None:
            _C._device_set(f"cuda:{number}")


class device:
    """The current device inside a `with`; a negative number or None is no device."""

    def __init__(self, device):
        self.idx = -1 if device is None else device if isinstance(device, int) else (_C.device(device).index or 0)
        self.prev_idx = -1

    def __enter__(self):
        if self.idx >= 0:
            self.prev_idx = current_device()
            set_device(self.idx)

    def __exit__(self, *exception):
        if self.idx >= 0:
            set_device(self.prev_idx)
        return False


class device_of(device):
    """The device of a tensor; one on the CPU changes nothing."""

    def __init__(self, obj):
        super().__init__(obj.get_device() if obj.is_cuda else -1)


def synchronize(device=None):
    """Waits for all work of a device."""
    _C._device_synchronize(f"cuda:{_index(device)}")


# ---- what a device is ----


# The driver's numbers of what a device has.
_ATTRIBUTES = {
    "max_threads_per_block": 1, "warp_size": 10, "regs_per_block": 12, "clock_rate": 13, "is_integrated": 18,
    "pci_bus_id": 33, "pci_device_id": 34, "memory_clock_rate": 36, "memory_bus_width": 37, "pci_domain_id": 50,
    "shared_memory_per_multiprocessor": 81, "regs_per_multiprocessor": 82, "is_multi_gpu_board": 84,
}  # fmt: skip


class _CudaDeviceProperties:
    """What a device is: name, major, minor, total_memory (bytes), multi_processor_count, ... Clocks are in kHz."""

    def __init__(self, device, facts):
        numbers = {name: _C._cuda_attribute(device, number) for name, number in _ATTRIBUTES.items()}
        self.__dict__.update(facts, **numbers, gcnArchName=facts["name"])

    def __repr__(self):
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory // 2**20}MB, multi_processor_count={self.multi_processor_count}, "
            f"L2_cache_size={self.L2_cache_size // 2**20}MB)"
        )


@_cache
def _properties(device):
    return _CudaDeviceProperties(device, _C._cuda_facts(device))


def get_device_properties(device=None):
    """What a device is."""
    index = _index(device)
    if index >= device_count():
        raise AssertionError("Invalid device id")
    return _properties(f"cuda:{index}")


def get_device_name(device=None):
    """Its name."""
    return get_device_properties(device).name


def get_device_capability(device=None):
    """Its compute capability, (major, minor)."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


def can_device_access_peer(device, peer_device):
    """Whether a device reaches another's memory, as the driver says; copies between them work either way."""
    device, peer_device = _index(device), _index(peer_device)
    for index, what in (device, "device"), (peer_device, "peer device"):
        if not 0 <= index < device_count():
            raise AssertionError(f"Invalid {what} id")
    return _C._cuda_can_access_peer(device, peer_device)


def get_arch_list():
    """The device generations that there is code for: any from 7.0 on, by the driver's compiler."""
    return ["compute_70"] if is_available() else []


def get_gencode_flags():
    """The compiler's options for those."""
    return "-gencode compute=compute_70" if is_available() else ""


def is_bf16_supported(including_emulation=True):
    """Whether a device computes with bfloat16."""
    return is_available()


def is_tf32_supported():
    """Whether a device computes with TF32."""
    return is_available() and get_device_capability()[0] >= 8


# ---- streams and events ----


def _need_for(name):
    if not is_available():
        raise RuntimeError(f"Tried to instantiate dummy base class {name}")


class Stream(_C._StreamBase):
    """A queue of a device's work; what is given to it is done in order.

    >>> s = torch.cuda.Stream()
    >>> with torch.cuda.stream(s):
    ...     y = x * 2
    """

    def __new__(cls, device=None, priority=0, **kwargs):
        _need_for("Stream")
        return super().__new__(cls, f"cuda:{_index(device)}", 0)

    def record_event(self, event=None):
        """An event behind the work so far."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event):
        """Later work runs behind the event."""
        event.wait(self)

    def wait_stream(self, stream):
        """Later work runs behind what the other stream has now."""
        self.wait_event(stream.record_event())

    @property
    def device_index(self):
        return self.device.index

    def __repr__(self):
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


class ExternalStream(Stream):
    """A queue that another library made and keeps, by the driver's handle."""

    def __new__(cls, stream_ptr, device=None, **kwargs):
        _need_for("Stream")
        return _C._StreamBase.__new__(cls, f"cuda:{_index(device)}", 3, stream_ptr)


def get_stream_from_external(data_ptr, device=None):
    """A queue that another library made and keeps, by the driver's handle."""
    return _C._StreamBase.__new__(Stream, f"cuda:{_index(device)}", 3, data_ptr)


def _stream_of(device, which):
    return _C._StreamBase.__new__(Stream, f"cuda:{_index(device)}", which)


def current_stream(device=None):
    """The stream that this thread's work goes to."""
    return _stream_of(device, 1)


def default_stream(device=None):
    """The device's first stream."""
    return _stream_of(device, 2)


def set_stream(stream):
    """Makes a stream the current one of its device; None changes nothing."""
    if stream is not None:
        _lazy_init()
        stream._make_current()


class Event(_C._EventBase):
    """A point in a stream's work, to wait for and to measure by.

    >>> begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    >>> begin.record(); y = x @ x; end.record(); end.synchronize()
    >>> begin.elapsed_time(end)  # milliseconds
    """

    def __new__(cls, enable_timing=False, blocking=False, interprocess=False, external=False):
        _need_for("Event")
        self = super().__new__(cls)
        self._timed = bool(enable_timing)
        return self

    def record(self, stream=None):
        """Behind the work of a stream so far; of the current one by default."""
        self._record(current_stream() if stream is None else stream)

    def wait(self, stream=None):
        """Later work of a stream runs behind it."""
        self._wait(current_stream() if stream is None else stream)

    def elapsed_time(self, end_event):
        """Milliseconds from it to another event."""
        if not (self._timed and getattr(end_event, "_timed", True)):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        return super().elapsed_time(end_event)

    def __repr__(self):
        return "<torch.cuda.Event>"


class StreamContext:
    """The current stream inside a `with`; None changes nothing."""

    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        if self.stream is not None:
            self.previous = current_stream(self.stream.device)
            set_stream(self.stream)

    def __exit__(self, *exception):
        if self.stream is not None:
            set_stream(self.previous)
        return False


def stream(stream):
    """A StreamContext."""
    return StreamContext(stream)


# ---- memory: bytes ----


def _usage(device, name):
    return _C._cuda_usage(f"cuda:{_index(device)}")[name] if is_available() else 0


def memory_allocated(device=None):
    """Bytes that tensors use."""
    return _usage(device, "allocated")


def max_memory_allocated(device=None):
    """The most bytes that tensors have used."""
    return _usage(device, "peak_allocated")


def memory_reserved(device=None):
    """Bytes that are taken of the device, for tensors and for later ones."""
    return _usage(device, "reserved")


def max_memory_reserved(device=None):
    """The most of them."""
    return _usage(device, "peak_reserved")


memory_cached, max_memory_cached = memory_reserved, max_memory_reserved


def reset_peak_memory_stats(device=None):
    """The peaks start at what is used now."""
    _C._cuda_reset_peaks(f"cuda:{_index(device)}")


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats


def reset_accumulated_memory_stats(device=None):
    """What memory_stats has counted since the start is 0."""
    _C._cuda_reset_totals(f"cuda:{_index(device)}")


def empty_cache():
    """Gives memory that no tensor uses back to the device."""
    if is_available():
        _C._cuda_empty_cache(f"cuda:{current_device()}")


def mem_get_info(device=None):
    """(free, total) bytes of the device, as the driver counts them."""
    return _C._cuda_memory_free(f"cuda:{_index(device)}")


_fractions = {}


def set_per_process_memory_fraction(fraction, device=None):
    """Bounds what is taken of a device's memory."""
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    _C._cuda_set_fraction(fraction, f"cuda:{_index(device)}")
    _fractions[_index(device)] = fraction


def get_per_process_memory_fraction(device=None):
    """The bound, a fraction of the device's memory."""
    return _fractions.get(_index(device), 1.0)


def ipc_collect():
    """Frees memory that other processes have let go of: none is shared with them."""
    _lazy_init()


def get_allocator_backend():
    """Which allocator device memory comes from."""
    return "native"


_held = {}


def caching_allocator_alloc(size, device=None, stream=None):
    """Device memory for another library: its address."""
    if stream is not None and not isinstance(stream, Stream):
        raise TypeError("Invalid type for stream argument, must be `torch.cuda.Stream` or `None`")
    with StreamContext(stream):
        memory = _C.empty(size, dtype=_C.uint8, device=f"cuda:{_index(device)}")
    if size:
        _held[memory.data_ptr()] = memory
    return memory.data_ptr() if size else 0


def caching_allocator_delete(mem_ptr):
    """Releases memory of caching_allocator_alloc."""
    if mem_ptr and _held.pop(mem_ptr, None) is None:
        raise RuntimeError(f"invalid device pointer: {mem_ptr:#x}")


# ---- random numbers ----


def _generator(device=None):
    _lazy_init()
    return default_generators[_index(device)]


class _Generators:
    """The devices' generators, by index; each made when it is asked for."""

    def __len__(self):
        return device_count()

    def __getitem__(self, index):
        _lazy_init()
        return _C._default_generator(f"cuda:{index}")


default_generators = _Generators()


def manual_seed(seed):
    """Seeds the current device's generator; without a device there is none."""
    if is_available():
        _generator().manual_seed(int(seed))


def manual_seed_all(seed):
    """Seeds the generators of all devices."""
    for generator in range(device_count()):
        default_generators[generator].manual_seed(int(seed))


def seed():
    """Seeds the current device's generator at random."""
    if is_available():
        _generator().seed()


def seed_all():
    """Seeds the generators of all devices at random, all alike."""
    if is_available():
        manual_seed_all(default_generators[0].seed())


def initial_seed():
    """The current device's seed as it was set."""
    return _generator().initial_seed()


def get_rng_state(device="cuda"):
    """The state of a device's generator."""
    return _generator(device).get_state()


def get_rng_state_all():
    """The states of all devices' generators."""
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state(new_state, device="cuda"):
    """Sets a device's generator; without a device it is forgotten."""
    if is_available():
        _generator(device).set_state(new_state)


def set_rng_state_all(new_states):
    """Sets the generators' states."""
    for index, state in enumerate(new_states):
        _lazy_init()
        set_rng_state(state, index)


# ---- what is not there ----

_NEED_A_DEVICE = (
    "current_blas_handle", "current_solver_handle", "change_current_allocator", "caching_allocator_disabled", "_sleep",
)  # fmt: skip


def _refusal(name):
    if is_available():
        return NotImplementedError(f"torch.cuda.{name} is not there yet")
    return AssertionError("Torch not compiled with CUDA enabled")


def _needing_a_device(names):
    return _absent.refusing(names, _refusal)


globals().update(_needing_a_device(_NEED_A_DEVICE))


def caching_allocator_enable(value=True):
    """Whether released memory is kept: always."""
    _lazy_init()
    if not value:
        raise NotImplementedError("torch.cuda.caching_allocator_enable(False): memory is always kept")


_SYNC_MODES = {"default": 0, "warn": 1, "error": 2}


def set_sync_debug_mode(debug_mode):
    """What is done where an operation waits for the device: "default" or 0, nothing; "warn" or 1; "error" or 2."""
    _lazy_init()
    if isinstance(debug_mode, str):
        if debug_mode not in _SYNC_MODES:
            raise RuntimeError("invalid value of debug_mode, expected one of `default`, `warn`, `error`")
        debug_mode = _SYNC_MODES[debug_mode]
    if debug_mode not in _SYNC_MODES.values():
        raise RuntimeError("invalid value of debug_mode, expected 0,1,2")
    _C._cuda_sync_mode(debug_mode)


def get_sync_debug_mode():
    """What set_sync_debug_mode says, a number."""
    _lazy_init()
    return _C._cuda_sync_mode()


class cudaStatus:
    """Numbers of the CUDA library."""

    SUCCESS, ERROR_NOT_READY = 0, 34


def check_error(res):
    """Raises an error for a number of the CUDA library other than 0."""
    if res != cudaStatus.SUCCESS:
        raise CudaError(f"CUDA error {int(res)}")


class GreenContext(_absent.NoInstances):
    """A part of a device's multiprocessors."""


class CUDAPluggableAllocator(_absent.NoInstances):
    """An allocator of the program's."""


_TYPES = ("Float", "Double", "Half", "BFloat16", "Byte", "Char", "Short", "Int", "Long", "Bool")
_PARTS = (
    "amp",
    "comm",
    "jiterator",
    "memory",
    "nccl",
    "nvtx",
    "profiler",
    "random",
    "sparse",
    "streams",
    "tunable",
)
_late_names = _late(
    __name__,
    _PARTS,
    _files_of(
        {
            "_management": "clock_rate device_memory_used list_gpu_processes memory_usage power_draw temperature utilization",
            "_cudart": "cudart",
            "_pools": "MemPool memory_snapshot use_mem_pool",
            "graphs": "CUDAGraph graph graph_pool_handle is_current_stream_capturing make_graphed_callables",
            "_statistics": "host_memory_stats host_memory_stats_as_nested_dict memory_stats memory_stats_as_nested_dict "
            "memory_summary reset_accumulated_host_memory_stats reset_peak_host_memory_stats",
        }
    ),
)


def _typed_class(name):
    from .._tensor_types import make

    return make(f"torch.cuda.{name}")


def __getattr__(name):
    if name.endswith("Tensor") and name[: -len("Tensor")] in _TYPES:
        return globals().setdefault(name, _typed_class(name))
    return _late_names(name)
