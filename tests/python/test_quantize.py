"""Models with quantized weights: quantize_, quantize_dynamic, and the products below them. What must hold: errors within
those of the rounding, the same bits at every CPU level and for every number of threads, eager and compiled; gradients of
the input; and that a state_dict goes there and back."""

import copy

import pytest

import wick
from wick import _C, nn
from wick.ao.quantization import (
    Int4WeightOnlyConfig,
    Int8DynamicActivationInt8WeightConfig,
    Int8WeightOnlyConfig,
    get_default_qconfig,
    propagate_qconfig_,
    quantize_,
    quantize_dynamic,
)
from wick.ao.quantization.linear import DynamicQuantizedLinear, QuantizedLinear, int8_channels

CONFIGS = {
    "int8": (Int8WeightOnlyConfig(), 0.015),
    "int4": (Int4WeightOnlyConfig(64), 0.2),
    "dynamic": (Int8DynamicActivationInt8WeightConfig(), 0.03),
}


def make_model():
    wick.manual_seed(0)
    return nn.Sequential(nn.Linear(256, 100), nn.GELU(), nn.Linear(100, 64), nn.Linear(64, 10, bias=False)).eval()


def quantized(name):
    model = make_model()
    quantize_(model, CONFIGS[name][0])
    return model


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("rows", [1, 5, 40])
def test_results_are_near_the_floats(name, rows):
    x = wick.randn(rows, 256)
    with wick.no_grad():
        wanted, found = make_model()(x), quantized(name)(x)
    assert (found - wanted).abs().max() <= CONFIGS[name][1] * wanted.abs().max()
    assert not wick.equal(found, wanted)


@pytest.mark.parametrize("name", CONFIGS)
def test_compiled_gives_the_same_bits(name):
    model, x = quantized(name), wick.randn(3, 256)
    compiled = wick.compile(model)
    with wick.no_grad():
        wanted = model(x)
        assert all(wick.equal(compiled(x), wanted) for _ in range(3))


FORMATS = {"int8": 0, "int4": 0, "q4_0": 18, "q8_0": 34, "q4_k": 144, "q5_k": 176, "q6_k": 210, "bf16": 64}


