"""Classes whose special methods are functions of C code (`__setattr__ = dict.__setitem__`), and containers that are
iterated in a way of their own: what an operator does is done by each call, and seen by it."""

import collections

import pytest

import wick as torch


class Items(dict):
    """The dictionary with attributes that many programs have for a configuration."""

    __getattr__, __setattr__, __delattr__ = dict.__getitem__, dict.__setitem__, dict.__delitem__


class Attributes:
    __getitem__, __setitem__, __delitem__ = object.__getattribute__, object.__setattr__, object.__delattr__


class List(list):
    __call__, __lshift__, __matmul__ = list.append, list.append, list.extend
    __iadd__, __neg__, __contains__, __next__ = list.extend, list.pop, list.append, list.pop
    __setitem__, __delitem__, __lt__, __index__ = list.insert, list.remove, list.append, list.pop


class Pops(list):
    __enter__, __exit__ = list.pop, lambda self, *error: None


class Set(set):
    __call__, __iadd__, __invert__ = set.add, set.update, set.clear


class Dict(dict):
    __call__, __iadd__, __lshift__ = dict.update, dict.update, dict.setdefault
    __enter__, __exit__ = dict.copy, lambda self, *error: self.clear()


class Deque(collections.deque):
    __call__, __neg__ = collections.deque.append, collections.deque.popleft


def sets_attribute(o):
    o.count = o.get("count", 0) + 1
    return o["count"] + o.count


def sets_attribute_by_name(o):
    setattr(o, "coun" + "t", o.get("count", 0) + 2)
    return o["count"]


def deletes_attribute(o):
    o.there = 1
    if "other" in o:
        del o.other
    else:
        o.other = 2
    return len(o)


def sets_item(o):
    o["count"] = vars(o).get("count", 0) + 1
    return o["count"]


def deletes_item(o):
    o["a"] = o["b"] = 3
    del o["a"]
    return len(vars(o))


def is_called(o):
    o(3)
    return len(o)


def is_shifted(o):
    o << len(o)
    return len(o)


def multiplies(o):
    o @ [1, 2]
    return len(o)


def adds_items(o):
    kept = o
    kept += [len(o) + 5]
    return len(o)


def adds_pairs(o):
    kept = o
    kept += {len(o): 1}
    return len(o)


def is_called_with_pairs(o):
    o({len(o): 1})
    return len(o)


def is_negative(o):
    o.append(1)
    o.append(2)
    return -o + len(o)


def contains(o):
    return (4 in o) + len(o)


def gives_next(o):
    o.extend([3, 4])
    return next(o) + len(o)


def inserts(o):
    o[0] = len(o)
    return len(o)


def removes(o):
    o.extend([5, 5])
    del o[5]
    return len(o)


def compares(o):
    o < 3  # noqa: B015
    return len(o)


def is_an_index(o):
    o.extend([0, 1])
    return [5, 6, 7][o] + len(o)


def inverts(o):
    o.add(len(o))
    if len(o) > 1:
        o = ~o or o
    return len(o)


def enters(o):
    o["a"] = len(o)
    with o as entered:
        count = len(entered)
    return count + len(o)


def enters_a_list(o):
    o.extend([1, 2])
    with o as entered:
        return len(o) + entered


PROGRAMS = {
    sets_attribute: Items,
    sets_attribute_by_name: Items,
    deletes_attribute: Items,
    sets_item: Attributes,
    deletes_item: Attributes,
    is_called: List,
    is_shifted: List,
    multiplies: List,
    adds_items: List,
    is_negative: List,
    contains: List,
    gives_next: List,
    inserts: List,
    removes: List,
    compares: List,
    is_an_index: List,
    inverts: Set,
    adds_pairs: Dict,
    is_called_with_pairs: Dict,
    enters: Dict,
    enters_a_list: Pops,
}


def looks(o):
    return vars(o) if isinstance(o, Attributes) else list(o.items()) if isinstance(o, dict) else list(iter(o.copy()))


def runs(function, make, again):
    """What five calls give and leave; again: they get the same object."""
    o, seen = make(), []
    for _ in range(5):
        o = o if again else make()
        seen.append((function(torch.ones(2), o).tolist(), str(looks(o))))
    return seen


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_what_c_code_does_is_done_by_each_call(program, again):
    def function(x, o):
        return x * 2 + program(o)

    make = PROGRAMS[program]
    assert runs(torch.compile(function), make, again) == runs(function, make, again)


@pytest.mark.parametrize("program", [is_called, is_negative])
@pytest.mark.parametrize("again", [False, True])
def test_a_deque_is_changed_by_each_call(program, again):
    def function(x, o):
        return x * 2 + program(o)

    assert runs(torch.compile(function), Deque, again) == runs(function, Deque, again)


@pytest.mark.parametrize("program", [sets_attribute, sets_attribute_by_name, sets_item])
def test_what_is_a_known_call_is_no_break(program):
    make = PROGRAMS[program]
    compiled = torch.compile(lambda x, o: x * 2 + program(o), fullgraph=True)
    for _ in range(3):
        compiled(torch.ones(2), make())
    assert compiled.captures == 1


def test_a_function_that_stands_for_a_special_method_is_called_without_the_object():
    log = []

    class Calls:
        __call__ = log.append

    calls, seen = Calls(), []
    compiled = torch.compile(lambda x: (calls(x.shape[0]), x + 1)[1])
    for n in (2, 2, 3, 3):
        compiled(torch.ones(n))
        seen.append(list(log))
    assert seen == [[2], [2, 2], [2, 2, 3], [2, 2, 3, 3]]


def test_iteration_of_ones_own_is_not_asked_by_guards():
    log = []

    class Loud(dict):
        def __iter__(self):
            log.append("iterated")
            return iter(["nothing"])

    class Ordered(collections.OrderedDict):
        __iter__ = dict.items

    def function(x, o, p):
        o["a"] = o.get("a", 0) + 1
        p.move_to_end("b", last=False)
        return x + len(o) + o["a"], list(o), list(p.keys())

    def calls(function):
        log.clear()
        o, p, seen = Loud(), Ordered(a=1, b=2), []
        for _ in range(4):
            result, names, keys = function(torch.ones(2), o, p)
            seen.append((result.tolist(), names, keys, list(log), list(o.items())))
        return seen

    assert calls(torch.compile(function)) == calls(function)
