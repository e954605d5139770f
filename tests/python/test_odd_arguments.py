"""Arguments that are seldom given and mean something: numbers before tensors, empty lists of dims, bounds as tensors."""

import math

import pytest

import wick


def test_numbers_before_tensors():
    x = wick.tensor([3, -2], dtype=wick.int32)
    for result, dtype, values in [
        (wick.mul(2, x), wick.int32, [6, -4]),
        (wick.add(1.5, x, alpha=2), wick.float32, [7.5, -2.5]),
        (wick.sub(True, x), wick.int32, [-2, 3]),
        (wick.div(6, x), wick.float32, [2, -3]),
        (wick.remainder(7, x), wick.int32, [1, -1]),
        (wick.bitwise_and(5, x), wick.int32, [1, 4]),
        (7 // x, wick.int32, [2, -4]),
        (7 % x, wick.int32, [1, -1]),
        (7.5 % x, wick.float32, [1.5, -0.5]),
        (wick.mul(2, 3.5), wick.float32, 7),
    ]:
        assert (result.dtype, result.tolist()) == (dtype, values)
    y = wick.tensor([2.0, 4.0], dtype=wick.float64, requires_grad=True)
    wick.div(0.1, y).sum().backward()
    assert y.grad.tolist() == [-0.1 / 4, -0.1 / 16]


def test_reversed_operators_are_captured():
    f = wick.compile(lambda x: (7 // x, 7 % x))
    for _ in range(3):
        assert [y.tolist() for y in f(wick.tensor([3, -2]))] == [[2, -4], [1, -1]]


def test_short_lists_with_sequences_are_tuples():
    x = wick.arange(12).reshape(3, 4)
    assert x[[wick.tensor(0), wick.tensor(1)]].item() == 1
    assert x[[wick.tensor([0, 2]), wick.tensor([1, 3])]].tolist() == [1, 11]
    assert x[[(0, 1)]].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert x[[slice(0, 1), 2]].tolist() == [2]
    assert x[[0, 2]].shape == (2, 4)
    x[[wick.tensor([0]), wick.tensor([1])]] = 100
    assert x.flatten().tolist() == [0, 100, *range(2, 12)]
    assert wick.arange(5)[: 2**70].tolist() == list(range(5))
    assert wick.arange(5)[-(2**70) : 2].tolist() == wick.arange(5)[-(2**63) : 2].tolist() == [0, 1]
    assert wick.arange(5)[1 : 5 : 2**63 - 1].tolist() == [1] and wick.arange(5)[: -(2**63)].tolist() == []


def test_no_dims():
    x = wick.arange(6.0).reshape(2, 3)
    assert x.logsumexp([]).item() == pytest.approx(math.log(sum(math.exp(i) for i in range(6))))
    assert x.logsumexp([], True).shape == (1, 1)
    assert x.bool().any(()).tolist() == x.bool().all(()).tolist() == x.bool().tolist()
    assert x.any(None).item() and not x.all(None).item()
    assert x.all((0, 1), keepdim=True).shape == (1, 1)
    assert wick.tensor(2.0).topk(0).values.item() == 2


def test_norms():
    x = wick.tensor([[1.0, 0.0], [-2.0, 3.0]], requires_grad=True)
    assert wick.norm(x, 0).item() == 3
    assert wick.norm(x, p=0, dim=1).tolist() == [1, 2]
    wick.norm(x, 0).backward()
    assert x.grad.tolist() == [[0, 0], [0, 0]]
    assert wick.linalg_vector_norm(wick.ones(2), 0, dtype=wick.float64).dtype == wick.float64


def test_logspace_of_integers():
    for dtype in (wick.int64, wick.int32, wick.uint8):
        y = wick.logspace(0, 2, 5, dtype=dtype)
        assert (y.dtype, y.tolist()) == (dtype, [1, 3, 10, 31, 100])


def test_bounds_as_tensors():
    nan = math.nan
    x = wick.tensor([0.0, 2.0, 5.0, nan, 1.0], requires_grad=True)
    low = wick.tensor([1.0, 1.0, 1.0, 1.0, nan], requires_grad=True)
    high = wick.tensor(4.0, requires_grad=True)
    y = x.clamp(low, high)
    assert str(y.tolist()) == str([1.0, 2.0, 4.0, nan, nan])
    y.sum().backward()
    assert x.grad.tolist() == [0, 1, 0, 1, 0]
    assert low.grad.tolist() == [1, 0, 0, 0, 1]
    assert high.grad.item() == 1
    z = wick.tensor([0.0, 9.0])
    assert z.clamp_(max=wick.tensor([1.0, 3.0])) is z
    assert z.tolist() == [0, 3]


def test_composites_in_place_are_differentiable():
    x = wick.tensor([-1.0, 2.0, 1.0], requires_grad=True)
    y = x * 1
    version = y._version
    assert y.clamp_min_(0.5) is y
    assert y._version == version + 1
    y.clip_(max=1.5)
    y.mul_(3)
    y.sum().backward()
    assert y.tolist() == [1.5, 4.5, 3] and x.grad.tolist() == [0, 0, 3]


def test_gradient_of_cumprod_with_zeros():
    x = wick.tensor([[2.0, 0.0, 3.0, 0.0, 5.0], [1.0, 2.0, 0.5, 4.0, 1.0]], dtype=wick.float64, requires_grad=True)
    weights = wick.arange(1.0, 11.0, dtype=wick.float64).reshape(2, 5)
    (x.cumprod(1) * weights).sum().backward()
    for r in range(2):
        for k in range(5):
            slope = 0
            for j in range(k, 5):
                product = weights[r, j].item()
                for i in range(j + 1):
                    product *= 1 if i == k else x[r, i].item()
                slope += product
            assert x.grad[r, k].item() == pytest.approx(slope)
    assert wick.autograd.gradgradcheck(lambda y: y.cumprod(0), x) if hasattr(wick.autograd, "gradgradcheck") else True


def test_masks_of_attention():
    q = wick.randn(1, 2, 3, 4)
    for shape in ((3, 3), (1, 3), (3, 1), (2, 1, 3), (1, 1, 3, 3), (5, 1, 3, 3), (5, 2, 3, 3)):
        mask = wick.rand(shape) < 0.7
        mask[..., 0] = True
        y = wick.nn.functional.scaled_dot_product_attention(q, q, q, mask)
        scores = (q @ q.transpose(-2, -1) / 2).masked_fill(~mask, -math.inf)
        wanted = scores.softmax(-1) @ q
        assert y.shape == wanted.shape
        assert (y - wanted).abs().max() < 1e-5
    for shape in ((2, 3), (3, 2), (2, 2), (3, 3, 3), (1, 3, 3, 3)):
        with pytest.raises(RuntimeError, match="must match the size of tensor b"):
            wick.nn.functional.scaled_dot_product_attention(q, q, q, wick.ones(shape))


@pytest.mark.parametrize(
    "call",
    [
        lambda here, there: wick.nn.functional.linear(here, there),
        lambda here, there: wick.nn.functional.cross_entropy(there, wick.tensor([0, 1])),
        lambda here, there: here.index_put((wick.tensor([0]),), there[0]),
        lambda here, there: wick.cat([here, there]),
        lambda here, there: here.gather(0, there.long()),
        lambda here, there: here @ there,
    ],
)
def test_memory_that_is_not_there(call):
    with pytest.raises(RuntimeError, match="meta"):
        call(wick.ones(2, 2), wick.ones(2, 2, device="meta"))


@pytest.mark.parametrize("rows,columns", [(0, 3), (3, 0), (3, 4), (4, 3), (2, 2)])
def test_places_in_triangles(rows, columns):
    ones = wick.ones(rows, columns)
    for k in (-(2**62), -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 2**62):
        assert wick.tril_indices(rows, columns, k).tolist() == ones.tril(k).nonzero().t().tolist()
        assert wick.triu_indices(rows, columns, k).tolist() == ones.triu(k).nonzero().t().tolist()


def test_triangles_of_many_rows():
    assert wick.tril_indices(2**40, 4, 2 - 2**40).tolist() == [[2**40 - 2, 2**40 - 1, 2**40 - 1], [0, 0, 1]]
    with pytest.raises(RuntimeError):
        wick.tril_indices(2**62, 4, 1)
    assert wick.tril_indices(2, 2, 2**63 - 1).tolist() == [[0, 0, 1, 1], [0, 1, 0, 1]]
    assert wick.ones(2, 2).triu(-(2**62)).tolist() == [[1, 1], [1, 1]]
