"""Embedding bags: against sums of rows, derivatives, capture, what is refused. Values: tests/parity/."""

import pytest

import wick
from wick.nn import functional as F

NUMBERS, OFFSETS = wick.tensor([1, 2, 4, 5, 4, 3, 2, 6]), wick.tensor([0, 2, 2, 5])


def table(dtype=wick.float64):
    wick.manual_seed(0)
    return wick.randn(7, 3, dtype=dtype).requires_grad_()


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags(mode):
    weight = table()
    y = F.embedding_bag(NUMBERS, weight, OFFSETS, mode=mode)
    for k, (begin, end) in enumerate(((0, 2), (2, 2), (2, 5), (5, 8))):
        rows = weight[NUMBERS[begin:end]]
        expected = wick.zeros(3) if begin == end else rows.amax(0) if mode == "max" else getattr(rows, mode)(0)
        assert wick.allclose(y[k], expected.double())


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("padding_idx", [None, 2])
def test_derivatives(mode, padding_idx):
    scales = wick.rand(8, dtype=wick.float64).requires_grad_() if mode == "sum" else None

    def f(weight, scales=None):
        return F.embedding_bag(NUMBERS, weight, OFFSETS, mode=mode, per_sample_weights=scales, padding_idx=padding_idx)

    weight = table()
    if padding_idx is not None:  # whose gradient is left out on purpose
        with wick.no_grad():
            weight[padding_idx] = 0
    assert wick.autograd.gradcheck(f, (weight, *([] if scales is None else [scales])))
    assert wick.autograd.gradgradcheck(f, (weight, *([] if scales is None else [scales])))


def test_compiled_steps_have_eager_bits():
    def step(weight, scales):
        y = F.embedding_bag(NUMBERS, weight * 2, OFFSETS, mode="sum", per_sample_weights=scales)
        (y * y).sum().backward()
        return y

    compiled = wick.compile(step)
    for _ in range(3):
        one, two = table(wick.float32), table(wick.float32)
        scales = wick.arange(8.0).requires_grad_(), wick.arange(8.0).requires_grad_()
        assert wick.equal(step(one, scales[0]), compiled(two, scales[1]))
        assert wick.equal(one.grad, two.grad)
        assert wick.equal(scales[0].grad, scales[1].grad)


def test_what_is_refused():
    weight = table()
    for numbers, offsets, words in (
        ([1, 7], [0], "Expected idx >= 0 && idx < num_embeddings but found idx to be 7"),
        ([1, -1], [0], "found idx to be -1"),
        ([1, 2], [1], r"offsets\[0\] has to be 0"),
        ([1, 2], [0, 3], r"offsets\[-1\] can not be greater than input's length: 2 but got offsets\[-1\] of 3"),
    ):
        with pytest.raises(RuntimeError, match=words):
            F.embedding_bag(wick.tensor(numbers), weight, wick.tensor(offsets))
