"""nn.functional.pad, constant_pad_nd and the padding layers: values, gradients and errors recorded from PyTorch 2.13."""

import pytest

import wick as torch
import wick.nn.functional as F

X = [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]]

VALUES = [  # (padding, mode, value, the first row or all rows of the result)
    ((1, 2), "constant", None, [[0, 0, 1, 2, 3, 0, 0], [0, 4, 5, 6, 7, 0, 0]]),
    ((1, -2, 1, 0), "constant", 9.5, [[9.5, 9.5, 9.5], [9.5, 0, 1], [9.5, 4, 5]]),
    ((-3, -1), "constant", 1.0, [[], []]),
    ((2, 3), "reflect", None, [[2, 1, 0, 1, 2, 3, 2, 1, 0], [6, 5, 4, 5, 6, 7, 6, 5, 4]]),
    ((-2, 2), "reflect", None, [[2, 3, 2, 1], [6, 7, 6, 5]]),
    ((2, 5), "replicate", 0.0, [[0, 0, 0, 1, 2, 3, 3, 3, 3, 3, 3], [4, 4, 4, 5, 6, 7, 7, 7, 7, 7, 7]]),
    ((-2, 3), "replicate", None, [[2, 3, 3, 3, 3], [6, 7, 7, 7, 7]]),
    ((4, 1), "circular", None, [[0, 1, 2, 3, 0, 1, 2, 3, 0], [4, 5, 6, 7, 4, 5, 6, 7, 4]]),
    ((-1, 2), "circular", None, [[1, 2, 3, 1, 2], [5, 6, 7, 5, 6]]),
]


@pytest.mark.parametrize("padding, mode, value, rows", VALUES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32])
def test_values(padding, mode, value, rows, dtype):
    y = F.pad(torch.tensor(X, dtype=dtype), padding, mode, value)
    assert y.dtype == dtype
    assert y.tolist() == [[dtype.is_floating_point and x or int(x) for x in row] for row in rows]


def test_gradients_of_borders_come_together():
    x = torch.tensor(X, requires_grad=True)
    weights = torch.arange(18.0).reshape(2, 9)
    (gradient,) = torch.autograd.grad(F.pad(x, (2, 3), "reflect"), x, weights)
    assert gradient.tolist() == [[10, 11, 10, 5], [28, 38, 37, 14]]
    (gradient,) = torch.autograd.grad(F.pad(x, (2, 3), "replicate"), x, weights)
    assert gradient.tolist() == [[3, 3, 4, 26], [30, 12, 13, 62]]
    (gradient,) = torch.autograd.grad(F.pad(x, (2, 3), "circular"), x, weights)
    assert gradient.tolist() == [[8, 10, 12, 6], [26, 28, 39, 24]]
    (gradient,) = torch.autograd.grad(F.pad(x, (1, -2, 1, 0), value=3.0), x, torch.arange(9.0).reshape(3, 3))
    assert gradient.tolist() == [[4, 5, 0, 0], [7, 8, 0, 0]]


@pytest.mark.parametrize(
    "mode, name",
    [("constant", "ConstantPadNd"), ("reflect", "ReflectionPad1D"), ("replicate", "ReplicationPad1D")],
)
def test_one_node_on_the_tape(mode, name):
    x = torch.tensor(X, requires_grad=True)
    assert F.pad(x, (1, 1), mode).grad_fn.name() == name + "Backward0"


def test_result_is_always_new_memory():
    x = torch.tensor(X)
    y = F.pad(x, (0, 0))
    y.zero_()
    assert x.tolist() == X


COMBINATIONS = (
    "\nSupported combinations for non-constant padding:\n"
    "  - 2D or 3D input: padding size = 2 (pads last dimension)\n"
    "  - 3D or 4D input: padding size = 4 (pads last 2 dimensions)\n"
    "  - 4D or 5D input: padding size = 6 (pads last 3 dimensions)"
)

ERRORS = [  # (size, arguments of pad, error, text)
    ((2, 3, 4), ((1,),), RuntimeError, "Padding length must be divisible by 2"),
    (
        (2, 3, 4),
        ((1,) * 8,),
        RuntimeError,
        "Padding length should be less than or equal to two times the input dimension but got padding length 8 and "
        "input of dimension 3",
    ),
    ((2, 3, 4), ((-3, -2),), RuntimeError, "narrow(): length must be non-negative."),
    ((2, 3, 4), ((1, 1), "foo"), NotImplementedError, "Unrecognised padding mode foo"),
    ((2, 3, 4), ((1, 1), "reflect", 1.0), RuntimeError, 'Padding mode "reflect" doesn\'t take in value argument'),
    (
        (2, 3, 4),
        ((1, 1, 3, 1), "reflect"),
        RuntimeError,
        "Argument #6: Padding size should be less than the corresponding input dimension, but got: padding (3, 1) at "
        "dimension 1 of input [2, 3, 4]",
    ),
    (
        (2, 3, 4),
        ((1,) * 6, "circular"),
        NotImplementedError,
        "Padding size 6 is not supported for 3D input tensor." + COMBINATIONS,
    ),
    (
        (4,),
        ((1, 1), "reflect"),
        NotImplementedError,
        "Padding size 2 is not supported for 1D input tensor." + COMBINATIONS,
    ),
    ((2, 3, 4), ((5, 1), "circular"), RuntimeError, "Padding value causes wrapping around more than once."),
    ((2, 3, 4), ((0, -5), "circular"), RuntimeError, "Negative padding value is resulting in an empty dimension"),
    (
        (2, 0, 4),
        ((1, 1), "reflect"),
        RuntimeError,
        "Expected 2D or 3D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for input, but "
        "got: [2, 0, 4]",
    ),
    ((2, 3, 4), ((-2, -2), "replicate"), RuntimeError, "input (W: 4) is too small. Calculated output W: 0"),
    (
        (1, 2, 3, 4),
        ((-2, -2, -2, -1), "replicate"),
        RuntimeError,
        "input (H: 3, W: 4 ) is too small. Calculated output H: 0 W: 0",
    ),
    (
        (4, 4, 4, 4, 2),
        ((-1, -2, 2, 0, -2, 1), "replicate"),
        RuntimeError,
        "Trying to create tensor with negative dimension -1: [4, 4, 3, 6, -1]",
    ),
]


