"""Sizes and integers that differ from call to call: symbols from the second capture on, and what is assumed of them.

Each function is run plain and captured on the same sequence of inputs; everything that a program can see has to be
equal. Stated are the number of captures in all, and what the newest segment assumes of its symbols."""

# ruff: noqa: E741

import copy
import functools
import gc
import itertools
import math
import operator
import pickle
import random
import re
import sys

import pytest
from capture_harness import Box, call_once, compare, loud, numbers, reset

import wick
import wick.nn.functional as F
from wick import nn
from wick._C import Compiled
from wick.fx.experimental.proxy_tensor import make_fx

CASES = []
ROWS = [(n, 4) for n in (3, 5, 7, 2, 9, 6)]
MATRICES = [(3, 4), (5, 6), (7, 8), (2, 9), (9, 2), (6, 6)]


def sized(captures, guards=(), *, shapes=ROWS, inputs=None):
    """guards: of the newest segment. shapes: of the one argument; inputs: all arguments of each call instead."""

    def collect(function):
        given = inputs or [functools.partial(lambda k, s: (numbers(k, *s),), k, s) for k, s in enumerate(shapes)]
        CASES.append(pytest.param(function, captures, list(guards), given, id=function.__name__))
        return function

    return collect


def newest(compiled):
    return compiled.report()[-1]


@pytest.mark.parametrize(("function", "captures", "guards", "inputs"), CASES)
def test_sizes(function, captures, guards, inputs):
    reset(None)
    plain = [call_once(function, make(), None) for make in inputs]
    reset(None)
    compiled = Compiled(function)
    for k, make in enumerate(inputs):
        compare(plain[k], call_once(compiled, make(), None), f"call {k}")
    assert (compiled.captures, compiled.unkept) == (captures, 0), [s["size_guards"] for s in compiled.report()]
    assert newest(compiled)["size_guards"] == guards


# ==== tensors of such sizes ====


@sized(2)
def pointwise(x):
    return (x * 2 + 1).relu().sum(1)


@sized(2, shapes=MATRICES)
def both_dims(x):
    return x.softmax(1), x.t() @ x, x.mean()


@sized(2)
def flattened(x):
    return x.view(x.shape[0], -1), x.reshape(-1), x.flatten()


