"""Matrix products in the types that are converted first: of views with gaps, broadcast operands, and large integers."""

import pytest

import wick

DTYPES = ["int64", "int32", "int16", "int8", "uint8", "bfloat16", "float16", "float64"]


def product(a, b):
    return [[sum(x * y for x, y in zip(row, column, strict=True)) for column in zip(*b, strict=True)] for row in a]


@pytest.mark.parametrize("dtype", DTYPES)
def test_views_with_gaps_and_broadcasts(dtype):
    kind = getattr(wick, dtype)
    a = wick.arange(24).reshape(4, 6).remainder(5).to(kind)
    b = wick.arange(48).reshape(6, 8).remainder(3).to(kind)
    pairs = [
        (a[:, ::2], b[::2, ::2]),
        (a[:1].expand(4, 6), b),
        (a, b[:, :1].expand(6, 3)),
        (a.t()[::2].t(), b[1:4, 2:5]),
        (a[::2], b.t().contiguous().t()),
    ]
    for x, y in pairs:
        expected = product(x.tolist(), y.tolist())
        assert (x @ y).tolist() == expected and (x @ y).dtype == kind
        assert wick.nn.functional.linear(x, y.t()).tolist() == expected
        assert wick.bmm(x.expand(2, *x.shape), y.expand(2, *y.shape)).tolist() == [expected] * 2
        doubled = wick.addmm(x @ y, x, y, beta=2, alpha=3)
        assert doubled.tolist() == [[5 * v for v in row] for row in expected]


def test_integers_beyond_doubles_are_exact():
    big = 2**31 + 1
    a, b = wick.tensor([[big, 3], [1, -1]]), wick.tensor([[big, 1], [5, 2]])
    assert (a @ b).tolist() == product(a.tolist(), b.tolist())
    wrapped = wick.tensor([[2**62, 1]]) @ wick.tensor([[4], [7]])
    assert wrapped.tolist() == [[7]]  # modulo 2^64
    assert wick.tensor([2**62, 1]).dot(wick.tensor([2, 1])).item() == -(2**63) + 1


def test_a_linear_layer_of_integers_beyond_doubles_has_its_bias():
    x = wick.full((2, 3), 2**61)
    assert wick.nn.functional.linear(x, x, wick.tensor([1, 2])).tolist() == [[1, 2], [1, 2]]


def test_small_integers_wrap_in_their_own_type():
    assert (wick.full((1, 4), 200, dtype=wick.uint8) @ wick.full((4, 1), 2, dtype=wick.uint8)).item() == 1600 % 256


def test_bool_is_refused():
    mask = wick.ones(2, 2, dtype=wick.bool)
    with pytest.raises(NotImplementedError, match="\"addmm_impl_cpu_\" not implemented for 'Bool'"):
        mask @ mask


# ---- baddbmm: values of PyTorch 2.13 ----


@pytest.mark.parametrize(
    ("factors", "values"),
    [
        ({"alpha": 1.5, "beta": 2.5}, [[[2, 5], [10, 17]], [[54, 65], [78, 93]]]),
        ({"alpha": 1.5}, [[[2, 4], [8, 14]], [[50, 60], [72, 86]]]),
        ({"beta": 0.5}, [[[2, 3], [6, 11]], [[46, 55], [66, 79]]]),
        ({"alpha": 2.0, "beta": 3.0}, [[[4, 9], [18, 31]], [[104, 125], [150, 179]]]),
        ({"alpha": False, "beta": True}, [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]),
    ],
)
def test_baddbmm_of_integers_cuts_its_factors_off(factors, values):
    x = wick.arange(8).view(2, 2, 2)
    for result in (
        wick.baddbmm(x, x, x, **factors),
        x.clone().baddbmm_(x, x, **factors),
        wick.baddbmm(x, x, x, **factors, out=wick.empty(0, dtype=wick.int64)),
        wick.compile(lambda x: wick.baddbmm(x, x, x, **factors), options={"wait": True})(x),
    ):
        assert (result.dtype, result.tolist()) == (wick.int64, values)


def test_baddbmm_looks_at_its_arguments():
    x = wick.arange(8).view(2, 2, 2)
    nan = wick.full((2, 2, 2), float("nan"))
    assert wick.baddbmm(nan, x.float(), x.float(), beta=0).tolist() == (x @ x).tolist()
    with pytest.raises(RuntimeError, match="must be the same, got: input int, batch1: long int, batch2: long int"):
        wick.baddbmm(x.int(), x, x)
    with pytest.raises(NotImplementedError, match="\"baddbmm\" not implemented for 'Bool'"):
        wick.baddbmm(x.bool(), x.bool(), x.bool())


# ---- small floats are rounded once ----


