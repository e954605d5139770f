"""Classes that a region makes: with their instances they live in it, and are made by no replay."""

import collections
import dataclasses
import typing

import pytest

import wick
from wick import nn
from wick._dynamo.exc import Unsupported


def plain(x):
    class A:
        scale = 2

        def __init__(self, value):
            self.value = value

        def scaled(self):
            return self.value * self.scale

        @property
        def doubled(self):
            return self.scaled() * 2

        @classmethod
        def of(cls, value):
            return cls(value + 1)

        @staticmethod
        def three():
            return 3

    A.scale = 4
    return A.of(x).doubled * A.three() + A(x).scaled()


def closure(x):
    factor = 3

    class A:
        scale = factor
        shifted = x + 1
        items = [n * factor for n in (scale, 2)]

        def __call__(self, y):
            return y * factor * self.scale + self.shifted * sum(self.items)

    return A()(x)


class Base:
    level = 1
    log = []

    def f(self, x):
        return x * self.level

    def note(self, what):
        self.log.append(what)


def inherited(x):
    class A(Base):
        level = 5

        def f(self, x):
            return super().f(x) + super(A, self).level

    class B(A):
        def f(self, x):
            return super().f(x) * 2

    made = B()
    made.note("f")
    return made.f(x)


def special_methods(x):
    class A:
        def __init__(self, n):
            self.n = n

        def __eq__(self, other):
            return self.n == other.n

        def __hash__(self):
            return self.n

        def __len__(self):
            return self.n

        def __iter__(self):
            yield from range(self.n)

        def __getitem__(self, i):
            return i * 2

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return True

        def __getattr__(self, name):
            return len(name)

    with A(3) as a:
        raise ValueError
    return x * len(a) * sum(a) * a[4] * a.five * len({A(1), A(1)}) * (A(2) == A(2)) * isinstance(a, A)


def dataclass(x):
    @dataclasses.dataclass
    class Pair:
        first: wick.Tensor
        second: int = 2
        rest: list = dataclasses.field(default_factory=list)

    @dataclasses.dataclass(frozen=True, order=True)
    class Point:
        a: int
        b: int = 3

    pair = Pair(x)
    pair.rest.append(4)
    return pair.first * pair.second * len(pair.rest) * (Point(1) < Point(2)) * dataclasses.replace(Point(1), b=7).b


def named_tuple(x):
    class Pair(typing.NamedTuple):
        first: wick.Tensor
        second: int = 2

        def product(self):
            return self.first * self.second

    made = collections.namedtuple("Made", "a b")
    a, b = made(x, 5)
    return Pair(x)._replace(second=3).product() * b + a


def made_by_type(x):
    A = type("A", (Base,), {"level": 3, "g": lambda self, y: self.f(y) + 1})
    return A().g(x)


def exception(x):
    class Failed(Exception):
        code = 7

    try:
        raise Failed("no")
    except Failed as error:
        return x * error.code * len(error.args)


def module(x):
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(wick.full((3,), 2.0))

        def forward(self, y):
            return y * self.weight

    return nn.Sequential(Scale(), nn.ReLU())(x).detach()


CLASSES = [plain, closure, inherited, special_methods, dataclass, named_tuple, made_by_type, exception, module]


@pytest.mark.parametrize("function", CLASSES, ids=lambda f: f.__name__)
def test_a_class_is_made_in_one_graph(function):
    compiled = wick.compile(function, fullgraph=True)
    for turn in range(4):
        x = wick.tensor([1.0, -2.0, 3.0]) + turn // 2
        Base.log.clear()
        expected, log = function(x), [*Base.log]
        Base.log.clear()
        assert wick.equal(compiled(x), expected) and Base.log == log
    assert len(compiled.report()) == 1


def test_what_the_body_reads_is_guarded():
    factor = 2

    @wick.compile
    def f(x, table):
        class A(Base):
            scale = factor
            step = table["step"]

        return x * A.scale * A.step * A.level

    for factor, step, level in [(2, 3, 1), (2, 3, 1), (5, 3, 1), (5, 4, 1), (5, 4, 6), (2, 3, 1)]:
        Base.level = level
        assert f(wick.ones(1), {"step": step}).item() == factor * step * level


def test_what_is_seen_outside_is_another_one_each_time():
    def gives_class(x):
        class A:
            value = 3

        return x * A.value, A

    def gives_instance(x):
        class A:
            def __init__(self):
                self.value = x * 2

        return A()

    def keeps_it(x, kept):
        class A:
            pass

        kept.append(A)
        return x + 1

    for _ in range(2):
        first, second, third = wick.compile(gives_class), wick.compile(gives_instance), wick.compile(keeps_it)
        classes, kept = [], []
        for _ in range(5):
            y, made = first(wick.ones(2))
            assert y.tolist() == [3.0, 3.0]
            thing = second(wick.ones(2))
            assert thing.value.tolist() == [2.0, 2.0]
            assert third(wick.ones(2), kept).tolist() == [2.0, 2.0]
            classes += [made, type(thing)]
        assert len({*classes, *kept}) == 15


def test_registries_are_told_of_each_class():
    class Registry:
        names = []

        def __init_subclass__(cls, **_):
            cls.names.append(cls.__name__)

    def f(x):
        class A(Registry):
            pass

        return x + len(A.names)

    with pytest.raises(Unsupported):
        wick.compile(f, fullgraph=True)(wick.ones(1))
    compiled = wick.compile(f)
    Registry.names.clear()
    assert [compiled(wick.ones(1)).item() for _ in range(4)] == [2.0, 3.0, 4.0, 5.0]
