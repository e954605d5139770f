"""fx.Tracer and symbolic_trace: graphs of programs by calling them with Proxies."""

import math

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


def kept(x):
    return x if x.sum() > 0 else -x


def test_functions_that_are_kept_whole():
    class Inner(wick.nn.Module):
        def forward(self, x):
            return kept(x)

    module = wick.nn.Sequential(Inner())
    graph = fx.Tracer(autowrap_functions=[kept]).trace(module)
    assert [n.target for n in graph.nodes if n.op == "call_function"] == [kept]
    assert fx.GraphModule(module, graph)(-wick.ones(2)).tolist() == [1, 1]
    assert kept(wick.ones(1)).item() == 1 and not isinstance(kept, fx.Proxy)
    made = fx.symbolic_trace(lambda x: math.sqrt(x.shape[0]))
    assert [n.target for n in made.graph.nodes if n.op == "call_function"][-1] is math.sqrt
    assert made(wick.ones(4)) == 2 and math.sqrt(4) == 2


def test_assertions_are_calls():
    def f(x):
        wick._assert(x.ndim == 2, "two dims")
        return x + 1

    made = fx.symbolic_trace(f)
    assert wick._assert in [n.target for n in made.graph.nodes]
    assert made(wick.ones(1, 1)).item() == 2
    with pytest.raises(AssertionError, match="two dims"):
        made(wick.ones(1))


def test_functions_written_in_python_and_sizes_of_parameters():
    class Module(wick.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = wick.nn.Parameter(wick.arange(8.0).view(4, 2))

        def forward(self, x):
            y = wick.nn.functional.group_norm(x, 2)
            if self.weight.shape[0] == 4 and self.weight.ndim == 2 and self.weight.numel() == 8:
                y = y + wick.einsum("ij,ij->i", self.weight, self.weight)
            return wick.nn.functional.interpolate(y[:, :, None], scale_factor=2)

    module, x = Module(), wick.arange(12.0).view(3, 4)
    with pytest.raises(fx.proxy.TraceError):
        fx.Tracer().trace(module)
    graph = fx.Tracer(param_shapes_constant=True).trace(module)
    assert wick.equal(fx.GraphModule(module, graph)(x), module(x))


def test_a_tracer_whose_create_proxy_takes_less():
    """As torchvision's: parameters have plain Proxies then."""

    class Own(fx.Tracer):
        def create_proxy(self, kind, target, args, kwargs, name=None, type_expr=None, *_):
            return super().create_proxy(kind, target, args, kwargs, name, type_expr)

    class Scale(wick.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = wick.nn.Parameter(wick.ones(2))

        def forward(self, x):
            return x * self.weight

    graph = Own(param_shapes_constant=True).trace(Scale())
    *_, product, output = graph.nodes
    assert list(product._input_nodes) == product.all_input_nodes and list(output._input_nodes) == [product]


def test_a_graph_that_proxies_append_to():
    graph = fx.Graph()
    x = fx.Proxy(graph.placeholder("x"), fx.proxy.GraphAppendingTracer(graph))
    graph.output((x * 2 + 1).relu().node)
    module = fx.GraphModule(wick.nn.Module(), graph)
    assert wick.equal(module(wick.tensor([-1.0, 3.0])), wick.tensor([0.0, 7.0]))
