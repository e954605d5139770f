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
    assert x.grad is None  # as in PyTorch
    assert wick.linalg.vector_norm(wick.ones(2), 0, dtype=wick.float64).dtype == wick.float64


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


def test_diagonals_beyond_a_matrix():
    x = wick.arange(6.0).reshape(2, 3)
    for k in (-(2**63), -(2**63) + 1, -(2**62) - 1, -(2**62)):
        assert x.tril(k).tolist() == wick.zeros(2, 3).tolist()
        assert x.triu(k).tolist() == x.tolist()
        assert x.clone().tril_(k).tolist() == wick.zeros(2, 3).tolist()
        assert x.diagonal(k).shape == (0,)
    for k in (2**62, 2**63 - 1):
        assert x.tril(k).tolist() == x.tolist()
        assert x.triu(k).tolist() == wick.zeros(2, 3).tolist()
        assert x.diagonal(offset=k).shape == (0,)
    assert wick.arange(-(2**63), -(2**63) + 3).tolist() == [-(2**63), -(2**63) + 1, -(2**63) + 2]
    assert wick.arange(-(2**63) + 1, -(2**63), -1).tolist() == [-(2**63) + 1]


def wrapped(number, bits=64):
    """An integer as int64 has it, or another signed width."""
    return (number + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


ENDS = [-(2**63), -(2**63) + 1, -(2**62) - 1, -(2**62), 2**62, 2**62 + 1, 2**63 - 1, 2**63, 2**64 - 1]
WHOLE = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "lt": lambda a, b: a < b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
}


@pytest.mark.parametrize("number", ENDS)
@pytest.mark.parametrize("name", WHOLE)
def test_integers_at_the_ends(number, name):
    f, values = WHOLE[name], [1, 2, -7]
    x = wick.tensor(values)
    one = wrapped(number)  # beyond int64 it wraps around beside int64 elements
    wanted = [wrapped(f(v, one)) if name not in ("lt", "ge", "eq") else f(v, one) for v in values]
    reverse = [wrapped(f(one, v)) if name not in ("lt", "ge", "eq") else f(one, v) for v in values]
    assert f(x, number).tolist() == wanted
    assert f(number, x).tolist() == reverse
    compiled = wick.compile(lambda x: f(x, number))
    for _ in range(3):
        assert compiled(x).tolist() == wanted


def test_integers_at_the_ends_in_other_places():
    x = wick.tensor([1, 2])
    least = -(2**63)
    assert x.clone().add_(least + 5).tolist() == [least + 6, least + 7]
    assert x.clone().fill_(least).tolist() == wick.full((2,), least).tolist() == [least, least]
    assert wick.where(wick.tensor([True, False]), x, least).tolist() == [1, least]
    assert wick.where(wick.tensor([True, False]), least, least + 1).tolist() == [least, least + 1]
    assert x.clamp(max=least + 1).tolist() == [least + 1] * 2 and x.clamp(min=least).tolist() == [1, 2]
    assert x.masked_fill(wick.tensor([True, False]), least).tolist() == [least, 2]
    assert wick.add(x, x, alpha=-(2**62) - 1).tolist() == [wrapped(v * -(2**62)) for v in (1, 2)]
    assert (wick.tensor([1, 2, -7]) ** (2**62 + 1)).tolist() == [1, 0, -7]
    ones = wick.ones(1, 1).long()
    assert wick.addmm(ones, ones, ones, alpha=-(2**62) - 1).item() == -(2**62)
    assert wick.addmm(ones, ones, ones, alpha=1.5).item() == 2
    x[0] = least
    assert x.tolist() == [least, 2]
    assert (wick.tensor([1.0]) + 2**63).item() == 2.0**63 and (wick.tensor([1.0]) * (2**64 - 1)).item() == 2.0**64
    assert (x.float() - (-(2**62) - 1)).tolist()[1] == 2.0**62
    assert wick.full((1,), 2**63, dtype=wick.float64).item() == 2.0**63
    assert wick.full((1,), 2**63, dtype=wick.bool).item() is True
    assert wick.tensor([1], dtype=wick.int32).add(wick.tensor(least)).item() == 1


