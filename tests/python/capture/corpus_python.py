"""The language around tensors: control flow, loops, comprehensions, generators, closures, calls, containers, text,
match, globals and imports."""

# ruff: noqa: E741

import math
import operator
from collections import Counter, OrderedDict, defaultdict, namedtuple
from functools import partial, reduce

from capture_harness import Corpus, numbers

import wick

case = Corpus()

G = {}
COUNT = 0
SCALE = 2.0
TABLE = {"relu": wick.relu, "tanh": wick.tanh}
LAYERS = [1.0, 2.0, 3.0]
Point = namedtuple("Point", "x y")


def reset():
    global COUNT, SCALE
    G.clear()
    G.update(calls=0, log=[], total=0.0)
    COUNT, SCALE = 0, 2.0


# ==== control flow ====


@case
def branch_on_number(x, n):
    if n > 2:
        return x + n
    return x - n


@case
def branch_on_flag(x, flag):
    return x.relu() if flag else -x


@case
def branch_on_none(x, c):
    if c is None:
        c = 1
    return x + c


@case
def branch_on_text(x, t):
    if t == "relu":
        return wick.relu(x)
    elif t.startswith("t"):
        return wick.tanh(x)
    return x


@case
def branch_on_shape(x):
    if x.shape[0] > 3 and x.dim() == 2:
        return x.sum()
    return x.mean()


@case
def branch_on_dtype(x):
    return x.double() if x.dtype is wick.float32 else x


@case
def branch_on_type(x, a):
    if isinstance(a, float) and isinstance(x, wick.Tensor):
        return x * a
    return None


@case
def logic(x, n, flag):
    return (n and x), (not flag), (0 or n), (flag and n > 1 or x)


@case
def conditional_chain(x, n):
    return x + (1 if n == 1 else 2 if n == 2 else 3)


@case
def chained_comparison(x, n):
    if 0 < n <= 2 < x.shape[1]:
        return x * 2
    return x


@case
def for_range(x, n):
    for k in range(n):
        x = x + k
    return x


@case
def for_list(x, l):
    for k in l:
        x = x * k
    return x


@case
def for_tensors(x, ts):
    total = x
    for k, y in enumerate(ts):
        total = total + y * k
    return total


@case
def for_zip(ts, l):
    out = []
    for y, k in zip(ts, l, strict=False):
        out.append(y * k)
    return out


@case
def for_dict(x, d):
    for key, value in d.items():
        x = x + len(key) * (value if isinstance(value, int) else value.sum())
    return x


@case
def for_reversed(x, l):
    for k in reversed(l):
        x = x - k
    return x


@case
def for_else(x, n):
    for k in range(5):
        if k == n:
            x = x + k
            break
    else:
        x = x - 1
    return x


@case
def continue_in_loop(x):
    for k in range(6):
        if k % 2:
            continue
        x = x + k
    return x


@case
def while_loop(x, n):
    while n > 0:
        x = x * 0.5
        n -= 1
    return x, n


@case
def while_true(x):
    steps = 0
    while True:
        x = x / 2
        steps += 1
        if steps >= 4:
            break
    else:
        steps = -1
    return x, steps


@case
def nested_loops(x):
    for i in range(3):
        for j in range(2):
            if i == j:
                continue
            x = x + i * j
    return x


@case
def many_returns(x, n):
    for k in range(10):
        if k > n:
            return x + k
        x = x * 1.5
    return x


@case
def walrus(x, l):
    if (count := len(l)) > 2:
        x = x + count
    return [y for k in l if (y := k * 2) > 2], x


@case
def unpacking(x):
    a, (b, *c), d = 1, (2, 3, 4), x
    *e, f = "xyz"
    return a, b, c, d * 2, e, f


@case
def swap(x, y):
    x, y = y, x
    return x - y


@case
def augmented(x, n):
    n += 1
    n *= 2
    n **= 2
    n //= 3
    n -= 1
    n %= 5
    n |= 8
    return x * n


