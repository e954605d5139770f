"""Quantization against PyTorch: fake quantization and the operators of quantized graphs bit for bit, products within
their rounding, observers' scales and zero points bit for bit."""

import pytest
from compare import torch

import wick
import wick.ao.quantization.fx._decomposed

pytest.importorskip("torch.ao.quantization.fx._decomposed")


def as_wick(value):
    if isinstance(value, torch.Tensor):
        return wick.from_numpy(value.detach().numpy())
    return getattr(wick, str(value)[6:]) if isinstance(value, torch.dtype) else value


def packets(namespace, name):
    found = [getattr(library.ops, namespace) for library in (torch, wick)]
    for part in name.split("."):
        found = [getattr(owner, part) for owner in found]
    return found


def assert_same(found, wanted):
    if isinstance(wanted, (tuple, list)):
        assert len(found) == len(wanted)
        for f, w in zip(found, wanted, strict=True):
            assert_same(f, w)
        return
    assert str(found.dtype) == str(wanted.dtype) and tuple(found.shape) == tuple(wanted.shape)
    found = torch.from_numpy(found.detach().numpy())
    torch.testing.assert_close(found, wanted.detach(), rtol=0, atol=0, equal_nan=True)


def check(namespace, name, *args, **kwargs):
    theirs, ours = packets(namespace, name)
    found = ours(*map(as_wick, args), **{key: as_wick(value) for key, value in kwargs.items()})
    assert_same(found, theirs(*args, **kwargs))


def with_extremes(dtype):
    x = torch.randn(6, 5, generator=torch.Generator().manual_seed(1)) * 3
    x[0, 0], x[1, 1], x[2, 2], x[3, 3] = float("nan"), float("inf"), -float("inf"), 1e30
    return x.to(dtype)


# ---- fake quantization ----


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("range", [(0.1, 3, -8, 7), (0.037, 128, 0, 255), (1.5, 0, -128, 127)])
def test_fake_quantize_per_tensor(dtype, range):
    check("aten", "fake_quantize_per_tensor_affine", with_extremes(dtype), *range)
    check("aten", "fake_quantize_per_tensor_affine_cachemask", with_extremes(dtype), *range)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_fake_quantize_by_tensors(dtype):
    x, scale, zero = with_extremes(dtype), torch.tensor([0.07]), torch.tensor([5], dtype=torch.int32)
    check("aten", "fake_quantize_per_tensor_affine.tensor_qparams", x, scale, zero, 0, 255)
    check("aten", "fake_quantize_per_tensor_affine.tensor_qparams", x, scale[0], zero[0], 0, 255)
    for enabled in (0, 1):
        name = "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams"
        check("aten", name, x, scale, zero, torch.tensor([enabled]), 0, 255)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("zeros", [torch.int32, torch.float32])
def test_fake_quantize_per_channel(dtype, zeros):
    x = with_extremes(dtype)
    x = torch.where(x.abs() < 1e4, x, 2.5)  # beyond int64 PyTorch gives what the machine's conversion does
    for axis, n in ((0, 6), (1, 5)):
        scale, zero = torch.linspace(0.01, 0.5, n), torch.linspace(-5.3, 4.2, n).to(zeros)
        check("aten", "fake_quantize_per_channel_affine", x, scale, zero, axis, -8, 7)
        check("aten", "fake_quantize_per_channel_affine_cachemask", x, scale, zero, axis, -8, 7)


@pytest.mark.parametrize("name", ["tensor", "channel"])
def test_gradients_go_straight_through(name):
    results = []
    for library in (torch, wick):
        library.manual_seed(0)
        x = library.randn(5, 4, requires_grad=True)
        if name == "tensor":
            y = library.fake_quantize_per_tensor_affine(x, 0.1, 0, -4, 4)
        else:
            scale, zero = library.linspace(0.1, 0.4, 4), library.zeros(4, dtype=library.int32)
            y = library.fake_quantize_per_channel_affine(x, scale, zero, 1, -4, 4)
        y.backward((library.arange(20.0) - 9).view(5, 4))
        results.append(x.grad)
    assert_same(results[1], results[0])


