"""Strides of what is made like another tensor, and of what is converted: PyTorch's, recorded."""

import pytest

import wick
import wick.nn.functional as F  # noqa: N812

LIKE = {
    "empty_like": wick.empty_like,
    "zeros_like": wick.zeros_like,
    "ones_like": wick.ones_like,
    "full_like": lambda x, **k: wick.full_like(x, 2, **k),
    "rand_like": wick.rand_like,
    "randn_like": wick.randn_like,
    "randint_like": lambda x, **k: wick.randint_like(x, 3, **k),
    "clone": wick.clone,
    "to": lambda x, **k: x.to(wick.float64, **k),
    "double": lambda x, **k: x.double(**k),
    "copy": lambda x, **k: x.to(wick.float32, copy=True, **k),
}

# What lies how, and the strides of a copy: as it lies, contiguous, channels last.
TENSORS = {
    "contiguous": (lambda: wick.zeros(2, 3, 4, 5), (60, 20, 5, 1), (60, 20, 5, 1), (60, 1, 15, 3)),
    "permuted": (lambda: wick.zeros(2, 3, 4, 5).permute(2, 0, 3, 1), (5, 60, 1, 20), (30, 15, 3, 1), (30, 1, 6, 2)),
    "gaps": (lambda: wick.zeros(5, 4, 3, 4).permute(3, 2, 1, 0)[::2], (1, 2, 6, 24), (60, 20, 5, 1), (60, 1, 15, 3)),
    "expanded": (lambda: wick.zeros(1, 3, 1, 1).expand(2, 3, 4, 5), (60, 20, 5, 1), (60, 20, 5, 1), (60, 1, 15, 3)),
    "one channel": (lambda: wick.zeros(2, 1, 4, 4), (16, 16, 4, 1), (16, 16, 4, 1), (16, 1, 4, 1)),
}


@pytest.mark.parametrize("lies", TENSORS)
@pytest.mark.parametrize("name", LIKE)
def test_strides(name, lies):
    make, preserved, contiguous, channels_last = TENSORS[lies]
    function, x = LIKE[name], make()
    assert function(x).stride() == function(x, memory_format=wick.preserve_format).stride() == preserved
    assert function(x, memory_format=None).stride() == preserved
    assert function(x, memory_format=wick.contiguous_format).stride() == contiguous
    made = function(x, memory_format=wick.channels_last)
    assert made.stride() == channels_last and made.shape == x.shape
    with pytest.raises(RuntimeError, match="required rank 5 tensor to use channels_last_3d format"):
        function(x, memory_format=wick.channels_last_3d)


def test_values_stay_where_they_are():
    x = wick.arange(120.0).reshape(2, 3, 4, 5)
    y = x.permute(3, 0, 1, 2)[1::2]
    assert y.clone().tolist() == y.double(memory_format=wick.channels_last).tolist() == y.tolist()
    assert y.clone().stride() == (1, 24, 8, 2) and x.float(memory_format=wick.contiguous_format) is x


def test_empty_in_a_format():
    assert wick.empty(2, 3, 4, 5, memory_format=wick.channels_last).stride() == (60, 1, 15, 3)
    assert wick.empty((2, 3, 4, 5), memory_format=wick.contiguous_format).stride() == (60, 20, 5, 1)
    x = wick.empty(1, 2, 3, 4, 5, memory_format=wick.channels_last_3d)
    assert x.is_contiguous(memory_format=wick.channels_last_3d) and not x.is_contiguous()


def test_formats_in_compiled_code():
    def like(x):
        y = wick.zeros_like(x, memory_format=wick.channels_last) + 1
        return y, wick.full_like(x, 2.0, memory_format=wick.contiguous_format), x.clone()

    x = wick.arange(120.0).reshape(2, 3, 4, 5).permute(0, 2, 1, 3)
    for made, wanted in zip(wick.compile(like)(x), like(x), strict=True):
        assert made.stride() == wanted.stride() and made.tolist() == wanted.tolist()


def test_layouts():
    assert wick.zeros(2, layout=wick.strided, pin_memory=False).tolist() == [0, 0]
    with pytest.raises(NotImplementedError, match="torch.sparse_coo"):
        wick.zeros(2, layout=wick.sparse_coo)


