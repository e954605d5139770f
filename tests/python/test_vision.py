"""torch.ops.torchvision: what torchvision's own library does for PyTorch, against plain formulas."""

import math
import os

import pytest

import wick
from wick import library

wick.ops.load_library("/somewhere/torchvision/_C.so")
ops = wick.ops.torchvision


# ---- boxes to keep ----


def kept(boxes, scores, threshold):
    order = sorted(range(len(boxes)), key=lambda i: -scores[i])
    result = []
    for i in order:
        for k in result:
            a, b = boxes[i], boxes[k]
            w = max(0, min(a[2], b[2]) - max(a[0], b[0]))
            h = max(0, min(a[3], b[3]) - max(a[1], b[1]))
            whole = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - w * h
            if w * h / whole > threshold:
                break
        else:
            result.append(i)
    return result


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.7])
@pytest.mark.parametrize("dtype", [wick.float32, wick.float64])
def test_boxes_that_are_kept(threshold, dtype):
    wick.manual_seed(0)
    corner, size = wick.randint(0, 40, (60, 2)), wick.randint(1, 20, (60, 2))
    boxes, scores = wick.cat([corner, corner + size], 1).to(dtype), wick.randint(0, 20, (60,)).to(dtype)
    assert ops.nms(boxes, scores, threshold).tolist() == kept(boxes.tolist(), scores.tolist(), threshold)
    strided = wick.stack([boxes, boxes], 2)[..., 0]
    assert ops.nms.default(strided, scores, threshold).tolist() == kept(boxes.tolist(), scores.tolist(), threshold)


def test_boxes_at_the_edges():
    assert ops.nms(wick.zeros(0, 4), wick.zeros(0), 0.5).shape == (0,)
    box = wick.tensor([[0.0, 0, 4, 4]] * 3)
    assert ops.nms(box, wick.tensor([0.5, math.nan, 0.7]), 0.5).tolist() == [1]
    assert ops.nms(wick.zeros(2, 4), wick.ones(2), 0.5).tolist() == [0, 1]  # a share of nothing is not more
    for boxes, scores, text in (
        (wick.zeros(4), wick.zeros(1), "boxes should be a 2d tensor, got 1D"),
        (wick.zeros(2, 5), wick.zeros(2), "boxes should have 4 elements in dimension 1, got 5"),
        (wick.zeros(2, 4), wick.zeros(2, 1), "scores should be a 1d tensor, got 2D"),
        (wick.zeros(2, 4), wick.zeros(3), "same number of elements in dimension 0, got 2 and 3"),
        (wick.zeros(2, 4), wick.zeros(2).double(), "dets should have the same type as scores"),
    ):
        with pytest.raises(RuntimeError, match=text):
            ops.nms(boxes, scores, 0.5)
    with pytest.raises(NotImplementedError, match="\"nms\" not implemented for 'Long'"):
        ops.nms(wick.zeros(2, 4).long(), wick.zeros(2).long(), 0.5)


# ---- means of bins ----


def between(plane, y, x):
    """An element between the pixels."""
    height, width = len(plane), len(plane[0])
    if y < -1 or y > height or x < -1 or x > width:
        return 0.0
    y, x = max(y, 0), max(x, 0)
    top, left = min(int(y), height - 1), min(int(x), width - 1)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    y, x = (top if top == bottom else y), (left if left == right else x)
    below, beyond = y - top, x - left
    above, before = 1 - below, 1 - beyond
    return (
        above * before * plane[top][left] + above * beyond * plane[top][right]
        + below * before * plane[bottom][left] + below * beyond * plane[bottom][right]
    )  # fmt: skip


def aligned_regions(images, regions, scale, rows, columns, sampling, aligned):
    result = []
    for region in regions:
        image, offset = int(region[0]), 0.5 if aligned else 0.0
        x1, y1, x2, y2 = (c * scale - offset for c in region[1:])
        height, width = y2 - y1, x2 - x1
        if not aligned:
            height, width = max(height, 1), max(width, 1)
        high, wide = height / rows, width / columns
        down = sampling if sampling > 0 else math.ceil(high)
        along = sampling if sampling > 0 else math.ceil(wide)
        result.append([
            [
                [
                    sum(
                        between(plane, y1 + row * high + (i + 0.5) * high / down, x1 + c * wide + (j + 0.5) * wide / along)
                        for i in range(down) for j in range(along)
                    ) / max(down * along, 1)
                    for c in range(columns)
                ]
                for row in range(rows)
            ]
            for plane in images[image]
        ])  # fmt: skip
    return result


