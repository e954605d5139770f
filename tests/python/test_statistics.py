"""Covariances, histograms, gradients of sampled functions, memory of given strides."""

import pytest

import wick


def test_covariances():
    x = wick.tensor([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]])
    assert wick.cov(x).tolist() == [[1.0, -1.0], [-1.0, 1.0]]
    assert wick.corrcoef(x).tolist() == [[1.0, -1.0], [-1.0, 1.0]]
    assert wick.cov(wick.tensor([1.0, 2.0, 3.0])).item() == 1.0
    often = wick.cov(x[:, :2], fweights=wick.tensor([1, 2]))
    assert wick.allclose(often, wick.cov(x[:, [0, 1, 1]]))
    with pytest.raises(RuntimeError, match="fweights cannot be negative"):
        wick.cov(x, fweights=wick.tensor([1, -1, 1]))
    with pytest.raises(RuntimeError, match="expected input to have two or fewer dimensions"):
        wick.cov(wick.zeros(1, 1, 1))
    with pytest.warns(UserWarning, match="degrees of freedom is <= 0"):
        assert wick.cov(wick.tensor([1.0])).isnan()


def test_histograms():
    x = wick.tensor([1.0, 2.0, 1.0, 3.0])
    hist, edges = wick.histogram(x, bins=3, range=(0.0, 3.0))
    assert (hist.tolist(), edges.tolist()) == ([0.0, 2.0, 2.0], [0.0, 1.0, 2.0, 3.0])
    given = x.histogram(wick.tensor([0.0, 1.5, 3.0]), weight=wick.tensor([1.0, 2.0, 3.0, 4.0]))
    assert given.hist.tolist() == [4.0, 6.0]
    dense = wick.histogram(x, 2, density=True)
    assert (dense.hist * dense.bin_edges.diff()).sum().item() == 1.0
    with pytest.raises(RuntimeError, match="bins must be > 0"):
        wick.histogram(x, 0)


def test_gradients_of_squares_are_exact_inside():
    x = wick.arange(6, dtype=wick.float64)
    for order, ends in ((1, [1.0, 9.0]), (2, [0.0, 10.0])):
        (slope,) = wick.gradient(x**2, edge_order=order)
        assert slope[1:-1].tolist() == [2.0, 4.0, 6.0, 8.0]
        assert slope[[0, -1]].tolist() == ends
    places = wick.tensor([0.0, 1.0, 3.0, 4.0], dtype=wick.float64)
    (slope,) = wick.gradient(places**2, spacing=(places,), edge_order=2)
    assert wick.allclose(slope, 2 * places)
    with pytest.raises(RuntimeError, match="edge_order"):
        wick.gradient(x, edge_order=3)


def test_resizing_keeps_the_memory_and_its_views():
    x = wick.arange(6.0)
    first = x[:2]
    x.resize_(2, 2)
    assert x.tolist() == [[0.0, 1.0], [2.0, 3.0]]
    first.fill_(7)
    assert x[0].tolist() == [7.0, 7.0]
    x.resize_(3, 4)
    assert (x.shape, x.stride(), x[0, :3].tolist()) == ((3, 4), (4, 1), [7.0, 7.0, 2.0])
    assert x.resize_as_(wick.zeros(2)).tolist() == [7.0, 7.0]
    with pytest.raises(RuntimeError, match="cannot resize variables that require grad"):
        wick.zeros(2, requires_grad=True).resize_(3)


def test_memory_of_given_strides():
    x = wick.empty_strided((2, 3), (1, 2), dtype=wick.int32)
    assert (x.shape, x.stride(), x.dtype) == ((2, 3), (1, 2), wick.int32)
    assert wick.empty_permuted((2, 3, 4), (0, 2, 1)).stride() == (12, 1, 3)
    with pytest.raises(RuntimeError, match="must match dimensionality of strides"):
        wick.empty_strided((2,), (1, 1))
