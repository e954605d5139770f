"""Code of the program that guards or captures would have to run (caches, hashes of keys): it is run as often as in the plain
run, also where guards do not hold and the function is captured again."""

import collections
import functools

import pytest

import wick

COUNTS = collections.Counter()


@functools.lru_cache(maxsize=None)
def table(n, kind="a"):
    COUNTS["table"] += 1
    return (n, kind)


@functools.lru_cache(maxsize=2)
def scale(n):
    COUNTS["scale"] += 1
    return [float(n)]


@functools.lru_cache(maxsize=None)
def refused(n):
    COUNTS["refused"] += 1
    raise ValueError(n)


class Key:
    def __init__(self, value):
        self.value = value

    def __hash__(self):
        COUNTS["hash"] += 1
        return hash(self.value)

    def __eq__(self, other):
        COUNTS["eq"] += 1
        return self.value == other.value


FIRST, SECOND = Key(1), Key(2)
TABLE = {FIRST: 2.0, SECOND: 3.0}


def of_an_argument(x, n):
    return x * table(n)[0]


def of_constants(x, n):
    return x * n * table(3, kind="b")[0] + len(table("a"))


def several(x, n):
    y = x * table(1)[0] * n
    return y + scale(2)[0] + table(n)[0] if x.shape[0] > 2 else y - scale(n)[0]


def evicted(x, n):
    return x * scale(n)[0] * scale(7)[0] * scale(8)[0]


def cleared(x, n):
    if n == 4:
        table.cache_clear()
    return x * table(2)[0] * n


def raising(x, n):
    try:
        return x * refused(n)
    except ValueError as error:
        return x + error.args[0]


def items_by_key(x, n):
    return x * TABLE[FIRST] * (SECOND in TABLE) + n


def all_items(x, n):
    return sum(x * v for v in TABLE.values()) + sum(k.value for k in TABLE) * n


PROGRAMS = [of_an_argument, of_constants, several, evicted, cleared, raising, items_by_key, all_items]
CALLS = [(2, 3), (2, 3), (2, 4), (3, 4), (3, 5), (3, 3), (2, 5), (4, 6), (4, 7), (2, 3)]


def runs(function):
    seen = []
    for cache in (table, scale, refused):
        cache.cache_clear()
    for rows, n in CALLS:
        COUNTS.clear()
        result = function(wick.ones(rows), n).tolist()
        seen.append((result, dict(COUNTS), table.cache_info(), scale.cache_info(), refused.cache_info()))
    return seen


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_the_programs_code_runs_as_often_as_plainly(function):
    assert runs(wick.compile(function)) == runs(function)


def test_a_key_with_a_hash_of_python_is_found_again_in_one_graph():
    compiled = wick.compile(items_by_key, fullgraph=True)
    for value in (2.0, 5.0, 5.0):
        TABLE[FIRST] = value
        assert compiled(wick.ones(1), 1).item() == value + 1
    TABLE[FIRST] = 2.0


def test_sizes_are_keys_of_a_cache_in_one_graph():
    compiled = wick.compile(lambda x: x * table(x.shape[0])[0], fullgraph=True)
    for rows in (2, 3, 4, 5, 3, 2):
        assert compiled(wick.ones(rows)).tolist() == [float(rows)] * rows
    compiled = wick.compile(lambda x, rate: x * table(rate)[0], fullgraph=True)
    for rate in (0.5, 0.25, 1.5, 0.5):
        assert compiled(wick.ones(1), rate).item() == rate
