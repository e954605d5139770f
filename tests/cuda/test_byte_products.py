"""Products of int8 and of float8 with scales on the device: by its own kernels on tensor cores, taken apart
(WICK_CUDA_PRODUCTS=exact), and by cuBLASLt (tests/cuda/emulator/cublaslt.c has as much of it as they ask for); PyTorch's
errors; layers with quantized weights."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

import wick as torch
from wick.ao import quantization

F = torch.nn.functional
KINDS = F.ScalingType
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
LIBRARY = pathlib.Path(os.environ.get("WICK_LIBCUDA", "")).parent / "libcublaslt_emulated.so"


def small(m, k, n, types=(E4M3, E4M3)):
    torch.manual_seed(0)
    return torch.randn(m, k).to(types[0]), torch.randn(n, k).to(types[1]).t()


def on(device, tensors):
    return [t.to(device) for t in tensors]


def by_columns(b):
    """The copy to the device keeps the layout, which the product is particular about."""
    return b.t().contiguous().cuda().t()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("rows", [False, True])
def test_values_are_those_of_the_cpu(dtype, rows, monkeypatch):
    monkeypatch.setenv("WICK_CUDA_PRODUCTS", "exact")
    a, b = small(9, 32, 48, (E5M2, E4M3))
    scales = (torch.rand(9, 1), torch.rand(1, 48)) if rows else (torch.tensor(0.5), torch.tensor([[3.0]]))
    bias = None if dtype == torch.float32 else torch.randn(48).to(dtype)
    wanted = torch._scaled_mm(a, b, *scales, bias=bias, out_dtype=dtype)
    device = [a.cuda(), by_columns(b), *on("cuda", scales), None if bias is None else bias.cuda()]

    def f(*args):
        return torch._scaled_mm(*args, out_dtype=dtype)

    assert torch.equal(f(*device).cpu(), wanted)
    compiled = torch.compile(f, fullgraph=True)
    assert all(torch.equal(compiled(*device).cpu(), wanted) for _ in range(4))


SIZES = [
    (9, 32, 48),
    (136, 160, 272),  # tiles and steps that are not whole
    (40, 1040, 32),  # k in parts
    (130, 48, 1040),  # wide tiles
]
ROUNDING = {torch.float32: 2e-6, torch.bfloat16: 2**-8, torch.float16: 2**-11, E4M3: 2**-4, E5M2: 2**-3}


@pytest.mark.parametrize("how", ["mma", "wgmma"])
@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("m, k, n", SIZES)
def test_float8_on_tensor_cores(how, fast, rows, m, k, n, monkeypatch):
    monkeypatch.setenv("WICK_CUDA_PRODUCTS", how)
    scales = (torch.rand(m, 1), torch.rand(1, n)) if rows else (torch.tensor(0.5), torch.tensor([[0.125]]))
    for types, dtype in (
        ((E4M3, E4M3), torch.bfloat16),
        ((E5M2, E4M3), torch.float16),
        ((E4M3, E5M2), torch.float32),
        ((E4M3, E4M3), E4M3),
        ((E4M3, E5M2), E5M2),
    ):
        a, b = small(m, k, n, types)
        bias = (
            None
            if dtype == torch.float32
            else torch.randn(n).to(torch.float16 if dtype == torch.float16 else torch.bfloat16)
        )
        wanted = torch._scaled_mm(a, b, *scales, out_dtype=torch.float32)
        # The emulator's sums are f32's. A GPU's tensor cores keep 13 bits behind the largest of what they add.
        largest = torch._scaled_mm(
            a.float().abs().to(types[0]), b.float().abs().to(types[1]), *scales, out_dtype=torch.float32
        )
        atol = 0.002 if os.environ.get("WICK_LIBCUDA") else 2**-11 * largest.max().item()
        device = [a.cuda(), by_columns(b), *on("cuda", scales)]
        for added in (None,) if bias is None else (None, bias):
            total = wanted if added is None else wanted + added.float()
            added = None if added is None else added.cuda()
            found = torch._scaled_mm(*device, bias=added, out_dtype=dtype, use_fast_accum=fast)
            assert found.dtype == dtype
            torch.testing.assert_close(found.cpu().float(), total, rtol=1.01 * ROUNDING[dtype], atol=atol)
            again = torch._scaled_mm(*device, bias=added, out_dtype=dtype, use_fast_accum=fast)
            assert torch.equal(again.float(), found.float())


def test_operands_and_scales_of_a_graph_may_lie_elsewhere_each_time(monkeypatch):
    monkeypatch.setenv("WICK_CUDA_PRODUCTS", "wgmma")

    def f(x, w, of_x, of_w):
        return torch._scaled_mm(x, w, of_x, of_w, out_dtype=torch.bfloat16).float().sum(1)

    compiled = torch.compile(f)
    kept = [[a.cuda(), by_columns(b), *on("cuda", (torch.rand(1), torch.rand(1)))] for a, b in [small(9, 32, 48)] * 6]
    for args in kept:
        assert torch.equal(compiled(*args), f(*args))


GIVEN_KINDS = """
import wick as torch
E4M3, one = torch.float8_e4m3fn, torch.tensor(1.0).cuda()
x, w = torch.ones(32, 64).to(E4M3).cuda(), torch.ones(32, 64).to(E4M3).cuda().t()
assert torch._scaled_mm(x, w, one, one, out_dtype=torch.bfloat16).eq(64).all()
x, w = torch.ones(32, 64, dtype=torch.int8).cuda(), torch.ones(64, 32, dtype=torch.int8).cuda()
assert torch._int_mm(x, w).eq(64).all()
"""


@pytest.mark.parametrize(
    "how, kinds",
    [("mma", {"mma.sync m16n8k32 f32.e4m3.e4m3", "mma.sync m16n8k32 s32.s8.s8"}),
     ("wgmma", {"wgmma m64n64k32 f32.e4m3.e4m3", "wgmma m64n64k32 s32.s8.s8"}), ("exact", set())],
)  # fmt: skip
def test_the_kernels_are_those_of_tensor_cores(how, kinds):
    environment = os.environ | {"WICK_CUDA_PRODUCTS": how, "WICK_LOGS": "kernel"}
    run = [sys.executable, "-c", GIVEN_KINDS]
    done = subprocess.run(run, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    pattern = r"(mma\.sync|wgmma)(?:\.mma_async\.sync)?\.aligned\.(\w+)(?:\.row\.col)?\.(\w+\.\w+\.\w+)"
    assert {" ".join(found) for found in re.findall(pattern, done.stderr)} == kinds


def test_a_result_of_float8_stays_in_range():
    """scale_result changes nothing: seen with PyTorch 2.11 on a GPU."""
    a, b = small(4, 16, 16)
    one, scale = torch.tensor(1.0, device="cuda"), torch.tensor(100.0, device="cuda")
    exact = torch._scaled_mm(a, b, one.cpu() * 100, one.cpu(), out_dtype=torch.float32)
    y = torch._scaled_mm(a.cuda(), by_columns(b), one * 100, one, scale_result=scale)
    assert y.dtype == E4M3 and torch.equal(y.cpu().float(), exact.clamp(-448, 448).to(E4M3).float())
    assert (exact.abs() > 500).any()


def test_errors_of_float8():
    one = torch.tensor(1.0, device="cuda")
    a, b = small(4, 32, 16)
    a, b = a.cuda(), by_columns(b)
    odd, narrow = (by_columns(torch.zeros(24, 16).to(E4M3)), by_columns(torch.zeros(32, 8).to(E4M3)))
    bf16, f16 = torch.zeros(16, device="cuda", dtype=torch.bfloat16), torch.zeros(16, device="cuda").half()
    for error, message, args, keywords in (
        (RuntimeError, r"divisible by 16 but got mat1 shape: \(4x24\)\.", (a[:, :24], odd), {}),
        (RuntimeError, r"mat2 shape \(32x8\) must be divisible by 16", (a, narrow), {}),
        (ValueError, "of two Float8_e5m2 matrices is not supported", (a.to(E5M2), by_columns(b.cpu().to(E5M2))), {}),
        (RuntimeError, "Only multiplication of row-major and column-major", (a, b.contiguous()), {}),
        (RuntimeError, "Only multiplication of row-major and column-major", (a.t().contiguous().t(), b), {}),
        (RuntimeError, "not supported when out_dtype is set to Float32", (a, b), {"bias": bf16, "out_dtype": torch.float32}),
        (RuntimeError, "Bias must be BFloat16 or Half, but got Float", (a, b), {"bias": bf16.float(), "out_dtype": torch.half}),
        (RuntimeError, "Bias must be BFloat16 to compute BFloat16 output, but got Half", (a, b), {"bias": f16, "out_dtype": torch.bfloat16}),
        (RuntimeError, "Bias must be Float16 to compute Half output, but got BFloat16", (a, b), {"bias": bf16, "out_dtype": torch.half}),
        (RuntimeError, "scale_result must be a float scalar", (a, b), {"scale_result": torch.ones(2, device="cuda")}),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            torch._scaled_mm(*args, one, one, **keywords)


def bytes_of(*size):
    return torch.randint(-128, 128, size, dtype=torch.int8)


@pytest.mark.parametrize("how", ["mma", "wgmma", "exact"])
@pytest.mark.parametrize("m, k, n", SIZES + [(17, 40, 24), (130, 136, 264), (33, 1048, 8)])
def test_integers_are_exact_on_tensor_cores(how, m, k, n, monkeypatch):
    monkeypatch.setenv("WICK_CUDA_PRODUCTS", how)
    torch.manual_seed(0)
    a, b = bytes_of(m, k), bytes_of(k, n)
    wanted = torch._C._byte_mm(a, b)
    assert torch.equal(torch._C._byte_mm(a.cuda(), b.cuda()).cpu(), wanted)
    assert torch.equal(torch._C._byte_mm(a.cuda(), by_columns(b)).cpu(), wanted)
    a = a.view(torch.uint8)
    assert torch.equal(torch._C._byte_mm(a.cuda(), b.cuda()).cpu(), torch._C._byte_mm(a, b))
    a, b = bytes_of(m, k - 3), bytes_of(k - 3, n - 1)
    assert torch.equal(torch._C._byte_mm(a.cuda(), b.cuda()).cpu(), torch._C._byte_mm(a, b))
    row = bytes_of(1, k - 3)
    found = torch._C._byte_mm(row.cuda().expand(m, k - 3), b.cuda()).cpu()
    assert torch.equal(found, torch._C._byte_mm(row, b).expand(m, n - 1))


@pytest.mark.parametrize(
    "layout", [lambda b: b, lambda b: b.t().contiguous().t(), lambda b: b.repeat_interleave(2, 1)[:, ::2]]
)
def test_integers_are_exact(layout):
    torch.manual_seed(0)
    a, b = bytes_of(17, 40), layout(bytes_of(40, 24))
    wanted = torch._int_mm(a, b)
    assert torch.equal(torch._int_mm(a.cuda(), layout(b.cuda())).cpu(), wanted)
    assert torch.equal(torch._int_mm(a.cuda()[:, ::1], b.cuda()).cpu(), wanted)
    f = torch.compile(lambda a, b: torch._int_mm(a, b) + 1, fullgraph=True)
    assert all(torch.equal(f(a.cuda(), b.cuda()).cpu(), wanted + 1) for _ in range(4))


def test_errors_of_integers():
    a, b = bytes_of(17, 16).cuda(), bytes_of(16, 8).cuda()
    for message, args in (
        ("Expected self to be of dimension 2 but got 1", (a[0], b)),
        ("Expected mat2 to be of dimension 2 but got 1", (a, b[0])),
        (r"self.size\(0\) needs to be greater than 16, but got 16", (a[:16], b)),
        (r"self.size\(1\) needs to be greater than 0 and a multiple of 8, but got 12", (a[:, :12], b[:12])),
        (r"self.size\(1\) needs to match mat2.size\(0\) but got 16 and 8", (a, b[:8])),
        (r"mat2.size\(1\) needs to be greater than 0 and a multiple of 8, but got 7", (a, b[:, :7])),
        ("expected scalar type Char but found Byte", (a.to(torch.uint8), b)),
    ):
        with pytest.raises(RuntimeError, match=f"^{message}"):
            torch._int_mm(*args)


@pytest.mark.filterwarnings("error:.*will fall back.*")
@pytest.mark.parametrize(
    "config", ["Int8DynamicActivationInt8WeightConfig", "Int8WeightOnlyConfig", "Int4WeightOnlyConfig"]
)
def test_layers_of_quantized_weights(config):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.GELU(), torch.nn.Linear(32, 16))
    quantization.quantize_(model, getattr(quantization, config)(*((32,) if "Int4" in config else ())))
    x = torch.randn(3, 64)
    wanted = model(x)
    model.cuda()
    compiled = torch.compile(model)
    for f in (model, compiled, compiled, compiled):
        torch.testing.assert_close(f(x.cuda()).cpu(), wanted, rtol=2e-5, atol=2e-5)


# ---- the library's ----

PROGRAM = """
import wick as torch
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
torch.manual_seed(0)
one = torch.tensor(1.0)
def scaled(m, k, n, types=(E4M3, E4M3), rows=False, bias=False, dtype=torch.bfloat16):
    a, b = torch.randn(m, k).to(types[0]), torch.randn(n, k).to(types[1]).t()
    scales = (torch.rand(m, 1), torch.rand(1, n)) if rows else (torch.tensor(0.5), torch.tensor([3.0]))
    bias = torch.randn(n).to(dtype) if bias else None
    wanted = torch._scaled_mm(a, b, *scales, bias=bias, out_dtype=torch.float32)
    on = [a.cuda(), b.t().cuda().t(), *(s.cuda() for s in scales), None if bias is None else bias.cuda()]
    f = lambda *args: torch._scaled_mm(*args, out_dtype=dtype)
    for g in (f, torch.compile(f, fullgraph=True)):
        for _ in range(3):
            found = g(*on)
            assert found.dtype == dtype
            torch.testing.assert_close(found.cpu().float(), wanted, rtol=torch.finfo(dtype).eps, atol=1e-5)
