"""More programs for test_features.py: classes of the user, exceptions, generators, the standard library, and what training
code does beside calling modules.

Functions take a tensor (2, 3) of 1 to 6; each is one graph."""

# ruff: noqa

import abc
import collections
import collections.abc
import contextlib
import contextvars
import copy
import dataclasses
import enum
import functools
import inspect
import io
import itertools
import math
import operator
import random
import re
import string
import sys
import types
import typing
import weakref

import numpy as np

import wick as torch
import wick.nn as nn
import wick.nn.functional as F
import wick.nn.utils.parametrize as P

O = torch.optim
FEATURES = []


def feature(function):
    FEATURES.append(function)
    return function


CV = contextvars.ContextVar("cv", default=1)

GL = nn.Linear(3, 3)

P0 = nn.Parameter(torch.ones(3))

ACC = torch.zeros(2, 3)

PP = None


class GA:
    def __init__(s):
        s.d = {"k": 3}

    def __getattr__(s, n):
        if n in ("d",):
            raise AttributeError(n)
        try:
            return s.d[n]
        except KeyError:
            raise AttributeError(n) from None


class GAB:
    def __init__(s):
        s.k = 3

    def __getattribute__(s, n):
        v = object.__getattribute__(s, n)
        return v * 2 if n == "k" else v


class SA:
    def __setattr__(s, n, v):
        super().__setattr__(n, v * 2)

    def __delattr__(s, n):
        super().__delattr__(n)


class SL:
    __slots__ = ("a", "b")

    def __init__(s, a):
        s.a = a


GSL = SL(3)


class PR:
    def __init__(s):
        s._k = 2

    @property
    def k(s):
        return s._k

    @k.setter
    def k(s, v):
        s._k = v

    @k.deleter
    def k(s):
        s._k = 0

    @functools.cached_property
    def c(s):
        return s._k * 5


GPR = PR()


class Meta(type):
    def __call__(cls, *a):
        o = super().__call__(*a)
        o.tag = 3
        return o

    @property
    def zz(cls):
        return 7

    def __getitem__(cls, i):
        return i * 2

    def __len__(cls):
        return 4

    def __iter__(cls):
        return iter([1, 2])

    def __contains__(cls, i):
        return i == 3


class WM(metaclass=Meta):
    def __init__(s, v):
        s.v = v


class Singleton(type):
    _i = {}

    def __call__(cls, *a):
        if cls not in cls._i:
            cls._i[cls] = super().__call__(*a)
        return cls._i[cls]


class Sg(metaclass=Singleton):
    def __init__(s):
        s.k = 2


class Desc:
    def __set_name__(s, o, n):
        s.n = "_" + n

    def __get__(s, o, t=None):
        if o is None:
            return s
        return getattr(o, s.n, 1)

    def __set__(s, o, v):
        setattr(o, s.n, v * 2)

    def __delete__(s, o):
        delattr(o, s.n)


class WD:
    q = Desc()


class NewS:
    def __new__(cls, v):
        o = super().__new__(cls)
        o.w = v
        return o

    def __init__(s, v):
        s.v = v


class InitSub:
    reg = []

    def __init_subclass__(cls, k=1, **kw):
        super().__init_subclass__(**kw)
        cls.k = k


class IS2(InitSub, k=5):
    pass


class CG:
    def __class_getitem__(cls, i):
        return i


class Cmp:
    def __init__(s, v):
        s.v = v

    def __eq__(s, o):
        return s.v == o.v

    def __lt__(s, o):
        return s.v < o.v

    def __hash__(s):
        return hash(s.v)

    def __bool__(s):
        return s.v > 1

    def __len__(s):
        return s.v

    def __index__(s):
        return s.v

    def __int__(s):
        return s.v

    def __float__(s):
        return float(s.v)

    def __contains__(s, i):
        return i == s.v

    def __iter__(s):
        yield from range(s.v)

    def __call__(s, y):
        return y * s.v

    def __enter__(s):
        return s

    def __exit__(s, *a):
        return False

    def __repr__(s):
        return f"Cmp({s.v})"

    def __str__(s):
        return "c%d" % s.v

    def __format__(s, f):
        return f + str(s.v)

    def __add__(s, o):
        return Cmp(s.v + (o.v if isinstance(o, Cmp) else o))

    __radd__ = __add__

    def __matmul__(s, o):
        return s.v * o

    def __neg__(s):
        return Cmp(-s.v)

    def __getitem__(s, i):
        return s.v + i if isinstance(i, int) else s.v

    def __missing__(s, i):
        return 1

    def __reversed__(s):
        return reversed(range(s.v))

    def __copy__(s):
        return Cmp(s.v + 1)

    def __deepcopy__(s, memo):
        return Cmp(s.v + 2)

    def __abs__(s):
        return abs(s.v)

    def __round__(s, n=None):
        return s.v

    def __divmod__(s, o):
        return (s.v, o)

    def __ior__(s, o):
        s.v |= o
        return s


