"""Runs a function plain and captured, and says everything that a program could see of either.

A corpus file collects its functions with `@case`. Parameters name what is given to them (see `ARGUMENTS`), again for each
of three sets of inputs: the second has other tensor values, the third other sizes, numbers and lengths. What the two
runs are compared by is a description, a nest of tuples: values bit for bit, which objects and memories are the same,
types, gradients, output, exceptions with their lines, modes and the random stream behind the call."""

# ruff: noqa: E741

import collections
import contextlib
import dataclasses
import enum
import functools
import gc
import io
import sys
import types

import wick
from wick import nn
from wick._C import Compiled

CALLS = 3  # of a set: captured, replayed, replayed on what the second left


def runs_with_ends(function, makers, log, kept):
    """Of a call with what each maker gives: the result, what has been logged, its own end included, and how many items
    were left."""
    seen = []
    for k, make in enumerate(makers):
        log.clear()
        o = make()
        result = function(wick.ones(2) + k, o).tolist()
        left = len(o) if hasattr(o, "__len__") else None
        del o
        gc.collect()
        seen.append((result, list(log), left))
    kept.clear()
    return seen


@wick.compiler.disable
def loud(*args, **kwargs):
    """print() as a break."""
    print(*args, **kwargs)


class Box:
    """An object with attributes, for functions to change."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)
        self.register_buffer("seen", wick.zeros(()))
        self.scale = 2.0

    def forward(self, x):
        return self.second(wick.relu(self.first(x))) * self.scale


def numbers(turn, *shape, salt=0):
    """Numbers between -2 and 2 that no other tensor has."""
    count = 1
    for size in shape:
        count *= size
    steps = wick.arange(count, dtype=wick.float32) + 1 + 7 * salt + 3 * turn
    return (steps * 0.6180339 % 1 * 4 - 2).reshape(shape).contiguous()


def rows(turn):
    return 5 if turn == 2 else 3


def module_of(turn):
    net = Net()
    with wick.no_grad():
        for i, p in enumerate(net.parameters()):
            p.copy_(numbers(turn, *p.shape, salt=i + 20))
    return net


ARGUMENTS = {
    "x": lambda k: numbers(k, rows(k), 4),
    "y": lambda k: numbers(k, rows(k), 4, salt=1),
    "z": lambda k: numbers(k, rows(k), 4, salt=2),
    "v": lambda k: numbers(k, 4, salt=3),
    "u": lambda k: numbers(k, rows(k), salt=4),
    "s": lambda k: numbers(k, salt=5),
    "q": lambda k: numbers(k, 4, 4, salt=6),
    "w": lambda k: numbers(k, 4, 4, salt=7).requires_grad_(),
    "g": lambda k: numbers(k, rows(k), 4, salt=8).requires_grad_(),
    "p": lambda k: nn.Parameter(numbers(k, 4, salt=9)),
    "i": lambda k: (wick.arange(rows(k)) * 2 + k) % 3,
    "m": lambda k: module_of(k),
    "b": lambda k: numbers(k, rows(k), 4, salt=10) > 0,
    "n": lambda k: 2 if k < 2 else 3,
    "a": lambda k: 0.5 if k < 2 else -1.25,
    "t": lambda k: "relu" if k < 2 else "tanh",
    "flag": lambda k: k < 2,
    "l": lambda k: [1, 2, 3] if k < 2 else [4, 5],
    "ts": lambda k: [numbers(k, rows(k), 4, salt=11 + j) for j in range(2 if k < 2 else 3)],
    "d": lambda k: {"one": numbers(k, 4, salt=14), "two": 2 if k < 2 else 5},
    "o": lambda k: Box(value=numbers(k, 4, salt=15), count=k // 2, items=[1], child=Box(rate=0.5)),
    "c": lambda k: None,
}


@dataclasses.dataclass
class Case:
    function: object  # or what makes it
    captures: int
    breaks: int
    unkept: int
    makes: bool  # `function` makes the function that is tested, with its own closure, defaults and attributes
    inputs: object  # turn -> arguments; None: by the names of the parameters
    grads: bool  # what comes out is differentiated, too
    again: bool  # capture nothing more for other tensor values
    counts: bool  # reference counts are compared
    raises: bool  # it raises on some inputs
    xfail: str

    @property
    def name(self):
        return self.function.__name__

    def make(self):
        return self.function() if self.makes else self.function

    def arguments(self, turn):
        if self.inputs:
            return tuple(self.inputs(turn))
        code = self.make().__code__
        return tuple(ARGUMENTS[name](turn) for name in code.co_varnames[: code.co_argcount])


class Corpus(list):
    """The cases of one file."""

    def __call__(
        self,
        function=None,
        *,
        captures=1,
        breaks=0,
        unkept=0,
        makes=False,
        inputs=None,
        grads=True,
        again=True,
        counts=True,
        raises=False,
        xfail="",
    ):
        if function is None:
            return functools.partial(
                self.__call__,
                captures=captures,
                breaks=breaks,
                unkept=unkept,
                makes=makes,
                inputs=inputs,
                grads=grads,
                again=again,
                counts=counts,
                raises=raises,
                xfail=xfail,
            )
        again = again and not breaks and not unkept
        self.append(Case(function, captures, breaks, unkept, makes, inputs, grads, again, counts, raises, xfail))
        return function


# ==== describing ====


class Description:
    """Turns objects into tuples; one of them for all that has to be told apart or found to be the same."""

    def __init__(self):
        self.known = {}
        self.kept = []
        self.memories = {}

    def of(self, value):
        if value is None or isinstance(value, (bool, int, str, bytes, type(Ellipsis), complex)):
            return value if not isinstance(value, enum.Enum) else (type(value).__name__, value.name)
        if isinstance(value, float):
            return type(value).__name__, value.hex()
        if isinstance(value, (wick.dtype, wick.device, range, types.ModuleType, types.CodeType)):
            return repr(value)
        if isinstance(value, type):
            return "type", value.__qualname__
        if id(value) in self.known:
            return "again", self.known[id(value)]
        number = self.known[id(value)] = len(self.known)
        self.kept.append(value)
        return (number, type(value).__qualname__, *self.parts(value))

    def parts(self, value):
        if isinstance(value, wick.Tensor):
            return self.tensor(value)
        if isinstance(value, nn.Module):
            return tuple((k, self.of(v)) for k, v in value.__dict__.items())
        if isinstance(value, (list, tuple, collections.deque)):
            return tuple(map(self.of, value))
        if isinstance(value, dict):
            return tuple((self.of(k), self.of(v)) for k, v in value.items())
        if isinstance(value, (set, frozenset)):
            plain = all(isinstance(v, (int, float, str, tuple, type(None))) for v in value)
            return tuple(sorted(map(repr, value)) if plain else map(self.of, value))
        if isinstance(value, slice):
            return self.of(value.start), self.of(value.stop), self.of(value.step)
        if isinstance(value, types.FunctionType):
            cells = [self.of(cell) for cell in value.__closure__ or ()]
            return value.__qualname__, tuple(cells), self.of(value.__defaults__), self.of(value.__kwdefaults__)
        if isinstance(value, types.CellType):
            try:
                return (self.of(value.cell_contents),)
            except ValueError:
                return ("empty",)
        if isinstance(value, types.MethodType):
            return self.of(value.__func__), self.of(value.__self__)
        if isinstance(value, functools.partial):
            return self.of(value.func), self.of(value.args), self.of(value.keywords)
        if isinstance(value, BaseException):
            return (self.exception(value),)
        if isinstance(value, collections.abc.Iterator):
            return tuple(map(self.of, value))
        slots = [name for t in type(value).__mro__ for name in vars(t).get("__slots__", ())]
        state = [(name, self.of(getattr(value, name, "unset"))) for name in slots]
        return (*state, *((k, self.of(v)) for k, v in getattr(value, "__dict__", {}).items()))

    def tensor(self, t):
        memory = self.memories.setdefault(t.untyped_storage().data_ptr(), len(self.memories)) if t.numel() else "empty"
        node = type(t.grad_fn).__name__ if t.grad_fn is not None else None
        gradient = self.of(t.grad) if t.is_leaf and t.grad is not None else None
        plain = t.detach().contiguous()
        bits = plain.numpy().tobytes() if plain.dtype != wick.bfloat16 else plain.float().numpy().tobytes()
        facts = (str(t.dtype), tuple(t.shape), t.stride(), t.storage_offset(), t.requires_grad, node, memory, gradient)
        return (*facts, bits if len(bits) <= 64 else (bits[:16], hash(bits)), self.of(t.__dict__ or None))

    def exception(self, e):
        entry, lines = e.__traceback__, []
        while entry:
            lines.append((entry.tb_frame.f_code.co_name, entry.tb_lineno))
            entry = entry.tb_next
        lines = tuple(line for line in lines if line[0] not in ("call_once", "evaluated"))
        cause = e.__cause__ and self.exception(e.__cause__)
        context = e.__context__ and self.exception(e.__context__)
        return type(e).__qualname__, str(e), self.of(e.args), lines, cause, context, e.__suppress_context__


def tensors_in(value, depth=0):
    if isinstance(value, wick.Tensor):
        yield value
    elif isinstance(value, (list, tuple)) and depth < 9:
        for item in value:
            yield from tensors_in(item, depth + 1)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()), depth + 1)
    elif isinstance(value, nn.Module):
        yield from value.parameters()
    elif isinstance(value, Box):
        yield from tensors_in(list(value.__dict__.values()), depth + 1)


def gradients(arguments, result):
    """Of what came out, for the leaves that went in."""
    ends = [t for t in tensors_in(result) if t.requires_grad and t.grad_fn is not None]
    leaves = [t for t in tensors_in(list(arguments)) if t.requires_grad and t.is_leaf]
    if not ends or not leaves:
        return None
    try:
        return wick.autograd.grad([t.sum() for t in ends], leaves, allow_unused=True)
    except RuntimeError as e:  # the function has run the tape itself
        return str(e)


def call_once(function, arguments, state, grads=True):
    output = io.StringIO()
    result = error = None
    with contextlib.redirect_stdout(output):
        try:
            result = function(*arguments)
        except BaseException as e:
            error = e
    said = Description()
    described = [said.of(v) for v in (result, error, list(arguments), state)]
    modes = wick.is_grad_enabled(), wick.is_inference_mode_enabled(), str(wick.get_default_dtype())
    wick.set_grad_enabled(True)
    slopes = [Description().of(gradients(arguments, result))] if grads else []
    error = None
    return [*described, output.getvalue(), modes, *slopes, wick.rand(2).tolist()]


def reset(state):
    wick.set_grad_enabled(True)
    wick.set_default_dtype(wick.float32)
    wick.manual_seed(7)
    if hasattr(state, "reset"):
        state.reset()


def run_turn(case, function, turn, state):
    """Three calls: with new arguments, with new ones, with those again."""
    out, arguments = [], None
    for call in range(CALLS):
        if call < 2:
            arguments = case.arguments(turn)
        out.append(call_once(function, arguments, getattr(state, "G", None), case.grads))
    return out


def counted(values):
    """Objects whose reference counts must come back."""
    return [v for v in values if isinstance(v, (wick.Tensor, list, dict, Box, nn.Module))]


def check_counts(case, state):
    """Everything that a compiled function held is free again when it is gone."""
    reset(state)
    arguments = case.arguments(0)
    watched = counted(arguments)
    function = case.make()

    def after(callable_):
        before = [sys.getrefcount(v) for v in watched]
        for _ in range(2):
            with contextlib.redirect_stdout(io.StringIO()):
                try:
                    callable_(*arguments)
                except Exception:
                    pass
        return before

    compiled = Compiled(function)
    before = after(compiled)
    compiled.reset()
    del compiled
    reset(state)
    gc.collect()
    captured = [sys.getrefcount(v) - b for v, b in zip(watched, before, strict=True)]
    arguments = case.arguments(0)
    watched = counted(arguments)
    function = case.make()
    before = after(function)
    reset(state)
    gc.collect()
    plain = [sys.getrefcount(v) - b for v, b in zip(watched, before, strict=True)]
    assert captured == plain, "references are left"


AHEAD = "CompiledFunctionBackward"  # the one tape node of a graph whose backward was compiled ahead of time


def same(plain, captured):
    """Equal, but for the names of tape nodes that have become one."""
    if isinstance(plain, (tuple, list)) and isinstance(captured, (tuple, list)):
        return len(plain) == len(captured) and all(map(same, plain, captured))
    named = isinstance(plain, str) and (plain[:-1].endswith("Backward") or plain in ("CopySlices", "CopyBackwards"))
    return captured == plain or (named and captured == AHEAD)


def compare(plain, captured, what):
    names = ("result", "exception", "arguments", "globals", "output", "modes", "gradients", "random")
    if len(plain) < len(names):
        names = (*names[:6], "random")
    for name, p, c in zip(names, plain, captured, strict=True):
        assert same(p, c), f"{what}: {name} differ\n  plain    {p}\n  captured {c}"


def check(case, state=None):
    """The whole comparison of a case; `state` is the module whose `G` and `reset` stand for globals."""
    reset(state)
    function = case.make()
    plain = [run_turn(case, function, turn, state) for turn in range(3)]
    raised = [call[1] for turn in plain for call in turn if call[1] is not None]
    assert bool(raised) == case.raises, f"plain raised {raised[:1]}"
    reset(state)
    compiled = Compiled(case.make())
    for turn in range(3):
        captured = run_turn(case, compiled, turn, state)
        for call in range(CALLS):
            compare(plain[turn][call], captured[call], f"turn {turn}, call {call}")
        if turn == 0:
            stated = case.captures, case.breaks, case.unkept
            found = compiled.captures, compiled.breaks, compiled.unkept
            reasons = [(s["end"], s["reason"], s["line"]) for s in compiled.report()]
            assert found == stated, f"captures, breaks, unkept are {found}, stated {stated}: {reasons}"
        if turn == 1 and case.again:
            assert compiled.captures == case.captures, "captured again for other values"
    reset(state)


def check_switching(case, state, evaluate):
    """Left to CPython after any number of instructions."""
    reset(state)
    plain = call_once(case.make(), case.arguments(0), getattr(state, "G", None), case.grads)

    def once(after):
        reset(state)
        function, steps = case.make(), []

        def evaluated(*arguments):
            result, count = evaluate(function, arguments, {}, after, nested=True)
            steps.append(count)
            return result

        out = call_once(evaluated, case.arguments(0), getattr(state, "G", None), case.grads)
        return out, steps[0] if steps else 200

    _, steps = once(-1)
    for after in range(min(steps, 400) + 1):
        switched, _ = once(after)
        assert switched == plain, f"left after {after} of {steps} instructions"
    reset(state)
