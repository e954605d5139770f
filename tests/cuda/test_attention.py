"""Attention of small floats and float32 without the scores in memory (codegen/ptx_attention.h): values and gradients against the
formula in doubles, dropout against the mask that the formula's own dropout draws, and what is left to the parts."""

import math

import pytest

import wick as torch

F = torch.nn.functional
TOLERANCE = {torch.bfloat16: 8e-3, torch.float16: 1e-3, torch.float32: 1e-6}


def formula(q, k, v, mask, causal, scale, kept):
    """softmax(scale q k^T + mask) v in doubles; `kept`: what the probabilities are multiplied by, or None."""
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scores = (q @ k.transpose(-1, -2)) * scale
    if causal:
        seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
        scores = scores.masked_fill(seen.logical_not(), -math.inf)
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(mask.logical_not(), -math.inf)
    elif mask is not None:
        scores = scores + mask.double()
    weights = scores.softmax(-1)
    return (weights if kept is None else weights * kept) @ v


def operands(batch, heads, key_heads, queries, keys, size, dtype):
    shapes = ((heads, queries), (key_heads, keys), (key_heads, keys), (heads, queries))
    return [torch.randn(batch, h, t, size).to(dtype) for h, t in shapes]


def mask_of(kind, batch, heads, queries, keys, dtype):
    if kind == "bool":
        return (torch.rand(heads, queries, keys) > 0.3) | (torch.arange(keys) == 0)
    if kind == "f32":
        return torch.randn(queries, keys)
    return torch.randn(batch, 1, queries, keys).to(dtype) if kind == "own" else None


def error(got, wanted):
    return ((got.cpu().double() - wanted).norm() / wanted.norm()).item()


def run(q, k, v, grad, seed=3, **options):
    """Value and gradients on the device."""
    torch.manual_seed(seed)
    inputs = [t.to("cuda").requires_grad_() for t in (q, k, v)]
    y = F.scaled_dot_product_attention(*inputs, **options)
    y.backward(grad.to("cuda"))
    return y, [t.grad for t in inputs]


