"""Convolutions: values by their definition as patches and a product, gradients, forms, layouts, dtypes, errors, layers."""

import pytest

import wick as torch
import wick.nn as nn
import wick.nn.functional as F

CL = torch.channels_last


def by_patches(x, w, b, stride, padding, dilation, groups):
    """conv2d as unfold and a matrix product."""
    n, parts = x.shape[0], []
    places = [
        (x.shape[d + 2] + 2 * padding[d] - dilation[d] * (w.shape[d + 2] - 1) - 1) // stride[d] + 1 for d in (0, 1)
    ]
    for xs, ws in zip(x.chunk(groups, 1), w.chunk(groups, 0), strict=True):
        columns = F.unfold(xs, tuple(w.shape[2:]), dilation, padding, stride)
        parts.append((ws.reshape(ws.shape[0], -1) @ columns).view(n, ws.shape[0], *places))
    y = torch.cat(parts, 1)
    return y if b is None else y + b.view(-1, 1, 1)


CASES = [
    # in, out, size, kernel, stride, padding, dilation, groups
    (3, 4, (9, 7), (3, 3), (1, 1), (1, 1), (1, 1), 1),
    (4, 6, (9, 8), (3, 2), (2, 1), (0, 2), (2, 1), 2),
    (5, 5, (12, 11), (5, 3), (2, 3), (2, 1), (1, 1), 5),
    (5, 10, (7, 7), (3, 3), (1, 1), (1, 1), (1, 1), 5),
    (40, 70, (6, 5), (1, 1), (1, 1), (0, 0), (1, 1), 1),
    (6, 8, (9, 9), (1, 1), (2, 2), (0, 0), (1, 1), 1),
    (3, 16, (20, 23), (7, 7), (2, 2), (3, 3), (1, 1), 1),
]


def operands(case, dtype=torch.float64, n=2):
    torch.manual_seed(0)
    c_in, c_out, size, kernel, *_, groups = case
    return (
        torch.randn(n, c_in, *size, dtype=dtype),
        torch.randn(c_out, c_in // groups, *kernel, dtype=dtype),
        torch.randn(c_out, dtype=dtype),
    )


@pytest.mark.parametrize("layout", ["plain", "input last", "weight last"])
@pytest.mark.parametrize("case", CASES)
def test_conv2d_is_its_definition(case, layout):
    x, w, b = operands(case)
    rest = case[4:]
    expected = by_patches(x, w, b, *rest)
    g = torch.randn(expected.shape, dtype=expected.dtype)
    leaves = [t.clone().requires_grad_() for t in (x, w, b)]
    wanted = torch.autograd.grad(by_patches(*leaves, *rest), leaves, g)
    if layout != "plain":
        x = x.to(memory_format=CL) if layout == "input last" else x
        w = w.to(memory_format=CL) if layout == "weight last" else w
    leaves = [t.detach().requires_grad_() for t in (x, w, b)]
    y = F.conv2d(*leaves, *rest)
    assert y.is_contiguous(memory_format=torch.contiguous_format if layout == "plain" else CL)
    assert torch.allclose(y, expected)
    for ours, theirs in zip(torch.autograd.grad(y, leaves, g), wanted, strict=True):
        assert torch.allclose(ours, theirs)


@pytest.mark.parametrize("case", CASES[:4])
def test_transposed_is_the_adjoint(case):
    x, w, _ = operands(case)
    stride, padding, dilation, groups = case[4:]
    y = F.conv2d(x, w, None, stride, padding, dilation, groups)
    g = torch.randn(y.shape, dtype=y.dtype)
    rest = [
        x.shape[d + 2] - ((y.shape[d + 2] - 1) * stride[d] - 2 * padding[d] + dilation[d] * (w.shape[d + 2] - 1) + 1)
        for d in (0, 1)
    ]
    back = F.conv_transpose2d(g, w, None, stride, padding, rest, groups, dilation)
    assert back.shape == x.shape
    assert torch.allclose((y * g).sum(), (x * back).sum())


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
def test_second_derivatives(transposed, last):
    torch.manual_seed(1)
    x, w = torch.randn(2, 4, 5, 4, dtype=torch.float64), torch.randn(4, 2, 3, 2, dtype=torch.float64)
    x, w = (t.to(memory_format=CL) if last else t for t in (x, w))
    b = torch.randn(4, dtype=torch.float64)
    function = F.conv_transpose2d if transposed else F.conv2d
    inputs = [t.requires_grad_() for t in (x, w, b)]
    assert torch.autograd.gradcheck(lambda x, w, b: function(x, w, b, 2, 1, groups=2), inputs)
    assert torch.autograd.gradgradcheck(lambda x, w, b: function(x, w, b, 2, 1, groups=2), inputs)


def test_threads_and_batches_give_the_same_bits():
    x, w, b = operands((6, 40, (30, 31), (3, 3)) + ((1, 1), (1, 1), (1, 1), 1), torch.float32, n=3)
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(F.conv2d(x, w, b, 1, 1))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_small_floats_are_rounded_once(dtype):
    x, w, b = (t.to(dtype) for t in operands(CASES[1], torch.float32))
    rest = CASES[1][4:]
    assert torch.equal(F.conv2d(x, w, b, *rest), F.conv2d(x.float(), w.float(), b.float(), *rest).to(dtype))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.uint8])
