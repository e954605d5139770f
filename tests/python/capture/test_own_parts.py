"""PyTorch's own parts inside of a region: transforms of functions, the tape, modes. Each program is one graph, and gives
what it gives when it is run plainly, the gradients of its argument and of the module's parameters included.

Programs take a tensor (2, 3) of 1 to 6, which requires grad where it is so marked.
"""

# ruff: noqa

import pytest

import wick as torch
import wick.autograd.forward_ad as fwAD
import wick.nn as nn
from wick.autograd import functional as AF
from wick.func import (
    functional_call, functionalize, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, stack_module_state,
    vjp, vmap,
)  # fmt: skip

PROGRAMS = []


def plain(function):
    PROGRAMS.append((function, False))
    return function


def leaf(function):
    PROGRAMS.append((function, True))
    return function


torch.manual_seed(0)
LINEAR = nn.Linear(3, 3)
MODELS = [nn.Linear(3, 3) for _ in range(3)]


def square(t):
    return (t * t).sum()


# ---- transforms of functions ----


@plain
def vmap_plain(x):
    return vmap(lambda r: r.sin().sum())(x)


@plain
def vmap_with_dims(x):
    return vmap(lambda a, b: a * b, in_dims=(1, None), out_dims=1)(x, torch.ones(2))


@plain
def vmap_nested(x):
    return vmap(vmap(lambda a: a * a))(x)


@plain
def vmap_in_chunks(x):
    return vmap(lambda a: a * 2, chunk_size=1)(x)


@plain
def vmap_random(x):
    return vmap(lambda a: a + torch.rand(3), randomness="different")(x)


@leaf
def vmap_with_a_tape(x):
    return vmap(lambda r: r.sin().sum())(x).sum()


@plain
def grad_plain(x):
    return grad(square)(x)


@plain
def grad_of_arguments(x):
    return grad(lambda a, b: (a * b).sum(), argnums=(0, 1))(x, x + 1)


@plain
def grad_with_aux(x):
    return grad(lambda a: ((a * a).sum(), a + 1), has_aux=True)(x)


@plain
def grad_twice(x):
    return grad(lambda a: grad(lambda b: (b**3).sum())(a).sum())(x)


@leaf
def grad_with_a_tape(x):
    return grad(lambda b: (b**3).sum())(x).sum()


@plain
def gradient_and_value(x):
    return grad_and_value(square)(x)


@plain
def vjp_plain(x):
    output, pull = vjp(torch.sin, x)
    return output, pull(torch.ones_like(output))[0]


@plain
def vjp_with_aux(x):
    output, pull, aux = vjp(lambda t: (t.sin(), t + 1), x, has_aux=True)
    return output, pull(torch.ones_like(output))[0], aux


@leaf
def jvp_with_a_tape(x):
    return jvp(torch.sin, (x,), (torch.ones_like(x),))[1].sum()


@plain
def jacobian_by_rows(x):
    return jacrev(lambda t: t.sin().sum(0))(x), jacrev(lambda t: t.sin().sum(0), chunk_size=1)(x)


@plain
def jacobian_by_columns(x):
    return jacfwd(lambda t: t.sin().sum(0))(x)


@plain
def hessian_plain(x):
    return hessian(lambda t: t.sin().sum())(x)


@plain
def linearized(x):
    output, push = linearize(torch.sin, x)
    return output, push(torch.ones_like(x))


@plain
def functionalized(x):
    return functionalize(lambda t: t.clone().add_(1))(x)


@leaf
def call_with_other_parameters(x):
    return functional_call(LINEAR, {"weight": LINEAR.weight * 2}, (x,)).sum()


@plain
def gradient_of_parameters(x):
    parameters = {k: v.detach() for k, v in LINEAR.named_parameters()}
    return grad(lambda p: functional_call(LINEAR, p, (x,)).pow(2).sum())(parameters)


@plain
def gradients_of_examples(x):
    parameters = {k: v.detach() for k, v in LINEAR.named_parameters()}
    one = grad(lambda p, r: functional_call(LINEAR, p, (r,)).pow(2).sum())
    return vmap(one, in_dims=(None, 0))(parameters, x)


@leaf
def models_in_a_stack(x):
    parameters, buffers = stack_module_state(MODELS)
    call = lambda p, b, t: functional_call(MODELS[0], (p, b), (t,))
    return vmap(call, in_dims=(0, 0, None))(parameters, buffers, x).sum(0)


