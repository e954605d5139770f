"""Interpolation on the device is the CPU's, in every mode, with its gradient, but for the order of a few sums."""

import pytest

import wick as torch
import wick.nn.functional as F  # noqa: N812

CASES = [
    ("nearest", (7, 5), {}),
    ("nearest-exact", (2, 9), {}),
    ("bilinear", (7, 3), {}),
    ("bilinear", (9, 8), {"align_corners": True}),
    ("bilinear", (4, 1), {"align_corners": True}),
    ("bilinear", (1, 21), {}),
    ("bilinear", (2, 3), {"antialias": True}),
    ("bicubic", (6, 7), {}),
    ("bicubic", (3, 2), {"antialias": True}),
    ("area", (2, 3), {}),
]


@pytest.mark.parametrize("mode, size, options", CASES)
@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-6), (torch.float64, 1e-14), (torch.bfloat16, 0)])
def test_interpolation(mode, size, options, dtype, tolerance):
    torch.manual_seed(1)
    x = torch.randn(2, 3, 4, 5).to(dtype)
    x[0, 0, 0, 0] = float("inf")
    results = []
    for device in "cpu", "cuda":
        leaf = x.clone().to(device).requires_grad_()
        y = F.interpolate(leaf, size=size, mode=mode, **options)
        y.backward(torch.linspace(-1, 1, y.numel()).reshape(y.shape).to(device, dtype))
        results.append((y.detach(), leaf.grad))
    for wanted, found in zip(*results, strict=True):
        assert found.device.type == "cuda" and found.stride() == wanted.stride()
        if mode.startswith("nearest"):
            assert torch.equal(found.cpu(), wanted)
        else:
            limit = tolerance or 0.02
            assert ((found.cpu() - wanted).abs() > limit * (1 + wanted.abs())).sum() == 0
            assert torch.equal(found.cpu().isinf(), wanted.isinf())


@pytest.mark.filterwarnings("error:.*will fall back.*")
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float64, torch.float16])
def test_nearest_of_any_dtype(mode, dtype):
    x = torch.arange(2 * 3 * 7 * 5).reshape(2, 3, 7, 5).to(dtype)
    cases = [{"size": (a, b)} for a, b in ((3, 11), (14, 10), (1, 1), (7, 5), (61, 97))]
    cases += [{"scale_factor": s} for s in (2, 0.5, (1.7, 0.6), (3.3, 1 / 3))]
    for where in cases:
        wanted, found = (F.interpolate(t, mode=mode, **where) for t in (x, x.cuda()))
        assert found.dtype == dtype and found.stride() == wanted.stride() and torch.equal(found.cpu(), wanted)


def test_calls_are_parts_of_graphs():
    x = torch.randn(2, 3, 4, 5, device="cuda")

    def f(x):
        up = F.interpolate(x, scale_factor=2, mode="bilinear")
        return F.interpolate(up, scale_factor=0.7, mode="nearest")

    f(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = f(x)
    x.copy_(torch.randn(2, 3, 4, 5))
    graph.replay()
    assert torch.equal(y, f(x))
