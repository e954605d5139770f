"""Training with faked quantization: batch norms behind convolutions are trained as what they are folded into."""

import pytest

import wick
from wick import nn
from wick.ao.quantization import disable_fake_quant, disable_observer
from wick.ao.quantization.quantize_pt2e import capture, convert_pt2e, prepare_qat_pt2e
from wick.ao.quantization.quantizer import (
    X86Quantizer,
    XNNPACKQuantizer,
    get_default_x86_quantization_config,
    get_symmetric_quantization_config,
)

aten, q = wick.ops.aten, wick.ops.quantized_decomposed
QUANTIZERS = {
    "xnnpack": lambda: XNNPACKQuantizer().set_global(get_symmetric_quantization_config(True, is_qat=True)),
    "x86": lambda: X86Quantizer().set_global(get_default_x86_quantization_config(is_qat=True)),
}


def make(bias, relu, dims=2):
    wick.manual_seed(0)
    conv, norm = ((nn.Conv1d, nn.BatchNorm1d), (nn.Conv2d, nn.BatchNorm2d))[dims - 1]
    layers = [conv(3, 8, 3, bias=bias), norm(8), *([nn.ReLU()] if relu else []), conv(8, 4, 1)]
    nn.init.uniform_(layers[1].weight, 0.5, 2)
    return nn.Sequential(*layers), wick.randn(4, 3, *[10] * dims)


def prepared_of(name, bias=True, relu=True, dims=2):
    model, x = make(bias, relu, dims)
    prepared = prepare_qat_pt2e(capture(model, (x,)), QUANTIZERS[name]())
    return model, x, prepared


@pytest.mark.parametrize("name", QUANTIZERS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("dims", [1, 2])
def test_without_rounding_it_is_the_model(name, bias, relu, dims):
    model, x, prepared = prepared_of(name, bias, relu, dims)
    other = make(bias, relu, dims)[0]
    prepared.apply(disable_fake_quant)
    for _ in range(3):
        found, wanted = prepared(x), other(x)
        wick.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    found.sum().backward()
    wanted.sum().backward()
    counted = next(b for n, b in prepared.named_buffers() if n.startswith("_tensor_constant") and b.dtype == wick.int64)
    assert counted == other[1].num_batches_tracked + 1  # capturing runs the model once
    parameters = [p for p in prepared.parameters() if p.requires_grad]
    for mine, own in zip(parameters, other.parameters(), strict=True):
        wick.testing.assert_close(mine.grad, own.grad, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", QUANTIZERS)
def test_what_is_rounded_is_the_folded_weight(name):
    model, x, prepared = prepared_of(name)
    conv = next(n for n in prepared.graph.nodes if n.target is aten.convolution.default)
    fake = prepared.get_submodule(conv.args[1].target)
    norm = next(n for n in prepared.graph.nodes if n.target is aten._native_batch_norm.default)
    variance = [b for n, b in prepared.named_buffers() if b.shape == (8,) and n.startswith("_tensor_constant")][
        1
    ].clone()
    gain = getattr(prepared, norm.args[1].target)
    prepared(x)
    scaled = model[0].weight * (gain * (variance + 1e-5).rsqrt()).view(-1, 1, 1, 1)
    most = scaled.detach().abs().flatten(1).amax(1)
    wick.testing.assert_close(fake.activation_post_process.max_val.maximum(-fake.activation_post_process.min_val), most)


@pytest.mark.parametrize("name", QUANTIZERS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("relu", [False, True])
def test_converted_it_is_one_convolution(name, bias, relu):
    model, x, prepared = prepared_of(name, bias, relu)
    for _ in range(60):  # the running statistics become those of x
        prepared(x)
    prepared.apply(disable_observer)
    with wick.no_grad():
        wanted = prepared(x)
        converted = convert_pt2e(prepared)
        targets = [n.target for n in converted.graph.nodes]
        assert aten._native_batch_norm.default not in targets and aten.copy_.default not in targets
        assert aten._channel_moments.default not in targets
        assert [b.dtype for n, b in converted.named_buffers() if n.startswith("_frozen_param")] == [wick.int8] * 2
        before = {n: b.clone() for n, b in converted.named_buffers()}
        for found in (converted(x), wick.compile(converted)(x)):
            assert (found - wanted).norm() < 0.05 * wanted.norm()
        assert all(wick.equal(b, before[n]) for n, b in converted.named_buffers())


def test_statistics_are_not_rounded():
    _, x, prepared = prepared_of("xnnpack")
    for node in prepared.graph.nodes:
        if node.target is aten.copy_.default:
            assert not any(n.op == "call_module" for n in node.args[1].all_input_nodes)


def test_training_reaches_all_parameters():
    model, x, prepared = prepared_of("x86")
    parameters = [p for p in prepared.parameters() if p.requires_grad]
    optimizer = wick.optim.Adam(parameters, lr=0.02)
    y = wick.randn(4, 4, 1, 1).expand(4, 4, 8, 8) + x[:, :1, 1:-1, 1:-1]
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = (prepared(x) - y).pow(2).mean()
        loss.backward()
        assert len(parameters) == 6 and all(p.grad is not None for p in parameters)
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]
