"""flex_attention: against the formula over all scores, in blocks and with captured tensors, eager and compiled."""

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
    create_mask,
    flex_attention,
    or_masks,
)

B, H, QUERIES, KEYS = 2, 3, 70, 150  # no multiples of the kernel's blocks, 64 and 128
SLOPES = torch.tensor([0.5, 0.25, 0.125], dtype=torch.float64)
BIAS = torch.linspace(-2, 2, H * (QUERIES + KEYS), dtype=torch.float64).view(H, -1).sin()
DOCUMENTS = (torch.arange(KEYS) // 37) % 3
SCORES = {
    "none": None,
    "alibi": lambda s, b, h, q, k: s + SLOPES[h] * (k - q),
    "relative": lambda s, b, h, q, k: s + BIAS[h, k - q + QUERIES],
    "soft-capped": lambda s, b, h, q, k: 2 * torch.tanh(s / 2),
    "masking": lambda s, b, h, q, k: torch.where(q >= k, s, -math.inf),
    "of batch": lambda s, b, h, q, k: s * (1 + 0.5 * b) - (q % 3) * 0.1,
    "constant": lambda s, b, h, q, k: (q * 0.1 - k * 0.2).sin(),
    "composite": lambda s, b, h, q, k: torch.nn.functional.gelu(s) + torch.clamp(s, -1, 1),
}
MASKS = {
    "none": None,
    "causal": lambda b, h, q, k: q >= k,
    "window": lambda b, h, q, k: (q >= k) & (q - k <= 20),
    "documents": lambda b, h, q, k: DOCUMENTS[q] == DOCUMENTS[k],
    "prefix": or_masks(lambda b, h, q, k: q >= k, lambda b, h, q, k: k < 30),
    "rows without keys": and_masks(lambda b, h, q, k: q >= k, lambda b, h, q, k: q % 40 > 20),
    "by head": lambda b, h, q, k: (q >= k) | (h == 1),
}


def operands(dtype=torch.float64, heads=H, requires_grad=True):
    sizes = ((B, H, QUERIES, 8), (B, heads, KEYS, 8), (B, heads, KEYS, 12))
    torch.manual_seed(1)
    return [torch.randn(*size, dtype=dtype).requires_grad_(requires_grad) for size in sizes]


def mask_of(name, block=128):
    mask = MASKS[name]
    heads = H if name == "by head" else None
    return mask and create_block_mask(mask, None, heads, QUERIES, KEYS, device="cpu", BLOCK_SIZE=block)


def formula(q, k, v, score=None, mask=None, scale=None):
    """Of a matrix of all scores: the result, the logarithms and the largest scores."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = (q @ k.mT) * scale
    places = torch.meshgrid(*[torch.arange(n) for n in scores.shape], indexing="ij")
    scores = score(scores, *places).to(v.dtype) if score else scores
    if mask:
        scores = torch.where(mask(*places), scores, -math.inf)
    largest = scores.amax(-1, keepdim=True)
    weights = (scores - torch.where(largest == -math.inf, 0.0, largest).detach()).exp()
    sums = weights.sum(-1, keepdim=True)
    some = torch.where(sums == 0, 1.0, sums)
    result = weights / some @ v
    logarithms = torch.where(sums == 0, -math.inf, some.log() + largest.detach())
    return result, logarithms.squeeze(-1), largest.squeeze(-1)


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def gradients(result, logarithms, leaves):
    weight = torch.arange(result.numel(), dtype=result.dtype).view(result.shape).sin()
    finite = torch.where(logarithms == -math.inf, 0.0, logarithms)
    loss = (result * weight).sum() + (finite * finite.detach().cos()).sum()
    return torch.autograd.grad(loss, leaves, materialize_grads=True)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("score", SCORES)
def test_against_all_scores(score, mask):
    leaves = operands()
    expected = formula(*leaves, SCORES[score], MASKS[mask])
    expected_gradients = gradients(*expected[:2], leaves)
    for block in (128, (16, 32)):
        result, aux = flex_attention(
            *leaves, SCORES[score], mask_of(mask, block), return_aux=AuxRequest(lse=True, max_scores=True)
        )
        for a, b in zip((result, *aux), expected, strict=True):
            close(a, b)
        for a, b in zip(gradients(result, aux.lse, leaves), expected_gradients, strict=True):
            close(a, b)


@pytest.mark.parametrize("score", [name for name in SCORES if SCORES[name]])
def test_each_score_is_a_loop_body(score):
    """Also one whose gradient is a sum of several, which the engine would add up in place."""
    result = flex_attention(*operands(), SCORES[score])
    assert type(result.grad_fn).__name__.startswith("FlexAttention")


@pytest.mark.parametrize("score", ["soft-capped", "relative", "composite"])
def test_gradients_by_differences(score):
    torch.manual_seed(2)
    q, k, v = (torch.randn(1, 2, n, 3, dtype=torch.float64, requires_grad=True) for n in (4, 5, 5))
    mask = create_block_mask(MASKS["causal"], None, None, 4, 5, device="cpu")
    assert torch.autograd.gradcheck(lambda *x: flex_attention(*x, SCORES[score], mask), (q, k, v))


def test_forward_mode():
    q, k, v = operands(requires_grad=False)
    tangent = torch.ones_like(q) / 3

    def at(step):
        return flex_attention(q + step * tangent, k, v, SCORES["soft-capped"], mask_of("causal"))

    _, slope = torch.func.jvp(
        lambda q: flex_attention(q, k, v, SCORES["soft-capped"], mask_of("causal")), (q,), (tangent,)
    )
    torch.testing.assert_close(slope, (at(1e-5) - at(-1e-5)) / 2e-5, rtol=1e-6, atol=1e-8)


def learned():
    """Functions of a score with tensors that require grad, and these."""
    bias, slopes = BIAS.clone().requires_grad_(), SLOPES.float().requires_grad_()
    cap, row = torch.tensor(2.0, dtype=torch.float64, requires_grad=True), torch.ones(1, requires_grad=True)
    return [
        (lambda s, b, h, q, k: s + bias[h, k - q + QUERIES], [bias]),
        (lambda s, b, h, q, k: cap * torch.tanh(s / cap) + slopes[h] * (k - q) * 0.1, [cap, slopes]),
        (lambda s, b, h, q, k: s * row + bias[h, k] * bias.detach()[h, q].exp(), [bias, row]),
        (lambda s, b, h, q, k: bias.mT[k + 1, h] * 3 - DOCUMENTS[q], [bias]),
        (
            lambda s, b, h, q, k: torch.where(DOCUMENTS[q] != DOCUMENTS[k + 0], s, -math.inf) + slopes.exp()[h] * k,
            [slopes],
        ),
    ]


@pytest.mark.parametrize("case", range(5))
def test_gradients_of_captured_tensors(case):
    score, leaves = learned()[case]
    for mask in ("none", "documents", "rows without keys"):
        for operands_too in (True, False):
            given = operands(requires_grad=operands_too)
            wanted = leaves + given if operands_too else leaves
            expected = gradients(*formula(*given, score, MASKS[mask])[:2], wanted)
            for call in (flex_attention, torch.compile(flex_attention, fullgraph=True)):
                result, lse = call(*given, score, mask_of(mask, 32), return_lse=True)
                assert type(result.grad_fn).__name__.startswith(("FlexAttention", "Compiled"))
                for a, b in zip(gradients(result, lse, wanted), expected, strict=True):
                    assert a.dtype == b.dtype
                    torch.testing.assert_close(a, b, rtol=1e-4 if a.dtype == torch.float32 else 1e-9, atol=1e-6)


def test_gradients_of_a_large_table():
    table = torch.zeros(1500, 1000, dtype=torch.float64, requires_grad=True)
    leaves = operands()

    def score(s, b, h, q, k):
        return s + table[q, k] * (b + 1)

    for a, b in zip(
        gradients(*flex_attention(*leaves, score, mask_of("window"), return_lse=True), [table, *leaves]),
        gradients(*formula(*leaves, score, MASKS["window"])[:2], [table, *leaves]),
        strict=True,
    ):
        close(a, b)


def test_gradients_of_captured_tensors_by_differences():
    torch.manual_seed(2)
    q, k, v = (torch.randn(1, 2, n, 3, dtype=torch.float64, requires_grad=True) for n in (4, 5, 5))
    bias = torch.randn(2, 9, dtype=torch.float64, requires_grad=True)

    def call(q, k, v, bias):
        return flex_attention(q, k, v, lambda s, b, h, i, j: s * bias[h, 3] + bias[h, i - j + 4])

    assert torch.autograd.gradcheck(call, (q, k, v, bias))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_dtypes(dtype):
    leaves = operands(dtype)
    result, lse = flex_attention(*leaves, SCORES["soft-capped"], mask_of("causal"), return_lse=True)
    expected = formula(*[t.detach().double() for t in leaves], SCORES["soft-capped"], MASKS["causal"])
    precision = 1e-5 if dtype == torch.float32 else 2e-2
    assert result.dtype == dtype and lse.dtype == torch.float32
    torch.testing.assert_close(result.double(), expected[0], rtol=precision, atol=precision)
    torch.testing.assert_close(lse.double(), expected[1], rtol=1e-5, atol=1e-5)
    result.sum().backward()
    assert all(t.grad.dtype == dtype for t in leaves)


def test_grouped_heads_scale_and_layouts():
    q, k, v = operands(heads=1)
    expected = formula(q, k.expand(-1, H, -1, -1), v.expand(-1, H, -1, -1), SCORES["alibi"], None, 0.3)[0]
    close(flex_attention(q, k, v, SCORES["alibi"], scale=0.3, enable_gqa=True), expected)
    with pytest.raises(ValueError, match="Try setting enable_gqa=True"):
        flex_attention(q, k, v)
    inside = [t.detach().transpose(1, 2).contiguous().transpose(1, 2) for t in operands()]
    result = flex_attention(*inside, block_mask=mask_of("causal"))
    close(result, formula(*inside, None, MASKS["causal"])[0])
    assert result.stride() == (QUERIES * H * 12, 12, H * 12, 1)


def test_blocks_that_are_left_out_are_not_computed():
    q, k, v = operands(requires_grad=False)
    k[:, :, 128:] = math.nan  # in the second block of keys, behind all queries
    v[:, :, 128:] = math.nan
    assert flex_attention(q, k, v, SCORES["alibi"], mask_of("causal")).isfinite().all()


def test_full_blocks_are_not_asked_for():
    q, k, v = operands(requires_grad=False)
    one = torch.ones(1, 1, 3, dtype=torch.int32)
    numbers = torch.tensor([0, 1]).int().expand(1, 1, 3, 2)
    mask = BlockMask.from_kv_blocks(
        one,
        numbers,
        one,
        numbers.flip(-1),
        BLOCK_SIZE=(32, 96),
        mask_mod=lambda b, h, q, k: k < 10,
        seq_lengths=(70, 150),
    )
    seen = lambda b, h, q, k: (k < 10) | (k >= 96)  # noqa: E731
    close(flex_attention(q, k, v, block_mask=mask), formula(q, k, v, None, seen)[0])


def test_what_changes_between_calls_is_seen():
    q, k, v = operands(requires_grad=False)
    cap, table = [2.0], SLOPES.clone()

    def score(s, b, h, i, j):
        return torch.tanh(s / cap[0]) * cap[0] + table[h] * j

    compiled = torch.compile(flex_attention, fullgraph=True)
    for value in (2.0, 3.0, 5.0):
        cap[0] = value
        table += 1
        expected = formula(q, k, v, score)[0]
        close(flex_attention(q, k, v, score), expected)
        close(compiled(q, k, v, score), expected)


def test_autocast_takes_the_small_dtype():
    q, k, v = operands(torch.float32)
    for call in (flex_attention, torch.compile(flex_attention)):
        with torch.autocast("cpu", torch.bfloat16):
            result, aux = call(q, k, v, SCORES["soft-capped"], return_aux=AuxRequest(lse=True))
        assert result.dtype == torch.bfloat16 and aux.lse.dtype == torch.float32
        torch.testing.assert_close(result.float(), formula(q, k, v, SCORES["soft-capped"])[0], rtol=2e-2, atol=2e-2)


def looks_at_a_value(s, b, h, q, k):
    return s * 2 if q.sum() >= 0 else s


def writes(s, b, h, q, k):
    s = s.clone()
    s += SLOPES[h]
    return s


def picks_a_row(s, b, h, q, k):
    return s + BIAS[h][..., 3]


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, g):
        return 7 * g


def calls_attention(s, b, h, q, k):
    one = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    return s * flex_attention(one, one, one, lambda s, *_: 2 * s)


NO_BODIES = {
    "calls attention": calls_attention,
    "looks at a value": looks_at_a_value,
    "writes": writes,
    "picks a row": picks_a_row,
    "broadcasts": lambda s, b, h, q, k: s + SLOPES.view(-1, 1, 1),
}


@pytest.mark.parametrize("score", NO_BODIES)
def test_functions_that_are_no_loop_body(score):
    leaves = operands()
    score = NO_BODIES[score]
    expected = formula(*leaves, lambda s, *place: score(s, *[p[:1, :1, :1, :1] * 0 + p for p in place]))[0]
    for call in (flex_attention, torch.compile(flex_attention)):
        for _ in range(2):
            close(call(*leaves, score), expected)


def test_the_functions_own_derivatives():
    leaves = operands()
    for score, factor in ((lambda s, *_: Doubled.apply(s), 3.5), (lambda s, *_: s + s.detach(), 0.5)):
        (grad,) = torch.autograd.grad(flex_attention(*leaves, score).sin().sum(), leaves[0])
        (plain,) = torch.autograd.grad(formula(*leaves, lambda s, *_: 2 * s)[0].sin().sum(), leaves[0])
        close(grad, factor * plain)


def test_errors_of_the_functions_are_the_programs():
    q, k, v = operands(requires_grad=False)

    def wrong(s, b, h, i, j):
        raise KeyError("mine")

    for call in (flex_attention, torch.compile(flex_attention)):
        with pytest.raises(ValueError, match="must only return Tensors, got type <class 'NoneType'>"):
            call(q, k, v, lambda *_: None)
        with pytest.raises(KeyError, match="mine"):
            call(q, k, v, wrong)
        with pytest.raises(IndexError):
            call(q, k, v, lambda s, b, h, i, j: s + SLOPES[i])
    close(flex_attention(q, k, v), formula(q, k, v)[0])  # nothing is left open


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.project = torch.nn.Linear(24, 72, dtype=torch.float64)
        self.slopes = torch.nn.Buffer(SLOPES.clone())
        self.cap = 2.0

    def score(self, s, b, h, q, k):
        return torch.tanh((s + self.slopes[h] * (k - q)) / self.cap) * self.cap

    def forward(self, x, mask):
        q, k, v = (t.transpose(1, 2) for t in self.project(x).view(B, -1, 3, H, 8).unbind(2))
        return flex_attention(q, k, v, self.score, mask).transpose(1, 2).flatten(2)


def test_a_compiled_model_is_one_graph():
    torch.manual_seed(3)
    model, x = Model(), torch.randn(B, KEYS, 24, dtype=torch.float64)
    mask = create_block_mask(MASKS["causal"], None, None, KEYS, KEYS, device="cpu")
    names = []

    def backend(module, inputs):
        names.append([str(node.target) for node in module.graph.nodes])
        return module

    compiled = torch.compile(model, fullgraph=True)
    assert torch.equal(torch.compile(model, backend=backend, fullgraph=True)(x, mask), model(x, mask))
    assert sum("flex_attention" in name for name in names[0]) == 1 and not any("tanh" in name for name in names[0])
    for _ in range(3):
        for a, b in zip(
            torch.autograd.grad(compiled(x, mask).sin().sum(), model.parameters()),
            torch.autograd.grad(model(x, mask).sin().sum(), model.parameters()),
            strict=True,
        ):
            assert torch.equal(a, b)
        model.cap += 1


def test_threads_and_levels_give_the_same_bits():
    bias = BIAS.float().requires_grad_()
    leaves = [*operands(torch.float32), bias]

    def score(s, b, h, q, k):
        return torch.tanh(s) + bias[h, k - q + QUERIES]

    level, threads = torch._C._cpu_level(), torch.get_num_threads()
    results = []
    try:
        for use in torch._C._cpu_levels():
            for count in (1, 3):
                torch._C._set_cpu_level(use)
                torch.set_num_threads(count)
                result, lse = flex_attention(*leaves[:3], score, mask_of("window"), return_lse=True)
                results.append((result, lse, *gradients(result, lse, leaves)))
    finally:
        torch._C._set_cpu_level(level)
        torch.set_num_threads(threads)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


LONG = """

import wick as torch
from wick.nn.attention.flex_attention import create_block_mask, flex_attention
n = 6144
q, k, v = (torch.randn(1, 2, n, 16, requires_grad=True) for _ in range(3))
slopes = torch.tensor([0.5, 0.25])
mask = create_block_mask(lambda b, h, i, j: (i >= j) & (i - j < 300), None, None, n, n, device="cpu")
before = torch._C._memory_stats()["peak"]
flex_attention(q, k, v, lambda s, b, h, i, j: torch.tanh(s + slopes[h] * (j - i)), mask).sum().backward()
print(before, torch._C._memory_stats()["peak"], n * n * 4)
"""


def test_long_sequences_have_no_matrix_of_scores():
    printed = subprocess.run([sys.executable, "-c", LONG], capture_output=True, text=True, check=True).stdout
    before, after, matrix = map(int, printed.split())
    assert before < matrix and after < matrix / 4


def test_lengths_are_checked():
    q, k, v = operands(requires_grad=False)
    with pytest.raises(ValueError, match="was created for a smaller length"):
        flex_attention(q, k, v, block_mask=create_block_mask(MASKS["causal"], None, None, 64, KEYS, device="cpu"))
    longer = create_block_mask(MASKS["causal"], None, None, 100, KEYS, device="cpu", BLOCK_SIZE=32)
    with pytest.raises(ValueError, match="was created for a larger length"):
        flex_attention(q, k, v, block_mask=longer)
    cropped = longer._adjust(QUERIES, KEYS)
    close(flex_attention(q, k, v, block_mask=cropped), formula(q, k, v, None, MASKS["causal"])[0])
    with pytest.raises(RuntimeError, match="from a sliced BlockMask"):
        flex_attention(q, k, v, block_mask=mask_of("causal")[0])


def test_block_masks_are_those_of_the_whole_mask():
    for name in ("causal", "window", "documents"):
        mask, whole = mask_of(name, (16, 32)), create_mask(MASKS[name], 1, 1, QUERIES, KEYS, device="cpu")
        padded = torch.nn.functional.pad(whole, (0, -KEYS % 32, 0, -QUERIES % 16))
        blocks = padded.view(1, 1, 5, 16, 5, 32).sum((3, 5))
        assert torch.equal(mask.to_dense(), (blocks > 0).int())
        assert torch.equal(mask.full_kv_num_blocks, (blocks == 512).sum(-1).int())
        assert torch.equal(mask.q_num_blocks, ((blocks > 0) & (blocks < 512)).sum(-2).int())


def test_bodies_as_text_are_checked():
    q, k, v = operands(requires_grad=False)
    call = torch._C._flex_attention
    for text, message in (
        ("nest (i0 < 3)\n", "loops|buffer"),
        ("what", "expected"),
        ("nest (i0 < s0_0, i1 < s0_1)\nbuffer 0: float64[2]\nbuffer 1: float64[2]\nbuffer 2: float64[2] written\n"
         "%1 = load float64 0[i0, i1 + 1]\nstore 2[i0, i1] %1\n", "outside"),
        ("nest (i0 < s0_0, i1 < s0_1)\nbuffer 0: float64[2]\nbuffer 1: float64[2]\nbuffer 2: float64[2] written\n"
         "buffer 3: float64[1]\n%1 = load float64 3[0]\nstore 2[i0, i1] %1\n", "number of tensors"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            call(q, k, v, None, [], text, "", "", "", (1, 1), 1.0)
    with pytest.raises(RuntimeError, match="do not cover"):
        call(q, k, v, torch.ones(1, 1, 1, 1, dtype=torch.uint8), [], "", "", "", "", (64, 128), 1.0)


IN_NATIVE_CODE = """
import math, os, pathlib
import wick as torch
from wick.nn.attention.flex_attention import create_block_mask, flex_attention

slopes = torch.tensor([0.5, 0.25]).requires_grad_()
score = lambda s, b, h, q, k: torch.where(q >= k, torch.tanh(s / 20) * 20 + slopes[h] * (k - q), -math.inf)
mask = create_block_mask(lambda b, h, q, k: (q >= k) | (k % 7 == 0), None, None, 200, 300, device="cpu")
torch.manual_seed(0)
leaves = [torch.randn(2, 2, n, 16).requires_grad_() for n in (200, 300, 300)] + [slopes]

def step(q, k, v):
    out = flex_attention(q, k, v, score, mask)
    return out, *torch.autograd.grad((out * out).sum(), leaves)

objects = lambda: sum(p.stat().st_size > 4096 for p in pathlib.Path(os.environ["WICK_CACHE_DIR"]).rglob("*.so"))
expected = step(*leaves[:3])
with torch.no_grad():
    forward = torch.compile(lambda q, k, v: flex_attention(q, k, v, score, mask), fullgraph=True)
    for _ in range(2):
        assert torch.equal(forward(*leaves[:3]), expected[0])
        assert forward.wait_for_native()
    assert objects() > 0  # the graph has no kernels but those of the scores
compiled = torch.compile(step, fullgraph=True)
for _ in range(2):
    for a, b in zip(compiled(*leaves[:3]), expected, strict=True):
        assert torch.equal(a, b)
    assert compiled.wait_for_native()
for a, b in zip(step(*leaves[:3]), expected, strict=True):
    assert torch.equal(a, b)  # eager calls use it, too
"""


def test_scores_in_native_code(tmp_path):
    """A compiled step gets native code for the body of its scores and for the two derivatives of it; the same bits."""
    env = {**os.environ, "WICK_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", IN_NATIVE_CODE], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
