"""What Python programs do, a function a feature: each is one graph, and gives what it gives when it is run plainly.

Functions take a tensor (2, 3) of 1 to 6. They are short, and odd where a feature is: what matters is that the feature is
used at all. Cases that look at one thing closely stand in the corpora beside this file.
"""

# ruff: noqa

import abc
import array
import bisect
import collections
import contextlib
import contextvars
import copy
import dataclasses
import decimal
import enum
import fractions
import functools
import heapq
import inspect
import io
import itertools
import json
import logging
import math
import numbers
import operator
import os
import pathlib
import platform
import random
import re
import statistics
import string
import struct
import sys
import textwrap
import threading
import time
import types
import typing
import warnings

import numpy as np
import pytest
import feature_programs

import wick as torch
import wick.nn as nn
import wick.nn.functional as F

FEATURES = []


def feature(function):
    FEATURES.append(function)
    return function


@feature
def b_map(x):
    return sum(map(lambda v: v * 2, [x, x]))


@feature
def b_filter(x):
    return sum(filter(lambda v: v.dim() == 2, [x, x]))


@feature
def b_zip_strict(x):
    return sum((a * b for a, b in zip([x, x], [1, 2], strict=True)))


@feature
def b_enumerate(x):
    return sum((i * v for i, v in enumerate([x, x], start=1)))


@feature
def b_reversed(x):
    return list(reversed([x, x + 1]))[0]


@feature
def b_sorted_key(x):
    return sorted([(2, x), (1, x + 1)], key=lambda t: t[0])[0][1]


@feature
def b_maxkey(x):
    return max([(2, x), (1, x + 1)], key=lambda t: t[0])[1]


@feature
def b_anyall(x):
    return x * any((v > 1 for v in [1, 2])) * all([True, 1])


@feature
def b_hash(x):
    return x * (hash((1, "a")) == hash((1, "a")))


@feature
def b_id(x):
    return x * (id(x) == id(x))


@feature
def b_iscallable(x):
    return x * callable(math.sin)


@feature
def b_print(x):
    print("hello", file=io.StringIO()) if False else None
    return x + 1


@feature
def b_iter_sentinel(x):
    l = [1, 2, 3]
    it = iter(lambda: l.pop(0), 3)
    return x * sum(it)


@feature
def b_slice(x):
    return x[slice(0, 1)]


@feature
def b_bytes(x):
    return x * bytes([1, 2])[1]


@feature
def b_bytearray(x):
    b = bytearray(3)
    b[0] = 2
    return x * b[0]


@feature
def b_complexnum(x):
    return x * abs(complex(3, 4))


@feature
def b_frozenset(x):
    return x * len(frozenset([1, 2]) | {3})


@feature
def b_int_from_str(x):
    return x * int("12") * float("1.5")


@feature
def b_int_methods(x):
    return x * (5).bit_length() * (3.0).is_integer()


@feature
def b_round(x):
    return x * round(2.567, 2)


@feature
def b_pow_mod(x):
    return x * pow(2, 5, 7)


@feature
def b_divmod(x):
    q, r = divmod(7, 3)
    return x * q * r


@feature
def b_input_assert(x):
    assert x.dim() == 2, "msg"
    return x


@feature
def b_getattr_default(x):
    return x * getattr(x, "nonexist", 2)


@feature
def b_isinstance_tuple(x):
    return x * isinstance(x, (int, torch.Tensor))


@feature
def b_isinstance_union(x):
    return x * isinstance(3, int | str)


@feature
def b_object_eq(x):
    a = object()
    return x * (a == a) * (a is not None)


@feature
def b_format(x):
    return x * len("{:>5}{a!r}".format(3, a="x")) * len(f"{3.14159:.2f}{x.shape}")


@feature
def b_percent(x):
    return x * len("%d %s" % (3, "a"))


@feature
def s_methods(x):
    s = "Hello World"
    return (
        x
        * len(s.lower().split())
        * s.count("o")
        * s.find("W")
        * len(s.replace("l", "L").strip().title().center(20).join(["a", "b"]))
        * s.startswith("He")
        * s.isalpha()
    )


@feature
def s_encode(x):
    return x * len("abc".encode().decode())


@feature
def s_format_map(x):
    return x * len("{a}".format_map({"a": 1}))


@feature
def s_template(x):
    return x * len(string.Template("$a").substitute(a=1))


@feature
def s_removeprefix(x):
    return x * len("abc".removeprefix("a"))


@feature
def s_ascii(x):
    return x * len(string.ascii_letters)


@feature
def r_match(x):
    return x * len(re.match("(\\w+)_(\\d+)", "ab_12").group(1))


@feature
def r_compile(x):
    return x * len(re.compile("\\d+").findall("1 22 3"))


@feature
def r_sub(x):
    return x * len(re.sub("a", "bb", "banana"))


@feature
def r_split(x):
    return x * len(re.split("\\.", "a.b.c"))


PAT = re.compile("layer(\\d+)")


