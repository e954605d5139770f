"""Batch normalisation: values, running statistics, gradients, checks. Numbers and messages are PyTorch's."""

import pytest

import wick
from wick.nn import functional as F


def near(t, values, atol=2e-5):
    return wick.allclose(t.detach().float(), wick.tensor(values), rtol=2e-4, atol=atol)


def given():
    x = (wick.arange(12.0).view(2, 3, 2) ** 1.5).requires_grad_()
    weight, bias = (wick.tensor([1.0, 2.0, 3.0], requires_grad=True) for _ in range(2))
    return x, wick.zeros(3), wick.ones(3), weight, bias


def test_training():
    x, mean, var, weight, bias = given()
    y = F.batch_norm(x, mean, var, weight, bias, training=True)
    assert y.grad_fn.name() == "NativeBatchNormBackward0"
    (y * wick.arange(12.0).view(2, 3, 2)).sum().backward()
    first = [[-0.04645, 0.07588], [-0.19649, 0.25244], [-0.34323, 0.42605]]
    second = [[1.75143, 2.21914], [3.55749, 4.38656], [5.37080, 6.54639]]
    assert near(y, [first, second])
    assert near(mean, [0.85543, 1.44130, 2.18215])
    assert near(var, [9.80986, 15.73539, 21.40963])
    first = [[-0.04033, 0.03666], [-0.03102, 0.02929], [-0.02724, 0.02611]]
    second = [[0.02734, -0.02367], [0.02545, -0.02372], [0.02368, -0.02255]]
    assert near(x.grad, [first, second])
    assert near(weight.grad, [12.11843, 12.15166, 12.15852])
    assert near(bias.grad, [14.0, 22.0, 30.0])


def test_evaluation():
    x, mean, var, weight, bias = given()
    y = F.batch_norm(x, mean, var, weight, bias)
    (y * wick.arange(12.0).view(2, 3, 2)).sum().backward()
    first = [[1.0, 1.99999], [7.65683, 12.39225], [26.99988, 36.54085]]
    second = [[15.69687, 19.52017], [47.25461, 55.99973], [97.86785, 112.44807]]
    assert near(y, [first, second])
    assert mean.tolist() == [0, 0, 0]
    assert var.tolist() == [1, 1, 1]
    first = [[0.0, 0.99999], [3.99998, 5.99997], [11.99994, 14.99993]]
    second = [[5.99997, 6.99996], [15.99992, 17.99991], [29.99985, 32.99983]]
    assert near(x.grad, [first, second])
    assert near(weight.grad, [218.82236, 445.26242, 805.43695])


def test_momentum_and_eps():
    x, mean, var, _, _ = given()
    y = F.batch_norm(x, mean, var, training=True, momentum=0.3, eps=0.1)
    assert near(y[0], [[-1.04567, -0.92343], [-1.09775, -0.87339], [-1.11405, -0.85771]])
    assert near(mean, [2.56629, 4.32390, 6.54645])
    assert near(var, [27.42959, 45.20618, 62.22890])


def test_without_statistics_that_run_along():
    x, _, _, weight, bias = given()
    y = F.batch_norm(x, None, None, weight, bias, training=True)
    assert near(y[0], [[-0.04645, 0.07588], [-0.19649, 0.25244], [-0.34323, 0.42605]])


def test_half_precision_beside_float():
    x, mean, var, weight, bias = given()
    y = F.batch_norm(x.detach().bfloat16(), mean, var, weight, bias, training=True)
    assert y.dtype == wick.bfloat16
    assert near(y[0], [[-0.04663, 0.07568], [-0.19531, 0.25195], [-0.34375, 0.42773]], 1e-3)
    assert near(mean, [0.85469, 1.44102, 2.18281])
    assert near(var, [9.79255, 15.73962, 21.42275])


@pytest.mark.parametrize("training", [False, True])
def test_second_derivative(training):
    wick.manual_seed(0)
    x = wick.randn(4, 3, 2, dtype=wick.float64, requires_grad=True)
    weight, bias = (wick.randn(3, dtype=wick.float64, requires_grad=True) for _ in range(2))
    mean, var = wick.zeros(3, dtype=wick.float64), wick.ones(3, dtype=wick.float64)

    def f(x, weight, bias):
        return F.batch_norm(x, mean.clone(), var.clone(), weight, bias, training)

    assert wick.autograd.gradcheck(f, (x, weight, bias))
    assert wick.autograd.gradgradcheck(f, (x, weight, bias))


def test_no_elements_change_nothing():
    _, mean, var, weight, bias = given()
    for shape in ((0, 3), (2, 3, 0)):
        assert F.batch_norm(wick.ones(shape), mean, var, weight, bias, training=True).shape == shape
    assert mean.tolist() == [0, 0, 0]
    assert var.tolist() == [1, 1, 1]


def test_layout_is_kept():
    _, mean, var, _, _ = given()
    x = wick.arange(24.0).view(2, 3, 2, 2).sin().to(memory_format=wick.channels_last)
    assert F.batch_norm(x, mean, var, training=True).stride() == (12, 1, 6, 3)
    assert near(mean, [0.04270, -0.03986, 0.00940])


