"""What NVIDIA's management library (libnvidia-ml, a part of the driver) says of a device: load, heat, power, processes.

Asked by ctypes when it is needed. A device is found by its place on the bus: the library's numbers count devices that
CUDA_VISIBLE_DEVICES hides.
"""

import ctypes
import functools

__all__ = [
    "clock_rate", "device_memory_used", "list_gpu_processes", "memory_usage", "power_draw", "temperature", "utilization",
]  # fmt: skip

_DRIVER_NOT_LOADED, _MORE_ROOM_IS_NEEDED = 9, 7
_SM_CLOCK, _ON_THE_DIE = 1, 0


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Process(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("instance", ctypes.c_uint), ("compute", ctypes.c_uint),
    ]  # fmt: skip


def _load():
    try:
        return ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        raise ModuleNotFoundError("nvidia-ml-py does not seem to be installed or it can't be imported.") from error


def _check(library, status, what):
    if status == _DRIVER_NOT_LOADED:
        raise RuntimeError("cuda driver can't be loaded, is cuda enabled?")
    if status:
        library.nvmlErrorString.restype = ctypes.c_char_p
        text = library.nvmlErrorString(status)
        raise RuntimeError(f"{what}: {text.decode() if text else status}")


@functools.cache
def _opened():
    library = _load()
    _check(library, library.nvmlInit_v2(), "nvmlInit")
    return library


def _bus_address(device):
    from . import _index, get_device_properties

    p = get_device_properties(_index(device))
    return f"{p.pci_domain_id:08x}:{p.pci_bus_id:02x}:{p.pci_device_id:02x}.0"


def _ask(device, function, result, *arguments):
    """Fills `result` by a function of (handle, *arguments, result)."""
    library = _opened()
    handle = ctypes.c_void_p()
    status = library.nvmlDeviceGetHandleByPciBusId_v2(_bus_address(device).encode(), ctypes.byref(handle))
    _check(library, status, "nvmlDeviceGetHandleByPciBusId")
    _check(library, getattr(library, function)(handle, *arguments, ctypes.byref(result)), function)
    return result


def utilization(device=None):
    """The part of the last second in which a kernel ran, in percent."""
    return _ask(device, "nvmlDeviceGetUtilizationRates", _Utilization()).gpu


def memory_usage(device=None):
    """The part of the last second in which memory was read or written, in percent."""
    return _ask(device, "nvmlDeviceGetUtilizationRates", _Utilization()).memory


def temperature(device=None):
    """Degrees Celsius on the die."""
    return _ask(device, "nvmlDeviceGetTemperature", ctypes.c_uint(), _ON_THE_DIE).value


def power_draw(device=None):
    """Milliwatts."""
    return _ask(device, "nvmlDeviceGetPowerUsage", ctypes.c_uint()).value


def clock_rate(device=None):
    """The multiprocessors' clock in MHz."""
    return _ask(device, "nvmlDeviceGetClockInfo", ctypes.c_uint(), _SM_CLOCK).value


def device_memory_used(device=None):
    """Bytes that all processes use of the device."""
    return _ask(device, "nvmlDeviceGetMemoryInfo", _Memory()).used


def _processes(device):
    """The processes that compute on the device."""
    room = 64
    library = _opened()
    handle = ctypes.c_void_p()
    status = library.nvmlDeviceGetHandleByPciBusId_v2(_bus_address(device).encode(), ctypes.byref(handle))
    _check(library, status, "nvmlDeviceGetHandleByPciBusId")
    while True:
        count, found = ctypes.c_uint(room), (_Process * room)()
        status = library.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(count), found)
        if status != _MORE_ROOM_IS_NEEDED:
            break
        room *= 2
    _check(library, status, "nvmlDeviceGetComputeRunningProcesses")
    return found[: count.value]


def list_gpu_processes(device=None):
    """The processes on a device and the memory that each uses, as text."""
    from . import _index

    try:
        _opened()
    except ModuleNotFoundError:
        return "pynvml module not found, please install nvidia-ml-py"
    except RuntimeError:
        return "cuda driver can't be loaded, is cuda enabled?"
    found = _processes(device)
    lines = [f"GPU:{_index(device)}"] + ([] if found else ["no processes are running"])
    return "\n".join(lines + [f"process {p.pid:>10d} uses {p.used / 2**20:>12.3f} MB GPU memory" for p in found])
