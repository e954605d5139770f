"""Activations: values, in-place forms on the tape, dtypes, out=. Numbers and messages are PyTorch's."""

import pytest

import wick
from wick.nn import functional as F

INPUT = [-4.0, -1.0, 0.0, 0.3, 0.5, 2.0, 3.0, 6.0, 7.0]
# name, arguments: (values, gradient of sum(y * arange(9)))
EXPECTED = {
    "relu": (
        [0.0, 0.0, 0.0, 0.3, 0.5, 2.0, 3.0, 6.0, 7.0],
        [0.0, 0.0, 0.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
    ),
    "relu6": (
        [0.0, 0.0, 0.0, 0.3, 0.5, 2.0, 3.0, 6.0, 6.0],
        [0.0, 0.0, 0.0, 3.0, 4.0, 5.0, 6.0, 0.0, 0.0],
    ),
    "hardtanh": (
        [-1.0, -1.0, 0.0, 0.3, 0.5, 1.0, 1.0, 1.0, 1.0],
        [0.0, 0.0, 2.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0],
    ),
    "threshold 0.1 0.2": (
        [0.2, 0.2, 0.2, 0.3, 0.5, 2.0, 3.0, 6.0, 7.0],
        [0.0, 0.0, 0.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
    ),
    "elu": (
        [-0.98168, -0.63212, 0.0, 0.3, 0.5, 2.0, 3.0, 6.0, 7.0],
        [0.0, 0.36788, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
    ),
    "celu 2.0": (
        [-1.72933, -0.78694, 0.0, 0.3, 0.5, 2.0, 3.0, 6.0, 7.0],
        [0.0, 0.60653, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
    ),
    "selu": (
        [-1.7259, -1.11133, 0.0, 0.31521, 0.52535, 2.1014, 3.1521, 6.30421, 7.35491],
        [0.0, 0.64677, 3.5162, 3.1521, 4.2028, 5.25351, 6.30421, 7.35491, 8.40561],
    ),
    "leaky_relu": (
        [-0.04, -0.01, 0.0, 0.3, 0.5, 2.0, 3.0, 6.0, 7.0],
        [0.0, 0.01, 0.02, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
    ),
    "rrelu": (
        [-0.91667, -0.22917, 0.0, 0.3, 0.5, 2.0, 3.0, 6.0, 7.0],
        [0.0, 0.22917, 0.45833, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
    ),
    "silu": (
        [-0.07194, -0.26894, 0.0, 0.17233, 0.31123, 1.76159, 2.85772, 5.98516, 6.99362],
        [-0.0, 0.07233, 1.0, 1.94334, 2.95984, 5.45392, 6.52862, 7.08628, 8.04368],
    ),
    "mish": (
        [-0.07259, -0.3034, 0.0, 0.208, 0.37525, 1.94396, 2.98654, 5.99993, 6.99999],
        [-0.0, 0.05922, 1.2, 2.34848, 3.5457, 5.34659, 6.12664, 7.00094, 8.00017],
    ),
    "hardsigmoid": (
        [0.0, 0.33333, 0.5, 0.55, 0.58333, 0.83333, 1.0, 1.0, 1.0],
        [0.0, 0.16667, 0.33333, 0.5, 0.66667, 0.83333, 0.0, 0.0, 0.0],
    ),
    "hardswish": (
        [-0.0, -0.33333, 0.0, 0.165, 0.29167, 1.66667, 3.0, 6.0, 7.0],
        [0.0, 0.16667, 1.0, 1.8, 2.66667, 5.83333, 6.0, 7.0, 8.0],
    ),
}


def near(t, values):
    return wick.allclose(t.detach(), wick.tensor(values), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("call", EXPECTED)
def test_values_and_gradients(call, inplace):
    """In place, too: a MobileNet, say, trains with relu6 and hardswish in their in-place forms."""
    name, *numbers = call.split()
    values, gradient = EXPECTED[call]
    x = wick.tensor(INPUT, requires_grad=True)
    given = x * 1.0
    y = getattr(F, name)(given, *map(float, numbers), inplace=inplace)
    assert (y is given) == inplace
    (y * wick.arange(9.0)).sum().backward()
    assert near(y, values)
    assert near(x.grad, gradient)


@pytest.mark.parametrize("call", EXPECTED)
def test_inplace_on_a_view_and_on_a_leaf(call):
    name, *numbers = call.split()
    values, gradient = EXPECTED[call]
    function, numbers = getattr(F, name), [float(n) for n in numbers]
    x = wick.tensor(INPUT, requires_grad=True)
    whole = x * 1.0
    function(whole[2:], *numbers, inplace=True)
    (whole * wick.arange(9.0)).sum().backward()
    assert near(whole, INPUT[:2] + values[2:])
    assert near(x.grad, [0.0, 1.0] + gradient[2:])
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place"):
        function(x, *numbers, inplace=True)


@pytest.mark.parametrize(
    ("function", "arguments", "words"),
    [
        ("leaky_relu_", (-0.5,), "In-place leakyReLu backward calculation is triggered with a negative slope"),
        ("rrelu_", (-0.5, -0.5), "In-place leakyReLu backward calculation is triggered with a negative slope"),
        ("elu_", (-0.5,), "In-place elu backward calculation is triggered with a negative slope"),
        ("celu_", (-0.5,), "In-place elu backward calculation is triggered with a negative slope"),
    ],
)
def test_a_negative_slope_in_place_has_no_derivative(function, arguments, words):
    x = wick.tensor([-1.0, 2.0], requires_grad=True)
    y = getattr(F, function)(x * 2, *arguments)
    with pytest.raises(RuntimeError, match=words):
        y.sum().backward()
    getattr(F, function[:-1])(x * 2, *arguments).sum().backward()  # the other form has one


def test_names_of_arguments_of_the_inplace_functions():
    def t():
        return wick.tensor([-1.0, 1.0])

    assert near(F.elu_(t(), alpha=2.0), [-1.26424, 1.0])
    assert near(F.celu_(t(), alpha=2.0), [-0.78694, 1.0])
    assert near(F.hardtanh_(t(), min_val=-2.0, max_val=0.5), [-1.0, 0.5])
    assert near(F.threshold_(t(), threshold=0.5, value=3.0), [3.0, 1.0])
    assert near(F.rrelu_(t(), lower=0.5, upper=0.5), [-0.5, 1.0])
    assert near(F.leaky_relu_(input=t(), negative_slope=0.5), [-0.5, 1.0])


def test_functions_of_the_package_and_methods():
    t = wick.tensor([-1.0, 1.0, 0.3])
    assert near(wick.hardshrink(t, lambd=0.5), [-1.0, 1.0, 0.0])
    assert near(t.hardshrink(0.5), [-1.0, 1.0, 0.0])
    assert near(t.prelu(wick.tensor([0.5])), [-0.5, 1.0, 0.3])
    assert near(wick.celu(t, 0.5), [-0.43233, 1.0, 0.3])
    assert near(wick.selu(t), [-1.11133, 1.0507, 0.31521])
    assert near(wick.rrelu(t), [-0.22917, 1.0, 0.3])
    assert near(wick.threshold(t, 0.5, 0.2), [0.2, 1.0, 0.2])
    for name in ("hardtanh", "elu", "mish", "hardswish", "relu6"):  # of nn.functional alone
        assert not hasattr(wick, name)


@pytest.mark.parametrize(
    ("name", "value"),
    [("hardshrink", 0.7), ("softshrink", 0.2), ("logsigmoid", -0.40319), ("softplus", 1.10319), ("gelu", 0.53063)],
)
def test_out(name, value):
    t = wick.full((2, 2), 0.7)
    out = wick.zeros(3)
    assert getattr(F, name)(t, out=out) is out
    assert near(out, [[value, value], [value, value]])
    words = "Found dtype Double but expected Float"
    if name == "logsigmoid":
        words = "expected scalar type Float but found Double"
    with pytest.raises(RuntimeError, match=words):
        getattr(F, name)(t, out=wick.zeros(2, 2, dtype=wick.float64))


@pytest.mark.parametrize("name", ["elu", "celu", "selu", "leaky_relu", "rrelu", "mish", "hardsigmoid", "hardswish"])
def test_integers_have_no_kernel(name):
    kernel = {"celu": "elu", "selu": "elu", "rrelu": "leaky_relu"}.get(name, name)
    for t, kind in ((wick.tensor([1, -1]), "Long"), (wick.tensor([True]), "Bool")):
        with pytest.raises(NotImplementedError, match=f"\"{kernel}_cpu\" not implemented for '{kind}'"):
            getattr(F, name)(t)


def test_integers_that_have():
    t = wick.tensor([-4, -1, 0, 2, 7])
    assert F.relu6(t).tolist() == [0, 0, 0, 2, 6]
    assert F.hardtanh(t, -1.5, 2.5).tolist() == [-1, -1, 0, 2, 2]
    assert F.threshold(t, 0.5, 9.5).tolist() == [9, 9, 9, 2, 7]
    assert F.hardtanh(t).dtype == F.threshold(t, 1, 2).dtype == wick.int64
    with pytest.raises(RuntimeError, match="Bool inputs not supported for hardtanh"):
        F.hardtanh(wick.tensor([True]))
    with pytest.raises(RuntimeError, match="cannot do hardtanh on an unsigned type with negative limits"):
        F.hardtanh(t.to(wick.uint8))


def test_softshrink_checks_its_number():
    words = r"lambda must be in range \[0, 3.40282e\+38\] for input dtype Float, but found -1"
    with pytest.raises(RuntimeError, match=words):
        F.softshrink(wick.ones(2), -1)


def test_celu_checks_its_number():
    with pytest.raises(RuntimeError, match="ZeroDivisionError: alpha cannot be 0 for CELU"):
        F.celu(wick.ones(2), 0.0)


def test_prelu_checks_its_weights():
    x = wick.ones(3, 2)
    for given, weight, words in (
        (x, wick.ones(3), "Found parameter numbers = 3 and channel size = 2."),
        (wick.ones(3), wick.ones(2), "Found parameter numbers = 2 and channel size = 1."),
        (wick.tensor(1.0), wick.ones(2), "Not allow zero-dim input tensor."),
        (x, wick.ones(1, 2), "Expected `weight` to be a scalar or 1D tensor, but got: ndim = 2"),
        (x, wick.ones(1, dtype=wick.float64), "Type promoting not supported. Got Float and Double"),
    ):
        with pytest.raises(RuntimeError) as error:
            F.prelu(given, weight)
        assert words in str(error.value)
    assert F.prelu(wick.tensor(-1.0), wick.tensor([0.5])).shape == ()


def test_rrelu_draws_for_what_is_not_positive():
    wick.manual_seed(3)
    x = wick.tensor([-1.0, -2.0, 3.0, -4.0], requires_grad=True)
    y = F.rrelu(x, 0.1, 0.5, training=True)
    y.sum().backward()
    assert near(y, [-0.11364, -0.42939, 3.0, -1.63666])
    assert near(x.grad, [0.11364, 0.21470, 1.0, 0.40917])
    wick.manual_seed(3)
    z = F.rrelu(x * 1, 0.1, 0.5, training=True, inplace=True)
    assert z.tolist() == y.tolist()
    with pytest.raises(RuntimeError, match="Lower bound should be less than or equal to the upper bound"):
        F.rrelu(x, 0.5, 0.1, training=True)
    with pytest.raises(NotImplementedError, match="\"rrelu_with_noise_out_cpu\" not implemented for 'Long'"):
        F.rrelu(wick.tensor([1]), training=True)


@pytest.mark.parametrize("call", EXPECTED)
def test_compiled(call):
    name, *numbers = call.split()
    numbers = [float(n) for n in numbers]

    def step(x):
        y = getattr(F, name)(x * 1.0, *numbers, inplace=True)
        (y * wick.arange(9.0)).sum().backward()
        return y

    eager, compiled = (wick.tensor(INPUT, requires_grad=True) for _ in range(2))
    graph = wick.compile(step)
    for _ in range(2):
        eager.grad = compiled.grad = None
        assert step(eager).tolist() == graph(compiled).tolist()
        assert eager.grad.tolist() == compiled.grad.tolist()


def test_dropout_in_place():
    x = wick.ones(3, requires_grad=True)
    for function in (F.dropout, F.alpha_dropout, F.feature_alpha_dropout):
        assert function(x, 0.0, True, inplace=True) is x  # there is nothing to write
    with pytest.raises(RuntimeError, match="Feature dropout requires at least 2 dimensions in the input"):
        with pytest.warns(UserWarning, match="Received a 1-D input to dropout2d"):
            F.dropout2d(wick.ones(3), inplace=True)
    for function in (F.dropout, F.alpha_dropout, F.dropout1d):
        given = [wick.ones(2, 4, requires_grad=True) for _ in range(2)]
        results = []
        for t, inplace in zip(given, (False, True), strict=True):
            wick.manual_seed(5)
            results.append(function(t * 2, 0.5, True, inplace=inplace))
            (results[-1] * wick.arange(4.0)).sum().backward()
        assert results[0].tolist() == results[1].tolist()
        assert given[0].grad.tolist() == given[1].grad.tolist()
