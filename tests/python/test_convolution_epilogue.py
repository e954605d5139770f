"""Compiled: what is done with a convolution's result is done with each piece of it that is finished. The bits are eager's."""

import pytest

import wick
import wick.nn.functional as F  # noqa: N812

SHAPES = {  # input, weight, stride, padding, groups
    "one image": ((1, 3, 9, 10), (5, 3, 3, 3), 1, 1, 1),
    "several images": ((3, 4, 24, 23), (6, 4, 3, 3), 1, 1, 1),
    "folded images": ((3, 16, 7, 7), (40, 16, 1, 1), 1, 0, 1),
    "folded, with taps": ((2, 16, 8, 8), (33, 16, 3, 3), 2, 1, 1),
    "one channel": ((2, 3, 21, 21), (1, 3, 3, 3), 1, 0, 1),
    "groups": ((2, 8, 12, 11), (6, 4, 3, 3), 1, 1, 2),
    "depthwise": ((2, 9, 14, 15), (9, 1, 3, 3), 1, 1, 9),
    "small depthwise": ((3, 70, 7, 7), (70, 1, 5, 5), 1, 2, 70),
    "long rows": ((1, 2, 40, 70), (3, 2, 1, 1), 1, 0, 1),
    "one place": ((2, 4, 3, 3), (5, 4, 3, 3), 1, 0, 1),
    "one dim": ((2, 3, 50), (4, 3, 5), 1, 2, 1),
    "three dims": ((2, 3, 5, 6, 7), (4, 3, 2, 3, 3), 1, 1, 1),
}


def convolve(x, w, b, stride, padding, groups):
    return (F.conv1d, F.conv2d, F.conv3d)[x.ndim - 3](x, w, b, stride, padding, 1, groups)


def per_channel(v, y):
    return v.view(-1, *[1] * (y.ndim - 2))


AFTER = {
    "activation": lambda y, p, q, r: F.silu(y),
    "residual": lambda y, p, q, r: F.relu(y + r),
    "norm": lambda y, p, q, r: F.hardswish(F.batch_norm(y, p, q.abs() + 1, q, p, False)),
    "norm and residual": lambda y, p, q, r: F.relu(F.batch_norm(y, p, q.abs() + 1, q, p, False) + r),
    "scale": lambda y, p, q, r: F.relu6(y * per_channel(q, y) + per_channel(p, y)),
    "gate of images": lambda y, p, q, r: (
        F.gelu(y) * r.flatten(2).mean(2).view(*y.shape[:2], *[1] * (y.ndim - 2)).sigmoid()
    ),
    "kept too": lambda y, p, q, r: (y, F.sigmoid(y)),
    "flat": lambda y, p, q, r: F.relu(y).flatten(1),
}


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize(
    "shape,last", [(s, last) for s in SHAPES for last in (False, True) if s != "one dim" or not last]
)
def test_bits_of_eager_code(shape, after, last):
    size, weight, stride, padding, groups = SHAPES[shape]
    wick.manual_seed(1)
    x, w, b = wick.randn(*size), wick.randn(*weight), wick.randn(weight[0])
    if last:
        layout = wick.channels_last if len(size) == 4 else wick.channels_last_3d
        x, w = x.to(memory_format=layout), w.to(memory_format=layout)
    y = convolve(x, w, b, stride, padding, groups)
    p, q, r = wick.randn(weight[0]), wick.randn(weight[0]), wick.randn_like(y)
    for bias in (b, None):

        def f(x, w, p, q, r, bias=bias):
            return AFTER[after](convolve(x, w, bias, stride, padding, groups), p, q, r)

        want = f(x, w, p, q, r)
        compiled = wick.compile(f, options={"wait": True})
        for threads in (1, 3):
            before = wick.get_num_threads()
            wick.set_num_threads(threads)
            got = compiled(x, w, p, q, r)
            wick.set_num_threads(before)
            for a, e in zip(
                got if isinstance(got, tuple) else (got,), want if isinstance(want, tuple) else (want,), strict=True
            ):
                assert wick.equal(a, e) and a.stride() == e.stride()


def test_sizes_that_vary():
    compiled = wick.compile(lambda x, w, b: F.relu(F.conv2d(x, w, padding=1) + b), dynamic=True)
    w, b = wick.randn(4, 3, 3, 3), wick.randn(4, 1, 1)
    for n, h in ((1, 8), (2, 9), (3, 17), (1, 30)):
        x = wick.randn(n, 3, h, h + 1)
        assert wick.equal(compiled(x, w, b), F.relu(F.conv2d(x, w, padding=1) + b))


def test_gradients_through_one():
    x, w = wick.randn(2, 3, 9, 9), wick.randn(4, 3, 3, 3)
    results = []
    for f in (lambda f: f, lambda f: wick.compile(f)):
        a, b = x.clone().requires_grad_(), w.clone().requires_grad_()
        y = f(lambda x, w: F.gelu(F.conv2d(x, w, padding=1)))(a, b)
        y.square().sum().backward()
        results.append((y, a.grad, b.grad))
    assert all(wick.equal(p, q) for p, q in zip(*results, strict=True))


def norm_and_residual(x, w, p, r):
    y = F.conv2d(x, w, padding=1)
    return F.relu(F.batch_norm(y, p, p.abs() + 1, p, p, False) + r)


def test_text_of_one(tmp_path, monkeypatch):
    """A graph with it is whole as text; parts that would leave the result's memory are refused."""
    monkeypatch.setenv("WICK_DEBUG_DIR", str(tmp_path))
    args = [wick.randn(2, 3, 6, 7), wick.randn(4, 3, 3, 3), wick.randn(4), wick.randn(2, 4, 6, 7)]
    want = wick.compile(norm_and_residual)(*args)
    (file,) = tmp_path.glob("*.fuse.txt")
    text = file.read_text()
    line = "product convolution 3 4 - [1 1] [1 1] [1 1] false [0] (1) in 0\n"
    assert line in text and "loops 3 at 0" in text
    (got,) = wick.compiler.load_graph(file)(*args)
    assert wick.equal(got, want)
    hostile = tmp_path / "hostile.txt"
    for before, after in ((line, line.replace("[1 1] [1 1] [1 1]", "[1 1] [2 2] [1 1]")),
                          (line, line.replace("(1)", "(3)")),
                          (line, line.replace(" (1)", " ()")), (line, line.replace("[1 1] [1", "[1 x] [1")),
                          (line, line.replace("false", "true")), (line, 2 * line),
                          (", [2, 4, 42,", ", [4, 2, 42,"), (", [2, 4, 42,", ", [2, 5, 42,")):  # fmt: skip
        assert before in text
        hostile.write_text(text.replace(before, after))
        with pytest.raises((ValueError, RuntimeError)):
            wick.compiler.load_graph(hostile)(*args)
