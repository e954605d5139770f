"""The names of torch._dynamo that programs use: decorators, settings, errors of backends and of captures that come again."""

import unittest.mock

import pytest

import wick as torch
import wick._dynamo.config as config
from wick._dynamo import decorators, exc
from wick._higher_order_ops.map import map as map_over

X = torch.ones(3)


def broken(module, examples):
    raise ValueError("no kernel for that")


def test_a_backend_that_raises():
    with pytest.raises(exc.BackendCompilerFailed, match="backend='broken' raised:\nValueError: no kernel") as caught:
        torch.compile(lambda x: x + 1, backend=broken)(X)
    assert isinstance(caught.value.inner_exception, ValueError) and caught.value.backend_name == "broken"
    with config.patch(suppress_errors=True):
        assert torch.equal(torch.compile(lambda x: x + 1, backend=broken)(X), X + 1)


@pytest.mark.parametrize("backend", ["eager", "inductor", lambda module, examples: module.forward])
def test_an_error_where_something_is_captured_again(backend):
    compiled = torch.compile(lambda x, n: x + n, backend=backend, dynamic=False)
    with unittest.mock.patch("wick._dynamo.config.error_on_recompile", True):
        compiled(X, 2)  # the first time is none
        compiled(X, 2)
        with pytest.raises(exc.RecompileError, match=r"Recompiling function <lambda> in .*\n.*\n.*n == 2"):
            compiled(X, 3)
    assert torch.equal(compiled(X, 3), X + 3) and not config.error_on_recompile


def test_settings():
    with config.patch({"recompile_limit": 3}, guard_nn_modules=False):
        assert (config.cache_size_limit, config.recompile_limit, config.guard_nn_modules) == (3, 3, False)
    with config.patch("cache_size_limit", 2):
        assert config.recompile_limit == torch.compile(lambda x: x).limit == 2
    assert config.recompile_limit == torch.compile(lambda x: x).limit == 8 and config.guard_nn_modules
    with pytest.raises(AttributeError), config.patch(no_such_setting=1):
        pass


def test_a_constant_result():
    calls = []

    @torch.compiler.assume_constant_result
    def setting():
        calls.append(1)
        return 7

    compiled = torch.compile(lambda x: x * setting(), fullgraph=True)
    for _ in range(3):
        assert torch.equal(compiled(X), X * 7)
    assert len(calls) == 1


def test_the_reason_of_a_function_that_is_kept_out():
    kept_out = torch.compiler.disable(lambda x: x + 1, reason="it talks to a server")
    with pytest.raises(exc.Unsupported, match="it talks to a server"):
        torch.compile(lambda x: kept_out(x), fullgraph=True)(X)


def test_decorators():
    def program(x):
        x = x + 1
        decorators.skip_frame("nothing more")
        return doubled(x)

    @decorators.nonstrict_trace
    def doubled(x):
        return x * 2

    compiled = torch.compile(program)
    for _ in range(2):
        assert torch.equal(compiled(X), (X + 1) * 2)
    assert compiled.breaks == 1 and torch._dynamo.decorators is decorators
    assert decorators.mark_dynamic is torch._dynamo.mark_dynamic
    assert decorators.disallow_in_graph is decorators.forbid_in_graph


def test_the_module_of_map():
    assert torch.equal(map_over(lambda row, y: row + y, torch.ones(2, 3), X), torch.full((2, 3), 2.0))
    assert torch._higher_order_ops.map is map_over


def spent(x):
    y = x**3
    loss = y.sum()
    loss.backward()
    return y, loss


def differentiated_twice(x):
    (grad,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    return grad, torch.autograd.grad(grad.sum(), x)[0]


@pytest.mark.parametrize("program", [spent, differentiated_twice])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", lambda module, examples: module.forward])
def test_histories_of_what_was_differentiated_inside(program, backend):
    compiled = torch.compile(program, backend=backend)
    for _ in range(3):
        plain, captured = (f(torch.tensor([1.0, 2.0], requires_grad=True)) for f in (program, compiled))
        for a, b in zip(plain, captured, strict=True):
            assert torch.equal(a, b) and a.requires_grad == b.requires_grad
            assert a.grad_fn is None or a.grad_fn.name() == b.grad_fn.name()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            captured[0].sum().backward()


def test_the_eager_backend_calls_operators_as_eager_code_does():
    x = torch.ones(3, requires_grad=True)
    compiled = torch.compile(lambda x: (x.sin() * 2, x[x > 0]), backend="eager", fullgraph=True)
    for _ in range(2):
        result = compiled(x)[0]
        assert result.grad_fn.name() == "MulBackward0"
        assert result.grad_fn.next_functions[0][0].name() == "SinBackward0"


LAYER = torch.nn.Linear(3, 2)


def through_a_layer(x, *, scale=1.0, more):
    return {"y": LAYER(x) * scale + more["bias"], "rows": [x.sum(), 3]}


@pytest.mark.parametrize("options", [{}, {"aten_graph": True, "tracing_mode": "real"}], ids=["any size", "this size"])
def test_export_of_a_function(options):
    given = {"scale": 2.0, "more": {"bias": torch.ones(2)}}
    exported = torch._dynamo.export(through_a_layer, **options)(torch.ones(4, 3), **given)
    graph_module, guards = exported
    assert graph_module is exported.graph_module and guards is exported.guards
    assert isinstance(graph_module, torch.fx.GraphModule) and len(graph_module.graph.find_nodes(op="placeholder")) == 3
    for rows in (4, 4 if options else 7):
        x = torch.rand(rows, 3)
        found, expected = graph_module(x, **given), through_a_layer(x, **given)
        assert torch.equal(found["y"], expected["y"])
        assert torch.equal(found["rows"][0], x.sum()) and found["rows"][1] == 3
    LAYER.zero_grad()
    found["y"].sum().backward()
    assert LAYER.bias.grad.tolist() == [2.0 * rows] * 2


def test_export_of_a_module():
    layers = torch.nn.Sequential(LAYER, torch.nn.ReLU())
    with pytest.warns(FutureWarning, match="use export\\(f\\)\\(\\*args"):
        graph_module, _ = torch._dynamo.export(layers, torch.ones(4, 3))
    assert torch.equal(graph_module(X.expand(5, 3)), layers(X.expand(5, 3)))
    assert graph_module.state_dict().keys() == layers.state_dict().keys()


def looks_at_a_file(x):
    open("/dev/null").close()
    return x + 1


@pytest.mark.parametrize("program", [looks_at_a_file, lambda x: x if x.sum() > 0 else -x], ids=["call", "branch"])
def test_export_of_what_is_no_graph(program):
    with pytest.raises(exc.Unsupported):
        torch._dynamo.export(program)(X)
