"""The names of torch.compiler: default backend, functions in the place of others, NumPy functions, settings, guards."""

import io
import operator
import types

import pytest

import wick as torch
from wick._dynamo.exc import Unsupported
from wick.compiler import (
    get_default_backend,
    load_compiled_function,
    nested_compile_region,
    set_default_backend,
    set_enable_guard_collectives,
    substitute_in_graph,
    wrap_numpy,
)

X = torch.tensor([1.0, 2.0, 3.0])


def test_the_default_backend():
    seen = []

    def backend(module, examples):
        seen.append(module)
        return module.forward

    assert get_default_backend() == "inductor"
    with pytest.raises(TypeError, match="backend must be a string or callable, got <class 'int'>"):
        set_default_backend(3)
    set_default_backend(backend)
    try:
        assert get_default_backend() is backend
        assert torch.equal(torch.compile(lambda x: x + 1)(X), X + 1) and len(seen) == 1
        torch.compile(lambda x: x + 1, backend="eager")(X)
        assert len(seen) == 1
    finally:
        set_default_backend(None)
    assert get_default_backend() == "inductor"


@pytest.fixture
def substitutes():
    before = dict(torch.compiler._substitutes)
    yield
    torch.compiler._substitutes.clear()
    torch.compiler._substitutes.update(before)


def test_a_function_in_the_place_of_c_code(substitutes):
    function = operator.length_hint

    def program(x, o):
        return x * operator.length_hint(o, 5)

    class Hinted:
        def __length_hint__(self):
            return 4

    called = []

    @substitute_in_graph(operator.length_hint, skip_signature_check=True)
    def length_hint(obj, default=0, /):
        called.append(1)
        return type(obj).__length_hint__(obj)

    assert (
        length_hint(Hinted(), 2) == 4 and called == [] and function is operator.length_hint
    )  # eager code: the C function
    compiled = torch.compile(program, fullgraph=True)
    for _ in range(3):
        assert torch.equal(compiled(X, Hinted()), X * 4)
    assert compiled.captures == 1 and called


def test_a_break_in_what_stands_for_another(substitutes):
    @substitute_in_graph(operator.index, skip_signature_check=True)
    def index(a, /):
        print("never seen", end="")
        torch._dynamo.graph_break()
        return a

    compiled = torch.compile(lambda x, n: (x + operator.index(n)) * 2)
    for _ in range(3):
        assert torch.equal(compiled(X, 3), (X + 3) * 2)


def test_what_cannot_stand_for_another(substitutes):
    with pytest.raises(TypeError, match="substitute_in_graph expects a function but got <class 'int'>"):
        substitute_in_graph(3)
    with pytest.raises(TypeError, match=r"@substitute_in_graph\(...\) expects a function but got <class 'str'>"):
        substitute_in_graph(operator.indexOf)("x")
    with pytest.raises(TypeError, match="Signature mismatch between"):
        substitute_in_graph(operator.indexOf)(lambda a: a)
    substitute_in_graph(operator.indexOf)(lambda a, b: a)
    with pytest.raises(ValueError, match="Duplicate polyfilled object"):
        substitute_in_graph(operator.indexOf)(lambda a, b: b)


def test_wrap_numpy():
    numpy = pytest.importorskip("numpy")

    @wrap_numpy
    def total(a, *, scale):
        return [numpy.sum(a * scale, axis=0), "text"]

    plain = total(X, scale=2.0)
    assert torch.equal(torch.as_tensor(plain[0]), torch.tensor(12.0)) and plain[1] == "text"
    assert torch.equal(torch.as_tensor(torch.compile(total)(X, scale=2.0)[0]), torch.tensor(12.0))


def test_regions_and_ranks():
    @nested_compile_region
    def layer(x):
        return x * 2 + 1

    @nested_compile_region()
    def other(x):
        return x - 1

    assert torch.equal(torch.compile(lambda x: other(layer(layer(x))), fullgraph=True)(X), X * 4 + 2)
    with pytest.raises(RuntimeError, match="experimental feature"):
        nested_compile_region(layer, options=object())
    assert set_enable_guard_collectives(True) is False and set_enable_guard_collectives(False) is True


def test_settings():
    config = torch.compiler.config
    import wick.compiler.config as imported

    assert config is imported and config.recompile_limit == torch._dynamo.config.recompile_limit
    with config.patch(recompile_limit=3, force_disable_caches=True):
        assert torch._dynamo.config.recompile_limit == 3 == config.recompile_limit and config.force_disable_caches
    assert torch._dynamo.config.recompile_limit == 8 and not config.force_disable_caches
    assert all(hasattr(config, name) for name in config.__all__)
    with pytest.raises(AttributeError):
        _ = config.no_such_setting