def a_weight(format, n=48, k=512):
    """(weight, scales, group) of random numbers."""
    wick.manual_seed(3)
    if format == "int8":
        return *int8_channels(wick.randn(n, k)), 0
    if format == "int4":
        q = wick.randint(0, 16, (n, k), dtype=wick.int32)
        return _C._convert_weight_to_int4pack_for_cpu(q, 1), wick.rand(k // 64, n, 2), 64
    if format == "bf16":
        return wick.randn(n, k).bfloat16().view(wick.uint8), None, 0
    elements = 32 if format in ("q4_0", "q8_0") else 256
    blocks = wick.randint(0, 256, (n, k // elements, FORMATS[format]), dtype=wick.uint8)
    halves = wick.rand(n, k // elements, 2).mul(0.1).half().view(wick.uint8)
    at = slice(-2, None) if format == "q6_k" else slice(0, 4 if format in ("q4_k", "q5_k") else 2)
    blocks[..., at] = halves[..., : blocks[..., at].shape[-1]]
    return blocks.flatten(1), None, 0


def test_a_layer_in_several_places_stays_one():
    layer = nn.Linear(64, 64)
    model = nn.Sequential(layer, layer)
    dynamic = wick.ao.quantization.quantize_dynamic(model)
    assert dynamic[0] is dynamic[1] is not layer and type(dynamic[0]) is not nn.Linear
    quantize_(model, Int8WeightOnlyConfig())
    assert model[0] is model[1] is not layer and type(model[0]) is not nn.Linear


@pytest.mark.parametrize("format", FORMATS)
def test_products_multiply_the_weight(format):
    weight, scales, group = a_weight(format)
    whole = _C._quant_weight(weight, format, scales, group)
    assert whole.shape == (48, 512) and whole.isfinite().all()
    bias = wick.randn(48)
    for shape in ((512,), (1, 512), (2, 3, 512), (30, 512)):
        x = wick.randn(shape)
        met = x.bfloat16() if format == "bf16" else x
        wanted = nn.functional.linear(met.double(), whole.double(), bias.double())
        found = _C._quant_linear(x, weight, format, scales, group, bias)
        assert found.shape == wanted.shape
        assert (found - wanted).abs().max() <= 3e-6 * wanted.abs().max()
    for dtype in (wick.float16, wick.bfloat16):
        y = _C._quant_linear(x.to(dtype), weight, format, scales, group, bias)
        assert y.dtype == dtype and (y.float() - wanted).abs().max() <= 0.02 * wanted.abs().max()


@pytest.mark.parametrize("format", [*FORMATS, "dynamic"])
def test_the_same_bits_for_levels_and_threads(format):
    weight, scales, group = a_weight("int8" if format == "dynamic" else format, 272)
    level, threads, results = _C._cpu_level(), wick.get_num_threads(), []
    inputs = [wick.randn(rows, 512) for rows in (1, 4, 23)]
    try:
        for use in _C._cpu_levels():
            _C._set_cpu_level(use)
            for count in (1, 3):
                wick.set_num_threads(count)
                if format == "dynamic":
                    results.append([_C._int8_dynamic_linear(x, weight, scales) for x in inputs])
                else:
                    results.append([_C._quant_linear(x, weight, format, scales, group) for x in inputs])
    finally:
        _C._set_cpu_level(level)
        wick.set_num_threads(threads)
    for other in results[1:]:
        assert all(wick.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("format", ["int8", "int4", "q4_k"])
def test_gradients_of_the_input_and_the_bias(format):
    weight, scales, group = a_weight(format)
    whole = _C._quant_weight(weight, format, scales, group)
    grads = []
    for product in (
        lambda x, b: _C._quant_linear(x, weight, format, scales, group, b),
        lambda x, b: nn.functional.linear(x, whole, b),
    ):
        wick.manual_seed(1)
        x, bias = wick.randn(4, 512, requires_grad=True), wick.randn(48, requires_grad=True)
        product(x, bias).pow(2).sum().backward()
        grads.append((x.grad, bias.grad))
    for found, wanted in zip(*grads, strict=True):
        wick.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4 * wanted.abs().max().item())


def test_dynamic_products_are_those_of_integers():
    weight, scales = int8_channels(wick.randn(20, 100))
    x, bias = wick.randn(3, 5, 100), wick.randn(20)
    steps = x.abs().amax(dim=2, keepdim=True).clamp(min=1e-5) / 127
    q = (x / steps).round().to(wick.int8)
    sums = wick._int_mm(q.flatten(0, 1), weight.t()).view(3, 5, 20)
    wanted = sums.float() * steps * scales + bias
    assert wick.equal(_C._int8_dynamic_linear(x, weight, scales, bias), wanted)
    scale, zero = 0.05, 7
    u = wick.randint(0, 256, (6, 100), dtype=wick.uint8)
    wanted = wick._int_mm(u, weight.t()) - zero * weight.int().sum(1)
    found = _C._int8_linear(u, scale, zero, weight, scales, bias)
    assert wick.equal(found, wanted.float() * wick.tensor(scale) * scales + bias)


def decomposed(function, *args):
    """What the operator's decomposition gives."""
    before = _C._set_decomposing(2)
    try:
        return function(*args)
    finally:
        _C._set_decomposing(before)


def test_decompositions():
    weight, scales = int8_channels(wick.randn(20, 100))
    x, bias = wick.randn(3, 5, 100), wick.randn(20)
    u = wick.randint(0, 256, (3, 5, 100), dtype=wick.uint8)
    calls = [
        (_C._int8_dynamic_linear, x, weight, scales, bias),
        (_C._int8_linear, u, 0.05, 7, weight, scales, bias),
        (_C._int_mm, u[0], weight.t()),
        *(
            (_C._convert_weight_to_int4pack_for_cpu, wick.randint(0, 16, (32, k), dtype=wick.int32), 1)
            for k in (32, 6, 70)
        ),
    ]
    for function, *args in calls:
        found, wanted = decomposed(function, *args), function(*args)
        assert found.dtype == wanted.dtype and wick.equal(found, wanted), function
    found = decomposed(_C._quant_linear, x, weight, "int8", scales, 0, bias)
    wick.testing.assert_close(found, _C._quant_linear(x, weight, "int8", scales, 0, bias), rtol=1e-5, atol=1e-4)


def test_state_dicts_and_copies():
    model, x = quantized("int4"), wick.randn(2, 256)
    other = quantized("int4")
    for p in other.parameters():
        p.data.add_(1)
    other[0].weight.zero_()
    other.load_state_dict(model.state_dict())
    assert wick.equal(other(x), model(x)) and wick.equal(copy.deepcopy(model)(x), model(x))


def test_which_layers_are_replaced():
    model = make_model()
    quantize_(model, Int8WeightOnlyConfig(), lambda module, name: name == "2")
    assert [type(m) for m in model] == [nn.Linear, nn.GELU, QuantizedLinear, nn.Linear]
    model = make_model()
    quantize_(model, Int4WeightOnlyConfig(32))  # rows of 100 have no groups of 32
    assert [type(m) for m in model] == [QuantizedLinear, nn.GELU, nn.Linear, QuantizedLinear]
    with pytest.raises(ValueError, match="group_size is 32, 64, 128 or 256"):
        quantize_(make_model(), Int4WeightOnlyConfig(16))
    with pytest.raises(ValueError, match="no place"):
        quantize_(nn.Linear(2, 2), Int8WeightOnlyConfig())


def test_quantize_dynamic():
    wick.manual_seed(0)
    model = nn.ModuleDict({"lstm": nn.LSTM(32, 48, 2, bidirectional=True, batch_first=True), "head": nn.Linear(96, 8)})
    found = quantize_dynamic(model)
    assert type(found["head"]) is DynamicQuantizedLinear and type(model["head"]) is nn.Linear
    x = wick.randn(3, 7, 32)
    state = wick.randn(4, 3, 48), wick.randn(4, 3, 48)
    for hx in (None, state):
        wanted, (h, c) = model["lstm"](x, hx)
        y, (found_h, found_c) = found["lstm"](x, hx)
        for a, b in ((y, wanted), (found_h, h), (found_c, c)):
            assert a.shape == b.shape and (a - b).abs().max() < 0.03
    only = quantize_dynamic(model, {nn.LSTM})
    assert type(only["head"]) is nn.Linear and type(only["lstm"]) is not nn.LSTM
    assert type(quantize_dynamic(model, {"head"})["lstm"]) is nn.LSTM


def test_qconfigs_go_to_all_modules():
    model, own = make_model(), get_default_qconfig("qnnpack")
    propagate_qconfig_(model, {"": get_default_qconfig(), "2": own})
    assert model[2].qconfig is own and model[0].qconfig is model.qconfig


ERRORS = [
    ("_C._quant_linear(x, w, 'int5', s)", "there is no format 'int5'"),
    ("_C._quant_linear(x, w.float(), 'int8', s)", "int8 is a matrix of int8"),
    ("_C._quant_linear(x, w, 'int8')", "wants float scales"),
    ("_C._quant_linear(x, w, 'int8', s[:3])", "a scale for each row"),
    ("_C._quant_linear(x[:, :3], w, 'int8', s)", "last size is 3, the weight has 8 columns"),
    ("_C._quant_linear(x, w, 'int8', s, 0, s[:2])", "the bias has an element for each row"),
    ("_C._quant_linear(x.double(), w, 'int8', s)", "of float, half or bfloat16"),
    ("_C._quant_linear(x, w.view(wick.uint8), 'q4_0')", "no number of blocks of q4_0"),
    ("_C._int8_linear(x, 1.0, 0, w, s)", "of int8 or uint8"),
]


@pytest.mark.parametrize("call,text", ERRORS)
def test_errors(call, text):
    w, s, x = wick.zeros(4, 8, dtype=wick.int8), wick.ones(4), wick.ones(2, 8)
    with pytest.raises((RuntimeError, ValueError), match=text):
        eval(call, {"_C": _C, "w": w, "s": s, "x": x, "wick": wick})
