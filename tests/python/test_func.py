"""Function transforms beyond single rows: how levels nest, what a function may do inside of one, random numbers, custom
functions, compiled functions, modules. Rows are tested in tests/ops/test_levels.py, PyTorch's words in tests/parity/."""

import gc

import pytest

import wick as torch
from wick.autograd import forward_ad as fwAD
from wick.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, linearize, stack_module_state, vjp, vmap

F = torch.nn.functional


@pytest.fixture
def x():
    return torch.tensor([0.5, -1.25, 2.0], dtype=torch.float64)


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


# ---- levels ----


@pytest.mark.parametrize("depth", [2, 3])
def test_batches_of_batches_of_what_is_done_by_its_parts(depth):
    """A linear layer of which every example has weights of its own, with and without a derivative below."""
    sizes = [2, 3, 2][:depth]
    x, weight, bias = (torch.rand(*sizes, *shape, dtype=torch.float64) for shape in ((4, 3), (5, 3), (5,)))
    layers = F.linear
    for _ in range(depth):
        layers = vmap(layers)
    expected = torch.matmul(x, weight.mT) + bias.unsqueeze(-2)
    close(layers(x, weight, bias), expected)
    close(grad(lambda w: layers(x, w, bias).square().sum())(weight), 2 * expected.mT @ x)
    tangent = jvp(lambda w: layers(x, w, bias), (weight,), (weight,))[1]
    close(tangent, torch.matmul(x, weight.mT))
    weight.requires_grad_()
    layers(x, weight, bias).square().sum().backward()
    close(weight.grad, 2 * expected.mT @ x)


@pytest.mark.parametrize("outer", [grad, jacrev, jacfwd])
@pytest.mark.parametrize("inner", [grad, jacrev, jacfwd])
def test_derivatives_of_derivatives(outer, inner):
    x = torch.tensor(0.7, dtype=torch.float64)
    close(outer(inner(lambda t: t**4))(x), 12 * x**2)


@pytest.mark.parametrize("outer", [grad, jacrev, jacfwd])
@pytest.mark.parametrize("inner", [grad, jacrev, jacfwd])
def test_perturbations_are_not_confused(outer, inner):
    one = torch.tensor(1.0, dtype=torch.float64)
    close(outer(lambda t: t * inner(lambda u: t + u)(one))(one), one)


def test_batches_and_derivatives_nest_in_any_order(x):
    both = torch.stack([x, x + 1])
    wanted = torch.stack([-t.sin().diag() for t in both])
    close(vmap(hessian(lambda t: t.sin().sum()))(both), wanted)
    total = jacfwd(jacrev(lambda b: vmap(lambda t: t.sin().sum())(b).sum()))(both)
    for k in range(2):
        close(total[k, :, k], wanted[k])
    nested = vmap(lambda t: grad(lambda u: vmap(torch.sin)(u).sum())(t))(both)
    close(nested, both.cos())


def test_captured_tensors_are_constants_to_the_function_and_followed_outside(x):
    w = torch.tensor(3.0, dtype=torch.float64, requires_grad=True)
    gradient = grad(lambda t: (w * t**2).sum())(x)
    assert gradient.requires_grad
    (dw,) = torch.autograd.grad(gradient.sum(), w)
    close(dw, 2 * x.sum())
    assert not grad(lambda t: (t**2).sum())(x).requires_grad


def test_no_grad_inside_is_about_the_level(x):
    def function(t):
        with torch.no_grad():
            shift = t**2
        return (t + shift).sum()

    close(grad(function)(x), torch.ones_like(x))
    close(grad(lambda t: grad(function)(t).sum())(x), torch.zeros_like(x))
    with torch.no_grad():
        close(grad(lambda t: (t**2).sum())(x), 2 * x)


def test_the_pullback_outlives_its_level_and_is_differentiable(x):
    y, pull = vjp(torch.sin, x)
    close(pull(torch.ones_like(x))[0], x.cos())
    close(pull(x)[0], x * x.cos())
    close(vmap(pull)(torch.eye(3, dtype=torch.float64))[0], x.cos().diag())
    w = x.clone().requires_grad_()
    y, pull = vjp(torch.sin, w)
    (dw,) = torch.autograd.grad(pull(torch.ones_like(x))[0].sum(), w)
    close(dw, -x.sin())


def test_a_tensor_that_outlives_its_level_is_its_value(x):
    kept = []
    vmap(lambda t: kept.append(t * 2) or t)(x)
    grad(lambda t: kept.append(t * 2) or t.sum())(x)
    assert kept[0].shape == () and kept[1].tolist() == (x * 2).tolist()
    close(kept[0] + 0, x * 2)
    close(kept[1] + 0, x * 2)
    assert "Tensor(lvl" not in repr(kept[1])


