"""Calls that no library has seen yet: what a sample of the operator table says, what is done to it at random, and the
tensors that are made of it, on any device (random_calls.py makes the calls)."""

import math

from sampling import Numbers, ascending, count

FLOATS = ("float64", "float32", "float16", "bfloat16")
DTYPES = (*FLOATS, "int64", "int32", "uint8", "bool")
LAYOUTS = ("plain", "reversed", "step", "offset", "expanded", "channels_last")

# ---- calls: what a sample's text says, before any library has seen it ----


class Drawn:
    """A tensor that is not made yet."""

    def __init__(self, kind, shape, high=0):
        self.kind, self.shape, self.high = kind, list(shape), high
        self.dtype = {"I": "int64", "B": "bool"}.get(kind)  # None: the call's float dtype
        self.layout, self.requires_grad = "plain", False
        self.then = []  # what the sample does to it: (name of the method, arguments)

    def _after(self, name, *args):
        self.then.append((name, args))
        return self

    def __sub__(self, other):
        return self._after("sub", other)

    def __rsub__(self, other):
        return self._after("neg")._after("add", other)

    def __add__(self, other):
        return self._after("add", other)

    def __mul__(self, other):
        return self._after("mul", other)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args: self._after(name, *args)

    def __repr__(self):
        then = "".join(f".{name}{args}" for name, args in self.then)
        layout = f".{self.layout}" * (self.layout != "plain")
        return f"{self.kind}{tuple(self.shape)}.{self.dtype or 'float'}{layout}{then}"


