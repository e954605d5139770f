"""where with one and with three arguments, unfold, scatter_reduce: results as PyTorch gives them."""

import collections

import pytest

import wick


def test_where_alone_gives_the_places():
    places = wick.where(wick.tensor([[True, False], [True, True]]))
    assert isinstance(places, tuple) and [p.tolist() for p in places] == [[0, 1, 1], [0, 0, 1]]
    assert [p.tolist() for p in wick.where(wick.tensor(True))] == [[0]]
    assert [p.tolist() for p in wick.where(wick.tensor([0.0, 2.0]))] == [[1]]


def test_where_with_numbers_has_their_common_dtype():
    mask = wick.tensor([True, False])
    for numbers, dtype in (((1, 2), wick.int64), ((1, 2.0), wick.float32), ((True, False), wick.bool)):
        assert wick.where(mask, *numbers).dtype == dtype
    assert wick.where(mask, 1, 2).tolist() == [1, 2]


def test_where_as_a_method_chooses_self():
    x = wick.tensor([0, 1, 2])
    assert x.where(wick.tensor([True, False, True]), wick.tensor(9)).tolist() == [0, 9, 2]


def test_unfold_is_a_view_of_windows():
    x = wick.arange(12.0).reshape(3, 4)
    windows = x.unfold(1, 2, 2)
    assert windows.tolist() == [[[0, 1], [2, 3]], [[4, 5], [6, 7]], [[8, 9], [10, 11]]]
    assert windows.stride() == (4, 2, 1)
    windows[0, 1, 0] = 7
    assert x[0, 2] == 7
    assert x.unfold(0, 3, 5).shape == (1, 4, 3)
    assert x.unfold(dimension=-1, size=0, step=1).shape == (3, 5, 0)
    assert wick.tensor(3.0).unfold(0, 1, 1).tolist() == [3.0]


def test_unfold_adds_gradients_where_windows_overlap():
    x = wick.arange(6.0, requires_grad=True)
    (x.unfold(0, 3, 2) * wick.arange(6.0).reshape(2, 3)).sum().backward()
    assert x.grad.tolist() == [0, 1, 5, 4, 5, 0]


