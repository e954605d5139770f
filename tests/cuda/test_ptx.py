"""Kernels that are written for shapes give the bits of the interpreter and of the CPU: each mode, each dtype. WICK_CUDA_TIER
says which is used; the tests run both in processes of their own."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import wick as torch
F = torch.nn.functional
torch.manual_seed(0)
wrong = []

def check(name, f, *tensors):
    expected, found = f(*tensors), f(*[t.cuda() for t in tensors])
    if isinstance(expected, torch.Tensor):
        expected, found = [expected], [found]
    for e, g in zip(expected, found, strict=True):
        if e.dtype != g.dtype or e.stride() != g.stride() or repr(e.tolist()) != repr(g.cpu().tolist()):
            wrong.append(name)

def rows(name, x):
    check(f"softmax {name}", lambda x: x.softmax(-1), x)
    check(f"layer_norm {name}", lambda x: F.layer_norm(x, x.shape[-1:]), x)
    check(f"sum {name}", lambda x: x.sum(-1), x)
    check(f"max {name}", lambda x: x.max(-1), x)
    check(f"argmin {name}", lambda x: x.argmin(-1), x)
    check(f"any {name}", lambda x: (x > 3).any(-1), x)

def columns(name, x):
    check(f"sum down {name}", lambda x: x.sum(0), x)
    check(f"softmax down {name}", lambda x: x.softmax(0), x)
    check(f"argmax down {name}", lambda x: x.argmax(0), x)

%s
print("wrong:", wrong)
"""

