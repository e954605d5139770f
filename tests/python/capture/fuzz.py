"""Random Python functions with tensors: source text, the same one for a seed.

    python tests/python/capture/fuzz.py --seed 7 --count 1      repeats one program and prints it
    python tests/python/capture/fuzz.py --count 10000           many, with a seed that is printed
    python tests/python/capture/fuzz.py --mode 2 --count 100    graphs run node by node (0), compiled later (1), waited for (2)

A program is a helper class, helper functions and `f(x, y, n, a, l, d, o, log)`. It does arithmetic, views, writes in
place, loops, branches on numbers and on values of tensors, breaks (print, item, tolist), try, with, closures, early
returns, classes of its own, generators that are talked to, containers that let go of what says when it dies, what is in fuzz_objects.py, and lets destructors, callbacks and signals run. Programs may raise: then both runs have to. All loops are short.

Every second program is about sizes: its tensors and its integer have other ones in almost every call, and it does more
with them: arithmetic, comparisons, views and new tensors of such sizes, sizes in containers, attributes and results."""

# ruff: noqa: E741

import argparse
import builtins
import contextlib
import gc
import io
import os
import random
import sys
import time

sys.path.insert(0, os.path.dirname(__file__))

from capture_harness import Box, Description, call_once, gradients, numbers  # noqa: E402, F401
from fuzz_objects import Objects  # noqa: E402

import wick  # noqa: E402
from wick._C import Compiled, _run_program  # noqa: E402

HEADER = """
import collections
import contextlib
import gc
import operator
import signal
import weakref

from wick.utils.checkpoint import checkpoint


class Cell:
    total = 2

    def __init__(self, t, k=1):
        self.t = t
        self.k = k

    def step(self, u):
        self.k += 1
        self.t = self.t + u * self.k
        return self.t

    @property
    def half(self):
        return self.t * 0.5

    def __add__(self, other):
        return Cell(self.t + (other.t if isinstance(other, Cell) else other), self.k)


class Counted:
    count = 0
    level = 2
    last = None

    def up(self):
        type(self).count += 1
        return self.count

    @classmethod
    def note(cls, t):
        cls.last = t
        return cls.level


class Further(Counted):
    pass


def rebinds(log, a, *rest, k=None):
    log.append("in")
    a = k
    log.append("a")
    k = rest = 2
    log.append("rest")
    return rest


class Items(dict):
    __getattr__, __setattr__, __delattr__ = dict.__getitem__, dict.__setitem__, dict.__delitem__
    seen = property(dict.copy, dict.update)


class Scope:
    log_ = property(operator.attrgetter('log'))

    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("in")
        return self

    def __exit__(self, kind, value, trace):
        self.log.append(kind.__name__ if kind else "out")
        return kind is KeyError


class Falls:
    '''Says when it dies.'''

    def __init__(self, log, t):
        self.log = log
        self.t = t

    def __del__(self):
        self.log.append("gone")
        self.log.append(self.t.shape[0])


class Wrong(ValueError):
    def __init__(self, t, k):
        super().__init__(k)
        self.t = t


@contextlib.contextmanager
def scoped(log, t):
    log.append("begin")
    try:
        yield t * 2
    except KeyError as error:
        log.append(str(error))
    finally:
        log.append("end")


def talk(t):
    k = 0
    try:
        while k < 3:
            k += (yield t * k) or 1
    except ValueError as error:
        yield t + len(str(error))
    finally:
        k = t.mul_(0.5) if AT_END else t * 0.5
    return k
"""


