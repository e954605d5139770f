"""__torch_function__: who is asked about a call, with what, and what becomes of the results. Classes and modes."""

import subprocess
import sys
import threading

import pytest

import wick
from wick import _C, Tensor
from wick.nn import functional as F
from wick.overrides import TorchFunctionMode, handle_torch_function, has_torch_function, wrap_torch_function

CALLS = []


class Logged(Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        CALLS.append((func, types, args, kwargs))
        return super().__torch_function__(func, types, args, kwargs)


class Plain(Tensor):
    pass


@pytest.fixture
def x():
    tensor = wick.ones(2, 3).as_subclass(Logged)
    CALLS.clear()
    return tensor


def the_call():
    assert len(CALLS) == 1
    return CALLS[0]


def test_functions_methods_operators_and_attributes_are_handed_over(x):
    y = wick.ones(2, 3)
    for use, func, args in (
        (lambda: wick.add(y, x), wick.add, (y, x)),
        (lambda: x.add(1), Tensor.add, (x, 1)),
        (lambda: x.add_(1), Tensor.add_, (x, 1)),
        (lambda: x + y, Tensor.add, (x, y)),
        (lambda: y + x, Tensor.add, (y, x)),
        (lambda: 1 + x, Tensor.add, (x, 1)),
        (lambda: 1 - x, Tensor.__rsub__, (x, 1)),
        (lambda: -x, Tensor.neg, (x,)),
        (lambda: x[0], Tensor.__getitem__, (x, 0)),
        (lambda: x.shape, Tensor.shape.__get__, (x,)),
        (lambda: x.size(), Tensor.size, (x,)),
        (lambda: x.float(), Tensor.float, (x,)),
        (lambda: x.to(wick.float64), Tensor.to, (x, wick.float64)),
        (lambda: len(x), Tensor.__len__, (x,)),
        (lambda: repr(x), Tensor.__repr__, (x,)),
        (lambda: x.tolist(), Tensor.tolist, (x,)),
        (lambda: y.copy_(x), Tensor.copy_, (y, x)),
    ):
        CALLS.clear()
        use()
        got = the_call()
        assert got[0] == func, func
        assert got[1] == (Logged,) and got[3] is None
        assert len(got[2]) == len(args) and all(a is b or a == b for a, b in zip(got[2], args, strict=True))


def test_keywords_and_lists(x):
    x.sum(dim=0, keepdim=True)
    assert the_call()[2:] == ((x,), {"dim": 0, "keepdim": True})
    CALLS.clear()
    y = wick.ones(2, 3)
    assert type(wick.cat([y, x])) is Logged and the_call()[0] is wick.cat
    assert type(wick.cat([y, y])) is Tensor


def test_writing_items_and_attributes(x):
    x[0] = 5
    assert the_call()[0] == Tensor.__setitem__ and x.tolist()[0] == [5, 5, 5]
    CALLS.clear()
    x.requires_grad = True
    assert the_call()[0] == Tensor.requires_grad.__set__ and the_call()[2] == (x, True)


def test_functional_names_the_function(x):
    for use, func in (
        (lambda: F.relu(x), F.relu),
        (lambda: F.softmax(x, dim=1), F.softmax),
        (lambda: F.cross_entropy(x, wick.tensor([0, 1])), F.cross_entropy),
        (lambda: F.threshold(x, 0.5, 2.0), F.threshold),
        (lambda: F.linear(x, wick.ones(4, 3)), F.linear),
        (lambda: wick.nn.LayerNorm(3)(x), F.layer_norm),
    ):
        CALLS.clear()
        assert type(use()) is Logged
        assert the_call()[0] is func


def test_results_are_of_the_subclass():
    x = wick.arange(6.0).reshape(2, 3).as_subclass(Plain)
    assert type(x + 1) is Plain and type(x.t()) is Plain and type(x.shape) is wick.Size
    values, indices = x.max(1)
    assert type(values) is Plain and type(indices) is Plain
    assert all(type(part) is Plain for part in x.split(1))
    assert type(x.add_(1)) is Plain and x.add_(0) is x
    assert x.sum().item() == 21 and type(x.sum().item()) is float
    assert [type(row) for row in x] == [Plain, Plain]


def test_history_goes_through_the_subclass():
    x = wick.ones(3).as_subclass(Plain).requires_grad_()
    ((x * 2).as_subclass(Tensor) * 3).sum().backward()
    assert x.grad.tolist() == [6, 6, 6] and type(x.grad) is Tensor
    weight = wick.ones(3, requires_grad=True)
    (weight.as_subclass(Plain) * 4).sum().backward()
    assert weight.grad.tolist() == [4, 4, 4]


def test_a_class_may_answer_itself():
    class Metadata(Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func.__name__

    x = wick.ones(2).as_subclass(Metadata)
    assert x + 1 == "add" and wick.exp(x) == "exp" and F.relu(x) == "relu" and x.mul(2) == "mul"


def test_subclasses_are_asked_before_their_bases_and_others_from_left_to_right():
    order = []

    def refusing(name, *bases):
        def ask(cls, func, types, args=(), kwargs=None):
            order.append(cls.__name__)
            return NotImplemented

        return type(name, bases, {"__torch_function__": classmethod(ask)})

    A = refusing("A", Tensor)
    B, C = refusing("B", A), refusing("C", Tensor)
    a, b, c = (wick.ones(2).as_subclass(kind) for kind in (A, B, C))
    with pytest.raises(TypeError, match="all __torch_function__ handlers returned NotImplemented"):
        wick.where(c, a, b)
    assert order == ["C", "B", "A"]
    assert Plain.__torch_function__(wick.add, (Logged,), (1, 2)) is NotImplemented


def test_an_object_that_is_no_tensor():
    class Diagonal:
        def __init__(self, n, value):
            self.n, self.value = n, value

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func is wick.mean:
                return args[0].value / args[0].n
            return NotImplemented

    assert wick.mean(Diagonal(5, 2)) == 0.4
    with pytest.raises(TypeError, match="Multiple dispatch failed for 'torch.sum'"):
        wick.sum(Diagonal(5, 2))


def test_disabling(x):
    with _C.DisableTorchFunctionSubclass():
        assert type(x + 1) is Tensor and type(F.relu(x)) is Tensor
        assert not has_torch_function((x,))
    assert CALLS == [] and has_torch_function((1, x)) and not has_torch_function((wick.ones(1), 1))
    assert type(x + 1) is Logged


def test_parameters_are_not_asked():
    weight = wick.nn.Parameter(wick.ones(3))
    assert type(weight * 2) is Tensor
    assert not has_torch_function((weight,))


class Recording(TorchFunctionMode):
    def __init__(self):
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


def test_modes_see_every_call_but_their_own():
    x = wick.ones(2)
    with Recording() as outer:
        wick.zeros(2)
        with Recording() as inner:
            F.softmax(x + 1, 0)
        x.shape  # noqa: B018
    wick.zeros(3)
    assert inner.seen == [Tensor.add, F.softmax]
    assert outer.seen == [wick.zeros, Tensor.add, F.softmax, Tensor.shape.__get__]


def test_modes_come_before_classes_and_may_leave_the_call_to_them(x):
    class Leaving(Recording):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.seen.append(types)
            return NotImplemented if types else func(*args, **(kwargs or {}))

    with Leaving() as mode:
        assert type(x + 1) is Logged
    assert mode.seen == [(Logged,), ()] and the_call()[0] == Tensor.add


def test_a_mode_ends_with_its_block_after_an_error_and_is_the_threads_own():
    class Failing(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            raise ValueError("no")

    types = []
    with Failing():
        with pytest.raises(ValueError, match="no"):
            wick.ones(1)
        thread = threading.Thread(target=lambda: types.append(type(wick.ones(1))))
        thread.start()
        thread.join()
    assert types == [Tensor] and type(wick.ones(1)) is Tensor


def test_functions_of_ones_own(x):
    def double(t, times=2):
        if has_torch_function((t,)):
            return handle_torch_function(double, (t,), t, times=times)
        return t * times

    assert type(double(x)) is Logged
    assert CALLS[0][0] is double and CALLS[0][2:] == ((x,), {"times": 2})
    wrapped = wrap_torch_function(lambda t: (t,))(lambda t: t + 1)
    CALLS.clear()
    wrapped(x)
    assert the_call()[0] is wrapped


def test_as_subclass_checks_its_argument():
    with pytest.raises(TypeError, match="cls must be a type deriving from Tensor"):
        wick.ones(1).as_subclass(int)


def test_without_overrides_nothing_is_looked_for():
    code = "import wick; from wick import _C; wick.nn.Linear(2, 2)(wick.ones(1, 2)); assert not _C._overrides; "
    code += "wick.ones(1).as_subclass(type('S', (wick.Tensor,), {})); assert _C._overrides"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