@feature
def r_global(x):
    m = PAT.search("xlayer12")
    return x * int(m.group(1)) if m else x


@feature
def l_ops(x):
    l = [1, 2, 3]
    l.append(4)
    l.extend([5])
    l.insert(0, 0)
    l.pop()
    l.remove(2)
    l.reverse()
    l.sort()
    l2 = l.copy()
    l2.clear()
    l += [9]
    del l[0]
    l[0:1] = [7, 8]
    return x * sum(l) * len(l) * l.index(9) * (l * 2).count(9)


@feature
def l_tensors(x):
    l = [x]
    l *= 3
    return torch.cat(l)


@feature
def l_cmp(x):
    return x * ([1, 2] < [1, 3]) * ((1, 2) == (1, 2))


@feature
def d_ops(x):
    d = {"a": 1}
    d["b"] = 2
    d.setdefault("c", 3)
    d.update(e=5)
    d.pop("a")
    d |= {"z": 1}
    d2 = {**d, "q": 1}
    k = list(d2.keys())
    v = sum(d2.values())
    i = dict(d2.items())
    d.popitem()
    return x * v * len(k) * len(i) * d.get("nope", 1)


@feature
def d_fromkeys(x):
    return x * sum(dict.fromkeys(["a", "b"], 2).values())


@feature
def d_comp(x):
    return x * sum({k: v * 2 for k, v in zip("ab", [1, 2])}.values())


@feature
def d_viewops(x):
    return x * len({"a": 1}.keys() & {"a", "b"}) * len({"a": 1}.items() | {("b", 2)})


@feature
def d_tensorkeys(x):
    d = {x: 1}
    return x * d[x]


@feature
def d_reversed(x):
    return x * (list(reversed({"a": 1, "b": 2})) == ["b", "a"])


@feature
def st_ops(x):
    s = {1, 2}
    s.add(3)
    s.discard(1)
    s |= {5}
    s -= {2}
    s ^= {9}
    s &= {3, 5, 9}
    return x * len(s) * len(s.union({4}).difference({3})) * s.issubset({3, 5, 9, 1})


@feature
def c_od(x):
    d = collections.OrderedDict(a=1, b=2)
    d.move_to_end("a")
    d.popitem(last=False)
    return x * list(d.values())[0]


@feature
def c_dd(x):
    d = collections.defaultdict(list)
    d["a"].append(x)
    d["b"].append(x + 1)
    return sum(d["a"] + d["b"])


@feature
def c_dd2(x):
    d = collections.defaultdict(lambda: 3)
    return x * d["q"]


@feature
def c_counter(x):
    c = collections.Counter("abca")
    c.update("a")
    return x * c["a"] * c.most_common(1)[0][1] * sum(c.values())


@feature
def c_deque(x):
    d = collections.deque([1, 2], maxlen=3)
    d.append(3)
    d.appendleft(4)
    d.rotate(1)
    d.pop()
    d.popleft()
    d.extend([1, 2])
    return x * sum(d) * len(d)


NT = collections.namedtuple("NT", "a b")


@feature
def c_nt2(x):
    t = NT(a=x, b=2)
    return t.a * t.b


@feature
def c_chainmap(x):
    c = collections.ChainMap({"a": 1}, {"b": 2})
    return x * c["b"] * len(c)


@feature
def c_userdict(x):
    d = collections.UserDict(a=1)
    d["b"] = 2
    return x * d["b"]


class MyDict(dict):
    def __getitem__(self, k):
        return super().__getitem__(k) * 2


@feature
def c_dictsub(x):
    d = MyDict(a=2)
    return x * d["a"]


class MyList(list):
    def total(self):
        return sum(self)


@feature
def c_listsub(x):
    l = MyList([1, 2])
    l.append(3)
    return x * l.total()


@feature
def i_many(x):
    return (
        x
        * sum(itertools.chain([1, 2], [3]))
        * len(list(itertools.product([1, 2], repeat=2)))
        * len(list(itertools.combinations([1, 2, 3], 2)))
        * len(list(itertools.permutations([1, 2, 3], 2)))
    )


@feature
def i_acc(x):
    return x * list(itertools.accumulate([1, 2, 3]))[-1] * list(itertools.accumulate([1, 2, 3], operator.mul))[-1]


@feature
def i_islice(x):
    return (
        x
        * sum(itertools.islice(itertools.count(1), 3))
        * sum(itertools.islice(itertools.cycle([1, 2]), 3))
        * sum(itertools.repeat(2, 3))
    )


@feature
def i_groupby(x):
    return x * len([(k, list(g)) for k, g in itertools.groupby([1, 1, 2])])


@feature
def i_zl(x):
    return x * sum((a + b for a, b in itertools.zip_longest([1, 2], [3], fillvalue=0)))


@feature
def i_pair(x):
    return x * sum((a * b for a, b in itertools.pairwise([1, 2, 3])))