class GetSeq:
    def __init__(s, l):
        s.l = l

    def __getitem__(s, i):
        return s.l[i]

    def __len__(s):
        return len(s.l)


@functools.total_ordering
class TO:
    def __init__(s, v):
        s.v = v

    def __eq__(s, o):
        return s.v == o.v

    def __lt__(s, o):
        return s.v < o.v


class PM:
    def mul(s, k, x):
        return x * k

    dbl = functools.partialmethod(mul, 2)

    @functools.singledispatchmethod
    def sd(s, a):
        return 1

    @sd.register
    def _(s, a: int):
        return 2

    @functools.lru_cache
    def lc(s, k):
        return k * 2


GPM = PM()


@feature
def cv_set(x):
    t = CV.set(3)
    y = x * CV.get()
    CV.reset(t)
    return y * CV.get()


@feature
def cv_set_leave(x):
    CV.set(2)
    y = x * CV.get()
    CV.set(1)
    return y


@feature
def loc(x):
    a = 2
    d = locals()
    return x * d["a"]


@feature
def loc_keys(x):
    a = 2
    b = 3
    return x * sum((v for k, v in locals().items() if isinstance(v, int)))


@feature
def loc_format(x):
    n = 3
    s = "{n}".format(**locals())
    return x * int(s)


@feature
def dirf(x):
    a = 1
    return x * len(dir())


@feature
def assert_tensor_msg(x):
    assert (x > 0).all(), "must be positive"
    return x * 2


@feature
def assert_not(x):
    assert not torch.isnan(x).any()
    return x * 2


@feature
def dataclass_tensors(x):
    d = copy.deepcopy({"a": [x, 1], "b": x})
    d["a"][0].add_(1)
    return d["a"][0] + d["b"] + x


@feature
def copy_module(x):
    m = copy.copy(GL)
    return m(x)


@feature
def cls_closure(x):
    n = 3

    class A:
        k = n

        def f(self, y):
            return y * n * self.k

    return A().f(x)


@feature
def cls_dataclass(x):

    @dataclasses.dataclass
    class P:
        a: torch.Tensor
        b: int = 2

    p = P(x)
    return p.a * p.b


@feature
def cls_namedtuple(x):

    class P(typing.NamedTuple):
        a: torch.Tensor
        b: int = 2

    p = P(x)
    return p.a * p.b


@feature
def cls_module(x):

    class M(nn.Module):
        def forward(self, x):
            return x * 2

    return M()(x)


@feature
def gl_assign(x):
    global ACC
    ACC = x * 2
    return ACC + 1


@feature
def gl_param_new(x):
    global PP
    PP = nn.Parameter(x * 2)
    return x * PP


@feature
def gl_param_data(x):
    P0.data = torch.ones(3) * 2
    y = x * P0
    P0.data = torch.ones(3)
    return y


@feature
def class_getattr(x):
    return x * GA().k


@feature
def class_getattribute(x):
    return x * GAB().k


@feature
def class_setattr(x):
    a = SA()
    a.k = x
    del a.k
    a.k = x + 1
    return a.k


@feature
def class_slots_global(x):
    GSL.b = x
    y = GSL.b * GSL.a
    GSL.b = None
    return y


@feature
def class_property(x):
    p = PR()
    p.k = 4
    y = x * p.k
    del p.k
    return y + p.k


@feature
def class_cached_property_global(x):
    return x * GPR.c


@feature
def class_meta_prop(x):
    return x * WM.zz


@feature
def class_meta_iter(x):
    return x * sum(WM)


@feature
def class_meta_contains(x):
    return x * (3 in WM)


@feature
def class_singleton(x):
    return x * Sg().k


@feature
def class_desc(x):
    w = WD()
    y = x * w.q
    w.q = 3
    y = y * w.q
    del w.q
    return y + w.q


