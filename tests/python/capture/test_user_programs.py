"""Small programs as users of PyTorch write them: compiled they give what they give plainly, and those that are whole
leave nothing to breaks. What is not whole says so."""

# ruff: noqa: E741

import abc
import collections
import contextlib
import dataclasses
import enum
import functools
import itertools
import math
import typing
from typing import Any

import pytest

import wick as torch
import wick.nn.functional as F
from wick import nn

PROGRAMS = []


def prog(function=None, *, whole=True):
    """Of a function that is given what compiles. whole: each compiled function of it is one graph a path."""
    if function is None:
        return functools.partial(prog, whole=whole)
    PROGRAMS.append(pytest.param(function, whole, id=function.__name__))
    return function


def ramp(*s):
    return torch.arange(int(math.prod(s)), dtype=torch.float32).reshape(*s) / 7 - 0.5


def linear(i, o, s=1):
    l = nn.Linear(i, o)
    with torch.no_grad():
        l.weight.copy_(ramp(o, i) / 10 * s)
        l.bias.copy_(ramp(o) / 5)
    return l


@prog
def dataclass_config(compiled):
    @dataclasses.dataclass
    class Cfg:
        dim: int = 4
        scale: float = 0.5
        acts: tuple = ("relu", "tanh")
        use_bias: bool = True

        @property
        def half(self):
            return self.dim // 2

    class M(nn.Module):
        def __init__(self, cfg):
            super().__init__()
            self.cfg = cfg
            self.l = linear(cfg.dim, cfg.half)

        def forward(self, x):
            y = self.l(x) * self.cfg.scale
            for a in self.cfg.acts:
                y = getattr(torch, a)(y)
            if self.cfg.use_bias:
                y = y + self.cfg.half
            return y

    m = M(Cfg())
    c = compiled(m)
    return [c(ramp(2, 4)), c(ramp(2, 4) + 1)]


@prog
def frozen_dataclass_replace(compiled):
    @dataclasses.dataclass(frozen=True)
    class S:
        a: Any
        n: int = 0

    def f(x, s):
        s2 = dataclasses.replace(s, a=s.a + x, n=s.n + 1)
        return s2.a * s2.n

    c = compiled(f)
    return [c(ramp(3), S(ramp(3))), c(ramp(3), S(ramp(3)))]


@prog
def dataclass_output(compiled):
    @dataclasses.dataclass
    class Out:
        logits: Any
        loss: Any = None

    def f(x):
        o = Out(x * 2)
        o.loss = o.logits.sum()
        return o

    c = compiled(f)
    r = [c(ramp(3)) for _ in range(2)]
    return [(type(o).__name__, o.logits, o.loss) for o in r]


@prog
def star_args_model(compiled):
    class Cat(nn.Module):
        def __init__(s, *mods):
            super().__init__()
            s.mods = nn.ModuleList(mods)

        def forward(s, *xs, scale=1.0, **kw):
            ys = [m(x) for m, x in zip(s.mods, xs, strict=False)]
            y = torch.cat(ys, dim=kw.get("dim", -1)) * scale
            for k, v in sorted(kw.items()):
                if k.startswith("add_"):
                    y = y + v
            return y

    m = Cat(linear(2, 3), linear(3, 2))
    c = compiled(m)
    return [
        c(ramp(2, 2), ramp(2, 3)),
        c(ramp(2, 2), ramp(2, 3), scale=2.0),
        c(ramp(2, 2), ramp(2, 3), dim=-1, add_b=ramp(2, 5), add_a=1),
    ]


@prog
def context_manager_class(compiled):
    class Scope:
        def __init__(s, log):
            s.log = log

        def __enter__(s):
            s.log.append("in")
            return s

        def __exit__(s, *e):
            s.log.append("out")
            return False

    log = []

    def f(x):
        with Scope(log) as s:
            y = x * 2
            with torch.no_grad():
                z = y + 1
        return y + z, len(s.log)

    c = compiled(f)
    return [c(ramp(3)), c(ramp(3)), list(log)]


@prog
def contextmanager_generator(compiled):
    depth = [0]

    @contextlib.contextmanager
    def deeper(n):
        depth[0] += n
        try:
            yield depth[0]
        finally:
            depth[0] -= n

    def f(x):
        with deeper(2) as d, deeper(3) as e:
            return x * d + e

    c = compiled(f)
    return [c(ramp(3)), c(ramp(3)), depth]