INDEX, SOURCE = [[0, 1, 0], [2, 0, 1]], [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
REDUCED = {
    ("sum", True): [[3, 7, 5], [2, 4, 8], [6, 2, 2]],
    ("sum", False): [[1, 5, 3], [2, 2, 6], [4, 2, 2]],
    ("prod", True): [[2, 10, 6], [2, 4, 12], [8, 2, 2]],
    ("mean", True): [[1.5, 3.5, 2.5], [2, 2, 4], [3, 2, 2]],
    ("amax", True): [[2, 5, 3], [2, 2, 6], [4, 2, 2]],
    ("amin", True): [[1, 2, 2], [2, 2, 2], [2, 2, 2]],
    ("amin", False): [[1, 5, 3], [2, 2, 6], [4, 2, 2]],
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int64", "uint8"])
@pytest.mark.parametrize("reduce,include_self", REDUCED)
def test_scatter_reduce(reduce, include_self, dtype):
    kind = getattr(wick, dtype)
    self, source = wick.full((3, 3), 2, dtype=kind), wick.tensor(SOURCE).to(kind)
    result = self.scatter_reduce(0, wick.tensor(INDEX), source, reduce, include_self=include_self)
    expected = REDUCED[reduce, include_self]
    if not kind.is_floating_point:
        expected = [[int(x) for x in row] for row in expected]
    assert result.dtype == kind and result.tolist() == expected
    self.scatter_reduce_(0, wick.tensor(INDEX), source, reduce, include_self=include_self)
    assert self.tolist() == expected


def test_scatter_reduce_extremes_keep_nan_and_means_of_integers_round_down():
    x = wick.zeros(2).scatter_reduce(0, wick.tensor([0, 0, 1]), wick.tensor([1.0, float("nan"), 3.0]), "amax")
    assert str(x.tolist()) == "[nan, 3.0]"
    x = wick.tensor([-7, 5]).scatter_reduce(0, wick.tensor([0, 1, 1]), wick.tensor([2, 2, 4]), "mean")
    assert x.tolist() == [-3, 3]


def test_scatter_reduce_of_products_with_zeros_has_the_right_gradient():
    source = wick.tensor([2.0, 0.0, 3.0, 0.0, 0.0], requires_grad=True)
    x = wick.ones(2, requires_grad=True)
    x.scatter_reduce(0, wick.tensor([0, 0, 0, 1, 1]), source, "prod").sum().backward()
    assert source.grad.tolist() == [0, 6, 0, 0, 0] and x.grad.tolist() == [0, 0]


def test_float8_promotes_with_nothing_else():
    eight, other = wick.ones(2).to(wick.float8_e4m3fn), wick.ones(2).to(wick.float8_e5m2)
    text = "Promotion for Float8 Types is not supported, attempted to promote Float8_e4m3fn and "
    for use, name in (
        (lambda: eight + other, "Float8_e5m2"),
        (lambda: eight * wick.ones(2), "Float"),
        (lambda: wick.cat([eight, wick.ones(2).long()]), "Long"),
        (lambda: wick.promote_types(wick.float8_e4m3fn, wick.bfloat16), "BFloat16"),
        (lambda: wick.result_type(eight, wick.ones(1).double()), "Double"),
    ):
        with pytest.raises(RuntimeError, match=f"^{text}{name}$"):
            use()
    assert wick.promote_types(wick.float8_e5m2, wick.float8_e5m2) == wick.float8_e5m2
    assert wick.where(wick.tensor([True, False]), eight, eight).dtype == wick.float8_e4m3fn
    assert wick.ones(2).copy_(eight).tolist() == [1, 1]


def test_an_index_into_a_number_is_checked():
    """A tensor of no dims has one place, 0."""
    x, out = wick.tensor(3.0, requires_grad=True), wick.tensor([2])
    with pytest.raises(IndexError, match="index out of range in self"):
        x.index_select(0, out)
    with pytest.raises(RuntimeError, match="index 2 is out of bounds for dimension 0 with size 1"):
        x.index_add(0, out, wick.tensor(1.0))
    with pytest.raises(
        RuntimeError, match=r"source tensor shape must match .* Got self.shape = \[\] source.shape = \[1\]"
    ):
        x.index_add(0, wick.tensor([0]), wick.ones(1))
    with pytest.raises(RuntimeError, match=r"Index to scalar can have only 1 value, got 2 value\(s\)"):
        x.index_select(0, wick.tensor([0, 0]))
    y = x.index_select(0, wick.tensor([0])).index_add(0, wick.tensor(0), x)
    y.backward()
    assert (y.item(), x.grad.item()) == (6, 2)


# ---- scatter(..., reduce=), indices that wrap, empty indices ----


def test_scatter_that_adds_or_multiplies():
    t, index, src = wick.ones(3) * 2, wick.tensor([0, 0, 1]), wick.arange(3.0) + 3
    assert wick.scatter(t, 0, index, src, reduce="add").tolist() == [9, 7, 2]
    assert wick.scatter(t, 0, index, src, reduce="multiply").tolist() == [24, 10, 2]
    assert wick.scatter(t, 0, index, 4.0, reduce="add").tolist() == [10, 6, 2]
    assert t.scatter(0, index, 4.0, reduce="multiply").tolist() == [32, 8, 2]
    assert t.clone().scatter_(0, index, src, reduce="add").tolist() == [9, 7, 2]
    written = t.clone()
    assert written.scatter_(0, index, 4.0, reduce="multiply") is written
    assert written.tolist() == [32, 8, 2]
    with pytest.raises(RuntimeError, match="reduce argument must be either add or multiply."):
        wick.scatter(t, 0, index, src, reduce="sum")
    x = wick.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="derivative for aten::scatter is not implemented"):
        wick.scatter(x * 2, 0, index, src, reduce="add").sum().backward()


def test_take_along_dim_begins_anew_beyond_either_end():
    x = wick.arange(6.0).view(2, 3)
    assert wick.take_along_dim(x, wick.tensor([[-1, 0], [1, -3]]), 1).tolist() == [[2, 0], [4, 3]]
    assert wick.take_along_dim(x, wick.tensor([[-1, 0], [1, -4]]), 1).tolist() == [[2, 0], [4, 5]]
    assert wick.take_along_dim(x, wick.tensor([[-1, 0], [1, 3]]), 1).tolist() == [[2, 0], [4, 3]]
    with pytest.raises(RuntimeError, match="out of bounds for dimension 0 with size 6"):
        wick.take_along_dim(x, wick.tensor([-1, 0]))


@pytest.mark.parametrize("dtype", [wick.uint8, wick.float32, wick.bool])
def test_an_empty_index_may_be_of_any_dtype(dtype):
    x, index = wick.ones(3), wick.zeros(0, dtype=dtype)
    assert wick.gather(x, 0, index).tolist() == []
    assert wick.scatter(x, 0, index, 2.0).tolist() == [1, 1, 1]
    assert wick.scatter(x, 0, index, x).tolist() == [1, 1, 1]
    assert wick.scatter_add(x, 0, index, x).tolist() == [1, 1, 1]
    assert wick.scatter_reduce(x, 0, index, x, "sum").tolist() == [1, 1, 1]
    with pytest.raises(RuntimeError, match="Expected dtype int32/int64 for index"):
        wick.gather(x, 0, wick.zeros(1, dtype=dtype))


@pytest.mark.parametrize("place", [3, -4, 300000])
def test_places_that_there_are_not_are_refused(place):
    x = wick.zeros(3, 4)
    for fill in (x.index_fill, x.index_fill_):
        with pytest.raises(IndexError, match=f"index {place} is out of bounds for dimension 0 with size 3"):
            fill(0, wick.tensor([place]), 1.0)
    assert not x.any() and x.index_fill(-1, wick.tensor([-1]), 2.0).sum() == 6
    assert wick.tensor(1.0).index_fill(0, wick.tensor([0]), 3).item() == 3


class Sequence:
    def __init__(self, *items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def test_any_sequence_is_an_index():
    x = wick.arange(12.0).reshape(3, 4)
    assert x[range(2)].tolist() == x[:2].tolist()
    assert x[range(2), [1, 2]].tolist() == [1.0, 6.0]
    assert x[:, range(1, 3)].tolist() == x[:, 1:3].tolist()
    assert x[range(0)].shape == (0, 4)
    assert x[collections.deque([0, 2])].tolist() == x[[0, 2]].tolist()
    assert x[Sequence(0, 1)].tolist() == x[:2].tolist() and x[Sequence(0, 1), 0].tolist() == [0.0, 4.0]
    x[range(2), range(2)] = 9
    assert x[0, 0] == x[1, 1] == 9
    for text in ("ab", b"ab"):
        with pytest.raises(TypeError, match=f"invalid data type '{type(text).__name__}'"):
            x[text]
