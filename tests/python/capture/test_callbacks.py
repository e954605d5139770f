"""Functions of C code that C code calls: given to map(), sorted() and their kind, or as the getter and setter of a
property. What they change is changed by each call, what they look at is seen by it."""

import collections
import functools
import itertools
import operator

import pytest

import wick as torch
from wick import nn


class Thing:
    value = property(operator.attrgetter("_value"), lambda self, value: setattr(self, "_value", value))

    def __init__(self, value=1):
        self._value = value
        self.items, self.table = [value, 2, 3], {"a": value}

    def __str__(self):
        return f"{vars(self)}"


class List(list):
    size, last, first = property(list.__len__), property(list.pop), property(operator.itemgetter(0))
    itself = property(list.copy, list.append, list.clear)


class Table(dict):
    any, more = property(dict.popitem), property(dict.copy, dict.update)


class Model(nn.Module):
    scale = property(operator.attrgetter("factor"))

    def __init__(self):
        super().__init__()
        self.factor = 2.0

    def forward(self, x):
        return x * self.scale


def changes_value(o):
    o.value = o.value + 1
    return o.value


def value(o):
    return o.value


def size(o):
    return o.size


def takes_last(o):
    o.extend([4, 5])
    return o.last + len(o)


def first(o):
    o.insert(0, len(o))
    return o.first


def sets_itself(o):
    o.itself = len(o)
    return len(o.itself)


def deletes_itself(o):
    o.append(1)
    if len(o) > 2:
        del o.itself
    return len(o)


def takes_any(o):
    o["a"], o["b"] = 1, len(o)
    return o.any[1] + len(o)


def sets_more(o):
    o.more = {len(o): 1}
    return len(o)


def appends(o):
    list(map(o.items.append, [1, 2]))
    return len(o.items)


def appends_in_a_loop(o):
    for _ in map(o.items.append, [1, 2]):
        pass
    return len(o.items)


def appends_by_a_deque(o):
    collections.deque(map(o.items.append, range(2)), maxlen=0)
    return len(o.items)


def appends_by_any(o):
    any(map(o.items.append, [1]))
    return len(o.items)


def appends_by_filter(o):
    return len(list(filter(o.items.append, [1, 2]))) + len(o.items)


def appends_by_groups(o):
    return len([k for k, _ in itertools.groupby([1, 2], key=o.items.append)]) + len(o.items)


def appends_by_pairs(o):
    return len(dict(zip("ab", map(o.items.append, [1, 2]), strict=True))) + len(o.items)


def appends_by_key(o):
    sorted([4, 5], key=o.items.append) if not o.items else sorted([4], key=o.items.append)
    return len(o.items)


def pops(o):
    o.table["b"] = 5
    return list(map(o.table.pop, ["b"]))[0] + len(o.table)


def pops_until(o):
    o.items.extend([0, 9, 9])
    return sum(iter(o.items.pop, 0)) + len(o.items)


def pops_for_missing_keys(o):
    table = collections.defaultdict(o.items.pop)
    o.items.append(8)
    return table["b"] + len(o.items)


def sets_by_a_partial_function(o):
    list(map(functools.partial(o.table.setdefault), ["b"], [len(o.table)]))
    return len(o.table)


def sets_items(o):
    list(itertools.starmap(o.table.__setitem__, [("b", len(o.table))]))
    return len(o.table)


def sets_attributes(o):
    list(map(setattr, [o], ["_value"], [o._value + 1]))
    return o._value


def own_list(o):
    kept = []
    list(map(kept.append, o.items))
    return len(kept) + kept[0]


def attributes(o):
    return sum(map(getattr, [o], ["_value"]))


def variables(o):
    return sum(v["_value"] for v in map(vars, [o]))


def values_of_keys(o):
    return sum(map(o.table.get, ["a"]))


def values_as_key(o):
    return max(["a"], key=o.table.get) == "a" and max([0, 1], key=o.items.__getitem__)


def lengths(o):
    return sum(n for n in map(len, [o.items, o.table]))


def given_attributes(o):
    return sum(map(hasattr, [o, o], ["later", "_value"]))


def printed(o):
    list(map(print, [o._value]))
    return 1


def formatted(o):
    return len("{0._value}, {{0.a}}, {o.table[a]:>{o._value}}".format(o, o=o)) + len("{t[a]}".format(t=o.table))  # noqa: UP032


def formatted_by_map(o):
    return len("".join(map("{0._value}".format, [o]))) + len("{o._value}".format_map({"o": o}))


PROGRAMS = {
    changes_value: Thing, value: Thing, size: List, takes_last: List, first: List, sets_itself: List,
    deletes_itself: List, takes_any: Table, sets_more: Table, appends: Thing, appends_in_a_loop: Thing,
    appends_by_a_deque: Thing, appends_by_any: Thing, appends_by_filter: Thing, appends_by_groups: Thing,
    appends_by_pairs: Thing, appends_by_key: Thing, pops: Thing, pops_until: Thing, pops_for_missing_keys: Thing,
    sets_by_a_partial_function: Thing, sets_items: Thing, sets_attributes: Thing, own_list: Thing, attributes: Thing,
    variables: Thing, values_of_keys: Thing, values_as_key: Thing, lengths: Thing, given_attributes: Thing,
    printed: Thing, formatted: Thing, formatted_by_map: Thing,
}  # fmt: skip


def change(o):
    """Between two calls."""
    if isinstance(o, Thing):
        o._value, o.items[0], o.table["a"], o.later = 17, 1 + o.items[0], 99, 1
        o.items.append(5)
    elif isinstance(o, List):
        o.append(6)
    else:
        o["between"] = 1


def runs(function, make, again, capsys):
    """What six calls give, leave and print; again: they get the same object."""
    o, seen = make(), []
    for turn in range(6):
        o = o if again else make()
        if turn in (3, 5):
            change(o)
        result = function(torch.ones(2), o).tolist()
        seen.append((result, str(o), capsys.readouterr().out))
    return seen


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_captured_as_plain(program, again, capsys):
    def function(x, o):
        return x * 2 + program(o)

    make = PROGRAMS[program]
    assert runs(torch.compile(function), make, again, capsys) == runs(function, make, again, capsys)


@pytest.mark.parametrize("program", [value, size, first, sets_itself, own_list, values_of_keys, values_as_key, lengths])
def test_what_is_known_is_no_break(program):
    make = PROGRAMS[program]
    compiled = torch.compile(lambda x, o: x * 2 + program(o), fullgraph=True)
    for _ in range(3):
        compiled(torch.ones(2), make())
    assert compiled.captures <= 2


def test_a_property_of_a_module():
    model = Model()
    compiled, seen = torch.compile(model), []
    for factor in (2.0, 2.0, 3.0, 4.0):
        model.factor = factor
        seen.append(compiled(torch.ones(1)).item())
    assert seen == [2.0, 2.0, 3.0, 4.0]