@sized(2, shapes=[(b, t, 8) for b, t in MATRICES])
def heads(x):
    B, T, C = x.shape
    return x.reshape(B, T, 2, C // 2).transpose(1, 2)


@sized(2, shapes=MATRICES)
def last_column(x):
    return x[:, -1], x[-1], x[1:], x[:, :1]


@sized(2, shapes=MATRICES)
def positions(x):
    return x + wick.arange(x.shape[1]), wick.arange(1, x.size(0)), wick.arange(0, x.shape[0] * 2, 2)


@sized(2, ["16 >= s0"], shapes=[(t, 3) for t in (3, 5, 16, 2, 9)])
def slice_of_a_mask(x):
    mask = wick.ones(16, 16).tril()
    return mask[: x.shape[0], : x.shape[0]] @ x


@sized(2, shapes=MATRICES)
def new_tensors(x):
    B, T = x.size()
    return wick.zeros(B, T), x.new_ones(T), wick.full((B, 1), 0.5), wick.ones(x.shape)


@sized(2)
def number_of_a_tensor(x):
    return x.sum() / x.shape[0], x * x.shape[0], x.shape[0] * x, x + len(x), x - x.numel(), x > x.shape[0]


@sized(2, inputs=[lambda n=n: (numbers(n, n, 4).requires_grad_(),) for n in (3, 5, 7, 2)])
def number_under_the_tape(g):
    return (g * g).sum() / g.shape[0] + (g * g.shape[0]).mean()


@sized(2, ["s0 == s1"], inputs=[lambda n=n: (numbers(n, n, 4), numbers(n, n, 4, salt=1)) for n in (3, 5, 7, 2)])
def two_that_agree(x, y):
    return x + y


@sized(2, [], inputs=[lambda n=n: (numbers(n, n, 4), numbers(n, 9 - n, 4, salt=1)) for n in (3, 5, 7, 2)])
def two_that_do_not(x, y):
    return wick.cat([x, y]), x.shape[0] + y.shape[0]


@sized(2, inputs=[lambda n=n: (numbers(n, 4, n).t(),) for n in (3, 5, 7, 2)])
def transposed_input(x):
    return x.contiguous(), x.t() * 2, x.stride(1) > 0


@sized(2, inputs=[lambda n=n: (numbers(n, n, 9)[:, :4],) for n in (3, 5, 7, 2)])
def rows_of_a_wider_one(x):
    return x * 2, x[1:]


@sized(2)
def written_in_place(x):
    x[1:] *= 2
    x[: x.shape[0] - 1] += 1
    x.add_(x.shape[0])
    return x.sum()


@sized(2, inputs=[lambda n=n: ([numbers(n, n, 4), numbers(n, n + 1, 4)], Box(t=numbers(n, n))) for n in (3, 5, 7, 2)])
def in_containers(l, o):
    return l[0].sum(0) + l[1].sum(0), o.t * o.t.shape[0]


@sized(3, shapes=[(3, 4), (5, 4), (1, 4), (7, 4), (1, 4), (2, 4)])
def one_is_another_segment(x):
    return x * x.shape[0], x.mean(0)


@sized(3, shapes=[(3, 4), (5, 4), (0, 4), (7, 4), (0, 4), (2, 4)])
def none_is_another_segment(x):
    return x.sum(0), x.shape


# ==== integers computed of sizes ====


@sized(2, shapes=MATRICES)
def arithmetic(x):
    B, T = x.shape
    return B + T, B - T, B * T, B // 2, T % 3, -B, +T, min(B, T), max(B, 4), sum(x.shape), int(B), B * 2 - T // 3


@sized(2, shapes=MATRICES)
def in_results(x):
    B = x.shape[0]
    return x.shape, [B, (B, {"rows": B})], {"n": B * 2}, slice(B), x.shape[1:] + (B,), [*x.shape], wick.Size([B, 2])


@sized(2, inputs=[lambda n=n: (numbers(n, n, 4), [1], {"k": 0}, Box(n=0)) for n in (3, 5, 7, 2)])
def stored(x, l, d, o):
    l.append(x.shape[0])
    d["k"] = x.shape[0] * 2
    o.n = x.shape
    o.both = (x.shape[0], l)
    return o.n[0] + d["k"] + l[-1]


@sized(2)
def handed_on(x):
    def rows(t, *shape, extra=0, **named):
        return t.view(*shape) + shape[0] + extra + named["k"]

    return rows(x, *x.shape, extra=x.shape[0], **{"k": x.shape[1]})


@sized(2)
def through_closures(x):
    n = x.shape[0]

    def by(k=n):
        return n * 2 + k

    return x * by(), (lambda m: m + n)(n)


@sized(3, ["4 < s0"], shapes=[(3, 4), (4, 4), (9, 4), (2, 4), (7, 4), (5, 4)])
def branch(x):
    return x * 2 if x.shape[0] > 4 else x + 1


@sized(3, ["s0%2 != 0"], shapes=[(2, 4), (4, 4), (9, 4), (8, 4), (7, 4), (6, 4)])
def even_or_odd(x):
    n = x.shape[0]
    return x[: n // 2] if n % 2 == 0 else x


@sized(2, shapes=MATRICES)
def decided_by_the_range(x):
    B, T = x.shape
    return x if B and T > 1 and B + T >= 4 and not B < 0 and B is not None and isinstance(T, int) else None


@sized(3, ["s0 == 2"], shapes=[(3, 4), (4, 4), (3, 4), (2, 4), (2, 4), (4, 4)])
def loop_over_rows(x):
    return [x[i] * i for i in range(x.shape[0])]


@sized(3, ["s0 == 2"], shapes=[(3, 4), (4, 4), (3, 4), (2, 4), (2, 4), (4, 4)])
def in_a_text(x):
    return f"{x.shape[0]} rows"


@sized(3, ["s0 == 2"], shapes=[(3, 4), (4, 4), (3, 4), (2, 4), (2, 4), (4, 4)])
def as_a_key(x):
    table = {k: k * k for k in range(9)}
    return table[x.shape[0]]


@sized(3, ["s0 == 2"], shapes=[(3, 4), (4, 4), (3, 4), (2, 4), (2, 4), (4, 4)])
def seen_by_c_code(x):
    return sorted([x.shape[0], 3]), str({"n": [x.shape[0]]}), max(iter([x.shape[0], 1]))


@sized(3, ["s0 == 2", "2*s0 == 4"], shapes=[(3, 4), (4, 4), (3, 4), (2, 4), (2, 4), (4, 4)])
def given_by_a_generator(x):
    return sum(k for k in (x.shape[0], 1)), sorted([1, 2], key=lambda k: k * x.shape[0])


@sized(3, ["s0 != s1"], shapes=[(3, 3), (4, 4), (5, 5), (3, 4), (5, 6)])
def compared_shapes(x):
    return x.shape == x.t().shape


@sized(2, ["s0 != 4"], shapes=[(4, 4), (3, 4), (6, 4), (4, 4), (7, 4)])
def compared_with_numbers(x):
    return x.shape == (4, 4), x.shape[0] != 4


@sized(2, shapes=MATRICES)
def products(x):
    import math

    return math.prod(x.shape), x.numel() - math.prod(x.size()), x.shape.numel() - x.numel()


# ==== integers from outside ====


@sized(2, ["20 >= s0"], inputs=[lambda n=n: (numbers(1, 3, 20), n) for n in (3, 5, 7, 2)])
def integer_argument(x, n):
    return x[:, :n], n + 1, x * n


@sized(3, inputs=[lambda n=n: (numbers(1, 3, 20), n) for n in (3, 5, 1, 7, 1, 9)])
def integer_one(x, n):
    return x * n, n


@sized(4, inputs=[lambda n=n: (numbers(1, 3, 20), n) for n in (3, -5, -6, 8, 3)])
def negative_integers(x, n):
    return x * n, n


@sized(2, inputs=[lambda n=n: (numbers(1, 3, 4), Box(n=n)) for n in (3, 5, 7, 2)])
def integer_attribute(x, o):
    o.n += 1
    return x + o.n, wick.zeros(o.n)


@sized(2, inputs=[lambda n=n: (numbers(1, 3, 4), {"n": n, "m": 1}) for n in (3, 5, 7, 2)])
def integer_in_a_dict(x, d):
    return x + d["n"]


@sized(3, ["s0 == 7"], inputs=[lambda n=n: (numbers(1, 3, 4), {"n": n, "m": 1}) for n in (3, 5, 7, 5)])
def dict_seen_as_a_whole(x, d):
    y = x + d["n"]
    d.pop("m")
    return y, d["n"] + 1


@sized(2, inputs=[lambda n=n: (numbers(1, 3, 4), n, 0.5 * n) for n in (3, 5, 7, 2)])
def numbers_in_cells(x, n, a):
    return (lambda k: k + n)(1), (lambda t: wick.mul(t, a))(x)


@sized(3, inputs=[lambda n=n: (numbers(1, 3, 4), 0.5 * n) for n in (3, 5, 7, 5)])
def float_seen_by_c_code(x, a):
    return x * 2, str({"rate": a}), sum(k for k in (a, 1.0)), str(ValueError(a))


@sized(4, ["(4*s0)%s1 == 0"])
def behind_a_break(x):
    rows = x.shape[0]
    loud("rows", rows)
    return x.view(rows, -1), rows


@sized(4, ["s0 >= s1 - 1"])
def break_in_a_callee(x):
    def inner(t, n):
        loud("inner")
        return t[: n - 1]

    return inner(x * 2, x.shape[0]).sum(0)


@sized(2)
def floats_of_sizes(x):
    n = x.shape[0]
    b = float(n) + math.sqrt(n) + n / 2 - 1.0 / n + n**0.5
    return x * b, max(n, 1.5), b, round(n / 4, 1), (n + 1) / (n - 1)


@sized(4, shapes=[(n, 4) for n in (3, 7, 5, 9, 4, 6)])
def float_of_a_size_decides(x):
    return x * 2 if x.shape[0] / 2 > 2.75 or x.shape[0] > 4.5 else x - 1


@sized(2)
def integers_of_sizes(x):
    n = x.shape[0]
    return n**2, pow(n, 3), divmod(n + 3, 2), bool(n), x.new_zeros(n**2, divmod(n, 2)[0])


@sized(2, shapes=[(n, 3) for n in (4, 5, 6, 7, 9, 16, 17, 31, 33, 48)])
def integers_of_quotients(x):
    n = x.shape[0]
    half, third = int(n / 2), math.floor(n / 3)
    convolved = math.floor((n + 2 * 1 - 3) / 2 + 1), int(n * 0.75), math.ceil(float(n) * 1.5), int(n / 2 + 0.5)
    unchanged = math.floor(n), math.ceil(n), math.trunc(n), int(n)
    return x.new_zeros(half), x.new_ones(third + 1), convolved, math.ceil(n / 16) * 16, unchanged, half + third


@sized(2, ["s0 - 5 >= 0"], shapes=[(n, 3) for n in (5, 6, 7, 12, 9)])
def quotients_that_may_be_negative(x):
    n = x.shape[0] - 5
    return x * 2, math.floor((n - 8) / 2), math.ceil((n - 8) / 2), int(n / 2), math.trunc((-1 - x.shape[0]) / 3)


@sized(2, ["s0*s1 < 1125899906842624"], shapes=[(n, n + 1) for n in (4, 5, 7, 9, 12)])
def quotient_of_a_product(x):
    return x.sum() * (1.0 / (x.shape[0] * x.shape[1])), int(x.shape[0] * x.shape[1] / 7)


@sized(5, shapes=[(n, 3) for n in (4, 5, 7, 9, 33)])
def quotients_that_are_not_exact(x):
    return x * 2, int(x.shape[0] * 0.1), int(x.shape[0] / 3 * 3 + 0.25)


# ==== floats from outside ====


def rates(*values, put=lambda a: a):
    return [functools.partial(lambda a: (numbers(1, 3, 4), put(a)), a) for a in values or (0.5, 0.75, -1.25, 1.0, 2.5)]


@sized(2, inputs=rates())
def float_in_an_expression(x, a):
    return x * a, a - x, x / a + a, a / x, x > a, a * 2


@sized(2, inputs=rates(0.5, 1.25, 1.3, 1.4, 1.45))
def float_that_is_rounded(x, a):
    return x * a, math.floor(a), math.ceil(a), math.trunc(a + 1), int(a * 2), round(a), round(a, 1)


@sized(2, inputs=rates())
def float_in_place(x, a):
    y = x * 1
    y *= a
    y[0] += a
    x -= a
    return y


@sized(2, inputs=rates(put=lambda a: Box(a=a)))
def float_attribute(x, o):
    o.a = o.a * 0.5
    return x * o.a


@sized(2, inputs=rates(put=lambda a: {"a": a}))
def float_in_a_dict(x, d):
    return (lambda t: t * d["a"])(x)


@sized(2, inputs=rates())
def computed_float(x, a):
    b = abs(-a * 2 + 1) ** 2 // 1
    return x * math.sqrt(b) + float(a), b, round(a, 1), x * pow(a, 2) % 3


@sized(3, inputs=rates())
def float_decides(x, a):
    return x * a if a * 2 > 1 else x - a


@sized(3, inputs=rates())
def largest_float(x, a):
    return x * max(a, 0.6), max(a, 0.6) is a


@sized(3, inputs=rates(0.5, 0.0, 0.75, -1.0, 0.0, -0.0))
def truth_of_float(x, a):
    return x / a if a else x * a


@sized(3, inputs=rates(4.0, 9.0, -1.0, 2.25, 16.0))
def error_of_some_floats(x, a):
    try:
        return x * math.sqrt(a)
    except ValueError as e:
        return x, str(e)


@sized(3, inputs=rates(4.0, 9.0, 0.0, 2.25, 16.0))
def division_by_some_floats(x, a):
    try:
        return x * (1.0 / a)
    except ZeroDivisionError as e:
        return x, str(e)


@sized(3, inputs=rates(0.5, 0.75, 2, 0.25, 3))
def float_or_integer(x, a):
    return x * (a * 2)


@sized(2, inputs=rates(1.25, 0.75, 2.5, -1.5, 0.0, 7.0))
def exponent(x, a):
    whole = (x * 4).to(wick.int64)
    return x.abs() ** a, x.double().pow(a), (x.abs().half() ** a, whole.abs().pow(a)), a**x


@sized(5, inputs=rates(1.25, 0.75, 2.0, 3.5, 0.5, -1.0, 4.5))
def exponent_with_a_body_of_its_own(x, a):
    return x.abs() ** a


@sized(2, inputs=rates())
def exponent_in_place(x, a):
    y = x.abs() + 1
    y **= a * 3.3
    return y.pow_(a * 1.7)


@sized(3, inputs=[lambda a=a: (numbers(1, 3, 4).requires_grad_(), a) for a in (1.25, 0.75, 2.5, 1.25)])
def exponent_under_the_tape(x, a):
    return x.abs() ** a


@sized(2, inputs=rates(0.5, 0.75, -1.25, 1.0, float("inf")))
def filled_with_a_float(x, a):
    full = wick.full((3, 4), a), wick.full_like(x, a), x.new_full((4,), a), wick.full((2,), a, dtype=wick.float64)
    return full, full[0] * x, wick.tensor(a), wick.maximum(x, wick.tensor(a)), wick.scalar_tensor(a), a % x, a // x


@sized(2, inputs=rates(0.5, 7.75, -1.25, 1.0, 3.0))
def whole_numbers_of_a_float(x, a):
    return wick.full((3,), a, dtype=wick.int64), wick.full((3,), a, dtype=wick.bool), x.new_full((2,), a * 2)


@sized(2, inputs=[lambda n=n: (numbers(n, n, 4), 0.5 * n) for n in (3, 5, 7, 2)])
def float_and_size_of_a_filling(x, a):
    return wick.full((x.shape[0], 2), a).sum(1) + x.sum(1) ** 2.0


# ==== errors ====


@sized(4, ["(3*s0)%4 != 0", "s0 == 5"], shapes=[(4, 3), (8, 3), (6, 3), (5, 3), (12, 3), (6, 3)])
def error_of_some_sizes(x):
    y = x + 1
    try:
        return y.view(4, -1)
    except RuntimeError as e:
        return str(e)


@pytest.mark.parametrize("sizes", [(3, 4, 9), (9, 3, 4)])
def test_index_out_of_range(sizes):
    def f(x):
        return x[x.shape[0] - 5 :][4]

    compiled = Compiled(f)
    for n in sizes:
        reset(None)
        plain = call_once(f, (numbers(0, n, 2),), None)
        reset(None)
        compare(plain, call_once(compiled, (numbers(0, n, 2),), None), n)


# ==== settings and marks ====


def rows_of(x):
    return x.view(x.shape[0], -1) * 2


def captures(function, *shapes, mark=None, **options):
    compiled = wick.compile(function, **options)
    for shape in shapes:
        x = wick.ones(shape)
        if mark:
            mark(x)
        assert wick.equal(compiled(x), function(x))
    return compiled


def tensor_guard(compiled):
    return next(g for g in newest(compiled)["guards"] if "is a tensor" in g)


def test_dynamic():
    assert captures(rows_of, (2, 3), (4, 3), (5, 3)).captures == 2
    assert captures(rows_of, (2, 3), (4, 3), (5, 3), dynamic=False).captures == 3
    at_once = captures(rows_of, (2, 3), (4, 5), (5, 7), dynamic=True)
    assert at_once.captures == 1
    assert tensor_guard(at_once) == "x is a tensor float32[s0, s1] strides [over dim 1, 1]"


def test_dynamic_keeps_zero_and_one():
    compiled = captures(rows_of, (1, 3), (1, 5), (4, 5), (6, 1), (7, 1), dynamic=True)
    assert compiled.captures == 3


def test_dynamic_integer_argument():
    compiled = wick.compile(lambda x, n: x * n, dynamic=True)
    for n in (2, 3, 5):
        assert compiled(wick.ones(2), n).tolist() == [n, n]
    assert compiled.captures == 1


def test_parameters_stay_numbers():
    p = nn.Parameter(wick.ones(3, 4))
    compiled = wick.compile(lambda p: p * 2, dynamic=True)
    compiled(p)
    assert "float32[3, 4]" in tensor_guard(compiled)


class Seen:
    """A backend that notes what it is given and what is called."""

    def __init__(self, change=None):
        self.examples, self.calls, self.names, self.change = [], [], [], change

    def __call__(self, module, inputs):
        self.examples.append(shown(inputs))
        self.names.append([n.name for n in module.graph.nodes if n.op == "placeholder"])
        if self.change:
            self.change(module)
        assert len(module(*inputs)) == len(module.graph.find_nodes(op="output")[0].args[0])

        def run(*args):
            self.calls.append(shown(args))
            return module(*args)

        return run


def shown(args):
    return [tuple(a.shape) if isinstance(a, wick.Tensor) else a for a in args]


def scaled_rows(x, y, k):
    return (x @ y).view(-1) * x.shape[0] + k, x.shape[0] * 2


def test_a_backend_gets_symbols():
    """As arguments: each before the first tensor that has it; integers stand for themselves."""
    backend = Seen()
    compiled = wick.compile(scaled_rows, backend=backend, dynamic=True)
    for rows, k in ((3, 7), (4, 8), (6, 2)):
        args = (numbers(0, rows, rows + 1), numbers(1, rows + 1, 5), k)
        for ours, theirs in zip(compiled(*args), scaled_rows(*args), strict=True):
            assert wick.equal(ours, theirs) if isinstance(ours, wick.Tensor) else ours == theirs
    assert compiled.captures == 1
    assert backend.names == [["s0", "s1", "input_1", "s2", "s3", "input_2", "s4"]]
    assert backend.examples == [[3, 4, (3, 4), 4, 5, (4, 5), 7]]
    assert backend.calls == [[4, 5, (4, 5), 5, 5, (5, 5), 8], [6, 7, (6, 7), 7, 5, (7, 5), 2]]


def test_a_backend_gets_symbols_when_sizes_change():
    backend = Seen()
    compiled = wick.compile(lambda x: x.relu() * x.shape[0], backend=backend)
    for rows in (3, 5, 6, 2):
        assert compiled(wick.ones(rows, 4)).tolist() == [[rows * 1.0] * 4] * rows
    assert backend.examples == [[(3, 4)], [5, (5, 4)]]
    assert backend.calls == [[6, (6, 4)], [2, (2, 4)]]


def test_example_inputs_tell_which_integers_are_symbols():
    """As torch.compile's custom backends find them; later calls are given ints."""
    seen, types = [], []

    def my_compiler(module, example_inputs):
        placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
        assert len(placeholders) == len(example_inputs)
        symbols = [e for e in example_inputs if isinstance(e, wick.SymInt)]
        tensors = [e for e in example_inputs if isinstance(e, wick.Tensor)]
        assert len(symbols) + len(tensors) == len(example_inputs)
        seen.append(
            [f"{p.name}: {e}" for p, e in zip(placeholders, example_inputs, strict=True) if type(e) is wick.SymInt]
        )
        assert [repr(e) for e in symbols] == [str(e) for e in symbols] == [p.split(": ")[1] for p in seen[-1]]
        assert (int(symbols[0]), f"{symbols[0]:03d}", pickle.loads(pickle.dumps(symbols[0]))) == (3, "003", 3)
        assert type(symbols[0] + 1) is int
        assert [len(t) for t in module(*example_inputs)] == [6]

        def call(*args):
            types.append([type(a) for a in args])
            return module(*args)

        return call

    compiled = wick.compile(lambda x, n: (x * n).repeat(2), backend=my_compiler, dynamic=True)
    for n in (3, 4, 6):
        assert compiled(wick.ones(n), 2 * n).tolist() == [2.0 * n] * (2 * n)
    assert seen == [["s0: s0", "s1: s1"]]
    assert types == [[int, wick.Tensor, int]] * 2 and compiled.captures == 1


def test_a_backend_edits_a_graph_with_symbols():
    def change(module):
        for node in module.graph.nodes:
            if node.name == "relu":
                node.target = wick.ops.aten.sigmoid.default
        module.recompile()

    compiled = wick.compile(lambda x, k: x.relu() * x.shape[0] + k, backend=Seen(change), dynamic=True)
    compiled(numbers(0, 3), 4)  # what is captured has been computed already
    for rows, k in ((3, 4), (5, 6), (4, 2)):
        x = numbers(0, rows)
        assert wick.equal(compiled(x, k), x.sigmoid() * rows + k)
    assert compiled.captures == 1


def test_a_copy_of_a_graph_with_symbols():
    copies = []

    def backend(module, inputs):
        copies.append(copy.deepcopy(module))
        return copies[-1]

    compiled = wick.compile(lambda x, k: x * x.shape[0] + k, backend=backend, dynamic=True)
    for rows in (3, 5):
        assert wick.equal(compiled(wick.ones(rows), 7), wick.full((rows,), rows + 7.0))
    assert len(copies) == 1
    with pytest.raises(TypeError, match="positional argument"):
        copies[0](wick.ones(3))


def test_marks():
    mark_dynamic = wick._dynamo.mark_dynamic
    both = captures(rows_of, (2, 3), (4, 5), dynamic=False, mark=lambda x: mark_dynamic(x, [0, 1]))
    assert both.captures == 1
    weak = functools.partial(captures, rows_of, (2, 3), (4, 3), mark=lambda x: wick._dynamo.maybe_mark_dynamic(x, 0))
    assert weak().captures == 1
    assert weak(dynamic=False).captures == 2
    static = captures(rows_of, (2, 3), (4, 3), dynamic=True, mark=lambda x: wick._dynamo.mark_static(x, 0))
    assert static.captures == 2
    assert tensor_guard(static) == "x is a tensor float32[4, s0] strides [over dim 1, 1]"
    assert captures(rows_of, (2, 3), (4, 3), dynamic=True, mark=wick._dynamo.mark_static).captures == 2


def violated(function, *args, mark=(0,), **marks):
    """What a marked size of the first argument is said to be."""
    from wick.fx.experimental.symbolic_shapes import ConstraintViolationError

    for dim in mark:
        wick._dynamo.mark_dynamic(args[0], dim, **marks)
    with pytest.raises(ConstraintViolationError) as info:
        wick.compile(function)(*args)
    assert isinstance(info.value, RuntimeError)
    return str(info.value)


SAID = (
    'Constraints violated ({0})! For more information, run with TORCH_LOGS="+dynamic".\n'
    "  - You marked {0} as dynamic but your code specialized it to be a constant (10). If you're using mark_dynamic, "
    "either remove it or use maybe_mark_dynamic. If you're using Dim.DYNAMIC, replace it with either Dim.STATIC or "
    "Dim.AUTO."
)


def test_a_marked_size_that_is_a_constant():
    ten = wick.ones(10)
    said = SAID.format("L['x'].size()[0]")
    assert violated(lambda x: x.view(2, 5) * 2, ten + 0) == said
    assert violated(lambda x: x + ten, ten + 0) == said
    assert violated(lambda x: x * 2 if x.shape[0] == 10 else x, ten + 0) == said
    assert violated(lambda x: x * 2 if x.shape[0] * 2 + 1 == 21 else x, ten + 0) == said
    assert violated(lambda x: wick.cat([x, x]).view(4, 5), ten + 0) == said
    assert violated(lambda x: [x for _ in range(x.shape[0])][0] * 2, ten + 0) == said
    assert violated(lambda x: x @ x, wick.ones(10, 10)) == said
    both = violated(lambda x: x + wick.ones(10, 3), wick.ones(10, 3), mark=(0, 1))
    assert both.startswith("Constraints violated (L['x'].size()[0], L['x'].size()[1])!") and both.count("  - You") == 2

    marked = ten + 0
    wick._dynamo.mark_dynamic(marked, 0)
    with pytest.raises(RuntimeError, match=re.escape("violated (L['d']['k'][0].size()[0])!")):
        wick.compile(lambda d: d["k"][0].view(2, 5))({"k": [marked]})


def test_range_of_a_marked_size():
    """It is all that the graph is for, and decides comparisons."""

    def function(x):
        return x * 2 if x.shape[0] < 10 else x * 3

    compiled = Compiled(function)
    for rows, marks, captures in (
        (4, {"min": 2, "max": 9}, 1),
        (9, {}, 1),
        (2, {}, 1),
        (10, {}, 2),
        (8, {"min": 5}, 2),
    ):
        x = numbers(rows, rows)
        if marks:
            wick._dynamo.mark_dynamic(x, 0, **marks)
        assert wick.equal(compiled(x), function(x))
        assert compiled.captures == captures, rows
    assert [s["size_guards"] for s in compiled.report()] == [[], []]
    assert "s0 = 4 in [2, 9]" in compiled.report()[0]["graph"]


NARROWED = (
    'Constraints violated ({0})! For more information, run with TORCH_LOGS="+dynamic".\n  - Not all values of {0} = {0} '
    "in the specified range 5 <= {0} <= 20 satisfy the generated guard {1}"
)


def test_a_marked_size_outside_of_its_range():
    """Or not for all of it, in PyTorch's words."""

    def said(function, rows, **marks):
        return violated(function, wick.ones(rows), **marks)

    def double(x):
        return x * 2

    assert said(double, 4, min=5, max=8) == "4 not in range [5, 8]"
    assert said(double, 9, min=5, max=8) == "9 not in range [5, 8]"
    assert said(double, 1, min=2) == "1 not in range [2, int_oo]"
    name = "L['x'].size()[0]"
    assert said(double, 1, min=1, max=8) == SAID.format(name).replace("(10)", "(1)")
    assert said(lambda x: x * 2 if x.shape[0] == 6 else x, 6, min=5, max=20) == SAID.format(name).replace("10", "6")
    for function, rows, guard in (
        (lambda x: x * 2 if x.shape[0] < 10 else x, 6, f"5 <= {name} and {name} <= 9"),
        (lambda x: x * 2 if x.shape[0] >= 7 else x, 9, f"7 <= {name} and {name} <= 20"),
        (lambda x: x * 2 if 7 <= x.shape[0] < 10 else x, 9, f"7 <= {name} and {name} <= 9"),
        (lambda x: x * 2 if x.shape[0] != 7 else x, 9, f"{name} != 7."),
        (lambda x: x.view(2, -1), 6, f"{name}%2 == 0."),
        (lambda x: x * 2 if x.shape[0] * 2 > 15 else x, 9, f"15 < 2*{name}."),
    ):
        assert said(function, rows, min=5, max=20) == NARROWED.format(name, guard)
    x = wick.ones(6)
    wick._dynamo.mark_dynamic(x, 0, min=6, max=6)
    assert wick.compile(lambda x: x.view(2, -1))(x).shape == (2, 3)


def marked(rows):
    x = numbers(rows, rows, 3)
    wick._dynamo.mark_dynamic(x, 0)
    return x


def test_a_marked_size_as_a_text():
    """It is a break, and the size stays a symbol; what decides how Python goes on is a constant."""
    for function in (
        lambda x: (x * 2, str(x.shape[0])),
        lambda x: (x * 2, "{} rows".format(x.shape[0])),  # noqa: UP032
        lambda x: (x * 2, "%d rows" % x.shape[0]),  # noqa: UP031
        lambda x: (x * 2, repr(x.shape), format(x.shape[0] + 1, "x")),
        lambda x: (x * 2, f"{x.shape}"),
        lambda x: (x * 2, wick.tensor(x.shape[0])),
        lambda x: (x * 2, complex(x.shape[0])),
    ):
        compiled = Compiled(function)
        for rows in (5, 6, 9):
            assert str(compiled(marked(rows))) == str(function(marked(rows)))
        first = [s for s in compiled.report() if "mul" in s["graph"]]
        assert len(first) == 1
        assert "f32[s0, 3]" in first[0]["graph"]
        with pytest.raises(wick._dynamo.exc.Unsupported):
            wick.compile(function, fullgraph=True)(marked(5))
    name = "L['x'].size()[0]"
    for function in (
        lambda x: (x * 2, f"{x.shape[0]}"),
        lambda x: (x * 2, hash(x.shape[0])),
        lambda x: (x * 2, {x.shape[0]: 1}),
        lambda x: (x * 2, {10: 1}.get(x.shape[0])),
        lambda x: (x * 2, x.shape[0] in {1, 10}),
        lambda x: x * list(range(20))[x.shape[0]],
        lambda x: (x * 2, list(range(0, x.shape[0], 2))),
        lambda x: (x * 2, x.shape[0] & 3),
    ):
        assert violated(function, marked(10)) == SAID.format(name)
        compiled = Compiled(function, dynamic=1)
        for rows in (5, 6, 5):
            assert str(compiled(numbers(rows, rows, 3))) == str(function(numbers(rows, rows, 3)))
        assert (compiled.captures, compiled.breaks) == (2, 0)


def test_a_marked_size_that_is_computed_with():
    for function in (
        lambda x: x / math.sqrt(x.shape[0]),
        lambda x: x * (1.0 / x.shape[0]) + float(x.shape[0]),
        lambda x: x * 2 if x.shape[0] > 2.5 else x,
        lambda x: x * max(x.shape[0], 2.5) + divmod(x.shape[0], 2)[0] + x.shape[0] ** 2,
    ):
        compiled = Compiled(function, fullgraph=True)
        for rows in (5, 6, 9):
            assert wick.equal(compiled(marked(rows)), function(marked(rows)))
        assert compiled.captures == 1


def test_a_graph_of_nothing():
    """A tensor with symbols that nothing is computed with is no reason to call the backend."""
    given = []

    def backend(module, inputs):
        given.append(module)
        return module.forward

    compiled = wick.compile(lambda x: (x, x.shape[0]), backend=backend, dynamic=True)
    for rows in (3, 4):
        x = wick.ones(rows)
        assert compiled(x)[0] is x
        assert compiled(x)[1] == rows
    assert not given


def test_a_marked_size_that_is_assumed_of():
    """Guards that leave more than one size are no violation."""
    for function, *args in (
        (lambda x: x * 2, wick.ones(1)),
        (lambda x: x * 2, wick.ones(0)),
        (lambda x: x.view(-1, 2) * 2, wick.ones(10)),
        (lambda x: x * 2 if x.shape[0] > 5 else x, wick.ones(10)),
        (lambda x, y: x + y, wick.ones(10), wick.ones(1)),
    ):
        wick._dynamo.mark_dynamic(args[0], 0)
        assert wick.equal(wick.compile(function)(*args), function(*args))
    square = wick.ones(10, 10)
    wick._dynamo.mark_dynamic(square, [0, 1])
    assert wick.equal(wick.compile(lambda x: x @ x)(square), square @ square)
    weak = wick.ones(10)
    wick._dynamo.maybe_mark_dynamic(weak, 0)
    assert wick.compile(lambda x: x.view(2, 5))(weak).shape == (2, 5)


def test_mark_static_inside():
    def f(x):
        wick._dynamo.mark_static(x, 0)
        return x * 2

    compiled = captures(f, (2, 3), (4, 3), (5, 3), dynamic=True)
    assert newest(compiled)["size_guards"] == ["s0 == 5"]


def test_errors_of_marks():
    with pytest.raises(AssertionError, match="Expected index to be int, list, or tuple, got <class 'str'>"):
        wick._dynamo.mark_dynamic(wick.ones(2), "0")
    with pytest.raises(TypeError, match="mark_static expects a tensor/nn.Module class but received"):
        wick._dynamo.mark_static(3)
    assert wick._dynamo.mark_static(nn.Linear) is nn.Linear


def test_settings():
    config = wick._dynamo.config
    with config.patch(assume_static_by_default=False):
        assert captures(rows_of, (2, 3), (4, 5)).captures == 1
    with config.patch({"automatic_dynamic_shapes": False}):
        assert captures(rows_of, (2, 3), (4, 3), (5, 3)).captures == 3
        assert captures(rows_of, (2, 3), (4, 3), dynamic=True).captures == 1
    assert config.recompile_limit == config.cache_size_limit == 8
    compiled = captures(rows_of, (2, 3), dynamic=False)
    with config.patch(recompile_limit=2):
        for n in range(3, 9):
            compiled(wick.ones(n, 3))
        assert compiled.captures == 2
    assert compiled.limit == config.recompile_limit == 8


# ==== what is left behind ====


def test_sizes_are_numbers_again():
    x = wick.randn(5, 4)
    kept = []

    def f(x):
        y = x.t() * 2
        kept.extend([y, y[1:], x.shape])
        raise KeyError(x.shape[0])

    compiled = wick.compile(f, dynamic=True)
    with pytest.raises(KeyError, match="5"):
        compiled(x)
    assert (x.shape, x.stride(), kept[0].shape, kept[1].tolist()) == ((5, 4), (4, 1), (4, 5), (x.t() * 2)[1:].tolist())


def test_what_is_dropped_is_free():
    x = wick.randn(5, 4)
    before = sys.getrefcount(x)
    compiled = wick.compile(arithmetic, dynamic=True)
    for n in (5, 6, 1):
        compiled(wick.randn(n, 4))
    compiled(x)
    assert sys.getrefcount(x) == before
    del compiled
    gc.collect()
    assert sys.getrefcount(x) == before


def test_a_symbol_of_small_value_is_no_cached_int():
    compiled = wick.compile(lambda x: (x.shape[0], x.shape[0] is 5, x.shape[0] is x.shape[0]), dynamic=True)  # noqa: F632
    for n in (5, 6, 5):
        assert compiled(wick.ones(n)) == (n, n == 5, True)


# ==== whole programs ====


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).split(C, dim=2)
        q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in (q, k, v))  # (B, H, T, D)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).contiguous().view(B, T, C))