@feature
def i_tw(x):
    return (
        x
        * sum(itertools.takewhile(lambda v: v < 3, [1, 2, 3]))
        * sum(itertools.dropwhile(lambda v: v < 2, [1, 2, 3]))
        * sum(itertools.filterfalse(lambda v: v > 1, [1, 2]))
        * sum(itertools.compress([1, 2, 3], [1, 0, 1]))
        * sum(itertools.starmap(pow, [(2, 3)]))
    )


@feature
def i_tee(x):
    a, b = itertools.tee([1, 2])
    return x * sum(a) * sum(b)


@feature
def i_fromit(x):
    return x * sum(itertools.chain.from_iterable([[1], [2]]))


@feature
def f_partial(x):
    return functools.partial(torch.add, x, alpha=2)(x)


@feature
def f_reduce(x):
    return functools.reduce(operator.add, [x, x, x])


@functools.lru_cache(None)
def cached(n):
    return n * 2


@feature
def f_lru(x):
    return x * cached(3)


class CP:
    @functools.cached_property
    def v(self):
        return 3


@feature
def f_cp(x):
    c = CP()
    return x * c.v * c.v


@functools.singledispatch
def sd(a):
    return 1


@sd.register
def _(a: int):
    return 2


@sd.register
def _(a: str):
    return 3


@feature
def f_wraps(x):

    def deco(f):

        @functools.wraps(f)
        def w(*a, **k):
            return f(*a, **k) * 2

        return w

    @deco
    def g(y):
        return y + 1

    return g(x) * len(g.__name__)


@feature
def f_cmpkey(x):
    return x * sorted([3, 1], key=functools.cmp_to_key(lambda a, b: a - b))[0]


@functools.total_ordering
class TO:
    def __init__(s, v):
        s.v = v

    def __eq__(s, o):
        return s.v == o.v

    def __lt__(s, o):
        return s.v < o.v


@feature
def f_to(x):
    return x * (TO(1) <= TO(2))


@feature
def o_many(x):
    return (
        operator.add(x, operator.mul(2, 3))
        * operator.itemgetter(1)([1, 2])
        * operator.attrgetter("ndim")(x)
        * operator.methodcaller("size", 0)(x)
    )


@feature
def o_iadd(x):
    y = x + 0
    operator.iadd(y, 1)
    return y


@feature
def o_setitem(x):
    l = [1, 2]
    operator.setitem(l, 0, 5)
    return (
        x
        * operator.getitem(l, 0)
        * operator.contains(l, 5)
        * operator.truth(1)
        * operator.index(3)
        * operator.length_hint(l)
        * operator.concat([1], [2])[1]
    )


@feature
def m_many(x):
    return (
        x
        * math.sqrt(4)
        * math.floor(2.5)
        * math.gcd(4, 6)
        * math.log2(8)
        * math.isclose(1, 1)
        * math.prod([1, 2])
        * math.comb(4, 2)
        * math.factorial(3)
        * math.hypot(3, 4)
        * math.fsum([1, 2])
        * math.dist([0, 0], [3, 4])
        * math.isqrt(9)
    )


@feature
def m_inf(x):
    return x * (math.inf > 3) * math.isnan(math.nan) * math.copysign(1, -2)


@feature
def m_dyn(x):
    return x * math.sqrt(x.shape[1])


@feature
def cp_copy(x):
    l = [1, [2]]
    a = copy.copy(l)
    b = copy.deepcopy(l)
    return x * len(a) * b[1][0]


class Pt:
    def __init__(s):
        s.a = [1]


@feature
def cp_obj(x):
    q = Pt()
    r = copy.copy(q)
    s = copy.deepcopy(q)
    return x * r.a[0] * s.a[0]


def sgn(a, b=2, *, c=3):
    pass


@feature
def in_sig(x):
    return x * len(inspect.signature(sgn).parameters)


@feature
def in_is(x):
    return x * inspect.isfunction(sgn) * inspect.isclass(Pt) * (not inspect.ismodule(sgn))


@feature
def in_bind(x):
    b = inspect.signature(sgn).bind(1, c=2)
    b.apply_defaults()
    return x * len(b.arguments)


@feature
def in_doc(x):
    return x * (inspect.getdoc(sgn) is None)


@feature
def in_mro(x):
    return x * len(inspect.getmro(Pt))


@feature
def ty_cast(x):
    return typing.cast(torch.Tensor, x) + 1


@feature
def ty_hints(x):
    return x * len(typing.get_type_hints(ty_f))


def ty_f(a: int) -> str: ...


class TD(typing.TypedDict):
    a: int


@feature
def ty_td(x):
    d = TD(a=3)
    return x * d["a"]


class Proto(typing.Protocol):
    def f(self): ...


@typing.runtime_checkable
class RProto(typing.Protocol):
    def f(self): ...


class HasF:
    def f(self):
        return 2


class NTyped(typing.NamedTuple):
    a: int
    b: int = 2


@feature
def ty_nt(x):
    return x * NTyped(3).b


class Gen(typing.Generic[typing.TypeVar("T")]):
    def __init__(s, v):
        s.v = v


@feature
def ty_generic(x):
    return x * Gen[int](3).v


