"""out= of every dtype and size, memory formats, shifts, rounding and norms, beside an installed PyTorch."""

import re

import pytest
from compare import outcome, torch

import wick

DTYPES = ("float64", "float32", "float16", "int64", "int32", "int8", "uint8", "bool")
OPERATORS = {
    "abs": lambda t, out: t.abs(t.ones(3, 2), out=out),
    "add": lambda t, out: t.add(t.ones(3, 2), 1.5, out=out),
    "neg": lambda t, out: t.neg(t.ones(3, 2).long(), out=out),
    "exp": lambda t, out: t.exp(t.ones(3, 2), out=out),
    "clamp": lambda t, out: t.clamp(t.ones(3, 2), 0, 0.5, out=out),
    "clamp tensors": lambda t, out: t.clamp(t.ones(3, 2), t.ones(2), out=out),
    "eq": lambda t, out: t.eq(t.ones(3, 2), 1, out=out),
    "shift": lambda t, out: t.bitwise_left_shift(t.ones(3, 2).long(), 3, out=out),
    "round": lambda t, out: t.round(t.ones(3, 2) * 1.26, decimals=1, out=out),
    "sum": lambda t, out: t.sum(t.ones(3, 2, 2) * 0.75, 2, out=out),
    "mean": lambda t, out: t.mean(t.ones(3, 2, 2), 2, out=out),
    "prod": lambda t, out: t.prod(t.ones(3, 2, 2) * 1.5, 2, out=out),
    "cumsum": lambda t, out: t.cumsum(t.ones(3, 2) * 0.75, 1, out=out),
    "amax": lambda t, out: t.amax(t.ones(3, 2, 2), 2, out=out),
    "argmax": lambda t, out: t.argmax(t.ones(3, 2, 2), 2, out=out),
    "any": lambda t, out: t.any(t.ones(3, 2, 2), 2, out=out),
    "logsumexp": lambda t, out: t.logsumexp(t.zeros(3, 2, 1), 2, out=out),
    "softmax": lambda t, out: t.softmax(t.zeros(3, 2), 1, out=out),
    "mm": lambda t, out: t.mm(t.ones(3, 2), t.ones(2, 2), out=out),
    "tril": lambda t, out: t.tril(t.ones(3, 2), out=out),
    "gather": lambda t, out: t.gather(t.ones(3, 2), 0, t.zeros(3, 2).long(), out=out),
    "index_select": lambda t, out: t.index_select(t.ones(3, 2), 0, t.tensor([0, 1, 2]), out=out),
    "cat": lambda t, out: t.cat([t.ones(1, 2), t.ones(2, 2)], out=out),
    "where": lambda t, out: t.where(t.ones(3, 2).bool(), t.ones(3, 2), t.ones(2), out=out),
    "ones": lambda t, out: t.ones(3, 2, out=out),
    "full": lambda t, out: t.full((3, 2), 2.5, out=out),
    "eye": lambda t, out: t.eye(3, 2, out=out),
    "norm": lambda t, out: t.linalg.vector_norm(t.ones(3, 2, 4), dim=2, out=out),
}
SIZES = {"empty": (0,), "right": (3, 2), "small": (1,), "large": (7, 7)}


def same(function):
    """Values, strides and errors (their first line); of warnings the text without where they come from."""
    seen = []
    for library in (torch, wick):
        result, texts = outcome(function, library)
        if isinstance(result, str):
            result = result.splitlines()[0]
        seen.append((result, {re.sub(r" \(Triggered internally.*", "", text) for text in texts}))
    assert seen[1] == seen[0]


def with_strides(t):
    return t, t.stride()