def test_writes(x):
    def function(t):
        y = torch.zeros(3, dtype=torch.float64)
        y[:2] = t[1:]
        y[2].add_(t[0] * 3)
        return (y * y).sum()

    wanted = torch.stack([18 * x[0], 2 * x[1], 2 * x[2]])
    close(grad(function)(x), wanted)
    close(jvp(function, (x,), (x,))[1], (wanted * x).sum())
    close(vmap(lambda t: t.clone().mul_(2).sub_(t)[1:])(torch.stack([x, x])), torch.stack([x[1:], x[1:]]))
    with pytest.raises(RuntimeError, match="would mutate a captured Tensor"):
        grad(lambda t: x.clone().sum() + x.mul_(t).sum())(x)
    with pytest.raises(RuntimeError, match="vmapped over but `self` not being vmapped over"):
        vmap(lambda t: torch.zeros(()).add_(t))(torch.ones(3))


def test_what_is_printed(x):
    texts = []
    vmap(grad(lambda t: texts.append(repr(t)) or t))(x[:1])
    assert texts == [
        "GradTrackingTensor(lvl=2, value=\n    BatchedTensor(lvl=1, bdim=0, value=\n        "
        "tensor([0.5000], dtype=torch.float64)\n    )\n)"
    ]


def test_an_error_ends_the_level(x):
    for transform in vmap, grad, jacrev, jacfwd:
        with pytest.raises(ZeroDivisionError):
            transform(lambda t: 1 / 0)(x)
        assert torch._C._level_depth() == 0


def test_nothing_is_kept(x):
    gc.collect()
    before = torch._C._live_bytes() if hasattr(torch._C, "_live_bytes") else None
    for _ in range(3):
        vmap(hessian(lambda t: (t**3).sum()))(torch.stack([x, x]))
    gc.collect()
    assert before is None or torch._C._live_bytes() - before < 1 << 20


# ---- batches ----


def test_dims_and_trees():
    a, b = torch.arange(6.0).view(2, 3), torch.arange(3.0)
    found = vmap(lambda d, t: {"sum": d["a"] + t[0], "same": t[0]}, ({"a": 0}, (None,)), 0)({"a": a}, (b,))
    close(found["sum"], a + b)
    close(found["same"], torch.stack([b, b]))
    assert vmap(lambda t: (t, t.sum()), 1, (1, 0))(a)[0].shape == (2, 3)
    assert vmap(torch.sin, -1)(a).shape == (3, 2)
    close(vmap(torch.sin, chunk_size=2)(torch.arange(5.0)), torch.arange(5.0).sin())


def test_zero_dim_examples_promote_as_such():
    ints, half = torch.arange(3), torch.ones(3, dtype=torch.float16)
    assert vmap(lambda a: a * torch.ones(2))(ints).dtype == torch.float32
    assert vmap(lambda a, b: a * b, (0, None))(torch.ones(3, dtype=torch.float64), torch.ones(2)).dtype == torch.float32
    assert vmap(lambda a: a * torch.ones((), dtype=torch.float64))(half).dtype == torch.float64
    assert vmap(lambda a: a > 1)(ints).dtype == torch.bool


def test_random_numbers():
    zeros = torch.zeros(64)
    with pytest.raises(RuntimeError, match="randomness error mode"):
        vmap(lambda t: t + torch.rand(()))(zeros)
    for draw in (
        lambda t: t + torch.randn(3), torch.rand_like, lambda t: torch.empty_like(t).uniform_(),
        lambda t: F.dropout(t + torch.ones(8)), lambda t: torch.randperm(50) + t, lambda t: torch.bernoulli(t + 0.5),
    ):  # fmt: skip
        same, different = vmap(draw, randomness="same")(zeros), vmap(draw, randomness="different")(zeros)
        assert (same == same[0]).all()
        assert not (different == different[0]).all()
        assert same.shape == different.shape
    for rate in 0.2, 0.6:
        torch.manual_seed(1)
        whole = torch.rand(4, 3)
        torch.manual_seed(1)
        close(vmap(lambda t, rate=rate: torch.rand(3) + t, randomness="different")(torch.zeros(4)), whole)


# ---- forward mode ----


def test_dual_numbers(x):
    with fwAD.dual_level():
        y = fwAD.make_dual(x, torch.ones_like(x))
        assert fwAD.unpack_dual(x).tangent is None
        close(fwAD.unpack_dual(y.sin()).tangent, x.cos())
        close(fwAD.unpack_dual(y[1:] * 3).tangent, torch.full((2,), 3.0, dtype=torch.float64))
        assert fwAD.unpack_dual(y.detach()).tangent is None
    assert fwAD.unpack_dual(y).tangent is None
    with pytest.raises(RuntimeError, match="no level exists"):
        fwAD.make_dual(x, x)


def test_forward_over_backward_and_the_other_way_round(x):
    leaf = x.clone().requires_grad_()
    with fwAD.dual_level():
        y = fwAD.make_dual(leaf, torch.ones_like(x))
        loss = (y**3).sum()
        (gradient,) = torch.autograd.grad(loss, leaf, create_graph=True)
        close(fwAD.unpack_dual(gradient).tangent, 6 * x)
        tangent = fwAD.unpack_dual(loss).tangent
    tangent.backward()
    close(leaf.grad, 6 * x)


