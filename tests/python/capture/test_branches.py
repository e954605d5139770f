"""cond and while_loop on a tensor's value are one operator of one graph, with the bits, derivatives and errors of eager
mode; what cannot be in a graph is run as Python."""

import random
import re

import pytest

import wick as torch
from wick import _C, nn

X = torch.arange(6.0).reshape(2, 3) / 8  # its sum is below 3, that of X + 1 above


def graphs_of(function, *calls, **options):
    """Captured, with the results of plain calls; gives how many graphs and breaks one call has."""
    graphs = []

    def note(module, inputs):
        graphs.append(module)
        return module.forward

    torch.compile(function, backend=note, **options)(*calls[0])
    compiled = torch.compile(function, **options)
    flat = torch.utils._pytree.tree_leaves
    for _ in range(3):
        for args in calls:
            plain, found = flat(function(*args)), flat(compiled(*args))
            assert all(torch.equal(a, b) for a, b in zip(plain, found, strict=True))
            assert [t.stride() for t in plain] == [t.stride() for t in found]
    return len(graphs)


def gradients(function, *leaves):
    fresh = [leaf.detach().clone().requires_grad_() for leaf in leaves]
    torch.utils._pytree.tree_leaves(function(*fresh))[0].sum().backward()
    return [leaf.grad for leaf in fresh]


def same_gradients(function, *calls, **options):
    compiled = torch.compile(function, fullgraph=True, **options)
    for _ in range(3):
        for leaves in calls:
            for plain, found in zip(gradients(function, *leaves), gradients(compiled, *leaves), strict=True):
                same = not found.any() if plain is None else torch.equal(plain, found)  # zeros stand for none
                assert same


# ---- cond ----


def scaled(x):
    return torch.cond(x.sum() > 3, lambda x: x.cos() * 2, lambda x: x.sin(), (x,)) + 1


def test_a_branch_is_one_graph():
    assert graphs_of(scaled, (X,), (X + 1,), fullgraph=True) == 1
    same_gradients(scaled, (X,), (X + 1,))


def test_branches_close_over_tensors_and_sizes():
    weight, bias = torch.randn(3, 3), torch.randn(3)

    def f(x, scale):
        inner = x * 2
        return torch.cond(
            x.mean() > 0.5, lambda x: inner @ weight + x.shape[0], lambda x: (x - bias) * scale, (x,)
        ).relu()

    assert graphs_of(f, (X, torch.tensor(3.0)), (X + 1, torch.tensor(2.0)), fullgraph=True) == 1
    same_gradients(f, (X, torch.tensor(3.0)), (X + 1, torch.tensor(2.0)))


def test_trees_of_operands_and_results():
    def f(x):
        result = torch.cond(
            x.sum() > 3,
            lambda p: {"a": p["x"] + 1, "b": [p["y"][0] * 2]},
            lambda p: {"a": p["x"] - 1, "b": [p["y"][0] * 3]},
            ({"x": x, "y": (x * x,)},),
        )
        return result["a"], result["b"][0]

    assert graphs_of(f, (X,), (X + 1,), fullgraph=True) == 1


def test_a_branch_inside_of_a_branch():
    def f(x):
        def outer(x):
            y = x * 2
            return torch.cond(x.max() > 2, lambda x: x + y, lambda x: x.exp(), (x,)) * 3

        return torch.cond(x.sum() > 3, outer, lambda x: x.tanh(), (x,))

    assert graphs_of(f, (X,), (X + 0.4,), (X + 2,), fullgraph=True) == 1
    same_gradients(f, (X,), (X + 0.4,), (X + 2,))


def test_sizes_that_vary():
    def f(x):
        return torch.cond(x.sum() > 3, lambda x: x * x.shape[0], lambda x: (x + 1) / x.shape[0], (x,)).sum(1)

    assert graphs_of(f, (X,), (torch.ones(5, 3),), (torch.zeros(7, 3),), dynamic=True, fullgraph=True) == 1
    same_gradients(f, (X,), (torch.ones(5, 3),), (torch.zeros(7, 3),), dynamic=True)