class Program(Objects):
    """Writes the lines of one program; every choice comes from its own generator of random numbers."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.lines = []
        self.depth = 1
        self.fresh = 0
        self.budget = self.random.randint(6, 18)
        self.in_loop = False
        self.helpers = []
        self.sizes = seed % 2 == 1
        self.writes_at_end = self.random.random() < 0.5  # its generators write in place when they end

    def pick(self, *choices):
        return self.random.choice(choices)

    def chance(self, p):
        return self.random.random() < p

    def line(self, text):
        self.lines.append("    " * self.depth + text)

    def name(self, prefix):
        self.fresh += 1
        return f"{prefix}{self.fresh}"

    # ---- expressions ----

    def integer(self):
        if self.sizes and self.chance(0.7):
            return self.size()
        return self.pick("n", "1", "2", "len(l)", "x.shape[0]", "l[0]", "d['k']", "o.count", "n + 1", "y.dim()")

    def size(self, depth=0):
        t = self.random.choice(self.tensors)
        if depth > 1 or self.chance(0.5):
            return self.pick(
                f"{t}.shape[0]", f"{t}.size(0)", f"len({t})", f"{t}.numel()", f"{t}.shape[-1]", "n", "n", "x.shape[0]",
                "3", "len(x.shape)", "x.size()[0]",
            )  # fmt: skip
        a, b = self.size(depth + 1), self.size(depth + 1)
        return self.pick(
            f"({a} + {b})", f"({a} - {b})", f"{a} * 2", f"{a} // 2", f"{a} % 3", f"(-{a})", f"min({a}, {b})",
            f"max({a}, {b})", f"sum({t}.shape)", f"int({a})", f"abs({a})", f"({a} if {a} > {b} else {b})",
            f"[{a}, {b}][{a} % 2]", f"(lambda k: k + {b})({a})", f"({a} and {b})", f"{a} // {b}",
            f"next(k for k in ({a}, {b}))", f"sum([{a}, {b}])",
        )  # fmt: skip

    def number(self):
        return self.pick(
            "a",
            "0.5",
            "-1.25",
            self.integer(),
            "a * n",
            "o.rate",
            "abs(a)",
            "max(a, 0.1)",
            "(1 - a)",
            "-a / 3",
            "a ** 2",
        )

    def tensor(self, depth=0):
        t = self.random.choice(self.tensors)
        if depth > 2 or self.chance(0.3):
            return t
        return self.pick(
            lambda: f"({self.tensor(depth + 1)} {self.pick('+', '-', '*')} {self.tensor(depth + 1)})",
            lambda: f"({self.tensor(depth + 1)} {self.pick('+', '*', '-')} {self.number()})",
            lambda: f"wick.{self.pick('relu', 'tanh', 'sin', 'sigmoid')}({self.tensor(depth + 1)})",
            lambda: f"{self.tensor(depth + 1)}.clamp(-3, 3)",
            lambda: f"wick.where({t} > 0, {self.tensor(depth + 1)}, {t})",
            lambda: f"{t}.t().t()",
            lambda: f"({t} @ {t}.t() @ {t}).tanh()",
            lambda: f"wick.cat([{t}[:1], {self.tensor(depth + 1)}[1:]])",
            lambda: f"({t} + {self.tensor(depth + 1)}.sum(0))",
            lambda: f"({t} * {t}.mean(1, keepdim=True))",
            lambda: f"helper({self.tensor(depth + 1)}, {self.number()})",
            lambda: f"sum([{t} * k for k in range(2)])",
            lambda: f"{t}.clone()",
        )()

    def about_sizes(self):
        t, a, b = self.random.choice(self.tensors), self.size(), self.size()
        self.line(
            self.pick(
                lambda: f"{t} = {t}.reshape(-1).view({t}.shape)",
                lambda: f"{t} = {t}.view({t}.shape[0], -1)",
                lambda: f"kept.append({t}.reshape({t}.shape[0], 2, -1).transpose(1, 2))",
                lambda: f"{t} = {t} + wick.arange({t}.shape[0])[:, None]",
                lambda: f"kept.append({t}[:{a}])",
                lambda: f"kept.append({t}[{a} // 2 :, :3])",
                lambda: f"kept.append({t}[:, -1] / {a})",
                lambda: f"kept.append(wick.zeros({t}.shape[0], abs({a}) % 5))",
                lambda: f"kept.append({t}.new_ones({t}.shape) * {a})",
                lambda: f"{t} = {t} * {a}",
                lambda: f"{t} = {t}.sum() / {t}.shape[0] + {t}",
                lambda: f"{t} = {t} + wick.full(({t}.shape[0], 1), 0.5)",
                lambda: f"kept.append({t}.mean(0).expand({t}.shape[0], 4))",
                lambda: f"kept.append(wick.cat([{t}, {t}]).split({t}.shape[0]))",
                lambda: f"kept.append({t}.shape)",
                lambda: f"kept.append([*{t}.shape, {a}])",
                lambda: f"B, T = {t}.shape; kept.append(({a}, B * T, B))",
                lambda: f"kept.append({{'size': {a}, {b}: 1}})",
                lambda: f"kept.append(f'{{{a}}}')",
                lambda: f"kept.append({a} in (2, 5, 7) or {{{a}}} == {{{b}}})",
                lambda: f"kept.append({t}.shape == y.shape)",
                lambda: f"kept.append(sorted([{a}, {b}, 4]))",
                lambda: f"kept.append([{t}.sum() * k for k in range({a} % 4)])",
                lambda: f"kept.append(str({{'k': [{a}]}}))",
                lambda: f"kept.append(sum(k for k in ({a}, {b})))",
                lambda: f"kept.append(dict(zip('ab', ({a}, {b}))))",
                lambda: f"kept.append(max(iter([{a}, {b}])))",
                lambda: f"kept.append(str(ValueError({a})))",
                lambda: f"kept.append(l[{a} % len(l)])",
                lambda: f"o.count = {a}",
                lambda: f"d['k'] = {a}",
                lambda: f"l.append({a})",
                lambda: f"kept.append({t}.stride() + ({t}.is_contiguous(), {t}.t().shape))",
                lambda: f"kept.append(Cell({t}, {a}).step({t}))",
                lambda: f"kept.append(slice({a}, None).indices({b}) if {b} >= 0 else 0)",
                lambda: f"{t} = {t}.masked_fill({t} > {a}, 0.5)",
                lambda: f"kept.append(wick.ones({t}.shape[0], {t}.shape[0])[: {t}.size(0), :2])",
                lambda: f"kept.append({t}.flatten().unflatten(0, ({t}.shape[0], 4)))",
                lambda: f"kept.append(wick.Size([{a}, 2]).numel())",
            )()
        )

    def condition(self):
        t = self.random.choice(self.tensors)
        if self.sizes and self.chance(0.6):
            return f"{self.size()} {self.pick('<', '<=', '==', '!=', '>', '>=')} {self.size()}"
        return self.pick(
            f"n > {self.random.randint(0, 3)}",
            "a > 0",
            "a * 2 + 1 <= o.rate",
            "len(l) % 2",
            "'k' in d",
            "'new' in d",
            f"{t}.shape[0] > 3",
            f"{t}.sum() > 0",
            f"{t}.mean().item() > {self.pick('0.1', '-0.2')}",
            f"bool(({t} > 5).any())",
            "o.count % 2 == 0",
            "log",
            f"{t} is x",
            "hasattr(o, 'extra')",
            "not l",
        )

    # ---- statements ----

    def assign(self):
        name = self.pick(self.random.choice(self.tensors), "t0", self.name("t"))
        self.line(f"{name} = {self.tensor()}")
        if name not in self.tensors and not self.nested:
            self.tensors.append(name)

    def in_place(self):
        t = self.random.choice(self.tensors)
        self.line(
            self.pick(
                f"{t}.{self.pick('add_', 'mul_', 'sub_')}({self.pick('0.5', '2', '-1')})",
                f"{t}[{self.pick('0', '-1', '1:', ':, 0', ':, 1:3')}] = {self.pick('0.25', '1', f'{t}.mean()')}",
                f"{t}[0].add_(1)",
                f"{t}[:, 1].mul_(0.5)",
                f"{t} += {self.tensor(2)}",
                f"{t}.copy_({self.tensor(2)})",
                f"{t}.clamp_(-4, 4)",
                f"{t}.t()[0].zero_()",
            )
        )

    def view(self):
        t = self.random.choice(self.tensors)
        v = self.name("v")
        self.line(f"{v} = {t}{self.pick('[0]', '[1:]', '[:, 1]', '.t()', '.view(-1)', '.unsqueeze(0)', '')}")
        if self.chance(0.6):
            self.line(self.pick(f"{v}.mul_(1.5)", f"{t}.add_(1)", f"{v}.sub_(0.25)"))
        if self.chance(0.7):
            self.line(self.pick(f"kept.append({v})", f"kept.append({v}.sum())", f"{t} = {t} + {v}.sum()"))

    def container(self):
        self.line(
            self.pick(
                lambda: f"l.append({self.integer()})",
                lambda: "l[0] = l[0] + 1",
                lambda: f"d['new'] = {self.tensor(2)}",
                lambda: "d['k'] = d['k'] + 1",
                lambda: f"d.setdefault('s', []).append({self.integer()})",
                lambda: "d.pop('new', None)",
                lambda: "log.append(len(log))",
                lambda: f"kept.append({self.tensor(1)})",
                lambda: f"kept.extend([{self.number()}, {self.tensor(2)}])",
                lambda: f"kept.append({{'a': {self.tensor(2)}, 'b': (n, [a])}})",
                lambda: "l.sort()",
                lambda: "kept.append(sorted(d))",
                lambda: "kept.append(list(l))",
                lambda: "kept.append((len(kept), f'{n}-{a:.1f}'))",
                lambda: "l += [n]",
                lambda: "kept.insert(0, dict(d))",
            )()
        )

    def attribute(self):
        self.line(
            self.pick(
                lambda: "o.count += 1",
                lambda: f"o.t = {self.tensor(2)}",
                lambda: "o.t.add_(1)",
                lambda: f"o.extra = {self.number()}",
                lambda: "o.rate = o.rate * 0.5",
                lambda: f"kept.append(Cell({self.tensor(2)}).step({self.tensor(2)}))",
                lambda: f"kept.append((Cell({self.tensor(2)}, {self.integer()}) + 1).half)",
                lambda: f"kept.append(Cell({self.tensor(2)}))",
                lambda: "c0 = Cell(x); c0.step(y); kept.append(c0.t); kept.append(c0.k * Cell.total)",
                lambda: "kept.append(getattr(o, 'extra', None))",
            )()
        )

    def break_(self):
        t = self.random.choice(self.tensors)
        self.line(
            self.pick(
                lambda: f"print({self.integer()}, {self.number()})",
                lambda: "print('here', end=' ')",
                lambda: f"kept.append({t}.sum().item())",
                lambda: f"kept.append({t}[0].tolist())",
                lambda: f"kept.append(float({t}.mean()))",
                lambda: f"log.append(int({t}.sum() * 10))",
                lambda: f"{t} = {t} * {t}.mean().item()",
                lambda: f"{t} = {self.tensor(1)} + loud({self.tensor(2)})",
                lambda: f"kept.append(loud({t}, k={self.number()}))",
                lambda: f"kept.append(str({t}.dtype) + repr(n))",
            )()
        )

    def block(self, statements=None):
        self.depth += 1
        nested, self.nested = self.nested, True
        for _ in range(statements or self.random.randint(1, 3)):
            self.statement()
        self.nested = nested
        self.depth -= 1

    def branch(self):
        self.line(f"if {self.condition()}:")
        self.block()
        if self.chance(0.4):
            self.line("else:")
            self.block()

    def loop(self):
        inner, self.in_loop = self.in_loop, True
        kind = self.random.randint(0, 4)
        if kind == 0:
            self.line(f"for k in range({self.pick('2', 'n', '3')}):")
        elif kind == 1:
            self.line("for k in list(l)[:3]:")
        elif kind == 2:
            self.line("for i, (k, u) in enumerate(zip(l[:2], [x, y])):")
        elif kind == 3:
            c = self.name("c")
            self.line(f"{c} = 0")
            self.line(f"while {c} < {self.pick('2', 'n')}:")
            self.depth += 1
            self.line(f"{c} += 1")
            self.depth -= 1
        else:
            self.line("for k in (1, 2):")
        self.block(self.random.randint(1, 2))
        if self.chance(0.2):
            self.depth += 1
            self.line(f"if {self.condition()}:")
            self.line(f"    {self.pick('break', 'continue')}")
            self.depth -= 1
        self.in_loop = inner

    def attempt(self):
        self.line("try:")
        self.block(self.random.randint(1, 2))
        self.depth += 1
        if self.chance(0.6):
            what = self.pick(
                "l.remove(n)",
                "d.pop('new')",
                "del d['new']",
                "del o.extra",
                "next(iter(l[5:]))",
                "{1, 2}.remove(n)",
                "l[3] = 1",
                "raise ValueError('no')",
                "d['absent']",
                "[][n]",
                "x @ y @ x @ x",
                "1 // 0",
                "None.foo",
                "x[99]",
            )
            self.line(what)
        self.depth -= 1
        self.line(f"except {self.pick('Exception', '(ValueError, KeyError, IndexError)', 'Exception')} as e:")
        self.depth += 1
        self.line("kept.append(type(e).__name__)")
        self.depth -= 1
        if self.chance(0.4):
            self.block(1)
        if self.chance(0.3):
            self.line("finally:")
            self.block(1)

    def with_(self):
        self.line(self.pick("with wick.no_grad():", "with Scope(log) as scope:", "with Scope(log):"))
        self.block(self.random.randint(1, 2))
        if self.chance(0.15):
            self.depth += 1
            self.line(self.pick("raise KeyError('k')", "d['absent']"))
            self.depth -= 1

    def closure(self):
        name, t = self.name("inner"), self.random.choice(self.tensors)
        kind = self.random.randint(0, 2)
        if kind == 0:
            self.line(f"def {name}(u, k={self.number()}):")
            self.line(f"    return u * k + {t}")
            self.line(f"kept.append({name}({self.tensor(2)}))")
        elif kind == 1:
            self.line(f"count{name} = 0")
            self.line(f"def {name}(u):")
            self.line(f"    nonlocal count{name}")
            self.line(f"    count{name} += 1")
            self.line(f"    return u + count{name}")
            self.line(f"kept.append({name}({name}({t})))")
        else:
            self.line(f"{name} = [(lambda v, k=k: v * k) for k in range(2)]")
            self.line(f"kept.append([g({t}) for g in {name}])")

    def generator(self):
        name, t = self.name("gen"), self.random.choice(self.tensors)
        self.line(f"def {name}(u):")
        self.line("    for k in range(2):")
        self.line("        yield u * k")
        self.line(
            self.pick(f"kept.extend({name}({t}))", f"kept.append(sum({name}({t})))", f"{t} = list({name}({t}))[1]")
        )

    def class_(self):
        name, t = self.name("Local"), self.random.choice(self.tensors)
        self.line(f"class {name}({self.pick('Cell', 'Cell', 'object', 'Wrong')}):")
        self.line(f"    rate = {self.number()}")
        self.line("    made = []")
        kind = self.random.randint(0, 3)
        if kind == 0:
            self.line("    def __call__(self, u):")
            self.line("        self.made.append(1)")
            self.line("        return u * self.rate + len(self.made)")
            arguments = self.pick(f"({t}, 1)", f"({t}, 1)", "()")
            self.line(f"kept.append({name}{arguments}({self.tensor(2)}))")
        elif kind == 1:
            self.line("    @classmethod")
            self.line("    def of(cls, u):")
            self.line("        return u * cls.rate")
            self.line("    @staticmethod")
            self.line("    def twice(u):")
            self.line("        return u + u")
            self.line(f"kept.append({name}.twice({name}.of({t})))")
            self.line(f"kept.append([c.__name__ for c in {name}.__mro__])")
        elif kind == 2:
            self.line("    def __init_subclass__(cls, scale=2, **rest):")
            self.line("        super().__init_subclass__(**rest)")
            self.line("        cls.scale = scale")
            self.line(f"class Below{name}({name}, scale={self.integer()}):")
            self.line("    pass")
            self.line(f"kept.append({t} * Below{name}.scale)")
        else:
            self.line("    def __getattr__(self, key):")
            self.line("        if key == 'missing':")
            self.line("            raise AttributeError(key)")
            self.line("        return len(key)")
            self.line(f"one{name} = {name}({self.pick(f'{t}, 2', f'{t}, 2', '')})")
            self.line(f"kept.append({t} * one{name}.there + getattr(one{name}, 'missing', 1))")
            if self.chance(0.3):
                self.line(f"o.kept = type(one{name}).rate")

    def conversation(self):
        name, t = self.name("talk"), self.random.choice(self.tensors)
        self.line(f"{name} = talk({t})")
        for _ in range(self.random.randint(1, 4)):
            self.line(
                self.pick(
                    f"kept.append(next({name}, None))",
                    f"kept.append({name}.send(None))",
                    f"kept.append({name}.throw(ValueError('ab')))",
                    f"{name}.close()",
                    f"kept.append([u.sum() for u in {name}])",
                    f"def from{name}():\n{'    ' * (self.depth + 1)}kept.append((yield from {name}))\n"
                    f"{'    ' * self.depth}kept.extend(from{name}())",
                )
            )

    def raising(self):
        t = self.random.choice(self.tensors)
        self.line("try:")
        self.block(1)
        self.line("    try:")
        self.depth += 1
        self.block(1)
        self.line("    " + self.pick(f"raise Wrong({t}, {self.integer()})", "{}['k']", "[][0]", "raise KeyError(n)"))
        self.depth -= 1
        self.line("    except (KeyError, IndexError) as error:")
        self.line("        " + self.pick(f"raise Wrong({t} * 2, 3) from error", f"raise Wrong({t} + 1, 4)", "raise"))
        if self.chance(0.5):
            self.line("    finally:")
            self.line(f"        {t} = {self.tensor(2)}")
        self.line("except Wrong as wrong:")
        self.line("    kept.append((wrong.t, wrong.args, type(wrong.__cause__), type(wrong.__context__)))")
        if self.chance(0.4):
            self.line("except LookupError as wrong:")
            self.line("    kept.append(wrong.args)")

    def managed(self):
        t, name = self.random.choice(self.tensors), self.name("m")
        kind = self.random.randint(0, 3)
        if kind == 0:
            self.line(f"with scoped(log, {t}) as {name}:")
            self.block(1)
            self.line(f"    kept.append({name})")
            if self.chance(0.3):
                self.line("    raise KeyError('inner')")
        elif kind == 1:
            self.line(f"with contextlib.suppress(KeyError), Scope(log), scoped(log, {t}) as {name}:")
            self.block(1)
            self.line(f"    {self.pick(f'kept.append({name})', 'd[9]', 'kept.append(d[9])')}")
        elif kind == 2:
            self.line(f"with contextlib.ExitStack() as {name}:")
            self.line(f"    {t} = {name}.enter_context(scoped(log, {t}))")
            self.line(f"    {name}.callback(log.append, {self.integer()})")
            self.block(1)
        else:
            self.line(f"with contextlib.nullcontext({self.tensor(2)}) as {name}:")
            self.line(f"    kept.append({name})")

    def ending(self):
        """What Python runs in between: destructors, callbacks of weak references, signals, the collector."""
        t, name = self.random.choice(self.tensors), self.name("e")
        kind = self.pick(0, 1, 2, 3, 4, 5, 6)
        if kind == 6:
            self.line(f"{name} = {self.pick(f'Falls(log, {t})', f'Cell({t})', '3', 'o')}")
            one = self.pick(name, f"Falls(log, {t})", f"[Falls(log, {t})]", t)
            more = self.pick("", f", {one}", f", k={one}", f", Falls(log, {t}), k={name}")
            self.line(f"kept.append(rebinds(log, {one}{more}))")
            self.line(self.pick(f"{name} = None", f"rebinds(log, {name})", "pass"))
        elif kind == 0:
            self.line(f"{name} = Falls(log, {t})")
            self.line(f"kept.append({name}.t * 2)")
            self.line(self.pick(f"del {name}", f"{name} = None", f"{name} = Falls(log, {name}.t)", "pass"))
        elif kind == 1:
            self.line(f"o.falls = Falls(log, {self.tensor(2)})")
        elif kind == 2:
            self.line(f"{name} = Cell({t})")
            self.line(f"w{name} = weakref.ref({name}{self.pick('', ', lambda r: log.append(7)')})")
            self.line(f"kept.append(w{name}().step({t}))")
            self.line(f"del {name}")
            self.line(f"kept.append(w{name}() is None)")
        elif kind == 3:
            self.line(f"{name} = signal.signal(signal.SIGUSR1, lambda *_: log.append('signal'))")
            self.line("try:")
            self.line("    signal.raise_signal(signal.SIGUSR1)")
            self.block(1)
            self.line("finally:")
            self.line(f"    signal.signal(signal.SIGUSR1, {name})")
        elif kind == 4:
            self.line(f"{name} = Cell({t})")
            self.line(f"weakref.finalize({name}, log.append, {self.integer()})")
            self.line(f"kept.append({name}.half)")
            self.line(f"{name} = None")
        else:
            self.line(f"{name} = [Falls(log, {t})]")
            self.line(f"{name}.append({name})")
            self.line(f"del {name}")
            self.line("gc.collect()")

    def letting_go(self):
        """Containers from outside that hold what says when it dies, and what drops it: now, or in a later call."""
        t, things = self.random.choice(self.tensors), self.pick("l", "d", "o.things", "o.table")
        falls = self.pick(f"Falls(log, {t})", f"[Falls(log, {t}), 1]", "Cell(x)", "3")
        list_ = things in ("l", "o.things")
        kind = self.pick(0, 1, 2, 3, 4, 5, 6)
        if things.startswith("o."):
            self.line(f"if not hasattr(o, '{things[2:]}'):")
            self.line(f"    {things} = {self.pick('[1, 2]', '[]') if list_ else '{}'}")
        if kind < 3:
            self.line(f"{things}.append({falls})" if list_ else f"{things}['fallen'] = {falls}")
        elif kind == 3 and list_:
            self.line(f"if {things} and not isinstance({things}[-1], int):")
            self.line(
                f"    {self.pick(f'{things}.pop()', f'del {things}[-1]', f'{things}[-1] = 2', f'{things}[-1:] = []')}"
            )
        elif kind == 3:
            self.line(f"{things}.{self.pick('pop(%s, None)', 'update({%s: 1})', '__setitem__(%s, 1)')}" % "'fallen'")
        elif kind == 4:
            name = self.name("e")
            taken = f"{things}.pop() if len({things}) > 3 else 1" if list_ else f"{things}.pop('fallen', 1)"
            self.line(f"{name} = {self.pick('[%s]', '{5: %s}', '(%s)', '(%s, 1)')}" % f"{taken}")
            self.line("log.append('taken')")
            self.line(self.pick(f"{name} = None", f"del {name}"))
        elif kind == 5 and list_:
            self.line(f"if len({things}) > 5:")
            self.line(f"    {self.pick(f'{things}.clear()', f'{things}[3:] = []', f'del {things}[3:]')}")
        elif kind == 5:
            self.line(
                self.pick(
                    "o.table = {}", "o.things = [1]", "o.__dict__.pop('things', None)", "vars(o).update(table={})"
                )
            )
        else:
            self.line("log.append(len(log))")
        self.line(f"kept.append({self.random.choice(self.tensors)} * (1 + len(log)))")

    def early(self):
        if self.nested and self.chance(0.5):
            self.line(f"return {self.tensor(2)}, kept")
        else:
            self.line(f"log.append({self.integer()})")

    def random_numbers(self):
        t = self.random.choice(self.tensors)
        self.line(f"{t} = {t} + {self.pick('wick.rand_like(x).sum()', 'wick.rand(()) * 0.1', 'wick.randn(1)')}")

    def statement(self):
        if self.budget <= 0 or self.depth > 4:
            self.line(f"kept.append({self.random.choice(self.tensors)})")
            return
        self.budget -= 1
        kinds = (
            (self.assign, 5),
            (self.in_place, 3),
            (self.view, 3),
            (self.container, 3),
            (self.attribute, 2),
            (self.break_, 2),
            (self.branch, 2),
            (self.loop, 2),
            (self.attempt, 1),
            (self.with_, 1),
            (self.closure, 1 if not self.nested else 0),
            (self.generator, 0.5),
            (self.class_, 1),
            (self.conversation, 0.7),
            (self.raising, 0.7),
            (self.managed, 0.7),
            (self.ending, 1),
            (self.letting_go, 1),
            (self.deque_, 0.8),
            (self.weak, 0.6),
            (self.hook, 0.5),
            (self.optimizer, 0.4),
            (self.checkpoint_, 0.5),
            (self.scan, 0.8),
            (self.rates, 0.8),
            (self.by_c_code, 0.8),
            (self.of_class, 1),
            (self.early, 0.7),
            (self.random_numbers, 0.5),
            (self.about_sizes, 8 if self.sizes else 0),
        )
        kind = self.random.choices([k for k, _ in kinds], [w for _, w in kinds])[0]
        kind()

    def text(self):
        self.nested = False
        self.lines = [HEADER, f"AT_END = {self.writes_at_end}\n\n", "def helper(u, k=2):"]
        self.tensors = ["u"]
        self.line(
            self.pick(
                "return u * k", "u = u + k\n    return u.tanh()", "if k > 1:\n        return u * 2\n    return u - k"
            )
        )
        self.lines.append("\n\ndef loud(u, *, k=1):")
        self.line("print('loud', k)")
        self.line("return u * k")
        self.lines.append("\n\ndef f(x, y, n, a, l, d, o, log):")
        self.tensors = ["x", "y"]
        self.line("kept = []")
        self.line("t0 = x")
        for _ in range(self.random.randint(3, 8)):
            self.statement()
        self.line(f"return {', '.join(self.tensors[-4:])}, kept")
        return "\n".join(self.lines) + "\n"


def program(seed):
    return Program(seed).text()


def inputs(turn, grad, rows=None, n=None, a=None):
    """Other values, other sizes, other numbers; the same memory twice."""
    rows = rows or (5 if turn == 3 else 4)
    x = numbers(turn, rows, 4)
    y = x if turn == 2 else numbers(turn, rows, 4, salt=1)
    o = Box(t=numbers(turn, rows, 4, salt=2), count=turn % 2, rate=0.5)
    if grad:
        x = x.requires_grad_() * 1
        y = x if turn == 2 else y
    n = n or (2 if turn < 3 else 3)
    a = (0.5 if turn != 1 else -0.75) if a is None else a
    return x, y, n, a, [3, 1, 2], {"k": 1, "one": y}, o, []


ROWS = (4, 5, 3, 7, 7, 2, 1, 6, 9, 4, 8)  # of a program about sizes, call by call
NUMBERS = (2, 3, 5, 5, 4, 2, 7, 1, 3, 2, 9)
RATES = (0.5, -0.75, 1.5, 1.0, 0.25, -0.0, 2.0, 0.125, -3.0, 0.75, 0.5)


@contextlib.contextmanager
def no_collector():
    """When the collector runs, and with it destructors of what is in cycles, depends on what else was made."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def collecting(function):
    """From CPython 3.12 on an exception that a `contextmanager` swallows leaves a cycle of its frames, so that what they
    hold dies when the collector runs. Captured code leaves none, so both are looked at behind the collector."""

    def evaluated(*arguments):
        try:
            return function(*arguments)
        finally:
            gc.collect()

    return evaluated