POINTWISE = """
floats = torch.tensor([0.0, -0.0, 1.0, -1.5, 3.0, 1e-40, 1e30, float("inf"), -float("inf"), float("nan"), 0.3, 80.0, -100.0])
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    x = torch.cat([floats, torch.randn(51) * 3]).to(dtype)
    for name in ("exp", "relu") if dtype != torch.float32 else ("exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "sin", "cos", "tanh", "sigmoid", "erf", "floor", "ceil",
                 "trunc", "round", "neg", "abs", "sign", "reciprocal", "isnan", "logical_not", "relu", "isinf"):
        check(f"{name} {dtype}", getattr(torch, name), x)
    y = x.flip(0)
    for name in ("add", "maximum") if dtype != torch.float32 else ("add", "sub", "mul", "div", "maximum", "minimum", "fmod", "remainder", "pow", "eq", "ne", "lt", "le", "gt",
                 "ge", "floor_divide", "atan2"):
        check(f"{name} {dtype}", getattr(torch, name), x, y)
    check(f"gelu {dtype}", F.gelu, x)
    check(f"cast {dtype}", lambda x: (x.to(torch.float32), x.to(torch.bool), x[:3].to(torch.int64), x[:3].to(torch.uint8)), x)
for dtype in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
    x = torch.arange(-20, 44).to(dtype)
    y = x.roll(3).clone()
    y[y == 0] = 3
    for name in ("add", "mul") if dtype != torch.int64 else ("add", "sub", "mul", "maximum", "minimum", "remainder", "fmod", "floor_divide", "bitwise_and", "bitwise_or",
                 "bitwise_xor", "eq", "lt", "ge"):
        check(f"{name} {dtype}", getattr(torch, name), x, y)
    check(f"shift {dtype}", lambda x: (x << 2, x >> 1, ~x, -x, abs(x)), x)
    check(f"cast {dtype}", lambda x: (x.float(), x.bool(), x.to(torch.int8)), x)
b = torch.rand(60) > 0.5
for name in ("logical_and", "logical_or", "logical_xor", "eq", "ne", "bitwise_and", "add", "mul", "maximum", "minimum", "le"):
    check(f"{name} bool", getattr(torch, name), b, b.flip(0))
x = torch.randn(24, 36)
check("bias", lambda x, b: x + b, x, torch.randn(36))
check("rows", lambda x, b: x * b, x, torch.randn(24, 1))
line = torch.compile(lambda x, a, b: (x.float() * a + b).relu().to(x.dtype))
for dtype in (torch.bfloat16, torch.float16):
    for size, a, b in ((24, 40), (40,), (40,)), ((24, 40), (24, 1), (40,)), ((3, 24, 8), (24, 8), (3, 1, 1)):
        check(f"wide line {size}", lambda x, a, b: [line(x, a, b) for _ in range(3)][-1], torch.randn(size).to(dtype), torch.randn(a), torch.randn(b))
check("transposed", lambda x: x.t() + 1, x)
check("transposed copy", lambda x: x.t().contiguous(), x)
check("strided", lambda x: x[::2, 1::3] * 2, x)
check("unaligned", lambda x: x.flatten()[1:] + x.flatten()[:-1], x)
check("three dims", lambda x: x.reshape(4, 6, 36).transpose(0, 2) + x.reshape(6, 4, 36)[0, :, 5], x)
check("where", lambda x: torch.where(x > 0, x, torch.zeros(())), x)
check("index", lambda x, i: x[i], x, torch.tensor([3, 0, -1, 23]))
check("gather", lambda x, i: x.gather(1, i), x, torch.randint(0, 36, (24, 5)))
check("scatter", lambda x, i: x.scatter(1, i, 7.0), x, torch.randperm(36)[:30].repeat(24, 1))
check("index_add", lambda x, i: torch.zeros(24, 36).to(x.device).index_add(0, i, x), x, torch.randperm(24))
for dtype in (torch.bfloat16, torch.float16):
    # small whole numbers: the sums do not depend on their order
    many = torch.randint(-2, 3, (300, 7)).to(dtype)
    check(f"index_add {dtype}", lambda x, i: torch.zeros(4, 7, dtype=x.dtype).to(x.device).index_add(0, i, x), many, torch.arange(300) % 4)
    check(f"scatter_add {dtype}", lambda x, i: torch.ones(5, dtype=x.dtype).to(x.device).scatter_add(0, i, x), many[:, 0].clone(), torch.arange(300) % 3)
    for each in (35, 36):  # neighbours that share a word
        check(f"add {dtype} {each}", lambda x, y, i: y.index_add(0, i, x), torch.randn(24, each).to(dtype), torch.randn(24, each).to(dtype), torch.randperm(24))
    check(f"add to one {dtype}", lambda x, i: torch.zeros(2, dtype=x.dtype, device=x.device).index_add(0, i, x), torch.ones(64, dtype=dtype), torch.arange(64) % 2)
check("pool", lambda x: F.max_pool2d(x[None, None], 3, 2, 1), x)
check("pad", lambda x: F.pad(x, (1, 2, 3, 0), value=1.0), x)
for dtype in (torch.bfloat16, torch.float16, torch.float8_e4m3fn):
    for value in (0.0, 0.3, float("inf")):
        check(f"pad {dtype} {value}", lambda x: F.pad(x.to(dtype), (1, 2, 3, 0), value=value).float(), x)
check("arange", lambda x: x + torch.arange(36, device=x.device), x)
check("tril", lambda x: x.tril(1), x)
check("in place", lambda x: x.clone().mul_(2).add_(x), x)
check("scalar", lambda x: x.sum() * 2 + 1, x)
"""

ROWS = """
for length in (1, 2, 7, 16, 17, 31, 33, 200, 256):
    rows(length, torch.randn(5, length))
rows("bf16", torch.randn(3, 300).bfloat16())
for dtype in (torch.bfloat16, torch.float16, torch.int16):
    for length in (2, 64, 66, 101):
        x = (torch.randn(3, length) * 10).to(dtype)
        check(f"{dtype} {length}", lambda x: (x.sum(1), x.amax(1), x.argmax(1)), x)
        check(f"{dtype} {length}, a part", lambda x: (x[:, 1:].sum(1), x[:, : x.shape[1] // 2].amax(1)), x)
    check(f"{dtype}, stored", lambda x: (x.softmax(1), F.layer_norm(x, (66,))) if x.is_floating_point() else x.sum(1), (torch.randn(3, 66) * 10).to(dtype))
rows("f64", torch.randn(3, 100).double().round(decimals=3))
rows("ties", torch.randint(0, 4, (3, 300)).float())
rows("nan", torch.tensor([[1.0, float("nan"), 3.0, float("nan")], [float("-inf")] * 4]))
check("ints", lambda x: (x.sum(1), x.amax(1), x.prod(1), x.argmax(1)), torch.randint(-3, 4, (5, 100)))
check("windows", lambda x: (*F.max_pool2d(x, 3, 2, 1, return_indices=True), F.avg_pool2d(x, 3, 1, 1), F.avg_pool2d(x, (4, 2))), torch.randn(2, 3, 9, 12))
check("short in bf16", lambda x: (x.sum((1, 3)), x.amax((1, 3)), x.var((1, 3))), torch.randn(4, 3, 5, 4).bfloat16())
check("two loops", lambda x: (x.sum((0, 2)), x.amax((0, 2))), torch.randn(6, 4, 20))
check("mean", lambda x: (x.mean(), x.var(1), x.std()), torch.randn(20, 70))
check("cross entropy", lambda x, t: F.cross_entropy(x, t), torch.randn(10, 100), torch.randint(0, 100, (10,)))
check("empty", lambda x: (x.sum(1), x.prod(1)), torch.zeros(3, 0))
check("long", lambda x: (x.sum(1), x.argmax(1), x.cumsum(1)), torch.randn(2, 4500))
"""

