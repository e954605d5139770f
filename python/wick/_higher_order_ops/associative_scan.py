"""torch._higher_order_ops.associative_scan: running results of an associative function, in logarithmic depth."""

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
    if reverse:
        results = [result.flip(dim) for result in results]
    return tree_unflatten(results, tree)


def _every_other(leaves, dim, first, count):
    """The slices first, first + 2, ... along dim, `count` of them."""
    place = (slice(None),) * dim
    return [leaf[(*place, slice(first, first + 2 * count, 2))] for leaf in leaves]


def _interleave(evens, odds, dim):
    """evens[0], odds[0], evens[1], ... along dim; evens may have one slice more."""
    pairs = odds.shape[dim]
    mixed = wick.stack([evens.narrow(dim, 0, pairs), odds], dim + 1).flatten(dim, dim + 1)
    return mixed if evens.shape[dim] == pairs else wick.cat([mixed, evens.narrow(dim, pairs, 1)], dim)


def _scan(combine, leaves, dim):
    """Neighbours are combined and half as many slices scanned: these are the odd results; the even ones take one step more."""
    count = leaves[0].shape[dim]
    if count < 2:
        return leaves
    half = count // 2
    pairs = combine(_every_other(leaves, dim, 0, half), _every_other(leaves, dim, 1, half))
    odds = _scan(combine, pairs, dim)
    later = (count - 1) // 2
    evens = [leaf.narrow(dim, 0, 1) for leaf in leaves]
    if later:
        behind = combine([odd.narrow(dim, 0, later) for odd in odds], _every_other(leaves, dim, 2, later))
        evens = [wick.cat([first, rest], dim) for first, rest in zip(evens, behind, strict=True)]
    return [_interleave(even, odd, dim) for even, odd in zip(evens, odds, strict=True)]
