"""scan and map are one operator of one graph, for any number of slices, with the bits, derivatives and errors of eager
mode; what cannot be in a graph is unrolled."""

import random
import re

import pytest

import wick as torch
from wick import _C, nn
from wick._higher_order_ops import cond, map, scan, while_loop  # noqa: A004

flat = torch.utils._pytree.tree_leaves

X = (torch.arange(30.0).reshape(5, 2, 3) - 11) / 8
H = torch.tensor([[0.5, -1, 0.25], [2, 0, -0.75]])
W = torch.tensor([[0.5, 0.25, 0], [0, 1, -0.5], [0.25, 0, 0.75]])
B = torch.tensor([0.125, -0.5, 1])


def operators_of(function, *args, **options):
    """The names of the calls in the graph that a backend is given, and that graph's module."""
    modules = []

    def note(module, inputs):
        modules.append(module)
        return module.forward

    torch.compile(function, backend=note, fullgraph=True, **options)(*args)
    (module,) = modules
    return [str(node.target) for node in module.graph.nodes if node.op == "call_function"], module


def is_one_operator(function, *args, name="scan"):
    names = operators_of(function, *args)[0]
    return names.count(name) == 1 and not any(n.startswith("aten.tanh") for n in names)


def bits(t):
    return t.contiguous().reshape(-1).view(torch.uint8)