# ---- cat, stack and pad: strides of PyTorch 2.13 ----


def channels_last(*sizes):
    numbers = wick.arange(float(wick.Size(sizes).numel())).view(sizes)
    return numbers.contiguous(memory_format=wick.channels_last if len(sizes) == 4 else wick.channels_last_3d)


def plain(*sizes):
    return wick.arange(float(wick.Size(sizes).numel())).view(sizes)


@pytest.mark.parametrize(
    ("sizes", "pool", "keeps"),
    [
        ((2, 3, 6, 5), lambda x: F.max_pool2d(x, 3, 2, 1), True),
        ((2, 3, 6, 4), lambda x: F.adaptive_max_pool2d(x, 2), True),
        ((2, 3, 4, 6, 4), lambda x: F.max_pool3d(x, 2), True),
        ((2, 3, 4, 6, 4), lambda x: F.adaptive_max_pool3d(x, 2), False),
    ],
)
def test_largest_elements_and_their_gradient_lie_as_the_images_do(sizes, pool, keeps):
    x = channels_last(*sizes).sin().requires_grad_()
    y = pool(x)
    weights = plain(*y.shape).cos()
    (gradient,) = wick.autograd.grad((y * weights).sum(), x)
    in_planes = x.detach().contiguous().requires_grad_()
    (expected,) = wick.autograd.grad((pool(in_planes) * weights).sum(), in_planes)
    assert wick.equal(gradient, expected)
    made = channels_last if keeps else plain
    assert y.stride() == made(*y.shape).stride() and gradient.stride() == made(*sizes).stride()


CATS = [
    (lambda: [channels_last(2, 3, 4, 5)] * 2, 0, (60, 1, 15, 3)),
    (lambda: [channels_last(2, 3, 4, 5)] * 2, 1, (120, 1, 30, 6)),
    (lambda: [channels_last(2, 3, 4, 5)] * 2, 2, (120, 1, 15, 3)),
    (lambda: [channels_last(2, 3, 4, 5)] * 2, 3, (120, 1, 30, 3)),
    (lambda: [channels_last(2, 3, 4, 5)], 1, (60, 1, 15, 3)),
    (lambda: [channels_last(2, 3, 4, 5), plain(2, 3, 4, 5)], 1, (120, 20, 5, 1)),
    (lambda: [plain(2, 3, 4, 5), channels_last(2, 3, 4, 5)], 1, (120, 20, 5, 1)),
    (lambda: [channels_last(2, 3, 4, 5, 2)] * 2, 1, (240, 1, 60, 12, 6)),
    (lambda: [channels_last(2, 3, 4, 5)[:, :2], channels_last(2, 3, 4, 5)], 1, (100, 1, 25, 5)),
    (lambda: [channels_last(2, 3, 4, 5)[:, :, ::2], channels_last(2, 3, 2, 5)], 1, (60, 1, 30, 6)),
    (lambda: [wick.empty(0), channels_last(2, 3, 4, 5)], 1, (60, 20, 5, 1)),
    (lambda: [channels_last(2, 3, 1, 1)] * 2, 1, (6, 1, 1, 1)),
    (lambda: [plain(2, 3).t()] * 2, 0, (2, 1)),
]


@pytest.mark.parametrize(("tensors", "dim", "strides"), CATS)
def test_cat_keeps_the_channels_last(tensors, dim, strides):
    tensors = tensors()
    expected = wick.cat([t.contiguous() for t in tensors], dim)
    compiled = wick.compile(lambda *tensors: wick.cat(tensors, dim), options={"wait": True})
    results = [wick.cat(tensors, dim), compiled(*tensors), compiled(*tensors)]
    results.append(wick.cat(tensors, dim, out=wick.empty(0)))
    for result in results:
        assert result.stride() == strides and wick.equal(result, expected)
    shapes = [t.to("meta") if t.is_contiguous() else t.to(device="meta") for t in tensors]
    assert wick.cat(shapes, dim).shape == expected.shape


