"""What a region lets go of, and what its end does: destructors, callbacks of weak references, weak references that are
dead. Each program is called with things whose end does nothing, and with things whose end is seen by what comes behind
it, in either order: the log and the result are those of the plain run."""

import collections
import heapq
import weakref

import pytest
from capture_harness import runs_with_ends

import wick as torch
from wick import nn

pytestmark = pytest.mark.usefixtures("few_objects_for_the_collector")

LOG, KEPT = [], []
KEY = object()


class Destroyed:
    def __init__(self, value=0):
        self.value = value

    def __lt__(self, other):
        return self.value < other.value

    def __del__(self):
        LOG.append(("end", self.value))


class Plain:
    def __init__(self, value=0):
        self.value = value

    def __lt__(self, other):
        return self.value < other.value


def watched(value=0):
    o = Plain(value)
    KEPT.append(weakref.ref(o, lambda reference: LOG.append(("end", value))))
    return o


class Box:
    pass


class Slots:
    __slots__ = ("first",)


class MoreSlots(Slots):
    __slots__ = ("second",)


class Model(nn.Module):
    def __init__(self, thing):
        super().__init__()
        self.thing, self.table = thing, {"a": 1}


def boxed(make):
    o = Box()
    o.thing = make(1)
    return o


def slotted(make):
    o = MoreSlots()
    o.first, o.second = make(1), make(2)
    return o


def one_twice(make):
    o = make(1)
    return [o, o]


def in_two_lists(make):
    o = make(1)
    return [[o], [[o]]]


def a_list_twice(make):
    o = [make(1)]
    return {"a": o, "b": o}


def deep(levels):
    def deeply(make):
        o = make(1)
        for _ in range(levels):
            o = [o]
        return [o]

    return deeply


def among_many(make):
    return [[make(1), *([] for _ in range(2000))]]


def around_itself(make):
    o = [make(1)]
    return [o, [o]]


def in_a_cell(make):
    o = make(1)

    def put(value):
        nonlocal o
        o = value

    return put


def table(make):
    return {"a": make(1), "b": make(2)}


def items(make):
    return [make(1), make(2), make(3)]


def one(make):
    return [make(1)]


def members(make):
    return {make(1)}


def ordered(make):
    return collections.OrderedDict(a=make(1), b=make(2))


@torch.compiler.disable
def taken(o):
    return o.pop()


class Local:
    pass


def pop_and_keep(o):
    kept = o.pop("a")
    LOG.append("got")
    kept = None  # noqa: F841


def slice_of(o):
    o[:2] = [7]


def slice_deleted(o):
    del o[0:2]


def repeated(o):
    o *= 0


def read_and_replaced(o):
    assert type(o[0]) is not int
    o[0] = 5


def item_deleted(o):
    del o[KEY]


def item_of_object(o):
    o[KEY] = 1


def item_of_tuple(o):
    o[1, 2] = 1


def twice(o):
    o["a"] = 1
    o["a"] = 2
    o.pop("a")


def put_and_popped(o):
    o.append(7)
    o.pop()
    o.pop()


def popped_twice(o):
    o.pop("a")
    o.pop("b")


def put_in_front(o):
    o.insert(0, 7)
    o.pop(1)


def joined(o):
    o |= {"a": 7}


def met(o):
    o &= {5}


def less(o):
    o -= set(o)


def discarded(o):
    for thing in list(o):
        o.discard(thing)
    del thing


def iterated(o):
    for thing in o.pop():
        LOG.append(("whole", type(thing) is int))
    del thing


def attribute(o):
    o.thing = 1


def attribute_deleted(o):
    del o.thing


def attribute_by_name(o):
    setattr(o, "thi" + "ng", 1)


def slot(o):
    o.first = 3


def slot_deleted(o):
    del o.second


def own_list(o):
    kept = [o.pop()]
    LOG.append("got")
    kept.clear()


def own_dictionary(o):
    kept = {"a": o.pop()}
    LOG.append("got")
    kept["a"] = 1


def own_variable(o):
    kept = [[o.pop()], 1]
    LOG.append("got")
    del kept


def own_tuple(o):
    kept = (o.pop(), 1)
    LOG.append("got")
    kept = None  # noqa: F841


def own_object(o):
    kept = Local()
    kept.thing = o.pop()
    LOG.append("got")
    kept.thing = 1


def own_closure(o):
    kept = o.pop()

    def drop():
        nonlocal kept
        kept = None

    LOG.append("got")
    drop()


