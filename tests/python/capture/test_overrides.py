"""__torch_function__ and capture: subclasses are known calls, their results keep their class, and what of it the thread
asks is part of what a segment assumes. Modes see every call of a compiled function, as they do of a plain one."""

import pytest

import wick
from wick import _C, Tensor, nn
from wick.nn import functional as F
from wick.overrides import TorchFunctionMode, handle_torch_function, has_torch_function


class Plain(Tensor):
    pass


class Doubling(Tensor):
    """Its relu is doubled; everything else is Tensor's."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs)
        return result * 2 if func in (wick.relu, Tensor.relu, F.relu) else result


class Unwrapping(Tensor):
    """Calls with subclasses switched off, as many wrappers do."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with _C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


class Count(TorchFunctionMode):
    def __init__(self):
        self.calls = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.calls += 1
        return func(*args, **(kwargs or {}))


def values():
    return wick.tensor([[-1.0, 2.0, 0.5], [3.0, -4.0, 0.25]])


def compiled(function, **options):
    return wick.compile(function, fullgraph=True, **options)


def test_functional_is_one_graph_when_subclasses_are_about():
    values().as_subclass(Plain)
    assert _C._overrides
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.GELU(), nn.Linear(4, 2))
    f = compiled(lambda x: F.cross_entropy(F.softmax(model(x), 1), wick.tensor([0, 1])))
    for _ in range(3):
        assert f(values()).item() == F.cross_entropy(F.softmax(model(values()), 1), wick.tensor([0, 1])).item()
    assert (f.captures, f.breaks) == (1, 0)


def test_the_questions_are_known_calls():
    def f(x, y):
        if has_torch_function((x, y)):
            return handle_torch_function(wick.add, (x, y), x, y)
        return x - y

    g = compiled(f)
    for _ in range(2):
        assert g(values(), values()).tolist() == wick.zeros(2, 3).tolist()
        assert g(values(), values().as_subclass(Plain)).tolist() == (values() * 2).tolist()
        assert type(g(values(), values().as_subclass(Plain))) is Plain
    assert g.captures == 2


@pytest.mark.parametrize("cls", [Plain, Doubling, Unwrapping])
@pytest.mark.parametrize(
    "function", [lambda x: F.relu(x) + 1, lambda x: x.relu()[0].sum(), lambda x: (x, x.t(), x * 2)]
)
def test_results_have_the_class_that_they_have_plainly(cls, function):
    g = compiled(function)
    for _ in range(3):
        expected, got = function(values().as_subclass(cls)), g(values().as_subclass(cls))
        pairs = [(expected, got)] if isinstance(expected, Tensor) else zip(expected, got, strict=True)
        for e, r in pairs:
            assert type(r) is type(e)
            assert r.tolist() == e.tolist()
    assert g.captures == 1


def test_a_subclass_is_captured_apart_and_has_its_history():
    g = compiled(lambda x: F.relu(x * 3))
    x, s = values().requires_grad_(), values().as_subclass(Doubling).requires_grad_()
    for _ in range(2):
        g(x).sum().backward()
        g(s).sum().backward()
    assert g.captures == 2
    assert s.grad.tolist() == (x.grad * 2).tolist()
    assert x.grad[0].tolist() == [0.0, 6.0, 6.0]


def test_a_view_of_an_input_that_was_written_keeps_its_class():
    def f(x):
        x.add_(1)
        return x[0]

    g = compiled(f)
    for _ in range(3):
        plain, captured = values().as_subclass(Plain), values().as_subclass(Plain)
        e, r = f(plain), g(captured)
        assert type(r) is type(e) is Plain
        assert (r.tolist(), captured.tolist()) == (e.tolist(), plain.tolist())
        captured.zero_()
        assert r.tolist() == [0.0, 0.0, 0.0]


def test_a_backend_of_the_user_gets_and_gives_the_class():
    g = wick.compile(lambda x: F.relu(x) + 1, backend=lambda module, inputs: module.forward)
    for _ in range(3):
        assert type(g(values().as_subclass(Plain))) is Plain