@dataclasses.dataclass
class DC:
    a: typing.Any
    b: int = 2
    c: list = dataclasses.field(default_factory=list)

    def __post_init__(s):
        s.d = 5


@feature
def dc1(x):
    d = DC(x)
    d.c.append(1)
    return d.a * d.b * d.d * len(d.c)


@feature
def dc_replace(x):
    return dataclasses.replace(DC(x), b=3).b * x


@feature
def dc_asdict(x):
    return x * len(dataclasses.asdict(DC(1))) * len(dataclasses.fields(DC)) * dataclasses.is_dataclass(DC)


@feature
def dc_astuple(x):
    return x * len(dataclasses.astuple(DC(1)))


@dataclasses.dataclass(frozen=True)
class DF:
    a: int


@feature
def dc_frozen(x):
    return x * DF(3).a * (DF(3) == DF(3)) * (hash(DF(3)) == hash(DF(3)))


@dataclasses.dataclass(order=True, slots=True)
class DSl:
    a: int


@feature
def dc_order(x):
    return x * (DSl(1) < DSl(2))


class En(enum.Enum):
    A = 1
    B = 2


class IEn(enum.IntEnum):
    A = 1
    B = 2


class SEn(str, enum.Enum):
    A = "a"


class Fl(enum.Flag):
    A = enum.auto()
    B = enum.auto()


@feature
def en1(x):
    return x * En.A.value * len(En.B.name) * (En(2) is En.B) * (En["A"] == En.A) * len(list(En))


@feature
def en2(x):
    return x * IEn.B * (IEn.A < 2) * (SEn.A == "a")


@feature
def en3(x):
    return x * bool(Fl.A | Fl.B) * ((Fl.A | Fl.B) & Fl.A).value


@feature
def en_in(x):
    return x * (En.A in (En.A, En.B)) * {En.A: 2}[En.A] * (En.A in En)


@contextlib.contextmanager
def cm(v):
    try:
        yield v
    finally:
        pass


@feature
def ctx1(x):
    with cm(3) as v:
        return x * v


@feature
def ctx_null(x):
    with contextlib.nullcontext(2) as v:
        return x * v


@feature
def ctx_suppress(x):
    with contextlib.suppress(ValueError):
        raise ValueError
    return x


@feature
def ctx_stack(x):
    with contextlib.ExitStack() as s:
        v = s.enter_context(cm(2))
        s.callback(lambda: None)
        x = x * v
    return x


@feature
def ctx_deco(x):

    @cm(3)
    def g(y):
        return y * 2

    return g(x)


class UCM:
    def __enter__(s):
        s.n = 1
        return s

    def __exit__(s, *a):
        s.n = 2
        return True


@feature
def ctx_user(x):
    u = UCM()
    with u:
        raise ValueError
    return x * u.n