@feature
def class_new_super(x):
    n = NewS(x)
    return n.w + n.v


@feature
def class_initsub(x):
    return x * IS2.k


@feature
def class_classgetitem(x):
    return x * CG[3]


@feature
def class_ops1(x):
    a, b = (Cmp(2), Cmp(3))
    return x * (a < b) * (a != b) * len(a) * int(b) * float(a) * sum(a + b)


@feature
def class_ops2(x):
    return x * len({Cmp(1), Cmp(1), Cmp(2)})


@feature
def class_str(x):
    return x * len(str(Cmp(2)) + repr(Cmp(3)) + f"{Cmp(4):>>}{Cmp(5)!r}")


@feature
def class_sum(x):
    return x * sum([Cmp(1), Cmp(2)]).v


@feature
def class_copy(x):
    return x * copy.copy(Cmp(1)).v * copy.deepcopy(Cmp(1)).v


@feature
def class_getitem_iter2(x):
    return sum((v for v in GetSeq([x, x + 1])))


@feature
def class_reversed_seq(x):
    return list(reversed(GetSeq([x, x + 1])))[0]


@feature
def class_total(x):
    return x * (TO(1) <= TO(2)) * (TO(3) >= TO(2))


@feature
def class_lru_method(x):
    return x * GPM.lc(3)


@feature
def class_dunder_dict(x):
    a = PR()
    a.__dict__["zz"] = 3
    a.__dict__.update(q=2)
    return x * a.zz * a.q * len(vars(a))


@dataclasses.dataclass
class DC:
    a: object
    b: int = 2
    c: list = dataclasses.field(default_factory=list)

    def __post_init__(s):
        s.d = s.b * 2


@dataclasses.dataclass(frozen=True, order=True, slots=True)
class DF:
    a: int
    b: int = 3


@dataclasses.dataclass
class DI(DC):
    e: int = dataclasses.field(default=4, kw_only=True)


class MyCounter(collections.Counter):
    def top(s):
        return s.most_common(1)[0][0]


class OD(collections.OrderedDict):
    def __setitem__(s, k, v):
        super().__setitem__(k, v)

    def first(s):
        return next(iter(s.values()))


class UD(collections.UserDict):
    pass


class UL(collections.UserList):
    pass


class LS(list):
    def total(s):
        return sum(s)


class TS(tuple):
    def __new__(cls, *a):
        return super().__new__(cls, a)


class DS(dict):
    def __getattr__(s, k):
        try:
            return s[k]
        except KeyError as e:
            raise AttributeError(k) from e

    __setattr__ = dict.__setitem__

    def __missing__(s, k):
        return 9


class IntS(int):
    def dbl(s):
        return s * 2


class StrS(str):
    def up(s):
        return s.upper()


NT = collections.namedtuple("NT", "a b")


class NT2(typing.NamedTuple):
    a: int
    b: int = 3

    def s(self):
        return self.a + self.b


def gen(n):
    for i in range(n):
        r = yield i
        if r:
            yield (r * 10)


def inf():
    i = 0
    while True:
        yield i
        i += 1


@functools.singledispatch
def sd(a):
    return 1


@sd.register
def _(a: int):
    return 2


@sd.register(str)
def _(a):
    return 3


class CMX:
    def __init__(s, l):
        s.l = l

    def __enter__(s):
        s.l.append(1)
        return s

    def __exit__(s, t, v, tb):
        s.l.append(t)
        return t is ValueError


class CD(contextlib.ContextDecorator):
    def __enter__(s):
        return s

    def __exit__(s, *a):
        return False


class MyE(Exception):
    def __init__(s, c, *a):
        super().__init__(*a)
        s.code = c

    def __str__(s):
        return "E%d" % s.code


class SB:
    def __init__(s, v=1):
        s.v = v

    def f(s):
        return s.v

    @classmethod
    def c(cls):
        return 2

    @staticmethod
    def st():
        return 3

    @property
    def p(s):
        return 4


class SC(SB):
    def __init__(s):
        super().__init__(5)

    def f(s):
        return super(SC, s).f() + super().f()

    @classmethod
    def c(cls):
        return super().c() + super(SC, cls).c()

    @staticmethod
    def st():
        return super(SC, SC).st()

    @property
    def p(s):
        return super().p * 2

    def lam(s):
        return (lambda: super(SC, s).f())()

    def comp(s):
        return [super(SC, s).f() for _ in range(2)][0]

    def ga(s):
        return getattr(super(), "f")()

    def sobj(s):
        q = super()
        return q.f()

    def unb(s):
        return super(SC).__self_class__ is None

    def hs(s):
        return hasattr(super(), "zzz")


