"""torch.__config__: texts about what this library was built with, for programs that look into them.

Tests: tests/python/test_import_names.py.
"""

from .version import __version__, wick

# What PyTorch's build would be called that has no library but its own code. Programs look for these words.
_SETTINGS = "BLAS_INFO=wick, TORCH_VERSION={version}, USE_CUDA=OFF, USE_MKL=OFF, USE_MKLDNN=OFF, USE_OPENMP=OFF"


def show():
    """What it was built with.

    >>> "USE_MKL=OFF" in wick.__config__.show()
    True
    """
    from .backends.cpu import get_cpu_capability

    lines = (
        f"wick {wick}",
        f"CPU capability usage: {get_cpu_capability()}",
        f"Build settings: {_SETTINGS.format(version=__version__)}, ",
    )
    return "PyTorch built with:\n" + "".join(f"  - {line}\n" for line in lines)


def parallel_info():
    """How many threads there are."""
    import os

    from . import _C

    lines = (
        "ATen/Parallel:",
        f"\tat::get_num_threads() : {_C.get_num_threads()}",
        f"\tat::get_num_interop_threads() : {_C.get_num_interop_threads()}",
        f"std::thread::hardware_concurrency() : {os.cpu_count()}",
        "ATen parallel backend: native thread pool",
    )
    return "\n".join(lines) + "\n"
