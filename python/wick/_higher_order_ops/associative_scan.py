"""torch._higher_order_ops.associative_scan: running results of an associative function, in logarithmic depth.

Captured, it is the calls of that function, each with many slices. How many follows from the first two binary digits of
the count and their place, so that lengths of the first dim that agree in these are captured once (dynamic=True).
"""

import wick

from ..utils._pytree import tree_flatten, tree_unflatten
from .control_flow import _wrapped


def associative_scan(combine_fn, xs, dim, reverse=False, combine_mode="pointwise"):
    """What combine_fn makes of the slices 0 to k of xs, for every k along dim.

    combine_fn: associative, takes and gives trees of tensors like xs. reverse: of the slices k to the last.
    combine_mode: "pointwise" or "generic"; the functions that "pointwise" is for give the same by either.

        associative_scan(torch.add, x, 0, combine_mode="generic")       # x.cumsum(0)
    """
    if not callable(combine_fn):
        raise ValueError(f"Combine_fn must be a callable, but got {combine_fn}")
    if combine_mode not in ("pointwise", "generic"):
        raise ValueError(f"Combine_mode must either 'pointwise' or 'generic', but got {combine_mode}")
    leaves, tree = tree_flatten(xs)
    if not leaves:
        raise ValueError("Expected at least 1 xs leaf")
    if any(not isinstance(leaf, wick.Tensor) for leaf in leaves):
        raise ValueError(f"xs leaves must be a Tensor, but got {xs}")
    dim = _wrapped(dim, leaves[0])
    if any(leaf.shape[dim] != leaves[0].shape[dim] for leaf in leaves):
        raise ValueError("All xs leaves must at least have the same number of elements along dim")

    def combine(left, right):
        return tree_flatten(combine_fn(tree_unflatten(left, tree), tree_unflatten(right, tree)))[0]

    if reverse:
        leaves = [leaf.flip(dim) for leaf in leaves]
    results = _scan(combine, leaves, dim)
    if dim:
        results = [result.contiguous() for result in results]
    if reverse:
        results = [result.flip(dim) for result in results]
    return tree_unflatten(results, tree)


def _pairs(leaf, dim, start, count):
    """The first slices of `count` pairs along dim, the first pair at start, and the second ones."""
    pairs = leaf.narrow(dim, start, 2 * count).unflatten(dim, (count, 2))
    return pairs.select(dim + 1, 0), pairs.select(dim + 1, 1)


def _interleave(evens, odds, dim, count):
    """evens[0], odds[0], evens[1], ... along dim, `count` slices. evens may have one more, for which there is an odd one
    that is left out again: so this is the same calls for an even and an odd count."""
    some = wick.cat([odds, odds.narrow(dim, 0, 1)], dim).narrow(dim, 0, evens.shape[dim])
    return wick.stack([evens, some], dim + 1).flatten(dim, dim + 1).narrow(dim, 0, count)


def _scan(combine, leaves, dim):
    """Neighbours are combined and half as many slices scanned: these are the odd results; the even ones take one step more."""
    count = leaves[0].shape[dim]
    if count < 2:
        return leaves
    half = count // 2
    pairs = [_pairs(leaf, dim, 0, half) for leaf in leaves]
    odds = _scan(combine, combine([left for left, _ in pairs], [right for _, right in pairs]), dim)
    evens = [leaf.narrow(dim, 0, 1) for leaf in leaves]
    if count > 2:
        later = (count - 1) // 2
        rest = [_pairs(leaf, dim, 1, later)[1] for leaf in leaves]
        behind = combine([odd.narrow(dim, 0, later) for odd in odds], rest)
        evens = [wick.cat([first, others], dim) for first, others in zip(evens, behind, strict=True)]
    return [_interleave(even, odd, dim, count) for even, odd in zip(evens, odds, strict=True)]
