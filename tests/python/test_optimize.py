"""wick.optimize: what is folded and what is not, that results stay, and its errors."""

import pytest

import wick
from wick import nn
from wick.ao.quantization.linear import QuantizedLinear


def ready(model):
    """Statistics and affine parameters that are not those of a new layer."""
    wick.manual_seed(0)
    for m in model.modules():
        if getattr(m, "running_mean", None) is not None:
            m.running_mean.normal_()
            m.running_var.uniform_(0.5, 2)
            nn.init.uniform_(m.weight, 0.5, 2)
            nn.init.normal_(m.bias)
    return model


def norms(model):
    return sum("BatchNorm" in type(m).__name__ for m in model.modules())


def same(model, *inputs, left=0, **options):
    """Optimized, with results of the model in eval mode; `left` batch norms stay. Gives it."""
    made = wick.optimize(model, **options)
    with wick.no_grad():
        wanted = model.eval()(*inputs)
    found = made(*inputs)
    assert not found.requires_grad and not made.training and not any(p.requires_grad for p in made.parameters())
    wick.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert norms(made) == left
    wick.testing.assert_close(wick.compile(made)(*inputs), found, rtol=1e-5, atol=1e-5)
    return made


class Block(nn.Module):
    def __init__(self, twice=False):
        super().__init__()
        self.conv, self.bn, self.twice = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), twice

    def forward(self, x):
        y = self.conv(x)
        return x + (self.bn(y) + y if self.twice else self.bn(y).relu())


CONVOLUTIONS = {
    "1d": (nn.Conv1d(3, 6, 3), nn.BatchNorm1d(6), (2, 3, 9)),
    "2d": (nn.Conv2d(4, 6, 3, groups=2), nn.BatchNorm2d(6), (2, 4, 9, 9)),
    "3d": (nn.Conv3d(2, 3, 2, bias=False), nn.BatchNorm3d(3), (2, 2, 4, 4, 4)),
    "transposed": (nn.ConvTranspose2d(4, 6, 3), nn.BatchNorm2d(6), (2, 4, 5, 5)),
    "linear": (nn.Linear(8, 5), nn.BatchNorm1d(5), (3, 8)),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_norms_go_into_the_layer_before(name):
    layer, norm, size = CONVOLUTIONS[name]
    made = same(ready(nn.Sequential(layer, norm, nn.ReLU())), wick.randn(size))
    assert isinstance(made[1], nn.Identity) and type(made[0]) is type(layer) and made[0].bias is not None


def test_norms_inside_of_modules():
    same(ready(nn.Sequential(Block(), nn.Sequential(Block(), nn.Dropout(0.5)))), wick.randn(2, 4, 6, 6))


def test_a_layer_that_is_read_twice_keeps_its_norm():
    same(ready(Block(twice=True)), wick.randn(2, 4, 6, 6), left=1)
    shared = Block()
    same(ready(nn.Sequential(shared, shared)), wick.randn(2, 4, 6, 6), left=1)


def test_other_layers_keep_their_norm():
    grouped = nn.Sequential(nn.ConvTranspose2d(4, 6, 3, groups=2), nn.BatchNorm2d(6))
    same(ready(grouped), wick.randn(2, 4, 6, 6), left=1)
    hooked = ready(Block())
    seen = []
    hooked.conv.register_forward_hook(lambda module, args, result: seen.append(result))
    made = wick.optimize(hooked)
    made(wick.randn(2, 4, 6, 6))
    assert norms(made) == 1 and len(seen) == 1
    batch = nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4, track_running_stats=False))
    same(batch, wick.randn(2, 4, 6, 6), left=1)


class Branches(nn.Module):
    """What tracing cannot follow: its parts are looked at by themselves, and its own calls left alone."""

    def __init__(self):
        super().__init__()
        self.part, self.conv, self.bn = Block(), nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)

    def forward(self, x):
        x = self.part(x)
        return self.bn(self.conv(x)) if x.sum() > 0 else self.conv(x)


def test_programs_that_cannot_be_traced():
    model = ready(Branches())
    for sign in (1, -1):
        x = sign * wick.rand(2, 4, 6, 6) * 100
        made = wick.optimize(model)
        with wick.no_grad():
            wick.testing.assert_close(made(x), model.eval()(x), rtol=1e-4, atol=1e-4)
        assert norms(made) == 1 and isinstance(made.part.bn, nn.Identity)


class Optional(nn.Module):
    """A norm that depends on an argument with a default."""

    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)

    def forward(self, x, plain=None):
        y = self.conv(x)
        return y if plain is not None else self.bn(y)


