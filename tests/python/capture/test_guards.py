"""Every fact that a segment rests on is changed once: the captured function then does what the plain one does.

A mutation is a function that makes a world (what is compiled, its arguments, a change) again for each of the two runs.
Where the change matters the segment must not be taken again; where nothing can tell the difference it should be."""

# ruff: noqa: E741, F821, F841, B018

import abc
import collections
import collections.abc
import copy
import dataclasses
import enum
import functools
import gc
import inspect
import os
import sys
import types
import weakref

import pytest

sys.path.insert(0, os.path.dirname(__file__))

from capture_harness import Box, Net, call_once, module_of, numbers, same  # noqa: E402

import wick  # noqa: E402
from wick import nn  # noqa: E402
from wick._C import Compiled  # noqa: E402
from wick.nn.modules.module import register_module_forward_hook  # noqa: E402

MUTATIONS = []
NUMBER = 2
TEXT = "a"
FLAG = True
TABLE = {"k": 1, "t": 2}
ITEMS = [1, 2]
CONFIG = types.SimpleNamespace(rate=0.5)


def helper(x):
    return x * 2


def other_helper(x):
    return x * 5


def with_defaults(x, k=3, *, j=4):
    return x * k + j


def mutation(function=None, *, recaptures=True, xfail=""):
    if function is None:
        return functools.partial(mutation, recaptures=recaptures, xfail=xfail)
    marks = [pytest.mark.xfail(strict=True, reason=xfail)] if xfail else []
    MUTATIONS.append(pytest.param(function, recaptures, id=function.__name__, marks=marks))
    return function


def x_():
    return numbers(0, 3, 4)


# A mutation gives (function, arguments before, arguments after, what is done in between or None).


@pytest.mark.parametrize(("make", "recaptures"), MUTATIONS)
def test_a_changed_fact_is_seen(make, recaptures):
    def run(wrap):
        saved = dict(globals())
        saved_table, saved_items, saved_rate = dict(TABLE), list(ITEMS), CONFIG.rate
        out = []
        try:
            function, before, after, change = make()
            function = wrap(function)
            for _ in range(2):
                out.append(call_once(function, before, None))
            first = getattr(function, "captures", 0)
            if change:
                change()
            for _ in range(2):
                out.append(call_once(function, after, None))
            return out, first, getattr(function, "captures", 0)
        finally:
            for name in set(globals()) - set(saved):
                del globals()[name]
            globals().update(saved)
            TABLE.clear()
            TABLE.update(saved_table)
            ITEMS[:] = saved_items
            CONFIG.rate = saved_rate
            wick.set_default_dtype(wick.float32)
            wick.set_grad_enabled(True)
            helper.__code__, helper.__defaults__ = HELPER_CODE, None
            with_defaults.__defaults__, with_defaults.__kwdefaults__ = (3,), {"j": 4}
            helper.__dict__.clear()

    wick.manual_seed(0)
    plain = run(lambda f: f)[0]
    wick.manual_seed(0)
    captured, first, last = run(Compiled)
    for k, (p, c) in enumerate(zip(plain, captured, strict=True)):
        assert same(p, c), f"call {k}"
    assert plain[1][0] != plain[2][0] or not recaptures, "the change makes no difference"
    if recaptures:
        assert last > first, "the guard held"
    else:
        assert last == first, "captured again without a reason"


HELPER_CODE = helper.__code__


def set_global(name, value):
    return lambda: globals().__setitem__(name, value)


# ==== arguments ====

VALUES = {
    "int": (2, 3),
    "float": (0.5, 0.25),
    "signed zero": (0.0, -0.0),
    "text": ("a", "bb"),
    "bool": (True, False),
    "none": (None, 1),
    "int for float": (1, 1.0),
    "bool for int": (1, True),
    "bytes": (b"a", b"bb"),
    "complex": (1j, 2j),
    "tuple": ((1, 2), (1, 3)),
    "tuple length": ((1, 2), (1, 2, 3)),
    "list item": ([1, 2], [1, 3]),
    "list length": ([1, 2], [1]),
    "list type": ([1, 2], (1, 2)),
    "dict value": ({"a": 1}, {"a": 2}),
    "dict keys": ({"a": 1}, {"b": 1}),
    "dict order": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "set": ({1, 2}, {1, 3}),
    "frozenset": (frozenset({1}), frozenset({2})),
    "range": (range(3), range(4)),
    "slice": (slice(0, 2), slice(1, 3)),
    "dtype": (wick.float32, wick.float64),
    "type": (int, float),
    "function": (helper, other_helper),
    "ellipsis": (..., None),
}


def show(v):
    if isinstance(v, (list, tuple, range)):
        return [len(v), *v]
    if isinstance(v, dict):
        return list(v.items())
    if isinstance(v, (set, frozenset)):
        return sorted(v)
    if isinstance(v, slice):
        return v.start, v.stop
    return v


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("place", ["argument", "global", "closure", "attribute", "item", "default", "class"])
def test_a_value_is_checked(name, place):
    first, second = VALUES[name]

    def world():
        box = Box(v=first)
        holder = [first]
        kind = type("Kind", (), {"v": first})
        instance = kind()
        cell = first

        def inner(v=first):
            return show(v)

        def set_cell():
            nonlocal cell
            cell = second

        functions = {
            "argument": (lambda x, v: (x + 1, show(v)), None),
            "global": (lambda x, v: (x + 1, show(SUBJECT)), lambda: globals().__setitem__("SUBJECT", second)),
            "closure": (lambda x, v: (x + 1, show(cell)), set_cell),
            "attribute": (lambda x, v: (x + 1, show(box.v)), lambda: setattr(box, "v", second)),
            "item": (lambda x, v: (x + 1, show(holder[0])), lambda: holder.__setitem__(0, second)),
            "default": (lambda x, v: (x + 1, inner()), lambda: setattr(inner, "__defaults__", (second,))),
            "class": (lambda x, v: (x + 1, show(instance.v)), lambda: setattr(kind, "v", second)),
        }
        globals()["SUBJECT"] = first
        return functions[place]

    def run(wrap):
        function, change = world()
        function = wrap(function)
        out = [call_once(function, (x_(), first), None) for _ in range(2)]
        if change:
            change()
        return out + [call_once(function, (x_(), second if place == "argument" else first), None) for _ in range(2)]

    wick.manual_seed(0)
    plain = run(lambda f: f)
    wick.manual_seed(0)
    assert same(plain, run(Compiled))


