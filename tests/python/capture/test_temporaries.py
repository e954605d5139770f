"""What is on the interpreter's stack alone and dies within an instruction: what its end does is seen by the next one.
Each program is called with things whose end does nothing, and with things whose end says so, in either order: the log
is that of the plain run, and so is the order of its entries."""

# ruff: noqa: F841

import contextlib
import operator
import weakref

import pytest
from capture_harness import runs_with_ends

import wick as torch

pytestmark = pytest.mark.usefixtures("few_objects_for_the_collector")

LOG, KEPT = [], []


class Plain:
    def __init__(self, value):
        self.value = value

    def __getitem__(self, key):
        return key

    def __lt__(self, other):
        return self.value < other.value

    def __format__(self, spec):
        return str(self.value)

    def __add__(self, other):
        return self.value

    def same(self):
        return self.value


class Destroyed(Plain):
    def __del__(self):
        LOG.append(("end", self.value))


def watched(value):
    o = Plain(value)
    KEPT.append(weakref.ref(o, lambda reference: LOG.append(("end", value))))
    return o


class Holder:
    def method(self, a, b):
        a, self = 1, None
        say("method")
        b = a
        return say("method's end")


@torch.compiler.disable
def taken(o):
    return o.pop()


def say(text):
    LOG.append(text)
    return text


def length_of(*args, **kwargs):
    return len(args) + len(kwargs)


def first(a, b):
    return LOG.append("in") or a.value


def rebinds(a, *rest, k=None, **named):
    say("in")
    a = None
    say("a")
    rest = 1
    say("rest")
    k = 2
    say("k")
    del named
    return say("out")


def rebinds_in_a_closure(a):
    def inner():
        nonlocal a
        a = None
        return say("inner")

    return inner() and say("outer")


def hands_on(a, b=3):
    say("in")
    rebinds(a)
    a = b
    return rebinds(b, a, k=(b := None)) or b


def rebinds_and_raises(a):
    a = say("rebound")
    raise KeyError(a)


def caught_behind_a_call(o):
    try:
        rebinds_and_raises(taken(o))
    except KeyError:
        say("caught")


def rebound_by_the_caller(o):
    mine = o.pop()

    def callee(a):
        nonlocal mine
        mine = None
        say("mine")
        del a
        return say("a")

    return callee(mine)


def weakly_seen(o):
    def callee(a):
        seen = weakref.ref(a)
        a = None
        return say(seen() is None)

    mine = Plain(1)
    return callee(Plain(0)), callee(mine), mine.value


def gives_two(o):
    return o.pop(), o.pop()


def raises(*args):
    raise KeyError(len(args))


def caught(o):
    try:
        (o.pop(), raises(1))
    except KeyError:
        LOG.append("caught")


def caught_in_a_block(o):
    with contextlib.suppress(KeyError):
        [o.pop(), say("made"), raises(2)]
    LOG.append("suppressed")


def unpacked(o):
    a, b = (taken(o), taken(o))[1:] + (say("unpacked"),)
    LOG.append("got")
    del a
    return b


def unpacked_with_a_rest(o):
    *_, b = [taken(o), taken(o), say("unpacked")]
    return b


def iterated(o):
    for thing in (taken(o), taken(o)):
        LOG.append(thing.value)
    LOG.append("iterated")


def read_and_popped(o):
    return (o[-1], o.pop())[0] and None


def read_and_popped_twice(o):
    return [o[-1], o[-2], o.pop(), o.pop(), say("popped")][4]


def looked_at(o):
    return {"a": taken(o), "b": say("b")}["b"]