@prog
def early_return(compiled):
    def f(x, mask=None, mode="a"):
        if mask is None:
            return x.relu()
        if mode == "a" and x.dim() == 2:
            return x * mask
        elif mode == "b":
            return x.masked_fill(mask > 0, 0.0)
        return x

    c = compiled(f)
    return [
        c(ramp(2, 3)),
        c(ramp(2, 3), ramp(2, 3)),
        c(ramp(2, 3), ramp(2, 3), mode="b"),
        c(ramp(3), ramp(3)),
        c(ramp(3), mask=ramp(3), mode="z"),
    ]


@prog
def generators(compiled):
    def pieces(x, n):
        for i in range(n):
            yield x * i

    def flat(x):
        yield from pieces(x, 2)
        yield x

    def f(x):
        total = sum(pieces(x, 4))
        parts = [p + 1 for p in flat(x)]
        g = (p * 2 for p in parts)
        first = next(g)
        return total, torch.stack(list(g)), first

    c = compiled(f)
    return [c(ramp(3)), c(ramp(3))]


@prog
def try_finally_forward(compiled):
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.l = linear(3, 3)
            s.busy = False
            s.n = 0

        def forward(s, x):
            s.busy = True
            try:
                y = s.l(x)
                try:
                    y.missing_attribute  # noqa: B018
                except AttributeError:
                    y = y + 1
                else:
                    y = y - 1
                return y
            finally:
                s.busy = False
                s.n += 1

    m = M()
    c = compiled(m)
    return [c(ramp(2, 3)), c(ramp(2, 3)), m.busy, m.n]


@prog
def forward_hooks(compiled):
    m = nn.Sequential(linear(3, 3), nn.ReLU(), linear(3, 2))
    h = m[0].register_forward_hook(lambda mod, inp, out: out * 2)
    h2 = m[2].register_forward_pre_hook(lambda mod, inp: (inp[0] + 1,))
    c = compiled(m)
    a = c(ramp(2, 3))
    b = c(ramp(2, 3))
    h.remove()
    d = c(ramp(2, 3))
    h2.remove()
    e = c(ramp(2, 3))
    return [a, b, d, e]


@prog
def hooks_that_store(compiled):
    m = nn.Sequential(linear(3, 3), nn.ReLU(), linear(3, 2))
    feats = {}

    def keep(name):
        def hook(mod, inp, out):
            feats[name] = out.detach()

        return hook

    for n, s in m.named_children():
        s.register_forward_hook(keep(n))
    c = compiled(m)
    r = [c(ramp(2, 3)) for _ in range(2)]
    return r + [dict(feats)]


@prog
def closures_over_lists(compiled):
    weights = [ramp(3), ramp(3) + 1]
    fns = []
    for i in range(3):
        fns.append(lambda x, i=i: x * i + weights[i % 2])

    def f(x):
        out = []
        for fn in fns:
            out.append(fn(x))
        acc = 0

        def add(v):
            nonlocal acc
            acc = acc + v

        for o in out:
            add(o)
        return acc

    c = compiled(f)
    a = c(ramp(3))
    weights.append(ramp(3))
    b = c(ramp(3))
    weights[0] = ramp(3) * 2
    d = c(ramp(3))
    return [a, b, d]


@prog
def fstrings_with_shapes(compiled):
    def f(x):
        name = f"block_{x.shape[0]}x{x.size(-1)}_{x.dtype}"
        d = {name: x * 2, f"{name!r:>30}": x + 1}
        assert x.ndim == 2, f"want 2 dims, got {x.shape}"
        return d

    c = compiled(f)
    return [c(ramp(2, 3)), c(ramp(2, 3)), c(ramp(4, 3))]


@prog
def no_grad_method(compiled):
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.l = linear(3, 3)
            s.register_buffer("ema", torch.zeros(3))

        @torch.no_grad()
        def update(s, y):
            s.ema.mul_(0.9).add_(y.mean(0), alpha=0.1)

        def forward(s, x):
            y = s.l(x)
            s.update(y)
            return y * s.ema

    m = M()
    c = compiled(m)
    r = [c(ramp(2, 3)) for _ in range(3)]
    r[-1].sum().backward()
    return r + [m.ema, m.l.weight.grad]