def test_a_result_is_memory_of_its_own():
    def f(x):
        same, view = torch.cond(x.sum() > 3, lambda x: (x, x[0] + 0), lambda x: (x * 2, x[1]), (x,))
        same.add_(1)
        view.mul_(2)
        return same, view

    for x in X, X + 1:
        before = x.clone()
        same, view = torch.compile(f, fullgraph=True)(x)
        assert torch.equal(x, before)
        assert torch.equal(same, (x if x.sum() > 3 else x * 2) + 1)
        assert torch.equal(view, (x[0] if x.sum() > 3 else x[1]) * 2)


def test_what_is_detached_or_under_no_grad_has_no_derivative():
    def f(x):
        def one(x):
            with torch.no_grad():
                scale = x.exp()
            return x * scale

        return torch.cond(x.sum() > 3, one, lambda x: x.sin() * x.detach(), (x,))

    assert graphs_of(f, (X,), (X + 1,), fullgraph=True) == 1
    same_gradients(f, (X,), (X + 1,))


def test_a_branch_without_a_derivative_gives_zeros():
    def f(x, y):
        return torch.cond(x.sum() > 3, lambda x, y: x * 2, lambda x, y: torch.ones_like(x), (x, y)) + y

    assert graphs_of(f, (X, X), (X + 1, X), fullgraph=True) == 1
    compiled = torch.compile(f, fullgraph=True)
    assert torch.equal(gradients(compiled, X, X)[0], torch.zeros_like(X))
    assert torch.equal(gradients(compiled, X + 1, X)[0], torch.full_like(X, 2))


def test_only_results_with_a_gradient_are_differentiated():
    def f(x):
        a, b = torch.cond(x.sum() > 3, lambda x: (x * 2, x.sqrt()), lambda x: (x * 3, x.log()), (x,))
        return a, b.detach()

    compiled = torch.compile(f, fullgraph=True)
    for x, factor in (torch.zeros(3), 3), (torch.tensor([0.0, 9.0]), 2):  # the other result's derivative is infinite
        assert torch.equal(gradients(compiled, x)[0], torch.full_like(x, factor))


def test_second_derivatives():
    def f(x):
        return torch.cond(x.sum() > 3, lambda x: x**3, lambda x: x.sin(), (x,))

    def second(run, x):
        x = x.clone().requires_grad_()
        (first,) = torch.autograd.grad(run(x).sum(), x, create_graph=True)
        return torch.autograd.grad((first * first).sum(), x)[0]

    compiled = torch.compile(f, fullgraph=True)
    for x in X, X + 1:
        assert torch.equal(second(f, x), second(compiled, x))
        x = x.double().requires_grad_()
        assert torch.autograd.gradcheck(compiled, (x,)) and torch.autograd.gradgradcheck(compiled, (x,))


def test_a_training_step_with_a_branch():
    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x):
            return torch.cond(x.mean() > 0.6, self.left, lambda x: self.right(x).tanh(), (x,))

    def train(compile):
        torch.manual_seed(1)
        model = Gated()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x):
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
            return loss

        run = torch.compile(step, fullgraph=True) if compile else step
        losses = [run(x).item() for x in (X, X + 1, X, X, X + 1, X - 1)]
        return losses, [p.detach().clone() for p in model.parameters()]

    (losses, parameters), (found, others) = train(False), train(True)
    assert losses == found
    assert all(torch.equal(a, b) for a, b in zip(parameters, others, strict=True))


