"""Classes and their parts, exceptions, with, breaks of every kind."""

# ruff: noqa: E741, F821, F841, B018

import collections
import contextlib
import dataclasses
import enum
import functools
import hashlib
import io
import random
import sys
import threading
import types
import warnings

import numpy
from capture_harness import Box, Corpus, loud, numbers

import wick

case = Corpus()

G = {}


def reset():
    G.clear()
    G.update(calls=0, log=[])
    Counter.made = 0
    cached.cache_clear()
    random.seed(3)


class Plain:
    kind = "plain"
    shared = [1.0, 2.0]

    def __init__(self, value, rate=0.5):
        self.value = value
        self.rate = rate

    def scaled(self, k=1):
        return self.value * self.rate * k

    @classmethod
    def of(cls, value):
        return cls(value, rate=2.0)

    @staticmethod
    def twice(x):
        return x * 2

    @property
    def double(self):
        return self.value * 2

    @double.setter
    def double(self, value):
        self.value = value / 2


class Derived(Plain):
    kind = "derived"

    def __init__(self, value):
        super().__init__(value, rate=0.25)
        self.extra = value + 1

    def scaled(self, k=1):
        return super().scaled(k) + self.extra


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a, b):
        self.a, self.b = a, b


class Vector:
    def __init__(self, data):
        self.data = data

    def __add__(self, other):
        return Vector(self.data + getattr(other, "data", other))

    def __radd__(self, other):
        return Vector(other + self.data)

    def __mul__(self, other):
        return Vector(self.data * other)

    def __iadd__(self, other):
        self.data = self.data + other
        return self

    def __neg__(self):
        return Vector(-self.data)

    def __getitem__(self, i):
        return self.data[i]

    def __setitem__(self, i, value):
        self.data[i] = value

    def __len__(self):
        return self.data.shape[0]

    def __contains__(self, k):
        return k in self.data.shape

    def __iter__(self):
        yield from self.data

    def __call__(self, k):
        return self.data + k

    def __bool__(self):
        return self.data.dim() > 1

    def __eq__(self, other):
        return self.data.shape == other.data.shape

    def __hash__(self):
        return 5

    def __lt__(self, other):
        return len(self) < len(other)

    def __repr__(self):
        return f"Vector({len(self)})"

    def __getattr__(self, name):
        if name == "twin":
            return self.data * 2
        raise AttributeError(name)


class Descriptor:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, instance, owner):
        return self if instance is None else getattr(instance, self.name) + 1

    def __set__(self, instance, value):
        setattr(instance, self.name, value * 2)


class Described:
    field = Descriptor()

    def __init__(self, value):
        self.field = value


class Lazy:
    def __init__(self, x):
        self.x = x

    @functools.cached_property
    def total(self):
        return self.x.sum()


class Counter:
    made = 0

    def __init__(self):
        Counter.made += 1
        self.number = Counter.made


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5


@dataclasses.dataclass
class Pair:
    x: object
    y: object = 2
    log: list = dataclasses.field(default_factory=list)

    def product(self):
        return self.x * self.y


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: object
    k: int = 3


class Manager:
    def __init__(self, log, swallow=False):
        self.log, self.swallow = log, swallow

    def __enter__(self):
        self.log.append("in")
        return self

    def __exit__(self, kind, value, traceback):
        self.log.append(kind.__name__ if kind else "out")
        return self.swallow


class Mistake(Exception):
    def __init__(self, text, data=None):
        super().__init__(text)
        self.data = data


# ==== classes ====


@case
def make_instance(x):
    p = Plain(x)
    return p.scaled() + p.scaled(k=3)


@case
def instance_returned(x):
    return Plain(x + 1), Derived(x)


@case
def derived_with_super(x):
    return Derived(x).scaled(2)


@case
def class_and_static_methods(x):
    return Plain.of(x).scaled(), Plain.twice(x), Plain(x).twice(x), Derived.of


@case(captures=0, breaks=0, raises=True)
def derived_of_raises(x):
    return Derived.of(x)


@case
def properties(x):
    p = Plain(x)
    p.double = x + 3
    p.value += 1
    return p.double, p


@case
def class_attributes(x):
    return x * len(Plain.kind), Derived(x).kind, Plain(x).shared[1] * x


