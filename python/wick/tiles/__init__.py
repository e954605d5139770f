"""Kernels over blocks: Python functions in the language of Triton's tutorials, on CPU and CUDA tensors.

    import wick as torch
    from wick import tiles as triton
    import wick.tiles.language as tl

    @triton.jit
    def add(x, y, out, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = at < n
        tl.store(out + at, tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask), mask=mask)

    add[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)

Under `python -m wick` and `wick._as_torch.install()`, `import triton` is this module (WICK_TRITON=installed: an
installed Triton).
docs/tile.md has the whole.
"""

from . import errors, language, runtime, testing
from ._autotune import Autotuner, Config, Heuristics, autotune, heuristics
from ._jit import JITFunction, KernelInterface, jit
from .errors import CompilationError, OutOfResources, TritonError

__version__ = "3.6.0"


def cdiv(x, y):
    """x / y, rounded up."""
    return (x + y - 1) // y


def next_power_of_2(n):
    """The smallest power of two that is not below n."""
    return 1 << max(n - 1, 0).bit_length()


def set_allocator(allocator):
    """Takes it and does nothing: descriptors need no memory here."""


__all__ = [
    "Autotuner", "CompilationError", "Config", "Heuristics", "JITFunction", "KernelInterface", "OutOfResources", "TritonError",
    "autotune", "cdiv", "errors", "heuristics", "jit", "language", "next_power_of_2", "runtime", "set_allocator", "testing",
]  # fmt: skip