class D1(SB):
    def f(s):
        return super().f() * 2


class D2(SB):
    def f(s):
        return super().f() + 10


class D3(D1, D2):
    pass


@feature
def dataclass_replace(x):
    return dataclasses.replace(DC(x), b=5).b * x


@feature
def dataclass_asdict(x):
    return dataclasses.asdict(DC(1))["b"] * x


@feature
def dataclass_fields_inst(x):
    return x * sum((1 for f in dataclasses.fields(DC(1)) if f.name != "a"))


@feature
def dataclass_inherit(x):
    return DI(x, e=3).e * x


@feature
def dataclass_frozen_err(x):
    try:
        d = DF(1)
        d.a = 2
    except dataclasses.FrozenInstanceError:
        return x * 2
    return x


@feature
def dataclass_match(x):
    match DF(1, 2):
        case DF(a, b):
            return x * a * b


@feature
def default_dict__lambda(x):
    d = collections.defaultdict(lambda: x * 2)
    return d["z"] + len(d)


@feature
def counter_ops(x):
    c = collections.Counter(a=1) + collections.Counter(a=2, b=1)
    c.subtract({"a": 1})
    return x * c["a"] * len(list(c.elements()))


@feature
def counter_sub(x):
    return x * len(MyCounter("aab").top())


@feature
def chainmap2(x):
    c = collections.ChainMap({"a": 2}).new_child({"z": 3})
    return x * c["a"] * c["z"] * c.get("q", 2) * ("a" in c) * c.parents["a"]


@feature
def od_sub(x):
    d = OD()
    d["a"] = x
    d["b"] = 2
    d.move_to_end("b", last=False)
    return x * d.first()


@feature
def od_popitem(x):
    d = collections.OrderedDict(a=1, b=2)
    k, v = d.popitem(last=False)
    return x * v * len(d)


@feature
def userdict(x):
    u = UD(a=2)
    u["b"] = 3
    return x * u["a"] * len(u) * u.get("q", 2)


@feature
def userlist(x):
    u = UL([1, 2])
    u.append(3)
    return x * u[-1] * len(u) * sum(u)


@feature
def list_sub(x):
    l = LS([1, 2])
    l.append(3)
    return x * l.total() * len(l)


@feature
def tuple_sub(x):
    return x * sum(TS(1, 2, 3)) * TS(1, 2)[1]


@feature
def dict_sub(x):
    d = DS(a=2)
    d.b = 3
    return x * d.a * d.b * d["zz"]


@feature
def int_sub(x):
    return x * IntS(3).dbl()


@feature
def str_sub(x):
    return x * len(StrS("ab").up())


@feature
def named_tuple__methods(x):
    p = NT(1, x)
    return p._replace(a=3).a * p.b * len(p._fields) * len(p._asdict()) * NT._make([1, 2]).b


@feature
def named_tuple_2(x):
    return x * NT2(1).s() * NT2(2)[0]


@feature
def generator_send(x):
    g = gen(3)
    next(g)
    v = g.send(2)
    return x * v


@feature
def generator_throw(x):

    def g():
        try:
            yield 1
        except ValueError:
            yield 5

    it = g()
    next(it)
    return x * it.throw(ValueError)


@feature
def generator_close(x):
    log = []

    def g():
        try:
            yield 1
        finally:
            log.append(3)

    it = g()
    next(it)
    it.close()
    return x * log[0]


@feature
def generator_inf(x):
    return x * next((v for v in inf() if v > 4))


@feature
def generator_context_exc(x):

    @contextlib.contextmanager
    def cm():
        try:
            yield
        except ValueError:
            pass

    with cm():
        raise ValueError
    return x * 2


@feature
def generator_recursive(x):

    def flat(l):
        for i in l:
            if isinstance(i, list):
                yield from flat(i)
            else:
                yield i

    return sum(flat([1, [2, [3]]])) * x


@feature
def functools_partial_attr(x):
    p = functools.partial(pow, 2)
    return x * p(3) * len(p.args) * (p.func is pow)


@feature
def functools_sd(x):
    return x * sd(1) * sd("a") * sd(2.0)


