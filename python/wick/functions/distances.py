"""Distances between rows. Tests: tests/parity/test_functional_parity.py."""

from .. import _C


def cdist(x1, x2, p=2.0, compute_mode="use_mm_for_euclid_dist_if_necessary"):
    """The distance of each row of x1 from each of x2: (..., P, M), (..., R, M) -> (..., P, R)."""
    if x1.shape[-1] != x2.shape[-1]:
        raise RuntimeError(f"X1 and X2 must have the same number of columns. X1: {x1.shape[-1]} X2: {x2.shape[-1]}")
    if p < 0:
        raise RuntimeError("cdist only supports non-negative p values")
    if p == 2 and (
        compute_mode == "use_mm_for_euclid_dist"
        or (compute_mode == "use_mm_for_euclid_dist_if_necessary" and max(x1.shape[-2], x2.shape[-2]) > 25)
    ):
        squares = [t.pow(2).sum(-1, True) for t in (x1, x2)]
        left = _C.cat([x1.mul(-2), squares[0], _C.ones_like(squares[0])], -1)
        right = _C.cat([x2, _C.ones_like(squares[1]), squares[1]], -1)
        return (left @ right.mT).clamp_min(0).sqrt()
    difference = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    return _C.linalg_vector_norm(difference, p, [-1])


def pdist(input, p=2.0):
    """The distances between the rows of a matrix, each pair once."""
    count = input.shape[0]
    i, j = _C.triu_indices(count, count, 1, device=input.device)
    return _C.linalg_vector_norm(input[i] - input[j], p, [-1])
