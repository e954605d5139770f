"""Objects that a region has made and gives away: each replay makes them again, past what their classes do when they are
made and set, and with all that they consist of."""

import collections
import dataclasses
import typing

import pytest

import wick as torch


class Counted(tuple):
    """Takes its items one by one."""

    def __new__(cls, *items):
        return super().__new__(cls, items)


class Ends(tuple):
    def __new__(cls, first, last):
        return super().__new__(cls, (first, last, first))


class Named(collections.namedtuple("Named", "first second")):
    def __new__(cls, first, second=5):
        return super().__new__(cls, first * 2, second)


Long = collections.namedtuple("Long", "a b c d e f g h i")


class Plain(tuple):
    pass


class Slots:
    __slots__ = ("value", "unset", "__hidden")

    def __init__(self, value):
        self.value = value
        self.__hidden = 3

    def hidden(self):
        return self.__hidden, hasattr(self, "unset")


class MoreSlots(Slots):
    __slots__ = ("more",)


class SlotsAndAttributes:
    __slots__ = ("value", "__dict__")


class Keyed(dict):
    __slots__ = ("value",)

    def __setitem__(self, key, value):
        super().__setitem__(key, value * 2)


@dataclasses.dataclass(slots=True, frozen=True)
class Record:
    value: object
    count: int = 2


class Remembering:
    def __new__(cls, *arguments):
        made = super().__new__(cls)
        made.arguments = arguments
        return made


class Initialised(Remembering):
    def __init__(self, value):
        self.value = value


class NewDict(dict):
    def __new__(cls, key):
        made = super().__new__(cls)
        made.key = key
        return made

    def __init__(self, key):
        super().__init__({key: 1})


class Shadowed:
    """Its dictionary has a value that is not found by its name."""

    value = property(lambda self: 5)

    def __init__(self):
        self.__dict__["value"] = 1


def more_slots(x):
    made = MoreSlots(x)
    made.more = x + 1
    return made


def both(x):
    made = SlotsAndAttributes()
    made.value = x
    made.count = 3
    return made


def keyed(x):
    made = Keyed(a=1)
    made["b"] = x
    made.value = x * 3
    return made


def plain_with_attributes(x):
    made = Plain([x, 1])
    made.note = [x * 2]
    return made


CASES = {
    "a tuple that takes items": lambda x: Counted(x, 1),
    "an empty one": lambda x: (Counted(), x + 1),
    "a tuple that adds an item": lambda x: Ends(x, 2),
    "a named tuple that changes an item": lambda x: Named(x),
    "a named tuple of many": lambda x: Long(*range(8), x),
    "a tuple with attributes": plain_with_attributes,
    "a tuple of C with names": lambda x: torch.return_types.max((x, x + 1)),
    "slots": lambda x: Slots(x),
    "slots of two classes": more_slots,
    "slots beside a dictionary": both,
    "a dictionary with slots": keyed,
    "a dataclass with slots": lambda x: Record(x),
    "a __new__": lambda x: Remembering(x, 1),
    "__new__ and __init__": lambda x: Initialised(x),
    "a __new__ of a dictionary": lambda x: (NewDict("k"), x + 1),
    "an attribute behind a property": lambda x: (Shadowed(), x + 1),
}


def parts(o):
    """Everything that it consists of, comparable."""
    if isinstance(o, torch.Tensor):
        return o.tolist()
    found = [type(o)]
    if isinstance(o, (tuple, list)):
        found += [parts(item) for item in o]
    elif isinstance(o, dict):
        found += [(key, parts(value)) for key, value in o.items()]
    elif not hasattr(o, "__dict__") and not hasattr(o, "__slots__"):
        found += [o]
    for kind in type(o).__mro__:
        for name in getattr(kind, "__slots__", ()):
            name = f"_{kind.__name__}{name}" if name == "__hidden" else name
            if name != "__dict__" and hasattr(o, name):
                found.append((name, parts(getattr(o, name))))
    return [*found, *((name, parts(value)) for name, value in getattr(o, "__dict__", {}).items())]


@pytest.mark.parametrize("name", CASES)
def test_what_is_made_again(name):
    program = CASES[name]
    compiled = torch.compile(program)
    for k in range(3):
        x = torch.ones(2) * k
        assert parts(compiled(x)) == parts(program(x))
    assert compiled.captures == (0 if name == "an attribute behind a property" else 1)


def test_hidden_slots_and_unset_ones():
    compiled = torch.compile(lambda x: Slots(x))
    for _ in range(3):
        assert compiled(torch.ones(1)).hidden() == (3, False)


def test_a_class_with_a_type_parameter():
    class Holder(typing.Generic[typing.TypeVar("T")]):
        def __init__(self, value):
            self.value = value

    compiled = torch.compile(lambda x: Holder[int](x * 2))
    for _ in range(2):
        made = compiled(torch.ones(1))
        assert type(made) is Holder and made.value == 2 and made.__orig_class__ == Holder[int]


KEPT = []


class Holder:
    pass


def default_of_a_dictionary(x):
    o = Holder()
    o.table = collections.defaultdict(dict)
    KEPT.append(o)
    o.table["a"]["b"] = x * 2
    return x


def default_of_an_attribute(x):
    o = Holder()
    o.table = collections.defaultdict(list)
    KEPT.append(o)
    o.table["a"].append(x)
    o.table["a"].append(len(o.table["c"]))
    return x


def state_of_an_optimizer(x):
    o = Holder()
    weight = torch.nn.Parameter(torch.ones(2))
    o.table = torch.optim.SGD([weight], lr=0.1, momentum=0.9).state
    KEPT.append(o)
    o.table[weight]["momentum_buffer"] = x + 1
    return x


def optimizer(x):
    o = Holder()
    KEPT.append(o)
    weight = torch.nn.Parameter(torch.ones(2))
    o.made = torch.optim.Adam([weight])
    (weight * x).sum().backward()
    o.made.step()
    o.table = o.made.state
    return x


@pytest.mark.parametrize(
    "function", [default_of_a_dictionary, default_of_an_attribute, state_of_an_optimizer, optimizer]
)
def test_what_a_dictionary_gets_by_default_behind_its_being_seen(function):
    compiled, seen = torch.compile(function), []
    for call in (function, compiled, compiled, compiled):
        KEPT.clear()
        call(torch.ones(2))
        seen.append(str(KEPT[0].table))
    assert len(set(seen)) == 1 and "tensor" in seen[0]