@prog
def compiled_methods(compiled):
    class A:
        k = 3

        def __init__(s):
            s.w = ramp(3)

        def run(s, x, *, y=None):
            return s.help(x) * s.k + (0 if y is None else y)

        def help(s, x):
            return x + s.w

        @classmethod
        def make(cls, x):
            return x * cls.k

        @staticmethod
        def st(x):
            return x - 1

    a = A()
    run = compiled(a.run)
    mk = compiled(a.make)
    st = compiled(A.st)
    r = [run(ramp(3)), run(ramp(3), y=ramp(3)), mk(ramp(3)), st(ramp(3))]
    a.w = ramp(3) * 5
    r.append(run(ramp(3)))
    A.k = 4
    r.append(run(ramp(3)))
    return r


@prog
def decorated_method(compiled):
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.l = linear(3, 3)

        def step(s, x):
            return s.l(x).relu()

        def forward(s, x):
            return s.step(x) + 1

    M.step = compiled(M.step)
    m = M()
    n = M()
    with torch.no_grad():
        n.l.weight.mul_(2)
    return [m(ramp(2, 3)), n(ramp(2, 3)), m(ramp(2, 3)), m.step(ramp(2, 3))]


@prog
def module_kwargs(compiled):
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.l = linear(3, 3)

        def forward(s, input_ids=None, attention_mask=None, return_dict=True, **unused):
            y = s.l(input_ids)
            if attention_mask is not None:
                y = y * attention_mask[..., None]
            return {"out": y, "n": len(unused)} if return_dict else (y,)

    c = compiled(M())
    return [
        c(input_ids=ramp(2, 3)),
        c(input_ids=ramp(2, 3), attention_mask=ramp(2)),
        c(attention_mask=ramp(2), input_ids=ramp(2, 3), return_dict=False),
        c(**{"input_ids": ramp(2, 3), "x": 1, "y": None}),
    ]


@prog(whole=False)
def property_access(compiled):
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.a = nn.Parameter(ramp(3))
            s._g = 2.0

        @property
        def gain(s):
            return s._g

        @gain.setter
        def gain(s, v):
            s._g = v

        @property
        def device(s):
            return next(s.parameters()).device

        @functools.cached_property
        def table(s):
            return ramp(3) * 2

        def forward(s, x):
            return x.to(s.device) * s.gain * s.a + s.table

    m = M()
    c = compiled(m)
    r = [c(ramp(3)), c(ramp(3))]
    m.gain = 3.0
    r += [c(ramp(3))]
    m.gain = 4.0
    r += [c(ramp(3))]
    return r


@prog
def partials(compiled):
    def base(x, y, *, act, scale=1.0):
        return act(x + y) * scale

    p = functools.partial(base, act=torch.tanh)
    q = functools.partial(p, scale=2.0)
    norm = functools.partial(F.layer_norm, normalized_shape=(3,), eps=1e-3)

    def f(x):
        return q(x, 1) + norm(x) + functools.reduce(torch.mul, [x, x, x])

    c = compiled(f)
    r = [c(ramp(2, 3)), c(ramp(2, 3))]
    return r


@prog
def compile_partial(compiled):
    def base(x, n, act):
        return act(x) * n

    c = compiled(functools.partial(base, act=torch.relu))
    return [c(ramp(3), 2), c(ramp(3), 3)]


@prog
def itertools_inside(compiled):
    def f(x, y):
        ch = list(itertools.chain([x], [y], [x * 2]))
        acc = list(itertools.accumulate(ch, lambda p, q: p + q))
        pairs = [a * b for a, b in zip(acc, itertools.islice(acc, 1, None), strict=False)]
        z = [a if b is None else a + b for a, b in itertools.zip_longest(ch, pairs)]
        comb = [a - b for a, b in itertools.combinations(ch, 2)]
        perm = [a - 2 * b for a, b in itertools.permutations(ch, 2)]
        cy = itertools.cycle([x, y])
        cyc = [next(cy) for _ in range(3)]
        rep = list(itertools.repeat(x, 2))
        cnt = [k for k, _ in zip(itertools.count(3), rep)]
        sm = list(itertools.starmap(torch.add, [(x, y), (y, y)]))
        return torch.stack(acc + pairs + z + comb + perm + cyc + rep + sm), cnt

    c = compiled(f)
    return [c(ramp(3), ramp(3) + 1) for _ in range(2)]