class GPT(nn.Module):
    def __init__(self, vocabulary=11, context=32, width=8, layers=2):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(context, width)
        self.blocks = nn.ModuleList([Attention(width, 2) for _ in range(layers)])
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(layers)])
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, idx):
        B, T = idx.size()
        x = self.dropout(self.token(idx) + self.position(wick.arange(T)))
        for block, norm in zip(self.blocks, self.norms, strict=True):
            x = x + block(norm(x))
        return self.head(x)


def lengths(count):
    choose = random.Random(3)
    return [(3, 7), (2, 9)] + [(choose.randint(2, 9), choose.randint(2, 32)) for _ in range(count)]


def test_a_language_model():
    wick.manual_seed(1)
    model = GPT().eval()
    compiled = Compiled(model.forward)
    for B, T in lengths(200):
        idx = wick.randint(11, (B, T))
        with wick.no_grad():
            assert wick.equal(compiled(idx), model(idx))
    assert compiled.captures == 2
    assert newest(compiled)["size_guards"] == []


def train(make, loss_of, batch_of, wrap):
    wick.manual_seed(5)
    model = make()
    optimizer = wick.optim.AdamW(model.parameters(), lr=1e-2)

    def step(model, optimizer, *batch):
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model, *batch)
        loss.backward()
        optimizer.step()
        return loss

    step(model, optimizer, *batch_of(2, 2))  # the optimizer makes its state
    wrapped = wrap(step)
    losses = [wrapped(model, optimizer, *batch_of(B, T)).item() for B, T in lengths(40)]
    return losses, [p.detach().numpy().tobytes() for p in model.parameters()], wrapped


