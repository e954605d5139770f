"""torch._foreach_*: operators on lists of tensors are those of the tensors, one after the other."""

import pytest

import wick as torch
from wick.functions import lists


def some():
    return [torch.tensor([0.5, 1.5]), torch.tensor([[0.25], [2.0], [3.0]])]


def equal(results, wanted):
    pairs = [(a.nan_to_num(-9.0), b.nan_to_num(-9.0)) for a, b in zip(results, wanted, strict=True)]
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("name", lists._UNARY)
def test_of_each(name):
    tensors = some()
    wanted = [getattr(t, name)() for t in tensors]
    results = getattr(torch, f"_foreach_{name}")(tensors)
    assert type(results) is tuple and equal(results, wanted) and equal(tensors, some())
    assert getattr(torch, f"_foreach_{name}_")(tensors) is tensors and equal(tensors, wanted)


def _one(name, t, other):
    if name in ("maximum", "minimum") and not isinstance(other, torch.Tensor):
        other = torch.tensor(float(other))
    return getattr(torch, name)(t, other)


@pytest.mark.parametrize("name", lists._BINARY)
@pytest.mark.parametrize("others", [1.25, [0.75, 1.75], "lists", "tensor"])
def test_of_pairs(name, others):
    if others == "lists":
        others = [torch.tensor([0.75, 1.0]), torch.tensor([[2.0], [0.5], [3.0]])]
    if isinstance(others, str):
        if others not in lists._BINARY[name]:
            return
        others = torch.tensor(1.5)
    each = others if isinstance(others, list) else [others] * 2
    tensors = some()
    wanted = [_one(name, t, o) for t, o in zip(tensors, each, strict=True)]
    assert equal(getattr(torch, f"_foreach_{name}")(tuple(tensors), others), wanted)
    assert getattr(torch, f"_foreach_{name}_")(tensors, others) is tensors and equal(tensors, wanted)


def test_with_factors():
    a, b = some(), some()
    double = [t + 2 * t for t in some()]
    assert equal(torch._foreach_add(a, b, alpha=2), double) and equal(
        torch._foreach_add(a, torch.tensor(1.0), alpha=2), [t + 2 for t in a]
    )
    assert equal(torch._foreach_sub(a, torch.tensor(1.0)), [t - 1 for t in a])
    assert equal(torch._foreach_sub(a, b, alpha=3), [t - 3 * t for t in a])
    assert equal(torch._foreach_pow(2.0, a), [2.0**t for t in a])
    for value in (2.0, [2.0, 3.0], torch.tensor([2.0, 3.0])):
        each = value.tolist() if isinstance(value, torch.Tensor) else value if isinstance(value, list) else [value] * 2
        for name in ("addcmul", "addcdiv"):
            wanted = [getattr(torch, name)(t, t, t + 1, value=v) for t, v in zip(a, each, strict=True)]
            assert equal(getattr(torch, f"_foreach_{name}")(a, a, [t + 1 for t in a], value), wanted)
            written = some()
            getattr(torch, f"_foreach_{name}_")(written, a, [t + 1 for t in a], value)
            assert equal(written, wanted)
    for weight in (0.25, [0.25, 0.5], [torch.tensor(0.25), torch.tensor(0.5)]):
        each = weight if isinstance(weight, list) else [weight] * 2
        wanted = [torch.lerp(t, t * 2, w) for t, w in zip(a, each, strict=True)]
        assert equal(torch._foreach_lerp(a, [t * 2 for t in a], weight), wanted)
        written = some()
        torch._foreach_lerp_(written, [t * 2 for t in a], weight)
        assert equal(written, wanted)


def test_the_others():
    a = some()
    copies = torch._foreach_clone(a)
    assert equal(copies, a) and copies[0] is not a[0]
    assert equal(torch._foreach_max(a), [torch.tensor(1.5), torch.tensor(3.0)])
    assert equal(torch._foreach_mm([a[1]], [a[1].t()]), [a[1] @ a[1].t()])
    assert torch._foreach_zero_(a) is a and equal(a, [torch.zeros(2), torch.zeros(3, 1)])
    assert torch._foreach_copy_(a, some()) is a and equal(a, some())


def test_derivatives():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    sum(t.sum() for t in torch._foreach_mul([x, x], [2.0, 3.0])).backward()
    assert x.grad.tolist() == [5.0, 5.0]


def test_what_does_not_fit():
    a = some()
    with pytest.raises(RuntimeError, match="Tensor lists must have the same number of tensors, got 2 and 1"):
        torch._foreach_add(a, a[:1])
    with pytest.raises(RuntimeError, match="Tensor list must have same number of elements as scalar list"):
        torch._foreach_mul(a, [1.0])
    with pytest.raises(RuntimeError, match="Tensor list must have at least one tensor"):
        torch._foreach_sqrt([])
    with pytest.raises(RuntimeError, match="expected to be 0 dim but it has 1 dimensions and 2 elements"):
        torch._foreach_mul(a, torch.ones(2))
    with pytest.raises(
        TypeError, match=r"_foreach_sqrt\(\): argument 'self' \(position 1\) must be tuple of Tensors, not Tensor"
    ):
        torch._foreach_sqrt(a[0])
    with pytest.raises(TypeError, match="invalid combination of arguments"):
        torch._foreach_add(a, 1.0, alpha=2)


def test_a_step_in_a_graph():
    def step(params, grads, squares):
        torch._foreach_mul_(squares, [0.9, 0.8])
        torch._foreach_addcmul_(squares, grads, grads, value=0.1)
        torch._foreach_addcdiv_(params, grads, torch._foreach_add(torch._foreach_sqrt(squares), 1e-8), value=-0.1)

    plain, captured = [(some(), [t - 1 for t in some()], some()) for _ in range(2)]
    compiled = torch.compile(step, fullgraph=True)
    for _ in range(3):
        step(*plain)
        compiled(*captured)
    assert equal(plain[0], captured[0]) and equal(plain[2], captured[2])