# ==== tensors ====

TENSORS = {
    "values": (x_(), x_() + 1),
    "shape": (x_(), numbers(0, 2, 4)),
    "rank": (x_(), numbers(0, 4)),
    "dtype": (x_(), x_().double()),
    "strides": (x_(), numbers(0, 4, 3).t()),
    "requires grad": (x_(), x_().requires_grad_()),
    "parameter": (x_(), nn.Parameter(x_())),
    "number": (x_(), 2.0),
    "view": (x_(), numbers(0, 6, 4)[::2]),
    "offset": (x_(), numbers(0, 4, 4)[1:]),
    "expanded": (x_(), numbers(0, 4).expand(3, 4)),
}


@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_is_checked(name):
    first, second = TENSORS[name]

    def function(t):
        shape = t.shape if isinstance(t, wick.Tensor) else ()
        return t * 2, shape, getattr(t, "dtype", None), getattr(t, "requires_grad", None), type(t)

    compiled = Compiled(function)
    for value in (first, first, second, second, first):
        wick.manual_seed(1)
        plain = call_once(function, (value,), None)
        wick.manual_seed(1)
        assert same(plain, call_once(compiled, (value,), None))
    assert (compiled.captures == 1) == (name in ("values", "offset"))


@mutation
def tensor_replaced_by_an_equal_one():
    net = nn.Module()
    net.state = wick.ones(1)

    def f(x):
        net.state.add_(1)
        return x * net.state

    def replace():
        net.state = wick.ones(1) * net.state

    return f, (x_(),), (x_(),), replace


NESTED = {
    "generator": lambda rows: sorted(r for r in rows)[0] is rows[0],
    "zip": lambda rows: sorted(zip(rows, [1, 2], strict=True))[0][1],
    "key": lambda rows: sorted([0, 1], key=lambda k: rows[k])[0],
    "key of a dictionary": lambda rows: sorted([0, 1], key=lambda k: {0: rows}[0][k])[0],
    "iterator": lambda rows: max(iter(rows)) is rows[0],
    "map": lambda rows: sorted(map(lambda k: rows[k], [0, 1]))[0] is rows[0],
    "values": lambda rows: sorted({"a": rows[0], "b": rows[1]}.values())[0] is rows[0],
    "text": lambda rows: str({"rows": [rows]}),
}


class Pair:
    def __init__(self, first, second):
        self.first, self.second = first, second


KEYS = {
    "of a dictionary": (lambda o: max([0, 1], key=lambda k: o[k]), lambda a, b: {0: a, 1: b}),
    "attributes": (lambda o: sorted(["first", "second"], key=lambda k: getattr(o, k)), Pair),
    "one of the region's": (lambda o: sorted([0, 1], key=lambda k: o if k else [2]), lambda a, b: a),
    "a list of such": (lambda o: min([0, 1], key=lambda k: [o[k], 1]), lambda a, b: {0: a, 1: b}),
}


@pytest.mark.parametrize("name", KEYS)
def test_what_a_key_function_gives_to_c_code_is_checked(name):
    function, make = KEYS[name]
    compiled = Compiled(lambda x, o: (x * 2, function(o)))
    for first, second in (([3], [1]), ([0], [5]), ([3], [1])):
        assert compiled(x_(), make(first, second))[1] == function(make(first, second))


@pytest.mark.parametrize("name", NESTED)
def test_what_c_code_finds_is_checked(name):
    compiled = Compiled(lambda x, rows: (x * 2, NESTED[name](rows)))
    for rows in ([[3], [1]], [[0], [5]], [[3], [1]]):
        assert compiled(x_(), rows)[1] == NESTED[name](rows)
    assert compiled.captures == 2


@mutation
def arguments_alias():
    def f(x, y):
        x.add_(1)
        return y * 1

    t = x_()
    return f, (x_(), x_()), (t, t), None


@mutation
def arguments_share_memory():
    def f(x, y):
        x.add_(1)
        return y * 1

    t = numbers(0, 4, 4)
    return f, (x_(), x_()), (t[:3], t[1:]), None


@mutation
def arguments_are_one():
    t = x_()
    return lambda x, y: (x is y, x + y), (x_(), x_()), (t, t), None


@mutation
def arguments_are_no_longer_one():
    t = x_()
    return lambda x, y: (x is y, x + y), (t, t), (x_(), x_()), None


@mutation
def list_items_are_one():
    a, b = x_(), x_()
    return lambda ts: (ts[0] is ts[1], ts[0].add_(1) + ts[1]), ([a, b],), ([a, a],), None


@mutation
def grad_is_there():
    w = numbers(0, 4).requires_grad_()

    def change():
        w.grad = wick.ones(4)

    return lambda w: 1 if w.grad is None else w.grad + 1, (w,), (w,), change


@mutation(recaptures=False)  # the first segment holds again
def grad_accumulates():
    w = numbers(0, 4).requires_grad_()

    def f(w):
        (w * 2).sum().backward()
        return w.grad.sum()

    return f, (w,), (w,), lambda: setattr(w, "grad", None)


@mutation
def requires_grad_changed():
    w = numbers(0, 4).requires_grad_()
    return lambda w: (w * 2).requires_grad, (w,), (w,), lambda: w.requires_grad_(False)


@mutation
def data_replaced_by_another_shape():
    w = numbers(0, 4)
    return lambda w: w * 2, (w,), (w,), lambda: setattr(w, "data", numbers(0, 3))


# ==== modes ====


