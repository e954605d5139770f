"""contextvars.ContextVar in captured code: guarded where it is read, set and reset again by each replay."""

import contextlib
import contextvars

import pytest

import wick

VARIABLE = contextvars.ContextVar("variable", default=1)
EMPTY = contextvars.ContextVar("empty")
OTHER = contextvars.ContextVar("other", default=None)


@pytest.fixture(autouse=True)
def restored():
    tokens = [v.set(v.get(None)) for v in (VARIABLE, OTHER)]
    yield
    for token in tokens:
        token.var.reset(token)


@contextlib.contextmanager
def scaled(value):
    token = VARIABLE.set(value)
    try:
        yield
    finally:
        VARIABLE.reset(token)


def test_set_and_reset():
    def f(x):
        with scaled(3):
            y = x * VARIABLE.get()
            with scaled(5):
                y = y + VARIABLE.get()
        return y * VARIABLE.get()

    compiled = wick.compile(f, fullgraph=True)
    for outside in (1, 1, 7, 7, 1):
        VARIABLE.set(outside)
        assert wick.equal(compiled(wick.ones(2)), f(wick.ones(2)))
        assert VARIABLE.get() == outside
    assert len(compiled.report()) == 2


def test_what_is_set_stays():
    def f(x, log):
        log.append(OTHER.get())
        y = x * 2
        OTHER.set(y)
        log.append(OTHER.get() is y)
        return y

    compiled = wick.compile(f, fullgraph=True)
    for _ in range(4):
        OTHER.set(None)
        log = []
        y = compiled(wick.ones(2), log)
        assert OTHER.get() is y and log == [None, True]


def test_tokens_go_outside():
    set_it = wick.compile(lambda x: (x + 1, VARIABLE.set(9)), fullgraph=True)
    reset_it = wick.compile(
        lambda x, token: (x + VARIABLE.get(), VARIABLE.reset(token), VARIABLE.get())[::2], fullgraph=True
    )
    for outside in (2, 2, 4):
        VARIABLE.set(outside)
        _, token = set_it(wick.ones(2))
        assert VARIABLE.get() == 9 and token.old_value == outside
        y, now = reset_it(wick.ones(2), token)
        assert y.tolist() == [10.0, 10.0] and now == outside
        with pytest.raises((RuntimeError, ValueError)):
            reset_it(wick.ones(2), token)


def test_across_a_break():
    def f(x):
        token = VARIABLE.set(3)
        y = x * VARIABLE.get()
        wick._dynamo.graph_break()
        y = y + VARIABLE.get()
        VARIABLE.reset(token)
        return y * VARIABLE.get()

    compiled = wick.compile(f)
    for outside in (1, 1, 2, 2):
        VARIABLE.set(outside)
        assert wick.equal(compiled(wick.ones(2)), f(wick.ones(2)))
        assert VARIABLE.get() == outside


def test_one_without_a_value():
    def f(x):
        try:
            return x * EMPTY.get()
        except LookupError:
            token = EMPTY.set(4)
            y = x * EMPTY.get()
            EMPTY.reset(token)
            return y, EMPTY.get("none")

    compiled = wick.compile(f)
    for _ in range(3):
        y, left = compiled(wick.ones(2))
        assert y.tolist() == [4.0, 4.0] and left == "none"
