"""torch.cond, while_loop, scan and map: what they give, their derivatives, and both captured."""

import pytest

import wick as torch
from wick._higher_order_ops import cond, map, scan, while_loop  # noqa: A004


def captured_alike(function, *calls, **options):
    """The results of plain and captured calls, three times each."""
    compiled = torch.compile(function, **options)
    for _ in range(3):
        for args in calls:
            plain, found = function(*args), compiled(*args)
            flat = torch.utils._pytree.tree_leaves
            assert all(torch.equal(a, b) for a, b in zip(flat(plain), flat(found), strict=True))
    return compiled


X = torch.arange(6.0).reshape(2, 3)


# ---- cond ----


def branch(x):
    return torch.cond(x.sum() > 20, lambda x: x.cos(), lambda x: x * 2, (x,))


def test_cond_runs_the_branch_that_is_taken():
    ran = []
    result = cond(torch.tensor(True), lambda x: (ran.append(1), x + 1)[1], lambda x: ran.append(2), (X,))
    assert torch.equal(result, X + 1) and ran == [1]
    assert cond(0, lambda: 1, lambda: 2) == 2
    assert torch.equal(cond(torch.tensor([False]), lambda t: t["a"], lambda t: t["a"] * 3, ({"a": X},)), X * 3)


def test_cond_captured():
    captured_alike(branch, (X,), (X + 3,), fullgraph=True)
    sizes = captured_alike(lambda x: torch.cond(x.shape[0] > 2, torch.sin, torch.cos, (x,)), (X,), (X.t(),))
    assert sizes.captures <= 3


def test_cond_has_a_derivative():
    for x in X, X + 3:
        for run in branch, torch.compile(branch):
            leaf = x.clone().requires_grad_()
            run(leaf).sum().backward()
            assert torch.equal(leaf.grad, -x.sin() if x.sum() > 20 else torch.full_like(x, 2))


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("yes", torch.sin, torch.cos, (X,)), "Expected pred to be bool or tensor, but got yes."),
        ((X > 2, torch.sin, torch.cos, (X,)), "Expected pred to be bool or single-element tensor"),
        ((X.sum() > 2, torch.sin, 3, (X,)), "Expect both branches to be callable."),
        ((X.sum() > 2, torch.sin, torch.cos, X), "Expect operands to be a tuple of possibly nested"),
        ((X.sum() > 2, torch.sin, torch.cos, (X, 3)), "Expect operands to be a tuple of possibly nested"),
    ],
)
def test_cond_refuses(arguments, message):
    with pytest.raises(RuntimeError, match=message):
        cond(*arguments)


# ---- while_loop ----


def doubled(x):
    return while_loop(lambda i, x: (i < 4) & (x.sum() < 100), lambda i, x: (i + 1, x * 2), (torch.tensor(0), x))


def test_while_loop():
    count, result = doubled(X)
    assert count.item() == 3 and torch.equal(result, X * 8)
    assert while_loop(lambda k, x: 2 * k < x.shape[1], lambda k, x: (k + 1, x + k), (0, X))[0] == 2
    same = while_loop(lambda x: x.sum() < 0, lambda x: (x,), (X,))[0]
    assert torch.equal(same, X) and same is not X
    nested = while_loop(lambda t: t["n"] < 2, lambda t: ({"n": t["n"] + 1},), ({"n": torch.tensor(0)},))
    assert nested[0]["n"].item() == 2


def test_while_loop_captured():
    captured_alike(doubled, (X,), (X / 7,), (X + 100,), fullgraph=True)
    captured_alike(
        lambda x: while_loop(lambda k, x: k < 3, lambda k, x: (k + 1, x * k), (1, x))[1], (X,), fullgraph=True
    )


def test_while_loop_has_a_derivative():
    leaf = X.clone().requires_grad_()
    doubled(leaf)[1].sum().backward()
    assert leaf.grad.tolist() == [[8.0] * 3] * 2


@pytest.mark.parametrize(
    "arguments, kind, message",
    [
        ((3, lambda x: (x,), (X,)), RuntimeError, "Expect cond_fn and body_fn to be callable."),
        ((lambda x: x > 2, lambda x: (x,), (X,)), RuntimeError, "cond_fn must return a boolean scalar tensor"),
        ((lambda x: True, lambda x: x, (X,)), AssertionError, "body_fn should return a tuple"),
        (
            (lambda x: True, lambda x: (x, x), (X,)),
            AssertionError,
            "same number of elements as carried_inputs, got 2 vs 1",
        ),
        ((lambda x: True, lambda x: (x,), ("a",)), RuntimeError, "tensor or int leaves"),
    ],
)
def test_while_loop_refuses(arguments, kind, message):
    with pytest.raises(kind, match=message):
        while_loop(*arguments)


# ---- scan and map ----


def running(x, **how):
    return scan(lambda c, x: (c + x, c * x), torch.ones(x.select(how.get("dim", 0), 0).shape), x, **how)


def test_scan():
    carry, ys = running(X)
    assert torch.equal(carry, 1 + X.sum(0)) and torch.equal(ys, torch.stack([X[0], (1 + X[0]) * X[1]]))
    carry, ys = running(X, dim=-1, reverse=True)
    c, expected = torch.ones(2), []
    for k in 2, 1, 0:
        expected.insert(0, c * X[:, k])
        c = c + X[:, k]
    assert torch.equal(carry, c) and torch.equal(ys, torch.stack(expected, 1))
    carry, ys = scan(lambda c, x: ({"s": c["s"] + x[0]}, (x[1], x[0])), {"s": torch.zeros(3)}, (X, X * 2))
    assert torch.equal(carry["s"], X.sum(0)) and torch.equal(ys[0], X * 2) and torch.equal(ys[1], X)
    assert scan(None, X, []) == (X, [])