scaled(9, 32, 48)
scaled(1, 32, 16)
scaled(0, 32, 16)
scaled(33, 64, 16, (E5M2, E4M3), rows=True, dtype=torch.float32)
scaled(33, 64, 16, (E4M3, E5M2), rows=True, bias=True, dtype=torch.float16)
scaled(5, 16, 32, bias=True)
def narrow(m, k, n, types, dtype, rows=False, bias=None):  # our own kernels'
    a, b = torch.randn(m, k).to(types[0]), torch.randn(n, k).to(types[1]).t()
    scales = (torch.rand(m, 1), torch.rand(1, n)) if rows else (torch.tensor(20.0), torch.tensor([3.0]))
    bias = None if bias is None else torch.randn(n).to(bias)
    wanted = torch._scaled_mm(a, b, *scales, out_dtype=torch.float32)
    wanted = (wanted if bias is None else wanted + bias.float()).clamp(-torch.finfo(dtype).max, torch.finfo(dtype).max)
    on = [a.cuda(), b.t().cuda().t(), *(s.cuda() for s in scales), None if bias is None else bias.cuda()]
    for _ in range(2):
        found = torch._scaled_mm(*on, out_dtype=dtype)
        assert found.dtype == dtype and torch.equal(found.cpu().float(), wanted.to(dtype).float())