@feature
def functools_wraps(x):

    def deco(f):

        @functools.wraps(f)
        def w(*a, **k):
            return f(*a, **k) * 2

        return w

    @deco
    def g(y):
        """doc"""
        return y

    return g(x) * len(g.__name__) * len(g.__doc__)


@feature
def contextlib_cmx(x):
    l = []
    with CMX(l) as c, CMX(l):
        raise ValueError
    return x * len(l) * len(c.l)


@feature
def contextlib_ctxdeco(x):

    @CD()
    def f(y):
        return y * 3

    return f(x)


@feature
def exception_from(x):
    try:
        try:
            raise KeyError("a")
        except KeyError as e:
            raise ValueError("b") from e
    except ValueError as e:
        return x * isinstance(e.__cause__, KeyError) * 2


@feature
def exception_group(x):
    n = 0
    try:
        raise ExceptionGroup("g", [ValueError(1), TypeError(2)])
    except* ValueError as e:
        n += len(e.exceptions)
    except* TypeError as e:
        n += 5
    return x * n


@feature
def exception_group2(x):
    g = ExceptionGroup("g", [ValueError(1), ExceptionGroup("h", [TypeError(2)])])
    m, r = g.split(ValueError)
    return x * len(m.exceptions) * len(g.subgroup(lambda e: True).exceptions)


@feature
def exception_custom(x):
    try:
        raise MyE(3, "m")
    except MyE as e:
        return x * e.code * len(str(e)) * len(e.args)


@feature
def exception_notes(x):
    try:
        e = ValueError("a")
        e.add_note("n")
        raise e
    except ValueError as e:
        return x * len(e.__notes__)


@feature
def exception_stop_in_gen(x):

    def g():
        yield 1
        raise StopIteration

    try:
        list(g())
    except RuntimeError:
        return x * 2


@feature
def exception_in_gen(x):

    def g():
        try:
            yield 1
            yield 2
        except GeneratorExit:
            raise
        finally:
            l.append(1)

    l = []
    for v in g():
        break
    return x * v


@feature
def super_lambda(x):
    return x * SC().lam()


@feature
def super_comp(x):
    return x * SC().comp()


@feature
def super_getattr(x):
    return x * SC().ga()


@feature
def super_diamond(x):
    return x * D3().f()


@feature
def statement_walrus_comp(x):
    return x * sum((y for v in [1, 2] if (y := (v * 2)) > 1)) + y


@feature
def statement_match(x):

    def m(v):
        match v:
            case 0:
                return 1
            case [a, b, *r]:
                return a + len(r)
            case {"k": k, **rest}:
                return k + len(rest)
            case str() as s if len(s) > 2:
                return len(s)
            case int() | float() as n:
                return n
            case _:
                return 9

    return x * m(0) * m([1, 2, 3]) * m({"k": 2, "z": 1}) * m("abc") * m(2.5) * m(None)


@feature
def statement_star(x):
    a, (b, *c), d = (1, (2, 3, 4), 5)
    f = lambda *a, k=1, **kw: sum(a) + k + len(kw)
    return x * f(*c, *[1], k=2, **{"z": 1})


@feature
def statement_try_loop(x):
    t = 0
    for i in range(4):
        try:
            if i == 1:
                continue
            if i == 3:
                break
            t += i
        finally:
            t += 10
    return x * t


def sigf(a, b=2, *c, d=3, **e):
    return a


GLIN = nn.Linear(3, 3)

T = typing.TypeVar("T")


class Box(typing.Generic[T]):
    def __init__(s, v: T):
        s.v = v


class TD(typing.TypedDict):
    a: int


class HasF:
    def f(self):
        return 2


UID = typing.NewType("UID", int)


class AB(abc.ABC):
    @abc.abstractmethod
    def f(s): ...

    @property
    @abc.abstractmethod
    def p(s): ...


class AC(AB):
    def f(s):
        return 2

    p = 3


class MMap(collections.abc.MutableMapping):
    def __init__(s):
        s.d = {}

    def __getitem__(s, k):
        return s.d[k]

    def __setitem__(s, k, v):
        s.d[k] = v

    def __delitem__(s, k):
        del s.d[k]

    def __iter__(s):
        return iter(s.d)

    def __len__(s):
        return len(s.d)


class SeqC(collections.abc.Sequence):
    def __init__(s, l):
        s.l = l

    def __getitem__(s, i):
        return s.l[i]

    def __len__(s):
        return len(s.l)