def small(*sizes, dtype):
    n = 1
    for size in sizes:
        n *= size
    return (wick.arange(n) * 37 % 101 / 33 - 1.3).view(sizes).to(dtype)


@pytest.mark.parametrize("dtype", [wick.bfloat16, wick.float16])
def test_baddbmm_rounds_once(dtype):
    a, b, c = small(2, 9, 17, dtype=dtype), small(2, 17, 11, dtype=dtype), small(9, 11, dtype=dtype)
    for alpha, beta in ((1, 1), (0.7, 1), (2.5, -0.7), (1, 0)):

        def call(c, a, b, alpha=alpha, beta=beta):
            return wick.baddbmm(c, a, b, alpha=alpha, beta=beta)

        expected = call(c.float(), a.float(), b.float()).to(dtype)
        compiled = wick.compile(call, options={"wait": True})
        for result in (call(c, a, b), compiled(c, a, b), compiled(c, a, b)):
            assert wick.equal(result, expected)
    leaves = [t.clone().requires_grad_() for t in (c, a, b)]
    result = wick.baddbmm(*leaves, alpha=0.5, beta=2)
    assert type(result.grad_fn).__name__ == "BaddbmmBackward0"
    result.sum().backward()
    wanted = [t.double().requires_grad_() for t in (c, a, b)]
    wick.baddbmm(*wanted, alpha=0.5, beta=2).sum().backward()
    for found, exact in zip(leaves, wanted, strict=True):
        assert found.grad.dtype == dtype and wick.allclose(found.grad.double(), exact.grad, rtol=1e-2, atol=1e-2)


def test_products_over_no_elements():
    ones = wick.ones
    for a, b, shape in (
        (ones(5, 5, 0), ones(0, 5), (5, 5, 5)),
        (ones(5, 5, 0), ones(0), (5, 5)),
        (ones(0, 5, 3), ones(3, 5), (0, 5, 5)),
        (ones(2, 0), ones(4, 0, 3), (4, 2, 3)),
        (ones(0), ones(5, 0, 2), (5, 2)),
    ):
        product = wick.matmul(a, b)
        assert product.shape == shape
        assert not product.any()
    x, weight = ones(2, 3, 0, requires_grad=True), ones(4, 0, requires_grad=True)
    y = wick.nn.functional.linear(x, weight, ones(4))
    assert y.tolist() == [[[1, 1, 1, 1]] * 3] * 2
    y.sum().backward()
    assert (x.grad.shape, weight.grad.shape) == ((2, 3, 0), (4, 0))


def test_addbmm_gives_self_the_size_of_the_product():
    a, b = wick.ones(2, 3, 4), wick.ones(2, 4, 5)
    for size in ((5,), (1, 5), (3, 1), ()):
        x = wick.ones(size)
        assert x.addbmm_(a, b) is x and x.shape == (3, 5) and x.sum() == 135
    whole = wick.ones(4, 5)
    part = whole[:1]
    part.addbmm_(a, b, beta=2)
    assert part.shape == (3, 5) and whole.sum(1).tolist() == [50, 50, 50, 5]  # the memory is shared
    leaf = wick.ones(1, 5, requires_grad=True)
    x = leaf.clone()
    x.addbmm_(a, b).sum().backward()
    assert leaf.grad.tolist() == [[3] * 5] and x.shape == (3, 5)
    assert wick.ones(3, 5).addbmm_(a, b).sum() == 135
    for size in ((2, 5), (4, 5), (2, 2, 5)):
        with pytest.raises(RuntimeError, match="size|dim"):
            wick.ones(size).addbmm_(a, b)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        leaf.addbmm_(a, b)


@pytest.mark.parametrize("rows", [1, 3, 4, 16, 17])
@pytest.mark.parametrize("bias", [False, True])
def test_few_rows_of_bfloat16_are_rounded_once(rows, bias):
    generator = wick.Generator().manual_seed(rows)
    x = wick.randint(-3, 4, (rows, 96), generator=generator).to(wick.bfloat16)
    w = wick.randint(-3, 4, (7, 96), generator=generator).to(wick.bfloat16)
    b = (wick.randint(-3, 4, (7,), generator=generator) / 4).to(wick.bfloat16) if bias else None
    exact = x.float() @ w.float().t() + (b.float() if bias else 0)  # sums of few small integers are
    expected = exact.to(wick.bfloat16)
    assert wick.equal(wick.nn.functional.linear(x, w, b), expected)
    assert wick.equal(wick.compile(wick.nn.functional.linear)(x, w, b), expected)
    if bias:
        assert wick.equal(wick.addmm(b, x, w.t(), beta=2), (exact + b.float()).to(wick.bfloat16))
    assert wick.equal(wick.nn.functional.linear(x.t().contiguous().t(), w, b), expected)