@leaf
def linear_with_a_batch_of_weights(x):
    weight = torch.stack([m.weight for m in MODELS])
    return vmap(lambda w: torch.nn.functional.linear(x, w))(weight).sum(0)


@plain
def dual_numbers(x):
    with fwAD.dual_level():
        dual = fwAD.make_dual(x, x * 2)
        out = fwAD.unpack_dual(dual * dual)
        return out.primal + out.tangent


@plain
def functional_of_autograd(x):
    f = lambda t: t.sin()
    total = lambda t: t.sin().sum()
    ones = torch.ones_like(x)
    return (
        AF.jacobian(f, x), AF.jacobian(f, x, vectorize=True), AF.hessian(total, x), AF.vjp(f, x, ones), AF.jvp(f, x, ones),
        AF.hvp(total, x, ones), AF.jacobian(f, x, vectorize=True, strategy="forward-mode"),
    )  # fmt: skip


@leaf
def batched_gradients(x):
    y = x * x
    return torch.autograd.grad(y, x, torch.stack([torch.ones_like(y)] * 2), is_grads_batched=True)[0]


for transformed in (
    vmap(lambda r: r.sin().sum()), grad(square), jacrev(lambda t: t.sin().sum(0)), jacfwd(lambda t: t.sin().sum(0)),
    hessian(lambda t: t.sin().sum()),
):  # fmt: skip
    plain(transformed)


DOUBLE = torch.compile(lambda t: t.sin() * 2)
TOTAL = torch.compile(lambda t: (t.sin() * 2).sum())


@plain
def transforms_of_compiled_functions(x):
    return vmap(DOUBLE)(x), grad(TOTAL)(x), jacrev(TOTAL)(x)


# ---- compile() inside ----


@plain
def compile_of_functions_and_modules(x):
    @torch.compile
    def double(t):
        return t * 2

    return double(x) + torch.compile(LINEAR)(x) + torch.compile(lambda t: t.sin(), dynamic=True)(x) + DOUBLE(x)


# ---- questions to the tape ----


@leaf
def grad_fn_of_leaf_and_result(x):
    y = (x * 2).sin()
    count = len(y.grad_fn.name()) + len(y.grad_fn.next_functions) + len(type(y.grad_fn).__name__)
    return (y * count * (2 if x.grad_fn is None else 3) * (5 if x.detach().grad_fn is None else 7)).sum()


@leaf
def nodes_behind_a_node(x):
    y = (x * 2).sin()
    before, number = y.grad_fn.next_functions[0]
    return (y * len(before.name()) * (number + 1)).sum()


@leaf
def number_of_a_result(x):
    a, b = x.unbind(0)
    return (a * a.output_nr + b * b.output_nr).sum()


