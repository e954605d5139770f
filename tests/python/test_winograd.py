"""Convolutions of 3 x 3 under mode="max-autotune", where Winograd's way may be taken: near the convolution in float64, and
nowhere else with other bits than eager mode's."""

import pytest

import wick
import wick.nn.functional as F  # noqa: N812

# batch, in, out, height, width, padding
SHAPES = [
    (1, 16, 24, 28, 28, 1),
    (3, 19, 37, 17, 23, 0),
    (2, 33, 16, 14, 15, 2),
    (4, 64, 64, 7, 7, 1),
    (1, 3, 10, 40, 40, 1),
]


@pytest.fixture(params=[1, 2])
def threads(request):
    before = wick.get_num_threads()
    wick.set_num_threads(request.param)
    yield request.param
    wick.set_num_threads(before)


def operands(shape, last):
    batch, channels, out, height, width, padding = shape
    wick.manual_seed(2)
    x, w, b = wick.rand(batch, channels, height, width) * 2 - 1, wick.randn(out, channels, 3, 3), wick.randn(out)
    if last:
        x, w = x.to(memory_format=wick.channels_last), w.to(memory_format=wick.channels_last)
    return x, w, b, padding


def tuned(function, *args):
    """What the graph gives: the call that captures it is eager."""
    compiled = wick.compile(function, mode="max-autotune")
    compiled(*args)
    return compiled(*args)


def bound(depth, largest, sums):
    """Of conv/winograd.h for F(4 x 4, 3 x 3), whose error may be the largest; a plain sum's is smaller."""
    return (9 * depth + 64) * 2**-24 * 861 * largest * sums


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_forward_is_near(shape, last, threads):
    x, w, b, padding = operands(shape, last)

    def f(x, w, b):
        return F.relu(F.conv2d(x, w, b, padding=padding))

    y, exact, plain = tuned(f, x, w, b), f(x.double(), w.double(), b.double()), f(x, w, b)
    limit = bound(x.shape[1], x.abs().max(), w.abs().sum((1, 2, 3)).view(1, -1, 1, 1))
    assert ((y - exact).abs() <= limit + 1e-6).all()
    assert (y - exact).abs().max() <= 3e-5 * exact.abs().max()  # what random values come to
    assert y.stride() == plain.stride()


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_are_near(shape, threads):
    x, w, b, padding = operands(shape, False)

    def f(x, w, b):
        return F.conv2d(x, w, b, padding=padding)

    def gradients(function, dtype):
        leaves = [t.to(dtype).detach().requires_grad_() for t in (x, w, b)]
        y = function(*leaves)
        y.backward((wick.arange(y.numel(), dtype=dtype) % 17 / 16 - 0.5).view_as(y))
        return [leaf.grad for leaf in leaves]

    exact = gradients(f, wick.float64)
    compiled = wick.compile(f, mode="max-autotune")
    gradients(compiled, wick.float32)
    for a, e in zip(gradients(compiled, wick.float32), exact, strict=True):
        assert (a - e).abs().max() <= 3e-5 * e.abs().max()


def test_it_is_taken_where_it_is_far_faster():
    """Its bits are seen. A third of the time is more than what disturbs most measurements: one of some sizes is enough."""

    def f(x, w):
        return F.conv2d(x, w, padding=1)

    def is_taken(height):
        x, w, _, _ = operands((4, 64, 64, height, 56, 1), False)
        return not wick.equal(tuned(f, x, w), f(x, w))

    before = wick.get_num_threads()
    wick.set_num_threads(1)
    taken = any(map(is_taken, range(53, 58)))
    wick.set_num_threads(before)
    assert taken


def test_what_follows_is_done_to_the_whole_result():
    x, w, b, padding = operands(SHAPES[0], False)
    mean, variance = wick.randn(24), wick.rand(24) + 0.5

    def f(x, w, b):
        y = F.conv2d(x, w, b, padding=padding)
        return F.hardswish(F.batch_norm(y, mean, variance) + y.mean((2, 3), keepdim=True))

    y, exact = tuned(f, x, w, b), f(x, w, b)
    assert (y - exact).abs().max() <= 1e-4 * exact.abs().max()


@pytest.mark.parametrize(
    "options",
    [{}, {"mode": "reduce-overhead"}, {"options": {"max_autotune": True, "max_autotune_gemm_backends": "CPP"}}],
)
def test_other_code_has_the_bits_of_eager_mode(options):
    x, w, b, padding = operands(SHAPES[0], False)

    def f(x, w, b):
        return F.conv2d(x, w, b, padding=padding)

    before = f(x, w, b)
    tuned(f, x, w, b)
    assert wick.equal(f(x, w, b), before)
    compiled = wick.compile(lambda x, w, b: f(x, w, b) * 1, **options)
    for _ in range(2):
        assert wick.equal(compiled(x, w, b), before)