def test_gradients_with_a_float_that_changes():
    """Inside, behind, and of second order; a rate of one is multiplied with as any other."""

    def inside(w, x, a):
        loss = ((x * w * a - a * 0.5) / a).square().mean() + wick.add(w, w, alpha=a).sum() + (a - w).sum()
        loss.backward()
        with wick.no_grad():
            w.sub_(w.grad, alpha=a)
        return loss.detach()

    def behind(w, x, a):
        y = w * 1
        y *= a
        return ((x * w * a - y) / a).square().mean() + wick.add(w, w, alpha=a).sum() + (a - w).sum()

    def second(w, x, a):
        y = (w * a).exp() * a
        (grad,) = wick.autograd.grad(y.sum(), w, create_graph=True)
        return (grad * x * a).sum()

    for function in (inside, behind, second):
        compiled = Compiled(function)
        for k, a in enumerate((1.0, 0.5, 1.0, 0.25, -1.5, 2.0, 1e-40, float("inf"), -0.0)):
            seen = []
            for run in (function, compiled):
                w, x = numbers(k, 5).requires_grad_(), numbers(k, 5, salt=1)
                result = run(w, x, a)
                if result.requires_grad:
                    result.backward()
                seen.append([t.detach().numpy().tobytes() for t in (result, w, w.grad)])
            assert seen[0] == seen[1], (function.__name__, a)
        assert (compiled.captures, compiled.breaks) == (2, 0)