@pytest.mark.parametrize("size, arguments, error, text", ERRORS)
def test_errors(size, arguments, error, text):
    with pytest.raises(error) as caught:
        F.pad(torch.zeros(size), *arguments)
    assert str(caught.value) == text


def test_errors_of_the_operators():
    x = torch.zeros(2, 3)
    with pytest.raises(RuntimeError, match="^Length of pad must be even but instead it equals 1$"):
        torch.constant_pad_nd(x, (1,))
    with pytest.raises(RuntimeError, match="Pad length is 6while the input has 2dimensions."):
        torch.constant_pad_nd(x, (1,) * 6)
    with pytest.raises(NotImplementedError, match="\"reflection_pad1d\" not implemented for 'Bool'"):
        F.pad(x > 0, (1, 1), "reflect")


LAYERS = [  # (layer, input's size, output's size, repr)
    (lambda: torch.nn.ConstantPad1d(1, 2.5), (2, 3, 4), (2, 3, 6), "ConstantPad1d(padding=(1, 1), value=2.5)"),
    (lambda: torch.nn.ZeroPad2d((1, 0, 2, -1)), (2, 3, 4), (2, 4, 5), "ZeroPad2d((1, 0, 2, -1))"),
    (lambda: torch.nn.ReflectionPad2d(1), (2, 3, 4), (2, 5, 6), "ReflectionPad2d((1, 1, 1, 1))"),
    (lambda: torch.nn.ReplicationPad3d(1), (1, 2, 2, 2), (1, 4, 4, 4), "ReplicationPad3d((1, 1, 1, 1, 1, 1))"),
    (lambda: torch.nn.CircularPad1d((2, 1)), (3, 4), (3, 7), "CircularPad1d((2, 1))"),
]


@pytest.mark.parametrize("make, size, padded, text", LAYERS)
def test_layers(make, size, padded, text):
    layer = make()
    assert layer(torch.zeros(size)).shape == padded
    assert repr(layer) == text


def test_circular_layer_checks_its_input():
    with pytest.raises(ValueError, match=r"^expected 3D or 4D input \(got 2D input\)$"):
        torch.nn.CircularPad2d(1)(torch.zeros(3, 4))


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_compiled_with_sizes_that_change(mode):
    compiled = torch.compile(lambda x: F.pad(x * 2, (1, 2), mode).sin())
    for columns in (4, 5, 6, 9):
        x = torch.arange(3.0 * columns).reshape(3, columns).requires_grad_()
        y, z = compiled(x), F.pad(x * 2, (1, 2), mode).sin()
        assert y.tolist() == z.tolist()
        (a,), (b,) = torch.autograd.grad(y.sum(), x), torch.autograd.grad(z.sum(), x)
        assert a.tolist() == b.tolist()


@pytest.mark.parametrize(
    "pad, value", [((1, 2), 0), ((2, -1, 0, 3), 1.5), ((-1, -1), 0), ((0, 0, 1, 1, 2, 0), -float("inf"))]
)
def test_constant_padding_is_part_of_the_kernels_around_it(pad, value):
    def program(x):
        return torch.softmax(F.pad(x, pad, value=value) * 2, -1)

    compiled = torch.compile(program, options={"wait": True})
    for sizes in ((2, 5, 7), (2, 6, 9), (3, 2, 40)):
        for dtype in (torch.float32, torch.bfloat16):
            x = torch.randn(sizes).to(dtype)
            expected = program(x)
            assert torch.equal(compiled(x), expected) or bool(expected.isnan().any())
            assert torch.equal(compiled(x.transpose(0, 1)), program(x.transpose(0, 1))) or bool(expected.isnan().any())
    assert all(len(graph["kernels"]) == 1 and not graph["steps"][1:] for graph in compiled.kernels() if graph)


def test_a_padding_value_that_the_dtype_cannot_hold():
    with pytest.raises(RuntimeError, match="value cannot be converted to type uint8_t without overflow"):
        F.pad(torch.zeros(3, dtype=torch.uint8), (1, 1), value=300)
    assert F.pad(torch.ones(2, dtype=torch.int32), (1, 0), value=2.7).tolist() == [2, 1, 1]
    assert F.pad(torch.ones(2, dtype=torch.bool), (1, 0), value=3).tolist() == [True, True, True]