def test_integers_beside_small_ones_wrap_around():
    for dtype, bits in ((wick.uint8, 8), (wick.int8, 8), (wick.int16, 16), (wick.int32, 32)):
        values = [1, 2, 100]
        x = wick.tensor(values, dtype=dtype)
        for number in (257, -257, 2**31 + 1, -(2**40) + 3):
            one = number % 256 if dtype == wick.uint8 else wrapped(number, bits)
            for other in (number, wick.tensor(number)):
                assert (x < other).tolist() == [v < one for v in values]
                assert (x == other).tolist() == [v == one for v in values]
                assert (x // other).tolist() == [
                    (v // one) % 2**bits if dtype == wick.uint8 else v // one for v in values
                ]
                assert wick.remainder(x, other).tolist() == [v % one for v in values]
            assert wick.maximum(x, wick.tensor(number)).tolist() == [max(v, one) for v in values]
        assert (x + 2**40).tolist() == values
    u = wick.tensor([1, 2, 250], dtype=wick.uint8)
    assert u.clamp(-5).tolist() == [251, 251, 251]
    assert u.clamp(wick.tensor(300)).tolist() == [44, 44, 250]
    assert wick.empty(1, dtype=wick.uint8).fill_(wick.tensor(300)).item() == 44


def test_numbers_beside_small_floats():
    """Sums, comparisons and remainders round the number; products and quotients do not."""
    for dtype in (wick.float16, wick.bfloat16):
        x = wick.tensor([0.1, 1000.0, 0.7], dtype=dtype)
        tenth, exact = wick.tensor(0.1).to(dtype).item(), x.double()
        assert (x == 0.1).tolist() == [True, False, False] and (x >= 0.1).tolist() == [True, True, True]
        assert (x < 0.1).tolist() == [False] * 3
        assert (x - 0.1).tolist() == (exact - tenth).to(dtype).tolist() and (x - 0.1)[0].item() == 0
        assert (0.1 - x).tolist() == (tenth - exact).to(dtype).tolist()
        assert wick.add(x, x, alpha=0.1).tolist() == (exact + tenth * exact).to(dtype).tolist()
        assert (x % 0.1)[0].item() == 0
        assert (x * 0.1).tolist() == (exact * 0.1).to(dtype).tolist()
        assert (x / 0.3).tolist() == (exact / 0.3).to(dtype).tolist()
        compiled = wick.compile(lambda x: (x == 0.1, x - 0.1, x * 0.1))
        for _ in range(3):
            assert [y.tolist() for y in compiled(x)] == [(x == 0.1).tolist(), (x - 0.1).tolist(), (x * 0.1).tolist()]


def test_values_that_small_floats_take():
    for value in (70000, math.inf):
        x = wick.zeros(2).half()
        x[0] = value
        assert x.tolist() == [math.inf, 0]
    assert wick.zeros(1).half().fill_(-math.inf).item() == -math.inf
    assert wick.zeros(1, dtype=wick.uint8).fill_(-255).item() == 1
    assert wick.full((2,), 300, dtype=wick.uint8, device="meta").shape == (2,)
    assert wick.nn.functional.hardtanh(wick.tensor([-3, 0, 3]), -1.5, 2.5).tolist() == [-1, 0, 2]
    assert wick.nn.functional.relu6(wick.tensor([3, 9], dtype=wick.uint8)).dtype == wick.uint8
    assert wick.nn.functional.threshold(wick.tensor([1, 5]), 1.5, 2.5).tolist() == [2, 5]


def test_nonzero_as_tuple():
    x = wick.tensor([[0.0, 1.0], [2.0, 0.0]])
    for places in (wick.nonzero(x, as_tuple=True), x.nonzero(as_tuple=True)):
        assert [p.tolist() for p in places] == [[0, 1], [1, 0]]
    assert x.nonzero(as_tuple=False).tolist() == x.nonzero().tolist() == [[0, 1], [1, 0]]
    assert [p.tolist() for p in wick.tensor(3).nonzero(as_tuple=True)] == [[0]]
    assert [p.tolist() for p in wick.zeros(0, 2, 3).nonzero(as_tuple=True)] == [[], [], []]
    assert wick.nonzero(x, out=(y := wick.empty(0, dtype=wick.int64))) is y and y.tolist() == [[0, 1], [1, 0]]


def test_view_as_another_dtype():
    x = wick.tensor([[1.5, -2.0], [0.5, 4.0]])
    bits = x.view(wick.int32)
    assert bits.tolist() == [[0x3FC00000, 0xC0000000 - 2**32], [0x3F000000, 0x40800000]]
    assert x.view(dtype=wick.uint8).tolist()[0] == [0, 0, 0xC0, 0x3F, 0, 0, 0, 0xC0]
    assert x.view(wick.int16).shape == (2, 4) and x.view(wick.float64).shape == (2, 1)
    assert x.view(wick.int16).view(wick.float32).tolist() == x.tolist()
    assert x.t().view(wick.int32).stride() == (1, 2)
    assert x[1:].view(wick.float64).storage_offset() == 1
    bits.fill_(0x3F800000)
    assert x.tolist() == [[1, 1], [1, 1]]
    y = wick.ones(2, requires_grad=True)
    assert not y.view(wick.int32).requires_grad
    f = wick.compile(lambda x: (x * 2).view(wick.int32) + 1)
    for _ in range(3):
        assert f(wick.ones(2)).tolist() == [0x40000001] * 2


def test_indices_into_0_dim_tensors():
    x = wick.tensor(2.5)
    assert x.gather(0, wick.tensor([0, 0])).tolist() == [2.5, 2.5]
    assert x.scatter(0, wick.tensor(0), 7.0).item() == 7
    assert x.scatter_add(0, wick.tensor([0, 0]), wick.tensor([1.0, 2.0])).item() == 5.5
    for index in (1, -1):
        for call in (
            lambda i: x.gather(0, i),
            lambda i: x.scatter(0, i, 1.0),
            lambda i: x.scatter_add(0, i, wick.tensor(1.0)),
        ):
            with pytest.raises(RuntimeError, match=f"^index {index} is out of bounds for dimension 0 with size 1$"):
                call(wick.tensor(index))


def test_lerp_by_a_tensor():
    a, b = wick.zeros(2, 3, dtype=wick.float64), wick.full((2, 3), 8.0, dtype=wick.float64)
    w = wick.tensor([0.25, 0.5, 1.0], dtype=wick.float64, requires_grad=True)
    y = a.requires_grad_().lerp(b, w)
    assert y.tolist() == [[2, 4, 8]] * 2
    y.sum().backward()
    assert a.grad.tolist() == [[0.75, 0.5, 0]] * 2 and w.grad.tolist() == [16, 16, 16]
    assert wick.lerp(wick.ones(2), wick.full((2,), 3.0), wick.tensor(0.5, dtype=wick.float64)).tolist() == [2, 2]
    z = wick.ones(2)
    assert z.lerp_(wick.zeros(2), wick.tensor([1.0, 0.0])) is z and z.tolist() == [0, 1]
    f = wick.compile(lambda a, b, w: a.lerp(b, w) * 2)
    for _ in range(3):
        assert f(a.detach(), b, w.detach()).tolist() == [[4, 8, 16]] * 2


def test_channels_last():
    last, x = wick.channels_last, wick.arange(24.0).reshape(1, 2, 3, 4)
    strides = (24, 1, 8, 2)
    for y in (
        x.contiguous(memory_format=last),
        x.to(memory_format=last),
        x.clone(memory_format=last),
        x.contiguous(memory_format=last).clone(),
        x.double().to(wick.float32, memory_format=last),
    ):
        assert y.stride() == strides and y.tolist() == x.tolist()
        assert y.is_contiguous(memory_format=last) and not y.is_contiguous()
        assert y.contiguous(memory_format=last) is y and (y + 1).stride() == strides
        assert y.contiguous().stride() == y.to(memory_format=wick.contiguous_format).stride() == x.stride()
    assert not x.is_contiguous(memory_format=last) and not wick.ones(2, 3).is_contiguous(memory_format=last)
    assert wick.empty_like(x, memory_format=last).stride() == strides
    assert wick.empty_like(wick.ones(2, 3).t(), memory_format=wick.contiguous_format).stride() == (2, 1)
    assert wick.ones(1, 2, 3, 4, 5).contiguous(memory_format=wick.channels_last_3d).stride() == (120, 1, 40, 10, 2)
    assert wick.ones(2, 3, 1, 1).is_contiguous(memory_format=last)
    leaf = wick.ones(1, 2, 2, 2, requires_grad=True)
    leaf.contiguous(memory_format=last).mul(3).sum().backward()
    assert leaf.grad.tolist() == wick.full((1, 2, 2, 2), 3.0).tolist()
    f = wick.compile(lambda x: x.contiguous(memory_format=last) * 2)
    for _ in range(3):
        assert f(x).stride() == strides and f(x).tolist() == (x * 2).tolist()


def test_unbiased_beside_dims():
    x = wick.tensor([[1.0, 3.0], [2.0, 6.0]])
    for y in (x.var(-1, unbiased=False), x.var(-1, False), wick.var(x, dim=1, unbiased=False)):
        assert y.tolist() == [1, 4]
    assert x.std(1, False, True).tolist() == x.std(dim=-1, unbiased=False, keepdim=True).tolist() == [[1], [2]]
    assert x.var(dim=None, unbiased=False).item() == x.var((0, 1), False).item() == x.var(False).item() == 3.5
    assert x.var(0).tolist() == x.var(0, True).tolist() == [0.5, 4.5]


def test_bools_plus_a_bool():
    x = wick.tensor([True, False])
    assert (x + True).tolist() == wick.add(x, True).tolist() == [True, True]
    assert x.clone().add_(True).dtype == wick.bool and (x + 1).tolist() == [2, 1]


def test_operands_of_the_attention_kernel_are_checked():
    attention = wick.ops.aten._scaled_dot_product_flash_attention_for_cpu
    q, k = wick.rand(2, 3, 5, 4), wick.rand(2, 3, 7, 4)
    assert attention(q, k, k)[0].shape == (2, 3, 5, 4)
    for bad in (k[:1], k[:, :2], k[..., :3], k[0], k.double(), k.long()):
        with pytest.raises(RuntimeError, match="scaled_dot_product_attention_flash_attention"):
            attention(q, bad, k)
    for bad in (k[:, :, :6], k[:1], k.double()):
        with pytest.raises(RuntimeError, match="scaled_dot_product_attention_flash_attention"):
            attention(q, k, bad)
    for mask in (
        wick.ones(5, 6),
        wick.ones(3, 7),
        wick.ones(3, 3, 5, 7),
        wick.ones(1, 2, 3, 5, 7),
        wick.ones(5, 7).long(),
    ):
        with pytest.raises(RuntimeError, match="mask should broadcast"):
            attention(q, k, k, attn_mask=mask)
    out, sums = attention(q, k, k)
    backward = wick.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    assert len(backward(out, q, k, k, out, sums, 0.0, False)) == 3
    for grad, bad_sums in ((out[..., :2], sums), (out, sums[:, :2]), (out, sums[..., :4])):
        with pytest.raises(RuntimeError, match="sizes do not match"):
            backward(grad, q, k, k, out, bad_sums, 0.0, False)


def refused(call, text, kind=RuntimeError):
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == text


# ---- sizes beyond what memory or 64 bits hold; texts of PyTorch 2.13 where it names a number ----


@pytest.mark.parametrize("sizes", [(2**32, 2**31), (2**32, 2**32), (2**61, 4), (2**62, 2), (2**32, 2**32, 0)])
def test_a_tensor_has_fewer_than_2_to_63_elements(sizes):
    refused(lambda: wick.ones(1).expand(sizes), "numel: integer multiplication overflow")
    refused(lambda: wick.ones(1).as_strided(sizes, (0,) * len(sizes)), "numel: integer multiplication overflow")
    text = f"Storage size calculation overflowed with sizes={list(sizes)}"
    refused(lambda: wick.empty(sizes), text)
    refused(lambda: wick.zeros(sizes, device="meta"), text)


def test_as_many_elements_as_fit():
    assert wick.ones(1).expand(2**61, 3).numel() == 3 * 2**61
    assert wick.ones(1).expand(0, 2**32, 2**32).numel() == 0
    refused(lambda: wick.empty(0, 2**32, 2**32), "Stride calculation overflowed")
    refused(
        lambda: wick.ones(2**32, 1, device="meta").add(1).expand(-1, 2**31), "numel: integer multiplication overflow"
    )
    large = wick.ones(1).expand(2**62)
    refused(lambda: large.clone(), f"Storage size calculation overflowed with sizes=[{2**62}]")
    refused(lambda: wick.add(large, 1, out=wick.empty(0)), f"Storage size calculation overflowed with sizes=[{2**62}]")
    with pytest.raises(RuntimeError, match="overflow"):
        wick.cat([large, large, large])


def test_texts_show_the_numbers():
    x = wick.arange(4)
    text = "The input size 4, plus negative padding %d and %d resulted in a negative output size, which is invalid. "
    text += "Check dimension 0 of your input."
    for pad in ((2**62, 2**62), (2**63 - 1, 0)):
        refused(lambda pad=pad: wick.nn.functional.pad(x, pad), text % pad)
    for size, stride in ((2**62, 4), (4, 2**62)):
        text = f"Storage size calculation overflowed with sizes=[{size}] and strides=[{stride}]"
        refused(lambda size=size, stride=stride: x.as_strided((size,), (stride,)), text)
    least = -(2**62)
    for name, argument, call in (
        ("roll", "shifts", lambda n: x.roll(n)),
        ("roll", "shifts", lambda n: x.view(2, 2).roll((n, 1), (0, 1))),
        ("view", "size", lambda n: x.view(n)),
        ("view", "size", lambda n: x.view((n, 2))),
        ("expand", "size", lambda n: x.expand(n, 4)),
        ("repeat", "repeats", lambda n: x.repeat(n)),
        ("zeros", "size", lambda n: wick.zeros(n)),
    ):
        text = f"{name}(): argument '{argument}' must not be below {least} (at position 1)"
        refused(lambda call=call: call(-(2**63)), text)


def test_numbers_far_below_any_size():
    x = wick.arange(6.0).view(2, 3)
    for n in (-(2**63), -(2**62) - 1):
        assert x.tril(n).sum() == 0 and x.triu(n).sum() == 15 and x.diagonal(n).shape == (0,)
        with pytest.raises(IndexError, match="start out of range"):
            x.narrow(0, n, 1)
        with pytest.raises(RuntimeError, match="must be >= 0"):
            x.unfold(0, n, 1)
        with pytest.raises(RuntimeError, match="must be > 0"):
            x.unfold(0, 1, n)
        with pytest.raises(RuntimeError, match="split_size be non-negative"):
            x.split(n)
        with pytest.raises(RuntimeError, match="Repeats must be non-negative"):
            x.repeat_interleave(n)
    wick.manual_seed(0)
    assert wick.randint(-(2**63), 2**63 - 1, (2000,)).min() < -(2**62)


# ---- ranges of integers: the ends are cut off first, as in PyTorch 2.13 ----

UINT8_STEPS = {(-2, 10): [254, 205, 156, 107, 58, 10], (0, 100): [0, 20, 40, 60, 80, 100]}


def test_linspace_of_integers():
    for dtype in (wick.int64, wick.int32, wick.int16, wick.int8):
        for arguments, values in [
            ((0, 10, 4), [0, 3, 6, 10]),
            ((-2.9, 2.9, 9), [-2, -1, -1, 0, 0, 0, 1, 1, 2]),
            ((1.5, 9.7, 5), [1, 3, 5, 7, 9]),
            ((10, 0, 4), [10, 6, 3, 0]),
            ((-7, 7, 4), [-7, -2, 2, 7]),
            ((1.9, 5, 1), [1]),
        ]:
            result = wick.linspace(*arguments, dtype=dtype)
            assert (result.dtype, result.tolist()) == (dtype, values)
            out = wick.linspace(*arguments, out=wick.empty(0, dtype=dtype))
            assert out.tolist() == values
            compiled = wick.compile(lambda a=arguments, d=dtype: wick.linspace(*a, dtype=d) + 0, options={"wait": True})
            assert compiled().tolist() == compiled().tolist() == values
    for (start, end), values in UINT8_STEPS.items():
        assert wick.linspace(start, end, 6, dtype=wick.uint8).tolist() == values
    with pytest.raises(RuntimeError, match="value cannot be converted to type uint8_t without overflow"):
        wick.linspace(-2.5, 2.5, 6, dtype=wick.uint8)
    assert wick.linspace(0, 2**62, 3, dtype=wick.int64).tolist() == [0, 2**61, 2**62]
    assert wick.linspace(3, 3, 1, dtype=wick.bool).tolist() == [True]
    with pytest.raises(NotImplementedError, match="\"linspace_cpu\" not implemented for 'Bool'"):
        wick.linspace(0, 1, 2, dtype=wick.bool)


def test_logspace_of_integers_cuts_its_ends_off():
    for arguments, values in [
        ((1.5, 2, 5), [10, 17, 31, 56, 100]),
        ((0, 3, 4), [1, 10, 100, 1000]),
        ((0.5, 2, 5, 3), [1, 1, 3, 5, 9]),
        ((0, 2, 3, -2), [1, -2, 4]),
        ((0, 2, 3, 2.7), [1, 2, 7]),
        ((1.5, 2, 1), [31]),
        ((1, 2, 0), []),
    ]:
        result = wick.logspace(*arguments, dtype=wick.int64)
        assert (result.dtype, result.tolist()) == (wick.int64, values)
        assert wick.logspace(*arguments, out=wick.empty(0, dtype=wick.int64)).tolist() == values
    with pytest.raises(NotImplementedError, match="\"logspace_cpu\" not implemented for 'Bool'"):
        wick.logspace(0, 1, 3, dtype=wick.bool)


def test_sum_to_size_of_one_element_and_of_bools():
    number = wick.tensor(1.0)
    total = number.sum_to_size(())
    total.fill_(9)
    assert (
        number.item() == 1
        and type(wick.tensor(1.0, requires_grad=True).sum_to_size(()).grad_fn).__name__ == "SumBackward0"
    )
    assert wick.tensor(True).sum_to_size(()).dtype == wick.int64
    assert wick.ones(1, dtype=wick.bool).sum_to_size(()).dtype == wick.int64
    assert wick.ones(2, 3, dtype=wick.bool).sum_to_size(2, 1).tolist() == [[3], [3]]
    same = wick.ones(2, 3, dtype=wick.bool)
    assert same.sum_to_size(2, 3) is same and wick.ones(2, 3).sum_to_size(()).item() == 6


# ---- an argument by position and another by the name that the first overload has for it ----


def test_names_that_lead_to_another_overload():
    assert wick.arange(0, end=3).tolist() == [0, 1, 2]
    assert wick.arange(0, end=3, step=2).tolist() == [0, 2]
    assert wick.arange(1, step=2, end=5).tolist() == [1, 3]
    assert wick.arange(0, end=3, dtype=wick.float32).tolist() == [0.0, 1.0, 2.0]
    assert wick.randint(0, high=3, size=(2,)).shape == (2,)
    t = wick.tensor([1, 2])
    assert wick.repeat_interleave(wick.ones(2, 2), repeats=t, dim=1).shape == (2, 3)
    with pytest.raises(TypeError, match=r"add\(\) got multiple values for argument 'other'"):
        wick.add(t, t, other=t)


def test_movedim_of_several_dims():
    t = wick.zeros(2, 3, 4)
    for move in (t.movedim, t.moveaxis):
        assert move((0, 1), (1, 2)).shape == (4, 2, 3)
        assert move([0, -1], [1, 0]).shape == (4, 2, 3)
        assert move((), ()).shape == (2, 3, 4)
        assert move(0, 2).shape == (3, 4, 2)
    assert wick.movedim(t, source=(0, 1), destination=(1, 2)).shape == (4, 2, 3)
    assert t.swapaxes(0, 1).shape == t.swapdims(1, 0).shape == (3, 2, 4)
    for source, destination, kind, words in (
        ((0, 0), (1, 2), RuntimeError, "movedim: repeated dim in `source` ([0, 0])"),
        ((0, 1), (1, 1), RuntimeError, "movedim: repeated dim in `destination` ([1, 1])"),
        (
            (0, 1),
            (1,),
            RuntimeError,
            "movedim: Invalid source or destination dims: source ([0, 1] dims) should contain the same number of dims "
            "as destination ([1] dims)",
        ),
        ((0, 5), (1, 2), IndexError, "Dimension out of range (expected to be in range of [-3, 2], but got 5)"),
        ((0, 1), (1, 5), IndexError, "Dimension out of range (expected to be in range of [-3, 2], but got 5)"),
    ):
        with pytest.raises(kind) as error:
            t.movedim(source, destination)
        assert str(error.value) == words


def test_the_old_constructor_takes_arrays():
    numpy = pytest.importorskip("numpy")
    assert wick.Tensor(numpy.arange(3)).tolist() == [0.0, 1.0, 2.0]
    assert wick.Tensor(numpy.ones((2, 2), dtype=numpy.float32)).tolist() == [[1, 1], [1, 1]]
    assert wick.Tensor(numpy.int64(3)).shape == wick.Tensor(numpy.array(3)).shape == (3,)
    for number in (3.0, numpy.float32(3)):
        with pytest.raises(TypeError, match=r"new\(\): data must be a sequence \(got "):
            wick.Tensor(number)


@pytest.mark.parametrize("name", ["empty_like", "zeros_like", "ones_like", "rand_like", "randn_like"])
def test_like_a_tensor_without_memory(name):
    t = getattr(wick, name)(wick.empty(3, 2, device="meta").t(), device="cpu")
    assert (t.shape, t.device.type, t.dtype, t.stride()) == ((2, 3), "cpu", wick.float32, (1, 2))
    assert len(t.tolist()) == 2


def test_more_that_is_made_like_a_tensor_without_memory():
    meta = wick.empty(2, device="meta")
    assert wick.full_like(meta, 2.0, device="cpu").tolist() == [2, 2]
    assert wick.randint_like(meta, 1, device="cpu").tolist() == [0, 0]
    assert meta.new_zeros(2, device="cpu").tolist() == [0, 0]
    assert meta.new_full((2,), 3.0, device="cpu").tolist() == [3, 3]
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor; no data!"):
        meta.to("cpu")


def test_isclose():
    t = wick.tensor
    assert wick.isclose(t([True, False]), t([True, True])).tolist() == [True, False]
    assert not wick.allclose(t([True, False]), t([True, True]))
    assert t([1, 2]).isclose(t([1, 3]), rtol=1.0).tolist() == [True, True]
    assert wick.isclose(wick.ones(2, 3), wick.ones(3)).all()
    for arguments, words in (
        ({"rtol": -1}, "rtol must be greater than or equal to zero, but got -1"),
        ({"atol": -0.5}, "atol must be greater than or equal to zero, but got -0.5"),
    ):
        for function in (wick.isclose, wick.allclose):
            with pytest.raises(RuntimeError, match=words):
                function(wick.ones(2), wick.ones(2), **arguments)
    for a, b, words in (
        (t([1.0]), t([1]), "Float did not match Long"),
        (t([True]), t([1.0]), "Bool did not match Float"),
        (t([1.0]).bfloat16(), t([1.0]).half(), "BFloat16 did not match Half"),
    ):
        with pytest.raises(RuntimeError, match=words):
            wick.isclose(a, b)
    with pytest.raises(TypeError, match=r"isclose\(\): argument 'other' \(position 2\) must be Tensor, not float"):
        wick.isclose(t([1.0]), 1.0)


def test_broadcast_shapes():
    assert wick.broadcast_shapes((2, 1), (3,)) == wick.broadcast_shapes((2, 1), 3) == (2, 3)
    assert wick.broadcast_shapes() == ()
    with pytest.raises(RuntimeError) as error:
        wick.broadcast_shapes((2, 3), (2,))
    assert str(error.value) == (
        "Attempting to broadcast a dimension of length 2 at -1! Mismatching argument at index 1 had (2,); but expected "
        "shape should be broadcastable to [2, 3]"
    )
    with pytest.raises(ValueError, match="Attempting to broadcast a dimension with negative length!"):
        wick.broadcast_shapes((2, -1))


@pytest.mark.parametrize(
    ("dtype", "name"),
    [(wick.int64, "int64_t"), (wick.float32, "float"), (wick.float64, "double"), (wick.bfloat16, "c10::BFloat16")],
)
def test_complex_numbers_do_not_fit_into_real_tensors(dtype, name):
    t, mask = wick.ones(3, dtype=dtype), wick.tensor([True, False, True])
    words = f"value cannot be converted to type {name} without overflow"
    for call in (
        lambda: t.masked_fill(mask, 1j),
        lambda: t.masked_fill_(mask, 1j),
        lambda: t.masked_fill(mask, wick.tensor(1j)),
        lambda: t.fill_(1j),
        lambda: wick.full_like(t, 1j),
        lambda: t.new_full((2,), 1j),
        lambda: t.scatter(0, wick.tensor([0]), 1j),
        lambda: t.__setitem__(0, 1j),
        lambda: t.__setitem__(mask, 1j),
    ):
        with pytest.raises(RuntimeError, match=words):
            call()
    assert t.masked_fill(mask, 2 + 0j).tolist() == t.masked_fill(mask, wick.tensor(2 + 0j)).tolist() == [2, 1, 2]
    assert t.bool().logical_not().masked_fill(mask, 1j).tolist() == [True, False, True]
    t[1] = 3 + 0j
    assert t.tolist() == [1, 3, 1]


@pytest.mark.parametrize(
    ("given", "dtype"),
    [("torch.LongTensor", wick.int64), (wick.LongTensor, wick.int64), (wick.HalfTensor, wick.float16),
     (wick.Tensor, wick.float32), (wick.int8, wick.int8)],
)  # fmt: skip
def test_type_by_the_names_of_old_tensor_types(given, dtype):
    assert wick.ones(2, dtype=wick.float64).type(given).dtype == dtype


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [("nonsense", ValueError, "invalid type: 'nonsense'"), (int, ValueError, "invalid type: 'int'"),
     ("torch.cuda.FloatTensor", TypeError, "torch.cuda.FloatTensor not available")],
)  # fmt: skip
def test_types_that_there_are_not(given, error, text):
    with pytest.raises(error, match=text):
        wick.ones(2).type(given)


