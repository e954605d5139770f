"""Quantization of captured graphs: where observers go, what convert_pt2e puts in their place, and that the result is near
the floats, eager and compiled; training with faked quantization; quantizers of programs."""

import pytest

import wick
from wick import nn
from wick.ao.quantization.observer import MinMaxObserver
from wick.ao.quantization.quantize_pt2e import capture, convert_pt2e, prepare_pt2e, prepare_qat_pt2e
from wick.ao.quantization.quantizer import (
    FixedQParamsQuantizationSpec,
    QuantizationAnnotation,
    QuantizationSpec,
    Quantizer,
    SharedQuantizationSpec,
    X86Quantizer,
    XNNPACKQuantizer,
    get_default_x86_quantization_config,
    get_symmetric_quantization_config,
)

aten, q = wick.ops.aten, wick.ops.quantized_decomposed


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.first, self.last = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(512, 16), nn.Linear(16, 4)

    def forward(self, x):
        y = wick.relu(self.conv(x))
        z = y + self.conv(x)
        return self.last(wick.relu(self.first(z.flatten(1))))


def make():
    wick.manual_seed(0)
    return Model().eval(), wick.randn(2, 3, 8, 8)


def targets(graph):
    return [node.target for node in graph.graph.nodes if node.op == "call_function"]


QUANTIZERS = {
    "xnnpack": lambda **o: XNNPACKQuantizer().set_global(get_symmetric_quantization_config(True, **o)),
    "per tensor": lambda **o: XNNPACKQuantizer().set_global(get_symmetric_quantization_config(**o)),
    "x86": lambda **o: X86Quantizer().set_global(get_default_x86_quantization_config(**o)),
}


@pytest.mark.parametrize("name", QUANTIZERS)
@pytest.mark.parametrize("is_dynamic", [False, True])
def test_results_are_near_the_floats(name, is_dynamic):
    model, x = make()
    with wick.no_grad():
        prepared = prepare_pt2e(capture(model, (x,)), QUANTIZERS[name](is_dynamic=is_dynamic))
        wanted = model(x)
        wick.testing.assert_close(prepared(x), wanted)  # observers give tensors on
        converted = convert_pt2e(prepared)
        found = converted(x)
        assert (found - wanted).abs().max() <= 0.06 * wanted.abs().max()
        assert not wick.equal(found, wanted)
        compiled = wick.compile(converted)
        for _ in range(3):  # sums of products of bytes are exact; the floats' round
            wick.testing.assert_close(compiled(x), found, rtol=0, atol=0.02 * wanted.abs().max().item())


def test_what_stands_in_the_graph():
    model, x = make()
    prepared = prepare_pt2e(capture(model, (x,)), QUANTIZERS["xnnpack"]())
    prepared(x)
    graph = convert_pt2e(prepared)
    names = [str(t) for t in targets(graph)]
    # the input, what conv and relu, conv, add, view, linear and relu, and the last linear give
    assert names.count("quantized_decomposed.quantize_per_tensor.default") == 7
    assert names.count("quantized_decomposed.dequantize_per_channel.default") == 4
    assert not any("quantize_per_channel" in n for n in names if not n.startswith("quantized_decomposed.de"))
    weights = {n: b.dtype for n, b in graph.named_buffers() if n.startswith("_frozen_param")}
    assert len(weights) == 3 and set(weights.values()) == {wick.int8}
    for node in graph.graph.nodes:
        if node.target == aten.linear.default:
            assert node.args[0].target == q.dequantize_per_tensor.default
            assert node.args[1].target == q.dequantize_per_channel.default
        if node.target == aten.relu.default:
            assert [u.target for u in node.users] == [q.quantize_per_tensor.default]
    scales = {n.args[1:3] for n in graph.graph.nodes if n.target == q.quantize_per_tensor.default}
    assert len(scales) == 6  # the view has add's


def test_compiled_linears_multiply_bytes():
    model, x = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8)).eval(), wick.randn(4, 64)
    prepared = prepare_pt2e(capture(model, (x,)), QUANTIZERS["x86"]())
    prepared(x)
    graph = convert_pt2e(prepared)
    with wick.no_grad():
        compiled = wick.compile(graph)
        compiled(x)
        text = str(wick.compiler.explain(graph)(x)) if hasattr(wick.compiler, "explain") else ""
        result = graph(x)
        # By hand: bytes, exact sums, scales.
        first = next(n for n in graph.graph.nodes if n.target == q.quantize_per_tensor.default).args
        bits = q.quantize_per_tensor.default(x, *first[1:])
        weight, scales = graph._frozen_param_0, graph._scale_0
        bias = model[0].bias
        hidden = wick._C._int8_linear(bits, first[1], first[2], weight, scales, bias)
    assert (compiled(x) - result).abs().max() < 1e-5 + 0.02 * result.abs().max() and isinstance(text, str)
    wick.testing.assert_close(hidden, model[0](x), rtol=0, atol=0.05)