@feature
def w_catch(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return x + 1


LOG = logging.getLogger("a.b")


@feature
def lg_isen(x):
    return x + LOG.isEnabledFor(logging.DEBUG)


@feature
def os_path(x):
    return x * len(os.path.join("a", "b")) * len(os.path.basename("a/b")) * len(os.path.splitext("a.b"))


@feature
def os_environ(x):
    return x * (os.environ.get("NOPE", "1") == "1")


@feature
def os_getenv(x):
    return x * (os.getenv("NOPE") is None)


@feature
def pl_path(x):
    return x * len(str(pathlib.Path("a") / "b"))


@feature
def sys_ver(x):
    return x * (sys.version_info >= (3, 8)) * (sys.platform == "linux")


@feature
def pf_sys(x):
    return x * (platform.system() == "Linux")


@feature
def bis(x):
    return x * bisect.bisect([1, 2, 3], 2)


@feature
def heap(x):
    h = [3, 1]
    heapq.heapify(h)
    heapq.heappush(h, 0)
    return x * (heapq.heappop(h) + 1) * heapq.nlargest(1, h)[0]


@feature
def js(x):
    return x * json.loads(json.dumps({"a": 1}))["a"]


@feature
def frac(x):
    return x * float(fractions.Fraction(1, 2))


@feature
def stat(x):
    return x * statistics.mean([1, 2, 3])


CV = contextvars.ContextVar("cv", default=3)


LK = threading.Lock()


@feature
def thr2(x):
    with LK:
        return x + 1


TL = threading.local()


TL.v = 3


@feature
def tt(x):
    return x * len(textwrap.dedent("  a"))


@feature
def absr(x):
    return (
        x
        * isinstance([], collections.abc.Sequence)
        * isinstance({}, collections.abc.Mapping)
        * isinstance(3, numbers.Number)
        * isinstance(x, collections.abc.Iterable)
    )


@feature
def arr(x):
    return x * array.array("i", [1, 2])[1]


@feature
def stc(x):
    return x * struct.unpack("i", struct.pack("i", 3))[0]


@feature
def tns(x):
    n = types.SimpleNamespace(a=3)
    n.b = 2
    return x * n.a * n.b


@feature
def tmp(x):
    return x * types.MappingProxyType({"a": 3})["a"]


class GA:
    def __init__(s):
        object.__setattr__(s, "d", {"k": 3})

    def __getattr__(s, n):
        try:
            return s.d[n]
        except KeyError:
            raise AttributeError(n)

    def __setattr__(s, n, v):
        s.d[n] = v


@feature
def cl_getattr(x):
    g = GA()
    g.z = 2
    return x * g.k * g.z * hasattr(g, "qq") if False else x * g.k * g.z


class GAB:
    def __getattribute__(s, n):
        if n == "magic":
            return 4
        return object.__getattribute__(s, n)


@feature
def cl_getattribute(x):
    return x * GAB().magic


class Sl:
    __slots__ = ("a", "b")

    def __init__(s):
        s.a = 1
        s.b = 2


@feature
def cl_slots(x):
    q = Sl()
    q.a = 5
    del q.b
    return x * q.a * (not hasattr(q, "b"))


class Pr:
    def __init__(s):
        s._v = 1

    @property
    def v(s):
        return s._v

    @v.setter
    def v(s, n):
        s._v = n

    @v.deleter
    def v(s):
        s._v = 0

    @staticmethod
    def st(a):
        return a * 2

    @classmethod
    def cm(cls, a):
        return cls().v * a


@feature
def cl_prop(x):
    q = Pr()
    q.v = 4
    y = x * q.v
    del q.v
    return y + q.v + Pr.st(2) + Pr.cm(3)


class Meta(type):
    def __call__(cls, *a):
        o = super().__call__(*a)
        o.tag = 7
        return o

    def __getitem__(cls, k):
        return k

    @property
    def mp(cls):
        return 3


class WM(metaclass=Meta):
    pass


class Desc:
    def __set_name__(s, o, n):
        s.n = "_" + n

    def __get__(s, o, t=None):
        return getattr(o, s.n, 5)

    def __set__(s, o, v):
        setattr(o, s.n, v)


class WD:
    d = Desc()


@feature
def cl_desc(x):
    w = WD()
    a = w.d
    w.d = 3
    return x * a * w.d


class Base:
    def __init__(s, a):
        s.a = a

    def f(s):
        return s.a

    def __init_subclass__(cls, **k):
        cls.reg = k.get("r", 1)


class Derived(Base):
    def __init__(s, a, b):
        super().__init__(a)
        s.b = b

    def f(s):
        return super().f() * s.b


class D2(Derived):
    def f(s):
        return super(Derived, s).f() + super(D2, self if False else s).f()


@feature
def cl_super(x):
    return x * D2(2, 3).f() * Derived.reg


class AB(abc.ABC):
    @abc.abstractmethod
    def f(s): ...


class ABI(AB):
    def f(s):
        return 3


@feature
def cl_abc(x):
    return x * ABI().f() * isinstance(ABI(), AB)


@feature
def cl_weird(x):
    return (
        x
        * len(Pt.__name__)
        * len(Pt.__mro__)
        * (Pt.__module__ is not None)
        * (type(Pt()) is Pt)
        * issubclass(bool, int)
    )


@feature
def cl_dictupd(x):
    q = Pt()
    q.__dict__.update(k=3)
    return x * q.k * len(q.__dict__)


@feature
def g1(x):

    def gen():
        for i in range(3):
            yield (x * i)

    return sum(gen())


@feature
def g_send(x):

    def gen():
        a = yield 1
        while True:
            a = yield (a * 2)

    g = gen()
    next(g)
    return x * g.send(3)


@feature
def g_yf(x):

    def a():
        r = yield from b()
        yield r

    def b():
        yield 1
        return 5

    return x * sum(a())


@feature
def g_close(x):
    l = []

    def gen():
        try:
            yield 1
        finally:
            l.append(1)

    g = gen()
    next(g)
    g.close()
    return x * len(l)


@feature
def g_ret(x):

    def gen():
        yield 1
        return 7

    g = gen()
    next(g)
    try:
        next(g)
    except StopIteration as e:
        return x * e.value


@feature
def g_expr(x):
    return x * sum((i * j for i in range(3) for j in range(3) if i != j))


@feature
def g_unpack(x):
    a, *b, c = [1, 2, 3, 4]
    return x * a * len(b) * c


@feature
def e1(x):
    try:
        raise ValueError("a") from KeyError("b")
    except ValueError as e:
        return x * (type(e.__cause__) is KeyError) * len(e.args)


class MyE(Exception):
    def __init__(s, c):
        super().__init__("m")
        s.c = c


@feature
def e_custom(x):
    try:
        raise MyE(3)
    except MyE as e:
        return x * e.c * len(str(e))


@feature
def e_else_fin(x):
    n = 0
    for i in range(3):
        try:
            if i == 1:
                continue
            n += 1
        except Exception:
            n = 100
        else:
            n += 10
        finally:
            n += 1000
    return x * n


@feature
def e_reraise(x):
    try:
        try:
            {}["a"]
        except KeyError:
            raise
    except KeyError as e:
        return x * (e.args[0] == "a")


@feature
def e_ctx(x):
    try:
        try:
            1 / 0
        except ZeroDivisionError:
            [][1]
    except IndexError as e:
        return x * (type(e.__context__) is ZeroDivisionError)


@feature
def e_attr(x):
    try:
        x.foo
    except AttributeError:
        return x + 1


@feature
def e_tb(x):
    try:
        raise ValueError
    except ValueError as e:
        return x * (e.__traceback__ is not None)


@feature
def e_note(x):
    try:
        raise ValueError("q")
    except ValueError as e:
        e.add_note("n")
        return x * len(e.__notes__)


@feature
def e_torch(x):
    try:
        torch.mm(x, x)
    except RuntimeError:
        return x + 1


@feature
def e_stopiter(x):
    it = iter([1])
    next(it)
    try:
        next(it)
    except StopIteration:
        return x


@feature
def fl_match(x):

    def f(v):
        match v:
            case {"a": a, **r}:
                return a
            case [a, b, *_]:
                return a + b
            case int(n) if n > 3:
                return n
            case str():
                return 7
            case DC(a=1):
                return 9
            case None | True:
                return 11
            case _:
                return 0

    return x * f({"a": 1}) * f([1, 2, 3]) * f(4) * f("s") * f(DC(1)) * f(None)


@feature
def fl_walrus(x):
    return x * n if (n := 3) > 2 else x


@feature
def fl_while(x):
    i = 0
    while True:
        i += 1
        if i > 3:
            break
    else:
        i = 100
    return x * i


@feature
def fl_nonlocal(x):
    n = 0

    def inc():
        nonlocal n
        n += 1
        return n

    inc()
    return x * inc()


GL = 0


@feature
def fl_global(x):
    global GL
    GL += 1
    return x * 2


@feature
def fl_dellocal(x):
    a = 1
    del a
    return x


@feature
def fl_chain(x):
    return x * (1 < 2 < 3) * (not 1 > 2) * (3 if x.dim() else 4)


@feature
def fl_lambda(x):
    return (lambda *a, k=2, **kw: a[0] * k * len(kw))(x, z=1)


@feature
def fl_kwonly(x):

    def f(a, /, b, *, c, **k):
        return a * b * c * k["d"]

    return f(x, 2, c=3, d=4)


@feature
def fl_fnattr(x):

    def f():
        pass

    f.tag = 3
    return x * f.tag * len(f.__name__) * (f.__defaults__ is None)


@feature
def fl_defaults(x):

    def f(a, b=2):
        return a * b

    f.__defaults__ = (5,)
    return f(x)


@feature
def fl_rec(x):

    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    return x * fib(6)


@feature
def fl_star(x):
    return torch.stack([*[x], *(x,)]).sum(*[0])


@feature
def tn_item(x):
    return x * x.sum().item()


@feature
def tn_tolist(x):
    return x * sum(x.flatten().tolist())


@feature
def tn_nonzero(x):
    return x[x > 2].sum() + torch.nonzero(x > 2).shape[0]


@feature
def tn_unique(x):
    return torch.unique(x).sum()


@feature
def tn_int(x):
    return x * int(x.sum())


@feature
def tn_attr(x):
    x.tag = 3
    return x * x.tag


@feature
def tn_data(x):
    y = x.clone()
    y.data.add_(1)
    return y


@feature
def tn_reqgrad(x):
    y = x.detach().requires_grad_()
    (y * 2).sum().backward()
    return y.grad


@feature
def tn_gradfn(x):
    y = x.detach().clone().requires_grad_()
    (g,) = torch.autograd.grad((y**2).sum(), y, create_graph=True)
    return g


@feature
def tn_param(x):
    return nn.Parameter(x.detach()) * 2


@feature
def tn_shapeiter(x):
    return x * math.prod(x.shape) * len(x.shape) * x.shape.numel() * x.size()[0]


@feature
def tn_dtypes(x):
    return (
        x.to(torch.float64).type(x.dtype).to(x)
        * torch.finfo(x.dtype).eps
        * x.dtype.itemsize
        * x.dtype.is_floating_point
    )


@feature
def tn_device(x):
    return torch.zeros(2, device=x.device) * (x.device.type == "cpu") * len(str(x.device))


@feature
def tn_inplace(x):
    y = x.clone()
    y[0] = 5
    y[:, 1] += 1
    y[y > 3] = 0
    y.mul_(2)
    return y


@feature
def tn_out(x):
    o = torch.empty_like(x)
    torch.add(x, 1, out=o)
    return o


@feature
def tn_split(x):
    a, b = x.split([1, 1])
    return a * b


@feature
def tn_iter(x):
    return sum((r for r in x))


@feature
def tn_contains(x):
    return x * (2.0 in x)


@feature
def tn_len(x):
    return x * len(x)


@feature
def tn_repr(x):
    return x * len(repr(x.shape))


@feature
def tn_where1(x):
    return torch.where(x > 2)[0].sum()


@feature
def tn_tensor_ctor(x):
    return x * torch.tensor([1, 2, 3.0]) * torch.as_tensor(2)


@feature
def tn_tensor_of_tensor(x):
    return torch.tensor([x.shape[0], x.shape[1]])


@feature
def tn_nograd(x):
    with torch.no_grad():
        y = x * 2
    with torch.enable_grad():
        y = y * 2
    with torch.set_grad_enabled(False):
        y = y + 1
    with torch.inference_mode(False):
        y = y + 1
    return y


@torch.no_grad()
def ngf(x):
    return x * 2


@feature
def tn_nograd_deco(x):
    return ngf(x)


@feature
def tn_inference(x):
    with torch.inference_mode():
        y = x * 2
    return y


@feature
def tn_autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.mm(x, x.t())


@feature
def tn_ckpt(x):
    import wick.utils.checkpoint as C

    return C.checkpoint(lambda v: v.sin(), x, use_reentrant=False)


@feature
def tn_sd(x):
    m = LIN
    return x * len(m.state_dict()) * len(list(m.parameters())) * len(dict(m.named_modules())) * m.training


LIN = nn.Linear(3, 3)


SEQ = nn.Sequential(nn.Linear(3, 3), nn.ReLU())


MD = nn.ModuleDict({"a": nn.Linear(3, 3)})


ML = nn.ModuleList([nn.Linear(3, 3)])


@feature
def tn_containers(x):
    return ML[0](MD["a"](SEQ[0](x))) + len(ML) + ("a" in MD) + sum((1 for _ in SEQ)) + len(list(MD.items()))


@feature
def tn_train(x):
    LIN.train()
    LIN.eval()
    LIN.train()
    return LIN(x)


@feature
def tn_apply(x):
    LIN.apply(lambda m: None)
    return LIN(x)


@feature
def tn_setattr(x):
    LIN.foo = 3
    return LIN(x) * LIN.foo


@feature
def tn_regbuf(x):
    m = nn.Module()
    m.register_buffer("b", torch.ones(3))
    return x * m.b


BN = nn.BatchNorm1d(3)


@feature
def tn_bn(x):
    return BN(x)


DR = nn.Dropout(0.5)


@feature
def tn_drop(x):
    return DR(x) + F.dropout(x, 0.3, training=True)


class HookM(nn.Module):
    def forward(s, x):
        return x * 2


HM = HookM()


HM.register_forward_hook(lambda m, i, o: o + 1)


HM.register_forward_pre_hook(lambda m, i: (i[0] * 2,))


@feature
def tn_fhook(x):
    return HM(x)


BHM = HookM()


BHM.register_full_backward_hook(lambda m, gi, go: None)


W_ = torch.ones(3, requires_grad=True)


OPT = torch.optim.Adam([W_], 0.1)


class Fn(torch.autograd.Function):
    @staticmethod
    def forward(c, x):
        c.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(c, g):
        (x,) = c.saved_tensors
        return g * x


@feature
def tn_fn(x):
    y = x.detach().clone().requires_grad_()
    Fn.apply(y).sum().backward()
    return y.grad


class Sub(torch.Tensor):
    pass


@feature
def tn_sub(x):
    return x.as_subclass(Sub) * 2


@feature
def tn_aten(x):
    return torch.ops.aten.add.Tensor(x, x) + torch.ops.aten.relu(x)


@feature
def tn_check(x):
    torch._check(x.dim() == 2)
    torch._assert(True, "m")
    return x


@feature
def tn_ver(x):
    return x * (tuple((int(v) for v in torch.__version__.split("+")[0].split(".")[:2])) >= (2, 0))


@feature
def tn_iscompiling(x):
    return x * (1 if torch.compiler.is_compiling() or True else 0)


@feature
def tn_disable(x):

    @torch._dynamo.disable
    def g(v):
        return v + 1

    return g(x) if False else x


@feature
def tn_layout(x):
    return x * (x.layout == torch.strided) * x.is_contiguous(memory_format=torch.contiguous_format)


@feature
def tn_cuda(x):
    return x * (not torch.cuda.is_available()) * (x.is_cuda == False)


@feature
def tn_nested_tup(x):
    a, (b, c) = (x, (x, x))
    return {"a": a, "l": [b, (c,)]}


@feature
def tn_pytree(x):
    import wick.utils._pytree as pt

    l, s = pt.tree_flatten({"a": x, "b": [x]})
    return pt.tree_unflatten([v * 2 for v in l], s)


@feature
def tn_profiler(x):
    with torch.profiler.record_function("a"):
        return x + 1


@feature
def tn_sdpa(x):
    q = x[None, None]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, q, q)