def test_numel_as_a_function():
    assert wick.numel(wick.ones(2, 3)) == 6 and wick.numel(wick.tensor(1.0)) == 1
    assert wick.compile(lambda x: x * wick.numel(x), fullgraph=True)(wick.ones(3)).tolist() == [3, 3, 3]


def test_diff_of_order_zero_is_a_copy():
    x = wick.arange(3.0)
    y = wick.diff(x, 0, prepend=x, append=x)
    assert y.tolist() == x.tolist() and y.data_ptr() != x.data_ptr()


def test_index_copy_of_one_number():
    x, source = wick.tensor(1.0, requires_grad=True), wick.tensor(2.0, requires_grad=True)
    y = wick.index_copy(x, 0, wick.tensor([0]), source)
    y.backward()
    assert y.item() == 2 and y.dim() == 0 and (x.grad.item(), source.grad.item()) == (0, 1)


def test_index_fill_by_a_tensor():
    x, value = wick.zeros(2, 3, requires_grad=True), wick.tensor(4.0, requires_grad=True)
    y = x.index_fill(1, wick.tensor([2, 0, 2]), value)  # one place twice
    assert y.tolist() == [[4, 0, 4]] * 2
    y.sum().backward()
    assert value.grad.item() == 4 and x.grad.tolist() == [[0, 1, 0]] * 2
    z = wick.tensor([1, 2, 3])
    assert z.index_fill_(0, wick.tensor(1), wick.tensor(7.9)).tolist() == [1, 7, 3]
    assert wick.tensor(1.0).index_fill(0, wick.tensor([0]), wick.tensor(3)).item() == 3
    with pytest.raises(RuntimeError, match=r"0-dimensional value tensor, but got tensor with 1 dimension\(s\)\."):
        z.index_fill(0, wick.tensor([0]), wick.tensor([2]))


