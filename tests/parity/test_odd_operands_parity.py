"""Operands that fit each other in an odd way, or hardly: what random calls (random_calls.py) have found to differ."""

import pytest
from compare import same


def transposed(t, *sizes):
    """Random numbers with the order of dims in memory turned round."""
    return t.rand(*reversed(sizes)).permute(*reversed(range(len(sizes))))


def with_strides(function):
    """The result and how it lies."""

    def call(t):
        y = function(t)
        return y, y.stride()

    return call


def bias_gradient(*sizes):
    def call(t):
        bias = t.zeros(sizes, requires_grad=True)
        t.nn.functional.linear(t.ones(3, 4), t.ones(5, 4), bias).backward(t.arange(15.0).reshape(3, 5))
        return bias.grad

    return call


def put(mask, value, accumulate=False):
    """A number at the places of a mask, by index_put and by x[mask] = value."""

    def call(t):
        x, m, v = t.zeros(3, 4), mask(t), value(t)
        y = x.index_put((m,), v, accumulate)
        x[m] = v
        return x, y

    return call


DTYPES = {
    "addr of a wider matrix": lambda t: t.addr(t.rand(3, 4).double(), t.rand(3), t.rand(4)),
    "addr of a wider number": lambda t: t.addr(t.tensor(0.1).double(), t.rand(3), t.rand(4)),
    "addr of an integer and floats": lambda t: t.addr(t.tensor(2), t.rand(3), t.rand(4), beta=0.5),
    "huber_loss of a wider target": lambda t: t.nn.functional.huber_loss(t.rand(3).half(), t.rand(3)),
    "huber_loss of a narrower target": lambda t: t.nn.functional.huber_loss(
        t.rand(3), t.rand(3).bfloat16(), reduction="none"
    ),
    "logits of a narrower target": lambda t: t.nn.functional.binary_cross_entropy_with_logits(
        t.rand(3), t.rand(3).bfloat16(), t.rand(3).bfloat16(), pos_weight=t.rand(3), reduction="none"
    ),
    "repeats of int32": lambda t: t.repeat_interleave(t.tensor([2, 0, 1], dtype=t.int32)),
    "a degree below 0 beside bytes": lambda t: t.special.hermite_polynomial_he(t.ones(4, dtype=t.uint8), -2),
    "and of another kind": lambda t: t.special.hermite_polynomial_h(t.ones(4, dtype=t.uint8), -2),
}


@pytest.mark.parametrize("what", DTYPES)
def test_dtypes(what):
    same(DTYPES[what], tolerance=1e-2 if "logits" in what else 2e-3 if "huber" in what else 1e-6)
    same(lambda t: str(DTYPES[what](t).dtype))


STRIDES = {
    "baddbmm": lambda t: t.baddbmm(transposed(t, 2, 3, 5), t.rand(2, 3, 4), t.rand(2, 4, 5), beta=0.5),
    "baddbmm of factors": lambda t: t.baddbmm(t.rand(2, 3, 5), transposed(t, 2, 3, 4), transposed(t, 2, 4, 5)),
    "addbmm": lambda t: t.addbmm(transposed(t, 3, 5), t.rand(2, 3, 4), t.rand(2, 4, 5), beta=0.5, alpha=2),
    "addr": lambda t: t.addr(transposed(t, 3, 4), t.rand(3), t.rand(4)),
}


@pytest.mark.parametrize("what", STRIDES)
def test_strides(what):
    same(with_strides(STRIDES[what]), tolerance=1e-6)


REFUSED = {
    "addr by a float": lambda t: t.addr(t.ones(3, 4).int(), t.ones(3).long(), t.ones(4).long(), beta=0.5),
    "addr by a float of products": lambda t: t.addr(t.ones(3, 4).bool(), t.ones(3).bool(), t.ones(4).bool(), alpha=2.0),
    "addr by a bool": lambda t: t.addr(t.ones(3, 4), t.ones(3), t.ones(4), alpha=True),
    "addr of three dims": lambda t: t.addr(t.ones(1, 3, 4), t.ones(3), t.ones(4)),
    "addmv of a wider vector": lambda t: t.addmv(t.ones(3).double(), t.ones(3, 4), t.ones(4)),
    "addmv of sizes first": lambda t: t.addmv(t.ones(2).double(), t.ones(3, 4), t.ones(5)),
    "hypot of bytes": lambda t: t.hypot(t.ones(2).byte(), t.ones(2).byte()),
    "hypot of bools": lambda t: t.hypot(t.ones(2).bool(), t.ones(2).bool()),
    "prelu of integers": lambda t: t.prelu(t.ones(2).long(), t.ones(1).long()),
    "diff": lambda t: t.diff(t.ones(3, 4), 0, 0, t.ones(4)),
    "diff behind": lambda t: t.diff(t.ones(3, 4), 1, 0, None, t.ones(4)),
    "no padding": lambda t: t.max_pool1d(t.ones(2, 3, 9), 3, 2, None),
    "no padding of two dims": lambda t: t.max_pool2d(t.ones(2, 3, 9, 9), 3, 2, None),
    "no padding of an average": lambda t: t.avg_pool1d(t.ones(2, 3, 9), 3, 2, None),
    "an integer where an index is": put(lambda t: t.tensor([0]), lambda t: t.tensor(2)),
    "integers where a mask holds": put(lambda t: t.arange(3) > 1, lambda t: t.ones(4).long()),
    "an integer that is added": put(lambda t: t.arange(3) > 1, lambda t: t.tensor(2), True),
    "a number in a row": lambda t: t.cat([t.ones(3, 2), t.tensor(1.0)], 7),
    "no matrix": lambda t: t.geqrf(t.tensor(1.0).half()),
    "a deviation below 0": lambda t: t.ones(3, 4).int().normal_(1.0, -1.0),
    "repeats that are floats": lambda t: t.repeat_interleave(t.ones(2, 2)),
}


@pytest.mark.parametrize("what", REFUSED)
def test_are_refused(what):
    same(REFUSED[what])


TAKEN = {
    "an integer where a mask holds": put(lambda t: t.eye(3, 4) > 0, lambda t: t.tensor(2)),
    "one of one dim": put(lambda t: t.eye(3, 4) > 0, lambda t: t.tensor([2])),
    "a double where a mask of rows holds": put(lambda t: t.arange(3) > 1, lambda t: t.tensor(2.5).double()),
    "hypot of an integer and a float": lambda t: t.hypot(t.ones(2).long(), t.ones(2)),
    "no stride": lambda t: t.max_pool1d(t.ones(2, 3, 9), 3, None),
    "no dims": lambda t: t.roll(t.arange(3), 1, None),
    "a bias that is a number": bias_gradient(),
    "a bias of all rows": bias_gradient(5),
}


@pytest.mark.parametrize("what", TAKEN)
def test_are_taken(what):
    same(TAKEN[what])
