"""Convolutions of bytes: sums are those of integers, bit for bit; what is refused; converted graphs use them when they are
compiled."""

import pytest

import wick
from wick import _C, nn
from wick.ao.quantization.quantize_pt2e import capture, convert_pt2e, prepare_pt2e
from wick.ao.quantization.quantizer import (
    X86Quantizer,
    XNNPACKQuantizer,
    get_default_x86_quantization_config,
    get_symmetric_quantization_config,
)

# sizes of images and weights, stride, padding, dilation, groups
CASES = {
    "1d": ((2, 5, 17), (7, 5, 3), (1,), (1,), (1,), 1),
    "1d strided": ((3, 4, 20), (6, 2, 4), (3,), (2,), (2,), 2),
    "2d": ((2, 3, 9, 8), (5, 3, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    "2d strided": ((1, 8, 11, 13), (9, 8, 3, 2), (2, 3), (2, 1), (1, 1), 1),
    "dilated": ((1, 6, 14, 12), (4, 6, 3, 3), (1, 1), (2, 3), (2, 3), 1),
    "one tap": ((2, 33, 7, 5), (18, 33, 1, 1), (1, 1), (0, 0), (1, 1), 1),
    "one strided tap": ((2, 16, 7, 5), (8, 16, 1, 1), (2, 2), (0, 0), (1, 1), 1),
    "groups": ((2, 12, 6, 6), (9, 4, 3, 3), (1, 1), (1, 1), (1, 1), 3),
    "one tap in groups": ((2, 12, 6, 6), (9, 4, 1, 1), (1, 1), (0, 0), (1, 1), 3),
    "depthwise": ((2, 37, 9, 7), (37, 1, 3, 3), (1, 1), (1, 1), (1, 1), 37),
    "depthwise strided": ((1, 70, 9, 7), (70, 1, 5, 3), (2, 1), (2, 1), (1, 2), 70),
    "several of a channel": ((1, 6, 8, 8), (12, 1, 3, 3), (1, 1), (1, 1), (1, 1), 6),
    "many": ((2, 64, 20, 20), (96, 64, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    "many rows": ((1, 128, 7, 7), (300, 128, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    "3d": ((1, 3, 5, 6, 4), (4, 3, 2, 3, 2), (1, 2, 1), (1, 1, 0), (1, 1, 2), 1),
    "no images": ((0, 3, 6, 6), (4, 3, 3, 3), (1, 1), (0, 0), (1, 1), 1),
}


def operands(case, dtype, layout=wick.contiguous_format):
    images, weights, *geometry = CASES[case]
    limits = wick.iinfo(dtype)
    x = wick.randint(limits.min, limits.max + 1, images, dtype=dtype)
    w = wick.randint(-128, 128, weights, dtype=wick.int8)
    if len(images) == 4:
        x = x.to(memory_format=layout)
    return x, w, wick.rand(weights[0]) + 0.1, wick.randn(weights[0]), geometry


def by_hand(x, scale, zero, w, scales, bias, stride, padding, dilation, groups):
    none = [0] * len(stride)
    sums = _C.convolution(x.double() - zero, w.double(), None, stride, padding, dilation, False, none, groups)
    channels = (-1, *[1] * len(stride))
    y = sums.to(wick.int32).float() * wick.tensor(scale) * scales.view(channels)
    return y if bias is None else y + bias.view(channels)


@pytest.mark.parametrize("dtype,zero", [(wick.uint8, 0), (wick.uint8, 131), (wick.int8, -128), (wick.int8, 5)])
@pytest.mark.parametrize("case", CASES)
def test_sums_are_those_of_integers(case, dtype, zero):
    x, w, scales, bias, geometry = operands(case, dtype)
    for b in (bias, None):
        found = _C._int8_convolution(x, 0.03, zero, w, scales, b, *geometry)
        assert wick.equal(found, by_hand(x, 0.03, zero, w, scales, b, *geometry))
    before = _C._set_decomposing(2)
    try:
        assert wick.equal(_C._int8_convolution(x, 0.03, zero, w, scales, None, *geometry), found)
    finally:
        _C._set_decomposing(before)


@pytest.mark.parametrize("case", ["2d", "one tap", "groups", "depthwise", "many", "many rows", "2d strided"])
def test_channels_last(case):
    x, w, scales, bias, geometry = operands(case, wick.uint8, wick.channels_last)
    found = _C._int8_convolution(x, 0.03, 7, w, scales, bias, *geometry)
    assert found.is_contiguous(memory_format=wick.channels_last)
    assert wick.equal(found, _C._int8_convolution(x.contiguous(), 0.03, 7, w, scales, bias, *geometry))


ERRORS = [
    ("f(x.float(), 1.0, 0, w, s, None, [1], [0], [1], 1)", "of int8 or uint8"),
    ("f(x, 1.0, 300, w, s, None, [1], [0], [1], 1)", "zero point 300 is no number"),
    ("f(x, 1.0, -1, w, s, None, [1], [0], [1], 1)", "zero point -1 is no number"),
    ("f(x, 1.0, 0, w.float(), s, None, [1], [0], [1], 1)", "weight is of int8"),
    ("f(x, 1.0, 0, w, s[:2], None, [1], [0], [1], 1)", "a scale for each row"),
    ("f(x, 1.0, 0, w, s, s[:2], [1], [0], [1], 1)", "expected bias to be 1-dimensional with 4 elements"),
    ("f(x, 1.0, 0, w, s, s.double(), [1], [0], [1], 1)", "the bias is of float"),
    ("f(x[:, :2], 1.0, 0, w, s, None, [1], [0], [1], 1)", "to have 3 channels, but got 2 channels"),
    ("f(x[0], 1.0, 0, w, s, None, [1], [0], [1], 1)", "Expected 4-dimensional input"),
    ("f(x, 1.0, 0, w, s, None, [0], [0], [1], 1)", "non-positive stride"),
    ("f(x, 1.0, 0, w, s, None, [1], [0], [1], 0)", "non-positive groups"),
    ("f(x, 1.0, 0, w, s, None, [1], [0], [9], 1)", "Kernel size can't be greater"),
    ("f(x, 1.0, 0, w, s, None, [1, 1, 1], [0], [1], 1)", "expected stride to be"),
]


@pytest.mark.parametrize("call,text", ERRORS)
def test_errors(call, text):
    x, w, s = wick.zeros(1, 3, 5, 5, dtype=wick.uint8), wick.zeros(4, 3, 3, 3, dtype=wick.int8), wick.ones(4)
    with pytest.raises(RuntimeError, match=text):
        eval(call, {"f": _C._int8_convolution, "x": x, "w": w, "s": s})


QUANTIZERS = {
    "xnnpack": lambda: XNNPACKQuantizer().set_global(get_symmetric_quantization_config(True)),
    "x86": lambda: X86Quantizer().set_global(get_default_x86_quantization_config()),
}
MODELS = {
    "conv1d": lambda: (nn.Sequential(nn.Conv1d(4, 24, 5, padding=2), nn.ReLU(), nn.Conv1d(24, 18, 1)), (2, 4, 16)),
    "conv2d": lambda: (
        nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=2)
        ),
        (2, 3, 12, 12),
    ),
}


def text_of_passes(folder):
    return "".join(path.read_text() for path in folder.rglob("*bytes.txt"))


@pytest.mark.parametrize("name", QUANTIZERS)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("layout", [wick.contiguous_format, wick.channels_last])
def test_compiled_graphs_convolve_bytes(name, model, layout, tmp_path, monkeypatch):
    wick.manual_seed(0)
    module, sizes = MODELS[model]()
    module.eval()
    x = wick.randn(sizes)
    if x.dim() == 4:
        x = x.to(memory_format=layout)
    prepared = prepare_pt2e(capture(module, (x,)), QUANTIZERS[name]())
    with wick.no_grad():
        prepared(x)
        graph = convert_pt2e(prepared)
        wanted = graph(x)
        monkeypatch.setenv("WICK_DEBUG_DIR", str(tmp_path))
        found = wick.compile(graph)(x)
    assert text_of_passes(tmp_path).count("= _int8_convolution(") == 2
    assert found.stride() == wanted.stride()
    # the floats' sums round otherwise, so that a number in between may be the neighbouring one
    assert (found - wanted).abs().max() <= 0.02 * wanted.abs().max()


@pytest.mark.parametrize("layout", [wick.contiguous_format, wick.channels_last])
def test_convolutions_that_are_faster_in_floats_stay_floats(layout, tmp_path, monkeypatch):
    """One channel a group, and few products for each number that is read or written."""
    depthwise, narrow, wide = nn.Conv2d(16, 16, 3, groups=16), nn.Conv2d(16, 6, 1), nn.Conv2d(6, 24, 3)
    x = wick.randn(2, 16, 9, 9).to(memory_format=layout)
    quantizer = QUANTIZERS["x86"]()
    prepared = prepare_pt2e(capture(nn.Sequential(depthwise, narrow, wide).eval(), (x,)), quantizer)
    with wick.no_grad():
        prepared(x)
        graph = convert_pt2e(prepared)
        monkeypatch.setenv("WICK_DEBUG_DIR", str(tmp_path))
        wick.testing.assert_close(wick.compile(graph)(x), graph(x), rtol=0, atol=0.05)
    text = "".join(path.read_text() for path in tmp_path.rglob("*dead.txt"))
    assert text.count("= _int8_convolution(") == 1 and text.count("= convolution(") == 2


def test_compiled_beside_operators_of_several_results():
    conv, norm = nn.Conv2d(3, 4, 3).eval(), nn.LayerNorm(6)
    x = wick.randn(2, 3, 8, 8)

    def model(x):
        return norm(conv(x)).sort(dim=1)[0]

    with wick.no_grad():
        wick.testing.assert_close(wick.compile(model)(x), model(x), rtol=1e-4, atol=1e-5)
