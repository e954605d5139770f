"""Items, keys, proxies and functions from outside: what of them is guarded, and what is not. `again` says how often a
program is captured for its rows of arguments; with each it gives what it gives when it is run plainly."""

# ruff: noqa: E731

import collections
import dataclasses
import types
import typing

import pytest

import wick as torch

KEY = typing.TypeVar("KEY")
FROZEN = {frozenset({1}): 2.0, frozenset(): 5.0}
X = torch.ones(2)
PROXY = types.MappingProxyType


class Pair(typing.NamedTuple):
    first: int
    second: int


@dataclasses.dataclass(frozen=True)
class Inner:
    rate: float


@dataclasses.dataclass(frozen=True)
class Outer:
    inner: Inner
    count: int


class Marked:
    value = 4
    note: int


class Holder:
    def __init__(self):
        self.value = 1


def adding(number):
    return lambda y: y + number


def counting(start):
    def count(y):
        nonlocal start
        start += 1
        return y + start

    return count


def proxied(x, m):
    for value in m.values():
        x = x * value
    return x + m["a"] + len(m), list(m.items()), "b" in m, m.get("z", 3), dict(m), {**m}, [k for k in m], m | {"q": 1}


def moved(k):
    """A tensor that is a key, in a dictionary of this call."""
    key = torch.ones(2) * k
    return {key: key + 1, 3: X}, key


def new_object(k):
    key = Marked()
    return {key: k}, key


def put_again(k):
    if Marked.value != 4 + k // 2:
        Marked.value = 4 + k // 2
    return X, Marked


