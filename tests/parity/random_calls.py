"""Random calls of every operator of the table, with PyTorch and with wick: values, dtypes, sizes, strides, which memory is
shared, what was written, gradients, errors.

    python tests/parity/random_calls.py --count 500             all rows, with a seed that is printed
    python tests/parity/random_calls.py --only add,sum --seed 7
    python tests/parity/random_calls.py --report found.txt      every difference with the call that shows it

A call begins as one of the row's samples. Some of these things are then done to it: other dtypes, another layout of a
tensor's memory, another size wherever that size occurs (0 among them), a tensor that does not fit, another number, an
argument left out, a wrong type. What both refuse counts as equal when the error's type is; `--texts` compares the first
line as well. Operators are tried in other processes, so that a crash is a finding like any other.

The differences that are meant are in random_calls.txt: operator, kind of difference, reason."""

import argparse
import collections
import concurrent.futures
import copy
import itertools
import json
import math
import pathlib
import random
import subprocess
import sys
import warnings

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "ops"), str(HERE.parent.parent / "tools")]
from sampling import ROWS, Numbers, ascending, count  # noqa: E402

FLOATS = ("float64", "float32", "float16", "bfloat16")
DTYPES = (*FLOATS, "int64", "int32", "uint8", "bool")
LAYOUTS = ("plain", "reversed", "step", "offset", "expanded", "channels_last")
TOLERANCE = {"float64": 1e-9, "float32": 1e-4, "float16": 4e-3, "bfloat16": 3e-2}

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


def make(torch, drawn, dtype, numbers):
    flat = torch.tensor(values_of(drawn, numbers), dtype=torch.float64).reshape(tuple(drawn.shape))
    x = laid_out(torch, flat.to(getattr(torch, drawn.dtype or dtype)), drawn.layout)
    for name, args in drawn.then:
        x = getattr(x, name)(*args)
    return x.detach().requires_grad_() if drawn.requires_grad else x


def arguments(torch, call):
    """(args, kwargs, tensors among them)."""
    numbers, made = Numbers(), []

    def build(value):
        if isinstance(value, (list, tuple)):
            return type(value)(build(v) for v in value)
        if isinstance(value, Named):
            return getattr(torch, value.name)
        if not isinstance(value, Drawn):
            return value
        made.append(make(torch, value, call.dtype, numbers))
        return made[-1]

    args = [build(a) for a in call.args]
    return args, {k: build(v) for k, v in call.kwargs.items()}, made


def tensors_in(value):
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item)


def numbers_in(t):
    return (t.detach().double() + 0).flatten().tolist()  # a gradient that PyTorch has no memory for gets some


def shared(t, inputs):
    """Which inputs' memory it lies in, and at which offset."""
    return [(i, t.storage_offset()) for i, x in enumerate(inputs) if
            t.numel() and x.untyped_storage().data_ptr() == t.untyped_storage().data_ptr()]  # fmt: skip


def gradients(torch, results, inputs):
    """Of the sum of results with weights 1, 2, ...; None where nothing flows."""
    total = None
    for t in results:
        if t.requires_grad:
            weights = (torch.arange(t.numel(), dtype=torch.float64) % 7 + 1).reshape(t.shape).to(t.dtype)
            part = (t * weights).sum()
            total = part if total is None else total + part.to(total.dtype)
    if total is None:
        return None
    leaves = [x for x in inputs if x.requires_grad]
    found = torch.autograd.grad(total, leaves, allow_unused=True)
    return [None if g is None else (tuple(g.shape), str(g.dtype).split(".")[-1], numbers_in(g)) for g in found]


def outcome(torch, function, call, random_values):
    """What the call gives, in plain data; {"error": ...} when it fails."""
    torch.manual_seed(3)
    try:
        args, kwargs, inputs = arguments(torch, call)
        result = function(*args, **kwargs)
    except Exception as error:  # noqa: BLE001  compared by the caller
        return {"error": type(error).__name__, "text": str(error).splitlines()[0] if str(error) else ""}
    results = list(tensors_in(result))
    found = {
        "count": len(results),
        "shape": [tuple(t.shape) for t in results],
        "dtype": [str(t.dtype).split(".")[-1] for t in results],
        "strides": [t.stride() if t.numel() > 1 else None for t in results],
        "shared": [shared(t, inputs) for t in results],
        "requires_grad": [t.requires_grad for t in results],
        "inputs": [numbers_in(t) for t in inputs],
    }
    if not random_values:
        found["values"] = [numbers_in(t) for t in results]
        if not results:
            found["plain"] = repr(result)
        try:
            found["gradients"] = gradients(torch, results, inputs)
        except Exception as error:  # noqa: BLE001
            found["gradients"] = type(error).__name__
    return found


# ---- comparing ----


def close(a, b, tolerance):
    if len(a) != len(b):
        return False
    for x, y in zip(a, b, strict=True):
        if x != y and not (x != x and y != y) and not abs(x - y) <= tolerance * max(1.0, abs(y)):
            return False
    return True


def gradients_differ(ours, theirs, dtypes):
    if ours is None or theirs is None or isinstance(ours, str) or isinstance(theirs, str):
        return ours != theirs
    tolerance = 4 * max(
        [TOLERANCE.get(d, 0) for d in dtypes] + [TOLERANCE.get(g[1], 0) for g in theirs if g], default=0
    )
    for o, t in zip(ours, theirs, strict=True):
        if (o is None) != (t is None):
            if any((o or t)[2]):  # zeros and None mean the same to whoever adds them up
                return True
        elif o and (o[:2] != t[:2] or not close(o[2], t[2], tolerance)):
            return True
    return False


