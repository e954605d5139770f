"""Kernels that use each operation once, for tests/python/test_tiles.py and tests/cuda/test_tiles.py."""

import wick as torch
import wick.tiles as triton
import wick.tiles.language as tl


@triton.jit
def floats(x, y, out, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b = tl.load(x + at), tl.load(y + at)
    i = 0
    for value in (a + b, a - b, a * b, a / b, -a, tl.abs(a), tl.maximum(a, b), tl.minimum(a, b), a % b, tl.exp(a), tl.exp2(a * 20),
                  tl.log(tl.abs(a)), tl.log2(tl.abs(a)), tl.sin(a), tl.cos(a), tl.sqrt(tl.abs(a)), tl.rsqrt(tl.abs(a)),
                  tl.floor(a), tl.ceil(a), tl.erf(a), tl.sigmoid(a), tl.math.tanh(a), tl.fma(a, b, a), tl.where(a < b, a, b),
                  (a * 1000).to(tl.int32), (a == b) | (a != a), (a < b) & (a > -1), ~(a >= b), a.to(tl.float16), a.to(tl.bfloat16),
                  tl.libdevice.pow(tl.abs(a), b), tl.clamp(a, -0.5, 0.5)):  # fmt: skip
        tl.store(out + i * N + at, value)
        i += 1


@triton.jit
def integers(x, y, out, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b = tl.load(x + at), tl.load(y + at)
    i = 0
    for value in (a + b, a - b, a * b, a // b, a % b, -a, ~a, a & b, a | b, a ^ b, a << 3, a >> 2, a < b, a >= b, a == b,
                  tl.maximum(a, b), tl.minimum(a, b), tl.abs(a), tl.where(a > 0, a, b), a.to(tl.float32), a.to(tl.int8),
                  a.to(tl.int64), (a / b).to(tl.int32), tl.cdiv(a, b)):  # fmt: skip
        tl.store(out + i * N + at, value)
        i += 1


@triton.jit
def across(x, out, M: tl.constexpr, N: tl.constexpr):
    rows, columns = tl.arange(0, M), tl.arange(0, N)
    a = tl.load(x + rows[:, None] * N + columns[None, :])
    tl.store(out + rows, tl.sum(a, 1))
    tl.store(out + M + columns, tl.sum(a, axis=0))
    out += M + N
    tl.store(out + rows, tl.max(a, 1))
    tl.store(out + M + columns, tl.min(a, axis=0))
    out += M + N
    tl.store(out + rows, tl.argmax(a, 1))
    tl.store(out + M + columns, tl.argmin(a, axis=0))
    out += M + N
    tl.store(out, tl.sum(a))
    tl.store(out + 1, tl.max(a))
    out += 2
    tl.store(out + rows[:, None] * N + columns[None, :], tl.cumsum(a, 1))
    out += M * N
    tl.store(out + rows[:, None] * N + columns[None, :], tl.cumsum(a, 0, reverse=True))
    out += M * N
    tl.store(out + columns[:, None] * M + rows[None, :], tl.trans(a))
    out += M * N
    tl.store(out + tl.arange(0, M * N), tl.reshape(a, [M * N]) - tl.max(a.T, keep_dims=True).reshape(1))
    out += M * N
    tl.store(out + rows[:, None] * N + columns[None, :], tl.softmax(a.to(tl.float32), 1))


@triton.jit
def solids(x, out, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr):
    i, j, k = tl.arange(0, A)[:, None, None], tl.arange(0, B)[None, :, None], tl.arange(0, C)[None, None, :]
    a = tl.load(x + i * B * C + j * C + k)
    tl.store(out + k * A * B + i * B + j, a + 1)
    out += A * B * C
    tl.store(out + tl.arange(0, A)[:, None] * C + tl.arange(0, C)[None, :], tl.sum(a, 1))
    out += A * C
    turned = tl.permute(a, 2, 0, 1)
    tl.store(out + tl.arange(0, C)[:, None] * B + tl.arange(0, B)[None, :], tl.sum(turned, 1))


@triton.jit
def atomics(x, out, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    a = tl.load(x + at)
    tl.atomic_add(out + at % 4, a)
    tl.atomic_max(out + 4, tl.max(a))
    tl.atomic_min(out + 5 + at % 2, a, mask=a > 5)
    tl.atomic_or(out + 7, tl.program_id(0) + 1)
    tl.atomic_xor(out + 8, tl.sum(a))
    before = tl.atomic_add(out + 9, 1)
    tl.store(out + 10 + before, before * 2)


@triton.jit
def first_large(x, limit):
    if tl.sum(x) > limit:
        return x * 2, limit
    if limit == 3:
        return x, limit + 1
    return -x, limit


@triton.jit
def flow(x, out, n, limit, flag: tl.constexpr, N: tl.constexpr):
    if tl.program_id(0) >= 3:
        return
    at = tl.arange(0, N)
    out += tl.program_id(0) * N
    a = tl.load(x + at)
    if flag:
        kind = 1.0
    else:
        kind = 2.0
    low, high, count = 0, 1, 0
    while low < n and count != 50:
        low, high = high, low + high
        count += 1
        if low % 2 == 0:
            a += 1
        elif low > 8:
            a *= kind
    for i in tl.static_range(2):
        a += i
    for i in range(5, -5, -3):
        a = a - i
    for i in range(0, n, limit):
        a += i
    a, limit = first_large(a, limit)
    b = a if kind == 1.0 else a + limit
    tl.store(out + at, b + low + count)


@triton.jit
def products(a, b, c, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, TURNED: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    if TURNED:
        x = tl.trans(tl.load(a + k[:, None] * M + m[None, :]))
        y = tl.load(b + n[:, None] * K + k[None, :]).T
    else:
        x = tl.load(a + m[:, None] * K + k[None, :])
        y = tl.load(b + k[:, None] * N + n[None, :])
    z = tl.dot(x, y, tl.load(c + m[:, None] * N + n[None, :]))
    tl.store(out + m[:, None] * N + n[None, :], z)
    if N >= 16:
        w = tl.dot(z.to(x.dtype), tl.trans(z.to(x.dtype)))
        tl.store(out + M * N + m[:, None] * M + m[None, :], w)


@triton.jit
def shared_values(x, out, n, N: tl.constexpr):
    """Values that are used twice, a hundred times over: a search that does not know what it has seen takes for ever."""
    acc, mixed, s = tl.zeros([N], tl.int32), tl.arange(0, N), tl.load(x)
    for _ in range(n):
        for _k in tl.static_range(50):
            acc = (acc * acc + acc) ^ s
    for k in tl.static_range(50):
        mixed = (mixed * mixed + mixed) ^ (mixed + k)
    tl.store(out + (mixed & 15), acc, mask=mixed < 1000)


@triton.jit
def fill(x, N: tl.constexpr):
    tl.store(x + tl.arange(0, N), tl.zeros([N], tl.float32))


def of_shared_values(device):
    x, out = torch.ones(4, dtype=torch.int32, device=device), torch.zeros(64, dtype=torch.int32, device=device)
    shared_values[(1,)](x, out, 2, N=32)
    return out.cpu()


def of_products(device, dtype, m, n, k, turned, warps):
    """c + a b, and that times its transpose."""
    torch.manual_seed(0)
    whole = dtype == torch.int8
    a, b = (
        (torch.randint(-3, 3, (m * k,)) if whole else torch.randn(m * k) / 4).to(dtype) for m, k in ((m, k), (k, n))
    )
    sums = torch.int32 if whole else torch.float64 if dtype == torch.float64 else torch.float32
    out = torch.zeros(m * n + m * m, dtype=sums, device=device)
    c = torch.ones(m * n, dtype=sums, device=device)
    products[(1,)](a.to(device), b.to(device), c, out, M=m, N=n, K=k, TURNED=turned, num_warps=warps)
    a, b = a.to(sums), b.to(sums)
    z = 1 + (a.view(k, m).t() @ b.view(n, k).t() if turned else a.view(m, k) @ b.view(k, n))
    w = z.to(dtype).to(sums) @ z.to(dtype).to(sums).t() if n >= 16 else torch.zeros(m, m, dtype=sums)
    return out.cpu(), torch.cat([z.reshape(-1), w.reshape(-1)])


def of_floats(device, dtype):
    torch.manual_seed(1)
    x, y = torch.randn(64) * 2, torch.randn(64)
    x[:4] = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0])
    out = torch.zeros(32, 64, device=device)
    floats[(1,)](x.to(dtype).to(device), y.to(dtype).to(device), out, N=64)
    return out.cpu()


def of_integers(device, dtype):
    torch.manual_seed(1)
    x, y = torch.randint(0 if dtype == torch.uint8 else -100, 100, (64,)), torch.randint(1, 100, (64,))
    out = torch.zeros(24, 64, device=device, dtype=torch.int64)
    integers[(1,)](x.to(dtype).to(device), y.to(dtype).to(device), out, N=64, num_warps=1)
    return out.cpu()


def of_rows(device, dtype, m=16, n=64, warps=4):
    torch.manual_seed(1)
    x = (torch.randn(m, n) * 3).to(dtype)
    out = torch.zeros(3 * (m + n) + 2 + 5 * m * n, device=device)
    across[(1,)](x.to(device), out, M=m, N=n, num_warps=warps)
    return x.float(), out.cpu()


def of_solids(device, warps=2):
    x = torch.arange(4 * 8 * 16, dtype=torch.int32)
    out = torch.zeros(4 * 8 * 16 + 4 * 16 + 16 * 8, dtype=torch.int32, device=device)
    solids[(1,)](x.to(device), out, A=4, B=8, C=16, num_warps=warps)
    return x.reshape(4, 8, 16), out.cpu()


def of_atomics(device):
    x = torch.arange(128, dtype=torch.int32).flip(0).contiguous()
    out = torch.zeros(16, dtype=torch.int32)
    out[5:7] = 1000
    out = out.to(device)
    atomics[(4,)](x.to(device), out, N=32)
    return out.cpu()


def of_flow(device, n, limit, flag):
    x = torch.arange(32.0)
    out = torch.zeros(3, 32, device=device)
    flow[(5,)](x.to(device), out, n, limit, flag=flag, N=32)
    return out.cpu()
