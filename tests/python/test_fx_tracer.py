"""fx.Tracer and symbolic_trace: graphs of programs by calling them with Proxies."""

import pytest

import wick
from wick import fx


def test_function():
    made = fx.symbolic_trace(lambda x, y: wick.relu(x + y.view(-1)) * 2)
    assert [n.op for n in made.graph.nodes] == ["placeholder"] * 2 + [
        "call_method", "call_function", "call_function", "call_function", "output",
    ]  # fmt: skip
    assert made(wick.ones(2), wick.ones(2, 1)).tolist() == [4, 4]


def test_modules():
    class Inner(wick.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.scale = wick.nn.Linear(2, 2), wick.nn.Parameter(wick.ones(2))

        def forward(self, x):
            return self.linear(x).relu() * self.scale

    module = wick.nn.Sequential(Inner(), wick.nn.Tanh())
    made = fx.symbolic_trace(module)
    calls = [n.target for n in made.graph.nodes if n.op == "call_module"]
    assert calls == ["0.linear", "1"]
    assert [n.target for n in made.graph.nodes if n.op == "get_attr"] == ["0.scale"]
    x = wick.randn(3, 2)
    assert wick.equal(made(x), module(x))


def test_control_flow_is_an_error():
    with pytest.raises(fx.proxy.TraceError, match="inputs to control flow"):
        fx.symbolic_trace(lambda x: x if x.sum() > 0 else -x)


def test_leaves_and_constants():
    class Leaf(fx.Tracer):
        def is_leaf_module(self, m, name):
            return True

    module = wick.nn.Sequential(wick.nn.Sequential(wick.nn.ReLU()))
    graph = Leaf().trace(module)
    assert [n.target for n in graph.nodes if n.op == "call_module"] == ["0"]
    assert fx.symbolic_trace(lambda x, n: x * n, {"n": 3})(wick.ones(1)).item() == 3
