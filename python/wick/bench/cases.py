"""What is measured: each case is a function that prepares data with `torch`, wick or PyTorch, and returns what to time.

    work = find("softmax:rows=64,columns=32").prepare(torch)
    work.call()                                              # the thing that is timed
    find("my_step.py:make_step").prepare(torch)              # the same from a file: make_step() returns a function

Learning rates are so small that nothing is learned: values stay away from denormal numbers for any number of calls.
"""

import importlib.util
import pathlib
import sys
from dataclasses import dataclass, field

from .models import make_gpt, make_lstm, make_mlp


@dataclass
class Work:
    """What a case's function returns."""

    call: object  # a function of no arguments; compiled engines compile it
    bytes_moved: int = 0  # that one call has to read and write, when memory is what bounds it
    tokens: int = 0  # that one call trains on
    measure: object = None  # () -> a number, in place of timing calls


@dataclass(frozen=True)
class Case:
    """A named function with the sizes it is called with."""

    name: str
    function: object
    sizes: dict
    tiny: dict = field(default_factory=dict)  # the same, made small for tests

    @property
    def about(self):
        return (self.function.__doc__ or "").strip().split("\n")[0]

    def prepare(self, torch):
        work = self.function(torch, **self.sizes)
        return work if isinstance(work, Work) else Work(work)


# ---- training steps ----


def _training_step(torch, loss_of, optimizer, tokens=0):
    """forward, zero_grad, backward and the optimizer's step as one function."""

    def step():
        loss = loss_of()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return Work(step, tokens=tokens)


def gpt_step(torch, layers, width, heads, context, batch, vocabulary):
    """a whole training step of a GPT: forward, loss, backward, AdamW"""
    model = make_gpt(torch, vocabulary, context, width, layers, heads)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-7, weight_decay=0.1)
    x, y = (torch.randint(vocabulary, (batch, context)) for _ in range(2))
    cross_entropy = torch.nn.functional.cross_entropy
    return _training_step(
        torch, lambda: cross_entropy(model(x).view(-1, vocabulary), y.view(-1)), optimizer, batch * context
    )


def mlp_step(torch, layers, width, batch):
    """a whole training step of a perceptron: forward, loss, backward, SGD with momentum"""
    model = make_mlp(torch, width, layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6, momentum=0.9)
    x, y = torch.randn(batch, width), torch.randint(width, (batch,))
    return _training_step(torch, lambda: torch.nn.functional.cross_entropy(model(x), y), optimizer)


def lstm_step(torch, length, hidden, batch, symbols):
    """a whole training step of an LSTM cell stepped in Python: forward, loss, backward, Adam"""
    model = make_lstm(torch, symbols, hidden)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-7)
    x = torch.randint(symbols, (batch, length))
    return _training_step(torch, lambda: torch.nn.functional.cross_entropy(model(x), x[:, 0]), optimizer)


# ---- calls: overhead is what is timed ----


def two_op_call(torch, size):
    """a call of a function of two operators on a few floats"""
    x, y = torch.randn(size), torch.randn(size)
    return lambda: torch.relu(x) + y


def add(torch, size, grad):
    """a + b on a few floats"""
    a, b = torch.randn(size).requires_grad_(bool(grad)), torch.randn(size)
    return lambda: a + b


def linears(torch, layers, width, batch):
    """linear layers one after another"""
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(layers)))
    x = torch.randn(batch, width)
    return lambda: model(x)


def gemm(torch, m, n, k):
    """a matrix product (m, k) x (k, n)"""
    a, b = torch.randn(m, k), torch.randn(k, n)
    return lambda: torch.mm(a, b)


# ---- memory bound; float32 is 4 bytes ----


def softmax(torch, rows, columns):
    """softmax over rows"""
    x = torch.randn(rows, columns)
    return Work(lambda: torch.softmax(x, -1), bytes_moved=8 * rows * columns)


def layer_norm(torch, rows, columns):
    """layer norm over rows with weight and bias"""
    x, w, b = torch.randn(rows, columns), torch.randn(columns), torch.randn(columns)
    return Work(lambda: torch.nn.functional.layer_norm(x, (columns,), w, b), bytes_moved=8 * rows * columns)


def rms_norm(torch, rows, columns):
    """RMS norm over rows with weight, from its formula: x / sqrt(mean(x^2) + eps) * w (Zhang and Sennrich, 2019)"""
    x, w = torch.randn(rows, columns), torch.randn(columns)
    return Work(
        lambda: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w, bytes_moved=8 * rows * columns
    )  # fmt: skip


def gelu(torch, rows, columns):
    """GELU"""
    x = torch.randn(rows, columns)
    return Work(lambda: torch.nn.functional.gelu(x), bytes_moved=8 * rows * columns)


def gelu_bias(torch, rows, columns):
    """GELU of rows plus a bias"""
    x, b = torch.randn(rows, columns), torch.randn(columns)
    return Work(lambda: torch.nn.functional.gelu(x + b), bytes_moved=8 * rows * columns)


def cross_entropy(torch, rows, columns):
    """cross-entropy of logits and class numbers"""
    x, y = torch.randn(rows, columns), torch.randint(columns, (rows,))
    return Work(lambda: torch.nn.functional.cross_entropy(x, y), bytes_moved=4 * rows * columns + 8 * rows)


def dropout(torch, rows, columns):
    """dropout with p = 0.1"""
    x = torch.randn(rows, columns)
    return Work(lambda: torch.nn.functional.dropout(x, 0.1), bytes_moved=8 * rows * columns)