@mutation
def grad_mode():
    w = numbers(0, 4).requires_grad_()
    return lambda w: (w * 2).requires_grad, (w,), (w,), lambda: wick.set_grad_enabled(False)


@mutation
def default_dtype():
    return lambda: wick.ones(2), (), (), lambda: wick.set_default_dtype(wick.float64)


def test_grad_mode_around_the_call():
    w = numbers(0, 4).requires_grad_()
    compiled = Compiled(lambda t: t * 2)
    for _ in range(3):
        assert compiled(w).requires_grad
        with wick.no_grad():
            assert not compiled(w).requires_grad
    assert compiled.captures == 2


def test_inference_mode_around_the_call():
    compiled = Compiled(lambda t: t * 2)
    with wick.inference_mode():
        assert (x_() * 2).is_inference()
        assert compiled(x_()).is_inference()


# ==== globals, closures, builtins ====


@mutation
def global_number():
    return lambda x: x * NUMBER, (x_(),), (x_(),), set_global("NUMBER", 7)


@mutation
def global_function():
    return lambda x: helper(x), (x_(),), (x_(),), set_global("helper", other_helper)


@mutation
def global_hides_builtin():
    return lambda x: x * len([1, 2]), (x_(),), (x_(),), set_global("len", lambda v: 9)


@mutation
def global_deleted():
    globals()["GONE"] = 1

    def f(x):
        try:
            return x + GONE  # noqa: F821
        except NameError:
            return x

    return f, (x_(),), (x_(),), lambda: globals().pop("GONE")


@mutation
def global_dict_value():
    return lambda x: x * TABLE["k"], (x_(),), (x_(),), lambda: TABLE.__setitem__("k", 5)


@mutation
def global_dict_get():
    return lambda x: x * TABLE.get("new", 1), (x_(),), (x_(),), lambda: TABLE.__setitem__("new", 5)


@mutation
def global_dict_contains():
    return lambda x: x + 1 if "new" in TABLE else x, (x_(),), (x_(),), lambda: TABLE.__setitem__("new", 5)


@mutation
def global_dict_length():
    return lambda x: x * len(TABLE), (x_(),), (x_(),), lambda: TABLE.__setitem__("new", 5)


@mutation(recaptures=False)
def global_dict_other_key():
    return lambda x: x * TABLE["k"], (x_(),), (x_(),), lambda: TABLE.__setitem__("new", 5)


@mutation
def global_list_grows():
    return lambda x: x * sum(ITEMS), (x_(),), (x_(),), lambda: ITEMS.append(4)


@mutation
def global_list_truth():
    return lambda x: x + 1 if ITEMS else x, (x_(),), (x_(),), lambda: ITEMS.clear()


@mutation
def namespace_attribute():
    return lambda x: x * CONFIG.rate, (x_(),), (x_(),), lambda: setattr(CONFIG, "rate", 3.0)


@mutation
def closure_variable():
    k = 2

    def change():
        nonlocal k
        k = 3

    return lambda x: x * k, (x_(),), (x_(),), change


@mutation
def closure_function():
    def inner(x):
        return x + 1

    def change():
        nonlocal inner
        inner = helper

    return lambda x: inner(x), (x_(),), (x_(),), change


@mutation
def closure_emptied():
    k = 2

    def f(x):
        try:
            return x * k
        except NameError:
            return x

    def change():
        nonlocal k
        del k

    return f, (x_(),), (x_(),), change


# ==== functions ====


@mutation
def code_of_a_callee():
    return (
        lambda x: helper(x),
        (x_(),),
        (x_(),),
        lambda: setattr(helper, "__code__", other_helper.__code__),
    )


@mutation
def defaults_of_a_callee():
    return lambda x: with_defaults(x), (x_(),), (x_(),), lambda: setattr(with_defaults, "__defaults__", (5,))


@mutation
def keyword_defaults_replaced():
    return lambda x: with_defaults(x), (x_(),), (x_(),), lambda: setattr(with_defaults, "__kwdefaults__", {"j": 9})


@mutation
def keyword_defaults_changed():
    return lambda x: with_defaults(x), (x_(),), (x_(),), lambda: with_defaults.__kwdefaults__.__setitem__("j", 9)


@mutation
def mutable_default_of_a_callee():
    def inner(x, scale=[2]):  # noqa: B006
        return x * scale[0]

    return lambda x: inner(x), (x_(),), (x_(),), lambda: inner.__defaults__[0].__setitem__(0, 7)


@mutation
def own_code():
    def f(x):
        return x + 1

    return f, (x_(),), (x_(),), lambda: setattr(f, "__code__", (lambda x: x - 1).__code__)


@mutation
def attribute_of_a_function():
    helper.scale = 2
    return lambda x: x * helper.scale, (x_(),), (x_(),), lambda: setattr(helper, "scale", 4)


@mutation
def attribute_of_a_function_appears():
    return lambda x: x * getattr(helper, "scale", 1), (x_(),), (x_(),), lambda: setattr(helper, "scale", 4)


@mutation
def partial_argument():
    f = functools.partial(wick.add, alpha=2)
    g = functools.partial(wick.add, alpha=3)
    return lambda x, f: f(x, x), (x_(), f), (x_(), g), None


@mutation
def partial_of_a_function():
    f, g = functools.partial(with_defaults, k=2), functools.partial(with_defaults, k=6)
    return lambda x, f: f(x), (x_(), f), (x_(), g), None


class Scaled:
    def __init__(self, k):
        self.k = k

    def apply(self, x):
        return x * self.k

    def __call__(self, x):
        return x * self.k

    def __add__(self, x):
        return x + self.k

    def __enter__(self):
        return self.k

    def __exit__(self, *_):
        return False

    @property
    def twice(self):
        return self.k * 2


@mutation
def bound_method_argument():
    return lambda x, f: f(x), (x_(), Scaled(2).apply), (x_(), Scaled(3).apply), None


@mutation
def bound_method_in_a_list():
    return lambda x, fs: fs[0](x), (x_(), [Scaled(2).apply]), (x_(), [Scaled(3).apply]), None


