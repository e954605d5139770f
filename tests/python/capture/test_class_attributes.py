"""Attributes of classes that a region sets, and classes that change between calls: effects in order, and guards on what
was looked at."""

import abc
import enum

import pytest

import wick
from wick import nn


def fresh():
    """Classes of their own for each run."""

    class Meta(type):
        level = 2

        def __setattr__(cls, name, value):
            super().__setattr__(name, value * 2 if name == "doubled" else value)

        def __getattr__(cls, name):
            if name.startswith("computed"):
                return len(name)
            raise AttributeError(name)

        @property
        def rate(cls):
            return cls.kept_rate

        @rate.setter
        def rate(cls, value):
            cls.kept_rate = value + 1

        @rate.deleter
        def rate(cls):
            cls.kept_rate = 0

    class Way(type):
        def __getattribute__(cls, name):
            return super().__getattribute__(name) if name != "asked" else 7

    class Base:
        count = 0
        best = None
        log = ()

        def seen(self):
            type(self).count += 1
            return self.count

        @classmethod
        def noted(cls, what):
            cls.log += (what,)
            return len(cls.log)

    class Space:
        pass

    Space.Meta = Meta("Meta", (), {"kept_rate": 3})
    Space.Way = Way("Way", (), {"value": 3})
    Space.Base = Base
    Space.Derived = type("Derived", (Base,), {"__doc__": None})
    Space.Slotted = type("Slotted", (Base,), {"__slots__": ("kept",)})
    Space.Abstract = abc.ABCMeta("Abstract", (), {"count": 1})
    return Space


def counts(x, s):
    s.Base.count += 1
    return x * s.Base.count


def counts_of_self(x, s):
    made, other = s.Derived(), s.Base()
    return x * made.seen() + made.seen() * other.seen()


def class_methods(x, s):
    return x * s.Derived.noted("a") + s.Base.noted(s.Derived.log)


def set_and_deleted(x, s):
    setattr(s.Base, "late", 3)  # noqa: B010
    y = x * s.Base.late * s.Derived().late
    del s.Base.late
    return y, hasattr(s.Derived, "late")


def of_its_own(x, s):
    before = s.Derived.count
    s.Derived.count = 5
    y = x * s.Derived.count + s.Base.count
    del s.Derived.count
    return y + s.Derived.count + before


def tensors(x, s):
    best = s.Base.best
    s.Base.best = x.sum() if best is None else wick.maximum(best, x.sum())
    return x + s.Base.best


def containers(x, s):
    s.Base.table = {"x": x}
    s.Base.table["y"] = x * 2
    s.Derived.table["x"] = 1
    return x + s.Base.table["y"] * len(s.Derived().table)


def functions(x, s):
    s.Base.scaled = scaled
    return s.Derived().scaled(x)


def of_a_metaclass(x, s):
    s.Meta.doubled = 4
    s.Meta.rate = s.Meta.level
    y = x * s.Meta.doubled + s.Meta.rate * s.Meta.computed
    del s.Meta.rate
    return y + s.Meta.kept_rate


def found_by_a_metaclass(x, s):
    s.Way.value += 1
    return x * s.Way.value * s.Way.asked


def slotted(x, s):
    made = s.Slotted()
    made.kept = x
    return made.kept * made.seen()


def abstract(x, s):
    s.Abstract.count += 1
    return x * s.Abstract.count


def caught(x, s):
    said = []
    for wrong in (
        lambda: setattr(int, "count", 3),
        lambda: delattr(s.Base, "nothing"),
        lambda: delattr(s.Derived, "count"),
    ):
        try:
            wrong()
        except (AttributeError, TypeError) as error:
            said.append((type(error).__name__, str(error)))
    return x + len(said), said


def raising(x, s):
    s.Base.best = x * 2
    if s.Base.best.shape[0] == 2:
        raise ValueError("two")


def scaled(self, x):
    return x * 3


PROGRAMS = [counts, counts_of_self, class_methods, set_and_deleted, of_its_own, tensors, containers, functions]
PROGRAMS += [of_a_metaclass, found_by_a_metaclass, slotted, abstract, caught, raising]


DATA = (int, float, tuple, dict, wick.Tensor)


def shown(value):
    if isinstance(value, wick.Tensor):
        return value.tolist()
    if isinstance(value, (tuple, list)):
        return [shown(v) for v in value]
    return {k: shown(v) for k, v in value.items()} if isinstance(value, dict) else value


def left_behind(s):
    return [
        {name: shown(value) for name, value in vars(c).items() if isinstance(value, DATA) and not name.startswith("__")}
        for c in (s.Base, s.Derived, s.Meta, s.Way, s.Slotted, s.Abstract)
    ]