def test_map():
    assert torch.equal(map(lambda x, k: x * k + X[0], X, 3), X * 3 + X[0])
    a, b = map(lambda t: (t["a"] + t["b"], t["a"].sum()), {"a": X, "b": X})
    assert torch.equal(a, X * 2) and torch.equal(b, X.sum(1))


def test_scan_and_map_captured():
    compiled = captured_alike(lambda x: (running(x), running(x, dim=1, reverse=True)), (X,), fullgraph=True)
    assert compiled.captures == 1
    captured_alike(lambda x: map(lambda row, y: row * 2 + y, x, x[0]), (X,), fullgraph=True)


def test_scan_has_a_derivative():
    def gradient(x):
        leaf = x.clone().requires_grad_()
        carry, ys = running(leaf)
        (carry.sum() + ys.sum()).backward()
        return leaf.grad

    expected = torch.stack([1 + torch.ones(3) + X[1], 1 + 1 + X[0]])
    assert torch.equal(gradient(X), expected)
    captured_alike(gradient, (X,), fullgraph=True)


@pytest.mark.parametrize(
    "run, message",
    [
        (lambda: scan(3, X, X), "Combine_fn must be a callable, but got 3"),
        (lambda: scan(torch.add, X, X, dim="a"), "Dim must be an int, but got"),
        (lambda: scan(torch.add, X, X, reverse=1), "Reverse must be a bool, but got"),
        (lambda: scan(torch.add, [], X), r"scan\(\) operator requires init leaves."),
        (lambda: scan(torch.add, 3, X), "All init leaves must be a Tensor but got 3"),
        (lambda: scan(torch.add, X, [X, 2]), "All xs leaves must be a Tensor but got 2"),
        (lambda: scan(torch.add, X, [X, X[0]], dim=1), "All xs leaves must at least have 'dim' number of dimensions"),
        (lambda: map(torch.add, [3]), "Mapped xs can only consist of tensors"),
        (lambda: map(torch.add, torch.ones(0, 2)), "Leading dimensions of mapped xs cannot be 0."),
        (lambda: map(torch.add, [torch.ones(2), torch.ones(3)]), "must be consistent"),
    ],
)
def test_scan_and_map_refuse(run, message):
    with pytest.raises(RuntimeError, match=message):
        run()


# ---- under vmap; the operators of graphs; bad arguments ----


def test_a_cond_of_each_example():
    truths = torch.tensor([True, False, True])
    x = torch.arange(12.0).reshape(3, 4) / 8

    def one(truth, x):
        return torch.cond(truth, lambda x: x.sin(), lambda x: x * 2, (x,))

    wanted = torch.stack([one(truth, row) for truth, row in zip(truths, x, strict=True)])
    assert torch.equal(torch.vmap(one)(truths, x), wanted)
    assert torch.equal(torch.vmap(one)(truths[:, None], x), wanted)
    alike = torch.vmap(one, in_dims=(None, 0))
    assert torch.equal(alike(torch.tensor(False), x), x * 2)
    assert torch.equal(torch.vmap(one, in_dims=(0, None))(truths[:2], x[1]), torch.stack([x[1].sin(), x[1] * 2]))
    captured_alike(torch.vmap(one), (truths, x), (~truths, x + 1))
    leaf, other = (x.clone().requires_grad_() for _ in range(2))
    torch.vmap(one)(truths, leaf).sum().backward()
    torch.stack([one(truth, row) for truth, row in zip(truths, other, strict=True)]).sum().backward()
    assert torch.equal(leaf.grad, other.grad)


def test_operators_that_graphs_name():
    ops = torch.ops.higher_order
    carry, ys = scan(lambda c, x: (c + x, c * x), X[0], X)
    for plain, found in zip((carry, ys), ops.scan(lambda c, x: [c + x, c * x], [X[0]], [X], ()), strict=True):
        assert torch.equal(plain, found)
    (found,) = ops.associative_scan(lambda a, b: [a * b], [X], ())
    assert torch.equal(found, X.cumprod(0))
    (found,) = ops.map_impl(lambda x, y: [x + y], [X], (X[0],))
    assert torch.equal(found, X + X[0])
    assert [op.name() for op in (ops.scan, ops.associative_scan, ops.map_impl)] == [
        "scan",
        "associative_scan",
        "map_impl",
    ]


def test_what_scan_refuses():
    with pytest.raises(IndexError, match=r"Dimension out of range \(expected to be in range of \[-2, 1\], but got 5\)"):
        scan(lambda c, x: (c + x, c * x), X[0], X, dim=5)
    with pytest.raises(RuntimeError, match="Expected init and carry to have same metadata but found:"):
        scan(lambda c, x: ((c + x).double(), c * x), X[0], X)
    with pytest.raises(RuntimeError, match="Expected init and carry to have same metadata but found:"):
        scan(lambda c, x: (c[:1] * 2, c * x), X[0], X)
    with pytest.raises(RuntimeError, match="scan dimension > 0"):
        scan(lambda c, x: (c + x, c * x), X[0], torch.tensor(1.0))