@feature
def tn_foreach(x):
    torch._foreach_add_([(y := x.clone())], 1.0)
    return y


@feature
def tn_dl(x):
    return sum((b[0].sum() for b in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x), batch_size=1)))


@feature
def tn_clip(x):
    w = torch.ones(3, requires_grad=True)
    (x * w).sum().backward()
    nn.utils.clip_grad_norm_([w], 1.0)
    return w.grad


@feature
def tn_init(x):
    m = nn.Linear(3, 3)
    nn.init.xavier_uniform_(m.weight)
    return m(x)


@feature
def tn_stride(x):
    return x * x.stride(0) * x.storage_offset()


@feature
def tn_isleaf(x):
    return x * x.is_leaf * (x.grad_fn is None) * (not x.requires_grad)


@feature
def tn_named(x):
    return x * len(x.names) if False else x


@feature
def np_const(x):
    return x * np.pi * np.float32(2) * int(np.prod([2, 3]))


@feature
def np_arr(x):
    return x * float(np.arange(3).sum()) * np.sqrt(4.0)


@feature
def np_linspace(x):
    return x * torch.tensor(np.linspace(0, 1, 3))


@feature
def np_scalar(x):
    return x * np.int64(3).item()


@feature
def np_isinst(x):
    return x * (not isinstance(x, np.ndarray)) * isinstance(np.float32(1), np.floating)


