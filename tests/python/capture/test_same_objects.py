"""Two arguments that are one object: what is done to one is seen in the other, also where they were two when the function
was captured, and the other way round."""

import collections
import dataclasses

import pytest

import wick as torch


@dataclasses.dataclass
class Counter:
    count: int = 0
    seen: list = dataclasses.field(default_factory=list)


class Slotted:
    __slots__ = ("count",)

    def __init__(self):
        self.count = 0


def counting():
    n = 0

    def count():
        nonlocal n
        n += 1
        return n

    return count


def leaf():
    return torch.ones(1, requires_grad=True)


def counted(a, b, x):
    a.count += 1
    b.count += 1
    return a.count


def attribute_deleted(a, b, x):
    del a.count
    return "count" in b.__dict__


def gradient_set(a, b, x):
    a.grad = x
    return b.grad is None


def data_set(a, b, x):
    a.data = a.data * 2 + 1
    return (b * 2).tolist()


def tagged(a, b, x):
    a.tag = 1
    return getattr(b, "tag", 0)


def differentiated(a, b, x):
    (a * x).sum().backward()
    return b.grad is None


PROGRAMS = {
    "append": (list, lambda a, b, x: (a.append(x), len(b))[1]),
    "last item": (list, lambda a, b, x: (a.append(1), b.append(2), a[-1])[2]),
    "slice": (list, lambda a, b, x: (a.__setitem__(slice(None), [1, 2]), sum(b))[1]),
    "items of items": (lambda: [[]], lambda a, b, x: (a[0].append(1), len(b[0]))[1]),
    "update": (dict, lambda a, b, x: (a.update(k=1), dict(b))[1]),
    "setdefault": (dict, lambda a, b, x: (a.setdefault("k", []).append(1), b.get("k"))[1]),
    "set": (set, lambda a, b, x: (a.add(1), 1 in b)[1]),
    "deque": (collections.deque, lambda a, b, x: (a.append(1), len(b))[1]),
    "closure": (counting, lambda a, b, x: (a(), b())),
    "attribute": (Counter, counted),
    "slot": (Slotted, counted),
    "attribute that is deleted": (Counter, attribute_deleted),
    "list of an attribute": (Counter, lambda a, b, x: (a.seen.append(1), len(b.seen))[1]),
    "gradient": (leaf, gradient_set),
    "data": (lambda: torch.ones(1), data_set),
    "attribute of a tensor": (leaf, tagged),
    "backward": (leaf, differentiated),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("first", ["one", "two"])
def test_what_is_done_to_one_is_seen_in_the_other(name, first):
    make, program = PROGRAMS[name]
    compiled = torch.compile(lambda a, b, x: (program(a, b, x), x + 1))
    captures = []
    for turn in range(6):
        is_one = (turn % 2 == 0) == (first == "one")
        (a, other), (c, another) = (make(), make()), (make(), make())
        b, d = (a, c) if is_one else (other, another)
        assert compiled(a, b, torch.ones(1))[0] == program(c, d, torch.ones(1)), f"turn {turn}"
        captures.append(compiled.captures)
    assert captures[3] == captures[-1]


def test_many_objects_that_are_changed():
    """Which of a thousand lists are the same is too much to ask: such a function runs as it is."""

    def program(lists, x):
        for l in lists:  # noqa: E741
            l.append(x + len(l))
        return [len(l) for l in lists]  # noqa: E741

    compiled = torch.compile(program)
    for _ in range(3):
        lists = [[] for _ in range(200)]
        assert compiled([*lists, lists[0]], torch.ones(1))[-1] == 2
        assert compiled([*lists, []], torch.ones(1))[:2] == [3, 2]


CONTAINERS = {
    "set": lambda o: {o},
    "frozen set": lambda o: frozenset([o]),
    "keys": lambda o: {o: 1},
    "values": lambda o: {1: o},
    "tuple": lambda o: (o,),
    "deque": lambda o: collections.deque([o]),
}


@pytest.mark.parametrize("name", CONTAINERS)
@pytest.mark.parametrize("first", ["in it", "beside it"])
def test_an_argument_that_is_in_a_container(name, first):
    """The same objects in each call, so that what is guarded of the container holds."""

    def program(held, o):
        o.count += 10
        return [x.count for x in (held.values() if name == "values" else held)]

    compiled = torch.compile(lambda held, o, x: (program(held, o), x + 1))
    inside, beside = Slotted(), Slotted()
    for turn in range(6):
        is_in = (turn % 2 == 0) == (first == "in it")
        given = CONTAINERS[name](inside), inside if is_in else beside
        inside.count = beside.count = 0
        assert compiled(*given, torch.ones(1))[0] == ([10] if is_in else [0]), f"turn {turn}"
