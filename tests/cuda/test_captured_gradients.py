"""Gradients of tensors that functions of flex_attention's scores read, which attention's kernels add where they are
(codegen/ptx_scores.h): against the formula in doubles and differences, by what kind of place is read."""

import math
import os
import subprocess
import sys

import pytest
from test_flex_attention import TOLERANCE, error, formula, gradients, masks, operands

import wick as torch
from wick.nn.attention.flex_attention import create_block_mask, flex_attention

MOST = 400  # the longest sequence
# dS of a row has a sum of 0, of which the roundings of the result are left: sums of many dS are small beside their parts
SUMS = 6


def learned(device, dtype=torch.float32):
    """Functions of a score, and the tensors that they read: a place for all, one of a head, a query, a key, or both."""
    torch.manual_seed(7)

    def table(*sizes, dtype=dtype):
        return torch.randn(*sizes).to(dtype).to(device).requires_grad_()

    slopes, cap, bias = table(4), torch.tensor(2.0, device=device, requires_grad=True), table(4, 2 * MOST)
    rows, columns, places = table(2, MOST), table(MOST), table(4, MOST, MOST)
    documents = ((torch.arange(MOST) // 37) % 3).to(device)
    return {
        "alibi": (lambda s, b, h, q, k: s + slopes[h] * (k - q) * 0.1, [slopes]),
        "soft-capped": (lambda s, b, h, q, k: cap * torch.tanh(s / cap), [cap]),
        "relative": (lambda s, b, h, q, k: s + bias[h, k - q + MOST], [bias]),
        "of a query": (lambda s, b, h, q, k: s * rows[b, q], [rows]),
        "of a key": (lambda s, b, h, q, k: s + columns[k], [columns]),
        "each its own": (lambda s, b, h, q, k: s + places[h, q, k], [places]),
        "of documents": (lambda s, b, h, q, k: s + bias.mT[documents[k], h] * columns[documents[q] + 1], [bias, columns]),
        "all": (lambda s, b, h, q, k: s * cap + slopes[h] + rows[b, q] * columns[k] + bias[h, k - q + MOST] * s,
                [cap, slopes, rows, columns, bias]),
        "masking": (lambda s, b, h, q, k: torch.where(q >= k, s * slopes.exp()[h], -math.inf) + columns[q], [slopes, columns]),
    }  # fmt: skip


def check(sizes, dtype, score, mask, call=flex_attention, table=torch.float32, operands_too=True):
    q, k, v, grad = operands(*sizes, dtype)
    batch, heads, key_heads, queries, keys, size = sizes
    on_device = [t.to("cuda").requires_grad_(operands_too) for t in (q, k, v)]
    of_blocks = masks("cuda")[mask] and create_block_mask(masks("cuda")[mask], None, None, queries, keys, device="cuda")
    function, leaves = learned("cuda", table)[score]
    result, lse = call(*on_device, function, of_blocks, None, heads != key_heads, return_lse=True)
    assert type(result.grad_fn).__name__.startswith(("FlexAttention", "Compiled"))
    exact = [t.double().requires_grad_(operands_too) for t in (q, k, v)]
    of_host, wanted = learned("cpu", table)[score]
    asked = (leaves + on_device, wanted + exact) if operands_too else (leaves, wanted)
    expected = formula(*exact, of_host, masks("cpu")[mask], size**-0.5)[:2]
    for leaf, got, want in zip(
        asked[0],
        gradients(result, lse, asked[0], grad.to("cuda")),
        gradients(*expected, asked[1], grad.double()),
        strict=True,
    ):
        assert got.dtype == leaf.dtype and got.shape == leaf.shape
        most = max(TOLERANCE[dtype], TOLERANCE.get(leaf.dtype, 0))
        assert error(got, want.double()) < (SUMS * most if any(leaf is t for t in leaves) else most)


@pytest.mark.parametrize("mask", ["none", "documents", "rows without keys"])
@pytest.mark.parametrize("score", learned("cpu"))
def test_kinds_of_places(score, mask):
    check((2, 4, 2, 70, 150, 16), torch.float16, score, mask)


@pytest.mark.parametrize("score", ["all", "alibi", "of documents"])
def test_float32(score):
    check((2, 4, 2, 140, 70, 36), torch.float32, score, "documents")


@pytest.mark.parametrize("how", ["mma", "wgmma"])
@pytest.mark.parametrize("size", [8, 64, 128, 256])
def test_sizes(size, how, monkeypatch):
    monkeypatch.setenv("WICK_CUDA_PRODUCTS", how)
    check((1, 2, 1, 140, 70, size), torch.float16, "all", "window")


@pytest.mark.parametrize("table", [torch.bfloat16, torch.float16, torch.float64])
def test_dtypes_of_tables(table):
    check((1, 4, 4, 40, 50, 16), torch.bfloat16, "all", "causal", table=table)


def test_without_gradients_of_the_operands():
    check((1, 2, 2, 40, 50, 16), torch.float16, "relative", "causal", operands_too=False)


@pytest.mark.parametrize("score", ["all", "each its own"])
def test_compiled(score):
    compiled = torch.compile(flex_attention, fullgraph=True)
    for _ in range(4):  # other memory in each call, which a CUDA graph that is given again has to find
        check((1, 4, 2, 70, 60, 16), torch.float16, score, "causal", call=compiled)


def test_by_differences():
    """In half precision, of a table that the sum of the results is a rational function of: steps of its powers of two."""
    torch.manual_seed(3)
    q, k, v = (torch.randn(1, 1, n, 8, dtype=torch.float16, device="cuda") for n in (5, 6, 6))
    table = torch.randn(6, device="cuda", requires_grad=True)

    def logarithms(table):
        return flex_attention(q, k, v, lambda s, b, h, i, j: s + table[j], return_lse=True)[1].double().sum()

    (grad,) = torch.autograd.grad(logarithms(table), table)
    for n in range(6):
        step = torch.zeros(6, device="cuda")
        step[n] = 0.125
        slope = (logarithms(table.detach() + step) - logarithms(table.detach() - step)) / 0.25
        assert abs(slope.item() - grad[n].item()) < 0.02


def test_places_of_their_own_have_the_same_bits_each_time():
    """Of one batch: nothing else is added where a score's element lies."""
    q, k, v, grad = (t.cuda() for t in operands(1, 2, 2, 140, 70, 16, torch.bfloat16))
    table = torch.randn(2, 140, 70, device="cuda", requires_grad=True)
    runs = []
    for _ in range(2):
        result = flex_attention(q, k, v, lambda s, b, h, i, j: s + table[h, i, j])
        runs += torch.autograd.grad(result, table, grad)
    assert torch.equal(*runs)


def test_where_one_order_is_asked_for_all_scores_are_made():
    q, k, v, grad = operands(1, 4, 4, 40, 50, 16, torch.float16)
    function, leaves = learned("cuda")["relative"]
    torch.use_deterministic_algorithms(True)
    try:
        result = flex_attention(q.cuda(), k.cuda(), v.cuda(), function)
    finally:
        torch.use_deterministic_algorithms(False)
    assert not type(result.grad_fn).__name__.startswith("FlexAttention")
    of_host, wanted = learned("cpu")["relative"]
    expected = formula(q.double(), k.double(), v.double(), of_host, None, 0.25)[0]
    got, want = torch.autograd.grad(result, leaves, grad.cuda()), torch.autograd.grad(expected, wanted, grad.double())
    assert error(got[0], want[0].double()) < TOLERANCE[torch.float16]


def test_tables_of_the_host():
    """A number of the host that requires grad: its gradient is there, too."""
    q, k, v, grad = operands(1, 2, 2, 20, 30, 16, torch.float16)
    slope = torch.tensor(0.5, requires_grad=True)
    result = flex_attention(q.cuda(), k.cuda(), v.cuda(), lambda s, b, h, q, k: s + slope * (k - q))
    (got,) = torch.autograd.grad(result, slope, grad.cuda())
    assert got.device.type == "cpu"
    expected = formula(*(t.double() for t in (q, k, v)), lambda s, b, h, q, k: s + slope * (k - q), None, 0.25)[0]
    (want,) = torch.autograd.grad(expected, slope, grad.double())
    assert error(got, want.double()) < TOLERANCE[torch.float16]


@pytest.mark.parametrize("sizes", [(0, 2, 3, 4), (1, 2, 0, 4), (1, 2, 3, 0)])
def test_nothing_to_do(sizes):
    batch, heads, queries, keys = sizes
    q, k, v, grad = (t.cuda() for t in operands(batch, heads, heads, queries, keys, 16, torch.bfloat16))
    function, leaves = learned("cuda")["relative"]
    (got,) = torch.autograd.grad(flex_attention(q, k, v, function), leaves, grad)
    assert got.shape == leaves[0].shape and got.abs().sum().item() == 0


PROGRAM = """
import wick as torch
from wick.nn.attention.flex_attention import flex_attention

bias = torch.randn(80, device="cuda", requires_grad=True)
q, k, v = (torch.randn(1, 2, 40, 16, device="cuda", dtype=torch.bfloat16) for _ in range(3))
flex_attention(q, k, v, lambda s, b, h, q, k: s + bias[k - q + 40]).sum().backward()
"""


def test_the_kernel_is_its_own():
    env = {**os.environ, "WICK_LOGS": "kernel_times"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "flex attention captured bf16 1x2x40x40x16" in done.stderr, done.stderr[-2000:]
