"""Many segments at one position: each call finds its own, whatever tells them apart."""

import gc
import types

import pytest

import wick as torch
from wick import nn

MANY = 60


@pytest.fixture(autouse=True)
def no_limit():
    with torch._dynamo.config.patch(recompile_limit=1000):
        yield


def check(function, arguments, captures=None):
    """Three rounds over all arguments: captured in the first, found in the others."""
    compiled = torch.compile(function, dynamic=False)
    with torch._dynamo.config.patch(recompile_limit=1000):
        for turn in range(3):
            for args in arguments if turn < 2 else reversed(arguments):
                found, plain = compiled(*args), function(*args)
                assert torch.equal(found, plain)
    assert compiled.captures == (len(arguments) if captures is None else captures)
    return compiled


X = torch.arange(3.0)
texts = [f"n{i}" for i in range(MANY)]


def test_texts_and_numbers():
    check(lambda x, s: x + len(s * 2) + ord(s[-1]), [(X, s) for s in texts])
    check(lambda x, k: x + [k][0], [(X, k + 300) for k in range(MANY)])
    check(lambda x, k: x + float(str(k)), [(X, k / 7) for k in range(MANY)])


def test_numbers_that_are_nearly_alike():
    values = [0.0, -0.0, 0, False, 1, True, 1.0, None, "0", b"0", float("nan"), 2**70, -1, -2, 1.5, 2.5]
    check(lambda x, v: x + len(repr(v)), [(X, v) for v in values])


def test_sizes_and_dtypes():
    check(lambda x: x + x.shape[0], [(torch.ones(k + 2),) for k in range(MANY)])
    kinds = [torch.float32, torch.float64, torch.int64, torch.int32, torch.float16, torch.bool]
    check(lambda x: x.to(torch.float32) * 2, [(torch.ones(2, k + 1, dtype=d),) for k in range(4) for d in kinds])


def test_attributes_items_and_names():
    objects = [types.SimpleNamespace(name=s) for s in texts]

    class Named:
        def __init__(self, name):
            self.name = name

    check(lambda x, o: x + ord(o.name[-1]), [(X, Named(s)) for s in texts])
    check(lambda x, o: x + ord(o[0][-1]), [(X, [s]) for s in texts])
    check(lambda x, o: x + ord(o["a"]["b"][-1]), [(X, {"a": {"b": s}}) for s in texts])
    check(lambda x, o: x + len(o), [(X, [1.0] * k) for k in range(MANY)])
    assert len(objects) == MANY


def test_a_global_and_a_closure():
    space = {}
    exec("def f(x):\n    return x + len(name) * ord(name[-1])", space)
    compiled = torch.compile(space["f"])
    for s in texts * 2:
        space["name"] = s
        assert torch.equal(compiled(X), space["f"](X))
    assert compiled.captures == MANY

    name = ""

    def g(x):
        return x + ord(name[-1])

    compiled = torch.compile(g)
    for text in texts * 2:
        name = text
        assert torch.equal(compiled(X), g(X))
    assert compiled.captures == MANY


def test_two_things_tell_them_apart():
    pairs = [(X, a, b) for a in texts[:8] for b in texts[:8]]
    check(lambda x, a, b: x + ord(a[-1]) * 100 + ord(b[-1]), pairs)


def test_what_is_looked_at_later_depends_on_what_was_seen():
    def f(x, kind, a, b):
        return x + (len(a) * ord(a[-1]) if kind == "a" else len(b) + ord(b[-1]))

    calls = [(X, "a", s, "") for s in texts[:30]] + [(X, "b", "", s) for s in texts[:30]]
    check(f, calls)


def test_modules_that_die():
    def f(x, m):
        return m(x)

    compiled = torch.compile(f)
    models = [nn.Linear(3, 2) for _ in range(MANY)]
    with torch.no_grad():
        for turn in range(3):
            for m in models:
                assert torch.equal(compiled(X, m), f(X, m))
            assert compiled.captures == MANY if not turn else True
            del m
            del models[::7]
            gc.collect()
            assert len(compiled.report()) == len(models)
    compiled.reset()
    assert compiled.report() == []


def test_positions_behind_breaks():
    def f(x, s):
        for k in range(3):
            x = x + ord(s[k % len(s)])
            torch._dynamo.graph_break()
            x = x * (k + 1)
        return x

    compiled = torch.compile(f)
    for s in texts[:20] * 2:
        assert torch.equal(compiled(X, s), f(X, s))


def test_the_limit_counts_a_position():
    with torch._dynamo.config.patch(recompile_limit=20):
        compiled = torch.compile(lambda x, s: x + ord(s[-1]))
        for s in texts * 2:
            assert torch.equal(compiled(X, s), X + ord(s[-1]))
        assert compiled.captures == 20


def test_a_size_that_changes_is_a_symbol_also_among_many():
    compiled = torch.compile(lambda x, s: x * len(s), dynamic=None)
    for s in texts[:20]:
        for size in 3, 4, 5:
            compiled(torch.ones(size), s * size)
    before = compiled.captures
    for size in 6, 7, 8, 9:
        assert compiled(torch.ones(size), "n1" * 3).tolist() == [6.0] * size
    assert compiled.captures <= before + 2


def test_comparing_forgets_everything():
    """A key of a guarded dictionary runs code of the program, which resets the compiled function."""

    class Key:
        armed = False

        def __hash__(self):
            return hash("a")

        def __eq__(self, other):
            if Key.armed:
                compiled.reset()
            return False

    def f(x, o):
        return x + ord(o["a"][-1])

    compiled = torch.compile(f)
    for s in texts[:20] * 2:
        assert torch.equal(compiled(X, {"a": s}), f(X, {"a": s}))
    Key.armed = True
    for s in texts[:5]:
        o = {Key(): 1, "a": s}
        assert torch.equal(compiled(X, o), f(X, o))
