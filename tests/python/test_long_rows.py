"""Rows of several chunks: scans, whose order is stated (src/loop/loop.h), and the few largest of a row."""

import math

import pytest

import wick

CHUNK = 4096
LENGTHS = (CHUNK, CHUNK + 1, 2 * CHUNK, 2 * CHUNK + 7, 9 * CHUNK, 19 * CHUNK + 130)


@pytest.fixture
def threads():
    before = wick.get_num_threads()
    yield
    wick.set_num_threads(before)


def stated_order(values, combine, start):
    """Element after element inside of a chunk, behind what the chunks before have come to."""
    out, before = [], start
    for begin in range(0, len(values), CHUNK):
        here = start
        for v in values[begin : begin + CHUNK]:
            here = combine(here, v)
            out.append(combine(before, here))
        before = out[-1]
    return out


@pytest.mark.parametrize("length", LENGTHS)
def test_a_scan_has_the_stated_order(length, threads):
    x = wick.rand(length, dtype=wick.float64) - 0.4
    want = stated_order(x.tolist(), lambda a, b: a + b, 0.0)
    for n in (1, 2, 3):
        wick.set_num_threads(n)
        assert x.cumsum(0).tolist() == want
        assert x.clone().cumsum_(0).tolist() == want  # both passes read, and only the second writes
    factors = 1 + x / length
    assert factors.cumprod(0).tolist() == stated_order(factors.tolist(), lambda a, b: a * b, 1.0)


@pytest.mark.parametrize(
    "shape,dim", [((40000,), 0), ((3, 20000), 1), ((2, 5000, 3), 1), ((20000, 40), 0), ((9, 9000), 1)]
)
@pytest.mark.parametrize("dtype", [wick.float32, wick.float64, wick.int64, wick.float16])
def test_a_compiled_scan_has_eager_bits(shape, dim, dtype):
    x = (wick.rand(*shape) * 8 - 3).to(dtype)

    def f(x):
        return (x * 2).cumsum(dim) + 1, x.cumsum(dim)

    compiled = wick.compile(f, options={"wait": True})
    for _ in range(2):
        for got, want in zip(compiled(x), f(x), strict=True):
            assert wick.equal(got.nan_to_num(), want.nan_to_num())


def test_a_scan_of_integers_is_exact_whatever_the_chunks():
    x = wick.arange(100000)
    assert wick.equal(x.cumsum(0), x * (x + 1) // 2)
    assert wick.equal(x.int().view(1, -1).cumsum(1)[0], x * (x + 1) // 2)
    strided = wick.arange(60000).view(2, -1).t()
    assert wick.equal(strided.cumsum(0), strided.contiguous().cumsum(0))
    assert wick.equal(x[::3].cumsum(0), x[::3].clone().cumsum(0))


VALUES = {
    "random": lambda n: wick.randn(n),
    "few values": lambda n: wick.randint(0, 4, (n,)),
    "falling": lambda n: -wick.arange(n, dtype=wick.float64),
    "rising": lambda n: wick.arange(n, dtype=wick.int32),
    "bytes": lambda n: wick.randint(0, 255, (n,)).to(wick.uint8),
    "halves": lambda n: wick.randn(n).half(),
    "zeros of both signs": lambda n: wick.randint(0, 2, (n,)).float() * -0.0,
    "nan": lambda n: wick.where(wick.rand(n) < 0.05, math.nan, wick.randn(n)),
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("largest", [True, False])
def test_the_few_largest_are_the_head_of_a_stable_sort(name, largest):
    wick.manual_seed(3)
    for n in (40, 100, 5000):
        x = VALUES[name](n)
        for rows in (x, x.repeat(2, 1).t().contiguous().t()[0]):
            values, order = wick.sort(rows, stable=True, descending=largest)
            for k in (1, 2, 31, 32, 33):
                top = wick.topk(rows, k, largest=largest)
                assert top.indices.tolist() == order[:k].tolist()
                assert wick.equal(top.values.nan_to_num(1e9), values[:k].nan_to_num(1e9))