def own_in_an_inner_function(o):
    def inner():
        kept = [o.pop()]
        LOG.append("in")
        return len(kept)

    inner()


def behind_a_break(o):
    kept = taken(o)
    LOG.append("got")
    kept = None  # noqa: F841


def at_once_behind_a_break(o):
    taken(o)


def own_list_behind_a_break(o):
    kept = [[taken(o)], 1]
    LOG.append("got")
    kept[0].clear()


PROGRAMS = {
    "dict.pop": (table, lambda o: o.pop("a") and None),
    "dict.pop, kept": (table, pop_and_keep),
    "dict.pop with a default": (table, lambda o: o.pop("a", None) and None),
    "dict.popitem": (table, lambda o: o.popitem() and None),
    "dict.clear": (table, lambda o: o.clear()),
    "dict.update": (table, lambda o: o.update({"a": 7})),
    "dict.update of names": (table, lambda o: o.update(a=7, c=8)),
    "dict.update of pairs": (table, lambda o: o.update([("a", 7)])),
    "dict.__setitem__": (table, lambda o: o.__setitem__("a", 5)),
    "dict.__delitem__": (table, lambda o: o.__delitem__("a")),
    "dict.__init__": (table, lambda o: o.__init__(a=3)),
    "dict |=": (table, joined),
    "twice": (table, twice),
    "an object as key": (lambda make: {KEY: make(1)}, item_of_object),
    "an object as key, deleted": (lambda make: {KEY: make(1)}, item_deleted),
    "a tuple as key": (lambda make: {(1, 2): make(1)}, item_of_tuple),
    "a tuple as key, popped": (lambda make: {(1, 2): make(1)}, lambda o: o.pop((1, 2)) and None),
    "OrderedDict.popitem": (ordered, lambda o: o.popitem(last=False) and None),
    "defaultdict.pop": (lambda make: collections.defaultdict(list, a=[make(1)]), lambda o: o.pop("a") and None),
    "a dictionary in one": (lambda make: {"a": {"b": make(1)}}, lambda o: o["a"].clear()),
    "list.pop": (items, lambda o: o.pop() and None),
    "list.pop(0)": (items, lambda o: o.pop(0) and None),
    "list.pop of a list": (lambda make: [[make(1)], 2], lambda o: o.pop(0) and None),
    "list.clear": (items, lambda o: o.clear()),
    "list.remove": (items, lambda o: o.remove(o[1])),
    "list.__setitem__": (items, lambda o: o.__setitem__(0, 5)),
    "list.__delitem__": (items, lambda o: o.__delitem__(0)),
    "list.__init__": (items, lambda o: o.__init__([5])),
    "list *=": (items, repeated),
    "a loop": (lambda make: [[make(1), 2, 3]], iterated),
    "a slice": (items, slice_of),
    "a slice, deleted": (items, slice_deleted),
    "read and replaced": (items, read_and_replaced),
    "append and pop": (items, put_and_popped),
    "insert and pop": (items, put_in_front),
    "heappop": (lambda make: [make(1), make(2)], lambda o: heapq.heappop(o) and None),
    "set.clear": (members, lambda o: o.clear()),
    "set.discard": (members, discarded),
    "set -=": (members, less),
    "set.pop": (members, lambda o: o.pop() and None),
    "set.intersection_update": (members, lambda o: o.intersection_update([])),
    "set &=": (members, met),
    "an attribute": (boxed, attribute),
    "an attribute, deleted": (boxed, attribute_deleted),
    "setattr": (boxed, attribute_by_name),
    "__dict__.pop": (boxed, lambda o: o.__dict__.pop("thing") and None),
    "__dict__.clear": (boxed, lambda o: o.__dict__.clear()),
    "vars().update": (boxed, lambda o: vars(o).update(thing=1)),
    "a slot": (slotted, slot),
    "a slot, deleted": (slotted, slot_deleted),
    "a cell": (in_a_cell, lambda o: o(3)),
    "an attribute of a module": (lambda make: Model(make(1)), attribute),
    "one twice": (one_twice, lambda o: o.clear()),
    "one twice, a slice": (one_twice, slice_of),
    "one twice, in a list": (lambda make: [one_twice(make)], lambda o: o.pop() and None),
    "one twice, in an own list": (lambda make: [one_twice(make)], own_list),
    "one twice, in an own variable": (lambda make: [one_twice(make)], own_variable),
    "in two lists": (in_two_lists, lambda o: o.clear()),
    "a list twice": (a_list_twice, lambda o: o.update(a=1, b=2)),
    "a list twice, popped": (a_list_twice, popped_twice),
    "a list in a neighbour": (around_itself, lambda o: o.clear()),
    "nine lists deep": (deep(9), lambda o: o.clear()),
    "three hundred lists deep": (deep(300), lambda o: o.clear()),
    "among many": (among_many, lambda o: o.clear()),
    "own list": (one, own_list),
    "own dictionary": (one, own_dictionary),
    "own variable": (one, own_variable),
    "own tuple": (one, own_tuple),
    "own object": (one, own_object),
    "own closure": (one, own_closure),
    "own, in an inner function": (one, own_in_an_inner_function),
    "behind a break": (one, behind_a_break),
    "at once, behind a break": (one, at_once_behind_a_break),
    "own list, behind a break": (one, own_list_behind_a_break),
}  # fmt: skip