def test_defaults_are_looked_at_both_ways():
    model, x = ready(Optional()), wick.randn(2, 4, 6, 6)
    made = wick.optimize(model)
    with wick.no_grad():
        for args in ((x,), (x, True)):
            wick.testing.assert_close(made(*args), model.eval()(*args))


def test_weights_are_laid_out_with_the_same_bits():
    model = nn.Sequential(nn.Linear(48, 32), nn.GELU(), nn.Linear(32, 16))
    made = wick.optimize(model)
    assert made[0].weight.stride() == (1, 32) and model[0].weight.stride() == (48, 1)
    compiled = wick.compile(made)
    for rows in (1, 5, 64):
        x = wick.randn(rows, 48)
        with wick.no_grad():
            assert wick.equal(made(x), model(x)) and wick.equal(compiled(x), model(x))
    other = nn.Sequential(nn.Linear(48, 32), nn.GELU(), nn.Linear(32, 16))
    other.load_state_dict(made.state_dict())
    assert wick.equal(other(x), made(x))


def test_shared_weights_stay_shared():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    model[1].weight = model[0].weight
    made = wick.optimize(model)
    assert made[0].weight is made[1].weight
    layer = nn.Linear(8, 8)
    made = wick.optimize(nn.Sequential(layer, nn.ReLU(), layer), dtype=wick.bfloat16)
    assert made[0] is made[2]


def test_bfloat16_weights():
    wick.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 20), nn.Linear(20, 7))
    made = wick.optimize(model, dtype=wick.bfloat16)
    assert [type(m) for m in made] == [QuantizedLinear, nn.ReLU, QuantizedLinear, nn.Linear]
    assert made[0].weight.numel() == 2 * 64 * 96

    def rounded(x, layer):
        return nn.functional.linear(x.bfloat16().float(), layer.weight.bfloat16().float(), layer.bias)

    for rows in (1, 4, 40):
        x = wick.randn(rows, 64)
        with wick.no_grad():
            wanted = model[3](rounded(model[1](rounded(x, model[0])), model[2]))
        assert made(x).dtype == wick.float32
        wick.testing.assert_close(made(x), wanted, rtol=1e-5, atol=1e-5)  # only the order of sums differs
        assert wick.equal(wick.compile(made)(x), made(x))


def test_float32_converts():
    made = wick.optimize(nn.Linear(4, 3).double(), dtype=wick.float32)
    assert made.weight.dtype == wick.float32
    assert wick.optimize(nn.Linear(4, 3).double()).weight.dtype == wick.float64


def test_inplace_and_copies():
    model = ready(Block()).train()
    assert wick.optimize(model) is not model and model.training and norms(model) == 1
    assert wick.optimize(model, inplace=True) is model and norms(model) == 0
    x = wick.randn(2, 4, 6, 6)
    wick.testing.assert_close(wick.optimize(model)(x), model(x))  # a second time changes nothing


def test_attention_and_recurrent_layers():
    wick.manual_seed(0)
    model, x = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), wick.randn(2, 5, 32)
    same(model, x)
    made = wick.optimize(model, dtype=wick.bfloat16)
    assert isinstance(made.linear1, QuantizedLinear)
    with wick.no_grad():
        wick.testing.assert_close(made(x), model.eval()(x), rtol=0.05, atol=0.05)
    lstm = nn.LSTM(8, 8)
    wick.testing.assert_close(wick.optimize(lstm)(wick.ones(3, 2, 8))[0], lstm(wick.ones(3, 2, 8))[0])


def test_errors():
    with pytest.raises(TypeError, match="the model is a torch.nn.Module, not function"):
        wick.optimize(lambda x: x)
    with pytest.raises(ValueError, match="dtype is None, torch.float32 or torch.bfloat16, not torch.float16"):
        wick.optimize(nn.Linear(2, 2), dtype=wick.float16)
    with pytest.raises(ValueError, match="weight has no size yet"):
        wick.optimize(nn.Sequential(nn.LazyLinear(3)))


def test_switches_of_mkldnn_are_kept():
    mkldnn = wick.backends.mkldnn
    assert mkldnn.enabled and mkldnn.is_available() in (True, False)
    with mkldnn.flags(enabled=False):
        assert not mkldnn.enabled
    assert mkldnn.enabled
    before = mkldnn.set_flags(_enabled=False)
    assert before[0] and not mkldnn.enabled
    mkldnn.set_flags(*before)
    assert mkldnn.enabled