@mutation
def bound_method_of_a_list():
    a, b = [1], [2, 3]
    return lambda x, f: (f(2), x + 1), (x_(), a.count), (x_(), b.count), None


def test_bound_append_of_another_list():
    def f(x, append):
        append(1)
        return x + 1

    compiled = Compiled(f)
    for _ in range(4):
        log = []
        compiled(x_(), log.append)
        assert log == [1]


# ==== instances and classes ====


@mutation
def instance_attribute():
    s = Scaled(2)
    return lambda x, s: s.apply(x), (x_(), s), (x_(), s), lambda: setattr(s, "k", 5)


@mutation
def callable_instance():
    return lambda x, s: s(x), (x_(), Scaled(2)), (x_(), Scaled(3)), None


@mutation
def operator_of_an_instance():
    return lambda x, s: s + x, (x_(), Scaled(2)), (x_(), Scaled(3)), None


@mutation
def property_of_an_instance():
    return lambda x, s: x * s.twice, (x_(), Scaled(2)), (x_(), Scaled(3)), None


@mutation
def manager_argument():
    def f(x, s):
        with s as k:
            return x * k

    return f, (x_(), Scaled(2)), (x_(), Scaled(3)), None


@mutation
def method_replaced_in_the_class():
    kind = type("Kind", (), {"f": lambda self, x: x + 1})
    s = kind()
    return lambda x: s.f(x), (x_(),), (x_(),), lambda: setattr(kind, "f", lambda self, x: x - 1)


@mutation
def method_replaced_in_a_base():
    base = type("Base", (), {"f": lambda self, x: x + 1})
    s = type("Kind", (base,), {})()
    return lambda x: s.f(x), (x_(),), (x_(),), lambda: setattr(base, "f", lambda self, x: x - 1)


@mutation
def method_hidden_by_an_attribute():
    kind = type("Kind", (), {"f": lambda self, x: x + 1})
    s = kind()
    return lambda x: s.f(x), (x_(),), (x_(),), lambda: setattr(s, "f", lambda x: x - 1)


@mutation
def class_of_an_instance():
    a = type("A", (), {"f": lambda self, x: x + 1})
    b = type("B", (), {"f": lambda self, x: x - 1})
    s = a()
    return lambda x: s.f(x), (x_(),), (x_(),), lambda: setattr(s, "__class__", b)


@mutation
def code_of_a_method():
    kind = type("Kind", (), {"f": lambda self, x: x + 1})
    s = kind()
    new = (lambda self, x: x - 1).__code__
    return lambda x: s.f(x), (x_(),), (x_(),), lambda: setattr(kind.f, "__code__", new)


@mutation
def class_attribute():
    kind = type("Kind", (), {"k": 2})
    return lambda x: x * kind.k, (x_(),), (x_(),), lambda: setattr(kind, "k", 3)


@mutation
def attribute_appears():
    box = Box(k=1)
    return lambda x: x * getattr(box, "new", 1), (x_(),), (x_(),), lambda: setattr(box, "new", 3)


@mutation
def attribute_disappears():
    box = Box(k=3)
    return lambda x: x + 1 if hasattr(box, "k") else x, (x_(),), (x_(),), lambda: delattr(box, "k")


@mutation
def slot():
    kind = type("Kind", (), {"__slots__": ("k",)})
    s = kind()
    s.k = 2
    return lambda x: x * s.k, (x_(),), (x_(),), lambda: setattr(s, "k", 3)


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@mutation
def enum_by_identity():
    return lambda x, c: x + 1 if c is Color.RED else x - 1, (x_(), Color.RED), (x_(), Color.BLUE), None


@mutation
def enum_by_identity_the_other_way():
    return lambda x, c: x + 1 if c is Color.RED else x - 1, (x_(), Color.BLUE), (x_(), Color.RED), None


@mutation
def enum_in_a_tuple():
    return lambda x, c: x + 1 if c in (Color.RED,) else x - 1, (x_(), Color.BLUE), (x_(), Color.RED), None


@mutation
def enum_value():
    return lambda x, c: x * c.value, (x_(), Color.RED), (x_(), Color.BLUE), None


@mutation
def int_enum():
    return lambda x, c: x * c, (x_(), Level.LOW), (x_(), Level.HIGH), None


@mutation
def object_in_a_list():
    a, b = Box(), Box()
    return lambda x, l, o: x + 1 if o in l else x, (x_(), [a], b), (x_(), [a], a), None


@mutation
def object_in_a_set():
    a, b = Box(), Box()
    return lambda x, l, o: x + 1 if o in l else x, (x_(), {a}, b), (x_(), {a}, a), None


@mutation
def objects_are_equal():
    a, b = Box(), Box()
    return lambda x, o, p: x + 1 if o == p else x, (x_(), a, b), (x_(), a, a), None


class Word(str):
    pass


@mutation
def text_of_an_own_class():
    return lambda x, t: (x, t + "!"), (x_(), Word("a")), (x_(), Word("b")), None


class Settings(dict):
    pass


@mutation
def dict_of_an_own_class():
    return lambda x, d: x * d["k"], (x_(), Settings(k=1)), (x_(), Settings(k=2)), None


@dataclasses.dataclass
class Pair:
    a: int
    b: float


@mutation
def dataclass_field():
    return lambda x, p: x * p.a + p.b, (x_(), Pair(1, 0.5)), (x_(), Pair(1, 0.25)), None


@mutation
def dict_view_argument():
    d = {"a": 1}
    return lambda x, v: x * sum(v), (x_(), d.values()), (x_(), {"a": 4}.values()), None


@mutation
def exception_argument():
    return lambda x, e: (x, e.args[0]), (x_(), ValueError(1)), (x_(), ValueError(2)), None


# ==== modules ====


@mutation
def parameter_replaced():
    m = module_of(0)

    def change():
        m.first.weight = nn.Parameter(wick.ones(4, 4))

    return m.forward, (x_(),), (x_(),), change