def runs(function, make, kinds):
    return runs_with_ends(function, [lambda kind=kind: make(kind) for kind in kinds], LOG, KEPT)


@pytest.mark.parametrize("aloud", [Destroyed, watched])
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_the_end_of_things_does_is_seen(name, aloud):
    make, lets_go = PROGRAMS[name]

    def program(x, o):
        lets_go(o)
        LOG.append("behind")
        return x * (1 + len(LOG))

    for kinds in ((Plain, Plain, aloud, aloud, Plain), (aloud, aloud, Plain, aloud)):
        plain = runs(program, make, kinds)
        assert runs(torch.compile(program), make, kinds) == plain
        loud = [log for kind, (_, log, _) in zip(kinds, plain, strict=True) if kind is aloud]
        assert all(any(entry[0] == "end" for entry in log) for log in loud)


@pytest.mark.parametrize("name", ["dict.pop", "list.clear", "dict.update", "set.pop", "a slot", "own list"])
def test_what_ends_quietly_is_one_segment(name):
    make, lets_go = PROGRAMS[name]
    compiled = torch.compile(lambda x, o: (lets_go(o), x + 1)[1], fullgraph=True)
    numbers = [1.5, 2.5, 3.5].__getitem__
    for _ in range(3):
        compiled(torch.ones(2), make(lambda value: numbers(value - 1)))
    assert compiled.captures == 1


def held(kind):
    o = Plain()
    holder = Box() if kind == "attribute" else {"a": o} if kind == "table" else [o]
    if kind == "attribute":
        holder.thing = o
    return holder, weakref.ref(o)


DROPPED = {
    "list.clear": ("list", lambda o: o.clear()),
    "list.pop": ("list", lambda o: o.pop() and None),
    "a place": ("list", lambda o: o.__setitem__(0, 1)),
    "read before": ("list", lambda o: (o[0].value, o.__setitem__(0, 1))[1]),
    "dict.pop": ("table", lambda o: o.pop("a") and None),
    "an attribute": ("attribute", lambda o: setattr(o, "thing", 1)),
    "own list": ("list", own_list),
    "own variable": ("list", own_variable),
}


@pytest.mark.parametrize("name", DROPPED)
def test_a_weak_reference_to_what_was_let_go_of_is_dead(name):
    kind, lets_go = DROPPED[name]

    def program(x, o, reference):
        lets_go(o)
        return x + 1, reference() is None

    compiled = torch.compile(program)
    alive = Plain()
    for k in range(5):
        o, reference = held(kind)
        if k in (1, 2):
            reference = weakref.ref(alive)
        assert compiled(torch.ones(2), o, reference)[1] is (k not in (1, 2))


def test_guards_do_not_keep_alive_what_has_a_destructor():
    model, kept = Model(Destroyed(1)), Destroyed(2)
    compiled = torch.compile(lambda x, m, d: x + m.thing.value + d["a"].value + m.table["a"])
    for _ in range(2):
        compiled(torch.ones(2), model, {"a": kept})
    LOG.clear()
    model.thing = kept = None
    assert LOG == [("end", 1), ("end", 2)]


class Said:
    def __init__(self, log, number):
        self.log = log
        self.number = number

    def __del__(self):
        self.log.append(f"end of {self.number}")


def test_what_a_variable_had_ends_where_a_segment_is_used_again():
    """The segment behind the destructor's break was captured when the variable had nothing."""

    def looked_at(log, thing):
        log.append("seen")

    def program(x, log):
        for number in range(4):
            thing = Said(log, number)
            looked_at(log, thing)
            log.append("behind")
            x = x + 1
        return x

    compiled, plain = torch.compile(program), []
    program(torch.ones(2), plain)
    for _ in range(3):
        log = []
        compiled(torch.ones(2), log)
        assert log == plain
