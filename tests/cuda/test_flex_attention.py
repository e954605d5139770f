"""flex_attention of small floats and float32 without the scores in memory (codegen/ptx_attention.h): values and gradients against the
formula in doubles, blocks, captured tensors, and what is left to other operators."""

import math
import os
import subprocess
import sys

import pytest

import wick as torch
from wick.nn.attention.flex_attention import (
    AuxRequest,
    BlockMask,
    and_masks,
    create_block_mask,
    flex_attention,
    noop_mask,
    or_masks,
)

# the result's and the probabilities' roundings; gradients have several of them. In f32 those of scores of up to 200
TOLERANCE = {torch.bfloat16: 8e-3, torch.float16: 1e-3, torch.float32: 1e-5}
MOST = 400  # the longest sequence


def tables(device):
    torch.manual_seed(7)
    return {
        "slopes": torch.tensor([0.5, 0.25, 0.125, 0.0625], device=device),
        "bias": torch.randn(4, 2 * MOST).to(torch.bfloat16).to(device),
        "documents": ((torch.arange(MOST) // 37) % 3).to(torch.int32).to(device),
        "window": torch.tensor(20, device=device),
    }


def scores(device):
    t = tables(device)
    return {
        "none": None,
        "noop": lambda s, b, h, q, k: s,
        "alibi": lambda s, b, h, q, k: s + t["slopes"][h] * (k - q),
        "relative": lambda s, b, h, q, k: s + t["bias"][h, k - q + MOST],
        "soft-capped": lambda s, b, h, q, k: 2 * torch.tanh(s / 2),
        "masking": lambda s, b, h, q, k: torch.where(q >= k, s, -math.inf),
        "of batch": lambda s, b, h, q, k: s * (1 + 0.5 * b) - (q % 3) * 0.1,
        "composite": lambda s, b, h, q, k: torch.nn.functional.gelu(s) + torch.clamp(s, -1, 1),
        "root": lambda s, b, h, q, k: s.abs().sqrt(),  # whose derivative at 0 is infinite: scores beyond the last are 0
    }


def masks(device):
    t = tables(device)
    return {
        "none": None,
        "noop": noop_mask,
        "causal": lambda b, h, q, k: q >= k,
        "window": lambda b, h, q, k: (q >= k) & (q - k <= t["window"]),
        "documents": lambda b, h, q, k: t["documents"][q] == t["documents"][k],
        "prefix": or_masks(lambda b, h, q, k: q >= k, lambda b, h, q, k: k < 30),
        "rows without keys": and_masks(lambda b, h, q, k: q >= k, lambda b, h, q, k: q % 40 > 20),
        "by head": lambda b, h, q, k: (q >= k) | (h == 1),
    }


def operands(batch, heads, key_heads, queries, keys, size, dtype):
    torch.manual_seed(1)
    shapes = ((heads, queries), (key_heads, keys), (key_heads, keys), (heads, queries))
    return [torch.randn(batch, h, t, size).to(dtype) for h, t in shapes]


def formula(q, k, v, score, mask, scale):
    """Of a matrix of all scores in doubles: the result, the logarithms and the largest scores."""
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    all_scores = (q @ k.mT) * scale
    places = torch.meshgrid(*[torch.arange(n) for n in all_scores.shape], indexing="ij")
    if score:
        all_scores = score(all_scores, *places).double()
    if mask:
        all_scores = torch.where(mask(*places), all_scores, -math.inf)
    largest = all_scores.amax(-1, keepdim=True)
    weights = (all_scores - torch.where(largest == -math.inf, 0.0, largest).detach()).exp()
    sums = weights.sum(-1, keepdim=True)
    some = torch.where(sums == 0, 1.0, sums)
    logarithms = torch.where(sums == 0, -math.inf, some.log() + largest.detach())
    return weights / some @ v, logarithms.squeeze(-1), largest.squeeze(-1)


def gradients(result, logarithms, leaves, grad):
    finite = torch.where(logarithms == -math.inf, 0.0, logarithms)
    loss = (result * grad).sum() + (finite * finite.detach().cos()).sum()
    return torch.autograd.grad(loss, leaves)


def error(got, wanted):
    return ((got.cpu().double() - wanted).norm() / max(wanted.norm().item(), 1e-30)).item()


def check(sizes, dtype, score, mask, scale=None, call=flex_attention, block=128):
    q, k, v, grad = operands(*sizes, dtype)
    batch, heads, key_heads, queries, keys, size = sizes
    on_device = [t.to("cuda").requires_grad_() for t in (q, k, v)]
    mask_mod = masks("cuda")[mask]
    of_blocks = mask_mod and create_block_mask(
        mask_mod, None, heads if mask == "by head" else None, queries, keys, device="cuda", BLOCK_SIZE=block
    )
    result, aux = call(
        *on_device, scores("cuda")[score], of_blocks, scale, heads != key_heads,
        return_aux=AuxRequest(lse=True, max_scores=True),
    )  # fmt: skip
    assert type(result.grad_fn).__name__.startswith(("FlexAttention", "Compiled"))
    assert result.dtype == dtype and aux.lse.dtype == torch.float32
    exact = [t.double().requires_grad_() for t in (q, k, v)]
    wanted = formula(*exact, scores("cpu")[score], masks("cpu")[mask], size**-0.5 if scale is None else scale)
    assert error(result.detach(), wanted[0].detach()) < TOLERANCE[dtype]
    for got, want in ((aux.lse.detach(), wanted[1].detach()), (aux.max_scores, wanted[2].detach())):
        torch.testing.assert_close(got.cpu().double(), want, rtol=1e-5, atol=1e-5)
    for got, want in zip(
        gradients(result, aux.lse, on_device, grad.to("cuda")),
        gradients(*wanted[:2], exact, grad.double()),
        strict=True,
    ):
        assert error(got, want) < TOLERANCE[dtype]


@pytest.mark.parametrize("mask", masks("cpu"))
@pytest.mark.parametrize("score", scores("cpu"))
def test_scores_and_masks(score, mask):
    check((1, 2, 2, 70, 150, 16), torch.float16, score, mask)


@pytest.mark.parametrize(
    "score, mask, size",
    [
        ("none", "by head", 4),
        ("alibi", "window", 64),
        ("relative", "documents", 36),
        ("soft-capped", "causal", 16),
        ("composite", "none", 132),
        ("masking", "rows without keys", 16),
        ("of batch", "prefix", 64),
    ],
)
def test_float32(score, mask, size):
    check((2, 2, 1, 140, 150, size), torch.float32, score, mask)


@pytest.mark.parametrize("mask", ["none", "window", "documents", "rows without keys"])
@pytest.mark.parametrize(
    "sizes, dtype",
    [
        ((2, 4, 2, 70, 90, 64), torch.bfloat16),
        ((2, 4, 1, 290, 390, 32), torch.float16),
        ((1, 2, 2, 140, 260, 128), torch.bfloat16),
        ((1, 1, 1, 129, 100, 80), torch.float16),
        ((1, 2, 1, 70, 150, 256), torch.bfloat16),
        ((1, 1, 1, 40, 130, 192), torch.float16),
        ((1, 1, 1, 5, 3, 8), torch.float16),
    ],
)
def test_sizes(sizes, dtype, mask):
    check(sizes, dtype, "alibi", mask)


@pytest.mark.parametrize("block", [128, (256, 128), (128, 256)])
def test_blocks_of_several_sizes(block):
    check((2, 4, 2, 390, 290, 16), torch.float16, "relative", "window", block=block)
    check((1, 2, 2, 390, 390, 16), torch.float16, "none", "by head", block=block)


@pytest.mark.parametrize("scale", [0.3, -0.5, 0.0])
def test_scale(scale):
    check((1, 2, 2, 70, 150, 16), torch.float16, "soft-capped", "causal", scale)


@pytest.mark.parametrize("score, mask", [("relative", "documents"), ("soft-capped", "causal"), ("of batch", "none")])
def test_compiled(score, mask):
    check((2, 2, 1, 70, 150, 16), torch.float16, score, mask, call=torch.compile(flex_attention, fullgraph=True))


@pytest.mark.parametrize("size, value_size", [(64, 128), (128, 40), (16, 256)])
def test_values_of_another_size(size, value_size):
    q, k, _, _ = (t.half() for t in operands(1, 4, 2, 140, 150, size, torch.float32))
    _, _, v, grad = (t.half() for t in operands(1, 4, 2, 140, 150, value_size, torch.float32))
    mask = create_block_mask(masks("cuda")["window"], None, None, 140, 150, device="cuda")
    on_device = [t.cuda().requires_grad_() for t in (q, k, v)]
    result, lse = flex_attention(*on_device, scores("cuda")["alibi"], mask, enable_gqa=True, return_lse=True)
    assert type(result.grad_fn).__name__.startswith("FlexAttention")
    exact = [t.double().requires_grad_() for t in (q, k, v)]
    wanted = formula(*exact, scores("cpu")["alibi"], masks("cpu")["window"], size**-0.5)
    assert error(result.detach(), wanted[0].detach()) < TOLERANCE[torch.float16]
    for got, want in zip(
        gradients(result, lse, on_device, grad.cuda()), gradients(*wanted[:2], exact, grad.double()), strict=True
    ):
        assert error(got, want) < TOLERANCE[torch.float16]


def small(*sizes, dtype=torch.bfloat16):
    torch.manual_seed(2)
    return [torch.randn(*sizes, dtype=dtype).cuda().requires_grad_() for _ in range(3)]


@pytest.mark.parametrize("dynamic", [False, True])
def test_same_bits_every_time_and_compiled(dynamic):
    """Other memory in each call, which a CUDA graph that is given again has to find; other lengths, too."""
    compiled = torch.compile(flex_attention, fullgraph=True, dynamic=dynamic)

    def run(call, leaves, score, mask):
        result = call(*leaves, score, mask)
        return [result.detach(), *torch.autograd.grad(result, leaves, result.detach())]

    for n in range(5):
        length = 140 + 10 * n if dynamic else 140
        leaves = [(t * (n + 1)).detach().requires_grad_() for t in small(1, 2, length, 32)]
        bias = scores("cuda")["relative"]
        mask = create_block_mask(masks("cuda")["documents"], None, None, length, length, device="cuda")
        expected = run(flex_attention, leaves, bias, mask)
        for call in (flex_attention, compiled):
            for a, b in zip(run(call, leaves, bias, mask), expected, strict=True):
                assert torch.equal(a, b)


def test_more_blocks_than_a_warp_has_lanes():
    """The one block that is seen is the 35th."""
    torch.manual_seed(2)
    q, k, v = (torch.randn(1, 1, n, 8, dtype=torch.float16).cuda().requires_grad_() for n in (3, 4500, 4500))
    mask = create_block_mask(lambda b, h, q, k: k // 128 == 34, None, None, 3, 4500, device="cuda")
    result = flex_attention(q, k, v, None, mask)
    seen = slice(34 * 128, 35 * 128)
    wanted = flex_attention(q, k[:, :, seen], v[:, :, seen])
    assert torch.equal(result, wanted)
    for a, b in zip(
        torch.autograd.grad(result.sum(), (q, k, v)), torch.autograd.grad(wanted.sum(), (q, k, v)), strict=True
    ):
        assert torch.equal(a, b)
    turned = create_block_mask(lambda b, h, q, k: q // 128 == 34, None, None, 4500, 3, device="cuda")
    (grad,) = torch.autograd.grad(flex_attention(k, q, q, None, turned).float().sum(), (k,))
    assert grad[:, :, : 34 * 128].abs().sum().item() == 0


def test_blocks_that_are_left_out_are_not_computed():
    q, k, v = small(1, 1, 300, 16)
    with torch.no_grad():
        k[:, :, 128:256], v[:, :, 128:256] = math.nan, math.nan
    mask = create_block_mask(lambda b, h, q, k: (k < 128) | (k >= 256), None, None, 300, 300, device="cuda")
    result = flex_attention(q, k, v, None, mask)
    grads = torch.autograd.grad(result.sum(), (q, k, v))
    assert all(torch.isfinite(t).all().item() for t in (result, *grads))
    assert grads[1][:, :, 128:256].abs().sum().item() == 0


def test_full_blocks_are_not_asked_for():
    """A mask_mod that hides all, in a BlockMask whose blocks are full: nothing is hidden."""
    q, k, v = small(1, 1, 256, 16)
    partly = torch.zeros(1, 1, 2, dtype=torch.int32, device="cuda")
    full = torch.full((1, 1, 2), 2, dtype=torch.int32, device="cuda")
    columns = torch.arange(2, dtype=torch.int32, device="cuda").expand(1, 1, 2, 2).contiguous()
    mask = BlockMask.from_kv_blocks(partly, columns, full, columns, mask_mod=lambda b, h, q, k: q < 0)
    got, wanted = flex_attention(q, k, v, None, mask), flex_attention(q, k, v)
    assert torch.equal(got, wanted)
    for a, b in zip(
        torch.autograd.grad(got.sum(), (q, k, v)), torch.autograd.grad(wanted.sum(), (q, k, v)), strict=True
    ):
        assert torch.equal(a, b)


def test_numbers_of_the_host_are_captured():
    q, k, v = small(1, 1, 20, 16)
    slope = torch.tensor(0.25)
    got = flex_attention(q, k, v, lambda s, b, h, q, k: s + slope * (k - q) * torch.ones_like(s))
    wanted = flex_attention(q, k, v, lambda s, b, h, q, k: s + 0.25 * (k - q))
    assert type(got.grad_fn).__name__.startswith("FlexAttention") and torch.equal(got, wanted)


@pytest.mark.parametrize("sizes", [(0, 2, 3, 4), (1, 2, 0, 4), (1, 2, 3, 0)])
def test_nothing_to_do(sizes):
    batch, heads, queries, keys = sizes
    q, k, v, grad = (t.cuda() for t in operands(batch, heads, heads, queries, keys, 16, torch.bfloat16))
    q, k, v = (t.requires_grad_() for t in (q, k, v))
    result = flex_attention(q, k, v, scores("cuda")["alibi"])
    assert result.shape == q.shape and result.abs().sum().item() == 0
    assert all(g.abs().sum().item() == 0 for g in torch.autograd.grad(result, (q, k, v), grad))


def test_what_does_not_fit_is_computed_with_all_scores():
    cases = (
        (small(1, 2, 20, 12), None, {}),
        (small(1, 2, 20, 16, dtype=torch.float64), None, {}),
        (small(1, 2, 20, 18, dtype=torch.float32), None, {}),
        (small(1, 2, 20, 16), lambda s, b, h, q, k: s - s.amax(-1, keepdim=True), {}),
        (small(1, 2, 20, 16), None, {"BLOCK_SIZE": 32}),
    )
    for leaves, score, how in cases:
        mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 20, 20, device="cuda", **how)
        result = flex_attention(*leaves, score, mask)
        assert not type(result.grad_fn).__name__.startswith("FlexAttention")
        exact = [t.detach().cpu().double() for t in leaves]
        wanted = formula(*exact, score, lambda b, h, q, k: q >= k, leaves[0].shape[-1] ** -0.5)[0]
        assert error(result.detach(), wanted) < TOLERANCE[torch.bfloat16]
        result.sum().backward()


def test_an_index_out_of_range_is_reported():
    q, k, v = small(1, 1, 20, 16)
    table = torch.zeros(19, device="cuda")
    with pytest.raises(IndexError, match="index 19 is out of bounds for dimension 0 with size 19"):
        flex_attention(q, k, v, lambda s, b, h, q, k: s + table[k])
        torch.cuda.synchronize()


def test_autocast():
    q, k, v = (t.detach().float().requires_grad_() for t in small(1, 2, 20, 16))
    with torch.autocast("cuda", dtype=torch.bfloat16):
        result = flex_attention(q, k, v, scores("cuda")["alibi"])
    assert result.dtype == torch.bfloat16
    result.sum().backward()
    assert q.grad.dtype == torch.float32


PROGRAM = """
import sys
import wick as torch
from wick.nn.attention.flex_attention import create_block_mask, flex_attention

call = torch.compile(flex_attention, fullgraph=True) if sys.argv[1] == "compiled" else flex_attention
bias = torch.randn(80, device="cuda")
mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 40, 40, device="cuda")
for _ in range(4):
    q, k, v = (torch.randn(1, 2, 40, 16, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    call(q, k, v, lambda s, b, h, q, k: s + bias[k - q + 40], mask).sum().backward()
"""


@pytest.mark.parametrize("how", ["eager", "compiled"])
def test_the_kernels_are_its_own(how):
    env = {**os.environ, "WICK_LOGS": "kernel_times"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], env=env, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for name in ("flex attention bf16", "flex attention dk, dv bf16", "flex attention dq bf16"):
        assert f"{name} 1x2x40x40x16" in done.stderr, done.stderr[-2000:]
