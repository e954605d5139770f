"""tensordot and chain_matmul as Python calls them: dims as a number, lists or a tensor; matrices one by one.

Protocols of Python over operators. Tests: tests/parity/test_functional_parity.py.
"""

from .. import _C
from .variadic import _variadic

chain_matmul = _variadic("chain_matmul", "The product of matrices in the order of the least work.")


def _dims_of(dims, a, b):
    """(dims of a, dims of b)"""
    if isinstance(dims, _C.Tensor):
        dims = dims.tolist() if dims.numel() > 1 else int(dims.item())
    if isinstance(dims, (tuple, list)):
        return [[d] if isinstance(d, int) else list(d) for d in dims]
    if not isinstance(dims, int):
        raise RuntimeError(
            "tensordot expects dims to be int or tuple[list[int], list[int]] or list[list[int]] containing two lists, but "
            f"got dims={dims}"
        )
    if dims < 0:
        raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
    if dims > min(a.dim(), b.dim()):
        raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
    return list(range(-dims, 0)), list(range(dims))


def tensordot(a, b, dims=2, out=None):
    """Sums products over `dims`: so many last dims of a and first of b, or (dims of a, dims of b)."""
    if _C._overrides and _C._has_torch_function_variadic(a, b):
        return _C._dispatch_torch_function(tensordot, (a, b), (a, b), {"dims": dims, "out": out})
    of_a, of_b = _dims_of(dims, a, b)
    return _C.tensordot(a, b, of_a, of_b, **({} if out is None else {"out": out}))
