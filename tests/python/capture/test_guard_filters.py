"""options={"guard_filter_fn": f}: guards for which f gives False are not checked."""

import pytest

import wick as torch
from wick import nn

X = torch.ones(2, 3)
scale = 2.0


def doubled(x):
    return x * 2


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.rate, self.numbers = nn.Linear(3, 3), 3, [1, 2]

    def forward(self, x, numbers, flag=None):
        if flag:
            x = x + 1
        return doubled(self.linear(x)) * scale * self.rate + self.numbers[1] + len(numbers)


def compiled(function, filter):
    return torch.compile(function, options={"guard_filter_fn": filter})


def entries_of(function, *args):
    found = []
    compiled(function, lambda entries: [bool(found.append(e)) or True for e in entries])(*args)
    return found


def test_entries_are_in_pytorchs_words():
    found = {(e.name, e.guard_type): e for e in entries_of(Model(), X, [1, 2])}
    x, rate = found["x", "TENSOR_MATCH"], found["G['scale']", "CONSTANT_MATCH"]
    assert x.has_value and x.value is X and not x.is_global and x.derived_guard_types == ("TENSOR_MATCH",)
    assert rate.is_global and rate.value == 2.0 and rate.derived_guard_types == ("EQUALS_MATCH",)
    assert found["flag", "CONSTANT_MATCH"].derived_guard_types == ("NONE_MATCH",)
    assert found["numbers", "SEQUENCE_LENGTH"].value == [1, 2]
    assert found["G['doubled']", "CLOSURE_MATCH"].is_global
    in_model = [e for e in found.values() if e.orig_guard.source.is_unspecialized_nn_module()]
    in_linear = [e for e in found.values() if e.orig_guard.source.is_unspecialized_builtin_nn_module()]
    assert {e.value for e in in_model if e.name.endswith("['rate']")} == {3}
    assert in_linear and all("linear" in e.name for e in in_linear) and len(in_linear) < len(in_model)
    assert x.orig_guard.name == "L['x']" and x.orig_guard.create_fn_name() == "TENSOR_MATCH"


def test_what_is_kept_is_checked():
    global scale
    function = compiled(lambda x: x * scale, lambda entries: [True] * len(entries))
    try:
        assert torch.equal(function(X), X * 2)
        scale = 3.0
        assert torch.equal(function(X), X * 3) and function.captures == 2
    finally:
        scale = 2.0


def test_what_is_left_out_is_not():
    global scale
    function = compiled(lambda x, k: x * scale * k, torch.compiler.skip_guard_on_globals_unsafe)
    try:
        assert torch.equal(function(X, 2), X * 4)
        scale = 3.0
        assert torch.equal(function(X, 2), X * 4) and function.captures == 1
        assert torch.equal(function(X, 3), X * 9)
    finally:
        scale = 2.0


def test_guards_on_modules():
    linear = nn.Linear(3, 3)

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.rate = linear, 2

        def forward(self, x):
            return self.linear(x) * self.rate

    for filter, seen in (
        (torch.compiler.skip_guard_on_all_nn_modules_unsafe, 2),
        (torch.compiler.skip_guard_on_inbuilt_nn_modules_unsafe, 5),
    ):
        model = Outer()
        function = compiled(model, filter)
        function(X)
        model.rate = 5
        assert torch.equal(function(X), linear(X) * seen)
        assert torch.equal(function(torch.ones(4, 3)), linear(torch.ones(4, 3)) * 5)  # captured again


def test_tensors_are_checked_in_any_case():
    function = compiled(lambda x, k: x * k, torch.compiler.skip_all_guards_unsafe)
    assert torch.equal(function(X, 2), X * 2)
    assert torch.equal(function(X, 3), X * 2)
    assert torch.equal(function(torch.ones(7), 3), torch.ones(7) * 3)
    assert function(X.double(), 2).dtype == torch.float64


def test_tensor_guards_alone():
    function = compiled(lambda x, names: x * len(names), torch.compiler.keep_tensor_guards_unsafe)
    assert torch.equal(function(X, {"a": 1}), X)
    assert torch.equal(function(X, {"a": 1, "b": 2}), X)
    assert torch.equal(function(torch.ones(5), {"a": 1, "b": 2}), torch.ones(5) * 2)


def test_another_module_is_another_capture():
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    function = compiled(lambda m, x: m(x), torch.compiler.skip_all_guards_unsafe)
    assert torch.equal(function(first, X), first(X)) and torch.equal(function(second, X), second(X))


def test_errors():
    with pytest.raises(AssertionError, match="filter_results length"):
        compiled(lambda x: x * scale, lambda entries: [True])(X)
    with pytest.raises(AssertionError, match="must be bool"):
        compiled(lambda x: x * scale, lambda entries: [1] * len(entries))(X)
    with pytest.raises(ZeroDivisionError):
        compiled(lambda x: x * scale, lambda entries: 1 // 0)(X)
    with pytest.raises(TypeError, match="not callable"):
        compiled(lambda x: x * scale, 3)(X)


def test_a_backend_of_ones_own_is_not_told():
    seen = []

    def backend(graph_module, example_inputs, **settings):
        seen.append(settings)
        return graph_module.forward

    options = {"guard_filter_fn": torch.compiler.skip_all_guards_unsafe}
    torch.compile(lambda x: x + 1, backend=backend, options=options)(X)
    assert seen == [{}] and "guard_filter_fn" in options