def test_linearize_does_not_call_again(x):
    calls = []
    y, push = linearize(lambda t: calls.append(1) or t**3, x)
    close(push(x), 3 * x**3)
    close(push(torch.ones_like(x)), 3 * x**2)
    assert len(calls) == 1


def test_complex_functions():
    z = torch.tensor([1 + 2j, -0.5 + 1j], dtype=torch.complex128)
    t = torch.tensor([0.3 - 1j, 2 + 0.1j], dtype=torch.complex128)
    close(jvp(torch.exp, (z,), (t,))[1], z.exp() * t)
    close(jvp(lambda v: v.abs(), (z,), (t,))[1], (z.conj() * t).real / z.abs())
    close(jvp(lambda v: v.conj() * v, (z,), (t,))[1], t.conj() * z + z.conj() * t)


# ---- modules ----


def test_gradients_of_each_example():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(2, 4, 3, padding=1), torch.nn.GroupNorm(2, 4), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Flatten(), torch.nn.Linear(36, 3),
    ).double()  # fmt: skip
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    images, classes = torch.randn(5, 2, 6, 6, dtype=torch.float64), torch.tensor([0, 1, 2, 1, 0])

    def loss(parameters, image, number):
        return F.cross_entropy(functional_call(model, parameters, (image.unsqueeze(0),)), number.unsqueeze(0))

    found = vmap(grad(loss), (None, 0, 0))(parameters, images, classes)
    for k in range(5):
        for name, gradient in grad(loss)(parameters, images[k], classes[k]).items():
            close(found[name][k], gradient)


def test_ensembles():
    torch.manual_seed(0)
    models = [torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2)) for _ in range(4)]
    parameters, buffers = stack_module_state(models)
    assert all(p.requires_grad and p.is_leaf for p in parameters.values())
    x = torch.randn(6, 3)
    found = vmap(lambda p, b, t: functional_call(models[0], (p, b), (t,)), (0, 0, None))(parameters, buffers, x)
    torch.testing.assert_close(found, torch.stack([m(x) for m in models]))
    found.sum().backward()
    models[1](x).sum().backward()
    torch.testing.assert_close(parameters["0.weight"].grad[1], models[1][0].weight.grad)


# ---- custom functions ----


class Doubled(torch.autograd.Function):
    """x^3, with twice its derivative, which tells who computed it."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 6 * ctx.saved_tensors[0] ** 2

    @staticmethod
    def jvp(ctx, tangent):
        return tangent * 6 * ctx.saved_tensors[0] ** 2


def test_custom_functions(x):
    close(grad(lambda t: Doubled.apply(t).sum())(x), 6 * x**2)
    close(vmap(Doubled.apply)(x), x**3)
    close(vmap(grad(Doubled.apply))(x), 6 * x**2)
    close(grad(lambda t: vmap(Doubled.apply)(t).sum())(x), 6 * x**2)
    close(grad(lambda t: grad(lambda u: Doubled.apply(u).sum())(t).sum())(x), 12 * x)
    close(jvp(Doubled.apply, (x,), (x,))[1], 6 * x**3)
    leaf = x.clone().requires_grad_()
    vmap(Doubled.apply)(leaf).sum().backward()
    close(leaf.grad, 6 * x**2)


def test_custom_functions_with_a_batch_of_their_own(x):
    class Scaled(Doubled):
        generate_vmap_rule = False

        @staticmethod
        def vmap(info, in_dims, value):
            assert info.batch_size == 3 and in_dims == (0,)
            return Scaled.apply(value) + 1, 0

    close(vmap(Scaled.apply)(x), x**3 + 1)


def test_custom_functions_that_cannot(x):
    class Old(torch.autograd.Function):
        @staticmethod
        def forward(ctx, t):
            return t

    class Plain(Doubled):
        generate_vmap_rule = False

    with pytest.raises(RuntimeError, match="must override the setup_context staticmethod"):
        grad(lambda t: Old.apply(t).sum())(x)
    with pytest.raises(RuntimeError, match="does not have vmap support"):
        vmap(Plain.apply)(x)


# ---- compiled functions ----


def test_compiled_functions_inside(x):
    both = torch.stack([x, x + 1])
    compiled = torch.compile(lambda t: t.sin() * 2)
    for _ in range(3):
        close(compiled(x), x.sin() * 2)
    close(vmap(compiled)(both), both.sin() * 2)
    close(vmap(grad(lambda t: compiled(t).sum()))(both), both.cos() * 2)
    close(jvp(compiled, (x,), (x,))[1], x.cos() * 2 * x)


def test_transforms_inside_of_compiled_functions(x):
    def function(t):
        return vmap(grad(lambda u: (u.sin() * t.sum()).sum()))(t.expand(2, 3)) + 1

    compiled = torch.compile(function)
    for shift in range(3):
        close(compiled(x + shift), function(x + shift))