LONG_ROWS = """
rows("bf16", torch.randn(2, 4500).bfloat16())
check("several operands", lambda x: F.layer_norm(x, (4500,), x[0], x[1]), torch.randn(2, 4500))
check("bf16 in parts", lambda x: (x.sum(), x.amax()), torch.randn(70_000).bfloat16())
for length in (1000, 1025, 4096, 4097, 8192, 9000):
    rows(length, torch.randn(2, length))
check("in parts", lambda x: (x.sum(), x.mean(), x.amax(), x.argmin()), torch.randn(70_000))
for size in ((3, 2, 50, 41), (2, 3, 70, 70), (2, 2, 12, 16, 33), (40, 2, 129)):
    dims = [0, *range(2, len(size))]
    check(f"over several dims {size}", lambda x: (*torch.var_mean(x, dims), x.sum(dims), x.amax(dims)), torch.randn(size))
    check(f"batch norm {size}", lambda x: F.batch_norm(x, None, None, training=True), torch.randn(size))
check("max over several dims", lambda x: F.max_pool2d(x, 70, return_indices=True), torch.randn(1, 2, 70, 70))
x, target = torch.randn(6, 5030), torch.tensor([3, 5029, -100, 0, 17, 4096])  # each row has an index that may be at fault
def grad(x, target):
    x = x.detach().requires_grad_()
    return torch.autograd.grad(F.cross_entropy(x, target), x)
check("index of a row", grad, x, target)
check("divisor of a row", lambda x, y: (x // y).sum(1), torch.randint(-99, 99, (3, 4500)), torch.tensor([[3], [-7], [1]]))
"""

COLUMNS = """
for height, width in ((1, 40), (7, 33), (32, 64), (100, 40)):
    columns((height, width), torch.randn(height, width))
columns("bf16", torch.randn(60, 50).bfloat16())
check("batch norm", lambda x: F.batch_norm(x, None, None, training=True), torch.randn(6, 5, 4, 4))
"""

LONG_COLUMNS = """
for height, width in ((4096, 3), (9000, 34), (33_000, 5)):
    columns((height, width), torch.randn(height, width))
for dtype in (torch.bfloat16, torch.float64, torch.int64):  # in parts, where they are few
    x = (torch.randn(4500, 35) * 10).to(dtype)
    check(f"in parts {dtype}", lambda x: (x.sum(0), x.amax(0), x.argmin(0)), x)
def norm(x):  # by phases, in parts: moments, and the gradients' sums
    x = x.detach().contiguous(memory_format=torch.channels_last).requires_grad_()
    y = F.batch_norm(x, None, None, training=True)
    return y.detach(), *torch.autograd.grad(y.sin().sum(), x), x.detach().softmax(0)
check("batch norm, channels last", norm, torch.randn(4, 40, 18, 17))
check("batch norm, channels last, in bf16", norm, torch.randn(2, 33, 50, 50).bfloat16())
check("longer than usual", lambda x: x.sum(0), torch.randn(280_000, 2))
check("in parts, of more chunks than there are warps", lambda x: (x.sum(0), x.argmax(0)), torch.randn(140_000, 3))
fused = torch.compile(lambda x, y: ((x * y).exp(), (x * y).exp().sum(0)))
check("in parts, and stored", lambda x, y: [fused(x, y) for _ in range(3)][-1], torch.randn(700, 70), torch.randn(700, 70))
x = torch.randn(3, 5, 600, 8).transpose(1, 2)  # (3, 600, 5, 8): rows over two dims, side by side
check("over two dims", lambda x: (x.sum((0, 1)), x.amax((0, 1)), torch.var_mean(x, (0, 1))[0]), x)
check("over two dims in bf16", lambda x: x.sum((0, 1)), x.bfloat16())
check("over two dims, few", lambda x: (x.sum((0, 2)), x.sum()), torch.randn(300, 2, 250))
check("in parts, several operands", lambda x, y, z: (x * y - z).sum(0), torch.randn(4500, 34), torch.randn(4500, 34), torch.randn(4500, 34))
check("in parts, beside others", lambda x, y, r: ((x * y - r).sum(0) * r + 1), torch.randn(600, 70), torch.randn(600, 1), torch.randn(70))
"""