@pytest.mark.parametrize("how", ["mma", "wgmma"])
@pytest.mark.parametrize(
    "batch, heads, key_heads, queries, keys, size, dtype, causal, mask, dropout",
    [
        (1, 1, 1, 16, 16, 64, torch.bfloat16, False, None, 0.0),
        (1, 2, 2, 70, 90, 64, torch.bfloat16, False, None, 0.0),
        (2, 4, 2, 70, 90, 64, torch.bfloat16, True, None, 0.0),
        (1, 1, 1, 140, 68, 64, torch.bfloat16, False, None, 0.3),
        (1, 2, 1, 68, 132, 64, torch.float16, True, None, 0.5),
        (1, 2, 2, 40, 72, 128, torch.float16, True, None, 0.0),
        (1, 1, 1, 300, 300, 64, torch.bfloat16, True, None, 0.0),
        (1, 1, 1, 130, 292, 128, torch.bfloat16, False, None, 0.1),
        (1, 1, 1, 40, 72, 80, torch.float16, False, "bool", 0.0),
        (1, 2, 2, 33, 50, 72, torch.bfloat16, False, "f32", 0.0),
        (2, 2, 2, 33, 52, 40, torch.bfloat16, False, "own", 0.2),
        (2, 2, 1, 33, 52, 40, torch.float16, False, "own", 0.2),
        (1, 1, 1, 40, 72, 256, torch.bfloat16, True, None, 0.0),
        (1, 1, 1, 40, 30, 192, torch.float16, False, "bool", 0.0),
        (1, 1, 1, 5, 3, 8, torch.float16, False, None, 0.0),
        (1, 1, 1, 16, 16, 64, torch.float32, False, None, 0.0),
        (2, 4, 2, 70, 90, 64, torch.float32, True, None, 0.0),
        (1, 2, 1, 140, 132, 64, torch.float32, True, None, 0.5),
        (1, 2, 2, 140, 72, 128, torch.float32, True, None, 0.0),
        (1, 1, 1, 130, 292, 100, torch.float32, False, None, 0.1),
        (1, 1, 1, 40, 72, 80, torch.float32, False, "bool", 0.0),
        (2, 2, 1, 33, 52, 36, torch.float32, False, "own", 0.2),
        (1, 1, 1, 70, 72, 256, torch.float32, True, None, 0.0),
        (1, 1, 1, 40, 30, 196, torch.float32, False, "f32", 0.0),
        (1, 1, 1, 5, 3, 4, torch.float32, False, None, 0.0),
        (1, 1, 1, 300, 300, 32, torch.float32, True, None, 0.0),
    ],
)
def test_is_the_formula(batch, heads, key_heads, queries, keys, size, dtype, causal, mask, dropout, how, monkeypatch):
    monkeypatch.setenv("WICK_CUDA_PRODUCTS", how)
    torch.manual_seed(1)
    q, k, v, grad = operands(batch, heads, key_heads, queries, keys, size, dtype)
    m = mask_of(mask, batch, heads, queries, keys, dtype)
    kept = None
    if dropout:
        torch.manual_seed(3)
        kept = torch.dropout(torch.ones(batch, heads, queries, keys, device="cuda"), dropout, True).cpu().double()
    y, grads = run(
        q,
        k,
        v,
        grad,
        attn_mask=None if m is None else m.to("cuda"),
        dropout_p=dropout,
        is_causal=causal,
        enable_gqa=heads != key_heads,
    )
    assert type(y.grad_fn).__name__.startswith("FusedAttention")
    exact = [t.double().requires_grad_() for t in (q, k, v)]
    wanted = formula(*exact, m, causal, 1 / math.sqrt(size), kept)
    wanted.backward(grad.double())
    for got, want in [(y.detach(), wanted.detach())] + [(g, t.grad) for g, t in zip(grads, exact, strict=True)]:
        assert error(got, want) < TOLERANCE[dtype]


@pytest.mark.parametrize("how", ["mma", "wgmma"])
@pytest.mark.parametrize(
    "size, value_size, dtype, causal, mask, dropout",
    [
        (16, 24, torch.bfloat16, True, None, 0.0),
        (64, 128, torch.bfloat16, False, None, 0.1),
        (128, 64, torch.float16, True, None, 0.0),
        (192, 128, torch.bfloat16, True, None, 0.0),
        (72, 200, torch.float16, False, "bool", 0.0),
        (256, 8, torch.float16, False, "own", 0.0),
        (64, 32, torch.float32, True, None, 0.2),
        (36, 132, torch.float32, False, "f32", 0.0),
        (192, 128, torch.float32, True, None, 0.0),
        (4, 256, torch.float32, False, None, 0.0),
    ],
)
def test_values_of_another_size(size, value_size, dtype, causal, mask, dropout, how, monkeypatch):
    monkeypatch.setenv("WICK_CUDA_PRODUCTS", how)
    torch.manual_seed(1)
    q, k, _, _ = operands(2, 4, 2, 140, 72, size, dtype)
    _, _, v, grad = operands(2, 4, 2, 140, 72, value_size, dtype)
    m = mask_of(mask, 2, 4, 140, 72, dtype)
    kept = None
    if dropout:
        torch.manual_seed(3)
        kept = torch.dropout(torch.ones(2, 4, 140, 72, device="cuda"), dropout, True).cpu().double()
    given = None if m is None else m.to("cuda")
    y, grads = run(q, k, v, grad, attn_mask=given, is_causal=causal, dropout_p=dropout, enable_gqa=True)
    assert type(y.grad_fn).__name__.startswith("FusedAttention") and y.shape == grad.shape
    exact = [t.double().requires_grad_() for t in (q, k, v)]
    wanted = formula(*exact, m, causal, 1 / math.sqrt(size), kept)
    wanted.backward(grad.double())
    for got, want in [(y.detach(), wanted.detach())] + [(g, t.grad) for g, t in zip(grads, exact, strict=True)]:
        assert error(got, want) < TOLERANCE[dtype]