@pytest.mark.parametrize(
    "branch",
    [
        lambda x: x.add_(1),
        lambda x: torch.rand_like(x) + x,
        lambda x: x * x.sum().item(),
        lambda x: x[0],
        lambda x: x.double(),
        lambda x: (x, x),
        lambda x: x + 1 if x.sum() > 0 else x,
        lambda x: (print(end=""), x + 1)[1],
    ],
    ids=["write", "random", "value", "size", "dtype", "tree", "python_branch", "effect"],
)
def test_what_is_no_graph_is_python(branch):
    def f(x):
        torch.manual_seed(3)
        y = x * 1.0
        return torch.cond(x.sum() > 3, lambda x: x * 2, branch, (y,)), y

    compiled = torch.compile(f)
    for _ in range(3):
        for x in X, X + 1, X - 5:
            for plain, found in zip(f(x), compiled(x), strict=True):
                flat = torch.utils._pytree.tree_leaves
                assert all(torch.equal(a, b) for a, b in zip(flat(plain), flat(found), strict=True))


def test_effects_of_the_other_branch_are_not_there():
    seen = []

    def f(x):
        return torch.cond(x.sum() > 3, lambda x: (seen.append("more"), x + 1)[1], lambda x: x - 1, (x,))

    compiled = torch.compile(f)
    for _ in range(2):
        for x in X, X + 1:
            assert torch.equal(compiled(x), x + 1 if x.sum() > 3 else x - 1)
    assert seen == ["more"] * 2


def test_an_error_of_the_other_branch_is_none():
    def f(x):
        return torch.cond(x.sum() > 3, lambda x: x @ torch.ones(7), lambda x: x - 1, (x,))

    compiled = torch.compile(f)
    assert torch.equal(compiled(X), X - 1)
    with pytest.raises(RuntimeError):
        compiled(X + 1)
    assert torch.equal(compiled(X), X - 1)


def graph_module_of(function, x):
    modules = []

    def note(module, inputs):
        modules.append(module)
        return module.forward

    torch.compile(function, backend=note, fullgraph=True)(x)
    return modules[0]


def test_a_backend_sees_graphs_for_the_functions():
    weight = torch.ones(3)

    def f(x):
        y = torch.cond(x.sum() > 3, lambda x: x.cos() * weight, lambda x: x.sin(), (x,))
        return torch.while_loop(lambda y: y.sum() < 9, lambda y: (y.abs() + weight,), (y,))[0] + 1

    module = graph_module_of(f, X)
    code = module.code
    assert re.search(r"cond = torch\.ops\.higher_order\.cond\(gt, true_graph_0, false_graph_0, \(\w+, \w+\)\)", code)
    assert re.search(
        r"torch\.ops\.higher_order\.while_loop\(while_loop_cond_graph_1, while_loop_body_graph_1, \(\w+,\), \(\w+,\)\)",
        code,
    )
    assert isinstance(module.true_graph_0, torch.fx.GraphModule) and "cos" in module.true_graph_0.code
    assert [str(n.target) for n in module.graph.nodes if n.op == "get_attr"][:2] == ["true_graph_0", "false_graph_0"]
    for node in list(module.graph.nodes):
        if node.target is torch.ops.aten.add.Scalar:
            node.args = (node.args[0], 2)
    module.recompile()  # an edited graph is run by its text
    for x in X, X + 1:
        inputs = [
            x if n.name.endswith("x") or n.name == "input_1" else weight
            for n in module.graph.find_nodes(op="placeholder")
        ]
        assert torch.equal(module(*inputs)[0], f(x) + 1)
    assert torch.equal(torch.ops.higher_order.cond(torch.tensor(True), torch.sin, torch.cos, (X,)), X.sin())


def nested(x):
    big = torch.tensor(list(range(99)))  # too large to be printed
    inner = lambda x: torch.cond(x.max() > 1.5, lambda x: x + big.sum(), lambda x: x - 1, (x,))  # noqa: E731
    y = torch.cond(x.sum() > 3, inner, lambda x: x * 2, (x,))
    return torch.while_loop(lambda y: y.sum() < 30, lambda y: (y + 1,), (y,))[0]


@pytest.fixture(scope="module")
def stages(tmp_path_factory):
    path = tmp_path_factory.mktemp("stages")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WICK_DEBUG_DIR", str(path))
        torch.compile(nested, fullgraph=True)(X)
    return path