# ---- what a program finds in its process ----


@feature
def tensor_of_data(x):
    return x + torch.Tensor([1, 2, 3]) + torch.Tensor(2, 3).zero_() + torch.Tensor(x.shape).fill_(2)


@feature
def tensor_new_of_its_kind(x):
    return x + x.new_tensor([1, 2, 3]) + x.double().new_tensor(3)


@feature
def import_that_loads(x):
    sys.modules.pop("colorsys", None)
    return imports_colors(x)


def imports_colors(x):
    import colorsys

    return x * colorsys.ONE_THIRD


@feature
def import_that_is_missing(x):
    try:
        import there_is_no_such_module
    except ImportError:
        return x * 2


@feature
def random_of_python(x):
    return x * random.random() + random.uniform(1, 2)


@feature
def random_branch(x):
    return x * 2 if random.random() < 0.5 else x * 3


@feature
def random_of_numbers(x):
    return x * random.randint(1, 5) + random.choice([1.0, 2.0])


@feature
def generator_throw(x):
    def g():
        try:
            yield x
        except ValueError as e:
            yield x * len(str(e))

    values = g()
    next(values)
    return values.throw(ValueError("abc"))


LOG = logging.getLogger("wick.tests.features")


@feature
def log_message(x):
    LOG.warning("a %s of %d", x.shape, 3)
    return x * 2


