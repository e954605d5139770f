"""Numbers in lists, tuples and dictionaries from outside that are another one in each call: inputs of the graph, also where
a loop or an unpacking takes them, or one container lies in another. What C code looks at stays a constant."""

import pytest

import wick as torch


def item(x, some):
    return x * some[0][0]


def item_of_dict(x, some):
    return x * some[0]["a"][1]


def unpacked(x, some):
    (a, b), c = some
    return x * a + b - c


def unpacked_with_a_rest(x, some):
    a, *rest = some
    return x * a + rest[0]


def loop(x, some):
    for a in some:
        x = x * a + 1
    return x


def loop_with_an_end(x, some):
    for k, a in enumerate(some):
        if k == 1:
            break
        x = x * a
    for a in some:
        x = x + a
        break
    else:
        x = x * 5
    return x


def loops(x, some):
    for row in some:
        for a in row:
            x = x + a
    return x


def generated(x, some):
    return sum(x * a for a in some)


def taken_one_by_one(x, some):
    source = iter(some)
    return x * next(source) + next(source), list(source)


def looked_at_by_c(x, some):
    source = iter(some)
    x = x * next(source)
    return x, list(source), sum(some), max(some)


def changed_in_the_loop(x, some):
    for a in some:
        x = x * a
        if len(some) < 4:
            some.append(1.5)
    return x


def changed_behind_it(x, some):
    for a in some:
        x = x * a
    some[0] = 7.0
    for a in some:
        x = x + a
    return x


def sizes(x, some):
    for n in some:
        x = x + torch.ones(n).sum() * n
    return x


def kept(x, some):
    return x, [a for a in some], some


def nothing_there(x, some):
    for a in some:
        x = x * a
    return x + len(some)


LISTS = (loop, loop_with_an_end, generated, taken_one_by_one, looked_at_by_c, changed_in_the_loop, changed_behind_it,
         kept, nothing_there, unpacked_with_a_rest)  # fmt: skip
PROGRAMS = {
    **{f.__name__: (f, lambda a: [a, 2.0, 0.5]) for f in LISTS},
    "of a tuple": (loop, lambda a: (a, a + 1)),
    "of other lengths": (loop, lambda a: [a] * int(a * 4)),
    "item": (item, lambda a: [[a]]),
    "item_of_dict": (item_of_dict, lambda a: ({"a": [1, a]},)),
    "unpacked": (unpacked, lambda a: [(a, 2.0), a + 1]),
    "loops": (loops, lambda a: [[a], (2.0, a)]),
    "sizes": (sizes, lambda a: [int(a * 4), 3]),
    "empty": (nothing_there, lambda a: [] if a == 0.75 else [a]),
}  # fmt: skip
NUMBERS = (0.5, 0.75, 1.5, 2.0, 0.75, 3.25)


def values(o):
    if isinstance(o, torch.Tensor):
        return o.tolist()
    return [values(v) for v in o] if isinstance(o, (list, tuple)) else o


def runs(function, make):
    out = []
    for a in NUMBERS:
        made = make(a)
        out.append((values(function(torch.ones(2), made)), values(made)))
    return out


@pytest.mark.parametrize("name", PROGRAMS)
def test_captured_as_plain(name):
    function, make = PROGRAMS[name]
    assert runs(torch.compile(function), make) == runs(function, make)


@pytest.mark.parametrize(
    "name", ["loop", "generated", "of a tuple", "item", "item_of_dict", "unpacked", "loops", "sizes"]
)
def test_two_captures_are_enough(name):
    function, make = PROGRAMS[name]
    compiled = torch.compile(function, fullgraph=True)
    runs(compiled, make)
    assert compiled.captures == 2
