"""Weak references with callbacks, proxies, and the containers of weakref, from outside and made inside: what the plain
run gives, in one graph where nothing ends in the region, and the callbacks called when they are plainly."""

import gc
import weakref

import pytest

import wick as torch

pytestmark = pytest.mark.usefixtures("few_objects_for_the_collector")

LOG = []
X = torch.ones(2)


class Thing:
    def __init__(self, value=1):
        self.value = value

    def read(self):
        return self.value


class Equal(Thing):
    def __eq__(self, other):
        LOG.append("compared")
        return self.value == other.value

    def __hash__(self):
        return hash(self.value)


def tell(reference):
    LOG.append("gone")


def with_a_callback(x, o, table):
    reference = weakref.ref(o, tell)
    return x + reference().value, reference.__callback__ is tell


def kept_outside(x, o, table):
    table["one"], table["two"] = weakref.ref(o, tell), weakref.ref(o, None)
    return x + 1, table["two"] is weakref.ref(o), table["one"] == table["two"]


def with_a_callback_of_its_own(x, o, table):
    def callback(reference):
        LOG.append(number)

    number = 5
    table["one"] = weakref.ref(o, callback)
    return x, number


def keys_inside(x, o, table):
    weak = weakref.WeakKeyDictionary({o: 3.0})
    for key, value in weak.items():
        x = x * value + key.value
    found = weak.get(o), weak[o], o in weak, len(weak), weak.setdefault(o, 4)
    weak[o] = x
    return x, found, weak.pop(o), len(weak)


def set_inside(x, o, table):
    weak = weakref.WeakSet([o])
    weak.add(o)
    for one in weak:
        x = x + one.value
    found = len(weak), o in weak
    weak.discard(o)
    table["weak"] = weak
    return x, found, len(weak)


INSIDE = [with_a_callback, kept_outside, with_a_callback_of_its_own, keys_inside, set_inside]


def outcome(function, arguments):
    LOG.clear()
    x, *rest = function(*arguments)
    return x.tolist(), [v.tolist() if isinstance(v, torch.Tensor) else v for v in rest]


@pytest.mark.parametrize("program", INSIDE)
def test_made_inside_of_what_comes_from_outside(program):
    compiled = torch.compile(program, fullgraph=True)
    for k in range(4):
        seen = []
        for function in (program, compiled):
            o, table = Thing(k + 1), {}
            result = outcome(function, (X * k, o, table))
            callbacks = {key: getattr(value, "__callback__", None) for key, value in table.items()}
            called = {key: callable(value) for key, value in callbacks.items()}
            del o
            gc.collect()
            seen.append((result, called, list(LOG)))
        assert seen[0] == seen[1]


@pytest.mark.parametrize("first", [0, 1, 2])
def test_a_dictionary_with_weak_keys_from_outside(first):
    """Its entries die between the calls."""

    def program(x, weak, o):
        if o not in weak:
            weak[o] = 1
        weak[o] = weak[o] + 1
        return x * weak[o] + weak.get(o), len(weak), [key.value for key in weak]

    def run(function):
        weak, things, seen = weakref.WeakKeyDictionary(), [Thing(3), Thing(4), Thing(5)], []
        for k in (first, 0, 1, 1, 0, 2, 0, 0):
            seen.append(outcome(function, (X, weak, things[k % len(things)])))
            if len(seen) in (3, 5):
                things.pop()
        return seen

    assert run(torch.compile(program, fullgraph=True)) == run(program)


def test_a_weak_set_from_outside():
    def program(x, weak, o):
        weak.add(o)
        for one in weak:
            x = x + one.value
        return x, len(weak), o in weak

    def run(function):
        weak, kept = weakref.WeakSet(), Thing(9)
        return [outcome(function, (X, weak, kept if k % 2 else Thing(k))) for k in range(5)]

    assert run(torch.compile(program, fullgraph=True)) == run(program)


def test_values_that_die_between_the_calls():
    def program(x, weak):
        o = weak.get("a")
        return x + (100 if o is None else o.value), len(weak), "a" in weak, "b" in weak

    def run(function):
        o, seen = Thing(3), []
        weak = weakref.WeakValueDictionary(a=o)
        for k in range(5):
            if k == 2:
                del o
            seen.append(outcome(function, (X, weak)))
        return seen

    assert run(torch.compile(program, fullgraph=True)) == run(program)


def held_elsewhere(x, o):
    thing = o.pop()
    reference = weakref.ref(thing, tell)
    del thing
    LOG.append("behind")
    return x * (1 + len(LOG)), reference is None


def replaced(x, o):
    reference = weakref.ref(o[0], tell)
    o[0] = 1
    LOG.append("behind")
    return x * (1 + len(LOG)), reference() is None


def popped_from_a_key(x, o):
    weak = weakref.WeakKeyDictionary()
    weak[o[0]] = x
    before = len(weak)
    o.clear()
    LOG.append("behind")
    return x * (1 + len(LOG)), before, len(weak)


@pytest.mark.parametrize("program", [held_elsewhere, replaced, popped_from_a_key])
@pytest.mark.parametrize("order", ["hhooh", "ohoho"])
def test_what_the_region_ends_calls_back_at_once(program, order):
    """An object that somebody holds does not end in the region; in another call it may."""

    def run(function):
        kept, seen = Thing(), []
        for kind in order:
            seen.append((outcome(function, (X, [kept if kind == "h" else Thing()])), list(LOG)))
        return seen

    assert run(torch.compile(program)) == run(program)


def test_a_key_that_is_compared_by_python_is_compared_as_often():
    def run(function):
        one, other, weak = Equal(1), Equal(1), weakref.WeakKeyDictionary()
        weak[one] = 5
        return [(outcome(function, (X, weak, o)), list(LOG)) for o in (one, one, other, one)]

    def program(x, weak, o):
        return x * weak[o], weak.get(o)

    assert run(torch.compile(program)) == run(program)


def test_a_proxy_from_outside():
    def program(x, o):
        o.value += 1
        return x * o.value + o.read(), hasattr(o, "value"), getattr(o, "none", 4)

    compiled = torch.compile(program, fullgraph=True)
    for k in (1, 2, 2, 5):
        seen = []
        for function in (program, compiled):
            o = Thing(k)
            seen.append((outcome(function, (X, weakref.proxy(o))), o.value))
        assert seen[0] == seen[1]


def test_a_proxy_of_what_is_gone():
    def program(x, o, holder):
        before = o.value
        holder.clear()
        try:
            return x + o.value, before
        except ReferenceError:
            return x - 1, before

    compiled = torch.compile(program)
    alive = Thing(2)
    for k in range(4):
        seen = []
        for function in (program, compiled):
            holder = [Thing(2) if k % 2 else alive]
            seen.append(outcome(function, (X, weakref.proxy(holder[0]), holder)))
        assert seen[0] == seen[1] and seen[0][0] == ([0.0, 0.0] if k % 2 else [3.0, 3.0])


def test_references_of_a_class_of_python():
    one = Thing(4)
    keyed = weakref.KeyedRef(one, None, "key")
    compiled = torch.compile(lambda x, r: (x + r().value, 3), fullgraph=True)
    for _ in range(2):
        assert outcome(compiled, (X, keyed)) == ([5.0, 5.0], [3])
