"""wick.tiles: kernels over blocks, compared with wick's operators. The same kernels run on the emulated CUDA device in
tests/cuda/test_tiles.py, which imports them from here."""

import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import wick as torch
import wick.tiles as triton
import wick.tiles.language as tl
from wick.tiles.tensor_descriptor import TensorDescriptor

_path = pathlib.Path(__file__).parent / "tile_operations.py"
_spec = importlib.util.spec_from_file_location("tile_operations", _path)
operations = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(operations)

# ---- kernels ----


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@triton.jit
def softmax_kernel(out, x, x_stride, out_stride, rows, columns, BLOCK: tl.constexpr, stages: tl.constexpr):
    first, step = tl.program_id(0), tl.num_programs(0)
    for row in tl.range(first, rows, step, num_stages=stages):
        at = tl.arange(0, BLOCK)
        inside = at < columns
        values = tl.load(x + row * x_stride + at, mask=inside, other=-float("inf"))
        e = tl.exp(values - tl.max(values, axis=0))
        tl.store(out + row * out_stride + at, e / tl.sum(e, axis=0), mask=inside)


@triton.jit
def leaky(x):
    return tl.where(x >= 0, x, 0.01 * x)


@triton.jit
def matmul_kernel(
    a, b, c, M, N, K, a_m, a_k, b_k, b_n, c_m, c_n,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    in_group = GROUP * tiles_n
    group = pid // in_group
    first_m = group * GROUP
    size_m = min(tiles_m - first_m, GROUP)
    tile_m = first_m + (pid % in_group) % size_m
    tile_n = (pid % in_group) // size_m
    at_m = (tile_m * BM + tl.arange(0, BM)) % M
    at_n = (tile_n * BN + tl.arange(0, BN)) % N
    at_k = tl.arange(0, BK)
    a_at = a + (at_m[:, None] * a_m + at_k[None, :] * a_k)
    b_at = b + (at_k[:, None] * b_k + at_n[None, :] * b_n)
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        left = tl.load(a_at, mask=at_k[None, :] < K - k * BK, other=0.0)
        right = tl.load(b_at, mask=at_k[:, None] < K - k * BK, other=0.0)
        sums = tl.dot(left, right, sums)
        a_at += BK * a_k
        b_at += BK * b_k
    if ACTIVATION == "leaky":
        sums = leaky(sums)
    row = tile_m * BM + tl.arange(0, BM)
    column = tile_n * BN + tl.arange(0, BN)
    result = sums.to(c.dtype.element_ty)
    tl.store(c + row[:, None] * c_m + column[None, :] * c_n, result, mask=(row[:, None] < M) & (column[None, :] < N))


@triton.jit
def dropout_kernel(x, out, n, p, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    keep = tl.rand(seed, at) > p
    tl.store(out + at, tl.where(keep, tl.load(x + at, mask=inside) / (1 - p), 0.0), mask=inside)


@triton.jit
def random_kernel(out, bits, normal, seed, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.rand(seed, at))
    tl.store(bits + at, tl.randint(seed, at).to(tl.int64))
    tl.store(normal + at, tl.randn(seed, at))


@triton.jit
def norm_forward(x, out, weight, bias, means, scales, stride, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x += row * stride
    out += row * stride
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for first in range(0, n, BLOCK):
        at = first + tl.arange(0, BLOCK)
        total += tl.load(x + at, mask=at < n, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / n
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for first in range(0, n, BLOCK):
        at = first + tl.arange(0, BLOCK)
        d = tl.where(at < n, tl.load(x + at, mask=at < n, other=0.0).to(tl.float32) - mean, 0.0)
        squares += d * d
    scale = 1 / tl.sqrt(tl.sum(squares, axis=0) / n + eps)
    tl.store(means + row, mean)
    tl.store(scales + row, scale)
    for first in range(0, n, BLOCK):
        at = first + tl.arange(0, BLOCK)
        inside = at < n
        w, b = tl.load(weight + at, mask=inside), tl.load(bias + at, mask=inside)
        v = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(out + at, (v - mean) * scale * w + b, mask=inside)


@triton.jit
def norm_backward(
    dx, dy, dw, db, x, weight, means, scales, locks, counts, stride, n, GROUPS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < n
    v = tl.load(x + row * stride + at, mask=inside, other=0).to(tl.float32)
    g = tl.load(dy + row * stride + at, mask=inside, other=0).to(tl.float32)
    w = tl.load(weight + at, mask=inside).to(tl.float32)
    scale = tl.load(scales + row)
    normed = tl.where(inside, (v - tl.load(means + row)) * scale, 0.0)
    wg = tl.where(inside, w * g, 0.0)
    c1, c2 = tl.sum(normed * wg, axis=0) / n, tl.sum(wg, axis=0) / n
    tl.store(dx + row * stride + at, (wg - (normed * c1 + c2)) * scale, mask=inside)
    part_w, part_b = (g * normed).to(w.dtype), g.to(w.dtype)
    group = row % GROUPS
    lock, count = locks + group, counts + group
    dw += group * n
    db += group * n
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    if tl.load(count) == 0:
        tl.atomic_xchg(count, 1)
    else:
        part_w += tl.load(dw + at, mask=inside)
        part_b += tl.load(db + at, mask=inside)
    tl.store(dw + at, part_w, mask=inside)
    tl.store(db + at, part_b, mask=inside)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def column_sums(parts, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    columns = tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for i in range(0, M, BM):
        rows = i + tl.arange(0, BM)
        mask = (rows[:, None] < M) & (columns[None, :] < N)
        total += tl.load(parts + rows[:, None] * N + columns[None, :], mask=mask, other=0.0)
    tl.store(out + columns, tl.sum(total, axis=0), mask=columns < N)


@triton.jit
def attend(acc, total, top, q, k_at, v_at, k_step, v_step, first_row, first, last, scale, CAUSAL: tl.constexpr,
           BM: tl.constexpr, BN: tl.constexpr):  # fmt: skip
    rows, columns = first_row + tl.arange(0, BM), tl.arange(0, BN)
    for start in range(first, last, BN):
        scores = tl.dot(q, tl.load(k_at)) * scale
        if CAUSAL:
            scores = tl.where(rows[:, None] >= start + columns[None, :], scores, -1.0e6)
        new_top = tl.maximum(top, tl.max(scores, 1))
        p = tl.math.exp2(scores - new_top[:, None])
        shrink = tl.math.exp2(top - new_top)
        total = total * shrink + tl.sum(p, 1)
        acc = acc * shrink[:, None]
        v = tl.load(v_at)
        acc = tl.dot(p.to(v.dtype), v, acc)
        top = new_top
        k_at += k_step * BN
        v_at += v_step * BN
    return acc, total, top


@triton.jit
def attention_kernel(
    q, k, v, out, logs, scale, q_h, q_s, k_h, k_s, v_h, v_s, o_h, o_s, S, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    CAUSAL: tl.constexpr,
):  # fmt: skip
    block, head = tl.program_id(0), tl.program_id(1)
    rows, channels, keys = block * BM + tl.arange(0, BM), tl.arange(0, D), tl.arange(0, BN)
    queries = tl.load(q + head * q_h + rows[:, None] * q_s + channels[None, :])
    k_at = k + head * k_h + channels[:, None] + keys[None, :] * k_s
    v_at = v + head * v_h + keys[:, None] * v_s + channels[None, :]
    top = tl.zeros([BM], dtype=tl.float32) - float("inf")
    total = tl.zeros([BM], dtype=tl.float32) + 1.0
    acc = tl.zeros([BM, D], dtype=tl.float32)
    scale = scale * 1.44269504
    last = (block + 1) * BM if CAUSAL else S
    acc, total, top = attend(
        acc, total * 0.0, top, queries, k_at, v_at, k_s, v_s, block * BM, 0, last, scale, CAUSAL, BM, BN
    )
    tl.store(logs + head * S + rows, top + tl.math.log2(total))
    tl.store(
        out + head * o_h + rows[:, None] * o_s + channels[None, :], (acc / total[:, None]).to(out.dtype.element_ty)
    )


@triton.jit
def blocks_matmul(a, b, c, M, N, K, a_m, b_k, c_m, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    left = tl.make_block_ptr(a, (M, K), (a_m, 1), (row, 0), (BM, BK), (1, 0))
    right = tl.make_block_ptr(b, (K, N), (b_k, 1), (0, column), (BK, BN), (1, 0))
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, K, BK):
        sums += tl.dot(
            tl.load(left, boundary_check=(0, 1), padding_option="zero"), tl.load(right, boundary_check=(0, 1))
        )
        left, right = tl.advance(left, (0, BK)), tl.advance(right, (BK, 0))
    result = tl.make_tensor_descriptor(c, shape=[M, N], strides=[c_m, 1], block_shape=[BM, BN])
    result.store([row, column], sums.to(c.dtype.element_ty))


@triton.jit
def persistent_matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A program instance makes tile after tile, of a (K, M), turned, and b (N, K), turned."""
    left = tl.make_tensor_descriptor(a, [K, M], [M, 1], [BK, BM])
    right = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BN, BK])
    out = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    tiles_n = tl.cdiv(N, BN)
    for tile in range(tl.program_id(0), tl.cdiv(M, BM) * tiles_n, tl.num_programs(0)):
        row, column = tile // tiles_n * BM, tile % tiles_n * BN
        sums = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, K, BK):
            sums = tl.dot(left.load([k, row]).T, right.load([column, k]).T, sums)
        out.store([row, column], sums.to(c.dtype.element_ty))


@triton.jit
def prefetching_matmul(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, STORES: tl.constexpr):
    """The program loads a round ahead itself; it may leave sums in memory in each round."""
    m, n, k = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :], tl.arange(0, BK)
    left, right = tl.load(a + m * K + k[None, :]), tl.load(b + k[:, None] * BN + n)
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for at in range(BK, K, BK):
        next_left, next_right = tl.load(a + m * K + (at + k)[None, :]), tl.load(b + (at + k)[:, None] * BN + n)
        sums = tl.dot(left, right, sums)
        if STORES:
            tl.store(c + m * BN + n, sums)
        left, right = next_left, next_right
    tl.store(c + m * BN + n, tl.dot(left, right, sums))


@triton.jit
def descriptor_of(x, shape, strides, block_shape):
    if isinstance(x, tl.tensor_descriptor):
        return x
    else:
        return tl.make_tensor_descriptor(x, shape, strides, block_shape)


@triton.jit
def turned(x, out, M, N, B: tl.constexpr):
    source = descriptor_of(x, [M, N], [N, 1], [B, B])
    target = descriptor_of(out, [N, M], [M, 1], [B, B])
    i, j = tl.program_id(0) * B, tl.program_id(1) * B
    target.store([j, i], source.load([i, j]).T)


# ---- what they are run for; used by tests/cuda/test_tiles.py too ----


def run_add(device, dtype=torch.float32, n=5000, block=1024):
    torch.manual_seed(0)
    x, y = torch.randn(n).to(dtype).to(device), torch.randn(n).to(dtype).to(device)
    out = torch.full((n,), 7.0, device=device, dtype=dtype)
    add_kernel[(triton.cdiv(n, block),)](x, y, out, n, BLOCK=block)
    return out, x + y


def run_softmax(device, rows=37, columns=781, warps=4):
    torch.manual_seed(0)
    x = torch.randn(rows, columns).to(device)
    out = torch.empty_like(x)
    softmax_kernel[(8, 1, 1)](out, x, x.stride(0), out.stride(0), rows, columns, BLOCK=triton.next_power_of_2(columns), stages=2,
                              num_warps=warps)  # fmt: skip
    return out, torch.softmax(x, 1)


def run_matmul(
    device,
    dtype=torch.float16,
    m=100,
    n=72,
    k=90,
    blocks=(32, 32, 32),
    activation="",
    transposed=False,
    warps=4,
    stages=3,
):
    torch.manual_seed(0)
    a = torch.randn(m, k).to(dtype).to(device)
    b = torch.randn(n, k).to(dtype).to(device).t() if transposed else torch.randn(k, n).to(dtype).to(device)
    c = torch.empty(m, n, device=device, dtype=dtype)
    bm, bn, bk = blocks

    def grid(meta):
        return (triton.cdiv(m, meta["BM"]) * triton.cdiv(n, meta["BN"]),)

    matmul_kernel[grid](a, b, c, m, n, k, a.stride(0), a.stride(1), b.stride(0), b.stride(1), c.stride(0), c.stride(1),
                        BM=bm, BN=bn, BK=bk, GROUP=2, ACTIVATION=activation, num_warps=warps, num_stages=stages)  # fmt: skip
    expected = a.cpu().float() @ b.cpu().float()
    if activation:
        expected = torch.nn.functional.leaky_relu(expected, 0.01)
    return c.cpu(), expected.to(dtype)


def run_blocks_matmul(device, dtype=torch.float16, m=70, n=40, k=50, blocks=(32, 32, 16), warps=4):
    torch.manual_seed(0)
    bm, bn, bk = blocks
    a, b, c = (
        torch.randn(m, k).to(dtype),
        torch.randn(k, n).to(dtype),
        torch.full((m, n), 7.0, device=device, dtype=dtype),
    )
    grid = (triton.cdiv(m, bm), triton.cdiv(n, bn))
    blocks_matmul[grid](a.to(device), b.to(device), c, m, n, k, k, n, n, BM=bm, BN=bn, BK=bk, num_warps=warps)
    return c.cpu(), (a.float() @ b.float()).to(dtype)


def run_persistent_matmul(device, m, n, k, blocks, warps, stages):
    torch.manual_seed(0)
    a, b = torch.randn(k, m).bfloat16(), torch.randn(n, k).bfloat16()
    c = torch.full((m, n), 7.0, device=device, dtype=torch.bfloat16)
    bm, bn, bk = blocks
    persistent_matmul[(2,)](a.to(device), b.to(device), c, m, n, k, BM=bm, BN=bn, BK=bk, num_warps=warps, num_stages=stages)  # fmt: skip
    return c.cpu(), (a.float().t() @ b.float().t()).bfloat16()


def run_prefetching_matmul(device, stores, m=64, n=64, k=96):
    torch.manual_seed(0)
    a, b, c = torch.randn(m, k).half(), torch.randn(k, n).half(), torch.zeros(m, n, device=device)
    prefetching_matmul[(1,)](a.to(device), b.to(device), c, k, BM=m, BN=n, BK=32, STORES=stores)
    return c.cpu(), a.float() @ b.float()


def run_norm(device, rows=30, n=200, groups=4):
    torch.manual_seed(0)
    x = torch.randn(rows, n)
    weight, bias, dy = torch.rand(n), torch.rand(n), torch.randn(rows, n)
    xs, ws, bs = (t.clone().requires_grad_() for t in (x, weight, bias))
    expected = torch.nn.functional.layer_norm(xs, (n,), ws, bs, 1e-5)
    expected.backward(dy)
    x, weight, bias, dy = (t.to(device) for t in (x, weight, bias, dy))
    out, dx = torch.empty_like(x), torch.empty_like(x)
    means, scales = torch.empty(rows, device=device), torch.empty(rows, device=device)
    norm_forward[(rows,)](x, out, weight, bias, means, scales, x.stride(0), n, 1e-5, BLOCK=128)
    dw, db = torch.empty(groups, n, device=device), torch.empty(groups, n, device=device)
    locks, counts = (torch.zeros(groups, dtype=torch.int32, device=device) for _ in range(2))
    norm_backward[(rows,)](
        dx, dy, dw, db, x, weight, means, scales, locks, counts, x.stride(0), n, GROUPS=groups, BLOCK=256
    )
    sums = [torch.empty(n, device=device) for _ in range(2)]
    for parts, total in zip((dw, db), sums, strict=True):
        column_sums[(triton.cdiv(n, 64),)](parts, total, groups, n, BM=8, BN=64)
    got = (out, dx, *sums)
    return [t.cpu() for t in got], [expected.detach(), xs.grad, ws.grad, bs.grad]


def run_attention(device, dtype=torch.float16, heads=2, s=64, d=16, bm=32, bn=16, causal=True, warps=4, stages=3):
    torch.manual_seed(0)
    q, k, v = (torch.randn(heads, s, d).to(dtype).to(device) for _ in range(3))
    out, logs = torch.empty_like(q), torch.empty(heads, s, device=device)
    attention_kernel[(s // bm, heads)](
        q, k, v, out, logs, 0.5, q.stride(0), q.stride(1), k.stride(0), k.stride(1), v.stride(0), v.stride(1), out.stride(0),
        out.stride(1), s, D=d, BM=bm, BN=bn, CAUSAL=causal, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    scores = q.cpu().float() @ k.cpu().float().transpose(1, 2) * 0.5
    if causal:
        scores = scores.masked_fill(torch.ones(s, s).triu(1).bool(), -float("inf"))
    return out.cpu().float(), torch.softmax(scores, 2) @ v.cpu().float()


# ---- tests ----


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64]
)
def test_add_has_the_operators_bits(dtype):
    out, expected = run_add("cpu", dtype)
    assert torch.equal(out, expected)


def test_only_what_the_mask_says_is_written():
    x, out = torch.ones(100), torch.zeros(100)
    add_kernel[(1,)](x, x, out, 60, BLOCK=64)
    assert out[:60].eq(2).all() and out[60:].eq(0).all()


@pytest.mark.parametrize("columns", [1, 781, 1024])
def test_softmax(columns):
    out, expected = run_softmax("cpu", columns=columns)
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("activation", ["", "leaky"])
def test_matmul(dtype, activation):
    out, expected = run_matmul("cpu", dtype, activation=activation)
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_block_pointers_and_descriptors(dtype):
    out, expected = run_blocks_matmul("cpu", dtype)
    torch.testing.assert_close(out, expected)


def test_tiles_in_turn_and_loads_by_hand():
    out, expected = run_persistent_matmul("cpu", 70, 50, 40, (32, 32, 16), 4, 3)
    torch.testing.assert_close(out, expected)
    for stores in (False, True):
        out, expected = run_prefetching_matmul("cpu", stores)
        torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("given", ["tensors", "descriptors"])
def test_descriptors_as_arguments(given):
    x, out = torch.arange(35.0).reshape(5, 7), torch.zeros(7, 5)
    arguments = (x, out)
    if given == "descriptors":
        arguments = [TensorDescriptor.from_tensor(t, [4, 4]) for t in arguments]
    turned[(2, 2)](*arguments, 5, 7, B=4)
    assert torch.equal(out, x.t())


def test_dropout_by_a_seed():
    x = torch.arange(1.0, 1001.0)
    first, second, other = (torch.empty_like(x) for _ in range(3))
    for out, seed in ((first, 123), (second, 123), (other, 512)):
        dropout_kernel[(4,)](x, out, 1000, 0.25, seed, BLOCK=256)
    assert torch.equal(first, second) and not torch.equal(first, other)
    kept = first != 0
    assert 700 < int(kept.sum()) < 800
    torch.testing.assert_close(first[kept], x[kept] / 0.75)


def test_random_numbers_are_tritons():
    out, normal, bits = torch.empty(8), torch.empty(8), torch.empty(8, dtype=torch.int64)
    random_kernel[(1,)](out, bits, normal, 0, BLOCK=8)
    # Philox 4x32-10 of the zero counter and key (Random123's known answers): 6627e8d5
    assert int(bits[0]) == 0x6627E8D5
    assert (out >= 0).all() and (out < 1).all() and normal.abs().max() < 6
    signed = torch.where(bits >= 2**31, bits - 2**32, bits)
    folded = torch.where(signed < 0, -signed - 1, signed).float()
    assert torch.equal(out, folded * 4.6566127342e-10)


def test_layer_norm_forward_and_backward():
    got, expected = run_norm("cpu")
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal):
    out, expected = run_attention("cpu", causal=causal)
    torch.testing.assert_close(out, expected, rtol=2e-3, atol=2e-3)  # probabilities and results are halves


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_operations_on_floats(dtype):
    torch.manual_seed(1)
    x, y = (torch.randn(64) * 2), torch.randn(64)
    x[:4] = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0])
    a, b = x.to(dtype), y.to(dtype)
    small = dtype in (torch.float16, torch.bfloat16)
    quotient = (a.float() / b.float()) if small else a / b
    expected = [
        a + b, a - b, a * b, quotient, -a, a.abs(), torch.maximum(a, b), torch.minimum(a, b),
        torch.fmod(a.float(), b.float()) if small else torch.fmod(a, b), a.exp(), torch.exp2(a * 20), a.abs().log(), a.abs().log2(),
        a.sin(), a.cos(), a.abs().sqrt(), a.abs().rsqrt(), a.floor(), a.ceil(), a.erf(), a.sigmoid(), a.tanh(), None,
        torch.where(a < b, a, b), None, (a == b) | (a != a), (a < b) & (a > -1), ~(a >= b), a.half(), a.bfloat16(), a.abs() ** b,
        a.clamp(-0.5, 0.5),
    ]  # fmt: skip
    got = operations.of_floats("cpu", dtype)
    for i, e in enumerate(expected):
        if e is not None:
            limit = {torch.float16: 2e-3, torch.bfloat16: 2e-2}.get(dtype, 2e-6)  # of exp2: its argument is rounded
            torch.testing.assert_close(
                got[i], e.float(), rtol=limit, atol=limit, equal_nan=True, msg=lambda m, i=i: f"{i}: {m}"
            )


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.int8, torch.int16, torch.uint8])
def test_operations_on_integers(dtype):
    torch.manual_seed(1)
    a, b = (
        torch.randint(0 if dtype == torch.uint8 else -100, 100, (64,)).to(dtype),
        torch.randint(1, 100, (64,)).to(dtype),
    )
    got = operations.of_integers("cpu", dtype)
    quotient = torch.div(a, b, rounding_mode="trunc")
    expected = [a + b, a - b, a * b, quotient, torch.fmod(a, b), -a, ~a, a & b, a | b, a ^ b, a << 3, a >> 2, a < b, a >= b, a == b,
                torch.maximum(a, b), torch.minimum(a, b), a.abs(), torch.where(a > 0, a, b), a.float(), a.to(torch.int8), a.long(),
                (a / b).int(), torch.div((a + (b - 1)).to(dtype), b, rounding_mode="trunc")]  # fmt: skip
    for i, e in enumerate(expected):
        assert torch.equal(got[i], e.long()), i


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32])
@pytest.mark.parametrize(("m", "n"), [(16, 64), (1, 4), (64, 2)])
def test_operations_across_elements(dtype, m, n):
    x, out = operations.of_rows("cpu", dtype, m, n)
    expected = [x.sum(1), x.sum(0), x.amax(1), x.amin(0), x.argmax(1), x.argmin(0), x.sum(), x.max(), x.cumsum(1),
                x.flip(0).cumsum(0).flip(0), x.t(), x - x.max(), x.softmax(1)]  # fmt: skip
    expected = torch.cat([e.reshape(-1).float() for e in expected])
    limit = 5e-2 if dtype == torch.float16 else 1e-5  # halves are rounded after each addition
    torch.testing.assert_close(out, expected, rtol=limit, atol=limit)


PRODUCTS = [
    (16, 16, 16),
    (16, 8, 32),
    (32, 64, 16),
    (8, 16, 32),
    (16, 128, 16),
    (128, 16, 16),
    (64, 64, 64),
    (4, 4, 512),
]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8])
@pytest.mark.parametrize("turned", [False, True])
def test_products(dtype, turned):
    for m, n, k in PRODUCTS:
        got, expected = operations.of_products("cpu", dtype, m, n, k, turned, 4)
        limit = {torch.float16: 1e-2, torch.bfloat16: 5e-2}.get(
            dtype, 1e-5
        )  # sums are rounded before the second product
        torch.testing.assert_close(got, expected, rtol=limit, atol=limit)


def test_three_dims():
    x, out = operations.of_solids("cpu")
    expected = [x.permute(2, 0, 1) + 1, x.sum(1), x.permute(2, 0, 1).sum(1)]
    assert torch.equal(out, torch.cat([e.reshape(-1).int() for e in expected]))


ATOMIC_RESULTS = [1984, 2016, 2048, 2080, 127, 7, 6, 7, 496 ^ 1520 ^ 2544 ^ 3568, 4, 0, 2, 4, 6, 0, 0]


def test_atomics():
    assert sorted(operations.of_atomics("cpu")[:4].tolist()) == sorted(ATOMIC_RESULTS[:4])
    assert operations.of_atomics("cpu")[4:].tolist() == ATOMIC_RESULTS[4:]


def flow_in_python(n, limit, flag):
    a = torch.arange(32.0)
    low, high, count = 0, 1, 0
    while low < n and count != 50:
        low, high = high, low + high
        count += 1
        if low % 2 == 0:
            a = a + 1
        elif low > 8:
            a = a * (1.0 if flag else 2.0)
    a = a + 1
    for i in (*(-i for i in range(5, -5, -3)), *range(0, n, limit)):
        a = a + i
    if a.sum() > limit:
        a = a * 2
    elif limit == 3:
        limit += 1
    else:
        a = -a
    return ((a if flag else a + limit) + low + count).expand(3, 32)


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize(("n", "limit"), [(0, 3), (20, 7), (30, 100000), (5, 2)])
def test_control_flow(n, limit, flag):
    assert torch.equal(operations.of_flow("cpu", n, limit, flag), flow_in_python(n, limit, flag))


# ---- the interface ----


def test_kernels_are_built_once_for_each_kind_of_arguments():
    kernel = triton.jit(add_kernel.fn)
    x = torch.ones(64)
    first = kernel[(1,)](x, x, x.clone(), 64, BLOCK=64)
    assert kernel[(1,)](x, x, x.clone(), 32, BLOCK=64) is first
    assert kernel[(1,)](x.double(), x, x.clone(), 32, BLOCK=64) is not first
    assert kernel[(1,)](x, x, x.clone(), 32, BLOCK=128) is not first
    assert "parameter int32 3" in first.text and "n" not in kernel[(1,)](x, x, x.clone(), 1, BLOCK=64)._parameters


def test_autotune_and_heuristics():
    seen = []

    @triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 256}, num_warps=2)], key=["n"])
    @triton.heuristics({"WHOLE": lambda args: seen.append(args["BLOCK"]) or args["n"] % args["BLOCK"] == 0})
    @triton.jit
    def twice(x, out, n, BLOCK: tl.constexpr, WHOLE: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        if WHOLE:
            tl.store(out + at, tl.load(x + at) * 2)
        else:
            tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)

    x, out = torch.arange(320.0), torch.zeros(320)
    twice[lambda meta: (triton.cdiv(320, meta["BLOCK"]),)](x, out, 320)
    assert torch.equal(out, x * 2) and set(seen) == {64, 256}
    assert twice.best_config in twice.configs


def breaks_of(f, *args):
    return torch._dynamo.explain(f)(*args).graph_break_count


def test_launches_in_compiled_functions():
    def f(x):
        y = x + 1
        out = torch.empty_like(y)
        add_kernel[(1,)](y, y, out, 64, BLOCK=64)
        return out * 3

    x = torch.arange(64.0)
    compiled = torch.compile(f, fullgraph=True)
    for _ in range(3):
        assert torch.equal(compiled(x), f(x))


def test_a_launch_is_a_node_whatever_the_sizes():
    def f(x, y):
        out = torch.empty_like(x)
        n = x.numel()
        add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x * 2, y, out, n, BLOCK=32)
        return out.relu() + 1

    compiled = torch.compile(f, fullgraph=True)
    for n in (70, 70, 33, 1, 64, 65):
        x, y = torch.randn(n), torch.randn(n)
        assert torch.equal(compiled(x, y), (x * 2 + y).relu() + 1), n


@triton.jit
def scale_in_place(x, factor, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)


@triton.jit
def count_up(places, counts, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.atomic_add(counts + tl.load(places + at, mask=at < n), 1, mask=at < n)


@triton.jit
def copy_by_rows(x, out, rows, BLOCK: tl.constexpr):
    to = out
    for _ in range(rows):
        tl.store(to + tl.arange(0, BLOCK), tl.load(x + tl.arange(0, BLOCK)))
        x += BLOCK
        to += BLOCK


def test_which_arguments_a_kernel_writes():
    x, i = torch.randn(64), torch.zeros(64, dtype=torch.int32)
    assert scale_in_place.warmup(x, 2.0, 64, BLOCK=64, grid=(1,)).kernel.written == (0,)
    assert count_up.warmup(i, i, 64, BLOCK=64, grid=(1,)).kernel.written == (1,)
    assert copy_by_rows.warmup(x, x, 4, BLOCK=16, grid=(1,)).kernel.written == (1,)
    assert add_kernel.warmup(x, x, x, 64, BLOCK=64, grid=(1,)).kernel.written == (2,)


def test_what_a_launch_writes_in_a_graph_is_seen_by_all():
    def f(x, factor):
        y = x + 1
        view = y.view(8, 8)
        before = view.sum()
        scale_in_place[(2,)](y, factor, 64, BLOCK=32)
        scale_in_place[(2,)](x, 3.0, 64, BLOCK=32)  # an argument of the region
        return before, view.sum(0), y * x

    compiled = torch.compile(f, fullgraph=True)
    for factor in (2.0, 2.0, 0.5):
        x = torch.randn(64)
        z = x.clone()
        for ours, wanted in zip(compiled(x, factor), f(z, factor), strict=True):
            assert torch.equal(ours, wanted)
        assert torch.equal(x, z)


def test_atomics_and_loops_in_a_graph():
    def f(places, x):
        counts, out = torch.zeros(4, dtype=torch.int32), torch.empty(4, 16)
        count_up[(1,)](places, counts, 64, BLOCK=64)
        copy_by_rows[(1,)](x.view(-1), out.view(-1), 4, BLOCK=16)
        return counts * 2, out

    places, x = torch.randint(0, 4, (64,), dtype=torch.int32), torch.randn(4, 16)
    compiled = torch.compile(f, fullgraph=True)
    for _ in range(3):
        counts, out = compiled(places, x)
        assert torch.equal(counts, torch.bincount(places, minlength=4).int() * 2) and torch.equal(out, x)


def test_tuned_kernels_in_a_graph():
    @triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"], do_bench=measured)
    @triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
    @triton.jit
    def twice(x, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        if EVEN:
            tl.store(out + at, tl.load(x + at) * 2)
        else:
            tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)

    def f(x):
        out = torch.empty_like(x)
        n = x.numel()
        twice[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x + 1, out, n)
        return out.relu()

    for n in 128, 200:
        x = torch.randn(n)
        f(x)  # measured once; from then on a launch is a node
        assert breaks_of(f, x) == 0
        torch._dynamo.reset()
        compiled = torch.compile(f, fullgraph=True)
        for _ in range(3):
            assert torch.equal(compiled(x), ((x + 1) * 2).relu())
    y = torch.randn(300)
    compiled = torch.compile(f)
    for _ in range(4):  # the first call measures
        assert torch.equal(compiled(y), ((y + 1) * 2).relu())


def measured(call, quantiles):
    call()
    return (1.0, 1.0, 1.0)


def test_launches_that_a_graph_cannot_have_end_it():
    def strided(x):
        y = x + 1
        scale_in_place[(1,)](y[8:40], 2.0, 32, BLOCK=32)
        return y

    def twice(x):
        y = x + 1
        add_kernel[(1,)](y, y, y, 64, BLOCK=64)
        return y

    for f in strided, twice:
        x = torch.randn(64)
        assert breaks_of(f, x) == 1
        torch._dynamo.reset()
        compiled = torch.compile(f)
        for _ in range(3):
            assert torch.equal(compiled(x), f(x))


def test_launches_and_derivatives_in_a_graph():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            out = torch.empty_like(x)
            add_kernel[(1,)](x, x, out, 64, BLOCK=64)
            return out

        @staticmethod
        def backward(ctx, g):
            out = torch.empty_like(g)
            add_kernel[(1,)](g, g, out, 64, BLOCK=64)
            return out

    def f(x):
        return (Double.apply(x) * x).sum()

    grads = []
    for function in f, torch.compile(f):
        x = torch.arange(64.0, requires_grad=True)
        for _ in range(3):
            x.grad = None
            function(x).backward()
        grads.append(x.grad)
    assert torch.equal(*grads)


@triton.jit
def undefined(x):
    tl.store(x, y)  # noqa: F821


@triton.jit
def changing(x, n):
    total = 0
    for i in range(n):
        total += tl.load(x + i)
    tl.store(x, total)


@triton.jit
def bad_shapes(x):
    tl.store(x + tl.arange(0, 32), tl.arange(0, 64))


@triton.jit
def asserting(x, N: tl.constexpr):
    tl.static_assert(N > 4, "too small")


THRESHOLD = 5


@triton.jit
def uses_a_global(x):
    tl.store(x, THRESHOLD)


@pytest.mark.parametrize(("kernel", "arguments", "message"), [
    (undefined, (), "y is not defined"), (changing, (4,), "Loop-carried variable total has initial type int32 but is re-assigned to fp32"),
    (bad_shapes, (), "incompatible dimensions at index 0: 32 and 64"), (uses_a_global, (), "Cannot access global variable THRESHOLD"),
    (asserting, (2,), "too small")])  # fmt: skip
def test_mistakes_have_their_line(kernel, arguments, message):
    with pytest.raises(triton.CompilationError) as error:
        kernel[(1,)](torch.zeros(4), *arguments)
    assert message in str(error.value) and f"def {kernel.__name__}(" in str(error.value)
    assert str(error.value).startswith("at ")


def test_wrong_launches():
    x = torch.zeros(4)
    with pytest.raises(TypeError, match="missing 1 required argument"):
        changing[(1,)](x)
    with pytest.raises(KeyError, match="num_wraps"):
        changing[(1,)](x, 4, num_wraps=2)
    with pytest.raises(RuntimeError, match="Cannot call @triton.jit"):
        changing(x, 4)
    with pytest.raises(ValueError, match="has no memory"):
        uses_seven[(1,)](torch.zeros(4, device="meta"))
    uses_seven[(0,)](x)
    assert x.eq(0).all()


@triton.jit
def uses_seven(x):
    tl.store(x, 7.0)


def test_triton_is_imported_from_wick(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(
        textwrap.dedent("""
        import importlib.util
        assert importlib.util.find_spec("triton") is None or "site-packages" in importlib.util.find_spec("triton").origin
        import torch, triton
        import triton.language as tl
        from triton.compiler.errors import CompilationError
        from triton.language.extra import libdevice
        from triton.language.extra.cuda.libdevice import rint
        from triton.language.math import rsqrt
        from triton.runtime.errors import OutOfResources
        from triton.tools.tensor_descriptor import TensorDescriptor
        from triton.runtime import driver

        @triton.jit
        def kernel(x, N: tl.constexpr):
            at = tl.arange(0, N)
            tl.store(x + at, libdevice.tanh(tl.load(x + at)))

        x = torch.ones(8, device=driver.active.get_active_torch_device())
        kernel[(1,)](x, N=8)
        assert torch.equal(x, torch.ones_like(x).tanh())
        print(triton.testing.do_bench(lambda: x + x, warmup=1, rep=1) > 0)
    """)
    )
    done = subprocess.run([sys.executable, "-m", "wick", script], capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr


@triton.jit
def waits_for_ever(lock):
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass


def test_a_loop_without_end_is_interrupted():
    def interrupt():
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)

    lock = torch.ones(1, dtype=torch.int32)
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell ignores it for what it runs in the background
    try:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            waits_for_ever[(1,)](lock)
    finally:
        signal.signal(signal.SIGINT, before)