@case
def deleted_local(x, y):
    z = x + y
    del x
    w = z * 2
    del z
    return w


@case
def assertion(x, n):
    assert n > 0, "positive"
    assert x.dim() == 2
    return x * n


# ==== comprehensions and generators ====


@case
def list_comprehension(x, n):
    return [x * k for k in range(n)]


@case
def nested_comprehension(x):
    return [[x + i * j for j in range(2)] for i in range(2)]


@case
def comprehension_with_condition(x, l):
    return [x * k for k in l if k % 2]


@case
def dict_comprehension(x, t):
    return {f"{t}{k}": x + k for k in range(2)}


@case
def set_comprehension(x, l):
    return {k % 2 for k in l}, x + 1


@case
def generator_expression(x, n):
    return sum(x * k for k in range(n))


@case
def generator_in_call(x, ts):
    return wick.stack([y * 2 for y in ts]), max(y.shape[0] for y in ts), all(y.dim() == 2 for y in ts)


def produce(x, n):
    for k in range(n):
        yield x + k
    return k


@case
def generator_function(x, n):
    return [y * 2 for y in produce(x, n)]


def delegate(x, n):
    got = yield from produce(x, n)
    yield x * got


@case
def yield_from(x, n):
    return list(delegate(x, n))


def echo(x):
    while x is not None:
        x = yield x * 2


@case
def generator_send(x):
    g = echo(x)
    a = next(g)
    b = g.send(a + 1)
    g.close()
    return a, b


@case
def generator_unfinished(x, n):
    g = produce(x, n)
    first = next(g)
    return first


@case(captures=0, unkept=3)
def generator_returned(x, n):
    return (x * k for k in range(n))


@case
def map_and_filter(x, l):
    return [x + k for k in map(lambda v: v * 2, filter(lambda v: v > 1, l))]


@case
def reduce_call(ts):
    return reduce(operator.add, ts)


@case
def sorted_with_key(ts, l):
    return sorted(l, key=lambda v: -v), sorted(ts, key=lambda y: y.shape[0])[0] + 1


@case
def iterator_by_hand(x, l):
    it = iter(l)
    a = next(it)
    b = next(it)
    return x + a * b, next(it, None), next(it, 7)


@case
def enumerate_and_zip(x, l):
    return [(i, x + k, c) for i, (k, c) in enumerate(zip(l, "abc", strict=False), start=1)]


# ==== closures and cells ====


@case
def inner_function(x, n):
    def inner(y):
        return y * n + x

    return inner(x)


@case
def inner_lambda(x, a):
    return (lambda y, s=a: y * s)(x)


@case
def nonlocal_counter(x):
    count = 0

    def step(y):
        nonlocal count
        count += 1
        return y * count

    return step(step(x)), count


@case
def nonlocal_tensor(x):
    total = x * 0

    def add(y):
        nonlocal total
        total = total + y

    add(x)
    add(x * 2)
    return total


@case(makes=True)
def closure_value():
    scale = 3

    def closure_value(x):
        return x * scale

    return closure_value


@case(makes=True)
def closure_tensor():
    bias = wick.ones(4)

    def closure_tensor(x):
        return x + bias

    return closure_tensor


@case(makes=True)
def closure_written():
    last = None

    def closure_written(x):
        nonlocal last
        last = x * 2
        return last + 1

    return closure_written


@case(makes=True)
def closure_list_grows():
    log = []

    def closure_list_grows(x):
        log.append(x.shape[0])
        return x + 1

    return closure_list_grows


@case(makes=True, captures=3, again=False)
def closure_counts():
    count = 0

    def closure_counts(x):
        nonlocal count
        count += 1
        return x * count

    return closure_counts


@case
def function_returned(x, n):
    def inner(y):
        return x * y + n

    return inner, x + 1


@case
def lambdas_in_list(x):
    fs = [lambda v, k=k: v * k for k in range(3)]
    return [f(x) for f in fs]


