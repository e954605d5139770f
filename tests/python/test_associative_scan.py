"""torch._higher_order_ops.associative_scan: running results along a dim, of one tensor or a tree, with gradients."""

import pytest

import wick as torch
from wick._higher_order_ops.associative_scan import associative_scan


def linear(left, right):
    """The composition of x -> a x + b, as in state space models."""
    return left[0] * right[0], right[0] * left[1] + right[1]


@pytest.mark.parametrize("count", range(1, 10))
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_sums(count, dim):
    shape = [2, 3, 2]
    shape[dim] = count
    x = torch.randn(shape, dtype=torch.float64)
    torch.testing.assert_close(associative_scan(torch.add, x, dim), x.cumsum(dim))
    backwards = associative_scan(torch.add, x, dim, reverse=True, combine_mode="generic")
    torch.testing.assert_close(backwards, x.flip(dim).cumsum(dim).flip(dim))


def test_a_function_of_trees_and_its_gradient():
    a, b = (torch.rand(2, 7, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    state, states = torch.zeros(2, 3, dtype=torch.float64), []
    for t in range(7):
        state = a[:, t] * state + b[:, t]
        states.append(state)
    scanned = associative_scan(linear, (a, b), 1)[1]
    torch.testing.assert_close(scanned, torch.stack(states, 1))
    for ours, theirs in zip(
        torch.autograd.grad(scanned.sum(), (a, b)), torch.autograd.grad(sum(states).sum(), (a, b)), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


def test_lengths_that_one_capture_is_for():
    def f(x):
        return associative_scan(linear, (x, x.cos()), 0, combine_mode="generic")

    compiled = torch.compile(f, fullgraph=True, dynamic=True)
    lengths = 16, 17, 20, 23, 24, 27, 31, 32, 40, 47
    for n in lengths:
        x = torch.linspace(-1, 1, 6 * n).reshape(n, 2, 3)
        for plain, found in zip(f(x), compiled(x), strict=True):
            assert torch.equal(plain, found) and plain.is_contiguous() and found.is_contiguous()
    assert compiled.captures == 3


def test_what_is_combined():
    """The function sees slices in their order, and no others."""
    seen = []

    def join(left, right):
        seen.append((left.tolist(), right.tolist()))
        return left * 10 + right

    digits = torch.arange(1.0, 6)
    assert associative_scan(join, digits, 0, combine_mode="generic").tolist()[:2] == [1, 12]
    assert seen[0] == ([1, 3], [2, 4]) and len(seen) == 3


def test_what_it_refuses():
    x = torch.ones(3)
    for arguments in (((1,), x, 0), (torch.add, [], 0), (torch.add, [1], 0), (torch.add, [x, x[:2]], 0)):
        with pytest.raises((ValueError, RuntimeError)):
            associative_scan(*arguments)
    with pytest.raises((ValueError, RuntimeError)):
        associative_scan(torch.add, x, 0, combine_mode="other")


def test_mark_static_address():
    x = torch.ones(3)
    torch._dynamo.mark_static_address(x)
    assert x._dynamo_static_input_type == "unguarded"
    with pytest.raises(TypeError, match="mark_static_address expects a tensor"):
        torch._dynamo.mark_static_address(3)