THREAD = threading.local()
THREAD.value = 3


@feature
def thread_local(x):
    return x * THREAD.value


@feature
def thread_local_set(x):
    THREAD.other = 4
    return x * THREAD.other


VARIABLE = contextvars.ContextVar("VARIABLE", default=3)


@feature
def context_variable(x):
    return x * VARIABLE.get()


@functools.singledispatch
def by_class(v):
    return v * 2


@by_class.register
def _(v: int):
    return v + 1


@feature
def single_dispatch(x):
    return by_class(x) * by_class(3)


@feature
def decimals_and_dates(x):
    import datetime

    return x * float(decimal.Decimal("1.5")) * datetime.datetime(2020, 1, 2).month


@feature
def vars_and_globals(x):
    return vars(types.SimpleNamespace(b=x))["b"] * len(globals()["__name__"])


@feature
def numpy_of_a_tensor(x):
    return x + torch.from_numpy(x.numpy() * 2)


@feature
def numpy_function_of_a_tensor(x):
    return x + torch.as_tensor(np.sum(x.numpy()))


@feature
def process_numbers(x):
    return x * (os.getpid() > 0) * (os.cpu_count() > 0)


@feature
def rng_state(x):
    state = torch.get_rng_state()
    a = torch.rand(3)
    torch.set_rng_state(state)
    return x * a + torch.rand(3)


@feature
def fork_rng(x):
    with torch.random.fork_rng():
        a = torch.rand(3)
    return x * a + torch.rand(3)


@feature
def seed_inside(x):
    torch.manual_seed(3)
    return x * torch.rand(3)


GENERATOR = torch.Generator()


@feature
def generator_from_outside(x):
    GENERATOR.manual_seed(5)
    return x * torch.rand(3, generator=GENERATOR) + torch.randn(2, 3, generator=GENERATOR)


@feature
def generator_made_inside(x):
    generator = torch.Generator().manual_seed(3)
    return x * torch.rand(3, generator=generator)


# ---- the tests ----


def seed():
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function", FEATURES + feature_programs.FEATURES, ids=lambda f: f.__name__)
def test_a_feature(function):
    captured = torch.compile(function, fullgraph=True)
    for turn in range(3):
        x = torch.arange(6.0).reshape(2, 3) + 1 + turn // 2
        results = []
        for run in function, captured:
            seed()
            results.append(run(x.clone()))
        plain, found = map(torch.utils._pytree.tree_leaves, results)
        assert len(plain) == len(found)
        for a, b in zip(plain, found, strict=True):
            assert torch.equal(torch.as_tensor(a), torch.as_tensor(b)), f"turn {turn}"