@case
def slotted(x):
    s = Slotted(x, 2)
    s.a = s.a * s.b
    return s.a


@case
def slotted_returned(x):
    return Slotted(x + 1, 2)


@case(captures=2, inputs=lambda k: (Slotted(numbers(k, 3), 2),))
def slotted_argument(s):
    s.b += 1
    return s.a * s.b


@case
def operators_of_class(x, y):
    v = Vector(x) + Vector(y)
    v += 1
    w = 2 + v * 3
    return (-w).data, v[0], len(v), v(5)


@case
def protocol_of_class(x):
    v = Vector(x)
    v[0] = 7
    return 4 in v, bool(v), v == Vector(x), v < Vector(x), repr(v), v.twin, [r.sum() for r in v]


@case
def missing_attribute_of_class(x):
    v = Vector(x)
    return hasattr(v, "nothing"), getattr(v, "nothing", 3), x + 1


@case
def descriptor(x):
    d = Described(x)
    d.field = d.field + 1
    return d.field, d


LOCK, DEEP_LOCK = threading.Lock(), threading.RLock()


@case
def locks(x, l):
    with LOCK:
        l.append(1)
    with DEEP_LOCK, DEEP_LOCK:
        y = x + 1
    LOCK.acquire()
    LOCK.release()
    return y


@case
def cached_property(x):
    z = Lazy(x)
    return z.total + z.total, z.total is z.total


@case
def dataclass(x):
    p = Pair(x)
    q = dataclasses.replace(p, y=3)
    p.log.append(1)
    return p.product(), q, p.log


@case
def dataclass_equal(n):
    return Pair(n) == Pair(n, 2), repr(Pair(n)), Frozen(n) == Frozen(n)


