"""Pooling: values against windows read one by one, layers, errors recorded from PyTorch 2.13, and compiled code."""

import itertools
import math

import pytest

import wick as torch
import wick.nn.functional as F
from wick import nn


def windows(size, kernel, step, padding, dilation, ceil):
    """Of one dim: for each window its elements' places, those outside as None, and how many of them count as padded."""
    reach = dilation * (kernel - 1) + 1
    count = (size + 2 * padding - reach + (step - 1 if ceil else 0)) // step + 1
    count -= ceil and (count - 1) * step >= size + padding
    starts = [i * step - padding for i in range(count)]
    return [
        (
            [start + dilation * k if 0 <= start + dilation * k < size else None for k in range(kernel)],
            min(start + kernel, size + padding) - start,
        )
        for start in starts
    ]


def plane(x, per_dim):
    """Elements of every window of a tensor of the windows' dims: (place in the tensor as one, value) of those inside."""
    strides = [math.prod(x.shape[d + 1 :]) for d in range(x.dim())]
    flat = x.flatten().tolist()
    for window in itertools.product(*per_dim):
        places = itertools.product(*(elements for elements, _ in window))
        inside = [sum(i * s for i, s in zip(p, strides, strict=True)) for p in places if None not in p]
        yield [(place, flat[place]) for place in inside], math.prod(counted for _, counted in window)


CASES = [
    dict(sizes=(2, 3, 9), kernel=(3,), stride=(2,), padding=(1,)),
    dict(sizes=(2, 3, 6, 7), kernel=(2, 3), stride=(1, 2), padding=(1, 1), ceil=True),
    dict(sizes=(2, 2, 6, 7), kernel=(3, 2), stride=(2, 3), padding=(0, 0), dilation=(2, 3)),
    dict(sizes=(1, 2, 40, 37), kernel=(3, 3), stride=(2, 2), padding=(1, 1), ceil=True),
    dict(sizes=(1, 2, 5, 6, 4), kernel=(2, 3, 2), stride=(2, 1, 2), padding=(1, 1, 0)),
    dict(sizes=(1, 1, 70, 3), kernel=(50, 1), stride=(7, 1), padding=(20, 0)),
]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_window_by_window(case, dtype):
    dims, ceil = len(case["kernel"]), case.get("ceil", False)
    dilation = case.get("dilation", (1,) * dims)
    torch.manual_seed(1)
    x = torch.randint(-9, 10, case["sizes"]).to(dtype)
    per_dim = [
        windows(*numbers, ceil)
        for numbers in zip(x.shape[-dims:], case["kernel"], case["stride"], case["padding"], dilation, strict=True)
    ]
    rows = [list(plane(sub, per_dim)) for sub in x.flatten(0, 1)]
    biggest, places = getattr(F, f"max_pool{dims}d")(
        x, case["kernel"], case["stride"], case["padding"], dilation, ceil, return_indices=True
    )
    first = [[max(inside, key=lambda e: (e[1], -e[0])) for inside, _ in row] for row in rows]
    assert biggest.flatten(2).flatten(0, 1).tolist() == [[value for _, value in row] for row in first]
    assert places.flatten(2).flatten(0, 1).tolist() == [[place for place, _ in row] for row in first]
    if dilation != (1,) * dims:
        return
    for counts_padding in (True, False):
        average = getattr(F, f"avg_pool{dims}d")(
            x, case["kernel"], case["stride"], case["padding"], ceil, counts_padding
        )
        sums = [[sum(value for _, value in inside) for inside, _ in row] for row in rows]
        divisors = [[counted if counts_padding else len(inside) for inside, counted in row] for row in rows]
        expected = torch.tensor(sums, dtype=dtype) / torch.tensor(divisors, dtype=dtype)
        assert torch.equal(average.flatten(2).flatten(0, 1), expected)


def test_gradients_go_to_the_elements_of_their_windows():
    x = torch.tensor([[[1.0, 3.0, 2.0, 3.0, -1.0]]], requires_grad=True)
    y = F.max_pool1d(x, 3, 1, 1)
    (gradient,) = torch.autograd.grad(y, x, torch.tensor([[[1.0, 2.0, 4.0, 8.0, 16.0]]]))
    assert gradient.tolist() == [[[0, 7, 0, 24, 0]]]
    y = F.avg_pool1d(x, 3, 2, 1, count_include_pad=False)
    (gradient,) = torch.autograd.grad(y, x, torch.tensor([[[2.0, 3.0, 4.0]]]))
    assert gradient.tolist() == [[[1, 2, 1, 3, 2]]]