ERRORS = [
    "t.fake_quantize_per_tensor_affine(x, 0.1, 300, 0, 255)",
    "t.fake_quantize_per_tensor_affine(x, 0.1, 0, 255, 0)",
    "t.fake_quantize_per_tensor_affine(x.int(), 0.1, 0, 0, 255)",
    "t.fake_quantize_per_channel_affine(x, t.ones(3), t.zeros(3, dtype=t.int32), 1, 0, 255)",
    "t.fake_quantize_per_channel_affine(x, t.ones(4), t.zeros(4, dtype=t.int64), 1, 0, 255)",
    "t.fake_quantize_per_channel_affine(x, t.ones(4, dtype=t.float64), t.zeros(4, dtype=t.int32), 1, 0, 255)",
    "t.fake_quantize_per_channel_affine(x, t.ones(1, 4), t.zeros(4, dtype=t.int32), 1, 0, 255)",
    "t.fake_quantize_per_channel_affine(x, t.ones(4), t.zeros(4, dtype=t.int32), 2, 0, 255)",
    "t.fake_quantize_per_channel_affine(x, t.ones(4), t.zeros(4, dtype=t.int32), -1, 0, 255)",
    "t._int_mm(x, b)", "t._int_mm(b, b)", "t._int_mm(b[0], b)", "t._int_mm(b, x.t())",
    "t._weight_int8pack_mm(x, x, t.ones(3))", "t._weight_int8pack_mm(x.double(), b, t.ones(3))",
    "t._weight_int8pack_mm(x, b.t().contiguous().t(), t.ones(3))",
    "t._convert_weight_to_int4pack_for_cpu(t.zeros(20, 64, dtype=t.int32), 1)",
    "t._convert_weight_to_int4pack_for_cpu(t.zeros(16, 64), 1)",
    "t._weight_int4pack_mm_for_cpu(t.zeros(1, 64), t.zeros(16, 32, dtype=t.uint8), 16, t.zeros(4, 16, 2))",
    "t._weight_int4pack_mm_for_cpu(t.zeros(1, 64).double(), t.zeros(16, 32, dtype=t.uint8), 32, t.zeros(2, 16, 2))",
    "t._weight_int4pack_mm_for_cpu(t.zeros(1, 64), t.zeros(16, 32, dtype=t.int32), 32, t.zeros(2, 16, 2))",
]  # fmt: skip


@pytest.mark.parametrize("call", ERRORS)
def test_errors(call):
    texts = []
    for library in (torch, wick):
        with pytest.raises(Exception) as raised:  # noqa: PT011  of the same type and text
            eval(call, {"t": library, "x": library.ones(3, 4), "b": library.ones(3, 4, dtype=library.int8)})
        texts.append((type(raised.value).__name__, str(raised.value)))
    assert texts[1] == texts[0]


# ---- torch.ops.quantized_decomposed ----

