"""Functions for test_evaluator.py: together they use every instruction that is evaluated, in all its forms.

Each case is run once by Python and once by the evaluator, left to Python after every number of instructions. Trackers
count themselves, so that a reference too many or too few shows.
"""

# Odd code on purpose:
# ruff: noqa

import asyncio
import collections
import contextlib
import dataclasses
import functools
import sys
import types
import typing

CASES = []


class Case(typing.NamedTuple):
    function: typing.Callable
    arguments: typing.Callable  # () -> tuple
    keywords: dict
    code: types.CodeType  # whose frames are evaluated


def case(arguments=lambda: (Tracker(3),), keywords=None, code=None):
    def add(function):
        CASES.append(Case(function, arguments, keywords or {}, code or getattr(function, "__code__", None)))
        return function

    return add


class Tracker:
    live = 0

    def __init__(self, v):
        self.v = v
        Tracker.live += 1

    def __del__(self):
        Tracker.live -= 1

    def __add__(self, other):
        return Tracker(self.v + (other.v if isinstance(other, Tracker) else other))

    __radd__ = __add__

    def __eq__(self, other):
        return isinstance(other, Tracker) and self.v == other.v

    def __lt__(self, other):
        return self.v < other.v

    def __hash__(self):
        return hash(self.v)

    def __repr__(self):
        return f"T({self.v})"

    def __bool__(self):
        return self.v != 0

    def method(self, a, *rest, k=1, **more):
        return Tracker(self.v + a + k + sum(rest) + sum(more.values()))

    @property
    def doubled(self):
        return Tracker(self.v * 2)


class Manager:
    def __init__(self, log, swallow=False):
        self.log, self.swallow = log, swallow

    def __enter__(self):
        self.log.append("in")
        return Tracker(7)

    def __exit__(self, kind, value, traceback):
        self.log.append(("out", kind and kind.__name__, traceback and traceback.tb_lineno))
        return self.swallow


def boom(x, *, message="boom"):
    raise ValueError(message, x)


def keyword_function(a, b=2, *args, c, d=4, **more):
    return (a, b, args, c, d, sorted(more.items()))


GLOBAL = 10

# ---- arithmetic, comparisons, control flow ----


@case(lambda: (Tracker(1), Tracker(2)))
def arithmetic(a, b):
    x = a + b
    y = x + 3
    z = -1 if y < x else +2
    return [x, y, z, ~z, +z, not x, a == b, a is b, a is not b, 3 in [1, 2, 3], 3 not in [1, 2, 3]]