def test_a_window_of_the_lowest_values_names_a_place_inside():
    for value, dtype in ((-math.inf, torch.float32), (-128, torch.int8), (-(2**63), torch.int64)):
        values, places = F.max_pool2d(torch.full((1, 3, 3), value, dtype=dtype), 2, 2, 1, return_indices=True)
        assert values.flatten().tolist() == [value] * 4 and places.tolist() == [[[0, 1], [3, 4]]]


@pytest.mark.parametrize("even", [True, False])
def test_as_many_windows_as_are_asked_for(even):
    x = torch.arange(2 * 6 * 8.0).reshape(1, 2, 6, 8) if even else torch.arange(2 * 5 * 7.0).reshape(1, 2, 5, 7)
    borders = [
        [(i * n // o, -(-(i + 1) * n // o)) for i in range(o)] for n, o in zip(x.shape[-2:], (3, 4), strict=True)
    ]
    parts = [x[0, 1, a:b, c:d] for (a, b), (c, d) in itertools.product(*borders)]
    assert torch.allclose(F.adaptive_avg_pool2d(x, (3, 4))[0, 1].flatten(), torch.stack([p.mean() for p in parts]))
    values, places = F.adaptive_max_pool2d(x, (3, 4), return_indices=True)
    assert values[0, 1].flatten().tolist() == [p.max().item() for p in parts]
    assert torch.equal(x[0, 1].flatten()[places[0, 1]], values[0, 1])
    assert F.adaptive_avg_pool2d(x, (None, 1)).shape == (1, 2, x.shape[2], 1)


@pytest.mark.parametrize(
    "layer, text",
    [
        (nn.MaxPool2d(3, 2, 1), "MaxPool2d(kernel_size=3, stride=2, padding=1, dilation=1, ceil_mode=False)"),
        (nn.MaxPool1d(2), "MaxPool1d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)"),
        (nn.AvgPool1d(3, padding=1), "AvgPool1d(kernel_size=(3,), stride=(3,), padding=(1,))"),
        (nn.AvgPool2d((3, 2)), "AvgPool2d(kernel_size=(3, 2), stride=(3, 2), padding=0)"),
        (nn.LPPool2d(2, 3), "LPPool2d(norm_type=2, kernel_size=3, stride=None, ceil_mode=False)"),
        (nn.AdaptiveAvgPool2d((5, None)), "AdaptiveAvgPool2d(output_size=(5, None))"),
        (nn.AdaptiveMaxPool3d(2, True), "AdaptiveMaxPool3d(output_size=2)"),
    ],
)
def test_layers_print_as_in_pytorch(layer, text):
    assert repr(layer) == text


def test_layers_are_the_functions():
    x = torch.randn(2, 3, 8, 8)
    assert torch.equal(nn.MaxPool2d(2, ceil_mode=True)(x), F.max_pool2d(x, 2, ceil_mode=True))
    assert torch.equal(nn.AvgPool2d(3, 2, 1, divisor_override=4)(x), F.avg_pool2d(x, 3, 2, 1, divisor_override=4))
    assert torch.equal(nn.AdaptiveAvgPool2d(1)(x), x.mean((2, 3), keepdim=True))
    assert torch.equal(nn.AdaptiveMaxPool1d(1)(x[0])[..., 0], x[0].amax(-1))
    blocks = (x**2).reshape(2, 3, 4, 2, 4, 2)
    assert torch.allclose(nn.LPPool2d(2, 2)(x), blocks.sum((3, 5)).sqrt(), atol=1e-6)
    assert all(a.shape == (2, 3, 4, 4) for a in nn.MaxPool2d(2, return_indices=True)(x))


ERRORS = [
    (lambda x: F.avg_pool2d(x, 3, 2, 2), RuntimeError, "pad should be at most half of effective kernel size, but got pad=2, kernel_size=3 and dilation=1"),
    (lambda x: F.avg_pool2d(x, 20), RuntimeError, "Given input size: (3x8x9). Calculated output size: (3x0x0). Output size is too small"),
    (lambda x: F.avg_pool2d(x, (3, 3, 3)), RuntimeError, "avg_pool2d: kernel_size must either be a single int, or a tuple of two ints"),
    (lambda x: F.avg_pool2d(x, 3, 0), RuntimeError, "stride should not be zero"),
    (lambda x: F.avg_pool2d(x, 3, divisor_override=0), RuntimeError, "divisor must be not zero"),
    (lambda x: F.avg_pool2d(x.int(), 3), NotImplementedError, "\"avg_pool2d\" not implemented for 'Int'"),
    (lambda x: F.avg_pool3d(x, 20), RuntimeError, "input image (T: 3 H: 8 W: 9) smaller than kernel size (kT: 20 kH: 20 kW: 20)"),
    (lambda x: F.max_pool2d(x[0, 0], 3), RuntimeError, "non-empty 3D or 4D (batch mode) tensor expected for input"),
    (lambda x: F.max_pool2d(x, 3, 1, -1), RuntimeError, "pad must be non-negative, but got pad: -1"),
    (lambda x: F.max_pool2d(x, 3, dilation=(1, 1, 1)), RuntimeError, "max_pool2d: dilation must be either a single int, or a tuple of two ints"),
    (lambda x: F.max_pool2d(x > 0, 3), NotImplementedError, "\"max_pool2d\" not implemented for 'Bool'"),
    (lambda x: F.max_pool1d(x, 3), RuntimeError, "max_pool1d: Expected 2D or 3D (batch mode) tensor with optional 0 dim batch size for input, but got:[2, 3, 8, 9]"),
    (lambda x: F.max_pool1d(x[0], 3, 2, 2), RuntimeError, "max_pool1d() padding should be at most half of kernel size, but got padding=2 and kernel_size=3"),
    (lambda x: F.max_pool1d(x[0].long(), 3), NotImplementedError, "\"max_pool1d_impl\" not implemented for 'Long'"),
    (lambda x: F.adaptive_avg_pool2d(x, -1), RuntimeError, "adaptive_avg_pool2d: elements of output_size must be greater than or equal to 0 but received {-1, -1}"),
    (lambda x: F.adaptive_max_pool2d(x, -1), RuntimeError, "Trying to create tensor with negative dimension -1: [2, 3, -1, -1]"),
    (lambda x: F.adaptive_avg_pool2d(x[..., :0], 2), RuntimeError, "adaptive_avg_pool2d(): Expected input to have non-zero size for non-batch dimensions, but input has sizes [2, 3, 8, 0] with dimension 3 being empty"),
]  # fmt: skip


@pytest.mark.parametrize("call, kind, message", ERRORS)
def test_errors(call, kind, message):
    with pytest.raises(kind) as caught:
        call(torch.zeros(2, 3, 8, 9))
    assert type(caught.value) is kind and str(caught.value) == message


PROGRAMS = {
    "max": lambda x: F.max_pool2d(x, 3, 2, 1).relu() * 2,
    "average": lambda x: torch.sigmoid(F.avg_pool2d(x, 2, 2)) + 1,
    "average without padding": lambda x: F.avg_pool2d(x, 3, 2, 1, True, False).exp(),
    "one row a window": lambda x: F.avg_pool2d(x, (8, 9)).tanh(),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_done_to_the_result_is_done_in_the_same_kernel(program, dtype):
    compiled = torch.compile(program, options={"wait": True})
    for sizes in ((2, 3, 8, 9), (2, 3, 31, 50), (1, 3, 40, 70)):
        x = torch.randn(sizes).to(dtype)
        for given in (x, x.contiguous(memory_format=torch.channels_last), x.transpose(2, 3)):
            if given.shape[-1] >= 9 and given.shape[-2] >= 8:
                assert torch.equal(compiled(given), program(given)) and torch.equal(compiled(given), program(given))
    assert all(len(graph["kernels"]) == 1 and len(graph["steps"]) == 1 for graph in compiled.kernels() if graph)


def test_the_bits_do_not_depend_on_threads():
    x = torch.randn(4, 8, 33, 35, requires_grad=True)
    threads, results = torch.get_num_threads(), []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        y = F.max_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)
        results.append([*y, *torch.autograd.grad([t.sin().sum() for t in y], x)])
    torch.set_num_threads(threads)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))
