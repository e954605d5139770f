"""Resampling against PyTorch: interpolate in every mode, grid_sample, affine_grid, pixels and channels, errors."""

import pytest
from compare import same

SHAPES = {3: (2, 3, 5), 4: (1, 2, 4, 5), 5: (1, 2, 3, 4, 3)}
MODES = [
    ("nearest", 3), ("nearest", 4), ("nearest", 5), ("nearest-exact", 3), ("nearest-exact", 4), ("area", 3), ("area", 4),
    ("area", 5), ("linear", 3), ("bilinear", 4), ("bicubic", 4), ("trilinear", 5),
]  # fmt: skip
SIZES = [
    {"size": 7}, {"size": 2}, {"scale_factor": 2}, {"scale_factor": 1.7}, {"scale_factor": 0.6},
    {"scale_factor": 1.7, "recompute_scale_factor": True},
]  # fmt: skip


def with_gradients(t, f, *inputs):
    inputs = [x.requires_grad_() for x in inputs]
    y = f(*inputs)
    (y * t.linspace(-1, 1, y.numel(), dtype=y.dtype).view(y.shape)).sum().backward()
    return y, list(y.stride()), [x.grad for x in inputs]


def interpolated(t, shape, dtype="float32", **options):
    x = t.randn(shape, dtype=getattr(t, dtype))
    return with_gradients(t, lambda x: t.nn.functional.interpolate(x, **options), x)


@pytest.mark.parametrize(("mode", "rank"), MODES)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_interpolate(mode, rank, size):
    for dtype in ("float32", "float64"):
        same(lambda t, d=dtype: interpolated(t, SHAPES[rank], d, mode=mode, **size), tolerance=1e-5)


@pytest.mark.parametrize(("mode", "rank"), [m for m in MODES if "linear" in m[0] or m[0] == "bicubic"])
@pytest.mark.parametrize("size", [*SIZES, {"size": 1}], ids=str)
def test_interpolate_between_corners(mode, rank, size):
    same(lambda t: interpolated(t, SHAPES[rank], mode=mode, align_corners=True, **size), tolerance=1e-5)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize("size", [{"size": 4}, {"size": (3, 11)}, {"scale_factor": 0.3}], ids=str)
def test_antialias(mode, size):
    same(lambda t: interpolated(t, (1, 3, 9, 8), mode=mode, antialias=True, **size), tolerance=2e-5)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic", "area"])
def test_channels_last(mode):
    def run(t):
        x = t.randn(2, 3, 4, 5).to(memory_format=t.channels_last)
        y = t.nn.functional.interpolate(x, (7, 3), mode=mode)
        return y, list(y.stride())

    same(run, tolerance=1e-5)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("corners", [True, False])
def test_grid_sample(mode, padding, corners):
    def run(t, shape, grid):
        f = t.nn.functional.grid_sample
        return with_gradients(t, lambda x, g: f(x, g, mode, padding, corners), t.randn(shape), t.rand(grid) * 3 - 1.5)

    same(lambda t: run(t, (2, 3, 4, 5), (2, 3, 2, 2)), tolerance=1e-4)
    if mode != "bicubic":
        same(lambda t: run(t, (2, 3, 4, 5, 3), (2, 3, 2, 4, 3)), tolerance=1e-4)


@pytest.mark.parametrize("corners", [True, False])
def test_affine_grid(corners):
    def run(t):
        f = t.nn.functional.affine_grid
        two = with_gradients(t, lambda theta: f(theta, (2, 3, 4, 5), corners), t.rand(2, 2, 3))
        return two, f(t.rand(2, 3, 4), (2, 3, 2, 4, 5), corners), f(t.rand(2, 2, 3), (2, 3, 1, 5), corners)

    same(run, tolerance=1e-5)