@case(inputs=lambda k: (Pair(numbers(k, 3), 2 + k // 2),))
def dataclass_argument(p):
    return p.x * p.y


@case
def frozen_dataclass(x):
    return Frozen(x, 4)


@case
def enums(x):
    return x * Color.BLUE.value, Color.RED is Color(1), Color.RED.name, Level.HIGH > 2, x + Level.LOW


@case(inputs=lambda k: (numbers(k, 3), Color.RED if k < 2 else Color.BLUE))
def enum_argument(x, color):
    if color is Color.RED:
        return x + 1
    return x * color.value


@case(inputs=lambda k: (numbers(k, 3), Level.LOW if k < 2 else Level.HIGH))
def int_enum_argument(x, level):
    return x * level


@case
def instance_argument(x, o):
    return x[0] * o.value + o.child.rate


@case(captures=2, again=False)
def instance_counts(x, o):
    o.count += 1
    o.child.rate = 0.5
    return x * o.count


@case(captures=2)
def attributes_of_caller(x, o):
    o.value = o.value + 1
    o.made = x * 2
    if hasattr(o, "gone"):
        del o.gone
    o.gone = 3
    return o.made + o.gone


@case(captures=2)
def attribute_deleted(x, o):
    if hasattr(o, "child"):
        del o.child
    return x, hasattr(o, "child"), hasattr(o, "value")


@case
def dict_of_instance(x, o):
    return sorted(vars(o)), o.__dict__["count"] + x, type(o).__name__


@case
def setattr_call(x, o):
    o.count = 9
    return o.count * x


@case(captures=3, again=False)
def class_attribute_counts(x):
    return x * Counter().number


@case
def class_in_function(x):
    class Inner:
        k = 3

        def f(self, y):
            return y * self.k

    return Inner().f(x)


@case
def isinstance_of_own(x):
    d = Derived(x)
    return isinstance(d, Plain), type(d) is Derived, issubclass(Derived, Plain), d.__class__.__name__


@case(inputs=lambda k: (numbers(k, 3), Plain(numbers(k, 3), 2).scaled))
def bound_method_argument(x, f):
    return f(k=2) + x


@case
def method_of_argument(x, o):
    f = Plain(x).scaled
    return f(2), f.__self__.value


@case(captures=2, again=False, inputs=lambda k: (numbers(k, 3), [1].append, functools.partial(wick.add, alpha=k // 2)))
def callables_as_arguments(x, append, add):
    append(2)
    return add(x, x)


# ==== exceptions ====


@case
def caught(x):
    try:
        raise ValueError("no")
    except ValueError as e:
        return x + 1, str(e), e.args


@case
def finally_runs(x):
    log = []
    try:
        y = x * 2
    finally:
        log.append("finally")
    return y, log


@case
def return_in_finally(x):
    for k in range(3):
        try:
            if k == 1:
                return x + k
        finally:
            x = x * 2


@case
def else_of_try(x, d):
    try:
        v = d["missing"]
    except KeyError as e:
        v = len(e.args)
    else:
        v = 0
    return x + v


@case
def exception_in_callee(x, n):
    def f(k):
        if k > 1:
            raise Mistake("big", x)
        return k

    try:
        f(n)
    except (TypeError, Mistake) as e:
        return e.data * 2, type(e).__name__


@case
def nested_exceptions(x):
    try:
        try:
            raise KeyError("a")
        except KeyError as e:
            raise ValueError("b") from e
    except ValueError as e:
        return x + 1, type(e.__cause__).__name__, type(e.__context__).__name__


@case
def reraised(x):
    try:
        try:
            raise Mistake("a")
        except Mistake:
            x = x + 1
            raise
    except Mistake as e:
        return x, str(e)


@case
def exception_groups(x):
    try:
        raise ExceptionGroup("g", [ValueError("a"), KeyError("b")])
    except* ValueError as e:
        x = x + len(e.exceptions)
    except* KeyError:
        x = x * 2
    return x


@case(raises=True, captures=0)
def raises_out(x, n):
    y = x * n
    raise Mistake(f"bad {n}", n)


@case(raises=True, captures=0)
def raises_in_callee(x):
    def inner(k):
        if k == 0:
            raise IndexError("deep")
        return inner(k - 1)

    x.add_(1)
    return inner(3)


@case(raises=True, captures=0)
def raises_after_effects(x, l):
    l.append(1)
    x.mul_(2)
    G["log"].append("here")
    return l[99]


@case(raises=True, captures=0)
def shape_error(x, q):
    return q @ x @ x


@case(raises=True, captures=0)
def index_error(x):
    return x[100]


@case(raises=True, captures=0)
def type_error(x):
    return x + "a"


@case
def shape_error_caught(x, q):
    try:
        return q @ x @ x
    except RuntimeError as e:
        return x + 1, type(e).__name__, "mat1" in str(e) or "size" in str(e)


@case(captures=2, breaks=1)  # values are wrong: the next capture ends in front of it
def bad_index_caught(x, i):
    try:
        y = x.index_select(0, i + 100)
        return y.sum().item()
    except IndexError:
        return "bad"


@case(raises=True, captures=0)
def failed_assertion(x, n):
    assert n > 10, f"n is {n}"
    return x


@case(raises=True, captures=0)
def unbound(x, n):
    if n > 10:
        y = 1
    return x + y


@case(raises=True, captures=0)
def missing_global(x):
    return x + not_there  # noqa: F821


@case(raises=True, captures=0)
def raise_from_none(x):
    try:
        1 / 0
    except ZeroDivisionError:
        raise KeyError("k") from None


@case(raises=True, captures=0)
def custom_exception_with_tensor(x):
    raise Mistake("t", x * 2)


@case(raises=True, captures=0)
def raises_in_generator(x):
    def g():
        yield x
        raise ValueError("in g")

    return list(g())


@case(raises=True, captures=0)
def raises_in_comprehension(x, l):
    return [x * (1 // (k - 2)) for k in l + [2]]


@case
def suppressed(x):
    with contextlib.suppress(KeyError):
        x = x + 1
        {}["a"]
    return x


@case
def exception_state(x):
    try:
        raise ValueError
    except ValueError:
        a = sys.exc_info()[0] is ValueError
    return a, sys.exc_info()[0], x + 1


# ==== with ====


@case
def own_manager(x):
    log = []
    with Manager(log) as m:
        x = x + 1
        m.log.append("body")
    return x, log


@case
def manager_swallows(x):
    log = []
    with Manager(log, True):
        x = x + 1
        raise Mistake("swallowed")
    return x, log


@case(raises=True, captures=0)
def manager_lets_through(x):
    with Manager(G["log"]):
        raise Mistake("through")


@case
def two_managers(x):
    log = []
    with Manager(log), Manager(log) as m:
        x = x * len(m.log)
    return x, log


@contextlib.contextmanager
def generator_manager(log):
    log.append("enter")
    try:
        yield 3
    finally:
        log.append("exit")


@case
def context_manager_of_generator(x):
    log = []
    with generator_manager(log) as k:
        x = x * k
    return x, log


@case
def return_in_with(x):
    log = []
    with Manager(log):
        return x + 1, log


# ==== breaks ====


@case
def prints(x):
    y = x + 1
    print("shape", x.shape, end=";\n")
    return y * 2


@case(captures=2, breaks=1)
def prints_tensor(x):
    y = x[0, 0] + 1
    print(y)
    return y * 2


@case
def prints_in_loop(x):
    for k in range(3):
        x = x + k
        print(k)
    return x


@case(captures=2, breaks=1)
def item(x):
    k = (x.sum() * 100).item()
    return x * k


@case(captures=2, breaks=1)
def branch_on_value(x):
    if x.sum() > 0:
        return x + 1
    return x - 1


@case(captures=2, breaks=1)
def branch_on_value_in_callee(x):
    def f(y):
        if y.sum() > 0:
            y = y * 2
        return y + 1

    return f(x + 1) * 3


@case(captures=3, breaks=2)
def branches_on_value(x, y):
    if (x > 0).any():
        x = x + 1
    if not bool((y > 100).all()):
        y = y - 1
    return x * y


@case(captures=2, breaks=1)
def not_of_a_comparison(x):
    flag = not (x.sum() > 0.5)
    return x + 1, flag


@case(captures=3, breaks=2, again=False)
def while_on_value(x):
    while x.abs().max() > 0.3:
        x = x / 2
    return x


@case(captures=3, breaks=2)
def float_and_int(x):
    a = float(x[0, 0])
    b = int(x[1, 1])
    return x * a + b


@case(captures=2, breaks=1)
def to_list(x):
    rows = (x * 2).tolist()
    return x + len(rows), rows


@case(captures=7, breaks=4)
def to_numpy(x):
    a = (x + 1).numpy()
    return x * a.shape[0], a.sum().item() > 0


@case(captures=4, breaks=3)
def through_numpy(x):
    a = (x * 2).numpy()
    b = numpy.cumsum(a, axis=0)
    return wick.from_numpy(b) + x


@case(captures=3, breaks=2)
def shared_with_numpy(x):
    y = x + 1
    a = y.numpy()
    a[0, 0] = 50.0
    return y * 2


@case(captures=3, breaks=2)
def c_extension_call(x):
    y = x + 1
    n = hashlib.md5(b"abc")
    return y, n.hexdigest()


@case
def c_objects_made_here(x):
    text, last, space = io.StringIO("abc"), collections.deque([x, 1], maxlen=2), types.SimpleNamespace(k=2)
    last.append(x + 1)
    space.k += 1
    return last, text.read(), space.k, object() is not object()


@case(captures=2, again=False)
def random_module(x):
    k = random.random()
    return x * k + random.randint(1, 5)


@case
def warning_raised(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return x + 1


# ---- calls that change something and may raise ----


@case(captures=2)
def remove_or_not(x, l, n):
    for item in (n, 4, 99):
        try:
            l.remove(item)
        except ValueError as e:
            l.append(str(e))
    return x + len(l)


@case(captures=2)
def remove_raises_in_callee(x, l):
    def drop(item):
        l.remove(item)
        return 10

    def attempt(item):
        try:
            return drop(item)
        except ValueError:
            return 1
        finally:
            l.append(item)

    return x * attempt(3) + attempt(77)


@case(captures=2)
def pop_or_not(x, d):
    found = []
    for key in ("two", "three"):
        try:
            found.append(d.pop(key))
        except KeyError as e:
            found.append(e.args)
    return x, found, d.pop("four", None)


@case(captures=2, inputs=lambda k: (numbers(k, 3, 4), {1, 2} if k < 2 else {2, 5}))
def set_remove_or_not(x, s):
    for item in (1, 5):
        try:
            s.remove(item)
        except KeyError:
            x = x * 2
            s.add(-item)
    return x


@case
def next_or_not(x, l):
    it = iter(l)
    kept = []
    try:
        while True:
            kept.append(next(it))
    except StopIteration:
        kept.append(next(it, None))
    return x + len(kept), kept


@case(captures=2, inputs=lambda k: (numbers(k, 3, 4), Box(a=1) if k < 2 else Box(), {} if k < 2 else {"k": 1}))
def delete_or_not(x, o, d):
    try:
        del o.a
    except AttributeError:
        x = x + 1
    try:
        del d["k"]
    except KeyError as e:
        return x, e.args
    return x * 2


@case(captures=2, inputs=lambda k: (numbers(k, 3, 4), [1, 2] if k < 2 else [1, 2, 3, 4]))
def set_item_or_not(x, l):
    try:
        l[2] = 5
    except IndexError:
        l.append(7)
    try:
        del l[3]
    except IndexError as e:
        return x, str(e)
    return x * 2


@case(captures=2, unkept=3)
def extend_fails_halfway(x, l):
    def items():
        yield 8
        raise KeyError("no")

    try:
        l.extend(items())
    except KeyError:
        l.append(9)
    return x + len(l)


@case(captures=2, breaks=1)
def iterator_seen_by_others(x, l):
    it = iter(l)
    G["log"].append(it)
    next(it)
    return x + 1


class Noisy(dict):
    def __setitem__(self, key, value):
        G["log"].append(key)
        super().__setitem__(key, value)


@case(captures=2, inputs=lambda k: (numbers(k, 3, 4), Noisy(a=1)))
def set_item_of_dict_class(x, d):
    d["b"] = x * 2
    return x + 1


@case(captures=2, breaks=1)
def break_in_callee(x):
    def inner(y):
        y = y * 2
        loud("inner")
        return y + 1

    return inner(x + 1) - 1


@case(captures=4, breaks=1)
def break_in_deep_callee(x):
    def a(y):
        return b(y + 1) * 2

    def b(y, *, k=3):
        return c(y, k=k) + 1

    def c(y, k):
        loud("deep")
        return y * k

    return a(x)


@case(captures=3, breaks=2)
def break_in_method(x, o):
    p = Derived(x)
    loud(p.kind)
    y = p.scaled(2)
    loud("done")
    return y + p.rate


@case(captures=2, breaks=1, unkept=6)
def break_in_try(x):
    try:
        y = x + 1
        loud("try")
        y = y * 2
        raise Mistake("x")
    except Mistake:
        loud("except")
        y = y - 1
    finally:
        loud("finally")
    return y


@case(captures=2, breaks=1)
def break_in_with(x):
    log = []
    with Manager(log):
        x = x + 1
        loud("with")
        x = x * 2
    return x, log


@case(captures=2, breaks=1)
def break_in_no_grad(g):
    with wick.no_grad():
        y = g * 2
        loud("no grad", wick.is_grad_enabled())
        z = g * 3
    return y, z, g * 4


@case(captures=2, breaks=1)
def break_with_stack(x):
    return x + 1 + show(x * 2) * (x - 1)


def show(x):
    loud("show")
    return x


@case(captures=4, breaks=1)
def break_in_keywords(x):
    def f(a, *, k, j=2):
        loud(k)
        return a * k + j

    return f(x, k=3, j=4) + 1


@case(captures=3, breaks=2, again=False)
def break_in_comprehension(x):
    return [show(x * k) for k in range(2)]


@case(unkept=2, again=False)
def break_in_generator(x, n):
    def g():
        for k in range(n):
            loud(k)
            yield x * k

    return list(g())


@case(captures=2, breaks=1)
def break_between_inputs_written(x):
    x.add_(1)
    loud("between")
    x.mul_(2)
    return x


@case(captures=2, breaks=1)
def views_across_break(x):
    row = x[0]
    own = (x * 2)[1]
    loud("between")
    row.add_(1)
    own.mul_(3)
    return x, row, own


@case(captures=2, breaks=1)
def containers_across_break(x, l):
    a = {"x": x + 1, "l": l, "own": [1]}
    b = a["own"]
    loud("between")
    b.append(2)
    a["l"].append(5)
    a["x"].add_(1)
    return a, b


@case(captures=2, breaks=1)
def closures_across_break(x):
    count = 0

    def step(y):
        nonlocal count
        count += 1
        return y * count

    y = step(x)
    loud(count)
    return step(y), count


@case(captures=3, breaks=2)
def iterator_across_break(x, l):
    it = iter(l)
    a = next(it)
    loud(a)
    return x * a + sum(it)


@case(captures=2, breaks=1)
def instance_across_break(x):
    p = Plain(x + 1)
    loud(p.kind)
    p.value = p.value * 2
    return p.scaled(), p


@case(captures=0, unkept=6)
def exception_across_break(x):
    try:
        raise Mistake("a", x + 1)
    except Mistake as e:
        loud(e)
        return e.data * 2


@case(captures=3, breaks=2)
def output_order(x):
    sys.stdout.write("first\n")
    return x + 1


@case(breaks=1, raises=True)
def raises_behind_break(x, n):
    y = x + 1
    loud("before")
    if n > 1:
        raise Mistake("behind", y)
    return y


@case(captures=4, breaks=2)
def identity_of_values(x):
    return id(x) == id(x), x + 1


@case(captures=2, breaks=1)
def list_filled_around_break(x):
    return [x + 1, show(x), x * 2]


@case(captures=2, breaks=1)
def deleted_behind_break(x, y):
    z = x * y
    loud("del")
    del x, y
    return z + 1


@case(captures=2, breaks=1)
def tensor_made_behind_break(x):
    loud("before")
    return wick.ones(2) + x[0, :2]


@case(captures=4, breaks=3, makes=True)
def global_log_behind_break():
    def global_log_behind_break(x):
        G["log"].append("a")
        loud(len(G["log"]))
        G["log"].append("b")
        return x + 1

    return global_log_behind_break


@case(captures=2, breaks=1)
def eval_call(x):
    return eval("x + 1")


@case
def lru_cached(x, n):
    return x * cached(n)


@functools.lru_cache
def cached(n):
    G["log"].append(n)
    return n + 1


@case
def frames_and_locals(x):
    y = x + 1
    return sorted(locals()), y


@case(captures=2, breaks=1)
def sorted_tensors_by_item(ts):
    return sorted(ts, key=lambda t: t[0, 0].item())


@case(captures=2, again=False, inputs=lambda k: (Box(t=numbers(k, 3), f=lambda v: v + 1),))
def function_in_attribute(o):
    return o.f(o.t)


# ==== modules made inside ====


@case
def modules_made_inside(x, i):
    net = wick.nn.Sequential(wick.nn.ReLU(), wick.nn.Softmax(dim=-1))
    loss = wick.nn.CrossEntropyLoss()(x, i)
    return net(x), loss, wick.nn.Flatten(0)(x).sum(), len(net), wick.nn.MSELoss(reduction="sum")(x, x * 2)


@case
def a_module_is_returned(x):
    net = wick.nn.Sequential(wick.nn.Tanh(), wick.nn.ReLU(inplace=True)).eval()
    return net, net(x), net[1].inplace


class Running(wick.nn.Module):
    def __init__(self, start):
        super().__init__()
        self.register_buffer("total", start)
        self.seen = 0
        self.last = None

    def forward(self, x):
        self.seen += 1
        self.total = self.total + x.sum()
        self.last = x * 2
        return self.last + self.total


@case
def a_module_with_state_is_made(x, v):
    running = Running(v.sum())
    return running(x), running(x + 1), running.seen, running, [name for name, _ in running.named_buffers()]


@case(captures=4, breaks=1)  # each module that is made is another one
def a_module_lives_behind_a_break(x):
    loss, net = wick.nn.L1Loss(reduction="none"), Running(x.mean())
    y = net(x)
    loud("made")
    return loss.reduction, net.seen, net.total, net.training, y


@case(captures=2, breaks=1)
def a_made_module_with_a_hook(x):
    net = wick.nn.ReLU()
    net._forward_hooks[0] = lambda module, inputs, output: output * 2
    return net(x)


@case(raises=True, captures=0, again=False)
def a_made_module_refuses(x):
    return wick.nn.ReLU()(x, 1)