PROGRAMS = {
    "a pair's item": lambda o: (o.pop(), o.pop())[0] and None,
    "a pair's other item": lambda o: (o.pop(), o.pop())[1] and None,
    "a list's item": lambda o: [o.pop(), o.pop()][0] and None,
    "a list's slice": lambda o: [o.pop(), say("b"), o.pop()][1:2],
    "a pair behind breaks": lambda o: (taken(o), taken(o))[0] and None,
    "a pair of pairs": lambda o: ((taken(o), 1), (taken(o), 2))[0][1],
    "read and popped": read_and_popped,
    "read twice and popped": read_and_popped_twice,
    "a dictionary's value": looked_at,
    "a made list": lambda o: [taken(o), taken(o), taken(o)] and say("list"),
    "a truth": lambda o: taken(o) and say("true"),
    "not": lambda o: (not taken(o), say("not"))[1],
    "a comparison": lambda o: (taken(o) < taken(o), say("compared"))[1],
    "a comparison of pairs": lambda o: ((1, taken(o)) == (2, taken(o)), say("compared"))[1],
    "is": lambda o: (taken(o) is taken(o), say("compared"))[1],
    "in": lambda o: (1 in (1, taken(o)), say("found"))[1],
    "an item of the thing": lambda o: (taken(o)["a"], say("item"))[1],
    "a sum": lambda o: (taken(o) + taken(o), say("sum"))[1],
    "an attribute": lambda o: (taken(o).value, say("attribute"))[1],
    "a method": lambda o: (taken(o).same(), say("method"))[1],
    "an f-string": lambda o: (f"{taken(o)} {say('between')} {taken(o)}", say("text"))[1],
    "an argument": lambda o: (length_of(taken(o), 1), say("called"))[1],
    "arguments, popped": lambda o: (length_of(o[-1], o.pop()), say("called"))[1],
    "arguments by name": lambda o: (length_of(a=taken(o), b=taken(o)), say("called"))[1],
    "arguments, spread": lambda o: (length_of(*[taken(o), taken(o)]), say("called"))[1],
    "arguments of C code": lambda o: (isinstance(taken(o), int), say("called"))[1],
    "arguments of getattr": lambda o: (getattr(taken(o), "value"), say("called"))[1],  # noqa: B009
    "len of a list": lambda o: (len([taken(o), taken(o)]), say("called"))[1],
    "sorted": lambda o: (len(sorted([taken(o), taken(o)])), say("sorted"))[1],
    "arguments and what it says": lambda o: (first(taken(o), taken(o)), say("called"))[1],
    "a result's item": lambda o: (gives_two(o)[0].value, say("item"))[1],
    "a result": lambda o: (gives_two(o), say("made"))[1],
    "an argument that is replaced": lambda o: rebinds(taken(o)),
    "arguments that are replaced": lambda o: rebinds(o.pop(), o.pop(), o.pop(), k=o.pop(), z=o.pop()),
    "an argument of a method": lambda o: Holder().method(o.pop(), taken(o)),
    "an argument that the caller has": lambda o: (mine := taken(o), rebinds(mine), say("called"))[2],
    "an argument in a cell": lambda o: rebinds_in_a_closure(o.pop()),
    "an argument that is handed on": lambda o: (hands_on(taken(o)), hands_on(o.pop(), taken(o)))[1],
    "an argument of an exception": caught_behind_a_call,
    "an argument whose caller lets go": rebound_by_the_caller,
    "an argument of the region's own": weakly_seen,
    "operator.itemgetter": lambda o: (operator.itemgetter(1)([taken(o), 2]), say("item"))[1],
    "unpacked": unpacked,
    "unpacked with a rest": unpacked_with_a_rest,
    "iterated": iterated,
    "an exception": caught,
    "an exception in a block": caught_in_a_block,
    "a comprehension": lambda o: ([k for k, thing in ((1, taken(o)), (2, taken(o)))], say("comprehended"))[1],
    "a generator": lambda o: (sum(thing.value for thing in [taken(o), taken(o)]), say("summed"))[1],
    "star": lambda o: (*[taken(o), say("star")], 1)[1],
    "a set's member": lambda o: (len({taken(o), say("member")}), say("set"))[1],
    "a joined dictionary": lambda o: ({**{"a": taken(o)}, "a": say("joined")}, say("made"))[1],
}  # fmt: skip


@pytest.mark.parametrize("aloud", [Destroyed, watched])
@pytest.mark.parametrize("name", PROGRAMS)
def test_ends_come_where_they_come_plainly(name, aloud):
    drops = PROGRAMS[name]

    def program(x, o):
        y = x * 2
        drops(o)
        LOG.append("behind")
        return y * (1 + len(LOG))

    for kinds in ((Plain, Plain, aloud, aloud, Plain), (aloud, aloud, Plain, aloud)):
        makers = [lambda kind=kind: [kind(i) for i in range(5)] for kind in kinds]
        captured, plain = (runs_with_ends(f, makers, LOG, KEPT) for f in (torch.compile(program), program))
        assert captured == plain


def test_an_argument_ends_also_where_nothing_is_captured_any_more():
    def program(x, o):
        rebinds(o.pop(), k=len(o))
        return x * len(LOG)

    makers = [lambda count=count: [Destroyed(i) for i in range(count)] for count in (3, 4, 5, 6)]
    plain = runs_with_ends(program, makers, LOG, KEPT)
    for stance in ("force_eager", "eager_on_recompile", "default"):
        compiled = torch.compile(program)
        with torch.compiler.set_stance(stance):
            assert runs_with_ends(compiled, makers, LOG, KEPT) == plain, stance
    with torch._dynamo.config.patch(recompile_limit=1):
        assert runs_with_ends(torch.compile(program), makers, LOG, KEPT) == plain


def test_a_call_with_a_star_whose_arguments_an_earlier_segment_began():
    given = []

    def callee(log, table, a, **named):
        log.append("in")
        table[len(log)] = named
        a = None
        log.append("out")
        return len(log)

    def program(x, o):
        table = {}
        y = x * callee(given, table, *[taken(o)], k=taken(o), **{"z": taken(o)})
        return y + callee(given, table, *{1: taken(o)}.values()) + len(table)

    makers = [lambda count=count: [Plain(i) for i in range(count)] for count in (4, 5, 6)]
    expected = runs_with_ends(program, makers, LOG, KEPT)
    seen = list(given)
    given.clear()
    assert runs_with_ends(torch.compile(program), makers, LOG, KEPT) == expected and given == seen