@prog
def builtin_iteration(compiled):
    def f(xs, d):
        a = [x * i for i, x in enumerate(xs, start=1)]
        b = [p - q for p, q in zip(xs, reversed(xs), strict=False)]
        s = sorted(d.items(), key=lambda kv: -kv[1])
        names = [k for k, _ in s]
        m = dict(map(lambda kv: (kv[0], kv[1] * xs[0]), d.items()))
        fl = list(filter(lambda x: x.dim() == 1, xs))
        return (
            torch.stack(a + b + fl),
            names,
            m,
            max(d.values()),
            any(x.dim() == 2 for x in xs),
            all(map(torch.is_tensor, xs)),
            min(xs, key=lambda q: q.numel()),
            sorted(xs, key=lambda q: q.numel(), reverse=True)[0],
        )

    c = compiled(f)
    return [c([ramp(3), ramp(3) + 1], {"a": 1, "b": 3, "c": 2}) for _ in range(2)]


@prog
def isinstance_trees(compiled):
    def tree(fn, o):
        if isinstance(o, torch.Tensor):
            return fn(o)
        if isinstance(o, dict):
            return {k: tree(fn, v) for k, v in o.items()}
        if isinstance(o, tuple) and hasattr(o, "_fields"):
            return type(o)(*(tree(fn, v) for v in o))
        if isinstance(o, (list, tuple)):
            return type(o)(tree(fn, v) for v in o)
        return o

    N = collections.namedtuple("N", "p q")

    def f(o):
        return tree(lambda x: x * 2 + 1, o)

    c = compiled(f)

    def mk():
        return {"a": ramp(2), "b": [ramp(3), (ramp(1), "s", None)], "c": N(ramp(2), 3)}

    return [c(mk()), c(mk())]


@prog
def dict_outputs(compiled):
    def f(x):
        out = collections.OrderedDict()
        out["h"] = x * 2
        out["z"] = out["h"].sum()
        dd = collections.defaultdict(list)
        dd["a"].append(x)
        dd["a"].append(x + 1)
        dd["b"].append(out["z"])
        return {**out, "extra": dict(dd)}, {k: v for k, v in out.items() if k != "h"}

    c = compiled(f)
    return [c(ramp(3)), c(ramp(3))]


@prog
def namedtuple_outputs(compiled):
    class Out(typing.NamedTuple):
        x: Any
        y: Any = None

        def total(self):
            return self.x.sum()

    def f(x):
        o = Out(x * 2)
        o = o._replace(y=o.total())
        a, b = o
        return o, o._asdict(), a + b

    c = compiled(f)
    return [c(ramp(3)), c(ramp(3)), type(c(ramp(3))[0]).__name__]


@prog(whole=False)
def inference_mode(compiled):
    m = linear(3, 2)

    @torch.inference_mode()
    def predict(x):
        return m(x).softmax(-1)

    c = compiled(predict)

    def g(x):
        with torch.inference_mode():
            y = m(x)
        return y.is_inference() if hasattr(y, "is_inference") else True, y.requires_grad

    r = [c(ramp(2, 3)), c(ramp(2, 3))]
    c2 = compiled(m)
    with torch.inference_mode():
        r += [c2(ramp(2, 3)).requires_grad]
    r += [c2(ramp(2, 3)).requires_grad]
    return r + [compiled(g)(ramp(2, 3))]


@prog
def train_eval_toggle(compiled):
    m = nn.Sequential(linear(3, 4), nn.LayerNorm(4), nn.Dropout(0.5), linear(4, 2))
    c = compiled(m)
    r = []
    m.eval()
    r += [c(ramp(4, 3))]
    torch.manual_seed(3)
    m.train()
    y = c(ramp(4, 3))
    r += [y]
    m.eval()
    r += [c(ramp(4, 3)), c.training]
    c.train()
    r += [m.training, m[2].training]
    c.eval()
    r += [c(ramp(4, 3))]
    return r


@prog
def freezing(compiled):
    m = nn.Sequential(linear(3, 3), nn.ReLU(), linear(3, 1))
    c = compiled(m)
    r = []
    for k in range(4):
        for p in m[0].parameters():
            p.requires_grad_(k % 2 == 0)
        m.zero_grad()
        c(ramp(2, 3)).sum().backward()
        r += [None if p.grad is None else p.grad.clone() for p in m.parameters()]
    return r


