"""Classes that a region makes: with their instances they live in it, and are made by no replay."""

import abc
import collections
import collections.abc
import dataclasses
import enum
import types
import typing

import pytest

import wick
from wick import nn


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


def enums(x):
    Color = enum.Enum("Color", "RED GREEN", start=3)
    Level = enum.IntEnum("Level", {"LOW": 3, "HIGH": 7})
    Kind = enum.Enum("Kind", [("ADD", "add"), ("MUL", "mul")], type=str)
    Way = enum.Flag("Way", ["UP", "DOWN", "LEFT"])
    both = Way.UP | Way.LEFT
    y = x * Color.GREEN.value + Level.HIGH * (Level(3) is Level.LOW) + len(Color)
    names = [color.name for color in Color] + [Kind("mul").name]
    return y * both.value * (Way.UP in both) * len("".join(names)) + (Kind.ADD == "add")


def named(x):
    Point = typing.NamedTuple("Point", [("first", wick.Tensor), ("second", int)])
    Sizes = typing.TypedDict("Sizes", {"width": int})
    Number = typing.NewType("Number", int)
    point = Point(x, Number(3))
    return point.first * point.second + point._replace(second=5).second * Sizes(width=2)["width"]


def made_by_functions(x):
    Pair = dataclasses.make_dataclass(
        "Pair", [("first", wick.Tensor), ("second", int, dataclasses.field(default=4))], bases=(Base,), frozen=True
    )
    Further = types.new_class("Further", (Base,), {}, lambda names: names.update(level=3))
    pair = Pair(x)
    space = types.SimpleNamespace(a=x, b=2)
    space.c = len(dataclasses.fields(pair))
    return pair.first * pair.second * space.c * space.b + Further().f(x) + dataclasses.replace(pair, second=5).f(x)


CLASSES = [plain, closure, inherited, special_methods, dataclass, named_tuple, made_by_type, exception, module]
CLASSES += [enums, named, made_by_functions]


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

    def gives_member(x):
        Color = enum.Enum("Color", "RED GREEN")
        return Color.GREEN, x * Color.GREEN.value

    for _ in range(2):
        first, second, third = wick.compile(gives_class), wick.compile(gives_instance), wick.compile(keeps_it)
        fourth = wick.compile(gives_member)
        classes, kept = [], []
        for _ in range(5):
            y, made = first(wick.ones(2))
            assert y.tolist() == [3.0, 3.0]
            thing = second(wick.ones(2))
            assert thing.value.tolist() == [2.0, 2.0]
            assert third(wick.ones(2), kept).tolist() == [2.0, 2.0]
            member, y = fourth(wick.ones(2))
            assert y.tolist() == [2.0, 2.0] and member.name == "GREEN" and type(member)(2) is member
            classes += [made, type(thing), type(member)]
        assert len({*classes, *kept}) == 20


def test_registries_are_told_of_each_class():
    class Registry:
        names = []

        def __init_subclass__(cls, **_):
            cls.names.append(cls.__name__)

    def f(x):
        class A(Registry):
            pass

        return x + len(A.names)

    compiled = wick.compile(f, fullgraph=True)
    assert [compiled(wick.ones(1)).item() for _ in range(4)] == [2.0, 3.0, 4.0, 5.0]


class Meta(type):
    def __new__(mcs, name, bases, namespace, **keywords):
        made = super().__new__(mcs, name, bases, namespace)
        made.keywords = keywords
        return made

    def __init__(cls, name, bases, namespace, **keywords):
        super().__init__(name, bases, namespace)

    def __call__(cls, *args):
        made = super().__call__(*args)
        made.extra = 2
        return made

    def __getitem__(cls, item):
        return item * 2

    @property
    def doubled(cls):
        return cls.keywords["k"] * 2


def metaclass(x):
    class A(metaclass=Meta, k=3):
        def __init__(self, value):
            self.value = value

    class B(A, k=4):
        pass

    return A(x).value * A(1).extra * A.keywords["k"] + B.doubled * B[x] + B(x).value


def metaclass_from_outside(x):
    return Outside(x).value * Outside(x).extra + Outside[x] * Outside.doubled


class Outside(metaclass=Meta, k=5):
    def __init__(self, value):
        self.value = value


class Told:
    def __init_subclass__(cls, k=1, **rest):
        super().__init_subclass__(**rest)
        cls.k = k


def keywords(x):
    class Base(Told, k=3):
        def __init_subclass__(cls, more=0, **rest):
            super().__init_subclass__(**rest)
            cls.more = more

    class A(Base, k=4, more=5):
        pass

    return x * Base.k + A.k * A().more