def test_integers_wrap_around(dtype):
    x = torch.arange(2 * 3 * 5 * 5).view(2, 3, 5, 5).to(dtype)
    w = torch.arange(4 * 3 * 2 * 2).view(4, 3, 2, 2).to(dtype)
    b = torch.arange(4).to(dtype)
    expected = by_patches(x.double(), w.double(), b.double(), (2, 1), (1, 0), (1, 1), 1).long().to(dtype)
    assert torch.equal(F.conv2d(x, w, b, (2, 1), (1, 0)), expected)


def test_integers_that_pytorch_has_no_kernel_for():
    x, w = torch.ones(1, 2, 5, 5).int(), torch.ones(2, 2, 3, 3).int()
    with pytest.raises(NotImplementedError, match="\"slow_conv_transpose2d_out_cpu\" not implemented for 'Int'"):
        F.conv_transpose2d(x, w)
    with pytest.raises(NotImplementedError, match="\"slow_conv_dilated<>\" not implemented for 'Int'"):
        F.conv2d(x, w, dilation=2)
    with pytest.raises(NotImplementedError, match="\"slow_conv2d_cpu\" not implemented for 'Bool'"):
        F.conv2d(x.bool(), w.bool())
    assert torch.equal(F.conv_transpose2d(x.long(), w.long())[0, 0, 2, 2], torch.tensor(18))


def test_other_numbers_of_dims():
    torch.manual_seed(0)
    x, w = torch.randn(2, 4, 9), torch.randn(6, 2, 3)
    flat = F.conv2d(x[:, :, None], w[:, :, None], None, (1, 2), (0, 1), 1, 2)[:, :, 0]
    assert torch.equal(F.conv1d(x, w, None, 2, 1, 1, 2), flat)
    x, w = torch.randn(2, 3, 4, 5, 6), torch.randn(4, 3, 2, 3, 2)
    planes = sum(F.conv2d(x[:, :, d : d + 3].transpose(1, 2).flatten(0, 1), w[:, :, d]) for d in (0, 1))
    assert torch.allclose(F.conv3d(x, w), planes.view(2, 3, 4, 3, 5).transpose(1, 2), atol=1e-5)


def test_a_single_image_and_no_image():
    x, w, b = operands(CASES[0], torch.float32)
    assert torch.equal(F.conv2d(x[0], w, b), F.conv2d(x[:1], w, b)[0])
    assert F.conv_transpose1d(torch.randn(3, 5), torch.randn(3, 2, 3), stride=2).shape == (2, 11)
    none = torch.zeros(0, 3, 9, 7, requires_grad=True)
    w.requires_grad_()
    y = F.conv2d(none, w, b)
    assert y.shape == (0, 4, 7, 5)
    y.sum().backward()
    assert none.grad.shape == none.shape
    assert torch.equal(w.grad, torch.zeros_like(w))


def test_padding_words():
    x, w = torch.randn(2, 3, 9, 8), torch.randn(4, 3, 4, 3)
    same = F.conv2d(x, w, padding="same", dilation=(1, 2))
    assert torch.equal(same, F.conv2d(F.pad(x, (2, 2, 1, 2)), w, dilation=(1, 2)))
    assert torch.equal(F.conv2d(x, w, stride=2, padding="valid"), F.conv2d(x, w, stride=2))