NAMESPACE = "quantized_decomposed"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_quantize(dtype):
    x = (torch.randn(4, 3, 8, generator=torch.Generator().manual_seed(2)) * 5).to(dtype)
    int8, zeros = (-128, 127, torch.int8), torch.tensor([-3, 0, 2])
    check(NAMESPACE, "quantize_per_tensor", x, 0.037, 3, *int8)
    check(NAMESPACE, "quantize_per_tensor", x, 0.037, 128, 0, 255, torch.uint8)
    for scale in (torch.tensor([0.037]), torch.tensor(0.037, dtype=torch.float64)):
        check(NAMESPACE, "quantize_per_tensor.tensor", x, scale, torch.tensor([3]), 0, 255, torch.uint8)
    for of in (torch.float32, torch.float64):
        scales = torch.tensor([0.02, 0.1, 0.3]).to(of)
        check(NAMESPACE, "quantize_per_channel", x, scales, zeros, 1, *int8)
        tokens = torch.linspace(0.02, 0.3, 12).view(4, 3, 1).to(of)
        check(NAMESPACE, "quantize_per_token", x, tokens, torch.ones(4, 3, 1), *int8)
    check(NAMESPACE, "choose_qparams_per_token", x, torch.int8)
    check(NAMESPACE, "choose_qparams_per_token_asymmetric", x, torch.int8)
    groups = torch.linspace(0.02, 0.3, 6).view(3, 2)
    check(NAMESPACE, "quantize_per_channel_group", x[0], groups, torch.ones(3, 2), -8, 7, torch.int8, 4)
    check(NAMESPACE, "choose_qparams.tensor", x, -128, 127, 1e-7, torch.int8)
    check(NAMESPACE, "choose_qparams_symmetric.tensor", x, -128, 127, 1e-7, torch.int8)


@pytest.mark.parametrize("of", [torch.float32, torch.float64])
def test_dequantize(of):
    q = torch.arange(-48, 48, dtype=torch.int8).view(4, 3, 8)
    int8 = (-128, 127, torch.int8)
    for out in (torch.float32, torch.float16):
        check(NAMESPACE, "dequantize_per_tensor", q, 0.037, 3, *int8, out_dtype=out)
    check(NAMESPACE, "dequantize_per_tensor", q.view(torch.uint8), 0.037, 3, 0, 255, torch.uint8)
    check(NAMESPACE, "dequantize_per_tensor.tensor", q, torch.tensor([0.037]), torch.tensor([3]), *int8)
    scales = torch.tensor([0.02, 0.1, 0.3]).to(of)
    for zeros in (None, torch.tensor([-3, 0, 2]), torch.tensor([-0.3, 0.2, 1.0])):
        check(NAMESPACE, "dequantize_per_channel", q, scales, zeros, 1, *int8)
    tokens = torch.linspace(0.02, 0.3, 12).view(4, 3, 1).to(of)
    check(NAMESPACE, "dequantize_per_token", q, tokens, torch.ones(4, 3, 1).int(), *int8, torch.float32)
    groups = torch.linspace(0.02, 0.3, 6).view(3, 2).to(of)
    for zeros in (None, torch.ones(3, 2).int()):
        check(NAMESPACE, "dequantize_per_channel_group", q[0], groups, zeros, -8, 7, torch.int8, 4, torch.float32)


# ---- products ----


@pytest.mark.parametrize("m,k,n", [(1, 64, 16), (3, 37, 5), (20, 768, 100), (64, 300, 70), (5, 1, 1)])
def test_int_mm(m, k, n):
    generator = torch.Generator().manual_seed(m)
    b = torch.randint(-128, 128, (k, n), dtype=torch.int8, generator=generator)
    signed = torch.randint(-128, 128, (m, k), dtype=torch.int8, generator=generator)
    for a in (signed, signed.view(torch.uint8)):
        for right in (b, b.t().contiguous().t()):
            assert_same(wick._int_mm(as_wick(a), as_wick(right)), (a.long() @ right.long()).int())
    assert_same(wick._int_mm(as_wick(signed), as_wick(b)), torch._int_mm(signed, b))


def assert_close(found, wanted, tolerance):
    found = torch.from_numpy(found.float().numpy())
    assert (found - wanted.float()).abs().max() <= tolerance * wanted.abs().max()