def dropout_add(torch, rows, columns):
    """dropout with p = 0.1 and a residual added"""
    x, residual = torch.randn(rows, columns), torch.randn(rows, columns)
    return Work(lambda: residual + torch.nn.functional.dropout(x, 0.1), bytes_moved=12 * rows * columns)


def sum(torch, rows, columns):
    """the sum of all elements"""
    x = torch.randn(rows, columns)
    return Work(lambda: x.sum(), bytes_moved=4 * rows * columns)


def cumsum(torch, rows, columns):
    """the running sum over rows"""
    x = torch.randn(rows, columns)
    return Work(lambda: x.cumsum(-1), bytes_moved=8 * rows * columns)


def transpose(torch, rows, columns):
    """a transposed copy"""
    x = torch.randn(rows, columns)
    return Work(lambda: x.t().contiguous(), bytes_moved=8 * rows * columns)


def adamw(torch, parameters, size):
    """an AdamW step over square matrices; reads p, g, m, v and writes p, m, v"""
    matrices = [torch.randn(size, size).requires_grad_() for _ in range(parameters)]
    for p in matrices:
        p.grad = torch.randn(size, size)
    optimizer = torch.optim.AdamW(matrices, lr=1e-7)
    return Work(lambda: optimizer.step(), bytes_moved=28 * parameters * size * size)


# ---- by name ----

_GPT_TINY = {"layers": 1, "width": 8, "heads": 2, "context": 4, "batch": 2, "vocabulary": 8}
_ROWS_TINY = {"rows": 4, "columns": 8}
_ROWS = {"rows": 16384, "columns": 4096}  # 256 MiB a tensor: out of any cache

CASES = {
    case.name: case
    for case in (
        Case("chargpt_step", gpt_step,
             {"layers": 6, "width": 192, "heads": 6, "context": 128, "batch": 8, "vocabulary": 96}, _GPT_TINY),
        Case("gpt_step", gpt_step,
             {"layers": 12, "width": 768, "heads": 12, "context": 128, "batch": 4, "vocabulary": 96}, _GPT_TINY),
        Case("mlp_step", mlp_step, {"layers": 6, "width": 128, "batch": 32}, {"layers": 2, "width": 4, "batch": 2}),
        Case("lstm_step", lstm_step, {"length": 32, "hidden": 32, "batch": 16, "symbols": 8},
             {"length": 2, "hidden": 4, "batch": 2, "symbols": 4}),
        Case("two_op_call", two_op_call, {"size": 8}, {"size": 8}),
        Case("add", add, {"size": 8, "grad": 0}, {"size": 8, "grad": 0}),
        Case("linears", linears, {"layers": 8, "width": 64, "batch": 16}, {"layers": 2, "width": 4, "batch": 2}),
        Case("gemm", gemm, {"m": 1024, "n": 1024, "k": 1024}, {"m": 4, "n": 4, "k": 4}),
        Case("layer_norm", layer_norm, {"rows": 65536, "columns": 1024}, _ROWS_TINY),
        Case("rms_norm", rms_norm, {"rows": 65536, "columns": 1024}, _ROWS_TINY),
        *(Case(f.__name__, f, _ROWS, _ROWS_TINY)
          for f in (softmax, gelu, gelu_bias, cross_entropy, dropout, dropout_add, sum, cumsum, transpose)),
        Case("adamw", adamw, {"parameters": 16, "size": 2048}, {"parameters": 2, "size": 4}),
    )
}  # fmt: skip


def _sizes(text):
    """{"rows": 4, "columns": 8} for rows=4,columns=8."""
    try:
        return {name: int(value) for name, value in (item.split("=") for item in text.split(","))}
    except ValueError:
        raise ValueError(f"sizes are written NAME=INTEGER,..., not {text!r}") from None


def _from_file(path, name):
    """A case from a function in a file: name(**sizes) returns the function to time, or a Work."""
    folder = str(pathlib.Path(path).absolute().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # as when the file is run
    spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not callable(getattr(module, name, None)):
        raise ValueError(f"{path} has no function {name!r}")
    return lambda torch, **sizes: getattr(module, name)(**sizes)


def split(text):
    """(case name, file or None, sizes) of a case as it is written on a command line; the file is not read.

    Raises ValueError for an unknown name.
    """
    head, separator, rest = text.partition(".py:")
    if separator:
        name, _, sizes = rest.partition(":")
        return name, head + ".py", _sizes(sizes) if sizes else {}
    name, _, sizes = text.partition(":")
    if name not in CASES:
        raise ValueError(f"no case is called {name!r}; there are {', '.join(CASES)}, and FILE.py:FUNCTION")
    wanted = _sizes(sizes) if sizes else {}
    if unknown := set(wanted) - set(CASES[name].sizes):
        raise ValueError(f"{name} has no size {sorted(unknown)[0]!r}; it has {', '.join(CASES[name].sizes)}")
    return name, None, wanted


def find(text, tiny=False):
    """The case that `text` names: a built-in one, NAME or NAME:SIZE=INTEGER,..., or one from a file, FILE.py:FUNCTION.

    tiny: with sizes for tests, where it is built in.
    """
    name, path, sizes = split(text)
    if path:
        return Case(text, _from_file(path, name), sizes)
    case = CASES[name]
    return Case(text, case.function, (case.tiny if tiny else case.sizes) | sizes)