@prog(whole=False)
def optimizer_groups(compiled):
    m = nn.Sequential(linear(3, 3), nn.Tanh(), linear(3, 1))
    opt = torch.optim.SGD(
        [{"params": m[0].parameters(), "lr": 0.1}, {"params": m[2].parameters()}], lr=0.01, momentum=0.9
    )

    def step(x, y):
        opt.zero_grad()
        l = F.mse_loss(m(x), y)
        l.backward()
        opt.step()
        return l.detach()

    c = compiled(step)
    r = []
    for k in range(4):
        r += [c(ramp(4, 3), ramp(4, 1))]
        if k == 1:
            opt.param_groups[0]["lr"] = 0.05
    return r + [p.detach().clone() for p in m.parameters()]


@prog
def lr_scheduler(compiled):
    m = linear(3, 1)
    opt = torch.optim.AdamW(m.parameters(), lr=0.1)
    sch = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 10)
    c = compiled(m)
    r = []
    for _k in range(4):
        opt.zero_grad(set_to_none=True)
        l = (c(ramp(4, 3)) ** 2).mean()
        l.backward()
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        sch.step()
        r += [l.detach(), torch.tensor(sch.get_last_lr()[0])]
    return r


@prog(whole=False)
def compiled_step_scheduler(compiled):
    m = linear(3, 1)
    opt = torch.optim.Adam(m.parameters(), lr=0.1)
    sch = torch.optim.lr_scheduler.LambdaLR(opt, lambda e: 0.9**e)

    def step(x):
        l = (m(x) ** 2).mean()
        l.backward()
        opt.step()
        opt.zero_grad()
        return l

    c = compiled(step)
    r = []
    for _ in range(5):
        r += [c(ramp(4, 3)).detach()]
        sch.step()
    return r


@prog
def enum_and_match(compiled):
    class Act(enum.Enum):
        RELU = "relu"
        TANH = "tanh"

    def f(x, a, opts=None):
        match a:
            case Act.RELU:
                y = x.relu()
            case Act.TANH:
                y = x.tanh()
            case _:
                y = x
        match opts:
            case {"scale": s}:
                y = y * s
            case [first, *rest]:
                y = y + first + len(rest)
            case None:
                pass
        return y

    c = compiled(f)
    return [c(ramp(3), Act.RELU), c(ramp(3), Act.TANH, {"scale": 2}), c(ramp(3), None, [1, 2, 3]), c(ramp(3), Act.RELU)]


@prog
def abstract_and_super(compiled):
    class Base(nn.Module, abc.ABC):
        @abc.abstractmethod
        def core(s, x): ...
        def forward(s, x):
            return s.core(x) + self_bias(s)

    def self_bias(s):
        return getattr(s, "bias", 0)

    class A(Base):
        def __init__(s):
            super().__init__()
            s.bias = nn.Parameter(ramp(3))

        def core(s, x):
            return x * 2

    class B(A):
        def core(s, x):
            return super().core(x) * 3

        def forward(s, x):
            return super().forward(x).relu()

    return [compiled(B())(ramp(3)), compiled(A())(ramp(3))]


@prog
def subclasses_of_layers(compiled):
    """The first thing that a method does is to ask super(), which looks at its frame."""

    class Scaled(nn.Linear):
        def forward(s, x):
            return super().forward(x) * 2

    class Captured(nn.Linear):
        def forward(s, x):
            def bias():
                return s.bias

            return super().forward(x) + bias()

    class Changing(nn.Linear):
        def forward(s, x):
            x, s = s, x
            return super(Changing, x).forward(s).relu()

    layers = [compiled(kind(3, 3)) for kind in (Scaled, Captured, Changing)]
    for layer in layers:
        with torch.no_grad():
            layer.weight.copy_(ramp(3, 3))
            layer.bias.copy_(ramp(3))
    out = [layer(ramp(2, 3)) for _ in range(3) for layer in layers]
    with torch.no_grad():
        layers[0].weight.mul_(2)
    return [*out, layers[0](ramp(2, 3)), layers[1](ramp(4, 3))]


@prog
def data_counts_its_own_writes(compiled):
    """What is written through x.data is in x's memory, and no error for a tape that has kept x."""

    def both(w):
        y = w.exp()
        return y, y.data, w.data, y.detach()

    f, out = compiled(both), []
    for k in range(3):
        w = (ramp(3) + k).requires_grad_()
        y, data, whole, detached = f(w)
        data.mul_(2)
        whole.add_(1)
        out += [y._version, w._version, data._version, data is y, whole is w, w, y]
        y.sum().backward()
        out.append(w.grad)
        y = f(w)
        y[3].zero_()
        out += [y[0], y[0]._version]
    return out


