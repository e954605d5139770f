"""Products of matrices and tensors in a good order; the powers of a vector.

Tests: tests/parity/test_functional_parity.py.
"""

import math

from .. import _C
from .._C import Tensor
from .forms import all_tensors


def tensordot(a, b, dims=2, out=None):
    """Sums products over `dims`: so many last dims of a and first of b, or (dims of a, dims of b)."""
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, int):
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        of_a, of_b = list(range(a.dim() - dims, a.dim())), list(range(dims))
    else:
        of_a, of_b = ([d] if isinstance(d, int) else list(d) for d in dims)
    if len(of_a) != len(of_b):
        raise RuntimeError("both dimension lists should have the same length")
    of_a, of_b = [d % a.dim() for d in of_a], [d % b.dim() for d in of_b]
    for x, y in zip(of_a, of_b, strict=True):
        if a.shape[x] == 1:
            b = b.sum(y, keepdim=True)
        elif b.shape[y] == 1:
            a = a.sum(x, keepdim=True)
        elif a.shape[x] != b.shape[y]:
            raise RuntimeError(
                f"contracted dimensions need to match, but first has size {a.shape[x]} in dim {x} and second has size "
                f"{b.shape[y]} in dim {y}"
            )
    rest_a, rest_b = ([d for d in range(t.dim()) if d not in of] for t, of in ((a, of_a), (b, of_b)))
    inner = math.prod(a.shape[d] for d in of_a)
    left = a.permute(rest_a + of_a).reshape(-1, inner) if inner else a.permute(rest_a + of_a).flatten().reshape(
        math.prod(a.shape[d] for d in rest_a), 0)  # fmt: skip
    right = b.permute(of_b + rest_b).reshape(inner, -1 if inner else math.prod(b.shape[d] for d in rest_b))
    result = (left @ right).reshape([a.shape[d] for d in rest_a] + [b.shape[d] for d in rest_b])
    return result if out is None else out.copy_(result)


def chain_matmul(*matrices, out=None):
    """The product of matrices in the order of the least work."""
    matrices = all_tensors(matrices)
    if not matrices:
        raise RuntimeError("chain_matmul(): Expected one or more matrices")
    return multi_dot(matrices, out=out)


def multi_dot(tensors, *, out=None):
    """The product of matrices in the order of the least work; the first and last may be vectors."""
    tensors = list(tensors)
    if len(tensors) < 2:
        return tensors[0]
    first, last = tensors[0].dim() == 1, tensors[-1].dim() == 1
    if first:
        tensors[0] = tensors[0].unsqueeze(0)
    if last:
        tensors[-1] = tensors[-1].unsqueeze(1)
    sizes = [t.shape[0] for t in tensors] + [tensors[-1].shape[1]]
    best = {(i, i): (0, None) for i in range(len(tensors))}
    for length in range(1, len(tensors)):
        for i in range(len(tensors) - length):
            j = i + length
            best[i, j] = min(
                (best[i, k][0] + best[k + 1, j][0] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)
            )

    def product(i, j):
        k = best[i, j][1]
        return tensors[i] if k is None else product(i, k) @ product(k + 1, j)

    result = product(0, len(tensors) - 1)
    result = result.squeeze(0) if first else result
    result = result.squeeze(-1) if last else result
    return result if out is None else out.copy_(result)


def vander(x, N=None, increasing=False):
    """The powers of a vector's elements, a row each."""
    N = x.shape[0] if N is None else N
    powers = _C.arange(N, device=x.device)
    return x.unsqueeze(-1) ** (powers if increasing else powers.flip(0))
