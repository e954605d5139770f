"""Random tensor programs that stress fusion, run eagerly and compiled: every bit must be the same.

    python tests/ops/compile_fuzz.py --seed 7 --count 1      repeats one program
    python tests/ops/compile_fuzz.py --count 100000          many, with a seed that is printed
    python tests/ops/compile_fuzz.py --count 500 --native    the same with native code, several programs in a function

A program is inputs, each with its shape, dtype and layout, and lines that are tried eagerly while it is written: what an
operator refuses is left out, now and then it stays as the last line of a program that fails. A program runs eagerly, then
compiled: captured once and replayed, on fresh inputs each time. Outputs, mutated inputs, which memory is shared, errors
and the random stream behind the call are compared. One in eight has destructors, callbacks of weak references and signals
between its lines, and in front of any of its instructions (between_fuzz.py). What differs is made smaller and printed as Python."""

# ruff: noqa: E741

import argparse
import contextlib
import faulthandler
import gc
import os
import random
import re
import sys
import time
import warnings

import between_fuzz
from apart import apart

import wick
import wick.nn.functional as F  # noqa: N812

FLOATS = ("float32", "float64", "bfloat16", "float16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
REPLAYS = 3

# ---- inputs ----


def make(seed, shape, dtype, layout="plain", requires_grad=False):
    """A tensor whose values and memory are the same for the same arguments."""
    shape, dtype = tuple(shape), getattr(wick, dtype)
    base = list(shape)
    if layout == "reversed":
        base.reverse()
    elif layout == "swapped" and len(base) > 1:
        base[0], base[1] = base[1], base[0]
    elif base:
        if layout == "step":
            base[-1] *= 2
        elif layout == "rows":
            base[0] = base[0] * 3
        elif layout == "offset":
            base[0] += 2
        elif layout == "inner":
            base[-1] += 3
        elif layout == "expanded":
            base[0] = 1
        elif layout == "column":
            base[-1] = 1
    wick.manual_seed(seed)
    count = 1
    for size in base:
        count *= size
    if dtype == wick.bool:
        flat = wick.rand(count) < 0.5
    elif dtype.is_floating_point:
        flat = (wick.randn(count, dtype=wick.float64) * (1, 1, 3, 30)[seed % 4]).to(dtype)
        if seed % 5 == 0 and count:
            for k, value in enumerate((float("nan"), float("inf"), -0.0, -float("inf"), 1e-40, 0.0)):
                flat[(k * 7 + seed) % count] = value
    else:
        low, high = (0, 5) if dtype == wick.uint8 or seed % 2 else (-6, 7)
        flat = wick.randint(low, high, (count,)).to(dtype)
    t = flat.reshape(base)
    if layout == "reversed":
        t = t.permute(tuple(range(len(base)))[::-1])
    elif layout == "swapped" and len(base) > 1:
        t = t.transpose(0, 1)
    elif base:
        if layout == "step":
            t = t[..., ::2]
        elif layout == "rows":
            t = t[1::3]
        elif layout == "offset":
            t = t[1:-1]
        elif layout == "inner":
            t = t[..., 1:-2]
        elif layout in ("expanded", "column"):
            t = t.expand(shape)
    return t.requires_grad_() if requires_grad else t


LAYOUTS = ("plain", "plain", "plain", "reversed", "swapped", "step", "rows", "offset", "inner", "expanded", "column")


class Input:
    """`how`: arguments of make; or text over earlier inputs, for memory that inputs share."""

    def __init__(self, name, how):
        self.name, self.how = name, how

    def text(self):
        return self.how if isinstance(self.how, str) else f"make{self.how!r}"


class Program:
    def __init__(self, seed, inputs=(), lines=(), outputs=()):
        self.seed = seed
        self.inputs, self.lines, self.outputs = list(inputs), list(lines), list(outputs)
        self.fails = False
        self.disturbed = False  # see between_fuzz.py
        self.writes_views = False  # under the tape

    def function_text(self, name="f"):
        body = [*self.lines, f"return [{', '.join(self.outputs)}]"]
        head = f"def {name}({', '.join(i.name for i in self.inputs)}):\n"
        return head + "".join(f"    {line}\n" for line in body)

    def inputs_text(self, name="inputs"):
        lines = [f"    {i.name} = {i.text()}" for i in self.inputs]
        return f"def {name}():\n" + "\n".join([*lines, f"    return [{', '.join(i.name for i in self.inputs)}]\n"])

    def source(self):
        return f"{self.inputs_text()}\n\n{self.function_text()}"

    def load(self):
        """(function, function that makes its inputs); what the function's lines note is in its `events`"""
        space = {"wick": wick, "F": F, "make": make, "gradients": gradients, "__name__": "fuzzed"}
        events = []
        space.update(between_fuzz.names(events))
        exec(compile(self.source(), f"<program {self.seed}>", "exec"), space)
        space["f"].events = events
        return space["f"], space["inputs"]


def gradients(function, *tensors):
    """Gradients inside the program, of inputs that begin there."""
    leaves = [t.detach().clone().requires_grad_() for t in tensors]
    return wick.autograd.grad(function(*leaves).sum(), leaves, allow_unused=True)[0]


# ---- writing programs ----


class Writer:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.program = Program(seed)
        self.space = {"wick": wick, "F": F, "make": make, "gradients": gradients}
        self.names = []
        self.fresh = 0
        self.big = self.chance(0.08)
        self.grad = self.chance(0.2)
        small = [1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 31, 33]
        self.sizes = [self.random.choice(small) for _ in range(3)] + ([0] if self.chance(0.06) else [])
        if self.big:
            self.sizes = [self.random.choice((1025, 1537, 4099, 5000)), self.pick(2, 3, 5)]
        self.kinds = self.random.choices((FLOATS[:1], FLOATS, FLOATS + INTEGERS + ("bool",), INTEGERS), (6, 3, 3, 1))[0]
        if self.grad:
            self.kinds = self.pick(("float32",), ("float64", "float32"), FLOATS)

    def pick(self, *choices):
        return self.random.choice(choices)

    def chance(self, p):
        return self.random.random() < p

    # ---- inputs ----

    def shape(self):
        shape = [self.random.choice(self.sizes) for _ in range(self.random.choices(range(5), (1, 4, 8, 4, 1))[0])]
        if self.big:
            shape = self.pick((self.sizes[1], self.sizes[0]), (self.sizes[0],), (self.sizes[1], 1), (self.sizes[0], 2))
            shape = list(shape)
        return tuple(1 if self.chance(0.1) else size for size in shape)

    def add_input(self, shape=None, dtype=None):
        name = f"x{len(self.program.inputs)}"
        if self.program.inputs and shape is None and self.chance(0.05):
            other = self.random.choice(self.program.inputs).name
            how = self.pick(other, f"{other}.detach()[..., :1]", f"{other}.detach().t()", f"{other}.detach().view(-1)")
            with contextlib.suppress(Exception):
                self.space[name] = eval(how, self.space)
                self.program.inputs.append(Input(name, how))
                self.names.append(name)
                return
        dtype = dtype or self.random.choice(self.kinds)
        wants_grad = self.grad and dtype in FLOATS and self.chance(0.6)
        how = (self.random.randrange(1000), shape if shape is not None else self.shape(), dtype,
               self.random.choice(LAYOUTS), wants_grad)  # fmt: skip
        self.space[name] = make(*how)
        self.program.inputs.append(Input(name, how if wants_grad else how[:4]))
        self.names.append(name)

    # ---- choosing tensors ----

    def tensors(self, wanted=None):
        names = self.names[-5:] if self.chance(0.6) else self.names
        fitting = [n for n in names if wanted is None or wanted(self.space[n])]
        if not fitting:
            fitting = [n for n in self.names if wanted is None or wanted(self.space[n])]
        return fitting

    def any(self, wanted=None):
        fitting = self.tensors(wanted)
        return self.random.choice(fitting) if fitting else self.random.choice(self.names)

    def floating(self):
        return self.any(lambda t: t.dtype.is_floating_point)

    def integral(self):
        name = self.any(lambda t: not t.dtype.is_floating_point and t.dtype != wick.bool)
        return name if not self.space[name].dtype.is_floating_point else f"{name}.to(wick.int64)"

    def boolean(self, like):
        t = self.space.get(like)
        fitting = self.tensors(lambda b: b.dtype == wick.bool and broadcasts(b, t)) if t is not None else []
        return self.random.choice(fitting) if fitting and self.chance(0.6) else f"({like} > {self.number()})"

    def partner(self, name):
        t = self.space[name]
        fitting = self.tensors(lambda b: broadcasts(b, t))
        return self.random.choice(fitting) if fitting else name

    def number(self):
        return self.pick("0.5", "2", "-1", "1.25", "0", "3", "-0.75", "1e-3", "7")

    def dim(self, name):
        ndim = max(1, self.space[name].dim())
        return self.random.randrange(-ndim, ndim)

    def dims(self, name):
        ndim = self.space[name].dim()
        if ndim == 0 or self.chance(0.15):
            return self.pick("None", "()", "0") if ndim == 0 else "None"
        count = self.random.randint(1, ndim)
        chosen = self.random.sample(range(ndim), count)
        return repr(chosen[0]) if count == 1 and self.chance(0.7) else repr(tuple(chosen))

    # ---- expressions ----

    def unary(self):
        a = self.floating() if self.chance(0.8) else self.any()
        return self.pick(
            *(f"wick.{op}({a})" for op in (
                "exp", "log1p", "sin", "cos", "tanh", "sigmoid", "erf", "relu", "sqrt", "rsqrt", "reciprocal", "abs", "neg",
                "floor", "ceil", "round", "trunc", "sign", "isnan", "isfinite", "isinf", "expm1", "log", "square",
                "logical_not", "bitwise_not")),
            f"F.gelu({a})", f"F.gelu({a}, approximate='tanh')", f"F.silu({a})", f"F.softplus({a})",
            f"F.leaky_relu({a}, 0.1)", f"F.elu({a})", f"F.hardtanh({a})", f"F.mish({a})", f"-{a}",
        )  # fmt: skip

    def binary(self):
        a = self.any()
        b = self.partner(a) if self.chance(0.75) else self.number()
        if self.chance(0.2):
            a, b = b, a
        return self.pick(
            *(f"{a} {op} {b}" for op in ("+", "-", "*", "/", "+", "-", "*", "//", "%", ">", "<=", "==", "!=")),
            *(f"wick.{op}({a}, {b})" for op in ("maximum", "minimum", "pow", "logical_and", "logical_xor", "remainder")),
            f"wick.add({a}, {b}, alpha=2)", f"wick.sub({a}, {b}, alpha=3)",
            f"wick.div({a}, {b}, rounding_mode='{self.pick('floor', 'trunc')}')", f"({a} & {b})", f"({a} | {b})",
            f"({a} ^ {b})",
        )  # fmt: skip

    def ternary(self):
        a = self.any()
        b, c = self.partner(a), self.partner(a)
        m = self.boolean(a)
        return self.pick(
            f"wick.where({m}, {a}, {b})", f"wick.where({m}, {a}, {self.number()})", f"wick.where({m}, {b}, {c})",
            f"{a}.masked_fill({m}, {self.number()})", f"{a}.clamp({self.number()}, {self.number()})",
            f"{a}.clamp(min={self.number()})", f"wick.clamp({a}, {b}, {c})", f"wick.addcmul({a}, {b}, {c}, value=0.5)",
            f"wick.addcdiv({a}, {b}, {c}, value=2)", f"wick.lerp({a}, {b}, 0.3)", f"wick.lerp({a}, {b}, {c})",
        )  # fmt: skip

    def reduction(self):
        a, keep = self.any(), self.pick("", ", keepdim=True")
        d, one = self.dims(a), self.dim(a)
        f = self.floating()
        fd = self.dims(f)
        return self.pick(
            f"{a}.sum({d}{keep})", f"{f}.mean({fd}{keep})", f"{a}.sum({d}{keep})", f"{f}.mean({fd}{keep})", f"{a}.sum()",
            f"{f}.mean()", f"{a}.amax({d}{keep})", f"{a}.amin({d}{keep})", f"{a}.prod({one}{keep})",
            f"{f}.var({fd}{keep})", f"{f}.var({fd}, unbiased=False{keep})", f"{f}.std({fd}{keep})", f"{a}.any({one}{keep})",
            f"{a}.all({one}{keep})", f"{a}.any()", f"{a}.argmax({one}{keep})", f"{a}.argmin({one}{keep})", f"{a}.argmax()",
            f"{a}.max({one}{keep})[{self.pick(0, 1)}]", f"{a}.min({one}{keep})[0]", f"{a}.max()",
            f"{f}.logsumexp({fd}{keep})", f"{f}.norm(2, {one}{keep})", f"{a}.sum({d}{keep}, dtype=wick.float64)",
            f"{a}.sum_to_size({a}.shape)", f"wick.linalg.vector_norm({f}, 2, {fd}{keep})",
        )  # fmt: skip

    def rows(self):
        a = self.floating()
        t, d = self.space[a], self.dim(a)
        n = t.shape[-1] if t.dim() else 1
        w = self.any(lambda w: w.dim() == 1 and w.shape[0] == n and w.dtype == t.dtype)
        tail = t.shape[-2:]
        return self.pick(
            f"wick.softmax({a}, {d})", f"F.softmax({a}, {d})", f"wick.log_softmax({a}, {d})", f"F.layer_norm({a}, ({n},))",
            f"F.layer_norm({a}, ({n},), {w}, {w})", f"F.layer_norm({a}, ({n},), {w})", f"{a}.cumsum({d})",
            f"{a}.cumprod({d})", f"F.layer_norm({a}, {tuple(tail)})", f"F.rms_norm({a}, ({n},))",
            f"wick.softmax({a}, {d}, dtype=wick.float64)", f"{a}.sort({d})[{self.pick(0, 1)}]", f"{a}.flip({d})",
            f"{a}.roll(1, {d})", f"{a}.tril()", f"{a}.triu(1)", f"F.normalize({a}, dim={d})",
        )  # fmt: skip

    def view(self, a=None):
        a = a or self.any()
        t = self.space[a]
        ndim, d = t.dim(), self.dim(a)
        size = t.shape[d] if ndim else 1
        order = list(range(ndim))
        self.random.shuffle(order)
        low = self.random.randrange(max(1, size))
        step = self.pick(1, 1, 2, 3)
        other = self.random.randrange(-ndim, ndim) if ndim else 0
        sizes = list(t.shape)
        split = list(sizes)
        if ndim:
            k = self.random.randrange(ndim)
            for factor in (2, 3, 5, 7):
                if sizes[k] and sizes[k] % factor == 0:
                    split = [*sizes[:k], factor, sizes[k] // factor, *sizes[k + 1 :]]
        dots = ", ".join([":"] * (d % max(1, ndim)))
        dots = dots + ", " if dots else ""
        wide = [self.pick(2, 3) if s == 1 else -1 for s in sizes]
        return self.pick(
            f"{a}.t()", f"{a}.mT", f"{a}.transpose({d}, {other})", f"{a}.permute({tuple(order)})", f"{a}.unsqueeze({d})",
            f"{a}.squeeze()", f"{a}.squeeze({d})", f"{a}.view(-1)", f"{a}.reshape(-1)", f"{a}.flatten()",
            f"{a}.reshape({tuple(split)})", f"{a}.view({tuple(split)})", f"{a}.reshape({tuple(reversed(sizes))})",
            f"{a}[{low}]", f"{a}.select({d}, {low})", f"{a}[{dots}{low}:]", f"{a}[{dots}{low}::{step}]",
            f"{a}[{dots}:{max(1, size - low)}:{step}]", f"{a}.narrow({d}, {low}, {max(0, size - low)})",
            f"{a}.split({max(1, low)}, {d})[{self.pick(0, -1)}]", f"{a}.chunk(2, {d})[{self.pick(0, -1)}]",
            f"{a}.unbind({d})[{self.pick(0, -1)}]", f"{a}.diagonal()", f"{a}.diagonal(1, {d}, {other})",
            f"{a}.unfold({d}, {self.pick(1, 2, 3)}, {self.pick(1, 2)})", f"{a}.expand(2, {', '.join(['-1'] * ndim)})",
            f"{a}.expand({tuple(wide)})", f"{a}[None]", f"{a}[..., None]", f"{a}.detach()", f"{a}.contiguous()",
            f"{a}.clone()", f"{a}.movedim({d}, {other})" if hasattr(wick.Tensor, "movedim") else f"{a}.detach()",
        )  # fmt: skip

    def gather(self):
        a = self.any()
        t, d = self.space[a], self.dim(a)
        ndim = t.dim()
        size = t.shape[d] if ndim else 1
        count = self.pick(1, 2, 3, 6)
        low = -size if self.chance(0.3) else 0
        if size == 0:
            return f"{a}.clone()"
        values = [self.random.randrange(low, size) for _ in range(count)]
        if self.chance(0.03):
            values[-1] = self.pick(size, size + 3, -size - 1)
        positive = [v % size if -size <= v < size else v for v in values]
        first = t.shape[0] if ndim else 1
        rows = [v % first if -first <= v < first and first else 0 for v in values]
        dots = ", ".join([":"] * (d % max(1, ndim)))
        dots = dots + ", " if dots else ""
        index = self.any(lambda i: i.dtype in (wick.int64, wick.int32))
        wrapped = f"({index}.to(wick.int64) % {size})"
        return self.pick(
            f"{a}[{dots}wick.tensor({values})]", f"{a}[{dots}wick.tensor({[values, positive]})]",
            f"{a}.index_select({d}, wick.tensor({positive}))", f"F.embedding(wick.tensor({rows}), {a})",
            f"F.embedding(({index}.to(wick.int64) % {max(first, 1)}), {a})", f"{a}.gather({d}, {wrapped}.expand_as({a}))",
            f"{a}.gather({d}, {a}.argsort({d}))", f"{a}.take_along_dim({a}.argmax({d}, keepdim=True), {d})",
            f"{a}[{dots}{wrapped}]", f"{a}[wick.tensor({rows}), wick.tensor({values}) % {t.shape[1] if ndim > 1 else 1}]",
            f"{a}[{a} > {self.number()}].sum()" if self.chance(0.1) else f"{a}[{dots}{wrapped}]",
            f"{a}[:, None, wick.tensor({positive})]", f"{a}[{dots}{values[0]}]",
        )  # fmt: skip

    def scatter(self):
        a = self.any()
        t, d = self.space[a], self.dim(a)
        size = t.shape[d] if t.dim() else 1
        index = f"(({a} * 3).to(wick.int64) % {max(1, size)})"
        rows = [self.random.randrange(max(1, size)) for _ in range(self.pick(1, 2, 4))]
        if self.chance(0.03):
            rows[-1] = size + 1
        b = self.partner(a)
        part = f"{a}.index_select({d}, wick.tensor({rows}))"
        d0 = f"{t.shape[0] if t.dim() else 1}"
        return self.pick(
            f"{a}.scatter({d}, {index}, {b}.to({a}.dtype).expand_as({a}))", f"{a}.scatter_add({d}, {index}, {a})",
            f"{a}.scatter({d}, {index}, {self.number()})", f"{a}.index_add({d}, wick.tensor({rows}), {part})",
            f"wick.zeros_like({a}).index_add({d}, wick.tensor({rows}), {part} * 2)",
            f"{a}.index_put((wick.tensor({rows}) % {d0},), {a}[0])",
            f"{a}.index_put((wick.tensor({rows}) % {d0},), {a}[0] + 1, accumulate=True)",
            f"{a}.select_scatter({a}.select({d}, 0) + 1, {d}, {self.random.randrange(max(1, size))})",
            f"{a}.slice_scatter({a}.narrow({d}, 0, {max(0, size - 1)}) * 2, {d}, 1)",
        )  # fmt: skip

    def joined(self):
        a = self.any()
        t, d = self.space[a], self.dim(a)
        same = self.any(lambda b: b.shape == t.shape)
        other = self.any(lambda b: b.dim() == t.dim())
        return self.pick(
            f"wick.cat([{a}, {same}], {d})", f"wick.cat([{a}, {same}, {a}], {d})", f"wick.stack([{a}, {same}], {d})",
            f"wick.cat([{a}, {other}], {d})", f"wick.stack([{same}, {a}, {same}])", f"F.pad({a}, (1, 2))",
            f"{a}.repeat(2, {', '.join(['1'] * t.dim())})",
        )  # fmt: skip

    def product(self):
        a = self.any(lambda t: t.dim() >= 2 and t.dtype.is_floating_point)
        t = self.space[a]
        n = t.shape[-1] if t.dim() else 1
        b = self.any(lambda b: b.dim() == 2 and b.shape[0] == n and b.dtype == t.dtype)
        w = self.any(lambda b: b.dim() == 2 and b.shape[1] == n and b.dtype == t.dtype)
        batch = self.any(lambda b: b.dim() == 3 and b.dtype == t.dtype)
        bias = self.any(lambda c: c.dim() == 1 and c.dtype == t.dtype)
        return self.pick(
            f"({a} @ {b})", f"({a} @ {a}.mT)", f"F.linear({a}, {w})", f"F.linear({a}, {w}, {bias})",
            f"wick.addmm({bias}, {a}, {b})", f"wick.bmm({batch}, {batch}.mT)", f"({a}.mT @ {a})", f"({batch} @ {b})",
            f"F.linear({a}, {a})",
        )  # fmt: skip

    def random_numbers(self):
        a = self.floating()
        return self.pick(
            f"F.dropout({a}, 0.4)", f"wick.rand_like({a})", f"wick.bernoulli(wick.sigmoid({a}).nan_to_num(0.5))"
            if hasattr(wick.Tensor, "nan_to_num") else f"wick.bernoulli(({a} * 0).clamp(0.5, 0.5))",
            f"({a} + wick.randn_like({a}))", f"wick.rand({self.shape()})", f"(wick.rand_like({a}) < 0.5)",
            f"F.dropout({a} * 2, 0.1) + {a}",
        )  # fmt: skip

    def converted(self):
        a = self.any()
        kinds = self.kinds if self.chance(0.5) else FLOATS + INTEGERS + ("bool",)
        return f"{a}.to(wick.{self.random.choice(kinds)})"

    def created(self):
        a = self.any()
        t = self.space[a]
        n = t.shape[-1] if t.dim() else 1
        return self.pick(
            f"wick.arange({n})", f"({a} + wick.arange({n}))", f"wick.zeros_like({a})", f"wick.ones_like({a})",
            f"wick.full_like({a}, 2)", f"wick.full({self.shape()}, 0.5)", f"(wick.arange({n}) < {n // 2})",
            f"wick.linspace(0, 1, {n})", f"wick.eye({n})",
        )  # fmt: skip

    def gradient(self):
        a = self.floating()
        names = [n for n in self.tensors() if n != a]
        other = self.random.choice(names) if names else a
        inputs = [i.name for i in self.program.inputs if self.space[i.name].requires_grad]
        result = self.any(lambda t: t.requires_grad)
        n = self.space[a].shape[-1] if self.space[a].dim() else 1
        inner = self.pick(
            f"p.exp() * {other}", "wick.softmax(p, -1) * p", f"F.layer_norm(p, ({n},)) ** 2", "p.tanh().cumsum(-1)",
            f"(p @ p.mT).relu() + {other}", "p.amax(-1) + p.mean()", "p[..., ::2].sigmoid()", "p.view(-1).var() * p",
            "F.gelu(p).t()", f"wick.where(p > 0, p, {other} * p)", "wick.cat([p, p * 2]).log1p()",
        )  # fmt: skip
        if inputs and self.chance(0.7):
            wanted = self.random.choice(inputs)
            keep = self.pick(", retain_graph=True", ", retain_graph=True", "")
            how = self.pick("", " * 2", ".exp()", ".float()")
            return f"wick.autograd.grad(({result}{how}).sum(), [{wanted}]{keep})[0]"
        return f"gradients(lambda p: {inner}, {a})"

    def may_be_written(self, t):
        """Not where elements share memory: what a write leaves there is not defined. Part of an expanded input is
        refused when captured, always; eager allows some."""
        reach = 1
        for stride, size in sorted(zip(t.stride(), t.shape, strict=True)):
            if size > 1 and stride < reach:
                return False
            reach += stride * max(0, size - 1)
        memory = t.untyped_storage()
        wide = [i.name for i in self.program.inputs if "expanded" in i.text() or "column" in i.text()]
        return not t.requires_grad and not any(self.space[name].untyped_storage() == memory for name in wide)

    def in_place(self):
        a = self.any(self.may_be_written)
        if not self.may_be_written(self.space[a]):
            return None
        if self.chance(0.4):
            target = self.pick(
                f"{a}[0]", f"{a}[..., 0]", f"{a}[..., ::2]", f"{a}.t()", f"{a}.view(-1)", f"{a}[1:]", f"{a}.diagonal()",
                f"{a}.unsqueeze(0)", f"{a}.select({self.dim(a)}, 0)", f"{a}.transpose(0, -1)",
            )  # fmt: skip
        else:
            target = a
        b = self.partner(a)
        d = self.dim(a)
        return self.pick(
            f"{target}.add_({b})", f"{target}.mul_({self.number()})", f"{target}.sub_({b}, alpha=2)", f"{target}.zero_()",
            f"{target}.copy_({b})", f"{target}.fill_({self.number()})", f"{target}.clamp_(-2, 2)", f"{target}.relu_()",
            f"{target}.masked_fill_({self.boolean(a)}, {self.number()})", f"{target}.tanh_()", f"{target}.div_({b})",
            f"{a}[{self.pick('0', '..., 0', '1:', '::2', '...')}] = {self.pick(b, self.number())}",
            f"{a}[{self.boolean(a)}] = {self.number()}", f"{a}[wick.tensor([0, 0])] = {self.pick(b + '[0]', '1')}",
            f"{a}.index_add_({d}, wick.tensor([0]), {a}.narrow({d}, 0, 1) + 1)", f"{target}.exp_()", f"{a} += {b}",
            f"{a} *= {self.number()}", f"{target}.{self.drawn()}", f"{target}.neg_()", f"{target}.addcmul_({b}, {b})",
            f"{a}.scatter_({d}, ({a} * 0).to(wick.int64), {self.number()})", f"{target}.lerp_({b}, 0.5)",
        )  # fmt: skip

    def drawn(self):
        return self.pick(
            "bernoulli_(0.5)", "uniform_()", "normal_()", "random_(0, 9)", "exponential_()", "log_normal_()", "geometric_(0.3)",
        )  # fmt: skip

    def chain(self):
        """A few operators in one line, so that nothing else sees what is between."""
        a = self.floating()
        text = a
        for _ in range(self.random.randint(2, 5)):
            text = self.pick(
                f"({text} * {self.number()})", f"{text}.exp()", f"({text} + {self.partner(a)})", f"{text}.tanh()",
                f"({text} - {text}.mean(-1, keepdim=True))", f"wick.softmax({text}, -1)", f"{text}.t()",
                f"({text} / ({text}.abs().sum(-1, keepdim=True) + 1))", f"{text}.relu()", f"{text}.transpose(0, -1)",
                f"({text} * {self.partner(a)})", f"{text}.unsqueeze(0)", f"{text}.sum(0)", f"{text}.sigmoid()",
            ) if len(text) < 160 else f"{text}.abs()"  # fmt: skip
        return text

    # ---- statements ----

    def statement(self):
        kinds = (
            (self.unary, 4), (self.binary, 7), (self.ternary, 3), (self.reduction, 5), (self.rows, 3), (self.view, 7),
            (self.gather, 2), (self.scatter, 1), (self.joined, 1), (self.product, 1), (self.random_numbers, 0.7),
            (self.converted, 2), (self.created, 1), (self.gradient, 2.5 if self.grad else 0.3), (self.chain, 2),
            (self.in_place, 2.5),
        )  # fmt: skip
        kind = self.random.choices([k for k, _ in kinds], [w for _, w in kinds])[0]
        text = kind()
        if kind == self.in_place and text:
            return text, None
        text = text or self.binary()
        self.fresh += 1
        name = f"v{self.fresh}"
        return f"{name} = {text}", name

    def try_line(self, line, name):
        """Whether it may stay."""
        try:
            exec(line, self.space)
        except Exception as error:
            if self.chance(0.3 if isinstance(error, DATA_ERRORS) else 0.003) and not isinstance(error, OWN_ERRORS):
                self.program.lines.append(line)
                self.program.fails = True
            return False
        if name is None:
            made = [t for t in self.space.values() if isinstance(t, wick.Tensor)] if self.grad else []
            self.program.writes_views |= any(type(t.grad_fn).__name__ == "CopySlices" for t in made)
            return True
        t = self.space[name]
        if not isinstance(t, wick.Tensor) or t.numel() > 60000 or t.dim() > 6:
            del self.space[name]
            return False
        return True

    def write(self, attempts):
        wick.manual_seed(3)
        for _ in range(self.random.randint(1, 4)):
            self.add_input()
        lengths = [self.random.randint(*ends) for ends in ((1, 4), (4, 14), (15, 40))]
        wanted = self.random.choices(lengths, (3, 6, 1))[0]
        for _ in range(attempts):
            line, name = self.statement()
            if not self.try_line(line, name):
                if self.program.fails:
                    break
                continue
            self.program.lines.append(line)
            if name:
                self.names.append(name)
            if len(self.program.lines) >= wanted:
                break
        made = [n for n in self.names if n.startswith("v")]
        outputs = self.random.sample(made, min(len(made), self.random.randint(1, 4)))
        if made and made[-1] not in outputs:
            outputs.append(made[-1])
        if self.chance(0.1):
            outputs.append(self.random.choice(self.program.inputs).name)
        self.program.outputs = [f"{n}.detach()" if self.space[n].requires_grad else n for n in outputs]
        if self.grad and self.chance(0.6):
            self.program.outputs = outputs
        return self.program


DATA_ERRORS = (IndexError, ZeroDivisionError)
OWN_ERRORS = (SyntaxError, NameError)  # of the writer


def broadcasts(a, b):
    return all(x == y or x == 1 or y == 1 for x, y in zip(reversed(a.shape), reversed(b.shape), strict=False))


def write(seed, disturbed=False):
    with quiet():
        program = Writer(seed).write(120)
        if disturbed and seed % 8 == 0:
            between_fuzz.disturb(program, random.Random(seed))
            program.disturbed = True
        return program


# ---- running ----


@contextlib.contextmanager
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def bits(t):
    """Values as bytes, all NaNs the same."""
    with wick.no_grad():
        t = t.detach()
        if t.dtype.is_floating_point and bool(t.isnan().any()):
            t = t.masked_fill(t.isnan(), float("nan"))
        t = t.clone(memory_format=wick.contiguous_format)
        return bytes(t.untyped_storage())[: t.numel() * t.element_size()]


def described(tensors, inputs=0):
    """Of each: dtype, shape, strides of dims above 1, gradient, the first tensor in the list whose memory it has, an input's version, bits."""
    seen, out = {}, []
    for i, t in enumerate(tensors):
        if not isinstance(t, wick.Tensor):
            out.append((type(t).__name__, repr(t)))
            continue
        shared = seen.setdefault(t.untyped_storage().data_ptr(), i) if t.numel() else None
        written = i < inputs and t._version > 0 and t.numel() > 0
        strides = tuple(s if n > 1 else 1 for n, s in zip(t.shape, t.stride(), strict=True))
        out.append((str(t.dtype), tuple(t.shape), strides, t.requires_grad, shared, written, bits(t)))
    return out


FIELDS = ("dtype", "shape", "strides", "requires_grad", "memory shared with", "written", "bits")


def gradients_behind(outputs, inputs):
    """Of the outputs that have a tape, for the inputs that want them."""
    ends = [o.double().exp().sum() for o in outputs if isinstance(o, wick.Tensor) and o.grad_fn is not None]
    leaves = [t for t in inputs if t.requires_grad]
    return wick.autograd.grad(ends, leaves, allow_unused=True) if ends and leaves else []


def outcome(function, inputs):
    """Everything that can be seen of a call."""
    tensors = inputs()
    wick.manual_seed(5)
    try:
        outputs = function(*tensors)
        shown = described([*tensors, *outputs], len(tensors))
        behind = described(gradients_behind(outputs, tensors))
        result = ("gives", shown + [(*d[:3], 0, 0, 0, d[-1]) if d[0][0] == "t" else d for d in behind])
    except Exception as error:
        before, after = described(inputs()), described(tensors)
        result = (type(error).__name__, str(error), before, after)
    return result, wick.rand(2).tolist()


SPENT = "backward through the graph a second time"
WRITTEN = "modified by an inplace operation"
INDEX = re.compile(r"(?<=index )-?\d+")  # of several bad ones threads name any


# A compiled function is one node of the tape, which makes what its operators made: of a tensor that was written since,
# the error names that node, and counts the writes that there were in its memory.
MADE_BY = re.compile(r", which is output \d+ of \S+|(?<= is at version )\d+; expected version \d+")


def untold(message):
    """Without what may be told in other words."""
    return INDEX.sub("", MADE_BY.sub("", message))


def same(plain, compiled):
    """None, or how they differ. Where the call fails, an input is as it was or as eager leaves it."""
    (ours, random_ours), (theirs, random_theirs) = compiled, plain
    if ours[0] != theirs[0]:
        return f"eager {theirs[:2] if theirs[0] != 'gives' else 'works'}, compiled {ours[:2] if ours[0] != 'gives' else 'works'}"
    if ours[0] != "gives":
        if SPENT in ours[1] or (WRITTEN in ours[1] and theirs[1].startswith("derivative for ")):
            return None  # one node stands for a tape that was run: its error comes before what a derivative would raise
        if untold(ours[1]) != untold(theirs[1]):
            return f"eager says {theirs[1]!r}, compiled {ours[1]!r}"
        for i, (now, before, eager) in enumerate(zip(ours[3], theirs[2], theirs[3], strict=True)):
            if now[-1] not in (before[-1], eager[-1]):
                return f"input {i} is neither as it was nor as eager leaves it"
        return None
    for i, (a, b) in enumerate(zip(ours[1], theirs[1], strict=True)):
        if a != b:
            fields = [f for f, x, y in zip(FIELDS, a, b, strict=False) if x != y]
            shown = [(x, y) for f, x, y in zip(FIELDS, b, a, strict=False) if x != y and f != "bits"]
            name = "gradient, tensor" if b[3:4] == (0,) else "tensor"
            return f"{name} {i} (inputs first): {', '.join(fields)} {shown or values(b, a)}"
    return None if random_ours == random_theirs else "the random stream goes on elsewhere"


# A write through a view is functional operators when it is captured, and their derivatives leave a gradient as it comes
# (a sum's is one value for all elements) where CopySlices makes a copy that is laid out like the base.
LAYOUT_ALONE = re.compile(r"(gradient, )?tensor \d+ \(inputs first\): strides \[")
# The derivative of a rounded quotient is zero: eager keeps the divisor all the same, a compiled backward has no use for
# it, as PyTorch's, and so does not notice that it was written since.
KEEPS_NOTHING = re.compile(r"eager \('RuntimeError', 'one of the variables needed.*compiled works", re.DOTALL)


# Of several variables that were modified, which one the error names: a compiled forward keeps them in an order of its
# own, and the tensor that a view looks at in place of the view.
NAMES_ANOTHER = re.compile(
    r"(?:replay \d+: )?eager says '(one of the variables needed for gradient [^\[]*)\[.*?\]\](?:, which is output \d+ of"
    r" \w+,)? is .*compiled '\1\[.*?\]\](?:, which is output \d+ of \w+,)? is "
)


def forgiven(program, wrong):
    if NAMES_ANOTHER.match(wrong):
        return True
    if program.writes_views and LAYOUT_ALONE.match(wrong):
        return True
    return KEEPS_NOTHING.match(wrong) is not None and any("rounding_mode=" in line for line in program.lines)


def values(plain, compiled):
    """The first elements that differ."""
    dtype = plain[0].split(".")[-1]
    pair = []
    for d in (plain, compiled):
        t = wick.frombuffer(bytearray(d[-1]), dtype=getattr(wick, dtype))
        pair.append(t.tolist())
    where = [k for k, (a, b) in enumerate(zip(*pair, strict=True)) if a != b and not (a != a and b != b)]
    where = where or [k for k, (a, b) in enumerate(zip(*pair, strict=True)) if str(a) != str(b)]
    some = ", ".join(f"[{k}] eager {pair[0][k]!r} compiled {pair[1][k]!r}" for k in where[:3])
    return f"{len(where)} of {len(pair[0])} of {plain[1]} {dtype}: {some}"


@contextlib.contextmanager
def native_everywhere(wanted=True):
    """Native code runs small launches, too, which are otherwise tier 0's."""
    wick._C._use_short_way(not wanted)
    try:
        yield
    finally:
        wick._C._use_short_way(True)


def check(program, native=False):
    """None, or how the compiled program differs."""
    function, inputs = program.load()
    noted = function.events
    with quiet(), native_everywhere(native):
        between_fuzz.note_signals(noted)
        plain = outcome(function, inputs)
        if program.disturbed:
            gc.collect()
        expected = sorted(noted)
        if plain[0][0] in ("NameError", "SyntaxError"):
            return None

        def wrong_with(given, more=()):
            if program.disturbed:
                gc.collect()  # cycles
            seen, wanted = sorted(noted), sorted([*expected, *more])
            noted.clear()
            wrong = same(plain, given)
            if wrong and not forgiven(program, wrong):
                return wrong
            return None if seen == wanted else f"eager notes {wanted}, compiled {seen}"

        noted.clear()
        compiled = wick._C.Compiled(function)
        for run in range(1 + REPLAYS):
            if native and run == 2:
                compiled.wait_for_native()
            wrong = wrong_with(outcome(compiled, inputs))
            if wrong:
                return f"{'capture' if run == 0 else f'replay {run}'}: {wrong}"
        if program.disturbed:
            wrong = between_fuzz.in_front_of_instructions(
                function, random.Random(program.seed), lambda c: outcome(c, inputs), wrong_with, noted
            )
            if wrong:
                return wrong
    STATISTICS["captures"] += compiled.captures
    STATISTICS["breaks"] += compiled.breaks
    STATISTICS["errors"] += plain[0][0] != "gives"
    return None


STATISTICS = {"captures": 0, "breaks": 0, "errors": 0, "native": 0}


class Batch:
    """Programs as one function, so that one run of the C compiler is for all of them; those of the seeds that run
    and have no gradients outside."""

    def __init__(self, seeds):
        self.programs = []
        for seed in seeds:
            p = write(seed)
            if not p.fails and not any("True)" in i.text() for i in p.inputs):
                self.programs.append(p)

    def load(self):
        loaded = [p.load() for p in self.programs]

        def inputs():
            return [t for _, make_inputs in loaded for t in make_inputs()]

        space = {f"f{i}": f for i, (f, _) in enumerate(loaded)}
        body, at = [], 0
        for i, p in enumerate(self.programs):
            body.append(f"*f{i}(*tensors[{at}:{at + len(p.inputs)}])")
            at += len(p.inputs)
        exec(f"def f(*tensors):\n    return [{', '.join(body)}]", space)
        return space["f"], inputs

    def seed_of(self, tensor):
        """Of the program that tensor belongs to; inputs first."""
        owners = [p for p in self.programs for _ in p.inputs] + [p for p in self.programs for _ in p.outputs]
        return owners[tensor].seed

    def check(self):
        """[(seed, what is wrong)]"""
        if not self.programs:
            return []
        function, inputs = self.load()
        with quiet(), native_everywhere():
            plain = outcome(function, inputs)
            compiled = wick._C.Compiled(function)
            for run in range(1 + REPLAYS):
                if run == 1:
                    STATISTICS["native"] += compiled.wait_for_native()
                wrong = same(plain, outcome(compiled, inputs))
                if wrong:
                    at = re.search(r"tensor (\d+)", wrong)
                    seed = self.seed_of(int(at[1])) if at else self.programs[0].seed
                    return [(seed, f"in the batch of {self.programs[0].seed}, run {run}: {wrong}")]
        STATISTICS["captures"] += compiled.captures
        STATISTICS["breaks"] += compiled.breaks
        return []


# ---- making a program smaller ----


def without_line(p, at):
    return Program(p.seed, p.inputs, p.lines[:at] + p.lines[at + 1 :], p.outputs)


def value_as_input(p, at):
    """The value of a line as one more input, of its shape and strides' kind."""
    name, _, _ = p.lines[at].partition(" = ")
    if not name.isidentifier():
        return None
    function, inputs = Program(p.seed, p.inputs, p.lines[: at + 1], [name]).load()
    try:
        with quiet():
            t = function(*inputs())[0]
    except Exception:
        return None
    if not isinstance(t, wick.Tensor):
        return None
    turned = t.permute(tuple(range(t.dim()))[::-1])
    layout = "plain" if t.is_contiguous() else "reversed" if turned.is_contiguous() else "step"
    how = (1, tuple(t.shape), str(t.dtype).split(".")[-1], layout)
    return Program(p.seed, [*p.inputs, Input(name, how)], p.lines[:at] + p.lines[at + 1 :], p.outputs)


def smaller(p):
    """Programs that are simpler in one place."""
    for at in range(len(p.lines) - 1, -1, -1):
        yield without_line(p, at)
    for at in range(len(p.lines)):
        changed = value_as_input(p, at)
        if changed:
            yield changed
    for at in range(len(p.outputs)):
        yield Program(p.seed, p.inputs, p.lines, p.outputs[:at] + p.outputs[at + 1 :])
    for at, given in enumerate(p.inputs):
        if f" {given.name}" not in " ".join(["", *p.lines, *p.outputs]).replace("(", " ").replace("[", " "):
            yield Program(p.seed, p.inputs[:at] + p.inputs[at + 1 :], p.lines, p.outputs)
        if not isinstance(given.how, str) and (given.how[3] != "plain" or given.how[0] != 1):
            for how in ((1, *given.how[1:3], "plain"), (given.how[0], *given.how[1:3], "plain"), given.how[:4]):
                inputs = [*p.inputs[:at], Input(given.name, how), *p.inputs[at + 1 :]]
                if how != given.how:
                    yield Program(p.seed, inputs, p.lines, p.outputs)


def kind_of(wrong):
    """What stays the same of it in a smaller program."""
    return re.sub(r"\[.*|[\d]+|replay|capture", "", wrong, flags=re.DOTALL)


def minimise(program, native, seconds=60):
    """The smallest program found that still differs in the same way."""
    until = time.time() + seconds
    wrong = apart(lambda: check(program, native))
    kind = kind_of(wrong or "")
    again = wrong is not None
    while again and time.time() < until:
        again = False
        for candidate in smaller(program):
            if time.time() > until:
                break
            candidate.disturbed = program.disturbed
            found = apart(lambda c=candidate: check(c, native))
            if found and kind_of(found) == kind:
                program, wrong, again = candidate, found, True
                break
    return program, wrong


def reproducer(program, wrong, native):
    wait = "c.wait_for_native()\nwick._C._use_short_way(False)\n" if native else ""
    return (
        f"# {wrong}\nimport sys\n\nsys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})\n"
        "from compile_fuzz import F, gradients, make, wick\n\n\n"
        f"{program.source()}\n\nc = wick._C.Compiled(f)\nc(*inputs())\n{wait}"
        "for function in (f, c):\n    wick.manual_seed(5)\n    given = inputs()\n"
        "    print(function(*given), given)\n"
    )


# ---- many programs ----


def run_chunk(seeds, native, batch, started):
    """[(seed, what is wrong)] and statistics; `started` is told each seed before it runs."""
    bad = []
    if not native:
        for seed in seeds:
            started(seed)
            program = write(seed, disturbed=True)
            wrong = check(program)
            if wrong:
                bad.append((seed, wrong))
        return bad, STATISTICS
    for at in range(0, len(seeds), batch):
        started(seeds[at])
        bad += Batch(seeds[at : at + batch]).check()
    return bad, STATISTICS


def fuzz(first, count, native=False, chunk=500, batch=16, out=print, seconds=None):
    """Number of programs that differ; prints each, made smaller."""
    bad, begun, statistics = 0, time.time(), dict.fromkeys(STATISTICS, 0)
    seeds = list(range(first, first + count))
    while seeds:
        if seconds is not None and time.time() - begun > seconds:
            out(f"{len(seeds)} programs were left out")
            break
        part, seeds = seeds[:chunk], seeds[chunk:]
        read, tell = os.pipe()

        def started(seed, tell=tell):
            os.write(tell, seed.to_bytes(8, "little"))

        answer = apart(lambda part=part, started=started: run_chunk(part, native, batch, started), 3600)
        os.close(tell)
        with os.fdopen(read, "rb") as pipe:
            last = pipe.read()[-8:]
        if isinstance(answer, str):
            seed = int.from_bytes(last, "little")
            seeds = [s for s in part if s > seed + (batch - 1 if native else 0)] + seeds
            found = [(seed, answer)]
        else:
            found, counted = answer
            statistics = {k: v + counted[k] for k, v in statistics.items()}
        for seed, wrong in found:
            bad += 1
            report(seed, wrong, native, batch, out)
    out(f"{bad} of {count} programs differ ({time.time() - begun:.1f} s, {statistics})")
    return bad


def report(seed, wrong, native, batch, out):
    out(f"# seed {seed}: {wrong}")
    crashed = native and "tensor" not in wrong
    for s in range(seed, seed + (batch if crashed else 1)):
        small, still = minimise(write(s, disturbed=not native), native)
        if still:
            out(f"# seed {s}\n{reproducer(small, still, native)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--native", action="store_true")
    parser.add_argument("--batch", type=int, default=16)
    options = parser.parse_args()
    faulthandler.enable()
    seed = options.seed if options.seed is not None else int(time.time()) * 1000 % 2**31
    print(f"seed {seed}", flush=True)
    if options.count == 1:
        print(write(seed, disturbed=not options.native).source())
    bad = fuzz(seed, options.count, options.native, batch=options.batch, out=lambda text: print(text, flush=True))
    sys.exit(bad != 0)


if __name__ == "__main__":
    main()