@prog
def buffers_are_replaced(compiled):
    """self.total = self.total + x.sum(): a buffer, or an attribute, is another tensor after each call."""

    class Running(nn.Module):
        def __init__(s):
            super().__init__()
            s.register_buffer("total", torch.zeros(()))
            s.register_buffer("largest", None)
            s.last = torch.zeros(3)

        def forward(s, x):
            s.total = s.total + x.sum()
            s.largest = x.max() if s.largest is None else torch.maximum(s.largest, x.max())
            s.last, before = x * 2, s.last
            return before + s.total * s.last

    m, out = Running(), []
    f = compiled(m)
    for k in range(6):
        out += [f(ramp(3) + k), m.total, m.largest, m.last]
    m.total = torch.ones(())
    m.last = torch.ones(3)
    out += [f(ramp(3)), f(ramp(3)), list(m.state_dict().items()), "last" in m.__dict__]
    m.total = m.total.double()
    out += [f(ramp(3)), f(ramp(3)).dtype]
    m.largest = None
    out += [f(ramp(3)), m.largest, [name for name, _ in m.named_buffers()]]
    return out


@prog
def a_buffer_becomes_nothing(compiled):
    class Cache(nn.Module):
        def __init__(s):
            super().__init__()
            s.register_buffer("kept", torch.zeros(3))
            s.weight = nn.Parameter(ramp(3))

        def forward(s, x):
            if s.kept is None:
                s.kept = x * s.weight.detach()
                return s.kept
            y = s.kept + x
            s.kept = None
            return y + (s.kept is None)

    m = Cache()
    f = compiled(m)
    return [v for k in range(6) for v in (f(ramp(3) + k), m.kept)]


@prog(whole=False)
def wrong_parts(compiled):
    m = nn.Linear(3, 3)
    m.register_buffer("seen", torch.zeros(()))

    def f(x, name, value):
        try:
            setattr(m, name, value)
        except TypeError as e:
            return x, str(e)
        return x + 1

    c = compiled(f)
    return [c(ramp(3), *how) for _ in range(2) for how in (("weight", ramp(3, 3)), ("seen", "text"), ("seen", ramp(1)))]


@prog
def module_containers(compiled):
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.blocks = nn.ModuleList([linear(3, 3) for _ in range(3)])
            s.heads = nn.ModuleDict({"a": linear(3, 2), "b": linear(3, 1)})
            s.ps = nn.ParameterList([nn.Parameter(ramp(3)) for _ in range(2)])
            s.skip = (1,)

        def forward(s, x):
            for i, b in enumerate(s.blocks):
                if i in s.skip:
                    continue
                x = x + b(x)
            for p in s.ps:
                x = x * p
            return {k: h(x) for k, h in s.heads.items()}, len(s.blocks), s.blocks[-1](x), s.heads["a"].weight.shape[0]

    c = compiled(M())
    return [c(ramp(2, 3)), c(ramp(2, 3))]


@prog
def kv_cache(compiled):
    class Cache:
        def __init__(s):
            s.k = []
            s.n = 0

        def update(s, k):
            s.k.append(k)
            s.n += k.shape[0]
            return torch.cat(s.k, 0)

    def f(x, cache):
        k = cache.update(x * 2)
        return (x @ k.t()).softmax(-1) @ k

    c = compiled(f)
    cache = Cache()
    r = [c(ramp(1, 4) + i, cache) for i in range(5)]
    return r + [cache.n]


@prog
def walrus_ternary_chain(compiled):
    def f(x, y=None, *, k=2):
        if (n := x.shape[0]) > 2 and 0 < k < 5:
            x = x[: n - 1]
        z = x if y is None else x + y[: x.shape[0]]
        a, *b = z.unbind(0)
        first, last = z[0], z[-1]
        return a + (b[-1] if b else 0) * (first - last), not b, n if n else None

    c = compiled(f)
    return [c(ramp(4, 2)), c(ramp(4, 2), ramp(4, 2)), c(ramp(2, 2))]


