"""torch.cuda.cudart(): functions under the names of CUDA's runtime library, which wick does without. They call the driver."""

import contextlib
import ctypes
import enum
import functools
import os
import types

__all__ = ["cudart"]


class cudaError(enum.IntEnum):
    """What the functions return."""

    success = 0


@functools.cache
def _driver():
    return ctypes.CDLL(os.environ.get("WICK_LIBCUDA") or "libcuda.so.1")


def _call(function, *arguments):
    """The driver's function on the current device, whose memory is opened; its result."""
    import wick as torch

    torch.cuda.current_stream()
    number = getattr(_driver(), function)(*arguments)
    return cudaError.success if number == 0 else number


def cudaGetErrorString(error):
    """What a result says."""
    text = ctypes.c_char_p()
    _driver().cuGetErrorString(int(error), ctypes.byref(text))
    return text.value.decode() if text.value else "unrecognized error code"


def cudaMemGetInfo(device):
    """(free, total) bytes of a device."""
    import wick as torch

    return torch.cuda.mem_get_info(device)


def _profiler(function):
    with contextlib.suppress(AttributeError):  # a driver without a profiler has nothing to start
        return _call(function)
    return cudaError.success


def cudaProfilerStart():
    """A profiler that waits for it begins."""
    return _profiler("cuProfilerStart")


def cudaProfilerStop():
    """It ends."""
    return _profiler("cuProfilerStop")


def cudaHostRegister(address, size, flags):
    """Pins memory of the host."""
    return _call("cuMemHostRegister_v2", ctypes.c_void_p(address), ctypes.c_size_t(size), ctypes.c_uint(flags))


def cudaHostUnregister(address):
    """Unpins it."""
    return _call("cuMemHostUnregister", ctypes.c_void_p(address))


def cudaStreamCreate(address):
    """Writes the handle of a new stream to an address."""
    return _call("cuStreamCreateWithPriority", ctypes.c_void_p(address), ctypes.c_uint(0), ctypes.c_int(0))


def cudaStreamDestroy(handle):
    """The stream goes."""
    return _call("cuStreamDestroy_v2", ctypes.c_void_p(handle))


@functools.cache
def cudart():
    """Functions of CUDA's runtime library: errors, memory, pinning, streams, profiling."""
    from . import _lazy_init

    _lazy_init()
    module = types.ModuleType("torch._C._cudart")
    functions = (f for name, f in globals().items() if name.startswith("cuda") and name != "cudart")
    module.__dict__.update({f.__name__: f for f in functions})
    return module