@pytest.mark.parametrize("dtype", [wick.float32, wick.float64, wick.float16, wick.bfloat16])
def test_exponents_and_fillings_in_native_code(dtype):
    def function(x, a):
        return (x * 1.5) ** a + wick.full((7, 33), a, dtype=dtype), (x * a).sum(0) ** a, wick.full_like(x, a) * x

    compiled = Compiled(function, mode=2)
    x = numbers(1, 7, 33).abs().to(dtype)
    for k, a in enumerate((1.25, 0.75, 2.5, -1.5, 0.0, 7.0, 1e-3, 33.3, float("inf"), float("nan"))):
        if k == 2:
            assert compiled.wait_for_native()
        expected, got = ([t.double().numpy().tobytes() for t in run(x, a)] for run in (function, compiled))
        assert expected == got, a
    assert compiled.captures == 2


def test_report_of_a_computed_float():
    compiled = Compiled(lambda x, a: x * (a * 2) if a + 1 > 0 else x)
    for a in (0.5, 0.25, 0.75):
        compiled(wick.ones(2), a)
    assert {"mul(a, 2) type is float", "gt(add(a, 1), 0) is True"} <= set(newest(compiled)["guards"])


def test_tape_with_a_float_of_another_graph():
    """What the tape kept of a captured call is a number in a graph that is traced later."""
    compiled = Compiled(lambda w, a: w * a)
    w = wick.ones(3, requires_grad=True)
    compiled(w, 0.5)
    made = compiled(w, 0.25)  # captured: its tape is that of the trace
    graph = make_fx(lambda g: wick.autograd.grad(made, w, g, retain_graph=True)[0])(wick.ones(3))
    assert graph(wick.full((3,), 2.0)).tolist() == [0.5] * 3