KEPT = """
def grad(f):
    def go(x, *more):
        x = x.detach().requires_grad_()
        y = f(x, *more)
        return torch.autograd.grad((y * torch.arange(y.numel(), device=y.device).reshape(y.shape)).sum(), x)
    return go
for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
    for length in (20_011, 20_480) if dtype != torch.float64 else (17_000,):
        x = torch.randn(2, length).to(dtype)
        check(f"log_softmax {dtype} {length}", lambda x: x.log_softmax(1), x)
        check(f"its gradient {dtype} {length}", grad(lambda x: x.log_softmax(1)), x)
    x = torch.randn(2, 20_480).to(dtype)
    check(f"a part in vectors {dtype}", lambda x: x[:, 8:20_000].softmax(1), x)
x = torch.randn(2, 20_011)
check("of words", lambda x: ((x > 0).any(1), x.to(torch.int32).softmax(1, dtype=torch.float32), (x * 9).to(torch.int8).float().var(1)), x)
check("a part of a row", lambda x: x[:, 7:20_000].softmax(1), x)
check("strided", lambda x: x.t().contiguous().t().softmax(1), x[:, :17_000])
check("norms", lambda x, a, b: (F.layer_norm(x, (20_011,), a, b), F.rms_norm(x, (20_011,), a)), x, x[0], x[1])
logits, target = torch.randn(3, 50_304).bfloat16(), torch.tensor([3, 50_303, -100])
check("cross entropy", lambda x, t: F.cross_entropy(x, t), logits, target)
check("its gradient", grad(lambda x, t: F.cross_entropy(x, t, reduction="none")), logits, target)
"""

PHASES = """
def grad(f):
    def go(x, *more):
        x = x.detach().requires_grad_()
        y = f(x, *more)
        return torch.autograd.grad((y * torch.arange(y.numel(), device=y.device).reshape(y.shape) / y.numel()).sum(), x)
    return go
def norm(x):
    return F.batch_norm(x, None, None, training=True)
for dtype in (torch.float32, torch.bfloat16):
    x = torch.randn(3, 2, 161, 150).to(dtype)
    check(f"batch norm {dtype}", norm, x)
    check(f"its gradient {dtype}", grad(norm), x)
check("of odd sizes", lambda x: (norm(x), x.var((0, 2))), torch.randn(5, 2, 16_001))
check("of small images", lambda x: (norm(x), x.var((0, 2))), torch.randn(3000, 2, 31))
check("over three dims", lambda x: x.var((0, 2, 4)), torch.randn(40, 2, 45, 2, 40))
x = torch.randn(2, 70_000)
check("softmax", lambda x: (x.softmax(1), x.log_softmax(1)), x)
check("layer norm", lambda x, a, b: F.layer_norm(x, (70_000,), a, b), x, x[0], x[1])
check("places", lambda x: ((x - x.argmax(1, keepdim=True)).var(1), x.std()), x)
check("running statistics", lambda x, w, b: [F.batch_norm(x, m := torch.zeros(2, device=x.device), v := torch.ones(2, device=x.device), w, b, training=True), m, v],
      torch.randn(3, 2, 161, 150), torch.randn(2), torch.randn(2))
fused = torch.compile(lambda x: (norm(x).relu() * 2, x.sum((0, 2, 3)), ((x > 0).any(3).float() + x.mean((0, 2, 3), keepdim=True)[..., 0])))
check("beside others", lambda x: [fused(x) for _ in range(3)][-1], torch.randn(3, 2, 161, 150))
"""