# PyTorch warns of the size first and then refuses the dtype; one of the two is said here.
def refused(name, dtype, size):
    whole = dtype in ("int64", "int32", "int8", "uint8", "bool")
    return size in ("small", "large") and ((name == "mean" and whole) or (name == "cumsum" and dtype == "bool"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPERATORS)
def test_outputs(name, dtype):
    for size, shape in SIZES.items():
        if not refused(name, dtype, size):
            same(lambda t, shape=shape: with_strides(OPERATORS[name](t, t.zeros(shape, dtype=getattr(t, dtype)))))


LAYOUTS = {
    "contiguous": lambda t: t.zeros(2, 3, 4, 5),
    "permuted": lambda t: t.zeros(2, 3, 4, 5).permute(2, 0, 3, 1),
    "gaps": lambda t: t.zeros(5, 4, 3, 4).permute(3, 2, 1, 0)[::2],
    "expanded": lambda t: t.zeros(3, 1, 1).expand(2, 3, 4, 5),
    "columns": lambda t: t.zeros(5, 4).t()[1:, ::2],
    "channels last": lambda t: t.zeros(2, 3, 4, 5).contiguous(memory_format=t.channels_last),
    "one channel": lambda t: t.zeros(2, 1, 4, 4),
    "number": lambda t: t.zeros(()),
}
MAKERS = {
    "empty_like": lambda t, x, **k: t.empty_like(x, **k).zero_(),
    "zeros_like": lambda t, x, **k: t.zeros_like(x, **k),
    "full_like": lambda t, x, **k: t.full_like(x, 3, **k),
    "rand_like": lambda t, x, **k: t.rand_like(x, **k) * 0,
    "randint_like": lambda t, x, **k: t.randint_like(x, 1, **k),
    "clone": lambda t, x, **k: x.clone(**k),
    "to": lambda t, x, **k: x.to(t.float64, **k),
    "to itself": lambda t, x, **k: x.to(t.float32, **k),
    "half": lambda t, x, **k: x.half(**k),
    "cpu": lambda t, x, **k: x.cpu(**k),
}


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_memory_formats(layout, maker):
    same(lambda t: with_strides(MAKERS[maker](t, LAYOUTS[layout](t))))
    for name in ("preserve_format", "contiguous_format", "channels_last", "channels_last_3d"):
        given = lambda t, name=name: MAKERS[maker](t, LAYOUTS[layout](t), memory_format=getattr(t, name))  # noqa: E731
        same(lambda t, given=given: with_strides(given(t)))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64", "bool", "float32"])
def test_shifts(dtype):
    def values(t):
        return t.tensor([0, 1, 2, 5, 100, 127], dtype=t.int64).to(getattr(t, dtype))

    for count in (0, 1, 5, 7, 8, 31, 63, 64, 300, -1, -8):
        same(lambda t, count=count: values(t) << count)
        same(lambda t, count=count: (-values(t)) >> count)
        same(lambda t, count=count: values(t) << t.tensor([count, 1, 2, 3, 4, 5]))
        same(lambda t, count=count: count >> values(t))
        same(lambda t, count=count: values(t).bitwise_right_shift_(count))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("decimals", [0, 1, 2, 3, 5, -1, -2, -5, 40, -40])
def test_round(dtype, decimals):
    def values(t):
        return (((t.arange(400) * 7919) % 1009).double() * 0.0713 - 30).to(getattr(t, dtype))

    same(
        lambda t: t.round(values(t), decimals=decimals).nan_to_num(7) if t is torch else no_nan(t, values(t), decimals)
    )


def no_nan(t, x, decimals):
    y = t.round(x, decimals=decimals)
    return t.where(t.isnan(y), 7, y)


@pytest.mark.parametrize("p", ["fro", None, 2, 1, 0, float("inf"), float("-inf"), 3, -1, 0.5, "nope"])
@pytest.mark.parametrize("dims", [{}, {"dim": 0}, {"dim": (0, 1)}, {"dim": -1, "keepdim": True}, {"dim": 5}])
def test_norms(p, dims):
    def norm(t):
        x = (t.arange(12.0) - 5).reshape(3, 4).requires_grad_()
        y = t.norm(x, p, **dims)
        if p != 0:
            y.sum().backward()
        return [round(v, 4) for v in [*y.flatten().tolist(), *(x.grad.flatten().tolist() if p != 0 else [])]]

    same(norm)
