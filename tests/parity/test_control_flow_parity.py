"""cond, while_loop, scan and map: wick and PyTorch give the same."""

import pytest
from compare import torch

import wick


def both(function, *shapes):
    """function(engine, its operators, tensors) in both, on the same values."""
    results = []
    for engine in torch, wick:
        tensors = [engine.arange(float(n * m)).reshape(n, m) / 3 for n, m in shapes]
        operators = __import__(f"{engine.__name__}._higher_order_ops", fromlist=["cond"])
        found = engine.utils._pytree.tree_leaves(function(engine, operators, *tensors))
        results.append([leaf.tolist() if hasattr(leaf, "tolist") else leaf for leaf in found])
    assert results[0] == results[1]


@pytest.mark.parametrize("limit", [1.0, 100.0])
def test_cond(limit):
    both(lambda e, o, x: e.cond(x.sum() > limit, lambda x: x * 2, lambda x: x + 1, (x,)), (2, 3))


def test_while_loop():
    def run(e, o, x):
        return o.while_loop(lambda i, x: i < 4, lambda i, x: (i + 1, x * 2), (e.tensor(0), x))

    both(run, (2, 3))


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("reverse", [False, True])
def test_scan(dim, reverse):
    def run(e, o, x):
        start = e.zeros(x.select(dim, 0).shape)
        return o.scan(lambda c, x: (c + x, (c * x, x.sum())), start, x, dim=dim, reverse=reverse)

    both(run, (4, 3))


def test_map():
    both(lambda e, o, x, y: o.map(lambda t, y: (t[0] * t[1] + y[0], t[0].sum()), [x, x + 1], y), (4, 3), (2, 3))


@pytest.mark.parametrize("captured", [False, True])
def test_derivatives_of_scan_and_map(captured):
    found = []
    for engine in torch, wick:
        operators = __import__(f"{engine.__name__}._higher_order_ops", fromlist=["scan"])
        mapped = __import__(f"{engine.__name__}._higher_order_ops.map", fromlist=["map"]).map
        x, w, b = (
            engine.arange(float(n * m)).reshape(n, m).sin().requires_grad_() for n, m in ((5, 3), (3, 3), (1, 3))
        )

        def run(x, w, b, operators=operators, mapped=mapped, engine=engine):
            step = lambda c, e: ((c @ w + e).tanh(), (c * e).sum())  # noqa: E731
            carry, ys = operators.scan(step, engine.zeros(1, 3), x.unsqueeze(1), reverse=True)
            return mapped(lambda e: (e * b).sin(), x).sum() + carry.sum() + (ys * ys).sum()

        run = engine.compile(run, fullgraph=True) if captured and engine is wick else run
        run(x, w, b).backward()
        found.append([x.grad.tolist(), w.grad.tolist(), b.grad.tolist()])
    for theirs, ours in zip(*found, strict=True):
        assert wick.allclose(wick.tensor(ours), wick.tensor(theirs), rtol=1e-5, atol=1e-6)