@case
def late_binding(x):
    fs = [lambda v: v * k for k in range(3)]  # noqa: B023
    return [f(x) for f in fs]


@case
def recursion(x, n):
    def down(y, k):
        return y if k == 0 else down(y * 0.5, k - 1) + k

    return down(x, n)


@case
def decorated_inside(x):
    def twice(f):
        def wrapper(*args, **keywords):
            return f(*args, **keywords) * 2

        return wrapper

    @twice
    def plus(y, *, k=1):
        return y + k

    return plus(x), plus(x, k=3)


@case
def cell_of_parameter(x, n):
    def read():
        return x + n

    n = n + 1
    x = x * 2
    return read()


@case
def empty_cell(x):
    def read():
        return late

    try:
        read()
    except NameError as e:
        text = str(e)
    late = x + 1
    return text, read()


# ==== calls ====


def takes_all(a, b=2, /, c=3, *rest, d, e=5, **others):
    return a, b, c, rest, d, e, others


@case
def call_forms(x):
    return takes_all(x, d=1), takes_all(x, 1, 2, 3, 4, d=x + 1), takes_all(x, c=2, d=3, e=4, f=5)


@case
def call_spread(x, l, d):
    return takes_all(x, *l, d=1), takes_all(*l, **{"d": 7}), takes_all(x, *l, d=d["two"], **{"k": x})


@case
def call_with_defaults(x, y):
    def f(a, b=x, *, c=y):
        return a + b * c

    return f(1), f(x, c=2), f(1, 2)


@case
def varargs(x, y):
    def f(*args, **keywords):
        return len(args), sorted(keywords), sum(args), keywords["k"]

    return f(x, y, k=x)


@case(inputs=lambda k: (numbers(k, 3), numbers(k, 3, salt=1), 2))
def own_varargs(*args):
    return args[0] * args[2] + args[1], len(args)


@case
def partial_call(x, a):
    f = partial(wick.add, x, alpha=2)
    return f(x)


@case
def operator_module(x, y):
    return operator.mul(x, y), operator.itemgetter(0)((x, y)) + 1


@case
def builtins_of_numbers(x, n, a):
    return abs(-n), min(n, 3), max([n, 1]), sum([1, n]), divmod(7, n), round(a, 1), pow(n, 2), x * int(a), float(n)


@case
def math_functions(x, n):
    return x * math.sqrt(n) + math.pi, math.prod(x.shape), math.floor(2.5)


@case
def type_calls(x, n):
    return type(x) is wick.Tensor, isinstance(n, (int, str)), issubclass(bool, int), callable(x), type(n)(3)


@case
def getattr_call(x, t):
    return getattr(x, t)(), getattr(x, "missing", 3), hasattr(x, "shape"), getattr(wick, t)(x)


@case
def function_in_table(x, t):
    return TABLE[t](x)


@case
def method_as_value(x):
    f = x.add
    g = wick.Tensor.mul
    return f(1), g(x, 2)


@case
def wick_functions(x, y):
    return wick.add(x, y, alpha=2), wick.sum(x, dim=(0, 1)), wick.Tensor.sum(x, 0)


@case
def deep_calls(x):
    def f(y, k):
        return g(y, k - 1) + 1 if k else y

    def g(y, k):
        return f(y, k - 1) * 2 if k else y

    return f(x, 8)


@case
def call_raises_type_error(x):
    def f(a):
        return a

    try:
        f(x, 1)
    except TypeError as e:
        return str(e), x + 1


@case(makes=True, captures=3, again=False)
def mutable_default():
    def add(y, log=[]):  # noqa: B006
        log.append(1)
        return y * len(log)

    def mutable_default(x):
        return add(x) + 0

    return mutable_default


@case(makes=True)
def own_mutable_default():
    def inner(x, log=[]):  # noqa: B006
        log.append(x.shape[0])
        return x + 1

    def own_mutable_default(x):
        return inner(x)

    return own_mutable_default


