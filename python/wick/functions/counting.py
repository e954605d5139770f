"""unique and unique_consecutive: the operators give three tensors, Python those that were asked for, a protocol of its own.

Tests: tests/parity/test_functional_parity.py.
"""

from .. import _C


def _chosen(results, return_inverse, return_counts):
    extra = ([results[1]] if return_inverse else []) + ([results[2]] if return_counts else [])
    return (results[0], *extra) if extra else results[0]


def unique(input, sorted=True, return_inverse=False, return_counts=False, dim=None):
    """The different elements, or slices along a dim, in order; where each went, and how many there were."""
    if _C._overrides and _C._has_torch_function_variadic(input):
        kwargs = {"sorted": sorted, "return_inverse": return_inverse, "return_counts": return_counts, "dim": dim}
        return _C._dispatch_torch_function(unique, (input,), (input,), kwargs)
    if dim is None:
        results = _C._unique2(input, sorted, return_inverse, return_counts)
    else:
        results = _C.unique_dim(input, dim, sorted, return_inverse, return_counts)
    return _chosen(results, return_inverse, return_counts)


def unique_consecutive(input, return_inverse=False, return_counts=False, dim=None):
    """The elements, or slices along a dim, that differ from the one before."""
    if _C._overrides and _C._has_torch_function_variadic(input):
        kwargs = {"return_inverse": return_inverse, "return_counts": return_counts, "dim": dim}
        return _C._dispatch_torch_function(unique_consecutive, (input,), (input,), kwargs)
    results = _C.unique_consecutive(input, return_inverse, return_counts, dim)
    return _chosen(results, return_inverse, return_counts)
