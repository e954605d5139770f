"""What a region asks of classes and functions from outside: protocols, what functools.wraps() copies, weak containers."""

import functools
import inspect
import typing
import weakref

import pytest

import wick as torch


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