def same(plain, found):
    assert len(plain) == len(found)
    for a, b in zip(plain, found, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride()
            assert a.requires_grad == b.requires_grad and torch.equal(bits(a), bits(b))


def values_and_gradients(function, args):
    leaves = [a.detach().clone().requires_grad_(a.is_floating_point()) for a in args]
    results = flat(function(*leaves))
    losses = [(r * (k + 1.5)).sin().sum() for k, r in enumerate(results) if r.requires_grad]
    sum(losses).backward()
    return results + [leaf.grad for leaf in leaves]


def alike(function, *calls, **options):
    """Captured as plain: results without gradients, and with them, which are the same bits."""
    compiled = torch.compile(function, fullgraph=True, **options)
    for _ in range(3):
        for args in calls:
            same(flat(function(*args)), flat(compiled(*args)))
            same(values_and_gradients(function, args), values_and_gradients(compiled, args))
    return compiled


# ---- one operator ----


def rnn(x, h, w, b):
    def step(h, x):
        h = (h @ w + x + b).tanh()
        return h, h

    return scan(step, h, x)


@pytest.mark.parametrize("backend", ["inductor", "aot_eager", "eager"])
def test_a_scan_is_one_operator(backend):
    assert is_one_operator(rnn, X, H, W, B)
    alike(rnn, (X, H, W, B), (X + 1, H, W, B), backend=backend)


def test_map_is_one_operator():
    def f(x, w):
        return map(lambda row, k: ((row @ w).tanh() * k + x[0], row.sum()), x, 3)

    assert is_one_operator(f, X, W, name="map_impl")
    alike(f, (X, W))


def test_the_operators_that_graphs_name():
    def f(x, h, w):
        ops = torch.ops.higher_order
        carry, ys = ops.scan(lambda c, e, w: [(c @ w + e).tanh(), c * e], [h], [x], (w,))
        return carry, ops.map_impl(lambda y, w: [y @ w], [ys], [w])

    names = operators_of(f, X, H, W)[0]
    assert names.count("scan") == names.count("map_impl") == 1
    compiled = torch.compile(f, fullgraph=True)
    for _ in range(3):
        same(flat(f(X, H, W)), flat(compiled(X, H, W)))


def test_one_capture_for_all_lengths():
    compiled = torch.compile(rnn, fullgraph=True, dynamic=True)
    for n in (5, 2, 3, 40):
        args = torch.linspace(-1, 1, n * 6).reshape(n, 2, 3), H, W, B
        same(flat(rnn(*args)), flat(compiled(*args)))
        same(values_and_gradients(rnn, args), values_and_gradients(compiled, args))
    assert compiled.captures == 2  # without gradients and with them
    found = torch.compile(rnn, dynamic=True)
    for n in (4, 1, 7):
        same(flat(rnn(X[:1].expand(n, 2, 3), H, W, B)), flat(found(X[:1].expand(n, 2, 3), H, W, B)))
    mapped = torch.compile(lambda x: map(lambda row: row * x.shape[0], x), fullgraph=True, dynamic=True)
    for n in (5, 2, 4):
        assert torch.equal(mapped(X[:n]), X[:n] * n)
    assert mapped.captures == 1


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
@pytest.mark.parametrize("reverse", [False, True])
def test_dims_and_directions(dim, reverse):
    def f(x, w):
        init = torch.ones(x.select(dim, 0).shape)
        return scan(lambda c, e: (c * 0.5 + e.tanh(), (c * e, e.sum(), e)), init, x, dim=dim, reverse=reverse)

    assert is_one_operator(f, X, W)
    alike(f, (X, W))
    alike(f, (X, W), dynamic=True)


def test_slices_keep_their_strides():
    def f(x):
        def step(c, e):
            return c + (e.stride(0) if e.is_contiguous() else e.stride(1)), e * 2

        return scan(step, torch.zeros(2), x, dim=2)

    alike(f, (X,), (X.transpose(0, 1).contiguous().transpose(0, 1),))


def test_trees():
    def f(x, h):
        def step(carry, xs):
            first, second = xs["first"], xs["pair"][1]
            made = {"a": carry["b"][0] * 2, "b": [carry["a"] * second + first]}
            return made, ((first * carry["a"]).tanh(), {"y": second})

        stacks = {"first": x, "pair": (x, x.cos())}
        return scan(step, {"a": h, "b": [h + 1]}, stacks)

    assert is_one_operator(f, X, H)
    alike(f, (X, H))


def test_what_has_no_gradient():
    def f(x, w):
        def step(carry, e):
            count, state, other = carry
            return (count + 1, state.detach() @ w + e, other + 1), (e.detach() * 2, state, count, e > 0)

        init = torch.zeros((), dtype=torch.int64), torch.zeros(2, 3), torch.zeros(3)
        return scan(step, init, x)

    assert is_one_operator(f, X, W)
    alike(f, (X, W))


def test_under_no_grad_and_inside_of_it():
    def f(x, w):
        def step(c, e):
            with torch.no_grad():
                scale = (c @ w).exp()
            return c * 0.5 + e * scale, c + scale

        with torch.no_grad():
            first = scan(step, torch.zeros(2, 3), x)[1]
        return scan(step, torch.zeros(2, 3), x), first

    alike(f, (X, W))


# ---- derivatives ----


def test_a_gradient_of_what_is_carried_alone_or_of_the_others_alone():
    alike(lambda x, h, w, b: rnn(x, h, w, b)[0], (X, H, W, B))
    alike(lambda x, h, w, b: rnn(x, h, w, b)[1], (X, H, W, B))
    alike(lambda x, w, b: rnn(x, torch.zeros(2, 3), w, b), (X, W, B))
    alike(lambda x, h: scan(lambda c, e: (c * 2, e * 3), h, x)[0], (X, H))
    alike(lambda x, h: scan(lambda c, e: (c * 2, e * 3), h, x)[1] + h, (X, H))


@pytest.mark.parametrize("reverse", [False, True])
def test_no_zero_meets_an_infinite_slope(reverse):
    def f(x):
        return scan(lambda c, e: (c + e.sqrt(), c * e), torch.zeros(2), x, reverse=reverse)[1]

    last = torch.tensor([[0.0, 0], [1, 4], [9, 16]])  # what the last slice carries on has no gradient
    alike(f, (last if reverse else last.flip(0),))


def test_gradients_that_begin_in_an_earlier_slice():
    def f(x, h):
        def step(carry, e):
            a, b, c = carry
            return (b * e, c + e.sqrt(), a * 2), e

        return scan(step, (h, h * 2, h * 3), x.abs() + 1)[0][0]

    alike(f, (X, H))


@pytest.mark.parametrize("reverse", [False, True])
def test_what_is_carried_and_given_out(reverse):
    """Its gradient as a result comes before those of its uses in the next slice."""

    def f(x, h, w):
        def step(carry, e):
            a, b = carry
            a, b = (a @ w).tanh() * e + a * 0.5 - a * a, (b * e + a).sin() * b
            return (a, b), {"first": a, "other": b * 2, "second": a, "b": b}

        return scan(step, (h, h * 2), x, reverse=reverse)

    alike(f, (X, H, W))
    alike(lambda *args: f(*args)[0], (X, H, W))
    alike(lambda *args: f(*args)[1]["second"], (X, H, W))

    def some(*args):
        (_, last), ys = f(*args)
        return ys["first"], last

    alike(some, (X, H, W))


def test_several_uses_in_one_slice():
    def f(x, w):
        def step(c, e):
            return ((c @ w) * e + (e @ w)).tanh(), (c * w[0]).sin()

        return scan(step, torch.zeros(2, 3), x)

    alike(f, (X, W))


def test_negative_zeros():
    x = torch.zeros(3, 2)

    def f(x, w):
        return map(lambda e: (e * -1.0, e * w), x)

    def run(f):
        leaves = x.clone().requires_grad_(), torch.zeros(2, requires_grad=True)
        a, b = f(*leaves)
        torch.autograd.backward([a, b], [torch.zeros(3, 2), -torch.zeros(3, 2)])
        return [leaf.grad for leaf in leaves]

    same(run(f), run(torch.compile(f, fullgraph=True)))


def test_second_derivatives():
    def f(x, h, w):
        return scan(lambda c, e: ((c @ w).sin() + e, c * e * e), h, x)

    def second(run):
        leaves = [t.double().requires_grad_() for t in (X, H, W)]
        carry, ys = run(*leaves)
        first = torch.autograd.grad(carry.sin().sum() + ys.sum(), leaves, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), leaves)

    compiled = torch.compile(f, fullgraph=True)
    for plain, found in zip(second(f), second(compiled), strict=True):
        assert torch.allclose(plain, found, rtol=1e-13, atol=1e-14)  # sums of sums
    leaves = [t.double().requires_grad_() for t in (X[:3], H, W)]
    assert torch.autograd.gradcheck(compiled, leaves) and torch.autograd.gradgradcheck(compiled, leaves)
    mapped = torch.compile(lambda x, w: map(lambda e: (e @ w).sin() * e, x), fullgraph=True)
    assert torch.autograd.gradgradcheck(mapped, leaves[::2])


