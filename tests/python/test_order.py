"""Medians, modes, quantiles, searches, counts: what NaN, ties and empty rows give, and errors. Values: tests/ops."""

import math

import pytest

import wick as torch

NAN = math.nan


def test_results_have_names():
    x = torch.tensor([[3.0, 1.0, 2.0], [1.0, 1.0, 0.0]])
    for name, args in (("kthvalue", (2,)), ("median", (1,)), ("mode", ()), ("cummax", (1,)), ("cummin", (1,))):
        for result in (getattr(torch, name)(x, *args), getattr(x, name)(*args)):
            assert type(result) is getattr(torch.return_types, name)
            assert result.values is result[0] and result.indices is result[1]
    assert x.aminmax().min == 0 and x.aminmax(dim=1).max.tolist() == [3, 1]
    assert torch.histogram(x, 2).bin_edges.tolist() == [0, 1.5, 3]


def test_nan():
    x = torch.tensor([2.0, NAN, 1.0, 3.0])
    assert x.median().isnan() and x.median(0).indices == 1 and x.nanmedian() == 2
    assert x.quantile(0.5).isnan() and x.nanquantile(0.5) == 2
    assert x.cummax(0).indices.tolist() == [0, 1, 1, 1] and x.cummin(0).values[1:].isnan().all()
    assert torch.searchsorted(torch.tensor([1.0, 2.0]), x).tolist() == [1, 2, 0, 2]
    assert not torch.isin(x, x)[1]


def test_a_sorter_says_the_order_of_a_row():
    row, values = torch.tensor([3.0, 1.0, 2.0]), torch.tensor([0.0, 1.0, 2.5])
    order = row.argsort()
    assert torch.searchsorted(row, values, sorter=order).tolist() == [0, 0, 2]
    assert torch.searchsorted(row, values, sorter=order, side="right").tolist() == [0, 1, 2]


def test_equal_elements():
    x = torch.tensor([2, 1, 1, 2, 3])
    assert tuple(t.item() for t in x.mode()) == (1, 2)
    assert x.cummax(0).indices.tolist() == [0, 0, 0, 3, 4]
    y = torch.tensor([1.0, 2.0, 2.0, 2.0, 1.0], requires_grad=True)
    y.median().backward()
    assert torch.allclose(y.grad, torch.tensor([0, 1 / 3, 1 / 3, 1 / 3, 0]))


def test_nothing():
    none = torch.empty(0)
    assert none.median().isnan() and torch.empty(0, dtype=torch.int64).median() == -(2**63)
    assert none.cummax(0).values.shape == (0,) and none.histc(3).tolist() == [0, 0, 0]
    for call, text in (
        (lambda: torch.empty(3, 0).kthvalue(1), "Expected reduction dim 1 to have non-zero size"),
        (lambda: none.mode(), "Expected reduction dim 0 to have non-zero size"),
        (lambda: none.aminmax(dim=0), "aminmax: Expected reduction dim 0 to have non-zero size"),
    ):
        with pytest.raises(IndexError, match=text):
            call()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: torch.ones(3).kthvalue(4), "selected number k out of range for dimension 0"),
        (lambda: torch.ones(3).quantile(1.5), r"q must be in the range \[0, 1\] but got 1.5"),
        (lambda: torch.ones(3).quantile(torch.tensor([0.5, 2.0])), r"q values must be in the range \[0, 1\]"),
        (lambda: torch.empty(0).quantile(0.5), "input tensor must be non-empty"),
        (lambda: torch.ones(3).quantile(0.5, interpolation="x"), "interpolation must be one of linear, lower"),
        (lambda: torch.searchsorted(torch.ones(3), torch.ones(3), side="x"), "side can only be 'left' or 'right'"),
        (
            lambda: torch.searchsorted(torch.ones(2), torch.ones(2), sorter=torch.tensor([0, 9])),
            "sorter index out of range",
        ),
        (lambda: torch.bincount(torch.tensor([-1])), "only supports 1-d non-negative integral inputs"),
        (lambda: torch.histc(torch.ones(3), 0), "bins must be > 0, but got 0 for dimension 0"),
        (lambda: torch.histc(torch.tensor([1.0, math.inf])), r"range of \[1, inf\] is not finite"),
    ],
)
def test_errors(call, text):
    with pytest.raises(RuntimeError, match=text):
        call()


def test_logcumsumexp_of_extremes():
    inf = math.inf
    assert torch.tensor([-inf, 1.0, 2.0]).logcumsumexp(0).tolist() == pytest.approx([-inf, 1, 2.3132617])
    assert torch.tensor([1000.0, 1000.0]).logcumsumexp(0)[1].item() == pytest.approx(1000 + math.log(2))
    x = torch.tensor([-inf, 0.0, 1.0], dtype=torch.float64, requires_grad=True)
    (x.logcumsumexp(0)[1:] * torch.tensor([1.0, -2.0])).sum().backward()
    assert x.grad.tolist() == pytest.approx([0, 1 - 2 / (1 + math.e), -2 * math.e / (1 + math.e)])


def test_divisors_wrap_around_nothing():
    a = torch.tensor([2**62, -(2**63) + 1, 0, 12])
    assert torch.gcd(a, torch.tensor(6)).tolist() == [2, 1, 6, 6]
    assert torch.lcm(torch.tensor([4, 0, -6]), torch.tensor([6, 5, 4])).tolist() == [12, 0, 12]
    assert a.clone().gcd_(a).tolist() == a.abs().tolist()