@pytest.mark.parametrize("how, dtype", [("mma", torch.bfloat16), ("wgmma", torch.bfloat16), ("mma", torch.float32)])
def test_same_bits_every_time(how, dtype, monkeypatch):
    monkeypatch.setenv("WICK_CUDA_PRODUCTS", how)
    torch.manual_seed(1)
    q, k, v, grad = operands(1, 2, 1, 70, 132, 64, dtype)
    runs = [run(q, k, v, grad, dropout_p=0.2, is_causal=True, enable_gqa=True) for _ in range(2)]
    for a, b in zip([runs[0][0], *runs[0][1]], [runs[1][0], *runs[1][1]], strict=True):
        assert torch.equal(a, b)


def test_dropout_takes_from_the_generator_what_its_mask_would():
    def state_after(fn):
        torch.manual_seed(5)
        fn()
        return torch.cuda.get_rng_state().tolist()

    q = torch.randn(1, 2, 12, 16, device="cuda", dtype=torch.bfloat16)
    mask = torch.ones(1, 2, 12, 12, device="cuda")
    attention = state_after(lambda: F.scaled_dot_product_attention(q, q, q, dropout_p=0.1))
    assert attention == state_after(lambda: torch.dropout(mask, 0.1, True))
    assert attention != state_after(lambda: None)


def test_a_row_that_sees_nothing_is_zero():
    torch.manual_seed(1)
    q, k, v, grad = operands(1, 1, 1, 20, 24, 16, torch.float16)
    mask = torch.ones(20, 24, dtype=torch.bool)
    mask[3] = False
    y, grads = run(q, k, v, grad, attn_mask=mask.to("cuda"))
    assert y[0, 0, 3].abs().sum().item() == 0
    assert grads[0][0, 0, 3].abs().sum().item() == 0
    assert all(torch.isfinite(t).all().item() for t in [y, *grads])


def laid_out(layout, dtype=torch.float32):
    """q, k and v, (2, 3, 9, 16), of the same values: whole, or as projections' results have them; rows first, as
    nn.MultiheadAttention has them; and with columns in front of the rows, which no kernel of PyTorch's takes."""
    torch.manual_seed(2)
    b, h, n, d = 2, 3, 9, 16
    x = torch.randn(b, n, 3, h, d, device="cuda").to(dtype)
    parts = [x[:, :, i].transpose(1, 2) for i in range(3)]  # packed
    orders = {
        "whole": (0, 1, 2, 3),
        "inside": (0, 2, 1, 3),
        "rows first": (2, 0, 1, 3),
        "columns first": (0, 1, 3, 2),
    }
    if layout == "packed":
        return parts
    order = orders[layout]
    back = [order.index(dim) for dim in range(4)]
    return [t.permute(order).contiguous().permute(back) for t in parts]


