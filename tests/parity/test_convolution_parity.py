"""Convolutions against PyTorch: random sizes, groups, strides, paddings, dilations, layouts; two derivatives; layers."""

import random

import pytest
from compare import same

TOLERANCE = 3e-5  # f32 sums in another order


def arguments(seed):
    """Of torch.convolution, but for the tensors: their sizes stand before."""
    r = random.Random(seed)
    dims, groups = r.choice([1, 2, 2, 3]), r.choice([1, 1, 2, 3])
    c_in, c_out = r.randint(1, 3), r.randint(1, 3)
    if r.random() < 0.3:
        groups, c_in, c_out = r.randint(2, 9), 1, 1
    size, kernel = [r.randint(5, 9) for _ in range(dims)], [r.randint(1, 3) for _ in range(dims)]
    stride, padding = [r.randint(1, 3) for _ in range(dims)], [r.randint(0, 1) for _ in range(dims)]
    dilation, transposed = [r.randint(1, 2) for _ in range(dims)], r.random() < 0.4
    rest = [r.randint(0, max(s, d) - 1) if transposed else 0 for s, d in zip(stride, dilation, strict=True)]
    weight = [groups * c_in, c_out, *kernel] if transposed else [groups * c_out, c_in, *kernel]
    sizes = ([r.randint(1, 3), groups * c_in, *size], weight, [groups * c_out])
    return sizes, (stride, padding, dilation, transposed, rest, groups), r.random() < 0.3


@pytest.mark.parametrize("seed", range(60))
def test_values_and_two_derivatives(seed):
    sizes, rest, last = arguments(seed)

    def run(t):
        dtype = t.float64 if seed % 3 == 0 else t.float32
        x, w, b = (t.randn(size, dtype=dtype) for size in sizes)
        if last and x.dim() == 4:
            x = x.to(memory_format=t.channels_last)
        leaves = [v.requires_grad_() for v in (x, w, b)]
        y = t.convolution(*leaves, *rest)
        gradients = t.autograd.grad(y, leaves, t.randn(y.shape, dtype=dtype), create_graph=True)
        loss = sum((g * t.randn(g.shape, dtype=dtype)).sum() for g in gradients)
        return y, gradients, t.autograd.grad(loss, leaves[:2]), type(y.grad_fn).__name__

    same(run, TOLERANCE)


LAYERS = [
    ("Conv1d(4, 6, 3, padding=1)", (2, 4, 9)),
    ("Conv2d(4, 6, (3, 2), stride=2, groups=2)", (2, 4, 9, 8)),
    ("Conv2d(4, 4, 3, padding=2, padding_mode='circular', bias=False)", (2, 4, 6, 7)),
    ("Conv2d(4, 4, 4, padding='same', padding_mode='reflect')", (2, 4, 8, 7)),
    ("Conv3d(2, 3, 2, dilation=2)", (1, 2, 4, 5, 4)),
    ("ConvTranspose1d(4, 2, 3, stride=2, output_padding=1)", (2, 4, 5)),
    ("ConvTranspose2d(4, 6, 3, stride=2, padding=1, groups=2)", (2, 4, 5, 4)),
    ("ConvTranspose3d(2, 3, 2, stride=2)", (1, 2, 3, 2, 3)),
    ("LazyConv2d(4, 3)", (2, 3, 5, 6)),
    ("LazyConvTranspose2d(4, 3)", (3, 5, 6)),
    ("Unfold((2, 3), padding=1)", (2, 3, 4, 5)),
    ("Fold((4, 5), 2)", (2, 8, 12)),
]


@pytest.mark.parametrize(("make", "size"), LAYERS, ids=[make for make, _ in LAYERS])
def test_layers(make, size):
    def run(t):
        layer = eval(f"nn.{make}", {"nn": t.nn})
        x = t.randn(size, requires_grad=True)
        y = layer(x)
        (y * t.linspace(-1, 1, y.numel()).view(y.shape)).sum().backward()
        return repr(layer), layer.state_dict(), y, x.grad, [p.grad for p in layer.parameters()]

    same(run, TOLERANCE)