def test_meta_and_compiled():
    x, w, b = operands(CASES[1], torch.float32)
    rest = CASES[1][4:]
    meta = F.conv2d(x.to("meta"), w.to("meta"), b.to("meta"), *rest)
    eager = F.conv2d(x, w, b, *rest)
    assert (meta.shape, meta.stride()) == (eager.shape, eager.stride())

    def step(x, w, b):
        return F.relu(F.conv2d(x, w, b, *rest)).square().sum()

    gradients = []
    for function in (step, torch.compile(step, fullgraph=True)):
        leaves = [t.clone().requires_grad_() for t in (x, w, b)]
        loss = function(*leaves)
        loss.backward()
        gradients.append([loss.detach(), *(t.grad for t in leaves)])
    for eager, compiled in zip(*gradients, strict=True):
        assert torch.equal(eager, compiled)


def test_compiled_for_any_size():
    w = torch.randn(4, 3, 3, 3)
    compiled = torch.compile(lambda x: F.conv2d(x, w, stride=2, padding=1).relu(), dynamic=True, fullgraph=True)
    for n, size in ((2, (9, 7)), (3, (8, 8)), (1, (20, 5))):
        x = torch.randn(n, 3, *size)
        assert torch.equal(compiled(x), F.conv2d(x, w, stride=2, padding=1).relu())


def test_conv_tbc():
    x, w, b = torch.randn(7, 2, 3), torch.randn(3, 3, 4), torch.randn(4)
    y = torch.conv_tbc(x, w, b, 1)
    assert y.is_contiguous()
    assert torch.allclose(y, F.conv1d(x.permute(1, 2, 0), w.permute(2, 1, 0), b, padding=1).permute(2, 0, 1))


def test_the_tape_keeps_what_is_needed():
    x, w = torch.randn(1, 2, 4, 4, requires_grad=True), torch.randn(3, 2, 3, 3)
    y = F.conv2d(x, w)
    assert type(y.grad_fn).__name__ == "ConvolutionBackward0"
    x.detach().zero_()  # only the weight's gradient would need it
    y.sum().backward()
    y = F.conv2d(x, w)
    w.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


# ---- fold and unfold ----


def test_fold_and_unfold():
    x = torch.arange(2.0 * 3 * 4 * 6).view(2, 3, 4, 6)
    columns = F.unfold(x, (2, 3), stride=(2, 3))
    assert torch.equal(columns, x.view(2, 3, 2, 2, 2, 3).permute(0, 1, 3, 5, 2, 4).reshape(2, 18, 4))
    assert torch.equal(F.fold(columns, (4, 6), (2, 3), stride=(2, 3)), x)
    assert torch.equal(nn.Fold((4, 6), 3, padding=1)(nn.Unfold(3, padding=1)(torch.ones(1, 1, 4, 6)))[0, 0, :2, :2],
                       torch.tensor([[4.0, 6.0], [6.0, 9.0]]))  # fmt: skip
    for dtype in (torch.float16, torch.bfloat16, torch.bool):
        assert torch.equal(F.fold(columns.to(dtype), (4, 6), (2, 3), stride=(2, 3)), x.to(dtype))
    assert F.unfold(x[0], 2).shape == (12, 15)
    with pytest.raises(NotImplementedError, match="\"im2col_out_cpu\" not implemented for 'Long'"):
        F.unfold(x.long(), 2)


# ---- errors: PyTorch's words ----

X, W = (2, 4, 5, 5), (6, 4, 3, 3)


def backward(grad, x, groups=1, mask=(True, True, True)):
    return torch.ops.aten.convolution_backward(grad, x, torch.ones(W), [6], [1], [0], [1], False, [0], groups, mask)