narrow(8, 32, 48, (E4M3, E4M3), E4M3)
narrow(7, 32, 48, (E5M2, E4M3), E4M3, bias=torch.bfloat16)
narrow(6, 32, 48, (E4M3, E5M2), E5M2, bias=torch.float16)
narrow(9, 32, 48, (E4M3, E4M3), E5M2)
narrow(33, 64, 16, (E4M3, E4M3), E4M3, rows=True)
def integers(a, b):
    wanted = torch._C._byte_mm(a, b)
    for _ in range(2):
        assert torch.equal(torch._C._byte_mm(a.cuda(), b.cuda()).cpu(), wanted)
bytes_of = lambda *size: torch.randint(-128, 128, size, dtype=torch.int8)
integers(bytes_of(17, 40), bytes_of(24, 40).t())
integers(bytes_of(17, 40), bytes_of(40, 24))
integers(bytes_of(40, 3).t(), bytes_of(40, 24))
integers(bytes_of(3, 37), bytes_of(5, 37).t())      # sizes that it does not take
integers(bytes_of(4, 40).view(torch.uint8), bytes_of(24, 40).t())
row, b = bytes_of(1, 40), bytes_of(24, 40).t()
found = torch._C._byte_mm(row.cuda().expand(6, 40), b.cuda())
assert torch.equal(found.cpu(), torch._C._byte_mm(row, b).expand(6, 24))
bias = torch.zeros(16, device="cuda", dtype=torch.bfloat16, requires_grad=True)
y = torch._scaled_mm(torch.ones(16, 16).to(E4M3).cuda(), torch.ones(16, 16).to(E4M3).cuda().t(), one.cuda(), one.cuda(), bias=bias, out_dtype=torch.bfloat16)
y.sum().backward()
assert bias.grad.eq(16).all()
from wick.ao import quantization
layer = torch.nn.Sequential(torch.nn.Linear(64, 8))
quantization.quantize_(layer, quantization.Int8DynamicActivationInt8WeightConfig())
x = torch.randn(2, 64)
wanted = layer(x)
torch.testing.assert_close(layer.cuda()(x.cuda()).cpu(), wanted, rtol=1e-6, atol=1e-6)
print("right")
"""


GIVEN = {
    "9x48x32",
    "1x16x32",
    "5x32x16 bias",
    "17x24x40 int8",
    "3x24x40 int8",
    "2x8x64 int8",
}
BY_ROWS = {"33x16x64 rows", "33x16x64 rows bias"}


@pytest.mark.skipif(not LIBRARY.exists(), reason="no emulated cuBLASLt beside the driver")
@pytest.mark.parametrize("version, given", [("120900", GIVEN | BY_ROWS), ("120400", GIVEN)])
def test_the_library_gives_the_same(version, given):
    environment = os.environ | {"WICK_CUBLASLT": str(LIBRARY), "EMULATED_CUBLASLT_VERSION": version}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "right", done.stderr[-2000:]
    assert set(re.findall("cublaslt: (.*)", done.stderr)) == given


CAPTURED = """
import wick as torch
a, b = (torch.randint(-128, 128, (32, 32), dtype=torch.int8).cuda() for _ in range(2))
wanted = torch._int_mm(a.cpu(), b.cpu())
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    found = torch._int_mm(a, b)
graph.replay()
torch.cuda.synchronize()
assert torch.equal(found.cpu(), wanted) and torch.equal(torch._int_mm(a, b).cpu(), wanted)
"""


@pytest.mark.skipif(not LIBRARY.exists(), reason="no emulated cuBLASLt beside the driver")
def test_the_library_is_looked_for_in_a_capture():
    """It allocates when it is; this one's products are not captured."""
    environment = os.environ | {"WICK_CUBLASLT": str(LIBRARY)}
    done = subprocess.run(
        [sys.executable, "-c", CAPTURED], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert re.findall("cublaslt: (.*)", done.stderr) == ["32x32x32 int8"]
