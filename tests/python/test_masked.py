"""torch.masked: what the mask leaves out counts as nothing."""

import math

import pytest

import wick
from wick import masked

X = wick.tensor([[1.0, 2.0, -3.0], [4.0, 5.0, 6.0]])
MASK = wick.tensor([[True, False, True], [False, True, True]])


def test_reductions_see_only_what_is_left():
    assert masked.sum(X, 1, mask=MASK).tolist() == [-2.0, 11.0]
    assert masked.prod(X, 1, mask=MASK).tolist() == [-3.0, 30.0]
    assert masked.mean(X, 1, mask=MASK).tolist() == [-1.0, 5.5]
    assert masked.amax(X, 1, mask=MASK).tolist() == [1.0, 6.0]
    assert masked.amin(X, 0, mask=MASK).tolist() == [1.0, 5.0, -3.0]
    assert masked.argmin(X, 1, mask=MASK).tolist() == [2, 1]
    assert masked.median(X, 1, mask=MASK).tolist() == [-3.0, 5.0]
    assert masked.var(X, 1, mask=MASK).tolist() == [8.0, 0.5]
    assert masked.std(X, 1, correction=0, mask=MASK).tolist() == [2.0, 0.5]
    assert masked.norm(X, 1, 1, mask=MASK).tolist() == [4.0, 11.0]
    assert masked.cumsum(X, 1, mask=MASK).tolist() == [[1.0, 1.0, -2.0], [0.0, 5.0, 11.0]]


def test_without_a_mask_they_are_the_plain_ones():
    assert wick.equal(masked.sum(X, 1), X.sum(1))
    assert wick.equal(masked.softmax(X, 1), X.softmax(1))
    assert wick.allclose(masked.var(X, 1), X.var(1))


def test_shares_of_what_is_left():
    shares = masked.softmax(X, 1, mask=MASK)
    assert wick.allclose(shares.sum(1), wick.ones(2))
    assert shares[~MASK].tolist() == [0.0, 0.0]
    assert wick.allclose(masked.log_softmax(X, 1, mask=MASK)[MASK].exp(), shares[MASK])
    assert wick.allclose(masked.normalize(X, 2.0, 1, mask=MASK).norm(dim=1), wick.ones(2))


def test_nothing_left_gives_what_leaves_results_alone():
    none = wick.zeros(2, 3, dtype=wick.bool)
    assert masked.sum(X, 1, mask=none).tolist() == [0.0, 0.0]
    assert masked.amax(X, 1, mask=none).tolist() == [-math.inf, -math.inf]
    assert masked.amax(X.long(), 1, mask=none).tolist() == [-(2**63)] * 2
    assert all(math.isnan(v) for v in masked.mean(X, 1, mask=none).tolist())


def test_gradients_go_to_what_is_left():
    x = X.clone().requires_grad_()
    masked.mean(x, 1, mask=MASK).sum().backward()
    assert x.grad.tolist() == [[0.5, 0.0, 0.5], [0.0, 0.5, 0.5]]


def test_dims_are_named_once():
    with pytest.raises(RuntimeError, match="dim=1 appears multiple times in the list of dims"):
        masked.sum(X, (1, -1), mask=MASK)