SCANS = """
for length in (1, 7, 8, 100, 4096, 4097, 12_288):
    x = torch.randn(3, length)
    check(f"cumsum {length}", lambda x: (x.cumsum(1), x.t().cumsum(0), x.t().contiguous().cumsum(0)), x)
    check(f"cumprod {length}", lambda x: (1 + x / 100).cumprod(1), x)
for dtype in (torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool):
    for length in (5000, 64, 8192):  # the latter in vectors
        check(f"{dtype} {length}", lambda x: x.cumsum(1), (torch.randn(3, length) * 3).to(dtype))
        check(f"{dtype} {length}, a part", lambda x: x[:, 1:].cumsum(1), (torch.randn(3, length) * 3).to(dtype))
check("one row", lambda x: x.cumsum(0), torch.randn(20_000))
check("in the middle", lambda x: x.cumsum(1), torch.randn(4, 50, 6))
fused = torch.compile(lambda x, r: ((x.exp() * r).cumsum(1) * 3 + x, x * 2))
check("beside others", lambda x, r: [fused(x, r) for _ in range(3)][-1], torch.randn(4, 5000), torch.randn(4, 1))
"""

SCANS_IN_TILES = """
def scans(name, x):
    check(f"cumsum {name}", lambda x: x.cumsum(1), x)
    if x.is_floating_point():
        check(f"in place {name}", lambda x: x.clone().cumsum_(1), x)
    check(f"cumprod {name}", lambda x: x.cumprod(1), x)
    check(f"reversed {name}", lambda x: x.flip(1).cumsum(1), x)

for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool):
    # Rows are fewer than a warp's lanes, as many, one more; the last chunk is whole, a piece, less than a whole tile.
    for rows, length in ((1, 128), (32, 16), (33, 96), (70, 256), (3, 4096), (2, 8192), (33, 4096 + 16), (5, 8192 + 144)):
        x = torch.randn(rows, length) * 2 if dtype.is_floating_point else torch.randint(0, 3, (rows, length))
        scans(f"{dtype} {rows} x {length}", x.to(dtype))
x = torch.randn(6, 40, 160)
check("rows of several dims", lambda x: x[::2, 3:36].cumsum(2), x)
check("rows that begin in pieces", lambda x: x[..., 32:].cumsum(2), x)
check("rows that are all one", lambda x: x[0, 0].expand(40, 160).cumsum(1), x)
"""

TILES = """
for dtype in (torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.int32, torch.int16, torch.uint8, torch.bool):
    for sizes in ((40, 70), (8, 9)):
        check(f"{dtype} {sizes}", lambda x: x.t().contiguous(), (torch.randn(sizes) * 10).to(dtype))
    x = (torch.randn(3, 20, 4, 9) * 10).to(dtype)
    for order in ((0, 2, 3, 1), (0, 3, 1, 2), (3, 2, 1, 0), (2, 0, 3, 1)):
        check(f"{dtype} {order}", lambda x: x.permute(order).contiguous(), x)
check("beside others", lambda a, b, r, q: (a.t() * 2 + b * r + q) * a.t(),
      torch.randn(40, 70), torch.randn(70, 40), torch.randn(40), torch.randn(70, 1))
check("with positions", lambda a: a.t() + torch.arange(40, device=a.device), torch.randn(40, 70))
"""


def run(part, tier):
    env = {**os.environ, "WICK_CUDA_TIER": tier, "WICK_CUDA_CHECK": "1", "WICK_EMULATOR_RACES": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM % part], env=env, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.stdout.strip() == "wrong: []", done.stderr[-2000:]
    assert "was not compiled" not in done.stderr, done.stderr[-2000:]  # debug builds say what the driver does not take


@pytest.mark.parametrize("tier", ["0", "1"])
@pytest.mark.parametrize("part", [POINTWISE, ROWS, COLUMNS], ids=["pointwise", "rows", "columns"])
def test_bits_are_the_cpus(part, tier):
    run(part, tier)


@pytest.mark.parametrize(
    "part",
    [LONG_ROWS, LONG_COLUMNS, TILES, KEPT, PHASES, SCANS, SCANS_IN_TILES],
    ids=["rows", "columns", "tiles", "kept", "phases", "scans", "scans in tiles"],
)
def test_bits_of_long_ones_are_the_cpus(part):
    run(part, "1")