REGIONS = [
    [0, 1.5, 2, 9, 11],
    [1, 0, 0, 15.5, 13],
    [1, -3, -2.5, 4, 5],
    [0, 10, 10, 29, 27],
    [0, 5, 5, 5.2, 5.1],
    [1, 40, 40, 50, 50],
]


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("sampling", [2, -1])
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_means_of_bins(aligned, sampling, scale):
    wick.manual_seed(0)
    images, regions = wick.randn(2, 3, 12, 14), wick.tensor(REGIONS)
    expected = aligned_regions(images.tolist(), REGIONS, scale, 3, 2, sampling, aligned)
    found = ops.roi_align(images, regions, scale, 3, 2, sampling, aligned)
    assert wick.allclose(found, wick.tensor(expected), atol=1e-5)
    exact = ops.roi_align(images.double(), regions.double(), scale, 3, 2, sampling, aligned)
    assert wick.allclose(exact, wick.tensor(expected, dtype=wick.float64), atol=1e-6)
    last = images.contiguous(memory_format=wick.channels_last)
    assert wick.equal(ops.roi_align(last, regions, scale, 3, 2, sampling, aligned), found)


@pytest.mark.parametrize("sampling", [2, -1])
def test_gradients_of_means(sampling):
    wick.manual_seed(0)
    images, regions = wick.randn(2, 2, 6, 7).double().requires_grad_(), wick.tensor(REGIONS[:4]).double()
    call = lambda x: ops.roi_align(x, regions, 0.5, 2, 3, sampling, True)  # noqa: E731
    assert wick.autograd.gradcheck(call, (images,))
    grad = wick.randn(4, 2, 2, 3).double()
    (found,) = wick.autograd.grad(call(images), images, grad)
    direct = ops._roi_align_backward(grad, regions, 0.5, 2, 3, 2, 2, 6, 7, sampling, True)
    assert wick.equal(found, direct)


# ---- largest elements of bins ----


def half_away(x):
    return math.floor(abs(x) + 0.5) * (1 if x >= 0 else -1)


def largest_regions(images, regions, scale, rows, columns):
    values, places = [], []
    for region in regions:
        x1, y1, x2, y2 = (half_away(c * scale) for c in region[1:])
        high, wide = max(y2 - y1 + 1, 1) / rows, max(x2 - x1 + 1, 1) / columns
        for plane in images[int(region[0])]:
            height, width = len(plane), len(plane[0])
            for row in range(rows):
                for column in range(columns):
                    ys = range(max(math.floor(row * high) + y1, 0), min(math.ceil((row + 1) * high) + y1, height))
                    xs = range(max(math.floor(column * wide) + x1, 0), min(math.ceil((column + 1) * wide) + x1, width))
                    best = max(((plane[y][x], -(y * width + x)) for y in ys for x in xs), default=(0.0, 1))
                    values.append(best[0])
                    places.append(-best[1])
    return values, places


def test_largest_elements_of_bins():
    wick.manual_seed(0)
    images, regions = wick.randn(2, 3, 12, 14), wick.tensor(REGIONS)
    values, places = largest_regions(images.tolist(), REGIONS, 0.5, 2, 4)
    found, at = ops.roi_pool(images, regions, 0.5, 2, 4)
    assert found.shape == at.shape == (6, 3, 2, 4) and at.dtype == wick.int32
    assert found.flatten().tolist() == values and at.flatten().tolist() == places
    small = wick.randn(2, 2, 5, 6).double().requires_grad_()
    assert wick.autograd.gradcheck(lambda x: ops.roi_pool(x, regions[:3].double(), 0.5, 2, 2)[0], (small,))


# ---- regions that cannot be used ----