def language_model_loss(model, x, y):
    logits = model(x)
    return F.cross_entropy(logits.view(-1, logits.size(-1)), y.view(-1))


def test_integer_of_a_call_that_ends_the_trace():
    """The tape asks for a tensor from outside in the middle of a call that has been given symbols."""

    def written(rows):
        base = (wick.arange(4.0).view(2, 2) * rows).requires_grad_() * 1
        view = base.t().t()
        view.unsqueeze(0).mul_(1.5)
        return view

    for function in (
        lambda y, n: y * n,
        lambda y, n: y.expand(n, 2, 2) * 1,
        lambda y, n: y.repeat(n, 1),
        lambda y, n: wick.stack([y] * 2).flatten().unflatten(0, (2, n - n + 4)),
        lambda y, n: (y + n).sum(),
    ):
        compiled = Compiled(function, dynamic=1)
        for n in (2, 3, 4, 3):
            ours, plain = compiled(written(n), n), function(written(n), n)
            assert ours.tolist() == plain.tolist()
            ours.sum().backward()
        assert compiled.breaks == 1


def test_training_a_language_model():
    how = GPT, language_model_loss, lambda B, T: (wick.randint(11, (B, T)), wick.randint(11, (B, T)))
    plain, captured = train(*how, lambda f: f), train(*how, lambda f: Compiled(f, fullgraph=True))
    assert captured[:2] == plain[:2]
    assert captured[2].captures == 2