@leaf
def penalty_of_a_gradient(x):
    (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    return (g.norm() - 1) ** 2


# ---- parameters that are frozen ----


@plain
def frozen_parameters(x):
    a = nn.Parameter(torch.ones(3))
    a.requires_grad = False
    b = nn.Parameter(torch.ones(3) * 2, requires_grad=True)
    b.requires_grad_(False)
    return x * a * b, a, b.requires_grad


@plain
def a_frozen_module(x):
    module = nn.Linear(3, 3).requires_grad_(False)
    module.weight.fill_(1)
    module.bias.fill_(2)
    return module(x)


@plain
def frozen_and_thawed(x):
    module = nn.Linear(3, 3)
    for p in module.parameters():
        p.requires_grad = False
    with torch.no_grad():
        module.weight.fill_(1)
        module.bias.fill_(0)
    y = module(x)
    module.weight.requires_grad_(True)
    (module(x) ** 2).sum().backward()
    return y, module.weight.grad * 1


# ---- checks of factorizations ----


@leaf
def factorizations(x):
    matrix = x[:, :2] @ x[:, :2].mT + torch.eye(2)
    return (
        torch.linalg.inv(matrix).sum() + torch.linalg.solve(matrix, x).sum() + torch.linalg.cholesky(matrix).sum()
    )  # fmt: skip


# ---- grad modes as decorators ----


@leaf
def functions_with_modes(x):
    @torch.no_grad()
    def quiet(t):
        return t * 2

    @torch.no_grad
    def bare(t):
        return t * 3

    @torch.enable_grad()
    def loud(t):
        return t * 5

    @torch.set_grad_enabled(False)
    def off(t):
        return t * 7

    with torch.no_grad():
        y = loud(x)
    return ((quiet(x) + bare(x) + off(x)) * x + y).sum()


@leaf
def function_in_inference_mode(x):
    @torch.inference_mode()
    def f(t):
        return t * 2

    return f(x.detach()) + 1


@plain
def generator_with_a_mode(x):
    @torch.no_grad()
    def parts(t):
        yield t * 2
        yield t * 3

    return sum(parts(x))


@plain
def function_with_autocast(x):
    @torch.autocast("cpu", dtype=torch.bfloat16)
    def product(t):
        return t @ t.T

    return product(x)


def matrices(x):
    return torch.stack([x @ x.T + k * torch.eye(2) for k in (1, 2)])


@leaf
def solutions_in_batches(x):
    a = matrices(x)
    return vmap(torch.linalg.inv)(a), vmap(torch.linalg.solve, (0, None))(a, x), vmap(torch.linalg.cholesky)(a)


@plain
def decompositions_in_batches(x):
    a = matrices(x)
    return vmap(torch.linalg.det)(a), vmap(torch.linalg.eigvalsh)(a), vmap(torch.linalg.lu_factor)(a)[0]


@plain
def gradients_of_inverses_in_batches(x):
    return vmap(grad(lambda m: torch.linalg.inv(m).sum()))(matrices(x)), jacrev(torch.linalg.inv)(matrices(x)[0])


@plain
def check_of_what_no_example_has(x):
    def one(r):
        if (x <= 0).any():
            raise ValueError("positive numbers are wanted")
        return (r * x).sum()

    return vmap(grad(one))(x)


# ---- modules with other parameters ----


class Symmetric(nn.Module):
    def forward(self, t):
        return t.triu() + t.triu(1).T


PARAMETRIZED = nn.Linear(3, 3)
nn.utils.parametrize.register_parametrization(PARAMETRIZED, "weight", Symmetric())


@leaf
def parametrizations_computed_once(x):
    with nn.utils.parametrize.cached():
        y = PARAMETRIZED(x) + PARAMETRIZED(x * 2)
    return y, PARAMETRIZED(x)


@leaf
def module_with_other_parameters(x):
    with nn.utils.stateless._reparametrize_module(LINEAR, {"weight": x.T @ x}):
        y = LINEAR(x)
    return y, LINEAR(x)


# ---- the tests ----


def results_of(run, requires_grad, turn):
    torch.manual_seed(0)
    x = (torch.arange(6.0).reshape(2, 3) + 1 + turn // 2).requires_grad_(requires_grad)
    parameters = [p for m in (LINEAR, *MODELS) for p in m.parameters()]
    for p in parameters:
        p.grad = None
    given = [t for t in torch.utils._pytree.tree_leaves(run(x)) if isinstance(t, torch.Tensor)]
    found = [(t.requires_grad, t.detach().clone()) for t in given]
    if requires_grad and any(t.requires_grad for t in given):
        sum(t.sum() for t in given if t.requires_grad).backward()
    return found + [(False, None if t.grad is None else t.grad.clone()) for t in (x, *parameters)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("function", "requires_grad"), PROGRAMS, ids=lambda f: getattr(f, "__name__", ""))
def test_a_program(function, requires_grad):
    captured = torch.compile(function, fullgraph=True)
    for turn in range(4):
        expected = results_of(function, requires_grad, turn)
        found = results_of(captured, requires_grad, turn)
        assert len(expected) == len(found)
        for (needs, a), (needs_too, b) in zip(expected, found, strict=True):
            assert needs == needs_too
            assert (a is None) == (b is None) and (a is None or torch.equal(a, b)), f"turn {turn}"
    assert all(s["end"] == "return" for s in captured.report())


def test_a_break_inside_of_a_transform():
    seen = []

    def f(x):
        def one(r):
            open("/dev/null").close()
            seen.append(1)
            return r.sum()

        return vmap(one)(x) + 1

    compiled = torch.compile(f)
    x = torch.arange(6.0).reshape(2, 3)
    for _ in range(4):
        assert torch.equal(compiled(x), f(x))
    assert len(seen) == 8


def test_a_break_between_the_ends_of_a_level():
    def f(x):
        with fwAD.dual_level():
            dual = fwAD.make_dual(x, torch.ones_like(x))
            open("/dev/null").close()
            return fwAD.unpack_dual(dual.sin()).tangent

    compiled = torch.compile(f)
    x = torch.arange(6.0).reshape(2, 3)
    for _ in range(5):
        assert torch.equal(compiled(x), x.cos())


def test_the_tape_of_a_transform_that_leaves():
    compiled = torch.compile(lambda x: vjp(torch.sin, x)[1])
    x = torch.arange(6.0).reshape(2, 3)
    for _ in range(4):
        assert torch.equal(compiled(x)(torch.ones(2, 3))[0], x.cos())


def test_tensors_of_a_level_that_is_over():
    kept = []

    def f(x):
        kept.clear()
        result = vmap(lambda r: (kept.append(r * 2), r + 1)[1])(x)
        return result, kept[0] + 1

    compiled = torch.compile(f)
    x = torch.arange(6.0).reshape(2, 3)
    for _ in range(3):
        result, left_over = compiled(x)
        assert torch.equal(result, x + 1)
        assert torch.equal(left_over, x * 2 + 1)
        assert torch.equal(kept[0] + 0, x * 2)


def test_an_error_inside_of_a_transform():
    def f(x):
        return vmap(lambda r: r.sum().item())(x)

    compiled = torch.compile(f)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="vmap: It looks like you're calling .item()"):
            compiled(torch.ones(2, 3))


@pytest.mark.parametrize("question", [lambda x: x.is_leaf, lambda x: x.grad_fn is None], ids=["is_leaf", "grad_fn"])
def test_whether_an_argument_is_a_leaf_is_guarded(question):
    compiled = torch.compile(lambda x: x * 2 if question(x) else x * 3)
    made = torch.ones(2, requires_grad=True)
    computed = made * 1
    for _ in range(3):
        assert compiled(made).tolist() == [2.0, 2.0]
        assert compiled(computed).tolist() == [3.0, 3.0]


def test_compile_inside_gives_what_it_was_given():
    def f(x):
        inner = torch.compile(LINEAR)
        return inner(x), inner

    found = torch.compile(f)(torch.ones(2, 3))
    assert torch.equal(found[0], LINEAR(torch.ones(2, 3)))


@pytest.mark.parametrize("transform", [vmap, lambda f: vmap(grad(lambda m: f(m).sum()))], ids=["vmap", "grad"])
def test_an_example_that_has_no_inverse(transform):
    compiled = torch.compile(lambda a: transform(torch.linalg.inv)(a), fullgraph=True)
    good, bad = torch.eye(2).repeat(2, 1, 1), torch.stack([torch.eye(2), torch.zeros(2, 2)])
    for _ in range(2):
        assert torch.equal(compiled(good), transform(torch.linalg.inv)(good))
        with pytest.raises(torch.linalg.LinAlgError, match=r"linalg.inv: \(Batch element 1\): The diagonal element 1"):
            compiled(bad)


def lazy_layers():
    return nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Flatten(), nn.LazyLinear(3))


