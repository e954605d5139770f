"""Quantization of graphs by qconfigs: which operators have which, and that results are near the floats."""

import pytest

import wick
from wick import nn
from wick.ao import quantization as q
from wick.ao.quantization.quantize_fx import convert_fx, fuse_fx, prepare_fx, prepare_qat_fx

quantized = wick.ops.quantized_decomposed
pytestmark = pytest.mark.filterwarnings("ignore:Please use quant_min and quant_max")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.relu = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()
        self.head = nn.Sequential(nn.Linear(144, 8), nn.ReLU(), nn.Linear(8, 5))

    def forward(self, x):
        return self.head(self.relu(self.bn(self.conv(x))).flatten(1))


def make():
    wick.manual_seed(0)
    return Model(), wick.randn(8, 3, 8, 8)


def weights(graph):
    return sum(n.target is quantized.dequantize_per_channel.default for n in graph.graph.nodes)


@pytest.mark.parametrize("backend", ["x86", "onednn"])
def test_results_are_near_the_floats(backend):
    model, x = make()
    model.eval()
    prepared = prepare_fx(model, q.get_default_qconfig_mapping(backend), (x,))
    with wick.no_grad():
        wanted = model(x)
        wick.testing.assert_close(prepared(x), wanted, rtol=1e-4, atol=1e-5)
        converted = convert_fx(prepared)
        assert weights(converted) == 3
        for found in (converted(x), wick.compile(converted)(x)):
            assert 0 < (found - wanted).norm() < 0.05 * wanted.norm()


def test_the_model_stays_as_it_was():
    model, x = make()
    model.head.eval()
    mean = model.bn.running_mean.clone()
    with wick.no_grad():
        prepare_fx(model, q.get_default_qconfig_mapping("x86"), (x,))(x)
    assert model.training and model.bn.training and not model.head.training
    assert wick.equal(model.bn.running_mean, mean)


MAPPINGS = [
    (lambda m: m, 3),
    (lambda m: m.set_object_type(nn.Linear, None), 1),
    (lambda m: m.set_object_type(nn.functional.conv2d, None), 2),
    (lambda m: m.set_module_name("head", None), 1),
    (lambda m: m.set_module_name("head.2", None), 2),
    (lambda m: m.set_module_name_regex("head.*", None), 1),
    (lambda m: m.set_global(None).set_module_name("conv", q.get_default_qconfig()), 1),
    (lambda m: m.to_dict(), 3),
]


@pytest.mark.parametrize("change,count", MAPPINGS)
def test_which_operators_are_quantized(change, count):
    model, x = make()
    prepared = prepare_fx(model.eval(), change(q.get_default_qconfig_mapping()), (x,))
    prepared(x)
    assert weights(convert_fx(prepared)) == count


def test_training():
    model, x = make()
    prepared = prepare_qat_fx(model.train(), q.get_default_qat_qconfig_mapping("onednn"), (x,))
    y, losses = wick.randn(8, 5), []
    optimizer = wick.optim.Adam([p for p in prepared.parameters() if p.requires_grad], lr=0.01)
    for _ in range(100):
        optimizer.zero_grad()
        loss = (prepared(x) - y).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]
    prepared.apply(q.disable_observer)
    with wick.no_grad():
        converted = convert_fx(prepared)
    assert weights(converted) == 3
    assert wick.ops.aten._native_batch_norm.default not in [n.target for n in converted.graph.nodes]


def test_fusing():
    model, x = make()
    fused = fuse_fx(model.eval())
    assert type(fused.conv) is wick.ao.nn.intrinsic.ConvReLU2d and not hasattr(fused, "bn")
    assert type(fused.get_submodule("head.0")) is wick.ao.nn.intrinsic.LinearReLU
    wick.testing.assert_close(fused(x), model(x), rtol=1e-4, atol=1e-5)


def test_mappings():
    mapping = q.QConfigMapping().set_object_type(nn.Linear, None)
    assert mapping.to_dict() == {
        "": None, "object_type": [(nn.Linear, None)], "module_name_regex": [], "module_name": [],
        "module_name_object_type_order": [],
    }  # fmt: skip
    assert "object_type_qconfigs" in repr(mapping)
    model, x = make()
    with pytest.raises(AssertionError, match="training mode"):
        prepare_qat_fx(model.eval(), mapping, (x,))
    with pytest.raises(NotImplementedError, match="set_module_name_object_type_order"):
        prepare_fx(model, q.QConfigMapping().set_module_name_object_type_order("a", nn.Linear, 0, None), (x,))
    assert wick.quantization.quantize_fx.prepare_fx is prepare_fx