@case(lambda: (7, 3))
def all_operators(a, b):
    out = [a + b, a - b, a * b, a / b, a // b, a % b, a**b, a << b, a >> b, a & b, a | b, a ^ b]
    c = a
    c += b
    c -= 1
    c *= b
    c **= 2
    c //= 3
    c %= 1000
    c <<= 2
    c >>= 1
    c &= 0xFF
    c |= 0x100
    c ^= 5
    d = c
    d /= 2
    return out, c, d, a < b, a <= b, a > b, a >= b, a != b


class Matrix:
    def __matmul__(self, other):
        return ("matmul", other)

    def __imatmul__(self, other):
        return ("imatmul", other)


@case()
def matrix_operators(x):
    m = Matrix()
    a = m @ x
    m @= x
    return a, m


@case()
def operator_errors(x):
    out = []
    for attempt in (lambda: x - 1, lambda: -x, lambda: x[0], lambda: x < 1, lambda: 1 in x, lambda: x()):
        try:
            out.append(attempt())
        except (TypeError, AttributeError) as e:
            out.append(str(e))
    return out


@case()
def chained_comparisons(x):
    n = x.v
    return [1 < n < 5, 1 < n > 5 < n, 0 == n == 0, x == x != 4, (1 < n < 3) or (n < 4 <= 9)]


@case()
def walrus(x):
    if (n := x.v) > 2 and (m := n + 1):
        out = [y := 1, y**2, (z := x)]
    while (n := n - 1) > 0:
        out.append(n)
    return out, m, z, [last := i for i in range(3)], last


@case(lambda: (6,))
def loops(n):
    out = []
    for i in range(n):
        for j in [Tracker(1), Tracker(2)]:
            if i == 2:
                continue
            for k in (i, j):
                out.append(k)
            if i == 4:
                break
        else:
            out.append("else")
    while n > 0:
        n -= 1
        if n == 1:
            break
    else:
        out.append("never")
    return out, n


@case()
def conditions(x):
    w = 10
    nothing = None
    out = [x and w, x or w, (w if x else 0), nothing or x, nothing and x]
    out.append(None if x is None else 1)
    out.append(x is not None)
    i = 0
    while x is not None:
        i += 1
        if i > 2:
            x = None
    while x is None:
        x = w
    while not out:
        pass
    while True:
        if i == 0:
            break
        i -= 1
    return out, x, i


class BadTruth:
    def __bool__(self):
        raise ZeroDivisionError("no truth")


@case()
def bad_truth(x):
    out = []
    for kind in range(4):
        try:
            if kind == 0 and BadTruth():
                out.append(1)
            elif kind == 1:
                out.append(not BadTruth())
            elif kind == 2:
                out.append(BadTruth() or x)
            else:
                while BadTruth():
                    pass
        except ZeroDivisionError as e:
            out.append((kind, e.__traceback__.tb_lineno))
    return out


# ---- names ----


@case()
def unbound_local(x):
    y = Tracker(2)
    del y
    x = x + 1
    return len([y])  # not a bare y: Python's fused STORE_FAST__LOAD_FAST would blame the line before once it is warm


@case()
def unbound_delete(x):
    y = x
    del y
    del y


@case()
def unbound_cell(x):
    def inner():
        return y

    out = []
    try:
        inner()
    except NameError as e:
        out.append((str(e), e.name))
    y = x
    out.append(inner())
    del y
    try:
        out.append(y)
    except UnboundLocalError as e:
        out.append(str(e))
    try:
        del y
    except UnboundLocalError as e:
        out.append(str(e))
    return out


@case()
def globals_(x):
    global GLOBAL, MADE
    GLOBAL = GLOBAL + 1
    v = GLOBAL
    GLOBAL = 10
    MADE = x
    made = MADE
    del MADE
    out = []
    try:
        undefined_name_zzz
    except NameError as e:
        out.append((str(e), e.name))
    try:
        del MADE
    except NameError as e:
        out.append((str(e), e.name))
    return v, made, out, len([1]), ValueError


@case()
def closures(x, y=3):
    z = Tracker(2)

    def inner(a, *, b=z):
        nonlocal z
        z = z + 1
        return x + a + b + z + y

    r = inner(1)
    x = Tracker(50)
    r2 = inner(2, b=4)
    return r, r2, z, x, (lambda: (x, z, y))()


def make_free():
    fv = Tracker(100)
    gv = [Tracker(1)]

    def free(a, *args, k, **more):
        nonlocal fv
        fv = Tracker(fv.v + len(args))
        gv.append(a)
        loc = [fv for _ in range(2)]
        t = Tracker(fv.v)
        fv = Tracker(100)
        gv.pop()
        return t, list(gv), loc, args, more, k

    return free


case(lambda: (Tracker(3), 1, Tracker(2)), {"k": 5, "w": 6})(make_free())


@case()
def lambda_defaults(x):
    adders = [lambda a, n=n, *r, k=x, **m: (a + n, r, k, m) for n in range(3)]
    return [f(x) for f in adders], adders[1](1, 2, 3, k=4, q=5)


@case()
def annotated(x):
    def inner(a: int, b: "str" = "b", *c: float, d: Tracker = x, **e: dict) -> list:
        local: int = a
        return local, b, c, d, e

    return inner(1), inner.__annotations__, inner.__defaults__, inner.__kwdefaults__


def logged(log):
    def decorate(function):
        @functools.wraps(function)
        def wrapper(*args, **keywords):
            log.append(function.__name__)
            return function(*args, **keywords)

        return wrapper

    return decorate


@case()
def decorators(x):
    log = []

    @logged(log)
    @functools.lru_cache
    @logged(log)
    def f(a):
        return a + x

    return f(1), f(1), log, f.__name__


# ---- calls ----


@case()
def calls(x):
    r = keyword_function(1, c=x, e=5)
    s = keyword_function(1, 2, 3, 4, c=Tracker(1), d=x)
    d = {"c": 9, "q": x}
    t = keyword_function(*[1, 2, 3], **d)
    u = keyword_function(*range(2), *(3,), c=1, **{"z": 1}, **{"y": x})
    m = x.method(1, 2, k=5, z=2)
    bound = x.method
    return r, s, t, u, m, x.method(1), bound(2), x.doubled, len(*[[1]]), dict(**d)


@case()
def call_errors(x):
    out = []
    attempts = (
        lambda: keyword_function(),
        lambda: keyword_function(1),
        lambda: keyword_function(1, c=1, **{"c": 2}),
        lambda: keyword_function(*1, c=1),
        lambda: keyword_function(*[1], **3),
        lambda: keyword_function(**{1: 2}),
        lambda: boom(1, 2),
        lambda: len(1, 2),
        lambda: x.nothing(1),
        lambda: {**1},
        lambda: [*1],
        lambda: (*x,),
        lambda: {*3},
    )
    for attempt in attempts:
        try:
            out.append(attempt())
        except (TypeError, AttributeError) as e:
            out.append(str(e))
    return out


class Truth:
    """What a comparison gives: asked for its truth it says so."""

    def __init__(self, log, truth):
        self.log, self.truth = log, truth

    def __bool__(self):
        self.log.append(self.truth)
        if self.truth is None:
            raise OverflowError("neither")
        return self.truth


class Compared:
    def __init__(self, log):
        self.log = log

    def __lt__(self, truth):
        self.log.append("compared")
        return Truth(self.log, truth)


@case()
def comparisons_that_give_objects(x):
    log, out = [], []
    c = Compared(log)
    for truth in (True, False, None):
        try:
            if c < truth:
                out.append("if")
            out.append(not (c < truth))
            while c < truth:
                out.append("while")
                break
            out.append((c < truth) and 3)
            out.append((c < truth) or 4)
        except OverflowError as e:
            out.append(str(e))
    try:
        not_ = not (c < None)
    except OverflowError as e:
        not_ = str(e)
    return [o if isinstance(o, (int, str)) else type(o).__name__ for o in out], log, not_


class Mapping:
    def keys(self):
        return ["a", "b"]

    def __getitem__(self, key):
        return key * 2


@case(lambda: (Tracker(3), 4, 5), {"k": 6})
def spreads(x, *a, **k):
    m = Mapping()
    return [*a, x, *[1, 2]], {**k, "z": x, **m}, {*a, 1}, (x, *a), keyword_function(*a, c=x, **m)


@case()
def big_displays(x):
    # More than 30 items are made in pieces; all of these are not constants.
    y = x.v
    big = [y, y + 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27]
    table = {"a": y, "b": x, "c": 3, "d": [x]}
    table2 = {1: x, y: 2, x: 3}
    return big, table, table2, {1: 2, 3: 4}, (1, x), {x, y}, [1, 2, 3], {1, 2, 3}, [], {}, ()


@case()
def unhashable(x):
    out = []
    for attempt in (lambda: {[]: x}, lambda: {x, []}, lambda: {[]: 1 for _ in [x]}, lambda: {[] for _ in [x]}):
        try:
            attempt()
        except TypeError as e:
            out.append(str(e))
    return out


EXTENDED = {f"name_{i}": i for i in range(300)}


def make_extended():
    # So many names, constants and locals that instructions need EXTENDED_ARG, jumps too.
    lines = ["def extended(x):", "  out = []", "  for turn in range(2):", "    try:"]
    lines += [f"      local_{i} = {i}.5 + EXTENDED['name_{i}']" for i in range(290)]
    lines += [
        "      if turn: x.missing",
        "      out.append((local_289, local_3))",
        "      out.append(dict(k=x, l=local_4))",
    ]
    lines += ["    except AttributeError as e: out.append(e.__traceback__.tb_lineno)", "  return out, x"]
    namespace = {"EXTENDED": EXTENDED}
    exec("\n".join(lines), namespace)
    return namespace["extended"]


case(lambda: (Tracker(1),))(make_extended())

# ---- items, attributes, unpacking ----


@case()
def items(x):
    d = {"a": Tracker(1), x: 2}
    d["b"] = x
    del d["a"]
    d["b"] += 1
    values = [1, 2, 3, 4, 5, 6]
    values[1:3] = [x, x]
    values[::2] = [0, 0, 0]
    del values[-1:]
    x.attribute = Tracker(11)
    x.attribute.v += 1
    t = x.attribute
    del x.attribute
    return d, values, t, values[1:], values[:2], values[::2], "abc"[-1]


@case()
def item_errors(x):
    out = []

    def delete(c, k):
        del c[k]

    def store(c, k):
        c[k] = x

    def delete_attribute():
        del x.nothing

    def store_attribute():
        (1).nothing = x

    for attempt in (
        lambda: {}[x],
        lambda: [][1],
        lambda: delete({}, 1),
        lambda: delete((1,), 0),
        lambda: store((1,), 0),
        lambda: store({}, []),
        delete_attribute,
        store_attribute,
        lambda: x.nothing,
    ):
        try:
            out.append(attempt())
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    return out


@case()
def unpacking(x):
    a, b = (x, 1)
    c, d = [x, 2]
    e, f, g = "abc"
    (h, i), *j = [(1, 2), 3, x]
    *k, m = range(3)
    n, *o, p, q = iter([1, 2, x, 4, 5])
    [r] = {x: 1}
    s = t = u = x
    a, b = b, a
    a, b, c = c, a, b
    for v, (w, *y) in [(1, (2, 3)), (x, "pq")]:
        pass
    a1, a2, a3, a4, a5, a6, a7, a8, a9, b1, b2, b3, b4, b5, b6, b7, b8, *b9 = range(20)
    return a, b, c, d, e, f, g, h, i, j, k, m, n, o, p, q, r, s, t, u, v, w, y, b7, b9


def fails_after(n):
    yield from range(n)
    raise KeyError("iterator")


@case()
def unpacking_errors(x):
    out = []

    def two(v):
        a, b = v

    def ends(v):
        a, *b, c, d = v

    for function, value in (
        (two, 1),
        (two, [x]),
        (two, (1, 2, 3)),
        (two, iter("abc")),
        (two, fails_after(1)),
        (two, fails_after(2)),
        (ends, [1, 2]),
        (ends, iter([])),
        (ends, x),
        (ends, fails_after(4)),
    ):
        try:
            function(value)
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    return out


class Descriptor:
    def __get__(self, instance, owner):
        return ("get", instance is None, owner.__name__)

    def __set__(self, instance, value):
        instance.log.append(("set", value))

    def __delete__(self, instance):
        instance.log.append("delete")


class Dynamic:
    slot = Descriptor()

    def __init__(self):
        self.log = []

    def __getattr__(self, name):
        if name.startswith("bad"):
            raise AttributeError("no " + name)
        return (name, self.log)

    @classmethod
    def make(cls, x):
        return cls, x

    @staticmethod
    def static(x):
        return x

    @property
    def prop(self):
        return self.log

    @prop.setter
    def prop(self, value):
        self.log = [value]

    def __call__(self, *args, **keywords):
        return args, keywords


@case()
def descriptors(x):
    d = Dynamic()
    d.slot = x
    del d.slot
    first = list(d.log)
    d.prop = x
    out = [d.slot, Dynamic.slot, d.anything, d.make(x), d.static(x), Dynamic.make(x)[1], d.prop, d(x, k=1)]
    try:
        d.bad_name
    except AttributeError as e:
        out.append(str(e))
    d.instance_function = lambda *a: a
    out.append(d.instance_function(x))
    return out, first


class Base:
    def m(self, x):
        return ("base", x)

    @classmethod
    def c(cls, x):
        return (cls.__name__, x)


class Sub(Base):
    def m(self, x):
        a = Tracker(1)
        r = super().m(x)
        b = super(Sub, self).m(a)
        return r, b, self.__class__.__name__, __class__.__name__, super().c(x)


@case(code=Sub.m.__code__)
def super_calls(x):
    return Sub().m(x)


# ---- text ----


@case()
def f_strings(x):
    w = 10
    name = "é"
    s = f"{x!r:>{w}} {x} {w:04d} {'q'!s} {name!a} {w!r} {w=} {x.v=:>5} {{}} {w:{'>'}{6}}"
    s += "%d %s" % (w, x)
    assert w == 10, "no"
    return s, f"", f"{s}", f"{x}{w}"


@case()
def format_errors(x):
    out = []
    for attempt in (lambda: f"{x:d}", lambda: f"{1:q}", lambda: f"{BadTruth()!r:10}"):
        try:
            out.append(attempt()[:10])
        except (TypeError, ValueError) as e:
            out.append(str(e))
    return out


@case()
def assertion(x):
    v = Tracker(3)
    assert x.v == 3
    assert x.v == 99, f"bad {x.v}"
    return v


# ---- comprehensions ----


@case(lambda: (5,))
def comprehensions(n):
    a = [i * n for i in range(n) if i % 2]
    b = {i: Tracker(i) for i in range(n)}
    c = {i for i in a}
    g = sum(i for i in range(n))
    e = [(x, y) for x in range(2) for y in "ab" if x or y]
    f = [[Tracker(i + j) for j in range(i)] for i in range(3)]
    h = {k: {v for v in range(k)} for k in range(3)}
    return a, b, c, g, e, f, h, [i for row in f for i in row]


# ---- exceptions ----


@case()
def try_except(x):
    r = []
    try:
        r.append(Tracker(1))
        boom(x, message="m1")
        r.append("no")
    except (KeyError, ValueError) as e:
        r.append(e.args)
        r.append(e.__traceback__.tb_lineno)
    else:
        r.append("else")
    finally:
        r.append("fin")
    try:
        try:
            x.nope
        finally:
            r.append("fin2")
    except AttributeError as e2:
        r.append((type(e2).__name__, e2.__traceback__.tb_lineno, e2.__context__))
    try:
        r.append("fine")
    except Exception:
        r.append("never")
    else:
        r.append("else2")
    finally:
        r.append("fin3")
    return r


@case(lambda: (1,))
def nested_exceptions(x):
    r = []
    for i in range(3):
        try:
            try:
                if i == 1:
                    raise KeyError(i)
                if i == 2:
                    boom(i)
                r.append(i)
            except KeyError as e:
                r.append(sys.exc_info()[0].__name__)
                raise RuntimeError("wrap") from e
        except RuntimeError as e:
            r.append((str(e), repr(e.__cause__), repr(e.__context__)))
            r.append(sys.exc_info()[1] is e)
        except ValueError as e:
            r.append(repr(e))
            r.append(repr(e.__context__))
    r.append(sys.exc_info())
    return r


@case(lambda: (Tracker(1),))
def raise_deep(x):
    y = Tracker(5)
    z = [y, x]
    for q in z:
        w = q + 1
        if w.v > 5:
            boom(w, message="deep")
    return z


@case(lambda: (Tracker(1),))
def raise_through_finally(x):
    y = Tracker(5)
    try:
        for i in range(2):
            y = y + i
        raise KeyError(y.v)
    finally:
        y = y + x


@case()
def raise_attribute(x):
    a = [1, 2, Tracker(3)]
    # fmt: off
    return (
        a[2].nothing
        + x
    )
    # fmt: on


@case()
def raise_forms(x):
    out = []
    for kind in range(9):
        try:
            if kind == 0:
                raise ValueError
            if kind == 1:
                raise ValueError("x") from None
            if kind == 2:
                raise ValueError("x") from KeyError
            if kind == 3:
                raise ValueError from KeyError("cause")
            if kind == 4:
                raise 3
            if kind == 5:
                raise ValueError from 3
            if kind == 6:
                raise
            if kind == 7:
                raise WrongClass
            try:
                raise KeyError(x)
            except KeyError:
                raise TypeError("in handler")
        except Exception as e:
            out.append((type(e).__name__, str(e), repr(e.__cause__), repr(e.__context__), e.__suppress_context__))
    return out


class WrongClass(Exception):
    def __new__(cls, *args):
        return 5


@case()
def bad_catch(x):
    try:
        try:
            boom(x)
        except (KeyError, 3):
            pass
    except TypeError as e:
        return str(e), repr(e.__context__)


@case()
def return_in_finally(x):
    def swallow():
        try:
            boom(x)
        finally:
            return "swallowed"

    def override():
        try:
            return x
        finally:
            return "override"

    def loop():
        for i in range(3):
            try:
                continue
            finally:
                if i == 1:
                    break
        return i

    return swallow(), override(), loop()


@case()
def return_in_finally_itself(x):
    for i in range(4):
        try:
            if i == 2:
                boom(x)
        finally:
            if i == 3:
                return x, i
            if i == 2:
                continue


@case()
def while_try(x):
    n = 0
    r = []
    while True:
        try:
            n += 1
            if n == 2:
                continue
            if n == 5:
                break
            if n == 3:
                x.foo
            r.append(n)
        except AttributeError:
            r.append("attr")
        finally:
            r.append(-n)
    return r, n


@case()
def bare_raise(x):
    r = []
    try:
        try:
            boom(x)
        except ValueError:
            r.append(1)
            raise
    except ValueError as e:
        tb = e.__traceback__
        while tb:
            r.append(tb.tb_lineno)
            tb = tb.tb_next
    return r


def raise_present():
    raise


@case()
def bare_raise_elsewhere(x):
    try:
        boom(x)
    except ValueError:
        raise_present()


@case()
def escapes_handler(x):
    try:
        boom(x)
    except KeyError:
        pass
    except ValueError as e:
        e.add_note("note")
        y = Tracker(9)
        raise LookupError(y) from e


@case()
def traceback_frames(x):
    try:
        raise_deep(x)
        boom(x)
    except ValueError as e:
        tb = e.__traceback__
    out = []
    while tb:
        out.append((tb.tb_frame.f_code.co_name, tb.tb_lineno, sorted(tb.tb_frame.f_locals)))
        tb = tb.tb_next
    return out


# ---- exception groups ----


def group(*members):
    return ExceptionGroup("group", list(members))


@case()
def except_star(x):
    out = []
    for kind in range(7):
        try:
            try:
                if kind == 0:
                    raise group(ValueError(1), KeyError(x), group(ValueError(2), TypeError(3)))
                if kind == 1:
                    raise ValueError("naked")
                if kind == 2:
                    raise group(KeyError(1))
                if kind == 3:
                    raise TypeError("not caught")
                if kind == 4:
                    raise group(TypeError(1), OSError(2))
                if kind == 5:
                    raise group(ValueError("again"), LookupError("raise"), OSError("rest"))
                out.append("fine")
            except* ValueError as e:
                out.append(("value", repr(e), sys.exc_info()[1] is e))
                if kind == 5:
                    raise
            except* (KeyError, IndexError) as e:
                out.append(("key", repr(e)))
            except* LookupError as e:
                raise RuntimeError("new") from e
            else:
                out.append("else")
            finally:
                out.append("finally")
        except BaseException as e:
            out.append((repr(e), repr(e.__cause__), repr(e.__context__)))
    return out


@case()
def except_star_escapes(x):
    try:
        raise group(ValueError(x), TypeError(x), group(KeyError(1), ValueError(2)))
    except* ValueError:
        raise
    except* TypeError as e:
        e.add_note("noted")
        raise OSError("other")


@case()
def except_star_bad(x):
    out = []
    for bad in (ExceptionGroup, 3, (ValueError, BaseExceptionGroup)):
        try:
            try:
                raise group(ValueError(x))
            except* bad:
                pass
        except TypeError as e:
            out.append(str(e))
    return out


# ---- with ----


@case()
def with_(x):
    log = []
    with Manager(log) as a, Manager(log, True) as b:
        log.append((a, b))
        x = x + a
        boom(x)
    with Manager(log):
        log.append("ok")
    with (
        Manager(log) as (c),
        contextlib.suppress(KeyError),
        contextlib.ExitStack() as stack,
    ):
        stack.enter_context(Manager(log))
        {}[c]
    try:
        with Manager(log):
            raise KeyError("k")
    except KeyError:
        log.append("caught")
    return log, x


@case()
def with_errors(x):
    class NoExit:
        def __enter__(self):
            return self

    class BadEnter:
        def __enter__(self):
            boom(x)

        def __exit__(self, *exception):
            raise AssertionError("not entered")

    class BadExit:
        def __enter__(self):
            return x

        def __exit__(self, *exception):
            raise OSError("exit")

    out = []
    for manager in (3, NoExit(), BadEnter(), BadExit()):
        try:
            with manager:
                x.nothing
        except Exception as e:
            out.append((type(e).__name__, str(e), repr(e.__context__)))
    return out


@case()
def return_in_with(x):
    r = []
    try:
        for i in range(5):
            with Manager(r):
                if i == 2:
                    return x + i, r
                if i == 1:
                    continue
    finally:
        r.append("F")


@contextlib.contextmanager
def generated(log):
    log.append("enter")
    try:
        yield Tracker(1)
    except ValueError as e:
        log.append(repr(e))
    finally:
        log.append("exit")


@case(code=generated.__wrapped__.__code__)
def with_generated(x):
    log = []
    with generated(log) as t:
        log.append(t)
    with generated(log):
        boom(x)
    try:
        with generated(log):
            raise KeyError(x)
    except KeyError:
        log.append("key")
    return log


# ---- match ----


@dataclasses.dataclass
class Point:
    x: object
    y: object = 0


@dataclasses.dataclass(frozen=True, order=True)
class Frozen:
    a: int
    b: list = dataclasses.field(default_factory=list, compare=False)


class Pair(typing.NamedTuple):
    left: object
    right: object = None


def matched(subject):
    match subject:
        case None | True | False:
            return "singleton"
        case 0 | 1.5 | "text" | b"bytes":
            return "literal"
        case -1:
            return "negative"
        case str(s) | bytes(s) if len(s) > 3:
            return "long", s
        case int(n) if n > 100:
            return "big", n
        case []:
            return "empty"
        case [one]:
            return "one", one
        case [1, second, 3]:
            return "middle", second
        case ["go", *rest]:
            return "go", rest
        case [first, *_, last]:
            return "ends", first, last
        case {} if not subject:
            return "no keys"
        case {"a": a, "b": {"c": c}}:
            return "nested", a, c
        case {"a": a, **rest}:
            return "mapping", a, rest
        case {1: _}:
            return "one key"
        case Point(0, y=0):
            return "origin"
        case Point(x, Point(y=inner)):
            return "point in point", x, inner
        case Point(x=px, y=py) as whole:
            return "point", px, py, whole
        case Tracker(v=3 | 4):
            return "tracker"
        case sys.maxsize:
            return "dotted"
        case other:
            return "other", other


MATCHES = (
    *(None, True, 0, 1.5, "text", b"bytes", -1, "long text", "ab", 101, 5),
    *([], [9], [1, 2, 3], ["go", 1, 2], [7, 8, 9], (4, 5), range(3), {}, {"a": 1, "b": {"c": 2}}, {"a": 1, "z": 2}),
    *({1: 2}, {2: 3}, Point(0, 0), Point(1, Point(2, 3)), Point(5, 6), collections.OrderedDict(a=1), sys.maxsize),
)


@case(code=matched.__code__)
def match_all(x):
    return [matched(subject) for subject in MATCHES] + [
        matched(x),
        matched(Tracker(4)),
        matched(collections.deque("ab")),
    ]


@case()
def match_here(x):
    match [1, x, 3]:
        case [1, y, 3]:
            r = y
        case _:
            r = None
    match {"a": x}:
        case {"a": q, **rest}:
            r2 = q, rest
    match Pair(1, x):
        case Pair(1, Tracker() as t):
            r3 = t
    return r, r2, r3


@case()
def match_errors(x):
    class BadArgs:
        __match_args__ = ["a"]

    class BadNames:
        __match_args__ = (1,)

    class Few:
        __match_args__ = ("a", "a")
        a = 1

    out = []
    for kind, subject in enumerate((x, BadArgs(), BadNames(), Few(), Few(), 3, {})):
        try:
            not_a_class = 3
            match subject:
                case not_a_class() if kind == 0:
                    pass
                case BadArgs(1):
                    pass
                case BadNames(1):
                    pass
                case Few(1, 1) if kind == 3:
                    pass
                case Few(1, 2, 3):
                    pass
                case int(1, 2):
                    pass
        except TypeError as e:
            out.append((kind, str(e)))
    return out


@case()
def match_class_errors(x):
    class Few:
        __match_args__ = ("a", "a")
        a = 1

    class BadArgs:
        __match_args__ = ["a"]

    class BadNames:
        __match_args__ = (1,)

    out = []
    for kind in range(6):
        try:
            match kind, (Few() if kind < 2 else BadArgs() if kind == 2 else BadNames() if kind == 3 else 4):
                case 0, Few(1, 1):
                    out.append("no")
                case 1, Few(1, 2, 3):
                    out.append("no")
                case 2, BadArgs(1):
                    out.append("no")
                case 3, BadNames(1):
                    out.append("no")
                case 4, int(1, 2):
                    out.append("no")
                case _, Few(b=1):
                    out.append("no")
                case _:
                    out.append("none")
        except TypeError as e:
            out.append((kind, str(e)))
    try:
        keys = types.SimpleNamespace(k="a")
        match {"a": x}:
            case {"a": 1, keys.k: 2}:
                pass
    except ValueError as e:
        out.append(str(e))
    return out


# ---- imports ----


@case()
def imports(x):
    import math
    import os.path
    import collections.abc as abc
    from os import path as p, sep
    from sys import maxsize

    out = [math.floor(2.5) + x.v, p.__name__, os.path is p, abc.__name__, sep, maxsize]
    try:
        import no_such_module_zzz
    except ImportError as e:
        out.append((type(e).__name__, str(e), e.name))
    try:
        from math import no_such_name
    except ImportError as e:
        out.append((str(e), e.name, e.path))
    try:
        from sys import no_such_name
    except ImportError as e:
        out.append((str(e), e.name, e.path))
    return out


# ---- classes ----


@case()
def class_bodies(x):
    free = Tracker(5)
    shadow = "outer"

    class Meta(type):
        def __new__(meta, name, bases, namespace, **keywords):
            namespace["keywords"] = keywords
            return super().__new__(meta, name, bases, dict(namespace))

        @classmethod
        def __prepare__(meta, name, bases, **keywords):
            return collections.OrderedDict(prepared=1)

    class Plain:
        """A docstring."""

        before = shadow
        shadow = "inner"
        after = shadow
        captured = free
        number: int = 3
        late: "list[int]"
        values = [i for i in range(3)]
        del before

        def get(self):
            return self.number, free, __class__.__name__

        try:
            missing_name_zzz
        except NameError as e:
            message = str(e)
        for loop in range(2):
            pass

    class WithMeta(Plain, metaclass=Meta, option=x):
        here = prepared + 1

        def get(self):
            return super().get()

    out = [Plain.__doc__, Plain.after, Plain.captured, Plain.__annotations__, Plain.message, Plain.values]
    return out, WithMeta().get(), WithMeta.keywords, WithMeta.here, hasattr(Plain, "before"), Plain.loop


def class_maker(x):
    free = x

    class Made(Base):
        bound = free
        if x.v > 100:
            free = 1
        again = free
        note: int = 1

        def method(self):
            return __class__, free

    return Made.bound, Made.again, Made.__annotations__, Made().method()[1], Made.__qualname__


case(code=next(c for c in class_maker.__code__.co_consts if isinstance(c, types.CodeType)))(class_maker)


@case()
def standard_classes(x):
    p = Point(x)
    f = Frozen(1)
    q = Pair(x)
    out = [p, p == Point(Tracker(3)), f < Frozen(2), q, q.left, q._replace(right=1), dataclasses.asdict(f)]
    p.y = 4
    try:
        f.a = 3
    except dataclasses.FrozenInstanceError as e:
        out.append(str(e))
    left, right = q
    return out, p, left, right, dataclasses.replace(p, x=1)


# ---- generators ----


def generator_body(n):
    total = []
    try:
        for i in range(n):
            total.append((yield Tracker(i)))
            if i == 3:
                boom(i)
    except ValueError as e:
        yield repr(e)
    return total


@case(lambda: (6,), code=generator_body.__code__)
def generator_send(n):
    g = generator_body(n)
    r = [next(g)]
    try:
        while True:
            r.append(g.send(len(r)))
    except StopIteration as e:
        r.append(("ret", e.value))
    return r


def generator_handlers(log):
    while True:
        try:
            log.append((yield len(log)))
        except KeyError as e:
            log.append(repr(e))
            yield "caught", sys.exc_info()[1] is e
        except GeneratorExit:
            log.append("closing")
            raise
        finally:
            log.append("finally")


@case(code=generator_handlers.__code__)
def generator_throw(x):
    log = []
    g = generator_handlers(log)
    out = [next(g), g.throw(KeyError(x)), next(g), g.send(x)]
    g.close()
    g = generator_handlers(log)
    next(g)
    try:
        g.throw(ValueError("out"))
    except ValueError as e:
        tb = e.__traceback__
        while tb:
            log.append((tb.tb_frame.f_code.co_name, tb.tb_lineno))
            tb = tb.tb_next
    try:
        next(g)
    except StopIteration:
        log.append("stopped")
    g = generator_handlers(log)
    try:
        g.throw(OSError("not started"))
    except OSError as e:
        log.append(e.__traceback__.tb_next.tb_lineno)
    generator_handlers(log).close()
    next(generator_handlers(log))
    return out, log


def generator_stubborn():
    try:
        yield 1
    except GeneratorExit:
        yield 2


def generator_stop():
    yield 1
    raise StopIteration("inside")


@case(code=generator_stubborn.__code__)
def generator_ignores_exit(x):
    g = generator_stubborn()
    next(g)
    try:
        g.close()
    except RuntimeError as e:
        return str(e), list(g)


@case(code=generator_stop.__code__)
def generator_raises_stop(x):
    try:
        list(generator_stop())
    except RuntimeError as e:
        return str(e), repr(e.__cause__)


def delegating(log, parts):
    for part in parts:
        try:
            log.append(("part", (yield from part)))
        except KeyError as e:
            log.append(("caught", repr(e)))
        finally:
            log.append("done")
    return "end"


class Sendable:
    def __init__(self, log):
        self.log, self.i = log, 0

    def __iter__(self):
        return self

    def __next__(self):
        return self.send(None)

    def send(self, value):
        self.log.append(("send", value))
        self.i += 1
        if self.i > 2:
            raise StopIteration("value")
        return self.i

    def throw(self, *exception):
        self.log.append(("throw", repr(exception[-1])))
        return "thrown"

    def close(self):
        self.log.append("close")


@case(code=delegating.__code__)
def yield_from(x):
    log = []
    g = delegating(log, [generator_body(2), [x, 2], (), Sendable(log), generator_handlers(log), "ab"])
    out = [next(g), g.send(x), g.send(1), next(g), next(g), g.send(x), g.throw(IndexError("t")), next(g)]
    out.append(g.throw(KeyError("k")))
    out.append(g.gi_yieldfrom is not None)
    try:
        g.throw(OSError("through"))
    except OSError as e:
        tb = e.__traceback__
        while tb:
            log.append((tb.tb_frame.f_code.co_name, tb.tb_lineno))
            tb = tb.tb_next
    g = delegating(log, [generator_body(1), generator_handlers(log)])
    out.extend([next(g), next(g)])
    g.close()
    return out, log


@case(code=delegating.__code__)
def yield_from_bad(x):
    async def coroutine():
        pass

    out = []
    c = coroutine()
    for bad in (3, c):
        try:
            list(delegating([], [bad]))
        except TypeError as e:
            out.append(str(e))
    c.close()
    return out


def generator_closure(n):
    k = Tracker(n)

    def inner():
        return k

    while n:
        n -= 1
        k = k + inner()
        yield (yield), inner()


@case(lambda: (2,), code=generator_closure.__code__)
def generator_with_cells(n):
    return [v for v in generator_closure(n)], [v for v, *_ in zip(generator_closure(9), range(3))]


@case()
def generator_local(x):
    def g(k):
        try:
            for i in range(k):
                yield x + i
        finally:
            yield "end"

    return list(g(3)), [v for v in g(2)], sum(i for i in range(4)), list(map(lambda v: v, g(1)))


@case()
def asynchronous(x):
    async def numbers(n):
        for i in range(n):
            yield i

    @contextlib.asynccontextmanager
    async def manager():
        yield x

    async def work(n):
        out = []
        async with manager() as m:
            out.append(m)
            async for i in numbers(n):
                out.append(i)
            out += [j async for j in numbers(2)]
        await asyncio.sleep(0)
        return out

    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(work(3))
    finally:
        loop.close()


# ---- frames ----


@case()
def frame_inside(x):
    a = x
    names = sorted(locals())
    frame = sys._getframe()
    line = frame.f_lineno
    facts = frame.f_code.co_name, frame.f_back.f_code.co_name, list(frame.f_locals), frame.f_globals["GLOBAL"]
    del frame
    return names, facts, line, eval("a"), sorted(vars()), dir()


@case()
def frame_kept(x):
    y = Tracker(3)
    frame = sys._getframe()
    z = y + x
    return frame.f_lineno, z


def drop_frame(frames):
    frame = frames.pop()
    return frame.f_locals["y"], frame.f_lineno


@case()
def frame_outlives(x):
    frames = []

    def keep():
        y = Tracker(8)
        frames.append(sys._getframe())
        return y

    keep()
    return drop_frame(frames)