def test_training_a_perceptron():
    def loss(model, x, y):
        return ((model(x) - y) ** 2).sum() / x.shape[0]

    how = (
        lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)),
        loss,
        lambda B, T: (wick.randn(B * T, 4), wick.randn(B * T, 3)),
    )
    plain, captured = train(*how, lambda f: f), train(*how, lambda f: Compiled(f, fullgraph=True))
    assert captured[:2] == plain[:2]
    assert captured[2].captures == 2


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int8", "uint8", "int64", "bool"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, v: wick.full((), v, dtype=x.dtype),
        lambda x, v: wick.full_like(x, v) + 0,
        lambda x, v: x.clone().fill_(v),
        lambda x, v: x.clamp(-v, v),
        lambda x, v: x.masked_fill(x > 0, v),
        lambda x, v: wick.add(x, x, alpha=v),
        lambda x, v: wick.where(x > 0, x, v * 2),
        lambda x, v: x**v,
    ],
    ids=["full", "full_like", "fill_", "clamp", "masked_fill", "alpha", "where", "power"],
)
def test_a_float_that_changes_is_checked_as_in_eager_mode(function, dtype):
    """What a dtype cannot hold is an error, also of the graph that was made with numbers that it can hold."""
    x, compiled = wick.ones(3).to(getattr(wick, dtype)), Compiled(function)

    def outcome(f, v):
        try:
            return f(x, v).tolist()
        except RuntimeError as error:
            return str(error)
        except NotImplementedError as error:
            return type(error)

    for v in (1.5, 2.5, 100.5, 300.0, 7e4, 1e39, float("inf"), -1e39, 3.5):
        assert str(outcome(compiled, v)) == str(outcome(function, v)), v
    x = wick.ones(3).to(getattr(wick, dtype))
    captures = compiled.captures
    outcome(compiled, 4.5)
    assert compiled.captures == captures  # a good number is still the graph's