def difference(ours, theirs, public, texts):
    """The first kind of difference, or None."""
    if "error" in ours or "error" in theirs:
        if not public and ours.get("error") != "IndexError":
            return None  # its callers do not pass what it refuses
        if "error" not in theirs:
            return "we refuse"
        if "error" not in ours:
            return "we accept"
        if ours["error"] != theirs["error"] and public:
            return "error type"
        return "error text" if texts and ours["text"] != theirs["text"] else None
    for key in ("count", "shape", "dtype", "strides", "shared", "requires_grad", "plain"):
        if ours.get(key) != theirs.get(key):
            return key
    worst = max([TOLERANCE.get(d, 0) for d in theirs["dtype"]], default=0)
    for key in ("inputs", "values"):
        for o, t in zip(ours.get(key, ()), theirs.get(key, ()), strict=True):
            if not close(o, t, worst):
                return key
    dtypes = theirs["dtype"]
    return "gradients" if gradients_differ(ours.get("gradients"), theirs.get("gradients"), dtypes) else None


def functions(name):
    """(wick's, PyTorch's, whether programs call them) for the operator; None when PyTorch has none of that name.

    What no program calls by name is compared with PyTorch's function below Python, which has other errors for wrong types."""
    import torch
    from record_operators import OWN, oracle

    import wick

    base, forms = ROWS[name].schema.name.partition(".")[0], ROWS[name].forms
    if name in OWN:
        return None
    for form, places in (("function", (wick, torch)), ("method", (wick.Tensor, torch.Tensor))):
        if form in forms and all(hasattr(place, base) for place in places):
            return getattr(places[0], base), getattr(places[1], base), True
    try:
        return wick._C._operator(name), oracle(name), False
    except AttributeError:
        return None


def try_operator(name, seed, number, texts):
    """Prints each difference as a line of JSON: [kind, call, ours, theirs]."""
    import torch

    import wick

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found, samples = functions(name), ROWS[name].samples
    if found is None or not samples:
        return
    ours_fn, theirs_fn, public = found
    for index in range(number):
        call = random_call(random.Random(f"{seed} {name} {index}"), samples)
        print(json.dumps(["at", repr(call)]), flush=True)
        random_values = "random" in ROWS[name].flags
        ours = outcome(wick, ours_fn, copy.deepcopy(call), random_values)
        theirs = outcome(torch, theirs_fn, copy.deepcopy(call), random_values)
        kind = difference(ours, theirs, public, texts)
        if kind:
            shown = [
                {k: v for k, v in side.items() if k in (kind, "error", "text", "dtype")} for side in (ours, theirs)
            ]
            print(json.dumps([kind, repr(call), *shown], default=str), flush=True)


def in_process(names, options):
    """[(operator, its differences, calls tried)]; behind a crash another process goes on with the next operator."""
    command = [
        sys.executable,
        __file__,
        "--one",
        ",".join(names),
        "--seed",
        str(options.seed),
        "--count",
        str(options.count),
    ]
    done = subprocess.run(command + ["--texts"] * options.texts, capture_output=True, text=True)
    results, last = [], None
    for line in done.stdout.splitlines():
        kind, *rest = json.loads(line)
        if kind == "operator":
            results.append([rest[0], [], 0])
        elif kind == "at":
            last = rest[0]
            results[-1][2] += 1
        else:
            results[-1][1].append([kind, *rest])
    if done.returncode and results:
        results[-1][1].append(["crash", last, {"error": done.returncode}, {"text": done.stderr[-300:]}])
        return results + (in_process(names[len(results) :], options) if names[len(results) :] else [])
    return results


def meant():
    """{(operator, kind): reason}; an operator may be *."""
    lines = [line for line in (HERE / "random_calls.txt").read_text().splitlines() if line and line[0] != "#"]
    return {tuple(line.split(None, 2)[:2]): line.split(None, 2)[2] for line in lines}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100, help="calls of each operator")
    parser.add_argument("--seed", default=None)
    parser.add_argument("--only", default="", help="operators, with commas between")
    parser.add_argument("--report", help="a file for every difference")
    parser.add_argument("--jobs", type=int, default=1, help="operators at a time")
    parser.add_argument("--texts", action="store_true", help="compare the errors' first lines")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.seed = options.seed or random.randrange(10**9)
    if options.one:
        for name in options.one.split(","):
            print(json.dumps(["operator", name]), flush=True)
            try_operator(name, options.seed, options.count, options.texts)
        return 0
    names = options.only.split(",") if options.only else sorted(ROWS)
    kinds, calls, known = collections.Counter(), 0, meant()
    report = open(options.report, "w") if options.report else None
    print(f"seed {options.seed}")
    pool = concurrent.futures.ThreadPoolExecutor(options.jobs)
    parts = [names[k : k + 25] for k in range(0, len(names), 25)]
    for name, found, tried in itertools.chain.from_iterable(pool.map(lambda part: in_process(part, options), parts)):
        calls += tried
        new = [
            f
            for f in found
            if (name, f[0].replace(" ", "_")) not in known and ("*", f[0].replace(" ", "_")) not in known
        ]
        for kind, call, ours, theirs in new:
            kinds[kind] += 1
            if report:
                print(f"{name} | {kind} | {call}\n    wick  {ours}\n    torch {theirs}", file=report, flush=True)
        if new:
            print(f"{name}: {dict(collections.Counter(f[0] for f in new))}; {new[0][1]}", flush=True)
    print(f"{calls} calls of {len(names)} operators, {sum(kinds.values())} differences: {dict(kinds)}")
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