def text_of(stages, name):
    (path,) = (f for f in stages.glob(f"graph_*.{name}.txt") if " = control {\n  then" in f.read_text())
    return path.read_text()


def load(text, compiled=False):
    return _C.LoadedGraph(text, [torch.tensor(list(range(99)))], compiled)


@pytest.mark.parametrize("stage", ["captured", "fuse"])
@pytest.mark.parametrize("compiled", [False, True])
def test_text_and_back(stages, stage, compiled):
    text = text_of(stages, stage)
    graph = load(text, compiled)
    for x in X, X + 0.4, X + 1:
        assert torch.equal(graph(x)[0], nested(x))
    without_places = re.sub(r"(?m)  # .*|^# .*\n", "", text)
    assert compiled or str(graph) == without_places


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("  then\n", "  them\n", "expected two graphs, behind"),
        ("  else\n", "  \n", "expected two graphs, behind"),
        ("return (%mul)", "return (%mul, %mul)", "do not belong together: their results differ"),
        ("graph(%input: f32[2, 3], %clone: i64[99])", "graph(%input: f32[2, 3])", "there is no|expected|differ"),
        ("[%input, %clone])", "[%clone, %input])", "called with other tensors"),
        ("loop_", "branch_", "missing|expected|there are two|argument"),
    ],
)
def test_hostile_text(stages, old, new, message):
    text = text_of(stages, "captured")
    places = [m.start() for m in re.finditer(re.escape(old), text)]
    errors = []
    for at in places:
        try:
            load(text[:at] + new + text[at + len(old) :])(X)
        except (ValueError, RuntimeError, TypeError) as error:
            errors.append(str(error))
    assert any(re.search(message, error) for error in errors), errors


# ---- while_loop ----

WEIGHT = torch.tensor([[0.5, 0.25, 0], [0, 1, -0.5], [0.25, 0, 0.75]])


def rounds(x, n):
    count = torch.zeros((), dtype=torch.int64)
    return torch.while_loop(lambda i, x: i < n, lambda i, x: (i + 1, torch.tanh(x @ WEIGHT)), (count, x))


def test_a_loop_is_one_graph():
    calls = [(X, torch.tensor(n)) for n in (3, 0, 5, 1)]
    assert graphs_of(rounds, *calls, fullgraph=True) == 1


def test_a_loop_until_a_value_is_small():
    def f(x):
        return torch.while_loop(lambda x: x.abs().max() > 0.1, lambda x: (x / 2,), (x,))[0] + x

    assert graphs_of(f, (X,), (X * 100,), (X * 0,), fullgraph=True) == 1
    assert graphs_of(f, (X,), (torch.ones(4, 3),), fullgraph=True, dynamic=True) == 1


def test_derivatives_of_a_loop():
    def f(x, w, b):
        count = torch.zeros((), dtype=torch.int64)
        body = lambda i, x: (i + 1, torch.tanh(x @ w + b))  # noqa: E731
        return torch.while_loop(lambda i, x: i < x.shape[0] + 1, body, (count, x))[1]

    compiled = torch.compile(f, fullgraph=True)
    leaves = [t.double() for t in (X, WEIGHT, torch.ones(3) / 8)]
    for plain, found in zip(gradients(f, *leaves), gradients(compiled, *leaves), strict=True):
        assert torch.allclose(plain, found, rtol=1e-14, atol=0)  # the sums over rounds are added in another order
    assert torch.autograd.gradcheck(compiled, tuple(t.requires_grad_() for t in leaves))


@pytest.mark.parametrize("above", [False, True])
def test_numbers_that_python_draws(above):
    """Only the branch that is taken draws, and each round does."""

    def f(x):
        y = torch.cond(x.sum() > 3, lambda x: x + random.random(), lambda x: x * 2, (x,))
        return torch.while_loop(lambda y: y.sum() < 20, lambda y: (y + 1 + random.random(),), (y,))[0]

    compiled = torch.compile(f)
    for seed in range(3):
        found = []
        for run in f, compiled:
            random.seed(seed)
            found.append((run(X + above).tolist(), random.random()))
        assert found[0] == found[1]


