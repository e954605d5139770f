"""Sums of bits. Tests: tests/parity/test_names_parity.py."""

from .. import _C


def _words(t):
    """The bits of the elements, floats as float64 and integers as int64."""
    if t.is_complex():
        raise NotImplementedError(f"\"xor_sum_cpu\" not implemented for '{t.type().rpartition('.')[2][:-6]}'")
    return t.to(_C.float64).view(_C.int64) if t.is_floating_point() else t.to(_C.int64)


def hash_tensor(input, dim=(), keepdim=False, *, mode=0, out=None):
    """The exclusive or of the elements' bits along dims, or of all: a uint64."""
    if mode != 0:
        raise RuntimeError(f"Unknown hash_tensor mode: {mode}")
    dims = {d % max(input.dim(), 1) for d in ((dim,) if isinstance(dim, int) else tuple(dim))}
    if not input.numel() and not dims:
        raise RuntimeError(
            "hash_tensor: Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the "
            "'dim' argument."
        )
    for d in sorted(dims) if input.dim() else ():
        if not input.size(d):
            raise IndexError(f"hash_tensor: Expected reduction dim {d} to have non-zero size.")
    dims = sorted(dims) or list(range(input.dim()))
    words = _words(input)
    for d in dims:
        while words.size(d) > 1:  # halves: the order makes no difference
            half = words.size(d) // 2
            whole = words.narrow(d, 0, half) ^ words.narrow(d, half, half)
            odd = words.size(d) - 2 * half
            words = _C.cat([whole, words.narrow(d, 2 * half, odd)], d) if odd else whole
    for d in reversed(dims) if not keepdim else ():
        words = words.squeeze(d)
    result = words.contiguous().view(_C.uint64)
    return result if out is None else out.resize_(result.shape).copy_(result)