def test_long_rows_are_read_once():
    """What several phases read of a row stays in shared memory, where it fits: it is copied from memory once, in vectors
    of 16 bytes where rows are made of them, a chunk of 4096 elements at a time."""
    program = """
import wick as torch
x = torch.randn(2, 20_480, device="cuda")
x.softmax(1)
x.double().repeat(1, 3).softmax(1)  # more than there is
target = torch.tensor([3, 20_000]).cuda()
torch.nn.functional.cross_entropy(x, target)  # most of it is of the row alone
torch.nn.functional.cross_entropy(x.bfloat16(), target)
x[:, 1:].softmax(1)
"""
    env = {**os.environ, "WICK_CUDA_TIER": "1", "WICK_LOGS": "kernel"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=600, check=False
    )
    kernels = [k for k in done.stderr.split(".version") if "fma.rn" in k and "CHUNK" in k]
    assert len(kernels) == 5, done.stderr[-2000:]
    kept, again, loss, small_loss, by_elements = kernels
    assert kept.count("cp.async.cg") == 4096 * 4 / 16 / 32 and "ld.global" not in kept
    assert "%kept" not in again and again.count("ld.global") == 3 * 32
    assert loss.count("cp.async.cg") == 4096 * 4 / 16 / 32 and loss.count("ld.global") < 8
    assert small_loss.count("cp.async.cg") == 4096 * 2 / 16 / 32 and small_loss.count("ld.global") < 8
    steps = 2  # whole ones of 32 elements a lane, and the last
    assert "%kept" in by_elements and "cp.async" not in by_elements and by_elements.count("ld.global") == 32 * steps


def test_scans_read_and_write_lines_through_shared_memory():
    """A warp's rows go by pieces of 128 bytes, of which three are under way; what does not lie in vectors goes by itself."""
    program = """
import wick as torch
for dtype, length in (torch.float32, 96), (torch.bfloat16, 128), (torch.bfloat16, 96), (torch.float32, 100):
    torch.ones(40, length, dtype=dtype, device="cuda").cumsum(1)
torch.ones(40, 97, device="cuda")[:, 1:].cumsum(1)
"""
    env = {**os.environ, "WICK_CUDA_TIER": "1", "WICK_LOGS": "kernel"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=600, check=False
    )
    kernels = [k for k in done.stderr.split(".version") if "_scan_sum(" in k]
    assert len(kernels) == 5, done.stderr[-2000:]
    vectors = [k.count("cp.async.cg") for k in kernels]
    assert vectors == [
        4 * 8,
        4 * 8,
        4 * 4,
        0,
        0,
    ]  # a lane's, of 32 pieces: of three tiles in front of the loop, and in it
    for kernel in kernels[:3]:
        accesses = [line for line in kernel.splitlines() if "ld.global" in line or "st.global" in line]
        assert accesses and all("st.global.v4.b32" in line for line in accesses)


def test_a_row_of_float32_leaves_bfloat16_its_pieces():
    """What is used again in each row does not say how many neighbours a thread takes of what is as large as the loops."""
    program = """
import wick as torch
line = torch.compile(lambda x, a: (x.float() * a).to(x.dtype))
x, a = torch.randn(24, 40, device="cuda").bfloat16(), torch.randn(40, device="cuda")
for _ in range(3):
    line(x, a)
"""
    env = {**os.environ, "WICK_CUDA_TIER": "1", "WICK_LOGS": "kernel_times"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=600, check=False
    )
    assert "pointwise 960x1/8: bfloat16 float32 >bfloat16" in done.stderr, done.stderr


def test_scans_pads_and_additions_are_not_interpreted():
    program = """
import wick as torch
x = torch.randn(5, 100, device="cuda").bfloat16()
x.index_add(0, torch.arange(5, device="cuda"), x)
torch.nn.functional.pad(torch.randn(5, 100, device="cuda").bfloat16(), (1, 2), value=0.3)
for x in torch.randn(5, 100, device="cuda"), torch.randn(5, 9000, device="cuda"):
    x.cumsum(1), x.cumprod(1)
"""
    env = {**os.environ, "WICK_CUDA_TIER": "1", "WICK_LOGS": "kernel_times"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=600, check=False
    )
    assert "scans" in done.stderr and "scan parts" in done.stderr and "interpreted" not in done.stderr, done.stderr
