"""prepare and convert of modules: where observers go, what stands for a layer afterwards, and how near it is."""

import pytest

import wick
from wick import nn
from wick.ao import quantization as q
from wick.ao.nn.intrinsic import ConvReLU2d, LinearReLU
from wick.ao.nn.quantized import FloatFunctional
from wick.ao.quantization import eager
from wick.ao.quantization.linear import DynamicQuantizedLinear
from wick.ao.quantization.observer import HistogramObserver


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.quant, self.dequant, self.add = q.QuantStub(), q.DeQuantStub(), FloatFunctional()
        self.conv, self.bn, self.relu = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()
        self.res, self.fc, self.norm = nn.Conv2d(4, 4, 1), nn.Linear(144, 5), nn.LayerNorm(5)

    def forward(self, x):
        x = self.relu(self.bn(self.conv(self.quant(x))))
        x = self.add.add(x, self.res(x))
        return self.dequant(self.norm(self.fc(x.flatten(1))))


def made(backend="x86", seed=0):
    """(model, its input, the prepared one after calibration)"""
    wick.manual_seed(seed)
    model, x = Model().eval(), wick.randn(8, 3, 8, 8)
    model.bn.running_mean.normal_()
    model.bn.running_var.uniform_(0.5, 2)
    fused = q.fuse_modules(model, [["conv", "bn", "relu"]])
    fused.qconfig = q.get_default_qconfig(backend)
    prepared = q.prepare(fused)
    with wick.no_grad():
        wick.testing.assert_close(prepared(x), model(x))
    return model, x, prepared


pytestmark = pytest.mark.filterwarnings("ignore:Please use quant_min and quant_max")


@pytest.mark.parametrize("backend", ["x86", "qnnpack"])
def test_converted_models_are_near(backend):
    model, x, prepared = made(backend)
    converted = q.convert(prepared)
    with wick.no_grad():
        wanted, found = model(x), converted(x)
        assert 0 < (found - wanted).norm() <= 0.06 * wanted.norm()  # six roundings to 128 or 256 numbers
        assert all(wick.equal(wick.compile(converted)(x), found) for _ in range(2))
    for layer in (converted.conv, converted.res, converted.fc):
        assert layer.weight.dtype == wick.int8 and layer.weight.abs().max() > 100
    assert not any(hasattr(m, "qconfig") or m._forward_hooks for m in converted.modules())


def test_results_are_numbers_of_a_byte():
    _, x, prepared = made()
    converted, seen = q.convert(prepared), {}
    names = ("quant", "conv", "res", "fc", "norm")
    for name in names:
        converted.get_submodule(name).register_forward_hook(lambda m, args, y, name=name: seen.update({name: y}))
    converted(x)
    for name in names:
        module = converted.get_submodule(name)
        whole = seen[name] / module.scale + module.zero_point
        wick.testing.assert_close(whole, whole.round(), rtol=0, atol=1e-3)
        assert whole.min() > -0.01 and whole.max() < 255.01 and len(whole.round().unique()) > 10
    assert seen["conv"].min() == 0


def test_observers_stand_behind_layers():
    prepared = made()[2]
    observed = {name for name, m in prepared.named_modules() if isinstance(m, HistogramObserver)}
    places = ("quant", "conv", "res", "fc", "norm", "add")
    assert observed == {f"{name}.activation_post_process" for name in places}


def test_models_stay_as_they_are_without_inplace():
    model, x, prepared = made()
    with wick.no_grad():
        before = prepared(x)
        q.convert(prepared)
        assert wick.equal(prepared(x), before) and type(model.conv) is nn.Conv2d
    assert q.convert(prepared, inplace=True) is prepared


def test_a_state_dict_goes_into_a_model_of_the_same_kind():
    _, x, prepared = made()
    one, other = q.convert(prepared), q.convert(made(seed=1)[2])
    assert not wick.equal(one(x), other(x))
    other.load_state_dict(one.state_dict())
    assert wick.equal(one(x), other(x))


def test_a_qconfig_may_be_a_parts_own():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    model.qconfig = q.default_qconfig
    model[0].qconfig = None
    prepared = q.prepare(model)
    prepared(wick.randn(5, 4))
    converted = q.convert(prepared)
    assert type(converted[0]) is nn.Linear and type(converted[2]) is eager.QuantizedLinear
    shared = nn.Linear(4, 4)
    model = nn.Sequential(shared, shared)
    model.qconfig = q.default_qconfig
    prepared = q.prepare(model)
    prepared(wick.randn(5, 4))
    converted = q.convert(prepared)
    assert converted[0] is converted[1]


def test_dynamic():
    model = nn.Sequential(nn.Linear(32, 8), nn.ReLU())
    model.qconfig = q.default_dynamic_qconfig
    prepared = q.prepare(model)
    assert not any(m._forward_hooks for m in prepared.modules())
    assert type(q.convert(prepared)[0]) is DynamicQuantizedLinear


def test_fusing():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Conv2d(1, 1, 1), nn.ReLU()).eval()
    fused = q.fuse_modules(model, [["0", "1", "2"], ["3", "4"]])
    assert [type(m) for m in fused] == [LinearReLU, nn.Identity, nn.Identity, ConvReLU2d, nn.Identity]
    assert type(q.fuse_modules(model, ["0", "1"])[0]) is nn.Linear
    with pytest.raises(AssertionError, match="did not find fuser method for"):
        q.fuse_modules(model, ["0", "3"])
    with pytest.raises(NotImplementedError, match="Cannot fuse train modules"):
        q.fuse_modules(model.train(), ["0", "1"])


def test_errors():
    with pytest.warns(UserWarning, match="None of the submodule got qconfig applied"):
        assert type(q.convert(q.prepare(nn.Sequential(nn.Linear(2, 2))))[0]) is nn.Linear
    with pytest.raises(NotImplementedError, match="allow_list"):
        q.prepare(nn.Linear(2, 2), allow_list=set())
    model = nn.Sequential(nn.Linear(4, 4))
    model.qconfig = q.QConfig(q.MinMaxObserver, q.PerChannelMinMaxObserver.with_args(dtype=wick.int8, ch_axis=1))
    prepared = q.prepare(model)
    prepared(wick.randn(3, 4))
    with pytest.raises(NotImplementedError, match="weights are symmetric int8|first dim"):
        q.convert(prepared)


def test_the_older_paths():
    from wick.ao.quantization.quantize import convert, prepare

    assert (prepare, convert) == (eager.prepare, eager.convert)
    assert wick.quantization.prepare is eager.prepare