def test_slots_that_are_bound_to_a_tensor():
    def function(x, y):
        x.__setitem__(0, 2.5)
        add, size = x.__add__, x.size
        return add(y), x.__len__(), size(0), size()

    for _ in range(2):
        compiled = wick.compile(function, dynamic=True)
        for n in (3, 4, 5):
            given, wanted = compiled(wick.ones(n), wick.ones(n)), function(wick.ones(n), wick.ones(n))
            assert given[0].tolist() == wanted[0].tolist() and given[1:] == wanted[1:]


@pytest.mark.parametrize("operator", ["//", "%", "/"])
def test_a_division_by_a_difference_that_becomes_zero_fails(operator):
    space = {}
    exec(f"def f(x):\n    n, s = x.shape\n    return x + (n - s) {operator} (s - n)", space)
    compiled = wick.compile(space["f"], dynamic=True)
    for shape in ((3, 4), (5, 2)):
        assert compiled(wick.ones(shape)).equal(space["f"](wick.ones(shape)))
    for shape in ((4, 4), (6, 6)):
        for function in (space["f"], compiled):
            with pytest.raises(ZeroDivisionError):
                function(wick.ones(shape))


def test_an_exception_that_tells_no_size_leaves_it_symbolic():
    def f(x):
        n = x.shape[0]
        try:
            [][3]
        except IndexError as e:
            text = str(e)
        return x * n, text

    compiled = wick.compile(f, fullgraph=True)
    for n in (2, 3, 5, 7):
        y, text = compiled(wick.ones(n))
        assert y.tolist() == [float(n)] * n and text == "list index out of range"
    assert compiled.captures == 2


def test_sizes_that_c_code_hands_on_stay_symbols():
    """Lists, map(), generators and their kind look at none of the numbers that Python functions give them."""

    def appended(shape):
        sizes = []
        sizes.append(shape[0])
        sizes.insert(1, 4)
        return sizes

    def popped(shape):
        sizes = [shape[0], 4, shape[0]]
        sizes.pop()
        return sizes

    def extended(shape):
        sizes = []
        sizes.extend(map(lambda n: n, shape))
        return sizes

    def unpacked(shape):
        first, second = (n for n in shape)
        return first, second

    ways = [
        appended,
        popped,
        extended,
        unpacked,
        lambda shape: list(map(lambda n: n, [shape[0], 4])),
        lambda shape: list(map(lambda n, m: n, shape, shape)),
        lambda shape: list(map(int, shape)),
        lambda shape: tuple(n for n in shape),
        lambda shape: [n for n in (n for n in shape)],
        lambda shape: list(reversed(list(reversed(shape)))),
        lambda shape: list(filter(lambda n: n > 0, shape)),
        lambda shape: [*map(lambda n: n, shape)],
        lambda shape: list(dict(a=shape[0], b=4).values()),
        lambda shape: [shape[0]] * 1 + [4],
        lambda shape: [sum(list(map(lambda n: n, shape[:1]))), 4],
        lambda shape: [functools.reduce(lambda a, b: a * b, shape) // 4, 4],
        lambda shape: [functools.reduce(operator.mul, shape) // 4, 4],
        lambda shape: [n for n, _ in zip(shape, map(lambda n: n, shape), strict=True)],
        lambda shape: [n for _, n in enumerate(shape)],
    ]
    for way in ways:
        compiled = wick.compile(lambda x, way=way: x.new_zeros(way(x.shape)) + x, dynamic=True, fullgraph=True)
        for rows in (3, 5, 7, 9):
            assert compiled(wick.ones(rows, 4)).shape == (rows, 4)
        assert len(compiled.report()) == 1, way


def test_sizes_that_c_code_looks_at_are_guarded():
    ways = [
        lambda shape: sorted(shape, key=lambda n: -n),
        lambda shape: list(filter(lambda n: n - 5, shape)),
        lambda shape: list(itertools.takewhile(lambda n: n - 5, shape)),
        lambda shape: max(map(lambda n: n - 4, shape)),
        lambda shape: {n: 1 for n in map(lambda n: n, shape)},
        lambda shape: list(map(str, map(lambda n: n, shape))),
        lambda shape: list(zip("ab", filter(lambda n: n - 5, shape), strict=False)),
    ]
    for way in ways:
        compiled = wick.compile(lambda x, way=way: (x * 2, way(x.shape)), dynamic=True)
        for rows in (3, 5, 7, 5, 3):
            assert compiled(wick.ones(rows, 4))[1] == way((rows, 4)), way


def test_a_number_where_a_tensor_was():
    """It is a symbol, or an input, at once."""
    compiled = wick.compile(lambda x, y: x * y)
    for y in (wick.ones(4), 3, 4, wick.ones(4), 2.5, 3.5):
        assert wick.equal(compiled(wick.ones(4), y), wick.ones(4) * y)
    assert compiled.captures == 3