def test_sizes_of_a_subclass_are_asked_of_its_class():
    asked = []

    class Sized(Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            asked.append(func)
            return super().__torch_function__(func, types, args, kwargs)

    g = wick.compile(lambda x: x * x.shape[0], dynamic=True)
    for n in (3, 4, 3):
        asked.clear()
        assert g(wick.ones(n).as_subclass(Sized)).tolist() == [float(n)] * n
        assert len(asked) == 3  # shape, mul, tolist


def test_sizes_of_a_subclass_that_overrides_nothing_are_symbols():
    g = wick.compile(lambda x: x * x.shape[0], dynamic=True, fullgraph=True)
    for n in (3, 4, 5):
        y = g(wick.ones(n).as_subclass(Plain))
        assert type(y) is Plain and y.tolist() == [float(n)] * n
    assert g.captures == 1


def test_a_mode_sees_the_calls_of_what_was_captured_without_it():
    f = compiled(lambda x: (x * 2).relu() + 1)
    f(values())
    assert f.captures == 1
    with Count() as mode:
        f(values())
        made = mode.calls
        f(values())
    assert made > 3 and mode.calls == 2 * made  # those of values() as well
    f(values())
    assert (mode.calls, f.captures) == (2 * made, 1)


def test_what_is_first_called_under_a_mode_asks_it_no_more_behind_it():
    f = compiled(lambda x: (x * 2).relu() + 1)
    x = values()
    with Count() as mode:
        f(x), f(x)
    assert mode.calls == 6
    assert f(x).tolist() == ((x * 2).relu() + 1).tolist()
    assert (mode.calls, f.captures, f.breaks) == (6, 1, 0)


def test_a_mode_that_the_function_enters_sees_its_own_block():
    def f(x, mode):
        y = x * 2 + 1
        with mode:
            y = y.relu() - 1
        return y * y

    g, mode = wick.compile(f), Count()
    for k in range(1, 5):
        assert g(values(), mode).tolist() == f(values(), Count()).tolist()
        assert mode.calls == 2 * k
    assert compiled(f)(values(), mode).tolist() == f(values(), Count()).tolist()


@pytest.mark.parametrize("guard", [_C.DisableTorchFunctionSubclass, _C.DisableTorchFunction])
def test_whether_subclasses_are_asked_is_guarded(guard):
    g = compiled(F.relu)
    s = values().as_subclass(Doubling)
    for _ in range(2):
        with guard():
            off = g(s)
        on = g(s)
        assert (type(off), type(on)) == (Tensor, Doubling)
        assert on.as_subclass(Tensor).tolist() == (off * 2).tolist()
    assert g.captures == 2


def test_a_block_that_switches_them_off_may_break():
    def f(x):
        with _C.DisableTorchFunctionSubclass():
            y = F.relu(x)
            print("in the block", _C._is_torch_function_enabled())
            y = y + F.relu(x)
        return y, F.relu(x), _C._is_torch_function_enabled()

    g = wick.compile(f)
    for _ in range(4):
        expected, got = f(values().as_subclass(Doubling)), g(values().as_subclass(Doubling))
        assert [type(v) for v in got] == [type(v) for v in expected] == [Tensor, Doubling, bool]
        assert [v.tolist() for v in got[:2]] == [v.tolist() for v in expected[:2]]
        assert got[2] is expected[2] is True
        assert _C._is_torch_function_enabled()


class Measured(Tensor):
    unit = "m"

    @property
    def twice(self):
        return self * 2

    @property
    def scale(self):
        return self._scale

    def plus(self, number):
        return self + number


def measured():
    made = values().as_subclass(Measured)
    made._scale = 3
    return made


def test_values_and_properties_of_a_class_of_tensors():
    def f(s):
        return s.twice + s.plus(3) * s.scale, s.unit

    g = wick.compile(f, fullgraph=True)
    for unit in ("m", "m", "km"):
        if Measured.unit != unit:
            Measured.unit = unit
        expected, got = f(measured()), g(measured())
        assert type(got[0]) is Measured and got[0].tolist() == expected[0].tolist() and got[1] == unit
    Measured.unit = "m"
    assert g.captures == 2


@pytest.mark.parametrize("kind", [Measured, Doubling])
def test_a_tensor_made_of_another_one(kind):
    """It is over the same memory, with the same history."""

    def f(x):
        return kind(x * 2) + 1, kind(x)

    g = wick.compile(f, fullgraph=True)
    for function in (f, g, g):
        x = values().requires_grad_()
        results = function(x)
        assert [type(r) for r in results] == [kind, kind] and all(r.requires_grad for r in results)
        (results[0].sum() + results[1].sum()).backward()
        assert x.grad.unique().tolist() == [3.0]
    assert g.captures == 1
    y = values()
    alias = kind(y)
    alias.add_(1)
    assert alias._base is y and y.tolist() == (values() + 1).tolist() and Tensor(y * 1)._base is not None