def collected_between(every):
    for arguments in every:
        yield arguments
        gc.collect()


@no_collector()
def outcomes(function, grad, sizes):
    out, function = [], collecting(function)
    wick.manual_seed(5)
    for turn in (0, 0, 1, 2, 3, 0, 1) if not sizes else ():
        out.append(call_once(function, inputs(turn, grad), None, grads=False))
    for call, (rows, n, a) in enumerate(zip(ROWS, NUMBERS, RATES, strict=True) if sizes else ()):
        out.append(call_once(function, inputs(call % 3, grad, rows, n, a), None, grads=False))
    arguments = inputs(0, grad)
    for _ in range(3):  # on what the last call left
        out.append(call_once(function, arguments, None, grads=False))
    return out


NAMES = ("result", "exception", "arguments", "globals", "output", "modes", "random")


def without_nodes(description):
    """Names of tape nodes are not compared: a replay has functional operators in place of writes into views."""
    if isinstance(description, (tuple, list)):
        if len(description) >= 12 and description[1] in ("Tensor", "Parameter"):
            description = [*description[:7], description[7] is not None, *description[8:]]
        return [without_nodes(d) for d in description]
    return description


def check(seed, mode=1):
    """None, or what is wrong with the program of that seed."""
    source = program(seed)
    grad = seed % 4 == 0 or seed % 32 == 1

    def load():
        space = {"wick": wick, "__name__": "fuzzed"}
        exec(compile(source, f"<program {seed}>", "exec"), space)
        return space["f"]

    plain = outcomes(load(), grad, seed % 2 == 1)
    compiled = Compiled(load(), dynamic=1 if seed % 8 == 3 else -1, mode=mode)
    captured = outcomes(compiled, grad, seed % 2 == 1)
    for call, (p, c) in enumerate(zip(plain, captured, strict=True)):
        for name, a, b in zip(NAMES, p, c, strict=True):
            if without_nodes(a) != without_nodes(b):
                return f"call {call}: {name}\n  plain    {str(a)[:700]}\n  captured {str(b)[:700]}"
    return None