def test_more_results_than_the_tape_keeps():
    def f(x, h):
        def step(carry, e):
            return tuple(c * 0.5 + e * k for k, c in enumerate(carry)), e.sin()

        return scan(step, tuple(h * k for k in range(12)), x)

    assert is_one_operator(f, X, H)
    alike(f, (X, H))


def test_a_training_step():
    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.GRUCell(3, 4)

        def forward(self, x):
            def step(h, e):
                h = self.cell(e, h)
                return h, h

            return scan(step, torch.zeros(2, 4), x)[1]

    def train(compile):
        torch.manual_seed(1)
        model = Cell()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x):
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
            return loss

        run = torch.compile(step, fullgraph=True) if compile else step
        losses = [run(x).detach() for x in (X, X + 1, X[:3], X, X[:4], X[:2])]
        return losses + [p.detach().clone() for p in model.parameters()]

    same(train(False), train(True))


def test_tensors_that_are_saved_elsewhere():
    packed = []

    def run(f):
        del packed[:]
        with torch.autograd.graph.saved_tensors_hooks(lambda t: (packed.append(1), t * 1)[1], lambda t: t):
            return values_and_gradients(f, (X, H, W, B))

    same(run(rnn), run(torch.compile(rnn)))
    assert packed


# ---- nests ----