def test_parameter_written_in_place_is_no_new_capture():
    m = module_of(0)
    compiled = Compiled(lambda x: m(x))
    for k in range(4):
        assert wick.equal(compiled(x_()), m(x_()))
        with wick.no_grad():
            m.first.weight.fill_(k)
    assert compiled.captures == 1


@mutation
def module_attribute():
    m = module_of(0)
    return lambda x: m(x), (x_(),), (x_(),), lambda: setattr(m, "scale", 5.0)


@mutation
def submodule_replaced():
    m = module_of(0)
    return lambda x: m(x), (x_(),), (x_(),), lambda: setattr(m, "first", nn.Identity())


@mutation
def buffer_replaced():
    m = module_of(0)
    return lambda x: x + m.seen, (x_(),), (x_(),), lambda: setattr(m, "seen", wick.ones(4))


@mutation
def parameter_becomes_none():
    m = nn.Linear(4, 4)
    return lambda x: m(x), (x_(),), (x_(),), lambda: setattr(m, "bias", None)


@mutation
def attribute_of_a_tensor_changed():
    x = x_()
    x.kind = "even"
    return (lambda x: x * len(x.kind)), (x,), (x,), lambda: setattr(x, "kind", "an odd one")


@mutation
def attribute_of_a_parameter_appears():
    p = nn.Parameter(wick.ones(4))
    m = nn.ParameterList([p])
    return (lambda x: x * getattr(m[0], "rate", 1.0)), (x_(),), (x_(),), lambda: setattr(p, "rate", 0.5)


@mutation
def attribute_of_a_parameter_goes():
    p = nn.Parameter(wick.ones(4))
    p.rate, m = 0.5, nn.ParameterList([p])
    return (lambda x: x * getattr(m[0], "rate", 1.0)), (x_(),), (x_(),), lambda: delattr(p, "rate")


@mutation
def attribute_of_a_parameter_is_another_tensor():
    p = nn.Parameter(wick.ones(4))
    p.mask, m = wick.ones(4), nn.ParameterList([p])
    return (lambda x: x * m[0].mask), (x_(),), (x_(),), lambda: setattr(p, "mask", wick.zeros(4, dtype=wick.float64))


@mutation
def getattr_of_a_class_changed():
    kind = type("Kind", (), {"__getattr__": lambda self, name: len(name)})
    o = kind()

    def change():
        kind.__getattr__ = lambda self, name: -len(name)

    return (lambda x: x * o.four), (x_(),), (x_(),), change


@mutation
def attribute_appears_before_getattr():
    o = type("Kind", (), {"__getattr__": lambda self, name: len(name)})()
    return (lambda x: x * o.four), (x_(),), (x_(),), lambda: setattr(o, "four", 9)


@mutation
def attribute_becomes_a_buffer():
    m = nn.Module()
    m.total = wick.zeros(())

    def f(x):
        m.total = m.total + x.sum()
        return x * m.total, "total" in m._buffers

    def change():
        del m.total
        m.register_buffer("total", wick.ones(()))

    return f, (x_(),), (x_(),), change


@mutation
def class_of_a_made_module_changed():
    kind = type("Kind", (nn.Module,), {"forward": lambda self, x: x * 2})

    def change():
        kind.forward = lambda self, x: x * 3

    return (lambda x: kind()(x)), (x_(),), (x_(),), change


@mutation
def hook_of_all_modules_appears():
    def change():
        handles.append(register_module_forward_hook(lambda module, inputs, output: output * 2))

    handles = []

    def f(x):
        y = nn.ReLU()(x)
        if handles and len(handles) == 1:
            handles.append(handles[0].remove())
        return y + 1

    return f, (x_(),), (x_(),), change


@mutation
def forward_of_a_function_changed():
    class Twice(wick.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.k = 2
            return x * ctx.k

    def change():
        Twice.forward = staticmethod(lambda ctx, x: x * 3)

    return (lambda x: Twice.apply(x)), (x_(),), (x_(),), change


@mutation
def training_mode():
    m = nn.Dropout(0.5)
    return lambda x: m(x), (x_(),), (x_(),), lambda: m.eval()


@mutation
def training_mode_of_a_part():
    m = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.9))
    return lambda x: m(x), (x_(),), (x_(),), lambda: m[1].eval()


@mutation
def forward_hook_added():
    m = module_of(0)
    return lambda x: m(x), (x_(),), (x_(),), lambda: m.register_forward_hook(lambda a, b, out: out + 1)


@mutation
def forward_pre_hook_added_to_a_part():
    m = module_of(0)
    return lambda x: m(x), (x_(),), (x_(),), lambda: m.first.register_forward_pre_hook(lambda a, b: (b[0] + 1,))


@mutation
def forward_replaced_on_the_instance():
    m = module_of(0)
    return lambda x: m(x), (x_(),), (x_(),), lambda: setattr(m, "forward", lambda x: x)


@mutation
def forward_replaced_in_the_class():
    kind = type("Kind", (nn.Module,), {"forward": lambda self, x: x + 1})
    m = kind()
    return lambda x: m(x), (x_(),), (x_(),), lambda: setattr(kind, "forward", lambda self, x: x - 1)


@mutation
def module_added_to_a_list():
    m = nn.ModuleList([nn.ReLU()])

    def f(x):
        for layer in m:
            x = layer(x)
        return x

    return f, (x_(),), (x_(),), lambda: m.append(nn.Tanh())


@mutation
def another_module():
    return lambda x, m: m(x), (x_(), module_of(0)), (x_(), module_of(1)), None


@mutation
def weights_become_tied():
    m = module_of(0)

    def change():
        m.second.weight = m.first.weight

    return lambda x: m(x), (x_(),), (x_(),), change


@mutation
def weight_frozen():
    m = module_of(0)

    def f(x):
        m.zero_grad()
        m(x).sum().backward()
        return m.first.weight.grad is None

    return f, (x_(),), (x_(),), lambda: m.first.weight.requires_grad_(False)