def told_in_told(x):
    class Base:
        def __init_subclass__(cls):
            if cls.__name__ == "A":

                class Inner(Base):
                    weight = 7

                cls.inner = Inner

    class A(Base):
        pass

    return x * A.inner.weight


def wrong_keyword(x):
    try:

        class A:
            pass

        class B(A, k=3):
            pass
    except TypeError as error:
        return x + len(str(error))


def set_name(x):
    class Attribute:
        def __set_name__(self, owner, name):
            self.name = "_" + name
            owner.names = [*getattr(owner, "names", ()), name]

        def __get__(self, o, owner=None):
            return 5 if o is None else getattr(o, self.name, 3)

        def __set__(self, o, value):
            setattr(o, self.name, value * 2)

    class A:
        first, second = Attribute(), Attribute()

    a = A()
    before = a.first
    a.first = x
    return a.first + before + A.second + len(A.names)


def abstract(x):
    class A(abc.ABC):
        @abc.abstractmethod
        def f(self, x): ...

    class B(A):
        def f(self, x):
            return x * 2

    class C(AbstractOutside):
        def f(self, x):
            return x * 3

    try:
        A()
    except TypeError:
        x = x + 1
    return (
        B().f(x)
        + C().f(x)
        + isinstance(B(), A)
        + issubclass(B, A)
        + isinstance(3, A)
        + isinstance(C(), AbstractOutside)
    )


class AbstractOutside(abc.ABC):
    @abc.abstractmethod
    def f(self, x): ...


def abstract_of_the_library(x):
    class S(collections.abc.Sequence):
        def __init__(self, items):
            self.items = items

        def __len__(self):
            return len(self.items)

        def __getitem__(self, i):
            return self.items[i]

    s = S([1, 2, 3])
    return x * sum(s) + s.index(2) + (3 in s) + isinstance(s, collections.abc.Iterable)


@pytest.mark.parametrize(
    "f",
    [
        metaclass,
        metaclass_from_outside,
        keywords,
        told_in_told,
        wrong_keyword,
        set_name,
        abstract,
        abstract_of_the_library,
    ],
    ids=lambda f: f.__name__,
)
def test_classes_whose_making_runs_code(f):
    compiled = wick.compile(f, fullgraph=True)
    for turn in range(3):
        x = wick.ones(2) + turn
        assert compiled(x).tolist() == f(x).tolist()
    assert compiled.captures == 1


def test_such_a_class_that_is_seen_outside_is_made_in_each_call():
    def f(x):
        class A(metaclass=Meta, k=3):
            pass

        class B(Told, k=x.shape[0]):
            pass

        return x + B.k, A, B

    compiled = wick.compile(f)
    results = [compiled(wick.ones(2)) for _ in range(3)]
    assert len({kind for result in results for kind in result[1:]}) == 6
    assert all(a.keywords == {"k": 3} and b.k == 2 and y.tolist() == [3.0, 3.0] for y, a, b in results)


def test_code_that_gets_another_class_first():
    class Other:
        pass

    class Base:
        def __init_subclass__(cls):
            cls.factor = Base.factor_of(Other)

        @staticmethod
        def factor_of(kind):
            return getattr(kind, "factor", 1)

    def f(x):
        class A(Base):
            pass

        return x * A.factor

    compiled = wick.compile(f)
    for Other.factor in (2, 3, 4):
        assert compiled(wick.ones(2)).tolist() == [Other.factor] * 2


def test_containers_in_a_class_hold_something_else_in_the_next_call():
    class Outer:
        items, table, kinds, nested = [], {}, set(), {"a": []}

    class Inner(Outer):
        pass

    def changes(x):
        Inner.items.append(1)
        Outer.table[len(Outer.table)] = 2
        Outer.kinds.add(len(Outer.kinds))
        return x + len(Outer.items) + sum(Inner.table.values()) + len(Inner.kinds)

    def looks(x):
        o = Inner()
        return x + len(o.items) + sum(o.table.values()) + (1 in o.kinds) + len(Outer.nested["a"]) + sum(Inner.items)

    first, second = wick.compile(changes, fullgraph=True), wick.compile(looks, fullgraph=True)
    for turn in range(1, 4):
        assert first(wick.ones(1)).item() == 1 + turn + 2 * turn + turn
        Outer.nested["a"].append(3)
        assert second(wick.ones(1)).item() == looks(wick.ones(1)).item()
    assert second(wick.ones(1)).item() == looks(wick.ones(1)).item() and second.captures == 3
