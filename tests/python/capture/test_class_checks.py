"""What a region asks of classes and functions from outside: protocols, what functools.wraps() copies, weak containers."""

import functools
import inspect
import typing
import weakref

import pytest

import wick as torch


class Point:
    __match_args__ = ("x", "y")

    def __init__(self, x, y):
        self.x, self.y = x, y


class Further(Point):
    pass


class Held:
    __match_args__ = ("tensor", "items")

    def __init__(self, tensor, items):
        self.tensor, self.items = tensor, items


class Slotted:
    __slots__ = ("a", "b")
    __match_args__ = ("a",)

    def __init__(self, **values):
        for name, value in values.items():
            setattr(self, name, value)


class Computed:
    __match_args__ = ("value",)

    @property
    def value(self):
        return 3


class Answering:
    __slots__ = ("a",)

    def __getattr__(self, name):
        return 7


@typing.runtime_checkable
class Scales(typing.Protocol):
    def scale(self): ...


@typing.runtime_checkable
class HasWidth(typing.Protocol):
    width: int


class Scaled:
    def scale(self):
        return 2


class Wide(Scaled):
    width = 3


class Empty:
    pass


def kinds(x, o):
    return x * (1 + isinstance(o, Scales) + 2 * isinstance(o, HasWidth) + 4 * isinstance(x, Scales))


@pytest.mark.parametrize("make", [Scaled, Wide, Empty, int, list])
def test_protocols(make):
    x = torch.ones(3)
    compiled = torch.compile(kinds, fullgraph=True)
    for _ in range(3):
        assert torch.equal(compiled(x, make()), kinds(x, make()))
    assert compiled.captures <= 2  # the first question of an abstract class is noted in the class


def test_what_a_protocol_asks_is_guarded():
    x, o = torch.ones(3), Empty()
    compiled = torch.compile(kinds, fullgraph=True)
    assert torch.equal(compiled(x, o), x)
    o.width = 3
    assert torch.equal(compiled(x, o), x * 3)
    o.scale = lambda: 2
    assert torch.equal(compiled(x, o), kinds(x, o))
    assert torch.equal(compiled(x, Wide()), x * 4)
    del o.width
    assert torch.equal(compiled(x, o), kinds(x, o))


def test_protocols_of_made_objects_and_of_the_library():
    def f(x):
        o = Empty()
        o.width = 3
        n = isinstance(o, HasWidth) + 2 * isinstance(Scaled(), Scales) + 4 * issubclass(Wide, Scales)
        return x * (n + 8 * isinstance(n, typing.SupportsIndex) + 16 * isinstance(o, typing.SupportsFloat))

    x = torch.ones(3)
    compiled = torch.compile(f, fullgraph=True)
    for _ in range(3):
        assert torch.equal(compiled(x), f(x))


def twice(x):
    return x * 2


def test_functions_from_outside_are_wrapped():
    def f(x, function):
        @functools.wraps(function)
        def inner(value):
            return function(value) + 1

        return inner(x), inner.__name__, inner.__dict__.get("mark")

    x = torch.ones(3)
    compiled = torch.compile(f, fullgraph=True)
    for _ in range(2):
        value, name, mark = compiled(x, twice)
        assert torch.equal(value, x * 3) and name == "twice" and mark is None

    def marked(value):
        return value * 4

    marked.mark = 5
    for mark in (5, 6):
        marked.mark = mark
        value, name, found = compiled(x, marked)
        assert torch.equal(value, x * 5) and name == "marked" and found == mark


def test_transforms_of_functions_from_outside():
    functions = [twice, lambda x: x.sin()]

    def f(x, i):
        return torch.vmap(functions[i])(x)

    x = torch.randn(3, 4)
    compiled = torch.compile(f, fullgraph=True)
    for i in (0, 1, 0, 1):
        assert torch.equal(compiled(x, i), functions[i](x))
    assert compiled.captures == 2


def test_one_capture_for_functions_that_are_made_again():
    def f(x, function):
        return functools.wraps(function)(lambda value: function(value))(x)

    def make():
        return lambda x: x + 1

    x = torch.ones(3)
    compiled = torch.compile(f, fullgraph=True)
    for _ in range(4):
        assert torch.equal(compiled(x, make()), x + 1)
    assert compiled.captures == 1


def matched(x, o):
    match o:
        case Point(0, y=y) | Point(y, 0):
            return x - y
        case Further(a, b):
            return x * a + b
        case Point(a, b, none=_) if a:
            return x
        case Point(a, b) if a > b:
            return x * 50
        case Held(torch.Tensor() as t, [a, *rest]):
            return x + t + a + len(rest)
        case Slotted(a):
            return x + a
        case Slotted(b=b):
            return x * b
        case Computed(value):
            return x + value
        case dict():
            return x + 3
    return x * 9