IN_ORDER = {
    "whole": (432, 144, 16, 1),
    "inside": (432, 16, 48, 1),
    "packed": (432, 16, 48, 1),
    "rows first": (48, 16, 96, 1),
    "columns first": (432, 144, 16, 1),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("layout", IN_ORDER)
def test_the_result_lies_as_pytorchs_does(layout, dtype):
    """Of float32 with the heads inside of rows, of small floats as the query; what follows in a transformer is a view."""
    inputs = [t.detach().requires_grad_() for t in laid_out(layout, dtype)]
    y = F.scaled_dot_product_attention(*inputs, is_causal=True)
    inside = dtype == torch.float32 and layout != "columns first"
    assert y.stride() == IN_ORDER["inside" if inside else layout]
    rows = y.transpose(1, 2).reshape(2, 9, 48)
    shares = rows.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()
    assert shares == (inside or layout not in ("whole", "columns first"))
    grads = torch.autograd.grad(rows, inputs, torch.ones_like(rows))
    if layout != "columns first":
        assert [g.stride() for g in grads] == [IN_ORDER[layout]] * 3
    whole = [t.detach().requires_grad_() for t in laid_out("whole", dtype)]
    plain = F.scaled_dot_product_attention(*whole, is_causal=True)
    wanted = torch.autograd.grad(plain, whole, torch.ones_like(plain))
    assert torch.equal(y, plain) and all(torch.equal(g, w) for g, w in zip(grads, wanted, strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("layout", IN_ORDER)
def test_compiled_the_result_lies_where_it_does(layout, dtype):
    def block(q, k, v):
        y = F.scaled_dot_product_attention(q * 2, k, v)
        return y, y.transpose(1, 2).reshape(2, 9, 48) + 1

    def outcome(fn):
        inputs = [t.detach().requires_grad_() for t in laid_out(layout, dtype)]
        y, rows = fn(*inputs)
        (y.sum() + (rows * rows).sum()).backward()
        return [y, rows, *(t.grad for t in inputs)]

    compiled = torch.compile(block)
    for _ in range(4):  # the device's graphs come with the third
        for got, want in zip(outcome(compiled), outcome(block), strict=True):
            assert got.stride() == want.stride() and torch.equal(got, want)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_rows_that_are_not_of_pieces(dtype):
    _, k, v = laid_out("whole", dtype)
    odd = torch.randn(2, 3, 9, 17, device="cuda", dtype=dtype)[..., 1:]
    wanted = formula(*(t.cpu().double() for t in (odd, k, v)), None, False, 0.25, None)
    assert error(F.scaled_dot_product_attention(odd, k, v), wanted) < TOLERANCE[dtype]


def test_gradients_by_differences():
    torch.manual_seed(2)
    q, k, v, grad = (t.cuda() for t in operands(1, 2, 1, 5, 6, 8, torch.float32))
    mask = torch.randn(5, 6, device="cuda")

    def loss(*operands):
        result = F.scaled_dot_product_attention(*operands, attn_mask=mask, enable_gqa=True)
        return (result.double() * grad.double()).sum().item()

    inputs = [t.requires_grad_() for t in (q, k, v)]
    F.scaled_dot_product_attention(*inputs, attn_mask=mask, enable_gqa=True).backward(grad)
    for n, t in enumerate(inputs):
        step = torch.randn(*t.shape, device="cuda")
        ends = [
            [x.detach() + (sign * step if m == n else 0) for m, x in enumerate(inputs)] for sign in (2**-7, -(2**-7))
        ]
        slope = (loss(*ends[0]) - loss(*ends[1])) * 2**6
        assert abs(slope - (t.grad * step).double().sum().item()) < 1e-3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("sizes", [(0, 2, 3, 4), (1, 2, 0, 4), (1, 2, 3, 0)])
def test_nothing_to_do(sizes, dtype):
    batch, heads, queries, keys = sizes
    q, k, v, grad = operands(batch, heads, heads, queries, keys, 16, dtype)
    y, grads = run(q, k, v, grad)
    assert y.shape == (batch, heads, queries, 16)
    assert y.abs().sum().item() == 0
    assert all(g.abs().sum().item() == 0 for g in grads)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("keys", [0, 70])
def test_threads_do_not_race(monkeypatch, keys, dtype):
    monkeypatch.setenv("WICK_EMULATOR_RACES", "1")  # without keys nothing waits for the queries' copies
    q, k, v, grad = operands(1, 2, 2, 70, keys, 64, dtype)
    run(q, k, v, grad)
    torch.cuda.synchronize()


def test_what_does_not_fit_is_taken_apart():
    torch.manual_seed(1)
    for dtype, size, other in (
        (torch.bfloat16, 12, 12),
        (torch.bfloat16, 16, 20),
        (torch.bfloat16, 16, 264),
        (torch.float32, 6, 6),
        (torch.float64, 8, 8),
    ):
        q, k = (torch.randn(1, 2, 6, size, dtype=dtype, device="cuda", requires_grad=True) for _ in range(2))
        v = torch.randn(1, 2, 6, other, dtype=dtype, device="cuda")
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        assert not type(y.grad_fn).__name__.startswith("FusedAttention")
        wanted = formula(*(t.detach().cpu().double() for t in (q, k, v)), None, True, size**-0.5, None)
        assert error(y.detach(), wanted) < TOLERANCE[torch.bfloat16]
    mask = torch.zeros(6, 6, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    q = torch.randn(1, 2, 6, 16, dtype=torch.bfloat16, device="cuda")
    F.scaled_dot_product_attention(q, q, q, attn_mask=mask).sum().backward()
    assert mask.grad is not None


def test_dropout_of_a_causal_formula():
    """In f64, whose parts are beside each other on the device."""
    torch.manual_seed(1)
    q, k, v, grad = (t.double() for t in operands(1, 2, 2, 8, 8, 16, torch.float16))
    y, _ = run(q, k, v, grad, dropout_p=0.5, is_causal=True)
    torch.manual_seed(3)
    kept = torch.dropout(torch.ones(1, 2, 8, 8, device="cuda", dtype=torch.float64), 0.5, True).cpu()
    assert error(y.detach(), formula(q, k, v, None, True, 0.25, kept)) < 1e-12


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_compiled_and_under_vmap(dtype):
    torch.manual_seed(1)
    q, k, v, grad = operands(2, 2, 2, 20, 24, 16, dtype)

    def step(q, k, v):
        return F.scaled_dot_product_attention(q * 2, k, v, is_causal=True) + 1

    def gradients(fn):
        inputs = [t.to("cuda").requires_grad_() for t in (q, k, v)]
        y = fn(*inputs)
        y.backward(grad.to("cuda"))
        return [y.detach()] + [t.grad for t in inputs]

    for eager, compiled in zip(gradients(step), gradients(torch.compile(step)), strict=True):
        assert torch.equal(eager, compiled)
    many = [torch.stack([t, t + 1]).to("cuda") for t in (q, k, v)]
    batched = torch.func.vmap(step)(*many)
    for n in range(2):
        assert torch.equal(batched[n], step(*(t[n] for t in many)))


def test_autocast():
    q = torch.randn(1, 2, 8, 16, device="cuda", requires_grad=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        y = F.scaled_dot_product_attention(q, q, q)
    assert y.dtype == torch.bfloat16
    y.sum().backward()
    assert q.grad.dtype == torch.float32


@pytest.mark.parametrize(
    "size, causal, dropout", [(64, True, 0.1), (36, False, 0.0), (128, True, 0.0), (196, False, 0.0)]
)
def test_float32_as_tf32(size, causal, dropout):
    """Where products may be: numbers of 11 bits, and no others where they may not."""
    torch.manual_seed(1)
    q, k, v, grad = operands(1, 4, 2, 140, 72, size, torch.float32)
    kept = None
    if dropout:
        torch.manual_seed(3)
        kept = torch.dropout(torch.ones(1, 4, 140, 72, device="cuda"), dropout, True).cpu().double()
    exact = [t.double().requires_grad_() for t in (q, k, v)]
    wanted = formula(*exact, None, causal, 1 / math.sqrt(size), kept)
    wanted.backward(grad.double())
    for allowed in (False, True):
        torch.backends.cuda.matmul.allow_tf32 = allowed
        try:
            y, grads = run(q, k, v, grad, is_causal=causal, dropout_p=dropout, enable_gqa=True)
        finally:
            torch.backends.cuda.matmul.allow_tf32 = False
        for got, want in [(y.detach(), wanted.detach())] + [(g, t.grad) for g, t in zip(grads, exact, strict=True)]:
            assert error(got, want) < (2e-3 if allowed else TOLERANCE[torch.float32])
            assert not allowed or error(got, want) > TOLERANCE[torch.float32]