def test_nests():
    def scan_in_map(x, w):
        return map(lambda rows: scan(lambda c, e: (c * w[0] + e, c), torch.zeros(3), rows), x)

    def map_in_scan(x, w):
        return scan(lambda c, rows: (c + map(lambda e: e @ w, rows), rows), torch.zeros(2, 3), x)

    def scan_in_cond(x, w):
        return cond(x.sum() > 3, lambda x: scan(lambda c, e: (c @ w + e, c), x[0] * 0, x)[1], lambda x: x @ w, (x,))

    def cond_in_scan(x, w):
        pick = lambda c, e: cond(e.sum() > 0, lambda c: c @ w, lambda c: c * w[0], (c,)) + e  # noqa: E731
        return scan(lambda c, e: (pick(c, e), c * 2), torch.zeros(2, 3), x)

    def loop_in_scan(x, w):
        grow = lambda c: while_loop(lambda c: c.abs().sum() < 9, lambda c: (c * 2 + 1,), (c @ w,))[0]  # noqa: E731
        return scan(lambda c, e: (grow(c) + e, c * 2), torch.zeros(2, 3), x)

    def scan_in_loop(x, w):
        total = lambda y: scan(lambda c, e: (c * 0.5 + e @ w, c), torch.zeros(2, 3), y)[1]  # noqa: E731
        return while_loop(lambda y: y.abs().sum() < 99, lambda y: (total(y) * 3 + 1,), (x,))[0]

    for f in scan_in_map, map_in_scan, scan_in_cond, cond_in_scan, loop_in_scan, scan_in_loop:
        names = [name for name in operators_of(f, X, W)[0] if not name.startswith(("aten", "<"))]
        assert len(names) == 1 and names[0] in ("scan", "map_impl", "cond", "while_loop")
        compiled = torch.compile(f, fullgraph=True)
        for x in X, X + 1, X:
            same(flat(f(x, W)), flat(compiled(x, W)))
            both = values_and_gradients(f, (x, W)), values_and_gradients(compiled, (x, W))
            for plain, found in zip(*both, strict=True):  # what the inner one closes over gets a sum of its own
                assert not found.any() if plain is None else torch.allclose(plain, found, rtol=1e-4)


# ---- what is unrolled ----

SEEN, START = [], [None]


def write(c, e):
    c.add_(e)
    return c * 1, c + e


@pytest.mark.parametrize(
    "step",
    [
        write,
        lambda c, e: (c + torch.rand_like(c), e),
        lambda c, e: (c + e * e.sum().item(), e),
        lambda c, e: (c + e, (SEEN.append(1), e)[1]),
        lambda c, e: (c, e),
        lambda c, e: (e, c),
        lambda c, e: ((c + e).t().contiguous().t(), c.clone()),
        lambda c, e: (c + (1 if c.requires_grad else 2), e),
        lambda c, e: (c + e, c + 1 if e.sum() > 0 else c),
        lambda c, e: (c + random.random(), e),
        lambda c, e: (c + (1 if c is START[0] else 2), e),
        lambda c, e: (c + (1 if id(c) == id(START[0]) else 2), e),
    ],
    ids=[
        "write",
        "random",
        "value",
        "effect",
        "same",
        "slice",
        "strides",
        "history",
        "branch",
        "python",
        "object",
        "id",
    ],
)
def test_what_is_no_graph_is_unrolled(step):
    def f(x, h):
        torch.manual_seed(3)
        start, xs = h * 1.0, x * 1.0
        START[0] = start
        carry, ys = scan(step, start, xs)
        before = carry.clone()
        carry.add_(1)
        return before, ys, start, carry, xs

    compiled = torch.compile(f)
    for _ in range(3):
        for args in (X, H), (X - 2, H):
            del SEEN[:]
            random.seed(5)
            plain = flat(f(*args))
            count = len(SEEN)
            random.seed(5)
            found = flat(compiled(*args))
            assert all(torch.equal(a, b) for a, b in zip(plain, found, strict=True)) and len(SEEN) == 2 * count


def test_a_function_that_asks_for_histories():
    """They begin with the second slice."""

    def f(x, w):
        return scan(lambda c, e: ((c * w if c.requires_grad else c + w) + e, c), torch.zeros(2, 3), x)

    alike(f, (X, B))


def test_errors_are_those_of_plain_code():
    for step, message in (
        (lambda c, e: (c[:1] * 1.0, e), "Expected init and carry to have same metadata"),
        (lambda c, e: ((c, c), e), "Expected init and carry to have the same structure"),
        (lambda c, e: (c @ torch.ones(7), e), "mat1 and mat2|size mismatch|shapes cannot be multiplied"),
    ):
        for run in (lambda: scan(step, H, X)), torch.compile(lambda: scan(step, H, X)):  # noqa: B023
            with pytest.raises(RuntimeError, match=message):
                run()
    for n in (2, 4):
        with pytest.raises((RuntimeError, IndexError)):
            torch.compile(lambda x: scan(lambda c, e: (c + e[0], e[1]), H, (X, x)))(X[:n])