ERRORS = [
    (lambda: F.conv2d(torch.ones(2, 3, 5, 5), torch.ones(W)), "Given groups=1, weight of size [6, 4, 3, 3], expected input[2, 3, 5, 5] to have 4 channels, but got 3 channels instead"),
    (lambda: F.conv2d(torch.ones(X), torch.ones(5, 2, 3, 3), groups=2), "Given groups=2, expected weight to be divisible by 2 at dimension 0, but got weight of size [[5, 2, 3, 3]] instead"),
    (lambda: F.conv2d(torch.ones(2, 8, 5, 5), torch.ones(2, 2, 3, 3), groups=4), "Given groups=4, expected weight to be at least 4 at dimension 0, but got weight of size [2, 2, 3, 3] instead"),
    (lambda: F.conv2d(torch.ones(X), torch.ones(W), groups=0), "non-positive groups is not supported"),
    (lambda: F.conv2d(torch.ones(X), torch.ones(6, 4, 9, 9), padding=1), "Calculated padded input size per channel: (7 x 7). Kernel size: (9 x 9). Kernel size can't be greater than actual input size"),
    (lambda: F.conv2d(torch.ones(X), torch.ones(W), stride=0), "non-positive stride is not supported"),
    (lambda: F.conv2d(torch.ones(X), torch.ones(W), padding=-1), "negative padding is not supported"),
    (lambda: F.conv2d(torch.ones(X), torch.ones(W), dilation=-1), "dilation should be greater than zero"),
    (lambda: F.conv2d(torch.ones(X), torch.ones(W), torch.ones(5)), "Given weight of size [6, 4, 3, 3], expected bias to be 1-dimensional with 6 elements, but got bias of size [5] instead"),
    (lambda: F.conv2d(torch.ones(5, 5), torch.ones(W)), "Expected 3D (unbatched) or 4D (batched) input to conv2d, but got input of size: [5, 5]"),
    (lambda: F.conv2d(torch.ones(X), torch.ones(6, 4, 3)), "expected stride to be a single integer value or a list of 1 values to match the convolution dimensions, but got stride=[1, 1]"),
    (lambda: F.conv1d(torch.ones(1, 4, 5), torch.ones(6, 4)), "weight should have at least three dimensions"),
    (lambda: F.conv2d(torch.ones(X), torch.ones(W).double()), "Input type (torch.FloatTensor) and weight type (torch.DoubleTensor) should be the same or input should be a MKLDNN tensor and weight is a dense tensor"),
    (lambda: F.conv2d(torch.ones(X).double(), torch.ones(W)), "expected scalar type Double but found Float"),
    (lambda: F.conv2d(torch.ones(X), torch.ones(W), torch.ones(6).double()), "Input type (float) and bias type (double) should be the same"),
    (lambda: F.conv2d(torch.ones(2, 4, 0, 5), torch.ones(6, 4, 1, 1), padding=1), "Only zero batch or zero channel inputs are supported, but got input shape: [2, 4, 0, 5]"),
    (lambda: F.conv2d(torch.ones(X), torch.ones(W), padding="foo"), "Invalid padding string: 'foo'"),
    (lambda: F.conv2d(torch.ones(X), torch.ones(W), padding="same", stride=2), "padding='same' is not supported for strided convolutions"),
    (lambda: F.conv_transpose2d(torch.ones(2, 3, 5, 5), torch.ones(4, 6, 3, 3)), "Given transposed=1, weight of size [4, 6, 3, 3], expected input[2, 3, 5, 5] to have 4 channels, but got 3 channels instead"),
    (lambda: F.conv_transpose2d(torch.ones(X), torch.ones(4, 6, 3, 3), stride=2, output_padding=2), "output padding must be smaller than either stride or dilation, but got output_padding_height: 2 output_padding_width: 2 stride_height: 2 stride_width: 2 dilation_height: 1 dilation_width: 1"),
    (lambda: F.conv_transpose2d(torch.ones(X).double(), torch.ones(4, 6, 3, 3).double(), padding=5), "Given input size per channel: (5 x 5). Calculated output size per channel: (-3 x -3). Output size is too small"),
    (lambda: backward(torch.ones(()), torch.ones(X)), "Expected input and grad_output to have the same number of dimensions, but got: 4 and 0"),
    (lambda: backward(torch.ones(2, 6, 3, 3), torch.ones(X), groups=0), "non-positive groups is not supported"),
    (lambda: backward(torch.ones(2, 6, 9, 9), torch.ones(X), mask=(False, True, False)), "convolution_backward: operands do not belong together"),
    (lambda: backward(torch.ones(2, 6, 3, 3), torch.ones(X), groups=2, mask=(False, True, False)), "convolution_backward: operands do not belong together"),
    (lambda: torch.conv_tbc(torch.ones(7, 2, 4), torch.ones(3, 5, 6), torch.ones(6)), "Input dim 2 (input channels) is not == dim 1 in the weight tensor"),
    (lambda: F.fold(torch.ones(1, 12, 6), (4, 5), 2), "Given output_size=(4, 5), kernel_size=(2, 2), dilation=(1, 1), padding=(0, 0), stride=(1, 1), expected size of input's dimension 2 to match the calculated number of sliding blocks 3 * 4 = 12, but got input.size(2)=6."),
    (lambda: F.unfold(torch.ones(1, 3, 4, 5), 7), "Given input with spatial size (4, 5), kernel_size=(7, 7), dilation=(1, 1), padding=(0, 0), calculated shape of the array of sliding blocks as (-2, -1), but its components must be at least one."),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), ERRORS, ids=range(len(ERRORS)))