def test_checks():
    x, mean, var, weight, bias = given()
    for arguments, training, kind, words in (
        ((x, None, None, weight, bias), False, RuntimeError, "running_mean must be defined in evaluation mode"),
        ((x, mean, None, weight, bias), False, RuntimeError, "running_var must be defined in evaluation mode"),
        ((x, mean, None, weight, bias), True, ValueError, "running_mean and running_var must either both be None or"),
        ((x, mean[:2], var, weight, bias), True, RuntimeError, "running_mean should contain 3 elements not 2"),
        ((x, mean, var, weight[:2], bias), True, RuntimeError, "weight should contain 3 elements not 2"),
        ((wick.ones(3), mean, var), False, RuntimeError, "running_mean should contain 0 elements not 3"),
        ((x[:1, :, :1], mean, var), True, ValueError, "Expected more than 1 value per channel when training, got in"),
        ((x.detach().long(), mean, var), True, NotImplementedError, "\"batch_norm\" not implemented for 'Long'"),
    ):
        with pytest.raises(kind) as error:
            F.batch_norm(*arguments, training=training)
        assert words in str(error.value)


def test_function_of_the_package():
    x, mean, var, weight, bias = given()
    y = wick.batch_norm(x, weight, bias, mean, var, True, 0.1, 1e-5, False)
    assert near(y[0], [[-0.04645, 0.07588], [-0.19649, 0.25244], [-0.34323, 0.42605]])


def test_compiled_steps_update_the_statistics():
    def step(x, mean, var, weight, bias):
        y = F.batch_norm(x, mean, var, weight, bias, training=True)
        (y * wick.arange(12.0).view(2, 3, 2)).sum().backward()
        return y

    eager, compiled, graph = given(), given(), wick.compile(step)
    for _ in range(3):
        assert step(*eager).tolist() == graph(*compiled).tolist()
    for a, b in zip(eager, compiled, strict=True):
        assert a.tolist() == b.tolist()
        assert a.grad is None or a.grad.tolist() == b.grad.tolist()


@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "channels last"])
def test_statistics_and_what_uses_them_are_one_kernel(last):
    def program(x, weight, bias):
        return F.batch_norm(x, None, None, weight, bias, True).relu()

    x, weight, bias = wick.randn(4, 3, 6, 5), wick.randn(3), wick.randn(3)
    x = x.contiguous(memory_format=wick.channels_last) if last else x
    compiled = wick.compile(program, options={"wait": True})
    assert all(wick.equal(compiled(x, weight, bias), program(x, weight, bias)) for _ in range(3))
    (graph,) = [graph for graph in compiled.kernels() if graph]
    assert len(graph["kernels"]) == 1 and len(graph["steps"]) == 1


def test_the_steps_that_processes_share():
    """Statistics of two parts, put together, normalise the whole as batch_norm does; so do the sums of the backward pass."""
    wick.manual_seed(0)
    x, weight, bias = wick.randn(6, 3, 4), wick.rand(3) + 0.5, wick.randn(3)
    running = [wick.zeros(3), wick.ones(3)], [wick.zeros(3), wick.ones(3)]
    whole = x.clone().requires_grad_()
    expected = wick.nn.functional.batch_norm(whole, *running[0], weight, bias, True, 0.1, 1e-5)
    gradient = wick.randn_like(expected)
    expected.backward(gradient)
    parts, grads = (x[:2], x[2:]), (gradient[:2], gradient[2:])
    mean, invstd = map(wick.stack, zip(*(wick.batch_norm_stats(p, 1e-5) for p in parts), strict=True))
    counts = wick.tensor([8.0, 16.0])
    mean, invstd = wick.batch_norm_gather_stats_with_counts(x, mean, invstd, *running[1], 0.1, 1e-5, counts)
    found = wick.cat([wick.batch_norm_elemt(p, weight, bias, mean, invstd, 1e-5) for p in parts])
    wick.testing.assert_close(found, expected.detach())
    wick.testing.assert_close(running[1], running[0])
    sums = [
        wick.batch_norm_backward_reduce(g, p, mean, invstd, weight, True, True, True)
        for g, p in zip(grads, parts, strict=True)
    ]
    dy, xmu = (sum(s[k] for s in sums) for k in (0, 1))
    found = wick.cat(
        [
            wick.batch_norm_backward_elemt(g, p, mean, invstd, weight, dy, xmu, counts)
            for g, p in zip(grads, parts, strict=True)
        ]
    )
    wick.testing.assert_close(found, whole.grad)
    both = wick.batch_norm_gather_stats(x, mean.expand(2, 3), invstd.expand(2, 3), None, None, 0.1, 1e-5, 12)
    wick.testing.assert_close(both, (mean, invstd))
    weight.requires_grad_(), bias.requires_grad_()
    wick.nn.functional.batch_norm(x, None, None, weight, bias, True, 0.1, 1e-5).backward(gradient)
    wick.testing.assert_close([sum(s[k] for s in sums) for k in (2, 3)], [weight.grad, bias.grad])