def run(function, s):
    seen = []
    for turn in range(6):
        try:
            result = shown(function(wick.tensor([1.0, -2.0]) + turn // 2, s))
        except ValueError as error:
            result = str(error)
        seen.append((result, left_behind(s)))
    return seen


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_what_a_region_sets_is_an_effect(function):
    expected = run(function, fresh())
    compiled = wick.compile(function, fullgraph=True)
    assert repr(run(compiled, fresh())) == repr(expected)
    assert not compiled.breaks


def test_a_counter_is_a_number_that_changes():
    s = fresh()
    compiled = wick.compile(counts, fullgraph=True)
    for turn in range(12):
        assert compiled(wick.ones(1), s).item() == turn + 1
    assert s.Base.count == 12 and compiled.captures == 3  # 0 and 1 are numbers of their own


def test_what_was_not_looked_at_may_change():
    s = fresh()
    compiled = wick.compile(
        lambda x: x * s.Derived().seen.__func__.__code__.co_argcount + len(s.Base.log), fullgraph=True
    )
    for turn in range(12):
        s.Base.count += 1
        s.Base.best = wick.ones(turn)
        assert compiled(wick.ones(1)).item() == 1.0
    assert compiled.captures == 2  # the classes change, and are looked at by name from then on
    s.Base.log = (1, 2)
    assert compiled(wick.ones(1)).item() == 3.0


class Level:
    level = 2
    other = 5

    def scaled(self, x):
        return x * self.level


class Further(Level):
    pass


class Around:
    """What it is given is set in a class, and is gone again behind the block."""

    def __init__(self, owner, **attributes):
        self.owner, self.attributes = owner, attributes

    def __enter__(self):
        self.before = dict(vars(self.owner))
        for name, value in self.attributes.items():
            setattr(self.owner, name, value)

    def __exit__(self, *_):
        for name in self.attributes:
            if name in self.before:
                setattr(self.owner, name, self.before[name])
            else:
                delattr(self.owner, name)


CHANGES = [
    (Level, {"level": 3}),
    (Level, {"level": 2.0}),
    (Level, {"level": True}),
    (Level, {"level": property(lambda self: 11)}),
    (Further, {"level": 7}),
    (Further, {"level": property(lambda self: 13)}),
    (Further, {"scaled": lambda self, x: x - 1}),
    (Level, {"scaled": lambda self, x: x - 2}),
    (Further, {"__getattribute__": lambda self, name: object.__getattribute__(self, name) if name == "scaled" else 17}),
    (Level, {"other": 9}),
    (Level, {"own": property(lambda self: 19)}),
]


@pytest.mark.parametrize("writes", [False, True])
def test_what_was_looked_at_is_seen_to_change(writes):
    def f(x, made):
        if writes:
            Level.other += 1
        return made.scaled(x) + made.own

    made = Further()
    made.own = 1
    compiled = wick.compile(f)
    for _ in range(2):
        for owner, attributes in CHANGES:
            for _ in range(2):
                with Around(owner, **attributes):
                    assert wick.equal(compiled(wick.ones(2), made), f(wick.ones(2), made)), attributes
                assert wick.equal(compiled(wick.ones(2), made), f(wick.ones(2), made)), attributes


def test_what_a_metaclass_has_is_guarded():
    class Meta(type):
        level = 2

    class A(metaclass=Meta):
        pass

    compiled = wick.compile(lambda x: x * A.level, fullgraph=True)
    for level in (2, 3, 4, 5):
        Meta.level = level
        assert compiled(wick.ones(1)).item() == level
    A.level = 9
    assert compiled(wick.ones(1)).item() == 9.0


def test_members_of_an_enum_cannot_be_set():
    class Color(enum.Enum):
        RED = 1

    def f(x):
        try:
            Color.RED = 3
        except AttributeError as error:
            return x * len(str(error))

    compiled = wick.compile(f, fullgraph=True)
    for _ in range(3):
        assert wick.equal(compiled(wick.ones(1)), f(wick.ones(1)))


def test_classes_of_modules():
    class Counted(nn.Module):
        calls = 0
        last = None

        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(2, 2)

        def forward(self, x):
            Counted.calls += 1
            type(self).last = self.inner(x)
            return Counted.last * self.calls

    net = Counted()
    compiled = wick.compile(net, fullgraph=True)
    for turn in range(6):
        x = wick.ones(1, 2) + turn
        assert wick.allclose(compiled(x), net.inner(x) * (turn + 1))
        assert Counted.calls == turn + 1 and wick.allclose(Counted.last, net.inner(x))
        Counted.last.sum().backward()


def test_what_is_replaced_ends_then():
    log = []

    class Loud:
        def __del__(self):
            log.append("end")

    class Holder:
        held = None

    def f(x):
        Holder.held = None
        log.append("behind")
        return x + 1

    compiled = wick.compile(f)
    for _ in range(4):
        log.clear()
        Holder.held = Loud()
        compiled(wick.ones(1))
        assert log == ["end", "behind"]
        log.clear()
        compiled(wick.ones(1))
        assert log == ["behind"]


def test_the_guard_says_which_class():
    s = fresh()
    compiled = wick.compile(counts)
    for _ in range(2):
        compiled(wick.ones(1), s)
    assert any("vars(Base)['count'] == 0" in text for *_, text in compiled.recompiles())


def test_what_a_class_held_ends_when_the_program_lets_go_of_it():
    log = []

    class Loud:
        def __init__(self, number):
            self.number = number

        def __del__(self):
            log.append(self.number)

    class Holder:
        held = None

    def f(x):
        return x * (1 if Holder.held is None else Holder.held.number + 1)

    compiled = wick.compile(f)
    for number in range(5):
        Holder.held = Loud(number)
        assert compiled(wick.ones(1)).item() == number + 1
        log.append("held")
        Holder.held = None
        assert log == ["held", number]
        log.clear()