def test_filters_of_guards():
    def entry(kind, is_global=False, value=None, of_module=False, builtin=False):
        source = types.SimpleNamespace(
            is_unspecialized_nn_module=lambda: of_module, is_unspecialized_builtin_nn_module=lambda: builtin
        )
        return types.SimpleNamespace(
            guard_type=kind, is_global=is_global, value=value, orig_guard=types.SimpleNamespace(source=source)
        )

    entries = [
        entry("TENSOR_MATCH", value=X), entry("TENSOR_MATCH", True, torch.nn.Parameter(X)), entry("SHAPE_ENV"),
        entry("ID_MATCH", True, of_module=True), entry("ID_MATCH", of_module=True, builtin=True),
    ]  # fmt: skip
    c = torch.compiler
    assert c.keep_portable_guards_unsafe(entries) == [True, False, True, False, False]
    assert c.keep_tensor_guards_unsafe(entries) == [True, False, False, False, False]
    assert c.keep_tensor_guards_unsafe(entries, keep_parameters=True) == [True, True, False, False, False]
    assert c.skip_guard_on_globals_unsafe(entries) == [True, False, True, False, True]
    assert c.skip_guard_on_all_nn_modules_unsafe(entries) == [True, True, True, False, False]
    assert c.skip_guard_on_inbuilt_nn_modules_unsafe(entries) == [True, True, True, True, False]
    assert c.skip_all_guards_unsafe(entries) == [False] * 5
    compiled = torch.compile(lambda x: x + 1, options={"guard_filter_fn": c.skip_all_guards_unsafe})
    assert torch.equal(compiled(X), X + 1) and compiled(X.double()).dtype == torch.float64  # tensors are checked


def test_load_compiled_function():
    file = io.BytesIO()
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU()).eval()
    torch.jit.trace(model, X[None]).save(file)
    file.seek(0)
    loaded = load_compiled_function(file)
    assert torch.equal(loaded(X[None]), model(X[None]))


# ---- error_on_graph_break ----

error_on_graph_break = torch._dynamo.error_on_graph_break


def with_a_break(x):
    y = x * 2
    torch._dynamo.graph_break()
    return y + 1


def test_breaks_that_are_errors():
    with (
        error_on_graph_break(True),
        pytest.raises(Unsupported, match=r"error_on_graph_break\(True\), but the graph breaks here"),
    ):
        torch.compile(with_a_break)(X)
    compiled = torch.compile(with_a_break)
    assert torch.equal(compiled(X), X * 2 + 1) and compiled.breaks == 1
    with error_on_graph_break(True):
        assert torch.equal(compiled(X), X * 2 + 1)  # it was captured before
        with error_on_graph_break(False):
            assert torch.equal(torch.compile(with_a_break)(X), X * 2 + 1)
        with pytest.raises(Unsupported):
            torch.compile(with_a_break)(X)


def test_parts_of_a_function():
    def allowed(x):
        with error_on_graph_break(False):
            y = with_a_break(x)
        return y * 3

    def refused(x):
        x = with_a_break(x)
        with error_on_graph_break(True):
            y = with_a_break(x)
        return y * 3

    with error_on_graph_break(True):
        compiled = torch.compile(allowed)
        for _ in range(3):
            assert torch.equal(compiled(X), (X * 2 + 1) * 3)
    for _ in range(2):
        with pytest.raises(Unsupported, match="error_on_graph_break"):
            torch.compile(refused)(X)
    assert torch.equal(torch.compile(with_a_break)(X), X * 2 + 1)  # what was entered has been left


def test_decorated_functions():
    strict = error_on_graph_break(True)(with_a_break)
    with pytest.raises(Unsupported):
        torch.compile(strict)(X)
    assert torch.equal(strict(X), X * 2 + 1)
    lenient = error_on_graph_break(False)(with_a_break)
    with error_on_graph_break(True):
        compiled = torch.compile(lambda x: lenient(x) + 1)
        assert torch.equal(compiled(X), X * 2 + 2) and torch.equal(compiled(X), X * 2 + 2)
    with pytest.raises(Unsupported, match="fullgraph=True"):  # which goes before
        torch.compile(lenient, fullgraph=True)(X)


def test_a_captured_block_is_one_graph():
    def block(x):
        with error_on_graph_break(True):
            return x * 2 + 1

    compiled = torch.compile(block, fullgraph=True)
    for _ in range(3):
        assert torch.equal(compiled(X), X * 2 + 1)
    assert compiled.captures == 1
