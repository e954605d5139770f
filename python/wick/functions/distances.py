"""cdist as Python calls it: the way of computing by name. Tests: tests/parity/test_functional_parity.py."""

from .. import _C

_MODES = {"use_mm_for_euclid_dist_if_necessary": None, "use_mm_for_euclid_dist": 1, "donot_use_mm_for_euclid_dist": 2}


def cdist(x1, x2, p=2.0, compute_mode="use_mm_for_euclid_dist_if_necessary"):
    """The distance of each row of x1 from each of x2: (..., P, M), (..., R, M) -> (..., P, R)."""
    if _C._overrides and _C._has_torch_function_variadic(x1, x2):
        return _C._dispatch_torch_function(cdist, (x1, x2), (x1, x2), {"p": p, "compute_mode": compute_mode})
    if compute_mode not in _MODES:
        raise ValueError(f"{compute_mode} is not a valid value for compute_mode")
    return _C.cdist(x1, x2, p, _MODES[compute_mode])