class EN(enum.Enum):
    A = 1
    B = "b"

    @property
    def dbl(s):
        return s.value * 2

    @classmethod
    def df(cls):
        return cls.A


class IE(enum.IntEnum):
    X = 1
    Y = 2


class FL(enum.Flag):
    R = 1
    W = 2
    X = 4


class AE(enum.Enum):
    A = enum.auto()
    B = enum.auto()

    def __call__(s, y):
        return y * s.value


@feature
def inspect_sig(x):
    return x * len(inspect.signature(sigf).parameters)


@feature
def inspect_sig_bind(x):
    b = inspect.signature(sigf).bind(1, b=5)
    b.apply_defaults()
    return x * b.arguments["b"] * b.kwargs["d"]


@feature
def inspect_argspec(x):
    return x * len(inspect.getfullargspec(sigf).args)


@feature
def inspect_params_kind(x):
    return x * sum((p.kind == inspect.Parameter.KEYWORD_ONLY for p in inspect.signature(sigf).parameters.values()))


@feature
def typing_generic(x):
    return x * Box[int](3).v


@feature
def typing_typeddict(x):
    return x * TD(a=2)["a"]


@feature
def typing_newtype(x):
    return x * UID(3)


@feature
def text_format_1(x):
    return x * len(f"{3.14159:.2f}{5:>5}{'a':*^7}{255:#x}{1000000.0:,.0f}{True!r}{'q'!s:>{4}}")


@feature
def text_format_3(x):
    return (
        x
        * len("%s-%05d-%.3f-%r" % ("a", 3, 2.5, "z"))
        * len("{0}{1:>{w}}{k[a]}{z.real}".format(1, 2, w=5, k={"a": 3}, z=1))
    )


@feature
def text_method_2(x):
    return (
        x
        * ("abc".startswith(("a", "b")) + "12".isdigit() + "a".isalpha())
        * len("  a ".strip() + "ab".zfill(5) + "a".center(4) + "ab".removeprefix("a") + "a\tb".expandtabs(2))
    )


@feature
def text_method_4(x):
    return (
        x
        * len(re.sub("(\\d)", lambda m: m.group(1) * 2, "a1b2"))
        * len(re.findall("\\w", "ab"))
        * len(re.split(",", "a,b"))
        * int(re.match("(?P<n>\\d)", "3")["n"])
    )


@feature
def id_made2(x):
    a = [1]
    seen = {id(a): 3}
    return x * seen[id(a)]


@feature
def id_in_set(x):
    seen = set()
    ps = [p for p in GLIN.parameters()]
    for p in ps + ps:
        if id(p) in seen:
            continue
        seen.add(id(p))
    return x * len(seen)


@feature
def id_tensor_made(x):
    y = x * 2
    d = {id(y): 1}
    return y * d[id(y)]


@feature
def hash_obj(x):
    o = HasF()
    return x * (hash(o) == hash(o))


@feature
def hash_tensor(x):
    return x * (hash(x) == hash(x))


@feature
def hash_dict_tensor_made(x):
    y = x + 1
    d = {y: 2}
    return x * d[y]


@feature
def hash_dict_module(x):
    d = {GLIN: 3}
    return x * d[GLIN]


@feature
def abstract_2(x):
    return x * AC().f() * AC().p * isinstance(AC(), AB)


@feature
def abstract__mmap(x):
    m = MMap()
    m["a"] = x
    m.update(b=2)
    m.setdefault("c", 3)
    return m["a"] * m.get("b") * m.pop("c") * len(list(m.items()))


@feature
def abstract__mmap_kw(x):
    m = MMap()
    m["k"] = 2
    return (lambda **k: x * k["k"])(**m)


@feature
def abstract__seq(x):
    q = SeqC([1, 2, 3])
    return x * sum(q) * (2 in q) * q.index(3) * q.count(1) * list(reversed(q))[0]


@feature
def enum_3(x):
    return x * IE.Y * (IE.X < IE.Y) * (IE.X + 1) * [1, 2, 3][IE.Y]


@feature
def enum_4(x):
    f = FL.R | FL.W
    return x * (FL.R in f) * f.value * bool(f & FL.W) * ((~f).value + 1)


@feature
def enum_6(x):
    return AE.B(x) * AE.A.value


@feature
def enum__match(x):
    match EN.B:
        case EN.A:
            return x
        case EN.B:
            return x * 2