def test_what_is_carried_gets_a_history_in_the_first_round():
    def f(x, w):
        body = lambda x, y: ((x * 2) * w + y * 3, y * 2)  # noqa: E731
        return torch.while_loop(lambda x, y: x.sum() < 50, body, (x.detach() + 1, x.detach()))[0]

    same_gradients(lambda w: f(X, w), (X + 1,), (X + 2,))


def test_a_body_that_asks_for_histories():
    """They begin with the second round: there is no operator, and the value of the condition is looked at."""

    def f(x, w):
        body = lambda x: ((x * w if x.requires_grad else x + w) + 1,)  # noqa: E731
        return torch.while_loop(lambda x: x.sum() < 50, body, (x,))[0]

    compiled = torch.compile(f)
    for w in X + 1, (X + 1).requires_grad_():
        assert torch.equal(f(X, w), compiled(X, w))


def test_no_round_gives_the_gradient_on():
    def f(x, w):
        return torch.while_loop(lambda x: x.max() > 100, lambda x: (x * w,), (x,))[0]

    grad, of_weight = gradients(torch.compile(f, fullgraph=True), X, X)
    assert torch.equal(grad, torch.ones_like(X)) and torch.equal(of_weight, torch.zeros_like(X))


def test_a_second_derivative_of_a_loop_is_refused():
    def f(x):
        return torch.while_loop(lambda x: x.max() < 100, lambda x: (x * x + 1,), (x,))[0]

    x = X.clone().requires_grad_()
    (grad,) = torch.autograd.grad(torch.compile(f, fullgraph=True)(x).sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="while_loop's derivative"):
        grad.sum().backward()


def test_a_loop_whose_body_uses_what_it_began_with():
    def f(x):
        y = x + 1
        return torch.while_loop(lambda a, b: a.sum() < 50, lambda a, b: (a + y, b * 0.5), (y, y))

    assert graphs_of(f, (X,), (X + 1,), fullgraph=True) == 1


def test_a_branch_in_a_loop():
    def f(x):
        body = lambda x: (torch.cond(x.sum() > 8, lambda x: x + 3, lambda x: x * 2 + 1, (x,)),)  # noqa: E731
        return torch.while_loop(lambda x: x.sum() < 60, body, (x,))[0]

    assert graphs_of(f, (X,), (X + 10,), fullgraph=True) == 1
    same_gradients(f, (X,), (X + 10,))


@pytest.mark.parametrize(
    "body",
    [
        lambda x: (x.add_(1),),
        lambda x: (torch.cat([x, x]),),
        lambda x: (x + torch.rand_like(x),),
        lambda x: (x * x.sum().item(),),
    ],
    ids=["write", "grows", "random", "value"],
)
def test_a_body_that_is_no_graph_is_python(body):
    def f(x):
        torch.manual_seed(1)
        return torch.while_loop(lambda x: x.sum() < 100, body, (x.clone(),))[0]

    compiled = torch.compile(f)
    for _ in range(3):
        for x in X + 1, X + 30:
            assert torch.equal(f(x), compiled(x))


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_integers_that_differ_from_call_to_call(backend):
    """In a function of cond or while_loop they are constants of each capture."""

    def program(x, n):
        taken = torch.cond(x.sum() > 0, lambda a: (a + n).expand(n), lambda a: a.expand(n) * n, (x,))
        looped = torch._higher_order_ops.while_loop(
            lambda i, v: i < 3, lambda i, v: (i + 1, v + n), (torch.tensor(0), x)
        )
        return taken, looped[1]

    compiled = torch.compile(program, backend=backend, fullgraph=True)
    for n in (2, 3, 4, 5, 3):
        for x in (torch.ones(1), -torch.ones(1)):
            taken, looped = compiled(x, n)
            assert taken.tolist() == [1.0 + n if x > 0 else -1.0 * n] * n and looped.tolist() == [x.item() + 3 * n]