def test_errors(call, message):
    with pytest.raises(RuntimeError) as error:
        call()
    assert str(error.value) == message


# ---- layers ----


def test_layers_print_and_hold():
    layer = nn.Conv2d(3, 6, 3, padding="same", padding_mode="reflect", dilation=2, groups=3, bias=False)
    assert repr(layer) == (
        "Conv2d(3, 6, kernel_size=(3, 3), stride=(1, 1), padding=same, dilation=(2, 2), groups=3, bias=False, "
        "padding_mode=reflect)"
    )
    layer = nn.ConvTranspose2d(3, 6, 3, output_padding=1, stride=2)
    assert repr(layer) == "ConvTranspose2d(3, 6, kernel_size=(3, 3), stride=(2, 2), output_padding=(1, 1))"
    assert layer.weight.shape == (3, 6, 3, 3)
    assert repr(nn.Unfold(2)) == "Unfold(kernel_size=2, dilation=1, padding=0, stride=1)"


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_padding_modes(mode):
    x = torch.randn(2, 3, 7, 6)
    layer = nn.Conv2d(3, 4, (3, 5), padding=(1, 2), padding_mode=mode)
    assert torch.equal(layer(x), F.conv2d(F.pad(x, (2, 2, 1, 1), mode=mode), layer.weight, layer.bias))
    layer = nn.Conv2d(3, 4, 4, padding="same", padding_mode=mode)
    assert torch.equal(layer(x), F.conv2d(F.pad(x, (1, 2, 1, 2), mode=mode), layer.weight, layer.bias))


def test_output_size():
    layer, x = nn.ConvTranspose2d(4, 2, 3, stride=2), torch.randn(1, 4, 5, 5)
    assert layer(x).shape == (1, 2, 11, 11)
    assert layer(x, output_size=(12, 11)).shape == (1, 2, 12, 11)
    assert layer(x, output_size=(1, 2, 11, 12)).shape == (1, 2, 11, 12)
    with pytest.raises(
        ValueError, match=r"requested an output size of \(20, 20\), but valid sizes range from \[11, 11\] to"
    ):
        layer(x, output_size=(20, 20))


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("kind", ["Conv", "ConvTranspose"])
def test_lazy_layers(kind, dims):
    lazy, whole = getattr(nn, f"Lazy{kind}{dims}d"), getattr(nn, f"{kind}{dims}d")
    x = torch.randn(2, 4, *(5,) * dims)
    torch.manual_seed(3)
    layer = lazy(6, 3, stride=2, groups=2)
    y = layer(x)
    torch.manual_seed(3)
    same = whole(4, 6, 3, stride=2, groups=2)
    assert type(layer) is whole
    assert torch.equal(y, same(x))
    by_position = (1, 0, 1, 1, False) if kind == "Conv" else (1, 0, 0, 1, False)
    assert lazy(6, 3, *by_position).bias is None


def test_arguments_of_layers():
    for make, message in (
        (lambda: nn.Conv2d(3, 4, 3, groups=2), "in_channels must be divisible by groups"),
        (lambda: nn.Conv2d(4, 3, 3, groups=2), "out_channels must be divisible by groups"),
        (lambda: nn.Conv2d(4, 4, 3, groups=0), "groups must be a positive integer"),
        (
            lambda: nn.Conv2d(4, 4, 3, padding="same", stride=2),
            "padding='same' is not supported for strided convolutions",
        ),
        (lambda: nn.ConvTranspose2d(4, 4, 3, padding_mode="reflect"), 'Only "zeros" padding mode is supported'),
    ):
        with pytest.raises(ValueError, match=message):
            make()