# ==== containers ====


@case
def list_methods(x):
    a = [x, 1]
    a.append(2)
    a.extend([3, 4])
    a.insert(0, 0)
    b = a.pop()
    a.reverse()
    return a, b, a[::-1].index(0), len(a)


@case(captures=2)  # the third call finds what the second left
def list_of_caller(x, l):
    l.append(len(l))
    l[0] = 7
    l.extend((1, 2))
    del l[1]
    l += [5]
    return x + l[0], l


@case(captures=2)  # the third call finds what the second left
def tensors_into_list_of_caller(x, ts):
    ts.append(x + 1)
    ts[0] = x * 2
    return ts[0] + ts[-1]


@case
def pop_from_list_of_caller(ts):
    last = ts.pop()
    first = ts.pop(0) if ts else 1
    ts += [first, last]
    return last + first, len(ts)


@case(captures=2)  # the third call finds what the second left
def sort_list_of_caller(x, l):
    l.sort(reverse=True)
    l.insert(1, 9)
    l.reverse()
    return x * l[0]


@case(captures=2)  # the third call finds what the second left
def clear_list_of_caller(x, ts):
    kept = list(ts)
    ts.clear()
    ts.append(x)
    return kept[0] + x, not ts


@case
def slices(x, l):
    return l[1:], l[::-1], l[:2], (1, 2, 3)[1:], l * 2, l + [x], l[-1]


@case(captures=2)  # the third call finds what the second left
def slice_assignment(x, l):
    l[0:1] = [x, x]
    l[-1:] = []
    return len(l)


@case
def dict_methods(x):
    a = {"k": x, 1: 2}
    a["n"] = 3
    a.update(z=4, k=x + 1)
    b = a.pop("n")
    a.setdefault("s", []).append(5)
    return a, b, a.get("no"), a.get("k"), list(a), list(a.values())[0], "z" in a, len(a)


@case(captures=2)  # the third call finds what the second left
def dict_of_caller(x, d):
    d["new"] = x * 2
    d["two"] = d["two"] + 0
    d.setdefault("three", 3)
    return d["one"] + d["two"], "new" in d, d.get("none", 1)


@case(captures=2)  # the third call finds what the second left
def dict_delete(x, d):
    one = d.pop("one", x)
    d["extra"] = x
    del d["extra"]
    return one + 1, len(d)


@case
def dict_merge(x, d):
    return {**d, "k": x + 1}, d | {"two": 1}, dict(d, z=3), dict([("a", x)])


@case
def dict_iteration_order(x):
    a = {}
    for k in ("z", "a", "m"):
        a[k] = x * len(a)
    del a["z"]
    a["z"] = 0
    return a, [k for k in a], list(reversed(a))


@case
def dict_equal(d, l):
    return d.keys() == {"one", "two"}, l == [1, 2, 3], {1: 2} == {1: 2}, sorted(d)


@case
def tuples(x, n):
    a = (x, n)
    b = a + (1,)
    return b[0] + b[1], b, a * 2, len(b), (1, x) != (2, x)


@case
def sets(x, l):
    s = set(l) | {9}
    s.add(10)
    s.discard(1)
    return s, x + len(s), 9 in s, frozenset(l) & {2}, s - {9}


@case(captures=2, inputs=lambda k: (numbers(k, 3), {1, 2, k}), again=False)
def set_of_caller(x, s):
    s.add(100)
    s.discard(2)
    s |= {7}
    return x * len(s), 100 in s


@case
def named_tuples(x, n):
    p = Point(x, n)
    q = p._replace(y=5)
    a, b = p
    return p, q, p.x + p.y, q.y, a * b, isinstance(p, tuple), p._fields


@case(inputs=lambda k: (Point(numbers(k, 3), 2),))
def named_tuple_argument(p):
    return Point(p.x * p.y, p), p[0] + 1


