"""Modules in training with rounded weights: prepare_qat, quantize_qat, quantize, and what convert makes of them."""

import pytest

import wick
import wick.ao.nn.intrinsic as fused
import wick.ao.nn.intrinsic.qat as fused_qat
import wick.ao.nn.qat as qat
from wick import nn
from wick.ao import quantization as q

pytestmark = pytest.mark.filterwarnings("ignore:Please use quant_min and quant_max")


def make(seed=0):
    wick.manual_seed(seed)
    layers = [
        q.QuantStub(),
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(144, 5),
        q.DeQuantStub(),
    ]
    return nn.Sequential(*layers), wick.randn(16, 3, 8, 8)


def prepared_model(backend="x86"):
    model, x = make()
    model = q.fuse_modules_qat(model, [["1", "2", "3"]])
    model.qconfig = q.get_default_qat_qconfig(backend)
    return model, x, q.prepare_qat(model)


def test_which_modules_stand_where():
    model, _, prepared = prepared_model()
    assert [type(m) for m in model[1:4]] == [fused.ConvBnReLU2d, nn.Identity, nn.Identity]
    assert type(prepared[1]) is fused_qat.ConvBnReLU2d and type(prepared[5]) is qat.Linear
    assert "(weight_fake_quant): FusedMovingAvgObsFakeQuantize" in str(prepared)
    assert {"1.weight", "1.bias", "1.bn.running_mean", "5.weight_fake_quant.scale"} <= set(prepared.state_dict())
    assert prepared[1].activation_post_process.activation_post_process.quant_max == 127  # of seven bits
    assert type(prepared[1].to_float()) is fused.ConvReLU2d


def test_without_rounding_it_is_the_model():
    _, x, prepared = prepared_model()
    other = make()[0]
    prepared.apply(q.disable_fake_quant)
    for _ in range(3):
        found, wanted = prepared(x), other(x)
        wick.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    wick.testing.assert_close(prepared[1].bn.running_var, other[2].running_var, rtol=1e-4, atol=1e-6)


def test_training_and_converting():
    model, x, _ = prepared_model("onednn")  # of eight bits: with seven, training cuts off what a byte holds
    y = wick.randn(16, 5)
    losses = []

    def train(prepared, x, y):
        optimizer = wick.optim.Adam(prepared.parameters(), lr=0.01)
        for _ in range(80):
            optimizer.zero_grad()
            loss = (prepared(x) - y).pow(2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        prepared.eval().apply(q.disable_observer)
        wanted.append(prepared(x).detach())

    wanted = []
    quantized = q.quantize_qat(model, train, (x, y))
    assert losses[-1] < 0.2 * losses[0]
    layers = [m for m in quantized.modules() if getattr(m, "weight", None) is not None]
    assert len(layers) == 2 and all(m.weight.dtype == wick.int8 for m in layers)
    found = quantized(x)
    assert (found - wanted[0]).norm() < 0.1 * wanted[0].norm()


def test_quantize_is_one_call():
    model, x = make()
    model.qconfig = q.get_default_qconfig("x86")
    for quantize in (q.quantize, wick.quantization.quantize):
        quantized = quantize(model.eval(), lambda m, x: m(x), (x,))
        with wick.no_grad():
            assert (quantized(x) - model(x)).norm() < 0.1 * model(x).norm()


@pytest.mark.parametrize("norm", [fused_qat.ConvBn2d, fused_qat.ConvBnReLU2d])
def test_frozen_statistics(norm):
    layer = norm(3, 4, 3, qconfig=q.get_default_qat_qconfig())
    x, before = wick.randn(2, 3, 6, 6), layer.bn.running_mean.clone()
    layer.apply(fused_qat.freeze_bn_stats)
    layer.train()(x)
    assert wick.equal(layer.bn.running_mean, before)
    layer.apply(fused_qat.update_bn_stats)
    layer(x)
    assert not wick.equal(layer.bn.running_mean, before) and layer.bias is None


def test_linear_layers_with_norms():
    wick.manual_seed(0)
    model = q.fuse_modules_qat(nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4)), ["0", "1"])
    assert type(model[0]) is fused.LinearBn1d
    model.qconfig = q.get_default_qat_qconfig()
    prepared, x = q.prepare_qat(model), wick.randn(32, 6)
    assert type(prepared[0]) is fused_qat.LinearBn1d
    for _ in range(60):
        prepared(x)
    wanted = prepared.eval()(x)
    assert (q.convert(prepared)(x) - wanted).norm() < 0.1 * wanted.norm()


def test_errors():
    model, _ = make()
    qconfig = q.get_default_qat_qconfig()
    with pytest.raises(AssertionError, match="prepare_qat only works on models in training mode"):
        q.prepare_qat(model.eval())
    with pytest.raises(AssertionError, match="qconfig must be provided for QAT module"):
        qat.Linear(2, 3)
    with pytest.raises(AssertionError, match="qat.Linear.from_float only works for Linear, got Conv2d"):
        qat.Linear.from_float(nn.Conv2d(1, 1, 1))
    with pytest.raises(AssertionError, match="Input float module must have qconfig defined"):
        qat.Linear.from_float(nn.Linear(1, 1))
    with pytest.raises(AssertionError, match="did not find fuser method"):
        q.fuse_modules_qat(nn.Sequential(nn.ReLU(), nn.Linear(1, 1)), ["0", "1"])
    with pytest.raises(AssertionError, match="Incorrect types for input modules"):
        fused.ConvBn2d(nn.Conv1d(1, 1, 1), nn.BatchNorm2d(1))
    assert qat.Conv2d(1, 2, 3, qconfig=qconfig).weight_fake_quant is not None
