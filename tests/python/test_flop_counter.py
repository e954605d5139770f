"""torch.utils.flop_counter: figures are those of PyTorch's counter, by operator and by module, forward and backward."""

import pytest

import wick
import wick.nn.functional as F  # noqa: N812
from wick import _C, nn
from wick.utils.flop_counter import FlopCounterMode, flop_registry, register_flop_formula
from wick.utils.module_tracker import ModuleTracker


def counted(function, **options):
    with FlopCounterMode(display=False, **options) as counter:
        function()
    return {
        module: {str(op).removeprefix("aten."): n for op, n in counts.items()}
        for module, counts in counter.get_flop_counts().items()
    }


def whole(function):
    return counted(function)["Global"]


A, B = wick.ones(4, 5, requires_grad=True), wick.ones(5, 6, requires_grad=True)
BATCH = wick.ones(3, 4, 5, requires_grad=True)
Q = wick.ones(2, 4, 6, 8, requires_grad=True)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda: (A @ B).sum().backward(), {"mm": 720}),
        (lambda: wick.addmm(wick.ones(6), A, B).sum().backward(), {"addmm": 240, "mm": 480}),
        (lambda: wick.bmm(BATCH, BATCH.transpose(1, 2)).sum().backward(), {"bmm": 1440}),
        (lambda: (BATCH @ B).sum().backward(), {"mm": 2160}),
        (lambda: F.linear(wick.ones(8), wick.ones(3, 8), wick.ones(3)), {"addmm": 48}),
        (lambda: F.linear(wick.ones(2, 2, 2, 8), wick.ones(3, 8)), {"mm": 384}),
        (lambda: wick.ones(3) + 1, {}),
        # Attention: as PyTorch counts it where its devices have the fused kernel.
        (
            lambda: F.scaled_dot_product_attention(Q, Q, Q, is_causal=True).sum().backward(),
            {
                "_scaled_dot_product_flash_attention_for_cpu": 9216,
                "_scaled_dot_product_flash_attention_for_cpu_backward": 23040,
            },
        ),
    ],
)
def test_products(function, expected):
    assert whole(function) == expected


@pytest.mark.parametrize(
    ("layer", "requires_grad", "forward", "backward"),
    [
        (lambda: nn.Conv2d(4, 8, 3, groups=2, stride=2), True, 9216, 27648),
        (lambda: nn.ConvTranspose2d(4, 8, 3, stride=2), False, 93312, 93312),
        (lambda: nn.Conv2d(4, 8, 3), False, 56448, 56448),
    ],
)
def test_convolutions(layer, requires_grad, forward, backward):
    layer, x = layer(), wick.ones(2, 4, 9, 9, requires_grad=requires_grad)
    name = type(layer).__name__
    expected = {"convolution": forward, "convolution_backward": backward}
    assert counted(lambda: layer(x).sum().backward()) == {"Global": expected, name: expected}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.line, self.conv = nn.Linear(8, 8), nn.Conv1d(8, 8, 3, padding=1)

    def forward(self, x):
        x = x + self.line(x)
        return self.conv(x.transpose(1, 2)).transpose(1, 2)


def test_modules():
    model = nn.Sequential(Block(), nn.Linear(8, 2, bias=False))
    x = wick.ones(3, 5, 8, requires_grad=True)
    step = counted(lambda: model(x).sum().backward())
    conv = {"convolution": 5760, "convolution_backward": 11520}
    block = {"addmm": 1920, "mm": 3840, **conv}
    everything = {"addmm": 1920, "mm": 3840 + 1440, **conv}
    assert step == {
        "Global": everything,
        "Sequential": everything,
        "Sequential.0": block,
        "Sequential.0.line": {"addmm": 1920, "mm": 3840},
        "Sequential.0.conv": conv,
        "Sequential.1": {"mm": 1440},
    }
    with wick.no_grad():
        assert counted(lambda: model(x))["Sequential.0"] == {"addmm": 1920, "convolution": 5760}
    assert counted(lambda: wick.compile(model)(x))["Global"]["addmm"] == 1920


def test_the_table(capsys):
    model = nn.Sequential(nn.Linear(100, 100), nn.Linear(100, 100, bias=False))
    with FlopCounterMode(depth=1) as counter:
        model(wick.ones(50, 100))
    assert counter.get_total_flops() == 2_000_000
    text = """\
Module              FLOP    % Total
-------------  ---------  ---------
Sequential     2000.000K    100.00%
 - aten.addmm  1000.000K     50.00%
 - aten.mm     1000.000K     50.00%
"""
    assert capsys.readouterr().out == text
    assert counter.get_table(2).count("Sequential") == 3
    with FlopCounterMode() as counter:
        pass
    assert "Global" in capsys.readouterr().out and counter.get_total_flops() == 0


def test_formulas_of_ones_own():
    def add_flop(a, b, *args, out_shape=None, alpha=1):
        return out_shape.numel()

    assert counted(lambda: wick.ones(2, 3) + wick.ones(3), custom_mapping={wick.ops.aten.add: add_flop})["Global"] == {
        "add": 6
    }

    def of_tensors(a, *args, out_val=None):
        return int(out_val.sum())

    of_tensors._get_raw = True
    assert counted(lambda: wick.ones(2).relu(), custom_mapping={wick.ops.aten.relu: of_tensors})["Global"] == {
        "relu": 2
    }
    with pytest.raises(RuntimeError, match="duplicate registrations for aten.mm"):
        register_flop_formula(wick.ops.aten.mm)(add_flop)
    with pytest.raises(ValueError, match="expected each target to be OpOverloadPacket"):
        register_flop_formula("mm")(add_flop)
    try:
        register_flop_formula([wick.ops.aten.sigmoid])(lambda x, out_shape=None: 4)
        assert whole(lambda: wick.ones(1).sigmoid()) == {"sigmoid": 4}
    finally:
        del flop_registry[wick.ops.aten.sigmoid]


def test_errors_of_a_formula_and_counters_inside_each_other():
    def fails(*args, **kwargs):
        raise KeyError("formula")

    with pytest.raises(KeyError, match="formula"):
        counted(lambda: wick.ones(1).exp(), custom_mapping={wick.ops.aten.exp: fails})
    assert _C._watch_calls(None) is None and not _C._in_backward()
    with FlopCounterMode(display=False) as outer:
        with FlopCounterMode(display=False) as inner:
            A.detach() @ B.detach()
        A.detach() @ B.detach()
    assert inner.get_total_flops() == 240 and outer.get_total_flops() == 240
    with pytest.warns(UserWarning, match="mods argument is not needed"):
        FlopCounterMode(nn.Linear(1, 1))


def test_the_tracker():
    seen = []

    class Asks(nn.Module):
        def forward(self, x):
            seen.append((set(tracker.parents), tracker.is_bw))
            x.register_hook(lambda grad: seen.append((set(tracker.parents), tracker.is_bw)))
            return x * 2

    model = nn.Sequential(nn.Linear(2, 2), Asks())
    with ModuleTracker() as tracker:
        model(wick.ones(1, 2)).sum().backward()
        assert tracker.parents == {"Global"}
    assert seen[0] == ({"Global", "Sequential", "Sequential.1"}, False)
    assert seen[1][1] and "Sequential" in seen[1][0]