@pytest.mark.parametrize(
    ("dim", "strides"),
    [(0, (120, 60, 1, 15, 3)), (1, (120, 3, 1, 30, 6)), (3, (120, 1, 30, 15, 3)), (4, (120, 40, 10, 2, 1))],
)
def test_stack_keeps_the_channels_last(dim, strides):
    x, y = channels_last(2, 3, 4, 5), channels_last(2, 3, 4, 5) + 1
    expected = wick.stack([x.contiguous(), y.contiguous()], dim)
    compiled = wick.compile(lambda x, y: wick.stack([x, y], dim), options={"wait": True})
    for result in (wick.stack([x, y], dim), compiled(x, y), compiled(x, y)):
        assert result.stride() == strides and wick.equal(result, expected)


def test_what_is_made_of_cat_keeps_the_channels_last():
    x = channels_last(2, 3, 4, 5)
    for call, strides in (
        (lambda x: wick.roll(x, 1, 2), (60, 1, 15, 3)),
        (lambda x: wick.nn.functional.pad(x, (1, 1)), (84, 1, 21, 3)),
        (lambda x: wick.nn.functional.group_norm(x, 3), (60, 1, 15, 3)),
    ):
        compiled = wick.compile(call, options={"wait": True})
        for result in (call(x), compiled(x), compiled(x)):
            assert result.stride() == strides and wick.equal(result, call(x.contiguous()))


class Blocks(wick.nn.Module):
    """Convolutions of one tap and of one channel a group, with what networks put between them, and one of several."""

    def __init__(self):
        super().__init__()
        nn = wick.nn
        self.first = nn.Conv2d(3, 8, 3, 2, 1)
        self.body = nn.Sequential(
            nn.Conv2d(8, 8, 3, 1, 1, groups=8, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 1)
        )
        self.side = nn.Conv2d(8, 4, 1)
        self.last = nn.Conv2d(20, 4, 3)

    def forward(self, x):
        x = self.first(x)
        y = self.body(x)
        y = y * wick.sigmoid(y.mean([2, 3], True))
        both = wick.cat([y, self.side(x)], 1)
        return self.last(both), both, y.mean((-1, -2)), y.mean([2, 3], True)


@pytest.mark.parametrize("dtype", [wick.float32, wick.float64])
def test_compiled_convolutions_may_have_their_channels_last_inside_and_give_what_eager_mode_does(dtype):
    wick.manual_seed(0)
    model = Blocks().eval().to(dtype)
    x = wick.randn(2, 3, 17, 14, dtype=dtype)
    with wick.no_grad():
        expected, results = model(x), wick.compile(model)(x)
    for a, b in zip(results, expected, strict=True):
        assert wick.equal(a, b)
        assert a.stride() == b.stride()


TURNED = {"turned": lambda: wick.arange(12.0).view(3, 4).t(), "channels last": lambda: wick.arange(96.0).view(2, 4, 4, 3).permute(0, 3, 1, 2)}  # fmt: skip


@pytest.mark.parametrize("layout", TURNED)
@pytest.mark.parametrize(("call", "kept"), [
    (lambda t: t.index_fill(0, wick.tensor([0]), 1.0), True),
    (lambda t: t.index_put((wick.tensor([0]),), wick.tensor(1.0)), True),
    (lambda t: t.masked_fill(t > 0, 0.0), False),
    (lambda t: wick.nn.functional.logsigmoid(t), False),
])  # fmt: skip
def test_layout_of_results(call, kept, layout):
    """Whether a result lies as its argument does, or is contiguous, is what it is in PyTorch."""
    t = TURNED[layout]()
    y = call(t)
    assert y.stride() == t.stride() if kept else y.is_contiguous()
    assert wick.equal(y, call(t.contiguous()))


def test_strides_of_new_dims_of_one_element():
    assert wick.ones(3, 1).expand(1, 3, 4).stride() == (3, 1, 0)
    assert wick.ones(4).expand(1, 4).stride() == (4, 1)
    assert wick.ones(()).expand(1, 1).stride() == (0, 0)


def test_pixel_shuffle_keeps_channels_last():
    x = wick.arange(96.0).view(2, 8, 2, 3).contiguous(memory_format=wick.channels_last)
    y = wick.pixel_shuffle(x, 2)
    assert y.is_contiguous(memory_format=wick.channels_last)
    assert wick.equal(y, wick.pixel_shuffle(x.contiguous(), 2))
    assert wick.pixel_unshuffle(y, 2).is_contiguous(memory_format=wick.channels_last)