def test_weights_may_stay_floats():
    model, x = make()
    prepared = prepare_pt2e(capture(model, (x,)), QUANTIZERS["xnnpack"]())
    prepared(x)
    folded, plain = convert_pt2e(prepared), convert_pt2e(prepared, fold_quantize=False)
    assert q.quantize_per_channel.default in targets(plain)
    wick.testing.assert_close(folded(x), plain(x), rtol=0, atol=0)


def test_operators_that_are_left_out():
    model, x = make()
    quantizer = QUANTIZERS["xnnpack"]().set_operator_type(aten.convolution.default, None)
    quantizer.set_operator_type(aten.add.Tensor, None)
    graph = prepare_pt2e(capture(model, (x,)), quantizer)
    graph(x)
    graph = convert_pt2e(graph)
    assert sum(t == q.dequantize_per_channel.default for t in targets(graph)) == 2


def test_training_with_faked_quantization():
    wick.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    x = wick.randn(64, 8)
    y = x.pow(2).sum(1, keepdim=True)
    prepared = prepare_qat_pt2e(capture(model, (x,)), QUANTIZERS["x86"](is_qat=True))
    parameters = [p for p in prepared.parameters() if p.requires_grad]
    optimizer = wick.optim.Adam(parameters, lr=0.02)
    losses = []
    for _ in range(150):
        optimizer.zero_grad()
        loss = (prepared(x) - y).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]
    prepared.apply(wick.ao.quantization.disable_observer)
    with wick.no_grad():
        wanted, converted = prepared(x), convert_pt2e(prepared)
        assert q.quantize_per_tensor.default in targets(converted)
        # what was faked is what is computed
        wick.testing.assert_close(converted(x), wanted, rtol=0, atol=0.02 * wanted.abs().max().item())


class OfAProgram(Quantizer):
    """A quantizer with each kind of spec."""

    def annotate(self, model):
        seen = QuantizationSpec(wick.uint8, MinMaxObserver, 0, 255, wick.per_tensor_affine)
        for node in model.graph.nodes:
            if node.target == aten.sigmoid.default:
                fixed = FixedQParamsQuantizationSpec(wick.uint8, 1 / 256, 0, 0, 255)
                node.meta["quantization_annotation"] = QuantizationAnnotation({node.args[0]: seen}, fixed)
            if node.target == aten.cat.default:
                a, b = node.args[0]
                share = SharedQuantizationSpec((a, node))
                node.meta["quantization_annotation"] = QuantizationAnnotation({a: seen, b: share}, share)
        return model


def test_quantizers_of_programs():
    def model(x, y):
        return wick.cat([x.sigmoid(), y])

    args = wick.randn(3, 4), wick.randn(3, 4) * 5
    prepared = prepare_pt2e(capture(model, args), OfAProgram())
    prepared(*args)
    graph = convert_pt2e(prepared)
    numbers = [n.args[1:3] for n in graph.graph.nodes if n.target == q.quantize_per_tensor.default]
    assert (1 / 256, 0) in numbers
    assert len(set(numbers)) == 3  # sigmoid's input, its output, and one for the three around cat
    wick.testing.assert_close(graph(*args), model(*args), rtol=0, atol=0.06)


def test_only_graphs_are_prepared():
    with pytest.raises(TypeError, match="captured graph"):
        prepare_pt2e(nn.Linear(2, 2), QUANTIZERS["xnnpack"]())


@pytest.mark.parametrize("bias", [False, True])
def test_batch_norms_are_folded_before_observers_see_weights(bias):
    wick.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3, bias=bias), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 1)).eval()
    model[1].running_mean.normal_()
    model[1].running_var.uniform_(0.5, 2)
    nn.init.uniform_(model[1].weight, 0.5, 2)
    x = wick.randn(2, 3, 8, 8)
    prepared = prepare_pt2e(capture(model, (x,)), QUANTIZERS["x86"]())
    with wick.no_grad():
        wanted = model(x)
        wick.testing.assert_close(prepared(x), wanted, rtol=1e-4, atol=1e-5)
        assert wick.ops.aten._native_batch_norm.default not in targets(prepared)
        converted = convert_pt2e(prepared)
        weights = [b for name, b in converted.named_buffers() if b.dtype == wick.int8]
        assert len(weights) == 2 and (converted(x) - wanted).norm() < 0.05 * wanted.norm()
        assert (wick.compile(converted)(x) - wanted).norm() < 0.05 * wanted.norm()


def test_other_batch_norms_stay():
    norm = wick.ops.aten._native_batch_norm.default
    model, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), wick.randn(2, 3, 8, 8)

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.bn = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

        def forward(self, x):
            y = self.conv(x)
            return y + self.bn(y)

    for graph in (capture(Twice().eval(), (x,)), capture(nn.BatchNorm2d(3).eval(), (x,))):
        assert norm in targets(graph) and norm in targets(prepare_pt2e(graph, QUANTIZERS["x86"]()))
    graph = capture(model.eval(), (x,))
    assert norm in targets(prepare_qat_pt2e(graph, QUANTIZERS["x86"](is_qat=True)))
