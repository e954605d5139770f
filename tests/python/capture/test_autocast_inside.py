"""autocast that is entered and left inside of a compiled function: one graph, and the thread's mode as without compile."""

import pytest

import wick
from wick import Compiled


@pytest.fixture
def layer():
    wick.manual_seed(0)
    return wick.nn.Linear(4, 4)


def mode():
    return wick.is_autocast_enabled("cpu"), wick.get_autocast_dtype("cpu"), wick.is_autocast_cache_enabled()


def test_blocks_within_blocks(layer):
    def f(x):
        with wick.autocast("cpu", dtype=wick.bfloat16):
            y = layer(x)
            with wick.autocast("cpu", enabled=False):
                z = layer(x)
        return y, z, layer(x)

    compiled, x, before = Compiled(f, fullgraph=True), wick.ones(2, 4), mode()
    for _ in range(3):
        for a, b in zip(f(x), compiled(x), strict=True):
            assert a.dtype == b.dtype and wick.equal(a, b)
        assert mode() == before
    with wick.autocast("cpu"):  # another mode to begin with: captured again
        assert [y.dtype for y in compiled(x)] == [y.dtype for y in f(x)] == [wick.bfloat16, wick.float32, wick.bfloat16]


def test_a_break_inside(layer, capsys):
    def f(x):
        with wick.autocast("cpu", dtype=wick.bfloat16):
            y = layer(x)
            print("break")
            return layer(x) + y

    compiled, before = Compiled(f), mode()
    for _ in range(3):
        assert wick.equal(compiled(wick.ones(2, 4)), f(wick.ones(2, 4))) and mode() == before


def test_a_mode_that_stays(layer):
    def f(x, on):
        wick.set_autocast_enabled("cpu", on)
        return layer(x)

    compiled = Compiled(f)
    try:
        for on in (True, False, True, True, False):
            assert compiled(wick.ones(2, 4), on).dtype == (wick.bfloat16 if on else wick.float32)
            assert wick.is_autocast_enabled("cpu") is on
    finally:
        wick.set_autocast_enabled("cpu", False)


def test_a_training_step(layer):
    def step(x):
        layer.zero_grad()
        with wick.autocast("cpu"):
            loss = layer(x).float().pow(2).sum()
        loss.backward()
        return loss

    wanted, x = step(wick.ones(2, 4)), wick.ones(2, 4)
    gradient = layer.weight.grad.clone()
    compiled = Compiled(step, fullgraph=True)
    for _ in range(3):
        assert wick.equal(compiled(x), wanted) and wick.equal(layer.weight.grad, gradient)


def test_the_dtype_is_guarded_where_it_is_asked_for():
    compiled = Compiled(lambda: wick.get_autocast_dtype("cpu"))
    try:
        for dtype in (wick.bfloat16, wick.float16, wick.bfloat16):
            wick.set_autocast_dtype("cpu", dtype)
            assert compiled() == dtype
    finally:
        wick.set_autocast_dtype("cpu", wick.bfloat16)


def test_an_exception_that_leaves_a_block(layer):
    def f(x):
        try:
            with wick.autocast("cpu"):
                layer(x)
                raise ValueError
        except ValueError:
            return layer(x)

    compiled = Compiled(f)
    for _ in range(3):
        assert compiled(wick.ones(2, 4)).dtype == wick.float32 and not wick.is_autocast_enabled("cpu")
