"""torch.cuda.nvtx: marks for NVIDIA's profilers, which need the CUDA build."""

import contextlib

from .._names import getter as _getter


def _refuse(*args, **kwargs):
    raise RuntimeError("NVTX functions not installed. Are you sure you have a CUDA build?")


range_push = range_pop = range_start = range_end = mark = _refuse


@contextlib.contextmanager
def range(msg, *args, **kwargs):
    """Marks what runs inside a `with`."""
    range_push(msg)
    yield


__getattr__ = _getter(__name__)