@feature
def numpy_math(x):
    return torch.as_tensor(np.sin(x.numpy()))


@feature
def numpy_detach(x):
    return torch.from_numpy(np.maximum(x.detach().cpu().numpy(), 2))


@feature
def numpy_stack(x):
    return torch.from_numpy(np.stack([x.numpy(), x.numpy()]))


@feature
def itertools_2(x):
    return (
        x
        * len(list(itertools.groupby([1, 1, 2])))
        * sum((a * b for a, b in itertools.pairwise([1, 2, 3])))
        * len(list(itertools.zip_longest([1], [1, 2])))
        * list(itertools.compress([1, 2], [0, 1]))[0]
    )


@feature
def itertools__groupby_list(x):
    return x * sum((len(list(g)) for k, g in itertools.groupby([1, 1, 2], key=lambda v: v)))


@feature
def builtin_weakref(x):
    o = HasF()
    r = weakref.ref(o)
    return x * r().f()


@feature
def builtin_method_type(x):
    return x * types.MethodType(lambda s, k: k, HasF())(3)


@feature
def builtin_list_ops(x):
    l = [3, 1]
    l.sort()
    l.extend([5])
    l.insert(0, 9)
    l *= 2
    l.reverse()
    return x * l.pop() * l.index(5) * len(l[::2])


torch.manual_seed(0)


def mk():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


M = mk()


def grads(m):
    return [None if p.grad is None else p.grad.clone() for p in m.parameters()]


MH = mk()

MH.register_forward_hook(lambda m, i, o: o * 2)

MP = mk()

MP[0].register_forward_pre_hook(lambda m, i: (i[0] + 1,))

MK = mk()

MK.register_forward_pre_hook(lambda m, a, k: (a, k), with_kwargs=True)

MK.register_forward_hook(lambda m, a, k, o: o + 1, with_kwargs=True)


class TSub(torch.Tensor):
    @classmethod
    def __torch_function__(cls, f, t, a=(), k=None):
        r = super().__torch_function__(f, t, a, k or {})
        return r


class Sym(nn.Module):
    def forward(self, w):
        return w * 2


MPar = nn.Linear(3, 3)

P.register_parametrization(MPar, "weight", Sym())

MWN = nn.utils.parametrizations.weight_norm(nn.Linear(3, 3))


@feature
def hook_pre(x):
    return MP(x)


@feature
def hook_kwargs(x):
    return MK(x)


@feature
def tensor_data_add(x):
    y = x.clone()
    y.data.add_(1)
    return y


@feature
def tensor_requires(x):
    y = x.detach()
    y.requires_grad = True
    z = (y * y).sum()
    z.backward()
    return y.grad


@feature
def autograd_grad(x):
    y = x.clone().requires_grad_()
    (g,) = torch.autograd.grad((y**3).sum(), y, create_graph=True)
    (g2,) = torch.autograd.grad(g.sum(), y)
    return g + g2


@feature
def autograd_penalty(x):
    m = mk()
    y = x.clone().requires_grad_()
    (g,) = torch.autograd.grad(m(y).sum(), y, create_graph=True)
    (g**2).sum().backward()
    return [g for g in grads(m) if g is not None]


@feature
def autograd_double_backward(x):
    y = x.clone().requires_grad_()
    l = (y**4).sum()
    (g,) = torch.autograd.grad(l, y, create_graph=True)
    g.pow(2).sum().backward()
    return y.grad


@feature
def autograd_jac(x):
    return torch.autograd.functional.jacobian(lambda t: t**2, x)


@feature
def autograd_hess(x):
    return torch.autograd.functional.hessian(lambda t: (t**3).sum(), x)


@feature
def autograd_func_call(x):
    return torch.func.functional_call(M, {k: v * 2 for k, v in M.named_parameters()}, (x,))


@feature
def subclass_sub(x):
    return (x.as_subclass(TSub) * 2).as_subclass(torch.Tensor)


@feature
def pz_use(x):
    return MPar(x)


@feature
def pz_wn(x):
    return MWN(x)


@feature
def module_replace(x):
    m = mk()
    m[0] = nn.Identity()
    m[2] = nn.Linear(3, 1)
    return m(x) * 0


@feature
def module_apply(x):
    m = mk()
    m.apply(lambda l: nn.init.ones_(l.weight) if isinstance(l, nn.Linear) else None)
    return m[0].weight.sum() * x