# The function in a hot loop of a program that is compiled without being asked for.
DRIVER = """
def run(every, out):
    for arguments in every:
        out.append(len(out) * 0.5 + sum(range(len(out) % 7)))
        try:
            out.append(("value", f(*arguments)))
        except Exception as error:
            out.append(("raised", type(error).__name__, str(error)))


run(every, out)
"""


@no_collector()
def run_as_program(source, grad, sizes, hot_rounds):
    if sizes:
        every = [
            inputs(call % 3, grad, *of_call) for call, of_call in enumerate(zip(ROWS, NUMBERS, RATES, strict=True))
        ]
    else:
        every = [inputs(turn, grad) for turn in (0, 0, 1, 2, 3, 0, 1, 0)]
    every += every[:4]  # on what the first calls have left
    space = {"__builtins__": builtins, "wick": wick, "__name__": "fuzzed", "out": []}
    space["every"] = collected_between(every)
    output = io.StringIO()
    wick.manual_seed(5)
    with contextlib.redirect_stdout(output):
        code = compile(source + DRIVER, "<program>", "exec")
        if hot_rounds:
            make = lambda function, line, kind: Compiled(function)  # noqa: E731
            _run_program(code, space, make, hot_rounds, 2)
        else:
            exec(code, space)
    described = Description().of([space["out"], every])
    modes = wick.is_grad_enabled(), wick.is_inference_mode_enabled()
    wick.set_grad_enabled(True)
    return without_nodes([described, output.getvalue(), modes, wick.rand(2).tolist()])