# name: the program, arguments of call k, captures in four calls
CASES = {
    "one item of a list": (lambda x, y: x * y[1], lambda k: (X, [k, 7, str(k)]), 1),
    "one item of a tuple": (lambda x, y: x * y[1], lambda k: (X, (k, 7, str(k))), 1),
    "an item that changes": (lambda x, y: x + y[1] % 2, lambda k: (X, [10 + k, 20 + k]), 2),
    "an item from the end": (lambda x, y: x * y[-1], lambda k: (X, [3] * (k // 2 + 1)), 2),
    "an item that C code compares": (
        lambda x, y: (x * 1, sorted([0, 1], key=lambda i: y[i])),
        lambda k: (X, [[2], [k % 2 * 3]]),
        2,
    ),
    "a function made for each call": (lambda x, f: f(x), lambda k: (X, adding(7)), 1),
    "its closure": (lambda x, f: f(x), lambda k: (X, adding(k + 5)), 2),
    "its closure, which it changes": (lambda x, f: (f(x), f(x)), lambda k: (X, counting(k + 5)), 2),
    "two functions or one": (
        lambda x, f, g: (f(x) + g(x), f is g),
        lambda k: (X, *([adding(2)] * 2 if k % 2 else [adding(2), adding(2)])),
        2,
    ),
    "a tensor as key": (lambda d, key: (d[key] * 2, d[3]), moved, 1),
    "an object as key": (lambda d, key: X * d[key], lambda k: new_object(k + 5), 2),
    "a type variable as key": (lambda d: d[KEY] + 1, lambda k: ({KEY: X * k},), 1),
    "a frozen set as key": (lambda x: x * FROZEN[frozenset({1})] + FROZEN[frozenset()], lambda k: (X,), 1),
    "a proxy": (proxied, lambda k: (X, PROXY({"a": 2, "b": 3 + k // 2})), 2),
    "another proxy": (proxied, lambda k: (X, PROXY({"a": 2, "bz"[k // 2]: 3})), 2),
    "a class's dictionary": (
        lambda x, c: (x + c.__dict__["value"], "value" in c.__dict__, vars(c).get("none")),
        put_again,
        2,
    ),
    "type hints": (lambda x: (x * 1, typing.get_type_hints(Marked)), lambda k: (X,), 1),
    "hash of a named tuple": (
        lambda x, p: (x * 1, hash(p) == hash((1, 2)), {p: 3}[1, 2]),
        lambda k: (X, Pair(1, 2)),
        1,
    ),
    "hash of an object with objects": (
        lambda x, rate: (x * {Outer(Inner(2.5), 1): 3.0}.get(Outer(Inner(rate), 1), 4.0), hash((Inner(rate), 2)) != 0),
        lambda k: (X, 2.5 + k // 2),
        2,
    ),
}


def found_after(change):
    def program(a, b):
        table = {a: 1}
        return change(table, b), len(table)

    return program


@dataclasses.dataclass
class Valued:
    value: object


KEYED = {
    "an item": found_after(lambda table, b: table[b] if b in table.keys() else None),
    "get": found_after(lambda table, b: table.get(b)),
    "pop": found_after(lambda table, b: table.pop(b, None)),
    "an item that is set": found_after(lambda table, b: table.__setitem__(b, 2)),
    "update": found_after(lambda table, b: table.update({b: 2})),
    "a dictionary of lists": lambda a, b: [collections.defaultdict(list, {a: [1]})[k] for k in (a, b)],
    "sets that are joined": lambda a, b: [len(s) for s in ({a} & {b}, {a} | {b}, {a} - {b}, {a: 1}.keys() & {b})],
    "methods of sets": lambda a, b: (len({a}.union([b])), {a}.isdisjoint([b]), {a}.issubset({b})),
    "sets that are compared": lambda a, b: ({a} == {b}, {a} <= {b}, {a: 1} == {b: 1}),
    "sequences that are compared": lambda a, b: ([a] == [b] if a is b else None, len((a,)) and [(a, 1)].index((a, 1))),
    "values that are compared": lambda a, b: a is b and ({1: a} == {1: b}, Valued([a]) == Valued([b])),
    "a set": lambda a, b: len({a, b}),
    "a dictionary": lambda a, b: len({a: 1, b: 2}),
    "set()": lambda a, b: (len(set((a, b))), len(frozenset([a, b]))),
    "a set comprehension": lambda a, b: len({k for k in (a, b)}),
    "a dictionary comprehension": lambda a, b: {k: i for i, k in enumerate((a, b))}[a],
    "dict()": lambda a, b: len(dict([(a, 1), (b, 2)])),
}


def added(a, b):
    found, table, other = set(), {}, {}
    for k in (a, b):
        found.add(k)
        table[k] = len(table)
        other.setdefault(k, len(other))
    return len(found), table[b], other[b]


@pytest.mark.parametrize("program", [*KEYED.values(), added], ids=[*KEYED, "add"])
@pytest.mark.parametrize(
    "make", [Marked, lambda: torch.ones(2), lambda: adding(1)], ids=["object", "tensor", "function"]
)
def test_keys_that_are_the_same_object_or_not(program, make):
    compiled = torch.compile(lambda x, a, b: (x + 1, program(a, b)))
    one = make()
    for pair in ((make(), make()), (one, one), (make(), make()), (one, one)):
        assert compiled(X, *pair)[1] == program(*pair)


MODULE = torch.nn.Linear(2, 2)
WITH_A_PARAMETER = {
    "get": lambda a: {a: 1}.get(MODULE.weight),
    "asked for": lambda a: {MODULE.weight: 1}.get(a),
    "sets": lambda a: (len({a, MODULE.weight}), len({a} & {MODULE.weight}), {a} == {MODULE.weight}),
    "added": lambda a: (lambda s: (s.add(MODULE.weight), len(s)))({a}),
}


@pytest.mark.parametrize("program", WITH_A_PARAMETER.values(), ids=WITH_A_PARAMETER)
def test_keys_that_are_a_parameter_of_a_module_or_not(program):
    compiled = torch.compile(lambda x, a: (x + 1, program(a)))
    for a in (torch.nn.Parameter(torch.ones(2)), MODULE.weight) * 2:
        assert compiled(X, a)[1] == program(a)


def asked_and_put(table, a, b):
    table[a] = 1
    return table.get(a), b in table, table.get(b, 5)


def put_where_missing(table, a, b):
    for k in (a, b):
        if k not in table:
            table[k] = [3]
    return table[a], table[b]


@pytest.mark.parametrize("program", [asked_and_put, put_where_missing], ids=lambda f: f.__name__)
@pytest.mark.parametrize("make", [Marked, lambda: torch.ones(2)], ids=["object", "tensor"])
def test_keys_of_a_dictionary_from_outside(program, make):
    """Which of them are there is guarded, and which are the same object; not which objects they are."""
    compiled = torch.compile(lambda x, table, a, b: (x + 1, program(table, a, b)), fullgraph=True)
    captures = []
    for _ in range(3):
        for same_key, there in [(False, True), (True, True), (False, False), (True, False)]:
            a, b = make(), make()
            pair = (a, a) if same_key else (a, b)
            expected, found = ({pair[1]: 7} if there else {} for _ in range(2))
            result = program(expected, *pair)
            assert compiled(X, found, *pair)[1] == result and list(found.items()) == list(expected.items())
        captures.append(compiled.captures)
    assert captures[1] == captures[2]


def test_an_item_of_a_key_that_may_have_been_put():
    def program(x, table, a, b):
        table[a] = 1
        return x + table[b]

    compiled = torch.compile(program, fullgraph=True)
    for _ in range(2):
        a, b = torch.ones(2), torch.ones(2)
        assert compiled(X, {b: 7}, a, b).tolist() == [8.0, 8.0]
        assert compiled(X, {b: 7}, b, b).tolist() == [2.0, 2.0]


def test_a_missing_key_of_a_defaultdict():
    compiled = torch.compile(lambda x, table, key: (x, table[key].append(x)), fullgraph=True)
    table = collections.defaultdict(list)
    keys = [torch.ones(2) for _ in range(3)]
    for key in keys:
        compiled(X, table, key)
        compiled(X, table, key)
    assert [len(table[key]) for key in keys] == [2, 2, 2] and compiled.captures == 2


def counted_in_an_item(items, x):
    items[0] += 1
    items[0] += 1
    return x * 2 if items[0] % 4 else x * 3


def last_of_what_was_appended(items, x):
    items.append(x + 1)
    items.append(x)
    return items[-1], items[-2]


def items_behind_changes(items, x):
    items[1] = x
    first = items[1], items[0], items[-1]
    items.insert(0, 5)
    return first, items[1], items[-1], items[-2], len(items)


@pytest.mark.parametrize(
    ("program", "captures"), [(counted_in_an_item, 4), (last_of_what_was_appended, 1), (items_behind_changes, 100)]
)
def test_items_that_the_region_has_put(program, captures):
    """They are what they are, whatever the list holds beside them."""
    compiled = torch.compile(program, fullgraph=True)
    mine, theirs = [3, 4, 5], [3, 4, 5]
    for _ in range(12):
        expected = program(mine, X)
        assert str(compiled(theirs, X)) == str(expected) and str(theirs) == str(mine)
    assert compiled.captures <= captures


def same(a, b):
    if isinstance(a, torch.Tensor):
        return type(b) is type(a) and torch.equal(a, b)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return a == b


@pytest.mark.parametrize("name", CASES)
def test_what_is_guarded(name):
    program, arguments, captures = CASES[name]
    compiled = torch.compile(program, backend="eager", fullgraph=True)
    for k in range(4):
        assert same(compiled(*arguments(k)), program(*arguments(k)))
    assert compiled.captures == captures, compiled.recompiles()


def test_attributes_and_texts_of_a_function_made_for_each_call():
    compiled = torch.compile(lambda x, f: (f(x), f.__name__, str(f), f"{f}", f.__closure__[0].cell_contents))
    for k in range(3):
        function = adding(k)
        function.__name__ = f"name{k}"
        assert compiled(X, function)[1:] == (f"name{k}", str(function), str(function), k)


def test_a_function_with_attributes_is_that_one():
    compiled = torch.compile(lambda x, f: f(x))
    kept_out = torch.compiler.disable(adding(2))
    assert compiled(X, adding(1)).sum() == 4 and compiled(X, kept_out).sum() == 6 and compiled.breaks == 1


def test_a_proxy_stays_a_proxy():
    def program(x, m):
        try:
            m["a"] = 1
        except TypeError:
            return x, hasattr(m, "update"), type(m).__name__, isinstance(m, dict)

    for _ in range(2):
        assert torch.compile(program)(X, PROXY({"a": 2}))[1:] == (False, "mappingproxy", False)


def test_a_missing_key_is_an_error():
    compiled = torch.compile(lambda d, key: d[key])
    key = Marked()
    assert compiled({key: 1}, key) == 1
    with pytest.raises(KeyError):
        compiled({}, key)


class Items(list):
    pass


class Members(set):
    pass


class Added(list):
    """Has an operation of its own."""

    def __iadd__(self, more):
        super().__iadd__(more)
        return super().__iadd__([len(self)])


class Reflected:
    """What makes something new of `list += self`."""

    def __radd__(self, other):
        return [*other, 9]


def in_place(o, kind):
    if kind == "repeat":
        o *= 2
    elif kind == "add":
        o += [3]
    elif kind == "or":
        o |= {"b": 3} if isinstance(o, dict) else {3}
    elif kind == "and":
        o &= {1, 7}
    elif kind == "sub":
        o -= {1}
    else:
        o ^= {1, 5}
    return o, len(o)


@pytest.mark.parametrize(
    "make, kinds",
    [
        (lambda k: [1, 2], "repeat add"),
        (lambda k: Items([k, 2]), "repeat add"),
        (lambda k: Added([k, 2]), "repeat add"),
        (lambda k: {1, 2}, "or and sub xor"),
        (lambda k: Members([1, k]), "or and sub xor"),
        (lambda k: {"a": 1, "b": k}, "or"),
        (lambda k: collections.OrderedDict(b=1, a=k), "or"),
        (lambda k: collections.Counter(a=k, b=9), "or"),
        (lambda k: collections.defaultdict(list, b=k), "or"),
    ],
    ids=["list", "a list's", "with its own", "set", "a set's", "dict", "OrderedDict", "Counter", "defaultdict"],
)
def test_operations_that_change_what_comes_from_outside(make, kinds):
    for kind in kinds.split():
        compiled = torch.compile(lambda x, o, kind=kind: (x + 1, in_place(o, kind)), fullgraph=True)
        for k in (1, 1, 4, 1):
            given, plain = make(k), make(k)
            result, wanted = compiled(X, given)[1], in_place(plain, kind)
            assert result == wanted and result[0] is given and given == plain and list(given) == list(plain)


class Doubled(list):
    """Has methods of its own."""

    def append(self, value):
        super().append(value * 2)

    def __len__(self):
        return 100 + super().__len__()

    def __iter__(self):
        return (value + 1 for value in super().__iter__())


class Shifted(set):
    def add(self, value):
        super().add(value * 2)

    def __contains__(self, value):
        return super().__contains__(value + 1)


def changed_list(o):
    o.append(3)
    o.sort()
    o.insert(0, 7)
    o.reverse()
    o.remove(7)
    o[0:1] = [4, 5]
    return len(o), o[0], sum(o), o.index(2), o.pop(), list(o), o == [5], bool(o)


def changed_set(o):
    o.add(3)
    o.update([7])
    o.discard(1)
    o.remove(2)
    return len(o), 3 in o, sorted(o), o | {9}, bool(o), o.issubset({4})


@pytest.mark.parametrize("kind", [Items, Doubled, Members, Shifted])
def test_containers_of_classes_that_derive_from_list_and_set(kind):
    program = changed_list if issubclass(kind, list) else changed_set
    compiled = torch.compile(lambda x, o: (x + 1, program(o)), fullgraph=True)
    for items in ([1, 2], [1, 2], [2, 4, 1], [1, 2]):
        given, plain = kind(items), kind(items)
        assert compiled(X, given)[1] == program(plain) and given == plain


def test_an_operation_in_place_that_the_other_operand_does():
    def program(x, o):
        before = o
        o += Reflected()
        return x + len(o), o is before

    compiled = torch.compile(program)
    for _ in range(3):
        given = [1]
        assert compiled(X, given)[1] is program(X, given)[1] is False and given == [1]


TEXTS = {
    "str": lambda o: str(o),
    "in a list": lambda o: repr([o, {1: (o,)}]),
    "an f-string": lambda o: f"{o} {[o]!r:>5}",
    "percent": lambda o: "%s %r" % (o, [o]),
    "format": lambda o: "{} {o}".format(o, o=[o]),
    "a method of it": lambda o: str(o.__init__),
}


@pytest.mark.parametrize("program", TEXTS.values(), ids=TEXTS)
def test_texts_of_objects_that_tell_their_addresses(program):
    compiled = torch.compile(lambda x, o: (x + 1, program(o)))
    kept = [Holder(), Holder(), Holder()]
    for o in (*kept, kept[0]):
        assert compiled(X, o)[1] == program(o)


def test_counters_count_item_by_item():
    kept = collections.Counter(a=1)

    def f(x, words):
        kept.update(words)
        kept.subtract({"a": 1})
        kept.update(b=2)
        both = kept + collections.Counter(words)
        return x * kept["a"] + len(both), both.most_common(1)[0][0]

    given = [["a", "b"], ["a", "c", "a"], ["a", "b"], ["a", "d", "a"], ["a", "a"], ["a", "b"]]
    expected = [(f(torch.ones(1), words), dict(kept)) for words in given]
    kept.clear()
    kept["a"] = 1
    compiled = torch.compile(f, fullgraph=True)
    for words, ((y, word), counts) in zip(given, expected, strict=True):
        found = compiled(torch.ones(1), words)
        assert found[0].item() == y.item() and found[1] == word and dict(kept) == counts
    assert not compiled.breaks


def test_a_counter_of_a_class_with_a_method_of_its_own():
    class Loud(collections.Counter):
        said = []

        def __setitem__(self, key, value):
            self.said.append(key)
            super().__setitem__(key, value)

    def f(x, words):
        counts = Loud(words)
        return x * counts["a"]

    compiled = torch.compile(f)
    for words in ("aba", "aa", "aba"):
        assert compiled(torch.ones(1), words).item() == words.count("a")
    assert Loud.said == [*"abaaaaba"]