def test_pixels_and_channels():
    def run(t):
        x, f = t.arange(48.0), t.nn.functional
        layers = t.nn.PixelShuffle(2), t.nn.PixelUnshuffle(2), t.nn.ChannelShuffle(2)
        results = f.pixel_shuffle(x.view(2, 4, 2, 3), 2), f.pixel_unshuffle(x.view(2, 4, 6), 2)
        return results, f.channel_shuffle(x.view(2, 4, 2, 3), 2), repr(layers), layers[0](x.view(12, 2, 2))

    same(run)


IMAGE = (1, 2, 4, 4)
ERRORS = {
    **{
        str(options): lambda t, options=options: t.nn.functional.interpolate(t.ones(IMAGE), **options)
        for options in (
            {},
            {"size": 3, "scale_factor": 2},
            {"size": (3, 3, 3)},
            {"scale_factor": (1, 2, 3)},
            {"size": 3, "mode": "linear"},
            {"size": 3, "mode": "foo"},
            {"size": 3, "mode": "lanczos"},
            {"size": 3, "align_corners": True},
            {"size": 3, "recompute_scale_factor": True},
            {"size": 3, "antialias": True},
            {"size": 0},
        )
    },
    "rank": lambda t: t.nn.functional.interpolate(t.ones(3, 3), 3),
    "upsample": lambda t: t.nn.functional.upsample(t.ones(IMAGE), 3),
    "upsample_bilinear": lambda t: t.nn.functional.upsample_bilinear(t.ones(IMAGE), 3),
    "theta": lambda t: t.nn.functional.affine_grid(t.ones(2, 2, 3), (2, 3, 4, 4, 4)),
    "theta's rank": lambda t: t.nn.functional.affine_grid(t.ones(2, 2, 3), (2, 3, 4)),
    "theta's size": lambda t: t.nn.functional.affine_grid(t.ones(2, 2, 3), (2, 3, 0, 4)),
    "grid": lambda t: t.nn.functional.grid_sample(t.ones(IMAGE), t.ones(1, 3, 3, 3)),
    "grid's batch": lambda t: t.nn.functional.grid_sample(t.ones(IMAGE), t.ones(2, 3, 3, 2)),
    "grid's rank": lambda t: t.nn.functional.grid_sample(t.ones(IMAGE), t.ones(1, 3, 3)),
    "grid's mode": lambda t: t.nn.functional.grid_sample(t.ones(IMAGE), t.ones(1, 3, 3, 2), "foo"),
    "grid's padding": lambda t: t.nn.functional.grid_sample(t.ones(IMAGE), t.ones(1, 3, 3, 2), padding_mode="foo"),
    "grid's dtype": lambda t: t.nn.functional.grid_sample(t.ones(IMAGE), t.ones(1, 3, 3, 2, dtype=t.float64)),
    "empty image": lambda t: t.nn.functional.grid_sample(t.ones(1, 2, 0, 4), t.ones(1, 3, 3, 2)),
    "shuffle's rank": lambda t: t.pixel_shuffle(t.ones(3, 3), 2),
    "shuffle's channels": lambda t: t.pixel_shuffle(t.ones(3, 3, 3), 2),
    "shuffle's factor": lambda t: t.pixel_shuffle(t.ones(3, 3, 3), 0),
    "unshuffle's width": lambda t: t.pixel_unshuffle(t.ones(3, 4, 3), 2),
    "unshuffle's height": lambda t: t.pixel_unshuffle(t.ones(3, 3, 4), 2),
    "groups": lambda t: t.channel_shuffle(t.ones(3, 4, 3), 3),
    "no groups": lambda t: t.channel_shuffle(t.ones(3, 4, 3), 0),
    "group rank": lambda t: t.channel_shuffle(t.ones(3, 4), 2),
    **{
        text: lambda t, text=text: repr(eval(f"nn.{text}", {"nn": t.nn}))
        for text in ("Upsample(scale_factor=2)", "Upsample((2, 3), mode='bilinear')", "UpsamplingNearest2d(3)",
                     "UpsamplingBilinear2d(scale_factor=(2, 3))")
    },
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_errors_and_printed_forms(name):
    same(ERRORS[name])