@pytest.mark.parametrize("dtype,tolerance", [(torch.float32, 2e-6), (torch.float16, 2e-3)])
@pytest.mark.parametrize("m,k,n", [(1, 768, 64), (4, 100, 33), (20, 512, 70)])
def test_weight_int8pack_mm(m, k, n, dtype, tolerance):
    generator = torch.Generator().manual_seed(m)
    w = torch.randint(-128, 128, (n, k), dtype=torch.int8, generator=generator)
    x, scales = torch.randn(m, k, generator=generator).to(dtype), (torch.rand(n, generator=generator) * 0.01).to(dtype)
    wanted = torch._weight_int8pack_mm(x, w, scales)
    found = wick._weight_int8pack_mm(as_wick(x), as_wick(w), as_wick(scales))
    assert str(found.dtype) == str(wanted.dtype)
    assert_close(found, wanted, tolerance)


@pytest.mark.parametrize("m,k,n,group", [(1, 768, 64, 128), (3, 128, 16, 32), (20, 512, 80, 256), (2, 64, 144, 64)])
def test_weight_int4pack_mm(m, k, n, group):
    generator = torch.Generator().manual_seed(m)
    q = torch.randint(0, 16, (n, k), dtype=torch.int32, generator=generator)
    x, pairs = torch.randn(m, k, generator=generator), torch.rand(k // group, n, 2, generator=generator)
    # PyTorch's own layout wants some rows at least; the values do not depend on it.
    values = (q - 8).view(n, k // group, group) * pairs[:, :, :1].transpose(0, 1) + pairs[:, :, 1:].transpose(0, 1)
    wanted = (x.double() @ values.view(n, k).double().t()).float()
    packed = wick._convert_weight_to_int4pack_for_cpu(as_wick(q), 1)
    assert_close(wick._weight_int4pack_mm_for_cpu(as_wick(x), packed, group, as_wick(pairs)), wanted, 2e-6)
    theirs = torch._weight_int4pack_mm_for_cpu(x, torch._convert_weight_to_int4pack_for_cpu(q, 1), group, pairs)
    assert_close(as_wick(theirs), wanted, 2e-6)


# ---- observers ----

OBSERVERS = [
    "MinMaxObserver()", "MinMaxObserver(dtype=int8, qscheme=t.per_tensor_symmetric)",
    "MinMaxObserver(qscheme=t.per_tensor_symmetric)", "MinMaxObserver(quant_min=0, quant_max=127)",
    "MinMaxObserver(reduce_range=True)", "MinMaxObserver(dtype=t.int16, quant_min=-300, quant_max=300)",
    "MovingAverageMinMaxObserver()", "MovingAverageMinMaxObserver(averaging_constant=0.3, dtype=int8)",
    "PerChannelMinMaxObserver()", "PerChannelMinMaxObserver(ch_axis=1, dtype=int8, qscheme=t.per_channel_symmetric)",
    "PerChannelMinMaxObserver(qscheme=t.per_channel_affine_float_qparams)",
    "MovingAveragePerChannelMinMaxObserver(averaging_constant=0.2)", "HistogramObserver()",
    "HistogramObserver(bins=128, dtype=int8, qscheme=t.per_tensor_symmetric)",
    "HistogramObserver(reduce_range=True, quant_min=0, quant_max=127)",
    "FixedQParamsObserver(scale=0.5, zero_point=3)", "default_observer()", "default_weight_observer()",
    "default_per_channel_weight_observer()", "weight_observer_range_neg_127_to_127()",
    "per_channel_weight_observer_range_neg_127_to_127()", "default_histogram_observer()",
]  # fmt: skip


def run_observer(library, text):
    """Scales, zero points and what a state_dict has, after three batches."""
    quantization = __import__(f"{library.__name__}.ao.quantization.observer", fromlist=["observer"])
    # A dtype of quantized tensors is PyTorch's default; both are the same range.
    names = {**vars(quantization), "t": library, "int8": getattr(library, "qint8", library.int8)}
    observer = eval(text, names)
    seen = []
    for batch in range(3):
        library.manual_seed(batch)
        x = library.randn(6, 4, 5) * (batch + 1) + 0.3
        assert observer(x) is x
        seen += observer.calculate_qparams()
    return seen, observer.state_dict()


@pytest.mark.filterwarnings("ignore:.*reduce_range")
@pytest.mark.filterwarnings("ignore:.*quantization.*deprecated")
@pytest.mark.parametrize("text", OBSERVERS)
def test_observers(text):
    (theirs, their_state), (ours, our_state) = (run_observer(library, text) for library in (torch, wick))
    assert_same(ours, theirs)
    assert list(our_state) == list(their_state)
    assert_same(list(our_state.values()), list(their_state.values()))


FAKES = [
    "FakeQuantize()", "default_fake_quant()", "default_weight_fake_quant()", "default_per_channel_weight_fake_quant()",
    "FakeQuantize(observer=MinMaxObserver, quant_min=0, quant_max=127)", "default_histogram_fake_quant()",
    "default_fixed_qparams_range_0to1_fake_quant()", "default_fused_act_fake_quant()", "default_fused_wt_fake_quant()",
    "default_fused_per_channel_wt_fake_quant()",
]  # fmt: skip


def run_fake(library, text):
    found = [__import__(f"{library.__name__}.ao.quantization.{m}", fromlist=[m]) for m in ("observer", "fake_quantize")]
    module = eval(text, {**vars(found[0]), **vars(found[1])})
    results = []
    for batch in range(3):
        library.manual_seed(batch)
        x = (library.randn(4, 6) * (batch + 1)).requires_grad_()
        if batch == 2:
            module.disable_observer()
        y = module(x)
        y.sum().backward()
        results += [y, x.grad]
    module.disable_fake_quant()
    return [*results, module(x)], module.state_dict()


@pytest.mark.filterwarnings("ignore:.*reduce_range")
@pytest.mark.parametrize("text", FAKES)
def test_fake_quantize_modules(text):
    (theirs, their_state), (ours, our_state) = (run_fake(library, text) for library in (torch, wick))
    assert_same(ours, theirs)
    assert sorted(our_state) == sorted(their_state)
    assert_same([our_state[k] for k in their_state], list(their_state.values()))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["fbgemm", "qnnpack"])
def test_prepare_and_convert_of_modules(backend):
    """The same numbers behind each layer as PyTorch's kernels for quantized tensors, but for a few that round to the
    neighbour: PyTorch's bias is an integer."""
    if backend not in torch.backends.quantized.supported_engines:
        pytest.skip(f"this PyTorch has no {backend}")

    def program(torch):
        nn, q = torch.nn, torch.ao.quantization
        layers = [q.QuantStub(), nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 3), nn.Flatten()]
        model = nn.Sequential(*layers, nn.Linear(32, 5), q.DeQuantStub()).eval()
        model = q.fuse_modules(model, [["1", "2", "3"]])
        model.qconfig = q.get_default_qconfig(backend)
        return model, q

    engine = torch.backends.quantized.engine
    try:
        torch.backends.quantized.engine = backend
        torch.manual_seed(0)
        weights = {k: v.tolist() for k, v in program(torch)[0].state_dict().items()}
        x, found = torch.randn(6, 3, 8, 8), []
        for library in (torch, wick):
            model, q = program(library)
            model.load_state_dict({k: library.tensor(v) for k, v in weights.items()})
            model.qconfig = q.get_default_qconfig(backend)
            prepared = q.prepare(model)
            prepared(library.tensor(x.tolist()))
            converted = q.convert(prepared)
            found.append((converted(library.tensor(x.tolist())), float(converted[6].scale)))
    finally:
        torch.backends.quantized.engine = engine
    (theirs, scale), (ours, own_scale) = found
    assert own_scale == pytest.approx(scale, rel=1e-5)
    steps = [abs(a - b) / scale for a, b in zip(sum(theirs.tolist(), []), sum(ours.tolist(), []), strict=True)]
    assert max(steps) < 2.5 and sum(step > 0.5 for step in steps) <= len(steps) / 4
