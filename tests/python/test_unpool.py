"""max_unpool and fractional_max_pool: what they put where, refusals, derivatives."""

import pytest

import wick
import wick.nn.functional as F
from wick import nn
from wick.autograd import gradcheck


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_unpooling_puts_elements_back(dims):
    x = wick.randn(2, 3, *[6] * dims)
    pool, unpool = getattr(nn, f"MaxPool{dims}d")(2, return_indices=True), getattr(nn, f"MaxUnpool{dims}d")(2)
    best, places = pool(x)
    back = unpool(best, places)
    assert back.shape == x.shape
    assert wick.equal(back[back != 0], x[back != 0])
    assert wick.equal(back.flatten(2).gather(2, places.flatten(2)), best.flatten(2))
    assert gradcheck(lambda t: unpool(t, places), (best.double().requires_grad_(),))


def test_unpooling_to_an_odd_size_and_refusals():
    best, places = F.max_pool2d(wick.randn(1, 1, 5, 5), 2, return_indices=True)
    assert F.max_unpool2d(best, places, 2, output_size=(5, 5)).shape == (1, 1, 5, 5)
    with pytest.raises(ValueError, match="invalid output_size"):
        F.max_unpool2d(best, places, 2, output_size=(9, 9))
    with pytest.raises(RuntimeError, match="elements in indices should be type int64 but got: int32"):
        F.max_unpool2d(best, places.int(), 2)
    with pytest.raises(RuntimeError, match="Found an invalid max index: 99"):
        F.max_unpool2d(best, places * 0 + 99, 2)


@pytest.mark.parametrize("dims", [2, 3])
def test_fractional_windows(dims):
    x = wick.randn(2, 3, *[7] * dims, dtype=wick.float64)
    pool = getattr(F, f"fractional_max_pool{dims}d")
    samples = wick.rand(2, 3, dims, dtype=wick.float64)
    best, places = pool(x, 2, output_size=4, return_indices=True, _random_samples=samples)
    assert best.shape == (2, 3, *[4] * dims)
    assert wick.equal(x.flatten(2).gather(2, places.flatten(2)), best.flatten(2))
    assert best.flatten(2)[..., -1].equal(x[(..., *[slice(5, 7)] * dims)].flatten(2).amax(-1))  # the last window
    assert gradcheck(lambda t: pool(t, 2, output_size=4, _random_samples=samples), (x.requires_grad_(),))
    assert pool(x, 3, output_ratio=0.5).shape == (2, 3, *[3] * dims)
    layer = getattr(nn, f"FractionalMaxPool{dims}d")
    assert layer(2, output_size=3)(x[0]).shape == (3, *[3] * dims)
    with pytest.raises(RuntimeError, match="too large relative to input"):
        pool(x, 7, output_size=4)
    with pytest.raises(ValueError, match="requires specifying either an output size, or a pooling ratio"):
        layer(2)
