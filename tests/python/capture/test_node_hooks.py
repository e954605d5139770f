"""Hooks of nodes of the tape, and their metadata: each replay gives them to what it has made."""

import pytest

import wick as torch
from wick import nn


def leaf(seed=0):
    torch.manual_seed(seed)
    return torch.randn(3, 4, requires_grad=True)


def check(f, seen=None):
    """The same results, gradients and effects as plain, in one graph, in each call."""
    compiled = torch.compile(f, fullgraph=True)
    seen = [] if seen is None else seen
    for seed in range(3):
        found = []
        for function in (f, compiled):
            x = leaf(seed)
            y = function(x)
            if y.requires_grad:
                y.sum().backward()
            found.append((y.tolist(), x.grad.tolist(), [[g if g is None else g.tolist() for g in s] for s in seen]))
            seen.clear()
        assert found[0] == found[1]
    assert compiled.captures == 1


def finish(y, inside):
    if not inside:
        return y * y
    (y * y).sum().backward()
    return y.detach()


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("call", ["register_hook", "register_prehook"])
def test_a_hook_that_sees(call, inside):
    seen = []

    def f(x):
        y = x * 2
        getattr(y.grad_fn, call)(lambda *grads: seen.append(sum(grads, ())))
        return finish(y, inside)

    check(f, seen)


@pytest.mark.parametrize("inside", [False, True])
def test_hooks_that_change(inside):
    def f(x):
        y = x * 2
        y.grad_fn.register_prehook(lambda grads: (grads[0] * 3,))
        y.grad_fn.register_hook(lambda grads, _: (grads[0] + 1, None))
        return finish(y, inside)

    check(f)


def test_hooks_of_a_node_and_of_its_tensor():
    seen = []

    def f(x):
        y = x.sin()
        y.register_hook(lambda grad: grad * 2)
        y.grad_fn.register_prehook(lambda grads: seen.append(grads))
        y.register_hook(lambda grad: grad + 1)
        return y * y

    compiled = torch.compile(f)
    for seed in range(4):
        for function in (f, compiled):
            x = leaf(seed)
            function(x).sum().backward()
            seen.append((x.grad,))
        (a,), (ga,), (b,), (gb,) = seen
        assert torch.equal(a, b) and torch.equal(ga, gb)
        seen.clear()


def test_a_handle_removes_its_hook():
    def f(x):
        y = x * 2
        handle = y.grad_fn.register_prehook(lambda grads: (grads[0] * 3,))
        y.grad_fn.register_prehook(lambda grads: (grads[0] + 3,))
        handle.remove()
        return y * y

    check(f)


def test_a_node_that_leaves_is_that_of_its_call():
    def f(x):
        y = x * 2
        return y, y.grad_fn

    compiled = torch.compile(f, fullgraph=True)
    for _ in range(3):
        y, node = compiled(leaf())
        assert node is y.grad_fn and node.name() == "MulBackward0"


def test_a_hook_of_a_function_of_the_program():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    seen = []

    def f(x):
        y = Twice.apply(x)
        y.grad_fn.register_prehook(lambda grads: seen.append(grads))
        y.grad_fn.register_hook(lambda grads, results: seen.append(grads + results))
        return y * y

    check(f, seen)


@pytest.mark.parametrize("inside", [False, True])
def test_metadata(inside):
    def f(x):
        y = x * 2
        y.grad_fn.metadata["name"] = "twice"
        y.grad_fn.metadata["of"] = [x]
        return finish(y * len(y.grad_fn.metadata), inside)

    check(f)


def test_metadata_leave_with_the_node():
    def f(x):
        y = x * 2
        y.grad_fn.metadata["of"] = x
        return y

    compiled = torch.compile(f, fullgraph=True)
    for seed in range(3):
        x = leaf(seed)
        y = compiled(x)
        assert list(y.grad_fn.metadata) == ["of"] and y.grad_fn.metadata["of"] is x


def test_hooks_of_nodes_from_outside():
    seen, model = [], nn.Linear(4, 2)
    compiled = torch.compile(lambda y: model(y).square().sum(), fullgraph=True)
    for seed in range(3):
        x = leaf(seed)
        y = x * 2
        y.grad_fn.register_hook(lambda grads, results: seen.append(len(grads)))
        y.grad_fn.register_prehook(lambda grads: (grads[0] * 2,))
        compiled(y).backward()
        z = leaf(seed)
        (model(z * 2).square().sum() * 2).backward()
        assert torch.allclose(x.grad, z.grad)
    assert seen == [2] * 3