@feature
def module_load(x):
    m = mk()
    m.load_state_dict(M.state_dict())
    return m(x)


@feature
def module_deepcopy(x):
    return copy.deepcopy(M)(x)


@feature
def module_regbuf(x):
    m = nn.Module()
    m.register_buffer("z", x * 2)
    m.register_parameter("p", nn.Parameter(x))
    return m.z * m.p


@feature
def optimizer_closure(x):
    m = mk()
    o = O.SGD(m.parameters(), lr=0.01)

    def c():
        o.zero_grad()
        l = m(x).sum()
        l.backward()
        return l

    l = o.step(c)
    return l.detach()


@feature
def optimizer_sched(x):
    m = mk()
    o = O.SGD(m.parameters(), lr=0.01)
    s = O.lr_scheduler.StepLR(o, 1)
    m(x).sum().backward()
    o.step()
    s.step()
    return x * o.param_groups[0]["lr"]


@feature
def optimizer_groups(x):
    m = mk()
    o = O.SGD([{"params": m[0].parameters()}, {"params": m[2].parameters(), "lr": 0.1}], lr=0.01)
    m(x).sum().backward()
    o.step()
    return [p.detach() for p in m.parameters()]


@feature
def optimizer_clip(x):
    m = mk()
    m(x).sum().backward()
    n = nn.utils.clip_grad_norm_(m.parameters(), 1.0)
    return (n, grads(m))


@feature
def optimizer_statedict(x):
    m = mk()
    o = O.Adam(m.parameters())
    m(x).sum().backward()
    o.step()
    o2 = O.Adam(m.parameters())
    o2.load_state_dict(o.state_dict())
    return x * len(o2.state)


@feature
def optimizer_scaler(x):
    m = mk()
    o = O.SGD(m.parameters(), lr=0.01)
    s = torch.amp.GradScaler("cpu")
    s.scale(m(x).sum()).backward()
    s.step(o)
    s.update()
    return [p.detach() for p in m.parameters()]


class Tagged(type):
    @property
    def tags(cls):
        return [cls.__name__]


class WithTags(metaclass=Tagged):
    pass


TABLE = {(int, "a"): 2, (WithTags, str): 3}


@feature
def class_property_of_a_metaclass(x):
    tags = WithTags.tags
    tags.append("more")
    return x * len(tags) * len(WithTags.tags)


@feature
def dictionary_key_of_classes(x):
    return x * TABLE[int, "a"] * TABLE[WithTags, str] * (2 if (int, "b") in TABLE else 1)


@feature
def enum_members(x):
    return x * len(EN.__members__) * len(list(EN)) * (EN.A in EN)


@feature
def proxy_of_a_dictionary_from_outside(x):
    proxy = types.MappingProxyType(TABLE)
    return x * len(proxy) * proxy[int, "a"]


@feature
def distribution_divergence(x):
    return torch.distributions.kl_divergence(torch.distributions.Normal(x, 1.0), torch.distributions.Normal(0.0, 1.0))


@feature
def exception_that_is_handled(x):
    try:
        raise KeyError("key", 2)
    except KeyError:
        kind, value, traceback = sys.exc_info()
        return x * len(value.args) * (kind is KeyError) * (traceback is not None)


@feature
def misc_treemap(x):
    return torch.utils._pytree.tree_map(lambda t: t * 2, (x, [x]))[1][0]


@feature
def misc_dist_cat(x):
    return torch.distributions.Categorical(logits=x).entropy()


@feature
def numpy_grids_made_inside(x):
    rows, columns = np.ogrid[:2, :3]
    weights = (1 - abs(rows - 0.5) / 2) * (1 - abs(columns - 1) / 3)
    return x + torch.from_numpy(weights)


@feature
def numpy_functions_of_constants(x):
    inverse = np.linalg.inv(np.diag([1.0, 2.0, 4.0]))
    shifted = torch.as_tensor(np.pad(inverse, 1))
    return x + shifted[1:3, 1:4]


@feature
def writes_that_are_counted(x):
    y = x * 2
    before = y._version
    y.add_(1)
    return y * (y._version - before)


@feature
def base_of_a_view(x):
    y = x.clone()
    return y.view(-1) * (y.view(-1)._base is y) * (y._base is None)


@feature
def check_of_a_dropout(x):
    y = torch.nn.functional.dropout(x, 0.5)
    assert not y.isnan().any()
    return y