def training(make):
    m = module_of(0)
    optimizer = make(m.parameters())

    def f(x):
        loss = m(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    for _ in range(2):
        f(x_())
    return f, m, optimizer


GROUPS = {
    "lr": ("sgd", 0.001),
    "momentum": ("sgd", 0.5),
    "weight_decay": ("sgd", 0.5),
    "maximize": ("sgd", True),
    "betas": ("adam", (0.5, 0.6)),
    "eps": ("adam", 0.1),
}
MAKERS = {
    "sgd": lambda p: wick.optim.SGD(p, lr=0.01, momentum=0.9),
    "adam": lambda p: wick.optim.Adam(p, lr=0.01),
}


@pytest.mark.parametrize("name", GROUPS)
def test_an_optimizer_option_is_checked(name):
    kind, value = GROUPS[name]

    def run(wrap):
        f, m, optimizer = training(MAKERS[kind])
        f = wrap(f)
        losses = [f(x_()) for _ in range(3)]
        optimizer.param_groups[0][name] = value
        losses += [f(x_()) for _ in range(3)]
        return [loss.item() for loss in losses], [p.tolist() for p in m.parameters()]

    assert run(Compiled) == run(lambda f: f)


def test_a_parameter_group_is_added():
    def run(wrap):
        f, m, optimizer = training(MAKERS["sgd"])
        extra = nn.Parameter(wick.ones(4))
        g = wrap(lambda x: f(x * extra))
        losses = [g(x_()) for _ in range(3)]
        optimizer.add_param_group({"params": [extra]})
        losses += [g(x_()) for _ in range(4)]
        return [loss.item() for loss in losses], [p.tolist() for p in m.parameters()], extra.tolist()

    assert run(Compiled) == run(lambda f: f)


def test_segments_do_not_keep_what_they_watch():
    class Thing(Net):
        pass

    thing = Thing()
    gone = []
    weakref.finalize(thing, gone.append, True)
    compiled = Compiled(lambda m, x: m(x))
    for _ in range(2):
        compiled(thing, x_())
    del thing
    gc.collect()
    assert gone == [True]
    assert compiled.captures == 1


def test_closures_behind_a_break():
    """A variable of the function around that the region does not read before it ends is that one, not one like it."""

    def make():
        log, count = [], 0

        def behind_a_break(x):
            nonlocal count
            print(end="")
            log.append(x.shape[0])
            count += 1
            return x + count

        def in_a_handler(x):
            try:
                print(end="")
                raise ValueError
            except ValueError:
                log.append("caught")
            return x * 2

        def given_out(x):
            def inner(y):
                nonlocal count
                count += 1
                log.append(count)
                return y * count

            return inner, x + 1

        def given_out_behind_a_break(x):
            print(end="")
            return given_out(x)

        return log, behind_a_break, in_a_handler, given_out, given_out_behind_a_break

    def run(wrap):
        log, *functions = make()
        seen = []
        for function in functions:
            call = wrap(function)
            for k in range(4):
                result = call(wick.ones(2) + k)
                if isinstance(result, tuple):
                    result = result[0](result[1])
                seen.append((result.tolist(), list(log)))
        return seen

    assert run(Compiled) == run(lambda f: f)


class Output:
    value = None
    count = 0


@dataclasses.dataclass
class Couple:
    first: object = None
    second: object = None


def test_attributes_that_have_a_default_in_the_class():
    """What an object of the region's own holds is the region's, though its class has something of that name."""

    def by_class(x):
        o = Output()
        o.value = x * 2
        o.count += x.shape[0]
        return o.value, o.value + o.count

    def by_dataclass(x):
        pair = Couple(x + 1)
        pair.second = pair.first * 2
        return pair.first, pair.second, pair

    for function in (by_class, by_dataclass):
        compiled = Compiled(function)
        for k in range(4):
            x = (wick.ones(2) * k).requires_grad_()
            y, z, *rest = compiled(x)
            assert [t.tolist() for t in (y, z)] == [t.tolist() for t in function(x)[:2]]
            assert not rest or (rest[0].first is y and rest[0].second is z)
            (y * 2 + z).sum().backward()
            assert x.grad.tolist() == ([6.0, 6.0] if function is by_class else [4.0, 4.0])


class Mapped:
    """Finds some of its attributes under other names, as configurations of models do."""

    names = {"width": "hidden"}

    def __init__(self, **values):
        for name, value in values.items():
            setattr(self, name, value)

    def __getattribute__(self, name):
        if name != "names" and name in super().__getattribute__("names"):
            name = super().__getattribute__("names")[name]
        return super().__getattribute__(name)

    def __setattr__(self, name, value):
        if name in super().__getattribute__("names"):
            name = super().__getattribute__("names")[name]
        super().__setattr__(name, value)

    @property
    def double(self):
        return self.width * 2


def test_classes_that_find_attributes_their_own_way():
    config = Mapped(hidden=2, scale=1.0)

    def f(x):
        config.calls = getattr(config, "calls", 0) + 1
        missing = hasattr(config, "absent"), getattr(config, "other", "none")
        local = Mapped(width=3)
        return x * config.width + config.double * config.scale + local.width, missing

    def run(call):
        nonlocal config
        config = Mapped(hidden=2, scale=1.0)
        seen = []
        for change in (None, None, ("width", 5), ("hidden", 7), ("scale", 0.5), ("other", "there"), ("absent", 1)):
            if change:
                setattr(config, *change)
            y, missing = call(wick.ones(2))
            seen.append((y.tolist(), missing, dict(config.__dict__)))
        Mapped.names = {"width": "scale"}
        seen.append(call(wick.ones(2))[0].tolist())
        Mapped.names = {"width": "hidden"}
        return seen

    compiled = Compiled(f, fullgraph=True)
    assert run(compiled) == run(f)


class Mapping(collections.OrderedDict):
    """A mapping whose items are attributes, too."""

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def __setattr__(self, name, value):
        if value is not None:
            super().__setitem__(name, value)
        super().__setattr__(name, value)

    def __delitem__(self, key):
        raise TypeError(key)


class Names(dict):
    pass


def test_mappings_of_classes_of_the_program_are_made():
    def f(x, empty):
        out = Mapping()
        out.last = x * 2
        out["first"] = out.last + 1
        out.nothing = None
        names = Names(a=x + 3)
        names.note = "kept"
        names["k"] = out
        names.move = list(out)
        return names if not empty else (Mapping(), Names())

    compiled = Compiled(f, fullgraph=True)
    for k in range(4):
        x = wick.ones(2) * k
        made, plain = compiled(x, False), f(x, False)
        assert type(made) is Names and type(made["k"]) is Mapping and list(made) == list(plain)
        assert vars(made) == {"note": "kept", "move": ["last", "first"]}
        assert list(made["k"]) == ["last", "first"] and made["k"].nothing is None
        assert made["k"].last is made["k"]["last"] and made["k"].first is made["k"]["first"]
        assert [t.tolist() for t in made["k"].values()] == [t.tolist() for t in plain["k"].values()]
        assert made["a"].tolist() == plain["a"].tolist()
        assert [type(o) for o in compiled(x, True)] == [Mapping, Names] and not any(compiled(x, True))


class Base(abc.ABC):  # noqa: B024
    pass


class Derived(Base):
    pass


class Stranger:
    pass


class Sized:
    def __len__(self):
        return 3


def test_abstract_classes():
    def f(x, o):
        known = isinstance(o, Base), issubclass(type(o), Base), isinstance(o, collections.abc.Sized)
        known += (isinstance(o, int | Base),)
        return x + (1 if known[0] else 2), known

    def run(call):
        seen = []
        for o in (Derived(), Stranger(), Sized(), [1], Derived(), Stranger()):
            y, known = call(wick.ones(2), o)
            seen.append((y.tolist(), known))
        return seen

    compiled = Compiled(f, fullgraph=True)
    wanted = run(f)
    assert run(compiled) == run(compiled) == wanted
    Base.register(Stranger)
    assert run(compiled) == run(f) != wanted


def test_proxies_of_mappings():
    def f(x):
        d = {"a": x * 2, "b": 3}
        proxy = types.MappingProxyType(d)
        d["c"] = 4
        total = sum(v for k, v in proxy.items() if k != "a")
        return proxy["a"] * total, len(proxy), "c" in proxy, list(proxy), proxy.get("none")

    compiled = Compiled(f, fullgraph=True)
    for k in range(3):
        y, *rest = compiled(wick.ones(2) * k)
        assert y.tolist() == [14.0 * k] * 2 and rest == [3, True, ["a", "b", "c"], None]


def test_deep_copies_of_plain_data():
    config = Mapped(hidden=2, scale=1.0, nested={"k": [1, 2]}, pair=(3, 4))
    config.names = {}

    def f(x):
        copied = copy.deepcopy(config)
        copied.hidden = copied.hidden + 1
        copied.nested["k"].append(5)
        delattr(copied, "pair")
        flat = copy.deepcopy({"list": [1, [2]]})
        flat["list"][1].append(3)
        return x * copied.hidden + sum(copied.nested["k"]) + len(flat["list"][1]), hasattr(copied, "pair"), copied, flat

    def run(call):
        config.__dict__.update(hidden=2, scale=1.0, nested={"k": [1, 2]}, pair=(3, 4))
        seen = []
        for change in (None, None, "hidden", "nested", "item"):
            if change == "hidden":
                config.hidden = 5
            elif change == "nested":
                config.nested = {"k": [7]}
            elif change == "item":
                config.nested["k"][0] = 9
            y, there, copied, flat = call(wick.ones(2))
            assert type(copied) is Mapped and copied is not config and copied.nested is not config.nested
            seen.append((y.tolist(), there, dict(vars(copied)), flat, dict(vars(config))))
        return seen

    compiled = Compiled(f, fullgraph=True)
    assert run(compiled) == run(f)


def test_partial_calls_are_made():
    def f(x):
        g = functools.partial(helper_of_two, x * 2, b=3)
        return g, x + g()

    compiled = Compiled(f, fullgraph=True)
    for k in range(3):
        g, y = compiled(wick.ones(2) * k)
        assert type(g) is functools.partial and g.keywords == {"b": 3} and g().tolist() == [2.0 * k + 3] * 2
        assert y.tolist() == [3.0 * k + 3] * 2


def helper_of_two(a, b):
    return a + b


def test_a_signature_is_asked_for():
    def f(x):
        limit = sys.getrecursionlimit()
        return x * len(inspect.signature(helper_of_two).parameters) + (limit > 10)

    compiled = Compiled(f, fullgraph=True)
    limit = sys.getrecursionlimit()
    try:
        for change in (0, 0, 1, 1):
            sys.setrecursionlimit(limit + change)
            assert compiled(wick.ones(2)).tolist() == [3.0, 3.0]
    finally:
        sys.setrecursionlimit(limit)


def test_cached_functions():
    """They run when they run in Python: once, and again when their cache is cleared."""
    calls = []
    rates = {"k": 2}

    @functools.lru_cache
    def nothing():
        calls.append("nothing")
        return rates["k"]

    @functools.lru_cache(maxsize=None)
    def something(kind, n):
        calls.append((kind, n))
        return {"kind": kind, "n": n * rates["k"]}

    def f(x, n):
        return x * nothing() + something("a", n)["n"] + nothing()

    def run(call):
        calls.clear()
        nothing.cache_clear()
        something.cache_clear()
        rates["k"] = 2
        seen = []
        for n in (1, 1, 3, 1):
            seen.append((call(wick.ones(2), n).tolist(), list(calls)))
        rates["k"] = 5
        seen.append(call(wick.ones(2), 1).tolist())
        nothing.cache_clear()
        seen.append((call(wick.ones(2), 1).tolist(), list(calls)))
        something.cache_clear()
        seen.append((call(wick.ones(2), 1).tolist(), list(calls)))
        return seen

    compiled, wanted = Compiled(f), run(f)
    assert run(compiled) == run(compiled) == wanted
    whole = Compiled(lambda x: x * nothing() + something("a", 2)["n"], fullgraph=True)
    assert [whole(wick.ones(2)).tolist() for _ in range(3)] == [[15.0, 15.0]] * 3


def test_cached_functions_of_many_arguments():
    """Arguments behind the first may be values and tuples of values, also by name."""
    asked = []

    @functools.lru_cache
    def recipe(pattern, kind, names, ndim):
        asked.append((pattern, kind, names, ndim))
        return {"kind": kind, "ndim": ndim}

    class Shaped:
        factor = 2

    @functools.lru_cache
    def sizes(shaped, shape, names):
        asked.append((shape, names))
        return [shaped.factor * n for n in shape], len(names)

    shaped = Shaped()

    def f(x, **axes):
        found = recipe("a b", "sum", names=tuple(axes), ndim=len(x.shape))
        wanted, count = sizes(shaped, x.shape, tuple(axes.items()))
        return x.sum() * found["ndim"] + sum(wanted) + count

    compiled = Compiled(f, fullgraph=True, dynamic=False)
    for x in (wick.ones(2, 3), wick.ones(2, 3), wick.ones(4, 3), wick.ones(2, 3)):
        assert compiled(x, p=1, q=2).item() == f(x, p=1, q=2).item()
        assert compiled(x, p=3).item() == f(x, p=3).item()
    before = len(asked)
    recipe.cache_clear()
    compiled(wick.ones(2, 3), p=3)
    assert asked[before:] == [("a b", "sum", ("p",), 2)]
    shaped.factor = 3
    sizes.cache_clear()
    assert compiled(wick.ones(2, 3), p=3).item() == f(wick.ones(2, 3), p=3).item()


def test_cached_functions_of_sizes_that_are_symbols():
    @functools.lru_cache
    def doubled(shape, names):
        return [2 * n for n in shape]

    compiled = Compiled(lambda x: x.sum() * sum(doubled(x.shape, ("a",))), dynamic=True, fullgraph=True)
    for n in (2, 3, 4, 2, 3):
        assert compiled(wick.ones(n, 3)).item() == 3 * n * (2 * n + 6)


def test_functions_that_are_marked_as_constant():
    calls = []

    def probe(name):
        calls.append(name)
        return len(name)

    probe._dynamo_marked_constant = True
    cached = functools.lru_cache(probe)
    compiled = Compiled(lambda x: x * probe("abc") + cached("de"), fullgraph=True)
    for _ in range(3):
        assert compiled(wick.ones(2)).tolist() == [5.0, 5.0]
    assert calls == ["abc", "de"]


class Computing(types.ModuleType):
    def __getattr__(self, name):
        if name == "rate":
            return self.base * 2
        raise AttributeError(name)


def test_modules_that_compute_attributes():
    space, plain = Computing("space"), types.ModuleType("plain")

    def f(x):
        return x * space.rate + getattr(plain, "more", 1), hasattr(space, "absent")

    def run(call):
        seen = []
        for k in range(6):
            if k == 0:
                space.base = 3
            elif k == 2:
                space.base = 4
            elif k == 3:
                space.rate = 0.5
            elif k == 4:
                plain.more = 7
            elif k == 5:
                space.absent = 1
            y, there = call(wick.ones(2))
            seen.append((y.tolist(), there))
        del space.rate, plain.more, space.absent
        return seen

    compiled = Compiled(f, fullgraph=True)
    assert run(compiled) == run(f)


def config(way):
    class Config(dict):
        __getattr__ = {"item": dict.__getitem__, "get": dict.get}[way]
        kind = "config"

    return Config


@pytest.mark.parametrize("way", ["item", "get"])
def test_items_as_attributes(way):
    """A dictionary whose __getattr__ is its __getitem__ or get: items are guarded, also those that are not there."""
    made = config(way)

    def f(x, c):
        if c.scale is not None and c.kind == "config":
            x = x * c.scale
        try:
            return x + (c.bias if c.bias is not None else 5)
        except KeyError:
            return x - 1

    compiled = wick.compile(f, fullgraph=True)
    x = wick.ones(2)
    for items in (
        {"scale": 2, "bias": 1},
        {"scale": 3, "bias": 1},
        {"scale": 3},
        {"scale": 3, "bias": 4, "other": 0},
    ) * 2:
        assert compiled(x, made(items)).tolist() == f(x, made(items)).tolist()


def test_a_getattr_of_other_c_code_is_a_break():
    class Counting:
        __getattr__ = functools.partial(int, "3")

    def f(x, c):
        return x * 2 + len(str(c.anything))

    class Named:
        __getattr__ = str.upper  # of no instance of str

    compiled = wick.compile(f)
    for c in (Counting(), Named()):
        for call in (f, compiled):
            with pytest.raises(TypeError):
                call(wick.ones(2), c)


class Fallback(nn.Module):
    """Asks Module.__getattr__ first."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(wick.ones(1) * 2)

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name != "also_scale":
                raise
            return self.scale

    def forward(self, x):
        return x * self.scale * self.also_scale + hasattr(self, "later")


def test_parts_that_a_module_asks_its_base_class_for():
    net = Fallback()
    compiled = wick.compile(net.forward, fullgraph=True)

    def check():
        assert wick.equal(compiled(x_()), net(x_()))

    check()
    check()
    assert compiled.captures == 1
    net.scale = nn.Parameter(wick.ones(1) * 5)
    check()
    net.later = nn.Parameter(wick.ones(1))
    check()
    del net.later
    check()


def test_parts_of_complex_tensors():
    compiled = wick.compile(lambda z: z.real * z.imag, fullgraph=True)
    for k in range(2):
        z = wick.complex(wick.ones(2) * 3, wick.ones(2) + k)
        assert wick.equal(compiled(z), z.real * z.imag)
    assert compiled.captures == 1