def test_regions_that_cannot_be_used():
    images = wick.randn(1, 1, 4, 4)
    for image in (1.0, -1.0, math.nan):
        region = wick.tensor([[image, 0, 0, 1, 1]])
        for call in (
            lambda r: ops.roi_align(images, r, 1.0, 2, 2, 2, False),
            lambda r: ops.roi_pool(images, r, 1.0, 2, 2),
            lambda r: ops._roi_align_backward(wick.ones(1, 1, 2, 2), r, 1.0, 2, 2, 1, 1, 4, 4, 2, False),
        ):
            with pytest.raises(IndexError, match="an image that is not there"):
                call(region)
    for far in (1e30, math.inf, math.nan):
        region = wick.tensor([[0, 0, 0, far, far]])
        ops.roi_pool(images, region, 1.0, 2, 2)
        ops.roi_align(images, region, 1.0, 2, 2, 2, True)  # some places of it, none of them inside
        with pytest.raises(RuntimeError, match="a region is too large"):
            ops.roi_align(images, region, 1.0, 2, 2, -1, True)
    with pytest.raises(RuntimeError, match=r"rois must have shape as Tensor\[K, 5\]"):
        ops.roi_align(images, wick.zeros(1, 4), 1.0, 2, 2, 2, False)
    with pytest.raises(RuntimeError, match="type torch.float32 does not equal torch.float64"):
        ops.roi_align(images, wick.zeros(1, 5).double(), 1.0, 2, 2, 2, False)
    with pytest.raises(RuntimeError, match="at least one bin"):
        ops.roi_align(images, wick.zeros(1, 5), 1.0, 0, 2, 2, False)
    assert ops.roi_align(images, wick.zeros(0, 5), 1.0, 2, 2, 2, False).shape == (0, 1, 2, 2)
    assert ops.roi_align(images.to("meta"), wick.zeros(3, 5, device="meta"), 1.0, 2, 2, 2, False).shape == (3, 1, 2, 2)


# ---- operators that are made of others ----


def test_bins_with_channels_of_their_own():
    wick.manual_seed(0)
    images, regions = wick.randn(2, 12, 12, 14), wick.tensor(REGIONS[:3])
    found, channel = ops.ps_roi_align(images, regions, 0.5, 3, 2, 2)
    assert found.shape == channel.shape == (3, 2, 3, 2) and channel.dtype == wick.int32
    whole = ops.roi_align(images, regions, 0.5, 3, 2, 2, True)
    for k in range(3):
        for c in range(2):
            for row in range(3):
                for column in range(2):
                    own = (c * 3 + row) * 2 + column
                    assert channel[k, c, row, column] == own and found[k, c, row, column] == whole[k, own, row, column]


def test_convolution_with_moved_taps():
    wick.manual_seed(0)
    x, weight, bias = wick.randn(2, 4, 7, 8).double(), wick.randn(6, 2, 3, 3).double(), wick.randn(6).double()
    none = wick.zeros(2, 2 * 18, 4, 4).double()
    mask = wick.ones(2, 2 * 9, 4, 4).double()
    arguments = (2, 2, 1, 1, 1, 1, 2, 2, True)
    plain = wick.nn.functional.conv2d(x, weight, bias, stride=2, padding=1, groups=2)
    assert wick.allclose(ops.deform_conv2d(x, weight, none, mask, bias, *arguments), plain)
    assert wick.allclose(
        ops.deform_conv2d(x, weight, none, mask * 0.5, bias * 0, *arguments), (plain - bias.view(1, -1, 1, 1)) / 2
    )
    right = none.clone()
    right[:, 1::2] = 1  # every tap one pixel to the right
    moved = wick.nn.functional.conv2d(wick.nn.functional.pad(x, (-1, 1)), weight, bias, stride=2, padding=1, groups=2)
    inner = ops.deform_conv2d(x, weight, right, mask, bias, *arguments)
    assert wick.allclose(inner[..., 1:], moved[..., 1:])
    small = [
        t.requires_grad_()
        for t in (
            x[:1, :, :4, :4].clone(),
            weight,
            wick.rand(1, 36, 2, 2).double() + 0.2,
            mask[:1, :, :2, :2].clone(),
            bias,
        )
    ]
    assert wick.autograd.gradcheck(lambda *a: ops.deform_conv2d(*a, *arguments), small)


# ---- names ----


def test_what_torchvision_registers_is_taken():
    made = library.Library("torchvision", "IMPL", "Meta")
    for name in ("roi_align", "_roi_align_backward", "nms", "deform_conv2d", "ps_roi_pool"):
        made.impl(getattr(getattr(ops, name), "default"), lambda *a: None)  # noqa: B009
        library.register_autograd(f"torchvision::{name}", lambda ctx, *g: None)
        library.register_fake(f"torchvision::{name}", lambda *a: None)
    assert ops._cuda_version() == -1 and str(ops.nms) == "torchvision.nms"
    assert ops.nms(wick.zeros(0, 4), wick.zeros(0), 0.5).shape == (0,)
    with pytest.raises(NotImplementedError, match="torch.ops.torchvision.qnms is not available"):
        ops.qnms()
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        ops.nothing  # noqa: B018
    with pytest.raises(OSError, match="Could not load"):
        wick.ops.load_library(os.path.join("torchvision", "image.so"))