@prog
def string_and_set_ops(compiled):
    def f(x, names):
        keep = {n.lower().strip() for n in names} | {"z"}
        parts = "_".join(sorted(keep)).split("_")
        return (
            x * len(parts),
            "a" in keep,
            parts[0].replace("a", "q"),
            "%d-%s" % (len(keep), parts[-1]),
            parts[-1].encode(),
            "{}:{:>3}".format(x.shape[0], 1),
        )

    c = compiled(f)
    return [c(ramp(3), ["A ", "b"]), c(ramp(3), ["A ", "b"])]


@prog(whole=False)
def lru_cached(compiled):
    @functools.lru_cache(maxsize=None)
    def table(n):
        return tuple(range(n))

    @functools.wraps(F.relu)
    def act(x):
        return F.relu(x)

    def f(x):
        return act(x) * sum(table(x.shape[0]))

    c = compiled(f)
    return [c(ramp(3)), c(ramp(3)), c(ramp(4))]


@prog
def global_state_counter(compiled):
    class Tracker:
        total = 0

        def __call__(s, x):
            s.hits = getattr(s, "hits", 0) + 1
            return x * s.hits

    tr = Tracker()
    c = compiled(lambda x: tr(x) + 1)
    return [c(ramp(2)), c(ramp(2)), c(ramp(2)), tr.hits]


@prog(whole=False)
def checkpointing(compiled):
    from wick.utils.checkpoint import checkpoint

    m = nn.Sequential(linear(3, 4), nn.GELU(), linear(4, 3))

    def f(x):
        return checkpoint(m, x, use_reentrant=False) + x

    c = compiled(f)
    x = ramp(2, 3).requires_grad_()
    y = c(x)
    y.sum().backward()
    y2 = c(x)
    return [y, y2, x.grad]


@prog(whole=False)
def autograd_grad_inside(compiled):
    def f(x):
        x = x.detach().requires_grad_()
        y = (x**3).sum()
        (g,) = torch.autograd.grad(y, x)
        return g

    c = compiled(f)
    return [c(ramp(3)), c(ramp(3))]


@prog(whole=False)
def custom_function(compiled):
    class Sq(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, k):
            ctx.save_for_backward(x)
            ctx.k = k
            return x * x * k

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 2 * x * ctx.k * g * 10, None

    c = compiled(lambda x: Sq.apply(x, 3.0) + 1)
    x = ramp(3).requires_grad_()
    c(x).sum().backward()
    y = c(x)
    return [x.grad, y]


class Scaled(torch.autograd.Function):
    """Its gradient is not that of what forward computes."""

    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        ctx.k = k
        return x * x * k, x > 0

    @staticmethod
    def backward(ctx, g, unused):
        (x,) = ctx.saved_tensors
        return 7 * x * g * ctx.k, None


class Doubled(torch.autograd.Function):
    """In place, and with setup_context."""

    @staticmethod
    def forward(x):
        return x.mul_(2)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_dirty(inputs[0])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, g):
        return g * 5


@prog
def functions_in_a_step(compiled):
    """forward and backward of a Function are part of the graph where both are run in the region."""
    w = nn.Parameter(ramp(3))
    optimizer = torch.optim.Adam([w], lr=0.1)

    def step(x):
        optimizer.zero_grad()
        y, positive = Scaled.apply(w * x, 2)
        loss = (Doubled.apply(y * w) * positive + w).sum()
        loss.backward()
        optimizer.step()
        return loss.detach(), positive

    f = compiled(step)
    return [v for k in range(5) for v in (*f(ramp(3) + k), w, w.grad)]


@prog
def functions_without_gradients(compiled):
    def f(x):
        y, positive = Scaled.apply(x, 3)
        return Doubled.apply(y + 1), positive, y.requires_grad

    c, out = compiled(f), []
    for k in range(3):
        out += c(ramp(3) + k)
    with torch.no_grad():
        out += c(ramp(3).requires_grad_())
    return out


@prog(whole=False)
def functions_whose_history_goes_outside(compiled):
    def mixed(x):
        y, positive = Scaled.apply(x, 3)
        return (y * x + 1) * positive  # x has a way round the Function, too

    def partly(x, w):
        y, _ = Scaled.apply(w, 2)
        y.sum().backward()
        z, _ = Scaled.apply(x.exp(), 3)
        return Doubled.apply(z * 1)

    c, d, out = compiled(mixed), compiled(partly), []
    w = nn.Parameter(ramp(3))
    for k in range(5):
        x = (ramp(3) + k).requires_grad_()
        y = c(x)
        y.sum().backward()
        z = d(x, w)
        (z * z).sum().backward()
        out += [y, x.grad, z, w.grad]
    return out