def test_factors_of_integers_and_bools():
    one, matrix = wick.tensor([1]), wick.tensor([[1]])
    assert wick.addmv(one, matrix, one, beta=0.2, alpha=2.6).tolist() == [2]
    yes, no = wick.tensor([True]), wick.tensor([False])
    for beta, alpha, self, vector, wanted in [
        (3, 2, no, yes, True), (3, 0, no, yes, False), (0, 1, yes, no, False), (1, 1, yes, no, True), (0, 2, no, yes, True)
    ]:  # fmt: skip
        result = wick.addr(self[None], vector, yes, beta=beta, alpha=alpha)
        assert result.dtype == wick.bool and result.item() is wanted


def test_logit_of_bools():
    assert wick.logit(wick.tensor([True, False])).tolist() == [math.inf, -math.inf]


@pytest.mark.parametrize("distances", [lambda x: wick.cdist(x, x + 1, 0), lambda x: wick.pdist(x, 0)])
def test_counts_of_differences_have_zeros_as_gradient(distances):
    x = wick.tensor([[1.0, 2.0], [1.0, 3.0]], requires_grad=True)
    distances(x).sum().backward()
    assert x.grad.tolist() == [[0, 0], [0, 0]]


def test_out_that_lies_over_itself():
    x, out = wick.ones(3, 6), wick.zeros(1, 6).expand(2, 6)
    with pytest.raises(RuntimeError, match="single memory location"):
        wick.index_select(x, 1, wick.tensor([0, 1]), out=out)


