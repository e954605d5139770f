"""out=: what dtype is computed in, what is resized and said about it; in-place forms that PyTorch has and has not."""

import warnings

import pytest

import wick


def warned(function):
    """The result and the texts of its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = function()
    return result, [str(w.message) for w in caught]


@pytest.mark.parametrize(
    "function,sizes,to",
    [
        (lambda out: wick.exp(wick.ones(3), out=out), (2,), (3,)),
        (lambda out: wick.sum(wick.ones(3, 2), 1, out=out), (2, 2), (3,)),
        (lambda out: wick.mm(wick.ones(3, 1), wick.ones(1, 2), out=out), (2,), (3, 2)),
        (lambda out: wick.cat([wick.ones(2), wick.ones(1)], out=out), (5,), (3,)),
        (lambda out: wick.tril(wick.ones(2, 2), out=out), (), (2, 2)),
    ],
)
def test_an_output_with_elements_is_resized_with_a_warning(function, sizes, to):
    out = wick.zeros(sizes)
    result, texts = warned(lambda: function(out))
    assert result is out and out.shape == to and len(texts) == 1
    assert texts[0].startswith(
        f"An output with one or more elements was resized since it had shape {list(sizes)}, which does not match the "
        f"required output shape {list(to)}. This behavior is deprecated"
    )


def test_what_is_said_nothing_about():
    """Empty outputs, outputs of the right size, and what makes tensors of a given size."""
    for function in (
        lambda: wick.exp(wick.ones(3), out=wick.empty(0)),
        lambda: wick.exp(wick.ones(3), out=wick.empty(3)),
        lambda: wick.ones(3, out=wick.empty(2)),
        lambda: wick.rand(3, out=wick.empty(2)),
        lambda: wick.full((3,), 2.0, out=wick.empty(2)),
    ):
        result, texts = warned(function)
        assert result.shape == (3,) and texts == []
    result, texts = warned(lambda: wick.arange(4, out=wick.empty(2)))
    assert result.tolist() == [0, 1, 2, 3] and "computed number of elements 4" in texts[0]


def test_each_output_of_several_is_said_something_about():
    values, indices = wick.empty(2), wick.empty(0, dtype=wick.int64)
    _, texts = warned(lambda: wick.max(wick.ones(3, 4), 1, out=(values, indices)))
    assert values.shape == indices.shape == (3,) and len(texts) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="was resized"):
            wick.exp(wick.ones(3), out=wick.empty(2))


def test_sums_and_factories_compute_in_the_dtype_of_out():
    third = wick.ones(3) / 3
    assert wick.sum(third, 0, out=wick.empty((), dtype=wick.int64)).item() == 0
    assert wick.sum(third, 0, out=wick.empty((), dtype=wick.bool)).item() is True
    assert wick.prod(wick.ones(3) * 2.5, 0, out=wick.empty((), dtype=wick.int32)).item() == 8
    assert wick.cumsum(third, 0, out=wick.empty(3, dtype=wick.int32)).tolist() == [0, 0, 0]
    assert wick.full((2,), 2.5, out=wick.empty(2, dtype=wick.int32)).tolist() == [2, 2]
    assert wick.linspace(0, 10, 3, out=wick.empty(0, dtype=wick.int8)).tolist() == [0, 5, 10]
    assert wick.ones(2, out=wick.empty(2, dtype=wick.bool)).tolist() == [True, True]
    wick.manual_seed(3)
    drawn = wick.rand(4, out=wick.empty(4, dtype=wick.float64))
    wick.manual_seed(3)
    assert drawn.tolist() == wick.rand(4, dtype=wick.float64).tolist()
    assert wick.any(wick.tensor([0, 2], dtype=wick.uint8), out=wick.empty((), dtype=wick.bool)).item() is True


def test_sums_and_products_of_truth_values():
    table = wick.tensor([[True, False], [True, True]])
    assert table.sum(1, dtype=wick.bool).tolist() == [True, True]
    assert table.prod(1, dtype=wick.bool).tolist() == [False, True]
    assert table.prod(dtype=wick.bool).item() is False


@pytest.mark.parametrize(
    "function",
    [
        lambda x: wick.exp(x, out=wick.empty(2)),
        lambda x: wick.neg(x, out=wick.empty(3, dtype=wick.int64)),
        lambda x: wick.exp(x, out=wick.empty(3, dtype=wick.int64)),
        lambda x: wick.sum(x, 0, out=wick.empty((), dtype=wick.int32)),
        lambda x: wick.exp(x, out=wick.empty(3, dtype=wick.float64)),
        lambda x: x.long().bitwise_and_(1.5),
        lambda x: x.long().add_(x),
        lambda x: x.add_(wick.ones(2, 3)),
    ],
)
@pytest.mark.filterwarnings("ignore:An output")
def test_compiled_code_agrees(function):
    def outcome(f):
        try:
            result = f(wick.arange(3.0))
        except Exception as error:  # noqa: BLE001  compared
            return type(error), str(error)
        return result.dtype, result.tolist()

    compiled = wick.compile(function)
    assert outcome(function) == outcome(compiled) == outcome(compiled)


def test_random_numbers_for_out_are_drawn_once():
    def draw():
        return wick.rand(3, out=wick.empty(2)), wick.rand(2)

    wick.manual_seed(5)
    expected = [t.tolist() for t in draw()]
    wick.manual_seed(5)
    assert [t.tolist() for t in wick.compile(draw)()] == expected


def test_complex_results():
    x = wick.ones(2)
    for function in (
        lambda: x.to(wick.complex64),
        lambda: wick.zeros(2, dtype=wick.complex64).copy_(x),
        lambda: wick.mul(x, 1, out=wick.empty(2, dtype=wick.complex128)),
        lambda: wick.cat([x], out=wick.empty(0, dtype=wick.complex64)),
        lambda: wick.compile(lambda x: (x * 1).to(wick.complex64))(x),
    ):
        result = function()
        assert result.is_complex() and result.tolist() == [1, 1]


def test_names_that_pytorch_has_not_are_not_there():
    for name in ("maximum_", "minimum_", "isnan_", "isfinite_", "isinf_", "where_", "rsub_", "gelu_", "fill"):
        assert not hasattr(wick.Tensor, name)
    for name in ("add_", "maximum_", "isnan_", "gelu", "linear", "silu_", "sigmoid_backward", "linalg_vector_norm"):
        assert not hasattr(wick, name) and name not in dir(wick)
    x = wick.tensor([2.0, 3.0])
    assert wick.fill(x, 4).tolist() == [4, 4] and x.square_() is x and x.tolist() == [4, 9]
    assert wick.square_(x).tolist() == [16, 81] and x.fill_(1).tolist() == [1, 1] and x.copy_(7).tolist() == [7, 7]
    assert wick.nn.functional.silu(x, inplace=True) is x
    y = wick.ones(1, 2, 2)
    assert y.baddbmm_(wick.ones(1, 2, 1), wick.ones(1, 1, 2)).tolist() == [[[2, 2], [2, 2]]]
    assert wick.rsub(wick.ones(2), x, alpha=2).tolist() == (x - 2).tolist()


def test_numpys_names_of_arguments():
    x = wick.tensor([[1.0, 2.0]])
    assert wick.sum(x=x, axis=1, keepdims=True).tolist() == [[3]] and wick.add(x1=x, x2=x).tolist() == [[2, 4]]
    assert wick.exp(a=wick.zeros(1)).tolist() == [1]


def test_few_degrees_of_freedom():
    for name in ("var", "std"):
        result, texts = warned(lambda name=name: getattr(wick.ones(1), name)())
        assert result.isnan() and texts == [
            f"{name}(): degrees of freedom is <= 0. Correction should be strictly less than the reduction factor "
            "(input numel divided by output numel)."
        ]
        assert warned(lambda name=name: getattr(wick.ones(2), name)())[1] == []
        assert warned(lambda name=name: getattr(wick.ones(3, 2), name)(0, correction=2))[1] == []
        assert len(warned(lambda name=name: getattr(wick.ones(2, 3), name)(0, correction=2))[1]) == 1


SHARED = (
    "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory "
    "location. Please clone() the tensor before performing the operation."
)


@pytest.mark.parametrize(
    "call",
    [
        lambda b: wick.cat([b[:2], b[2:4]], out=b[:4]),
        lambda b: wick.cat([b[:2], b[2:4]], out=b[1:5]),
        lambda b: wick.stack([b[:2], b[2:4]], out=b[:4].view(2, 2)),
        lambda b: wick.masked_select(b, b > 0, out=b),
        lambda b: wick.masked_select(b[:3], wick.ones(3) > 0, out=b[1:4]),
        lambda b: wick.index_select(b, 0, wick.tensor([0, 1, 2]), out=b[:3]),
        lambda b: wick.gather(b, 0, wick.tensor([0, 1, 2]), out=b[:3]),
        lambda b: wick.take_along_dim(b, wick.tensor([0, 1, 2]), 0, out=b[:3]),
        lambda b: wick.add(b[:3], 1, out=b[1:4]),
        lambda b: wick.exp(b[:4].view(2, 2), out=b[:4].view(2, 2).t()),
    ],
)
def test_memory_that_an_argument_shares(call):
    with pytest.raises(RuntimeError) as error:
        call(wick.ones(6))
    assert str(error.value) == SHARED


def test_an_index_that_is_written():
    index = wick.tensor([0, 1, 2])
    with pytest.raises(RuntimeError) as error:
        wick.index_select(wick.ones(4, dtype=wick.int64), 0, index, out=index)
    assert str(error.value) == SHARED


def test_memory_that_may_be_shared():
    b = wick.ones(4)
    wick.add(b, 1, out=b)
    wick.sum(b.view(2, 2), 1, out=b[1:3])
    assert b.tolist() == [2, 4, 4, 2]
    wick.mm(b.view(2, 2), wick.ones(2, 2), out=b.view(2, 2))
    assert b.tolist() == [6, 6, 6, 6]


def test_an_out_that_is_the_first_argument_has_no_derivative_either():
    y = wick.ones(3, requires_grad=True) * 2
    for function in (wick.maximum, wick.add):
        with pytest.raises(RuntimeError, match="functions with out=... arguments don't support automatic different"):
            function(y, y, out=y)
