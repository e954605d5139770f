"""torch.cuda.nvtx: marks for NVIDIA's profilers.

They go to NVIDIA's library where there is one, which a profiler puts itself behind. Without it ranges are counted, so that
programs that mark theirs run.
"""

import contextlib
import ctypes
import functools
import itertools
import threading

from .._names import getter as _getter

__all__ = ["range_push", "range_pop", "range_start", "range_end", "mark", "range"]


class _Counted:
    """What the library does when no profiler listens, but that it tells the depth."""

    def __init__(self):
        self._thread, self._ids = threading.local(), itertools.count(1)

    def range_push(self, text):
        depth = getattr(self._thread, "depth", 0)
        self._thread.depth = depth + 1
        return depth

    def range_pop(self):
        depth = getattr(self._thread, "depth", 0) - 1
        self._thread.depth = max(depth, 0)
        return depth

    def range_start(self, text):
        return next(self._ids)

    def range_end(self, range_id):
        pass

    def mark(self, text):
        pass


class _Library:
    """NVIDIA's library."""

    def __init__(self, library):
        text = ctypes.c_char_p
        functions = (
            ("range_push", "nvtxRangePushA", ctypes.c_int, [text]),
            ("range_pop", "nvtxRangePop", ctypes.c_int, []),
            ("range_start", "nvtxRangeStartA", ctypes.c_uint64, [text]),
            ("range_end", "nvtxRangeEnd", None, [ctypes.c_uint64]),
            ("mark", "nvtxMarkA", None, [text]),
        )
        for name, theirs, result, arguments in functions:
            function = getattr(library, theirs)
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)


@functools.cache
def _opened():
    for name in ("libnvToolsExt.so.1", "libnvToolsExt.so", "libnvtx3interop.so.1", "libnvtx3interop.so"):
        with contextlib.suppress(OSError, AttributeError):  # not there; there, and something else
            return _Library(ctypes.CDLL(name))
    return _Counted()


def _marks():
    from . import is_available

    if not is_available():
        raise RuntimeError("NVTX functions not installed. Are you sure you have a CUDA build?")
    return _opened()


def _text(msg):
    if not isinstance(msg, str):
        raise TypeError(f"a range's text must be str, not {type(msg).__name__}")
    return msg.encode()


def range_push(msg):
    """Begins a range inside of the thread's current one; gives its depth, 0 for the outermost."""
    return _marks().range_push(_text(msg))


def range_pop():
    """Ends the thread's innermost range; gives its depth, less than 0 where there is none."""
    return _marks().range_pop()


def range_start(msg):
    """Begins a range that may end in another thread; gives a number for range_end."""
    return _marks().range_start(_text(msg))


def range_end(range_id):
    """Ends a range of range_start."""
    _marks().range_end(range_id)


def mark(msg):
    """Marks a moment."""
    _marks().mark(_text(msg))


@contextlib.contextmanager
def range(msg, *args, **kwargs):
    """A range for what runs inside a `with`, or for a function's calls; its text is msg.format(*args, **kwargs).

    >>> with torch.cuda.nvtx.range("step {}", 3):
    ...     y = x * 2
    """
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()


__getattr__ = _getter(__name__)