@pytest.mark.parametrize("make", [lazy_layers, lambda: nn.LazyConv2d(2, 2)], ids=["several", "one"])
@pytest.mark.parametrize("of_function", [False, True])
def test_lazy_modules_from_their_first_call_on(make, of_function):
    """Their parameters are made by the first input, behind the random numbers that were drawn in front of them."""

    def run(wrap):
        torch.manual_seed(0)
        model = make()

        def step(x):
            return model(nn.functional.dropout(x, 0.5)).relu()

        called = wrap(step if of_function else model)
        results = [called(torch.arange(150.0).reshape(2, 3, 5, 5).sin()) for _ in range(3)]
        results[-1].sum().backward()
        return results, [p.grad for p in model.parameters()], list(model.state_dict()), torch.rand(2)

    plain, captured = run(lambda f: f), run(lambda f: torch.compile(f, fullgraph=True))
    assert plain[2] == captured[2]
    for a, b in zip(plain[0] + plain[1] + [plain[3]], captured[0] + captured[1] + [captured[3]], strict=True):
        assert torch.equal(a, b)


def test_a_matrix_that_has_no_inverse():
    compiled = torch.compile(torch.linalg.inv, fullgraph=True)
    for _ in range(2):
        assert torch.equal(compiled(torch.eye(2) * 2), torch.eye(2) / 2)
        with pytest.raises(torch.linalg.LinAlgError, match="linalg.inv: The diagonal element 1 is zero"):
            compiled(torch.zeros(2, 2))