@case
def ordered_dict(x):
    a = OrderedDict(one=x)
    a["two"] = x + 1
    a.move_to_end("one")
    return list(a), a["two"]


@case
def default_dict(x):
    a = defaultdict(list)
    a["k"].append(x + 1)
    return a["k"], len(a)


def keyed(turn, *factory):
    table = defaultdict(*factory)
    table["k"] = [numbers(turn, 3)]
    return table


@case(captures=2, inputs=lambda k: (numbers(k, 3), keyed(k, list)))
def default_dict_from_outside(x, table):
    table["k"].append(x * 2)
    table["new"].append(x + 1)
    return table["new"], len(table), list(table), table["k"][0] + x


def three_zeros():
    return wick.zeros(3)


@case(captures=2, inputs=lambda k: (numbers(k, 3), keyed(k, three_zeros)))
def default_dict_of_tensors(x, table):
    table["sum"] += x
    return table["sum"] * 2


@case(inputs=lambda k: (numbers(k, 3), keyed(k, None), keyed(k)))
def default_dict_without_a_factory(x, table, other):
    try:
        table["no"]
    except KeyError as error:
        x = x + len(str(error))
    try:
        return other["no"]
    except KeyError:
        return x, list(table)


class Grouped(defaultdict):
    """Of a class written in Python, with the way of C code to make what is missing."""


@case(captures=2, inputs=lambda k: (numbers(k, 3), Grouped(list)))
def derived_default_dict(x, table):
    table["a"].append(x * 2)
    table["a"].append(1)
    return len(table["a"]), list(table)


class Missing(dict):
    def __missing__(self, key):
        self[key] = len(key)
        return self[key] + 1


@case(captures=2, inputs=lambda k: (numbers(k, 3), Missing(), Counter()))
def dict_with_missing(x, table, counter):
    counter["a"] += 1
    counter["a"] += table["four"]
    return x * counter["a"] * table["four"], counter


class Items(list):
    pass


class Shy(dict):
    """Sets items as any dictionary does, and deletes them its own way."""

    def __delitem__(self, key):
        self.pop(key, None)


@case(captures=2, inputs=lambda k: (numbers(k, 3), Items([1, 2, numbers(k, 2)]), Shy(a=1, b=numbers(k, 3))))
def items_of_derived_containers(x, items, shy):
    items[0] = x * 2
    items[1] = items[2]
    shy["a"] = shy["b"] + x
    shy["c"] = 3
    return items[2] + 1


@case(inputs=lambda k: (numbers(k, 3), Shy(b=numbers(k, 3))))
def deletes_its_own_way(x, shy):
    del shy["never"]
    return x * len(shy)


def loud_factory(log):
    def factory():
        log.append("made")
        return (k for k in log)

    return defaultdict(factory)


@case(captures=4, breaks=2, inputs=lambda k: (numbers(k, 3), *(lambda log: (log, loud_factory(log)))([])))
def default_dict_of_what_cannot_be_made_again(x, log, table):
    first = next(table["g"], None)
    return x * len(log), first, type(table["g"]).__name__


@case
def nested_containers(x):
    a = {"l": [x, {"t": (x + 1, [2])}]}
    a["l"][1]["t"][1].append(x * 2)
    return a


@case(captures=2, inputs=lambda k: ({"a": [numbers(k, 3), {"b": (1, numbers(k, 2))}]},))
def nested_argument(d):
    d["a"][1]["c"] = d["a"][0] * 2
    d["a"].append(d["a"][1]["b"][1] + 1)
    return d["a"][1]["b"][0]


@case
def shared_container(x):
    inner = [x]
    a = [inner, inner]
    inner.append(1)
    return a, a[0] is a[1]


@case(captures=0, unkept=3)
def cyclic_container(x):
    a = [x + 1]
    a.append(a)
    return a


@case
def membership(x, l, d):
    return 2 in l, "one" in d, "no" not in d, x is l, 3 in (1, 2, 3), "a" in "abc"