def check_as_program(seed):
    """None, or what is wrong with the program of that seed when it is found hot."""
    source, grad = program(seed), seed % 4 == 0 or seed % 32 == 1
    plain = run_as_program(source, grad, seed % 2 == 1, 0)
    for hot_rounds in (2, 4):
        found = run_as_program(source, grad, seed % 2 == 1, hot_rounds)
        for name, a, b in zip(("values", "output", "modes", "random"), plain, found, strict=True):
            if a != b:
                return f"hot after {hot_rounds}: {name}\n  plain    {str(a)[:700]}\n  as a program {str(b)[:700]}"
    return None


def report(seed, wrong):
    how = f"python tests/python/capture/fuzz.py --seed {seed} --count 1"
    return f"program {seed}: {wrong}\nrepeat with: {how}\n{program(seed)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--mode", type=int, default=1)
    options = parser.parse_args()
    first = options.seed if options.seed is not None else int(time.time()) * 1000 % 2**31
    print(f"seed {first}", flush=True)
    bad = 0
    for seed in range(first, first + options.count):
        with contextlib.redirect_stdout(io.StringIO()):
            wrong = check(seed, options.mode) or check_as_program(seed)
        if options.count == 1:
            print(program(seed))
        if wrong:
            bad += 1
            print(report(seed, wrong), flush=True)
    print(f"{bad} of {options.count} programs differ")
    sys.exit(bad != 0)


if __name__ == "__main__":
    main()