class Named:
    """torch.<name>: a dtype."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return self.name


class Call:
    """Positional and keyword arguments of one call, and the dtype of tensors that name none."""

    def __init__(self, sample):
        names = {k: (lambda *shape, kind=k: Drawn(kind, shape)) for k in "TPUSB"}
        names["I"] = lambda high, *shape: Drawn("I", shape, high)
        names |= {name: Named(name) for name in DTYPES}
        self.args, self.kwargs = eval(f"(lambda *a, **k: (list(a), k))({sample})", names)
        self.dtype = "float32"

    def tensors(self):
        """All tensors, those in lists too."""
        for value in [*self.args, *self.kwargs.values()]:
            for item in value if isinstance(value, (list, tuple)) else [value]:
                if isinstance(item, Drawn):
                    yield item

    def __repr__(self):
        shown = [repr(a) for a in self.args] + [f"{k}={v!r}" for k, v in self.kwargs.items()]
        return f"({', '.join(shown)}) of {self.dtype}"


# ---- what is done to a call ----


def other_dtypes(r, call):
    call.dtype = r.choice(FLOATS if r.random() < 0.6 else DTYPES)


def one_dtype(r, call):
    tensors = list(call.tensors())
    if tensors:
        r.choice(tensors).dtype = r.choice(DTYPES)


def layout(r, call):
    for t in call.tensors():
        if r.random() < 0.7:
            t.layout = r.choice(LAYOUTS)


def size_everywhere(r, call):
    sizes = sorted({size for t in call.tensors() for size in t.shape})
    if sizes:
        old, new = r.choice(sizes), r.choice((0, 1, 2, 3, 5, 17))
        for t in call.tensors():
            t.shape = [new if size == old else size for size in t.shape]


def one_shape(r, call):
    tensors = list(call.tensors())
    if not tensors:
        return
    t, way = r.choice(tensors), r.randrange(4)
    if way == 0 and t.shape:
        t.shape[r.randrange(len(t.shape))] = r.choice((0, 1, 2, 4))
    elif way == 1:
        t.shape.insert(0, r.choice((1, 2)))
    elif way == 2 and t.shape:
        t.shape.pop(r.randrange(len(t.shape)))
    else:
        t.shape = []


def is_number(value):
    return isinstance(value, (bool, int, float))


def other_number(r, value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return r.choice((-1, 0, 1, 2, -2, 3, 7, -100, value + 1, value - 1))
    return r.choice((0.0, -0.5, 1.0, 2.5, -1e-3, math.inf, -math.inf, math.nan, 1e30))


def one_number(r, call):
    places = [(call.args, i) for i, a in enumerate(call.args) if is_number(a)]
    places += [(call.kwargs, k) for k, a in call.kwargs.items() if is_number(a)]
    for value in [*call.args, *call.kwargs.values()]:
        if isinstance(value, list):
            places += [(value, i) for i, a in enumerate(value) if is_number(a)]
    if places:
        container, key = r.choice(places)
        container[key] = other_number(r, container[key])


def leave_out(r, call):
    if call.kwargs and r.random() < 0.6:
        del call.kwargs[r.choice(sorted(call.kwargs))]
    elif len(call.args) > 1:
        call.args.pop()


def wrong_type(r, call):
    wrong = r.choice((None, "x", 1.5, [1, 2], True, -1))
    if call.kwargs and r.random() < 0.4:
        call.kwargs[r.choice(sorted(call.kwargs))] = wrong
    elif call.args:
        call.args[r.randrange(len(call.args))] = wrong


CHANGES = (other_dtypes, one_dtype, layout, layout, size_everywhere, size_everywhere, one_shape, one_number, one_number,
           leave_out, wrong_type)  # fmt: skip


def random_call(r, samples):
    """A changed sample, with gradients asked of its floats half of the time."""
    call = Call(r.choice(samples))
    for _ in range(r.choice((0, 1, 1, 2, 2, 3))):
        r.choice(CHANGES)(r, call)
    if r.random() < 0.5:
        for t in call.tensors():
            t.requires_grad = (t.dtype or call.dtype) in FLOATS
    return call


# ---- running it ----


def values_of(drawn, numbers):
    if drawn.kind == "S":
        return ascending(drawn.shape, numbers)
    draw = {"T": lambda u: 4 * u - 2, "P": lambda u: 0.5 + 1.5 * u, "U": lambda u: 0.1 + 0.8 * u}.get(drawn.kind)
    if drawn.kind == "I":
        draw = lambda u: float(int(u * drawn.high))  # noqa: E731
    elif drawn.kind == "B":
        draw = lambda u: float(u < 0.5)  # noqa: E731
    return [draw(numbers.unit()) for _ in range(count(drawn.shape))]


def laid_out(torch, x, layout):
    """The same values in memory of that layout."""
    n = x.dim()
    if layout == "reversed" and n > 1:
        dims = list(range(n))[::-1]
        return x.permute(dims).contiguous().permute(dims)
    if layout == "step" and n:
        return torch.stack([x, torch.zeros_like(x)], n).flatten(n - 1)[..., ::2]
    if layout == "offset" and n:
        return torch.cat([x[:1], x])[x.size(0) and 1 :]
    if layout == "expanded" and n and x.size(0):
        return x[:1].expand(x.shape)
    if layout == "channels_last" and n == 4:
        return x.contiguous(memory_format=torch.channels_last)
    return x


def make(torch, drawn, dtype, numbers, device):
    flat = torch.tensor(values_of(drawn, numbers), dtype=torch.float64).reshape(tuple(drawn.shape))
    x = laid_out(torch, flat.to(getattr(torch, drawn.dtype or dtype)).to(device), drawn.layout)
    for name, args in drawn.then:
        x = getattr(x, name)(*args)
    return x.detach().requires_grad_() if drawn.requires_grad else x


def arguments(torch, call, device="cpu"):
    """(args, kwargs, tensors among them), all on the device."""
    numbers, made = Numbers(), []

    def build(value):
        if isinstance(value, (list, tuple)):
            return type(value)(build(v) for v in value)
        if isinstance(value, Named):
            return getattr(torch, value.name)
        if not isinstance(value, Drawn):
            return value
        made.append(make(torch, value, call.dtype, numbers, device))
        return made[-1]

    args = [build(a) for a in call.args]
    return args, {k: build(v) for k, v in call.kwargs.items()}, made