@case
def tensor_in_dict_of_caller(d):
    d["one"].add_(1)
    d["one"] = d["one"] * 2
    return d["one"].sum()


@case
def same_tensor_in_two_places(x):
    a = {"x": x, "l": [x]}
    x.add_(1)
    return a["x"] is a["l"][0], a["l"][0] * 2


@case
def star_list(x, l):
    return [*l, x, *range(2)], (*l, 1), {*l, 5} >= {5}


@case
def range_objects(x, n):
    r = range(1, 10, n)
    return r[1], len(r), list(r), 3 in r, x[: r[0]], r


@case
def copies_of_containers(x, l, d):
    a, b = l.copy(), dict(d)
    a.append(x)
    b["k"] = x + 1
    return a, b, list(l) == l, tuple(l)


# ==== text ====


@case
def formatted(x, n, a, t):
    return f"{t}-{n:03d}-{a:.2f}-{n!r}-{x.shape}", x + len(t)


@case
def text_methods(x, t):
    return t.upper(), t.split("e"), "-".join([t, "b"]), t.replace("r", "R"), t[0], t * 2, t + "!", x + ord(t[0])


@case
def old_formatting(x, n, t):
    return "%s=%d" % (t, n), "{} {k}".format(n, k=t), str(n), repr(t), x * 2


@case
def text_of_shape(x):
    return f"{x.shape[0]}x{x.size(1)} {x.dtype} {x.device}", str(x.dtype), x - 1


@case
def bytes_and_text(x, n):
    return b"ab" + bytes([n]), "ä".encode(), bytes(n), chr(97), hex(n), bin(n), x + 1


# ==== match ====


@case
def match_value(x, t):
    match t:
        case "relu":
            return wick.relu(x)
        case "tanh" | "sigmoid":
            return wick.tanh(x)
        case _:
            return x


@case
def match_sequence(x, l):
    match l:
        case [a, b]:
            return x + a - b
        case [a, *rest]:
            return x * a + len(rest)


@case
def match_mapping(x, d):
    match d:
        case {"two": int(n), **rest}:
            return x * n, sorted(rest)


@case
def match_class(x, n):
    match Point(x, n):
        case Point(x=y, y=2):
            return y * 2
        case Point(y, k):
            return y + k


@case
def match_guard(x, n):
    match n:
        case k if k > 2:
            return x + k
        case int():
            return x - n


# ==== globals and imports ====


@case
def global_number(x):
    return x * SCALE


@case
def global_list(x):
    for k in LAYERS:
        x = x * k
    return x


@case(captures=3, again=False)
def global_written(x):
    global COUNT
    COUNT += 1
    return x + COUNT


@case
def global_only_written(x):
    global SCALE
    SCALE = 4.0
    return x * SCALE


@case
def global_dict_written(x):
    G["last"] = x * 2
    G["log"].append(x.shape[0])
    return x


@case(captures=3, again=False)
def global_dict_counts(x):
    G["calls"] += 1
    return x * G["calls"]


@case
def global_tensor_kept(x):
    G["tensor"] = x + 1
    return G["tensor"] * 2


@case
def global_made_and_deleted(x):
    global TEMPORARY
    TEMPORARY = x + 1
    y = TEMPORARY * 2
    del TEMPORARY
    return y


@case
def module_attribute(x):
    return x * math.pi + wick.nn.functional.relu(x)


@case
def import_inside(x):
    import math as m
    from operator import add

    return add(x, m.e)


@case
def import_submodule(x):
    import wick.nn.functional as F
    from wick import nn

    return F.relu(x), nn.functional is F


@case
def docstring_and_annotations(x: "Tensor") -> "Tensor":  # noqa: F821
    """Adds one."""
    y: int = 1
    return x + y


@case
def globals_call(x):
    return x + 1, __name__[:6]


@case
def ellipsis_and_constants(x):
    return x[...], (1, (2, "a")), 1e300 * 10, -0.0, 2**70, 1j * 2, None, True
