"""Resampling: what must hold of it whatever the numbers; derivatives, capture, shapes. Values: tests/parity/."""

import pytest

import wick
from wick import nn
from wick.nn import functional as F

MODES = ["nearest", "nearest-exact", "bilinear", "bicubic", "area"]


def image(*shape, dtype=None):
    wick.manual_seed(0)
    return wick.randn(shape, dtype=dtype)


@pytest.mark.parametrize("mode", MODES)
def test_constants_stay(mode):
    assert wick.allclose(F.interpolate(wick.full((1, 2, 5, 3), 3.0), (7, 2), mode=mode), wick.tensor(3.0))


def test_known_values():
    x = wick.tensor([[[0.0, 1.0, 2.0]]])
    assert F.interpolate(x, 6).tolist() == [[[0, 0, 1, 1, 2, 2]]]
    assert F.interpolate(x, 5, mode="linear", align_corners=True).tolist() == [[[0, 0.5, 1, 1.5, 2]]]
    assert F.interpolate(x, 6, mode="linear").tolist() == [[[0, 0.25, 0.75, 1.25, 1.75, 2]]]
    assert F.interpolate(x, 2, mode="area").tolist() == [[[0.5, 1.5]]]


@pytest.mark.parametrize("mode", MODES)
def test_derivatives(mode):
    x = image(1, 2, 3, 4, dtype=wick.float64).requires_grad_()
    assert wick.autograd.gradcheck(lambda x: F.interpolate(x, (5, 3), mode=mode), (x,))
    assert wick.autograd.gradgradcheck(lambda x: F.interpolate(x, (5, 3), mode=mode), (x,))


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_derivatives_of_grid_sample(mode, padding):
    x = image(1, 2, 3, 4, dtype=wick.float64).requires_grad_()
    grid = (wick.rand(1, 2, 3, 2, dtype=wick.float64) * 2.4 - 1.2).requires_grad_()
    assert wick.autograd.gradcheck(lambda x, g: F.grid_sample(x, g, mode, padding, True), (x, grid))


def test_identity_grid():
    x = image(2, 3, 4, 5)
    theta = wick.tensor([[[1.0, 0, 0], [0, 1.0, 0]]]).expand(2, -1, -1)
    for corners in (True, False):
        grid = F.affine_grid(theta, x.shape, corners)
        assert wick.allclose(F.grid_sample(x, grid, align_corners=corners), x, atol=1e-5)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_any_number_of_threads_gives_the_same_bits(threads):
    before, x = wick.get_num_threads(), image(3, 20, 40, 30)
    expected = F.interpolate(x, (77, 61), mode="bicubic")
    try:
        wick.set_num_threads(threads)
        assert wick.equal(F.interpolate(x, (77, 61), mode="bicubic"), expected)
    finally:
        wick.set_num_threads(before)


@pytest.mark.parametrize("mode", MODES)
def test_compiled_steps_have_eager_bits(mode):
    def step(x, grid):
        y = F.interpolate(x, scale_factor=2, mode=mode)
        y = F.grid_sample(y * 2, grid, align_corners=False) + nn.PixelShuffle(2)(y.repeat(1, 4, 1, 1))[:, :, :3, :3]
        (y * y).sum().backward()
        return y

    compiled = wick.compile(step, fullgraph=True)
    for _ in range(3):
        x, again, grid = image(1, 2, 4, 5).requires_grad_(), image(1, 2, 4, 5).requires_grad_(), image(1, 3, 3, 2)
        assert wick.equal(step(x, grid), compiled(again, grid))
        assert wick.equal(x.grad, again.grad)


def test_any_dtype_is_copied():
    for dtype in (wick.uint8, wick.bfloat16, wick.float16):
        x = image(1, 2, 3, 3).abs().to(dtype)
        assert wick.equal(F.interpolate(x, (6, 3)), x.repeat_interleave(2, 2))
    assert F.interpolate(image(1, 2, 3, 3).half(), 6, mode="bilinear").dtype == wick.float16


def test_shapes_on_meta():
    x = wick.ones(1, 2, 4, 5, device="meta")
    assert F.interpolate(x, scale_factor=(2, 0.5), mode="bicubic").shape == (1, 2, 8, 2)
    assert nn.PixelUnshuffle(1)(x).shape == x.shape


def test_shuffles_undo_each_other():
    x = image(2, 8, 4, 6)
    assert wick.equal(F.pixel_unshuffle(F.pixel_shuffle(x, 2), 2), x)
    assert wick.equal(F.channel_shuffle(F.channel_shuffle(x, 2), 4), x)