def test_captured():
    wick.manual_seed(0)
    images, regions = wick.randn(2, 3, 12, 14, requires_grad=True), wick.tensor(REGIONS)

    def step(x, r):
        pooled = ops.roi_align(x * 2, r, 0.5, 2, 2, 2, False)
        return (pooled.relu() + ops.roi_pool(x, r, 1.0, 2, 2)[0]).sum()

    (plain,) = wick.autograd.grad(step(images, regions), images)
    compiled = wick.compile(step, fullgraph=True)
    for _ in range(3):
        (found,) = wick.autograd.grad(compiled(images, regions), images)
        assert wick.equal(found, plain)


# ---- bins with channels of their own ----

OWN_REGIONS = [[0, 1.5, 2, 9, 10], [1, 0, 0, 12, 8], [0, 3, 3, 3, 3], [1, -4, 5, 40, 60]]


def pooled_by_place(x, regions, scale, rows, columns):
    """Means of each bin, whose last row and column of the image belong to none."""
    _, channels, height, width = x.shape
    result = wick.zeros(len(regions), channels // (rows * columns), rows, columns, dtype=x.dtype)
    for k, (image, *corners) in enumerate(regions):
        x1, y1, x2, y2 = (half_away(c * scale) for c in corners)
        down, along = max(y2 - y1, 1) / rows, max(x2 - x1, 1) / columns
        for c in range(result.shape[1]):
            for i in range(rows):
                for j in range(columns):
                    top, bottom = (
                        min(max(y + y1, 0), height - 1) for y in (math.floor(i * down), math.ceil((i + 1) * down))
                    )
                    left, right = (
                        min(max(v + x1, 0), width - 1) for v in (math.floor(j * along), math.ceil((j + 1) * along))
                    )
                    bin_ = x[int(image), (c * rows + i) * columns + j, top:bottom, left:right]
                    result[k, c, i, j] = bin_.sum() / bin_.numel() if bin_.numel() else 0
    return result


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_means_of_bins_with_channels_of_their_own(scale):
    wick.manual_seed(0)
    x = wick.rand(2, 12, 16, 14, dtype=wick.float64, requires_grad=True)
    means, channel = ops.ps_roi_pool(x, wick.tensor(OWN_REGIONS, dtype=wick.float64), scale, 2, 3)
    wick.testing.assert_close(means, pooled_by_place(x, OWN_REGIONS, scale, 2, 3))
    assert channel.dtype == wick.int32 and channel[0].flatten().tolist() == list(range(12))
    means.square().sum().backward()
    gradient, x.grad = x.grad, None
    pooled_by_place(x, OWN_REGIONS, scale, 2, 3).square().sum().backward()
    wick.testing.assert_close(gradient, x.grad)


@pytest.mark.parametrize("name", ["roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d"])
def test_half_is_float_rounded(name):
    wick.manual_seed(0)
    x, regions = wick.rand(2, 12, 16, 14).half(), wick.tensor([[0, 1.5, 2, 9, 10], [1, 0, 0, 12, 8]]).half()
    weight, offset, mask = (
        wick.rand(4, 12, 3, 3).half(),
        wick.rand(2, 18, 16, 14).half(),
        wick.rand(2, 9, 16, 14).half(),
    )

    def run(dtype):
        image = x.clone().to(dtype).requires_grad_()
        if name == "deform_conv2d":
            rest = (1, 1, 1, 1, 1, 1, 1, 1, True)
            result = ops.deform_conv2d(
                image, *(t.to(dtype) for t in (weight, offset, mask)), wick.zeros(4).to(dtype), *rest
            )
        else:
            more = {"roi_align": (2, True), "ps_roi_align": (2,)}.get(name, ())
            result = getattr(ops, name)(image, regions.to(dtype), 1.0, 2, 3, *more)
            result = result[0] if isinstance(result, tuple) else result
        result.float().sum().backward()
        return result, image.grad

    most = 2e-2 if name == "deform_conv2d" else 4e-3  # which is made of many operators
    for half, single in zip(run(wick.float16), run(wick.float32), strict=True):
        assert half.dtype == wick.float16
        wick.testing.assert_close(half.float(), single, rtol=most, atol=most)


def test_bfloat16_is_refused_where_torchvision_refuses_it():
    x, regions = wick.rand(1, 4, 8, 8).bfloat16(), wick.tensor([[0, 1.0, 1, 4, 4]]).bfloat16()
    with pytest.raises(NotImplementedError, match="\"roi_align_forward_kernel\" not implemented for 'BFloat16'"):
        ops.roi_align(x, regions, 1.0, 2, 2, 2, True)