def test_orders_of_memory_that_are_none():
    for layout, text in [((0,), "does not match the length"), ((0, 2), "got 2 at index 1"), ((0, 0), "Duplicate dim")]:
        with pytest.raises(RuntimeError, match=text):
            wick.empty_permuted((2, 3), layout)


def test_results_of_factorisations_lie_column_after_column():
    a = wick.eye(3).repeat(2, 1, 1) * 2
    factors, pivots = wick.linalg.lu_factor(a)
    for t in [
        wick.linalg.cholesky(a, upper=True),
        wick.linalg.solve(a, wick.ones(2, 3, 3)),
        wick.linalg.solve_triangular(a, wick.ones(2, 3, 3), upper=True, left=False),
        wick.linalg.lu_solve(factors, pivots, wick.ones(2, 3, 3), adjoint=True),
        *wick.triangular_solve(wick.ones(2, 3, 3), a),
    ]:
        assert t.stride() == (9, 1, 3)
    assert wick.linalg.solve(a, wick.ones(2, 3)).stride() == (1, 2)
    with pytest.warns(UserWarning, match="torch.lu is deprecated"):
        assert wick.lu(a, get_infos=True)._fields == ("LU", "pivots", "info")


def test_unpooled_images_keep_channels_last():
    x = wick.randn(1, 2, 4, 4).contiguous(memory_format=wick.channels_last)
    pooled, places = wick.nn.functional.max_pool2d(x, 2, return_indices=True)
    assert wick.nn.functional.max_unpool2d(pooled, places, 2).is_contiguous(memory_format=wick.channels_last)


@pytest.mark.parametrize("element", ["a", None, [1.0], (1,)])
def test_what_no_tensor_contains(element):
    with pytest.raises(
        RuntimeError, match=f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(element)}"
    ):
        element in wick.ones(2)  # noqa: B015
    assert 1.0 in wick.ones(2) and 2j not in wick.ones(2) and wick.tensor(1.0) in wick.ones(2)
