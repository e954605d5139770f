"""Cross entropy of eager calls, which is one row: bit for bit what log-softmax and the negative log likelihood give."""

import itertools

import pytest

import wick as torch

F = torch.nn.functional
REDUCTIONS = ["mean", "sum", "none"]


def by_parts(x, target, weight, reduction, ignore_index):
    return F.nll_loss(F.log_softmax(x, 1), target, weight, reduction=reduction, ignore_index=ignore_index)


def loss_and_gradient(f, x):
    x = x.detach().clone().requires_grad_()
    loss = f(x)
    loss.sum().backward()
    return loss, x.grad


def is_same(a, b):
    return torch.equal(a, b) or bool(torch.isnan(a).all() and torch.isnan(b).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rows, classes", [(5, 7), (64, 256), (3, 5000), (0, 4)])
@pytest.mark.parametrize("reduction, ignored, weighted", itertools.product(REDUCTIONS, (-100, 2), (False, True)))
def test_it_is_the_two_at_once(dtype, rows, classes, reduction, ignored, weighted):
    torch.manual_seed(0)
    x, target = torch.randn(rows, classes, dtype=dtype), torch.randint(0, classes, (rows,))
    weight = torch.rand(classes, dtype=dtype) if weighted else None
    more = {"reduction": reduction, "ignore_index": ignored}
    loss, grad = loss_and_gradient(lambda x: F.cross_entropy(x, target, weight, **more), x)
    expected, expected_grad = loss_and_gradient(lambda x: by_parts(x, target, weight, **more), x)
    assert is_same(loss, expected) and loss.dtype == dtype and is_same(grad, expected_grad)


def test_inputs_of_any_strides():
    x, target = torch.randn(40, 6).t()[:, ::2], torch.randint(0, 20, (6,))
    loss, grad = loss_and_gradient(lambda x: F.cross_entropy(x, target), x)
    expected, expected_grad = loss_and_gradient(lambda x: F.cross_entropy(x, target), x.contiguous())
    assert torch.equal(loss, expected) and torch.equal(grad, expected_grad)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_under_autocast_small_floats_are_read_as_they_lie(dtype):
    x, target = torch.randn(6, 333).to(dtype), torch.randint(0, 333, (6,))

    def under_autocast(x):
        with torch.autocast("cpu", torch.bfloat16):
            return F.cross_entropy(x, target)

    loss, grad = loss_and_gradient(under_autocast, x)
    expected, expected_grad = loss_and_gradient(lambda x: by_parts(x.float(), target, None, "mean", -100), x)
    assert loss.dtype == torch.float32 and torch.equal(loss, expected)
    assert grad.dtype == dtype and torch.equal(grad, expected_grad)


def test_under_autocast_the_rest_is_float32():
    soft, hard = torch.rand(4, 5).bfloat16(), torch.randint(0, 5, (4,))
    x, weight = torch.randn(4, 5).bfloat16(), torch.rand(5).bfloat16()
    images, places = torch.randn(2, 5, 3).bfloat16(), torch.randint(0, 5, (2, 3))
    for args, more in (
        ((x, soft), {}),
        ((x, hard), {"weight": weight}),
        ((x, hard), {"label_smoothing": 0.1}),
        ((images, places), {}),
        ((x[0], hard[0]), {}),
    ):
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(*args, **more)
        wide = [a.float() if a.is_floating_point() else a for a in args]
        expected = F.cross_entropy(*wide, **{k: v.float() if k == "weight" else v for k, v in more.items()})
        assert loss.dtype == torch.float32 and torch.equal(loss, expected)


def test_small_floats_alone_are_rounded_between_the_two():
    x, target = torch.randn(4, 9).bfloat16(), torch.randint(0, 9, (4,))
    loss, grad = loss_and_gradient(lambda x: F.cross_entropy(x, target), x)
    expected, expected_grad = loss_and_gradient(lambda x: by_parts(x, target, None, "mean", -100), x)
    assert loss.dtype == torch.bfloat16 and torch.equal(loss, expected) and torch.equal(grad, expected_grad)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_second_derivatives(reduction):
    x, target = torch.randn(4, 5, dtype=torch.float64, requires_grad=True), torch.tensor([0, 4, -100, 2])
    weight = torch.rand(5, dtype=torch.float64)
    f = lambda x: F.cross_entropy(x, target, weight, reduction=reduction)  # noqa: E731
    assert torch.autograd.gradcheck(f, x) and torch.autograd.gradgradcheck(f, x)


def test_a_derivative_of_the_gradient_alone():
    """What came into the gradient is a number."""
    x, target = torch.randn(3, 4, dtype=torch.float64, requires_grad=True), torch.tensor([0, 3, 1])

    def slope(loss):
        (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), x)[0]

    expected = slope(-x.log_softmax(1).gather(1, target[:, None]).mean())
    torch.testing.assert_close(slope(F.cross_entropy(x, target)), expected)


def test_other_ways_to_call_it():
    x, target = torch.randn(2, 3, 4), torch.randint(0, 4, (2, 3))
    each = torch.stack([F.cross_entropy(a, t) for a, t in zip(x, target, strict=True)])
    assert torch.equal(torch.func.vmap(F.cross_entropy)(x, target), each)
    assert torch.equal(torch.compile(F.cross_entropy)(x[0], target[0]), each[0])
    hessian = torch.func.hessian(lambda x: F.cross_entropy(x, target[0]))(x[0])
    assert hessian.shape == (3, 4, 3, 4)
    loss = F.cross_entropy(x[0].requires_grad_(), target[0])
    assert loss.grad_fn.name() == "NllLossBackward0"


@pytest.mark.parametrize(
    "target, error, words",
    [
        (torch.tensor([1, 2, 4]), IndexError, "Target 4 is out of bounds."),
        (torch.tensor([1, 2]), ValueError, r"Expected input batch_size \(3\) to match target batch_size \(2\)."),
        (
            torch.tensor([1, 2, 3], dtype=torch.int32),
            RuntimeError,
            "expected target dtype to be Long or Byte, but got Int",
        ),
    ],
)
def test_errors(target, error, words):
    with pytest.raises(error, match=words):
        F.cross_entropy(torch.randn(3, 4), target)