@prog(whole=False)
def a_function_that_looks_at_values(compiled):
    kept = []

    class Loud(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.largest = x.max().item()
            kept.append(ctx)
            return x / ctx.largest

        @staticmethod
        def backward(ctx, g):
            return g * ctx.largest

    c, out = compiled(lambda x: Loud.apply(x * 2) + 1), []
    for k in range(4):
        x = (ramp(3) + k + 1).requires_grad_()
        y = c(x)
        y.sum().backward()
        out += [y, x.grad, kept[-1].largest, len(kept)]
    return out


@prog
def weight_tying_and_loops(compiled):
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.e = nn.Embedding(5, 4)
            s.o = nn.Linear(4, 5, bias=False)
            with torch.no_grad():
                s.e.weight.copy_(ramp(5, 4) / 5)
            s.o.weight = s.e.weight

        def forward(s, ids, steps=3):
            h = s.e(ids)
            n = 0
            while n < steps:
                h = torch.tanh(h) + h
                n += 1
            else:
                h = h * 1.0
            return s.o(h)

    m = M()
    c = compiled(m)
    y = c(torch.tensor([1, 2]))
    y.sum().backward()
    return [y, c(torch.tensor([1, 2]), steps=1), m.e.weight.grad]


@prog
def callable_object_and_slots(compiled):
    class V:
        __slots__ = ("x", "w")

        def __init__(s, x, w=None):
            s.x = x
            s.w = w

        def __add__(s, o):
            return V(s.x + o.x, s.w)

        def __len__(s):
            return s.x.shape[0]

        def __getitem__(s, i):
            return s.x[i]

        def __iter__(s):
            return iter([s.x, s.x + 1])

        def __eq__(s, o):
            return s.w == o.w

        def __bool__(s):
            return True

        def __contains__(s, k):
            return k == s.w

    def f(x):
        a = V(x, 1) + V(x * 2, 2)
        p, q = a
        return p * q * len(a) + a[0], a == V(x, 1), 1 in a, bool(a)

    c = compiled(f)
    return [c(ramp(3)), c(ramp(3))]


@prog
def state_dict_reload(compiled):
    m = linear(3, 2)
    c = compiled(m)
    a = c(ramp(2, 3))
    sd = {k: v * 2 for k, v in m.state_dict().items()}
    m.load_state_dict(sd)
    b = c(ramp(2, 3))
    keys = sorted(c.state_dict())
    m.weight = nn.Parameter(ramp(2, 3))
    d = c(ramp(2, 3))
    m.bias = None
    e = c(ramp(2, 3))
    return [a, b, d, e, keys]


@prog
def device_dtype_args(compiled):
    def f(x, device=None, dtype=None):
        device = device or x.device
        dtype = dtype if dtype is not None else x.dtype
        y = torch.zeros(x.shape, device=device, dtype=dtype) + torch.ones_like(x, dtype=dtype)
        return (
            y,
            y.dtype,
            y.device.type == "cpu",
            torch.finfo(x.dtype).eps,
            str(x.device),
            x.is_cuda,
            dtype.is_floating_point,
        )

    c = compiled(f)
    return [
        c(ramp(2)),
        c(ramp(2), dtype=torch.float64),
        c(ramp(2), device=torch.device("cpu")),
        c(ramp(2), device="cpu"),
    ]


def same(a, b):
    """Types, shapes and values to the last bit, in nests of containers."""
    if isinstance(a, torch.Tensor):
        return type(a) is type(b) and (a.dtype, a.shape, a.tolist()) == (b.dtype, b.shape, b.tolist())
    if isinstance(a, dict):
        return type(a) is type(b) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a).__name__ == type(b).__name__ and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


@pytest.mark.parametrize(("program", "whole"), PROGRAMS)
def test_programs(program, whole):
    def broken(function):
        return torch.compile(function)

    def in_one_piece(function):
        return torch.compile(function, fullgraph=True)

    plain = program(lambda function: function)
    for compiled in (broken, in_one_piece) if whole else (broken,):
        assert same(plain, program(compiled)), compiled.__name__