# ---- as text, to backends, in files ----


def test_a_backend_sees_the_body():
    def f(x, h, w):
        carry, ys = scan(lambda c, e: ((c @ w).tanh(), c * e), h, x, reverse=True)
        return carry, map(lambda y: y.exp() + h, ys)

    names, module = operators_of(f, X, H, W)
    assert names.count("scan") == names.count("map_impl") == 1
    code = module.code
    assert re.search(r"higher_order\.scan\(scan_combine_graph_0, \[\w+\], \[\w+\], \(\w+,\), reverse = True\)", code)
    assert re.search(r"higher_order\.map_impl\(body_graph_1, \[\w+\], \[\w+\]\)", code)
    assert "tanh" in module.scan_combine_graph_0.code and "exp" in module.body_graph_1.code
    module.recompile()  # an edited graph is run by its text
    placeholders = module.graph.find_nodes(op="placeholder")
    inputs = [next(t for t in (X, H, W) if t.shape == node.meta["val"].shape) for node in placeholders]
    same(flat(f(X, H, W)), flat(module(*inputs)))


def texts(path, function, *args):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WICK_DEBUG_DIR", str(path))
        torch.compile(function, fullgraph=True)(*args)
    return {stage: next(path.glob(f"graph_*.{stage}.txt")).read_text() for stage in ("captured", "fuse")}


def both(x):
    carry, ys = scan(lambda c, e: (c * 2 + e, c.sin()), x[0] * 0, x, reverse=True)
    return carry, map(lambda y: y.exp(), ys)


@pytest.mark.parametrize("stage", ["captured", "fuse"])
@pytest.mark.parametrize("compiled", [False, True])
def test_text_and_back(tmp_path, stage, compiled):
    text = texts(tmp_path, both, X)[stage]
    assert "carries 1, slices 1, reversed\n" in text and "carries 0, slices 1\n" in text
    graph = _C.LoadedGraph(text, [], compiled)
    same(flat(both(X)), list(graph(X)))
    assert compiled or str(graph) == re.sub(r"(?m)  # .*|^# .*\n", "", text)


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("carries 1, slices 1", "carries 2, slices 1", "do not belong together"),
        ("carries 1, slices 1", "carries 1, slices 0", "do not belong together"),
        ("carries 1, slices 1", "carries 1, slices 7", "do not belong together"),
        ("carries 1, slices 1", "carries -1, slices 1", "do not belong together"),
        ("carries 1, slices 1", "slices 1", "expected what a scan carries"),
        (", reversed", ", sideways", "followed by"),
        ("  each\n", "  \n", "expected two graphs"),
    ],
)
def test_hostile_text(tmp_path, old, new, message):
    text = texts(tmp_path, both, X)["captured"]
    assert old in text
    with pytest.raises(ValueError, match=message):
        _C.LoadedGraph(text.replace(old, new, 1), [], False)


def test_a_program_in_a_file(tmp_path):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(W.clone())

        def forward(self, x):
            carry, ys = scan(lambda c, e: ((c @ self.weight + e).tanh(), c), torch.zeros(2, 3), x)
            return carry, map(lambda y: y * self.weight[0], ys)

    model = Model()
    length = torch.export.Dim("length", min=2, max=64)
    program = torch.export.export(model, (X,), dynamic_shapes=({0: length},))
    names = [str(n.target) for n in program.graph.nodes if n.op == "call_function"]
    assert names.count("scan") == names.count("map_impl") == 1
    torch.export.save(program, str(tmp_path / "model.pt2"))
    loaded = torch.export.load(str(tmp_path / "model.pt2"))
    for n in (5, 2, 9):
        x = torch.linspace(-1, 1, n * 6).reshape(n, 2, 3)
        for run in program.module(), loaded.module():
            for plain, found in zip(model(x), run(x), strict=True):
                assert torch.equal(plain, found)