@pytest.mark.parametrize(
    "objects",
    [
        (Point(0, 4), Point(0, 4), Point(5, 0), Point(5, 1), Point(1, 5)),
        (Held(torch.ones(2), [1, 2]), Held(torch.ones(2) * 3, [1, 2]), Held(1, [2])),
        (Further(2, 3), Further(2, 3), Point(2, 3), Further(2, 0)),
        (Slotted(a=4), Slotted(b=4), Slotted(), Slotted(a=4, b=5)),
        (Computed(), Computed(), Slotted(a=1), 3, {}),
    ],
)
def test_class_patterns_on_objects_from_outside(objects):
    compiled = torch.compile(matched)
    for o in objects:
        assert torch.equal(compiled(torch.ones(2), o), matched(torch.ones(2), o))


def test_a_class_pattern_is_one_graph():
    compiled = torch.compile(matched, fullgraph=True)
    for k in range(3):
        assert compiled(torch.ones(2) * k, Point(5, 1)).tolist() == [50.0 * k] * 2
    assert compiled.captures == 1


def asked(o):
    return hasattr(o, "a"), getattr(o, "a", 9)


def tried(o):
    try:
        return o.a
    except AttributeError:
        return "none"


def deleted(o):
    if hasattr(o, "a"):
        del o.a
    try:
        del o.a
    except AttributeError:
        o.a = 3
    before = o.a
    del o.a
    return before, hasattr(o, "a")


@pytest.mark.parametrize(
    "program, kind", [(asked, Slotted), (tried, Slotted), (deleted, Slotted), (asked, Answering), (tried, Answering)]
)
def test_whether_a_slot_is_empty_is_guarded(program, kind):
    def make(full):
        o = kind()
        if full:
            o.a = 4
        return o

    compiled = torch.compile(lambda x, o: (x + 1, program(o)), fullgraph=kind is Slotted)
    for full in (0, 0, 1, 1, 0, 1):
        assert compiled(torch.ones(2), make(full))[1] == program(make(full))


def test_a_weak_set_is_looked_at_and_gone_over():
    one, other = Wide(), Wide()
    members = weakref.WeakSet([one])

    def f(x, o):
        return x * len(members) * (1 + (o in members)) * sum(member.width for member in members)

    x = torch.ones(3)
    compiled = torch.compile(f, fullgraph=True)
    for o in (one, other, one):
        assert torch.equal(compiled(x, o), f(x, o))
    members.add(other)
    assert torch.equal(compiled(x, other), f(x, other))
    members.discard(one)
    assert torch.equal(compiled(x, one), f(x, one))


def test_what_a_weak_set_is_asked_for_is_guarded():
    objects = [Wide(), Wide(), Empty()]
    members = weakref.WeakSet(objects[:1])

    def f(x, o):
        return x * (1 + (o in members))

    x = torch.ones(3)
    compiled = torch.compile(f, fullgraph=True)
    for o in objects * 2:
        assert torch.equal(compiled(x, o), f(x, o))
    alive = weakref.ref(objects[0])
    del o, objects
    assert alive() is None and len(members) == 0


def test_static_attributes_are_guarded():
    def f(x, o):
        return x * (1 + (inspect.getattr_static(o, "width", None) is not None))

    x, o = torch.ones(3), Empty()
    compiled = torch.compile(f, fullgraph=True)
    for other in (o, Wide(), x, [], o):
        assert torch.equal(compiled(x, other), f(x, other))
    o.width = 4
    assert torch.equal(compiled(x, o), x * 2)
    x.width = 5
    assert torch.equal(compiled(x, x), x * 2)


def test_class_patterns_of_builtin_classes_and_of_others():
    def f(x, subject):
        match subject:
            case Point(x=1):
                return x * 2
            case float(b) | bool(b):
                return x + b
            case str():
                return x * 3
            case {"k": list(items)}:
                return x * len(items)
            case [int(a), *_]:
                return x * a
            case list() | dict():
                return x * 4
            case Held(value=value):
                return x * value
        return x * 5

    held = Held.__new__(Held)
    held.value = 6
    subjects = [Point(1, 2), Point(2, 2), 2.5, "text", {"k": [1, 2]}, {"k": 3}, [7, "a"], [], {}, held, None, {1, 2}]
    compiled = torch.compile(f, fullgraph=True)
    for subject in [*subjects, *subjects]:
        assert torch.equal(compiled(torch.ones(2), subject), f(torch.ones(2), subject)), subject


def test_functions_are_bound_by_their_own_method():
    def scaled(self, x):
        return x * self

    class Several:
        @functools.singledispatchmethod
        def go(self, value, x):
            return x * 0

        @go.register
        def _(self, value: int, x):
            return x * value

        @go.register
        def _(self, value: str, x):
            return x + len(value)

    several = Several()

    def f(x, value):
        bound = scaled.__get__(len(str(value)))
        return bound(x) + several.go(value, x), bound

    compiled = torch.compile(f)  # since 3.13 methods are found in a dictionary of weak references
    for value in (2, "ab", 2.5, 3, "abc", 2):
        for _ in range(2):
            (y, bound), (expected, plain) = compiled(torch.ones(2), value), f(torch.ones(2), value)
            assert torch.equal(y, expected)
            assert bound.__func__ is scaled and bound.__self__ == plain.__self__
