"""flex_attention and block masks against PyTorch: values, the parts of a BlockMask, printed forms, error texts."""

import importlib

import pytest
from compare import outcome, same, torch

import wick  # noqa: F401

NAME = "nn.attention.flex_attention"
MASKS = {
    "causal": lambda t: lambda b, h, q, k: q >= k,
    "window": lambda t: lambda b, h, q, k: (q >= k) & (q - k <= 70),
    "documents": lambda t: lambda b, h, q, k: t.arange(300)[q] // 90 == t.arange(300)[k] // 90,
    "by head": lambda t: lambda b, h, q, k: (q >= k) | (h == 1),
    "nothing": lambda t: lambda b, h, q, k: q < 0,
}
SCORES = {
    "none": lambda t: None,
    "alibi": lambda t: lambda s, b, h, q, k: s + t.tensor([0.5, 0.25])[h] * (k - q),
    "relative": lambda t: lambda s, b, h, q, k: s + t.linspace(-2, 2, 400).sin()[q - k + 200],
    "soft-capped": lambda t: lambda s, b, h, q, k: 2 * t.tanh(s / 2),
    "of places": lambda t: lambda s, b, h, q, k: t.where((q + k) % 3 == 0, s * (b + 1), s - h),
}
ERRORS = [
    "f.flex_attention(q[0], q[0], q[0])", "f.flex_attention(q, q[:, :1], q[:, :1])", "f.flex_attention(q, q[..., :2], q)",
    "f.flex_attention(q, q, q, block_mask=f.create_block_mask(causal, None, None, 100, 200, device='cpu'))",
    "f.flex_attention(q, q, q, block_mask=f.create_block_mask(causal, None, None, 400, 200, device='cpu'))",
    "f.flex_attention(q, q[:1], q[:1])", "f.flex_attention(q, q, q, return_lse=True, return_aux=f.AuxRequest(lse=True))",
    "f.create_block_mask(lambda s, b, h, q, k: s, None, None, 8, 8, device='cpu')", "f.or_masks(1)", "f.and_masks(None)",
    "f.flex_attention(q, q, q, lambda s, *_: None)", "f.flex_attention(q, q, q, lambda s, b, h, i, j: 1.0)",
    "f.create_block_mask(lambda q, k: q, None, None, 8, 8, device='cpu')",
    "f.BlockMask.from_kv_blocks(mask.kv_num_blocks, mask.kv_indices[0, 0, 0])",
    "f.BlockMask.from_kv_blocks(mask.kv_num_blocks, mask.kv_indices, mask.full_kv_num_blocks)",
]  # fmt: skip


def parts(t):
    flex = importlib.import_module(f"{t.__name__}.{NAME}")
    flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = True  # PyTorch's eager form
    t.manual_seed(1)
    return flex, [t.randn(2, 2, n, 16) for n in (130, 200, 200)]


def mask_of(t, flex, name, sizes=(130, 200), block=128):
    heads = 2 if name == "by head" else None
    return flex.create_block_mask(MASKS[name](t), None, heads, *sizes, device="cpu", BLOCK_SIZE=block)


@pytest.mark.parametrize("mask", ["none", *MASKS])
@pytest.mark.parametrize("score", SCORES)
def test_values(score, mask):
    def call(t):
        flex, (q, k, v) = parts(t)
        block_mask = None if mask == "none" else mask_of(t, flex, mask)
        return flex.flex_attention(q, k, v, SCORES[score](t), block_mask, return_aux=flex.AuxRequest(lse=True))

    same(call, 2e-5)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
def test_dtypes_and_groups(dtype):
    def call(t):
        flex, (q, k, v) = parts(t)
        q, k, v = (x.to(getattr(t, dtype)) for x in (q, k[:, :1], v[:, :1]))
        return flex.flex_attention(q, k, v, SCORES["alibi"](t), scale=0.5, enable_gqa=True)

    same(call, {"float64": 1e-12, "bfloat16": 2e-2, "float16": 2e-3}[dtype])


@pytest.mark.parametrize("block", [128, (32, 64)])
@pytest.mark.parametrize("mask", MASKS)
def test_block_masks(mask, block):
    def call(t):
        flex, _ = parts(t)
        made = mask_of(t, flex, mask, (256, 384), block)
        some = made[0, -1] if mask == "by head" else made[:, :, t.tensor([1])]
        adjusted = made._adjust(130, 200)
        counted = [
            (m.kv_num_blocks, m.full_kv_num_blocks, m.q_num_blocks, m.full_q_num_blocks) for m in (made, some, adjusted)
        ]
        plain = [made.to_dense(), made.shape, made.numel(), made.sparsity(), made.BLOCK_SIZE, made.seq_lengths]
        items = (made.kv_indices, made.full_kv_indices, made.q_indices)
        return counted, plain, items, str(made), len(made.as_tuple()), len(made.as_tuple(False)), made.to_string(2)

    same(call)


def test_made_of_blocks():
    def call(t):
        flex, _ = parts(t)
        causal = mask_of(t, flex, "causal", (256, 256), 64)
        made = flex.BlockMask.from_kv_blocks(causal.kv_num_blocks, causal.kv_indices, BLOCK_SIZE=64)
        return made.shape, made.to_dense(), made.q_indices, made.sparsity(), made.full_kv_num_blocks, str(made)

    same(call)


def test_masks_of_functions():
    def call(t):
        flex, _ = parts(t)
        both = [MASKS["causal"](t), MASKS["window"](t)]
        score = SCORES["soft-capped"](t)
        made = [flex.create_mask(join(*both), 2, None, 9, 12, device="cpu") for join in (flex.and_masks, flex.or_masks)]
        return made, flex.create_mask(score, 1, 2, 3, 4, device="cpu")

    same(call)


@pytest.mark.parametrize("call", ERRORS)
def test_errors(call):
    def raises(t):
        flex, (q, _, _) = parts(t)
        q = t.cat([q, q], 2)[:, :, :200]
        names = {"f": flex, "q": q, "causal": MASKS["causal"](t), "mask": mask_of(t, flex, "causal")}
        return eval(call, names)

    assert "Error" in str(outcome(raises, torch)[0])
    same(raises)
